"""Opening a file with models that differ from those it was written with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

import attrs
import msgspec
import pytest

import tablemapper as tm
from tablemapper.engines.sqlite import engine
from tablemapper.engines.sqlite.online.migration import SqliteMigrations

from ...classes import Color, Other, aggregate, entity
from ...sql import run_sql
from ...stores import sound_store


def reading(**extra: Any) -> type[Any]:
    """Return the class of a reading, with more in its body than the plain one."""
    members = {"device": str, "at": datetime, "value": float, **extra.pop("fields", {})}
    table, key = extra.pop("table", "Readings"), extra.pop("key", tm.Key(partition="{device}", row="{at}"))
    return entity("Reading", table, members, key, **extra)


def day(of: Any, **measures: Any) -> Any:
    members = {
        "device": (str, tm.group_by(of.device)),
        "day": (date, tm.group_by(of.at.date())),
        "count": (int, tm.count()),
    }
    return aggregate("Day", of, {**members, **measures}, tm.Key(partition="{device}", row="{day}"), "Days")


START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with 2,500 readings, more than one batch of a build."""
    plain = reading()
    with tm.open(tmp_path / "x.db", models=[plain], durability="relaxed") as store:
        store.insert_many(plain(f"d{n % 5}", START.replace(microsecond=n), n / 2) for n in range(2500))
    return tmp_path / "x.db"


def test_a_new_index_is_built_over_what_is_there(path: Path) -> None:
    indexed = reading(by_value=tm.Index(partition="{device}", row="{value}"))
    told: list[tm.reports.Progress] = []
    with sound_store(path, models=[indexed], progress=told.append) as store:
        assert store.query(indexed).where(indexed.device == "d0", indexed.value < 10).count() == 4
    assert told[-1].done == told[-1].total == 2500


def test_the_end_of_a_build_keeps_a_version_that_was_opened_meanwhile(path: Path) -> None:
    note: dict[str, Any] = {"fields": {"note": str | None}, "note": tm.field(default=None)}
    newest, older = reading(by_value=tm.Index(partition="{value}"), **note), reading(**note)
    with tm.open(path, models=[newest], build=False) as store:
        tm.open(path, models=[older]).close()
        store.build()
    with closing(SqliteMigrations.open(path)) as engine:
        assert len(engine._catalogue.versions.of("Reading")) == 3


def test_a_new_aggregate_is_built_over_what_is_there(path: Path) -> None:
    plain = reading()
    daily = day(plain, most=(float | None, tm.max(plain.value)))
    with sound_store(path, models=[plain, daily]) as store:
        assert store[daily.key("d4", START.date())].count == 500
        assert store[daily.key("d4", START.date())].most == 2499 / 2


def test_a_new_optional_field_reads_as_none_on_old_rows(path: Path) -> None:
    wider = reading(fields={"note": str | None}, note=tm.field(default="x"))
    with tm.open(path, models=[wider]) as store:
        assert store[wider.key("d0", START)].note is None
        store.insert(wider("new", START, 1.0))
        assert store[wider.key("new", START)].note == "x"


def test_a_new_field_with_a_default_reads_as_it_everywhere(path: Path) -> None:
    wider = reading(fields={"quality": int}, quality=tm.field(default=3), by_quality=tm.Index(partition="{quality}"))
    daily = day(wider, good=(int, tm.count(where=wider.quality > 2)))
    with sound_store(path, models=[wider, daily]) as store:
        assert store[wider.key("d0", START)].quality == 3
        assert store.query(wider.by_quality(3)).count() == 2500
        assert store.query(wider).where(wider.quality == 3).allow_scan().count() == 2500
        assert store[daily.key("d0", START.date())].good == 500


def test_a_long_text_added_later_moves_aside_as_any_other(path: Path) -> None:
    wider = reading(fields={"note": str | None}, note=tm.field(default=None))
    with sound_store(path, models=[wider]) as store:
        store.merge(wider.key("d0", START), note="long " * 1000)
        assert store[wider.key("d0", START)].note == "long " * 1000
        assert store.check().ok
        store.merge(wider.key("d0", START), note=None)


