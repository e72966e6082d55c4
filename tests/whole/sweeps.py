"""Sweeps: every verb of a store is interrupted at each place, and run by threads that begin at the same moment.

A process is forked for each store, since what a class and a store learn with their first calls is learnt once. After
each interrupt the same store has to answer as a new one does, three times and in another thread, and to write; what was
written is whole or undone; ``check`` finds nothing; and `close` leaves nothing behind.

    python -m tests.whole.sweeps [--where line] [--verbs get,query] [--stride 4] [--first 2] [--most 2] [--cold] [--threads 100]
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

import tablemapper as tm
from tablemapper.engines.sqlite.online import apply_schema

from ..interrupts import NEVER, Where, names_of_places, strike
from ..threads import elsewhere
from ..twins import file_of, turn_is_free

MEMORY = Path(":memory:")
_SEVERAL = 4  # interrupts of one store that is warm
PATIENCE = 60.0  # seconds for which another thread may take to answer
_HANGS = 60  # seconds after which a process that does nothing is taken for one that hangs


class Cell(tm.Entity, table="Cells"):
    p: tm.Field[str]
    r: tm.Field[int]
    name: tm.Field[str]
    price: tm.Field[float]
    text: tm.Field[str] = tm.field(default="")
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{p}", row="{r}")
    by_name = tm.Index[str, float](partition="{name}", row="{price}", include=("tags",))
    by_tag = tm.Index[str](partition="{tags}")


class Sums(tm.Aggregate, of=Cell, table="Sums"):
    p: tm.Field[str] = tm.group_by(Cell.p)
    cells: tm.Field[int] = tm.count()
    total: tm.Field[float | None] = tm.sum(Cell.price)
    most: tm.Field[float | None] = tm.max(Cell.price)

    key = tm.Key[str](partition="{p}")


class Late(tm.Aggregate, of=Cell, table="Late"):
    """Declared later, over data."""

    name: tm.Field[str] = tm.group_by(Cell.name)
    cells: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="{name}")


class Mark(tm.Entity, table="Cells"):
    """Another class in the same partitions."""

    p: tm.Field[str]
    n: tm.Field[int]

    key = tm.Key[str, int](partition="{p}", row=("mark", "{n}"))


class Note(tm.Entity, table="Notes"):
    n: tm.Field[int]
    of: tm.Field[str]

    key = tm.Key[str, int](partition="{of}", row="{n}")


class new:
    class Note(tm.Entity, table="Notes"):
        n: tm.Field[int]
        of: tm.Field[str]
        length: tm.Field[int]

        key = tm.Key[str, int](partition="{of}", row="{n}")


@tm.migration(after=None, old=[Note], new=[new.Note])
def lengthen(m: tm.Migration) -> None:
    m.fill(new.Note.length, lambda note: len(note.of))


MODELS: list[Any] = [Cell, Mark, Sums, Note]


def cell(p: str, r: int) -> Cell:
    return Cell(p, r, f"n{r % 5}", r / 4, "x" * 700 if r % 6 == 5 else "", [f"t{r % 3}", "all"])


def template(folder: Path) -> Path:
    """Make the file that each store begins with."""
    path = folder / "template.db"
    with tm.open(path, models=MODELS, durability="relaxed") as store:
        _fill(store)
    return path


def _fill(store: tm.Store) -> None:
    store.insert_many(cell(p, r) for p in ("a", "b", "w") for r in range(12))
    store.insert_many(cell("many", r) for r in range(300))
    store.insert_many(Mark(p, n) for p in ("a", "b") for n in range(3))
    store.insert_many(Note(n, "x") for n in range(8))


@attrs.define
class World:
    """A store that is interrupted."""

    path: Path
    store: tm.Store
    number: int = 1_000

    @property
    def in_memory(self) -> bool:
        return self.path == MEMORY

    @contextmanager
    def other(self) -> Iterator[tm.Store]:
        """Open the store once more; in memory, another one that answers as it did before it was written to."""
        with tm.open(self.path, models=MODELS, durability="relaxed") as store:
            if self.in_memory:
                _fill(store)
            yield store

    def some(self, count: int = 1) -> list[Cell]:
        """Return entities that nobody wrote yet."""
        self.number += count
        return [cell("w", self.number + at) for at in range(count)]

    def last(self, count: int = 1) -> list[Cell]:
        """Return the entities that were written last."""
        return list(self.store.query(Cell).where(Cell.p == "w").order_by(Cell.r.desc()).limit(count))


READS: dict[str, Callable[[tm.Store], Any]] = {
    "get": lambda s: s.get(Cell.key("a", 3)), "get_large": lambda s: s[Cell.key("a", 5)],
    "get_none": lambda s: s.get(Cell.key("a", 99)), "get_group": lambda s: s.group(Sums.key("a")),
    "get_many": lambda s: s.get_many([Cell.key("a", 5), Cell.key("b", 1), Cell.key("c", 1)]),
    "pairs": lambda s: list(s.query(Cell).where(Cell.p == "a").with_(Mark, by=(Cell.p, Cell.r))),
    "get_mixed": lambda s: s.get_many([Cell.key("a", 5), Sums.key("b")]),
    "exists": lambda s: s.exists(Cell.key("b", 4)), "partition": lambda s: list(s.query(Cell).where(Cell.p == "a")),
    "partition_index": lambda s: list(s.query(Cell.by_name("n1")).where(Cell.p == "a")),
    "index": lambda s: list(s.query(Cell).where(Cell.name == "n1", Cell.price < 3)),
    "fan_out": lambda s: list(s.query(Cell.by_tag("t1")).where(Cell.p == "b")),
    "range": lambda s: list(s.query(Cell).where(Cell.p == "a", Cell.r >= 3, Cell.r < 9)),
    "only": lambda s: list(s.query(Cell).where(Cell.p == "a", Cell.r == 3)),
    "several": lambda s: list(s.query(Cell).where(Cell.p.is_in(["a", "b"]), Cell.r < 3)),
    "merged": lambda s: list(s.query(Cell).where(Cell.p.is_in(["a", "b"])).order_by(Cell.r, Cell.p).limit(5)),
    "sorted": lambda s: list(s.query(Cell).where(Cell.p == "b").order_by(Cell.price.desc())),
    "scan": lambda s: list(s.query(Cell).where(Cell.price == 2.5).allow_scan()),
    "many": lambda s: sum(one.r for one in s.query(Cell).where(Cell.p == "many")),
    "first": lambda s: s.query(Cell).where(Cell.p == "b").first(),
    "first_by": lambda s: s.query(Cell).where(Cell.name == "n4").order_by(Cell.price).first(),
    "select": lambda s: list(s.query(Cell).where(Cell.p == "a").select(Cell.r, Cell.price)),
    "covering": lambda s: list(s.query(Cell.by_name("n2")).where(Cell.price < 2).select(Cell.p, Cell.r)),
    "pages": lambda s: [list(page.items) for page in s.query(Cell).where(Cell.p == "a").pages(5)],
    "count": lambda s: s.query(Cell).where(Cell.p == "a").count(),
    "count_filtered": lambda s: s.query(Cell).where(Cell.p == "a", Cell.price > 1).count(),
    "sum": lambda s: s.query(Cell).where(Cell.p == "b").sum(Cell.price),
    "max": lambda s: s.query(Cell).where(Cell.p == "b").max(Cell.r),
    "grouped": lambda s: s.query(Cell).where(Cell.p == "b").group_by(Cell.name).count(),
    "groups": lambda s: [one for one in s.query(Sums).allow_scan() if one.p in ("a", "b")],
    "any": lambda s: s.query(Cell).where(Cell.p == "a", Cell.name == "n3").exists(),
    "budget": lambda s: list(s.query(Cell).where(Cell.p == "a").budget(examined=100)),
    "whole_partition": lambda s: list(s.partition(Cell.p == "a")),
    "partitions": lambda s: [one.key for one in s.partitions(Cell)],
    "mixed": lambda s: list(s.query(Cell, Mark).where(Cell.p == "a", Mark.p == "a")),
    "explain": lambda s: str(s.query(Cell).where(Cell.p == "a", Cell.r > 3).explain()),
    "status": lambda s: len(s.status().objects), "check": lambda s: s.check().problems,
}  # fmt: skip


def _transaction(w: World) -> None:
    first, second = w.some(2)
    with w.store.transaction() as tx:
        tx.insert(first)
        tx.insert(second)


def _read_and_write(w: World) -> None:
    with w.store.transaction() as tx:
        for r in (2, 3):
            found = tx[Cell.key("w", r)]
            found.price += 1
            tx.replace(found)


def _replace(w: World) -> None:
    found = w.store[Cell.key("w", 4)]
    found.name += "n"
    w.store.replace(found)


def _move(w: World) -> None:
    found = w.last()[0]
    w.number += 1
    w.store.move(found, Cell.key("w", w.number))


def _backup(w: World) -> None:
    w.number += 1  # (no backup overwrites another)
    w.store.backup(w.path.with_name(f"{w.path.name}-copy{w.number}"))


def _backed_up(w: World) -> None:
    """The next backup is whole, and sweeps what an interrupted one left."""
    _backup(w)
    copy = w.path.with_name(f"{w.path.name}-copy{w.number}")
    with tm.open(copy, models=MODELS) as store:
        assert store.check().ok
    left = {one.name for one in w.path.parent.iterdir() if one.name.startswith(f"{w.path.name}-copy")}
    assert all((w.path.parent / name).stat().st_size for name in left), left
    assert not [name for name in left if "part" in name], left
    for name in left:
        (w.path.parent / name).unlink()


def _open(w: World) -> None:
    with tm.open(w.path, models=MODELS, durability="relaxed") as store:
        store.get(Cell.key("a", 3))


def _build(w: World) -> None:
    with tm.open(w.path, models=[*MODELS, Late], build=False, durability="relaxed") as store:
        store.build(rest=0)


def _built(w: World) -> None:
    with tm.open(w.path, models=[*MODELS, Late], durability="relaxed") as store:
        expected: dict[str, int] = {}
        for one in store.query(Cell).allow_scan():
            expected[one.name] = expected.get(one.name, 0) + 1
        assert {one.name: one.cells for one in store.query(Late).allow_scan()} == expected
        assert store.check().ok


def _follow(w: World) -> None:
    """What was not ready is, since another store built it."""
    assert w.store.get(Late.key("n1")) is not None
    assert list(w.store.query(Late).where(Late.name == "n1"))


def _never_at_once(w: World) -> None:
    apply_schema._AT_ONCE = -1  # (in a child: so that few entities are built by batches, too)


def _late(w: World) -> None:
    _never_at_once(w)
    w.store.close()
    w.store = tm.open(w.path, models=[*MODELS, Late], build=False, durability="relaxed")
    with suppress(tm.NotReady):
        w.store.get(Late.key("n1"))
    _build(w)


def _followed(w: World) -> None:
    for _ in range(3):
        _follow(w)


def _migrate(w: World) -> None:
    tm.migrate(w.path, [lengthen], rest=0, durability="relaxed")


def _migrated(w: World) -> None:
    _migrate(w)
    with tm.open(w.path, models=[Cell, Mark, Sums, new.Note], durability="relaxed") as store:
        assert [note.length for note in store.query(new.Note).allow_scan()] == [1] * 8
        assert store.check().ok


def _asyncio(w: World) -> None:
    async def main() -> None:
        async with tm.open_async(w.path, models=MODELS, durability="relaxed") as store:
            some = w.some(2)
            await store.insert_many(some)
            assert await store.get(Cell.key("a", 3)) is not None
            assert len([one async for one in store.query(Cell).where(Cell.p == "a")]) == 12
            assert len([one.r async for one in store.query(Cell).where(Cell.p == "many")]) == 300
            await asyncio.gather(*[store.exists(Cell.key("a", r)) for r in range(3)])

    asyncio.run(main())


@attrs.frozen
class Verb:
    """What is interrupted, of how many entities it changes all or none, and what holds once it is run again."""

    run: Callable[[World], Any]
    changes: int = 0
    after: Callable[[World], Any] = lambda w: None
    before: Callable[[World], Any] = lambda w: None
    alone: bool = False
    """It is for a store of its own, which is not warm before."""


VERBS: dict[str, Verb] = {
    **{name: Verb(lambda w, read=read: read(w.store)) for name, read in READS.items()},
    "insert": Verb(lambda w: w.store.insert(w.some()[0]), 1),
    "replace": Verb(_replace, 1),
    "merge": Verb(lambda w: w.store.merge(Cell.key("w", 1), Cell.price.add(1)), 1),
    "upsert": Verb(lambda w: w.store.upsert(w.some()[0]), 1),
    "delete": Verb(lambda w: w.store.delete(w.last()[0]), 1),
    "update": Verb(lambda w: w.store.update(Cell.key("w", 2), lambda one: one.replace(price=one.price + 1)), 1),
    "move": Verb(_move, 2),
    "transaction": Verb(_transaction, 2),
    "read_and_write": Verb(_read_and_write, 2),
    "insert_many": Verb(lambda w: w.store.insert_many(w.some(3)), 3),
    "upsert_many": Verb(lambda w: w.store.upsert_many(w.some(3)), 3),
    "delete_many": Verb(lambda w: w.store.delete_many(w.last(2)), 2),
    "update_where": Verb(lambda w: w.store.query(Cell).where(Cell.p == "w", Cell.r < 6).update(Cell.price.add(1)), 6),
    "append": Verb(lambda w: w.store.merge(Cell.key("w", 1), Cell.tags.append("z")), 1),
    "move_where": Verb(
        lambda w: (
            w.store.query(Cell)
            .where(Cell.p == "w", Cell.r == w.last()[0].r)
            .move_to(lambda one: one.replace(p="moved"))
        ),
        2,
    ),
    "delete_where": Verb(lambda w: w.store.query(Cell).where(Cell.p == "w", Cell.r == w.last()[0].r).delete(), 1),
    "repair": Verb(lambda w: w.store.repair()), "compact": Verb(lambda w: w.store.compact()),
    "backup": Verb(_backup, after=_backed_up), "close": Verb(lambda w: w.store.close(), alone=True),
    "open": Verb(_open), "build": Verb(_build, before=_never_at_once, after=_built, alone=True),
    "follow": Verb(_follow, before=_late, after=_followed, alone=True),
    "migrate": Verb(_migrate, after=_migrated, alone=True), "asyncio": Verb(_asyncio, 2),
}  # fmt: skip


ON_DISK = {"backup", "close", "open", "build", "follow", "migrate", "asyncio"}
"""The verbs that need a file."""


# ---------------------------------------------------------------------------------------------- what holds afterwards


def _answers(store: tm.Store) -> dict[str, str]:
    return {name: repr(read(store)) for name, read in READS.items() if name not in ("check", "explain", "status")}


def _content(store: tm.Store) -> dict[Any, str]:
    return {(one.p, one.r): repr(one) for one in store.query(Cell).allow_scan()}


def _in_thread(work: Callable[[], Any]) -> Any:
    thread, results = elsewhere(work)
    thread.join(PATIENCE)
    assert results, "another thread waits for ever"
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def _verify(w: World, verb: Verb, before: dict[Any, str], *, last: bool) -> None:
    """Raise AssertionError, or whatever the store raises, if the interrupt did harm.

    Only the last time in another thread, too: from then on a store reads in another way.
    """
    file, store = file_of(w.store), w.store
    assert not file._writes.queue.lock.locked(), "a lock is held"
    assert not file._writes.queue._pending
    assert turn_is_free(file), "a turn is held"
    assert all(not reader.in_transaction for reader in file._readers.idle)
    with w.other() as fresh:
        seen = store if w.in_memory else fresh
        after = _content(seen)
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert len(changed) in (0, verb.changes), f"it is half done: {changed}"
        expected = _answers(fresh)
        for _ in range(3):
            for name, answer in _answers(store).items():
                assert answer == expected[name], f"{name}: {answer} is not {expected[name]}"
        if last:
            assert _in_thread(lambda: _answers(store)) == expected
        # It writes, in another thread too, and others see that.
        for number, write in enumerate((lambda f: f(), _in_thread if last else lambda f: f())):
            write(lambda number=number: store.upsert(Cell("v", number, "v", 1.0)))
            write(lambda number=number: store.merge(Cell.key("v", number), price=2.0))
            assert seen[Cell.key("v", number)].price == 2.0
        with store.transaction() as tx:
            tx.delete(Cell.key("v", 0))
            tx.delete(Cell.key("v", 1))
        seen.upsert(Cell("v", 2, "v", 1.0))
        store.delete(Cell.key("v", 2))
        assert fresh.check().ok
    assert store.check().ok
    verb.after(w)


def _closed(w: World) -> None:
    w.store.close()
    for thread in [one for one in threading.enumerate() if one is not threading.main_thread()]:
        thread.join(PATIENCE)  # (it was told to end, which takes a while on a busy machine)
    assert threading.active_count() == 1, threading.enumerate()
    if w.in_memory:
        return
    gc.collect()  # a store that an interrupt kept from its caller is closed when it is freed
    # An interrupt that comes into a finalizer is lost, and the file of turns stays: the next store removes it.
    assert {f"{w.path.name}-turn"} >= (left := _beside(w.path)), f"{left} are left"
    with tm.open(w.path, models=MODELS, durability="relaxed") as again:
        assert again.check().ok
        again.insert(Cell("z", 0, "z", 1.0))
    assert not (left := _beside(w.path)), f"{left} are left"


def _beside(path: Path) -> set[str]:
    return {one.name for one in path.parent.iterdir() if one.name.startswith(f"{path.name}-")}


# ---------------------------------------------------------------------------------------------- sweeping


def _world(source: Path, verb: Verb, *, cold: bool) -> World:
    path = source
    if source != MEMORY:
        path = source.with_name(f"{os.getpid()}-{threading.get_ident()}.db")
        shutil.copy(source, path)
    w = World(path, tm.open(path, models=MODELS, durability="relaxed"))
    if w.in_memory:
        _fill(w.store)
    verb.before(w)
    if not (cold or verb.alone):
        for _ in range(2):
            verb.run(w)
        _answers(w.store)
    return w


def _removed(w: World) -> None:
    for one in () if w.in_memory else w.path.parent.iterdir():
        if one.name.startswith(w.path.name):
            one.unlink()


def _forked(work: Callable[[Callable[[str], None]], None]) -> list[str]:
    """Run a function in a child; return the lines that it reported, the last one being why it ended early."""
    end, pipe = os.pipe()
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        gc.freeze()  # (its own garbage is what is looked for, and not among all that a run of tests has left)
        os.close(end)
        # Not dump_traceback_later: it waits for ever for a timer that the parent began, as that of a test runner.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.register(signal.SIGALRM, file=os.fdopen(os.dup(2), "w"), chain=True)

        def report(line: str) -> None:
            os.write(pipe, f"{line}\n".encode())

        status = 1
        try:
            report("begins")
            work(report)
            status = 0
        except BaseException:
            report("RAISED " + traceback.format_exc(limit=-6).replace("\n", "\\n"))
        finally:
            os._exit(status)
    os.close(pipe)
    told = _lines(end, child)[1:]
    os.close(end)
    _, status = os.waitpid(child, 0)
    if status and not any(line.startswith("RAISED") for line in told):
        told.append(f"RAISED it hangs, or died: {status}")
    return told


def _lines(end: int, child: int) -> list[str]:
    """Return what a child reports. One that neither reports nor computes hangs: it says where, and ends."""
    said, used = bytearray(), 0.0
    while True:
        if select.select([end], [], [], _HANGS)[0]:
            if not (some := os.read(end, 1 << 16)):
                return said.decode().splitlines()
            said += some
        elif not 0.1 < (now := _processor_seconds(child)) - used < _HANGS:
            os.kill(child, signal.SIGALRM)
        else:  # the machine is busy
            used = now


def _processor_seconds(process: int) -> float:
    spent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def _places(source: Path, name: str, where: Where, *, cold: bool) -> list[str]:
    """Return the places at which a verb can be interrupted."""
    verb = VERBS[name]

    def work(report: Callable[[str], None]) -> None:
        w = _world(source, verb, cold=cold)
        once = cold or verb.alone
        for place in names_of_places(lambda: verb.run(w), where, 1 if once else 3):
            report(place)
        with suppress(Exception):
            w.store.close()
        _removed(w)

    told = _forked(work)
    assert not told[-1].startswith("RAISED"), told[-1]
    return told


def _strikes(
    source: Path, name: str, where: Where, ats: Sequence[int], *, cold: bool
) -> Iterator[tuple[int, str, str]]:
    """Interrupt a verb at places; yield them, each with its name and what is wrong afterwards."""
    verb = VERBS[name]
    left = list(ats)
    while left:
        some = left[: 1 if cold or verb.alone else _SEVERAL]

        def work(report: Callable[[str], None]) -> None:
            w = _world(source, verb, cold=cold)
            for at in some:
                if verb.changes or w.in_memory:
                    before = _content(w.store)
                else:
                    with w.other() as other:
                        before = _content(other)
                report(f"at {at} {strike(at, lambda: verb.run(w), where) or 'after'}")
                if name in ("close", "migrate", "build"):
                    w.store.close()
                    w.store = tm.open(
                        w.path, models=MODELS if name != "migrate" else [Cell, Mark, Sums], durability="relaxed"
                    )
                if name == "migrate":
                    verb.after(w)
                else:
                    _verify(w, verb, before, last=at == some[-1])
            _closed(w) if name != "migrate" else w.store.close()
            _removed(w)

        told = _forked(work)
        struck = [line.split(" ", 2) for line in told if line.startswith("at ")]
        wrong = next((line for line in told if line.startswith("RAISED")), "")
        for number, (_, at, place) in enumerate(struck, 1):
            yield int(at), place, wrong if number == len(struck) else ""
        if not struck:
            yield some[0], "before", wrong
        left = left[max(len(struck), 1) :]


def sweep(
    source: Path,
    name: str,
    where: Where = "delivery",
    *,
    cold: bool,
    chosen: Callable[[list[str]], Sequence[str]] = lambda names: names,
    first: bool = False,
) -> tuple[int, int, list[str]]:
    """Interrupt a verb at places that are chosen of all; return how many there are, how many came, and the faults.

    With ``first``, the first fault ends it.
    """
    every = [f"{at} {place}" for at, place in enumerate(_places(source, name, where, cold=cold), 1)]
    ats = sorted([int(place.split()[0]) for place in chosen(every)])
    struck, faults = 0, list[str]()
    for at, place, wrong in _strikes(source, name, where, ats, cold=cold):
        struck += place != "after"
        if wrong:
            place = every[at - 1] if place == "before" else place  # (it raised, or hung, before it could say where)
            faults.append(f"{name} {where} {'cold' if cold else 'warm'} {at}: {place}: {wrong}")
            if first:
                break
    return len(every), struck, faults


def race(source: Path, seed: int, *, threads: int = 6, rounds: int = 1) -> list[str]:
    """Let threads read and write stores at the same moment, each in another order; return the faults."""

    def work(report: Callable[[str], None]) -> None:
        draw = random.Random(seed)
        w = _world(source, Verb(lambda w: None), cold=True)
        with tm.open(w.path, models=MODELS, durability="relaxed") as other:
            expected = _answers(other)
            sys.setswitchinterval(1e-6)
            for round in range(2 * rounds):  # the first one cold
                start = threading.Barrier(threads)
                faults: list[str] = []

                def run(store: tm.Store, order: list[str], slot: int) -> None:
                    try:
                        start.wait()
                        for at, name in enumerate(order):
                            answer = repr(READS[name](store))
                            if answer != expected[name]:
                                faults.append(f"{name}: {answer} is not {expected[name]}")
                            if at % 5 == slot % 5:
                                store.upsert(Cell("w", 1_000 * (slot + 1) + at, "v", 1.0))
                                store.merge(Cell.key("w", 1_000 * (slot + 1) + at), Cell.price.add(1))
                    except BaseException:
                        faults.append(traceback.format_exc(limit=-5))

                running = []
                for slot in range(threads):
                    order = draw.sample(sorted(expected), len(expected))
                    if slot % 2:
                        order = draw.choices(order[:3], k=len(order))  # the same form at one time
                    running.append(threading.Thread(target=run, args=(other if slot == 5 else w.store, order, slot)))
                for thread in running:
                    thread.start()
                for thread in running:
                    thread.join()
                for fault in faults:
                    report(f"RAISED {seed} {round}: {fault}".replace("\n", "\\n"))
                if faults:
                    return
            sys.setswitchinterval(0.005)
            assert other.check().ok
        _closed(w)
        _removed(w)

    return [line for line in _forked(work) if line.startswith("RAISED")]


def _seldom(every: Sequence[str], seen: Counter[str], most: int) -> list[str]:
    """Return each place its first and its last time, if few verbs came to it before; count what is returned."""
    by_name: dict[str, list[str]] = {}
    for place in every:
        by_name.setdefault(place.split(" ", 1)[1], []).append(place)
    chosen = [place for name, times in by_name.items() if seen[name] < most for place in {times[0]: 1, times[-1]: 1}]
    seen.update(place.split(" ", 1)[1] for place in chosen)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--where", default="delivery", choices=["delivery", "line", "instruction"])
    parser.add_argument("--verbs", default=",".join(VERBS))
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument(
        "--most", type=int, default=0, help="so often each place, its first and its last time among them"
    )
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--threads", type=int, default=0, help="so many races instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        source = MEMORY if given.memory else template(Path(folder))
        if given.threads:
            found = [fault for seed in range(given.threads) for fault in race(source, given.first + seed)]
            print(f"{given.threads} races, {len(found)} faults", *found[:5], sep="\n")
            return
        all_places = all_struck = 0
        everything: list[str] = []
        never = 0
        seen = Counter[str]()

        def chosen(every: list[str]) -> Sequence[str]:
            every = every[given.first - 1 :: given.stride]
            return _seldom(every, seen, given.most) if given.most else every

        for name in given.verbs.split(",") if not given.memory else sorted(set(given.verbs.split(",")) - ON_DISK):
            began = time.monotonic()
            total, struck, all_faults = sweep(source, name, given.where, cold=given.cold, chosen=chosen)
            faults = [fault for fault in all_faults if f"{NEVER}:" not in fault]
            never += len(all_faults) - len(faults)
            all_places, all_struck = all_places + total, all_struck + struck
            everything += faults
            print(
                f"{name:16} {total:6} places {struck:6} struck {len(faults):4} faults {time.monotonic() - began:.0f} s",
                flush=True,
            )
            for fault in faults[:3]:
                print("   ", fault.replace("\\n", "\n        "), flush=True)
        print(f"all: {all_places} places, {all_struck} struck, {len(everything)} faults, {never} others{NEVER}")


if __name__ == "__main__":
    main()
