"""Entity classes: from a class body to plain attrs slots with validation, typed class access and a compiled declaration.

``Product.price`` is answered by a data descriptor on a metaclass made for that one class, so an instance's attributes
stay plain slots. The constructor, ``__setattr__`` and ``Product.key`` are generated once a class.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform, get_args, get_type_hints

import attrs

from .codegen import Names, compile_functions
from .errors import InvalidEntity, InvalidModel, InvalidQuery, did_you_mean
from .expressions import Attr, Predicate, attributes, dump
from .fields import FieldModel, FieldOptions, Measure, avg, count, field, group_by, max, max_ever, min, min_ever, sum
from .indexes import Index, IndexCall, Key, KeyOf
from .keys import Template, compile_template
from .keytext import check_key
from .limits import check_property_name, check_table_name
from .values import Extra, ValueType, value_type

__all__ = ["Declaration", "Entity", "IndexModel", "Info", "Record", "declaration", "info"]

R = TypeVar("R", bound="Record")

_METHODS = frozenset({"key", "replace"})
_set_class = object.__dict__["__class__"].__set__


@attrs.frozen(eq=False)
class IndexModel:
    """An index, compiled against the fields of its class."""

    name: str
    table: str
    partition: Template
    row: Template
    include: tuple[FieldModel, ...]
    unique: bool
    where: Predicate[Any] | None
    fan_out: str | None
    """The list field of which each element has a row."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that its templates read, dotted where nested."""
        return tuple(dict.fromkeys((*self.partition.fields, *self.row.fields)))

    def to_json(self) -> dict[str, Any]:
        """Return what the catalogue keeps."""
        return {
            "table": self.table,
            "partition": self.partition.to_json(),
            "row": self.row.to_json(),
            "include": [field.property for field in self.include],
            "unique": self.unique,
            "where": None if self.where is None else dump(self.where),
        }


@attrs.frozen(eq=False)
class Declaration:
    """A class, compiled: everything about it that no other class has a say in."""

    cls: type[Any]
    table: str | None
    type_name: str | None
    fields: tuple[FieldModel, ...]
    partition: Template | None
    row: Template | None
    indexes: tuple[IndexModel, ...]
    of: type[Any] | None = None
    where: Predicate[Any] | None = None

    @property
    def name(self) -> str:
        return self.cls.__name__

    def field(self, name: str) -> FieldModel:
        """Return a field by its name; raise InvalidQuery, with the nearest name, if there is none."""
        for model in self.fields:
            if model.name == name:
                return model
        known = [model.name for model in self.fields]
        raise InvalidQuery(f'{self.name}: no field "{name}" (fields: {", ".join(known)}){did_you_mean(name, known)}')

    @property
    def templates(self) -> tuple[Template, Template]:
        """The templates of the partition key and the row key; only of a class with a table."""
        assert self.partition is not None
        assert self.row is not None
        return self.partition, self.row

    @property
    def key_fields(self) -> frozenset[str]:
        """The fields that the key is made of."""
        return frozenset() if self.partition is None else frozenset(f for t in self.templates for f in t.fields)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What ``Product.key`` takes: the key's fields, each once, in order of first appearance."""
        return tuple(dict.fromkeys(f for t in self.templates for f in t.fields))

    @property
    def key_only(self) -> frozenset[str]:
        """The fields that the key holds without loss, and that are not stored a second time."""
        if self.partition is None:
            return frozenset()
        lossless = frozenset[str]().union(*(t.lossless_fields for t in self.templates))
        return frozenset(
            f.name for f in self.fields if f.name in lossless and not f.stored and f.type.name != "Decimal"
        )


