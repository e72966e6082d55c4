"""The page on which a question is asked, with its plan, its cost and its Python; and the rows of it as a file."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from itertools import chain
from typing import Any

import attrs
import msgspec

from ..entities.declaration import declaration_of
from ..errors import InvalidQuery, QueryStopped, ScanRefused, TableMapperError
from ..expressions.tree import Attr, Compare, Contains, In, IsNull, Not, Order, Predicate, StartsWith
from ..interchange.json import field_values, to_json
from ..interchange.parsing import OPERATORS, condition, orders
from ..planning.cost import bytes_text
from ..progress import check_cancelled
from ..query.salvage import UnreadableRow, read_some, tolerant
from .cells import plain_text
from .views import EXAMINED, MAX_COUNTED, SECONDS, PageRequest, PageResponse, columns, plain_row, public_text, row_of

_ROWS, _MOST_ROWS = 50, 200
_LINES = 8  # of the form
_EXPORTED, _MOST_EXPORTED = 10_000, 100_000
_PAGE = 256  # rows that an export reads at once
_PATIENCE = 60.0  # seconds that it reads, all in all
_GUARDED = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the begin of a formula


@attrs.frozen
class _Question:
    """A query of the form, as texts and as a query of the store."""

    cls: type[Any]
    lines: list[tuple[str, str, str]]
    """Of the form: field, operator, value."""
    order: str
    query: Any
    predicates: list[Predicate[Any]]
    orders: list[Order[Any]]
    scan: bool


def _lines(ask: PageRequest) -> list[tuple[str, str, str]]:
    """Return the lines of the form, those that say something."""
    typed = zip(ask.all_params("field"), ask.all_params("op"), ask.all_params("value"), strict=False)
    return [(field, op, value) for field, op, value in typed if field][:_LINES]


def _texts(ask: PageRequest) -> list[str]:
    return [*ask.all_params("where"), *(f"{field} {op} {value}" for field, op, value in _lines(ask))]


def _question_of(ask: PageRequest) -> _Question:
    """Return the question of a request.

    Raises:
        InvalidQuery: a condition or the order cannot be read.
    """
    cls, order, scan = ask.cls, ask.params.get("order", ""), ask.params.get("scan") == "1"
    query: Any = ask.store.query(cls)
    predicates = [condition(cls, text) for text in _texts(ask)]
    steps = orders(cls, order) if order else []
    query = query.where(*predicates) if predicates else query
    query = query.order_by(*steps) if steps else query
    may_scan = scan or not (predicates or steps)  # (the first rows of a class are few, whatever it holds)
    lines = [_line(predicate) for predicate in predicates]
    return _Question(cls, lines, order, query.allow_scan() if may_scan else query, predicates, steps, scan)


def question(ask: PageRequest) -> PageResponse:
    """A question: its form, how it is answered, what it costs, how a program asks it, and the rows."""
    limit = ask.number("limit", _ROWS, _MOST_ROWS)
    shows: dict[str, Any] = {
        "fields": [field.name for field in declaration_of(ask.cls).fields], "operators": list(OPERATORS), "limit": limit,
        "order": ask.params.get("order", ""), "lines": _lines(ask), "more": ask.params.get("add") == "1",
        "fault": "", "refused": "", "plan": None, "rows": [], "stopped": "", "where": _texts(ask), "scan": False,
    }  # fmt: skip
    shows |= columns(ask.cls)
    try:
        request = _question_of(ask)
    except InvalidQuery as error:
        return PageResponse("query.html", shows | {"fault": str(error)}, {"error": str(error)}, code=400)
    shows |= {"lines": request.lines, "scan": request.scan, "python": _python(request, limit)}
    try:
        explanation = request.query.limit(limit).explain()
    except ScanRefused as error:
        return PageResponse("query.html", shows | {"refused": str(error)}, {"error": str(error)}, code=400)
    rows, stopped = list[Any](), ""
    try:
        for row in tolerant(request.query.limit(limit + 1).budget(timeout=SECONDS, examined=EXAMINED)):
            rows.append(row)
    except QueryStopped as error:
        stopped = str(error)
    cost = explanation.cost
    shows |= {
        "plan": _plan(explanation), "reasons": explanation.reasons, "database": explanation.database, "rows": [row_of(row) for row in rows[:limit]], "stopped": stopped,
        "cost": {"requests": cost.requests, "entities": cost.entities, "bytes": bytes_text(cost.bytes or 0)},
        "at_least": cost.at_least, "beyond": len(rows) > limit, "range": _range(ask, request, explanation, limit),
    }  # fmt: skip
    plain_rows = [plain_row(row) for row in rows[:limit]]
    json = {"explain": explanation.to_dict(), "rows": plain_rows, "more": len(rows) > limit, "stopped": stopped or None}
    return PageResponse("query.html", shows, json)


def _plan(explanation: Any) -> str:
    """Return the plan of a query, without the lines that have their own place on the page."""
    own_prefixes = (
        "not ",
        "on Azure: ",
        *(f"{explanation.capabilities.engine}: {line}" for line in explanation.database),
    )
    return "\n".join([line for line in str(explanation).splitlines() if not line.startswith(own_prefixes)])


def _range(ask: PageRequest, request: _Question, explanation: Any, limit: int) -> tuple[int, int, float | None] | None:
    """Return the number of rows read, of all, and the part in percent unless there can be more; None if unknown."""
    if explanation.rows is None:
        return None
    all_entities: Any = (
        ask.store.query(request.cls).allow_scan().limit(MAX_COUNTED).budget(timeout=SECONDS / 4, examined=EXAMINED)
    )
    with suppress(QueryStopped):
        total = max(all_entities.count(), explanation.rows)
        stops = not (explanation.filter or explanation.sort)  # (at the limit)
        rows = min(explanation.rows, limit) if stops else explanation.rows
        return rows, total, None if total >= MAX_COUNTED else 100.0 * rows / max(total, 1)
    return None


# -------------------------------------------------------------------------------------------------------------- python


def _python(request: _Question, limit: int) -> str:
    """Return the question as a program asks it."""
    name = request.cls.__name__
    lines = [f"store.query({name})"]
    if request.predicates:
        lines[-1] += ".where("
        lines += [f"    {_source(predicate)}," for predicate in request.predicates]
        lines.append(")")
    if request.orders:
        lines[-1] += (
            f".order_by({', '.join(_path(order.attr) + '.desc()' * order.descending for order in request.orders)})"
        )
    scan = ".allow_scan()" if request.scan or not (request.predicates or request.orders) else ""
    lines[-1] += f"{scan}.limit({limit})"
    return "\n".join(lines)


def _path(attr: Attr[Any, Any]) -> str:
    return f"{attr.owner.__name__}.{attr.name}" + "".join([f"[{step!r}]" for step in attr.path])


def _parts(predicate: Predicate[Any]) -> tuple[Attr[Any, Any], str, Any]:
    """Return the field, the operator and the value of a condition that was typed."""
    match predicate:
        case Compare(attr=attr, op=op, value=value):
            return attr, op, value
        case StartsWith(attr=attr, text=value):
            return attr, "startswith", value
        case Contains(attr=attr, value=value):
            return attr, "contains", value
        case In(attr=attr, values=values):
            return attr, "in", list(values)
        case IsNull(attr=attr):
            return attr, "is null", None
        case Not(part=IsNull(attr=attr)):
            return attr, "is not null", None
    raise InvalidQuery(f"{predicate!r} cannot be shown")


def _source(predicate: Predicate[Any]) -> str:
    attr, op, value = _parts(predicate)
    calls = {"startswith": "startswith", "contains": "contains", "in": "is_in", "is null": "is_null", "is not null": "is_not_null"}  # fmt: skip
    if op not in calls:
        return f"{_path(attr)} {op} {_literal(value)}"
    arguments = "" if value is None else ", ".join(map(_literal, value)) if op == "in" else _literal(value)
    return f"{_path(attr)}.{calls[op]}({f'[{arguments}]' if op == 'in' else arguments})"


def _literal(value: Any) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)


def _line(predicate: Predicate[Any]) -> tuple[str, str, str]:
    """Return a condition as a line of the form, which reads the same again."""
    attr, op, value = _parts(predicate)
    values = value if op == "in" else [value]
    texts = [plain_text(value.value if isinstance(value, Enum) else value) for value in values if value is not None]
    value_list = (
        msgspec.json.encode(texts).decode() if any("," in text for text in texts) and op == "in" else ",".join(texts)
    )
    return ".".join((attr.name, *attr.path)), op, value_list


# -------------------------------------------------------------------------------------------------------------- export


def export(ask: PageRequest, kind: str) -> tuple[Iterator[str], int]:
    """Return the parts of a file with the rows of a question, ``csv`` or ``jsonl``, and how many rows there are at most.

    Raises:
        InvalidQuery: as for the page.
    """
    limit = ask.number("limit", _EXPORTED, _MOST_EXPORTED)
    request = _question_of(ask)
    pages = _pages(request.query, limit)
    first = next(pages)  # (a refusal comes before the first byte)
    write = _csv if kind == "csv" else _json_lines
    return write(request.cls, chain([first], _to_the_end(pages))), limit


def _pages(query: Any, limit: int) -> Iterator[list[Any]]:
    """Yield the results of a query, a page at a time. Between two pages nothing of the store stays open."""
    token: Any = None
    seconds = _PATIENCE
    while limit:
        check_cancelled()  # (nobody may wait for the next page any more)
        start = time.monotonic()
        within = query.budget(timeout=max(seconds, 0.0), examined=_MOST_EXPORTED)
        rows, token, fault = read_some(within, token, min(limit, _PAGE))
        seconds -= time.monotonic() - start
        if fault is not None and not rows:
            raise fault
        yield rows
        if fault is not None:
            raise fault
        limit = 0 if token is None else limit - len(rows)


@attrs.frozen
class _Ended:
    """Stands at the end of a file that lacks rows."""

    fault: str


def _to_the_end(pages: Iterator[list[Any]]) -> Iterator[list[Any]]:
    """Yield pages; where they end early, why: the answer has begun, and its status cannot say so."""
    try:
        yield from pages
    except TableMapperError as error:
        yield [_Ended(public_text(error))]


def _json_lines(_: type[Any], pages: Iterator[list[Any]]) -> Iterator[str]:
    for page in pages:
        yield "".join([f"{_json_line(row).decode()}\n" for row in page])


def _json_line(row: Any) -> bytes:
    if isinstance(row, _Ended):
        return msgspec.json.encode({"fault": row.fault})
    return msgspec.json.encode(plain_row(row)) if isinstance(row, UnreadableRow) else to_json(row)


def _csv(cls: type[Any], pages: Iterator[list[Any]]) -> Iterator[str]:
    names = [field.property for field in declaration_of(cls).fields]
    rows = [names]
    for page in pages:
        text = io.StringIO()
        rows += [_values(row, names) for row in page]
        guarded = [[f"'{cell}" if cell.startswith(_GUARDED) else cell for cell in row] for row in rows]
        csv.writer(text, lineterminator="\n").writerows(guarded)
        yield text.getvalue()
        rows.clear()


def _values(row: Any, names: list[str]) -> list[str]:
    if isinstance(row, UnreadableRow | _Ended):
        return [row.fault]
    values = field_values(row)
    return ["" if values[name] is None else plain_text(values[name]) for name in names]
