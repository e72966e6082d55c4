"""Each row of the table of changes in the guide, on both engines: whatever an index includes, and whichever version writes.

An older version writes, a newer one opens the store and writes, the older ones write once more, running and restarted. Each
query that an index can answer gives what the entities are, and a check finds nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

import tablemapper as tm

from ..classes import aggregate, entity
from .azure.memory import Memory
from .azure.place import AzurePlace

pytestmark = [pytest.mark.usefixtures("no_warnings_of_scans"), pytest.mark.file]
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "schema.md"
KEY = tm.Key(partition="{p}", row="{r}")
INCLUDES: dict[str, Any] = {"none": (), "some": ("s",), "all": "all"}


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Hue(Enum):
    BLUE = "blue"
    RED = "red"


class More(Enum):
    RED = "red"
    BLUE = "blue"
    GREEN = "green"


class Less(Enum):
    RED = "red"


class Other(tm.Entity, table="Others"):
    name: tm.Field[str]

    key = tm.Key(partition="{name}")


def _beside(item: Any) -> list[Any]:
    members = {"p": str, "n": int}
    return [item, entity("Beside", "Items", members, tm.Key(partition="{p}", row=("beside", "{n}")))]


def _grouped(item: Any) -> list[Any]:
    members = {"q": (str, tm.group_by(item.q)), "items": (int, tm.count()), "most": (int | None, tm.max(item.s))}
    inner = {"p": (str, tm.group_by(item.p)), "total": (int, tm.sum(item.s))}
    key = tm.Key(partition="{p}", row="total")
    return [
        item,
        aggregate("Outer", item, members, tm.Key(partition="{q}")),
        aggregate("Inner", item, inner, key, "Items"),
    ]


def _shelved(item: Any) -> list[Any]:
    return [item, entity("Shelf", "Shelves", {"p": str, "items": (int, tm.count(of=item))}, tm.Key(partition="{p}"))]


def _alone(item: Any) -> list[Any]:
    return [item]


@attrs.frozen
class Version:
    """A version of the program: an ``Item`` with six indexes, in the partition and elsewhere, and what is beside it."""

    x: Any = None
    """The type and the options of a field; None: there is none."""
    values: tuple[Any, ...] = ()
    """What it writes to that."""
    models: Callable[[Any], list[Any]] = _alone
    first: bool = False
    """Whether the field comes before others."""
    indexes: str = "by"
    """What the names of the indexes begin with; empty: there are none."""
    row: tuple[str, ...] = ()
    """What their row keys end in."""
    more: Mapping[str, Any] = {}
    name: str = "Item"
    table: str = "Items"
    key: Any = KEY
    options: Mapping[str, Any] = {}

    def classes(self, *, includes_x: bool) -> list[Any]:
        members: dict[str, Any] = {} if self.x is None or not self.first else {"x": self.x}
        members = {"p": str, "r": str, "q": str, **members, "s": (int, tm.field(default=0, kw_only=True))}
        members |= {} if self.x is None else {"x": self.x}
        indexes = {
            f"{self.indexes}_{include}_{where}": tm.Index(
                **places, include=("s", "x") if include == "some" and includes_x else INCLUDES[include]
            )
            for where, places in {
                "here": {"partition": "{p}", "row": ("{q}", *self.row)},
                "elsewhere": {"partition": "{q}", "row": self.row or ""},
            }.items()
            for include in INCLUDES
            if self.indexes
        }
        item = entity(self.name, self.table, members, self.key, **indexes, **self.more, **self.options)
        return self.models(item)


@attrs.frozen
class Change:
    """What is between two versions or more, and where the last one is not taken over."""

    versions: tuple[Version, ...]
    in_file: bool = True
    in_account: bool = True
    lacks: Any = None
    """What the field reads as in entities of versions without it."""
    empty: bool = False
    """Whether there are no entities."""
    known: bool = True
    """Whether older versions can read all that the last one writes."""


def _of(*versions: Version, **options: Any) -> Change:
    return Change(versions, **options)


def _x(kind: Any, *values: Any, **options: Any) -> Version:
    given = {name: options.pop(name) for name in ("default", "factory", "name") if name in options}
    return Version(x=(kind, tm.field(**given, kw_only=True)), values=values, **options)


PLAIN = Version()
WITH_X = _x(int, 3, 4)
CHANGES: dict[str, list[Change]] = {
    "a new class, a new aggregate, a new [maintained field](../reference/aggregates.md#maintained-fields)": [
        _of(PLAIN, Version(models=lambda item: [item, Other])),
        _of(PLAIN, Version(models=_grouped)),
        _of(PLAIN, Version(models=_shelved)),
    ],
    "a new field that is optional, or has a default, or is an `Extra`": [
        _of(PLAIN, _x(str | None, "n", None, default=None)),
        _of(PLAIN, _x(int, 5, 6, default=5), lacks=5),
        _of(PLAIN, _x(tm.Extra, tm.Extra(n=1), tm.Extra(), factory=tm.Extra), lacks=tm.Extra()),
    ],
    "a new index": [
        _of(Version(indexes=""), PLAIN),
        _of(PLAIN, Version(more={"by_s": tm.Index(partition="{s}", include="all")})),
    ],
    "an index, an aggregate or a class is no longer declared": [
        _of(Version(more={"by_s": tm.Index(partition="{s}", include="all")}), PLAIN),
        _of(Version(more={"by_s": tm.Index(partition="{p}", row="{s}", include="all")}), PLAIN),
        _of(Version(models=_grouped), PLAIN),
        _of(Version(models=_shelved), PLAIN),
        _of(Version(models=lambda item: [item, Other]), PLAIN),
    ],
    "a field is no longer declared": [
        _of(_x(str | None, None, default=None), PLAIN),
        _of(_x(int, 5, default=5), PLAIN),
        _of(_x(tm.Extra, tm.Extra(), factory=tm.Extra), PLAIN),
        _of(_x(str | None, None, "n", default=None), PLAIN, in_file=False, in_account=False),
        _of(_x(int, 6, 5, default=5), PLAIN, in_file=False, in_account=False),
        _of(_x(tm.Extra, tm.Extra(n=1), factory=tm.Extra), PLAIN, in_file=False, in_account=False),
        _of(WITH_X, PLAIN, in_file=False, in_account=False),
    ],
    "a field is no longer declared, and one of its type is new": [
        _of(_x(int, 5, default=5), _x(int, 5, default=5, name="y"), in_file=False, in_account=False),
        _of(_x(str | None, None, default=None), _x(str | None, None, default=None, name="y"), in_file=False, in_account=False),
    ],
    "another order of the fields, another module for the class, another name of an Enum or order of its members": [
        _of(WITH_X, attrs.evolve(WITH_X, first=True)),
        _of(WITH_X, attrs.evolve(WITH_X, more={"__module__": "elsewhere"})),
        _of(_x(Color, Color.RED, Color.BLUE), _x(Hue, Hue.RED, Hue.BLUE)),
    ],
    "another default of a field": [
        _of(PLAIN, _x(int, 5, 6, default=5), _x(int, 7, 5, default=7), lacks=5),
        _of(_x(int, 5, 6, default=5), _x(int, 7, 5, default=7)),
    ],
    "a field becomes optional; an Enum or a Literal gains a member, or becomes `str`; `Int32` becomes `int`": [
        _of(WITH_X, _x(int | None, 3, None, default=None), known=False),
        _of(_x(Color, Color.RED, Color.BLUE), _x(More, More.RED, More.GREEN), known=False),
        _of(_x(Literal["a", "b"], "a", "b"), _x(Literal["a", "b", "c"], "a", "c"), known=False),
        _of(_x(Literal["a", "b"], "a", "b"), _x(str, "a", "c"), known=False),
        _of(_x(tm.Int32, 1, 2), _x(int, 1, 2**40), known=False),
    ],
    "an Enum or a Literal has lost a member": [
        _of(_x(Color, Color.RED), _x(Less, Less.RED)),
        _of(_x(Literal["a", "b"], "a"), _x(Literal["a"], "a")),
        _of(_x(list[Literal["a", "b"]], ["a"], []), _x(list[Literal["a"]], ["a"])),
        _of(_x(Color, Color.RED, Color.BLUE), _x(Less, Less.RED), in_file=False, in_account=False),
        _of(_x(Literal["a", "b"], "a", "b"), _x(Literal["a"], "a"), in_file=False, in_account=False),
        _of(_x(list[Literal["a", "b"]], ["a", "b"], []), _x(list[Literal["a"]], ["a"]), in_file=False, in_account=False),
    ],
    "`type=` is new": [_of(PLAIN, Version(options={"type": "item"}), in_account=False)],
    "a new field without default, or with a factory only": [
        _of(PLAIN, WITH_X, in_file=False, in_account=False),
        _of(PLAIN, _x(list[int], [1], factory=list), in_file=False, in_account=False),
    ],
    "another name, type, key or table": [
        _of(WITH_X, _x(int, 3, 4, name="y"), in_file=False, in_account=False),
        _of(WITH_X, _x(str, "3", "4"), in_file=False, in_account=False),
        _of(PLAIN, Version(key=tm.Key(partition="{p}", row=("i", "{r}"))), in_file=False, in_account=False),
        _of(PLAIN, Version(table="Things"), in_file=False, in_account=False),
        _of(PLAIN, Version(name="Thing"), in_file=False, in_account=False),
    ],
    "a change of an index or an aggregate": [_of(PLAIN, Version(row=("{s}",)), in_account=False)],
    "another name for an index": [_of(PLAIN, Version(indexes="of"), in_account=False)],
    "a new class in the table of another, with its own keys": [_of(PLAIN, Version(models=_beside))],
    "what is refused above, of a class that holds no entities": [
        _of(PLAIN, WITH_X, empty=True, in_account=False),
        _of(WITH_X, _x(str, "3", "4"), empty=True, in_account=False),
    ],
}  # fmt: skip


class Play:
    """A store that versions of a program write, and what its entities are, by key."""

    def __init__(self, change: Change, place: Any) -> None:
        kinds = [None if one.x is None else one.x[0] for one in change.versions]
        self.change, self.place = change, place
        self.classes = [one.classes(includes_x=not {None, tm.Extra} & {*kinds}) for one in change.versions]
        self.entities: dict[str, dict[str, Any]] = {}
        self.numbers = itertools.count()

    def open(self, at: int) -> tm.Store:
        options = {} if isinstance(self.place, AzurePlace) else {"durability": "relaxed"}
        return tm.open(self.place, models=self.classes[at], **options)

    def new(self, at: int) -> Any:
        version, number = self.change.versions[at], next(self.numbers)
        given = {} if version.x is None else {"x": version.values[number % len(version.values)]}
        one = {"q": f"q{number % 2}", "s": number % 3, **given}
        self.entities[f"r{number:02}"] = one
        return self.classes[at][0]("a", f"r{number:02}", **one)

    def write(self, store: tm.Store, at: int) -> None:
        """Write in each way: two entities stay, two go."""
        item, version = self.classes[at][0], self.change.versions[at]
        store.insert_many([self.new(at), self.new(at)])
        made = [self.new(at), self.new(at)]
        for one in made:
            store.insert(one)
        first, second, third, fourth = list(self.entities)[-4:]
        store.delete(item.key("a", first))
        del self.entities[first]
        store.merge(item.key("a", second), q="q2", s=7)
        self.entities[second] |= {"q": "q2", "s": 7}
        changed = {"q": "q2"} | ({} if version.x is None else {"x": version.values[0]})
        store.replace(store[item.key("a", third)].replace(**changed))
        self.entities[third] |= changed
        store.upsert(item("a", fourth, **self.entities[fourth] | {"s": 9}))
        self.entities[fourth] |= {"s": 9}
        for one in self.classes[at]:
            if one.__name__ in ("Other", "Shelf"):
                store.upsert(one("a"))

    def rewrite(self, store: tm.Store, at: int) -> None:
        """Change what other versions have written."""
        item = self.classes[at][0]
        for name in list(self.entities)[::4]:
            store.merge(item.key("a", name), q="q3")
            self.entities[name]["q"] = "q3"
        first = next(iter(self.entities))
        held: Any = store[item.key("a", first)]
        store.replace(held.replace(s=11))
        self.entities[first]["s"] = 11

    def compare(self, store: tm.Store, *, first: bool = False) -> None:
        """Compare what every second query of the last version gives with the entities, of those for the first value or not."""
        item, version = self.classes[-1][0], self.change.versions[-1]
        rows = {
            name: {"s": one["s"], **({} if version.x is None else {"x": one.get("x", self.change.lacks)})}
            for name, one in self.entities.items()
        }
        assert {one.r: _plain(one) for one in store.query(item).where(item.p == "a")} == _plainly(rows)
        for q in ("q2", "q3"):
            mine = {name: rows[name] for name, one in self.entities.items() if one["q"] == q}
            for query in itertools.islice(self.queries(store, q), first == (q == "q2"), None, 2):
                try:
                    self.compare_one(query, mine)
                except AssertionError as error:
                    error.add_note(str(query.explain()))
                    raise
        by_name = {one.__name__: one for one in self.classes[-1]}
        if total := by_name.get("Outer"):
            for q in ("q0", "q3"):
                sizes = [one["s"] for one in self.entities.values() if one["q"] == q]
                found = store.get(total.key(q))
                assert (found.items, found.most) == (len(sizes), max(sizes)) if sizes else found is None
        sizes = [one["s"] for one in self.entities.values()]
        if total := by_name.get("Inner"):
            assert store[total.key("a")].total == sum(sizes)
        if (shelf := by_name.get("Shelf")) and (found := store.get(shelf.key("a"))):
            assert found.items == len(sizes)
        self.check(store)

    @staticmethod
    def check(store: tm.Store) -> None:
        report = store.check()
        assert report.ok, str(report)

    def compare_one(self, query: Any, mine: Mapping[str, Mapping[str, Any]]) -> None:
        """Compare what a query of some entities gives: they, each field of them, and how many there are by a condition."""
        item, version = self.classes[-1][0], self.change.versions[-1]
        assert {one.r: _plain(one) for one in query} == _plainly(mine)
        assert query.count() == len(mine)
        field = "s" if version.x is None else "x"
        attr = getattr(item, field)
        shown = [(name, repr(_of_enum(value))) for name, value in query.select(item.r, attr)]
        assert sorted(shown) == [(name, repr(_of_enum(one[field]))) for name, one in sorted(mine.items())]
        assert query.sum(item.s) == (sum(one["s"] for one in mine.values()) if mine else None)
        values = {repr(one[field]): _as_declared(version, one[field]) for one in mine.values()}
        for value in list(values.values())[-2:]:
            if not isinstance(value, tm.Extra | list):
                some = query.where(attr.is_null() if value is None else attr == value)
                expected = [one for one in mine.values() if _of_enum(one[field]) == _of_enum(value)]
                assert (some.count(), some.exists()) == (len(expected), True)

    def queries(self, store: tm.Store, q: str) -> Iterator[Any]:
        item, name = self.classes[-1][0], self.change.versions[-1].indexes
        yield store.query(item).where(item.p == "a", item.q == q)
        for include in INCLUDES:
            yield store.query(getattr(item, f"{name}_{include}_here")("a", q))
            yield store.query(getattr(item, f"{name}_{include}_elsewhere")(q))
            yield store.query(getattr(item, f"{name}_{include}_elsewhere")(q)).allow_eventual()

    def run(self, *, taken_over: bool) -> None:
        last = len(self.classes) - 1
        for at in range(last):
            with self.open(at) as store:
                if not self.change.empty:
                    self.write(store, at)
                    self.write(store, at)
        if not taken_over:
            with pytest.raises(tm.SchemaMismatch):
                self.open(last).close()
            with self.open(last - 1) as store:  # (which stays as it was)
                self.write(store, last - 1)
                assert store.check().ok
            return
        if self.change.empty:
            with self.open(last) as newer:
                self.write(newer, last)
                self.compare(newer)
            return
        with self.open(last - 1) as running, self.open(last) as newer:
            self.compare(newer, first=True)
            self.write(newer, last)
            self.rewrite(newer, last)
            self.check(newer)
            if not (isinstance(self.place, AzurePlace) and newer._engine._classes.marks.built):  # type: ignore[attr-defined]
                self.write(running, last - 1)  # (which in an account has not looked at the catalogue yet)
                self.check(newer)
            running._engine.catch_up()
            self.write(running, last - 1)
            if self.change.known:
                self.rewrite(running, last - 1)
            assert not self.change.known or running.check().ok
            newer._engine.catch_up()
            for at in range(last):
                with self.open(at) as restarted:
                    self.write(restarted, at)
                    assert not self.change.known or restarted.check().ok
            self.rewrite(newer, last)
            self.compare(newer)


def _plain(one: Any) -> dict[str, Any]:
    return {name: _of_enum(getattr(one, name)) for name in ("s", "x") if hasattr(one, name)}


def _plainly(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {field: _of_enum(value) for field, value in one.items()} for name, one in rows.items()}


def _as_declared(version: Version, value: Any) -> Any:
    kind = None if version.x is None else version.x[0]
    return kind(value.value) if isinstance(value, Enum) and isinstance(kind, type) else value


def _of_enum(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


CASES = [
    pytest.param(change, id=f"{row[:40]} {number}")
    for row, changes in CHANGES.items()
    for number, change in enumerate(changes, 1)
]


@pytest.fixture(params=["file", "account"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return where a store is, by either engine."""
    return tmp_path / "store.db" if request.param == "file" else AzurePlace(memory=Memory(), still=True)


