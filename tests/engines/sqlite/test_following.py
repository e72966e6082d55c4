"""Several versions of a program on one file: what one of them adds, the others follow."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

import tablemapper as tm
from tablemapper.evolution import newer_versions

from ...classes import Color, aggregate, entity
from ...sql import run_sql
from ...stores import sound_store

AT = datetime(2026, 3, 1, tzinfo=UTC)


def version(name: str = "Product", table: str = "Products", /, **body: Any) -> Any:
    """Return a class of products: ``field=annotation``, ``field=(annotation, default)``, and indexes."""
    key = body.pop("key", tm.Key(partition="{category}", row="{number}"))
    others = {name: body.pop(name) for name in [*body] if name == "type" or isinstance(body[name], tm.Index)}
    fields: dict[str, Any] = {"category": str, "number": int, "price": float, **body}
    for field, one in body.items():
        if one is None:
            del fields[field]
        elif isinstance(one, tuple) and isinstance(one[1], str | int | float | Decimal | enum.Enum | None):
            fields[field] = one[0], tm.field(default=one[1])
    return entity(name, table, fields, key, **others)


def totals(of: Any, name: str = "Total", **body: Any) -> Any:
    """Return a class of totals by category."""
    members = {"category": (str, tm.group_by(of.category)), "count": (int, tm.count()), **body}
    return aggregate(name, of, members, tm.Key(partition="{category}"), f"{name}s")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with 6 products."""
    plain = version()
    with tm.open(tmp_path / "x.db", models=[plain], durability="relaxed") as store:
        store.insert_many(plain(f"c{n % 2}", n, n / 2) for n in range(6))
    return tmp_path / "x.db"


@pytest.fixture
def open_store(path: Path) -> Iterator[Callable[..., tm.Store]]:
    """Open the file once more with some classes; each store is checked at the end."""
    with ExitStack() as stack:
        stores: list[tm.Store] = []

        def opened(*models: Any) -> tm.Store:
            stores.append(stack.enter_context(tm.open(path, models=list(models), durability="relaxed")))
            return stores[-1]

        yield opened
        for store in stores:
            assert store.check().problems == ()


Open = Callable[..., tm.Store]


def generation(path: Path) -> int:
    ((number,),) = run_sql(path, "SELECT generation FROM tablemapper_state")
    return int(number)


# ---------------------------------------------------------------------------------------------- a version that runs


def write_all(store: tm.Store, cls: Any, category: str) -> None:
    """Write by every verb."""
    store.insert(cls(category, 1, 1.0))
    store.insert_many([cls(category, n, 2.0) for n in range(2, 5)])
    store.insert_many([cls(category, n, 2.0) for n in range(5, 7)], atomic=True)
    store.merge(cls.key(category, 1), price=1.5)
    store.upsert(cls(category, 2, 2.5))
    store.upsert(cls(category, 9, 9.0), merge=True)
    found = store[cls.key(category, 3)]
    found.price = 3.5
    store.replace(found)
    with store.transaction() as tx:
        tx.delete(cls.key(category, 4))
        tx.insert(cls(category, 10, 10.0))
    store.query(cls).where(cls.category == category, cls.number > 8).update(price=8.0)
    store.delete(store[cls.key(category, 5)])


ADDITIONS: dict[str, dict[str, Any]] = {
    "an optional field": {"note": (str | None, None)},
    "a field with a default": {"rank": (int, 3)},
    "a field with a default, and an index on it": {
        "rank": (int, 3),
        "by_rank": tm.Index(partition="{rank}", include=("price",)),
    },
    "an index": {"by_price": tm.Index(partition="{price}")},
    "a partial index": {"by_price": tm.Index(partition="{price}", where=lambda p: p.price > 2)},
    "a covering index": {"by_price": tm.Index(partition="{price}", include="all")},
    "a list that an index fans out over": {
        "tags": (list[str], tm.field(factory=list)),
        "by_tag": tm.Index(partition="{tags}"),
    },
    "another type of ints": {"weight": (tm.Int32, 5), "took": (timedelta | None, None)},
    "a type name": {"type": "product"},
}
del ADDITIONS["a list that an index fans out over"]  # (a factory is no default)


