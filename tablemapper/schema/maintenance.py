"""The one definition of maintenance: what a change of entities does to index rows and aggregates.

``(old rows, new rows) → index rows to delete and put, aggregate deltas``. For each index and each aggregate one
function is generated, a loop over rows of entities: `IndexMaintenance.rows` gives the index rows of entities,
`AggregateMaintenance.collect` adds what they contribute to their groups, or takes it off. Writing, the build of a new
index and the check all use these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, TypeVar

import attrs

from ..codegen import Names, compile_functions
from ..entities.fields import FieldModel
from ..entities.key_and_indexes import IndexModel
from ..errors import InvalidEntity, TableMapperError
from ..expressions.arithmetic import Computed
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
from .rows import DAMAGE, FIRST, UNREADABLE, Row, sound_source, unreadable
from .slots import State

T = TypeVar("T")

IndexRow = tuple[Any, ...]
"""``(index partition key, index row key, entity partition key, entity row key, included property, …)``"""
Groups = dict[Any, Delta]
"""What changes in each group, by what entities are grouped by."""


@attrs.define(eq=False)
class IndexChanges:
    """The changes of one index in a transaction: rows to delete, rows to insert, rows with a changed projection."""

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

    keys: tuple[str, ...]
    """The fields that the index takes out of the key."""

    def rows_of(self, row: Row | None, model: Model) -> list[IndexRow]:
        """Return the rows of one entity: none if the index reads a damaged value of it.

        Args:
            row: as it is stored; None if it is not there.
            model: its class, with all that is stored of it.
        """
        if row is None or not model.faulty(row).isdisjoint(self.places):
            return []
        try:
            return self.rows((row,))
        except TableMapperError:
            return []

    def can_hold(self, row: Row) -> bool:
        """Return whether the rows of a stored entity can be made."""
        try:
            self.rows((row,))
        except TableMapperError:
            return False
        return True


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
    keys: tuple[str, ...]
    """The fields that the aggregate takes out of the key."""

    def can_hold(self, row: Row) -> bool:
        """Return whether what a stored entity contributes can be made."""
        groups: Groups = {}
        try:
            self.collect((row,), groups, 1)
            for group in groups:
                self.key(group)
        except UNREADABLE:
            return False
        return True

    @property
    def calculates(self) -> bool:
        """Whether it measures calculations, which values that are whole can be too large for."""
        return any(isinstance(slot.attr, Computed) for slot in self.aggregate.slots)


MaintainedPart: TypeAlias = IndexMaintenance | AggregateMaintenance


@attrs.frozen(eq=False)
class Maintenance:
    """Everything that is maintained from one entity class."""

    indexes: tuple[IndexMaintenance, ...]
    aggregates: tuple[AggregateMaintenance, ...]
    whole: Model
    """The class, with all that is stored of it."""

    @cached_property
    def parts(self) -> tuple[MaintainedPart, ...]:
        """The indexes, then the aggregates."""
        return *self.indexes, *self.aggregates

    @cached_property
    def places(self) -> frozenset[int]:
        """The places of an entity's row that it reads beside the key."""
        of_indexes = [index.places for index in self.indexes]
        return frozenset().union(*of_indexes, *(aggregate.places for aggregate in self.aggregates))

    @cached_property
    def differing(self) -> Callable[[Sequence[tuple[Row, Row]]], list[tuple[list[Row], list[Row]]]]:
        """The function that gives, for each part, the old and the new rows of the entities that differ in what it reads."""
        return _differing(tuple([part.places for part in self.parts]))

    @cached_property
    def of_indexes(self) -> Maintenance:
        """The part of it that is indexes."""
        return attrs.evolve(self, aggregates=())

    @cached_property
    def of_aggregates(self) -> Maintenance:
        """The part of it that is aggregates."""
        return attrs.evolve(self, indexes=())

    @cached_property
    def is_sound(self) -> Callable[[Row], bool]:
        """The function that tells whether all that it reads of an entity's row beside the key is as a write stores it."""
        return sound_test(self.whole, tuple(sorted(self.places)))

    @cached_property
    def is_readable(self) -> Callable[[Row], bool]:
        """The function that tells the same of the key, too."""
        keys = dict.fromkeys([name for part in self.parts for name in part.keys])
        return sound_test(self.whole, tuple(sorted(self.places)), tuple(keys))

    def undamaged(self, row: Row) -> Maintenance:
        """Return what reads no damaged value of an entity's row beside the key."""
        faulty = self.whole.faulty(row)
        return self.where(lambda part: faulty.isdisjoint(part.places))

    def counting(self, row: Row) -> Maintenance:
        """Return what a stored entity counts in: of one that is damaged, what reads no damaged value.

        This is the one rule for damage: a write, a build, a check and a repair ask it, in every engine.
        """
        return self.undamaged(row).where(lambda part: part.can_hold(row))

    def alone(self, part: MaintainedPart) -> Maintenance:
        """Return one part of it."""
        return self.where(lambda other: other is part)

    def where(self, test: Callable[[MaintainedPart], bool]) -> Maintenance:
        """Return the parts that satisfy a test."""
        indexes, aggregates = tuple(filter(test, self.indexes)), tuple(filter(test, self.aggregates))
        return attrs.evolve(self, indexes=indexes, aggregates=aggregates)

    def only(self, labels: Collection[str]) -> Maintenance:
        """Return some of it, by label: ``Product.by_name``, ``Daily``."""
        return self.where(
            lambda part: (part.label if isinstance(part, IndexMaintenance) else part.model.name) in labels
        )

    def joined(self, parts: Iterable[Maintenance]) -> Maintenance:
        """Return this with some parts."""
        operands = (self, *parts)
        return Maintenance(
            tuple([index for part in operands for index in part.indexes]),
            tuple([aggregate for part in operands for aggregate in part.aggregates]),
            self.whole,
        )

    def less(self, parts: Sequence[Maintenance]) -> Maintenance:
        """Return what is in none of some parts."""
        excluded = {maintained for part in parts for maintained in part.parts}
        return self.where(lambda part: part not in excluded)


