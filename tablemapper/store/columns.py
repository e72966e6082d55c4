"""Columns as entities: all of them are checked before the first entity is made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sized
from typing import Any

from ..entities.fields import FieldModel
from ..errors import InvalidEntity, did_you_mean, shown
from ..schema.model import Model
from ..values.arrow import column_values, load_package
from ..values.scalars import Fault

__all__ = ["entities_of"]

_INDEX = re.compile(r"__index_level_\d+__").fullmatch  # pandas sends its index along


def entities_of(model: Model, given: Any) -> Iterator[Any]:
    """Return the entities of a class that columns hold, one of each row.

    Args:
        model: the class.
        given: a dict of sequences or arrays, by the names of the fields; or any object with columns that Arrow can read.

    Raises:
        InvalidEntity: columns are missing, unknown, of different lengths, or hold what cannot be stored; every fault.
    """
    columns = _by_name(model, given)
    fields = {field.name: field for field in model.declaration.fields}
    faults = [
        f"{name}: no such field (fields: {', '.join(fields)}){did_you_mean(str(name), fields)}"
        for name in columns
        if name not in fields
    ]
    faults += [f"{name}: it is missing" for name, field in fields.items() if field.required and name not in columns]
    values: dict[str, list[Any]] = {}
    for name, field in fields.items():
        if name in columns:
            try:
                values[name] = column_values(columns[name], field.type, optional=field.optional)
                _check_constraint(field, values[name])
            except (ValueError, TypeError) as error:
                faults.append(f"{name}: {error}")
    if len(lengths := {name: len(column) for name, column in columns.items() if isinstance(column, Sized)}) > 1:
        _, first = next(iter(lengths.items()))
        faults += [
            f"{name}: {length} values, but {next(iter(lengths))} has {first}"
            for name, length in lengths.items()
            if length != first
        ]
    if faults:
        raise InvalidEntity(f"{model.name} columns", faults)
    entities = _built(model, values)
    if any(field.validator for field in fields.values()) or hasattr(model.cls, "__attrs_post_init__"):
        return iter(list(entities))  # what a user's function refuses is refused before the first row is written, too
    return entities


def _check_constraint(field: FieldModel, values: list[Any]) -> None:
    """Raise a `Fault` for the first value that the field does not allow."""
    if field.constraint is not None:
        for row, value in enumerate(values):
            try:
                if value is not None:
                    field.constraint.check(value)
            except ValueError as error:
                raise Fault(str(error), f"row {row}") from None


def _by_name(model: Model, given: Any) -> Mapping[Any, Any]:
    if isinstance(given, Mapping):
        return given
    if not hasattr(given, "__arrow_c_stream__"):
        raise InvalidEntity(
            f"{model.name} columns",
            [f"a dict of columns is needed, or a data frame or table that Arrow can read, not {shown(given)}"],
        )
    table = load_package("pyarrow", "arrow", "insert_columns").table(given)
    return {name: table.column(at) for at, name in enumerate(table.column_names) if not _INDEX(name)}


def _built(model: Model, values: dict[str, list[Any]]) -> Iterator[Any]:
    cls: Any = model.cls
    in_order = []
    for field in model.declaration.fields:
        if field.kw_only or field.name not in values:
            break
        in_order.append(values.pop(field.name))
    if not values:
        return map(cls, *in_order)
    names = list(values)
    return (
        cls(*row[: len(in_order)], **dict(zip(names, row[len(in_order) :], strict=True)))
        for row in zip(*in_order, *values.values(), strict=True)
    )
