"""What is maintained in other partitions, as it ships, step by step in an order that is drawn: with kills, lost answers,
late requests, and those who sweep meanwhile."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import math
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.aio.store import AsyncStore
from tablemapper.aio.workers import Workers
from tablemapper.engines.azure import housekeeping, recovery, repair
from tablemapper.engines.azure.check import held as check_held
from tablemapper.engines.azure.cross_partition import intent_builder, remote_groups, reservations, value_counts
from tablemapper.engines.azure.cross_partition.outbox import Deadline, Intent, Outbox, ReserveValue, Timing, intent_of
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables import wire
from tablemapper.engines.azure.tables.driver import Driver, Effects, Sleep, read
from tablemapper.engines.azure.tables.entity_json import holds, ops_member
from tablemapper.engines.azure.tables.reserved_names import (
    BASE_PARTITION,
    BASE_ROW,
    CLAIM,
    INTENTS,
    MARKS,
    NEXT_OP,
    OP,
    OP_UNITS,
    PAGES,
    STATE,
)
from tablemapper.engines.azure.tables.service import (
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    Request,
    RowChange,
)
from tablemapper.engines.azure.writing import batch_writes, writes
from tablemapper.engines.azure.writing.late_writes import write_in_time
from tablemapper.engines.protocol import Operation
from tablemapper.schema.model import compile_schema
from tablemapper.verbs.operations import Operations

from ...classes import grouped
from ...stores import repaired
from .memory import Memory, Options
from .place import AzurePlace, Idle
from .schedule import Rates, Schedule, played, sweep_all

RATES = Rates(crash=0.006, lost=0.03, late=0.02, busy=0.02, stopped=0.02, cut=0.02)
TIMES = Timing(deadline=1.5, lease=3.0, grace=30.0)
Patch = pytest.MonkeyPatch
SCORES = (0.1, 1e16, -3.5, 2.0)


class User(tm.Entity, table="Users"):
    """Everything that an index can be: unique, with properties, partial, of lists, folded, in the partition."""

    tenant: tm.Field[str]
    id: tm.Field[int]
    name: tm.Field[str]
    team: tm.Field[str]
    email: tm.Field[str | None] = tm.field(default=None)
    nick: tm.Field[str | None] = tm.field(default=None)
    score: tm.Field[float] = tm.field(default=0.0)
    price: tm.Field[Decimal | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    words: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{tenant}", row=("user", "{id}"))
    by_email = tm.Index[str](partition="{email}", row="holder", unique=True, include=("score",))
    by_word = tm.Index[str](partition="{words}", row="w", unique=True)
    by_nick = tm.Index[str, str](partition="{tenant}", row="{nick}", unique=True)
    by_team = tm.Index[str, float](partition="{team:fold}", row="{score}", include=("price",))
    by_tag = tm.Index[str, int](partition="{tags}", row="{id}", include=("score",))
    by_high = tm.Index[float](partition="high", row="{score}", where=lambda u: u.score > 1.0)


class Team(tm.Aggregate, of=User, table="Teams"):
    team: tm.Field[str] = tm.group_by(User.team)
    users: tm.Field[int] = tm.count()
    total: tm.Field[float] = tm.sum(User.score)
    mean: tm.Field[float | None] = tm.avg(User.score)
    least: tm.Field[float | None] = tm.min(User.score)
    most: tm.Field[float | None] = tm.max(User.score)
    priced: tm.Field[int] = tm.count(User.price)
    price: tm.Field[Decimal | None] = tm.sum(User.price)
    high: tm.Field[int] = tm.count(where=User.score > 1.0)

    key = tm.Key[str](partition="{team}", row="team")
    by_most = tm.Index[str, float](partition="{team}", row="{most}", include=("users",))
    by_users = tm.Index[int](partition="teams", row="{users}", include=("most",))


Best = grouped("Best", User, "team", "Teams", row="ever", ever=(float | None, tm.max_ever(User.score)))


class Tagged(tm.Aggregate, of=User, table="Tagged", where=lambda u: u.score < 1e9):
    tag: tm.Field[str] = tm.group_by(User.tags.each())
    users: tm.Field[int] = tm.count()
    last: tm.Field[str | None] = tm.max(User.name)

    key = tm.Key[str](partition="all", row="{tag}")
    by_users = tm.Index[int](partition="all", row="{users}")


class Tenant(tm.Aggregate, of=User, table="Users"):
    tenant: tm.Field[str] = tm.group_by(User.tenant)
    users: tm.Field[int] = tm.count()
    least: tm.Field[float | None] = tm.min(User.score)

    key = tm.Key[str](partition="{tenant}", row="total")
    by_users = tm.Index[int](partition="{users}", include=("users",))


MODELS = [User, Team, Best, Tagged, Tenant]
SCHEMA = compile_schema(MODELS)


class History(Memory):
    """A service that keeps every name that an entity ever had, and looks after each change whether values are unique."""

    def __init__(self, seed: int) -> None:
        self.now = 1_700_000_000.0
        self.schedule: Schedule | None = None
        super().__init__(Options(vague=seed % 2 == 0), clock=self._time)
        self.names: list[str] = []
        self.broken: str | None = None

    def seconds(self) -> float:
        return self.now + (0.0 if self.schedule is None else self.schedule.now)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def _time(self) -> int:
        return int(self.seconds() * 1e6)

    def send(self, request: Request, *wait: float) -> Any:
        answer = super().send(request)
        if isinstance(request, GroupTransaction):
            if request.table == "Users":
                self.names += [change.members["name"] for change in request.changes if "name" in change.members]
            if self.broken is None:
                self.broken = self._fault()
        return answer

    def _fault(self) -> str | None:
        """Return what is wrong with unique values at this moment."""
        for index, property, row in (("by_email", "email", "holder"), ("by_word", "words", "w")):
            live: dict[str, tuple[str, str]] = {}
            for key, stored in self.tables.get("Users", {}).items():
                if property not in stored.typed or not key[1].startswith("user"):
                    continue
                text = stored.typed[property][1]
                members = {name: value for name, (_, value) in stored.typed.items()}
                for value in [text] if property == "email" else json.loads(text):
                    if value in live:
                        return f"{value} is live twice: {live[value]}, {key}"
                    live[value] = key
                    held = self.tables[f"UsersBy{property[:-1].title() if property == 'words' else 'Email'}"].get(
                        (value, row)
                    )
                    ops = [] if held is None else [held.typed[name][1] for name in (OP, NEXT_OP) if name in held.typed]
                    if not any(holds(members, index, op) for op in ops):
                        return f"{value} of {key} is not reserved"
        return None


@attrs.define(eq=False)
class Told:
    """What the caller of a write was told, of the names that it gives."""

    names: list[str]
    outcome: str = "?"
    error: BaseException | None = None


def sweeper(engine: AzureEngine, rng: random.Random, times: Timing) -> Effects[None]:
    """Sweep some times."""
    for _ in range(3):
        yield Sleep(rng.random() * 40)
        yield from recovery.sweep(engine.current, Outbox("TableMapper", times), 60.0, full=rng.random() < 0.3)


def tidier(engine: AzureEngine, box: Outbox, rng: random.Random) -> Effects[None]:
    """Do what a process does behind its writes, some times."""
    for _ in range(5):
        yield Sleep(rng.random() * 10)
        yield from housekeeping.tidy(engine.current, box, 60.0)


class Play:
    """Some processes that write the same entities, and some that sweep."""

    def __init__(
        self,
        seed: int,
        rates: Rates = RATES,
        times: Timing = TIMES,
        late_by: float = 10.0,
        many: float = 0.2,
        repairers: int = 0,
    ) -> None:
        self.many = many
        """How often a client inserts several entities at once."""
        random.seed(seed)  # (of pauses)
        self.rng = random.Random(seed)
        self.memory = History(seed)
        self.engine = AzureEngine.open(
            self.memory, "in memory", SCHEMA, monotonic=self.memory.seconds, sleep=self.memory.pass_by
        )
        self.engine._outbox = Outbox("TableMapper", times)
        self.model = self.engine.schema.by_class[User]
        self.operations = Operations(self.engine)
        self.schedule = self.memory.schedule = Schedule(self.memory, seed, rates, late_by)
        self.ops = itertools.count()
        self.tokens = itertools.count()
        self.told: list[Told] = []
        self.passed = 0
        for _ in range(5):
            box = Outbox("TableMapper", times, lambda: f"{next(self.ops):013x}{0:012x}")
            for _ in range(2):
                self.schedule.start(self.client(box, times))
            self.schedule.start(tidier(self.engine, box, self.rng))
        for _ in range(4):
            self.schedule.start(sweeper(self.engine, self.rng, times), sweeps=True)
        for _ in range(repairers):
            self.schedule.start(self.repairer())

    # -- clients

    def client(self, box: Outbox, times: Timing) -> Effects[None]:
        for _ in range(3):
            yield Sleep(self.rng.random() * 12)
            tenant, number = self.rng.choice("ab"), self.rng.randrange(3)
            mine = yield from self.get(tenant, number)
            other = yield from self.get(tenant, (number + 1) % 3)
            told = Told([])
            self.told.append(told)
            several = self.many > 0 and self.rng.random() < self.many
            try:
                if several:
                    users = [User(tenant, 10 + next(self.tokens), **self.values(told)) for tenant in "aabb"]
                    inserts = [self.operations.insert(user) for user in users]
                    yield from batch_writes.insert(self.engine.current, inserts, box, 1, times.deadline, [])
                else:
                    operations = self.choose(tenant, number, mine, other, told)
                    yield from write_in_time(self.engine.current, operations, box, timeout=times.deadline)
                told.outcome = "done"
            except (tm.OutcomeUnknown, tm.StoreError) as error:
                failed = isinstance(error, tm.StoreLocked) or not isinstance(error, tm.OutcomeUnknown)
                told.outcome, told.error = "failed" if failed else "unknown", error
            except tm.TableMapperError as error:
                told.outcome, told.error = "failed", error
            if several and told.error is not None:
                told.outcome = "some"

    def get(self, tenant: str, number: int) -> Effects[User | None]:
        partition, row = User.key(tenant, number)[1:]
        found = yield from read(GetEntity("Users", partition, row), 60.0)
        return None if found is None else self.model.build_one(self.engine._classes.codec(self.model).row(found))

    def values(self, told: Told) -> dict[str, Any]:
        choice, name = self.rng.choice, f"token{next(self.tokens)}"
        told.names.append(name)
        return {
            "name": name,
            "team": choice(["red", "Red", "blue"]),
            "email": choice([None, "p", "q"]),
            "nick": choice([None, None, "m", "n"]),
            "score": choice(SCORES),
            "price": choice([None, Decimal("1.10"), Decimal("2E+3")]),
            "tags": self.rng.sample(["s", "t", "u"], self.rng.randrange(3)),
            "words": self.rng.sample(["v", "w", "z"], choice([0, 0, 1, 2])),
        }

    def choose(self, tenant: str, number: int, mine: User | None, other: User | None, told: Told) -> list[Operation]:
        make, drawn = self.operations, self.rng.random()
        new = self.values(told)
        if mine is None:
            if other is not None and drawn < 0.4:  # a move, with all that it has
                values = {name: getattr(other, name) for name in new} | {"name": new["name"]}
                self.passed += 1
                return [make.delete(other, None), make.insert(User(tenant, number, **values))]
            user = User(tenant, number, **new)
            return [make.insert(user) if drawn < 0.8 else make.upsert(user, merge=False)]
        if other is not None and drawn < 0.25:  # a swap
            more = self.values(told)
            self.passed += 1
            mixed = {"email": mine.email, "words": mine.words, "nick": mine.nick}
            return [
                make.replace(
                    mine.replace(**new | {"email": other.email, "words": other.words, "nick": other.nick}), None
                ),
                make.replace(
                    other.replace(**more | (mixed if drawn < 0.15 else {"email": None, "words": [], "nick": None})),
                    None,
                ),
            ]
        if drawn < 0.4:
            told.names.clear()
            return [make.delete(mine, None) if drawn < 0.33 else make.delete(User.key(tenant, number), None)]
        if drawn < 0.55:
            return [make.merge(User.key(tenant, number), (), {"name": new["name"], "score": new["score"]}, None)]
        if drawn < 0.65:
            return [make.upsert(User(tenant, number, **new), merge=False)]
        return [make.replace(mine.replace(**new), None)]

    def repairer(self) -> Effects[None]:
        """Make right what may be right already, under values that are there or are not."""
        fixes = repair.ConditionalRepair(self.engine._classes, self.engine._outbox, 60.0)
        duties = self.engine._classes.maintained(self.model)
        for _ in range(12):
            yield Sleep(self.rng.random() * 4)
            index = self.rng.choice(duties.indexes)
            users = [key for key in self.memory.tables["Users"] if key[1].startswith("user")]
            if self.rng.random() < 0.2 and users:
                (inner,) = [one for one in duties.aggregates if one.model.name == "Tenant"]
                yield from fixes.group(inner, (self.rng.choice("ab"), "total"))
            elif self.rng.random() < 0.5:
                entries = list(check_held(self.engine, self.engine._classes).index_rows(index))
                for entry in self.rng.sample(entries, min(len(entries), 2)):
                    yield from fixes.index(index, entry)
            else:
                for key in self.rng.sample(users, min(len(users), 2)):
                    found = yield from read(GetEntity("Users", *key), 60.0)
                    row = None if found is None else self.engine._classes.codec(self.model).row(found)
                    for entry in [] if row is None else index.rows((row,)):
                        yield from fixes.index(index, entry)

    # -- what has to hold

    def run(self) -> dict[str, int]:
        self.schedule.run()
        assert self.memory.broken is None, self.memory.broken
        store = tm.Store(self.engine)
        sweep_all(store, self.memory, self.memory)
        report = store.check()
        assert report.ok, str(report)
        users = list(store.query(User).allow_scan())
        for team in store.query(Team).allow_scan():
            scores = [user.score for user in users if user.team == team.team]
            assert (team.users, team.total, team.most) == (len(scores), math.fsum(scores), max(scores))
            assert team in store.query(Team.by_users(team.users))
        for tenant in store.query(Tenant).allow_scan():
            assert list(store.query(Tenant.by_users(tenant.users))).count(tenant) == 1
        for team_name in ("red", "blue"):
            found = {user.id for user in store.query(User.by_team(team_name)) if user.tenant == "a"}
            assert found == {user.id for user in users if user.tenant == "a" and user.team.lower() == team_name}
        for told in self.told:
            counts = [self.memory.names.count(name) for name in told.names]
            assert all(count <= 1 for count in counts), (told, counts)
            if told.outcome == "done":
                assert all(counts), told
            elif told.outcome == "failed":
                assert not any(counts), told
        report = repaired(store)
        assert not report.remaining, str(report)
        assert store.check().ok, str(store.check())
        outcomes = [told.outcome for told in self.told]
        of_outcomes = {name: outcomes.count(name) for name in ("done", "failed", "unknown")}
        pages = sum(PAGES[0] <= row < PAGES[1] for table in self.memory.tables.values() for _, row in table)
        return {**self.schedule.counts, "passed": self.passed, "pages": pages, **of_outcomes}


def play(seeds: Iterable[int], **options: Any) -> Counter[str]:
    return played(partial(Play, **options), seeds)


@pytest.mark.one_python
@pytest.mark.long
def test_what_is_elsewhere_follows_whatever_is_lost(full_size: bool) -> None:
    counts = play(range(3_000 if full_size else 12))
    assert min(count for name, count in counts.items() if name != "unknown") > 0, counts
    assert counts["late sweeps"] > 0 < counts["cut"]


@pytest.mark.one_python
@pytest.mark.long
def test_so_it_does_where_most_answers_are_lost_and_outcomes_are_true(full_size: bool) -> None:
    counts = play(range(1_000 if full_size else 4), rates=Rates(crash=0.005, lost=0.45, late=0.05, busy=0.1))
    assert min(counts.values()) > 0, counts


def shape(tables: Any) -> dict[str, set[tuple[str, str]]]:
    """Return the keys in tables, without the writes that rows in the index over groups are of."""
    ends = {"UsersByUsers": -OP_UNITS}
    return {
        name: {(one, row[: ends.get(name)]) for one, row in table if CLAIM not in (one, row) and name != "TableMapper"}
        for name, table in tables.items()
    }


def test_what_is_lost_left_over_or_wrong_is_made_right() -> None:
    memory = Memory()
    store = tm.open(AzurePlace(memory=memory), models=MODELS)  # type: ignore[arg-type]
    rows = [User("a", n, f"n{n}", "red", f"e{n}", f"k{n}", float(n), tags=["s"], words=[f"w{n}"]) for n in range(4)]
    store.insert_many(rows)
    assert store.sweep() == 0  # (which deletes the intents)
    before = {name: dict(table) for name, table in memory.tables.items()}
    users = memory.tables["Users"]
    for index in ("UsersByTeam", "UsersByEmail", "UsersByTag", "Users"):
        table = memory.tables[index]
        hidden = [key for key in table if CLAIM not in key and (index != "Users" or key[1].startswith(' "x'))]
        table["elsewhere" if index != "Users" else "a", f"{hidden[0][1]}"] = table.pop(hidden[0])
    memory.tables["UsersByEmail"]["e9", "holder"] = memory.tables["UsersByEmail"]["e3", "holder"]
    memory.tables["UsersByHigh"].clear()
    total = users["a", "total"]
    users["a", "total"] = attrs.evolve(total, typed={**total.typed, "users": ("Int64", "9")})
    kinds = {one.kind for one in store.check().problems}
    assert {"missing", "dangling", "wrong"} <= kinds
    report = store.repair()
    assert report.ok, str(report)
    assert len(report.repaired) >= 6
    assert store.check().ok
    assert shape(memory.tables) == shape(before)
    team = memory.tables["Teams"]["red", "team"]
    wrong = attrs.evolve(team, typed={**team.typed, "users": ("Int64", "9")})
    memory.tables["Teams"] = {**memory.tables["Teams"], ("red", "team"): wrong}
    assert repaired(store).ok
    assert store.check().ok


@pytest.mark.one_python
@pytest.mark.long
def test_who_repairs_meanwhile_does_no_harm(full_size: bool) -> None:
    play(range(2_000 if full_size else 5), repairers=4)


# ---------------------------------------------------------------------------------------------- mutants

LATE = Rates(lost=0.05, late=0.25)
LOSSY = Rates(crash=0.01, lost=0.08, late=0.05, busy=0.02, cut=0.02)


def _no_marker(patch: Patch) -> None:
    numbers = itertools.count()
    patch.setattr(remote_groups, "mark_key", lambda op, group: f"{MARKS[0]}{next(numbers)}")


def _removed_at_zero(patch: Patch) -> None:
    plain = remote_groups.changed

    def changed(group: Any, deltas: Any, room: int) -> RowChange | None:
        change = plain(group, deltas, room)
        if change is not None and change.kind == "replace":
            state = base64.b64decode(change.members[STATE])
            if group.aggregate.aggregate.unpack_signed(state)[0] == 0:
                return attrs.evolve(change, kind="delete", members={})
        return change

    patch.setattr(remote_groups, "changed", changed)


def _no_decision(patch: Patch) -> None:
    def was_done(self: Any, refused: ErrorResponse) -> Iterator[Any]:
        return False
        yield

    patch.setattr(writes._Attempt, "_was_done", was_done)


def _no_fence(patch: Patch) -> None:
    def was_done(self: Any, refused: ErrorResponse) -> Iterator[Any]:
        found = yield from read(GetEntity(self.intent.table, self.intent.partition, self.intent.row), 60.0)
        return found is not None and found["state"] == "C"

    patch.setattr(writes._Attempt, "_was_done", was_done)


def _forgotten(patch: Patch) -> None:
    patch.setattr(writes.Deadline, "doubt", property(lambda self: False, lambda self, value: None))


def _entity_before_intent(patch: Patch) -> None:
    def look(self: Any, holders: Any) -> Iterator[Any]:
        entities = []
        for partition, row, _ in holders:
            entities.append((yield from self._get(partition, row)))
        intents = []
        for partition, _, op in holders:
            intents.append((yield from self._get(partition, INTENTS[0] + op)))
        return intents, entities

    patch.setattr(reservations.Reservations, "_look", look)


def _released_by_anybody(patch: Patch) -> None:
    def release(self: Any, one: Any) -> Iterator[Any]:
        yield from self.patience.send(one.table, one.partition, RowChange("delete", one.row, {}, "*"))

    patch.setattr(reservations.Reservations, "release", release)


def _first_holder_alone(patch: Patch) -> None:
    plain = reservations._holders
    patch.setattr(reservations, "_holders", lambda found: plain(found)[:1])


def _rewritten(patch: Patch) -> None:
    plain = writes.outer_of

    def outer_of(outer: Any, marks: Any, changes: Any, *rest: Any) -> Any:
        made = plain(outer, marks, changes, *rest)
        op = made.intent.op
        for change, after in zip(changes, made.ops, strict=True):
            if change.old is None or change.new is None or not hasattr(change.old[-1], "ops"):
                continue
            for index in outer[change.operation.model].indexes:
                was, name = change.old[-1].ops.get(index.model.name), index.model.name
                old, new = index.rows((change.old,)), index.rows((change.new,))
                if (
                    index.model.unique
                    or was is None
                    or old == new
                    or [row[:4] for row in old] != [row[:4] for row in new]
                ):
                    continue
                after[name] = was
                keys = {intent_builder.put_of(index, marks, row, op).row for row in new}
                kept = [
                    one
                    for one in made.intent.puts
                    if (one.table, one.row) not in {(index.model.table, key) for key in keys}
                ]
                made.intent.puts[:] = [*kept, *[intent_builder.put_of(index, marks, row, was) for row in new]]
                gone = {intent_builder._delete(index, row, was) for row in old}
                made.intent.deletes[:] = [one for one in made.intent.deletes if one not in gone]
        return made

    patch.setattr(writes, "outer_of", outer_of)


def _no_lease(patch: Patch) -> None:
    """Who sweeps leaves no intent to its writer."""
    age = recovery.OutboxRecovery.age
    patch.setattr(
        recovery.OutboxRecovery, "age", lambda self, one, now: age(self, one, now) + self.outbox.times.lease + 1
    )


def _no_claim(patch: Patch) -> None:
    """Who sweeps lets a writer delete the intent that it carries out."""

    def claimed(self: Any, table: str, entity: Any) -> Iterator[Any]:
        return entity
        yield

    patch.setattr(recovery.OutboxRecovery, "_claimed", claimed)


def _buried_once(patch: Patch) -> None:
    """Who deletes an intent does not look once more for rows that landed behind its burying."""
    plain, buried = recovery.bury, set[str]()

    def bury(intent: Any, patience: Any, timeout: float) -> Iterator[Any]:
        if intent.op not in buried:
            buried.add(intent.op)
            yield from plain(intent, patience, timeout)

    patch.setattr(recovery, "bury", bury)


def _believed(patch: Patch) -> None:
    """An answer whose head is cut is taken for a whole one."""
    patch.setattr(wire.Connection, "response_class", http.client.HTTPResponse)
    patch.setattr(wire, "_ETAG", re.compile(".*"))


def _unmarked_groups(patch: Patch) -> None:
    """A group does not say of which write its rows in indexes are."""
    plain = remote_groups.rows_elsewhere

    def rows_elsewhere(*given: Any) -> dict[str, str]:
        plain(*given)
        return {}

    patch.setattr(remote_groups, "rows_elsewhere", rows_elsewhere)


def _forgotten_marks(patch: Patch) -> None:
    """A group forgets that where only the values change that it counts."""
    patch.setattr(writes, "of_writes", lambda row: {})


def _early_markers(patch: Patch) -> None:
    """Markers are given away when an intent is carried out, and not when it is gone."""
    plain = Outbox.finish

    def finish(self: Any, committed: Any, markers: Any = ()) -> None:
        plain(self, committed)
        for table, partition, mark in markers:
            self.spend(table, partition, [mark])

    patch.setattr(Outbox, "finish", finish)


def _unread_pages(patch: Patch) -> None:
    """Who takes away the end of a page does not read which value is the next one."""
    patch.setattr(value_counts.ValueCounts, "_matters", lambda *_: False)


MUTANTS: dict[str, tuple[Callable[[Patch], None], int]] = {
    "marker": (_no_marker, 0), "order": (_removed_at_zero, 1), "decision": (_no_decision, 1),
    "fence": (_no_fence, 93), "forget": (_forgotten, 0), "release": (_released_by_anybody, 0),
    "nosecond": (_first_holder_alone, 5), "rewrite": (_rewritten, 0), "buried once": (_buried_once, 1),
    "believed": (_believed, 0), "unmarked groups": (_unmarked_groups, 0), "forgotten marks": (_forgotten_marks, 1),
    "unread pages": (_unread_pages, 1), "early markers": (_early_markers, 0),
}  # fmt: skip
"""Each with the first seed that finds it; a change of how many requests are sent moves that, so the search goes on from there."""


@pytest.mark.one_python
@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch, full_size: bool) -> None:
    mutate, start = MUTANTS[name]
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        seeds = range(600) if full_size else range(start, start + 300)
        play(seeds, many=0.0, **({"rates": LATE, "late_by": 40.0} if name == "forget" else {"rates": LOSSY}))


# ---------------------------------------------------------------------------------------------- request by request


class Account(tm.Entity, table="Accounts"):
    tenant: tm.Field[str]
    id: tm.Field[str]
    email: tm.Field[str | None] = tm.field(default=None)
    team: tm.Field[str | None] = tm.field(default=None)
    score: tm.Field[float] = tm.field(default=0.0)

    key = tm.Key[str, str](partition="{tenant}", row="{id}")
    by_email = tm.Index[str](partition="{email}", row="holder", unique=True)
    by_team = tm.Index[str, str](partition="{team}", row="{id}", include=("score",))
    by_score = tm.Index[str, float](partition="{tenant}", row="{score}")


class Squad(tm.Aggregate, of=Account, table="Squads"):
    team: tm.Field[str] = tm.group_by(Account.team)
    accounts: tm.Field[int] = tm.count()
    total: tm.Field[float] = tm.sum(Account.score)
    most: tm.Field[float | None] = tm.max(Account.score)

    key = tm.Key[str](partition="{team}", row="team")
    by_accounts = tm.Index[str, int](partition="{team}", row="{accounts}")


class League(tm.Aggregate, of=Account, table="Leagues"):
    team: tm.Field[str] = tm.group_by(Account.team)
    total: tm.Field[float] = tm.sum(Account.score)

    key = tm.Key[str](partition="{team}")
    by_total = tm.Index[float](partition="all", row="{total}")


class Faulty:
    """A service of which one request goes wrong; then its client has ended, or goes on."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.sent = 0
        self.at = -1
        self.way = ""

    def send(self, request: Request, *wait: float) -> Any:
        self.sent += 1
        if self.sent - 1 == self.at:
            if self.way == "killed before":
                raise KeyboardInterrupt
            if self.way == "refused":
                raise ErrorResponse(400, "InvalidInput", "it is not understood")
            answer = self.memory.send(request)
            if self.way == "killed after":
                raise KeyboardInterrupt
            if self.way == "lost":
                raise NoResponse("the answer")
            return answer
        return self.memory.send(request)

    def close(self) -> None: ...


