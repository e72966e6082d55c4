"""The physical tables: their columns, their DDL, and the statements of each model.

An entity table has the columns ``PartitionKey, RowKey, Timestamp`` (µs), one for each property, and where they are
needed ``_type`` (which class, in a table of several), ``_state`` (of an aggregate's group) and ``_big`` (where large
values are). Columns have no declared type, so that every value keeps its class. A row that is large keeps its long
values in a table beside it: what is clustered stays small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from typing import Any

import apsw
import attrs
import msgspec

from ...codegen import compile_functions
from ...entities.declaration import IndexModel
from ...entities.fields import FieldModel
from ...schema.maintenance import index_columns
from ...schema.model import Model
from ...schema.rows import Row

__all__ = [
    "Column",
    "EntityTable",
    "IndexTable",
    "Statements",
    "Values",
    "has_values",
    "quoted",
    "values_ddl",
    "values_table",
]

SPILL_ROW = 400  # characters of long values above which a row's are moved aside
SPILL_VALUE = 64  # a value longer than this is then moved
WIDE = 4  # properties of bytes: so many are the parts of one large value, and all of them are moved


def quoted(name: str) -> str:
    """Return an identifier as SQL."""
    return '"' + name.replace('"', '""') + '"'


def short(name: str) -> str:
    """Return an identifier as SQL, without quotes where it needs none.

    For statements that run once an operation: finding a prepared one again takes a time that grows with its text.
    """
    return name if _PLAIN.fullmatch(name) and name.upper() not in _WORDS else quoted(name)


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = frozenset({"TRUE", "FALSE", *apsw.keywords})


@attrs.frozen
class Column:
    """A column of an entity table."""

    name: str
    default: Any = None
    """In stored form; what rows read as that were written before the column was added."""

    @property
    def sql(self) -> str:
        if self.default is None:
            return quoted(self.name)
        return f"{quoted(self.name)} DEFAULT {_literal(self.default)}"


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return repr(value) if abs(value) != float("inf") else ("9e999" if value > 0 else "-9e999")


_FIXED = ("PartitionKey", "RowKey", "Timestamp")


class TableForm(msgspec.Struct, forbid_unknown_fields=True):
    """An entity table, as the catalogue keeps it."""

    columns: list[tuple[str, int | float | str | dict[str, str] | None]]
    """Name and default; ``{"bytes": hex}`` and ``{"float": hex}`` stand for what JSON can not say."""
    properties: list[tuple[str, str]]
    types: list[str]
    spills: list[str]


@attrs.frozen
class EntityTable:
    """An entity table as it is in the file: which column holds which property."""

    name: str
    columns: tuple[Column, ...]
    """Those after the first three, in the order they were added."""
    properties: tuple[tuple[str, str], ...]
    """(property, column): the same name but where two properties differ only in case."""
    types: tuple[str, ...]
    """The classes, in the order they came; a row's ``_type`` is the number of its class, NULL for the first."""
    spills: tuple[str, ...]
    """The columns that can be moved aside."""

    @property
    def create(self) -> str:
        names = [*map(quoted, _FIXED), *(column.sql for column in self.columns)]
        return (
            f'CREATE TABLE {quoted(self.name)}({", ".join(names)}, PRIMARY KEY("PartitionKey", "RowKey")) WITHOUT ROWID'
        )

    @property
    def big_name(self) -> str:
        return f"{self.name}_big"

    @property
    def create_big(self) -> str:
        columns = ", ".join(["id INTEGER PRIMARY KEY", *map(quoted, self.spills)])
        return f"CREATE TABLE {quoted(self.big_name)}({columns})"

    def ddl(self) -> dict[str, str]:
        """Return the statements that make the table, by the name of what they make."""
        made = {self.name: self.create}
        if self.spills:
            made[self.big_name] = self.create_big
        return made

    @cached_property
    def _column(self) -> dict[str, str]:
        return dict(self.properties)

    def column(self, property: str) -> str:
        """Return the column of a property."""
        return self._column[property]

    def value(self, property: str, alias: str, *, moved: bool = True) -> str:
        """Return the SQL of a property, from wherever it is; ``moved``: whether it can have been moved aside."""
        name = self.column(property)
        column = f"{alias}.{quoted(name)}"
        if not moved or name not in self.spills:
            return column
        beside = f'(SELECT b.{quoted(name)} FROM {quoted(self.big_name)} b WHERE b.id = {alias}."_big")'
        # A value that is in place is read once, and nothing else is asked for.
        return f'coalesce({column}, CASE WHEN {alias}."_big" IS NOT NULL THEN {beside} END)'

    def type_number(self, model: Model) -> int | None:
        """Return what ``_type`` holds for a model's rows."""
        return self.types.index(model.name) or None

    @property
    def has(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    def extended(self, model: Model) -> EntityTable:
        """Return the table with everything that a model needs."""
        columns, properties, spills = list(self.columns), dict(self.properties), list(self.spills)
        taken = {name.lower() for name in (*_FIXED, "EntityType", "_type", "_state", "_big", *self.has)}

        def add(name: str, default: Any = None) -> str:
            base, number = name, 2
            while name.lower() in taken:
                name, number = f"{base}_{number}", number + 1
            taken.add(name.lower())
            columns.append(Column(name, default))
            return name

        only = not self.types or self.types == (model.name,)
        for field in model.columns:
            if field.property not in properties:
                default = model.defaults[field.property] if self.types and only else None
                if isinstance(default, str) and "\0" in default:
                    default = None  # no literal can hold it: the rows that are there are updated
                properties[field.property] = add(field.property, default)
            column = properties[field.property]
            if field.type.spillable and column not in spills:
                spills.append(column)
        types = self.types if model.name in self.types else (*self.types, model.name)
        for name, wanted in (
            ("_type", len(types) > 1),
            ("EntityType", model.declaration.type_name is not None),
            ("_state", model.aggregate is not None),
            ("_big", bool(spills)),
        ):
            if wanted and name not in {column.name for column in columns}:
                columns.append(Column(name))
        return EntityTable(self.name, tuple(columns), tuple(properties.items()), types, tuple(spills))

    def form(self) -> TableForm:
        """Return what the catalogue keeps."""
        columns = [(column.name, _dump(column.default)) for column in self.columns]
        return TableForm(columns, list(self.properties), list(self.types), list(self.spills))

    @classmethod
    def of(cls, name: str, form: TableForm) -> EntityTable:
        """Return the table that a catalogue describes; ValueError or KeyError if there can be none."""
        columns = tuple([Column(column, _load(default)) for column, default in form.columns])
        table = cls(name, columns, tuple(form.properties), tuple(form.types), tuple(form.spills))
        wanted = {*(column for _, column in table.properties), *table.spills}
        wanted |= {column for column, needed in (("_type", len(table.types) > 1), ("_big", table.spills)) if needed}
        if lost := wanted - table.has:
            raise ValueError(f'the table "{name}" lacks the columns {", ".join(sorted(lost))}')
        return table


def _dump(value: Any) -> Any:
    return (
        {"bytes": value.hex()}
        if isinstance(value, bytes)
        else {"float": value.hex()}
        if isinstance(value, float)
        else value
    )


def _load(form: Any) -> Any:
    if not isinstance(form, dict):
        return form
    return bytes.fromhex(form["bytes"]) if "bytes" in form else float.fromhex(form["float"])


class Statements:
    """The SQL of one model over its entity table, and the way between its rows and the table's."""

    def __init__(self, table: EntityTable, model: Model) -> None:
        self.table = table
        self.model = model
        self.spilled = tuple(
            at
            for at, field in enumerate(model.columns, 3)
            if field.type.spillable and table.column(field.property) in table.spills
        )
        self.has_big = "_big" in table.has
        name = quoted(table.name)
        # The parts of a large value lie one behind the other: a subselect for each would pass those before it again.
        self.wide = sum(field.type.kind is bytes for field in model.columns) >= WIDE
        columns = [*_FIXED, *(table.column(field.property) for field in model.columns)]
        number = table.type_number(model)
        extra = [] if number is None else [("_type", str(number))]
        if (named := model.declaration.type_name) is not None:
            extra.append(("EntityType", _literal(named)))
        # A default is for rows that were there before the column; those of another class do not have the property.
        extra += [(c.name, "NULL") for c in table.columns if c.default is not None and c.name not in columns]
        if self.has_big:
            columns.append("_big")
        if model.aggregate is not None:
            columns.append("_state")
        width = len(columns)
        hot = short(table.name)
        written = [*columns, *(name for name, _ in extra)]
        whole = written == [*_FIXED, *(column.name for column in table.columns)]  # no other table is ever written to
        listed = "" if whole else f"({','.join(map(short, written))})"
        places = ",".join([*["?"] * width, *(value for _, value in extra)])
        self.insert = f"INSERT INTO {hot}{listed} VALUES({places})"
        self.put = _upsert(self.insert, columns[2:])
        assigned = ",".join(f"{short(column)}=?{at}" for at, column in enumerate(columns[2:], 3))
        place = "WHERE PartitionKey=?1 AND RowKey=?2"
        condition = f"{place} AND Timestamp=?"
        self.update = f"UPDATE {hot} SET {assigned} {condition}{width + 1}"
        self.delete = f"DELETE FROM {hot} {condition}3"
        self.there = f"SELECT 1 FROM {hot} {condition}3"
        self.not_there = f"SELECT 1 WHERE NOT EXISTS ({self.there})"
        read = columns if model.aggregate is None else columns[:-1]
        mine = self.type_filter(model, "t")
        of_mine = f" AND {mine}" if mine else ""  # a key that a more special class has is no key of this one
        self.get_lean = f"SELECT {','.join(map(short, read))} FROM {name} t {place}{of_mine}"
        """What `get` reads, of a row of which nothing is moved aside: then its last value is None, if it has a place."""
        shown = ",".join(["Timestamp", *(short(table.column(field.property)) for field in model.columns)])
        self.get_group = f"SELECT {shown},_state FROM {hot} {place}"
        """Of an aggregate."""
        self.select_list = self.select()
        self.lean_list = ", ".join(f"t.{quoted(column)}" for column in read) if self.has_big and not self.wide else None
        """Where it is shorter: without what is moved aside; the last value tells whether there is something."""
        state = ', t."_state"' if model.aggregate is not None else ""
        place = 't."PartitionKey" = ? AND t."RowKey" = ?'
        mine = mine or "TRUE"
        order = 't."PartitionKey", t."RowKey"'
        big = quoted(table.big_name)
        self.beside = f' LEFT JOIN {big} b ON b.id = t."_big"' if self.wide else ""
        source = f"{name} t{self.beside}"
        self.get = f"SELECT {self.select_list} FROM {source} WHERE {place}{of_mine}"
        self.scan = f"SELECT {self.select_list} FROM {source} WHERE {mine} ORDER BY {order}"
        self.scan_state = f"SELECT {self.select_list}{state} FROM {source} WHERE {mine} ORDER BY {order}"
        after = '(t."PartitionKey", t."RowKey") > (?, ?)'
        self.scan_after = f"SELECT {self.select_list} FROM {source} WHERE {mine} AND {after} ORDER BY {order}"
        self.big_next = f"SELECT coalesce(max(id), 0) + 1 FROM {big}"
        self.big_delete = f"DELETE FROM {big} WHERE id = ?"
        spilled = [quoted(table.column(model.columns[at - 3].property)) for at in self.spilled]
        self.big_insert = f"INSERT INTO {big}(id, {', '.join(spilled)}) VALUES({', '.join(['?'] * (len(spilled) + 1))})"

    def select(self) -> str:
        """Return the select list that gives the model's rows; its FROM ends in ``beside``."""
        values = [f"t.{quoted(name)}" for name in _FIXED]
        values += [self._selected(field) for field in self.model.columns]
        if self.has_big:
            values.append('t."_big"')
        return ", ".join(values)

    def _selected(self, field: FieldModel) -> str:
        name = quoted(self.table.column(field.property))
        if self.wide and field.type.spillable:
            return f"coalesce(t.{name}, b.{name})"
        return self.value(self.model, field, "t")

    def value(self, model: Model, field: FieldModel, alias: str) -> str:
        """Return the SQL of one property."""
        return self.table.value(field.property, alias, moved=field.type.spillable)

    def type_filter(self, model: Model, alias: str) -> str:
        """Return the condition that a row is of the model's class, empty if the table holds no other."""
        if "_type" not in self.table.has:
            return ""
        number = self.table.type_number(model)
        return f'{alias}."_type" IS {"NULL" if number is None else number}'

    @cached_property
    def stamp(self) -> Callable[[Iterable[Row], int], tuple[list[Row], list[int]]]:
        """Rows with another timestamp, and with a place for where their large values are; and which rows are large."""
        return _stamp(len(self.model.columns), self.spilled, self.has_big)

    def spills(self, row: Row) -> tuple[int, ...]:
        """Return the places of the values of a large row that are moved aside."""
        return tuple([at for at in self.spilled if row[at] is not None and len(row[at]) > SPILL_VALUE])


@lru_cache(maxsize=None)
def _stamp(
    width: int,
    spilled: tuple[int, ...],
    has_big: bool,  # noqa: FBT001
) -> Callable[[Iterable[Row], int], tuple[list[Row], list[int]]]:
    values = [f"v{at}" for at in range(3, 3 + width)]
    lengths = " + ".join([f"(0 if v{at} is None else len(v{at}))" for at in spilled])
    source = [
        "def stamp(rows, timestamp):",
        "    stamped = []; add = stamped.append; large = []",
        f"    for {', '.join(['pk', 'rk', '_', *values])} in rows:",
        f"        if {lengths} > {SPILL_ROW}: large.append(len(stamped))" if spilled else "",
        f"        add(({', '.join(['pk', 'rk', 'timestamp', *values, *(['None'] * has_big)])}))",
        "    return stamped, large",
    ]
    return compile_functions("stamp", "\n".join(source), {})["stamp"]


def _upsert(insert: str, columns: Iterable[str]) -> str:
    """Return the statement that overwrites columns of a row that is there (REPLACE would delete it first)."""
    assigned = ",".join(f"{short(column)}=excluded.{short(column)}" for column in columns)
    return f"{insert} ON CONFLICT DO {f'UPDATE SET {assigned}' if assigned else 'NOTHING'}"


class IndexTable:
    """The table of one index, and its statements; its rows are those of `tablemapper.changes`."""

    def __init__(self, model: Model, index: IndexModel) -> None:
        self.model = model
        self.index = index
        included = [field.property for field in index_columns(model, index)]
        # Two properties that differ only in case can not both be a column's name.
        names: list[str] = []
        for property in included:
            name, number = property, 2
            while name.lower() in {taken.lower() for taken in ("PartitionKey", "RowKey", "_pk", "_rk", *names)}:
                name, number = f"{property}_{number}", number + 1
            names.append(name)
        columns = ["PartitionKey", "RowKey", "_pk", "_rk", *names]
        self.columns = dict(zip(included, names, strict=True))
        key = columns[:2] if index.unique else columns[:4]
        listed = ", ".join(map(quoted, columns))
        name = quoted(index.table)
        hot, places = short(index.table), ",".join(["?"] * len(columns))
        self.create = f"CREATE TABLE {name}({listed}, PRIMARY KEY({', '.join(map(quoted, key))})) WITHOUT ROWID"
        self.insert = f"INSERT INTO {hot} VALUES({places})"
        self.put = _upsert(self.insert, columns[len(key) :])
        self.delete = f"DELETE FROM {hot} WHERE PartitionKey=? AND RowKey=? AND _pk=? AND _rk=?"
        self.holder = f'SELECT "_pk", "_rk" FROM {name} WHERE "PartitionKey" = ? AND "RowKey" = ?'
        self.scan = f'SELECT {listed} FROM {name} ORDER BY "PartitionKey", "RowKey", "_pk", "_rk"'


def values_table(model: Model) -> str:
    """Return the name of the table that holds the live values of an aggregate's extremes, ordered."""
    return f"{model.table}_{model.name}_values"


def has_values(model: Model) -> bool:
    """Tell whether a model is an aggregate that needs a table of live values."""
    return model.aggregate is not None and bool(model.aggregate.counted_slots)


def values_ddl(model: Model) -> Iterator[tuple[str, str]]:
    """Yield the table of live values, if an aggregate needs one."""
    if has_values(model):
        name = values_table(model)
        yield (
            name,
            f'CREATE TABLE {quoted(name)}("PartitionKey", "RowKey", slot, value, n, '
            'PRIMARY KEY("PartitionKey", "RowKey", slot, value)) WITHOUT ROWID',
        )


class Values:
    """The statements over an aggregate's table of live values."""

    def __init__(self, model: Model) -> None:
        name = quoted(values_table(model))
        slot = 'WHERE "PartitionKey" = ? AND "RowKey" = ? AND slot = ?'
        self.count = f"INSERT INTO {name} VALUES(?, ?, ?, ?, ?5) ON CONFLICT DO UPDATE SET n = n + ?5"
        self.forget = f"DELETE FROM {name} {slot} AND value = ? AND n = 0"
        self.least = f"SELECT min(value) FROM {name} {slot}"
        self.greatest = f"SELECT max(value) FROM {name} {slot}"
