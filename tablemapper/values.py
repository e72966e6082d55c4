"""The types of fields: what an annotation means, and how nested values are stored; once, for every engine.

cattrs and msgspec are met here and in `tablemapper.extra`, nested values being JSON; scalars are in
`tablemapper.scalars`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import attrs
import msgspec

from .errors import did_you_mean
from .extra import Extra, Int32Value
from .scalars import INT32, INT64, SCALARS, Int32, ValueType, Width32, wrong

if TYPE_CHECKING:
    import cattrs

__all__ = ["Extra", "GeoPoint", "Int32", "Int32Value", "ValueType", "converter", "value_type"]

_MAX_DEPTH = 100
_SUPPORTED = (
    "str, int, tm.Int32, float, bool, datetime, date, time, timedelta, Decimal, UUID, bytes, Enum, Literal, NewType, "
    "list, dict, attrs classes, msgspec Structs, dataclasses, tm.GeoPoint, tm.Extra, each also with | None; any other "
    "class once a hook is registered on tm.converter()"
)


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
            if any(isinstance(note, Width32) for note in notes):
                return INT32, optional
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
    if annotation in SCALARS:
        return SCALARS[annotation]
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
            raise wrong(value, f"a {_shown(annotation)}")
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
    return ValueType(
        _shown(annotation), annotation, object, "String",
        lambda value: normal(value)[1], lambda value: normal(value)[0], load, "False", "@($)", "@($)",
        element=element, attribute=_attribute(annotation, origin), ordered=False, spillable=True,
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
        if not -INT64 <= value < INT64:
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


def _attribute(annotation: Any, origin: type) -> Callable[[str], ValueType] | None:
    if origin is dict:
        arguments = get_args(annotation)
        return (lambda _: value_type(arguments[1])[0]) if arguments and arguments[1] is not Any else None
    if origin in (list, set, frozenset, tuple) or _is_foreign(origin):
        return None

    def find(name: str) -> ValueType:
        known = get_type_hints(origin, include_extras=True)
        if name not in known:
            raise ValueError(f'no attribute "{name}" (attributes: {", ".join(known)}){did_you_mean(name, known)}')
        return value_type(known[name])[0]

    return find


def _shown(annotation: Any) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
