"""Searches as SELECTs: bounds, conditions and order in SQL, as far as SQL says the same as Python."""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial, wraps
from itertools import chain, islice, starmap
from operator import itemgetter
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import attrs

from ....errors import SchemaMismatch
from ....planning.bounds import Bound
from ....planning.budget import BudgetMeter
from ....planning.conditions import AnyPredicate
from ....planning.cost import ReadEstimate
from ....planning.plan import Plan
from ....planning.projection import RowLayout
from ....planning.query_parts import KeyPosition, QueryPart, narrowed
from ....planning.ranges import BoundPlan
from ....schema.rows import Row, readable
from ...optional_protocols import PartitionReader
from ...protocol import DatabasePlan, Position
from ..driver.driver_errors import NoSuchName
from ..driver.snapshots import Snapshot
from ..file.database import File
from ..sql.select import HALF, Find, Select, Statement
from .catalogue_cache import CatalogueCache

T = TypeVar("T")
P = ParamSpec("P")
_CHUNK = 256
_FOLLOWS = 10  # times that a read follows the catalogue; after that others change it faster than this one reads
_FIRST = 1_536  # rows of the first text: it is short, so that the thread that parses it begins soon
_SAMPLED = 100  # rows whose mean size stands for that of all
_OVERFLOW_STEP = "SEARCH b USING INTEGER PRIMARY KEY"  # of a plan of SQLite


def _retrying(reader: Callable[Concatenate[SqliteReads, P], T]) -> Callable[Concatenate[SqliteReads, P], T]:
    """Read again if the file has other names for what is read by now.

    A snapshot is broken by the first read that fails: `SqliteReads.in_one_state` begins another one.
    """

    @wraps(reader)
    def reading(self: SqliteReads, /, *args: P.args, **options: P.kwargs) -> T:
        try:
            return reader(self, *args, **options)
        except NoSuchName:
            if options.get("within") is not None:
                self.catch_up()
                raise
            return retry_refreshed(self.catch_up, lambda: reader(self, *args, **options))

    return reading


def retry_refreshed(catch_up: Callable[[], None], reader: Callable[[], T]) -> T:
    """Follow the catalogue and read, again as long as others change the names meanwhile."""
    for _ in range(_FOLLOWS):
        catch_up()
        with suppress(NoSuchName):
            return reader()
    return reader()


