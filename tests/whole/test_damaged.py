"""Stores that somebody damaged: the error is ours, names the row, and comes at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.service import GroupTransaction, RowChange

from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace
from ..sql import run_sql
from ..stores import sound_store


class Account(tm.Entity, table="Accounts"):
    p: tm.Field[str]
    r: tm.Field[str]
    price: tm.Field[Decimal] = tm.field(default=Decimal(0))
    name: tm.Field[str] = tm.field(default="x")
    span: tm.Field[timedelta | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    num: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, str](partition="{p}", row="{r}")
    by_name = tm.Index[str](partition="{name}")
    by_tag = tm.Index[str](partition="{tags}")


class Sum(tm.Aggregate, of=Account, table="Sums"):
    p: tm.Field[str] = tm.group_by(Account.p)
    accounts: tm.Field[int] = tm.count()
    total: tm.Field[Decimal | None] = tm.sum(Account.price)
    most: tm.Field[Decimal | None] = tm.max(Account.price)
    long: tm.Field[timedelta | None] = tm.sum(Account.span)

    key = tm.Key[str](partition="{p}")


MODELS = [Account, Sum]
KEY = Account.key("p", "r1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "x.db", models=MODELS, durability="relaxed") as store:
        store.insert_many(Account("p", f"r{n}", Decimal(n), f"n{n}", timedelta(n), [f"t{n % 2}"], n) for n in range(4))
    return tmp_path / "x.db"


def state_with(path: Path, where: tuple[int, ...], junk: Any) -> None:
    """Change one node of the state of the group."""
    ((blob,),) = run_sql(path, "SELECT _state FROM Sums")
    holder = state = msgspec.msgpack.decode(blob)
    for step in where[:-1]:
        holder = holder[step]
    holder[where[-1]] = junk
    run_sql(path, "UPDATE Sums SET _state = ?", values=(msgspec.msgpack.encode(state),))


MENDING: list[tuple[str, Callable[[tm.Store], object]]] = [
    ("merge of the same field", lambda store: store.merge(KEY, price=Decimal(3), name="y")),
    ("delete", lambda store: store.delete(KEY)),
    ("upsert", lambda store: store.upsert(Account("p", "r1", Decimal(5)))),
    ("upsert and merge", lambda store: store.upsert(Account("p", "r1", Decimal(5)), merge=True)),
]
"""Writes that keep nothing of the damaged value."""
CHANGES: list[tuple[str, Callable[[tm.Store], object]]] = [
    ("merge of a calculation", lambda store: store.merge(KEY, Account.num.set(Account.num + 1))),
    ("update by a calculation", lambda store: store.query(Account).where(Account.p == "p").update(Account.num.add(1))),
    ("update by a function", lambda store: store.query(Account).where(Account.p == "p").update(lambda one: one)),
    (
        "delete by the damage",
        lambda store: store.query(Account).where(Account.p == "p", Account.price > Decimal(0)).delete(),
    ),
    ("replace", lambda store: store.replace(store[KEY])),
]
DAMAGED = ["1E+999999999", "-1E-999999999", "NaN", "Infinity", "9" * 5000, "x", b"1"]


@pytest.mark.parametrize("change", [case[1] for case in MENDING], ids=[case[0] for case in MENDING])
@pytest.mark.parametrize("value", DAMAGED)
def test_a_write_that_keeps_nothing_of_a_damaged_decimal_corrects_it(
    path: Path, value: Any, change: Callable[[tm.Store], object]
) -> None:
    run_sql(path, "UPDATE Accounts SET price = ? WHERE RowKey = 'r1'", values=(value,))
    with tm.open(path, models=MODELS) as store:
        assert not store.check().ok
        change(store)
        damaged = [problem for problem in store.check().problems if problem.kind == "damaged"]
        assert damaged == []
        store.repair()
        assert store.check().ok


KEEPING: list[Callable[[tm.Store], object]] = [
    lambda store: store.merge(KEY, num=3, tags=["t9"], name="other"),
    lambda store: (
        store.query(Account).where(Account.p == "p", Account.num == 1).update(num=3, tags=["t9"], name="other")
    ),
    lambda store: store.query(Account).where(Account.name == "n1").update(num=3, tags=["t9"], name="other"),
]


@pytest.mark.parametrize("place", ["file", "account"])
@pytest.mark.parametrize(("number", "write"), [(at % 2, write) for at, write in enumerate(KEEPING)])
def test_a_write_of_other_fields_keeps_a_damaged_one_as_it_is(
    path: Path, place: str, number: int, write: Callable[[tm.Store], object]
) -> None:
    """The indexes that read none of it follow, those that read it and the group leave the entity out, until it is mended."""
    memory = Memory()
    if place == "file":
        run_sql(path, "UPDATE Accounts SET span = 'x' WHERE RowKey = 'r1'")
        store = tm.open(path, models=MODELS)
    else:
        store = tm.open(AzurePlace(memory=memory), models=MODELS)
        store.insert_many(Account("p", f"r{n}", Decimal(n), f"n{n}", timedelta(n), [f"t{n % 2}"], n) for n in range(4))
        memory.send(GroupTransaction("Accounts", "p", (RowChange("merge", "r1", {"span": "x"}),)))
    with store:
        assert store.repair().repaired
        assert store.group(Sum.key("p")).accounts == 3
        write(store)
        assert [one.key for one in store.check().problems] == [("p", "r1")]
        assert [
            *store.query(Account.by_tag("t9")).select(Account.num),
            *store.query(Account.by_name("other")).select(Account.num),
        ] == [(3,), (3,)]
        with pytest.raises(tm.CorruptStore, match="span"):
            store.get(KEY)
        if place == "account":
            assert memory.tables["Accounts"]["p", "r1"].typed["span"] == ("String", "x")
        mend: list[Callable[[], object]] = [
            lambda: store.merge(KEY, span=timedelta(5)),
            lambda: store.merge(KEY, span=None),
        ]
        mend[number]()
        assert store.check().ok
        assert store.group(Sum.key("p")).accounts == 4
        assert store[KEY].name == "other"


@pytest.mark.parametrize("condition", [Account.p == "p", Account.name == "n1", Account.r.is_in(["r1", "r2"])])
def test_a_delete_by_query_needs_no_damaged_value_that_it_does_not_ask_for(path: Path, condition: Any) -> None:
    run_sql(path, "UPDATE Accounts SET price = 'x' WHERE RowKey = 'r1'")
    with tm.open(path, models=MODELS) as store:
        store.repair()
        assert store.query(Account).where(condition).allow_scan().delete() in (1, 2, 4)
        assert store.get(KEY) is None
        assert store.check().ok


@pytest.mark.parametrize("change", [case[1] for case in CHANGES], ids=[case[0] for case in CHANGES])
@pytest.mark.parametrize("value", DAMAGED)
def test_a_write_that_meets_a_damaged_decimal_names_the_row(
    path: Path, value: Any, change: Callable[[tm.Store], object]
) -> None:
    run_sql(path, "UPDATE Accounts SET price = ? WHERE RowKey = 'r1'", values=(value,))
    with tm.open(path, models=MODELS) as store:
        with pytest.raises(tm.errors.CorruptStore, match=r"\('p', 'r1'\)"):
            change(store)
        assert not store.check().ok
        store.merge(Account.key("p", "r2"), price=Decimal(7))


@pytest.mark.parametrize(
    "ask",
    [
        lambda q: q.sum(Account.price),
        lambda q: q.avg(Account.price),
        lambda q: q.group_by(Account.num).sum(Account.price),
        lambda q: q.where(Account.num >= 0).max(Account.price),
        lambda q: list(q.where(Account.price > Decimal(1))),
        lambda q: list(q.order_by(Account.price)),
    ],
)
def test_a_question_about_a_damaged_decimal_is_refused(path: Path, ask: Callable[[Any], object]) -> None:
    run_sql(path, "UPDATE Accounts SET price = '1E+999999999' WHERE RowKey = 'r1'")
    with tm.open(path, models=MODELS) as store, pytest.raises(tm.errors.CorruptStore, match="1E\\+999999999"):
        ask(store.query(Account).where(Account.num > -1).allow_scan())


CELLS = [("name", 5), ("name", None), ("name", b"x"), ("tags", "["), ("tags", 5), ("tags", "[5]"), ("num", "x"),
         ("num", 1.5), ("span", "x"), ("span", 1e300), ("name", "x" * 40_000)]  # fmt: skip


@pytest.mark.parametrize(("column", "value"), CELLS)
def test_a_write_that_meets_a_damaged_cell_is_our_own_error_or_mends_it(path: Path, column: str, value: Any) -> None:
    sound = path.read_bytes()
    refused = 0
    for name, change in CHANGES:
        path.write_bytes(sound)
        run_sql(path, f"UPDATE Accounts SET \"{column}\" = ? WHERE RowKey = 'r1'", values=(value,))
        with tm.open(path, models=MODELS) as store:
            assert any(one.key == ("p", "r1") for one in store.check().problems)
            try:
                change(store)
            except tm.errors.CorruptStore as error:
                assert "'r1'" in str(error) or "index rows" in str(error), (name, error)
                refused += 1
    assert refused or column == "num"  # which nothing maintained depends on


def test_what_the_caller_gives_is_told_as_such(path: Path) -> None:
    with tm.open(path, models=MODELS) as store:
        with pytest.raises(tm.errors.InvalidEntity):
            store.merge(KEY, name="x" * 40_000)
        with pytest.raises(tm.errors.InvalidEntity):
            store.merge(KEY, num="x")
        with pytest.raises(ZeroDivisionError):
            store.update(KEY, lambda account: account.replace(num=1 // 0))


STATES: list[tuple[tuple[int, ...], Any]] = [
    ((0,), -1), ((0,), "x"), ((0,), [1]), ((0,), 1.5), ((1, 0), 999_999_999), ((1, 0), "x"), ((1, 1), -3), ((1, 2), b"\x01" * 100_000),
    ((1, 2), 1.5), ((1,), 5), ((1,), [1]), ((2,), ["x"]), ((2,), 5), ((2,), [1, 2]), ((2, 1), None), ((3, 1), "x"),
    ((3, 0), None), ((3,), {}),
]  # fmt: skip


@pytest.mark.parametrize(("where", "junk"), STATES)
def test_the_state_of_a_group_that_can_not_be_is_corrupt(path: Path, where: tuple[int, ...], junk: Any) -> None:
    state_with(path, where, junk)
    with tm.open(path, models=MODELS) as store:
        report = store.check()
        assert [(one.kind, one.where) for one in report.problems if one.where == "Sum"], report
        for change in (
            lambda: store.merge(KEY, price=Decimal(9), span=timedelta(5)),
            lambda: store.delete(Account.key("p", "r3")),
            lambda: store.query(Account).where(Account.p == "p").sum(Account.price),
            lambda: store.query(Account).where(Account.p == "p").max(Account.price),
        ):
            with pytest.raises(tm.errors.CorruptStore, match="Sum"):
                change()


def test_a_group_without_its_state_is_not_begun_anew(path: Path) -> None:
    run_sql(path, "UPDATE Sums SET _state = NULL")
    with (
        tm.open(path, models=MODELS) as store,
        pytest.raises(tm.errors.CorruptStore, match=r"Sum: the row with the key \('p', ''\)"),
    ):
        store.merge(KEY, price=Decimal(9))


def test_the_live_values_of_a_group_can_be_damaged(path: Path) -> None:
    for value in (-1, 2**62, "zz", b"z", 1.5):
        run_sql(path, "UPDATE OR REPLACE Sums_Sum_values SET value = ?", values=(value,))
        with tm.open(path, models=MODELS) as store:
            with pytest.raises(tm.errors.CorruptStore, match="Sum"):
                store.delete(Account.key("p", "r3"))
            assert not store.check().ok


def test_sums_are_as_large_as_they_are(tmp_path: Path) -> None:
    with sound_store(tmp_path / "x.db", models=MODELS) as store:
        prices = [Decimal("1E+6144"), Decimal("1E-6143"), Decimal("9" * 34), Decimal("-1E+6144")]
        store.insert_many(Account("p", f"r{n}", price) for n, price in enumerate(prices))
        assert store[Sum.key("p")].total == store.query(Account).where(Account.num == 0, Account.p == "p").sum(
            Account.price
        )
        assert store.query(Sum).where(Sum.p == "p").sum(Sum.total) == store[Sum.key("p")].total
        assert len(str(store[Sum.key("p")].total)) > 6000


# ---------------------------------------------------------------------------------------------- check()


def root_of(path: Path, table: str) -> tuple[int, int]:
    """Return where in the file a table begins, and the size of a page."""
    ((page,),) = run_sql(path, "SELECT rootpage FROM sqlite_schema WHERE name = ?", values=[table])
    ((size,),) = run_sql(path, "PRAGMA page_size")
    return (page - 1) * size, size


@pytest.mark.parametrize("table", ["tablemapper_catalogue", "tablemapper_state", "Accounts", "AccountsByName", "Sums"])
def test_a_check_reports_what_became_of_the_disk_under_an_open_store(path: Path, table: str) -> None:
    at, size = root_of(path, table)
    with tm.open(path, models=MODELS) as store:
        assert store.check().ok  # every page is in a cache by now
        assert store.get(KEY) is not None
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(b"\xa5" * size)
        report = store.check()
        assert not report.ok
        assert all(problem.kind == "damaged" for problem in report.problems), report
        assert not store.check().ok  # and the next one, too


def test_a_check_of_a_store_in_memory_is_a_check(tmp_path: Path) -> None:
    with sound_store(":memory:", models=MODELS) as store:
        store.insert(Account("p", "r"))


# ---------------------------------------------------------------------------------------------- runs with a name


@pytest.mark.parametrize("note", ["{", "5", "null", '{"identity": 5}', "[" * 100_000, b"\xff", 5])
@pytest.mark.parametrize("keys", [False, True])
def test_a_run_that_finds_a_damaged_note_says_so(path: Path, note: Any, keys: bool) -> None:
    with tm.open(path, models=MODELS) as store:
        query = store.query(Account).where(Account.p == "p").limit(3)
        with pytest.raises(ZeroDivisionError):
            query.update(lambda account: account.replace(num=1 // (2 - account.num)), resume="run")
    name = "resume='run' keys" if keys else "resume='run'"
    run_sql(path, "INSERT OR REPLACE INTO tablemapper_catalogue VALUES(?, ?)", values=(name, note))
    with tm.open(path, models=MODELS) as store, pytest.raises(tm.errors.CorruptStore, match="resume='run'"):
        store.query(Account).where(Account.p == "p").limit(3).update(lambda account: account, resume="run")


class Visit(tm.Entity, table="Visits"):
    site: tm.Field[str]
    number: tm.Field[int]
    size: tm.Field[int] = tm.field(default=1)

    key = tm.Key[str, int](partition="{site}", row="{number:05d}")
    by_size = tm.Index[int](partition="{size}")


def test_a_row_whose_key_no_fields_make_is_named_so_and_can_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with tm.open(path, models=[Visit]) as store:
        store.insert_many([Visit("a", 1), Visit("a", 2), Visit("a", 3)])
    run_sql(path, "UPDATE Visits SET RowKey = '7' WHERE RowKey = '00002'")
    run_sql(path, "UPDATE Visits SET RowKey = 'settings' WHERE RowKey = '00003'")
    with tm.open(path, models=[Visit]) as store:
        store.repair()
        seven, settings = store.check().problems
        assert (seven.kind, seven.detail) == ("wrong", "a foreign key: its fields make the key ('a', '00007')")
        assert settings.kind == "damaged"
        assert settings.detail.startswith("a foreign key: no fields make it")
        left = [one.detail for one in store.repair().remaining]
        for row, text in zip(("7", "settings"), left, strict=True):
            assert f"delete it: store.delete(tm.KeyOf(Visit, 'a', '{row}'))" in text
            store.delete(tm.KeyOf(Visit, "a", row))
        assert store.repair().ok
        assert store.check().ok
        assert [one.number for one in store.query(Visit).allow_scan()] == [1]
