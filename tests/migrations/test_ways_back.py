"""The old version goes on reading by functions that only the script has: whoever writes with it keeps both in step."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.scripts.links import links_of
from tablemapper.scripts.steps import pairs

from ..classes import aggregate, entity
from ..sql import run_sql
from ..stores import sound_store
from .shapes import made, migrate, script, step

Grade = enum.Enum("Grade", {"NEW": "new", "USED": "used"})
KEY = tm.Key[str, int](partition="{id}", row="{number}")
FIELDS: dict[str, Any] = {"id": str, "number": int, "price": str, "grade": Grade, "maker": str | None}
INDEXES: dict[str, Any] = {
    "by_maker": tm.Index[str](partition="{maker}"),
    "by_price": tm.Index[str](partition="{price}"),
}


@attrs.define
class Money:
    whole: int
    cents: int


def totals(of: Any, maker: str = "maker") -> Any:
    members = {"maker": (str, tm.group_by(getattr(of, maker))), "parts": (int, tm.count())}
    return aggregate("Totals", of, members, tm.Key[str](partition="{maker}"))


OLD = entity("Part", "Parts", FIELDS, KEY, **INDEXES)
PRICED = entity(
    "Part", "Parts", {**FIELDS, "price": Money, "rank": int}, KEY, by_maker=tm.Index[str](partition="{maker}")
)
ITEM = entity(
    "Item", "Items", {"code": str, "place": str, "cents": int, "grade": Grade, "maker": str | None},
    tm.Key[str](partition="{code}"), by_maker=tm.Index[str](partition="{maker}"),
)  # fmt: skip


def money(text: str) -> Money:
    whole, _, cents = text.partition(".")
    return Money(int(whole), int(cents or 0))


def text_of(money: Money) -> str:
    if money.cents > 99:
        raise ValueError(f"{money.cents} cents are more than one")
    return f"{money.whole}.{money.cents:02}" if money.whole >= 0 else 7  # type: ignore[return-value]  # (a wrong one)


def priced(m: tm.Migration) -> None:
    m.drop(OLD.by_price)
    m.convert(OLD.price, PRICED.price, money, back=text_of)
    m.fill(PRICED.rank, lambda e: e.number)


def item_of(e: Any) -> Any:
    return ITEM(f"{e.id}-{e.number}", f"{e.id}/{e.number}", int(Decimal(e.price) * 100), e.grade, e.maker)


def part_of(e: Any) -> Any:
    """Return the old entity; its key is made of what is no key any more."""
    if not e.place:
        return None
    id, number = e.place.split("/")
    return OLD(id, int(number), f"{e.cents // 100}.{e.cents % 100:02}", e.grade, e.maker)


@attrs.frozen
class Case:
    new: Any
    function: Callable[[tm.Migration], None]
    back: Callable[[Any], Any]
    one: Callable[[str, int, random.Random], Any]
    key: Callable[[str, int], Any]


def one_priced(id: str, number: int, draw: random.Random) -> Any:
    money = Money(draw.randrange(99), draw.randrange(100))
    return PRICED(id, number, money, draw.choice(list(Grade)), draw.choice([None, "m1", "m2"]), draw.randrange(9))


def one_item(id: str, number: int, draw: random.Random) -> Any:
    place = "" if number % 7 == 6 else f"{id}/{number}"  # (those stand for no old one)
    return ITEM(f"{id}-{number}", place, draw.randrange(9999), draw.choice(list(Grade)), draw.choice([None, "m1"]))


CASES = {
    "convert": Case(
        PRICED, priced, lambda e: OLD(e.id, e.number, text_of(e.price), e.grade, e.maker), one_priced, PRICED.key
    ),
    "rewrite": Case(
        ITEM, lambda m: m.rewrite(OLD, item_of, into=[ITEM], back=part_of), part_of, one_item,
        lambda id, number: ITEM.key(f"{id}-{number}"),
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    draw = random.Random(3)
    with tm.open(tmp_path / "s.db", models=[OLD, totals(OLD)], durability="relaxed") as store:
        for number in range(24):
            maker = draw.choice([None, "m1", "m2"])
            store.insert(OLD(f"i{number % 4}", number, f"{number}.50", draw.choice(list(Grade)), maker))
    yield tmp_path / "s.db"


def of(case: Case) -> Any:
    return script([case.new, totals(case.new)], case.function, "first", None, [OLD, totals(OLD)])


def open_old(path: Path) -> tm.Store:
    return tm.open(path, models=[OLD, totals(OLD)], durability="relaxed")


def open_new(path: Path, case: Case, *scripts: Any) -> tm.Store:
    models = [case.new, totals(case.new)]
    return tm.open(path, models=models, migrations=scripts or None, durability="relaxed")


def same(old: tm.Store, store: tm.Store, case: Case) -> None:
    """Compare both versions with an oracle that knows nothing of tables: what back makes of each new entity."""
    expected = [back for e in store.query(case.new).allow_scan() if (back := case.back(e)) is not None]
    found = list(old.query(OLD).allow_scan())
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    for maker in ("m1", "m2"):
        mine = [e for e in expected if e.maker == maker]
        assert sorted(map(repr, old.query(OLD).where(OLD.maker == maker))) == sorted(map(repr, mine))
    counts: dict[Any, int] = {}
    for maker in [e.maker for e in expected if e.maker is not None]:
        counts[maker] = counts.get(maker, 0) + 1
    assert {t.maker: t.parts for t in old.query(totals_of(old)).allow_scan()} == counts
    assert old.check().ok
    report = store.check()
    assert (report.problems, report.unchecked) == ((), ())


def totals_of(store: tm.Store) -> Any:
    return next(model.cls for model in store._engine.schema.models if model.aggregate is not None)


def write(store: tm.Store, case: Case, draw: random.Random) -> None:
    id, number = f"i{draw.randrange(4)}", draw.randrange(40)
    new, key = case.one(id, number, draw), case.key(id, number)
    verb = draw.choice(
        ["insert", "upsert", "merge", "replace", "delete", "several", "many", "atomic", "query", "by query", "gone"]
    )
    if verb == "insert" and not store.exists(key):
        store.insert(new)
    elif verb == "upsert":
        store.upsert(new)
    elif verb == "merge" and store.exists(key):
        store.merge(key, maker=new.maker, grade=new.grade)
    elif verb == "replace" and (held := store.get(key)) is not None:
        held.maker = new.maker
        if case.new is ITEM:  # to where it is no old one, or one again
            held.place = draw.choice(["", f"{id}/{number}"])
        store.replace(held)
    elif verb == "delete" and store.exists(key):
        store.delete(key)
    elif verb == "several":
        with store.transaction(across_partitions=True) as tx:
            for at in range(number, number + 4):
                if at % 4 == 3 and store.exists(case.key(f"i{at % 4}", at)):
                    tx.delete(case.key(f"i{at % 4}", at))
                else:
                    tx.upsert(case.one(f"i{at % 4}", at, draw))
    elif verb in ("many", "atomic"):
        first = draw.randrange(100, 100_000)
        store.insert_many((case.one(id, at, draw) for at in range(first, first + 3)), atomic=verb == "atomic")
    elif verb == "query":
        maker = case.new.maker
        store.query(case.new).where(maker == "m2").allow_scan().update(maker.set("m1"))
    elif verb == "by query":
        store.query(case.new).where(case.new.maker == "m1").limit(3).update(lambda e: setattr(e, "maker", "m2") or e)
    elif verb == "gone":
        store.query(case.new).where(case.new.maker == "m2").limit(2).delete()


@pytest.mark.parametrize("seed", range(4))
def test_the_old_version_reads_what_a_process_writes_that_knows_the_script(path: Path, case: Case, seed: int) -> None:
    draw = random.Random(seed)
    first = of(case)
    with open_old(path) as old:
        before = sorted(map(repr, old.query(OLD).allow_scan()))
        assert {step.old_version for step in migrate(path, first, dry_run=True).plan} == {"reads"}
        assert {step.old_version for step in migrate(path, first).plan} == {"reads"}
        assert sorted(map(repr, old.query(OLD).allow_scan())) == before
        with open_new(path, case, first) as store:
            same(old, store, case)
            for _ in range(12):
                for _ in range(5):
                    write(store, case, draw)
                same(old, store, case)
            with pytest.raises(
                tm.SchemaMismatch, match="first has changed this class, and this version can only read it"
            ):
                old.insert(OLD("i9", 1, "1.00", Grade.NEW, None))
            store.clear(case.new)
            same(old, store, case)
    with open_old(path) as again:  # it can be started anew
        assert again.query(OLD).allow_scan().count() == 0


def test_the_new_version_reads_on_for_ever_without_the_script_and_ends_the_old_one_as_it_writes(
    path: Path, case: Case
) -> None:
    first = of(case)
    draw = random.Random(1)
    with open_old(path) as old:
        migrate(path, first)
        with open_new(path, case) as store:
            assert store.query(case.new).allow_scan().count() == 24
            assert store.repair().ok
            report = store.check()
            assert report.ok
            assert "Part before first: what it should hold is not known without migrations=" in str(report)
            assert old.query(OLD).allow_scan().count() == 24
            store.upsert(case.one("i1", 1, draw))
            for read in (
                lambda: list(old.query(OLD).allow_scan()), lambda: old.get(OLD.key("i2", 2)), lambda: open_old(path)
            ):  # fmt: skip
                with pytest.raises(
                    tm.SchemaMismatch,
                    match="a process that opened the store without migrations= wrote what the migration first made",
                ):
                    read()
            assert store.check().unchecked == ()
    with open_new(path, case, first) as store:  # and nobody is held up
        write(store, case, draw)
        assert store.check().ok


@pytest.mark.parametrize(
    "write",
    [
        lambda s, new: s.insert(new), lambda s, new: s.insert_many([new]), lambda s, new: s.insert_many([new], atomic=True),
        lambda s, new: s.query(type(new)).allow_scan().delete(), lambda s, new: s.clear(type(new)),
    ],
    ids=["insert", "insert_many", "load", "delete by query", "clear"],
)  # fmt: skip
def test_each_kind_of_write_without_the_script_ends_the_old_version(
    path: Path, case: Case, write: Callable[[tm.Store, Any], object]
) -> None:
    migrate(path, of(case))
    with open_old(path) as old, open_new(path, case) as store:
        write(store, case.one("i1", 500, random.Random(1)))
        with pytest.raises(tm.SchemaMismatch, match="without migrations="):
            list(old.query(OLD).allow_scan())
        assert store.check().ok


def test_who_does_not_write_these_classes_ends_nothing(path: Path, case: Case) -> None:
    other = entity("Shop", "Shops", {"name": str}, tm.Key[str](partition="{name}"))
    first = of(case)
    migrate(path, first)
    with open_old(path) as old, tm.open(path, models=[other, case.new]) as store:
        store.insert(other("a"))
        with store.transaction() as tx:
            tx.upsert(other("b"))
        tm.status(path)
        assert old.query(OLD).allow_scan().count() == 24


def test_a_write_with_a_script_of_another_text_ends_the_old_version(path: Path, case: Case) -> None:
    first = of(case)
    edited = script(
        [case.new, totals(case.new)], lambda m: case.function(m), "first", None, [OLD, totals(OLD)]
    )  # fmt: skip
    migrate(path, first)
    with open_old(path) as old, open_new(path, case, edited) as store:
        store.upsert(case.one("i1", 1, random.Random(1)))
        with pytest.raises(tm.SchemaMismatch, match="without migrations="):
            old.get(OLD.key("i1", 1))


@pytest.mark.parametrize(
    ("price", "reason"),
    [
        (Money(1, 100), "ValueError: 100 cents are more than one"),
        (Money(-1, 0), "price"),  # its function gives an int
    ],
)
def test_what_the_function_cannot_take_back_is_refused(path: Path, price: Money, reason: str) -> None:
    case = CASES["convert"]
    first = of(case)
    migrate(path, first)
    with open_old(path) as old, open_new(path, case, first) as store:
        stored = store[PRICED.key("i1", 1)]
        for attempt in (
            lambda: store.merge(PRICED.key("i1", 1), price=price, maker="m9"),
            lambda: store.insert(PRICED("i1", 900, price, Grade.NEW, None, 1)),
            lambda: store.insert_many([PRICED("i1", 901, price, Grade.NEW, None, 1)], atomic=True),
        ):
            with pytest.raises(tm.InvalidEntity) as caught:
                attempt()
            text = str(caught.value)
            for word in ("Part ('i1', ", "first (convert Part.price", reason, "nothing was written", "contract=True"):
                assert word in text, (word, text)
        same(old, store, case)
        assert store[PRICED.key("i1", 1)] == stored
        migrate(path, first, contract=True)
        store.merge(PRICED.key("i1", 1), price=price)


def test_two_new_entities_that_are_one_old_one_are_refused_and_may_change_places(path: Path) -> None:
    case = CASES["rewrite"]
    first = of(case)
    migrate(path, first)
    with open_old(path) as old, open_new(path, case, first) as store:
        with pytest.raises(
            tm.InvalidEntity, match=r"Item \('other', ''\).* it becomes Part \('i1', 'a1'\), and so does"
        ):
            store.insert(ITEM("other", "i1/1", 1, Grade.NEW, None))
        one, other = store[ITEM.key("i1-1")], store[ITEM.key("i2-2")]
        with pytest.raises(tm.InvalidEntity, match="and so does"), store.transaction(across_partitions=True) as tx:
            tx.merge(one.key, place="i3/500")
            tx.merge(other.key, place="i3/500")
        with store.transaction(across_partitions=True) as tx:
            tx.merge(one.key, place=other.place)
            tx.merge(other.key, place=one.place)
        same(old, store, case)
        assert old[OLD.key("i1", 1)].price == "2.50"
        store.delete(one.key)
        store.insert(ITEM("other", "i2/2", 1, Grade.NEW, None))
        same(old, store, case)


def test_the_old_version_goes_on_when_a_script_is_undone_and_done_again_and_ends_with_the_contraction(
    path: Path, case: Case
) -> None:
    first = of(case)
    draw = random.Random(8)
    with open_old(path) as old:
        for turn in range(3):
            migrate(path, first)
            with open_new(path, case, first) as store:
                for _ in range(10):
                    write(store, case, draw)
                same(old, store, case)
                expected = sorted(map(repr, old.query(OLD).allow_scan()))
                if turn == 1:
                    with open_new(path, case) as ignorant:
                        ignorant.upsert(ITEM("x", "i0/900", 100, Grade.NEW, None) if case.new is ITEM else
                                        PRICED("i0", 900, Money(1, 0), Grade.NEW, None, 1))  # fmt: skip
                    expected = sorted([*expected, repr(OLD("i0", 900, "1.00", Grade.NEW, None))])
                report = migrate(path, first, to="")
                assert report.applied == ("first",)
                assert (report.entities == 0) == (turn != 1)
                with pytest.raises(tm.SchemaMismatch, match="first replaced this form"):
                    store.query(case.new).allow_scan().count()
            assert sorted(map(repr, old.query(OLD).allow_scan())) == expected
            old.upsert(OLD("i0", turn, "3.00", Grade.NEW, None))
            assert old.check().ok
        migrate(path, first)
        with open_new(path, case, first) as store:
            migrate(path, first, contract=True)
            write(store, case, draw)
            with pytest.raises(tm.SchemaMismatch, match="first replaced this form"):
                list(old.query(OLD).allow_scan())
            assert store.check().ok


def test_a_process_that_was_open_before_the_undoing_ends_it_too_once_it_writes_again(path: Path, case: Case) -> None:
    first = of(case)
    draw = random.Random(2)
    migrate(path, first)
    with open_old(path) as old, open_new(path, case) as store:
        store.query(case.new).allow_scan().count()
        migrate(path, first, to="")
        old.upsert(OLD("i0", 0, "3.00", Grade.NEW, None))
        migrate(path, first)
        assert old[OLD.key("i0", 0)].price == "3.00"
        store.upsert(case.one("i1", 1, draw))
        with pytest.raises(tm.SchemaMismatch, match="without migrations="):
            old.get(OLD.key("i0", 0))
        assert store.check().ok


def test_the_next_migration_keeps_the_old_version_or_ends_it(path: Path) -> None:
    case = CASES["convert"]
    first = of(case)
    named = entity("Part", "Parts", {"id": str, "number": int, "price": Money, "grade": Grade, "firm": str | None, "rank": int},
                   KEY, by_maker=tm.Index[str](partition="{firm}"))  # fmt: skip
    moved = entity("Piece", "Pieces", {"id": str, "number": int, "price": Money, "grade": Grade, "firm": str | None, "rank": int},
                   KEY, by_maker=tm.Index[str](partition="{firm}"))  # fmt: skip
    second = script([named, totals(named, "firm")], lambda m: m.rename(PRICED.maker, named.firm), "second", "first",
                    [PRICED, totals(PRICED)])  # fmt: skip
    third = script([moved, totals(moved, "firm")], lambda m: m.rename_class(named, moved), "third", "second",
                   [named, totals(named, "firm")])  # fmt: skip
    with open_old(path) as old:
        migrate(path, first)
        migrate(path, first, second)  # only the catalogue has to know
        with tm.open(path, models=[named, totals(named, "firm")], migrations=[first, second]) as store:
            store.merge(named.key("i1", 1), firm="m7", price=Money(4, 5))
            store.delete(named.key("i2", 2))
            found = old[OLD.key("i1", 1)]
            assert (found.maker, found.price) == ("m7", "4.05")
            assert old.get(OLD.key("i2", 2)) is None
            assert store.check().ok
            assert old.check().ok
        migrate(path, first, second, third)
        with pytest.raises(tm.SchemaMismatch, match="third replaced this form"):
            old.get(OLD.key("i1", 1))
    assert migrate(path, first, second, third, to="").applied == ("third", "second", "first")
    with open_old(path) as old:
        assert old[OLD.key("i1", 1)].price == "4.05"
        assert old.check().ok


def test_a_version_that_adds_to_the_class_keeps_the_old_version_in_step(path: Path) -> None:
    case = CASES["convert"]
    first = of(case)
    later = entity("Part", "Parts", {**FIELDS, "price": Money, "rank": int, "color": str | None}, KEY,
                   by_maker=tm.Index[str](partition="{maker}"), by_color=tm.Index[str](partition="{color}"))  # fmt: skip
    migrate(path, first)
    with open_old(path) as old, sound_store(path, models=[later, totals(later)], migrations=[first]) as store:
        store.merge(later.key("i1", 1), color="red", price=Money(7, 7))
        assert old[OLD.key("i1", 1)].price == "7.07"
        assert store[later.key("i1", 1)].color == "red"


def rewriting(function: Any, back: Any, into: list[Any]) -> Any:
    steps = step("drop", OLDER), step("rewrite", OLD, function, into=into, back=back)
    return made(into, [OLD, OLDER], *steps)


OLDER = totals(OLD)
TAG = entity("Tag", "Tags", {"tag": str}, tm.Key[str](partition="{tag}"))


@pytest.mark.parametrize(
    ("function", "back", "into", "planned"),
    [
        (item_of, None, [ITEM], "stops"),
        (lambda e: [item_of(e), TAG(f"{e.id}{e.number}")], lambda e: part_of(e) if isinstance(e, ITEM) else None, [ITEM, TAG], "stops"),
        (lambda e: item_of(e) if e.number % 2 else None, part_of, [ITEM], "reads"),
        (item_of, lambda e: OLD(e.code, 1, "1.00", e.grade, e.maker), [ITEM], "reads"),
        (item_of, lambda e: part_of(e) if e.code != "i3-3" else 1 // 0, [ITEM], "reads"),
        (lambda e: [item_of(e), ITEM(f"{e.id}+{e.number}", f"{e.id}/{e.number}", 1, e.grade, None)], part_of, [ITEM], "reads"),
    ],
    ids=["no back=", "into two classes", "some are dropped", "another key", "it raises", "two stand for one"],
)  # fmt: skip
def test_the_old_version_stops_where_its_entities_are_not_each_made_of_one(
    path: Path, function: Any, back: Any, into: list[Any], planned: str
) -> None:
    first = rewriting(function, back, into)
    assert {one.old_version for one in migrate(path, first, dry_run=True, limit=0).plan} == {planned}
    assert {one.old_version for one in migrate(path, first, dry_run=True).plan} == {"stops"}
    with open_old(path) as old:
        migrate(path, first, limit=10)
        old.upsert(OLD("i0", 0, "5.00", Grade.NEW, None))  # of this the same is to be seen
        while not (report := migrate(path, first, limit=7)).done:
            pass
        assert {one.old_version for one in report.plan} == {"stops"}
        with pytest.raises(tm.SchemaMismatch, match="first replaced this form"):
            list(old.query(OLD).allow_scan())
    with tm.open(path, models=into) as store:
        assert store.check().ok


def test_several_new_entities_may_come_of_one_if_one_of_them_leads_back(path: Path) -> None:
    def both(e: Any) -> list[Any]:
        return [item_of(e), ITEM(f"{e.id}+{e.number}", "", 1, e.grade, None)]

    first = rewriting(both, part_of, [ITEM])
    assert {one.old_version for one in migrate(path, first).plan} == {"reads"}
    case = CASES["rewrite"]
    with tm.open(path, models=[OLD, OLDER]) as old, tm.open(path, models=[ITEM], migrations=[first]) as store:
        for number in range(5):
            write(store, case, random.Random(number))
        same(old, store, case)


def test_unique_values_of_the_old_class_stop_the_old_version(tmp_path: Path) -> None:
    fields = {"id": str, "name": str}
    before = entity(
        "Aaa", "Aaas", fields, tm.Key[str](partition="{id}"), by_name=tm.Index[str](partition="{name}", unique=True)
    )
    after = entity("Bbb", "Bbbs", fields, tm.Key[str](partition="{id}"))
    with tm.open(tmp_path / "u.db", models=[before]):
        pass
    first = script([after], lambda m: m.rewrite(before, lambda e: after(e.id, e.name), into=[after],
                                                back=lambda e: before(e.id, e.name)), "first", None, [before])  # fmt: skip
    assert migrate(tmp_path / "u.db", first, dry_run=True).plan[0].old_version == "stops"


def test_check_finds_what_is_not_in_step(path: Path, case: Case) -> None:
    first = of(case)
    migrate(path, first)
    with open_new(path, case, first) as store:
        draw = random.Random(4)
        store.upsert(case.one("i1", 1, draw))
    for sql, kind in (
        ("UPDATE Parts SET maker = 'wrong' WHERE PartitionKey = 'i1' AND RowKey = 'a1'", "wrong"),
        ("DELETE FROM Parts WHERE PartitionKey = 'i2' AND RowKey = 'a2'", "missing"),
        ("UPDATE Parts SET RowKey = 'a3333' WHERE PartitionKey = 'i3' AND RowKey = 'a3'", "dangling"),
    ):
        run_sql(path, sql)
        with open_new(path, case, first) as store:
            report = store.check()
            assert kind in {one.kind for one in report.problems if one.where == "Part before first"}, str(report)
            assert all("contract=True" in one.detail for one in store.repair().remaining)


async def test_a_store_for_asyncio_keeps_the_old_version_in_step(path: Path, case: Case) -> None:
    first = of(case)
    migrate(path, first)
    async with tm.open_async(path, models=[case.new, totals(case.new)], migrations=[first]) as store:
        await store.upsert(case.one("i1", 1, random.Random(1)))
    with open_old(path) as old, open_new(path, case, first) as store:
        same(old, store, case)


def test_a_wrong_script_is_refused_before_the_file_is_touched(tmp_path: Path) -> None:
    with pytest.raises(tm.InvalidMigration):
        tm.open(tmp_path / "none.db", models=[OLD], migrations="no.such.package")
    assert not (tmp_path / "none.db").exists()


def test_a_later_version_that_lets_a_field_hold_more_ends_the_old_version(path: Path, case: Case) -> None:
    first = of(case)
    migrate(path, first)
    wider = enum.Enum("Grade", {"NEW": "new", "USED": "used", "WORN": "worn"})
    if case.new is PRICED:
        kinds = {**FIELDS, "price": Money, "rank": int, "grade": wider}
        later = entity("Part", "Parts", kinds, KEY, by_maker=tm.Index[str](partition="{maker}"))
    else:
        kinds = {"code": str, "place": str, "cents": int, "grade": wider, "maker": str | None}
        key = tm.Key[str](partition="{code}")
        later = entity("Item", "Items", kinds, key, by_maker=tm.Index[str](partition="{maker}"))
    with open_old(path) as old, sound_store(path, models=[later, totals(later)], migrations=[first]) as store:
        with pytest.raises(tm.SchemaMismatch, match="first replaced this form"):
            old.query(OLD).allow_scan().count()
        one = store.query(later).allow_scan().first()
        store.merge(one.key, grade=wider["WORN"])


def test_what_is_not_written_stays_as_the_old_version_left_it_however_large(tmp_path: Path) -> None:
    def text(kind: Any) -> Any:
        return entity("Text", "Texts", {"id": str, "body": str, "size": kind}, tm.Key[str](partition="{id}"))

    before, after = text(str), text(int)
    first = script([after], lambda m: m.convert(before.size, after.size, int, back=lambda size: f"{size:,}"), "first", None,
                   [before])  # fmt: skip
    with tm.open(tmp_path / "t.db", models=[before]) as old:
        old.insert_many(before(id, id * 5_000, size) for id, size in (("a", "007"), ("b", "008"), ("c", "009")))
        migrate(tmp_path / "t.db", first)
        with tm.open(tmp_path / "t.db", models=[after], migrations=[first]) as store:
            store.merge(after.key("b"), size=8_000)
            store.merge(after.key("c"), body="c" * 6_000)
            assert [(e.id, len(e.body), e.size) for e in old.query(before).allow_scan()] == [
                ("a", 5_000, "007"), ("b", 5_000, "8,000"), ("c", 6_000, "9")
            ]  # fmt: skip
            assert store.check().problems == ()
            migrate(tmp_path / "t.db", first, to="")
            assert old[before.key("a")].size == "007"


def test_the_next_migration_can_be_undone_beside_the_old_version(path: Path) -> None:
    case = CASES["convert"]
    first = of(case)
    named = entity("Part", "Parts", {"id": str, "number": int, "price": Money, "grade": Grade, "firm": str | None, "rank": int},
                   KEY, by_maker=tm.Index[str](partition="{firm}"))  # fmt: skip
    second = script([named, totals(named, "firm")], lambda m: m.rename(PRICED.maker, named.firm), "second", "first",
                    [PRICED, totals(PRICED)])  # fmt: skip
    migrate(path, first, second)
    migrate(path, first, second, to="first")
    draw = random.Random(6)
    with open_old(path) as old, open_new(path, case, first, second) as store:
        for _ in range(20):
            write(store, case, draw)
        same(old, store, case)


def shops(rank: Any, age: Any) -> list[Any]:
    fields = {"shop": str, "number": int, "age": age}
    worker = entity("Worker", "Workers", fields, tm.Key[str, int](partition="{shop}", row="{number}"))
    shop = entity(
        "Shop", "Shops", {"shop": str, "workers": int, "rank": rank}, tm.Key[str](partition="{shop}"),
        workers=tm.count(of=worker), by_workers=tm.Index[int](partition="{workers}"),
    )  # fmt: skip
    return [worker, shop]


def test_fields_that_the_store_maintains_are_kept_on_both_sides(place: Path) -> None:
    old, new = shops(int, int), shops(str, str)
    steps = (
        step("convert", old[0].age, new[0].age, lambda age: "y" * age, back=lambda text: len(text)),
        step("convert", old[1].rank, new[1].rank, lambda rank: "r" * rank, back=lambda text: len(text)),
    )
    first = made(new, old, *steps)
    with tm.open(place, models=old) as mine:
        mine.insert_many(old[1](shop, 3) for shop in "ab")
        mine.insert_many(old[0](shop, number, number) for shop in "ab" for number in range(3))
        migrate(place, first)
        with tm.open(place, models=new, migrations=[first]) as store:
            store.merge(new[0].key("a", 1), age="y" * 7)
            store.merge(new[1].key("a"), rank="r" * 9)
            store.delete(new[0].key("b", 1))
            store.insert(new[1]("c", "rr"))
            store.insert(new[0]("c", 5, "yy"))
            assert [repr(e) for e in mine.query(old[1]).allow_scan()] == [
                "Shop(shop='a', workers=3, rank=9)", "Shop(shop='b', workers=2, rank=3)", "Shop(shop='c', workers=1, rank=2)"
            ]  # fmt: skip
            assert [e.shop for e in mine.query(old[1]).where(old[1].workers == 2)] == ["b"]
            assert mine[old[0].key("a", 1)].age == 7
            assert (store.check().problems, mine.check().problems) == ((), ())


def test_a_class_of_the_same_script_that_the_store_can_keep_needs_no_script(place: Path) -> None:
    def pair(name: str, kind: Any) -> list[Any]:
        key = tm.Key[str](partition="{id}")
        return [entity(name, f"{name}s", {"id": str}, key), entity("Other", "Others", {"id": str, "size": kind}, key)]

    old, new = pair("Plain", str), pair("Simple", int)
    steps = (
        step("rename_class", old[0], new[0]),
        step("convert", old[1].size, new[1].size, int, back=lambda size: f"{size}"),
    )
    with tm.open(place, models=old) as mine:
        migrate(place, made(new, old, *steps))
        with tm.open(place, models=new) as store:
            store.insert(new[0]("a"))
            assert [e.id for e in mine.query(old[0]).allow_scan()] == ["a"]
            store.insert(new[1]("b", 1))
            with pytest.raises(tm.SchemaMismatch, match="without migrations="):
                mine.get(old[0].key("a"))


def test_a_function_that_could_see_what_is_maintained_is_not_trusted() -> None:
    key = tm.Key[str](partition="{shop}")
    before = entity("Sum", "Sums", {"shop": str, "workers": int}, key)
    worker, shop = shops(int, int)
    first = script([shop, worker], lambda m: m.rewrite(before, lambda e: shop(e.shop, 1), into=[shop],
                   back=lambda e: before(e.shop, e.workers)), "first", None, [before, shops(int, int)[0]])  # fmt: skip
    (loaded,) = tm.Migrations([first]).scripts
    assert links_of(loaded, pairs(loaded), frozenset({"Sum"})) == ((), "writes")
