"""Fields that each write sets: by every verb, on every engine, and by nothing that is no verb."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.service import GetEntity, GroupTransaction
from tablemapper.entities.entity import key_of

from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that goes on by a second whenever it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> datetime:
        self.asked += 1
        return self.now

    @property
    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.asked)


CLOCK = Clock()


class Stamped(tm.Entity):
    updated: tm.Field[datetime] = tm.field(on_write=CLOCK)

    by_updated = tm.Index[datetime](partition="all", row="{updated}", include=("n",))


class Doc(Stamped, table="Docs"):
    site: tm.Field[str]
    id: tm.Field[str]
    n: tm.Field[int] = tm.field(default=0)
    note: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, str](partition="{site}", row="{id}")
    newest_of = tm.Index[int, datetime](partition="{n}", row="{updated:desc}")


class Latest(tm.Aggregate, of=Doc, table="Latest"):
    site: tm.Field[str] = tm.group_by(Doc.site)
    docs: tm.Field[int] = tm.count()
    last: tm.Field[datetime | None] = tm.max(Doc.updated)

    key = tm.Key[str](partition="{site}")


class Ruled(tm.Entity, table="Ruleds"):
    id: tm.Field[str]
    n: tm.Field[int] = tm.field(default=0)
    updated: tm.Field[datetime] = tm.field(on_write=CLOCK)
    copied: tm.Field[datetime | None] = tm.field(default=None)

    key = tm.Key[str](partition="{id}")

    def __attrs_post_init__(self) -> None:
        self.copied = self.updated


MODELS: list[type[tm.Record]] = [Doc, Latest, Ruled]
PLACES: dict[str, Callable[[], Any]] = {"file": lambda: ":memory:", "account": AzurePlace}


@pytest.fixture(params=sorted(PLACES))
def store(request: pytest.FixtureRequest) -> Iterator[tm.Store]:
    with tm.open(PLACES[request.param](), models=MODELS) as opened:
        yield opened
        opened.sweep()
        report = opened.check()
        assert report.ok, str(report)


def in_transaction(work: Callable[[tm.Transaction], Any]) -> Callable[[tm.Store], None]:
    def write(store: tm.Store) -> None:
        with store.transaction() as tx:
            work(tx)

    return write


KEY = Doc.key("Oslo", "a")
WRITES: dict[str, Callable[[tm.Store], Any]] = {
    "replace": lambda store: store.replace(store[KEY].replace(n=5)),
    "replace of any version": lambda store: store.replace(Doc("Oslo", "a", 5), if_match="*"),
    "merge": lambda store: store.merge(KEY, n=5),
    "merge of a version": lambda store: store.merge(KEY, n=5, if_match=tm.info(store[KEY]).etag),
    "merge of a sum": lambda store: store.merge(KEY, Doc.n.add(4)),
    "merge that returns": lambda store: store.merge(KEY, n=5, returning=True),
    "merge or insert": lambda store: store.merge(KEY, n=5, or_insert=Doc("Oslo", "a")),
    "upsert": lambda store: store.upsert(Doc("Oslo", "a", 5)),
    "upsert that merges": lambda store: store.upsert(Doc("Oslo", "a", 5), merge=True),
    "update": lambda store: store.update(KEY, lambda doc: doc.replace(n=5)),
    "upsert_many": lambda store: store.upsert_many([Doc("Oslo", "a", 5)]),
    "upsert_columns": lambda store: store.upsert_columns(Doc, {"site": ["Oslo"], "id": ["a"], "n": [5]}),
    "replace_many": lambda store: store.replace_many([store[KEY].replace(n=5)]),
    "query.update": lambda store: store.query(Doc).where(Doc.site == "Oslo").update(n=5),
    "query.update of a sum": lambda store: store.query(Doc).where(Doc.site == "Oslo").update(Doc.n.add(4)),
    "query.update by a function": lambda store: store.query(Doc).where(Doc.site == "Oslo").update(
        lambda doc: doc.replace(n=5)
    ),
    "tx.replace": in_transaction(lambda tx: tx.replace(tx[KEY].replace(n=5))),
    "tx.merge": in_transaction(lambda tx: tx.merge(KEY, n=5)),
    "tx.merge that returns": in_transaction(lambda tx: tx.merge(KEY, n=5, returning=True)),
    "tx.upsert": in_transaction(lambda tx: tx.upsert(Doc("Oslo", "a", 5))),
    "run": lambda store: store.run(lambda tx: tx.merge(KEY, n=5)),
}  # fmt: skip
INSERTS: dict[str, Callable[[tm.Store], Any]] = {
    "insert": lambda store: store.insert(Doc("Oslo", "a", 5)),
    "insert_many": lambda store: store.insert_many([Doc("Oslo", "a", 5)]),
    "insert_columns": lambda store: store.insert_columns(Doc, {"site": ["Oslo"], "id": ["a"], "n": [5]}),
    "upsert": lambda store: store.upsert(Doc("Oslo", "a", 5)),
    "upsert that merges": lambda store: store.upsert(Doc("Oslo", "a", 5), merge=True),
    "merge or insert": lambda store: store.merge(KEY, n=5, or_insert=Doc("Oslo", "a")),
    "tx.insert": in_transaction(lambda tx: tx.insert(Doc("Oslo", "a", 5))),
    "move": lambda store: (
        store.insert(doc := Doc("Oslo", "x", 5)), CLOCK(), store.move(doc, KEY)
    ),
}  # fmt: skip


def check_written(store: tm.Store, before: datetime) -> None:
    """Check that an entity and what is maintained from it have a time after another one."""
    store.sweep()
    doc = store[KEY]
    assert (doc.n, doc.updated > before) == (5, True)
    assert [(one.id, one.updated) for one in store.query(Doc.by_updated())] == [("a", doc.updated)]
    assert [one.updated for one in store.query(Doc.newest_of(5))] == [doc.updated]
    assert store.group(Latest.key("Oslo")).last == doc.updated


@pytest.mark.parametrize("verb", WRITES)
def test_each_verb_that_changes_an_entity_sets_it(store: tm.Store, verb: str) -> None:
    store.insert(Doc("Oslo", "a", 1, "old"))
    CLOCK()
    before = CLOCK.now
    WRITES[verb](store)
    check_written(store, before)


@pytest.mark.parametrize("verb", INSERTS)
def test_each_verb_that_stores_a_new_entity_sets_it(store: tm.Store, verb: str) -> None:
    before = CLOCK.now
    INSERTS[verb](store)
    check_written(store, before)


@pytest.mark.needs("all_or_none_load")
def test_an_atomic_load_sets_it() -> None:
    with tm.open(":memory:", models=MODELS) as store:
        docs = [Doc("Oslo", id) for id in "ab"]
        before = CLOCK.now
        store.insert_many(docs, atomic=True)
        assert all(doc.updated > before for doc in store.query(Doc).allow_scan())
        assert store.check().ok


def test_an_entity_has_what_was_stored_of_it(store: tm.Store) -> None:
    store.insert(doc := Doc("Oslo", "a"))
    assert store[KEY] == doc
    doc.n = 2
    store.replace(doc)
    assert store[KEY] == doc
    store.insert_many([second := Doc("Oslo", "b")])
    assert store[Doc.key("Oslo", "b")] == second
    assert store.merge(KEY, n=3, returning=True) == store[KEY]
    with store.transaction() as tx:
        merged = tx.merge(KEY, n=4, returning=True)
        tx.merge(Doc.key("Oslo", "b"), n=4)
        later = tx[Doc.key("Oslo", "b")].updated
    assert (store[KEY], store[Doc.key("Oslo", "b")].updated) == (merged, later)


def test_each_entity_of_a_bulk_write_has_a_time_of_its_own(store: tm.Store) -> None:
    store.insert_columns(Doc, {"site": ["Oslo"] * 3, "id": ["a", "b", "c"]})
    assert len({doc.updated for doc in store.query(Doc).allow_scan()}) == 3
    store.query(Doc).where(Doc.site == "Oslo").update(n=5)
    assert len({doc.updated for doc in store.query(Doc).allow_scan()}) == 3


def test_what_or_insert_names_is_not_changed(store: tm.Store) -> None:
    doc = Doc("Oslo", "a")
    before = doc.updated
    store.merge(KEY, n=5, or_insert=doc)
    assert (doc.updated, doc.n) == (before, 0)
    assert store[KEY].updated > before


def test_what_would_change_nothing_else_is_no_change(store: tm.Store) -> None:
    store.insert(Doc("Oslo", "a", 5))
    stored = store[KEY]
    assert store.update(KEY, lambda doc: doc) == stored
    assert store.update(KEY, lambda doc: Doc("Oslo", "a", 5)) == stored
    assert store.query(Doc).where(Doc.n == 5).update(lambda doc: doc.replace(n=5)) == 0
    assert (store[KEY], tm.info(store[KEY])) == (stored, tm.info(stored))


def test_a_rule_sees_the_time_of_its_write(store: tm.Store) -> None:
    store.insert(Ruled("a"))
    for write in (
        lambda: store.replace(store[Ruled.key("a")]),
        lambda: store.merge(Ruled.key("a"), n=3),
        lambda: store.upsert(Ruled("a", 4)),
        lambda: store.insert_columns(Ruled, {"id": ["b"]}),
        lambda: store.query(Ruled).where(Ruled.id == "a").update(n=5),
    ):
        before = CLOCK.now
        write()
        for one in store.query(Ruled).allow_scan():
            assert one.copied == one.updated
        assert max(one.updated for one in store.query(Ruled).allow_scan()) > before


def test_variants_set_it_of_their_own() -> None:
    second = Doc.variant("2")
    with tm.open(":memory:", models=[second]) as store:
        store.insert(doc := second("Oslo", "a"))
        before = CLOCK.now
        store.merge(second.key("Oslo", "a"), n=3)
        store.insert_columns(second, {"site": ["Oslo"], "id": ["b"]})
        assert doc.updated <= before < min(one.updated for one in store.query(second.by_updated()))
        with pytest.raises(tm.InvalidEntity, match="it is set at each write"):
            doc.updated = BEGIN


def test_tasks_set_it() -> None:
    async def main() -> None:
        async with tm.open_async(":memory:", models=MODELS) as store:
            await store.insert(Doc("Oslo", "a"))
            before = CLOCK.now
            await store.merge(KEY, n=3)
            assert (await store[KEY]).updated > before
            before = CLOCK.now
            async with store.transaction() as tx:
                tx.merge(KEY, n=4)
            await store.insert_many([Doc("Oslo", "b")])
            await store.query(Doc).where(Doc.site == "Oslo").update(n=7)
            assert all([doc.updated > before async for doc in store.query(Doc).allow_scan()])

    asyncio.run(main())


# ---------------------------------------------------------------------------------------------- who else gives it


def test_the_constructor_gives_it_a_value_and_takes_one_by_name_alone() -> None:
    before = CLOCK.now
    doc = Doc("Oslo", "a")
    assert doc.updated > before
    assert Doc("Oslo", "a", updated=BEGIN).updated == BEGIN  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Doc("Oslo", "a", 0, None, BEGIN)  # type: ignore[call-arg]
    assert tm.from_json(Doc, tm.to_json(doc)) == doc
    assert tm.from_dict(Doc, {"site": "Oslo", "id": "a"}).updated > doc.updated
    assert tm.json_schema(Doc)["properties"]["updated"]["readOnly"] is True
    assert "updated" not in tm.json_schema(Doc)["required"]
    assert "updated" not in tm.json_schema(Doc, patch=True)["properties"]
    with pytest.raises(tm.InvalidEntity, match="patch of Doc: updated: it is set at each write, by on_write="):
        tm.patch(Doc, {"updated": "2026-01-01T00:00:00Z"})


def test_nobody_else_assigns_it(store: tm.Store) -> None:
    store.insert(doc := Doc("Oslo", "a"))
    updated = doc.updated
    fault = "updated: it is set at each write, by on_write="
    for assign in (
        lambda: setattr(doc, "updated", BEGIN),
        lambda: doc.replace(updated=BEGIN),
        lambda: doc.replace(Doc.updated.set(BEGIN)),
        lambda: store.merge(KEY, updated=BEGIN),
        lambda: store.merge(KEY, Doc.updated.set(BEGIN)),
        lambda: store.query(Doc).where(Doc.site == "Oslo").update(updated=BEGIN),
    ):
        with pytest.raises(tm.InvalidEntity) as raised:
            assign()
        assert str(raised.value).endswith(fault)
    assert (doc.updated, store[KEY].updated) == (updated, updated)


def test_what_it_gives_is_checked(store: tm.Store) -> None:
    answers: list[Any] = [1, 1]

    class Counted(tm.Entity, table="Counteds"):
        id: tm.Field[str]
        n: tm.Field[Annotated[int, msgspec.Meta(ge=0)]] = tm.field(on_write=lambda: answers[0])
        m: tm.Field[int] = tm.field(default=0)
        key = tm.Key[str](partition="{id}")

    with tm.open(":memory:", models=[Counted]) as own:
        own.insert(one := Counted("a"))
        for wrong, fault in ((-1, "expected int >= 0"), ("x", "expected int, got str")):
            answers[0] = wrong
            for write in (
                lambda: own.replace(one),
                lambda: own.merge(Counted.key("a"), m=1),
                lambda: own.insert_columns(Counted, {"id": ["b"], "n": [1]}),
                lambda: own.query(Counted).allow_scan().update(m=2),
                lambda: own.upsert_many([one]),
            ):
                with pytest.raises(tm.InvalidEntity, match=f"^Counted.n: on_write=: .*{fault}"):
                    write()
        assert [(row.n, row.m) for row in own.query(Counted).allow_scan()] == [(1, 0)]


def test_columns_that_hold_it_are_not_what_is_stored(store: tm.Store) -> None:
    store.insert_columns(Doc, {"site": ["Oslo"], "id": ["a"], "updated": [BEGIN]})
    assert store[KEY].updated > BEGIN


def test_a_text_may_not_be_too_long() -> None:
    answers = ["ann"]

    class Signed(tm.Entity, table="Signeds"):
        id: tm.Field[str]
        n: tm.Field[int] = tm.field(default=0)
        by: tm.Field[str] = tm.field(on_write=lambda: answers[0])
        key = tm.Key[str](partition="{id}")

    with tm.open(":memory:", models=[Signed]) as own:
        own.insert(Signed("a"))
        answers[0] = "bob"
        own.query(Signed).allow_scan().update(n=1)
        assert own[Signed.key("a")].by == "bob"
        answers[0] = "x" * 40_000
        with pytest.raises(tm.EntityTooLarge):
            own.query(Signed).allow_scan().update(n=2)
        with pytest.raises(tm.EntityTooLarge):
            own.merge(Signed.key("a"), Signed.n.add(1))
        assert own[Signed.key("a")].n == 1


def test_a_value_may_be_none_for_a_write() -> None:
    answers: list[str | None] = ["x"]

    class Told(tm.Entity, table="Tolds"):
        id: tm.Field[str]
        by: tm.Field[str | None] = tm.field(on_write=lambda: answers[0])
        n: tm.Field[int] = tm.field(default=0)
        key = tm.Key[str](partition="{id}")

    for place in PLACES.values():
        with tm.open(place(), models=[Told]) as own:
            for write in (
                lambda: own.upsert(Told("a", 1), merge=True),
                lambda: own.merge(Told.key("a"), n=2),
                lambda: own.query(Told).where(Told.id == "a").update(n=3),
            ):
                answers[0] = "x"
                own.upsert(Told("a"))
                answers[0] = None
                write()
                assert own[Told.key("a")].by is None


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"on_write": CLOCK, "default": BEGIN}, "at: on_write= gives the value; give no default, factory or validator"),
        ({"on_write": CLOCK, "factory": CLOCK}, "at: on_write= gives the value; give no default, factory or validator"),
        ({"on_write": 5}, "at: on_write=5 cannot be called; give a function, as in on_write=now"),
        ({"factory": CLOCK, "init": False}, "at: init= is not an option of a field"),
    ],
)  # fmt: skip
def test_faults_of_a_declaration_are_told(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(tm.InvalidModel) as raised:

        class Faulty(tm.Entity, table="Faulties"):
            id: tm.Field[str]
            at: tm.Field[datetime] = tm.field(**options)
            key = tm.Key(partition="{id}")

    assert str(raised.value) == f"Faulty: {fault}"


def test_it_is_not_in_a_key() -> None:
    with pytest.raises(tm.InvalidModel) as raised:

        class Faulty(tm.Entity, table="Faulties"):
            id: tm.Field[str]
            at: tm.Field[datetime] = tm.field(on_write=CLOCK)
            key = tm.Key(partition="{id}", row="{at}")

    assert str(raised.value) == (
        "Faulty: key row=: {at} is set at each write, and a key stays as it is; an index can be made of it"
    )


# ---------------------------------------------------------------------------------------------- what is no verb


@pytest.mark.needs("free_space")
def test_copies_repairs_and_builds_leave_it(tmp_path: Path) -> None:
    class Plain(tm.Entity, table="Docs"):
        updated: tm.Field[datetime]
        site: tm.Field[str]
        id: tm.Field[str]
        n: tm.Field[int] = tm.field(default=0)
        note: tm.Field[str | None] = tm.field(default=None)
        key = tm.Key[str, str](partition="{site}", row="{id}")

    Plain.__name__ = "Doc"
    path = tmp_path / "docs.db"
    with tm.open(path, models=[Plain]) as store:  # (as an older version of the program has it)
        store.insert(Plain(BEGIN, "Oslo", "a"))
    asked = CLOCK.asked
    with tm.open(path, models=MODELS) as store, tm.open(AzurePlace(), models=MODELS) as account:
        store.build()
        assert [doc.updated for doc in store.query(Doc.by_updated())] == [BEGIN]
        assert store.group(Latest.key("Oslo")).last == BEGIN
        store.repair()
        store.compact()
        tm.copy(store, account)
        store.backup(tmp_path / "backup.db")
        assert (store[KEY].updated, account[KEY].updated) == (BEGIN, BEGIN)
        assert CLOCK.asked == asked
        store.merge(KEY, n=2)
        assert store[KEY].updated > BEGIN
    with tm.open(tmp_path / "backup.db", models=MODELS) as store:
        assert store[KEY].updated == BEGIN


def test_an_older_version_beside_leaves_the_value(tmp_path: Path) -> None:
    class OldRuled(tm.Entity, table="Ruleds"):
        id: tm.Field[str]
        n: tm.Field[int] = tm.field(default=0)
        updated: tm.Field[datetime] = tm.field(kw_only=True)
        copied: tm.Field[datetime | None] = tm.field(default=None)
        key = tm.Key[str](partition="{id}")

    OldRuled.__name__ = "Ruled"
    path = tmp_path / "docs.db"
    with tm.open(path, models=[Ruled]) as store:
        store.insert(one := Ruled("a"))
        old: Any = tm.open(path, models=[OldRuled])
        old.merge(OldRuled.key("a"), n=5)
        assert (store[Ruled.key("a")].n, store[Ruled.key("a")].updated) == (5, one.updated)
        old.close()


def test_a_merge_of_constants_on_an_account_reads_nothing() -> None:
    class Lean(tm.Entity, table="Leans"):
        id: tm.Field[str]
        n: tm.Field[int] = tm.field(default=0)
        updated: tm.Field[datetime] = tm.field(on_write=CLOCK)
        key = tm.Key[str](partition="{id}")

    memory = Memory()
    with tm.open(AzurePlace(memory=memory), models=[Lean]) as store:
        store.insert(Lean("a"))
        before, sent = CLOCK.now, len(memory.sent)
        store.merge(Lean.key("a"), n=3)
        requests = [request for request in memory.sent[sent:] if isinstance(request, GetEntity | GroupTransaction)]
        assert [type(request).__name__ for request in requests] == ["GroupTransaction"]
        assert (store[Lean.key("a")].n, store[Lean.key("a")].updated > before) == (3, True)


class Wide(Stamped, table="Wides"):
    """With an index of each kind over what writes set, in a base or in its own body."""

    site: tm.Field[str]
    id: tm.Field[str]
    n: tm.Field[int] = tm.field(default=0)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, str](partition="{site}", row="{id}")
    by_tag = tm.Index[str, datetime](partition="{tags}", row="{updated:desc}")
    of_site = tm.Index[str, datetime](partition="{site}", row="{updated}", unique=True, include="all")
    odd = tm.Index[int, datetime](partition="{n}", row="{updated}", where=lambda wide: wide.n > 1)


class LatestWide(tm.Aggregate, of=Wide, table="LatestWides"):
    site: tm.Field[str] = tm.group_by(Wide.site)
    first: tm.Field[datetime | None] = tm.min(Wide.updated)
    last: tm.Field[datetime | None] = tm.max(Wide.updated)

    key = tm.Key[str](partition="{site}")


def random_write(rng: random.Random, store: tm.Store, stored: dict[Any, Any]) -> tuple[set[Any], datetime]:
    """Write some entities by any verb; return their keys, and the time before."""
    key = Wide.key(rng.choice(("Oslo", "Rome")), rng.choice("abcd"))
    wide = Wide(*key[1:], rng.randrange(4), rng.sample("xyz", rng.randrange(3)))
    second = Wide("Kyiv", rng.choice("ab"), 1, ["x"])
    etag = tm.info(store[key]).etag if key in stored else None
    before = CLOCK.now
    verbs: list[Callable[[], Any]] = [
        lambda: store.upsert(wide),
        lambda: store.upsert(wide, merge=True),
        lambda: store.upsert_many([wide, second]),
        lambda: store.upsert_columns(Wide, {name: [getattr(wide, name)] for name in ("site", "id", "n", "tags")}),
        lambda: store.merge(key, n=wide.n, or_insert=wide),
        lambda: in_transaction(lambda tx: tx.upsert(wide))(store),
    ]
    if key in stored:
        verbs += [
            lambda: store.merge(key, Wide.n.add(1)),
            lambda: store.merge(key, n=wide.n, if_match=etag),
            lambda: store.replace(store[key].replace(tags=wide.tags)),
            lambda: store.replace(wide, if_match="*"),
            lambda: store.replace_many([store[key].replace(n=wide.n)]),
            lambda: store.update(key, lambda one: one.replace(n=one.n + 1)),
            lambda: store.query(Wide).where(Wide.site == wide.site, Wide.id == wide.id).update(n=Wide.n * 2),
            lambda: store.run(lambda tx: tx.merge(key, n=7, returning=True).n),
            lambda: store.delete(key),
        ]
        if (free := Wide.key(wide.site, "m")) not in stored:
            verbs.append(lambda: store.move(store[key], free))
    else:
        verbs += [
            lambda: store.insert(wide),
            lambda: store.insert_many([wide]),
            lambda: in_transaction(lambda tx: tx.insert(wide))(store),
        ]
    rng.choice(verbs)()
    return {key, second.key, Wide.key(wide.site, "m")}, before


@pytest.mark.parametrize("place", sorted(PLACES))
@pytest.mark.parametrize("seed", range(3))
def test_random_writes_are_followed(place: str, seed: int) -> None:
    rng = random.Random(seed)
    stored: dict[Any, Any] = {}
    with tm.open(PLACES[place](), models=[Wide, LatestWide]) as store:
        for _ in range(40):
            touched, before = random_write(rng, store, stored)
            store.sweep()
            entities = list(store.query(Wide).allow_scan())
            current = {one.key: one for one in entities}
            for key in current.keys() | stored.keys():
                is_written = key in touched and (key not in current or current[key].updated > before)
                assert is_written or current.get(key) == stored.get(key)
            written_last = sorted(current, key=lambda key: current[key].updated)
            assert [key_of(one) for one in store.query(Wide.by_updated())] == written_last
            for tag in "xyz":
                times = [one.updated for one in entities if tag in one.tags]
                assert [one.updated for one in store.query(Wide.by_tag(tag))] == sorted(times, reverse=True)
            for site in ("Oslo", "Rome"):
                times = sorted(one.updated for one in entities if one.site == site)
                assert [one.updated for one in store.query(Wide.of_site(site))] == times
                group = store.group(LatestWide.key(site))
                assert (group.first, group.last) == ((times[0], times[-1]) if times else (None, None))
            stored = current
        assert store.check().ok
