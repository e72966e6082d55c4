"""Migrations of an account: properties renamed and definitions dropped, while programs of both versions write."""

from __future__ import annotations

from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.reserved_names import CLAIM, PAGES

from ...classes import aggregate, entity, grouped
from ...migrations.shapes import made, script, step
from ...stores import sound_store
from .memory import Faulty, Memory
from .place import AzurePlace


def part(maker: str = "maker", price: str = "price", others: dict[str, Any] | None = None, **more: Any) -> Any:
    """Return a class with everything that an index can be, with names for two of its fields."""
    fields = {"shelf": str, "number": int, maker: str | None, price: float, "code": str | None, **(others or {})}
    indexes = {
        "by_maker": tm.Index[str](
            partition=f"{{{maker}}}", include=(price,), where=lambda p: getattr(p, maker) != "m9"
        ),
        "by_price": tm.Index[str, float](partition="{shelf}", row=f"{{{price}}}", include=(maker,)),
        "by_code": tm.Index[str](partition="{code}", unique=True, include=(price,)),
        **more,
    }
    key = tm.Key[str, int](partition="{shelf}", row="{number}")
    return entity("Part", "Parts", fields, key, **indexes)


def makers(of: Any, maker: str = "maker", price: str = "price", **more: Any) -> Any:
    members = {
        "who": (str, tm.group_by(getattr(of, maker))),
        "parts": (int, tm.count(where=getattr(of, price) < 1e6)),
        "most": (float | None, tm.max(getattr(of, price))),
    }
    return aggregate("Makers", of, members, tm.Key[str](partition="{who}"), **more)


def shelves(of: Any, price: str = "price") -> Any:
    members = {
        "shelf": (str, tm.group_by(of.shelf)),
        "parts": (int, tm.count()),
        "total": (float, tm.sum(getattr(of, price))),
        "most": (float | None, tm.max(getattr(of, price))),
    }
    return aggregate("Shelves", of, members, tm.Key[str](partition="{shelf}", row="total"), "Parts")


OLD, NEW = part(), part("firm", "cost")
OLDS = [OLD, makers(OLD), shelves(OLD)]
NEWS = [NEW, makers(NEW, "firm", "cost"), shelves(NEW, "cost")]


@tm.migration(after=None, old=OLDS, new=NEWS)
def names(m: tm.Migration) -> None:
    m.rename(OLD.maker, NEW.firm)
    m.rename(OLD.price, NEW.cost)


@pytest.fixture
def place() -> Any:
    place = AzurePlace(memory=Memory(), still=True)
    with opened(place, OLDS) as store:
        store.insert_many(old_of(one) for one in ITEMS)
    return place


ITEMS = [
    ("xyz"[n % 3], n, f"m{n % 11}" if n % 5 else None, float(n % 7), f"c{n}" if n % 2 else None) for n in range(40)
]


def opened(place: Any, models: list[Any], **options: Any) -> tm.Store:
    return tm.open(place, models=models, **options)


def later(store: tm.Store) -> None:
    """Let it be time for a process to look at the catalogue again."""
    store._engine.current.known.seen = -1e9  # type: ignore[attr-defined]


def old_of(item: tuple[Any, ...]) -> Any:
    return OLD(**dict(zip(("shelf", "number", "maker", "price", "code"), item, strict=True)))


def new_of(item: tuple[Any, ...]) -> Any:
    return NEW(**dict(zip(("shelf", "number", "firm", "cost", "code"), item, strict=True)))


def seen(store: tm.Store, models: list[Any]) -> Any:
    """Return all that a store answers to some classes, by values alone."""
    cls, firms, _ = models
    maker, price = ("maker", "price") if cls is OLD else ("firm", "cost")
    at = lambda one: tuple(getattr(one, name) for name in ("shelf", "number", maker, price, "code"))  # noqa: E731
    everything = sorted(at(one) for one in store.query(cls).allow_scan())
    found = {m: sorted(at(one) for one in store.query(cls.by_maker(m))) for m in ("m1", "m2", "m9")}
    cheap = sorted(at(one) for one in store.query(cls).where(cls.shelf == "x", getattr(cls, price) < 3.0))
    shown = sorted(
        [
            one
            for (one,) in store.query(cls)
            .where(cls.shelf == "y", getattr(cls, price) >= 3.0)
            .select(getattr(cls, maker))
        ],
        key=str,
    )
    coded = [at(one) for one in store.query(cls).where(cls.code == "c7")]
    some = sorted(at(one) for one in store.query(cls).where(getattr(cls, maker) == "m3").allow_scan())
    groups = sorted((one.who, one.parts, one.most) for one in store.query(firms).allow_scan())
    totals = sorted((one.shelf, one.parts, one.total) for one in store.query(models[2]).allow_scan())
    return everything, found, cheap, shown, coded, some, groups, totals


