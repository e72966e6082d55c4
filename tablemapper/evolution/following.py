"""What a store does for its classes beyond what their code declares, because the catalogue of its file says so.

A newer version of a program, or another program, may have added properties, indexes and aggregates to a class. Those who
do not know them carry the properties along, and maintain the rest: a class is made of the catalogue's form, with the
fields of the known class first, so that its functions work on the known class's rows with a *tail* of hidden properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from keyword import iskeyword
from typing import Annotated, Any

import attrs
import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ..entities.aggregates import Aggregate, kept_field
from ..entities.declaration import compile_index
from ..entities.entity import Entity, Record
from ..entities.fields import FIELD, FieldOptions, Measure, SourceName
from ..entities.index import Index
from ..entities.key import Key
from ..errors import InvalidModel, SchemaMismatch
from ..expressions.predicates import load, load_group, load_value
from ..expressions.tree import Attr
from ..keys.overlap import disjoint
from ..keys.template import Template, renamed_text
from ..schema.forms import FieldForm, Forms, IndexForm, ModelForm, TemplateForm, annotation, stored_default
from ..schema.maintenance import IndexMaintenance, index_maintenance
from ..schema.model import Model, Schema, model_of
from ..schema.rows import DAMAGE, FIRST, Row
from .definitions import as_declared, is_former, plain_name
from .rules import key_templates, reads

__all__ = ["Followed", "depth_of", "entity_model", "follow", "owners_of"]


@attrs.frozen(eq=False, slots=False)
class Followed:
    """A class as its file has it."""

    known: Model
    """The class as its code declares it."""
    model: Model
    """The class with its hidden properties: its rows are those of the known one, with a tail."""
    tail: Row
    """The stored defaults of the hidden properties."""
    indexes: tuple[IndexMaintenance, ...]
    """Those that the code does not declare."""
    aggregates: tuple[Model, ...]
    """Those that are not opened."""
    refusals: tuple[str, ...]
    """What cannot be maintained here, so that nothing can be written."""
    narrow: Mapping[str, FieldForm]
    """Fields with columns, by name, that can hold values in the file which the class does not know."""
    narrow_keys: frozenset[str]
    """Fields that only the key holds, of which the same is true."""
    special: tuple[tuple[str, Template, Template], ...]
    """More special classes of the same table that are not opened, with the templates of their keys."""

    @cached_property
    def nested(self) -> tuple[int, ...]:
        """The places in a row of nested values that can have members which the class does not know."""
        return tuple(self.known.position[name] for name, form in self.narrow.items() if form.json is not UNSET)

    @cached_property
    def checked(self) -> bool:
        """Whether there is anything to do for a row that is written."""
        return bool(self.refusals or self.tail or self.nested or self.special)

    @cached_property
    def extra(self) -> int | None:
        """The place in a row of the undeclared properties."""
        return next((at for at, field in enumerate(self.known.columns, FIRST) if field.type.undeclared), None)

    def check_writable(self) -> None:
        """Raise SchemaMismatch if something cannot be maintained here."""
        if self.refusals:
            raise SchemaMismatch(self.known.name, [f"{fault}; nothing was written" for fault in self.refusals])

    def completed(self, row: Row, old: Row | None = None) -> Row:
        """Return a row that is to be written, with its tail.

        Args:
            row: as the known class makes it.
            old: what is stored under its key, with its tail.

        Raises:
            SchemaMismatch: it cannot be written by this version of the class.
        """
        self.check_writable()
        width = FIRST + len(self.known.columns)
        if self.tail and self.extra is not None:
            self._check_undeclared(row)
        if old is None:
            for name, *templates in self.special:
                if all(template.matches_prefix(text) for template, text in zip(templates, row, strict=False)):
                    raise SchemaMismatch(
                        f"{self.known.name} {row[:2]}", [f"this key belongs to {name}; choose other values"]
                    )
            return (*row[:width], *self.tail)
        values = list(row[:width])
        for at in self.nested:
            values[at] = self._nested(row, old, at)
        return (*values, *old[width : width + len(self.tail)])

    def _nested(self, row: Row, old: Row, at: int) -> Any:
        """Return a nested value as it is to be stored: with the members that the class does not know, if nothing changed."""
        field = self.known.columns[at - FIRST]
        if old[at] is None or old[at] == row[at]:
            return row[at]
        seen = field.type.store(field.type.load(old[at]))
        if seen == row[at]:
            return old[at]
        if seen != old[at]:
            raise SchemaMismatch(
                f"{self.known.name} {row[:2]}",
                [
                    f"{field.name} holds members that this version does not know, and they would be lost with this change; "
                    "change it with the version that has them; nothing was written"
                ],
            )
        return row[at]

    def _check_undeclared(self, row: Row) -> None:
        assert self.extra is not None
        hidden = {field.property for field in self.model.columns[len(self.known.columns) :]}
        for name in hidden.intersection(msgspec.json.decode(row[self.extra] or "{}")):
            raise SchemaMismatch(
                f"{self.known.name} {row[:2]}",
                [
                    f'the undeclared property "{name}" is declared by a newer version; set it with that; nothing was written'
                ],
            )

    def check_row(self, row: Row) -> None:
        """Raise SchemaMismatch if the class cannot have what a row holds."""
        for name in self.narrow:
            self.check(name, row[self.known.position[name]], *row[:2])
        if self.narrow_keys:
            self.check_key(row[0], row[1])

    def check_key(self, partition: str, row: str) -> str:
        """Return the partition key of a stored row; raise SchemaMismatch if the class cannot have what its key holds."""
        texts = (partition, row)
        templates = zip(self.known.declaration.templates, self.model.declaration.templates, texts, strict=True)
        for known, stored, text in templates:
            try:
                known.decode(text, trusted=True)
            except DAMAGE as error:
                try:
                    values = stored.decode(text, trusted=True)
                except DAMAGE:
                    return partition  # it is damaged, which reading it says
                held = ", ".join(f"{name} is {value!r}" for name, value in values.items() if name in self.narrow_keys)
                raise self._unknown(held, partition, row) from error
        return partition

    def check_index(self, first: Template, second: Template, *keys: str) -> str:
        """Return the partition key of a row of an index; raise SchemaMismatch if the class cannot have what its key holds.

        Args:
            first, second: the templates of the index.
            keys: of its row, and of the entity.
        """
        try:
            first.decode(keys[0], trusted=True)
            second.decode(keys[1], trusted=True)
        except DAMAGE as error:
            raise self._unknown(f"its key in an index is {keys[:2]}", *keys[2:]) from error
        return keys[0]

    def check(self, field: str, value: Any, partition: str, row: str) -> Any:
        """Return a stored value of a narrow field; raise SchemaMismatch if the class cannot have it."""
        model = self.known.declaration.field(field)
        if value is None:
            if model.optional:
                return None
        else:
            try:
                model.type.load(value)
            except DAMAGE:
                pass
            else:
                return value
        raise self._unknown(f"{field} is {value!r}", partition, row)

    def _unknown(self, what: str, partition: str, row: str) -> SchemaMismatch:
        name = self.known.name
        return SchemaMismatch(
            f"{name} {(partition, row)}",
            [f"{what}, which this version does not know (another version of {name} in the file does)"],
        )


def follow(
    schema: Schema, forms: Forms, names: Mapping[Model, str], refused: Mapping[str, Sequence[str]]
) -> dict[Model, Followed]:
    """Return what is to be done beyond what classes declare, for those where there is anything.

    Args:
        schema: the classes.
        forms: the catalogue.
        names: of the classes in the catalogue.
        refused: why entities of a class cannot be written, by its name.
    """
    found = {}
    declared = {model.name for model in schema.models if names[model] == model.name}
    for model in schema.models:
        if (
            model.name not in declared
        ):  # by a former definition: what is maintained of that is made of the catalogue's form
            continue
        form = forms.get(model.name)
        if form is None:
            continue
        targets = {
            name: one
            for name, one in forms.items()
            if one.aggregate is not UNSET and one.aggregate.of == model.name and name not in declared
        }
        special = tuple(_special(model, schema, forms))
        source = model
        if model.aggregate is not None:
            source = schema.by_class[model.aggregate.source]
        refusals = tuple(refused.get(model.name, ()))
        if targets or special or refusals or _knows_more(form, model.form):
            origin = forms.get(source.name, source.form)
            kept = _unknown_fields(model, forms) if model.aggregate is None else {}
            key = msgspec.json.encode([form, origin, targets, kept])
            followed = _followed(model, source, key)
            found[model] = attrs.evolve(followed, special=special, refusals=followed.refusals + refusals)
    return found


def owners_of(schema: Schema, forms: Forms) -> Iterator[Model]:
    """Yield classes that are not opened, with an index over fields that are maintained from classes which are."""
    for name, form in forms.items():
        if name in schema.by_name or form.aggregate is not UNSET:
            continue
        kept = {label: field[1] for label in forms if (field := kept_field(label)) is not None and field[0] == name}
        shapes = [shape for label in kept if (shape := forms[label].aggregate) is not UNSET]
        over = any(reads(index, property) for index in form.indexes.values() for property in kept.values())
        if over and any(shape.of in schema.by_name for shape in shapes):
            with suppress(*_UNKNOWN):  # what is maintained for it cannot be, then
                yield entity_model(name, form)


def depth_of(name: str, forms: Forms) -> int:
    """Return how many classes stand between a class and one that its maintained fields are made of in the end."""
    kept = [form.aggregate for label, form in forms.items() if (kept_field(label) or ("",))[0] == name]
    return max([1 + depth_of(shape.of, forms) for shape in kept if shape is not UNSET], default=0)


def _unknown_fields(model: Model, forms: Forms) -> dict[str, ModelForm]:
    """Return the aggregates that keep fields which a class does not know, by property, where an index is over them."""
    known = {field.property for field in model.maintained}
    found = {}
    for label, keeper in forms.items():
        if (kept := kept_field(label)) is not None and kept[0] == model.name and not is_former(label):
            indexes = forms[model.name].indexes.values()
            if kept[1] not in known and any(reads(index, kept[1]) for index in indexes):
                found[kept[1]] = keeper
    return found


def _knows_more(form: ModelForm, own: ModelForm) -> bool:
    """Return whether a catalogue's form has anything that a class lacks."""
    if form.type != own.type or form.fields.keys() != own.fields.keys() or form.indexes.keys() != own.indexes.keys():
        return True
    if not all(as_declared(index, own.indexes[name]) for name, index in form.indexes.items()):
        return True
    return any(_is_narrow(form.fields[name], field) for name, field in own.fields.items())


