"""Threads that make calls for the tasks of one event loop: each call once, whole, and none that nobody waits for."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import pytest

from tablemapper.aio.cancellation import Cancellation, _Cancelled
from tablemapper.aio.workers import Workers
from tablemapper.errors import StoreClosed, StoreError

from .gate import Gate

T = TypeVar("T")


@contextmanager
def started(threads: int = 4) -> Iterator[Workers]:
    workers = Workers(threads=threads, cursors=1, timeout=60)
    try:
        yield workers
    finally:
        workers.close()


def threads_of(workers: Workers) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if getattr(thread, "_target", None) == workers._threads._work]


async def ended(threads: list[threading.Thread]) -> None:
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
        assert not thread.is_alive()


# Calls


async def test_a_call_returns_or_raises_what_it_does_in_a_thread() -> None:
    class Mine(BaseException):
        pass

    def fail() -> None:
        raise Mine

    with started() as workers:
        assert await workers.run(lambda a, *, b: (a, b), 1, b=2) == (1, 2)
        assert await workers.run(threading.get_ident) != threading.get_ident()
        with pytest.raises(Mine):
            await workers.run(fail)


async def test_stop_iteration_reaches_the_task_as_an_error_of_its_own() -> None:
    with started() as workers:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await workers.run(next, iter(()))
        assert await workers.run(len, "x") == 1


async def test_a_call_runs_in_the_context_of_its_task() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    with started() as workers:
        variable.set("of the task")
        assert await workers.run(variable.get) == "of the task"


@pytest.mark.usefixtures("little_garbage")
async def test_what_was_called_is_not_kept_alive_by_a_thread_that_has_nothing_else_to_do() -> None:
    class Thing:
        def fail(self) -> None:
            raise ValueError

    gc.collect()
    gc.disable()
    try:
        with started(1) as workers:
            thing = Thing()
            known = weakref.ref(thing)
            await workers.run(repr, thing)
            with pytest.raises(ValueError):
                await workers.run(thing.fail)
            del thing
            await asyncio.sleep(0)  # the event loop holds what it runs
            while not workers._threads._idle:
                await asyncio.sleep(0.001)
            assert known() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("threads", [1, 2, 32])
async def test_every_call_is_made_once_however_many_come_at_a_time(threads: int) -> None:
    made: list[int] = []
    draw = random.Random(threads)
    with started(threads) as workers:

        async def client(first: int) -> None:
            for number in range(first, first + 20):
                await workers.run(made.append, number)
                for _ in range(draw.randrange(3)):
                    await asyncio.sleep(0)

        for start in range(0, 4_000, 1_000):
            await asyncio.gather(*[client(first) for first in range(start, start + 1_000, 20)])
        assert len(threads_of(workers)) <= threads
    assert sorted(made) == list(range(4_000))


async def test_all_threads_are_used_when_calls_wait_for_each_other() -> None:
    together = threading.Barrier(8, timeout=60)
    with started(8) as workers:
        for _ in range(3):
            await asyncio.gather(*[workers.run(together.wait) for _ in range(8)])


# Brief calls


def brief(workers: Workers, function: Callable[[], T]) -> asyncio.Future[T]:
    return workers.make(function, (), {}, brief=True)


def still(_: object) -> float:
    return 0.0


async def test_brief_calls_that_come_together_wake_one_thread_and_the_event_loop_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Workers, "clock", still)
    monkeypatch.setattr("tablemapper.aio.workers._STUCK", 60)
    with started(1) as workers:
        threads = workers._threads
        ended: list[tuple[int, bool]] = []
        waiting: list[int] = []
        wake = threads._wake

        def count() -> None:
            waiting.append(len(threads._calls))
            wake()

        def look() -> None:
            ended.append((len(threads._outcomes), threads._settling))

        threads._has_many = True  # as after calls that came together
        monkeypatch.setattr(threads, "_wake", count)
        while not threads._idle:
            await asyncio.sleep(0.001)
        await asyncio.gather(*[brief(workers, look) for _ in range(100)])
        assert waiting == [100], "a thread was woken before all calls were there, or another one was"
        assert ended == [(number, False) for number in range(100)], "the event loop was woken before the last had ended"


@pytest.mark.parametrize("behind", [0, 3])
@pytest.mark.parametrize("call", ["not as brief as it should be", "long"])
async def test_a_call_that_takes_its_time_holds_up_no_brief_ones(
    call: str, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workers, "clock", still)
    if call == "long":
        monkeypatch.setattr("tablemapper.aio.workers._STUCK", 60)
    with started() as workers:
        gate = Gate()
        others = [brief(workers, int) for _ in range(3)]
        held = workers.run(gate.pass_through) if call == "long" else brief(workers, gate.pass_through)
        others += [brief(workers, int) for _ in range(behind)]
        _, waiting = await asyncio.wait(others, timeout=30)
        assert not waiting
        assert not held.done()
        gate.open()
        await held


async def test_a_brief_call_is_cancelled_like_any_other() -> None:
    gate = Gate()
    calls: list[str] = []
    with started(1) as workers:
        running = workers.run(gate.pass_through)
        await gate.reached()
        waiting = [brief(workers, lambda name=name: calls.append(name)) for name in "abc"]  # type: ignore[misc]
        assert waiting[1].cancel()
        gate.open()
        await asyncio.gather(running, waiting[0], waiting[2])
        assert waiting[1].cancelled()
    assert calls == ["a", "c"]


# Cancellation


async def test_a_call_knows_once_how_long_it_waited_for_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(Workers, "clock", lambda _: now)
    with started(1) as workers:

        def waited() -> list[float]:
            nonlocal now
            return [workers.waited(), workers.waited()]

        def slow() -> list[float]:
            nonlocal now
            now += 3.0
            return waited()

        calls = [workers.run(slow), workers.run(waited), workers.run(slow), workers.run(waited)]
        assert await asyncio.gather(*calls) == [[0.0, 0.0], [3.0, 0.0], [3.0, 0.0], [6.0, 0.0]]
        assert await workers.run(waited) == [0.0, 0.0]
        assert workers.waited() == 0.0, "this thread makes no calls"


async def test_a_call_that_no_thread_has_begun_is_never_made_once_it_is_cancelled() -> None:
    gate = Gate()
    made: list[str] = []

    async def one(workers: Workers, name: str) -> None:
        await workers.run(made.append, name)

    with started(1) as workers:
        running = asyncio.create_task(asyncio.wait_for(workers.run(gate.pass_through), None))
        await gate.reached()
        tasks = [asyncio.create_task(one(workers, name)) for name in "abc"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        gate.open()
        await asyncio.gather(running, tasks[0], tasks[2])
    assert made == ["a", "c"]


@pytest.mark.usefixtures("little_garbage")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("times", [1, 3])
async def test_a_task_that_is_cancelled_goes_on_once_its_call_has_ended(
    fails: bool, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    ends: list[str] = []

    def call() -> None:
        gate.pass_through()
        ends.append("call")
        if fails:
            raise ValueError

    async def cancelled() -> None:
        with started() as workers:

            async def task() -> None:
                try:
                    await workers.run(call)
                finally:
                    ends.append("task")

            running = asyncio.create_task(task())
            await gate.reached()
            for _ in range(times):
                running.cancel()
                for _ in range(10):
                    await asyncio.sleep(0)
                assert not running.done()
            gate.open()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert await workers.run(len, "x") == 1

    with caplog.at_level(logging.DEBUG):
        await cancelled()
        gc.collect()
    assert ends == ["call", "task"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_task_that_cancels_itself_makes_no_call() -> None:
    made: list[int] = []
    with started(1) as workers:

        async def task() -> None:
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            await workers.run(made.append, 1)

        gate = Gate()
        busy = asyncio.create_task(asyncio.wait_for(workers.run(gate.pass_through), None))
        await gate.reached()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(task())
        gate.open()
        await busy
    assert made == []


async def test_a_long_call_is_told_that_its_task_was_cancelled() -> None:
    gate = Gate()
    cancellation = Cancellation()

    def call() -> None:
        for _ in cancellation.items(range(10)):
            gate.pass_through()

    with started() as workers:

        async def task() -> None:
            await workers.run_until(cancellation, call)

        running = asyncio.create_task(task())
        await gate.reached()
        running.cancel()
        await asyncio.sleep(0)
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await running
    with pytest.raises(_Cancelled):
        cancellation.check()


# Interrupts


@pytest.mark.parametrize("lost", ["_gathering", "_waking", "_settling"])
async def test_a_callback_that_an_interrupt_kept_from_running_is_made_good_by_the_next_call(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(Workers, "clock", lambda _: now[0])
    with started() as workers:
        while not workers._threads._idle:
            await asyncio.sleep(0.001)
        setattr(workers._threads, lost, 0.01)  # somebody is about to look, and never does
        call = workers.run(len, "abc")
        await asyncio.sleep(0.02)
        assert not call.done()
        now[0] = 0.02
        assert await asyncio.wait_for(workers.run(len, "ab"), 60) == 2
        assert await asyncio.wait_for(call, 60) == 3


async def test_a_task_that_is_cancelled_after_the_word_of_its_end_was_lost_does_not_wait_for_ever() -> None:
    with started() as workers:
        gate = Gate()
        task = asyncio.ensure_future(workers.run(gate.pass_through))
        await gate.reached()
        workers._threads._settling = float("inf")
        task.cancel()
        gate.open()
        await asyncio.wait([task], timeout=60)
        assert task.done()


async def test_closing_again_ends_the_threads_after_an_interrupt_of_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with started() as workers:
        while not workers._threads._idle:
            await asyncio.sleep(0.001)
        threads = threads_of(workers)
        with monkeypatch.context() as patched:
            patched.setattr("tablemapper.aio.workers.suppress", interrupted)
            with pytest.raises(KeyboardInterrupt):
                workers.close()
        workers.close()
        assert threads
        await ended(threads)


@pytest.mark.usefixtures("little_garbage")
async def test_a_thread_whose_start_is_interrupted_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        threads.append(thread)
        raise KeyboardInterrupt

    threads: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", interrupted)

    with pytest.raises(KeyboardInterrupt):
        Workers(threads=1, cursors=1, timeout=60)
    gc.collect()
    monkeypatch.undo()
    await ended(threads)
    assert threads


# The end


async def test_threads_end_when_they_are_closed_after_the_calls_that_came_before() -> None:
    made: list[int] = []
    with started(1) as workers:
        gate = Gate()
        calls = [workers.run(gate.pass_through), *[workers.run(made.append, number) for number in range(3)]]
        threads = threads_of(workers)
        workers.close()
        workers.close()
        with pytest.raises(StoreClosed):
            workers.run(len, "x")
        gate.open()
        await asyncio.gather(*calls)
        assert threads
        await ended(threads)
    assert made == [0, 1, 2]


@pytest.mark.usefixtures("little_garbage")
async def test_idle_threads_end_when_nobody_holds_the_workers_any_more() -> None:
    workers = Workers(threads=4, cursors=1, timeout=60)
    gate = Gate()
    calls = [workers.run(gate.pass_through) for _ in range(4)]
    await gate.reached()
    gate.open()
    await asyncio.gather(*calls)
    threads = threads_of(workers)
    del workers
    gc.collect()
    await ended(threads)


def test_an_event_loop_may_be_closed_while_a_call_runs() -> None:
    gate = Gate()

    async def begin() -> tuple[Workers, asyncio.Future[None]]:
        workers = Workers(threads=1, cursors=1, timeout=60)
        call = workers.run(gate.pass_through)
        await gate.reached()
        return workers, call

    async def other(workers: Workers) -> None:
        with pytest.raises(StoreError, match="belongs to the event loop"):
            workers.run(len, "x")

    loop = asyncio.new_event_loop()
    workers, call = loop.run_until_complete(begin())
    loop.close()
    asyncio.run(other(workers))
    threads = threads_of(workers)
    gate.open()
    workers.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not call.done()
