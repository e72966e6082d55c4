"""Indexes, aggregates and classes are dropped or disabled, or are ready.

A drop removes the definition from the catalogue at once, and leaves a tombstone. In the same transaction the tables get
other names, so that no program reads what nobody maintains; see `fences`. The tables may be large, so short
transactions clear them afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import attrs
import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ..entities.aggregates import kept_field
from ..errors import InvalidQuery
from ..evolution.definitions import keepers_of, takes_place_of
from ..evolution.rules import reads
from ..evolution.versions import Versions
from ..schema.labels import Label, is_former, plain_name
from ..schema.specs import BuildStateSpec, TombstoneSpec
from . import actions
from .catalogue import Catalogue, values_label, values_table
from .fences import with_other_name
from .tables import Table


def drop(
    draft: actions.ActionPlan,
    catalogue: Catalogue,
    label: str,
    by: str | None = None,
    replacement: str | None = None,
    *,
    with_owner: bool = False,
    returns: bool = False,
) -> Catalogue:
    """Return a catalogue without an index, an aggregate or a class, and without the aggregates over it.

    Args:
        replacement: the label of the index that answers for it, where a program still declares it.
        with_owner: whether the class that keeps it as a maintained field is dropped, too.
        returns: whether it may come back.

    Raises:
        InvalidQuery: the catalogue does not have it, or an index reads it.
    """
    owner, index = Label.of(label)
    form = catalogue.models.get(owner)
    if form is None or (index and index not in form.indexes):
        raise InvalidQuery(f"drop: the store has no {label}")
    if not with_owner and (readers := _indexes_over(catalogue, owner)):
        raise InvalidQuery(f"drop: the index {readers[0]} is over {owner.replace(':', '.')}; drop that first")
    if index:
        labels = {label}
        catalogue, physical = _without_index(catalogue, owner, index)
    else:
        labels = {owner, *(f"{owner}.{name}" for name in form.indexes)}
        keepers = keepers_of(owner, catalogue.models)
        for name in [
            name for name, candidate in catalogue.models.items() if candidate.source == owner or name in keepers
        ]:
            catalogue = drop(draft, catalogue, name, by, with_owner=True, returns=returns)
        catalogue, physical = _without_class(draft, catalogue, owner)
    draft.do(*map(actions.ForgetIndex, sorted(labels)))
    renamed = _renamed(draft, physical)
    definition = msgspec.to_builtins(form.indexes[index] if index else form)
    tombstone = TombstoneSpec(label, definition, draft.now, by, replacement, renamed, returns or UNSET)
    return attrs.evolve(
        without_jobs(draft, catalogue, labels),
        states={other_label: state for other_label, state in catalogue.states.items() if other_label not in labels},
        tombstones=(*catalogue.tombstones, tombstone),
    )


def drop_class(draft: actions.ActionPlan, catalogue: Catalogue, name: str, class_names: Collection[str]) -> Catalogue:
    """Return a catalogue without a class, and what is maintained from it alone; the class may come back, empty.

    Args:
        name: of the class.
        class_names: the classes and aggregates that the program knows, by name.

    Raises:
        InvalidQuery: others need it, or a migration runs.
    """
    if name not in catalogue.models:
        raise InvalidQuery(f"drop: the store has no {name}")
    keepers = keepers_of(name, catalogue.models)
    over = [aggregate for aggregate, form in catalogue.models.items() if form.source == name or aggregate in keepers]
    for aggregate in over:
        if (maintained := kept_field(aggregate)) is not None and maintained[0] != name:
            raise InvalidQuery(f"drop: {name} keeps {'.'.join(maintained)}; remove that field first")
        if maintained is None and aggregate not in class_names:
            raise InvalidQuery(f"drop: {aggregate} is maintained from {name}; open the store with it, too")
    _check_alone(catalogue, name, over)
    under_way = [part.migration for part in (catalogue.staged, *catalogue.twins) if part is not None]
    if catalogue.history.running is not None:
        under_way.append(catalogue.history.running.id)
    if under_way:
        raise InvalidQuery(f"drop: {under_way[0]} has not ended; run it to its end, and contract it, first")
    new = drop(draft, catalogue, name, returns=True)
    dropped_names = catalogue.models.keys() - new.models.keys()
    # (What it was before it was dropped the last time is of no use.)
    stones = [
        stone
        for stone in new.tombstones
        if stone.tables or stone.since == draft.now or stone.bare.owner not in dropped_names
    ]
    versions = {
        class_name: class_versions
        for class_name, class_versions in new.versions.by_class.items()
        if class_name not in dropped_names
    }
    return attrs.evolve(new, tombstones=tuple(stones), versions=Versions(versions))


def _check_alone(catalogue: Catalogue, name: str, over: Collection[str]) -> None:
    """Raise InvalidQuery if a class, or an aggregate over it, shares its table with others."""
    for class_name in (name, *over):
        table = catalogue.models[class_name].table
        sharing = [
            candidate
            for candidate, form in catalogue.models.items()
            if form.table == table and candidate not in (name, *over)
        ]
        if sharing and class_name == name:
            raise InvalidQuery(
                f'drop: {name} shares "{table}" with {sharing[0]}; delete its entities with store.clear({name})'
            )
        if sharing:
            raise InvalidQuery(
                f'drop: {class_name}, which is maintained from {name}, shares "{table}" with {sharing[0]}; drop {class_name} with a script first'
            )


def _renamed(draft: actions.ActionPlan, names: Iterable[str]) -> list[str]:
    """Rename the tables that exist, so that nobody reads them any more; return their names after that."""
    renamed = {name: draft.fresh(f"{name}_dropped") for name in names if draft.has(name)}
    draft.do(*(actions.RenameTable(old, new) for old, new in renamed.items()))
    return list(renamed.values())


def _without_index(catalogue: Catalogue, owner: str, index: str) -> tuple[Catalogue, list[str]]:
    """Return a catalogue without an index, and the physical name of its table."""
    form = catalogue.models[owner]
    indexes = {name: index_form for name, index_form in form.indexes.items() if name != index}
    models = catalogue.models | {owner: replace(form, indexes=indexes)}
    index_tables = dict(catalogue.index_tables)
    physical = [index_tables.pop(f"{owner}.{index}")]
    return attrs.evolve(catalogue, models=models, index_tables=index_tables), physical


def _without_class(draft: actions.ActionPlan, catalogue: Catalogue, name: str) -> tuple[Catalogue, list[str]]:
    """Return a catalogue without a class, and the names of its tables; its rows in a shared table are deleted."""
    models, index_tables = dict(catalogue.models), dict(catalogue.index_tables)
    form = models.pop(name)
    physical = [index_tables.pop(label) for label in sorted(f"{name}.{index}" for index in form.indexes)]
    if (values := index_tables.pop(values_label(name), None)) is not None:
        physical.append(values)
    tables = dict(catalogue.tables)
    table = tables[form.table]
    if len([name for name in table.types if not name.endswith("#")]) > 1:  # (others have their rows in it, too)
        draft.do(actions.DeleteClass(table, name))
        types = tuple(
            [f"{type_name}#" if type_name == name else type_name for type_name in table.types]
        )  # (its number stays taken)
        tables[form.table] = attrs.evolve(table, types=types)
    else:
        del tables[form.table]
        physical += [table.name, *([table.big_name] if table.spills else [])]
    return attrs.evolve(catalogue, models=models, index_tables=index_tables, tables=tables), physical


def drop_former(draft: actions.ActionPlan, catalogue: Catalogue) -> Catalogue:
    """Return a catalogue without the former definitions that no program declares any more."""
    for label in unused(catalogue):
        catalogue = drop(draft, catalogue, label)
    return catalogue


def unused(catalogue: Catalogue) -> list[str]:
    """Return the labels of former definitions that no program declares: all versions in use were opened later."""
    labels = []
    for label, state in catalogue.states.items():
        owner = Label.of(label).bare.owner
        in_use = [version for version in catalogue.versions.live(owner) if version.in_use]
        if is_former(label) and not state.declared and in_use and all(v.since >= state.since for v in in_use):
            labels.append(label)
    return [label for label in labels if Label.of(label).index == "" or Label.of(label).owner not in labels]


def disable(draft: actions.ActionPlan, catalogue: Catalogue, label: str, *, keep_ever: bool = False) -> Catalogue:
    """Return a catalogue in which an index or an aggregate is not maintained until it is built anew.

    It gets empty tables. An aggregate that shares its table loses its rows there.

    Args:
        keep_ever: whether an aggregate with ``_ever`` measures keeps its groups. The build takes over what they hold of
            entities that are gone.

    Raises:
        InvalidQuery: the catalogue does not have it.
    """
    owner, index = Label.of(label)
    form = catalogue.models.get(owner)
    if form is None or label not in catalogue.states:
        raise InvalidQuery(f"disable: the store has no index and no aggregate {label}")
    table = catalogue.tables[form.table]
    index_labels = (
        [label] if index else [*(f"{owner}.{name}" for name in form.indexes), *_indexes_over(catalogue, owner)]
    )
    labels = {label, *index_labels}
    replaced: list[str] = []

    def empty_table_like(name: str) -> str:
        fresh = draft.fresh(name)
        draft.do(actions.CreateLike(fresh, name))
        replaced.append(name)
        return fresh

    index_tables, tables = dict(catalogue.index_tables), dict(catalogue.tables)
    for table_label in [*index_labels, *([] if index else [values_label(owner)])]:
        if (name := index_tables.get(table_label)) is not None and draft.has(name):
            index_tables[table_label] = empty_table_like(name)
    keeps = keep_ever and form.keeps_ever
    if not index and len(table.types) > 1:
        if not keeps:
            draft.do(actions.DeleteClass(table, owner))
        catalogue = with_other_name(draft, catalogue, form.table)
        tables[form.table] = catalogue.tables[form.table]
    elif not index:
        emptied = tables[form.table] = attrs.evolve(table, name=empty_table_like(table.name))
        if keeps:
            draft.do(actions.CopyRows(table.name, emptied.name))
        if table.spills:
            draft.do(actions.CreateOverflowTable(emptied))
            replaced.append(table.big_name)
    draft.do(*map(actions.ForgetIndex, sorted(labels)))
    states = {
        state_label: replace(state, state="disabled", since=draft.now) if state_label in labels else state
        for state_label, state in catalogue.states.items()
    }
    definition = msgspec.to_builtins(form.indexes[index] if index else form)
    return attrs.evolve(
        without_jobs(draft, catalogue, labels),
        index_tables=index_tables,
        tables=tables,
        states=states,
        tombstones=(
            *catalogue.tombstones,
            TombstoneSpec(label, definition, draft.now, tables=_renamed(draft, replaced)),
        ),
    )


def _indexes_over(catalogue: Catalogue, name: str) -> list[str]:
    """Return the labels of the indexes that read the maintained field of an aggregate; none if it keeps no field."""
    maintained = None if is_former(name) else kept_field(name)
    if maintained is None or maintained[0] not in catalogue.models:
        return []
    owner, property = maintained
    return [f"{owner}.{name}" for name, index in catalogue.models[owner].indexes.items() if reads(index, property)]


def without_jobs(draft: actions.ActionPlan, catalogue: Catalogue, labels: set[str]) -> Catalogue:
    """Return a catalogue in which some labels are built no more."""
    jobs = []
    for job in catalogue.jobs:
        targets = job.targets - labels
        if targets and job.owner not in labels:
            jobs.append(attrs.evolve(job, targets=targets))
            draft.do(actions.ChangeJob(jobs[-1]))
        else:
            draft.do(actions.EndJob(job.name))
    return attrs.evolve(catalogue, jobs=tuple(jobs))


def finished(draft: actions.ActionPlan, catalogue: Catalogue, labels: Iterable[str]) -> Catalogue:
    """Return a catalogue in which some labels are built.

    Where a plain index is ready that replaces a unique one, the unique one is dropped.
    """
    built = frozenset(labels)
    jobs = tuple([job for job in catalogue.jobs if not job.targets <= built])
    catalogue = attrs.evolve(catalogue, states=states_after(draft, catalogue.states, built), jobs=jobs)
    for label in sorted(built):
        owner, index = Label.of(label)
        indexes = catalogue.models[owner].indexes
        for sibling, form in indexes.items() if index else ():
            if plain_name(sibling) == plain_name(index) and takes_place_of(indexes[index], form):
                catalogue = drop(draft, catalogue, f"{owner}.{sibling}", replacement=label)
    return catalogue


def states_after(
    draft: actions.ActionPlan, states: dict[str, BuildStateSpec], labels: Iterable[str]
) -> dict[str, BuildStateSpec]:
    """Return the states once some labels are built: ready, or violated if a unique index has duplicates."""
    new_states: dict[str, BuildStateSpec] = {}
    for label in labels:
        state: Literal["violated", "ready"] = "violated" if draft.is_violated(label) else "ready"
        new_states[label] = replace(states[label], state=state, since=draft.now, by=None)
    return states | new_states


def cleared(draft: actions.ActionPlan, catalogue: Catalogue, name: str) -> Catalogue:
    """Return a catalogue without a table that a drop left, which is empty."""
    draft.do(actions.DropTable(name))
    stones = [
        replace(stone, tables=[table_name for table_name in stone.tables if table_name != name])
        for stone in catalogue.tombstones
    ]
    return attrs.evolve(catalogue, tombstones=tuple(stones))


def tidied(draft: actions.ActionPlan, catalogue: Catalogue) -> Catalogue:
    """Return a catalogue without the tables that drops left, whose other tables have their public names if they can.

    Nobody else has the store open, so a name that once had a meaning may have another one.
    """
    if catalogue.staged is not None:
        return catalogue
    draft.do(*(actions.DropTable(name) for tombstone in catalogue.tombstones for name in tombstone.tables))
    tombstones = tuple([replace(tombstone, tables=[]) for tombstone in catalogue.tombstones])

    def public(physical: str, name: str) -> str:
        """Rename a table to its public name, if that is free; return the name that it has."""
        if is_former(name) or physical == name or (name.lower() != physical.lower() and draft.has(name)):
            return physical
        draft.do(actions.RenameTable(physical, name))
        return name

    def table_of(name: str, table: Table) -> Table:
        new_table = attrs.evolve(table, name=public(table.name, name))
        if table.spills and new_table.name != table.name:
            public(table.big_name, new_table.big_name)
        return new_table

    names = {f"{name}.{i}": index.table for name, form in catalogue.models.items() for i, index in form.indexes.items()}
    names |= {values_label(name): values_table(form.table, name) for name, form in catalogue.models.items()}
    index_tables = {
        label: name if is_former(label) or not draft.has(name) else public(name, names[label])
        for label, name in catalogue.index_tables.items()
    }
    tables = {name: table_of(name, table) for name, table in catalogue.tables.items()}
    draft.past.clear()
    return attrs.evolve(
        catalogue,
        tables=tables,
        index_tables=index_tables,
        tombstones=tombstones,
    )
