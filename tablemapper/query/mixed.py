"""Queries over several classes, of one table or of one base: one query for each class, their rows merged in order.

A condition applies to every class, to its own field of the same name and type. In a class without such a field the
value is missing for all entities. Conditions are two-valued, so the condition is then true or false for the whole
class.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn, Self, TypeVar

import attrs

from ..engines.protocol import Position
from ..entities.aggregates import kept_field
from ..entities.declaration import abstract_declaration
from ..errors import InvalidQuery, safe_repr
from ..execution.plan_reader import PlanReader
from ..execution.prepared import PlanCache
from ..expressions.predicates import conjuncts
from ..expressions.tree import TIMESTAMP_NAME, And, Attr, IsNull, Leaf, Not, Or, Order, Predicate
from ..planning.budget import start
from ..planning.explanation import MixedExplanation, order_text, predicate_text
from ..planning.query_parts import QueryPart
from ..planning.query_spec import QuerySpec
from ..planning.skip_scan import Descending
from ..schema.model import Model
from ..schema.rows import Row, readable
from .class_results import ClassResults, Rows
from .pages import TokenSeal, counted, query_identity
from .partitions import Partition
from .query import Query
from .results import Results, check_condition, refuse_named

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


@attrs.frozen(eq=False)
class _Member:
    """One of the classes, with the query over it."""

    query: Query[Any]
    refuted: str | None = None
    """A condition that none of its entities can satisfy."""

    @property
    def model(self) -> Model:
        return self.query._spec.model


def _place(run: PlanReader) -> Callable[[Row], Position]:
    """Return the function from a row to its position among all classes' rows: sort values, then its entity's key."""
    if not run.layout.places:
        return lambda row: row[:2]
    steps, width = len(run.prepared.plan.sort), run.prepared.width
    return lambda row: (*row[:steps], *row[width - 2 : width])


class _Mixed(Results[T]):
    """The results of a query over several classes."""

    __slots__ = ("_base", "_members", "_plans", "_spec", "_where")

    def __init__(
        self,
        plans: PlanCache,
        members: tuple[_Member, ...],
        where: tuple[Predicate[Any], ...] = (),
        base: type[Any] | None = None,
    ) -> None:
        self._plans = plans
        self._spec = members[0].query._spec
        self._members = members
        self._where = where
        self._base = base

    def _each(self, change: Callable[[Query[Any]], Query[Any]]) -> Self:
        return self._of([change(member.query) for member in self._members])

    def _of(self, queries: Iterable[Query[Any]]) -> Self:
        """Return a copy with other queries over the classes, in the same order."""
        pairs = zip(self._members, queries, strict=True)
        members = tuple([attrs.evolve(member, query=query) for member, query in pairs])
        return type(self)(self._plans, members, self._where, self._base)

    # ------------------------------------------------------------------------------------------ building

    def limit(self, count: int, /) -> Self:
        """Stop after so many results.

        Raises:
            InvalidQuery: it is not a number, 0 or more.
        """
        return self._each(lambda query: query.limit(count))

    def allow_scan(self) -> Self:
        """Allow the query to read the whole table, for each class that no key or index bounds."""
        return self._each(lambda query: query.allow_scan())

    def allow_sort(self) -> Self:
        """Allow rows to be read whole and sorted in memory; as `Query.allow_sort`."""
        return self._each(lambda query: query.allow_sort())

    def allow_eventual(self) -> Self:
        """Allow answers from what may be older than the entities; as `Query.allow_eventual`."""
        return self._each(lambda query: query.allow_eventual())

    def budget(self, *, timeout: float | None = None, examined: int | None = None) -> Self:
        """Limit what one run of the query may use, over all classes, as for a query over one.

        Raises:
            InvalidQuery: a limit is not a number, 0 or more.
        """
        return self._each(lambda query: query.budget(timeout=timeout, examined=examined))

    def backwards(self) -> Self:
        """Read from the last row to the first.

        Raises:
            InvalidQuery: `order_by` was called.
        """
        if self._spec.order:
            raise InvalidQuery("backwards: order_by gives the order; write .desc() there")
        return self._each(lambda query: query._with(attrs.evolve(query._spec, backwards=True)))

    # ------------------------------------------------------------------------------------------ parts

    def split(self, count: int, /) -> list[Self]:
        """Return so many queries that together are this one, as `Query.split`; each has a part of every class.

        Raises:
            InvalidQuery: it is not a number from 1 on; or the query has a limit or an order.
            ScanRefused: no key or index bounds one of the classes.
        """
        count = counted("split", count, least=1)
        parts_by_member = [
            member.query.split(count) if member.refuted is None else [member.query._in_part(QueryPart(None))] * count
            for member in self._members
        ]
        return [self._of(queries) for queries in zip(*parts_by_member, strict=True)]

    @property
    def token(self) -> str:
        """The text that says which part of its query this is, as `Query.token`.

        Raises:
            InvalidQuery: this is no part.
        """
        parts = [member.query._spec.part for member in self._members]
        if None in parts:
            raise InvalidQuery(f"{safe_repr(self)}: this is a whole query; split(count) returns parts")
        return self._part_seal().token(tuple([attrs.astuple(part) for part in parts if part is not None]), 0)

    def part(self, token: str, /) -> Self:
        """Return the part of this query with a token, as `Query.part`.

        Raises:
            InvalidToken: the token was changed, or is that of another query.
        """
        forms, _ = self._part_seal().open(token)
        return self._of(
            [member.query._in_part(QueryPart.of(form)) for member, form in zip(self._members, forms, strict=True)]
        )

    def _part_seal(self) -> TokenSeal:
        whole_query = self._each(lambda query: query._in_part(None))
        return TokenSeal(self._plans, ["part", *whole_query._form()], lambda: safe_repr(self))

    # ------------------------------------------------------------------------------------------ reading

    def _limited(self, limit: int | None) -> Iterator[T]:
        runs = self._runs()
        if limit == 0:
            return iter(())
        chunks = self._read(runs, [None] * len(runs), limit)
        items: Iterator[T] = chain.from_iterable(run.items_of(rows) for run, rows in chunks)
        return items if limit is None else islice(items, limit)

    def first(self) -> T | None:
        """Return the first result, or None.

        Raises:
            ScanRefused: no key or index bounds one of the classes.
            QueryStopped: it used up its budget.
        """
        return next(self._at_most(1), None)

    def exists(self) -> bool:
        """Return whether there is a result.

        Raises:
            ScanRefused: no key or index bounds one of the classes.
            QueryStopped: it used up its budget.
        """
        if self._spec.budget is not None or self._spec.limit == 0:
            return self.first() is not None
        runs = self._runs(only_count=True)

        def items(state: Any) -> Iterator[list[Any]]:
            for run in runs:
                yield from map(run.items_of, run.chunks(limit=1, within=state))

        return any(self._plans.reads.in_one_state(items))

    def count(self) -> int:
        """Return the number of results.

        Raises:
            ScanRefused: no key or index bounds one of the classes.
            QueryStopped: it used up its budget.
        """
        if self._spec.budget is not None:
            return sum(1 for _ in self)
        runs, counts_of = self._runs(only_count=True), self._plans.counts

        def counts(state: Any) -> Iterator[int]:
            for run in runs:
                count = None if counts_of is None else counts_of.count(run.bound, within=state)
                yield sum(map(len, map(run.items_of, run.chunks(within=state)))) if count is None else count

        total = sum(self._plans.reads.in_one_state(counts))
        return total if self._spec.limit is None else min(total, self._spec.limit)

    def explain(self) -> MixedExplanation:
        """Return how each class is read.

        Raises:
            ScanRefused: no key or index bounds one of the classes.
        """
        return MixedExplanation(
            order_text(self._spec.order) or (f"key{' descending' if self._spec.backwards else ''}",),
            {member.model.name: member.query.explain() for member in self._members if member.refuted is None},
            {member.model.name: member.refuted for member in self._members if member.refuted is not None},
        )

    def __repr__(self) -> str:
        return f"<MixedQuery {', '.join([self._names, *(predicate_text(p, ()) for p in conjuncts(self._where))])}>"

    @property
    def _names(self) -> str:
        return " | ".join(member.model.name for member in self._members)

    # ------------------------------------------------------------------------------------------ runs

    def _runs(self, *, only_count: bool = False) -> list[PlanReader]:
        """Return a run for each class; to count results, it reads no values, in any order."""
        queries: Iterator[ClassResults[Any]] = (member.query for member in self._members if member.refuted is None)
        if only_count:
            queries = (Rows(self._plans, attrs.evolve(q._spec, order=(), mixed=False), ()) for q in queries)
        if any(member.model.declaration.expiry is not None for member in self._members):
            moment = self._plans.moment()
            queries = (query._with(attrs.evolve(query._spec, moment=moment)) for query in queries)
        spending = start(self._spec.budget, self)
        return [attrs.evolve(query._run(*query._find()), spending=spending) for query in queries]

    def _form(self) -> Any:
        return [self._spec.backwards, [query_identity(self._plans, member.query._spec) for member in self._members]]

    def _positioned(self, after: Position | None, limit: int) -> Iterator[tuple[Position, Any]]:
        runs = self._runs()
        if len({member.model.table for member in self._members}) == 1:
            chunks = self._read(runs, [after] * len(runs), limit)
            places = ((run, rows, _place(run)) for run, rows in chunks)
            return ((place(row), item) for run, rows, place in places for row in rows for item in run.items_of((row,)))
        return self._positioned_by_class(runs, after, limit)

    def _positioned_by_class(
        self, runs: Sequence[PlanReader], after: Position | None, limit: int
    ) -> Iterator[tuple[Position, Any]]:
        """Yield results with the places of all classes: in several tables two entities can have one key."""
        places = [place and tuple(place) for place in after or [None] * len(runs)]
        numbers = {id(run): at for at, run in enumerate(runs)}
        for run, rows in self._read(runs, places, limit):
            place, at = _place(run), numbers[id(run)]
            for row in rows:
                for item in run.items_of((row,)):
                    places[at] = place(row)
                    yield tuple(places), item

    def _read(
        self, runs: Sequence[PlanReader], after: Sequence[Position | None], limit: int | None
    ) -> Iterator[tuple[PlanReader, Sequence[Row]]]:
        """Yield the rows of all classes in order, in batches of rows of one class, each class after its own place."""
        order, backwards = self._spec.order, self._spec.backwards

        def merged(state: Any) -> Iterator[tuple[PlanReader, Sequence[Row]]]:
            streams = [run.chunks(place, limit, within=state) for run, place in zip(runs, after, strict=True)]
            ordered = self._plans.reads.ordered
            ranks = [_ranked(_place(run), order, ordered, backwards=backwards) for run in runs]
            return ((runs[at], rows) for at, rows in readable(_merged(streams, ranks), self._names))

        return _counted_rows(self._plans.reads.in_one_state(merged))


def _counted_rows(merged: Iterable[tuple[PlanReader, Sequence[Row]]]) -> Iterator[tuple[PlanReader, Sequence[Row]]]:
    for run, rows in merged:
        yield from ((run, counted_rows) for counted_rows in run.counted((rows,)))


class MixedQuery(_Mixed[A | B | C], Generic[A, B, C]):
    """The entities of several classes of one table that satisfy conditions, each of its own class, in row order.

    Lazy, typed and immutable. A query over two classes repeats the second one as its parameter; of more than three they
    are Any. For the type checkers a query over a base is a `Query` of it; what that has and this lacks raises InvalidQuery.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _OF_ONE_CLASS or self._base is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

            def refuse(*_: object, **__: object) -> NoReturn:
                classes = ", ".join(member.model.name for member in self._members)
                subject = f"a query over the classes of {self._base.__name__}"
                raise InvalidQuery(f"{subject} has no {name}(…); query each: {classes}")

            return refuse

    def where(
        self,
        *predicates: Predicate[A] | Predicate[B] | Predicate[C] | Partition[A] | Partition[B] | Partition[C],
        **named: Never,
    ) -> Self:
        """Keep only results that satisfy every condition; each condition applies to all classes.

        It uses each class's own field of that name and type. If a class has no such field, the value is missing:
        comparisons are false, ``is_null()`` is true.

        Raises:
            InvalidQuery: an argument is not a condition, no class has its field, or the types of two classes differ.
        """
        partitions = [argument for argument in predicates if isinstance(argument, Partition)]
        conditions: tuple[Any, ...] = tuple(
            [argument for argument in predicates if not isinstance(argument, Partition)]
        )
        models = [member.model for member in self._members]
        refuse_named(named, models[0].name)
        for predicate in conditions:
            check_condition(predicate, models[0].name)
            for attr in predicate.attributes():
                _check_known(attr, models)
        within = self._each(lambda query: query.where(*partitions)) if partitions else self
        members = tuple([_narrowed(member, conditions) for member in within._members])
        return type(self)(self._plans, members, (*self._where, *conditions), self._base)

    def order_by(self, *steps: Attr[A, Any] | Attr[B, Any] | Attr[C, Any] | Order[A] | Order[B] | Order[C]) -> Self:
        """Sort by fields that every class has, the first one first; ties are broken by key.

        Raises:
            InvalidQuery: a field has no order, or a class does not have it, or `backwards` was called.
        """
        arguments: tuple[Any, ...] = steps
        if arguments and self._spec.backwards:
            raise InvalidQuery("order_by: backwards() reverses the order of the rows; write .desc() instead")
        models = [member.model for member in self._members]
        for step in arguments:
            if isinstance(attr := step.attr if isinstance(step, Order) else step, Attr):
                _check_known(attr, models)
        queries = [
            member.query.order_by(*(_own_step(step, member.model) for step in arguments)) for member in self._members
        ]
        orders = [query._spec.order for query in queries]
        # (If a field is wide in one class, its sort values must be those of wide fields in all.)
        wide = [any(step.wide for step in steps) for steps in zip(*orders, strict=True)]
        orders = [
            tuple(attrs.evolve(step, wide=is_wide) for step, is_wide in zip(order, wide, strict=True))
            for order in orders
        ]
        return self._of([query.order_by(*order) for query, order in zip(queries, orders, strict=True)])


