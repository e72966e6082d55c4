"""The power is cut at random moments of programs that write one store: sectors are lost, kept, or torn at any byte.

Whatever is left opens, agrees with itself, holds all that was acknowledged (what was there at one moment, where
durability is relaxed), and takes writes.

    python -m tests.whole.power --cuts 20000
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import attrs

import tablemapper as tm
from tablemapper.engines.sqlite.driver import connections
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.file import transactions
from tablemapper.schema.model import compile_schema

from ..conftest import folder_in_memory
from ..migrations.shapes import OLD, OLD_TOTALS, contents, indexes, part, write
from ..sqlite_vfs import Power

STEPS = 12
MODELS = [OLD, OLD_TOTALS]
MORE = [part(**indexes(), by_price=tm.Index[str](partition="{price}"))]
State = tuple[int, list[str]]
"""How many calls the disk had seen when it was acknowledged, and what the store held."""


@attrs.define
class Found:
    """What was found out."""

    cuts: int = 0
    distinct: int = 0
    """Contents of the disk, each of which was opened."""
    wrong: list[str] = attrs.field(factory=list)

    def __str__(self) -> str:
        return f"{self.cuts} cuts, {self.distinct} distinct, {len(self.wrong)} wrong"


def search(folder: Path, seed: int, cuts: int) -> Found:
    """Run one program, and cut the power so many times."""
    draw = random.Random(seed)
    durability = draw.choice(["full", "full", "relaxed"])
    path, image = folder / "s.db", folder / "cut.db"
    _remove(path)
    Power.start(path)
    with _small(draw):
        states = _run(path, durability, draw)
    found, seen = Found(), set[tuple[int, bytes]]()
    for _ in range(cuts):
        moment = draw.randrange(Power.events + 1)
        lost, torn = draw.choice([0, 0.1, 0.5, 0.9]), draw.choice([0, 0.1, 1])
        _remove(image)
        Power.cut(moment, draw, image, lost=lost, torn=torn)
        acknowledged = max(at for at, (events, _) in enumerate(states) if events <= moment)
        found.cuts += 1
        if (one := (acknowledged, _digest(image))) in seen:
            continue
        seen.add(one)
        if (what := _wrong(image, states, acknowledged, durability)) is not None:
            found.wrong.append(f"seed {seed}, {durability}, cut {found.cuts} at {moment}: {what[:300]}")
    found.distinct = len(seen)
    return found


def _run(path: Path, durability: str, draw: random.Random) -> list[State]:
    """Write a new store, and return what it held after each step."""
    page_size = draw.choice([512, 1024, 4096])
    states: list[State] = [(0, [])]

    def opened(models: Sequence[Any]) -> tm.Store:
        engine = SqliteEngine.open(
            path, compile_schema(models), durability=durability, vfs="power", page_size=page_size  # type: ignore[arg-type]
        )  # fmt: skip
        return tm.Store(engine)

    store = opened(MODELS)
    for _ in range(STEPS):
        match draw.randrange(12):
            case 0:
                store.close()
                opened(draw.choice([MODELS, MORE])).close()
                store = opened(MODELS)
            case 1:
                with opened(MODELS) as other:
                    write(other, draw)
            case 2:
                number = draw.randrange(3)
                store.upsert_many(OLD("big", number + at, "1", None, [tag * 300 for tag in "abcde"]) for at in range(4))
            case 3:
                store.compact()
                store.upsert(OLD("y", 0, "2", None, []))  # else a reader alone would be left to close the file
            case _:
                write(store, draw)
        states.append((Power.events, contents(store, [OLD])))
    store.close()
    return states


@contextmanager
def _small(draw: random.Random) -> Iterator[None]:
    """Let a few writes fill the cache, and the log, so that pages are copied into the file again and again."""
    pages = draw.choice([4, 12, 40])
    with (
        mock.patch.object(connections, "WAL_PAGES", pages),
        mock.patch.object(transactions, "WAL_PAGES", pages),
        mock.patch.object(connections, "_WRITER_CACHE", draw.choice([4, 16, 4096])),
    ):
        yield


@contextmanager
def without_syncs() -> Iterator[None]:
    """Open stores that sync nothing: the fault that power cuts must find."""
    writer = connections.DatabaseLocation.writer

    def unsafe(*args: Any, **options: Any) -> Any:
        connection = writer(*args, **options)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    with mock.patch.object(connections.DatabaseLocation, "writer", unsafe):
        yield


def _files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}*"))


def _remove(path: Path) -> None:
    for file in _files(path):
        file.unlink()


def _digest(image: Path) -> bytes:
    names = hashlib.blake2b()
    for file in _files(image):
        names.update(b"%s %d " % (file.name.encode(), file.stat().st_size))
        names.update(file.read_bytes())
    return names.digest()


def _wrong(image: Path, states: list[State], acknowledged: int, durability: str) -> str | None:
    """Return what is wrong with what a power cut left, if anything is."""
    first = acknowledged if durability == "full" else 0
    try:
        with tm.open(image, models=MODELS, durability="relaxed") as store:
            if not (report := store.check()).ok:
                return f"check: {report.problems[0]}"
            left = contents(store, [OLD])
            if left not in [held for _, held in states[first : acknowledged + 2]]:
                return f"it holds {len(left)} entities: lost, or half a step"
            store.upsert(OLD("new", 1, price="after", maker=None, tags=[]))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def main() -> None:
    """Search until so many cuts were made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    total = Found()
    with folder_in_memory() as folder:
        for seed in count(asked.seed):
            found = search(Path(folder), seed, 250)
            total = Found(total.cuts + found.cuts, total.distinct + found.distinct, total.wrong + found.wrong)
            print(f"seed {seed}: {found}", *found.wrong[:3], sep="\n", flush=True)
            if total.cuts >= asked.cuts:
                break
    print(total)
    sys.exit(bool(total.wrong))


if __name__ == "__main__":
    main()
