"""What a switch makes of a catalogue: some classes take the place of others, which become their twin, or end."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import attrs
from msgspec.structs import replace

from ....schema.forms import AppliedForm, LinkForm, VersionForm, form_hash
from ...migration import Edit, Transition
from ..file.writer import Writer
from ..rows.building import states_after
from ..rows.contested import VIOLATIONS
from ..rows.jobs import BUILDS
from ..sql.catalogue import COPIES, Catalogue, Twin, labels_of, write_catalogue
from ..sql.names import Names
from ..sql.tables import quoted

__all__ = ["end_unkept", "ended", "linked", "swapped", "switched", "with_drops"]

_log = logging.getLogger("tablemapper.sqlite")


def switched(
    writer: Writer, catalogue: Catalogue, transition: Transition, staged: Catalogue, entities: int
) -> Catalogue:
    """Return a catalogue in which what was written has taken the place of what it was made of."""
    ending, now, id = transition.ending, writer.timestamp, transition.id
    for twin in catalogue.twins:  # of an older version still
        if catalogue.group(twin) & ending:
            catalogue = ended(writer, catalogue, twin, id)
    part = catalogue.part(ending)
    versions = dict(catalogue.versions)
    for name in ending & versions.keys():
        live = {version.form for version in staged.versions.get(name, ())}
        versions[name] = [
            one if one.until is not None or one.form in live else _left(one, transition, now) for one in versions[name]
        ]
    for name, forms in staged.versions.items():
        opened = versions.setdefault(name, [])
        live = {one.form for one in opened if one.until is None and one.beside is None}
        versions[name] = [*opened, *(one for one in forms if one.form not in live)]
    labels = {label for name, form in part.models.items() for label in labels_of(name, form)}
    for label in labels - transition.contested:
        writer.execute(f'DELETE FROM {VIOLATIONS} WHERE "index" = ?', (label,))
    kept: list[str] = []
    catalogue = _removed(writer, catalogue, ending)
    writer.execute(f"DELETE FROM {COPIES}")
    if transition.links:
        twin = Twin(id, transition.links, transition.writes, _at_rest(part))
        catalogue = attrs.evolve(catalogue, twins=(*catalogue.twins, twin))
    else:
        catalogue, kept = _set_aside(writer, catalogue, part, id)
    catalogue = with_drops(catalogue.together(staged), transition)
    return attrs.evolve(
        catalogue,
        versions=versions,
        states=catalogue.states | states_after(writer, staged.states, transition.contested),
        staged=None,
        history=_history(catalogue.history, transition, now, entities, kept),
    )


def swapped(writer: Writer, catalogue: Catalogue, twin: Twin, transition: Transition) -> Catalogue:
    """Return a catalogue in which a twin has taken the place of the classes that it is kept in step with, and they its own.

    Nothing is copied. If what they write is not kept in step with, they end.
    """
    now, names = writer.timestamp, catalogue.group(twin)
    part = catalogue.part(names)
    same = {
        name
        for name in names & twin.catalogue.models.keys()
        if form_hash(part.models[name]) == form_hash(twin.catalogue.models[name])
    }
    versions = {
        name: [_crossed(one, twin.migration, stays=name not in names or name in same) for one in forms]
        for name, forms in catalogue.versions.items()
    }
    other = Twin(twin.migration, tuple([link.reverse for link in twin.links]), True, _at_rest(part))
    after = attrs.evolve(
        with_drops(_removed(writer, catalogue, names).together(twin.catalogue), transition),
        versions=versions,
        twins=tuple([other if one is twin else one for one in catalogue.twins]),
    )
    if not transition.back:
        entry = AppliedForm(transition.id, transition.script, list(transition.steps), started=now)
        after = attrs.evolve(after, history=(*after.history, entry))
    after = attrs.evolve(after, history=_history(after.history, transition, now, 0, []))
    return after if twin.writes else ended(writer, after, other, twin.migration)


def ended(writer: Writer, catalogue: Catalogue, twin: Twin, by: str, *, unkept: bool = False) -> Catalogue:
    """Return a catalogue without a twin: who lives in it is retired, and its tables are left to be contracted.

    Args:
        writer: the transaction.
        catalogue: of the file.
        twin: which.
        by: the migration that ends it.
        unkept: it ends since a process is about to write that does not know the script.
    """
    catalogue, kept = _set_aside(writer, catalogue, twin.catalogue, twin.migration)
    of = max(at for at, one in enumerate(catalogue.history) if one.id == twin.migration)
    history = [replace(one, kept=[*one.kept, *kept]) if at == of else one for at, one in enumerate(catalogue.history)]
    versions = {
        name: [
            replace(one, until=writer.timestamp, retired_by=by, beside=None, unkept=unkept)
            if one.beside == twin.migration and one.until is None
            else one
            for one in forms
        ]
        for name, forms in catalogue.versions.items()
    }
    twins = tuple([one for one in catalogue.twins if one is not twin])
    return attrs.evolve(catalogue, versions=versions, twins=twins, history=tuple(history))


def end_unkept(catalogue: Catalogue, twins: Iterable[Twin], writer: Writer) -> None:
    """Let twins end that this process cannot keep in step with what it is about to write."""
    for twin in twins:
        catalogue = ended(writer, catalogue, twin, twin.migration, unkept=True)
        _log.warning(
            "the version before %s ends: this process writes what that made, and opened the store without migrations= that "
            "contain it", twin.migration,
        )  # fmt: skip
    write_catalogue(writer, catalogue)
    writer.bump_generation()


def with_drops(catalogue: Catalogue, change: Transition | Edit) -> Catalogue:
    """Return a catalogue in which the newest version does not declare what a migration drops; or does, if that is undone.

    It goes when the migration is contracted, unless a later version declares it again.
    """
    applied = [one for one in catalogue.history if one.id == change.id and one.undone is None]
    labels = [label for one in applied for label in one.drops] if change.back else change.drops
    states = {one: replace(catalogue.states[one], declared=change.back) for one in labels if one in catalogue.states}
    return attrs.evolve(catalogue, states=catalogue.states | states)


def linked(twin: Twin, names: Mapping[str, Names]) -> Twin:
    """Return a twin once properties of the classes of the file have other names."""

    def renamed(link: LinkForm) -> LinkForm:
        of = names.get(link.new, {})
        return replace(
            link,
            properties={old: of.get(new, new) for old, new in link.properties.items()},
            functions={of.get(new, new): one for new, one in link.functions.items()},
        )

    return attrs.evolve(twin, links=tuple(map(renamed, twin.links)))


def _crossed(version: VersionForm, migration: str, *, stays: bool) -> VersionForm:
    """Return a version of a class as it is once a twin and the classes of the file have changed places."""
    if version.until is not None:
        return version
    if version.beside == migration:
        return replace(version, beside=None, behind=None if version.behind == migration else version.behind)
    return (
        version if stays or version.beside else replace(version, beside=migration, behind=version.behind or migration)
    )


def _left(version: VersionForm, transition: Transition, now: int) -> VersionForm:
    """Return a version of a class that ends, and may go on beside what takes its place."""
    if transition.links:
        return replace(version, beside=transition.id, behind=version.behind or transition.id)
    return replace(version, until=now, retired_by=transition.id)


def _at_rest(part: Catalogue) -> Catalogue:
    """Return what there is of classes, without what was being built: that comes to no end here."""
    states = {
        label: form if form.state == "ready" else replace(form, state="disabled") for label, form in part.states.items()
    }
    return attrs.evolve(part, states=states)


def _removed(writer: Writer, catalogue: Catalogue, names: frozenset[str]) -> Catalogue:
    """Return a catalogue without some classes; nothing of them is built any more."""
    for job in catalogue.jobs:
        if job.owner in names:
            writer.execute(f"DELETE FROM {BUILDS} WHERE name = ?", (job.name,))
    return catalogue.without(names)


def _set_aside(writer: Writer, catalogue: Catalogue, part: Catalogue, id: str) -> tuple[Catalogue, list[str]]:
    """Rename the tables of classes that end, so that nobody reads them but who undoes the migration.

    Returns:
        The catalogue of the file with that, and the names.
    """
    here = {str(name).lower() for (name,) in writer.execute("SELECT name FROM sqlite_schema")}
    taken = here | catalogue.past
    names: dict[str, str] = {}

    def aside(*before: str, number: int = 1) -> str:
        """Give a table another name, and those that belong to it; return it."""
        first, end = before[0], "" if number == 1 else f"_{number}"
        after = [f"{first}_before_{id}{end}{name.removeprefix(first)}" for name in before]
        if not taken.isdisjoint(map(str.lower, after)):
            return aside(*before, number=number + 1)
        names.update(zip(before, after, strict=True))
        taken.update(map(str.lower, after))
        return after[0]

    tables = {public: attrs.evolve(table, name=aside(*table.ddl())) for public, table in part.tables.items()}
    indexes = {label: aside(name) for label, name in part.index_tables.items() if name.lower() in here}
    for old, new in names.items():
        writer.execute(f"ALTER TABLE {quoted(old)} RENAME TO {quoted(new)}")
    former = attrs.evolve(part, tables=tables, index_tables=part.index_tables | indexes)
    past = catalogue.past | {name.lower() for name in (*names, *names.values())}
    return attrs.evolve(catalogue, former=catalogue.former | {id: former}, past=past), [*names.values()]


def _history(
    history: tuple[AppliedForm, ...], transition: Transition, now: int, entities: int, kept: list[str]
) -> tuple[AppliedForm, ...]:
    entry = next(one for one in history if one.id == transition.id and one.undone is None)
    if transition.back:
        after = replace(entry, undone=now, kept=[*entry.kept, *kept])
    else:
        after = replace(
            entry,
            switched=now,
            entities=entities,
            seconds=(now - entry.started) / 1e6,
            kept=[*entry.kept, *kept],
            drops=list(transition.drops),
        )
    return tuple([after if one is entry else one for one in history])
