"""From what a query asks to a plan that is ready to run; plans are kept by the form of the question.

The form is everything but the constants: a query that is asked again with other values pays for binding only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any, Protocol, TypeAlias, TypeVar

import attrs

from ..codegen import Names, compile_functions
from ..entities.index import IndexRange
from ..errors import InvalidEntity
from ..expressions.predicates import conjuncts, forms, parametrised
from ..expressions.tree import Attr, Order, Predicate
from ..keys.template import Template
from ..planning.budget import Budget, Spending
from ..planning.conditions import AnyPredicate, named
from ..planning.planner import Access, Plan, Question, plan
from ..planning.projection import ENTITIES, Layout, chosen, filtered, layout, tuples
from ..planning.ranges import Search, TooManyRanges, search
from ..progress import ProgressOption
from ..schema.maintenance import maintenance
from ..schema.model import Model, Schema
from ..schema.rows import Row

__all__ = ["Asked", "Plans", "Position", "Prepared", "Reader", "Rewriter", "question"]

T = TypeVar("T")
Position: TypeAlias = tuple[Any, ...]
"""Where a row stands in the order of its query."""
MAX_PLANS = 512


class Reader(Protocol):
    """What queries ask of an engine."""

    schema: Schema
    store_id: str

    def rows(
        self,
        search: Search,
        made: Layout,
        *,
        after: Position | None = None,
        limit: int | None = None,
        spending: Spending | None = None,
        within: Any = None,
    ) -> Iterator[list[Row]]:
        """Yield rows in chunks, of one state of the store, in the order of the plan, those after one position.

        With ``spending``, rows are not filtered by the engine.
        """
        ...

    def get(self, model: Model, partition: str, row: str) -> Row | None:
        """Return the row of an entity with a key."""
        ...

    def partition_rows(self, plan: Plan) -> Callable[[str], list[Row] | None]:
        """Return a function that reads all rows of one partition of a path; None if they may be many."""
        ...

    def find(self, search: Search, made: Layout) -> Row | None:
        """Return the first row."""
        ...

    def count(self, search: Search, *, within: Any = None) -> int | None:
        """Return the number of entities; None if that has to be found out in Python."""
        ...

    def between_bounds(self, search: Search, most: int) -> int:
        """Return the number of rows between the bounds, before any filter, at most ``most``."""
        ...

    def explain(self, search: Search, made: Layout) -> list[str]:
        """Return what the database itself says that it will do."""
        ...

    def residual(self, plan: Plan) -> tuple[AnyPredicate, ...]:
        """Return the predicates that the engine leaves to be evaluated in Python."""
        ...

    def snapshot(self) -> AbstractContextManager[Any]:
        """Return one state of the store, for several searches."""
        ...

    def in_one_state(self, read: Callable[[Any], Iterator[T]]) -> Iterator[T]:
        """Yield what a function reads of one state of the store, as it is asked for."""
        ...


class Rewriter(Protocol):
    """What writes by query ask of a store. ``what`` is how the query is called in messages."""

    def delete(self, plans: Plans, asked: Asked, what: str, *, progress: ProgressOption, resume: str | None) -> int:
        """Delete what a query finds; return the number of entities."""
        ...

    def update(
        self,
        plans: Plans,
        asked: Asked,
        what: str,
        given: tuple[Any, ...],
        values: dict[str, Any],
        *,
        progress: ProgressOption,
        resume: str | None,
    ) -> int:
        """Change what a query finds, by assignments or by one function; return the number of entities."""
        ...


@attrs.define(eq=False)  # (not frozen: one is built for each call of a query, three times as fast)
class Asked:
    """What a query asks, values and all."""

    model: Model
    range: IndexRange[Any] | None = None
    where: tuple[Predicate[Any], ...] = ()
    order: tuple[Order[Any], ...] = ()
    limit: int | None = None
    scan: bool = False
    budget: Budget | None = None
    mixed: bool = False
    """Whether the rows of other classes come between."""
    backwards: bool = False
    """Whether they then come from the last to the first."""

    def narrowed(self, where: tuple[Predicate[Any], ...]) -> Asked:
        """Return the question with more conditions."""
        return Asked(self.model, self.range, self.where + where, *_rest(self))  # (attrs.evolve takes 5 times as long)

    def parts(self) -> tuple[Hashable, list[Any]]:
        """Return what queries that differ in their constants have in common, and the constants."""
        along, order = self.range, self.order
        values: list[Any] = [] if along is None else [*along.values]
        form = (
            self.model,
            None if along is None else (along.name, len(along.values)),
            tuple([predicate.shape(values) for predicate in self.where]),
            tuple([(step.attr.source, step.descending, step.wide) for step in order]) if order else (),
            self.scan,
            self.budget is None,
            self.mixed,
            self.backwards,
        )
        return form, values


_rest = attrgetter(*[field.name for field in attrs.fields(Asked)[3:]])


class Prepared:
    """A plan that is ready to run: what to read for it, and how to make entities or tuples of the rows."""

    def __init__(
        self,
        reader: Reader,
        made: Plan,
        wanted: tuple[Attr[Any, Any], ...] | None,
        *,
        filtering: bool,
        state: bool = False,
    ) -> None:
        self.plan = made
        self.residual = reader.residual(made) if filtering else made.filter
        self.whole = not self.residual and not made.distinct
        """Whether every row that is read is a result."""
        steps = len(made.sort)
        paths = 4 if made.index is not None else 2
        self.width = steps + paths
        """How many values in front of a row, if it has its place, are that."""
        lean = wanted is not None and not made.distinct
        if lean and wanted is not None:
            needed = [*wanted, *(attr for p in self.residual for attr in p.attributes())]
            self.layout = attrs.evolve(layout(made.path, needed, covering=made.covering), state=state)
            self._make = tuples(made.path, self.layout, wanted, self.residual, covering=made.covering, sorted_by=steps)
            self.placed = self.layout
        else:
            self.placed = Layout(places=True)
            # An entity's row begins with its keys, which are its place on the key's path.
            placed = made.sorted or made.distinct or (made.index is not None and made.merged)
            self.layout = self.placed if placed else ENTITIES
            self._make = filtered(made.model.build, self.residual)
            if wanted is not None:
                self._make = chosen(self._make, wanted)
        self._lean = lean
        access = made.accesses[0]
        # (A filter may be the engine's own, which does not run where a row is read by its key.)
        single = made.index is None and not made.filter and len(made.accesses) == 1 and not access.several
        single = single and access.row is not None and access.row.point
        self.key = (
            _key_of(f"{made.model.name} key", access, *made.model.declaration.templates)
            if single and wanted is None
            else None
        )
        """Gives the key of the only entity that can be a result, of values; None if there can be several."""
        plain = wanted is None and self.layout is ENTITIES and filtering and not made.filter and not made.scan
        partition = len(made.accesses) == 1 and not access.several and access.partition.point
        partition = partition and (access.row is None or not (access.row.fixed or access.row.ops))
        self.partition = _partition(reader, made) if plain and partition and not single else None
        """Gives the entities of the one partition that is the result, of values, if they are few; else None."""
        self._entries = None
        if made.distinct:
            kept = maintenance(reader.schema, made.model).indexes
            self._entries = next(one.rows for one in kept if one.model is made.index)

    def search(self, values: Sequence[Any]) -> Search:
        """Return the plan with values."""
        return search(self.plan, values)

    def items(self, rows: Iterable[Row], found: Search, made: Layout) -> list[Any]:
        """Return the entities or tuples of rows, of those that satisfy what the engine left to be checked."""
        if self._entries is not None:
            rows = [row for row in rows if self._is_first(row, found)]
        if made.places and not self._lean:
            width = self.width
            rows = [row[width:] for row in rows]
        return self._make(rows, found.values)

    def counted(self, rows: Iterator[Row], spending: Spending | None) -> Iterator[Row]:
        """Return rows, each of which is counted before it is given out; what is sorted was counted before the first."""
        return rows if spending is None or self.plan.sorted else spending.counted(rows)

    def position(self, row: Row, made: Layout) -> Position:
        """Return where a row stands."""
        return row[: self.width] if made.places else row[:2]

    def _is_first(self, row: Row, found: Search) -> bool:
        """Return whether a row is the first of its entity between the bounds: others would give the entity again."""
        assert self._entries is not None
        steps = len(self.plan.sort)
        place = row[steps : steps + 2]
        held = [entry[:2] for entry in self._entries((row[self.width :],)) if found.holds((entry,))]
        if self.plan.merged:
            held.sort(key=lambda one: (one[1], one[0]))
        else:
            held.sort()
        return bool(place == held[-1 if self.plan.descending else 0])


def _key_of(label: str, access: Access, *templates: Template) -> Callable[[Sequence[Any]], tuple[str, ...]]:
    """Return a function that makes keys of a query's values; it raises InvalidEntity if no entity can have them."""
    names = Names()
    variables = {name: f"v{number.number}" for name, number in access.equal.items()}
    lines = ["def keys(v):"]
    lines += [f"    {variable} = v[{access.equal[name].number}]" for name, variable in variables.items()]
    lines.append(f"    return {''.join(f'{template.encode_source(variables, names)}, ' for template in templates)}")
    function: Callable[[Sequence[Any]], tuple[str, ...]]
    function = compile_functions(f"{label} of a query", "\n".join(lines) + "\n", names)["keys"]
    return function


