"""A build over a disk that fails, and over one whose power is cut: what is left of a batch is all of it, or nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.schema.model import compile_schema

from ..sqlite_vfs import Power
from .build_faults import OPERATIONS, Build, cut_the_power, fail_each_call, watched
from .test_builds import OLD, names, part

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # from the failing layer

NEW = part(
    by_name=tm.Index[str](partition="{name}", include=("shelf",)),
    of_name=tm.Index[str](partition="{name}", unique=True),
)
NAMES = names(NEW)
ENTITIES = 60


@pytest.fixture
def registered(tmp_path: Path, never_at_once: None) -> Path:
    """Return a file in which a job has begun."""
    path = tmp_path / "s.db"
    with tm.open(path, models=[OLD]) as store:
        store.insert_many(OLD("a", number, f"n{number % 50}") for number in range(ENTITIES))
    with tm.open(path, models=[NEW, NAMES], build=False) as store:
        store.build(limit=10)
    return path


def opened(path: Path, **options: Any) -> SqliteEngine:
    return SqliteEngine.open(path, compile_schema([NEW, NAMES]), **options)


def batches(engine: SqliteEngine, most: int) -> Iterator[int]:
    yield (done := 10)
    while done < ENTITIES:
        engine.build(most, None)
        yield (done := done + most)


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


BATCHES = Build(opened, batches, check_half, whole=ENTITIES)


@pytest.mark.file
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("op", OPERATIONS)
def test_a_batch_that_meets_a_fault_is_there_or_not(op: str, registered: Path, *, sticky: bool) -> None:
    fail_each_call(BATCHES, registered, op, 25, sticky=sticky)


@pytest.mark.file
@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_leaves_whole_batches(registered: Path, seed: int, *, full_size: bool) -> None:
    cut_the_power(BATCHES, registered, 20, seed, every_moment=full_size)


@pytest.mark.file
def test_the_power_cuts_find_a_commit_that_is_not_synced(registered: Path) -> None:
    path = watched(registered)
    engine = opened(path, vfs="power", durability="relaxed")
    engine.build(20, None)
    image = path.with_name("cut.db")
    Power.cut(Power.events, random.Random(1), image, lost=1.0)
    with tm.open(image, models=[NEW, NAMES], durability="relaxed", build=False) as store:
        assert done(store) == 10, "a relaxed store may lose the last batch"
        assert store.check().problems == ()
    engine.close()
