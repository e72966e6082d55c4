"""The rules for changes: each difference between a class and its form in the catalogue, with the rule that it is of.

``open``: the stored rows stay readable, so the store takes the change over when it is opened.
``build``: an index or an aggregate is built, beside the one that the file maintains if it has one of that name.
``migration``: a migration must change the stored rows first.
``refused``: the change is never possible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
from msgspec import UNSET
from msgspec.structs import replace

from ..entities.aggregates import kept_field
from ..errors import CorruptStore, InvalidModel
from ..keys.overlap import disjoint
from ..keys.template import Template
from ..schema.labels import is_former, plain_name
from ..schema.model import Model, Schema
from ..schema.rows import DAMAGE
from ..schema.specs import FieldSpec, Forms, IndexSpec, ModelSpec, TemplateSpec, stored_default
from .changes import ChangeStep, NamedPart, SchemaChange, StoredContents
from .definitions import indexes_in
from .literals import attribute_name, default_source
from .nested_types import MemberComparison, follow
from .renames import with_properties


def _old(name: str, property: str = "") -> NamedPart:
    return NamedPart("old", name, property and attribute_name(property))


def _new(name: str, property: str = "") -> NamedPart:
    return NamedPart("new", name, property and attribute_name(property))


# ---------------------------------------------------------------------------------------------- a class that is new


def key_templates(form: ModelSpec) -> tuple[Template, Template]:
    """Return the templates of a class's keys."""
    return _template(form.partition), _template(form.row)


def _template(form: TemplateSpec) -> Template:
    try:
        return form.compiled("catalogue")
    except (KeyError, InvalidModel) as error:
        raise CorruptStore(f"the catalogue cannot be read: the template {form}: {error}; restore a backup") from error


def new_class_changes(
    model: Model, catalogue: Forms, schema: Schema, contents: StoredContents
) -> Iterator[SchemaChange]:
    """Yield the changes for a class that the catalogue lacks: conflicts with other classes, and likely renames."""
    name, form = model.name, model.form
    if form.source in catalogue:
        maintained = kept_field(name)
        subject = "the aggregate" if maintained is None else "the maintained field"
        yield SchemaChange(name if maintained is None else ".".join(maintained), "build", f"{subject} is new")
    tables = {model.table.lower(), *(index.table.lower() for index in model.indexes)}
    for old_name, old in catalogue.items():
        rename = ChangeStep("rename_class", (_old(old_name), _new(name)))
        is_opened = old_name in schema.by_name
        if not is_opened and _is_renamed(old, form) and contents.count(old_name):
            yield SchemaChange(name, "migration", f"its entities are in the store as those of {old_name}", rename)
            continue
        if old.table.lower() == model.table.lower():
            yield from _table_conflicts(model, old_name, old, contents)
        if is_opened or is_former(old_name):  # (the tables of a former definition have names of their own)
            continue
        for index_name, index in old.indexes.items():
            if index.table.lower() in tables:
                message = f'the table "{index.table}" is that of the index {old_name}.{index_name}; write table=…'
                yield SchemaChange(name, "refused", message)
        if old.source is None and _same_fields(old, form) and (rows := contents.count(old_name)):
            number = f" ({rows:,} {'entity' if rows == 1 else 'entities'})" if rows > 0 else ""
            same_key = (old.partition, old.row) == (form.partition, form.row)
            steps = str(rename) if same_key else f"{rename} and {attrs.evolve(rename, kind='rekey')}"
            yield SchemaChange(
                name, "open", f"{old_name}{number} has the same fields and is not among the models; if {name} is its new name: {steps}",
                rename if same_key else None, warning=True,
            )  # fmt: skip


def _with_types(template: TemplateSpec) -> str:
    """Return a template with the types of its fields, to show two that differ in these only."""
    return f"{template} ({', '.join(f'{field}: {kind}' for field, _, kind in template.slots)})"


def _is_renamed(old: ModelSpec, new: ModelSpec) -> bool:
    """Return whether a class is another one under a new name: the table, the keys and the fields are the same."""
    return (
        (old.table, old.partition, old.row) == (new.table, new.partition, new.row)
        and bool(old.aggregate) is bool(new.aggregate)
        and _same_fields(old, new)
    )


