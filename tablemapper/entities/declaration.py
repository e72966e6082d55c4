"""A class body, compiled: fields, key templates and indexes as frozen data, with every fault of them found."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, get_args, get_origin, get_type_hints

import attrs

from ..errors import InvalidModel, InvalidQuery, did_you_mean, shown
from ..expressions.predicates import dump
from ..expressions.tree import Predicate, as_predicate
from ..keys.template import Slot, Template, compile_template
from ..limits import check_property_name, check_table_name
from ..values.nested import value_type
from ..values.scalars import ValueType
from .fields import FieldModel, FieldOptions, Measure
from .index import Index, Key

__all__ = ["Declaration", "IndexModel", "Options", "check_value", "declaration", "declare", "located", "read_fields"]

_METHODS = frozenset({"key", "mro", "replace", "self"})
_GENERATED = frozenset({"__init__", "__new__", "__setattr__", "__delattr__", "__getstate__", "__setstate__"})


class Options(NamedTuple):
    """The keywords of a class statement."""

    table: str | None
    type: str | None
    of: Any
    where: Callable[[Any], Predicate[Any]] | None


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

    @property
    def arguments(self) -> tuple[str, ...]:
        """The fields that it is called with, each once, in order of first appearance."""
        return tuple(dict.fromkeys((*self.partition.arguments, *self.row.arguments)))

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
    def lossy_slots(self) -> tuple[Slot, ...]:
        """The slots of the key that are all it says of their fields: values that differ can share a key."""
        slots = [slot for template in self.templates for slot in template.slots]
        lossless = {slot.field for slot in slots if slot.lossless}
        return tuple(slot for slot in slots if slot.field not in lossless)

    @property
    def key_only(self) -> frozenset[str]:
        """The fields that the key holds without loss, and that are not stored a second time."""
        if self.partition is None:
            return frozenset()
        lossless = frozenset[str]().union(*(t.lossless_fields for t in self.templates))
        return frozenset(f.name for f in self.fields if f.name in lossless and not f.stored and f.type.lossless_in_key)


def declaration(cls: type[Any]) -> Declaration:
    """Return the compiled declaration of a record class."""
    found = cls.__dict__.get("__declaration__")
    if not isinstance(found, Declaration):
        raise InvalidModel(repr(cls), ["an entity class with table= is needed: class Product(tm.Entity, table=…)"])
    return found


def check_value(f: FieldModel, value: Any) -> Any:
    """Return a field's value as it is kept; raise ValueError if it can not be."""
    if value is None:
        if f.optional or f.measure is not None:
            return None
        raise ValueError(f"None, but a value of type {f.type.name} is required (Field[… | None] would allow it)")
    return f.type.check(value)


def located(name: str, error: ValueError) -> str:
    """Return a fault with its path: ``tags[1]: …``, ``home.city: …``, ``price: …``."""
    text = str(error)
    if text[:1] == "[":
        return f"{name}{text}"
    path, found, _ = text.partition(": ")
    return f"{name}.{text}" if found and path.split("[")[0].replace(".", "").isidentifier() else f"{name}: {text}"


def read_fields(
    name: str, body: dict[str, Any], bases: tuple[Any, ...], options: Options, faults: list[str]
) -> tuple[dict[str, FieldModel], dict[str, Any]]:
    """Take the fields, and the keys and indexes as declared, out of a class body; faults are added to the list."""
    specifiers = {k: body.pop(k) for k, v in list(body.items()) if isinstance(v, FieldOptions | Measure)}
    declared = {k: body.pop(k) for k, v in list(body.items()) if isinstance(v, Key | Index)}
    faults += [f"{k} {fault}" for k, value in declared.items() for fault in _shape(value)]
    fields = dict(_inherited(bases))
    for field_name, annotation in _annotations(name, body, faults):
        option = specifiers.pop(field_name, None)
        if (model := _field(field_name, annotation, option, faults, aggregate=options.of is not None)) is not None:
            fields.pop(field_name, None)
            fields[field_name] = model
    for taken in sorted(fields.keys() & body.keys()):
        if taken in body.get("__annotations__", {}):
            faults.append(f"{taken}: a default is given by tm.field(default=…), not by = {shown(body.pop(taken))}")
        else:
            faults.append(f"{taken}: it is a field already; give what the class body calls so another name")
    for taken in sorted(fields.keys() & declared.keys()):
        faults.append(f"{taken}: it is a field already; give the index another name")
    for taken in sorted(_GENERATED & body.keys()):
        faults.append(f"{taken} is generated, with all checks; write a classmethod beside it instead")
    faults += [f'{k} = …: annotate it, as in "{k}: tm.Field[…] = …"' for k in specifiers]
    _check_fields(fields, faults)
    return fields, declared


def _shape(declared: Key[Any] | Index[Any]) -> Iterator[str]:
    """Yield what is no text, no tuple of texts or no tuple of names; it is left out of what is looked at further."""
    for part in ("partition", "row"):
        value = getattr(declared, part)
        if not (isinstance(value, str) or (isinstance(value, tuple) and all(isinstance(v, str) for v in value))):
            yield f'{part}=: text such as "{{name}}", or a tuple of texts, is needed, not {shown(value)}'
            setattr(declared, part, "")
    if isinstance(declared, Index) and not isinstance(declared.include, str | tuple | list):
        yield f'include=: a tuple of field names, or "all", is needed, not {shown(declared.include)}'
        declared.include = ()