_OF_ONE_CLASS = frozenset(
    [name for cls in Query.__mro__[: Query.__mro__.index(Results)] for name in vars(cls) if name[0] != "_"]
).difference(vars(MixedQuery), vars(_Mixed))
"""What only a query over one class has."""


def mixed(plans: PlanCache, models: Sequence[Model]) -> MixedQuery[Any, Any, Any]:
    """Return the query over several classes.

    Raises:
        InvalidQuery: one is given twice, or they do not share a table.
    """
    for at, model in enumerate(models):
        if model in models[:at]:
            raise InvalidQuery(f"query: {model.name} is named twice; name each class once")
    if len({model.table for model in models}) > 1:
        tables = ", ".join(f'{model.name} is in "{model.table}"' for model in models)
        raise InvalidQuery(f"query: {tables}; only classes that share a table can be queried together")
    return MixedQuery(plans, _members(plans, models))


def over_base(plans: PlanCache, base: type[Any], models: Iterable[Model]) -> MixedQuery[Any, Any, Any]:
    """Return the query over those classes that are derived from a class without a table, by their names.

    Raises:
        InvalidQuery: there is none.
    """
    derived = [model for model in models if issubclass(model.cls, base) and kept_field(model.name) is None]
    if not derived:
        raise InvalidQuery(f"query: the store was opened with no class of {base.__name__}")
    return MixedQuery(plans, _members(plans, sorted(derived, key=attrgetter("name"))), base=base)