class ClassAccess:
    """A data descriptor on an entity's own metaclass: what a name gives on the class, and nothing on instances."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __get__(self, cls: Any, meta: Any) -> Any:
        return self.value

    def __set__(self, cls: Any, value: Any) -> None:
        raise AttributeError(f"{cls.__name__}: a field of a class can not be set; declare it in the class body")


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
    ) -> Any:
        if not any(isinstance(base, RecordType) for base in bases):  # Record itself
            return super().__new__(mcls, name, bases, body)
        return _make_class(mcls, name, bases, body, _Options(table, type, of, where))

    def __init__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, body)


class _Options(NamedTuple):
    table: str | None
    type: str | None
    of: Any
    where: Callable[[Any], Predicate[Any]] | None


class Record(metaclass=RecordType):
    """What an entity table holds: an `Entity`, written by users, or an `Aggregate`, maintained by the store."""

    __slots__ = ("__weakref__", "_row")

    _row: Any
    """The stored row that this object was read from or written as, None before."""
    if not TYPE_CHECKING:
        del __annotations__

    if TYPE_CHECKING:
        __attrs_attrs__: ClassVar[tuple[Any, ...]]

        def __init_subclass__(cls, *, table: str | None = None, type: str | None = None) -> None: ...

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values; it keeps the ETag unless a key field changes."""
        fields = declaration(type(self)).fields
        values = {model.name: getattr(self, model.name) for model in fields}
        for name in changes:
            if name not in values:
                raise InvalidEntity(
                    f"{type(self).__name__}.replace", [f'no field "{name}"{did_you_mean(name, values)}']
                )
        copy = type(self)(**(values | changes))
        if all(getattr(copy, name) == values[name] for name in declaration(type(self)).key_fields):
            _set_row(copy, self._row)
        return copy

    @classmethod
    def _faults(cls, made: Declaration) -> list[str]:
        """Return what else is wrong with a declaration of this kind of record."""
        return []

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple([getattr(self, model.name) for model in declaration(type(self)).fields]), self._row

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        values, row = state
        for model, value in zip(declaration(type(self)).fields, values, strict=True):
            getattr(type(self), "__mro__")[1].__dict__[model.name].__set__(self, value)
        _set_row(self, row)


_set_row: Callable[[Any, Any], None] = Record.__dict__["_row"].__set__


@dataclass_transform(
    eq_default=True, field_specifiers=(field, group_by, count, sum, avg, min, max, min_ever, max_ever)
)
class Entity(Record):
    """A class of entities: declare fields, a key, indexes::

        class Product(tm.Entity, table="Products"):
            category_id: tm.Field[str]
            product_id: tm.Field[str]
            price: tm.Field[Decimal]

            key = tm.Key[str, str](partition="{category_id}", row="{product_id}")

    Without ``table=`` the class is abstract and lends its fields to the classes derived from it.

    Raises:
        InvalidModel: everything that is wrong with the declaration, when the class is made.
    """

    __slots__ = ()


def declaration(cls: type[Any]) -> Declaration:
    """Return the compiled declaration of a record class."""
    found = cls.__dict__.get("__declaration__")
    if not isinstance(found, Declaration):
        raise InvalidModel(repr(cls), ["an entity class with table= is needed: class Product(tm.Entity, table=…)"])
    return found


class Info(NamedTuple):
    """What the store knows of an entity beside its fields."""

    partition_key: str
    row_key: str
    etag: str | None
    """None before it was stored."""
    timestamp: datetime | None
    """When it was last written (UTC, µs); given by the store."""


def etag_text(timestamp: int) -> str:
    """Return the ETag of a row last written at ``timestamp`` (µs since 1970)."""
    return f'W/"{timestamp}"'


def etag_timestamp(etag: str) -> int:
    """Return what `etag_text` was called with, or -1, which no row has, for a text of another form."""
    digits = etag[3:-1]
    return int(digits) if etag == f'W/"{digits}"' and digits.isascii() and digits.isdigit() else -1


def info(entity: Record) -> Info:
    """Return the keys, the ETag and the timestamp of an entity."""
    row = entity._row
    if row is None:
        key: KeyOf[Any] = entity.key  # type: ignore[attr-defined]
        return Info(key.partition, key.row, None, None)
    return Info(row[0], row[1], etag_text(row[2]), datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row[2]))


# ---------------------------------------------------------------------------------------------- making a class


