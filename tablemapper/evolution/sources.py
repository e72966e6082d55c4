"""Forms as Python source: the old and new classes of a migration script, as a person would write them.

A form lacks the names of Enum members (a Literal has the values), validators and factories, so the source lacks them,
too. Classes of nested values are written from their JSON schema. They stand in a namespace of their own, ``old_types``,
because a class body does not see the names of the body around it. For the same reason aggregates stand in a namespace
that is derived from that of the entities.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ..entities.aggregates import kept_field
from ..entities.declaration import index_table
from ..entities.entity import Record
from ..entities.fields import MeasureKind
from ..expressions.predicates import attribute, load_constant
from ..expressions.tree import Attr
from ..keys.cuts import CUT
from ..limits import MAX_INT32, MIN_INT32
from ..schema.forms import FieldForm, Forms, IndexForm, ModelForm, TemplateForm, annotation
from ..values.nested import value_type
from ..values.scalars import SCALARS
from .definitions import depth_of, is_former, keepers_of

__all__ = ["Shape", "attribute_name", "call", "default_source", "imports_of"]

WIDTH = 88
_LAST = 1_000_000  # aggregates come after all entities
_TYPES = {
    "datetime": "dt.datetime", "date": "dt.date", "time": "dt.time", "timedelta": "dt.timedelta", "int32": "tm.Int32",
    "extra": "tm.Extra", "GeoPoint": "tm.GeoPoint", "json[tuple[str, ...]]": "tuple[str, ...]",
}  # fmt: skip
_FORMATS: dict[str, tuple[str, Any]] = {
    "bytes": ("bytes", bytes), "date-time": ("dt.datetime", datetime), "date": ("dt.date", date),
    "time": ("dt.time", time), "duration": ("dt.timedelta", timedelta), "uuid": ("UUID", UUID),
    "decimal": ("Decimal", Decimal),
}  # fmt: skip
_JSON: dict[str, tuple[str, Any]] = {
    "null": ("None", None), "boolean": ("bool", bool), "integer": ("int", int), "number": ("float", float),
    "string": ("str", str),
}  # fmt: skip
_ANYTHING = "list[Any] | dict[str, Any]"
_IMPORTS = (
    (r"\bdt\.", "import datetime as dt"),
    (r"\bDecimal\b", "from decimal import Decimal"),
    (r"\bAny\b|\bAnnotated\b|\bLiteral\b|\bNotRequired\b|\bTypedDict\b", "from typing import {}"),
    (r"\bUUID\b", "from uuid import UUID"),
    (r"\battrs\.", "import attrs"),
    (r"\bmsgspec\.", "import msgspec"),
)


def attribute_name(property: str) -> str:
    """Return the name that a property has as an attribute of a frozen class."""
    taken = property[0] == "_" or property == "key" or hasattr(Record, property) or keyword.iskeyword(property)
    return f"property_{property.strip('_')}" if taken or not property.isidentifier() else property


def imports_of(source: str) -> list[str]:
    """Return the lines of imports for a source, without that of ``tm``, in groups with an empty line between them."""
    code = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', '""', source)
    groups: list[list[str]] = [[], []]
    for pattern, line in _IMPORTS:
        if names := sorted(set(re.findall(pattern, code))):
            groups[line in ("import attrs", "import msgspec")].append(line.format(", ".join(names)))
    return [*groups[0], *([""] if groups[0] else []), *groups[1]]


def call(head: str, arguments: Sequence[str], tail: str = "", indent: int = 0) -> list[str]:
    """Return the lines of a call, broken as a formatter breaks them."""
    line = f"{' ' * indent}{head}({', '.join(arguments)}){tail}"
    if len(line) <= WIDTH or not arguments:
        return [line]
    inner = [line for argument in arguments for line in _broken(argument, indent + 4)]
    return [f"{' ' * indent}{head}(", *inner, f"{' ' * indent}){tail}"]


def _broken(argument: str, indent: int) -> Iterator[str]:
    """Yield the lines of an argument; a condition that is too long has a line for each part."""
    start = " " * indent
    if len(start + argument) < WIDTH:
        yield f"{start}{argument},"
        return
    head, function, condition = argument.partition("lambda e: ")
    if function:
        yield f"{start}{head}{function}("
        yield from _broken_condition(condition, " " * (indent + 4))
        yield f"{start}),"
    else:
        *most, last = _broken_condition(argument, start)
        yield from [*most, f"{last},"]


def _broken_condition(condition: str, start: str) -> Iterator[str]:
    """Yield a condition, broken before each of its operators that stands outside of parentheses."""
    if len(start + condition) <= WIDTH:
        yield start + condition
        return
    depth = begin = 0
    for at, sign in enumerate(condition):
        depth += (sign in "([{") - (sign in ")]}")
        if not depth and condition[at : at + 3] in (" & ", " | "):
            yield start + condition[begin:at].strip()
            begin = at
    yield start + condition[begin:].strip()


def _text(text: str) -> str:
    return _double_quoted(repr(text))


def _double_quoted(literal: str) -> str:
    """Return a literal with double quotation marks, if it needs no escapes for that, as a formatter writes it."""
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in literal else literal


def _texts(text: str | Sequence[str]) -> str:
    if isinstance(text, str):
        return _text(text)
    return f"({', '.join(map(_text, text))}{',' if len(text) == 1 else ''})"


def value_source(value: Any) -> str:
    """Return a scalar as Python writes it."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return f"b{_double_quoted(repr(value)[1:])}"
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
        return f"{_moment(value)[:-1]}, tzinfo=dt.UTC)"
    if isinstance(value, date | time | timedelta):
        return _moment(value)
    if isinstance(value, Decimal | UUID):
        return f"{type(value).__name__}({_text(str(value))})"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f"float({_text(str(value))})"
    return repr(value)


