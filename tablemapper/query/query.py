"""The query builder: frozen, typed, lazy. Each call returns a new query; nothing is read before it is iterated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Never, Self, TypeVar, overload

import attrs

from ..engines.protocol import Position
from ..entities.entity import Entity
from ..errors import InvalidQuery, StoreClosed
from ..execution.column_reader import ColumnReader
from ..execution.from_aggregates import matching_aggregate, mismatches, totals_served
from ..execution.plan_reader import PlanReader
from ..execution.prepared import PreparedPlan, as_read
from ..execution.totals import COUNT, GroupedQuery, Measured, States, calculated, fields_of, summed_up, totals_by_engine
from ..expressions.arithmetic import Computed
from ..expressions.foreign_names import refuse_foreign_names
from ..expressions.predicates import conjuncts
from ..expressions.tree import TIMESTAMP_NAME, Assignment, Attr, Compare, Expr, Order, Predicate
from ..planning.budget import Budget, start
from ..planning.cost import Cost, cost_of
from ..planning.explanation import MOST_COUNTED, Explanation, order_text, predicate_text
from ..planning.ranges import BoundPlan
from ..progress import ProgressOption
from ..schema.slots import MeasureState
from .division import Splittable, in_partition
from .pages import counted, query_identity
from .partitions import Partition
from .results import check_condition, order_step, own_field, refuse_named, seconds
from .writing import WriteByQuery

E = TypeVar("E")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")
J = TypeVar("J")


class ClassResults(Splittable[T_co]):
    """The results of a query. Iterate them, or ask for `first`, `one`, `exists`, `count`, `page`."""

    __slots__ = ()

    @property
    def _names(self) -> str:
        return self._spec.model.name

    # ------------------------------------------------------------------------------------------ building

    def limit(self, count: int, /) -> Self:
        """Stop after so many results.

        Raises:
            InvalidQuery: it is not a number, 0 or more.
        """
        return self._with(attrs.evolve(self._spec, limit=counted("limit", count, least=0)))

    def allow_scan(self) -> Self:
        """Allow the query to read the whole table where no key or index bounds it.

        A warning is logged once for queries of one form, if the table has more than 10,000 rows.
        """
        return self._with(attrs.evolve(self._spec, scan=True))

    def allow_sort(self) -> Self:
        """Allow the query to read all of its rows and to sort them in memory, on an engine that sorts nothing itself.

        That are at most 100,000 on Azure Tables, or what `budget` allows. SQLite sorts by itself, without this.
        """
        return self._with(attrs.evolve(self._spec, in_memory=True))

    def allow_eventual(self) -> Self:
        """Allow the query to be answered from an index or an aggregate that may be older than the entities.

        On Azure Tables these are the ones in other partitions. On SQLite none is ever older, but an aggregate over a
        class with ``expires=True`` counts what has ended until `Store.expire`.
        """
        return self._with(attrs.evolve(self._spec, eventual=True))

    def budget(self, *, timeout: float | None = None, examined: int | None = None) -> Self:
        """Limit what one run of the query may use; past it, the run raises `QueryStopped`.

        Args:
            timeout: seconds from the start of the run until you take its last row.
            examined: rows that are read, whether they match or not. Conditions are then checked after reading, so set
                it where a runaway query is worse than a slow one.

        Raises:
            InvalidQuery: a limit is not a number, 0 or more.
        """
        if timeout is not None:
            timeout = seconds("budget: timeout=", timeout)
        if examined is not None:
            examined = counted("budget: examined=", examined, least=0)
        budget = None if timeout is None and examined is None else Budget(timeout, examined)
        return self._with(attrs.evolve(self._spec, budget=budget))

    # ------------------------------------------------------------------------------------------ reading

    def _taken(self, limit: int | None) -> Iterator[T_co]:
        prepared, values = self._plans.prepared(self._spec, self._wanted)
        if prepared.key is not None and self._spec.budget is None:
            return iter(prepared.only(self._plans.engine, values) if limit != 0 else ())
        if limit != 0 and prepared.partition is not None and (items := prepared.partition(values, limit)) is not None:
            return iter(items)
        run = self._run(*self._bound(prepared, values, most=limit))
        return run.items(limit) if limit != 0 else iter(())

    def _run(self, prepared: PreparedPlan, bound: BoundPlan) -> PlanReader:
        return PlanReader(self._plans.reads, prepared, bound, prepared.layout, start(self._spec.budget, self))

    def first(self) -> T_co | None:
        """Return the first result, or None.

        Raises:
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        if self._spec.budget is None and self._spec.limit != 0:
            prepared, values = self._plans.prepared(self._spec, self._wanted)
            if prepared.key is not None:
                return next(iter(prepared.only(self._plans.engine, values)), None)
            if prepared.partition is not None and (items := prepared.partition(values, 1)) is not None:
                return items[0] if items else None
            prepared, bound = self._bound(prepared, values, most=1)
            if not prepared.whole:
                return next(self._run(prepared, bound).items(), None)
            row = self._plans.reads.find(bound, prepared.layout)
            return None if row is None else prepared.items((row,), bound, prepared.layout)[0]
        return next(iter(self), None)

    def exists(self) -> bool:
        """Return whether there is a result.

        Raises:
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return Rows[Any](self._plans, self._spec.unordered, ()).first() is not None

    def count(self) -> int:
        """Return the number of results.

        Raises:
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        lean = Rows[Any](self._plans, self._spec.unordered, ())
        limit = self._spec.limit
        if self._spec.budget is not None:
            return sum(1 for _ in lean)
        prepared, bound = lean._find()
        counts = self._plans.counts
        if counts is not None and (count := counts.count(bound)) is not None:
            return count if limit is None else min(count, limit)
        return sum(1 for _ in lean._run(prepared, bound).items(limit))

    def explain(self) -> Explanation:
        """Return how the query is answered: the path, its ranges, what is filtered and sorted, and why.

        Raises:
            ScanRefused: no key or index bounds the query.
        """
        prepared, bound = self._find(warn=False)
        plan = prepared.plan
        residual = {id(predicate) for predicate in prepared.residual}
        texts = [(predicate_text(predicate, bound.values), id(predicate) in residual) for predicate in plan.filter]
        explained = self._plans.reads.explain(bound, prepared.layout, self._spec.limit)
        totals = dict(totals_served(self._plans, self._spec))
        return Explanation(
            str(plan.path),
            plan,
            bound.ranges,
            tuple(text for text, _ in texts),
            tuple(text for text, is_residual in texts if is_residual),
            order_text(plan.sort) or (("key",) if plan.by_key else ()),
            self._plans.between_bounds(bound, MOST_COUNTED),
            self._plans.engine.capabilities,
            tuple(explained.lines),
            explained.requests,
            explained.eventual or any(self._plans.may_lag(self._spec.model, total) for total in totals.values()),
            partial(self._cost, bound),
            totals,
            tuple(mismatches(self._plans, self._spec)),
        )

    def _cost(self, bound: BoundPlan) -> Cost:
        footprint, counts, bound = None, self._plans.counts, as_read(bound, eventual=self._spec.eventual)
        with suppress(StoreClosed):
            footprint = None if counts is None else counts.footprint(bound, MOST_COUNTED)
        return cost_of(bound.plan, footprint, len(bound.ranges), self._spec.limit)

    def __repr__(self) -> str:
        spec = self._spec
        name = spec.model.name
        parts = [name if spec.range is None else f"{name}.{spec.range.name}{spec.range.values}"]
        parts += [predicate_text(predicate, ()) for predicate in conjuncts(spec.where)]
        parts += [] if spec.part is None else [str(spec.part)]
        return f"<Query {', '.join(parts)}>"  # (whichever kind of it)

    # ------------------------------------------------------------------------------------------ how

    def _find(self, *, warn: bool = True, most: int | None = None) -> tuple[PreparedPlan, BoundPlan]:
        return self._bound(*self._plans.prepared(self._spec, self._wanted), warn=warn, most=most)

    def _bound(
        self, prepared: PreparedPlan, values: Sequence[Any], *, warn: bool = True, most: int | None = None
    ) -> tuple[PreparedPlan, BoundPlan]:
        prepared, bound = self._plans.bind(prepared, values, self._spec, self._wanted)
        if warn and prepared.plan.scan:
            limits = [limit for limit in (most, self._spec.limit) if limit is not None]
            self._plans.warn_of_scan(prepared, bound, self.__repr__, min(limits, default=None))
        return prepared, bound

    @property
    def _attributes(self) -> tuple[Attr[Any, Any], ...]:
        if self._wanted is not None:
            return self._wanted
        model = self._spec.model
        return tuple([getattr(model.cls, field.name) for field in model.declaration.fields])

    def _reader(self) -> ColumnReader:
        rows = Rows[Any](self._plans, self._spec, self._attributes)
        return ColumnReader(rows._run(*rows._find()), self._attributes, self._spec.limit)

    def _form(self) -> Any:
        return query_identity(self._plans, self._spec, self._wanted)

    def _positioned(self, after: Position | None, limit: int) -> Iterator[tuple[Position, Any]]:
        run = self._run(*self._find(most=limit))
        if run.prepared.plan.index is not None or run.spending is not None:
            run.layout = run.prepared.placed  # (else a row begins with its keys, which are its place on the key's path)
        return run.positioned(after, limit)


