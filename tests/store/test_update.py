"""What an update does with what its function returns: by key and by query alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import tablemapper as tm

from ..classes import grouped


class Account(tm.Entity, table="Accounts"):
    name: tm.Field[str]
    balance: tm.Field[Decimal] = tm.field(default=Decimal("1.0"))
    tags: tm.Field[list[str]] = tm.field(factory=list)
    note: tm.Field[str] = tm.field(default="")

    key = tm.Key[str](partition="{name}")
    by_note = tm.Index[str](partition="{note}")


Count = grouped("Count", Account, "note", "Counts", accounts=tm.count())


KEY = Account.key("a")
Change = Callable[[Account], Any]
Update = Callable[[tm.Store, Change], object]
UPDATES: dict[str, Update] = {
    "by key": lambda store, change: store.update(KEY, change),
    "by query": lambda store, change: store.query(Account).where(Account.name == "a").update(change),
    "by query, along an index": lambda store, change: store.query(Account).where(Account.note == "n").update(change),
    "by query, named": lambda store, change: (
        store.query(Account).where(Account.name >= "a").update(change, resume="run")
    ),
}


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Account, Count]) as opened:
        opened.insert(Account("a", tags=["x"], note="n", balance=Decimal("2.50")))
        yield opened


@pytest.fixture(params=UPDATES.values(), ids=UPDATES)
def update(request: pytest.FixtureRequest) -> Update:
    return request.param  # type: ignore[no-any-return]


def in_place(change: Callable[[Account], object]) -> Change:
    def changed(account: Account) -> Account:
        change(account)
        return account

    return changed


SAME: dict[str, Change] = {
    "None": lambda a: None,
    "the entity": lambda a: a,
    "a copy": lambda a: a.replace(),
    "a copy with the same values": lambda a: a.replace(balance=Decimal("2.50"), tags=["x"]),
    "a new one": lambda a: Account("a", Decimal("2.50"), ["x"], "n"),
    "one that was not built": lambda a: msgspec.convert(
        {"name": "a", "balance": "2.50", "tags": ["x"], "note": "n"}, Account
    ),
    "changed and changed back": in_place(lambda a: (a.tags.append("y"), a.tags.pop())),
}
OTHER: dict[str, tuple[Change, Account]] = {
    "a copy": (lambda a: a.replace(note="m"), Account("a", Decimal("2.50"), ["x"], "m")),
    "changed in place": (in_place(lambda a: setattr(a, "note", "m")), Account("a", Decimal("2.50"), ["x"], "m")),
    "a list changed in place": (in_place(lambda a: a.tags.append("y")), Account("a", Decimal("2.50"), ["x", "y"], "n")),
    "a new one": (lambda a: Account("a", note="m"), Account("a", note="m")),
    "the digits of a Decimal": (lambda a: a.replace(balance=Decimal("2.5")), Account("a", Decimal("2.5"), ["x"], "n")),
}


def check(store: tm.Store, told: int | Account, wanted: Account, *, written: bool) -> None:
    """Compare what is stored, and what an update told, with what is wanted; the entity that it told can be written on."""
    after = store[KEY]
    assert repr(after) == repr(wanted)
    if isinstance(told, Account):
        assert (repr(told), tm.info(told).etag) == (repr(wanted), tm.info(after).etag)
        told.note = "k"
        store.replace(told)
    else:
        assert told == written
    assert store.check().ok


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_what_is_left_alone_or_equals_what_is_stored_is_not_written(
    store: tm.Store, update: Update, change: Change
) -> None:
    before = store[KEY]
    told = update(store, change)
    assert tm.info(store[KEY]).etag == tm.info(before).etag
    check(store, told, before, written=False)


@pytest.mark.parametrize(("change", "wanted"), OTHER.values(), ids=OTHER)
def test_what_differs_from_what_is_stored_is_written(
    store: tm.Store, update: Update, change: Change, wanted: Account
) -> None:
    before = store[KEY]
    told = update(store, change)
    assert tm.info(store[KEY]).etag != tm.info(before).etag
    check(store, told, wanted, written=True)


FAULTS: dict[str, tuple[Change, str]] = {
    "None of one that it changed": (lambda a: setattr(a, "note", "m"), "changed it and returned None"),
    "None of one whose list it changed": (lambda a: a.tags.append("y"), "changed it and returned None"),
    "another key": (lambda a: a.replace(name="b"), "store.move"),
    "something else": (lambda a: "no", "must return a Account or None"),
}


@pytest.mark.parametrize(("change", "said"), FAULTS.values(), ids=FAULTS)
def test_a_function_that_returns_what_can_not_be_meant_writes_nothing(
    store: tm.Store, update: Update, change: Change, said: str
) -> None:
    before = store[KEY]
    with pytest.raises(tm.InvalidEntity, match=said):
        update(store, change)
    assert (repr(store[KEY]), tm.info(store[KEY]).etag) == (repr(before), tm.info(before).etag)


def test_an_update_of_what_is_not_there_or_of_an_aggregate_says_so(store: tm.Store) -> None:
    with pytest.raises(tm.EntityNotFound):
        store.update(Account.key("z"), lambda a: a)
    with pytest.raises(tm.InvalidEntity, match="maintained from Account"):
        store.update(Count.key("n"), lambda c: c)  # type: ignore[type-var]


def test_only_what_was_written_is_counted(store: tm.Store) -> None:
    store.insert_many(Account(name, note="n") for name in "bcde")
    query = store.query(Account).where(Account.note == "n")
    etags = {one.name: tm.info(one).etag for one in query}
    assert (
        query.update(lambda a: a.replace(balance=Decimal(7)) if a.name in "bd" else a if a.name == "c" else None) == 2
    )
    assert {one.name for one in query if tm.info(one).etag != etags[one.name]} == {"b", "d"}


def test_a_new_entity_is_written_again_if_someone_was_faster(store: tm.Store) -> None:
    calls = 0

    def change(account: Account) -> Account:
        nonlocal calls
        calls += 1
        if calls < 3:
            store.merge(KEY, balance=Account.balance + 1)
        return Account("a", account.balance * 2)

    assert store.update(KEY, change).balance == 9
    assert calls == 3
