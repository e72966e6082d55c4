"""The page on which a question is asked, with its plan, its cost and its Python; and the rows of it as a file."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import attrs
import msgspec

from ..entities.declaration import declaration_of
from ..errors import CorruptStore, InvalidQuery, InvalidToken, QueryStopped, ScanRefused, TableMapperError
from ..expressions.tree import Attr, Order, Predicate
from ..interchange.json import field_values, to_json
from ..interchange.parsing import OPERATORS, condition, orders
from ..interchange.parsing import field as field_named
from ..planning.cost import bytes_text
from ..progress import check_cancelled
from ..query.partitions import Partition
from ..query.salvage import UnreadableRow, page_within, read_some
from .cells import plain_text
from .snippets import query_source, query_writes, with_imports
from .summaries import MOST_GROUPS, TOTALS, Grouping, counts_by_value, is_countable
from .typed_conditions import line
from .views import (
    EXAMINED,
    MAX_COUNTED,
    SECONDS,
    PageRequest,
    PageResponse,
    chosen_values,
    columns,
    fields_of,
    plain_row,
    public_text,
    row_of,
)

_ROWS, _MOST_ROWS = 50, 200
_LINES, _FACETS = 8, 4  # of the form
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
    unordered: Any
    query: Any
    predicates: list[Predicate[Any]]
    orders: list[Order[Any]]
    partition: str
    allowed: tuple[str, ...]
    """What was allowed on the page: ``scan``, ``sort``."""
    fields: list[str]
    """The fields that are shown; none: all."""
    facets: list[Attr[Any, Any]]
    grouping: Grouping | None

    def source(self) -> str:
        """Return the query as a program asks it."""
        scan = "scan" in self.allowed or not (self.predicates or self.orders or self.partition)
        orders = [] if self.grouping else self.orders
        calls = ".allow_scan()" * scan + ".allow_sort()" * ("sort" in self.allowed)
        return query_source(self.cls, self.predicates, orders, self.partition) + calls


def _lines(ask: PageRequest) -> list[tuple[str, str, str]]:
    """Return the lines of the form, those that say something."""
    typed = zip(ask.all_params("field"), ask.all_params("op"), ask.all_params("value"), strict=False)
    return [(field, op, value) for field, op, value in typed if field][:_LINES]


def _texts(ask: PageRequest) -> list[str]:
    return [*ask.all_params("where"), *(f"{field} {op} {value}" for field, op, value in _lines(ask))]


def _question_of(ask: PageRequest) -> _Question:
    """Return the question of a request.

    Raises:
        InvalidQuery: a condition, the order, a field or a total cannot be read.
    """
    cls, order, partition = ask.cls, ask.params.get("order", ""), ask.params.get("partition", "")
    allowed = tuple(name for name in ("scan", "sort") if ask.params.get(name) == "1")
    query: Any = ask.store.query(cls)
    predicates = [condition(cls, text) for text in _texts(ask)]
    steps = orders(cls, order) if order else []
    query = query.where(*predicates) if predicates else query
    query = query.where(Partition(partition, {}, cls)) if partition else query
    # (The first rows of a class are few, whatever it holds.)
    query = query.allow_scan() if "scan" in allowed or not (predicates or steps or partition) else query
    query = query.allow_sort() if "sort" in allowed else query
    chosen = [field_named(cls, name) for name in ask.all_params("show") if name]
    if within := [attr for attr in chosen if attr.path]:
        raise InvalidQuery(f"{within[0]!r} is within a field; a column shows a field")
    return _Question(
        cls, [line(predicate) for predicate in predicates], query, query.order_by(*steps) if steps else query, predicates,
        steps, partition, allowed, list(dict.fromkeys(attr.name for attr in chosen)),
        [field_named(cls, name) for name in dict.fromkeys(ask.all_params("facet")) if name][:_FACETS],
        Grouping.from_params(
            cls, ask.params.get("group", ""), ask.params.get("total", ""), ask.params.get("of", ""),
            greatest_first=ask.params.get("top") == "1",
        ),
    )  # fmt: skip


def question(ask: PageRequest) -> PageResponse:
    """A question: its form, how it is answered, what it costs, how a program asks it, and the rows or groups."""
    limit = ask.size("limit", _ROWS, _MOST_ROWS)
    names = [field.name for field in declaration_of(ask.cls).fields]
    shows: dict[str, Any] = {
        "fields": names, "countable": [name for name in names if is_countable(field_named(ask.cls, name))], "operators": list(OPERATORS), "limit": limit,
        "order": ask.params.get("order", ""), "lines": _lines(ask), "more": ask.params.get("add") == "1", "totals": TOTALS,
        "group": ask.params.get("group", ""), "total": ask.params.get("total", ""), "of": ask.params.get("of", ""),
        "top": ask.params.get("top") == "1", "show": ask.all_params("show"), "facet": ask.all_params("facet"),
        "partition": ask.params.get("partition", ""), "allowed": (), "fault": "", "refused": "", "allow": "", "plan": None,
        "python": "", "rows": [], "stopped": "", "facets": [], "groups": None, "aggregate": "", "writes": {}, "columns": [], "next": None,
    }  # fmt: skip
    try:
        request = _question_of(ask)
        shows |= {"lines": request.lines, "allowed": request.allowed}
        answer, json = (_groups if request.grouping else _rows)(ask, request, limit)
        return PageResponse("query.html", shows | answer, json)
    except InvalidToken:
        raise
    except InvalidQuery as error:
        fault = str(error)
        allow = "scan" if isinstance(error, ScanRefused) else "sort" if ".allow_sort()" in fault else ""
    kind = "refused" if allow else "fault"
    return PageResponse("query.html", shows | {kind: fault, "allow": allow}, {"error": fault}, code=400)


def _rows(ask: PageRequest, request: _Question, limit: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rows of a question and all beside them: for the page, and for a program."""
    explanation = request.query.limit(limit).explain()
    within = request.query.budget(timeout=SECONDS, examined=EXAMINED)
    page, stopped = page_within(within, limit, ask.params.get("after"))
    bounded = request.unordered.allow_scan().budget(timeout=SECONDS / 4, examined=EXAMINED)
    counts = [counts_by_value(bounded, attr) for attr in request.facets]
    source = request.source()
    shows = {
        **_explained(ask, request, explanation, limit), **columns(request.cls, request.fields, request.orders),
        "rows": [row_of(row, request.fields) for row in page.items], "stopped": str(stopped or ""), "next": page.token,
        "facets": counts, "python": with_imports(f"{source}.limit({limit})"),
        "writes": query_writes(request.cls, source) if request.predicates or request.partition else {},
    }  # fmt: skip
    json = {
        "explain": explanation.to_dict(), "rows": [plain_row(row, request.fields) for row in page.items],
        "more": page.token is not None, "next": page.token, "stopped": str(stopped or "") or None,
        "facets": {count.attr.label: count.to_dict() for count in counts},
    }  # fmt: skip
    return shows, json


