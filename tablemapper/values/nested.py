"""Field types: the one place that says what a value of a field may be, and how it is stored.

`value_type` turns an annotation into a `ValueType`: one of the scalars, or one of the types here. These are stored as
JSON text: lists, dicts, attrs classes, dataclasses, msgspec Structs, TypedDicts, and any class with a cattrs hook.

A check of a nested value writes that text and reads it back, so what a field holds is what a read will return. The
text is canonical: equal values have equal texts, sets and dicts stand in order.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from datetime import time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial, reduce
from operator import or_
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin
from uuid import UUID

import attrs
import msgspec
from msgspec import inspect

from ..datetime_types import Builtin, builtin_time
from ..errors import did_you_mean, safe_repr
from ..type_aliases import filled, unfolded
from .choices import enum_type, literal_type
from .constraint_aliases import with_meta
from .constraints import constraint_of
from .extra import EXTRA, Extra
from .geo import GeoPoint
from .hooks import HOOK_FAULTS, converter, structured, unstructured, unused_hooks
from .json_schema import json_schema
from .precision import Precision, with_precision
from .registered import registered
from .scalars import INT32, INT32_RANGE, SCALARS, ValueFault, ValueType, inside_json, unexpected

MAX_DEPTH = 100
_SUPPORTED = (
    "str, int, Int32, float, bool, datetime, date, time, timedelta, Decimal, UUID, bytes, Enum, Literal, "
    "lists, dicts with str keys, sets, tuples, attrs classes, dataclasses, msgspec Structs, TypedDicts, GeoPoint, "
    "Extra, and your own classes: by tablemapper.register(), or with hooks on tablemapper.converter()"
)
_BUILTINS = (dict, list, str, int, float, bool)
_NATIVE = (bytes, bytearray, memoryview, Builtin.datetime, Builtin.date, time, timedelta, UUID, Decimal)


def _unstructure(value: Any) -> Any:
    if value.__class__ is GeoPoint:
        return {"type": "Point", "coordinates": [value.longitude, value.latitude]}
    if (own_type := registered(type(value))) is not None:
        return own_type.to_json(value)
    if (plain := unstructured(value)) is not value:
        return _take_apart(plain, str_keys=True)  # its own hook reads the keys back
    for kind, form in SCALARS.items():
        if isinstance(value, kind):
            return form.check(value)
    raise ValueFault(f"{type(value).__name__} {safe_repr(value)} cannot be stored")


def structure(kind: Any, plain: Any) -> Any:
    """Return a value of a class that msgspec does not know, of its JSON form."""
    if kind is GeoPoint:
        if not isinstance(plain, dict) or plain.get("type") != "Point" or len(plain.get("coordinates", ())) != 2:
            raise ValueError("expected a GeoJSON point")
        longitude, latitude = plain["coordinates"]
        return GeoPoint(latitude, longitude)
    if (builtin := builtin_time(kind)) is not kind:
        return SCALARS[builtin].from_json(plain)
    own_type = registered(kind)
    return structured(plain, kind) if own_type is None else own_type.from_json(plain)


def _plain(value: Any, path: str, depth: int) -> Any:
    """Return builtins that JSON knows for what msgspec took apart, each scalar in its canonical form."""
    kind = value.__class__
    if value is None or kind is bool:
        return value
    if kind is dict or kind is list or kind is tuple:
        if depth == MAX_DEPTH:
            raise ValueFault(f"nested more than {MAX_DEPTH} deep", path)
        if kind is not dict:
            return [_plain(item, f"{path}[{number}]", depth + 1) for number, item in enumerate(value)]
        for key in value:
            if not isinstance(key, str):
                raise ValueFault(f"the keys of a dict must be str, not {safe_repr(key)}", path)
        return {_plain(key, path, depth): _plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if kind is bytearray or kind is memoryview:
        kind = bytes
    try:
        form = SCALARS[kind]
        plain = form.to_json(form.check(value))
    except KeyError:
        raise ValueFault(f"{kind.__name__} {safe_repr(value)} cannot be stored", path) from None
    except ValueFault as fault:
        raise ValueFault(fault.problem, path) from None
    if kind is float and plain.__class__ is str:
        raise ValueFault("a nested float must be finite: JSON knows no infinity", path)
    return plain


def _take_apart(value: Any, *, str_keys: bool = False) -> Any:
    if isinstance(value, (set, frozenset)):  # msgspec orders only what has an order
        return sorted(
            _take_apart(list(value), str_keys=str_keys),
            key=lambda item: (type(item).__name__, msgspec.json.encode(item)),
        )
    builtins = partial(msgspec.to_builtins, value, builtin_types=_NATIVE, str_keys=str_keys, enc_hook=_unstructure)
    try:
        return builtins(order="deterministic")
    except TypeError:  # keys, or members of a set, that do not compare
        if str_keys:
            raise
        return builtins()  # the comparison refuses it, with its path


def _plain_default(value: Any) -> Any:
    """Return a default as it stands in JSON; a `ValueFault` if it cannot."""
    try:
        return _plain(_take_apart(value), "", 0)
    except HOOK_FAULTS as error:
        raise ValueFault(str(error)) from error


def fault_of(error: Exception) -> ValueFault:
    """Turn "Expected `int`, got `str` - at `$.city`" around."""
    text, _, where = str(error).partition(" - at ")
    text = text.replace("`", "")
    if not isinstance(error.__cause__, ValueFault):
        text = text[:1].lower() + text[1:]
    return ValueFault(text, where.rpartition("$")[2].rstrip("`"))


def _compare(original: Any, decoded: Any, path: str) -> None:
    """Raise a `ValueFault` where a value read back is not the one that was given."""
    if original == decoded:
        return
    if isinstance(original, dict) and isinstance(decoded, dict):
        for name in original:
            if name not in decoded:
                raise ValueFault(f'no field "{name}" (fields: {", ".join(decoded)}){did_you_mean(name, decoded)}', path)
            _compare(original[name], decoded[name], f"{path}.{name}")
    elif (
        original.__class__ is decoded.__class__
        and isinstance(original, (list, tuple))
        and len(original) == len(decoded)
    ):
        for number, item in enumerate(original):
            _compare(item, decoded[number], f"{path}[{number}]")
    raise _difference(original, decoded, path)


def _compare_untyped(original: Any, decoded: Any, path: str) -> None:
    """Raise a `ValueFault` for an object that became a builtin: its place has no type that would make it again."""
    if original == decoded:
        return
    if isinstance(original, dict) and isinstance(decoded, dict):
        for name in decoded:
            _compare_untyped(original[name], decoded[name], f"{path}.{name}")
    elif isinstance(original, (list, tuple)) and isinstance(decoded, (list, tuple)):
        for number, item in enumerate(original):
            _compare_untyped(item, decoded[number], f"{path}[{number}]")
    elif decoded.__class__ in _BUILTINS and not isinstance(original, decoded.__class__):
        raise _difference(original, decoded, path)
    elif original.__class__ is decoded.__class__:
        for name in _members(original.__class__) or ():
            _compare_untyped(getattr(original, name), getattr(decoded, name), f"{path}.{name}")


def _difference(original: Any, decoded: Any, path: str) -> ValueFault:
    return ValueFault(
        f"{type(original).__name__} {safe_repr(original)} would read back as {type(decoded).__name__} {safe_repr(decoded)}",
        path,
    )


def _reader(annotation: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return what msgspec knows of a type, and the function that reads its JSON; raise `ValueFault` if it cannot."""
    try:
        info = inspect.type_info(annotation)
        _check_shape(info, set(), outermost=True)
        return info, msgspec.json.Decoder(annotation, dec_hook=structure).decode
    except NameError as error:
        raise ValueFault(f"{_place_of(error, annotation, set())}{error}; {_WHERE_TO_DEFINE}") from None
    except TypeError as error:
        text = str(error)
        if "union" in text and ("Struct" in text or "dataclass" in text):
            text += "; of classes, only Structs with tags form a union: class Cat(msgspec.Struct, tag=True)"
        raise ValueFault(text) from None


