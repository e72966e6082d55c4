"""Random aggregates of a chain's classes: as data, as classes, what they should hold, and every way to read them."""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import attrs

import tablemapper as tm

from .oracle import measure_of

OSLO = ZoneInfo("Europe/Oslo")
HOUR = timedelta(hours=1)
Row = Mapping[str, Any]
Condition = tuple[str, str, Any]
"""A field, ``">"`` or ``"!="``, and a value."""
PARTS: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "utc": (date, lambda attr: attr.date(), lambda value: value.date()),
    "zone": (date, lambda attr: attr.date("Europe/Oslo"), lambda value: value.astimezone(OSLO).date()),
    "month": (str, lambda attr: attr.truncate("%Y-%m", "Europe/Oslo"), lambda value: f"{value.astimezone(OSLO):%Y-%m}"),
    "hour": (datetime, lambda attr: attr.floor(HOUR), lambda value: value.replace(minute=0, second=0, microsecond=0)),
    "each": (str, lambda attr: attr.each(), lambda value: value),
}
"""Of a part of a field: its type, its expression, and how it is computed."""
NUMBERS = ("int", "optint", "decimal", "float", "wild", "exact", "real", "optreal", "optexact", "span")
"""Kinds that are measured."""
GROUPED = ("str", "optstr", "int", "digits", "optint", "flag", "day", "grade", "wild")
"""Kinds that are grouped by."""
OPERATORS: dict[str, Any] = {">": operator.gt, "!=": operator.ne}


@attrs.define
class Total:
    """An aggregate."""

    name: str
    table: str
    groups: list[tuple[str, str, str]]
    """Field, part of it (``""`` for all of it), name."""
    measures: list[tuple[str, str, str]]
    """Name, verb, field (``""`` for the number of entities)."""
    row: str = ""
    """The row key begins with it, where others have their rows in the table, too."""
    where: Condition | None = None
    only: dict[str, Condition] = attrs.field(factory=dict)
    """The conditions of single measures."""
    indexes: dict[str, str] = attrs.field(factory=dict)
    """Each over a group or a measure."""

    def rename(self, of: Callable[[str], str]) -> None:
        """Give the fields that it reads other names."""
        self.groups = [(of(field), part, name) for field, part, name in self.groups]
        self.measures = [(name, verb, of(field)) for name, verb, field in self.measures]
        self.where = self.where and (of(self.where[0]), *self.where[1:])
        self.only = {name: (of(field), sign, value) for name, (field, sign, value) in self.only.items()}

    @property
    def asked(self) -> set[str]:
        """The fields that its conditions read."""
        return {field for field, *_ in [*self.only.values(), *([self.where] if self.where else [])]}

    @property
    def used(self) -> set[str]:
        """The fields that it reads."""
        return {field for field, *_ in self.groups} | {field for *_, field in self.measures} | self.asked


def enrich(draw: random.Random, total: Total, kinds: Mapping[str, str], name: Callable[[str], str]) -> None:
    """Add what aggregates may have besides a group and plain measures; ``name`` gives names that nothing has."""
    texts = [field for field, kind in kinds.items() if kind in ("str", "optstr", "int", "digits")]
    others = [field for field in texts if field not in [one for one, *_ in total.groups]]
    if others and not total.row and draw.random() < 0.4:
        total.groups.append((draw.choice(others), "", "also"))
    total.groups = [
        (f, draw.choice([p, p, "month", "hour"]) if kinds[f] == "time" else p, n) for f, p, n in total.groups
    ]
    if "list" in kinds.values() and len(total.groups) == 1 and draw.random() < 0.3:
        total.groups = [(next(field for field, kind in kinds.items() if kind == "list"), "each", "group")]
    add_measures(draw, total, kinds, name)
    if draw.random() < 0.3:
        total.where = draw.choice(conditions(kinds))
    for measure, verb, _ in total.measures:
        if not verb.endswith("ever") and draw.random() < 0.2:
            total.only[measure] = draw.choice(conditions(kinds))
    if draw.random() < 0.3:
        total.indexes[name("over")] = draw.choice([total.groups[0][2], "count"])


def conditions(kinds: Mapping[str, str]) -> list[Condition]:
    """Return conditions of fields, in which values are compared that are least or empty, too."""
    compared: dict[str, list[Any]] = {
        "int": [3, 0],
        "optint": [3, 0],
        "str": ["m1", ""],
        "optstr": ["m1", ""],
        "digits": ["m1", ""],
    }
    return [
        (field, sign, value) for field, kind in kinds.items() for value in compared.get(kind, ()) for sign in OPERATORS
    ]


