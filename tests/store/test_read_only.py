"""A store that is only read: with models, or with the classes that its catalogue describes."""

from __future__ import annotations

import gc
import json
import random
import re
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tests.whole.answers import Trial, random_rows
from tests.whole.random_models import random_model, with_maintained, with_undeclared

from ..classes import Color, entity, grouped
from ..stores import sound_store

pytestmark = pytest.mark.file


@attrs.frozen
class Size:
    width: float
    unit: str = "cm"


class Part(tm.Entity, table="Parts"):
    kind: tm.Field[str]
    number: tm.Field[int]
    name: tm.Field[str | None] = tm.field(default=None)
    color: tm.Field[Color] = tm.field(default=Color.RED)
    size: tm.Field[Size | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    weight: tm.Field[float] = tm.field(default=1.0, name="w")

    key = tm.Key[str, int](partition="{kind}", row="{number}")
    by_name = tm.Index[str, float](partition="{name}", row="{weight}")
    by_tag = tm.Index[str](partition="{tags}", where=lambda part: part.weight > 0)


class Kind(tm.Entity, table="Kinds"):
    kind: tm.Field[str]
    parts: tm.Field[int] = tm.count(of=Part)

    key = tm.Key[str](partition="{kind}")
    by_parts = tm.Index[int](partition="{parts}")


Total = grouped("Total", Part, "kind", "Totals", weight=(float | None, tm.sum(Part.weight)))


MODELS = [Part, Kind, Total]


def with_color(**indexes: Any) -> Any:
    members = {"kind": str, "color": (str, tm.field(default=""))}
    return entity("Kind", "Kinds", members, tm.Key[str](partition="{kind}"), **indexes)


def without_index() -> Any:
    return entity("Kind", "Kinds", {"kind": str, "parts": (int, tm.count(of=Part))}, tm.Key[str](partition="{kind}"))


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    place = str(tmp_path / "parts.db")
    with tm.open(place, models=MODELS) as store:
        store.insert_many(
            Part(f"k{n % 3}", n, f"n{n}", Color.BLUE, Size(n), ["a", f"t{n % 2}"], weight=n) for n in range(20)
        )
        store.insert(Kind("k0"))
    yield place


def contents(path: str) -> dict[str, bytes]:
    """Return what stands in the file of a store and in its log."""
    files = {name: Path(path + name) for name in ("", "-wal")}
    return {name: data for name, file in files.items() if file.exists() and (data := file.read_bytes())}


def test_a_store_without_models_has_the_classes_of_its_catalogue(path: str) -> None:
    with sound_store(path, read_only=True) as store:
        assert list(store.classes) == ["Part", "Kind", "Total"]
        stored: Any = store.classes["Part"]
        first = store[stored.key("k1", 1)]
        assert (first.name, first.color, first.size.width, first.tags, first.w) == ("n1", "blue", 1.0, ["a", "t1"], 1.0)
        assert [part.number for part in store.query(stored).where(stored.name == "n7")] == [7]
        assert store.query(stored).where(stored.name == "n7").explain().path == "Part.by_name"
        assert store.query(stored.by_tag("t1")).count() == 10
        assert store[store.classes["Kind"].key("k0")].parts == 7
        assert store.query(store.classes["Total"]).where(store.classes["Total"].kind == "k0").one().weight == 63.0


def test_classes_of_a_catalogue_are_advised_and_open_a_new_store(path: str, tmp_path: Path) -> None:
    with tm.open(path, read_only=True) as store:
        classes = list(store.classes.values())
        assert isinstance(tm.advise(classes), tuple)
        with sound_store(tmp_path / "new.db", models=classes) as other:
            for cls in classes[:2]:
                other.insert_many(store.query(cls).allow_scan())
            assert other[store.classes["Total"].key("k0")].weight == 63.0
            assert other[store.classes["Kind"].key("k0")].parts == 7


@pytest.mark.parametrize("models", [None, MODELS])
@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.insert(store.classes["Kind"](kind="k1")),
        lambda store: store.delete(store.classes["Kind"].key("k0")),
        lambda store: store.merge(store.classes["Part"].key("k0", 0), name="x"),
        lambda store: store.insert_many([store.classes["Kind"](kind="k1")]),
        lambda store: store.build(),
        lambda store: store.repair(),
        lambda store: store.compact(),
    ],
)
def test_what_writes_is_refused(path: str, models: Any, write: Callable[[tm.Store], object]) -> None:
    with (
        tm.open(path, models=models, read_only=True) as store,
        pytest.raises(tm.StoreReadOnly, match="opened with read_only=True"),
    ):
        write(store)