def _json_type(annotation: Any) -> ValueType:
    """Return the type of values that are stored as JSON."""
    info, decode = _reader(annotation)
    shape = get_origin(annotation) or annotation
    if not isinstance(shape, type) or shape is types.UnionType:
        shape = object
    elif typing.is_typeddict(shape):
        shape = dict
    name = readable = _readable(annotation)
    encode, element = msgspec.json.encode, _element(shape, get_args(annotation))

    def through_text(value: Any) -> tuple[Any, str]:
        if not isinstance(value, shape):
            raise unexpected(readable, value)
        try:
            original = _take_apart(value)
            text = encode(_plain(original, "", 0))
            decoded = decode(text)
            _compare(original, _take_apart(decoded), "")
            _compare_untyped(value, decoded, "")
        except ValueFault:
            raise
        except msgspec.MsgspecError as error:
            raise fault_of(error) from None
        except RecursionError:
            raise ValueFault(f"nested more than {MAX_DEPTH} deep, or holds itself") from None
        except HOOK_FAULTS as error:
            raise ValueFault(f"{type(error).__name__}: {error}") from error
        return decoded, text.decode()

    check_and_encode = _list_of(element, readable) if shape is list and element is not None else through_text

    def store(value: Any) -> str:
        return check_and_encode(value)[1]

    load = _loader(decode, readable)
    schema = members = None
    if shape is list and element is not None:
        name, members = f"list[{element.name}]", element.members
    elif shape is not GeoPoint:
        name, schema = f"json[{name}]", json_schema(info, _readable, _plain_default)
    levels = shape is tuple and element is not None and element.name == "str"
    return ValueType(
        name, object, "String", lambda value: check_and_encode(value)[0], store, load,
        lambda value: msgspec.json.decode(store(value)), lambda plain: load(encode(plain).decode()),
        writes="{store}({v})", reads="{load}({v})",
        encodes="{v}" if shape is list and element is not None and element.encodes == "{v}" else "{raw}({store}({v}))",
        objects={"store": store, "load": load, "raw": msgspec.Raw}, ordered=levels, hierarchy=levels, load_refuses=True, sql_ordered=False, keyable=False, spillable=True,
        element=element, members=members, json_schema=schema, container=_container(shape, get_args(annotation)), member=lambda name: _member(annotation, name),
    )  # fmt: skip


