"""Random questions of random stores in an account: the answers are what plain Python says, as of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.planning.query_spec import QuerySpec
from tablemapper.schema.model import compile_schema

from ..engines.azure.azurite import AzuritePlace
from ..engines.azure.place import AzurePlace
from . import stores
from .models import Model
from .questions import Ask
from .random_models import as_told
from .search import LOCAL, Kept, Tally, search, shrunk

pytestmark = [
    pytest.mark.one_python,
    pytest.mark.long,
    pytest.mark.file,
    pytest.mark.usefixtures("no_warnings_of_scans"),
]
PART = 4
"""Models that one test tries; some are refused, with what an account does not keep yet."""


def _can_stop(ask: Ask, model: Model) -> bool:
    """Return whether a write of several partitions may end between two of them, as one value is held twice."""
    return ask.verb == "update" and any(index.unique for record in model.records for index in record.indexes)


OF_ACCOUNT = Kept(
    as_told,
    lambda ask, model: not _can_stop(ask, model),
    # (Transactions over partitions, writes of several partitions that are all done or none.)
    lambda deed: deed.verb not in ("require", "replace_many", "transaction", "many", "columns", "move", "move_to"),
    (tm.InvalidModel, tm.SchemaMismatch),
)


@pytest.fixture(autouse=True)
def _sorted_in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every query sort what no path sorts, as `allow_sort` does."""
    names = [field.name for field in attrs.fields(QuerySpec)]
    defaults: Any = QuerySpec.__init__.__defaults__
    given = dict(zip(names[-len(defaults) :], defaults, strict=True)) | {"in_memory": True}
    monkeypatch.setattr(QuerySpec.__init__, "__defaults__", tuple(given.values()))
    yield


def _by(monkeypatch: pytest.MonkeyPatch, place: Any, **options: Any) -> None:
    def opened(path: str, models: Any) -> tm.Store:
        store = tm.Store(place(path).open(compile_schema(models), **options))
        store.build()
        return store

    monkeypatch.setattr(stores, "opened", opened)


@pytest.mark.parametrize("part", [0, 1, 2, 4, 5, 8, 20, 23, 40, 60, 70, 100, 120])
def test_answers_of_the_engine_are_right(part: int, full_size: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    _by(monkeypatch, AzurePlace, clock=lambda: stores._NOW)
    tally, start = Tally(), part * LOCAL
    size = PART * 150 if full_size else PART
    failure = next(search(range(start, start + size), tally=tally, kept=OF_ACCOUNT), None)
    assert failure is None, f"\n{shrunk(failure)}"
    assert tally.refused < tally.models
    assert tally.questions > PART


@pytest.mark.parametrize("part", [0, 8])
def test_answers_of_the_emulator_are_right(part: int, full_size: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    _by(monkeypatch, AzuritePlace)
    size = PART * 60 if full_size else PART // 2
    failure = next(search(range(part * LOCAL + 500_000, part * LOCAL + 500_000 + size), kept=OF_ACCOUNT), None)
    assert failure is None, f"\n{failure}"
