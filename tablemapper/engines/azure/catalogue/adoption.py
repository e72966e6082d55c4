"""Tables that hold rows already: which of them a store takes over, and what is built from what they hold."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import attrs

from ....errors import CorruptStore, NotAStore, did_you_mean, safe_repr
from ....schema.model import Schema, is_local
from ..cross_partition.marks import number_of
from ..tables.entity_json import marks_of
from ..tables.reserved_names import BASE_PARTITION, BASE_ROW, HIDDEN, OURS, STATE
from ..tables.service import ROW, Entity
from .claims import TableView

Adopted: TypeAlias = bool | Sequence[str]
"""Which tables may hold rows already, by ``table=``; True: all of the models."""


def tables_of(schema: Schema) -> list[str]:
    """Return the tables of classes, and of their indexes that have some, by their public names."""
    remote_tables = [index.table for model in schema.models for index in model.indexes if not is_local(model, index)]
    return list(dict.fromkeys([*(model.table for model in schema.models), *remote_tables]))


def check_adopted(schema: Schema, adopt: Any) -> None:
    """Refuse names of tables that no class has.

    Raises:
        ValueError
    """
    if isinstance(adopt, bool):
        return
    if isinstance(adopt, str) or not isinstance(adopt, Sequence) or not all(isinstance(name, str) for name in adopt):
        raise ValueError(
            f'adopt={safe_repr(adopt)}: expected True, or a list of tables by their table=, as in adopt=["Things"]'
        )
    tables = {table.lower(): table for table in tables_of(schema)}
    for name in adopt:
        if name.lower() not in tables:
            mend = did_you_mean(name, list(tables.values())) or f" (tables: {', '.join(tables.values())})"
            raise ValueError(f"adopt=: no class has the table {safe_repr(name)}{mend}")


@attrs.frozen
class Adoption:
    """The tables that a store may take over.

    Args:
        schema: the opened classes.
        adopt: the tables that may hold rows already.
        catalogue: its table.
    """

    schema: Schema
    adopt: Adopted
    catalogue: str

    def has(self, name: str) -> bool:
        """Return whether a table may be taken over: it was named, or a class that it is maintained from."""
        if isinstance(self.adopt, bool):
            return self.adopt
        return not {table.lower() for table in self._sources(name)}.isdisjoint([table.lower() for table in self.adopt])

    def _sources(self, name: str) -> list[str]:
        """Return a table, and those of the classes that what is in it is maintained from, the last first."""
        tables = [name]
        while source := next((table for table in self._maintained_from(tables[0]) if table not in tables), None):
            tables.insert(0, source)
        return tables

    def _maintained_from(self, name: str) -> Iterator[str]:
        for model in self.schema.models:
            if any(index.table == name and not is_local(model, index) for index in model.indexes):
                yield model.table
            if model.table == name and model.aggregate is not None:
                yield self.schema.by_class[model.aggregate.source].table

    def check(self, name: str, view: TableView) -> None:
        """Refuse to take over a table whose rows are not to be, or cannot be, those of the store.

        Raises:
            NotAStore
        """
        classes = [model for model in self.schema.models if model.table == name]
        table, rows = view.name, view.rows
        if not classes and not all(BASE_PARTITION in row and BASE_ROW in row for row in rows):
            raise NotAStore(
                f"the table {table} is to be that of an index, and holds rows that are none: choose another name for it"
            )
        if classes and all(model.aggregate is not None for model in classes) and not all(map(_is_of_group, rows)):
            raise NotAStore(
                f"the table {table} is to be that of {classes[0].name}, which is maintained, and holds rows of another "
                "program; choose another table= for it"
            )
        if not self.has(name):
            raise NotAStore(
                f"the table {table} holds entities, and the catalogue {self.catalogue} does not know it; if they are entities "
                f'of these classes, open the store with adopt=["{self._sources(name)[0]}"]; else choose another table=, or a '
                "prefix="
            )

    def to_build(self, tables: Collection[str]) -> dict[str, set[str]]:
        """Return the labels of what is to be built, as some tables held rows, by class."""
        labels: dict[str, set[str]] = {}
        for model in self.schema.models:
            source = model if model.aggregate is None else self.schema.by_class[model.aggregate.source]
            over = {f"{model.name}.{index.name}" for index in model.indexes if index.table in tables}
            if not {model.table, source.table}.isdisjoint(tables) or (over and model is not source):
                # (An index on groups is built with these.)
                over = {f"{model.name}.{index.name}" for index in model.indexes} | ({model.name} - {source.name})
            if over:
                labels.setdefault(source.name, set()).update(over)
        return labels


def holds_ours(schema: Schema, name: str, view: TableView) -> bool:
    """Return whether some of what is in a table was written by this library, so that nothing of it may be believed."""
    is_entities = any(model.table == name and model.aggregate is None for model in schema.models)
    return view.claim is not None or not is_entities or any(key.startswith(OURS) for row in view.rows for key in row)


def last_build(view: TableView) -> int:
    """Return the greatest number of a build that entities of a table are marked with; 0: of none."""
    numbers = [0]
    for row in view.rows:
        with suppress(CorruptStore):
            numbers += [number_of(name)[1] for name in marks_of(row)]
    return max(numbers)


def _is_of_group(row: Entity) -> bool:
    return STATE in row or HIDDEN[0] <= row[ROW] < HIDDEN[1]
