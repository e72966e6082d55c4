"""Scripts are written from what changed: they load, name every difference, and leave what the classes are."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import os
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from uuid import UUID

import attrs
import msgspec
import pytest

import tablemapper as tm
from tablemapper.scripts.steps import Convert, Drop, Fill, Rename

from ..classes import aggregate, entity
from .test_validation import shape, total

_number = itertools.count()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Return a function that makes an empty package."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names: list[str] = []

    def make() -> str:
        names.append(f"written_{next(_number)}")
        (tmp_path / names[-1]).mkdir()
        (tmp_path / names[-1] / "__init__.py").touch()
        importlib.invalidate_caches()
        return names[-1]

    yield make
    for module in [one for one in sys.modules if one.split(".")[0] in names]:
        del sys.modules[module]


def complete(path: Path) -> None:
    """Give every step of a script its function."""
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"\.\.\.(?=[,)])", "lambda *_: None", text), encoding="utf-8")


def test_a_field_that_goes_to_a_new_class_may_be_dropped_or_split_off(package: Callable[[], str]) -> None:
    members = {"name": str, "maker": (str | None, tm.field(default=None))}
    Firm = entity("Firm", "Firms", members, tm.Key[str](partition="{name}"))
    name = package()
    tm.Migrations(name).write([shape(maker=(str | None, {"default": None}))], "initial")
    path = tm.Migrations(name).write([shape(), Firm], "firms")
    text = path.read_text()
    assert (
        "    # or m.rewrite(old.Product, ..., into=[new.Product, new.Firm]), if Product is split\n"
        "    m.drop(old.Product.maker)\n"
    ) in text
    assert "@tm.migration(after=None, old=[old.Product], new=[new.Product, new.Firm])" in text
    assert tm.Migrations(name).check([shape(), Firm]) == ()
    assert [type(step) for step in tm.Migrations(name).scripts[0].steps] == [Drop]


def test_a_script_is_written_with_both_shapes_and_its_steps(package: Callable[[], str]) -> None:
    name = package()
    first = [shape(price=str, maker=(str | None, {"default": None}))]
    path = tm.Migrations(name).write(first, "initial")
    assert path.name == "schema.json"
    assert json.loads(path.read_text()) == {"script": None, "before": [], "classes": tm.schema_snapshot(first)}
    new = [shape(price=Decimal, manufacturer=(str | None, {"default": None}), by=tm.Index(partition="{price}"))]
    assert [one.code for one in tm.Migrations(name).check(new)] == [
        "m.rename(old.Product.maker, new.Product.manufacturer)  # or m.drop(old.Product.maker), if they are two things",
        "m.convert(old.Product.price, new.Product.price, Decimal, back=str)",
    ]
    path = tm.Migrations(name).write(new, "Price & maker")
    assert path.name == "0001_price_maker.py"
    assert path.read_text() == EXPECTED
    migrations = tm.Migrations(name)
    assert migrations.ids == ("0001_price_maker",)
    assert migrations.check(new) == ()
    assert len(migrations.check(first)) == 2
    last = [shape(price=Decimal)]
    assert tm.Migrations(name).write(last, "drop").name == "0002_drop.py"
    script = tm.Migrations(name).scripts[1]
    assert (script.after, [type(step) for step in script.steps]) == ("0001_price_maker", [Drop, Drop])


EXPECTED = '''"""Change Product."""

from __future__ import annotations

from decimal import Decimal

import tablemapper as tm


class old:
    class Product(tm.Entity, table="Products"):
        shop: tm.Field[str]
        number: tm.Field[int]
        price: tm.Field[str]
        maker: tm.Field[str | None] = tm.field(default=None)

        key = tm.Key[str, int](partition="{shop}", row="{number}")


class new:
    class Product(tm.Entity, table="Products"):
        shop: tm.Field[str]
        number: tm.Field[int]
        price: tm.Field[Decimal]
        manufacturer: tm.Field[str | None] = tm.field(default=None)

        key = tm.Key[str, int](partition="{shop}", row="{number}")
        by = tm.Index[Decimal](partition="{price}")


@tm.migration(after=None, old=[old.Product], new=[new.Product])
def migrate(m: tm.Migration) -> None:
    # or m.drop(old.Product.maker), if they are two things
    m.rename(old.Product.maker, new.Product.manufacturer)
    m.convert(old.Product.price, new.Product.price, Decimal, back=str)
'''


def test_a_function_that_nobody_wrote_keeps_a_script_from_being_loaded(package: Callable[[], str]) -> None:
    name = package()
    tm.Migrations(name).write([shape()], "initial")
    path = tm.Migrations(name).write([shape(rank=int)], "rank")
    with pytest.raises(tm.InvalidMigration) as caught:
        tm.Migrations(name)
    assert caught.value.faults == ("0001_rank: give m.fill(new.Product.rank, ...) a function",)
    complete(path)
    sys.modules.pop(f"{name}.0001_rank")
    assert tm.Migrations(name).ids == ("0001_rank",)


def test_a_script_that_was_written_by_hand_counts(package: Callable[[], str]) -> None:
    old, new = shape(a=str), shape(b=str)

    @tm.migration(after=None, old=[old], new=[new])
    def by_hand(m: Any) -> None:
        m.rename(old.a, new.b)

    migrations, since = tm.Migrations([by_hand]), tm.schema_snapshot([old])
    assert migrations.check([new], since) == ()
    assert len(migrations.check([shape(c=int)], since)) == 2
    assert len(migrations.check([old])) == 1
    with pytest.raises(tm.InvalidMigration, match="a script is written into a package"):
        migrations.write([new], "x")


OPTIONAL = (str | None, {"default": None})


def test_a_field_that_came_after_the_last_script_is_missed_when_it_goes(package: Callable[[], str]) -> None:
    name = package()
    tm.Migrations(name).write([shape(a=str)], "initial")
    tm.Migrations(name).write([shape(b=str)], "b")
    assert tm.Migrations(name).write([shape(b=str, c=OPTIONAL)], "c").name == "schema.json"
    (change,) = tm.Migrations(name).check([shape(b=str)])
    assert change.code == "m.drop(old.Product.c)"
    assert tm.Migrations(name).write([shape(b=str)], "drop_c").name == "0002_drop_c.py"
    assert tm.Migrations(name).check([shape(b=str)]) == ()


def test_a_script_that_drops_a_field_may_be_written_by_hand() -> None:
    old, new = shape(a=str, b=OPTIONAL), shape(a=str)

    @tm.migration(after=None, old=[old], new=[new])
    def by_hand(m: Any) -> None:
        m.drop(old.b)

    assert tm.Migrations([by_hand]).check([new], tm.schema_snapshot([old])) == ()


def test_a_script_that_leads_to_another_shape_than_the_classes_is_found(package: Callable[[], str]) -> None:
    name = package()
    tm.Migrations(name).write([shape(a=str)], "initial")
    path = tm.Migrations(name).write([shape(a=int)], "a")
    text = path.read_text(encoding="utf-8").replace("a: tm.Field[int]", "a: tm.Field[float]").replace("...)", "float)")
    path.write_text(text, encoding="utf-8")
    (change,) = tm.Migrations(name).check([shape(a=int)])
    assert change.message == 'the property "a" was float and is int'
    assert tm.Migrations(name).check([shape(a=float)]) == ()


def test_what_no_script_can_do_is_said_and_nothing_is_written(package: Callable[[], str]) -> None:
    name = package()
    first = shape(a=str)
    path = tm.Migrations(name).write([first], "initial")
    text = path.read_text()
    other = entity("Other", "products", {"shop": str}, tm.Key(partition="{shop}"))
    with pytest.raises(tm.InvalidMigration, match="differ only in case"):
        tm.Migrations(name).write([other], "x")
    assert path.read_text() == text


def test_the_error_of_a_store_has_the_script_that_it_needs(tmp_path: Path, package: Callable[[], str]) -> None:
    path, name = tmp_path / "x.db", package()
    old, new = shape(a=str, b=int), shape(a=int, b=str)
    with tm.open(path, models=[old]) as store:
        store.insert(old("s", 1, a="1", b=2))
    with pytest.raises(tm.SchemaMismatch) as caught:
        tm.open(path, models=[new])
    tm.Migrations(name).write([old], "initial")
    script = tm.Migrations(name).write([new], "product").read_text()
    assert caught.value.script == script
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.script, again.changes, again.old) == (script, caught.value.changes, caught.value.old)
    assert str(caught.value) == (
        'Product: the property "a" was str and is int\nProduct: the property "b" was int and is str\n'
        "This needs a migration. If its script is written, run: tablemapper migrate PLACE. If not, run: tablemapper migrations "
        "make product, or write migrations/NNNN_product.py: the attribute script of this error is its text"
    )


@pytest.mark.parametrize("given", [True, False])
def test_the_error_of_a_store_names_the_scripts_that_wait(
    tmp_path: Path, package: Callable[[], str], given: bool
) -> None:
    path, name = tmp_path / "my shop.db", package()
    old, new = shape(a=str), shape(a=int)
    with tm.open(path, models=[old]) as store:
        store.insert(old("s", 1, a="1"))
    tm.Migrations(name).write([old], "initial")
    script = tm.Migrations(name).write([new], "numbers")
    script.write_text(script.read_text().replace("...", "int, back=str"))
    run = f"0001_numbers has not run over this store: run tablemapper migrate '{path}', or tm.migrate"
    general = "If its script is written, run: tablemapper migrate PLACE"
    with pytest.raises(tm.SchemaMismatch) as caught:
        tm.open(path, models=[new], migrations=name if given else None)
    assert (run if given else general) in str(caught.value)
    assert "m.convert" in (caught.value.script or "")
    assert "m.convert" not in str(caught.value)

    async def start() -> None:
        await tm.open_async(path, models=[new], migrations=name if given else None)

    with pytest.raises(tm.SchemaMismatch, match="has not run over this store" if given else "If its script is written"):
        asyncio.run(start())
    tm.migrate(path, name)
    with pytest.raises(tm.SchemaMismatch, match="If its script is written"):
        tm.open(path, models=[shape(a=bytes)], migrations=name)


def test_an_aggregate_of_a_calculation_is_written_as_python_has_it(package: Callable[[], str]) -> None:
    def classes(**fields: Any) -> list[Any]:
        source = shape(**fields)
        total = tm.sum(getattr(source, next(iter(fields))) * (source.number + 2))
        members = {"shop": (str, tm.group_by(source.shop)), "n": (int, total)}
        return [source, aggregate("Total", source, members, tm.Key(partition="{shop}"), "Totals")]

    name = package()
    tm.Migrations(name).write(classes(a=int), "initial")
    path = tm.Migrations(name).write(classes(b=int), "names")
    assert "old_entities.Product.a * (old_entities.Product.number + 2)" in path.read_text()
    assert tm.Migrations(name).check(classes(b=int)) == ()


# ---------------------------------------------------------------------------------- any classes


@attrs.define
class Room:
    name: str
    size: float = 1.5
    doors: list[str] = attrs.field(factory=list)


@attrs.define
class House:
    rooms: list[Room]
    built: date | None = None
    price: Decimal = Decimal("1.50")


class Tagged(msgspec.Struct, tag="t", omit_defaults=True):
    a: int
    b: dict[str, int] = {}


TYPES: list[Any] = [
    str, int, float, bool, datetime, date, Decimal, UUID, bytes, tm.Int32, Literal["x", "y"], Literal[1, 2], list[str],
    list[Literal["x"]], list[tm.Int32], dict[str, float], set[str], tuple[int, str], Room, House, list[House], Tagged,
    tm.GeoPoint, list[list[int]], tuple[str, ...], tuple[Decimal, ...], frozenset[int], frozenset[date],
]  # fmt: skip
DEFAULTS: dict[Any, Any] = {
    str: "it's", int: -3, float: 1.5, bool: True, date: date(2020, 1, 2), Decimal: Decimal("0.10"), bytes: b"\x00a",
    UUID: UUID(int=7), Literal["x", "y"]: "y", datetime: datetime.fromisoformat("2020-01-02T03:04:05.000006+00:00"),
    tuple[str, ...]: ("a", "it's"), tuple[Decimal, ...]: (Decimal("0.10"),), tuple[int, str]: (1, "x"),
    frozenset[int]: frozenset({2, -1}), frozenset[date]: frozenset(),
}  # fmt: skip
KEYS = [("{shop}", "{number}"), ("{shop}", "{number:desc}"), ("{shop:shard(8)}", ("{shop}", "{number}")), ("x", ("{number}", "{shop}"))]  # fmt: skip


def anything(random: random.Random, fields: dict[str, Any], name: str) -> list[Any]:
    """Return some classes with the fields, an index and an aggregate among them."""
    partition, row = random.choice(KEYS[:2] + KEYS * (random.random() < 0.2))
    body: dict[str, Any] = {"key": tm.Key(partition=partition, row=row), **fields}
    if random.random() < 0.5:
        body["by_number"] = tm.Index(
            partition="{number}", row=random.choice(["", "{shop}"]), include=random.choice([(), ("shop",)]),
            where=random.choice([None, lambda e: (e.number > 3) | ~e.shop.startswith("x") & e.shop.is_in(["a", "b"])]),
        )  # fmt: skip
    cls = shape(name, "Products", **body)
    return [cls, total(cls, cls.shop)] if random.random() < 0.4 else [cls]


def some_fields(random: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in random.sample("abcdef", random.randint(1, 4)):
        kind = random.choice(TYPES)
        way = random.random()
        if way < 0.3:
            found[field] = (kind | None, {"default": None})
        elif way < 0.6 and kind in DEFAULTS:
            found[field] = (kind, {"default": DEFAULTS[kind]})
        else:
            found[field] = kind
    return found


def changed(random: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with one or two added, removed, renamed or of another type."""
    found = dict(fields)
    for _ in range(random.randint(1, 3)):
        field = random.choice(sorted(found) or ["a"])
        match random.randrange(4):
            case 0:
                found.pop(field, None)
            case 1 if field in found:
                found[f"{field}x"] = found.pop(field)
            case 2:
                found[field] = random.choice(list(some_fields(random).values()))
            case _:
                found |= some_fields(random)
    return found


