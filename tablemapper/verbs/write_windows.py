"""Streams of entities, cut into windows: what is written in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby, islice
from typing import Any, Literal, TypeAlias

from ..engines.current_transaction import check_outside
from ..engines.optional_protocols import LoadsAtOnce
from ..engines.protocol import Batch, Engine, Operation, Part
from ..entities.entity import Record, set_row
from ..entities.key import KeyOf
from ..errors import EntityExists, InvalidEntity, InvalidTransaction, note_written, safe_repr
from ..progress import Meter, ProgressOption, start_meter
from ..schema.model import Model
from ..schema.rows import Row
from .operations import Operations, stamp_batch

Clock: TypeAlias = Callable[[], float]

_SECONDS = 1.0  # that a window is collected, and about as long as it may be written
_ENTITIES = 50_000  # in a window: more of them write few pages less
_CHARACTERS = 16_000_000
_CHUNK = 1_000  # entities between two looks at the clock
_QUICK = 0.02
_CACHED = 100_000
"""Entities, about, whose index rows fit into the cache of a file."""


def write_many(
    operations: Operations,
    verb: Literal["insert", "upsert", "replace", "delete"],
    items: Iterable[Any],
    progress: ProgressOption,
    *,
    written: int = 0,
) -> int:
    """Do a verb on each item of a stream, window by window; return their number.

    Args:
        items: entities; for ``delete`` keys, too. Of equal keys in an ``upsert`` the last one wins.
        written: how many were written before, of the same stream.
    """
    check_outside(operations.engine, f"{verb}_many")
    items = _stream(verb, items)
    with start_meter(progress, f"{verb}_many") as meter, _telling(f"{verb}_many", meter, written):
        if verb == "insert":
            _insert(operations, "insert_many", batches(operations, items), meter)
        elif verb == "upsert":
            _write_windows(operations, (operations.upsert(entity, merge=False) for entity in items), meter)
        elif verb == "replace":
            _write_windows(operations, (operations.replace(entity, None) for entity in items), meter)
        else:
            _write_windows(operations, (operations.delete(target, None) for target in items), meter)
    return written + meter.count


def load(operations: Operations, entities: Iterable[Any], progress: ProgressOption) -> int:
    """Insert a stream of entities, all of them or none; return their number."""
    check_outside(operations.engine, "insert_many")
    return _load(operations, "insert_many", batches(operations, _stream("insert", entities)), progress)


def write_columns(
    operations: Operations, model: Model, columns: Sequence[Sequence[Any]], progress: ProgressOption, *, atomic: bool
) -> int:
    """Insert the rows of values of all fields of a class, which are checked already; return their number."""
    check_outside(operations.engine, "insert_columns")
    windows = _column_windows(operations, model, columns, time.monotonic)
    if atomic:
        return _load(operations, "insert_columns", windows, progress)
    with start_meter(progress, "insert_columns") as meter, _telling("insert_columns", meter):
        _insert(operations, "insert_columns", windows, meter)
    return meter.count


def _insert(operations: Operations, verb: str, windows: Iterable[list[Batch]], meter: Meter) -> None:
    for window in windows:
        if operations.ended.places:
            operations.ended.judge(window)
        operations.engine.insert(window)
        for batch in window:
            stamp_batch(batch)
            meter.advance(batch.count)
            if meter.count > _CACHED and batch.model.indexes and operations.engine.capabilities.all_or_none_load:
                meter.label = f"{verb}, which is faster with atomic=True from here"


def _load(operations: Operations, verb: str, windows: Iterator[list[Batch]], progress: ProgressOption) -> int:
    engine = operations.engine
    if not engine.capabilities.all_or_none_load:
        raise InvalidTransaction(
            f"{verb}(atomic=True) is not possible on {engine.capabilities.engine}; leave atomic out: then each window of a "
            "partition is whole"
        )
    assert isinstance(engine, LoadsAtOnce)
    with _telling(verb, None):
        try:
            return engine.load(windows, lambda task, total: start_meter(progress, task, total=total))
        except EntityExists as error:
            model = engine.schema.by_name.get(error.entity or "")
            stored = None if model is None or error.key is None else engine.get(model, *error.key)
            if model is None or stored is None or operations.row(model, *stored[:2]) is not None:
                raise
            text = f"{error}; it has ended: call store.expire() first"
            raise EntityExists(text, entity=error.entity, key=error.key) from None


def _stream(verb: str, items: Iterable[Any]) -> Iterable[Any]:
    if isinstance(items, Record | KeyOf) or not isinstance(items, Iterable):
        raise InvalidEntity(
            f"{verb}_many", [f"expected a list, or another stream, got {safe_repr(items)}; store.{verb} takes one"]
        )
    return items


@contextmanager
def _telling(verb: str, meter: Meter | None, before: int = 0) -> Iterator[None]:
    """Let an error say how many entities were written before it."""
    try:
        yield
    except BaseException as error:
        note_written(error, verb, before + (0 if meter is None else meter.count) + getattr(error, "written", 0))
        raise


class WindowPace:
    """Says how much of a stream makes a window: what comes, and can be written, in about a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._most = _ENTITIES
        self._chunk = 1
        self._count = self._characters = 0
        self._full_since: float | None = None
        self.begin()

    def begin(self) -> None:
        """Begin a window; the time since the last one was full is what it took to write that."""
        self._began = self._started = self._clock()
        if self._full_since is not None:
            seconds = self._began - self._full_since + 1e-9
            self._most = min(_ENTITIES, max(round(self._count * _SECONDS / seconds), _CHUNK))
        self._count = self._characters = 0
        self._full_since = None

    def next_chunk(self) -> int:
        """Return how many may be taken before the clock is looked at."""
        self._started = self._clock()
        return min(self._chunk, self._most - self._count)

    def took(self, count: int, characters: int) -> bool:
        """Count how many were taken, and how long they are; return whether the window is full."""
        moment = self._clock()
        self._chunk = min(self._chunk * 2, _CHUNK) if moment - self._started < _QUICK else max(self._chunk // 2, 1)
        self._count += count
        self._characters += characters
        if self._count < self._most and self._characters < _CHARACTERS and moment - self._began < _SECONDS:
            return False
        self._full_since = moment
        return True


def batches(operations: Operations, entities: Iterable[Any], *, clock: Clock = time.monotonic) -> Iterator[list[Batch]]:
    """Yield entities and their rows, a batch for each class, as many as are written together.

    No lock is held meanwhile: the entities can come from the store that they are written to. An entity becomes a row
    when it comes.
    """
    runs = ((model := operations.writable(cls), partial(_take, model, run)) for cls, run in groupby(entities, type))
    return _windows(operations, runs, WindowPace(clock))


def _take(model: Model, run: Iterator[Any], count: int, batch: Batch) -> int:
    return model.to_rows(islice(run, count), batch.entities, batch.rows)


def _column_windows(
    operations: Operations, model: Model, columns: Sequence[Sequence[Any]], clock: Clock
) -> Iterator[list[Batch]]:
    """Yield columns in batches that make rows until enough are written together; each goes on where the last ended."""
    start = 0

    def parts(batch: Batch) -> Iterator[Part]:
        began, characters, batch.made = clock(), 0, 0
        while batch.made < _ENTITIES and characters < _CHARACTERS and clock() - began < _SECONDS:
            at = start + batch.made
            end = min(at + _CHUNK, start + _ENTITIES)
            rows: list[Row] = []
            chunk_characters, longest = model.columns_to_rows([column[at:end] for column in columns], rows)
            if not rows:
                break
            operations.refuse_reserved(model, rows)
            batch.made += len(rows)
            characters += chunk_characters
            yield rows, longest

    while start < len(columns[0]):
        batch = Batch(model)
        batch.parts = partial(parts, batch)
        yield [batch]
        start += batch.made


def _windows(
    operations: Operations, runs: Iterable[tuple[Model, Callable[[int, Batch], int]]], pace: WindowPace
) -> Iterator[list[Batch]]:
    """Yield what runs of one class each give, a batch for each class, as many as are written together.

    Args:
        runs: the class, and a function that adds so many to a batch, or what is left, and returns how long they are.
    """
    window: dict[Model, Batch] = {}
    for model, take in runs:
        is_exhausted = False
        while not is_exhausted:
            batch = window.get(model)
            if batch is None:
                batch = window[model] = Batch(model)
            count_before = len(batch.rows)
            chunk = pace.next_chunk()
            characters = take(chunk, batch)
            operations.refuse_reserved(model, islice(batch.rows, count_before, None))
            count = len(batch.rows) - count_before
            is_exhausted = count < chunk
            if pace.took(count, characters):
                yield _filled(window)
                pace.begin()
                window.clear()
    if filled := _filled(window):
        yield filled


def _filled(window: dict[Model, Batch]) -> list[Batch]:
    return [batch for batch in window.values() if batch.rows]


def _write_windows(operations: Operations, stream: Iterator[Operation], meter: Meter) -> None:
    """Apply a stream of operations in windows, each with a key once at most."""
    pace = WindowPace(time.monotonic)
    window: dict[tuple[str, str, str], Operation] = {}
    twins: list[Operation] = []
    is_exhausted = False
    while not is_exhausted:
        chunk, count, characters = pace.next_chunk(), 0, 0
        for operation in islice(stream, chunk):
            place = (operation.model.table, operation.partition, operation.row)
            if place in window:
                if operation.verb == "upsert":
                    twins.append(window.pop(place))
                else:
                    _write(operations, window, twins, meter)
            window[place] = operation
            count += 1
            characters += 0 if operation.new is None else operation.model.most(operation.new) // 4
        is_exhausted = count < chunk
        if pace.took(count, characters):
            _write(operations, window, twins, meter)
            pace.begin()
    _write(operations, window, twins, meter)


def _parts(engine: Engine, operations: list[Operation]) -> Iterator[list[Operation]]:
    """Yield operations in the parts that the engine writes in one transaction each."""
    if not engine.capabilities.across_partitions:
        operations.sort(key=lambda operation: (operation.model.table, *operation.key))
    while operations:
        count = engine.together(operations)
        yield operations[:count]
        operations = operations[count:]


def _write(
    operations: Operations, window: dict[tuple[str, str, str], Operation], twins: list[Operation], meter: Meter
) -> None:
    if not window:
        return
    for part in _parts(operations.engine, list(window.values())):
        operations.write(part)
    stamped = {id(operation.entity) for operation in window.values()} if twins else set()
    for twin in twins:  # overwritten within the window: it is what was there for a moment, and is no more
        if id(twin.entity) not in stamped:
            set_row(twin.entity, None)
    meter.advance(len(window) + len(twins))
    window.clear()
    twins.clear()
