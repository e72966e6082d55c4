"""Queries with their values, and their shapes without them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import attrs

from ..datetime_types import Builtin
from ..entities.index import IndexRange
from ..expressions.boolean import Unended
from ..expressions.predicates import conjuncts, forms, parametrised
from ..expressions.tree import Attr, Compare, IsNull, Order, Parameter, Predicate
from ..schema.model import Model
from .budget import Budget
from .conditions import AnyPredicate, call_conditions
from .query_parts import QueryPart


@attrs.frozen(eq=False)
class QueryShape:
    """The shape of a query: everything but its constants, which are parameters."""

    model: Model
    where: tuple[AnyPredicate, ...] = ()
    order: tuple[Order[Any], ...] = ()
    along: str | None = None
    """The index that the query names; its values are among the conditions."""
    selected: tuple[Attr[Any, Any], ...] | None = None
    """The attributes that are selected; None: whole entities."""
    implied: Mapping[str, frozenset[AnyPredicate]] = {}
    """The partial indexes with a condition that the query repeats, each with the predicates that do."""
    scan: bool = False
    """Whether the whole table may be read."""
    in_memory: bool = False
    """Whether rows may be read whole and sorted in memory, where the engine has no other way to an order."""
    by_time: bool = True
    """Whether a range of times may be read bucket by bucket."""
    state: bool = False
    """Whether the state of an aggregate's group is read, which no index holds."""
    mixed: bool = False
    """Whether rows of other classes come between: then they are in the order of the entities' keys, or sorted."""
    backwards: bool = False
    """Whether that order is reversed."""
    unready: Mapping[str, str] = {}
    """The indexes that cannot be read yet, by name, each with the reason."""
    missing_fields: Mapping[str, Collection[str] | None] = {}
    """The fields that indexes are declared to hold, and do not, by the name of the index; None: its rows are no answer."""
    part: tuple[str | None, bool] | None = None
    """The index (None: the key) that a part of a query is of, and whether that is one partition; None: it is whole."""
    unended: AnyPredicate | None = None
    """The condition that an entity has not ended, if there is one; it bounds nothing, and so changes no path."""


@attrs.define(eq=False)  # (not frozen: one is built for each call of a query, three times as fast)
class QuerySpec:
    """A query with its values."""

    model: Model
    range: IndexRange[Any] | None = None
    where: tuple[Predicate[Any], ...] = ()
    order: tuple[Order[Any], ...] = ()
    limit: int | None = None
    scan: bool = False
    budget: Budget | None = None
    in_memory: bool = False
    """Whether rows may be sorted in memory."""
    eventual: bool = False
    """Whether what is found may be older than the entities."""
    mixed: bool = False
    """Whether the rows of other classes come between."""
    backwards: bool = False
    """Whether they then come from the last to the first."""
    part: QueryPart | None = None
    """What of it is asked; None for all."""
    moment: datetime | None = None
    """By which it is judged what has ended, and so not found; None: by the time of the call."""

    def narrowed(self, where: tuple[Predicate[Any], ...]) -> QuerySpec:
        """Return the question with more conditions."""
        # (attrs.evolve takes 5 times as long.)
        return QuerySpec(self.model, self.range, self.where + where, *_later_fields(self))

    @property
    def unordered(self) -> QuerySpec:
        """The question without an order."""
        return attrs.evolve(self, order=()) if self.order else self

    def parts(self) -> tuple[Hashable, list[Any]]:
        """Return the part that queries share which differ in their constants only, and the constants."""
        along, order = self.range, self.order
        values: list[Any] = [] if along is None else [*along.values]
        form = (
            self.model,
            None if along is None else (along.name, len(along.values)),
            tuple([predicate.shape(values) for predicate in self.where]),
            tuple([(step.attr.source, step.descending, step.wide) for step in order]) if order else (),
            self.scan,
            self.budget is None,
            self.in_memory,
            self.eventual,
            self.mixed,
            self.backwards,
            self.part and self.part.form,
        )
        return form, values


BEFORE_ALL = Builtin.datetime.min.replace(tzinfo=UTC)
"""The moment by which nothing has ended."""
_later_fields = attrgetter(*[field.name for field in attrs.fields(QuerySpec)[3:]])


def query_form(
    spec: QuerySpec,
    wanted: tuple[Attr[Any, Any], ...] | None,
    *,
    by_time: bool = True,
    state: bool = False,
    unready: Mapping[str, str] = MappingProxyType({}),
    missing_fields: Mapping[str, Collection[str] | None] = MappingProxyType({}),
) -> QueryShape:
    """Return the shape of a query, with parameters in place of its constants."""
    model, along = spec.model, spec.range
    where, number = [], 0 if along is None else len(along.values)
    by_name = () if along is None else call_conditions(model.declaration, model.index(along.name), number)
    for predicate in spec.where:
        generic, number = parametrised(predicate, number)
        where.append(generic)
    parts = list(conjuncts(where))
    return QueryShape(
        model,
        (*by_name, *where),
        spec.order,
        None if along is None else along.name,
        wanted,
        {name: frozenset(parts[place] for place in places) for name, places in implied(spec)},
        spec.scan,
        spec.in_memory,
        by_time,
        state,
        spec.mixed,
        spec.backwards,
        unready,
        missing_fields,
        None if spec.part is None else spec.part.form,
        None if model.declaration.expiry is None else _unended(model, Parameter(number)),
    )


def _unended(model: Model, moment: Parameter) -> AnyPredicate:
    field = model.declaration.expiry
    assert field is not None
    attr: Attr[Any, Any] = Attr(model.cls, field.name, field.type)
    later: AnyPredicate = Compare(attr=attr, op=">", value=moment)
    return Unended(parts=(IsNull(attr=attr), later) if field.optional else (later,))


def implied(spec: QuerySpec) -> tuple[tuple[str, frozenset[int]], ...]:
    """Return the partial indexes whose condition the query repeats, with the places of the conjuncts that do."""
    partial = spec.model.partial_indexes
    if not partial:
        return ()
    repeated = forms(*spec.where)
    return tuple(
        (name, frozenset(at for at, form in enumerate(repeated) if form in required))
        for name, required in partial
        if all(form in repeated for form in required)
    )