def _members(plans: PlanCache, models: Iterable[Model]) -> tuple[_Member, ...]:
    return tuple([_Member(Query(plans, QuerySpec(model, mixed=True))) for model in models])


# ---------------------------------------------------------------------------------------------- conditions, by class


def _narrowed(member: _Member, predicates: Sequence[Predicate[Any]]) -> _Member:
    """Return the query over a class, with more conditions."""
    for predicate in conjuncts(predicates):
        own_predicate = _of_class(predicate, member.model)
        if own_predicate is False and member.refuted is None:
            member = attrs.evolve(member, refuted=predicate_text(predicate, ()))
        elif not isinstance(own_predicate, bool):
            member = attrs.evolve(member, query=member.query.where(own_predicate))
    return member


def _of_class(predicate: Predicate[Any], model: Model) -> Predicate[Any] | bool:
    """Return a predicate on one class's own fields; True or False if it has that value for all entities."""
    match predicate:
        case And(parts=parts) | Or(parts=parts):
            decisive = isinstance(predicate, Or)  # the value of one part that decides
            own_parts = [_of_class(part, model) for part in parts]
            undecided = [part for part in own_parts if not isinstance(part, bool)]
            if decisive in own_parts or not undecided:
                return decisive if decisive in own_parts else not decisive
            return attrs.evolve(predicate, parts=tuple(undecided))
        case Not(part=part):
            negated = _of_class(part, model)
            return not negated if isinstance(negated, bool) else Not(part=negated)
        case Leaf():
            own_leaf = predicate.with_attributes(lambda attr: _own_attribute(attr, model))
            return isinstance(predicate, IsNull) if own_leaf is None else own_leaf
    raise InvalidQuery(f"expected a condition, got {safe_repr(predicate)}")


