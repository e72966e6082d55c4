"""Times in keys as people print them: they are one ordered time, and a query reads what it asks for, no row more."""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from ..touched import Touched


class Reading(tm.Entity, table="Telemetry"):
    device: tm.Field[str]
    at: tm.Field[datetime] = tm.field(precision="ms")
    value: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, datetime](partition="{device}-{at:%Y-%m-%d}", row="{at:%H:%M:%S.%LZ}")
    by_value = tm.Index[int, datetime](partition="{value}", row=("{at:%Y-%m-%d}", "{at:%H%M%S%L}"))


class PerDay(tm.Aggregate, of=Reading, table="PerDay"):
    device: tm.Field[str] = tm.group_by(Reading.device)
    day: tm.Field[date] = tm.group_by(Reading.at.date())
    readings: tm.Field[int] = tm.count()

    key = tm.Key[str, date](partition="{device}", row="{day}")


class Print(tm.Entity, table="Prints"):
    log: tm.Field[str]
    at: tm.Field[datetime] = tm.field(precision="ms")

    key = tm.Key[str, datetime](partition="{log}", row="{at:%Y%m%d%H%M%S%L}")


class Ticket(tm.Entity, table="Tickets"):
    at: tm.Field[datetime]
    number: tm.Field[int]

    key = tm.Key[datetime, int](partition="{at:%Y-%m-%d}", row="{number}")


class User(tm.Entity, table="Users"):
    name: tm.Field[str]

    key = tm.Key[str](partition="User", row="{name}")


START = datetime(2024, 2, 28, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MINUTES = 3 * 24 * 60


@pytest.fixture(scope="module")
def store(counting: Touched) -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Reading, PerDay, Print, Ticket, User]) as opened:
        moments = [START + timedelta(minutes=n, microseconds=1234) for n in range(MINUTES)]
        opened.insert_many(Reading(device, at, 7) for device in ("d", "d-2024") for at in moments)
        opened.insert_many(Print("p", at) for at in moments)
        opened.insert_many(Ticket(at, n) for n, at in enumerate(moments))
        opened.insert_many([User("ada"), User("bob")])
        yield opened


# ---------------------------------------------------------------------------------------------- precision


def test_a_time_is_cut_when_it_is_set() -> None:
    at = datetime(2024, 2, 28, 1, 2, 3, 456_789, UTC)
    reading = Reading("d", at)
    assert reading.at == at.replace(microsecond=456_000)
    reading.at = at + HOUR
    assert reading.at == at.replace(microsecond=456_000) + HOUR
    assert reading.key == Reading.key("d", at + HOUR)


def test_a_time_of_day_is_cut_too() -> None:
    members = {"at": (time, tm.field(precision="s"))}
    Alarm = entity("Alarm", "Alarms", members, tm.Key[time](partition="all", row="{at:%H:%M:%S}"))
    assert Alarm(time(7, 30, 1, 999_999)).at == time(7, 30, 1)


def test_two_moments_of_one_millisecond_are_one_key() -> None:
    with tm.open(":memory:", models=[Print]) as store:
        store.insert(Print("p", START + timedelta(microseconds=1)))
        with pytest.raises(tm.errors.EntityExists, match="the entity exists already; replace, merge or upsert it"):
            store.insert(Print("p", START + timedelta(microseconds=999)))


def test_equalities_cut_what_they_compare_with_and_orders_do_not(store: tm.Store) -> None:
    readings = store.query(Reading).where(Reading.device == "d")
    fine = START + timedelta(microseconds=1999)  # (what is there has 1000)
    assert readings.where(Reading.at == fine).count() == 1
    assert readings.where(Reading.at.is_in([fine, START])).count() == 1
    assert readings.where(Reading.at != fine).count() == MINUTES - 1
    assert readings.where(Reading.at < START + timedelta(microseconds=1001)).count() == 1
    assert readings.where(Reading.at >= START + timedelta(microseconds=1001), Reading.at < START + HOUR).count() == 59
    assert store[Reading.key("d", fine)].at == START + timedelta(microseconds=1000)


