"""How an older version of a program maintains what a newer one added to its classes.

A newer version, or another program, may have added properties, indexes and aggregates to a class. An older version
preserves these properties, and maintains the indexes and aggregates. For that, it compiles the catalogue's form to a class
with the fields of its own class first. A row of that class is a row of its own class with a *tail* of hidden properties.
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

from ..entities.aggregates import Aggregate
from ..entities.declaration import compile_index
from ..entities.entity import Entity, Record
from ..entities.fields import FIELD, FieldOptions, Measure, SourceName
from ..entities.index import Index
from ..entities.key import Key
from ..errors import InvalidModel, SchemaMismatch
from ..expressions.predicates import load, load_group, load_value
from ..expressions.tree import Attr
from ..keys.overlap import disjoint
from ..keys.template import Template
from ..schema.forms import FieldForm, Forms, IndexForm, ModelForm, TemplateForm, annotation, stored_default
from ..schema.maintenance import IndexMaintenance, index_maintenance
from ..schema.model import Model, Schema, model_of
from ..schema.rows import DAMAGE, FIRST, Row
from .definitions import as_declared, is_former, keepers_of, plain_name
from .rules import key_templates, reads
from .versions import Versions, newest

__all__ = ["Followed", "entity_model", "follow", "owners_of"]


@attrs.frozen(eq=False, slots=False)
class Followed:
    """A class of which the file stores or maintains more than its code declares."""

    known: Model
    """The class as its code declares it."""
    model: Model
    """The class with its hidden properties: its rows are those of the known one, with a tail."""
    tail: Row
    """The stored defaults of the hidden properties."""
    indexes: tuple[IndexMaintenance, ...]
    """The indexes that the code does not declare."""
    aggregates: tuple[Model, ...]
    """The aggregates over its entities that the program did not open."""
    refusals: tuple[str, ...]
    """The indexes and aggregates that this version cannot maintain, with the reasons: it can write no entity."""
    narrow: Mapping[str, FieldForm]
    """The fields with columns, by name, that can hold values in the file which the class cannot read."""
    narrow_keys: frozenset[str]
    """The fields without columns, which only the key holds, that can hold such values."""
    others: str
    """Which other form of the class there is, for a value that this one does not know."""
    special: tuple[tuple[str, Template, Template], ...]
    """The classes that the program did not open and whose keys this class must leave free, with their key templates."""

    @cached_property
    def nested(self) -> tuple[int, ...]:
        """The positions in a row of the nested values that can have members which the class does not know."""
        return tuple(self.known.position[name] for name, form in self.narrow.items() if form.json is not UNSET)

    @cached_property
    def checked(self) -> bool:
        """Whether a row must be checked or completed before it is written."""
        return bool(self.refusals or self.tail or self.nested or self.special)

    @cached_property
    def extra(self) -> int | None:
        """The position in a row of the undeclared properties; None if the class has none."""
        return next((at for at, field in enumerate(self.known.columns, FIRST) if field.type.undeclared), None)

    def check_writable(self) -> None:
        """Raise SchemaMismatch if this version cannot maintain every index and aggregate."""
        if self.refusals:
            raise SchemaMismatch(self.known.name, [f"{fault}; nothing was written" for fault in self.refusals])

    def completed(self, row: Row, old: Row | None = None) -> Row:
        """Return the row to store: with its tail, and with the nested members that the class does not know.

        Args:
            row: of the known class.
            old: the stored row of the same key, with its tail; None if there is none.

        Raises:
            SchemaMismatch: this version of the class cannot write the row.
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
        """Return the nested value to store: the old one, with the members that the class does not know, if it is unchanged."""
        field = self.known.columns[at - FIRST]
        if old[at] is None or old[at] == row[at]:
            return row[at]
        known_part = field.type.store(field.type.load(old[at]))
        if known_part == row[at]:
            return old[at]
        if known_part != old[at]:
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
        """Raise SchemaMismatch if a row holds a value that the class cannot read."""
        for name in self.narrow:
            self.check(name, row[self.known.position[name]], *row[:2])
        if self.narrow_keys:
            self.check_key(row[0], row[1])

    def check_key(self, partition: str, row: str) -> str:
        """Return the partition key of a stored row; raise SchemaMismatch if the class cannot read its key."""
        texts = (partition, row)
        templates = zip(self.known.declaration.templates, self.model.declaration.templates, texts, strict=True)
        for known, stored, text in templates:
            try:
                known.decode(text, trusted=True)
            except DAMAGE as error:
                try:
                    values = stored.decode(text, trusted=True)
                except DAMAGE:
                    return partition  # the key is damaged: the read that follows raises that
                facts = ", ".join(f"{name} is {value!r}" for name, value in values.items() if name in self.narrow_keys)
                raise self._unknown(facts, partition, row) from error
        return partition

    def check_index(self, first: Template, second: Template, *keys: str) -> str:
        """Return the partition key of an index row; raise SchemaMismatch if the class cannot read its key.

        Args:
            first, second: the templates of the index.
            keys: the partition key and row key of the index row, then those of the entity.
        """
        try:
            first.decode(keys[0], trusted=True)
            second.decode(keys[1], trusted=True)
        except DAMAGE as error:
            raise self._unknown(f"its key in an index is {keys[:2]}", *keys[2:]) from error
        return keys[0]

    def check(self, field: str, value: Any, partition: str, row: str) -> Any:
        """Return a stored value of a narrow field; raise SchemaMismatch if the class cannot read it."""
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
            [f"{what}, which this version does not know ({self.others})"],
        )


