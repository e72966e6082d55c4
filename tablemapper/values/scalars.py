"""Scalar types, and the base of all field types.

Each scalar is one line of a table. It says how a value is checked and normalised, and what stands for it in a column
or a property. It has the Python source of the same for generated functions. The types of nested values are in
`values.nested`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Clamped, Context, Decimal, Inexact, InvalidOperation, Overflow, Rounded, Subnormal
from enum import Enum
from typing import Annotated, Any, TypeAlias
from uuid import UUID

import attrs
import msgspec

from ..codegen import Names
from ..conversions import conversion
from ..datetime_types import Builtin
from ..errors import safe_repr
from ..limits import FIXED_SIZES, MAX_INT32, MAX_INT64, MIN_DATETIME, MIN_INT32, MIN_INT64, Edm, string_size
from ..own_types import OwnType

INT32_RANGE = msgspec.Meta(ge=MIN_INT32, le=MAX_INT32)
Int32: TypeAlias = Annotated[int, INT32_RANGE]
"""An int of 32 bits: Azure's Int32, where a plain int is an Int64."""

_TRAPS = [Clamped, Inexact, InvalidOperation, Overflow, Rounded, Subnormal]
_DECIMALS = Context(34, Emin=-6143, Emax=6144, traps=_TRAPS)
_TOTALS = Context(13_000, Emin=-6300, Emax=6300, traps=_TRAPS)  # sums of these, and sums divided
_WELL = re.compile("[^\ud800-\udfff]*").fullmatch
_text = msgspec.to_builtins
_Function: TypeAlias = Callable[[Any], Any]


def same_stored(a: Any, b: Any) -> bool:
    """Return whether two stored values are the same: 1, 1.0 and True are three."""
    return a.__class__ is b.__class__ and bool(a == b)


