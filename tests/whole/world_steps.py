"""Steps of worlds: each calls a verb of the program that acts, and says what should come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

import tablemapper as tm

from .worlds import (
    IDS,
    MINUTE,
    USERS,
    Edit,
    Failure,
    Key,
    Kind,
    Program,
    Refused,
    Row,
    World,
    arguments,
    edited,
    text_of,
)


def act(world: World) -> None:
    """Let a program do something."""
    world.stamp += 1
    is_older = len(world.programs) > 1 and world.rng.random() < 0.35
    world.acting = world.programs[1 if is_older else 0]
    steps = [*STEPS, *(NEWER if world.acting.newer else ())]
    if world.features.grows:
        steps += [*GROWING] if world.acting.newer else [reopen]
    world.rng.choice(steps)(world)


def expect(world: World, text: str, failure: Failure | None, call: Callable[[], Any]) -> Any:
    """Call something, and check that it fails as it should; what has ended may be gone then."""
    version = "newer" if world.acting.newer else "older"
    world.log.append(f"{world.stamp} {world.time:%H:%M:%S.%f} {version} {text} -> {failure and failure.__name__}")
    if failure is None:
        return call()
    with pytest.raises(failure):
        call()
    return None


def attempted(world: World, kind: Kind, work: Callable[[], Failure | None]) -> Failure | None:
    """Return how several writes fail: then none of them is made, but holders that have ended may be gone."""
    before = dict(world.rows[kind.name])
    failure = work()
    if failure is not None:
        gone = {key for key, row in before.items() if key not in world.rows[kind.name] and world.ended(row)}
        world.rows[kind.name] = {key: row for key, row in before.items() if key not in gone}
    return failure


# ---------------------------------------------------------------------------------------------- by key


def insert(world: World) -> None:
    kind, row = world.kind(), world.random_row(*world.random_key())
    failure = world.insert_row(kind, row)
    expect(world, f"insert {kind.name} {text_of(row)}", failure, lambda: world.store.insert(made(world, kind, row)))


def made(world: World, kind: Kind, row: Row) -> Any:
    return world.acting.entity(kind, row)


def _several(world: World, number: int) -> list[Row]:
    """Return rows of a partition, without unique values."""
    user = world.rng.choice(USERS[:2])
    return [world.random_row(user, id) | {"mail": None} for id in world.rng.sample(IDS, number)]


def insert_many(world: World) -> None:
    kind, rows = world.kind(), _several(world, 2)
    taken = any((row["user"], row["id"]) in world.seen(kind) for row in rows)
    for row in rows if not taken else ():
        assert world.insert_row(kind, row) is None
    by_columns = world.rng.random() < 0.4

    def call() -> None:
        if by_columns:
            world.store.insert_columns(kind.cls, columns(kind, rows))
        else:
            world.store.insert_many([made(world, kind, row) for row in rows])

    text = f"insert_{'columns' if by_columns else 'many'} {kind.name} {list(map(text_of, rows))}"
    expect(world, text, tm.EntityExists if taken else None, call)


def columns(kind: Kind, rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0] if not (kind.stamps and name == "stamp")}


def upsert_many(world: World) -> None:
    kind, rows = world.kind(), _several(world, 2)
    for row in rows:
        assert world.put(kind, world.stored(kind, row, world.seen(kind).get((row["user"], row["id"])))) is None
    by_columns = world.rng.random() < 0.4

    def call() -> None:
        if by_columns:
            world.store.upsert_columns(kind.cls, columns(kind, rows))
        else:
            world.store.upsert_many([made(world, kind, row) for row in rows])

    expect(world, f"upsert_{'columns' if by_columns else 'many'} {kind.name} {list(map(text_of, rows))}", None, call)


def upsert(world: World) -> None:
    kind, row = world.kind(), world.random_row(*(key := world.random_key()))
    merges = world.rng.random() < 0.5 and "more" not in world.names
    old = world.seen(kind).get(key)
    new = row
    if merges and old is not None:
        new = {name: value if value is not None else old[name] for name, value in row.items()}
    failure = world.put(kind, world.stored(kind, new, old))
    text = f"upsert {kind.name} {text_of(row)} merge={merges}"
    expect(world, text, failure, lambda: world.store.upsert(made(world, kind, row), merge=merges))


def merge(world: World) -> None:
    kind, key, edits = world.kind(), world.random_key(), world.some_edits()
    row = world.random_row(*key) if world.rng.random() < 0.4 else None
    failure = world.merge_row(kind, key, edits, row)
    some, named = arguments(edits, kind.cls)
    returning = world.rng.random() < 0.5

    def call() -> Any:
        entity = {} if row is None else {"or_insert": made(world, kind, row)}
        return world.store.merge(kind.cls.key(*key), *some, **named, **entity, returning=returning)

    text = f"merge {kind.name} {key} {[edit.text for edit in edits]} or_insert={row and text_of(row)}"
    entity = expect(world, text, failure, call)
    if failure is None and returning:
        same(world, kind, entity, key)


def same(world: World, kind: Kind, entity: Any, key: Any) -> None:
    """Check that an entity is as it is stored."""
    row = world.rows[kind.name][key]
    found, expected = text_of(world.acting.row(entity)), text_of({name: row[name] for name in world.acting.fields})
    assert found == expected, f"{found}\n{expected}"


def patch(world: World) -> None:
    kind, key = world.kind(), world.random_key()
    values, patched, text = world.patch()
    edits = [Edit(name, name, lambda _, value=value: value) for name, value in values.items()]  # type: ignore[misc]
    failure = world.merge_row(kind, key, edits)
    call = lambda: world.store.merge(kind.cls.key(*key), *patched(kind.cls))  # noqa: E731
    expect(world, f"patch {kind.name} {key} {text}", failure, call)


def replace(world: World) -> None:
    kind, key = world.kind(), world.random_key()
    if key not in world.seen(kind):
        return
    read, row = world.store[kind.cls.key(*key)], world.random_row(*key)
    is_stale = world.rng.random() < 0.2
    if is_stale:
        edit = Edit("n", "n=7", lambda _: 7)
        assert world.merge_row(kind, key, [edit]) is None
        world.store.merge(kind.cls.key(*key), n=7)
    elif "until" in row and read.until is not None and world.rng.random() < 0.4:  # (it ends before it is written)
        world.time = max(world.time, read.until)
    elif world.rng.random() < 0.2:
        tick(world)
    old = world.seen(kind).get(key)
    failure: Failure | None = tm.EntityNotFound if old is None else tm.PreconditionFailed
    if old is not None and not is_stale:
        failure = world.put(kind, world.stored(kind, row, old))
    changes = {name: value for name, value in row.items() if name not in ("user", "id")}
    if kind.stamps:
        del changes["stamp"]
    text = f"replace {kind.name} {text_of(row)} stale={is_stale}"
    expect(world, text, failure, lambda: world.store.replace(read.replace(**changes)))


def update(world: World) -> None:
    """Change an entity by a function: what stays as it is, is not written."""
    kind, key, edits = world.kind(), world.random_key(), world.some_edits()
    old = world.seen(kind).get(key)
    keeps = world.rng.random() < 0.3
    failure: Failure | None = tm.EntityNotFound
    values: Row = {}
    if old is not None:
        with suppress(Refused):
            values = {edit.field: edit.apply(old)[edit.field] for edit in edits if edit.field != "until"}
        after = old if keeps else old | values
        failure = None
        if text_of(after) != text_of(old):
            failure = world.put(kind, world.stored(kind, after, after))

    def change(entity: Any) -> Any:
        return entity if keeps else entity.replace(**values)

    text = f"update {kind.name} {key} {values} keeps={keeps}"
    expect(world, text, failure, lambda: world.store.update(kind.cls.key(*key), change))


def delete(world: World) -> None:
    kind, key = world.kind(), world.random_key()
    failure = None if key in world.seen(kind) else tm.EntityNotFound
    if failure is None:
        del world.rows[kind.name][key]
    expect(world, f"delete {kind.name} {key}", failure, lambda: world.store.delete(kind.cls.key(*key)))


def rekey(world: World) -> None:
    """Move an entity to another key of its partition, in whose way what has ended does not stand."""
    kind, key = world.kind(), world.random_key()
    if key not in world.seen(kind):
        return
    read, other = world.store[kind.cls.key(*key)], (key[0], world.rng.choice([id for id in IDS if id != key[1]]))
    failure: Failure | None = tm.EntityExists
    if other not in world.seen(kind):
        row = world.rows[kind.name].pop(key) | {"id": other[1]}
        failure = world.put(kind, world.stored(kind, row, row))
    text = f"move {kind.name} {key} to {other}"
    expect(world, text, failure, lambda: world.store.move(read, kind.cls.key(*other)))


# ---------------------------------------------------------------------------------------------- in transactions


def transaction(world: World) -> None:
    """Insert and merge in a transaction, or let `run` do so while another program writes before its end."""
    rng, kind = world.rng, world.kind()
    one, other = _several(world, 2)
    if (seen := sorted(world.seen(kind))) and rng.random() < 0.6:  # (of one that is there, most often)
        user, id = rng.choice(seen)
        one, other = [row | {"user": user} for row in (one, other)]
        other["id"] = id
        one["id"] = rng.choice([free for free in IDS if free != id])
    key = other["user"], other["id"]
    returning, runs = rng.random() < 0.6, rng.random() < 0.6
    made_row = other if rng.random() < 0.5 else None
    edits = [edit for edit in world.some_edits() if edit.field != "mail"] or [Edit("n", "n=9", lambda _: 9)]
    rival = _rival(world, kind, key, edits, made_row) if runs and returning else None

    def work() -> Failure | None:
        # (A merge that returns reads at once; of what is written at the end, any may fail first.)
        failures = [world.insert_row(kind, one), world.merge_row(kind, key, edits, made_row)]
        failed = [failure for failure in failures if failure is not None]
        if not failed:
            return None
        return (
            failures[1]
            if returning and failures[1] is not None
            else failed[0]
            if len(failed) == 1
            else tm.TableMapperError
        )

    failure = attempted(world, kind, work)
    some, named = arguments(edits, kind.cls)
    answers: list[Any] = []
    pending = [rival] if rival is not None else []

    def call(tx: Any) -> None:
        entity = {} if made_row is None else {"or_insert": made(world, kind, made_row)}
        answers.append(tx.merge(kind.cls.key(*key), *some, **named, **entity, returning=returning))
        if pending:
            _write_beside(pending.pop(), kind, key)
        tx.insert(made(world, kind, one))

    def block() -> None:
        if runs:
            world.store.run(call)
            return
        with world.store.transaction() as tx:
            call(tx)

    text = f"{'run' if runs else 'transaction'} {kind.name} merge {key} {[edit.text for edit in edits]} or_insert="
    text += f"{made_row and text_of(made_row)} returning={returning} raced={rival is not None} insert {text_of(one)}"
    expect(world, text, failure, block)
    if failure is None and returning:
        same(world, kind, answers[-1], key)


def _rival(world: World, kind: Kind, key: Key, edits: Sequence[Edit], made_row: Row | None) -> Program | None:
    """Return the program that writes between a read and the end of a transaction, by chance; what it writes is there."""
    others = [one for one in world.programs if one is not world.acting and kind.name in one.kinds]
    if not others or world.rng.random() < 0.2:
        return None
    before = dict(world.rows[kind.name])
    reads = world.merge_row(kind, key, edits, made_row) is None
    world.rows[kind.name] = before
    if not reads:
        return None
    acting, world.acting = world.acting, others[0]
    world.merge_row(others[0].kinds[kind.name], key, [Edit("n", "n=77", lambda _: 77)])
    world.acting = acting
    return others[0]


def _write_beside(rival: Program, kind: Kind, key: Key) -> None:
    with suppress(tm.EntityNotFound):
        rival.store.merge(rival.kinds[kind.name].cls.key(*key), n=77)


# ---------------------------------------------------------------------------------------------- by query


def update_many(world: World) -> None:
    """Change a partition by query, which fails as a whole."""
    kind, user, least = world.kind(), world.rng.choice(USERS), world.rng.randrange(4)
    if patched := world.rng.random() < 0.25:
        values, patch_of, text = world.patch()
        values.pop("mail", None)
        edits = [Edit(name, name, lambda _, value=value: value) for name, value in values.items()]  # type: ignore[misc]
        if "mail" in text:
            return
    else:
        edits = [edit for edit in world.some_edits() if edit.field != "mail"]
        text = f"{[edit.text for edit in edits]}"
    if not edits:
        return
    chosen = [key for key, row in world.seen(kind).items() if key[0] == user and row["n"] >= least]
    rows = world.rows[kind.name]
    failure: Failure | None = None
    try:
        after = {key: edited(rows[key], edits) for key in chosen}
        rows |= {key: world.stored(kind, row, row) for key, row in after.items()}
    except Refused:
        failure = tm.InvalidEntity
    query = world.store.query(kind.cls).where(kind.cls.user == user)
    query = query.where(kind.cls.n >= least) if least else query  # (no number is below 0)

    def call() -> None:
        some, named = ([*patch_of(kind.cls)], {}) if patched else arguments(edits, kind.cls)
        assert query.update(*some, **named) == len(chosen)

    expect(world, f"query.update {kind.name} {user} {least} {text}", failure, call)


def delete_many(world: World) -> None:
    kind, least = world.kind(), world.rng.randrange(2, 9)
    for key in [key for key, row in world.seen(kind).items() if row["n"] >= least]:
        del world.rows[kind.name][key]
    query = world.store.query(kind.cls).where(kind.cls.n >= least).allow_scan()
    expect(world, f"query.delete {kind.name} {least}", None, query.delete)


def move(world: World) -> None:
    """Move what a partition has to another class, to another user, or some of it."""
    rng, kind = world.rng, world.kind()
    target, least = rng.choice(list(world.acting.kinds.values())), rng.randrange(4)
    ends = [row["until"] for row in world.seen(target).values() if row["until"] is not None]
    if target.expires and ends and rng.random() < 0.4:  # (in the way of what moves)
        world.time = max(world.time, min(ends))
    user = rng.choice(sorted({user for user, _ in world.seen(kind)}) or USERS)
    others = [one for one in USERS if one != user]
    elsewhere, only = rng.choice(others), rng.choice([None, 2])
    copies = rng.random() < 0.5
    by_class = target is not kind and rng.random() < 0.4
    names = [name for name in world.acting.fields if not (kind.stamps and name == "stamp")]

    def entity(one: Any) -> Any:
        if only is not None and one.n % only:
            return None
        if target is kind and copies:
            return one.replace(user=elsewhere)
        values = {name: getattr(one, name) for name in names}
        return target.cls(**(values if target is not kind else values | {"user": elsewhere}))

    sources = [row for row in world.seen(kind).values() if row["user"] == user and row["n"] >= least]
    if not by_class:
        sources = [row for row in sources if only is None or not row["n"] % only]
    bound = world.unique and target is kind and not world.features.across
    failure: Failure | None = tm.InvalidQuery if bound and sources else None
    before, before_targets = dict(world.rows[kind.name]), dict(world.rows[target.name])
    failures: list[Failure] = [failure] if failure else []
    for row in sources if failure is None else ():
        del world.rows[kind.name][row["user"], row["id"]]
    for row in sources if failure is None else ():
        new = row if target is not kind else row | {"user": elsewhere}
        there = world.seen(target).get((new["user"], new["id"]))
        ignored = {"stamp": 0} if target.stamps else {}
        if there is not None and text_of(there | ignored) == text_of(new | ignored):
            continue
        if there is not None:
            failures.append(tm.EntityExists)
        elif (failed := world.put(target, new | ({"stamp": world.stamp} if target.stamps else {}))) is not None:
            failures.append(failed)
    if failures:
        world.rows[kind.name], world.rows[target.name] = before, before_targets
        failure = failures[0] if len(set(failures)) == 1 else tm.TableMapperError
    query = world.store.query(kind.cls).where(kind.cls.user == user, kind.cls.n >= least)
    to = target.cls if by_class else entity

    def call() -> None:
        assert query.move_to(to) == len(sources)

    text = (
        f"move_to {kind.name} {user} {least} to {'class' if by_class else 'function'} {target.name} {elsewhere} {only}"
    )
    expect(world, text, failure, call)
    if failures:
        settle(world, target)


def settle(world: World, kind: Kind) -> None:
    """Take what has ended for gone where it is gone."""
    there = stored_keys(world, kind)
    rows = world.rows[kind.name]
    gone = rows.keys() - there
    assert all(kind.expires and world.ended(rows[key]) for key in gone), gone
    world.rows[kind.name] = {key: row for key, row in rows.items() if key in there}


def stored_keys(world: World, kind: Kind) -> set[Any]:
    """Return the keys of all that is stored: what was there before time began is not there for its end."""
    time, world.time = world.time, world.time - timedelta(days=1_000)
    try:
        return {(one.user, one.id) for one in world.store.query(kind.cls).allow_scan()}
    finally:
        world.time = time


# ---------------------------------------------------------------------------------------------- classes, time


def expire(world: World) -> None:
    rng, kinds = world.rng, world.acting.kinds
    ending = [kind for kind in kinds.values() if kind.expires]
    limit = rng.choice([None, None, 0, 1, 2])
    of = rng.choice([None, *ending])
    if not ending:
        return
    number = world.store.expire(of and of.cls, limit=limit)
    world.log.append(f"{world.time} expire {of and of.name} {limit} -> {number}")
    chosen = ending if of is None else [of]
    ended = gone = 0
    for kind in chosen:
        ended += sum(map(world.ended, world.rows[kind.name].values()))
        before = len(world.rows[kind.name])
        settle(world, kind)
        gone += before - len(world.rows[kind.name])
    assert number == gone == (ended if limit is None else min(limit, ended))


def clear(world: World) -> None:
    kind = world.kind()
    world.log.append(f"clear {kind.name}")
    assert world.store.clear(kind.cls) == len(world.rows[kind.name])
    world.rows[kind.name] = {}


def copy(world: World) -> None:
    """Copy a class to a store of its own, which has all its rows."""
    kind = world.kind()
    world.log.append(f"copy {kind.name}")
    with tm.open(":memory:", models=kind.classes) as other:
        assert tm.copy(world.store, other, only=[kind.cls]).inserted == len(world.rows[kind.name])
        assert other.check().ok


def tick(world: World) -> None:
    """Let time go on: to a moment at which something ends, or just before."""
    rows = [row for rows in world.rows.values() for row in rows.values()]
    ends = [row["until"] for row in rows if row["until"] is not None and row["until"] > world.time]
    near = world.rng.choice([*ends, world.time + MINUTE])
    world.time = near - world.rng.choice([timedelta(0), timedelta(0), timedelta(microseconds=1)])
    world.log.append(f"tick {world.time}")


def reopen(world: World) -> None:
    world.log.append("reopen")
    world.reopen(world.acting)


def use(world: World) -> None:
    """Open a variant."""
    kind = world.acting.declared.item.variant(world.rng.choice("12"))
    world.log.append(f"use {kind.name}")
    world.store.use(*kind.classes)
    world.acting.kinds[kind.name] = kind
    world.rows.setdefault(kind.name, {})


def drop(world: World) -> None:
    """Drop a variant, which may come back, empty."""
    variants = [kind for kind in world.acting.kinds.values() if kind.name[-1].isdigit()]
    if not variants:
        use(world)
        return
    kind = world.rng.choice(variants)
    world.log.append(f"drop {kind.name}")
    world.store.drop(kind.cls)
    del world.acting.kinds[kind.name], world.rows[kind.name]
    with pytest.raises((tm.SchemaMismatch, tm.InvalidEntity)):
        world.store.get(kind.cls.key("a", "1"))


STEPS: list[Callable[[World], None]] = [
    insert, insert_many, upsert, upsert_many, merge, merge, merge, patch, replace, rekey, update, delete, transaction,
    transaction, update_many, update_many, delete_many, tick, tick,
]  # fmt: skip
NEWER: list[Callable[[World], None]] = [move, move, expire]
GROWING: list[Callable[[World], None]] = [use, drop, reopen, copy, clear]