@attrs.define(eq=False)
class ChangeSet:
    """The changes of all maintained rows in a transaction: collected, then applied once by an engine.

    Each entity may change once in a set. Of what is stored, `Maintenance.counting` says what it counts in.

    Raises:
        InvalidEntity: what an entity would be in an index or an aggregate is not possible.
        CorruptStore: what is stored cannot be read.
    """

    indexes: dict[IndexMaintenance, IndexChanges] = attrs.field(factory=dict)
    groups: dict[AggregateMaintenance, Groups] = attrs.field(factory=dict)

    def built(self, maintenance: Maintenance, rows: Sequence[Row]) -> None:
        """Add entities that are there already, as a build reads them."""
        damaged: list[Row] = []
        if not all(map(maintenance.is_readable, rows)):
            rows, damaged = _divided(maintenance.is_readable, rows)
        self.added(maintenance, rows)
        for row in damaged:
            self.added(maintenance.counting(row), (row,))

    def added(self, maintenance: Maintenance, rows: Sequence[Row]) -> None:
        """Add entities that come."""
        for index in maintenance.indexes:
            self._index(index).puts.extend(index.rows(rows))
        for aggregate in maintenance.aggregates:
            aggregate.collect(rows, self.groups.setdefault(aggregate, {}), 1)

    def removed(self, maintenance: Maintenance, rows: Sequence[Row]) -> None:
        """Add entities that go."""
        if not all(map(maintenance.is_sound, rows)):
            rows, damaged = _divided(maintenance.is_sound, rows)
            for row in damaged:
                self._change_damaged(maintenance, row, None)
        for index in maintenance.indexes:
            self._index(index).deletes.extend(_maintain_stored(index.owner, rows, index.rows))
        for aggregate in maintenance.aggregates:
            _maintain_stored(aggregate.model, rows, aggregate.collect, self.groups.setdefault(aggregate, {}), -1)

    def changed(self, maintenance: Maintenance, pairs: Sequence[tuple[Row, Row]]) -> None:
        """Add entities that change, each as it is and as it will be."""
        changes = maintenance.differing(pairs)
        for old_rows, _ in changes:
            if old_rows:
                break
        else:
            return  # the most frequent case
        is_sound = maintenance.is_sound
        if damaged := [pair for pair in pairs if not is_sound(pair[0])]:
            for pair in damaged:
                self._change_damaged(maintenance, *pair)
            changes = maintenance.differing([pair for pair in pairs if is_sound(pair[0])])
        of_parts = iter(changes)
        for index in maintenance.indexes:
            old_rows, new_rows = next(of_parts)
            if old_rows:
                old, new = _maintain_stored(index.owner, old_rows, index.rows), index.rows(new_rows)
                self._difference(self._index(index), old, new)
        for aggregate in maintenance.aggregates:
            old_rows, new_rows = next(of_parts)
            if old_rows:
                groups = self.groups.setdefault(aggregate, {})
                _maintain_stored(aggregate.model, old_rows, aggregate.collect, groups, -1)
                aggregate.collect(new_rows, groups, 1)

    def _change_damaged(self, maintenance: Maintenance, old: Row, new: Row | None) -> None:
        """Add the change of an entity that is damaged, and may stay so in what is not written."""
        old_maintenance, comes = maintenance.counting(old), () if new is None else (new,)
        new_maintenance = old_maintenance if new is None else maintenance.undamaged(new)
        for index in maintenance.indexes:
            was = index.rows((old,)) if index in old_maintenance.indexes else []
            self._difference(self._index(index), was, index.rows(comes) if index in new_maintenance.indexes else [])
        for aggregate in maintenance.aggregates:
            groups = self.groups.setdefault(aggregate, {})
            if aggregate in old_maintenance.aggregates:
                aggregate.collect((old,), groups, -1)
            if aggregate in new_maintenance.aggregates:
                aggregate.collect(comes, groups, 1)

    def _difference(self, changes: IndexChanges, before: list[IndexRow], after: list[IndexRow]) -> None:
        """Compare the rows that some entities have in an index with those that they will have."""
        old_rows = {row[:4]: row for row in before}
        for row in after:
            was = old_rows.pop(row[:4], None)
            if was is None:
                changes.puts.append(row)
            elif was != row:
                changes.rewrites.append(row)
        changes.deletes += old_rows.values()

    def _index(self, index: IndexMaintenance) -> IndexChanges:
        changes = self.indexes.get(index)
        if changes is None:
            changes = self.indexes[index] = IndexChanges([], [], [])
        return changes

    @property
    def rows(self) -> int:
        """The number of maintained rows that are written."""
        indexed = sum(len(c.deletes) + len(c.puts) + len(c.rewrites) for c in self.indexes.values())
        return indexed + self.group_count

    @property
    def group_count(self) -> int:
        """The number of groups that change."""
        return sum(map(len, self.groups.values()))