class ValueFault(ValueError):
    """The fault of a value or a type. ``path`` is its place below the field: ``.address.city``, ``[3]``."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.problem = problem
        self.path = path


def unexpected(expected: str, value: object, hint: str = "", at: str = "") -> ValueFault:
    hint = hint or conversion(expected, value)
    return ValueFault(f"expected {expected}, got {type(value).__name__} {safe_repr(value)}{hint and '; ' + hint}", at)


@attrs.frozen(eq=False, repr=False)
class ValueType:
    """The type of a field."""

    name: str
    """Canonical text: equal for equal types, stored in the catalogue."""
    kind: type
    """The scalar type of the values; for Enum and Literal that of *their* values, ``object`` for nested ones."""
    edm: Edm
    """The type of the property on Azure."""
    check: _Function
    """Return the value, normalised; raise `ValueFault` if it is none of this type."""
    store: _Function
    """Return the stored form of a checked value."""
    load: _Function
    """Return the value that a stored form stands for; raise ValueError if it is the form of none."""
    to_json: _Function
    """Return what stands for a checked value inside JSON."""
    from_json: _Function
    """Return the value that `to_json` was given; raise ValueError if nothing gives this."""
    fast: str = "False"
    writes: str = "{v}"
    reads: str = "{v}"
    encodes: str = "{v}"
    """Source of what msgspec writes as the JSON of a checked value: the same as that of `to_json`."""
    objects: Mapping[str, Any] = {}
    """The globals of the four sources above, by the name that stands for them there."""
    ordered: bool = True
    """Whether the values can be compared with ``<``."""
    sql_ordered: bool = True
    """Whether the stored forms are equal, and sort, as the values do."""
    text: bool = False
    """Whether the values are text of any kind: no Enum, no Literal."""
    cuttable: bool = False
    """Whether the values are times, so that their date or another part can be taken."""
    summable: bool = False
    """Whether the values can be added up."""
    calculable: bool = False
    """Whether operators such as + work on the values."""
    load_refuses: bool = False
    """Whether the source that reads a stored form raises for one of another class."""
    key_text: bool = False
    """Whether the stored form is the plain text that the value has in a key."""
    lossless_in_key: bool = True
    """Whether a key gives back all of a value."""
    sql_in_json: bool = False
    """Whether SQL takes the same value out of JSON as out of a column."""
    dynamic: bool = False
    """Whether only each value says what type it is of."""
    undeclared: bool = False
    """Whether the values are the properties that a class does not declare."""
    hierarchy: bool = False
    """Whether the values are tuples of texts, in which the row of a key can end."""
    keyable: bool = True
    key_kind: Any = None
    """What the key codec gets: the scalar type, the Enum, or the class of a user."""
    own: OwnType | None = None
    """The class of a user that the values are of; ``kind`` is the scalar that stands for it."""
    spillable: bool = False
    """Whether a value can be so long that it is kept apart from its row."""
    fixed: int | None = None
    """The size of every value in bytes, as Azure counts it; None if it depends on the value."""
    enum: type[Enum] | None = None
    members: list[Any] | None = None
    """The values of an Enum or a Literal, sorted; for a list, those of its elements."""
    precision: str = ""
    """How much of a time is kept, ``s``, ``ms`` or ``us``, if the field says so."""
    uncut: ValueType | None = None
    """The type without the precision."""
    element: ValueType | None = None
    """The type of the elements of a list, set or tuple of scalars; its ``store`` is the form inside JSON."""
    json_schema: dict[str, Any] | None = None
    """What nested values look like in a store; None if the name says it all."""
    container: type | None = None
    """What the values are, if they hold others without names of their own: dict, list, tuple, set or frozenset."""
    member: Callable[[Any], tuple[ValueType, str]] | None = None
    """Return the type of a nested value, and its step in a JSON path; None if there are none."""

    def __repr__(self) -> str:
        return f"<ValueType {self.name}>"

    @property
    def base(self) -> str:
        """The name without the members: that of their type; of a class of a user that of its scalar."""
        if self.members is None:
            return self.name if self.own is None else SCALARS[self.kind].name
        return self.kind.__name__ if self.element is None else f"list[{self.element.base}]"

    @property
    def sortable(self) -> bool:
        """Whether any two values can be put in order."""
        return self.ordered and not self.dynamic

    def same(self, value: Any, stored_value: Any) -> bool:
        """Return whether a value is stored as one that was read; ``==`` takes 2 and 2.00, or 1 and True in JSON, for one."""
        if value is None or stored_value is None or self.equal_as_stored:
            return bool(value == stored_value)
        try:
            stored_form = self.store(stored_value)
        except ValueError:  # (an old row may hold what no write would take)
            return bool(value == stored_value)
        try:
            return same_stored(self.store(value), stored_form)
        except ValueError:  # (it was changed in place, to what cannot be stored)
            return False

    @property
    def equal_as_stored(self) -> bool:
        """Whether ``==`` says of two values what `same` does."""
        return self.sql_ordered and self.enum is None and self.own is None

    def same_kind(self, other: ValueType) -> bool:
        """Return whether two types differ in their range at most."""
        if self.own is not other.own:
            return False
        return self.plain.name == other.plain.name or (self.calculable and other.calculable and self.kind is other.kind)

    def comparable(self, other: ValueType) -> bool:
        """Return whether values of two types can be compared."""
        if self.dynamic or other.dynamic or self.same_kind(other):
            return True
        return self.calculable and other.calculable and {self.kind, other.kind} == {int, float}

    def takes(self, other: ValueType) -> bool:
        """Return whether values of another type may be assigned; each is checked."""
        if other.dynamic or self.same_kind(other):
            return True
        return self.calculable and other.calculable and (other.kind, self.kind) == (int, float)

    @property
    def plain(self) -> ValueType:
        """The type that the annotation says: without a precision."""
        return self.uncut or self

    def scalar_of(self, value: Any) -> Any:
        """Return the scalar that a value of a class of a user is stored as; any other value as it is."""
        return value if self.own is None else self.own.plain(value)

    def operand(self, value: Any, op: str = "==") -> Any:
        """Return the value as it is compared; raise ValueError if it is of another type.

        What may equal a value of the field is cut as that is; what is above or below stays as it is.
        """
        return (self if op in ("==", "!=", "is in") else self.plain).check(value)

    def dump(self, value: Any) -> Any:
        """Return the value in builtins that JSON knows."""
        return self.to_json(value)

    def undump(self, form: Any) -> Any:
        """Return the value that `dump` was given; raise ValueError if it was none of this type."""
        try:
            return self.plain.check(self.from_json(form))
        except (TypeError, AttributeError, LookupError, ArithmeticError, msgspec.MsgspecError) as error:
            raise ValueFault(f"{safe_repr(form)} is no value of {self.name}: {error}") from None

    def fast_source(self, variable: str, names: Names) -> str:
        """Return source that is true only of values that are as `check` would return them; ``variable`` is a name."""
        return self._source(self.fast, variable, names)

    def store_source(self, variable: str, names: Names) -> str:
        """Return source of what `store` returns for a checked value."""
        return self._source(self.writes, variable, names)

    def load_source(self, variable: str, names: Names) -> str:
        """Return source of what `load` returns; it trusts the stored form."""
        return self._source(self.reads, variable, names)

    def json_source(self, variable: str, names: Names) -> str:
        """Return source of what msgspec writes as the JSON form of a checked value."""
        return self._source(self.encodes, variable, names)

    def _source(self, template: str, variable: str, names: Names) -> str:
        objects = {hint: names.name(hint, value) for hint, value in self.objects.items() if f"{{{hint}}}" in template}
        return template.format(v=variable, **objects)

    def nested(self, path: tuple[Any, ...]) -> ValueType:
        """Return the type of a nested value, stored as it is inside JSON.

        With an empty path it is the type itself.
        """
        if not path:
            return self
        member_type = self
        for name in path:
            member_type = member_type._member(name)[0]
        return inside_json(member_type)

    def json_path(self, path: tuple[str, ...]) -> str:
        """Return where a nested value stands in the JSON text, as SQLite's ``json_extract`` takes it."""
        member_type, text = self, "$"
        for name in path:
            member_type, step = member_type._member(name)
            text += step
        return text

    def member_type(self, name: str | int) -> ValueType:
        """Return the type of a nested value, as it is by itself."""
        return self._member(name)[0]

    def _member(self, name: str | int) -> tuple[ValueType, str]:
        if self.member is None:
            raise ValueFault(f"{self.name} has no nested values; attrs classes, dataclasses, Structs and dicts have")
        if not isinstance(name, str) and not (name.__class__ is int and self.container in (list, tuple)):
            raise ValueFault(f"expected the name of a nested value, got {safe_repr(name)}")
        return self.member(name)


