"""Plans: access path, ranges, residual filter, sort."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..entities.key_and_indexes import IndexModel
from ..expressions.tree import Attr, Order, Parameter
from ..keys.composite_times import whole_fields
from ..keys.template import Slot, Template
from ..keys.truncation import Truncation
from ..schema.model import Model
from .bounds import Bound, KeyBounds
from .conditions import AnyPredicate, Comparison

MAX_RANGES = 1000
"""Ranges that one alternative may have."""


@attrs.frozen(eq=False)
class PathBounds:
    """The ranges of one alternative, before values are known."""

    partition: KeyBounds
    row: KeyBounds | None
    """None if the partition is not a point: then all its rows are read."""
    equal: dict[str, Parameter]
    """The fields that have a known text in the slots."""
    among: tuple[tuple[str, tuple[Parameter, ...]], ...]
    """Fields with several values each; there is a range for every combination."""
    spread: tuple[Slot, ...]
    """Slots of the partition with a range for each of their texts: shards, truncated times."""
    compared: dict[str, list[Comparison]]
    windows: tuple[tuple[str, Truncation, type, tuple[Parameter, ...]], ...] = ()
    """Times in one of several buckets: the field, what it is cut to, its type, the values; a range for every bucket."""
    edge: KeyBounds | None = None
    """How a partition at the edge of an interval of times, or of texts, is bounded; None if all of it is read."""

    @property
    def reaches(self) -> tuple[KeyBounds, ...]:
        return tuple([reach for reach in (self.partition, self.row, self.edge) if reach is not None])

    @property
    def fields(self) -> frozenset[str]:
        """The fields that the bounds say something about."""
        timed = {slot.field for slot in self.spread if slot.text.unit}
        return frozenset[str](timed).union(*(reach.fields for reach in self.reaches))

    @property
    def exact(self) -> frozenset[str]:
        """The fields about which they say all."""
        return frozenset[str]().union(*(reach.fields - reach.inexact for reach in self.reaches))

    def text(self, slot: Slot) -> Parameter | None:
        """Return the value that has its text in a slot of every row between the bounds; None if the texts differ."""
        is_fixed = any(exact_slot is slot for reach in self.reaches for exact_slot in reach.exact)
        return self.equal.get(slot.field) if is_fixed else None

    @property
    def alike(self) -> int:
        """The number of slots, the first ones of the path, that have one text in each range."""
        count = 0
        for reach in (self.partition,) if self.row is None else (self.partition, self.row):
            for slot in reach.template.slots:
                if not reach.point and not any(exact_slot is slot for exact_slot in reach.exact):
                    return count
                count += 1
        return count

    def front(
        self, slots: int, partition: Bound, values: Mapping[str, Any], texts: Mapping[int, str] | None
    ) -> tuple[str, str]:
        """Return the prefix of the keys of a range, up to the text after so many slots."""
        row_slots = slots - len(self.partition.template.slots)
        if row_slots < 0:
            return self.partition.front(values, texts, slots), ""
        return partition.lo, "" if self.row is None or not row_slots else self.row.front(values, None, row_slots)

    @property
    def several(self) -> bool:
        """Whether there can be several ranges."""
        return bool(self.among or self.spread or self.windows or self.edge)

    def loose(self, name: str) -> bool:
        """Return whether rows of other values than the fixed ones are between the bounds of a field."""
        return any(reach.range_field == name and reach.loose for reach in self.reaches)

    def unit(self, name: str) -> str:
        """Return the finest unit of a time at whose edges the bounds of it lie; nothing if they do not bound it so."""
        slots = [slot for slot in self.spread if slot.field == name]
        if not all(slot.interval for slot in slots):
            return ""  # (a time of day, of each of which rows of other days are read)
        slots += [b.run[-1] for b in self.reaches if b.range_field == name and isinstance(b.run[-1], Slot)]
        return slots[-1].interval if slots else ""


@attrs.frozen(eq=False)
class AccessPath:
    """An access path: the key (of the entity table), or an index."""

    model: Model
    index: IndexModel | None = None

    def __str__(self) -> str:
        return f"{self.model.name}.{'key' if self.index is None else self.index.name}"

    @property
    def templates(self) -> tuple[Template, Template]:
        if self.index is None:
            return self.model.declaration.templates
        return self.index.partition, self.index.row

    def holds(self, attr: Attr[Any, Any]) -> bool:
        """Return whether an attribute can be had from what the path itself stores, without the entity."""
        if self.index is None:
            return True
        names = {field.name for field in self.index.include}
        names |= whole_fields(self.model.declaration.templates) | whole_fields(self.templates)
        names.discard(self.index.fan_out or "")
        return attr.name in names


@attrs.frozen(eq=False)
class Plan:
    """The plan of the queries of one shape."""

    path: AccessPath
    accesses: tuple[PathBounds, ...]
    """One for each alternative of an *or*. Their ranges may overlap."""
    filter: tuple[AnyPredicate, ...]
    """What the bounds do not say already."""
    descending: bool
    """Whether the path is followed backwards."""
    merged: int
    """How many slots, the first ones of the path, have one text in each range; those with the same texts are read in
    order, side by side with the others, and merged by what follows these slots. 0 if all ranges are read one after the
    other."""
    sort: tuple[Order[Any], ...]
    """What has to be sorted after reading; empty if the path gives the order."""
    distinct: bool
    """Whether an entity can come more than once."""
    covering: bool
    """Whether the entity table is not touched, the path being an index."""
    scan: bool
    """Whether nothing bounds it."""
    reasons: tuple[str, ...] = ()
    """Why the planner did not choose other paths."""
    by_key: bool = False
    """Whether what is read of an index is sorted by the entities' keys."""
    turned: bool = False
    """Whether the rows of each partition are followed the other way than the partitions."""
    edges: tuple[tuple[AnyPredicate, int, str], ...] = ()
    """The filters that the bounds say already if a value begins a bucket: each with the number of that, and the unit."""
    by_partition: bool = False
    """Whether partitions are read one by one: these have rows that are turned, or others between them."""
    lowered: dict[Any, Any] = attrs.field(factory=dict, repr=False)
    """What each engine has made of it, for as long as it lives."""

    @property
    def rows_descending(self) -> bool:
        """Whether the rows of a partition are followed backwards."""
        return self.descending is not self.turned

    @property
    def sorted(self) -> bool:
        """Whether all rows are read before the first one comes."""
        return bool(self.sort) or self.by_key

    @property
    def model(self) -> Model:
        return self.path.model

    @property
    def index(self) -> IndexModel | None:
        return self.path.index

    @property
    def whole_partition(self) -> bool:
        """Whether entities are bounded by their partitions only, and can be several."""
        rows = [access.row for access in self.accesses if access.row is not None]
        return self.index is None and not any(row.fields or row.point for row in rows)

    @property
    def some(self) -> bool:
        """Whether the index holds only entities that satisfy a condition, which the query repeats."""
        return self.index is not None and self.index.where is not None

    @property
    def bound(self) -> frozenset[str]:
        """The fields that the bounds say something about."""
        return frozenset[str]().union(*(access.fields for access in self.accesses))

    @property
    def bound_fields(self) -> int:
        """The number of fields that the bounds say something about."""
        return min((len(access.fields) for access in self.accesses), default=0)
