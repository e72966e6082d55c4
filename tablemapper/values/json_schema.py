"""What nested values look like in a store: the JSON schema of a type, in a form that does not depend on its docstrings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import NODEFAULT, inspect

__all__ = ["json_schema"]

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
    have. A member with a factory for its default says ``"factory": true``.

    Args:
        info: the type.
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
            return {"anyOf": sorted((self.of(one) for one in info.types), key=repr)}
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
            schema["properties"][field.encode_name] = self.of(field.type) | self._default(field)
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
