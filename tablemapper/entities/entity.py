"""Entity classes: from a class body to plain attrs slots with validation, and typed access on the class.

Each class with a table has two things of its own beside it:

- *A metaclass*, which answers ``Product.price`` and ``Product.key`` by data descriptors. They come before what the
  class itself holds, so an instance's attributes stay plain slots, which are read in 2 ns; a descriptor on the class
  would take 70. Classes without a table have no slots, and share one metaclass: a class can derive from several.
- *A raw twin*, ``Product.__raw__``: a class with the same slots and without ``__setattr__``. Setting an attribute of a
  Product checks the value, in a Python function. What makes an entity (its constructor, and the generated readers of
  rows) has checked values, or trusts them. So it sets them on an object of the twin, as plain slots, and then makes a
  Product of it by ``entity.__class__ = Product``, which Python allows as both have one layout. An entity of six fields
  is made of its row in 360 ns this way, and in 620 if each slot is set by its descriptor.

The constructor, ``__setattr__`` and ``Product.key`` are generated once a class.
"""

from __future__ import annotations

import copyreg
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Self, TypeVar, dataclass_transform

import attrs

from ..attributes import CACHE, cached_attributes, data_descriptor, forget_cached
from ..codegen import Names, compile_functions
from ..datetime_types import builtin_time
from ..errors import InvalidEntity, InvalidModel, did_you_mean, safe_repr
from ..expressions.arithmetic import Number
from ..expressions.foreign_names import FOREIGN_NAMES, foreign_name_fault, refuse_foreign_names, without_foreign_names
from ..expressions.tree import Assignment, Attr, Predicate
from ..keys.encodings import check_key
from ..limits import is_name
from ..type_aliases import annotations_of
from ..values.extra import indexed_as
from ..values.scalars import ValueFault, ValueType
from ..values.timestamp import TIMESTAMP
from .class_body import calling_frame, plain_annotations, read_bases, read_body
from .constructor import constructor_source, key_normaliser, normaliser
from .declaration import (
    AbstractDeclaration,
    Declaration,
    Options,
    check_value,
    declaration_of,
    declare,
    has_table,
    located,
    read_only_fault,
)
from .etag import etag_text
from .expiry import with_expiry
from .fields import FieldModel, avg, count, field, group_by, max, max_ever, min, min_ever, sum
from .index import IndexCall
from .key import KeyOf
from .measures import maintained_faults
from .variants import made_once, pickled, variant_body, variant_declaration

R = TypeVar("R", bound="Record")

_set_class = object.__dict__["__class__"].__set__


class ClassAccess(property):
    """A data descriptor on an entity's own metaclass: what a name gives on the class, and nothing on instances.

    It looks the class up, which is its only one, and so runs no Python.
    """

    def __init__(self, cls: type, value: Any) -> None:
        super().__init__({cls: value}.__getitem__)

    def __set__(self, cls: Any, value: Any) -> None:
        raise AttributeError(f"{cls.__name__}: a field of a class cannot be set; declare it in the class body")


def _make_class(
    mcls: Any, name: str, bases: tuple[Any, ...], body: dict[str, Any], options: Options, unknown: Iterable[str]
) -> Any:
    faults = [f"{keyword}= is not an option of a class{did_you_mean(keyword, Options._fields)}" for keyword in unknown]
    faults += [] if is_name(name) else [f"{safe_repr(name)} is no name of a class in Python"]
    kind: Any = next(base for base in bases if isinstance(base, RecordType))
    options = kind._options(options, faults)
    fault_count = len(faults)
    read_bases(name, bases, faults)
    impossible = len(faults) > fault_count
    fields, declarations, faulty = read_body(name, body, bases, options, faults)
    if options.table is not None:
        faults += plain_annotations(bases, fields)
    if impossible:
        raise InvalidModel(name, faults)
    concrete = options.table is not None
    own_metaclass = type(f"{name}Type", (mcls,), {}) if concrete else mcls
    cached = cached_attributes(bases, body) if concrete else {}
    slots = (*fields, *([CACHE] if cached else [])) if concrete else ()
    cls: Any = type.__new__(own_metaclass, name, bases, {**body, **cached, "__slots__": slots})
    if concrete:
        _give_fields(own_metaclass, cls, fields.values())
    else:
        # While its conditions are read, an abstract class knows its fields already.
        type.__setattr__(
            cls, "__declaration__", AbstractDeclaration(cls=cls, table=None, fields=tuple(fields.values()))
        )
    declaration = with_expiry(declare(cls, options, fields, declarations, faulty, faults), faults)
    faults += cls._faults(declaration)
    if faults:
        raise InvalidModel(name, faults)
    type.__setattr__(cls, "__declaration__", declaration)
    annotations = {**annotations_of(body), **{f.name: f.annotation for f in declaration.fields}}
    type.__setattr__(cls, "__annotations__", annotations)
    if concrete:
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__slots__": slots}
        type.__setattr__(cls, "__raw__", type.__new__(mcls, name, bases, names))
        _finish(cls, own_metaclass, declaration_of(cls))
    return cls


