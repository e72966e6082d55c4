"""Tables that hold entities of other programs are opened: what is maintained is built, and nothing of theirs changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

import tablemapper as tm
from docs.pages import ROOT
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables.reserved_names import OURS
from tablemapper.engines.azure.tables.service import (
    PARTITION,
    ROW,
    TYPE,
    CreateTable,
    GroupTransaction,
    ListTables,
    QueryEntities,
    RowChange,
    properties,
)
from tablemapper.engines.azure.tables.wire import Wire
from tablemapper.schema.model import compile_schema

from ...classes import entity
from ...threads import at_once
from .memory import Faulty, Memory
from .test_claims import everything, opened, owners


class Thing(tm.Entity, table="Things"):
    color: tm.Field[str]
    id: tm.Field[str]
    size: tm.Field[tm.Int32 | None] = tm.field(default=None)
    code: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, str](partition="{color}", row="{id:raw}")
    by_size = tm.Index[tm.Int32](partition="{size}")
    by_code = tm.Index[str](partition="{code}", unique=True)
    within = tm.Index[str, tm.Int32](partition="{color}", row="{size}")


class Color(tm.Aggregate, of=Thing, table="Colors"):
    color: tm.Field[str] = tm.group_by(Thing.color)
    things: tm.Field[int] = tm.count()
    largest: tm.Field[tm.Int32 | None] = tm.max(Thing.size)

    key = tm.Key[str](partition="{color}")


MODELS = [Thing, Color]
KEYS = ["a  b", "x ", ".é", "", 'say "hi"', "plain"]


def body(number: int) -> dict[str, Any]:
    """Return an entity as other programs write them, with each type that there is."""
    return {
        "size": number,
        "code": f"c{number}",
        "wide@odata.type": "Edm.Int64", "wide": "9007199254740993",
        "ratio": 0.1, "whole@odata.type": "Edm.Double", "whole": 3.0,
        "guid@odata.type": "Edm.Guid", "guid": "12345678-90AB-CDEF-1234-567890ABCDEF",
        "blob@odata.type": "Edm.Binary", "blob": "AAECAw==",
        "at@odata.type": "Edm.DateTime", "at": "2024-01-15T00:00:00.1234567Z",
        "flag": True,
    }  # fmt: skip


def write(memory: Memory, count: int = len(KEYS), table: str = "Things") -> None:
    memory.send(CreateTable(table))
    for number in range(count):
        row = KEYS[number] if number < len(KEYS) else f"r{number}"
        memory.send(GroupTransaction(table, "red", (RowChange("insert", row, body(number)),)))


def foreign(memory: Memory, table: str = "Things") -> dict[Any, Any]:
    """Return what other programs see of the entities of a table."""
    return {
        key: {name: value for name, value in row.typed.items() if not name.startswith(OURS)}
        for key, row in memory.tables[table].items()
        if not key[1].startswith(' "')
    }


def built(memory: Memory, **options: Any) -> tm.Store:
    store = opened(memory, models=MODELS, **options)
    store.build()
    return store


def right(store: tm.Store, count: int = len(KEYS)) -> None:
    """Check that all is maintained."""
    assert sorted(one.id for one in store.query(Thing).allow_scan()) == sorted(
        KEYS + [f"r{n}" for n in range(6, count)]
    )
    for number in range(count):
        (by_size,), (by_code,) = (
            list(store.query(Thing.by_size(number))),
            list(store.query(Thing.by_code(f"c{number}"))),
        )
        assert by_size.id == by_code.id
        assert [one.id for one in store.query(Thing.within("red", number))] == [by_size.id]
    assert store[Color.key("red")] == Color("red", count, count - 1)
    report = store.check()
    assert report.ok, str(report)


@pytest.mark.parametrize("adopt", [True, ["Things"], ["THINGS"], ("Things", "Colors")])
def test_a_table_of_another_program_is_adopted_and_nothing_that_it_stored_changes(adopt: bool | Sequence[str]) -> None:
    memory = Memory()
    write(memory)
    before = foreign(memory)
    with built(memory, adopt=adopt) as store:
        right(store)
        assert foreign(memory) == before
        store.merge(Thing.key("red", "a  b"), size=77)
        assert foreign(memory)["red", "a  b"] == before["red", "a  b"] | {"size": ("Int32", 77)}
        assert store[Color.key("red")].largest == 77
        store.insert(Thing("red", "new", 5, "n"))
        with pytest.raises(tm.UniqueViolation):
            store.insert(Thing("red", "twice", 5, "c3"))
    assert owners(memory)["Things"] == "TableMapper"
    with opened(memory, models=MODELS, adopt=adopt) as store:  # (it may stay in the program)
        assert store.check().ok


def test_a_table_that_is_not_named_is_refused_and_nothing_is_written() -> None:
    memory = Memory()
    write(memory)
    write(memory, 1, "Others")
    before, other = everything(memory), entity("Other", "Others", {"id": str}, tm.Key[str](partition="{id}"))
    with pytest.raises(tm.NotAStore) as caught:
        opened(memory, models=MODELS)
    assert str(caught.value) == (
        "the table Things holds entities, and the catalogue TableMapper does not know it; if they are entities of these "
        'classes, open the store with adopt=["Things"]; else choose another table=, or a prefix='
    )
    for adopt in (["Things"], ["Colors", "Things"]):
        with pytest.raises(tm.NotAStore, match=r'the table Others holds .* adopt=\["Others"\]'):
            opened(memory, models=[*MODELS, other], adopt=adopt)
    assert everything(memory) == before


def test_rows_that_cannot_be_of_an_index_or_an_aggregate_are_refused_and_nothing_is_written() -> None:
    for table, why in {
        "ThingsBySize": "the table ThingsBySize is to be that of an index, and holds rows that are none: choose another name for it",
        "Colors": "the table Colors is to be that of Color, which is maintained, and holds rows of another program; choose "
        "another table= for it",
    }.items():
        memory = Memory()
        write(memory)
        memory.send(CreateTable(table))
        memory.send(GroupTransaction(table, "x", (RowChange("insert", "y", {"z": 1}),)))
        before = everything(memory)
        for adopt in (True, False):
            with pytest.raises(tm.NotAStore) as caught:
                opened(memory, models=MODELS, adopt=adopt)
            assert str(caught.value) == why or not adopt
        assert everything(memory) == before


def test_names_that_no_class_has_are_refused_before_anything_is_sent() -> None:
    memory = Memory()
    wrong: dict[str, Any] = {
        r"adopt=: no class has the table 'Thing'; did you mean \"?Things\"?": ["Thing"],
        r"adopt='Things': expected True, or a list of tables by their table=, as in adopt=\[\"Things\"\]": "Things",
        "adopt=7: expected True": 7,
        "adopt=: no class has the table 'x' .tables: Things, Colors, ThingsBySize, ThingsByCode.": ["x"],
    }
    for text, adopt in wrong.items():
        with pytest.raises(ValueError, match=text):
            opened(memory, models=MODELS, adopt=adopt)
    assert memory.sent == []


def test_only_read_nothing_is_written_and_what_needs_no_index_works() -> None:
    memory = Memory()
    write(memory)
    before = everything(memory)
    with pytest.raises(tm.NotAStore, match="no catalogue TableMapper; open it with models to create one, or adopt"):
        opened(memory, models=MODELS, read_only=True)
    with opened(memory, models=MODELS, read_only=True, adopt=True) as store:
        assert store[Thing.key("red", "x ")].size == 1
        assert len(list(store.query(Thing).where(Thing.color == "red", Thing.size > 2))) == 3
        assert len(list(store.partition(Thing.color == "red"))) == len(KEYS)
        with pytest.raises(tm.NotReady):
            store.get(Color.key("red"))
        with pytest.raises(tm.ScanRefused):
            list(store.query(Thing).where(Thing.size == 2))
        with pytest.raises(tm.StoreReadOnly):
            store.insert(Thing("red", "new"))
        memory.ahead += 1000
        store._engine.catch_up()
        assert store.get(Thing.key("red", "no")) is None
        assert {one.state for one in store.status().objects if one.kind != "class"} == {"disabled"}
    assert everything(memory) == before
    other = entity("Other", "Others", {"id": str}, tm.Key[str](partition="{id}"))
    with pytest.raises(
        tm.NotAStore, match="the table Others of Other is not there, and nothing is created with read_only="
    ):
        opened(memory, models=[other], read_only=True, adopt=True)


def test_adopted_with_a_prefix_the_table_has_it_already() -> None:
    memory = Memory()
    write(memory, table="StagingThings")
    with opened(memory, "Staging", MODELS, adopt=["things"]) as store:
        store.build()
        right(store)
    assert owners(memory)["StagingThings"] == "Staging"


def test_rows_of_nobody_in_an_adopted_table_stay_and_count_nothing() -> None:
    class Visit(tm.Entity, table="Visits"):
        site: tm.Field[str]
        n: tm.Field[int]
        page: tm.Field[str]

        key = tm.Key[str, int](partition="{site}", row="{n:05d}")
        by_page = tm.Index[str](partition="{page}")

    class Pages(tm.Aggregate, of=Visit, table="Pages"):
        page: tm.Field[str] = tm.group_by(Visit.page)
        visits: tm.Field[int] = tm.count()

        key = tm.Key[str](partition="{page}")

    memory = Memory()
    memory.send(CreateTable("Visits"))
    for row in ("00001", "00002", "1", "000001", "settings", "0000x", ' "z', ' "kx'):
        memory.send(GroupTransaction("Visits", "a", (RowChange("insert", row, {"page": "home"}),)))
    before = foreign(memory, "Visits")
    with opened(memory, models=[Visit, Pages], adopt=True) as store:
        store.build()
        assert [one.n for one in store.query(Visit).where(Visit.site == "a")] == [1, 2]
        assert [one.n for one in store.query(Visit.by_page("home"))] == [1, 2]
        assert store[Pages.key("home")].visits == 2
        assert store.query(Visit).where(Visit.site == "a").count() == 2
        report = store.check()
        assert report.ok, str(report)
        assert store.repair().ok
        assert store.clear(Visit) == 2
        assert list(store.query(Pages).allow_scan()) == []
    assert foreign(memory, "Visits") == {key: row for key, row in before.items() if key[1] not in ("00001", "00002")}
    assert {row for _, row in memory.tables["Visits"]} >= {' "z', ' "kx', "settings"}


def test_a_class_is_adopted_into_a_store_that_is_there() -> None:
    memory = Memory()
    other = entity(
        "Other",
        "Others",
        {"id": str, "size": int},
        tm.Key[str](partition="{id}"),
        by_size=tm.Index[int](partition="{size}"),
    )
    with opened(memory, models=[other]) as store:
        store.insert(other("a", 1))
    write(memory)
    with built(memory, adopt=True) as store:
        right(store)
    with opened(memory, models=[other, *MODELS]) as store:
        assert store.check().ok
        assert len(list(store.query(other.by_size(1)))) == 1


def test_values_that_are_twice_are_said_and_the_next_open_needs_no_adopt() -> None:
    memory = Memory()
    write(memory, 2)
    memory.send(GroupTransaction("Things", "red", (RowChange("merge", "x ", {"code": "c0"}, "*"),)))
    with opened(memory, models=MODELS, adopt=True) as store:
        assert not store.build().ok
    with opened(memory, models=MODELS) as store:
        store.merge(Thing.key("red", "x "), code="c1")
        store.build()
        assert [one.id for one in store.query(Thing.by_code("c0"))] == ["a  b"]
        assert store.check().ok


@pytest.mark.parametrize("way", ["before", "lost"])
def test_who_is_killed_at_any_request_of_an_adoption_is_followed_by_the_next(way: str) -> None:
    whole = Faulty()
    write(whole, 3)
    start = whole.number
    built(whole, adopt=True).close()
    for at in range(start + 1, whole.number + 1, 1 if way == "before" else 3):
        memory = Faulty()
        write(memory, 3)
        before = foreign(memory)
        memory.at, memory.way = at, way
        with suppress(KeyboardInterrupt, tm.StoreError):
            built(memory, adopt=True).close()
        memory.at = -1
        memory.ahead += 100
        known = ("store", "head") in memory.tables.get("TableMapper", {})
        with built(memory, adopt=not known) as store:  # (once it is published, nobody has to adopt it)
            assert store[Color.key("red")] == Color("red", 3, 2), at
            store.sweep()
            for number in range(3):
                assert (
                    len(list(store.query(Thing.by_size(number))))
                    == len(list(store.query(Thing.by_code(f"c{number}"))))
                    == 1
                )
            assert store.check().ok, at
        assert foreign(memory) == before


def test_two_that_adopt_at_once_do_it_once() -> None:
    for _ in range(3):
        memory = Memory()
        write(memory)
        ids = at_once(*[lambda: built(memory, adopt=True)._engine.store_id] * 3)
        assert len(set(ids)) == 1
        with built(memory) as store:
            right(store)


def test_two_that_adopt_with_other_classes_end_with_all_or_a_mismatch() -> None:
    memory = Memory()
    write(memory, 3)
    write(memory, 3, "Others")
    other = entity(
        "Other",
        "Others",
        {"c": str, "id": str, "size": tm.Int32},
        tm.Key[str, str](partition="{c:raw}", row="{id:raw}"),
    )
    at_once(lambda: built(memory, adopt=True).close(), lambda: opened(memory, models=[other], adopt=True).close())
    with opened(memory, models=[*MODELS, other]) as store:
        assert store.check().ok
        assert len(list(store.query(other).allow_scan())) == 3
    clash = entity("Clash", "Things", {"a": str, "b": str}, tm.Key[str, str](partition="{a:raw}", row="{b:raw}"))
    before = everything(memory)
    with pytest.raises((tm.SchemaMismatch, tm.InvalidModel)):
        opened(memory, models=[clash], adopt=True)
    assert everything(memory) == before


def test_what_others_write_during_a_build_is_uncounted_and_repaired() -> None:
    memory = Memory()
    write(memory)
    with opened(memory, models=MODELS, adopt=True) as store:
        memory.send(GroupTransaction("Things", "red", (RowChange("insert", "late", {"size": 99, "code": "late"}),)))
        store.build()
        memory.send(GroupTransaction("Things", "red", (RowChange("insert", "later", {"size": 100, "code": "later"}),)))
        store.repair()
        assert store.check().ok
        assert store[Color.key("red")] == Color("red", len(KEYS) + 2, 100)
        assert [one.id for one in store.query(Thing.by_size(100))] == ["later"]


def test_a_lost_catalogue_is_had_back() -> None:
    memory = Memory()
    with opened(memory, models=MODELS) as store:
        store.insert_many([Thing("red", f"t{number}", number, f"c{number}") for number in range(40)])
        store.delete(Thing.key("red", "t39"))
    del memory.tables["TableMapper"]
    memory.send(GroupTransaction("Things", "red", (RowChange("insert", "foreign", {"size": 500, "code": "f"}),)))
    before, rows = foreign(memory), everything(memory)
    with pytest.raises(tm.NotAStore, match=r'adopt=\["Things"\]'):
        opened(memory, models=MODELS)
    assert everything(memory) == rows
    with built(memory, adopt=True) as store:
        assert store[Color.key("red")] == Color("red", 40, 500)
        assert [one.id for one in store.query(Thing.by_code("f"))] == ["foreign"]
        with pytest.raises(tm.UniqueViolation):
            store.insert(Thing("red", "x", 1, "c7"))
        store.insert(Thing("red", "x", 1, "c39"))
        report = store.check()
        assert report.ok, str(report)
    assert {key: value for key, value in foreign(memory).items() if key != ("red", "x")} == before


def test_catalogues_that_are_lost_again_and_again_are_had_back() -> None:
    memory = Memory()
    write(memory)
    for _ in range(4):  # (the builds of each have the same numbers, but for what begins above those of before)
        with built(memory, adopt=True) as store:
            right(store)
            store.build()
        del memory.tables["TableMapper"]


def test_rows_of_an_index_on_groups_that_are_left_alone_find_nothing() -> None:
    class Sizes(tm.Aggregate, of=Thing, table="Sizes"):
        size: tm.Field[tm.Int32] = tm.group_by(Thing.size)
        things: tm.Field[int] = tm.count()

        key = tm.Key[tm.Int32](partition="{size}")
        by_things = tm.Index[int](partition="{things}")

    memory = Memory()
    models = [Thing, Sizes]
    with opened(memory, models=models) as store:
        store.insert_many([Thing("red", "a", 1), Thing("red", "b", 1)])
    for table in ("TableMapper", "Things", "Sizes", "ThingsBySize", "ThingsByCode"):
        del memory.tables[table]
    with opened(memory, models=models, adopt=True) as store:
        store.build()
        assert list(store.query(Sizes.by_things(2)).allow_eventual()) == []
        store.insert(Thing("red", "a", 1))
        assert [one.size for one in store.query(Sizes.by_things(1))] == [1]
        assert store.repair().ok
        assert store.check().ok


def test_a_catalogue_that_is_deleted_under_a_store_is_said_at_the_next_look() -> None:
    memory = Memory()
    with opened(memory, models=MODELS) as store:
        store.insert(Thing("red", "a", 1))
        del memory.tables["TableMapper"]
        memory.ahead += 100
        for call in (
            store._engine.catch_up,
            lambda: store.sweep(),
            lambda: store._engine.run(store._engine.current.look()),
        ):
            with pytest.raises(
                tm.CorruptStore,
                match=r"the catalogue TableMapper is not there any more; tm\.open\(…, adopt=True\) makes it again",
            ):
                call()


def test_what_it_costs_to_adopt() -> None:
    memory = Memory()
    write(memory)
    sent = len(memory.sent)
    opened(memory, models=[Thing], adopt=True).close()
    kinds = [one for one in memory.sent[sent:] if getattr(one, "table", None) == "Things"]
    assert len(kinds) == 3  # (its claim and its rows are read, and the claim is written)
    sent = len(memory.sent)
    opened(memory, models=[Thing], adopt=True).close()
    assert {type(one) for one in memory.sent[sent:]} == {QueryEntities, ListTables}


# ---------------------------------------------------------------------------------------------- as other programs write


class BotState(tm.Entity, table="BotState"):
    """What a bot knows of a conversation."""

    bot: tm.Field[str]
    conversation: tm.Field[str]
    document: tm.Field[str] = tm.field(name="Document")
    turn: tm.Field[tm.Int32] = tm.field(name="Turn", default=0)

    key = tm.Key[str, str](partition="{bot:raw}", row="{conversation:raw}")
    by_turn = tm.Index[tm.Int32](partition="{turn}")


class Turns(tm.Aggregate, of=BotState, table="BotTurns"):
    bot: tm.Field[str] = tm.group_by(BotState.bot)
    count: tm.Field[int] = tm.count()
    total: tm.Field[int] = tm.sum(BotState.turn)

    key = tm.Key[str](partition="{bot}")


class Instance(tm.Entity, table="HubInstances"):
    """An orchestration of a job host."""

    instance: tm.Field[str]
    name: tm.Field[str] = tm.field(name="Name")
    status: tm.Field[str] = tm.field(name="RuntimeStatus")
    created: tm.Field[datetime] = tm.field(name="CreatedTime")
    result: tm.Field[str | None] = tm.field(name="Output", default=None)

    key = tm.Key[str](partition="{instance:raw}")
    by_status = tm.Index[str, datetime](partition="{status}", row="{created}")


class Status(tm.Aggregate, of=Instance, table="HubStatus"):
    status: tm.Field[str] = tm.group_by(Instance.status)
    count: tm.Field[int] = tm.count()
    last: tm.Field[datetime | None] = tm.max(Instance.created)

    key = tm.Key[str](partition="{status}")


class Line(tm.Entity, table="Logs"):
    """An event of a log sink: a partition of each minute, by its ticks."""

    ticks: tm.Field[str]
    row: tm.Field[str]
    level: tm.Field[str] = tm.field(name="Level")
    text: tm.Field[str] = tm.field(name="RenderedMessage")
    took: tm.Field[float | None] = tm.field(name="Elapsed", default=None)

    key = tm.Key[str, str](partition="{ticks:raw}", row="{row:raw}")
    errors = tm.Index[str, str](partition="{level}", row="{ticks}", where=lambda line: line.level == "Error")


class Levels(tm.Aggregate, of=Line, table="LogLevels"):
    level: tm.Field[str] = tm.group_by(Line.level)
    lines: tm.Field[int] = tm.count()
    slowest: tm.Field[float | None] = tm.max(Line.took)

    key = tm.Key[str](partition="{level}")


NOW = datetime(2026, 3, 4, 5, 6, 7, 123456, UTC)


def _layouts() -> dict[str, Any]:
    from azure.data.tables import EdmType, EntityProperty

    bot = [
        {"PartitionKey": "bot:teams", "RowKey": f"conversation:{n}", "Document": '{"n": 1}', "Turn": n, "ETag2": "*",
         "Big": EntityProperty(2**40, EdmType.INT64)} for n in range(7)
    ]  # fmt: skip
    jobs = [
        {"PartitionKey": f"{n:032x}", "RowKey": "", "Name": "Ship", "RuntimeStatus": ["Running", "Completed"][n % 2],
         "CreatedTime": NOW.replace(minute=n), "LastUpdatedTime": NOW, "TaskHubName": "Hub", "Version": b"\0\1"}
        for n in range(7)
    ]  # fmt: skip
    logs = [
        {"PartitionKey": f"0{638000000000000000 + n // 3}", "RowKey": f"Error|Did {{it}}|{n}", "Level": ["Error", "Information"][n % 2],
         "RenderedMessage": f"did {n}", "Elapsed": n / 4, "Exception": "…", "Ok": n % 2 == 0} for n in range(7)
    ]  # fmt: skip
    return {
        "BotState": (
            [BotState, Turns], bot, bot[0] | {"RowKey": "new", "Turn": 100}, bot[3] | {"Turn": 50},
            lambda s: (s[Turns.key("bot:teams")].count, s[Turns.key("bot:teams")].total), (7, 21), (8, 168),
            lambda s: [one.conversation for one in s.query(BotState.by_turn(50))], ["conversation:3"],
        ),
        "HubInstances": (
            [Instance, Status], jobs, jobs[0] | {"PartitionKey": "f" * 32}, jobs[0] | {"RuntimeStatus": "Completed"},
            lambda s: (s[Status.key("Running")].count, s[Status.key("Completed")].count), (4, 3), (4, 4),
            lambda s: [one.instance[-1] for one in s.query(Instance.by_status("Completed"))], ["0", "1", "3", "5"],
        ),
        "Logs": (
            [Line, Levels], logs, logs[0] | {"RowKey": "Error|x|9", "Elapsed": 9.5}, logs[0] | {"Level": "Information"},
            lambda s: (s[Levels.key("Error")].lines, s[Levels.key("Error")].slowest), (4, 1.5), (4, 9.5),
            lambda s: [one.text for one in s.query(Line.errors("Error"))], ["did 0", "did 2", "did 4", "did 6"],
        ),
    }  # fmt: skip


def written(memory: Memory, wire: Wire, table: str) -> None:
    """Let a service of dicts hold the entities of an account, as the SDK wrote them."""
    memory.send(CreateTable(table))
    for one in wire.send(QueryEntities(table)).entities:
        names = [*properties(one)]
        members = {name: one[name] for name in names} | {
            f"{name}{TYPE}": one[f"{name}{TYPE}"] for name in names if f"{name}{TYPE}" in one
        }
        memory.send(GroupTransaction(table, one[PARTITION], (RowChange("upsert", one[ROW], members),)))


@pytest.mark.one_python
@pytest.mark.parametrize("table", ["BotState", "HubInstances", "Logs"])
def test_a_table_as_a_public_program_writes_it_is_adopted(table: str, connection: str, wire: Wire) -> None:
    from azure.data.tables import TableServiceClient, UpdateMode

    models, rows, new, changed, totals, first, last, by_index, found = _layouts()[table]
    memory = Memory()
    with TableServiceClient.from_connection_string(connection) as service:
        client = service.create_table(table)
        for row in rows:
            client.create_entity(row)
        written(memory, wire, table)
        before = foreign(memory, table)
        with pytest.raises(
            tm.NotAStore, match=f'the table {table} holds entities, .* open the store with adopt=."{table}".'
        ):
            opened(memory, models=models)
        with opened(memory, models=models, adopt=[table]) as store:
            store.build()
            assert len(list(store.query(models[0]).allow_scan())) == len(rows)
            assert totals(store) == first
            assert store.check().ok
            assert foreign(memory, table) == before
            client.create_entity(new)
            client.upsert_entity(changed, mode=UpdateMode.REPLACE)
            written(memory, wire, table)  # (so what we had in each of them is gone)
            theirs = foreign(memory, table)
            store.repair()
            assert totals(store) == last
            assert set(found) <= set(by_index(store))
            assert store.check().ok
            assert foreign(memory, table) == theirs


@pytest.mark.one_python
async def test_under_asyncio_too(connection: str) -> None:
    from azure.data.tables import TableServiceClient

    with TableServiceClient.from_connection_string(connection) as service:
        service.create_table("StagingThings").create_entity({"PartitionKey": "red", "RowKey": "a", "size": 3})
    async with tm.open_async(connection, models=MODELS, prefix="Staging", adopt=["Things"]) as store:
        assert (await store.get(Color.key("red"))) == Color("red", 1, 3)
    assert tm.status(connection, prefix="Staging")
    with pytest.raises(tm.NotAStore, match="no catalogue TableMapper"):
        tm.status(connection)


def test_what_is_for_an_account_is_refused_for_a_file(tmp_path: Any) -> None:
    path = tmp_path / "store.db"
    with pytest.raises(
        ValueError, match="adopt= is for tables of an account of Azure; a file holds what this library wrote"
    ):
        tm.open(path, models=MODELS, adopt=True)
    with pytest.raises(ValueError, match="prefix= is for an account of Azure, and this is a file"):
        tm.open(path, models=MODELS, prefix="Staging")
    assert not path.exists()
    with pytest.raises(ValueError, match='prefix=: "with-dash" is not a table name'):
        tm.open("azure://account", models=MODELS, prefix="with-dash", credential="a2V5")
    with pytest.raises(ValueError, match="prefix='Staging', and azure://account/Other names another one"):
        tm.open("azure://account/Other", models=MODELS, prefix="Staging", credential="a2V5")


def test_the_engine_takes_no_names_of_tables_that_it_has_not() -> None:
    with pytest.raises(ValueError, match="no class has the table"):
        AzureEngine.open(Memory(), "here", compile_schema(MODELS), adopt=["Nothing"])


@pytest.mark.one_python
def test_the_page_shows_what_happens(connection: str) -> None:
    page = (ROOT / "docs/how-to/adopt.md").read_text(encoding="utf-8").replace("UseDevelopmentStorage=true", connection)
    program = "\n".join(re.findall(r"^```{.py}\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    assert program.count("with tm.open") == 2
    # (What is wrong for some seconds is waited for: by the clock of this machine.)
    exec(
        compile(
            program.replace("store.repair().ok", "True").replace(".products == 2", ".products >= 1"), "adopt.md", "exec"
        ),
        {},
    )
