"""Random chains of migrations, forth and back, beside programs of every version; each seeded fault is found so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from tablemapper.catalogue import actions, layout
from tablemapper.catalogue.actions import ForgetIndex
from tablemapper.engines.sqlite.online import apply_schema, backfill
from tablemapper.engines.sqlite.rows import maintenance_writer, mirrors
from tablemapper.engines.sqlite.sql.schema import SqliteSchema
from tablemapper.evolution import newer_versions, spec_compiler
from tablemapper.execution import from_aggregates
from tablemapper.migrations import runner
from tablemapper.schema.model import Schema
from tablemapper.scripts import links

from .chain_steps import possible
from .chain_worlds import Shape, Total
from .chains import Wrong, play
from .conditions import Compare, Operand
from .kinds import STR
from .models import Slot

pytestmark = pytest.mark.one_python


@pytest.mark.long
def test_random_chains_of_migrations_lead_where_they_should(tmp_path: Path, *, full_size: bool) -> None:
    counts: Counter[str] = Counter()
    for seed in range(150 if full_size else 2):
        counts += play(seed, tmp_path)
    if full_size:
        wanted = (
            "join", "resolve", "values that were held twice", "refused as held twice", "undone", "contracted",
            "begun anew",
        )  # fmt: skip
        assert [what for what in wanted if not counts[what]] == []


def entities_that_are_joined_with_none(patch: pytest.MonkeyPatch) -> None:
    convert = backfill._Copy._convert

    def alone(self: Any, get: Any, entities: Any) -> Any:
        return convert(self, get, [entities[0], *[None] * (len(entities) - 1)])

    patch.setattr(backfill._Copy, "_convert", alone)


def values_that_nobody_resolves(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runner, "resolve", lambda *_: ())


def a_unique_value_that_goes_to_who_writes_last(patch: pytest.MonkeyPatch) -> None:
    put = maintenance_writer.put_rows

    def put_rows(sqlite: Any, index: Any, writer: Any, rows: Any) -> None:
        if index.model.unique:
            table = sqlite.indexes[index.model]
            writer.executemany(table.insert.replace("INSERT", "INSERT OR REPLACE", 1), rows)
        else:
            put(sqlite, index, writer, rows)

    patch.setattr(maintenance_writer, "put_rows", put_rows)


def nested_values_that_an_old_version_is_to_know(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        mirrors,
        "_counterpart_schema",
        lambda model, catalogue: SqliteSchema(Schema((model,)), mirrors._without_versions(catalogue)),
    )


def a_table_of_live_values_that_has_a_name_before_it_is_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        layout, "actions", SimpleNamespace(**{**vars(actions), "CreateValueCounts": ForgetIndex})
    )  # (there are no duplicates to be forgotten)


def totals_of_some_entities_that_answer_for_all(patch: pytest.MonkeyPatch) -> None:
    kept = from_aggregates._kept_values

    def of_all(*given: Any) -> Any:
        return [attrs.evolve(value, query_identity=()) for value in kept(*given)]

    patch.setattr(from_aggregates, "_kept_values", of_all)


def conditions_of_indexes_that_other_versions_do_not_read(patch: pytest.MonkeyPatch) -> None:
    declared = spec_compiler._declared_index
    patch.setattr(spec_compiler, "_declared_index", lambda form, names: declared(replace(form, where=None), names))
    for module, name in ((spec_compiler, "_entity_model"), (newer_versions, "_extended_model")):
        # Classes are compiled anew, and those that were compiled with the fault are forgotten with it.
        patch.setattr(module, name, lru_cache(getattr(module, name).__wrapped__))


def keys_that_lose_something_and_are_to_lead_back(patch: pytest.MonkeyPatch) -> None:
    check = links._check_keys
    patch.setattr(links, "_check_keys", lambda *given, exact: check(*given, exact=False))


def a_store_without_classes_that_is_taken_for_a_new_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apply_schema, "read_generation", lambda read: len(apply_schema.read_catalogue(read).models))


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    entities_that_are_joined_with_none: 0, values_that_nobody_resolves: 43,
    a_unique_value_that_goes_to_who_writes_last: 24, nested_values_that_an_old_version_is_to_know: 23,
    a_table_of_live_values_that_has_a_name_before_it_is_there: 53, totals_of_some_entities_that_answer_for_all: 12,
    keys_that_lose_something_and_are_to_lead_back: 14, a_store_without_classes_that_is_taken_for_a_new_one: 0,
    conditions_of_indexes_that_other_versions_do_not_read: 62,
}  # fmt: skip
"""Each with a chain that finds it."""


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_random_chains_find(
    fault: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(Wrong):
        play(FAULTS[fault], tmp_path)


def test_there_is_no_aggregate_whose_condition_compares_a_field_that_has_another_type_by_now() -> None:
    def world(value: Any) -> dict[str, Shape]:
        total = Total(
            "Total",
            "Totals",
            [("shelf", "", "group")],
            [("count", "count", "")],
            where=Compare(Operand("shelf", STR), "!=", value),
        )
        shape = Shape(
            "Part", "Parts", {"shelf": "str", "num": "int"}, ["shelf", "num"], ((Slot("shelf"),),), ((Slot("num"),),),
            totals=[total],
        )  # fmt: skip
        return {"Part": shape}

    assert possible(world("m1"))
    assert not possible(world(3))