def _same_fields(old: ModelSpec, new: ModelSpec) -> bool:
    return {n: (f.type, f.optional) for n, f in old.fields.items()} == {
        n: (f.type, f.optional) for n, f in new.fields.items()
    }


def _table_conflicts(model: Model, other: str, old: ModelSpec, contents: StoredContents) -> Iterator[SchemaChange]:
    """Yield the reasons why a new class cannot share its table with another class of the catalogue."""
    name = model.name
    if old.table != model.table:
        yield SchemaChange(
            name, "refused", f'the tables "{model.table}" and "{old.table}" of {other} differ only in case'
        )
        return
    verdict = disjoint(model.declaration.templates, key_templates(old))
    if verdict == "overlap":
        yield SchemaChange(
            name, "refused",
            f'it shares the table "{model.table}" with {other}, but their keys can be equal: {model.form.partition} / '
            f"{model.form.row} and {old.partition} / {old.row}; give one a literal of its own, or if {name} is the new name of "
            f"{other}, make its other changes in a script after that one",
        )  # fmt: skip
    elif verdict == "carve a" and (keys := contents.within(other, *model.declaration.templates)):
        rows = f"{len(keys)} rows of {other} have keys" if len(keys) > 1 else f"a row of {other} has a key"
        step = ChangeStep("rewrite", (_old(other),), ("...",), (_new(other), _new(name)))
        yield SchemaChange(name, "migration", f"{rows} of {name}, as {keys[0]}", step)


# ---------------------------------------------------------------------------------------------- a class that is known


def class_changes(
    model: Model, old: ModelSpec, contents: StoredContents, new_classes: Sequence[Model]
) -> Iterator[SchemaChange]:
    """Yield the changes between a class and its form in the catalogue, which lacks the new classes."""
    name, new = model.name, model.form
    pair = (_old(name), _new(name))
    renamed = _likely_renames(old, new) if old.source is None else {}
    for old_property, new_property in renamed.items():
        old_part, new_part = _old(name, old_property), _new(name, new_property)
        yield SchemaChange(
            f"{name}.{old_property}", "migration",
            f'the property "{old_property}" ({old.fields[old_property]}) is in the store, but not in the class, and "{new_property}" is new',
            ChangeStep("rename", (old_part, new_part), hint="if they are two things", instead=ChangeStep("drop", (old_part,))),
        )  # fmt: skip
    old = with_properties(old, renamed)
    keeps_fields = old.key_fields <= new.fields.keys() and new.key_fields <= old.fields.keys()
    rekey = ChangeStep("rekey", pair) if keeps_fields else ChangeStep("rewrite", pair[:1], ("...",), pair[1:])
    if old.table != new.table:
        message = f'its table was "{old.table}" and is "{new.table}"'
        yield SchemaChange(name, "migration", message, ChangeStep("rename_class", pair))
    for part, meaning in (("partition", "partition key"), ("row", "row key")):
        if (old_value := getattr(old, part)) != (new_value := getattr(new, part)):
            texts = map(str if str(old_value) != str(new_value) else _with_types, (old_value, new_value))
            yield SchemaChange(name, "migration", f"its {meaning} was {' and is '.join(texts)}", rekey)
    if old.type is None and new.type is not None:
        yield SchemaChange(name, "open", f'type="{new.type}" is new')
    elif old.type != new.type:
        new_value = "none" if new.type is None else f'"{new.type}"'
        yield SchemaChange(
            name, "migration", f'its type= was "{old.type}" and is {new_value}', ChangeStep("rekey", pair)
        )
    if bool(old.aggregate) is not bool(new.aggregate):
        yield SchemaChange(
            name, "refused", "one of an entity and an aggregate cannot become the other; choose another name"
        )
    if old.source is None:
        yield from _removed_fields(name, old, new, contents, new_classes)
        yield from _added_fields(model, old, new, contents)
    for property, old_value in old.fields.items():
        if (new_value := new.fields.get(property)) is not None:
            yield from _field_changes(name, property, old_value, new_value, contents)
    yield from _index_changes(name, old, new)


