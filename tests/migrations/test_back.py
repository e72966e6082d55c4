"""Migrations that are undone, contracted, stopped at a script, joined, and run by two."""

from __future__ import annotations

import enum
import random
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.migrations import run

from .shapes import FIELDS, OLD, OLD_TOTALS, changed, contents, entity, migrate, part, parts, script, texts, totals

PRICED = part(changed(FIELDS, price=Decimal))
KEYED = part(changed(FIELDS, price=Decimal), key=tm.Key[int, str](partition="{number}", row="{shelf}"))
BARE = part()
State = enum.Enum("State", {"NEW": "new", "SOLD": "sold", "LOST": "lost"})


def back(price: Decimal) -> str:
    """Return a price as text; only this script can tell."""
    return str(price)


TO_DECIMAL = script([PRICED], lambda m: m.convert(BARE.price, PRICED.price, Decimal, back=back), "first", None, [BARE])
TO_NUMBER = script([KEYED], lambda m: m.rekey(PRICED, KEYED), "second", "first", [PRICED])
WITHOUT = part(changed(FIELDS, price=Decimal, tags=None), key=tm.Key[int, str](partition="{number}", row="{shelf}"))
BARER = script([WITHOUT], lambda m: m.drop(KEYED.tags), "third", "second", [KEYED])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=[BARE], durability="relaxed") as store:
        store.insert_many(BARE("a", number, price=str(number), maker=None, tags=["x"]) for number in range(30))
    return tmp_path / "s.db"


def write_without_script(path: Path) -> None:
    """End the old version: a program that writes without the script cannot keep it in step."""
    with tm.open(path, models=[PRICED], durability="relaxed") as store:
        store.upsert(store[PRICED.key("a", 1)])


def test_a_migration_can_be_undone_and_done_again(path: Path) -> None:
    with tm.open(path, models=[BARE]) as store:
        before = contents(store, [BARE])
    assert migrate(path, TO_DECIMAL, TO_NUMBER).applied == ("first", "second")
    with tm.open(path, models=[KEYED]) as store:
        assert store[KEYED.key(7, "a")].price == 7
        report = migrate(path, TO_DECIMAL, TO_NUMBER, to="first")
        assert report.applied == ("second",)
        assert str(report).splitlines()[-1].startswith("undid second: ")
        assert store[KEYED.key(7, "a")].price == 7  # a key holds every field of the other one: both versions go on
    with tm.open(path, models=[PRICED]) as store:
        assert store[PRICED.key("a", 7)].price == 7
        assert store.check().ok
    assert migrate(path, TO_DECIMAL, TO_NUMBER, to="").applied == ("first",)
    with tm.open(path, models=[BARE]) as store:
        assert contents(store, [BARE]) == before
        assert store.check().ok
    assert tm.status(path).history == ()
    assert migrate(path, TO_DECIMAL, TO_NUMBER).applied == ("first", "second")
    with tm.open(path, models=[KEYED]) as store:
        assert store[KEYED.key(7, "a")].price == 7
        assert store.check().ok


def test_a_script_that_was_edited_after_it_was_undone_goes_on_where_its_last_run_ended(path: Path) -> None:
    edited = script([PRICED], lambda m: m.convert(BARE.price, PRICED.price, lambda price: Decimal(price) + 1), "first", None, [BARE])  # fmt: skip
    migrate(path, TO_DECIMAL)
    migrate(path, TO_DECIMAL, to="")
    assert [migrate(path, edited, limit=12).entities for _ in range(2)] == [12, 12]
    report = migrate(path, edited)
    assert (report.done, report.entities) == (True, 6)
    with tm.open(path, models=[PRICED]) as store:
        assert store[PRICED.key("a", 7)].price == 8
        assert store.check().ok