def expected(items: list[tuple[Any, ...]]) -> Any:
    by_maker = lambda m: sorted(one for one in items if one[2] == m)  # noqa: E731
    who = sorted({one[2] for one in items if one[2] is not None})
    return (
        sorted(items),
        {m: by_maker(m) if m != "m9" else [] for m in ("m1", "m2", "m9")},
        sorted(one for one in items if one[0] == "x" and one[3] < 3.0),
        sorted((one[2] for one in items if one[0] == "y" and one[3] >= 3.0), key=str),
        [one for one in items if one[4] == "c7"],
        by_maker("m3"),
        [(m, len(by_maker(m)), max(one[3] for one in by_maker(m))) for m in who],
        [(s, len(some), sum(one[3] for one in some)) for s in "xyz" if (some := [one for one in items if one[0] == s])],
    )


def test_a_former_name_is_free_for_another_field_once_the_rename_is_contracted(place: Any) -> None:
    again = part(
        "firm",
        "cost",
        {"price": str | None},
        by_new_price=tm.Index[str](partition="{price}", include=("price", "cost")),
    )
    tm.migrate(place, [names])
    with pytest.raises(tm.SchemaMismatch, match='"price" is what "cost" was called before names: contract that first'):
        opened(place, [again])
    tm.migrate(place, [names], contract=True)
    with sound_store(place, models=[again, makers(again, "firm", "cost"), shelves(again, "cost")]) as store:
        assert {one.price for one in store.query(again).allow_scan()} == {None}
        store.insert(again("x", 70, "m1", 4.0, None, "dear"))
        store.merge(again.key("x", 70), price="dearest")
        assert store[again.key("x", 70)] == again("x", 70, "m1", 4.0, None, "dearest")
        assert [one.number for one in store.query(again.by_new_price("dearest"))] == [70]
        assert store.query(again).where(again.shelf == "x", again.price == "dearest").count() == 1
        assert list(store.query(again.by_new_price("dearest")).select(again.cost).allow_eventual()) == [(4.0,)]
    (held,) = [one for one in place.memory.entities("Parts") if one.get("price_2") == "dearest"]
    assert (held["price"], held["maker"]) == (4.0, "m1")


def test_an_undeclared_property_does_not_take_the_name_that_a_field_has_in_the_store() -> None:
    def shape(price: str) -> Any:
        fields = {"id": str, price: float, "more": tm.Extra}
        return entity("Loose", "Loose", fields, tm.Key[str](partition="{id}"))

    old, new = shape("price"), shape("cost")
    cost = script([new], lambda m: m.rename(old.price, new.cost), "cost", old=[old])
    place: Any = AzurePlace(memory=Memory(), still=True)
    opened(place, [old]).close()
    tm.migrate(place, [cost])
    with opened(place, [new]) as store:
        store.insert(new("a", 1.0, {"size": "big"}))
        with pytest.raises(tm.InvalidEntity, match='"price" has the name that "cost" had before'):
            store.insert(new("b", 1.0, {"price": 2.0}))
        assert store.get(new.key("b")) is None
        assert store[new.key("a")] == new("a", 1.0, {"size": "big"})


def pair(a: str, b: str, **more: Any) -> Any:
    fields = {"p": str, "n": int, "w": str, a: int | None, b: int | None}
    indexes = {
        "by_w": tm.Index[str](partition="{w}", include=(a,)),
        "by_here": tm.Index[str, str](partition="{p}", row="{w}", include=(a,)),
        **more,
    }
    return entity("Pair", "Pairs", fields, tm.Key[str, int](partition="{p}", row="{n}"), **indexes)


def test_a_name_that_another_field_had_before_is_looked_for_under_its_own() -> None:
    old, middle, new = pair("a", "b"), pair("a", "c"), pair("b", "c")
    first = script([middle], lambda m: m.rename(old.b, middle.c), old=[old])
    second = script([new], lambda m: m.rename(middle.a, new.b), "second", after="first", old=[middle])
    place: Any = AzurePlace(memory=Memory(), still=True)
    with opened(place, [old]) as store:
        store.insert_many([old(p="x", n=n, w="w", a=n, b=10 * n) for n in range(5)])
    tm.migrate(place, [first], contract=True)
    tm.migrate(place, [first, second])
    with sound_store(place, models=[new]) as store:
        for query in (store.query(new.by_w("w")), store.query(new.by_here("x", "w"))):
            assert [one.n for one in query.where(new.c == 20)] == [one.n for one in query.where(new.b == 2)] == [2]
            assert list(query.where(new.b == 2).select(new.b).allow_eventual()) == [(2,)]