def redefinition(model: Model, old: ModelSpec, schema: Schema, catalogue: Forms) -> SchemaChange:
    """Return the change of an aggregate whose measures, groups, key or condition differ from those in the catalogue."""
    if (maintained := kept_field(model.name)) is not None:
        owner, property = maintained
        rekeyed = (old.partition, old.row) != (model.form.partition, model.form.row)
        readers = [name for name, index in catalogue[owner].indexes.items() if reads(index, property)]
        if readers and not rekeyed:  # (a change of the class says that its key is another one)
            return SchemaChange(
                model.name, "refused",
                f"what it maintains there differs from that in the store, which the index {owner}.{readers[0]} is over; "
                "declare another field, and another index over it",
            )  # fmt: skip
    sharing = [name for name, form in catalogue.items() if name != model.name and form.table == old.table]
    sharing += [sibling.name for sibling in schema.models if sibling is not model and sibling.table == model.table]
    if sharing:
        return SchemaChange(
            model.name, "refused",
            f"its measures, groups, key or condition differ from those in the store, and it shares its table with {sharing[0]}; "
            f"declare another aggregate, with a table of its own, or write a script with m.drop(old.{model.name})",
        )  # fmt: skip
    return SchemaChange(
        model.name, "build",
        "its measures, groups, key or condition differ from those in the store, which keeps them for programs that declare them "
        "so; it is built beside them",
    )  # fmt: skip


def _likely_renames(old: ModelSpec, new: ModelSpec) -> dict[str, str]:
    """Return removed properties, each with the added one of its type, if one of that type was removed and one added.

    What the rows hold does not matter: an older version may write the removed property at any time, and the newer one
    would not read it.
    """
    removed_properties: dict[str, list[str]] = {}
    for property, field in old.fields.items():
        if property not in new.fields:
            removed_properties.setdefault(repr(_kind(field)), []).append(property)
    return {
        properties[0]: candidates[0]
        for properties in removed_properties.values()
        if len(properties) == len(candidates := _added_alike(properties[0], old, new)) == 1
    }


def _added_alike(property: str, old: ModelSpec, new: ModelSpec) -> list[str]:
    """Return the new properties that have the type of a removed one."""
    kind = _kind(old.fields[property])
    return [name for name, field in new.fields.items() if name not in old.fields and _kind(field) == kind]


def _kind(field: FieldSpec) -> tuple[Any, ...]:
    return field.type, field.optional, field.members, field.json


def _holds_nothing(name: str, property: str, form: FieldSpec, contents: StoredContents) -> bool:
    # (A required property holds something in every row; where there is none, the next one would lack it.)
    return form.may_lack and not form.in_key and not contents.holds_other(name, property, stored_default(form))


def _removed_fields(
    name: str, old: ModelSpec, new: ModelSpec, contents: StoredContents, new_classes: Sequence[Model]
) -> Iterator[SchemaChange]:
    for property, form in old.fields.items():
        if property in new.fields:
            continue
        where, drop = f"{name}.{property}", ChangeStep("drop", (_old(name, property),))
        heir = next(
            (
                candidate.name
                for candidate in new_classes
                if _has(candidate.form, property, form) and candidate.aggregate is None
            ),
            None,
        )
        if heir is not None:
            split = ChangeStep("rewrite", (_old(name),), ("...",), (_new(name), _new(heir)))
            drop = attrs.evolve(drop, hint=f"if {name} is split", instead=split)
        if alike := _added_alike(property, old, new):
            rename = ChangeStep("rename", (_old(name, property), _new(name, alike[0])))
            drop = attrs.evolve(drop, hint="if they are one thing", instead=rename)
        elif _holds_nothing(name, property, form, contents):
            yield SchemaChange(where, "open", f'the property "{property}" holds nothing, and stays in the store', drop)
            continue
        message = f'the property "{property}" ({form}) is in the store, but not in the class'
        yield SchemaChange(where, "migration", message + "".join(f', and "{new}" is new' for new in alike[:1]), drop)


def _has(form: ModelSpec, property: str, field: FieldSpec) -> bool:
    return property in form.fields and form.fields[property].type == field.type


