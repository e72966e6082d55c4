"""A store is opened with classes: what they add, and the jobs that build it; what other rules of time zones end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set

import attrs
from msgspec.structs import replace

from ..entities.aggregates import kept_field
from ..errors import SchemaMismatch
from ..evolution.changes import Anything
from ..evolution.definitions import aggregate_in
from ..evolution.evolution import Evolution, evolve
from ..evolution.spec_compiler import stored_schema
from ..evolution.versions import Versions
from ..schema.labels import Label
from ..schema.model import Model, Schema
from ..schema.specs import BuildStateSpec
from .actions import ActionPlan, SetColumn, StartJob
from .catalogue import Catalogue, JobSpec, Mirror
from .dropping import disable
from .layout import Layout
from .tables import Table
from .zone_rules import outdated, ruled_here


def opened(draft: ActionPlan, catalogue: Catalogue, schema: Schema, evolution: Evolution) -> Catalogue:
    """Return a catalogue that stores and maintains what a schema declares; what is new over known classes gets jobs."""
    layout = Layout(draft, catalogue)
    layout.drop(evolution.dropped)
    layout.widen(evolution.widened)
    layout.rename(evolution.former)
    old_tables = dict(layout.tables)
    layout.extend(schema, evolution.models_after)
    new = layout.catalogue(evolution)
    for model, property in evolution.fields:
        name = aggregate_in(new.models, model.name, model.form) or model.name
        table = new.table_of(name)
        _fill(draft, old_tables[new.models[name].table], table, model, property)
    for model in evolution.typed:
        table = new.table_of(aggregate_in(new.models, model.name, model.form) or model.name)
        draft.do(SetColumn(table, model.name, "EntityType", model.declaration.type_name))
    return _registered(draft, new, targets(evolution, catalogue.models.keys() - evolution.dropped))


def as_it_is(
    subject: str,
    schema: Schema | None,
    catalogue: Catalogue,
    compare: Callable[[Schema], Evolution],
    compiled: Schema | None = None,
) -> Schema:
    """Return the classes of a store that is not to be changed: those of a schema, or all that its catalogue has.

    Args:
        compiled: what was compiled of it before: classes that are as they were stay the same ones.

    Raises:
        SchemaMismatch: the store would have to be changed for the classes.
    """
    if schema is None:
        undeclared = {label for label, state in catalogue.states.items() if not state.declared}
        return stored_schema(catalogue.models, undeclared, compiled)
    evolution = compare(schema)
    if evolution.changed:
        new = [f"{model.name} is new" for model in evolution.models if not kept_field(model.name)]
        faults = [*new, *map(str, evolution.changes)] or [f"{subject} has not seen this version of the classes"]
        raise SchemaMismatch(f"{subject} would have to be changed, and it is opened with read_only=True", faults)
    return schema


def staged(draft: ActionPlan, schema: Schema) -> Catalogue:
    """Return the catalogue of all classes of a schema alone, which get tables of their own."""
    evolution = evolve({}, Versions(), schema, Anything(), now=draft.now)
    layout = Layout(draft, Catalogue())
    layout.extend(schema, evolution.models_after)
    return layout.catalogue(evolution)


def unmatched_twins(catalogue: Catalogue, evolution: Evolution) -> list[Mirror]:
    """Return the twins that cannot be kept in step any more: a class that they link can hold more, or was dropped."""
    classes = {name for name, _ in evolution.widened} | evolution.dropped
    twins = []
    for twin in catalogue.twins:
        linked = {(link.new, property) for link in twin.links for property in link.properties.values()}
        by_script = {link.new for link in twin.links if link.steps}
        new = {link.new for link in twin.links}
        if linked & {*evolution.widened} or new & evolution.dropped or by_script & classes:
            twins.append(twin)
    return twins


def _fill(draft: ActionPlan, old: Table, table: Table, model: Model, property: str) -> None:
    """Set a new property to its default in all rows, unless the default of its new column does that."""
    if property not in dict(table.properties):
        return  # the key holds it
    default = model.defaults.get(property)
    column = table.column(property)
    is_new = column not in old.has
    if is_new and next(candidate.default for candidate in table.columns if candidate.name == column) == default:
        return
    draft.do(SetColumn(table, model.name, column, default))


def targets(evolution: Evolution, existing: Set[str]) -> dict[str, set[str]]:
    """Return the labels of the new indexes and aggregates over known classes, which may have rows, by class."""
    by_class: dict[str, set[str]] = {}
    for model, name in evolution.indexes:
        by_class.setdefault(model.name, set()).add(f"{model.name}.{name}")
    for model in evolution.models:
        source = model.name if model.aggregate is None else model.aggregate.source.__name__
        if model.aggregate is not None and source in existing:
            by_class.setdefault(source, set()).update(
                {model.name, *(f"{model.name}.{index.name}" for index in model.indexes)}
            )
    return {owner: labels for owner, labels in by_class.items() if owner in existing}


def rebuilt(draft: ActionPlan, catalogue: Catalogue, labels: Collection[str] | None) -> Catalogue:
    """Return a catalogue with jobs for what is disabled, all of it or some labels; the same if nothing is."""
    disabled = [label for label, form in catalogue.states.items() if form.state == "disabled"]
    by_class: dict[str, set[str]] = {}
    for label in disabled:
        name = Label.of(label).owner
        if labels is None or {label, name} & set(labels):
            source = catalogue.models[name].source if name in disabled else None
            by_class.setdefault(source or name, set()).add(label)  # (an index is built with its aggregate)
    return _registered(draft, catalogue, by_class) if by_class else catalogue


def _registered(draft: ActionPlan, catalogue: Catalogue, by_class: Mapping[str, Collection[str]]) -> Catalogue:
    new = registered(catalogue, by_class, BuildStateSpec("building", draft.now), draft.generation + 1)
    draft.do(*(StartJob(job, catalogue.table_of(job.owner)) for job in new.jobs[len(catalogue.jobs) :]))
    return new


def registered(
    catalogue: Catalogue, labels_by_class: Mapping[str, Collection[str]], state: BuildStateSpec, generation: int
) -> Catalogue:
    """Return a catalogue with a job for each class that something is to be built over.

    Args:
        state: what these come to, its number and time.
        generation: of the catalogue that is returned.
    """
    jobs = [JobSpec(f"{owner} {generation}", owner, frozenset(labels)) for owner, labels in labels_by_class.items()]
    states = {
        label: replace(catalogue.states[label], state=state.state, since=state.since, number=state.number)
        for job in jobs
        for label in job.targets
    }
    return attrs.evolve(catalogue, states=catalogue.states | states, jobs=(*catalogue.jobs, *jobs))


def ruled_anew(draft: ActionPlan, catalogue: Catalogue, *, newer_too: bool = False) -> Catalogue:
    """Return a catalogue without what was maintained by other rules of a time zone, which is disabled and built anew.

    In a twin or a staged catalogue, it is built once that replaces the classes of the file.
    ``newer_too``: disable also what was maintained by the rules of a newer release.
    """
    new = _without_other_rules(draft, catalogue, newer_too=newer_too)

    def without_other_rules(part: Catalogue) -> Catalogue:
        """Do the same in a twin or a staged catalogue; its tombstones belong to the file."""
        nonlocal new
        new_part = _without_other_rules(draft, part, newer_too=newer_too)
        if new_part is part:
            return part
        new = attrs.evolve(new, tombstones=(*new.tombstones, *new_part.tombstones))
        return attrs.evolve(new_part, tombstones=())

    twins = tuple([attrs.evolve(twin, catalogue=without_other_rules(twin.catalogue)) for twin in catalogue.twins])
    running = catalogue.staged
    if running is not None:
        running = attrs.evolve(running, catalogue=without_other_rules(running.catalogue))
    return catalogue if new is catalogue else attrs.evolve(new, twins=twins, staged=running)


def _without_other_rules(draft: ActionPlan, catalogue: Catalogue, *, newer_too: bool) -> Catalogue:
    labels = outdated(catalogue, newer_too=newer_too)
    for label in labels:
        if catalogue.states[label].state != "disabled":  # (an index over an aggregate is disabled with it)
            catalogue = disable(draft, catalogue, label, keep_ever=True)
    states = {label: ruled_here(catalogue.models, label, catalogue.states[label]) for label in labels}
    return attrs.evolve(catalogue, states=catalogue.states | states) if labels else catalogue
