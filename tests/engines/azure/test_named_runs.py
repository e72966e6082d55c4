"""Writing by a query under a name, on an account: it goes on where it ended, and changes nothing twice."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.execution.prepared import BatchLimits

from ...classes import entity, grouped
from .memory import Faulty, Memory
from .place import AzurePlace


class Task(tm.Entity, table="Tasks"):
    group: tm.Field[str]
    number: tm.Field[int]
    n: tm.Field[int] = tm.field(default=1)
    state: tm.Field[str] = tm.field(default="open")

    key = tm.Key[str, int](partition="{group}", row="{number}")
    by_state = tm.Index[str, int](partition="{state}", row="{number}")


Total = grouped("Total", Task, "state", "Totals", n=tm.sum(Task.n))


class Bare(tm.Entity, table="Bares"):
    group: tm.Field[str]
    number: tm.Field[int]
    n: tm.Field[int] = tm.field(default=1)
    key = tm.Key[str, int](partition="{group}", row="{number}")


def opened(memory: Memory, cls: Any) -> tm.Store:
    store = tm.open(AzurePlace(memory=memory, still=True), models=[Task, Total] if cls is Task else [cls])  # type: ignore[arg-type]
    store._plans.batch_limits = BatchLimits(batch=3)
    return store


RUNS: dict[str, Any] = {
    "along the key": lambda store, cls: store.query(cls).allow_scan().update(n=cls.n + 1, resume="r"),
    "along an index": lambda store, cls: store.query(cls.by_state("open")).update(n=cls.n + 1, resume="r"),
    "the first ones": lambda store, cls: (
        store.query(cls).where(cls.group >= "a").allow_scan().limit(7).update(n=cls.n + 1, resume="r")
    ),
}


@pytest.mark.parametrize("cls", [Task, Bare])
@pytest.mark.parametrize("way", ["before", "after", "lost"])
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_ends_at_any_request_changes_nothing_twice(name: str, way: str, cls: Any, full_size: bool) -> None:
    if name == "along an index" and cls is Bare:
        return
    rng, ended, at = random.Random(1), False, 0
    while not ended:
        at += 1 if full_size else rng.randrange(1, 16)
        memory = Faulty()
        with opened(memory, cls) as store:
            store.insert_many([cls(group, number) for group in "abc" for number in range(4)])
        memory.at, memory.way = memory.number + at, way
        for _ in range(3):
            try:
                with opened(memory, cls) as store:
                    RUNS[name](store, cls)
            except KeyboardInterrupt:
                with opened(memory, cls) as store:
                    if store._engine.note("resume='r'") is not None or store.query(cls).allow_scan().max(cls.n) == 1:
                        continue
            break  # (it may have ended when its run was over)
        ended = memory.number < memory.at
        memory.at = -1
        with opened(memory, cls) as store:
            values = [one.n for one in sorted(store.query(cls).allow_scan(), key=lambda one: (one.group, one.number))]
            assert values == ([2] * 7 + [1] * 5 if name == "the first ones" else [2] * 12), at
            store.sweep()
            assert store._engine.note("resume='r'") is None


@pytest.mark.parametrize("name", ["/" * 255, "\N{GRINNING FACE}" * 255])
def test_a_run_may_have_any_name(name: str) -> None:
    memory = Faulty()
    with opened(memory, Bare) as store:
        store.insert_many([Bare(group, 1) for group in "ab"])
        assert store.query(Bare).allow_scan().update(n=Bare.n + 1, resume=name) == 2
        assert {one.n for one in store.query(Bare).allow_scan()} == {2}


class Stopped(Exception):
    pass


def test_a_run_goes_on_after_its_entities_were_copied_to_other_tables() -> None:
    members = {"group": str, "number": int, "n": (int, tm.field(default=1))}
    new = entity("Bare", "Bares", members, tm.Key[str, int](partition="{group}", row="{number}"))
    written = 0

    def more(one: Any) -> Any:
        nonlocal written
        written += 1
        if written == 9:
            raise Stopped
        return one.replace(n=one.n + 1)

    @tm.migration(after=None, old=[Bare], new=[new])
    def hundred(m: tm.Migration) -> None:
        m.convert(Bare.n, new.n, lambda n: n + 100)

    memory = Memory()
    with opened(memory, Bare) as store:
        store.insert_many([Bare(group, number) for group in "ab" for number in range(7)])
        with pytest.raises(Stopped):
            store.query(Bare).allow_scan().update(more, resume="r")
    tm.migrate(AzurePlace(memory=memory, still=True), [hundred], contract=True)  # type: ignore[arg-type]
    with opened(memory, new) as store:
        assert store.query(new).allow_scan().update(more, resume="r") == 14
        assert {one.n for one in store.query(new).allow_scan()} == {102}
        assert store._engine.note("resume='r'") is None
