"""A value that only an older version knows, such as a member that an Enum lost: damage to reads, and counted in all else."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

import tablemapper as tm

from ..classes import aggregate, entity
from ..engines.azure.place import AzurePlace

Wide = Enum("Wide", {"SMALL": "s", "LARGE": "l"})
Narrow = Enum("Narrow", {"SMALL": "s"})
KINDS: dict[str, tuple[Any, Any, Any, Any]] = {
    "Enum": (Wide, Narrow, Wide.LARGE, Narrow.SMALL),
    "Literal": (Literal["s", "l"], Literal["s"], "l", "s"),
}


def models(kind: Any) -> list[Any]:
    """Return a class with a field of a type, and what is maintained from it."""
    item = entity(
        "Item", "Items", {"p": str, "r": int, "size": kind, "n": (int, tm.field(default=0))},
        tm.Key(partition="{p}", row="{r}"), by_size=tm.Index(partition="{p}", row="{size}", include=("size",)),
    )  # fmt: skip
    total = aggregate(
        "Total", item, {"p": (str, tm.group_by(item.p)), "items": (int, tm.count(item.size))}, tm.Key(partition="{p}")
    )
    sizes = {"size": (kind, tm.group_by(item.size)), "most": (int | None, tm.max(item.n))}
    return [item, total, aggregate("Size", item, sizes, tm.Key(partition="{size}"))]


@pytest.fixture(params=["file", "account"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Where a store is."""
    return tmp_path / "s.db" if request.param == "file" else AzurePlace(f"lost members {request.node.name}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_member_is_damage_that_nothing_ends_at(kind: str, where: Any) -> None:
    wide, narrow, large, small = KINDS[kind]
    before, after = models(wide), models(narrow)
    key = after[0].key("a", 2)
    with tm.open(where, models=before) as old, tm.open(where, models=after) as new:
        new.insert(after[0]("a", 1, small))
        old.insert_many([before[0]("a", 2, large, 5), before[0]("a", 3, large, 7)])

        def damaged(store: tm.Store) -> set[Any]:
            problems = store.check().problems
            assert {one.kind for one in problems} <= {"damaged"}, problems
            assert all("which this version does not know" in one.detail for one in problems), problems
            return {(one.where, *one.key) for one in problems}

        keys = {("Item", *after[0].key("a", n)[1:]) for n in (2, 3)}
        groups = {("Size", "l", "")} if kind == "Enum" else set()
        assert damaged(new) == keys | groups
        assert {(one.where, *one.key) for one in new.repair().remaining} == keys | groups
        with pytest.raises(tm.SchemaMismatch, match="which this version does not know"):
            list(new.query(after[0]).where(after[0].p == "a"))
        with pytest.raises(tm.SchemaMismatch, match="which this version does not know"):
            new.get(key)
        assert new.query(after[0]).where(after[0].p == "a").count() == 3
        new.merge(key, n=9)  # (of another field)
        assert old[before[2].key(large)].most == 9
        new.merge(key, size=small)
        assert new[key].n == 9
        assert damaged(new) == keys - {("Item", *key[1:])} | groups
        assert old.check().ok
        new.delete(after[0].key("a", 3))
        assert new.check().ok
        assert [one.r for one in old.query(before[0]).where(before[0].p == "a")] == [1, 2]
        assert old.check().ok