@pytest.mark.parametrize("addition", ADDITIONS)
def test_a_version_that_runs_follows_what_a_new_one_adds(addition: str, path: Path, open_store: Open) -> None:
    old, new = version(), version(**ADDITIONS[addition])
    running = open_store(old)
    newer = open_store(new)
    write_all(running, old, "a")
    write_all(newer, new, "b")
    write_all(open_store(old), old, "c")  # restarted, or rolled back
    write_all(open_store(new), new, "d")
    for store in (running, newer):
        assert store.check().problems == ()
    prices = [
        [(p.number, p.price) for p in newer.query(new).where(new.category == category)]
        for category in ("a", "b", "c", "d")
    ]
    assert prices == [prices[0]] * 4


@pytest.mark.parametrize("declared", [False, True], ids=["by its own store", "by another class"])
def test_an_aggregate_that_a_new_version_adds_is_maintained_by_those_that_run(
    path: Path, open_store: Open, *, declared: bool
) -> None:
    old = version()
    new = version() if declared else old
    total = totals(
        new,
        best=(float | None, tm.max(new.price)),
        spent=(float, tm.sum(new.price)),
        dear=(int, tm.count(where=new.price > 2)),
        most=(float | None, tm.max_ever(new.price)),
    )
    running, newer = open_store(old), open_store(new, total)
    write_all(running, old, "a")
    write_all(newer, new, "b")
    write_all(open_store(old), old, "c")
    one, two, three = (newer[total.key(category)] for category in "abc")
    assert (one.count, one.best, one.spent, one.dear, one.most) == (two.count, two.best, two.spent, two.dear, two.most)
    assert one.count == three.count == 6


