"""The faults of a script: its steps must turn the old classes into the new ones, with one step for each field.

The steps are applied to the old forms. A store must be able to take over the differences that are left between the
results and the new forms, by the rules of `evolution`. Each other difference is a fault, which tells the step that it
needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..entities.index import IndexCall
from ..errors import InvalidModel
from ..evolution.evolution import form_changes
from ..expressions.tree import Attr
from ..schema.model import Schema, compile_schema
from ..schema.specs import Forms
from .conversion_plan import affected_classes
from .script import Script
from .spec_changes import SpecChanges
from .steps import AnyStep, names_of


def script_faults(script: Script, *, unwritten: bool = False) -> list[str]:
    """Return everything that is wrong with a script; ``unwritten``: functions may be missing."""
    faults: list[str] = []
    old, new = (_shape(side, classes, faults) for side, classes in (("old", script.old), ("new", script.new)))
    if old is None or new is None:
        return faults
    for step in script.steps:
        faults += [f"{step.text(script)}: {fault}" for fault in step.faults(script)]
    missing = [] if unwritten else [step.text(script) for step in script.steps if getattr(step, "with_", None) is ...]
    faults += [f"give {text.replace('…', '...')} a function" for text in missing]
    if not faults:
        faults += _twice(script)
    if not faults:
        faults += _unbridged(script, old, new)
    return faults


def _shape(side: str, classes: Sequence[Any], faults: list[str]) -> Schema | None:
    if not classes:
        return Schema(())
    try:
        return compile_schema(list(classes))
    except InvalidModel as error:
        faults += [f"{side}=: {fault}" for fault in error.faults]
        return None


def _twice(script: Script) -> Iterator[str]:
    """Yield the fields and classes that have two steps."""
    subjects = [(step, side, subject) for step in script.steps for side, subject in step.subjects]
    seen: dict[Any, AnyStep] = {}
    for step, side, subject in subjects:
        first = seen.setdefault((side, step.of_class and type(step), *_identity(subject)), step)
        if first is not step:
            name = subject.__name__ if isinstance(subject, type) else subject
            yield f"{side}.{name} has two steps, {first.text(script)} and {step.text(script)}; leave one"
    for step, side, subject in subjects:
        class_step = seen.get((side, False, _identity(subject)[0], ""))
        if class_step is not None and (step.of_class or not isinstance(subject, type)):
            scope = "same class" if step.of_class else "whole class"
            yield f"{step.text(script)}: {class_step.text(script)} is of the {scope}; leave one"


def _identity(subject: Any) -> tuple[Any, str]:
    if isinstance(subject, Attr):
        return subject.owner, subject.name
    return (subject.entity, subject.index) if isinstance(subject, IndexCall) else (subject, "")


def _unbridged(script: Script, old: Schema, new: Schema) -> Iterator[str]:
    """Apply the steps to the forms of the old shape; yield the differences from the new one that no step bridges."""
    old_forms = {model.name: model.form for model in old.models}
    names = {old: new for step in script.steps for old, new in step.class_names.items()}
    shape = SpecChanges(old_forms, {model.name: model.form for model in new.models}, names)
    for name, properties in names_of(script).items():
        shape.rename_properties(name, properties)
    for step in sorted(script.steps, key=lambda step: step.rank):
        yield from [f"{step.text(script)}: {fault}" for fault in step.apply(shape)]
    ended_names = _names(step.ended_classes for step in script.steps)
    forgotten = old_forms.keys() - names.keys() - ended_names - shape.targets.keys() if script.steps else set[str]()
    for name in [name for name in old_forms if name in forgotten]:
        yield f"{name} is in old=[…] and not in new=[…]: m.drop(old.{name}), or m.rename_class(old.{name}, …)?"
    shape.forms = {name: form for name, form in shape.forms.items() if name not in ended_names | forgotten}
    shape.rename_classes()
    for step in script.steps:
        yield from [f"{step.text(script)}: {fault}" for fault in step.apply_to_class(shape)]
    yield from _differences(script, old_forms, shape.forms, new)


def _differences(script: Script, before: Forms, forms: Forms, new: Schema) -> Iterator[str]:
    """Yield the reasons why a store cannot take over the new classes after the steps; ``before``: the forms without
    these."""
    # (New classes that a step or a copy fills need not follow from an old form: the aggregates of copied classes are
    # computed anew, whatever they were.)
    copied = affected_classes(script, before)
    filled = _names(step.targets for step in script.steps)
    filled |= {model.name for model in new.models if model.aggregate and model.name in copied}
    results = {name: form for name, form in forms.items() if name not in filled}
    schema = Schema(tuple([model for model in new.models if model.name not in filled]))
    for change in form_changes(results, schema):
        if change.stops:
            yield f"{change}: {change.code}?" if change.code else str(change)


def _names(classes: Iterable[Iterable[type[Any]]]) -> set[str]:
    return {cls.__name__ for group in classes for cls in group}