def _container(shape: Any, args: tuple[Any, ...]) -> Any:
    return shape if shape in (dict, list, set, frozenset) or (shape is tuple and args[1:] == (...,)) else None


def _loader(decode: Callable[[str], Any], readable: str) -> Callable[[Any], Any]:
    """Return the function that reads a stored form."""

    def load(stored_form: Any) -> Any:
        if stored_form.__class__ is not str:
            raise ValueFault(f"{safe_repr(stored_form)} is not the stored form of {readable}: it is no text")
        try:
            return decode(stored_form)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            raise ValueFault(f"{safe_repr(stored_form)} is not the stored form of {readable}: {error}") from None

    return load


_WHERE_TO_DEFINE = (
    "the annotations of a class are read in its module: define the name there, outside of functions; an import under "
    "TYPE_CHECKING does not exist when the program runs"
)


def _place_of(error: NameError, annotation: Any, seen: set[Any]) -> str:
    """Return which field of which class an annotation cannot be read of, as ``Sheet.rows: ``; "" if none is found."""
    kind = get_origin(annotation) or annotation
    parts = [*get_args(annotation)]
    if isinstance(kind, type) and kind not in seen:
        seen.add(kind)
        for base in kind.__mro__:
            for name, hint in vars(base).get("__annotations__", {}).items():
                probe = type(kind.__name__, (), {"__annotations__": {name: hint}, "__module__": base.__module__})
                try:
                    parts += typing.get_type_hints(probe, include_extras=True).values()
                except NameError as nested_error:
                    if nested_error.name == error.name:
                        return f"{_readable(base)}.{name}: "
                except Exception:  # evaluating a user's text may raise anything; another field has the name
                    continue
    return next(filter(None, [_place_of(error, part, seen) for part in parts]), "")