def _divided(is_sound: Callable[[T], bool], rows: Sequence[T]) -> tuple[Sequence[T], list[T]]:
    """Return the rows that satisfy a test, and the others."""
    damaged = [row for row in rows if not is_sound(row)]
    return (list(filter(is_sound, rows)) if damaged else rows), damaged


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
        model,
    )


def index_columns(model: Model, index: IndexModel) -> tuple[FieldModel, ...]:
    """Return the properties that an index row holds; what the entity's key holds needs no second place."""
    return tuple([field for field in index.include if field.name in model.position])


# ---------------------------------------------------------------------------------------------- generated functions


_DIFFER = "(a != b or a.__class__ is not b.__class__)"  # (what was 3.0 by damage, and is mended, equals 3)


@lru_cache(maxsize=None)
def _differing(
    parts: tuple[tuple[int, ...], ...],
) -> Callable[[Sequence[tuple[Row, Row]]], list[tuple[list[Row], list[Row]]]]:
    """Return the function that gives the old and the new rows of the entities that differ in some places, for each of these.

    It is compiled at the first update: a store that is opened only to be read needs none.
    """
    source = ["def differing(pairs):", *[f"    b{at} = []; a{at} = []" for at in range(len(parts))]]
    source.append("    for old, new in pairs:")
    for at, places in enumerate(parts):
        differs = (
            " or ".join([f"((a := old[{place}]) is not (b := new[{place}]) and {_DIFFER})" for place in places])
            or "False"
        )
        source.append(f"        if {differs}: b{at}.append(old); a{at}.append(new)")
    source += ["        pass", f"    return [{', '.join([f'(b{at}, a{at})' for at in range(len(parts))])}]"]
    return compile_functions("differing", "\n".join(source), {})["differing"]


