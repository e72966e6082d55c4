"""A migration that copies is begun or given up, one that copies nothing is done, and one that has switched is contracted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import attrs
from msgspec.structs import replace

from ..errors import InvalidMigration
from ..schema.labels import Label
from ..schema.model import Model
from ..schema.specs import AppliedSpec, form_hash
from .actions import ActionPlan, DropTable, EndCopies, ForgetIndex, RenameColumn, StartCopy
from .catalogue import Catalogue, CopySpec, StagedCatalogue, labels_of
from .cutover import ended, linked, swapped, with_drops, with_new_versions
from .dropping import drop
from .freeze import check_thawed
from .property_names import Names, with_names, without
from .registration import staged
from .tables import index_column_names
from .transitions import MetadataChange, Transition, name_of


def copy_forms(transition: Transition) -> list[CopySpec]:
    """Return the copies that a migration consists of, one for each conversion."""
    return [
        CopySpec(f"{transition.name} {number}", tuple([model.name for model in conversion.sources]))
        for number, conversion in enumerate(transition.conversions)
    ]


def _under_way(id: str, staged: StagedCatalogue) -> InvalidMigration:
    """Return the error of a migration that cannot begin, as another one has not finished."""
    return InvalidMigration(id, [f"{staged.migration} has not finished; run it to its end first"])


def started(draft: ActionPlan, catalogue: Catalogue, transition: Transition) -> Catalogue:
    """Return a catalogue in which a migration that copies is under way; the same if it was.

    Nothing is under way if a twin has the result already, kept in step since the migration switched, or was undone.

    Raises:
        InvalidMigration: another one is under way.
        StoreLocked: the store is frozen.
    """
    check_thawed(catalogue)
    # (The last entry of all can be of a later migration that was undone.)
    last_entry = catalogue.history.last(transition.id)
    is_same = last_entry is not None and last_entry.script == transition.script
    if catalogue.staged is not None:
        if catalogue.staged.migration != transition.name:
            raise _under_way(transition.id, catalogue.staged)
        if is_same:
            return catalogue
        catalogue = discarded(draft, catalogue)
    twin = next((twin for twin in catalogue.twins if twin.migration == transition.id), None)
    if twin is not None:
        last_entry = catalogue.history.last(transition.id)
        if last_entry is not None and last_entry.script == transition.script:
            return swapped(draft, catalogue, twin, transition)
        catalogue = ended(draft, catalogue, twin, name_of(transition.id, back=not transition.back))
    parts = staged(draft, transition.new)
    contested = sorted(transition.contested)
    building = {label: replace(parts.states[label], state="building", since=draft.now) for label in contested}
    # (The old indexes of these names end. A run that was killed at its end may have left notes of the same name.)
    draft.do(*map(ForgetIndex, contested), EndCopies(notes=True))
    copies = copy_forms(transition)
    draft.do(*(StartCopy(copy, tuple(map(catalogue.table_of, copy.sources))) for copy in copies))
    history = catalogue.history
    if not transition.back:
        entry = AppliedSpec(transition.id, transition.script, list(transition.steps), started=draft.now)
        history = history.and_(entry)
    under_way = StagedCatalogue(transition.name, attrs.evolve(parts, states=parts.states | building))
    return attrs.evolve(catalogue, staged=under_way, copies=tuple(copies), history=history)


def adopted(draft: ActionPlan, catalogue: Catalogue, applied: Iterable[tuple[str, str]]) -> Catalogue:
    """Return a catalogue in which migrations, each with its digest, are done: the store is younger than they are."""
    entries = [AppliedSpec(id, script, started=draft.now, switched=draft.now) for id, script in applied]
    return attrs.evolve(catalogue, history=catalogue.history.and_(*entries))


def discarded(draft: ActionPlan, catalogue: Catalogue) -> Catalogue:
    """Return a catalogue without the migration that is under way, and without the tables that it copied to."""
    assert catalogue.staged is not None
    parts = catalogue.staged.catalogue
    names = [*(name for table in parts.tables.values() for name in table.names), *parts.index_tables.values()]
    draft.do(*(DropTable(name) for name in dict.fromkeys(names) if draft.has(name)), EndCopies(notes=True))
    history = catalogue.history.without(catalogue.history.running)
    return attrs.evolve(catalogue, staged=None, copies=(), history=history)


def edited(draft: ActionPlan, catalogue: Catalogue, edit: MetadataChange) -> Catalogue:
    """Return a catalogue after a migration that copies nothing, or its undoing.

    Raises:
        InvalidMigration: another one is under way.
        StoreLocked: the store is frozen.
    """
    check_thawed(catalogue)
    if catalogue.staged is not None:
        raise _under_way(edit.id, catalogue.staged)
    now_us = draft.now
    for name, names in edit.names.items():
        catalogue = _renamed(draft, catalogue, name, names, edit.id)
    catalogue = attrs.evolve(catalogue, twins=tuple([linked(twin, edit.names) for twin in catalogue.twins]))
    catalogue = with_drops(with_new_versions(catalogue, edit, now_us), edit)
    if edit.back:
        catalogue = attrs.evolve(catalogue, versions=catalogue.versions.revive(edit.id, edit.id))
        history = catalogue.history.with_(catalogue.history.current(edit.id), undone=now_us)
    else:
        entry = AppliedSpec(edit.id, edit.script, list(edit.steps), now_us, now_us, drops=list(edit.drops))
        history = catalogue.history.and_(entry)
    return attrs.evolve(catalogue, history=history)


def _renamed(draft: ActionPlan, catalogue: Catalogue, name: str, names: Names, id: str) -> Catalogue:
    """Return a catalogue with other names of properties of a class, and of their columns in its indexes."""
    form = catalogue.models[name]
    for index, spec in form.indexes.items():
        old_properties = [property for property in spec.include if not form.fields[property].in_key]
        new_properties = [names.get(property, property) for property in old_properties]
        table = catalogue.index_tables[f"{name}.{index}"]
        columns = zip(index_column_names(old_properties), index_column_names(new_properties), strict=True)
        draft.do(*(RenameColumn(table, old, new) for old, new in columns if old != new))
    sharing = {key: sibling for key, sibling in catalogue.models.items() if key != name and sibling.table == form.table}
    column_of = dict(catalogue.tables[form.table].properties)
    for old, new in names.items():
        clashing = [key for key, sibling in sharing.items() if new in sibling.fields]
        if clashing and old in column_of and column_of.get(new, column_of[old]) != column_of[old]:
            fault = f'{name}.{old} cannot be called "{new}", as {clashing[0]} has another field of this name in the same table'
            remedy = f"choose another name, or name {clashing[0]} in old= and new=, too, so that both are copied"
            raise InvalidMigration(id, [f"{fault}: {remedy}"])
    catalogue = with_names(catalogue, name, names)
    unused_names = [
        old
        for old in names
        if not any(old in sibling.fields for sibling in sharing.values()) and old not in names.values()
    ]
    tables = catalogue.tables | {form.table: without(catalogue.tables[form.table], unused_names)}
    return attrs.evolve(catalogue, tables=tables)


def is_undone(catalogue: Catalogue, id: str) -> bool:
    """Return whether a migration is undone, or about to be."""
    under_way = (
        {catalogue.staged.migration} if catalogue.staged is not None else {entry.id for entry in catalogue.history}
    )
    return name_of(id, back=True) in under_way or catalogue.history.current(id) is None


def retired(draft: ActionPlan, catalogue: Catalogue, id: str) -> Catalogue:
    """Return a catalogue whose versions have all seen a migration, and declare no class that it drops."""
    for twin in catalogue.twins:
        if id == twin.migration or catalogue.history.current(twin.migration) is None:
            catalogue = ended(draft, catalogue, twin, twin.migration)
    entry, dropped_names = catalogue.history.current(id), dropped_classes(catalogue, id)
    assert entry is not None
    versions = catalogue.versions.retire(
        draft.now, id, lambda name, version: version.behind == id or name in dropped_names
    )
    declared_again = {label for label, state in catalogue.states.items() if state.declared}
    drops = [label for label in entry.drops if label not in declared_again]
    history = catalogue.history.with_(entry, contracted=entry.contracted or draft.now, drops=drops)
    return attrs.evolve(catalogue, versions=versions, history=history)


def dropped_classes(catalogue: Catalogue, id: str) -> list[str]:
    """Return the classes that a migration drops, and their aggregates."""
    entry = catalogue.history.current(id)
    labels = set() if entry is None else set(entry.drops)
    labels -= {label for label, state in catalogue.states.items() if state.declared}
    return [name for name, form in catalogue.models.items() if name in labels or form.source in labels]


def dropped_labels(catalogue: Catalogue, new: Mapping[str, Iterable[Model]]) -> frozenset[str]:
    """Return the labels of what migrations drop, and of other definitions of the same names that are older than they.

    Args:
        new: by migration, its new classes; what they declare is not dropped any more.
    """
    labels = set[str]()
    for entry in catalogue.history:
        if entry.switched and entry.undone is None:
            candidates = [*entry.drops, *(stone.label for stone in catalogue.tombstones if stone.by == entry.id)]
            bare = [str(Label.of(label).bare) for label in candidates]
            labels |= {label for label in bare if _is_older(catalogue, label, entry.switched)}
            labels -= {label for model in new.get(entry.id, ()) for label in labels_of(model.name, model.form)}
    return frozenset(labels)


def _is_older(catalogue: Catalogue, label: str, time: int) -> bool:
    """Return whether a store has a class, or an aggregate, as a version declared it before a time, or an index."""
    form, state = catalogue.models.get(label), catalogue.states.get(label)
    if form is None:
        return "." in label  # (nobody can tell which version declared an index, and it holds nothing of its own)
    times = [version.since for version in catalogue.versions.of(label) if version.form == form_hash(form)]
    return any(since < time for since in (*times, *(() if state is None else (state.since,))))


def contracted(draft: ActionPlan, catalogue: Catalogue, id: str, tables: Collection[str]) -> Catalogue:
    """Return a catalogue without the tables and the definitions that a migration has replaced or drops.

    ``tables``: those that it and undone migrations have kept, and that are empty.
    """
    # (A version that has not seen an undoing goes on, and says of which migration.)
    unseen = {version.behind for name in catalogue.versions.by_class for version in catalogue.versions.live(name)}
    undone = [
        entry
        for entry in catalogue.history
        if entry.undone is not None and entry.id not in unseen and set(tables).issuperset(entry.kept)
    ]
    current = catalogue.history.current(id)
    draft.do(*(DropTable(name) for entry in (current, *undone) if entry is not None for name in entry.kept))
    for label in [] if current is None else current.drops:
        if label in catalogue.models or label in catalogue.index_tables:  # (else it was dropped with its class)
            catalogue = drop(draft, catalogue, label, id)
    history = catalogue.history.without(*undone).with_(current, kept=[], drops=[])
    kept_former = {
        migration: part
        for migration, part in catalogue.former.items()
        if not any(table.name in tables for table in part.tables.values())
    }
    return attrs.evolve(catalogue, former=kept_former, history=history)
