"""The key and the indexes of a class, compiled against its fields, with every fault of them found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args, overload

import attrs

from ..accept import accept_faults, accepted
from ..errors import InvalidModel, InvalidQuery, did_you_mean, safe_repr
from ..expressions.predicates import dump
from ..expressions.tree import TIMESTAMP_NAME, Attr, ElementAttr, Predicate, as_predicate
from ..keys.composite_times import composed, composed_fields
from ..keys.template import Template
from ..keys.template_parser import compile_template
from ..limits import MAX_INDEX_ROW_UNITS, MAX_KEY_UNITS, check_table_name, is_name
from ..values.extra import indexed_as
from ..values.nested import value_type
from ..values.scalars import ValueType
from .fields import FieldModel
from .index import Index
from .key import Key


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
    """The list field that has a row for each element."""
    include_all: bool = False
    """Whether it was declared to hold all fields."""
    accept: Mapping[str, str] = attrs.field(factory=dict)
    """The advice about it that is not wanted, by code, with the reasons; no part of the schema."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that its templates read, dotted where nested."""
        return tuple(dict.fromkeys((*self.partition.fields, *self.row.fields)))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The fields that it is called with, each once, in order of first appearance."""
        return tuple(dict.fromkeys((*self.partition.arguments, *self.row.arguments)))

    def to_json(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return what the catalogue keeps, ``names`` being the properties of the fields."""
        form = {
            "table": self.table,
            "partition": self.partition.to_json(names),
            "row": self.row.to_json(names),
            "include": [field.property for field in self.include],
            "unique": self.unique,
            "where": dump_by_property(self.where),
        }
        return form | {"include_all": True} if self.include_all else form


@overload
def by_property(attr: Attr[Any, Any]) -> Attr[Any, Any]: ...
@overload
def by_property(attr: ElementAttr[Any, Any]) -> ElementAttr[Any, Any]: ...
def by_property(attr: Attr[Any, Any] | ElementAttr[Any, Any]) -> Attr[Any, Any] | ElementAttr[Any, Any]:
    """Return an attribute with the name of its property, which stays when the attribute is renamed."""
    if isinstance(attr, ElementAttr):
        return ElementAttr(by_property(attr.list))
    owner: Any = attr.owner
    return attrs.evolve(attr, name=owner.__declaration__.properties[attr.name])


def dump_by_property(where: Predicate[Any] | None) -> Any:
    """Return the form of a condition for the catalogue."""
    return None if where is None else dump(where, lambda attr: by_property(attr).label)


def key_templates(
    key: Key[Any], fields: Mapping[str, FieldModel], faults: list[str]
) -> tuple[Template, Template] | tuple[None, None]:
    """Return the templates of a key, and judge them; None for both if they cannot be compiled."""
    kinds = {
        m.name: m.type.key_kind
        for m in fields.values()
        if m.type.keyable and not (m.optional or m.maintained or m.on_write is not None)
    }
    partition, row = _templates("key", key, kinds, fields, faults)
    if partition is None or row is None:
        return None, None
    arguments = dict.fromkeys((*partition.fields, *row.fields))
    faults += [
        f"key: {name} is in it under shard only, so all entities of a bucket would have the same key; "
        f"add {{{name}}} to row"
        for name in arguments
        if name not in (*partition.arguments, *row.arguments)
    ]
    faults += _too_fine(fields, partition, row)
    _compare_parameters("key", key, {name: fields[name].type for name in arguments}, fields, faults)
    return partition, row


def _too_fine(fields: Mapping[str, FieldModel], partition: Template, row: Template) -> Iterator[str]:
    """Yield the times that are kept finer than a key holds them, so that two of them could share it."""
    lossless = composed_fields((partition, row)) | partition.lossless_fields | row.lossless_fields
    cut = {slot.field: f"{slot}" for template in (partition, row) for slot in template.slots if slot.text.codes}
    for name, slot in cut.items():
        if (precision := fields[name].type.precision) and name not in lossless:
            yield (
                f'{name}: precision="{precision}" is finer than what the key holds of it ({slot}); add the parts that '
                "are missing, or leave the precision out"
            )


