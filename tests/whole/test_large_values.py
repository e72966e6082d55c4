"""Large values in each verb, in files and in an account: by the version that declares them, and by one that does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.entity_json import stored_value
from tablemapper.engines.azure.tables.reserved_names import OP, OPS
from tablemapper.engines.azure.tables.service import edm_of, properties
from tablemapper.limits import MAX_VALUE, entity_size
from tablemapper.schema.model import model_of

from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace

UNITS = MAX_VALUE // 2


@attrs.define
class Page:
    title: str
    lines: list[str] = attrs.field(factory=list)


class Doc(tm.Entity, table="Docs"):
    shelf: tm.Field[str]
    number: tm.Field[int]
    body: tm.Field[str] = tm.field(default="", large=True)
    photo: tm.Field[bytes | None] = tm.field(default=None, large=True)
    page: tm.Field[Page | None] = tm.field(default=None, large=True)
    words: tm.Field[list[str]] = tm.field(factory=list, large=True)
    note: tm.Field[str] = tm.field(default="")
    count: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, int](partition="{shelf}", row="{number}")
    by_note = tm.Index[str](partition="{note}", include=("count",))


class Plain(tm.Entity):
    """The class before it had values that are large now, but for one."""

    shelf: tm.Field[str]
    number: tm.Field[int]
    words: tm.Field[list[str]] = tm.field(factory=list)
    note: tm.Field[str] = tm.field(default="")
    count: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, int](partition="{shelf}", row="{number}")
    by_note = tm.Index[str](partition="{note}", include=("count",))


class older:
    class Doc(Plain, table="Docs"):
        """The class before its values were large."""

        body: tm.Field[str] = tm.field(default="")
        photo: tm.Field[bytes | None] = tm.field(default=None)
        page: tm.Field[Page | None] = tm.field(default=None)


class oldest:
    class Doc(Plain, table="Docs"):
        pass


TEXTS = [
    "",
    "short",
    *[
        (unit * count)[:count]
        for unit in ("x", "é", "x😀", "😀")
        for count in (UNITS // 2, UNITS - 1, UNITS, UNITS + 1)
    ],
    "x" * (2 * UNITS),
    "€" * (2 * UNITS + 1),
    "😀" * 130_000,
    "y" * 400_000,
]
"""Around each border, in characters of one, two, three and four bytes."""
BYTES = [None, b"", bytes(MAX_VALUE - 1), bytes(MAX_VALUE), bytes(range(256)) * 257, b"z" * 500_000]


@pytest.fixture(params=["file", "account"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return tmp_path / "store.db" if request.param == "file" else AzurePlace(memory=Memory())


@pytest.fixture
def store(place: Any) -> Iterator[tm.Store]:
    with tm.open(place, models=[Doc]) as store:
        yield store
        check(store)


def check(store: tm.Store) -> None:
    report = store.check()
    assert report.ok, str(report)
    assert report.foreign == ()


def docs() -> list[Doc]:
    """Return entities with a text around each border, some with bytes, nested values and lists."""
    plain = [Doc("a", number, text, note="ab"[number % 2]) for number, text in enumerate(TEXTS)]
    return [
        *plain,
        *[Doc("b", number, "é", photo) for number, photo in enumerate(BYTES)],
        Doc("c", 1, "é", b"", Page("long", ["line 😀 of a page"] * 5_000), ["word"] * 20_000),
    ]


def test_entities_come_back_whole_however_they_are_read(store: tm.Store) -> None:
    written = docs()
    assert store.insert_many(written) == len(written)
    assert [store[doc.key] for doc in written] == written
    assert list(store.get_many([doc.key for doc in written])) == written
    assert list(store.partition(Doc.shelf == "a")) == written[: len(TEXTS)]
    assert list(store.query(Doc).where(Doc.shelf == "b")) == written[len(TEXTS) : -1]
    assert list(store.query(Doc.by_note("b"))) == [doc for doc in written if doc.note == "b"]
    assert list(store.query(Doc).where(Doc.shelf == "a").select(Doc.number, Doc.body)) == list(enumerate(TEXTS))
    assert list(store.query(Doc).where(Doc.shelf == "b").select(Doc.photo, Doc.number)) == [
        (photo, number) for number, photo in enumerate(BYTES)
    ]
    assert list(store.query(Doc).where(Doc.shelf == "c").select(Doc.words, Doc.page)) == [
        (written[-1].words, written[-1].page)
    ]
    for text in TEXTS:
        assert [doc.body for doc in store.query(Doc).where(Doc.shelf == "a", Doc.body == text)] == [text]
    assert store.query(Doc).where(Doc.shelf == "a", Doc.body.startswith("y" * 100)).count() == 1
    rows = list(store.query(Doc).where(Doc.shelf == "a").page(3).items)
    assert rows == written[:3]


def test_values_grow_and_shrink_by_each_verb(store: tm.Store) -> None:
    key = Doc.key("a", 1)
    store.insert(Doc("a", 1))
    for before, text in zip([*TEXTS[1:], ""], TEXTS, strict=True):
        for step in range(7):
            store.replace(Doc("a", 1, before, b"z" * 100_000), if_match="*")
            doc = store[key]
            doc.body = text
            match step:
                case 0:
                    store.replace(doc)
                case 1:
                    store.merge(key, body=text)
                case 2:
                    store.upsert(Doc("a", 1, text, b"z" * 100_000))
                case 3:
                    store.upsert(Doc("a", 1, text), merge=True)
                case 4:
                    store.query(Doc).where(Doc.shelf == "a").update(Doc.body.set(text))
                case 5:
                    store.query(Doc).where(Doc.shelf == "a").update(lambda old, new=text: old.replace(body=new))
                case _:
                    with store.transaction() as tx:
                        tx.merge(key, body=text)
                        tx.insert(Doc("a", 2, text))
                    assert store[Doc.key("a", 2)].body == text
                    store.delete(Doc.key("a", 2))
            stored = store[key]
            assert (stored.body, stored.photo) == (text, b"z" * 100_000), (step, len(text))
    check(store)


def test_statistics_count_the_sizes_that_entities_have(store: tm.Store) -> None:
    store.insert_many(docs())
    sizes = list(map(tm.size, docs()))
    found = store.statistics(Doc).sizes
    assert (found.min, found.max, found.mean) == (min(sizes), max(sizes), sum(sizes) / len(sizes))


def test_sizes_are_those_of_what_an_account_holds() -> None:
    memory = Memory()
    with tm.open(AzurePlace(memory=memory), models=[Doc]) as store:
        store.insert_many(docs())
        rows = {(row["PartitionKey"], row["RowKey"]): row for row in memory.entities("Docs")}
        for doc in docs():
            row = rows[tm.info(store[doc.key]).partition_key, tm.info(store[doc.key]).row_key]
            names = [name for name in properties(row) if name not in (OP, OPS)]
            assert tm.size(doc) == entity_size(
                row["PartitionKey"],
                row["RowKey"],
                [(name, edm_of(row, name), stored_value(row, name)) for name in names],
            )


def test_two_versions_of_a_program_take_turns_and_lose_nothing(place: Any) -> None:
    text, photo, page = "x😀" * 50_000, b"z" * 150_000, Page("long", ["line"] * 20_000)
    with tm.open(place, models=[Doc]) as new, tm.open(place, models=[older.Doc]) as old:
        new.insert(Doc("a", 1, text, photo, page, ["w"] * 30_000))
        doc = old[older.Doc.key("a", 1)]
        assert (doc.body, doc.photo, doc.page, doc.words) == (text, photo, page, ["w"] * 30_000)
        doc.note = "old"
        old.replace(doc)
        old.merge(doc.key, note="older")
        old.merge(doc.key, count=4)
        old.query(older.Doc).where(older.Doc.shelf == "a").update(older.Doc.count.add(1))
        assert list(old.query(older.Doc).where(older.Doc.shelf == "a").select(older.Doc.body)) == [(text,)]
        assert list(old.query(older.Doc).where(older.Doc.shelf == "a").select(older.Doc.photo, older.Doc.note)) == [
            (photo, "older")
        ]
        assert new[Doc.key("a", 1)] == Doc("a", 1, text, photo, page, ["w"] * 30_000, "older", 5)
        with pytest.raises(tm.EntityTooLarge, match=r"declare it with tm.field\(large=True\)"):
            doc = old[older.Doc.key("a", 1)]
            doc.body += "y"
            old.replace(doc)
        with pytest.raises(tm.EntityTooLarge, match="100,001 bytes, .*declare it with"):
            old.merge(doc.key, photo=b"n" * 100_001)
        check(old)
        old.merge(doc.key, body="short")
        assert new[Doc.key("a", 1)].body == old[doc.key].body == "short"
        old.replace(old[doc.key].replace(photo=None, page=None))
        assert new[Doc.key("a", 1)] == Doc("a", 1, "short", None, None, ["w"] * 30_000, "older", 5)
        check(old)
        check(new)


def test_a_version_without_the_fields_keeps_what_they_hold(place: Any) -> None:
    text = "é" * 100_000
    with tm.open(place, models=[oldest.Doc]) as old:
        old.insert(oldest.Doc("a", 0))
    with tm.open(place, models=[oldest.Doc]) as old, tm.open(place, models=[Doc]) as new:
        new.insert(Doc("a", 1, text, b"z" * 150_000))
        old.merge(oldest.Doc.key("a", 1), note="old")
        old.replace(old[oldest.Doc.key("a", 1)].replace(count=3))
        old.query(oldest.Doc).where(oldest.Doc.shelf == "a").update(oldest.Doc.count.add(1))
        assert new[Doc.key("a", 1)] == Doc("a", 1, text, b"z" * 150_000, note="old", count=4)
        check(new)
        check(old)


class Wild(tm.Entity, table="Docs"):
    shelf: tm.Field[str]
    number: tm.Field[int]
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, int](partition="{shelf}", row="{number}")


def test_undeclared_properties_keep_large_values_and_take_no_new_ones() -> None:
    memory = Memory()
    with tm.open(AzurePlace(memory=memory), models=[Doc]) as store:
        store.insert(Doc("a", 1, "é" * 100_000, b"z" * 100_000))
    memory.tables.pop("TableMapper")
    with tm.open(AzurePlace(memory=memory), models=[Wild], adopt=True) as store:
        wild = store[Wild.key("a", 1)]
        assert (wild.more["body"], wild.more["photo"]) == ("é" * 100_000, b"z" * 100_000)
        wild.more["count"] = 7
        store.replace(wild)
        assert store[wild.key].more["body"] == "é" * 100_000
        wild = store[wild.key]
        wild.more["body"] += "x"
        with pytest.raises(tm.EntityTooLarge, match="body: a text of 100,001 UTF-16 units"):
            store.replace(wild)
        wild.more["body"] = "short"
        store.replace(wild)
        (row,) = [row for row in memory.entities("Docs") if row["PartitionKey"] == "a"]
        assert [name for name in row if name.startswith("_tm_body")] == []
        check(store)


@pytest.mark.parametrize("way", ["to the account", "to the file"])
def test_a_copy_has_all_values_either_way(way: str, tmp_path: Path) -> None:
    places: list[Any] = [tmp_path / "store.db", AzurePlace(memory=Memory())]
    with tm.open(places[way == "to the file"], models=[Doc]) as source:
        source.insert_many(docs())
        with tm.open(places[way == "to the account"], models=[Doc]) as target:
            tm.copy(source, target)
            assert list(target.query(Doc).allow_scan()) == list(source.query(Doc).allow_scan())
            check(target)


def test_json_holds_a_large_value_as_any_other(store: tm.Store) -> None:
    doc = docs()[-1]
    store.insert(doc)
    text = tm.to_json(store[doc.key])
    assert json.loads(text)["words"] == doc.words
    assert tm.from_json(Doc, text) == doc
    with pytest.raises(tm.EntityTooLarge, match="but an entity may have 1,048,576"):
        store.insert(tm.from_json(Doc, tm.to_json(doc.replace(body="x" * 530_000))))


def test_columns_hold_large_values_as_any_others(store: tm.Store) -> None:
    pytest.importorskip("pyarrow")
    store.insert_columns(Doc, {"shelf": ["a", "a"], "number": [1, 2], "body": ["é" * 70_000, ""]})
    assert [doc.body for doc in store.partition(Doc.shelf == "a")] == ["é" * 70_000, ""]
    assert store.query(Doc).where(Doc.shelf == "a").to_arrow()["body"].to_pylist() == ["é" * 70_000, ""]


def noted(*, large: bool, renamed: bool = False, turned: bool = False) -> Any:
    """Return a class of notes, as a script has it: with the option, or without."""
    name = "text" if renamed else "body"
    options = tm.field(default="", large=True) if large else tm.field(default="")
    partition, row = ("{number}", "{shelf}") if turned else ("{shelf}", "{number}")
    return type(tm.Entity)(
        "Note",
        (tm.Entity,),
        {
            "__annotations__": {"shelf": tm.Field[str], "number": tm.Field[int], name: tm.Field[str]},
            "__module__": __name__,
            name: options,
            "key": tm.Key(partition=partition, row=row),
        },
        table="Notes",
    )


@pytest.mark.parametrize("large", [True, False], ids=["scripts say it", "scripts do not"])
def test_migrations_bring_large_values_along(place: Any, large: bool) -> None:
    old, new, last = noted(large=large), noted(large=large, renamed=True), noted(large=large, renamed=True, turned=True)

    @tm.migration(after=None, old=[old], new=[new])
    def rename(m: tm.Migration) -> None:
        m.rename(old.body, new.text)

    @tm.migration(after="rename", old=[new], new=[last])
    def turn(m: tm.Migration) -> None:
        m.rekey(new, last)

    before, after = noted(large=True), noted(large=True, renamed=True, turned=True)
    with tm.open(place, models=[before]) as store:
        store.insert_many([before("a", number, text) for number, text in enumerate(TEXTS)])
    assert tm.migrate(place, [rename]).ok
    with tm.open(place, models=[noted(large=True, renamed=True)], migrations=[rename]) as store:
        (cls,) = store.classes.values()
        assert [note.text for note in store.query(cls).allow_scan()] == TEXTS
        assert list(store.query(cls).allow_scan().select(cls.text)) == [(text,) for text in TEXTS]
        store.replace(store[cls.key("a", 5)])
        store.merge(cls.key("a", 6), text=TEXTS[6])
        check(store)
    assert tm.migrate(place, [rename, turn], contract=True).ok
    with tm.open(place, models=[after]) as store:
        assert sorted(store.query(after).allow_scan(), key=lambda note: note.number) == [
            after("a", number, text) for number, text in enumerate(TEXTS)
        ]
        check(store)


def test_a_version_behind_a_script_with_functions_goes_on_with_large_values(tmp_path: Path) -> None:
    script_old, script_new = noted(large=False), noted(large=False, renamed=True)
    old, new = noted(large=True), noted(large=True, renamed=True)

    @tm.migration(after=None, old=[script_old], new=[script_new])
    def negate(m: tm.Migration) -> None:
        m.rewrite(
            script_old,
            lambda note: script_new(note.shelf, -note.number, note.body),
            into=script_new,
            back=lambda note: script_old(note.shelf, -note.number, note.text),
        )

    place = tmp_path / "store.db"
    with tm.open(place, models=[old]) as store:
        store.insert(old("a", 1, "x" * 100_000))
        assert tm.migrate(place, [negate]).ok
        with tm.open(place, models=[new], migrations=[negate]) as later:
            assert later[new.key("a", -1)].text == "x" * 100_000
            later.insert(new("a", -2, "é" * 100_000))
            later.merge(new.key("a", -1), text="y" * 90_000)
            check(later)
        assert [note.body for note in store.partition(old.shelf == "a")] == ["y" * 90_000, "é" * 100_000]


def test_no_size_is_above_the_quick_bound() -> None:
    class Named(tm.Entity, table="Named"):
        id: tm.Field[str]
        body: tm.Field[str] = tm.field(large=True, name="b" * 248)
        key = tm.Key[str](partition="{id}")

    model = model_of(Named)
    for text in TEXTS:
        row = model.to_row(Named("a", text))
        assert model.most(row) >= model.size(row)


def test_the_option_is_no_part_of_what_is_stored() -> None:
    assert model_of(Doc).form == model_of(older.Doc).form
