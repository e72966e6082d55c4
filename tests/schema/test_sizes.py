"""One definition of size: of what is checked when it is written, of a transaction, and of `tm.size`."""

from __future__ import annotations

from decimal import Decimal

import pytest

import tablemapper as tm
from tablemapper.limits import MAX_ENTITY, entity_size

from ..classes import grouped


class Loose(tm.Entity, table="Loose", type="loose"):
    group: tm.Field[str]
    number: tm.Field[int]
    title: tm.Field[str | None] = tm.field(default=None, name="Title")
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, int](partition="{group}", row="{number}")


Sums = grouped("Sums", Loose, "group", n=tm.count())


def _parts(number: int, count: int) -> Loose:
    return Loose("g", number, more=tm.Extra({f"part{at}": b"x" * 60_000 for at in range(count)}))


def test_bytes_in_undeclared_properties_count_as_they_are_in_a_transaction() -> None:
    with tm.open(":memory:", models=[Loose]) as store:
        with store.transaction() as tx:
            for number in range(10):
                tx.insert(_parts(number, 4))
        with pytest.raises(tm.EntityTooLarge, match="a transaction may have"), store.transaction() as tx:
            for number in range(10, 20):
                tx.insert(_parts(number, 8))
        assert store.query(Loose).where(Loose.group == "g").count() == 10


@pytest.mark.needs("exact_sizes")
def test_bytes_in_undeclared_properties_count_as_they_are_in_an_entity() -> None:
    with tm.open(":memory:", models=[Loose]) as store:
        store.insert(_parts(1, 17))
        with pytest.raises(tm.EntityTooLarge, match="1,080,"):
            store.insert(_parts(2, 18))


def test_an_undeclared_value_has_the_limit_of_any_other() -> None:
    with tm.open(":memory:", models=[Loose]) as store:
        with pytest.raises(tm.EntityTooLarge, match="big: 65,537 bytes"):
            store.insert(Loose("g", 1, more=tm.Extra(big=b"x" * 65_537)))
        with pytest.raises(tm.EntityTooLarge, match="title: a text of 32,769"):
            store.insert(Loose("g", 1, "x" * 32_769))


def test_a_size_is_that_of_all_properties_by_the_formula() -> None:
    entity = Loose("g", 7, "a\U0001f600", tm.Extra(size=3, blob=b"1234", note="é", when=1.5))
    assert tm.size(entity) == entity_size(
        "g",
        "a7",
        [
            ("EntityType", "String", "loose"), ("Title", "String", "a\U0001f600"), ("size", "Int64", 3),
            ("blob", "Binary", b"1234"), ("note", "String", "é"), ("when", "Double", 1.5),
        ],
    )  # fmt: skip


def test_the_size_of_a_stored_entity_and_of_a_group_can_be_asked_for() -> None:
    with tm.open(":memory:", models=[Loose, Sums]) as store:
        entity = Loose("g", 1, "title")
        before = tm.size(entity)
        store.insert(entity)
        assert before == tm.size(entity) == tm.size(store[Loose.key("g", 1)])
        assert tm.size(store[Sums.key("g")]) == entity_size("g", "", [("n", "Int64", 1)])


@pytest.mark.parametrize("wrong", [3, "Product", Loose, None, Decimal(1)])
def test_only_entities_have_a_size(wrong: object) -> None:
    with pytest.raises(tm.InvalidEntity, match="expected an entity"):
        tm.size(wrong)  # type: ignore[arg-type]


def test_what_no_store_takes_has_no_size() -> None:
    with pytest.raises(tm.EntityTooLarge, match=f"{MAX_ENTITY:,}"):
        tm.size(_parts(1, 18))
