"""Entities as JSON objects, and back: one form for files, web services and documentation.

The members are the properties of the fields, in the order of the class, each in the JSON form of its type, and None as
null. Properties that the class does not declare stand behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, TypeVar

import attrs
import msgspec

from ..codegen import Names, compile_functions
from ..datetime_types import Builtin
from ..entities.declaration import Declaration, check_value, declaration_of, located, read_only_fault
from ..entities.entity import Record, key_of, set_row
from ..entities.etag import ETAG_FORM, etag_text, etag_timestamp
from ..entities.fields import FieldModel
from ..errors import InvalidEntity, InvalidModel, did_you_mean, safe_repr
from ..formats.json_reader import UNFIT, JsonReader, Member, flat_members, members_reader, parse_object
from ..limits import MAX_PROPERTIES
from ..values.constraints import constraint_of
from ..values.extra import Extra, read_members
from ..values.geo import GeoPoint
from ..values.scalars import ValueFault

R = TypeVar("R", bound=Record)

ETAG = "odata.etag"
_AWARE: Any = Annotated[Builtin.datetime, msgspec.Meta(tz=True)]
_encode = msgspec.json.Encoder().encode
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}


class JsonForm:
    """The JSON form of a class."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self.fields: dict[str, FieldModel] = {f.property: f for f in declaration.fields if not f.type.undeclared}
        self.nested: list[str] = [name for name, f in self.fields.items() if f.type.kind is object]
        self.extra: FieldModel | None = next((f for f in declaration.fields if f.type.undeclared), None)
        self.readers: dict[str, JsonReader] = {
            name: JsonReader(f.annotation, f.type) for name, f in self.fields.items()
        }
        members = [(f"member_{at}", Any) for at in range(len(self.fields))]
        names = Names(
            encode=_encode, joined=_joined_objects,
            Members=msgspec.defstruct(
                declaration.name, members, rename=dict(zip([name for name, _ in members], self.fields, strict=True)), gc=False
            ),
        )  # fmt: skip
        source = "\n".join(self._source(names))
        self.encode: Callable[[Any], bytes] = compile_functions(f"{declaration.name} JSON", source, names)["encoded"]

    @cached_property
    def read(self) -> Callable[[Mapping[str, Any]], Any]:
        """The function that makes an entity of members that are all in order; else it returns None, or raises."""
        if self.extra is not None:
            return lambda _: None
        members = [
            Member(f.property, self.readers[f.property], _empty(f), f.name if f.kw_only else "", f.maintained)
            for f in self.fields.values()
        ]
        return members_reader(self.declaration.cls, members)

    def _source(self, names: Names) -> Iterator[str]:
        """Yield the function that encodes an entity: by a Struct, which takes half the time of a dict."""
        members = []
        yield "def encoded(e):"
        for at, f in enumerate(self.fields.values()):
            variable, value = f"v{at}", f"e.{f.name}"
            source = f.type.json_source(variable, names)
            if source != variable:  # it can name the value more than once
                yield f"    {variable} = {value}"
                value = source
                if f.optional or f.measure is not None:
                    value = f"None if {variable} is None else {source}"
            members.append(value)
        text = f"encode(Members({', '.join(members)}))"
        if self.extra is not None:
            extra = f"e.{self.extra.name}"
            text = f"joined({text}, encode({self.extra.type.json_source(extra, names)})) if {extra} else {text}"
        yield f"    return {text}"


def _empty(f: FieldModel) -> Callable[[], Any] | None:
    if f.required or f.factory is not None:
        return f.factory
    value = None if f.measure is not None else f.default
    return lambda: value


def _joined_objects(first: bytes, second: bytes) -> bytes:
    """Return one JSON object of two; what is in the second comes last."""
    return b"%s,%s" % (first[:-1], second[1:]) if len(second) > 2 else first


def json_form(cls: type[Any]) -> JsonForm:
    """Return the form of a class, which is compiled when it is first needed."""
    form: JsonForm | None = getattr(cls, "__dict__", {}).get("__json_form__")
    if form is None:
        form = JsonForm(declaration_of(cls))
        type.__setattr__(cls, "__json_form__", form)
        type.__setattr__(cls, "__json__", form.encode)
    return form


