"""From what a query asks to a plan that is ready to run; plans are kept by the form of the question.

The form is everything but the constants: a query that is asked again with other values pays for binding only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import attrs

from ..codegen import Names, compile_functions
from ..engines.protocol import Engine, Position, Reads
from ..errors import InvalidEntity
from ..expressions.tree import Attr
from ..keys.template import Template
from ..planning.parts import narrowed
from ..planning.plan import Access, Plan
from ..planning.planner import plan
from ..planning.projection import ENTITIES, Layout, chosen, filtered, layout_of, tuples
from ..planning.question import QuerySpec, implied, query_form
from ..planning.ranges import BoundPlan, TooManyRanges, bind
from ..schema.maintenance import maintenance
from ..schema.model import Model
from ..schema.rows import Row

__all__ = ["MAX_PLANS", "MOST_KEYS", "Pace", "PlanCache", "PreparedPlan"]

MAX_PLANS = 512
_LOOK = 1.0  # seconds after which a store that waits for something to be built looks again


class PreparedPlan:
    """A plan that is ready to run: what to read for it, and how to make entities or tuples of the rows."""

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        wanted: tuple[Attr[Any, Any], ...] | None,
        *,
        filtering: bool,
        state: bool = False,
        part: bool = False,
    ) -> None:
        self.plan = plan
        self.scans = 0
        self.scan_logged = False
        self.columns: Any = None
        """How columns are made of what is read, once that was asked for; see `columns`."""
        self.residual = engine.reads.residual(plan) if filtering else plan.filter
        self.whole = not self.residual and not plan.distinct
        """Whether every row that is read is a result."""
        steps = len(plan.sort)
        paths = 4 if plan.index is not None else 2
        self.width = steps + paths
        """How many values in front of a row, if it has its place, are that."""
        lean = wanted is not None and not plan.distinct
        if lean and wanted is not None:
            needed = [*wanted, *(attr for p in self.residual for attr in p.attributes())]
            self.layout = attrs.evolve(layout_of(plan.path, needed, covering=plan.covering), state=state)
            self._make = tuples(plan.path, self.layout, wanted, self.residual, covering=plan.covering, sorted_by=steps)
            self.placed = self.layout
        else:
            self.placed = Layout(places=True)
            # An entity's row begins with its keys, which are its place on the key's path.
            placed = plan.sorted or plan.distinct or (plan.index is not None and plan.merged)
            self.layout = self.placed if placed else ENTITIES
            self._make = filtered(plan.model.build, self.residual)
            if wanted is not None:
                self._make = chosen(self._make, wanted)
        self._lean = lean
        access = plan.accesses[0]
        # (A filter may be the engine's own, which does not run where a row is read by its key.)
        single = plan.index is None and not plan.filter and len(plan.accesses) == 1 and not access.several
        single = single and access.row is not None and access.row.point and not part
        self.key = (
            _key_of(f"{plan.model.name} key", access, *plan.model.declaration.templates)
            if single and wanted is None
            else None
        )
        """Gives the key of the only entity that can be a result, of values; None if there can be several."""
        plain = (
            not part and wanted is None and self.layout is ENTITIES and filtering and not plan.filter and not plan.scan
        )
        partition = len(plan.accesses) == 1 and not access.several and access.partition.point
        partition = partition and (access.row is None or not (access.row.fixed or access.row.ops))
        self.partition = _partition(engine.reads, plan) if plain and partition and not single else None
        """Gives the entities of the one partition that is the result, of values, if they are few; else None."""
        self._entries = None
        if plan.distinct:
            indexes = maintenance(engine.schema, plan.model).indexes
            self._entries = next(one.rows for one in indexes if one.model is plan.index)

    def bind(self, values: Sequence[Any]) -> BoundPlan:
        """Return the plan with values."""
        return bind(self.plan, values)

    def items(self, rows: Iterable[Row], bound: BoundPlan, layout: Layout) -> list[Any]:
        """Return the entities or tuples of rows, of those that satisfy what the engine left to be checked."""
        if self._entries is not None:
            rows = [row for row in rows if self._is_first(row, bound)]
        if layout.places and not self._lean:
            width = self.width
            rows = [row[width:] for row in rows]
        return self._make(rows, bound.values)

    def position(self, row: Row, layout: Layout) -> Position:
        """Return where a row stands."""
        return row[: self.width] if layout.places else row[:2]

    def _is_first(self, row: Row, bound: BoundPlan) -> bool:
        """Return whether a row is the first of its entity between the bounds: others would give the entity again."""
        assert self._entries is not None
        steps = len(self.plan.sort)
        place = row[steps : steps + 2]
        held = [entry[:2] for entry in self._entries((row[self.width :],)) if bound.holds((entry,))]
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


def _partition(reads: Reads, plan: Plan) -> Callable[[Sequence[Any]], list[Any] | None]:
    """Return a function that reads a whole partition without the detours of a plan with ranges (half of its time)."""
    key_of = _key_of(f"{plan.path} partition", plan.accesses[0], plan.path.templates[0])
    read, build = reads.partition_rows(plan), plan.model.build

    def entities(values: Sequence[Any]) -> list[Any] | None:
        try:
            key = key_of(values)
        except InvalidEntity:  # no key can hold these values
            return []
        rows = read(*key)
        return None if rows is None else build(rows)

    return entities


MOST_KEYS = 100_000
"""Keys that a write by query holds in memory, and the most that a named run with a limit notes in the store."""


@attrs.frozen
class Pace:
    """How much a write by query does at once."""

    batch: int = 1_000
    """Entities in a transaction."""
    seconds: float = 0.5
    """Of a user's function, before what is done is written."""
    in_memory: int = MOST_KEYS
    monotonic: Callable[[], float] = time.monotonic


