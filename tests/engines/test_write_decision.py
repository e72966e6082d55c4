"""The file comes to what the one definition of a write says, by its faster ways."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.check import CheckView
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.rows.check import _Stored
from tablemapper.schema.model import compile_schema

from ..whole.answers import random_rows
from ..whole.models import Model, compiled
from ..whole.random_models import random_model, with_maintained
from .dicts import DictEngine, DictPlace, Holding

NOW = 1_767_225_600_000_000
STEPS = 12


class Twins:
    """A store in a file and one of dicts, which are asked for the same."""

    def __init__(self, model: Model) -> None:
        self.names = compiled(model.source())
        schema = compile_schema([self.names[record.name] for record in model.records])
        options: Any = {"durability": "relaxed", "clock": lambda: NOW}
        self.file = SqliteEngine.open(":memory:", schema, **options)
        self.dicts = DictPlace().open(schema, **options)
        self.stores = tm.Store(self.file), tm.Store(self.dicts)

    def ask(self, call: Callable[[tm.Store], object]) -> str:
        """Ask both for a call; return what came of it."""
        outcomes = []
        for store in self.stores:
            try:
                call(store)
                outcomes.append("done")
            except tm.TableMapperError as error:
                outcomes.append(f"{type(error).__name__}: {error}")
        if outcomes[0].partition(":")[0] == outcomes[1].partition(":")[0] or _may_differ(*outcomes):
            return outcomes[1]
        raise AssertionError("\n".join(outcomes))

    def compare(self) -> None:
        with self.file.file.snapshot() as snapshot:

            def rows(sql: str, args: Any = ()) -> Iterator[Any]:
                return chain.from_iterable(snapshot.stream(sql, args))

            found = _content(self.file, _Stored(self.file._sqlite, rows))
        expected = _content(self.dicts, Holding(self.dicts.state))
        for what, held in expected.items():
            assert found[what] == held, what


def _may_differ(one: str, other: str) -> bool:
    """Several operations of a transaction fail: which of them is named first is not said of several classes."""
    kinds = {"EntityExists", "EntityNotFound", "PreconditionFailed", "UniqueViolation"}
    return {one.partition(":")[0], other.partition(":")[0]} <= kinds


def _content(engine: SqliteEngine | DictEngine, stored: CheckView) -> dict[str, Any]:
    """Return all that is stored, as text; a timestamp is only whether it is that of the last write."""
    held: dict[str, Any] = {}
    rows = {model: [(row, b"") for row in stored.rows(model)] for model in engine.schema.models if not model.aggregate}
    rows |= {model: list(stored.groups(model)) for model in engine.schema.models if model.aggregate}
    newest = max((row[2] for some in rows.values() for row, _ in some), default=0)
    for model, some in rows.items():
        width = 3 + len(model.columns)
        held[model.name] = sorted(repr((row[:2], row[2] == newest, row[3:width], state)) for row, state in some)
        if model.aggregate is not None:
            values = stored.values(model) if model.aggregate.counted_slots else ()
            held[f"{model.name} values"] = sorted(map(repr, values))
        parts = (
            engine.state.duties(model)
            if isinstance(engine, DictEngine)
            else [(engine._sqlite.maintenance[model], None)]
        )
        for part, _ in parts:
            for index in part.indexes:
                held[index.label] = sorted(repr(tuple(row)) for row in stored.index_rows(index))
    return held


class Player:
    """Writes what it draws to both stores; each write may fail, and then must in both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.model = random_model(self.rng)
        if self.rng.random() < 0.5:
            self.model = with_maintained(self.rng, self.model)
        self.twins = Twins(self.model)
        self.done = 0

    def row(self, record: Any) -> dict[str, Any]:
        while not (rows := random_rows(self.rng, record, 3)):
            pass
        return rows[0]

    def operation(self) -> Callable[[Any, tm.Store], object]:
        """Draw one operation on a store or a transaction."""
        record = self.rng.choice(self.model.entities)
        cls, row, other = self.twins.names[record.name], self.row(record), self.row(record)
        held = list(self.twins.stores[1].query(cls).allow_scan())
        if held and self.rng.random() < 0.7:  # an entity that is there
            chosen = self.rng.choice(held)
            row = {**row, **{name: getattr(chosen, name) for name in record.key_fields}}
        fields = [f.name for f in record.own if f.name not in record.key_fields]
        some = {name: other[name] for name in self.rng.sample(fields, min(2, len(fields)))}

        def key() -> Any:
            return cls(**row).key

        match self.rng.choice(
            ["insert", "upsert", "fill", "replace", "overwrite", "merge", "delete", "drop", "require"]
        ):
            case "insert":
                return lambda to, store: to.insert(cls(**row))
            case "upsert":
                return lambda to, store: to.upsert(cls(**row))
            case "fill":
                return lambda to, store: to.upsert(cls(**row), merge=True)
            case "overwrite":
                return lambda to, store: to.replace(cls(**row), if_match="*")
            case "merge" if some:
                return lambda to, store: to.merge(key(), **some)
            case "delete":
                return lambda to, store: to.delete(key())
            case "drop" | "replace" as verb:
                stale = self.rng.random() < 0.2

                def write(to: Any, store: tm.Store) -> None:
                    entity = store.get(key())
                    if entity is None:
                        to.delete(key())
                    elif verb == "drop":
                        to.delete(
                            entity, if_match="W/\"datetime'2000-01-01T00%3A00%3A00.0000000Z'\"" if stale else None
                        )
                    else:
                        to.replace(entity.replace(**some))

                return write
        return lambda to, store: to.require(key()) if isinstance(to, tm.Transaction) else None

    def step(self) -> None:
        match self.rng.randrange(4):
            case 0:
                record = self.rng.choice(self.model.entities)
                cls = self.twins.names[record.name]
                rows = random_rows(self.rng, record, 5)
                call: Callable[[tm.Store], object] = lambda store: store.insert_many(cls(**row) for row in rows)  # noqa: E731
            case 1 | 2:
                write = self.operation()
                call = lambda store: write(store, store)  # noqa: E731
            case _:
                writes = [self.operation() for _ in range(self.rng.randrange(1, 5))]

                def call(store: tm.Store) -> None:
                    with store.transaction(across_partitions=True) as tx:
                        for write in writes:
                            write(tx, store)

        self.done += self.twins.ask(call) == "done"
        self.twins.compare()


def play(seeds: range) -> int:
    """Play worlds; return how many writes were done."""
    done = 0
    for seed in seeds:
        player = Player(seed)
        try:
            for _ in range(STEPS):
                player.step()
        except Exception as error:
            error.add_note(f"seed {seed}\n{player.model.source()}")
            raise
        done += player.done
    return done


@pytest.mark.one_python
@pytest.mark.long
def test_the_file_comes_to_what_is_decided(full_size: bool) -> None:
    assert play(range(1_500 if full_size else 16)) > 40


def test_a_condition_on_what_the_file_read_is_found_if_the_decision_forgets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablemapper.engines.write_decision._condition", lambda operation: None)
    with pytest.raises(AssertionError):
        play(range(200))
