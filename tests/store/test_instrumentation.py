"""What a store that is observed tells of its calls."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.events import Observer
from tablemapper.expressions.foreign_names import FOREIGN_NAMES
from tablemapper.query.query import Query
from tablemapper.store.instrumentation import ObservedStore
from tablemapper.store.store import Store
from tablemapper.verbs.bulk_verbs import BulkVerbs

from ..parts import MODELS, Note, Part


class Seen(list[tm.Event]):
    """The events so far; each time they are looked at, those since the last time."""

    def take(self) -> list[tuple[Any, ...]]:
        events = [(e.verb, e.model, e.path, e.returned, e.written, e.outcome) for e in self]
        self.clear()
        return events


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def store(seen: Seen) -> Iterator[tm.Store]:
    with tm.open(":memory:", models=MODELS, observe=seen.append) as store:
        yield store


def test_each_query_over_several_classes_has_a_shape_of_its_own(store: tm.Store, seen: Seen) -> None:
    for condition in (Note.text == "x", Note.text > "x", Note.text == "y"):
        list(store.query(Part, Note).where(Part.box == "a", condition).allow_scan())
    list(store.query(Part, Note).where(Part.box == "a").allow_scan())
    shapes = [event.shape for event in seen]
    assert [str(shape).count("text") for shape in shapes] == [1, 1, 1, 0]
    assert len({*shapes}) == 3
    assert shapes[0] == shapes[2]


def test_each_verb_is_an_event(store: tm.Store, seen: Seen) -> None:
    part = Part("a", 1)
    store.insert(part)
    part.weight = 2
    store.replace(part)
    store.merge(part.key, weight=3)
    assert store.get(part.key) is not None
    assert store.get(Part.key("a", 2)) is None
    assert store[part.key].weight == 3
    assert store.exists(part.key)
    store.get_many(iter([part.key, Part.key("a", 2)]))
    store.upsert(Part("a", 3))
    store.update(part.key, lambda p: p.replace(weight=4))
    store.update(part.key, lambda p: None)
    store.move(store[part.key], Part.key("a", 9))
    store.delete(Part.key("a", 9))
    assert seen.take() == [
        ("insert", "Part", "Part.key", 0, 1, "ok"), ("replace", "Part", "Part.key", 0, 1, "ok"),
        ("merge", "Part", "Part.key", 0, 1, "ok"), ("get", "Part", "Part.key", 1, 0, "ok"),
        ("get", "Part", "Part.key", 0, 0, "ok"), ("get", "Part", "Part.key", 1, 0, "ok"),
        ("exists", "Part", "Part.key", 1, 0, "ok"), ("get_many", "Part", None, 1, 0, "ok"),
        ("upsert", "Part", "Part.key", 0, 1, "ok"), ("update", "Part", "Part.key", 1, 1, "ok"),
        ("update", "Part", "Part.key", 1, 0, "ok"), ("get", "Part", "Part.key", 1, 0, "ok"),
        ("move", "Part", "Part.key", 0, 1, "ok"), ("delete", "Part", "Part.key", 0, 1, "ok"),
    ]  # fmt: skip


@pytest.mark.needs("all_or_none_load")
def test_an_error_is_the_outcome_and_still_raised(store: tm.Store, seen: Seen) -> None:
    store.insert(Part("a", 1))
    seen.clear()
    with pytest.raises(tm.EntityExists):
        store.insert(Part("a", 1))
    with pytest.raises(tm.EntityNotFound):
        store[Part.key("b", 1)]
    with pytest.raises(tm.InvalidEntity):
        store.get("a")  # type: ignore[arg-type]
    with pytest.raises(tm.ScanRefused):
        list(store.query(Part).where(Part.weight == 1))
    with pytest.raises(tm.EntityExists):
        store.insert_many([Part("z", 1), Part("a", 1)], atomic=True)
    assert seen.take() == [
        ("insert", "Part", "Part.key", 0, 0, "EntityExists"),
        ("get", "Part", "Part.key", 0, 0, "EntityNotFound"),
        ("get", None, None, 0, 0, "InvalidEntity"),
        ("query", "Part", None, 0, 0, "ScanRefused"),
        ("insert_many", "Part", None, 0, 0, "EntityExists"),
    ]


def test_many_at_once_are_one_event(store: tm.Store, seen: Seen) -> None:
    store.insert_many([Part("a", 1), Part("a", 2), Note("a")])
    store.upsert_many(iter([Part("a", 3)]))
    store.delete_many([Part.key("a", 1)])
    store.delete_many(store.query(Part).where(Part.box == "a"))
    assert seen.take() == [
        ("insert_many", "Part, Note", None, 0, 3, "ok"),
        ("upsert_many", "Part", None, 0, 1, "ok"),
        ("delete_many", "Part", None, 0, 1, "ok"),
        ("query", "Part", "Part.key", 2, 0, "ok"),
        ("delete_many", "Part", None, 0, 2, "ok"),
    ]


def test_an_error_in_a_stream_says_how_many_were_written(store: tm.Store, seen: Seen) -> None:
    def parts() -> Iterator[Part]:
        yield Part("a", 1)
        yield Part("a", 2, weight="x")  # type: ignore[arg-type]

    with pytest.raises(tm.InvalidEntity) as raised:
        store.insert_many(parts())
    assert seen.take() == [("insert_many", "Part", None, 0, raised.value.written or 0, "InvalidEntity")]  # type: ignore[attr-defined]


@pytest.mark.needs("sorts")
def test_a_query_is_an_event_with_its_path(store: tm.Store, seen: Seen) -> None:
    store.insert_many([Part("a", n, "blue" if n % 2 else "red", n) for n in range(10)])
    seen.clear()
    blue = store.query(Part).where(Part.color == "blue")
    in_a = store.query(Part).where(Part.box == "a")
    assert len(list(blue)) == 5
    assert blue.first() is not None
    assert blue.exists()
    assert blue.count() == 5
    assert in_a.count() == 10
    assert in_a.sum(Part.weight) == 45
    assert in_a.max(Part.weight) == 9
    assert in_a.group_by(Part.color).count() == {"blue": 5, "red": 5}
    assert len(blue.page(2).items) == 2
    assert [len(page.items) for page in blue.pages(3)] == [3, 2]
    assert list(blue.select(Part.weight).limit(1)) == [(1,)]
    assert blue.limit(1).one().number == 1
    assert len(list(store.query(Part.by_color("red")))) == 5
    assert len(list(store.query(Part).allow_scan())) == 10
    assert blue.update(weight=0) == 5
    assert blue.delete() == 5
    assert seen.take() == [
        ("query", "Part", "Part.by_color", 5, 0, "ok"), ("query.first", "Part", "Part.by_color", 1, 0, "ok"),
        ("query.exists", "Part", "Part.by_color", 1, 0, "ok"), ("query.count", "Part", "Colors.key", 1, 0, "ok"),
        ("query.count", "Part", "Part.key", 10, 0, "ok"), ("query.sum", "Part", "Part.key", 10, 0, "ok"),
        ("query.max", "Part", "Part.key", 1, 0, "ok"), ("query.count", "Part", "Part.key", 10, 0, "ok"),
        ("query.page", "Part", "Part.by_color", 2, 0, "ok"), ("query.page", "Part", "Part.by_color", 3, 0, "ok"),
        ("query.page", "Part", "Part.by_color", 2, 0, "ok"), ("query", "Part", "Part.by_color", 1, 0, "ok"),
        ("query.one", "Part", "Part.by_color", 1, 0, "ok"), ("query", "Part", "Part.by_color", 5, 0, "ok"),
        ("query", "Part", "scan", 10, 0, "ok"), ("query.update", "Part", "Part.by_color", 5, 5, "ok"),
        ("query.delete", "Part", "Part.by_color", 5, 5, "ok"),
    ]  # fmt: skip


def test_reads_and_writes_of_columns_are_events(store: tm.Store, seen: Seen) -> None:
    assert store.insert_columns(Part, {"box": ["a"] * 3, "number": [1, 2, 3]}) == 3
    in_a = store.query(Part).where(Part.box == "a")
    assert in_a.select(Part.number).columns() == {"number": [1, 2, 3]}
    assert next(iter(in_a.limit(0).columns().values())) == []
    with pytest.raises(tm.InvalidEntity):
        store.insert_columns(Part, {})
    assert seen.take() == [
        ("insert_columns", "Part", None, 0, 3, "ok"),
        ("query.columns", "Part", "Part.key", 3, 0, "ok"),
        ("query.columns", "Part", "Part.key", 0, 0, "ok"),
        ("insert_columns", "Part", None, 0, 0, "InvalidEntity"),
    ]
    pytest.importorskip("pyarrow")
    assert in_a.to_arrow().num_rows == 3
    assert [batch.num_rows for batch in in_a.arrow_batches(2)] == [2, 1]
    assert seen.take() == [
        ("query.to_arrow", "Part", "Part.key", 3, 0, "ok"),
        ("query.arrow_batches", "Part", "Part.key", 3, 0, "ok"),
    ]


@pytest.mark.needs("backward")
def test_several_classes_and_whole_partitions_are_events(store: tm.Store, seen: Seen) -> None:
    store.insert_many([Part("a", 1), Note("a")])
    seen.clear()
    assert len(list(store.query(Part, Note).where((Part.box == "a") | (Note.box == "a")).backwards())) == 2
    assert len(list(store.partition(Part.box == "a"))) == 2
    assert seen.take() == [
        ("query", "Part, Note", "Part.key, Note.key", 2, 0, "ok"),
        ("partition", "Part", "partition", 2, 0, "ok"),
    ]


def test_a_transaction_is_one_event(store: tm.Store, seen: Seen) -> None:
    with store.transaction() as tx:
        assert tx.get(Part.key("a", 1)) is None
        tx.insert(Part("a", 1))
        tx.insert(Note("a"))
        assert tx[Note.key("a")].text == ""
    with store.transaction():
        pass
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:
        tx.insert(Part("a", 2))
        raise ZeroDivisionError
    with pytest.raises(tm.EntityExists), store.transaction() as tx:
        tx.insert(Part("a", 1))
    with pytest.raises(tm.InvalidTransaction), store.transaction() as tx:
        tx[Part.key("a", 1)].weight = 9
    assert seen.take() == [
        ("transaction", "Part, Note", None, 1, 2, "ok"),
        ("transaction", None, None, 0, 0, "ok"),
        ("transaction", None, None, 0, 0, "ZeroDivisionError"),
        ("transaction", "Part", None, 0, 0, "EntityExists"),
        ("transaction", None, None, 1, 0, "InvalidTransaction"),
    ]


def test_what_a_users_function_calls_is_an_event_of_its_own(store: tm.Store, seen: Seen) -> None:
    store.insert_many([Part("a", 1), Part("a", 2, weight=7)])
    seen.clear()
    store.update(Part.key("a", 1), lambda p: p.replace(weight=store[Part.key("a", 2)].weight))
    assert [event.verb for event in seen] == ["get", "update"]


def test_seconds_are_those_in_the_store_not_in_the_body_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    events: list[tm.Event] = []
    observer = Observer(events.append, clock=lambda: now)
    call = observer.call("query")

    def items() -> Iterator[int]:
        nonlocal now
        for number in range(3):
            now += 1
            yield number

    for _ in call.iterate(items):
        now += 100
    assert [(event.returned, event.seconds) for event in events] == [(3, 3.0)]


def test_a_loop_that_is_left_is_an_event(store: tm.Store, seen: Seen) -> None:
    store.insert_many([Part("a", n) for n in range(10)])
    seen.clear()
    for _ in store.query(Part).where(Part.box == "a"):
        break
    assert seen.take() == [("query", "Part", "Part.key", 1, 0, "ok")]


def test_a_function_that_raises_changes_no_outcome(caplog: pytest.LogCaptureFixture) -> None:
    with tm.open(":memory:", models=MODELS, observe=lambda event: 1 / 0) as store:
        store.insert(Part("a", 1))
        assert store.exists(Part.key("a", 1))
    assert "raised an error for insert Part by Part.key: read 0, written 1" in caplog.text


def test_calls_are_logged_at_debug_and_slow_ones_as_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "tablemapper.operations"):
        with tm.open(":memory:", models=MODELS) as store:
            store.insert(Part("a", 1))
        with tm.open(":memory:", models=MODELS, slow=0) as store:
            store.insert(Part("a", 1))
        with tm.open(":memory:", models=MODELS, slow=3600) as store:
            store.insert(Part("a", 1))
    assert [record.levelname for record in caplog.records] == ["DEBUG", "WARNING", "DEBUG"]
    assert {record.name for record in caplog.records} == {"tablemapper.operations"}
    assert caplog.messages[0].startswith("insert Part by Part.key: read 0, written 1, 0.")


def test_an_event_holds_no_values(store: tm.Store, seen: Seen) -> None:
    store.insert(Part("secret", 12345))
    list(store.query(Part).where(Part.box == "secret"))
    assert "secret" not in repr(seen)
    assert "12345" not in repr(seen)


def test_a_store_that_nobody_observes_has_the_plain_verbs() -> None:
    with tm.open(":memory:", models=MODELS) as store:
        assert type(store) is Store
        assert type(store.query(Part)) is Query


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observe": 3}, "observe=3: expected a function"),
        ({"slow": -1}, "slow=-1: expected a number of seconds, 0 or more"),
        ({"slow": True}, "slow=True: expected a number of seconds, 0 or more"),
        ({"slow": float("nan")}, "slow=nan: expected a number of seconds, 0 or more"),
    ],
)
def test_what_cannot_observe_is_refused_before_a_file_is_made(
    options: dict[str, Any], message: str, tmp_path: Any
) -> None:
    for opening in (tm.open, tm.open_async):
        with pytest.raises((TypeError, ValueError), match=f"^{message}"):
            opening(tmp_path / "x.db", models=MODELS, **options)
    assert list(tmp_path.iterdir()) == []


async def test_the_calls_of_an_async_store_are_events(seen: Seen) -> None:
    async def some() -> AsyncIterator[Part]:
        for number in (5, 6):
            yield Part("a", number)

    async with tm.open_async(":memory:", models=MODELS, observe=seen.append) as store:
        await store.insert(Part("a", 1))
        await store[Part.key("a", 1)]
        async with store.transaction() as tx:
            assert await tx.get(Part.key("a", 1)) is not None
            tx.insert(Part("a", 2))
        async with store.transaction():
            pass
        assert len([part async for part in store.query(Part).where(Part.box == "a")]) == 2
        assert await store.query(Part).where(Part.box == "a").count() == 2
        assert await store.query(Part).where(Part.box == "a").group_by(Part.color).count() == {"red": 2}
        await store.upsert_many([Part("a", 4)])
        await store.insert_many(some())
        await store.delete_many(store.query(Part).where(Part.box == "a"))
    assert seen.take() == [
        ("insert", "Part", "Part.key", 0, 1, "ok"), ("get", "Part", "Part.key", 1, 0, "ok"),
        ("transaction", "Part", None, 1, 1, "ok"), ("transaction", None, None, 0, 0, "ok"),
        ("query", "Part", "Part.key", 2, 0, "ok"), ("query.count", "Part", "Part.key", 2, 0, "ok"),
        ("query.count", "Part", "Part.key", 2, 0, "ok"), ("upsert_many", "Part", None, 0, 1, "ok"),
        ("insert_many", "Part", None, 0, 2, "ok"), ("query", "Part", "Part.key", 5, 0, "ok"),
        ("delete_many", "Part", None, 0, 5, "ok"),
    ]  # fmt: skip


def test_every_verb_that_is_awaited_or_called_is_reported() -> None:
    silent = {"classes", "close", "query", "run", "transaction", "uncompiled"} | FOREIGN_NAMES["store"].keys()
    verbs = {name for name in vars(Store) | vars(BulkVerbs) if not name.startswith("_")} - silent
    assert verbs <= vars(ObservedStore).keys()
