"""The immutable schema that declarations compile to: the rows of each class, and the faults of classes together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import attrs
import msgspec

from ..entities.aggregates import keepers
from ..entities.declaration import Declaration, declaration_of, has_table, is_base
from ..entities.entity import Record
from ..entities.fields import FieldModel
from ..entities.key_and_indexes import IndexModel, index_table
from ..errors import InvalidEntity, InvalidModel, safe_repr
from ..expressions.predicates import forms
from ..expressions.tree import TIMESTAMP_NAME
from ..keys.composite_times import decode
from ..keys.overlap import disjoint
from ..keys.template import Slot, Template
from ..limits import check_table_name, entity_size, is_name
from ..owner_cache import cached_on_owner
from .aggregate_model import AggregateModel, aggregate_model
from .rows import DAMAGE, FIRST, Row, loaded, properties, row_faults, row_functions, same_rows, unreadable
from .specs import ModelSpec, decode_model, form_hash


@attrs.frozen(eq=False, slots=False)
class Model:
    """One record class, lowered: the layout of its rows and the functions between rows and objects."""

    declaration: Declaration
    columns: tuple[FieldModel, ...]
    to_row: Callable[[Any], Row]
    """Entity → row, with the timestamp 0.

    Raises InvalidEntity, EntityTooLarge."""
    to_written_row: Callable[[Any], Row]
    """The same for a verb: it first sets the fields that each write sets."""
    to_rows: Callable[[Iterable[Any], list[Any], list[Row]], int]
    """Entities → rows, as `to_written_row`: adds both to the lists, and returns how many characters the rows have."""
    columns_to_rows: Callable[[Sequence[Sequence[Any]], list[Row]], tuple[int, int]]
    """Values of all fields, a list for each, which are checked as the constructor checks them → rows, as `to_rows`.

    Returns also how many characters the text of none of them is above, but for its key."""
    most: Callable[[Row], int]
    """The size in bytes that an entity cannot be above, for as long as that is enough to know."""
    build: Callable[[Iterable[Row]], list[Any]]
    """Rows → entities, which carry their row."""
    build_one: Callable[[Row], Any]
    """Row → entity."""
    aggregate: AggregateModel | None

    @cached_property
    def cls(self) -> type[Any]:
        return self.declaration.cls

    @cached_property
    def name(self) -> str:
        return self.declaration.cls.__name__

    @cached_property
    def _plain_values(self) -> Callable[[Any], Any]:
        """The values of an entity that are the same as stored if they are equal."""
        names = [field.name for field in self.declaration.fields if field.type.equal_as_stored]
        return attrgetter(*names) if names else lambda entity: None

    @cached_property
    def _other_fields(self) -> list[FieldModel]:
        return [field for field in self.declaration.fields if not field.type.equal_as_stored]

    def changed(self, entity: Any, row: Row) -> list[FieldModel]:
        """Return the fields whose values in an entity are not those of a row.

        The row that it would be written as does not tell: an old row may hold the same values in another form, or what
        a later constraint refuses.
        """
        built = self.build_one(row)
        equal = self._plain_values(entity) == self._plain_values(built)
        fields = self._other_fields if equal else self.declaration.fields
        return [
            field for field in fields if not field.type.same(getattr(entity, field.name), getattr(built, field.name))
        ]

    @cached_property
    def places_on_write(self) -> tuple[int, ...]:
        """The places in a row that each write sets."""
        return tuple([self.position[field.name] for field in self.declaration.set_on_write])

    def same(self, new: Row, old: Row) -> bool:
        """Return whether a row that would be written says what is stored, but for what each write sets."""
        if not self.places_on_write:
            return same_rows(new[FIRST:], old[FIRST : len(new)])
        places = [at for at in range(FIRST, len(new)) if at not in self.places_on_write]
        return same_rows([new[at] for at in places], [old[at] for at in places])

    @cached_property
    def table(self) -> str:
        return self.declaration.table

    @cached_property
    def maintained(self) -> tuple[FieldModel, ...]:
        """The columns that are no properties of its own: the store maintains them from other entities."""
        return tuple([field for field in self.columns if field.maintained])

    @cached_property
    def stored(self) -> tuple[FieldModel, ...]:
        """The columns that are."""
        return tuple([field for field in self.columns if not field.maintained])

    @cached_property
    def assignable(self) -> dict[str, FieldModel | None]:
        """The fields, by name; None for one of the key, and for one that the store maintains, or each write sets."""
        fixed = self.declaration.key_fields
        return {
            field.name: None if field.read_only or field.name in fixed else field for field in self.declaration.fields
        }

    @property
    def indexes(self) -> tuple[IndexModel, ...]:
        return self.declaration.indexes

    @cached_property
    def position(self) -> dict[str, int]:
        """The places of fields' properties in a row."""
        return {TIMESTAMP_NAME: FIRST - 1} | {field.name: at for at, field in enumerate(self.columns, FIRST)}

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The stored forms that properties read as in rows that were written before these were declared."""
        return {
            field.property: None if field.missing is None else field.type.store(field.missing) for field in self.columns
        }

    @cached_property
    def partial_indexes(self) -> tuple[tuple[str, list[Any]], ...]:
        """The indexes that hold some entities only, by name, each with the forms of its conditions."""
        return tuple((index.name, forms(index.where)) for index in self.indexes if index.where is not None)

    def optional(self, name: str) -> bool:
        """Return whether rows can lack a field."""
        return self.declaration.field(name).nullable

    def index(self, name: str) -> IndexModel:
        """Return an index by its name."""
        return next(index for index in self.indexes if index.name == name)

    def fault_of(self, row: Row) -> str | None:
        """Return which property of a row no write of this library can have made; None if all can be."""
        return next((fault for _, fault in row_faults(self.columns, row)), None)

    def faulty(self, row: Row) -> frozenset[int]:
        """Return the places of an entity's row that no write of this library can have made."""
        if self.aggregate is not None:
            return frozenset()
        return frozenset([at for at, _ in row_faults(self.columns, row)])

    def salvaged(self, row: Row) -> SimpleNamespace:
        """Return what of a damaged entity can be read: an object with these fields alone, and its row.

        Raises:
            CorruptStore: its key cannot be read.
        """
        try:
            values = decode(self.declaration.templates, (row[0], row[1]))
        except DAMAGE as error:
            raise unreadable(self.name, row, error) from error
        faulty = self.faulty(row)
        sound = [(field, row[at]) for at, field in enumerate(self.columns, FIRST) if at not in faulty]
        values |= {field.name: None if value is None else loaded(field, value) for field, value in sound}
        return SimpleNamespace(**values, _row=row)

    def size(self, row: Row) -> int:
        """Return the size of an entity in bytes, by Azure's published formula."""
        return entity_size(row[0], row[1], properties(self.declaration, self.columns, row))

    def to_json(self) -> dict[str, Any]:
        """Return what the catalogue keeps: everything that decides what is stored and maintained."""
        declaration = self.declaration
        partition, row = declaration.templates
        form: dict[str, Any] = {
            "table": declaration.table,
            "type": declaration.type_name,
            "partition": partition.to_json(declaration.properties),
            "row": row.to_json(declaration.properties),
            "fields": {
                field.property: _field_form(field, in_key=field.name in declaration.key_only)
                for field in declaration.parameters
            },
            "indexes": {index.name: index.to_json(declaration.properties) for index in declaration.indexes},
        }
        if self.aggregate is not None:
            form["aggregate"] = self.aggregate.to_json()
        return form

    @cached_property
    def form(self) -> ModelSpec:
        """The form that a catalogue gives back of `to_json`."""
        return decode_model(msgspec.json.encode(self.to_json()))

    @cached_property
    def form_hash(self) -> str:
        return form_hash(self.form)


