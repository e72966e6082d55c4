"""Queries: the ranges of a plan as requests, their pages one after the other or merged, and the entities of index rows.

Rows come in the order of the service, which is that of UTF-16 units. What no path gives in its order is read whole, and
sorted in memory, where the query allows that.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Protocol, TypeVar

import attrs

from ....entities.key_and_indexes import IndexModel
from ....errors import QueryStopped
from ....planning.bounds import Bound
from ....planning.budget import BudgetMeter
from ....planning.conditions import AnyPredicate
from ....planning.plan import Plan
from ....planning.projection import RowLayout
from ....planning.query_parts import KeyPosition
from ....planning.ranges import BoundPlan, KeyRange
from ....planning.skip_scan import SkipScan
from ....schema.maintenance import IndexMaintenance, index_columns
from ....schema.model import Model
from ....schema.rows import Row
from ...protocol import DatabasePlan, Position
from ..tables.driver import Effects, delay, pause, read, side_by_side
from ..tables.entity_json import EntityCodec
from ..tables.reserved_names import (
    BASE_PARTITION,
    BASE_ROW,
    HIDDEN_PREFIX,
    NEXT_ROW,
    STATE,
    index_key,
    index_prefix,
    outer_key,
    row_key_of,
)
from ..tables.service import (
    MAX_PAGE,
    PARTITION,
    ROW,
    AllOf,
    AnyOf,
    Entity,
    EntityPage,
    ErrorResponse,
    Filter,
    GetEntity,
    NoResponse,
    QueryEntities,
    filter_text,
)
from . import filters
from .large_values import continued, read_with_pieces
from .memory_sort import sort_rank, sort_values
from .rollup_fields import RollupField, completed
from .scans import Runs, ascending, is_index_row, outer_places

T = TypeVar("T")
_PARALLEL = 16  # ranges whose first pages are asked for at once
_BATCH = 100  # entities of index rows
MOST_SORTED = 100_000  # rows that are sorted in memory
_KEYS = (PARTITION, ROW)
_NOT_UNDERSTOOD = (400, 414, 431, 500)
"""What a service answers to a filter that it does not understand, or that is too long; the emulator to some numbers."""
_TRANSIENT = 2  # times that a service fails in a row before its conditions count as not understood
_log = logging.getLogger("tablemapper.azure")


class ReadSchema(Protocol):
    """The classes as the catalogue has them."""

    def codec(self, model: Model) -> EntityCodec:
        """Return what reads and writes the entities of a class."""
        ...

    def index(self, model: Model, name: str) -> IndexMaintenance:
        """Return the maintenance of an index."""
        ...

    def keepers(self, model: Model) -> Sequence[RollupField]:
        """Return where the maintained fields of a class are."""
        ...

    def is_of(self, model: Model, entity: Entity) -> bool:
        """Return whether a row is an entity of a class, or a group of an aggregate that is there for readers."""
        ...

    def entities(self, model: Model, page: Sequence[Entity]) -> Iterable[tuple[KeyPosition, Entity]]:
        """Return those rows of a page for which `is_of` holds, with their keys."""
        ...


class AzureSession(Runs, Protocol):
    """A source of rows: an engine."""

    @property
    def classes(self) -> ReadSchema:
        """The classes as they are now."""
        ...

    def is_local(self, model: Model, index: IndexModel) -> bool:
        """Return whether the rows of an index lie in the partitions of the entities."""
        ...

    def begin(self, work: Effects[T]) -> Callable[[], T]:
        """Begin a work; return what waits for what it returns."""
        ...


class AzureReads:
    """The reads of an engine, by plans; see `protocol.Reads`."""

    def __init__(self, source: AzureSession) -> None:
        self._source = source

    def residual(self, plan: Plan) -> tuple[AnyPredicate, ...]:
        """Return all conditions that the bounds do not say."""
        return plan.filter

    def rows(
        self,
        bound: BoundPlan,
        layout: RowLayout,
        *,
        after: Position | None = None,
        limit: int | None = None,
        spending: BudgetMeter | None = None,
        within: Any = None,
    ) -> Iterator[list[Row]]:
        """Yield rows in chunks, in the order of the plan, those after one position; a page is of one state."""
        return _Reading(self._source, bound, layout, limit, spending).chunks(after)

    def find(self, bound: BoundPlan, layout: RowLayout) -> Row | None:
        return next(chain.from_iterable(self.rows(bound, layout, limit=1)), None)

    def ordered(self, key: Sequence[str]) -> Any:
        return tuple(map(filters.units, key))

    def divide(self, bound: BoundPlan, parts: int) -> list[KeyPosition]:
        """Return places that divide the rows; it reads all keys, a thousand with a request."""
        reading = _Reading(self._source, bound, RowLayout(places=True, fields=()), None, None)
        keys = sorted(place for _, place, _ in reading.entries(None))
        return list(dict.fromkeys(keys[part * len(keys) // parts] for part in range(1, parts))) if keys else []

    def explain(self, bound: BoundPlan, layout: RowLayout, limit: int | None = None) -> DatabasePlan:
        """Return how many requests are sent at least, what that is consistent with, and the first filter."""
        return _Reading(self._source, bound, layout, limit, None).explained()

    def in_one_state(self, read: Callable[[Any], Iterator[T]]) -> Iterator[T]:
        """Yield what a function reads: a page is of one state, and not all of them together."""
        yield from read(None)


_Entry = tuple[Any, KeyPosition, Entity]
"""What a row is merged by, its place on its path, and the row."""
_Result = tuple[Any, KeyPosition, Any]
"""The same of a row of an index with its entity, as a row of the model."""


class _Reading:
    """One read of a plan."""

    def __init__(
        self, source: AzureSession, bound: BoundPlan, layout: RowLayout, limit: int | None, spending: BudgetMeter | None
    ) -> None:
        self._source, self._bound, self._layout, self._plan = source, bound, layout, bound.plan
        self._limit, self._spending = limit, spending
        self._classes = source.classes
        plan, self._model = bound.plan, bound.plan.model
        self._codec = self._classes.codec(self._model)
        self._walk = SkipScan.of(bound) if plan.by_partition else None
        index = plan.index
        self._index = None if index is None else self._classes.index(self._model, index.name)
        self._remote = index is not None and not source.is_local(self._model, index)
        """Whether it is an index in other partitions than its entities'."""
        self._exact = self._remote and index is not None and index.unique
        """Whether its row keys are what the index gives, and nothing follows."""
        self._prefix = "" if self._index is None or self._remote else index_prefix(self._index.label)
        self._in_memory = plan.sorted or plan.descending or plan.turned
        self._high = any(
            filters.has_high(one.partition.lo, one.partition.hi, one.row.lo, one.row.hi) for one in bound.ranges
        )
        self._merged = bool(plan.merged) or (self._high and len(bound.ranges) > 1)
        few = limit is not None and limit + 2 < MAX_PAGE and not self._in_memory
        self._top = limit + 2 if few and limit is not None else None
        self._keepers = self._classes.keepers(self._model) if self._shows_kept() else ()
        self._unselected: list[str] = []
        """The selected properties that may have pieces which are not."""
        self._select = self._selected()
        self._pushed = () if spending is not None else tuple(self._conditions())
        self._split = index is None and any(source.is_local(self._model, path) for path in self._model.indexes)
        """Whether entities are read beside the many rows of an index: those before it, and those behind."""

    def _shows_kept(self) -> bool:
        """Return whether maintained fields are given, or looked at."""
        fields, rollups = self._layout.fields, {field.name for field in self._model.maintained}
        if self._plan.covering:
            return False
        return fields is None or not rollups.isdisjoint([*fields, *[step.attr.name for step in self._plan.sort]])

    def _selected(self) -> tuple[str, ...]:
        fields, model = self._layout.fields, self._model
        if self._index is not None:
            places = (*_KEYS, BASE_PARTITION, BASE_ROW, NEXT_ROW) if self._remote else (*_KEYS, BASE_ROW)
            held = [] if self._exact or not self._plan.covering else index_columns(model, self._index.model)
            self._unselected = [self._codec.name(field) for field in held if field.type.spillable]
            return (*places, *map(self._codec.name, held))
        if fields is None or self._layout.state:
            return ()
        names = [*fields, *[step.attr.name for step in self._plan.sort]]
        stored = [model.declaration.field(name) for name in names if model.position.get(name, 2) != 2]
        if any(field.type.undeclared for field in stored):
            return ()
        below = [] if model.aggregate is None else [HIDDEN_PREFIX, STATE]
        stored = [field for field in stored if not field.maintained]
        self._unselected = [self._codec.name(field) for field in stored if field.type.spillable and not field.large]
        return tuple(dict.fromkeys([*_KEYS, *chain.from_iterable(map(self._codec.selected, stored)), *below]))

    def _conditions(self) -> Iterable[Filter]:
        plan, among = self._plan, None
        if self._index is not None:
            among = (
                [] if self._exact else [self._codec.name(col) for col in index_columns(self._model, self._index.model)]
            )
        return filters.conditions(plan.filter, self._model, self._bound.values, among, self._codec)

    # -- what is sent

    def _finds(
        self, span: KeyRange, after: Position | None = None, since: Position | None = None
    ) -> Iterator[QueryEntities]:
        """Yield the requests for a range, from one place on, or behind one."""
        index = self._index
        if index is not None:
            table = index.model.table if self._remote else self._model.table
            parts = filters.in_index(span, self._prefix, is_exact=self._exact)
            yield self._find(table, span, parts, after, since)
            return
        rows: list[tuple[Bound, list[Filter]]] = [(span.row, [])]
        if filters.spans_hidden(span.row):
            if not filters.begins_low(self._model.declaration.templates[1]):
                rows = [(filters.above_hidden(span.row), [])]
            elif self._split and span.partition.point:
                rows = [(filters.below_hidden(span.row), []), (filters.above_hidden(span.row), [])]
            else:
                rows = [(span.row, [filters.visible()])]
        for row, extra in rows:
            yield self._find(
                self._model.table, span, [*filters.in_partitions(span.partition, row), *extra], after, since
            )

    def _find(
        self, table: str, span: KeyRange, parts: list[Filter], after: Position | None, since: Position | None
    ) -> QueryEntities:
        place = after if since is None else since
        if place is not None and (not span.partition.point or span.partition.lo == place[0]):
            beyond: Filter = filters.text(ROW, "gt" if since is None else "ge", self._row_key(place))
            if not span.partition.point:
                beyond = AnyOf(
                    (filters.text(PARTITION, "gt", place[0]), AllOf((filters.text(PARTITION, "eq", place[0]), beyond)))
                )
            parts.append(beyond)
        return QueryEntities(table, filters.all_of(parts), self._select, self._top)

    def _row_key(self, place: Sequence[Any]) -> str:
        index = self._index
        if index is None or self._exact:
            return str(place[1])
        if self._remote:
            return outer_key(place[1], place[2], place[3], "")
        return index_key(index.label, place[1], place[3], unique=index.model.unique)

    def _ask(self, find: QueryEntities) -> Effects[EntityPage]:
        """Read a page, with as many conditions as the service understands."""
        timeout = self._source.timeout
        pushed = filters.narrowed(find, self._pushed) if self._pushed else find
        for attempt in range(_TRANSIENT if pushed is not find else 0):
            try:
                return (yield from read(pushed, timeout, _NOT_UNDERSTOOD))  # type: ignore[no-any-return]
            except (NoResponse, ErrorResponse) as error:
                if error.status not in _NOT_UNDERSTOOD:
                    raise
                if isinstance(error, NoResponse) and attempt < _TRANSIENT - 1:
                    yield pause(timeout, attempt, error) or delay(0)
                    continue
                self._pushed = ()
                _log.warning("%s: the service does not understand its conditions: %s", self._plan.path, error)
                break
        return (yield from read(find, timeout))  # type: ignore[no-any-return]

    def _pages(self, find: QueryEntities, first: Callable[[], EntityPage]) -> Iterator[Sequence[Entity]]:
        """Yield page after page; from the second on, the next one is fetched while one is looked at."""
        page, is_ahead = first(), False
        while page.after is not None:
            find = attrs.evolve(find, after=page.after)
            following = self._source.begin(self._ask(find)) if is_ahead else partial(self._source.run, self._ask(find))
            yield self._completed(page.entities)
            page, is_ahead = following(), self._top is None
        yield self._completed(page.entities)

    def _completed(self, entities: Sequence[Entity]) -> Sequence[Entity]:
        """Return entities with their maintained fields, and with the pieces of values that are larger than declared."""
        if self._unselected and (places := continued(entities, self._unselected)):
            table = self._index.model.table if self._index is not None and self._remote else self._model.table
            entities = self._source.run(read_with_pieces(table, entities, places, self._source.timeout))
        if not self._keepers or self._index is not None:
            return entities
        return self._source.run(completed(self._keepers, entities, self._source.timeout))

    def _start(self, finds: Sequence[QueryEntities]) -> list[Callable[[], EntityPage]]:
        """Begin some reads side by side."""
        if len(finds) == 1:
            return [partial(self._source.run, self._ask(finds[0]))]
        return [self._source.begin(self._ask(find)) for find in finds]

    # -- what comes

    def entries(self, after: Position | None) -> Iterator[_Entry]:
        """Yield rows in the order of the path."""
        return self._side_by_side(after) if self._merged else self._one_by_one(after)

    def _one_by_one(self, after: Position | None) -> Iterator[_Entry]:
        """Yield the rows of ranges, which are disjoint, and in the order of the service."""
        ranges = list(self._bound.ranges)
        if after is not None:
            starts_before = [span.start[:2] <= after[:2] for span in ranges]
            at = max(sum(starts_before) - 1, 0)
            is_passed = ranges and ranges[at].partition.point and ranges[at].partition.lo < after[0]
            ranges = ranges[at + 1 if is_passed else at :]
        finds = [(span, find) for at, span in enumerate(ranges) for find in self._finds(span, None if at else after)]
        width = _PARALLEL if self._limit is None else 1
        while finds:
            batch, finds = finds[:width], finds[width:]
            begun_reads = self._start([find for _, find in batch])
            for (span, find), first in zip(batch, begun_reads, strict=True):
                for entry in self._of_range(span, self._pages(find, first)):
                    if entry[1] != after:  # (of which there may be another row)
                        yield entry
            width = min(2 * width, _PARALLEL)

    def _side_by_side(self, after: Position | None) -> Iterator[_Entry]:
        """Yield the rows of ranges merged."""
        last_rank = None if after is None else self._place_rank(self._front_of(after), after)
        fronts: dict[tuple[str, str], list[tuple[KeyRange, QueryEntities]]] = {}
        for span in self._bound.ranges:
            front, since = self._front(span), None
            if after is not None:  # (the same place, behind what its own keys begin with)
                old_front = self._front_of(after)
                since = (
                    *[mine + key[len(old) :] for mine, key, old in zip(front, after, old_front, strict=False)],
                    *after[2:],
                )
            # (Ranges of one front follow each other, but where the service sorts their edges in another order.)
            group = fronts.setdefault(("", str(len(fronts))) if self._high or not self._plan.merged else front, [])
            group += [(span, find) for find in self._finds(span, since=since)]
        reads = iter(self._start([find for finds in fronts.values() for _, find in finds]))
        streams = []
        for finds in fronts.values():
            pages = [(span, self._pages(find, next(reads))) for span, find in finds]
            streams.append(chain.from_iterable([self._of_range(span, chunk, ranked=True) for span, chunk in pages]))
        for entry in heapq.merge(*streams, key=lambda entry: entry[0]):
            if last_rank is None or entry[0] > last_rank:
                yield entry

    def _front(self, span: KeyRange) -> tuple[str, str]:
        return span.front if self._plan.merged else ("", "")

    def _front_of(self, place: Position) -> tuple[str, str]:
        return self._front(self._bound.range_of(place)) if self._plan.merged else ("", "")

    def _place_rank(self, front: tuple[str, str], place: Sequence[str]) -> tuple[Any, ...]:
        """Return what a row is merged by: its keys without what those of its range begin with, then that."""
        partition, row = filters.units(place[0][len(front[0]) :]), filters.units(place[1][len(front[1]) :])
        if len(place) == 2:
            return partition, row, front
        tail = "".join(place[2:]) if self._exact else self._row_key(place)[len(self._prefix) + len(place[1]) :]
        return partition, row, filters.units(tail), front

    def _of_range(self, span: KeyRange, pages: Iterable[Sequence[Entity]], *, ranked: bool = False) -> Iterator[_Entry]:
        low, high = span.entities or (None, None)
        ranked |= self._in_memory
        front = self._front(span)
        exact = self._index is None and not self._high
        for place, entity in self._placed(ascending(pages)):
            if not exact and not (span.partition.holds(place[0]) and span.row.holds(place[1])):
                continue
            if (low is not None and place[2:] < low) or (high is not None and place[2:] >= high):
                continue
            if self._walk is not None and not self._walk.holds(place[0]):
                continue
            yield self._place_rank(front, place) if ranked else None, place, entity

    def _placed(self, pages: Iterable[Sequence[Entity]]) -> Iterator[tuple[KeyPosition, Entity]]:
        """Yield rows with their places, without those of other programs; of rows of an index with one place the last."""
        if self._index is None:
            for page in pages:
                yield from self._classes.entities(self._model, page)
            return
        last_row: tuple[KeyPosition, Entity] | None = None
        for entity in filter(partial(is_index_row, remote=self._remote), chain.from_iterable(pages)):
            for place in self._places(self._index, entity):
                if last_row is not None and last_row[0] != place:
                    yield last_row
                last_row = place, entity
        if last_row is not None:
            yield last_row

    def _places(self, index: IndexMaintenance, entity: Entity) -> Iterable[KeyPosition]:
        if self._remote:
            return outer_places(index, entity)
        partition, base = entity[PARTITION], entity[BASE_ROW]
        return [(partition, row_key_of(index.label, entity[ROW], base, unique=index.model.unique), partition, base)]

    # -- what becomes of it

    def chunks(self, after: Position | None) -> Iterator[list[Row]]:
        """Yield rows as the layout says."""
        limit = self._limit
        entries = self._sorted(after) if self._in_memory else self._joins(self.entries(after))
        size = MAX_PAGE if self._index is None or self._plan.covering else _BATCH
        row_count = 0
        while limit is None or row_count < limit:
            if self._spending is not None:
                self._spending.check_time()
            rows = [
                self._laid_out(place, source, self._layout)
                for _, place, source in islice(entries, size if limit is None else min(size, limit - row_count))
            ]
            if not rows:
                return
            row_count += len(rows)
            yield rows

    def _joins(self, entries: Iterator[_Entry]) -> Iterator[_Result]:
        """Yield what was found: rows of an index that is not enough with their entities, only if these have them still."""
        if self._index is None or self._plan.covering:
            yield from entries
            return
        index, size = self._index, _BATCH if self._limit is None else min(_BATCH, max(self._limit, 1))
        while batch := list(islice(entries, size)):
            timeout = self._source.timeout
            gets = [read(GetEntity(self._model.table, place[2], place[3]), timeout) for _, place, _ in batch]
            pairs = zip(batch, self._source.run(side_by_side(gets)), strict=True)
            is_of = partial(self._classes.is_of, self._model)
            valid = [(entry, entity) for entry, entity in pairs if entity is not None and is_of(entity)]
            full = self._source.run(completed(self._keepers, [entity for _, entity in valid], timeout))
            for ((rank, place, _), _), entity in zip(valid, full, strict=True):
                row = self._codec.row(entity)
                if any(entry[:2] == place[:2] for entry in index.rows_of(row, self._codec.model)):
                    yield rank, place, row

    def _laid_out(self, place: KeyPosition, source: Any, layout: RowLayout) -> Row:
        if self._plan.covering:
            field, key = self._model.declaration.field, (source[PARTITION], source.get(BASE_ROW, source[ROW]))
            values = [(name, self._codec.value(field(name), source)) for name in layout.fields or ()]
            return (*place, *[self._codec.known_value(name, value, *key) for name, value in values])
        row = self._codec.row(source) if self._index is None else source
        if layout.fields is None:
            row = self._codec.known(row)
            row = (*row[:-1], row[-1].state) if layout.state else row
            return (*place, *row) if layout.places else row
        position = self._model.position
        state = (row[-1].state,) if layout.state else ()
        values = [self._codec.known_value(name, row[position[name]], row[0], row[1]) for name in layout.fields]
        return (*(place if layout.places else ()), *values, *state)

    # -- orders that no path gives

    def _sorted(self, after: Position | None) -> Iterator[_Result]:
        """Yield all that is found in the order of the plan, with the values that it is sorted by in front of the place."""
        plan, spending = self._plan, self._spending
        values = sort_values(plan, lambda pair, layout: self._laid_out(pair[0], pair[1], layout))
        rows: list[_Result] = []
        for rank, place, source in self._joins(self.entries(None)):
            if spending is not None and plan.sorted:  # (else rows are counted where they are handed out)
                spending.row()
            if len(rows) == MOST_SORTED:
                raise QueryStopped(
                    f"{plan.path}: more than {MOST_SORTED:,} rows would be sorted in memory; add conditions that a key or an "
                    "index bounds, or declare an index in this order",
                    examined=MOST_SORTED,
                )
            position = (*values((place, source)), *place)
            rows.append((sort_rank(plan, position, rank), position, source))
        rows.sort(key=lambda ranked: ranked[0])
        last_rank = None
        if after is not None:
            last_rank = sort_rank(plan, after, None if plan.sorted else self._place_rank(self._front_of(after), after))
        return (ranked for ranked in rows if last_rank is None or last_rank < ranked[0])

    # -- what is said of it

    def explained(self) -> DatabasePlan:
        """Return how many requests are sent at least, and what their answers are consistent with."""
        finds = [find for span in self._bound.ranges for find in self._finds(span)]
        count = len(finds)
        reads_entities = self._index is not None and not self._plan.covering
        lines = [
            f"{count} request{'' if count == 1 else 's'}, one more for each further {MAX_PAGE:,} rows"
            + (", and one for each row of the index" if reads_entities else "")
        ]
        if self._keepers:
            fields = ", ".join([field.name for field in self._model.maintained])
            lines.append(
                f"{fields}: a request more for each, in each partition; they follow what they are maintained from"
            )
        eventual = self._remote and self._plan.covering
        if eventual:
            lines.append("eventual: the index may be older than its entities, which are not read")
        elif self._remote:
            lines.append("an entity that is being written may be missing; none is given that does not match")
        if self._in_memory:
            lines.append(f"all rows are read, at most {MOST_SORTED:,}, and put in order in memory")
        if finds and (where := filters.narrowed(finds[0], self._pushed).where) is not None:
            lines.append(f"$filter={filter_text(where)}")
        if self._limit is not None and not self._merged and not self._in_memory:
            count = min(count, 1)  # (the first range may have as many)
        return DatabasePlan(lines, count + len(self._keepers), eventual=eventual)