def test_a_class_that_has_all_that_is_stored_is_not_compiled_again(
    path: Path, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, compiled = version(), newer_versions.source_model
    total, names = totals(plain), list[str]()

    def source_model(model: Any, *arguments: Any) -> Any:
        names.append(model.name)
        return compiled(model, *arguments)

    monkeypatch.setattr(newer_versions, "source_model", source_model)
    newer = open_store(plain, total)
    open_store(plain).insert(plain("c9", 1, 1.0))
    assert newer[total.key("c9")].count == 1
    assert names == []
    open_store(version(rank=(int, 3)))
    open_store(plain).insert(plain("c9", 2, 1.0))
    assert newer[total.key("c9")].count == 2
    assert names == ["Product"]


def test_an_index_on_an_aggregate_is_followed(path: Path, open_store: Open) -> None:
    old = version()
    total = totals(old)
    members = {"count": (int, tm.count()), "category": (str, tm.group_by(old.category))}
    by_count = tm.Index(partition="{count}")
    indexed = aggregate("Total", old, members, tm.Key(partition="{category}"), "Totals", by_count=by_count)
    running, alone = open_store(old, total), open_store(old)
    newer = open_store(old, indexed)
    running.insert(old("c0", 50, 1.0))
    alone.insert(old("c0", 51, 1.0))
    assert [found.category for found in newer.query(indexed.by_count(5))] == ["c0"]
    assert running[total.key("c0")].count == 5


def test_an_index_on_some_groups_of_a_new_aggregate_is_followed(path: Path, open_store: Open) -> None:
    old = version()
    members = {"group": (str, tm.group_by(old.category)), "n": (int, tm.count(name="Number"))}
    members["best"] = (float | None, tm.max_ever(old.price))
    large = tm.Index(partition="{n}", where=lambda total: (total.n > 1) & (total.best > 2.0))
    total = aggregate("Total", old, members, tm.Key(partition="{group}"), "Totals", large=large)
    running, newer = open_store(old), open_store(old, total)
    for category, number, price in (("a", 50, 1.0), ("a", 51, 3.0), ("b", 50, 3.0), ("b", 51, 1.0), ("c", 50, 3.0)):
        running.insert(old(category, number, price))
    running.delete(old.key("b", 50))
    assert [found.group for found in newer.query(total.large(2))] == ["a"]
    assert newer.check().problems == ()


def test_a_unique_index_holds_for_versions_that_do_not_declare_it(path: Path, open_store: Open) -> None:
    old, new = version(), version(by_price=tm.Index(partition="{price}", unique=True))
    running, _ = open_store(old), open_store(new)
    with pytest.raises(tm.UniqueViolation):
        running.insert(old("x", 1, 0.5))
    running.insert(old("x", 1, 0.6))


def test_hidden_properties_are_carried_along(path: Path, open_store: Open) -> None:
    old, new = version(), version(rank=(int, 3), note=(str | None, None))
    running, newer = open_store(old), open_store(new)
    newer.merge(new.key("c0", 0), rank=7, note="long " * 200)
    found = running[old.key("c0", 0)]
    found.price = 9.0
    running.replace(found)
    running.merge(old.key("c0", 0), price=10.0)
    running.upsert(old("c0", 0, 11.0))
    running.insert(old("c0", 100, 1.0))
    one = newer[new.key("c0", 0)]
    assert (one.price, one.rank, one.note) == (11.0, 7, "long " * 200)
    one = newer[new.key("c0", 100)]
    assert (one.rank, one.note) == (3, None)


def test_an_entity_that_was_read_before_the_file_had_more_is_replaced_whole(path: Path, open_store: Open) -> None:
    old, new = version(), version(note=str | None, rank=(int, 3))
    running = open_store(old)
    before = running[old.key("c0", 0)]
    kept = running[old.key("c1", 1)]
    newer = open_store(new)
    newer.merge(new.key("c0", 2), note="x")
    before.price = 5.0
    running.replace(before)
    running.delete(kept)
    newer.merge(new.key("c0", 0), note="kept " * 200)
    with pytest.raises(tm.PreconditionFailed):
        running.replace(before)
    assert newer[new.key("c0", 0)].note == "kept " * 200


def test_a_new_class_does_not_stop_those_who_do_not_know_it(path: Path, open_store: Open) -> None:
    old = version()
    running = open_store(old)
    open_store(version("Other", "Others"))
    running.insert(old("x", 1, 1.0))


def test_versions_that_differ_in_a_default_leave_each_other_alone(path: Path) -> None:
    one, two = version(rank=(int, 3)), version(rank=(int, 4))
    with tm.open(path, models=[one]):
        before = generation(path)
    for _ in range(3):
        for cls in (one, two):
            with tm.open(path, models=[cls]) as store:
                store.upsert(cls("x", 1, 1.0))
                assert store[cls.key("c0", 0)].rank == 3
    assert generation(path) == before


def test_the_default_of_a_property_is_set_once_whatever_else_a_later_version_changes(
    path: Path, open_store: Open
) -> None:
    without, first, later = version(), version(rank=(int, 3)), version(rank=(int, 4), note=(str | None, None))
    running = open_store(without)
    open_store(first)
    newest = open_store(later)
    for store in (running, open_store(without)):
        store.insert(without("x", int(store is running), 1.0))
    newest.insert(later("y", 1, 1.0))
    assert [one.rank for one in newest.query(later).where(later.category == "c0")] == [3, 3, 3]
    assert [one.rank for one in newest.query(later).where(later.category == "x")] == [3, 3]
    assert newest[later.key("y", 1)].rank == 4


class Paint(enum.Enum):
    BLUE = "blue"
    RED = "red"


Wider = enum.Enum("Color", {"RED": "red", "BLUE": "blue", "GREEN": "green"})  # type: ignore[misc]

HARMLESS: dict[str, tuple[Any, Any]] = {
    "an Enum renamed, its members in another order": (Color, Paint),
    "an Enum that becomes a Literal": (Color, Literal["red", "blue"]),
    "another default": ((int, 3), (int, 4)),
}


@pytest.mark.parametrize("change", HARMLESS)
def test_what_changes_nothing_that_is_stored_moves_no_generation(change: str, tmp_path: Path) -> None:
    one, two = (version(state=kind) for kind in HARMLESS[change])
    value = 3 if isinstance(HARMLESS[change][0], tuple) else Color.RED
    with tm.open(tmp_path / "x.db", models=[one]) as store:
        store.insert(one("a", 1, 1.0, value))
    before = generation(tmp_path / "x.db")
    for cls in (two, one, two):
        with sound_store(tmp_path / "x.db", models=[cls]) as store:
            store.replace(store[cls.key("a", 1)])
    assert generation(tmp_path / "x.db") == before


READS: dict[str, Callable[[tm.Store, Any, Any], Any]] = {
    "get": lambda store, cls, other: store[cls.key("a", 1)].price,
    "get_many": lambda store, cls, other: [p.price for p in store.get_many([cls.key("a", 1), cls.key("a", 2)]) if p],
    "exists": lambda store, cls, other: store.exists(cls.key("a", 1)),
    "one entity": lambda store, cls, other: [p.price for p in store.query(cls).where(cls.category == "a", cls.number == 1)],
    "a partition": lambda store, cls, other: [p.price for p in store.query(cls).where(cls.category == "a")],
    "some partitions": lambda store, cls, other: [
        p.price for p in store.query(cls).where(cls.category.is_in(["a", "b"])).order_by(cls.number)
    ],
    "a filter": lambda store, cls, other: [p.price for p in store.query(cls).where(cls.state == "x").allow_scan()],
    "attributes": lambda store, cls, other: list(store.query(cls).where(cls.category == "a").select(cls.state, cls.price)),
    "an index": lambda store, cls, other: [p.state for p in store.query(cls.by_price(1.0))],
    "an index alone": lambda store, cls, other: list(store.query(cls.by_price(1.0)).select(cls.state)),
    "first": lambda store, cls, other: store.query(cls).where(cls.category == "a", cls.state == "x").first(),
    "count": lambda store, cls, other: store.query(cls).where(cls.category == "a", cls.state == "x").count(),
    "sum": lambda store, cls, other: store.query(cls).where(cls.category == "a", cls.state == "x").sum(cls.price),
    "page": lambda store, cls, other: [p.state for p in store.query(cls).where(cls.category == "a").page(1).items],
    "explain": lambda store, cls, other: str(store.query(cls).where(cls.category == "a").explain()) != "",
    "all types of a partition": lambda store, cls, other: [type(p).__name__ for p in store.partition(cls.category == "a")],
    "two classes": lambda store, cls, other: [
        p.category for p in store.query(cls, other).where(cls.category == "a", other.category == "a")
    ],
    "whether there are any of two classes": lambda store, cls, other: (
        store.query(cls, other).where(cls.category == "a", other.category == "a").exists()
    ),
    "the number of two classes": lambda store, cls, other: (
        store.query(cls, other).where(cls.category == "a", other.category == "a").count()
    ),
    "update by query": lambda store, cls, other: store.query(cls).where(cls.category == "a", cls.state == "x").update(state="x"),
}  # fmt: skip


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("key", [False, True], ids=["a column", "a table"])
def test_a_read_that_meets_another_name_finds_it(read: str, place: Path, *, key: bool) -> None:
    more = {"kind": Literal["k"], "key": tm.Key(partition="{category}", row=("p", "{number}", "{kind}"))} if key else {}
    wide = {**more, "kind": Literal["k", "l"]} if key else {}
    other = version("Other", key=tm.Key(partition="{category}", row=("other", "{number}")))
    index = tm.Index(partition="{price}", include=("state",))
    old, new = (
        version(state=Literal["x"], by_price=index, **more),
        version(state=Literal["x", "y"], by_price=index, **wide),
    )
    if key:
        for cls in (old, new):
            full = cls.key
            type(cls).key = property(lambda self, full=full: lambda category, number: full(category, number, "k"))
    with sound_store(place, models=[old, other]) as running:
        for number in (1, 2):
            running.insert(old("a", number, float(number), "x", *(["k"] if key else [])))
        running.insert(other("a", 1, 1.0))
        before = READS[read](running, old, other)
        assert READS[read](running, old, other) == before
        with tm.open(place, models=[new, other]):
            pass
        assert READS[read](running, old, other) == before


# ---------------------------------------------------------------------------------------------- widened values

WIDENED: dict[str, tuple[Any, Any, Any, Any]] = {
    "a member more": (Color, Wider, Color.RED, Wider.GREEN),  # type: ignore[attr-defined]
    "a Literal that becomes str": (Literal["a", "b"], str, "a", "z"),
    "an Enum that becomes str": (Color, str, Color.RED, "z"),
    "a list of members": (list[Literal["a"]], list[Literal["a", "b"]], ["a"], ["b"]),
    "Int32 that becomes int": (tm.Int32, int, 1, 1 << 40),
    "None": (str, str | None, "a", None),
}


@pytest.mark.parametrize("index", [False, True], ids=["plain", "in an index"])
@pytest.mark.parametrize("change", WIDENED)
def test_values_that_an_old_version_does_not_know_are_no_damage(change: str, place: Path, *, index: bool) -> None:
    narrow, wide, known, unknown = WIDENED[change]
    more = {"by_price": tm.Index(partition="{price}", include=("state",))} if index else {}
    old, new = version(state=narrow, **more), version(state=wide, **more)
    with tm.open(place, models=[old]) as running:
        running.insert(old("a", 1, 1.0, known))
        assert running[old.key("a", 1)].state == known
        assert [p.state for p in running.query(old).where(old.category == "a")] == [known]
        with sound_store(place, models=[new]) as newer:
            stored = {"red": "red"}.get(getattr(known, "value", ""), known)
            if wide is str and narrow is Color:
                assert newer[new.key("a", 1)].state == stored
            newer.insert(new("a", 2, 2.0, unknown))
            assert newer.check().ok
            for store in (running, tm.open(place, models=[old])):
                assert store[old.key("a", 1)].state == known
                for read in (
                    lambda store=store: store.get(old.key("a", 2)),
                    lambda store=store: store.get_many([old.key("a", 1), old.key("a", 2)]),
                    lambda store=store: list(store.query(old).where(old.category == "a")),
                    lambda store=store: list(store.query(old).where(old.category == "a", old.number == 2)),
                    lambda store=store: list(store.query(old).where(old.category == "a").select(old.state)),
                    lambda store=store: list(store.partition(old.category == "a")),
                    *([lambda store=store: list(store.query(old.by_price(2.0)).select(old.state))] if index else []),
                ):
                    with pytest.raises(tm.SchemaMismatch, match="state is .* which this version does not know"):
                        read()
                store.merge(old.key("a", 2), price=2.0)  # (it keeps what it does not know)
                store.upsert(old("a", 3, 3.0, known))
                store.merge(old.key("a", 1), price=4.0)
            assert newer[new.key("a", 2)].state == unknown


def test_a_value_that_an_old_version_does_not_know_is_told_with_what_the_newest_version_declares(
    tmp_path: Path,
) -> None:
    wider = [version(state=kind) for kind in (Literal["a"], Literal["a", "b"], Literal["a", "b", "c"])]
    with tm.open(tmp_path / "x.db", models=wider[:1]) as first, tm.open(tmp_path / "x.db", models=wider[1:2]) as second:
        with tm.open(tmp_path / "x.db", models=wider[2:]) as third:
            third.insert(wider[2]("a", 1, 1.0, "c"))
        for number, store in enumerate((first, second)):
            told = (
                r"state is 'c', which this version does not know: state is str of 'a', 'b', 'c' now; a newer version of Product "
                r"declares it so, which was first opened on \d{4}-\d\d-\d\d; deploy that one$"
            )
            with pytest.raises(tm.SchemaMismatch, match=told):
                store.get(wider[number].key("a", 1))


@attrs.define
class Home:
    city: str = ""


@attrs.define
class Villa:
    city: str = ""
    pool: str = "none"


Villa.__name__ = "Home"


def test_members_that_an_old_version_does_not_know_are_kept_or_the_change_is_refused(place: Path) -> None:
    old, new = version(home=Home), version(home=Villa)
    with sound_store(place, models=[old]) as running, sound_store(place, models=[new]) as newer:
        newer.insert(new("a", 1, 1.0, Villa("Rome", "large")))
        newer.insert(new("a", 2, 2.0, Villa("Oslo")))
        for store in (running, tm.open(place, models=[old])):
            found = store[old.key("a", 1)]
            assert found.home == Home("Rome")
            found.price += 1
            store.replace(found)
            store.merge(old.key("a", 1), price=7.0)
            found = store[old.key("a", 1)]
            found.home = Home("Paris")
            with pytest.raises(tm.SchemaMismatch, match="home holds members that this version does not know"):
                store.replace(found)
            store.insert(old("b", int(store is running), 1.0, Home("Bonn")))
        assert newer[new.key("a", 1)].home == Villa("Rome", "large")


# ---------------------------------------------------------------------------------------------- what cannot be followed


@attrs.define
class Palace:
    city: str = ""
    rooms: int = attrs.field(factory=lambda: 3)  # what values without it read as, only this code knows


def test_what_cannot_be_maintained_refuses_the_writes_of_its_class_alone(path: Path) -> None:
    old = version()
    new = version(home=Palace | None, by_city=tm.Index(partition="{home.city}"))
    other = version("Other", "Others")
    with tm.open(path, models=[old, other]) as running, sound_store(path, models=[new]) as newer:
        newer.merge(new.key("c0", 0), home=Palace("Rome"))
        with pytest.raises(
            tm.SchemaMismatch, match=r"Product.by_city needs the version that declares it.*nothing was written"
        ):
            running.insert(old("x", 1, 1.0))
        with pytest.raises(tm.SchemaMismatch, match="by_city"):
            running.insert_many([old("x", 1, 1.0)])
        with pytest.raises(tm.SchemaMismatch, match="by_city"):
            running.delete(old.key("c0", 0))
        running.insert(other("x", 1, 1.0))
        assert running.get(old.key("x", 1)) is None


# ---------------------------------------------------------------------------------------------- tables, keys, classes


def test_a_class_carved_out_over_rows_that_lie_in_its_keys_is_refused(place: Path) -> None:
    employee = version("Employee", "Staff", key=tm.Key(partition="{category}", row="{name}"), name=str, number=None)
    special = version("Department", "Staff", key=tm.Key(partition="{category}", row="Department"), number=None)
    with tm.open(place, models=[employee]) as running:
        running.insert(employee("Sales", 1.0, "Department"))
        with pytest.raises(
            tm.SchemaMismatch, match=r"a row of Employee has a key of Department, as \('Sales', 'Department'\)"
        ) as caught:
            tm.open(place, models=[employee, special])
        assert "m.rewrite(old.Employee" in (caught.value.script or "")
        running.delete(employee.key("Sales", "Department"))
        with sound_store(place, models=[employee, special]) as newer:
            newer.insert(special("Sales", 2.0))
            for store in (running, tm.open(place, models=[employee])):
                with pytest.raises(tm.SchemaMismatch, match="this key belongs to Department"):
                    store.insert(employee("Support", 1.0, "Department"))
                store.upsert(employee("Support", 1.0, "Ann"))
        with tm.open(place, models=[special]) as alone:
            alone.insert(special("Support", 2.0))


def test_a_class_that_looks_like_one_under_a_new_name_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tm.open(path, models=[version("Article", "Articles")]):
        pass
    assert "Product (6 entities)" in caplog.text
    assert "m.rename_class(old.Product, new.Article)" in caplog.text


def test_a_class_that_holds_nothing_is_declared_anew(place: Path) -> None:
    one = version(by_price=tm.Index(partition="{price}"))
    total = totals(one, spent=(float, tm.sum(one.price)))
    two = version(price=str, by_price=tm.Index(partition="{price}", row="{number}"), key=tm.Key(partition="{number}", row="{category}"))  # fmt: skip
    other = version("Other", "Others")
    with tm.open(place, models=[one, total, other]) as running:
        running.insert(one("a", 1, 1.0))
        with pytest.raises(tm.SchemaMismatch):
            tm.open(place, models=[two])
        running.delete(one.key("a", 1))
        with sound_store(place, models=[two]) as newer:
            newer.insert(two("a", 1, "x"))
            for use in (
                lambda: running.insert(one("a", 2, 1.0)),
                lambda: running.insert_many([one("a", 2, 1.0)]),
                lambda: running.merge(one.key("a", 2), price=1.0),
                lambda: running.get(one.key("a", 1)),
                lambda: running.get_many([one.key("a", 1)]),
                lambda: list(running.query(one).where(one.category == "a")),
                lambda: list(running.query(one.by_price(1.0))),
                lambda: list(running.partition(one.category == "a")),
                lambda: running.get(total.key("a")),
            ):
                with pytest.raises(tm.SchemaMismatch, match="was declared again on .*, when it held no entities"):
                    use()
            running.insert(other("a", 1, 1.0))
            assert running[other.key("a", 1)].price == 1.0
            assert running.check().ok
            assert [p.price for p in newer.query(two.by_price("x"))] == ["x"]
    with pytest.raises(tm.SchemaMismatch):
        tm.open(place, models=[one])
    with tm.open(place, models=[two]) as newer:
        newer.delete(two.key(1, "a"))
    with sound_store(place, models=[one, total]) as again:
        again.insert(one("a", 1, 1.0))
        assert again[total.key("a")].spent == 1.0


@pytest.mark.parametrize(
    "rank", [int, list[str], (list[str], tm.field(factory=list)), datetime], ids=["int", "list", "factory", "time"]
)
def test_a_version_without_a_required_field_declares_a_class_that_holds_nothing_anew(place: Path, rank: Any) -> None:
    plain, ranked = version(), version(rank=rank)
    with tm.open(place, models=[ranked]) as running, sound_store(place, models=[plain]) as other:
        other.insert(plain("a", 1, 1.0))  # without a rank, which the other version reads as if it were there
        with pytest.raises(tm.SchemaMismatch, match="was declared again on .*, when it held no entities"):
            running.get(ranked.key("a", 1))
    with pytest.raises(tm.SchemaMismatch):
        tm.open(place, models=[ranked])


@pytest.mark.parametrize(
    "rank", [int | None, (int, 3), (int | None, 3), (tm.Extra, tm.field(factory=tm.Extra))],
    ids=["optional", "default", "optional with a default", "undeclared ones"],
)  # fmt: skip
def test_a_version_without_a_field_that_may_be_missing_lives_beside_the_one_that_has_it(place: Path, rank: Any) -> None:
    plain, ranked = version(), version(rank=rank)
    with tm.open(place, models=[ranked]) as running, sound_store(place, models=[plain]) as other:
        other.insert(plain("a", 1, 1.0))
        assert running[ranked.key("a", 1)].price == 1.0


def test_a_class_that_shares_its_table_is_declared_anew(place: Path) -> None:
    other = version("Other", key=tm.Key(partition="{category}", row=("other", "{number}")))
    one, two = version(key=tm.Key(partition="{category}", row=("p", "{number}"))), version(price=str, key=tm.Key(partition="{category}", row=("q", "{number}")))  # fmt: skip
    with tm.open(place, models=[one, other]) as running:
        running.insert(other("a", 1, 1.0))
        with sound_store(place, models=[two, other]) as newer:
            newer.insert(two("a", 1, "x"))
            assert newer[other.key("a", 1)].price == 1.0
            assert [type(row).__name__ for row in newer.partition(two.category == "a")] == ["Other", "Product"]


def test_the_bytes_of_a_file_that_is_refused_stay_as_they_were(path: Path) -> None:
    before = path.read_bytes()
    for models in (
        [version(price=str)],
        [version(note=str)],
        [version(key=tm.Key(partition="{number}", row="{category}"))],
    ):
        with pytest.raises(tm.SchemaMismatch, match="This needs a migration") as refused:
            tm.open(path, models=models)
        assert "\n    m." in (refused.value.script or "")
    assert path.read_bytes() == before


def test_a_property_that_holds_nothing_may_be_left_out(path: Path, open_store: Open) -> None:
    wide = version(note=str | None, rank=(int, 3))
    with tm.open(path, models=[wide]):
        pass
    plain = version(by_price=tm.Index(partition="{price}"))
    store = open_store(plain)
    store.insert(plain("x", 1, 1.0))
    newer = open_store(wide)
    assert newer[wide.key("x", 1)].rank == 3
    newer.merge(wide.key("x", 1), rank=4)
    store.merge(plain.key("x", 1), price=2.0)
    assert newer[wide.key("x", 1)].rank == 4
    with pytest.raises(tm.SchemaMismatch, match=r'the property "rank" \(int\) is in the store') as caught:
        tm.open(path, models=[version(more=str | None, note=str | None)])
    assert "m.drop(old.Product.rank)" in (caught.value.script or "")


def test_undeclared_properties_may_be_added(path: Path, open_store: Open) -> None:
    old, new = version(), version(more=(tm.Extra, tm.field(factory=tm.Extra)))
    running, newer = open_store(old), open_store(new)
    assert newer[new.key("c0", 0)].more == {}
    newer.upsert(new("c0", 0, 1.0, tm.Extra(color="red")))
    running.merge(old.key("c0", 0), price=2.0)
    running.insert(old("x", 1, 1.0))
    assert newer[new.key("c0", 0)].more == {"color": "red"}
    assert newer[new.key("x", 1)].more == {}


def test_an_undeclared_property_that_a_newer_version_declares_is_not_lost(place: Path) -> None:
    extra = (tm.Extra, tm.field(factory=tm.Extra))
    old, new = version(more=extra), version(more=extra, color=(str | None, None))
    with tm.open(place, models=[old]) as running, tm.open(place, models=[new]):
        with pytest.raises(tm.SchemaMismatch, match='"color" is declared by a newer version'):
            running.insert(old("x", 1, 1.0, tm.Extra(color="red")))
        running.insert(old("x", 1, 1.0, tm.Extra(size=3)))


def test_a_load_that_a_new_index_comes_into_has_it(path: Path, open_store: Open) -> None:
    old, new = version(), version(by_price=tm.Index(partition="{price}"), rank=(int, 3))
    running = open_store(old)

    def entities() -> Iterator[Any]:
        yield old("x", 1, 77.0)
        open_store(new)
        yield old("x", 2, 77.0)

    running.insert_many(entities(), atomic=True)
    newer = open_store(new)
    assert [p.number for p in newer.query(new.by_price(77.0))] == [1, 2]


def test_a_day_by_day_aggregate_over_a_hidden_property_is_maintained(path: Path, open_store: Open) -> None:
    old, new = version(), version(at=datetime | None, paid=(Decimal, Decimal("1.5")))
    members = {"day": (date, tm.group_by(new.at.date())), "month": (str, tm.group_by(new.at.truncate("%Y-%m")))}
    members["paid"] = (Decimal, tm.sum(new.paid))
    daily = aggregate("Daily", new, members, tm.Key(partition="{month}", row="{day}"))
    running, newer = open_store(old), open_store(new, daily)
    newer.merge(new.key("c0", 0), at=AT)
    newer.merge(new.key("c0", 2), at=AT, paid=Decimal("0.25"))
    assert newer[daily.key("2026-03", AT.date())].paid == Decimal("1.75")
    running.delete(old.key("c0", 2))
    running.merge(old.key("c0", 0), price=3.0)
    assert newer[daily.key("2026-03", AT.date())].paid == Decimal("1.5")


def test_an_aggregate_over_times_with_a_precision_is_maintained_by_those_that_run(path: Path, open_store: Open) -> None:
    seen = tm.field(default=AT, precision="s")
    old = version(seen=(datetime, seen))
    members = {"seen": (datetime, tm.group_by(old.seen)), "last": (datetime | None, tm.max(old.seen))}
    moments = aggregate("Moment", old, members, tm.Key(partition="{seen}"), "Moments")
    running, newer = open_store(old), open_store(old, moments)
    running.insert(old("c0", 50, 1.0, AT.replace(microsecond=7)))
    assert newer[moments.key(AT)].last == AT
    assert newer.check().ok


def test_an_aggregate_over_a_field_that_got_a_member_is_maintained_by_versions_that_do_not_declare_it(
    path: Path,
) -> None:
    def grades(of: Any, kind: Any) -> Any:
        members = {"grade": (kind, tm.group_by(of.grade)), "products": (int, tm.count())}
        return aggregate("Grades", of, members, tm.Key(partition="{grade}"))

    two, three = Literal["new", "used"], Literal["new", "used", "worn"]
    old, wider = version(grade=(two, "new")), version(grade=(three, "new"))
    with tm.open(path, models=[old, grades(old, two)], durability="relaxed"):
        pass
    with sound_store(path, models=[wider], durability="relaxed") as store:
        store.insert(wider("c0", 50, 1.0, "worn"))
    of_wider = grades(wider, three)
    with sound_store(path, models=[wider, of_wider], durability="relaxed") as store:
        assert store[of_wider.key("worn")].products == 1
