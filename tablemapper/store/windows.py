"""Streams of entities, cut into what is written in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import Any

from ..engines.protocol import Batch
from ..schema.model import Model
from ..schema.rows import Row

__all__ = ["windows"]

_SECONDS = 1.0  # that a window is collected, and about as long as it may be written
_ENTITIES = 50_000  # in a window: more of them write few pages less
_CHARACTERS = 16_000_000
_CHUNK = 1_000  # entities between two looks at the clock
_QUICK = 0.02


def windows(
    entities: Iterable[Any],
    model_of: Callable[[type[Any]], Model],
    check: Callable[[Model, Iterable[Row]], None],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[list[Batch]]:
    """Yield entities and their rows, a batch for each class, as many as are written together.

    No lock is held meanwhile: the entities can come from the store that they are written to. An entity becomes a row
    when it comes. The time until a window is asked for after another tells how long it took to write that.

    Args:
        entities: of any classes.
        model_of: returns the model of a class, or raises InvalidEntity.
        check: refuses rows of a model.
        clock: seconds.
    """
    most, chunk = _ENTITIES, 1
    window: dict[Model, Batch] = {}
    count = characters = 0
    began = clock()
    for cls, run in groupby(entities, type):
        model = model_of(cls)
        ended = False
        while not ended:
            batch = window.get(model)
            if batch is None:
                batch = window[model] = Batch(model)
            held = len(batch.rows)
            started = clock()
            wanted = min(chunk, most - count)
            characters += model.to_rows(islice(run, wanted), batch.entities, batch.rows)  # noqa: B031  piece by piece
            check(model, islice(batch.rows, held, None))
            now = clock()
            came = len(batch.rows) - held
            count += came
            ended = came < wanted
            chunk = min(chunk * 2, _CHUNK) if now - started < _QUICK else max(chunk // 2, 1)
            if count >= most or characters >= _CHARACTERS or now - began >= _SECONDS:
                yield _filled(window)
                began = clock()
                most = min(_ENTITIES, max(round(count * _SECONDS / (began - now + 1e-9)), _CHUNK))
                window.clear()
                count = characters = 0
    if count:
        yield _filled(window)


def _filled(window: dict[Model, Batch]) -> list[Batch]:
    return [batch for batch in window.values() if batch.rows]
