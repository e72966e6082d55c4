"""The rules over calls that were observed: a function for each code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from ..entities.declaration import IndexModel
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
_OFTEN = 10  # calls
_MUCH = 1_000  # rows that are examined for a call
_TIMES = 100  # more than it returns
_TOTALS = ("query.count", "query.sum", "query.avg", "query.min", "query.max")
_CALLS, _WRITES = 1_000, 100  # of the workload, and of the class, from which on an index that nothing reads is idle


def of_forms(model: Model, workload: Workload, capabilities: Capabilities | None) -> Iterator[tuple[str, RuleFinding]]:
    """Yield what is unwise in the queries of a class (TM201, TM202), with the codes.

    What its declarations answer otherwise by now than when it was observed is left out.
    """
    for one in _by_text(workload.statistics, model):
        if one.calls < _OFTEN or (shape := shape_of(one)) is None:
            continue
        try:
            form = form_of(dict(shape), model)
            now = plan(attrs.evolve(form, scan=True), capabilities)
        except (InvalidQuery, LookupError, TypeError, ValueError):
            continue  # (it has other fields or indexes by now)
        if one.path == "scan" and now.scan and (found := frequent_scan(one, form, now)) is not None:
            yield "TM201", found
        elif one.path == str(now.path) and not now.scan and (found := reads_too_much(one, form, now)) is not None:
            yield "TM202", found


def _by_text(forms: Iterable[CallStatistics], model: Model) -> list[CallStatistics]:
    """Return the queries of a class, those together that differ in their verb only."""
    together: dict[tuple[str, str, bool], CallStatistics] = {}
    for one in forms:
        if one.model == model.name and one.text:
            key = one.text, one.path, is_total(one)
            so_far = together.get(key, attrs.evolve(one, calls=0, returned=0, examined=0))
            together[key] = attrs.evolve(
                so_far,
                calls=so_far.calls + one.calls,
                returned=so_far.returned + (one.calls if is_total(one) else one.returned),
                examined=so_far.examined + one.examined,
                shape_data=shape_of(so_far) or shape_of(one),
            )
    return list(together.values())


def is_total(form: CallStatistics) -> bool:
    """Return whether calls give one number each, of all that they read."""
    return form.verb in _TOTALS and "by" not in (shape_of(form) or {})


def frequent_scan(form: CallStatistics, query: QueryShape, now: Plan) -> RuleFinding | None:
    """TM201: a query often reads the whole table."""
    much, mend = form.examined >= _MUCH * form.calls, proposal(query, now)
    if not much and not query.where and not query.order:
        return None  # (the first rows, or all of a few: nothing is read in vain)
    if mend is not None:
        remedy = "This index serves it."
    elif query.where:
        remedy = f"{NO_INDEX[0].upper()}{NO_INDEX[1:]}."
    else:
        remedy = "Read it in pages, or let an aggregate keep what is counted and added up."
    return RuleFinding(
        "warning" if much else "note",
        f"{form.text} read the whole table {form.calls:,} times",
        "Each run takes longer with every entity that is added.",
        remedy, mend, _evidence(form),
    )  # fmt: skip


def reads_too_much(form: CallStatistics, query: QueryShape, now: Plan) -> RuleFinding | None:
    """TM202: a query reads far more than it returns."""
    if form.examined < _MUCH * form.calls or form.examined < _TIMES * form.returned:
        return None
    mend = proposal(query, now)
    remedy = "No index can bound it further: add conditions to it."
    if mend is not None:
        remedy = "This index bounds it further."
    elif is_total(form):
        remedy = "Let an aggregate keep what is counted and added up: it is read from its groups then."
    return RuleFinding(
        "note" if is_total(form) and mend is None else "warning",
        f"{form.text} reads {form.examined // form.calls:,} rows of {form.path} to return {form.returned / form.calls:,.3g}",
        "It takes as long as reading all of them, and on Azure Tables a request for each 1,000.",
        remedy, mend, _evidence(form),
    )  # fmt: skip


def _evidence(form: CallStatistics) -> dict[str, Any]:
    return {"calls": form.calls, "returned": form.returned, "examined": form.examined}


def idle_index(model: Model, index: IndexModel, workload: Workload) -> RuleFinding | None:
    """TM203: no call followed an index that many writes maintained."""
    forms = workload.statistics
    calls, writes = (
        sum(one.calls for one in forms),
        sum(one.written for one in forms if model.name in _names(one.model)),
    )
    if index.unique or calls < _CALLS or writes < _WRITES:  # (a unique one is read by each write)
        return None
    if any(f"{model.name}.{index.name}" in _names(one.path) for one in forms):
        return None
    return RuleFinding(
        "note", f"none of {calls:,} calls followed it",
        f"Each of {writes:,} writes of {model.name} looked after its rows.",
        "Remove it, unless a rare query needs it.", evidence={"calls": calls, "writes": writes},
    )  # fmt: skip


def _names(text: str) -> list[str]:
    return text.split(", ")
