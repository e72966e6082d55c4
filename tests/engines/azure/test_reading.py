"""Queries over tables: what is sent for them, and that they find what a file finds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.reading import reads
from tablemapper.engines.azure.reading.filters import MAX_FILTER, units
from tablemapper.engines.azure.tables.reserved_names import HIDDEN
from tablemapper.engines.azure.tables.service import (
    ErrorResponse,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    RowChange,
    filter_text,
)
from tablemapper.schema.model import compile_schema

from ...classes import grouped
from .memory import Memory, Options
from .place import AzurePlace
from .test_engine import Counting


class Color(Enum):
    RED = "red"
    HIGH = "\ue000"


class Item(tm.Entity, table="Items"):
    """A field of each type that a condition can be about."""

    shop: tm.Field[str]
    name: tm.Field[str]
    size: tm.Field[int]
    small: tm.Field[tm.Int32 | None] = tm.field(default=None)
    weight: tm.Field[float | None] = tm.field(default=None)
    fresh: tm.Field[bool | None] = tm.field(default=None)
    at: tm.Field[datetime | None] = tm.field(default=None)
    day: tm.Field[date | None] = tm.field(default=None)
    uid: tm.Field[UUID | None] = tm.field(default=None)
    note: tm.Field[str | None] = tm.field(default=None)
    color: tm.Field[Color | None] = tm.field(default=None)
    count: tm.Field[int] = tm.field(default=0)
    total: tm.Field[int | None] = tm.field(default=None)
    price: tm.Field[Decimal | None] = tm.field(default=None)
    lapse: tm.Field[timedelta | None] = tm.field(default=None)
    mass: tm.Field[float | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, str, int](partition="{shop}", row=("{name}", "{size}"))
    by_note = tm.Index[str, int](partition="{note}", row="{size}", include=("weight",))
    by_day = tm.Index[date, str](partition="{day:%Y-%m}", row=("{day}", "{name}"))
    by_tag = tm.Index[str, int](partition="{tags}", row="{size}")
    by_weight = tm.Index[str, float](partition="{shop}", row="{weight}", include=("note",))
    by_shard = tm.Index[int](partition="{name:shard(3)}", row="{total}")


Shop = grouped("Shop", Item, "note", "Shops", items=tm.count(), weight=(float | None, tm.sum(Item.weight)))


class Log(tm.Entity, table="Logs"):
    """Its row keys can be of any text, and nothing is kept beside them."""

    device: tm.Field[str]
    at: tm.Field[datetime]
    level: tm.Field[int | None] = tm.field(default=None)
    key = tm.Key[str, datetime](partition=("{device}", "{at:%Y-%m-%d}"), row="{at}")


class Word(tm.Entity, table="Words"):
    text: tm.Field[str]
    size: tm.Field[int] = tm.field(default=0)
    key = tm.Key[str](partition="all", row="{text}")


class Phrase(tm.Entity, table="Words"):
    text: tm.Field[str]
    size: tm.Field[int] = tm.field(default=0)
    key = tm.Key[str](partition="all", row=("{text}", "phrase"))


MODELS = [Item, Shop, Log, Word, Phrase]
TEXTS = ["", "a", "a b", "ab", "b", " x", "it's", "a!", "z ", "\ud7ff", "\ue000", "\uffff", "😀", "a😀", "a\ue000", "\x01", 'a "g', "ä/?"]  # fmt: skip
MOMENTS = [datetime(2026, 1, 2, 3, 4, 5, micro, UTC) for micro in (0, 122_999, 123_000, 123_456, 124_000)]
DAYS = [date(2026, 1, 31), date(2026, 2, 1), date(2026, 2, 28), date(2026, 4, 1)]
NUMBERS = [-(2**63), -(2**31) - 1, -(2**31), -1, 0, 5, 2**31 - 1, 2**31, 2**63 - 1]
FLOATS = [-1e300, -2.5, 0.0, 1e-9, 2.0, 2.5, 5.0, float(2**31), 1e22, float("inf")]
VALUES: dict[str, Sequence[Any]] = {
    "shop": ["s", "😀", "\ue000"], "name": TEXTS, "size": range(3), "small": [-(2**31), 0, 5], "weight": FLOATS, "mass": FLOATS,
    "fresh": [False, True], "at": MOMENTS, "day": DAYS, "uid": [UUID(int=1), UUID(int=2**127)], "note": TEXTS[:14],
    "color": list(Color), "count": [0, 5], "total": NUMBERS, "price": [Decimal("1.10"), Decimal("1.1"), Decimal("20")],
    "lapse": [timedelta(0), timedelta(seconds=5)],
}  # fmt: skip
OPTIONAL = {name for name in VALUES if name not in ("shop", "name", "size", "count")}
ORDERED = ["name", "size", "small", "weight", "at", "day", "note", "total", "price", "lapse"]


def some_items() -> list[Item]:
    """Return items that have each of the values, some with tags."""
    rng, items = random.Random(0), {}
    for number in range(110):
        values = {
            name: None if name in OPTIONAL and rng.random() < 0.3 else rng.choice(among)
            for name, among in VALUES.items()
        }
        values["tags"] = rng.sample(["t", "u", "😀"], rng.choice([0, 0, 1, 2]))
        item = Item(**values)
        items[item.shop, item.name, item.size] = item
        if number % 10 == 0:
            items[item.shop, item.name, 2] = item.replace(size=2) if item.size != 2 else item
    return list(items.values())


@pytest.fixture(scope="module")
def stores() -> Iterator[tuple[tm.Store, tm.Store]]:
    """The same entities over tables, whose pages are small and odd, and in a file."""
    memory = Memory(Options(pages=23, short=random.Random(1), milliseconds=True))
    over = tm.Store(AzurePlace(memory=memory).open(compile_schema(MODELS)))
    oracle = tm.open(":memory:", models=MODELS)
    for store in (over, oracle):
        store.insert_many(some_items())
        for number in range(60):
            at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=7 * number)
            store.insert(Log("d", at, number % 5))
        store.insert_many(Word(one, len(one)) for one in TEXTS)
        store.insert_many(Phrase(one, len(one)) for one in TEXTS)
    with over, oracle:
        yield over, oracle


def _leaf(name: str) -> st.SearchStrategy[Any]:
    attr: Any = getattr(Item, name)
    value = st.sampled_from(list(VALUES[name]))
    leaves = [
        value.map(lambda given: attr == given), value.map(lambda given: attr != given),
        st.lists(value, min_size=1, max_size=12).map(attr.is_in), st.just(attr.is_null()),
    ]  # fmt: skip
    if name in ORDERED:
        leaves += [
            value.map(lambda given: attr < given), value.map(lambda given: attr <= given),
            value.map(lambda given: attr > given), value.map(lambda given: attr >= given),
        ]  # fmt: skip
    if name in ("name", "note"):
        leaves += [value.map(attr.startswith), value.map(attr.contains)]
    return st.one_of(leaves)


LEAVES = st.sampled_from(list(VALUES)).flatmap(_leaf) | st.sampled_from(["t", "😀"]).map(Item.tags.contains)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.builds(lambda a, b: a & b, inner, inner) | st.builds(lambda a, b: a | b, inner, inner) | inner.map(lambda one: ~one),
    max_leaves=4,
)  # fmt: skip
ORDERS = st.lists(
    st.sampled_from(ORDERED).flatmap(
        lambda name: st.sampled_from([getattr(Item, name).asc(), getattr(Item, name).desc()])
    ),
    max_size=2,
)


def _keys(items: Any) -> list[tuple[Any, ...]]:
    return [(item.shop, item.name, item.size) for item in items]


@settings(max_examples=max(12, settings().max_examples // 8))
@given(st.lists(CONDITIONS, min_size=1, max_size=3), ORDERS, st.sampled_from([5, 1000]), st.booleans())
def test_every_plan_finds_what_a_file_finds(
    stores: tuple[tm.Store, tm.Store], where: list[Any], order: list[Any], size: int, eventual: bool
) -> None:
    over, oracle = (store.query(Item).where(*where).order_by(*order).allow_scan().allow_sort() for store in stores)
    if eventual:
        over, oracle = over.allow_eventual(), oracle.allow_eventual()
    expected = list(oracle)
    found = list(over)
    assert sorted(_keys(found)) == sorted(_keys(expected)), over.explain()
    assert found == [item for key in _keys(found) for item in expected if _keys([item]) == [key]]
    for step in order[:1]:
        values = [getattr(item, step.attr.name) for item in found]
        wanted = [getattr(item, step.attr.name) for item in expected]
        if step.attr.name in ("name", "note"):  # (a path gives the order of the service)
            place = lambda text: (text is not None, units(text or ""))  # noqa: E731
            assert values in (wanted, sorted(values, key=place, reverse=step.descending))
        else:
            assert values == wanted
    assert _keys(item for page in over.pages(size) for item in page.items) == _keys(found)
    assert _keys(over.limit(2)) == _keys(found[:2])
    assert over.count() == len(expected)
    rows = sorted(oracle.select(Item.note, Item.weight, Item.shop), key=repr)
    assert sorted(over.select(Item.note, Item.weight, Item.shop), key=repr) == rows


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    "where",
    [
        lambda: Item.by_note("a"),
        lambda: Item.by_tag("😀"),
        lambda: Item.by_day(date(2026, 1, 31)),
        lambda: Item.by_weight("😀"),
        lambda: Item.by_shard(),
    ],
)
def test_an_index_that_a_query_names_gives_what_a_file_gives(
    stores: tuple[tm.Store, tm.Store], where: Callable[[], Any], backwards: bool
) -> None:
    over, oracle = (store.query(where()).allow_sort() for store in stores)
    if backwards:
        over, oracle = (query.order_by(Item.size.desc(), Item.name, Item.shop) for query in (over, oracle))
    found = list(over)
    assert sorted(_keys(found)) == sorted(_keys(oracle))
    assert [item for page in over.pages(2) for item in page.items] == found


@given(st.sampled_from(TEXTS), st.sampled_from(TEXTS), st.booleans())
def test_bounds_of_keys_mean_what_they_mean_in_a_file(
    stores: tuple[tm.Store, tm.Store], low: str, high: str, backwards: bool
) -> None:
    for where in (
        (Word.text > low,),
        (Word.text >= low, Word.text < high),
        (Word.text <= high,),
        (Word.text.startswith(low),),
    ):
        over, oracle = (store.query(Word).where(*where) for store in stores)
        if backwards:
            over, oracle = (query.order_by(Word.text.desc()).allow_sort() for query in (over, oracle))
        found = [word.text for word in over]
        assert sorted(found) == sorted(word.text for word in oracle), where
        assert found == sorted(found, key=units, reverse=backwards)
        assert [word.text for page in over.pages(2) for word in page.items] == found
        if not backwards:
            assert sorted(word.text for part in over.split(3) for word in part) == sorted(found)


def test_buckets_of_a_time_are_read_side_by_side_in_their_order(stores: tuple[tm.Store, tm.Store]) -> None:
    start = datetime(2026, 1, 3, 5, tzinfo=UTC)
    for order in ((), (Log.at,), (Log.at.desc(),)):
        over, oracle = (
            store.query(Log)
            .where(Log.device == "d", Log.at >= start, Log.at < start + timedelta(days=9), Log.level > 1)  # type: ignore[operator]
            .order_by(*order)
            .allow_sort()
            for store in stores
        )
        assert [log.at for log in over] == [log.at for log in oracle]
        assert [log.at for page in over.pages(3) for log in page.items] == [log.at for log in oracle]


@pytest.mark.parametrize("backwards", [False, True])
def test_classes_are_merged_in_the_order_of_the_service(stores: tuple[tm.Store, tm.Store], backwards: bool) -> None:
    over, oracle = (store.query(Word, Phrase).allow_scan() for store in stores)
    if backwards:
        over = over.backwards().allow_sort()
    found = [(type(one), one.text) for one in over]
    assert sorted(found, key=repr) == sorted(((type(one), one.text) for one in oracle), key=repr)
    assert [(type(one), one.text) for page in over.pages(3) for one in page.items] == found
    if not backwards:
        sizes = [one.size for one in over.order_by(Word.size.desc()).allow_sort()]
        assert sizes == sorted(sizes, reverse=True)


# ------------------------------------------------------------------------------------------ what is sent


@pytest.fixture
def service() -> Counting:
    return Counting(Memory())


@pytest.fixture
def store(service: Counting) -> Iterator[tm.Store]:
    engine = AzureEngine.open(service, "here", compile_schema(MODELS), sleep=lambda seconds: None)
    with tm.Store(engine) as store:
        store.insert_many(Item("s", name, 1, note="n", weight=2.5, mass=2.5, tags=["t"]) for name in "abcde")
        service.sent.clear()
        yield store


def sent(service: Counting, query: Any) -> list[str]:
    """Return the filters of what a query sends, without the bounds of the partition."""
    service.sent.clear()
    list(query)
    texts = [filter_text(one.where) for one in service.sent if isinstance(one, QueryEntities) and one.where is not None]
    front = "PartitionKey eq 's' and RowKey ge ' \"{'"
    return [text.removeprefix(front).removeprefix(" and ") for text in texts if text.startswith(front)]


AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (Item.mass > 21.5, "mass gt 21.5 or mass gt 21 or mass gt 21L"),
        (Item.mass <= -2.5, "mass le -2.5 or mass le -3 or mass le -3L"),
        (Item.mass == 2.5, "mass eq 2.5"),
        (Item.mass > 1e22, ""),
        (Item.mass > 1e-9, ""),
        (Item.mass < float("inf"), ""),
        (Item.total == 5, "total eq 5L or total eq 5"),
        (Item.total < 2**40, f"total lt {2**40}L or total le 2147483647"),
        (Item.total <= 2**40, f"total le {2**40}L or total le 2147483647"),
        (Item.total >= 2**40, f"total ge {2**40}L"),
        (Item.total >= -(2**40), f"total ge -{2**40}L or total ge -2147483648"),
        (Item.small >= 5, "small ge 5 or small ge 5L"),
        (Item.fresh == True, "fresh eq true"),  # noqa: E712
        (Item.note == "it's", "note eq 'it''s'"), (Item.note > "x", "note gt 'x'"), (Item.note > "x\ue000", ""),
        (Item.note == "😀", ""), (Item.note.startswith("Ha"), "note ge 'Ha' and note lt 'Hb'"),
        (Item.note.startswith("\ud7ff"), "note ge '\ud7ff'"), (Item.color == Color.RED, "color eq 'red'"),
        (Item.day >= date(2026, 1, 2), "day ge '2026-01-02'"),
        (Item.uid == UUID(int=1), "uid eq guid'00000000-0000-0000-0000-000000000001'"), (Item.uid > UUID(int=1), ""),
        (Item.at > AT, "at ge datetime'2026-01-01T11:59:59.999000Z'"),
        (Item.at == AT, "at ge datetime'2026-01-01T11:59:59.999000Z' and at le datetime'2026-01-01T12:00:00.001000Z'"),
        (Item.at <= datetime.max.replace(tzinfo=UTC), ""),
        (Item.note.is_in(["x", "y"]), "(note eq 'x' or note eq 'y')"), (Item.small.is_in(list(range(11))), ""),
        ((Item.note == "x") | (Item.small == 1), "(note eq 'x' or small eq 1 or small eq 1L)"),
        ((Item.note == "x") | (Item.count == 1), ""),
        (((Item.note > "x") & (Item.count == 1)) | (Item.small == 1), "(small eq 1 or small eq 1L or note gt 'x')"),
        (Item.note != "x", ""), (~(Item.note == "x"), ""), (Item.note.is_null(), ""), (Item.note.contains("x"), ""),
        (Item.price > Decimal(1), ""), (Item.lapse > timedelta(1), ""),
        (Item.count == 5, ""),  # (a missing one reads as its default)
        (Item.size == 1, ""),
        (Item.at.date() == date(2026, 1, 1), ""),
        (Item.note == Item.name, ""),
    ],
)  # fmt: skip
def test_a_condition_is_sent_where_the_service_understands_it(
    store: tm.Store, service: Counting, where: Any, text: str
) -> None:
    assert sent(service, store.query(Item).where(Item.shop == "s", where)) in ([text], [f"({text})"])


def test_a_filter_ends_at_fifteen_comparisons_and_at_its_length(store: tm.Store, service: Counting) -> None:
    many = [Item.small > number for number in range(20)]
    (text,) = sent(service, store.query(Item).where(Item.shop == "s", *many))
    assert text.count("small gt") == 12  # (two for each; and the partition, and what is hidden)
    long = [Item.note != "", *(Item.note >= letter * 900 for letter in "abcdef")]
    (text,) = sent(service, store.query(Item).where(Item.shop == "s", *long))
    assert [letter for letter in "abcdef" if letter * 900 in text] == ["a", "b", "c", "d"]
    assert len(text) < MAX_FILTER


def test_a_condition_on_what_a_row_of_an_index_holds_is_sent_to_it(store: tm.Store, service: Counting) -> None:
    query = store.query(Item).where(Item.note == "n", Item.weight > 99.0, Item.small == 1)
    service.sent.clear()
    assert list(query) == []
    (find,) = service.sent
    assert find.table == "ItemsByNote"
    assert "weight gt 99.0" in filter_text(find.where)
    assert "small" not in filter_text(find.where)


def test_a_query_with_a_budget_counts_what_it_examines(store: tm.Store, service: Counting) -> None:
    with pytest.raises(tm.QueryStopped):
        list(store.query(Item).where(Item.shop == "s", Item.mass > 99.0).budget(examined=3))
    assert "mass" not in sent(service, store.query(Item).where(Item.shop == "s", Item.mass > 9.0).budget(examined=9))[0]


@pytest.mark.parametrize(
    "answer",
    [ErrorResponse(400, "InvalidInput"), ErrorResponse(414, ""), ErrorResponse(431, ""), NoResponse("", None, 500)],
)
def test_conditions_that_a_service_does_not_understand_are_not_sent_again(
    store: tm.Store, service: Counting, answer: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    refused = []

    def understand(request: Any) -> Any:
        if isinstance(request, QueryEntities) and "mass" in filter_text(request.where):  # type: ignore[arg-type]
            refused.append(request)
            raise answer
        return plain(request)

    plain, service.inner.send = service.inner.send, understand
    service.inner.options.pages = 2
    assert len(list(store.query(Item).where(Item.shop == "s", Item.mass < 9.0))) == 5
    assert len(refused) == (2 if isinstance(answer, NoResponse) else 1)  # (a service may be disturbed for a moment)
    assert "does not understand" in caplog.text
    service.inner.send = plain


def test_a_moment_at_which_a_service_fails_drops_no_condition(
    store: tm.Store, service: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    finds, plain = [], service.inner.send

    def disturbed(request: Any) -> Any:
        if isinstance(request, QueryEntities):
            finds.append(filter_text(request.where))  # type: ignore[arg-type]
            if len(finds) in (1, 3):
                raise NoResponse("", None, 500)
        return plain(request)

    service.inner.send, service.inner.options.pages = disturbed, 2
    assert len(list(store.query(Item).where(Item.shop == "s", Item.mass < 9.0))) == 5
    assert len(finds) > 4
    assert all("mass" in find for find in finds)
    assert "does not understand" not in caplog.text
    service.inner.send = plain


def test_only_what_is_needed_is_asked_for(store: tm.Store, service: Counting) -> None:
    of_shop = store.query(Item).where(Item.shop == "s")
    for query, top, select in (
        (of_shop, None, ()),
        (of_shop.limit(2), 4, ()),
        (of_shop.where(Item.small.is_null()).limit(2), None, ()),
        (of_shop.select(Item.note), None, ("PartitionKey", "RowKey", "note")),
        (of_shop.select(Item.name), None, ("PartitionKey", "RowKey")),
    ):
        service.sent.clear()
        list(query)
        assert (service.sent[-1].top, service.sent[-1].select) == (top, select)
    service.sent.clear()
    assert of_shop.count() == 5
    assert service.sent[-1].select == ("PartitionKey", "RowKey")


def test_entities_beside_the_rows_of_an_index_are_read_in_two_parts(store: tm.Store, service: Counting) -> None:
    list(store.query(Item).where(Item.shop == "s"))
    filters = [filter_text(one.where) for one in service.sent if isinstance(one, QueryEntities)]  # type: ignore[arg-type]
    assert set(filters) == {  # (side by side, so in any order)
        f"PartitionKey eq 's' and RowKey lt '{HIDDEN[0]}'",
        f"PartitionKey eq 's' and RowKey ge '{HIDDEN[1]}'",
    }
    assert len(filters) == 2
    service.sent.clear()
    assert [item.name for item in store.query(Item).where(Item.shop == "s", Item.name < "c")] == ["a", "b"]
    highest = [filter_text(one.where) for one in service.sent]  # type: ignore[arg-type]
    assert sorted("RowKey lt 'c'" in one for one in highest) == [False, True], (
        "the part below ends where rows are hidden"
    )
    service.sent.clear()
    list(store.query(Log).where(Log.device == "d", Log.at.date() == date(2026, 1, 1)))
    assert [" or " in filter_text(one.where) for one in service.sent] == [False]  # (none of its keys is below)
    service.sent.clear()
    list(store.query(Word).where(Word.text < "x"))
    (find,) = service.sent
    assert f"(RowKey lt '{HIDDEN[0]}' or RowKey ge '{HIDDEN[1]}')" in filter_text(find.where)


def test_a_page_begins_where_the_last_one_ended(store: tm.Store, service: Counting) -> None:
    for query in (
        store.query(Item).where(Item.shop == "s", Item.name > "a"),
        store.query(Item).where(Item.shop.is_in(["r", "s"]), Item.name > "a"),
        store.query(Item.by_note("n")),
        store.query(Item.by_weight("s")),
    ):
        read = []
        page = query.page(2)
        while page.token is not None:
            service.sent.clear()
            page = query.page(2, page.token)
            finds = [one for one in service.sent if isinstance(one, QueryEntities)]
            read.append(sum(len(service.inner.send(one).entities) for one in finds))
        assert read[0] > read[-1] or len(read) == 1, query
        assert read[-1] <= 2, query


def test_ranges_are_read_side_by_side_and_the_next_page_while_one_is_looked_at() -> None:
    class Barrier(Counting):
        """Answers the first pages of ranges when all of them are asked for."""

        waiting: Any = None

        def send(self, request: Any, *wait: float) -> Any:
            if self.waiting is not None and isinstance(request, QueryEntities) and request.after is None:
                self.waiting.wait(10)
            return super().send(request)

    import threading

    service = Barrier(Memory(Options(pages=10)))
    engine = AzureEngine.open(service, "here", compile_schema([Log]), sleep=lambda seconds: None)
    store = tm.Store(engine)
    first = datetime(2026, 1, 1, tzinfo=UTC)
    store.insert_many(Log("d", first + timedelta(minutes=20 * number)) for number in range(5 * 72))
    service.waiting = threading.Barrier(5)
    query = store.query(Log).where(Log.device == "d", Log.at >= first, Log.at < first + timedelta(days=5))
    assert len(list(query)) == 360
    service.waiting = None
    rows = iter(store.query(Log).where(Log.device == "d", Log.at.date() == date(2026, 1, 1)))
    for _ in range(11):
        next(rows)
    assert len(list(rows)) == 61


# ------------------------------------------------------------------------------------------ what is allowed


def test_an_order_that_no_path_gives_has_to_be_allowed(store: tm.Store, service: Counting) -> None:
    query = store.query(Item).where(Item.shop == "s")
    for order, said in ((Item.count, "sorts nothing"), (Item.name.desc(), "forwards only")):
        with pytest.raises(tm.InvalidQuery, match=rf"{said}.*\.allow_sort\(\)"):
            query.order_by(order).first()
    with pytest.raises(tm.InvalidQuery, match=r"allow_sort"):
        store.query(Word, Phrase).allow_scan().backwards().first()
    assert service.sent == []
    assert [item.name for item in query.order_by(Item.name.desc()).allow_sort()] == list("edcba")
    assert query.order_by(Item.count).allow_sort().explain().sort == ("count",)
    assert "sorts by count (in memory)" in str(query.order_by(Item.count).allow_sort().explain())


def test_rows_that_are_too_many_to_sort_are_refused(store: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "MOST_SORTED", 3)
    with pytest.raises(tm.QueryStopped, match="more than 3 rows would be sorted in memory; add conditions"):
        list(store.query(Item).where(Item.shop == "s").order_by(Item.count).allow_sort())


def test_what_may_be_older_has_to_be_allowed(store: tm.Store, service: Counting) -> None:
    rows = store.query(Item.by_note("n")).select(Item.name, Item.weight)
    total = store.query(Item).where(Item.note == "n")
    for query, number in ((rows, 6), (rows.allow_eventual(), 1)):
        service.sent.clear()
        assert sorted(query) == [(name, 2.5) for name in "abcde"]
        assert len(service.sent) == number
    assert (rows.explain().eventual, rows.allow_eventual().explain().eventual) == (False, True)
    for counted, tables in ((total, {"ItemsByNote", "Items"}), (total.allow_eventual(), {"Shops"})):
        service.sent.clear()
        assert (counted.count(), counted.sum(Item.weight)) == (5, 12.5)
        assert {one.table for one in service.sent} == tables
    assert total.allow_eventual().explain().totals == {"count()": "Shop", "sum(weight)": "Shop", "avg(weight)": "Shop"}
    assert (total.explain().eventual, total.allow_eventual().explain().eventual) == (False, True)


def test_an_index_that_is_older_gives_old_values_only_where_that_is_allowed(store: tm.Store, service: Counting) -> None:
    service.inner.send(GroupTransaction("Items", "s", (RowChange("merge", "a !a1", {"weight": 7.5}, "*"),)))
    rows = store.query(Item.by_note("n")).where(Item.name == "a").select(Item.weight)
    assert (list(rows), list(rows.allow_eventual())) == ([(7.5,)], [(2.5,)])


def test_a_limit_may_be_reached_in_the_first_range(store: tm.Store, service: Counting) -> None:
    query = store.query(Item).where(Item.shop.is_in(["s", "t"]), Item.name >= "a")
    for limited, least in ((query, 2), (query.limit(1), 1), (query.order_by(Item.weight).allow_sort().limit(1), 2)):
        service.sent.clear()
        list(limited)
        assert limited.explain().requests <= len(service.sent)
        assert (limited.explain().requests, limited.explain().cost.requests) == (least, least)


def test_explain_says_requests_and_consistency(store: tm.Store) -> None:
    explained = store.query(Item).where(Item.note == "n", Item.weight > 1.0).explain()
    assert (explained.requests, explained.eventual) == (1, False)
    assert explained.database == (
        "1 request, one more for each further 1,000 rows, and one for each row of the index",
        "an entity that is being written may be missing; none is given that does not match",
        "$filter=PartitionKey eq 'n' and (weight gt 1.0 or weight gt 1 or weight gt 1L)",
    )
    assert store.query(Item).where(Item.shop == "s").explain().requests == 2
    assert {"requests", "eventual"} <= explained.to_dict().keys()


def test_on_a_file_both_are_accepted_without_effect() -> None:
    with tm.open(":memory:", models=MODELS) as file:
        file.insert_many(Item("s", name, 1, note="n", weight=2.5) for name in "ab")
        query = file.query(Item).where(Item.note == "n").order_by(Item.name.desc())
        allowed = query.allow_sort().allow_eventual()
        assert [item.name for item in allowed] == [item.name for item in query] == ["b", "a"]
        assert (allowed.explain().path, allowed.explain().requests) == (query.explain().path, None)
        assert not allowed.explain().eventual
        assert file.query(Word, Phrase).allow_scan().allow_sort().allow_eventual().count() == 0


async def test_both_are_awaited() -> None:
    async with tm.open_async(":memory:", models=MODELS) as file:
        await file.insert(Item("s", "a", 1))
        query = file.query(Item).where(Item.shop == "s").allow_sort().allow_eventual()
        assert [item.name for item in await query.list()] == ["a"]


class Task(tm.Entity, table="Tasks"):
    id: tm.Field[str]
    n: tm.Field[int]
    key = tm.Key[str](partition="{id}")
    by_n = tm.Index[int](partition="all", row="{n}")


def test_an_entity_that_an_index_gives_twice_as_others_write_it_is_written_once() -> None:
    memory = Memory(Options(pages=1))
    store = tm.open(AzurePlace(memory=memory), models=[Task])  # type: ignore[arg-type]
    other = tm.open(AzurePlace(memory=memory), models=[Task])  # type: ignore[arg-type]
    store.insert_many([Task("a", 1), Task("b", 5)])
    plain, pages = memory.send, iter(range(100))

    def send(request: Any, *wait: float) -> Any:
        if isinstance(request, QueryEntities) and request.table == "TasksByN" and next(pages) == 1:
            other.merge(Task.key("a"), n=9)  # (it was found, and is found again)
        return plain(request)

    memory.send = send  # type: ignore[method-assign]
    assert store.query(Task.by_n()).update(n=Task.n + 100) == 2
    assert sorted(one.n for one in store.query(Task).allow_scan()) == [105, 109]


def test_a_property_reads_as_the_default_that_it_came_with() -> None:
    place: Any = AzurePlace(memory=Memory(), still=True)

    def item(**more: Any) -> Any:
        body = {name: tm.field(default=default) for name, (_, default) in more.items()}
        kinds = {"id": str, "size": int, **{name: kind for name, (kind, _) in more.items()}}
        body |= {"__annotations__": {name: tm.Field[kind] for name, kind in kinds.items()}, "__module__": __name__}
        return type(tm.Entity)("Item", (tm.Entity,), {**body, "key": tm.Key[str](partition="{id}")}, table="Items")

    bare, first, other = item(), item(state=(str, "new")), item(state=(str, "old"))
    with tm.open(place, models=[bare]) as store:
        store.insert_many([bare(f"i{n}", n) for n in range(3)])
    for model in (first, other):
        with tm.open(place, models=[model]) as store:
            assert {one.state for one in store.query(model).allow_scan()} == {"new"}
            assert store.query(model).where(model.state == "new").allow_scan().count() == 3
            assert store.query(model).where(model.state == "old").allow_scan().count() == 0
    with tm.open(place, models=None, read_only=True) as store:
        cls: Any = store.classes["Item"]
        assert {one.state for one in store.query(cls).allow_scan()} == {"new"}
        assert store.query(cls).where(cls.state == "new").allow_scan().count() == 3