_ORDERED = (
    inspect.StrType, inspect.IntType, inspect.FloatType, inspect.BytesType, inspect.DateTimeType, inspect.DateType,
    inspect.TimeType, inspect.TimeDeltaType, inspect.UUIDType, inspect.DecimalType, inspect.LiteralType,
)  # fmt: skip


def _ordered(info: Any) -> bool:
    """Return whether msgspec can sort the members of a set."""
    return isinstance(info, _ORDERED) and len({type(value) for value in getattr(info, "values", ())}) < 2


def _check_shape(info: Any, seen: set[int], *, outermost: bool = False) -> None:
    """Raise a `ValueFault` for what can be declared but not stored."""
    if hasattr(owner := getattr(info, "cls", None), "__declaration__"):
        name = _readable(owner)
        raise ValueFault(
            f"{name} is an entity, and cannot be inside another: keep its key's fields, and read it with "
            f"store[{name}.key(…)]; to keep a copy, make {name} an attrs class"
        )
    if isinstance(info, inspect.CustomType):
        _check_hooks(info.cls)
    if isinstance(info, inspect.DictType) and not isinstance(info.key_type, (inspect.StrType, inspect.AnyType)):
        raise ValueFault("the keys of a dict must be str")
    is_set = isinstance(info, (inspect.SetType, inspect.FrozenSetType))
    if is_set and not outermost and not _ordered(info.item_type):
        raise ValueFault("a set inside another value can hold only str and numbers: use a list")
    if isinstance(info, (inspect.Type, inspect.Field)) and id(info) not in seen:
        seen.add(id(info))
        if hasattr(info, "fields"):
            _check_spellings(owner)
        for name in info.__struct_fields__:
            part = getattr(info, name)
            for member in part if isinstance(part, tuple) else (part,):
                if isinstance(member, inspect.Field) and member.name.startswith("_"):
                    owner = _readable(getattr(info, "cls", info))
                    raise ValueFault(
                        f'{owner}: its field "{member.name}" would not be stored: it begins with an underscore'
                    )
                _check_shape(member, seen)


def _check_spellings(kind: Any) -> None:
    """Refuse constraints inside of a class that only other packages read; pydantic's own classes ask them themselves."""
    if hasattr(kind, "__pydantic_validator__"):
        return
    for name, hint in typing.get_type_hints(get_origin(kind) or kind, include_extras=True).items():
        try:
            is_plain = with_meta(hint) is hint
        except ValueFault:
            is_plain = False
        if not is_plain:
            raise ValueFault(
                f"{_readable(kind)}.{name}: inside of a class only msgspec.Meta constrains a value; write "
                "Annotated[…, msgspec.Meta(…)]"
            )


def _element(shape: Any, args: tuple[Any, ...]) -> ValueType | None:
    """Return the type of the elements, if they are scalars and none may be missing."""
    if (shape in (list, set, frozenset) and args) or (shape is tuple and len(args) == 2 and args[1] is ...):
        try:
            element, optional = value_type(args[0])
            constrained = constraint_of(args[0], element) is not None  # (msgspec checks that)
        except ValueFault:  # such as Any: no condition can be on it
            return None
        if optional or constrained or element.kind is object or element.own is not None:
            return None
        return inside_json(element)
    return None