class Bench:
    """A store over a service whose clock can be turned on."""

    def __init__(self, models: list[type[tm.Record]]) -> None:
        self.now = 1_700_000_000
        self.memory = Memory(clock=lambda: self.now * 1_000_000)
        self.service = Faulty(self.memory)
        self.schema = compile_schema(models)
        self.store = self.open()

    def open(self) -> tm.Store:
        still = lambda: 0.0  # noqa: E731
        return tm.Store(
            AzureEngine.open(
                self.service, "here", self.schema, monotonic=still, sleep=lambda seconds: None, background=Idle
            )
        )

    def sent(self, call: Callable[[], Any]) -> int:
        before = self.service.sent
        call()
        return self.service.sent - before

    def tidy(self) -> None:
        """Do what a thread does behind writes."""
        engine: Any = self.store._engine
        engine._housekeeper.tidy()

    def swept(self) -> None:
        """Sweep until nothing is left but what was written."""
        sweep_all(self.store, self.memory, self)
        report = self.store.check()
        assert report.ok, str(report)


@pytest.fixture
def bench() -> Bench:
    return Bench([Account, Squad])


def _filled(bench: Bench) -> Account:
    bench.store.insert(Account("acme", "7", "ada@x", "red", 2.5))
    return bench.store[Account.key("acme", "7")]


