"""Tables read whole, their partitions, and the places that rows of indexes have in other partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol, TypeVar

import attrs

from ....planning.query_parts import KeyPosition
from ....schema.maintenance import IndexMaintenance
from ..tables.driver import Effects, read
from ..tables.reserved_names import BASE_PARTITION, BASE_ROW, HIDDEN_PREFIX, NEXT_ROW, OP_UNITS, STATE, outer_row_of
from ..tables.service import PARTITION, ROW, Entity, EntityPage, Filter, QueryEntities, check_ascending
from .filters import all_of, text, visible

T = TypeVar("T")


class Runs(Protocol):
    """A runner of works."""

    timeout: float

    def run(self, work: Effects[T]) -> T:
        """Return what a work returns."""
        ...


def is_index_row(entity: Entity, *, remote: bool) -> bool:
    """Return whether a row where an index keeps its own is one of an index: others name no entity."""
    return entity.get(BASE_ROW).__class__ is str and (not remote or entity.get(BASE_PARTITION).__class__ is str)


def outer_places(index: IndexMaintenance, entity: Entity) -> Iterator[KeyPosition]:
    """Yield the places of a row of an index in other partitions: two of a unique value that is being passed on."""
    partition, row, base = entity[PARTITION], entity[ROW], entity.get(BASE_PARTITION)
    if base is None:  # (the claim of the table)
        return
    if not index.model.unique:
        op = row[-OP_UNITS:]
        yield partition, outer_row_of(row, base, entity[BASE_ROW], op), base, entity[BASE_ROW]
        return
    for name in (BASE_ROW, NEXT_ROW):
        if entity.get(name) is not None:
            yield partition, row, base, entity[name]


def in_range(table: str, rows: tuple[str, str], partition: str | None = None) -> QueryEntities:
    """Return the request for the rows of a half-open range of row keys, in one partition or in all."""
    parts = [text(ROW, "ge", rows[0]), text(ROW, "lt", rows[1])]
    return QueryEntities(table, all_of(parts if partition is None else [*parts, text(PARTITION, "eq", partition)]))


def ascending(pages: Iterable[Sequence[Entity]]) -> Iterator[Sequence[Entity]]:
    """Yield pages; raise StoreError if one does not go on behind the last row of those before."""
    last_row: Sequence[Entity] = ()
    for page in pages:
        check_ascending([*last_row, *page[:1]])
        last_row = page[-1:] or last_row
        yield page


def rows_of(source: Runs, table: str, *where: Filter) -> Iterator[Entity]:
    """Yield the entities of a table that satisfy a filter."""

    def pages() -> Iterator[Sequence[Entity]]:
        find = QueryEntities(table, all_of(where))
        while True:
            page: EntityPage = source.run(read(find, source.timeout))
            yield page.entities
            if page.after is None:
                return
            find = attrs.evolve(find, after=page.after)

    return chain.from_iterable(ascending(pages()))


def partition_keys(source: Runs, table: str) -> Iterator[tuple[str, Entity]]:
    """Yield the partition keys of a table in order, each with the first of its entities: a request for each."""
    beyond: list[Filter] = []
    while True:
        find = QueryEntities(table, all_of([*beyond, visible()]), (PARTITION, ROW, HIDDEN_PREFIX, STATE), 1)
        page: EntityPage = source.run(read(find, source.timeout))
        while not page.entities and page.after is not None:
            page = source.run(read(attrs.evolve(find, after=page.after), source.timeout))
        if not page.entities:
            return
        partition: str = page.entities[0][PARTITION]
        yield partition, page.entities[0]
        beyond = [text(PARTITION, "gt", partition)]