def test_a_second_type_joins_a_table(path: Path) -> None:
    plain = reading()
    members = {"device": str, "value": (str, tm.field(default="none"))}
    Device = entity("Device", "Readings", members, tm.Key[str](partition="{device}", row=("device", "!")))
    with sound_store(path, models=[plain, Device]) as store:
        store.insert(Device("d0"))
        rows = list(store.partition(Device.device == "d0"))
        assert len(rows) == 501
        assert [row for row in rows if isinstance(row, Device)] == [Device("d0")]
        assert store.query(plain).where(plain.device == "d0").count() == 500
    with tm.open(path, models=[plain]) as store:
        assert sum(isinstance(row, tm.UnknownRow) for row in store.partition(plain.device == "d0")) == 1


MISMATCHES: list[tuple[str, Callable[[], list[type[Any]]], list[str]]] = [
    ("a field is gone", lambda: [_without("value")], ['"value"']),
    ("a type changed", lambda: [reading(fields={"value": str})], ['"value"', "float", "str"]),
    ("the key changed", lambda: [reading(key=tm.Key(partition="{device}", row="{at:desc}"))], ["row key"]),
    ("the table changed", lambda: [reading(table="Elsewhere")], ["Elsewhere"]),
    ("a new field has no value for old rows", lambda: [reading(fields={"note": str})], ['"note"', "default"]),
    (
        "a factory is no default for old rows",
        lambda: [reading(fields={"note": list[str]}, note=tm.field(factory=list))],
        ['"note"', "factory"],
    ),
]


def _without(name: str) -> type[Any]:
    members = {"device": str, "at": datetime}
    Reading = entity("Reading", "Readings", members, tm.Key[str, datetime](partition="{device}", row="{at}"))
    assert name == "value"
    return Reading


@pytest.mark.parametrize(("models", "parts"), [case[1:] for case in MISMATCHES], ids=[case[0] for case in MISMATCHES])
def test_what_would_lose_or_misread_data_is_refused(
    path: Path, models: Callable[[], list[type[Any]]], parts: list[str]
) -> None:
    before = path.read_bytes()
    with pytest.raises(tm.SchemaMismatch) as found:
        tm.open(path, models=models())
    assert all(part in str(found.value) for part in parts), str(found.value)
    assert path.read_bytes() == before


def test_all_differences_are_told_together(path: Path) -> None:
    wrong = reading(fields={"value": str, "note": str})
    with pytest.raises(tm.SchemaMismatch) as found:
        tm.open(path, models=[wrong])
    assert len(found.value.faults) == 2


def test_a_field_that_rows_hold_undeclared_is_not_declared_over_them(tmp_path: Path) -> None:
    def loose(**more: Any) -> type[Any]:
        return reading(fields={"more": tm.Extra, **more.pop("fields", {})}, more=tm.field(factory=tm.Extra), **more)

    first = loose()
    with tm.open(tmp_path / "e.db", models=[first]) as store:
        store.insert(first("d", START, 1.0, tm.Extra(color="red", note="long " * 200)))
    for name in ("color", "note"):
        wider = loose(fields={name: str | None}, **{name: tm.field(default=None, kw_only=True)})
        with pytest.raises(tm.SchemaMismatch, match=name):
            tm.open(tmp_path / "e.db", models=[wider])
    wider = loose(fields={"size": int | None}, size=tm.field(default=None, kw_only=True))
    with sound_store(tmp_path / "e.db", models=[wider]) as store:
        assert store[wider.key("d", START)].more["color"] == "red"


def test_classes_that_have_nothing_to_do_with_each_other_open_apart(path: Path) -> None:
    with tm.open(path, models=[Other]) as store:
        store.insert(Other("x"))
    with tm.open(path, models=[reading()]) as store:
        assert store.check().entities == 2500