def _own_attribute(attr: Attr[Any, Any], model: Model) -> Attr[Any, Any] | None:
    """Return the attribute of a class for one of any class; None if the class has no such field.

    Raises:
        InvalidQuery: the class has a field of that name, but of another type.
    """
    if attr.owner is model.cls:
        return attr
    if attr.name == TIMESTAMP_NAME:
        return attrs.evolve(attr, owner=model.cls)
    if all(field.name != attr.name for field in model.declaration.fields):
        return None
    given_type = abstract_declaration(attr.owner).field(attr.name).type.nested(attr.path)
    try:
        own_type = model.declaration.field(attr.name).type.nested(attr.path)
    except ValueError:
        return None
    if not own_type.same_kind(given_type):
        label = ".".join((attr.name, *attr.path))
        raise InvalidQuery(
            f"{attr!r} is {given_type.name}, but {model.name}.{label} is {own_type.name}: query each class by itself"
        )
    return Attr(model.cls, attr.name, attr.type if attr.part else own_type, attr.path, attr.part, attr.uncut)


def _own_step(step: Any, model: Model) -> Any:
    attr = step.attr if isinstance(step, Order) else step
    if not isinstance(attr, Attr):
        return step  # (the query of the class raises)
    own_attr = _own_attribute(attr, model)
    if own_attr is None:
        raise InvalidQuery(f"order_by: {model.name} has no field {attr.label}; order by a field that every class has")
    return Order(own_attr, descending=isinstance(step, Order) and step.descending)