def _partition(reader: Reader, plan: Plan) -> Callable[[Sequence[Any]], list[Any] | None]:
    """Return a function that reads a whole partition without the detours of a plan with ranges (half of its time)."""
    key_of = _key_of(f"{plan.path} partition", plan.accesses[0], plan.path.templates[0])
    read, build = reader.partition_rows(plan), plan.model.build

    def entities(values: Sequence[Any]) -> list[Any] | None:
        try:
            key = key_of(values)
        except InvalidEntity:  # no key can hold these values
            return []
        rows = read(*key)
        return None if rows is None else build(rows)

    return entities


class Plans:
    """The prepared plans of one store, by the form of the question."""

    def __init__(self, reader: Reader, rewriter: Rewriter | None = None) -> None:
        self.reader = reader
        self.rewriter = rewriter
        self._prepared: dict[Hashable, Prepared] = {}
        self._fingerprints: dict[Model, Any] = {}

    def find(
        self, asked: Asked, wanted: tuple[Attr[Any, Any], ...] | None, *, state: bool = False
    ) -> tuple[Prepared, Search]:
        """Return the plan of a query, with its values.

        Args: as `prepared` has them.

        Raises:
            ScanRefused: nothing bounds the query.
        """
        return self.bound(*self.prepared(asked, wanted, state=state), asked, wanted, state=state)

    def bound(
        self,
        prepared: Prepared,
        values: Sequence[Any],
        asked: Asked,
        wanted: tuple[Attr[Any, Any], ...] | None,
        *,
        state: bool = False,
    ) -> tuple[Prepared, Search]:
        """Return a prepared plan with its values, or another one if these have too many ranges for it."""
        try:
            return prepared, prepared.search(values)
        except TooManyRanges:
            prepared, values = self.prepared(asked, wanted, state=state, by_time=False)
            return prepared, prepared.search(values)

    def prepared(
        self, asked: Asked, wanted: tuple[Attr[Any, Any], ...] | None, *, state: bool = False, by_time: bool = True
    ) -> tuple[Prepared, list[Any]]:
        """Return the plan of a query, and the values of its parameters.

        Args:
            asked: what is asked.
            wanted: the attributes that tuples are made of; None: entities are made.
            state: whether the state of an aggregate's group ends each tuple.
            by_time: whether a range of times may be read bucket by bucket.

        Raises:
            ScanRefused: nothing bounds the query.
        """
        form, values = asked.parts()
        selected = tuple([attr.source for attr in wanted]) if wanted else wanted
        key = form, selected, asked.model.partial_indexes and _implied(asked), state, by_time
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= MAX_PLANS:
                self._prepared.clear()
            made = plan(question(asked, wanted, by_time=by_time, state=state))
            prepared = Prepared(self.reader, made, wanted, filtering=asked.budget is None, state=state)
            self._prepared[key] = prepared
        return prepared, values

    def fingerprint(self, model: Model) -> Any:
        """Return what a page token depends on, besides its query."""
        made = self._fingerprints.get(model)
        if made is None:
            made = self._fingerprints[model] = model.to_json()
        return made


def question(
    asked: Asked, wanted: tuple[Attr[Any, Any], ...] | None, *, by_time: bool = True, state: bool = False
) -> Question:
    """Return what a query asks, with parameters in place of its constants."""
    model, along = asked.model, asked.range
    where, number = [], 0 if along is None else len(along.values)
    by_name = () if along is None else named(model.declaration, model.index(along.name), number)
    for predicate in asked.where:
        one, number = parametrised(predicate, number)
        where.append(one)
    parts = list(conjuncts(where))
    return Question(
        model,
        (*by_name, *where),
        asked.order,
        None if along is None else along.name,
        wanted,
        {name: frozenset(parts[place] for place in places) for name, places in _implied(asked)},
        asked.scan,
        by_time,
        state,
        asked.mixed,
        asked.backwards,
    )


def _implied(asked: Asked) -> tuple[tuple[str, frozenset[int]], ...]:
    """Return the partial indexes whose condition the query repeats, with the places of the conjuncts that do."""
    partial = asked.model.partial_indexes
    if not partial:
        return ()
    said = forms(*asked.where)
    return tuple(
        (name, frozenset(at for at, form in enumerate(said) if form in wanted))
        for name, wanted in partial
        if all(form in said for form in wanted)
    )
