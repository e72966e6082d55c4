"""A version that has ended is refused by everything that it can do, also in a program that has had the store open before."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from .shapes import OLD, OLD_TOTALS, STOCK, Case, cases, more_cases, parts, stocks

CASES = cases() | more_cases()


class Program:
    """A program with the old classes that has used the store, and knows it as it was then."""

    def __init__(self, path: Path) -> None:
        models = [OLD, OLD_TOTALS, STOCK]
        self.loop = asyncio.new_event_loop()
        self.store, self.in_transaction = (tm.open(path, models=models, durability="relaxed") for _ in range(2))
        self.shared = self.wait(tm.open_async(path, models=models, durability="relaxed"))
        self._engines: list[Any] = [self.store._engine, self.in_transaction._engine, self.shared._operations.engine]
        self._known = [engine._sqlite for engine in self._engines]
        self.query = self.store.query(OLD).allow_scan()
        self.indexed = self.store.query(OLD).where(OLD.maker == "m1")
        self.token = self.query.page(3).token
        self.index_token = self.indexed.page(2).token
        self.begun = self.in_transaction.transaction()
        self.begun.__enter__()

    def wait(self, task: Any) -> Any:
        return self.loop.run_until_complete(task)

    def answer(self, do: Callable[[Program], Any]) -> str:
        """Return what something gives or raises, if nothing was done since the program was started."""
        for engine, known in zip(self._engines, self._known, strict=True):
            engine._use(known)
        try:
            return repr(do(self))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def answers(self) -> dict[str, str]:
        return {verb: self.answer(do) for verb, do in (READS | WRITES).items()}

    def close(self) -> None:
        self.store.close()
        self.in_transaction.close()
        self.wait(self.shared.close())
        self.loop.close()


async def _listed(query: Any) -> list[Any]:
    return [one async for one in query]


READS: dict[str, Callable[[Program], Any]] = {
    "get": lambda p: p.store.get(OLD.key("x", 0)),
    "exists": lambda p: p.store.exists(OLD.key("x", 0)),
    "get_many": lambda p: p.store.get_many([OLD.key("x", n) for n in range(3)]),
    "get_many of two classes": lambda p: p.store.get_many([OLD.key("x", 0), STOCK.key("x", 0)]),
    "iteration": lambda p: list(p.query),
    "iteration by an index": lambda p: list(p.indexed),
    "iteration by a name": lambda p: list(p.store.query(OLD.by_tag("a"))),
    "first": lambda p: p.query.first(),
    "first of a partition": lambda p: p.store.query(OLD).where(OLD.shelf == "x").first(),
    "one partition": lambda p: list(p.store.query(OLD).where(OLD.shelf == "x")),
    "in order": lambda p: list(p.store.query(OLD).where(OLD.shelf == "x").order_by(OLD.number.desc()).limit(2)),
    "several ranges": lambda p: list(p.store.query(OLD).where(OLD.shelf.is_in(["x", "y"]))),
    "page": lambda p: p.query.page(3),
    "page with an old token": lambda p: p.query.page(3, p.token),
    "page of an index with an old token": lambda p: p.indexed.page(2, p.index_token),
    "pages": lambda p: list(p.query.pages(4)),
    "count by the aggregate": lambda p: p.store.query(OLD).where(OLD.shelf == "x").count(),
    "count of all": lambda p: p.query.count(),
    "count by an index": lambda p: p.indexed.count(),
    "max by the aggregate": lambda p: p.store.query(OLD).where(OLD.shelf == "x").max(OLD.maker),
    "sum": lambda p: p.query.sum(OLD.number),
    "groups": lambda p: dict(p.store.query(OLD).allow_scan().group_by(OLD.shelf).count()),
    "select": lambda p: list(p.store.query(OLD).allow_scan().select(OLD.number)),
    "columns": lambda p: p.query.columns(),
    "columns by an index": lambda p: p.indexed.columns(),
    "to_arrow": lambda p: p.query.to_arrow(),
    "arrow_batches": lambda p: list(p.query.arrow_batches(4)),
    "parts": lambda p: [list(part) for part in p.query.split(2)],
    "explain": lambda p: p.query.explain(),
    "partition": lambda p: list(p.store.partition(OLD.shelf == "x")),
    "partitions": lambda p: list(p.store.partitions(OLD)),
    "transaction": lambda p: p.begun.get(OLD.key("y", 1)),
    "async get": lambda p: p.wait(p.shared.get(OLD.key("x", 0))),
    "async iteration": lambda p: p.wait(_listed(p.shared.query(OLD).allow_scan())),
    "async count": lambda p: p.wait(p.shared.query(OLD).allow_scan().count()),
    "async columns": lambda p: p.wait(p.shared.query(OLD).allow_scan().columns()),
    "group": lambda p: p.store.get(OLD_TOTALS.key("x")),
    "groups of the aggregate": lambda p: list(p.store.query(OLD_TOTALS).allow_scan()),
}
WRITES: dict[str, Callable[[Program], Any]] = {
    "upsert": lambda p: p.store.upsert(OLD("x", 1, price="1001", maker=None, tags=[])),
    "upsert_many": lambda p: p.store.upsert_many([OLD("x", 35, price="1002", maker=None, tags=["a"])]),
    "update by query": lambda p: p.store.query(OLD).where(OLD.shelf == "x", OLD.number == 35).update(maker="m9"),
}
EVERYTHING = READS.keys() | WRITES.keys()
OF_THE_AGGREGATE = {
    "group", "groups of the aggregate", "count by the aggregate", "count of all", "async count", "max by the aggregate", "groups",
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=[OLD, OLD_TOTALS, STOCK], durability="relaxed") as store:
        store.insert_many(parts(30, random.Random(1)))
        store.insert_many(stocks())
    return tmp_path / "s.db"


@pytest.fixture
def program(path: Path) -> Iterator[Program]:
    program = Program(path)
    yield program
    program.close()


def migrate(path: Path, case: Case, **options: Any) -> tm.MigrationReport:
    return tm.migrate(path, case.scripts, **{"rest": 0, "durability": "relaxed", **options})


def refused(answers: dict[str, str]) -> set[str]:
    return {verb for verb, answer in answers.items() if answer.startswith("SchemaMismatch: ")}


def answers_of_a_new_start(program: Program, path: Path) -> dict[str, str]:
    """Return what a program that is started now answers, if it goes on where another one is."""
    try:
        fresh = Program(path)
    except tm.SchemaMismatch as error:
        return dict.fromkeys(EVERYTHING, str(error))
    try:
        fresh.token, fresh.index_token = program.token, program.index_token
        return fresh.answers()
    finally:
        fresh.close()


SAME = ("convert by a mapping", "rewrite that drops", "resolve")  # the old version fits what they make


@pytest.mark.parametrize("name", CASES)
def test_a_program_that_runs_is_refused_what_it_would_be_refused_if_it_were_started_now(
    path: Path, program: Program, name: str
) -> None:
    program.answers()  # (it writes, too)
    before = program.answers()
    assert refused(before) == set()
    live = {step.old_version for step in migrate(path, CASES[name]).plan}
    switched = program.answers()
    if "stops" in live and name not in SAME:
        assert refused(switched) == EVERYTHING
    else:
        assert refused(switched) == (WRITES.keys() if "reads" in live else set())
        assert switched == answers_of_a_new_start(program, path)
    migrate(path, CASES[name], contract=True)
    contracted = program.answers()
    if name in SAME:
        assert contracted == answers_of_a_new_start(program, path)
    elif name == "drop of an aggregate":
        assert refused(contracted) == OF_THE_AGGREGATE
        assert {verb: contracted[verb] for verb in EVERYTHING - OF_THE_AGGREGATE} == {
            verb: before[verb] for verb in EVERYTHING - OF_THE_AGGREGATE
        }
    else:
        assert {verb: contracted[verb] for verb in EVERYTHING - refused(contracted)} == {}