def _groups(ask: PageRequest, request: _Question, _: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the totals of a question by group and all beside them: for the page, and for a program."""
    grouping: Any = request.grouping
    totals, stopped = {}, ""
    try:
        totals = grouping.read(request.unordered.budget(timeout=SECONDS, examined=EXAMINED))
    except (QueryStopped, CorruptStore) as error:
        stopped = str(error)
    aggregate = grouping.aggregate(request.unordered)  # (it may answer what no key and no index bounds)
    shows = {} if aggregate else _explained(ask, request, request.unordered.explain(), MAX_COUNTED)
    shows |= {
        "aggregate": aggregate,
        "groups": grouping.rows(totals), "by": grouping.by, "label": grouping.label, "stopped": stopped,
        "python": with_imports(grouping.source(request.source())), "all_groups": len(totals),
    }  # fmt: skip
    more = len(totals) > MOST_GROUPS
    json = {
        "aggregate": aggregate or None,
        "groups": grouping.to_dict(totals),
        "more": more,
        "stopped": stopped or None,
    }
    return shows, json


def _explained(ask: PageRequest, request: _Question, explanation: Any, limit: int) -> dict[str, Any]:
    """Return what the page says of how a query is answered, and of its cost."""
    cost = explanation.cost
    return {
        "plan": _plan(explanation), "reasons": explanation.reasons, "database": explanation.database,
        "cost": {"requests": cost.requests, "entities": cost.entities, "bytes": bytes_text(cost.bytes or 0)},
        "at_least": cost.at_least, "range": _range(ask, request, explanation, limit),
    }  # fmt: skip


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


# -------------------------------------------------------------------------------------------------------------- export


def export(ask: PageRequest, kind: str) -> tuple[Iterator[str], int]:
    """Return the parts of a file with the rows of a question, ``csv`` or ``jsonl``, and how many rows there are at most.

    Raises:
        InvalidQuery: as for the page.
    """
    limit = ask.size("limit", _EXPORTED, _MOST_EXPORTED)
    request = _question_of(ask)
    pages = _pages(request.query, limit)
    first = next(pages)  # (a refusal comes before the first byte)
    write = _csv if kind == "csv" else _json_lines
    return write(request, chain([first], _to_the_end(pages))), limit


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


def _json_lines(request: _Question, pages: Iterator[list[Any]]) -> Iterator[str]:
    for page in pages:
        yield "".join([f"{_json_line(row, request.fields).decode()}\n" for row in page])


def _json_line(row: Any, fields: list[str]) -> bytes:
    if isinstance(row, _Ended):
        return msgspec.json.encode({"fault": row.fault})
    if isinstance(row, UnreadableRow):
        return msgspec.json.encode(plain_row(row))
    return msgspec.json.encode(chosen_values(row, fields)) if fields else to_json(row)


def _csv(request: _Question, pages: Iterator[list[Any]]) -> Iterator[str]:
    names = [model.property for model in fields_of(request.cls, request.fields)]
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
