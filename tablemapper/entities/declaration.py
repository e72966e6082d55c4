"""A class, compiled: its fields, its key and indexes as frozen data, and how values of fields are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeGuard

import attrs

from ..accept import accept_faults, accepted
from ..datetime_types import Builtin
from ..errors import InvalidEntity, InvalidModel, InvalidQuery, did_you_mean, safe_repr
from ..expressions.tree import TIMESTAMP_NAME, Predicate
from ..keys.composite_times import composed_fields
from ..keys.template import Slot, Template
from ..limits import MAX_PROPERTIES, check_table_name
from ..values.scalars import ValueFault
from ..values.timestamp import TIMESTAMP
from .fields import FieldModel
from .index import Index
from .key import Key
from .key_and_indexes import IndexModel, compile_condition, compile_index, field_names, key_templates, large_faults


class Options(NamedTuple):
    """The keywords of a class statement."""

    table: str | None = None
    type: str | None = None
    of: Any = None
    where: Callable[[Any], Predicate[Any]] | None = None
    accept: Any = None


_TIMESTAMP = FieldModel(
    name=TIMESTAMP_NAME, property="Timestamp", type=TIMESTAMP, annotation=Builtin.datetime, optional=False, constraint=None,
    default=attrs.NOTHING, factory=None, stored=True, kw_only=True, validator=None, measure=None,
)  # fmt: skip
"""When an entity was last written, as if it were a field."""


@attrs.frozen(eq=False, kw_only=True)
class AbstractDeclaration:
    """A class, compiled: its fields. One without a table lends them, with its key and indexes as they are declared."""

    cls: type[Any]
    table: str | None
    fields: tuple[FieldModel, ...]
    of: type[Any] | None = None
    """What an aggregate is maintained from."""
    where: Predicate[Any] | None = None
    """Of which entities."""
    lent: Mapping[str, Key[Any] | Index[Any]] = attrs.field(factory=dict)
    """The key and the indexes as declared, where the classes that are derived from it take them."""

    @property
    def name(self) -> str:
        return self.cls.__name__

    def field(self, name: str) -> FieldModel:
        """Return a field by its name; raise InvalidQuery, with the nearest name, if there is none."""
        for model in self.fields:
            if model.name == name:
                return model
        if name == TIMESTAMP_NAME:
            return _TIMESTAMP
        names = [model.name for model in self.fields]
        raise InvalidQuery(f'{self.name}: no field "{name}" (fields: {", ".join(names)}){did_you_mean(name, names)}')

    @cached_property
    def parameters(self) -> tuple[FieldModel, ...]:
        """The fields that a constructor takes: all but those that the store maintains."""
        return tuple([field for field in self.fields if not field.maintained])

    @cached_property
    def maintained(self) -> tuple[FieldModel, ...]:
        """The fields of an entity that the store maintains."""
        return tuple([field for field in self.fields if field.maintained])

    @cached_property
    def set_on_write(self) -> tuple[FieldModel, ...]:
        """The fields that each write sets."""
        return tuple([field for field in self.fields if field.on_write is not None])

    @cached_property
    def expiry(self) -> FieldModel | None:
        """The field that says when an entity ends."""
        return next((field for field in self.fields if field.expires), None)

    @property
    def has_rule(self) -> bool:
        """Whether a method of its own looks at each entity that is built or written."""
        return hasattr(self.cls, "__attrs_post_init__")

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties of the fields, by name."""
        return {model.name: model.property for model in self.fields}


