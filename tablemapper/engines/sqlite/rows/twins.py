"""Both versions live: the tables of classes as they were before a migration, kept in step with those that took their place.

A *twin* is a catalogue of its own, and says how its classes and those of the file are the same: which properties, and which
values for which. So nobody needs the code of the other version. Those who know the former classes find the twin where the
others find the classes of the file, see `names.seen_by`, and read it with its keys, indexes and aggregates as ever. Whoever
writes an entity on one side writes it on the other, too, in the same transaction, with what is maintained from it there.

One invariant holds at each commit: each entity of one side is what the link makes of the entity with that key of the other
one. What is written is not the change, but what the entity is after it, so the order of writes does not matter, and neither
does what a class has beyond the link: it stays as it is. If the link leads one way only, from the classes of the file to
the twin, the former classes can be read, and what they write is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from ....errors import SchemaMismatch
from ....evolution.following import entity_model
from ....evolution.translation import Translation
from ....schema.forms import LinkForm
from ....schema.model import Model, Schema
from ...protocol import Operation
from ..file.writer import Writer
from ..sql.catalogue import Catalogue, Twin
from ..sql.schema import SqliteSchema

__all__ = ["Side", "in_step"]


class Side:
    """The entities of one class, and the same ones as the other side of a twin has them."""

    def __init__(self, here: Catalogue, there: Catalogue, link: LinkForm) -> None:
        source, target = here.models[link.old], there.models[link.new]
        try:
            one, other = entity_model(link.old, source), entity_model(link.new, target)
        except (TypeError, ValueError, LookupError) as error:
            raise SchemaMismatch(
                link.old, [f"{error}; so an older version has to end before it can be written; nothing was written"]
            ) from error
        self._statements = SqliteSchema(Schema((one,)), _alone(here)).statements[one]
        self._model = other
        self._translation = Translation(one, other, target, link)
        self.sqlite = SqliteSchema(Schema((other,)), _alone(there))
        """Of the other side."""
        # (What is nested goes over as it is stored, so it loses nothing.)
        self.sqlite.followed = {model: attrs.evolve(one, narrow={}) for model, one in self.sqlite.followed.items()}

    def operations(self, writer: Writer, keys: Iterable[Sequence[Any]]) -> Iterator[Operation]:
        """Yield what makes the other side what this one is, for some keys."""
        for key in keys:
            row = writer.get(self._statements.get, key[:2])
            place = self._translation.key(key[0], key[1])
            if row is not None:
                yield Operation("upsert", self._model, *place, change=partial(self._translation.row, row))
            elif writer.get(self.sqlite.statements[self._model].get, place) is not None:
                yield Operation("delete", self._model, *place)


def in_step(
    sqlite: SqliteSchema, writer: Writer, model: Model, keys: Iterable[Sequence[Any]]
) -> Iterator[tuple[SqliteSchema, list[Operation]]]:
    """Yield what a write owes to the other side of each twin: the schema of that, and the operations.

    Args:
        sqlite: the schema that was written with.
        writer: the transaction.
        model: the class.
        keys: of the entities that were written: the first two values of each.

    Raises:
        SchemaMismatch: the class is one that can only be read by now.
    """
    for twin in sqlite.twins.get(model, ()):
        for side in _sides(sqlite, model, twin):
            if operations := list(side.operations(writer, keys)):
                yield side.sqlite, operations


def _sides(sqlite: SqliteSchema, model: Model, twin: Twin) -> list[Side]:
    if (sides := sqlite.sides.get((model, twin.migration))) is None:
        name, main, former = sqlite.names[model], sqlite.stored, twin.catalogue
        if twin in sqlite.guests:
            if not twin.writes:
                raise SchemaMismatch(
                    model.name,
                    [f"{twin.migration} has changed it, and what it was before can only be read; nothing was written: "
                     "deploy the version that has it as it is now"],
                )  # fmt: skip
            sides = [Side(former, main, link) for link in twin.links if link.old == name]
        else:
            sides = [Side(main, former, link.reverse) for link in twin.links if link.new == name]
        sqlite.sides[model, twin.migration] = sides
    return sides


def _alone(catalogue: Catalogue) -> Catalogue:
    """Return a catalogue without what depends on who looks at it."""
    return attrs.evolve(catalogue, versions={}, twins=())