# -- scalars -----------------------------------------------------------------------------------------------------------


def _check_str(value: Any) -> str:
    if not isinstance(value, str):
        if not isinstance(value, Enum) or not isinstance(value.value, str):
            raise unexpected("str", value)
        value = value.value
    elif isinstance(value, Enum):
        value = value.value
    value = str.__str__(value)
    if not value.isascii() and not _WELL(value):
        raise ValueFault(f"{safe_repr(value)} contains a lone surrogate, which is not a character and cannot be stored")
    return value  # type: ignore[no-any-return]


def _check_integer(bits: int) -> _Function:
    low, high = (MIN_INT64, MAX_INT64) if bits == 64 else (MIN_INT32, MAX_INT32)
    name, wider = ("int", "Decimal") if bits == 64 else (f"int{bits}", "int")

    def check(value: Any) -> int:
        if not isinstance(value, int) or value.__class__ is bool:
            raise unexpected(name, value)
        if not low <= value <= high:
            raise ValueFault(f"{safe_repr(int(value))} does not fit in {bits} bits; {wider} holds more")
        return int(value)

    return check


def _check_float(value: Any) -> float:
    if isinstance(value, int) and value.__class__ is not bool:
        try:
            number = float(value)
        except OverflowError:
            number = math.nan
        if number != value:
            raise ValueFault(f"the int {safe_repr(value)} is not exact as a float: the nearest float differs")
        return number or 0.0
    if not isinstance(value, float):
        raise unexpected("float", value)
    if math.isnan(value):
        raise ValueFault("nan cannot be stored, because it does not equal itself; use None for a missing value")
    return float(value) or 0.0