def _give_fields(own_metaclass: Any, cls: Any, fields: Iterable[FieldModel]) -> None:
    """Have a metaclass answer the fields of its class."""
    for model in fields:
        setattr(own_metaclass, model.name, ClassAccess(cls, Attr(cls, model.name, model.type)))


def _make_variant(cls: Any, text: str) -> Any:
    name = cls.__name__ + text
    # (What stands on a metaclass of its own hides that of the class, which nothing may set, until it is finished.)
    own_metaclass: Any = type(f"{name}Type", (type(cls),), {"key": None})
    variant: Any = type.__new__(own_metaclass, name, (cls,), variant_body(cls, text))
    declaration = variant_declaration(cls, variant, text)
    _give_fields(own_metaclass, variant, declaration.fields)
    type.__setattr__(variant, "__declaration__", declaration)
    type.__setattr__(variant, "__annotations__", {f.name: f.annotation for f in declaration.fields})
    _finish(variant, own_metaclass, declaration)
    copyreg.pickle(own_metaclass, pickled)
    return variant


# ---------------------------------------------------------------------------------------------- generated functions


def _finish(cls: Any, own_metaclass: Any, declaration: Declaration) -> None:
    """Add what is generated: attrs' methods, the constructor, ``__setattr__``, and the access to key and indexes."""
    attrs.define(
        cls,
        these={
            f.name: attrs.field(default=_default(f), kw_only=f.kw_only, validator=f.validator, init=not f.maintained)
            for f in declaration.fields
        },
        slots=False,
        init=False,
        order=False,
        on_setattr=attrs.setters.NO_OP,
    )
    names = Names(
        Raw=cls.__raw__, Cls=cls, set_class=_set_class, KeyOf=KeyOf, new=tuple.__new__, check_key=check_key, set_other=_set_other, read_only=_read_only, refuse_value=_refuse_value,
        validate=_validate, validators_disabled=attrs.validators.get_disabled,
        normalise=normaliser(declaration), normalise_key=key_normaliser(declaration),
    )  # fmt: skip
    source = "\n".join(constructor_source(declaration, names))
    functions = compile_functions(cls.__qualname__, source, names)
    annotations = {f.name: f.annotation for f in declaration.fields}
    for name in ("__init__", "__setattr__"):
        function = functions[name]
        function.__qualname__ = f"{cls.__qualname__}.{name}"
        type.__setattr__(cls, name, function)
    cls.__init__.__annotations__ = {**{f.name: annotations[f.name] for f in declaration.parameters}, "return": None}
    if cls.__doc__ is None:
        cls.__doc__ = f"{cls.__name__}({str(inspect.signature(cls.__init__)).partition('self, ')[2]}"
        cls.__doc__ = cls.__doc__.removesuffix(" -> None")
    # Not on Record: a class that overrides either of the two sets attributes ten times slower, and __raw__ must not.
    type.__setattr__(cls, "__delattr__", _delete)
    functions["key"].__qualname__ = f"{cls.__qualname__}.key"
    functions["key"].__annotations__ = {name: annotations[name] for name in declaration.arguments}
    type.__setattr__(cls, "key", property(functions["key_of"], doc="The entity's key."))
    own_metaclass.key = ClassAccess(cls, MethodType(functions["key"], cls))
    for index in declaration.indexes:
        call = IndexCall(
            cls, index.name, tuple((name, _argument_type(declaration, name).check) for name in index.arguments)
        )
        setattr(own_metaclass, index.name, ClassAccess(cls, call))


