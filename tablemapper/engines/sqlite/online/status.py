"""The status of a file, read from its catalogue alone: no class is needed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC

from msgspec import convert

from ....builtin import Builtin
from ....catalogue.catalogue import Catalogue
from ....catalogue.names import guests
from ....schema.labels import Label
from ....schema.model import Model
from ...status import Applied, Item, Status, items_of
from ..file.opening import open_file
from ..rows.contested import COUNT_VALUES
from ..rows.jobs import BUILDS
from ..sql.catalogue import COPIES, Read, as_corruption, read_catalogue, read_generation

__all__ = ["read_status", "status_of_file"]

_PROGRESS = f"SELECT name, done, total FROM {BUILDS}"
_SIZE = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
_COPIES = f"SELECT id, state, done, total FROM {COPIES} ORDER BY id"


def status_of_file(path: str | os.PathLike[str], *, timeout: float = 5.0) -> Status:
    """Return the status of an existing file."""
    file = open_file(path, read_only=True, timeout=timeout)
    try:
        with file.snapshot() as snapshot:
            return read_status(snapshot.read)
    finally:
        file.close()


@as_corruption()
def read_status(read: Read, models: Iterable[Model] = ()) -> Status:
    """Return the status of one state of a file.

    Args:
        read: runs a statement on that state.
        models: the opened classes; those of an older version have states of their own.
    """
    catalogue = read_catalogue(read)
    for twin in guests(catalogue, models):
        catalogue = catalogue.together(twin.catalogue)
    generation = read_generation(read)
    file = {"format": read("PRAGMA user_version")[0][0], "bytes": read(_SIZE)[0][0]}
    if not generation:
        return Status(generation, tuple(items_of(catalogue, {}, {})), **file)
    progress = {name: (done, total) for name, done, total in convert(read(_PROGRESS), list[tuple[str, int, int]])}
    places = {label: progress[job.name] for job in catalogue.jobs for label in job.targets if job.name in progress}
    held = dict[str, int](read(COUNT_VALUES))
    rows = convert(read(_COPIES), list[tuple[str, str, int, int]])
    copies = [Item(name, "copy", state, True, done, total) for name, state, done, total in rows]
    items = (*items_of(catalogue, places, held), *_dropped(catalogue), *copies)
    return Status(generation, items, tuple(_history(catalogue)), frozen=catalogue.frozen_since, **file)


def _dropped(catalogue: Catalogue) -> Iterator[Item]:
    """Yield the dropped indexes, aggregates and classes whose names are not used again."""
    for tombstone in {each.label: each for each in catalogue.tombstones}.values():
        owner, index = Label.of(tombstone.label)
        form = catalogue.models.get(owner)
        if form is None or (index and index not in form.indexes):
            kind = "index" if index else "aggregate" if "aggregate" in tombstone.form else "class"
            yield Item(tombstone.label, kind, "dropping" if tombstone.tables else "dropped", declared=False)  # type: ignore[arg-type]


def _history(catalogue: Catalogue) -> Iterator[Applied]:
    for one in [entry for entry in catalogue.history if entry.undone is None]:
        state = "contracted" if one.contracted else "switched" if one.switched else "running"
        started = Builtin.datetime.fromtimestamp(one.started / 1e6, UTC)
        yield Applied(one.id, state, started, one.entities)  # type: ignore[arg-type]
