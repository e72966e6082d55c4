"""The verbs of a store, one behaviour at a time."""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import aggregate, entity, grouped
from ..stores import sound_store


class Product(tm.Entity, table="Products"):
    category: tm.Field[str]
    number: tm.Field[str]
    name: tm.Field[str]
    price: tm.Field[Decimal] = tm.field(default=Decimal(1))
    stock: tm.Field[int] = tm.field(default=0)
    maker: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, str](partition="{category}", row="{number}")
    by_maker = tm.Index[str, Decimal](partition="{maker}", row="{price}")
    by_name = tm.Index[str, str](partition="{category}", row="{name}", unique=True)
    by_tag = tm.Index[str](partition="{tags:fold}")


Sales = grouped("Sales", Product, "maker", n=tm.count())


Log = entity("Log", "Logs", {"at": datetime, "text": str}, tm.Key[datetime](partition="{at:%Y-%m-%d}", row="{at}"))


class Employee(tm.Entity, table="Staff"):
    department: tm.Field[str]
    number: tm.Field[str]
    age: tm.Field[int | None] = tm.field(default=None)

    key = tm.Key[str, str](partition="{department}", row="{number}")


class Department(tm.Entity, table="Staff"):
    department: tm.Field[str]
    head: tm.Field[str]

    key = tm.Key[str](partition="{department}", row="Department")


class Ages(tm.Aggregate, of=Employee, table="Ages"):
    department: tm.Field[str] = tm.group_by(Employee.department)
    n: tm.Field[int] = tm.count()
    oldest: tm.Field[int | None] = tm.max(Employee.age)
    oldest_ever: tm.Field[int | None] = tm.max_ever(Employee.age)

    key = tm.Key[str](partition="{department}")


MODELS: list[type[tm.Record]] = [Product, Sales, Log, Employee, Department, Ages]


@pytest.fixture(params=["file", "memory"])
def store(request: Any, tmp_path: Path) -> Iterator[tm.Store]:
    """A store, which must be sound when the test is over."""
    with sound_store(tmp_path / "s.db" if request.param == "file" else ":memory:", models=MODELS) as opened:
        yield opened


def book(number: str = "b-1", **values: Any) -> Product:
    return Product(**({"category": "books", "number": number, "name": f"name of {number}"} | values))


KEY = Product.key("books", "b-1")


# -------------------------------------------------------------------------------------------------------- reading


def test_what_was_inserted_is_read_back(store: tm.Store) -> None:
    store.insert(book(price=Decimal("9.90"), tags=["a", "b"], maker="Ace"))
    assert store[KEY] == book(price=Decimal("9.90"), tags=["a", "b"], maker="Ace")
    assert str(store[KEY].price) == "9.90"


def test_get_of_what_is_not_there_is_none(store: tm.Store) -> None:
    assert store.get(KEY) is None
    assert not store.exists(KEY)


def test_a_subscript_of_what_is_not_there_is_a_key_error(store: tm.Store) -> None:
    with pytest.raises(KeyError) as caught:
        store[KEY]
    assert isinstance(caught.value, tm.EntityNotFound)
    assert caught.value.key == ("books", "b-1")


def test_get_many_keeps_the_order_and_shows_gaps(store: tm.Store) -> None:
    store.insert_many([book("1"), book("2")])
    found = store.get_many([Product.key("books", n) for n in ("2", "9", "1", "2")])
    assert [e and e.number for e in found] == ["2", None, "1", "2"]


@pytest.mark.parametrize("count", [1, 8, 9, 64, 65, 150])
def test_get_many_finds_few_and_many_entities(store: tm.Store, count: int) -> None:
    books = [book(str(number)) for number in range(count)]
    store.insert_many(books[1:])
    found = store.get_many([one.key for one in reversed(books)])
    assert found == [*reversed(books[1:]), None]
    assert [tm.info(one).etag for one in found if one] == [tm.info(one).etag for one in reversed(books[1:])]


