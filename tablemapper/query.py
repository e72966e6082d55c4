"""The query builder: frozen, typed, lazy. Each call returns a new query; nothing is read before it is iterated."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain, islice
from typing import Any, Generic, Protocol, TypeVar, overload

import attrs
import msgspec

from .codegen import Names, compile_functions
from .errors import EntityNotFound, InvalidQuery, InvalidToken, did_you_mean
from .expressions import Attr, Expr, Order, Predicate, attribute_source, attributes, conjuncts, dump, matcher
from .indexes import IndexRange
from .model import Model, Row
from .planner import Plan, Question, plan

__all__ = ["Explanation", "Page", "Position", "Query", "Reader", "Rows"]

E = TypeVar("E")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
F = TypeVar("F")

Position = tuple[Any, ...]
"""Where a row stands on its path."""

_scans = logging.getLogger("tablemapper.query")


class Reader(Protocol):
    """What a query asks of an engine."""

    store_id: str

    def rows(self, plan: Plan, *, limit: int | None = None) -> Iterator[list[Row]]:
        """Yield rows, in chunks, of one state of the store; at least the first ``limit``, if there are so many."""
        ...

    def positioned(
        self, plan: Plan, *, after: Position | None, limit: int | None = None
    ) -> Iterator[list[tuple[Position, Row]]]:
        """Yield rows with their positions, those after one position."""
        ...

    def explain(self, plan: Plan) -> list[str]:
        """Return what the database itself says that it will do."""
        ...

    def count(self, plan: Plan) -> int | None:
        """Return the number of rows, None if they have to be read to tell."""
        ...

    def residual(self, plan: Plan) -> tuple[Predicate[Any], ...]:
        """Return the predicates that the engine does not evaluate."""
        ...

    def sorts(self, plan: Plan) -> bool:
        """Tell whether the engine can sort as the plan wants."""
        ...


@attrs.frozen
class Page(Generic[E]):
    """Some of a query's entities, and where to go on."""

    items: list[E]
    token: str | None
    """For the next page; None if this is the last."""


