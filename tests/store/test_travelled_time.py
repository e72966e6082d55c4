"""Stores while a test has frozen the time, or travels in it.

freezegun puts classes of its own in place of datetime and date, in all modules; time_machine changes what the clock says.
"""

# ruff: noqa: DTZ011  (the day of a frozen time is one of its own class)

from __future__ import annotations

import ast
import copy
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.uuids import Uuid7Generator, uuids_from

from ..classes import aggregate
from ..parsed import parsed

freezegun = pytest.importorskip("freezegun")
time_machine = pytest.importorskip("time_machine")

pytestmark = pytest.mark.one_python

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@attrs.define
class Visit:
    at: datetime
    on: date


class Session(tm.Entity, table="Sessions"):
    user: tm.Field[str]
    created: tm.Field[datetime] = tm.field(factory=lambda: datetime.now(UTC))
    seen: tm.Field[datetime] = tm.field(factory=lambda: datetime.now(UTC))
    day: tm.Field[date] = tm.field(factory=lambda: datetime.now(UTC).date())
    until: tm.Field[date | None] = tm.field(default=None)
    visits: tm.Field[list[datetime]] = tm.field(factory=list)
    last: tm.Field[Visit | None] = tm.field(default=None)
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, datetime](partition="{user}", row="{created}")
    by_day = tm.Index[date, datetime](partition="{day}", row="{seen:desc}")
    by_month = tm.Index[datetime](partition="{seen:%Y-%m}")


class Daily(tm.Aggregate, of=Session, table="Daily"):
    day: tm.Field[date] = tm.group_by(Session.created.date())
    sessions: tm.Field[int] = tm.count()
    first: tm.Field[datetime | None] = tm.min(Session.created)

    key = tm.Key[date](partition="{day}")


class Local(tm.Aggregate, of=Session, table="LocalDays"):
    day: tm.Field[date] = tm.group_by(Session.created.date("Europe/Oslo"))
    month: tm.Field[str] = tm.group_by(Session.created.truncate("%Y-%m"))
    quarter: tm.Field[datetime] = tm.group_by(Session.created.floor(timedelta(minutes=15)))
    sessions: tm.Field[int] = tm.count()

    key = tm.Key[date, str, datetime](partition="{day}", row=("{month}", "{quarter}"))


MODELS: list[type[tm.Record]] = [Session, Daily, Local]


@pytest.fixture(params=["before", "within"])
def store(request: pytest.FixtureRequest) -> Iterator[tm.Store]:
    """A store that was opened before the time was frozen, or after it."""
    if request.param == "within":
        with freezegun.freeze_time(NOON), tm.open(":memory:", models=MODELS) as store:
            yield store
    else:
        with tm.open(":memory:", models=MODELS) as store, freezegun.freeze_time(NOON):
            yield store
    assert type(NOON) is datetime


def test_a_field_holds_the_frozen_time(store: tm.Store) -> None:
    session = Session("a")
    assert (session.created, session.day) == (NOON, NOON.date())
    store.insert(session)
    assert store[Session.key("a", NOON)] == session
    assert store[session.key] == session
    for value in (session.created, session.day, store[session.key].created, store[session.key].day):
        assert type(value).__module__ == "datetime"


def test_frozen_times_are_written_in_every_way(store: tm.Store) -> None:
    now: Any = datetime.now(UTC)
    store.insert_many(Session("a", now + n * DAY, now) for n in range(30))
    store.upsert(Session("b", now, until=date.today(), visits=[now], last=Visit(now, date.today())))
    store.merge(Session.key("b", now), seen=now + DAY, until=date.today() + DAY)
    store.merge(Session.key("b", now), Session.seen.set(now))
    store.update(Session.key("b", now), lambda one: one.replace(more=tm.Extra(at=now)))
    of_a = store.query(Session).where(Session.user == "a")
    assert of_a.update(Session.seen.set(now + (Session.seen - Session.created))) == 30
    assert of_a.where(Session.seen == now).count() == 1
    with store.transaction() as tx:
        session = tx[Session.key("b", now)]
        session.seen = datetime.now(UTC)
        tx.replace(session)
        tx.insert(Session("b", now + DAY))
    store.insert_columns(Session, {"user": ["c"], "created": [now], "day": [date.today()], "seen": [now]})
    stored = store[Session.key("b", now)]
    assert (stored.until, stored.visits, stored.last) == ((NOON + DAY).date(), [NOON], Visit(NOON, NOON.date()))
    assert (stored.more, stored.seen) == (tm.Extra(at=NOON), NOON)
    assert store.check().ok