def test_get_many_reads_groups(store: tm.Store) -> None:
    store.insert_many([book("1", maker="Ace"), book("2", maker="Ace"), book("3", maker="Zoe")])
    found = store.get_many([Sales.key("Zoe"), Sales.key("Bob"), Sales.key("Ace")])
    assert [one and one.n for one in found] == [1, None, 2]


def test_get_many_reads_several_classes(store: tm.Store) -> None:
    store.insert(book(maker="Ace"))
    found = store.get_many([KEY, Sales.key("Ace")])  # type: ignore[list-item]
    assert [type(e) for e in found] == [Product, Sales]


def test_a_key_of_a_class_that_was_not_opened_is_refused(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[Log]) as store, pytest.raises(tm.InvalidEntity, match="not opened"):
        store.get(KEY)


def test_a_partition_yields_every_type_in_row_order(store: tm.Store) -> None:
    store.insert_many([Employee("Sales", "9"), Employee("Sales", "A"), Employee("Ops", "1"), Employee("Sales", "x")])
    store.insert(Department("Sales", "Ann"))
    found = list(store.partition(Employee.department == "Sales"))
    assert [type(e).__name__ for e in found] == ["Employee", "Employee", "Department", "Employee"]


def test_a_row_of_a_class_that_was_not_opened_is_unknown(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=MODELS) as store:
        store.insert_many([Employee("Sales", "1", 30), Department("Sales", "Ann")])
    with tm.open(tmp_path / "s.db", models=[Department]) as store:
        unknown, department = store.partition(Department.department == "Sales")
    assert isinstance(unknown, tm.UnknownRow)
    assert (unknown.partition, unknown.row, unknown.properties) == ("Sales", "1", {"age": 30})
    assert department == Department("Sales", "Ann")


@pytest.mark.file
def test_an_unknown_row_says_of_which_type_it_was_written(tmp_path: Path) -> None:
    key = tm.Key[str, int](partition="{group}", row=("p", "{number}"))
    Typed = entity("Typed", "Typed", {"group": str, "number": int, "age": int}, key, type="person")
    Plain = entity("Plain", "Typed", {"group": str, "text": str}, tm.Key[str](partition="{group}", row="plain"))
    with tm.open(tmp_path / "s.db", models=[Typed, Plain]) as store:
        store.insert_many([Typed("a", 1, 30), Plain("a", "x")])
    for model, known, unknown in (
        (Typed, Typed("a", 1, 30), {"text": "x"}),
        (Plain, Plain("a", "x"), {"age": 30, "EntityType": "person"}),
    ):
        with tm.open(tmp_path / "s.db", models=[model]) as store:
            rows = list(store.partition(model.group == "a"))
        assert [row.properties for row in rows if isinstance(row, tm.UnknownRow)] == [unknown]
        assert [row for row in rows if not isinstance(row, tm.UnknownRow)] == [known]


def test_a_partition_by_day_holds_the_entities_of_the_day(store: tm.Store) -> None:
    late, early = datetime(2024, 2, 29, 23, 59, 59, 999999, UTC), datetime(2024, 3, 1, tzinfo=UTC)
    store.insert_many([Log(early, "b"), Log(late, "a")])
    assert store[Log.key(late)].text == "a"
    assert [e.key.partition for e in store.get_many([Log.key(late), Log.key(early)]) if e] == [
        "2024-02-29",
        "2024-03-01",
    ]


# -------------------------------------------------------------------------------------------------------- writing


def test_a_write_stamps_the_entity_with_a_new_etag(store: tm.Store) -> None:
    entity = book()
    assert tm.info(entity).etag is None
    store.insert(entity)
    first = tm.info(entity).etag
    entity.stock = 3
    store.replace(entity)
    assert tm.info(entity).etag not in (None, first)
    assert tm.info(entity) == tm.info(store[KEY])