def _is_narrow(form: FieldForm, own: FieldForm) -> bool:
    """Return whether a field can hold what a class cannot have there."""
    if form.optional and not own.optional:
        return True
    if own.json is not UNSET:
        return form.json is not UNSET and form.json != own.json
    return form.type != own.type or form.members != own.members


def _special(model: Model, schema: Schema, forms: Forms) -> Iterator[tuple[str, Template, Template]]:
    for name, form in forms.items():
        if form.table == model.table and name not in schema.by_name:
            templates = key_templates(form)
            if disjoint(model.declaration.templates, templates) == "carve b":
                yield name, *templates


@lru_cache(maxsize=256)
def _followed(model: Model, source: Model, key: bytes) -> Followed:
    form, origin, targets, kept = msgspec.json.decode(
        key, type=tuple[ModelForm, ModelForm, dict[str, ModelForm], dict[str, ModelForm]]
    )
    classes = _Classes(source, origin, kept)
    stored = classes.source if source is model else classes.aggregate(model.name, form, model)
    known = len(model.columns)
    own = form.fields | {property: keeper.fields[property] for property, keeper in kept.items()}
    hidden = [own[field.property] for field in stored.columns[known:]]
    refusals: list[str] = []
    indexes: list[IndexMaintenance] = []
    aggregates: list[Model] = []
    for name, index in form.indexes.items():
        declared = model.form.indexes.get(name)
        if declared is None or not as_declared(index, declared):
            try:
                indexes.append(index_maintenance(stored, _index(stored, name, index)))
            except _UNKNOWN as error:
                refusals.append(_refusal(f"{model.name}.{name}", error))
    for name, target in targets.items():
        try:
            aggregates.append(classes.aggregate(name, target))
        except _UNKNOWN as error:
            refusals.append(_refusal(name, error))
    fields = model.form.fields
    names = {field.property: field.name for field in model.declaration.fields}
    narrow = {
        names[name]: field for name, field in form.fields.items() if name in fields and _is_narrow(field, fields[name])
    }
    columns = {name: field for name, field in narrow.items() if name in model.position}
    return Followed(
        model, stored, tuple(map(stored_default, hidden)), tuple(indexes), tuple(aggregates), tuple(refusals), columns,
        frozenset(narrow.keys() - columns.keys()), (),
    )  # fmt: skip