def _added_fields(model: Model, old: ModelSpec, new: ModelSpec, contents: StoredContents) -> Iterator[SchemaChange]:
    name = model.name
    extra = next((property for property, form in old.fields.items() if form.type == "extra"), None)
    for property, form in new.fields.items():
        if property in old.fields:
            continue
        where, field = f"{name}.{property}", (_new(name, property),)
        if extra is not None and (key := contents.undeclared(name, extra, property)) is not None:
            function = _fill_function(form)
            if function == "...":  # each entity that has none is a fault of the run
                function = f'lambda e: e.{attribute_name(extra)}["{property}"]'
            yield SchemaChange(
                where, "migration",
                f'the property "{property}" is new, but {key} has one among its undeclared ones',
                ChangeStep("fill", field, (function,), hint="what those get that have none"),
            )  # fmt: skip
        elif form.may_lack or form.in_key:
            yield SchemaChange(where, "open", f'the property "{property}" is new')
        else:
            yield SchemaChange(
                where, "migration",
                f'the property "{property}" is new, and existing rows have no value for it (a factory is not called for '
                "them); make it optional, give it a default, or fill it",
                ChangeStep("fill", field, ("...",), hint="a function of the entity"),
            )  # fmt: skip


# ---------------------------------------------------------------------------------------------- fields

_LOSSLESS = {
    ("int", "float"): ("float", ""), ("int", "Decimal"): ("Decimal", ""), ("int", "str"): ("str", "int"),
    ("float", "str"): ("str", "float"), ("Decimal", "str"): ("str", "Decimal"), ("str", "Decimal"): ("Decimal", "str"),
    ("str", "UUID"): ("UUID", "str"), ("UUID", "str"): ("str", "UUID"),
    ("date", "datetime"): ("lambda x: dt.datetime(x.year, x.month, x.day, tzinfo=dt.UTC)", ""),
}  # fmt: skip
"""The function from values of one type to those of another, and the function back, where neither loses anything."""


def _field_changes(
    name: str, property: str, old: FieldSpec, new: FieldSpec, contents: StoredContents
) -> Iterator[SchemaChange]:
    where, pair = f"{name}.{property}", (_old(name, property), _new(name, property))
    label = f'the property "{property}"'
    if old.in_key != new.in_key:
        storage = "is not stored beside the key any more" if new.in_key else "is now stored beside the key, too"
        yield SchemaChange(
            where, "migration", f"{label} {storage} (stored=)", ChangeStep("rekey", (_old(name), _new(name)))
        )
    step, message = None, f"{label} was {old} and is {new}"
    convert = ChangeStep("convert", pair, ("...",), hint="a function of the old value")
    if not takes(new, old) and not takes(old, new):
        functions = _conversion(old, new)
        step = attrs.evolve(convert, functions=functions, hint="") if functions else convert
    elif not takes(new, old):
        lost_values = [value for value in _values(old) if value not in _values(new)]
        if not lost_values:
            step = convert
        elif contents.holds_one_of(name, property, lost_values):
            message = f"{label} holds {', '.join(map(repr, lost_values))} in the store, which it cannot any more"
            becomes = ", ".join([f"{value!r}: …" for value in lost_values])
            step = attrs.evolve(convert, hint=f"what becomes of these: {{{becomes}}}, or a function")
    elif widens(replace(old, optional=True), replace(new, optional=True)):
        yield SchemaChange(where, "open", message)
    if old.json is not UNSET and new.json is not UNSET and (faults := nested_members(old, new).faults):
        step, message = convert, f"{label}: {'; '.join(faults)}"
    if old.optional and not new.optional and step is None:
        hint = "a function of the entity" if new.default is None else ""
        step = ChangeStep("fill", pair[1:], (_fill_function(new),), hint=hint)
    elif new.optional and not old.optional:
        yield SchemaChange(where, "open", f"{label} may be None")
    if step is not None:
        yield SchemaChange(where, "migration", message, step)


def _fill_function(form: FieldSpec) -> str:
    """Return the function that fills a field with what a row without it reads as; ``...`` if it is required."""
    value = "None" if form.optional else None if form.default is None else default_source(form)
    return "..." if value is None else f"lambda e: {value}"