def compile_condition(
    subject: str, where: Callable[[Any], Predicate[Any]] | None, owner: Any, faults: list[str]
) -> Predicate[Any] | None:
    if where is None:
        return None
    if not callable(where):
        faults.append(
            f"{subject}{safe_repr(where)}: expected a function, as in where=lambda {owner.__name__[0].lower()}: …"
        )
        return None
    try:
        predicate = as_predicate(where(owner))
        for attr in predicate.attributes():
            if not issubclass(owner, attr.owner):
                raise InvalidQuery(f"{safe_repr(attr)} is not a field of {owner.__name__}")
            if attr.name == TIMESTAMP_NAME:
                raise InvalidQuery(f"{attr!r} changes with each write; nothing can be maintained by it")
    except (InvalidQuery, AttributeError, TypeError) as error:
        faults.append(f"{subject}: {error}")
        return None
    return predicate


def _templates(
    name: str,
    key_or_index: Key[Any] | Index[Any],
    kinds: Mapping[str, Any],
    fields: Mapping[str, FieldModel],
    faults: list[str],
) -> tuple[Template | None, Template | None]:
    templates: list[Template | None] = []
    is_key = isinstance(key_or_index, Key)
    for part in ("partition", "row"):
        text = getattr(key_or_index, part)
        if is_key and part == "row":
            levels = {name: tuple for name, field in fields.items() if field.type.hierarchy and not field.optional}
            kinds = {**kinds, **levels}
        problems = list(_unusable(text, kinds, fields, is_key=is_key))
        try:
            template = None if problems else compile_template(text, kinds, subject=f"{name} {part}=", raw=is_key)
            templates.append(template)
            most = MAX_KEY_UNITS if is_key or part == "partition" else MAX_INDEX_ROW_UNITS
            if template is not None and template.least_units > most:
                problems.append(f"every text of it has {template.least_units} characters or more, the most is {most}")
        except InvalidModel as error:
            problems += error.faults
            templates.append(None)
        faults += [f"{name} {part}=: {fault}" for fault in problems]
    partition, row = templates
    if partition is None or row is None:
        return partition, row
    return composed(partition, row, lambda name: fields[name].type.precision if name in fields else "")


def _unusable(
    template: Any, kinds: Mapping[str, Any], fields: Mapping[str, FieldModel], *, is_key: bool
) -> Iterator[str]:
    """Yield why a key, or an index, cannot be made of the fields that a template names."""
    for slot in _slots(template):
        head, _, path = slot.partition(".")
        if slot in kinds or head not in fields:
            continue
        kind = fields[head].type
        if path and is_key:
            yield f"{{{slot}}} is nested, and a key is made of fields; an index can be made of it"
        elif kind.hierarchy and is_key and not fields[head].optional:
            yield f"{{{slot}}} is {kind.name}, which only the row of a key can end in: add it to row, as the last"
        elif fields[head].optional and (kind.keyable or (kind.hierarchy and is_key)):
            yield (
                f"{{{slot}}} is optional, and an entity without a value could have no key; make it "
                f"tm.Field[{kind.name}], or declare an index, which leaves such entities out"
            )
        elif fields[head].maintained:
            yield f"{{{slot}}} is maintained by the store, and a key stays as it is; an index can be made of it"
        elif is_key and fields[head].on_write is not None:
            yield f"{{{slot}}} is set at each write, and a key stays as it is; an index can be made of it"
        else:
            try:
                kind = kind.nested(tuple(path.split("."))) if path else kind
                yield f"{{{slot}}} is {kind.name}, and cannot be part of a key"
            except ValueError as error:
                yield f"{{{slot}}}: {error}"


def _texts(template: Any) -> tuple[str, ...]:
    return (template,) if isinstance(template, str) else tuple(t for t in template if isinstance(t, str))


def large_faults(name: str, key_or_index: Key[Any] | Index[Any], fields: Mapping[str, FieldModel]) -> Iterator[str]:
    """Yield the fields with large values that a key or an index of a class body would hold.

    An index that only another version declares may hold them: there they are not large.
    """
    names, remedy = dict.fromkeys(field_names(key_or_index)), ""
    if isinstance(key_or_index, Index) and key_or_index.include == "all":
        names = dict.fromkeys(fields)
        remedy = f"; name the fields that it includes: include=({', '.join([repr(n) for n in names if not fields[n].large])},)"
    for field_name in names:
        if field_name in fields and fields[field_name].large:
            yield f"{field_name} is large, and cannot be in {name}{remedy}"


def _slots(template: Any) -> list[str]:
    """Return what a template names in braces."""
    pieces = [piece for text in _texts(template) for piece in text.split("{")[1:]]
    return list(dict.fromkeys(piece.split("}")[0].split(":")[0] for piece in pieces))


def field_names(key_or_index: Key[Any] | Index[Any]) -> Iterator[str]:
    """Yield the fields that a key or an index names."""
    for slot in (*_slots(key_or_index.partition), *_slots(key_or_index.row)):
        yield slot.partition(".")[0]
    if isinstance(key_or_index, Index) and not isinstance(key_or_index.include, str):
        yield from key_or_index.include


