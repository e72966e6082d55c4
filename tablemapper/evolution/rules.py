"""What may follow what: a catalogue's classes against those that a store is opened with.

Each change is of one rule. ``open``: what is stored stays readable, so the change is taken over as the store is opened.
``build``: something new is to be built beside what the file maintains. ``migration``: what is stored has to be changed
first. ``refused``: never. A class that holds no entities may change at will, and a form that was opened before is always
opened again, unless it was retired. Nothing here touches a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs
from msgspec import UNSET
from msgspec.structs import replace

from ..entities.aggregates import kept_field
from ..errors import CorruptStore, InvalidModel
from ..keys.overlap import disjoint
from ..keys.template import Template, compile_template
from ..schema.forms import FieldForm, Forms, IndexForm, ModelForm, TemplateForm, VersionForm, stored_default
from ..schema.model import Model, Schema
from ..schema.rows import DAMAGE
from .changes import Anything, Change, Contents
from .definitions import aggregate_in, former_name, indexes_in, is_former, plain_name
from .members import Members, follow
from .renames import with_properties
from .sources import attribute_name, default_source
from .versions import Versions, ahead, ended, retired

__all__ = ["Evolution", "evolve", "form_changes", "key_templates", "reads"]


def form_changes(forms: Forms, schema: Schema) -> tuple[Change, ...]:
    """Return the differences between the forms of all classes that there are and a schema, whatever a store may hold."""
    gone = []
    for name, form in forms.items():
        if name not in schema.by_name and not is_former(name):
            if not form.aggregate:
                gone.append(Change(name, "open", "it is not among the classes, and stays in the file"))
            elif form.aggregate.of in schema.by_name:
                kept = kept_field(name)
                what = "the aggregate" if kept is None else "the maintained field"
                where = name if kept is None else ".".join(kept)
                gone.append(
                    Change(
                        where,
                        "open",
                        f"{what} is not declared, and the store goes on to maintain it",
                        f"m.drop(old.{where})",
                    )
                )
    return (*evolve(forms, {}, schema, Anything()).changes, *gone)


@attrs.frozen
class Evolution:
    """The difference between a catalogue and a schema, and what the catalogue says afterwards."""

    changes: tuple[Change, ...]
    models: tuple[Model, ...]
    """Classes that are new, or declared anew, aggregates among them."""
    dropped: frozenset[str]
    """Classes, by name, whose tables go: they hold nothing, and were declared anew, or maintained from one that was."""
    fields: tuple[tuple[Model, str], ...]
    """New fields of known classes, by their property."""
    typed: tuple[Model, ...]
    """Known classes that have a type name from now on."""
    indexes: tuple[tuple[Model, str], ...]
    """New indexes of known classes, by name."""
    former: dict[str, str]
    """Labels of definitions that others take the place of, each with the label that it has from now on."""
    declared: dict[str, bool]
    """Labels, each with whether the newest form of its class declares it."""
    widened: tuple[tuple[str, str], ...]
    """Properties, each with the name of its class, that can hold values which those who knew them cannot read."""
    models_after: dict[str, ModelForm]
    versions_after: dict[str, list[VersionForm]]
    changed: bool
    """Whether the catalogue has to be written."""
    extends: bool
    """Whether more is stored or maintained than before: those that opened the store earlier have to follow."""

    @property
    def stopping(self) -> tuple[Change, ...]:
        """What keeps the store from being opened so."""
        return tuple([change for change in self.changes if change.stops])

    @property
    def faults(self) -> tuple[str, ...]:
        """What keeps the store from being opened so, in words."""
        return tuple(map(str, self.stopping))


def evolve(catalogue: Forms, versions: Versions, schema: Schema, contents: Contents, *, now: int = 0) -> Evolution:
    """Compare a catalogue with the schema that is opened.

    Args:
        catalogue: the union forms of its classes.
        versions: the forms of them that were opened.
        schema: the classes.
        contents: what the store holds.
        now: µs since 1970.
    """
    changes: list[Change] = []
    models: list[Model] = []
    fields: list[tuple[Model, str]] = []
    indexes: list[tuple[Model, str]] = []
    former: dict[str, str] = {}
    declared: dict[str, bool] = {}
    widened: list[tuple[str, str]] = []
    typed: list[Model] = []
    after, history = dict(catalogue), {name: list(forms) for name, forms in versions.items()}
    dropped: set[str] = set()
    for model in schema.models:
        name, form = model.name, model.form
        held = aggregate_in(catalogue, name, form)
        old = catalogue.get(held or name)
        opened = [version for version in history.get(name, ()) if version.form == model.form_hash]
        if any(version.until is None for version in opened):
            if (reason := contents.dropped(name, form)) is not None:
                changes.append(Change(name, "refused", reason))
            history[name] = [ahead(version, model, schema, history) for version in history[name]]
            continue
        anew = model.aggregate is not None or (old is None and contents.dropped(name, form) is not None)
        if opened and opened[-1].retired_by is not None and not anew:
            changes.append(Change(name, "refused", retired(opened[-1])))
        elif opened and model.aggregate is not None and old is None and (reason := contents.dropped(name, form)):
            changes.append(Change(name, "refused", reason))
        elif old is None:
            models.append(model)
            changes += _new(model, catalogue, schema, contents)
            after[name] = form
        else:
            found = (
                [_beside_old(model, old, schema, catalogue)] if held is None else list(_changes(model, old, contents))
            )
            if opened and (
                model.aggregate is None or opened[-1].retired_by is None
            ):  # (what else differs is that change)
                found = [Change(name, "refused", retired(opened[-1]))]
            maintained = [n for n, f in catalogue.items() if f.aggregate and f.aggregate.of == name]
            rules = {one.rule for one in found}
            if rules != {"open"} and found and not any(map(contents.count, [held or name, *maintained])):
                models.append(model)
                dropped |= {name, *maintained}
                changes.append(Change(name, "open", "it holds no entities, and is declared again"))
                for gone in (name, *maintained):
                    after.pop(gone, None)
                    history[gone] = [ended(version, now) for version in history.get(gone, ())]
                models += [one for one in schema.models if one.name in maintained]
                after |= {one.name: one.form for one in (model, *schema.models) if one.name in {name, *maintained}}
            elif held is None:
                changes += found
                models.append(model)
                gone = former_name(name, after)
                after[gone], after[name] = replace(old, table=old.table + gone.removeprefix(name)), form
                former |= {name: gone, **{f"{name}.{index}": f"{gone}.{index}" for index in old.indexes}}
                declared |= {gone: False, **{f"{gone}.{index}": False for index in old.indexes}}
            else:
                changes += found
                known = indexes_in(old.indexes, form.indexes)
                after[held] = union = _union(old, form, known)
                fields += [(model, property) for property in union.fields if property not in old.fields]
                indexes += [(model, index) for index in form.indexes if index not in known]
                former |= {
                    f"{held}.{index}": f"{held}.{former_name(index, old.indexes)}"
                    for index in old.indexes
                    if index in form.indexes and index not in known
                }
                declared |= {
                    f"{held}.{index}": index in known.values() or (index in form.indexes and index not in known)
                    for index in union.indexes
                }
                widened += [
                    (name, p) for p, was in old.fields.items() if p in form.fields and _widens(was, form.fields[p])
                ]
                typed += [model] if union.type != old.type else []
    for model in schema.models:
        opened = history.setdefault(model.name, [])
        if not any(version.form == model.form_hash and version.until is None for version in opened):
            opened.append(VersionForm(model.form_hash, now))
    return Evolution(
        tuple(changes), tuple(dict.fromkeys(models)), frozenset(dropped), tuple(fields), tuple(typed), tuple(indexes),
        former, declared, tuple(widened), after, history, history != {n: list(v) for n, v in versions.items()}, after != dict(catalogue),
    )  # fmt: skip


def _union(old: ModelForm, new: ModelForm, known: Mapping[str, str]) -> ModelForm:
    """Return the form of everything that either form stores or maintains.

    Args:
        old: of the catalogue.
        new: of a class.
        known: the indexes of the class that are in the catalogue, by their names there.
    """
    fields = dict(old.fields)
    for name, field in new.fields.items():
        was = old.fields.get(name)
        fields[name] = field if was is None else _joined(was, field)
    added = {name: form for name, form in new.indexes.items() if name not in known}
    kept = {former_name(name, old.indexes) if name in added else name: form for name, form in old.indexes.items()}
    return replace(old, type=old.type or new.type, fields=fields, indexes=kept | added)


def _joined(old: FieldForm, new: FieldForm) -> FieldForm:
    """Return the form of a field that holds the values of two, of which one takes those of the other."""
    joined = replace(old, optional=old.optional or new.optional)
    if _takes(new, old):
        joined = replace(joined, type=old.type if old.json is not UNSET else new.type, members=_members(old, new))
    if old.json is UNSET:
        return replace(joined, json=new.json)
    if new.json is UNSET or (nested := _nested(old, new)).faults:
        return joined
    kept = not nested.extends and old.json.get("partial") == nested.schema.get("partial")
    return joined if kept else replace(joined, json=nested.schema)


def _members(old: FieldForm, new: FieldForm) -> Any:
    if old.members is UNSET or new.members is UNSET:
        return UNSET
    return old.members if set(new.members) <= set(old.members) else new.members


# ---------------------------------------------------------------------------------------------- a class that is new

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (str, int, float, bool, datetime, date, time, timedelta, Decimal, UUID, bytes, tuple)
}


def key_templates(form: ModelForm) -> tuple[Template, Template]:
    """Return the templates of a class's keys."""
    return _template(form.partition), _template(form.row)


