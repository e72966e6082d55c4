"""Large values in the tables of an account: their pieces, the requests for them, and other programs beside."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.service import PARTITION, GetEntity, GroupTransaction, QueryEntities, RowChange
from tablemapper.limits import MAX_VALUE

from .memory import Memory, Options
from .place import AzurePlace

UNITS = MAX_VALUE // 2


class Doc(tm.Entity, table="Docs"):
    id: tm.Field[str]
    body: tm.Field[str] = tm.field(default="", large=True)
    photo: tm.Field[bytes | None] = tm.field(default=None, large=True)
    note: tm.Field[str] = tm.field(default="")

    key = tm.Key[str](partition="{id}", row="doc")


class Plain(tm.Entity):
    """What a version has that declares no value as large."""

    id: tm.Field[str]
    body: tm.Field[str] = tm.field(default="")
    photo: tm.Field[bytes | None] = tm.field(default=None)
    note: tm.Field[str] = tm.field(default="")

    key = tm.Key[str](partition="{id}", row="doc")


class older:
    class Doc(Plain, table="Docs"):
        pass


def opened(memory: Memory, *models: Any, **options: Any) -> tm.Store:
    return tm.open(AzurePlace(memory=memory), models=list(models) or [Doc], **options)


def stored(memory: Memory, id: str = "a") -> dict[str, Any]:
    """Return the properties of an entity, but for the hidden ones that each has."""
    (row,) = [row for row in memory.entities("Docs") if row[PARTITION] == id]
    return {name: row[name] for name in row if name[:1] in "bpn_" and not name.startswith("_tm_op") and "@" not in name}


def put(memory: Memory, kind: Any, id: str = "a", **members: Any) -> None:
    """Write an entity as another program does."""
    etag = "*" if kind in ("merge", "replace") else None
    memory.send(GroupTransaction("Docs", id, (RowChange(kind, "doc", members, etag),)))


def test_an_entity_has_a_value_in_pieces_of_which_the_last_is_not_full() -> None:
    memory = Memory()
    with opened(memory) as store:
        store.insert(Doc("a", "x" * (2 * UNITS + 5), b"z" * (MAX_VALUE + 1)))
        row = stored(memory)
        assert [name for name in row if "_tm_" in name] == ["_tm_body_1", "_tm_body_2", "_tm_photo_1"]
        assert [len(row[name]) for name in ("body", "_tm_body_1", "_tm_body_2")] == [UNITS, UNITS, 5]
        store.insert(Doc("b", "x" * (UNITS - 1) + "😀"))  # (whose pair would be cut)
        row = stored(memory, "b")
        assert (len(row["body"]), row["_tm_body_1"]) == (UNITS - 1, "😀")
        store.insert(Doc("c", "x" * UNITS))
        assert "_tm_body_1" not in stored(memory, "c")
        assert [store[Doc.key(id)].body for id in "abc"] == [
            "x" * (2 * UNITS + 5),
            "x" * (UNITS - 1) + "😀",
            "x" * UNITS,
        ]


def test_another_program_that_writes_the_property_alone_is_read_right() -> None:
    memory = Memory()
    with opened(memory) as store:
        store.insert(Doc("a", "old " * 40_000, b"z" * 200_000))
        put(memory, "merge", body="new", note="theirs")
        doc = store[Doc.key("a")]
        assert (doc.body, doc.note, doc.photo) == ("new", "theirs", b"z" * 200_000)
        report = store.check()
        assert report.ok
        assert len(report.foreign) == 4
        said = (
            "Doc: _tm_body_1: 1 row with pieces of an older value, which are not read, and which the next write removes"
        )
        assert report.foreign[0] == f"{said}, as ('a', 'doc')"
        doc.note = "ours"
        store.replace(doc)
        assert "_tm_body_1" not in stored(memory)
        assert (store[doc.key].body, store[doc.key].photo, store.check().foreign) == ("new", b"z" * 200_000, ())
        put(memory, "replace", body="theirs alone")
        assert store[doc.key] == Doc("a", "theirs alone")
        put(memory, "merge", **{"body": 7, "body@odata.type": "Edm.Int32"})
        with pytest.raises(tm.CorruptStore, match="body"):
            store.get(doc.key)


def test_another_program_that_copies_all_properties_keeps_the_value() -> None:
    memory = Memory()
    with opened(memory) as store:
        store.insert(Doc("a", "é" * 100_000, b"z" * 100_000))
        row = memory.send(GetEntity("Docs", "a", "doc"))
        copied = {name: value for name, value in row.items() if name[:1] in "bpn_"}
        put(memory, "insert", "b", **copied)
        assert store[Doc.key("b")] == Doc("b", "é" * 100_000, b"z" * 100_000)


@pytest.mark.one_python
def test_the_sdk_of_microsoft_writes_beside(connection: str) -> None:
    from azure.data.tables import TableServiceClient, UpdateMode

    values = ["€" * (UNITS + 1), "x😀é" * 40_000, "\x01" * 100_000]
    with tm.open(connection, models=[Doc]) as store, TableServiceClient.from_connection_string(connection) as service:
        client = service.get_table_client("Docs")
        for value in values:
            store.upsert(Doc("a", value, value.encode()[:100_000]))
            assert store[Doc.key("a")] == Doc("a", value, value.encode()[:100_000])
            entity = client.get_entity("a", "doc")
            client.update_entity({**entity, "note": "theirs"}, mode=UpdateMode.REPLACE)
            assert store[Doc.key("a")] == Doc("a", value, value.encode()[:100_000], "theirs")
            client.update_entity({PARTITION: "a", "RowKey": "doc", "body": "short"}, mode=UpdateMode.MERGE)
            assert store[Doc.key("a")].body == "short"
            (selected,) = store.query(Doc).where(Doc.id == "a").select(Doc.body, Doc.note)
            assert selected == ("short", "theirs")
        store.insert(Doc("b", "x" * 500_000))  # (the emulator counts bytes as they travel)
        assert list(store.query(Doc).where(Doc.id == "b").select(Doc.body)) == [("x" * 500_000,)]


def test_what_is_selected_has_all_pieces_and_what_is_not_has_none() -> None:
    memory = Memory()
    with opened(memory) as store:
        store.insert_many([Doc(id, "x" * 100_000, note=id) for id in "abc"])
        memory.sent.clear()
        query = store.query(Doc).allow_scan()
        assert list(query.select(Doc.note)) == [("a",), ("b",), ("c",)]
        assert list(query.select(Doc.body)) == [("x" * 100_000,)] * 3
        selects = [request.select for request in memory.sent if isinstance(request, QueryEntities)]
        assert selects[0] == ("PartitionKey", "RowKey", "note")
        assert selects[1] == ("PartitionKey", "RowKey", "body", *[f"_tm_body_{n}" for n in range(1, 16)])
        assert not [request for request in memory.sent if isinstance(request, GetEntity)]


def test_a_class_that_does_not_declare_it_reads_the_entity_where_more_pieces_may_follow() -> None:
    memory = Memory()
    values = {"a": "short", "b": "é" * 100_000, "c": "x" * UNITS, "d": "x" * (UNITS - 2), "e": "y" * 20_000}
    photos = {"a": None, "b": b"1" * 30_000, "c": b"2" * MAX_VALUE, "d": b"3" * (MAX_VALUE + 1), "e": b"4"}
    with opened(memory) as store, opened(memory, older.Doc) as old:
        store.insert_many([Doc(id, values[id], photos[id]) for id in values])
        query = old.query(older.Doc).allow_scan()
        for field, expected in ((older.Doc.body, values), (older.Doc.photo, photos)):
            memory.sent.clear()
            assert list(query.select(field)) == [(value,) for value in expected.values()]
            again = [request.partition for request in memory.sent if isinstance(request, GetEntity)]
            assert [id for id in again if id in values] == (["b", "c"] if expected is values else ["c", "d"])
        assert [doc.body for doc in query] == list(values.values())


def test_conditions_and_pages_over_a_service_that_cuts_answers() -> None:
    memory = Memory(Options(pages=2, short=random.Random(5)))
    with opened(memory) as store, opened(memory, older.Doc) as old:
        docs = [Doc(f"{n:02}", f"{n:02}" + "é" * (9_000 * n), b"z" * (20_000 * n)) for n in range(20)]
        store.insert_many(docs)
        assert list(store.query(Doc).allow_scan()) == docs
        assert list(store.query(Doc).allow_scan().where(Doc.body == docs[17].body)) == [docs[17]]
        assert list(store.query(Doc).allow_scan().where(Doc.body < "05")) == docs[:5]
        assert list(store.query(Doc).allow_scan().where(Doc.body.startswith("1"))) == docs[10:]
        first = store.query(Doc).allow_scan().page(7)
        assert [*first.items, *store.query(Doc).allow_scan().page(100, first.token).items] == docs
        assert list(old.query(older.Doc).allow_scan().select(older.Doc.body)) == [(doc.body,) for doc in docs]
        assert store.check().ok


def test_a_merge_of_a_large_value_replaces_the_entity_and_one_of_others_sends_them_alone() -> None:
    memory = Memory()
    with opened(memory) as store:
        store.insert(Doc("a", "x" * 200_000))
        memory.sent.clear()
        store.merge(Doc.key("a"), note="new")
        assert len(memory.sent) == 1
        store.merge(Doc.key("a"), body="y" * UNITS)
        assert [name for name in stored(memory) if name.startswith("_tm_body")] == []
        assert store[Doc.key("a")] == Doc("a", "y" * UNITS, note="new")
        store.upsert(Doc("a", "x" * 200_000))
        store.merge(Doc.key("a"), body="short")
        assert stored(memory) == {"body": "short", "note": ""}


def test_a_damaged_entity_takes_what_its_fields_hold_and_no_more() -> None:
    memory = Memory()
    with opened(memory) as store:
        store.insert(Doc("a", "x" * 200_000))
        put(memory, "merge", **{"photo": 7, "photo@odata.type": "Edm.Int32"})
        store.merge(Doc.key("a"), note="fits")
        with pytest.raises(tm.EntityTooLarge, match="note: a text of 40,000 UTF-16 units"):
            store.merge(Doc.key("a"), note="n" * 40_000)
        store.merge(Doc.key("a"), body="y" * 100_000, photo=None)
        assert store[Doc.key("a")] == Doc("a", "y" * 100_000, note="fits")


def test_a_merge_by_a_class_that_does_not_declare_it_leaves_no_piece_that_would_follow() -> None:
    memory = Memory()
    with opened(memory) as store, opened(memory, older.Doc) as old:
        for text in ("y" * UNITS, "y" * (UNITS - 1), "short"):
            store.upsert(Doc("a", "x" * 200_000))
            old.merge(older.Doc.key("a"), body=text)
            assert store[Doc.key("a")].body == old[older.Doc.key("a")].body == text


# ---------------------------------------------------------------------------------------------- the catalogue


def head(memory: Memory) -> dict[str, Any]:
    return {name: value for name, (_, value) in memory.tables["TableMapper"]["store", "head"].typed.items()}


def test_the_catalogue_says_what_is_needed_once_a_class_declares_a_large_value() -> None:
    memory = Memory()
    with opened(memory, older.Doc) as store:
        store.insert(older.Doc("a"))
        assert "needs" not in head(memory)
        assert head(memory)["format"] == 1
        generation = head(memory)["generation"]
        with opened(memory):
            assert (head(memory)["needs"], head(memory)["format"]) == ('["pieces"]', 3)
            assert head(memory)["generation"] == generation + 1
        store.insert(older.Doc("b"))
    for models in ([older.Doc], [Doc]):
        with opened(memory, *models) as store:
            assert [doc.id for doc in store.query(models[0]).allow_scan()] == ["a", "b"]
    assert (head(memory)["needs"], head(memory)["generation"]) == ('["pieces"]', generation + 1)


def test_a_store_that_is_only_read_is_left_as_it_is() -> None:
    memory = Memory()
    with opened(memory, older.Doc) as store:
        store.insert(older.Doc("a"))
    with opened(memory, read_only=True) as store:
        assert store[Doc.key("a")] == Doc("a")
    assert "needs" not in head(memory)


def test_whoever_does_not_know_what_is_needed_leaves_the_account_as_it_is() -> None:
    memory = Memory()
    with opened(memory):
        memory.tables["TableMapper"]["store", "head"].typed["needs"] = ("String", '["ink", "pieces"]')
    before = dict(memory.tables["TableMapper"])
    for options in ({}, {"read_only": True}):
        with pytest.raises(tm.NotAStore, match=r"TableMapper needs ink, which this .*: upgrade tablemapper$"):
            opened(memory, **options)
    assert memory.tables["TableMapper"] == before


def test_a_copy_without_the_code_says_what_is_needed(tmp_path: Path) -> None:
    memory = Memory()
    with tm.open(tmp_path / "store.db", models=[Doc]) as source:
        source.insert(Doc("a", "é" * 100_000))
    with tm.open(tmp_path / "store.db", read_only=True) as source, opened(memory, *source.classes.values()) as target:
        tm.copy(source, target)
        assert head(memory)["needs"] == '["pieces"]'
    with opened(memory) as store:
        assert store[Doc.key("a")].body == "é" * 100_000


def test_a_row_that_no_class_claims_shows_its_values_whole() -> None:
    memory = Memory()
    with opened(memory) as store:
        store.insert(Doc("a", "é" * 100_000, b"z" * 100_000))
        pieces = {
            name: value for name, value in memory.send(GetEntity("Docs", "a", "doc")).items() if name[:1] in "bp_"
        }
        memory.send(GroupTransaction("Docs", "a", (RowChange("insert", "other", pieces),)))
        (_, unknown) = store.partition(Doc.id == "a")
        assert isinstance(unknown, tm.UnknownRow)
        assert unknown.properties == {"body": "é" * 100_000, "photo": b"z" * 100_000}


class before:
    class Doc(Plain, table="Docs"):
        by_note = tm.Index[str](partition="{note}", include=("body",))
        here = tm.Index[str, str](partition="{id}", row="{note}", include=("photo", "body"))


def test_an_index_of_an_older_version_holds_large_values_whole() -> None:
    memory = Memory()
    with opened(memory, before.Doc) as old, opened(memory) as store:
        store.insert(Doc("a", "é" * 100_000, b"z" * 100_000, "n"))
        query = old.query(before.Doc.by_note("n")).allow_eventual().select(before.Doc.body)
        assert "by_note" in query.explain().path
        assert list(query) == [("é" * 100_000,)]
        local = old.query(before.Doc.here("a", "n")).select(before.Doc.photo, before.Doc.body)
        assert list(local) == [(b"z" * 100_000, "é" * 100_000)]
        store.merge(Doc.key("a"), body="short")
        old.sweep()
        assert (list(query), list(local)) == ([("short",)], [(b"z" * 100_000, "short")])
        assert old.check().ok


class Page(tm.Entity, table="Pages"):
    book: tm.Field[str]
    number: tm.Field[int]
    text: tm.Field[str] = tm.field(large=True)

    key = tm.Key[str, int](partition="{book}", row="{number}")


def test_many_entities_of_a_partition_are_written_in_transactions_that_are_small_enough() -> None:
    memory = Memory()
    pages = [Page("a", number, "€" * 400_000) for number in range(9)]
    with opened(memory, Page) as store:
        memory.sent.clear()
        assert store.insert_many(pages) == 9
        written = [request for request in memory.sent if isinstance(request, GroupTransaction)]
        assert max(sum(len(msgspec.json.encode(one.members)) for one in tx.changes) for tx in written) < 2**22
        assert list(store.partition(Page.book == "a")) == pages
        with pytest.raises(tm.EntityTooLarge, match="but a transaction may have 4,194,304"), store.transaction() as tx:
            for number in range(10, 16):
                tx.insert(Page("a", number, "€" * 400_000))


def test_a_member_that_a_list_holds_in_a_later_piece_is_still_in_use() -> None:
    def listed(kind: Any) -> Any:
        return type(tm.Entity)(
            "Board",
            (tm.Entity,),
            {
                "__annotations__": {"id": tm.Field[str], "colors": tm.Field[kind]},
                "__module__": __name__,
                "colors": tm.field(large=True),
                "key": tm.Key(partition="{id}"),
            },
            table="Boards",
        )

    memory, before, after = Memory(), listed(list[Literal["red", "blue"]]), listed(list[Literal["red"]])
    with opened(memory, before) as store:
        store.insert(before("a", ["red"] * 20_000 + ["blue"]))
    with pytest.raises(tm.SchemaMismatch, match="blue"):
        opened(memory, after)
    with opened(memory, before) as store:
        store.merge(before.key("a"), colors=["red"])
    opened(memory, after).close()