def _changed(account: Account) -> Account:
    account.email, account.team, account.score = "ada@y", "blue", 3.5
    return account


def test_a_verb_sends_so_many_requests(bench: Bench) -> None:
    store = bench.store
    named = 1  # (the partition, once an hour)
    assert bench.sent(lambda: store.insert(Account("acme", "7", "ada@x", "red", 2.5))) == 6 + named
    account = _changed(store[Account.key("acme", "7")])
    assert bench.sent(lambda: store.replace(account)) == 11
    assert bench.sent(lambda: store.insert(Account("acme", "8", None, "blue"))) == 4
    assert bench.sent(lambda: store.insert(Account("acme", "9"))) == 1
    one = store[Account.key("acme", "8")]
    one.score = 1.0
    assert bench.sent(lambda: store.replace(one)) == 5  # (the projection changes: the row is put and deleted)
    assert bench.sent(lambda: list(store.query(Account.by_team("blue")))) == 3
    assert bench.sent(lambda: store.delete(Account.key("acme", "7"))) == 7
    nine = store[Account.key("acme", "9")]
    for email, requests in (("p@x", 3), ("q@x", 5)):  # (a value is set, and changed)
        nine.email = email
        assert bench.sent(lambda: store.replace(nine)) == requests
    assert bench.sent(lambda: store.get_many([Account.key("acme", str(n)) for n in range(5)])) == 5
    assert bench.sent(lambda: store.merge(Account.key("acme", "9"), score=4.0)) == 2
    assert bench.sent(lambda: store.get(Squad.key("blue"))) == 1
    assert bench.sent(lambda: store.query(Account).where(Account.email == "q@x").first()) == 2


