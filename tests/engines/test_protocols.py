"""What every engine has to have, and what a store asks an engine for by its type."""

from __future__ import annotations

import ast
from pathlib import Path

import tablemapper
from tablemapper.engines import optional_protocols
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.reading.reads import AzureReads
from tablemapper.engines.protocol import Engine, Reads
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.engines.sqlite.rows.reads import SqliteReads

from ..parsed import parsed
from .dicts import DictEngine, DictReads

MOST_REQUIRED = 36
"""It only falls: what a new feature needs of an engine is a protocol of `optional_protocols`."""
OPTIONAL = {
    name: protocol
    for name, protocol in vars(optional_protocols).items()
    if getattr(protocol, "_is_runtime_protocol", 0)
}


def members(protocol: type) -> set[str]:
    return {name for name in [*vars(protocol), *protocol.__annotations__] if not name.startswith("_")}


def test_an_engine_has_to_have_few_members() -> None:
    assert len(members(Engine)) + len(members(Reads)) <= MOST_REQUIRED


def test_what_is_optional_is_required_of_no_engine() -> None:
    optional = set().union(*map(members, OPTIONAL.values()))
    assert len(OPTIONAL) >= 10
    assert not optional & (members(Engine) | members(Reads))


def test_no_engine_has_a_stub_of_what_it_does_not_do() -> None:
    implemented = {
        engine: sorted(name for name, protocol in OPTIONAL.items() if issubclass(engine, protocol))
        for engine in (SqliteEngine, SqliteReads, AzureEngine, AzureReads, DictEngine, DictReads)
    }
    sqlite = {*implemented[SqliteEngine], *implemented[SqliteReads]}
    assert OPTIONAL.keys() - sqlite == {"RecoversWrites"}
    assert implemented[AzureEngine] == [
        "ClearsClasses", "DropsClasses", "ExtendsSchema", "RecoversWrites", "ReopensOnChange", "TellsTime",
    ]  # fmt: skip
    assert implemented[DictEngine] == ["LoadsAtOnce", "TellsTime"]
    assert implemented[AzureReads] == implemented[DictReads] == []


def test_a_capability_is_asked_for_in_one_place() -> None:
    asked = dict.fromkeys(OPTIONAL, 0)
    for path in Path(tablemapper.__file__).parent.rglob("*.py"):
        if not any(name in path.read_text() for name in OPTIONAL):
            continue
        nodes = list(ast.walk(parsed(path)))
        certain = {id(node.test) for node in nodes if isinstance(node, ast.Assert)}  # (by what was asked before)
        for node in nodes:
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and id(node) not in certain:
                for name in {ast.unparse(node.args[1])} & OPTIONAL.keys():
                    asked[name] += 1
    # (What loads at once stands in `capabilities`, for messages; classes are added in one place, and read in another.)
    assert asked == dict.fromkeys(OPTIONAL, 1) | {"LoadsAtOnce": 0, "ExtendsSchema": 2}