def test_a_program_that_follows_puts_rows_of_indexes_under_the_stored_names() -> None:
    old, new = pair("a", "b"), pair("c", "b")
    more = pair("c", "b", by_b=tm.Index[int](partition="{b}", include=("c",)))
    first = script([new], lambda m: m.rename(old.a, new.c), old=[old])

    def best(cls: Any, of: str) -> Any:  # (in the table of the entities, with a property of the former name)
        members = {"w": (str, tm.group_by(cls.w)), "a": (int | None, tm.max(getattr(cls, of)))}
        return aggregate("Best", cls, members, tm.Key[str](partition="{w}", row="best"), "Pairs")

    place: Any = AzurePlace(memory=Memory(), still=True)
    opened(place, [old]).close()
    tm.migrate(place, [first], contract=True)
    total = best(more, "c")
    with sound_store(place, models=[more, total]) as store, opened(place, [new]) as follower:
        follower.insert(new(p="x", n=9, w="w", c=9, b=90))
        assert list(store.query(more.by_b(90)).select(more.c).allow_eventual()) == [(9,)]
        assert store[total.key("w")].a == 9


# ---------------------------------------------------------------------------------------------- drops


class Note(tm.Entity, table="Parts"):
    shelf: tm.Field[str]
    text: tm.Field[str]
    key = tm.Key[str, str](partition="{shelf}", row=("note", "{text}"))
    by_text = tm.Index[str](partition="{text}")
    by_here = tm.Index[str, str](partition="{shelf}", row="{text}")


class Alone(tm.Entity, table="Alones"):
    id: tm.Field[str]
    size: tm.Field[int]
    key = tm.Key[str](partition="{id}")
    by_size = tm.Index[int](partition="{size}", unique=True)


Sizes = grouped("Sizes", Alone, "size", number=tm.count())


RANKED = {
    "by_most": tm.Index[str, float](partition="{who}", row="{most}"),
    "by_rank": tm.Index[float](partition="all", row="{most}"),
}
FULL = [OLD, makers(OLD, **RANKED), shelves(OLD), Note, Alone, Sizes]
BARE = part(by_maker=None, by_price=None, by_code=None)


def filled() -> Any:
    place: Any = AzurePlace(memory=Memory(), still=True)
    with opened(place, FULL) as store:
        store.insert_many([old_of(one) for one in ITEMS])
        store.insert_many([Note("x", f"n{n}") for n in range(5)])
        store.insert_many([Alone(f"a{n}", n) for n in range(5)])
    return place


def dropped(name: str, new: list[Any], *what: Any) -> Any:
    def drop(m: tm.Migration) -> None:
        for one in what:
            m.drop(one)

    drop.__name__ = name
    return tm.migration(after=None, old=FULL, new=new)(drop)


def without(**indexes: Any) -> list[Any]:
    """Return the classes without some indexes of the first one."""
    cls = part(**dict.fromkeys(indexes))
    return [cls, makers(cls, **RANKED), shelves(cls), Note, Alone, Sizes]


def _unranked() -> list[Any]:
    return [OLD, makers(OLD), shelves(OLD), Note, Alone, Sizes]


DROPS: dict[str, tuple[Any, list[str], list[str]]] = {
    "indexes": (lambda: (without(by_maker=1, by_price=1, by_code=1), OLD.by_maker, OLD.by_price, OLD.by_code), ["PartsByMaker", "PartsByCode"], ["Part.by_price"]),
    "groups": (lambda: ([OLD, Note, Alone, Sizes], FULL[1], FULL[2]), ["Makers", "MakersByRank"], []),
    "indexes on groups": (lambda: (_unranked(), FULL[1].by_most, FULL[1].by_rank), ["MakersByRank"], ["Makers.by_most"]),
    "a class beside others": (lambda: ([*FULL[:3], Alone, Sizes], Note), ["PartsByText"], ["Note.by_here"]),
    "a class alone": (lambda: (FULL[:4], Alone, Sizes), ["Alones", "AlonesBySize", "Sizes"], []),
}  # fmt: skip


def is_gone(memory: Memory, tables: list[str], labels: list[str]) -> bool:
    left = {name: memory.tables[name] for name in tables if set(memory.tables.get(name, ())) - {(CLAIM, CLAIM)}}
    hidden = [
        key
        for rows in memory.tables.values()
        for key in rows
        if key[1].startswith(tuple(f' "x{one}' for one in labels))
    ]
    return not left and not hidden


