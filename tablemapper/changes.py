"""The one definition of maintenance: what a change of an entity does to index rows and aggregates.

``(old row | None, new row | None) → index rows to delete and put, aggregate deltas``. The engines, the build of a new
index and the check all ask the same generated functions, `Maintenance.entries` and `Maintenance.contribution`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Any, cast

import attrs

from .aggregates import AggregateModel, Delta, State, store_sortable
from .codegen import Names, compile_functions
from .declaration import IndexModel
from .errors import CorruptStore, InvalidEntity, TableMapperError
from .expressions import Attr, Predicate
from .fields import FieldModel
from .keyforms import check_key
from .limits import MAX_INDEX_ROW_UNITS
from .model import Model, Row, Schema
from .predicates import attribute_source, attributes, python_source, walk

__all__ = [
    "ChangeSet",
    "IndexChanges",
    "IndexMaintenance",
    "Maintenance",
    "aggregate_row",
    "index_columns",
    "maintenance",
]

MAX_FAN_OUT = 1000  # index rows an entity may have in one index

IndexRow = tuple[Any, ...]
"""``(index partition key, index row key, entity partition key, entity row key, included property, …)``"""
Contribution = tuple[str, str, tuple[Any, ...]]
"""``(group partition key, group row key, value of each slot)``"""


@attrs.define(eq=False)
class IndexChanges:
    """What a transaction does to one index: rows that go, rows that come, rows of which only the projection changed."""

    deletes: list[IndexRow]
    puts: list[IndexRow]
    rewrites: list[IndexRow]


@attrs.frozen(eq=False)
class IndexMaintenance:
    """One index, and the function that gives an entity's rows in it."""

    model: IndexModel
    owner: Model
    entries: Callable[[Row], tuple[IndexRow, ...]]


@attrs.frozen(eq=False)
class AggregateMaintenance:
    """One aggregate, and the function that gives what an entity adds to it (None: nothing)."""

    model: Model
    aggregate: AggregateModel
    contribution: Callable[[Row], Contribution | None]


@attrs.frozen(eq=False)
class Maintenance:
    """Everything that is maintained from one entity class."""

    indexes: tuple[IndexMaintenance, ...]
    aggregates: tuple[AggregateMaintenance, ...]
    read: Callable[[Row], Any] | None
    """Picks from a row what an index or an aggregate reads; None if nothing is maintained."""


@attrs.define(eq=False)
class ChangeSet:
    """What a transaction does to everything that is maintained: collected, then applied once by an engine."""

    indexes: dict[IndexMaintenance, IndexChanges] = attrs.field(factory=dict)
    groups: dict[AggregateMaintenance, dict[tuple[str, str], Delta]] = attrs.field(factory=dict)

    def update(self, kept: Maintenance, old: Row | None, new: Row | None) -> None:
        """Add the change of one entity. Each entity may change once in a set.

        Raises:
            InvalidEntity: what it would be in an index or an aggregate is not possible.
            CorruptStore: what is stored can not be read.
        """
        try:
            self._update(kept, old, new)
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            if isinstance(error, TableMapperError):
                raise
            key = (old or new or ())[:2]
            raise CorruptStore(f"the row with the key {key} can not be read: {error}; run check()") from error

    def _update(self, kept: Maintenance, old: Row | None, new: Row | None) -> None:
        if kept.read is None or (old is not None and new is not None and kept.read(old) == kept.read(new)):
            return
        for index in kept.indexes:
            before = index.entries(old) if old is not None else ()
            after = index.entries(new) if new is not None else ()
            if before != after:
                self._index(index, before, after)
        for aggregate in kept.aggregates:
            if old is not None and (part := aggregate.contribution(old)) is not None:
                self.add(aggregate, part, -1)
            if new is not None and (part := aggregate.contribution(new)) is not None:
                self.add(aggregate, part, 1)

    def _index(self, index: IndexMaintenance, before: tuple[IndexRow, ...], after: tuple[IndexRow, ...]) -> None:
        changes = self.indexes.get(index)
        if changes is None:
            changes = self.indexes[index] = IndexChanges([], [], [])
        if not before:
            changes.puts += after
            return
        held = {row[:2]: row for row in before}
        for row in after:
            was = held.pop(row[:2], None)
            if was is None:
                changes.puts.append(row)
            elif was != row:
                changes.rewrites.append(row)
        changes.deletes += held.values()

    def add(self, kept: AggregateMaintenance, part: Contribution, sign: int) -> None:
        partition, row, values = part
        groups = self.groups.get(kept)
        if groups is None:
            groups = self.groups[kept] = {}
        delta = groups.get((partition, row))
        if delta is None:
            delta = groups[partition, row] = kept.aggregate.zero()
        kept.aggregate.add(delta, values, sign)

    @property
    def rows(self) -> int:
        """The number of maintained rows that are written."""
        indexed = sum(len(c.deletes) + len(c.puts) + len(c.rewrites) for c in self.indexes.values())
        return indexed + sum(len(groups) for groups in self.groups.values())