def test_a_key_that_holds_a_time_whole_is_its_only_place(store: tm.Store) -> None:
    assert {f.name for f in Reading.__declaration__.fields} - Reading.__declaration__.key_only == {"value"}  # type: ignore[attr-defined]
    assert store.check().ok


def test_what_has_no_precision_is_stored_beside_its_key() -> None:
    members = {"at": datetime}
    Plain = entity("Plain", "Plains", members, tm.Key[datetime](partition="{at:%Y-%m-%d}", row="{at:%H:%M:%S.%f}"))
    assert Plain.__declaration__.key_only == frozenset()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("annotation", "options", "row", "fault"),
    [
        (datetime, {"precision": "us"}, "{at:%Y-%m-%dT%H:%M:%S.%L}", 'precision="us" is finer than what the key holds'),
        (datetime, {"precision": "s"}, "{at:%Y-%m-%d}", 'precision="s" is finer than what the key holds'),
        (datetime, {"precision": "min"}, "{at}", 'expected "s", "ms" or "us"'),
        (date, {"precision": "s"}, "{at}", "precision='s' is for datetime and time, this is date"),
        (datetime, {"precision": 3}, "{at}", 'expected "s", "ms" or "us"'),
    ],
)
def test_a_precision_that_the_key_or_the_type_does_not_have_is_refused(
    annotation: Any, options: Any, row: str, fault: str
) -> None:
    with pytest.raises(tm.errors.InvalidModel, match=fault):
        entity("Bad", "Bad", {"at": (annotation, tm.field(**options))}, tm.Key(partition="all", row=row))


@pytest.mark.file
def test_another_precision_needs_a_migration(tmp_path: Any) -> None:
    def log(precision: Any) -> Any:
        at = (datetime, tm.field(precision=precision))
        return entity("Log", "Logs", {"n": int, "at": at}, tm.Key[int](partition="all", row="{n}"))

    first = log("ms")
    with tm.open(tmp_path / "t.db", models=[first]) as store:
        store.insert(first(1, START))
    tm.open(tmp_path / "t.db", models=[log("ms")]).close()
    with pytest.raises(tm.errors.SchemaMismatch, match="at"):
        tm.open(tmp_path / "t.db", models=[log("s")])


# ---------------------------------------------------------------------------------------------- one ordered time


@pytest.mark.file
def test_two_hours_read_two_hours_rows(store: tm.Store, counting: Touched) -> None:
    readings = store.query(Reading).where(Reading.device == "d")
    inside = readings.where(Reading.at >= START + DAY + 9 * HOUR, Reading.at < START + DAY + 11 * HOUR)
    assert counting(lambda: list(inside)) == {"Telemetry": 120}
    across = readings.where(Reading.at >= START + DAY - HOUR, Reading.at < START + DAY + HOUR)
    assert counting(lambda: list(across)) == {"Telemetry": 120}
    assert inside.explain().filter == across.explain().filter == ()
    prints = store.query(Print).where(Print.log == "p", Print.at >= START + HOUR, Print.at < START + 3 * HOUR)
    assert counting(lambda: list(prints)) == {"Prints": 120}


@pytest.mark.file
def test_the_newest_ten_read_ten(store: tm.Store, counting: Touched) -> None:
    prints = store.query(Print).where(Print.log == "p").order_by(Print.at.desc()).limit(10)
    assert counting(lambda: list(prints)) == {"Prints": 10}
    newest = store.query(Reading).where(Reading.device == "d-2024").order_by(Reading.at.desc()).limit(10)
    assert counting(lambda: list(newest)) == {"Telemetry": 11}  # (one finds the partition)
    assert newest.explain().sort == ()
    last = START + timedelta(minutes=MINUTES - 1, milliseconds=1)
    assert [one.at for one in newest] == [last - n * timedelta(minutes=1) for n in range(10)]


