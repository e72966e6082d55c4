"""Queries for asyncio: those of `query.query`, built the same way, awaited where they read."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Never, NoReturn, Self, TypeVar, overload

from ..entities.entity import Entity, Record
from ..execution.totals import GroupedQuery, Owner
from ..expressions.arithmetic import AnyOwner
from ..expressions.foreign_names import refuse_foreign_names
from ..expressions.tree import Assignment, Attr, Expr, Order, Predicate
from ..planning.explanation import Explanation, MixedExplanation
from ..progress import ProgressOption
from ..query.class_results import ClassResults, Rows
from ..query.pages import Page
from ..query.pairs import Pairs
from ..query.partitions import Partition
from ..query.query import Query
from .awaited import AsyncFacade, awaited
from .cancellation import Cancellation
from .cursor import AsyncCursor

E = TypeVar("E")
M = TypeVar("M", bound=Entity)
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
_E = TypeVar("_E", Explanation, MixedExplanation)
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")
J = TypeVar("J")
R = TypeVar("R", bound=Record)
T2 = TypeVar("T2", bound=Entity)


@refuse_foreign_names("query", lambda _: ("a query", "Product"), "async")
class AsyncResults(AsyncFacade[ClassResults[T]], Generic[T]):
    """The results of a query: for ``async for``, or to be awaited as `first`, `one`, `exists`, `count`, `page`."""

    def _with(self, results: Any) -> Self:
        return type(self)(self._workers, results)

    def limit(self, count: int, /) -> Self:
        """Stop after so many results; as `Query.limit`."""
        return self._with(self._sync.limit(count))

    def allow_scan(self) -> Self:
        """Allow the query to read the whole table where no key or index bounds it; as `Query.allow_scan`."""
        return self._with(self._sync.allow_scan())

    def allow_sort(self) -> Self:
        """Allow the query to read all of its rows and to sort them in memory; as `Query.allow_sort`."""
        return self._with(self._sync.allow_sort())

    def allow_eventual(self) -> Self:
        """Allow answers from what may be older than the entities; as `Query.allow_eventual`."""
        return self._with(self._sync.allow_eventual())

    def budget(self, *, timeout: float | None = None, examined: int | None = None) -> Self:
        """Limit what one run of the query may use; as `Query.budget`."""
        return self._with(self._sync.budget(timeout=timeout, examined=examined))

    def __aiter__(self) -> AsyncCursor[T]:
        return AsyncCursor(self._workers, partial(iter, self._sync))

    def __reduce__(self) -> NoReturn:
        self._sync.__reduce__()

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise TypeError("an asynchronous query needs async for: async for entity in query; or await query.list()")

        def __await__(self) -> NoReturn:
            raise TypeError(
                "a query cannot be awaited; await a call that reads: await query.first(), .list(), .count() …"
            )

    async def list(self) -> builtins.list[T]:
        """Return all results.

        Raises:
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return await self._workers.run(lambda: [*self._sync])

    first: Final = awaited(ClassResults[T].first)
    one: Final = awaited(ClassResults[T].one)
    one_or_none: Final = awaited(ClassResults[T].one_or_none)
    exists: Final = awaited(ClassResults[T].exists)
    count: Final = awaited(ClassResults[T].count)
    page: Final = awaited(ClassResults[T].page)

    async def explain(self) -> Explanation:
        """Return the plan of the query, with its cost; as `Query.explain`.

        Raises:
            ScanRefused: no key or index bounds the query.
        """
        return await self._workers.run(lambda: _with_cost(self._sync.explain()))

    async def pages(self, size: int, /) -> AsyncIterator[Page[T]]:
        """Yield page after page; as `Query.pages`."""
        page = await self.page(size)
        yield page
        while page.token is not None:
            page = await self.page(size, page.token)
            yield page

    async def split(self, count: int, /) -> builtins.list[Self]:
        """Return so many queries that together are this one; as `Query.split`."""
        parts = await self._workers.run(self._sync.split, count)
        return [self._with(part) for part in parts]

    @property
    def token(self) -> str:
        """The text that says which part of its query this is; as `Query.token`."""
        return self._sync.token

    def part(self, token: str, /) -> Self:
        """Return the part of this query with a token; as `Query.part`."""
        return self._with(self._sync.part(token))

    def __repr__(self) -> str:
        return f"<async {self._sync!r}>"


class AsyncColumnResults(AsyncResults[T]):
    """The results of a query of one class, with the same columns in every row."""

    columns: Final = awaited(ClassResults[T].columns)
    to_arrow: Final = awaited(ClassResults[T].to_arrow)
    to_polars: Final = awaited(ClassResults[T].to_polars)
    to_pandas: Final = awaited(ClassResults[T].to_pandas)

    def arrow_batches(self, size: int = 65_536, /, *, decimals: Mapping[Attr[Any, Any], int] | None = None) -> Any:
        """Return ``pyarrow.RecordBatch`` after ``RecordBatch``, for ``async for``; as `Query.arrow_batches`."""
        return AsyncCursor(self._workers, partial(self._sync.arrow_batches, size, decimals=decimals))


