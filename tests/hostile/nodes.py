"""The nodes of JSON, and files of which one statement changed something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw


def damaged(sound: bytes, path: str, sql: str, *values: Any) -> None:
    """Write a file as it was, but for what a statement changes."""
    Path(path).write_bytes(sound)
    db = apsw.Connection(path)
    try:
        db.execute(sql, values)
    finally:
        db.close()


def nodes(form: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield here
    inside: Iterable[tuple[Any, Any]] = (
        form.items() if isinstance(form, dict) else enumerate(form) if isinstance(form, list) else ()
    )
    for step, one in inside:
        yield from nodes(one, (*here, step))


def node_at(form: Any, where: tuple[Any, ...]) -> Any:
    for step in where:
        form = form[step]
    return form
