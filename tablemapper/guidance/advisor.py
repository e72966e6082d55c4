"""The advice on classes: what the rules find, without what is accepted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..engines.statistics import IndexStatistics, Statistics
from ..entities.entity import Record
from ..planning.capabilities import Capabilities
from ..schema.model import Model, Schema, compile_schema
from .advice import Advice, in_order
from .call_rules import idle_index, of_forms
from .data_rules import RULES_OF_INDEX_DATA, RULES_OF_KEY_DATA, judged
from .declaration_rules import RULES_OF_CLASSES, RULES_OF_PLACES
from .keys_and_indexes import KeyOrIndex
from .workload import Workload

_log = logging.getLogger("tablemapper.advice")
_logged: set[tuple[str, str, str]] = set()  # by module, code and place


def advise(models: Sequence[type[Record]], /) -> tuple[Advice, ...]:
    """Return what is unwise in the declarations of some classes, warnings first.

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
    own = [model for model in schema.models if ":" not in model.name and "#" not in model.name]
    held = {model: statistics(model) for model in own if model.aggregate is None} if statistics else {}
    found = [one for model in own for one in _of_class(model, schema, held.get(model), workload, capabilities)]
    return in_order(found)


def log_advice(schema: Schema) -> None:
    """Log each warning on compiled classes, once in a process."""
    for one in advise_schema(schema):
        cls = schema.by_name[one.where.partition(".")[0]].cls
        if one.level == "warning" and (known := (cls.__module__, one.code, one.where)) not in _logged:
            _logged.add(known)
            _log.warning("%s", one)


def _of_class(
    model: Model,
    schema: Schema,
    held: Statistics | None,
    workload: Workload | None,
    capabilities: Capabilities | None,
) -> Iterator[Advice]:
    made = model.declaration
    beside = tuple([one.declaration for one in schema.models if one.table == made.table and one is not model])
    found = [
        one.advice(code, made.name)
        for code, rule in RULES_OF_CLASSES.items()
        if (one := rule(model, schema)) is not None
    ]
    key = KeyOrIndex(made, None, *made.templates, beside)
    found += _of_place(key, held)
    if workload is not None:
        found += [one.advice(code, made.name) for code, one in of_forms(model, workload, capabilities)]
    yield from _unaccepted(found, made.accept, made.name)
    for index in model.indexes:
        if "#" in index.name:
            continue
        place = KeyOrIndex(made, index, index.partition, index.row)
        rows = None if held is None else held.indexes.get(index.name)
        found = list(_of_place(place, rows))
        if workload is not None and (idle := idle_index(model, index, workload)) is not None:
            found.append(idle.advice("TM203", place.label))
        yield from _unaccepted(found, index.accept, place.label)


def _of_place(place: KeyOrIndex, held: Statistics | IndexStatistics | None) -> Iterator[Advice]:
    told = {code: finding for code, rule in RULES_OF_PLACES.items() if (finding := rule(place)) is not None}
    for code, finding in told.items():
        if (judgement := finding if held is None else judged(code, finding, held)) is not None:
            yield judgement.advice(code, place.label)
    if held is None:
        return
    rules = RULES_OF_KEY_DATA if place.index is None else RULES_OF_INDEX_DATA
    for code, of_data in rules.items():
        if code not in told and (finding := of_data(place, held)) is not None:
            yield finding.advice(code, place.made.name if place.index is None else place.label)


def _unaccepted(found: Sequence[Advice], accept: Mapping[str, str], where: str) -> Iterator[Advice]:
    """Yield what is not accepted, and a note on each acceptance that nothing needs (TM010)."""
    codes = {one.code for one in found}
    yield from (one for one in found if one.code not in accept)
    for code in accept:
        if code.startswith("TM0") and code not in codes:
            yield Advice(
                "TM010", "note", where, f"it accepts {code}, which is not said of it",
                "A reason that nothing needs misleads who reads it.", f"Remove {code} from its accept=.",
            )  # fmt: skip
