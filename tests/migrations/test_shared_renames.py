"""Scripts that `migrations make` writes for classes that share a table: they run, and renames alone copy nothing."""

from __future__ import annotations

import importlib
import itertools
import random
import sys
from collections.abc import Iterator, Sequence
from operator import methodcaller as step
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from ..engines.azure.place import AzurePlace
from .shapes import insert, made, migrate, opened

NUMBER = tm.Key[int](partition="{id}")

STEPS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "nothing": ({"x": int | None}, {"x": int | None}, {"x": "x"}),
    "other": ({"y": bool | None}, {"y": bool | None}, {"y": "y"}),
    "rename": ({"x": int | None}, {"y": int | None}, {"x": "y"}),
    "rename a required one": ({"x": str}, {"y": str}, {"x": "y"}),
    "rename to another": ({"x": int | None}, {"z": int | None}, {"x": "z"}),
    "rename back": ({"y": int | None}, {"x": int | None}, {"y": "x"}),
    "rename another": ({"v": float}, {"w": float}, {"v": "w"}),
    "rename two": ({"v": float, "x": int | None}, {"w": float, "y": int | None}, {"v": "w", "x": "y"}),
    "drop": ({"x": int | None}, {}, {}),
    "convert": ({"x": str}, {"x": int}, {}),
    "fill": ({}, {"y": int}, {}),
    "add": ({"x": int | None}, {"x": int | None, "y": bool | None}, {"x": "x"}),
}
"""The fields of a class before and after a step, and the new names of those whose values stay."""
RENAMES = ["nothing", "rename", "rename a required one", "rename another", "rename two"]
"""Steps of which no two give a name of the table to two things."""
VALUES: dict[Any, list[Any]] = {int | None: [7, None], str: ["8"], float: [0.5], bool | None: [True, None]}


def shapes(changes: Sequence[str], side: int) -> list[Any]:
    """Return a class of one table for each change, as it is before or after it."""
    classes = []
    for number, change in enumerate(changes):
        fields = {
            name: kind if kind in (str, int, float) else (kind, tm.field(default=None))
            for name, kind in STEPS[change][side].items()
        }
        key = tm.Key[str, int](partition="{t}", row=(f"c{number}", "{id}"))
        classes.append(entity(f"C{number}", "Shop", {"t": str, "id": int, **fields}, key))
    return classes


def values(one: Any, names: Sequence[str]) -> tuple[Any, ...]:
    return (one.id, *[getattr(one, name) for name in names])


def run(where: Any, changes: Sequence[str], folder: Path, name: str) -> int:
    """Write the script of some steps, run it, undo it and run it again; return how many entities it copied at first."""
    old, new = shapes(changes, 0), shapes(changes, 1)
    package = folder / name
    package.mkdir()
    (package / "__init__.py").touch()
    importlib.invalidate_caches()
    scripts = tm.Migrations(name)
    scripts.write(old, "first")
    if (path := scripts.write(new, "second")).suffix == ".py":
        path.write_text(path.read_text(encoding="utf-8").replace("...)", "lambda x: 1)"), encoding="utf-8")
    assert tm.Migrations(name).check(new) == ()
    with tm.open(where, models=old) as store:
        for cls, change in zip(old, changes, strict=True):
            fields = STEPS[change][0]
            for id, some in enumerate(itertools.product(*[VALUES[kind] for kind in fields.values()])):
                store.insert(cls(t="t", id=id, **dict(zip(fields, some, strict=True))))
        before = {cls.__name__: [*store.query(cls).allow_scan()] for cls in old}
    options: dict[str, Any] = {"rest": 0} if isinstance(where, Path) else {}
    report = tm.migrate(where, name, **options)
    entities = report.entities
    assert {planned.entities for planned in report.plan} <= {0, entities}
    with tm.open(where, models=new) as store:
        assert store.check().ok
        for cls, change in zip(new, changes, strict=True):
            names = STEPS[change][2]
            after = [values(one, list(names.values())) for one in store.query(cls).allow_scan()]
            assert after == [values(one, list(names)) for one in before[cls.__name__]], cls
            store.upsert(store.query(cls).allow_scan().first())
    if isinstance(where, Path) and not {"drop", "convert"}.intersection(changes):
        assert tm.migrate(where, name, to="", **options).ok
        with tm.open(where, models=old) as store:
            assert {cls.__name__: [*store.query(cls).allow_scan()] for cls in old} == before
            assert store.check().ok
        assert tm.migrate(where, name, **options).ok
    return entities


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that scripts are imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("shared_")]:
        del sys.modules[name]