def _check_bool(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise unexpected("bool", value)


def _check_datetime(value: Any) -> datetime:
    if value.__class__ is Builtin.datetime and value.tzinfo is UTC and not value.fold and value >= MIN_DATETIME:
        return value
    if not isinstance(value, datetime):
        start = f"({value.year}, {value.month}, {value.day}, tzinfo=UTC)" if isinstance(value, date) else ""
        raise unexpected("datetime", value, start and f"use datetime{start}, or .date() of the field in a condition")
    try:
        offset = value.utcoffset()
    except ValueError as error:  # of its time zone
        raise ValueFault(f"{safe_repr(value)}: {error}") from None
    if offset is None:
        raise ValueFault(
            f"{safe_repr(value)} has no time zone; datetime.now(UTC) has, and .replace(tzinfo=…) gives one"
        )
    try:
        utc = value.astimezone(UTC)
    except OverflowError:
        raise ValueFault(f"{safe_repr(value)} is outside the years {MIN_DATETIME.year} to 9999 in UTC") from None
    at = Builtin.datetime(utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond, UTC)
    if at < MIN_DATETIME:
        raise ValueFault(
            f"{safe_repr(value)} is before {MIN_DATETIME:%Y-%m-%d}, the first time that Azure Table storage knows"
        )
    return at


def _check_date(value: Any) -> date:
    if isinstance(value, datetime):
        raise unexpected("date", value, "use .date()")
    if not isinstance(value, date):
        raise unexpected("date", value)
    return Builtin.date(value.year, value.month, value.day)


def _check_time(value: Any) -> time:
    if not isinstance(value, time):
        raise unexpected("time", value)
    if value.tzinfo is not None:
        raise ValueFault(f"{safe_repr(value)} has a time zone; a time of day is stored without one")
    return time(value.hour, value.minute, value.second, value.microsecond)


def _check_timedelta(value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        raise unexpected("timedelta", value)
    if not MIN_INT64 <= _microseconds(value) <= MAX_INT64:
        raise ValueFault(f"{safe_repr(value)} does not fit in 64 bits of microseconds (292,000 years)")
    finer = value.days < 0 and getattr(value, "nanoseconds", 0) > 0  # (pandas cuts away from 0)
    return timedelta(value.days, value.seconds, value.microseconds + finer)


def _microseconds(value: timedelta) -> int:
    return value.days * 86400000000 + value.seconds * 1000000 + value.microseconds


def _check_decimal(value: Any) -> Decimal:
    if not isinstance(value, Decimal):
        raise unexpected("Decimal", value, f"use Decimal('{safe_repr(value)}')" if type(value) in (int, float) else "")
    if not value.is_finite():
        raise ValueFault(f"{safe_repr(value)} is not finite")
    try:
        return _DECIMALS.plus(value)
    except ArithmeticError:
        raise ValueFault(f"{safe_repr(value)} is outside the Decimals: 34 digits, exponent -6143 to 6144") from None


def _read_decimal(stored_form: Any, context: Context = _DECIMALS) -> Decimal:
    """Return a stored Decimal. What has a giant exponent is two words on disk, and no end in a sum."""
    try:
        if stored_form.__class__ is str and (value := context.create_decimal(stored_form)).is_finite():
            return value
    except ArithmeticError:
        pass
    raise ValueFault(f"{safe_repr(stored_form)} is not the stored form of Decimal")


def read_total(stored_form: Any) -> Decimal:
    """Return a stored sum of Decimals, or a sum divided."""
    return _read_decimal(stored_form, _TOTALS)


def _check_uuid(value: Any) -> UUID:
    if not isinstance(value, UUID):
        raise unexpected("UUID", value, f"use UUID({value!r})" if isinstance(value, str) and len(value) == 36 else "")
    return value if value.__class__ is UUID else UUID(int=value.int)


def _check_bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise unexpected("bytes", value, "use .encode()" if isinstance(value, str) else "")
    return bytes(value)


def _store_datetime(value: datetime) -> str:
    text: str = _text(value)
    return text if value.microsecond else f"{text[:19]}.000000Z"


def _same(value: Any) -> Any:
    return value


def checked_load(name: str, parse: _Function, store: _Function) -> _Function:
    """Return a load that refuses whatever ``store`` would not have written."""

    def load(stored_form: Any) -> Any:
        try:
            value = parse(stored_form)
            if store(value) == stored_form and store(value).__class__ is stored_form.__class__:
                return value
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, msgspec.MsgspecError):
            pass
        raise ValueFault(f"{safe_repr(stored_form)} is not the stored form of {name}")

    return load


def _scalar(
    kind: type,
    check: _Function,
    edm: Edm,
    fast: str,
    *,
    name: str = "",
    chars: int = 0,
    store: _Function = _same,
    parse: _Function | None = None,
    to_json: _Function | None = None,
    from_json: _Function | None = None,
    writes: str = "{v}",
    reads: str = "{v}",
    encodes: str = "{v}",
    sql_ordered: bool = True,
    spillable: bool = False,
    text: bool = False,
    cuttable: bool = False,
    summable: bool = False,
    calculable: bool = False,
    load_refuses: bool = False,
    key_text: bool = False,
    lossless_in_key: bool = True,
    sql_in_json: bool = False,
    **objects: Any,
) -> ValueType:
    name = name or kind.__name__
    load = checked_load(name, parse or check, store)
    return ValueType(
        name, kind, edm, check, store, load, to_json or store, from_json or load,
        fast=f"{{v}}.__class__ is {{{kind.__name__}}}{fast}" if fast != "False" else fast, writes=writes, reads=reads, encodes=encodes,
        objects={kind.__name__: kind, **objects}, sql_ordered=sql_ordered, key_kind=kind, spillable=spillable,
        fixed=string_size("x" * chars) if chars else FIXED_SIZES.get(edm), text=text, cuttable=cuttable,
        summable=summable, calculable=calculable or summable,
        load_refuses=load_refuses, key_text=key_text, lossless_in_key=lossless_in_key, sql_in_json=sql_in_json,
    )  # fmt: skip


_DATETIME_SOURCE = "({to_text}({v}) if {v}.microsecond else {to_text}({v})[:19] + '.000000Z')"
SCALARS: dict[Any, ValueType] = {
    str: _scalar(str, _check_str, "String", " and ({v}.isascii() or {well}({v}))", spillable=True, text=True,
                 sql_in_json=True, well=_WELL),
    bool: _scalar(
        bool, _check_bool, "Boolean", "", store=int, parse={0: False, 1: True}.__getitem__, to_json=_same, from_json=_same,
        writes="({v} is True) + 0", reads="({v} == 1)", sql_in_json=True,
    ),
    int: _scalar(
        int, _check_integer(64), "Int64", f" and {MIN_INT64} <= {{v}} <= {MAX_INT64}", summable=True, sql_in_json=True
    ),
    float: _scalar(
        float, _check_float, "Double", " and ({v} > 0.0 or {v} < 0.0)", summable=True,
        to_json=lambda value: value if math.isfinite(value) else str(value), from_json=float,
        encodes="({v} if {v} - {v} == 0.0 else {str}({v}))", str=str,
    ),
    Builtin.datetime: _scalar(
        Builtin.datetime, _check_datetime, "DateTime", f" and {{v}}.tzinfo is {{utc}} and {{v}}.year >= {MIN_DATETIME.year}",
        cuttable=True, calculable=True, load_refuses=True, key_text=True, sql_in_json=True,
        store=_store_datetime, parse=Builtin.datetime.fromisoformat,
        writes=_DATETIME_SOURCE, reads="{from_text}({v})", encodes=_DATETIME_SOURCE.replace("{to_text}({v})", "{v}", 1),
        utc=UTC, to_text=_text, from_text=Builtin.datetime.fromisoformat,
    ),
    Builtin.date: _scalar(
        Builtin.date, _check_date, "String", "", chars=10, calculable=True, cuttable=True, load_refuses=True, key_text=True, sql_in_json=True,
        store=Builtin.date.isoformat, parse=Builtin.date.fromisoformat,
        writes="{v}.isoformat()", reads="{from_text}({v})", from_text=Builtin.date.fromisoformat,
    ),
    time: _scalar(
        time, _check_time, "String", " and {v}.tzinfo is None", chars=15, load_refuses=True, key_text=True, sql_in_json=True,
        store=lambda value: value.isoformat("microseconds"), parse=time.fromisoformat,
        writes="{v}.isoformat('microseconds')", reads="{from_text}({v})", encodes="{v}.isoformat('microseconds')",
        from_text=time.fromisoformat,
    ),
    timedelta: _scalar(
        timedelta, _check_timedelta, "Int64", " and -106751991 < {v}.days < 106751991", summable=True,
        store=_microseconds, parse=lambda stored: timedelta(0, 0, stored), to_json=_text,
        from_json=lambda text: msgspec.convert(text, timedelta),
        writes="({v}.days * 86400000000 + {v}.seconds * 1000000 + {v}.microseconds)", reads="{timedelta}(0, 0, {v})",
    ),
    Decimal: _scalar(
        Decimal, _check_decimal, "String", "False", store=str, parse=_read_decimal, writes="{str}({v})",
        reads="{read_decimal}({v})", read_decimal=_read_decimal, load_refuses=True, sql_ordered=False, summable=True, lossless_in_key=False, str=str,
    ),
    UUID: _scalar(
        UUID, _check_uuid, "Guid", "", key_text=True, sql_in_json=True, store=str, parse=UUID,
        writes="{to_text}({v})", reads="{convert}({v}, {UUID})", to_text=_text, convert=msgspec.convert,
    ),
    bytes: _scalar(
        bytes, _check_bytes, "Binary", "", spillable=True,
        to_json=_text, from_json=lambda text: msgspec.convert(text, bytes),
    ),
}  # fmt: skip
INT32 = _scalar(
    int, _check_integer(32), "Int32", f" and {MIN_INT32} <= {{v}} <= {MAX_INT32}", name="int32", summable=True, sql_in_json=True
)  # fmt: skip


def inside_json(type: ValueType) -> ValueType:
    """Return the type with the form that its values have inside JSON as the stored one."""
    if type.own is not None:
        return attrs.evolve(
            type, store=type.to_json, load=type.from_json, writes=type.encodes, reads="{from_json}({v})",
            objects={**type.objects, "from_json": type.from_json}, sql_ordered=False,
        )  # fmt: skip
    if type.kind not in (timedelta, bytes):
        return type
    kind = type.kind
    return attrs.evolve(
        type, store=_text, load=checked_load(type.name, lambda stored_form: msgspec.convert(stored_form, kind), _text),
        writes="{text}({v})", reads="{convert}({v}, {kind})", sql_ordered=False,
        objects={**type.objects, "text": _text, "convert": msgspec.convert, "kind": kind},
    )  # fmt: skip