def _list_of(element: ValueType, name: str) -> Callable[[Any], tuple[Any, str]]:
    """Return the function that checks and writes a list of scalars, which needs no reading back."""

    def check_and_encode(value: Any) -> tuple[Any, str]:
        if not isinstance(value, list):
            raise unexpected(name, value)
        items: list[Any] = []
        try:
            for item in value:
                items.append(element.check(item))
        except ValueFault as fault:
            raise ValueFault(fault.problem, f"[{len(items)}]") from None
        if element.kind is float and not all(map(math.isfinite, items)):
            raise ValueFault("a nested float must be finite: JSON knows no infinity")
        return items, msgspec.json.encode([element.to_json(item) for item in items]).decode()

    return check_and_encode


def _check_hooks(kind: Any) -> None:
    if kind is GeoPoint or builtin_time(kind) is not kind or registered(kind) is not None:
        return
    fault = ValueFault(
        f"{_readable(kind)} cannot be stored: tablemapper.register() says as which scalar, or register_structure_hook and "
        f"register_unstructure_hook on tablemapper.converter() how, before the class is used; supported are {_SUPPORTED}"
    )
    if kind in (object, Extra) or not isinstance(kind, type):
        raise fault
    if hasattr(kind, "__pydantic_complete__"):
        raise ValueFault(f"{_readable(kind)} is a model of pydantic, which is not stored; make it an attrs class")
    import cattrs

    try:
        converter().get_structure_hook(kind)
    except cattrs.StructureHandlerNotFoundError:
        raise fault from None
    unknown = type("unknown", (), {})
    if converter().get_unstructure_hook(kind) is converter().get_unstructure_hook(unknown) and not issubclass(
        kind, (str, int, float)
    ):
        raise fault


def _readable(annotation: Any) -> str:
    """Return the annotation as a user writes it, the same in all versions of Python."""
    annotation = builtin_time(annotation)
    if annotation is None or annotation is type(None):
        return "None"
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return "int32" if INT32_RANGE in args else _readable(args[0])
    if origin is Union or origin is types.UnionType:
        return " | ".join(map(_readable, args))
    if origin is Literal:
        return f"literal[{', '.join(map(repr, args))}]"
    if isinstance(annotation, NewType):
        return _readable(annotation.__supertype__)
    if annotation is ...:
        return "..."
    if origin is not None:
        return f"{_readable(origin)}[{', '.join(map(_readable, args))}]"
    return getattr(annotation, "__name__", str(annotation))


def _members(kind: Any) -> dict[str, str] | None:
    """Return the attributes of a class that is stored as a JSON object, each with its name there; None if it is not."""
    if not isinstance(kind, type):
        return None
    if issubclass(kind, msgspec.Struct):
        if kind.__struct_config__.array_like:
            return None
        return dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    if attrs.has(kind):
        return {field.name: field.name for field in attrs.fields(kind)}
    if dataclasses.is_dataclass(kind):
        return {field.name: field.name for field in dataclasses.fields(kind)}
    return {name: name for name in kind.__annotations__} if typing.is_typeddict(kind) else None


def _member(kind: Any, name: Any) -> tuple[ValueType, str]:
    """Return the type of a nested value, and its step in a JSON path."""
    if kind is GeoPoint and name in ("latitude", "longitude"):
        return SCALARS[float], ".coordinates[1]" if name == "latitude" else ".coordinates[0]"
    kind, args = get_origin(kind) or kind, get_args(kind)
    if name.__class__ is int:
        return _part_type(args[0] if args else Any, "[…]"), f"[{name}]"
    if kind is dict:
        if '"' in name:
            raise ValueFault(f"the key {name!r} cannot be in a condition: it holds a quotation mark")
        return _part_type(args[1] if args else Any, name), f'."{name}"'
    members = _members(kind)
    if members is None:
        raise ValueFault(f"{_readable(kind)} has no nested values; attrs classes, Structs and dicts have")
    if name not in members:
        hint_text = f"(fields: {', '.join(members)}){did_you_mean(name, members)}"
        raise ValueFault(f'{kind.__name__} has no field "{name}" {hint_text}')
    hint = typing.get_type_hints(kind, include_extras=True)[name]
    types = dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))
    return _part_type(filled(hint, types), name), f'."{members[name]}"'