def test_a_program_that_was_refused_goes_on_once_the_migration_is_undone(path: Path) -> None:
    reads = [
        lambda store: store.get(BARE.key("a", 1)),
        lambda store: store.exists(BARE.key("a", 1)),
        lambda store: store.get_many([BARE.key("a", 1)]),
        lambda store: list(store.partition(BARE.shelf == "a")),
        lambda store: list(store.partitions(BARE)),
        lambda store: store.query(BARE).where(BARE.shelf == "a").first(),
    ]
    stores = [tm.open(path, models=[BARE]) for _ in reads]
    before = [read(store) for read, store in zip(reads, stores, strict=True)]
    for _ in range(2):
        migrate(path, TO_DECIMAL)
        write_without_script(path)
        for read, store in zip(reads, stores, strict=True):
            with pytest.raises(tm.SchemaMismatch, match="without migrations= wrote what the migration first made"):
                read(store)
        migrate(path, TO_DECIMAL, to="")
        assert [read(store) for read, store in zip(reads, stores, strict=True)] == before
    for store in stores:
        store.close()


def test_an_undoing_that_is_interrupted_goes_on(path: Path) -> None:
    migrate(path, TO_DECIMAL)
    write_without_script(path)
    report = migrate(path, TO_DECIMAL, to="", limit=10)
    assert (report.done, report.applied) == (False, ())
    with tm.open(path, models=[PRICED], durability="relaxed") as store:
        store.merge(PRICED.key("a", 1), price=Decimal(100))
        with pytest.raises(tm.InvalidMigration, match="the undoing of first has not finished; run it to its end first"):
            migrate(path, TO_DECIMAL, TO_NUMBER)
        report = migrate(path, TO_DECIMAL, to="first")  # this gives it up
        assert (report.done, report.entities) == (True, 0)
        assert store[PRICED.key("a", 1)].price == 100
        assert migrate(path, TO_DECIMAL).ok
        migrate(path, TO_DECIMAL, to="", limit=10)
    assert migrate(path, TO_DECIMAL, to="").applied == ("first",)
    with tm.open(path, models=[BARE]) as store:
        assert store[BARE.key("a", 1)].price == "100"
        assert store.check().ok


def test_what_cannot_be_undone_is_refused_before_anything_is_done(path: Path) -> None:
    counted = part(changed(FIELDS, price=Decimal, tags=int), key=tm.Key[int, str](partition="{number}", row="{shelf}"))
    count = script([counted], lambda m: m.convert(KEYED.tags, counted.tags, len), "third", "second", [KEYED])
    migrate(path, TO_DECIMAL, TO_NUMBER, count)
    with pytest.raises(tm.InvalidMigration, match="third: it cannot be undone: convert Part.tags"):
        migrate(path, TO_DECIMAL, TO_NUMBER, count, to="")
    with tm.open(path, models=[counted]) as store:
        assert store.check().ok


@pytest.mark.parametrize(
    ("old_kind", "new_kind", "mapping", "reversible"),
    [
        (Literal["new", "sold", "lost"], Literal["new", "sold"], {"lost": "sold"}, False),
        (Literal["new", "sold", "lost"], Literal["new", "sold", "gone"], {"lost": "gone"}, True),
        (Literal["new", "sold", "lost"], Literal["new", "sold", "gone"], {"lost": "sold", "sold": "gone"}, True),
        (State, State, {State.LOST: State.SOLD}, False),
        (State, State, {State.LOST: State.SOLD, State.SOLD: State.LOST}, True),
    ],
)
def test_a_mapping_that_makes_two_values_one_cannot_be_undone(
    tmp_path: Path, old_kind: Any, new_kind: Any, mapping: dict[Any, Any], *, reversible: bool
) -> None:
    old, new = part(changed(FIELDS, state=old_kind)), part(changed(FIELDS, state=new_kind))
    path = tmp_path / "s.db"
    values = list(State) if old_kind is State else ["new", "sold", "lost"]
    with tm.open(path, models=[old], durability="relaxed") as store:
        store.insert_many(old("a", n, price="", maker=None, tags=[], state=values[n]) for n in range(3))
        before = contents(store, [old])
    one = script([new], lambda m: m.convert(old.state, new.state, mapping), "first", None, [old])
    assert [step.reversible for step in migrate(path, one, dry_run=True).plan] == [reversible]
    migrate(path, one)
    if not reversible:
        with pytest.raises(tm.InvalidMigration, match="first: it cannot be undone: convert Part.state"):
            migrate(path, one, to="")
        return
    migrate(path, one, to="")
    with tm.open(path, models=[old]) as store:
        assert contents(store, [old]) == before


