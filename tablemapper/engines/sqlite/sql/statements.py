"""The SQL of one class over its table, and the way between its rows and the table's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache, partial
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from ....catalogue.tables import FIXED, Table
from ....codegen import compile_functions
from ....entities.fields import FieldModel
from ....entities.key_and_indexes import IndexModel
from ....evolution.newer_versions import ExtendedModel
from ....schema.model import Model
from ....schema.rows import FIRST, Row
from ..driver.functions import SqlFunction
from .ddl import literal, quoted, short, type_filter, value_sql
from .index_tables import upsert

SPILL_ROW = 400  # characters of long values above which a row's are moved aside
SPILL_VALUE = 64  # a value longer than this is then moved
_NOTHING: Mapping[str, tuple[str, str]] = MappingProxyType({})
WIDE = 4  # properties of bytes: so many are the parts of one large value, and all of them are moved


_KEY = "PartitionKey=?1 AND RowKey=?2"
_AFTER_KEY = ' AND (t."PartitionKey", t."RowKey") > (?, ?)'
_ORDER = 't."PartitionKey", t."RowKey"'
_STATE = """CASE typeof(t."_state") WHEN 'text' THEN hex(t."_state") ELSE t."_state" END"""  # text may not be UTF-8


class Statements:
    """The SQL of one model over its entity table, and the way between its rows and the table's.

    Each is compiled at its first use. Those that run once an operation have few quotes, see `short`.
    """

    def __init__(
        self,
        table: Table,
        model: Model,
        extended: ExtendedModel | None = None,
        name: str | None = None,
        group_columns: Mapping[str, tuple[str, str]] = _NOTHING,
        *,
        checks: bool = False,
    ) -> None:
        self.table = table
        self.name: str = name or model.name
        self._own_model = model
        model = model if extended is None else extended.model
        self.model: Final = model
        self._extended = extended
        self._group_columns = group_columns
        checked = extended if checks else None
        narrow_keys = checked is not None and checked.narrow_keys
        self._key_check = SqlFunction(checked.check_key) if checked is not None and narrow_keys else None
        self._checks = {} if checked is None else {name: _check(checked, name) for name in checked.narrow}
        self.has_big: bool = "_big" in table.has
        self._gets_by_count: dict[int, str] = {}  # statements, by their number of keys
        self._partial_scans: dict[tuple[frozenset[int], bool], str] = {}  # others, by the places that they read

    @cached_property
    def reading(self) -> Statements:
        """The same for what a program reads: they raise SchemaMismatch where its class does not know a value.

        To writes, builds, checks and repairs such a value is one like any other, as the catalogue knows it.
        """
        if self._extended is None or not (self._extended.narrow or self._extended.narrow_keys):
            return self
        return Statements(self.table, self._own_model, self._extended, self.name, self._group_columns, checks=True)

    # ------------------------------------------------------------------------------------------ columns

    @cached_property
    def spilled(self) -> tuple[int, ...]:
        """The places in a row of values that can be moved aside."""
        return tuple(
            at
            for at, field in enumerate(self.model.columns, FIRST)
            if field.type.spillable and not field.maintained and self.table.column(field.property) in self.table.spills
        )

    @cached_property
    def wide(self) -> bool:
        """Whether large values have many parts: a subselect for each passes those that lie before it."""
        return sum(field.type.kind is bytes for field in self.model.columns) >= WIDE

    @cached_property
    def width(self) -> int:
        """The number of values of a row, as it is read."""
        return FIRST + len(self.model.columns) + self.has_big

    @cached_property
    def _columns(self) -> list[str]:
        """The columns of a row that have their places in the table."""
        columns = [*FIXED, *(self.table.column(field.property) for field in self.model.stored)]
        return [*columns, "_big"] if self.has_big else columns

    @cached_property
    def _written_columns(self) -> list[str]:
        """The columns that get values of their own."""
        if self.model.aggregate is None:
            return self._columns
        return [*(column for column in self._columns if column != "_big"), "_state"]  # (no group is large)

    @cached_property
    def _constants(self) -> dict[str, str]:
        """The columns in which all rows of the model are alike, with their SQL."""
        constants = {}
        if (number := self.table.type_number(self.name)) is not None:
            constants["_type"] = str(number)
        if (name := self.model.declaration.type_name) is not None:
            constants["EntityType"] = literal(name)
        if self.has_big and self.model.aggregate is not None:
            constants["_big"] = "NULL"
        # A default is for rows that were there before the column; those of another class do not have the property.
        defaults = [column.name for column in self.table.columns if column.default is not None]
        return constants | {name: "NULL" for name in defaults if name not in self._columns}

    @cached_property
    def type_filter(self) -> str:
        """The condition that a row is of the model's class, empty if the table holds no other."""
        return type_filter(self.table, self.name)

    @cached_property
    def _and_type(self) -> str:  # (a key that a more special class has is no key of this one)
        return f" AND {self.type_filter}" if self.type_filter else ""

    # ------------------------------------------------------------------------------------------ writing

    @cached_property
    def insert(self) -> str:
        return self._insert(["?"] * len(self._written_columns))

    def insert_at(self, timestamp: int) -> str:
        """Return the INSERT, with one timestamp, of rows as their class makes them: nothing of them is moved aside."""
        places = [f"?{at}" for at in range(1, FIRST + len(self.model.columns) + 1)]
        places[FIRST - 1] = str(timestamp)
        return self._insert([*places, *["NULL"] * self.has_big])

    def _insert(self, places: list[str]) -> str:
        names = [*self._written_columns, *self._constants]
        is_complete = names == [
            *FIXED,
            *(column.name for column in self.table.columns),
        ]  # no other table is ever written to
        column_list = "" if is_complete else f"({','.join(map(short, names))})"
        return f"INSERT INTO {short(self.table.name)}{column_list} VALUES({','.join([*places, *self._constants.values()])})"

    @cached_property
    def put(self) -> str:
        return upsert(self.insert, [*self._written_columns[2:], *(self._constants.keys() & {"_big"})])

    @cached_property
    def update(self) -> str:
        """The UPDATE of the row with a timestamp, which comes last."""
        assigned = ",".join(f"{short(column)}=?{at}" for at, column in enumerate(self._written_columns[2:], FIRST))
        return f"UPDATE {short(self.table.name)} SET {assigned} WHERE {_KEY} AND Timestamp=?{len(self._written_columns) + 1}"

    @cached_property
    def delete(self) -> str:
        """The DELETE of the row with a timestamp."""
        return f"DELETE FROM {short(self.table.name)} WHERE {_KEY} AND Timestamp=?3"

    @cached_property
    def row_exists(self) -> str:
        """Finds a row only if it has this timestamp."""
        return f"SELECT 1 FROM {short(self.table.name)} WHERE {_KEY} AND Timestamp=?3"

    @cached_property
    def row_is_absent(self) -> str:
        return f"SELECT 1 WHERE NOT EXISTS ({self.row_exists})"

    # ------------------------------------------------------------------------------------------ reading

    @cached_property
    def select_list(self) -> str:
        """The values of a row, from a source that ends in `big_join`."""
        return self._select_list()

    def _select_list(self, places: Collection[int] | None = None) -> str:
        values = [f"t.{quoted(name)}" for name in FIXED]
        for at, field in enumerate(self.model.columns, FIRST):
            values.append(self._selected(field) if places is None or at in places else "NULL")
        return ", ".join([*values, 't."_big"'] if self.has_big else values)

    def _selected(self, field: FieldModel) -> str:
        if field.maintained:
            return self._maintained(field, "t")
        name = quoted(self.table.column(field.property))
        spillable = self.wide and field.type.spillable
        return self.checked(field.name, f"coalesce(t.{name}, b.{name})" if spillable else self.value(field, "t"))

    def checked(self, name: str, value: str, key: tuple[str, str] = ('t."PartitionKey"', 't."RowKey"')) -> str:
        """Return the SQL of a field that is read, checked where there may be values that its class does not know."""
        check = self._checks.get(name)
        return value if check is None else check.sql(value, *key)

    def checked_key(self, sql: str, partition: str, row: str) -> str:
        """Return SQL that reads a partition key somewhere, where there may be keys that the class does not know."""
        if self._key_check is None:
            return sql
        return sql.replace(partition, self._key_check.sql(partition, row), 1)

    def index_check(self, index: IndexModel) -> SqlFunction | None:
        """Return the check of an index's keys, by those and the entity's, where some may be unknown to the class.

        It returns the partition key.
        """
        if self._extended is None or not self._extended.narrow.keys() & set(index.fields):
            return None
        return SqlFunction(partial(self._extended.check_index, index.partition, index.row))

    def value(self, field: FieldModel, alias: str) -> str:
        """Return the SQL of one property."""
        if field.maintained:
            return self._maintained(field, alias)
        return value_sql(self.table, field.property, alias, spillable=field.type.spillable)

    def in_place(self, field: FieldModel, alias: str) -> str:
        """Return the SQL of one property, NULL if its value is moved aside."""
        return value_sql(self.table, field.property, alias, spillable=False)

    def _maintained(self, field: FieldModel, alias: str) -> str:
        """Return the SQL of a field that the group of the same key holds, if there is one."""
        table, column = self._group_columns[field.name]
        value, empty = f"g.{quoted(column)}", self.model.defaults[field.property]
        if empty is not None and field.nullable:  # the group can be there, and lack its value
            value, empty = f"iif(count(*), max({value}), {literal(empty)})", None
        group_value = (
            f"(SELECT {value} FROM {quoted(table)} g "
            f'WHERE g."PartitionKey" = {alias}."PartitionKey" AND g."RowKey" = {alias}."RowKey")'
        )
        return group_value if empty is None else f"coalesce({group_value}, {literal(empty)})"

    @cached_property
    def maintained(self) -> str:
        """The maintained fields of a key."""
        values = ", ".join([self._maintained(field, "t") for field in self.model.maintained])
        return f'SELECT {values} FROM (SELECT ?1 AS "PartitionKey", ?2 AS "RowKey") t'

    @cached_property
    def maintained_places(self) -> tuple[int, ...]:
        """The places of the maintained fields in a row."""
        return tuple([at for at, field in enumerate(self.model.columns, FIRST) if field.maintained])

    @cached_property
    def own_values(self) -> Callable[[Row], Row] | None:
        """The function that leaves the maintained fields out of a row; None if there are none."""
        own_places = [at for at in range(self.width) if at not in self.maintained_places]
        return itemgetter(*own_places) if self.maintained_places else None

    def _lean(self, name: Callable[[str], str]) -> Iterator[str]:
        yield from (f"t.{name(column)}" for column in FIXED)
        for field in self.model.columns:
            if field.maintained:
                yield self._maintained(field, "t")
            else:
                yield self.checked(field.name, f"t.{name(self.table.column(field.property))}")
        if self.has_big:
            yield f"t.{name('_big')}"

    @cached_property
    def big_join(self) -> str:
        """The join with what is moved aside, where there is one."""
        return f' LEFT JOIN {quoted(self.table.big_name)} b ON b.id = t."_big"' if self.wide else ""

    @cached_property
    def _source(self) -> str:
        return f"{quoted(self.table.name)} t{self.big_join}"

    @cached_property
    def get(self) -> str:
        return (
            f"SELECT {self.select_list} FROM {self._source} "
            f'WHERE t."PartitionKey" = ? AND t."RowKey" = ?{self._and_type}'
        )

    @cached_property
    def get_lean(self) -> str:
        """The SELECT of a row that has nothing moved aside. Its last value is then None, if it has a place."""
        column_list = ",".join(self._lean(short) if self._checks or self._group_columns else map(short, self._columns))
        return f"SELECT {column_list} FROM {quoted(self.table.name)} t WHERE {_KEY}{self._and_type}"

    def get_several(self, count: int) -> str:
        """Return the SELECT of several keys that reads what `get_lean` does."""
        if (sql := self._gets_by_count.get(count)) is None:
            keys = ",".join(["(?,?)"] * count)
            sql = self._gets_by_count[count] = (
                f"WITH k(_p,_r) AS (VALUES {keys}) SELECT {','.join(self._lean(short))} FROM k "
                f"CROSS JOIN {short(self.table.name)} t WHERE t.PartitionKey=k._p AND t.RowKey=k._r{self._and_type}"
            )
        return sql

    @cached_property
    def get_group(self) -> str:
        """The timestamp, the properties and the state of an aggregate's group."""
        columns = ["Timestamp", *(short(self.table.column(field.property)) for field in self.model.columns), "_state"]
        return f"SELECT {','.join(columns)} FROM {short(self.table.name)} WHERE {_KEY}"

    @cached_property
    def count(self) -> str:
        return f"SELECT count(*) FROM {quoted(self.table.name)} t WHERE {self.type_filter or 'TRUE'}"

    @cached_property
    def scan(self) -> str:
        return self._scan()

    @cached_property
    def scan_state(self) -> str:
        """The rows, each with the state of an aggregate's group at the end; a state that is none can be read, too."""
        return self._scan(extra_columns=f", {_STATE}")

    @cached_property
    def get_state(self) -> str:
        """The state of an aggregate's group, as `scan_state` reads it."""
        return f"SELECT {_STATE} FROM {quoted(self.table.name)} t WHERE {_KEY}"

    @cached_property
    def scan_after(self) -> str:
        """The rows after a key."""
        return self._scan(condition=_AFTER_KEY)

    def scan_some(self, places: frozenset[int], *, after: bool) -> str:
        """Return `scan`, or `scan_after`, with NULL in other places of a row than these and those of the key."""
        if (sql := self._partial_scans.get((places, after))) is None:
            column_list, condition = self._select_list(places), _AFTER_KEY if after else ""
            sql = self._partial_scans[places, after] = self._scan(condition=condition, column_list=column_list)
        return sql

    def _scan(self, extra_columns: str = "", condition: str = "", column_list: str = "") -> str:
        column_list, mine = column_list or self.select_list, self.type_filter or "TRUE"
        return f"SELECT {column_list}{extra_columns} FROM {self._source} WHERE {mine}{condition} ORDER BY {_ORDER}"

    # ------------------------------------------------------------------------------------------ large values

    @cached_property
    def big_next(self) -> str:
        return f"SELECT coalesce(max(id), 0) + 1 FROM {quoted(self.table.big_name)}"

    @cached_property
    def big_insert(self) -> str:
        columns = [quoted(self.table.column(self.model.columns[at - FIRST].property)) for at in self.spilled]
        places = ", ".join(["?"] * (len(columns) + 1))
        return f"INSERT INTO {quoted(self.table.big_name)}(id, {', '.join(columns)}) VALUES({places})"

    @cached_property
    def big_delete(self) -> str:
        return f"DELETE FROM {quoted(self.table.big_name)} WHERE id = ?"

    @cached_property
    def stamp(self) -> Callable[[Iterable[Row], int], tuple[list[Row], list[int]]]:
        """Rows with another timestamp, and with a place for where their large values are; and which rows are large."""
        return _stamp(len(self.model.columns), self.spilled, self.has_big)

    def spills(self, row: Row) -> tuple[int, ...]:
        """Return the places of the values of a large row that are moved aside."""
        return tuple([at for at in self.spilled if isinstance(row[at], str | bytes) and len(row[at]) > SPILL_VALUE])


@lru_cache(maxsize=None)
def _stamp(
    width: int,
    spilled: tuple[int, ...],
    has_big: bool,  # noqa: FBT001
) -> Callable[[Iterable[Row], int], tuple[list[Row], list[int]]]:
    values = [f"v{at}" for at in range(FIRST, FIRST + width)]
    # (A damaged value can be a number.)
    lengths = " + ".join([f"(len(v{at}) if (c := v{at}.__class__) is str or c is bytes else 0)" for at in spilled])
    source = [
        "def stamp(rows, timestamp):",
        "    stamped = []; add = stamped.append; large = []",
        f"    for {', '.join(['pk', 'rk', '_', *values])} in rows:",
        f"        if {lengths} > {SPILL_ROW}: large.append(len(stamped))" if spilled else "",
        f"        add(({', '.join(['pk', 'rk', 'timestamp', *values, *(['None'] * has_big)])}))",
        "    return stamped, large",
    ]
    return compile_functions("stamp", "\n".join(source), {})["stamp"]


def _check(extended: ExtendedModel, name: str) -> SqlFunction:
    return SqlFunction(lambda value, partition, row: extended.check(name, value, partition, row))