class Sample(tm.Entity, table="Samples"):
    device: tm.Field[str]
    at: tm.Field[datetime] = tm.field(precision="ms")

    key = tm.Key[str, datetime](partition=("{device}", "{at:%Y-%m-%d}"), row="{at:%H:%M:%S.%LZ}")


@pytest.fixture(scope="module")
def samples(counting: Touched) -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Sample]) as opened:
        moments = [START + timedelta(minutes=n, milliseconds=1) for n in range(MINUTES)]
        opened.insert_many(Sample(device, at) for device in ("d", "d-2024") for at in moments)
        yield opened


LATE = START + DAY + 23 * HOUR
OSLO = timezone(timedelta(hours=1))


@pytest.mark.file
@pytest.mark.parametrize(
    ("condition", "rows", "ranges"),
    [
        (Sample.at >= LATE, 60 + 1440, 2),
        (Sample.at > LATE, 60 + 1440, 2),  # (each minute has a millisecond more)
        (Sample.at < LATE, 1440 + 23 * 60, 2),
        (Sample.at <= START + HOUR, 60, 2),
        (Sample.at >= START + DAY, 2880, 1),
        (Sample.at < START + DAY, 1440, 1),
        (Sample.at >= (START + DAY - HOUR).astimezone(OSLO), 60 + 2880, 2),
        (Sample.at > START + 9 * DAY, 0, 2),
        (Sample.at >= datetime(1601, 1, 1, tzinfo=UTC), MINUTES, 1),
        (Sample.at <= datetime.max.replace(tzinfo=UTC), MINUTES, 2),
        ((Sample.at >= LATE) & (Sample.at < LATE + 5000 * DAY), 60 + 1440, 3),
        (Sample.at.truncate("%Y-%m-%dT%H") >= "2024-02-29T23", 60 + 1440, 2),
        (Sample.at.date() > date(2024, 2, 28), 2880, 1),
    ],
    ids=str,
)
def test_a_time_compared_from_one_side_reads_what_it_has_of_its_own_day_and_all_of_the_others(
    samples: tm.Store, counting: Touched, condition: Any, rows: int, ranges: int
) -> None:
    query = samples.query(Sample).where(Sample.device == "d", condition)
    assert counting(lambda: list(query)) == ({"Samples": rows} if rows else {})
    assert query.count() == rows
    assert query.explain().filter == ()
    assert len(query.explain().ranges) == ranges
    newest = query.order_by(Sample.at.desc()).limit(10)
    assert newest.explain().sort == ()
    assert sum(counting(lambda: list(newest)).values()) == min(10, rows)


@pytest.mark.file
def test_days_that_a_row_does_not_go_on_in_are_filtered(store: tm.Store, counting: Touched) -> None:
    tickets = store.query(Ticket).where(Ticket.at >= LATE)
    assert counting(lambda: list(tickets)) == {"Tickets": 2880}
    assert len(list(tickets)) == 60 + 1440


class Shift(tm.Entity, table="Shifts"):
    site: tm.Field[str]
    team: tm.Field[int]
    at: tm.Field[datetime] = tm.field(precision="s")

    key = tm.Key[str, datetime, int](partition="{site}-{at:%Y-%m}", row=("{at:%d}", "{at:%H%M%S}", "{team}"))
    by_team = tm.Index[int, datetime, str](partition="{team}-{at:%Y-%m-%d}", row=("{at:%H%M}", "{site}"))
    whole = tm.Index[datetime](partition="{at:%Y-%m-%d}", row="{at}")


