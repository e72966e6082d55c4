"""A KeyboardInterrupt at any place of a write, and what it leaves behind: nothing half-written, nobody waiting."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.schema.model import compile_schema

from .. import sqlite_vfs  # noqa: F401  registers the file layers
from ..interrupts import places, strike
from ..twins import Pairs, Twin, Twins, check_clean, file_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tm.Store]:
    path = tmp_path / "store.db"
    with tm.Store(SqliteEngine.open(path, compile_schema([Twin, Twins]), vfs="faulty", most_readers=3)) as store:
        yield store


class Writers(Pairs):
    """Writes pairs in several ways."""

    def transaction(self) -> None:
        with self.store.transaction() as tx:
            for twin in self._next():
                tx.insert(twin)

    def insert_many(self) -> None:
        self.store.insert_many(self._next())

    def read_and_rewrite(self) -> None:
        found = list(self.store.query(Twin).where(Twin.group == self.group).limit(2))
        with self.store.transaction() as tx:
            for twin in found:
                twin.text = twin.text[-20:] + "y"
                tx.replace(twin)

    def swap(self) -> None:
        first, second = self._next()
        self.store.insert_many([first, second])
        with self.store.transaction() as tx:
            tx.delete(first)
            tx.delete(second)

    def get_and_rewrite(self) -> None:
        with self.store.transaction() as tx:
            for number in (2, 3):
                twin = tx.get(Twin.key(self.group, number))
                if twin is not None:
                    twin.text = twin.text[-20:] + "z"
                    tx.replace(twin)

    def ways(self) -> list[Callable[[], None]]:
        return [self.transaction, self.insert_many, self.read_and_rewrite, self.get_and_rewrite, self.swap]


pytestmark = [
    pytest.mark.interrupts,
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),  # Python swallows what a finaliser raises
]


@pytest.mark.parametrize(
    "way", range(5), ids=["transaction", "insert_many", "read_and_rewrite", "get_and_rewrite", "swap"]
)
def test_an_interrupt_at_each_place_of_a_write_leaves_it_whole_or_undone(
    store: tm.Store, way: int, full_size: bool
) -> None:
    pairs = Writers(store, "a")
    pairs.transaction()
    work = pairs.ways()[way]
    work()
    total = places(work)
    assert total > 100
    for at in (*range(1, total, 1 if full_size else 3), total):  # (places move as statements become known)
        strike(at, work)
        check_clean(store)
    pairs.transaction()
    assert store.check().ok
    assert len(file_of(store)._connections) <= 4, "readers were lost"


def test_an_interrupt_while_others_write_harms_none_of_them(store: tm.Store, full_size: bool) -> None:
    """10,000 interrupts with --long."""
    draw = random.Random(5)
    stop = threading.Event()
    failures: list[BaseException] = []
    written = [0] * 3

    def other(which: int) -> None:
        pairs = Writers(store, f"other-{which}")
        try:
            while not stop.wait(0.001):  # else one thread under a trace waits for three that never rest
                pairs.transaction()
                written[which] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=other, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    try:
        mine = Writers(store, "mine")
        mine.transaction()
        ways = mine.ways()
        for way in ways:
            way()
        totals = [places(way) for way in ways]
        hits, rounds = 0, 10_000 if full_size else 300
        for _ in range(rounds):
            which = draw.randrange(len(ways))
            hits += bool(strike(draw.randint(1, totals[which]), ways[which]))
            assert not failures
            assert not any(held.holder == threading.get_ident() for held in list(file_of(store)._open_reads))
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "one waits for ever"
    assert not failures
    assert hits > rounds // 3
    check_clean(store)
    for which in range(3):
        assert store[Twins.key(f"other-{which}")].count == 2 * written[which]
    assert store.check().ok


def test_an_interrupt_while_waiting_for_a_leader_says_what_became_of_the_write(
    store: tm.Store, full_size: bool
) -> None:
    """It stands in line no more, or it is written whole."""
    inside, leave = threading.Event(), threading.Event()
    file = file_of(store)
    pairs = Writers(store, "a")
    pairs.transaction()

    def lead() -> None:
        inside.set()
        leave.wait(0.02)

    for at in range(1, 400, 7 if full_size else 14):
        inside.clear()
        leave.clear()
        leader = threading.Thread(target=file.write, args=(lambda w: lead(),))
        leader.start()
        inside.wait(60)
        strike(at, pairs.transaction)
        leave.set()
        leader.join(60)
        check_clean(store)


def test_the_harness_comes_in_only_where_python_lets_an_interrupt_in() -> None:
    """Python gives up the lock of a ``with`` whatever interrupts ``return work()`` in it, and so must the harness."""
    lock = threading.Lock()
    source = "def held(lock, work):\n    with lock:\n        return work()\n"
    scope: dict[str, Any] = {}
    exec(compile(source, str(Path(tm.__file__).with_name("held.py")), "exec"), scope)  # as code of the package

    def work() -> None:
        scope["held"](lock, list)

    for at in range(1, places(work) + 1):
        assert strike(at, work)
        assert not lock.locked()


def test_the_harness_finds_a_transaction_that_is_begun_and_ended_in_python(
    store: tm.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""

    class InPython:
        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def __enter__(self) -> None:
            self._connection.execute("BEGIN IMMEDIATE")

        def __exit__(self, kind: Any, *_: object) -> None:
            self._connection.execute("ROLLBACK" if kind else "COMMIT")

    monkeypatch.setattr(InPython.__enter__, "__code__", compiled_as_ours(InPython.__enter__))
    pairs = Writers(store, "a")
    pairs.transaction()
    writes = file_of(store)._writes
    writes.connection = InPython(writes.connection)  # type: ignore[assignment]
    total = places(pairs.transaction)
    draw = random.Random(5)

    def is_left_open() -> bool:
        strike(draw.randint(1, total), pairs.transaction)  # in order, one could step past the place: it moves
        return bool(writes.connection and writes.connection.in_transaction)

    assert any(is_left_open() for _ in range(20 * total))
    writes.connection.execute("ROLLBACK")


def compiled_as_ours(function: Any) -> Any:
    """Return the code as if it stood in the package, so that interrupts come into it."""
    return function.__code__.replace(co_filename=tm.__file__)
