"""Judges: whether an answer is the right one, each of one kind of question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import attrs

import tablemapper as tm

from .kinds import exact
from .models import slots_of
from .oracle import Row, average, clean, extreme, in_order, plain, same_partition, sort_values, total, value
from .questions import Ask, Question

if TYPE_CHECKING:
    from .answers import Trial

Named: TypeAlias = tuple[str, Row]
"""A row, with its class."""


class Differs(AssertionError):
    """The store answers something else than it should."""

    def __init__(self, expected: str, found: str) -> None:
        self.expected, self.found = expected, found
        super().__init__(f"expected {expected}\nfound    {found}")


def ambiguous(question: Question, matches: list[Named]) -> bool:
    """Tell whether the limit falls between rows that are equal under the order."""
    limit = question.limit
    if limit is None or limit >= len(matches) or limit == 0:
        return False
    return sort_values(matches[limit - 1][1], question.order) == sort_values(matches[limit][1], question.order)


def same_rows(expected: Sequence[Any], found: Sequence[Any], *, least: int | None = None) -> None:
    """Compare rows in any order; with ``least``, so many of them are enough."""
    wanted, there = Counter(map(exact, expected)), Counter(map(exact, found))
    if there - wanted or len(found) != (len(expected) if least is None else least):
        number = "" if least is None else f"{least} of "
        raise Differs(f"{number}{len(expected)}: {list(expected)}", f"{len(found)}: {list(found)}")


def most_of(question: Question, matches: Sequence[Any]) -> int:
    return len(matches) if question.limit is None else min(question.limit, len(matches))


def _listed(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if isinstance(answer, Exception):
        raise Differs(f"{len(matches)} results", repr(answer))
    found = trial.rows_of(answer)
    most = most_of(question, matches)
    same_rows(matches, found, least=most)
    expected = [sort_values(row, question.order) for _, row in matches][:most]
    if expected != (order := [sort_values(row, question.order) for _, row in found]):
        raise Differs(f"in the order {expected}", f"{order}")
    if len(question.of) > 1 and not question.order:
        every = trial.run(f"list({attrs.evolve(question, limit=None).text()})")
        first = sorted(map(place, every), reverse=question.backwards)[:most]
        if first != (places := [place(one) for one in answer]):
            raise Differs(f"in the order of keys {first}", f"{places}")


def place(entity: Any) -> tuple[str, str]:
    return tm.info(entity)[:2]


def counted(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if answer != most_of(question, matches) or type(answer) is not int:
        raise Differs(f"{most_of(question, matches)}", repr(answer))


def _exists(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if answer is not (most_of(question, matches) > 0):
        raise Differs(f"{most_of(question, matches) > 0}", repr(answer))


def _first(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if answer is None and not most_of(question, matches):
        return
    if answer is None or isinstance(answer, Exception) or not most_of(question, matches):
        raise Differs(f"the first of {matches}", repr(answer))
    if trial.run("list(q)[0]", q=query) != answer:
        raise Differs(f"what comes first in a loop: {trial.run('list(q)[0]', q=query)!r}", repr(answer))
    _listed(trial, attrs.evolve(question, limit=1), ask, matches, [answer], query)


def _one(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    match most_of(question, matches):
        case 0:
            wrong = answer is not None
        case 1 if answer is not None and not isinstance(answer, Exception):
            _listed(trial, question, ask, matches, [answer], query)
            return
        case most:
            wrong = most == 1 or not isinstance(answer, tm.InvalidQuery)
    if wrong:
        raise Differs(f"one or none of {len(matches)}", repr(answer))


def _paged(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    _listed(trial, question, ask, matches, answer, query)
    if answer != (listed := trial.run("list(q)", q=query)):
        raise Differs(f"what a loop gives: {listed}", f"{answer}")


def _parted(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if isinstance(answer, Exception) or len(answer) != ask.size:
        raise Differs(f"{ask.size} parts", repr(answer))
    same_rows(matches, trial.rows_of([one for part in answer for one in part]))


def _nothing(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if answer != []:
        raise Differs("[]", repr(answer))


def _explained(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if isinstance(answer, Exception):
        raise Differs("an explanation", repr(answer))
    text = str(answer)
    if len(question.of) > 1 or isinstance(listed := trial.run("list(q)", q=query), Exception):
        return
    if answer.rows is not None and answer.rows < len(listed):
        raise Differs(f"at least {len(listed)} rows", text)
    keys = [place(one) for one in listed]
    if answer.path.endswith(".key") and not question.order and keys != sorted(keys):
        raise Differs("in the order of keys", f"{keys}: {text}")


def _selected(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    expected = [tuple(value(row, operand) for operand in ask.operands) for _, row in matches]
    most = most_of(question, matches)
    if ask.verb == "first selected":
        most = min(most, 1)
        answer = answer if isinstance(answer, Exception) else [] if answer is None else [answer]
    if isinstance(answer, Exception):
        raise Differs(f"{expected}", repr(answer))
    same_rows(expected, answer, least=most)
    steps = len(question.order)
    if [one[:steps] for one in answer] != (order := [one[:steps] for one in expected[:most]]):
        raise Differs(f"in the order {order}", f"{answer}")


_TOTALS: dict[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": total,
    "avg": average,
    "min": lambda values: extreme("min", values),
    "max": lambda values: extreme("max", values),
}


def _totalled(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if ambiguous(question, matches):
        return
    rows = [row for _, row in matches[: most_of(question, matches)]]
    expected = _TOTALS[ask.total]([value(row, ask.operands[0]) for row in rows])
    if exact(expected) != exact(answer):
        raise Differs(repr(expected), repr(answer))


def _grouped(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if ambiguous(question, matches):
        return
    by = ask.operands if ask.total == "count" else ask.operands[1:]
    groups: dict[Any, list[Any]] = {}
    ordered = in_order([row for _, row in matches[: most_of(question, matches)]], [(one, False) for one in by])
    for row in ordered:
        group = tuple(plain(value(row, one)) for one in by)
        groups.setdefault(group[0] if len(by) == 1 else group, []).append(
            None if ask.total == "count" else value(row, ask.operands[0])
        )
    expected = [(group, _TOTALS[ask.total](values)) for group, values in groups.items()]
    if isinstance(answer, Exception):
        raise Differs(f"{expected}", repr(answer))
    found = [
        (tuple(map(plain, group)) if isinstance(group, tuple) else plain(group), one) for group, one in answer.items()
    ]
    if exact(expected) != exact(found):
        raise Differs(f"{expected}", f"{found}")


def _paired(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if isinstance(answer, Exception):
        raise Differs(f"{len(matches)} pairs", repr(answer))
    state, other = trial.state, trial.state.model.record(ask.how)
    names = dict.fromkeys(slot.field for slot in slots_of(other.partition, other.row))
    there = {state.identity(other.name, row): row for row in state.rows(other.name)}
    expected = []
    for _, row in matches:
        key = {name: value(row, one) for name, one in zip(names, ask.operands, strict=True)}
        missing = any(held is None for held in key.values())
        expected.append((row, None if missing else there.get(state.identity(other.name, key))))
    found = [tuple([one and trial.rows_of([one])[0][1] for one in pair]) for pair in answer]
    same_rows(expected, found, least=most_of(question, matches))
    _listed(trial, question, ask, matches, [one for one, _ in answer], query)


def _partition(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    model = trial.state.model
    record = model.record(question.of[0])
    fixed = {one.field: clean(given, one.kind) for one, given in zip(ask.operands, ask.values, strict=True)}
    same = [(record.name, row) for row in trial.state.rows(record.name) if same_partition(record, row, fixed)]
    if isinstance(answer, Exception):
        raise Differs(f"{same}", repr(answer))
    found = trial.rows_of(answer)
    same_rows(same, [one for one in found if one[0] == record.name])
    places = [place(one) for one in answer]
    if places != sorted(places):
        raise Differs("in the order of keys", f"{places}")
    if places:  # (other classes may have rows in it)
        names = [one.name for one in model.records if one.table == record.table]
        same_rows([row for name in names for row in trial.content(name, places[0][0])], found)


def _columned(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if isinstance(answer, Exception):
        raise Differs("columns", repr(answer))
    rows = list(zip(*answer.values(), strict=True))
    if ask.operands:
        _selected(trial, question, attrs.evolve(ask, verb="select"), matches, rows, query)
        return
    found = [(question.of[0], dict(zip(answer, row, strict=True))) for row in rows]
    same_rows(matches, found, least=most_of(question, matches))


def _in_arrow(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    """Compare with the columns of Python's values, which are judged by themselves."""
    if isinstance(answer, ModuleNotFoundError):
        return
    columns = trial.run(attrs.evolve(ask, verb="columns").text(question.of[0]), q=query)
    values = [] if isinstance(columns, Exception) else [one for values in columns.values() for one in values]
    if isinstance(answer, tm.InvalidQuery) and any(type(one) is int and abs(one) >= 2**63 for one in values):
        return  # (a sum that no column can hold)
    if isinstance(columns, Exception) or type(answer) is not list:
        raise Differs("columns and rows", f"{columns!r}, {answer!r}")
    expected = [[_arrow_value(one) for one in values] for values in zip(*columns.values(), strict=True)]
    found = [[_arrow_value(one) for one in row.values()] for row in answer]
    if sorted(map(repr, expected)) != sorted(map(repr, found)):
        raise Differs(f"{expected}", f"{found}")


