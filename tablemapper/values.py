"""The types of fields: how their values are checked, stored and read back. Defined here, once, for every engine.

A value has three forms: the Python value; its *stored* form, one of str, int, float and bytes, which an engine keeps;
and, for keys, the text of `tablemapper.keytext`. cattrs and msgspec are met in this module and nowhere else.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow, Rounded
from enum import Enum
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NewType,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

import attrs
import msgspec

from .codegen import Names
from .limits import Edm, check_property_name

if TYPE_CHECKING:
    import cattrs

__all__ = ["Extra", "GeoPoint", "Int32", "Int32Value", "ValueType", "converter", "value_type"]


class _Int32:
    def __repr__(self) -> str:
        return "Int32"


Int32 = Annotated[int, _Int32()]
"""An int of 32 bits, which Azure keeps as Edm.Int32; a plain ``int`` has 64."""

_INT64 = 2**63
_INT32 = 2**31
_MAX_DEPTH = 100
_DECIMAL = Context(prec=34, Emin=-6143, Emax=6144, clamp=0, traps=[Inexact, Rounded, InvalidOperation, Overflow])
_SUPPORTED = (
    "str, int, tm.Int32, float, bool, datetime, date, time, timedelta, Decimal, UUID, bytes, Enum, Literal, NewType, "
    "list, dict, attrs classes, msgspec Structs, dataclasses, tm.GeoPoint, tm.Extra, each also with | None; any other "
    "class once a hook is registered on tm.converter()"
)


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
    children: Callable[[], dict[str, Any]] | None = None
    """The annotations of a nested class's attributes."""
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
        for word, value in _GLOBALS.items():
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
            return value_type(date if path[0] == "date" else str)[0]
        if self.children is None:
            raise ValueError(f"{self.name} has no attributes")
        known = self.children()
        annotation = known.get(path[0], known.get("*"))
        if annotation is None:
            raise ValueError(f'no attribute "{path[0]}" (attributes: {", ".join(known)})')
        found, _ = value_type(annotation)
        return found.nested(path[1:]) if path[1:] else found


# ------------------------------------------------------------------------------------------------- scalar checks


def _wrong(value: Any, wanted: str) -> ValueError:
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
        raise _wrong(value, "a str")
    if isinstance(value, Enum):
        value = value.value
    text = str.__str__(value)
    if not text.isascii() and not _well_formed(text):
        raise ValueError("a lone surrogate, which is no character and can not be stored; decode the text properly")
    return text


def _int_check(limit: int, name: str) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(value, "an int")
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
        raise _wrong(value, "a float")
    if value != value:
        raise ValueError("NaN can not be stored; use None for a missing value")
    return float(value) + 0.0  # -0.0 becomes 0.0


def _check_bool(value: Any) -> bool:
    if value.__class__ is not bool:
        raise _wrong(value, "a bool")
    return bool(value)