def test_nothing_is_written_beside_a_writer_and_what_it_writes_is_seen(path: str) -> None:
    with tm.open(path, models=MODELS) as writer:
        writer.insert(Part("k9", 1))
        before = contents(path)
        with tm.open(path, read_only=True) as store:
            key = store.classes["Part"].key("k9", 1)
            assert store.exists(key)
            assert store.status() == writer.status()
            store.backup(f"{path}-copy")
            Path(f"{path}-copy").unlink()
        assert contents(path) == before
        with tm.open(path, read_only=True) as store:
            key = store.classes["Part"].key("k9", 1)
            assert store.exists(key)
            writer.delete(Part.key("k9", 1))
            assert not store.exists(key)


def test_the_file_and_the_log_of_a_writer_that_was_killed_stay_as_they_are(path: str, tmp_path: Path) -> None:
    with tm.open(path, models=MODELS) as writer:
        writer.insert(Part("k9", 1))
        written = contents(path)
        killed = tmp_path / "killed"
        killed.mkdir()
        for name, data in written.items():
            (killed / f"parts.db{name}").write_bytes(data)
    left = contents(str(killed / "parts.db"))
    with tm.open(killed / "parts.db", read_only=True) as store:
        assert store.exists(store.classes["Part"].key("k9", 1))
    tm.status(killed / "parts.db")
    assert contents(str(killed / "parts.db")) == left