class AsyncQuery(AsyncColumnResults[E]):
    """A `Query` with results to await: ``async for product in store.query(Product).where(…)``."""

    _sync: Query[E]

    def where(self, *predicates: Predicate[E] | Partition[E], **named: Never) -> Self:
        """Keep only results that satisfy every condition; as `Query.where`."""
        return self._with(self._sync.where(*predicates, **named))

    def order_by(self, *steps: Attr[E, Any] | Order[E]) -> Self:
        """Order by fields, the first one first; as `Query.order_by`."""
        return self._with(self._sync.order_by(*steps))

    @overload
    def update(
        self: AsyncQuery[M],
        change: Callable[[M], M | None],
        /,
        *,
        progress: ProgressOption = False,
        resume: str | None = None,
    ) -> Coroutine[Any, Any, int]: ...
    @overload
    def update(
        self: AsyncQuery[M],
        /,
        *assignments: Assignment[M],
        progress: ProgressOption = False,
        resume: str | None = None,
        **values: Any,
    ) -> Coroutine[Any, Any, int]: ...
    def update(self, /, *given: Any, progress: ProgressOption = False, resume: str | None = None, **values: Any) -> Any:
        """Change the entities that the query finds, and return the number of entities written; as `Query.update`.

        A call that is cancelled leaves whole batches written.
        """
        query: Any = self._sync
        return self._cancellable(
            lambda progress: query.update(*given, progress=progress, resume=resume, **values), progress
        )

    async def delete(self: AsyncQuery[M], *, progress: ProgressOption = False, resume: str | None = None) -> int:
        """Delete the entities that the query finds, and return their number; as `Query.delete`."""
        query: Any = self._sync
        return await self._cancellable(lambda progress: query.delete(progress=progress, resume=resume), progress)

    async def move_to(
        self: AsyncQuery[M], to: type[T2] | Callable[[M], T2 | None], /, *, progress: ProgressOption = False
    ) -> int:
        """Move the entities that the query finds to another class, or to other keys; as `Query.move_to`.

        A call that is cancelled leaves whole batches moved.
        """
        query: Any = self._sync
        return await self._cancellable(lambda progress: query.move_to(to, progress=progress), progress)

    def with_(self, other: type[R], /, *, by: Attr[E, Any] | tuple[Attr[E, Any], ...]) -> AsyncPairs[E, R]:
        """Return each entity with the one of another class whose key it has, or None; as `Query.with_`."""
        return AsyncPairs(self._workers, self._sync.with_(other, by=by))

    async def _cancellable(self, call: Callable[[ProgressOption], int], progress: ProgressOption) -> int:
        cancellation = Cancellation()
        return await self._workers.run_until(cancellation, partial(call, cancellation.progress(progress)))

    @overload
    def select(self, a: Attr[E, A], /) -> AsyncRows[tuple[A]]: ...
    @overload
    def select(self, a: Attr[E, A], b: Attr[E, B], /) -> AsyncRows[tuple[A, B]]: ...
    @overload
    def select(self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], /) -> AsyncRows[tuple[A, B, C]]: ...
    @overload
    def select(self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], /) -> AsyncRows[tuple[A, B, C, D]]: ...
    @overload
    def select(
        self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], f: Attr[E, F], /
    ) -> AsyncRows[tuple[A, B, C, D, F]]: ...
    @overload
    def select(
        self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], f: Attr[E, F], g: Attr[E, G], /
    ) -> AsyncRows[tuple[A, B, C, D, F, G]]: ...
    @overload
    def select(
        self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], f: Attr[E, F], g: Attr[E, G], h: Attr[E, H],
        /,
    ) -> AsyncRows[tuple[A, B, C, D, F, G, H]]: ...  # fmt: skip
    @overload
    def select(
        self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], f: Attr[E, F], g: Attr[E, G], h: Attr[E, H],
        j: Attr[E, J], /,
    ) -> AsyncRows[tuple[A, B, C, D, F, G, H, J]]: ...  # fmt: skip
    @overload
    def select(self, *fields: Attr[E, Any]) -> AsyncRows[tuple[Any, ...]]: ...
    def select(self, *fields: Any) -> Any:
        """Return tuples of fields instead of entities; as `Query.select`."""
        rows: Rows[Any] = self._sync.select(*fields)
        return AsyncRows(self._workers, rows)

    # ------------------------------------------------------------------------------------------ totals

    async def sum(self, field: Expr[A | None, E], /) -> A | None:
        """Add up a field, exactly; as `Query.sum`."""
        return await self._workers.run(self._sync.sum, field)

    @overload
    async def avg(self, field: Expr[Decimal | None, E], /) -> Decimal | None: ...  # type: ignore[overload-overlap]
    @overload
    async def avg(self, field: Expr[timedelta | None, E], /) -> timedelta | None: ...  # type: ignore[overload-overlap]
    @overload
    async def avg(self, field: Expr[float | None, E], /) -> float | None: ...
    async def avg(self, field: Expr[Any, E], /) -> Any:
        """Divide the sum of a field by the number of its values; as `Query.avg`."""
        return await self._workers.run(lambda: self._sync.avg(field))

    async def min(self, field: Expr[A | None, E], /) -> A | None:
        """Find the least value of a field; as `Query.min`."""
        return await self._workers.run(self._sync.min, field)

    async def max(self, field: Expr[A | None, E], /) -> A | None:
        """Find the greatest value of a field; as `Query.max`."""
        return await self._workers.run(self._sync.max, field)

    @overload
    def group_by(self, a: Attr[E, A], /) -> AsyncGroups[A, E]: ...
    @overload
    def group_by(self, a: Attr[E, A], b: Attr[E, B], /) -> AsyncGroups[tuple[A, B], E]: ...
    @overload
    def group_by(self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], /) -> AsyncGroups[tuple[A, B, C], E]: ...
    @overload
    def group_by(
        self, a: Attr[E, A], b: Attr[E, B], c: Attr[E, C], d: Attr[E, D], /
    ) -> AsyncGroups[tuple[A, B, C, D], E]: ...
    def group_by(self, *fields: Any) -> Any:
        """Return the groups of fields, for ``await ….count()``, ``….sum(field)`` … of each; as `Query.group_by`."""
        groups: GroupedQuery[Any, E] = self._sync.group_by(*fields)
        return AsyncGroups(self._workers, groups)


