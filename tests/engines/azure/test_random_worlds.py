"""Writers of random classes whose requests, answers and processes get lost: after sweeps all that is maintained follows."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.azure.catalogue import open_classes
from tablemapper.engines.azure.cross_partition.outbox import Outbox
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.housekeeping import flush
from tablemapper.engines.azure.tables import entity_json
from tablemapper.engines.azure.tables.driver import Effects, Sleep, read
from tablemapper.engines.azure.tables.service import GetEntity, Members
from tablemapper.engines.azure.writing.late_writes import write_in_time
from tablemapper.engines.protocol import Operation
from tablemapper.evolution import newer_versions
from tablemapper.schema.maintenance import Maintenance, maintenance
from tablemapper.schema.model import Schema, compile_schema, model_of
from tablemapper.verbs.operations import Operations
from tests.whole import stores
from tests.whole.answers import Trial, random_rows
from tests.whole.growth import reduced, thinner
from tests.whole.models import Model, Record, compiled
from tests.whole.oracle import State
from tests.whole.random_models import (
    ended_rows,
    random_model,
    with_ending,
    with_levels,
    with_maintained,
    with_stamp,
    with_undeclared,
)

from ...stores import repaired
from .memory import Memory
from .schedule import Schedule, same_each_time, sweep_all
from .test_beyond import RATES, TIMES, _no_marker, _removed_at_zero, sweeper

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")


class Program:
    """A version of a program: its classes, and the entities that it writes."""

    def __init__(self, world: World, model: Model) -> None:
        self.model = model
        self.names = compiled(model.source())
        schema = compile_schema([self.names[record.name] for record in model.records])
        clocks: Any = {"sleep": world.pass_by, "monotonic": lambda: world.waited}
        self.engine = AzureEngine.open(world.memory, "in memory", schema, **clocks, now=lambda: stores._NOW)
        engine: Any = self.engine
        engine._outbox = engine._housekeeper._outbox = engine._builder.outbox = Outbox("TableMapper", TIMES)
        self.store = tm.Store(self.engine)
        self.operations = Operations(self.engine)
        self.rows = {one.name: random_rows(world.rng, one, 10) for one in model.entities}
        first = model.records[0]
        if any(field.expires for field in first.fields):
            rows = [(first.name, row) for row in self.rows[first.name]]
            self.rows[first.name] = [row for _, row in ended_rows(world.rng, model, rows)]


class World:
    """A store that grew from an older version; clients of both that write some entities, and some that sweep."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)  # (of pauses)
        self.rng = random.Random(seed)
        model = random_model(self.rng)
        model = with_levels(self.rng, model) if seed % 2 else model
        if seed % 5 == 1:  # (no index can be over what is maintained from other entities)
            records = with_maintained(self.rng, model).records
            model = attrs.evolve(
                model, records=tuple([attrs.evolve(one, indexes=()) if one.name == "Whole" else one for one in records])
            )
        model = with_undeclared(self.rng, model) if seed % 3 == 0 else model
        self.ends = seed % 7 == 3
        if self.ends:  # (what ended makes room while requests and answers get lost; the older version knows no end)
            model = with_stamp(self.rng, with_ending(self.rng, model))
        older, newer = thinner(self.rng, model), reduced(self.rng, model)
        self.now = 1_700_000_000.0
        self.waited = 0.0  # seconds, of the programs: none passes while they work, however busy the machine is
        self.schedule: Schedule | None = None
        self.memory = Memory(clock=lambda: int((self.now + (self.schedule.now if self.schedule else 0.0)) * 1e6))
        self.ops = itertools.count()
        before = Program(self, older)
        for record in older.entities:
            for row in before.rows[record.name]:
                with suppress(tm.EntityExists, tm.UniqueViolation):
                    before.store.insert(before.names[record.name](**row))
        self.program = Program(self, newer)
        assert self.program.store.build().ok
        assert (report := self.program.store.check()).ok, str(report)
        before = Program(self, older)  # (restarted)
        self.model = newer
        self.schedule = Schedule(self.memory, seed, RATES, 10.0)
        for number in range(8):
            outbox = Outbox("TableMapper", TIMES, lambda: f"{next(self.ops):013x}{0:012x}")
            self.schedule.start(self.client(outbox, self.program if number % 4 else before))
        for _ in range(3):
            self.schedule.start(sweeper(self.program.engine, self.rng, TIMES))

    def pass_by(self, seconds: float) -> None:
        self.waited += seconds
        self.now += 100 * seconds  # (until all know of a change)

    def client(self, box: Outbox, program: Program) -> Effects[None]:
        for _ in range(4):
            yield Sleep(self.rng.random() * 10)
            record = self.rng.choice([one for one in program.model.entities if program.rows[one.name]] or [None])
            if record is None:
                return
            operation = yield from self.choose(record, program)
            program.operations.ended.judge([operation])
            try:
                yield from write_in_time(program.engine.current, [operation], box, timeout=TIMES.deadline)
                yield from flush(box, TIMES.deadline)
            except tm.TableMapperError:
                continue

    def choose(self, record: Record, program: Program) -> Effects[Operation]:
        """Return a write of an entity: as it may be at this moment, or will be in another form of a random row."""
        make, cls = program.operations, program.names[record.name]
        new = cls(**self.rng.choice(program.rows[record.name]))
        model = model_of(cls)
        drawn = self.rng.random()
        if program is not self.program:  # (which cannot read all that newer ones write)
            return make.delete(new.key, None) if drawn < 0.3 else make.upsert(new, merge=False)
        found = yield from read(GetEntity(model.table, new.key.partition, new.key.row), 60.0)
        old: Any = None if found is None else model.build_one(program.engine._classes.codec(model).row(found))
        if old is None:
            return make.insert(new) if drawn < 0.6 else make.upsert(new, merge=False)
        if drawn < 0.3:
            return make.delete(old if drawn < 0.2 else old.key, None)
        other = self.rng.choice(program.rows[record.name])
        key = {slot.field for template in model.declaration.templates for slot in template.slots}
        changed = old.replace(**{name: value for name, value in other.items() if name not in key})
        return make.replace(changed, None) if drawn < 0.7 else make.upsert(changed, merge=False)

    def write_on(self, store: tm.Store) -> None:
        """Delete, move and insert some entities of each class."""
        for record in self.model.entities:
            cls = self.program.names[record.name]
            some: list[Any] = list(store.query(cls).allow_scan().limit(3))
            for one in some[:1]:
                store.delete(one)
            for row in self.program.rows[record.name]:
                new = cls(**row)
                beside = [one for one in some[1:] if one.key.partition == new.key.partition and one.key != new.key]
                with suppress(tm.EntityExists, tm.UniqueViolation):
                    if beside:
                        some.remove(beside[0])
                        with suppress(tm.InvalidEntity):  # (its other fields belong to the key that it has)
                            store.move(beside[0], new.key)
                    else:
                        store.insert(new)

    def run(self) -> None:
        assert self.schedule is not None
        self.schedule.run()
        store = self.program.store
        sweep_all(store, self.memory, self)
        report = store.check()
        assert report.ok, str(report)
        assert not repaired(store).remaining
        self.write_on(store)
        assert (report := store.check()).ok, str(report)
        trial = Trial(store, self.program.names, State(self.model))
        trial.take_over()
        trial.compare_all()
        trial.compare_indexes()


