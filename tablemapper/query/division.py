"""The division of a query into parts of about one size, or into partitions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Self, TypeVar

import attrs

from ..entities.declaration import declaration_of
from ..errors import InvalidQuery, safe_repr
from ..execution.prepared import PlanCache, PreparedPlan
from ..expressions.tree import Attr
from ..planning.query_parts import QueryPart
from ..planning.query_spec import QuerySpec
from ..planning.ranges import BoundPlan
from .column_results import ColumnResults
from .pages import TokenSeal, counted, query_identity
from .partitions import Partition

T_co = TypeVar("T_co", covariant=True)

_LONG = 300  # characters of a query in a message


def in_partition(spec: QuerySpec, partition: Partition[Any]) -> QuerySpec:
    """Return what asks for entities in one partition of those that a query asks for.

    Raises:
        InvalidQuery: its entities are in no partition, or those of another table, or it has one already.
    """
    part, model = spec.part or QueryPart(None), spec.model
    if declaration_of(partition.cls).table != model.table:
        raise InvalidQuery(f"where: {partition.key!r} is a partition of {partition.cls.__name__}, not of {model.name}")
    if spec.range is not None or part.index is not None:
        index = part.index if spec.range is None else spec.range.name
        raise InvalidQuery(f"where: the query follows {model.name}.{index}, which has other partitions")
    if part.partition not in (None, partition.key):
        raise InvalidQuery(f"where: nothing is in two partitions, {part.partition!r} and {partition.key!r}")
    return attrs.evolve(spec, part=attrs.evolve(part, partition=partition.key))


class Splittable(ColumnResults[T_co]):
    """The results of a query over one class, which can be split."""

    __slots__ = ("_plans", "_spec", "_wanted")

    def __init__(self, plans: PlanCache, spec: QuerySpec, wanted: tuple[Attr[Any, Any], ...] | None = None) -> None:
        self._plans = plans
        self._spec = spec
        self._wanted = wanted

    def _with(self, spec: QuerySpec) -> Self:
        return type(self)(self._plans, spec, self._wanted)

    def _find(self, *, warn: bool = True, most: int | None = None) -> tuple[PreparedPlan, BoundPlan]:
        raise NotImplementedError

    def split(self, count: int, /) -> list[Self]:
        """Return so many queries that together are this one: each result is in exactly one of them, some may be empty.

        Each is of the keys from one place up to another, about as many rows as the next one. What is written meanwhile
        is in the part in which its key is. A worker in another process takes the `token` of a part to `part`.

        Raises:
            InvalidQuery: it is not a number from 1 on; or the query has a limit or an order.
            ScanRefused: no key or index bounds the query.
        """
        count = counted("split", count, least=1)
        if self._spec.limit is not None or self._spec.order:
            clause = "a limit" if self._spec.limit is not None else "an order"
            raise InvalidQuery(f"split: parts have no common {clause.split()[1]}; split a query without {clause}")
        prepared, bound = self._find(warn=False)
        index, part = prepared.plan.index, self._spec.part or QueryPart(None)
        places = self._plans.reads.divide(bound, count)
        ends = [part.low, *[part.low or ("", "")] * (count - 1 - len(places)), *places, part.high]
        name = None if index is None else index.name
        return [self._in_part(QueryPart(name, low, high, part.partition)) for low, high in pairwise(ends)]

    @property
    def token(self) -> str:
        """The text that says which part of its query this is, for `part`; opaque, and good for this query only.

        Raises:
            InvalidQuery: this is no part.
        """
        part = self._spec.part
        if part is None:
            raise InvalidQuery(f"{safe_repr(self, _LONG)}: this is a whole query; split(count) returns parts")
        return self._part_seal().token(attrs.astuple(part), 0)

    def part(self, token: str, /) -> Self:
        """Return the part of this query with a token, which `split` gave to the same query, maybe in another process.

        Raises:
            InvalidToken: the token was changed, or is that of another query.
        """
        form, _ = self._part_seal().open(token)
        return self._in_part(QueryPart.of(form))

    def _in_part(self, part: QueryPart | None) -> Self:
        return self._with(attrs.evolve(self._spec, part=part))

    def _part_seal(self) -> TokenSeal:
        whole_query = attrs.evolve(self._spec, part=None)
        return TokenSeal(
            self._plans,
            ["part", *query_identity(self._plans, whole_query, self._wanted)],
            lambda: safe_repr(self, _LONG),
        )
