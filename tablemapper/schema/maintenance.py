"""The one definition of maintenance: what a change of entities does to index rows and aggregates.

``(old rows, new rows) → index rows to delete and put, aggregate deltas``. For each index and each aggregate one
function is generated, a loop over rows of entities: `IndexMaintenance.rows` gives the index rows of entities,
`AggregateMaintenance.collect` adds what they contribute to their groups, or takes it off. Writing, the build of a new
index and the check all use these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import attrs

from ..codegen import Names, compile_functions
from ..entities.declaration import IndexModel
from ..entities.fields import FieldModel
from ..errors import InvalidEntity, TableMapperError
from ..expressions.python_source import python_source, walk
from ..keys.encodings import check_key
from ..limits import MAX_INDEX_ROW_UNITS, MAX_KEY_UNITS
from ..owner_cache import cached_on_owner
from .aggregate_model import AggregateModel, Delta
from .group_rows import Advance, group_rows
from .model import Model, Schema
from .row_source import (
    MAX_FAN_OUT,
    GroupSource,
    RowFields,
    indented,
    key_lines,
    measured_fields,
    row_loop,
    slot_lines,
    too_many,
    where_names,
)
from .rows import Row, unreadable
from .slots import State

T = TypeVar("T")

IndexRow = tuple[Any, ...]
"""``(index partition key, index row key, entity partition key, entity row key, included property, …)``"""
Groups = dict[Any, Delta]
"""What changes in each group, by what entities are grouped by."""


@attrs.define(eq=False)
class IndexChanges:
    """What a transaction does to one index: rows to delete, rows to insert, rows with a changed projection."""

    deletes: list[IndexRow]
    puts: list[IndexRow]
    rewrites: list[IndexRow]


@attrs.frozen(eq=False)
class IndexMaintenance:
    """One index, and the function that gives the rows of entities in it."""

    model: IndexModel
    owner: Model
    rows: Callable[[Iterable[Row]], list[IndexRow]]
    places: tuple[int, ...]
    """Where an entity's row has what the index reads beside the key."""

    @cached_property
    def label(self) -> str:
        """The name that users see: ``Product.by_name``."""
        return f"{self.owner.name}.{self.model.name}"

    def rows_of(self, row: Row | None, model: Model) -> list[IndexRow] | None:
        """Return the rows of one entity, of which there may be none; None if it is damaged, so that nobody knows them.

        Args:
            row: as it is stored; None if it is not there.
            model: its class, with all that is stored of it.
        """
        if row is None:
            return []
        if not model.faulty(row).isdisjoint(self.places):
            return None
        try:
            return self.rows((row,))
        except TableMapperError:
            return None


@attrs.frozen(eq=False)
class AggregateMaintenance:
    """One aggregate, and the function that adds what entities contribute to it."""

    model: Model
    aggregate: AggregateModel
    collect: Callable[[Iterable[Row], Groups, int], None]
    """(entity rows, groups, 1 to add or -1 to take off)"""
    key: Callable[[Any], tuple[str, str]]
    """What entities are grouped by → the partition key and row key of the group; InvalidEntity if it has none."""
    row: Callable[[str, str, int, State], Row]
    """(partition key, row key, timestamp, state) → the row of a group"""
    advance: Advance
    places: tuple[int, ...]
    """Where an entity's row has what the aggregate reads beside the key."""


@attrs.frozen(eq=False)
class Maintenance:
    """Everything that is maintained from one entity class."""

    indexes: tuple[IndexMaintenance, ...]
    aggregates: tuple[AggregateMaintenance, ...]

    @cached_property
    def places(self) -> frozenset[int]:
        """The places of an entity's row that it reads beside the key."""
        of_indexes = [index.places for index in self.indexes]
        return frozenset().union(*of_indexes, *(aggregate.places for aggregate in self.aggregates))

    @cached_property
    def of_indexes(self) -> Maintenance:
        """The part of it that is indexes."""
        return Maintenance(self.indexes, ())

    @cached_property
    def of_aggregates(self) -> Maintenance:
        """The part of it that is aggregates."""
        return Maintenance((), self.aggregates)

    def without(self, faulty: frozenset[int]) -> Maintenance:
        """Return what does not depend on some places of an entity's row."""
        return Maintenance(
            tuple([index for index in self.indexes if faulty.isdisjoint(index.places)]),
            tuple([aggregate for aggregate in self.aggregates if faulty.isdisjoint(aggregate.places)]),
        )

    def only(self, labels: Collection[str]) -> Maintenance:
        """Return some of it, by label: ``Product.by_name``, ``Daily``."""
        return Maintenance(
            tuple([index for index in self.indexes if index.label in labels]),
            tuple([aggregate for aggregate in self.aggregates if aggregate.model.name in labels]),
        )

    def joined(self, parts: Iterable[Maintenance]) -> Maintenance:
        """Return this with some parts."""
        every = (self, *parts)
        return Maintenance(
            tuple([index for part in every for index in part.indexes]),
            tuple([aggregate for part in every for aggregate in part.aggregates]),
        )

    def less(self, parts: Sequence[Maintenance]) -> Maintenance:
        """Return what is in none of some parts."""
        indexes = {index for part in parts for index in part.indexes}
        aggregates = {aggregate for part in parts for aggregate in part.aggregates}
        return Maintenance(
            tuple([index for index in self.indexes if index not in indexes]),
            tuple([aggregate for aggregate in self.aggregates if aggregate not in aggregates]),
        )