def add_measures(draw: random.Random, total: Total, kinds: Mapping[str, str], name: Callable[[str], str]) -> None:
    numbers = [field for field, kind in kinds.items() if kind in NUMBERS]
    for field in draw.sample(numbers, min(len(numbers), draw.randrange(1, 3))):
        verbs = ["avg", "count", "max_ever", "min_ever", "sum", "max"]
        if kinds[field] in ("exact", "optexact", "span"):  # (such an average has another type, or is rounded)
            verbs.remove("avg")
        total.measures.append((name("measure"), draw.choice(verbs), field))


# ---------------------------------------------------------------------------------------------- classes


def measure(verb: str, cls: Any, field: str, **options: Any) -> Any:
    """Return a measure, as it stands in a class."""
    return tm.count(**options) if not field else getattr(tm, verb)(getattr(cls, field), **options)


def measured_type(verb: str, kind: str, types: Mapping[str, Any], *, may_lack: bool = False) -> Any:
    """Return the type of a measure over a field of some kind; ``may_lack``: no entity need have a value."""
    if verb == "count":
        return int
    if verb == "avg":
        return Decimal | None if kind == "decimal" else float | None
    return types[kind] if verb == "sum" and not may_lack else types[kind] | None


def total_class(cls: Any, total: Total, kinds: Mapping[str, str], types: Mapping[str, Any]) -> Any:
    """Return an aggregate over a class."""
    annotations: dict[str, Any] = {}
    body: dict[str, Any] = {"__module__": __name__, "__annotations__": annotations}
    for field, part, name in total.groups:
        type_, expression, _ = PARTS.get(part, (types.get(kinds[field]), same, same))
        annotations[name] = tm.Field[type_]
        body[name] = tm.group_by(expression(getattr(cls, field)))
    for name, verb, field in total.measures:
        only = total.only.get(name)
        annotations[name] = tm.Field[measured_type(verb, kinds.get(field, ""), types, may_lack=only is not None)]
        body[name] = measure(verb, cls, field, **({"where": predicate(cls, only)} if only else {}))
    names = [f"{{{name}}}" for *_, name in total.groups]
    rows = [total.row, *names[1:]] if total.row else names[1:]
    body["key"] = tm.Key(partition=names[0], row=tuple(rows) if len(rows) > 1 else rows[0] if rows else "")
    for index, over in total.indexes.items():
        body[index] = tm.Index(partition=f"{{{over}}}")
    where = total.where
    options = {} if where is None else {"where": lambda entity: predicate(entity, where)}
    return type(tm.Aggregate)(total.name, (tm.Aggregate,), body, of=cls, table=total.table, **options)


def same(value: Any) -> Any:
    return value


def predicate(cls: Any, condition: Condition) -> Any:
    field, sign, value = condition
    return OPERATORS[sign](getattr(cls, field), value)


# ---------------------------------------------------------------------------------------------- what it should hold


def fulfils(row: Row, condition: Condition | None) -> bool:
    """Return whether an entity fulfils a condition; a missing value fulfils none."""
    if condition is None:
        return True
    field, sign, value = condition
    return row[field] is not None and OPERATORS[sign](row[field], value)


def groups_of(total: Total, row: Row) -> Iterator[tuple[Any, ...]]:
    """Yield the groups that an entity belongs to."""
    values = []
    for field, part, _ in total.groups:
        value = row[field]
        made = value and [*dict.fromkeys(value)] if part == "each" else [PARTS[part][2](value) if part else value]
        values.append([] if value is None else made)
    yield from itertools.product(*values)


