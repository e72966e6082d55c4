"""Entities that no constructor built: from msgspec, or from ``object.__new__``."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

import tablemapper as tm


class Visit(tm.Entity, table="Visits"):
    guest: tm.Field[str]
    at: tm.Field[datetime]
    number: tm.Field[int] = tm.field(default=0)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, datetime](partition="{guest}", row="{at}")


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GOOD = {"guest": "ann", "at": "2026-03-01T12:00:00Z", "number": 1, "tags": ["a"]}
BUILT = Visit("ann", NOON, 1, ["a"])


def _by_hand(values: dict[str, Any]) -> Visit:
    visit: Visit = object.__new__(Visit)
    for name, value in values.items():
        setattr(visit, name, datetime.fromisoformat(value) if name == "at" else value)
    return visit


MAKERS: list[Callable[[dict[str, Any]], Visit]] = [
    lambda values: msgspec.convert(values, Visit),
    lambda values: msgspec.json.decode(msgspec.json.encode(values), type=Visit),
    _by_hand,
]


@pytest.fixture(params=MAKERS, ids=["convert", "json", "new"])
def make(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], Visit]:
    maker: Callable[[dict[str, Any]], Visit] = request.param
    return maker


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Visit]) as store:
        yield store


def test_it_behaves_as_a_new_one(make: Callable[[dict[str, Any]], Visit]) -> None:
    visit = make(GOOD)
    assert visit == BUILT
    assert repr(visit) == repr(BUILT)
    assert visit.key == BUILT.key
    assert tm.info(visit) == tm.info(BUILT)
    assert visit.replace(number=2) == BUILT.replace(number=2)
    visit.guest = "bob"  # a key field can be set, as it was not stored
    assert visit.key == Visit.key("bob", NOON)


def test_it_is_written_as_any_other(make: Callable[[dict[str, Any]], Visit], store: tm.Store) -> None:
    visit = make(GOOD)
    store.insert(visit)
    assert store[BUILT.key] == visit == BUILT
    visit.number = 2
    store.replace(visit)
    store.delete(visit)
    with store.transaction() as tx:
        tx.insert(make(GOOD))
    store.upsert(make(GOOD))
    store.upsert(make(GOOD), merge=True)
    store.delete_many([make(GOOD).key])
    assert store.insert_many([make(GOOD)]) == 1
    assert store.upsert_many([make(GOOD)]) == 1
    assert store[BUILT.key] == BUILT


def test_it_has_no_etag(make: Callable[[dict[str, Any]], Visit], store: tm.Store) -> None:
    store.insert(make(GOOD))
    with pytest.raises(tm.PreconditionFailed, match="no ETag"):
        store.replace(make(GOOD))
    with pytest.raises(tm.PreconditionFailed, match="no ETag"):
        store.delete(make(GOOD))


def test_it_is_checked_whole_when_it_is_written(store: tm.Store) -> None:
    writes: list[Callable[[Any], Any]] = [
        store.insert, store.upsert, lambda e: store.replace(e, if_match="*"), lambda e: store.insert_many([e]),
        lambda e: store.upsert_many([e]), lambda e: store.transaction().__enter__().insert(e),
    ]  # fmt: skip
    for write in writes:
        visit = msgspec.convert({**GOOD, "at": "2026-03-01T12:00:00", "number": 2**70}, Visit)
        with pytest.raises(tm.InvalidEntity) as caught:
            write(visit)
        assert [fault.partition(":")[0] for fault in caught.value.faults] == ["at", "number"]
    assert store.query(Visit).allow_scan().count() == 0


def test_a_field_that_was_never_set_is_named(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity) as caught:
        store.insert(_by_hand({"guest": "ann", "tags": []}))
    assert caught.value.faults == ("at: it was never set", "number: it was never set")


def test_what_is_checked_is_normalised(store: tm.Store) -> None:
    visit = msgspec.convert({**GOOD, "at": "2026-03-01T14:00:00+02:00"}, Visit)
    store.insert(visit)
    assert visit.at == NOON
    assert visit.at.tzinfo is UTC


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_copy_of_it_is_checked_too(copied: Callable[[Any], Any], store: tm.Store) -> None:
    assert tm.info(copied(msgspec.convert(GOOD, Visit))).etag is None
    with pytest.raises(tm.InvalidEntity, match="number"):
        store.insert(copied(msgspec.convert({**GOOD, "number": 2**70}, Visit)))