def test_contract_drops_what_is_left_and_there_is_no_way_back(path: Path) -> None:
    migrate(path, TO_DECIMAL)
    write_without_script(path)
    assert any("_before_first" in name for name in tables(path))
    report = migrate(path, TO_DECIMAL, contract=True)
    assert report.done
    assert report.contracted == ("first",)
    assert str(report) == "nothing to migrate\ncontracted first"
    assert migrate(path, TO_DECIMAL, contract=True).contracted == ()
    assert not any("_before_first" in name for name in tables(path))
    assert tm.status(path).history[0].state == "contracted"
    with pytest.raises(tm.InvalidMigration, match="first: it was contracted: the old tables are gone"):
        migrate(path, TO_DECIMAL, to="")
    with tm.open(path, models=[PRICED]) as store:
        assert store.check().ok
        assert store[PRICED.key("a", 7)].price == 7


def tables(path: Path) -> list[str]:
    engine = SqliteMigrations.open(path)
    try:
        return [name for (name,) in engine._file.read("SELECT name FROM sqlite_schema")]
    finally:
        engine.close()


def test_a_run_ends_behind_the_script_that_it_is_told(path: Path) -> None:
    assert migrate(path, TO_DECIMAL, TO_NUMBER, BARER, to="second").applied == ("first", "second")
    assert migrate(path, TO_DECIMAL, TO_NUMBER, BARER, dry_run=True).ok
    assert migrate(path, TO_DECIMAL, TO_NUMBER, BARER).applied == ("third",)
    assert str(migrate(path, TO_DECIMAL, TO_NUMBER, BARER)) == "nothing to migrate"


def test_a_plan_says_what_is_done_to_whom(path: Path) -> None:
    assert str(migrate(path, TO_DECIMAL, TO_NUMBER, dry_run=True)).splitlines() == [
        "first    convert Part.price, str to Decimal   30 entities   reversible   old version: reads",
        "second   rekey Part                           30 entities   reversible   old version: reads and writes",
    ]


def test_a_plan_counts_what_an_earlier_script_makes(path: Path) -> None:
    bare = entity("Bare", "Bares", {"number": int}, tm.Key[int](partition="{number}"))
    larger = entity("Bare", "Bares", {"number": int, "size": int}, tm.Key[int](partition="{number}"))
    one = script([bare], lambda m: m.rewrite(BARE, lambda e: bare(e.number), into=[bare]), "first", None, [BARE])
    two = script([larger], lambda m: m.fill(larger.size, lambda _: 1), "second", "first", [bare])
    plan = migrate(path, one, two, dry_run=True).plan
    assert [(step.old_version, step.entities) for step in plan] == [("stops", 30), ("reads", 30)]
    assert "30 entities" in str(plan[1].cells)


def test_two_runners_share_the_work(path: Path) -> None:
    engines = [SqliteMigrations.open(path, durability="relaxed") for _ in range(2)]
    (loaded,) = run.scripts_of([TO_DECIMAL])
    for engine in engines:
        engine.look()
        transition = run.transition_of(loaded, engine.forms())
        assert transition is not None
        engine.start(transition)
    read = [0, 0]
    draw = random.Random(1)
    for _ in range(100):
        at = draw.randrange(2)
        copied = engines[at].step(4)
        read[at] += copied.entities
        if copied.switched:
            assert engines[1 - at].step(4).switched
            break
    assert sum(read) == 30
    assert all(read)
    for engine in engines:
        engine.close()
    with tm.open(path, models=[PRICED]) as store:
        assert len(contents(store, [PRICED])) == 30
        assert store.check().ok