def test_what_follows_from_many_new_entities_is_sent_together(bench: Bench) -> None:
    people = [Account(f"tenant{n % 4}", f"{n:03}", None, f"team{n % 5}", 1.0) for n in range(196)]
    # 4 partitions are named, and have a transaction of 49 entities, 49 rows of an index, and the intent, each; then come the
    # rows of 5 partitions of an index, and 5 groups (which are read); a moment later, the end of 4 intents.
    assert bench.sent(lambda: bench.store.insert_many(people)) == 4 + 4 + 5 + 2 * 5
    assert bench.sent(bench.tidy) == 4 + 1  # (it looks whether others have named a partition, too)
    assert sum(squad.accounts for squad in bench.store.query(Squad).allow_scan()) == 196
    assert len(list(bench.store.query(Account.by_team("team3")))) == 39
    bench.swept()


def test_a_group_that_an_index_elsewhere_has_costs_two_requests_more() -> None:
    bench = Bench([Account, League])
    bench.store.insert(Account("acme", "1", None, "red", 1.0))
    # (The intent with its partition, index row and group; there the row that comes, and that which goes.)
    assert bench.sent(lambda: bench.store.insert(Account("acme", "2", None, "red", 2.0))) == 6
    assert [one.total for one in bench.store.query(League).where(League.total >= 0).order_by(League.total)] == [3.0]


