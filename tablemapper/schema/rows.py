"""The rows of a class, and the generated functions between rows and objects.

A *row* is what every engine and the maintenance work with, a tuple in stored form::

    (partition key, row key, timestamp in µs, property, property, …)

The properties are the fields that the key does not hold, in the order of the class. An engine may add values of its
own at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, NoReturn, TypeVar

import msgspec

from ..codegen import Names, compile_functions
from ..entities.constructor import on_write_source
from ..entities.declaration import Declaration, checked_on_write, located
from ..entities.entity import check_rule, check_whole
from ..entities.fields import FieldModel
from ..errors import CorruptStore, EntityTooLarge, InvalidEntity, TableMapperError, safe_repr
from ..keys.composite_times import decode_source
from ..keys.encodings import check_key
from ..limits import (
    MAX_ENTITY,
    MAX_INT64,
    MAX_PROPERTIES,
    MIN_INT64,
    Edm,
    check_value,
    entity_size,
    fixed_size,
    property_size,
    string_size,
)
from ..pieces import in_pieces, size_in_pieces
from ..values.extra import undeclared_properties
from ..values.scalars import ValueFault, checked_load, read_total, same_stored

Row = tuple[Any, ...]
T = TypeVar("T")

DAMAGE: tuple[type[Exception], ...] = (
    ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RecursionError, msgspec.MsgspecError,
)  # fmt: skip
"""What is raised over stored values that no write of this library made. (Its own errors are some of these, too.)"""
UNREADABLE: tuple[type[Exception], ...] = (TableMapperError, *DAMAGE)
"""The same, and what this library makes of it."""


class Mistyped(NamedTuple):
    """A value in a row whose type on Azure is not that of its field: no field stores such a value, so it is damage."""

    edm: str
    value: Any

    def __repr__(self) -> str:
        return f"{self.value!r} of the type {self.edm}"


FIRST = 3  # where the properties begin in a row
TYPE_PROPERTY = "EntityType"  # what ``type=`` of a class is stored as
SAFE_LENGTH = 16_000  # characters that cannot be over any limit of size, whatever they are


def row_functions(declaration: Declaration, columns: tuple[FieldModel, ...]) -> dict[str, Callable[..., Any]]:
    """Return ``to_row``, ``to_written_row``, ``to_rows``, ``columns_to_rows``, ``most``, ``build`` and ``build_one`` of a class.

    See `schema.model.Model`.
    """
    cls: Any = declaration.cls
    names = Names(
        Raw=cls.__raw__, Cls=cls, check_whole=check_whole, check_rule=check_rule, check_sizes=_size_check(declaration, columns),
        damaged=lambda row, error: _damaged(declaration, columns, row, error), bad=_bad(declaration), check_key=check_key, DAMAGE=DAMAGE, ValueFault=ValueFault, repeat=repeat,
        cause=lambda entity, error: _cause(declaration, columns, entity, error),
    )  # fmt: skip
    source = "\n".join([*_to_rows_source(declaration, columns, names), *_build_source(declaration, columns, names)])
    return compile_functions(f"{declaration.name} rows", source, names)


def _to_rows_source(declaration: Declaration, columns: tuple[FieldModel, ...], names: Names) -> list[str]:
    body = _entity_source(declaration, columns, names)
    failed = "except DAMAGE as error: raise cause(e, error)"
    long = [at for at, field in enumerate(columns, FIRST) if _has_length(field)]
    fixed = fixed_size([(field.property, field.type.edm) for field in columns]) + 4 * len(long)
    if declaration.type_name is not None:
        fixed += property_size(TYPE_PROPERTY, "String") + string_size(declaration.type_name)
    puts = list(on_write_source(declaration, names))
    to_written_row = ["def to_written_row(e):", *[f"    {line}" for line in puts], "    return to_row(e)"]
    lengths = "".join([f" + (0 if row[{at}] is None else len(row[{at}]))" for at in long])
    return [
        "def to_row(e):",
        "    try:",
        *[f"        {line}" for line in body],
        "        return row",
        f"    {failed}",
        *(to_written_row if puts else ["to_written_row = to_row"]),
        "def to_rows(entities, kept, rows):",
        "    keep = kept.append; add = rows.append",
        "    total = 0",
        "    for e in entities:",
        "        try:",
        *[f"            {line}" for line in (*puts, *body)],
        f"        {failed}",
        "        total += n",
        "        keep(e); add(row)",
        "    return total",
        *_columns_source(declaration, columns, names),
        "def most(row):",
        f"    n = len(row[0]) + len(row[1]){lengths}",
        f"    return {fixed} + 4 * n + (n >> 4)",  # (a sixteenth of a character for the names of pieces)
    ]


def _has_length(field: FieldModel) -> bool:
    return field.type.edm in ("String", "Binary") and field.measure is None


def _entity_source(declaration: Declaration, columns: tuple[FieldModel, ...], names: Names) -> list[str]:
    lines = ["try: row = e._row", "except AttributeError: row = check_whole(e)"]  # which returns None
    add = lines.append
    if declaration.has_rule:
        add("check_rule(e)")
    add("if row is None:")
    keys = {name: f"k{at}" for at, name in enumerate(declaration.arguments)}
    lines += [f"    {variable} = e.{name}" for name, variable in keys.items()]
    for key, template in zip(("pk", "rk"), declaration.templates, strict=True):
        add(f"    {key} = {template.encode_source(keys, names)}")
    add("else:")  # key fields are read-only by now
    add("    pk = row[0]; rk = row[1]")
    values, lengths = [], ["len(pk)", "len(rk)"]
    for at, field in enumerate(columns):
        variable = f"v{at}"
        stored_source = field.type.store_source(variable, names)
        if field.type.kind is object:  # nested values can have changed since they were set
            store = names.name("store", _constrained_store(field))
            add(f"try: {variable} = None if e.{field.name} is None else {store}(e.{field.name})")
            add(f"except ValueFault as error: bad({field.name!r}, error)")
            stored_source = variable
        else:
            add(f"{variable} = e.{field.name}")
            if field.wide:
                stored_source = f"{names.name('wide', _store_wide)}({variable})"
        optional = field.optional or field.measure is not None
        if field.type.spillable:
            lengths.append(
                f"(0 if {variable} is None else len({stored_source}))" if optional else f"len({stored_source})"
            )
        values.append(
            f"None if {variable} is None else {stored_source}"
            if optional and stored_source != variable
            else stored_source
        )
    add(f"row = (pk, rk, 0, {''.join([value + ', ' for value in values])})")
    add(f"n = {' + '.join(lengths)}")
    extra = next((at for at, field in enumerate(columns) if field.type.undeclared), None)
    add("if n > 256:")  # else neither of the keys is long
    for key, part in (("pk", "partition"), ("rk", "row")):
        add(f"    if len({key}) > 256: check_key({key}, what={f'{declaration.name} {part} key'!r})")
    add(f"    if n > {SAFE_LENGTH}: check_sizes(row, getattr(e, '_row', None))")
    if extra is not None:
        add(f"if v{extra} is not None and len(v{extra}) > 2: check_sizes(row, getattr(e, '_row', None))")
    return lines


def _columns_source(declaration: Declaration, columns: tuple[FieldModel, ...], names: Names) -> list[str]:
    """Return the source of a function that makes rows of lists of checked values, column by column."""
    lists = {field.name: f"f{at}" for at, field in enumerate(declaration.fields)}
    lines = ["def columns_to_rows(columns, rows):", f"    {', '.join(lists.values())}, = columns"]
    add = lines.append
    keys = {name: f"k{at}" for at, name in enumerate(declaration.arguments)}
    for key, template in zip(("pk", "rk"), declaration.templates, strict=True):
        arguments = [name for name in declaration.arguments if name in template.fields]
        variables = ", ".join([keys[name] for name in arguments])
        inputs = ", ".join([lists[name] for name in arguments])
        if len(arguments) != 1:
            variables, inputs = f"({variables})", f"zip({inputs})" if arguments else "repeat((), len(f0))"
        add(f"    {key} = [{template.encode_source(keys, names)} for {variables} in {inputs}]")
    row_columns, texts = ["pk", "rk", "repeat(0)"], ["pk", "rk"]
    for field in columns:
        column = lists[field.name]
        if field.on_write is not None:
            check = names.name("on_write", partial(_checked_values_on_write, declaration, field))
            add(f"    {column} = {check}(len(pk))")
        value = field.type.store_source("v", names)
        if field.type.kind is object:
            value = f"{names.name('store', field.type.store)}(v)"
        elif field.wide:
            value = f"{names.name('wide', _store_wide)}(v)"
        if value != "v":
            missing = "None if v is None else " if field.optional or field.measure is not None else ""
            add(f"    {column} = [{missing}{value} for v in {column}]")
        row_columns.append(column)
        if field.type.spillable:
            texts.append(column)
    add("    longest = total = 0")
    for column in texts:
        add(f"    lengths = list(map(len, filter(None, {column}))); total += sum(lengths)")
        if column in ("pk", "rk"):
            subject = f"{declaration.name} {'partition' if column == 'pk' else 'row'} key"
            add("    if max(lengths, default=0) > 256:")
            add(f"        for key in {column}: check_key(key, what={subject!r})")
        else:
            add("    longest += max(lengths, default=0)")
    add(f"    block = list(zip({', '.join(row_columns)}))")
    extra = any(field.type.undeclared for field in columns)
    add(f"    if {'True' if extra else f'longest > {SAFE_LENGTH}'}:")
    add("        for row in block: check_sizes(row)")
    add("    rows += block")
    add("    return total, longest")
    return lines


def _checked_values_on_write(declaration: Declaration, field: FieldModel, count: int) -> list[Any]:
    on_write: Any = field.on_write
    return [checked_on_write(declaration, field, on_write()) for _ in range(count)]


def _constrained_store(field: FieldModel) -> Callable[[Any], Any]:
    """Return the function that writes a nested value, if that is still what the field asks of it."""
    constraint, store = field.constraint, field.type.store
    if constraint is None:
        return store

    def checked(value: Any) -> Any:
        constraint.check(value)
        return store(value)

    return checked


def _build_source(declaration: Declaration, columns: tuple[FieldModel, ...], names: Names) -> list[str]:
    body = list(_object_source(declaration, columns, names))
    failed = [
        "    except DAMAGE as error:",
        "        raise damaged(row, error) from error",
    ]
    return [
        "def build(rows):",
        "    built = []; add = built.append",
        "    row = None",
        "    try:",
        "        for row in rows:",
        *[f"            {line}" for line in body],
        "            add(e)",
        *failed,
        "    return built",
        "def build_one(row):",
        "    try:",
        *[f"        {line}" for line in body],
        "        return e",
        *failed,
    ]


def _object_source(declaration: Declaration, columns: tuple[FieldModel, ...], names: Names) -> Iterator[str]:
    yield "e = Raw()"
    yield "pk = row[0]; rk = row[1]"
    targets = {name: f"e.{name}" for name in declaration.arguments if name in declaration.key_only}
    yield from decode_source(declaration.templates, ("pk", "rk"), targets, names)
    for at, field in enumerate(columns, FIRST):
        variable = f"row[{at}]"
        yield f"v = {variable}"
        yield f"e.{field.name} = {read_source(field, 'v', names)}"
    yield "e._row = row"
    yield "e.__class__ = Cls"


def load_source(field: FieldModel, variable: str, names: Names) -> str:
    """Return source of a field's value, a variable holding its stored property."""
    load = field.type.load_source(variable, names)
    if field.measure is not None and field.type.kind is Decimal:
        load = f"{names.name('total', read_total)}({variable})"
    if field.wide:
        load = f"{variable} if {variable}.__class__ is int else int({variable})"
    if load != variable and (field.optional or field.measure is not None):
        load = f"None if {variable} is None else {load}"
    return load


