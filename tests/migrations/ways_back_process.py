"""One version of a program in a process of its own: it reads, or writes, until it is told to stop or killed.

It prints a line once it has opened the store, and one with what went wrong at its end.
"""

from __future__ import annotations

import json
import random
import select
import subprocess
import sys
from pathlib import Path

import tablemapper as tm

from .test_ways_back import CASES, OLD, of, open_new, open_old, totals_of, write

ROOT = Path(__file__).parents[2]


class Process:
    """A process.

    Args:
        path: of the store.
        role: ``"old"``: reads with the old classes. ``"new"``: writes, and knows the script. ``"ignorant"``: writes without it.
        case: of `CASES`.
        seed: of what is written.
        rounds: how often something is done; None: until it is stopped.
    """

    def __init__(self, path: Path, role: str, case: str, seed: int = 0, rounds: int | None = None) -> None:
        command = [sys.executable, "-m", __name__, str(path), role, case, str(seed), str(rounds or 0)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def wait(self) -> list[str]:
        """Return what went wrong in all rounds."""
        faults: list[str] = json.loads(self._line())
        self._process.communicate(timeout=60)
        return faults

    def stop(self) -> list[str]:
        """Let it come to its end, and return what went wrong."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.wait()

    def kill(self, after: int) -> None:
        """End it where it stands, once it has begun so many rounds."""
        for _ in range(after):
            self._line()
        self._process.kill()
        self._process.communicate(timeout=60)


def read(store: tm.Store) -> None:
    """Read in each way; what an index and an aggregate say of one state of the store has to fit."""
    found = list(store.query(OLD).allow_scan())
    assert all(one.price.count(".") == 1 for one in found)
    assert {one.maker for one in store.query(OLD).where(OLD.maker == "m1")} <= {"m1"}
    list(store.query(totals_of(store)).allow_scan())
    if found:
        store.get(found[0].key)


def main(path: str, role: str, name: str, seed: str, rounds: str) -> None:
    case, draw, faults = CASES[name], random.Random(int(seed)), set()
    place = Path(path)
    store = open_old(place) if role == "old" else open_new(place, case, *([of(case)] if role == "new" else []))
    with store:
        print("open", flush=True)
        done = 0
        while not select.select([sys.stdin], [], [], 0)[0] if rounds == "0" else done < int(rounds):
            done += 1
            if role == "new" and rounds == "0":
                print(done, flush=True)
            try:
                read(store) if role == "old" else write(store, case, draw)
            except Exception as error:
                faults.add(f"{type(error).__name__}: {error}")
    print(json.dumps(sorted(faults)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
