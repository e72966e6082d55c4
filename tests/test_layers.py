"""The rooms of the package, and the one direction of its imports: to a room further left, or to the left within one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import tablemapper

from .parsed import nodes, parsed

PACKAGE = Path(tablemapper.__file__).parent
ROOMS: list[list[dict[str, list[str]]]] = [
    [{"": ["errors", "conversions", "datetime_types", "limits", "pieces", "codegen", "progress", "events", "accept", "owner_cache", "type_aliases", "own_types", "uuids", "attributes"]}],
    [
        {"values": ["scalars", "type_names", "timestamp", "choices", "precision", "geo", "extra", "json_schema", "constraint_aliases", "constraints", "hooks", "registered", "nested", "parts", "sums"]},
        {"keys": ["encodings", "times", "zones", "truncation", "codec", "template", "template_parser", "composite_times", "canonical", "overlap"]},
    ],
    [
        {"expressions": ["foreign_names", "arithmetic", "elements", "clauses", "boolean", "tree", "predicates", "python_source", "sortable"]},
        {"formats": ["json_reader", "arrow", "column_errors"]},
    ],
    [{"entities": ["fields", "key", "index", "key_and_indexes", "declaration", "expiry", "class_body", "etag", "constructor", "measures", "variants", "entity", "timestamp_attribute", "aggregates"]}],
    [{"interchange": ["json", "pydantic", "patches", "parsing"]}],
    [{"schema": ["labels", "specs", "rows", "slots", "aggregate_model", "model", "group_rows", "row_source", "maintenance"]}],
    [{"edits": ["assignments", "moved_rows"]}],
    [{"evolution": ["nested_types", "definitions", "renames", "literals", "changes", "history", "versions", "rules", "evolution", "spec_compiler", "newer_versions", "translation"]}],
    [{"catalogue": ["tables", "transitions", "catalogue", "property_names", "zone_rules", "actions", "fences", "dropping", "freeze", "cutover", "layout", "registration", "migration_states", "invariants"]}],
    [
        {
            "planning": [
                "bounds", "budget", "capabilities", "conditions", "plan", "ranges", "skip_scan", "query_parts", "query_spec", "shards", "scan_refusal", "planner", "projection", "query_text", "cost", "explanation",
            ]
        }
    ],
    [
        {
            "engines": ["current_transaction", "status", "statistics", "check", "protocol", "optional_protocols", "key_order", "counted_statistics", "ended", "write_decision", "migration_protocol"],
            "engines.azure.tables": ["service", "accounts", "multipart", "elapsed_clock", "wire", "driver", "background", "reserved_names", "entity_json"],
            "engines.azure.cross_partition": ["marks", "named_partitions", "outbox", "reservations", "intent_builder", "value_counts", "remote_groups", "delta_batching", "intent_execution"],
            "engines.azure.reading": ["filters", "rollup_fields", "large_values", "memory_sort", "scans", "spilled_rows", "reads"],
            "engines.azure.catalogue": ["placement", "notes", "contents", "publication", "claims", "adoption", "opening", "open_classes"],
            "engines.azure.writing": ["outcomes", "partition_view", "writes", "duplicate_notes", "late_writes", "batch_writes"],
            "engines.azure": ["partition_reader", "group_writer", "recovery", "housekeeping", "freeze_barrier", "dropping", "clearing", "builds", "check", "repair", "engine"],
            "engines.azure.migrations": ["table_swap", "migrating"],
            "engines.sqlite.driver": ["driver_errors", "functions", "timestamps", "snapshots", "connections", "reader_pool"],
            "engines.sqlite.file": [
                "writer", "group_commit", "ticket_lock", "transactions", "backup", "restore", "database", "memory", "opening",
            ],
            "engines.sqlite.sql": [
                "ddl", "catalogue_table", "index_tables", "statements", "sizes", "stored_classes", "schema", "filters", "ranges", "keyset", "select",
            ],
            "engines.sqlite.rows": [
                "duplicate_values", "truncate", "jobs", "maintenance_writer", "build_steps", "mirrors", "write_hooks", "writes", "catalogue_cache", "atomic_load", "check", "reads", "statistics", "partition_reader",
            ],
            "engines.sqlite.online": ["transition_runner", "dropped_tables", "apply_schema", "repair", "status", "backfill", "migration"],
            "engines.sqlite": ["engine"],
            "": ["engines.locations"],
        }
    ],
    [
        {"execution": ["prepared", "plan_reader", "column_reader", "totals", "from_aggregates"]},
        {
            "scripts.source": ["lines", "nested_classes", "classes", "text"],
            "scripts": [
                "arguments", "spec_changes", "step_base", "steps", "script", "field_converter", "links", "conversion_plan", "validation", "chain", "comparison", "preflight", "migrations",
            ],
        },
        {"guidance": ["workload", "advice", "keys_and_indexes", "declaration_rules", "data_rules", "call_rules", "advisor"]},
        {"diagrams": ["trees", "svg", "markup"]},
    ],
    [{"query": ["partitions", "pages", "results", "arrow_batches", "column_results", "checkpoint", "writing", "division", "class_results", "pairs", "moves", "query", "salvage", "mixed"]}],
    [{"verbs": ["operations", "write_windows", "column_input", "bulk_verbs", "transaction", "lost_races"]}],
    [{"store": ["builds", "copy", "administration", "store", "duplicates", "observed_queries", "instrumentation", "opening"]}],
    [{"aio": ["cancellation", "cursor", "workers", "awaited", "query", "transaction", "store", "opening"]}, {"migrations": ["report", "offline_copy", "runner"]}],
    [{"testing": ["clock", "store_fixture", "async_face", "key_budget", "scalar_strategies", "values", "strategies", "autoload.tablemapper_pytest", "autoload.tablemapper_hypothesis"]}],
    [{"viewer": ["security", "cells", "typed_conditions", "derived_rows", "snippets", "summaries", "views", "query_page", "store_pages", "asgi", "notebook", "inspector"]}],
    [{"cli": ["output", "app", "administration_commands", "store_reader", "query_commands", "data_commands", "analysis_commands", "inspect", "migration_commands"], "": ["reports", "types", "__main__"]}],
]  # fmt: skip
"""Rooms from the left to the right. Rooms that stand in one row are neighbours, which never import each other; the
modules of a room, and the folders of a neighbour, are listed in order."""
PLACE = {
    ".".join(filter(None, [folder, module])): (level, side, at)
    for level, row in enumerate(ROOMS)
    for side, neighbour in enumerate(row)
    for at, (folder, module) in enumerate((f, m) for f, modules in neighbour.items() for m in modules)
}
FACES = {folder for row in ROOMS for neighbour in row for folder in neighbour if folder} | {"engines.sqlite"}
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
}


def _targets(module: str, path: Path) -> Iterator[str]:
    package = ["tablemapper", *module.split(".")]
    if path.name != "__init__.py":
        package.pop()
    for node in nodes(parsed(path)):  # (inside functions, and for type checkers, too)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            names = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}".removeprefix("tablemapper.") in MODULES else base
                for alias in node.names
            ]
        else:
            continue
        for name in names:
            if name == "tablemapper" or name.startswith("tablemapper."):
                yield name.removeprefix("tablemapper").lstrip(".")


def _wrong(module: str, targets: Iterable[str]) -> list[str]:
    """Return the imports of a module that point neither to a lower room nor to the left within its own."""
    level, side, at = PLACE[module]
    return [
        target
        for target in targets
        if not (PLACE[target][0] < level or (PLACE[target][:2] == (level, side) and PLACE[target][2] < at))
    ]


def test_every_module_has_its_place() -> None:
    assert sorted(PLACE) + sorted(FACES) == sorted(set(MODULES) - FACES) + sorted(set(MODULES) & FACES)


def test_the_page_of_the_architecture_has_every_room() -> None:
    page = (Path(__file__).parents[1] / "docs/contributing/architecture.md").read_text(encoding="utf-8")
    table = page.partition("## The rooms")[2].partition("## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    rooms = {room for level in ROOMS for side in level for room in side} - {""}
    alone = {module for module in PLACE if "." not in module} - {"__main__"}
    assert sorted(re.findall(r"`(.+?)`", "".join(cells))) == sorted(
        {*(room.replace(".", "/") for room in rooms), *alone}
    )


def test_imports_point_to_a_lower_room_or_to_the_left() -> None:
    wrong = {module: _wrong(module, _targets(module, MODULES[module])) for module in PLACE}
    assert {module: targets for module, targets in wrong.items() if targets} == {}


def test_neighbours_never_import_each_other() -> None:
    assert _wrong("keys.encodings", ["values.scalars", "errors"]) == ["values.scalars"]
    assert _wrong("values.nested", ["values.scalars", "keys.encodings"]) == ["keys.encodings"]


def test_engines_do_not_know_each_other() -> None:
    for one, other in (("engines.azure.", "engines.sqlite."), ("engines.sqlite.", "engines.azure.")):
        for module in (name for name in PLACE if name.startswith(one)):
            assert not [t for t in _targets(module, MODULES[module]) if t.startswith(other)], module


def test_the_file_and_its_driver_know_no_entities() -> None:
    rooms = ("engines.sqlite.driver.", "engines.sqlite.file.")
    for module in (name for name in PLACE if name.startswith(rooms)):
        assert all(t == "errors" or t.startswith(rooms) for t in _targets(module, MODULES[module])), module


def test_the_walk_over_imports_sees_an_import_that_points_up(tmp_path: Path) -> None:
    path = tmp_path / "errors.py"
    path.write_text(
        "def late():\n    from .store.store import Store\nif TYPE_CHECKING:\n    from .query import mixed\n"
        "import tablemapper.schema.model\n"
    )
    assert sorted(_targets("errors", path)) == ["query.mixed", "schema.model", "store.store"]
    assert _wrong("errors", ["store.store"]) == ["store.store"]


def test_no_file_holds_two_ideas() -> None:
    lines = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in MODULES.items()}
    assert {module: count for module, count in lines.items() if count > 550} == {}


def _branches(function: ast.AST) -> int:
    """Return the cyclomatic complexity of a function; the cases of a match are no branches, as they read like a table."""
    count = 1
    for node in ast.walk(function):
        match node:
            case ast.If() | ast.IfExp() | ast.Assert() | ast.ExceptHandler() | ast.match_case(guard=ast.expr()):
                count += 1
            case ast.For() | ast.While() | ast.Try():
                count += 1 if node.orelse or not isinstance(node, ast.Try) else 0
            case ast.BoolOp():
                count += len(node.values) - 1
            case ast.comprehension():
                count += 1 + len(node.ifs)
    return count


def test_no_function_has_more_branches_than_a_reader_follows() -> None:
    counted = {
        f"{module}.{node.name}": _branches(node)
        for module, path in MODULES.items()
        for node in nodes(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: count for name, count in counted.items() if count > 25} == {}


def test_branches_are_counted() -> None:
    text = "def f(a):\n    if a and b or c: pass\n    elif d: pass\n    return [x for x in a if x]"
    assert _branches(ast.parse(text)) == 7


def test_no_room_holds_two_ideas() -> None:
    for room in FACES:
        files = [MODULES[name] for name in PLACE if name.rpartition(".")[0] == room]
        assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= 3_100, room


@pytest.mark.parametrize("room", sorted(FACES))
def test_a_room_stands_on_one_floor(room: str) -> None:
    assert len({PLACE[name][:2] for name in PLACE if name.rpartition(".")[0] == room}) == 1


@pytest.mark.parametrize("room", sorted(FACES))
def test_the_page_of_a_room_lists_its_modules_in_order(room: str) -> None:
    tree = parsed(MODULES[room])
    listed = re.findall(r"^- `(\w+)`:", ast.get_docstring(tree) or "", re.MULTILINE)
    folders = [face.rpartition(".")[2] for face in FACES if face.rpartition(".")[0] == room]
    inside = [name.rpartition(".")[2] for name in PLACE if name.rpartition(".")[0] == room]
    assert [name for name in listed if name not in folders] == inside