def test_frozen_times_are_asked_for_in_every_way(store: tm.Store) -> None:
    now: Any = datetime.now(UTC)
    store.insert_many(Session("a", now + n * DAY, now, until=date.today() + n * DAY) for n in range(40))
    of_a = store.query(Session).where(Session.user == "a")
    for condition, count in [
        (Session.created < now + DAY, 1),
        (Session.created == now, 1),
        (Session.created != now, 39),
        (Session.created.between(now, now + DAY), 2),
        (Session.created.is_in([now, now + DAY]), 2),
        (Session.seen <= datetime.now(UTC), 40),
        (Session.created.date() == date.today(), 1),
        (Session.created.date("Europe/Oslo") == date.today(), 1),
        (Session.created.truncate("%Y-%m") == "2026-03", 31),
        (Session.created.floor(timedelta(hours=1)) == now, 1),
        (Session.until > date.today(), 39),
        (Session.more["at"] == now, 0),
        (Session.created > now, 39),
    ]:
        assert of_a.where(condition).count() == len(list(of_a.where(condition))) == count, condition
    assert len(list(store.query(Session.by_day(date.today())))) == 40
    assert len(list(store.query(Session.by_month(now)))) == 40
    by_day = store.query(Session).where(Session.day == date.today(), Session.seen >= now)
    assert (len(list(by_day)), by_day.explain().path) == (40, "Session.by_day")
    page = of_a.order_by(Session.created).page(10)
    assert len(of_a.order_by(Session.created).page(30, page.token).items) == 30
    assert store.query(Session).where(Session.created < now + DAY).allow_scan().delete() == 1


@pytest.mark.needs("fresh")
def test_totals_of_days_are_of_frozen_ones(store: tm.Store) -> None:
    now: Any = datetime.now(UTC)
    store.insert_many(Session(user, now + n * DAY) for n in range(3) for user in "ab")
    assert store[Daily.key(date.today())].sessions == 2
    assert store[Daily.key(date.today())].first == NOON
    assert store[Local.key(date.today(), "2026-03", now)].sessions == 2
    assert store.query(Daily).where(Daily.day >= date.today()).allow_scan().sum(Daily.sessions) == 6
    assert store.query(Session).where(Session.created.date() == date.today()).count() == 2
    store.delete(Session.key("a", now))
    assert store[Daily.key(date.today())].sessions == 1
    assert store.check().ok


def test_what_was_written_in_frozen_time_is_read_after_it_and_the_other_way_round(path: Path) -> None:
    with tm.open(path, models=MODELS) as store:
        store.insert(Session("a", NOON - DAY, day=NOON.date()))
        with freezegun.freeze_time(NOON) as frozen:
            store.insert(Session("a"))
            frozen.tick(DAY)
            with tm.open(path, models=MODELS) as other:
                other.insert(frozen_one := Session("a"))
                assert other.query(Session).where(Session.created < datetime.now(UTC)).allow_scan().count() == 2
        assert frozen_one.created == NOON + DAY
        assert [one.created for one in store.query(Session).where(Session.user == "a")] == [
            NOON - DAY,
            NOON,
            NOON + DAY,
        ]
        assert store.check().ok


def test_an_entity_of_frozen_times_is_copied_and_becomes_json(store: tm.Store) -> None:
    now: Any = datetime.now(UTC)
    session = Session("a", now, now, visits=[now], last=Visit(now, date.today()), more=tm.Extra(at=now))
    session.until = date.today()
    for again in (copy.copy(session), copy.deepcopy(session), pickle.loads(pickle.dumps(session)), session.replace()):
        assert again == session
        store.upsert(again)
    assert tm.from_json(Session, tm.to_json(session)) == session
    assert tm.from_dict(Session, tm.to_dict(session)) == session


def test_a_class_may_be_declared_while_the_time_is_frozen() -> None:
    with freezegun.freeze_time(NOON):

        class Event(tm.Entity, table="Events"):
            at: tm.Field[datetime] = tm.field(factory=lambda: datetime.now(UTC))
            on: tm.Field[date | None] = tm.field(default=None)
            times: tm.Field[list[datetime]] = tm.field(factory=list)
            by_name: tm.Field[dict[str, date]] = tm.field(factory=dict)
            key = tm.Key[datetime](partition="{at}")

        members = {"day": (date, tm.group_by(Event.at.date())), "events": (int, tm.count())}
        Days = aggregate("Days", Event, members, tm.Key[date](partition="{day}"), "EventDays")
        with tm.open(":memory:", models=[Event, Days]) as store:
            event = Event(on=date.today(), times=[datetime.now(UTC)], by_name={"x": date.today()})
            store.insert(event)
            assert store[Event.key(datetime.now(UTC))] == event
            assert store[Days.key(date.today())].events == 1
    with tm.open(":memory:", models=[Event, Days]) as store:
        store.insert(event := Event(times=[NOON], by_name={"x": NOON.date()}))
        assert store[event.key] == event


