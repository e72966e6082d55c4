"""The rows of groups: the generated functions between a group's state and its row.

A stored group is its timestamp, its properties and its state as it is packed: what is read of it to change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TypeAlias

from ..codegen import Names, compile_functions
from ..errors import InvalidEntity
from ..expressions.python_source import walk
from ..keys.composite_times import decode_source
from ..limits import MAX_INT64, MIN_INT64
from .aggregate_model import AggregateModel, Delta
from .model import Model
from .rows import Row
from .slots import Seek, State

Advance: TypeAlias = Callable[[str, str, int, Row | None, Delta, Seek], Row | None]
"""(partition key, row key, timestamp, stored group, delta, seek) → the row after the delta, its packed state last.

What was given as stored, if nothing changes; None if there is no group any more. The timestamp is the stored one where
nothing that is shown changes. What is in DAMAGE is raised if the state cannot be read."""


def group_rows(model: Model, aggregate: AggregateModel) -> tuple[Callable[[str, str, int, State], Row], Advance]:
    """Return the function that makes the row of a group of its state, and the one that applies a change to it."""
    names = Names(
        too_long=partial(_too_long, model.name), walk=walk, empty=cache(lambda: aggregate.pack(aggregate.empty()))
    )
    values = [f"c{at}" for at in range(len(model.columns))]
    property_lines = [f"    {line}" for line in _shown_source(model, aggregate, names)]
    properties = "".join(f"{value}, " for value in values)
    unchanged = " and ".join([f"{value} == stored[{at}]" for at, value in enumerate(values, 1)]) or "True"
    source = [
        "def group_row(pk, rk, timestamp, state):",
        *property_lines,
        f"    return (pk, rk, timestamp, {properties})",
        "def advance(pk, rk, timestamp, stored, delta, seek):",
        "    blob = empty() if stored is None else stored[-1]",  # (made when it is needed: opening does without)
        *[f"    {line}" for line in aggregate.advance_source("blob", names)],
        "    if packed == blob and stored is not None: return stored",
        *property_lines,
        f"    if stored is not None and {unchanged}: timestamp = stored[0]",
        f"    return (pk, rk, timestamp, {properties}packed)",
    ]
    functions = compile_functions(f"{model.name} rows of groups", "\n".join(source), names)
    return functions["group_row"], functions["advance"]


def _shown_source(model: Model, aggregate: AggregateModel, names: Names) -> Iterator[str]:
    """Yield statements that take the properties of a group out of ``state``, into ``c0``, ``c1`` …"""
    measure_places = {f.name: at for at, (f, _) in enumerate(aggregate.measures)}
    grouped = {f.name: f"f_{f.name}" for f in model.columns if f.name not in measure_places}
    # (What the key holds, but does not give back as it was stored.)
    yield from decode_source(model.declaration.templates, ("pk", "rk"), grouped, names)
    yield "try:"
    yield from [f"    m{at} = {source}" for at, source in enumerate(aggregate.shown_sources(names))] or ["    pass"]
    yield "except OverflowError: raise too_long(pk, rk) from None"
    for place, field in enumerate(model.columns):
        if field.name not in measure_places:
            yield f"c{place} = {field.type.store_source(f'f_{field.name}', names)}"
            continue
        kind, value = field.type.name, f"m{measure_places[field.name]}"
        stored_source = field.type.store_source(value, names)
        if (
            kind in ("int", "int32") and aggregate.measures[measure_places[field.name]][1] >= 0
        ):  # (nobody has 2**63 entities)
            stored_source = f"{value} if {MIN_INT64} <= {value} <= {MAX_INT64} else str({value})"
        yield (
            f"c{place} = {value}"
            if stored_source == value
            else f"c{place} = None if {value} is None else ({stored_source})"
        )
        if kind == "timedelta":
            yield f"if {value} is not None and not {MIN_INT64} <= c{place} <= {MAX_INT64}: raise too_long(pk, rk)"


def _too_long(name: str, partition: str, row: str) -> InvalidEntity:
    return InvalidEntity(
        f"{name} {(partition, row)}",
        ["the sum of its durations would have more microseconds than 64 bits hold; sum them as int"],
    )