@attrs.frozen
class Explanation:
    """How a query is answered: text for people (``str``), data for programs, JSON for tools."""

    plan: Plan
    filter: tuple[str, ...]
    """Conditions on rows that were read, in SQL or after it."""
    sort: tuple[str, ...]
    database: tuple[str, ...]
    """SQLite's own EXPLAIN QUERY PLAN."""

    def __str__(self) -> str:
        reads = "reads the whole table of" if self.plan.scan else "reads"
        lines = [f"{reads} {self.plan.path}{', backwards' if self.plan.descending else ''}"]
        if not self.plan.scan:
            shown = self.plan.ranges[:5]
            lines += [f"  {one}" for one in shown]
            if len(self.plan.ranges) > len(shown):
                lines.append(f"  … {len(self.plan.ranges)} ranges in all")
            if self.plan.merged:
                lines.append("  side by side, merged in the order of their row keys")
        lines += [f"filters by {one}" for one in self.filter]
        lines += [f"sorts by {one}" for one in self.sort]
        lines += [f"not {one}" for one in self.plan.reasons]
        lines += [f"SQLite: {one}" for one in self.database]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the same in builtins that JSON knows."""
        return {
            "path": self.plan.path,
            "scan": self.plan.scan,
            "ranges": [str(one) for one in self.plan.ranges],
            "descending": self.plan.descending,
            "merged": self.plan.merged,
            "filter": list(self.filter),
            "sort": list(self.sort),
            "reasons": list(self.plan.reasons),
            "database": list(self.database),
        }


@attrs.frozen(eq=False, slots=False)
class Query(Generic[E]):
    """The entities of a class that satisfy conditions. Iterate it, or ask for `first`, `page`, `count`."""

    _reader: Reader
    _model: Model
    _range: IndexRange[Any] | None = attrs.field(default=None, alias="range")
    _where: tuple[Predicate[Any], ...] = attrs.field(default=(), alias="where_")
    _order: tuple[Order[Any], ...] = attrs.field(default=(), alias="order")
    _limit: int | None = attrs.field(default=None, alias="limit_")
    _scan: bool = attrs.field(default=False, alias="scan")

    # ------------------------------------------------------------------------------------------ building

    def where(self, *predicates: Predicate[E]) -> Query[E]:
        """Keep what satisfies every predicate: ``.where(Product.price > 10, Product.name == "Dune")``."""
        for predicate in predicates:
            if not _is_predicate(predicate):
                raise InvalidQuery(
                    f"where: a condition is needed, as in {self._model.name}.field == value, not {predicate!r}"
                )
            for attr in attributes(predicate):
                self._own(attr)
        return attrs.evolve(self, where_=(*self._where, *predicates))

    def order_by(self, *steps: Attr[E, Any] | Order[E]) -> Query[E]:
        """Order by fields, the first one first; ``.desc()`` for the greatest first. Ties are broken by key."""
        order = []
        for step in steps:
            one = _step(step, self._model)
            self._own(one.attr)
            if not one.attr.type.ordered:
                raise InvalidQuery(f"order_by: {one.attr!r} is {one.attr.type.name}, which has no order")
            order.append(one)
        return attrs.evolve(self, order=tuple(order))

    def limit(self, count: int, /) -> Query[E]:
        """Stop after so many entities."""
        _counted("limit", count, least=0)
        return attrs.evolve(self, limit_=count)

    def allow_scan(self) -> Query[E]:
        """Allow to read the whole table where no key or index bounds the query."""
        return attrs.evolve(self, scan=True)

    def _own(self, attr: Attr[Any, Any]) -> None:
        if not _is_attr(attr) or not issubclass(self._model.cls, attr.owner):
            names = [field.name for field in self._model.declaration.fields]
            raise InvalidQuery(
                f"{attr!r} is not a field of {self._model.name} (fields: {', '.join(names)})"
                f"{did_you_mean(getattr(attr, 'name', ''), names)}"
            )

    # ------------------------------------------------------------------------------------------ reading

    def __iter__(self) -> Iterator[E]:
        made = self._plan
        limit = self._limit
        residual = self._reader.residual(made)
        sorting = bool(made.sort) and not self._reader.sorts(made)
        whole = not residual and not sorting and not made.distinct
        found: Iterator[E] = chain.from_iterable(
            map(self._model.build, self._reader.rows(made, limit=limit if whole else None))
        )
        if not whole:
            found = self._filtered(found, residual)
            if sorting:
                found = iter(_sorted(found, made.sort))
        return found if limit is None else islice(found, limit)

    def first(self) -> E | None:
        """Return the first entity, or None."""
        return next(iter(self.limit(1 if self._limit is None else min(1, self._limit))), None)

    def one(self) -> E:
        """Return the only entity; raise EntityNotFound if there is none, InvalidQuery if there are several."""
        found = self.one_or_none()
        if found is None:
            raise EntityNotFound(f"{self!r}: there is no such entity", entity=self._model.name)
        return found

    def one_or_none(self) -> E | None:
        """Return the only entity, or None; raise InvalidQuery if there are several."""
        found = list(self.limit(2 if self._limit is None else min(2, self._limit)))
        if len(found) > 1:
            raise InvalidQuery(f"{self!r}: there are several such entities; add conditions, or use first()")
        return found[0] if found else None

    def exists(self) -> bool:
        """Tell whether there is an entity."""
        return self.first() is not None

    def count(self) -> int:
        """Return the number of entities."""
        if self._limit is None and not self._plan.distinct and (count := self._reader.count(self._plan)) is not None:
            return count
        return sum(1 for _ in self)

    def page(self, size: int, /, token: str | None = None) -> Page[E]:
        """Return some entities, and the token of the page after them.

        A token is opaque and holds for this query only; it survives restarts. An entity that matches throughout and
        keeps its sort key comes exactly once, whatever is written between the pages.
        """
        _counted("page", size, least=1)
        if self._plan.sort:
            steps = ", ".join(repr(step.attr) for step in self._plan.sort)
            raise InvalidQuery(f"page: no key or index gives the order by {steps}; declare an index, or read it all")
        if self._plan.distinct:
            raise InvalidQuery(f"page: an entity can come more than once from {self._plan.path}; give it an element")
        after, done = (None, 0) if token is None else self._position(token)
        left = size if self._limit is None else min(size, self._limit - done)
        items: list[E] = []
        last: Position = ()
        if left <= 0:
            return Page([], None)
        for position, entity in self._positioned(after, left + 1):
            if len(items) == left:
                more = self._limit is None or done + left < self._limit
                return Page(items, self._token(last, done + left) if more else None)
            items.append(entity)
            last = position
        return Page(items, None)

    def pages(self, size: int, /) -> Iterator[Page[E]]:
        """Yield page after page."""
        page = self.page(size)
        yield page
        while page.token is not None:
            page = self.page(size, page.token)
            yield page

    def explain(self) -> Explanation:
        """Tell how the query is answered."""
        made = self._plan
        return Explanation(
            made,
            tuple(_text(predicate) for predicate in made.filter),
            tuple(f"{step.attr.label}{' descending' if step.descending else ''}" for step in made.sort),
            tuple(self._reader.explain(made)),
        )

    @overload
    def select(self, a: Expr[A], /) -> Rows[tuple[A]]: ...
    @overload
    def select(self, a: Expr[A], b: Expr[B], /) -> Rows[tuple[A, B]]: ...
    @overload
    def select(self, a: Expr[A], b: Expr[B], c: Expr[C], /) -> Rows[tuple[A, B, C]]: ...
    @overload
    def select(self, a: Expr[A], b: Expr[B], c: Expr[C], d: Expr[D], /) -> Rows[tuple[A, B, C, D]]: ...
    @overload
    def select(self, a: Expr[A], b: Expr[B], c: Expr[C], d: Expr[D], f: Expr[F], /) -> Rows[tuple[A, B, C, D, F]]: ...
    def select(self, *fields: Expr[Any]) -> Any:
        """Return tuples of fields instead of entities."""
        if not fields:
            raise InvalidQuery("select: name the fields")
        for field in fields:
            self._own(field)  # type: ignore[arg-type]
        return Rows(self, fields)

    def __repr__(self) -> str:
        parts = [
            self._model.name if self._range is None else f"{self._model.name}.{self._range.name}{self._range.values}"
        ]
        parts += [_text(predicate) for predicate in conjuncts(self._where)]
        return f"<Query {', '.join(parts)}>"

    # ------------------------------------------------------------------------------------------ how

    @cached_property
    def _plan(self) -> Plan:
        made = plan(Question(self._model, self._range, self._where, self._order, self._scan))
        if made.scan:
            _scans.warning("%r reads the whole table %s", self, self._model.table)
        return made

    def _filtered(self, found: Iterator[E], residual: tuple[Predicate[Any], ...]) -> Iterator[E]:
        """Yield what satisfies the predicates that the engine leaves, each entity once."""
        holds = [matcher(predicate) for predicate in residual]
        seen: set[tuple[str, str]] | None = set() if self._plan.distinct else None
        for entity in found:
            if seen is not None:
                key = entity._row[:2]  # type: ignore[attr-defined]
                if key in seen:
                    continue
                seen.add(key)
            if all(test(entity) for test in holds):
                yield entity

    def _positioned(self, after: Position | None, limit: int) -> Iterator[tuple[Position, E]]:
        made = self._plan
        residual = self._reader.residual(made)
        build: Callable[[Iterable[Row]], list[E]] = self._model.build
        holds = [matcher(predicate) for predicate in residual]
        for chunk in self._reader.positioned(made, after=after, limit=None if residual else limit):
            for (position, _), entity in zip(chunk, build([row for _, row in chunk]), strict=True):
                if all(test(entity) for test in holds):
                    yield position, entity

    # ------------------------------------------------------------------------------------------ tokens

    @cached_property
    def _fingerprint(self) -> bytes:
        form = [
            self._model.to_json(),
            None if self._range is None else [self._range.name, [repr(value) for value in self._range.values]],
            [dump(predicate) for predicate in self._where],
            [[step.attr.label, step.descending] for step in self._order],
            self._limit,
        ]
        return hashlib.blake2b(msgspec.json.encode(form, order="deterministic"), digest_size=16).digest()

    def _seal(self, body: bytes) -> bytes:
        return hashlib.blake2b(body, digest_size=12, key=self._reader.store_id.encode()[:64]).digest()

    def _token(self, position: Position, done: int) -> str:
        body = msgspec.msgpack.encode([1, self._fingerprint, list(position), done])
        return base64.urlsafe_b64encode(self._seal(body) + body).decode().rstrip("=")

    def _position(self, token: str) -> tuple[Position, int]:
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            if self._seal(raw[12:]) != raw[:12]:
                raise InvalidToken("page: this token was not made by this store, or was changed; start without one")
            version, fingerprint, position, done = msgspec.msgpack.decode(raw[12:])
        except (ValueError, TypeError, AttributeError, msgspec.MsgspecError):
            raise InvalidToken("page: this is no page token; give what page(…).token was, or None") from None
        if version != 1 or fingerprint != self._fingerprint:
            raise InvalidToken("page: this token belongs to another query, or to other models; start without one")
        return tuple(position), done


@attrs.frozen(eq=False)
class Rows(Generic[T]):
    """Tuples of fields; lazy, as the query they come from."""

    _query: Query[Any]
    _fields: tuple[Any, ...]

    def __iter__(self) -> Iterator[T]:
        values = [_getter(field) for field in self._fields]
        for entity in self._query:
            yield tuple([value(entity) for value in values])  # type: ignore[misc]

    def first(self) -> T | None:
        """Return the first tuple, or None."""
        return next(iter(Rows(self._query.limit(1), self._fields)), None)


def _getter(attr: Attr[Any, Any]) -> Callable[[Any], Any]:
    names = Names()
    source = f"def value(e):\n    return {attribute_source(attr, f'e.{attr.name}', names)}\n"
    return compile_functions(repr(attr), source, names)["value"]


def _text(predicate: Predicate[Any]) -> str:
    form = dump(predicate)

    def shown(form: Any) -> str:
        op, *rest = form
        if op in ("and", "or"):
            return "(" + f" {op} ".join(map(shown, rest)) + ")"
        if op == "not":
            return f"not {shown(rest[0])}"
        if op == "null":
            return f"{rest[0]} is missing"
        other = rest[1]["field"] if isinstance(rest[1], dict) and "field" in rest[1] else repr(rest[1])
        return f"{rest[0]} {op} {other}"

    return shown(form)


def _step(value: object, model: Model) -> Order[Any]:
    if isinstance(value, Order):
        return value
    if isinstance(value, Attr):
        return Order(value, descending=False)
    raise InvalidQuery(f"order_by: a field is needed, as in {model.name}.name.desc(), not {value!r}")


def _is_predicate(value: object) -> bool:
    return isinstance(value, Predicate)


def _is_attr(value: object) -> bool:
    return isinstance(value, Attr)


def _counted(verb: str, count: object, *, least: int) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise InvalidQuery(f"{verb}: a whole number from {least} on is needed, not {count!r}")


def _sorted(found: Iterator[E], order: tuple[Order[Any], ...]) -> list[E]:
    """Sort by fields, missing values first, ties by key."""
    rows = sorted(found, key=lambda entity: entity._row[:2])  # type: ignore[attr-defined]
    for step in reversed(order):
        value = _getter(step.attr)
        keyed = [(value(entity), entity) for entity in rows]
        # (Equal values keep the order of the keys, also backwards: sort is stable under reverse.)
        keyed.sort(key=lambda pair: (pair[0] is not None, pair[0]), reverse=step.descending)
        rows = [entity for _, entity in keyed]
    return rows