_UNKNOWN = (InvalidModel, ValueError, AttributeError, TypeError, LookupError)


def _refusal(label: str, error: Exception) -> str:
    faults = error.faults if isinstance(error, InvalidModel) else [str(error)]
    return f"{label} needs the version that declares it ({'; '.join(faults)})"


# ---------------------------------------------------------------------------------------------- classes made of forms


_Entities: Any = type(Entity)
_Aggregates: Any = type(Aggregate)


class _Classes:
    """Makes classes of forms: the entity class with its hidden properties, and the aggregates of it."""

    def __init__(self, source: Model, form: ModelForm, kept: Mapping[str, ModelForm]) -> None:
        self._form = form
        known = source.declaration
        options: dict[str, FieldOptions | Measure] = {}
        annotations: dict[str, Any] = {}
        for field in known.fields:
            if field.measure is not None:
                annotations[field.name] = Annotated[field.annotation, FIELD]
                options[field.name] = field.measure
                continue
            stored = form.fields[field.property]
            # What is stored of an Enum, and of a field that can hold more by now, is what the catalogue says.
            annotations[field.name] = Annotated[
                _kind(stored) if field.type.json_schema is None else field.annotation, FIELD
            ]
            options[field.name] = FieldOptions(name=field.property, stored=field.stored, kw_only=True)
        properties = {field.property for field in known.fields}
        for property, hidden in form.fields.items():
            if property not in properties:
                name = _name(property, annotations)
                annotations[name] = Annotated[_kind(hidden), FIELD]
                options[name] = FieldOptions(name=property, kw_only=True)
        for property, keeper in kept.items():
            shape = keeper.aggregate
            assert shape is not UNSET
            name = _name(property, annotations)
            annotations[name] = Annotated[_kind(keeper.fields[property]), FIELD]
            options[name] = Measure(shape.measures[property][0], None, None, property, SourceName(shape.of))
        body: dict[str, Any] = {
            **options,
            "__annotations__": annotations,
            "__module__": known.cls.__module__,
            "key": Key(partition=known.partition.text, row=known.row.text),
        }
        self.source = model_of(_Entities(source.name, (Entity,), body, table=form.table, type=form.type))

    def aggregate(self, name: str, form: ModelForm, known: Model | None = None) -> Model:
        """Return an aggregate of the class, its fields in the order of the known one."""
        cls = self.source.cls
        shape = form.aggregate
        assert shape is not UNSET
        field = _fields_of(self.source)
        order = [] if known is None else [one.property for one in known.declaration.fields]
        names: dict[str, str] = {}
        body: dict[str, Any] = {"__annotations__": {}, "__module__": cls.__module__}
        for property in sorted(form.fields, key=lambda one: order.index(one) if one in order else len(order)):
            attr = names[property] = _name(property, names.values())
            kind, label, where = shape.measures.get(property) or ("group", shape.groups[property], None)
            measured = None if label is None else (load_group if kind == "group" else load_value)(label, field)
            body[attr] = Measure(kind, measured, None if where is None else load(where, field), property)
            stored = form.fields[property]
            if (
                isinstance(label, str) and label in self._form.fields and kind not in ("count", "sum", "avg")
            ):  # (what it takes may be more by now)
                stored = replace(self._form.fields[label], optional=stored.optional)
            body["__annotations__"][attr] = Annotated[_kind(stored), FIELD]
        body["key"] = Key(partition=_text(form.partition, names), row=_text(form.row, names))
        for index, one in form.indexes.items():
            body[index] = _declared(one, names)
        where = shape.where
        options = {} if where is None else {"where": lambda _: load(where, field)}
        plain = name.replace("#", "_").replace(
            ":", "_"
        )  # what is generated for a class has its name, which must be one
        made = _Aggregates(plain, (Aggregate,), body, of=cls, table=plain_name(form.table), **options)
        made.__name__ = name
        return model_of(made)