def _moment(value: Any) -> str:
    return repr(value).replace("datetime.", "dt.", 1)


def default_source(form: FieldForm) -> str:
    """Return the default of a field as Python writes it."""
    kind, _ = value_type(annotation(form))
    return value_source(kind.undump(form.default))


class Shape:
    """The old or the new classes of a script as source.

    Args:
        side: ``old`` or ``new``, the namespace of the classes.
        forms: the classes, by name; former definitions (``Totals#1``) are left out.
        beside: the other side, written already: equal classes of nested values are taken from there.
    """

    def __init__(self, side: str, forms: Forms, beside: Shape | None = None) -> None:
        self.side = side
        self._beside = beside
        self._forms = {name: form for name, form in forms.items() if not is_former(name)}
        self._types: dict[str, tuple[dict[str, Any], str]] = {}
        """Classes of nested values: their schemas and sources, by name."""

    @property
    def names(self) -> list[str]:
        """The names for the decorator of the script: ``old.Product``."""
        return [f"{self.side}.{name}" for name in self._forms if kept_field(name) is None]

    def lines(self) -> list[str]:
        """Return the source, two empty lines before each class at the top."""
        levels: dict[int, list[str]] = {}
        for name, form in self._forms.items():
            if kept_field(name) is None:
                levels.setdefault(_LAST if form.aggregate else depth_of(name, self._forms), []).append(name)
        spaces: list[tuple[str, list[list[str]]]] = []
        for number, level in enumerate(sorted(levels), 1):
            space = self.side if number == len(levels) else f"{self.side}_entities{'' if number == 1 else f'_{number}'}"
            base = spaces[-1][0] if spaces else ""
            write = self._aggregate if level == _LAST else self._entity
            bodies = [write(name, self._forms[name], base) for name in levels[level]]
            spaces.append((space, bodies))
        lines = []
        if self._types:
            lines += _namespace(f"{self.side}_types", [source.splitlines() for _, source in self._types.values()])
        for at, (space, bodies) in enumerate(spaces):
            lines += _namespace(f"{space}({spaces[at - 1][0]})" if at else space, bodies)
        return lines

    # ------------------------------------------------------------------------------------------ classes

    def _entity(self, name: str, form: ModelForm, base: str) -> list[str]:
        options = ["tm.Entity", f"table={_text(form.table)}"]
        if form.type is not None:
            options.append(f"type={_text(form.type)}")
        stored = _stored_key_fields(form)
        fields = sorted(form.fields.items(), key=lambda item: _has_default(item[1]))
        lines = call(f"class {name}", options, ":", indent=4)
        for property, field in fields:
            lines += self._field(property, field, stored=property in stored)
        keepers = {property: self._forms[keeper] for keeper, property in keepers_of(name, self._forms).items()}
        for property, keeper in keepers.items():
            lines += self._measure(property, keeper, f"{base}.{keeper.source}", maintained=True)
        fields_of_indexes = {**form.fields, **{name: keeper.fields[name] for name, keeper in keepers.items()}}
        return [*lines, "", *self._key(form), *self._indexes(replace(form, fields=fields_of_indexes))]

    def _field(self, property: str, form: FieldForm, *, stored: bool) -> list[str]:
        options = []
        if form.optional:
            options.append("default=None")
        elif form.type == "extra":
            options.append("factory=tm.Extra")
        elif form.default is not None:
            options.append(f"default={default_source(form)}")
        attr = attribute_name(property)
        if attr != property:
            options.append(f"name={_text(property)}")
        if stored:
            options.append("stored=True")
        head = f"{attr}: tm.Field[{self._optional(form)}]"
        return call(f"{head} = tm.field", options, indent=8) if options else [f"        {head}"]

    def _key(self, form: ModelForm) -> list[str]:
        parameters = self._parameters(form, [*form.partition.slots, *form.row.slots])
        return call(f"key = tm.Key{parameters}", self._templates(form), indent=8)

    def _templates(self, form: ModelForm | IndexForm) -> list[str]:
        arguments = [f"partition={_texts(_with_attributes(form.partition))}"]
        return [*arguments, *([f"row={_texts(_with_attributes(form.row))}"] if form.row.text else [])]

    def _indexes(self, form: ModelForm) -> Iterator[str]:
        for name, index in form.indexes.items():
            if is_former(name):
                continue
            options = self._templates(index)
            if index.include:
                options.append(f"include={_texts([attribute_name(property) for property in index.include])}")
            if index.where is not None:
                options.append(f"where=lambda e: {self._condition(index.where, form, 'e')}")
            if index.unique:
                options.append("unique=True")
            if index.table != index_table(form.table, name):
                options.append(f"table={_text(index.table)}")
            slots = [slot for slot in (*index.partition.slots, *index.row.slots) if not slot[1].startswith("shard")]
            parameters = self._parameters(form, slots)  # (no query names a shard)
            yield from call(f"{name} = tm.Index{parameters}", options, indent=8)

    def _aggregate(self, name: str, form: ModelForm, base: str) -> list[str]:
        shape = form.aggregate
        assert shape is not UNSET
        source, of = self._forms[shape.of], f"{base}.{shape.of}"
        options = ["tm.Aggregate", f"of={of}", f"table={_text(form.table)}"]
        if shape.where is not None:
            options.append(f"where=lambda e: {self._condition(shape.where, source, 'e')}")
        lines = call(f"class {name}", options, ":", indent=4)
        for property in form.fields:
            lines += self._measure(property, form, of)
        return [*lines, "", *self._key(form), *self._indexes(form)]

    def _measure(self, property: str, form: ModelForm, of: str, *, maintained: bool = False) -> list[str]:
        """Return the lines of a group or a measure of an aggregate, or of a maintained field.

        Args:
            property: the field.
            form: the form of the aggregate.
            of: the name of the aggregated class in this source.
            maintained: whether it is a maintained field, which stands in an entity class.
        """
        shape = form.aggregate
        assert shape is not UNSET
        none: tuple[MeasureKind, Any, Any] = ("group", shape.groups.get(property), None)
        kind, label, where = shape.measures.get(property, none)
        arguments = [] if label is None else [_value(label, of)]
        attr = attribute_name(property)
        if maintained:
            arguments += [f"of={of}", *([f"name={_text(property)}"] if attr != property else [])]
        if where is not None:
            arguments.append(f"where={self._condition(where, self._forms[shape.of], of)}")
        verb = "group_by" if kind == "group" else kind
        head = f"{attr}: tm.Field[{self._optional(form.fields[property])}]"
        return call(f"{head} = tm.{verb}", arguments, indent=8)

    def _parameters(self, form: ModelForm, slots: Iterable[tuple[str, str, str]]) -> str:
        """Return the types of the arguments of a key or index: ``[str, int]``, or ``[*tuple[Any, ...]]`` if unknown."""
        fields = {field: kind for field, _, kind in slots}
        types = [self._argument(form, field, whole=kind == "tuple") for field, kind in fields.items()]
        if not types or len(types) > 6 or None in types:
            return "[*tuple[Any, ...]]" if types else "[()]"
        return f"[{', '.join(map(str, types))}]"

    def _argument(self, form: ModelForm, label: str, *, whole: bool) -> str | None:
        head, *path = label.split(".")
        field = form.fields[head]
        if not path:
            text = self._type(field)
            if text == "tuple[str, ...]" and not whole:
                return "str"
            return text[5:-1] if text.startswith("list[") else text
        schema = _member(field.json, path)
        return None if schema is None else self._json(schema, {})

    # ------------------------------------------------------------------------------------------ conditions

    def _condition(self, form: Any, model: ModelForm, owner: str) -> str:
        """Return a condition as Python writes it.

        Args:
            form: the result of `expressions.predicates.dump`, with properties for fields.
            model: the class of these properties.
            owner: the name of the class in this source.
        """
        op, *rest = form
        if op in ("and", "or"):
            sign = " & " if op == "and" else " | "
            return sign.join([self._operand(part, model, owner) for part in rest])
        if op == "not":
            return f"~{self._operand(rest[0], model, owner)}"
        field = _path(rest[0], owner)
        if op == "null":
            return f"{field}.is_null()"
        if isinstance(rest[1], dict) and rest[1].keys() == {"field"}:
            return f"{field} {op} {_path(rest[1]['field'], owner)}"
        undump = self._undump(rest[0], model)
        if op == "in":
            return f"{field}.is_in([{', '.join([value_source(undump(value)) for value in rest[1]])}])"
        if op == "startswith":
            return f"{field}.startswith({value_source(rest[1])})"
        value = value_source(undump(rest[1]))
        return f"{field}.contains({value})" if op == "contains" else f"{field} {op} {value}"

    def _operand(self, form: Any, model: ModelForm, owner: str) -> str:
        """Return a part of a condition, in parentheses unless it is a call."""
        text = self._condition(form, model, owner)
        return text if form[0] in ("null", "in", "startswith", "contains") else f"({text})"

    def _undump(self, label: str, model: ModelForm) -> Callable[[Any], Any]:
        """Return the function from a constant in a form to its value."""
        head, *path = re.split(r"[.\[]", label, maxsplit=1)
        if path and CUT.search(label) is None:
            schema = _member(model.fields[head].json, label.split(".")[1:]) or {}
            _, kind = _FORMATS.get(schema.get("format", ""), ("", None))
            return SCALARS[kind].undump if kind is not None else lambda value: value
        kinds = {property: value_type(annotation(form))[0] for property, form in model.fields.items()}
        found = attribute(label, lambda property: Attr(Record, property, kinds[property])).type
        return (found.element or found).undump

    # ------------------------------------------------------------------------------------------ types

    def _optional(self, form: FieldForm) -> str:
        return f"{self._type(form)} | None" if form.optional else self._type(form)

    def _type(self, form: FieldForm) -> str:
        listed = form.type.startswith("list[")
        name = form.type[5:-1] if listed else form.type
        if form.members is not UNSET:
            name = f"Literal[{', '.join(map(value_source, form.members))}]"
        elif form.type.startswith("json[") and form.type not in _TYPES:
            return self._nested(form)
        else:
            name = _TYPES.get(name, name)
        return f"list[{name}]" if listed else name

    def _nested(self, form: FieldForm) -> str:
        if form.json is UNSET:
            return _ANYTHING
        return self._json(form.json, self._define(form.json))

    def _define(self, schema: Mapping[str, Any]) -> dict[str, str]:
        """Write the classes of a schema; return the name of each in the script."""
        classes: dict[str, Any] = schema.get("$defs", {})
        partial = frozenset(schema.get("partial", ()))
        names: dict[str, str] = {}
        added: dict[str, str] = {}
        for name, class_schema in classes.items():
            base = identifier = re.sub(r"\W+", "_", name).strip("_") or "Nested"
            within = _reach(name, classes)
            definition = {
                "class": class_schema,
                "within": within,
                "partial": {member for member in partial if member.partition(".")[0] in within},
            }
            if self._beside is not None and self._beside.defines(identifier, definition):
                names[name] = f"{self._beside.side}_types.{identifier}"
                continue
            number = 2
            while identifier in self._types and not self.defines(identifier, definition):
                identifier, number = f"{base}_{number}", number + 1
            names[name] = f"{self.side}_types.{identifier}"
            if identifier not in self._types:
                self._types[identifier] = definition, ""
                added[name] = identifier
        for name, identifier in added.items():
            optional = {member for member in classes[name]["properties"] if f"{name}.{member}" in partial}
            lines = self._class(identifier, classes[name], names, optional)
            self._types[identifier] = self._types[identifier][0], "\n".join(lines)
        return names

    def defines(self, name: str, definition: Mapping[str, Any]) -> bool:
        """Return whether this side has a class of nested values with this name and definition."""
        return name in self._types and self._types[name][0] == definition

    def _class(
        self, identifier: str, schema: Mapping[str, Any], names: Mapping[str, str], partial: set[str]
    ) -> list[str]:
        """Return the lines of the class of a nested value; ``partial``: the members that values may lack."""
        members = [(name, member, self._default(member)) for name, member in schema["properties"].items()]
        optional = {name for name, _, default in members if default is not None}
        without_default = partial - optional
        plain = all(name.isidentifier() and name[0] != "_" and not keyword.iskeyword(name) for name, *_ in members)
        options = []
        if "order" in schema:
            options.append("array_like=True")
        if partial and partial == optional:
            options.append("omit_defaults=True")
        if "tag" in schema:
            field, tag = schema["tag"]
            options += [f"tag_field={_text(field)}", f"tag={value_source(tag)}"]
        is_typed_dict = without_default and plain and not options
        if "order" not in schema:
            members.sort(key=lambda member: member[2] is not None)
        is_struct = options or not plain
        if is_typed_dict:
            lines = [f"    class {identifier}(TypedDict):"]
        elif is_struct:
            lines = call(f"class {identifier}", ["msgspec.Struct", *options], ":", indent=4)
        else:
            lines = ["    @attrs.define", f"    class {identifier}:"]
        for number, (name, member, default) in enumerate(members):
            text = self._json(member, names)
            if is_typed_dict and name in without_default:
                lines.append(f"        {name}: NotRequired[{text}]")
            elif not plain:
                arguments = [f"name={_text(name)}", *([] if default is None else [default])]
                lines += call(f"member_{number}: {text} = msgspec.field", arguments, indent=8)
            elif default is None:
                lines.append(f"        {name}: {text}")
            elif default.startswith("default="):
                lines.append(f"        {name}: {text} = {default.removeprefix('default=')}")
            else:
                factory = default.removeprefix("default_factory=")
                field = f"msgspec.field(default_factory={factory})" if is_struct else f"attrs.field(factory={factory})"
                lines.append(f"        {name}: {text} = {field}")
        return lines if members else [*lines, "        pass"]

    def _default(self, schema: Mapping[str, Any]) -> str | None:
        """Return the default of a member as an argument; None if it has none, or none that source can express."""
        if "default" not in schema:
            return None
        value: Any = schema["default"]
        if value in ([], {}):
            return f"default_factory={'dict' if value == {} else 'set' if schema.get('uniqueItems') else 'list'}"
        if isinstance(value, list | dict) or "$ref" in schema:
            return None
        kind = _FORMATS.get(schema.get("format", ""), ("", None))[1]
        return f"default={value_source(value if kind is None or value is None else msgspec.convert(value, kind))}"

    def _json(self, schema: Mapping[str, Any], names: Mapping[str, str]) -> str:
        """Return the type of the values that a JSON schema describes."""
        if "$ref" in schema:
            return names[schema["$ref"]]
        if "anyOf" in schema:
            types = [self._json(alternative, names) for alternative in schema["anyOf"]]
            return " | ".join(sorted(types, key=lambda type: type == "None"))
        if "enum" in schema:
            return f"Literal[{', '.join(map(value_source, schema['enum']))}]"
        if "prefixItems" in schema:
            return f"tuple[{', '.join([self._json(item, names) for item in schema['prefixItems']]) or '()'}]"
        settings = {name: schema[name] for name in _SETTINGS if name in schema}
        if "items" in schema:
            text = f"{'set' if schema.get('uniqueItems') else 'list'}[{self._json(schema['items'], names)}]"
        elif "additionalProperties" in schema:
            text = f"dict[str, {self._json(schema['additionalProperties'], names)}]"
        elif schema.get("format") == "GeoPoint":
            return "tm.GeoPoint"
        elif "type" in schema and (schema.get("format", "") in _FORMATS or "format" not in schema):
            text = _FORMATS.get(schema.get("format", ""), _JSON.get(schema["type"], ("Any", None)))[0]
        else:
            return "Any" if names or not schema else _ANYTHING
        if settings == {"ge": MIN_INT32, "le": MAX_INT32}:
            return "tm.Int32"
        meta = ", ".join([f"{name}={value_source(value)}" for name, value in settings.items()])
        return f"Annotated[{text}, msgspec.Meta({meta})]" if meta else text


