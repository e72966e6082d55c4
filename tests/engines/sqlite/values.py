"""A store of values: a catalogue and the names of its tables, without a file, that the real runner migrates.

After each transition, what holds of every catalogue and of every step is asserted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import attrs

from tablemapper.catalogue import cutover, dropping, fences, migration_states, registration
from tablemapper.catalogue.actions import Action, ActionPlan, ChangeJob, EndCopies, EndJob, StartCopy, StartJob
from tablemapper.catalogue.catalogue import Catalogue, JobSpec
from tablemapper.catalogue.invariants import contradictions, names_in
from tablemapper.catalogue.property_names import catalogue_view, mirror_readers
from tablemapper.catalogue.transitions import ConversionFault, Transition
from tablemapper.engines.migration_protocol import Batches, CopyingEngine, CopyProgress
from tablemapper.engines.sqlite.online import apply_schema
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.errors import TableMapperError
from tablemapper.migrations.runner import _Run
from tablemapper.schema.labels import Label, is_former
from tablemapper.schema.model import Schema, compile_schema
from tablemapper.scripts.migrations import scripts_of

from ...migrations.shapes import (
    FIELDS,
    OLD,
    OLD_TOTALS,
    STOCK,
    Case,
    cases,
    changed,
    indexes,
    more_cases,
    part,
    script,
    totals,
)

COUNT = 30  # entities of each class
OPENED = (OLD, OLD_TOTALS, STOCK)
CASES = {name: case for name, case in (*cases().items(), *more_cases().items()) if name != "resolve"}
"""All but the one that is about rows."""


def _three_scripts() -> Case:
    """Return a case of three scripts: of the first and the last, the version before goes on in tables of its own."""
    priced = part(changed(FIELDS, price=Decimal), **indexes())
    firm = part(changed(FIELDS, price=Decimal, maker=None, firm=str | None), **indexes("firm"))
    product = part(changed(FIELDS, price=Decimal, maker=None, firm=str | None), name="Product", table="Products")
    shapes = [[priced, totals(priced, "maker")], [firm, totals(firm, "firm")], [product, totals(product, "firm")]]
    first = script(shapes[0], lambda m: m.convert(OLD.price, priced.price, Decimal, back=str))
    second = script(shapes[1], lambda m: m.rename(priced.maker, firm.firm), "second", "first", shapes[0])
    third = script(shapes[2], lambda m: m.rename_class(firm, product), "third", "second", shapes[1])
    return Case(first, tuple(shapes[2]), lambda old: (), then=(second, third))


CASES["three scripts"] = _three_scripts()


def _read(sql: str, args: Any = (), *, count: int = COUNT) -> list[tuple[Any, ...]]:
    """Answer what a comparison of classes asks of rows."""
    if not count:
        return [(0,)] if sql.startswith("SELECT count(*)") else [(0, None)] if sql.startswith("SELECT sum") else []
    return [(COUNT,)] if sql.startswith("SELECT count(*)") else [(0, 0)] if sql.startswith("SELECT sum") else []


def opened(draft: ActionPlan, catalogue: Catalogue, schema: Schema, *, count: int = COUNT) -> Catalogue:
    """Return a catalogue that takes over some classes, as `take_over` changes that of a file with so many entities of each."""
    read = partial(_read, count=count)
    evolution = apply_schema.evolution_of(catalogue, schema, read, draft.now)
    classes = apply_schema._without_twins(catalogue, schema)
    for twin in registration.unmatched_twins(catalogue, evolution) if evolution.changed else ():
        catalogue = cutover.ended(draft, catalogue, twin, twin.migration)
        evolution = apply_schema.evolution_of(catalogue, schema, read, draft.now)
    return registration.opened(draft, catalogue, classes, evolution) if evolution.changed else catalogue


class Values(CopyingEngine):
    """A store of values, for a run of migrations."""

    faults: Mapping[Any, ConversionFault] = {}
    has_twin = SqliteMigrations.has_twin
    under_way = SqliteMigrations.under_way
    building = SqliteMigrations.building

    def __init__(self) -> None:
        self._catalogue = Catalogue()
        self.names = frozenset[str]()
        self.actions: list[Action] = []
        self.jobs: dict[str, JobSpec] = {}
        self.copies = set[str]()
        self.time = 0

    @property
    def catalogue(self) -> Catalogue:
        return self._catalogue

    def carry(self, transition: Callable[..., Catalogue], *given: Any, **named: Any) -> Catalogue:
        """Take a transition, as a transaction of a file does."""
        self.time += 1
        before = self._catalogue
        draft = ActionPlan(1_000 * self.time, lambda: self.names, before.past, generation=self.time)
        after = fences.rename_fence(draft, transition(draft, before, *given, **named), before)
        after = attrs.evolve(after, past=frozenset(draft.past))
        faults = [*faults_of_step(before, after), *contradictions(after, draft.names)]
        assert not faults, (getattr(transition, "__name__", ""), faults)
        after.check()
        self._catalogue, self.names = after, frozenset(draft.names)
        self.actions += draft.actions
        self._run(draft.actions)
        assert self.jobs == {job.name: job for job in after.jobs}
        assert self.copies == {copy.id for copy in after.copies}
        return after

    def _run(self, actions: Iterable[Action]) -> None:
        """Keep the tables of jobs and copies, as an engine does."""
        for action in actions:
            match action:
                case StartJob(job):
                    self.jobs[job.name] = job
                case ChangeJob(job):
                    assert job.name in self.jobs
                    self.jobs[job.name] = job
                case EndJob(name):
                    del self.jobs[name]
                case StartCopy(copy):
                    self.copies.add(copy.id)
                case EndCopies():
                    self.copies.clear()
                case _:
                    pass

    def open(self, *classes: Any) -> None:
        """Open the store with some classes, and build what they declare, if something of that is not ready."""
        schema = compile_schema(classes)
        self._open(schema)
        states = catalogue_view(self._catalogue, schema)[0].states
        declared = {label for label in states if Label.of(label).owner in schema.by_name and not is_former(label)}
        if any(states[label].state != "ready" for label in declared):
            beside = {name for twin in mirror_readers(self._catalogue, schema.models) for name in twin.catalogue.models}
            self.build(
                schema.by_name.keys() - beside, declared
            )  # (a program with a twin runs no job of the file's classes)

    def _open(self, schema: Schema) -> bool:
        known = self._catalogue
        return self.carry(opened, schema).models != known.models

    def build(self, names: Collection[str], labels: Collection[str] | None = None) -> None:
        """Start jobs for what is disabled, and finish those over some classes; ``labels``: what is wanted, or None."""
        self.carry(registration.rebuilt, labels)
        for job in self._catalogue.jobs:
            if job.owner in names and (labels is None or job.targets & set(labels)):
                del self.jobs[job.name]  # (by its last batch)
                self.carry(dropping.finished, job.targets)

    # ---------------------------------------------------------------------------------------- as a run needs it

    def look(self) -> None: ...

    def close(self) -> None: ...

    def backup(self, path: str) -> None: ...

    def clear(self, most: int) -> None: ...

    def count(self, name: str) -> int:
        return COUNT

    def irreversible(self, transition: Transition) -> Sequence[ConversionFault]:
        return ()

    def _take(self, transition: Callable[..., Catalogue], *args: Any, **kwargs: Any) -> None:
        self.carry(transition, *args, **kwargs)

    def start(self, transition: Transition) -> bool:
        self.transition = transition
        return self.carry(migration_states.started, transition).staged is not None

    def step(self, most: int) -> CopyProgress:
        self.carry(cutover.switched, self.transition, COUNT)
        return CopyProgress(COUNT, COUNT, COUNT, switched=True)

    def discard(self, name: str) -> None:
        self.carry(migration_states.discarded)

    def take_over(self, schema: Schema) -> bool:
        return self._open(schema)

    def contract(self, id: str, batches: Batches) -> bool:
        if migration_states.is_undone(self._catalogue, id):
            return False
        entries = [
            entry for entry in self.carry(migration_states.retired, id).history if entry.id == id or entry.undone
        ]
        self.carry(migration_states.contracted, id, {name for entry in entries for name in entry.kept})
        return True

    def drop_former(self) -> None:
        if dropping.unused(self._catalogue) and self._catalogue.staged is None:
            self.carry(dropping.drop_former)

    def migrate(self, case: Case, *, to: str | None = None, contract: bool = False) -> None:
        """Run the scripts of a case, as `tablemapper.migrate` does."""
        run = _Run(self, scripts_of(case.scripts), None, False, 0, 0, self._settled, sleep=lambda seconds: None)
        assert run.to(to).done
        for entry in self.history() if contract else ():
            if entry.switched and entry.undone is None and (entry.kept or entry.drops or not entry.contracted):
                self.contract(entry.id, lambda step: None)
        if contract:
            self.drop_former()
        if run.last_script is not None and run.last_script.new:
            self._settled(run.last_script)

    def _settled(self, script: Any) -> tuple[ConversionFault, ...]:
        schema = compile_schema(script.new)
        self._open(schema)
        self.build(schema.by_name)
        return ()


# -------------------------------------------------------------------------------------------- what holds of all


def _read_names(catalogue: Catalogue) -> set[str]:
    return {name.lower() for part in catalogue.parts for name in names_in(part)}


def faults_of_step(before: Catalogue, after: Catalogue) -> Iterator[str]:
    """Yield what cannot be so of two catalogues in succession."""
    if lost := _read_names(before) - _read_names(after) - after.past:
        yield f"names without a meaning that may get another one: {lost}"
    if before.past - after.past:
        yield "names that had a meaning are forgotten"
    if again := (_read_names(after) - _read_names(before)) & before.past:
        yield f"names that got a second meaning: {again}"
    for name in before.versions.by_class:
        forms = {version.form for version in after.versions.live(name)}
        for version in before.versions.live(name):
            twin = next((twin for twin in before.twins if twin.migration == version.beside), None)
            seen = before if twin is None else twin.catalogue
            if version.form not in forms and name in seen.models:
                tables = [seen.table_of(name).name]
                tables += [seen.index_tables[f"{name}.{index}"] for index in seen.models[name].indexes]
                if still := {table.lower() for table in tables} & _read_names(after):
                    yield f"a version of {name} ended, and would read on in {still}"


# -------------------------------------------------------------------------------------------- chains


STEPS = [
    "forth", "forth", "to one", "to one", "back", "back", "contract", "open old", "open new", "disable", "disable", "begin", "begin", "drop",
]  # fmt: skip
"""``begin``: what is disabled gets jobs, which do not end before the next step."""


def started(name: str = "") -> Values:
    values = Values()
    values.open(*OPENED)
    return values


def taken(values: Values, case: Case, step: str, draw: random.Random) -> str:
    """Take a step of a chain; return the name of its error, or ""."""
    catalogue = values.catalogue
    try:
        if step in ("forth", "contract"):
            values.migrate(case, contract=step == "contract")
        elif step == "back":
            values.migrate(case, to="")
        elif step == "to one":
            values.migrate(case, to=draw.choice([one.function.__name__ for one in case.scripts]))
        elif step == "begin":
            values.carry(registration.rebuilt, None)
        elif step == "open old":
            values.open(*OPENED)
        elif step == "open new":
            values.open(*case.new)
        elif step == "disable":
            values.carry(dropping.disable, draw.choice(sorted(catalogue.states) or ["Gone"]))
        else:
            indexes = [label for label in catalogue.states if "." in label]
            values.carry(dropping.drop, draw.choice(sorted([*catalogue.models, *indexes]) or ["Gone"]))
    except TableMapperError as error:
        return type(error).__name__
    return ""


def chain(seed: int, length: int = 8) -> Iterator[tuple[Values, str, str]]:
    """Yield the store after each step of a random chain, with the step and its error."""
    draw = random.Random(seed)
    case, values = CASES[draw.choice(list(CASES))], started()
    yield values, "", ""
    for _ in range(length):
        step = draw.choice(STEPS)
        yield values, step, taken(values, case, step, random.Random(draw.random()))


def shape(catalogue: Catalogue) -> dict[str, Any]:
    """Return what a catalogue says, without times."""

    def part(one: Catalogue) -> Any:
        states = {label: (state.state, state.declared) for label, state in sorted(one.states.items())}
        tables = {name: (table.name, table.types, table.columns) for name, table in sorted(one.tables.items())}
        return sorted(one.models), states, tables, sorted(one.index_tables.items())

    return {
        "file": part(catalogue),
        "staged": catalogue.staged and part(catalogue.staged.catalogue),
        "twins": [(twin.migration, twin.writes, part(twin.catalogue)) for twin in catalogue.twins],
        "former": {id: sorted(one.tables) for id, one in catalogue.former.items()},
        "versions": {
            name: [
                (each.form, each.state, each.retired_by, each.behind, each.beside, each.unkept, each.renames)
                for each in opened
            ]
            for name, opened in sorted(catalogue.versions.by_class.items())
        },
        "history": [
            (each.id, each.script, bool(each.switched), bool(each.contracted), bool(each.undone), each.drops, each.kept)
            for each in catalogue.history
        ],
        "tombstones": [(one.label, one.by, one.instead, one.tables) for one in catalogue.tombstones],
        "jobs": [(job.owner, sorted(job.targets)) for job in catalogue.jobs],
    }
