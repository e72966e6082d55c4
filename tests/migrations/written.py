"""Scripts that `migrations make` writes for given classes, and what is tried with them.

A script needs a change. So each entity class, or one of them, gets one more field, ``zz``, by a first script that only leads
back: it gives the wider classes, as source and as classes. The second script leads from the given classes to these.
"""

from __future__ import annotations

import copy
import importlib
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tablemapper as tm
from tablemapper.schema.model import model_of
from tablemapper.schema.specs import FieldSpec

ADDED = {"type": "int", "optional": False, "in_key": False, "default": None}
FILLED = 7


class Written:
    """Two scripts in packages: ``back`` from the wider classes to the given ones, ``there`` from those to the wider."""

    def __init__(self, back: Path, there: Path, models: Sequence[Any], wider: Sequence[Any]) -> None:
        self.back = back
        self.there = there
        self.models = list(models)
        self.wider = list(wider)

    @property
    def package(self) -> str:
        return self.there.parent.name


def write_scripts(folder: Path, name: str, models: Sequence[Any], rng: random.Random) -> Written:
    """Write both scripts into packages of a folder that is in sys.path."""
    for part in ("back", "there"):
        (folder / f"{name}_{part}").mkdir()
        (folder / f"{name}_{part}" / "__init__.py").touch()
    importlib.invalidate_caches()
    form = tm.schema_snapshot(models)
    wider_form = copy.deepcopy(form)
    entities = [one for one in wider_form.values() if not one.get("aggregate")]
    for one in entities if rng.random() < 0.6 else [rng.choice(entities)]:
        one["fields"]["zz"] = ADDED
    (folder / f"{name}_back" / "schema.json").write_text(json.dumps(wider_form), encoding="utf-8")
    back = tm.Migrations(f"{name}_back").write(models, "narrow")
    assert back.suffix == ".py"
    (script,) = tm.Migrations(f"{name}_back").scripts
    agree(script.old, wider_form)
    agree(script.new, form)
    wider = [cls for cls in script.old if ":" not in cls.__name__]
    wider += [cls for cls in models if cls.__name__ not in {one.__name__ for one in wider}]
    tm.Migrations(f"{name}_there").write(models, "first")
    there = tm.Migrations(f"{name}_there").write(wider, "wide")
    there.write_text(there.read_text(encoding="utf-8").replace("...)", f"lambda e: {FILLED})"), encoding="utf-8")
    (script,) = tm.Migrations(f"{name}_there").scripts
    agree(script.old, form)
    agree(script.new, wider_form)
    assert tm.Migrations(f"{name}_there").check(wider) == ()
    return Written(back, there, models, wider)


def agree(classes: Sequence[Any], form: dict[str, Any]) -> None:
    """Assert that classes are those of a form, exactly; it may have more."""
    found = tm.schema_snapshot([cls for cls in classes if ":" not in cls.__name__])
    if unlike := list(difference(found, {name: form[name] for name in found})):
        raise AssertionError("\n".join(unlike))


def run(written: Written, path: Path, rng: random.Random) -> int:
    """Fill a store of the given classes, migrate it, undo that, and return how many entities took part."""
    with tm.open(path, models=written.models, durability="relaxed") as store:
        count = 0
        for cls in written.models:
            if issubclass(cls, tm.Entity):
                for _ in range(4):
                    count += _upserted(store, cls, rng)
        before = contents(store, written.models)
    options: dict[str, Any] = {"rest": 0, "durability": "relaxed"}
    report = tm.migrate(path, written.package, **options)
    assert report.ok, report
    with tm.open(path, models=written.wider, durability="relaxed") as store:
        assert (checked := store.check()).ok, checked
        same(contents(store, written.wider), before)
    assert tm.migrate(path, written.package, to="", **options).ok
    with tm.open(path, models=written.models, durability="relaxed") as store:
        assert (checked := store.check()).ok, checked
        same(contents(store, written.models), before)
    return count


def contents(store: tm.Store, classes: Sequence[Any]) -> list[str]:
    """Return all entities and groups as text, in order; groups with an ``_ever`` measure begin anew with a copy."""
    found = []
    for cls in [one for one in classes if not model_of(one).form.keeps_ever]:
        kind = "entity" if issubclass(cls, tm.Entity) else "group"
        for one in store.query(cls).allow_scan():
            values = json.loads(tm.to_json(one))
            assert values.pop("zz", FILLED) == FILLED
            found.append(f"{kind} {cls.__name__} {json.dumps(values, sort_keys=True)}")
    return sorted(found)


