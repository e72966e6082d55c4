"""JSON schemas of nested values: that of a type, whatever its docstrings say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Literal, Union, cast
from uuid import UUID

import msgspec
from msgspec import NODEFAULT, inspect

from ..datetime_types import Builtin

_SCALARS: dict[type, tuple[str, str]] = {
    inspect.NoneType: ("null", ""),
    inspect.BoolType: ("boolean", ""),
    inspect.IntType: ("integer", ""),
    inspect.FloatType: ("number", ""),
    inspect.StrType: ("string", ""),
    inspect.BytesType: ("string", "bytes"),
    inspect.ByteArrayType: ("string", "bytes"),
    inspect.MemoryViewType: ("string", "bytes"),
    inspect.DateTimeType: ("string", "date-time"),
    inspect.DateType: ("string", "date"),
    inspect.TimeType: ("string", "time"),
    inspect.TimeDeltaType: ("string", "duration"),
    inspect.UUIDType: ("string", "uuid"),
    inspect.DecimalType: ("string", "decimal"),
}
_SETS = (inspect.SetType, inspect.FrozenSetType)
_EMPTY: dict[Any, Any] = {list: [], set: [], frozenset: [], tuple: [], dict: {}}


def json_schema(info: inspect.Type, readable: Callable[[Any], str], plain: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the schema of a type.

    Classes stand in ``$defs``, by name. ``partial`` names the members, as ``Address.zip``, that stored values need not
    have. A member with a factory for its default says ``"factory": true``, and one with another name as an attribute says
    that: ``"attribute": "zip_code"``.

    Args:
        readable: gives the name of a class.
        plain: gives a default as it stands in JSON; ValueError if it cannot.
    """
    schema = _Schema(readable, plain)
    root = schema.of(info)
    if schema.classes:
        root["$defs"] = {name: schema.classes[name] for name in sorted(schema.classes)}
    if schema.partial:
        root["partial"] = sorted(schema.partial)
    return root


class _Schema:
    def __init__(self, readable: Callable[[Any], str], plain: Callable[[Any], Any]) -> None:
        self.classes: dict[str, dict[str, Any]] = {}
        self.partial: set[str] = set()
        self._readable = readable
        self._plain = plain
        self._names: dict[Any, str] = {}

    def of(self, info: Any) -> dict[str, Any]:
        if isinstance(info, inspect.Metadata):
            return self.of(info.type)
        if (scalar := _SCALARS.get(type(info))) is not None:
            schema: dict[str, Any] = {"type": scalar[0]}
            if scalar[1]:
                schema["format"] = scalar[1]
            return schema | _constraints(info)
        if hasattr(info, "item_type"):
            unique = {"uniqueItems": True} if isinstance(info, _SETS) else {}
            return {"type": "array", "items": self.of(info.item_type), **unique} | _constraints(info)
        if hasattr(info, "item_types"):
            return {"type": "array", "prefixItems": [self.of(item) for item in info.item_types]}
        if hasattr(info, "value_type"):
            return {"type": "object", "additionalProperties": self.of(info.value_type)} | _constraints(info)
        if isinstance(info, inspect.UnionType):
            return {"anyOf": sorted((self.of(member) for member in info.types), key=repr)}
        if isinstance(info, inspect.LiteralType):
            return {"enum": sorted(info.values, key=repr)}
        if isinstance(info, inspect.EnumType):
            return {"enum": sorted((member.value for member in info.cls), key=repr)}
        if hasattr(info, "fields"):
            return {"$ref": self._class(info)}
        if isinstance(info, inspect.CustomType):
            return {"format": self._readable(info.cls)}  # what its hooks write is theirs alone
        return {}

    def _class(self, info: Any) -> str:
        """Return the name of a class among the definitions, where it stands from now on."""
        if (name := self._names.get(info.cls)) is not None:
            return name
        base = name = self._readable(info.cls)
        number = 2
        while name in self.classes:
            name, number = f"{base}_{number}", number + 1
        self._names[info.cls] = name
        schema = self.classes[name] = {}
        config = getattr(info.cls, "__struct_config__", None)
        in_order = isinstance(info, inspect.NamedTupleType) or (config is not None and config.array_like)
        optional = isinstance(info, inspect.TypedDictType)
        schema["type"] = "array" if in_order else "object"
        schema["properties"] = {}
        for field in info.fields:
            attribute = {} if field.name == field.encode_name else {"attribute": field.name}
            schema["properties"][field.encode_name] = self.of(field.type) | self._default(field) | attribute
            if not field.required and (optional or (config is not None and config.omit_defaults)):
                self.partial.add(f"{name}.{field.encode_name}")
        schema["required"] = sorted(field.encode_name for field in info.fields if field.required)
        if in_order:
            schema["order"] = list(schema["properties"])
        if isinstance(info, inspect.StructType) and info.tag is not None:
            schema["tag"] = [info.tag_field, info.tag]
        return name

    def _default(self, field: inspect.Field) -> dict[str, Any]:
        if field.default is not NODEFAULT:
            try:
                return {"default": self._plain(field.default)}
            except ValueError:
                return {"factory": True}
        if field.default_factory is NODEFAULT:
            return {}
        return {"default": _EMPTY[field.default_factory]} if field.default_factory in _EMPTY else {"factory": True}