class Query(ClassResults[E]):
    """The entities of a class that satisfy conditions; lazy, typed and immutable."""

    __slots__ = ()

    def where(self, *predicates: Predicate[E] | Partition[E], **named: Never) -> Self:
        """Keep only results that satisfy every condition: ``.where(Product.price > 10, Product.name == "Dune")``.

        One of `Store.partitions` is a condition, too: the entity is in this partition.

        Raises:
            InvalidQuery: an argument is not a condition, or uses a field of another class.
        """
        model = self._spec.model
        cls = model.cls
        if named:
            refuse_named(named, model.name)
        spec = self._spec
        conditions: tuple[Any, ...] = predicates
        for predicate in predicates:
            if isinstance(predicate, Compare) and predicate.attr.owner is cls and predicate.value.__class__ is not Attr:
                continue  # (what follows says the same, but takes longer)
            if isinstance(predicate, Partition):
                spec = in_partition(spec, predicate)
                conditions = tuple([condition for condition in conditions if condition is not predicate])
                continue
            check_condition(predicate, model.name)
            for attr in predicate.attributes():
                own_field(attr, model)
        return self._with(spec.narrowed(conditions))

    def order_by(self, *steps: Attr[E, Any] | Order[E]) -> Self:
        """Order by fields, the first one first; ``.desc()`` for the greatest first.

        Entities that are equal in all of them come in the order of the key or index that is read, then by key. Add
        fields to determine their order.

        Raises:
            InvalidQuery: a field has no order, or is of another class.
        """
        model = self._spec.model
        order = []
        for step in steps:
            order_by_step = order_step(step, model)
            own_field(order_by_step.attr, model)
            if not order_by_step.attr.type.sortable:
                raise InvalidQuery(
                    f"order_by: {order_by_step.attr!r} is {order_by_step.attr.type.name}, which has no order"
                )
            wide = model.declaration.field(order_by_step.attr.name).wide
            order.append(attrs.evolve(order_by_step, wide=True) if wide else order_by_step)
        return self._with(attrs.evolve(self._spec, order=tuple(order)))

    @overload
    def update(
        self: ClassResults[Entity],
        change: Callable[[E], E | None],
        /,
        *,
        progress: ProgressOption = False,
        resume: str | None = None,
    ) -> int: ...
    @overload
    def update(
        self: ClassResults[Entity],
        /,
        *assignments: Assignment[E],
        progress: ProgressOption = False,
        resume: str | None = None,
        **values: Any,
    ) -> int: ...
    def update(self, /, *given: Any, progress: ProgressOption = False, resume: str | None = None, **values: Any) -> int:
        """Change the entities that the query finds, and return the number of entities written.

        Each batch of up to 1,000 entities is atomic; batches come in the order of the keys. Each entity is written at
        most once. If someone else writes an entity meanwhile, it is read again, and changed if the query still finds
        it. An order matters only with a limit.

        Args:
            given: what to assign, checked by type: ``Product.price.set(Product.price * 2)``, ``Product.stock.add(1)``;
                or one function, which returns the entity to write, or None to leave the entity alone. An entity that
                equals the stored one is not written.
            progress: as for `Store.insert_many`.
            resume: a name under which the store keeps the progress of the run. After an error or a kill the same call
                continues there, and changes no entity twice; the number returned is then that of all its runs.
            values: what to assign, by name: ``price=Product.price * 2``, ``name="x"``.

        Raises:
            InvalidEntity: an assignment is not possible, for any entity or for one. ``written``, of this error and any
                other, says how many entities were written before it.
            InvalidQuery: another query is running under this name.
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
            UniqueViolation: another entity holds a new value of a unique index.
        """
        return WriteByQuery(self._plans).update(self._spec, repr(self), given, values, progress=progress, resume=resume)

    def delete(self: ClassResults[Entity], *, progress: ProgressOption = False, resume: str | None = None) -> int:
        """Delete the entities that the query finds, in batches like those of `update`, and return their number.

        Raises:
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
            InvalidQuery: another query is running under this name.
        """
        return WriteByQuery(self._plans).delete(self._spec, repr(self), progress=progress, resume=resume)

    @overload
    def select(self, a: Attr[E, A], /) -> Rows[tuple[A]]: ...
    @overload
    def select(self, a: Attr[E, A], b: Attr[E, B], /) -> Rows[tuple[A, B]]: ...
    @overload
    def select(self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], /) -> Rows[tuple[A, B, C]]: ...
    @overload
    def select(self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], /) -> Rows[tuple[A, B, C, D]]: ...
    @overload
    def select(
        self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], f: Attr[E, F], /
    ) -> Rows[tuple[A, B, C, D, F]]: ...
    @overload
    def select(
        self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], f: Attr[E, F], g: Attr[E, G], /
    ) -> Rows[tuple[A, B, C, D, F, G]]: ...
    @overload
    def select(
        self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], f: Attr[E, F], g: Attr[E, G], h: Attr[E, H],
        /,
    ) -> Rows[tuple[A, B, C, D, F, G, H]]: ...  # fmt: skip
    @overload
    def select(
        self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], f: Attr[E, F], g: Attr[E, G], h: Attr[E, H],
        j: Attr[E, J], /,
    ) -> Rows[tuple[A, B, C, D, F, G, H, J]]: ...  # fmt: skip
    @overload
    def select(self, *fields: Attr[E, Any]) -> Rows[tuple[Any, ...]]: ...
    def select(self, *fields: Any) -> Any:
        """Return tuples of fields instead of entities; only these are read, from an index if it holds them all.

        Raises:
            InvalidQuery: no field is given, or a field of another class.
        """
        if not fields:
            raise InvalidQuery("select: name at least one field")
        for field in fields:
            own_field(field, self._spec.model)
        return Rows[Any](self._plans, self._spec, fields)

    # ------------------------------------------------------------------------------------------ totals

    def count(self) -> int:
        """Return the number of entities: from a declared aggregate if one fits, otherwise by counting.

        Raises:
            ScanRefused: no aggregate fits, and no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        aggregate = matching_aggregate(self._plans, self._spec, (), COUNT)
        if aggregate is None:
            return super().count()
        return sum(number for number, _ in aggregate.states(self._plans.reads).values())

    def sum(self, field: Expr[A | None, E], /) -> A | None:
        """Add up a field, exactly; None if no entity has a value.

        Raises:
            InvalidQuery: the field has no sum, or the sum is beyond its type.
            ScanRefused: no aggregate fits, and no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return self._all.sum(field).get(())

    @overload
    def avg(self, field: Expr[Decimal | None, E], /) -> Decimal | None: ...  # type: ignore[overload-overlap]
    @overload
    def avg(self, field: Expr[timedelta | None, E], /) -> timedelta | None: ...  # type: ignore[overload-overlap]
    @overload
    def avg(self, field: Expr[float | None, E], /) -> float | None: ...
    def avg(self, field: Expr[Any, E], /) -> Any:
        """Divide the sum of a field by the number of its values; None if there is none. Decimals take 28 digits.

        Raises:
            InvalidQuery: the field has no sum.
            ScanRefused: no aggregate fits, and no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return self._all.avg(field).get(())

    def min(self, field: Expr[A | None, E], /) -> A | None:
        """Find the least value of a field; None if no entity has one.

        Raises:
            InvalidQuery: the field has no order.
            ScanRefused: no aggregate fits, and no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return self._all.min(field).get(())

    def max(self, field: Expr[A | None, E], /) -> A | None:
        """Find the greatest value of a field; None if no entity has one.

        Raises:
            InvalidQuery: the field has no order.
            ScanRefused: no aggregate fits, and no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return self._all.max(field).get(())

    @overload
    def group_by(self, a: Attr[E, A], /) -> GroupedQuery[A, E]: ...
    @overload
    def group_by(self, a: Attr[E, A], b: Attr[E, B], /) -> GroupedQuery[tuple[A, B], E]: ...
    @overload
    def group_by(self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], /) -> GroupedQuery[tuple[A, B, C], E]: ...
    @overload
    def group_by(
        self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], /
    ) -> GroupedQuery[tuple[A, B, C, D], E]: ...
    def group_by(self, *fields: Any) -> Any:
        """Return the groups of fields, or of truncated times, for ``.count()``, ``.sum(field)`` … of each.

        Raises:
            InvalidQuery: a field cannot be grouped by, or is of another class.
        """
        if not fields:
            raise InvalidQuery("group_by: name at least one field")
        for field in fields:
            attr = own_field(field, self._spec.model)
            if not attr.type.keyable:
                what = "no field" if attr.name == TIMESTAMP_NAME else attr.type.name
                raise InvalidQuery(f"group_by: {attr!r} is {what}; group by a scalar field")
        return self._groups(*fields)

    @property
    def _all(self) -> GroupedQuery[tuple[()], E]:
        return self._groups()

    def _groups(self, *by: Any) -> GroupedQuery[Any, E]:
        return GroupedQuery(by, partial(self._states, by))

    def _states(self, by: tuple[Attr[Any, Any], ...], measured: Measured, slot: MeasureState) -> States:
        measure = slot.attr
        for attr in () if measure is None else measure.attributes():
            own_field(attr, self._spec.model)
        aggregate = matching_aggregate(self._plans, self._spec, by, slot)
        if aggregate is not None:
            return aggregate.states(self._plans.reads)
        spec = self._spec
        if spec.limit is None:
            spec = spec.unordered
            sorts = self._plans.engine.capabilities.sorts  # (else to read all is all that is possible)
            if sorts and not by and isinstance(measure, Attr) and slot.ordered:
                return self._extreme(slot, measure.asc() if measured == "min" else measure.desc())
        if isinstance(measure, Computed):
            rows = Rows[Any](self._plans, spec, (*by, *fields_of(measure)))
            return summed_up(calculated(rows, measure, slot, len(by)), slot)
        rows = Rows[Any](self._plans, spec, by if measure is None else (*by, measure))
        is_whole = spec.limit is None and spec.budget is None
        counts = self._plans.counts if is_whole else None
        states = None if counts is None else totals_by_engine(counts, rows._find, by, slot)
        return summed_up(rows, slot) if states is None else states

    def _extreme(self, slot: MeasureState, step: Order[Any]) -> States:
        """Return the least or the greatest value: the first one in an order that a path may give."""
        row = self.where(~step.attr.is_null()).order_by(step).select(step.attr).first()
        return summed_up([] if row is None else [row], slot)


@refuse_foreign_names("rows", lambda rows: ("a query after .select(…)", rows._names))
class Rows(ClassResults[T]):
    """Tuples of fields of the entities that a query finds."""

    __slots__ = ()
