"""Migrations of classes with fields that the store maintains, and of what those are made of."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from ..stores import sound_store
from .shapes import script


def company(
    *,
    row: Any = "Department",
    table: str = "Departments",
    title: str = "name",
    age: Any = int,
    fields: bool = True,
    index: bool = True,
    name: str = "Department",
    over: int = 60,
) -> list[Any]:
    """Return a version of the classes."""
    annotations = {"department": str, "number": int, "age": age}
    employee = entity("Employee", "Employees", annotations, tm.Key[str, int](partition="{department}", row="{number}"))
    kept: dict[str, Any] = {
        "employees": (int, tm.count(of=employee)),
        "oldest": (age | None, tm.max(employee.age, of=employee)),
        "retiring": (int, tm.count(of=employee, where=employee.age > (over if age is int else Decimal(over)))),
    }
    members = {"department": str, title: str, **(kept if fields else {})}
    indexes = {"by_size": tm.Index(partition="{employees}", row="{department}")} if fields and index else {}
    return [employee, entity(name, table, members, tm.Key(partition="{department}", row=row), **indexes)]


def filled(path: Path, models: list[Any]) -> Path:
    employee, department = models
    with tm.open(path, models=models) as store:
        store.insert_many(employee(name, number, 30 + number) for name in "abc" for number in range(40))
        store.insert_many(department(name, name.upper()) for name in "abd")
    return path


OLD = company()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "store.db", OLD)


def assert_kept(path: Path, models: list[Any]) -> None:
    employee, department = models
    with sound_store(path, models=models) as store:
        assert store.check().ok, store.check()
        found = {one.department: one for one in store.query(department).allow_scan()}
        assert {name: (one.employees, one.oldest, one.retiring) for name, one in found.items()} == {
            "a": (40, 69, 9), "b": (40, 69, 9), "d": (0, None, 0),
        }  # fmt: skip
        if indexed := department.__declaration__.indexes:
            assert [one.department for one in store.query(department.by_size(40))] == ["a", "b"]
        store.insert(employee("d", 1, employee.age.type.kind(20)))
        assert store[found["d"].key].employees == 1
        if indexed:
            assert [one.department for one in store.query(department.by_size(1))] == ["d"]
        store.delete(employee.key("d", 1))


def run(path: Path, old: list[Any], new: list[Any], steps: Callable[[Any], None]) -> Any:
    change = script(new, steps, "change", old=old)
    assert tm.migrate(path, [change]).ok
    return change


@pytest.mark.parametrize(
    ("new", "steps"),
    [
        (company(row="Info"), lambda m, new: m.rekey(OLD[1], new[1])),
        (company(table="Company"), lambda m, new: m.rename_class(OLD[1], new[1])),
        (company(title="title"), lambda m, new: m.rename(OLD[1].name, new[1].title)),
        (company(age=Decimal), lambda m, new: m.convert(OLD[0].age, new[0].age, Decimal, back=int)),
    ],
    ids=["rekey", "table", "rename", "convert"],
)
def test_fields_and_indexes_over_them_are_kept_whatever_is_migrated(path: Path, new: list[Any], steps: Any) -> None:
    change = run(path, OLD, new, lambda m: steps(m, new))
    assert_kept(path, new)
    assert tm.migrate(path, [change], to="").ok
    assert_kept(path, OLD)


def test_both_versions_keep_a_field_in_step(path: Path) -> None:
    new = company(row="Info")
    with tm.open(path, models=OLD) as old:
        run(path, OLD, new, lambda m: m.rekey(OLD[1], new[1]))
        with tm.open(path, models=new) as store:
            old.insert(OLD[0]("d", 1, 20))
            store.insert(new[0]("d", 2, 30))
            for one, classes in ((old, OLD), (store, new)):
                assert [each.department for each in one.query(classes[1].by_size(2))] == ["d"]
                found = {each.department: each for each in one.query(classes[1]).allow_scan()}
                assert (found["d"].employees, found["d"].oldest) == (2, 30)
                assert one.check().ok


def test_a_class_that_its_fields_hang_on_has_to_be_named(path: Path) -> None:
    old, new = company(), company(age=Decimal)
    change = script(new[:1], lambda m: m.convert(old[0].age, new[0].age, Decimal), "change", old=old[:1])
    with pytest.raises(
        tm.InvalidMigration, match=r"Department.employees is maintained from what is migrated: name Department in"
    ):
        tm.migrate(path, [change])


def test_a_field_goes_by_a_step(path: Path) -> None:
    old, new = company(), company(fields=False)

    def steps(m: Any) -> None:
        m.drop(old[1].by_size)
        for name in ("employees", "oldest", "retiring"):
            m.drop(getattr(old[1], name))

    assert tm.migrate(path, [run(path, old, new, steps)], contract=True).ok
    with sound_store(path, models=new) as store:
        assert store.build().done
        assert [item.where for item in store.status().objects if item.state == "ready"] == ["Employee", "Department"]


@pytest.mark.parametrize("named", [(), ("oldest",)])
def test_a_class_goes_with_its_fields(path: Path, named: tuple[str, ...]) -> None:
    old = company()

    @tm.migration(after=None, old=old, new=company()[:1])
    def change(m: tm.Migration) -> None:
        for name in named:
            m.drop(getattr(old[1], name))
        m.drop(old[1])

    assert tm.migrate(path, [change], contract=True).contracted == ("change",)
    with sound_store(path, models=company()[:1]) as store:
        assert [item.where for item in store.status().objects if item.state == "ready"] == ["Employee"]


def test_a_script_is_written_for_a_class_that_has_lost_its_fields(path: Path) -> None:
    new = company(fields=False, row="Info")
    for models in (new, new[1:]):
        with pytest.raises(tm.SchemaMismatch) as caught:
            tm.open(path, models=models)
        assert 'by_size = tm.Index[int, str](partition="{employees}"' in (caught.value.script or "")


def test_a_field_that_is_declared_in_another_way_is_built_beside_the_old_one(path: Path) -> None:
    with sound_store(path, models=OLD) as old, sound_store(path, models=(new := company(over=40))) as store:
        old.insert(OLD[0]("d", 1, 50))
        assert [old[OLD[1].key("d")].retiring, store[new[1].key("d")].retiring] == [0, 1]
        assert [old[OLD[1].key("a")].retiring, store[new[1].key("a")].retiring] == [9, 29]


def test_no_step_sets_a_maintained_field(path: Path) -> None:
    old, new = company(), company()
    change = script(new, lambda m: m.fill(new[1].employees, lambda _: 3), "change", old=old)
    with pytest.raises(tm.InvalidMigration, match="is maintained, and no step sets it"):
        tm.migrate(path, [change])


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "scripts_of_maintained_fields"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    importlib.invalidate_caches()
    yield name
    for module in [one for one in sys.modules if one.split(".")[0] == name]:
        del sys.modules[module]


def test_a_script_has_maintained_fields_as_a_person_writes_them(path: Path, package: str) -> None:
    scripts = tm.Migrations(package)
    scripts.write(OLD, "initial")
    new = company(row="Info")
    text = scripts.write(new, "rekey").read_text(encoding="utf-8")
    assert "employees: tm.Field[int] = tm.count(of=old_entities.Employee)" in text
    assert "class new(new_entities):" in text
    assert tm.migrate(path, package).ok
    assert_kept(path, new)
