"""The advice on classes: what the rules find, without what is accepted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..engines.statistics import IndexStatistics, Statistics
from ..entities.entity import Record
from ..planning.capabilities import Capabilities
from ..schema.model import Model, Schema, compile_schema
from .advice import Advice, in_order
from .call_rules import idle_index, query_findings
from .data_rules import INDEX_DATA_RULES, KEY_DATA_RULES, judged
from .declaration_rules import CLASS_RULES, KEY_RULES
from .keys_and_indexes import KeyOrIndex
from .workload import Workload

_log = logging.getLogger("tablemapper.advice")
_logged: set[tuple[str, str, str]] = set()  # by module, code and place


def advise(models: Sequence[type[Record]], /) -> tuple[Advice, ...]:
    """Return the advice on the declarations of some classes, warnings first.

    No store is needed. What a class or an index has an ``accept=`` for is left out.

    Raises:
        InvalidModel: the classes do not fit together, as in `open`.
    """
    return advise_schema(compile_schema(models))


def advise_schema(
    schema: Schema,
    statistics: Callable[[Model], Statistics | None] | None = None,
    workload: Workload | None = None,
    capabilities: Capabilities | None = None,
) -> tuple[Advice, ...]:
    """Return the advice on compiled classes.

    Args:
        statistics: returns what a store holds of a class of entities, None if that cannot be read now; if it is None,
            the declarations are judged alone.
        capabilities: of the engine that answers them; None: it can do all.
    """
    visible = [model for model in schema.models if ":" not in model.name and "#" not in model.name]
    statistics_by_model = (
        {model: statistics(model) for model in visible if model.aggregate is None} if statistics else {}
    )
    advice = [
        item
        for model in visible
        for item in _of_class(model, schema, statistics_by_model.get(model), workload, capabilities)
    ]
    return in_order(advice)


def log_advice(schema: Schema) -> None:
    """Log each warning on compiled classes, once in a process."""
    for advice in advise_schema(schema):
        cls = schema.by_name[advice.where.partition(".")[0]].cls
        if advice.level == "warning" and (identity := (cls.__module__, advice.code, advice.where)) not in _logged:
            _logged.add(identity)
            _log.warning("%s", advice)


def _of_class(
    model: Model,
    schema: Schema,
    statistics: Statistics | None,
    workload: Workload | None,
    capabilities: Capabilities | None,
) -> Iterator[Advice]:
    declaration = model.declaration
    same_table = tuple(
        [
            sibling.declaration
            for sibling in schema.models
            if sibling.table == declaration.table and sibling is not model
        ]
    )
    advice = [
        finding.advice(code, declaration.name)
        for code, rule in CLASS_RULES.items()
        if (finding := rule(model, schema)) is not None
    ]
    key = KeyOrIndex(declaration, None, *declaration.templates, same_table)
    advice += _of_place(key, statistics)
    if workload is not None:
        advice += [
            finding.advice(code, declaration.name) for code, finding in query_findings(model, workload, capabilities)
        ]
    yield from _unaccepted(advice, declaration.accept, declaration.name)
    for index in model.indexes:
        if "#" in index.name:
            continue
        target = KeyOrIndex(declaration, index, index.partition, index.row)
        index_statistics = None if statistics is None else statistics.indexes.get(index.name)
        advice = list(_of_place(target, index_statistics))
        if workload is not None and (idle := idle_index(model, index, workload)) is not None:
            advice.append(idle.advice("TM203", target.label))
        yield from _unaccepted(advice, index.accept, target.label)


def _of_place(target: KeyOrIndex, statistics: Statistics | IndexStatistics | None) -> Iterator[Advice]:
    findings = {code: finding for code, rule in KEY_RULES.items() if (finding := rule(target)) is not None}
    for code, finding in findings.items():
        if (judgement := finding if statistics is None else judged(code, finding, statistics)) is not None:
            yield judgement.advice(code, target.label)
    if statistics is None:
        return
    rules = KEY_DATA_RULES if target.index is None else INDEX_DATA_RULES
    for code, of_data in rules.items():
        if code not in findings and (finding := of_data(target, statistics)) is not None:
            yield finding.advice(code, target.owner.name if target.index is None else target.label)


def _unaccepted(advice: Sequence[Advice], accept: Mapping[str, str], where: str) -> Iterator[Advice]:
    """Yield the advice that is not accepted, and a note on each acceptance that nothing needs (TM010)."""
    codes = {item.code for item in advice}
    yield from (item for item in advice if item.code not in accept)
    for code in accept:
        if code.startswith("TM0") and code not in codes:
            yield Advice(
                "TM010", "note", where, f"it accepts {code}, which is not said of it",
                "A reason that nothing needs misleads who reads it.", f"Remove {code} from its accept=.",
            )  # fmt: skip