def to_json(entity: Record, *, etag: bool = False) -> bytes:
    """Return an entity as a JSON object.

    Args:
        entity: any entity, or a row of an aggregate.
        etag: whether its ETag, if it has one, comes first, as ``odata.etag``.

    Raises:
        InvalidEntity: it is no entity, or a value was changed in place and cannot be stored now; every fault.
    """
    encode: Callable[[Record], bytes] | None = getattr(type(entity), "__json__", None)
    if encode is None:
        if not isinstance(entity, Record):
            raise InvalidEntity("to_json", [f"expected an entity, got {safe_repr(entity)}; call it for each entity"])
        encode = json_form(type(entity)).encode
    try:
        text = encode(entity)
        if not etag or entity._row is None:
            return text
        return _joined_objects(_encode({ETAG: etag_text(entity._row[2])}), text)
    except (ValueError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        raise _unwritable(entity, error) from error


def _unwritable(entity: Record, error: Exception) -> Exception:
    """Return what to raise where an entity cannot be written as JSON."""
    faults = []
    for f in declaration_of(type(entity)).fields:
        try:
            check_value(f, getattr(entity, f.name))
        except AttributeError:
            faults.append(f"{f.name}: it was never set")
        except ValueFault as fault:
            faults.append(located(f.name, fault))
    return InvalidEntity(type(entity).__name__, faults) if faults else error


def to_dict(entity: Record, *, etag: bool = False) -> dict[str, Any]:
    """Return an entity as a dict of JSON's types, for any JSON library; as `to_json`."""
    return msgspec.json.decode(to_json(entity, etag=etag))  # type: ignore[no-any-return]


def field_values(entity: Record) -> dict[str, Any]:
    """Return what stands in the column of each field, by its property, in JSON's types.

    Properties that the class does not declare are one object, in the column of the field that holds them.
    """
    form, row = json_form(type(entity)), to_dict(entity)
    if form.extra is not None:
        undeclared = {name: row.pop(name) for name in list(row) if name not in form.fields}
        row[form.extra.property] = undeclared or None
    return {field.property: row[field.property] for field in declaration_of(type(entity)).fields}


def from_json(cls: type[R], data: bytes | str, /) -> R:
    """Return a new entity from a JSON object, checked like the constructor's arguments.

    A field that has a default may be missing. With an ``odata.etag`` the entity has that ETag: `Store.replace` and
    `Store.delete` then refuse if someone else wrote it since.

    Args:
        cls: its class.
        data: the text, as `to_json` writes it; a time may be in any form that RFC 3339 allows.

    Raises:
        InvalidEntity: it is not a JSON object, or a member is missing, unknown, duplicate or wrong; every fault, with
            its path.
    """
    form = json_form(cls)
    with suppress(*UNFIT):
        members = flat_members(data)
        if members is not None and not any(members.get(name) is not None for name in form.nested):
            quick: R | None = form.read(members)
            if quick is not None:
                return quick
    return _entity(cls, form, Body.parsed(form, data, cls.__name__))


def from_dict(cls: type[R], data: Mapping[str, Any], /) -> R:
    """Return a new entity from a dict with JSON's types, Python's values, or both; as `from_json`."""
    form = json_form(cls)
    if data.__class__ is dict:
        with suppress(*UNFIT):
            quick: R | None = form.read(data)
            if quick is not None:
                return quick
    if not isinstance(data, Mapping):
        raise InvalidEntity(cls.__name__, [f"expected a dict, got {safe_repr(data)}"])
    return _entity(cls, form, Body(form, data))


class Body:
    """The members of a JSON object for a class, or of a dict; each is read when it is asked for.

    Args:
        members: as builtins, or as Python's values.
        texts: the same as JSON, if that is where they come from.
        faults: what is wrong with the object as a whole.
    """

    def __init__(
        self,
        form: JsonForm,
        members: Mapping[str, Any],
        texts: Mapping[str, msgspec.Raw] | None = None,
        faults: Iterable[str] = (),
    ) -> None:
        self.members = members
        self.faults: list[str] = list(faults)
        self._form = form
        self._texts = texts

    @classmethod
    def parsed(cls, form: JsonForm, data: bytes | str, subject: str) -> Body:
        """Return the body that a text is; raise InvalidEntity if it is no JSON object."""
        try:
            texts, plain, doubled = parse_object(data)
        except ValueFault as fault:
            raise InvalidEntity(subject, [str(fault)]) from None
        return cls(form, plain, texts, doubled)

    def value(self, f: FieldModel) -> Any:
        """Return the value of a field's member; note what is wrong with it."""
        name = f.property
        plain, reader, value = self.members[name], self._form.readers[name], None
        try:
            if self._texts is not None:
                value = reader.decode(self._texts[name])
            elif plain is not None:
                value = reader.convert(plain)
            value = check_value(f, value)
        except ValueFault as error:
            self.faults.append(located(name, error))
        self.faults += [located(name, fault) for fault in islice(reader.losses(plain), MAX_PROPERTIES)]
        return value

    def undeclared(self) -> tuple[Mapping[str, Any], Extra]:
        """Return the members that are no fields, and the properties that they are; note what is wrong with them."""
        form = self._form
        members = {name: value for name, value in self.members.items() if name not in form.fields and name != ETAG}
        extra = Extra()
        if len(members) > 2 * MAX_PROPERTIES:  # (each can have another member that says its type)
            self.faults.append(
                f"{len(members)} members are none of its fields, and an entity has at most {MAX_PROPERTIES} properties"
            )
        elif form.extra is not None:
            extra, wrong = read_members(members)
            self.faults += wrong
        else:
            names = ", ".join(form.fields)
            self.faults += [
                f"{name}: no such field (fields: {names}){did_you_mean(str(name), form.fields)}" for name in members
            ]
        return members, extra


def _entity(cls: type[R], form: JsonForm, body: Body) -> R:
    values: dict[str, Any] = {}
    for name, f in form.fields.items():
        if name not in body.members:
            body.faults += [f"{name}: it is missing"] if f.required else []
        elif not f.maintained:  # (else it was written for readers)
            values[f.name] = body.value(f)
    _, extra = body.undeclared()
    if form.extra is not None:
        values[form.extra.name] = extra
    timestamp = _timestamp(body.members.get(ETAG), body.faults)
    if body.faults:
        raise InvalidEntity(cls.__name__, body.faults)
    entity = cls(**values)
    if timestamp is not None:
        set_row(entity, (*key_of(entity)[1:], timestamp))
    return entity


def _timestamp(etag: Any, faults: list[str]) -> int | None:
    if etag is None:
        return None
    timestamp = etag_timestamp(etag) if isinstance(etag, str) else -1
    if timestamp < 0:
        faults.append(f"{ETAG}: {safe_repr(etag)} is no ETag of a store, which has the form {ETAG_FORM}")
    return timestamp


# -- schema -----------------------------------------------------------------------------------------------------------


def json_schema(cls: type[Record], /, *, etag: bool = False, patch: bool = False) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what `to_json` writes and `from_json` takes, or of what `patch` takes.

    Args:
        cls: a class of entities, or an aggregate.
        etag: whether ``odata.etag`` is a member.
        patch: the schema of partial bodies: all fields that can be changed, and none that has to be there.

    Raises:
        InvalidModel: it is not a class with a table, or a patch is to have an ETag.
    """
    form = json_form(cls)
    fields = list(form.fields.values())
    if patch and etag:
        raise InvalidModel("json_schema", ["a patch has no ETag; give that to the verb, as if_match="])
    if patch:
        fields = [f for f in fields if fixed_fault(form, f) is None]
    schemas, definitions = msgspec.json.schema_components(
        [_annotation(f) for f in fields], schema_hook=_custom, ref_template="#/$defs/{name}"
    )
    properties = {
        f.property: schema | _bounds(f, schema) | ({} if patch else _default(f))
        for f, schema in zip(fields, schemas, strict=True)
    }
    if etag:
        properties = {ETAG: {"type": "string"}, **properties}
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": cls.__name__ + "Patch" * patch,
    }
    if cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("):  # else attrs' list of the fields
        schema["description"] = cls.__doc__
    schema |= {
        "type": "object",
        "properties": properties,
        "required": [f.property for f in fields if f.required and not patch],
        "additionalProperties": form.extra is not None,
    }
    return schema | ({"$defs": definitions} if definitions else {})


def fixed_fault(form: JsonForm, f: FieldModel) -> str | None:
    """Return why a patch cannot change a field; None if it can."""
    if f.name in form.declaration.key_fields:
        return f"{f.property}: it is in the key, which a patch cannot change"
    return read_only_fault(f) if f.read_only else None


def _annotation(f: FieldModel) -> Any:
    """Return the type of a field for its schema: msgspec takes a datetime that may be naive for text of any form."""
    if f.type.kind is not Builtin.datetime:
        return f.annotation if f.type.own is None else f.type.kind | None if f.optional else f.type.kind
    return _AWARE | None if f.optional else _AWARE


def _bounds(f: FieldModel, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a field asks of its values that msgspec does not know of, in the words of JSON Schema."""
    if f.constraint is None or constraint_of(f.annotation, f.type) is not None:
        return {}
    if f.type.kind is Decimal:  # which is text there: no word of JSON Schema bounds its number
        return {
            "description": f"{text}; {f.constraint.text}" if (text := schema.get("description")) else f.constraint.text
        }
    return {_BOUNDS[name]: bound for name, bound in f.constraint.bounds.items()}


def _default(f: FieldModel) -> dict[str, Any]:
    if f.read_only:
        return {"readOnly": True}
    if f.default is attrs.NOTHING:
        return {}
    return {"default": None if f.default is None else f.type.to_json(f.default)}


class _Anything(dict[str, Any]):
    """The schema of any value, which msgspec takes for one, though it is empty."""

    def __bool__(self) -> bool:
        return True


def _custom(kind: Any) -> dict[str, Any]:
    """Return the schema of a class that msgspec does not know; what hooks write is theirs alone."""
    if kind is not GeoPoint:
        return _Anything()
    number = {"type": "number"}
    return {
        "type": "object",
        "properties": {
            "type": {"const": "Point"},
            "coordinates": {"type": "array", "prefixItems": [number, number], "minItems": 2, "maxItems": 2},
        },
        "required": ["type", "coordinates"],
    }
