"""A row key that ends in a tuple of texts: a hierarchy of any depth, in the order of its levels."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from ..stores import sound_store
from ..touched import Touched

Levels = tuple[str, ...]


class Document(tm.Entity, table="Documents"):
    site: tm.Field[str]
    path: tm.Field[tuple[str, ...]]
    size: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, tuple[str, ...]](partition="{site}", row="{path}")
    by_size = tm.Index[int](partition="{size}", include=("path",))
    by_level = tm.Index[str](partition="{path}")


class Sizes(tm.Aggregate, of=Document, table="Sizes"):
    site: tm.Field[str] = tm.group_by(Document.site)
    total: tm.Field[int] = tm.sum(Document.size)
    first: tm.Field[tuple[str, ...] | None] = tm.min(Document.path)
    last: tm.Field[tuple[str, ...] | None] = tm.max(Document.path)

    key = tm.Key[str](partition="{site}")


class Levelled(tm.Aggregate, of=Document, table="Levelled"):
    level: tm.Field[str] = tm.group_by(Document.path.each())
    documents: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="{level}")


TEXTS = ["", "a", "ab", "a b", "a ", " ", " !", "!", '"', "a/b", "a!", "\x00", "é", "😀", "~", ".~", "b"]
PATHS: list[Levels] = sorted(
    {
        (), *((one,) for one in TEXTS), *product(TEXTS[:9], repeat=2), ("a", "b"), ("a", "b", "c"),
        ("a", "b", "c", "d"), ("a",) * 12,
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def store(counting: Touched) -> Iterator[tm.Store]:
    with sound_store(":memory:", models=[Document, Sizes, Levelled]) as opened:
        opened.insert_many(Document(site, path, len(path)) for site in ("s", "s!") for path in PATHS)
        yield opened


@pytest.fixture
def documents(store: tm.Store) -> tm.Query[Document]:
    return store.query(Document).where(Document.site == "s")


@pytest.mark.needs("backward")
def test_a_hierarchy_is_read_as_it_was_written_in_the_order_of_its_levels(documents: tm.Query[Document]) -> None:
    assert [one.path for one in documents] == PATHS
    ordered = documents.order_by(Document.path.desc())
    assert ordered.explain().sort == ()
    assert [one.path for one in ordered] == PATHS[::-1]
    assert [path for (path,) in documents.select(Document.path)] == PATHS


@pytest.mark.file
def test_the_key_is_its_only_place(store: tm.Store) -> None:
    assert store[Document.key("s", ("a", "b"))].key[1:] == ("s", "a !b !")
    assert "path" not in store._engine.file.get("SELECT sql FROM sqlite_schema WHERE name = 'Documents'")[0]  # type: ignore[attr-defined]


@pytest.mark.file
@pytest.mark.parametrize(
    "prefix", [(), ("a",), ("a", "b"), ("",), ("a", ""), (" ",), ("a b",), ("none",), ("a/b",)], ids=str
)
def test_what_begins_with_some_levels_is_one_range_of_keys(
    documents: tm.Query[Document], counting: Touched, prefix: Levels
) -> None:
    query = documents.where(Document.path.startswith(prefix))
    below = [path for path in PATHS if path[: len(prefix)] == prefix]
    assert sum(counting(lambda: list(query)).values()) == len(below)
    assert [one.path for one in query] == below
    assert query.explain().filter == ()


def test_conditions_find_what_python_finds(store: tm.Store, documents: tm.Query[Document]) -> None:
    rng = random.Random(5)
    conditions: list[tuple[Callable[[Any, Levels], Any], Callable[[Levels, Levels], bool]]] = [
        (lambda path, one: path == one, lambda path, one: path == one),
        (lambda path, one: path != one, lambda path, one: path != one),
        (lambda path, one: path < one, lambda path, one: path < one),
        (lambda path, one: path <= one, lambda path, one: path <= one),
        (lambda path, one: path > one, lambda path, one: path > one),
        (lambda path, one: path >= one, lambda path, one: path >= one),
        (lambda path, one: path.startswith(one), lambda path, one: path[: len(one)] == one),
        (lambda path, one: path.is_in([one, ("b",), one]), lambda path, one: path in (one, ("b",))),
        (lambda path, one: ~path.startswith(one), lambda path, one: path[: len(one)] != one),
        (lambda path, one: path.between(one, ("b",)), lambda path, one: one <= path <= ("b",)),
    ]
    for one in [*rng.sample(PATHS, 20), ("a", "zz"), ("a" * 600,), ("\U0010ffff",)]:
        for make, holds in conditions:
            wanted = [path for path in PATHS if holds(path, one)]
            condition = make(Document.path, one)
            assert [each.path for each in documents.where(condition)] == wanted, (condition, one)
            assert documents.where(condition).count() == len(wanted)
        condition = Document.path.startswith(one) | (Document.path > ("b",))
        assert [each.path for each in documents.where(condition)] == [
            path for path in PATHS if path[: len(one)] == one or path > ("b",)
        ]


@pytest.mark.needs("sorts")
def test_an_index_gives_other_orders_and_elements(store: tm.Store, documents: tm.Query[Document]) -> None:
    flat = store.query(Document).where(Document.size == 1, Document.site == "s")
    assert [one.path for one in flat.order_by(Document.path)] == [path for path in PATHS if len(path) == 1]
    assert list(store.query(Document).where(Document.size == 1).select(Document.path).limit(1))
    wanted = [path for path in PATHS if "a" in path]
    assert sorted(one.path for one in documents.where(Document.path.contains("a"))) == wanted
    named = store.query(Document.by_level("a")).where(Document.site == "s")
    assert sorted(one.path for one in named) == wanted
    assert [one.path for one in named.order_by(Document.path.desc())] == wanted[::-1]
    every = store.query(Document.by_level()).allow_scan().where(Document.site == "s").order_by(Document.path)
    assert [one.path for one in every] == [path for path in PATHS if path]
    assert [one.path for one in named.where(Document.path == ("a", "b"))] == [("a", "b")]
    assert [one.path for one in named.where(Document.path.is_in([("a", "b"), ("b",)]))] == [("a", "b")]


def test_totals_and_groups_are_of_hierarchies_too(store: tm.Store, documents: tm.Query[Document]) -> None:
    totals = store[Sizes.key("s")]
    assert (totals.first, totals.last) == (PATHS[0], PATHS[-1])
    assert totals.total == sum(map(len, PATHS))
    below = documents.where(Document.path.startswith(("a",)))
    assert below.max(Document.path) == max(path for path in PATHS if path[:1] == ("a",))
    assert below.sum(Document.size) == sum(len(path) for path in PATHS if path[:1] == ("a",))
    assert store[Levelled.key("a")].documents == 2 * sum("a" in path for path in PATHS)


def test_pages_and_parts_go_along_the_levels(documents: tm.Query[Document]) -> None:
    assert [one.path for page in documents.order_by(Document.path).pages(7) for one in page.items] == PATHS
    assert [one.path for part in documents.split(4) for one in part] == PATHS


def test_entities_are_written_by_their_levels(tmp_path: Path) -> None:
    with sound_store(tmp_path / "t.db", models=[Document, Sizes, Levelled]) as store:
        document = Document("s", ("a", "b"), 3)
        store.insert(document)
        with pytest.raises(tm.EntityExists):
            store.insert(Document("s", ("a", "b")))
        store.insert(Document("s", ("a", "b", "")))
        assert store.merge(Document.key("s", ("a", "b")), Document.size.add(1), returning=True).size == 4
        store.move(store[Document.key("s", ("a", "b"))], Document.key("s", ("c",)))
        moved = store[Document.key("s", ("c",))]
        assert (moved.path, store.get(Document.key("s", ("a", "b")))) == (("c",), None)
        assert store.query(Document).where(Document.site == "s", Document.path.startswith(("a",))).update(size=9) == 1
        store.delete(Document.key("s", ("a", "b", "")))
        assert [one.path for one in store.partition(Document.site == "s")] == [("c",)]
        assert store[Sizes.key("s")].last == ("c",)
        assert tm.to_dict(moved) == {"site": "s", "path": ["c"], "size": 4}
        assert tm.from_json(Document, tm.to_json(moved)) == moved
        assert store.query(Document).where(Document.site == "s").columns()["path"] == [("c",)]
    with tm.open(tmp_path / "t.db", models=[Document, Sizes, Levelled]) as store:
        assert store[Document.key("s", ("c",))].size == 4


def test_a_version_that_knows_less_maintains_what_the_catalogue_has(tmp_path: Path) -> None:
    with tm.open(tmp_path / "t.db", models=[Document, Sizes, Levelled]):
        pass
    members = {"site": str, "path": tuple[str, ...], "size": (int, tm.field(default=0))}
    Old = entity("Old", "Documents", members, tm.Key[str, tuple[str, ...]](partition="{site}", row="{path}"))
    Old.__name__ = "Document"
    with tm.open(tmp_path / "t.db", models=[Old]) as store:
        store.insert(Old("s", ("a", "b"), 3))
    with sound_store(tmp_path / "t.db", models=[Document, Sizes, Levelled]) as store:
        assert store[Sizes.key("s")].first == ("a", "b")
        assert [one.path for one in store.query(Document.by_level("b"))] == [("a", "b")]


@pytest.mark.file
def test_a_script_of_a_migration_is_written_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def document(**fields: Any) -> Any:
        fields = {"site": str, "path": tuple[str, ...], **fields}
        key = tm.Key[str, tuple[str, ...]](partition="{site}", row=("at", "{path}"))
        return entity("Kept", "Kept", fields, key, levels=tm.Index[str](partition="{path}"))

    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "written_hierarchy").mkdir()
    (tmp_path / "written_hierarchy" / "__init__.py").touch()
    old, new = document(size=int), document(bytes=int)
    tm.Migrations("written_hierarchy").write([old], "initial")
    with tm.open(tmp_path / "t.db", models=[old]) as store:
        store.insert_many([old("s", ("a", "b"), 3), old("s", (), 4)])
    text = tm.Migrations("written_hierarchy").write([new], "bytes").read_text(encoding="utf-8")
    assert "path: tm.Field[tuple[str, ...]]" in text
    assert "key = tm.Key[str, tuple[str, ...]](" in text
    assert "levels = tm.Index[str](" in text
    tm.migrate(tmp_path / "t.db", "written_hierarchy", contract=True)
    with sound_store(tmp_path / "t.db", models=[new]) as store:
        assert [(one.path, one.bytes) for one in store.query(new).where(new.site == "s")] == [((), 4), (("a", "b"), 3)]


def test_other_types_stand_in_the_table_beside_it() -> None:
    Site = entity("Site", "Documents", {"site": str}, tm.Key[str](partition="{site}", row="site"))
    key = tm.Key[str, tuple[str, ...]](partition="{site}", row=("page", "{path}"))
    Page = entity("Page", "Documents", {"site": str, "path": tuple[str, ...]}, key)
    with tm.open(":memory:", models=[Site, Page]) as store:
        store.insert(Site("s"))
        store.insert_many([Page("s", ()), Page("s", ("site",)), Page("s", ("a", "b"))])
        assert [getattr(one, "path", None) for one in store.partition(Page.site == "s")] == [
            (),
            ("a", "b"),
            ("site",),
            None,
        ]
        below = store.query(Page).where(Page.site == "s", Page.path.startswith(("a",)))
        assert [one.path for one in below] == [("a", "b")]
        assert store.query(Page).where(Page.site == "s", Page.path > ()).count() == 2


# ---------------------------------------------------------------------------------------------- refusals


def _key(partition: Any, row: Any, *, kind: Any = tuple[str, ...]) -> Any:
    key = tm.Key[Any](partition=partition, row=row)
    return lambda: entity("Wrong", "Wrong", {"site": str, "path": kind}, key)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (_key("{path}", "{site}"), r"key partition=: \{path\} is json\[tuple\[str, \.\.\.\]\], which only the row of a key can end in"),
        (_key("{site}", ("{path}", "{site}")), r"key row=: \{path\} is a tuple of any length, and nothing can follow it in a key"),
        (_key("{site}", "{path}-{site}"), "nothing can follow it in a key: put it last"),
        (_key("{site}", "{path}x"), "nothing can follow it in a key: put it last"),
        (_key("{site}", ("{path}", "")), "nothing can follow it in a key: put it last"),
        (_key("{site}", "{path:fold}"), r"\{path:fold\}: a tuple of texts has no specs"),
        (_key("{site}", "{path:shard(4)}"), r"a tuple of texts has no specs"),
        (_key("{site}", "{path}", kind=tuple[str, ...] | None), r"\{path\} is optional"),
        (_key("{site}", "{path}", kind=tuple[int, ...]), "and cannot be part of a key"),
        (_key("{site}", "{path}", kind=tuple[str, str]), "and cannot be part of a key"),
        (_key("{site}", "{path}", kind=list[str]), "and cannot be part of a key"),
    ],
)  # fmt: skip
def test_a_tuple_elsewhere_than_at_the_end_of_a_row_is_refused(make: Callable[[], Any], fault: str) -> None:
    with pytest.raises(tm.InvalidModel, match=fault):
        make()


def test_what_is_no_tuple_of_texts_is_refused(store: tm.Store, documents: tm.Query[Document]) -> None:
    for wrong in ("a", ["a"], ("a", 1), ("\ud800",), None):
        with pytest.raises(tm.InvalidEntity):
            Document.key("s", wrong)  # type: ignore[arg-type]
    for wrong in ("a", ("a", 1), ["a"]):
        with pytest.raises(tm.InvalidQuery):
            Document.path.startswith(wrong)  # type: ignore[arg-type]
        with pytest.raises(tm.InvalidQuery):
            _ = Document.path > wrong  # type: ignore[operator]
    with pytest.raises(tm.InvalidQuery, match="must be text, or a tuple of texts"):
        Document.site.startswith(("a",))  # type: ignore[arg-type]
    with pytest.raises(tm.InvalidEntity, match="UTF-16 units, a key may have 512"):
        store.insert(Document("s", ("a" * 300, "b" * 300)))
