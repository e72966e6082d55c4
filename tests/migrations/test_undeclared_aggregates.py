"""Scripts for a class over which the store has aggregates that the program does not open."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import aggregate, entity


def item(**fields: Any) -> Any:
    return entity("Item", "Items", {"id": str, **fields}, tm.Key[str](partition="{id}"))


def over(of: Any, name: str, field: str) -> Any:
    group: Any = getattr(of, field)
    members = {"group": (int, tm.group_by(group)), "items": (int, tm.count())}
    return aggregate(name, of, members, tm.Key[int](partition="{group}"))


@pytest.mark.parametrize(
    ("fields", "gone"),
    [({"weight": int}, {"Sizes"}), ({"mass": int, "size": str}, {"Sizes"}), ({"size": str, "weight": int}, {"Sizes"})],
    ids=["a field goes", "one is renamed beside one of another type", "one gets another type"],
)
def test_those_that_cannot_go_on_are_dropped(
    fields: dict[str, Any], gone: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = item(size=int, weight=int), item(**fields)
    with tm.open(
        tmp_path / "items.db", models=[old, over(old, "Sizes", "size"), over(old, "Weights", "weight")]
    ) as store:
        store.insert_many([old(str(n), n % 2, n % 3) for n in range(6)])
    with pytest.raises(tm.SchemaMismatch) as caught:
        tm.open(tmp_path / "items.db", models=[new])
    script = caught.value.script
    assert script is not None
    assert {name for name in ("Sizes", "Weights") if f"m.drop(old.{name})" in script} == gone
    package = tmp_path / "_".join(["scripts", *fields])
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "0001_items.py").write_text(script.replace("...", "str"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert tm.migrate(tmp_path / "items.db", package.name, contract=True).ok
    with tm.open(tmp_path / "items.db", models=[new]) as store:
        assert store.check().ok
        held = {one.where for one in store.status().objects if one.kind == "aggregate" and one.state != "dropped"}
        assert held == {"Sizes", "Weights"} - gone