# ---------------------------------------------------------------------------------------------- nested classes


def address(kind: str = "attrs", **members: tuple[Any, Any]) -> type[Any]:
    """Return a class of addresses: its members, each with its default; ``...`` for none, a function for a factory."""
    body: dict[str, Any] = {"__annotations__": {name: one[0] for name, one in members.items()}, "__module__": __name__}
    for name, (_, default) in members.items():
        if default is not ...:
            if kind == "attrs":
                body[name] = attrs.Factory(default) if callable(default) else default
            elif kind == "dataclass":
                body[name] = (
                    dataclasses.field(default_factory=default)
                    if callable(default)
                    else dataclasses.field(default=default)
                )
            else:
                body[name] = msgspec.field(default_factory=default) if callable(default) else default
    if kind == "attrs":
        return attrs.define(type("Address", (), body))
    if kind == "dataclass":
        return dataclasses.dataclass(type("Address", (), body))
    return type(msgspec.Struct)("Address", (msgspec.Struct,), body, omit_defaults=kind == "lean struct")


def person(home: Any, **extra: Any) -> Any:
    return entity("Person", "People", {"name": str, "home": home}, tm.Key(partition="{name}"), **extra)


NESTED: dict[str, Any] = {"street": (str, ...), "zip": (str, ""), "color": (Color, Color.RED)}


@attrs.define
class Node:
    name: str = ""
    weight: int = 0
    children: list[Node] = attrs.field(factory=list)


@attrs.define
class LighterNode:
    name: str = ""
    children: list[LighterNode] = attrs.field(factory=list)


LighterNode.__name__ = "Node"


def members(**changed: Any) -> dict[str, Any]:
    return {name: one for name, one in {**NESTED, **changed}.items() if one is not None}


def settle(path: Path, home: Any) -> None:
    cls = person(home)
    with tm.open(path, models=[cls], durability="relaxed") as store:
        inner = getattr(home, "__args__", (home,))[0]
        one = inner("Main", "12345")
        store.insert(cls("Ann", [one] if home is not inner and home.__origin__ is list else one))


LOSSES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("a member is gone", {"zip": None}, ['"zip"', "Address", "lost", "declare it again"]),
    ("a member has another name", {"zip": None, "postcode": (str, "")}, ['"zip"', "lost"]),
    ("a member has another type", {"zip": (int, 0)}, ['"zip"', "string", "integer"]),
    ("a member may be None no more", {"zip": (int | None, None)}, ['"zip"']),
    ("a new member has no default", {"country": (str, ...)}, ['"country"', "give it a default"]),
    ("a new member has a factory", {"country": (list[str], lambda: ["x"])}, ['"country"', "factory"]),
    ("a value of an enum is gone", {"color": (Literal["red"], "red")}, ['"color"', "blue"]),
]


@pytest.mark.parametrize("kind", ["attrs", "dataclass", "struct"])
@pytest.mark.parametrize(("changed", "parts"), [case[1:] for case in LOSSES], ids=[case[0] for case in LOSSES])
def test_a_nested_class_that_would_lose_or_misread_values_is_refused(
    tmp_path: Path, kind: str, changed: dict[str, Any], parts: list[str]
) -> None:
    settle(tmp_path / "x.db", address(kind, **members()))
    before = (tmp_path / "x.db").read_bytes()
    other = dict(sorted(members(**changed).items(), key=lambda item: item[1][1] is not ...))
    with pytest.raises(tm.SchemaMismatch) as found:
        tm.open(tmp_path / "x.db", models=[person(address(kind, **other))])
    for part in ("Person", '"home"', *parts):
        assert part in str(found.value), str(found.value)
    assert (tmp_path / "x.db").read_bytes() == before