def _default(f: FieldModel) -> Any:
    if f.measure is not None and not f.maintained:
        return None
    return f.default if f.factory is None else attrs.Factory(f.factory)


def _argument_type(declaration: Declaration, name: str) -> ValueType:
    head, _, path = name.partition(".")
    kind = declaration.field(head).type
    return indexed_as(kind.nested(tuple(path.split(".")))) if path else kind.element or kind


def _validate(entity: Record) -> None:
    """Call the validators of every field."""
    if not attrs.validators.get_disabled():
        for attribute in attrs.fields(type(entity)):
            if attribute.validator is not None:
                attribute.validator(entity, attribute, getattr(entity, attribute.name))


def _set_other(entity: Record, name: str, value: object) -> None:
    """Set an attribute that is no field."""
    if (descriptor := data_descriptor(entity, name, "__set__")) is not None:
        descriptor.__set__(entity, value)
        return
    fields = [f.name for f in declaration_of(type(entity)).fields]
    raise AttributeError(
        f'{type(entity).__name__} has no field "{name}" (fields: {", ".join(fields)}){did_you_mean(name, fields)}'
    )


def _delete(entity: Record, name: str) -> None:
    if (descriptor := data_descriptor(entity, name, "__delete__")) is not None:
        descriptor.__delete__(entity)
        return
    raise AttributeError(f"{type(entity).__name__}.{name} cannot be deleted; set it to None where that is allowed")


def _read_only(entity: Record, name: str) -> None:
    raise InvalidEntity(
        f"{type(entity).__name__}.{name}",
        ["a key field is read-only once the entity is stored; store.move(entity, new_key) gives it another key"],
    )


def _refuse_value(entity: Record, name: str) -> None:
    cls = type(entity)
    raise InvalidEntity(cls.__name__, [read_only_fault(declaration_of(cls).field(name))])


def set_maintained(entity: Record, fields: Iterable[FieldModel], source: Record | None = None) -> None:
    """Give maintained fields the values that they have in another entity, or those where there is nothing."""
    slots = type(entity).__dict__
    for f in fields:
        slots[f.name].__set__(entity, f.default if source is None else getattr(source, f.name))


# ---------------------------------------------------------------------------------------------- the classes


def _derived_classes(cls: type[Any]) -> Iterator[type[Any]]:
    for derived in type.__subclasses__(cls):
        yield derived
        yield from _derived_classes(derived)


