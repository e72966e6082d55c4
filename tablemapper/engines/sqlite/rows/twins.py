"""Both versions live: the tables of classes as they were before a migration, kept in step with those that took their place.

A *twin* is a catalogue of its own, and says how its classes and those of the file are the same: which properties, and which
values for which. So nobody needs the code of the other version. Those who know the former classes find the twin where the
others find the classes of the file, see `names.seen_by`, and read it with its keys, indexes and aggregates as ever. Whoever
writes an entity on one side writes it on the other, too, in the same transaction, with what is maintained from it there.

One invariant holds at each commit: each entity of one side is what the link makes of the entity with that key of the other
one. What is written is not the change, but what the entity is after it, so the order of writes does not matter, and neither
does what a class has beyond the link: it stays as it is. If the link leads one way only, from the classes of the file to
the twin, the former classes can be read, and what they write is refused.

Some links are by functions that only a script has: see `MadeSide`. A process that was opened without the script cannot keep
them; it ends such a twin before it writes, so that nobody reads what is out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import attrs
from msgspec.structs import replace

from ....errors import EntityExists, EntityNotFound, InvalidEntity, SchemaMismatch, UniqueViolation
from ....evolution.following import entity_model
from ....evolution.translation import Translation
from ....schema.check import ProblemKind, same
from ....schema.forms import LinkForm
from ....schema.model import Model, Schema
from ....schema.rows import FIRST, Row
from ...migration import Conversion
from ...protocol import Batch, Operation
from ..file.writer import Writer
from ..sql.catalogue import Catalogue, Twin, trusted
from ..sql.names import seen_by
from ..sql.schema import SqliteSchema

__all__ = ["MadeSide", "NoWayBack", "Side", "former_row", "made_sides", "sides_of", "unkept"]

Place: TypeAlias = tuple[str, str]  # the key of an entity on the other side
Apply: TypeAlias = Callable[[SqliteSchema, Writer, list[Operation]], None]
_REFUSED = (EntityExists, EntityNotFound, InvalidEntity, SchemaMismatch, UniqueViolation)


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

    def places(self, _writer: Writer, _keys: Iterable[Sequence[Any]]) -> Collection[Place]:
        """Return what has to be known of some keys before they are written: here nothing, as a key tells the other one."""
        return ()

    def write(self, writer: Writer, keys: Iterable[Sequence[Any]], _before: Collection[Place], apply: Apply) -> None:
        """Make the other side what this one is, for some keys."""
        if operations := list(self._operations(writer, keys)):
            apply(self.sqlite, writer, operations)

    def _operations(self, writer: Writer, keys: Iterable[Sequence[Any]]) -> Iterator[Operation]:
        for key in keys:
            row = writer.get(self._statements.get, key[:2])
            place = self._translation.key(key[0], key[1])
            if row is not None:
                yield Operation("upsert", self._model, *place, change=partial(self._translation.row, row))
            elif writer.get(self.sqlite.statements[self._model].get, place) is not None:
                yield Operation("delete", self._model, *place)


class NoWayBack(Exception):
    """There is no old entity for a new one, and why."""


def former_row(conversion: Conversion, entity: Any) -> Row | None:
    """Return the row of the old entity that the functions of a script make of a new one; None if that stands for none.

    Raises:
        NoWayBack: a function raises, or gives what is no such entity.
    """
    (target,) = conversion.targets
    try:
        made = list(conversion.convert([entity]))
    except Exception as error:  # whatever the function of a script raises
        raise NoWayBack(f"{type(error).__name__}: {error}") from error
    if not made:
        return None
    if len(made) > 1 or type(made[0]) is not target.cls:
        given = " and ".join(type(one).__name__ for one in made)
        raise NoWayBack(f"the function gave {given}, but one old {target.name} of the script is expected")
    try:
        return target.to_row(made[0])
    except InvalidEntity as error:
        raise NoWayBack(str(error)) from error


class MadeSide:
    """The entities of one class, and those of the other side of a twin that the functions of a script make of them.

    The key of an entity does not tell the other one, so its place there before it is written has to be known, too. Each entity
    there is made of exactly one here: so it was when the twin came about, and what would change that is refused.
    """

    def __init__(self, here: Catalogue, twin: Twin, link: LinkForm, conversion: Conversion) -> None:
        (self._source,), (self._target,) = conversion.sources, conversion.targets
        self._conversion, self._migration, self._steps = conversion, twin.migration, link.steps
        self.name = link.old
        # (Properties of the script's class may have other names by now, as a version in the catalogue says.)
        here, _ = seen_by(attrs.evolve(here, twins=()), Schema((self._source,)))
        known = {name: form for name, form in here.models[link.new].fields.items() if name in self._source.form.fields}
        one = entity_model(link.new, replace(here.models[link.new], fields=known))
        self._model = entity_model(link.old, twin.catalogue.models[link.old])
        self._statements = SqliteSchema(Schema((one,)), _alone(here)).statements[one]
        self.sqlite = SqliteSchema(Schema((self._model,)), _alone(twin.catalogue))
        """Of the other side."""
        # (What is maintained in the classes of the script is not: their functions cannot depend on it.)
        self._to_source = _places(one, self._source)
        self._from_target = _places(self._target, self._model)

    def places(self, writer: Writer, keys: Iterable[Sequence[Any]]) -> Collection[Place]:
        """Return where the entities that some keys have are on the other side."""
        return {row[:2] for _, row in self._rows(writer, keys)}

    def write(self, writer: Writer, keys: Iterable[Sequence[Any]], before: Collection[Place], apply: Apply) -> None:
        """Make the other side what this one is, for some keys.

        Args:
            writer: the transaction.
            keys: of what was written.
            before: where that was on the other side.
            apply: writes operations.

        Raises:
            InvalidEntity: that is not possible.
        """
        made: dict[Place, Any] = {}
        operations: list[Operation] = []
        for key, row in self._rows(writer, keys):
            place = row[:2]
            if place in made:
                raise self._refused(key, f"it becomes {self._target.name} {place}, and so does {made[place]}")
            made[place] = key
            verb: Any = "upsert" if place in before else "insert"
            operations.append(Operation(verb, self._model, row[0], row[1], new=row))
        operations += [Operation("delete", self._model, *place) for place in sorted(before) if place not in made]
        if not operations:
            return
        try:
            apply(self.sqlite, writer, operations)
        except _REFUSED as error:
            there: Any = getattr(error, "key", None)
            taken = isinstance(error, EntityExists)
            reason = f"it becomes {self._target.name} {there}, and so does another entity" if taken else str(error)
            raise self._refused(made.get(there, next(iter(made.values()), None)), reason) from error

    def differences(
        self, read: Callable[..., Iterator[Row]], switched: int
    ) -> Iterator[tuple[ProblemKind, Place, str]]:
        """Yield what the other side has not, and should: the kind of the problem, the key there, and what it is.

        Args:
            read: runs a statement on one state of the file.
            switched: when the migration did; what was not written since is as the old version left it.
        """
        count, statements = 0, self.sqlite.statements[self._model]
        for row in read(self._statements.scan):
            try:
                made = self._made(row)
            except NoWayBack as error:
                yield "wrong", row[:2], f"nothing can be made of it: {error}"
                continue
            if made is None:
                continue
            stored = next(read(statements.get, made[:2]), None)
            count += stored is not None
            if stored is None:
                yield "missing", made[:2], f"it is what {self._source.name} {row[:2]} was"
            elif row[2] > switched and not same(stored[FIRST : len(made)], made[FIRST:]):
                yield "wrong", made[:2], f"it is not what {self._source.name} {row[:2]} was"
        there = sum(1 for _ in read(statements.scan))
        if there > count:
            yield "dangling", ("", ""), f"{there - count} of {there} entities are what nothing is any more"

    def _rows(self, writer: Writer, keys: Iterable[Sequence[Any]]) -> Iterator[tuple[Place, Row]]:
        for key in keys:
            if (row := writer.get(self._statements.get, key[:2])) is None:
                continue
            try:
                made = self._made(row)
            except NoWayBack as error:
                raise self._refused(row[:2], str(error)) from error
            if made is not None:
                yield row[:2], made

    def _made(self, row: Row) -> Row | None:
        given = (*row[:FIRST], *[None if at is None else row[at] for at in self._to_source])
        made = former_row(self._conversion, self._source.build_one(given))
        return made and (*made[:FIRST], *[None if at is None else made[at] for at in self._from_target])

    def _refused(self, key: Place | None, reason: str) -> InvalidEntity:
        return InvalidEntity(
            f"{self._source.name}{'' if key is None else f' {key}'}",
            [
                f"it cannot be written for the old version, which still reads: back= of {self._migration} "
                f"({', '.join(self._steps)}): {reason}; nothing was written: write another value, or let the old version "
                "end, with tm.migrate(…, contract=True)"
            ],
        )


def _places(source: Model, target: Model) -> list[int | None]:
    """Return where each column of a class is in the rows of another one that has the same properties."""
    places = {field.property: at for at, field in enumerate(source.columns, FIRST)}
    return [places.get(field.property) for field in target.columns]


def sides_of(sqlite: SqliteSchema, model: Model) -> list[Side | MadeSide]:
    """Return the other sides of a class that a write of it owes something to.

    Raises:
        SchemaMismatch: the class is one that can only be read by now.
    """
    return [side for twin in sqlite.twins.get(model, ()) for side in _sides(sqlite, model, twin)]


def made_sides(sqlite: SqliteSchema) -> Iterator[tuple[str, MadeSide]]:
    """Yield the sides that functions of scripts are known for, each with its migration."""
    for model, twins in sqlite.twins.items():
        for twin in twins:
            if twin not in sqlite.guests and twin not in sqlite.unkept.get(model, ()):
                yield from ((twin.migration, one) for one in _sides(sqlite, model, twin) if isinstance(one, MadeSide))


@trusted()
def _sides(sqlite: SqliteSchema, model: Model, twin: Twin) -> list[Side | MadeSide]:
    sides: list[Side | MadeSide] | None = sqlite.sides.get((model, twin.migration))
    if sides is None:
        name, main, former = sqlite.names[model], sqlite.stored, twin.catalogue
        if twin in sqlite.guests:
            if not twin.writes:
                raise SchemaMismatch(
                    model.name,
                    [f"{twin.migration} has changed this class, and this version can only read it; nothing was written: "
                     "deploy the version that declares it as it is now"],
                )  # fmt: skip
            sides = [Side(former, main, link) for link in twin.links if link.old == name]
        else:
            sides = [
                MadeSide(main, twin, link, sqlite.way_back(twin, link))
                if link.steps
                else Side(main, former, link.reverse)
                for link in twin.links
                if link.new == name
            ]
        sqlite.sides[model, twin.migration] = sides
    return sides


def unkept(sqlite: SqliteSchema, written: Iterable[Operation | Batch]) -> list[Twin]:
    """Return the twins that only scripts which are not known here could keep in step with what is written."""
    models = {one.model for one in written if not isinstance(one, Operation) or one.verb != "require"}
    return list(dict.fromkeys([twin for model in models for twin in sqlite.unkept.get(model, ())]))


def _alone(catalogue: Catalogue) -> Catalogue:
    """Return a catalogue without what depends on who looks at it."""
    return attrs.evolve(catalogue, versions={}, twins=())
