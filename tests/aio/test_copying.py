"""A store copied into another one by a task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..engines.azure.place import AzurePlace
from ..twins import Twin, Twins
from .gate import Gate

pytestmark = pytest.mark.file
MODELS: list[Any] = [Twin, Twins]


async def numbers(store: tm.AsyncStore) -> list[int]:
    return [twin.number async for twin in store.query(Twin).where(Twin.group == "a")]


@asynccontextmanager
async def filled_and_empty(path: Path, account: bool) -> AsyncIterator[tuple[tm.AsyncStore, tm.AsyncStore]]:
    """Yield a file with fifty entities, and a store without: in memory, or of an account."""
    place: Any = AzurePlace() if account else ":memory:"
    async with tm.open_async(path, models=MODELS) as source, tm.open_async(place, models=MODELS) as target:
        await source.insert_many([Twin("a", number) for number in range(50)])
        yield source, target


@pytest.mark.parametrize("account", [False, True], ids=["file", "account"])
async def test_a_task_copies_a_store_while_others_go_on(path: Path, account: bool) -> None:
    gate, told = Gate(), list[int]()

    def tell(progress: tm.reports.Progress) -> None:
        if not told:
            gate.pass_through()
        told.append(progress.done)

    async with filled_and_empty(path, account) as (source, target):
        task = asyncio.create_task(tm.copy_async(source, target, progress=tell))
        await gate.reached()
        assert await source.exists(Twin.key("a", 7))
        gate.open()
        report = await task
        assert (report.entities, report.inserted, report.changed) == (50, 50, 50)
        assert told[-1] >= 50
        await source.delete(Twin.key("a", 7))
        assert (await tm.copy_async(source, target)).deleted == 1
        assert (await tm.copy_async(source, target)).changed == 0
        assert await numbers(target) == [number for number in range(50) if number != 7]


@pytest.mark.parametrize("account", [False, True], ids=["file", "account"])
async def test_a_copy_that_is_cancelled_ends_between_two_steps_and_the_next_one_goes_on(
    path: Path, account: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablemapper.store.copy._WINDOW", 4)
    monkeypatch.setattr("tablemapper.engines.key_order._CHUNK", 4)
    monkeypatch.setattr("tablemapper.progress.INTERVAL", 0.0)
    gate, calls = Gate(), 0

    def tell(progress: tm.reports.Progress) -> None:
        nonlocal calls
        calls += 1
        if progress.done >= 8:
            gate.pass_through()

    async with filled_and_empty(path, account) as (source, target):
        task = asyncio.create_task(tm.copy_async(source, target, progress=tell))
        await gate.reached()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await task
        seen, written = calls, await numbers(target)
        assert 0 < len(written) < 50
        assert await numbers(target) == written
        assert calls == seen
        assert (await tm.copy_async(source, target)).inserted == 50 - len(written)
        assert await numbers(target) == list(range(50))
        assert (await target.check()).ok


async def test_a_copy_takes_two_stores_of_one_kind(path: Path) -> None:
    with tm.open(":memory:", models=MODELS) as store:
        async with tm.open_async(path, models=MODELS) as tasks:
            with pytest.raises(TypeError, match=r"copy: .*AsyncStore.*await tm\.copy_async\(source, target\)"):
                tm.copy(store, tasks)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"copy_async: .*Store.*tm\.copy\(source, target\)"):
                await tm.copy_async(store, tasks)  # type: ignore[arg-type]
            opening = tm.open_async(":memory:", models=MODELS)
            with pytest.raises(TypeError, match="copy_async: .*OpenContext"):
                await tm.copy_async(tasks, opening)  # type: ignore[arg-type]
        async with tm.open_async(":memory:", models=MODELS) as open:
            for stores in ((tasks, tasks), (tasks, open), (open, tasks)):
                with pytest.raises(tm.StoreClosed):
                    await tm.copy_async(*stores)
