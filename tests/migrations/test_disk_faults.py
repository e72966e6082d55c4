"""The disk fails at some call while a migration copies, switches or is contracted: each transaction is there, or not."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online.migration import SqliteMigrations

from ..conftest import folder_in_memory
from ..sqlite_vfs import Attempt
from ..stores import sound_store
from .shapes import OLD, OLD_TOTALS, batches_of, begun, cases, contents, parts, texts, write

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # from the failing layer

CASE = cases()["rewrite"]
ENTITIES = 40
OPERATIONS = ["xWrite", "xSync", "xRead", "xTruncate", "xOpen", "xDelete", "xFileSize", "xLock"]
FEW = 4
"""Calls at which one of an operation fails by default."""


@pytest.fixture(scope="module")
def stores() -> Iterator[dict[str, Path]]:
    """Return a store before a batch, and one before the switch, each with a queue."""
    folder = folder_in_memory()
    path = Path(folder.name, "s.db")
    with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        store.insert_many(parts(ENTITIES, random.Random(1)))
    found = {}
    engine = begun(path, CASE.script, clock=lambda: 5)
    for name, done in (("batch", 20), ("switch", ENTITIES)):
        while engine.step(1).done < done:
            pass
        with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
            draw = random.Random(2)
            for _ in range(12):
                write(store, draw, 30)
        found[name] = path.with_name(f"{name}.db")
        engine._file.backup(found[name])
    engine.close()
    yield found
    folder.cleanup()


def dump(path: Path) -> dict[str, Any]:
    """Return all that is in a file, but for when, and what is set aside for later timestamps."""
    connection = apsw.Connection(str(path))
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")]
    content = {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}
    content["tablemapper_state"] = connection.execute("SELECT generation FROM tablemapper_state").fetchall()
    connection.close()
    return content


def expected(path: Path) -> list[str]:
    with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        return texts(new for old in store.query(OLD).allow_scan() for new in CASE.made(old))


def attempt(
    store: Path,
    opened: Callable[[Path], SqliteMigrations],
    work: Callable[[SqliteMigrations], object],
    operation: str,
    n: int,
    *,
    sticky: bool,
) -> tuple[Path, Attempt]:
    """Work on a copy of a store while the n-th call of an operation fails; return it, and what came of it."""
    folder = store.parent / f"{store.stem}-x"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / "s.db"
    shutil.copy(store, path)
    engine = opened(path)
    connection = engine._file._writes.connection
    assert connection is not None
    connection.execute("PRAGMA cache_size = 4")
    connection.wal_autocheckpoint(6)
    with (tried := Attempt(operation, n, sticky=sticky)):
        work(engine)
    assert tried.outcome is None or isinstance(tried.outcome, tm.StoreError)
    assert "please report" not in str(tried.outcome)
    with suppress(tm.StoreError):
        engine.close()
    return path, tried


def undisturbed(failing: Any, operation: str, *, full_size: bool) -> tuple[dict[str, Any], Sequence[int]]:
    """Return what the store holds after work that no fault disturbs, and which calls are to fail, one each time."""
    path, tried = failing(1_000_000)
    assert (tried.outcome, tried.fired) == (None, 0)
    assert tried.calls > {"xWrite": 10, "xSync": 2, "xRead": 3}.get(operation, -1)
    calls = range(1, tried.calls + 1)
    return dump(path), calls if full_size or len(calls) < FEW else sorted(random.Random(operation).sample(calls, FEW))


@pytest.mark.long
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("moment", ["batch", "switch"])
def test_a_transaction_that_meets_a_fault_is_there_or_not(
    moment: str, operation: str, stores: dict[str, Path], tmp_path: Path, *, sticky: bool, full_size: bool
) -> None:
    def work(engine: SqliteMigrations) -> None:
        assert engine.step(15 if moment == "batch" else 100).switched == (moment == "switch")

    failing = partial(
        attempt,
        stores[moment],
        lambda path: begun(path, CASE.script, clock=lambda: 5, durability="full", vfs="faulty"),
        work,
        operation,
        sticky=sticky,
    )
    before = dump(stores[moment])
    after, calls = undisturbed(failing, operation, full_size=full_size)
    assert after != before
    goal = expected(stores[moment])
    for n in calls:
        path, tried = failing(n)
        assert tried.fired
        now = dump(path)
        assert now in (before, after), n
        assert tried.outcome is not None or now == after, n  # (what is read once it has switched can fail, too)
        assert tm.migrate(path, [CASE.script], rest=0, durability="relaxed").done
        with sound_store(path, models=CASE.new, durability="relaxed") as store:
            assert contents(store, CASE.new) == goal


@pytest.mark.long
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_contract_that_meets_a_fault_goes_on_where_it_was(
    operation: str, stores: dict[str, Path], tmp_path: Path, *, sticky: bool, full_size: bool
) -> None:  # fmt: skip
    done = stores["switch"].parent / "done.db"
    shutil.copy(stores["switch"], done)
    assert tm.migrate(done, [CASE.script], rest=0, durability="relaxed").done
    with tm.open(done, models=CASE.new, durability="relaxed") as store:
        goal = contents(store, CASE.new)

    failing = partial(
        attempt, done, lambda path: SqliteMigrations.open(path, clock=lambda: 5, vfs="faulty"),
        lambda engine: engine.contract("first", batches_of(15)), operation, sticky=sticky,
    )  # fmt: skip
    after, calls = undisturbed(failing, operation, full_size=full_size)
    assert len(after) < len(dump(done))
    for n in calls:
        path, tried = failing(n)
        assert tried.fired
        assert tried.outcome is not None or dump(path) == after, n
        assert tm.status(path).history[-1].state in ("switched", "contracted")
        with sound_store(path, models=CASE.new, durability="relaxed") as store:
            assert contents(store, CASE.new) == goal
        assert tm.migrate(path, [CASE.script], contract=True, rest=0, durability="relaxed").done
        assert dump(path).keys() == after.keys()
        with sound_store(path, models=CASE.new, durability="relaxed") as store:
            assert contents(store, CASE.new) == goal
