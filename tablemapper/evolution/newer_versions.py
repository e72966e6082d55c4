"""Maintenance of the indexes and fields that only newer versions declare.

A newer version, or another program, may have added properties, indexes and aggregates to a class. An older version
preserves these properties, and maintains the indexes and aggregates. For that, it compiles the catalogue's form to a
class with the fields of its own class first. A row of that class is a row of its own class with a *tail* of hidden
properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import attrs
import msgspec
from msgspec import UNSET

from ..errors import InvalidModel, SchemaMismatch
from ..keys.overlap import disjoint
from ..keys.template import Template
from ..schema.labels import is_former
from ..schema.maintenance import (
    AggregateMaintenance,
    IndexMaintenance,
    MaintainedPart,
    Maintenance,
    aggregate_maintenance,
    index_columns,
    index_maintenance,
    maintenance,
)
from ..schema.model import Model, Schema
from ..schema.rows import DAMAGE, FIRST, Row
from ..schema.specs import FieldSpec, Forms, ModelSpec, stored_default
from .definitions import as_declared, keepers_of
from .rules import key_templates, reads
from .spec_compiler import UNCOMPILED, aggregate_model, entity_model, index_model, source_model
from .versions import Versions, newest

Part = TypeVar("Part", IndexMaintenance, AggregateMaintenance)
_decode_forms = msgspec.json.Decoder(tuple[ModelSpec, ModelSpec, dict[str, ModelSpec], dict[str, ModelSpec]]).decode


@attrs.frozen(eq=False, slots=False)
class ExtendedModel:
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
    narrow: Mapping[str, FieldSpec]
    """The fields with columns, by name, that can hold values in the file which the class cannot read."""
    narrow_keys: Mapping[str, FieldSpec]
    """The fields without columns, which only the key holds, that can hold such values."""
    others: str
    """Which other version of the class there is, and what to do, for a value that this one does not know."""
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

    def is_read_by(self, part: MaintainedPart) -> bool:
        """Return whether a part of what is maintained reads a field that can hold values which the class does not know."""
        places = {self.known.position[name] for name in self.narrow}
        return not (places.isdisjoint(part.places) and self.narrow_keys.keys().isdisjoint(part.keys))

    def check_writable(self) -> None:
        """Raise SchemaMismatch if this version cannot maintain every index and aggregate."""
        if self.refusals:
            raise SchemaMismatch(self.known.name, [f"{fault}; nothing was written" for fault in self.refusals])

    def completed(self, row: Row, old: Row | None = None, *, moved: bool = False) -> Row:
        """Return the row to store: with its tail, and with the nested members that the class does not know.

        Args:
            old: the stored row of the entity, with its tail; None if there is none.
            moved: whether that has another key.

        Raises:
            SchemaMismatch: this version of the class cannot write the row.
        """
        self.check_writable()
        width = FIRST + len(self.known.columns)
        if self.tail and self.extra is not None:
            self._check_undeclared(row)
        if old is None or moved:
            for name, *templates in self.special:
                if all(template.matches_prefix(text) for template, text in zip(templates, row, strict=False)):
                    raise SchemaMismatch(
                        f"{self.known.name} {row[:2]}", [f"this key belongs to {name}; choose other values"]
                    )
        if old is None:
            return (*row[:width], *self.tail)
        values = list(row[:width])
        for at in self.nested:
            values[at] = self._nested(row, old, at)
        return (*values, *old[width : width + len(self.tail)])

    def _nested(self, row: Row, old: Row, at: int) -> Any:
        """Return the nested value to store: the old one, with members unknown to the class, if it is unchanged."""
        field = self.known.columns[at - FIRST]
        if old[at] is None or old[at] == row[at]:
            return row[at]
        try:
            known_part = field.type.store(field.type.load(old[at]))
        except DAMAGE:
            known_part = None
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
        for known_template, stored_template, text in templates:
            try:
                known_template.decode(text, trusted=True)
            except DAMAGE as error:
                try:
                    values = stored_template.decode(text, trusted=True)
                except DAMAGE:
                    return partition  # the key is damaged: the read that follows raises that
                unknown = {name: value for name, value in values.items() if name in self.narrow_keys}
                facts = ", ".join(f"{name} is {value!r}" for name, value in unknown.items())
                raise self._unknown(facts, partition, row, *unknown) from error
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
        raise self._unknown(f"{field} is {value!r}", partition, row, field)

    def _unknown(self, facts: str, partition: str, row: str, *fields: str) -> SchemaMismatch:
        forms = {**self.narrow, **self.narrow_keys}
        current = "".join([f"{field} is {forms[field]} now; " for field in fields])
        return SchemaMismatch(
            f"{self.known.name} {(partition, row)}",
            [f"{facts}, which this version does not know: {current}{self.others}"],
        )


def unknown_value(extended: ExtendedModel | None) -> Callable[[Row], str | None] | None:
    """Return the function that says which value of a row only another version of its class knows; None if none does."""
    if extended is None or not (extended.narrow or extended.narrow_keys):
        return None

    def unknown(row: Row) -> str | None:
        try:
            extended.check_row(row)
        except SchemaMismatch as error:
            return "; ".join(error.faults)
        return None

    return unknown


def follow(
    schema: Schema,
    forms: Forms,
    versions: Versions,
    names: Mapping[Model, str],
    refusals_by_class: Mapping[str, Sequence[str]],
) -> dict[Model, ExtendedModel]:
    """Return the classes of which the catalogue stores or maintains more than their code declares.

    Args:
        versions: the forms of each class that were opened.
        names: the name of each class in the catalogue.
        refusals_by_class: why entities of a class cannot be written, by its name.
    """
    followed_classes = {}
    declared_names = {model.name for model in schema.models if names[model] == model.name}
    undeclared = {name: form for name, form in forms.items() if form.aggregate and name not in declared_names}
    unopened = {name: form for name, form in forms.items() if name not in schema.by_name}
    for model in schema.models:
        form = forms.get(model.name)
        if (
            form is None or model.name not in declared_names
        ):  # (a former definition is maintained by the catalogue's form)
            continue
        targets = {name: target for name, target in undeclared.items() if target.source == model.name}
        special = tuple(_special_classes(model, unopened))
        source = model if model.aggregate is None else schema.by_class[model.aggregate.source]
        refusals = tuple(refusals_by_class.get(model.name, ()))
        if targets or special or refusals or _has_more(form, model.form):
            source_form = forms.get(source.name, source.form)
            keepers = _keepers_of_unknown_fields(model, forms) if model.aggregate is None else {}
            key = msgspec.json.encode([form, source_form, targets, keepers])
            extended = _extended_model(model, source, key)
            followed_classes[model] = attrs.evolve(
                extended, others=newest(model, versions), special=special, refusals=extended.refusals + refusals
            )
    return followed_classes


def stored_maintenance(
    schema: Schema, model: Model, forms: Forms, names: Mapping[Model, str], extended: ExtendedModel | None
) -> Maintenance:
    """Return everything that is maintained from a class, by the catalogue's definitions alone.

    What its code declares otherwise, or under the same name with other fields in it, is not maintained beside these.

    Args:
        forms, names: see `follow`.
        extended: what the catalogue has more than the code of the class declares.
    """
    class_maintenance, stored_indexes = maintenance(schema, model), forms[names[model]].indexes
    indexes = [
        index
        for index in class_maintenance.indexes
        if (name := index.model.name) in stored_indexes and as_declared(stored_indexes[name], model.form.indexes[name])
    ]
    aggregates = [part for part in class_maintenance.aggregates if names[part.model] == part.model.name]
    if extended is not None:
        indexes = [_as_stored(part, extended.model) if extended.is_read_by(part) else part for part in indexes]
        aggregates = [_as_stored(part, extended.model) if extended.is_read_by(part) else part for part in aggregates]
        indexes += extended.indexes
        aggregates += [aggregate_maintenance(extended.model, target) for target in extended.aggregates]
    return Maintenance(tuple(indexes), tuple(aggregates), model if extended is None else extended.model)


@lru_cache(maxsize=256)
def _as_stored(part: Part, catalogue_model: Model) -> Part:
    """Return a part of a class's maintenance that reads values as the catalogue knows them: no Enum lacks a member there."""
    with suppress(*UNCOMPILED):  # (else it counts what this version knows)
        if isinstance(part, IndexMaintenance):
            index = index_model(catalogue_model, part.model.name, part.owner.form.indexes[part.model.name])
            return attrs.evolve(part, rows=index_maintenance(catalogue_model, index).rows)
        target = aggregate_model(part.model.name, part.model.form, catalogue_model, catalogue_model.form, part.model)
        stored_part = aggregate_maintenance(catalogue_model, target)
        return attrs.evolve(part, collect=stored_part.collect, key=stored_part.key)
    return part


