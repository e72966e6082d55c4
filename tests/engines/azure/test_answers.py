"""What random questions of random stores found in the engine for Azure."""

from __future__ import annotations

import pytest

import tablemapper as tm

from ...classes import entity, grouped
from .place import AzurePlace


class Path(tm.Entity, table="Paths"):
    """Of which one row key can be how another one begins."""

    tree: tm.Field[str]
    names: tm.Field[tuple[str, ...]]
    size: tm.Field[int]

    key = tm.Key[str, tuple[str, ...]](partition="{tree}", row="{names}")
    by_code = tm.Index[int](partition="{size}", row="one", unique=True)


Trees = grouped(
    "Trees", Path, "tree", paths=tm.count(), largest=(int | None, tm.max_ever(Path.size, where=Path.size > 100))
)


def opened(*models: type[tm.Record]) -> tm.Store:
    return tm.open(AzurePlace(), models=models)  # type: ignore[arg-type]


def test_rows_of_an_index_come_in_the_order_of_keys_of_which_one_begins_another() -> None:
    members = {"tree": str, "names": tuple[str, ...], "size": int}
    key = tm.Key[str, tuple[str, ...]](partition="{tree}", row="{names}")
    Plain = entity("Plain", "Paths", members, key, by_size=tm.Index[int](partition="all", row="{size}"))
    with opened(Plain) as store:
        names = [(), ("",), ("", ""), ("a",), ("a", ""), ("a", "b"), ("a", "0"), ("ab",)]
        for at in (0, 3, 5, 1, 7, 2, 6, 4):
            store.insert(Plain("t", names[at], 1))
        expected = sorted(names, key=lambda one: Plain.key("t", one).row)
        for size in (1, 2, 3, 100):
            assert [one.names for page in store.query(Plain.by_size(1)).pages(size) for one in page.items] == expected


def test_a_value_that_another_entity_of_the_transaction_keeps_is_refused() -> None:
    with opened(Path, Trees) as store:
        store.insert_many([Path("t", ("a",), 1), Path("t", ("b",), 2)])
        with pytest.raises(tm.UniqueViolation, match="by_code"):
            store.query(Path).where(Path.tree == "t").update(size=1)
        assert [one.size for one in store.query(Path).where(Path.tree == "t")] == [1, 2]
        assert store.check().ok


def test_a_group_that_keeps_what_ever_was_stays_though_it_saw_nothing() -> None:
    with opened(Path, Trees) as store:
        store.insert(Path("t", ("a",), 1))
        store.delete(Path.key("t", ("a",)))
        assert store[Trees.key("t")] == Trees("t", 0, None)
        assert store.check().ok