@cached_on_owner  # (an engine that divides maintenance by partitions makes the parts of it anew for each write)
def sound_test(model: Model, places: tuple[int, ...], keys: tuple[str, ...] = ()) -> Callable[[Row], bool]:
    """Return the function that tells whether some places of an entity's row are as a write stores them.

    Args:
        keys: fields that the key has to give, too.
    """
    if model.aggregate is not None:
        return lambda row: True
    names = Names(DAMAGE=DAMAGE)
    tests = [sound_source(model.columns[at - FIRST], f"row[{at}]", names) for at in places]
    lines = [f"return {' and '.join(tests) or True}"]
    if keys:
        lines = ["try:", *indented(RowFields(model, names).values(keys)), "except DAMAGE: return False", *lines]
    return compile_functions(f"{model.name} sound", "\n".join(["def sound(row):", *indented(lines)]), names)["sound"]


@cached_on_owner
def written_test(model: Model) -> Callable[[Sequence[Row], int | None], bool]:
    """Return the function that tells whether the rows of entities are as a write stores them, their keys, too.

    Its second argument is the highest timestamp that was given out; None if nobody knows.
    """
    names, declaration = Names(DAMAGE=UNREADABLE), model.declaration
    variables = {name: f"f_{name}" for name in declaration.arguments}
    keys = [template.encode_source(variables, names) for template in declaration.templates]
    tests = [
        *[sound_source(field, f"row[{at}]", names) for at, field in enumerate(model.columns, FIRST)],
        "(last is None or 0 < row[2] <= last)",
    ]
    lines = [
        f"if not ({' and '.join(tests)}): return False",
        *RowFields(model, names).values(declaration.arguments),
        f"if {keys[0]} != row[0] or {keys[1]} != row[1]: return False",
    ]
    source = ["def written(rows, last):", "    try:", "        for row in rows:", *indented(indented(indented(lines)))]
    source += ["    except DAMAGE: return False", "    return True"]
    return compile_functions(f"{model.name} written", "\n".join(source), names)["written"]


@cached_on_owner
def index_maintenance(model: Model, index: IndexModel) -> IndexMaintenance:
    names = Names(check_key=check_key, walk=walk, too_many=too_many)
    fields = RowFields(model, names)
    label = f"{model.name}.{index.name}"
    read_fields = {name.partition(".")[0] for name in index.fields} | where_names(index.where)
    texts: dict[str, str] = {}
    for name in index.fields:
        if name != index.fan_out and index.partition.takes_text(name) and index.row.takes_text(name):
            source = fields.text(name)
            if source is not None:
                texts[name] = source
    decoded_fields = {name.partition(".")[0] for name in index.fields if name not in texts} | where_names(index.where)
    body = [*fields.values(decoded_fields)]
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
    places = fields.places(read_fields | {field.name for field in included})
    return IndexMaintenance(index, model, function, places, fields.keys(decoded_fields))


@cached_on_owner
def aggregate_maintenance(model: Model, target: Model) -> AggregateMaintenance:
    aggregate = target.aggregate
    assert aggregate is not None
    names = Names(check_key=check_key, walk=walk, too_many=too_many)
    fields = RowFields(model, names)
    templates = target.declaration.templates
    groups = [GroupSource(fields, name, attr, templates) for name, attr in aggregate.groups.items()]
    decoded = measured_fields(aggregate).union(*(group.needs for group in groups))
    body = [*fields.values(decoded)]
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
    subject = f"{target.name}: the key of a group"
    key = [
        f"{grouped} = group",
        *key_lines("pk", templates[0], MAX_KEY_UNITS, subject, sources, texts, names),
        *key_lines("rk", templates[1], MAX_KEY_UNITS, subject, sources, texts, names),
        "return pk, rk",
    ]
    for at in range(len(aggregate.slots)):
        body += slot_lines(fields, model, target, at, names)
    has_elements = any(group.elements for group in groups)
    body = [*begin, *(indented(body) if has_elements else body)]
    label = f"{target.name} of {model.name}"
    collect = row_loop(label, "collect(rows, groups, sign)", [], body, "None", names)
    source = "\n".join(["def group_key(group):", *[f"    {line}" for line in key]])
    group_key = compile_functions(f"{label}: keys", source, names)["group_key"]
    read_fields = measured_fields(aggregate) | {
        attribute.name for attr in aggregate.groups.values() for attribute in attr.attributes()
    }
    places, keys = fields.places(read_fields), fields.keys(decoded)
    return AggregateMaintenance(target, aggregate, collect, group_key, *group_rows(target, aggregate), places, keys)
