"""What tasks of asyncio get: ours, and the same SQL by hand with aiosqlite, in one event loop each.

``python -m examples.benchmarks.tasks --clock cpu``: the calls run in threads, so time that passes says little on a machine
that does something else, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from datetime import date
from functools import partial
from importlib.util import find_spec
from typing import Any

import tablemapper as tm

from . import by_hand, ours
from .contestant import CACHE, Durability
from .data import Facts, Workload
from .measure import measure
from .output import add_options, number, parser_of, progress, publish
from .phases import LAPS, Phase
from .table import HAND, OURS, Results

_BATCH = 100  # gets that a task awaits one after the other, or together


class Tasks:
    """What both have in common: a loop that stays, and a synchronous contestant that fills the same file."""

    def __init__(self, sync: Any) -> None:
        self._sync = sync
        self._runner = asyncio.Runner()
        self.bulk = sync.bulk
        self.everything = sync.everything
        self.checkpoint = sync.checkpoint

    def day(self, day: date) -> Any:
        return self._sync.day(day)

    async def _get(self, order: Facts) -> Any:
        raise NotImplementedError

    async def _partition(self, customer: str) -> list[Any]:
        raise NotImplementedError

    def one_by_one(self, orders: list[Facts]) -> list[Any]:
        async def work() -> list[Any]:
            return [await self._get(order) for order in orders]

        return self._runner.run(work())

    def together(self, orders: list[Facts]) -> list[Any]:
        async def work() -> list[Any]:
            return await asyncio.gather(*map(self._get, orders))

        return self._runner.run(work())

    def partition(self, customer: str) -> list[Any]:
        return self._runner.run(self._partition(customer))

    def _end(self, closing: Coroutine[Any, Any, None]) -> None:
        self._runner.run(closing)
        self._runner.close()
        self._sync.close()


class Ours(Tasks):
    title = ours.Ours.title

    def __init__(self, path: str, durability: Durability) -> None:
        super().__init__(ours.Ours(path, durability))
        self._runner.run(self._open(path, durability))

    async def _open(self, path: str, durability: Durability) -> None:
        self._store = await tm.open_async(path, models=[ours.Order, ours.Daily], durability=durability)

    async def _get(self, order: Facts) -> Any:
        return await self._store.get(ours.Order.key(*order[:3]))

    async def _partition(self, customer: str) -> list[Any]:
        return await self._store.query(ours.Order).where(ours.Order.customer == customer).list()

    def close(self) -> None:
        self._end(self._store.close())


class ByHand(Tasks):
    title = "aiosqlite by hand"

    def __init__(self, path: str, durability: Durability) -> None:
        super().__init__(by_hand.ByHand(path, durability))
        self._runner.run(self._open(path))

    async def _open(self, path: str) -> None:
        import aiosqlite

        self._db = await aiosqlite.connect(path, isolation_level=None, cached_statements=400)
        await self._db.execute(f"PRAGMA cache_size = -{CACHE}")

    async def _get(self, order: Facts) -> Any:
        rows = await self._db.execute_fetchall(by_hand.SELECT_ONE, (order[0], by_hand.row_key(order)))
        return next(map(by_hand.Order, rows), None)

    async def _partition(self, customer: str) -> list[Any]:
        return list(map(by_hand.Order, await self._db.execute_fetchall(by_hand.SELECT_PARTITION, (customer,))))

    def close(self) -> None:
        self._end(self._db.close())


def _batches(calls: list[Any]) -> Iterable[list[Any]]:
    batches = [calls[at : at + _BATCH] for at in range(0, len(calls), _BATCH)]
    return ([batch] for batch in batches)


PHASES = (
    Phase("bulk", "bulk insert", lambda c, orders: c.bulk(orders), lambda w: ([o] for o in w.slices()), after=()),
    Phase("get", "get, one by one", lambda c, o: c.one_by_one(o), lambda w: _batches(w.some), 1.2, reads=True),  # type: ignore[attr-defined]
    Phase("gathered", f"get, {_BATCH} gathered", lambda c, o: c.together(o), lambda w: _batches(w.some), 0.8, reads=True),  # type: ignore[attr-defined]
    Phase(
        "partition", "partition query, an entity",
        lambda c, customer: c.partition(customer),
        lambda w: (w.customers[at::LAPS] for at in range(LAPS)),
        reads=True,
    ),
)  # fmt: skip


def main(given: list[str] | None = None) -> None:
    parser = parser_of("python -m examples.benchmarks.tasks", __doc__)
    parser.add_argument("--entities", default="20k", metavar="N", help="how many are loaded (default %(default)s)")
    add_options(parser, rounds=5)
    options = parser.parse_args(given)
    if find_spec("aiosqlite") is None:
        raise SystemExit('aiosqlite is not installed; pip install -e ".[bench]"')
    contestants: dict[str, Any] = {OURS: Ours, HAND: ByHand}
    makers = {name: partial(cls, durability=options.durability) for name, cls in contestants.items()}
    works = [Workload(number(options.entities), seed) for seed in range(options.rounds)]
    times = measure(makers, PHASES, works, folder=options.folder, progress=progress)
    times.file.clear()  # which says nothing of tasks
    results = Results(times, PHASES[1:], {name: cls.title for name, cls in contestants.items()}, options.clock)
    publish(options, "tasks", results.table(f"Tasks, medians of {options.rounds} rounds, {options.entities} entities"))


if __name__ == "__main__":
    main()