def has_pages(memory: Memory) -> bool:
    return any(PAGES[0] <= row < PAGES[1] for rows in memory.tables.values() for _, row in rows)


@pytest.mark.parametrize("name", DROPS)
def test_what_is_dropped_goes_when_it_is_contracted_and_nothing_else(name: str) -> None:
    place, (given, tables, labels) = filled(), DROPS[name]
    new, *what = given()
    script = dropped("less", new, *what)
    assert has_pages(place.memory)
    with opened(place, FULL) as old:
        assert {step.old_version for step in tm.migrate(place, [script]).plan} == {"writes"}
        old.insert(old_of(("x", 50, "m1", 2.0, "c50")))
        assert not is_gone(place.memory, tables, labels)
        assert tm.migrate(place, [script], to="").ok
        assert tm.migrate(place, [script], contract=True).contracted == ("less",)
        later(old)
        with pytest.raises(tm.SchemaMismatch, match="less"):
            old.insert(old_of(("x", 51, "m1", 2.0, "c51")))
    assert is_gone(place.memory, tables, labels)
    assert has_pages(place.memory) == (name != "groups")
    with sound_store(place, models=new) as store:
        assert store.check().ok
        items = sorted([*ITEMS, ("x", 50, "m1", 2.0, "c50")])
        cls = new[0]
        assert sorted((o.shelf, o.number, o.maker, o.price, o.code) for o in store.query(cls).allow_scan()) == items
        store.insert(cls(shelf="x", number=52, maker="m1", price=2.0, code="c52"))
        store.delete(cls.key("x", 50))
    assert is_gone(place.memory, tables, labels)
    states = {one.where: one.state for one in tm.status(place).objects}
    assert {state for where, state in states.items()} == {"ready", "dropped"}
    with pytest.raises(tm.SchemaMismatch, match="less"):
        opened(place, FULL)


@pytest.mark.parametrize("way", ["before", "after"])
@pytest.mark.parametrize("name", DROPS)
def test_a_contraction_that_ended_at_any_request_is_done_again(name: str, way: str, full_size: bool) -> None:
    given, tables, labels = DROPS[name]
    new, *what = given()
    script = dropped("less", new, *what)
    for at in range(1 + len(name) % 7, 10_000, 1 if full_size else 13):
        memory = Faulty()
        place: Any = AzurePlace(memory=memory, still=True)
        with opened(place, FULL) as store:
            store.insert_many([old_of(ITEMS[1]), old_of(ITEMS[2]), Note("x", "n"), Alone("a", 1)])
        memory.at, memory.way = memory.number + at, way
        try:
            tm.migrate(place, [script], contract=True)
        except KeyboardInterrupt:
            ended = False
        else:
            ended = True
        memory.at = -1
        assert tm.migrate(place, [script], contract=True).ok
        assert is_gone(memory, tables, labels) or (name == "indexes on groups" and not is_gone(memory, tables, []))
        with opened(place, new) as store:
            assert store.check().ok
        if ended:
            assert at > 10
            return
    raise AssertionError


class Beside(Memory):
    """A service to which a program that does not look at the catalogue writes between the requests of another one."""

    write: Any = None
    until = 0.0

    def send(self, request: Any, *wait: float) -> Any:
        write, self.write = self.write, None
        if write is not None and self.ahead < self.until:
            write()
        self.write = write
        return super().send(request)


@pytest.mark.parametrize("name", DROPS)
def test_nothing_is_deleted_before_every_program_knows(name: str) -> None:
    given, tables, labels = DROPS[name]
    new, *what = given()
    memory, script, count = Beside(), dropped("less", new, *what), iter(range(100, 10_000))
    place: Any = AzurePlace(memory=memory, still=True)

    def write() -> None:
        number = next(count)
        old.insert(old_of(("x", number, "m1", 2.0, f"c{number}")))
        if name.startswith("a class"):
            old.insert(Note("x", f"n{number}") if name == "a class beside others" else Alone(f"a{number}", number))

    with opened(place, FULL) as old:
        old.insert_many([old_of(one) for one in ITEMS])
        tm.migrate(place, [script])
        memory.until = memory.ahead + 39.0  # (what a program believes, and how long a write goes on)
        memory.write = write
        assert tm.migrate(place, [script], contract=True).contracted == ("less",)
        memory.write = None
    written = next(count) - 100
    assert written >= 5
    assert is_gone(memory, tables, labels)
    with sound_store(place, models=new) as store:
        assert store.query(new[0]).allow_scan().count() == 40 + written