def _field_form(field: FieldModel, *, in_key: bool) -> dict[str, Any]:
    form = {
        "type": field.type.base,
        "optional": field.optional,
        "in_key": in_key,
        "default": None if field.missing is None else field.type.dump(field.missing),
    }
    for part, value in (("members", field.type.members), ("json", field.type.json_schema)):
        if value is not None:
            form[part] = value
    return form


@attrs.frozen(eq=False, slots=False)
class Schema:
    """The record classes of a store, compiled together."""

    models: tuple[Model, ...]
    lost: Mapping[str, str] = attrs.field(factory=dict)
    """By label, what a catalogue has and what cannot be compiled without the code: why, and below that its form."""

    @cached_property
    def by_class(self) -> dict[type[Any], Model]:
        return {model.cls: model for model in self.models}

    @cached_property
    def by_name(self) -> dict[str, Model]:
        return {model.name: model for model in self.models}

    def tables(self) -> dict[str, list[Model]]:
        """Return the models of each entity table, in the order they were given."""
        by_table: dict[str, list[Model]] = {}
        for model in self.models:
            by_table.setdefault(model.table, []).append(model)
        return by_table

    def aggregates_of(self, model: Model) -> list[Model]:
        """Return the aggregates that are maintained from a model."""
        return [m for m in self.models if m.aggregate is not None and m.aggregate.source is model.cls]

    def to_json(self) -> dict[str, Any]:
        return {model.name: model.to_json() for model in self.models}

    @cached_property
    def fingerprint(self) -> str:
        """32 hex digits that differ if anything that is stored or maintained differs."""
        text = msgspec.json.encode(self.to_json(), order="deterministic")
        return hashlib.blake2b(text, digest_size=16).hexdigest()


