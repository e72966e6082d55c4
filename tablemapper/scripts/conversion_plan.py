"""The plan of a script for one store: the classes that it replaces, their new classes, and the conversions between them.

A class that a step names is copied to new tables, and so is every class that shares a table with it. A class that a script only
names in ``old`` and ``new`` is not copied: opening the store takes its changes over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from ..catalogue.transitions import Conversion, MetadataChange, Transition
from ..entities.aggregates import kept_field
from ..entities.declaration import abstract_declaration
from ..errors import InvalidMigration, InvalidModel
from ..evolution.changes import Anything
from ..evolution.definitions import aggregate_in, indexes_in
from ..evolution.evolution import Evolution, evolve
from ..evolution.renames import with_properties, with_source
from ..evolution.rules import nested_members, reads
from ..evolution.versions import Versions
from ..expressions.tree import Attr
from ..schema.labels import is_former, plain_name
from ..schema.model import Schema, compile_schema, model_of
from ..schema.specs import FieldSpec, Forms, LinkSpec, ModelSpec
from .field_converter import FieldConverter
from .links import as_iterable, links_of, way_back
from .script import Script
from .steps import AnyStep, Drop, Join, Resolve, Rewrite, is_edit, names_of, pairs

# ---------------------------------------------------------------------------------------------- the store and ``old=``


def check_old(script: Script, forms: Forms, dropped_labels: Collection[str] = (), *, is_undoing: bool = False) -> None:
    """Raise InvalidMigration, with every difference, if the classes of a store are not those in ``old=``.

    Args:
        dropped_labels: the labels that are older than an earlier script, which drops what it calls so; a later one cannot name them.
        is_undoing: whether the script undoes another one. It drops the indexes that later versions added: they hold nothing of
            their own.
    """
    affected = affected_classes(script, forms)
    copied = set() if is_edit(script) else {cls.__name__ for step in script.steps for cls in step.sources(script)}
    new_forms = {cls.__name__: model_of(cls).form for cls in script.new if cls.__name__ not in copied}
    faults = [
        fault
        for cls in script.old
        for fault in _differences(
            cls,
            forms,
            dropped_labels,
            exact=cls.__name__ in affected,
            is_undoing=is_undoing,
            after=new_forms.get(cls.__name__),
        )
    ]
    if not is_undoing:
        faults += [*_not_in_old(script, forms), *_beside_anew(script, forms, dropped_labels)]
    if faults:
        differs = "it cannot be undone" if is_undoing else "the store differs from old="
        raise InvalidMigration(f"{script.id}: {differs}", faults)


def _beside_anew(script: Script, forms: Forms, dropped_labels: Collection[str]) -> Iterator[str]:
    """Yield the faults of classes beside an aggregate that is dropped and declared anew, which is copied with them."""
    new, old_names = {cls.__name__: cls for cls in script.new}, {cls.__name__ for cls in script.old}
    for step in script.steps:
        dropped_class = step.what if isinstance(step, Drop) else None
        if (
            isinstance(dropped_class, type)
            and dropped_class.__name__ in new
            and abstract_declaration(dropped_class).of is not None
        ):
            table = abstract_declaration(new[dropped_class.__name__]).table
            for name, form in forms.items():
                if form.table == table and name not in old_names and not is_former(name):
                    yield _unnamed(name, forms, dropped_labels, is_undoing=False)


def _not_in_old(script: Script, forms: Forms) -> list[str]:
    """Return the reasons why a store cannot take over the classes in ``new=`` that are not in ``old=``."""
    old_names = {cls.__name__ for cls in script.old}
    new_models = tuple([model_of(cls) for cls in script.new if cls.__name__ not in old_names])
    other_forms = {name: form for name, form in forms.items() if name not in old_names}
    stopping = evolve(other_forms, Versions(), Schema(new_models), Anything()).stopping
    return [f"{change}, and old= has no {change.where.partition('.')[0]}" for change in stopping]


def check_back(scripts: Iterable[Script], forms: Forms) -> None:
    """Raise InvalidMigration if one of several scripts cannot undo another, once those before it have.

    Args:
        scripts: the scripts that undo others, in the order in which they run.
    """
    for script in scripts:
        check_old(script, forms, is_undoing=True)
        forms = _evolution_after(script, forms, transition_of(script, forms, is_undoing=True)).models_after


def redeclared_labels(script: Script, forms: Forms, transition: Transition | None) -> tuple[str, ...]:
    """Return the labels of what a script declares anew beside another definition of its name.

    Args:
        script: the script.
        forms: the classes of the store before it.
        transition: what the script copies.
    """
    return tuple(_evolution_after(script, forms, transition).former) if script.new else ()


def _evolution_after(script: Script, forms: Forms, transition: Transition | None) -> Evolution:
    """Return the changes of a store that is opened with the new classes of a script once that has run."""
    if transition is None:
        for name, names in names_of(script).items():
            forms = {
                other_name: with_source(form, name, names) if form.source == name else form
                for other_name, form in forms.items()
            } | {name: with_properties(forms[name], names)}
    else:
        new = {model.name: model.form for model in transition.new.models}
        forms = {name: form for name, form in forms.items() if name not in transition.ending} | new
    return evolve(forms, Versions(), compile_schema(script.new), Anything())


def matches(classes: Iterable[type[Any]], forms: Forms) -> bool:
    """Return whether a store has classes as they are declared, and maybe more."""
    return not any(fault for cls in classes for fault in _differences(cls, forms, exact=False))


def _differences(
    cls: Any,
    forms: Forms,
    dropped_labels: Collection[str] = (),
    *,
    exact: bool,
    is_undoing: bool = False,
    after: ModelSpec | None = None,
) -> Iterator[str]:
    """Yield the parts of a class that the store lacks; if ``exact``, also those that only the store has.

    A field may be as it is in the new class, ``after``, of a class that is not copied: a program with that may have opened the
    store before.
    """
    name, class_form = cls.__name__, model_of(cls).form
    if name not in forms:
        yield f"{name} is not in the store"
        return
    stored_form = forms[aggregate_in(forms, name, class_form) or name]  # (it may be a former definition there)
    yield from _class_differences(name, class_form, stored_form, after)
    for property, field in class_form.fields.items():
        if property not in stored_form.fields:
            yield f"{name}.{property}: the field is not in the store"
            continue
        in_store = stored_form.fields[property]
        as_after = after is not None and _same_field(after.fields.get(property), in_store)
        if not as_after and not _same_field(field, in_store):
            yield f"{name}.{property}: the field is another one in the store: {in_store}, and {field} in old"
    stored_indexes = indexes_in(stored_form.indexes, class_form.indexes)
    for index in class_form.indexes:
        if index not in stored_indexes:
            yield f"{name}.{index}: the index is {'another one' if index in stored_form.indexes else 'not'} in the store"
    if exact:
        for kind, part in _undeclared(class_form, stored_form, is_undoing=is_undoing):
            label = f"{name}.{part}"
            if is_undoing:
                yield _loss_fault(label, f"the {kind} is in the store")
            elif kind == "field" or label not in dropped_labels:
                yield f"{label}: the {kind} is in the store, and not in old: name it there, and in new or in m.drop(…)"
    if class_form.aggregate != stored_form.aggregate:
        yield f"{name}: it aggregates something else in the store"


def _class_differences(
    name: str, class_form: ModelSpec, stored_form: ModelSpec, after: ModelSpec | None
) -> Iterator[str]:
    """Yield the differences in the table, the type name and the key of a class; arguments as `_differences` has
    them."""
    for part in ("table", "type", "partition", "row"):
        in_store, in_old = getattr(stored_form, part), getattr(class_form, part)
        if part == "type" and in_old is None and after is not None and after.type == in_store:
            continue
        in_store = plain_name(in_store) if part == "table" else in_store
        if in_store != in_old:
            yield f"{name}: its {part} is {in_store} in the store, and {in_old} in old"


def _undeclared(class_form: ModelSpec, stored_form: ModelSpec, *, is_undoing: bool) -> Iterator[tuple[str, str]]:
    """Yield the fields and, unless the script undoes another one, the indexes that only the store has of a class."""
    yield from [("field", property) for property in stored_form.fields if property not in class_form.fields]
    # (An index whose name the class declares in another way is what the name stood for before.)
    declared_names = {*class_form.indexes, *indexes_in(stored_form.indexes, class_form.indexes).values()}
    if not is_undoing:
        yield from [
            ("index", index) for index in stored_form.indexes if index not in declared_names and not is_former(index)
        ]


def _same_field(left: FieldSpec | None, right: FieldSpec) -> bool:
    """Return whether two fields hold the same values, whatever their defaults and the names of nested classes are."""
    if left is None or left.json is UNSET or right.json is UNSET:
        return left is not None and replace(left, default=None) == replace(right, default=None)
    if (left.optional, left.in_key) != (right.optional, right.in_key):
        return False
    comparisons = nested_members(left, right), nested_members(right, left)
    return not any(members.faults or members.extends for members in comparisons)


def _loss_fault(label: str, how: str) -> str:
    """Return the fault of an undoing that would lose what a later version added."""
    return (
        f"{label}: {how}, a later version added it, and going back would lose its values: write a new script instead, "
        f"which leads to the former classes and has m.drop(old.{label})"
    )


# ---------------------------------------------------------------------------------------------- transitions and edits


def transition_of(
    script: Script, forms: Forms, dropped_labels: Collection[str] = (), *, is_undoing: bool = False
) -> Transition | None:
    """Return the transition of a script; None if it copies nothing.

    Args:
        dropped_labels: as for `check_old`.
        is_undoing: whether the script undoes another one.

    Raises:
        InvalidMigration: the script does not fit the store.
    """
    affected = affected_classes(script, forms)
    if not affected:
        return None
    old = {cls.__name__: cls for cls in script.old}
    ending_with_class = frozenset([
        name for name in affected if is_former(name) or (name not in old and _goes_with(name, forms, dropped_labels, is_undoing=is_undoing))
    ])  # fmt: skip
    new = _new_classes(script, affected)
    faults = [
        _unnamed(name, forms, dropped_labels, is_undoing=is_undoing)
        for name in affected
        if name not in old and name not in ending_with_class
    ]
    strangers = [cls.__name__ for cls in new if cls.__name__ in forms and cls.__name__ not in affected]
    faults += [f"{name} is in the store already: name it in old=, too" for name in strangers]
    if faults:
        raise InvalidMigration(script.id, faults)
    links, level = links_of(script, pairs(script), frozenset(affected), is_undoing=is_undoing)
    try:
        schema = compile_schema([old[name] for name in affected if name not in ending_with_class])
        target = compile_schema(new) if new else Schema(())
        conversions = tuple(_conversions(script, affected, links))
    except InvalidModel as error:
        raise InvalidMigration(script.id, error.faults or [str(error)]) from error
    drops = () if is_undoing else _drops(script, forms, affected)
    contested = {repr(step.index) for step in script.steps if isinstance(step, Resolve) and step.index.entity in new}
    return Transition(
        script.id,
        script.digest,
        tuple(map(str, script.steps)),
        schema,
        target,
        conversions,
        drops,
        frozenset(contested),
        ending_with_class,
        links,
        level == "writes",
        is_undoing,
    )


def _goes_with(name: str, forms: Forms, dropped_labels: Collection[str], *, is_undoing: bool) -> bool:
    """Return whether an aggregate that a script does not name ends with its class.

    An undoing ends the aggregates that later versions added, too.
    """
    return bool(forms[name].aggregate) and (name in dropped_labels or (is_undoing and kept_field(name) is None))


def _unnamed(name: str, forms: Forms, dropped_labels: Collection[str], *, is_undoing: bool) -> str:
    """Return the fault of a script that does not name a class which it affects."""
    maintained = kept_field(name)
    reason = "is maintained from" if forms[name].aggregate else "shares a table with"
    subject, owner = (name, "it") if maintained is None else (".".join(maintained), maintained[0])
    if is_undoing:
        return _loss_fault(subject, f"it {reason} what is migrated")
    if name in dropped_labels:
        return f"{subject} {reason} what is migrated, and an earlier script drops it: contract that one first"
    return f"{subject} {reason} what is migrated: name {owner} in old=, and in new= or in m.drop(…)"


def copied_for(step: AnyStep, script: Script, forms: Forms) -> tuple[str, ...]:
    """Return the classes of entities that a script copies for one of its steps: those of its table, too."""
    if is_edit(script):
        return ()
    sources = {cls.__name__ for cls in step.sources(script)}
    names = _with_what_depends(sources, {forms[name].table for name in sources if name in forms}, forms)
    return tuple([name for name in names if forms[name].source is None])


def affected_classes(script: Script, forms: Forms) -> tuple[str, ...]:
    """Return the classes of a store that a script copies or ends: those of its steps, and all that depend on one another.

    Classes depend on one another if they share a table, if one is maintained from the other, or if an index of one reads a
    maintained field.
    """
    if is_edit(script):
        return ()
    affected = {cls.__name__ for step in script.steps for cls in step.sources(script)}
    return _with_what_depends(affected, {model_of(cls).table for cls in _new_classes(script, affected)}, forms)


def _with_what_depends(affected: set[str], tables: set[str], forms: Forms) -> tuple[str, ...]:
    """Return classes of a store with all that depend on one another, and those that some tables hold."""
    while True:
        tables |= {forms[name].table for name in affected if name in forms}
        dependent = {name for name, form in forms.items() if form.table in tables or form.source in affected}
        for name in forms:
            if (maintained := kept_field(name)) is not None and maintained[0] in forms:
                owner, property = maintained
                is_read = any(reads(index, property) for index in forms[owner].indexes.values())
                dependent |= {name} if owner in affected else {owner} if is_read and name in affected else set()
        sources = [forms[name].source for name in affected | dependent if name in forms]
        dependent |= {source for source in sources if source is not None}
        if dependent <= affected:
            return tuple([name for name in forms if name in affected])
        affected |= dependent


def _drops(script: Script, forms: Forms, affected: Collection[str] = ()) -> tuple[str, ...]:
    """Return the labels in a store of the indexes and classes that a script drops, without those of affected classes."""
    labels = []
    for step in script.steps:
        if isinstance(step, Drop) and not isinstance(step.what, Attr):
            index = None if isinstance(step.what, type) else step.what.index
            name, form = step.owner.__name__, model_of(step.owner).form
            # (The newest definition of a name may be another one, which a version after this script declares.)
            owner = aggregate_in(forms, name, form) or name
            stored_names = {} if index is None or owner not in forms else indexes_in(forms[owner].indexes, form.indexes)
            if name not in affected:
                labels.append(owner if index is None else f"{owner}.{stored_names.get(index, index)}")
    return tuple(labels)


def edit_of(script: Script, forms: Forms, *, is_undoing: bool = False) -> MetadataChange:
    """Return the edit of a script that copies nothing, over a store with these classes."""
    names = names_of(script) if is_edit(script) else {}
    renamed = {n for o, n in pairs(script).items() if o.__name__ in names}
    new = [model_of(cls) for cls in script.new if cls in renamed or abstract_declaration(cls).of in renamed]
    steps = tuple(map(str, script.steps))
    return MetadataChange(
        script.id, script.digest, steps, names, tuple(new), () if is_undoing else _drops(script, forms), is_undoing
    )


def _new_classes(script: Script, affected: Collection[str]) -> list[Any]:
    """Return the new classes that a copy of the affected ones writes, with their aggregates."""
    new = {n for o, n in pairs(script).items() if o.__name__ in affected}
    for step in script.steps:
        new |= set(step.targets)
    tables = {abstract_declaration(cls).table for cls in new}
    return [
        cls
        for cls in script.new
        if cls in new or abstract_declaration(cls).of in new or abstract_declaration(cls).table in tables
    ]


def _conversions(script: Script, affected: Sequence[str], links: Iterable[LinkSpec]) -> Iterator[Conversion]:
    linked_by_script = {link.old for link in links if link.steps}

    def reverse_of(old: Any, new: Any) -> Conversion | None:
        return way_back(script, old, new) if old.__name__ in linked_by_script else None

    for old, new in pairs(script).items():
        if old.__name__ in affected and abstract_declaration(old).of is None:
            fields = FieldConverter(script, old, new)
            yield Conversion(
                (model_of(old),), (model_of(new),), fields.convert, back=reverse_of(old, new), former=fields.former
            )
    for step in script.steps:
        if isinstance(step, Rewrite | Join):
            models = tuple(map(model_of, step.ended_classes)), tuple(map(model_of, step.into))
            yield Conversion(
                *models, as_iterable(step.with_), step.combine, reverse_of(step.ended_classes[0], step.into[0])
            )
