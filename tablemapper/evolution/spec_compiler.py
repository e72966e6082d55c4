"""Classes that are compiled from their forms in a catalogue: a program maintains what it does not declare with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from keyword import iskeyword
from typing import Annotated, Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ..entities.aggregates import Aggregate, keepers, kept_field
from ..entities.entity import Entity, Record
from ..entities.fields import FIELD, FieldOptions, Measure, MeasureKind, SourceName
from ..entities.index import Index
from ..entities.key import Key
from ..entities.key_and_indexes import IndexModel, compile_index
from ..errors import InvalidModel
from ..expressions.predicates import load, load_group, load_value
from ..expressions.tree import Attr
from ..schema.labels import is_former, plain_name
from ..schema.model import Model, Schema, model_of
from ..schema.specs import AggregateSpec, FieldSpec, Forms, IndexSpec, ModelSpec, TemplateSpec, annotation, decode_model
from ..values.json_schema import type_of
from ..values.nested import value_type
from .definitions import depth_of, keepers_of

_Entities: Any = type(Entity)
_Aggregates: Any = type(Aggregate)


class _Body:
    """The body of a class: its fields, with a name for each property."""

    def __init__(self, module: str) -> None:
        self.names: dict[str, str] = {}
        self.attributes: dict[str, Any] = {"__annotations__": {}, "__module__": module}

    def add(self, property: str, kind: Any, options: FieldOptions | Measure, name: str | None = None) -> None:
        """Add a field, by a name of its own or the one that suits its property."""
        name = self.names[property] = name or self._name(property)
        self.attributes[name] = options
        self.attributes["__annotations__"][name] = Annotated[kind, FIELD]

    def _name(self, property: str) -> str:
        if (
            property.isidentifier()
            and not iskeyword(property)
            and property[0] != "_"
            and property not in (*self.names.values(), "key")
            and not hasattr(Record, property)
        ):
            return property
        return f"property_{len(self.names)}"


def source_model(declared_model: Model, form: ModelSpec, keepers: Mapping[str, ModelSpec]) -> Model:
    """Return an entity class with the fields of a known one, and after them those that only the catalogue knows.

    Args:
        keepers: the aggregates that keep maintained fields which the known class lacks, by property.
    """
    declaration = declared_model.declaration
    body = _Body(declaration.cls.__module__)
    grouped = declaration.key_fields if declaration.maintained else ()  # (their types are those of the class measured)
    for field in declaration.fields:
        if field.measure is not None:
            # (Its source is the class of the code, whose fields may be of other types than those of the catalogue: an Enum
            # is a Literal there.)
            source: Any = field.measure.of
            name = source if isinstance(source, SourceName) else source.__name__
            measure = _measure(field.measure.kind, name, field.property)
            body.add(field.property, field.annotation, measure, field.name)
            continue
        # The catalogue knows all members of an Enum or a nested value, and the wider type of a field that can hold more
        # by now.
        class_field, catalogue_field = declared_model.form.fields[field.property], form.fields[field.property]
        as_is = class_field.json is not UNSET and (
            class_field.json == catalogue_field.json or not _is_readable(catalogue_field)
        )
        as_is |= field.name in grouped and class_field.members == catalogue_field.members
        kind = field.annotation if as_is else _kind(catalogue_field)
        body.add(
            field.property,
            kind,
            FieldOptions(name=field.property, stored=field.stored, kw_only=True, large=None),
            field.name,
        )
    for property, hidden in form.fields.items():
        if property not in body.names:
            body.add(property, _kind(hidden), FieldOptions(name=property, kw_only=True, large=None))
    for property, keeper in keepers.items():
        shape = keeper.aggregate
        assert shape is not UNSET
        body.add(property, _kind(keeper.fields[property]), _measure(shape.measures[property][0], shape.of, property))
    body.attributes["key"] = Key(partition=declaration.partition.text, row=declaration.row.text)
    return model_of(_Entities(declared_model.name, (Entity,), body.attributes, table=form.table, type=form.type))


def _measure(kind: MeasureKind, source: str, name: str) -> Measure:
    """Return the measure of a maintained field of a followed class, as the aggregate says that keeps it."""
    return Measure(kind, None, None, name, SourceName(source))


def aggregate_model(
    name: str, form: ModelSpec, source: Model, source_form: ModelSpec, declared_model: Model | None = None
) -> Model:
    """Return an aggregate, as its form describes it.

    Args:
        source: the class that it is maintained from, as `source_model` gives it.
        declared_model: the class that the program declares for it; then the fields of that come first, in its order.
    """
    shape = form.aggregate
    assert shape is not UNSET
    field = _fields_of(source)
    order = [] if declared_model is None else [field.property for field in declared_model.declaration.fields]
    body = _Body(source.cls.__module__)
    for property in sorted(form.fields, key=lambda name: order.index(name) if name in order else len(order)):
        kind, label, where = shape.measures.get(property) or ("group", shape.groups[property], None)
        measured = None if label is None else (load_group if kind == "group" else load_value)(label, field)
        condition = None if where is None else load(where, field)
        field_form = form.fields[property]
        if isinstance(label, str) and label in source_form.fields and kind not in ("count", "sum", "avg"):
            source_field = source_form.fields[label]  # (which may hold more by now)
            if not source_field.type.startswith(f"{field_form.type}["):
                field_form = replace(source_field, optional=field_form.optional)
        body.add(property, _kind(field_form), Measure(kind, measured, condition, property))
    body.attributes["key"] = _key(form, body.names)
    for index_name, index in form.indexes.items():
        body.attributes[index_name] = _declared_index(index, body.names)
    options = {} if shape.where is None else {"where": lambda _: load(shape.where, field)}
    identifier = name.replace("#", "_").replace(":", "_")  # generated functions have it in their names
    bases, table = (Aggregate,), plain_name(form.table)
    aggregate = _Aggregates(identifier, bases, body.attributes, of=source.cls, table=table, **options)
    aggregate.__name__ = name
    return model_of(aggregate)


def entity_model(name: str, form: ModelSpec) -> Model:
    """Return a class that is compiled from a form alone, without its indexes.

    Raises:
        ValueError: only the code of the class says how it stores one of its fields.
    """
    return _entity_model(name, msgspec.json.encode(replace(form, indexes={})))


@lru_cache(maxsize=256)
def _entity_model(name: str, key: bytes) -> Model:
    form = decode_model(key)
    body = _entity_body(form)
    body.attributes["key"] = _key(form, body.names)
    model = model_of(_Entities(name, (Entity,), body.attributes, table=form.table, type=form.type))
    if differing := [name for name, field in model.form.fields.items() if field.in_key != form.fields[name].in_key]:
        raise ValueError(f"what is stored of {', '.join(differing)} only the code of {name} knows")
    return model


def _entity_body(form: ModelSpec) -> _Body:
    body = _Body(__name__)
    for property, field in form.fields.items():
        is_stored = not field.in_key and property in form.key_fields
        body.add(property, _kind(field), FieldOptions(name=property, stored=is_stored, kw_only=True, large=None))
    return body


def stored_schema(forms: Forms, undeclared: Collection[str] = (), previous: Schema | None = None) -> Schema:
    """Return the classes of a catalogue, compiled from their forms alone, with their indexes and maintained fields.

    They lack what only the code of a class knows. Members of an Enum come as a Literal, nested values as classes of the
    library, and fields by the names of their properties. Defaults and constraints are missing. `Schema.lost` has the
    classes that cannot be compiled so.

    Args:
        undeclared: the labels of indexes and aggregates that the newest version of their class does not declare; they
            are left out.
        previous: what was compiled before: classes that are as they were stay the same ones.
    """
    names = [name for name in forms if not is_former(name) and kept_field(name) is None and name not in undeclared]
    compiled = {} if previous is None else previous.by_name
    models: dict[str, Model] = {}
    uncompiled: dict[str, str] = {}
    for name in sorted((name for name in names if not forms[name].aggregate), key=lambda name: depth_of(name, forms)):
        try:
            try:
                model = _whole_model(name, forms, undeclared, models, uncompiled)
            except InvalidModel:  # what it measures may hold more by now than the field was made for
                model = _whole_model(name, forms, undeclared, {}, uncompiled)
            models[name] = _same(model, compiled.get(name))
        except UNCOMPILED as error:
            uncompiled[name] = _reason(error, forms[name])
    for name in names:
        form = forms[name]
        if (shape := form.aggregate) is not UNSET:
            indexes = {
                index: index_form for index, index_form in form.indexes.items() if f"{name}.{index}" not in undeclared
            }
            if shape.of not in models:
                uncompiled[name] = _reason(f"{shape.of} cannot be read", form)
                continue
            try:
                total = aggregate_model(name, replace(form, indexes=indexes), models[shape.of], forms[shape.of])
                models[name] = _same(total, compiled.get(name))
            except UNCOMPILED as error:
                uncompiled[name] = _reason(error, form)
    keeper_models = [model_of(keeper) for model in models.values() if model.maintained for keeper in keepers(model.cls)]
    return Schema((*models.values(), *keeper_models), uncompiled)


UNCOMPILED = (InvalidModel, ValueError, AttributeError, TypeError, LookupError)
"""How it ends if a form cannot be compiled."""


def _same(model: Model, compiled: Model | None) -> Model:
    """Return the class that was compiled before, if it is the same."""
    if compiled is None or compiled.form != model.form:
        return model
    new, old = model.declaration, compiled.declaration
    fields = [
        [(field.name, field.type.name, field.optional) for field in declaration.fields] for declaration in (new, old)
    ]
    return compiled if fields[0] == fields[1] and new.of is old.of else model


def _reason(why: object, form: ModelSpec | IndexSpec) -> str:
    """Return the reason why a form cannot be compiled, and below that the form."""
    return f"{why}\n{msgspec.json.format(msgspec.json.encode(form), indent=1).decode()}"


def _whole_model(
    name: str, forms: Forms, undeclared: Collection[str], models: Mapping[str, Model], uncompiled: dict[str, str]
) -> Model:
    """Return a class with all that is maintained of it; an index that cannot be compiled is noted as lost."""
    form = forms[name]
    body = _entity_body(form)
    for keeper, property in keepers_of(name, forms).items():
        shape = forms[keeper].aggregate
        if not is_former(keeper) and keeper not in undeclared and shape is not UNSET:
            measure = _measure_of(shape, property, models.get(shape.of), body.names)
            body.add(property, _kind(forms[keeper].fields[property]), measure)
    body.attributes["key"] = _key(form, body.names)
    bare = model_of(_Entities(name, (Entity,), dict(body.attributes), table=form.table, type=form.type))
    for index, index_form in form.indexes.items():
        label = f"{name}.{index}"
        if not is_former(index) and label not in undeclared:
            try:
                index_model(bare, index, index_form)
                body.attributes[index] = _declared_index(index_form, body.names)
            except UNCOMPILED as error:
                uncompiled[label] = _reason(error, index_form)
    return model_of(_Entities(name, (Entity,), body.attributes, table=form.table, type=form.type))


def _measure_of(shape: AggregateSpec, property: str, source: Model | None, names: Mapping[str, str]) -> Measure:
    """Return the measure of a maintained field.

    Args:
        shape: of the aggregate that keeps it.
        property: the field's.
        source: what it is maintained from; None, or one that calls the fields of the key otherwise, is only named.
        names: of the fields of the key, by property.
    """
    kind, label, where = shape.measures[property]
    field_names = (
        {}
        if source is None
        else {source_field.property: source_field.name for source_field in source.declaration.fields}
    )
    if source is None or any(
        field_names.get(group) != names[property_name] for property_name, group in shape.groups.items()
    ):
        return _measure(kind, shape.of, property)
    field = _fields_of(source)
    measured = None if label is None else load_value(label, field)
    condition = None if where is None else load(where, field)
    return Measure(kind, measured, condition, property, source.cls)


def _kind(form: FieldSpec) -> Any:
    kind = annotation(form)
    if (
        form.json is not UNSET and kind != tuple[str, ...] and _is_readable(form)
    ):  # (a tuple is an array in JSON, as a list)
        kind = type_of(form.json)
    return kind | None if form.optional else kind


def _is_readable(form: FieldSpec) -> bool:
    """Return whether nested values can be looked into without the code of their class."""
    assert form.json is not UNSET
    try:
        value_type(type_of(form.json))
    except (KeyError, TypeError, ValueError):
        return False
    return True


def _fields_of(model: Model) -> Callable[[str], Attr[Any, Any]]:
    fields = {field.property: field for field in model.declaration.fields}
    return lambda property: Attr(model.cls, fields[property].name, fields[property].type)


def _key(form: ModelSpec, names: Mapping[str, str]) -> Key[*tuple[Any, ...]]:
    return Key(partition=_text(form.partition, names), row=_text(form.row, names))


def _text(form: TemplateSpec, names: Mapping[str, str]) -> Any:
    """Return the text of a template with the attributes of its fields, as a class declares it."""
    text = form.renamed_text(names)
    return text if isinstance(text, str) else tuple(text)


def _declared_index(form: IndexSpec, names: Mapping[str, str]) -> Index[Any]:
    """Return an index as a class declares it."""
    where = None if form.where is None else lambda of: load(form.where, lambda property: getattr(of, names[property]))
    return Index(
        partition=_text(form.partition, names),
        row=_text(form.row, names),
        include=tuple([names[property] for property in form.include]),
        unique=form.unique,
        table=form.table,
        where=where,
    )


def index_model(model: Model, name: str, form: IndexSpec) -> IndexModel:
    """Return an index, compiled from its form for a class."""
    declaration = model.declaration
    index = _declared_index(form, {field.property: field.name for field in declaration.fields})
    faults: list[str] = []
    compiled = compile_index(
        declaration.cls, name, index, declaration.table, {f.name: f for f in declaration.fields}, faults
    )
    if compiled is None or faults:
        raise InvalidModel(f"{model.name}.{name}", faults)
    return compiled