def follow(
    schema: Schema, forms: Forms, versions: Versions, names: Mapping[Model, str], refused: Mapping[str, Sequence[str]]
) -> dict[Model, Followed]:
    """Return the classes of which the catalogue stores or maintains more than their code declares.

    Args:
        schema: the opened classes.
        forms: the catalogue.
        versions: the forms of each class that were opened.
        names: the name of each class in the catalogue.
        refused: why entities of a class cannot be written, by its name.
    """
    followed_classes = {}
    declared = {model.name for model in schema.models if names[model] == model.name}
    undeclared = {name: form for name, form in forms.items() if form.aggregate and name not in declared}
    unopened = {name: form for name, form in forms.items() if name not in schema.by_name}
    for model in schema.models:
        form = forms.get(model.name)
        if form is None or model.name not in declared:  # (a former definition is maintained by the catalogue's form)
            continue
        targets = {name: target for name, target in undeclared.items() if target.source == model.name}
        special = tuple(_special_classes(model, unopened))
        source = model if model.aggregate is None else schema.by_class[model.aggregate.source]
        refusals = tuple(refused.get(model.name, ()))
        if targets or special or refusals or _has_more(form, model.form):
            source_form = forms.get(source.name, source.form)
            keepers = _keepers_of_unknown_fields(model, forms) if model.aggregate is None else {}
            key = msgspec.json.encode([form, source_form, targets, keepers])
            followed = _followed(model, source, key)
            followed_classes[model] = attrs.evolve(
                followed, others=newest(model, versions), special=special, refusals=followed.refusals + refusals
            )
    return followed_classes


def owners_of(schema: Schema, forms: Forms) -> Iterator[Model]:
    """Yield the classes that are not opened, but have an index over a field that is maintained from an opened class."""
    for name, form in forms.items():
        if name in schema.by_name or form.source is not None:
            continue
        keepers = keepers_of(name, forms)
        indexed = any(reads(index, property) for index in form.indexes.values() for property in keepers.values())
        if indexed and any(forms[keeper].source in schema.by_name for keeper in keepers):
            with suppress(*_UNKNOWN):  # this version cannot maintain the index then
                yield entity_model(name, form)


def _keepers_of_unknown_fields(model: Model, forms: Forms) -> dict[str, ModelForm]:
    """Return the aggregates that keep maintained fields which a class does not know, by property, if an index reads them."""
    known = {field.property for field in model.maintained}
    indexes = forms[model.name].indexes.values()
    return {
        property: forms[keeper]
        for keeper, property in keepers_of(model.name, forms).items()
        if not is_former(keeper) and property not in known and any(reads(index, property) for index in indexes)
    }


def _has_more(form: ModelForm, own: ModelForm) -> bool:
    """Return whether a catalogue's form has anything that a class lacks."""
    if form == own:
        return False
    if form.type != own.type or form.fields.keys() != own.fields.keys() or form.indexes.keys() != own.indexes.keys():
        return True
    if not all(as_declared(index, own.indexes[name]) for name, index in form.indexes.items()):
        return True
    return any(_is_narrow(form.fields[name], field) for name, field in own.fields.items())


def _is_narrow(form: FieldForm, own: FieldForm) -> bool:
    """Return whether a field of the catalogue can hold values that the class cannot read."""
    if form.optional and not own.optional:
        return True
    if own.json is not UNSET:
        return form.json is not UNSET and form.json != own.json
    return form.type != own.type or form.members != own.members


def _special_classes(model: Model, unopened: Forms) -> Iterator[tuple[str, Template, Template]]:
    """Yield the classes of the same table whose keys are a part of those that the model's templates could make."""
    for name, form in unopened.items():
        if form.table == model.table:
            templates = key_templates(form)
            if disjoint(model.declaration.templates, templates) == "carve b":
                yield name, *templates


