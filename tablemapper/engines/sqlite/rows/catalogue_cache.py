"""The catalogue of a file as a store knows it; another process may change it at any moment.

All of it is one object, and an assignment replaces it as a whole. So neither another thread nor an interrupt ever meets
half of it: the generation of the catalogue says that the rest is of that generation, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from ....schema.model import Model
from ....schema.rows import Row
from ...protocol import PendingBuild
from ..file.database import File
from ..sql.catalogue_table import read_catalogue, read_generation
from ..sql.schema import SqliteSchema
from ..sql.statements import Statements
from .jobs import progress

_FEW, _MOST_KEYS = 8, 64  # keys that one statement has places for: to compile another for each number would cost more


class RowGetter:
    """The read of a row by its key: with values that are moved aside or without, as was right for the last one.

    Attributes:
        sql: reads the row.
        lean: the one that reads nothing of what is moved aside: the row is whole if its last value is None.
    """

    __slots__ = ("_full_sql", "_statements", "lean", "sql")

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self.lean: Final = statements.get_lean
        self.sql: str = self.lean
        self._full_sql = statements.get if statements.has_big else None

    def completed(
        self, row: Row, sql: str, read_row: Callable[[str, Sequence[Any]], Row | None], key: Sequence[str]
    ) -> Row | None:
        """Return a row with what is moved aside of it, and remember whether there is any.

        Args:
            sql: what read it; another thread may have changed `sql` since.
        """
        if self._full_sql is None or (row[-1] is None) is (sql is self.lean):
            return row
        if row[-1] is None:
            self.sql = self.lean
            return row
        self.sql = self._full_sql
        return read_row(self._full_sql, key)

    def few(
        self, read_rows: Callable[[str, Sequence[Any]], list[Row]], keys: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], Row] | None:
        """Return what `rows` does, by one statement; None if these are too many keys, or rows with large values."""
        places = _FEW if len(keys) <= _FEW else _MOST_KEYS
        if len(keys) > places:
            return None
        values = [part for key in keys for part in key] + [None] * (2 * (places - len(keys)))  # (no key is NULL)
        rows = read_rows(self._statements.get_several(places), values)
        if self._full_sql is not None and any(row[-1] is not None for row in rows):
            return None
        return {row[:2]: row for row in rows}

    def rows(
        self,
        read_each: Callable[[str, Sequence[Sequence[str]]], list[Row]],
        read_row: Callable[[str, Sequence[Any]], Row | None],
        keys: Sequence[tuple[str, str]],
    ) -> dict[tuple[str, str], Row]:
        """Return the rows that there are of several keys, by key; read by functions of a snapshot."""
        rows = {row[:2]: row for row in read_each(self.lean, keys)}
        if self._full_sql is not None:
            for key in [key for key, row in rows.items() if row[-1] is not None]:
                if (row := read_row(self._full_sql, key)) is not None:
                    rows[key] = row
        return rows


class RowGetters(dict[Model, RowGetter]):
    """The reads by key of each class, made when its first row is read."""

    def __init__(self, sqlite: SqliteSchema, when_ready: Callable[[Model], RowGetter]) -> None:
        super().__init__()
        self._sqlite = sqlite
        self._when_ready = when_ready

    def __missing__(self, model: Model) -> RowGetter:
        statements = self._sqlite.statements[model]  # (of a class that was retired there are none: SchemaMismatch)
        if any(label in self._sqlite.unready for label in self._sqlite.required_labels(model)):
            return self._when_ready(model)
        get = self[model] = RowGetter(statements.reading)
        return get


@attrs.frozen(eq=False)
class CatalogueState:
    """The schema and the reads of one generation of the catalogue."""

    sqlite: SqliteSchema
    gets: Mapping[Model, RowGetter]
    """The read by key of each class; one that is not ready is looked for in the file's catalogue as it is by then.

    Raises:
        NotReady: it is not ready there either.
    """


class CatalogueCache:
    """The state of an open store, and how it follows the file.

    Attributes:
        state: read it once for what belongs together.
    """

    def __init__(self, file: File, sqlite: SqliteSchema) -> None:
        self._file = file
        self._schema = sqlite.schema
        self._catching_up = threading.Lock()
        self.state: CatalogueState = self._state(sqlite)

    def _state(self, sqlite: SqliteSchema) -> CatalogueState:
        return CatalogueState(sqlite, RowGetters(sqlite, self._when_ready))

    def _when_ready(self, model: Model) -> RowGetter:
        self.catch_up()
        state = self.state
        self.check_ready(state.sqlite, model)
        return state.gets[model]

    def catch_up(self) -> None:
        """Follow the catalogue, if another process changed it."""
        with self._catching_up, self._file.snapshot() as snapshot:
            current = self.state.sqlite
            if (generation := read_generation(snapshot.read)) != current.generation:
                catalogue = read_catalogue(snapshot.read)
                self.state = self._state(SqliteSchema(self._schema, catalogue, generation, current.ways_back))

    def extend(self, sqlite: SqliteSchema) -> None:
        """Go on with other classes."""
        with self._catching_up:
            self._schema = sqlite.schema
            self.state = self._state(sqlite)

    def check_ready(self, sqlite: SqliteSchema, model: Model, index: str | None = None) -> None:
        """Refuse to read what is not ready.

        Raises:
            NotReady: a class, what it needs, or an index of it is not.
        """
        for label in (*sqlite.required_labels(model), sqlite.label(model, index)):
            if label in sqlite.unready:
                raise self.describe(label).error()

    def describe(self, label: str) -> PendingBuild:
        """Return how far something that is not ready has come."""
        sqlite = self.state.sqlite
        processed, total = 0, 0
        for job in sqlite.all_jobs:
            if label in job.labels:
                processed, total = progress(self._file.get, job.name)
        return PendingBuild(label, sqlite.unready.get(label, "building"), processed, total)
