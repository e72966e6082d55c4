"""A store copied into another one: a file, or an account of Azure, into either."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines import key_order
from tablemapper.engines.azure.tables.service import GetEntity, GroupTransaction, QueryEntities, RowChange
from tablemapper.progress import Meter
from tablemapper.store import copy

from ..classes import Other, entity
from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace
from .test_drop import KEPT, Title, Writer

pytestmark = pytest.mark.file


@attrs.define
class Box:
    width: float
    colors: list[str]


class User(tm.Entity, table="Users"):
    tenant: tm.Field[str]
    id: tm.Field[int]
    team: tm.Field[str]
    email: tm.Field[str | None] = tm.field(default=None)
    nick: tm.Field[str | None] = tm.field(default=None)
    score: tm.Field[float] = tm.field(default=0.0)
    extra: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, int](partition="{tenant}", row=("user", "{id}"))
    by_email = tm.Index[str](partition="{email}", row="holder", unique=True)
    by_nick = tm.Index[str, str](partition="{tenant}", row="{nick}", unique=True)
    by_team = tm.Index[str, float](partition="{team}", row="{score}")


class Best(tm.Aggregate, of=User, table="Bests"):
    team: tm.Field[str] = tm.group_by(User.team)
    users: tm.Field[int] = tm.count()
    most: tm.Field[float | None] = tm.max(User.score)
    ever: tm.Field[float | None] = tm.max_ever(User.score)

    key = tm.Key[str](partition="{team}")


class Own(tm.Aggregate, of=User, table="Users"):
    tenant: tm.Field[str] = tm.group_by(User.tenant)
    ever: tm.Field[float | None] = tm.max_ever(User.score)

    key = tm.Key[str](partition="{tenant}", row="own")
    by_ever = tm.Index[str, float](partition="{tenant}", row="{ever}")


class Thing(tm.Entity, table="Things"):
    """Every type."""

    id: tm.Field[UUID]
    at: tm.Field[datetime]
    day: tm.Field[date]
    took: tm.Field[timedelta]
    price: tm.Field[Decimal]
    blob: tm.Field[bytes]
    flag: tm.Field[bool]
    small: tm.Field[tm.Int32]
    box: tm.Field[Box]
    tags: tm.Field[dict[str, int]] = tm.field(factory=dict)
    note: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[UUID](partition="{id}")


MODELS = [User, Best, Own, Thing]


def thing(number: int) -> Thing:
    return Thing(
        UUID(int=number), datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=number), date(2024, 1, 1 + number),
        timedelta(seconds=-number), Decimal(f"{number}.50"), bytes([number]), bool(number % 2), number, Box(1.5, ["é"]),
        {"b": 1, "a": number}, None if number % 2 else "",
    )  # fmt: skip


Open = Callable[..., tm.Store]


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, Open]]:
    with ExitStack() as stack:  # (before the folder goes)

        def file(models: Any = MODELS, path: Any = ":memory:") -> tm.Store:
            return stack.enter_context(tm.open(path, models=models))

        def account(models: Any = MODELS, memory: Memory | None = None) -> tm.Store:
            return stack.enter_context(tm.open(AzurePlace(memory=memory or Memory()), models=models))  # type: ignore[arg-type]

        yield {"file": file, "account": account}


WAYS = [("file", "file"), ("file", "account"), ("account", "file"), ("account", "account")]
both_ways = pytest.mark.parametrize("way", WAYS, ids=["-".join(way) for way in WAYS])


def contents(store: tm.Store) -> list[Any]:
    entities = [one for cls in (User, Thing) for one in store.query(cls).allow_scan()]
    groups = [one for cls in (Best, Own) for one in store.query(cls).allow_scan()]
    report = store.check()
    assert report.ok, str(report)
    return sorted([tm.to_json(one) for one in (*entities, *groups)])


@both_ways
def test_a_copy_is_the_same_and_the_next_one_changes_what_differs(
    places: dict[str, Open], way: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_order, "_CHUNK", 3)
    monkeypatch.setattr(copy, "_WINDOW", 4)
    source, target = places[way[0]](), places[way[1]]()
    source.insert_many(
        User(tenant, n, "red" if n % 2 else "blue", f"{tenant}{n}@x", f"n{n}", float(n), tm.Extra({"z": 1, "a": n}))
        for tenant in ("a", "b", "ü", "\ufb00", "😀", "😀\ue000")
        for n in range(4)
    )
    source.insert_many([thing(n) for n in range(5)])
    source.delete(User.key("a", 3))
    report = tm.copy(source, target)
    assert (report.entities, report.inserted, report.changed) == (28, 28, 28)
    assert contents(target) == contents(source)
    assert tm.copy(source, target).changed == 0
    source.delete(User.key("b", 1))
    source.merge(User.key("😀", 2), score=99.0)
    source.merge(User.key("😀", 2), score=1.0)
    source.insert(User("c", 7, "red", "c7@x"))
    target.insert(User("\ufb00", 9, "red", "new@x"))
    target.delete(User.key("😀\ue000", 0))
    target.upsert(thing(4).replace(note="other"))
    report = tm.copy(source, target)
    assert (report.entities, report.inserted, report.replaced, report.deleted) == (28, 2, 2, 2)
    assert contents(target) == contents(source)
    assert target[Best.key("blue")].ever == 99.0
    assert [one.tenant for one in target.query(Own.by_ever("😀", 99.0))] == ["😀"]
    assert tm.copy(source, target).changed == 0


class Ranked(tm.Entity, table="Ranked"):
    """With an index of all entities in another order."""

    id: tm.Field[int]
    rank: tm.Field[int]

    key = tm.Key[int](partition="{id:04d}")
    best = tm.Index[int](partition="all", row="{rank}")


@both_ways
def test_entities_are_read_by_key_though_an_index_holds_all_of_them(
    places: dict[str, Open], way: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_order, "_CHUNK", 3)
    source, target = places[way[0]]([Ranked]), places[way[1]]([Ranked])
    source.insert_many(Ranked(n, -n) for n in range(20))
    target.insert_many(Ranked(n, n * 7 % 5) for n in range(4, 24))
    report = tm.copy(source, target)
    assert (report.inserted, report.deleted) == (4, 4)
    assert [(one.id, one.rank) for one in target.query(Ranked.best())] == [(n, -n) for n in reversed(range(20))]
    assert tm.copy(source, target).changed == 0


@both_ways
def test_unique_values_that_moved_are_copied_wherever_they_moved(places: dict[str, Open], way: tuple[str, str]) -> None:
    rng = random.Random(7)
    source, target = places[way[0]](), places[way[1]]()
    keys = [(tenant, n) for tenant in "ab" for n in range(4)]
    for _ in range(6):
        emails = rng.sample([f"e{n}" for n in range(8)] + [None] * 3, len(keys))
        nicks = {tenant: rng.sample(["n0", "n1", "n2", "n3", None], 4) for tenant in "ab"}
        source.delete_many(source.query(User).allow_scan())
        source.insert_many(
            User(tenant, n, "t", emails[at], nicks[tenant][n])
            for at, (tenant, n) in enumerate(keys)
            if rng.random() < 0.8
        )
        tm.copy(source, target)
        assert contents(target) == contents(source)


@pytest.mark.parametrize("stopped", range(1, 40, 4))
def test_a_copy_that_was_stopped_goes_on(
    places: dict[str, Open], stopped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "_WINDOW", 4)
    source, memory = places["file"](), Memory()
    source.insert_many(User("a", n, "red", f"{n}@x", score=float(n)) for n in range(12))
    target, send = places["account"](memory=memory), memory.send

    def stopping(request: Any) -> Any:
        if len(memory.sent) >= before + stopped:
            raise KeyboardInterrupt
        return send(request)

    before = len(memory.sent)
    monkeypatch.setattr(memory, "send", stopping)
    with pytest.raises(KeyboardInterrupt):
        tm.copy(source, target)
    monkeypatch.setattr(memory, "send", send)
    again = places["account"](memory=memory)
    tm.copy(source, again)
    assert sorted(map(tm.to_json, again.query(User).allow_scan())) == sorted(
        map(tm.to_json, source.query(User).allow_scan())
    )


def test_a_copy_of_what_is_the_same_reads_a_thousand_entities_with_a_request(places: dict[str, Open]) -> None:
    source, memory = places["file"]([Thing]), Memory()
    source.insert_many([thing(n) for n in range(20)])
    target = places["account"]([Thing], memory)
    tm.copy(source, target)
    memory.sent.clear()
    assert tm.copy(source, target).changed == 0
    assert [type(one) for one in memory.sent if not isinstance(one, GetEntity)] == [QueryEntities]
    assert not [one for one in memory.sent if isinstance(one, GroupTransaction)]


WIDER = entity("Other", "Others", {"name": str, "more": str | None}, tm.Key[str](partition="{name}"))


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([Other, User], [Other], "User: the target was not opened with it; open both with the same classes"),
        ([Other], [Other, User], "User: the source was not opened with it"),
        ([Other], [WIDER], "different classes of this name"),
    ],
)
def test_stores_with_other_classes_are_refused_before_anything_is_written(
    places: dict[str, Open], source: Any, target: Any, message: str
) -> None:
    ours, theirs = places["file"](source), places["file"](target)
    with pytest.raises(tm.SchemaMismatch, match=message):
        tm.copy(ours, theirs)


def test_what_the_source_holds_and_was_not_opened_with_is_refused(places: dict[str, Open], tmp_path: Path) -> None:
    places["file"]([Other, User, Best, Own], tmp_path / "s.db").close()
    source = places["file"]([Other], tmp_path / "s.db")
    with pytest.raises(tm.SchemaMismatch, match="User: the source holds it, and was not opened with it"):
        tm.copy(source, places["file"]([Other]))


def test_fields_of_a_newer_version_are_not_lost(places: dict[str, Open], tmp_path: Path) -> None:
    places["file"]([WIDER], tmp_path / "s.db").close()
    source = places["file"]([Other], tmp_path / "s.db")
    with pytest.raises(
        tm.SchemaMismatch, match="Other: a store holds more, which this class does not declare; open both"
    ):
        tm.copy(source, places["file"]([Other]))


def test_an_entity_with_undeclared_properties_is_refused_the_first_time(places: dict[str, Open]) -> None:
    memory = Memory()
    source, target = places["account"]([Other], memory), places["file"]([Other])
    source.insert(Other("a"))
    memory.send(GroupTransaction("Others", "a", (RowChange("merge", "", {"color": "red"}, "*"),)))
    with pytest.raises(tm.InvalidEntity, match="color: a copy would lose properties that it does not declare"):
        tm.copy(source, target)


def test_a_file_is_copied_without_its_classes_in_the_source(places: dict[str, Open], tmp_path: Path) -> None:
    source = places["file"]([Other], tmp_path / "s.db")
    source.insert(Other("a"))
    with tm.open(tmp_path / "s.db", read_only=True) as bare:
        target = places["account"]([Other])
        assert tm.copy(bare, target).inserted == 1
    assert target.exists(Other.key("a"))


def test_a_value_that_moved_while_the_source_was_read_is_copied(
    places: dict[str, Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = places["file"](), places["account"]()
    monkeypatch.setattr(key_order, "_CHUNK", 1)
    source.insert_many([User("a", 1, "t", "e"), User("b", 1, "t")])
    reads, moved = source._engine.reads.rows, []

    def rows(*args: Any, **options: Any) -> Any:
        found = list(reads(*args, **options))
        if not moved and found and found[0][0][0] == "a":
            moved.append(1)
            source.merge(User.key("a", 1), email=None)
            source.merge(User.key("b", 1), email="e")
        return found

    monkeypatch.setattr(source._engine.reads, "rows", rows)
    tm.copy(source, target)
    assert moved
    assert contents(target) == contents(source)


def test_an_account_is_backed_up_into_a_file(places: dict[str, Open], tmp_path: Path) -> None:
    store, path = places["account"](), tmp_path / "copy.db"
    store.insert_many(User("a", n, "red", f"{n}@x", score=float(n)) for n in range(12))
    store.backup(path)
    assert contents(places["file"](path=path)) == contents(store)
    with pytest.raises(tm.StoreError, match=r'copy.db" is there already; a backup never overwrites'):
        store.backup(path)
    with pytest.raises(tm.StoreError, match="No such file or directory"):
        store.backup(tmp_path / "nowhere" / "copy.db")
    assert [one.name for one in tmp_path.iterdir() if not one.name.startswith("copy.db")] == []


def test_a_meter_hears_of_what_is_deleted_and_of_groups(places: dict[str, Open]) -> None:
    source, target, heard = places["file"](), places["file"](), list[int]()
    source.insert_many(User("a", n, f"t{n}") for n in range(5))
    target.insert_many(User("b", n, "red") for n in range(7))

    class Heard(Meter):
        def advance(self, n: int) -> None:
            heard.append(n)

    copy.copy_engine(source._engine, target._engine, Heard(None, "", None, float, list))
    assert sum(heard) == 5
    assert len(heard) >= 5 + 7 + 5  # (users, users that go, and groups)


class Book(tm.Entity, table="Books"):
    author: tm.Field[str]
    number: tm.Field[int]
    pages: tm.Field[int]
    key = tm.Key[str, int](partition="{author}", row="{number}")


class Author(tm.Entity, table="Authors"):
    author: tm.Field[str]
    books: tm.Field[int] = tm.count(of=Book)
    longest: tm.Field[int | None] = tm.max_ever(Book.pages, of=Book)
    key = tm.Key[str](partition="{author}")


def test_a_maintained_field_is_made_and_what_ever_was_is_kept(places: dict[str, Open]) -> None:
    source, target = places["file"]([Author, Book]), places["file"]([Author, Book])
    source.insert_many([Author("ann"), Book("ann", 1, 10), Book("ann", 2, 99)])
    source.delete(Book.key("ann", 2))
    assert tm.copy(source, target).inserted == 2
    assert (target[Author.key("ann")].books, target[Author.key("ann")].longest) == (1, 99)
    assert tm.copy(source, target).changed == 0
    assert target.check().ok


@both_ways
def test_some_classes_are_copied_with_what_is_maintained_from_them(
    places: dict[str, Open], way: tuple[str, str]
) -> None:
    """What only one of the stores has of others is not looked at, and stays."""
    source, target = places[way[0]]([*MODELS, Other]), places[way[1]]([*MODELS, *KEPT])
    source.insert_many([User("a", n, "red", f"m{n}", score=float(n)) for n in range(5)])
    source.merge(User.key("a", 4), score=1.0)
    source.insert(thing(1))
    target.insert_many([User("a", 1, "red", "m4"), User("b", 1, "red"), thing(7), Title("ada", "t")])
    report = tm.copy(source, target, only=[User])
    assert (report.entities, report.inserted, report.replaced, report.deleted) == (5, 4, 1, 1)
    assert [one.id for one in target.query(Thing).allow_scan()] == [UUID(int=7)]
    assert target.get(Title.key("ada", "t")) is not None
    for cls in (User, Best):
        ours, theirs = ([tm.to_json(one) for one in store.query(cls).allow_scan()] for store in (source, target))
        assert ours == theirs
    assert target[Best.key("red")].ever == target[Own.key("a")].ever == 4.0
    assert target.check().ok
    assert tm.copy(source, target, only=[User, Thing]).changed == 2
    assert tm.copy(source, target, only=(Thing, User)).changed == 0


def test_a_class_alone_needs_no_other_class_in_either_store(places: dict[str, Open], tmp_path: Path) -> None:
    places["file"]([*MODELS], tmp_path / "s.db").close()
    source, target = places["file"]([Thing], tmp_path / "s.db"), places["account"]([Thing])
    source.insert(thing(1))
    with pytest.raises(tm.SchemaMismatch, match="User: the source holds it"):
        tm.copy(source, target)
    assert tm.copy(source, target, only=[Thing]).inserted == 1
    with pytest.raises(tm.SchemaMismatch) as refusal:
        tm.copy(source, places["file"]([Thing, Other]), only=[User, Other])
    assert "User: the source was not opened with it" in str(refusal.value)
    assert "Other: the source was not opened with it" in str(refusal.value)


def test_what_is_maintained_from_another_class_stays_as_it_is(places: dict[str, Open]) -> None:
    source, target = places["file"](KEPT), places["account"](KEPT)
    source.insert_many([Writer("ada"), Title("ada", "t"), Title("ada", "u")])
    target.insert_many([Writer("ada"), Writer("bob"), Title("ada", "t")])
    assert tm.copy(source, target, only=[Writer]).changed == 1
    assert (target[Writer.key("ada")].titles, target.get(Writer.key("bob"))) == (1, None)
    assert tm.copy(source, target, only=[Title]).changed == 1
    assert target[Writer.key("ada")].titles == 2
    assert tm.copy(places["file"]([Title]), places["file"](KEPT), only=[Title]).changed == 0
    assert target.check().ok


def test_what_cannot_be_copied_alone_is_refused_before_anything_is_written(places: dict[str, Open]) -> None:
    source, target = places["file"](), places["file"]()
    source.insert(thing(1))
    another = entity("Thing", "Others", {"id": str}, tm.Key[str](partition="{id}"))
    for wrong in ([], Thing, "Thing", [5], [Thing, "User"], {Thing}, tm.Entity, [tm.Entity]):
        with pytest.raises(TypeError, match=r"copy: only= is a list of entity classes, as in only=\[Product\]"):
            tm.copy(source, target, only=wrong)  # type: ignore[arg-type]
    cases: list[tuple[Any, str]] = [
        ([Best], "Best: it follows User; name that in only="),
        ([another], "Thing: both stores were opened with another class of this name"),
        ([Thing, Other], "Other: the source was not opened with it; open both with the classes of only="),
    ]
    for only, text in cases:
        with pytest.raises(tm.SchemaMismatch, match=text):
            tm.copy(source, target, only=only)
    with pytest.raises(tm.SchemaMismatch, match="User: the target was not opened with it"):
        tm.copy(source, places["file"]([Thing]), only=[User])
    assert target.query(Thing).allow_scan().count() == 0
    older = entity("User", "Users", {"tenant": str, "id": int}, tm.Key[str, int](partition="{tenant}", row=("user", "{id}")))  # fmt: skip
    with pytest.raises(tm.SchemaMismatch, match="User: the two stores were opened with different classes of this name"):
        tm.copy(source, places["file"]([older]), only=[User])


async def test_some_classes_are_copied_under_asyncio(tmp_path: Path) -> None:
    async with (
        tm.open_async(tmp_path / "a.db", models=MODELS) as source,
        tm.open_async(tmp_path / "b.db", models=MODELS) as target,
    ):
        await source.insert_many([thing(1), User("a", 1, "red")])
        assert (await tm.copy_async(source, target, only=[Thing])).inserted == 1
        assert await target.get(User.key("a", 1)) is None


def test_a_live_move_ends_with_two_stores_that_are_the_same(places: dict[str, Open]) -> None:
    rng, source, target = random.Random(3), places["file"](), places["account"]()
    source.insert_many(User("a", n, "red", f"{n}@x", score=float(n)) for n in range(30))

    def write() -> None:
        for _ in range(8):
            source.upsert(User("a", rng.randrange(40), rng.choice(["red", "blue"]), score=rng.random()))
            source.delete_many(source.query(User).where(User.tenant == "a", User.id == rng.randrange(40)))

    changed = []
    for _ in range(3):
        changed.append(tm.copy(source, target).changed)
        write()
    tm.copy(source, target)
    assert changed[0] == 30
    assert max(changed[1:]) <= 16
    assert contents(target) == contents(source)
