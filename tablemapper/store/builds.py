"""Builds beside writers: what is to be built is built in short transactions, so that nobody waits long for one.

Any number of processes may build at the same time: each transaction goes on where the last one ended, whoever wrote
that. A build that is killed loses nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack

import attrs

from ..engines.protocol import BuildStep, DuplicateValue, Engine, StepTiming
from ..errors import InvalidQuery, UniqueViolation, safe_repr
from ..progress import Meter, ProgressOption, start_meter
from ..query.pages import counted
from ..schema.labels import Label

HOLD = 0.01
REST = 1.0
FIRST = 200  # entities of the first transaction, before it is known how long they take
_LEAST, _MOST = 20, 20_000
_SHOWN_VIOLATIONS = 20  # violations that an error lists


@attrs.frozen
class BuildReport:
    """The outcome of a build."""

    done: bool
    """Whether nothing is left to be built."""
    built: tuple[str, ...]
    """What came to its end, as ``Product.by_name``."""
    entities: int
    """That were read."""
    seconds: float
    violations: tuple[DuplicateValue, ...]
    """Values that are held twice in indexes that are to be unique: at most 100."""

    @property
    def ok(self) -> bool:
        """Whether everything is built, and there are no duplicates."""
        return self.done and not self.violations

    def __str__(self) -> str:
        built = ", ".join(self.built) or "nothing"
        note = "" if self.done else "; more is left"
        lines = [f"built {built} over {self.entities:,} entities in {self.seconds:.1f} s{note}"]
        return "\n".join([*lines, *map(str, self.violations)])


def build(
    engine: Engine,
    *,
    labels: Collection[str] | None = None,
    limit: int | None = None,
    progress: ProgressOption = False,
    hold: float = HOLD,
    rest: float = REST,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> BuildReport:
    """Build what is to be built.

    Args:
        labels: what is wanted; None for everything.
        limit: the most entities that are read.
        hold: seconds that a transaction is to take.
        rest: how long to wait after each while others write, in units of what it took.

    Raises:
        InvalidQuery: an argument is not a number, 0 or more.
    """
    limit = check_pace("build", limit, hold, rest)
    start = monotonic()
    with ExitStack() as meters:
        work = _Building(engine, labels, limit, progress, meters)
        in_batches(work.step, hold=hold, rest=rest, sleep=sleep)
    is_done = not any(
        state in ("building", "disabled")
        for label, state in engine.unready.items()
        if labels is None or label in labels
    )
    if labels is None and limit is not None:  # (else the loop ends when nothing is left to be cleared)
        is_done = is_done and not any(item.state == "dropping" for item in engine.status().objects)
    return BuildReport(is_done, tuple(work.completed), work.entities, monotonic() - start, engine.violations(100))


@attrs.define(eq=False)
class _Building:
    """The transactions of a build, and its progress."""

    engine: Engine
    labels: Collection[str] | None
    limit: int | None
    progress: ProgressOption
    meters: ExitStack
    """Closes the meter of the class whose entities are read."""
    entities: int = 0
    completed: list[str] = attrs.field(factory=list)
    _last_batch: BuildStep | None = None
    _meter: Meter = attrs.field(init=False, factory=lambda: start_meter(False, ""))

    def step(self, most: int) -> StepTiming | None:
        """Build the next entities, at most so many; None if nothing is left, or wanted."""
        if self.limit is not None:
            most = min(most, self.limit - self.entities)
        batch = self.engine.build(most, self.labels) if most > 0 else None
        if batch is None:
            return None
        self._tell(batch)
        self._last_batch = batch
        return attrs.evolve(batch.pace, delay=0.0) if batch.completed else batch.pace

    def _tell(self, batch: BuildStep) -> None:
        if not batch.clearing:
            self.entities += batch.entities
            self.completed += batch.completed
        if self._last_batch is None or batch.owner != self._last_batch.owner:
            self.meters.close()
            work = f"{'clearing' if batch.clearing else 'building over'} {batch.owner}"
            self._meter = self.meters.enter_context(start_meter(self.progress, work, total=batch.total or None))
            self._meter.advance(batch.done - batch.entities)
        self._meter.advance(batch.entities)


def check_pace(verb: str, limit: int | None, hold: float, rest: float) -> int | None:
    """Return how many entities are to be read at most; raise InvalidQuery if an argument is not a number, 0 or more."""
    paces: tuple[tuple[str, object], ...] = (("hold", hold), ("rest", rest))
    for name, value in paces:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise InvalidQuery(f"{verb}: {name}=: expected a number, 0 or more, got {safe_repr(value)}")
    return None if limit is None else counted(f"{verb}: limit=", limit, least=0)


def steered(most: int, seconds: float, hold: float) -> int:
    """Return how many entities the next transaction is to have, so that it takes as long as wanted."""
    change = min(2.0, max(0.25, hold / max(seconds, 1e-6)))
    return max(_LEAST, min(_MOST, int(most * change)))


def in_batches(
    step: Callable[[int], StepTiming | None],
    *,
    hold: float,
    rest: float,
    sleep: Callable[[float], object] = time.sleep,
    first: int | None = None,
) -> None:
    """Do a job in transactions that take as long as wanted, with a pause after each that delays others.

    Args:
        step: does a transaction of a given size at most, and returns its pace; None if nothing was left. After one that
            took no time the size stays as it is.
        rest: as for `build`.
        first: the size of the first transaction; None: `FIRST`.
    """
    most = FIRST if first is None else first
    while (pace := step(most)) is not None:
        if pace.seconds:
            most = steered(most, pace.seconds, hold)
        if pause := rest * pace.delay:
            sleep(pause)


def build_new(engine: Engine, progress: ProgressOption) -> None:
    """Build what the opened classes declare.

    Raises:
        UniqueViolation: a value is held twice in an index of theirs that is to be unique.
    """
    if not engine.unready:
        return
    labels = {
        label
        for model in engine.schema.models
        for label in (engine.label(model), *(engine.label(model, index.name) for index in model.indexes))
    }
    if not labels.intersection(engine.unready):
        return
    report = build(engine, labels=labels, progress=progress)
    numbers = {item.where: item.violations for item in engine.status().objects if item.violations}
    if number := sum(numbers[label] for label in numbers.keys() & labels):
        # (The report lists some of all indexes, which may be those of another one.)
        violations = [violation for violation in report.violations if violation.index in labels]
        violations = violations or [
            violation for violation in engine.violations(sum(numbers.values())) if violation.index in labels
        ]
        text = "; ".join(map(str, violations[:_SHOWN_VIOLATIONS])) + ("; …" if number > _SHOWN_VIOLATIONS else "")
        values, label = "value" if number == 1 else "values", Label.of(violations[0].index)
        raise UniqueViolation(
            f"{number:,} duplicate {values}: {text}; open with build=False to change them, or resolve them by a migration "
            "with m.resolve",
            entity=label.owner, key=violations[0].holders[-1], index=label.index, holder=violations[0].holders[0],
        )  # fmt: skip