_SETTINGS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")


def _has_default(form: FieldForm) -> bool:
    return form.optional or form.default is not None


def _stored_key_fields(form: ModelForm) -> set[str]:
    """Return the fields that are stored although the key holds them without loss: ``stored=True``."""
    lossless = form.partition.compiled("key").lossless_fields | form.row.compiled("key").lossless_fields
    fields = {property: form.fields[property] for property in lossless}
    return {
        property for property, field in fields.items()
        if not field.in_key and value_type(annotation(field))[0].lossless_in_key
    }  # fmt: skip


def _with_attributes(form: TemplateForm) -> str | list[str]:
    """Return the text of a template with the attributes of its fields."""
    return form.renamed_text({property: attribute_name(property) for property in form.fields})


def _value(form: Any, owner: str) -> str:
    """Return the form of a field or a calculation as Python writes it."""
    if isinstance(form, str):
        return _path(form, owner)
    if isinstance(form, dict):
        return value_source(load_constant(form))
    sign, *parts = form
    left, right = (f"({_value(part, owner)})" if isinstance(part, list) else _value(part, owner) for part in parts)
    return f"{left} {sign} {right}"


def _path(label: str, owner: str) -> str:
    """Return ``Reading.taken_at.date()``, or ``Reading.home.at(lambda x: x.city)``, for a label."""
    end = min([at for at in (label.find("."), label.find("[")) if at >= 0], default=len(label))
    field, rest = f"{owner}.{attribute_name(label[:end])}", label[end:]
    cut = CUT.search(rest)
    nested, part = (rest[: cut.start()], cut[0].replace("(timedelta(", "(dt.timedelta(")) if cut else (rest, "")
    return f"{field}.at(lambda x: x{nested}){part}" if nested else field + part


def _member(schema: Any, path: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the schema of the value at a path in a nested value, without its None; None if it is unknown."""
    classes = {} if schema is UNSET else schema.get("$defs", {})
    for step in path:
        if not isinstance(schema, dict):
            return None
        schema = _without_none(schema)
        if "$ref" in schema:
            schema = classes[schema["$ref"]]["properties"].get(step)
        else:
            schema = schema.get("additionalProperties")
    return _without_none(schema) if isinstance(schema, dict) else None


def _reach(name: str, classes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas of the classes that a class refers to, directly or not, with its own."""
    reached: dict[str, Any] = {}
    left = [name]
    while left:
        if (name := left.pop()) not in reached:
            reached[name] = classes[name]
            left += re.findall(r"'\$ref': '([^']+)'", repr(classes[name]))
    return reached


def _without_none(schema: dict[str, Any]) -> dict[str, Any]:
    others = [alternative for alternative in schema.get("anyOf", ()) if alternative != {"type": "null"}]
    return others[0] if len(others) == 1 else schema


def _namespace(head: str, bodies: Sequence[Sequence[str]]) -> list[str]:
    lines = ["", "", f"class {head}:"]
    for number, body in enumerate(bodies):
        lines += ["", *body] if number else body
    return lines
