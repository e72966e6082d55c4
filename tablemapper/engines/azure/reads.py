"""Queries: the ranges of a plan as requests, their pages one after the other or merged, and the entities of index rows.

Only bounds of keys are sent. All conditions are checked in Python, so that they mean on every engine the same. A
service sorts by UTF-16 units, and Python by code points: bounds are widened where that makes a difference, and each row
is compared with the ranges once more.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Protocol, TypeVar

import attrs

from ...keys.forms import SEPARATOR, raise_last
from ...planning.bounds import Bound
from ...planning.budget import Spending
from ...planning.conditions import AnyPredicate
from ...planning.parts import Place
from ...planning.plan import Plan
from ...planning.projection import Layout
from ...planning.ranges import BoundPlan, KeyRange
from ...planning.walk import Walk
from ...schema.maintenance import IndexMaintenance
from ...schema.model import Model
from ...schema.rows import Row
from ..protocol import Position
from .catalogue import Classes, is_local
from .tables.drive import Work, read, side_by_side
from .tables.names import (
    BASE_PARTITION,
    BASE_ROW,
    BELOW,
    HIDDEN,
    NEXT_ROW,
    OP_UNITS,
    index_key,
    index_prefix,
    outer_key,
    outer_row_of,
    row_key_of,
)
from .tables.rows import read_value
from .tables.service import MAX_PAGE, PARTITION, ROW, Comparison, Entity, Every, Filter, Find, Get, Page, Some

__all__ = ["AzureReads", "Source", "outer_places", "rows_of", "visible"]

T = TypeVar("T")
_TOGETHER = 16  # ranges whose first pages are asked for at once
_JOINED = 100  # entities of index rows
_HIGH = re.compile("[\ud800-\U0010ffff]")
_KEYS = (PARTITION, ROW)


class Source(Protocol):
    """What reads: an engine."""

    timeout: float

    @property
    def classes(self) -> Classes:
        """The classes as they are now."""
        ...

    def run(self, work: Work[T]) -> T:
        """Return what a work returns."""
        ...


# ---------------------------------------------------------------------------------------------- filters


def units(text: str) -> str:
    """Return a text that Python compares as a service compares the given one."""
    if text.isascii() or max(text) < "\U00010000":
        return text
    data = text.encode("utf-16-be", "surrogatepass")
    return "".join([chr(data[at] << 8 | data[at + 1]) for at in range(0, len(data), 2)])


def _ordered(place: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(units, place))


def _all(*parts: Filter) -> Filter | None:
    return None if not parts else parts[0] if len(parts) == 1 else Every(parts)


def _text(name: str, op: Any, value: str) -> Comparison:
    return Comparison(name, op, "String", value)


def visible() -> Filter:
    """Return what holds of the rows that are entities."""
    return Some((_text(ROW, "lt", HIDDEN[0]), _text(ROW, "ge", HIDDEN[1])))


def _within(name: str, low: str, high: str | None) -> Iterator[Comparison]:
    if found := _HIGH.search(low):
        low = low[: found.start()] + "\U00010000"
    if high is not None and (found := _HIGH.search(high)):
        high = raise_last(high[: found.start()])
        high = None if high is not None and _HIGH.search(high) else high
    if low:
        yield _text(name, "ge", low)
    if high is not None:
        yield _text(name, "lt", high)


def _of_bound(name: str, bound: Bound) -> Iterator[Comparison]:
    if bound.point:
        yield _text(name, "eq", bound.lo)
    else:
        yield from _within(name, bound.lo, bound.hi)


def _of_entities(one: KeyRange) -> Iterator[Filter]:
    yield from _of_bound(PARTITION, one.partition)
    yield from _of_bound(ROW, one.row)
    row = one.row
    if not row.point and row.lo < HIDDEN[1] and (row.hi is None or row.hi > HIDDEN[0]):
        yield visible()


def _of_index(one: KeyRange, prefix: str, *, whole: bool) -> Iterator[Filter]:
    """Yield the bounds of index rows, in whose keys more follows what the index itself gives, if they are not whole."""
    yield from _of_bound(PARTITION, one.partition)
    if whole:
        yield from _of_bound(ROW, one.row)
        return
    row = one.row
    low = row.lo + SEPARATOR if row.point else _followed(row.lo)
    high = row.lo + SEPARATOR[0] + '"' if row.point else None if row.hi is None else _followed(row.hi)
    above = raise_last(prefix) if prefix else None
    yield from _within(ROW, prefix + low, above if high is None else prefix + high)


def _followed(edge: str) -> str:
    """Return an edge that lies behind the values that it lay behind, now that a separator follows these."""
    return f'{edge}"' if edge.endswith(" ") else edge


# ---------------------------------------------------------------------------------------------- reading


class AzureReads:
    """How an engine reads the rows of plans; see `protocol.Reads`."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def residual(self, plan: Plan) -> tuple[AnyPredicate, ...]:
        """Return all conditions that the bounds do not say."""
        return plan.filter

    def rows(
        self,
        bound: BoundPlan,
        layout: Layout,
        *,
        after: Position | None = None,
        limit: int | None = None,
        spending: Spending | None = None,
        within: Any = None,
    ) -> Iterator[list[Row]]:
        """Yield rows in chunks, in the order of the plan, those after one position; a page is of one state."""
        return _Reading(self._source, bound, layout, limit).chunks(after, limit, spending)

    def lines(self, bound: BoundPlan, layout: Layout, size: int, limit: int | None) -> None:
        """Return None: no service gives rows as lines."""

    def partition_rows(self, plan: Plan) -> Callable[[str], list[Row] | None]:
        """Return a function that gives None: a partition is read as any range is."""
        return lambda partition: None

    def find(self, bound: BoundPlan, layout: Layout) -> Row | None:
        """Return the first row."""
        return next(chain.from_iterable(self.rows(bound, layout, limit=1)), None)

    def count(self, bound: BoundPlan, *, within: Any = None) -> int | None:
        """Return None: entities are counted by reading them."""
        return None

    def footprint(self, bound: BoundPlan, most: int) -> None:
        """Return None: to count rows costs as much as to read them."""

    def between_bounds(self, bound: BoundPlan, most: int) -> int | None:
        """Return None: to count rows costs as much as to read them."""
        return None

    def divide(self, bound: BoundPlan, parts: int) -> list[Place]:
        """Return places that divide the rows; it reads all keys, a thousand with a request."""
        keys = list(_Reading(self._source, bound, Layout(places=True, fields=()), None).places())
        return list(dict.fromkeys(keys[part * len(keys) // parts] for part in range(1, parts))) if keys else []

    def explain(self, bound: BoundPlan, layout: Layout) -> list[str]:
        """Return how many requests are sent at least."""
        least = len(bound.ranges)
        index = bound.plan.index
        covering = bound.plan.covering and index is not None and is_local(bound.plan.model, index)
        join = "" if index is None or covering else ", and one for each row of the index"
        return [f"{least} request{'' if least == 1 else 's'}, one more for each further {MAX_PAGE:,} rows{join}"]

    def in_one_state(self, read: Callable[[Any], Iterator[T]]) -> Iterator[T]:
        """Yield what a function reads: a page is of one state, and not all of them together."""
        yield from read(None)


_Entry = tuple[Place, Entity]
"""The place of a row on its path, and the row."""


class _Reading:
    """One read of a plan."""

    def __init__(self, source: Source, bound: BoundPlan, layout: Layout, limit: int | None) -> None:
        self._source, self._bound, self._layout, self._plan = source, bound, layout, bound.plan
        self._classes = source.classes
        self._model: Model = bound.plan.model
        self._codec = self._classes.codec(self._model)
        self._walk = Walk.of(bound) if bound.plan.by_partition else None
        index = bound.plan.index
        self._index = None if index is None else self._classes.index(self._model, index.name)
        self._outer = index is not None and not is_local(self._model, index)
        """Whether it is an index in other partitions than its entities'."""
        self._top = None if limit is None or limit + 2 >= MAX_PAGE else limit + 2
        self._covering = bound.plan.covering and not self._outer  # (in other partitions a row may be left over)
        self._select = self._selected()

    def _selected(self) -> tuple[str, ...]:
        fields = self._layout.fields
        if fields is None or self._layout.state or self._index is not None:
            return ()
        columns = [self._model.declaration.field(name) for name in fields if self._model.position[name] != 2]
        if any(field.type.undeclared for field in columns):
            return ()
        return (*_KEYS, *[field.property for field in columns], *([] if self._model.aggregate is None else [BELOW]))

    # -- what is sent

    def _find(self, one: KeyRange, after: Position | None) -> Find:
        index = self._index
        if index is None:
            parts = list(_of_entities(one))
        elif self._outer:
            parts = list(_of_index(one, "", whole=index.model.unique))
        else:
            parts = list(_of_index(one, index_prefix(index.label), whole=False))
        if after is not None and (not one.partition.point or one.partition.lo == after[0]):
            last = self._row_key(after)
            if one.partition.point:
                parts.append(_text(ROW, "gt", last))
            else:
                beyond = Every((_text(PARTITION, "eq", after[0]), _text(ROW, "gt", last)))
                parts.append(Some((_text(PARTITION, "gt", after[0]), beyond)))
        table = index.model.table if index is not None and self._outer else self._model.table
        return Find(table, _all(*parts), self._select, self._top)

    def _row_key(self, place: Position) -> str:
        if self._index is None:
            return str(place[1])
        if self._outer:
            return place[1] if self._index.model.unique else outer_key(place[1], place[2], place[3], "")
        return index_key(self._index.label, place[1], place[3], unique=self._index.model.unique)

    def _pages(self, find: Find, page: Page) -> Iterator[Sequence[Entity]]:
        while True:
            yield page.entities
            if page.after is None:
                return
            page = self._source.run(read(attrs.evolve(find, after=page.after), self._source.timeout))

    def _first(self, finds: Sequence[Find]) -> list[Page]:
        """Return the first pages of some reads, which are asked for side by side."""
        pages: list[Page] = self._source.run(side_by_side([read(find, self._source.timeout) for find in finds]))
        return pages

    # -- what comes

    def places(self) -> Iterator[Place]:
        """Yield the places of all rows."""
        return (place for place, _ in self._entries(None))

    def _entries(self, after: Position | None) -> Iterator[_Entry]:
        """Yield rows in the order of the plan."""
        if not self._plan.merged:
            ranges = list(self._bound.ranges)
            while ranges:
                some, ranges = ranges[:_TOGETHER], ranges[_TOGETHER:]
                finds = [self._find(one, after) for one in some]
                for one, find, page in zip(some, finds, self._first(finds), strict=True):
                    for entry in self._of_range(one, self._pages(find, page)):
                        if after is None or _ordered(entry[0]) > _ordered(after):
                            yield entry
            return
        finds = [self._find(one, None) for one in self._bound.ranges]
        firsts: list[Page] = []
        for at in range(0, len(finds), _TOGETHER):
            firsts += self._first(finds[at : at + _TOGETHER])
        fronts: dict[tuple[str, str], list[Iterator[_Entry]]] = {}
        for one, find, page in zip(self._bound.ranges, finds, firsts, strict=True):
            fronts.setdefault(one.front, []).append(self._of_range(one, self._pages(find, page)))
        last = None if after is None else self._merge_key(self._bound.range_of(after).front, after)
        keyed = [
            ((self._merge_key(front, entry[0]), entry) for entry in chain.from_iterable(several))
            for front, several in fronts.items()
        ]
        for key, entry in heapq.merge(*keyed, key=lambda pair: pair[0]):
            if last is None or key > last:
                yield entry

    def _merge_key(self, front: tuple[str, str], place: Position) -> tuple[Any, ...]:
        rest = place[0][len(front[0]) :], place[1][len(front[1]) :]
        return (*_ordered(rest), *_ordered(place[2:]), _ordered(front), _ordered(place))

    def _of_range(self, one: KeyRange, pages: Iterable[Sequence[Entity]]) -> Iterator[_Entry]:
        low, high = one.entities or (None, None)
        for place, entity in self._placed(chain.from_iterable(pages)):
            if BELOW in entity or not one.partition.holds(place[0]) or not one.row.holds(place[1]):
                continue
            if (low is not None and place[2:] < low) or (high is not None and place[2:] >= high):
                continue
            if self._walk is not None and not self._walk.holds(place[0]):
                continue
            if self._index is None and not self._classes.claims(self._model, *place):
                continue
            yield place, entity

    def _placed(self, entities: Iterable[Entity]) -> Iterator[_Entry]:
        """Yield rows with their places, of rows of one place the last."""
        last: _Entry | None = None
        for entity in entities:
            for place in self._places(entity):
                if last is not None and last[0] != place:
                    yield last
                last = place, entity
        if last is not None:
            yield last

    def _places(self, entity: Entity) -> Iterator[Place]:
        partition, row = entity[PARTITION], entity[ROW]
        index = self._index
        if index is None:
            yield partition, row
        elif not self._outer:
            base = entity[BASE_ROW]
            yield partition, row_key_of(index.label, row, base, unique=index.model.unique), partition, base
        else:
            yield from outer_places(index, entity)

    # -- what becomes of it

    def chunks(self, after: Position | None, limit: int | None, spending: Spending | None) -> Iterator[list[Row]]:
        """Yield rows as the layout says."""
        entries = self._entries(after)
        size = MAX_PAGE if self._index is None or self._covering else _JOINED
        if limit is not None:
            size = min(size, limit)
        done = 0
        while limit is None or done < limit:
            if spending is not None:
                spending.check_time()
            some = list(islice(entries, size if limit is None else min(size, limit - done)))
            if not some:
                return
            rows = list(self._laid_out(some))
            done += len(rows)
            if rows:
                yield rows

    def _laid_out(self, entries: Sequence[_Entry]) -> Iterator[Row]:
        layout = self._layout
        if self._covering:
            fields = [self._model.declaration.field(name) for name in layout.fields or ()]
            for place, entity in entries:
                yield (*place, *[read_value(field, entity) for field in fields])
            return
        position = self._model.position
        for place, row in self._joined(entries):
            front = place if layout.places else ()
            if layout.fields is None:
                yield (*front, *(row if not layout.state else (*row[:-1], row[-1].state)))
            else:
                state = (row[-1].state,) if layout.state else ()
                yield (*front, *[row[position[name]] for name in layout.fields], *state)

    def _joined(self, entries: Sequence[_Entry]) -> Iterator[tuple[Place, Row]]:
        """Yield entities: those of index rows only if they have these, whatever was written meanwhile."""
        if self._index is None:
            for place, entity in entries:
                yield place, self._codec.row(entity)
            return
        gets = [read(Get(self._model.table, place[2], place[3]), self._source.timeout) for place, _ in entries]
        for (place, _), found in zip(entries, self._source.run(side_by_side(gets)), strict=True):
            if found is None:
                continue
            row = self._codec.row(found)
            if any(entry[:2] == place[:2] for entry in self._index.rows((row,))):
                yield place, row


def outer_places(index: IndexMaintenance, entity: Entity) -> Iterator[Place]:
    """Yield the places of a row of an index in other partitions: two of a unique value that is being passed on."""
    partition, row, base = entity[PARTITION], entity[ROW], entity[BASE_PARTITION]
    if not index.model.unique:
        op = row[-OP_UNITS:]
        yield partition, outer_row_of(row, base, entity[BASE_ROW], op), base, entity[BASE_ROW]
        return
    for name in (BASE_ROW, NEXT_ROW):
        if name in entity:
            yield partition, row, base, entity[name]


def rows_of(source: Source, table: str, *where: Filter) -> Iterator[Entity]:
    """Yield the entities of a table that satisfy a filter."""
    find = Find(table, _all(*where))
    while True:
        page: Page = source.run(read(find, source.timeout))
        yield from page.entities
        if page.after is None:
            return
        find = attrs.evolve(find, after=page.after)
