"""Names as the fence for readers: a program whose version of a class has ended cannot read on.

A read compares no generation, since that would cost more than the read. So the transaction that ends a version renames every
table that the version reads. The next statement of such a program fails, it reads the catalogue again, and is refused. Programs
of other versions that use the same tables find the new names there.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from ..entities.aggregates import kept_field
from ..schema.labels import Label, is_former
from .actions import ActionPlan, RenameTable
from .catalogue import Catalogue


def with_other_name(draft: ActionPlan, catalogue: Catalogue, public: str) -> Catalogue:
    """Return a catalogue in which an entity table has another physical name."""
    table = catalogue.tables[public]
    renamed = attrs.evolve(table, name=draft.fresh(public))
    draft.rename(table, renamed)
    return attrs.evolve(catalogue, tables={**catalogue.tables, public: renamed})


def _with_other_index_name(draft: ActionPlan, catalogue: Catalogue, label: str) -> Catalogue:
    """Return a catalogue in which the table of an index has another physical name."""
    owner, index = Label.of(label)
    new = draft.fresh(catalogue.models[owner].indexes[index].table)
    draft.do(RenameTable(catalogue.index_tables[label], new))
    return attrs.evolve(catalogue, index_tables={**catalogue.index_tables, label: new})


def rename_fence(draft: ActionPlan, new: Catalogue, old: Catalogue) -> Catalogue:
    """Return a catalogue with other names of the tables that versions read which it has ended; ``old``: until now."""
    readable = {name for seen, class_names in _ended_versions(old, new) for name in _read(seen, class_names)}
    if not readable:
        return new

    def renamed_part(part: Catalogue) -> Catalogue:
        for public in [public for public, table in part.tables.items() if table.name in readable]:
            part = with_other_name(draft, part, public)
        for label in [label for label, name in part.index_tables.items() if name in readable]:
            part = _with_other_index_name(draft, part, label)
        return part

    new = renamed_part(new)
    return attrs.evolve(
        new, twins=tuple([attrs.evolve(twin, catalogue=renamed_part(twin.catalogue)) for twin in new.twins])
    )


def _ended_versions(before: Catalogue, after: Catalogue) -> Iterator[tuple[Catalogue, set[str]]]:
    """Yield the classes of which versions have ended, each time with the catalogue as these versions saw it."""
    by_mirror: dict[str | None, set[str]] = {}
    for name in before.versions.by_class:
        live = {version.form for version in after.versions.live(name)}
        for version in before.versions.live(name):
            if version.form not in live:
                by_mirror.setdefault(version.beside, set()).add(name)
    old_stones = {(tombstone.label, tombstone.since) for tombstone in before.tombstones}
    for tombstone in after.tombstones:  # (versions that declare it have ended)
        owner, index = Label.of(tombstone.label)
        form = after.models.get(owner)
        is_dropped = form is None or (bool(index) and index not in form.indexes)
        is_new = (tombstone.label, tombstone.since) not in old_stones
        if is_new and is_dropped and tombstone.instead is None and not is_former(tombstone.label):
            by_mirror.setdefault(None, set()).add(owner)
    for twin in before.twins:
        if names := by_mirror.pop(twin.migration, None):
            yield before.without(before.group(twin)).together(twin.catalogue), names
    yield from ((before, names) for names in by_mirror.values())


def _read(seen: Catalogue, names: set[str]) -> Iterator[str]:
    """Yield the tables that are read for some classes, their aggregates, and those with a field that these keep."""
    while True:
        extended = {name for name, form in seen.models.items() if form.source in names}
        extended |= {maintained[0] for name in names | extended if (maintained := kept_field(name)) is not None}
        if extended <= names:
            break
        names |= extended
    for name in names & seen.models.keys():
        form = seen.models[name]
        yield seen.tables[form.table].name
        yield from (seen.index_tables[f"{name}.{index}"] for index in form.indexes)