def entity_model(name: str, form: ModelForm) -> Model:
    """Return a class that is made of a form alone, without its indexes.

    Raises:
        ValueError: what is stored of one of its fields only the code of the class knows.
    """
    return _entity_model(name, msgspec.json.encode(replace(form, indexes={})))


@lru_cache(maxsize=256)
def _entity_model(name: str, key: bytes) -> Model:
    form = msgspec.json.decode(key, type=ModelForm)
    names: dict[str, str] = {}
    body: dict[str, Any] = {"__annotations__": {}, "__module__": __name__}
    for property, field in form.fields.items():
        attr = names[property] = _name(property, names.values())
        body["__annotations__"][attr] = Annotated[_kind(field), FIELD]
        stored = not field.in_key and property in form.partition.fields | form.row.fields
        body[attr] = FieldOptions(name=property, stored=stored, kw_only=True)
    body["key"] = Key(partition=_text(form.partition, names), row=_text(form.row, names))
    model = model_of(_Entities(name, (Entity,), body, table=form.table, type=form.type))
    if differing := [one for one, field in model.form.fields.items() if field.in_key != form.fields[one].in_key]:
        raise ValueError(f"what is stored of {', '.join(differing)} only the code of {name} knows")
    return model


def _kind(form: FieldForm) -> Any:
    kind = annotation(form)
    return kind | None if form.optional else kind