@attrs.define(eq=False)
class ChangeSet:
    """What a transaction does to everything that is maintained: collected, then applied once by an engine.

    Each entity may change once in a set.

    Raises:
        InvalidEntity: what an entity would be in an index or an aggregate is not possible.
        CorruptStore: what is stored cannot be read.
    """

    indexes: dict[IndexMaintenance, IndexChanges] = attrs.field(factory=dict)
    groups: dict[AggregateMaintenance, Groups] = attrs.field(factory=dict)

    def added(self, maintenance: Maintenance, rows: Sequence[Row]) -> None:
        """Add entities that come."""
        for index in maintenance.indexes:
            self._index(index).puts.extend(index.rows(rows))
        for aggregate in maintenance.aggregates:
            aggregate.collect(rows, self.groups.setdefault(aggregate, {}), 1)

    def removed(self, maintenance: Maintenance, rows: Sequence[Row]) -> None:
        """Add entities that go."""
        for index in maintenance.indexes:
            self._index(index).deletes.extend(_maintain_stored(index.owner, rows, index.rows))
        for aggregate in maintenance.aggregates:
            _maintain_stored(aggregate.model, rows, aggregate.collect, self.groups.setdefault(aggregate, {}), -1)

    def changed(self, maintenance: Maintenance, pairs: Sequence[tuple[Row, Row]]) -> None:
        """Add entities that change, each as it is and as it will be."""
        for index in maintenance.indexes:
            before, after = _differing(index.places)(pairs)
            if before:
                old, new = _maintain_stored(index.owner, before, index.rows), index.rows(after)
                self._difference(self._index(index), old, new)
        for aggregate in maintenance.aggregates:
            before, after = _differing(aggregate.places)(pairs)
            if before:
                groups = self.groups.setdefault(aggregate, {})
                _maintain_stored(aggregate.model, before, aggregate.collect, groups, -1)
                aggregate.collect(after, groups, 1)

    def _difference(self, changes: IndexChanges, before: list[IndexRow], after: list[IndexRow]) -> None:
        """Compare the rows that some entities have in an index with those that they will have."""
        held = {row[:4]: row for row in before}
        for row in after:
            was = held.pop(row[:4], None)
            if was is None:
                changes.puts.append(row)
            elif was != row:
                changes.rewrites.append(row)
        changes.deletes += held.values()

    def _index(self, index: IndexMaintenance) -> IndexChanges:
        found = self.indexes.get(index)
        if found is None:
            found = self.indexes[index] = IndexChanges([], [], [])
        return found

    @property
    def rows(self) -> int:
        """The number of maintained rows that are written."""
        indexed = sum(len(c.deletes) + len(c.puts) + len(c.rewrites) for c in self.indexes.values())
        return indexed + self.group_count

    @property
    def group_count(self) -> int:
        """The number of groups that change."""
        return sum(map(len, self.groups.values()))


def _maintain_stored(model: Model, rows: Sequence[Row], maintain: Callable[..., T], *arguments: Any) -> T:
    """Call a function of rows as they are stored: what is not possible of them was not written by this library."""
    try:
        return maintain(rows, *arguments)
    except InvalidEntity:
        for row in rows:
            try:
                maintain((row,), *arguments)
            except InvalidEntity as error:
                raise unreadable(model.name, row, error) from error
        raise


def maintenance(schema: Schema, model: Model) -> Maintenance:
    """Return what is maintained from a model."""
    return Maintenance(
        tuple([index_maintenance(model, index) for index in model.indexes]),
        tuple([aggregate_maintenance(model, target) for target in schema.aggregates_of(model)]),
    )


def index_columns(model: Model, index: IndexModel) -> tuple[FieldModel, ...]:
    """Return the properties that an index row holds; what the entity's key holds needs no second place."""
    return tuple([field for field in index.include if field.name in model.position])


# ---------------------------------------------------------------------------------------------- generated functions


@lru_cache(maxsize=None)
def _differing(places: tuple[int, ...]) -> Callable[[Sequence[tuple[Row, Row]]], tuple[list[Row], list[Row]]]:
    """Return the function that gives the old and the new rows of the entities that differ in some places.

    It is compiled at the first update: a store that is opened only to be read needs none.
    """
    differs = " or ".join([f"old[{at}] != new[{at}]" for at in places]) or "False"
    source = [
        "def differing(pairs):",
        "    before = []; after = []",
        "    for old, new in pairs:",
        f"        if {differs}: before.append(old); after.append(new)",
        "    return before, after",
    ]
    return compile_functions("differing", "\n".join(source), {})["differing"]


