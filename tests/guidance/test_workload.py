"""Calls that are observed: their forms, what they examined, files of them, and the advice on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

import tablemapper as tm
from tablemapper.cli.app import Exit, run
from tablemapper.events import shape_data
from tablemapper.guidance.workload import Workload, shape_of

from ..parts import MODELS, Note, Part
from .test_advisor import GOOD, HEAD, classes, entity, pasted

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def seen() -> list[tm.Event]:
    return []


@pytest.fixture
def store(seen: list[tm.Event]) -> Iterator[tm.Store]:
    with tm.open(":memory:", models=MODELS, observe=seen.append) as store:
        store.insert_many(Part("a", n, "blue" if n % 10 == 0 else "red", n % 7, ["x"] * (n % 2)) for n in range(100))
        seen.clear()
        yield store


FORMS: list[tuple[Callable[[tm.Store], Any], str]] = [
    (lambda s: s.query(Part).where(Part.box == "a", Part.weight < 3), "Part where box == ? and weight < ?"),
    (lambda s: s.query(Part.by_color("red")), "Part.by_color(?)"),
    (lambda s: s.query(Part).allow_scan(), "Part"),
    (
        lambda s: (
            s.query(Part).where(Part.box.is_in(["a", "b"]), ~Part.color.startswith("x")).order_by(Part.weight.desc())
        ),
        "Part where box in ? and not color startswith ? order by weight descending",
    ),
    (
        lambda s: s.query(Part).where((Part.color == "x") | (Part.color == "y") & (Part.weight == Part.number)),
        "Part where (color == ? or (color == ? and weight == number))",
    ),
    (
        lambda s: s.query(Part).where(Part.box == "a", Part.tags.contains("x")),
        "Part where box == ? and tags contains ?",
    ),
    (lambda s: s.query(Part).where(Part.box == "a").select(Part.color), "Part where box == ?"),
    (lambda s: s.query(Note, Part).where(Note.box == "a"), "Note where box == ? | Part where box == ?"),
]


@pytest.mark.needs("sorts", when=lambda id: "order by" in id)
@pytest.mark.parametrize(("ask", "text"), FORMS, ids=[text for _, text in FORMS])
def test_the_form_of_a_query_is_text_without_values(
    ask: Callable[[tm.Store], Any], text: str, store: tm.Store, seen: list[tm.Event]
) -> None:
    list(ask(store))
    ask(store).first()
    assert [event.shape for event in seen] == [text, text]
    assert "'" not in msgspec.json.encode(shape_data(seen[0])).decode()


def test_only_queries_have_a_form_also_those_that_are_refused(store: tm.Store, seen: list[tm.Event]) -> None:
    store.get(Part.key("a", 1))
    with pytest.raises(tm.ScanRefused):
        store.query(Part).where(Part.weight == 3).first()
    assert [(event.shape, event.examined) for event in seen] == [(None, None), ("Part where weight == ?", None)]


EXAMINED: list[Any] = [
    (lambda s: list(s.query(Part).where(Part.box == "a")), 100, 100),
    (lambda s: list(s.query(Part).where(Part.box == "a", Part.weight == 3)), 14, 100),
    (lambda s: list(s.query(Part.by_color("blue")).where(Part.weight == 3)), 2, 10),
    pytest.param(
        lambda s: s.query(Part).where(Part.box == "a", Part.color == "blue", Part.weight == 3).first(), 1, 2,
        marks=pytest.mark.needs("near_joins"),
    ),
    (lambda s: s.query(Part).where(Part.box == "a", Part.weight == 3).count(), 14, 100),
    pytest.param(
        lambda s: s.query(Part).where(Part.box == "a").order_by(Part.weight).limit(2).first(), 1, 100,
        marks=pytest.mark.needs("sorts"),
    ),
    (lambda s: s.query(Part).where(Part.box == "a", Part.weight == 3).exists(), 1, 4),
    (lambda s: s.query(Part).where(Part.box == "a", Part.weight == 3).page(2).items, 2, 18),
    (lambda s: s.query(Part).where(Part.box == "a", Part.weight == 3).budget(examined=500).first(), 1, 4),
    (lambda s: s.query(Part).where(Part.box == "a", Part.weight == 3).sum(Part.number), 14, 100),
    pytest.param(lambda s: s.query(Part).allow_scan().count(), 1, None, marks=pytest.mark.needs("fresh")),
    (lambda s: s.query(Part).where(Part.box == "a", Part.weight == 3).select(Part.color).columns(), 14, 100),
    (lambda s: list(s.query(Note, Part).where(Note.box == "a", Part.weight == 3)), 14, 100),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "read", "examined"), EXAMINED)
def test_what_a_query_examined_is_what_it_read_between_its_bounds(
    ask: Callable[[tm.Store], Any], read: int, examined: int | None, store: tm.Store, seen: list[tm.Event]
) -> None:
    plain = tm.Store(store._engine)
    assert _plain(ask(store)) == _plain(ask(plain))
    assert [(event.returned, event.examined, event.outcome) for event in seen] == [(read, examined, "ok")]


def _plain(result: Any) -> Any:
    return [tm.to_dict(one) for one in result] if isinstance(result, list) else repr(result)


def test_what_the_database_filters_is_counted_ever_more_rarely(store: tm.Store, seen: list[tm.Event]) -> None:
    for weight in range(10):
        store.query(Part).where(Part.box == "a", Part.weight == weight).count()
    assert [event.examined for event in seen] == [100, 100, None, 100, None, None, None, 100, None, None]


# ------------------------------------------------------------------------------------------------------------- workload


def event(verb: str = "query", form: str | None = "Part", path: str = "scan", **more: Any) -> tm.Event:
    return attrs.evolve(tm.Event(verb, "Part", path, 1, 0, 0.5, "ok", form), **more)


def test_a_workload_adds_up_calls_by_form_the_largest_first() -> None:
    work = tm.Workload()
    for examined in (30, None, 50, None):
        work(event(examined=examined))
    work(event("insert", None, "Part.key", written=1, returned=0))
    assert work.statistics == (
        tm.reports.CallStatistics("query", "Part", "Part", "scan", 4, 4, 160, 0, 2.0),
        tm.reports.CallStatistics("insert", "Part", "", "Part.key", 1, 0, 0, 1, 0.5),
    )
    assert repr(work) == "<Workload of 2 shapes>"


def test_it_comes_back_from_a_file_and_joins_another(tmp_path: Path) -> None:
    one, two = tm.Workload(), tm.Workload()
    one(event(examined=30, shape_data={"model": "Part", "along": None, "where": [], "order": []}))
    two(event(examined=50))
    one.save(tmp_path / "calls.json")
    loaded = tm.Workload.load(tmp_path / "calls.json")
    assert loaded.statistics == one.statistics
    assert shape_of(loaded.statistics[0]) == shape_of(one.statistics[0])
    loaded.merge(two)
    assert [(form.calls, form.examined) for form in loaded.statistics] == [(2, 80)]
    with pytest.raises(TypeError, match="merge: expected a Workload"):
        loaded.merge(one.statistics)  # type: ignore[arg-type]


def test_it_keeps_a_thousand_forms_and_drops_the_rarest(tmp_path: Path) -> None:
    work = tm.Workload()
    for number in range(1_010):
        for _ in range(2 if number < 990 else 1):
            work(event(form=f"Part{number}"))
    assert (len(work.statistics), work.dropped_shapes) == (1_000, 10)
    assert {f"Part{number}" for number in range(990)} < {form.text for form in work.statistics}
    work.save(tmp_path / "calls.json")
    assert tm.Workload.load(tmp_path / "calls.json").dropped_shapes == 10


def test_threads_share_it() -> None:
    work = tm.Workload()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: [work(event(form=f"Part{number % 3}")) for _ in range(200)], range(24)))
    assert sorted(form.calls for form in work.statistics) == [1_600] * 3


def test_no_file_holds_a_value(tmp_path: Path) -> None:
    work, secret = tm.Workload(), "s3cret"
    with tm.open(":memory:", models=MODELS, observe=work) as store:
        store.insert(Part(secret, 918_273_645, secret, 817_263_544))
        conditions = (
            Part.color == secret,
            Part.weight > 817_263_543,
            Part.color.is_in([secret, "x"]),
            Part.color.startswith(secret),
        )
        for one in conditions:
            list(store.query(Part).where(Part.box == secret, one))
        list(store.query(Part.by_color(secret)))
        list(store.partition(Part.box == secret))
        store.query(Part).where(Part.box == secret, Part.number == 918_273_645).update(color=secret)
        store.merge(Part.key(secret, 918_273_645), Part.weight.add(817_263_544))
    work.save(tmp_path / "calls.json")
    text = (tmp_path / "calls.json").read_text()
    assert "Part where box == ?" in text
    assert not re.search(f"{secret}|918273645|81726354", text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no workload"),
        ("[1]", "is no workload"),
        ('{"format": "other", "version": 1}', "is no workload"),
        ('{"format": "tablemapper workload", "version": "x", "forms": []}', "is no workload"),
        ('{"format": "tablemapper workload", "version": 1, "forms": [{"verb": 1}], "dropped": 0}', "is no workload"),
        ('{"format": "tablemapper workload", "version": 2, "forms": []}', "newer tablemapper; .*update it"),
        ("\x00\xff", "is no workload"),
    ],
)  # fmt: skip
def test_a_file_of_another_program_or_of_a_newer_version_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "calls.json").write_text(text, encoding="latin-1")
    with pytest.raises(tm.InvalidQuery, match=f"calls.json: .*{said}"):
        tm.Workload.load(tmp_path / "calls.json")


# --------------------------------------------------------------------------------------------------------------- advice


def work_of(
    models: list[type[Any]], *calls: Callable[[tm.Store, Any], Any], times: int = 10, entities: int = 0
) -> Workload:
    """Return the calls of a program: what its functions ask, so many times."""
    work, cls = tm.Workload(), models[0]
    with tm.open(":memory:", models=models, observe=work) as store:
        store.insert_many(
            cls("n", number, MOMENT, MOMENT.date(), False, cls.color.type.enum.RED, "s") for number in range(entities)
        )
        for _ in range(times):
            for call in calls:
                call(store, cls)
    return work


def advised(models: list[type[Any]], work: Workload) -> list[tm.reports.Advice]:
    with tm.open(":memory:", models=models) as store:
        return [one for one in store.advise(workload=work) if one.code.startswith("TM2")]


SCANS: list[tuple[Callable[[tm.Store, Any], Any], str | None]] = [
    (lambda s, t: list(s.query(t).where(t.on == True).allow_scan()), 'by_on = tm.Index[bool](partition="{on}")'),  # noqa: E712
    (lambda s, t: s.query(t).where(t.on == True).order_by(t.at).allow_scan().first(),  # noqa: E712
     'by_on_and_at = tm.Index(partition="{on}", row="{at}")'),
    (lambda s, t: s.query(t).where(t.day != None).allow_scan().count(), None),  # noqa: E711
]  # fmt: skip


@pytest.mark.needs("sorts", when=lambda id: "by_on_and_at" in id)
@pytest.mark.parametrize(("call", "declaration"), SCANS)
def test_a_frequent_scan_gets_the_index_that_ends_it(
    call: Callable[[tm.Store, Any], Any], declaration: str | None
) -> None:
    source = entity()
    models = classes(source)
    assert advised(models, work_of(models, call, times=9)) == []
    work = work_of(models, call)
    (one,) = advised(models, work)
    assert (one.code, one.level, one.where, one.declaration) == ("TM201", "note", "Thing", declaration)
    assert one.evidence["calls"] == 10
    assert advised(classes(entity(accept=', accept={"TM201": "few"}')), work) == []
    if declaration is not None:
        better = classes(pasted(source, "Thing.x", declaration))
        assert advised(better, work) == []
        assert advised(better, work_of(better, call)) == []


def test_reading_the_first_rows_of_a_class_is_no_scan_to_warn_of_and_reading_all_of_many_is() -> None:
    models = classes(entity())
    assert advised(models, work_of(models, lambda s, t: list(s.query(t).allow_scan().limit(3)), entities=1_000)) == []
    (one,) = advised(models, work_of(models, lambda s, t: s.query(t).allow_scan().count(), entities=1_000))
    assert (one.code, one.level, one.declaration) == ("TM201", "warning", None)
    assert one.remedy.startswith("Read it in pages")


def test_scans_of_much_are_a_warning_and_verbs_are_counted_together() -> None:
    models = classes(entity())

    def scan(store: tm.Store, cls: Any) -> None:
        query = store.query(cls).where(cls.on == True).allow_scan()  # noqa: E712
        assert query.first() is None
        assert not query.exists()

    (one,) = advised(models, work_of(models, scan, times=5, entities=1_000))
    assert (one.level, one.evidence) == ("warning", {"calls": 10, "returned": 0, "examined": 10_000})


def test_what_reads_far_more_than_it_returns_gets_the_index_that_bounds_it() -> None:
    source = entity()
    models = classes(source)

    def ask(store: tm.Store, cls: Any) -> list[Any]:
        return list(store.query(cls).where(cls.name == "n", cls.on == True))  # noqa: E712

    assert advised(models, work_of(models, ask, entities=999)) == []
    work = work_of(models, ask, entities=1_000)
    (one,) = advised(models, work)
    assert (one.code, one.level, one.where) == ("TM202", "warning", "Thing")
    assert "Thing where name == ? and on == ? reads 1,000 rows of Thing.key to return 0" in one.problem
    assert one.declaration == 'by_name_and_on = tm.Index[str, bool](partition="{name}", row="{on}")'
    better = classes(pasted(source, "Thing.x", one.declaration))
    assert advised(better, work) == []
    assert advised(better, work_of(better, ask, entities=1_000)) == []
    assert advised(classes(entity(accept=', accept={"TM202": "so be it"}')), work) == []


CHANGES: list[Callable[[tm.Store, Any], Any]] = [
    lambda s, t: s.query(t).where(t.name == "n", t.on == True).update(lambda one: None),  # noqa: E712
    lambda s, t: s.query(t).where(t.name == "n", t.on == True).delete(),  # noqa: E712
    lambda s, t: s.query(t).where(t.name == "n", t.on == True).count(),  # noqa: E712
    lambda s, t: s.query(t).where(t.name == "n", t.on == True).sum(t.number),  # noqa: E712
]  # fmt: skip


@pytest.mark.parametrize("call", CHANGES, ids=["update", "delete", "count", "sum"])
def test_changes_and_totals_by_query_are_judged_as_loops_are(call: Callable[[tm.Store, Any], Any]) -> None:
    models = classes(source := entity())
    assert advised(models, work_of(models, call, times=9, entities=1_000)) == []
    work = work_of(models, call, entities=1_000)
    (one,) = advised(models, work)
    assert (one.code, one.level) == ("TM202", "warning")
    assert one.declaration == 'by_name_and_on = tm.Index[str, bool](partition="{name}", row="{on}")'
    better = classes(pasted(source, "Thing.x", one.declaration))
    assert advised(better, work_of(better, call, entities=1_000)) == []


def test_a_total_of_much_is_told_of_aggregates_and_groups_are_as_many_as_they_are() -> None:
    models = classes(entity())
    work = work_of(models, lambda s, t: s.query(t).where(t.name == "n").sum(t.number), entities=1_000)
    (one,) = advised(models, work)
    assert (one.code, one.level, one.declaration) == ("TM202", "note", None)
    assert "Let an aggregate keep" in one.remedy
    grouped = work_of(models, lambda s, t: s.query(t).where(t.name == "n").group_by(t.number).count(), entities=1_000)
    assert advised(models, grouped) == []
    assert [form.text for form in grouped.statistics if form.text] == ["Thing where name == ? by number"]


@pytest.mark.needs("sorts")
def test_a_sort_of_much_gets_the_order_and_what_no_index_bounds_is_told_so() -> None:
    models = classes(entity())
    sort = work_of(models, lambda s, t: s.query(t).where(t.name == "n").order_by(t.at.desc()).first(), entities=1_000)
    (one,) = advised(models, sort)
    assert one.declaration == 'by_name_and_at = tm.Index(partition="{name}", row="{at}")'
    odd = work_of(models, lambda s, t: list(s.query(t).where(t.name == "n", t.on != False)), entities=1_000)  # noqa: E712
    (one,) = advised(models, odd)
    assert (one.declaration, one.remedy) == (None, "No index can bound it further: add conditions to it.")


def test_an_index_that_no_call_follows_is_idle() -> None:
    source = entity(
        GOOD,
        'by_on = tm.Index[bool](partition="{on}")',
        'by_day = tm.Index(partition="{name}", row=("{number}", "{day}"), unique=True)',
    )
    models = classes(source)
    asks: list[Callable[[tm.Store, Any], Any]] = [lambda s, t: s.get(t.key("n", 1))]
    assert advised(models, work_of(models, *asks, times=1_000, entities=99)) == []
    assert advised(models, work_of(models, *asks, times=998, entities=100)) == []
    work = work_of(models, *asks, times=1_000, entities=100)
    (one,) = advised(models, work)
    assert (one.code, one.level, one.where, one.declaration) == ("TM203", "note", "Thing.by_on", None)
    asks.append(lambda s, t: s.query(t.by_on(True)).first())
    assert advised(models, work_of(models, *asks, times=1_000, entities=100)) == []
    ending = classes(
        entity(GOOD, "until: tm.Field[datetime | None] = tm.field(default=None, expires=True, kw_only=True)")
    )
    assert advised(ending, work_of(ending, asks[0], times=1_000, entities=100)) == []
    accepting = source.replace('partition="{on}"', 'partition="{on}", accept={"TM203": "asked in December"}')
    assert advised(classes(accepting), work) == []


def test_forms_of_fields_that_are_gone_and_events_without_words_are_left_out() -> None:
    gone = {"model": "Thing", "along": None, "where": [["==", "gone", "?"]], "order": []}
    along = {"model": "Thing", "along": ["by_x", 1], "where": [], "order": []}
    odd = {"model": "Thing", "along": None, "where": [["~", "on", "?"]], "order": [["timestamp()", True]]}
    work = tm.Workload()
    for number, words in enumerate((gone, along, odd, {}, None)):
        for _ in range(10):
            work(event(form=f"Thing{number}", model="Thing", shape_data=words))
    assert advised(classes(entity()), work) == []


def test_what_is_no_workload_is_refused() -> None:
    with (
        tm.open(":memory:", models=[Part]) as store,
        pytest.raises(TypeError, match=r"workload= is a tm\.Workload, got"),
    ):
        store.advise(workload="calls.json")  # type: ignore[arg-type]


@pytest.mark.file
def test_the_command_judges_calls_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    models = classes(entity())
    tm.open("things.db", models=models).close()
    work_of(models, SCANS[0][0]).save("calls.json")
    assert run(("advise", "things.db", "--workload", "calls.json")) == Exit.OK
    assert "TM201 note  Thing: Thing where on == ? read the whole table 10 times" in capsys.readouterr().out
    (tmp_path / "things.py").write_text(HEAD + entity())
    assert run(("advise", "--models", "things", "--workload", "calls.json")) == Exit.USAGE
    assert "name that, too" in capsys.readouterr().err
    assert run(("advise", "things.db", "--workload", "nothing.json")) == Exit.USAGE
