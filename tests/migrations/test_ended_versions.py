"""A version that has ended is refused by everything that it can do, also in a program that has had the store open before."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.catalogue.actions import ActionPlan
from tablemapper.catalogue.catalogue import Catalogue
from tablemapper.catalogue.fences import rename_fence
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.engines.sqlite.online.transition_runner import change
from tablemapper.evolution.versions import Versions
from tablemapper.scripts.script import MigrationFunction

from ..classes import entity
from .shapes import (
    FIELDS,
    OLD,
    OLD_TOTALS,
    STOCK,
    Case,
    cases,
    changed,
    indexes,
    insert,
    made,
    more_cases,
    opened,
    part,
    script,
    step,
    stocks,
    totals,
)  # fmt: skip

CASES = cases() | more_cases()
HAS_ARROW = find_spec("pyarrow") is not None


class Program:
    """A program with the old classes that has used the store, and knows it as it was then."""

    def __init__(self, path: Path) -> None:
        models = [OLD, OLD_TOTALS, STOCK]
        self.store, self.in_transaction = (tm.open(path, models=models, durability="relaxed") for _ in range(2))
        self.loop = asyncio.new_event_loop()
        self.shared = self.wait(tm.open_async(path, models=models, durability="relaxed"))
        self._engines: list[Any] = [self.store._engine, self.in_transaction._engine, self.shared._operations.engine]
        self._known = [engine._current.state for engine in self._engines]
        self.query = self.store.query(OLD).allow_scan()
        self.indexed = self.store.query(OLD).where(OLD.maker == "m1")
        self.token = self.query.page(3).token
        self.index_token = self.indexed.page(2).token
        self.begun = self.in_transaction.transaction()
        self.begun.__enter__()

    def wait(self, task: Any) -> Any:
        return self.loop.run_until_complete(task)

    def answer(self, do: Callable[[Program], Any]) -> str:
        """Return what something gives or raises, if nothing was done since the program was started."""
        for engine, known in zip(self._engines, self._known, strict=True):
            engine._current.state = known
        try:
            return repr(do(self))
        except tm.SchemaMismatch as error:
            with pytest.raises(tm.SchemaMismatch):  # it knows by now that it has ended
                do(self)
            return f"SchemaMismatch: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def answers(self) -> dict[str, str]:
        return {verb: self.answer(do) for verb, do in (READS | WRITES).items()}

    def close(self) -> None:
        self.store.close()
        self.in_transaction.close()
        self.wait(self.shared.close())
        self.loop.close()


async def _listed(query: Any) -> list[Any]:
    return [one async for one in query]


def in_a_transaction(program: Program, one: Any) -> None:
    with program.store.transaction() as tx:
        tx.upsert(one)


NEW = OLD("x", 900, price="1", maker=None, tags=[])
READS: dict[str, Callable[[Program], Any]] = {
    "get": lambda p: p.store.get(OLD.key("x", 0)), "exists": lambda p: p.store.exists(OLD.key("x", 0)),
    "get_many": lambda p: p.store.get_many([OLD.key("x", n) for n in range(3)]),
    "get_many of two classes": lambda p: p.store.get_many([OLD.key("x", 0), STOCK.key("x", 0)]),
    "iteration": lambda p: list(p.query), "iteration by an index": lambda p: list(p.indexed),
    "iteration by a name": lambda p: list(p.store.query(OLD.by_tag("a"))), "first": lambda p: p.query.first(),
    "first of a partition": lambda p: p.store.query(OLD).where(OLD.shelf == "x").first(),
    "one partition": lambda p: list(p.store.query(OLD).where(OLD.shelf == "x")),
    "in order": lambda p: list(p.store.query(OLD).where(OLD.shelf == "x").order_by(OLD.number.desc()).limit(2)),
    "several ranges": lambda p: list(p.store.query(OLD).where(OLD.shelf.is_in(["x", "y"]))),
    "page": lambda p: p.query.page(3), "page with an old token": lambda p: p.query.page(3, p.token),
    "page of an index with an old token": lambda p: p.indexed.page(2, p.index_token),
    "pages": lambda p: list(p.query.pages(4)),
    "count by the aggregate": lambda p: p.store.query(OLD).where(OLD.shelf == "x").count(),
    "count of all": lambda p: p.query.count(), "count by an index": lambda p: p.indexed.count(),
    "max by the aggregate": lambda p: p.store.query(OLD).where(OLD.shelf == "x").max(OLD.maker),
    "sum": lambda p: p.query.sum(OLD.number),
    "groups": lambda p: dict(p.store.query(OLD).allow_scan().group_by(OLD.shelf).count()),
    "select": lambda p: list(p.store.query(OLD).allow_scan().select(OLD.number)),
    "columns": lambda p: p.query.columns(), "columns by an index": lambda p: p.indexed.columns(),
    "parts": lambda p: [list(part) for part in p.query.split(2)], "explain": lambda p: p.query.explain(),
    "partition": lambda p: list(p.store.partition(OLD.shelf == "x")),
    "partitions": lambda p: list(p.store.partitions(OLD)), "transaction": lambda p: p.begun.get(OLD.key("y", 1)),
    "async get": lambda p: p.wait(p.shared.get(OLD.key("x", 0))),
    "async iteration": lambda p: p.wait(_listed(p.shared.query(OLD).allow_scan())),
    "async count": lambda p: p.wait(p.shared.query(OLD).allow_scan().count()),
    "async columns": lambda p: p.wait(p.shared.query(OLD).allow_scan().columns()),
    "group": lambda p: p.store.get(OLD_TOTALS.key("x")),
    "groups of the aggregate": lambda p: list(p.store.query(OLD_TOTALS).allow_scan()),
}  # fmt: skip
WRITES: dict[str, Callable[[Program], Any]] = {
    "upsert": lambda p: p.store.upsert(OLD("x", 1, price="1001", maker=None, tags=[])),
    "upsert_many": lambda p: p.store.upsert_many([OLD("x", 35, price="1002", maker=None, tags=["a"])]),
    "update by query": lambda p: p.store.query(OLD).where(OLD.shelf == "x", OLD.number == 35).update(maker="m9"),
}
MORE_WRITES: dict[str, Callable[[Program], Any]] = {
    "insert": lambda p: p.store.insert(NEW),
    "insert_many": lambda p: p.store.insert_many([NEW], atomic=True),
    "insert_columns": lambda p: p.store.insert_columns(OLD, {name: [getattr(NEW, name)] for name in FIELDS}),
    "update": lambda p: p.store.update(OLD.key("x", 1), lambda e: e),
    "merge": lambda p: p.store.merge(OLD.key("x", 1), price="2"),
    "delete": lambda p: p.store.delete(OLD.key("x", 1)),
    "delete by query": lambda p: p.store.query(OLD).where(OLD.shelf == "x").delete(),
    "clear": lambda p: p.store.clear(OLD),
    "transaction": lambda p: in_a_transaction(p, NEW),
}
if HAS_ARROW:
    READS["to_arrow"] = lambda p: p.query.to_arrow()
    READS["arrow_batches"] = lambda p: list(p.query.arrow_batches(4))
EVERYTHING = READS.keys() | WRITES.keys()
OF_THE_AGGREGATE = {
    "group", "groups of the aggregate", "count by the aggregate", "count of all", "async count", "max by the aggregate", "groups",
}  # fmt: skip


@pytest.fixture
def program(path: Path) -> Iterator[Program]:
    program = Program(path)
    yield program
    program.close()


def migrate(path: Path, case: Case, **options: Any) -> tm.reports.MigrationReport:
    return tm.migrate(path, case.scripts, **{"rest": 0, "durability": "relaxed", **options})


def refused(answers: dict[str, str]) -> set[str]:
    return {verb for verb, answer in answers.items() if answer.startswith("SchemaMismatch: ")}


def answers_of_a_new_start(program: Program, path: Path) -> dict[str, str]:
    """Return what a program that is started now answers, if it goes on where another one is."""
    try:
        fresh = Program(path)
    except tm.SchemaMismatch as error:
        return dict.fromkeys(EVERYTHING, str(error))
    try:
        fresh.token, fresh.index_token = program.token, program.index_token
        return fresh.answers()
    finally:
        fresh.close()


SAME = ("convert by a mapping", "rewrite that drops", "resolve")  # the old version fits what they make


@pytest.mark.parametrize("name", CASES)
def test_a_program_that_runs_is_refused_what_it_would_be_refused_if_it_were_started_now(
    path: Path, program: Program, name: str
) -> None:
    program.answers()  # (it writes, too)
    before = program.answers()
    assert refused(before) == set()
    live = {step.old_version for step in migrate(path, CASES[name], dry_run=True).plan}
    if not migrate(path, CASES[name], limit=12).done:
        assert program.answers() == before
        if name not in SAME:
            with pytest.raises(tm.SchemaMismatch, match="(first|second) is under way"):
                tm.open(path, models=CASES[name].new)
    migrate(path, CASES[name])
    switched = program.answers()
    if ("stops" in live and name not in SAME) or name == "two copies":  # (the second one ends the first version)
        assert refused(switched) == EVERYTHING
    else:
        assert refused(switched) == (WRITES.keys() if "reads" in live else set())
        assert switched == answers_of_a_new_start(program, path)
    migrate(path, CASES[name], contract=True)
    contracted = program.answers()
    if name in SAME:
        assert contracted == answers_of_a_new_start(program, path)
    elif name == "drop of an aggregate":
        assert refused(contracted) == OF_THE_AGGREGATE
        assert {verb: contracted[verb] for verb in EVERYTHING - OF_THE_AGGREGATE} == {
            verb: before[verb] for verb in EVERYTHING - OF_THE_AGGREGATE
        }
    else:
        assert {verb: contracted[verb] for verb in EVERYTHING - refused(contracted)} == {}


FIRM = part(changed(FIELDS, maker=None, firm=str | None), **indexes("firm"))
PRICED = part(changed(FIELDS, price=Decimal), **indexes())
SHARDED = tm.Key[str, int](partition="{shelf:shard(4)}", row=("{shelf}", "{number}"))
KEYED = part(key=SHARDED, **indexes())
BARE = part(changed(FIELDS, maker=None, firm=str | None), by_maker=tm.Index[str](partition="{firm}"))
BARE_PRICED = part(changed(FIELDS, price=Decimal), by_maker=tm.Index[str](partition="{maker}"))
BEFORE: dict[str, tuple[Any, str, Callable[[tm.Migration], None]]] = {
    "rename": (FIRM, "firm", lambda m: m.rename(FIRM.firm, OLD.maker)),
    "convert": (PRICED, "maker", lambda m: m.convert(PRICED.price, OLD.price, str, back=Decimal)),
    "rekey": (KEYED, "maker", lambda m: m.rekey(KEYED, OLD)),
    "rename, and an index": (BARE, "firm", lambda m: m.rename(BARE.firm, OLD.maker)),
    "convert, and an index": (
        BARE_PRICED,
        "maker",
        lambda m: m.convert(BARE_PRICED.price, OLD.price, str, back=Decimal),
    ),
}


@pytest.fixture(params=BEFORE)
def beginning(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, MigrationFunction]:
    """Return a store that a migration has led to the old classes of here, and this migration."""
    before, maker, steps = BEFORE[request.param]
    path = tmp_path / "later.db"
    with tm.open(path, models=[before, totals(before, maker), STOCK], durability="relaxed") as store:
        for number in range(600):
            values = {"price": before.price.type.kind(number), "tags": ["a"] * (number % 2), maker: f"m{number % 3}"}
            store.insert(before("xyz"[number % 3], number, **values))
        store.insert_many(stocks())
    first = script([OLD, OLD_TOTALS], steps, "first", None, [before, totals(before, maker)])
    assert tm.migrate(path, [first], rest=0, durability="relaxed").ok
    return path, first


def test_a_version_reads_on_in_tables_with_other_names(beginning: tuple[Path, MigrationFunction]) -> None:
    path, first = beginning
    program = Program(path)
    program.answers()
    before = program.answers()
    assert refused(before) == set()
    tm.migrate(path, [first], contract=True, durability="relaxed")
    assert program.answers() == before
    program.close()
    with tm.open(path, models=[OLD, OLD_TOTALS, STOCK], durability="relaxed") as store:
        store.compact()
        engine: Any = store._engine
        names = {name for (name,) in engine.file.read("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        assert {"Parts", "PartsByMaker", "PartsByTag", "Totals"} <= names
        assert not any(name.endswith("_2") for name in names)
        assert store.check().ok
        assert len(list(store.query(OLD).where(OLD.maker == "m1"))) == 200


def test_a_version_that_a_migration_made_ends_or_goes_on_when_that_is_undone(
    beginning: tuple[Path, MigrationFunction],
) -> None:
    path, first = beginning
    program = Program(path)
    program.answers()
    before = program.answers()
    tm.migrate(path, [first], to="", rest=0, durability="relaxed")
    answers = program.answers()
    assert answers == answers_of_a_new_start(program, path)
    assert {verb for verb in EVERYTHING - refused(answers) if answers[verb] != before[verb]} == set()
    program.close()


LOOPS: dict[str, Callable[[Program], Iterator[Any]]] = {
    "iteration": lambda p: iter(p.query), "by an index": lambda p: iter(p.indexed),
    "several ranges": lambda p: iter(p.store.query(OLD).where(OLD.shelf.is_in(["x", "y", "z"]))),
    "in order": lambda p: iter(p.store.query(OLD).allow_scan().order_by(OLD.price).limit(500)),
    "select": lambda p: iter(p.query.select(OLD.number)), "pages": lambda p: p.query.pages(100),
    "pages by an index": lambda p: p.indexed.pages(70), "parts": lambda p: (list(one) for one in p.query.split(3)),
    "partition": lambda p: p.store.partition(OLD.shelf == "x"), "partitions": lambda p: p.store.partitions(OLD),
    "groups": lambda p: iter(p.store.query(OLD_TOTALS).allow_scan()),
    "keys, one after the other": lambda p: (p.store.get(OLD.key("xyz"[n % 3], n)) for n in range(5)),
}  # fmt: skip
if HAS_ARROW:
    LOOPS["arrow"] = lambda p: p.query.arrow_batches(300)


@pytest.mark.parametrize("ends", [False, True])
def test_a_loop_that_has_begun_gives_what_it_would_have_given_or_is_refused(place: Path, *, ends: bool) -> None:
    with tm.open(place, models=[OLD, OLD_TOTALS, STOCK], durability="relaxed") as store:
        for number in range(900):
            store.insert(OLD("xyz"[number % 3], number, str(number), f"m{number % 3}", ["a"]))
    first = script([FIRM, totals(FIRM, "firm")], lambda m: m.rename(OLD.maker, FIRM.firm))
    back = script([OLD, OLD_TOTALS], lambda m: m.rename(FIRM.firm, OLD.maker), "second", "first",
                  [FIRM, totals(FIRM, "firm")])  # fmt: skip
    scripts = [first] if ends else [first, back]
    program = Program(place)
    wanted = {verb: [repr(one) for one in do(program)] for verb, do in LOOPS.items()}
    loops = {verb: do(program) for verb, do in LOOPS.items()}
    begun = {verb: [repr(next(loop))] for verb, loop in loops.items()}
    tm.migrate(place, scripts, contract=True, durability="relaxed")
    others = set()
    for verb, loop in loops.items():
        program.answer(lambda _: None)  # (forget what the verb before has found out)
        try:
            begun[verb] += [repr(one) for one in loop]
        except tm.SchemaMismatch:
            others.add(verb)
        else:
            assert begun[verb] == wanted[verb], verb
    assert others == (
        {"pages", "pages by an index", "parts", "partitions", "keys, one after the other"} if ends else set()
    )
    program.close()


ITEM = entity("Item", "Items", {"code": str, "price": str, "maker": str | None}, tm.Key[str](partition="{code}"))


def run(path: Path, *scripts: MigrationFunction, **options: Any) -> None:
    assert tm.migrate(path, scripts, rest=0, durability="relaxed", **options).ok


def without_the_script(path: Path) -> None:
    def back(e: Any) -> Any:
        shelf, number = e.code.split("-")
        return OLD(shelf, int(number), e.price, e.maker, [])

    with tm.open(path, models=[OLD]) as store:
        store.query(OLD).allow_scan().update(lambda e: setattr(e, "tags", []) or e)
    steps = lambda m: (  # noqa: E731
        m.rewrite(OLD, lambda e: ITEM(f"{e.shelf}-{e.number}", e.price, e.maker), into=[ITEM], back=back),
        m.drop(OLD_TOTALS),
    )
    run(path, script([ITEM], steps))
    with tm.open(path, models=[OLD]) as store:
        assert len(list(store.query(OLD).allow_scan())) > 20
    with tm.open(path, models=[ITEM]) as store:
        store.insert(ITEM("x-1000", "1", None))


def next_migration(path: Path) -> None:
    first = script([KEYED, totals(KEYED, "maker")], lambda m: m.rekey(OLD, KEYED))
    product = part(name="Product", table="Products", key=SHARDED, **indexes())
    second = script([product, totals(product, "maker")], lambda m: m.rename_class(KEYED, product), "second", "first",
                    [KEYED, totals(KEYED, "maker")])  # fmt: skip
    run(path, first)
    with tm.open(path, models=[OLD]) as store:
        store.insert(OLD("x", 1_000, "9", None, []))
    run(path, first, second)


def a_rename_beside_a_copy_is_contracted(path: Path) -> None:
    firm_all = [FIRM, totals(FIRM, "firm")]
    first = script(firm_all, lambda m: m.rename(OLD.maker, FIRM.firm))
    sharded = part(changed(FIELDS, maker=None, firm=str | None), SHARDED, **indexes("firm"))
    second = script([sharded, totals(sharded, "firm")], lambda m: m.rekey(FIRM, sharded), "second", "first", firm_all)
    run(path, first, second)
    with tm.open(path, models=[OLD]) as store:
        store.insert(OLD("x", 1_000, "9", None, []))
    run(path, first, second, contract=True)


def classes_dropped(path: Path) -> None:
    steps = step("drop", OLD), step("drop", OLD_TOTALS)
    run(path, made(STOCK, [OLD, OLD_TOTALS, STOCK], *steps), contract=True)


def declared_anew(path: Path) -> None:
    with tm.open(path, models=[OLD]) as store:
        store.clear(OLD)
    with tm.open(path, models=[part({"shelf": str, "number": int, "price": float})]) as store:
        assert store.check().ok


ENDINGS = [
    without_the_script, next_migration, a_rename_beside_a_copy_is_contracted, classes_dropped, declared_anew,
]  # fmt: skip


@pytest.mark.parametrize("end", ENDINGS)
def test_a_version_that_runs_is_refused_however_it_ended(
    path: Path, program: Program, end: Callable[[Path], None]
) -> None:
    program.answers()
    end(path)
    answers = program.answers() | {verb: program.answer(do) for verb, do in MORE_WRITES.items()}
    assert {verb: answers[verb] for verb in answers.keys() - refused(answers)} == {}
    store = program.store  # which goes on with what has not ended
    assert store[STOCK.key("x", 3)].pieces == 30
    store.upsert(STOCK("x", 3, 31))
    assert [one.number for one in store.query(STOCK.by_pieces(31))] == [3]
    assert store.check().ok


def test_what_is_built_anew_or_redefined_is_not_read_by_those_that_know_it_as_it_was(
    path: Path, program: Program
) -> None:
    program.answers()
    before = program.answers()
    other = tm.open(path, models=[OLD, OLD_TOTALS])
    engine: Any = other._engine
    engine.disable("Totals")
    engine.disable("Part.by_maker")
    answers = program.answers()
    for verb in EVERYTHING:
        assert answers[verb] == before[verb] or answers[verb].startswith(("NotReady: ", "ScanRefused: ")), verb
    assert answers["group"].startswith("NotReady: ")
    other.build()
    assert program.answers() == before
    least = totals(OLD, "price")
    with tm.open(path, models=[OLD, least]) as store:
        assert store.check().ok
        assert program.answers() == before
    other.close()


def test_classes_that_share_a_table_are_refused_together_if_one_of_them_ends(place: Path) -> None:
    key = tm.Key[str, str](partition="{shop}", row="a-{name}")
    other_key = tm.Key[str, str](partition="{shop}", row="b-{name}")
    old = entity("Apple", "Fruits", {"shop": str, "name": str, "weight": int}, key)
    pear = entity("Pear", "Fruits", {"shop": str, "name": str}, other_key)
    new = entity("Apple", "Fruits", {"shop": str, "name": str, "grams": int}, key)
    verbs: dict[str, Callable[[tm.Store], Any]] = {
        "both": lambda s: list(s.query(old, pear).allow_scan()),
        "both in a partition": lambda s: list(s.query(old, pear).where(old.shop == "x")),
        "first": lambda s: s.query(old, pear).allow_scan().first(),
        "count": lambda s: s.query(old, pear).allow_scan().count(),
        "page": lambda s: s.query(old, pear).allow_scan().page(2),
        "partition": lambda s: list(s.partition(old.shop == "x")),
        "get_many": lambda s: s.get_many([old.key("x", "1"), pear.key("x", "1")]),
    }
    with tm.open(place, models=[old, pear]) as store, tm.open(place, models=[pear]) as pears:
        for n in range(4):
            store.insert(old("x", str(n), weight=n))
            store.insert(pear("x", str(n)))
        engine: Any = store._engine
        known, its_pears = engine._current.state, list(pears.query(pear).allow_scan())
        run(place, script([new, pear], lambda m: m.rename(old.weight, new.grams), old=[old, pear]), contract=True)
        for verb, do in verbs.items():
            engine._current.state = known
            with pytest.raises(tm.SchemaMismatch, match="Apple"):
                print(verb, do(store))
        assert list(store.query(pear).allow_scan()) == its_pears
        assert list(pears.query(pear).allow_scan()) == its_pears


SAYS = {
    "rename": "rename Part.maker to firm", "rename_class": "rename Part to Product", "rekey": "rekey Part",
    "convert": "convert Part.price, str to Decimal", "fill": "fill Part.rank", "drop": "drop Part.tags",
    "rewrite": "rewrite Part into Part, Tag", "join": "join Part and Stock into Part",
    "several": "rename Part.maker to firm, and convert Part.price, str to Decimal, and fill Part.rank",
    "two scripts": "rename Part.maker to firm",
}  # fmt: skip


@pytest.mark.parametrize("name", SAYS)
def test_a_version_that_ended_is_told_what_changed_and_what_to_do(path: Path, program: Program, name: str) -> None:
    says = rf"the migration \w+ replaced this form of the class on [\d-]+: {SAYS[name]}; deploy the version that declares it as it is now"
    migrate(path, CASES[name], contract=True)
    for do in (READS["get"], READS["count of all"], WRITES["upsert"], lambda _: Program(path)):
        with pytest.raises(tm.SchemaMismatch, match=says):
            do(program)


def test_a_version_that_can_only_read_or_was_undone_is_told_what_changed_and_what_to_do(
    path: Path, program: Program
) -> None:
    case = CASES["convert"]
    migrate(path, case)
    says = (
        "Part: first has changed this class, and this version can only read it: convert Part.price, str to Decimal; "
        "nothing was written: deploy the version that declares it as it is now"
    )
    with pytest.raises(tm.SchemaMismatch, match=says):
        WRITES["upsert"](program)
    with tm.open(path, models=case.new) as store:
        migrate(path, case, to="")
        says = (
            r"Part: the undoing of first replaced this form of the class on [\d-]+: it took back: convert Part.price, str to "
            "Decimal; deploy the version that declares it as it is now"
        )
        with pytest.raises(tm.SchemaMismatch, match=says):
            list(store.query(case.new[0]).allow_scan())


def with_other_names(path: Path) -> None:
    """Rename every table of a store, as what ends a version does."""
    engine = SqliteMigrations.open(path, durability="relaxed")

    def renamed(draft: ActionPlan, catalogue: Catalogue) -> Catalogue:
        ended = attrs.evolve(catalogue, versions=Versions())
        return attrs.evolve(rename_fence(draft, ended, catalogue), versions=catalogue.versions)

    engine._write(lambda writer: change(writer, renamed))
    engine.close()


def test_a_read_follows_names_that_change_again_while_it_follows(path: Path, program: Program) -> None:
    program.answers()
    before = program.answers()
    left = 0

    def catch_up(engine: Any, now: Callable[[], None]) -> None:
        nonlocal left
        now()
        if left:
            left -= 1
            with_other_names(path)

    for engine in program._engines:
        engine.catch_up = engine.reads.catch_up = partial(catch_up, engine, engine.catch_up)
    with_other_names(path)
    for verb, do in READS.items():
        left = 3
        assert program.answer(do) == before[verb], verb
        assert left == 0 or verb == "transaction", verb


def test_a_class_with_a_field_kept_from_one_that_ended_is_refused_with_it(place: Path) -> None:
    def classes(age: str) -> list[Any]:
        person = entity("Person", "People", {"team": str, "number": int, age: int},
                        tm.Key[str, int](partition="{team}", row="{number}"))  # fmt: skip
        fields = {
            "team": str,
            "members": (int, tm.count(of=person)),
            "oldest": (int | None, tm.max(getattr(person, age), of=person)),
        }
        by_members = tm.Index(partition="{members}")
        key = tm.Key(partition="{team}", row="team")
        return [person, entity("Team", "Teams", fields, key, by_members=by_members)]

    old, new = classes("age"), classes("years")
    person, team = old
    verbs: dict[str, Callable[[tm.Store], Any]] = {
        "get": lambda s: s.get(team.key("a")),
        "iteration": lambda s: list(s.query(team).allow_scan()),
        "by its index": lambda s: list(s.query(team.by_members(3))),
        "select": lambda s: list(s.query(team).allow_scan().select(team.team)),
        "count": lambda s: s.query(team).allow_scan().count(),
        "count of those that are counted": lambda s: s.query(person).where(person.team == "a").count(),
        "partitions": lambda s: list(s.partitions(team)),
    }
    with tm.open(place, models=old) as store:
        for number in range(6):
            store.insert(person("ab"[number % 2], number, number))
        store.insert(team("a"))
        engine: Any = store._engine
        known = engine._current.state
        before = {verb: do(store) for verb, do in verbs.items()}
        first = script(new, lambda m: m.rename(person.age, new[0].years), old=old)
        run(place, first)
        assert {verb: do(store) for verb, do in verbs.items()} == before
        run(place, first, contract=True)
        for verb, do in verbs.items():
            engine._current.state = known
            with pytest.raises(tm.SchemaMismatch, match="the migration first replaced this form"):
                print(verb, do(store))


def test_an_older_version_is_told_which_script_changed_its_class(tmp_path: Path) -> None:
    """Classes that share a table are copied together, so another script than that one may have ended the version."""

    def shop(price: Any, row: str) -> list[Any]:
        product = entity(
            "Product", "Shop", {"t": str, "id": int, "price": price}, tm.Key(partition="{t}", row=("p", "{id}"))
        )
        return [product, entity("Order", "Shop", {"t": str, "id": int}, tm.Key(partition="{t}", row=("o", row)))]

    first, second, third = shop(str, "{id}"), shop(int, "{id}"), shop(int, "{id:desc}")
    cents = made(second, first, step("convert", first[0].price, second[0].price, int, back=str), name="cents")
    newest = made(third, second, step("rekey", second[1], third[1]), name="newest", after="cents")
    path = tmp_path / "s.db"
    insert(path, first[0]("t", 1, "5"), first[1]("t", 1))
    for scripts, models in (([cents], second), ([cents, newest], third)):
        tm.migrate(path, scripts, rest=0)
        opened(path, *models).close()
    with pytest.raises(tm.SchemaMismatch, match="Product: the migration cents replaced .*: convert Product.price"):
        opened(path, *first)
    tm.migrate(path, [cents, newest], to="", rest=0)
    with pytest.raises(tm.SchemaMismatch) as caught:
        opened(path, *third)
    product, order = sorted(caught.value.faults, reverse=True)
    assert re.match("Product: the undoing of cents replaced .*: it took back: convert Product.price", product)
    assert re.match("Order: the undoing of newest replaced .*: it took back: rekey Order", order)
