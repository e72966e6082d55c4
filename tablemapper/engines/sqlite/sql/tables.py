"""The physical tables: their columns and their DDL.

An entity table has the columns ``PartitionKey, RowKey, Timestamp`` (µs), one for each property, and where they are
needed ``_type`` (which class, in a table of several), ``_state`` (of an aggregate's group) and ``_big`` (where large
values are). Columns have no declared type, so that every value keeps its class. A row that is large keeps its long
values in a table beside it: what is clustered stays small.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cached_property, lru_cache
from typing import Any

import apsw
import attrs
import msgspec

from ....schema.model import Model

__all__ = [
    "FIXED", "Column", "EntityTable", "TableForm", "fresh_name", "has_values", "literal", "quoted", "short", "values_ddl",
]  # fmt: skip


@lru_cache(maxsize=4096)
def quoted(name: str) -> str:
    """Return an identifier as SQL."""
    return '"' + name.replace('"', '""') + '"'


def short(name: str) -> str:
    """Return an identifier as SQL, without quotes where it needs none.

    For statements that run once an operation: finding a prepared one again takes a time that grows with its text.
    """
    return name if _PLAIN.fullmatch(name) and name.upper() not in _WORDS else quoted(name)


def fresh_name(name: str, taken: Collection[str]) -> str:
    """Return a physical name that never had a meaning; ``taken``: those that have or had one, in lower case."""
    base, number = name, 2
    while name.lower() in taken:
        name, number = f"{base}_{number}", number + 1
    return name


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
        return f"{quoted(self.name)} DEFAULT {literal(self.default)}"


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return repr(value) if abs(value) != float("inf") else ("9e999" if value > 0 else "-9e999")


FIXED = ("PartitionKey", "RowKey", "Timestamp")
_OWN = ("EntityType", "_type", "_state", "_big")
_NUMBERS = frozenset({"id", "rowid", "oid", "_rowid_"})
"""What the number of a row is called in the table beside: SQLite adds no column of such a name, in lower or upper case."""


class TableForm(msgspec.Struct, forbid_unknown_fields=True):
    """An entity table, as the catalogue keeps it by its public name."""

    columns: list[tuple[str, int | float | str | dict[str, str] | None]]
    """Name and default; ``{"bytes": hex}`` and ``{"float": hex}`` stand for what JSON cannot say."""
    properties: list[tuple[str, str]]
    types: list[str]
    spills: list[str]
    name: str = ""
    """Its physical name, if that is another."""


@attrs.frozen
class EntityTable:
    """An entity table as it is in the file: which column holds which property."""

    name: str
    """The physical name."""
    columns: tuple[Column, ...]
    """Those after the first three, in the order they were added."""
    properties: tuple[tuple[str, str], ...]
    """(property, column): the same name but where two properties differ only in case."""
    types: tuple[str, ...]
    """The classes, in the order they came; a row's ``_type`` is the number of its class, NULL for the first."""
    spills: tuple[str, ...]
    """The columns that can be moved aside."""

    @cached_property
    def create(self) -> str:
        names = [*map(quoted, FIXED), *(column.sql for column in self.columns)]
        return (
            f'CREATE TABLE {quoted(self.name)}({", ".join(names)}, PRIMARY KEY("PartitionKey", "RowKey")) WITHOUT ROWID'
        )

    @property
    def big_name(self) -> str:
        return f"{self.name}_big"

    @cached_property
    def create_big(self) -> str:
        columns = ", ".join(["id INTEGER PRIMARY KEY", *map(quoted, self.spills)])
        return f"CREATE TABLE {quoted(self.big_name)}({columns})"

    def ddl(self) -> dict[str, str]:
        """Return the statements that make the table, by the name of what they make."""
        statements = {self.name: self.create}
        if self.spills:
            statements[self.big_name] = self.create_big
        return statements

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
        # A value that is in place is read once, and nothing else is read.
        return f'coalesce({column}, CASE WHEN {alias}."_big" IS NOT NULL THEN {beside} END)'

    def type_number(self, name: str) -> int | None:
        """Return what ``_type`` holds for the rows of a class."""
        return self.types.index(name) or None

    def type_filter(self, name: str, alias: str) -> str:
        """Return the condition that a row is of a class, empty if the table holds no other."""
        if "_type" not in self.has:
            return ""
        number = self.type_number(name)
        return f'{alias}."_type" IS {"NULL" if number is None else number}'

    def renamed(self, property: str) -> EntityTable:
        """Return the table with another column name for a property."""
        old, number = self.column(property), 2
        taken = {name.lower() for name in (*FIXED, *_OWN, *self.has)}
        while (new := f"{property}_{number}").lower() in taken:
            number += 1

        def other(name: str) -> str:
            return new if name == old else name

        return EntityTable(
            self.name,
            tuple([attrs.evolve(column, name=other(column.name)) for column in self.columns]),
            tuple([(one, other(column)) for one, column in self.properties]),
            self.types,
            tuple(map(other, self.spills)),
        )

    @cached_property
    def has(self) -> frozenset[str]:
        return frozenset([column.name for column in self.columns])

    def extended(self, model: Model) -> EntityTable:
        """Return the table with everything that a model needs."""
        columns, properties, spills = list(self.columns), dict(self.properties), list(self.spills)
        taken = {name.lower() for name in (*FIXED, *_OWN, *self.has)}

        def add(name: str, default: Any = None) -> str:
            base, number = name, 2
            while name.lower() in taken:
                name, number = f"{base}_{number}", number + 1
            taken.add(name.lower())
            columns.append(Column(name, default))
            return name

        only = not self.types or self.types == (model.name,)
        for field in model.stored:
            if field.property not in properties:
                default = model.defaults[field.property] if self.types and only else None
                if isinstance(default, str) and "\0" in default:
                    default = None  # no literal can hold it: the rows that are there are updated
                if field.type.spillable:
                    taken |= _NUMBERS
                properties[field.property] = add(field.property, default)
            column = properties[field.property]
            # (A class of the same table may have had the name for numbers, say, which are never moved aside.)
            if field.type.spillable and column not in spills and column.lower() not in _NUMBERS:
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
        return TableForm(columns, list(self.properties), list(self.types), list(self.spills), self.name)

    @classmethod
    def of(cls, name: str, form: TableForm) -> EntityTable:
        """Return the table that a catalogue describes; ValueError or KeyError if there can be none."""
        name = form.name or name
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


def has_values(model: Model) -> bool:
    """Return whether a model is an aggregate that needs a table of live values."""
    return model.aggregate is not None and bool(model.aggregate.counted_slots)


def values_ddl(name: str) -> str:
    """Return the statement for the table that holds the live values of an aggregate's extremes, ordered."""
    return (
        f'CREATE TABLE {quoted(name)}("PartitionKey", "RowKey", slot, value, n, '
        'PRIMARY KEY("PartitionKey", "RowKey", slot, value)) WITHOUT ROWID'
    )