STOCK = entity(
    "Stock",
    "Stocks",
    {"shelf": str, "number": int, "pieces": int},
    tm.Key[str, int](partition="{shelf}", row="{number}"),
)
BOTH = part(changed(FIELDS, tags=None, pieces=int))


def joined(one: Any, stock: Any) -> Any:
    if one is None:
        return (
            None if stock.pieces == 0 else BOTH(stock.shelf, stock.number, price="0", maker=None, pieces=stock.pieces)
        )
    return BOTH(one.shelf, one.number, price=one.price, maker=one.maker, pieces=0 if stock is None else stock.pieces)


@pytest.mark.parametrize("seed", range(3))
def test_two_classes_are_joined_by_their_keys_beside_writers(path: Path, seed: int) -> None:
    draw = random.Random(seed)
    with tm.open(path, models=[BARE, STOCK], durability="relaxed") as store:
        store.insert_many(STOCK("a", number, pieces=number % 3) for number in range(10, 50))
        engine = SqliteMigrations.open(path, durability="relaxed")
        one = script([BOTH], lambda m: m.join(BARE, STOCK, joined, into=[BOTH]), "first", None, [BARE, STOCK])
        (loaded,) = run.scripts_of([one])
        transition = run.transition_of(loaded, engine.forms())
        assert transition is not None
        engine.start(transition)
        left = 30
        while True:
            a = {key(one): one for one in store.query(BARE).allow_scan()}
            b = {key(one): one for one in store.query(STOCK).allow_scan()}
            if engine.step(5).switched:
                break
            left -= 1
            number = draw.randrange(60)
            if left > 0 and draw.random() < 0.5:
                store.upsert(STOCK("a", number, pieces=draw.randrange(3)))
            elif left > 0 and store.exists(BARE.key("a", number)):
                store.delete(BARE.key("a", number))
        engine.close()
    made = [joined(a.get(at), b.get(at)) for at in a.keys() | b.keys()]
    with tm.open(path, models=[BOTH]) as store:
        assert contents(store, [BOTH]) == texts(one for one in made if one is not None)
        assert store.check().ok


def key(one: Any) -> tuple[str, str]:
    return one.key.partition, one.key.row


def test_entities_of_one_class_move_into_another_that_is_there(path: Path) -> None:
    new = part()
    with tm.open(path, models=[BARE, STOCK]) as store:
        store.insert(STOCK("b", 1, pieces=5))
    function = lambda e: new(e.shelf, e.number, price="1", maker="moved", tags=[])  # noqa: E731

    alone = script([new], lambda m: m.rewrite(STOCK, function, into=[new]), "first", None, [STOCK])
    with pytest.raises(tm.InvalidMigration, match="Part shares a table with what is migrated: name it in old="):
        migrate(path, alone)
    both = script([new], lambda m: m.rewrite(STOCK, function, into=[new]), "first", None, [BARE, STOCK])
    assert migrate(path, both).entities == 31
    with tm.open(path, models=[new]) as store:
        assert store[new.key("b", 1)].maker == "moved"
        assert len(contents(store, [new])) == 31
        assert store.check().ok