@cached_on_owner
def index_maintenance(model: Model, index: IndexModel) -> IndexMaintenance:
    names = Names(check_key=check_key, walk=walk, too_many=too_many)
    fields = RowFields(model, names)
    label = f"{model.name}.{index.name}"
    read = {name.partition(".")[0] for name in index.fields} | where_names(index.where)
    texts: dict[str, str] = {}
    for name in index.fields:
        if name != index.fan_out and index.partition.takes_text(name) and index.row.takes_text(name):
            source = fields.text(name)
            if source is not None:
                texts[name] = source
    needed = {name.partition(".")[0] for name in index.fields if name not in texts} | where_names(index.where)
    body = [*fields.values(needed)]
    if index.where is not None:
        body.append(f"if not {python_source(index.where, lambda name: f'f_{name}', names)}: continue")
    sources: dict[str, str] = {}
    for at, name in enumerate(index.fields):
        if name in texts:
            if fields.optional(name):
                body.append(f"if {texts[name]} is None: continue")
            continue
        head, _, path = name.partition(".")
        sources[name] = f"f_{head}"
        if path:
            sources[name] = f"x{at}"
            body.append(f"x{at} = walk(f_{head}, {tuple(path.split('.'))!r})")
            if model.declaration.field(head).type.nested(tuple(path.split("."))).dynamic:
                body.append(f"if x{at}.__class__ is not str: continue")
        if path or fields.optional(head):
            body.append(f"if {sources[name]} is None: continue")
    included = index_columns(model, index)
    cached_on_owner = "".join(f", row[{model.position[field.name]}]" for field in included)
    if index.fan_out is not None:
        sources[index.fan_out] = "element"
    keys = [
        *key_lines("ipk", index.partition, MAX_KEY_UNITS, f"{label}: its partition key", sources, texts, names),
        *key_lines("irk", index.row, MAX_INDEX_ROW_UNITS, f"{label}: its row key", sources, texts, names),
    ]
    if index.fan_out is None:
        body += [*keys, f"add((ipk, irk, row[0], row[1]{cached_on_owner}))"]
    else:
        body += [
            "found = {}",  # by key: two elements that differ can be one in it, as "A" and "a" folded
            f"for element in dict.fromkeys(f_{index.fan_out}):",
            "    if element is None: continue",
            *[f"    {line}" for line in keys],
            f"    found[ipk, irk] = (ipk, irk, row[0], row[1]{cached_on_owner})",
            f"if len(found) > {MAX_FAN_OUT}: too_many({label!r}, len(found))",
            "made += found.values()",
        ]
    function = row_loop(f"{label} rows", "index_rows(rows)", ["made = []; add = made.append"], body, "made", names)
    return IndexMaintenance(index, model, function, fields.places(read | {field.name for field in included}))


@cached_on_owner
def aggregate_maintenance(model: Model, target: Model) -> AggregateMaintenance:
    aggregate = target.aggregate
    assert aggregate is not None
    names = Names(check_key=check_key, walk=walk, too_many=too_many)
    fields = RowFields(model, names)
    templates = target.declaration.templates
    groups = [GroupSource(fields, name, attr, templates) for name, attr in aggregate.groups.items()]
    body = [*fields.values(measured_fields(aggregate).union(*(group.needs for group in groups)))]
    if aggregate.where is not None:
        body.append(f"if not {python_source(aggregate.where, lambda name: f'f_{name}', names)}: continue")
    sources, texts = dict[str, str](), dict[str, str]()
    begin, body = body, []
    for at, group in enumerate(groups):
        if group.elements:
            begin += [
                f"elements = dict.fromkeys({group.source(names)} or ())",
                f"if len(elements) > {MAX_FAN_OUT}: too_many({target.name!r}, len(elements))",
                f"for g{at} in elements:",
            ]
        else:
            body.append(f"g{at} = {group.source(names)}")
        if group.optional:
            body.append(f"if g{at} is None: continue")
        (texts if group.is_text else sources)[group.name] = f"g{at}"
    grouped = "g0" if len(groups) == 1 else f"({''.join(f'g{at}, ' for at in range(len(groups)))})"
    body += [
        f"delta = groups.get({grouped})",
        f"if delta is None: delta = groups[{grouped}] = {aggregate.zero_source(names)}",
        "delta[0] += sign",
    ]
    what = f"{target.name}: the key of a group"
    key = [
        f"{grouped} = group",
        *key_lines("pk", templates[0], MAX_KEY_UNITS, what, sources, texts, names),
        *key_lines("rk", templates[1], MAX_KEY_UNITS, what, sources, texts, names),
        "return pk, rk",
    ]
    for at in range(len(aggregate.slots)):
        body += slot_lines(fields, model, target, at, names)
    several = any(group.elements for group in groups)
    body = [*begin, *(indented(body) if several else body)]
    label = f"{target.name} of {model.name}"
    collect = row_loop(label, "collect(rows, groups, sign)", [], body, "None", names)
    source = "\n".join(["def group_key(group):", *[f"    {line}" for line in key]])
    group_key = compile_functions(f"{label}: keys", source, names)["group_key"]
    read = measured_fields(aggregate) | {one.name for attr in aggregate.groups.values() for one in attr.attributes()}
    return AggregateMaintenance(
        target, aggregate, collect, group_key, *group_rows(target, aggregate), fields.places(read)
    )
