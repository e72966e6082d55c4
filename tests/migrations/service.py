"""A service in a process of its own: one version of a program, which answers requests over one store.

It reads lines from its input: how many requests it is to serve, of which kind. It answers with what went wrong.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import tablemapper as tm

from . import test_twins as shapes

ROOT = Path(__file__).parents[2]


class Service:
    """Serves in another process.

    Args:
        path: of the store.
        version: ``"old"``, or the step by which the new version came about.
        seed: of what it is asked for.
    """

    def __init__(self, path: Path, version: str, seed: int) -> None:
        command = [sys.executable, "-m", "tests.migrations.service", str(path), version, str(seed)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.wait()

    def serve(self, requests: int, kind: str = "both") -> None:
        """Have it serve, while the caller goes on."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{requests} {kind}\n")
        self._process.stdin.flush()

    def wait(self) -> list[str]:
        """Return what went wrong."""
        assert self._process.stdout is not None
        faults: list[str] = json.loads(self._process.stdout.readline())
        return faults

    def stop(self) -> None:
        self._process.communicate(timeout=60)


def request(store: tm.Store, cls: Any, draw: random.Random, kind: str, own: int) -> None:
    """Serve one request; each service writes numbers of its own, and so knows what it has to find."""
    number = own + draw.randrange(30)
    id = f"i{number % 5}"
    key = cls.key(id, number)
    if kind == "both" and draw.random() < 0.6:
        new = shapes.one(cls, id, number, draw)
        with store.transaction() as tx:
            tx.upsert(new)
        assert shapes.common(store[key]) == shapes.common(new), f"{key} is not what was written"
        if draw.random() < 0.3:
            store.delete(key)
            assert store.get(key) is None, f"{key} was deleted"
    else:
        store.get(key)
        maker = cls.firm if hasattr(cls, "firm") else cls.maker
        for one in store.query(cls).where(maker == "m1").limit(5):
            assert (one.firm if hasattr(one, "firm") else one.maker) == "m1"
        assert len(list(store.query(cls).where(cls.id == id).limit(3))) <= 3


def main(path: str, version: str, seed: str) -> None:
    classes = (shapes.OLD, shapes.totals(shapes.OLD)) if version == "old" else shapes.of(version)[:2]
    draw = random.Random(int(seed))
    with tm.open(path, models=list(classes), durability="relaxed", timeout=60) as store:
        print("[]", flush=True)
        for line in sys.stdin:
            requests, kind = line.split()
            faults = []
            for _ in range(int(requests)):
                try:
                    request(store, classes[0], draw, kind, 1_000 * int(seed))
                except Exception as error:
                    faults.append(f"{type(error).__name__}: {error}")
            print(json.dumps(faults), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