def _make_class(mcls: Any, name: str, bases: tuple[Any, ...], body: dict[str, Any], options: _Options) -> Any:
    faults: list[str] = []
    for base in bases:
        if "__declaration__" in base.__dict__ and base.__dict__["__declaration__"].table is not None:
            raise InvalidModel(name, [f"{base.__name__} has a table; derive both from a class without table= instead"])
    specifiers = {k: body.pop(k) for k, v in list(body.items()) if isinstance(v, FieldOptions | Measure)}
    declared = {k: body.pop(k) for k, v in list(body.items()) if isinstance(v, Key | Index)}
    own = type(f"{name}Type", tuple(dict.fromkeys(type(base) for base in bases)) or (mcls,), {})
    fields = dict(_inherited(bases))
    for field_name, annotation in _annotations(name, body, bases).items():
        option = specifiers.pop(field_name, None)
        if (model := _field(field_name, annotation, option, options.of is not None, faults)) is not None:
            fields.pop(field_name, None)
            fields[field_name] = model
    faults += [f'{k} = …: annotate it, as in "{k}: tm.Field[…] = …"' for k in specifiers]
    _check_fields(fields, faults)
    concrete = options.table is not None
    slots = {"__module__": body["__module__"], "__qualname__": body["__qualname__"]}
    if concrete:
        raw = type.__new__(own, name, bases, {**slots, "__slots__": tuple(fields)})
        cls: Any = type.__new__(own, name, (raw,), {**body, "__slots__": ()})
    else:
        raw = None
        cls = type.__new__(own, name, bases, {**body, "__slots__": ()})
    for model in fields.values():
        setattr(own, model.name, ClassAccess(Attr(cls, model.name, model.type)))
    made = _declare(cls, options, fields, declared, faults)
    faults += cls._faults(made)
    if faults:
        raise InvalidModel(name, faults)
    type.__setattr__(cls, "__declaration__", made)
    if concrete:
        _finish(cls, raw, own, made)
    return cls


def _inherited(bases: tuple[Any, ...]) -> Iterator[tuple[str, FieldModel]]:
    for base in reversed(bases):
        if isinstance(found := base.__dict__.get("__declaration__"), Declaration):
            for model in found.fields:
                yield model.name, model


def _annotations(name: str, body: dict[str, Any], bases: tuple[Any, ...]) -> dict[str, Any]:
    """Return the annotations of a class body, evaluated where the class is written."""
    texts = body.get("__annotations__", {})
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(__package__ + "."):
        frame = frame.f_back
    probe = type(name, (), {"__annotations__": texts, "__module__": body["__module__"]})
    scope = {**frame.f_locals}
    try:
        hints = get_type_hints(probe, frame.f_globals, scope, include_extras=True)
    except NameError as error:
        raise InvalidModel(name, [f"an annotation can not be read: {error}"]) from None
    return {k: v for k, v in hints.items() if getattr(v, "__origin__", None) is not ClassVar and v is not ClassVar}


def _field(
    name: str, annotation: Any, option: FieldOptions | Measure | None, aggregate: bool, faults: list[str]
) -> FieldModel | None:
    if name.startswith("_"):
        faults.append(f'"{name}": a field may not begin with an underscore (msgspec would drop it silently)')
        return None
    if name in _METHODS:
        faults.append(f'"{name}" is taken; give the field another name, and field(name="{name}") for the property')
        return None
    measure = option if isinstance(option, Measure) else None
    settings = option if isinstance(option, FieldOptions) else FieldOptions()
    if measure is not None and not aggregate:
        faults.append(f"{name}: {measure.kind}(…) belongs in an Aggregate, class …(tm.Aggregate, of=…)")
    if aggregate and measure is None:
        faults.append(f"{name}: a field of an aggregate is a group_by(…), count(), sum(…), avg(…), min(…) or max(…)")
    try:
        kind, optional = value_type(annotation, name)
    except ValueError as error:
        faults.append(f"{name}: {error}")
        return None
    default = settings.default
    if default is not attrs.NOTHING and default is not None:
        try:
            default = kind.check(default)
        except ValueError as error:
            faults.append(f"{name}: its default: {error}")
    if default is None and not optional:
        faults.append(f"{name}: its default is None, so its type must allow that: Field[… | None]")
    if kind.kind is object and settings.factory is None and default not in (attrs.NOTHING, None):
        faults.append(f"{name}: a default that can be changed is shared; use field(factory=…)")
    return FieldModel(
        name, settings.name or name, kind, optional, default, settings.factory, settings.stored,
        bool(settings.kw_only), measure,
    )  # fmt: skip


def _check_fields(fields: Mapping[str, FieldModel], faults: list[str]) -> None:
    seen: dict[str, str] = {}
    optional_before: str | None = None
    for model in fields.values():
        if (fault := check_property_name(model.property)) is not None:
            faults.append(f"{model.name}: {fault}")
        if model.property in seen:
            faults.append(f'{model.name}: the property "{model.property}" is that of {seen[model.property]} already')
        seen[model.property] = model.name
        if model.measure is not None or model.kw_only:
            continue
        if not model.required:
            optional_before = model.name
        elif optional_before is not None:
            faults.append(f"{model.name} has no default but stands after {optional_before}, which has one")
    if len(extras := [f.name for f in fields.values() if f.type.name == "extra"]) > 1:
        faults.append(f"{' and '.join(extras)}: one Extra field is enough")