def pairs(number: int) -> Iterator[tuple[list[Any], list[Any]]]:
    for seed in range(number):
        chosen = random.Random(seed)
        fields = some_fields(chosen)
        old = anything(chosen, fields, "Product")
        new = anything(chosen, changed(chosen, fields), chosen.choice(["Product"] * 5 + ["Goods"]))
        yield old, new


def test_the_types_of_a_key_stand_in_the_order_of_its_fields(package: Callable[[], str]) -> None:
    key = tm.Key(partition="{number:shard(8)}", row=("{shop}", "{number}"))
    name = package()
    tm.Migrations(name).write([shape("Product", key=key)], "initial")
    path = tm.Migrations(name).write([shape("Product", key=key, a=str)], "changed")
    assert path.read_text(encoding="utf-8").count("key = tm.Key[int, str](") == 2
    complete(path)
    assert len(tm.Migrations(name).scripts) == 1


def test_an_aggregate_that_goes_when_its_class_gets_another_name_is_dropped(package: Callable[[], str]) -> None:
    old, new = shape("Product", a=str), shape("Goods", "Products", a=str)
    name = package()
    tm.Migrations(name).write([old, total(old, old.shop)], "initial")
    path = tm.Migrations(name).write([new], "changed")
    body = path.read_text(encoding="utf-8").partition("def migrate")[2]
    assert body.split("\n")[1:-1] == ["    m.rename_class(old.Product, new.Goods)", "    m.drop(old.Total)"]
    assert len(tm.Migrations(name).scripts) == 1


