"""What a store knows of its file, which another process may change at any moment.

All of it is one object, and an assignment replaces it as a whole. So neither another thread nor an interrupt ever meets
half of it: the generation of the catalogue says that the rest is of that generation, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import attrs

from ....schema.model import Model
from ...protocol import Unready
from ..file.file import File
from ..sql.catalogue import read_catalogue, read_generation
from ..sql.schema import SqliteSchema
from .jobs import progress
from .writes import Get

__all__ = ["Current", "State"]


class Gets(dict[Model, Get]):
    """How the rows of each class are got by their keys, made when the first row is."""

    def __init__(self, sqlite: SqliteSchema, when_ready: Callable[[Model], Get]) -> None:
        super().__init__()
        self._sqlite = sqlite
        self._when_ready = when_ready

    def __missing__(self, model: Model) -> Get:
        statements = self._sqlite.statements[model]  # (of a class that was retired there are none: SchemaMismatch)
        if any(label in self._sqlite.unready for label in self._sqlite.needed(model)):
            return self._when_ready(model)
        get = self[model] = Get(statements)
        return get


@attrs.frozen(eq=False)
class State:
    """What is known of one generation of the catalogue."""

    sqlite: SqliteSchema
    gets: Mapping[Model, Get]
    """How the row of a class is got; one that is not ready is looked for in the file's catalogue as it is by then.

    Raises:
        NotReady: it is not ready there either.
    """


class Current:
    """The state of an open store, and how it follows the file.

    Attributes:
        state: read it once for what belongs together.
    """

    def __init__(self, file: File, sqlite: SqliteSchema) -> None:
        self._file = file
        self._schema = sqlite.schema
        self._catching_up = threading.Lock()
        self.state = self._state(sqlite)

    def _state(self, sqlite: SqliteSchema) -> State:
        return State(sqlite, Gets(sqlite, self._when_ready))

    def _when_ready(self, model: Model) -> Get:
        self.catch_up()
        state = self.state
        self.check_ready(state.sqlite, model)
        return state.gets[model]

    def catch_up(self) -> None:
        """Follow the catalogue, if another process changed it."""
        with self._catching_up, self._file.snapshot() as snapshot:
            known = self.state.sqlite
            if (generation := read_generation(snapshot.read)) != known.generation:
                catalogue = read_catalogue(snapshot.read)
                self.state = self._state(SqliteSchema(self._schema, catalogue, generation, known.ways_back))

    def check_ready(self, sqlite: SqliteSchema, model: Model, index: str | None = None) -> None:
        """Refuse to read what is not ready.

        Raises:
            NotReady: a class, what it needs, or an index of it is not.
        """
        for label in (*sqlite.needed(model), sqlite.label(model, index)):
            if label in sqlite.unready:
                raise self.describe(label).error()

    def describe(self, label: str) -> Unready:
        """Return how far something that is not ready has come."""
        sqlite = self.state.sqlite
        done, total = 0, 0
        for job in sqlite.all_jobs:
            if label in job.labels:
                done, total = progress(self._file.get, job.name)
        return Unready(label, sqlite.unready.get(label, "building"), done, total)
