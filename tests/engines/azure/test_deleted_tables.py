"""Tables of a store that somebody deleted are made again, and what was in them, or came from them, is built anew."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.service import CreateTable, ErrorResponse, GroupTransaction, ListTables

from ...classes import entity
from ...store.test_drop import MODELS as DROPPED_MODELS
from ...store.test_drop import Hosts, Log
from .memory import Faulty, Memory
from .test_claims import MODELS, TABLES, Color, Thing, everything, opened, owners

ENTITIES = [Thing("red", f"t{number}", f"c{number}") for number in range(5)]


class Most(tm.Aggregate, of=Log, table="Mosts"):
    host: tm.Field[str] = tm.group_by(Log.host)
    most: tm.Field[int | None] = tm.max_ever(Log.number)

    key = tm.Key[str](partition="{host}")
    by_most = tm.Index[int](partition="{most}")


def filled(memory: Memory, prefix: str = "Staging") -> None:
    with opened(memory, prefix) as store:
        store.insert_many([one.replace() for one in ENTITIES])


def right(store: tm.Store, count: int) -> None:
    assert [len(list(store.query(Thing.by_id(one.id)))) for one in ENTITIES] == [count // 5] * 5
    assert [len(list(store.query(Thing.by_code(one.code)))) for one in ENTITIES] == [count // 5] * 5
    group = store.get(Color.key("red"))
    assert (0 if group is None else group.things) == count
    report = store.check()
    assert report.ok, str(report)
    assert report.entities == count


@pytest.mark.parametrize("prefix", ["Staging", "TableMapper"])
@pytest.mark.parametrize("table", TABLES)
def test_the_next_open_makes_a_table_again_with_all_that_belongs_to_it(table: str, prefix: str) -> None:
    memory = Memory()
    filled(memory, prefix)
    called = table if prefix == "TableMapper" else f"{prefix}{table}"
    del memory.tables[called]
    with opened(memory, prefix) as store:
        assert owners(memory)[called] == prefix
        store.build()
        right(store, 0 if table == "Things" else 5)
        store.upsert_many([one.replace() for one in ENTITIES])
        right(store, 5)
        front = "" if prefix == "TableMapper" else prefix
        assert owners(memory) == {f"{front}{one}": prefix for one in TABLES}


@pytest.mark.parametrize(
    "tables", [["Logs"], ["Hosts"], ["Logs", "Hosts"], ["HostsByLines"], ["Hosts", "HostsByLines"], ["LogsByLevel"]]
)
def test_rows_of_an_index_over_groups_go_with_groups_that_somebody_deleted(tables: list[str]) -> None:
    """But not those of groups that stay, as they say what ever was."""
    memory = Memory()
    models = [*DROPPED_MODELS[:2], Most]
    with opened(memory, "TableMapper", models) as store:
        store.insert_many([Log(host, n, "info", f"{host}{n}") for host in "ab" for n in range(3 if host == "a" else 1)])
        store.delete(Log.key("b", 0))
    for table in tables:
        del memory.tables[table]
    with opened(memory, "TableMapper", models) as store:
        store.build()
        left = 0 if "Logs" in tables else 3
        assert [one.host for one in store.query(Hosts.by_lines(3))] == ["a"] * (left > 0)
        assert {one.host for one in store.query(Most.by_most()).allow_scan()} == {"a", "b"}
        report = store.check()
        assert report.ok, str(report)
        store.insert(Log("c", 5, code="c5"))
        assert [one.host for one in store.query(Hosts.by_lines(1))] == ["c"]
        assert store.check().ok


def test_all_tables_at_once_are_made_again() -> None:
    memory = Memory()
    filled(memory)
    for table in TABLES:
        del memory.tables[f"Staging{table}"]
    with opened(memory, "Staging") as store:
        store.build()
        right(store, 0)
        store.insert_many([one.replace() for one in ENTITIES])
        right(store, 5)
    sent = len(memory.sent)
    opened(memory, "Staging").close()
    assert not [one for one in memory.sent[sent:] if isinstance(one, CreateTable)]


@pytest.mark.parametrize("table", ["Things", "ThingsById", "Colors"])
def test_a_table_that_is_deleted_while_it_is_built_is_built_anew(table: str) -> None:
    memory = Memory()
    models = [
        entity(
            "Thing",
            "Things",
            {"color": str, "id": str, "code": (str | None, tm.field(default=None))},
            tm.Key[str, str](partition="{color}", row="{id}"),
        )
    ]
    with opened(memory, "Staging", models) as store:
        store.insert_many([models[0](one.color, one.id, one.code) for one in ENTITIES])
    store = opened(memory, "Staging")
    while (step := store._engine.build(2, None)) is not None and not step.done:
        assert not step.completed
    del memory.tables[f"Staging{table}"]
    with opened(memory, "Staging") as store:
        store.build()
        right(store, 0 if table == "Things" else 5)


def test_the_call_that_meets_a_table_that_is_gone_names_it() -> None:
    memory = Memory()
    filled(memory)
    with opened(memory, "Staging") as store:
        del memory.tables["StagingThings"]
        for call in (
            lambda: store.get(Thing.key("red", "t0")),
            lambda: list(store.query(Thing).allow_scan()),
            lambda: store.insert(Thing("red", "x")),
        ):
            with pytest.raises(
                tm.CorruptStore,
                match="the table StagingThings of the store is not there any more; open the store again to have it made again, empty",
            ):
                call()


def test_who_only_reads_makes_nothing_again() -> None:
    memory = Memory()
    filled(memory)
    del memory.tables["StagingColors"]
    before = everything(memory)
    with opened(memory, "Staging", read_only=True) as store:
        assert store[Thing.key("red", "t0")].code == "c0"
    assert everything(memory) == before


def test_a_table_whose_name_has_another_case_is_there() -> None:
    memory = Memory()
    filled(memory)
    memory.tables = {name.upper(): table for name, table in memory.tables.items()}
    with opened(memory, "Staging") as store:
        right(store, 5)
    assert len(memory.tables) == 5


@pytest.mark.parametrize("way", ["before", "lost"])
def test_who_is_killed_while_tables_are_made_again_is_followed_by_the_next(way: str) -> None:
    def begun() -> Faulty:
        memory = Faulty()
        filled(memory)
        del memory.tables["StagingColors"], memory.tables["StagingThingsById"]
        return memory

    whole = begun()
    start = whole.number
    opened(whole, "Staging").close()
    for at in range(start + 1, whole.number + 1):
        memory = begun()
        memory.at, memory.way = at, way
        with suppress(KeyboardInterrupt):
            opened(memory, "Staging").close()
        memory.at = -1
        with opened(memory, "Staging") as store:
            store.build()
            store.repair()
            right(store, 5)


def test_what_writers_left_is_finished_though_the_catalogue_that_named_it_was_lost() -> None:
    whole = Faulty()
    filled(whole)
    with opened(whole, "Staging") as store:
        start = whole.number
        store.merge(Thing.key("red", "t0"), code="other")
        end = whole.number
    for at in range(start + 1, end + 1):
        memory = Faulty()
        filled(memory)
        store = opened(memory, "Staging")
        memory.at, memory.way = at, "after"
        with suppress(KeyboardInterrupt):
            store.merge(Thing.key("red", "t0"), code="other")
        memory.at = -1
        del memory.tables["Staging"]
        memory.ahead += 1000
        with opened(memory, "Staging", adopt=True) as store:
            store.build()
            report = store.check()
            assert report.ok, str(report)
            assert [one.id for one in store.query(Thing.by_code(store[Thing.key("red", "t0")].code))] == ["t0"]


def test_a_list_of_tables_that_lags_makes_nothing_of_what_is_there() -> None:
    class Lagging(Memory):
        def send(self, request: Any, *wait: float) -> Any:
            page = super().send(request, *wait)
            return type(page)(page.entities[:2]) if isinstance(request, ListTables) else page

    memory = Lagging()
    filled(memory)
    with opened(memory, "Staging") as store:
        right(store, 5)
        assert store.status().objects


def test_a_list_that_the_service_denies_is_no_reason_to_make_tables() -> None:
    class Denied(Memory):
        def send(self, request: Any, *wait: float) -> Any:
            if isinstance(request, ListTables):
                raise ErrorResponse(403, "AuthorizationFailure")
            return super().send(request, *wait)

    memory = Denied()
    filled(memory)
    del memory.tables["StagingColors"]
    sent = len(memory.sent)
    opened(memory, "Staging").close()
    assert not [one for one in memory.sent[sent:] if isinstance(one, CreateTable | GroupTransaction)]
    assert MODELS