def test_an_aggregate_with_another_name_is_renamed_and_not_dropped(package: Callable[[], str]) -> None:
    product, name = shape("Product", a=str), package()
    tm.Migrations(name).write([product, total(product, product.shop)], "initial")
    other = total(product, product.shop, "PerShop")
    path = tm.Migrations(name).write([product, other], "changed")
    body = path.read_text(encoding="utf-8").partition("def migrate")[2]
    assert body.split("\n")[1:-1] == ["    m.rename_class(old.Total, new.PerShop)"]
    assert tm.Migrations(name).check([product, other]) == ()


def test_a_script_for_any_two_shapes_loads_and_names_every_difference(
    package: Callable[[], str], tmp_path: Path, full_size: bool
) -> None:
    written = []
    for number, (old, new) in enumerate(pairs(200 if full_size else 8)):
        name = package()
        tm.Migrations(name).write(old, "initial")
        needed = tm.Migrations(name).check(new)
        assert tm.changes(tm.schema_snapshot(new), new) == ()
        if any(not one.code for one in needed):  # (such as two classes with equal keys)
            continue
        path = tm.Migrations(name).write(new, "changed")
        if path.suffix == ".json":
            assert needed == ()
            continue
        written.append(tmp_path / f"{name}_script.py")
        written[-1].write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        complete(path)
        migrations = tm.Migrations(name)  # (it would say which difference no step makes)
        (script,) = migrations.scripts
        assert migrations.check(new) == (), number
        frozen = {cls.__name__: cls for cls in script.new}
        both = [cls for cls in new if cls.__name__ in frozen]
        assert not any(
            one.stops for one in tm.changes(tm.schema_snapshot(both), [frozen[cls.__name__] for cls in both])
        )
        same = tm.schema_snapshot(both) == tm.schema_snapshot([frozen[cls.__name__] for cls in both])
        assert same, (number, tm.schema_snapshot(both), tm.schema_snapshot([frozen[cls.__name__] for cls in both]))
        assert all(step.old.owner in script.old for step in script.steps if isinstance(step, Rename))
    assert len(written) >= (100 if full_size else 3)
    if full_size:
        pytest.importorskip("mypy")
        pytest.importorskip("ruff")
        files = list(map(str, written))
        _run(tmp_path, "ruff", "format", "--isolated", "--check", *files)
        _run(tmp_path, "ruff", "check", "--isolated", "--select", "I,F", *files)
        _run(tmp_path, "mypy", "--strict", *files)