class RecordType(type):
    """The metaclass of records; each class gets one of its own."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        body: dict[str, Any],
        *,
        table: str | None = None,
        type: str | None = None,
        of: Any = None,
        where: Callable[[Any], Predicate[Any]] | None = None,
        accept: Mapping[str, str] | None = None,
        **unknown: Any,
    ) -> Any:
        if not any(isinstance(base, RecordType) for base in bases):  # Record itself
            return super().__new__(mcls, name, bases, body)
        body = {"__module__": calling_frame().f_globals.get("__name__", "__main__"), **body}
        return _make_class(mcls, name, bases, body, Options(table, type, of, where, accept), unknown)

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, body)

    def __dir__(cls) -> list[str]:
        return without_foreign_names(cls, super().__dir__())

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            """Return a field of an abstract class: it has no metaclass of its own, so that several can be bases."""
            declaration = cls.__dict__.get("__declaration__")
            if declaration is None or name.startswith("__"):
                raise AttributeError(f"{cls.__name__} has no attribute {name!r}")
            known = [model.name for model in declaration.fields]
            if declaration.table is None and name in known:
                return Attr(cls, name, declaration.field(name).type)
            if name in declaration.lent:
                example = next((derived.__name__ for derived in _derived_classes(cls) if has_table(derived)), "Product")
                raise AttributeError(
                    f"{cls.__name__} lends {name}; call it on a class with a table: {example}.{name}(…)"
                )
            if (remedy := FOREIGN_NAMES["entity"].get(name)) is not None:
                raise AttributeError(foreign_name_fault(cls.__name__, name, remedy, cls.__name__))
            raise AttributeError(
                f'{cls.__name__} has no field "{name}" (fields: {", ".join(known)}){did_you_mean(name, known)}'
            )


@dataclass_transform(eq_default=True, field_specifiers=(field, group_by, count, sum, avg, min, max, min_ever, max_ever))
class Record(metaclass=RecordType):
    """The base class of `Entity`, which users write, and of `Aggregate`, which the store maintains."""

    __slots__ = ("__weakref__", "_row")

    if TYPE_CHECKING:
        _row: Any
        """The stored row that this object was read from or written as, None before.

        Not set in an object that no constructor built; `check_whole` sets it."""
        __attrs_attrs__: ClassVar[tuple[Any, ...]]

        def __init_subclass__(
            cls, *, table: str | None = None, type: str | None = None, accept: Mapping[str, str] | None = None
        ) -> None: ...

        @classmethod
        def _same(cls, entity: Self, /) -> Self:  # lets the checkers tell a class from every other
            ...

    @classmethod
    def variant(cls, text: str, /) -> type[Self]:
        """Return the same class with a name and tables of its own: ``Log.variant("202611")`` is Log202611 in ``Logs202611``.

        It is the same object each time, and its entities are of the class, too. To a store it is a class like any: open
        it, or `use` it later. That of an aggregate is over the variant of its source.

        Args:
            text: letters and digits, which the name of the class and of each table ends in.

        Raises:
            InvalidModel: it is a variant itself, has no table, or the text makes no name of a table.
        """
        variant: type[Self] = made_once(cls, text, _make_variant)
        return variant

    def replace(self, *assignments: Assignment[Self], **changes: Any) -> Self:
        """Return a copy with other values; it keeps the ETag unless a key field changes.

        Args:
            assignments: checked by type: ``Product.name.set("Dune")``.
            changes: the same by name: ``name="Dune"``.

        Raises:
            InvalidEntity: a name is no field, or a value cannot be stored; every fault.
        """
        cls = type(self)
        declaration = declaration_of(cls)
        values = {model.name: getattr(self, model.name) for model in declaration.parameters}
        fixed = {model.name: model for model in declaration.fields if model.read_only}
        faults = [read_only_fault(fixed[name]) for name in changes if name in fixed]
        faults += [
            f'no field "{name}"{did_you_mean(name, values)}'
            for name in changes
            if name not in values and name not in fixed
        ]
        for a in assignments:
            if not isinstance(a, Assignment):
                faults.append(f"expected {cls.__name__}.field.set(…), got {safe_repr(a)}")
            elif a.attr.name in fixed:
                faults.append(read_only_fault(fixed[a.attr.name]))
            elif a.attr.name not in values or a.attr.path or a.attr.part or not issubclass(cls, a.attr.owner):
                faults.append(f"{a.attr!r} is not a field of {cls.__name__}")
            elif a.adds or isinstance(a.value, Number):
                faults.append(f"{a.attr.name}: expected a value; only the store calculates, in merge and update")
            elif a.attr.name in changes:
                faults.append(f"{a.attr.name}: it is assigned twice")
            else:
                changes[a.attr.name] = a.value
        if faults:
            raise InvalidEntity(f"{cls.__name__}.replace", faults)
        copy = cls(**(values | changes))
        if all(getattr(copy, name) == values[name] for name in declaration.key_fields):
            set_row(copy, stored_row(self))
            set_maintained(copy, declaration.maintained, self)
        return copy

    if not TYPE_CHECKING:

        def __getitem__(self, name: object) -> NoReturn:  # dict(entity) comes here too
            is_field = any(field.name == name for field in declaration_of(type(self)).fields)
            access = f"entity.{name}, or " if is_field else ""
            raise TypeError(f"{type(self).__name__} entities are no mappings; write {access}tm.to_dict(entity)")

    @property
    def _timestamp(self) -> datetime:
        """The time of the last write; conditions on `tablemapper.timestamp` read it."""
        return TIMESTAMP.load(self._row[2])  # type: ignore[no-any-return]

    @classmethod
    def _options(cls, options: Options, faults: list[str]) -> Options:
        """Return the keywords that a class of this kind may have; the others are faults."""
        return options

    @classmethod
    def _faults(cls, declaration: AbstractDeclaration) -> list[str]:
        """Return what else is wrong with a declaration of this kind of record."""
        return []

    def __getstate__(self) -> tuple[Any, ...]:
        values = tuple([getattr(self, model.name) for model in declaration_of(type(self)).fields])
        return (values, self._row) if hasattr(self, "_row") else (values,)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        values, *row = state
        for model, value in zip(declaration_of(type(self)).fields, values, strict=True):
            if model.type.cuttable and builtin_time(value.__class__) is not value.__class__:
                value = model.type.check(value)  # (a test that freezes the time also replaces what is unpickled)
            type(self).__dict__[model.name].__set__(self, value)
        if row:
            set_row(self, row[0])
        forget_cached(self)


for _kind in ("entity", "entity alone"):
    refuse_foreign_names(
        _kind, lambda entity: (f"the {type(entity).__name__} entity", type(entity).__name__), "either"
    )(Record)
set_row: Callable[[Any, Any], None] = Record.__dict__["_row"].__set__


def stored_row(entity: Record) -> Any:
    """Return the row that an entity was read from or written as; None if it is new."""
    return getattr(entity, "_row", None)


def check_whole(entity: Record) -> None:
    """Check an entity that no constructor built, as its constructor would.

    Raises:
        InvalidEntity: with every fault.
    """
    cls = type(entity)
    faults = []
    set_maintained(entity, declaration_of(cls).maintained)
    for model in declaration_of(cls).parameters:
        try:
            cls.__dict__[model.name].__set__(entity, check_value(model, getattr(entity, model.name)))
        except AttributeError:
            faults.append(f"{model.name}: it was never set")
        except ValueFault as error:
            faults.append(located(model.name, error))
    if faults:
        raise InvalidEntity(cls.__name__, faults)
    set_row(entity, None)
    _validate(entity)


def check_rule(entity: Any) -> None:
    """Ask the rule of an entity's class, which may set fields, too.

    Raises:
        InvalidEntity: it refuses the entity.
    """
    try:
        entity.__attrs_post_init__()
    except Exception as error:  # a user's method may raise anything
        raise refusal(f"{type(entity).__name__} {key_of(entity)[1:]}", error) from error


def refusal(subject: str, error: Exception) -> InvalidEntity:
    """Return the error of what a user's function refused by raising another one."""
    text = str(error)
    return InvalidEntity(
        subject, [text if text and isinstance(error, ValueError) else f"{type(error).__name__}: {text}"]
    )


