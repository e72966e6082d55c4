"""What a script does to a store: which classes end, which take their place, and what entities are turned into.

A class that a step names is copied to tables of its own, and so is every class that shares a table with one. What a script
only names in ``old`` and ``new`` is left to the opening of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from ..engines.migration import Conversion, Edit, Transition
from ..entities.aggregates import kept_field
from ..entities.declaration import abstract_declaration
from ..errors import InvalidMigration, InvalidModel
from ..evolution.definitions import aggregate_in, indexes_in, is_former, plain_name
from ..evolution.rules import reads
from ..expressions.tree import Attr
from ..schema.forms import Forms, LinkForm
from ..schema.model import Schema, compile_schema, model_of
from .fields import Fields
from .links import links_of, several, way_back
from .report import PlanStep
from .script import Script
from .steps import Convert, Drop, Fill, Join, Rekey, Rename, RenameClass, Resolve, Restore, Rewrite, Step
from .undoing import is_anew, is_edit, is_reversible, names_of

__all__ = ["affected_classes", "check_old", "edit_of", "matches", "plan_steps", "transition_of"]


# ---------------------------------------------------------------------------------------------- is the store as it says


def check_old(script: Script, forms: Forms, going: Collection[str] = ()) -> None:
    """Raise InvalidMigration, with every difference, if a store is not as a script finds it.

    Args:
        script: that is to run.
        forms: of the store.
        going: the labels of what is dropped once an earlier script is contracted; no script can name it any more.
    """
    affected = affected_classes(script, forms)
    faults = [fault for cls in script.old for fault in _differences(cls, forms, going, whole=cls.__name__ in affected)]
    if faults:
        raise InvalidMigration(f"{script.id}: the store differs from old=", faults)


def matches(classes: Iterable[type[Any]], forms: Forms) -> bool:
    """Return whether a store has classes as they are declared, and maybe more."""
    return not any(fault for cls in classes for fault in _differences(cls, forms, whole=False))


def _differences(cls: Any, forms: Forms, going: Collection[str] = (), *, whole: bool) -> Iterator[str]:
    name, own = cls.__name__, model_of(cls).form
    if name not in forms:
        yield f"{name} is not in the store"
        return
    held = forms[aggregate_in(forms, name, own) or name]  # (it may be a former definition there)
    for part in ("table", "type", "partition", "row"):
        was, is_ = plain_name(held.table) if part == "table" else getattr(held, part), getattr(own, part)
        if was != is_:
            yield f"{name}: its {part} is {was} in the store, and {is_} in old"
    for one, field in own.fields.items():
        if one not in held.fields:
            yield f"{name}.{one}: the field is not in the store"
        elif replace(field, default=None) != replace(held.fields[one], default=None):
            yield f"{name}.{one}: the field is another one in the store: {held.fields[one]}, and {field} in old"
    known = indexes_in(held.indexes, own.indexes)  # (it may have another name there)
    for one in own.indexes:
        if one not in known:
            yield f"{name}.{one}: the index is {'another one' if one in held.indexes else 'not'} in the store"
    if whole:
        left = [("field", one) for one in held.fields if one not in own.fields]
        left += [("index", one) for one in held.indexes if one not in known.values() and not is_former(one)]
        yield from (
            f"{name}.{one}: the {kind} is in the store, and not in old: name it there, and in new or in m.drop(…)"
            for kind, one in left
            if f"{name}.{one}" not in going
        )
    if own.aggregate != held.aggregate:
        yield f"{name}: what it aggregates is other in the store"


# ---------------------------------------------------------------------------------------------- what it does


def transition_of(
    script: Script, forms: Forms, going: Collection[str] = (), *, back: bool = False
) -> Transition | None:
    """Return what an engine does for a script; None if there is nothing that it has to do.

    Args:
        script: that is to run.
        forms: of the store.
        going: as for `check_old`.
        back: whether it undoes a script.

    Raises:
        InvalidMigration: the script does not fit the store.
    """
    affected = affected_classes(script, forms)
    if not affected:
        return None
    old = {cls.__name__: cls for cls in script.old}
    going = {*going, *(cls.__name__ for cls in script.new if back)}  # (what was dropped may be there again)
    former = frozenset(
        [name for name in affected if is_former(name) or (name in going and name not in old and forms[name].aggregate)]
    )
    faults = [
        f"{'.'.join(kept_field(name) or (name,))} {'is maintained from' if forms[name].aggregate else 'shares a table with'} "
        f"what is migrated: name {(kept_field(name) or ('it',))[0]} in "
        "old=, and in new= or in m.drop(…)"
        for name in affected
        if name not in old and name not in former
    ]
    new = _new_classes(script, affected)
    for cls in new:
        name = cls.__name__
        if name in forms and name not in affected:
            faults.append(f"{name} is in the store already: name it in old=, too")
    if faults:
        raise InvalidMigration(script.id, faults)
    links, level = links_of(script, pairs(script), frozenset(affected), back=back)
    try:
        schema = compile_schema([old[name] for name in affected if name not in former])
        target = compile_schema(new) if new else Schema(())
        conversions = tuple(_conversions(script, affected, links))
    except InvalidModel as error:
        raise InvalidMigration(script.id, error.faults or [str(error)]) from error
    drops = () if back else _drops(script, affected)
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
        former,
        links,
        level == "writes",
        back,
    )


def affected_classes(script: Script, forms: Forms) -> tuple[str, ...]:
    """Return the classes of a store that are copied, or end: those of steps, and those that hang together with them."""
    if is_edit(script):
        return ()
    affected = {cls.__name__ for step in script.steps for cls in _old_classes(script, step)}
    tables = {model_of(cls).table for cls in _new_classes(script, affected)}
    while True:
        tables |= {forms[name].table for name in affected if name in forms}
        more = {name for name, form in forms.items() if form.table in tables}
        for name in forms:
            if (kept := kept_field(name)) is not None and kept[0] in forms:
                over = any(reads(index, kept[1]) for index in forms[kept[0]].indexes.values())
                more |= {name} if kept[0] in affected else {kept[0]} if over and name in affected else set()
        more |= {name for name, form in forms.items() if form.aggregate is not UNSET and form.aggregate.of in affected}
        more |= {
            form.aggregate.of for name in affected | more if (form := forms.get(name)) and form.aggregate is not UNSET
        }
        if more <= affected:
            return tuple([name for name in forms if name in affected])
        affected |= more


def _drops(script: Script, affected: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the labels of the indexes and classes that go, those of classes that end anyway aside."""
    ending = set(affected)
    labels = []
    for step in script.steps:
        if isinstance(step, Drop) and not isinstance(step.what, Attr):
            label = (
                step.what.__name__ if isinstance(step.what, type) else f"{step.what.entity.__name__}.{step.what.index}"
            )
            labels += [label] if label.partition(".")[0] not in ending else []
    return tuple(labels)