def _part_type(annotation: Any, name: str) -> ValueType:
    if annotation is Any:
        raise ValueFault(f'"{name}" is Any, which says nothing of its values: declare their type, as in dict[str, int]')
    return value_type(annotation)[0]


# -- annotations -------------------------------------------------------------------------------------------------------


def value_type(annotation: Any, path: str = "") -> tuple[ValueType, bool]:
    """Return the type that an annotation means, and whether None may stand for no value.

    Args:
        annotation: as `typing.get_type_hints` returns it, extras included.
        path: what has this type, for the message: ``Product.price``.

    Raises:
        ValueError: No value of this type can be stored. The message says which can.
    """
    try:
        if (unused := unused_hooks(annotation)) is not None:
            raise ValueFault(
                f"{getattr(unused, '__name__', unused)} has hooks on tablemapper.converter(), which would not be used: only a class that "
                "is no Enum, NewType, attrs class, dataclass or Struct is stored by hooks; use tm.register, for a class of its own"
            )
        return _value_type(annotation)
    except ValueFault as fault:
        raise ValueFault(fault.problem, path) from None


def _value_type(annotation: Any) -> tuple[ValueType, bool]:
    annotation = unfolded(annotation)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated and args[0] is int and INT32_RANGE in args:
        return INT32, False
    if origin is Annotated and (precision := next((arg for arg in args if isinstance(arg, Precision)), None)):
        return with_precision(_value_type(args[0])[0], precision.name), False
    if origin in (Annotated, typing.Required, typing.NotRequired):
        return _value_type(args[0])
    if isinstance(annotation, NewType):
        return _value_type(annotation.__supertype__)
    if origin is Literal:
        return literal_type(tuple(value for value in args if value is not None)), None in args
    if origin in (Union, types.UnionType):
        return _union_type(annotation, tuple(arg for arg in args if arg is not type(None))), type(None) in args
    return _single_type(annotation, origin), False


def _union_type(annotation: Any, members: tuple[Any, ...]) -> ValueType:
    """Return the type of a union, of which all but None is given."""
    if len(members) == 1:
        return _value_type(members[0])[0]
    if any(_value_type(arg)[0].kind is not object for arg in members):
        raise ValueFault(
            f"{_readable(annotation)}: a field has one type, optionally with None; only tagged Structs can form a union"
        )
    return _json_type(reduce(or_, members))


def _single_type(annotation: Any, origin: Any) -> ValueType:
    if isinstance(annotation, str):
        raise ValueFault(f"the annotation {annotation!r} is text: resolve it, as typing.get_type_hints does")
    if annotation is Extra:
        return EXTRA
    if (own_type := registered(annotation)) is not None:
        return own_type
    if isinstance(annotation, type) and origin is None:
        annotation = builtin_time(annotation)
        if annotation in SCALARS:
            return SCALARS[annotation]
        if issubclass(annotation, Enum):
            return enum_type(annotation)
    if annotation is None or annotation is type(None) or annotation is Any:
        raise ValueFault(f"a field of {_readable(annotation)} cannot be stored; supported are {_SUPPORTED}")
    unbound = (annotation,) if isinstance(annotation, typing.TypeVar) else getattr(annotation, "__parameters__", ())
    if unbound and not isinstance(annotation, type):
        raise ValueFault(
            f"{_readable(annotation)}: {unbound[0].__name__} stands for no type here; write one, such as str"
        )
    if not isinstance(origin or annotation, type):  # (msgspec would read some of these in another way)
        kind = type(annotation).__name__
        raise ValueFault(
            f"{_readable(annotation)}: what a {kind} means as a type is not known; supported are {_SUPPORTED}"
        )
    return _json_type(annotation)