def _declare(
    cls: Any, options: _Options, fields: dict[str, FieldModel], declared: dict[str, Any], faults: list[str]
) -> Declaration:
    models = tuple(fields.values())
    keys = {name: value for name, value in declared.items() if isinstance(value, Key)}
    indexes = {name: value for name, value in declared.items() if isinstance(value, Index)}
    where = _condition(cls, "where", options.where, options.of or cls, faults)
    if options.table is None:
        faults += [f"{name}: a class without table= has no key and no indexes" for name in declared]
        return Declaration(cls, None, None, models, None, None, (), options.of, where)
    if (fault := check_table_name(options.table)) is not None:
        faults.append(f"table={options.table!r}: {fault}")
    if set(keys) != {"key"}:
        wrong = "".join(f", not {name}" for name in keys if name != "key")
        faults.append(f'exactly one key is needed, named "key"{wrong}: key = tm.Key(partition="{{…}}", row="{{…}}")')
    kinds = {m.name: m.type.key_kind for m in models if m.type.keyable and not m.optional}
    partition, row = (
        _templates("key", keys["key"], kinds, fields, faults) if "key" in keys else (None, None)
    )
    if partition is not None and row is not None:
        arguments = tuple(dict.fromkeys((*partition.fields, *row.fields)))
        _compare_parameters("key", keys["key"], [fields[name].type for name in arguments], arguments, faults)
    compiled = [
        model
        for name, index in indexes.items()
        if (model := _index(cls, name, index, options.table, fields, faults)) is not None
    ]
    return Declaration(
        cls, options.table, options.type, models, partition, row, tuple(compiled), options.of, where
    )


def _condition(
    cls: Any, name: str, where: Callable[[Any], Predicate[Any]] | None, owner: Any, faults: list[str]
) -> Predicate[Any] | None:
    if where is None:
        return None
    try:
        predicate = where(owner)
        for attr in attributes(predicate):
            if not issubclass(owner, attr.owner):
                raise InvalidQuery(f"{attr!r} is not a field of {owner.__name__}")
    except (InvalidQuery, AttributeError, TypeError) as error:
        faults.append(f"{name}: where=: {error}")
        return None
    return predicate


def _templates(
    name: str, declared: Key[Any] | Index[Any], kinds: Mapping[str, Any], fields: Mapping[str, FieldModel], faults: list[str]
) -> tuple[Template | None, Template | None]:
    made: list[Template | None] = []
    for part in ("partition", "row"):
        try:
            text = getattr(declared, part)
            made.append(compile_template(text, kinds, subject=f"{name} {part}=", raw=isinstance(declared, Key)))
        except InvalidModel as error:
            optional = [f for f in fields if f not in kinds and any("{" + f in t for t in _texts(text))]
            hint = f" ({', '.join(optional)}: a key field may be neither optional nor nested)" if optional else ""
            faults += [f"{name} {part}=: {fault}{hint}" for fault in error.faults]
            made.append(None)
    return made[0], made[1]


def _texts(template: Any) -> tuple[str, ...]:
    return (template,) if isinstance(template, str) else tuple(t for t in template if isinstance(t, str))


def _compare_parameters(
    name: str, declared: Any, types: list[ValueType], arguments: tuple[str, ...], faults: list[str]
) -> None:
    parameters = get_args(getattr(declared, "__orig_class__", None))
    if not parameters:
        return
    shown = ", ".join(f"{argument}: {kind.name}" for argument, kind in zip(arguments, types, strict=True))
    if len(parameters) != len(types):
        faults.append(f"{name}: {len(parameters)} type parameters, but its templates have {len(types)} fields ({shown})")
        return
    for argument, parameter, kind in zip(arguments, parameters, types, strict=True):
        try:
            given, _ = value_type(parameter, argument)
        except (ValueError, NameError) as error:
            faults.append(f"{name}: type parameter of {argument}: {error}")
            continue
        if given.name != kind.name:
            faults.append(f"{name}: the type parameter of {argument} is {given.name}, but the field is {kind.name}")