def _template(form: TemplateForm) -> Template:
    try:
        kinds = {field: _KINDS[kind] for field, _, kind in form.slots}
        text = form.text if isinstance(form.text, str) else tuple(form.text)
        return compile_template(text, kinds, subject="catalogue")
    except (KeyError, InvalidModel) as error:
        raise CorruptStore(f"the catalogue cannot be read: the template {form}: {error}; restore a backup") from error


def _new(model: Model, catalogue: Forms, schema: Schema, contents: Contents) -> Iterator[Change]:
    """Yield what there is to say of a new class beside what the file holds already."""
    name, form = model.name, model.form
    for other, old in catalogue.items():
        if other not in schema.by_name and _is_renamed(old, form) and contents.count(other):
            yield Change(
                name, "migration", f"its entities are in the file as those of {other}",
                f"m.rename_class(old.{other}, new.{name})",
            )  # fmt: skip
            continue
        if old.table.lower() == model.table.lower():
            yield from _beside(model, other, old, contents)
        for index, known in old.indexes.items():
            if other not in schema.by_name and known.table.lower() in {
                model.table.lower(),
                *(i.table.lower() for i in model.indexes),
            }:
                yield Change(
                    name, "refused", f'the table "{known.table}" is that of the index {other}.{index}; write table=…'
                )
        if (
            other not in schema.by_name
            and old.aggregate is UNSET
            and _same_fields(old, form)
            and (rows := contents.count(other))
        ):
            held = f" ({rows:,} entities)" if rows > 0 else ""
            code = f"m.rename_class(old.{other}, new.{name})"
            yield Change(
                name, "open", f"{other}{held} has the same fields and is not among the models; if {name} is its new name: {code}",
                code, warning=True,
            )  # fmt: skip


