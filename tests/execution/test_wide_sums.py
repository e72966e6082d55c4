"""Sums of ints beyond 64 bits: they are compared, ordered and summed up like any other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tablemapper as tm

from ..classes import entity, grouped


class Payment(tm.Entity, table="Payments"):
    account: tm.Field[str]
    number: tm.Field[int]
    cents: tm.Field[int | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{account}", row="{number}")


Account = grouped("Account", Payment, "account", "Accounts", cents=(int | None, tm.sum(Payment.cents)))


MOST = 2**63 - 1
CENTS = {
    "a": [MOST] * 3, "b": [-MOST] * 3, "c": [5], "d": [MOST], "e": [-MOST], "f": [None], "g": [MOST] * 2, "h": [-7],
}  # fmt: skip
SUMS = {name: None if cents == [None] else sum(c for c in cents if c is not None) for name, cents in CENTS.items()}
IN_ORDER = sorted(SUMS, key=lambda name: (SUMS[name] is not None, SUMS[name]))


Limit = entity("Limit", "Accounts", {"account": str, "cents": int}, tm.Key[str](partition="{account}", row="limit"))


@pytest.fixture(scope="module")
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Payment, Account, Limit]) as opened:
        opened.insert_many([Limit("x", 6), Limit("y", MOST), Limit("z", -MOST - 1)])
        opened.insert_many(Payment(name, n, c) for name, cents in CENTS.items() for n, c in enumerate(cents))
        yield opened


@pytest.mark.needs("sorts")
def test_sums_beyond_64_bits_have_an_order(store: tm.Store) -> None:
    accounts = store.query(Account).where(Account.account >= "a")
    for step, names in ((Account.cents, IN_ORDER), (Account.cents.desc(), IN_ORDER[::-1])):
        query = accounts.order_by(step)
        assert [one.account for one in query] == names
        assert [one.account for page in query.pages(3) for one in page.items] == names
        assert [one.account for one in query.budget(examined=100)] == names
        assert query.select(Account.cents).first() == (SUMS[names[0]],)
        assert [one.account for one in query.limit(2)] == names[:2]


@pytest.mark.needs("sorts")
def test_sums_beyond_64_bits_have_extremes_and_groups(store: tm.Store) -> None:
    accounts = store.query(Account).where(Account.account >= "a")
    assert (accounts.min(Account.cents), accounts.max(Account.cents)) == (-3 * MOST, 3 * MOST)
    assert accounts.sum(Account.cents) == sum(filter(None, SUMS.values()))
    assert accounts.group_by(Account.account).max(Account.cents) == SUMS
    assert accounts.group_by(Account.account).min(Account.cents) == SUMS
    assert list(accounts.group_by(Account.cents).count()) == [SUMS[name] for name in IN_ORDER]
    above = accounts.where(Account.cents >= MOST)
    assert [one.account for one in above.order_by(Account.cents.desc())] == ["a", "g", "d"]
    assert above.count() == 3


@pytest.mark.needs("sorts")
def test_sums_beyond_64_bits_have_an_order_among_the_ints_of_other_classes(store: tm.Store) -> None:
    query = store.query(Account, Limit).allow_scan()
    values = {**SUMS, "x": 6, "y": MOST, "z": -MOST - 1}
    names = sorted(values, key=lambda name: (values[name] is not None, values[name], name))
    for step, wanted in ((Account.cents, names), (Limit.cents, names), (Limit.cents.desc(), None)):
        ordered = query.order_by(step)
        found = [one.account for one in ordered]
        assert [values[name] for name in found] == [values[name] for name in wanted or names[::-1]]
        assert [one.account for page in ordered.pages(2) for one in page.items] == found