def _run(folder: Path, *command: str) -> None:
    """Run a tool as in the project of a user, who has the library installed."""
    root = str(Path(tm.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True, text=True, check=False, timeout=300, cwd=folder, env={**os.environ, "MYPYPATH": root},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


# ---------------------------------------------------------------------------------- any classes, and rows of them

ROOM = {"name": "r", "size": 2.5, "doors": ["in"]}
SAMPLES: list[tuple[Any, list[Any]]] = [
    (str, ["x", "3", "1.25", ""]), (int, [0, -7, 5]), (float, [2.5, 0.0]), (bool, [True, False]), (date, ["2021-02-03"]),
    (datetime, ["2020-01-02T03:04:05.000006Z"]), (Decimal, ["1.25", "0"]), (UUID, [str(UUID(int=9))]), (bytes, ["AGE="]),
    (tm.Int32, [7, 0]), (Literal["x", "y"], ["x", "y"]), (Literal[1, 2], [1, 2]), (list[str], [[], ["b", "a"]]),
    (list[Literal["x"]], [["x"], []]), (list[tm.Int32], [[1, 2]]), (dict[str, float], [{"k": 1.5}, {}]),
    (set[str], [["a"]]), (tuple[int, str], [[1, "a"]]), (Room, [ROOM]), (House, [{"rooms": [ROOM], "built": None, "price": "2.5"}]),
    (list[House], [[]]), (Tagged, [{"type": "t", "a": 1, "b": {"k": 2}}]), (tm.GeoPoint, [{"type": "Point", "coordinates": [2.5, 1.5]}]),
    (list[list[int]], [[[1], []]]), (tuple[str, ...], [["b"], []]), (tuple[Decimal, ...], [["1.25"], []]),
    (frozenset[int], [[1], []]), (frozenset[date], [["2021-02-03"], []]),
]  # fmt: skip
"""JSON of values of each type."""
BUILT_IN: dict[tuple[Any, Any], Callable[[Any], Any]] = {
    (int, float): float, (int, Decimal): str, (int, str): str, (float, str): str, (Decimal, str): str, (str, Decimal): str,
    (str, UUID): str, (UUID, str): str, (date, datetime): lambda day: f"{day}T00:00:00Z",
}  # fmt: skip
"""What the conversions that are written do, in JSON."""


def _kinds(cls: Any) -> dict[str, tuple[Any, bool]]:
    """Return the type of each field, and whether it may be None."""
    found = {}
    for name, kind in cls.__annotations__.items():
        optional = type(None) in getattr(kind, "__args__", ())
        found[name] = next(one for one, _ in SAMPLES if one == kind or (optional and one | None == kind)), optional
    return found


def _of_values(kind: Any) -> Any:
    """Return the type of the values of a Literal, or a type itself."""
    return type(get_args(kind)[0]) if get_origin(kind) is Literal else kind


def _sample(random: random.Random, kind: Any) -> Any:
    return random.choice(next(values for one, values in SAMPLES if one == kind))


def _read(cls: Any, row: dict[str, Any]) -> Any:
    return tm.from_json(cls, json.dumps(row))


def _row(random: random.Random, cls: Any, number: int) -> dict[str, Any]:
    row = {
        name: None if optional and random.random() < 0.4 else _sample(random, kind)
        for name, (kind, optional) in _kinds(cls).items()
    }
    return row | {"shop": random.choice("ab"), "number": number}


def _converted(script: Any, text: str, old: Any, new: Any, row: dict[str, Any], values: dict[str, Any]) -> Any:
    """Return the entity that a script should make of a row, by the text of its steps."""
    here, there = _kinds(old), _kinds(new)
    moved = {step.new.name: step.old.name for step in script.steps if isinstance(step, Rename | Convert)}
    fills = [step.new.name for step in script.steps if isinstance(step, Fill)]
    found = {}
    for name, (kind, _) in there.items():
        was = moved.get(name, name)
        if was not in row or (name not in moved and was in moved.values()):
            continue
        value = row[was]
        if f"m.convert(old.{old.__name__}.{was}, new.{new.__name__}.{name}, ..." in text:
            value = None if value is None and there[name][1] else values[name]
        elif (name in moved or here[was][0] != kind) and value is not None and here[was][0] != kind:
            value = BUILT_IN.get((_of_values(here[was][0]), kind), lambda same: same)(value)
        found[name] = value
    for name in fills:
        if found.get(name) is None:
            written = f"m.fill(new.{new.__name__}.{name}, ..." in text
            found[name] = (
                values[name] if written else json.loads(tm.to_json(new(shop="a", number=1, **_needed(new))))[name]
            )
    return _read(new, found)


def _needed(new: Any) -> dict[str, Any]:
    """Return values for the fields that have no default."""
    draw = random.Random(0)
    json_of = {name: _sample(draw, kind) for name, (kind, _) in _kinds(new).items()}
    entity = _read(new, json_of)
    return {
        field.name: getattr(entity, field.name)
        for field in new.__attrs_attrs__
        if field.default is attrs.NOTHING and field.name not in ("shop", "number")
    }


def test_a_script_for_any_two_shapes_makes_of_each_row_what_its_steps_say(
    package: Callable[[], str], tmp_path: Path, full_size: bool
) -> None:
    ran = 0
    for number, (old, new) in enumerate(pairs(200 if full_size else 10)):
        name, draw = package(), random.Random(number)
        tm.Migrations(name).write(old, "initial")
        if any(not one.code for one in tm.Migrations(name).check(new)):
            continue
        path = tm.Migrations(name).write(new, "changed")
        if path.suffix == ".json":
            continue
        text = path.read_text(encoding="utf-8")
        complete(path)
        migrations = tm.Migrations(name)
        values = {field: _sample(draw, kind) for field, (kind, _) in _kinds(new[0]).items()}
        (script,) = migrations.scripts
        frozen = next(cls for cls in script.new if cls.__name__ == new[0].__name__)
        given = _read(frozen, values | {"shop": "a", "number": 1})
        steps = []
        for step in script.steps:
            if isinstance(step, Convert | Fill) and re.search(rf"new\.\w+\.{step.new.name}, \.\.\.", text):
                step = attrs.evolve(step, with_=lambda *_, field=step.new.name: getattr(given, field))
            steps.append(step)
        object.__setattr__(migrations, "scripts", (attrs.evolve(script, steps=tuple(steps)),))

        rows = [_row(draw, old[0], at) for at in range(8)]
        place = tmp_path / f"{name}.db"
        with tm.open(place, models=old, durability="relaxed") as store:
            store.insert_many(_read(old[0], row) for row in rows)
        try:
            expected = [_converted(script, text, old[0], new[0], row, values) for row in rows]
        except tm.InvalidEntity:  # such as a text that is no Decimal
            with pytest.raises(tm.MigrationStopped):
                tm.migrate(place, migrations, rest=0, durability="relaxed")
            continue
        assert tm.migrate(place, migrations, rest=0, durability="relaxed").ok
        with tm.open(place, models=new, durability="relaxed") as store:
            assert store.check().ok
            found = sorted(store.query(new[0]).allow_scan(), key=lambda one: one.number)
            assert list(map(tm.to_json, found)) == list(map(tm.to_json, expected)), (number, text)
        ran += 1
    assert ran >= (80 if full_size else 3)
