"""Queries over several classes of one table: what a filter over all entities gives, in one order, of one state."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.engines.protocol import Engine
from tablemapper.entities.entity import key_of
from tablemapper.execution.prepared import PlanCache, PreparedPlan
from tablemapper.planning.explanation import predicate_text
from tablemapper.planning.planner import candidates
from tablemapper.planning.query_spec import QuerySpec, query_form
from tablemapper.query.mixed import mixed

from ..classes import grouped

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")


class Placed(tm.Entity):
    """Lends a field."""

    label: tm.Field[str | None] = tm.field(default=None, kw_only=True)


class Office(Placed, table="Staff"):
    city: tm.Field[str]
    floors: tm.Field[int] = tm.field(default=1)

    key = tm.Key[str](partition="{city}", row="office")
    by_label = tm.Index[str](partition="{label}", table="OfficeLabels")


class Worker(Placed, table="Staff"):
    city: tm.Field[str]
    number: tm.Field[int]
    size: tm.Field[int] = tm.field(default=0)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{city}", row=("w", "{number}"))
    by_label = tm.Index[str, int](partition="{label}", row="{size}", table="WorkerLabels")
    by_tag = tm.Index[str](partition="{tags}", table="WorkerTags")


Payroll = grouped("Payroll", Worker, "city", "Staff", row="payroll", workers=tm.count(), size=tm.sum(Worker.size))


class Note(tm.Entity, table="Staff"):
    """Stands between all others: its rows can be called anything but what these are called."""

    city: tm.Field[str]
    title: tm.Field[str]
    size: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, str](partition="{city}", row="{title}")
    by_size = tm.Index[int](partition="{size}", table="NoteSizes")


class Elsewhere(tm.Entity, table="Elsewhere"):
    city: tm.Field[str]

    key = tm.Key[str](partition="{city}")


CLASSES: list[type[tm.Record]] = [Office, Worker, Payroll, Note]
MODELS = [*CLASSES, Elsewhere]
CITIES = ["x", "y", "x y"]
LABELS = [None, "a", "b", ""]
ENTITIES = st.one_of(
    st.builds(Office, st.sampled_from(CITIES), st.integers(0, 3), label=st.sampled_from(LABELS)),
    st.builds(
        Worker, st.sampled_from(CITIES), st.integers(-2, 5), st.integers(0, 3),
        st.lists(st.sampled_from(["t", "u"]), max_size=2), label=st.sampled_from(LABELS),
    ),
    st.builds(Note, st.sampled_from(CITIES), st.sampled_from(["a", "p", "w", "w !a1", "z"]), st.integers(0, 3)),
)  # fmt: skip
FIELDS: list[tuple[str, list[Any]]] = [
    ("city", CITIES), ("city", CITIES), ("label", LABELS), ("size", [0, 1, 2, 5]), ("number", [-1, 0, 4]),
    ("title", ["a", "w"]), ("floors", [1, 2]), ("workers", [1, 2]), ("tags", ["t", "u"]),
]  # fmt: skip

Test = tuple[Any, Callable[[Any], bool]]


@st.composite
def leaves(draw: st.DrawFn, classes: list[Any]) -> Test:
    name, values = draw(st.sampled_from([(n, v) for n, v in FIELDS if any(hasattr(cls, n) for cls in classes)]))
    attr = getattr(draw(st.sampled_from([cls for cls in classes if hasattr(cls, name)])), name)

    def value(entity: Any) -> Any:
        return getattr(entity, name, None)

    chosen = draw(st.sampled_from([one for one in values if one is not None]))
    if name == "tags":
        return attr.contains(chosen), lambda e: chosen in (value(e) or ())
    op = draw(st.sampled_from(["==", "==", "==", "!=", "<", ">=", "in", "null"]))
    if op == "null":
        return attr.is_null(), lambda e: value(e) is None
    if op == "in":
        some = draw(st.lists(st.sampled_from(values[1:]), max_size=3))
        return attr.is_in(some), lambda e: value(e) is not None and value(e) in some
    holds: dict[str, Callable[[Any], bool]] = {
        "==": lambda v: v == chosen, "!=": lambda v: v != chosen, "<": lambda v: v < chosen, ">=": lambda v: v >= chosen
    }  # fmt: skip
    return attr._compare(op, chosen), lambda e: value(e) is not None and holds[op](value(e))


def both(inner: st.SearchStrategy[Test]) -> st.SearchStrategy[Test]:
    return st.one_of(
        inner.map(lambda t: (~t[0], lambda e: not t[1](e))),
        st.tuples(inner, inner).map(lambda p: (p[0][0] & p[1][0], lambda e: p[0][1](e) and p[1][1](e))),
        st.tuples(inner, inner).map(lambda p: (p[0][0] | p[1][0], lambda e: p[0][1](e) or p[1][1](e))),
    )


SOME = st.lists(st.sampled_from(CLASSES), min_size=2, max_size=4, unique=True)
ASKED = SOME.flatmap(
    lambda some: st.tuples(st.just(some), st.lists(st.recursive(leaves(some), both, max_leaves=3), max_size=3))
)


class Chosen(PlanCache):
    """Answers with some plan that is possible, the best or not."""

    def __init__(self, engine: Engine, number: int) -> None:
        super().__init__(engine)
        self.number = number

    def prepared(
        self, asked: QuerySpec, wanted: tuple[Any, ...] | None, *, state: bool = False, by_time: bool = True
    ) -> tuple[PreparedPlan, list[Any]]:
        form, values = asked.parts()
        key = form, wanted is None
        if key not in self._plans.prepared:
            plans, _ = candidates(query_form(asked, wanted))
            plan = plans[self.number % len(plans)]
            self._plans.prepared[key] = PreparedPlan(self.engine, plan, wanted, filtering=asked.budget is None)
        return self._plans.prepared[key], values


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tm.Store]:
    with tm.open(tmp_path_factory.mktemp("m") / "m.db", models=MODELS, durability="relaxed") as opened:
        yield opened


def refill(store: tm.Store, entities: list[Any]) -> list[Any]:
    """Store these and no others; return all that is stored then, aggregates too, in row order."""
    for cls in (Office, Worker, Note):
        store.delete_many(store.query(cls).allow_scan())
    store.upsert_many(entities)
    return sorted((e for cls in CLASSES for e in store.query(cls).allow_scan()), key=key)


def key(entity: Any) -> tuple[str, str]:
    return key_of(entity)[1:]


@given(entities=st.lists(ENTITIES, max_size=25), asked=ASKED, plan=st.integers(0, 2), size=st.integers(1, 4))
def test_a_query_over_several_classes_gives_what_a_filter_over_all_entities_gives(
    store: tm.Store, entities: list[Any], asked: tuple[list[Any], list[Test]], plan: int, size: int
) -> None:
    classes, tests = asked
    every = refill(store, entities)
    wanted = [e for e in every if type(e) in classes and all(test(e) for _, test in tests)]
    plans = Chosen(store._plans.engine, plan)
    query = (
        mixed(plans, [store._operations.model(cls) for cls in classes]).where(*(test[0] for test in tests)).allow_scan()
    )
    for one, expected in ((query, wanted), (query.backwards(), wanted[::-1])):
        found = list(one)
        assert found == expected, one.explain()
        assert [type(e) for e in found] == [type(e) for e in expected]
        assert [e for page in one.pages(size) for e in page.items] == expected, one.explain()
        assert list(one.budget(examined=1000, timeout=60)) == expected
        assert list(one.limit(size)) == expected[:size]
        assert [e for page in one.limit(size + 1).pages(size) for e in page.items] == expected[: size + 1]
        assert one.first() == (expected[0] if expected else None)
    assert query.count() == len(wanted)
    assert query.limit(size).count() == len(wanted[:size])
    assert query.exists() == bool(wanted)


def ranked(entity: Any, steps: list[tuple[str, bool]]) -> Any:
    """Return what compares as the steps do: a missing value is the least."""
    values = [getattr(entity, name) for name, _ in steps]
    return [(v is not None, v) for v in values]


@pytest.mark.needs("sorts")
@given(
    entities=st.lists(ENTITIES, max_size=25),
    classes=st.sampled_from(
        [([Office, Worker], ["label", "city"]), ([Worker, Note, Payroll], ["size", "city"]), (CLASSES, ["city"])]
    ),
    down=st.tuples(st.booleans(), st.booleans()),
    size=st.integers(1, 4),
)
def test_fields_that_all_classes_have_give_an_order(
    store: tm.Store, entities: list[Any], classes: tuple[list[Any], list[str]], down: tuple[bool, bool], size: int
) -> None:
    kinds, names = classes
    expected = [e for e in refill(store, entities) if type(e) in kinds]
    steps = [(name, descending) for name, descending in zip(names, down, strict=False)]
    for name, descending in reversed(steps):
        expected.sort(key=lambda e: ranked(e, [(name, False)]), reverse=descending)
        if descending:  # ties stay in the order of the keys
            groups: dict[Any, list[Any]] = {}
            for e in expected:
                groups.setdefault(getattr(e, name), []).append(e)
            expected = [e for group in groups.values() for e in group]
    attrs = [getattr(kinds[0], name) for name, _ in steps]
    order = [attr.desc() if descending else attr for attr, (_, descending) in zip(attrs, steps, strict=True)]
    query: Any = store.query(*kinds).allow_scan().order_by(*order)
    assert list(query) == expected, query.explain()
    assert [e for page in query.pages(size) for e in page.items] == expected
    assert list(query.limit(size)) == expected[:size]


# ---------------------------------------------------------------------------------------------- one by one


@pytest.fixture
def filled(store: tm.Store) -> tm.Store:
    refill(
        store,
        [
            *(Office(city, label="a") for city in CITIES),
            *(Worker(city, n, n, label="b" if n % 2 else None) for city in CITIES for n in range(10)),
            *(Note(city, title) for city in CITIES for title in ("a", "p", "z")),
        ],
    )
    return store


def test_a_query_over_several_classes_gives_what_partition_gives_in_the_same_order(filled: tm.Store) -> None:
    every: list[Any] = list(filled.partition(Office.city == "x"))
    assert {type(e) for e in every} == set(CLASSES)
    assert list(filled.query(Office, Worker, Payroll, Note).where(Office.city == "x")) == every


def test_a_class_without_the_field_is_not_read(filled: tm.Store) -> None:
    query = filled.query(Worker, Office).where(Office.city == "x", Office.floors == 1)
    assert [type(e) for e in query] == [Office]
    explained = query.explain()
    assert list(explained.classes) == ["Office"]
    assert explained.unread == {"Worker": "floors == 1"}
    assert "Worker: not read, none satisfies floors == 1" in str(explained)
    assert explained.to_dict()["unread"] == {"Worker": "floors == 1"}
    assert json.loads(explained.to_json()) == explained.to_dict()


def test_a_class_without_the_field_has_no_value_there(filled: tm.Store) -> None:
    both = filled.query(Worker, Office).where(Worker.city == "x")
    assert both.count() == 11
    assert both.where(Worker.size.is_null()).one() == Office("x", label="a")
    assert both.where(~(Worker.size < 9)).count() == 2
    assert both.where(Worker.size != 3).count() == 9


@pytest.mark.parametrize(
    ("condition", "offices", "workers"),
    [
        ((Office.floors == 1) & (Office.city == "x"), 1, 0), ((Office.floors == 1) | (Office.city == "x"), 1, 10),
        ((Office.floors == 2) | (Office.floors == 3), 0, 0), (Office.floors.is_null() & (Office.city == "x"), 0, 10),
        (Office.floors.is_null() | (Office.city == "y"), 0, 10),
        (~(Office.floors.is_null() & (Office.city == "x")), 1, 0),
        (~((Office.floors == 1) | (Office.city == "y")), 0, 10),
        (Worker.tags.contains("t") | Office.floors.is_in([1]), 1, 0), (~Worker.tags.contains("t"), 1, 10),
        (Worker.size == Worker.number, 0, 10), (Worker.size == Office.floors, 0, 0),
        (Worker.label.startswith("a") & (Worker.city != "y"), 1, 0),
    ],
    ids=lambda one: predicate_text(one, ()) if isinstance(one, tm.Predicate) else str(one),
)  # fmt: skip
def test_what_a_class_lacks_is_missing_however_conditions_are_joined(
    filled: tm.Store, condition: Any, offices: int, workers: int
) -> None:
    found = [type(e) for e in filled.query(Worker, Office).where(Office.city == "x", condition)]
    assert (found.count(Office), found.count(Worker)) == (offices, workers)


def test_a_limit_counts_what_is_left_after_reading(filled: tm.Store) -> None:
    query = filled.query(Worker, Note).where(Worker.city == "x", Worker.number != 0)
    assert [e.number for e in query.limit(2) if isinstance(e, Worker)] == [1, 2]
    assert query.exists()


@pytest.mark.needs("backward", "sorts")
def test_rows_of_an_index_come_in_row_order_either_way(filled: tm.Store) -> None:
    query = filled.query(Worker, Office).where(Worker.label.is_in(["a", "b"]))
    assert {one.path for one in query.explain().classes.values()} == {"Worker.by_label", "Office.by_label"}
    forwards = [key(e) for e in query]
    assert forwards == sorted(forwards)
    assert len(forwards) == 18
    assert [key(e) for e in query.backwards()] == forwards[::-1]
    assert [key(e) for page in query.pages(4) for e in page.items] == forwards
    assert [key(e) for page in query.backwards().pages(4) for e in page.items] == forwards[::-1]


def test_a_field_of_a_class_that_lends_it_is_asked_of_all(filled: tm.Store) -> None:
    assert filled.query(Worker, Office).where(Worker.city == "x", Placed.label == "a").one() == Office("x", label="a")


@pytest.mark.needs("sorts")
def test_explain_says_how_each_class_is_read(filled: tm.Store) -> None:
    explained = filled.query(Worker, Office, Note).where(Worker.city == "x").explain()
    assert {name: str(one.ranges[0]) for name, one in explained.classes.items()} == {
        "Worker": "partition 'x', rows ['w !', 'w \"')", "Office": "partition 'x', row 'office'", "Note": "partition 'x'"
    }  # fmt: skip
    assert not explained.scan
    assert str(explained).startswith("merges classes in the order of key\nWorker:\n  reads Worker.key\n")
    through = filled.query(Worker, Office).where(Office.label == "a").explain()
    assert [one.path for one in through.classes.values()] == ["Worker.by_label", "Office.by_label"]
    assert through.classes["Worker"].sort == ("key",)


@pytest.mark.needs("sorts")
def test_the_plan_of_one_class_alone_is_not_that_of_several(filled: tm.Store) -> None:
    alone = [key(e) for e in filled.query(Worker).where(Worker.label == "b")]  # by size, as the index has them
    assert [key(e) for e in filled.query(Worker, Office).where(Worker.label == "b")] == sorted(alone) != alone
    assert [key(e) for e in filled.query(Worker).where(Worker.label == "b")] == alone


@pytest.mark.needs("sorts")
def test_each_class_needs_a_bound(filled: tm.Store) -> None:
    with pytest.raises(tm.ScanRefused, match="Worker"):
        list(filled.query(Note, Worker).where(Note.size == 3))


def test_a_loop_reads_one_state_while_others_write(filled: tm.Store) -> None:
    query = filled.query(Office, Worker).where(Worker.city.is_in(["x", "y"]))
    seen = []
    for entity in query:
        if not seen:  # (the workers of y are asked for when those of x were read)
            filled.delete_many(filled.query(Worker).where(Worker.city == "y"))
        seen.append(entity)
    assert len(seen) == 22
    assert query.count() == 12


@pytest.mark.needs("one_state")
@pytest.mark.parametrize("ask", [lambda q: len(list(q)), lambda q: q.count()])
def test_all_classes_are_read_in_one_state(
    filled: tm.Store, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Any], int]
) -> None:
    workers = [Worker.key("x", n) for n in range(10)]
    reads = filled._plans.reads

    def after(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any, **more: Any) -> Any:
            found = read(*args, **more)
            while workers:  # the first class was asked for: now those of the second go
                filled.delete(workers.pop())
            return found

        return reading

    for name in {"rows", "count"} & set(dir(reads)):
        monkeypatch.setattr(reads, name, after(getattr(reads, name)))
    query = filled.query(Office, Worker).where(Worker.city == "x")
    assert ask(query) == 11
    assert ask(query) == 1


@pytest.mark.needs("one_state")
def test_whether_there_is_one_is_told_of_one_state(filled: tm.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = filled._plans.reads
    real, moves = reads.rows, [Worker.key("x", 3)]

    def rows(*args: Any, **more: Any) -> Any:
        found = real(*args, **more)
        while moves:
            filled.delete(moves.pop())
        return found

    monkeypatch.setattr(reads, "rows", rows)
    query = filled.query(Office, Worker).where(Worker.city == "x", (Office.floors == 9) | (Worker.number == 3))
    assert query.exists()
    assert not query.exists()


def test_a_loop_may_write_to_a_store_in_memory() -> None:
    with tm.open(":memory:", models=MODELS) as memory:
        memory.insert_many([*(Office(city) for city in CITIES), *(Note(city, "a") for city in CITIES)])
        for entity in memory.query(Office, Note).where(Office.city.is_in(["x", "y"])):
            thread = threading.Thread(target=memory.delete, args=(entity,))
            thread.start()
            thread.join(5)
            assert not thread.is_alive()
        for note in memory.query(Note).where(Note.city.is_in(["x y", "y"])):
            memory.delete(note)
        assert [type(e) for e in memory.query(Office, Note).allow_scan()] == [Office]


def test_entities_can_be_changed_and_stored_again(filled: tm.Store) -> None:
    for entity in filled.query(Worker, Office).where(Worker.city == "y"):
        assert tm.info(entity).etag
        entity.label = "new"
        filled.replace(entity)
    assert filled.query(Office, Worker).where(Placed.label == "new").count() == 11


@pytest.mark.needs("sorts")
def test_a_budget_is_one_for_all_classes(filled: tm.Store) -> None:
    query = filled.query(Worker, Office).where(Worker.city == "x")
    for enough in (query.budget(examined=11), query.budget(examined=11).order_by(Worker.city)):
        assert len(list(enough)) == 11
    for short in (query.budget(examined=10), query.budget(examined=10).order_by(Worker.city)):
        with pytest.raises(tm.QueryStopped):
            list(short)
    assert query.budget(examined=1).first() == Office("x", label="a")
    assert query.budget(examined=11).count() == 11
    with pytest.raises(tm.QueryStopped):
        query.budget(timeout=0).count()


def test_a_token_belongs_to_its_query(filled: tm.Store) -> None:
    query = filled.query(Worker, Office).where(Worker.city == "x")
    token = query.page(3).token
    assert len(query.page(100, token).items) == 8
    others: list[Any] = [
        query.backwards(), query.limit(5), query.where(Worker.size > 1), query.order_by(Worker.city),
        filled.query(Office, Worker).where(Worker.city == "x"), filled.query(Worker).where(Worker.city == "x"),
        filled.query(Worker, Office).where(Worker.city == "y"),
    ]  # fmt: skip
    for other in others:
        with pytest.raises(tm.InvalidToken):
            other.page(3, token)


@pytest.mark.needs("backward")
def test_a_page_neither_skips_nor_repeats_what_stands_still(filled: tm.Store) -> None:
    query = filled.query(Note, Worker).where(Worker.city == "x").backwards()
    first = query.page(3)
    assert [key(e)[1] for e in first.items] == ["z", "w !a9", "w !a8"]
    filled.delete(first.items[2])
    filled.insert(Note("x", "y"))  # behind
    filled.insert(Note("x", "b"))  # ahead
    rest = query.page(100, first.token)
    assert [key(e)[1] for e in rest.items] == [*(f"w !a{n}" for n in range(7, -1, -1)), "p", "b", "a"]


def test_one_is_refused_where_there_are_several(filled: tm.Store) -> None:
    query = filled.query(Worker, Office).where(Worker.city == "x")
    with pytest.raises(tm.InvalidQuery, match=r"<MixedQuery Worker \| Office, city == 'x'>: several entities match"):
        query.one()
    with pytest.raises(tm.EntityNotFound):
        query.where(Worker.number == 77).one()
    assert query.limit(1).one() == Office("x", label="a")
    assert query.limit(0).one_or_none() is None
    assert (query.limit(0).first(), query.limit(0).exists(), query.limit(0).count()) == (None, False, 0)


class Text(tm.Entity, table="Clash"):
    p: tm.Field[str]
    value: tm.Field[str] = tm.field(default="")
    rank: tm.Field[tm.Int32] = tm.field(default=0)

    key = tm.Key[str](partition="{p}", row="text")


class Number(tm.Entity, table="Clash"):
    p: tm.Field[str]
    value: tm.Field[int] = tm.field(default=0)
    rank: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str](partition="{p}", row="number")


@pytest.mark.needs("sorts")
def test_fields_of_one_name_and_two_types_are_not_confused() -> None:
    with tm.open(":memory:", models=[Text, Number]) as store:
        store.insert_many([Text("a", "7", 1), Number("a", 7, 2)])
        both = store.query(Text, Number).where(Text.p == "a")
        with pytest.raises(tm.InvalidQuery, match=r"Text\.value is str, but Number\.value is int"):
            both.where(Text.value == "7")
        with pytest.raises(tm.InvalidQuery, match=r"Text\.value is str, but Number\.value is int"):
            both.order_by(Text.value)
        assert both.where(Text.rank >= 2).one() == Number("a", 7, 2)  # the two integers are one type
        assert list(both.order_by(Number.rank)) == [Text("a", "7", 1), Number("a", 7, 2)]


@pytest.mark.needs("sorts")
@pytest.mark.parametrize(
    ("kind", "values"),
    [(bytes, (b"a", b"b", b"c")), (timedelta, tuple(map(timedelta, (1, 2, 10))))],
    ids=["bytes", "timedelta"],
)
def test_an_order_is_one_where_only_one_class_has_the_field_in_its_key(kind: Any, values: tuple[Any, ...]) -> None:
    class Inside(tm.Entity, table="Both"):
        a: tm.Field[kind]  # type: ignore[valid-type]

        key = tm.Key(partition="all", row="{a}")

    class Beside(tm.Entity, table="Both"):
        a: tm.Field[kind]  # type: ignore[valid-type]

        key = tm.Key(partition="all", row="beside")

    with tm.open(":memory:", models=[Inside, Beside]) as store:
        store.insert_many([Inside(values[2]), Beside(values[1]), Inside(values[0])])
        both = store.query(Inside, Beside).order_by(Inside.a)
        assert [one.a for one in both] == list(values)
        assert [one.a for page in both.pages(1) for one in page.items] == list(values)


@pytest.mark.parametrize(
    ("ask", "part"),
    [
        (lambda s: s.query(Office, Elsewhere), 'Office is in "Staff", Elsewhere is in "Elsewhere"'),
        (lambda s: s.query(Office, Worker, Office), "Office is named twice"),
        (lambda s: s.query(Office, Worker.by_label("a")), "by_label cannot be queried together"),
        (lambda s: s.query(Worker.by_label("a"), Office), "by_label cannot be queried together"),
        (lambda s: s.query(Office, "Worker"), "entity class"),
        (lambda s: s.query(Office, Worker).where(Note.title == "a"), r"Note\.title is not a field of Office or Worker"),
        (lambda s: s.query(Office, Worker).where(True), "condition"),
        (lambda s: s.query(Office, Worker).order_by(Worker.size), "Office has no field size"),
        (lambda s: s.query(Office, Worker).order_by(Note.title.desc()), r"Note\.title is not a field"),
        (lambda s: s.query(Office, Worker).order_by("city"), "expected a field"),
        (lambda s: s.query(Office, Worker).order_by(Office.city).backwards(), r"write \.desc\(\)"),
        (lambda s: s.query(Office, Worker).backwards().order_by(Office.city), r"write \.desc\(\)"),
        (lambda s: s.query(Office, Worker).limit(-1), "-1"),
        (lambda s: s.query(Office, Worker).page(0), "page"),
        (lambda s: s.query(Office, Worker).page("3"), "page"),
        (lambda s: s.query(Office, Worker).budget(examined=-1), "examined"),
    ],
)
def test_what_means_nothing_is_one_clear_error(store: tm.Store, ask: Callable[[tm.Store], object], part: str) -> None:
    with pytest.raises(tm.InvalidQuery, match=part):
        ask(store)


def test_a_class_that_the_store_was_not_opened_with_is_refused(tmp_path: Path) -> None:
    with tm.open(":memory:", models=[Office]) as store, pytest.raises(tm.InvalidEntity, match="not opened with it"):
        store.query(Office, Note)
