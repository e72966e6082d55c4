"""Where our time goes: ``python -m examples.benchmarks.where [--phases …] [--entities N]``.

For each phase, the functions and lines that were running when a clock ticked, in µs an operation. What is called in C
(SQLite, most of all) counts for the line that called it. Unlike a profiler that counts calls, this does not make Python
slower than it is.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
from collections import Counter
from time import perf_counter
from types import FrameType

from .data import Workload
from .ours import Ours
from .output import number
from .phases import Phase, chosen

_TICK = 0.0002  # seconds
_LONG = 1.0  # seconds that a phase is repeated for, if it only reads

Places = Counter[tuple[str, str]]


def sample(ours: Ours, phase: Phase, work: Workload) -> tuple[Places, float, int]:
    """Return how often each function and line was running, the seconds, and the operations."""
    places: Places = Counter()

    def tick(_: int, frame: FrameType | None) -> None:
        if frame is not None:
            code = frame.f_code
            file = os.path.basename(code.co_filename)
            places[f"{file} {code.co_name}", f"{file}:{frame.f_lineno} {code.co_name}"] += 1

    seconds, done = 0.0, 0
    before = signal.signal(signal.SIGALRM, tick)
    try:
        while True:
            for calls in phase.calls(work):
                signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
                start = perf_counter()
                found = [phase.run(ours, argument) for argument in calls]
                seconds += perf_counter() - start
                signal.setitimer(signal.ITIMER_REAL, 0)
                done += sum(map(len, found)) if phase.reads else sum(map(phase.operations, calls))
            if not phase.reads or seconds > _LONG:
                return places, seconds, done
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def show(title: str, places: Places, seconds: float, done: int, most: int) -> None:
    """Print functions, the most expensive first, each with its most expensive lines."""
    cost = seconds * 1e6 / done / (places.total() or 1)
    print(f"\n{title}: {seconds * 1e6 / done:.2f} µs")
    functions: Counter[str] = Counter()
    for (function, _), ticks in places.items():
        functions[function] += ticks
    for function, ticks in functions.most_common(most):
        lines = Counter({line: n for (owner, line), n in places.items() if owner == function}).most_common(3)
        listed = ", ".join(f"{line.split()[0].rpartition(':')[2]}: {n * cost:.2f}" for line, n in lines)
        print(f"{ticks * cost:8.2f}  {function}  ({listed})")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.benchmarks.where", description=__doc__.split("\n")[0])
    parser.add_argument("--entities", default="50k", metavar="N")
    parser.add_argument("--phases", default="", metavar="NAME,…")
    parser.add_argument("--functions", type=int, default=14, metavar="N", help="of each phase")
    options = parser.parse_args()
    wanted = set(options.phases.split(",")) - {""}
    work = Workload(number(options.entities), 0)
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(os.path.join(folder, "ours.db"), "relaxed")
        for phase in chosen(wanted):
            sampled = sample(ours, phase, work)
            if not wanted or phase.name in wanted:
                show(phase.title, *sampled, options.functions)
        ours.close()


if __name__ == "__main__":
    main()
