"""What is done with a store in other libraries: it says what to do here."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.aio.query import AsyncGroups, AsyncMixedQuery, AsyncRows
from tablemapper.aio.transaction import AsyncTransaction
from tablemapper.expressions.foreign_names import AWAITED, FOREIGN_NAMES, for_asyncio
from tablemapper.types import AsyncQuery

from ..classes import Loose, entity


class Item(tm.Entity, table="Items"):
    group: tm.Field[str]
    number: tm.Field[int]
    text: tm.Field[str] = tm.field(default="")

    key = tm.Key[str, int](partition="{group}", row="{number}")


class Other(tm.Entity, table="Others"):
    number: tm.Field[int]
    numbers: tm.Field[int]
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[int](partition="{number}")


class Timed(tm.Entity, table="Timed"):
    save: tm.Field[str]
    at: tm.Field[datetime]
    price: tm.Field[Decimal] = tm.field(default=Decimal(0))

    key = tm.Key[str](partition="{save}")
    by_price = tm.Index[Decimal](partition="{price}")

    def update(self) -> str:
        return "updated"

    @classmethod
    def get(cls) -> str:
        return "got"


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with tm.open(tmp_path / "items.db", models=[Item]) as store:
        yield store


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s: s.get(Item, "a", 1), "expected Item.key('a', 1), got <class"),
        (lambda s: s[Item, "a", 1], "expected Item.key('a', 1), got "),
        (lambda s: s.get(Item), "expected Item.key(…), got "),
        (lambda s: s.get("a", 1), "expected Item.key(…), got 'a'"),
        (lambda s: s.get(("a", 1)), "expected Item.key(…), got ('a', 1)"),
        (lambda s: s.exists(("a", 1)), "expected Item.key(…), got "),
        (lambda s: s.merge("a", text="x"), "expected Item.key(…), got "),
        (lambda s: s.delete("a"), "expected Item.key(…), got "),
        (lambda s: s.get(Item("a", 1)), "Item entities have one as .key"),
        (lambda s: s.get(Item.key("a", 1), Item.key("a", 2)), "get_many takes a list of keys"),
        (lambda s: s.get_many([("a", 1)]), "expected Item.key(…), got "),
        (lambda s: s.get_many(Item.key("a", 1)), "expected a list of keys, got the key Item ('a', 'a1'); store.get takes one"),
        (lambda s: s.insert({"group": "a"}), "expected an entity, got {'group': 'a'}; tm.from_dict(Item, …) makes one of a dict"),
        (lambda s: s.insert_many([{"group": "a"}]), "; tm.from_dict(Item, …) makes one of a dict, and store.insert_columns(Item, …)"),
        (lambda s: s.upsert_many([{"group": "a"}]), "; tm.from_dict(Item, …) makes one of a dict"),
        (lambda s: s.replace(Item.key("a", 1)), "; store.merge(Item.key(…), field=value) changes fields"),
        (lambda s: s.replace(Item.key("a", 1), text="x"), "it takes no values of fields; write store.merge(Item.key(…), text=…)"),
        (lambda s: s.upsert(Item.key("a", 1), text="x", tags=[]), "write store.merge(Item.key(…), text=…, tags=…)"),
        (lambda s: s.upsert(Item("a", 1), text="x"), "write store.merge(Item.key(…), text=…)"),
        (lambda s: s.update(Item.key("a", 1), text="x"), "write store.merge(Item.key(…), text=…)"),
        (lambda s: s.update(Item.key("a", 1)), "update: expected a function of the entity, got None"),
        (lambda s: s.insert_many(Item("a", 1)), "store.insert takes one"),
        (lambda s: s.delete_many(Item.key("a", 1)), "store.delete takes one"),
        (lambda s: s.update(Item.key("a", 1), {"text": "x"}), "update: expected a function of the entity, got {'text': 'x'}"),
    ],
)  # fmt: skip
def test_a_wrong_argument_says_what_is_needed(store: tm.Store, call: Callable[[Any], Any], said: str) -> None:
    with tm.open(":memory:", models=[Item], observe=print) as observed:
        for one in (store, observed):
            with pytest.raises(tm.InvalidEntity, match=re.escape(said)):
                call(one)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s: s.query("items"), r"store\.query\(Item\)"),
        (lambda s: s.query(Item.number == 1), r"as in store\.query\(Item\)\.where\(…\), got Compare"),
        (lambda s: s.partition(), r"as in Item\.group == …"),
        (lambda s: s.partition(Item.group > "a"), r"as in Item\.group == …"),
    ],
)
def test_an_example_is_of_the_classes_that_were_opened(store: tm.Store, call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(tm.InvalidQuery, match=said):
        call(store)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_store_can_not_be_pickled_or_copied(store: tm.Store, copied: Callable[[Any], Any]) -> None:
    for one in (store, store.query(Item), store.transaction()):
        with pytest.raises(TypeError, match="cannot be pickled or copied[;,] "):
            copied(one)


def test_a_store_is_no_container_of_keys(store: tm.Store) -> None:
    for one in (store, store.transaction()):
        untyped: Any = one
        with pytest.raises(TypeError, match=r"whether a key is there is \.exists\(key\)"):
            _ = Item.key("a", 1) in untyped
        with pytest.raises(TypeError, match=r"store\.query\(Model\)\.allow_scan\(\)"):
            list(untyped)


def test_an_undeclared_property_with_the_name_of_a_declared_one_is_invalid_and_not_too_large() -> None:
    with tm.open(":memory:", models=[Loose]) as store:
        with pytest.raises(tm.InvalidEntity, match='the undeclared property "name" is a declared one') as caught:
            store.insert(Loose("a", tm.Extra(name="b")))
        assert not isinstance(caught.value, tm.EntityTooLarge)
        with pytest.raises(tm.EntityTooLarge, match="300 properties"):
            store.insert(Loose("a", tm.Extra({f"p{number}": 1 for number in range(300)})))


@pytest.mark.file
def test_a_store_and_a_transaction_are_shown_by_their_path(store: tm.Store, tmp_path: Path) -> None:
    assert repr(store) == f"<Store SQLite {str(tmp_path / 'items.db')!r}>"
    with store.transaction() as tx:
        tx.insert(Item("a", 1))
        assert repr(tx) == f"<Transaction of 1 operations, SQLite {str(tmp_path / 'items.db')!r}>"
    assert repr(tx).startswith("<Transaction, over, SQLite")
    assert repr(store.transaction()).startswith("<Transaction, not begun, SQLite")


def test_a_class_that_is_defined_again_is_told_from_the_first(store: tm.Store) -> None:
    again = entity("Item", "Items", {"a": str}, tm.Key(partition="{a}"))
    for call in (lambda: store.insert(again("x")), lambda: store.get(again.key("x")), lambda: store.query(again)):
        with pytest.raises(tm.InvalidEntity, match=r"another class of this name.*open the store again"):
            call()


def test_a_failed_precondition_holds_the_etag_that_is_there(store: tm.Store) -> None:
    store.insert(item := Item("a", 1))
    stale = item.replace()
    item.text = "x"
    store.replace(item)
    for write in (
        lambda: store.replace(stale),
        lambda: store.delete(stale),
        lambda: store.merge(Item.key("a", 1), text="y", if_match=tm.info(stale).etag),
        lambda: store.delete(Item.key("a", 1), if_match='W/"1"'),
    ):
        with pytest.raises(tm.PreconditionFailed) as caught:
            write()
        assert caught.value.etag == tm.info(item).etag
        assert pickle.loads(pickle.dumps(caught.value)).etag == caught.value.etag


def test_what_was_deleted_says_so(store: tm.Store) -> None:
    store.insert(item := Item("a", 1))
    other = store[Item.key("a", 1)]
    store.delete(item)
    with pytest.raises(
        tm.PreconditionFailed, match="it has no ETag.*or was deleted since.*another key; store.move"
    ) as failed:
        store.replace(item)
    assert failed.value.etag is None
    for write in (lambda: store.replace(other), lambda: store.delete(other)):
        with pytest.raises(tm.EntityNotFound, match="it was deleted since it was read"):
            write()
    with pytest.raises(tm.EntityNotFound, match="there is no such entity"):
        store.delete(Item.key("a", 1))


# ---------------------------------------------------------------------------------------------- queries


QUERIES: dict[type[Exception], list[tuple[Callable[[Any], Any], str]]] = {
    AttributeError: [
        (lambda q: q.filter(Item.number == 1), r"no \.filter; write \.where\((Item|Product)\.field > 10"),
        (lambda q: q.filter_by(number=1), r"write \.where\("),
        (lambda q: q.all(), r"write (list\(query\)|await query\.list\(\))$"),
        (lambda q: q.offset(10), r"\.page\(size, token\)"),
        (lambda q: q.get(1), r"(await )?store\.get\(key\) for a key$"),
        (lambda q: q.join(Item), r"\.with_\(Other, by=.*no other joins"),
        (lambda q: q.sort("number"), r"\.order_by\("),
        (lambda q: q.head(3), r"write \.limit\(count\)"),
        (lambda q: q.groupby("number"), r"write (await )?query\.group_by\("),
        (lambda q: q.mean(), r"write (await )?query\.avg\("),
        (lambda q: q.iterator(), "write (async )?for entity in query: …"),
        (
            lambda q: q.distinct(),
            r"write (await )?query\.group_by\((Item|Product)\.field\)\.count\(\), whose keys are the values$",
        ),
        (lambda q: q.get_or_create(), r"write (await )?store\.get\(key\), and (await )?store\.insert\(entity\)"),
        (lambda q: q.where(Item.number.isna()), r"write \.is_null\(\)"),
        (lambda q: q.where(Item.text.str.startswith("a")), r"write \.startswith\(text\)"),
        (lambda q: q.where(Item.number.mean() > 3), r"a total of a query: store\.query\(Item\)\.avg\(Item\.field\)"),
        (lambda q: q.where(Item.text.like("a%")), r"Item\.text has no \.like; write \.startswith"),
        (lambda q: q.where(Item.number.in_([1])), r"write \.is_in"),
        (lambda q: q.where(Item.text.is_(None)), r"write \.is_null\(\)"),
        (lambda q: q.order_by(Item.number).desc(), r"write \.order_by\(Item\.field\.desc\(\)\)|Product"),
        (lambda q: q.where(Item.number.month == 3), r'write \.date\(\) or \.truncate\("%Y-%m"\)$'),
        (lambda q: q.where(Item.text.lower() == "a"), r"write an index over {name:fold}"),
        (lambda q: q.select(Item.number).where(Item.number == 1), r"has no \.where; write select last: query"),
        (lambda q: q.select(Item.number).sum(Item.number), r"has no \.sum; write select last: query"),
    ],
    tm.InvalidQuery: [
        (lambda q: q.where(Timed.at >= date(2026, 3, 1)), r"use datetime\(2026, 3, 1, tzinfo=UTC\), or \.date\(\)"),
        (lambda q: q.where(number=1), r"Item\.number == 1, not number=1"),
        (lambda q: q.where(Item.number.is_in(3)), r"is_in\(3\): expected a list of values"),
        (lambda q: q.where(Item.text is None), r"got False; compare a field, with \.is_null\(\) for `is None`"),
        (lambda q: q.order_by(-Item.number), r"as in Item\.number\.desc\(\), got \(Item\.number \* -1\)"),
        (lambda q: q.order_by("number"), r"as in Item\.number\.desc\(\), got 'number'"),
        (lambda q: q.select("number"), r"'number' is not a field of Item .*; write Item\.number$"),
        (lambda q: q.select("nmber"), r'did you mean "number"\?$'),
        (lambda q: q.select(Other.number), r"Other\.number is not a field of Item .*; write Item\.number$"),
        (lambda q: q.select(Other.numbers), r"Other\.numbers is not a field of Item \(fields: [a-z, ]*\)$"),
        (lambda q: q.select(Item.number * 2), r"^\(Item\.number \* 2\) is not a field of Item \(fields: "),
        (lambda q: q.group_by(Item.number * 2), r"^\(Item\.number \* 2\) is not a field of Item \(fields: "),
        (lambda q: q.group_by(Other.tags.each()), r"^Other\.tags\.each\(\) is for the groups of an aggregate"),
    ],
    TypeError: [
        (lambda q: len(q), r"has no length; write (await )?query\.count\(\)$"),
        (lambda q: q[0], r"has no items; write (await )?query\.first\(\)"),
        (lambda q: q[2:4], r"\.page\(size, token\)"),
        (lambda q: q.where(Item.number in [1, 2]), r"\.is_in\(\[a, b\]\) instead of in"),
        (lambda q: bool(q), r"has no truth value; write (await )?query\.exists\(\)$"),
        (lambda q: q.where("a" in Other.tags), r"^Other\.tags is a field, not its values: write \.contains\(…\)"),
    ],
}


@pytest.mark.parametrize(
    ("call", "error", "said"), [(call, error, said) for error, rows in QUERIES.items() for call, said in rows]
)
def test_a_query_of_another_library_says_what_to_write(
    store: tm.Store, call: Callable[[Any], Any], error: type[Exception], said: str
) -> None:
    workers: Any = SimpleNamespace(run=None)
    for query in (store.query(Item), AsyncQuery(workers, store.query(Item))):
        with pytest.raises(error, match=said):
            call(query)


@pytest.mark.parametrize(
    ("of", "name", "mend"),
    [
        ("store", "add", "store.insert(entity), or store.upsert(entity)"),
        ("store", "add_all", "store.insert_many(entities)"),
        ("store", "commit", "nothing: each call is durable when it returns"),
        ("store", "execute", "store.query(Product).where(…)"),
        ("store", "create_all", "nothing: tm.open creates the tables of its models"),
        ("store", "query_entities", "store.query(Product).where(…)"),
        ("store", "list_entities", "store.query(Product).where(…)"),
        ("store", "upsert_entity", "store.upsert(entity)"),
        ("store", "update_entity", "store.replace(entity), or store.merge(Product.key(…), field=value)"),
        ("store", "submit_transaction", "with store.transaction() as tx: …"),
        ("store", "get_or_create", "store.get(Product.key(…)), and store.insert(entity) where that is None"),
        ("transaction", "commit", "nothing: the end of the with block commits"),
        ("transaction", "rollback", "raise, as the transaction is given up when its with block raises"),
        ("transaction", "add", "tx.insert(entity), or tx.upsert(entity)"),
        ("transaction", "query", "tx.get(key) and tx.replace(entity); query the store before"),
    ],
)
def test_a_store_or_a_transaction_of_another_library_says_what_to_write(
    store: tm.Store, of: str, name: str, mend: str
) -> None:
    for one in (store, tm.AsyncStore) if of == "store" else (store.transaction(), AsyncTransaction):
        said = for_asyncio(mend) if isinstance(one, type) else mend
        with pytest.raises(AttributeError, match=re.escape(f"has no .{name}; write {said}")):
            getattr(one, name)


def test_a_query_is_listed_all_the_same(store: tm.Store) -> None:
    store.insert_many(Item("a", n) for n in range(3))
    query = store.query(Item).where(Item.group == "a")
    assert len(list(query)) == len([*query]) == len(tuple(query)) == 3
    assert Item("a", 1) in query
    assert not hasattr(query, "all")
    assert not hasattr(Item.text, "like")


FORMS = [
    ("list(query)", "await query.list()"),
    ("for entity in query: …, which reads", "async for entity in query: …, which reads"),
    ("[f(entity) for entity in query]", "[f(entity) async for entity in query]"),
    ("for entity in page.items: …", "for entity in page.items: …"),
    ("with store.transaction() as tx: …", "async with store.transaction() as tx: …"),
    ("store.query(A).where(…)", "store.query(A).where(…)"),
    ("store.query(A).allow_scan().count()", "await store.query(A).allow_scan().count()"),
    ("store.query(A.by_n(…)).first(), .one()", "await store.query(A.by_n(…)).first(), .one()"),
    ("store.query(A).group_by(A.n).count(), whose", "await store.query(A).group_by(A.n).count(), whose"),
    ("store.get(A.key(…)), and store.insert(e)", "await store.get(A.key(…)), and await store.insert(e)"),
    ("store[entity.key]", "await store[entity.key]"),
    ("tx.get(key) and tx.replace(entity)", "await tx.get(key) and tx.replace(entity)"),
    ("{g: n for g, n in groups.count().items()}", "{g: n for g, n in (await groups.count()).items()}"),
    ("store.classes", "store.classes"),
]


@pytest.mark.parametrize(("synchronous", "asynchronous"), FORMS)
def test_code_has_a_form_for_asyncio(synchronous: str, asynchronous: str) -> None:
    assert for_asyncio(synchronous) == asynchronous


def test_what_is_awaited_in_a_remedy_is_what_asyncio_awaits() -> None:
    classes: dict[str, tuple[type, ...]] = {
        "store": (tm.AsyncStore,), "tx": (AsyncTransaction,), "groups": (AsyncGroups,),
        "query": (AsyncQuery, AsyncRows, AsyncMixedQuery),
    }  # fmt: skip
    for of, faces in classes.items():
        members = [(name, one) for cls in faces for base in cls.__mro__ for name, one in vars(base).items()]
        awaits = {name for name, one in members if inspect.iscoroutinefunction(one) and name[0] != "_"}
        calls = {"update"} if of == "query" else set()  # (it returns a coroutine)
        assert awaits | calls == AWAITED[of], of
    for table in FOREIGN_NAMES.values():  # (each remedy has a form, and each name one remedy)
        for remedy in table.values():
            plain = re.sub(r"(?<!\w)\(await ([^ ]*)\)\.", r"\1.", for_asyncio(remedy))
            plain = plain.replace("await ", "").replace("async ", "")
            assert plain == remedy.replace("list(query)", "query.list()")


def objects(store: tm.Store) -> dict[str, tuple[Any, Any]]:
    """Return an object of each kind, for a store and for asyncio."""
    workers: Any = SimpleNamespace(run=None)
    query, page = store.query(Item).where(Item.group == "a"), store.query(Item).allow_scan().page(1)
    groups, key, rows = query.group_by(Item.number), Item.key("a", 1), Timed.by_price(Decimal(1))
    return {
        "field": (Item.text, Item.text), "entity": (Item("a", 1), Item("a", 1)), "entity alone": (Item("a", 1), Item("a", 1)),
        "query": (query, AsyncQuery(workers, query)), "rows": (query.select(Item.text), AsyncRows(workers, query.select(Item.text))),
        "groups": (groups, AsyncGroups(workers, groups)), "page": (page, page), "key": (key, key),
        "index": (Timed.by_price, Timed.by_price), "rows of an index": (rows, rows),
        "store": (store, tm.AsyncStore), "transaction": (store.transaction(), AsyncTransaction),
    }  # fmt: skip


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "__bool__": bool, "__len__": len, "__getitem__": lambda one: one[0], "__delitem__": lambda one: one.__delitem__(0),
    "__setitem__": lambda one: one.__setitem__(0, 1),
}  # fmt: skip


async def test_each_foreign_name_says_what_to_write_in_the_form_of_its_face(store: tm.Store) -> None:
    found = objects(store)
    assert set(found) == set(FOREIGN_NAMES)
    for kind, table in FOREIGN_NAMES.items():
        for one, face in zip(found[kind], ("sync", "async"), strict=True):
            shared = found[kind][0] is found[kind][1] or type(found[kind][0]) is type(found[kind][1])
            for name, remedy in table.items():
                if isinstance(one, type) and name in OPERATIONS:
                    continue
                with pytest.raises((AttributeError, TypeError), match="has no ") as caught:
                    OPERATIONS[name](one) if name in OPERATIONS else getattr(one, name)
                said = str(caught.value)
                code = for_asyncio(remedy) if face == "async" or shared else remedy  # (a task asks)
                start = code.replace("{{", "{").split("{0}")[0].split("{")[0]
                assert f"; write {start}" in said, (kind, name)
            offered = set() if isinstance(one, type) else {name for name in dir(one) if name[0] != "_"}
            assert [name for name in offered & table.keys() if not hasattr(one, name)] == []
    assert all(bool(found[kind][0]) for kind in ("store", "page", "groups")), "they have no length, and are true"


def test_what_both_faces_share_says_it_for_the_one_that_asks() -> None:
    item = Item("a", 1)

    async def asked() -> str:
        with pytest.raises(AttributeError) as caught:
            _ = item.delete  # type: ignore[attr-defined]
        return str(caught.value)

    assert asyncio.run(asked()) == "the Item entity has no .delete; write await store.delete(entity)"
    with pytest.raises(AttributeError, match=r"write store\.delete\(entity\)$"):
        _ = item.delete  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------------------------- entities


@pytest.mark.file
@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: tm.info(Item), tm.InvalidEntity, "info: expected an entity, got <class"),
        (lambda: tm.to_json([Item("a", 1)]), tm.InvalidEntity, "to_json: expected an entity, got .*; call it for each entity"),
        (lambda: tm.to_dict("x"), tm.InvalidEntity, "to_json: expected an entity, got 'x'"),
        (lambda: tm.from_json("Item", b"{}"), tm.InvalidModel, "'Item': expected an entity class"),
        (lambda: tm.from_dict(Item("a", 1), {}), tm.InvalidModel, "Item.*: expected an entity class"),
        (lambda: tm.open(":memory:", models=[Item("a", 1)]), tm.InvalidModel, "Item.* is not an entity class with table="),
        (lambda: tm.open(":memory:", models=[Item], timeout="5"), ValueError, "timeout='5': expected a number of seconds"),
        (lambda: tm.open(":memory:", models=[Item], timeout=-1), ValueError, "timeout=-1: expected a number of seconds"),
        (lambda: tm.open(":memory:", models=[Item], timeout=True), ValueError, "timeout=True: expected a number of seconds"),
        (lambda: tm.open(":memory:", models=[Item], durability=None), ValueError, 'durability=None: expected "full" or "relaxed"'),
    ],
)  # fmt: skip
def test_an_argument_of_another_kind_says_what_is_expected(
    call: Callable[[], Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        call()


def test_an_entity_is_no_mapping_and_says_what_to_write() -> None:
    item: Any = Item("a", 1)
    for call in (lambda: item["text"], lambda: dict(item), lambda: list(item), lambda: "text" in item):
        with pytest.raises(TypeError, match=r"Item entities are no mappings; write (entity\.text, or )?tm\.to_dict"):
            call()


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("objects", "store.query(Item).where(…)"), ("query", "store.query(Item).where(…)"),
        ("scan", "store.query(Item).allow_scan()"), ("get", "store.get(Item.key(…))"),
        ("save", "store.insert(entity), store.replace(entity) or store.upsert(entity)"),
        ("update", "entity.field = value and store.replace(entity), or store.merge(Item.key(…), field=value)"),
        ("model_validate", "tm.from_dict(Item, values)"), ("parse_obj", "tm.from_dict(Item, values)"),
        ("model_dump", "tm.to_dict(entity)"), ("dict", "tm.to_dict(entity)"), ("json", "tm.to_json(entity)"),
        ("etag", "tm.info(entity).etag"),
        ("Timestamp", "tm.info(entity).timestamp, or tm.timestamp(Item) in a query"),
        ("PartitionKey", "tm.info(entity).partition_key"), ("RowKey", "tm.info(entity).row_key"),
        (
            "metadata",
            "tm.schema_snapshot([Item]) of a class, or tm.info(entity) of an entity; tables need no creation, tm.open does it",
        ),
    ],
)  # fmt: skip
def test_a_class_and_an_entity_of_another_library_say_what_to_write(name: str, mend: str) -> None:
    for one, what in ((Item, "Item"), (Item("a", 1), "the Item entity")):
        with pytest.raises(AttributeError) as caught:
            getattr(one, name)
        assert str(caught.value) == f"{what} has no .{name}; write {mend}"
        assert not hasattr(one, name)


def test_every_word_for_an_entity_names_what_is_there() -> None:
    for name, mend in FOREIGN_NAMES["entity"].items():
        for verb in re.findall(r"\b(?:store|tm)\.(\w+)", mend):
            assert hasattr(tm.Store, verb) or hasattr(tm, verb), (name, mend)


def test_a_name_of_others_can_be_a_field_a_method_or_come_from_a_base() -> None:
    timed = Timed("x", datetime(2026, 3, 1, tzinfo=UTC))
    assert (timed.save, timed.update(), Timed.get(), timed.get()) == ("x", "updated", "got", "got")
    assert repr(Timed.save) == "Timed.save"
    timed.save = "y"
    assert timed.save == "y"

    class Mixin:
        __slots__ = ()

        def json(self) -> str:
            return "of the base"

        @classmethod
        def scan(cls) -> str:
            return cls.__name__

    class Abstract(tm.Entity):
        pk: tm.Field[str]

    class Mixed(Abstract, Mixin, table="Mixed"):
        key = tm.Key[str](partition="{pk}")

    mixed = Mixed("a")
    assert (mixed.json(), mixed.scan(), Mixed.scan(), mixed.pk, repr(Abstract.pk)) == (
        "of the base", "Mixed", "Mixed", "a", "Abstract.pk",
    )  # fmt: skip
    for again in (copy.copy(mixed), copy.deepcopy(mixed), mixed.replace()):
        assert again == mixed
    assert {"json", "scan", "pk"} <= set(dir(mixed)) & set(dir(Mixed))


def test_completion_offers_only_what_is_there(store: tm.Store) -> None:
    for one in (Item, Item("a", 1), store, store.transaction(), Item.text):
        assert [name for name in dir(one) if not name.startswith("_") and not hasattr(one, name)] == []
    assert {"insert", "query"} <= set(dir(store))
    assert {"where", "first"} <= set(dir(store.query(Item))).difference(FOREIGN_NAMES["query"])
    assert set(dir(store.query(Item))).isdisjoint(set(FOREIGN_NAMES["query"]) - set(OPERATIONS))


async def test_a_synchronous_store_is_not_opened_with_async_with(store: Any) -> None:
    for one, what in ((store, "Store"), (store.transaction(), "Transaction")):
        with pytest.raises(TypeError, match=f"with, not async with, is for a {what}; to await it, tm.open_async opens"):
            async with one:
                pass


@pytest.mark.file
@pytest.mark.parametrize("path", [":memory", "memory:", ":Memory:", " :memory:", ":mem:", ":x.db"])
def test_a_path_that_means_a_store_in_memory_is_refused(path: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tm.NotAStore, match='is no path; write ":memory:" for a store that is never saved'):
        tm.open(path, models=[Item])
    assert list(tmp_path.iterdir()) == []
    tm.open("memory", models=[Item]).close()


def test_values_as_json_has_them_name_the_function_that_reads_them() -> None:
    build: Any = Timed
    with pytest.raises(tm.InvalidEntity) as caught:
        build(save="a", at="2026-03-01T12:00:00Z", price="9.50")
    mend = "; tm.from_dict(Timed, …) reads values as JSON has them"
    assert list(caught.value.faults) == [
        f"at: expected datetime, got str '2026-03-01T12:00:00Z'{mend}",
        f"price: expected Decimal, got str '9.50'{mend}",
    ]
    with pytest.raises(tm.InvalidEntity) as caught:
        build(save="a", at="tomorrow")
    assert list(caught.value.faults) == ["at: expected datetime, got str 'tomorrow'"]


def test_an_index_of_another_library_says_what_to_write() -> None:
    index: Any = tm.Index
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'partition'"):
        index("{text}")
    with pytest.raises(tm.InvalidModel) as caught:

        class Wrong(tm.Entity, table="Wrong"):
            text: tm.Field[str]
            key = tm.Key[str]("{text}", partition="{text}")  # type: ignore[arg-type]
            by_text = index(partition="{text}", fields=["text"], uniqe=True)

    assert list(caught.value.faults)[:3] == [
        "key '{text}': name the argument, partition= or row=",
        'by_text fields= is not an option of an index; templates name them: partition="{city}", row="{name}"',
        'by_text uniqe= is not an option of an index; did you mean "unique"?',
    ]
