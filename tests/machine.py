"""A store against rows in plain Python: every write, transactions, faults and reopenings, everything compared after each step.

The classes are those of this module, which have some of everything, or random ones.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from decimal import Decimal
from typing import Any

import apsw
import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.schema.model import compile_schema, model_of

from .sqlite_vfs import Fault
from .whole.answers import Trial, random_rows
from .whole.conditions import Compare, Operand
from .whole.deeds import Writes, random_writes
from .whole.judges import Differs, place
from .whole.kinds import DATE, DECIMAL, FLOAT, INT, MOMENT, STR, Home, kind_of
from .whole.models import Field, Index, Measure, Model, Record, Slot, compiled
from .whole.oracle import State, index_rows
from .whole.random_models import random_model, with_levels, with_maintained, with_options, with_stamp, with_undeclared

NAMES = ("x", "X", "x ", "", "ß", "a/b")
LARGE = 400  # characters, from which on a text stands in a table of its own; of more than 448 no key could be made
P, NAME, NUM, WEIGHT = Operand("p", STR), Operand("name", STR), Operand("num", INT), Operand("weight", FLOAT)
PRICE, AT = Operand("price", DECIMAL), Operand("at", MOMENT)


def _slots(*names: str) -> tuple[tuple[Slot, ...], ...]:
    """Return a template of fields, each with how it stands there behind a colon."""
    return tuple((Slot(*name.split(":")),) for name in names)


ITEM = Record(
    "Item",
    "Items",
    (
        Field("p", STR, pool=("p", "P", "a/b", "")),
        Field("r", INT, pool=tuple(range(-2, 6))),
        Field("name", STR, optional=True, default=True, pool=NAMES),
        Field("num", INT, optional=True, default=True, pool=(0, 1, -1, 7, 3, 2**61)),
        Field("weight", FLOAT, optional=True, default=True, pool=(0.1, 0.2, -1e300, 1e300, 5e-324, 3.5)),
        Field("price", DECIMAL, optional=True, default=True, pool=tuple(map(Decimal, ("1.10", "1.1", "-3", "1E+5")))),
        Field("at", MOMENT, pool=MOMENT.pool[:3]),
        Field("tags", kind_of("list[str]"), pool=([], ["a"], ["a", "b", "a"], ["b"])),
        Field("home", kind_of("Home"), optional=True, default=True, pool=(Home("Rome"), Home("Oslo", 1))),
        Field("text", STR, optional=True, default=True, pool=("s", "L" * 410, "M" * 440)),
        Field("badge", STR, optional=True, default=True, pool=("one", "two")),
    ),
    _slots("p"),
    (("i",), *_slots("r")),
    (
        Index("by_name", _slots("name"), (("",),), ("num", "text")),
        Index("by_num", _slots("p"), _slots("num"), where=Compare(NUM, ">", 2)),
        Index("by_tag", _slots("tags"), (("",),), every=True),
        Index("by_city", _slots("home.city"), (("",),)),
        Index("by_floor", _slots("home.floor"), _slots("p")),
        Index("by_badge", _slots("p"), _slots("badge"), unique=True),
        Index("sharded", _slots("num:shard(3)"), _slots("num:desc", "price")),
    ),
    timed=True,
)
DAY = Record(
    "Day",
    "Days",
    (
        Field("p", STR),
        Field("day", DATE),
        *[Field(name, INT) for name in ("items", "named", "large")],
        *[Field(name, FLOAT, optional=True) for name in ("weight", "mean", "lightest", "heaviest")],
        *[Field(name, DECIMAL, optional=True) for name in ("price", "dearest")],
        Field("first", STR, optional=True),
    ),
    _slots("p"),
    _slots("day"),
    (
        Index("by_items", _slots("p"), _slots("items:desc"), ("named", "mean")),
        Index("by_weight", (("all",),), _slots("weight"), where=Compare(Operand("items", INT), ">", 1)),
        Index("by_first", _slots("first"), _slots("p", "day"), unique=True),
    ),
    "Item",
    None,
    {
        "p": Measure("group_by", P), "day": Measure("group_by", Operand("at", DATE, cut="date")),
        "items": Measure("count"), "named": Measure("count", NAME),
        "large": Measure("count", where=Compare(NUM, ">", 2)), "weight": Measure("sum", WEIGHT),
        "mean": Measure("avg", WEIGHT), "lightest": Measure("min", WEIGHT), "heaviest": Measure("max", WEIGHT),
        "price": Measure("sum", PRICE), "dearest": Measure("max", PRICE), "first": Measure("min", NAME),
    },
    timed=True,
)  # fmt: skip
EVER = Record(
    "Ever", "Items", (Field("p", STR), Field("items", INT), Field("heaviest", FLOAT, optional=True)), _slots("p"),
    (("ever",),), (Index("by_heaviest", _slots("items"), _slots("heaviest")),), "Item", Compare(WEIGHT, ">", 0.0),
    {"p": Measure("group_by", P), "items": Measure("count"), "heaviest": Measure("max_ever", WEIGHT)}, timed=True,
)  # fmt: skip
MODEL = Model((ITEM, DAY, EVER))


def _random_model(rng: random.Random) -> Model:
    model = random_model(rng, local=rng.random() < 0.3)
    for more in (with_levels, with_maintained, with_undeclared, with_stamp, with_options):
        if rng.random() < 0.5:
            model = more(rng, model)
    return attrs.evolve(model, records=tuple(attrs.evolve(record, timed=True) for record in model.records))


class Machine(RuleBasedStateMachine):
    """See the module."""

    model: Model | None = MODEL
    """Of each store, or None for a random one."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()

    @initialize(rng=st.randoms(use_true_random=True))
    def begin(self, rng: random.Random) -> None:
        model = self.model or _random_model(rng)
        names = compiled(model.source())
        self.classes = {record.name: names[record.name] for record in model.records}
        self.trial = Trial(self.open(), names, State(model))

    def open(self) -> tm.Store:
        schema = compile_schema(list(self.classes.values()))
        return tm.Store(SqliteEngine.open(f"{self.folder}/x.db", schema, durability="full", vfs="faulty"))

    def teardown(self) -> None:
        Fault.disarm()
        self.trial.store.close()
        shutil.rmtree(self.folder)

    # -------------------------------------------------------------------------------------- rules

    @rule(rng=st.randoms(use_true_random=True), fault=st.integers(0, 5))
    def write(self, rng: random.Random, fault: int) -> None:
        trial = self.trial
        if (writes := random_writes(rng, trial.state)) is None:
            return
        expected = writes.expected(trial.state)
        if fault == 0:
            Fault.arm(rng.choice(["xWrite", "xSync"]), rng.randrange(1, 5), sticky=False)
        answer = trial.run(writes.text(trial.state.model))
        if Fault.disarm() and isinstance(answer, tm.StoreError):
            self._settle_any(writes, [trial.state, expected.before, expected.after])
        else:
            writes.judge(trial, expected, answer)

    def _settle_any(self, writes: Writes, states: list[State]) -> None:
        """Take over any of some states, whichever it is, after a write that was said to have failed."""
        *others, last = states
        for state in others:
            try:
                self.trial.compare_rows(state)
            except Differs:
                continue
            self.trial.settle(state, writes.touched)
            return
        self.trial.settle(last, writes.touched)

    @rule()
    def reopen(self) -> None:
        self.trial.store.close()
        self.trial.reopen(self.open())

    @rule(rng=st.randoms(use_true_random=True))
    def read(self, rng: random.Random) -> None:
        model = self.trial.state.model
        self.trial.compare_keys([(one.name, row) for one in model.entities for row in random_rows(rng, one, 3)])

    # -------------------------------------------------------------------------------------- what must hold

    @invariant()
    def indexes_find_what_they_should(self) -> None:
        self.trial.compare_indexes()

    @invariant()
    def index_tables_hold_what_they_should(self) -> None:
        with_own_eyes = apsw.Connection(f"{self.folder}/x.db")
        trial, state = self.trial, self.trial.state
        for record in state.model.records:
            places = {
                state.identity(record.name, row): place(entity)
                for entity in trial.store.query(self.classes[record.name]).allow_scan()
                for _, row in trial.rows_of([entity])
            }
            for index in record.indexes:
                expected: Counter[Any] = Counter()
                for row in state.rows(record.name):
                    at = places[state.identity(record.name, row)]
                    expected[at] += len(index_rows(record, index, row))
                table = model_of(self.classes[record.name]).index(index.name).table
                found = with_own_eyes.execute(f'SELECT "_pk", "_rk" FROM "{table}"').fetchall()
                assert Counter(found) == +expected, (table, found, expected)
        if state.model is MODEL:
            large = sum(len(row["text"] or "") > LARGE for row in state.rows("Item"))
            assert with_own_eyes.execute('SELECT count(*) FROM "Items_big"').fetchone() == (large,)
        with_own_eyes.close()


class RandomMachine(Machine):
    """A machine of random classes."""

    model = None