def _constraints(info: Any) -> dict[str, Any]:
    settings = {name: getattr(info, name) for name in info.__struct_fields__}
    return {
        name: value for name, value in settings.items() if isinstance(value, (int, float, str)) and value is not None
    }


# ---------------------------------------------------------------------------------------------- and back

_TYPES: dict[tuple[str, str], Any] = {
    ("null", ""): None, ("boolean", ""): bool, ("integer", ""): int, ("number", ""): float, ("string", ""): str,
    ("string", "bytes"): bytes, ("string", "date-time"): Builtin.datetime, ("string", "date"): Builtin.date,
    ("string", "time"): time, ("string", "duration"): timedelta, ("string", "uuid"): UUID, ("string", "decimal"): Decimal,
}  # fmt: skip


def type_of(schema: Mapping[str, Any]) -> Any:
    """Return a type that reads the values which a schema describes; ``Any`` where only the code of a class can."""
    return _Types(schema.get("$defs", {})).of(schema)


class _Types:
    """Types made from the schemas of classes, which are Structs here."""

    def __init__(self, classes: Mapping[str, Mapping[str, Any]]) -> None:
        self._classes = classes
        self._classes_by_name: dict[str, Any] = {}

    def of(self, schema: Mapping[str, Any]) -> Any:
        if "$ref" in schema:
            return self._class(schema["$ref"])
        if "anyOf" in schema:
            return cast(Any, Union)[tuple(self.of(member) for member in schema["anyOf"])]
        if "enum" in schema:
            return cast(Any, Literal)[tuple(schema["enum"])]
        if "items" in schema:
            return list.__class_getitem__(self.of(schema["items"]))
        if "additionalProperties" in schema:
            return dict.__class_getitem__((str, self.of(schema["additionalProperties"])))
        return _TYPES.get((schema.get("type", ""), schema.get("format", "")), Any)

    def _class(self, name: str) -> Any:
        if name not in self._classes_by_name:
            self._classes_by_name[name] = Any  # (in a class that holds itself)
            self._classes_by_name[name] = self._struct(self._classes[name])
        return self._classes_by_name[name]

    def _struct(self, schema: Mapping[str, Any]) -> Any:
        members = schema["properties"]
        if "order" in schema or not all(map(str.isidentifier, members)):
            return Any
        if any("factory" in member for member in members.values()):
            return Any
        fields: list[Any] = []
        for name, member in members.items():
            kind = self.of(member)
            if "default" in member:
                default = partial(msgspec.convert, member["default"], kind)
                fields.append((name, kind, msgspec.field(default_factory=default)))
            else:
                fields.append(
                    (name, kind) if name in schema["required"] else (name, cast(Any, Union)[kind, None], None)
                )
        tag_field, tag = schema.get("tag", (None, None))
        return msgspec.defstruct("Nested", fields, kw_only=True, tag_field=tag_field, tag=tag)