def expected_groups(total: Total, rows: list[Row]) -> dict[tuple[Any, ...], list[Any]]:
    """Return the measures of every group."""
    held: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        for key in groups_of(total, row) if fulfils(row, total.where) else ():
            held.setdefault(key, []).append(row)
    return {
        key: [
            measure_of(verb, [row[field] if field else 1 for row in some if fulfils(row, total.only.get(name))])
            for name, verb, field in total.measures
        ]
        for key, some in held.items()
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- each way to read it


def total_faults(store: tm.Store, source: Any, cls: Any, total: Total, kinds: Mapping[str, str], rows: list[Row]) -> Iterator[str]:  # fmt: skip
    """Yield how what a store tells of an aggregate differs from what it should tell."""
    expected = expected_groups(total, rows)
    verbs = [verb for _, verb, _ in total.measures]
    names = [name for *_, name in total.groups]

    def shown(group: Any) -> list[Any]:
        return [getattr(group, name) for name, *_ in total.measures]

    def differ(found: list[Any], wanted: list[Any]) -> bool:
        return any(map(_differs, verbs, found, wanted))

    found = {tuple(getattr(group, name) for name in names): group for group in store.query(cls).allow_scan()}
    nothing = [measure_of(verb, []) for verb in verbs]
    if not any(verb.endswith("ever") for verb in verbs) and found.keys() != expected.keys():
        yield f"the groups {sorted(found)}, not {sorted(expected)}"
    for key in found.keys() | expected.keys():
        wanted = expected.get(key, nothing)
        if key not in found or differ(shown(found[key]), wanted):
            yield f"{key}: {shown(found[key]) if key in found else 'nothing'}, not {wanted}"
        for group in (store.get(cls.key(*key)), store.group(cls.key(*key))):
            if (group is not None or key in expected) and differ(shown(group), wanted):
                yield f"{key} by its key: {group}, not {wanted}"
    first = names[0]
    for value in list(dict.fromkeys(key[0] for key in expected))[:3]:
        keys = {
            tuple(getattr(group, name) for name in names)
            for group in store.query(cls).where(getattr(cls, first) == value)
        }
        if not keys >= {key for key in expected if key[0] == value}:
            yield f"{first} {value!r} has the groups {keys}"
    if (many := sum(len(page.items) for page in store.query(cls).allow_scan().pages(2))) != len(found):
        yield f"{many} groups in pages, not {len(found)}"
    for index, over in total.indexes.items():
        for group in [*found.values()][:3]:
            value = getattr(group, over)
            by_index = {tuple(getattr(one, name) for name in names) for one in store.query(getattr(cls, index)(value))}
            if by_index != {key for key, one in found.items() if getattr(one, over) == value}:
                yield f"{index}({value!r}): {by_index}"
    yield from _asked_faults(store, source, total, kinds, rows)


def _differs(verb: str, found: Any, wanted: Any) -> bool:
    if not verb.endswith("ever"):
        return bool((found or None) != (wanted or None))
    return wanted is not None and (found is None or (found > wanted if verb == "min_ever" else found < wanted))


def _asked_faults(
    store: tm.Store, source: Any, total: Total, kinds: Mapping[str, str], rows: list[Row]
) -> Iterator[str]:
    """Yield the totals of queries that the aggregate may answer, and that are wrong."""
    if any(part == "each" for _, part, _ in total.groups):
        return
    query = store.query(source).allow_scan()
    query = query if total.where is None else query.where(predicate(source, total.where))
    within = [
        row for row in rows if fulfils(row, total.where) and all(row[field] is not None for field, *_ in total.groups)
    ]
    for field, *_ in total.groups:
        query = query.where(getattr(source, field).is_not_null()) if kinds[field].startswith("opt") else query
    asked = [(verb, field, total.only.get(name)) for name, verb, field in total.measures if not verb.endswith("ever")]
    grouped = query.group_by(
        *[PARTS.get(part, (0, same))[1](getattr(source, field)) for field, part, _ in total.groups]
    )
    for verb, field, only in dict.fromkeys(asked):
        if verb == "count" and field:
            continue
        held = [row for row in within if fulfils(row, only)]
        values = [row[field] if field else 1 for row in held]
        asking = query if only is None else query.where(predicate(source, only))
        answer = asking.count() if not field else getattr(asking, verb)(getattr(source, field))
        if (answer or None) != (measure_of(verb, values) or None):
            yield f"{verb} of {field}: {answer}, not {measure_of(verb, values)}"
        if only is None:
            parts: dict[Any, list[Any]] = {}
            for row, value in zip(held, values, strict=True):
                key = next(groups_of(total, row))
                parts.setdefault(key if len(key) > 1 else key[0], []).append(value)
            wanted = {key: measure_of(verb, some) for key, some in parts.items()}
            answers = grouped.count() if not field else getattr(grouped, verb)(getattr(source, field))
            if answers != wanted:
                yield f"{verb} of {field} by group: {answers}, not {wanted}"
