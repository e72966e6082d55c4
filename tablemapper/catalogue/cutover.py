"""A migration switches: new classes have replaced old ones, which become their twin, or end."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import attrs
import msgspec
from msgspec.structs import replace

from ..entities.aggregates import kept_field
from ..evolution.definitions import has_names_of, holds_all
from ..evolution.history import History
from ..evolution.versions import Version, Versions
from ..schema.labels import is_former
from ..schema.model import Schema
from ..schema.specs import AppliedSpec, Forms, LinkSpec, TombstoneSpec, form_hash
from .actions import ActionPlan, EndCopies, EndJob, ForgetIndex, RenameTable
from .catalogue import Catalogue, Mirror, labels_of
from .dropping import disable, states_after
from .freeze import check_thawed
from .property_names import Names, composed
from .transitions import MetadataChange, Transition, name_of

_log = logging.getLogger("tablemapper.catalogue")


def switched(draft: ActionPlan, catalogue: Catalogue, transition: Transition, entities: int) -> Catalogue:
    """Return a catalogue in which the staged classes have replaced those that they were copied from.

    Raises:
        StoreLocked: the store was frozen meanwhile.
    """
    check_thawed(catalogue)
    assert catalogue.staged is not None
    staged, ending, now_us, id = catalogue.staged.catalogue, transition.ending, draft.now, transition.id
    entry = catalogue.history.current(id)
    assert entry is not None
    for twin in catalogue.twins:  # of a version that is older still
        if catalogue.group(twin) & ending:
            catalogue = ended(draft, catalogue, twin, transition.name)
    old = catalogue.part(ending)
    versions = dict(catalogue.versions.by_class)
    for name in ending & versions.keys():
        existing, stay = versions[name], {version.form for version in staged.versions.of(name)}
        decides = {version.form: version for version in sorted(existing, key=lambda version: version.in_use)}
        versions[name] = [
            _stayed(version, decides) if version.form in stay else _replaced(version, transition, now_us, entry.started)
            for version in existing
        ]
    for name, staged_versions in staged.versions.by_class.items():
        existing = versions.get(name, ())
        in_use = {version.form for version in existing if version.in_use}
        versions[name] = [*existing, *(version for version in staged_versions if version.form not in in_use)]
    labels = {label for name, form in old.models.items() for label in labels_of(name, form)}
    for label in labels - transition.contested:
        draft.do(ForgetIndex(label))
    kept_tables: list[str] = []
    catalogue = _without_classes(draft, catalogue, ending)
    draft.do(EndCopies())
    if transition.links:
        twin = Mirror(id, transition.links, transition.writes, _without_builds(old))
        catalogue = attrs.evolve(catalogue, twins=(*catalogue.twins, twin))
    else:
        catalogue, kept_tables = _set_aside(draft, catalogue, old, id)
    catalogue = with_drops(catalogue.together(staged), transition)
    catalogue = attrs.evolve(
        catalogue,
        versions=_revived(catalogue, Versions(versions), transition),
        states=catalogue.states | states_after(draft, staged.states, transition.contested),
        staged=None,
        history=_history(catalogue.history, transition, now_us, entities, kept_tables),
    )
    return catalogue if transition.links else _with_tombstones(catalogue, old.models, transition.name, now_us)


def swapped(draft: ActionPlan, catalogue: Catalogue, twin: Mirror, transition: Transition) -> Catalogue:
    """Return a catalogue in which a twin and the classes that it is kept in step with have changed places.

    Nothing is copied. The classes end if the twin could not be written.
    """
    now_us, names = draft.now, catalogue.group(twin)
    current = catalogue.part(names)
    unchanged = _forms_of(transition.old) & _forms_of(transition.new)

    def after_swap(name: str, version: Version) -> Version:
        if version.until is not None:
            return _ended_again(version, transition.name, now_us) if name in names else version
        if version.beside == twin.migration:
            return version.live_after(twin.migration)
        stays = version.beside or name not in names or (name, version.form) in unchanged
        return version if stays else version.live_beside(twin.migration)

    versions = _revived(catalogue, catalogue.versions.each(after_swap), transition)
    new_twin = Mirror(twin.migration, tuple([link.reverse for link in twin.links]), True, _without_builds(current))
    new = attrs.evolve(
        with_drops(_without_classes(draft, catalogue, names).together(twin.catalogue), transition),
        versions=versions,
        twins=tuple([new_twin if mirror is twin else mirror for mirror in catalogue.twins]),
    )
    if not transition.back:
        entry = AppliedSpec(transition.id, transition.script, list(transition.steps), started=now_us)
        new = attrs.evolve(new, history=new.history.and_(entry))
    new = attrs.evolve(new, history=_history(new.history, transition, now_us, 0, []))
    for label, form in twin.catalogue.states.items():
        if form.state == "disabled" and label in new.states:  # what a build left of it is not built on
            new = disable(draft, new, label, keep_ever=True)
    return new if twin.writes else ended(draft, new, new_twin, transition.name)


def ended(draft: ActionPlan, catalogue: Catalogue, twin: Mirror, by: str, *, unkept: bool = False) -> Catalogue:
    """Return a catalogue without a twin: the versions that use it are retired; contracting drops its tables.

    Args:
        unkept: whether it ends because a process is about to write that does not know the script.
    """
    catalogue, kept_tables = _set_aside(draft, catalogue, twin.catalogue, twin.migration)
    entry = catalogue.history.last(twin.migration)
    assert entry is not None
    history = catalogue.history.with_(entry, kept=[*entry.kept, *kept_tables])
    versions = catalogue.versions.retire(
        draft.now, by, lambda _, version: version.beside == twin.migration, unkept=unkept
    )
    twins = tuple([sibling for sibling in catalogue.twins if sibling.migration != twin.migration])
    catalogue = attrs.evolve(catalogue, versions=versions, twins=twins, history=history)
    return _with_tombstones(catalogue, twin.catalogue.models, by, draft.now)


def end_stale_twins(draft: ActionPlan, catalogue: Catalogue, migrations: Collection[str]) -> Catalogue:
    """Return a catalogue without the twins that this process cannot keep in step with what it is about to write."""
    for twin in [twin for twin in catalogue.twins if twin.migration in migrations]:
        catalogue = ended(draft, catalogue, twin, twin.migration, unkept=True)
        _log.warning(
            "the version before %s ends: this process writes what that made, and opened the store without migrations= that "
            "contain it", twin.migration,
        )  # fmt: skip
    return catalogue


def with_drops(catalogue: Catalogue, change: Transition | MetadataChange) -> Catalogue:
    """Return a catalogue that marks the drops of a migration as undeclared; as declared, if the migration is undone.

    Contracting drops them, unless a later version declares them again. A later migration may have ended them before
    that; once both are undone, the versions that declare them bring them back.
    """
    applied = catalogue.history.current(change.id)
    labels = ([] if applied is None else applied.drops) if change.back else change.drops
    states = {
        label: replace(catalogue.states[label], declared=change.back) for label in labels if label in catalogue.states
    }
    since = 0 if applied is None else applied.started
    stones = [
        stone for stone in catalogue.tombstones if stone.tables or stone.label not in labels or stone.since < since
    ]
    return attrs.evolve(
        catalogue,
        states=catalogue.states | states,
        tombstones=tuple(stones) if change.back else catalogue.tombstones,
    )


def with_new_versions(catalogue: Catalogue, edit: MetadataChange, now_us: int) -> Catalogue:
    """Return a catalogue with the versions after an edit; older ones go on under their names of properties."""
    versions = dict(catalogue.versions.by_class)
    for model in edit.new:
        if model.name not in catalogue.models:  # an aggregate that is new: it is built when it is opened
            continue
        names = edit.names[model.name] if model.aggregate is None else {}
        existing = versions.get(model.name, ())
        older = [
            replace(version, renames=composed(version, names), behind=version.behind or edit.id)
            for version in existing
            if version.in_use and version.form != model.form_hash
        ]
        # (A class that declares more is noted when it is opened. What was opened before keeps its former definitions.)
        same_since = [version.since for version in existing if version.in_use and version.form == model.form_hash]
        stored_form = catalogue.models[model.name]
        fits = same_since or (holds_all(stored_form, model.form) and has_names_of(stored_form, model.form))
        new = [Version(model.form_hash, min(same_since, default=now_us))] if fits else []
        ended_versions = [
            version.retire(version.until or now_us, edit.id) if version.undone else version
            for version in existing
            if not version.in_use
        ]
        versions[model.name] = [*ended_versions, *older, *new]
    return attrs.evolve(catalogue, versions=Versions(versions))


def linked(twin: Mirror, names: Mapping[str, Names]) -> Mirror:
    """Return a twin with its links to the new names of properties, which are given by class."""

    def renamed(link: LinkSpec) -> LinkSpec:
        new_names = names.get(link.new, {})
        return replace(
            link,
            properties={old: new_names.get(new, new) for old, new in link.properties.items()},
            functions={new_names.get(new, new): function for new, function in link.functions.items()},
        )

    return attrs.evolve(twin, links=tuple(map(renamed, twin.links)))


def _forms_of(schema: Schema) -> set[tuple[str, str]]:
    """Return the forms of some classes, each with the name of the class."""
    return {(model.name, model.form_hash) for model in schema.models}


def _stayed(version: Version, decides: Mapping[str, Version]) -> Version:
    """Return a version that the classes after a migration have, too; ``decides``: by form, which version may run."""
    may_run = version.undone and version is decides[version.form]
    return replace(version, until=None, undone=False) if may_run else version


def _replaced(version: Version, transition: Transition, now_us: int, started: int) -> Version:
    """Return a version that a migration, which started then, replaced: it goes on beside the new one, or is retired."""
    if version.until is not None:
        return _ended_again(version, transition.name, now_us)
    if transition.links:
        return version.live_beside(transition.id)
    if transition.back and version.since < started:  # it was in use before the migration, too
        return replace(version, until=now_us, undone=True)
    return version.retire(now_us, transition.name)


def _ended_again(version: Version, by: str, now_us: int) -> Version:
    """Return a version that was retired, and might be opened again since that was undone; now it may not any more."""
    return version.retire(now_us, by) if version.undone else version


def _revived(catalogue: Catalogue, versions: Versions, transition: Transition) -> Versions:
    """Return versions of which those may be opened again that were in use before the store went the other way."""
    id, by = transition.id, name_of(transition.id, back=not transition.back)
    runs = [entry.script for entry in catalogue.history if entry.id == id and entry.undone is not None]
    is_other = runs[-1:] != [transition.script]  # it never ran, or was edited, and may make other classes
    if is_other and not transition.back:
        by_class = versions.by_class.items()
        retired_forms = {
            (name, version.form) for name, of_class in by_class for version in of_class if version.retired_by == by
        }
        same = {name for name, _ in retired_forms & _forms_of(transition.new)}
        other_names = {model.name for model in transition.new.models if model.aggregate is None} - same
        return versions.revive(id, by, but=other_names)
    return versions.revive(id, by)


def _without_builds(part: Catalogue) -> Catalogue:
    """Return a part of a catalogue in which everything that is not ready is disabled: a twin builds nothing."""
    states = {
        label: form if form.state == "ready" else replace(form, state="disabled") for label, form in part.states.items()
    }
    return attrs.evolve(part, states=states)


def _without_classes(draft: ActionPlan, catalogue: Catalogue, names: frozenset[str]) -> Catalogue:
    """Return a catalogue without some classes and their builds; the tables stay."""
    for job in catalogue.jobs:
        if job.owner in names:
            draft.do(EndJob(job.name))
    return catalogue.without(names)


def _set_aside(draft: ActionPlan, catalogue: Catalogue, part: Catalogue, id: str) -> tuple[Catalogue, list[str]]:
    """Rename the tables of classes that end, so that nothing reads them but an undoing of the migration.

    Returns:
        The catalogue of the file with these classes as former ones, and the new names of the tables. In a store that renames
        no tables they stay as they are, and no undoing reads them.
    """
    if not draft.renames:
        physical = [*(table.name for table in part.tables.values()), *part.index_tables.values()]
        return catalogue, [name for name in physical if draft.has(name)]
    names: dict[str, str] = {}

    def new_name(*before: str, number: int = 1) -> str:
        """Choose a new name of a table, and of the tables that begin with its name; return the first."""
        first, end = before[0], "" if number == 1 else f"_{number}"
        new_names = [f"{first}_before_{id}{end}{name.removeprefix(first)}" for name in before]
        if not all(map(draft.is_free, new_names)):
            return new_name(*before, number=number + 1)
        names.update(zip(before, map(draft.fresh, new_names), strict=True))
        return new_names[0]

    tables = {public: attrs.evolve(table, name=new_name(*table.names)) for public, table in part.tables.items()}
    indexes = {label: new_name(name) for label, name in part.index_tables.items() if draft.has(name)}
    draft.do(*(RenameTable(old, new) for old, new in names.items()))
    former_part = attrs.evolve(part, tables=tables, index_tables=part.index_tables | indexes)
    return attrs.evolve(catalogue, former=catalogue.former | {id: former_part}), [*names.values()]


def _with_tombstones(catalogue: Catalogue, ended_forms: Forms, by: str, now_us: int) -> Catalogue:
    """Return a catalogue with tombstones of aggregates that ended, where their class has the same form as before.

    Nothing else tells the older programs apart: they would bring the aggregate back, and the next script does not know
    it.
    """
    same = {
        name
        for name, form in ended_forms.items()
        if name in catalogue.models and form_hash(form) == form_hash(catalogue.models[name])
    }
    used_keys = {(form.table, str(form.partition), str(form.row)) for form in catalogue.models.values()}
    stones = [
        TombstoneSpec(name, msgspec.to_builtins(form), now_us, by)
        for name, form in ended_forms.items()
        if form.source in same and kept_field(name) is None and not is_former(name) and name not in catalogue.models
        if (form.table, str(form.partition), str(form.row)) not in used_keys  # (else it has another name now)
    ]
    labels = {stone.label for stone in stones}
    other_stones = [stone for stone in catalogue.tombstones if stone.label not in labels or stone.tables]
    return attrs.evolve(catalogue, tombstones=(*other_stones, *stones))


def _history(history: History, transition: Transition, now_us: int, entities: int, kept_tables: list[str]) -> History:
    """Return the history after a switch, in which ``entities`` were copied, and the tables ``kept_tables`` were left."""
    entry = history.current(transition.id)
    assert entry is not None
    kept_tables = [*entry.kept, *kept_tables]
    if transition.back:
        return history.with_(entry, kept=kept_tables, undone=now_us)
    seconds, drops = (now_us - entry.started) / 1e6, list(transition.drops)
    return history.with_(entry, kept=kept_tables, switched=now_us, entities=entities, seconds=seconds, drops=drops)
