"""Every step, and every option of one: killed after each of its commits, undone, and done again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.file.database import File
from tablemapper.scripts.script import MigrationFunction

from .shapes import OLD, OLD_TOTALS, STOCK, Case, cases, contents, more_cases, texts, write

pytestmark = pytest.mark.usefixtures("batches_of_seven")

CASES = cases() | more_cases()
IRREVERSIBLE = {
    "rewrite", "rewrite that drops", "convert without back", "rewrite with combine", "join", "resolve"
}  # fmt: skip


class Killed(BaseException):
    """A run was killed."""


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def killed_by_its_first_commit() -> Iterator[None]:
    """End what runs in here right after its first transaction that changes the file."""
    committed = File._write

    def killing(self: File, apply: Callable[[Any], Any], generation: int | None, *, exclusive: bool) -> Any:
        changed = False

        def seen(writer: Any) -> Any:
            nonlocal changed
            before = writer.total_changes()
            result = apply(writer)
            changed = writer.total_changes() != before
            return result

        write = committed(self, seen, generation, exclusive=exclusive)
        if changed:
            raise Killed
        return write

    with mock.patch.object(File, "_write", killing):
        yield


def migrate(path: Path, scripts: list[MigrationFunction], **options: Any) -> tm.reports.MigrationReport:
    return tm.migrate(path, scripts, **{"rest": 0, "durability": "relaxed", **options})


def killed(path: Path, case: Case, between: Callable[[], None] = lambda: None, **options: Any) -> int:
    """Run scripts, killed after each commit, and do something after each kill; return how often it was killed."""
    for times in range(300):
        try:
            with killed_by_its_first_commit():
                assert migrate(path, case.scripts, **options).ok
            return times
        except Killed:
            between()
    raise AssertionError("it does not end")


def has_switched(path: Path) -> bool:
    return any(entry.state != "running" for entry in tm.status(path).history)


def killed_beside_writes(path: Path, case: Case) -> tuple[list[Any], int]:
    """Run scripts, killed after each commit, beside an old version that writes until the switch; return its entities then."""
    draw = random.Random(5)
    with tm.open(path, models=[OLD, OLD_TOTALS, STOCK], durability="relaxed") as store:
        old, left = list(store.query(OLD).allow_scan()), 40

        def between() -> None:
            nonlocal old, left
            if not has_switched(path):
                for _ in range(min(left, draw.randrange(4))):
                    write(store, draw)
                    left -= 1
                assert store.check().ok
                old = list(store.query(OLD).allow_scan())

        times = killed(path, case, between)
        return old, times


def check(path: Path, case: Case, old: list[Any]) -> None:
    """Compare a store that was migrated with what the old entities should have become."""
    with tm.open(path, models=case.new) as store:
        assert contents(store, case.new) == case.all_made(old)
        report = store.check()
        assert report.ok, report


def old_entities(path: Path) -> list[Any]:
    with tm.open(path, models=[OLD, OLD_TOTALS]) as store:
        assert store.check().ok
        return list(store.query(OLD).allow_scan())


def test_a_step_is_done_undone_and_done_again_or_cannot_be_undone_however_often_that_is_killed(
    path: Path, name: str
) -> None:
    case = CASES[name]
    old, times = killed_beside_writes(path, case)
    assert times >= 1
    check(path, case, old)
    if name in IRREVERSIBLE:
        with pytest.raises(tm.InvalidMigration, match="first: it cannot be undone"):
            migrate(path, case.scripts, to="")
        check(path, case, old)
    else:
        assert killed(path, case, to="") >= 1
        assert texts(old_entities(path)) == texts(old)
        old, times = killed_beside_writes(path, case)
        assert times >= 1
        check(path, case, old)
    assert killed(path, case, contract=True) >= 1
    check(path, case, old)
    with pytest.raises(tm.InvalidMigration, match="it was contracted|cannot be undone"):
        migrate(path, case.scripts, to="")
