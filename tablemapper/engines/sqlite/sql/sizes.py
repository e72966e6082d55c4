"""Sizes in SQL: the same numbers as `limits.entity_size` gives for the properties of a row."""

from __future__ import annotations

from collections.abc import Iterable

from ....entities.fields import FieldModel
from ....limits import FIXED_SIZES, MAX_VALUE, Edm, property_size, string_size, utf16_units
from ....pieces import SHORT, in_pieces, size_in_pieces
from ....schema.rows import DAMAGE, TYPE_PROPERTY, unreadable
from ....values.extra import undeclared_properties
from ..driver.functions import SqlFunction
from .ddl import literal, quoted
from .index_tables import IndexTable
from .statements import Statements

_UNITS = SqlFunction(utf16_units)
_IN_PIECES = SqlFunction(size_in_pieces)


def of_property(name: str, edm: Edm, value: object) -> int:
    """Return the bytes of one property."""
    size = property_size(name, edm)
    if isinstance(value, str) and edm == "String":
        return size + string_size(value)
    return size + 4 + len(value) if isinstance(value, bytes) else size


def _of_undeclared(stored_form: str) -> int:
    """Return the bytes of undeclared properties, of the form that is stored."""
    try:
        return sum(of_property(*piece) for item in undeclared_properties(stored_form) for piece in in_pieces(*item))
    except DAMAGE as error:
        raise unreadable("undeclared properties", None, error) from error


_UNDECLARED = SqlFunction(_of_undeclared)


def entity_bytes(statements: Statements, alias: str) -> str:
    """Return the size of an entity, as SQL over a row of its table."""
    model = statements.model
    fixed = 4
    if (name := model.declaration.type_name) is not None:
        fixed += of_property(TYPE_PROPERTY, "String", name)
    properties = [(field, statements.value(field, alias)) for field in model.stored]
    return _sum(fixed, [f'{alias}."PartitionKey"', f'{alias}."RowKey"'], properties)


def index_bytes(table: IndexTable, alias: str) -> str:
    """Return the size of an index row, as SQL: as an entity that has the entity's key in two properties."""
    properties = {field.property: field for field in table.model.columns}
    included = [(properties[name], f"{alias}.{quoted(column)}") for name, column in table.columns.items()]
    places = [f"{alias}.{quoted(name)}" for name in ("PartitionKey", "RowKey", "_pk", "_rk")]
    fixed = 4 + sum(property_size(name, "String") + 4 for name in ("_pk", "_rk"))
    return _sum(fixed, places, included)


def _sum(fixed: int, texts: Iterable[str], properties: Iterable[tuple[FieldModel, str]]) -> str:
    terms = [str(fixed), *(_units(text) for text in texts)]
    for field, sql in properties:
        term = _property(field, sql)
        terms.append(f"CASE WHEN {sql} IS NULL THEN 0 ELSE {term} END")
    return " + ".join(terms)


def _property(field: FieldModel, sql: str) -> str:
    if field.type.undeclared:
        return _UNDECLARED.sql(sql)
    edm = field.type.edm
    size = property_size(field.property, edm)
    if edm in FIXED_SIZES:
        return str(size)
    length, most = (f"octet_length({sql})", MAX_VALUE) if edm == "Binary" else (f"length({sql})", SHORT)
    whole = f"{size + 4} + {length if edm == 'Binary' else _units(sql)}"
    if not field.type.spillable:
        return whole
    return f"CASE WHEN {length} > {most} THEN {_IN_PIECES.sql(literal(field.property), sql)} ELSE {whole} END"


def _units(sql: str) -> str:
    """Return the bytes of a text in UTF-16: only one with characters beyond ASCII is looked at by Python."""
    return f"2 * CASE WHEN octet_length({sql}) = length({sql}) THEN length({sql}) ELSE {_UNITS.sql(sql)} END"