class Entity(Record):
    """An entity class: declare fields, a key, indexes::

        class Product(tm.Entity, table="Products"):
            category_id: tm.Field[str]
            product_id: tm.Field[str]
            price: tm.Field[Decimal]

            key = tm.Key[str, str](partition="{category_id}", row="{product_id}")

    Without ``table=`` the class is abstract: derived classes take its fields, its key and its indexes.

    Raises:
        InvalidModel: everything that is wrong with the declaration, when Python executes the class statement.
    """

    __slots__ = ()

    @classmethod
    def _options(cls, options: Options, faults: list[str]) -> Options:
        if options.of is not None:
            faults.append("of= is for an Aggregate: class …(tm.Aggregate, of=…)")
        if options.where is not None:
            faults.append(
                "where= is for an Aggregate or an Index; a query says it as .where(…), and an index that holds some "
                "entities only is declared as tm.Index(…, where=…)"
            )
        return options._replace(of=None, where=None)

    @classmethod
    def _faults(cls, declaration: AbstractDeclaration) -> list[str]:
        return list(maintained_faults(declaration))


class EntityInfo(NamedTuple):
    """The keys, the ETag and the timestamp of an entity."""

    partition_key: str
    row_key: str
    etag: str | None
    """None before it was stored."""
    timestamp: datetime | None
    """When it was last written (UTC, µs); given by the store."""


def key_of(entity: Record) -> KeyOf[Any]:
    """Return the key of an entity of any class.

    `Record` itself declares none: pyright would then take the type of every class's key from there.
    """
    key: KeyOf[Any] = entity.key  # type: ignore[attr-defined]
    return key


def info(entity: Record) -> EntityInfo:
    """Return the keys, the ETag and the timestamp of an entity.

    Raises:
        InvalidEntity: it is no entity, or it is not stored yet and no key can hold its values.
    """
    if not isinstance(entity, Record):
        raise InvalidEntity("info", [f"expected an entity, got {safe_repr(entity)}"])
    row = stored_row(entity)
    if row is None:
        key = key_of(entity)
        return EntityInfo(key.partition, key.row, None, None)
    return EntityInfo(row[0], row[1], etag_text(row[2]), TIMESTAMP.load(row[2]))