def is_local(model: Model, index: IndexModel) -> bool:
    """Return whether the rows of an index lie in the partitions of the entities, where an engine keeps them together."""
    return parts_of(index.partition, {}) == parts_of(model.declaration.templates[0], {})


def parts_of(template: Template, names: Mapping[str, str]) -> list[Any]:
    """Return what a template is made of, its fields by other names."""
    return [
        [(names.get(part.field, part.field), part.spec) if isinstance(part, Slot) else part for part in component]
        for component in template.components
    ]


def compile_schema(classes: Sequence[type[Any]]) -> Schema:
    """Compile record classes into a schema.

    Raises:
        InvalidModel: with every fault of their living together.
    """
    faults: list[str] = []
    models: list[Model] = []
    argument: Any = classes
    if not isinstance(argument, list | tuple) or not argument:
        hint = f"; write models=[{classes.__name__}]" if isinstance(classes, type) and has_table(classes) else ""
        raise InvalidModel("models", [f"expected a list of entity classes, got {safe_repr(argument)}{hint}"])
    faults += [_not_a_model(value) for value in argument if not has_table(value)]
    for cls in dict.fromkeys(filter(has_table, argument)):
        try:
            models.append(model_of(cls))
        except InvalidModel as error:
            faults += [f"{error.subject}: {fault}" for fault in error.faults]
    for model in [model for model in models if model.maintained]:
        unnamed = list(_keeper_faults(model.declaration))
        faults += unnamed
        models += [] if unnamed else map(model_of, keepers(model.cls))
    schema = Schema(tuple(dict.fromkeys(models)))
    if len(schema.by_name) < len(schema.models):
        names = [model.name for model in models]
        faults += [f"two classes are called {name}" for name in dict.fromkeys(names) if names.count(name) > 1]
    faults += _table_faults(schema)
    for model in models:
        if model.aggregate is not None and model.aggregate.source not in schema.by_class:
            relation = "is maintained from" if ":" in model.name else "is an aggregate of"
            faults.append(f"{model.name} {relation} {model.aggregate.source.__name__}, which is not among them")
    for table, members in schema.tables().items():
        faults += _overlaps(table, members)
    if faults:
        raise InvalidModel("models", faults)
    return schema


def _not_a_model(value: object) -> str:
    if isinstance(value, type) and is_base(value):
        name = value.__name__
        return f'{name} has no table=: write class {name}(…, table="…"), or leave it out if others are derived from it'
    hint = f"; name the class itself: models=[{value}]" if isinstance(value, str) and is_name(value) else ""
    return f"{safe_repr(value)} is not an entity class with table={hint}"


def _keeper_faults(declaration: Declaration) -> Iterator[str]:
    """Yield the maintained fields whose names make no name of a table, or that of another one's."""
    tables: dict[str, str] = {}
    for field in declaration.maintained:
        table = index_table(declaration.table, f"{declaration.name}_{field.property}")
        name = f"{declaration.name}.{field.name}"
        if (first := tables.setdefault(table.lower(), field.name)) != field.name:
            yield f'{name}: the store would keep it in the table "{table}", as it keeps {first}; choose another name'
        elif check_table_name(table) is not None:
            yield (
                f"{name}: the store keeps it in a table that is named after it, and a table has at most 63 letters (A-Z, a-z) "
                f'and digits: "{safe_repr(table)[1:-1]}" is none; choose another name'
            )