ADDITIONS: list[tuple[str, dict[str, Any]]] = [
    ("a new member with a default", {"country": (str, "IT")}),
    ("a new member that can be None", {"country": (str | None, None)}),
    ("a new empty list", {"notes": (list[str], list)}),
    ("a member gets a default", {"street": (str, "?")}),
    ("another default", {"zip": (str, "?")}),
    ("a member may be None", {"zip": (str | None, None)}),
    ("a value more", {"color": (Literal["red", "blue", "green"], "red")}),
    ("anything", {"zip": (Any, "")}),
]


@pytest.mark.parametrize("kind", ["attrs", "dataclass", "struct"])
@pytest.mark.parametrize("changed", [case[1] for case in ADDITIONS], ids=[case[0] for case in ADDITIONS])
def test_a_nested_class_that_holds_all_that_it_held_is_opened(
    tmp_path: Path, kind: str, changed: dict[str, Any]
) -> None:
    settle(tmp_path / "x.db", address(kind, **members()))
    other = dict(sorted(members(**changed).items(), key=lambda item: item[1][1] is not ...))
    cls = person(address(kind, **other))
    for _ in range(2):
        with sound_store(tmp_path / "x.db", models=[cls]) as store:
            home = store[cls.key("Ann")].home
            assert (home.street, home.zip) == ("Main", "12345")
            store.replace(store[cls.key("Ann")])


def test_nested_classes_are_compared_wherever_they_stand(tmp_path: Path) -> None:
    for number, around in enumerate(
        (
            lambda c: list[c],
            lambda c: c | None,
            lambda c: dict[str, c],
            lambda c: tuple[int, c],
            lambda c: list[c | None],
        )
    ):
        path = tmp_path / f"{number}.db"
        home = address(**members())
        first = person(around(home))
        one = home("Main")
        with tm.open(path, models=[first]) as store:
            store.insert(first("Ann", {0: [one], 2: {"x": one}, 3: (1, one), 4: [one]}.get(number, one)))
        with pytest.raises(tm.SchemaMismatch, match='"zip"'):
            tm.open(path, models=[person(around(address(**members(zip=None))))])
        with tm.open(path, models=[person(around(address(**members(country=(str, "")))))]):
            pass
    inner = tmp_path / "inner.db"
    outer = address(inner=(address(**members()) | None, None))
    with tm.open(inner, models=[first := person(outer)]) as store:
        store.insert(first("Ann", outer()))
    with pytest.raises(tm.SchemaMismatch, match='"zip"'):
        tm.open(inner, models=[person(address(inner=(address(**members(zip=None)) | None, None)))])


def test_a_class_that_holds_itself_is_compared(tmp_path: Path) -> None:
    with sound_store(tmp_path / "x.db", models=[first := person(Node)]) as store:
        store.insert(first("Ann", Node(children=[Node("x", 1)])))
    with pytest.raises(tm.SchemaMismatch, match='"weight"'):
        tm.open(tmp_path / "x.db", models=[person(LighterNode)])


def test_a_new_member_keeps_the_default_that_values_without_it_read_as(place: Path, tmp_path: Path) -> None:
    settle(place, address(**members()))
    with tm.open(place, models=[person(address(**members(country=(str, "IT"))))]):
        pass
    with pytest.raises(tm.SchemaMismatch, match='"country".* reads as "IT"'):
        tm.open(place, models=[person(address(**members(country=(str, "FR"))))])
    with tm.open(place, models=[person(address(**members(zip=(str, "?"), country=(str, "IT"))))]):
        pass
    lean = tmp_path / "lean.db"
    settle(lean, address("lean struct", **members()))
    with pytest.raises(tm.SchemaMismatch, match='"zip".* reads as ""'):
        tm.open(lean, models=[person(address("lean struct", **members(zip=(str, "?"))))])


