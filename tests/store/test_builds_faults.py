"""A build over a disk that fails, and over one whose power is cut: what is left of a batch is all of it, or nothing."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.online import takeover
from tablemapper.schema.model import compile_schema

from ..sqlite_vfs import Fault, Power
from .test_builds import OLD, names, part

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # from the failing layer

NEW = part(
    by_name=tm.Index[str](partition="{name}", include=("shelf",)),
    of_name=tm.Index[str](partition="{name}", unique=True),
)
NAMES = names(NEW)
ENTITIES, BATCH = 60, 25
OPERATIONS = ["xWrite", "xSync", "xRead", "xTruncate", "xOpen", "xFileSize", "xLock"]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(takeover, "_AT_ONCE", -1)
    path = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def registered(folder: Path) -> Path:
    """Return a file in which a job has begun."""
    path = folder / "s.db"
    with tm.open(path, models=[OLD]) as store:
        store.insert_many(OLD("a", number, f"n{number % 50}") for number in range(ENTITIES))
    with tm.open(path, models=[NEW, NAMES], build=False) as store:
        store.build(limit=10)
    return path


def opened(path: Path, **options: Any) -> SqliteEngine:
    return SqliteEngine.open(path, compile_schema([NEW, NAMES]), **options)


def done(store: tm.Store) -> int:
    item = store.status()["Part.by_name"]
    return item.done if item.state == "building" else ENTITIES


def check_half(path: Path, allowed: Callable[[int], bool]) -> None:
    """Check what is built so far, and that the build comes to its end from there."""
    with tm.open(path, models=[NEW, NAMES], durability="relaxed", build=False) as store:
        assert store.check().problems == ()
        assert allowed(done(store)), done(store)
        store.build(rest=0)
        assert store.check().problems == ()
        assert store[NAMES.key("n1")].parts == 2
        assert len(store.build().violations) == 10


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("op", OPERATIONS)
def test_a_batch_that_meets_a_fault_is_there_or_not(op: str, registered: Path, *, sticky: bool) -> None:
    for n in range(1, 200):
        path = registered.with_name(f"{n}.db")
        shutil.copy(registered, path)
        engine = opened(path, vfs="faulty")
        assert engine.file._connection is not None
        engine.file._connection.execute("PRAGMA cache_size = 4")
        engine.file._connection.wal_autocheckpoint(6)
        before = 10
        Fault.arm(op, n, sticky=sticky)
        outcome: BaseException | None = None
        try:
            for _ in range(2):
                engine.build(BATCH, None)
                before += BATCH
        except tm.StoreError as error:
            outcome = error
        finally:
            fired = Fault.disarm()
        if not fired:
            assert outcome is None
            engine.close()
            assert n > {"xWrite": 10, "xSync": 3, "xRead": 3}.get(op, 0)
            return
        after = {before, before + BATCH} if isinstance(outcome, tm.OutcomeUnknown) else {before}
        with suppress(tm.StoreError):
            engine.close()
        check_half(path, lambda at, after=after: at in after)  # type: ignore[misc]
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_leaves_whole_batches(registered: Path, seed: int, *, full_size: bool) -> None:
    draw = random.Random(seed)
    folder = registered.with_name("power")
    folder.mkdir()
    path = folder / "s.db"
    shutil.copy(registered, path)
    Power.start(path)
    engine = opened(path, vfs="power")
    acknowledged: list[tuple[int, int]] = [(0, 10)]  # events, entities
    for at in range(1, 4):
        engine.build(20, None)
        acknowledged.append((Power.events, 10 + 20 * at))
    events = Power.events
    moments = range(events) if full_size else sorted(draw.sample(range(events), 12))
    for moment in moments:
        image = folder / f"{moment}.db"
        Power.cut(moment, draw, image)
        least = max(entities for event, entities in acknowledged if event <= moment)
        check_half(image, lambda at, least=least: at >= min(least, ENTITIES))  # type: ignore[misc]
    engine.close()
    assert events > 30


def test_the_power_cuts_find_a_commit_that_is_not_synced(registered: Path) -> None:
    folder = registered.with_name("power")
    folder.mkdir()
    path = folder / "s.db"
    shutil.copy(registered, path)
    Power.start(path)
    engine = opened(path, vfs="power", durability="relaxed")
    engine.build(20, None)
    image = folder / "cut.db"
    Power.cut(Power.events, random.Random(1), image, lost=1.0)
    with tm.open(image, models=[NEW, NAMES], durability="relaxed", build=False) as store:
        assert done(store) == 10, "a relaxed store may lose the last batch"
        assert store.check().problems == ()
    engine.close()