def _check_known(attr: Attr[Any, Any], models: Sequence[Model]) -> None:
    if not any(issubclass(model.cls, attr.owner) for model in models):
        raise InvalidQuery(f"{attr!r} is not a field of {' or '.join(model.name for model in models)}")


# ---------------------------------------------------------------------------------------------- order


def _ranked(
    place: Callable[[Row], Position],
    order: Sequence[Order[Any]],
    ordered: Callable[[Sequence[str]], Any],
    *,
    backwards: bool,
) -> Callable[[Row], Any]:
    """Return the sort key of a row in the order of the query; missing values are the least."""
    if not order:
        return (lambda row: Descending(ordered(place(row)))) if backwards else lambda row: ordered(place(row))

    def rank(row: Row) -> Any:
        position = place(row)
        values = [(value is not None, value) for value in position[: len(order)]]
        steps = [Descending(value) if step.descending else value for step, value in zip(order, values, strict=True)]
        return (*steps, ordered(position[-2:]))

    return rank


def _merged(
    streams: Sequence[Iterator[list[Row]]], ranks: Sequence[Callable[[Row], Any]]
) -> Iterator[tuple[int, list[Row]]]:
    """Yield the rows of sorted streams in one order: batches of rows of one stream, each with the stream's number.

    The classes of a table mostly have ranges of their own, so a batch is often the whole chunk that was read.
    """
    fronts = {at: rows for at, stream in enumerate(streams) if (rows := next(stream, []))}
    while fronts:
        heads = {at: ranks[at](rows[0]) for at, rows in fronts.items()}
        at = min(sorted(heads), key=heads.__getitem__)  # (in several tables two entities can have one key)
        rank, rows = ranks[at], fronts.pop(at)
        bound = min((head for number, head in heads.items() if number != at), default=None)
        end = len(rows)
        if bound is not None and not rank(rows[-1]) < bound:
            end = bisect_left(rows, bound, 1, key=rank)
        yield at, rows[:end]
        remaining = rows[end:] or next(streams[at], [])
        if remaining:
            fronts[at] = remaining