def test_the_library_may_be_imported_while_the_time_is_frozen() -> None:
    program = """
import freezegun
with freezegun.freeze_time("2026-03-01"):
    import tablemapper as tm
from datetime import UTC, date, datetime
class Event(tm.Entity, table="Events"):
    at: tm.Field[datetime]
    on: tm.Field[date]
    key = tm.Key[datetime](partition="{at}")
with tm.open(":memory:", models=[Event]) as store:
    store.insert(event := Event(datetime.now(UTC), date.today()))
    assert store[event.key] == event and type(event.at) is datetime and type(event.on) is date
"""
    subprocess.run([sys.executable, "-c", program], check=True)


async def _insert_and_read() -> None:
    async with tm.open_async(":memory:", models=MODELS) as store:
        await store.insert_many(Session("a", datetime.now(UTC) + n * DAY) for n in range(5))
        query = store.query(Session).where(Session.user == "a", Session.created > datetime.now(UTC))
        assert len([one async for one in query]) == 4


def test_asyncio_goes_on_in_frozen_time() -> None:
    import asyncio

    with freezegun.freeze_time(NOON, real_asyncio=True):
        asyncio.run(_insert_and_read())


@pytest.mark.needs("own_time")
def test_a_timestamp_is_of_the_frozen_time() -> None:
    with freezegun.freeze_time(NOON) as frozen, tm.open(":memory:", models=MODELS) as store:
        store.insert(session := Session("a"))
        assert abs(tm.info(session).timestamp - NOON) < timedelta(seconds=1)
        frozen.tick(DAY)
        store.replace(session)
        assert abs(tm.info(session).timestamp - (NOON + DAY)) < timedelta(seconds=1)


def test_a_uuid_is_of_the_frozen_time() -> None:
    with uuids_from(Uuid7Generator()), freezegun.freeze_time(NOON):
        assert tm.uuid7().int >> 80 == NOON.timestamp() * 1000


@pytest.mark.parametrize("travel", [freezegun.freeze_time, lambda to: time_machine.travel(to, tick=False)])
def test_timestamps_of_an_open_store_do_not_travel_back(travel: Any) -> None:
    with tm.open(":memory:", models=MODELS) as store:
        store.insert(first := Session("a", NOON))
        before = tm.info(first).timestamp
        with travel(NOON):
            store.insert(second := Session("b"))
            assert second.created == NOON
            assert before < tm.info(second).timestamp < before + timedelta(seconds=1)


def test_a_store_travels_with_time_machine() -> None:
    with time_machine.travel(NOON, tick=False), tm.open(":memory:", models=MODELS) as store:
        store.insert(session := Session("a"))
        assert session.created == NOON
        assert store.query(Session).where(Session.created <= datetime.now(UTC)).allow_scan().count() == 1
        assert store[Daily.key(datetime.now(UTC).date())].sessions == 1


def test_no_module_uses_a_class_of_times_that_a_test_can_replace() -> None:
    """Annotations and isinstance may: a class that stands in for another one answers for it there."""
    package = Path(tm.__file__).parent
    for path in package.rglob("*.py"):
        if path.name == "builtin.py" or not re.search(r"\b(date|datetime)\b", path.read_text()):
            continue
        tree = parsed(path)
        names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
        if not {"date", "datetime"}.isdisjoint(names):
            used = [
                node.lineno
                for node in _evaluated(tree)
                if isinstance(node, ast.Name) and node.id in ("date", "datetime") and isinstance(node.ctx, ast.Load)
            ]
            assert not used, f"{path}: lines {used}"


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a program that are run, without what only names types."""
    yield node
    for name, value in ast.iter_fields(node):
        of_types = name in ("annotation", "returns") or (name == "cls" and isinstance(node, ast.MatchClass))
        if isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.dump(node.annotation):
            of_types = True
        for part in value if isinstance(value, list) else [value]:
            second = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
            if isinstance(part, ast.AST) and not of_types and not (second and part is node.args[1]):
                yield from _evaluated(part)
