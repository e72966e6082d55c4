"""Writing by query: what a plain loop would give, each entity once, whatever happens meanwhile."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.engines.protocol import Engine
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.execution.prepared import BatchLimits, PlanCache
from tablemapper.planning.budget import Budget
from tablemapper.planning.query_spec import QuerySpec
from tablemapper.query import class_results, writing
from tablemapper.query.query import Query
from tablemapper.schema.model import compile_schema

from ..forks import in_child
from ..sqlite_vfs import Attempt
from ..stores import sound_store
from .test_query import LEAVES, ORDERS, UNITS, Forced, ImpossiblePath, Test, Unit, combined

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")


class Census(tm.Aggregate, of=Unit, table="Censuses"):
    city: tm.Field[str] = tm.group_by(Unit.city)
    units: tm.Field[int] = tm.count()
    size: tm.Field[float | None] = tm.sum(Unit.size)
    rent: tm.Field[Decimal | None] = tm.max(Unit.rent)

    key = tm.Key[str](partition="{city}")


class Task(tm.Entity, table="Tasks"):
    group: tm.Field[str]
    number: tm.Field[int]
    n: tm.Field[int] = tm.field(default=1)
    state: tm.Field[str] = tm.field(default="open")
    code: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{group}", row="{number}")
    by_state = tm.Index[str, int](partition="{state}", row="{n}")
    by_code = tm.Index[str](partition="{code}", unique=True)


@pytest.fixture(scope="module")
def units() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Unit, Census]) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tm.Store]:
    with tm.open(tmp_path / "tasks.db", models=[Task], durability="relaxed") as opened:
        yield opened


def small(store: tm.Store, batch: int = 2, **options: Any) -> None:
    """Make the batches of a store small."""
    store._plans.batch_limits = BatchLimits(batch=batch, **options)


def fill(store: tm.Store, count: int = 7, batch: int | None = None, **values: Any) -> None:
    """Insert tasks; ``batch``: make the batches of the store as small."""
    if batch is not None:
        small(store, batch)
    store.insert_many(Task("g", number, **values) for number in range(count))


def numbers(store: tm.Store) -> list[int]:
    return [task.n for task in store.query(Task).where(Task.group == "g")]


# ---------------------------------------------------------------------------------------------- what a loop gives

Change = Callable[[Unit], Unit | None]
CHANGES: list[tuple[str, Callable[[Query[Unit]], int], Change]] = [
    ("delete", lambda q: q.delete(), lambda u: None),
    ("assign", lambda q: q.update(owner="Ann", rent=None), lambda u: u.replace(owner="Ann", rent=None)),
    ("calculate", lambda q: q.update(size=Unit.size * 2 + 1), lambda u: u.replace(size=u.size * 2 + 1)),
    (
        "swap the order of an index",
        lambda q: q.update(Unit.size.set(-Unit.size), Unit.owner.set(Unit.building)),
        lambda u: u.replace(size=-u.size, owner=u.building),
    ),
    (
        "a function",
        lambda q: q.update(lambda u: u.replace(tags=[*u.tags, "c"], rent=Decimal(9)) if u.size > 1 else None),
        lambda u: u.replace(tags=[*u.tags, "c"], rent=Decimal(9)) if u.size > 1 else u,
    ),
]
PATHS = [
    "Unit.key", "Unit.key", "Unit.by_owner", "Unit.by_size", "Unit.by_day", "Unit.by_tag", "Unit.large",
    "Unit.spread",
]  # fmt: skip


@pytest.mark.needs("sorts")
@given(
    st.lists(UNITS, max_size=14, unique_by=lambda u: (u.city, u.building, u.number)),
    st.lists(combined(LEAVES), max_size=2), st.sampled_from(CHANGES), st.sampled_from(PATHS), ORDERS,
    st.none() | st.integers(0, 6), st.none() | st.just("run"), st.booleans(),
)  # fmt: skip
def test_a_write_by_query_gives_what_a_loop_gives(
    units: tm.Store,
    some: list[Unit],
    tests: list[Test],
    what: tuple[str, Callable[[Query[Unit]], int], Change],
    path: str,
    order: list[tuple[str, bool]],
    limit: int | None,
    name: str | None,
    counted: bool,
) -> None:
    small(units, 100)
    units.query(Unit).allow_scan().delete()
    assert units.query(Census).allow_scan().count() == 0
    units.insert_many(some)
    small(units, 2, in_memory=3)

    def asked(plans: PlanCache) -> Query[Unit]:
        made: Query[Unit] = (
            Query(plans, QuerySpec(units._operations.model(Unit))).where(*[test for test, _ in tests]).allow_scan()
        )
        made = made.order_by(*[getattr(Unit, name).desc() if down else getattr(Unit, name) for name, down in order])
        if counted:
            made = made.budget(examined=10_000)
        return made if limit is None else made.limit(limit)

    query = asked(units._plans)
    try:
        forced = Forced(units._engine, path)
        forced.batch_limits = units._plans.batch_limits
        query = asked(forced)
        forced.find(query._spec, None)
    except ImpossiblePath:
        query = asked(units._plans)
    found = list(query)
    _, run, change = what
    expected = {unit.key: unit for unit in some}
    written = 0
    for unit in found:
        after = change(unit)
        written += after is not unit
        if after is None:
            del expected[unit.key]
        else:
            expected[unit.key] = after
    if name is not None:
        query = _Named(query, name)  # type: ignore[assignment]
    assert run(query) == written
    assert {unit.key: unit for unit in units.query(Unit).allow_scan()} == expected
    assert units.check().ok


class _Named:
    """A query whose writes have a name."""

    def __init__(self, query: Query[Unit], name: str) -> None:
        self._query = query
        self._name = name

    def delete(self) -> int:
        return self._query.delete(resume=self._name)

    def update(self, *given: Any, **values: Any) -> int:
        return self._query.update(*given, resume=self._name, **values)


def test_an_index_that_is_assigned_is_not_followed(store: tm.Store) -> None:
    fill(store, batch=2)
    assert store.query(Task.by_state("open")).update(n=Task.n + 1) == 7
    assert store.query(Task).where(Task.state == "open", Task.n < 100).update(n=Task.n * 2) == 7
    assert store.query(Task.by_state("open")).update(lambda t: t.replace(n=t.n + 1)) == 7
    assert numbers(store) == [5] * 7


@pytest.mark.needs("backward")
def test_a_limit_takes_the_first_ones_of_the_order_as_they_were(store: tm.Store) -> None:
    small(store)
    store.insert_many(Task("g", number, n=number) for number in range(7))
    first = store.query(Task).where(Task.state == "open").order_by(Task.n.desc()).limit(3)
    assert first.update(n=Task.n - 100, resume="down") == 3
    assert numbers(store) == [0, 1, 2, 3, -96, -95, -94]
    assert store.query(Task).where(Task.group == "g").limit(2).delete() == 2
    assert store.query(Task).where(Task.group == "g").limit(0).delete(resume="none") == 0
    assert numbers(store) == [2, 3, -96, -95, -94]


def test_more_keys_than_memory_should_hold_come_in_order_from_a_file(store: tm.Store) -> None:
    small(store, 10, in_memory=7)
    store.insert_many(Task("g", number, n=-number) for number in range(40))
    seen = []
    store.query(Task.by_state("open")).update(lambda t: seen.append(t.number))
    assert seen == list(range(40))


def test_batches_are_atomic_and_end_after_so_many_entities_or_so_much_time(store: tm.Store) -> None:
    now = 0.0

    def slow(task: Task) -> Task:
        nonlocal now
        now += 0.2
        return task.replace(n=2)

    fill(store, 10)
    sizes: list[int] = []
    apply = store._engine.apply
    small(store, 4, monotonic=lambda: now)
    store._engine.apply = lambda operations, **more: (sizes.append(len(operations)), apply(operations, **more))[1]  # type: ignore[method-assign]
    store.query(Task).where(Task.group == "g").update(n=3)
    assert sizes == [4, 4, 2]
    sizes.clear()
    store.query(Task).where(Task.group == "g").update(slow)
    assert sizes == [3, 1, 3, 1, 2]


def test_an_update_and_a_delete_report_their_progress(store: tm.Store) -> None:
    fill(store)
    told: list[tm.reports.Progress] = []
    store.query(Task).where(Task.group == "g").update(n=2, progress=told.append)
    assert (told[-1].done, told[-1].what) == (7, "update")
    store.query(Task).where(Task.group == "g").delete(progress=told.append)
    assert (told[-1].done, told[-1].what) == (7, "delete")


def test_a_scan_has_to_be_allowed_and_is_logged(
    store: tm.Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablemapper.execution.prepared._MANY", 1)
    fill(store)
    with pytest.raises(tm.ScanRefused):
        store.query(Task).where(Task.n == 1).delete()
    with caplog.at_level("WARNING", "tablemapper.query"):
        assert store.query(Task).where(Task.n == 1).allow_scan().delete() == 7
    assert "reads the whole table Tasks" in caplog.text


def test_a_budget_holds_for_the_whole_run(store: tm.Store) -> None:
    fill(store, batch=2)
    every = store.query(Task).where(Task.group == "g")
    with pytest.raises(tm.QueryStopped) as stopped:
        every.budget(examined=5).update(n=Task.n * 2)
    assert (stopped.value.written, numbers(store)) == (4, [2, 2, 2, 2, 1, 1, 1])  # type: ignore[attr-defined]
    assert every.budget(examined=7).update(n=3) == 7
    with pytest.raises(tm.QueryStopped):
        store.query(Task.by_state("open")).budget(examined=6).update(n=4)
    with pytest.raises(tm.QueryStopped):
        every.budget(timeout=0).update(n=4)
    assert numbers(store) == [3] * 7


def test_a_time_limit_holds_while_entities_are_written(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_results, "Budget", partial(Budget, monotonic=lambda: now))
    now = 0.0
    fill(store, batch=2)

    def slow(task: Task) -> Task:
        nonlocal now
        now += 0.06
        return task.replace(n=2)

    with pytest.raises(tm.QueryStopped) as stopped:
        store.query(Task.by_state("open")).budget(timeout=0.1).update(slow)
    assert stopped.value.written == 2  # type: ignore[attr-defined]


def test_many_rows_that_do_not_match_are_passed_over_page_by_page(store: tm.Store) -> None:
    fill(store, 70, batch=1)
    late = store.query(Task).where(Task.number >= 65).allow_scan()
    assert late.explain().checked, "a row key is checked after reading"
    assert late.update(n=2) == 5
    assert sum(numbers(store)) == 75


# ---------------------------------------------------------------------------------------------- others who write


@pytest.mark.parametrize("along", ["key", "index", "limit"])
def test_what_someone_else_changed_is_read_and_judged_again(store: tm.Store, along: str) -> None:
    fill(store, batch=4)
    did: set[int] = set()

    def change(task: Task) -> Task:
        if task.number not in did:  # someone is faster, the first time
            did.add(task.number)
            match task.number:
                case 1:
                    store.merge(task.key, state="closed")
                case 2:
                    store.merge(task.key, Task.n.add(10))
                case 3:
                    store.delete(task.key)
                case 4:
                    store.delete(task.key)
                    store.insert(Task("g", 4, n=50))
        return task.replace(n=task.n * 2)

    query = store.query(Task).where(Task.state == "open", *([Task.group == "g"] if along != "index" else []))
    if along == "limit":
        query = query.limit(7)
    assert query.update(change) == 5
    assert {task.number: task.n for task in store.query(Task).where(Task.group == "g")} == {
        0: 2, 1: 1, 2: 22, 4: 100, 5: 2, 6: 2,
    }  # fmt: skip
    assert store.check().ok


@pytest.mark.parametrize("along", ["key", "index", "limit"])
def test_what_no_query_finds_any_more_when_its_turn_comes_is_not_written(store: tm.Store, along: str) -> None:
    fill(store, batch=2)

    def change(task: Task) -> Task:
        if task.number == 0:
            store.merge(Task.key("g", 5), state="closed")
            store.delete(Task.key("g", 6))
        return task.replace(n=2)

    query = store.query(Task).where(Task.state == "open", *([Task.group == "g"] if along != "index" else []))
    assert (query.limit(7) if along == "limit" else query).update(change) == 5
    assert numbers(store) == [2, 2, 2, 2, 2, 1]


def test_an_entity_that_leaves_its_range_of_an_index_is_not_written(store: tm.Store) -> None:
    fill(store, batch=4)

    def change(task: Task) -> Task:
        if task.number == 0:
            store.merge(Task.key("g", 1), state="closed")
        return task.replace(n=2)

    assert store.query(Task.by_state("open")).update(change) == 6
    assert numbers(store) == [2, 1, 2, 2, 2, 2, 2]


def test_a_delete_spares_what_does_not_match_any_more(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store)
    apply, once = store._engine.apply, [True]

    def late(operations: Any, **more: Any) -> None:
        if once and once.pop():
            store._engine.apply = apply  # type: ignore[method-assign]
            store.merge(Task.key("g", 2), state="closed")
            store.merge(Task.key("g", 3), n=7)
            store.delete(Task.key("g", 4))
        apply(operations, **more)

    store._engine.apply = late  # type: ignore[method-assign]
    assert store.query(Task).where(Task.group == "g", Task.state == "open").delete() == 5
    assert [task.number for task in store.query(Task).where(Task.group == "g")] == [2]


def test_nothing_that_others_write_meanwhile_is_lost(store: tm.Store) -> None:
    fill(store, 200, batch=50)
    stop, added = threading.Event(), [0] * 200

    def others() -> None:
        at = 0
        while not stop.is_set():
            store.merge(Task.key("g", at % 200), Task.n.add(1))
            added[at % 200] += 1
            at += 37

    thread = threading.Thread(target=others)
    thread.start()
    try:
        assert store.query(Task).where(Task.group == "g").update(n=Task.n + 1_000_000) == 200
        assert store.query(Task.by_state("open")).update(lambda t: t.replace(n=t.n + 1_000_000)) == 200
    finally:
        stop.set()
        thread.join()
    assert sum(added) > 0
    assert numbers(store) == [2_000_001 + more for more in added]
    assert store.check().ok


def test_whoever_is_always_faster_ends_in_one_clear_error(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_ATTEMPTS", 5)
    fill(store, 3)

    def change(task: Task) -> Task:
        if task.number == 1:
            store.merge(task.key, Task.n.add(1))
        return task.replace(state="done")

    with pytest.raises(tm.PreconditionFailed) as raised:
        store.query(Task).where(Task.group == "g").update(change)
    assert raised.value.key == ("g", "a1")
    assert [task.state for task in store.query(Task).where(Task.group == "g")][1] == "open"


# ---------------------------------------------------------------------------------------------- stopped, and resumed


def test_an_error_says_how_many_were_written(store: tm.Store) -> None:
    fill(store, batch=2)

    def fails(task: Task) -> Task:
        if task.number == 5:
            raise KeyError("five")
        return task.replace(n=2)

    with pytest.raises(KeyError, match="five") as raised:
        store.query(Task).where(Task.group == "g").update(fails)
    assert raised.value.__notes__ == ["update: 4 entities were written before this"]
    assert raised.value.written == 4  # type: ignore[attr-defined]
    assert numbers(store) == [2, 2, 2, 2, 1, 1, 1]


def test_a_batch_with_a_fault_is_not_written_and_the_error_names_it(store: tm.Store) -> None:
    fill(store, batch=2)
    with pytest.raises(tm.UniqueViolation) as raised:
        store.query(Task).where(Task.group == "g").update(code="x")
    assert (raised.value.index, raised.value.written) == ("by_code", 0)  # type: ignore[attr-defined]
    store.merge(Task.key("g", 3), n=2**62)
    with pytest.raises(tm.InvalidEntity) as wide:
        store.query(Task).where(Task.group == "g").update(n=Task.n * 2)
    assert str(wide.value).startswith("Task ('g', 'a3'): n = (Task.n * 2): 9223372036854775808 does not fit in 64 bits")
    assert wide.value.written == 2  # type: ignore[attr-defined]
    assert store.check().ok


@pytest.mark.file
@pytest.mark.parametrize("along", ["key", "index", "limit"])
def test_a_named_run_goes_on_where_it_stopped(store: tm.Store, along: str) -> None:
    fill(store, batch=2)
    broken = [True]

    def double(task: Task) -> Task:
        if task.number == 5 and broken:
            raise ValueError("not five")
        return task.replace(n=task.n * 2)

    query = store.query(Task) if along == "index" else store.query(Task).where(Task.group == "g")
    query = query.where(Task.state == "open")
    if along == "limit":
        query = query.order_by(Task.n).limit(6)
    with pytest.raises(ValueError, match="not five") as raised:
        query.update(double, resume="double")
    assert raised.value.__notes__ == ["update: 4 entities were written before this; the same call continues there"]
    broken.clear()
    assert query.update(double, resume="double") == (6 if along == "limit" else 7)
    assert numbers(store) == [2] * 6 + [1 if along == "limit" else 2]
    assert _noted(store) == []
    assert query.update(double, resume="double") == (6 if along == "limit" else 7), "a new run"


def _noted(store: tm.Store) -> list[str]:
    rows = store._engine.file.read("SELECT name FROM tablemapper_catalogue")  # type: ignore[attr-defined]
    return [name for (name,) in rows if name not in ("models", "tables", "versions", "states")]


def test_a_name_belongs_to_one_query_until_its_run_is_over(store: tm.Store) -> None:
    fill(store, batch=2)
    query = store.query(Task).where(Task.group == "g")

    def fails(task: Task) -> Task:
        if task.number == 5:
            raise KeyError
        return task.replace(n=2)

    with pytest.raises(KeyError):
        query.update(fails, resume="r")
    for other in (
        lambda: query.update(n=2, resume="r"),
        lambda: query.delete(resume="r"),
        lambda: query.where(Task.n == 1).update(fails, resume="r"),
        lambda: store.query(Task).where(Task.group == "h").update(fails, resume="r"),
        lambda: query.limit(3).update(fails, resume="r"),
    ):
        with pytest.raises(tm.InvalidQuery, match="is in use by another query, <Query Task, group == 'g'>"):
            other()
    assert query.update(n=2, resume="another") == 7
    assert query.update(lambda t: t.replace(n=3), resume="r") == 7, "it does not say which function"
    assert numbers(store) == [2, 2, 2, 2, 3, 3, 3]


def test_of_two_runs_with_one_name_one_stops(store: tm.Store) -> None:
    fill(store, batch=2)
    inner: list[int] = []

    def double(task: Task) -> Task:
        if task.number == 2 and not inner:
            inner.append(0)
            inner.append(store.query(Task).where(Task.group == "g").update(double, resume="d"))
        return task.replace(n=task.n * 2)

    with pytest.raises(tm.PreconditionFailed, match="another run writes under the same name"):
        store.query(Task).where(Task.group == "g").update(double, resume="d")
    assert inner[1] == 7
    assert numbers(store) == [2] * 7


class Killed(BaseException):
    pass


@pytest.mark.file
@pytest.mark.parametrize("along", ["key", "index", "limit"])
@pytest.mark.parametrize("after", [False, True], ids=["before a commit", "after it"])
def test_a_run_that_is_killed_at_any_commit_doubles_nothing_twice(tmp_path: Path, along: str, after: bool) -> None:
    for kill_at in range(1, 6):
        path = tmp_path / f"{kill_at}.db"
        with tm.open(path, models=[Task], durability="relaxed") as store:
            fill(store)
        left, ended = kill_at, False
        while not ended:
            with tm.open(path, models=[Task], durability="relaxed") as store:
                apply = store._engine.apply

                def killing(operations: Any, apply: Callable[..., None] = apply, **more: Any) -> None:
                    nonlocal left
                    left -= 1
                    if left or after:
                        apply(operations, **more)
                    if not left:
                        raise Killed

                store._engine.apply = killing  # type: ignore[method-assign]
                small(store)
                query = store.query(Task).where(*([Task.group == "g"] if along == "key" else []), Task.state == "open")
                if along == "limit":
                    query = query.order_by(Task.n.desc()).limit(5)
                try:
                    total = query.update(n=Task.n * 2, resume="double")
                    ended = True
                except Killed:
                    pass
        with sound_store(path, models=[Task]) as store:
            # (A kill after the very last commit leaves nothing to resume: the same call is a run of its own.)
            value = 4 if kill_at == 5 and after else 2
            count = 5 if along == "limit" else 7
            assert numbers(store) == [1] * (7 - count) + [value] * count  # (a tie of n goes to the greater key)
            assert total == count
            assert _noted(store) == []


@pytest.mark.file
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_process_that_is_killed_is_continued_by_the_next(path: Path) -> None:
    with tm.open(path, models=[Task]) as store:
        fill(store, 60)

    def run(calls: float) -> int:
        def double(task: Task) -> Task:
            nonlocal calls
            calls -= 1
            if not calls:
                os.kill(os.getpid(), signal.SIGKILL)
            return task.replace(n=task.n * 2)

        with tm.open(path, models=[Task]) as store:
            small(store, 10)
            return store.query(Task).where(Task.group == "g").update(double, resume="double")

    assert in_child(lambda: run(25)) == ""
    with tm.open(path, models=[Task]) as store:
        assert numbers(store) == [2] * 20 + [1] * 40
    assert in_child(lambda: run(math.inf)) == "60"
    with tm.open(path, models=[Task]) as store:
        assert numbers(store) == [2] * 60


def test_a_disk_that_fails_at_any_write_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    schema = compile_schema([Task])
    for at in range(1, 40, 3):
        store = tm.Store(SqliteEngine.open(tmp_path / f"{at}.db", schema, vfs="faulty"))
        fill(store)
        small(store)
        query = store.query(Task.by_state("open"))
        total = 0
        for attempt in (Attempt("xWrite", at), Attempt("xWrite", at), nullcontext()):
            with attempt:
                total = total or query.update(n=Task.n * 2, resume="double")
        assert total == 7
        assert numbers(store) == [2] * 7
        assert store.check().ok
        store.close()


# ---------------------------------------------------------------------------------------------- what is refused


def _every(store: tm.Store) -> Query[Task]:
    return store.query(Task).where(Task.group == "g")


REFUSED: list[tuple[str, Callable[[Any], Any], str]] = [
    ("a key field", lambda q: q.update(number=3), "store.move"),
    ("a key field by a function", lambda q: q.update(lambda t: t.replace(number=t.number + 100)), "store.move"),
    ("a key field set in place", lambda q: q.update(lambda t: setattr(t, "number", 3)), "store.move"),
    ("an unknown field", lambda q: q.update(stat="x"), 'no field "stat".*did you mean "state"'),
    ("a wrong type", lambda q: q.update(n="x"), "n: expected int, got str 'x'"),
    ("a missing value", lambda q: q.update(n=None), "n: None, but a value of type int is required"),
    ("nothing", lambda q: q.update(), "nothing to change"),
    ("a field of another class", lambda q: q.update(Unit.size.set(1.0)), "Unit.size is not a field of Task"),
    ("what another class has", lambda q: q.update(n=Unit.number * 2), "Unit.number is not a field of Task"),
    ("another type of result", lambda q: q.update(n=Task.n / 2), "is float, but the field is int"),
    ("another type of field", lambda q: q.update(n=Task.state), "Task.state is str, but the field is int"),
    ("a field twice", lambda q: q.update(Task.n.set(1), n=2), "n: it is assigned twice"),
    ("a predicate", lambda q: q.update(Task.n == 1), r"expected Task\.field\.set\(…\), \.add\(…\) or \.remove\(\), got"),
    ("a function beside assignments", lambda q: q.update(lambda t: t, n=1), "one function, or assignments"),
    ("a function that returns something else", lambda q: q.update(lambda t: 3), "must return a Task or None, not 3"),
    ("a function that changes in place", lambda q: q.update(lambda t: setattr(t, "n", 3)), "return the entity"),
    ("a function that gives what cannot be stored", lambda q: q.update(lambda t: t.replace(n="x")), "expected int"),
    ("a name that is none", lambda q: q.update(n=2, resume=3), "resume=3: expected a name"),
    ("an empty name", lambda q: q.delete(resume=""), "expected a name"),
    ("a name with a limit too large", lambda q: q.limit(10**6).delete(resume="x"), "at most 100,000"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "says"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_can_not_be_is_refused_before_anything_is_written(
    store: tm.Store, ask: Callable[[Any], Any], says: str
) -> None:
    fill(store, batch=2)
    with pytest.raises((tm.InvalidEntity, tm.InvalidQuery), match=says):
        ask(_every(store))
    assert numbers(store) == [1] * 7


def test_an_aggregate_is_not_written_by_query(units: tm.Store) -> None:
    for ask in (lambda q: q.delete(), lambda q: q.update(units=3), lambda q: q.update(lambda c: c)):
        with pytest.raises(tm.InvalidEntity, match="maintained from Unit; write Unit entities instead"):
            ask(units.query(Census))


def test_every_fault_of_an_update_is_named_at_once(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity) as raised:
        _every(store).update(Task.group.set("h"), n="x", stat="y")
    assert len(raised.value.faults) == 3


@pytest.mark.file
def test_notes_are_not_seen_by_whoever_opens_the_file_or_checks_it(path: Path) -> None:
    with sound_store(path, models=[Task]) as store:
        fill(store, batch=2)
        with pytest.raises(ZeroDivisionError):
            _every(store).update(lambda t: t.replace(n=t.n // (4 - t.number)), resume="x")
    with sound_store(path, models=[Task, Unit, Census]) as store:
        assert _noted(store) == ["resume='x'"]


def test_an_engine_keeps_notes_only_as_they_were_expected(store: tm.Store) -> None:
    from tablemapper.engines.protocol import Note, NoteConflict

    engine: Engine = store._engine
    engine.apply([], notes=[Note("a", None, "1"), Note("b", None, "2")])
    assert (engine.note("a"), engine.note("c")) == ("1", None)
    for wrong in (Note("a", None, "3"), Note("a", "2", "3"), Note("c", "1", None)):
        with pytest.raises(NoteConflict):
            engine.apply([], notes=[Note("b", "2", "9"), wrong])
    engine.apply([], notes=[Note("a", "1", None)])
    assert (engine.note("a"), engine.note("b")) == (None, "2")


def test_what_leaves_a_partial_index_meanwhile_is_not_written() -> None:
    class Ticket(tm.Entity, table="Tickets"):
        number: tm.Field[int]
        state: tm.Field[str]
        seen: tm.Field[bool] = tm.field(default=False)

        key = tm.Key[int](partition="all", row="{number}")
        by_open = tm.Index[int](partition="all", row="{number}", where=lambda t: t.state == "open")

    with tm.open(":memory:", models=[Ticket]) as store:
        store.insert_many(Ticket(number, "open") for number in range(6))
        small(store)

        def see(ticket: Ticket) -> Ticket:
            if ticket.number == 0:
                store.merge(Ticket.key(4), state="closed")
            return ticket.replace(seen=True)

        assert store.query(Ticket.by_open()).update(see) == 5
        assert [ticket.number for ticket in store.query(Ticket) if not ticket.seen] == [4]