def maintenance(schema: Schema, model: Model) -> Maintenance:
    """Return what is maintained from a model."""
    indexes = tuple(_index_maintenance(model, index) for index in model.indexes)
    aggregates = tuple(_aggregate_maintenance(model, target) for target in schema.aggregates_of(model))
    if not indexes and not aggregates:
        return Maintenance((), (), None)
    names = set[str]().union(*map(_index_reads, model.indexes), *(_aggregate_reads(a.aggregate) for a in aggregates))
    at = sorted(model.position[name] for name in names if name in model.position)
    return Maintenance(indexes, aggregates, itemgetter(*at) if at else lambda row: None)


def index_columns(model: Model, index: IndexModel) -> tuple[FieldModel, ...]:
    """Return the properties that an index row holds; what the entity's key holds needs no second place."""
    return tuple(field for field in index.include if field.name in model.position)


def aggregate_row(model: Model, partition: str, row: str, timestamp: int, state: State) -> Row:
    """Return the row of an aggregate's group."""
    assert model.aggregate is not None
    try:
        values = model.aggregate.shown(state)
    except OverflowError:
        raise _too_long(model, (partition, row)) from None
    shown = dict(zip((field.name for field, _ in model.aggregate.measures), values, strict=True))
    groups: dict[str, Any] = {}
    if any(field.name not in shown for field in model.columns):
        first, second = model.declaration.templates
        groups = first.decode(partition, trusted=True) | second.decode(row, trusted=True)
    stored: list[Any] = []
    for field in model.columns:
        value = shown[field.name] if field.name in shown else groups[field.name]
        if value is not None:
            wide = value.__class__ is int and not -(2**63) <= value < 2**63
            value = str(value) if wide else field.type.store(value)
            if value.__class__ is int and not -(2**63) <= value < 2**63:
                raise _too_long(model, (partition, row))
        stored.append(value)
    return (partition, row, timestamp, *stored)


def _too_long(model: Model, key: tuple[str, str]) -> InvalidEntity:
    what = f"{model.name} {key}"
    return InvalidEntity(
        what, ["the sum of its durations would have more microseconds than 64 bits hold; sum them as int"]
    )


# ---------------------------------------------------------------------------------------------- generated functions


def _index_reads(index: IndexModel) -> set[str]:
    reads = {name.partition(".")[0] for name in index.fields} | {field.name for field in index.include}
    return reads | (set() if index.where is None else {attr.name for attr in attributes(index.where)})


def _aggregate_reads(aggregate: AggregateModel) -> set[str]:
    attrs_read = [*aggregate.groups.values(), *(slot.attr for slot in aggregate.slots if slot.attr is not None)]
    conditions = [aggregate.where, *(slot.where for slot in aggregate.slots)]
    return {attr.name for attr in attrs_read} | {
        attr.name for where in conditions if where is not None for attr in attributes(where)
    }


def _loads(model: Model, wanted: Iterable[str], names: Names) -> Iterator[str]:
    """Yield statements that take fields out of ``row`` as Python values, each into ``f_`` and its name."""
    made = model.declaration
    wanted = sorted(set(wanted))
    partition, row = made.templates
    in_key = [name for name in wanted if name not in model.position]
    for at, template in enumerate((partition, row)):
        here = [n for n in in_key if n in template.lossless_fields and (at == 0 or n not in partition.lossless_fields)]
        if here:
            yield f"    t{at} = row[{at}]"
            yield from (f"    {s}" for s in template.decode_source(f"t{at}", {n: f"f_{n}" for n in here}, names))
    for name in wanted:
        if name in model.position:
            field = made.field(name)
            variable = f"f_{name}"
            yield f"    {variable} = row[{model.position[name]}]"
            load = field.type.load_source(variable, names)
            if load != variable:
                yield f"    if {variable} is not None: {variable} = {load}"