def missing_fields(model: Model, form: ModelSpec, stored_names: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return, by index of a class, the included fields that its rows in the store lack: the class got them later.

    Args:
        form: the class in the catalogue.
        stored_names: the indexes that the class declares, each with its name there.
    """
    by_index = {}
    for index in model.indexes:
        stored_fields = form.indexes[stored_names[index.name]].include
        if late := {field.name for field in index_columns(model, index) if field.property not in stored_fields}:
            by_index[index.name] = frozenset(late)
    return by_index


def owners_of(schema: Schema, forms: Forms) -> Iterator[Model]:
    """Yield the classes that are not opened, but have an index over a field that is maintained from an opened class."""
    for name, form in forms.items():
        if name in schema.by_name or form.source is not None:
            continue
        keepers = keepers_of(name, forms)
        indexed = any(reads(index, property) for index in form.indexes.values() for property in keepers.values())
        if indexed and any(forms[keeper].source in schema.by_name for keeper in keepers):
            with suppress(*UNCOMPILED):  # this version cannot maintain the index then
                yield entity_model(name, form)


def _keepers_of_unknown_fields(model: Model, forms: Forms) -> dict[str, ModelSpec]:
    """Return the aggregates that keep maintained fields unknown to a class, by property, if an index reads them."""
    known_properties = {field.property for field in model.maintained}
    indexes = forms[model.name].indexes.values()
    return {
        property: forms[keeper]
        for keeper, property in keepers_of(model.name, forms).items()
        if not is_former(keeper)
        and property not in known_properties
        and any(reads(index, property) for index in indexes)
    }


def _has_more(form: ModelSpec, class_form: ModelSpec) -> bool:
    """Return whether a catalogue's form has anything that a class lacks."""
    if form == class_form:
        return False
    if (
        form.type != class_form.type
        or form.fields.keys() != class_form.fields.keys()
        or form.indexes.keys() != class_form.indexes.keys()
    ):
        return True
    if not all(as_declared(index, class_form.indexes[name]) for name, index in form.indexes.items()):
        return True
    return any(_is_narrow(form.fields[name], field) for name, field in class_form.fields.items())


def _is_narrow(form: FieldSpec, class_field: FieldSpec) -> bool:
    """Return whether a field of the catalogue can hold values that the class cannot read."""
    if form.optional and not class_field.optional:
        return True
    if class_field.json is not UNSET:
        return form.json is not UNSET and form.json != class_field.json
    return form.type != class_field.type or form.members != class_field.members


def _special_classes(model: Model, unopened: Forms) -> Iterator[tuple[str, Template, Template]]:
    """Yield the classes of the same table whose keys are a part of those that the model's templates could make."""
    for name, form in unopened.items():
        if form.table == model.table:
            templates = key_templates(form)
            if disjoint(model.declaration.templates, templates) == "carve b":
                yield name, *templates


@lru_cache(maxsize=256)
def _extended_model(model: Model, source: Model, key: bytes) -> ExtendedModel:
    form, source_form, targets, keepers = _decode_forms(key)
    stored_source = source if _stands_for(source, source_form, keepers) else source_model(source, source_form, keepers)
    stored_model = (
        stored_source if source is model else aggregate_model(model.name, form, stored_source, source_form, model)
    )
    all_fields = form.fields | {property: keeper.fields[property] for property, keeper in keepers.items()}
    hidden = [all_fields[field.property] for field in stored_model.columns[len(model.columns) :]]
    refusals: list[str] = []
    indexes: list[IndexMaintenance] = []
    aggregates: list[Model] = []
    for name, index in form.indexes.items():
        class_index = model.form.indexes.get(name)
        if class_index is None or not as_declared(index, class_index):
            try:
                indexes.append(index_maintenance(stored_model, index_model(stored_model, name, index)))
            except UNCOMPILED as error:
                refusals.append(_refusal(f"{model.name}.{name}", error))
    for name, target in targets.items():
        try:
            aggregates.append(aggregate_model(name, target, stored_source, source_form))
        except UNCOMPILED as error:
            refusals.append(_refusal(name, error))
    fields = model.form.fields
    names = {field.property: field.name for field in model.declaration.fields}
    narrow = {
        names[name]: field for name, field in form.fields.items() if name in fields and _is_narrow(field, fields[name])
    }
    columns = {name: field for name, field in narrow.items() if name in model.position}
    return ExtendedModel(
        model, stored_model, tuple(map(stored_default, hidden)), tuple(indexes), tuple(aggregates), tuple(refusals), columns,
        {name: field for name, field in narrow.items() if name not in columns}, "", (),
    )  # fmt: skip


def _stands_for(model: Model, form: ModelSpec, keepers: Mapping[str, ModelSpec]) -> bool:
    """Return whether a class has all that is stored of it, so that none need be compiled for that."""
    names = ("fields", "table", "type", "partition", "row")
    if keepers or model.maintained or any(getattr(form, name) != getattr(model.form, name) for name in names):
        return False  # (of an Enum, a Literal or a nested value the catalogue has a class of its own)
    return all(field.members is UNSET and field.json is UNSET for field in form.fields.values())


def _refusal(label: str, error: Exception) -> str:
    faults = error.faults if isinstance(error, InvalidModel) else [str(error)]
    return f"{label} needs the version that declares it ({'; '.join(faults)})"