@attrs.frozen(eq=False, kw_only=True)
class Declaration(AbstractDeclaration):
    """A class with a table, compiled: everything about it that no other class has a say in."""

    table: str
    type_name: str | None
    partition: Template
    row: Template
    indexes: tuple[IndexModel, ...]
    accept: Mapping[str, str] = attrs.field(factory=dict)
    """The advice about the class or its key that is not wanted, by code, with the reasons; no part of the schema."""

    @cached_property
    def templates(self) -> tuple[Template, Template]:
        """The templates of the partition key and the row key."""
        return self.partition, self.row

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of ``Product.key``: the key's fields, each once, in order of first appearance."""
        return tuple(dict.fromkeys(f for t in self.templates for f in t.fields))

    @property
    def key_fields(self) -> frozenset[str]:
        """The fields that the key is made of."""
        return frozenset(self.arguments)

    @cached_property
    def lossless_fields(self) -> frozenset[str]:
        """The fields of which the key says all: values that differ never share one."""
        return composed_fields(self.templates).union(*(template.lossless_fields for template in self.templates))

    @property
    def lossy_slots(self) -> tuple[Slot, ...]:
        """The slots of the key that are all it says of their fields: values that differ can share a key."""
        slots = [slot for template in self.templates for slot in template.slots]
        return tuple(slot for slot in slots if slot.field not in self.lossless_fields)

    @cached_property
    def key_only(self) -> frozenset[str]:
        """The fields that the key holds without loss, and that are not stored a second time.

        A time that it holds in pieces is stored all the same if no precision says what was meant.
        """
        lossless = frozenset[str]().union(*(t.lossless_fields for t in self.templates))
        lossless |= {f.name for f in self.fields if f.type.precision} & composed_fields(self.templates)
        return frozenset(f.name for f in self.fields if f.name in lossless and not f.stored and f.type.lossless_in_key)


def abstract_declaration(cls: Any) -> AbstractDeclaration:
    """Return the compiled declaration of a record class, with a table or without."""
    declaration = cls.__dict__.get("__declaration__") if isinstance(cls, type) else None
    if not isinstance(declaration, AbstractDeclaration):
        raise InvalidModel(safe_repr(cls), ["expected an entity class: class Product(tm.Entity, table=…)"])
    return declaration


def has_table(value: object) -> bool:
    """Return whether something is a record class with a table, not one that only lends its fields."""
    return isinstance(value, type) and isinstance(getattr(value, "__declaration__", None), Declaration)


def is_base(value: object) -> TypeGuard[type[Any]]:
    """Return whether something is a record class without a table, which others are derived from."""
    declaration = value.__dict__.get("__declaration__") if isinstance(value, type) else None
    return isinstance(declaration, AbstractDeclaration) and not isinstance(declaration, Declaration)


def declaration_of(cls: type[Any]) -> Declaration:
    """Return the compiled declaration of a record class with a table."""
    declaration = abstract_declaration(cls)
    if not isinstance(declaration, Declaration):
        raise InvalidModel(cls.__name__, ["it has no table; derive a class with table= from it"])
    return declaration


def check_type(f: FieldModel, value: Any) -> Any:
    """Return a value of a field's type as it is kept; raise `ValueFault` if it is none."""
    if value is None:
        if f.optional or f.measure is not None:
            return None
        raise ValueFault(f"None, but a value of type {f.type.name} is required (Field[… | None] would allow it)")
    return f.type.check(value)


def check_value(f: FieldModel, value: Any) -> Any:
    """Return a field's value as it is kept; raise `ValueFault` if it cannot be."""
    if value is None:
        return check_type(f, value)
    value = f.type.check(value)
    if f.constraint is not None:
        f.constraint.check(value)
    return value


def checked_on_write(declaration: AbstractDeclaration, f: FieldModel, value: Any) -> Any:
    """Return what a field's ``on_write=`` gave as it is kept; raise InvalidEntity if it cannot be."""
    try:
        return check_value(f, value)
    except ValueFault as error:
        raise InvalidEntity(f"{declaration.name}.{f.name}", [f"on_write=: {error}"]) from None


def read_only_fault(f: FieldModel) -> str:
    """Return why a field that the store maintains, or that each write sets, cannot be given a value."""
    if f.on_write is not None:
        return f"{f.name}: it is set at each write, by on_write="
    assert f.measure is not None
    source = f.measure.of.__name__
    return f"{f.name}: the store maintains it from {source}; write {source} entities instead"