def _conversion(old: FieldSpec, new: FieldSpec) -> tuple[str, ...]:
    """Return the function of ``m.convert``, and the one back; nothing if only a person can write them."""
    function, reverse = _LOSSLESS.get((old.type, new.type), ("", ""))
    # (What becomes of a few members is for a mapping to say; mypy does not infer the type of a function of an optional Literal.)
    asks = new.members is not UNSET or (old.optional and old.members is not UNSET and new.type != "str")
    if not function or asks or (old.optional and not new.optional):
        return ()
    return (function, f"back={reverse}") if reverse and old.members is UNSET else (function,)


def nested_members(old: FieldSpec, new: FieldSpec) -> MemberComparison:
    """Return the differences of the nested types of two fields.

    Raises:
        CorruptStore: the schema in the catalogue cannot be read.
    """
    assert old.json is not UNSET
    assert new.json is not UNSET
    try:
        return follow(old.json, new.json)
    except DAMAGE as error:
        raise CorruptStore(
            f"the catalogue cannot be read: the members of a nested type: {error!r}; restore a backup"
        ) from error


def _values(form: FieldSpec) -> Iterable[Any]:
    return () if form.members is UNSET else form.members


def takes(new: FieldSpec, old: FieldSpec) -> bool:
    """Return whether each value of one field is a value of another, None aside."""
    if old.json is not UNSET and new.json is not UNSET:
        return True  # (`nested_members` compares these)
    if new.type != old.type and (old.type, new.type) not in (("int32", "int"), ("list[int32]", "list[int]")):
        return False
    return new.members is UNSET or (old.members is not UNSET and set(old.members) <= set(new.members))


def widens(old: FieldSpec, new: FieldSpec) -> bool:
    """Return whether a field can hold values now that a program with its old form cannot read."""
    if new.optional and not old.optional:
        return True
    if old.json is not UNSET and new.json is not UNSET:
        return nested_members(old, new).widens
    return not takes(old, new)


# ---------------------------------------------------------------------------------------------- indexes


def reads(index: IndexSpec, property: str) -> bool:
    """Return whether the rows of an index depend on a property."""
    return property in index.fields or property in words(index.where)


def words(form: Any) -> Iterator[str]:
    """Yield the texts in the form of a condition; the properties that it reads are among them, without their parts."""
    if isinstance(form, str):
        yield re.split(r"[.\[]", form, maxsplit=1)[0]
    elif isinstance(form, list | tuple):
        for part in form:
            yield from words(part)
    elif isinstance(form, dict):
        yield from words(list(form.values()))


def _index_changes(name: str, old: ModelSpec, new: ModelSpec) -> Iterator[SchemaChange]:
    stored_names = indexes_in(old.indexes, new.indexes)
    for index in old.indexes:
        if index not in stored_names.values() and index not in new.indexes:
            yield SchemaChange(
                f"{name}.{index}", "open", f"the index {index} is not declared, and the store goes on to maintain it",
                ChangeStep("drop", (NamedPart("old", name, index),)),
            )  # fmt: skip
    for index, form in new.indexes.items():
        where, stored_name = f"{name}.{index}", stored_names.get(index)
        if stored_name is None and index not in old.indexes:
            yield SchemaChange(where, "build", f"the index {index} is new")
        elif stored_name is None:
            was = old.indexes[index]
            parts = [part for part in was.__struct_fields__ if getattr(was, part) != getattr(form, part)]
            yield SchemaChange(
                where, "build",
                f"the index {index}: {', '.join(_difference(part, was, form) for part in parts if part != 'include_all')}; the "
                "file keeps it as it was for programs that declare it so, and builds the new one beside it",
            )  # fmt: skip
        elif plain_name(stored_name) != index:
            yield SchemaChange(where, "open", f"the index {index} is another name of {stored_name}")


def _difference(part: str, old: IndexSpec, new: IndexSpec) -> str:
    """Return the difference of two indexes in one part of their forms, as text."""
    old_value, new_value = getattr(old, part), getattr(new, part)
    if part == "where":
        return "its condition (where=) differs"
    if part == "unique":
        return "it was unique and is not" if old_value else "it was not unique and is"
    if part == "include":
        old_value, new_value = (", ".join(names) or "nothing" for names in (old_value, new_value))
    return f"its {part} was {old_value} and is {new_value}"
