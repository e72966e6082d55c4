"""The scalar types of fields: how their values are checked, stored and read back.

A value has three forms: the Python value; its *stored* form, one of str, int, float and bytes, which an engine keeps;
and, for keys, the text of `tablemapper.keytext`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow, Rounded
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import attrs

from .codegen import Names
from .limits import Edm

__all__ = ["GLOBALS", "INT32", "INT64", "SCALARS", "Int32", "ValueType", "Width32", "wrong"]


class Width32:
    def __repr__(self) -> str:
        return "Int32"


Int32 = Annotated[int, Width32()]
"""An int of 32 bits, which Azure keeps as Edm.Int32; a plain ``int`` has 64."""

INT64 = 2**63
_INT32 = 2**31
_DECIMAL = Context(prec=34, Emin=-6143, Emax=6144, clamp=0, traps=[Inexact, Rounded, InvalidOperation, Overflow])


@attrs.frozen(eq=False)
class ValueType:
    """One type of field."""

    name: str
    """Canonical: equal for types whose stored values mean the same."""
    annotation: Any
    kind: type
    """The Python class of its values (for Enum and Literal, of their values); ``object`` if it is stored as JSON."""
    edm: Edm
    check: Callable[[Any], Any]
    """Return the value as it is kept; raise ValueError, saying what was expected, if it is none of this type."""
    store: Callable[[Any], Any] = lambda value: value
    """Return the stored form of a checked value; nested values are checked again, for they can have changed."""
    load: Callable[[Any], Any] = lambda stored: stored
    """Return the value of a stored form; raise ValueError if it is damaged."""
    fast: str = "False"
    """Python source, ``$`` for the variable, that is true only of values that are as they are kept already."""
    store_fast: str = ""
    load_fast: str = ""
    enum: type[Enum] | None = None
    element: ValueType | None = None
    """The type of a list's elements, if they are scalar."""
    attribute: Callable[[str], ValueType] | None = None
    """Return the type of a nested class's attribute; raise ValueError, with those that there are, if there is none."""
    ordered: bool = True
    spillable: bool = False
    """Whether a value can be long."""

    @property
    def keyable(self) -> bool:
        """Whether a key can be made of it."""
        return self.kind is not object

    @property
    def key_kind(self) -> Any:
        """What the key codec is told of it."""
        return self.enum or self.kind

    @property
    def sql_ordered(self) -> bool:
        """Whether stored forms sort in SQLite as the values do."""
        return self.ordered and self.kind is not Decimal

    def fast_source(self, variable: str, names: Names) -> str:
        """Return source that is true only if the variable's value is as it is kept already."""
        return self._source(self.fast, variable, names, self.check)

    def store_source(self, variable: str, names: Names) -> str:
        """Return source for the stored form of the variable's value; the variable itself if they are the same."""
        return self._source(self.store_fast or "$", variable, names, self.store)

    def load_source(self, variable: str, names: Names) -> str:
        """Return source for the value of the stored form in the variable; the variable itself if they are the same."""
        return self._source(self.load_fast or "$", variable, names, self.load)

    def _source(self, source: str, variable: str, names: Names, function: Any) -> str:
        if "@" in source:
            source = source.replace("@", names.name("of", function))
        names.setdefault("datetime", datetime)
        for word, value in GLOBALS.items():
            if word in source:
                names.setdefault(word, value)
        return source.replace("$", variable)

    # What an expression asks (`expressions.OperandType`).

    def operand(self, value: Any) -> Any:
        return self.check(value)

    def dump(self, value: Any) -> Any:
        """Return a value in builtins that JSON knows."""
        stored = self.store(value)
        if isinstance(stored, bytes):
            return {"bytes": stored.hex()}
        return {"float": repr(stored)} if stored.__class__ is float and stored - stored != 0 else stored

    def nested(self, path: tuple[str, ...]) -> ValueType:
        """Return the type of a nested value, or of a part of a time (``date``, or a time format)."""
        if self.kind is datetime and len(path) == 1:
            return SCALARS[date if path[0] == "date" else str]
        if self.attribute is None:
            raise ValueError(f"{self.name} has no attributes")
        found = self.attribute(path[0])
        return found.nested(path[1:]) if path[1:] else found


# ------------------------------------------------------------------------------------------------- scalar checks


def wrong(value: Any, wanted: str) -> ValueError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return ValueError(f"expected {wanted}, got {type(value).__name__} {shown}")


