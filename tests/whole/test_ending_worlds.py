"""Random writes of entities that end, over time: each read is compared with Python's own filter of what was written."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines import locations

from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace
from ..engines.dicts import DictPlace

START = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BARE = ("backward", "sorts", "across_partitions", "all_or_none_load")
PLACES: dict[str, Callable[[], Any]] = {
    "file": lambda: ":memory:",
    "bare": lambda: DictPlace(lacking=BARE),
    "azure": lambda: AzurePlace(memory=Memory()),
}


def declared(rng: random.Random) -> list[Any]:
    """Return a class that ends, with some indexes, and perhaps an aggregate of it."""
    required = rng.random() < 0.3
    kind: Any = datetime if required else datetime | None
    default: dict[str, Any] = {} if required else {"default": None}
    body: dict[str, Any] = {
        "__annotations__": {
            "user": tm.Field[str],
            "id": tm.Field[str],
            "until": tm.Field[kind],
            "mail": tm.Field[str | None],  # type: ignore[index]
            "n": tm.Field[int],
            "tags": tm.Field[list[str]],
        },
        "until": tm.field(**default, expires=True, kw_only=True),
        "mail": tm.field(default=None),
        "n": tm.field(default=0),
        "tags": tm.field(factory=list),
        "key": tm.Key[str, str](partition="{user}", row="{id}"),
    }
    indexes: dict[str, Any] = {
        "by_mail": tm.Index(partition="{mail}", unique=True),
        "by_n": tm.Index(partition="all", row="{n}", include=rng.choice([(), ("until",), ("mail",), "all"])),
        "some": tm.Index(partition="some", row="{n}", where=lambda one: one.n > 2),
        "here": tm.Index(partition="{user}", row="{n}", include=("until",)),
        "by_tag": tm.Index(partition="{tags}", row="{n}"),
        "by_end": tm.Index(partition="{id:shard(2)}", row="{until}"),
    }
    body |= {name: index for name, index in indexes.items() if rng.random() < 0.6}
    cls: Any = type(tm.Entity)("Ending", (tm.Entity,), body, table="Endings")
    if rng.random() < 0.3:
        return [cls]
    measures = {
        "__annotations__": {
            "user": tm.Field[str],
            "number": tm.Field[int],
            "total": tm.Field[int],
            "most": tm.Field[int | None],  # type: ignore[index]
        },
        "user": tm.group_by(cls.user),
        "number": tm.count(),
        "total": tm.sum(cls.n),
        "most": tm.max(cls.n),
        "key": tm.Key[str](partition="{user}"),
    }
    return [cls, type(tm.Aggregate)("PerUser", (tm.Aggregate,), measures, table="PerUser", of=cls)]


@attrs.define
class World:
    """A store, and what is to be in it."""

    rng: random.Random
    place: Any
    time: datetime = START
    rows: dict[tuple[str, str], dict[str, Any]] = attrs.field(factory=dict)
    """All that is stored, by key."""
    models: list[Any] = attrs.field(factory=list)
    store: Any = None
    log: list[str] = attrs.field(factory=list)

    @property
    def cls(self) -> Any:
        return self.models[0]

    def microseconds(self) -> int:
        return (self.time - EPOCH) // timedelta(microseconds=1)

    def open(self, schema: Any, **options: Any) -> Any:
        place: Any = locations.place_of(self.place)
        return place.open(schema, clock=self.microseconds, now=self.microseconds, **options)

    # -- what is to be there

    def ended(self, row: dict[str, Any]) -> bool:
        return row["until"] is not None and row["until"] <= self.time

    @property
    def seen(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {key: row for key, row in self.rows.items() if not self.ended(row)}

    def random_key(self) -> tuple[str, str]:
        return self.rng.choice("ab"), self.rng.choice("1234")

    def random_row(self, user: str, id: str) -> dict[str, Any]:
        rng = self.rng
        past = self.time - rng.randrange(3) * MINUTE
        choices = [past, self.time + MINUTE, self.time + 2 * MINUTE, self.time + 60 * MINUTE]
        until = rng.choice(choices if self.required else [*choices, None, None])
        mail = rng.choice([None, None, "x", "y", "z"])
        return {
            "user": user, "id": id, "until": until, "mail": mail, "n": rng.randrange(6), "tags": rng.sample("pqr", rng.randrange(3))
        }  # fmt: skip

    @property
    def required(self) -> bool:
        return not self.cls.__declaration__.field("until").optional

    @property
    def is_unique(self) -> bool:
        return any(index.unique for index in self.cls.__declaration__.indexes)

    def put(self, row: dict[str, Any]) -> type[Exception] | None:
        """Store a row; what has ended and holds its unique value goes."""
        key = row["user"], row["id"]
        for other, held in list(self.rows.items()):
            if self.is_unique and other != key and row["mail"] is not None and held["mail"] == row["mail"]:
                if not self.ended(held):
                    return tm.UniqueViolation
                del self.rows[other]
        self.rows[key] = row
        return None

    # -- steps

    def step(self) -> None:
        verbs = [self.insert, self.insert_many, self.upsert, self.merge, self.or_insert, self.replace, self.delete]
        verbs += [self.update, self.delete_many, self.expire, self.transaction, self.tick, self.tick, self.columns]
        self.rng.choice(verbs)()

    def expect(self, text: str, outcome: type[Exception] | None, call: Callable[[], Any]) -> None:
        self.log.append(f"{self.time:%H:%M:%S.%f} {text} -> {outcome and outcome.__name__}")
        if outcome is None:
            call()
        else:
            with pytest.raises(outcome):
                call()

    def insert(self) -> None:
        row = self.random_row(*(key := self.random_key()))
        outcome = tm.EntityExists if key in self.seen else self.put(row)
        self.expect(f"insert {row}", outcome, lambda: self.store.insert(self.cls(**row)))

    def insert_many(self) -> None:
        user = self.rng.choice("ab")
        rows = [self.random_row(user, id) | {"mail": None} for id in self.rng.sample("1234", 2)]
        self._many(rows, lambda: self.store.insert_many([self.cls(**row) for row in rows]))

    def columns(self) -> None:
        user = self.rng.choice("ab")
        rows = [self.random_row(user, id) | {"mail": None} for id in self.rng.sample("1234", 3)]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        self._many(rows, lambda: self.store.insert_columns(self.cls, columns))

    def _many(self, rows: list[dict[str, Any]], call: Callable[[], Any]) -> None:
        taken = any((row["user"], row["id"]) in self.seen for row in rows)
        for row in rows if not taken else ():
            assert self.put(row) is None
        self.expect(f"insert_many {rows}", tm.EntityExists if taken else None, call)

    def upsert(self) -> None:
        row, merges = self.random_row(*(key := self.random_key())), self.rng.random() < 0.5
        old = self.seen.get(key)
        new = row
        if merges and old is not None:
            new = {name: value if value is not None else old[name] for name, value in row.items()}
        outcome = self.put(new)
        self.expect(f"upsert {row} {merges}", outcome, lambda: self.store.upsert(self.cls(**row), merge=merges))

    def merge(self) -> None:
        row = self.random_row(*(key := self.random_key()))
        changes = {name: row[name] for name in self.rng.sample(["until", "mail", "n", "tags"], 2)}
        old = self.seen.get(key)
        outcome = tm.EntityNotFound if old is None else self.put(old | changes)
        returning = self.rng.random() < 0.5
        self.expect(
            f"merge {key} {changes}",
            outcome,
            lambda: self.store.merge(self.cls.key(*key), **changes, returning=returning),
        )

    def or_insert(self) -> None:
        row = self.random_row(*(key := self.random_key()))
        old = self.seen.get(key, row)
        outcome = self.put(old | {"n": old["n"] + 1})
        call = lambda: self.store.merge(self.cls.key(*key), self.cls.n.add(1), or_insert=self.cls(**row))  # noqa: E731
        self.expect(f"or_insert {row}", outcome, call)

    def replace(self) -> None:
        key = self.random_key()
        if key not in self.seen:
            return
        read, row = self.store[self.cls.key(*key)], self.random_row(*key)
        if self.rng.random() < 0.3:
            self.tick()
        outcome = self.put(row) if key in self.seen else tm.EntityNotFound
        changes = {name: row[name] for name in ("until", "mail", "n", "tags")}
        self.expect(f"replace {row}", outcome, lambda: self.store.replace(read.replace(**changes)))

    def delete(self) -> None:
        key = self.random_key()
        outcome = None if key in self.seen else tm.EntityNotFound
        if outcome is None:
            del self.rows[key]
        self.expect(f"delete {key}", outcome, lambda: self.store.delete(self.cls.key(*key)))

    def update(self) -> None:
        user = self.rng.choice("ab")
        for key, row in self.seen.items():
            if key[0] == user:
                self.rows[key] = row | {"n": row["n"] + 1}
        query = self.store.query(self.cls).where(self.cls.user == user)
        self.expect(f"update {user}", None, lambda: query.update(self.cls.n.add(1)))

    def delete_many(self) -> None:
        least = self.rng.randrange(2, 9)
        for key in [key for key, row in self.seen.items() if row["n"] >= least]:
            del self.rows[key]
        query = self.store.query(self.cls).where(self.cls.n >= least).allow_scan()
        self.expect(f"delete {least}", None, query.delete)

    def expire(self) -> None:
        limit = self.rng.choice([None, 0, 1, 2])
        number = self.store.expire(self.rng.choice([None, self.cls]), limit=limit)
        self.log.append(f"{self.time} expire {limit} -> {number}")
        there = self.stored_keys()
        gone = self.rows.keys() - there
        assert all(self.ended(self.rows[key]) for key in gone)
        ending = sum(map(self.ended, self.rows.values()))
        assert number == len(gone) == (ending if limit is None else min(limit, ending))
        self.rows = {key: row for key, row in self.rows.items() if key in there}

    def stored_keys(self) -> set[tuple[str, str]]:
        """Return the keys of all that is stored: what was there before time began is not there for its end."""
        time, self.time = self.time, START - timedelta(days=1)
        try:
            return {(one.user, one.id) for one in self.store.query(self.cls).allow_scan()}
        finally:
            self.time = time

    def transaction(self) -> None:
        user = self.rng.choice("ab")
        one, other = (self.random_row(user, id) | {"mail": None} for id in self.rng.sample("1234", 2))
        key = user, other["id"]
        kept = dict(self.rows)
        is_there = key in self.seen
        outcome: type[Exception] | None = tm.EntityExists if (user, one["id"]) in self.seen else self.put(one)
        if not is_there:  # (where both fail, either may come first)
            outcome = tm.EntityNotFound if outcome is None else tm.TableMapperError
        if outcome is None:
            self.rows[key] = self.rows[key] | {"n": 9}
        else:
            self.rows = kept

        def call() -> None:
            with self.store.transaction() as tx:
                assert (tx.get(self.cls.key(*key)) is not None) == (key in seen)
                tx.insert(self.cls(**one))
                tx.merge(self.cls.key(*key), n=9)

        seen = {key for key, row in kept.items() if not self.ended(row)}
        self.expect(f"transaction {one} {key}", outcome, call)

    def tick(self) -> None:
        ends = [row["until"] for row in self.rows.values() if row["until"] is not None and row["until"] > self.time]
        near = self.rng.choice([*ends, self.time + MINUTE])
        self.time = near - self.rng.choice([timedelta(0), timedelta(0), timedelta(microseconds=1)])
        self.log.append(f"tick {self.time}")

    # -- reads

    def compare(self) -> None:
        cls, store, seen = self.cls, self.store, self.seen
        keys = [(user, id) for user in "ab" for id in "1234"]

        def as_row(one: Any) -> dict[str, Any]:
            return {name: getattr(one, name) for name in ("user", "id", "until", "mail", "n", "tags")}

        def same(found: Any, wanted: Any) -> None:
            assert sorted(map(repr, map(as_row, found))) == sorted(map(repr, wanted))

        assert [one and as_row(one) for one in store.get_many([cls.key(*key) for key in keys])] == [
            *map(seen.get, keys)
        ]
        some = self.rng.choice(keys)
        entity = store.get(cls.key(*some))
        assert (entity and as_row(entity), store.exists(cls.key(*some))) == (seen.get(some), some in seen)
        assert (store.query(cls).where(cls.user == some[0], cls.id == some[1]).first() is not None) == (some in seen)
        for user in "ab":
            of_user = [row for key, row in sorted(seen.items()) if key[0] == user]
            query = store.query(cls).where(cls.user == user)
            same(store.partition(cls.user == user), of_user)
            same(query, of_user)
            same([one for page in query.pages(2) for one in page.items], of_user)
            same(query.where(cls.n >= 3), [row for row in of_user if row["n"] >= 3])
            assert (query.count(), query.sum(cls.n)) == (
                len(of_user),
                sum(row["n"] for row in of_user) if of_user else None,
            )
            assert query.max(cls.n) == max((row["n"] for row in of_user), default=None)
            assert sorted(query.select(cls.id)) == [(row["id"],) for row in of_user]
            if len(self.models) > 1:
                stored = [row["n"] for key, row in self.rows.items() if key[0] == user]
                group = store.group(self.models[1].key(user))
                assert (group.number, group.total, group.most) == (len(stored), sum(stored), max(stored, default=None))
                assert query.allow_eventual().count() == len(stored)
        scan = store.query(cls).allow_scan()
        numbers = [row for row in seen.values() if row["n"] > 2]
        same(scan.where(cls.n > 2), numbers)
        assert sorted(scan.where(cls.n > 2).select(cls.n)) == sorted((row["n"],) for row in numbers)
        assert scan.where(cls.n > 2).count() == len(numbers)
        same(scan.where(cls.mail == "x"), [row for row in seen.values() if row["mail"] == "x"])
        same(scan.where(cls.tags.contains("p")), [row for row in seen.values() if "p" in row["tags"]])
        same(scan.where(cls.until > START), [row for row in seen.values() if row["until"] is not None])
        assert scan.columns()["n"].__len__() == len(seen)


@pytest.mark.parametrize("place", PLACES)
def test_what_ends_is_as_python_filters_it(place: str, request: pytest.FixtureRequest) -> None:
    is_long = request.config.getoption("--long")
    for seed in range(25 if is_long else 2):
        rng = random.Random(f"{seed} {place}")
        world = World(rng, PLACES[place]())
        world.models = declared(rng)
        where: Any = world
        with tm.open(where, models=world.models) as world.store:
            try:
                for number in range(120 if is_long else 25):
                    world.step()
                    world.compare()
                    if number % 10 == 9:
                        assert world.store.check().ok, str(world.store.check())
            except BaseException as error:
                error.add_note(f"seed {seed}: {world.cls.__declaration__.indexes}\n" + "\n".join(world.log[-12:]))
                raise
