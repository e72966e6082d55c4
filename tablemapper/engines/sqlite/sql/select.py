"""A plan as SELECTs: bounds, conditions and order in SQL, as far as SQL gives the same results as Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import attrs

from ....expressions.sortable import store_sortable
from ....expressions.tree import TIMESTAMP_NAME, Attr, Order, Predicate
from ....limits import Edm
from ....planning.bounds import Bound
from ....planning.budget import BudgetMeter
from ....planning.plan import Plan
from ....planning.projection import RowLayout, layout_of, tuples
from ....planning.ranges import BoundPlan, KeyRange
from ....planning.skip_scan import Descending, SkipScan
from ....schema.rows import DAMAGE, Row, unreadable
from ....values.scalars import SCALARS
from ...protocol import Position
from ..driver.functions import NAME, SqlFunction, json_keeps_reals
from .ddl import quoted
from .filters import Condition, lower, lower_key, value_sql
from .keyset import KeysetCondition, SortStep, after_arguments, after_sql, rest_of
from .ranges import alike, all_of, bounds_sql, partitions_sql
from .schema import SqliteSchema
from .sizes import entity_bytes, index_bytes
from .statements import Statements

_ROOM = (
    30_000  # characters of all conditions: SQLite compares each with each, and cannot be interrupted; see `residual`
)
_LINE = 1_300  # bytes: 6,144 lines of them are less than the longest text that a connection takes

HALF = 32  # bits of a value of 64, as they are summed
_STORAGE: dict[Edm, str] = {
    "String": "text", "DateTime": "text", "Guid": "text", "Int32": "integer", "Int64": "integer", "Boolean": "integer", "Double": "real", "Binary": "blob"
}  # fmt: skip

Statement: TypeAlias = tuple[str, Sequence[Any]]
"""SQL with its arguments."""
Find: TypeAlias = Callable[[str, Sequence[Any]], Row | None]
"""Returns the first row of a statement."""


class Select:
    """A plan as SQL, for any values; the text is written once for each form of bounds.

    Attributes:
        sqlite: the schema that it was written for.
        residual: the conditions of the plan that SQL does not check, or not exactly.
        totals: what `counts` selects for totals by group, once that was needed.
        few: a hint, whatever the other says: try to read all rows at once, as the last run found few.
    """

    def __init__(self, plan: Plan, sqlite: SqliteSchema) -> None:
        self.plan = plan
        self.sqlite = sqlite
        model, index = plan.model, plan.index
        self._statements: Statements = sqlite.statements[model].reading
        self._index = table = None if index is None else sqlite.indexes[index]
        self._calls: list[SqlFunction] = []
        if table is None:
            self._at = "t"
            self._source = f"{quoted(self._statements.table.name)} t{self._statements.big_join}"
            self._places = ['t."PartitionKey"', 't."RowKey"']
        else:
            self._at = "i"
            self._source = f"{quoted(table.name)} i"
            if not plan.covering:
                self._source += (
                    f' CROSS JOIN {quoted(self._statements.table.name)} t ON t."PartitionKey" = i."_pk" AND t."RowKey" = i."_rk"'
                    f"{self._statements.big_join}"
                )
            self._places = ['i."PartitionKey"', 'i."RowKey"', 'i."_pk"', 'i."_rk"']
        pk, rk = self._places[-2:]
        self._read_places = [*self._places[:-2], self._statements.checked_key(pk, pk, rk), rk]
        if index is not None and plan.covering and (check := self._statements.index_check(index)) is not None:
            self._calls.append(check)
            self._read_places[0] = check.sql(*self._places)
        self._type_filter = self._statements.type_filter if index is None else ""
        keys = list(zip(self._places, plan.path.templates, strict=False))
        lowering: list[tuple[Predicate[Any], Condition | None]] = []
        room = _ROOM
        for predicate in plan.filter:
            layout = lower(predicate, model, self._column) or lower_key(predicate, keys)
            if layout is not None and len(layout.sql) > room:
                layout = None
            room -= 0 if layout is None else len(layout.sql)
            lowering.append((predicate, layout))
        self._filter = [layout for _, layout in lowering if layout is not None]
        self.residual: tuple[Predicate[Any], ...] = tuple(
            p for p, layout in lowering if layout is None or not layout.exact
        )
        self._sort = [self._step(step) for step in plan.sort]
        self._texts: dict[Any, str] = {}
        self.totals: dict[Any, tuple[str, str, str] | None] = {}
        self.few = False

    def has_lines(self, layout: RowLayout) -> bool:
        """Return whether `lines` can read a layout: JSON knows no bytes."""
        plan = self.plan
        if (
            plan.sorted
            or plan.merged
            or plan.by_partition
            or plan.distinct
            or not layout.places
            or layout.fields is None
            or layout.state
        ):
            return False
        kinds = {plan.model.declaration.field(name).type.kind for name in layout.fields}
        return bytes not in kinds and (float not in kinds or json_keeps_reals())

    # ------------------------------------------------------------------------------------------ columns

    def _column(self, name: str) -> str | None:
        """Return the SQL of a field's property: from the index, where that holds it, or the entity table."""
        model = self.plan.model
        if name not in model.position:
            return None
        if name == TIMESTAMP_NAME:
            return None if self.plan.covering else 't."Timestamp"'
        field = model.declaration.field(name)
        if self._index is not None and (index_column := self._index.columns.get(field.property)) is not None:
            return f"i.{quoted(index_column)}"
        return None if self.plan.covering else self._statements.value(field, "t")

    def _in_place(self, name: str) -> str | None:
        """Return the SQL of a field's property in its row, NULL if the value is large and stands beside."""
        column = self._column(name)
        if name == TIMESTAMP_NAME:
            return column
        field = self.plan.model.declaration.field(name)
        can_be_moved = column is not None and column == self._statements.value(field, "t") and not field.maintained
        return self._statements.in_place(field, "t") if can_be_moved else column

    def _step(self, step: Order[Any]) -> SortStep:
        sql = None if step.wide else value_sql(step.attr, self.plan.model, self._column)
        return SortStep(self._computed(step.attr, wide=step.wide) if sql is None else sql, step.descending)

    def _computed(self, attr: Attr[Any, Any], *, wide: bool) -> str:
        """Return SQL that calls Python for the sortable form of an attribute."""
        plan = self.plan
        layout = layout_of(plan.path, [attr], covering=plan.covering)
        values_of = tuples(plan.path, layout, [attr], covering=plan.covering)
        kind = SCALARS[Decimal] if wide else attr.type

        def sortable(*row: Any) -> Any:
            value = values_of((row,), ())[0][0]
            try:
                return None if value is None else store_sortable(kind, Decimal(value) if wide else value)
            except DAMAGE as error:
                raise unreadable(str(plan.path), None, error) from error

        call = SqlFunction(sortable)
        self._calls.append(call)
        return call.sql(*self._places, *(self._column(name) or "NULL" for name in layout.fields or ()))

    def _columns(self, layout: RowLayout) -> str:
        columns = list(self._read_places) if layout.places else []
        if layout.fields is None:
            columns.append(self._statements.checked_key(self._statements.select_list, 't."PartitionKey"', 't."RowKey"'))
        else:
            key = (self._places[-2], self._places[-1])  # the entity's
            column_of = self._in_place if layout.line else self._column
            columns += [self._statements.checked(name, column_of(name) or "NULL", key) for name in layout.fields]
        if layout.line:
            aside = (
                't."_big"'
                if any(self._column(name) != self._in_place(name) for name in layout.fields or ())
                else "NULL"
            )
            return f"json_array(0, {', '.join(columns)}, 0) AS line, {aside} AS aside"
        if layout.state:
            columns.append('t."_state"')
        return ", ".join(columns)

    # ------------------------------------------------------------------------------------------ statements

    def statements(
        self,
        bound: BoundPlan,
        layout: RowLayout,
        after: Position | None = None,
        limit: int | None = None,
        spending: BudgetMeter | None = None,
        *,
        inclusive: bool = False,
        find: Find | None = None,
    ) -> Iterator[Statement]:
        """Yield a SELECT with its arguments for each range, or one for all if SQLite returns their rows in order.

        Args:
            bound: the plan, with ranges that are read one after the other.
            inclusive: whether a row at the position is wanted, too.
            find: reads the place of the next partition, if partitions are read one by one.
        """
        plan = self.plan
        filtered = spending is None
        if spending is None:
            filter = self.filter_values(bound.values)
        else:
            # Rows that are sorted are counted by SQLite, others where they are handed out.
            call = SqlFunction(spending.row if plan.sorted else spending.check_time)
            spending.calls.append(call)
            filter = [call.number]
            if not plan.sorted and spending.budget.examined is not None:
                limit = spending.budget.examined + 1
        tail = [] if limit is None else [limit]
        if plan.sorted:
            if bound.ranges:
                yield self._sorted(bound, layout, after, filter, tail, filtered)
            return
        if after is None and not plan.merged and not plan.turned and alike(bound.ranges):
            bounds, args = partitions_sql(bound.ranges, self._at)
            yield self._text(layout, bounds, "", limit is None, filtered), [*args, *filter, *tail]
            return
        ranges: Iterable[KeyRange] = reversed(bound.ranges) if plan.descending else bound.ranges
        if plan.by_partition:
            ranges = self._one_by_one(bound, find, after, spending)
        for key_range in ranges:
            keyset = (
                KeysetCondition(key_range)
                if after is None
                else rest_of(key_range, after, plan, self._places, inclusive)
            )
            if keyset is None:
                continue
            bounds, args = bounds_sql(keyset.range, self._at)
            text = self._text(layout, bounds, keyset.condition, limit is None, filtered)
            yield text, [*args, *keyset.args, *filter, *tail]

    def _one_by_one(
        self, bound: BoundPlan, find: Find | None, after: Position | None = None, spending: BudgetMeter | None = None
    ) -> Iterator[KeyRange]:
        """Yield the ranges in the order in which they are read, partition by partition if there is a way to find one.

        Only those of partitions come that have rows after a position.
        """
        plan, ranges = self.plan, list(bound.ranges)
        if plan.rows_descending:
            ranges.reverse()
        if plan.turned:  # (those of one partition stay as they are)
            ranges.sort(key=lambda key_range: key_range.partition.lo, reverse=plan.descending)
        if find is None:
            yield from ranges
            return
        walk = SkipScan.of(bound)

        def next_one(partitions: Bound) -> str | None:
            if spending is not None:
                spending.check_time()
            row = find(*self.next_partition(partitions))
            if row is not None and not isinstance(row[0], str):
                raise unreadable(str(plan.path), None, f"the partition key {row[0]!r} is no text")
            return None if row is None else row[0]

        for key_range in ranges:
            partitions = key_range.partition
            if partitions.point:
                if walk.holds(partitions.lo):  # (a part may begin or end with one of others)
                    yield key_range
                continue
            if after is not None and plan.descending:
                end_key = after[0] + " "
                partitions = Bound(partitions.lo, end_key if partitions.hi is None else min(partitions.hi, end_key))
            elif after is not None:
                partitions = Bound(max(partitions.lo, after[0]), partitions.hi)
            for key in walk.partitions(partitions, next_one):
                yield attrs.evolve(key_range, partition=Bound(key, None, True))

    def next_partition(self, partitions: Bound) -> Statement:
        """Return a SELECT of the key of the first partition in a bound, or of the last one if that is the direction."""
        bounds, args = bounds_sql(KeyRange(partitions), self._at)
        table, (place, *_) = self._keyed
        direction = " DESC" if self.plan.descending else ""
        return (
            f"SELECT {place} FROM {quoted(table)} {self._at} WHERE {bounds or 'TRUE'} ORDER BY {place}{direction} LIMIT 1",
            args,
        )

    def lines(self, bound: BoundPlan, layout: RowLayout, after: Position | None, limit: int) -> Iterator[Statement]:
        """Yield SELECTs as `statements` does, each of one row: the rows as lines of JSON, and two numbers.

        The first one is how many rows there are. The second one is how many of them such lines do not hold, as a value
        is moved aside or long.

        The lines come in the order of the SELECT within, which SQLite reads row by row as it has a limit. An ORDER BY
        of group_concat would promise that, and sort them once more, which takes 1.7 times as long. Bytes are damage
        here, and SQLite says so unless they are JSONB: it takes 1.24 times as long to look at each value for that, too.
        """
        for sql, args in self.statements(bound, attrs.evolve(layout, line=True), after, limit):
            odd = f"aside IS NOT NULL OR octet_length(line) > {_LINE}"
            text = f"CAST(group_concat(line, char(10)) FILTER (WHERE octet_length(line) <= {_LINE}) AS BLOB)"
            yield f"SELECT {text}, count(*), total({odd}) FROM ({sql})", args

    def keys(self, bound: BoundPlan) -> Iterator[Statement]:
        """Yield a SELECT of the places of all rows between the bounds, in order, for each range."""
        table, places = self._keyed
        for key_range in bound.ranges:
            bounds, args = bounds_sql(key_range, self._at)
            where = all_of([condition for condition in (bounds, self._type_filter) if condition])
            columns = ", ".join(places)
            yield f"SELECT {columns} FROM {quoted(table)} {self._at} WHERE {where} ORDER BY {columns}", args

    @property
    def _keyed(self) -> tuple[str, list[str]]:
        """The table that is read, and the columns of its key."""
        if self._index is None:
            return self._statements.table.name, self._places
        return self._index.name, self._places[:2] if self._index.index.unique else self._places

    def _text(self, *form: Any) -> str:
        if (text := self._texts.get(form)) is None:
            text = self._texts[form] = self._ranged(*form)
        return text

    def filter_values(self, values: Sequence[Any]) -> list[Any]:
        """Return the arguments of the conditions that SQL checks."""
        return [value for condition in self._filter for value in condition.values(values)]

    def partition(self, layout: RowLayout) -> str:
        """Return the SELECT of one whole partition; its arguments are the partition key, `filter_values` and a limit."""
        return self._ranged(layout, f'{self._at}."PartitionKey" = ?', "", endless=False, filtered=True)

    def _ranged(
        self,
        layout: RowLayout,
        bounds: str,
        beyond: str,
        endless: bool,  # noqa: FBT001
        filtered: bool,  # noqa: FBT001
    ) -> str:
        """Return the SELECT of one range; ``beyond`` says that a row comes after a position."""
        plan = self.plan
        conditions = [condition for condition in (bounds, beyond) if condition]
        down = [plan.descending, *[plan.rows_descending] * (len(self._places) - 1)]
        order = ", ".join(place + " DESC" * way for place, way in zip(self._places, down, strict=True))
        return (
            f"SELECT {self._columns(layout)} FROM {self._source} WHERE {self._where(conditions, filtered)} "
            f"ORDER BY {order}{'' if endless else ' LIMIT ?'}"
        )

    def _where(self, conditions: list[str], filtered: bool) -> str:  # noqa: FBT001
        terms = [*conditions, *([self._type_filter] if self._type_filter else [])]
        terms += [condition.sql for condition in self._filter] if filtered else [f'{NAME}(?, {self._at}."RowKey")']
        return all_of(terms)

    def merged(
        self,
        bound: BoundPlan,
        layout: RowLayout,
        after: Position | None,
        limit: int | None,
        spending: BudgetMeter | None,
        find: Find,
    ) -> Iterator[tuple[Callable[[Row], tuple[Any, Row]], Iterator[Statement]]]:
        """Yield the SELECTs that are read one after the other, and what puts the sort key of a merge before their rows.

        It is the place of a row without what the keys of the range begin with, then that. So the position after which
        to begin is the same in all ranges, behind what their own keys begin with.
        """
        width = 2 if self.plan.index is None else 4
        position_front = ("", "") if after is None else bound.range_of(after).front
        for front, ranges in bound.fronts().items():
            place, inclusive = after, False
            if after is not None:
                place = (
                    *(
                        own_front + text[len(old) :]
                        for own_front, text, old in zip(front, after, position_front, strict=False)
                    ),
                    *after[2:],
                )
                inclusive = front < position_front if self.plan.rows_descending else front > position_front
            statements = self.statements(ranges, layout, place, limit, spending, inclusive=inclusive, find=find)
            with_key = _with_turned_key if self.plan.turned else _with_merge_key
            yield partial(with_key, front, len(front[0]), len(front[1]), width), statements

    # ------------------------------------------------------------------------------------------ sorting

    def _sorted(
        self,
        bound: BoundPlan,
        layout: RowLayout,
        after: Position | None,
        filter: list[Any],
        tail: list[Any],
        filtered: bool,  # noqa: FBT001
    ) -> Statement:
        """Return one SELECT for all ranges, sorted by SQLite."""
        assert layout.places
        forms: dict[str, list[list[Any]]] = {}
        for key_range in bound.ranges:
            bounds, args = bounds_sql(key_range, self._at)
            forms.setdefault(bounds, []).append(args)
        if len(bound.ranges) == 1:
            arguments = [*next(iter(forms.values()))[0], *filter]
        else:
            arguments = [value for ranges in forms.values() for value in (json.dumps(ranges), *filter)]
        missing = None if after is None else tuple(value is None for value in after)
        form = layout, tuple(forms), len(bound.ranges) == 1, missing, not tail, filtered
        if (text := self._texts.get(form)) is None:
            text = self._texts[form] = self._sorted_text(*form)
        return text, [*arguments, *(() if after is None else after_arguments(after, len(self._sort))), *tail]

    def _sorted_text(
        self,
        layout: RowLayout,
        forms: tuple[str, ...],
        single: bool,  # noqa: FBT001
        missing: tuple[bool, ...] | None,
        endless: bool,  # noqa: FBT001
        filtered: bool,  # noqa: FBT001
    ) -> str:
        """Return the sorted SELECT over one range, or over a JSON list of ranges for each form of bounds."""
        steps = self._sort
        sort_columns = [f"{step.sql} AS s{at}" for at, step in enumerate(steps)]
        sort_columns += [f"{place} AS p{at}" for at, place in enumerate(self._read_places)]
        row_columns = self._columns(attrs.evolve(layout, places=False))
        columns = ", ".join([*sort_columns, row_columns] if row_columns else sort_columns)
        selects = []
        for bounds in forms:
            source = self._source
            if not single:  # the argument is a JSON list of ranges, each a list of bounds
                source = f"json_each(?) r CROSS JOIN {source}"
                for at in range(bounds.count("?")):
                    bounds = bounds.replace("?", f"(r.value->>{at})", 1)
            selects.append(f"SELECT {columns} FROM {source} WHERE {self._where([bounds] if bounds else [], filtered)}")
        direction = " DESC" if self.plan.descending else ""
        ties = [f"p{len(self._places) - 2}", f"p{len(self._places) - 1}"]
        order = [f"s{at}{' DESC' if step.descending else ''}" for at, step in enumerate(steps)]
        where = "" if missing is None else f" WHERE {after_sql(steps, missing, ties, '<' if direction else '>')}"
        return (
            f"SELECT * FROM ({' UNION ALL '.join(selects)}){where} "
            f"ORDER BY {', '.join([*order, *(tie + direction for tie in ties)])}{'' if endless else ' LIMIT ?'}"
        )

    # ------------------------------------------------------------------------------------------ counting

    def totals_of(
        self,
        by: Sequence[str],
        measured: str | None,
        summed: bool,  # noqa: FBT001
    ) -> tuple[str, str, str] | None:
        """Return what `counts` selects for totals by group, then what of each row, and the rest; None if SQL cannot.

        The last value of a row is how many of its entities have a value of another storage class, or miss one. A sum
        has two parts, of the upper and the lower half of each value: neither can be too large.
        """
        names = list(dict.fromkeys(by if measured is None else [*by, measured]))
        key = (self._places[-2], self._places[-1])
        row_columns, odd, groups = [], [], ", ".join(f"c{at}" for at, name in enumerate(names) if name in by)
        for at, name in enumerate(names):
            column, field = self._column(name), self.plan.model.declaration.field(name)
            if column is None or name == TIMESTAMP_NAME or field.wide:
                return None
            if self._statements.checked(name, column, key) != column:
                return None
            row_columns.append(f"{column} AS c{at}")
            missing = ", 'null'" if field.nullable else ""
            odd.append(f"typeof(c{at}) NOT IN ('{_STORAGE[field.type.edm]}'{missing})")
        totals = "NULL, NULL"
        if measured is not None:
            value = f"c{names.index(measured)}"
            halves = f"ifnull(sum({value} >> {HALF}), 0), ifnull(sum({value} & {(1 << HALF) - 1}), 0)"
            totals = f"count({value}), {halves}" if summed else f"min({value}), max({value})"
        total_columns = ", ".join(
            [
                *[f"c{at}" for at in range(len(names))],
                "count(*)",
                totals,
                f"total({' OR '.join(odd) or 'FALSE'})",
            ]
        )
        return total_columns, ", ".join(row_columns) or "1", f"GROUP BY {groups}" if groups else "HAVING count(*)"

    def counts(
        self,
        bound: BoundPlan,
        *,
        filtered: bool = True,
        most: int | None = None,
        find: Find | None = None,
        columns: tuple[str, str, str] | None = None,
    ) -> Iterator[Statement]:
        """Yield a SELECT of the number of rows, or of their totals, for each range; arguments as `statements` has them."""
        filter = self.filter_values(bound.values) if filtered else []
        passes = self.plan.accesses[0].partition.rest is not None
        for key_range in self._one_by_one(bound, find) if passes else bound.ranges:
            bounds, args = bounds_sql(key_range, self._at)
            form = "count", bounds, filtered, most is None, columns
            if (text := self._texts.get(form)) is None:
                row_columns = 'DISTINCT i."_pk", i."_rk"' if self.plan.distinct and filtered else "1"
                total_columns, row_columns, grouping = columns or ("count(*)", row_columns, "")
                conditions = [bounds]
                conditions += [self._type_filter, *(condition.sql for condition in self._filter)] if filtered else []
                where = all_of([condition for condition in conditions if condition])
                source = f"SELECT {row_columns} FROM {self._source} WHERE {where}{'' if most is None else ' LIMIT ?'}"
                text = self._texts[form] = f"SELECT {total_columns} FROM ({source}) {grouping}".rstrip()
            yield text, [*args, *filter, *([] if most is None else [most])]

    def samples(self, bound: BoundPlan, most: int) -> Iterator[Statement]:
        """Yield a SELECT for each range, that lacks its last argument, how many rows: their number and the sums of sizes.

        The sums are of the rows of the path, and of the entities that are joined to them.
        """
        for key_range in bound.ranges[:most]:
            bounds, args = bounds_sql(key_range, self._at)
            form = "sample", bounds
            if (text := self._texts.get(form)) is None:
                entity = entity_bytes(self._statements, "t")
                sizes = f"{entity}, 0"
                if self._index is not None:
                    sizes = f"{index_bytes(self._index, 'i')}, {'0' if self.plan.covering else entity}"
                where = all_of([condition for condition in (bounds, self._type_filter) if condition])
                source = f"SELECT {sizes} FROM {self._source} WHERE {where} LIMIT ?"
                text = self._texts[form] = (
                    f"WITH s(a, b) AS MATERIALIZED ({source}) SELECT count(*), sum(a), sum(b) FROM s"
                )
            yield text, args


def _with_merge_key(front: tuple[str, str], partition: int, row: int, width: int, values: Row) -> tuple[Any, Row]:
    return (values[0][partition:], values[1][row:], values[2:width], front), values


def _with_turned_key(front: tuple[str, str], partition: int, row: int, width: int, values: Row) -> tuple[Any, Row]:
    return (values[0][partition:], Descending((values[1][row:], values[2:width], front))), values