def _check_datetime(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise _wrong(value, "a datetime")
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
        raise _wrong(value, "a date" + (" (use .date())" if isinstance(value, datetime) else ""))
    return date(value.year, value.month, value.day)


def _check_time(value: Any) -> time:
    if not isinstance(value, time):
        raise _wrong(value, "a time")
    if value.tzinfo is not None:
        raise ValueError(f"{value!r} has a time zone, which a time of day can not keep; use a datetime")
    return time(value.hour, value.minute, value.second, value.microsecond)


_MICROSECOND = timedelta(microseconds=1)


def _check_timedelta(value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        raise _wrong(value, "a timedelta")
    if not -_INT64 <= value // _MICROSECOND < _INT64:
        raise ValueError(f"{value} has more microseconds than 64 bits hold (about 292,000 years)")
    return timedelta(value.days, value.seconds, value.microseconds)


def _check_decimal(value: Any) -> Decimal:
    if not isinstance(value, Decimal):
        raise _wrong(value, "a Decimal" + (f', as in Decimal("{value}")' if isinstance(value, int | float) else ""))
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
        raise _wrong(value, "a UUID")
    return value if value.__class__ is UUID else UUID(int=value.int)


def _check_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong(value, "bytes")
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


_GLOBALS: dict[str, Any] = {
    "UTC": UTC, "Decimal": Decimal, "UUID": UUID, "date": date, "time": time, "timedelta": timedelta,
    "fromisoformat": datetime.fromisoformat, "date_of": date.fromisoformat, "time_of": time.fromisoformat,
    "well_formed": _well_formed, "PLUS": _DECIMAL.plus,
}  # fmt: skip

_INT_FAST = f"$.__class__ is int and {-_INT64} <= $ < {_INT64}"
_SCALARS: dict[Any, ValueType] = {
    str: ValueType(
        "str", str, str, "String", _check_str,
        fast="($.__class__ is str and ($.isascii() or well_formed($)))", spillable=True,
    ),
    int: ValueType("int", int, int, "Int64", _int_check(_INT64, "Int64"), fast=_INT_FAST),
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
_NAMED_INT32 = ValueType(
    "int32",
    Int32,
    int,
    "Int32",
    _int_check(_INT32, "Int32"),
    fast=f"($.__class__ is int and {-_INT32} <= $ < {_INT32})",
)


# ------------------------------------------------------------------------------------------------- finding a type


def value_type(annotation: Any, path: str = "") -> tuple[ValueType, bool]:
    """Return the type of an annotation, and whether it may be None.

    Raises:
        ValueError: no field can be of this type; the text says what can.
    """
    optional = False
    while True:
        if isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif get_origin(annotation) is Annotated:
            base, *notes = get_args(annotation)
            if any(isinstance(note, _Int32) for note in notes):
                return _NAMED_INT32, optional
            annotation = base
        elif get_origin(annotation) in (Union, types.UnionType):
            members = [member for member in get_args(annotation) if member is not types.NoneType]
            optional = optional or len(members) < len(get_args(annotation))
            if len(members) != 1:
                raise ValueError(f"{annotation} is more than one type; use one type, with | None if it may be missing")
            annotation = members[0]
        else:
            break
    try:
        return _find(annotation), optional
    except TypeError as error:  # an annotation that can not be hashed
        raise ValueError(f"{annotation!r} can not be a field's type: {error}; use one of {_SUPPORTED}") from None


@lru_cache(maxsize=None)
def _find(annotation: Any) -> ValueType:
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if get_origin(annotation) is Literal:
        return _literal(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(annotation)
    if annotation is Extra:
        return ValueType(
            "extra", Extra, object, "String", Extra.checked, Extra.to_text, Extra.from_text,
            "False", "@($)", "@($)", ordered=False, spillable=True,
        )  # fmt: skip
    return _json(annotation)


def _homogeneous(values: list[Any], what: str) -> type:
    kinds = {type(value) for value in values}
    if kinds not in ({str}, {int}):
        raise ValueError(f"{what}: its values must all be str, or all be int")
    return kinds.pop()


def _enum(cls: type[Enum]) -> ValueType:
    values = [str.__str__(m.value) if isinstance(m.value, str) else m.value for m in cls]
    kind = _homogeneous(values, cls.__name__)
    known = ", ".join(f"{cls.__name__}.{member.name}" for member in cls)

    def check(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        raise ValueError(f"expected one of {known}, got {value!r}")

    listed = ",".join(f"{member.name}={value}" for member, value in zip(cls, values, strict=True))
    return ValueType(
        f"enum[{kind.__name__} {listed}]", cls, kind, "String" if kind is str else "Int64", check,
        lambda value: value.value, cls, "False", "$.value", "@($)",
        enum=cls, ordered=False,
    )  # fmt: skip


def _literal(annotation: Any) -> ValueType:
    values = list(get_args(annotation))
    kind = _homogeneous(values, str(annotation))

    def check(value: Any) -> Any:
        if value.__class__ is kind and value in values:
            return value
        raise ValueError(f"expected one of {', '.join(map(repr, values))}, got {value!r}")

    return ValueType(
        f"literal[{', '.join(map(repr, values))}]", annotation, kind, "String" if kind is str else "Int64", check,
        fast="False", ordered=False,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- nested values


@lru_cache(maxsize=None)
def converter() -> cattrs.Converter:
    """Return the cattrs converter on which hooks for other classes are registered.

    A field of any class can be kept once both of its hooks are there: the unstructure hook gives str, int, float, bool,
    list or dict, the structure hook takes them::

        tm.converter().register_unstructure_hook(Money, str)
        tm.converter().register_structure_hook(Money, lambda text, _: Money.parse(text))
    """
    import cattrs  # noqa: PLC0415  30 ms that only fields of other classes need

    return cattrs.Converter()


def _unstructure(value: Any) -> Any:
    out = converter().unstructure(value)
    if out is value:
        raise ValueError(f"{type(value).__name__} can not be stored; register its hooks on tm.converter()")
    return out


def _structure(kind: type, value: Any) -> Any:
    return converter().structure(value, kind)


class GeoPoint(msgspec.Struct, frozen=True, tag_field="type", tag="Point"):
    """A point on the Earth, stored as GeoJSON."""

    coordinates: tuple[float, float]
    """Longitude, latitude, in degrees."""

    def __post_init__(self) -> None:
        longitude, latitude = self.coordinates
        if not (-180 <= longitude <= 180 and -90 <= latitude <= 90):
            raise ValueError(f"longitude {longitude} must be in -180…180, latitude {latitude} in -90…90")

    @classmethod
    def at(cls, *, latitude: float, longitude: float) -> GeoPoint:
        """Return the point at these degrees."""
        return cls((longitude, latitude))

    @property
    def latitude(self) -> float:
        return self.coordinates[1]

    @property
    def longitude(self) -> float:
        return self.coordinates[0]


def _json(annotation: Any) -> ValueType:
    origin = get_origin(annotation) or annotation
    if annotation in (Any, object, types.NoneType) or not isinstance(origin, type):
        raise ValueError(f"{annotation!r} can not be a field's type; use one of {_SUPPORTED}")
    try:
        decode = msgspec.json.Decoder(annotation, dec_hook=_structure).decode
    except TypeError as error:
        raise ValueError(f"{annotation!r} can not be a field's type: {error}") from None
    if _is_foreign(origin) and not _has_hooks(origin):
        raise ValueError(
            f"{annotation!r} can not be a field's type before its hooks are registered on tm.converter(); "
            f"without one: {_SUPPORTED}"
        )
    encode = msgspec.json.Encoder(enc_hook=_unstructure, order="deterministic", decimal_format="string").encode

    def normal(value: Any) -> tuple[str, Any]:
        if not isinstance(value, origin):
            raise _wrong(value, f"a {_shown(annotation)}")
        try:
            _scan(msgspec.to_builtins(value, enc_hook=_unstructure, str_keys=True, builtin_types=_KEPT), 0)
            text = encode(value)
            return text.decode(), decode(text)
        except msgspec.ValidationError as error:
            raise ValueError(_path(str(error))) from None
        except RecursionError:
            raise ValueError(f"it is nested more than {_MAX_DEPTH} deep") from None
        except UnicodeEncodeError:
            raise ValueError("a lone surrogate in it, which is no character and can not be stored") from None
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from None

    def load(stored: str) -> Any:
        return decode(stored)

    element = None
    if origin is list and get_args(annotation):
        try:
            inner, maybe = value_type(get_args(annotation)[0])
        except ValueError:
            maybe = True
        else:
            element = inner if inner.keyable and not maybe else None
    children = _children(annotation, origin)
    return ValueType(
        _shown(annotation), annotation, object, "String", lambda value: normal(value)[1], lambda value: normal(value)[0],
        load, "False", "@($)", "@($)", element=element, children=children, ordered=False, spillable=True,
    )  # fmt: skip


_KEPT = (bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID)


def _path(message: str) -> str:
    text, found, path = message.partition(" - at `$")
    return f"{path.rstrip('`').lstrip('.')}: {text}" if found and path != "`" else text


def _scan(value: Any, depth: int) -> None:
    """Refuse, anywhere in a nested value, what JSON would change or can not hold."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
    if value.__class__ is dict:
        for key, item in value.items():
            _scan(key, depth + 1)
            _scan(item, depth + 1)
    elif value.__class__ in (list, tuple, set, frozenset):
        for item in value:
            _scan(item, depth + 1)
    elif value.__class__ is float:
        if value - value != 0:
            raise ValueError(f"{value} in a nested value can not be stored: JSON has no such number")
    elif value.__class__ is int:
        if not -_INT64 <= value < _INT64:
            raise ValueError(f"{value} in a nested value is outside Int64")
    elif value.__class__ is datetime and value.tzinfo is None:
        raise ValueError(f"{value} in a nested value has no time zone; say which")


def _is_foreign(origin: type) -> bool:
    return not (
        origin in (list, dict, set, frozenset, tuple)
        or attrs.has(origin)
        or issubclass(origin, msgspec.Struct)
        or hasattr(origin, "__dataclass_fields__")
        or (issubclass(origin, dict) and hasattr(origin, "__total__"))
    )


def _has_hooks(origin: type) -> bool:
    made = converter()
    try:
        made.get_structure_hook(origin)
        hook: Any = made.get_unstructure_hook(origin)
    except Exception:
        return False
    return hook is not made.get_unstructure_hook(object)


def _children(annotation: Any, origin: type) -> Callable[[], dict[str, Any]] | None:
    if origin is dict:
        arguments = get_args(annotation)
        return (lambda: {"*": arguments[1]}) if arguments and arguments[1] is not Any else None
    if origin in (list, set, frozenset, tuple) or _is_foreign(origin):
        return None
    return lambda: get_type_hints(origin, include_extras=True)


def _shown(annotation: Any) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


# ------------------------------------------------------------------------------------------------- undeclared properties


class Int32Value(int):
    """An Edm.Int32 among undeclared properties; a plain int there is an Edm.Int64."""


ExtraValue: TypeAlias = str | int | float | bool | datetime | UUID | bytes
_EXTRA: dict[type, tuple[str, Any]] = {
    str: ("String", str), Int32Value: ("Int32", _NAMED_INT32), int: ("Int64", int), float: ("Double", float),
    bool: ("Boolean", bool), datetime: ("DateTime", datetime), UUID: ("Guid", UUID), bytes: ("Binary", bytes),
}  # fmt: skip
_BY_EDM = {edm: kind for kind, (edm, _) in _EXTRA.items()}


class Extra(dict[str, Any]):
    """The undeclared properties of an entity: each a value of one of Azure's types, which it keeps."""

    @classmethod
    def checked(cls, value: Any) -> Extra:
        """Return a copy with every value checked; raise ValueError with the first that is wrong."""
        if not isinstance(value, dict):
            raise _wrong(value, "a dict of properties")
        kept = cls()
        for name, item in value.items():
            if not isinstance(name, str) or (fault := check_property_name(name)) is not None:
                raise ValueError(f"[{name!r}]: {fault if isinstance(name, str) else 'a property name is text'}")
            found = next((k for k in (item.__class__, *type(item).__mro__) if k in _EXTRA), None)
            if found is None:
                raise ValueError(f"[{name!r}]: {type(item).__name__} is none of Azure's types: {', '.join(_BY_EDM)}")
            try:
                checked = _scalar(found).check(item)
            except ValueError as error:
                raise ValueError(f"[{name!r}]: {error}") from None
            kept[name] = Int32Value(checked) if found is Int32Value else checked
        return kept

    @classmethod
    def to_text(cls, value: Any) -> str:
        """Return the stored form: JSON of ``{name: [EDM type, value]}``."""
        form = {}
        for name, item in cls.checked(value).items():
            stored = _scalar(type(item)).store(item)
            form[name] = [
                _EXTRA[type(item)][0],
                stored.hex() if isinstance(stored, bytes) else repr(stored) if type(item) is float else stored,
            ]
        return msgspec.json.encode(form, order="deterministic").decode()

    @classmethod
    def from_text(cls, stored: str) -> Extra:
        """Return the properties of a stored form."""
        kept = cls()
        for name, (edm, value) in msgspec.json.decode(stored).items():
            kind = _BY_EDM[edm]
            if kind is bytes:
                kept[name] = bytes.fromhex(value)
            else:
                kept[name] = (
                    Int32Value(value)
                    if kind is Int32Value
                    else _scalar(kind).load(float(value) if kind is float else value)
                )
        return kept


def _scalar(kind: type) -> ValueType:
    return _NAMED_INT32 if kind is Int32Value else _SCALARS[kind]