def test_a_class_that_is_being_contracted_is_not_declared_anew_before_that_has_ended() -> None:
    class Alone(tm.Entity, table="Alones"):  # (another one of this name)
        id: tm.Field[str]
        weight: tm.Field[int | None]
        key = tm.Key[str](partition="{id}")

    new, *what = DROPS["a class alone"][0]()
    memory, script = Beside(), dropped("less", new, *what)
    place: Any = AzurePlace(memory=memory, still=True)
    tried, has_begun = iter(range(1000)), False

    def declare() -> None:
        nonlocal has_begun
        has_begun = has_begun or any(one.state == "contracted" for one in tm.status(place).history)
        if has_begun:
            next(tried)
            with pytest.raises(
                tm.SchemaMismatch, match="Alone: less drops what has this name, and is being contracted"
            ):
                opened(place, [*new, Alone])

    with opened(place, FULL) as old:
        old.insert(FULL[4]("a", 1))
    tm.migrate(place, [script])
    memory.until, memory.write = memory.ahead + 90.0, declare
    assert tm.migrate(place, [script], contract=True).contracted == ("less",)
    memory.write = None
    assert next(tried) > 3
    with sound_store(place, models=[*new, Alone]) as store:
        store.insert(Alone("a", 2))
    assert tm.migrate(place, [script], contract=True).contracted == ()
    with opened(place, [*new, Alone]) as store:
        assert store[Alone.key("a")].weight == 2


# ---------------------------------------------------------------------------------------------- what is refused, and beside it


def test_a_script_that_renames_and_one_that_copies_run_one_after_the_other(place: Any) -> None:
    priced = part("firm", "cost", {"code": int | None}, by_code=tm.Index[int](partition="{code}", unique=True))
    digits = step("convert", NEW.code, priced.code, lambda code: None if code is None else int(code[1:]))
    new = [priced, makers(priced, "firm", "cost"), shelves(priced, "cost")]
    numbers = made(new, NEWS, digits, name="numbers", after="names")
    report = tm.migrate(place, [names, numbers], dry_run=True)
    assert (report.ok, report.entities, report.applied) == (True, 40, ())
    assert [step.old_version for step in report.plan] == ["writes", "writes", "stops"]
    report = tm.migrate(place, [names, numbers])
    assert (report.ok, report.entities, report.applied) == (True, 40, ("names", "numbers"))
    assert [step.old_version for step in report.plan] == ["writes", "writes", "stops"]
    with sound_store(place, models=new) as store:
        held = {(one.shelf, one.number): (one.firm, one.cost, one.code) for one in store.query(priced).allow_scan()}
        assert held == {one[:2]: (*one[2:4], None if one[4] is None else int(one[4][1:])) for one in ITEMS}
        assert [one.number for one in store.query(priced.by_code(7))] == [7]


def test_a_run_plans_again_when_another_one_was_faster() -> None:
    memory = Beside()
    place: Any = AzurePlace(memory=memory, still=True)
    opened(place, OLDS).close()
    reports = []

    def other() -> None:
        memory.until = -1.0
        reports.append(tm.migrate(place, [names]))

    for at in range(12):
        calls = iter(range(1_000))
        with opened(place, OLDS):
            tm.migrate(place, [names], to="")
        memory.until, memory.write = memory.ahead + 1e9, lambda: other() if next(calls) == at else None
        reports = [tm.migrate(place, [names])]
        memory.write = None
        assert sum(one.applied == ("names",) for one in reports) <= 1
        assert all(one.ok for one in reports)
        assert [one.state for one in tm.status(place).history] == ["switched"]
        with opened(place, NEWS) as store:
            assert store.check().ok


def test_renamed_properties_are_copied_under_their_names(place: Any, tmp_path: Any) -> None:
    tm.migrate(place, [names])
    with opened(place, NEWS) as store, tm.open(tmp_path / "s.db", models=NEWS) as file:
        tm.copy(store, file)
        assert seen(file, NEWS) == seen(store, NEWS) == expected(ITEMS)
        other: Any = AzurePlace(memory=Memory(), still=True)
        with opened(other, NEWS) as back:
            tm.copy(file, back)
            assert seen(back, NEWS) == expected(ITEMS)
        assert {one.get("firm") for one in other.memory.entities("Parts")} >= {"m1", "m2"}
        store.backup(tmp_path / "backup.db")
    with tm.open(tmp_path / "backup.db", models=NEWS) as backup:
        assert seen(backup, NEWS) == expected(ITEMS)
    with sound_store(place, models=None, read_only=True) as read:  # type: ignore[arg-type]
        cls: Any = read.classes["Part"]
        assert {one.firm for one in read.query(cls).where(cls.shelf == "x")} > {"m3"}