def play(seeds: Iterable[int]) -> tuple[int, int]:
    """Return how many worlds there were, and how many requests in them."""
    worlds = requests = 0
    for seed in seeds:
        with same_each_time(seed):
            try:
                one = World(seed)
            except tm.InvalidModel:  # (what an account does not keep yet)
                continue
            except tm.SchemaMismatch as refused:  # (of two equal indexes the older version has the other one)
                if "call it so, as Azure Tables keep its rows by that name" in str(refused):
                    continue
                raise
            try:
                one.run()
            except AssertionError as error:
                error.add_note(f"seed {seed}\n{one.model.source()}")
                raise
        assert one.schedule is not None
        worlds, requests = worlds + 1, requests + one.schedule.counts["requests"]
    return worlds, requests


@pytest.mark.one_python
@pytest.mark.long
def test_all_that_is_maintained_follows_whatever_is_lost(full_size: bool) -> None:
    worlds, requests = play(range(3_000 if full_size else 14))
    assert requests > 40 * worlds > 280


def _split_at_a_colon(patch: pytest.MonkeyPatch) -> None:
    """Marks are taken apart at the first colon, which that of a maintained field has in its name."""
    plain = entity_json.marks_of

    def split(entity: Members) -> Mapping[str, str]:
        text = " ".join([f"{name}:{op}" for name, op in plain(entity).items()])
        return dict([one.split(":", 1) for one in text.split(" ") if one])

    patch.setattr(entity_json, "marks_of", split)


def _defined_twice(patch: pytest.MonkeyPatch) -> None:
    """An index is maintained as a class declares it, and as the catalogue has it."""
    plain = newer_versions.stored_maintenance

    def twice(schema: Schema, model: Any, forms: Any, names: Any, followed: Any) -> Maintenance:
        stored, declared = plain(schema, model, forms, names, followed), maintenance(schema, model)
        return attrs.evolve(stored, indexes=(*stored.less([declared]).indexes, *declared.indexes))

    patch.setattr(open_classes, "stored_maintenance", twice)


MUTANTS = {_no_marker: 0, _removed_at_zero: 74, _split_at_a_colon: 41, _defined_twice: 40}
"""Each with the first of some seeds that find it."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__)
def test_a_mutant_is_caught(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, tm.InvalidEntity)):
        play(range(MUTANTS[mutant], MUTANTS[mutant] + 300))
