"""Plans that are ready to run, and the plan cache of a store.

The cache has a plan for each form of a query: for everything but its constants. A query of a known form is not planned
again, only bound to its values.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import msgspec

from ..codegen import Names, compile_functions
from ..engines.ended import clock_of, moment_of
from ..engines.optional_protocols import CountsRows, ReadsPartitions
from ..engines.protocol import Engine, Position, Reads
from ..errors import InvalidEntity
from ..expressions.boolean import Unended
from ..expressions.tree import Attr
from ..keys.template import Template
from ..keys.times import first_moment
from ..planning.plan import PathBounds, Plan
from ..planning.planner import plan
from ..planning.projection import ENTITIES, RowLayout, chosen, filtered, layout_of, tuples
from ..planning.query_parts import narrowed
from ..planning.query_spec import QuerySpec, implied, query_form
from ..planning.ranges import BoundPlan, TooManyRanges, bind
from ..schema.maintenance import maintenance
from ..schema.model import Model, is_local
from ..schema.rows import Row

MAX_PLANS = 512
_LOOK = 1.0  # seconds after which a store that waits for something to be built looks again


class PreparedPlan:
    """A plan that is ready to run: what to read for it, and how to turn the rows into entities or tuples.

    Attributes:
        residual: the conditions that are checked after reading.
        whole: whether every row that is read is a result.
        layout: what is read.
        placed: what is read if each row needs its place.
        width: how many values at the start of a row are its place, in a layout with places.
        key: the function from a query's values to the key of the only possible result; None if there can be several.
        partition: the function from a query's values to the entities of the one partition that is the result, or to
            None if they are many; None if the result is something else.
        columns: how rows become columns, once that was needed; see `column_reader`.
        at_edges: the same plan without filters that say nothing if values begin buckets, once that was needed.
        scans: how often a scan was looked at, to warn of it.
        scan_logged: whether the warning was logged.
        observed: how often it was run in a store that is observed.
        words: the query without its values, as data and as text, once that was needed.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        selected: tuple[Attr[Any, Any], ...] | None,
        *,
        filtering: bool,
        state: bool = False,
        part: bool = False,
    ) -> None:
        self.plan = plan
        self.scans = 0
        self.scan_logged = False
        self.observed = 0
        self.words: tuple[str, dict[str, Any]] | None = None
        self.columns: Any = None
        self.at_edges: PreparedPlan | None = None
        self.residual: Final = engine.reads.residual(plan) if filtering else plan.filter
        self.whole: bool = not self.residual and not plan.distinct
        steps = len(plan.sort)
        self.width: int = steps + (4 if plan.index is not None else 2)
        self._reads_fields = selected is not None and not plan.distinct
        if self._reads_fields and selected is not None:
            attributes = [*selected, *(attr for p in self.residual for attr in p.attributes())]
            self.layout: RowLayout = attrs.evolve(layout_of(plan.path, attributes, covering=plan.covering), state=state)
            self._make = tuples(
                plan.path, self.layout, selected, self.residual, covering=plan.covering, sorted_by=steps
            )
            self.placed: RowLayout = self.layout
        else:
            self.placed = RowLayout(places=True)
            # An entity's row begins with its keys, which are its place on the key's path.
            placed = plan.sorted or plan.distinct or (plan.index is not None and plan.merged)
            self.layout = self.placed if placed else ENTITIES
            self._make = filtered(plan.model.build, self.residual)
            if selected is not None:
                self._make = chosen(self._make, selected)
        sees_all = all(isinstance(predicate, Unended) for predicate in plan.filter)
        all_entities = selected is None and not part and sees_all
        self.key: Callable[[Sequence[Any]], tuple[str, ...]] | None = None
        self._unended: Callable[[Iterable[Row], Sequence[Any]], list[Any]] | None = None  # None: all are seen
        self.partition: Callable[[Sequence[Any], int | None], list[Any] | None] | None = None
        if all_entities and _is_point(plan):
            self.key = _key_of(f"{plan.model.name} key", plan.accesses[0], *plan.model.declaration.templates)
            self._unended = filtered(plan.model.build, plan.filter) if plan.filter else None
        elif not part and sees_all and filtering and not state and _is_partition(plan):
            reads_rows = self.layout is ENTITIES and selected is None
            reads = engine.reads
            if isinstance(reads, ReadsPartitions) and (reads_rows or (self._reads_fields and not plan.sorted)):
                self.partition = _partition(reads, plan, self.layout, self._make, whole=self.whole)
        self._entries = None
        if plan.distinct:
            indexes = maintenance(engine.schema, plan.model).indexes
            self._entries = next(index.rows for index in indexes if index.model is plan.index)

    @property
    def only_results(self) -> bool:
        """Whether every row that is examined is a result."""
        return self.whole and not self.plan.filter and not self.plan.sorted

    def only(self, engine: Engine, values: Sequence[Any]) -> list[Any]:
        """Return what is found where the values make the key of the only entity that there can be, by `key`."""
        assert self.key is not None
        try:
            key = self.key(values)
        except InvalidEntity:  # no key can hold these values
            return []
        row = engine.get(self.plan.model, *key)
        if row is not None and self._unended is not None:
            return self._unended((row,), values)
        return [] if row is None else [self.plan.model.build_one(row)]

    def bind(self, values: Sequence[Any]) -> BoundPlan:
        """Return the plan with values."""
        return bind(self.plan, values)

    def items(self, rows: Iterable[Row], bound: BoundPlan, layout: RowLayout) -> list[Any]:
        """Return the entities or tuples of the rows that satisfy the residual conditions."""
        if self._entries is not None:
            rows = [row for row in rows if self._is_first(row, bound)]
        if layout.places and not self._reads_fields:
            width = self.width
            rows = [row[width:] for row in rows]
        return self._make(rows, bound.values)

    def position(self, row: Row, layout: RowLayout) -> Position:
        """Return the position of a row."""
        return row[: self.width] if layout.places else row[:2]

    def _is_first(self, row: Row, bound: BoundPlan) -> bool:
        """Return whether an index row is the first of its entity between the bounds: others would repeat that."""
        assert self._entries is not None
        steps = len(self.plan.sort)
        place = row[steps : steps + 2]
        places = [entry[:2] for entry in self._entries((row[self.width :],)) if bound.holds((entry,))]
        if self.plan.merged:
            places.sort(key=lambda other: (other[1], other[0]))
        else:
            places.sort()
        return bool(place == places[-1 if self.plan.descending else 0])