@pytest.mark.parametrize("change", CASES)
def test_a_change_of_a_class(change: Change, place: Any) -> None:
    taken_over = change.in_account if isinstance(place, AzurePlace) else change.in_file
    Play(change, place).run(taken_over=taken_over)


WIDER = [change for changes in CHANGES.values() for change in changes if not change.known]


@pytest.mark.parametrize("change", WIDER)
def test_an_older_version_reads_nothing_that_it_does_not_know_and_keeps_it(change: Change, place: Any) -> None:
    (old,), (new,) = [version.classes(includes_x=True) for version in change.versions]
    known, unknown = change.versions[0].values[0], change.versions[1].values[1]
    with tm.open(place, models=[old]) as running, tm.open(place, models=[new]) as newer:
        newer.insert_many([new("a", name, "q", x=unknown) for name in ("r", "s", "t", "u")])
        running._engine.catch_up()
        reads: list[Callable[[], Any]] = [
            lambda: running.get(old.key("a", "r")),
            lambda: list(running.query(old).where(old.p == "a")),
            lambda: list(running.query(old.by_some_here("a", "q")).select(old.x)),
        ]
        for read in reads:
            with pytest.raises(tm.SchemaMismatch, match="which this version does not know"):
                read()
        problems = running.check().problems
        assert {(problem.kind, problem.key[1]) for problem in problems} == {("damaged", name) for name in "rstu"}
        running.insert(old("a", "other", "q", x=known))
        running.merge(old.key("a", "r"), q="z")
        running.merge(old.key("a", "s"), x=known)
        running.upsert(old("a", "t", "z", x=known))
        running.delete(old.key("a", "u"))
        newer._engine.catch_up()
        assert newer[new.key("a", "r")] == new("a", "r", "z", x=unknown)
        assert newer[new.key("a", "s")].q == "q"
        assert [entity.r for entity in newer.query(new).where(new.p == "a")] == ["other", "r", "s", "t"]
        assert newer.check().ok