def test_classes_that_share_a_table_are_copied_together(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    def pair(pages: Any) -> tuple[Any, Any]:
        book = entity("Book", "Things", {"id": int, "pages": pages}, tm.Key[int](partition="{id}", row="book"))
        note = entity("Note", "Things", {"id": int, "text": str}, tm.Key[int](partition="{id}", row="note"))
        return book, note

    (book, note), (new_book, new_note) = pair(str), pair(int)
    with tm.open(path, models=[book, note]) as store:
        store.insert_many([book(n, pages=str(n * 10)) for n in range(9)] + [note(n, text="x" * 600) for n in range(9)])
    lone = script([new_book], lambda m: m.convert(book.pages, new_book.pages, int), "first", None, [book])
    with pytest.raises(tm.InvalidMigration, match="Note shares a table with what is migrated: name it in old="):
        migrate(path, lone)
    both = script(
        [new_book, new_note], lambda m: m.convert(book.pages, new_book.pages, int), "first", None, [book, note]
    )
    with tm.open(path, models=[note]) as store:
        assert migrate(path, both).entities == 18
        assert store[note.key(3)].text == "x" * 600  # Note is what it was, so a program that has it open goes on
        store.insert(note(100, text="new"))
        with pytest.raises(tm.SchemaMismatch):
            tm.open(path, models=[book])
    with tm.open(path, models=[new_book, new_note]) as store:
        assert store[new_book.key(3)].pages == 30
        assert store.check().ok


def test_aggregates_follow_their_class_back_and_forth(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with tm.open(path, models=[OLD, OLD_TOTALS]) as store:
        store.insert_many(parts(40, random.Random(3)))
    new = part(changed(FIELDS, maker=None, firm=str | None, price=Decimal), by_firm=tm.Index[str](partition="{firm}"))

    def steps(m: Any) -> None:
        m.rename(OLD.maker, new.firm)
        m.convert(OLD.price, new.price, Decimal, back=str)

    one = script([new, totals(new, "firm")], steps)
    for _ in range(2):
        assert migrate(path, one).ok
        assert migrate(path, one, to="").ok
        with tm.open(path, models=[OLD, OLD_TOTALS]) as store:
            assert store.check().ok
            assert sum(group.parts for group in store.query(OLD_TOTALS).allow_scan()) == 40


def unique(which: str) -> Any:
    if which == "copied":
        return part(changed(FIELDS, price=Decimal), by_maker=tm.Index[str](partition="{maker}", unique=True))
    return part(by_maker=tm.Index[str](partition="{maker}", unique=True))


@pytest.mark.parametrize("which", ["copied", "only built"])
def test_values_that_are_held_twice_are_resolved(path: Path, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tm.open(path, models=[BARE], durability="relaxed") as store:
        store.query(BARE).allow_scan().update(lambda e: e.replace(maker=f"m{e.number % 12}"))
    new = unique(which)

    def apart(holders: list[Any]) -> list[Any]:
        assert [one.number for one in holders] == sorted(one.number for one in holders)
        for one in holders[1:2]:
            one.maker = f"{one.maker} {one.number}"
        return holders[:2]

    def steps(m: tm.Migration, resolve: Any = apart) -> None:
        if which == "copied":
            m.convert(BARE.price, new.price, Decimal, back=str)
        m.resolve(new.by_maker, resolve)

    one = script([new], steps, "first", None, [BARE])
    with monkeypatch.context() as patch:
        patch.setattr(run, "resolve", lambda *_: ())  # as if it were killed
        migrate(path, one)
    with pytest.raises(tm.UniqueViolation):
        tm.open(path, models=[new])
    assert migrate(path, one).ok
    with tm.open(path, models=[new]) as store:
        entities = list(store.query(new).allow_scan())
        assert len(entities) == len({e.maker for e in entities}) == 24
        assert store.check().ok
        assert [e.number for e in store.query(new.by_maker("m3 15"))] == [15]


@pytest.mark.parametrize("killed", [False, True])
def test_values_are_resolved_before_the_next_script_begins(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, killed: bool
) -> None:
    with tm.open(path, models=[BARE], durability="relaxed") as store:
        store.query(BARE).allow_scan().update(lambda e: e.replace(maker=f"m{e.number % 12}"))
    new = unique("only built")
    last = part(changed(FIELDS, price=Decimal), by_maker=tm.Index[str](partition="{maker}", unique=True))
    first = script([new], lambda m: m.resolve(new.by_maker, lambda holders: holders[:1]), "first", None, [BARE])
    second = script([last], lambda m: m.convert(new.price, last.price, Decimal), "second", "first", [new])
    assert migrate(path, first, second, dry_run=True).ok
    if killed:
        with monkeypatch.context() as patch:
            patch.setattr(run, "resolve", lambda *_: ())
            migrate(path, first)
    assert migrate(path, first, second).applied == (("second",) if killed else ("first", "second"))
    with tm.open(path, models=[last]) as store:
        assert sorted(e.maker for e in store.query(last).allow_scan()) == sorted(f"m{n}" for n in range(12))
        assert store.check().ok


def test_values_that_stay_the_same_are_faults(path: Path) -> None:
    new = unique("only built")
    with tm.open(path, models=[BARE], durability="relaxed") as store:
        store.query(BARE).allow_scan().update(lambda e: e.replace(maker=f"m{e.number % 12}"))
    one = script([new], lambda m: m.resolve(new.by_maker, lambda holders: holders), "first", None, [BARE])
    with pytest.raises(tm.MigrationStopped, match="Part .*: it still has .*'m0'") as stopped:
        migrate(path, one)
    assert len(stopped.value.faults) == 12


@pytest.mark.parametrize("instead", ["nothing", "another script", "one before it"])
def test_a_migration_that_has_not_switched_is_given_up_for_what_is_wanted_instead(path: Path, instead: str) -> None:
    assert not migrate(path, TO_DECIMAL, limit=10).done
    engine = SqliteMigrations.open(path)
    begun = run.transition_of(run.scripts_of([TO_DECIMAL])[0], engine.forms())
    assert begun is not None
    engine.start(begun)
    slim = part(changed(FIELDS, tags=None))
    other = script([slim], lambda m: m.drop(BARE.tags), "other", None, [BARE])
    scripts, to, new = {
        "nothing": ([TO_DECIMAL], "", BARE),
        "another script": ([other], "other", slim),
        "one before it": ([other, script([], lambda _: None, "first", "other", [])], "other", slim),
    }[instead]
    assert migrate(path, *scripts, to=to).ok
    with pytest.raises(tm.InvalidMigration, match="first: another run gave it up while this one copied"):
        engine.step(10)
    engine.close()
    assert [one.id for one in tm.status(path).history] == ([] if instead == "nothing" else ["other"])
    with tm.open(path, models=[new]) as store:
        assert len(list(store.query(new).allow_scan())) == 30
        assert store.check().ok


@pytest.mark.parametrize("resolved", [False, True])
def test_a_dry_run_finds_values_that_are_held_twice(path: Path, *, resolved: bool) -> None:
    with tm.open(path, models=[BARE], durability="relaxed") as store:
        store.query(BARE).allow_scan().update(lambda e: e.replace(maker=f"m{e.number % 12}"))
    new = unique("only built")

    def apart(holders: list[Any]) -> list[Any]:
        return holders if holders[0].number == 3 else holders[:1]

    def steps(m: tm.Migration) -> None:
        if resolved:
            m.resolve(new.by_maker, apart)

    before = path.read_bytes()
    report = migrate(path, script([new], steps, "first", None, [BARE]), dry_run=True)
    assert path.read_bytes() == before
    assert not report.ok
    if resolved:
        assert [(fault.where, fault.key) for fault in report.faults] == [("Part", ("a", "b27"))]
    else:
        assert len(report.faults) == 18
    assert "of Part.by_maker, as ('a', '" in report.faults[0].detail


def test_a_dry_run_that_has_no_room_for_a_copy_says_how_much_is_needed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(tm.StoreFull, match=r"needed, and 1,000 are free; .* TMPDIR") as full:
        migrate(path, TO_DECIMAL, dry_run=True)
    assert f"{path.stat().st_size:,} bytes are needed" in str(full.value)
