"""The rules over calls that were observed: a function for each code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from ..entities.expiry import expiry_index
from ..entities.key_and_indexes import IndexModel
from ..errors import InvalidQuery
from ..planning.capabilities import Capabilities
from ..planning.plan import Plan
from ..planning.planner import plan
from ..planning.query_spec import QueryShape
from ..planning.query_text import form_of
from ..planning.scan_refusal import NO_INDEX, proposal
from ..schema.model import Model
from .declaration_rules import RuleFinding
from .workload import CallStatistics, Workload, shape_of

CODES_OF_CALLS, CODES_OF_IDLE = ("TM201", "TM202"), ("TM203",)
"""The codes that are about a class, and about an index."""
_MIN_CALLS = 10  # calls
_MIN_EXAMINED = 1_000  # rows that are examined for a call
_TIMES = 100  # more than it returns
_TOTALS = ("query.count", "query.sum", "query.avg", "query.min", "query.max")
_CALLS, _WRITES = 1_000, 100  # of the workload, and of the class, from which on an index that nothing reads is idle


def query_findings(
    model: Model, workload: Workload, capabilities: Capabilities | None
) -> Iterator[tuple[str, RuleFinding]]:
    """Yield the findings on the queries of a class (TM201, TM202), with the codes.

    What its declarations answer otherwise by now than when it was observed is left out.
    """
    for calls in _by_text(workload.statistics, model):
        if calls.calls < _MIN_CALLS or (shape := shape_of(calls)) is None:
            continue
        try:
            query = form_of(dict(shape), model)
            current_plan = plan(attrs.evolve(query, scan=True), capabilities)
        except (InvalidQuery, LookupError, TypeError, ValueError):
            continue  # (it has other fields or indexes by now)
        if (
            calls.path == "scan"
            and current_plan.scan
            and (finding := frequent_scan(calls, query, current_plan)) is not None
        ):
            yield "TM201", finding
        elif (
            calls.path == str(current_plan.path)
            and not current_plan.scan
            and (finding := reads_too_much(calls, query, current_plan)) is not None
        ):
            yield "TM202", finding


def _by_text(statistics: Iterable[CallStatistics], model: Model) -> list[CallStatistics]:
    """Return the queries of a class, those together that differ in their verb only."""
    merged: dict[tuple[str, str, bool], CallStatistics] = {}
    for calls in statistics:
        if calls.model == model.name and calls.text:
            key = calls.text, calls.path, is_total(calls)
            so_far = merged.get(key, attrs.evolve(calls, calls=0, returned=0, examined=0))
            merged[key] = attrs.evolve(
                so_far,
                calls=so_far.calls + calls.calls,
                returned=so_far.returned + (calls.calls if is_total(calls) else calls.returned),
                examined=so_far.examined + calls.examined,
                shape_data=shape_of(so_far) or shape_of(calls),
            )
    return list(merged.values())


def is_total(form: CallStatistics) -> bool:
    """Return whether calls give one number each, of all that they read."""
    return form.verb in _TOTALS and "by" not in (shape_of(form) or {})


def frequent_scan(calls: CallStatistics, query: QueryShape, current_plan: Plan) -> RuleFinding | None:
    """TM201: a query often reads the whole table."""
    reads_much, fix = calls.examined >= _MIN_EXAMINED * calls.calls, proposal(query, current_plan)
    if not reads_much and not query.where and not query.order:
        return None  # (the first rows, or all of a few: nothing is read in vain)
    if fix is not None:
        remedy = "This index serves it."
    elif query.where:
        remedy = f"{NO_INDEX[0].upper()}{NO_INDEX[1:]}."
    else:
        remedy = "Read it in pages, or let an aggregate keep what is counted and added up."
    return RuleFinding(
        "warning" if reads_much else "note",
        f"{calls.text} read the whole table {calls.calls:,} times",
        "Each run takes longer with every entity that is added.",
        remedy, fix, _evidence(calls),
    )  # fmt: skip


def reads_too_much(calls: CallStatistics, query: QueryShape, current_plan: Plan) -> RuleFinding | None:
    """TM202: a query reads far more than it returns."""
    if calls.examined < _MIN_EXAMINED * calls.calls or calls.examined < _TIMES * calls.returned:
        return None
    fix = proposal(query, current_plan)
    remedy = "No index can bound it further: add conditions to it."
    if fix is not None:
        remedy = "This index bounds it further."
    elif is_total(calls):
        remedy = "Let an aggregate keep what is counted and added up: it is read from its groups then."
    return RuleFinding(
        "note" if is_total(calls) and fix is None else "warning",
        f"{calls.text} reads {calls.examined // calls.calls:,} rows of {calls.path} to return {calls.returned / calls.calls:,.3g}",
        "It takes as long as reading all of them, and on Azure Tables a request for each 1,000.",
        remedy, fix, _evidence(calls),
    )  # fmt: skip


def _evidence(form: CallStatistics) -> dict[str, Any]:
    return {"calls": form.calls, "returned": form.returned, "examined": form.examined}


def idle_index(model: Model, index: IndexModel, workload: Workload) -> RuleFinding | None:
    """TM203: no call followed an index that many writes maintained."""
    shapes = workload.statistics
    calls, writes = (
        sum(shape.calls for shape in shapes),
        sum(shape.written for shape in shapes if model.name in _names(shape.model)),
    )
    if index.unique or calls < _CALLS or writes < _WRITES:  # (a unique one is read by each write)
        return None
    if index is expiry_index(model.declaration):  # (`Store.expire` follows it, in another program or at night)
        return None
    if any(f"{model.name}.{index.name}" in _names(shape.path) for shape in shapes):
        return None
    return RuleFinding(
        "note", f"none of {calls:,} calls followed it",
        f"Each of {writes:,} writes of {model.name} looked after its rows.",
        "Remove it, unless a rare query needs it.", evidence={"calls": calls, "writes": writes},
    )  # fmt: skip


def _names(text: str) -> list[str]:
    return text.split(", ")