def as_read(bound: BoundPlan, *, eventual: bool) -> BoundPlan:
    """Return a plan as an account reads it: an index elsewhere may be older than its entities, which are read, too."""
    plan = bound.plan
    if not plan.covering or eventual or plan.index is None or is_local(plan.model, plan.index):
        return bound
    return attrs.evolve(bound, plan=attrs.evolve(plan, covering=False, lowered={}))


def _is_point(plan: Plan) -> bool:
    """Return whether a plan reads at most one row, by its key."""
    access = plan.accesses[0]
    fixes_row = access.row is not None and access.row.point
    return plan.index is None and len(plan.accesses) == 1 and not access.several and fixes_row


def _is_partition(plan: Plan) -> bool:
    """Return whether a plan reads all rows of one partition."""
    access = plan.accesses[0]
    any_row = access.row is None or not (access.row.fixed or access.row.ops)
    return not plan.scan and len(plan.accesses) == 1 and not access.several and access.partition.point and any_row


def _key_of(label: str, access: PathBounds, *templates: Template) -> Callable[[Sequence[Any]], tuple[str, ...]]:
    """Return a function from a query's values to keys; it raises InvalidEntity if no entity can have them."""
    names = Names()
    variables = {name: f"v{number.number}" for name, number in access.equal.items()}
    lines = ["def keys(v):"]
    lines += [f"    {variable} = v[{access.equal[name].number}]" for name, variable in variables.items()]
    lines.append(f"    return {''.join(f'{template.encode_source(variables, names)}, ' for template in templates)}")
    function: Callable[[Sequence[Any]], tuple[str, ...]]
    function = compile_functions(f"{label} of a query", "\n".join(lines) + "\n", names)["keys"]
    return function


