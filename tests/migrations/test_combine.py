"""Several old entities become one: what ``combine=`` makes of them, whoever writes meanwhile, and whatever is in its way."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online import backfill
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.engines.sqlite.rows import write_hooks

from .. import sqlite_vfs  # noqa: F401  registers the file layers
from ..classes import entity
from ..sqlite_vfs import Power
from .shapes import OLD, OLD_TOTALS, Case, begin, begun, contents, parts, script, texts, totals, write
from .test_runner import migrate, old_entities, refused, steps

pytestmark = pytest.mark.usefixtures("batches_of_seven")

LABEL = entity(
    "Label", "Labels", {"shelf": str, "tag": str, "parts": list[str], "maker": str | None},
    tm.Key[str, str](partition="{shelf}", row="{tag}"), by_part=tm.Index[str](partition="{parts}"),
)  # fmt: skip


def labels(old: Any) -> list[Any]:
    """Return one label for each tag; a tag that stands twice is two of them."""
    return [LABEL(old.shelf, tag, [f"{old.number}:{old.price}"], old.maker) for tag in old.tags]


def both(a: Any, b: Any) -> Any:
    """Put the parts of labels behind each other: in another order, or other groups, it would be seen."""
    return LABEL(a.shelf, a.tag, [*a.parts, *b.parts], b.maker)


def combining(function: Any = labels, combine: Any = both, **options: Any) -> Case:
    new = [LABEL, totals(LABEL, "maker")]
    return Case(
        script(new, lambda m: m.rewrite(OLD, function, into=[LABEL], combine=combine, **options)), tuple(new), labels
    )


CASE = combining()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "power"
    folder.mkdir()
    with tm.open(folder / "s.db", models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        store.insert_many(parts(30, random.Random(1)))
    return folder / "s.db"


def expected(old: list[Any]) -> list[str]:
    """Return what old entities should become, without the library."""
    found: dict[Any, Any] = {}
    for one in sorted(old, key=lambda e: (e.key.partition, e.key.row)):
        for new in labels(one):
            key = (new.shelf, new.tag)
            found[key] = both(found[key], new) if key in found else new
    return texts(found.values())


def check(path: Path, old: list[Any]) -> None:
    with tm.open(path, models=list(CASE.new)) as store:
        assert contents(store, CASE.new) == expected(old)
        report = store.check()
        assert report.ok, report


def left(path: Path) -> int:
    engine = SqliteMigrations.open(path)
    try:
        ((rows,),) = engine._file.read("SELECT (SELECT count(*) FROM tablemapper_ledger) + (SELECT count(*) FROM tablemapper_queue)")  # fmt: skip
        return int(rows)
    finally:
        engine.close()


def killed_after_each_batch(path: Path, case: Case) -> list[Any]:
    """Run a script, killed after each batch, beside an old version that writes; return the old entities at the switch."""
    draw = random.Random(5)
    with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        for _ in range(200):
            old = list(store.query(OLD).allow_scan())
            engine = SqliteMigrations.open(path, durability="relaxed")
            switched = not begin(engine, case.script) or engine.step(4).switched
            engine._file.close()  # all that it knew is gone
            if switched:
                return old
            if draw.random() < 0.3:
                write(store, draw)
            assert store.check().ok
        raise AssertionError("it does not end")


def test_entities_of_one_new_key_are_combined_in_the_order_of_the_old_keys(path: Path) -> None:
    old = old_entities(path)
    assert len(expected(old)) < sum(len(one.tags) for one in old)
    before = path.read_bytes()
    report = migrate(path, CASE, dry_run=True)
    assert (report.ok, report.entities) == (True, 30)
    assert [(one.reversible, one.old_version) for one in report.plan] == [(False, "stops")]
    assert path.read_bytes() == before
    assert migrate(path, CASE).ok
    check(path, old)
    assert left(path) == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_change_of_one_of_the_combined_makes_them_anew(path: Path, seed: int) -> None:
    draw = random.Random(seed)
    old: list[Any] = []
    with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        writes_left = 60

        def between(engine: SqliteMigrations) -> None:
            nonlocal writes_left
            engine.clear(1_000)  # as a run that has come to the end of another migration
            for _ in range(draw.randrange(5) if writes_left > 0 else 0):
                write(store, draw)
                writes_left -= 1
            old[:] = store.query(OLD).allow_scan()

        steps(path, CASE, between)
        refused(store)
    check(path, old)


def test_without_the_queue_what_is_combined_is_not_that_of_the_old_entities(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_hooks.BackfillQueueHook, "collect_added", lambda *_: None)
    with pytest.raises(AssertionError):
        test_a_change_of_one_of_the_combined_makes_them_anew(path, 1)


def test_a_run_that_combines_and_is_killed_after_any_batch_goes_on(path: Path) -> None:
    check(path, killed_after_each_batch(path, CASE))


def test_what_cannot_be_combined_is_a_fault_and_the_others_are_combined(path: Path) -> None:
    def unlike(a: Any, b: Any) -> Any:
        if a.maker == "bad" or b.maker == "bad":
            raise ValueError("a bad maker")
        return both(a, b)

    case = combining(combine=unlike)
    with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        store.insert(OLD("x", 100, price="1", maker="bad", tags=["a"]))
        with pytest.raises(
            tm.MigrationStopped, match=r"Part \('x', '.100'\): combine=: ValueError: a bad maker"
        ) as stopped:
            migrate(path, case)
        assert len(stopped.value.faults) == 1
        report = migrate(path, case, dry_run=True)
        assert [one.key for one in report.faults] == [one.key for one in stopped.value.faults]
        store.merge(OLD.key("x", 100), maker="good")
        old = list(store.query(OLD).allow_scan())
    assert migrate(path, case).ok
    check(path, old)


@pytest.mark.parametrize("seed", range(4))
def test_faults_among_the_combined_come_and_go_and_leave_nothing(path: Path, seed: int) -> None:
    """Entities turn bad and good again while they are copied, some by themselves, some with others."""
    draw = random.Random(seed)

    def function(e: Any) -> list[Any]:
        if e.price == "9":
            raise ValueError("nine")
        return labels(e)

    def unlike(a: Any, b: Any) -> Any:
        if "m1" == a.maker == b.maker:
            raise ValueError("two of m1")
        return both(a, b)

    case = combining(function, unlike)
    engine = begun(path, case.script)
    with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        for _ in range(40):
            for one in draw.sample(list(store.query(OLD).allow_scan()), 2):
                store.merge(one.key, price=draw.choice(["9", "1"]), maker=draw.choice(["m1", "m2"]))
            assert not engine.step(7).switched
        for one in list(store.query(OLD).allow_scan()):  # (nobody touches the others)
            if one.price == "9" or one.maker == "m1":
                store.merge(one.key, price="2", maker=draw.choice(["m2", "m3"]))
        old = list(store.query(OLD).allow_scan())
        for _ in range(200):
            if (copied := engine.step(7)).switched:
                break
            assert not copied.stuck
        else:
            raise AssertionError("it does not end")
        assert not engine.faults
    engine.close()
    check(path, old)


def test_entities_are_combined_a_batch_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one: list[Any] = []
    copy_key = backfill._Copy._copy_key
    monkeypatch.setattr(
        backfill._Copy, "_copy_key", lambda self, *args: one_by_one.append(args[1]) or copy_key(self, *args)
    )
    assert migrate(path, CASE).ok
    assert one_by_one == []


@pytest.mark.parametrize(
    ("combine", "detail"),
    [
        (lambda a, b: LABEL(a.shelf, a.tag + b.tag, [], None), r"combine= gave Label \('\w', '\w\w'\), but Label"),
        (lambda _a, _b: None, "the function gave NoneType, but the script's new Label is expected"),
        (lambda a, _b: LABEL(a.shelf, a.tag, 5, None), "InvalidEntity"),
    ],
)
def test_what_combine_must_not_give_is_a_fault(path: Path, combine: Callable[[Any, Any], Any], detail: str) -> None:
    before = old_entities(path)
    with pytest.raises(tm.MigrationStopped, match=detail):
        migrate(path, combining(combine=combine))
    assert texts(old_entities(path)) == texts(before)


@pytest.mark.parametrize("first", ["combining", "other"])
def test_entities_of_two_steps_are_not_combined(tmp_path: Path, first: str) -> None:
    other = entity("Other", "Others", {"shelf": str}, tm.Key[str](partition="{shelf}"))
    shelf = entity("Shelf", "Shelves", {"shelf": str, "number": int}, tm.Key[str](partition="{shelf}"))
    with tm.open(tmp_path / "s.db", models=[OLD, other]) as store:
        store.insert_many([OLD("a", n, price="1", maker=None, tags=[]) for n in range(3)])
        store.insert(other("a"))

    def change(m: tm.Migration) -> None:
        if first == "other":
            m.rewrite(other, lambda e: shelf(e.shelf, 0), into=[shelf])
        m.rewrite(
            OLD, lambda e: shelf(e.shelf, 1), into=[shelf],
            combine=lambda a, b: shelf(a.shelf, a.number + b.number),
        )  # fmt: skip
        if first == "combining":
            m.rewrite(other, lambda e: shelf(e.shelf, 0), into=[shelf])

    one = script([shelf], change, old=[OLD, other])
    with pytest.raises(tm.MigrationStopped, match=r"it becomes Shelf \('a', ''\), and so does"):
        tm.migrate(tmp_path / "s.db", [one], rest=0)
    with tm.open(tmp_path / "s.db", models=[OLD, other]) as store:
        store.delete(other.key("a"))
    assert tm.migrate(tmp_path / "s.db", [one], rest=0).ok
    with tm.open(tmp_path / "s.db", models=[shelf]) as store:
        assert store[shelf.key("a")].number == 3


def test_what_was_combined_cannot_be_taken_apart(path: Path) -> None:
    with pytest.raises(tm.InvalidMigration, match="a combination cannot be reversed; leave out back="):
        migrate(path, combining(back=lambda e: e))
    assert migrate(path, CASE).ok
    with pytest.raises(
        tm.InvalidMigration, match=r"it cannot be undone: rewrite Part into Label \(it combines entities\)"
    ):
        migrate(path, CASE, to="")


def test_a_power_cut_of_a_batch_that_combines_loses_none_of_them(path: Path, *, full_size: bool) -> None:
    draw = random.Random(3)
    old = old_entities(path)
    Power.start(path)
    engine = begun(path, CASE.script, durability="full", vfs="power")
    while not engine.step(7).switched:
        pass
    engine.close()
    events = range(Power.events)
    for moment in events if full_size else sorted(draw.sample(events, 8)):
        image = path.with_name(f"{moment}.db")
        Power.cut(moment, draw, image)
        assert tm.migrate(image, [CASE.script], rest=0, durability="relaxed").done
        check(image, old)
