"""Entity tables as data: which column holds which property.

A table has the columns ``PartitionKey, RowKey, Timestamp`` (µs), and one for each property. A table of several classes
has ``_type``, the class. An aggregate has ``_state``, that of the group. A table with large values has ``_big``, which says
where they are. A large row keeps its long values in an overflow table, so the clustered table stays small.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Any

import attrs
import msgspec

from ..schema.model import Model


@attrs.frozen
class Column:
    """A column of an entity table."""

    name: str
    default: Any = None
    """In stored form; what rows read as that were written before the column was added."""


FIXED = ("PartitionKey", "RowKey", "Timestamp")
_EXTRA_COLUMNS = ("EntityType", "_type", "_state", "_big")
_NUMBERS = frozenset({"id", "rowid", "oid", "_rowid_"})
"""What the number of a row is called in the table beside: SQLite adds no column of such a name, in lower or upper case."""


class TableSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An entity table, as the catalogue keeps it by its public name."""

    columns: list[tuple[str, int | float | str | dict[str, str] | None]]
    """Name and default; ``{"bytes": hex}`` and ``{"float": hex}`` stand for what JSON cannot say."""
    properties: list[tuple[str, str]]
    types: list[str]
    spills: list[str]
    name: str = ""
    """Its physical name, if that is another."""


@attrs.frozen
class Table:
    """An entity table as it is in the store: which column holds which property."""

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

    @property
    def big_name(self) -> str:
        return f"{self.name}_big"

    @property
    def names(self) -> list[str]:
        """The physical names: its own, and that of the table beside it, if it has one."""
        return [self.name, self.big_name] if self.spills else [self.name]

    @cached_property
    def _column(self) -> dict[str, str]:
        return dict(self.properties)

    def column(self, property: str) -> str:
        """Return the column of a property."""
        return self._column[property]

    def type_number(self, name: str) -> int | None:
        """Return the value of ``_type`` in the rows of a class."""
        return self.types.index(name) or None

    def renamed(self, property: str) -> Table:
        """Return the table with another column name for a property."""
        old = self.column(property)
        new = fresh_name(property, {name.lower() for name in (property, *FIXED, *_EXTRA_COLUMNS, *self.has)})

        def renamed_column(name: str) -> str:
            return new if name == old else name

        return Table(
            self.name,
            tuple([attrs.evolve(column, name=renamed_column(column.name)) for column in self.columns]),
            tuple([(property_name, renamed_column(column)) for property_name, column in self.properties]),
            self.types,
            tuple(map(renamed_column, self.spills)),
        )

    @cached_property
    def has(self) -> frozenset[str]:
        return frozenset([column.name for column in self.columns])

    def extended(self, model: Model) -> Table:
        """Return the table with everything that a model needs."""
        columns, properties, spills = list(self.columns), dict(self.properties), list(self.spills)
        occupied = {name.lower() for name in (*FIXED, *_EXTRA_COLUMNS, *self.has)}

        def add(name: str, default: Any = None) -> str:
            name = fresh_name(name, occupied)
            occupied.add(name.lower())
            columns.append(Column(name, default))
            return name

        only = not self.types or self.types == (model.name,)
        for field in model.stored:
            if field.property not in properties:
                default = model.defaults[field.property] if self.types and only else None
                if isinstance(default, str) and "\0" in default:
                    default = None  # no literal can hold it: the rows that are there are updated
                if field.type.spillable:
                    occupied |= _NUMBERS
                properties[field.property] = add(field.property, default)
            column = properties[field.property]
            # (A class of the same table may have had the name for numbers, say, which are never moved aside.)
            if field.type.spillable and column not in spills and column.lower() not in _NUMBERS:
                spills.append(column)
        types = self.types if model.name in self.types else (*self.types, model.name)
        for name, is_needed in (
            ("_type", len(types) > 1),
            ("EntityType", model.declaration.type_name is not None),
            ("_state", model.aggregate is not None),
            ("_big", bool(spills)),
        ):
            if is_needed and name not in {column.name for column in columns}:
                columns.append(Column(name))
        return Table(self.name, tuple(columns), tuple(properties.items()), types, tuple(spills))

    def form(self) -> TableSpec:
        """Return the catalogue spec."""
        columns = [(column.name, _dump(column.default)) for column in self.columns]
        return TableSpec(columns, list(self.properties), list(self.types), list(self.spills), self.name)

    @classmethod
    def of(cls, name: str, form: TableSpec) -> Table:
        """Return the table that a catalogue describes; ValueError or KeyError if there can be none."""
        name = form.name or name
        columns = tuple([Column(column, _load(default)) for column, default in form.columns])
        table = cls(name, columns, tuple(form.properties), tuple(form.types), tuple(form.spills))
        required = {*(column for _, column in table.properties), *table.spills}
        required |= {
            column for column, is_needed in (("_type", len(table.types) > 1), ("_big", table.spills)) if is_needed
        }
        if missing := required - table.has:
            raise ValueError(f'the table "{name}" lacks the columns {", ".join(sorted(missing))}')
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


def fresh_name(name: str, occupied: Collection[str]) -> str:
    """Return a physical name that is not taken, with a number if it is; ``occupied``: those that have or had a meaning, in lower case."""
    base, number = name, 2
    while name.lower() in occupied:
        name, number = f"{base}_{number}", number + 1
    return name


def index_column_names(properties: Iterable[str]) -> list[str]:
    """Return the columns of an index's properties: two that differ only in case cannot both have their name."""
    names: list[str] = []
    for property in properties:
        occupied = {name.lower() for name in ("PartitionKey", "RowKey", "_pk", "_rk", *names)}
        names.append(fresh_name(property, occupied))
    return names
