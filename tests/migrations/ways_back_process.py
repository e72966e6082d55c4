"""One version of a program in a process of its own: it reads, or writes, until it is told to stop or killed.

It tells that it has opened the store, and what went wrong at its end.
"""

from __future__ import annotations

import random
from multiprocessing.connection import Connection
from pathlib import Path

import tablemapper as tm

from ..children import Child
from .test_ways_back import CASES, OLD, of, open_new, open_old, totals_of, write


class Process(Child):
    """A process.

    Args:
        path: of the store.
        role: ``"old"``: reads with the old classes. ``"new"``: writes, and knows the script. ``"ignorant"``: writes without it.
        case: of `CASES`.
        seed: of what is written.
        rounds: how often something is done; 0: until it is stopped.
    """

    def __init__(self, path: Path, role: str, case: str, seed: int = 0, rounds: int = 0) -> None:
        super().__init__(main, path, role, case, seed, rounds)

    def wait(self) -> list[str]:
        """Return what went wrong in all rounds."""
        faults: list[str] = self.hear()
        self.join()
        return faults

    def stop(self) -> list[str]:
        """Let it come to its end, and return what went wrong."""
        self.say("stop")
        return self.wait()

    def kill_after(self, rounds: int) -> None:
        """End it where it stands, once it has begun so many rounds."""
        for _ in range(rounds):
            self.hear()
        self.kill()


def read(store: tm.Store) -> None:
    """Read in each way; what an index and an aggregate say of one state of the store has to fit."""
    found = list(store.query(OLD).allow_scan())
    assert all(one.price.count(".") == 1 for one in found)
    assert {one.maker for one in store.query(OLD).where(OLD.maker == "m1")} <= {"m1"}
    list(store.query(totals_of(store)).allow_scan())
    if found:
        store.get(found[0].key)


def main(pipe: Connection, path: Path, role: str, name: str, seed: int, rounds: int) -> None:
    case, draw, faults = CASES[name], random.Random(seed), set()
    store = open_old(path) if role == "old" else open_new(path, case, *([of(case)] if role == "new" else []))
    with store:
        pipe.send("open")
        done = 0
        while done < rounds if rounds else not pipe.poll():
            done += 1
            if role == "new" and not rounds:
                pipe.send(done)
            try:
                read(store) if role == "old" else write(store, case, draw)
            except Exception as error:
                faults.add(f"{type(error).__name__}: {error}")
    pipe.send(sorted(faults))