_MANY = 10_000  # rows: a scan of more is told
_scans = logging.getLogger("tablemapper.query")


class PlanCache:
    """The prepared plans of one store, by the form of the question."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.reads = engine.reads
        self.pace = Pace()
        self.tests: dict[Hashable, Callable[[Any, Sequence[Any]], bool]] = {}
        """Whether a query finds an entity, by the form of the query."""
        self._prepared: dict[Hashable, PreparedPlan] = {}
        self._unready = engine.unready
        self._look_at = 0.0
        self._fingerprints: dict[Model, Any] = {}

    def find(
        self, spec: QuerySpec, wanted: tuple[Attr[Any, Any], ...] | None, *, state: bool = False
    ) -> tuple[PreparedPlan, BoundPlan]:
        """Return the plan of a query, with its values.

        Args: as `prepared` has them.

        Raises:
            ScanRefused: nothing bounds the query.
        """
        return self.bind(*self.prepared(spec, wanted, state=state), spec, wanted, state=state)

    def bind(
        self,
        prepared: PreparedPlan,
        values: Sequence[Any],
        spec: QuerySpec,
        wanted: tuple[Attr[Any, Any], ...] | None,
        *,
        state: bool = False,
    ) -> tuple[PreparedPlan, BoundPlan]:
        """Return a prepared plan with its values, or another one if these have too many ranges for it."""
        try:
            bound = prepared.bind(values)
        except TooManyRanges:
            prepared, values = self.prepared(spec, wanted, state=state, by_time=False)
            bound = prepared.bind(values)
        return prepared, bound if spec.part is None else narrowed(bound, spec.part)

    def prepared(
        self, spec: QuerySpec, wanted: tuple[Attr[Any, Any], ...] | None, *, state: bool = False, by_time: bool = True
    ) -> tuple[PreparedPlan, list[Any]]:
        """Return the plan of a query, and the values of its parameters.

        Args:
            spec: what the query wants.
            wanted: the attributes that tuples are made of; None: entities are made.
            state: whether the state of an aggregate's group ends each tuple.
            by_time: whether a range of times may be read bucket by bucket.

        Raises:
            ScanRefused: nothing bounds the query.
        """
        if self._unready or self.engine.unready is not self._unready:
            self._look()
        form, values = spec.parts()
        selected = tuple([attr.source for attr in wanted]) if wanted else wanted
        key = form, selected, spec.model.partial_indexes and implied(spec), state, by_time
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= MAX_PLANS:
                self._prepared.clear()
            unready = self._refusals(spec) if self._unready else {}
            lacking = self.engine.lacking(spec.model)
            new = plan(query_form(spec, wanted, by_time=by_time, state=state, unready=unready, lacking=lacking))
            prepared = PreparedPlan(
                self.engine, new, wanted, filtering=spec.budget is None, state=state, part=spec.part is not None
            )
            self._prepared[key] = prepared
        return prepared, values

    def warn_of_scan(self, prepared: PreparedPlan, bound: BoundPlan, what: Callable[[], str], most: int | None) -> None:
        """Log that a query reads a whole table, once for each form, and only if the rows are many.

        Args:
            prepared: its plan.
            bound: the same with its values.
            what: gives the query as text.
            most: how many results are needed; None for all.
        """
        plan = prepared.plan
        if not plan.scan or prepared.scan_logged or plan.model.aggregate is not None:
            return
        if most is not None and most <= _MANY and not plan.filter and not plan.sorted:
            return
        prepared.scans += 1
        if prepared.scans & (prepared.scans - 1):  # to count is to read: a form that is asked often is seldom looked at
            return
        if self.reads.between_bounds(bound, _MANY + 1) > _MANY:
            prepared.scan_logged = True
            _scans.warning("%s reads the whole table %s", what(), plan.model.table)

    def _look(self) -> None:
        """Forget plans if something came to be ready, or is so no more; what others built is seen within a second."""
        if (now := self.pace.monotonic()) >= self._look_at:
            self._look_at = now + _LOOK
            self.engine.catch_up()
        if self.engine.unready is not self._unready:
            self._unready = self.engine.unready
            self._prepared.clear()

    def _refusals(self, spec: QuerySpec) -> dict[str, str]:
        """Return the indexes that a query cannot follow yet, with the reasons.

        Raises:
            NotReady: the query names one of them, or is over an aggregate that cannot be read.
        """
        model = spec.model
        of = self.engine.label
        for label in (of(model), *self.engine.needed(model), of(model, spec.range and spec.range.name)):
            if label in self._unready:
                raise self.engine.describe(label).error()
        labels = {index.name: of(model, index.name) for index in model.indexes}
        return {name: str(self.engine.describe(at)) for name, at in labels.items() if at in self._unready}

    def fingerprint(self, model: Model) -> Any:
        """Return what a page token depends on, besides its query."""
        form = self._fingerprints.get(model)
        if form is None:
            form = self._fingerprints[model] = model.to_json()
        return form
