"""The query builder: frozen, typed, lazy. Each call returns a new query; nothing is read before it is iterated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Never, Self, TypeVar, overload

import attrs

from ..entities.entity import Entity, Record
from ..errors import InvalidQuery
from ..execution.from_aggregates import matching_aggregate
from ..execution.totals import COUNT, GroupedQuery, Measured, States, calculated, fields_of, summed_up, totals_by_engine
from ..expressions.arithmetic import Computed
from ..expressions.tree import TIMESTAMP_NAME, Assignment, Attr, Compare, Expr, Order, Predicate
from ..progress import ProgressOption
from ..schema.slots import MeasureState
from .class_results import ClassResults, Rows
from .division import in_partition
from .moves import MoveByQuery
from .pairs import Pairs, pairs
from .partitions import Partition
from .results import check_condition, order_step, own_field, refuse_named
from .writing import WriteByQuery

E = TypeVar("E")
T = TypeVar("T", bound=Entity)
R = TypeVar("R", bound=Record)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")
J = TypeVar("J")


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
            own_field(order_by_step.attr, model, "an order")
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

    def move_to(
        self: ClassResults[Entity], to: type[T] | Callable[[E], T | None], /, *, progress: ProgressOption = False
    ) -> int:
        """Move the entities that the query finds to another class, or to other keys, and return their number.

        On SQLite batches of up to 1,000 are atomic: each entity is in exactly one place at every commit. On Azure Tables
        the target is written first, and the source deleted under its ETag then. For a moment, and after a kill, an entity
        is in both, and never in none. The same call then ends the move: a target that equals what would be written
        counts as moved.

        Args:
            to: a class with the same fields; or a function, which returns the entity to write, of any class, or None to
                leave this one alone.
            progress: as for `Store.insert_many`.

        Raises:
            EntityExists: another entity has the key of a target; the source stays.
            InvalidEntity: a target cannot be stored. ``written``, of this error and any other, says how many entities
                were moved before it.
            InvalidQuery: the class lacks a field; or, on Azure Tables, has a unique index and is moved within.
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
            UniqueViolation: another entity holds a value of a unique index.
        """
        return MoveByQuery(self._plans).move(self._spec, repr(self), to, progress=progress)

    def with_(self, other: type[R], /, *, by: Attr[E, Any] | tuple[Attr[E, Any], ...]) -> Pairs[E, R]:
        """Return each entity with the one of another class whose key it has, or None: ``tuple[Reading, Device | None]``.

        ``store.query(Reading).where(…).with_(Device, by=(Reading.site, Reading.device))``. Order, limit, budget and pages
        are those of the query. 256 entities at a time, each of the others is read once; on SQLite from the same state.

        Args:
            other: the other class.
            by: the fields that are its key, in the order of ``Device.key(…)``.

        Raises:
            InvalidQuery: the fields are not the key of the other class, or the store was not opened with that.
        """
        return pairs(self, other, by)

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
            attr = own_field(field, self._spec.model, "a group")
            if not attr.type.keyable:
                kind = "no field" if attr.name == TIMESTAMP_NAME else attr.type.name
                raise InvalidQuery(f"group_by: {attr!r} is {kind}; group by a scalar field")
        return self._groups(*fields)

    @property
    def _all(self) -> GroupedQuery[tuple[()], E]:
        return self._groups()

    def _groups(self, *by: Any) -> GroupedQuery[Any, E]:
        return GroupedQuery(by, partial(self._states, by))

    def _states(self, by: tuple[Attr[Any, Any], ...], measured: Measured, slot: MeasureState) -> States:
        measure = slot.attr
        for attr in () if measure is None else measure.attributes():
            own_field(attr, self._spec.model, "a measure")
        aggregate = matching_aggregate(self._plans, self._spec, by, slot)
        if aggregate is not None:
            return aggregate.states(self._plans.reads)
        spec = self._spec
        if spec.limit is None:
            spec = spec.unordered
            sorts = self._plans.engine.capabilities.sorts  # (else to read all is all that is possible)
            if sorts and not by and isinstance(measure, Attr) and slot.ordered:
                step = measure.asc() if measured == "min" else measure.desc()  # (a path may give this order)
                row = self.where(~measure.is_null()).order_by(step).select(measure).first()
                return summed_up([] if row is None else [row], slot)
        if isinstance(measure, Computed):
            rows = Rows[Any](self._plans, spec, (*by, *fields_of(measure)))
            return summed_up(calculated(rows, measure, slot, len(by)), slot)
        rows = Rows[Any](self._plans, spec, by if measure is None else (*by, measure))
        is_whole = spec.limit is None and spec.budget is None
        counts = self._plans.counts if is_whole else None
        states = None if counts is None else totals_by_engine(counts, rows._find, by, slot)
        return summed_up(rows, slot) if states is None else states