def test_what_a_hook_writes_is_its_own(tmp_path: Path) -> None:
    class Money:
        def __init__(self, cents: int = 0) -> None:
            self.cents = cents

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Money) and self.cents == other.cents

    tm.converter().register_unstructure_hook(Money, lambda money: money.cents)
    tm.converter().register_structure_hook(Money, lambda stored, _: Money(stored))
    for default in (Money(3), lambda: Money(5)):
        cls = person(address(street=(str, ...), zip=(str, ""), rent=(Money, default)))
        with tm.open(tmp_path / f"{callable(default)}.db", models=[cls]) as store:
            assert store.check().ok


# ---------------------------------------------------------------------------------------------- renamed attributes


def test_an_attribute_may_be_renamed_if_its_property_keeps_its_name(tmp_path: Path) -> None:
    def classes(device: str, at: str, value: str) -> list[Any]:
        """Return the classes with some of their attributes renamed, all of them stored under the same properties."""
        key = tm.Key(partition=f"{{{device}}}", row=("at {{}}", f"{{{at}:desc}}"))
        by_value = tm.Index(partition=f"{{{value}}}", include=(at,), where=lambda r: getattr(r, value) > 1)
        stored = {device: tm.field(name="device"), at: tm.field(name="at"), value: tm.field(name="value")}
        fields = {device: str, at: datetime, value: float}
        one = entity("Reading", "Readings", fields, key, by_value=by_value, **stored)
        members = {
            "day": (date, tm.group_by(getattr(one, at).date())),
            "most": (float | None, tm.max(getattr(one, value))),
        }
        members["n"] = (int, tm.count(where=getattr(one, device) != "x"))
        return [one, aggregate("Day", one, members, tm.Key(partition="{day}"), "Days")]

    first = classes("device", "at", "value")
    with tm.open(tmp_path / "x.db", models=first) as store:
        store.insert_many(first[0]("d", START.replace(microsecond=n), float(n)) for n in range(5))
    renamed = classes("sensor", "taken", "amount")
    assert tm.changes(tm.schema_snapshot(first), renamed) == (), "else an index is built once more, under another name"
    with sound_store(tmp_path / "x.db", models=renamed) as store:
        assert [r.taken.microsecond for r in store.query(renamed[0].by_value(3.0))] == [3]
        assert store[renamed[1].key(START.date())].most == 4.0
    with tm.open(tmp_path / "x.db", models=first) as store:
        assert store[first[1].key(START.date())].n == 5


def test_a_template_is_shown_as_it_is_declared(path: Path) -> None:
    other = reading(key=tm.Key(partition="{device}", row=("at", "{at:desc}")))
    with pytest.raises(tm.SchemaMismatch) as caught:
        tm.open(path, models=[other])
    assert caught.value.faults[0] == ('Reading: its row key was "{at}" and is ("at", "{at:desc}")')


def test_a_store_that_another_process_extends_while_it_is_opened_is_not_taken_for_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = engine.read_catalogue

    def read_and_extend(*args: Any) -> Any:
        monkeypatch.setattr(engine, "read_catalogue", read)
        catalogue = read(*args)
        tm.open(path, models=[reading(by_value=tm.Index[float](partition="{value}"))]).close()
        return catalogue

    monkeypatch.setattr(engine, "read_catalogue", read_and_extend)
    with tm.open(path, models=[reading()]) as store:
        assert store.check().ok


def test_a_store_that_one_thread_opens_and_reads_by_key_has_one_connection(path: Path) -> None:
    plain = reading()
    with tm.open(path, models=[plain]) as store:
        assert store.get(plain.key("d0", START)) is not None
        assert len(store._engine.file._connections) == 1  # type: ignore[attr-defined]


def test_a_catalogue_that_another_program_changed_is_found_by_a_process_that_has_read_it(path: Path) -> None:
    tm.open(path, models=[reading()]).close()
    run_sql(path, "UPDATE tablemapper_catalogue SET form = replace(form, 'value', 'volume') WHERE name = 'tables'")
    with pytest.raises(tm.CorruptStore):
        tm.open(path, models=[reading()])
