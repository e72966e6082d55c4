"""Migration scripts as text: the old and the new classes, and a step for each change that needs one.

`SchemaMismatch` shows this text when a store cannot be opened, and `Migrations.write` writes it to a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import UNSET

from ...entities.aggregates import kept_field
from ...evolution.changes import ChangeStep, NamedPart, SchemaChange
from ...evolution.literals import attribute_name, value_source
from ...evolution.renames import rename_in_place, with_source
from ...evolution.rules import words
from ...schema.labels import is_former
from ...schema.specs import Forms, ModelSpec
from .classes import Shape
from .lines import call, imports_of


def script_name(changes: Sequence[SchemaChange]) -> str:
    """Return a name for a script that makes some changes."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", changes[0].where.partition(".")[0])
    return words.lower()


def script_source(old: Forms, new: Forms, changes: Sequence[SchemaChange], *, after: str | None = None) -> str:
    """Return the text of a script.

    Args:
        old: the forms of all classes as they are.
        new: the forms of all classes as they shall be.
        changes: the changes that the script makes; each has a `SchemaChange.step`.
        after: the id of the script before it.
    """
    steps = _steps(changes)
    undeclared = dict(_aggregates_after(old, new, steps))
    steps += [ChangeStep("drop", (NamedPart("old", name),)) for name, form in undeclared.items() if form is None]
    old_names, new_names = _needed_classes(old, new, steps)
    old_shape = Shape("old", {name: old[name] for name in old_names})
    after_it = {**old, **new, **{name: form for name, form in undeclared.items() if form is not None}}
    shapes = [old_shape, Shape("new", {name: after_it[name] for name in new_names}, old_shape)]
    body = [line for shape in shapes for line in shape.lines()]
    sides = [f"{shape.side}=[{', '.join(shape.names)}]" for shape in shapes]
    previous = value_source(after)
    body += ["", "", *call("@tm.migration", [f"after={previous}", *sides]), "def migrate(m: tm.Migration) -> None:"]
    body += [line for step in steps for line in _step_lines(step)] or ["    pass"]
    classes = dict.fromkeys([change.where.partition(".")[0] for change in changes])
    head = [f'"""Change {", ".join(classes)}."""', "", "from __future__ import annotations", ""]
    return "\n".join([*head, *imports_of("\n".join(body)), "import tablemapper as tm", *body, ""])


def _needed_classes(old: Forms, new: Forms, steps: Sequence[ChangeStep]) -> tuple[list[str], list[str]]:
    """Return the old and the new classes that a script must contain: those of its steps, and all that they need."""
    named_classes: dict[str, set[str]] = {"old": set(), "new": set()}
    for step in steps:
        for cls in step.possible_classes:
            named_classes[cls.side].add(cls.cls)
    on_both_sides = {name for names in named_classes.values() for name in names if name in old and name in new}
    stays = {*named_classes["old"], *new}
    for name, form in old.items():  # (a class is written with its maintained fields)
        if (maintained := kept_field(name)) is not None and maintained[0] in stays and form.source is not None:
            stays |= {name, form.source}
    dropped_names = {name.cls for step in steps if step.kind == "drop" for name in step.names if not name.part}
    with_tables = _copies(old, new, steps)
    old_names = _closed(old, named_classes["old"] | on_both_sides, with_tables=with_tables)
    if not with_tables:
        old_names = [name for name in old_names if name in stays]
    goes_on = {name for name in old_names if name in new or (with_tables and name not in named_classes["old"])}
    new_names = _closed(
        {**old, **new}, (named_classes["new"] | on_both_sides | goes_on) - dropped_names, with_tables=False
    )
    return old_names, [name for name in new_names if name in new or name in goes_on]


def _aggregates_after(old: Forms, new: Forms, steps: Sequence[ChangeStep]) -> Iterator[tuple[str, ModelSpec | None]]:
    """Yield the aggregates that no new class stands for, of classes that are copied: as they go on, or None if that cannot be."""
    if not _copies(old, new, steps):
        return
    for name, form in old.items():
        source, shape = form.source, form.aggregate
        if (
            name in new
            or shape is UNSET
            or source is None
            or source not in new
            or source not in old
            or is_former(name)
            or kept_field(name)
        ):
            continue
        old_fields, new_fields = old[source].fields, new[source].fields
        names = _renames(old, new, steps, source)
        properties = {
            *words([shape.where, *shape.groups.values(), *(measure[1:] for measure in shape.measures.values())])
        }
        goes_on = all(
            names.get(property, property) in new_fields
            and old_fields[property].type == new_fields[names.get(property, property)].type
            for property in properties & old_fields.keys()
        )
        yield name, with_source(form, source, names) if goes_on else None


def _copies(old: Forms, new: Forms, steps: Sequence[ChangeStep]) -> bool:
    """Return whether steps copy classes, each with all that share its table."""
    for step in steps:
        first = step.names[0]
        if step.kind != "rename" and (step.kind != "drop" or (first.part and first.part not in old[first.cls].indexes)):
            return True
    renames = {name: names for name in old if (names := _renames(old, new, steps, name))}
    on_both_sides = old.keys() & new.keys()
    return not rename_in_place(
        renames, *({name: form for name, form in side.items() if name in on_both_sides} for side in (old, new))
    )


def _renames(old: Forms, new: Forms, steps: Sequence[ChangeStep], name: str) -> dict[str, str]:
    """Return the properties of a class that steps rename, each with its new name."""
    pairs = {
        step.names[0].part: step.names[1].part for step in steps if step.kind == "rename" and step.names[0].cls == name
    }
    if not pairs:
        return {}
    new_attributes = {attribute_name(property): property for property in new[name].fields}
    return {
        property: new_attributes[pairs[attribute]]
        for property in old[name].fields
        if (attribute := attribute_name(property)) in pairs
    }


def _steps(changes: Sequence[SchemaChange]) -> list[ChangeStep]:
    """Return the steps, each once; a class that one step rewrites has no other steps."""
    steps = list(dict.fromkeys([change.step for change in changes if change.step is not None]))
    rewritten = {name for step in steps if step.kind == "rewrite" for name in step.classes}
    return [step for step in steps if step.kind == "rewrite" or rewritten.isdisjoint(step.classes)]


def _closed(forms: Forms, names: set[str], *, with_tables: bool) -> list[str]:
    """Return classes with their aggregates, and with the classes that their maintained fields are maintained from.

    ``together``: also with the classes that share their tables.
    """
    closed = set(names)
    while True:
        extended = {source for name in closed if name in forms and (source := forms[name].source) is not None}
        tables = {forms[name].table for name in closed if name in forms} if with_tables else set()
        for name, form in forms.items():
            if (
                (maintained := kept_field(name)) is not None
                and form.source is not None
                and {maintained[0], form.source} & closed
            ):
                extended |= {name, maintained[0]}
            if not is_former(name) and (form.table in tables or (with_tables and form.source in closed)):
                extended.add(name)
        if extended <= closed:
            break
        closed |= extended
    return [name for name, form in forms.items() if not is_former(name) and (name in closed or form.source in closed)]


def _step_lines(step: ChangeStep) -> Iterator[str]:
    if step.comment:
        yield f"    # {step.comment}"
    yield from call(f"m.{step.kind}", step.arguments, indent=4)