@pytest.mark.needs("backward")
def test_times_compared_in_any_way_are_those_that_python_finds() -> None:
    rng = random.Random(7)
    moments = [START + timedelta(hours=rng.randrange(24 * 70), minutes=rng.choice((0, 0, 59))) for _ in range(300)]
    shifts = list({(one.site, one.at, one.team): one for one in (
        Shift(rng.choice("ab"), rng.randrange(2), at) for at in moments
    )}.values())  # fmt: skip
    with tm.open(":memory:", models=[Shift]) as store:
        store.insert_many(shifts)
        for _ in range(12):
            ends = [
                (op, rng.choice((rng.choice(moments), START + rng.randrange(70) * DAY)))
                for op in rng.choices((operator.lt, operator.le, operator.gt, operator.ge), k=rng.choice((1, 1, 2)))
            ]
            edges = [op(Shift.at, end) for op, end in ends]
            held = [one for one in shifts if all(op(one.at, end) for op, end in ends)]
            site, team = rng.choice("ab"), rng.randrange(2)
            for first, wanted in (
                ([Shift.site == site], [one for one in held if one.site == site]),
                ([Shift.site.is_in(["a", "b"])], held),
                ([Shift.team == team], [one for one in held if one.team == team]),
                ([], held),
            ):
                query = store.query(Shift).where(*first, *edges)
                assert sorted(one.at for one in query) == sorted(one.at for one in wanted)
                ordered = list(query.order_by(Shift.at.desc()))
                assert [one.at for one in ordered] == sorted((one.at for one in wanted), reverse=True)
                assert query.count() == len(wanted)
                assert [one.at for page in query.order_by(Shift.at).pages(7) for one in page.items] == sorted(
                    one.at for one in wanted
                )


def test_times_of_several_days_come_in_order_from_partitions_that_are_not_in_that_order(store: tm.Store) -> None:
    both = store.query(Reading).where(
        Reading.device.is_in(["d", "d-2024"]), Reading.at >= START, Reading.at < START + 2 * DAY
    )
    ordered = both.order_by(Reading.at)
    assert ordered.explain().sort == ()  # (the days of each device are merged)
    assert [one.at for one in ordered] == sorted(one.at for one in both)
    assert [one.at for one in ordered.limit(10)] == sorted(one.at for one in both)[:10]


@pytest.mark.needs("backward")
def test_a_key_cut_to_milliseconds_gives_the_order_without_a_precision() -> None:
    members = {"log": str, "at": datetime}
    Event = entity("Event", "Events", members, tm.Key[str, datetime](partition="{log}", row="{at:%Y%m%d%H%M%S%L}"))
    with tm.open(":memory:", models=[Event]) as store:
        store.insert_many(Event("x", START + timedelta(microseconds=1500 * n)) for n in range(5))
        newest = store.query(Event).where(Event.log == "x").order_by(Event.at.desc())
        assert newest.explain().sort == ()
        assert [one.at for one in newest] == [START + timedelta(microseconds=1500 * n) for n in range(4, -1, -1)]


# ---------------------------------------------------------------------------------------------- days, months


@pytest.mark.file
@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (Reading.at.date() == date(2024, 2, 29), 1440),
        (Reading.at.date().between(date(2024, 2, 28), date(2024, 2, 29)), 2880),
        (Reading.at.date().is_in([date(2024, 2, 28), date(2024, 3, 1), date(2024, 3, 9)]), 2880),
        (Reading.at.truncate("%Y-%m-%dT%H") == "2024-02-29T07", 60),
        (Reading.at.truncate("%Y-%m").between("2024-02", "2024-02"), 2880),
        (Reading.at.truncate("%Y-%m-%dT%H").is_in(["2024-02-29T07", "2024-02-29T09"]), 120),
        ((Reading.at >= START + DAY) & (Reading.at < START + 2 * DAY), 1440),
        (Reading.at.date() == date(2031, 1, 1), 0),
    ],
    ids=str,
)
def test_a_day_is_read_and_nothing_else(store: tm.Store, counting: Touched, condition: Any, rows: int) -> None:
    query = store.query(Reading).where(Reading.device == "d", condition)
    assert counting(lambda: list(query)) == ({"Telemetry": rows} if rows else {})
    assert query.count() == rows
    assert query.explain().filter == () or "is_in" in str(condition) or "in " in str(query.explain().filter)


