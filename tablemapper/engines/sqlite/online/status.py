"""The status of a file, read from its catalogue alone: no class is needed."""

from __future__ import annotations

import os
from collections.abc import Iterable

from msgspec import convert

from ....catalogue.property_names import mirror_readers
from ....schema.model import Model
from ...status import ObjectStatus, Status, status_of
from ..file.opening import open_file
from ..rows.duplicate_values import COUNT_VALUES
from ..rows.jobs import BUILDS
from ..sql.catalogue_table import COPIES, CatalogueRead, as_corruption, read_catalogue, read_generation

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
def read_status(query: CatalogueRead, models: Iterable[Model] = ()) -> Status:
    """Return the status of one state of a file.

    Args:
        models: the opened classes; those of an older version have states of their own.
    """
    catalogue = read_catalogue(query)
    for twin in mirror_readers(catalogue, models):
        catalogue = catalogue.together(twin.catalogue)
    generation = read_generation(query)
    file = {"format": query("PRAGMA user_version")[0][0], "bytes": query(_SIZE)[0][0]}
    if not generation:
        return status_of(catalogue, generation, {}, {}, **file)
    progress = {
        name: (processed, total) for name, processed, total in convert(query(_PROGRESS), list[tuple[str, int, int]])
    }
    places = {label: progress[job.name] for job in catalogue.jobs for label in job.targets if job.name in progress}
    duplicate_counts = dict[str, int](query(COUNT_VALUES))
    rows = convert(query(_COPIES), list[tuple[str, str, int, int]])
    copies = [ObjectStatus(name, "copy", state, True, processed, total) for name, state, processed, total in rows]
    return status_of(catalogue, generation, places, duplicate_counts, copies, **file)