def test_a_failed_write_leaves_the_etag_alone(store: tm.Store) -> None:
    entity = book()
    store.insert(entity)
    before = tm.info(entity)
    with pytest.raises(tm.EntityExists):
        store.insert(entity)
    assert tm.info(entity) == before


def test_a_replace_of_what_is_gone_is_not_found(store: tm.Store) -> None:
    store.insert(book())
    mine = store[KEY]
    store.delete(KEY)
    with pytest.raises(tm.EntityNotFound):
        store.replace(mine)


def test_what_was_never_read_is_replaced_or_deleted_by_a_star_only(store: tm.Store) -> None:
    store.insert(book())
    for write in (store.replace, store.delete):
        with pytest.raises(tm.PreconditionFailed, match='if_match="\\*"'):
            write(book(stock=5))
    store.replace(book(stock=5), if_match="*")
    assert store[KEY].stock == 5


def test_an_etag_can_be_given_as_text(store: tm.Store) -> None:
    store.insert(book())
    etag = tm.info(store[KEY]).etag
    store.merge(KEY, stock=5, if_match=etag)
    looks = r'if_match= is no ETag: pass tm\.info\(entity\)\.etag, which looks like W/"\d{16}", or "\*" for any$'
    wrong = dict.fromkeys(("nonsense", "", '"1767225600000000"', "1767225600000000"), looks)
    for given, said in {etag: "it was written since it was read", **wrong}.items():
        for write in (
            lambda: store.replace(book(stock=6), if_match=given),
            lambda: store.merge(KEY, stock=6, if_match=given),
            lambda: store.delete(KEY, if_match=given),
        ):
            with pytest.raises(tm.PreconditionFailed, match=said):
                write()
    with pytest.raises(tm.PreconditionFailed, match=looks), store.transaction() as tx:
        tx.merge(KEY, stock=6, if_match="nonsense")
    store.replace(book(stock=7), if_match=tm.info(store[KEY]).etag)
    assert store[KEY].stock == 7


def test_a_merge_changes_what_it_names(store: tm.Store) -> None:
    store.insert(book(stock=1, maker="Ace"))
    store.merge(KEY, Product.stock.add(4), name="Dune")
    found = store[KEY]
    assert (found.stock, found.name, found.maker) == (5, "Dune", "Ace")


def test_a_merge_with_none_removes_an_optional_value(store: tm.Store) -> None:
    store.insert(book(maker="Ace"))
    store.merge(KEY, maker=None)
    assert store[KEY].maker is None
    assert store.get(Sales.key("Ace")) is None


def test_a_merge_reports_every_fault_at_once(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity) as caught:
        store.merge(KEY, nmae="x", stock="many", number="2")
    text = str(caught.value)
    assert 'did you mean "name"' in text
    assert "stock" in text
    assert "store.move" in text
    for values, said in (({}, "nothing"), ({"name": None}, "None")):
        with pytest.raises(tm.InvalidEntity, match=said):
            store.merge(KEY, **values)


def test_a_merge_adds_to_a_value_that_is_missing(store: tm.Store) -> None:
    store.insert(Employee("Sales", "1"))
    for _ in range(2):
        store.merge(Employee.key("Sales", "1"), Employee.age.add(5))
    assert store[Employee.key("Sales", "1")].age == 10


def test_a_merge_adds_decimals_without_rounding(store: tm.Store) -> None:
    store.insert(book(price=Decimal("1." + "1" * 33)))
    with decimal.localcontext(prec=5):
        store.merge(KEY, Product.price.add(Decimal("1E-33")))
    assert str(store[KEY].price) == "1." + "1" * 32 + "2"


