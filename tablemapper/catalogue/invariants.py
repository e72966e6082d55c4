"""Invariants of every catalogue, and of the names of its tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from .catalogue import Catalogue


def names_in(part: Catalogue) -> list[str]:
    """Return the physical names of the tables of classes, and of what is maintained from them."""
    return [*chain.from_iterable(table.names for table in part.tables.values()), *part.index_tables.values()]


def meanings(catalogue: Catalogue) -> list[str]:
    """Return the physical names of all tables of a catalogue, those among them that are only kept, or to be cleared."""
    live = [name for part in catalogue.parts for name in names_in(part)]
    kept_tables = [name for entry in catalogue.history for name in entry.kept]
    return [*live, *kept_tables, *(name for stone in catalogue.tombstones for name in stone.tables)]


def contradictions(catalogue: Catalogue, names: Collection[str]) -> Iterator[str]:
    """Yield the contradictions of a catalogue; ``names``: of the tables that exist, without those of the engine."""
    yield from _of_names(catalogue, {name.lower() for name in names})
    yield from _of_versions(catalogue)
    yield from _of_states(catalogue)
    history, staged = catalogue.history, catalogue.staged
    current, running = [entry.id for entry in history if entry.undone is None], history.running
    if len(current) != len({*current}):
        yield "a migration is done twice"
    if running is not None and (staged is None or staged.migration != running.id):
        yield f"{running.id} runs, and copies nothing"
    if (staged is None) == bool(catalogue.copies):
        yield "something is copied for no migration, or nothing for the one that is under way"
    if any(entry.contracted and (entry.undone or entry.switched is None) for entry in history):
        yield "a migration was contracted that is not done"


def _of_names(catalogue: Catalogue, names: Collection[str]) -> Iterator[str]:
    """Yield the faults of physical names: each that exists has one meaning, and no other has one."""
    physical = meanings(catalogue)
    lowered = {name.lower() for name in physical}
    if len(lowered) != len(physical):
        yield "a table has two meanings"
    if missing := lowered.difference(names):
        yield f"the tables {', '.join(sorted(missing))} do not exist"
    if unexplained := set(names) - lowered:
        yield f"the tables {', '.join(sorted(unexplained))} belong to nothing"
    kept_tables = {name for entry in catalogue.history for name in entry.kept}
    if unkept := {name for part in catalogue.former.values() for name in names_in(part)} - kept_tables:
        yield f"the former tables {', '.join(sorted(unkept))} are not kept"


def _of_versions(catalogue: Catalogue) -> Iterator[str]:
    """Yield the faults of the versions of classes, and of the mirrors that they use."""
    migrations, twins = {entry.id for entry in catalogue.history}, [twin.migration for twin in catalogue.twins]
    if len(twins) != len({*twins}):
        yield "a migration has two twins"
    for name, versions in catalogue.versions.by_class.items():
        try:
            live = [
                (version.form, version.beside) for version in versions if version.state in ("current", "behind", "twin")
            ]
        except ValueError as error:
            yield f"{name}: {error}"
            continue
        if len(live) != len({*live}):
            yield f"a form of {name} is in use twice"
        for version in versions:
            if version.beside is not None and version.beside not in twins:
                yield f"a version of {name} is beside {version.beside}, which has no twin"
            if version.until is None and version.behind is not None and version.behind not in migrations:
                yield f"a version of {name} is behind {version.behind}, which is unknown"


def _of_states(catalogue: Catalogue) -> Iterator[str]:
    """Yield the faults of the states of indexes and aggregates, and of the jobs that build them."""
    labels = {name for name, form in catalogue.models.items() if form.aggregate}
    labels |= {f"{name}.{index}" for name, form in catalogue.models.items() for index in form.indexes}
    if mismatched := catalogue.states.keys() ^ labels:
        yield f"the states of {', '.join(sorted(mismatched))} are missing, or of nothing"
    built = [label for job in catalogue.jobs for label in job.targets]
    building = [label for label, state in catalogue.states.items() if state.state in ("announced", "building")]
    if sorted(built) != sorted(building):
        yield f"{', '.join(sorted({*built} ^ {*building})) or 'something'} is not built by one job"
    for twin in catalogue.twins:
        part = twin.catalogue
        if part.past or part.jobs or part.twins or any(state.state == "building" for state in part.states.values()):
            yield f"the twin of {twin.migration} holds what belongs to the store"
