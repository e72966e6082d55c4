"""Let the contestants do the same work in turn, take their times, and see that they found and left the same."""

from __future__ import annotations

import gc
import os
import random
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Protocol

import apsw
import attrs

from .phases import Phase


@attrs.frozen
class Taken:
    """What one contestant took for one phase of one round, in µs an operation."""

    wall: float
    cpu: float


@attrs.define
class Times:
    """What was measured: for each phase and contestant, a `Taken` of each round."""

    taken: dict[str, dict[str, list[Taken]]] = attrs.field(factory=dict)
    file: dict[str, list[float]] = attrs.field(factory=dict)
    """For each contestant, the bytes an entity after the bulk load of each round."""


class Differ(AssertionError):
    """Two contestants did not do the same work, so their times cannot be compared."""


class Work(Protocol):
    """What is written and asked in one round."""

    entities: int

    def seen(self, found: Iterable[Any]) -> list[Any]:
        """Return what a contestant found as plain values."""

    def left(self, contestant: Any) -> Any:
        """Return what a contestant's file holds at the end."""


def measure(
    contestants: Mapping[str, Callable[[str], Any]],
    phases: Sequence[Phase],
    works: Sequence[Work],
    *,
    folder: str | None = None,
    progress: Callable[[str], object] = lambda _: None,
) -> Times:
    """Return the times of some rounds, each with new files and work of its own.

    Args:
        contestants: for each name, what opens a contestant on a new file.

    Raises:
        Differ: two contestants found or left something different.
    """
    times = Times()
    for number, work in enumerate(works, 1):
        with tempfile.TemporaryDirectory(dir=folder) as directory:
            paths = {name: os.path.join(directory, f"{name}.db") for name in contestants}
            made = {name: make(paths[name]) for name, make in contestants.items()}
            try:
                for phase in phases:
                    progress(f"round {number} of {len(works)}, {work.entities:,} entities: {phase.title}")
                    for name, taken in run(phase, work, made).items():
                        times.taken.setdefault(phase.name, {}).setdefault(name, []).append(taken)
                    if phase.name == "bulk":
                        for name, path in paths.items():
                            times.file.setdefault(name, []).append(file_size(path) / work.entities)
                progress(f"round {number} of {len(works)}: comparing")
                _same("what is left", {name: work.left(contestant) for name, contestant in made.items()})
            finally:
                for contestant in made.values():
                    contestant.close()
                gc.unfreeze()
    return times


def run(phase: Phase, work: Work, made: Mapping[str, Any]) -> dict[str, Taken]:
    wall, cpu, done = dict.fromkeys(made, 0.0), dict.fromkeys(made, 0.0), dict.fromkeys(made, 0)
    names = list(made)
    compared = not phase.reads
    for calls in phase.calls(work):
        if not compared:  # (this warms all of them up, too)
            for argument in calls:
                _same(phase.title, {name: work.seen(phase.run(c, argument)) for name, c in made.items()})
            compared = True
        gc.collect()
        gc.freeze()  # nor for walking through the orders to come
        random.shuffle(names)
        for name in names:
            count = lap(phase, made[name], calls)
            wall[name] += count[0]
            cpu[name] += count[1]
            done[name] += count[2]
    if not phase.reads:  # what it left in the log is its own: the next phase would pay for it, or happen not to
        for name in names:
            started = process_time(), perf_counter()
            made[name].checkpoint()
            cpu[name] += process_time() - started[0]
            wall[name] += perf_counter() - started[1]
    _same(f"{phase.title}: operations", done)
    return {name: Taken(wall[name] * 1e6 / done[name], cpu[name] * 1e6 / done[name]) for name in made}


def lap(phase: Phase, contestant: Any, calls: list[Any]) -> tuple[float, float, int]:
    """Return the seconds, those of the processor, and the operations of one lap."""
    run = phase.run
    done = 0
    gc.collect()  # nobody pays for the garbage of others
    cpu, wall = process_time(), perf_counter()
    if phase.reads:
        for argument in calls:
            done += len(run(contestant, argument))
    else:
        for argument in calls:
            run(contestant, argument)
    return perf_counter() - wall, process_time() - cpu, done or sum(map(phase.operations, calls))


def _same(what: str, found: Mapping[str, Any]) -> None:
    (first, expected), *others = found.items()
    for name, value in others:
        if value != expected:
            raise Differ(f"{what}: {first} and {name} differ: {expected!r:.500} and {value!r:.500}")


def file_size(path: str) -> int:
    """Return the bytes of a database, whether they are in the file already or still in its write-ahead log."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.pragma("page_count")) * int(connection.pragma("page_size"))
    finally:
        connection.close()


def peak() -> float:
    """Return the most memory that this process had, in MB. (getrusage counts what its parent had before it began.)"""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
