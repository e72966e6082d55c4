"""A service in a process of its own: one version of a program, which answers requests over one store."""

from __future__ import annotations

import random
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import tablemapper as tm

from . import test_twins as shapes


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


def serve(pipe: Connection, path: Path, version: str, seed: int) -> None:
    """Serve as many requests of a kind as it is said each time, and tell what went wrong.

    Args:
        pipe: of a `Child`.
        path: of the store.
        version: ``"old"``, or the step by which the new version came about.
        seed: of what it is asked for.
    """
    classes = (shapes.OLD, shapes.totals(shapes.OLD)) if version == "old" else shapes.of(version)[:2]
    draw = random.Random(seed)
    with tm.open(path, models=list(classes), durability="relaxed", timeout=60) as store:
        pipe.send("ready")
        while order := pipe.recv():
            requests, kind = order
            faults = []
            for _ in range(requests):
                try:
                    request(store, classes[0], draw, kind, 1_000 * seed)
                except Exception as error:
                    faults.append(f"{type(error).__name__}: {error}")
            pipe.send(faults)
