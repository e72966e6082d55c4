"""A build over a disk that fails, and over one whose power is cut: what is left of a transaction is all of it, or nothing."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import attrs

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine

from ..sqlite_vfs import Power, every_call

OPERATIONS = ["xWrite", "xSync", "xRead", "xTruncate", "xOpen", "xFileSize", "xLock"]


@attrs.frozen
class Build:
    """A kind of build, and how it is checked."""

    opened: Callable[..., SqliteEngine]
    """Opens the file that is built, with the options of an engine."""
    steps: Callable[[SqliteEngine, int], Iterator[int]]
    """Builds so many at a time, and yields how many are built: before the first transaction, and after each."""
    check: Callable[[Path, Callable[[int], bool]], None]
    """Checks a file that is half built, and whether so many may be built as there are."""
    whole: int
    """How many are built at the end."""


def fail_each_call(build: Build, registered: Path, op: str, size: int, *, sticky: bool) -> None:
    """Fail the n-th call of ``op`` while a copy of a file is built, for every n, and check what is left."""
    for attempt in every_call(op, sticky=sticky):
        path = registered.with_name(f"{attempt.n}.db")
        shutil.copy(registered, path)
        engine = build.opened(path, vfs="faulty")
        assert engine.file._connection is not None
        engine.file._connection.execute("PRAGMA cache_size = 4")
        engine.file._connection.wal_autocheckpoint(6)
        done = 0
        with attempt:
            for count in build.steps(engine, size):
                done = count
        assert attempt.outcome is None or isinstance(attempt.outcome, tm.StoreError)
        after = {done, done + size} if isinstance(attempt.outcome, tm.OutcomeUnknown) else {done}
        with suppress(tm.StoreError):
            engine.close()
        build.check(path, {min(one, build.whole) for one in after}.__contains__)
    assert done >= build.whole
    assert attempt.n > {"xWrite": 10, "xSync": 3, "xRead": 3}.get(op, 0)


def watched(registered: Path) -> Path:
    """Return a copy of a file, whose writes are noted from now on."""
    folder = registered.with_name("power")
    folder.mkdir()
    path = folder / "s.db"
    shutil.copy(registered, path)
    Power.start(path)
    return path


def cut_the_power(build: Build, registered: Path, size: int, seed: int, *, every_moment: bool) -> None:
    """Cut the power at moments while a copy of a file is built, and check what is left."""
    draw = random.Random(seed)
    path = watched(registered)
    engine = build.opened(path, vfs="power")
    acknowledged = [(Power.events, done) for done in build.steps(engine, size)]
    events = Power.events
    for moment in range(events) if every_moment else sorted(draw.sample(range(events), 12)):
        image = path.with_name(f"{moment}.db")
        Power.cut(moment, draw, image)
        least = min(build.whole, max(done for event, done in acknowledged if event <= moment))
        build.check(image, range(least, build.whole + 1).__contains__)
    engine.close()
    assert acknowledged[-1][1] >= build.whole
    assert events > 30
