"""A table of one column, and what the tests of a file do with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import apsw

from tablemapper.engines.sqlite.file.database import File
from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.engines.sqlite.file.writer import Writer


def create_table(w: Writer) -> None:
    w.execute("CREATE TABLE t (k INTEGER PRIMARY KEY AUTOINCREMENT, v)")


def insert(value: object) -> Callable[[Writer], int]:
    def apply(w: Writer) -> int:
        w.execute("INSERT INTO t (v) VALUES (?)", (value,))
        return w.timestamp

    return apply


def open_table(where: Path | str, values: Iterable[object] = (), **options: Any) -> File:
    """Open a file, and make the table in it, with some values."""
    file = open_file(where, **options)
    file.write(create_table)
    if values:
        file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", [(value,) for value in values]))
    return file


def checkpoint(file: File) -> bool:
    """Copy the write-ahead log into the file, as far as no reader needs it; return whether all of it was."""
    assert file._connection is not None
    log, done = file._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    return log == done


def beside(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path.parent) if name != path.name)


class Clock:
    """A clock that stands still: of times in µs, or of seconds that pass while something sleeps."""

    def __init__(self, now: int = 10**15) -> None:
        self.now: float = now

    def __call__(self) -> Any:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def eventually(condition: Callable[[], object]) -> None:
    """Wait for what another thread or process is about to do."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.0005)


def drawn(place: Path) -> int:
    """Return how many tickets were drawn."""
    return int.from_bytes(Path(f"{place}-turn").read_bytes()[:8], "little")
