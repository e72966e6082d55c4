"""Forms as Python source: the old and new classes of a migration script, as a person would write them.

A form lacks the names of Enum members (a Literal has the values), validators and factories, so the source lacks them,
too. Classes of nested values are written from their JSON schema. They stand in a namespace of their own, ``old_types``,
because a class body does not see the names of the body around it. For the same reason aggregates stand in a namespace
that is derived from that of the entities.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from ...entities.aggregates import kept_field
from ...entities.entity import Record
from ...entities.fields import MeasureKind
from ...entities.key_and_indexes import index_table
from ...evolution.definitions import depth_of, keepers_of
from ...evolution.literals import attribute_name, default_source, text_source, texts_source, value_source
from ...expressions.predicates import attribute, label_parts, load_constant
from ...expressions.tree import Attr
from ...keys.composite_times import composed, composed_fields
from ...keys.truncation import Truncation
from ...schema.labels import is_former
from ...schema.specs import FieldSpec, Forms, IndexSpec, ModelSpec, TemplateSpec, annotation
from ...values.nested import value_type
from ...values.scalars import SCALARS
from .lines import call
from .nested_classes import FORMATS, NestedTypes, member_schema

_AFTER_ENTITIES = 1_000_000  # aggregates come after all entities
_TYPES = {
    **{name: name for name in ("str", "int", "float", "bool", "Decimal", "UUID", "bytes")},
    "datetime": "dt.datetime", "date": "dt.date", "time": "dt.time", "timedelta": "dt.timedelta", "int32": "tm.Int32",
    "extra": "tm.Extra", "GeoPoint": "tm.GeoPoint",
}  # fmt: skip
_PRECISION = re.compile(r"(.*)\[(s|ms|us)\]")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class Shape:
    """The old or the new classes of a script as source.

    Args:
        side: ``old`` or ``new``, the namespace of the classes.
        forms: the classes, by name; former definitions (``Totals#1``) are left out.
        beside: the other side, written already: equal classes of nested values are taken from there.
    """

    def __init__(self, side: str, forms: Forms, old_shape: Shape | None = None) -> None:
        self.side = side
        self._forms = {name: form for name, form in forms.items() if not is_former(name)}
        self.types: NestedTypes = NestedTypes(side, None if old_shape is None else old_shape.types)

    @property
    def names(self) -> list[str]:
        """The names for the decorator of the script: ``old.Product``."""
        return [f"{self.side}.{name}" for name in self._forms if kept_field(name) is None]

    def lines(self) -> list[str]:
        """Return the source, two empty lines before each class at the top."""
        levels: dict[int, list[str]] = {}
        for name, form in self._forms.items():
            if kept_field(name) is None:
                levels.setdefault(_AFTER_ENTITIES if form.aggregate else depth_of(name, self._forms), []).append(name)
        spaces: list[tuple[str, list[list[str]]]] = []
        for number, level in enumerate(sorted(levels), 1):
            space = self.side if number == len(levels) else f"{self.side}_entities{'' if number == 1 else f'_{number}'}"
            base = spaces[-1][0] if spaces else ""
            write = self._aggregate if level == _AFTER_ENTITIES else self._entity
            bodies = [write(name, self._forms[name], base) for name in levels[level]]
            spaces.append((space, bodies))
        lines = []
        if bodies := self.types.bodies:
            lines += _namespace(f"{self.side}_types", bodies)
        for at, (space, bodies) in enumerate(spaces):
            lines += _namespace(f"{space}({spaces[at - 1][0]})" if at else space, bodies)
        return lines

    # ------------------------------------------------------------------------------------------ classes

    def _entity(self, name: str, form: ModelSpec, base: str) -> list[str]:
        options = ["tm.Entity", f"table={text_source(form.table)}"]
        if form.type is not None:
            options.append(f"type={text_source(form.type)}")
        stored_in_key = _stored_key_fields(form)
        fields = sorted(form.fields.items(), key=lambda item: item[1].may_lack)
        lines = call(f"class {name}", options, ":", indent=4)
        for property, field in fields:
            lines += self._field(property, field, is_stored=property in stored_in_key)
        keepers = {property: self._forms[keeper] for keeper, property in keepers_of(name, self._forms).items()}
        for property, keeper in keepers.items():
            lines += self._measure(property, keeper, f"{base}.{keeper.source}", maintained=True)
        fields_of_indexes = {**form.fields, **{name: keeper.fields[name] for name, keeper in keepers.items()}}
        return [*lines, "", *self._key(form), *self._indexes(replace(form, fields=fields_of_indexes))]

    def _field(self, property: str, form: FieldSpec, *, is_stored: bool) -> list[str]:
        options = []
        if form.optional:
            options.append("default=None")
        elif form.type == "extra":
            options.append("factory=tm.Extra")
        elif form.default is not None:
            options.append(f"default={default_source(form)}")
        if (precise := _PRECISION.fullmatch(form.type)) is not None:
            options.append(f"precision={text_source(precise[2])}")
        attr = attribute_name(property)
        if attr != property:
            options.append(f"name={text_source(property)}")
        if is_stored:
            options.append("stored=True")
        head = f"{attr}: tm.Field[{self._optional(form)}]"
        return call(f"{head} = tm.field", options, indent=8) if options else [f"        {head}"]

    def _key(self, form: ModelSpec) -> list[str]:
        parameters = self._parameters(form, [*form.partition.slots, *form.row.slots])
        return call(f"key = tm.Key{parameters}", self._templates(form), indent=8)

    def _templates(self, form: ModelSpec | IndexSpec) -> list[str]:
        arguments = [f"partition={texts_source(_with_attributes(form.partition))}"]
        return [*arguments, *([f"row={texts_source(_with_attributes(form.row))}"] if form.row.text else [])]

    def _indexes(self, form: ModelSpec) -> Iterator[str]:
        for name, index in form.indexes.items():
            if is_former(name):
                continue
            options = self._templates(index)
            if index.include:
                options.append(f"include={texts_source([attribute_name(property) for property in index.include])}")
            if index.where is not None:
                options.append(f"where=lambda e: {self._condition(index.where, form, 'e')}")
            if index.unique:
                options.append("unique=True")
            if index.table != index_table(form.table, name):
                options.append(f"table={text_source(index.table)}")
            slots = [slot for slot in (*index.partition.slots, *index.row.slots) if not slot[1].startswith("shard")]
            parameters = self._parameters(form, slots)  # (no query names a shard)
            yield from call(f"{name} = tm.Index{parameters}", options, indent=8)

    def _aggregate(self, name: str, form: ModelSpec, base: str) -> list[str]:
        shape = form.aggregate
        assert shape is not UNSET
        source, of = self._forms[shape.of], f"{base}.{shape.of}"
        options = ["tm.Aggregate", f"of={of}", f"table={text_source(form.table)}"]
        if shape.where is not None:
            options.append(f"where=lambda e: {self._condition(shape.where, source, 'e')}")
        lines = call(f"class {name}", options, ":", indent=4)
        for property in form.fields:
            lines += self._measure(property, form, of)
        return [*lines, "", *self._key(form), *self._indexes(form)]

    def _measure(self, property: str, form: ModelSpec, of: str, *, maintained: bool = False) -> list[str]:
        """Return the lines of a group or a measure of an aggregate, or of a maintained field.

        Args:
            of: the name of the aggregated class in this source.
            maintained: whether it is a maintained field, which stands in an entity class.
        """
        shape = form.aggregate
        assert shape is not UNSET
        group: tuple[MeasureKind, Any, Any] = ("group", shape.groups.get(property), None)
        kind, label, where = shape.measures.get(property, group)
        source = self._forms[shape.of]
        arguments = [] if label is None else [self._value(label, source, of)]
        attr = attribute_name(property)
        arguments += [f"of={of}"] if maintained else []
        arguments += [f"name={text_source(property)}"] if attr != property else []
        if where is not None:
            arguments.append(f"where={self._condition(where, source, of)}")
        verb = "group_by" if kind == "group" else kind
        head = f"{attr}: tm.Field[{self._optional(form.fields[property])}]"
        first, *following = call(f"{head} = tm.{verb}", arguments, indent=8)
        # (mypy takes the extremes of a Literal for those of any text.)
        is_literal = verb.startswith(("min", "max")) and form.fields[property].members is not UNSET
        return [f"{first}  # type: ignore[assignment]" if is_literal else first, *following]

    def _parameters(self, form: ModelSpec, slots: Iterable[tuple[str, str, str]]) -> str:
        """Return the types of the arguments of a key or index: ``[str, int]``."""
        fields = {field: kind for field, _, kind in slots}
        types = [self._argument(form, field, kind) for field, kind in fields.items()]
        return f"[{', '.join(types) or '()'}]"

    def _argument(self, form: ModelSpec, label: str, kind: str) -> str:
        """Return the type of an argument; ``kind`` is that of its slot, which tells no Literal from a text."""
        head, *path = label.split(".")
        field = form.fields[head]
        if not path:
            text = self._type(field)
            if text.startswith("list["):
                return text[5:-1]
            if field.json is UNSET or kind == "tuple":
                return text
        schema = member_schema(field.json, path)
        if schema is None:
            return _TYPES[kind]
        return self.types.of(schema if path else schema["items"], {})

    # ------------------------------------------------------------------------------------------ conditions

    def _condition(self, form: Any, model: ModelSpec, owner: str) -> str:
        """Return a condition as Python writes it.

        Args:
            form: the result of `expressions.predicates.dump`, with properties for fields.
            model: the class of these properties.
            owner: the name of the class in this source.
        """
        op, *operands = form
        if op in ("and", "or"):
            sign = " & " if op == "and" else " | "
            return sign.join([self._operand(part, model, owner) for part in operands])
        if op == "not":
            return f"~{self._operand(operands[0], model, owner)}"
        field = self._path(operands[0], model, owner)
        if op == "null":
            return f"{field}.is_null()"
        if isinstance(operands[1], dict) and operands[1].keys() == {"field"}:
            return f"{field} {_COMPARISONS[_COMPARISONS.index(op)]} {self._path(operands[1]['field'], model, owner)}"
        source = self._constant(operands[0], model, element=op == "contains")
        if op == "in":
            return f"{field}.is_in([{', '.join(map(source, operands[1]))}])"
        if op in ("startswith", "contains"):
            return f"{field}.{op}({source(operands[1])})"
        return f"{field} {_COMPARISONS[_COMPARISONS.index(op)]} {source(operands[1])}"

    def _operand(self, form: Any, model: ModelSpec, owner: str) -> str:
        """Return a part of a condition, in parentheses unless it is a call."""
        text = self._condition(form, model, owner)
        return text if form[0] in ("null", "in", "startswith", "contains") else f"({text})"

    def _constant(self, label: str, model: ModelSpec, *, element: bool) -> Callable[[Any], str]:
        """Return the function from a constant in a form to its source; ``element``: that of an element of the value."""
        head, steps, cut = label_parts(label)
        field = model.fields[head]
        if cut is not None or field.json is UNSET:
            kinds = {property: value_type(annotation(form))[0] for property, form in model.fields.items()}
            kind_of_value = attribute(label, lambda property: Attr(Record, property, kinds[property])).type
            undump = (
                kind_of_value.element.undump if element and kind_of_value.element is not None else kind_of_value.undump
            )
            return lambda value: value_source(undump(value))
        schema = member_schema(field.json, steps) or {}
        schema = schema.get("items", schema) if element else schema
        _, kind = FORMATS.get(schema.get("format", ""), ("", None))
        if kind is not None:
            return lambda value: value_source(SCALARS[kind].undump(value))
        if "type" in schema and schema["type"] not in ("array", "object"):
            return value_source
        type = self._type(field) if not steps and not element else "Any"
        if type == "tuple[str, ...]":
            return lambda value: value_source(tuple(value))
        return lambda value: f"msgspec.convert({value_source(value)}, {type})"

    def _path(self, label: str, form: ModelSpec, owner: str) -> str:
        """Return ``Reading.taken_at.date()``, or ``Reading.home.at(lambda x: x.city)``, for a label."""
        path = label.removesuffix(".each()")
        head, steps, cut = label_parts(path)
        text = f"{owner}.{attribute_name(head)}{self.types.path(form.fields[head], steps)}"
        return f"{text}{'' if cut is None else _cut(cut)}{'' if path == label else '.each()'}"

    def _value(self, form: Any, model: ModelSpec, owner: str) -> str:
        """Return the form of a field or a calculation as Python writes it; arguments as `_condition` has them."""
        if isinstance(form, str):
            return self._path(form, model, owner)
        if isinstance(form, dict):
            return value_source(load_constant(form))
        sign, *parts = form
        left, right = (
            f"({self._value(part, model, owner)})" if isinstance(part, list) else self._value(part, model, owner)
            for part in parts
        )  # fmt: skip
        return f"{left} {'+-*/'['+-*/'.index(sign)]} {right}"

    # ------------------------------------------------------------------------------------------ types

    def _optional(self, form: FieldSpec) -> str:
        text = self._type(form)
        if form.type.startswith("json[frozenset[") and text.startswith("set["):
            text = f"frozen{text}"
        elif form.type.startswith("json[tuple[") and text.startswith("list["):
            text = f"tuple[{text[5:-1]}, ...]"
        return f"{text} | None" if form.optional else text

    def _type(self, form: FieldSpec) -> str:
        is_list = form.type.startswith("list[")
        name = form.type[5:-1] if is_list else form.type
        if form.members is not UNSET:
            name = f"Literal[{', '.join(map(value_source, form.members))}]"
        elif name == "json[tuple[str, ...]]":
            return "tuple[str, ...]"
        elif form.type.startswith("json["):
            return self.types.source(form)
        else:
            precise = _PRECISION.fullmatch(name)
            name = _TYPES[name if precise is None else precise[1]]
        return f"list[{name}]" if is_list else name


def _stored_key_fields(form: ModelSpec) -> set[str]:
    """Return the fields that are stored although the key holds them without loss: ``stored=True``."""
    precise = {
        property: match[2] for property in form.fields if (match := _PRECISION.fullmatch(form.fields[property].type))
    }
    compiled = form.partition.compiled("key"), form.row.compiled("key")
    templates = composed(*compiled, lambda property: precise.get(property, ""))
    lossless = (
        templates[0].lossless_fields | templates[1].lossless_fields | (composed_fields(templates) & precise.keys())
    )
    fields = {property: form.fields[property] for property in lossless}
    return {
        property for property, field in fields.items()
        if not field.in_key and value_type(annotation(field))[0].lossless_in_key
    }  # fmt: skip


def _with_attributes(form: TemplateSpec) -> str | list[str]:
    """Return the text of a template with the attributes of its fields."""
    return form.renamed_text({property: attribute_name(property) for property in form.fields})


def _cut(cut: Truncation) -> str:
    """Return the call that cuts a time."""
    if cut.step:
        return f".{cut}".replace("(timedelta(", "(dt.timedelta(")
    arguments = [cut.format] * (cut.kind is str) + [cut.zone] * cut.is_local
    return f".{'truncate' if cut.kind is str else 'date'}({', '.join(map(text_source, arguments))})"


def _namespace(head: str, bodies: Sequence[Sequence[str]]) -> list[str]:
    lines = ["", "", f"class {head}:"]
    for number, body in enumerate(bodies):
        lines += ["", *body] if number else body
    return lines