def located(name: str, error: ValueError) -> str:
    """Return a fault with its path: ``tags[1]: …``, ``home.city: …``, ``more.color: …``, ``price: …``."""
    text = str(error)
    return f"{name}{text}" if text[:1] in ("[", ".") else f"{name}: {text}"


def declare(
    cls: Any,
    options: Options,
    fields: dict[str, FieldModel],
    declarations: dict[str, Any],
    faulty: set[str],
    faults: list[str],
) -> AbstractDeclaration:
    """Compile a class; one with a table gives a `Declaration`, unless there is a fault in its key.

    A key or an index over a field that has a fault itself is not judged: what is wrong with the field is said once.
    """
    models = tuple(fields.values())
    keys = {name: value for name, value in declarations.items() if isinstance(value, Key)}
    indexes = {name: value for name, value in declarations.items() if isinstance(value, Index)}
    where = compile_condition("where=", options.where, options.of or cls, faults)
    faults += accept_faults(options.accept, index=False)
    if options.table is None:
        faults += (
            []
            if options.accept is None
            else ["accept=: it is for a class with table=; there is no advice about others"]
        )
        faults += _lent_faults(cls, declarations, fields, faulty)
        return AbstractDeclaration(cls=cls, table=None, fields=models, of=options.of, where=where, lent=declarations)
    table = options.table
    if not isinstance(table, str):
        faults.append(f'table={safe_repr(table)}: the name of a table is text, as in table="{cls.__name__}s"')
        table = "Table"
    if (fault := check_table_name(table)) is not None:
        faults.append(f"table={safe_repr(table)}: {fault}")
    if set(keys) != {"key"}:
        wrong = "".join(f", not {name}" for name in keys if name != "key")
        faults.append(f'declare exactly one key, named "key"{wrong}: key = tm.Key(partition="{{…}}", row="{{…}}")')
    judged = {name for name, value in declarations.items() if faulty.isdisjoint(field_names(value))}
    faults += [
        fault for name in declarations if name in judged for fault in large_faults(name, declarations[name], fields)
    ]
    partition, row = key_templates(keys["key"], fields, faults) if "key" in judged & keys.keys() else (None, None)
    compiled = [
        model
        for name, index in indexes.items()
        if name in judged and (model := compile_index(cls, name, index, table, fields, faults)) is not None
    ]
    if partition is None or row is None:
        return AbstractDeclaration(cls=cls, table=table, fields=models, of=options.of, where=where)
    declaration = Declaration(
        cls=cls,
        table=table,
        type_name=options.type,
        fields=models,
        partition=partition,
        row=row,
        indexes=tuple(compiled),
        of=options.of,
        where=where,
        accept=accepted(options.accept),
    )
    if (properties := len(models) - len(declaration.key_only)) > MAX_PROPERTIES:
        faults.append(f"{properties} properties, but an entity may have {MAX_PROPERTIES}")
    return declaration


def _lent_faults(
    cls: Any, declarations: Mapping[str, Key[Any] | Index[Any]], fields: Mapping[str, FieldModel], faulty: set[str]
) -> list[str]:
    """Return what is wrong with the key and the indexes of a class without a table, as far as it has their fields.

    The class that has all of them judges the others, and every condition: it is of its own fields.
    """
    faults: list[str] = []
    for name, value in declarations.items():
        if isinstance(value, Key) and name != "key":
            faults.append(f'{name}: a class has one key, named "key": key = tm.Key(partition="{{…}}", row="{{…}}")')
        if isinstance(value, Index) and value.table is not None:
            faults.append(
                f"{name}: each class that takes it from {cls.__name__} has a table of its own for it; leave out table="
            )
        if faulty.isdisjoint(field_names(value)) and fields.keys() >= set(field_names(value)):
            faults += large_faults(name, value, fields)
            if isinstance(value, Key):
                key_templates(value, fields, faults)
            else:
                compile_index(cls, name, value, None, fields, faults)
    return faults