def test_a_merge_that_adds_up_to_more_than_a_field_holds_is_refused(store: tm.Store) -> None:
    store.insert(book(price=Decimal("1E-30"), stock=2**63 - 1))
    with pytest.raises(tm.InvalidEntity, match="price"):
        store.merge(KEY, Product.price.add(Decimal("1E+30")))
    with pytest.raises(tm.InvalidEntity, match="stock"):
        store.merge(KEY, Product.stock.add(1))
    assert store[KEY].stock == 2**63 - 1


def test_an_upsert_that_merges_leaves_what_is_none(store: tm.Store) -> None:
    store.upsert(book(stock=1, maker="Ace"), merge=True)
    entity = book(stock=2)
    store.upsert(entity, merge=True)
    assert (store[KEY].stock, store[KEY].maker) == (2, "Ace")
    assert entity == store[KEY], "the object is what was stored"
    assert tm.info(entity) == tm.info(store[KEY])


def test_a_deleted_entity_can_be_inserted_again(store: tm.Store) -> None:
    entity = book()
    store.insert(entity)
    store.delete(entity)
    assert tm.info(entity).etag is None
    store.insert(entity)
    assert store.exists(KEY)


def test_a_delete_by_key_is_unconditional(store: tm.Store) -> None:
    store.insert(book())
    store.delete(KEY)
    with pytest.raises(tm.EntityNotFound):
        store.delete(KEY)


def test_an_update_starts_again_if_someone_was_faster(store: tm.Store) -> None:
    store.insert(book())
    calls = []

    def change(entity: Product) -> Product:
        calls.append(entity.stock)
        if len(calls) < 3:
            store.merge(KEY, Product.stock.add(10))
        entity.stock += 1
        return entity

    assert store.update(KEY, change).stock == 21
    assert calls == [0, 10, 20]