def _inherited(bases: tuple[Any, ...]) -> Iterator[tuple[str, FieldModel]]:
    for base in reversed(bases):
        if isinstance(found := base.__dict__.get("__declaration__"), Declaration):
            for model in found.fields:
                yield model.name, model


def _annotations(name: str, body: dict[str, Any], faults: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the annotations of a class body, evaluated where the class is written."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(f"{__package__}."):
        frame = frame.f_back
    inner = {k: v for k, v in body.items() if isinstance(v, type)}
    for field_name, text in body.get("__annotations__", {}).items():
        probe = type(name, (), {"__annotations__": {field_name: text}, "__module__": body["__module__"]})
        try:
            hints = get_type_hints(probe, frame.f_globals, {**frame.f_locals, **inner}, include_extras=True)
        except Exception as error:  # evaluating a user's text may raise anything
            known = [*frame.f_locals, *frame.f_globals, *dir(builtins)]
            hint = did_you_mean(error.name, known) if isinstance(error, NameError) and error.name else ""
            faults.append(f"{field_name}: its annotation can not be read: {error}{hint}")
            continue
        found = hints[field_name]
        if found is not ClassVar and get_origin(found) is not ClassVar:
            yield field_name, found


def _field(
    name: str, annotation: Any, option: FieldOptions | Measure | None, faults: list[str], *, aggregate: bool
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
        kind, optional = value_type(annotation)
    except ValueError as error:
        faults.append(f"{name}: {error}")
        return None
    default, factory = settings.default, settings.factory
    if default is not attrs.NOTHING and factory is not None:
        faults.append(f"{name}: give a default or a factory, not both")
    if factory is not None and not callable(factory):
        faults.append(f"{name}: factory={shown(factory)} can not be called; give a function, as in factory=list")
    if not isinstance(settings.name, str | None):
        faults.append(f"{name}: name={shown(settings.name)}: the name of a property is text")
        settings = attrs.evolve(settings, name=None)
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
    if len(extras := [f.name for f in fields.values() if f.type.undeclared]) > 1:
        faults.append(f"{' and '.join(extras)}: one Extra field is enough")


def declare(
    cls: Any, options: Options, fields: dict[str, FieldModel], declared: dict[str, Any], faults: list[str]
) -> Declaration:
    models = tuple(fields.values())
    keys = {name: value for name, value in declared.items() if isinstance(value, Key)}
    indexes = {name: value for name, value in declared.items() if isinstance(value, Index)}
    where = _condition(cls, "where", options.where, options.of or cls, faults)
    if options.table is None:
        faults += [f"{name}: a class without table= has no key and no indexes" for name in declared]
        return Declaration(cls, None, None, models, None, None, (), options.of, where)
    if not isinstance(options.table, str):
        faults.append(f"table={shown(options.table)}: the name of a table is text")
        options = options._replace(table="Table")
    if (fault := check_table_name(options.table or "")) is not None:
        faults.append(f"table={shown(options.table)}: {fault}")
    if set(keys) != {"key"}:
        wrong = "".join(f", not {name}" for name in keys if name != "key")
        faults.append(f'exactly one key is needed, named "key"{wrong}: key = tm.Key(partition="{{…}}", row="{{…}}")')
    kinds = {m.name: m.type.key_kind for m in models if m.type.keyable and not m.optional}
    partition, row = _templates("key", keys["key"], kinds, fields, faults) if "key" in keys else (None, None)
    if partition is not None and row is not None:
        for name in dict.fromkeys((*partition.fields, *row.fields)):
            if name not in (*partition.arguments, *row.arguments):
                faults.append(
                    f"key: {name} stands in it under shard only, so all entities of a bucket would be one; "
                    f"add {{{name}}} to row"
                )
        arguments = tuple(dict.fromkeys((*partition.fields, *row.fields)))
        _compare_parameters("key", keys["key"], [fields[name].type for name in arguments], arguments, faults)
    compiled = [
        model
        for name, index in indexes.items()
        if (model := _index(cls, name, index, options.table or "", fields, faults)) is not None
    ]
    return Declaration(cls, options.table, options.type, models, partition, row, tuple(compiled), options.of, where)


def _condition(
    cls: Any, name: str, where: Callable[[Any], Predicate[Any]] | None, owner: Any, faults: list[str]
) -> Predicate[Any] | None:
    if where is None:
        return None
    try:
        predicate = as_predicate(where(owner))
        for attr in predicate.attributes():
            if not issubclass(owner, attr.owner):
                raise InvalidQuery(f"{shown(attr)} is not a field of {owner.__name__}")
    except (InvalidQuery, AttributeError, TypeError) as error:
        faults.append(f"{name}: where=: {error}")
        return None
    return predicate


def _templates(
    name: str,
    declared: Key[Any] | Index[Any],
    kinds: Mapping[str, Any],
    fields: Mapping[str, FieldModel],
    faults: list[str],
) -> tuple[Template | None, Template | None]:
    made: list[Template | None] = []
    for part in ("partition", "row"):
        text = getattr(declared, part)
        try:
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
        faults.append(
            f"{name}: {len(parameters)} type parameters, but its templates have {len(types)} fields ({shown})"
        )
        return
    for argument, parameter, kind in zip(arguments, parameters, types, strict=True):
        try:
            given, _ = value_type(parameter)
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
        faults.append(f'{name}: include={shown(index.include)}: a tuple of field names, or "all"')
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
        faults.append(f"{name}: its table {shown(named)}: {fault}; say table=…")
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
            yield model.name, model.type.element
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