def test_a_class_that_the_file_lacks_or_knows_otherwise_is_refused_with_every_difference(path: str) -> None:
    Order = entity("Order", "Orders", {"id": int}, tm.Key[int](partition="{id}"))
    for models, name in ([Order], "Order is new"), ([with_color()], "color"):
        before = contents(path)
        with pytest.raises(tm.SchemaMismatch, match=name):
            tm.open(path, models=models, read_only=True)
        assert contents(path) == before


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda path: tm.open(path), tm.InvalidModel, "without them, a store is only read: read_only=True"),
        (lambda path: tm.open(":memory:", read_only=True), ValueError, "name the file of a store"),
        (lambda path: tm.open(f"{path}-none", read_only=True), tm.StoreError, "does not exist"),
    ],
)
def test_what_cannot_be_opened_so_says_why(
    path: str, call: Callable[[str], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call(path)


def test_a_place_that_takes_no_file_is_read_without_one_unless_a_log_must_be_read_with_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import apsw

    from tablemapper.engines.sqlite.driver.connections import DatabaseLocation

    real = DatabaseLocation.reader

    def reader(self: DatabaseLocation, *, immutable: bool = False) -> apsw.Connection:
        if not (immutable or self._immutable):
            raise apsw.CantOpenError("unable to open database file")  # as where nothing can be put beside the file
        return real(self, immutable=immutable)

    monkeypatch.setattr(DatabaseLocation, "reader", reader)
    with tm.open(path, read_only=True) as store:
        assert store.exists(store.classes["Part"].key("k1", 1))
    monkeypatch.undo()
    with tm.open(path, models=MODELS) as writer:
        writer.insert(Part("k9", 1))
        monkeypatch.setattr(DatabaseLocation, "reader", reader)
        with pytest.raises(tm.StoreReadOnly, match="has a log that must be read with it"):
            tm.open(path, read_only=True)
        monkeypatch.undo()


@pytest.mark.usefixtures("little_garbage")
def test_classes_end_with_the_store_that_made_them(path: str) -> None:
    made: list[weakref.ref[Any]] = []
    for _ in range(2):
        with tm.open(path, read_only=True) as store:
            made.append(weakref.ref(store.classes["Kind"]))
            assert list(store.query(store.classes["Kind"]).allow_scan())
    del store
    gc.collect()
    assert [one() for one in made] == [None, None]


async def test_it_is_awaited_as_others_are(path: str) -> None:
    async with tm.open_async(path, read_only=True) as store:
        assert await store.query(store.classes["Part"]).allow_scan().count() == 20


def test_an_index_that_no_version_declares_any_more_is_not_planned_with(path: str) -> None:
    tm.open(path, models=[Part, without_index()]).close()
    with tm.open(path, read_only=True) as store:
        stored: Any = store.classes["Kind"]
        assert not hasattr(stored, "by_parts")
        with pytest.raises(tm.ScanRefused):
            list(store.query(stored).where(stored.parts == 7))


@pytest.mark.parametrize("observed", [False, True])
def test_its_classes_follow_the_catalogue_and_what_has_not_changed_goes_on(path: str, observed: bool) -> None:
    events: list[tm.Event] = []
    with tm.open(path, read_only=True, observe=events.append if observed else None) as store:
        before = dict(store.classes)
        kinds = store.query(before["Kind"]).allow_scan()
        assert kinds.count() == 1
        assert store.classes["Kind"] is before["Kind"]
        tm.open(path, models=[Part, with_color()]).close()
        after: Any = store.classes["Kind"]
        assert (after is before["Kind"], hasattr(before["Kind"], "color"), hasattr(after, "color")) == (
            False,
            False,
            True,
        )
        assert [store.classes[name] is before[name] for name in ("Part", "Total")] == [True, True]
        assert kinds.count() == 1
        assert store.query(after).where(after.kind == "k0").one().color == ""
        assert store.query(before["Total"]).allow_scan().count() == 3
        with pytest.raises(tm.InvalidEntity, match="if it is of store.classes, take it from there again"):
            store.query(before["Kind"])
        assert store.status().generation == tm.status(path).generation
    assert bool(events) is observed


def test_it_follows_a_new_index_and_the_end_of_a_class(path: str) -> None:
    kind = with_color(by_color=tm.Index[str](partition="{color}"))
    with tm.open(path, read_only=True) as store, tm.open(path, models=[Part, kind]):
        found: Any = store.classes["Kind"]
        assert store.query(found).where(found.color == "").explain().path == "Kind.by_color"


@pytest.mark.long
def test_random_stores_without_models_hold_what_they_hold_with_them(tmp_path: Path, full_size: bool) -> None:
    for seed in range(200 if full_size else 5):
        rng = random.Random(seed)
        model = random_model(rng, local=seed % 2 == 1)
        model = with_maintained(rng, model) if seed % 3 else model
        model = with_undeclared(rng, model) if seed % 4 == 0 else model
        rows = [(record.name, row) for record in model.entities for row in random_rows(rng, record, 14)]
        copy = tmp_path / f"{seed}.db"
        with Trial.open(model, rows=rows) as trial:
            trial.store.backup(copy)
            with tm.open(copy, read_only=True) as store:
                assert store.classes.keys() == {record.name for record in model.records}
                assert store.check().ok
                for record in model.records:
                    with_code, without = trial.names[record.name], store.classes[record.name]
                    indexes = [index.name for index in record.indexes]
                    assert [hasattr(without, index) for index in indexes] == [True] * len(indexes)
                    assert content(store, without) == content(trial.store, with_code), f"seed {seed}, {record.name}"


def content(store: tm.Store, cls: Any) -> list[Any]:
    return [json.loads(tm.to_json(entity)) for entity in store.query(cls).allow_scan()]


def test_a_class_of_a_catalogue_whose_maintained_field_only_its_code_knows_is_not_written(tmp_path: Path) -> None:
    Leaf = entity("Leaf", "Leaves", {"tree": str, "number": int}, tm.Key[str, int](partition="{tree}", row="{number}"))
    members = {"tree": (str, tm.field(name="called")), "leaves": (int, tm.count(of=Leaf))}
    Tree = entity("Tree", "Trees", members, tm.Key[str](partition="{tree}"))
    with tm.open(tmp_path / "trees.db", models=[Leaf, Tree]) as store:
        store.insert(Tree("oak"))
        store.insert(Leaf("oak", 1))
    with tm.open(tmp_path / "trees.db", read_only=True) as store:
        tree: Any = store.classes["Tree"]
        assert store[tree.key("oak")].leaves == 1
        with pytest.raises(tm.InvalidModel, match=r"Tree\.leaves.*needs the program's class"):
            tm.open(tmp_path / "new.db", models=list(store.classes.values()))