def _name(property: str, taken: Any) -> str:
    """Return the name of an attribute for a property."""
    if (
        property.isidentifier()
        and not iskeyword(property)
        and property[0] != "_"
        and property not in (*taken, "key")
        and not hasattr(Record, property)
    ):
        return property
    return f"property_{len(tuple(taken))}"


def _fields_of(model: Model) -> Callable[[str], Attr[Any, Any]]:
    fields = {field.property: field for field in model.declaration.fields}
    return lambda property: Attr(model.cls, fields[property].name, fields[property].type)


def _text(form: TemplateForm, names: Mapping[str, str]) -> Any:
    """Return the text of a template, its fields by their names."""
    texts: Sequence[str] = [form.text] if isinstance(form.text, str) else form.text
    renamed = tuple([renamed_text(text, names) for text in texts])
    return renamed[0] if isinstance(form.text, str) else renamed


def _declared(form: IndexForm, names: Mapping[str, str]) -> Index[Any]:
    return Index(
        partition=_text(form.partition, names),
        row=_text(form.row, names),
        include=tuple([names[property] for property in form.include]),
        unique=form.unique,
        table=form.table,
    )


def _index(model: Model, name: str, form: IndexForm) -> Any:
    """Return an index of a form, compiled for a class."""
    declaration = model.declaration
    index = _declared(form, {field.property: field.name for field in declaration.fields})
    if form.where is not None:
        index.where = lambda _: load(form.where, _fields_of(model))
    faults: list[str] = []
    found = compile_index(
        declaration.cls, name, index, declaration.table, {f.name: f for f in declaration.fields}, faults
    )
    if found is None or faults:
        raise InvalidModel(f"{model.name}.{name}", faults)
    return found