def _partition(
    reads: ReadsPartitions,
    plan: Plan,
    layout: RowLayout,
    make: Callable[[Iterable[Row], Sequence[Any]], list[Any]],
    *,
    whole: bool,
) -> Callable[[Sequence[Any], int | None], list[Any] | None]:
    """Return a function that reads a partition, or its first rows, in half of the time that a plan with ranges takes.

    It gives no first rows if not each row is a result.
    """
    key_of = _key_of(f"{plan.path} partition", plan.accesses[0], plan.path.templates[0])
    read_rows = reads.partition_rows(plan, layout)

    def items(values: Sequence[Any], limit: int | None = None) -> list[Any] | None:
        if limit is not None and not whole:
            return None
        try:
            (partition,) = key_of(values)
        except InvalidEntity:  # no key can hold these values
            return []
        rows = read_rows(partition, limit, values)
        return None if rows is None else make(rows, values)

    return items


MOST_KEYS = 100_000
"""Keys that a write by query holds in memory, and the most that a named run with a limit notes in the store."""


@attrs.frozen
class BatchLimits:
    """The limits of a transaction in a write by query."""

    batch: int = 1_000
    """The most entities in a transaction."""
    seconds: float = 0.5
    """The seconds of a user's function after which the batch is written."""
    in_memory: int = MOST_KEYS
    monotonic: Callable[[], float] = time.monotonic


_MANY = 10_000  # rows: a scan of more is logged
_scans = logging.getLogger("tablemapper.query")


@attrs.frozen(eq=False)
class _Plans:
    """Prepared plans, by the form of the query, and what was not ready when they were planned."""

    unready: Mapping[str, str]
    prepared: dict[Hashable, PreparedPlan] = attrs.field(factory=dict)