def _table_faults(schema: Schema) -> Iterator[str]:
    owner: dict[str, tuple[str, str]] = {}
    for table in schema.tables():
        if (first := owner.setdefault(table.lower(), (table, "entities")))[0] != table:
            yield f'the tables "{table}" and "{first[0]}" differ only in case'
    for model in schema.models:
        for index in model.indexes:
            holder = owner.get(index.table.lower())
            if holder is not None:
                yield f'{model.name}.{index.name}: its table "{index.table}" is that of {holder[1]}; write table=…'
            owner[index.table.lower()] = (index.table, f"{model.name}.{index.name}")
    if (reserved := owner.get("sqlite")) is not None:  # (the tables beside it begin with its name and an underscore)
        yield f'the table "{reserved[0]}" would have others beside it whose names SQLite reserves; choose another name'


def _overlaps(table: str, models: list[Model]) -> Iterator[str]:
    for at, a in enumerate(models):
        for b in models[at + 1 :]:
            first, second = a.declaration.templates, b.declaration.templates
            if disjoint(first, second) == "overlap":
                yield (
                    f'{a.name} and {b.name} share the table "{table}", but their keys can be equal: '
                    f"{_template_text(first)} and {_template_text(second)}; give one a literal of its own, as in "
                    f'row=("{b.name.lower()}", …)'
                )


def _template_text(templates: tuple[Template, Template]) -> str:
    return " / ".join(repr(template.text) for template in templates)


def has_functions(model: Model) -> bool:
    """Return whether functions of the user look at each entity, so that it has to be built."""
    return model.declaration.has_rule or any(field.validator is not None for field in model.declaration.fields)


def writable(model: Model) -> Model:
    """Return a model of entities; raise InvalidEntity if it is of aggregates, which nobody but the store writes."""
    if model.aggregate is not None:
        source = model.aggregate.source.__name__
        raise InvalidEntity(model.name, [f"it is maintained from {source}; write {source} entities instead"])
    return model


def reserved_keys(models: list[Model]) -> dict[type[Any], Callable[[str, str], str | None]]:
    """Return, by class, the test for keys that fall into the range of a more special type of the same table.

    The test takes the key and returns the name of that type, or None.
    """
    special: dict[type[Any], list[tuple[str, Template, Template]]] = {}
    for at, a in enumerate(models):
        for b in models[at + 1 :]:
            verdict = disjoint(a.declaration.templates, b.declaration.templates)
            if verdict in ("carve a", "carve b"):
                general, carve = (b, a) if verdict == "carve a" else (a, b)
                special.setdefault(general.cls, []).append((carve.name, *carve.declaration.templates))

    def test(entries: list[tuple[str, Template, Template]]) -> Callable[[str, str], str | None]:
        def falls(partition: str, row: str) -> str | None:
            for name, partitions, rows in entries:
                if partitions.matches_prefix(partition) and rows.matches_prefix(row):
                    return name
            return None

        return falls

    return {cls: test(entries) for cls, entries in special.items()}


@cached_on_owner
def model_of(cls: Any) -> Model:
    """Return the lowered form of a record class; made once."""
    declaration = declaration_of(cls)
    columns = tuple(field for field in declaration.fields if field.name not in declaration.key_only)
    aggregate = None if declaration.of is None else aggregate_model(declaration)
    return Model(declaration, columns, aggregate=aggregate, **row_functions(declaration, columns))


@cached_on_owner
def to_row_of_any_size(model: Model) -> Callable[[Any], Row]:
    """Return a model's `to_row` for what scripts convert: only the code of a program says which values may be large."""
    columns = tuple([attrs.evolve(field, large=None) for field in model.columns])
    return row_functions(model.declaration, columns)["to_row"]


def size(entity: Record, /) -> int:
    """Return the size of an entity in bytes as Azure Tables counts it, stored or not.

    Fields that the store maintains do not count: it keeps them apart.

    Raises:
        InvalidEntity: it is no entity of a class with a table, or it cannot be stored.
        EntityTooLarge: it is larger than an entity may be.
    """
    if not has_table(cls := type(entity)):
        raise InvalidEntity("size", [f"expected an entity, got {safe_repr(entity)}"])
    model = model_of(cls)
    return model.size(model.to_row(entity))