def _well_formed(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_str(value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(value, "a str")
    if isinstance(value, Enum):
        value = value.value
    text = str.__str__(value)
    if not text.isascii() and not _well_formed(text):
        raise ValueError("a lone surrogate, which is no character and can not be stored; decode the text properly")
    return text


def _int_check(limit: int, name: str) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong(value, "an int")
        if not -limit <= value < limit:
            raise ValueError(f"{value} is outside {name}, {-limit} to {limit - 1}; use Decimal or str for larger ones")
        return int(value)

    return check


def _check_float(value: Any) -> float:
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise ValueError(f"the int {value} is too large for a float") from None
        if number != value:
            raise ValueError(f"the int {value} can not be held by a float without loss; use int or Decimal")
        return number
    if not isinstance(value, float):
        raise wrong(value, "a float")
    if value != value:
        raise ValueError("NaN can not be stored; use None for a missing value")
    return float(value) + 0.0  # -0.0 becomes 0.0


def _check_bool(value: Any) -> bool:
    if value.__class__ is not bool:
        raise wrong(value, "a bool")
    return bool(value)


def _check_datetime(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise wrong(value, "a datetime")
    if value.tzinfo is None or value.utcoffset() is None:
        raise ValueError(f"{value} has no time zone; say which, as in .replace(tzinfo=timezone.utc)")
    try:
        moment = value.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{value} is outside the years that UTC can say") from None
    if moment.year < 1601:
        raise ValueError(f"{value} is before 1601-01-01, the first time that can be stored")
    return datetime(
        moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond, UTC
    )


def _check_date(value: Any) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise wrong(value, "a date" + (" (use .date())" if isinstance(value, datetime) else ""))
    return date(value.year, value.month, value.day)


def _check_time(value: Any) -> time:
    if not isinstance(value, time):
        raise wrong(value, "a time")
    if value.tzinfo is not None:
        raise ValueError(f"{value!r} has a time zone, which a time of day can not keep; use a datetime")
    return time(value.hour, value.minute, value.second, value.microsecond)


_MICROSECOND = timedelta(microseconds=1)


def _check_timedelta(value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        raise wrong(value, "a timedelta")
    if not -INT64 <= value // _MICROSECOND < INT64:
        raise ValueError(f"{value} has more microseconds than 64 bits hold (about 292,000 years)")
    return timedelta(value.days, value.seconds, value.microseconds)


def _check_decimal(value: Any) -> Decimal:
    if not isinstance(value, Decimal):
        raise wrong(value, "a Decimal" + (f', as in Decimal("{value}")' if isinstance(value, int | float) else ""))
    if not value.is_finite():
        raise ValueError(f"{value} is not finite and can not be stored")
    try:
        kept = _DECIMAL.plus(value) if value else value
    except (Inexact, Rounded, Overflow, InvalidOperation):
        kept = None
    if kept is None or not -6143 <= value.adjusted() <= 6144:
        raise ValueError(f"{value} has more than 34 digits, or an exponent outside -6143 to 6144; round it")
    return Decimal(value)


def _check_uuid(value: Any) -> UUID:
    if not isinstance(value, UUID):
        raise wrong(value, "a UUID")
    return value if value.__class__ is UUID else UUID(int=value.int)


def _check_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise wrong(value, "bytes")
    return bytes(value)


def _store_datetime(value: datetime) -> str:
    return "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ" % (
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond,
    )  # fmt: skip


def _load_datetime(stored: str) -> datetime:
    return datetime.fromisoformat(stored)


def _load_decimal(stored: str) -> Decimal:
    try:
        return Decimal(stored)
    except InvalidOperation:
        raise ValueError(f"{stored!r} is no Decimal") from None


GLOBALS: dict[str, Any] = {
    "UTC": UTC, "Decimal": Decimal, "UUID": UUID, "date": date, "time": time, "timedelta": timedelta,
    "fromisoformat": datetime.fromisoformat, "date_of": date.fromisoformat, "time_of": time.fromisoformat,
    "well_formed": _well_formed, "PLUS": _DECIMAL.plus,
}  # fmt: skip

_INT_FAST = f"$.__class__ is int and {-INT64} <= $ < {INT64}"
SCALARS: dict[Any, ValueType] = {
    str: ValueType(
        "str", str, str, "String", _check_str,
        fast="($.__class__ is str and ($.isascii() or well_formed($)))", spillable=True,
    ),
    int: ValueType("int", int, int, "Int64", _int_check(INT64, "Int64"), fast=_INT_FAST),
    float: ValueType(
        "float", float, float, "Double", _check_float,
        fast="($.__class__ is float and $ == $ and ($ or str($) == '0.0'))",
    ),
    bool: ValueType("bool", bool, bool, "Boolean", _check_bool, int, bool, "$.__class__ is bool", "int($)", "$ == 1"),
    datetime: ValueType(
        "datetime", datetime, datetime, "DateTime", _check_datetime, _store_datetime, _load_datetime,
        "($.__class__ is datetime and $.tzinfo is UTC and $.year > 1600 and not $.fold)", "@($)", "fromisoformat($)",
    ),
    date: ValueType(
        "date", date, date, "String", _check_date, date.isoformat, date.fromisoformat,
        "$.__class__ is date", "$.isoformat()", "date_of($)",
    ),
    time: ValueType(
        "time", time, time, "String", _check_time, lambda v: v.isoformat("microseconds"), time.fromisoformat,
        "($.__class__ is time and $.tzinfo is None and not $.fold)", "$.isoformat('microseconds')", "time_of($)",
    ),
    timedelta: ValueType(
        "timedelta", timedelta, timedelta, "Int64", _check_timedelta,
        lambda v: v // _MICROSECOND, lambda v: timedelta(microseconds=v),
        "($.__class__ is timedelta and -100_000_000 < $.days < 100_000_000)", "@($)", "@($)",
    ),
    Decimal: ValueType(
        "Decimal", Decimal, Decimal, "String", _check_decimal, str, _load_decimal,
        "($.__class__ is Decimal and $.is_finite() and -6000 < $.adjusted() < 6000 and len(str($)) < 34)",
        "str($)", "Decimal($)",
    ),
    UUID: ValueType("UUID", UUID, UUID, "Guid", _check_uuid, str, UUID, "$.__class__ is UUID", "str($)", "UUID($)"),
    bytes: ValueType("bytes", bytes, bytes, "Binary", _check_bytes, fast="$.__class__ is bytes", spillable=True),
}  # fmt: skip
INT32 = ValueType(
    "int32",
    Int32,
    int,
    "Int32",
    _int_check(_INT32, "Int32"),
    fast=f"($.__class__ is int and {-_INT32} <= $ < {_INT32})",
)
