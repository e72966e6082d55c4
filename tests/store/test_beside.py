"""An index or an aggregate that is declared in another way is built beside the old one, which goes on for old versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online import apply_schema

from ..stores import repaired
from .test_builds import names, part

pytestmark = pytest.mark.file

Open = Callable[..., tm.Store]


@pytest.fixture(params=["in batches", "at once"])
def open_store(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    if request.param == "in batches":
        monkeypatch.setattr(apply_schema, "_AT_ONCE", -1)
    with ExitStack() as stack:
        yield lambda *models, build=True: stack.enter_context(
            tm.open(tmp_path / "s.db", models=models, durability="relaxed", build=build)
        )


def fill(store: tm.Store, cls: Any) -> None:
    store.insert_many(cls("a", number, f"N{number % 7}") for number in range(30))


def write(store: tm.Store, cls: Any, shelf: str) -> None:
    store.insert(cls(shelf, 1, "N1"))
    store.insert_many([cls(shelf, number, f"N{number}") for number in range(2, 6)])
    store.insert_many([cls(shelf, number, "N1") for number in range(6, 9)], atomic=True)
    store.merge(cls.key(shelf, 2), name="N1")
    store.replace(store[cls.key(shelf, 3)].replace(name="N9"))
    store.delete(cls.key(shelf, 4))
    store.upsert(cls(shelf, 6, "N0"))


def found(store: tm.Store, cls: Any, name: str) -> list[Any]:
    return sorted((one.shelf, one.number) for one in store.query(cls.by_name(name)))


BY_NAME = tm.Index[str](partition="{name}")
OLD = part(by_name=BY_NAME)
CHANGES = {
    "its template": tm.Index[str, str](partition="{name}", row="{shelf}"),
    "more included": tm.Index[str](partition="{name}", include=("name",)),
    "all included": tm.Index[str](partition="{name}", include="all"),
    "a condition": tm.Index[str](partition="{name}", where=lambda one: one.number > 3),
    "folded": tm.Index[str](partition="{name:fold}"),
    "sharded": tm.Index[str](partition=("{number:shard(4)}", "{name}")),
    "its table": tm.Index[str](partition="{name}", table="Named"),
    "unique": tm.Index[str, str, int](partition="{name}", row=("{shelf}", "{number}"), unique=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_index_that_changed_is_built_beside_the_old_one(change: str, open_store: Open) -> None:
    new = part(by_name=CHANGES[change])
    running = open_store(OLD)
    fill(running, OLD)
    newer = open_store(new, build=False)
    labels = {one.where: (one.state, one.declared) for one in newer.status().objects}
    assert labels["Part.by_name#1"] == ("ready", False)
    assert labels["Part.by_name"][1]
    write(running, OLD, "b")
    write(newer, new, "c")
    assert found(running, OLD, "N1") == found(open_store(OLD), OLD, "N1")
    assert len(found(running, OLD, "N1")) == 5 + 2 * 4
    newer.build(rest=0)
    write(running, OLD, "d")
    write(newer, new, "e")
    for turn in range(3):  # one after the other, and none stops the other one
        old, again = open_store(OLD), open_store(new)
        old.insert(OLD("f", turn, "N1"))
        again.insert(new("g", turn, "N1"))
        assert old.status().generation == newer.status().generation
    expected = sorted((one.shelf, one.number) for one in newer.query(new).where(new.name == "N1").allow_scan())
    assert len(expected) == 5 + 4 * 4 + 6
    assert found(running, OLD, "N1") == expected
    if change not in ("a condition", "sharded"):
        assert sorted((one.shelf, one.number) for one in newer.query(new.by_name("N1" if change != "folded" else "n1"))) == expected  # fmt: skip
    for store in (running, newer):
        assert store.check().problems == ()
        assert repaired(store).repaired == ()
    assert newer.status()["Part.by_name"].state == "ready"
    tables = {row[0] for row in newer._engine.file.read("SELECT name FROM sqlite_schema")}  # type: ignore[attr-defined]
    assert {"PartsByName", "Named" if change == "its table" else "PartsByName_2"} <= tables


def test_the_new_definition_is_not_ready_until_it_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_schema, "_AT_ONCE", -1)
    new = part(by_name=tm.Index[str, int](partition="{name}", row="{number}"))
    with tm.open(tmp_path / "s.db", models=[OLD]) as old:
        fill(old, OLD)
        with tm.open(tmp_path / "s.db", models=[new], build=False) as store:
            with pytest.raises(tm.NotReady, match="Part.by_name: it is being built"):
                list(store.query(new.by_name("N1")))
            with pytest.raises(tm.ScanRefused, match=r"Part.by_name: it is being built \(0 %\)"):
                list(store.query(new).where(new.name == "N1"))
            assert len(found(old, OLD, "N1")) == 5
            assert len(list(old.query(OLD).where(OLD.name == "N1"))) == 5


def test_a_third_definition_and_the_first_again(open_store: Open) -> None:
    second, third = (part(by_name=CHANGES[name]) for name in ("its template", "folded"))
    first = open_store(OLD)
    fill(first, OLD)
    stores = [(first, OLD), (open_store(second), second), (open_store(third), third)]
    again = part(by_name=BY_NAME, size=tm.Index[int](partition="{number}"))
    stores.append((open_store(again), again))
    for number, (store, cls) in enumerate(stores):
        write(store, cls, f"x{number}")
    for store, cls in stores:
        assert len(list(store.query(cls.by_name("n1" if cls is third else "N1")))) == 5 + 4 * 4
        assert store.check().ok
    status = stores[-1][0].status()
    assert [one.where for one in status.objects if one.where.startswith("Part.by_name")] == [
        "Part.by_name#1", "Part.by_name#2", "Part.by_name"
    ]  # fmt: skip
    assert [status[f"Part.by_name{which}"].declared for which in ("#1", "#2", "")] == [True, False, False]


def test_an_index_under_another_name_is_the_same_one(open_store: Open) -> None:
    renamed = part(of_name=tm.Index[str](partition="{name}"))
    old = open_store(OLD)
    fill(old, OLD)
    new = open_store(renamed)
    write(old, OLD, "b")
    write(new, renamed, "c")
    assert [one.where for one in new.status().objects] == ["Part", "Part.by_name"]
    assert len(found(old, OLD, "N1")) == len(list(new.query(renamed.of_name("N1")))) == 5 + 2 * 4
    assert len(list(new.query(renamed).where(renamed.name == "N1"))) == 5 + 2 * 4
    assert new.check().ok
    assert "PartsOfName" not in {row[0] for row in new._engine.file.read("SELECT name FROM sqlite_schema")}


class v1:
    class Part(tm.Entity, table="Parts"):
        shelf: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        price: tm.Field[float] = tm.field(default=1.0)

        key = tm.Key[str, int](partition="{shelf}", row="{number}")
        by_name = tm.Index[str](partition="{name}", include="all")


class v2:
    class Part(tm.Entity, table="Parts"):
        shelf: tm.Field[str]
        size: tm.Field[int] = tm.field(default=7, kw_only=True)
        number: tm.Field[int]
        name: tm.Field[str]
        price: tm.Field[float] = tm.field(default=1.0)

        key = tm.Key[str, int](partition="{shelf}", row="{number}")
        by_name = tm.Index[str](partition="{name}", include="all")


def test_an_index_that_holds_all_fields_is_not_built_anew_for_one_more(open_store: Open) -> None:
    old = open_store(v1.Part)
    fill(old, v1.Part)
    new = open_store(v2.Part, build=False)
    assert [one.where for one in new.status().objects] == ["Part", "Part.by_name"]
    new.insert(v2.Part("z", 1, "N1", 2.5, size=8))
    old.insert(v1.Part("z", 2, "N1", 3.5))
    old.merge(v1.Part.key("a", 1), price=4.5)
    new.merge(v2.Part.key("a", 8), price=5.5, size=9)
    query = new.query(v2.Part).where(v2.Part.name == "N1").select(v2.Part.number, v2.Part.size, v2.Part.price)
    assert sorted(query) == [
        (1, 7, 4.5), (1, 8, 2.5), (2, 7, 3.5), (8, 9, 5.5), (15, 7, 1.0), (22, 7, 1.0), (29, 7, 1.0),
    ]  # fmt: skip
    assert not query.explain().covering
    assert new.query(v2.Part).where(v2.Part.name == "N1").select(v2.Part.price).explain().covering
    assert old.check().ok
    assert new.check().ok


def totals(of: Any, *, bigger: int | None = None, by: bool = False, **measures: Any) -> Any:
    body: dict[str, Any] = {"by_parts": tm.Index[int](partition="{parts}", unique=False)} if by else {}
    if bigger is not None:
        body["where"] = lambda one: one.number > bigger
    return names(of, measures, **body)


PLAIN = part()
AGGREGATES: dict[str, Callable[[Any], Any]] = {
    "a measure": lambda of: totals(of, most=tm.max(of.number)),
    "a condition": lambda of: totals(of, bigger=3),
    "an index besides": lambda of: totals(of, most=tm.max_ever(of.number), by=True),
}


@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
@pytest.mark.parametrize("change", AGGREGATES)
def test_an_aggregate_that_changed_is_built_beside_the_old_one(change: str, open_store: Open, *, indexed: bool) -> None:
    first = totals(PLAIN, least=tm.min(PLAIN.number), by=indexed)
    other = part(by_shelf=tm.Index[str](partition="{shelf}"))
    second = AGGREGATES[change](other)
    old = open_store(PLAIN, first)
    fill(old, PLAIN)
    new = open_store(other, second, build=False)
    write(old, PLAIN, "b")
    write(new, other, "c")
    assert old[first.key("N1")].parts == 5 + 2 * 4
    new.build(rest=0)
    write(old, PLAIN, "d")
    write(new, other, "e")
    alone = open_store(PLAIN)
    write(alone, PLAIN, "f")
    for _ in range(2):
        old, new = open_store(PLAIN, first), open_store(other, second)
    parts = [one for one in new.query(other).allow_scan() if one.name == "N1"]
    assert len(parts) == 5 + 5 * 4
    group = old[first.key("N1")]
    assert (group.parts, group.least) == (len(parts), 1)
    newer = new[second.key("N1")]
    if change == "a condition":
        assert newer.parts == sum(one.number > 3 for one in parts)
    else:
        assert (newer.parts, newer.most) == (len(parts), 29)
    assert old.query(PLAIN).where(PLAIN.name == "N1").allow_scan().count() == len(parts)
    assert [one.parts for one in old.query(first)] == [one.parts for one in open_store(PLAIN, first).query(first)]
    assert len(list(old.query(first))) == 8
    if indexed:
        assert "N1" in [one.name for one in old.query(first.by_parts(len(parts)))]
    if change == "an index besides":
        assert "N1" in [one.name for one in new.query(second.by_parts(len(parts)))]
    for store in (old, new, alone):
        assert store.check().problems == ()
        assert repaired(store).repaired == ()
    status = new.status()
    assert (status["Names"].state, status["Names"].declared) == ("ready", True)
    assert (status["Names#1"].state, status["Names#1"].declared) == ("ready", False)


def test_an_index_on_an_aggregate_that_changed_is_built_beside_the_old_one(open_store: Open) -> None:
    first = totals(PLAIN, by=True)
    second = names(PLAIN, by_parts=tm.Index[int, str](partition="{parts}", row="{name}"))
    old = open_store(PLAIN, first)
    fill(old, PLAIN)
    new, alone = open_store(PLAIN, second), open_store(PLAIN)
    for shelf, store in zip("bcd", (old, new, alone), strict=True):
        write(store, PLAIN, shelf)
    assert [one.name for one in old.query(first.by_parts(17))] == ["N1"]
    assert [one.name for one in new.query(second.by_parts(17))] == ["N1"]
    for store in (old, new, alone):
        assert store.check().problems == ()


def test_versions_that_maintain_other_things_do_not_end_each_other_while_their_class_is_empty(open_store: Open) -> None:
    first, other = totals(OLD, least=tm.min(OLD.number)), part(by_name=CHANGES["its template"])
    second = totals(other, most=tm.max(other.number))
    for _ in range(2):
        old, new = open_store(OLD, first), open_store(other, second)
    fill(old, OLD)
    write(new, other, "b")
    for a, b in [(old, new), (open_store(OLD, first), open_store(other, second))]:
        assert (a[first.key("N1")].least, b[second.key("N1")].most) == (1, 29)
        assert found(a, OLD, "N1") == found(b, other, "N1")
        assert a.check().problems == b.check().problems == ()


def test_an_aggregate_comes_back_after_its_class_was_declared_again_while_it_was_empty(open_store: Open) -> None:
    open_store(PLAIN, totals(PLAIN, least=tm.min(PLAIN.number))).close()
    other = part(key=tm.Key[int, str](partition="{number}", row="{shelf}"))
    store = open_store(totals(other, most=tm.max(other.number)), other)
    fill(store, other)
    again = totals(other, least=tm.min(other.number))
    assert open_store(other, again)[again.key("N1")].least == 1