def read_source(field: FieldModel, variable: str, names: Names) -> str:
    """Return source of what `load_source` gives, which raises if the value is of another storage class, or is missing."""
    load = load_source(field, variable, names)
    if field.wide or field.type.load_refuses:
        return load
    is_stored = f"{variable}.__class__ is {_STORED_TYPES[field.type.edm].__name__}"
    refuse = f"{names.name('refuse', partial(_refuse, field))}({variable})"
    if field.optional or field.measure is not None:
        return f"{load} if {variable} is None or {is_stored} else {refuse}"
    return f"{load} if {is_stored} else {refuse}"


def _refuse(field: FieldModel, value: Any) -> NoReturn:
    raise ValueFault(
        _fault(field, value) or f"{field.name}: {safe_repr(value)} is not the stored form of {field.type.name}"
    )


def loaded(field: FieldModel, value: Any) -> Any:
    """Return a field's value, as `load_source` does; but refuse whatever no write would have stored."""
    if field.wide:
        return checked_load("int", int, _store_wide)(value)
    return (read_total if field.measure is not None and field.type.kind is Decimal else field.type.load)(value)


def same_rows(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Return whether two rows, or parts of them, hold the same stored values."""
    return a == b and all(map(same_stored, a, b))


def row_faults(columns: tuple[FieldModel, ...], row: Row) -> Iterator[tuple[int, str]]:
    """Yield the places of an entity's row that no write of this library can have made, and what is wrong there.

    Reads trust what is stored, for it was checked before it was written. This is for what went wrong all the same.
    """
    for at, field in enumerate(columns, FIRST):
        if (fault := _fault(field, row[at])) is not None:
            yield at, fault


def _fault(field: FieldModel, value: Any) -> str | None:
    """Return what is wrong with a stored value; None if nothing is."""
    if value is None:
        return None if field.nullable else f"{field.name}: the value is missing, and the field is not optional"
    try:
        loaded(field, value)
    except DAMAGE as error:
        return f"{field.name}: {error}"
    if not field.type.spillable or field.type.undeclared or len(value) <= SAFE_LENGTH:
        return None
    # (How much a property takes is a rule for new values; whoever declares the field as large may have written more.)
    size = size_in_pieces(field.property, value)
    return None if size <= MAX_ENTITY else f"{field.name}: {size:,} bytes, but an entity may have {MAX_ENTITY:,}"


_STORED_TYPES: dict[Edm, type] = {
    "String": str, "DateTime": str, "Guid": str, "Int32": int, "Int64": int, "Boolean": int, "Double": float, "Binary": bytes
}  # fmt: skip
"""The class of stored values, by the type of the property."""
_SOUND = {
    "str": "({v}.__class__ is str and len({v}) <= 16000)",
    "bytes": "({v}.__class__ is bytes and len({v}) <= 16000)",
    "int": "{v}.__class__ is int",
    "float": "{v}.__class__ is float",
    "bool": "({v}.__class__ is int and 0 <= {v} <= 1)",
    "timedelta": "{v}.__class__ is int",
    "Decimal": "({v}.__class__ is str and {decimal}({v}))",
}
"""By the name of a type, source that is true only of what a write stores."""
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,20})(?:\.[0-9]{1,6})?").fullmatch


def sound_source(field: FieldModel, variable: str, names: Names) -> str:
    """Return source that is true exactly of the stored values in which `row_faults` finds nothing wrong."""
    quick = "" if field.measure is not None else _SOUND.get(field.type.name, "")
    slow = f"{names.name('sound', partial(_is_sound, field))}({variable})"
    quick = quick and quick.format(v=variable, decimal=names.name("decimal", _DECIMAL))
    return f"({quick} or {slow})" if quick else slow


def _is_sound(field: FieldModel, value: Any) -> bool:
    return _fault(field, value) is None


def _cause(declaration: Declaration, columns: tuple[FieldModel, ...], entity: Any, error: Exception) -> Exception:
    """Return what to raise where an entity cannot be written: it may have been read from a damaged row."""
    row = getattr(entity, "_row", None)
    is_whole = row is not None and len(row) >= FIRST + len(
        columns
    )  # one that came as JSON has its key and its ETag alone
    fault = None if row is None or not is_whole else next(row_faults(columns, row), None)
    return error if fault is None else unreadable(declaration.name, row, fault[1])


def _damaged(declaration: Declaration, columns: tuple[FieldModel, ...], row: Row | None, error: Exception) -> Exception:
    """Return what to raise where no entity can be made of a row."""
    fault = None if row is None else next((fault for _, fault in row_faults(columns, row)), None)
    return unreadable(declaration.name, row, fault or error)


def unreadable(name: str, row: Row | None, fault: object, remedy: str = "run check()") -> CorruptStore:
    """Return the error of a row that cannot be read."""
    where = "a row" if row is None else f"the row with the key {row[:2]}"
    return CorruptStore(f"{name}: {where} cannot be read: {fault}; {remedy}")


def readable(rows: Iterator[T], subject: str) -> Iterator[T]:
    """Yield rows; what cannot be read of them while they are compared or made is CorruptStore."""
    try:
        yield from rows
    except TableMapperError:
        raise
    except DAMAGE as error:
        raise unreadable(subject, None, error) from error


def _store_wide(value: int | None) -> int | str | None:
    """Return an integer as SQLite can hold it: as text beyond 64 bits."""
    return value if value is None or MIN_INT64 <= value <= MAX_INT64 else str(value)


def _bad(declaration: Declaration) -> Callable[[str, ValueError], None]:
    def bad(field: str, error: ValueError) -> None:
        raise InvalidEntity(declaration.name, [located(field, error)]) from None

    return bad


def properties(
    declaration: Declaration | None, columns: tuple[FieldModel, ...], row: Row
) -> Iterator[tuple[str, Edm, Any]]:
    """Yield the properties that a row has on Azure, but for its key: name, EDM type, stored value.

    Args:
        declaration: the class of an entity, whose type name is one of them; None for a row of an index, which has none, and where
            a maintained field is a property, too.
        columns: what the row holds.
        row: of either.
    """
    if declaration is not None and declaration.type_name is not None:
        yield TYPE_PROPERTY, "String", declaration.type_name
    for at, field in enumerate(columns, FIRST):
        if (value := row[at]) is None or (declaration is not None and field.maintained):
            continue
        if field.type.undeclared:
            for name, edm, undeclared_value in undeclared_properties(value):
                yield from in_pieces(name, edm, undeclared_value)
        elif field.type.spillable:
            yield from in_pieces(field.property, field.type.edm, value)
        else:
            yield field.property, field.type.edm, value


def _size_check(declaration: Declaration, columns: tuple[FieldModel, ...]) -> Callable[..., None]:
    names = {field.property for field in declaration.fields if not field.type.undeclared}

    def check(row: Row, old: Row | None = None) -> None:
        """Raise EntityTooLarge; values that are those of the row that the entity was read as may be large all the same."""
        values = _limited_values(columns, row)
        if clashes := [name for name, is_declared in values if not is_declared and name in names]:
            faults = [f'the undeclared property "{name}" is a declared one; set that instead' for name in clashes]
            raise InvalidEntity(f"{declaration.name} {row[:2]}", faults)
        long = {place: fault for place, value in values.items() if (fault := check_value(place[0], value)) is not None}
        old_values = _limited_values(columns, old) if long else {}
        faults = [fault for place, fault in long.items() if old_values.get(place) != values[place]]
        stored_properties = list(properties(declaration, columns, row))
        if len(stored_properties) > MAX_PROPERTIES:
            faults.append(f"{len(stored_properties)} properties, but an entity may have {MAX_PROPERTIES}")
        if (size := entity_size(row[0], row[1], stored_properties)) > MAX_ENTITY:
            faults.append(f"{size:,} bytes, but an entity may have {MAX_ENTITY:,}")
        if faults:
            raise EntityTooLarge(f"{declaration.name} {row[:2]}", faults)

    return check


def _limited_values(columns: tuple[FieldModel, ...], row: Row | None) -> dict[tuple[str, bool], Any]:
    """Return the values of a row that may have the size of a property, by name, and by whether that is of a field."""
    values: dict[tuple[str, bool], Any] = {}
    if row is None or len(row) < FIRST + len(columns):  # (one that came as JSON has its key and its ETag alone)
        return values
    for at, field in enumerate(columns, FIRST):
        if field.type.undeclared:
            values |= {} if row[at] is None else {(n, False): v for n, _, v in undeclared_properties(row[at])}
        elif field.large is False and _has_length(field):
            values[field.name, True] = row[at]
    return values
