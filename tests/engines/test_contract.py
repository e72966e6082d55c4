"""What every engine keeps, in memory, in a file and in dicts: outcomes, what follows from a write, orders, states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines import locations
from tablemapper.engines.protocol import Engine, Note, NoteConflict, Reads
from tablemapper.schema.model import compile_schema

from ..classes import grouped
from ..stores import repaired
from .azure.place import AzurePlace
from .dicts import DictPlace


class Part(tm.Entity, table="Parts"):
    kind: tm.Field[str]
    number: tm.Field[int]
    name: tm.Field[str | None] = tm.field(default=None)
    weight: tm.Field[float | None] = tm.field(default=None)
    code: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{kind}", row=("part", "{number}"))
    by_name = tm.Index[str, str, int](partition="{kind}", row=("{name}", "{number}"), include=("weight",))
    by_code = tm.Index[str, str](partition="{kind}", row="{code}", unique=True)
    by_tag = tm.Index[str, str](partition="{kind}", row="{tags}")


class Kind(tm.Aggregate, of=Part, table="Parts"):
    kind: tm.Field[str] = tm.group_by(Part.kind)
    parts: tm.Field[int] = tm.count()
    weight: tm.Field[float | None] = tm.sum(Part.weight)
    heaviest: tm.Field[float | None] = tm.max(Part.weight)

    key = tm.Key[str](partition="{kind}", row="total")
    by_parts = tm.Index[str, int](partition="{kind}", row="{parts}")


MODELS: Sequence[type[tm.Record]] = [Part, Kind]
"""What is maintained from an entity lies in its partition, so that every engine can keep it."""


class Product(tm.Entity, table="Products"):
    id: tm.Field[str]
    maker: tm.Field[str | None] = tm.field(default=None)
    code: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str](partition="{id}")
    by_maker = tm.Index[str](partition="{maker}")
    by_code = tm.Index[str](partition="{code}", unique=True)


Makes = grouped(
    "Makes", Product, "maker", products=tm.count(), by_products=tm.Index[int](partition="all", row="{products}")
)


class Maker(tm.Entity, table="Makers"):
    maker: tm.Field[str]
    label: tm.Field[str] = tm.field(default="")
    products: tm.Field[int] = tm.count(of=Product)

    key = tm.Key[str](partition="{maker}")
    by_products = tm.Index[int](partition="{products}")


ELSEWHERE: Sequence[type[tm.Record]] = [Product, Makes, Maker]
Open = Callable[..., Engine]
of_any_partition = pytest.mark.parametrize("opened", ["memory", "file", "dicts"], indirect=True)
"""What the engine for Azure does not do: other partitions in a transaction, sorts, reads backwards."""


@pytest.fixture(params=["memory", "file", "dicts", "azure"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """A function that opens an engine of one place; opened again, a file and a place of dicts are the same store."""
    files: dict[str, locations.Where] = {
        "memory": ":memory:",
        "file": tmp_path / "x.db",
        "dicts": DictPlace(str(tmp_path)),
        "azure": AzurePlace(str(tmp_path)),
    }
    engines = []

    def open(models: Sequence[type[tm.Record]] = MODELS) -> Engine:
        engines.append(locations.open_engine(files[request.param], compile_schema(models)))
        return engines[-1]

    yield open
    for engine in engines:
        engine.close()


@pytest.fixture
def store(opened: Open) -> tm.Store:
    return tm.Store(opened())


def held(store: tm.Store) -> list[Part]:
    return list(store.query(Part).allow_scan())


def test_an_engine_has_every_member_of_the_protocol(opened: Open) -> None:
    engine = opened()
    for protocol, one in ((Engine, engine), (Reads, engine.reads)):
        members = {name for name in (*vars(protocol), *protocol.__annotations__) if not name.startswith("_")}
        assert sorted(members - {*dir(one)}) == []


# ------------------------------------------------------------------------------------------ outcomes


def test_an_entity_is_inserted_once(store: tm.Store) -> None:
    store.insert(Part("a", 1, "x"))
    with pytest.raises(tm.EntityExists, match="exists already") as caught:
        store.insert(Part("a", 1, "y"))
    assert caught.value.key == Part.key("a", 1)[1:]
    assert [part.name for part in held(store)] == ["x"]


def test_two_new_entities_of_one_key_are_refused_together(store: tm.Store) -> None:
    with pytest.raises(tm.EntityExists):
        store.insert_many([Part("a", 1), Part("a", 2), Part("a", 1)])
    assert held(store) == []


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.merge(Part.key("a", 1), name="x"),
        lambda store: store.delete(Part.key("a", 1)),
        lambda store: store.replace(Part("a", 1), if_match="*"),
    ],
    ids=["merge", "delete", "replace"],
)
def test_what_is_not_there_is_not_found(store: tm.Store, write: Callable[[tm.Store], object]) -> None:
    with pytest.raises(tm.EntityNotFound):
        write(store)
    assert held(store) == []


@pytest.mark.parametrize("verb", ["replace", "delete"])
def test_an_entity_that_was_written_since_is_not_overwritten(store: tm.Store, verb: str) -> None:
    store.insert(Part("a", 1, "x"))
    mine, theirs = store[Part.key("a", 1)], store[Part.key("a", 1)]
    theirs.name = "theirs"
    store.replace(theirs)
    with pytest.raises(tm.PreconditionFailed, match="written since"):
        getattr(store, verb)(mine)
    assert store[Part.key("a", 1)].name == "theirs"


def test_an_entity_that_was_deleted_and_inserted_since_is_another_one(store: tm.Store) -> None:
    store.insert(Part("a", 1, "x"))
    mine = store[Part.key("a", 1)]
    store.delete(Part.key("a", 1))
    store.insert(Part("a", 1, "x"))
    with pytest.raises(tm.PreconditionFailed):
        store.replace(mine)


def test_an_etag_as_text_is_the_condition_of_a_merge(store: tm.Store) -> None:
    part = Part("a", 1)
    store.insert(part)
    first = tm.info(part).etag
    assert first is not None
    store.merge(Part.key("a", 1), name="x", if_match=first)
    with pytest.raises(tm.PreconditionFailed):
        store.merge(Part.key("a", 1), name="y", if_match=first)


def test_times_of_writes_increase(store: tm.Store) -> None:
    times = []
    for number in range(5):
        store.upsert(part := Part("a", number % 2))
        times.append(tm.info(part).timestamp)
    assert all(a is not None and b is not None and a < b for a, b in pairwise(times))


def test_an_upsert_inserts_replaces_or_merges(store: tm.Store) -> None:
    store.upsert(Part("a", 1, "x", 1.0))
    store.upsert(Part("a", 1, "y"), merge=True)
    assert (store[Part.key("a", 1)].name, store[Part.key("a", 1)].weight) == ("y", 1.0)
    store.upsert(Part("a", 1))
    assert store[Part.key("a", 1)].weight is None


# ------------------------------------------------------------------------------------------ transactions


def test_a_transaction_that_fails_writes_nothing(store: tm.Store) -> None:
    store.insert_many([Part("a", 1, "x"), Part("a", 2, "x")])
    with pytest.raises(tm.EntityExists), store.transaction() as tx:
        tx.insert(Part("a", 3))
        tx.merge(Part.key("a", 1), name="y")
        tx.insert(Part("a", 2))
    assert [part.name for part in held(store)] == ["x", "x"]
    assert store[Kind.key("a")].parts == 2


def test_a_condition_of_a_transaction_holds_or_nothing_is_written(store: tm.Store) -> None:
    store.insert(Part("a", 1))
    read = store[Part.key("a", 1)]
    with store.transaction() as tx:
        tx.require(read)
        tx.insert(Part("a", 2))
    store.merge(Part.key("a", 1), name="x")
    with pytest.raises(tm.PreconditionFailed), store.transaction() as tx:
        tx.require(read)
        tx.insert(Part("a", 3))
    assert [part.number for part in held(store)] == [1, 2]


def test_limits_of_azure_count_what_is_maintained(opened: Open) -> None:
    store = tm.Store(opened(), limits="azure")
    with pytest.raises(tm.InvalidTransaction, match="indexes and aggregates"), store.transaction() as tx:
        for number in range(60):
            tx.insert(Part("a", number, f"n{number}"))
    assert held(store) == []
    with store.transaction() as tx:
        for number in range(40):
            tx.insert(Part("a", number, f"n{number}"))
    assert len(held(store)) == 40


# ------------------------------------------------------------------------------------------ what follows


def test_a_unique_value_is_held_once(store: tm.Store) -> None:
    store.insert(Part("a", 1, code="x"))
    with pytest.raises(tm.UniqueViolation) as caught:
        store.insert(Part("a", 2, code="x"))
    assert (caught.value.index, caught.value.holder) == ("by_code", Part.key("a", 1)[1:])
    assert caught.value.key == Part.key("a", 2)[1:]
    with pytest.raises(tm.UniqueViolation):
        store.insert_many([Part("c", 1, code="y"), Part("c", 2, code="y")])
    assert len(held(store)) == 1


def test_two_entities_swap_their_unique_values_in_one_transaction(store: tm.Store) -> None:
    store.insert_many([Part("a", 1, code="x"), Part("a", 2, code="y")])
    with store.transaction() as tx:
        tx.merge(Part.key("a", 1), code="y")
        tx.merge(Part.key("a", 2), code="x")
    assert [part.code for part in held(store)] == ["y", "x"]
    assert store.check().ok


def test_index_rows_follow_each_write(store: tm.Store) -> None:
    store.insert(Part("a", 1, "x", tags=["red", "blue"]))
    store.merge(Part.key("a", 1), tags=["blue", "green"], name="y")
    for tag, found in (("red", []), ("blue", [1]), ("green", [1])):
        assert [part.number for part in store.query(Part.by_tag("a", tag))] == found
    assert [part.number for part in store.query(Part.by_name("a", "x"))] == []
    store.delete(Part.key("a", 1))
    assert list(store.query(Part.by_name("a", "y"))) == []
    assert store.check().ok


def test_groups_and_the_indexes_on_them_follow_each_write(store: tm.Store) -> None:
    store.insert_many(Part("a", number, weight=0.1) for number in range(10))
    store.insert(Part("b", 1, weight=3.0))
    assert store[Kind.key("a")] == Kind("a", 10, 1.0, 0.1)
    assert [kind.kind for kind in store.query(Kind.by_parts("a", 10))] == ["a"]
    store.merge(Part.key("a", 3), weight=7.0)
    assert store[Kind.key("a")].heaviest == 7.0
    store.delete(Part.key("a", 3))
    assert store[Kind.key("a")].heaviest == 0.1
    store.delete(Part.key("b", 1))
    assert [kind.kind for kind in store.query(Kind.by_parts()).allow_scan()] == ["a"]
    assert store.check().ok


@of_any_partition
def test_values_are_unique_and_found_over_partitions(opened: Open) -> None:
    store = tm.Store(opened(ELSEWHERE))
    store.insert_many([Product("a", "m", "x"), Product("b", "m"), Product("c", "n")])
    with pytest.raises(tm.UniqueViolation):
        store.insert(Product("d", code="x"))
    assert [one.id for one in store.query(Product.by_maker("m"))] == ["a", "b"]
    assert [one.maker for one in store.query(Makes.by_products())] == ["n", "m"]
    store.delete(Product.key("b"))
    assert store[Makes.key("m")].products == 1
    assert store.check().ok


@of_any_partition
def test_maintained_fields_and_the_indexes_over_them_follow_each_write(opened: Open) -> None:
    store = tm.Store(opened(ELSEWHERE))
    store.insert(Product("a", "m"))
    store.insert(Maker("m"))
    assert store[Maker.key("m")].products == 1
    store.insert(Product("b", "m"))
    assert [maker.maker for maker in store.query(Maker.by_products(2))] == ["m"]
    assert list(store.query(Maker.by_products(1))) == []
    with store.transaction(across_partitions=True) as tx:
        tx.delete(Product.key("b"))
        tx.merge(Maker.key("m"), label="x")
    assert [maker.label for maker in store.query(Maker.by_products(1))] == ["x"]
    assert store.check().ok


@of_any_partition
def test_an_atomic_load_is_whole_or_not_there(store: tm.Store) -> None:
    store.insert(Part("a", 5))
    with pytest.raises(tm.EntityExists):
        store.insert_many((Part("a", number) for number in range(10)), atomic=True)
    assert len(held(store)) == 1
    assert store.insert_many((Part("b", number) for number in range(10)), atomic=True) == 10
    assert store[Kind.key("b")].parts == 10
    assert store.check().ok


# ------------------------------------------------------------------------------------------ frozen

WRITES: dict[str, Callable[[tm.Store], object]] = {
    "insert": lambda store: store.insert(Part("a", 2)),
    "insert_many": lambda store: store.insert_many([Part("a", 2), Part("a", 3)]),
    "insert_columns": lambda store: store.insert_columns(Part, {"kind": ["a"], "number": [2]}),
    "upsert": lambda store: store.upsert(Part("a", 1, "y")),
    "merge": lambda store: store.merge(Part.key("a", 1), name="y"),
    "replace": lambda store: store.replace(Part("a", 1), if_match="*"),
    "delete": lambda store: store.delete(Part.key("a", 1)),
    "update": lambda store: store.update(Part.key("a", 1), lambda part: part.replace(name="y")),
    "delete_many": lambda store: store.delete_many(store.query(Part).allow_scan()),
    "clear": lambda store: store.clear(Part),
    "transaction": lambda store: _in_transaction(store),
    "copy": lambda store: tm.copy(_another(store), store),
}


def _in_transaction(store: tm.Store) -> None:
    with store.transaction() as tx:
        tx.insert(Part("a", 2))


def _another(store: tm.Store) -> tm.Store:
    other = tm.open(":memory:", models=MODELS)
    other.insert(Part("b", 1))
    return other


@pytest.mark.parametrize("name", WRITES)
def test_a_frozen_store_is_only_read(opened: Open, name: str) -> None:
    store, other = tm.Store(opened()), tm.Store(opened())
    for one in (store, other):  # (in memory they are two)
        one.upsert(Part("a", 1, "x"))
    before = held(other)
    store.freeze()
    other.freeze()
    store.freeze()
    assert store.status().frozen is not None
    assert "only read" in str(store.status())
    for one in (store, other):
        with pytest.raises(tm.StoreLocked, match=r"frozen since 20.*store\.unfreeze\(\)"):
            WRITES[name](one)
        assert held(one) == before
        assert one.check().ok
        assert one.build().done
        assert repaired(one).ok
        assert one.sweep() == 0
    store.unfreeze()
    other.unfreeze()
    store.unfreeze()
    assert store.status().frozen is None
    WRITES[name](store)
    assert held(store) != before
    assert store.check().ok


# ------------------------------------------------------------------------------------------ reading


@pytest.fixture
def filled(store: tm.Store) -> tm.Store:
    store.insert_many(Part(kind, number, f"n{number % 3}", float(-number)) for kind in "abc" for number in range(-5, 5))
    return store


def test_keys_are_read_in_their_order(filled: tm.Store) -> None:
    query = filled.query(Part).where(Part.kind == "b", Part.number >= -2, Part.number < 3)
    assert [part.number for part in query] == [-2, -1, 0, 1, 2]
    assert [part.number for part in query.order_by(Part.number).limit(2)] == [-2, -1]


@of_any_partition
def test_keys_are_read_backwards(filled: tm.Store) -> None:
    query = filled.query(Part).where(Part.kind == "b", Part.number >= -2, Part.number < 3)
    assert [part.number for part in query.order_by(Part.number.desc()).limit(2)] == [2, 1]


def test_partitions_are_merged_in_the_order_of_their_rows(filled: tm.Store) -> None:
    query = filled.query(Part).where(Part.kind.is_in(["c", "a"]), Part.number > 2).order_by(Part.number)
    assert [(part.kind, part.number) for part in query] == [("a", 3), ("c", 3), ("a", 4), ("c", 4)]


class Line(tm.Entity, table="Lines"):
    service: tm.Field[str]
    at: tm.Field[datetime]
    key = tm.Key[str, datetime](partition=("{service}", "{at:%Y-%m}"), row="{at:desc}")


@of_any_partition
def test_rows_go_the_other_way_than_their_partitions(opened: Open) -> None:
    store = tm.Store(opened([Line]))
    times = [datetime(2026, 1, 20, tzinfo=UTC) + timedelta(days=7 * week) for week in range(12)]
    store.insert_many(Line(service, at) for at in times for service in ("web", "web-1", "job"))
    query = store.query(Line).where(Line.service == "web").order_by(Line.at.desc())
    assert not query.explain().sort
    assert [line.at for line in query] == times[::-1]
    first = query.page(5)
    assert [line.at for line in (*first.items, *query.page(50, first.token).items)] == times[::-1]


@of_any_partition
def test_an_order_that_no_path_gives_is_sorted(filled: tm.Store) -> None:
    query = filled.query(Part).where(Part.kind == "a", Part.number > 0).order_by(Part.weight)
    assert [part.number for part in query] == [4, 3, 2, 1]


def test_an_index_is_read_alone_or_joined(filled: tm.Store) -> None:
    named = filled.query(Part).where(Part.kind == "a", Part.name == "n1")
    alone = named.select(Part.weight)
    assert alone.explain().covering
    assert not named.explain().covering
    assert [weight for (weight,) in alone] == [part.weight for part in named] == [5.0, 2.0, -1.0, -4.0]


def test_pages_hold_each_row_once_whatever_is_written_between_them(filled: tm.Store) -> None:
    read_in_pages(filled, ())


@of_any_partition
@pytest.mark.parametrize("order", [(Part.number.desc(),), (Part.weight, Part.kind)], ids=["back", "sorted"])
def test_so_do_pages_in_other_orders(filled: tm.Store, order: Any) -> None:
    read_in_pages(filled, order)


def read_in_pages(filled: tm.Store, order: tuple[Any, ...]) -> None:
    query = filled.query(Part).where(Part.kind.is_in(["a", "b"])).order_by(*order)
    found, token = [], None
    while True:
        page = query.page(7, token)
        found += [(part.kind, part.number) for part in page.items]
        filled.upsert(Part("a", 99 + len(found)))
        if (token := page.token) is None:
            break
    stayed = [place for place in found if place[1] < 99]
    assert sorted(stayed) == [(kind, number) for kind in "ab" for number in range(-5, 5)]
    assert len(found) == len(set(found))


def test_pages_end_with_the_limit(filled: tm.Store) -> None:
    parts = filled.query(Part).where(Part.kind.is_in(["a", "b"]))
    queries: list[Any] = [parts, parts.select(Part.number), filled.query(Part.by_tag("a"))]
    for query, limit, size in product(queries, (1, 3, 4, 8, 50), (1, 2, 4, 50)):
        limited = query.limit(limit)
        results, pages = [*limited], [page.items for page in limited.pages(size)]
        assert [item for page in pages for item in page] == results
        assert [len(page) for page in pages[:-1]] == [size] * (len(pages) - 1)
        assert pages[-1] or not results, "the last page is empty"


def test_a_loop_reads_one_state(filled: tm.Store) -> None:
    loop = iter(filled.query(Part).where(Part.kind == "a"))
    first = next(loop)
    filled.insert_many(Part("a", number) for number in range(100, 110))
    filled.delete(Part.key("a", 4))
    assert [part.number for part in (first, *loop)] == list(range(-5, 5))


def test_partitions_are_listed_and_read_with_every_class(filled: tm.Store) -> None:
    assert [one.values["kind"] for one in filled.partitions(Part)] == ["a", "b", "c"]
    read = list(filled.partition(Part.kind == "b"))
    assert [part.number for part in read if isinstance(part, Part)] == list(range(-5, 5))


def test_totals_are_those_of_the_entities(filled: tm.Store) -> None:
    query = filled.query(Part).where(Part.kind == "a", Part.number >= 0)
    assert (query.count(), query.sum(Part.weight), query.max(Part.weight)) == (5, -10.0, 0.0)
    assert filled.query(Part).where(Part.kind == "a").count() == 10


# ------------------------------------------------------------------------------------------ without a capability


def without(*lacking: str) -> tm.Store:
    return tm.Store(DictPlace(lacking=lacking).open(compile_schema(MODELS)))


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.transaction(across_partitions=True),
        lambda store: store.move(store[Part.key("a", 1)], Part.key("b", 1)),
    ],
    ids=["transaction", "move"],
)
def test_a_transaction_over_partitions_is_refused_where_there_is_none(call: Callable[[tm.Store], object]) -> None:
    store = without("across_partitions")
    store.insert(Part("a", 1))
    with pytest.raises(tm.InvalidTransaction, match="not possible on dicts, where a transaction is of one table"):
        call(store)


def test_an_entity_is_moved_within_its_partition_on_every_engine() -> None:
    store = without("across_partitions")
    store.insert(Part("a", 1))
    store.move(store[Part.key("a", 1)], Part.key("a", 2))
    assert [part.number for part in held(store)] == [2]


def test_streams_are_written_partition_by_partition_where_a_transaction_has_one() -> None:
    store = without("across_partitions")
    store.upsert_many(Part(kind, number) for number in range(3) for kind in "ab")
    assert store.query(Part).where(Part.number == 1).allow_scan().update(name="x") == 2
    assert [part.name for part in held(store)] == [None, "x", None] * 2
    store.delete_many(Part.key(kind, number) for number in range(2) for kind in "ab")
    assert [(part.kind, part.number) for part in held(store)] == [("a", 2), ("b", 2)]
    assert store.check().ok


def test_a_load_of_all_or_nothing_is_refused_where_there_is_none() -> None:
    store = without("all_or_none_load")
    with pytest.raises(tm.InvalidTransaction, match=r"insert_many\(atomic=True\) is not possible on dicts"):
        store.insert_many([Part("a", 1)], atomic=True)
    assert held(store) == []


@pytest.mark.parametrize(
    ("lacking", "order", "said"),
    [
        ("sorts", (Part.weight,), "no key or index gives the order by weight, and dicts sorts nothing"),
        (
            "backward",
            (Part.number.desc(),),
            "Part.key has the order by number backwards, and dicts reads forwards only",
        ),
    ],
)
def test_an_order_is_refused_where_the_engine_cannot_give_it(lacking: str, order: Any, said: str) -> None:
    query = without(lacking).query(Part).where(Part.kind == "a").order_by(*order)
    with pytest.raises(tm.InvalidQuery, match=said):
        list(query)


def test_extremes_are_found_by_reading_where_nothing_is_sorted() -> None:
    store = without("sorts", "backward")
    store.insert_many(Part("a", number, weight=float(number % 3)) for number in range(5))
    assert store.query(Part).where(Part.kind == "a", Part.number > 2).max(Part.weight) == 1.0


# ------------------------------------------------------------------------------------------ besides


def test_a_note_changes_from_what_it_was(opened: Open) -> None:
    engine = opened()
    engine.apply([], notes=[Note("run", None, "1")])
    with pytest.raises(NoteConflict):
        engine.apply([], notes=[Note("run", None, "2")])
    assert engine.note("run") == "1"
    engine.apply([], notes=[Note("run", "1", None)])
    assert engine.note("run") is None


def test_two_engines_of_one_place_see_what_the_other_wrote(opened: Open, request: pytest.FixtureRequest) -> None:
    if "memory" in request.node.name:
        pytest.skip("each is a store of its own")
    one, other = tm.Store(opened()), tm.Store(opened())
    one.insert(Part("a", 1, "x"))
    mine = other[Part.key("a", 1)]
    one.merge(Part.key("a", 1), name="y")
    with pytest.raises(tm.PreconditionFailed):
        other.replace(mine)
    assert other[Kind.key("a")].parts == 1


def test_a_closed_store_is_refused(store: tm.Store) -> None:
    store.close()
    for use in (lambda: store.get(Part.key("a", 1)), lambda: store.insert(Part("a", 1)), lambda: store.check()):
        with pytest.raises(tm.StoreClosed):
            use()