def test_a_class_that_would_take_rows_of_another_is_refused(place: Any) -> None:
    item = entity("Item", "Items", {"p": str, "kind": str, "n": int}, tm.Key(partition="{p}", row=("{kind}", "{n}")))
    _, beside = newer = _beside(item)
    taken = item.key("a", "beside", 1)
    with tm.open(place, models=[item]) as store:
        store.insert_many([item("a", "plain", 1), item("a", "beside", 1)])
    with pytest.raises(tm.SchemaMismatch, match="a row of Item has a key of Beside"):
        tm.open(place, models=newer)
    with tm.open(place, models=[item]) as store:
        store.delete(taken)
    with tm.open(place, models=newer) as store:
        store.insert(beside("a", 1))
        assert store.check().ok
        assert store.query(item).allow_scan().count() == 1


def test_a_new_field_that_entities_have_undeclared_is_refused(place: Any) -> None:
    members = {"p": str, "x": (tm.Extra, tm.field(factory=tm.Extra))}
    item = entity("Item", "Items", members, tm.Key(partition="{p}"))
    newer = entity("Item", "Items", members | {"note": (str | None, tm.field(default=None))}, tm.Key(partition="{p}"))
    with tm.open(place, models=[item]) as store:
        store.insert_many([item("a"), item("b", tm.Extra(note="n"))])
    with pytest.raises(tm.SchemaMismatch, match=r'"note" is new, but \(.b., ..\) has one among its undeclared ones'):
        tm.open(place, models=[newer])
    with tm.open(place, models=[item]) as store:
        store.replace(store[item.key("b")].replace(x=tm.Extra(other="n")))
    with tm.open(place, models=[newer]) as store:
        assert store[newer.key("b")].note is None


def test_each_row_of_the_guide_is_tried() -> None:
    table = GUIDE.read_text().split("| change | what happens |")[1].split("\n\n")[0]
    assert re.findall(r"^\| ([^-].*?) \|", table, flags=re.MULTILINE) == list(CHANGES)
