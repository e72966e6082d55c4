"""The verbs for asyncio: the same outcomes, nothing that goes on behind a cancelled task."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import gc
import inspect
import pickle
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

import tablemapper as tm
from tablemapper.aio import opening as aio_opening
from tablemapper.aio.opening import OpenContext
from tablemapper.aio.query import AsyncGroups, AsyncMixedQuery
from tablemapper.aio.store import AsyncStore
from tablemapper.aio.transaction import AsyncTransaction
from tablemapper.aio.workers import Workers
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.errors import (
    EntityExists,
    EntityNotFound,
    InvalidEntity,
    InvalidTransaction,
    ScanRefused,
    StoreClosed,
    StoreError,
    StoreLocked,
)
from tablemapper.execution.totals import GroupedQuery
from tablemapper.query.class_results import Rows
from tablemapper.query.mixed import MixedQuery
from tablemapper.query.query import Query
from tablemapper.schema.model import compile_schema
from tablemapper.store.store import Store
from tablemapper.verbs.transaction import Transaction

from ..classes import entity
from ..engines.sqlite.table import eventually
from ..sqlite_vfs import Slow
from ..twins import Pairs, Twin, Twins, check_clean, file_of
from .gate import Gate

T = TypeVar("T")


def open_twins(path: Path, **options: Any) -> OpenContext:
    return tm.open_async(str(path), models=[Twin, Twins], **options)


@pytest.fixture
def store(path: Path, runner: asyncio.Runner) -> Iterator[AsyncStore]:
    async def open() -> AsyncStore:
        return await open_twins(path)

    store = runner.run(open())
    yield store
    runner.run(store.close())


def fill(path: Path, count: int, group: str = "a") -> None:
    with tm.open(path, models=[Twin, Twins]) as store:
        store.insert_many(Twin(group, number) for number in range(count))


# Habits of synchronous code, and of other libraries


async def test_a_verb_of_a_transaction_may_be_awaited(store: AsyncStore) -> None:
    await store.insert(Twin("a", 9))
    async with store.transaction() as tx:
        assert await tx.insert(Twin("a", 1)) is None
        assert await tx.upsert(Twin("a", 2)) is None
        assert await tx.merge(Twin.key("a", 9), text="x") is None
        tx.insert(Twin("a", 3))
    async with store.transaction() as tx:
        assert await tx.replace((await store[Twin.key("a", 1)]).replace(text="y")) is None
        assert await tx.delete(Twin.key("a", 9)) is None
    assert [twin.number async for twin in store.query(Twin).where(Twin.group == "a")] == [1, 2, 3]


@pytest.mark.parametrize(
    "write",
    [
        lambda s: s.insert(Twin("a", 2)),
        lambda s: s.insert_many([Twin("a", 2)]),
        lambda s: s.query(Twin).where(Twin.group == "a").update(text="x"),
        lambda s: s.update(Twin.key("a", 1), lambda twin: twin.replace(text="y")),
        lambda s: s.transaction().__aenter__(),
        lambda s: asyncio.create_task(s.insert(Twin("a", 2))),
    ],
)
async def test_a_store_does_not_write_beside_the_transaction_of_its_task(store: AsyncStore, write: Any) -> None:
    await store.insert(Twin("a", 1))
    async with store.transaction() as tx:
        with pytest.raises(tm.InvalidTransaction, match=r"tx\.insert"):
            await write(store)
        assert await store.exists(Twin.key("a", 1))
        await tx.insert(Twin("a", 3))
    await write(store)


async def test_other_tasks_write_beside_a_transaction(store: AsyncStore) -> None:
    begun, written = asyncio.Event(), asyncio.Event()

    async def other() -> None:
        await begun.wait()
        await store.insert(Twin("a", 2))
        written.set()

    task = asyncio.create_task(other())
    async with store.transaction() as tx:
        tx.insert(Twin("a", 1))
        begun.set()
        await written.wait()
    await task
    assert await store.query(Twin).where(Twin.group == "a").count() == 2


async def test_a_call_runs_in_the_context_of_its_task(store: AsyncStore) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    user.set("ann")
    await store.insert(Twin("a", 1))
    await store.update(Twin.key("a", 1), lambda twin: twin.replace(text=user.get()))
    assert (await store[Twin.key("a", 1)]).text == "ann"


async def test_what_is_not_awaited_says_so(store: AsyncStore, path: Path) -> None:
    opening: Any = tm.open_async(str(path), models=[Twin, Twins])
    query: Any = store.query(Twin).where(Twin.group == "a")
    with pytest.raises(AttributeError, match="await tm.open_async"):
        opening.insert(Twin("a", 1))
    for block in (opening, store, store.transaction()):
        with pytest.raises(TypeError, match="async with, not with, opens it"), block:
            pass
    for loop in (query, store.partition(Twin.group == "a")):
        with pytest.raises(TypeError, match="async for"):
            list(loop)
    with pytest.raises(TypeError, match=r"await query\.first\(\)"):
        await query
    for one in (store, query, store.transaction()):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            pickle.dumps(one)
    container: Any
    for container in (store, store.transaction()):
        with pytest.raises(TypeError, match=r"\.exists\(key\)"):
            _ = Twin.key("a", 1) in container


# Verbs


def test_every_verb_of_a_store_is_there_and_takes_the_same_arguments() -> None:
    pairs: list[tuple[type, type]] = [
        (Store, AsyncStore), (Transaction, AsyncTransaction), (Query, tm.types.AsyncQuery),
        (Rows, tm.types.AsyncRows), (MixedQuery, AsyncMixedQuery), (tm.types.Pairs, tm.types.AsyncPairs),
        (GroupedQuery, AsyncGroups),
    ]  # fmt: skip
    for sync, other in pairs:
        for name, method in inspect.getmembers(sync, inspect.isfunction):
            if name.startswith("_"):
                continue
            assert hasattr(other, name), f"{other.__name__}.{name} is missing"
            mine = [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()]
            theirs = [(p.name, p.kind, p.default) for p in inspect.signature(getattr(other, name)).parameters.values()]
            assert mine == theirs, f"{other.__name__}.{name}"
            assert getattr(other, name).__doc__


@pytest.mark.file
async def test_the_verbs_do_what_they_do_in_a_store(store: AsyncStore, path: Path) -> None:
    one = Twin("a", 1)
    await store.insert(one)
    assert tm.info(one).etag
    with pytest.raises(EntityExists):
        await store.insert(Twin("a", 1))
    assert await store[Twin.key("a", 1)] == one
    assert await store.get(Twin.key("a", 2)) is None
    with pytest.raises(EntityNotFound):
        await store[Twin.key("a", 2)]
    one.text = "new"
    await store.replace(one)
    await store.merge(Twin.key("a", 1), text="merged")
    assert (await store.update(Twin.key("a", 1), lambda twin: twin.replace(text=twin.text + "!"))).text == "merged!"
    await store.upsert(Twin("a", 2))
    assert await store.get_many([Twin.key("a", n) for n in (2, 3)]) == [Twin("a", 2), None]
    moved = await store[Twin.key("a", 2)]
    await store.move(moved, Twin.key("b", 2))
    assert await store.exists(Twin.key("b", 2))
    assert (await store[Twins.key("a")]).count == 1
    await store.delete(Twin.key("b", 2))
    assert [row async for row in store.partition(Twin.group == "a")] == [await store[Twin.key("a", 1)]]
    await store.backup(path.with_name("copy.db"))
    assert (await store.check()).ok
    assert (await store.repair()).repaired == ()
    await store.compact()
    with tm.open(path.with_name("copy.db"), models=[Twin, Twins]) as copy:
        assert copy[Twin.key("a", 1)].text == "merged!"


@pytest.mark.needs("backward")
async def test_queries_are_built_as_ever_and_awaited_where_they_read(store: AsyncStore, path: Path) -> None:
    fill(path, 1_000)
    query = store.query(Twin).where(Twin.group == "a").order_by(Twin.number.desc())
    assert await query.count() == 1_000
    assert [twin.number async for twin in query] == list(range(999, -1, -1))
    assert [twin.number async for twin in query.limit(2)] == [999, 998]
    assert len(await query.list()) == 1_000
    first = await query.first()
    assert first is not None
    assert first.number == 999
    one = store.query(Twin).where(Twin.group == "a", Twin.number == 5)
    assert (await one.one()).number == 5
    assert await one.one_or_none() == await one.first()
    assert await one.exists()
    assert "partition" in str(await one.explain())
    page = await query.page(10)
    assert len(page.items) == 10
    assert (await query.page(10, page.token)).items[0].number == 989
    assert [len(page.items) async for page in query.limit(25).pages(10)] == [10, 10, 5]
    assert [row async for row in query.select(Twin.number).limit(2)] == [(999,), (998,)]
    assert await query.sum(Twin.number) == 499_500
    assert await query.avg(Twin.number) == 499.5
    assert (await query.min(Twin.number), await query.max(Twin.number)) == (0, 999)
    groups = store.query(Twin).allow_scan().group_by(Twin.group)
    assert await groups.count() == {"a": 1_000}
    assert await groups.sum(Twin.number) == {"a": 499_500}
    assert await groups.avg(Twin.number) == {"a": 499.5}
    assert (await groups.min(Twin.number), await groups.max(Twin.number)) == ({"a": 0}, {"a": 999})
    assert await store.query(Twin.by_text("x")).budget(timeout=60).count() == 1_000
    written = store.query(Twin).where(Twin.group == "a", Twin.number >= 990)
    assert await written.update(text="late") == 10
    assert await store.query(Twin.by_text("late")).count() == 10
    assert await written.delete() == 10
    with pytest.raises(ScanRefused):
        await store.query(Twin).where(Twin.number > 5).first()
    with pytest.raises(ScanRefused):
        async for _ in store.query(Twin).where(Twin.number > 5):
            pass


Head = entity("Head", "Chapters", {"book": str}, tm.Key[str](partition="{book}", row="head"))


class Chapter(tm.Entity, table="Chapters"):
    book: tm.Field[str]
    number: tm.Field[int]

    key = tm.Key[str, int](partition="{book}", row=("chapter", "{number}"))


@pytest.mark.needs("backward")
async def test_several_classes_are_asked_together() -> None:
    async with tm.open_async(":memory:", models=[Head, Chapter]) as store:
        await store.insert_many([Head("Dune"), *(Chapter("Dune", number) for number in range(3))])
        both = store.query(Head, Chapter).where(Head.book == "Dune")
        assert [type(row) async for row in both] == [Chapter, Chapter, Chapter, Head]
        assert await both.backwards().first() == Head("Dune")
        assert await both.count() == 4
        assert "Chapter" in str(await both.explain())


async def test_entities_come_with_others_and_are_moved() -> None:
    async with tm.open_async(":memory:", models=[Head, Chapter]) as store:
        await store.insert_many([Head("Dune"), *(Chapter("Dune", number) for number in range(3))])
        pairs = store.query(Chapter).where(Chapter.book == "Dune").with_(Head, by=Chapter.book)
        assert [head async for _, head in pairs] == [Head("Dune")] * 3
        assert await pairs.list() == [(Chapter("Dune", number), Head("Dune")) for number in range(3)]
        assert await pairs.first() == (Chapter("Dune", 0), Head("Dune"))
        assert [len(page.items) async for page in pairs.pages(2)] == [2, 1]
        with pytest.raises(TypeError):
            copy.copy(pairs)
        moved = store.query(Chapter).where(Chapter.book == "Dune").move_to(lambda chapter: chapter.replace(book="Emma"))
        assert await moved == 3
        assert await store.query(Chapter).where(Chapter.book == "Emma").count() == 3


@pytest.mark.needs("across_partitions")
async def test_a_transaction_takes_note_and_sends_at_the_end(store: AsyncStore) -> None:
    async with store.transaction() as tx:
        tx.insert(Twin("a", 1))
        tx.upsert(Twin("a", 2))
        assert await tx.exists(Twin.key("a", 1))
        assert (await tx[Twin.key("a", 2)]).text == "x"
        assert await tx.get(Twin.key("a", 3)) is None
        with pytest.raises(EntityNotFound):
            await tx[Twin.key("a", 3)]
        assert not await store.exists(Twin.key("a", 1))
    assert await store.exists(Twin.key("a", 1))
    with pytest.raises(RuntimeError, match="mine"):
        async with store.transaction() as tx:
            tx.delete(Twin.key("a", 1))
            raise RuntimeError("mine")
    with pytest.raises(EntityExists):
        async with store.transaction() as tx:
            tx.insert(Twin("a", 3))
            tx.insert(Twin("a", 1))
    assert await store.query(Twin).allow_scan().count() == 2
    with pytest.raises(InvalidTransaction, match="is over"):
        tx.insert(Twin("a", 9))
    async with store.transaction(across_partitions=True) as tx:
        tx.insert(Twin("a", 5))
        tx.insert(Twin("b", 5))
    with pytest.raises(InvalidTransaction, match="text changed in the block"):
        async with store.transaction() as tx:
            (await tx[Twin.key("a", 5)]).text = "changed"


async def test_a_transaction_belongs_to_one_task(store: AsyncStore) -> None:
    async with store.transaction() as tx:

        async def other() -> None:
            tx.insert(Twin("a", 1))

        with pytest.raises(InvalidTransaction, match="that opened it"):
            await asyncio.create_task(other())


@pytest.mark.needs("all_or_none_load")
async def test_an_atomic_load_takes_what_can_be_iterated_in_a_thread(store: AsyncStore) -> None:
    async def one() -> AsyncIterator[Twin]:
        yield Twin("c", 1)

    assert await store.insert_many((Twin("b", number) for number in range(5)), atomic=True) == 5
    with pytest.raises(EntityExists) as caught:
        await store.insert_many([Twin("c", 1), Twin("b", 3)], atomic=True)
    assert caught.value.written == 0  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="asynchronous"):
        await store.insert_many(one(), atomic=True)
    assert await store.query(Twin).where(Twin.group == "c").count() == 0


async def test_streams_may_be_synchronous_or_not_and_say_how_far_they_came(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablemapper.verbs.write_windows._ENTITIES", 10)
    seen: list[tm.reports.Progress] = []

    async def numbers(end: int, group: str = "a") -> AsyncIterator[Twin]:
        for number in range(end):
            await asyncio.sleep(0)
            yield Twin(group, number)

    assert await store.insert_many(numbers(25), progress=seen.append) == 25
    assert await store.upsert_many(numbers(30)) == 30
    assert await store.insert_many(Twin("b", number) for number in range(5)) == 5
    assert (
        await store.delete_many(twin async for twin in store.query(Twin).where(Twin.group == "a", Twin.number < 10))
        == 10
    )
    assert await store.delete_many(store.query(Twin).where(Twin.group == "b")) == 5
    assert await store.query(Twin).where(Twin.group == "a").count() == 20

    async def breaks() -> AsyncIterator[Twin]:
        async for twin in numbers(25, "c"):
            yield twin
        yield Twin("c", 0)

    with pytest.raises(EntityExists) as caught:
        await store.insert_many(breaks())
    assert caught.value.written == 20  # type: ignore[attr-defined]
    assert "20 entities were written" in caught.value.__notes__[0]
    assert await store.query(Twin).where(Twin.group == "c").count() == 20
    assert seen[-1].done == 25


# Threads and loops


def on_slow_disk(path: Path) -> AsyncStore:
    engine = SqliteEngine.open(path, compile_schema([Twin, Twins]), vfs="slow")
    return AsyncStore(engine, Workers(threads=32, cursors=2, timeout=60))


async def test_the_event_loop_goes_on_while_the_store_waits_for_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, gate = on_slow_disk(path), Gate()
    monkeypatch.setattr(Slow, "sleep", gate.pass_through)
    inserting = asyncio.create_task(store.insert(Twin("a", 1)))
    await gate.reached()
    for _ in range(100):
        await asyncio.sleep(0)
    gate.open()
    await inserting
    await store.close()


async def test_tasks_that_write_share_commits(path: Path) -> None:
    store = on_slow_disk(path)
    before = Slow.syncs
    await asyncio.gather(*[store.insert(Twin("a", number)) for number in range(200)])
    assert Slow.syncs - before < 70
    await store.close()


async def test_only_so_many_calls_run_at_a_time_and_the_others_hold_no_thread(path: Path) -> None:
    together = threading.Barrier(3, timeout=60)
    running: list[int] = []
    most = 0

    def change(twin: Twin) -> None:
        nonlocal most
        running.append(twin.number)
        most = max(most, len(running))
        together.wait()
        running.remove(twin.number)

    async with open_twins(path, threads=3) as store:
        await store.insert_many([Twin("a", number) for number in range(39)])
        before = threading.active_count()
        await asyncio.gather(*[store.update(Twin.key("a", number), change) for number in range(39)])
        assert threading.active_count() - before <= 3
    assert most == 3


@pytest.mark.file
async def test_the_timeouts_of_tasks_do_not_add_up_however_few_threads_there_are(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path, 0)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    now, calls, main = 0.0, 0, threading.get_ident()

    def clock(*_: object) -> float:
        nonlocal calls
        calls += threading.get_ident() == main
        return now

    def sleep(seconds: float) -> None:
        nonlocal now
        eventually(lambda: calls >= 40)  # time stands still until all of them have come
        now += seconds

    def start(waited: Callable[[], float], loop: object) -> SqliteEngine:
        schema = compile_schema([Twin, Twins])
        return SqliteEngine.open(path, schema, timeout=1.0, monotonic=clock, sleep=sleep, waited=waited)

    monkeypatch.setattr(Workers, "clock", clock)
    async with OpenContext(start, limits=None, threads=4, timeout=1.0) as store:
        calls = 0
        inserts = [store.insert(Twin("a", number)) for number in range(40)]
        results = await asyncio.gather(*inserts, return_exceptions=True)
        assert [type(result) for result in results] == [StoreLocked] * 40
        assert now < 1.1, "some waited for the timeouts of others, too"
        other.close()
        await store.insert(Twin("a", 1))


@pytest.mark.usefixtures("little_garbage")
@pytest.mark.file
async def test_a_loop_holds_few_rows_and_gives_its_reader_back_when_it_is_left(store: AsyncStore, path: Path) -> None:
    fill(path, 2_000)
    file = file_of(store._sync)
    for _ in range(3):
        async for _ in store.query(Twin).where(Twin.group == "a"):
            assert sum(held.holder != 0 for held in list(file._open_reads)) == 1
            break
    assert all(held.holder == 0 for held in list(file._open_reads))
    loop = aiter(store.query(Twin).where(Twin.group == "a"))
    await anext(loop)
    await loop.aclose()
    assert [item async for item in loop] == []
    with pytest.raises(ZeroDivisionError):
        async for _ in store.query(Twin).where(Twin.group == "a"):
            raise ZeroDivisionError
    gc.collect()
    assert all(held.holder == 0 for held in list(file._open_reads))
    assert len(file._connections) <= 3
    assert not store._workers.cursors._open


async def test_loops_wait_for_each_other_but_not_for_themselves(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, 1_000)
    monkeypatch.setattr(aio_opening, "_CURSORS", 2)
    opened = most = 0

    async with open_twins(path, timeout=60) as store:
        query = store.query(Twin).where(Twin.group == "a")

        async def client() -> int:
            nonlocal opened, most
            seen = 0
            async for _ in query:
                if not seen:
                    opened += 1
                    most = max(most, opened)
                seen += 1
                if seen % 100 == 0:
                    await asyncio.sleep(0)
            opened -= 1
            return seen

        assert await asyncio.gather(*[client() for _ in range(10)]) == [1_000] * 10
        assert most <= 3  # one that has fetched its last rows is open no more, though they are not all seen
        loops = [aiter(query) for _ in range(5)]
        for loop in loops:  # in one task
            await anext(loop)

        async def other() -> None:
            async for _ in query:
                break

        monkeypatch.setattr(store._workers.cursors, "_timeout", 0.01)
        with pytest.raises(StoreLocked, match="2 loops over queries were open"):
            await asyncio.create_task(other())
        loops.clear()
        del loop
        await asyncio.create_task(other())


async def test_a_loop_is_for_one_task(store: AsyncStore, path: Path) -> None:
    fill(path, 1_000)
    loop = aiter(store.query(Twin).where(Twin.group == "a"))
    results = await asyncio.gather(anext(loop), anext(loop), return_exceptions=True)
    assert [type(result) for result in results] == [Twin, StoreError]


def test_a_closed_store_and_another_event_loop_are_refused(path: Path) -> None:
    async def opened() -> AsyncStore:
        store = await open_twins(path)
        await store.insert(Twin("a", 1))
        return store

    store = asyncio.run(opened())

    async def elsewhere() -> None:
        await store.get(Twin.key("a", 1))

    with pytest.raises(StoreError, match="belongs to the event loop"):
        asyncio.run(elsewhere())
    store._sync.close()
    store._workers.close()

    async def closed() -> None:
        store = await open_twins(path)
        await store.close()
        await store.close()
        with pytest.raises(StoreClosed):
            await store.get(Twin.key("a", 1))
        with pytest.raises(StoreClosed):
            await store.query(Twin).allow_scan().count()
        with pytest.raises(StoreClosed):
            async for _ in store.partition(Twin.group == "a"):
                pass

    asyncio.run(closed())


async def test_what_is_wrong_with_an_argument_is_said_at_once(store: AsyncStore, path: Path) -> None:
    with pytest.raises(ValueError, match="threads=0"):
        tm.open_async(path, models=[Twin, Twins], threads=0)
    with pytest.raises(InvalidEntity):
        await store.insert("no entity")  # type: ignore[arg-type]


# Cancellation


class CancelAt:
    """Awaits something, and cancels its task while it is suspended for the n-th time."""

    def __init__(self, work: Awaitable[Any], at: int, delay: float) -> None:
        self._work = work
        self._at = at
        self._delay = delay
        self.count = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                waits_for = steps.throw(error) if error is not None else steps.send(value)
            except StopIteration as stop:
                return stop.value
            self.count += 1
            if self.count == self._at:
                loop.call_later(self._delay, task.cancel) if self._delay else loop.call_soon(task.cancel)
            value = error = None
            try:
                value = yield waits_for
            except BaseException as thrown:
                error = thrown


async def cancelled_at(work: Awaitable[Any], at: int, delay: float) -> bool:
    """Cancel ``work`` at its n-th await; tell whether it was."""
    task = asyncio.ensure_future(_awaited(CancelAt(work, at, delay)))
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return task.cancelled()


async def _awaited(work: CancelAt) -> None:
    await work


class AsyncPairs(Pairs):
    async def transaction(self) -> None:
        async with self.store.transaction() as tx:
            for twin in self._next():
                tx.insert(twin)
            await tx.exists(Twin.key(self.group, 0))

    async def insert_many(self) -> None:
        await self.store.insert_many(iter(self._next()))

    async def insert_stream(self) -> None:
        async def stream() -> AsyncIterator[Twin]:
            for twin in self._next():
                await asyncio.sleep(0)
                yield twin

        await self.store.insert_many(stream())

    async def read_and_rewrite(self) -> None:
        found = []
        async for twin in self.store.query(Twin).where(Twin.group == self.group).limit(2):
            twin.text = str(self.number)
            found.append(twin)
        async with self.store.transaction() as tx:
            for twin in found:
                tx.replace(twin)

    async def count_and_check(self) -> None:
        await self.store.query(Twin).where(Twin.group == self.group).count()
        await self.store.check()

    def ways(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [
            self.transaction, self.insert_many, self.insert_stream, self.read_and_rewrite, self.count_and_check,
        ]  # fmt: skip


def check_idle(store: AsyncStore) -> None:
    """Nothing goes on: not in a thread, not in the file."""
    workers = store._workers
    assert all(call.cancelled() for call in list(workers._threads._calls))
    assert not workers.cursors._waiters
    assert all(held.holder == 0 for held in list(file_of(store._sync)._open_reads))
    check_clean(store._sync)


@pytest.mark.file
async def test_a_call_that_is_cancelled_at_any_await_leaves_nothing_half_done(path: Path, full_size: bool) -> None:
    """10,000 times with --long."""
    draw = random.Random(9)
    rounds = 10_000 if full_size else 300
    async with open_twins(path, durability="relaxed") as store:
        pairs = AsyncPairs(store, "a")
        for way in pairs.ways():
            await way()
        hits = 0
        for turn in range(rounds):
            hits += await cancelled_at(draw.choice(pairs.ways())(), draw.randint(1, 3), draw.choice([0.0, 0.0, 0.0002]))
            if turn % 50 == 0:  # so that what is looked at stays small
                check_idle(store)
                await store.delete_many(store.query(Twin).where(Twin.group == "a", Twin.number > 3))
            file = file_of(store._sync)
            assert file._connection is not None
            assert not file._connection.in_transaction, "a transaction was left open"
            assert not file._writes.queue.lock.locked(), "a thread went on"
        check_idle(store)
        assert (await store.check()).ok
    assert rounds * 0.2 < hits < rounds


@pytest.mark.file
async def test_many_tasks_that_are_cancelled_harm_none_that_are_not(path: Path) -> None:
    async with open_twins(path, durability="relaxed") as store:
        draw = random.Random(3)
        victims = [AsyncPairs(store, f"victim-{which}") for which in range(6)]
        others = [AsyncPairs(store, f"other-{which}") for which in range(6)]

        async def suffer(pairs: AsyncPairs) -> None:
            for _ in range(15):
                await cancelled_at(pairs.transaction(), draw.randint(1, 4), draw.choice([0.0, 0.001]))

        async def go_on(pairs: AsyncPairs) -> None:
            for _ in range(15):
                await pairs.transaction()

        await asyncio.gather(*map(suffer, victims), *map(go_on, others))
        for pairs in others:
            assert (await store[Twins.key(pairs.group)]).count == 30
        check_idle(store)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancelled_call_ends_only_once_its_write_is_decided(
    path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    store, gate = on_slow_disk(path), Gate()
    monkeypatch.setattr(Slow, "sleep", gate.pass_through)
    task = asyncio.create_task(store.insert(Twin("a", 1)))
    await gate.reached()
    for _ in range(times):
        task.cancel()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not task.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not file_of(store._sync)._writes.queue.lock.locked()
    assert await store.exists(Twin.key("a", 1))
    await store.close()


async def test_a_long_call_ends_between_two_entities_once_it_is_cancelled(store: AsyncStore) -> None:
    gate = Gate()
    drawn = 0

    def endless() -> Iterator[Twin]:
        nonlocal drawn
        while True:
            drawn += 1
            if drawn == 20:
                gate.pass_through()
            yield Twin("a", drawn)

    task = asyncio.create_task(store.insert_many(endless()))
    await gate.reached()
    task.cancel()
    await asyncio.sleep(0)
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert drawn == 20
    assert not await store.query(Twin).allow_scan().exists()


@pytest.mark.file
async def test_a_timeout_is_an_ordinary_cancellation(store: AsyncStore) -> None:
    gate = Gate()
    await store.insert_many([Twin("a", 1), Twin("a", 2)])

    async def expire(limit: asyncio.Timeout) -> None:
        await gate.reached()
        limit.reschedule(0)
        while not limit.expired():
            await asyncio.sleep(0)
        gate.open()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            expiring = asyncio.create_task(expire(limit))
            await store.update(Twin.key("a", 1), gate.pass_through)
    await expiring
    check_idle(store)


@pytest.mark.usefixtures("little_garbage")
async def test_opening_that_is_cancelled_leaves_no_file_open(path: Path) -> None:
    for at in range(1, 4):
        opening = open_twins(path)

        async def work(opening: Any = opening) -> None:
            async with opening:
                pass

        await cancelled_at(work(), at, 0.0)
    gc.collect()
    assert not [c for c in apsw.connections() if c.filename == str(path)]