@pytest.mark.file
def test_the_edge_of_a_bucket_leaves_the_next_one_out(store: tm.Store, counting: Touched) -> None:
    tickets = store.query(Ticket)
    for condition in ((Ticket.at >= START) & (Ticket.at < START + DAY), Ticket.at.date() == START.date()):
        assert counting(lambda condition=condition: list(tickets.where(condition))) == {"Tickets": 1440}
    assert tickets.where(Ticket.at.date() == START.date()).explain().filter == ()


@pytest.mark.file
def test_a_day_is_read_of_an_index(store: tm.Store, counting: Touched) -> None:
    query = store.query(Reading).where(Reading.value == 7, Reading.at.date() == date(2024, 2, 29))
    assert query.explain().path == "Reading.by_value"
    assert query.explain().filter == ()
    assert counting(lambda: list(query.select(Reading.at))) == {"TelemetryByValue": 2880}


@pytest.mark.file
def test_a_condition_on_days_is_answered_by_an_aggregate_of_days(store: tm.Store, counting: Touched) -> None:
    readings = store.query(Reading).where(Reading.device == "d")
    for condition in (
        Reading.at.truncate("%Y-%m") == "2024-02",
        Reading.at.date() <= date(2024, 2, 29),
        Reading.at.truncate("%Y-%m").is_in(["2024-02", "2024-01"]),
    ):
        assert counting(lambda condition=condition: readings.where(condition).count()) == {"PerDay": 2}
        assert readings.where(condition).count() == 2880
    assert readings.where(Reading.at.truncate("%Y-%m-%dT%H") <= "2024-02-29T07").count() == 1440 + 8 * 60


@pytest.mark.parametrize(
    "text", ["", "2024", "2024-1", "2024-02-3", "2024-13", "9999-12", "zzz", "0001-01", "2024-02x"]
)
@pytest.mark.parametrize("op", ["__lt__", "__le__", "__gt__", "__ge__", "__eq__"])
def test_any_text_can_be_compared_with_a_cut_time(store: tm.Store, text: str, op: str) -> None:
    query = store.query(Ticket).where(getattr(Ticket.at.truncate("%Y-%m"), op)(text)).allow_scan()
    months = {"2024-02": 2880, "2024-03": 1440}
    assert query.count() == sum(count for month, count in months.items() if getattr(month, op)(text))


# ---------------------------------------------------------------------------------------------- one partition


def test_a_partition_is_said_by_its_day(store: tm.Store) -> None:
    assert len(list(store.partition(Reading.device == "d", Reading.at.date() == date(2024, 2, 29)))) == 1440
    assert len(list(store.partition(Ticket.at.truncate("%Y-%m-%d") == "2024-02-29"))) == 1440
    assert len(list(store.partition(Ticket.at.truncate("%Y-%m-%dT%H") == "2024-02-29T07"))) == 1440


def test_a_constant_partition_is_said_by_its_class(store: tm.Store) -> None:
    assert list(store.partition(User)) == [User("ada"), User("bob")]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ([Ticket.at.truncate("%Y-%m") == "2024-02"], "does not fix {at:%Y-%m-%d}; compare Ticket.at itself"),
        ([Ticket.at.truncate("%H") == "07"], "is not a span of time; compare Ticket.at itself"),
        ([Ticket.at.truncate("%Y-%m-%d") == "2024-02-30"], "is not a span of time"),
        ([Ticket], "is made of at; nothing was given"),
        ([Reading, Reading.device == "d"], "is made of device, at; device was given"),
    ],
    ids=str,
)
def test_what_says_no_partition_is_refused(store: tm.Store, given: Any, fault: str) -> None:
    with pytest.raises(tm.errors.InvalidQuery) as refused:
        store.partition(*given)
    assert fault in str(refused.value)


@pytest.mark.needs("across_partitions")
def test_a_move_knows_the_time_of_a_key_in_pieces() -> None:
    with tm.open(":memory:", models=[Reading]) as store:
        reading = Reading("d", START, 3)
        store.insert(reading)
        store.move(reading, Reading.key("e", START + HOUR))
        assert (reading.device, reading.at, reading.value) == ("e", START + HOUR, 3)