def _index(
    cls: Any, name: str, index: Index[Any], table: str, fields: Mapping[str, FieldModel], faults: list[str]
) -> IndexModel | None:
    types = dict(_index_types(index, fields))
    lists = [f for f in types if fields[f.partition(".")[0]].type.element is not None and "." not in f]
    before = len(faults)
    partition, row = _templates(name, index, {f: t.key_kind for f, t in types.items()}, {}, faults)
    include: list[FieldModel] = []
    if index.include == "all":
        include = list(fields.values())
    elif isinstance(index.include, str):
        faults.append(f'{name}: include={index.include!r}: a tuple of field names, or "all"')
    else:
        for wanted in index.include:
            if wanted in fields:
                include.append(fields[wanted])
            else:
                faults.append(
                    f'{name}: no field "{wanted}" (fields: {", ".join(fields)}){did_you_mean(wanted, fields)}'
                )
    named = table + "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    named = index.table or named
    if (fault := check_table_name(named)) is not None:
        faults.append(f"{name}: its table {named!r}: {fault}; say table=…")
    where = _condition(cls, name, index.where, cls, faults)
    if partition is None or row is None:
        return None
    used = [f for f in dict.fromkeys((*partition.fields, *row.fields)) if f in lists]
    if len(used) > 1:
        faults.append(f"{name}: {' and '.join(used)} are lists; an index can fan out over one")
    arguments = tuple(dict.fromkeys((*partition.arguments, *row.arguments)))
    _compare_parameters(name, index, [types[f] for f in arguments], arguments, faults)
    if len(faults) > before:
        return None
    return IndexModel(name, named, partition, row, tuple(include), index.unique, where, used[0] if used else None)


def _index_types(index: Index[Any], fields: Mapping[str, FieldModel]) -> Iterator[tuple[str, ValueType]]:
    """Yield what an index can be made of: fields, the elements of lists, and the nested values that it names."""
    for model in fields.values():
        if model.type.keyable:
            yield model.name, model.type
        elif model.type.element is not None:
            yield model.name, model.type.element  # type: ignore[misc]
    for text in (*_texts(index.partition), *_texts(index.row)):
        for piece in text.split("{")[1:]:
            name = piece.split("}")[0].split(":")[0]
            head, _, path = name.partition(".")
            if path and head in fields:
                try:
                    nested = fields[head].type.nested(tuple(path.split(".")))
                except ValueError:
                    continue
                if nested.keyable:
                    yield name, nested


# ---------------------------------------------------------------------------------------------- generated functions


def _finish(cls: Any, raw: Any, own: Any, made: Declaration) -> None:
    """Add what is generated: attrs' methods, the constructor, ``__setattr__``, and the access to key and indexes."""
    attrs.define(
        cls,
        these={f.name: attrs.field(default=f.default, kw_only=f.kw_only, type=f.type.annotation) for f in made.fields},
        slots=False,
        init=False,
        order=False,
        on_setattr=attrs.setters.NO_OP,
    )
    names = Names(
        Raw=raw, Cls=cls, set_class=_set_class, MISSING=attrs.NOTHING, CHECKS={}, KEYS=made.key_fields, SLOTS={},
        KeyOf=KeyOf, new=tuple.__new__, check_key=check_key, unknown=_unknown, read_only=_read_only,
        normalise=_normaliser(made), normalise_key=_key_normaliser(made),
    )  # fmt: skip
    for f in made.fields:
        names["SLOTS"][f.name] = raw.__dict__[f.name].__set__
        names["CHECKS"][f.name] = _checker(made, f)
    functions = compile_functions(cls.__qualname__, "\n".join(_sources(made, names)), names)
    for name in ("__init__", "__setattr__"):
        function = functions[name]
        function.__qualname__ = f"{cls.__qualname__}.{name}"
        type.__setattr__(cls, name, function)
    functions["key"].__qualname__ = f"{cls.__qualname__}.key"
    setattr(own, "key", ClassAccess(functions["key"]))
    type.__setattr__(cls, "key", property(functions["key_of"], doc="The entity's key."))
    for index in made.indexes:
        arguments = tuple(dict.fromkeys((*index.partition.arguments, *index.row.arguments)))
        types = {name: _argument_type(made, name) for name in arguments}
        call = IndexCall(cls, index.name, tuple((name, types[name].check) for name in arguments))
        setattr(own, index.name, ClassAccess(call))


def _argument_type(made: Declaration, name: str) -> ValueType:
    head, _, path = name.partition(".")
    kind = made.field(head).type
    return kind.nested(tuple(path.split("."))) if path else kind.element or kind  # type: ignore[return-value]


