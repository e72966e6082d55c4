"""HTML for notebooks: tables of entities, queries, stores and reports, of escaped text alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from ..engines.check import CheckReport
from ..engines.statistics import Statistics
from ..engines.status import Status
from ..entities.declaration import declaration_of
from ..entities.entity import Record, key_of
from ..errors import TableMapperError
from ..guidance.advice import Advice
from ..interchange.json import field_values, to_dict
from ..planning.explanation import Explanation, MixedExplanation
from ..query.class_results import Rows
from ..query.mixed import MixedQuery
from ..query.pages import Page
from ..query.query import Query
from ..store.store import Store
from .cells import cell

_ROWS = 20
_SECONDS, _EXAMINED = 1.0, 10_000  # what the rows of a query may use


def _escaped(text: object) -> str:
    import html  # noqa: PLC0415  a program without a notebook need not load it

    return html.escape(str(text).replace("\0", "␀"))


def _table(heads: Iterable[object], rows: Iterable[Iterable[object]], *notes: str) -> str:
    head = "".join([f"<th>{_escaped(head_cell)}</th>" for head_cell in heads])
    body = "".join([f"<tr>{''.join([f'<td>{_escaped(value)}</td>' for value in row])}</tr>" for row in rows])
    below = "".join([f"<p>{_escaped(note)}</p>" for note in notes if note])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def _text(content: object) -> str:
    return f"<pre>{_escaped(content)}</pre>"


def _value(value: object, plain: object = None) -> str:
    display = cell(value, plain)
    return ", ".join(display.tags) or display.text


def _values(entity: Record) -> list[str]:
    plain = field_values(entity)
    return [_value(getattr(entity, field.name), plain[field.property]) for field in _fields(entity)]


def _fields(entity: Record) -> Sequence[Any]:
    return declaration_of(type(entity)).fields


def _entity(entity: Record) -> str:
    key = key_of(entity)
    names = [field.name for field in _fields(entity)]
    keys = [("PartitionKey", key.partition), ("RowKey", key.row)]
    return _table((type(entity).__name__, ""), [*keys, *zip(names, _values(entity), strict=True)])


def _items(items: Sequence[Any], names: Sequence[str], note: str) -> str:
    """Return a table of entities, of one class or of several, or of tuples."""
    kinds = dict.fromkeys(map(type, items))
    if not items:
        return _table(names, [], note or "none")
    if not all(issubclass(kind, Record) for kind in kinds):
        rows = [item if isinstance(item, tuple) else (item,) for item in items]
        heads = names or [f"{at}" for at in range(1, max(map(len, rows)) + 1)]
        return _table(heads, [[_value(value) for value in row] for row in rows], note)
    if len(kinds) == 1:
        return _table([field.name for field in _fields(items[0])], map(_values, items), note)
    keys = [(type(entity).__name__, *key_of(entity)[1:], _value(to_dict(entity))) for entity in items]
    return _table(("class", "PartitionKey", "RowKey", "properties"), keys, note)


def _query(query: Any) -> str:
    """Return the first rows of a query, or why there are none."""
    selected = getattr(query, "_wanted", None) or ()
    names, items, note = [attr.label for attr in selected], list[Any](), ""
    try:
        for item in islice(query.budget(timeout=_SECONDS, examined=_EXAMINED), _ROWS + 1):
            items.append(item)
    except TableMapperError as error:
        if not items:
            return _text(f"{type(error).__name__}: {error}")
        note = str(error)
    return _items(items[:_ROWS], names, note or ("… and more" if len(items) > _ROWS else ""))


def _page(page: Page[Any]) -> str:
    return _items(page.items, (), "" if page.token is None else "there are more: page(size, token)")


def _status(status: Status) -> str:
    lines = [
        (item.where, item.kind, item.state, f"{item.done:,} of {item.total:,}" if item.total else "")
        for item in status.objects
    ]
    frozen = [] if status.frozen is None else ["frozen"]
    return _table(
        ("", "kind", "state", "done"),
        lines,
        *frozen,
        *(f"{migration.id}: {migration.state}" for migration in status.history),
    )


def _store(store: Store) -> str:
    try:
        states = {item.where: item.state for item in store.status().objects}
    except TableMapperError as error:
        return _text(f"{type(error).__name__}: {error}")
    lines = []
    for name, cls in store.classes.items():
        declaration = declaration_of(cls)
        key = " / ".join(
            [
                _value(template.text if isinstance(template.text, str) else " ".join(template.text))
                for template in declaration.templates
            ]
        )
        indexes = ", ".join(
            [f"{index.name} ({states.get(f'{name}.{index.name}', 'ready')})" for index in declaration.indexes]
        )
        lines.append((name, declaration.table, key, indexes, states.get(name, "ready")))
    return _table(("class", "table", "PartitionKey / RowKey", "indexes", "state"), lines)


_RENDERERS: dict[type[Any], Callable[[Any], str]] = {
    Record: _entity,
    **dict.fromkeys((Query, Rows, MixedQuery), _query),
    Page: _page,
    Status: _status,
    Store: _store,
    **dict.fromkeys((Advice, Explanation, MixedExplanation, CheckReport, Statistics), _text),
}


def install() -> None:
    """Give each of these classes the method that notebooks call."""
    for kind, render in _RENDERERS.items():
        type.__setattr__(kind, "_repr_html_", lambda self, render=render: render(self))