def _upserted(store: tm.Store, cls: Any, rng: random.Random) -> bool:
    """Write an entity of a class, if the values that are drawn make one."""
    for _ in range(20):
        try:
            store.upsert(tm.from_json(cls, json.dumps(sample(cls, rng))))
        except (tm.InvalidEntity, tm.UniqueViolation):
            continue
        return True
    return False


# ---------------------------------------------------------------------------------- values

_TEXTS = ["a", "b c", "x/y", "é", "http://a.b/c", "a@b.org", "abc"]
_VALUES: dict[str, list[Any]] = {
    "str": _TEXTS, "int": [0, 1, 7, 42, -3], "int32": [0, 5, -7], "float": [0.5, -2.0, 3.25], "bool": [True, False],
    "datetime": ["2026-03-01T12:30:00Z", "2024-02-29T23:59:59Z"], "date": ["2026-03-01", "2024-02-29"],
    "time": ["12:30:00", "00:00:00"], "timedelta": ["PT1H", "P2D"], "Decimal": ["1.50", "-3", "0"],
    "UUID": ["00000000-0000-0000-0000-000000000007", "ffffffff-ffff-ffff-ffff-ffffffffffff"], "bytes": ["AGE=", ""],
    "GeoPoint": [{"type": "Point", "coordinates": [2.5, 1.5]}], "extra": [{}, {"color": "red", "w": "x", "size": 3}],
}  # fmt: skip
_JSON: dict[tuple[str, str], str] = {
    ("string", ""): "str", ("integer", ""): "int", ("number", ""): "float", ("boolean", ""): "bool",
    ("string", "date-time"): "datetime", ("string", "date"): "date", ("string", "time"): "time",
    ("string", "duration"): "timedelta", ("string", "uuid"): "UUID", ("string", "decimal"): "Decimal",
    ("string", "bytes"): "bytes",
}  # fmt: skip


def sample(cls: Any, rng: random.Random) -> dict[str, Any]:
    """Return JSON of an entity of a class."""
    model = model_of(cls)
    found = {}
    for field in model.declaration.fields:
        if not field.maintained:
            form = model.form.fields[field.property]
            found[field.name] = None if form.optional and rng.random() < 0.3 else _value(form, rng)
    return found


def _value(form: FieldSpec, rng: random.Random) -> Any:
    listed = form.type.startswith("list[")
    if isinstance(form.members, list):
        pool = form.members
    elif isinstance(form.json, dict):
        return _nested(form.json, form.json.get("$defs", {}), rng)
    else:
        name = (form.type[5:-1] if listed else form.type).partition("[")[0]
        pool = _VALUES[name]
    return [rng.choice(pool) for _ in range(rng.randrange(3))] if listed else rng.choice(pool)


def _nested(schema: dict[str, Any], classes: dict[str, Any], rng: random.Random, depth: int = 0) -> Any:
    if "$ref" in schema:
        form = classes[schema["$ref"]]
        members = {name: _nested(member, classes, rng, depth + 1) for name, member in form["properties"].items()}
        if "order" in form:
            return [*([form["tag"][1]] if "tag" in form else []), *members.values()]
        return {**({form["tag"][0]: form["tag"][1]} if "tag" in form else {}), **members}
    if "anyOf" in schema:
        return _nested(rng.choice(schema["anyOf"]), classes, rng, depth + 1)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "prefixItems" in schema:
        return [_nested(item, classes, rng, depth + 1) for item in schema["prefixItems"]]
    if "items" in schema:
        few = range(max(rng.randrange(3) if depth < 5 else 0, schema.get("min_length", 0)))
        items = [_nested(schema["items"], classes, rng, depth + 1) for _ in few]
        return sorted({json.dumps(one): one for one in items}.values(), key=str) if "uniqueItems" in schema else items
    if "additionalProperties" in schema:
        return {
            name: _nested(schema["additionalProperties"], classes, rng, depth + 1)
            for name in rng.sample("ab", rng.randrange(3))
        }
    if schema.get("type") == "null" or not schema:
        return None
    if schema.get("format") == "GeoPoint":
        return _VALUES["GeoPoint"][0]
    return rng.choice(_VALUES[_JSON[schema["type"], schema.get("format", "")]])


def same(found: list[str], expected: list[str]) -> None:
    """Assert that two lists hold the same lines."""
    if unlike := sorted(set(found) ^ set(expected)):
        raise AssertionError("\n".join(f"{'not expected' if one in found else 'missing'}: {one}" for one in unlike))


def difference(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """Yield where two forms differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        a, b = ({**one, "type": "json"} if "json" in one else one for one in (a, b))
        for name in {**a, **b}:
            yield from difference(a.get(name, "nothing"), b.get(name, "nothing"), f"{path}.{name}")
    elif a != b and not path.endswith((".include_all", ".factory", ".required")):
        yield f"{path}: {a} != {b}"