class SqliteReads:
    """Runs searches over one file; `protocol.Reads` says what each does."""

    def __init__(self, file: File, current: CatalogueCache) -> None:
        self._file = file
        self._current = current
        self.catch_up: Final = current.catch_up

    def select(self, plan: Plan) -> Select:
        """Return a plan as SQL; made once.

        Raises:
            NotReady: what it reads was given up since it was planned.
        """
        select: Select | None = plan.lowered.get(self)
        if select is None or select.sqlite is not self._current.state.sqlite:
            try:
                select = Select(plan, self._current.state.sqlite)
            except SchemaMismatch:  # its version had ended: that may be undone by now
                self.catch_up()
                select = Select(plan, self._current.state.sqlite)
            self._current.check_ready(select.sqlite, plan.model, None if plan.index is None else plan.index.name)
            plan.lowered[self] = select
        return select

    @_retrying
    def rows(
        self,
        bound: BoundPlan,
        layout: RowLayout,
        *,
        after: Position | None = None,
        limit: int | None = None,
        spending: BudgetMeter | None = None,
        within: Snapshot | None = None,
    ) -> Iterator[list[Row]]:
        select = self.select(bound.plan)
        standalone = within is None and spending is None
        if bound.plan.merged:
            merged = partial(select.merged, bound, layout, after, limit, spending)
            return _started(self._merged(bound.plan, merged, within))
        if bound.plan.by_partition:
            statements_of = partial(select.statements, bound, layout, after, limit, spending)
            return _started(self._stream_statements(lambda find: statements_of(find=find), within))
        if standalone and select.few:
            if (few := self._few(select, bound, layout, after, limit)) is not None:
                return iter([few] if few else [])
            select.few = False
        statements = list(select.statements(bound, layout, after, limit, spending))
        if len(statements) != 1:
            return _started(self._stream_statements(lambda _: statements, within))
        sql, args = statements[0]
        if within is not None:
            return within.stream(sql, args)
        stream = self._file.stream(sql, args)
        if not standalone:
            return stream
        rows = next(stream, [])
        select.few = len(rows) < _CHUNK
        return chain([rows] if rows else [], stream)

    @_retrying
    def lines(
        self, bound: BoundPlan, layout: RowLayout, size: int, limit: int | None
    ) -> Iterator[bytes | list[Row]] | None:
        select = self.select(bound.plan)
        if select.few or not select.has_lines(layout):
            return None
        chunks = self._file.in_one_state(partial(self._lines, select, bound, layout, size, limit))
        first = next(chunks, None)
        return iter(()) if first is None else chain([first], chunks)

    def _lines(
        self, select: Select, bound: BoundPlan, layout: RowLayout, size: int, limit: int | None, within: Snapshot
    ) -> Iterator[bytes | list[Row]]:
        width = 2 if bound.plan.index is None else 4
        position: Position | None = None
        surplus = 0  # chunks that came as rows, more than as text
        remaining, at_end = limit, limit == 0
        while not at_end:
            most = size if position is not None else min(size, _FIRST)
            chunk_limit = most if remaining is None else min(most, remaining)
            text_chunk: tuple[bytes | list[Row], int] | None = None
            if surplus < 2:
                text_chunk = _text(within, select.lines(bound, layout, position, chunk_limit), chunk_limit)
                surplus += 1 if text_chunk is None else -1
            chunk, count = text_chunk or _rows(
                within, select.statements(bound, layout, position, chunk_limit), chunk_limit
            )
            if remaining is not None:
                remaining -= count
            at_end = count < chunk_limit or remaining == 0
            select.few = at_end and position is None and count < _CHUNK
            if count:
                position = tuple(
                    json.loads(chunk[chunk.rfind(b"\n") + 1 :])[1:-1] if isinstance(chunk, bytes) else chunk[-1]
                )
                position = position[:width]
                yield chunk

    def _few(
        self, select: Select, bound: BoundPlan, layout: RowLayout, after: Position | None, limit: int | None
    ) -> list[Row] | None:
        """Return all rows, if they are few."""
        most = _CHUNK + 1 if limit is None else min(limit, _CHUNK + 1)
        statements = list(select.statements(bound, layout, after, most))
        if len(statements) != 1:
            return None
        # (What is filtered or sorted may read more than it finds.)
        read_rows = self._file.read if bound.plan.filter or bound.plan.sorted else self._file.read_few
        rows = read_rows(*statements[0])
        return rows if len(rows) <= _CHUNK else None

    def partition_rows(self, plan: Plan, layout: RowLayout) -> PartitionReader:
        statement: tuple[Select, str] | None = None
        read_few, current = self._file.read_few, self._current

        def rows(partition: str, limit: int | None, values: Sequence[Any]) -> list[Row] | None:
            nonlocal statement
            if statement is None or statement[0].sqlite is not current.state.sqlite:
                select = self.select(plan)
                statement = select, select.partition(layout)
            select, sql = statement
            if limit is None or limit > _CHUNK:
                if not select.few:
                    return None
                limit = _CHUNK + 1
            try:
                chunk = read_few(sql, (partition, *select.filter_values(values), limit))
            except NoSuchName:
                return None  # a plan with ranges finds the new name
            return chunk if len(chunk) <= _CHUNK else None

        return rows

    @_retrying
    def find(self, bound: BoundPlan, layout: RowLayout) -> Row | None:
        select = self.select(bound.plan)
        one_by_one = bound.plan.merged or bound.plan.by_partition
        statements = [] if one_by_one else list(select.statements(bound, layout, limit=1))
        if len(statements) != 1:
            return next(chain.from_iterable(self.rows(bound, layout, limit=1)), None)
        return self._file.get(*statements[0])

    def _stream_statements(
        self, statements: Callable[[Find], Iterable[Statement]], within: Snapshot | None
    ) -> Iterator[list[Row]]:
        if within is None:
            yield from self._file.in_one_state(partial(self._stream_statements, statements))
            return
        yield from chain.from_iterable(starmap(within.stream, statements(within.get)))

    def _merged(
        self,
        plan: Plan,
        merged: Callable[[Find], Iterable[tuple[Callable[[Row], tuple[Any, Row]], Iterable[Statement]]]],
        within: Snapshot | None,
    ) -> Iterator[list[Row]]:
        if within is None:
            yield from self._file.in_one_state(partial(self._merged, plan, merged))
            return
        streams = [
            map(with_key, chain.from_iterable(chain.from_iterable(starmap(within.stream, statements))))
            for with_key, statements in merged(within.get)
        ]
        rows = heapq.merge(*streams, reverse=plan.descending)  # (no two keys are equal)
        yield from readable(_chunks(map(itemgetter(1), rows)), str(plan.path))

    @_retrying
    def count(self, bound: BoundPlan, *, within: Snapshot | None = None) -> int | None:
        select = self.select(bound.plan)
        plan = bound.plan
        if select.residual or (plan.distinct and (len(bound.ranges) > 1 or bound.whole is not None)):
            return None
        if within is None and not plan.by_partition:
            statements = list(select.counts(bound))
            if len(statements) == 1:
                return int((self._file.get(*statements[0]) or (0,))[0])
        with self._file.snapshot() if within is None else nullcontext(within) as snapshot:
            counts = [snapshot.get(sql, args) for sql, args in select.counts(bound, find=snapshot.get)]
        return sum(int(row[0]) for row in counts if row is not None)

    @_retrying
    def totals(self, bound: BoundPlan, by: Sequence[str], measured: str | None, *, summed: bool) -> list[Row] | None:
        select = self.select(bound.plan)
        if select.residual or bound.plan.distinct:
            return None
        form = tuple(by), measured, summed
        if form not in select.totals:
            select.totals[form] = select.totals_of(*form)
        if (columns := select.totals[form]) is None:
            return None
        statements = [] if bound.plan.by_partition else list(select.counts(bound, columns=columns))
        if len(statements) == 1:
            rows = self._file.read(*statements[0])
        else:
            with self._file.snapshot() as snapshot:
                selects = select.counts(bound, columns=columns, find=snapshot.get)
                rows = [row for statement in selects for row in snapshot.read(*statement)]
        if any(row[-1] for row in rows):  # (a value of another storage class)
            return None
        if summed:
            return [(*row[:-3], (row[-3] << HALF) + row[-2]) for row in rows]
        return [row[:-1] for row in rows]

    @_retrying
    def between_bounds(self, bound: BoundPlan, most: int) -> int:
        select, count = self.select(bound.plan), 0
        with self._file.snapshot() as snapshot:
            for sql, args in select.counts(bound, filtered=False, most=most, find=snapshot.get):
                count += sum(snapshot.get(sql, args) or ())
                if count >= most:
                    return most
        return count

    @_retrying
    def footprint(self, bound: BoundPlan, most: int) -> ReadEstimate:
        plan, select = bound.plan, self.select(bound.plan)
        rows: list[int] = []
        remaining, size, sampled = most, (0.0, 0.0), 0
        index_filter = tuple(
            [predicate for predicate in plan.filter if all(map(plan.path.holds, predicate.attributes()))]
        )
        joins = plan.index is not None and not plan.covering
        joined_rows: int | None = None
        with self._file.snapshot() as snapshot:
            for sql, args in select.counts(bound, filtered=False, most=most, find=snapshot.get):
                rows.append(min(sum(snapshot.get(sql, args) or ()), remaining) if remaining else 0)
                remaining -= rows[-1]
            for sql, args in select.samples(bound, _SAMPLED):
                number, *sums = snapshot.get(sql, [*args, _SAMPLED - sampled]) or (0, 0, 0)
                sampled += number
                size = size[0] + (sums[0] or 0), size[1] + (sums[1] or 0)
                if sampled == _SAMPLED:
                    break
            if joins and index_filter:
                index_alone = attrs.evolve(plan, filter=index_filter, covering=True, lowered={})
                joined_rows = 0
                for sql, args in self.select(index_alone).counts(bound, most=most, find=snapshot.get):
                    joined_rows += sum(snapshot.get(sql, args) or ())
        of_rows, of_entities = (byte_count / max(sampled, 1) for byte_count in size)
        complete = sum(rows) < most
        joined_rows = 0 if not joins else sum(rows) if joined_rows is None else min(joined_rows, sum(rows))
        return ReadEstimate(tuple(rows), joined_rows, of_rows, of_entities, complete)

    @_retrying
    def divide(self, bound: BoundPlan, parts: int) -> list[KeyPosition]:
        """Return places, in order, that divide the rows between the bounds into parts of about one size, or fewer.

        SQLite counts the rows, and passes over so many from one place to the next.
        """
        select = self.select(bound.plan)
        index = None if bound.plan.index is None else bound.plan.index.name
        places: dict[KeyPosition, None] = {}
        with self._file.snapshot() as snapshot:

            def count(sql: str, args: Sequence[Any]) -> int:
                return int(snapshot.read(f"SELECT count(*) FROM ({sql})", args)[0][0])

            def place_at(of: BoundPlan, offset: int) -> KeyPosition:
                for sql, args in select.keys(of):
                    if rows := snapshot.read(f"{sql} LIMIT 1 OFFSET ?", (*args, offset)):
                        return rows[0]
                    offset -= count(sql, args)
                raise LookupError(offset)

            counts = [count(*statement) for statement in select.keys(bound)]
            total, first = sum(counts), 0
            numbers = deque(dict.fromkeys(part * total // parts for part in range(1, parts)) if total else ())
            for key_range, rows in zip(bound.ranges, counts, strict=True):
                remainder, first_number = attrs.evolve(bound, ranges=(key_range,)), first
                first += rows
                while numbers and numbers[0] < first:
                    place = place_at(remainder, numbers[0] - first_number)
                    remainder, first_number = narrowed(remainder, QueryPart(index, place)), numbers.popleft()
                    places[place] = None
        return list(places)

    @_retrying
    def explain(self, bound: BoundPlan, layout: RowLayout, limit: int | None = None) -> DatabasePlan:
        """Return SQLite's own plan of the first range."""
        select = self.select(bound.plan)
        if bound.plan.by_partition:  # (what is read of each)
            points = [
                attrs.evolve(key_range, partition=Bound(key_range.partition.lo, None, True))
                for key_range in bound.ranges
            ]
            bound = attrs.evolve(bound, ranges=tuple(points))
        for sql, args in select.statements(bound, layout):
            steps = self._file.read(f"EXPLAIN QUERY PLAN {sql}", args)
            # The subselects of large values run for the rows that have some, and say nothing of the query.
            overflow = {parent for _, parent, _, detail in steps if detail.startswith(_OVERFLOW_STEP)}
            return DatabasePlan([str(detail) for at, parent, _, detail in steps if not {at, parent} & overflow])
        return DatabasePlan()

    def ordered(self, key: Sequence[str]) -> Any:
        """Return keys as they are: SQLite sorts them as Python does."""
        return key

    def residual(self, plan: Plan) -> tuple[AnyPredicate, ...]:
        return self.select(plan).residual

    def in_one_state(self, read: Callable[[Any], Iterator[T]]) -> Iterator[T]:
        chunks: Iterator[T] = iter(())

        def start_reading() -> T | None:
            nonlocal chunks
            chunks = self._file.in_one_state(read)
            return next(chunks, None)

        try:
            first = start_reading()
        except NoSuchName:
            first = retry_refreshed(self.catch_up, start_reading)
        if first is not None:
            yield first
            yield from chunks


def _rows(within: Snapshot, statements: Iterator[Statement], limit: int) -> tuple[list[Row], int]:
    """Return at most so many rows, and their number."""
    rows: list[Row] = []
    for sql, args in statements:
        rows += within.read(sql, [*args[:-1], limit - len(rows)])
        if len(rows) == limit:
            break
    return rows, len(rows)


def _text(within: Snapshot, statements: Iterator[Statement], limit: int) -> tuple[bytes, int] | None:
    """Return at most so many rows as lines of JSON, and their number; None if lines do not hold all of them."""
    texts: list[bytes] = []
    count = 0
    for sql, args in statements:
        text, line_count, odd = within.get(sql, [*args[:-1], limit - count]) or (b"", 0, 0)
        if odd:
            return None
        if line_count:
            texts.append(text)
            count += line_count
            if count == limit:
                break
    return b"\n".join(texts), count


def _started(chunks: Iterator[list[Row]]) -> Iterator[list[Row]]:
    """Return chunks of which the first one is read already."""
    first = next(chunks, None)
    return iter(()) if first is None else chain([first], chunks)


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while chunk := list(islice(rows, _CHUNK)):
        yield chunk