class Longest(tm.Aggregate, of=Account, table="Longests"):
    team: tm.Field[str] = tm.group_by(Account.team)
    longest: tm.Field[str | None] = tm.max(Account.email)

    key = tm.Key[str](partition="{team}")
    by_longest = tm.Index[str](partition="{longest}")
    by_here = tm.Index[str, str](partition="{team}", row="{longest}")


def test_a_group_whose_index_would_have_too_long_a_key_is_not_shown_until_it_has_none() -> None:
    bench = Bench([Account, Longest])
    bench.store.insert(Account("acme", "1", "a", "red"))
    bench.store.insert(Account("acme", "2", "b" * 500, "red"))
    assert bench.store.get(Longest.key("red")) is None
    assert (
        list(bench.store.query(Longest.by_longest("a"))) == list(bench.store.query(Longest.by_here("red", "a"))) == []
    )
    bench.now += 1_000
    assert bench.store.sweep() == 0  # (nothing is left to be done)
    bench.store.delete(Account.key("acme", "2"))
    assert bench.store.get(Longest.key("red")) == Longest("red", "a")
    assert [one.team for one in bench.store.query(Longest.by_longest("a"))] == ["red"]
    bench.swept()


@pytest.mark.parametrize("in_order", [True, False])
def test_who_wants_a_value_looks_at_the_intent_of_its_holder_before_the_entity(
    in_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_order:
        _entity_before_intent(monkeypatch)
    memory = Memory()
    memory.tables |= {"Accounts": {}, "AccountsByEmail": {}}
    holder, other = Intent("Accounts", "acme", f"{1:025}"), Intent("Accounts", "acme", f"{2:025}")
    row = {OP: holder.op, BASE_PARTITION: "acme", BASE_ROW: "7"}
    memory.send(GroupTransaction("Accounts", "acme", (holder.change("P"),)))
    memory.send(GroupTransaction("AccountsByEmail", "ada@x", (RowChange("insert", "holder", row),)))
    commit = [RowChange("insert", "7", ops_member({"by_email": holder.op})), RowChange("delete", holder.row, {}, "*")]

    class Between:
        """The holder commits between the two looks."""

        def send(self, request: Any, *wait: float) -> Any:
            answer = memory.send(request)
            if isinstance(request, GetEntity) and request.table == "Accounts" and commit:
                memory.send(GroupTransaction("Accounts", "acme", tuple(commit)))
                commit.clear()
            return answer

        def close(self) -> None: ...

    take = ReserveValue("AccountsByEmail", "ada@x", "holder", "8", "by_email", None)
    work = reservations.Reservations(other, Deadline(1e18), 60.0).take(take)
    assert Driver(Between(), monotonic=lambda: 0.0).run(work) == (("acme", "7") if in_order else "taken")


@pytest.mark.parametrize("blindly", [False, True])
def test_a_repair_deletes_no_value_that_somebody_takes_meanwhile(
    bench: Bench, blindly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(bench)
    rows, engine = bench.memory.tables["AccountsByEmail"], bench.store._engine
    held = rows["ada@x", "holder"]
    old = attrs.evolve(held, typed={**held.typed, OP: ("String", f"{9:025}")})
    bench.memory.tables["AccountsByEmail"] = rows | {("old@x", "holder"): old}
    bench.tidy()
    plain = repair._tried

    def tried(commit: GroupTransaction) -> Effects[None]:
        bench.open().insert(Account("acme", "8", "old@x"))
        changes = [attrs.evolve(one, if_match="*" if blindly else one.if_match) for one in commit.changes]
        yield from plain(attrs.evolve(commit, changes=tuple(changes)))

    monkeypatch.setattr(repair, "_tried", tried)
    index = engine.classes.index(engine.schema.by_class[Account], "by_email")  # type: ignore[attr-defined]
    fixes = repair.ConditionalRepair(engine.classes, engine._outbox, 60.0)  # type: ignore[attr-defined]
    engine.run(fixes.index(index, ("old@x", "holder", "acme", "7")))  # type: ignore[attr-defined]
    assert (("old@x", "holder") in bench.memory.tables["AccountsByEmail"]) == (not blindly)


def test_many_changes_of_one_group_of_which_one_was_added_are_added_once(bench: Bench) -> None:
    engine: Any = bench.store._engine
    plain, bench.service.memory.send = bench.service.memory.send, bench.service.memory.send
    intents: list[Any] = []

    def stopped(request: Request) -> Any:
        if isinstance(request, GroupTransaction) and request.table == "Squads":
            rows = [one for one in bench.memory.entities("Accounts") if one["RowKey"].startswith(INTENTS[0])]
            if not intents:
                intents.extend(intent_of(row)[0] for row in rows)
                first = intents[0]
                squad = engine.classes.aggregates["Squad"]
                upkeep = engine.classes.upkeep(squad)
                work = remote_groups.add(upkeep, [(first, first.deltas[0])], Deadline(1e9), 60.0, Outbox("TableMapper"))
                bench.memory.send = plain  # type: ignore[method-assign]
                engine.run(work)
        return plain(request)

    bench.memory.send = stopped  # type: ignore[method-assign]
    bench.store.insert_many([Account(f"t{n}", "1", None, "red", 1.0) for n in range(6)])
    assert len(intents) == 6
    assert bench.store[Squad.key("red")] == Squad("red", 6, 6.0, 1.0)
    bench.swept()


def test_rows_that_an_index_has_of_groups_change_with_them(bench: Bench) -> None:
    bench.store.insert_many([Account(f"t{n}", "1", None, ["red", "blue"][n % 3 > 0], 1.0) for n in range(6)])
    assert [(one.team, one.accounts) for one in bench.store.query(Squad.by_accounts("blue"))] == [("blue", 4)]
    assert bench.store.query(Squad.by_accounts("red", 2)).one() == Squad("red", 2, 2.0, 1.0)
    # What somebody has lost does not keep others from writing; a repair puts it back.
    squads = bench.memory.tables["Squads"]
    bench.memory.tables["Squads"] = {key: row for key, row in squads.items() if not key[1].startswith(' "x')}
    bench.store.insert(Account("new", "1", None, "red", 5.0))
    assert bench.store.query(Squad.by_accounts("red", 3)).one().most == 5.0
    assert not bench.store.check().ok
    assert repaired(bench.store).ok
    assert bench.store.query(Squad.by_accounts("blue", 4)).one().team == "blue"
    bench.swept()


def test_a_group_with_too_many_different_values_takes_no_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_groups, "_VALUES", 100)
    monkeypatch.setattr(remote_groups, "_FULL", 0)
    with pytest.raises(tm.InvalidEntity, match="use min_ever or max_ever, or group by a shard") as caught:
        for number in range(30):
            bench.store.insert(Account("acme", str(number), None, "red", number / 7))
    written = bench.store.query(Account).where(Account.tenant == "acme").count()
    assert "Squad ('red', 'team')" in str(caught.value)
    assert 8 < written < 30
    assert bench.store[Squad.key("red")].accounts == written  # (nothing was written of the one that was refused)
    for number in range(3, written):
        bench.store.delete(Account.key("acme", str(number)))
    bench.store.insert(Account("acme", "99", None, "red", 99 / 7))
    bench.swept()


@pytest.mark.parametrize("way", ["killed before", "killed after", "lost"])
def test_each_request_of_the_longest_write_may_be_the_last(way: str) -> None:
    for at in itertools.count():
        bench = Bench([Account, Squad, League])
        account = _changed(_filled(bench))
        bench.service.at, bench.service.way = bench.service.sent + at, way
        before = bench.service.sent
        try:
            bench.store.replace(account)
        except KeyboardInterrupt:
            assert way != "lost"
            bench.store = bench.open()
        ended = bench.service.sent - before <= at
        bench.service.at = -1
        held = bench.store[Account.key("acme", "7")]
        for team in ("red", "blue"):
            assert [one.team for one in bench.store.query(Account.by_team(team))] in (
                [],
                [team] if held.team == team else [],
            )
        for email in ("ada@x", "ada@y"):
            assert [one.email for one in bench.store.query(Account.by_email(email))] == [email] * (held.email == email)
        bench.swept()
        teams = {one.team: (one.accounts, one.total, one.most) for one in bench.store.query(Squad).allow_scan()}
        ranks = [
            (one.team, one.total) for one in bench.store.query(League).where(League.total >= 0).order_by(League.total)
        ]
        assert ranks == sorted([(team, total) for team, (_, total, _) in teams.items()], key=lambda one: one[1])
        assert teams == {held.team: (1, held.score, held.score)}
        if ended:
            assert at > 10
            return


def test_the_error_of_a_taken_value_names_its_holder_and_leaves_nothing(bench: Bench) -> None:
    bench.store.insert(Account("acme", "7", "ada@x", "red"))
    with pytest.raises(tm.UniqueViolation, match=r"'ada@x'.*\('acme', '7'\)"):
        bench.store.insert(Account("zeta", "1", "ada@x", "blue"))
    with pytest.raises(tm.EntityExists):
        bench.store.insert(Account("acme", "7", "ada@x", "red"))
    assert bench.store.get(Account.key("zeta", "1")) is None
    bench.tidy()
    assert not [key for rows in bench.memory.tables.values() for key in rows if key[1].startswith(INTENTS[0])]
    with pytest.raises(tm.UniqueViolation), bench.store.transaction() as tx:
        tx.insert(Account("acme", "1", "new@x"))
        tx.insert(Account("acme", "2", "new@x"))
    bench.swept()


def test_two_entities_swap_their_unique_values(bench: Bench) -> None:
    bench.store.insert_many([Account("acme", "1", "a@x"), Account("acme", "2", "b@x")])
    one, two = bench.store[Account.key("acme", "1")], bench.store[Account.key("acme", "2")]
    one.email, two.email = two.email, one.email
    with bench.store.transaction() as tx:
        tx.replace(one)
        tx.replace(two)
    assert [found.id for found in bench.store.query(Account.by_email("a@x"))] == ["2"]
    bench.swept()


def test_a_total_is_counted_from_entities_and_a_group_read_by_name(bench: Bench) -> None:
    bench.store.insert_many([Account("acme", str(number), None, "red", float(number)) for number in range(5)])
    red = bench.store.query(Account).where(Account.team == "red")
    assert red.count() == 5
    assert "Squad" not in str(red.explain())
    squad = bench.store[Squad.key("red")]
    assert (squad.accounts, squad.total, squad.most) == (5, 10.0, 4.0)


def test_a_page_of_an_index_goes_on_where_the_last_one_ended(bench: Bench) -> None:
    bench.store.insert_many([Account("acme", f"{number:02}", None, "red", float(number)) for number in range(25)])
    query, found, token = bench.store.query(Account.by_team("red")), [], None
    while True:
        page = query.page(7, token=token)
        found += [one.id for one in page.items]
        token = page.token
        if token is None:
            break
    assert found == [f"{number:02}" for number in range(25)]


def test_a_key_that_is_too_long_for_the_row_of_an_index_is_hashed_in_it(bench: Bench) -> None:
    long = "x" * 250
    bench.store.insert_many([Account("t" * 300, long + str(number), None, "red") for number in range(3)])
    assert {one.id for one in bench.store.query(Account.by_team("red"))} == {long + str(number) for number in range(3)}
    bench.store.delete(Account.key("t" * 300, long + "1"))
    bench.swept()


def test_a_sweep_leaves_a_write_alone_that_is_under_way(bench: Bench) -> None:
    account = _changed(_filled(bench))
    bench.service.at, bench.service.way = bench.service.sent + 3, "killed before"
    with pytest.raises(KeyboardInterrupt):
        bench.store.replace(account)
    bench.store = bench.open()
    assert bench.store.sweep() == 0
    assert all("not finished" not in str(problem) for problem in bench.store.check().problems)
    bench.now += 120
    assert any("call store.sweep()" in str(problem) for problem in bench.store.check().problems)
    assert bench.store.sweep() == 1
    assert bench.store.check().ok


def test_who_writes_a_partition_finishes_what_others_left_there(bench: Bench) -> None:
    account = _changed(_filled(bench))
    bench.service.at, bench.service.way = bench.service.sent + 3, "killed before"
    with pytest.raises(KeyboardInterrupt):
        bench.store.replace(account)
    bench.now += 120
    bench.store = bench.open()
    bench.store.insert(Account("zeta", "1", None, "red"))  # (in another partition)
    bench.tidy()
    assert not bench.store.check().ok
    bench.store = bench.open()
    named = 1
    assert bench.sent(lambda: bench.store.insert(Account("acme", "8", None, "red", 1.0))) == 4 + named
    assert not bench.store.check().ok
    bench.tidy()
    assert bench.store.check().ok
    assert bench.store.sweep() == 0
    assert bench.sent(lambda: bench.store.insert(Account("acme", "9", None, "red", 1.0))) == 4
    bench.store = bench.open()
    assert bench.sent(lambda: bench.store.insert(Account("acme", "10", None, "red", 1.0))) == 4 + named
    bench.swept()


def test_a_write_is_done_though_what_others_left_there_cannot_be_finished(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    _filled(bench)
    bench.store = bench.open()
    bench.store.insert(Account("acme", "8", None, "red", 1.0))
    bench.service.at, bench.service.way = bench.service.sent + 1, "refused"
    bench.tidy()
    assert "what is left behind writes stays" in caplog.text
    assert bench.store.check().ok
    bench.swept()


def test_a_group_that_is_below_zero_is_not_there(bench: Bench) -> None:
    bench.service.at, bench.service.way = bench.service.sent + 3, "killed before"  # (after the commit)
    with pytest.raises(KeyboardInterrupt):
        bench.store.insert(Account("acme", "1", None, "red", 1.0))
    bench.store = bench.open()
    bench.store.delete(Account.key("acme", "1"))
    assert bench.store.get(Squad.key("red")) is None
    assert list(bench.store.query(Squad).allow_scan()) == []
    assert bench.memory.tables["Squads"]
    bench.swept()
    assert set(bench.memory.tables["Squads"]) <= {(CLAIM, CLAIM)}


@pytest.mark.parametrize("patient", [True, False])
def test_a_late_request_adds_nothing_again_while_the_intent_and_its_marker_are_kept(
    bench: Bench, patient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not patient:  # (as if an intent went as soon as it is carried out)
        age = recovery.OutboxRecovery.age
        monkeypatch.setattr(
            recovery.OutboxRecovery,
            "age",
            lambda self, one, now: age(self, one, now) + 1000 * (one.get("state") == "D"),
        )
    bench.service.at, bench.service.way = bench.service.sent + 3, "killed before"  # (after the commit)
    with pytest.raises(KeyboardInterrupt):
        bench.store.insert(Account("acme", "1", None, "red", 1.0))
    bench.store = bench.open()
    engine: Any = bench.store._engine
    (held,) = [one for one in bench.memory.entities("Accounts") if one["RowKey"].startswith(INTENTS[0])]
    intent, _ = intent_of(held)
    bench.now += 700
    bench.store.sweep()
    squad = engine.classes.aggregates["Squad"]
    upkeep, box = engine.classes.upkeep(squad), Outbox("TableMapper")
    other = remote_groups.add(upkeep, [(intent, intent.deltas[0])], Deadline(1e9), 60.0, box)
    next(other)  # (who read the intent before, too, looks at the group now, and its request takes a while)
    late: Any = None
    while not isinstance(late, GroupTransaction):
        late = other.send(bench.memory.send(late) if isinstance(late, GetEntity) else 0.0)
    bench.now += 30
    bench.store.sweep(full=True)
    bench.now += 10_000 * (not patient)
    bench.store.sweep(full=True)
    if patient:
        with pytest.raises(ErrorResponse):
            bench.memory.send(late)
        bench.swept()
    else:
        bench.memory.send(late)
    assert bench.store[Squad.key("red")].accounts == (1 if patient else 2)


@pytest.mark.parametrize("claims", [True, False])
def test_a_marker_that_its_writer_deletes_is_of_an_intent_that_no_sweep_carries_out(
    bench: Bench, claims: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_lease(monkeypatch)
    if not claims:
        _no_claim(monkeypatch)
    committed, read_by_sweep, plain = threading.Event(), threading.Event(), bench.memory.send

    def insert() -> None:
        for number in "123":  # (the second one deletes the intent of the first, and then a marker)
            bench.store.insert(Account("acme", number, None, "red", 1.0))

    def send(request: Any, *wait: float) -> Any:
        answer = plain(request)
        if not committed.is_set():
            if isinstance(request, GroupTransaction) and any(one.row.startswith(INTENTS[0]) for one in request.changes):
                committed.set()
                assert read_by_sweep.wait(60)
        elif isinstance(request, QueryEntities) and request.table == "Accounts" and not read_by_sweep.is_set():
            read_by_sweep.set()
            writer.join(60)
        return answer

    sweeper, writer = bench.open(), threading.Thread(target=insert)
    bench.store.insert(Account("acme", "0", None, "blue", 1.0))
    bench.tidy()
    bench.now += 120  # (a name as young as the intents would not be looked at)
    monkeypatch.setattr(bench.memory, "send", send)
    writer.start()
    assert committed.wait(60)
    sweeper.sweep()
    assert bench.store[Squad.key("red")].accounts == (3 if claims else 4)


async def test_a_sweep_is_awaited(bench: Bench) -> None:
    async with AsyncStore(bench.store._engine, Workers(threads=2, cursors=2, timeout=1)) as store:
        assert await store.sweep(full=True) == 0