def edit_of(script: Script, *, back: bool = False) -> Edit:
    """Return what an engine does for a script for which it copies nothing."""
    names = names_of(script) if is_edit(script) else {}
    renamed = {n for o, n in pairs(script).items() if o.__name__ in names}
    new = [model_of(cls) for cls in script.new if cls in renamed or abstract_declaration(cls).of in renamed]
    steps = tuple(map(str, script.steps))
    return Edit(script.id, script.digest, steps, names, tuple(new), () if back else _drops(script), back)


def _old_classes(script: Script, step: Step) -> Iterator[Any]:
    match step:
        case Rename(old=attr) | Convert(old=attr):
            yield attr.owner
        case RenameClass(old=cls) | Rekey(old=cls) | Rewrite(old=cls):
            yield cls
        case Join(a=a, b=b):
            yield from (a, b)
        case Fill(new=attr) | Restore(new=attr):
            source = next((o for o, n in pairs(script).items() if attr.owner in (o, n)), None)  # or undone
            if source is not None:
                yield source
        case Drop(what=Attr() as attr):
            yield attr.owner
        case Drop(what=what) if is_anew(script, what):
            yield what
        case Drop() | Resolve():
            pass


def pairs(script: Script) -> dict[Any, Any]:
    """Return the class that each old one becomes, where it stays one."""
    names: dict[str, Any] = {cls.__name__: cls for cls in script.new}
    found: dict[Any, Any] = {cls: names[cls.__name__] for cls in script.old if cls.__name__ in names}
    for step in script.steps:
        match step:
            case RenameClass(old=old, new=new) | Rekey(old=old, new=new):
                found[old] = new
            case Rename(old=attr, new=other) | Convert(old=attr, new=other):
                found[attr.owner] = other.owner
            case _:
                pass
    for step in script.steps:
        match step:
            case Rewrite(old=old):
                found.pop(old, None)
            case Join(a=a, b=b):
                found.pop(a, None)
                found.pop(b, None)
            case Drop(what=what) if isinstance(what, type):
                found.pop(what, None)
            case _:
                pass
    return found