def _index_maintenance(model: Model, index: IndexModel) -> IndexMaintenance:
    names = Names(check_key=check_key, walk=walk, too_many=_too_many)
    label = f"{model.name}.{index.name}"
    lines = [
        "def entries(row):",
        *_loads(model, {n.partition(".")[0] for n in index.fields} | _where_names(index.where), names),
    ]
    if index.where is not None:
        lines.append(f"    if not {python_source(index.where, lambda name: f'f_{name}', names)}: return ()")
    variables = {}
    for at, name in enumerate(index.fields):
        head, _, path = name.partition(".")
        variables[name] = f"f_{head}"
        if path:
            variables[name] = f"x{at}"
            lines.append(f"    x{at} = walk(f_{head}, {tuple(path.split('.'))!r})")
        lines.append(f"    if {variables[name]} is None: return ()")
    kept = "".join(f", row[{model.position[field.name]}]" for field in index_columns(model, index))
    body = []
    if index.fan_out is not None:
        variables[index.fan_out] = "element"
    for variable, template, limit in (
        ("ipk", index.partition, 512),
        ("irk", index.row, MAX_INDEX_ROW_UNITS),
    ):
        body.append(f"{variable} = {template.encode_source(variables, names)}")
        what = f"{label}: its {'partition' if variable == 'ipk' else 'row'} key"
        body.append(f"if len({variable}) > {limit // 2}: check_key({variable}, limit={limit}, what={what!r})")
    if index.fan_out is None:
        lines += [f"    {line}" for line in body]
        lines.append(f"    return ((ipk, irk, row[0], row[1]{kept}),)")
    else:
        lines.append("    found = {}")  # by key: two elements that differ can be one in it, as "A" and "a" folded
        lines.append(f"    for element in dict.fromkeys(f_{index.fan_out}):")
        lines.append("        if element is None: continue")
        lines += [f"        {line}" for line in body]
        lines.append(f"        found[ipk, irk] = (ipk, irk, row[0], row[1]{kept})")
        lines.append(f"    if len(found) > {MAX_FAN_OUT}: too_many({label!r}, len(found))")
        lines.append("    return tuple(found.values())")
    functions = compile_functions(f"{label} rows", "\n".join(lines), names)
    return IndexMaintenance(index, model, functions["entries"])


def _where_names(where: Predicate[Any] | None) -> set[str]:
    return set() if where is None else {attr.name for attr in attributes(where)}


def _too_many(label: str, count: int) -> None:
    raise InvalidEntity(label, [f"{count} elements would have a row each, but an entity may have {MAX_FAN_OUT}"])


def _aggregate_maintenance(model: Model, target: Model) -> AggregateMaintenance:
    aggregate = target.aggregate
    assert aggregate is not None
    names = Names(check_key=check_key)

    def value(attr: Attr[Any, Any]) -> str:
        return attribute_source(attr, f"f_{attr.name}", names)

    lines = ["def contribution(row):", *_loads(model, _aggregate_reads(aggregate), names)]
    if aggregate.where is not None:
        lines.append(f"    if not {python_source(aggregate.where, lambda name: f'f_{name}', names)}: return None")
    variables = {}
    for at, (name, attr) in enumerate(aggregate.groups.items()):
        variables[name] = f"g{at}"
        lines += [f"    g{at} = {value(attr)}", f"    if g{at} is None: return None"]
    for variable, template in zip(("gpk", "grk"), target.declaration.templates, strict=True):
        lines.append(f"    {variable} = {template.encode_source(variables, names)}")
        lines.append(
            f"    if len({variable}) > 256: check_key({variable}, what={target.name + ': the key of a group'!r})"
        )
    values = []
    for at, slot in enumerate(aggregate.slots):
        lines.append(f"    s{at} = {'1' if slot.attr is None else value(slot.attr)}")
        if slot.where is not None:
            lines.append(f"    if not {python_source(slot.where, lambda name: f'f_{name}', names)}: s{at} = None")
        if slot.kind in ("extremes", "ever") and slot.attr is not None:
            sortable = names.name("sortable", _sortable(slot.attr))
            lines.append(f"    if s{at} is not None: s{at} = {sortable}(s{at})")
        values.append(f"s{at}, ")
    lines.append(f"    return gpk, grk, ({''.join(values)})")
    functions = compile_functions(f"{target.name} of {model.name}", "\n".join(lines), names)
    return AggregateMaintenance(target, aggregate, functions["contribution"])


@lru_cache(maxsize=None)
def _sortable_of(kind: Hashable) -> Callable[[Any], Any]:
    return lambda value: store_sortable(cast(Any, kind), value)


def _sortable(attr: Attr[Any, Any]) -> Callable[[Any], Any]:
    return _sortable_of(cast(Any, attr.type))
