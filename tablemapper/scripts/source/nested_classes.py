"""Classes of nested values as Python source, from their JSON schemas: those of the old shape, and those of the new one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from ...datetime_types import Builtin
from ...evolution.literals import text_source, value_source
from ...limits import MAX_INT32, MIN_INT32, is_name
from ...schema.specs import FieldSpec
from .lines import call

FORMATS: dict[str, tuple[str, Any]] = {
    "bytes": ("bytes", bytes), "date-time": ("dt.datetime", Builtin.datetime), "date": ("dt.date", Builtin.date),
    "time": ("dt.time", time), "duration": ("dt.timedelta", timedelta), "uuid": ("UUID", UUID),
    "decimal": ("Decimal", Decimal),
}  # fmt: skip
_JSON: dict[str, tuple[str, Any]] = {
    "null": ("None", None), "boolean": ("bool", bool), "integer": ("int", int), "number": ("float", float),
    "string": ("str", str),
}  # fmt: skip
_ANYTHING = "list[Any] | dict[str, Any]"
_SETTINGS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")


class NestedTypes:
    """The classes of nested values of one shape.

    Args:
        side: ``old`` or ``new``.
        old_types: those of the other shape, written already: equal classes are taken from there.
    """

    def __init__(self, side: str, old_types: NestedTypes | None = None) -> None:
        self.space: str = f"{side}_types"
        self._old_types = old_types
        self._types: dict[str, tuple[dict[str, Any], str]] = {}
        """Their schemas and sources, by name."""

    @property
    def bodies(self) -> list[list[str]]:
        """The lines of each class."""
        return [source.splitlines() for _, source in self._types.values()]

    def source(self, form: FieldSpec) -> str:
        """Return the type of a field that is stored as JSON, and write its classes."""
        if form.json is UNSET:
            return _ANYTHING
        text = self.of(form.json, self._define(form.json))
        kind = re.match(r"json\[(tuple|frozenset)\[", form.type)
        if kind is None or "items" not in form.json:
            return text
        # (Their schemas are those of a list and of a set.)
        return f"tuple[{text[5:-1]}, ...]" if kind[1] == "tuple" else f"frozen{text}"

    def path(self, form: FieldSpec, steps: Sequence[str]) -> str:
        """Return the calls that lead from a field to a nested value."""
        field_schema: dict[str, Any] = {} if form.json is UNSET else form.json
        schema: Mapping[str, Any] | None = None if form.json is UNSET else field_schema
        classes, path = field_schema.get("$defs", {}), ""
        for step in steps:
            schema = None if schema is None else _without_none(schema)
            is_entry = form.type == "extra"
            if schema is not None:
                name = schema.get("$ref")
                is_entry = name is None or _written_as_dict(classes[name], _partial(name, classes, field_schema))
            if not is_entry and not is_name(step):
                raise ValueError(f"{step!r} is no name")
            path += f".at(lambda x: x{f'[{text_source(step)}]' if is_entry else f'.{step}'})"
            schema = None if schema is None else _step(schema, classes, step)
        return path

    def _define(self, schema: Mapping[str, Any]) -> dict[str, str]:
        """Write the classes of a schema; return the name of each in the script."""
        classes: dict[str, Any] = schema.get("$defs", {})
        partial = frozenset(schema.get("partial", ()))
        names: dict[str, str] = {}
        identifiers: dict[str, str] = {}
        for name, class_schema in classes.items():
            base = identifier = re.sub(r"\W+", "_", name).strip("_")
            if not is_name(base):
                base = identifier = re.sub("[^A-Za-z0-9_]", "_", f"Nested{base}")
            within = _reach(name, classes)
            definition = {
                "class": class_schema,
                "within": within,
                "partial": {member for member in partial if member.partition(".")[0] in within},
            }
            if self._old_types is not None and self._old_types.defines(identifier, definition):
                names[name] = f"{self._old_types.space}.{identifier}"
                continue
            number = 2
            while identifier in self._types and not self.defines(identifier, definition):
                identifier, number = f"{base}_{number}", number + 1
            names[name] = f"{self.space}.{identifier}"
            if identifier not in self._types:
                self._types[identifier] = definition, ""
                identifiers[name] = identifier
        for name, identifier in identifiers.items():
            lines = self._class(identifier, classes[name], names, _partial(name, classes, schema))
            self._types[identifier] = self._types[identifier][0], "\n".join(lines)
        return names

    def defines(self, name: str, definition: Mapping[str, Any]) -> bool:
        """Return whether this side has a class of nested values with this name and definition."""
        return name in self._types and self._types[name][0] == definition

    def _class(
        self, identifier: str, schema: Mapping[str, Any], names: Mapping[str, str], partial: set[str]
    ) -> list[str]:
        """Return the lines of the class of a nested value; ``partial``: the members that values may lack."""
        members = [
            (name, member.get("attribute", name), member, _default(member))
            for name, member in schema["properties"].items()
        ]
        optional = {name for name, *_, default in members if default is not None}
        is_typed_dict = _written_as_dict(schema, partial)
        plain = all(name == attr and _is_member(name) for name, attr, *_ in members)
        options = _options(schema, omits=bool(partial) and partial == optional)
        if "order" not in schema:
            members.sort(key=lambda member: member[3] is not None)
        is_struct = bool(options or not plain)
        if is_typed_dict:
            lines = [f"    class {identifier}(TypedDict):"]
        elif is_struct:
            lines = call(f"class {identifier}", ["msgspec.Struct", *options], ":", indent=4)
        else:
            lines = ["    @attrs.define", f"    class {identifier}:"]
        for number, (name, attr, member, default) in enumerate(members):
            text = self.of(member, names)
            if is_typed_dict and name in partial - optional:
                lines.append(f"        {name}: NotRequired[{text}]")
            elif plain:
                lines.append(f"        {name}: {_with_default(text, default, 'msgspec' if is_struct else 'attrs')}")
            else:
                arguments = [] if name == attr and _is_member(name) else [f"name={text_source(name)}"]
                arguments += [] if default is None else [default]
                head = f"{attr if _is_member(attr) else f'member_{number}'}: {text}"
                lines += call(f"{head} = msgspec.field", arguments, indent=8) if arguments else [f"        {head}"]
        return lines if members else [*lines, "        pass"]

    def of(self, schema: Mapping[str, Any], names: Mapping[str, str]) -> str:
        """Return the type of the values that a JSON schema describes."""
        if "$ref" in schema:
            return names[schema["$ref"]]
        if "anyOf" in schema:
            types = [self.of(alternative, names) for alternative in schema["anyOf"]]
            return " | ".join(sorted(types, key=lambda type: type == "None"))
        if "enum" in schema:
            return f"Literal[{', '.join(map(value_source, schema['enum']))}]"
        if "prefixItems" in schema:
            return f"tuple[{', '.join([self.of(item, names) for item in schema['prefixItems']]) or '()'}]"
        settings = {name: schema[name] for name in _SETTINGS if name in schema}
        if "items" in schema:
            text = f"{'set' if schema.get('uniqueItems') else 'list'}[{self.of(schema['items'], names)}]"
        elif "additionalProperties" in schema:
            text = f"dict[str, {self.of(schema['additionalProperties'], names)}]"
        elif schema.get("format") == "GeoPoint":
            return "tm.GeoPoint"
        elif "type" in schema and (schema.get("format", "") in FORMATS or "format" not in schema):
            text = FORMATS.get(schema.get("format", ""), _JSON.get(schema["type"], ("Any", None)))[0]
        else:
            return "Any" if names or not schema else _ANYTHING
        if settings == {"ge": MIN_INT32, "le": MAX_INT32}:
            return "tm.Int32"
        meta = ", ".join([f"{name}={value_source(value)}" for name, value in settings.items()])
        return f"Annotated[{text}, msgspec.Meta({meta})]" if meta else text


def _default(schema: Mapping[str, Any]) -> str | None:
    """Return the default of a member as an argument; None if it has none, or none that source can express."""
    if "default" not in schema:
        return None
    value: Any = schema["default"]
    if value in ([], {}):
        return f"default_factory={'dict' if value == {} else 'set' if schema.get('uniqueItems') else 'list'}"
    if isinstance(value, list | dict) or "$ref" in schema:
        return None
    kind = FORMATS.get(schema.get("format", ""), ("", None))[1]
    return f"default={value_source(value if kind is None or value is None else msgspec.convert(value, kind))}"


def _options(schema: Mapping[str, Any], *, omits: bool) -> list[str]:
    """Return the options of a Struct; ``omits``: values lack the members that have their defaults."""
    options = ["array_like=True"] if "order" in schema else []
    options += ["omit_defaults=True"] if omits else []
    if "tag" in schema:
        field, tag = schema["tag"]
        options += [f"tag_field={text_source(field)}", f"tag={value_source(tag)}"]
    return options


def _with_default(type: str, default: str | None, package: str) -> str:
    """Return the type of a member and what it is set to, in a class of attrs or of msgspec."""
    if default is None:
        return type
    factory = default.removeprefix("default_factory=")
    if factory == default:
        return f"{type} = {default.removeprefix('default=')}"
    field = "msgspec.field(default_factory" if package == "msgspec" else "attrs.field(factory"
    return f"{type} = {field}={factory})"


def _is_member(name: str) -> bool:
    return is_name(name) and name[0] != "_"


def _partial(name: str, classes: Mapping[str, Any], schema: Mapping[str, Any]) -> set[str]:
    """Return the members of a class that values may lack."""
    partial = frozenset(schema.get("partial", ()))
    return {member for member in classes[name]["properties"] if f"{name}.{member}" in partial}


def _written_as_dict(schema: Mapping[str, Any], partial: set[str]) -> bool:
    """Return whether a class is written as a TypedDict: only that can lack members without a default."""
    lacks = any(_default(schema["properties"][name]) is None for name in partial)
    return lacks and all(map(_is_member, schema["properties"])) and "order" not in schema and "tag" not in schema


def own_types(schema: Any) -> Iterator[str]:
    """Yield the classes in a schema that only a program knows how to store, by a hook of its own."""
    parts = schema if isinstance(schema, list) else schema.values() if isinstance(schema, dict) else ()
    if (
        isinstance(schema, dict)
        and isinstance(name := schema.get("format"), str)
        and "type" not in schema
        and name != "GeoPoint"
    ):
        yield name
    for part in parts:
        yield from own_types(part)


def member_schema(schema: Any, path: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the schema of the value at a path in a nested value, without its None; None if it is unknown."""
    classes = {} if schema is UNSET else schema.get("$defs", {})
    schema = None if schema is UNSET else schema
    for step in path:
        if schema is not None:
            schema = _step(_without_none(schema), classes, step)
    return None if schema is None else _without_none(schema)


def _step(schema: Mapping[str, Any], classes: Mapping[str, Any], step: str) -> Any:
    """Return the schema of a member, by its attribute, or of an entry."""
    if "$ref" not in schema:
        return schema.get("additionalProperties")
    members = classes[schema["$ref"]]["properties"].items()
    return next((member for name, member in members if member.get("attribute", name) == step), None)


def _reach(name: str, classes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas of the classes that a class refers to, directly or not, with its own."""
    reached: dict[str, Any] = {}
    pending = [name]
    while pending:
        if (name := pending.pop()) not in reached:
            reached[name] = classes[name]
            pending += re.findall(r"'\$ref': '([^']+)'", repr(classes[name]))
    return reached


def _without_none(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    alternatives: list[dict[str, Any]] = [
        alternative for alternative in schema.get("anyOf", ()) if alternative != {"type": "null"}
    ]
    return alternatives[0] if len(alternatives) == 1 else schema
