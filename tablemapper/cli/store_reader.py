"""A store opened for reading: each class as the models declare it, or else as the store has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..entities.declaration import declaration_of
from ..entities.entity import Record
from ..errors import SchemaMismatch
from ..store.opening import open as open_store
from ..store.store import Store
from .app import StoreArgument, existing, load_models, title_of
from .output import note

Classes = Sequence[type[Record]]


def open_for_reading(place: StoreArgument, models: str | None, *, timeout: float = 5) -> Store:
    """Open a store for reading: with its own classes if there are no models, or where they are newer than the store."""
    return opened_with_notes(place, models, timeout=timeout)[0]


def opened_with_notes(
    place: StoreArgument, models: str | None, *, timeout: float = 5
) -> tuple[Store, Mapping[str, str]]:
    """Open a store for reading; return it, and by class what is only in the code, which is said, too."""
    where, classes = existing(place), None if models is None else load_models(models)
    open_reader = partial(open_store, **where, read_only=True, timeout=timeout)
    try:
        return open_reader(models=classes), {}
    except SchemaMismatch as error:
        store, faults = _class_by_class(open_reader, classes or [])
        all_faults = dict.fromkeys(fault for class_faults in faults.values() for fault in class_faults) or error.faults
        note(f"{title_of(place)}: where the models differ, shown as the store knows it; {_difference_text(all_faults)}")
        return store, {name: _difference_text(class_faults) for name, class_faults in faults.items()}


def _class_by_class(open_reader: Any, classes: Classes) -> tuple[Store, Mapping[str, Sequence[str]]]:
    """Open a store with those models that it has as they are, and for the rest with its own classes.

    Returns:
        The store; and by class how the models differ.
    """
    fit: list[type[Record]] = []
    notes: dict[str, Sequence[str]] = {}
    for family in _families(classes):
        try:
            open_reader(models=family).close()
        except SchemaMismatch as error:
            for cls in family:
                class_faults = [fault for fault in error.faults if re.match(rf"{re.escape(cls.__name__)}\b", fault)]
                notes[cls.__name__] = class_faults or error.faults
        else:
            fit += family
    store: Store = open_reader(models=None)
    names = {cls.__name__ for cls in fit}
    other_classes = [cls for cls in store.classes.values() if not names & {cls.__name__, _source(cls).__name__}]
    if not fit:
        return store, notes
    try:
        combined: Store = open_reader(models=[*fit, *other_classes])
    except SchemaMismatch:
        return store, notes
    store.close()
    return combined, notes


def _difference_text(faults: Iterable[str]) -> str:
    """Return the parts that only the code has, and those that the store has otherwise."""
    new = [fault for fault in faults if fault.endswith("is new")]
    old = [fault for fault in faults if not fault.endswith("is new")]
    parts = ("only in the code", new), ("otherwise in the store", old)
    return "; ".join(f"{heading}: {', '.join(faults_of_kind)}" for heading, faults_of_kind in parts if faults_of_kind)


def _source(cls: type[Any]) -> type[Any]:
    """Return the class that an aggregate is of; a class of entities itself."""
    return declaration_of(cls).of or cls


def _families(classes: Classes) -> Iterable[Classes]:
    """Return the classes in groups that can be opened alone: what is maintained from a class is in the group of that."""
    groups: list[list[type[Any]]] = []
    for cls in classes:
        near = {cls, *_near(cls)}
        touched = [
            group for group in groups if near & {relative for member in group for relative in (member, *_near(member))}
        ]
        groups = [group for group in groups if group not in touched]
        groups.append([*(member for group in touched for member in group), cls])
    return groups


def _near(cls: type[Any]) -> set[Any]:
    """Return the classes that a class is maintained from."""
    measured = [field.measure.of for field in declaration_of(cls).fields if field.measure is not None]
    return {_source(cls), *measured}