def drawn(steps: Sequence[str], count: int) -> list[tuple[str, ...]]:
    draw = random.Random(len(steps))
    return [tuple(draw.choices(steps, k=draw.choice((2, 3)))) for _ in range(count)]


def test_renames_of_classes_of_a_table_copy_nothing(folder: Path) -> None:
    for number, changes in enumerate([("rename", "rename", "nothing"), *drawn(RENAMES, 12)]):
        assert run(folder / f"{number}.db", changes, folder, f"shared_{number}") == 0, changes


def test_renames_of_classes_of_a_table_copy_nothing_in_an_account(folder: Path) -> None:
    for number, changes in enumerate([("rename", "rename", "nothing"), ("rename", "other"), *drawn(RENAMES, 3)]):
        entities = run(AzurePlace(f"shared renames {number}", still=True), changes, folder, f"shared_{number}")
        assert (entities == 0) is ("other" not in changes), changes


@pytest.mark.long
def test_any_steps_of_classes_of_a_table_run(folder: Path, full_size: bool) -> None:
    firm = [("rename", "other"), ("rename", "add"), ("rename", "rename back"), ("rename", "rename to another")]
    for number, changes in enumerate([*firm, *drawn(list(STEPS), 25 if full_size else 10)]):
        try:
            run(folder / f"{number}.db", changes, folder, f"shared_{number}")
        except Exception as error:
            error.add_note(f"{changes}")
            raise


def test_equal_renames_in_two_tables_copy_nothing(tmp_path: Path) -> None:
    old, new = (
        [entity(cls, f"{cls}s", {"id": int, name: int}, tm.Key(partition="{id}")) for cls in ("One", "Two")]
        for name in ("x", "y")
    )
    steps = [step("rename", a.x, b.y) for a, b in zip(old, new, strict=True)]
    insert(tmp_path / "s.db", *[cls(1, 5) for cls in old])
    report = migrate(tmp_path / "s.db", made(new, old, *steps))
    assert (report.entities, {one.old_version for one in report.plan}) == (0, {"writes"})
    with opened(tmp_path / "s.db", *new) as store:
        assert [store[cls.key(1)].y for cls in new] == [5, 5]


@pytest.mark.parametrize("kinds", [(int, int), (int, str | None), (float | None, int)])
def test_names_that_take_each_others_place(tmp_path: Path, kinds: tuple[Any, Any]) -> None:
    old = entity("One", "Ones", {"id": int, "a": kinds[0], "b": kinds[1]}, NUMBER, by_a=tm.Index(partition="{a}"))
    new = entity("One", "Ones", {"id": int, "a": kinds[1], "b": kinds[0]}, NUMBER, by_a=tm.Index(partition="{b}"))
    path, swap = tmp_path / "s.db", made(new, old, step("rename", old.a, new.b), step("rename", old.b, new.a))
    insert(path, *[old(n, n, None if kinds[1] == str | None else n + 5) for n in range(3)])
    with opened(path, old) as store:
        before = [*store.query(old).allow_scan()]
        assert migrate(path, swap).ok
        with opened(path, new) as other:
            assert [(one.id, one.b, one.a) for one in other.query(new).allow_scan()] == [
                (o.id, o.a, o.b) for o in before
            ]
            other.merge(new.key(1), b=77)
            assert other.check().ok
        assert store[old.key(1)].a == 77
        store.merge(old.key(1), a=1)
    assert migrate(path, swap, to="").ok
    with opened(path, old) as store:
        assert [*store.query(old).allow_scan()] == before
        assert store.check().ok
    assert migrate(path, swap).ok