@lru_cache(maxsize=256)
def _followed(model: Model, source: Model, key: bytes) -> Followed:
    form, source_form, targets, keepers = msgspec.json.decode(
        key, type=tuple[ModelForm, ModelForm, dict[str, ModelForm], dict[str, ModelForm]]
    )
    classes = _Classes(source, source_form, keepers)
    stored = classes.source if source is model else classes.aggregate(model.name, form, model)
    all_fields = form.fields | {property: keeper.fields[property] for property, keeper in keepers.items()}
    hidden = [all_fields[field.property] for field in stored.columns[len(model.columns) :]]
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
        frozenset(narrow.keys() - columns.keys()), "", (),
    )  # fmt: skip


_UNKNOWN = (InvalidModel, ValueError, AttributeError, TypeError, LookupError)


def _refusal(label: str, error: Exception) -> str:
    faults = error.faults if isinstance(error, InvalidModel) else [str(error)]
    return f"{label} needs the version that declares it ({'; '.join(faults)})"


# ---------------------------------------------------------------------------------------------- classes compiled from forms


_Entities: Any = type(Entity)
_Aggregates: Any = type(Aggregate)


class _Classes:
    """Compiles forms to classes: an entity class with its hidden properties, and the aggregates over its entities."""

    def __init__(self, source: Model, form: ModelForm, keepers: Mapping[str, ModelForm]) -> None:
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
            # The catalogue knows all members of an Enum, and the wider type of a field that can hold more by now.
            kind = _kind(stored) if field.type.json_schema is None else field.annotation
            annotations[field.name] = Annotated[kind, FIELD]
            options[field.name] = FieldOptions(name=field.property, stored=field.stored, kw_only=True)
        properties = {field.property for field in known.fields}
        for property, hidden in form.fields.items():
            if property not in properties:
                name = _name(property, annotations)
                annotations[name] = Annotated[_kind(hidden), FIELD]
                options[name] = FieldOptions(name=property, kw_only=True)
        for property, keeper in keepers.items():
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
        """Return an aggregate over the class's entities; the fields of the known aggregate come first, in its order."""
        cls = self.source.cls
        shape = form.aggregate
        assert shape is not UNSET
        field = _fields_of(self.source)
        order = [] if known is None else [field.property for field in known.declaration.fields]
        names: dict[str, str] = {}
        body: dict[str, Any] = {"__annotations__": {}, "__module__": cls.__module__}
        for property in sorted(form.fields, key=lambda name: order.index(name) if name in order else len(order)):
            attr = names[property] = _name(property, names.values())
            kind, label, where = shape.measures.get(property) or ("group", shape.groups[property], None)
            measured = None if label is None else (load_group if kind == "group" else load_value)(label, field)
            body[attr] = Measure(kind, measured, None if where is None else load(where, field), property)
            stored = form.fields[property]
            if isinstance(label, str) and label in self._form.fields and kind not in ("count", "sum", "avg"):
                taken = self._form.fields[label]  # the field may hold more by now; its precision stays its own
                if not taken.type.startswith(f"{stored.type}["):
                    stored = replace(taken, optional=stored.optional)
            body["__annotations__"][attr] = Annotated[_kind(stored), FIELD]
        body["key"] = _key(form, names)
        for index_name, index in form.indexes.items():
            body[index_name] = _declared_index(index, names)
        where = shape.where
        options = {} if where is None else {"where": lambda _: load(where, field)}
        identifier = name.replace("#", "_").replace(":", "_")  # generated functions have it in their names
        aggregate = _Aggregates(identifier, (Aggregate,), body, of=cls, table=plain_name(form.table), **options)
        aggregate.__name__ = name
        return model_of(aggregate)


def entity_model(name: str, form: ModelForm) -> Model:
    """Return a class that is compiled from a form alone, without its indexes.

    Raises:
        ValueError: only the code of the class says how it stores one of its fields.
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
    body["key"] = _key(form, names)
    model = model_of(_Entities(name, (Entity,), body, table=form.table, type=form.type))
    if differing := [name for name, field in model.form.fields.items() if field.in_key != form.fields[name].in_key]:
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


def _key(form: ModelForm, names: Mapping[str, str]) -> Key[*tuple[Any, ...]]:
    return Key(partition=_text(form.partition, names), row=_text(form.row, names))


def _text(form: TemplateForm, names: Mapping[str, str]) -> Any:
    """Return the text of a template with the attributes of its fields, as a class declares it."""
    text = form.renamed_text(names)
    return text if isinstance(text, str) else tuple(text)


def _declared_index(form: IndexForm, names: Mapping[str, str]) -> Index[Any]:
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


def _index(model: Model, name: str, form: IndexForm) -> Any:
    """Return an index, compiled from its form for a class."""
    declaration = model.declaration
    index = _declared_index(form, {field.property: field.name for field in declaration.fields})
    faults: list[str] = []
    found = compile_index(
        declaration.cls, name, index, declaration.table, {f.name: f for f in declaration.fields}, faults
    )
    if found is None or faults:
        raise InvalidModel(f"{model.name}.{name}", faults)
    return found