def _with_types(template: TemplateForm) -> str:
    """Return a template with the types of its fields, where only these tell it from another."""
    return f"{template} ({', '.join(f'{field}: {kind}' for field, _, kind in template.slots)})"


def _is_renamed(old: ModelForm, new: ModelForm) -> bool:
    """Return whether a class is another one under a new name: the table, the keys and the fields are the same."""
    return (
        (old.table, old.partition, old.row) == (new.table, new.partition, new.row)
        and bool(old.aggregate) is bool(new.aggregate)
        and _same_fields(old, new)
    )


def _same_fields(old: ModelForm, new: ModelForm) -> bool:
    return {n: (f.type, f.optional) for n, f in old.fields.items()} == {
        n: (f.type, f.optional) for n, f in new.fields.items()
    }


def _beside(model: Model, other: str, old: ModelForm, contents: Contents) -> Iterator[Change]:
    """Yield why a new class cannot share a table with a known one."""
    name = model.name
    if old.table != model.table:
        yield Change(name, "refused", f'the tables "{model.table}" and "{old.table}" of {other} differ only in case')
        return
    verdict = disjoint(model.declaration.templates, key_templates(old))
    if verdict == "overlap":
        yield Change(
            name, "refused",
            f'it shares the table "{model.table}" with {other}, but their keys can be equal: {model.form.partition} / '
            f"{model.form.row} and {old.partition} / {old.row}; give one a literal of its own",
        )  # fmt: skip
    elif verdict == "carve a" and (keys := contents.within(other, *model.declaration.templates)):
        rows = f"{len(keys)} rows of {other} have keys" if len(keys) > 1 else f"a row of {other} has a key"
        yield Change(
            name, "migration", f"{rows} of {name}, as {keys[0]}", f"m.rewrite(old.{other}, ..., into=(new.{other}, new.{name}))"
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------- a class that is known


def _changes(model: Model, old: ModelForm, contents: Contents) -> Iterator[Change]:
    name, new = model.name, model.form
    pair = f"old.{name}, new.{name}"
    renamed = _renamed(name, old, new, contents) if old.aggregate is UNSET else {}
    for gone, added in renamed.items():
        before, after = f"old.{name}.{attribute_name(gone)}", f"new.{name}.{attribute_name(added)}"
        yield Change(
            f"{name}.{gone}", "migration",
            f'the property "{gone}" ({old.fields[gone]}) is in the file, but not in the class, and "{added}" is new',
            f"m.rename({before}, {after})  # or m.drop({before}), if they are two things",
        )  # fmt: skip
    old = with_properties(old, renamed)
    rekey = f"m.rekey({pair})" if _key_fields(old) <= new.fields.keys() and _key_fields(new) <= old.fields.keys() else f"m.rewrite(old.{name}, ..., into=[new.{name}])"  # fmt: skip
    if old.table != new.table:
        yield Change(name, "migration", f'its table was "{old.table}" and is "{new.table}"', f"m.rename_class({pair})")
    for part, meaning in (("partition", "partition key"), ("row", "row key")):
        if (was := getattr(old, part)) != (now := getattr(new, part)):
            texts = map(str if str(was) != str(now) else _with_types, (was, now))
            yield Change(name, "migration", f"its {meaning} was {' and is '.join(texts)}", rekey)
    if old.type is None and new.type is not None:
        yield Change(name, "open", f'type="{new.type}" is new')
    elif old.type != new.type:
        now = "none" if new.type is None else f'"{new.type}"'
        yield Change(name, "migration", f'its type= was "{old.type}" and is {now}', f"m.rekey({pair})")
    if bool(old.aggregate) is not bool(new.aggregate):
        yield Change(name, "refused", "one of an entity and an aggregate cannot become the other; choose another name")
    if old.aggregate is UNSET:
        yield from _gone(name, old, new, contents)
        yield from _added(model, old, new, contents)
    for property, was in old.fields.items():
        if (now := new.fields.get(property)) is not None:
            yield from _field(name, property, was, now, contents)
    yield from _indexes(name, old, new)


def _beside_old(model: Model, old: ModelForm, schema: Schema, catalogue: Forms) -> Change:
    """Return the change of an aggregate that is declared in another way."""
    if (kept := kept_field(model.name)) is not None:
        owner, property = kept
        rekeyed = (old.partition, old.row) != (model.form.partition, model.form.row)  # (which is told of the class)
        over = [name for name, one in catalogue[owner].indexes.items() if reads(one, property)]
        if over and not rekeyed:
            return Change(
                model.name, "refused",
                f"what the store maintains there differs from that in the file, which the index {owner}.{over[0]} is over; "
                "declare another field, and another index over it",
            )  # fmt: skip
    others = [name for name, form in catalogue.items() if name != model.name and form.table == old.table]
    others += [one.name for one in schema.models if one is not model and one.table == model.table]
    if others:
        return Change(
            model.name, "refused",
            f"its measures, groups, key or condition differ from those in the file, and it shares its table with {others[0]}; "
            f"declare another aggregate, with a table of its own, or write a script with m.drop(old.{model.name})",
        )  # fmt: skip
    return Change(
        model.name, "build",
        "its measures, groups, key or condition differ from those in the file, which keeps them for programs that declare them "
        "so; it is built beside them",
    )  # fmt: skip


def _key_fields(form: ModelForm) -> set[str]:
    return form.partition.fields | form.row.fields


def _renamed(name: str, old: ModelForm, new: ModelForm, contents: Contents) -> dict[str, str]:
    """Return the properties that are gone, each with the one of its type that is new, where there is one of both."""
    gone: dict[Any, list[str]] = {}
    added: dict[Any, list[str]] = {}
    for properties, form, other in ((gone, old, new), (added, new, old)):
        for property, field in form.fields.items():
            if property not in other.fields:
                alike = repr((field.type, field.optional, field.members, field.json))
                properties.setdefault(alike, []).append(property)
    return {
        gone[alike][0]: added[alike][0]
        for alike in gone
        if len(gone[alike]) == len(added.get(alike, ())) == 1
        and not _holds_nothing(name, gone[alike][0], old.fields[gone[alike][0]], contents)
    }


def _holds_nothing(name: str, property: str, form: FieldForm, contents: Contents) -> bool:
    return not form.in_key and not contents.holds_other(name, property, stored_default(form))


def _gone(name: str, old: ModelForm, new: ModelForm, contents: Contents) -> Iterator[Change]:
    for property in [property for property in old.fields if property not in new.fields]:
        form, where = old.fields[property], f"{name}.{property}"
        drop = f"m.drop(old.{name}.{attribute_name(property)})"
        if _holds_nothing(name, property, form, contents):
            yield Change(where, "open", f'the property "{property}" holds nothing, and stays in the file', drop)
        else:
            yield Change(
                where, "migration", f'the property "{property}" ({form}) is in the file, but not in the class', drop
            )


def _added(model: Model, old: ModelForm, new: ModelForm, contents: Contents) -> Iterator[Change]:
    name = model.name
    extra = next((property for property, form in old.fields.items() if form.type == "extra"), None)
    for property in [property for property in new.fields if property not in old.fields]:
        form, where = new.fields[property], f"{name}.{property}"
        field = f"new.{name}.{attribute_name(property)}"
        if extra is not None and (key := contents.undeclared(name, extra, property)) is not None:
            yield Change(
                where, "migration",
                f'the property "{property}" is new, but {key} has one among its undeclared ones',
                f'm.fill({field}, lambda e: e.{attribute_name(extra)}["{property}"])',
            )  # fmt: skip
        elif form.optional or form.default is not None or form.in_key:
            yield Change(where, "open", f'the property "{property}" is new')
        else:
            yield Change(
                where, "migration",
                f'the property "{property}" is new, and rows that are there have no value for it (a factory is no default '
                "for them); make it optional or give it a default, or fill it",
                f"m.fill({field}, ...)  # a function of the entity",
            )  # fmt: skip


# ---------------------------------------------------------------------------------------------- fields

_LOSSLESS = {
    ("int", "float"): ("float", ""), ("int", "Decimal"): ("Decimal", ""), ("int", "str"): ("str", "int"),
    ("float", "str"): ("str", "float"), ("Decimal", "str"): ("str", "Decimal"), ("str", "Decimal"): ("Decimal", "str"),
    ("str", "UUID"): ("UUID", "str"), ("UUID", "str"): ("str", "UUID"),
    ("date", "datetime"): ("lambda x: dt.datetime(x.year, x.month, x.day, tzinfo=dt.UTC)", ""),
}  # fmt: skip
"""How a value of one type becomes one of another, and back, where neither loses anything."""


def _field(name: str, property: str, old: FieldForm, new: FieldForm, contents: Contents) -> Iterator[Change]:
    where, attr = f"{name}.{property}", f"{name}.{attribute_name(property)}"
    pair = f"old.{attr}, new.{attr}"
    label = f'the property "{property}"'
    if old.in_key != new.in_key:
        now = "is" if new.in_key else "is not"
        yield Change(
            where, "migration", f"{label} {now} left to the key alone any more (stored=)", f"m.rekey(old.{name}, new.{name})"
        )  # fmt: skip
    code, message = "", f"{label} was {old} and is {new}"
    if not _takes(new, old) and not _takes(old, new):
        code = f"m.convert({pair}, {_conversion(old, new)}"
    elif not _takes(new, old):
        lost = [value for value in _values(old) if value not in _values(new)]
        if not lost:
            code = f"m.convert({pair}, ...)  # a function of the old value"
        elif contents.holds_one_of(name, property, lost):
            message = f"{label} holds {', '.join(map(repr, lost))} in the file, which it cannot any more"
            code = f"m.convert({pair}, ...)  # what becomes of these: {{{', '.join([f'{value!r}: …' for value in lost])}}}, or a function"
    elif _widens(replace(old, optional=True), replace(new, optional=True)):
        yield Change(where, "open", message)
    if old.json is not UNSET and new.json is not UNSET and (faults := _nested(old, new).faults):
        message, code = f"{label}: {'; '.join(faults)}", f"m.convert({pair}, ...)  # a function of the old value"
    if old.optional and not new.optional and not code:
        code = f"m.fill(new.{attr}, {'...' if new.default is None else f'lambda e: {default_source(new)}'})"
        code += "  # a function of the entity" if new.default is None else ""
    elif new.optional and not old.optional:
        yield Change(where, "open", f"{label} may be None")
    if code:
        yield Change(where, "migration", message, code)


def _conversion(old: FieldForm, new: FieldForm) -> str:
    """Return the arguments of a step that converts a field, from the function on."""
    there, back = _LOSSLESS.get((old.type, new.type), ("", ""))
    if not there or new.members is not UNSET or (old.optional and not new.optional):
        return "...)  # a function of the old value"
    return f"{there}, back={back})" if back and old.members is UNSET else f"{there})"


def _nested(old: FieldForm, new: FieldForm) -> Members:
    assert old.json is not UNSET
    assert new.json is not UNSET
    try:
        return follow(old.json, new.json)
    except DAMAGE as error:
        raise CorruptStore(
            f"the catalogue cannot be read: the members of a nested type: {error!r}; restore a backup"
        ) from error


def _values(form: FieldForm) -> Iterable[Any]:
    return () if form.members is UNSET else form.members


def _takes(new: FieldForm, old: FieldForm) -> bool:
    """Return whether everything that one field holds is a value of another, None aside."""
    if old.json is not UNSET and new.json is not UNSET:
        return True  # (compared by their members)
    if new.type != old.type and (old.type, new.type) not in (("int32", "int"), ("list[int32]", "list[int]")):
        return False
    return new.members is UNSET or (old.members is not UNSET and set(old.members) <= set(new.members))


def _widens(old: FieldForm, new: FieldForm) -> bool:
    """Return whether one field can hold what those who know it as another cannot read."""
    if new.optional and not old.optional:
        return True
    if old.json is not UNSET and new.json is not UNSET:
        return _nested(old, new).widens
    return not _takes(old, new)


# ---------------------------------------------------------------------------------------------- indexes


def reads(index: IndexForm, property: str) -> bool:
    """Return whether the rows of an index are made of a property."""
    return property in index.fields or property in _words(index.where)


def _words(form: Any) -> Iterator[str]:
    """Yield the texts in the form of a condition: the properties that it reads, without their parts, among them."""
    if isinstance(form, str):
        yield re.split(r"[.\[]", form, maxsplit=1)[0]
    elif isinstance(form, list | tuple):
        for one in form:
            yield from _words(one)
    elif isinstance(form, dict):
        yield from _words(list(form.values()))


def _indexes(name: str, old: ModelForm, new: ModelForm) -> Iterator[Change]:
    known = indexes_in(old.indexes, new.indexes)
    for index in old.indexes:
        if index not in known.values() and index not in new.indexes:
            yield Change(
                f"{name}.{index}", "open", f"the index {index} is not declared, and the store goes on to maintain it",
                f"m.drop(old.{name}.{index})",
            )  # fmt: skip
    for index, form in new.indexes.items():
        where, held = f"{name}.{index}", known.get(index)
        if held is None and index not in old.indexes:
            yield Change(where, "open", f"the index {index} is new")
        elif held is None:
            was = old.indexes[index]
            parts = [part for part in was.__struct_fields__ if getattr(was, part) != getattr(form, part)]
            yield Change(
                where, "build",
                f"the index {index}: {', '.join(_difference(part, was, form) for part in parts if part != 'include_all')}; the "
                "file keeps it as it was for programs that declare it so, and builds the new one beside it",
            )  # fmt: skip
        elif plain_name(held) != index:
            yield Change(where, "open", f"the index {index} is another name of {held}")


def _difference(part: str, old: IndexForm, new: IndexForm) -> str:
    was, now = getattr(old, part), getattr(new, part)
    if part == "where":
        return "its condition (where=) differs"
    if part == "unique":
        return "it was unique and is not" if was else "it was not unique and is"
    if part == "include":
        was, now = (", ".join(names) or "nothing" for names in (was, now))
    return f"its {part} was {was} and is {now}"