def _new_classes(script: Script, affected: Iterable[str]) -> list[Any]:
    """Return the classes that are written for those that are affected, with what is maintained from them."""
    affected = set(affected)
    new = {n for o, n in pairs(script).items() if o.__name__ in affected}
    for step in script.steps:
        if isinstance(step, Rewrite | Join):
            new |= set(step.into)
    tables = {abstract_declaration(cls).table for cls in new}
    return [
        cls
        for cls in script.new
        if cls in new or abstract_declaration(cls).of in new or abstract_declaration(cls).table in tables
    ]


def _conversions(script: Script, affected: Sequence[str], links: Iterable[LinkForm]) -> Iterator[Conversion]:
    made = {link.old for link in links if link.steps}

    def back(old: Any, new: Any) -> Conversion | None:
        return way_back(script, old, new) if old.__name__ in made else None

    for old, new in pairs(script).items():
        if old.__name__ in affected and abstract_declaration(old).of is None:
            fields = Fields(script, old, new)
            yield Conversion(
                (model_of(old),), (model_of(new),), fields.convert, back=back(old, new), former=fields.former
            )
    for step in script.steps:
        match step:
            case Rewrite(old=old, with_=with_, into=into, combine=combine):
                targets = tuple(map(model_of, into))
                yield Conversion((model_of(old),), targets, several(with_), combine, back(old, into[0]))
            case Join(a=a, b=b, with_=with_, into=into):
                yield Conversion((model_of(a), model_of(b)), tuple(map(model_of, into)), several(with_))
            case _:
                pass


# ---------------------------------------------------------------------------------------------- what a report says


def plan_steps(ahead: Iterable[tuple[Script, bool]], forms: Forms, count: Callable[[str], int]) -> Iterator[PlanStep]:
    """Yield the steps of scripts as a report shows them.

    Args:
        ahead: the scripts, each with whether it undoes one.
        forms: of the store.
        count: returns the number of entities of a class of the store.
    """
    known, origins = dict(forms), {name: (name,) for name in forms}

    def expected(name: str) -> int:
        return sum(map(count, origins.get(name, ())))

    for script, back in ahead:
        yield from _script_steps(script, known, expected, back=back)
        made = {new.__name__: [old.__name__] for old, new in pairs(script).items()}
        for step in script.steps:
            match step:
                case Rewrite(old=old, into=into):
                    made |= {cls.__name__: [old.__name__] for cls in into}
                case Join(a=a, b=b, into=into):
                    made |= {cls.__name__: [a.__name__, b.__name__] for cls in into}
                case _:
                    pass
        origins |= {new: tuple([o for name in names for o in origins.get(name, ())]) for new, names in made.items()}
        gone = affected_classes(script, known)
        known = {name: form for name, form in known.items() if name not in gone}
        known |= {cls.__name__: model_of(cls).form for cls in script.new}


def _script_steps(script: Script, forms: Forms, count: Callable[[str], int], *, back: bool) -> tuple[PlanStep, ...]:
    undoable = all(is_reversible(step, script) for step in script.steps)
    affected = affected_classes(script, forms)
    new = {cls.__name__: model_of(cls).form_hash for cls in script.new}
    copies = not is_edit(script) and any(True for step in script.steps for _ in _old_classes(script, step))
    stays = not copies or all(new.get(cls.__name__) == model_of(cls).form_hash for cls in script.old)
    links, level = links_of(script, pairs(script), frozenset(affected), back=back)
    return tuple(
        [
            PlanStep(
                script.id,
                str(step),
                sum(count(cls.__name__) for cls in set(_old_classes(script, step)) if cls.__name__ in affected),
                undoable,
                "writes" if stays else level if links else "stops",
                back,
            )
            for step in script.steps
        ]
    )