class PlanCache:
    """The prepared plans of one store, by the form of the query."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._now = clock_of(engine)
        self.reads: Reads = engine.reads
        self.counts: Final = self.reads if isinstance(self.reads, CountsRows) else None
        self.batch_limits: Final = BatchLimits()
        self.tests: dict[Hashable, Callable[[Any, Sequence[Any]], bool]] = {}
        """Functions that return whether a query finds an entity, by the form of the query."""
        self._plans = _Plans(engine.unready)
        self._ends = any(model.declaration.expiry is not None for model in engine.schema.models)
        self._look_at = 0.0
        self._fingerprints: dict[Model, str] = {}

    def find(
        self, spec: QuerySpec, selected: tuple[Attr[Any, Any], ...] | None, *, state: bool = False
    ) -> tuple[PreparedPlan, BoundPlan]:
        """Return the plan of a query, with its values.

        Args: as `prepared` has them.

        Raises:
            ScanRefused: nothing bounds the query.
        """
        return self.bind(*self.prepared(spec, selected, state=state), spec, selected, state=state)

    def bind(
        self,
        prepared: PreparedPlan,
        values: Sequence[Any],
        spec: QuerySpec,
        selected: tuple[Attr[Any, Any], ...] | None,
        *,
        state: bool = False,
    ) -> tuple[PreparedPlan, BoundPlan]:
        """Return a prepared plan bound to its values, or another plan if the values need too many ranges."""
        try:
            bound = prepared.bind(values)
        except TooManyRanges:
            prepared, values = self.prepared(spec, selected, state=state, by_time=False)
            bound = prepared.bind(values)
        edges = prepared.plan.edges
        if edges and all(values[number] == first_moment(values[number], unit) for _, number, unit in edges):
            if prepared.at_edges is None:
                exact = tuple(
                    [
                        predicate
                        for predicate in prepared.plan.filter
                        if all(predicate is not edge for edge, _, _ in edges)
                    ]
                )
                plan = attrs.evolve(prepared.plan, filter=exact, edges=(), lowered={})
                prepared.at_edges = self._new(spec, plan, selected, state=state)
            prepared = prepared.at_edges
            bound = attrs.evolve(bound, plan=prepared.plan)
        return prepared, bound if spec.part is None else narrowed(bound, spec.part)

    def prepared(
        self,
        spec: QuerySpec,
        selected_attributes: tuple[Attr[Any, Any], ...] | None,
        *,
        state: bool = False,
        by_time: bool = True,
    ) -> tuple[PreparedPlan, list[Any]]:
        """Return the plan of a query, and the values of its parameters.

        Args:
            selected_attributes: the attributes of the resulting tuples; None if the results are entities.
            state: whether each tuple ends in the state of an aggregate's group.
            by_time: whether a range of times may be read bucket by bucket.

        Raises:
            ScanRefused: nothing bounds the query.
        """
        plans = self._plans
        if plans.unready or self.engine.unready is not plans.unready:
            if (time_now := self.batch_limits.monotonic()) >= self._look_at:
                self._look_at = time_now + _LOOK
                self.engine.catch_up()
            plans = self._latest()
        form, values = spec.parts()
        if self._ends and spec.model.declaration.expiry is not None:
            values.append(spec.moment or self.moment())
        selected = tuple([attr.source for attr in selected_attributes]) if selected_attributes else selected_attributes
        key = form, selected, spec.model.partial_indexes and implied(spec), state, by_time
        prepared = plans.prepared.get(key)
        if prepared is None:
            if len(plans.prepared) >= MAX_PLANS:
                plans.prepared.clear()
            unready = self._refusals(spec, plans.unready) if plans.unready else {}
            missing_columns = self.engine.missing_fields(spec.model, eventual=spec.eventual)
            form_ = query_form(
                spec, selected_attributes, by_time=by_time, state=state, unready=unready, missing_fields=missing_columns
            )
            new = plan(form_, self.engine.capabilities)
            prepared = plans.prepared[key] = self._new(spec, new, selected_attributes, state=state)
        return prepared, values

    def moment(self) -> datetime:
        """Return the time by the clock of the store."""
        return moment_of(self._now())

    def may_lag(self, model: Model, aggregate: str) -> bool:
        """Return whether an aggregate over a class can differ from its entities that are seen."""
        return model.declaration.expiry is not None or aggregate in self.engine.eventual

    def _new(
        self, spec: QuerySpec, plan: Plan, selected: tuple[Attr[Any, Any], ...] | None, *, state: bool
    ) -> PreparedPlan:
        part = spec.part is not None
        return PreparedPlan(self.engine, plan, selected, filtering=spec.budget is None, state=state, part=part)

    def warn_of_scan(
        self, prepared: PreparedPlan, bound: BoundPlan, query_text: Callable[[], str], most: int | None
    ) -> None:
        """Log that a query scans a table with many rows, once for each form.

        Args:
            query_text: returns the query as text.
            most: how many results are needed; None for all.
        """
        plan = prepared.plan
        if not plan.scan or prepared.scan_logged or plan.model.aggregate is not None:
            return
        if most is not None and most <= _MANY and not plan.filter and not plan.sorted:
            return
        prepared.scans += 1
        if prepared.scans & (prepared.scans - 1):  # counting reads rows, so it is done at the 1st, 2nd, 4th, 8th … scan
            return
        count = self.between_bounds(bound, _MANY + 1)
        if count is None or count > _MANY:
            prepared.scan_logged = True
            names: Mapping[str, str] = getattr(self.engine, "table_names", {})
            table = plan.model.table
            _scans.warning("%s reads the whole table %s", query_text(), names.get(table, table))

    def between_bounds(self, bound: BoundPlan, most: int) -> int | None:
        """Return the number of rows between the bounds, at most ``most``; None if that costs as much as to read them."""
        return None if self.counts is None else self.counts.between_bounds(bound, most)

    def _latest(self) -> _Plans:
        """Forget the plans if other indexes are ready; the builds of other processes are seen within a second."""
        plans, unready = self._plans, self.engine.unready
        if unready is not plans.unready:
            self._plans = plans = _Plans(unready)
        return plans

    def _refusals(self, spec: QuerySpec, unready: Mapping[str, str]) -> dict[str, str]:
        """Return the indexes of a class that are not ready, with the reasons.

        Raises:
            NotReady: the query names one of them, or is over an aggregate that is not ready.
        """
        model = spec.model
        label_of = self.engine.label
        labels_read = (
            label_of(model),
            *self.engine.required_labels(model),
            label_of(model, spec.range and spec.range.name),
        )
        if not unready.keys().isdisjoint(labels_read):
            self.engine.catch_up()  # (it may be ready since the last look: a write of this store may have ended that)
            unready = self._latest().unready
        for label in labels_read:
            if label in unready:
                raise self.engine.describe(label).error()
        labels = {index.name: label_of(model, index.name) for index in model.indexes}
        return {name: str(self.engine.describe(label)) for name, label in labels.items() if label in unready}

    def fingerprint(self, model: Model) -> str:
        """Return a digest of the declaration of a class: a page token is valid only for the same."""
        digest = self._fingerprints.get(model)
        if digest is None:
            declaration = msgspec.json.encode(model.to_json(), order="deterministic")
            digest = self._fingerprints[model] = hashlib.blake2b(declaration, digest_size=16).hexdigest()
        return digest