def _compare_parameters(
    name: str, key_or_index: Any, types: Mapping[str, ValueType], fields: Mapping[str, FieldModel], faults: list[str]
) -> None:
    """Compare the type parameters of a key or an index with the fields that it is made of."""
    literals = (*_texts(key_or_index.partition), *_texts(key_or_index.row))
    hint = next((f'; did you mean "{{{text}}}"?' for text in literals if text in fields), "")
    parameters = get_args(getattr(key_or_index, "__orig_class__", None))
    if hint and not types:
        faults.append(f"{name}: its templates contain no field in braces{hint}")
        return
    if not parameters:
        return
    if len(parameters) != len(types):
        safe_repr = ", ".join(f"{argument}: {kind.name}" for argument, kind in types.items())
        faults.append(
            f"{name}: {len(parameters)} type parameters, but its templates have {len(types)} fields ({safe_repr}){hint}"
        )
        return
    for (argument, kind), parameter in zip(types.items(), parameters, strict=True):
        try:
            parameter_type, _ = value_type(parameter)
        except (ValueError, NameError) as error:
            faults.append(f"{name}: type parameter of {argument}: {error}")
            continue
        if parameter_type.name != kind.plain.name:
            faults.append(
                f"{name}: the type parameter of {argument} is {parameter_type.name}, but the field is {kind.plain.name}"
            )


def index_table(table: str, name: str) -> str:
    """Return the name of an index's table: that of its entities, and the index's own."""
    return table + "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def compile_index(
    cls: Any, name: str, index: Index[Any], table: str | None, fields: Mapping[str, FieldModel], faults: list[str]
) -> IndexModel | None:
    """Return an index of a class; None if it has a fault. One without a table, which is lent, is judged but for its condition."""
    types = dict(_index_types(index, fields))
    lists = [f for f in types if fields[f.partition(".")[0]].type.element is not None and "." not in f]
    fault_count = len(faults)
    partition, row = _templates(name, index, {f: t.key_kind for f, t in types.items()}, fields, faults)
    include: list[FieldModel] = []
    if index.include == "all":
        include = list(fields.values())
    elif isinstance(index.include, str):
        faults.append(f'{name}: include={safe_repr(index.include)}: a tuple of field names, or "all"')
    else:
        for included_name in index.include:
            if included_name in fields:
                include.append(fields[included_name])
            else:
                faults.append(
                    f'{name}: no field "{included_name}" (fields: {", ".join(fields)}){did_you_mean(included_name, fields)}'
                )
    if not is_name(name.partition("#")[0]):  # (a former definition has a number)
        faults.append(f"{name}: this is no name of an attribute in Python; choose another for the index")
    faults += [f"{name}: {fault}" for fault in accept_faults(index.accept, index=True)]
    target = index_table(table or "Table", name) if index.table is None else index.table
    if table is not None and (fault := check_table_name(target)) is not None:
        faults.append(f"{name}: its table {safe_repr(target)}: {fault}; write table=…")
    where = None if table is None else compile_condition(f"{name}: where=", index.where, cls, faults)
    if partition is None or row is None:
        return None
    list_fields = [f for f in dict.fromkeys((*partition.fields, *row.fields)) if f in lists]
    if len(list_fields) > 1:
        faults.append(f"{name}: {' and '.join(list_fields)} are lists; an index can fan out over one")
    arguments = dict.fromkeys((*partition.arguments, *row.arguments))
    _compare_parameters(name, index, {f: types[f] for f in arguments}, fields, faults)
    if len(faults) > fault_count:
        return None
    fan_out, everything = list_fields[0] if list_fields else None, index.include == "all"
    return IndexModel(
        name, target, partition, row, tuple(include), index.unique, where, fan_out, everything, accepted(index.accept)
    )


def _index_types(index: Index[Any], fields: Mapping[str, FieldModel]) -> Iterator[tuple[str, ValueType]]:
    """Yield what an index can be made of: fields, the elements of lists, and the nested values that it names."""
    for model in fields.values():
        if model.type.keyable:
            yield model.name, model.type
        elif model.type.element is not None:
            yield model.name, model.type.element
    for name in (*_slots(index.partition), *_slots(index.row)):
        head, _, path = name.partition(".")
        if path and head in fields:
            try:
                nested = indexed_as(fields[head].type.nested(tuple(path.split("."))))
            except ValueError:
                continue
            if nested.keyable:
                yield name, nested
