"""Columns that are inserted: all of them are checked before the first row is written, and once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

from ..entities.declaration import read_only_fault
from ..entities.entity import refusal
from ..entities.fields import FieldModel
from ..errors import InvalidEntity, did_you_mean, safe_repr
from ..formats.arrow import CheckedColumn, ColumnCheck, load_package, plain_values, proven_column
from ..formats.column_errors import column_fault, package_of
from ..schema.model import Model
from ..values.hooks import HOOK_FAULTS

_BLOCK = 4_000  # values that a processor's cache holds, of all columns: to fetch them is what takes time
_INDEX = re.compile(r"__index_level_\d+__").fullmatch  # pandas sends its index along
_UNNAMED = re.compile(r"Unnamed: \d+").fullmatch  # and writes it into files without a name


def entities_of(model: Model, columns: Sequence[Sequence[Any]]) -> list[Any]:
    """Return entities of the values of all fields; what their functions refuse is refused before any is written."""
    fields = model.declaration.fields
    names = [field.name for field in fields if not field.maintained]
    settable = [column for field, column in zip(fields, columns, strict=True) if not field.maintained]
    entities: list[Any] = []
    for values in zip(*settable, strict=True):
        try:
            entities.append(model.cls(**dict(zip(names, values, strict=True))))
        except HOOK_FAULTS as error:  # a user's function
            raise refusal(f"{model.name} columns, row {len(entities)}", error) from error
    return entities


def values_of(model: Model, source: Any) -> list[Sequence[Any]]:
    """Return the values of all fields, a list for each.

    Args:
        source: a dict of sequences or arrays, by the names of the fields; or any object with columns that Arrow can
            read.

    Raises:
        InvalidEntity: columns are missing, unknown, of different lengths, or hold what cannot be stored; every fault.
    """
    columns = _by_name(model, source)
    table_package = None if isinstance(source, Mapping) else package_of(source)
    fields = {field.name: field for field in model.declaration.parameters}
    failed: dict[str, Exception] = {}
    plain: dict[str, Sequence[Any]] = {}
    for name, field in fields.items():
        if name in columns:
            try:
                plain[name] = _plain(columns[name], field)
            except (ValueError, TypeError) as error:
                failed[name] = error
    values = plain | _checked(fields, plain, failed)
    lengths = {name: len(sized) for name in columns if isinstance(sized := plain.get(name, columns[name]), Sized)}
    faults = list(_name_faults(model, fields, columns))
    for name, failure in failed.items():
        package = table_package or package_of(columns[name])
        faults.append(f"{name}: {column_fault(columns[name], fields[name].type, name, package) or failure}")
    first, count = next(iter(lengths.items()), ("", 0))
    faults += [
        f"{name}: {length} values, but {first} has {count}" for name, length in lengths.items() if length != count
    ]
    if faults:
        raise InvalidEntity(f"{model.name} columns", faults)
    return [values[f.name] if f.name in values else _filled(f, count) for f in model.declaration.fields]


def _name_faults(model: Model, fields: Mapping[str, FieldModel], columns: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the names of columns."""
    yield from (read_only_fault(field) for field in model.maintained if field.name in columns)
    for name in columns:
        if name not in fields and name not in model.declaration.properties:
            yield f"{name}: no such field (fields: {', '.join(fields)}){_mend(str(name), fields)}"
    yield from (f"{name}: it is missing" for name, field in fields.items() if field.required and name not in columns)


def _plain(column: Any, field: FieldModel) -> Sequence[Any]:
    """Return the values of a column; proven ones need no check."""
    proven = None if field.constraint else proven_column(column, field.type, optional=field.optional)
    return plain_values(column, field.type) if proven is None else proven


def _checked(
    fields: Mapping[str, FieldModel], plain: Mapping[str, Sequence[Any]], failed: dict[str, Exception]
) -> dict[str, list[Any]]:
    """Check values by blocks of all columns; return those that change, by field, and note which fields fail."""
    checks = {name: _check(fields[name]) for name, values in plain.items() if not isinstance(values, CheckedColumn)}
    converted: dict[str, list[Any]] = {}
    try:
        for at in range(0, max((len(plain[name]) for name in checks), default=0), _BLOCK):
            for name, check in checks.items():
                block = plain[name][at : at + _BLOCK]
                checked = check.values(block)
                if checked is not block:
                    if name not in converted:
                        converted[name] = list(plain[name])
                    converted[name][at : at + _BLOCK] = checked
    except (ValueError, TypeError):
        for name, check in checks.items():
            try:
                check.values(plain[name])
            except (ValueError, TypeError) as error:
                failed[name] = error
    return converted


def _mend(name: str, fields: Iterable[str]) -> str:
    if _UNNAMED(name):
        return "; it is the index that to_csv wrote: read_csv(…, index_col=0), or to_csv(…, index=False)"
    return did_you_mean(name, fields)


def _check(field: FieldModel) -> ColumnCheck:
    return ColumnCheck(field.type, optional=field.optional, constraint=field.constraint)


def _filled(field: FieldModel, count: int) -> Sequence[Any]:
    """Return the values of a column that is left out."""
    if field.factory is not None:
        return _check(field).values([field.factory() for _ in range(count)])
    return [None if field.measure is not None else field.default] * count


def _by_name(model: Model, source: Any) -> Mapping[Any, Any]:
    if isinstance(source, Mapping):
        return source
    if not hasattr(source, "__arrow_c_stream__"):
        mend = ""
        if isinstance(source, list | tuple) and all(isinstance(item, Mapping) for item in source):
            mend = f"; write store.insert_many(tm.from_dict({model.name}, row) for row in rows)"
        elif type(source).__name__ == "LazyFrame":
            mend = "; write frame.collect()"
        fault = (
            f"expected a dict of columns, or a data frame or table that Arrow can read, got {safe_repr(source)}{mend}"
        )
        raise InvalidEntity(f"{model.name} columns", [fault])
    table = load_package("pyarrow", "arrow", "insert_columns").table(source)
    return {name: table.column(at) for at, name in enumerate(table.column_names) if not _INDEX(name)}