class AsyncMixedQuery(AsyncResults[A | B | C], Generic[A, B, C]):
    """A `MixedQuery` with results to await: the entities of several classes of one table, in row order."""

    _sync: Any

    def where(
        self,
        *predicates: Predicate[A] | Predicate[B] | Predicate[C] | Partition[A] | Partition[B] | Partition[C],
        **named: Never,
    ) -> Self:
        """Keep only results that satisfy every condition; as `MixedQuery.where`."""
        return self._with(self._sync.where(*predicates, **named))

    def order_by(self, *steps: Attr[A, Any] | Attr[B, Any] | Attr[C, Any] | Order[A] | Order[B] | Order[C]) -> Self:
        """Sort by fields that every class has; as `MixedQuery.order_by`."""
        return self._with(self._sync.order_by(*steps))

    def backwards(self) -> Self:
        """Return the entities in the opposite order of their rows; as `MixedQuery.backwards`."""
        return self._with(self._sync.backwards())

    async def explain(self) -> Any:
        """Return the plan of the query, class by class; as `MixedQuery.explain`."""
        return await self._workers.run(lambda: _with_cost(self._sync.explain()))


class AsyncPairs(AsyncFacade[Pairs[E, R]], Generic[E, R]):
    """The results of a query, each with the entity of another class whose key it has; as `Pairs`, to await."""

    def __aiter__(self) -> AsyncCursor[tuple[E, R | None]]:
        return AsyncCursor(self._workers, partial(iter, self._sync))

    def __reduce__(self) -> NoReturn:
        self._sync.__reduce__()

    async def list(self) -> builtins.list[tuple[E, R | None]]:
        """Return all pairs.

        Raises:
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return await self._workers.run(lambda: [*self._sync])

    first: Final = awaited(Pairs[E, R].first)
    one: Final = awaited(Pairs[E, R].one)
    one_or_none: Final = awaited(Pairs[E, R].one_or_none)
    page: Final = awaited(Pairs[E, R].page)

    async def pages(self, size: int, /) -> AsyncIterator[Page[tuple[E, R | None]]]:
        """Yield page after page; as `Pairs.pages`."""
        page = await self.page(size)
        yield page
        while page.token is not None:
            page = await self.page(size, page.token)
            yield page

    def __repr__(self) -> str:
        return f"<async {self._sync!r}>"


@refuse_foreign_names("rows", lambda _: ("a query after .select(…)", "Product"), "async")
class AsyncRows(AsyncColumnResults[T]):
    """Tuples of fields of the entities that a query finds."""


@refuse_foreign_names("groups", lambda _: ("a grouped query", "Product"), "async")
class AsyncGroups(AnyOwner, AsyncFacade[GroupedQuery[G, Owner]], Generic[G, Owner]):
    """The groups of what a query finds; as `GroupedQuery`, each method awaited."""

    count: Final = awaited(GroupedQuery[G, Owner].count)
    sum: Final = awaited(GroupedQuery[G, Owner].sum)
    min: Final = awaited(GroupedQuery[G, Owner].min)
    max: Final = awaited(GroupedQuery[G, Owner].max)

    @overload
    async def avg(self, field: Expr[Decimal | None, Owner], /) -> dict[G, Decimal | None]: ...  # type: ignore[overload-overlap]
    @overload
    async def avg(self, field: Expr[timedelta | None, Owner], /) -> dict[G, timedelta | None]: ...  # type: ignore[overload-overlap]
    @overload
    async def avg(self, field: Expr[float | None, Owner], /) -> dict[G, float | None]: ...
    async def avg(self, field: Expr[Any, Owner], /) -> Any:
        """Divide the sum of a field by the number of its values in each group; as `GroupedQuery.avg`."""
        return await self._workers.run(lambda: self._sync.avg(field))


def _with_cost(explanation: _E) -> _E:
    """Have the cost counted in this thread: whoever asks for it later reads nothing."""
    _ = explanation.cost
    return explanation
