"""Verbs of a store that write many entities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from ..engines.current_transaction import check_outside
from ..engines.optional_protocols import usable_schema
from ..entities.entity import Entity
from ..entities.expiry import expiry_index
from ..entities.index import IndexRange
from ..entities.key import KeyOf
from ..execution.prepared import PlanCache
from ..expressions.tree import Attr, Compare, Predicate
from ..planning.query_spec import QuerySpec
from ..progress import ProgressOption
from ..query.pages import counted
from ..query.writing import WriteByQuery
from ..schema.model import has_functions
from .column_input import entities_of, values_of
from .operations import Operations
from .write_windows import load, write_columns, write_many

E = TypeVar("E", bound=Entity)


class BulkVerbs:
    """The verbs that write many entities: those of a stream, of columns, and those that have ended."""

    _operations: Operations
    _plans: PlanCache

    def insert_many(
        self, entities: Iterable[Entity], /, *, atomic: bool = False, progress: ProgressOption = False
    ) -> int:
        """Insert a stream of entities in bounded memory; return their number.

        Each window is atomic, the whole is not: an error names its entity, and its ``written`` and a note say how
        many entities were stored before. A window holds what the iterable yields in about a second, at most 50,000
        entities.

        Args:
            entities: any iterable; no lock is held while it yields.
            atomic: whether all are stored or none. They are sorted in a temporary file first, and written in one
                transaction, each table and index in its order: much faster for a load that is larger than memory. The
                entities do not get their ETags; to change one, read it.
            progress: True for a bar, or a function.

        Raises:
            EntityExists, InvalidEntity, EntityTooLarge, UniqueViolation: as `insert`.
        """
        if atomic:
            return load(self._operations, entities, progress)
        return write_many(self._operations, "insert", entities, progress)

    def insert_columns(
        self, cls: type[E], columns: Any, /, *, atomic: bool = False, progress: ProgressOption = False
    ) -> int:
        """Insert the rows of columns; return their number. All columns are checked before the first row is written.

        NaN, NaT and NA mean a missing value. Numpy scalars are accepted, and also values in the form that
        `Query.to_arrow` gives them.

        Args:
            cls: the class of the entities.
            columns: by the names of the fields, a dict of sequences or numpy arrays; or a data frame or table that
                Arrow can read: one of Polars, pandas, pyarrow.
            atomic: as for `insert_many`, which writes the rows.
            progress: True for a bar, or a function.

        Raises:
            InvalidEntity: a column is missing, unknown, or of another length, or holds what cannot be stored: every
                fault, with the column and its first such row.
            ModuleNotFoundError: pyarrow is needed and not installed.
            EntityExists, EntityTooLarge, UniqueViolation: as `insert`.
        """
        model = self._operations.writable(cls)
        values = values_of(model, columns)
        if has_functions(model):
            return self.insert_many(entities_of(model, values), atomic=atomic, progress=progress)
        return write_columns(self._operations, model, values, progress, atomic=atomic)

    def upsert_many(self, entities: Iterable[Entity], /, *, progress: ProgressOption = False) -> int:
        """Insert or replace a stream of entities, in windows as `insert_many`; of equal keys the last one wins.

        Raises:
            InvalidEntity, EntityTooLarge, UniqueViolation: as `insert`.
        """
        return write_many(self._operations, "upsert", entities, progress)

    def upsert_columns(self, cls: type[E], columns: Any, /, *, progress: ProgressOption = False) -> int:
        """Insert or replace the rows of columns, as `insert_columns` takes them; of equal keys the last row wins.

        Raises:
            InvalidEntity, EntityTooLarge, UniqueViolation: as `insert_columns`.
        """
        model = self._operations.writable(cls)
        return self.upsert_many(entities_of(model, values_of(model, columns)), progress=progress)

    def replace_many(self, entities: Iterable[Entity], /, *, progress: ProgressOption = False) -> int:
        """Replace the stored entities by a stream of entities, each like `replace`, in windows like `insert_many`.

        Raises:
            EntityNotFound, PreconditionFailed, InvalidEntity, EntityTooLarge, UniqueViolation: as `replace`.
        """
        return write_many(self._operations, "replace", entities, progress)

    def delete_many(self, targets: Iterable[Entity | KeyOf[Any]], /, *, progress: ProgressOption = False) -> int:
        """Delete a stream of entities or keys, or what a query finds, in windows as `insert_many`; return the number.

        Raises:
            EntityNotFound, PreconditionFailed: as `delete`.
        """
        return write_many(self._operations, "delete", targets, progress)

    def expire(
        self, cls: type[Entity] | None = None, /, *, limit: int | None = None, progress: ProgressOption = False
    ) -> int:
        """Delete the entities that have ended, of one class or of all, and return how many that were.

        Nothing does so by itself: have a timer call it, or the command ``tablemapper expire``. It deletes in batches beside
        other programs, like `Query.delete`, what ended first in each part of the index over the time. What somebody
        prolongs meanwhile stays.

        Args:
            cls: a class with a ``tm.field(expires=True)``; by default all of these.
            limit: how many entities this call deletes at most.
            progress: as for `insert_many`.

        Raises:
            InvalidEntity: nothing of the class ends, or the store was not opened with it.
            InvalidQuery: the limit is not a number, 0 or more.
            NotReady: the index over the time is being built.
            InvalidTransaction: the thread is inside a transaction of the store.
            StoreLocked: the store is frozen.
        """
        check_outside(self._operations.engine, "expire")
        if cls is not None:
            models = [self._operations.ending(cls)]
        else:
            self._operations.engine.catch_up()
            usable = usable_schema(self._operations.engine).by_class
            models = [model for model in self._operations.ended.places if model.cls in usable]
        remaining = None if limit is None else counted("expire: limit=", limit, least=0)
        moment, deleted = self._plans.moment(), 0
        for model in models:  # (along the index over the time, so that what ended first goes first in each partition)
            field, index = model.declaration.expiry, expiry_index(model.declaration)
            assert field is not None
            assert index is not None
            attr: Attr[Any, Any] = Attr(model.cls, field.name, field.type)
            has_ended: Predicate[Any] = Compare(attr=attr, op="<=", value=moment)
            most = None if remaining is None else remaining - deleted
            spec = QuerySpec(model, IndexRange(model.cls, index.name, ()), (has_ended,), limit=most)
            deleted += WriteByQuery(self._plans).expire(spec, f"expire of {model.name}", progress=progress)
        return deleted
