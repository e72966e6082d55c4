"""What threads and processes that write at the same time get: commits a second, and how evenly they are served.

``python -m examples.benchmarks.threads [--seconds S] [--rounds R] [--sync MS] [--only WHAT]``. Each client inserts one small
entity a transaction, as fast as it can. "alone" is the same file with no commit shared, which is a plain lock. The two are
measured in turn; medians of the rounds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import shutil
import statistics
import tempfile
import threading
from time import monotonic, perf_counter, sleep
from typing import Any

import apsw

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.schema.model import compile_schema
from tests.sqlite_vfs import Slow


class Event(tm.Entity, table="Events"):
    source: tm.Field[str]
    number: tm.Field[int]
    text: tm.Field[str] = tm.field(default="something happened")

    key = tm.Key[str, int](partition="{source}", row="{number}")
    by_text = tm.Index[str](partition="{text}")


PROCESSES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("durable", {}),
    ("durable, a sync of 2 ms", {"vfs": "slow"}),
    ("relaxed", {"durability": "relaxed"}),
)


def open_store(folder: str, **options: Any) -> tm.Store:
    return tm.Store(SqliteEngine.open(f"{folder}/store.db", compile_schema([Event]), **options))


def clients(store: tm.Store, count: int, seconds: float) -> tuple[float, float, float]:
    """Return commits a second, the share of the least served client to the most served, the longest wait in ms."""
    served = [0] * count
    longest = [0.0] * count
    gate = threading.Barrier(count + 1)
    failures: list[BaseException] = []
    end = 0.0

    def client(which: int) -> None:
        try:
            source = f"client-{which}"
            gate.wait()
            n = 0
            slow = 0.0
            now = perf_counter()
            while now < end:
                store.insert(Event(source, n))
                n += 1
                then, now = now, perf_counter()
                slow = max(slow, now - then)
            served[which], longest[which] = n, slow
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(which,)) for which in range(count)]
    for thread in threads:
        thread.start()
    start = perf_counter()
    end = start + seconds  # the same for all, so that nobody writes while the others have not begun, or are done
    gate.wait()
    for thread in threads:
        thread.join()
    spent = perf_counter() - start
    if failures:
        raise failures[0]
    return sum(served) / spent, min(served) / max(served), max(longest) * 1000


def process(path: str, which: int, seconds: float, options: dict[str, Any], gate: Any, at: Any, results: Any) -> None:
    with tm.Store(SqliteEngine.open(path, compile_schema([Event]), **options)) as store:
        store.insert(Event(f"client-{which}", -1))
        gate.wait()
        start = now = at.value  # the same for all, so that nobody writes while the others have not begun, or are done
        sleep(start - monotonic())
        n, slow = 0, 0.0
        while now < start + seconds:
            store.insert(Event(f"client-{which}", n))
            n += 1
            then, now = now, monotonic()
            slow = max(slow, now - then)
    results.put((n, slow))


def processes(count: int, seconds: float, **options: Any) -> tuple[float, float, float]:
    """As `clients`, with a process each."""
    spawn = multiprocessing.get_context("spawn")
    gate, at, results = spawn.Barrier(count + 1), spawn.Value("d"), spawn.Queue()
    folder = tempfile.mkdtemp(prefix="tablemapper-processes-")
    try:
        path = f"{folder}/store.db"
        open_store(folder).close()
        started = [
            spawn.Process(target=process, args=(path, which, seconds, options, gate, at, results))
            for which in range(count)
        ]
        for one in started:
            one.start()
        at.value = monotonic() + 60
        while gate.n_waiting < count:
            sleep(0.01)
        at.value = monotonic() + 0.3
        gate.wait()
        found = [results.get(timeout=60 + 2 * seconds) for _ in started]
        for one in started:
            one.join()
        served = [n for n, _ in found]
        return sum(served) / seconds, min(served) / max(served), max(slow for _, slow in found) * 1000
    finally:
        shutil.rmtree(folder)


def measure(count: int, seconds: float, **options: Any) -> tuple[float, float, float, float]:
    folder = tempfile.mkdtemp(prefix="tablemapper-threads-")
    try:
        with open_store(folder, **options) as store:
            syncs = Slow.syncs
            rate, fair, longest = clients(store, count, seconds)
            spent = Slow.syncs - syncs
            return rate, fair, longest, rate * seconds / spent if spent else 0.0
    finally:
        shutil.rmtree(folder)


def compare(title: str, counts: list[int], seconds: float, rounds: int, **options: Any) -> None:
    print(
        f"\n{title}\n{'clients':>8} {'alone/s':>9} {'shared/s':>9} {'ratio':>6} {'fair':>5} {'longest ms':>11} {'a sync':>7}"
    )
    for count in counts:
        alone, shared = [], []
        for _ in range(rounds):
            alone.append(measure(count, seconds, share=1, **options))
            shared.append(measure(count, seconds, **options))
        middle = [statistics.median(column) for column in zip(*shared, strict=True)]
        before = statistics.median(rate for rate, *_ in alone)
        ratio = statistics.median(b[0] / a[0] for a, b in zip(alone, shared, strict=True))
        print(
            f"{count:>8} {before:>9.0f} {middle[0]:>9.0f} {ratio:>6.2f} {middle[1]:>5.2f} {middle[2]:>11.1f} "
            f"{middle[3]:>7.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 2, 4, 8, 32])
    parser.add_argument("--sync", type=float, nargs="*", default=[2.0], help="ms that a sync takes")
    parser.add_argument("--only", choices=["slow", "full", "relaxed", "processes"])
    chosen = parser.parse_args()
    print(
        f"Python {platform.python_version()}, apsw {apsw.apsw_version()}, SQLite {apsw.sqlite_lib_version()}, "
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    )
    if chosen.only in (None, "slow"):
        for milliseconds in chosen.sync:
            Slow.seconds = milliseconds / 1000
            compare(
                f"durable, a sync of {milliseconds:g} ms", chosen.clients, chosen.seconds, chosen.rounds, vfs="slow"
            )
    if chosen.only in (None, "full"):
        compare("durable, the disk that is here", chosen.clients, chosen.seconds, chosen.rounds)
    if chosen.only in (None, "relaxed"):
        compare('durability="relaxed"', chosen.clients, chosen.seconds, chosen.rounds, durability="relaxed")
    for what, options in PROCESSES if chosen.only in (None, "processes") else ():
        print(f"\nprocesses, {what}\n{'clients':>8} {'commits/s':>9} {'fair':>5} {'longest ms':>11}")
        for count in (2, 4, 8):
            runs = [processes(count, chosen.seconds, timeout=30.0, **options) for _ in range(chosen.rounds)]
            rate, fair, longest = (statistics.median(column) for column in zip(*runs, strict=True))
            print(f"{count:>8} {rate:>9.0f} {fair:>5.2f} {longest:>11.1f}", flush=True)


if __name__ == "__main__":
    main()