def test_an_update_that_raises_writes_nothing(store: tm.Store) -> None:
    store.insert(book())
    with pytest.raises(ZeroDivisionError):
        store.update(KEY, lambda e: e.replace(stock=1 // 0))
    assert store[KEY].stock == 0


@pytest.mark.needs("across_partitions")
def test_a_move_takes_the_entity_and_what_is_maintained_from_it_along(store: tm.Store) -> None:
    entity = book(maker="Ace", tags=["x"])
    store.insert(entity)
    store.move(entity, Product.key("games", "g-1"))
    assert not store.exists(KEY)
    assert store[Product.key("games", "g-1")] == entity
    assert (entity.category, entity.number) == ("games", "g-1")
    assert store[Sales.key("Ace")].n == 1


def test_a_move_to_a_taken_key_changes_nothing(store: tm.Store) -> None:
    entity = book()
    store.insert_many([entity, book("b-2")])
    with pytest.raises(tm.EntityExists):
        store.move(entity, Product.key("books", "b-2"))
    assert entity.number == "b-1"
    assert store.exists(KEY)


def test_an_aggregate_can_not_be_written(store: tm.Store) -> None:
    for write in (
        lambda: store.insert(Sales("Ace", 1)),  # type: ignore[arg-type]
        lambda: store.upsert(Sales("Ace", 1)),  # type: ignore[arg-type]
        lambda: store.merge(Sales.key("Ace"), n=2),  # type: ignore[type-var]
        lambda: store.delete(Sales.key("Ace")),
    ):
        with pytest.raises(tm.InvalidEntity, match="maintained from Product"):
            write()


def test_a_key_of_512_units_is_stored_and_one_of_513_is_refused_before_a_write(store: tm.Store) -> None:
    store.insert(book("x" * 512, name="x"))
    assert store.exists(Product.key("books", "x" * 512))
    for text in ("x" * 513, "é" * 513, "😀" * 257):
        for use in (
            lambda: store.insert(book(text, name="y")),
            lambda: store.insert(book(category=text)),
            lambda: store.get(Product.key("books", text)),
            lambda: book(text, name="y").key,
        ):
            with pytest.raises(tm.InvalidEntity, match="51[34] UTF-16 units, a key may have 512"):
                use()


@pytest.mark.file
def test_an_index_key_of_513_units_is_refused_naming_the_index(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity, match=r"Product\.by_maker"):
        store.insert(book(maker="m" * 513))
    assert store.get(KEY) is None


def test_a_key_that_belongs_to_another_type_is_refused(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity, match="belongs to Department"):
        store.insert(Employee("Sales", "Department"))


# ------------------------------------------------------------------------------------------- indexes and aggregates


def test_a_unique_value_is_free_once_its_holder_is_gone(store: tm.Store) -> None:
    store.insert(book("1", name="Dune"))
    store.delete(Product.key("books", "1"))
    store.insert(book("2", name="Dune"))


def test_elements_that_are_one_in_the_index_have_one_row(store: tm.Store) -> None:
    store.insert(book(tags=["SciFi", "scifi", "SCIFI", "old"]))
    assert store.check().index_rows == 3
    store.merge(KEY, tags=["scifi", "Old"])
    store.merge(KEY, tags=["new"])


def test_a_group_field_that_is_none_is_in_no_group(store: tm.Store) -> None:
    store.insert(book("1"))
    store.insert(book("2", maker="Ace"))
    assert store.check().groups == 1
    store.merge(Product.key("books", "2"), maker=None)
    assert store.check().groups == 0


def test_a_group_refills_after_max_ever(store: tm.Store) -> None:
    for age in (30, 60, None):
        store.upsert(Employee("Sales", "1", age))
    assert store[Ages.key("Sales")] == Ages("Sales", 1, None, 60)
    store.delete(Employee.key("Sales", "1"))
    assert store[Ages.key("Sales")] == Ages("Sales", 0, None, 60)
    store.insert(Employee("Sales", "2", 40))
    assert store[Ages.key("Sales")] == Ages("Sales", 1, 40, 60)


# ----------------------------------------------------------------------------------------------------------- many


def test_insert_many_says_how_many_were_written_before_it_failed(store: tm.Store, monkeypatch: Any) -> None:
    monkeypatch.setattr("tablemapper.verbs.write_windows._ENTITIES", 10)
    store.insert(book("25"))
    with pytest.raises(tm.EntityExists) as caught:
        store.insert_many(book(str(n)) for n in range(100))
    assert caught.value.written == 20  # type: ignore[attr-defined]
    assert caught.value.__notes__ == ["insert_many: 20 entities were written before this"]
    assert [store.exists(Product.key("books", n)) for n in ("19", "20", "24")] == [True, False, False]


def test_insert_many_says_how_many_were_written_when_its_source_fails(store: tm.Store, monkeypatch: Any) -> None:
    monkeypatch.setattr("tablemapper.verbs.write_windows._ENTITIES", 10)

    def source() -> Iterator[Product]:
        yield from (book(str(n)) for n in range(15))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        store.insert_many(source())
    assert caught.value.__notes__ == ["insert_many: 10 entities were written before this"]
    assert store.check().entities == 10


def test_insert_many_of_one_key_twice_is_refused_and_named(store: tm.Store) -> None:
    books = [book("1"), book("3"), book("3"), book("2")]
    with pytest.raises(tm.EntityExists) as caught:
        store.insert_many(books)
    assert caught.value.key == ("books", "3")
    assert caught.value.written == 0  # type: ignore[attr-defined]
    assert store.check().entities == 0
    assert tm.info(books[0]).etag is None


def test_of_equal_keys_the_last_one_is_upserted(store: tm.Store) -> None:
    first, last = book(stock=1), book(stock=2)
    assert store.upsert_many([first, book("2"), last]) == 3
    assert store[KEY].stock == 2
    assert tm.info(last) == tm.info(store[KEY])
    assert tm.info(first).etag is None


def test_an_object_that_is_upserted_twice_keeps_its_etag(store: tm.Store) -> None:
    entity = book()
    assert store.upsert_many([entity, entity]) == 2
    entity.stock = 1
    store.replace(entity)


def test_delete_many_takes_entities_and_keys(store: tm.Store) -> None:
    entity = book("1")
    store.insert_many([entity, book("2"), book("3")])
    assert store.delete_many([entity, Product.key("books", "2")]) == 2
    assert store.check().entities == 1


def test_many_report_their_progress(store: tm.Store) -> None:
    seen: list[tm.reports.Progress] = []
    store.insert_many((book(str(n)) for n in range(30)), progress=seen.append)
    assert seen[-1].done == 30


# -------------------------------------------------------------------------------------------------- large values


@pytest.mark.parametrize("size", [10, 64, 65, 400, 401, 5_000, 32_000])
def test_a_value_of_any_size_goes_and_comes(store: tm.Store, size: int) -> None:
    for name in ("x" * size, "short", "é" * min(size, 400)):
        store.upsert(book(tags=[name[:500]] * 3, name=name[:400]))
        assert store[KEY].tags == [name[:500]] * 3


def test_values_too_large_for_azure_are_refused(store: tm.Store) -> None:
    with pytest.raises(tm.EntityTooLarge):
        store.insert(book(tags=["x" * 40_000]))


def test_infinities_and_negative_zero_are_stored(tmp_path: Path) -> None:
    key = tm.Key[int](partition="{n}")
    Number = entity("Number", "Numbers", {"n": int, "value": float}, key, by_value=tm.Index[float](partition="{value}"))
    Total = grouped("Total", Number, "value", "Totals", total=(float, tm.sum(Number.value)))
    with sound_store(tmp_path / "n.db", models=[Number, Total]) as store:
        store.insert_many(Number(n, value) for n, value in enumerate([math.inf, -math.inf, -0.0, 0.0]))
        assert math.copysign(1, store[Number.key(2)].value) == 1
        assert store[Total.key(0.0)].total == 0
        assert store[Total.key(math.inf)].total == math.inf
        store.update(Number.key(2), lambda e: e.replace(value=0.0))


# ------------------------------------------------------------------------------------------------ the whole store


@pytest.mark.file
def test_a_backup_is_a_store(store: tm.Store, tmp_path: Path) -> None:
    store.insert_many(book(str(n), maker="Ace") for n in range(100))
    store.backup(tmp_path / "copy.db")
    store.delete(Product.key("books", "1"))
    with sound_store(tmp_path / "copy.db", models=MODELS) as copy:
        assert copy[Sales.key("Ace")].n == 100


def test_the_etag_never_goes_back_when_the_clock_does(tmp_path: Path) -> None:
    from tablemapper.engines.sqlite.engine import SqliteEngine
    from tablemapper.schema.model import compile_schema
    from tablemapper.store.store import Store

    seen = []
    for now in (5_000_000, 1_000_000, 10):
        with Store(SqliteEngine.open(tmp_path / "s.db", compile_schema(MODELS), clock=lambda now=now: now)) as store:
            entity = book()
            store.upsert(entity)
            seen.append(tm.info(entity).timestamp)
    assert seen == sorted(set(seen), key=lambda at: at or datetime.min)


def test_group_by_day_keeps_days_apart(store: tm.Store, tmp_path: Path) -> None:
    members = {"day": (date, tm.group_by(Log.at.date())), "n": (int, tm.count())}
    PerDay = aggregate("PerDay", Log, members, tm.Key[date](partition="{day}"))
    with tm.open(tmp_path / "days.db", models=[Log, PerDay]) as days:
        for hour in (0, 23):
            days.insert(Log(datetime(2024, 2, 29, hour, 59, 59, 999999, UTC), "x"))
        days.insert(Log(datetime(2024, 3, 1, tzinfo=UTC), "x"))
        assert days[PerDay.key(date(2024, 2, 29))].n == 2
        assert days[PerDay.key(date(2024, 3, 1))].n == 1