def _sources(made: Declaration, names: Names) -> Iterator[str]:
    positional, by_name, prologue, tests, assign = [], [], [], [], []
    for f in made.fields:
        parameter = f.name
        if f.factory is not None:
            parameter += "=MISSING"
            prologue.append(f"    if {f.name} is MISSING: {f.name} = {names.name('factory', f.factory)}()")
        elif f.measure is not None:
            parameter += "=None"
        elif f.default is not attrs.NOTHING:
            parameter += f"={names.name('default', f.default)}"
        (by_name if f.kw_only else positional).append(parameter)
        test = f.type.fast_source(f.name, names)
        tests.append(f"({f.name} is None or {test})" if f.optional or f.measure is not None else test)
        assign.append(f"    self.{f.name} = {f.name}")
    values = ", ".join(f.name for f in made.fields)
    yield f"def __init__({', '.join(['self', *positional, *(['*', *by_name] if by_name else [])])}):"
    yield from prologue
    yield f"    if not ({' and '.join(tests) or 'True'}):"
    yield f"        ({values},) = normalise(({values},))"
    yield "    set_class(self, Raw)"
    yield from assign
    yield "    self._row = None"
    yield "    self.__class__ = Cls"
    yield "def __setattr__(self, name, value):"
    yield "    check = CHECKS.get(name)"
    yield "    if check is None: unknown(self, name)"
    yield "    if name in KEYS and self._row is not None: read_only(self, name)"
    yield "    SLOTS[name](self, check(value))"
    arguments = made.arguments
    fast = [made.field(name).type.fast_source(name, names) for name in arguments]
    plain = {name: name for name in arguments}
    yield f"def key({', '.join(arguments)}):"
    if arguments:
        yield f"    if not ({' and '.join(fast)}): ({', '.join(arguments)},) = normalise_key(({', '.join(arguments)},))"
    for variable, template in zip(("partition", "row"), made.templates, strict=True):
        yield f"    {variable} = {template.encode_source(plain, names)}"
        yield f"    if len({variable}) > 256: check_key({variable}, what={made.name + ' ' + variable + ' key'!r})"
    yield "    return new(KeyOf, (Cls, partition, row))"
    yield "def key_of(self):"
    yield "    row = self._row"
    yield "    if row is not None: return new(KeyOf, (Cls, row[0], row[1]))"
    yield f"    return key({', '.join(f'self.{name}' for name in arguments)})"


def check_value(f: FieldModel, value: Any) -> Any:
    """Return a field's value as it is kept; raise ValueError if it can not be."""
    if value is None:
        if f.optional or f.measure is not None:
            return None
        raise ValueError(f"None, but a value of type {f.type.name} is required (Field[… | None] would allow it)")
    return f.type.check(value)


def _normaliser(made: Declaration) -> Callable[[tuple[Any, ...]], list[Any]]:
    def normalise(values: tuple[Any, ...]) -> list[Any]:
        faults, checked = [], []
        for f, value in zip(made.fields, values, strict=True):
            try:
                checked.append(check_value(f, value))
            except ValueError as error:
                faults.append(f"{f.name}: {error}" if not str(error).startswith(".") else f"{f.name}{error}")
        if faults:
            raise InvalidEntity(made.name, faults)
        return checked

    return normalise


def _key_normaliser(made: Declaration) -> Callable[[tuple[Any, ...]], list[Any]]:
    def normalise(values: tuple[Any, ...]) -> list[Any]:
        faults, checked = [], []
        for name, value in zip(made.arguments, values, strict=True):
            try:
                checked.append(check_value(made.field(name), value))
            except ValueError as error:
                faults.append(f"{name}: {error}")
        if faults:
            raise InvalidEntity(f"{made.name}.key", faults)
        return checked

    return normalise


def _checker(made: Declaration, f: FieldModel) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        try:
            return check_value(f, value)
        except ValueError as error:
            raise InvalidEntity(f"{made.name}.{f.name}", [str(error)]) from None

    return check


def _unknown(entity: Record, name: str) -> None:
    fields = [f.name for f in declaration(type(entity)).fields]
    raise AttributeError(
        f'{type(entity).__name__} has no field "{name}" (fields: {", ".join(fields)}){did_you_mean(name, fields)}'
    )


def _read_only(entity: Record, name: str) -> None:
    raise InvalidEntity(
        f"{type(entity).__name__}.{name}",
        ["a key field is read-only once the entity is stored; store.move(entity, new_key) gives it another key"],
    )


def extra_field(made: Declaration) -> FieldModel | None:
    """Return the field that keeps undeclared properties, if there is one."""
    return next((f for f in made.fields if f.type.annotation is Extra), None)


