"""Several stores in one account: their prefixes, and which of them a table belongs to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.catalogue import claims
from tablemapper.engines.azure.catalogue.publication import FORMAT
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables.reserved_names import CLAIM
from tablemapper.engines.azure.tables.service import (
    CreateTable,
    DeleteTable,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    ListTables,
    QueryEntities,
    RowChange,
)
from tablemapper.schema.model import compile_schema

from ...classes import entity
from ...threads import at_once
from .memory import Faulty, Memory
from .place import AzurePlace


class Thing(tm.Entity, table="Things"):
    color: tm.Field[str]
    id: tm.Field[str]
    code: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, str](partition="{color}", row="{id}")
    by_id = tm.Index[str](partition="{id}")
    by_code = tm.Index[str](partition="{code}", unique=True)


class Color(tm.Aggregate, of=Thing, table="Colors"):
    color: tm.Field[str] = tm.group_by(Thing.color)
    things: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="{color}")


MODELS = [Thing, Color]
TABLES = ["Things", "Colors", "ThingsById", "ThingsByCode"]


def opened(memory: Memory, prefix: str = "TableMapper", models: Any = MODELS, **options: Any) -> tm.Store:
    """Open a store of an account; a service that does not wait gives its answers at once."""
    clock = {"sleep": lambda seconds: setattr(memory, "ahead", memory.ahead + 100 * seconds)}
    return tm.Store(AzureEngine.open(memory, "here", compile_schema(models), catalogue=prefix, **clock, **options))


def owners(memory: Memory) -> dict[str, str]:
    """Return the catalogue that each table with a claim belongs to."""
    rows = {name: table.get((CLAIM, CLAIM)) for name, table in memory.tables.items()}
    return {name: row.typed["catalogue"][1] for name, row in rows.items() if row is not None}


def everything(memory: Memory) -> dict[str, Any]:
    return {name: dict(table) for name, table in memory.tables.items()}


def use(store: tm.Store) -> None:
    """Call what reads and writes."""
    store.insert_many([Thing("red", f"t{number}", f"c{number}") for number in range(5)])
    store.merge(Thing.key("red", "t1"), code="other")
    store.delete(Thing.key("red", "t2"))
    assert [one.id for one in store.query(Thing.by_id("t1"))] == ["t1"]
    assert [one.id for one in store.query(Thing.by_code("other"))] == ["t1"]
    assert [one.id for one in store.query(Thing).allow_scan()] == ["t0", "t1", "t3", "t4"]
    assert len(list(store.query(Thing.by_id()).allow_scan())) == 4
    assert store[Color.key("red")].things == 4
    assert next(iter(store.partition(Thing.color == "red"))) == store[Thing.key("red", "t0")]
    assert store.statistics(Thing).entities == 4
    assert store.sweep(full=True) == 0
    assert store.check().ok, str(store.check())


def test_each_table_says_whose_it_is_and_nobody_sees_that() -> None:
    memory = Memory()
    with opened(memory) as store:
        assert owners(memory) == dict.fromkeys(TABLES, "TableMapper")
        use(store)
        assert store.repair().ok
        assert store.clear(Thing) == 4
        assert store.check().ok
        assert list(store.query(Color).allow_scan()) == []
    assert owners(memory) == dict.fromkeys(TABLES, "TableMapper")


def test_a_prefix_is_the_name_of_the_catalogue_and_what_names_of_tables_begin_with(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = Memory()
    with opened(memory, "Staging") as staging, opened(memory) as plain:
        staging.insert(Thing("red", "before", None))
        use(plain)
        staging.delete(Thing.key("red", "before"))
        assert "reads the whole table Things" in caplog.text
        use(staging)
        assert "reads the whole table StagingThings" in caplog.text
        assert "here Staging…" in repr(staging)
        assert "Staging" not in repr(plain)
    assert set(memory.tables) == {"TableMapper", "Staging", *TABLES, *(f"Staging{one}" for one in TABLES)}
    assert owners(memory) == {**dict.fromkeys(TABLES, "TableMapper"), **{f"Staging{one}": "Staging" for one in TABLES}}
    with opened(memory, "staging") as again:  # (names of tables have no case)
        assert again.check().entities == 4
        again.insert(Thing("blue", "x", None))
    assert len(memory.tables) == 10


def test_no_request_leaves_the_prefix() -> None:
    memory = Memory()
    newer = entity(
        "Thing", "Things", {"color": str, "id": str, "code": (str | None, tm.field(default=None)), "size": (int, tm.field(default=1))},
        tm.Key[str, str](partition="{color}", row="{id}"), by_size=tm.Index[int](partition="{size}"),
    )  # fmt: skip

    with opened(memory, "Staging") as store:
        use(store)
        store.query(Thing).where(Thing.color == "red").update(lambda one: one.replace(code=None), resume="named")
        store.freeze()
        store.unfreeze()
    with opened(memory, "Staging", [newer]) as store:
        store.build()
        assert len(list(store.query(newer.by_size(1)))) == 4
        assert store.repair().ok
    sent = [one for one in memory.sent if not isinstance(one, ListTables)]
    named = [one.name if isinstance(one, CreateTable | DeleteTable) else one.table for one in sent]
    assert {name for name in named if not name.startswith("Staging")} == set()
    lists = [one for one in memory.sent if isinstance(one, ListTables)]
    assert {(one.first, one.end) for one in lists} == {("STAGING", "staging{")}


def test_a_table_of_another_catalogue_is_refused_and_nothing_is_written() -> None:
    memory = Memory()
    opened(memory, "Sta", [entity("Other", "gingThings", {"id": str}, tm.Key[str](partition="{id}"))]).close()
    before = everything(memory)
    with pytest.raises(tm.NotAStore) as caught:
        opened(memory, "Staging")
    assert str(caught.value) == (
        "the table StagingThings belongs to the catalogue Sta of this account, and this store has the catalogue Staging; "
        "choose another table=, or a prefix="
    )
    with pytest.raises(tm.NotAStore, match="belongs to the catalogue Sta"):
        opened(memory, "Staging", adopt=True)  # (which it knows)
    assert everything(memory) == before


@pytest.mark.parametrize("seed", range(4))
def test_of_two_that_want_a_table_at_the_same_moment_one_has_it(seed: int) -> None:
    memory = Memory()
    inner = entity("Inner", "bThings", {"id": str}, tm.Key[str](partition="{id}"))
    outer = entity("Outer", "Things", {"id": str}, tm.Key[str](partition="{id}"))

    def open_it(prefix: str, model: Any) -> Callable[[], str]:
        def call() -> str:
            try:
                opened(memory, prefix, [model]).close()
            except tm.NotAStore:
                return "refused"
            return prefix

        return call

    calls = [open_it("R0a", inner), open_it("R0ab", outer)][:: 1 - 2 * (seed % 2)]
    results = at_once(*calls)
    assert sorted(results)[1] == "refused"
    assert owners(memory)["R0abThings"] == sorted(results)[0]


def test_a_store_of_an_older_version_gets_claims_once_and_its_indexes_none() -> None:
    memory = Memory()
    with opened(memory) as store:
        use(store)
    for table in TABLES:
        memory.tables[table] = {key: row for key, row in memory.tables[table].items() if key != (CLAIM, CLAIM)}
    for _ in range(2):  # (it drops what it does not know when it publishes)
        head = memory.tables["TableMapper"]["store", "head"]
        memory.tables["TableMapper"]["store", "head"] = attrs_without(head, "claims")
        with opened(memory) as store:
            assert store.check().ok
        assert owners(memory) == dict.fromkeys(["Things", "Colors"], "TableMapper")
        sent = len(memory.sent)
        with opened(memory) as store:
            assert {type(one) for one in memory.sent[sent:]} == {QueryEntities, ListTables}


def attrs_without(stored: Any, name: str) -> Any:
    return type(stored)(
        {key: value for key, value in stored.typed.items() if key != name}, stored.etag, stored.timestamp
    )


def test_a_catalogue_whose_name_was_no_prefix_keeps_the_names_of_its_tables() -> None:
    memory = Memory()
    opened(memory).close()
    memory.tables["Staging"] = memory.tables.pop("TableMapper")
    for table in TABLES:  # (the claims are of an older version)
        memory.tables[table] = {}
    memory.tables["Staging"]["store", "head"] = attrs_without(memory.tables["Staging"]["store", "head"], "claims")
    newer = entity("Later", "Later", {"id": str}, tm.Key[str](partition="{id}"))
    with opened(memory, "Staging", [*MODELS, newer]) as store:
        use(store)
    assert set(memory.tables) == {"Staging", "Later", *TABLES}
    assert set(owners(memory).values()) == {"Staging"}
    del memory.tables["Colors"]
    with opened(memory, "Staging", [*MODELS, newer]) as store:  # (it is made again under that name, too)
        store.build()
        assert store[Color.key("red")].things == 4
        assert store.check().ok


@pytest.mark.parametrize("way", ["before", "after", "lost"])
def test_who_is_killed_at_any_request_of_a_first_open_leaves_what_the_next_one_opens(way: str) -> None:
    whole = Faulty()
    opened(whole, "Staging").close()
    for at in range(1, whole.number + 1):
        memory = Faulty()
        memory.at, memory.way = at, way
        with suppress(KeyboardInterrupt):
            opened(memory, "Staging").close()
        memory.at = -1
        with opened(memory, "Staging") as store:
            use(store)
        assert owners(memory) == {f"Staging{one}": "Staging" for one in TABLES}


def test_a_claim_of_a_catalogue_that_is_gone_is_taken_over_when_it_is_old_enough() -> None:
    memory = Memory()
    with opened(memory, "Old", [entity("Other", "Things", {"id": str}, tm.Key[str](partition="{id}"))]):
        memory.tables["Newer"] = {}
        memory.tables["NewThings"] = memory.tables.pop("OldThings")
    before = everything(memory)
    with pytest.raises(
        tm.NotAStore, match="Old of this account, which does not know it any more: adopt= takes it over, and"
    ):
        opened(memory, "New")
    with pytest.raises(tm.NotAStore, match=r"which does not know it yet: adopt= takes it over in \d+ s, and"):
        opened(memory, "New", adopt=["Things"])
    assert everything(memory) == before
    memory.ahead += claims._FRESH + 2
    with opened(memory, "New", adopt=["Things"]) as store:
        use(store)
    assert owners(memory)["NewThings"] == "New"


def test_a_prefix_that_cannot_be_is_refused_before_anything_is_written() -> None:
    memory = Memory()
    long = "P" * 60
    with pytest.raises(tm.InvalidModel, match=f"{long}Things: 66 characters, of which the name of a table has 63"):
        opened(memory, long)
    twice = entity("Twice", "StagingThings", {"id": str}, tm.Key[str](partition="{id}"))
    with pytest.raises(tm.InvalidModel, match='"StagingThings" has the name that "Things" has with the prefix Staging'):
        opened(memory, "Staging", [*MODELS, twice])
    with pytest.raises(tm.InvalidModel, match="is that of the catalogue"):
        opened(memory, "Things")
    assert memory.tables == {}


def test_who_may_not_list_tables_opens_all_the_same() -> None:
    class Denied(Memory):
        def send(self, request: Any, *wait: float) -> Any:
            if isinstance(request, ListTables):
                raise ErrorResponse(403, "AuthorizationPermissionMismatch")
            return super().send(request, *wait)

    memory = Denied()
    for _ in range(2):
        with opened(memory, "Staging") as store:
            store.clear(Thing)
            use(store)
    other = entity("Other", "gingThings", {"id": str}, tm.Key[str](partition="{id}"))
    with pytest.raises(tm.NotAStore, match="belongs to the catalogue Staging"):
        opened(memory, "Sta", [other])


def test_a_table_that_is_being_deleted_is_waited_for_or_said() -> None:
    class Deleting(Memory):
        left = 3

        def send(self, request: Any, *wait: float) -> Any:
            if isinstance(request, CreateTable) and request.name == "Things" and self.left > 0:
                self.left -= 1
                raise ErrorResponse(409, "TableBeingDeleted")
            return super().send(request, *wait)

    with opened(Deleting()) as store:
        use(store)
    memory, now = Deleting(), iter(range(10_000))
    memory.left = 10_000
    with pytest.raises(
        tm.StoreLocked, match="the table Things is being deleted, which takes the service up to a minute"
    ):
        opened(memory, monotonic=lambda: float(next(now)))


def test_whoever_opens_a_new_store_at_once_has_one_catalogue() -> None:
    memory = Memory()
    ids = at_once(*[lambda: opened(memory, "Staging")._engine.store_id] * 4)
    assert len(set(ids)) == 1
    assert owners(memory) == {f"Staging{one}": "Staging" for one in TABLES}


def test_a_program_of_an_unknown_format_is_refused_and_one_that_knows_no_prefix() -> None:
    memory = Memory()
    opened(memory, "Staging").close()
    assert memory.tables["Staging"]["store", "head"].typed["format"] == ("Int32", 2)
    opened(memory).close()
    assert memory.tables["TableMapper"]["store", "head"].typed["format"] == ("Int32", 1)
    memory.send(GroupTransaction("Staging", "store", (RowChange("merge", "head", {"format": FORMAT + 1}, "*"),)))
    with pytest.raises(tm.NotAStore, match=f"Staging has format {FORMAT + 1}"):
        opened(memory, "Staging")


def test_a_new_store_is_three_requests_a_table_at_most_side_by_side() -> None:
    memory = Memory()
    opened(memory, "Staging").close()
    kinds = [type(one).__name__ for one in memory.sent]
    assert kinds.count("CreateTable") == 1 + len(TABLES)
    assert (
        len([one for one in memory.sent if isinstance(one, GroupTransaction)]) == len(TABLES) + 2
    )  # (clock, catalogue)
    assert not [one for one in memory.sent if isinstance(one, GetEntity) and one.row == CLAIM]


def test_copies_of_migrations_have_the_prefix_and_belong_to_the_store() -> None:
    memory = Memory()
    members = {"color": str, "id": str}
    before = entity("Thing", "Things", members, tm.Key[str, str](partition="{color}", row="{id}"))
    after = entity("Thing", "Things", members, tm.Key[str, str](partition="{id}", row="{color}"))

    @tm.migration(after=None, old=[before], new=[after])
    def turn(m: tm.Migration) -> None:
        m.rekey(before, after)

    place = AzurePlace(memory=memory, catalogue="Staging")
    with tm.open(place, models=[before]) as store:
        store.insert_many([before("red", f"t{number}") for number in range(5)])
    assert tm.migrate(place, [turn], contract=True).ok
    with tm.open(place, models=[after]) as store:
        assert store[after.key("t1", "red")].color == "red"
        assert store.check().ok
    (copy,) = set(memory.tables) - {"Staging"}
    assert copy.startswith("StagingThingsx")
    assert owners(memory) == {copy: "Staging"}
    sent = [
        one.name if isinstance(one, CreateTable | DeleteTable) else getattr(one, "table", "") for one in memory.sent
    ]
    assert {name for name in sent if name and not name.startswith("Staging")} == set()


class Meanwhile(Memory):
    """A service on which another program does something, just before a request."""

    before: Callable[[Any], bool] = lambda _: False
    does: Callable[[], object] = lambda: None

    def send(self, request: Any, *wait: float) -> Any:
        if self.before(request):
            self.before = lambda _: False
            self.does()
        return super().send(request, *wait)


def test_a_claim_that_another_catalogue_inserts_first_decides() -> None:
    memory = Meanwhile()
    memory.before = lambda one: isinstance(one, GroupTransaction) and one.table == "Things" and one.partition == CLAIM
    theirs = RowChange("insert", CLAIM, {"catalogue": "Theirs"})
    memory.does = lambda: memory.send(GroupTransaction("Things", CLAIM, (theirs,)))
    with pytest.raises(tm.NotAStore, match="the table Things belongs to the catalogue Theirs"):
        opened(memory)
    assert owners(memory)["Things"] == "Theirs"


def test_who_opens_a_store_that_another_creates_and_fills_meanwhile_opens_that() -> None:
    memory = Meanwhile()
    memory.before = lambda one: isinstance(one, QueryEntities) and one.table == "Things"
    memory.send(CreateTable("Things"))  # (so it is looked at)
    memory.does = lambda: opened(memory).insert(Thing("red", "a", "c"))
    with opened(memory) as store:
        assert store[Thing.key("red", "a")].code == "c"
        assert store.check().ok


def test_a_table_that_a_list_lacks_is_looked_at_all_the_same() -> None:
    class Lagging(Memory):
        def send(self, request: Any, *wait: float) -> Any:
            page = super().send(request, *wait)
            return type(page)([]) if isinstance(request, ListTables) else page

    memory = Lagging()
    memory.send(CreateTable("Things"))
    memory.send(GroupTransaction("Things", "x", (RowChange("insert", "y", {"z": 1}),)))
    before = dict(memory.tables["Things"])
    with pytest.raises(tm.NotAStore, match="the table Things holds entities"):
        opened(memory)
    assert memory.tables["Things"] == before


def test_what_a_script_replaced_is_not_adopted() -> None:
    memory = Memory()
    key = tm.Key[str](partition="{id}")
    before, after = (
        entity("Thing", "Things", {"id": str}, key),
        entity("Item", "Items", {"id": str}, tm.Key[str](partition="{id}")),
    )

    @tm.migration(after=None, old=[before], new=[after])
    def move(m: tm.Migration) -> None:
        m.rename_class(before, after)

    place = AzurePlace(memory=memory, catalogue="Staging")
    with tm.open(place, models=[before]) as store:
        store.insert(before("a"))
    assert tm.migrate(place, [move]).ok
    other = entity("Other", "Things", {"id": str}, tm.Key[str](partition="{id}"))
    with pytest.raises(tm.SchemaMismatch, match='the table "StagingThings" has what move replaced'):
        opened(memory, "Staging", [after, other], adopt=True)
    with pytest.raises(tm.NotAStore, match="belongs to the catalogue Staging"):
        opened(memory, "Sta", [entity("Else", "gingThings", {"id": str}, tm.Key[str](partition="{id}"))], adopt=True)
