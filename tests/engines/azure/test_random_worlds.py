"""Writers of random classes whose requests, answers and processes get lost: after sweeps all that is maintained follows."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.azure import writes
from tablemapper.engines.azure.cross_partition.outbox import Outbox
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables.driver import Effects, Sleep, read
from tablemapper.engines.azure.tables.service import GetEntity
from tablemapper.engines.protocol import Operation
from tablemapper.schema.model import compile_schema, model_of
from tablemapper.store.operations import Operations
from tests.whole.answers import Trial, random_rows
from tests.whole.models import Record, compiled
from tests.whole.oracle import State
from tests.whole.random_models import random_model, with_levels, with_maintained, with_undeclared

from ...stores import repaired
from .memory import Memory
from .schedule import Schedule
from .test_beyond import RATES, TIMES, _no_marker, _removed_at_zero, left_over, sweeper

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")


class World:
    """Clients that write some entities of random classes, and some that sweep."""

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
        self.model = with_undeclared(self.rng, model) if seed % 3 == 0 else model
        self.names = compiled(self.model.source())
        self.now = 1_700_000_000.0
        self.schedule: Schedule | None = None
        self.memory = Memory(clock=lambda: int((self.now + (self.schedule.now if self.schedule else 0.0)) * 1e6))
        schema = compile_schema([self.names[record.name] for record in self.model.records])
        self.engine = AzureEngine.open(self.memory, "in memory", schema, sleep=lambda seconds: None)
        self.engine._outbox = Outbox("TableMapper", TIMES)
        self.operations = Operations(self.engine)
        self.schedule = Schedule(self.memory, seed, RATES, 10.0)
        self.rows = {one.name: random_rows(self.rng, one, 10) for one in self.model.entities}
        self.ops = itertools.count()
        for _ in range(8):
            self.schedule.start(self.client(Outbox("TableMapper", TIMES, lambda: f"{next(self.ops):013x}{0:012x}")))
        for _ in range(3):
            self.schedule.start(sweeper(self.engine, self.rng, TIMES))

    def client(self, box: Outbox) -> Effects[None]:
        for _ in range(4):
            yield Sleep(self.rng.random() * 10)
            record = self.rng.choice([one for one in self.model.entities if self.rows[one.name]] or [None])
            if record is None:
                return
            operation = yield from self.choose(record)
            try:
                yield from writes.write(self.engine._classes, [operation], box, timeout=TIMES.deadline)
            except tm.TableMapperError:
                continue

    def choose(self, record: Record) -> Effects[Operation]:
        """Return a write of an entity: as it may be at this moment, or will be in another form of a random row."""
        make, cls = self.operations, self.names[record.name]
        new = cls(**self.rng.choice(self.rows[record.name]))
        model = model_of(cls)
        found = yield from read(GetEntity(model.table, new.key.partition, new.key.row), 60.0)
        old: Any = None if found is None else model.build_one(self.engine._classes.codec(model).row(found))
        drawn = self.rng.random()
        if old is None:
            return make.insert(new) if drawn < 0.6 else make.upsert(new, merge=False)
        if drawn < 0.3:
            return make.delete(old if drawn < 0.2 else old.key, None)
        other = self.rng.choice(self.rows[record.name])
        key = {slot.field for template in model.declaration.templates for slot in template.slots}
        changed = old.replace(**{name: value for name, value in other.items() if name not in key})
        return make.replace(changed, None) if drawn < 0.7 else make.upsert(changed, merge=False)

    def run(self) -> None:
        assert self.schedule is not None
        self.schedule.run()
        store = tm.Store(self.engine)
        for _ in range(3):
            self.now += 10_000
            store.sweep(full=True)
        assert not left_over(self.memory)
        report = store.check()
        wrong = [problem for problem in report.problems if problem.kind != "dangling"]
        assert not wrong, str(wrong[0])
        assert not repaired(store).remaining
        trial = Trial(store, self.names, State(self.model))
        trial.take_over()
        trial.compare_all()
        trial.compare_indexes()


def play(seeds: Iterable[int]) -> tuple[int, int]:
    """Return how many worlds there were, and how many requests in them."""
    worlds = requests = 0
    for seed in seeds:
        try:
            one = World(seed)
        except tm.InvalidModel:  # (what an account does not keep yet)
            continue
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
    worlds, requests = play(range(3_000 if full_size else 60))
    assert requests > 40 * worlds > 400


@pytest.mark.parametrize("mutant", [_no_marker, _removed_at_zero], ids=lambda one: one.__name__)
def test_a_mutant_is_caught(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        play(range(300))
