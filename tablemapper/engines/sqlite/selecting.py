"""Plans as SELECTs: bounds, conditions and order in SQL, as far as SQL says the same as Python."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import attrs

from ...expressions import And, Attr, Compare, Contains, In, IsNull, Not, Or, Predicate, StartsWith
from ...keys import Bound
from ...model import Model, Row
from ...planner import KeyRange, Plan
from ...query import Position
from .files import File
from .operations import Lowered
from .tables import Statements, quoted

__all__ = ["Selecting"]

_CHUNK = 256


@attrs.frozen
class Condition:
    """SQL, with its values."""

    sql: str
    args: tuple[Any, ...] = ()


class Selecting:
    """Runs plans over one file."""

    def __init__(self, file: File, lowered: Lowered) -> None:
        self._file = file
        self._lowered = lowered

    def rows(self, plan: Plan, *, limit: int | None = None) -> Iterator[list[Row]]:
        """Yield rows, in chunks."""
        if plan.merged and len(plan.ranges) > 1:
            return ([row for _, row in chunk] for chunk in self.positioned(plan, after=None, limit=limit))
        selects = list(self._selects(plan, None, limit, with_places=False))
        return self._file.stream(*selects[0]) if len(selects) == 1 else self._one_by_one(selects)

    def _one_by_one(self, selects: list[tuple[str, tuple[Any, ...]]]) -> Iterator[list[Row]]:
        if selects:
            with self._file.snapshot() as snapshot:  # one state for all ranges
                for sql, args in selects:
                    yield from snapshot.stream(sql, args)

    def positioned(
        self, plan: Plan, *, after: Position | None, limit: int | None = None
    ) -> Iterator[list[tuple[Position, Row]]]:
        """Yield rows with their positions, in chunks."""
        selects = list(self._selects(plan, after, limit, with_places=True))
        width = 4 if plan.index is not None else 2
        if not plan.merged or len(selects) < 2:
            for chunk in self._one_by_one(selects):
                yield [(row[:width], row[width:]) for row in chunk]
            return
        with self._file.snapshot() as snapshot:
            streams = [_rows(snapshot.stream(sql, args), width) for sql, args in selects]
            yield from _chunks(heapq.merge(*streams, key=_by_row, reverse=plan.descending))

    def count(self, plan: Plan) -> int | None:
        """Return the number of rows; None if a condition has to be evaluated in Python."""
        if self.residual(plan):
            return None
        total = 0
        with self._file.snapshot() as snapshot:
            for sql, args in self._selects(attrs.evolve(plan, sort=()), None, None, with_places=False):
                found = snapshot.get(f"SELECT count(*) FROM ({sql})", args)
                total += found[0] if found else 0
        return total

    def explain(self, plan: Plan) -> list[str]:
        """Return SQLite's own plan of the first range."""
        for sql, args in self._selects(plan, None, None, with_places=False):
            return [str(row[3]) for row in self._file.read(f"EXPLAIN QUERY PLAN {sql}", args)]
        return []

    def residual(self, plan: Plan) -> tuple[Predicate[Any], ...]:
        """Return the predicates that have to be evaluated in Python."""
        statements = self._lowered.statements[plan.model]
        return tuple(p for p in plan.filter if _lower(p, plan.model, statements) is None)

    def sorts(self, plan: Plan) -> bool:
        """Tell whether SQLite can sort as a plan wants."""
        if self.residual(plan) or len(plan.ranges) != 1:
            return False
        return all(_column(step.attr, plan.model) and _sortable(step.attr) for step in plan.sort)

    def _selects(
        self, plan: Plan, after: Position | None, limit: int | None, *, with_places: bool
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        model = plan.model
        statements = self._lowered.statements[model]
        if plan.index is None:
            source, at = f"{quoted(model.table)} t", "t"
            places = ['t."PartitionKey"', 't."RowKey"']
        else:
            source = (
                f"{quoted(plan.index.table)} i CROSS JOIN {quoted(model.table)} t "
                'ON t."PartitionKey" = i."_pk" AND t."RowKey" = i."_rk"'
            )
            at = "i"
            places = ['i."PartitionKey"', 'i."RowKey"', 'i."_pk"', 'i."_rk"']
        shared = []
        if plan.index is None and (kind := statements.type_filter(model, "t")):
            shared.append(Condition(kind))
        shared += [c for p in plan.filter if (c := _lower(p, model, statements)) is not None]
        direction = " DESC" if plan.descending else ""
        order = [f"{place}{direction}" for place in _path_order(places, plan)]
        if plan.sort and self.sorts(plan):
            steps = [
                f"{statements.value(model, model.declaration.field(s.attr.name), 't')}{' DESC' if s.descending else ''}"
                for s in plan.sort
            ]
            order = [*steps, 't."PartitionKey"', 't."RowKey"']
        columns = ", ".join([*(places if with_places else ()), statements.select_list])
        ranges = reversed(plan.ranges) if plan.descending and not plan.merged else plan.ranges
        for one in ranges:
            conditions = [*_bounds(one, at, plan, after), *shared]
            if after is not None:
                if not plan.merged and _behind(one, after, plan):
                    continue
                conditions.append(_after(places, plan, after))
            where = " AND ".join(c.sql for c in conditions) or "TRUE"
            args = tuple(value for c in conditions for value in c.args)
            tail = "" if limit is None else f" LIMIT {limit}"
            yield f"SELECT {columns} FROM {source} WHERE {where} ORDER BY {', '.join(order)}{tail}", args


def _path_order(places: list[str], plan: Plan) -> list[str]:
    """Return the columns of a path's order; of merged partitions the row key first."""
    return [places[1], places[0], *places[2:]] if plan.merged else places


def _by_row(one: tuple[Position, Row]) -> Position:
    position = one[0]
    return (position[1], position[0], *position[2:])


def _rows(stream: Iterator[list[Row]], width: int) -> Iterator[tuple[Position, Row]]:
    for chunk in stream:
        for row in chunk:
            yield row[:width], row[width:]


def _chunks(rows: Iterator[tuple[Position, Row]]) -> Iterator[list[tuple[Position, Row]]]:
    chunk = []
    for one in rows:
        chunk.append(one)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _bounds(one: KeyRange, at: str, plan: Plan, after: Position | None) -> Iterator[Condition]:
    yield from _bound(one.partition, f'{at}."PartitionKey"')
    if one.partition.point:
        yield from _bound(one.row, f'{at}."RowKey"')
        if after is not None and (plan.merged or after[0] == one.partition.lo):
            # Narrows the search; what stands at the same row key is left to the exact condition.
            yield Condition(f'{at}."RowKey" {"<=" if plan.descending else ">="} ?', (after[1],))


def _bound(bound: Bound, column: str) -> Iterator[Condition]:
    if bound.point:
        yield Condition(f"{column} = ?", (bound.lo,))
        return
    if bound.lo is not None:
        yield Condition(f"{column} >= ?", (bound.lo,))
    if bound.hi is not None:
        yield Condition(f"{column} < ?", (bound.hi,))


def _behind(one: KeyRange, after: Position, plan: Plan) -> bool:
    """Tell whether a range was read already."""
    if not one.partition.point or one.partition.lo is None:
        return False
    place: str = after[0]
    return one.partition.lo > place if plan.descending else one.partition.lo < place


def _after(places: list[str], plan: Plan, after: Position) -> Condition:
    columns = _path_order(places, plan)
    values = _by_row((after, ())) if plan.merged else after
    op = "<" if plan.descending else ">"
    return Condition(f"({', '.join(columns)}) {op} ({', '.join('?' * len(columns))})", tuple(values))


# ---------------------------------------------------------------------------------------------- predicates


def _column(attr: Attr[Any, Any], model: Model) -> bool:
    """Tell whether an attribute is a column whose stored form compares as the values do."""
    if attr.path or attr.part or attr.name not in model.position:
        return False
    field = model.declaration.field(attr.name)
    wide = field.measure is not None and field.type.kind is int
    return field.type.kind is not object and not wide


def _sortable(attr: Attr[Any, Any]) -> bool:
    return bool(attr.type.name != "Decimal")


def _lower(predicate: Predicate[Any], model: Model, statements: Statements) -> Condition | None:
    """Return a predicate as SQL; None if SQL would not say exactly the same."""

    def value(attr: Attr[Any, Any]) -> str | None:
        return statements.value(model, model.declaration.field(attr.name), "t") if _column(attr, model) else None

    match predicate:
        case And(parts=parts) | Or(parts=parts):
            lowered = [_lower(part, model, statements) for part in parts]
            known = [part for part in lowered if part is not None]
            if len(known) < len(lowered):
                return None
            if not known:
                return Condition("TRUE" if isinstance(predicate, And) else "FALSE")
            return _joined(known, " AND " if isinstance(predicate, And) else " OR ")
        case Not(part=part):
            inner = _lower(part, model, statements)
            return None if inner is None else Condition(f"({inner.sql}) IS NOT TRUE", inner.args)
        case IsNull(attr=attr):
            column = value(attr)
            return None if column is None else Condition(f"({column}) IS NULL")
        case Compare(attr=attr, op=op, value=Attr() as other):
            left, right = value(attr), value(other)
            if left is None or right is None or not _sortable(attr) or not _sortable(other):
                return None
            return Condition(f"({left}) {_OPS[op]} ({right})")
        case Compare(attr=attr, op=op, value=constant):
            column = value(attr)
            if column is None or not _sortable(attr):
                return None
            return Condition(f"({column}) {_OPS[op]} ?", (attr.type.store(constant),))
        case In(attr=attr, values=values):
            column = value(attr)
            if column is None or not _sortable(attr) or len(values) > 1000:
                return None
            return Condition(
                f"({column}) IN ({', '.join('?' * len(values))})", tuple(attr.type.store(v) for v in values)
            )
        case StartsWith(attr=attr, text=text):
            column = value(attr)
            if column is None or "\0" in text:
                return None
            return Condition(f"substr({column}, 1, {len(text)}) = ?", (text,))
        case Contains(attr=attr, value=part) if attr.type.element is None:
            column = value(attr)
            return None if column is None else Condition(f"instr({column}, ?) > 0", (part,))
    return None


_OPS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def _joined(parts: list[Condition], word: str) -> Condition:
    """Return conditions joined in a balanced tree: SQLite refuses an expression more than 1,000 deep."""
    while len(parts) > 1:
        pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
        parts = [
            Condition("(" + word.join(p.sql for p in pair) + ")", tuple(a for p in pair for a in p.args))
            for pair in pairs
        ]
    return Condition(f"({parts[0].sql})", parts[0].args)