def _arrow_value(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case UUID():
            return str(value)
        case Decimal():
            return plain(value)
        case datetime():
            return value.astimezone(UTC)
    return value


def _through_json(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    if isinstance(answer, Exception):
        raise Differs(f"{len(matches)} entities, back and forth", repr(answer))
    own = [field.name for field in trial.state.model.record(question.of[0]).own]
    for entity, *others in answer:
        row = {name: _as_json_tells(getattr(entity, name)) for name in own}
        for one in others:
            made = {name: _as_json_tells(getattr(one, name)) for name in own}
            if exact(made) != exact(row):
                raise Differs(f"{row}", f"{made}")
        etags = [tm.info(one).etag for one in (entity, *others)]
        if etags != (wanted := [etags[0], None, None, etags[0], etags[0]]):
            raise Differs(f"{wanted}", f"{etags}")
    _listed(trial, question, ask, matches, [entity for entity, *_ in answer], query)


def _as_json_tells(value: Any) -> Any:
    """Return a value, but None for an Extra that holds nothing: its properties stand beside the declared ones."""
    return None if isinstance(value, tm.Extra) and not value else value


def _partitions(trial: Trial, question: Question, ask: Ask, matches: list[Named], answer: Any, query: Any) -> None:
    name = question.of[0]
    held: dict[str, list[Any]] = {}
    for entity in trial.run(f"list(store.query({name}).allow_scan())"):
        held.setdefault(place(entity)[0], []).append(entity)
    if isinstance(answer, Exception) or [key for key, _ in answer] != sorted(held):
        raise Differs(f"{sorted(held)}", f"{answer!r}")
    for key, values in answer:
        for entity in held[key]:
            own = {field: plain(getattr(entity, field)) for field in values}
            if exact(own) != exact({field: plain(one) for field, one in values.items()}):
                raise Differs(f"{own}", f"{values}")


JUDGES: dict[str, Callable[[Trial, Question, Ask, list[Named], Any, Any], None]] = {
    "list": _listed, "count": counted, "exists": _exists, "first": _first, "one_or_none": _one, "pages": _paged,
    "budget": _paged, "nothing": _nothing, "explain": _explained, "select": _selected, "first selected": _selected,
    "columns": _columned, "arrow": _in_arrow, "json": _through_json, "partitions": _partitions, "parts": _parted, "pairs": _paired, "paged selected": _selected, "total": _totalled, "groups": _grouped, "partition": _partition,
}  # fmt: skip
