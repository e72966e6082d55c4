"""Twins: the old classes of a migration go on in tables of their own, which are kept in step with the new classes.

A *twin* has a catalogue of its own, and links between its classes and those of the file: which property corresponds to
which, and which value to which. So no process needs the code of the other version. A program with the old classes uses
the tables of the twin in place of those of the file, see `property_names.catalogue_view`, with their keys, indexes and aggregates. A
transaction that writes an entity on one side also writes it on the other side, with the indexes and aggregates there.

One invariant holds at each commit: each entity of one side is the translation of the corresponding entity of the other
side. A write translates the entity as it is after the change. So the order of writes does not matter, and properties
that only one side has keep their values. If a link leads only from the classes of the file to the twin, the old classes
can be read, and their writes are refused.

Some links need functions that only a script has: see `FunctionMirror`. A process that opened the store without the script
cannot keep such a twin in step; it ends the twin before it writes, so that no program reads outdated entities.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs
from msgspec.structs import replace

from ....catalogue.catalogue import Catalogue, Mirror
from ....catalogue.property_names import catalogue_view
from ....catalogue.transitions import Conversion
from ....errors import EntityExists, EntityNotFound, InvalidEntity, SchemaMismatch, UniqueViolation
from ....evolution.spec_compiler import entity_model
from ....evolution.translation import Translation
from ....evolution.versions import Versions, names_class, steps_of
from ....schema.model import Model, Schema, to_row_of_any_size
from ....schema.rows import FIRST, Row, same_rows
from ....schema.specs import LinkSpec
from ...check import ProblemKind
from ...protocol import Batch, Operation
from ..file.writer import Writer
from ..sql.catalogue_table import as_corruption
from ..sql.schema import SqliteSchema

Place: TypeAlias = tuple[str, str]  # the key of an entity on the other side: of a counterpart
Apply: TypeAlias = Callable[[SqliteSchema, Writer, Sequence[Operation]], None]
_NO_MOVES: Mapping[Place, Place] = MappingProxyType({})
_REFUSALS = (EntityExists, EntityNotFound, InvalidEntity, SchemaMismatch, UniqueViolation)


class LinkMirror:
    """The link from one class to its counterpart on the other side of a twin, followed by each write.

    Args:
        here: the catalogue of the side that is written.
        there: the catalogue of the other side.
        link: from the class to its counterpart.
    """

    def __init__(self, source_catalogue: Catalogue, target_catalogue: Catalogue, link: LinkSpec) -> None:
        source, target = source_catalogue.models[link.old], target_catalogue.models[link.new]
        try:
            model, counterpart = entity_model(link.old, source), entity_model(link.new, target)
        except (TypeError, ValueError, LookupError) as error:
            raise SchemaMismatch(
                link.old, [f"{error}; so an older version has to end before it can be written; nothing was written"]
            ) from error
        self._statements = SqliteSchema(Schema((model,)), _without_versions(source_catalogue)).statements[model]
        self._model = counterpart
        self._translation = Translation(model, counterpart, target, link)
        self.sqlite: SqliteSchema = _counterpart_schema(counterpart, target_catalogue)
        """The tables of the other side."""

    def places(self, _writer: Writer, _keys: Iterable[Sequence[Any]]) -> Collection[Place]:
        """Return the keys of the counterparts before a write; none are needed here, as one key tells the other."""
        return ()

    def write(
        self,
        writer: Writer,
        keys: Iterable[Sequence[Any]],
        _before: Collection[Place],
        apply: Apply,
        moves: Mapping[Place, Place] = _NO_MOVES,
        replaced_keys: Collection[Place] = (),
    ) -> None:
        """Write the counterparts of the entities that have some keys now.

        Args:
            moves: new keys of entities, each with the former one: properties that only the other side has move, too.
            replaced_keys: keys of entities that replace what had ended: nothing of this goes over on the other side either.
        """
        if operations := list(self._operations(writer, keys, moves, replaced_keys)):
            apply(self.sqlite, writer, operations)

    def _operations(
        self,
        writer: Writer,
        keys: Iterable[Sequence[Any]],
        moves: Mapping[Place, Place],
        replaced_keys: Collection[Place],
    ) -> Iterator[Operation]:
        get = self.sqlite.statements[self._model].get
        for key in keys:
            row = writer.get(self._statements.get, key[:2])
            place = self._translation.key(key[0], key[1])
            if row is not None:
                former_key = moves.get((key[0], key[1]))
                former_counterpart = None if former_key is None else writer.get(get, self._translation.key(*former_key))
                is_replaced = (key[0], key[1]) in replaced_keys
                change = partial(self._translated, row, former_counterpart, is_new=is_replaced)
                yield Operation("upsert", self._model, *place, change=change)
            elif writer.get(get, place) is not None:
                yield Operation("delete", self._model, *place)

    def _translated(self, row: Row, former_counterpart: Row | None, counterpart: Row | None, *, is_new: bool) -> Row:
        """Return the counterpart of a row.

        Args:
            former_counterpart: the counterpart under its former key, if the entity was moved.
            is_new: whether the counterpart that is there has nothing to do with the entity.
        """
        source = counterpart if former_counterpart is None else former_counterpart
        return self._translation.row(row, None if is_new else source)


class NotInvertible(Exception):
    """A script's functions do not convert a new entity back, and why."""


def former_row(conversion: Conversion, entity: Any) -> Row | None:
    """Return the row of the old entity that a script's functions convert a new entity to; None if they give none.

    Raises:
        NoWayBack: a function raises, or gives something else.
    """
    (target,) = conversion.targets
    try:
        old = list(conversion.convert([entity]))
    except Exception as error:  # whatever the function of a script raises
        raise NotInvertible(f"{type(error).__name__}: {error}") from error
    if not old:
        return None
    if len(old) > 1 or type(old[0]) is not target.cls:
        type_names = " and ".join(type(old_entity).__name__ for old_entity in old)
        raise NotInvertible(f"the function gave {type_names}, but one old {target.name} of the script is expected")
    try:
        return to_row_of_any_size(target)(old[0])
    except InvalidEntity as error:
        raise NotInvertible(str(error)) from error


class FunctionMirror:
    """The link from a new class to the old one by the functions of a script, followed by each write.

    The key of an entity does not tell the key of its counterpart, so a write reads that before it changes the entity.
    Each old entity is the counterpart of exactly one new entity. It was so at the switch, and a write that would change
    it is refused.
    """

    def __init__(self, catalogue: Catalogue, twin: Mirror, link: LinkSpec, conversion: Conversion) -> None:
        (self._source,), (self._target,) = conversion.sources, conversion.targets
        self._conversion, self._migration, self._steps = conversion, twin.migration, link.steps
        self.name: str = link.old
        # (Properties of the script's class may have other names by now, as a version in the catalogue says.)
        catalogue, _ = catalogue_view(attrs.evolve(catalogue, twins=()), Schema((self._source,)))
        known_fields = {
            name: form for name, form in catalogue.models[link.new].fields.items() if name in self._source.form.fields
        }
        model = entity_model(link.new, replace(catalogue.models[link.new], fields=known_fields))
        self._model = entity_model(link.old, twin.catalogue.models[link.old])
        self._statements = SqliteSchema(Schema((model,)), _without_versions(catalogue)).statements[model]
        self.sqlite: SqliteSchema = _counterpart_schema(self._model, twin.catalogue)
        """The tables of the other side."""
        # (The catalogue's forms have no maintained fields, and the functions of a script cannot depend on them.)
        self._to_source = _places(model, self._source)
        self._from_target = _places(self._target, self._model)

    def places(self, writer: Writer, keys: Iterable[Sequence[Any]]) -> Collection[Place]:
        """Return the keys of the counterparts that the entities with some keys have."""
        return {row[:2] for _, row in self._counterparts(writer, keys)}

    def write(
        self,
        writer: Writer,
        keys: Iterable[Sequence[Any]],
        before: Collection[Place],
        apply: Apply,
        _moves: Mapping[Place, Place] = _NO_MOVES,
        _replaced_keys: Collection[Place] = (),
    ) -> None:
        """Write the counterparts of the entities that have some keys now.

        Args:
            before: the result of `places` before that.

        Raises:
            InvalidEntity: an entity has no counterpart that can be written.
        """
        origins: dict[Place, Any] = {}
        operations: list[Operation] = []
        for key, row in self._counterparts(writer, keys):
            place = row[:2]
            if place in origins:
                raise self._refusal(key, f"it becomes {self._target.name} {place}, and so does {origins[place]}")
            origins[place] = key
            verb: Any = "upsert" if place in before else "insert"
            operations.append(Operation(verb, self._model, row[0], row[1], new=row))
        operations += [Operation("delete", self._model, *place) for place in sorted(before) if place not in origins]
        if not operations:
            return
        try:
            apply(self.sqlite, writer, operations)
        except _REFUSALS as error:
            taken_key: Any = getattr(error, "key", None)
            reason = str(error)
            if isinstance(error, EntityExists):
                reason = f"it becomes {self._target.name} {taken_key}, and so does another entity"
            raise self._refusal(origins.get(taken_key, next(iter(origins.values()), None)), reason) from error

    def differences(
        self, query: Callable[..., Iterator[Row]], switched: int
    ) -> Iterator[tuple[ProblemKind, Place, str]]:
        """Yield how the other side differs from the counterparts of this one: the kind of problem, the key, the detail.

        Args:
            switched: when the migration switched; counterparts that were not written since are those of the old
                version.
        """
        count, statements = 0, self.sqlite.statements[self._model]
        for row in query(self._statements.scan):
            try:
                counterpart = self._counterpart(row)
            except NotInvertible as error:
                yield "wrong", row[:2], f"nothing can be made of it: {error}"
                continue
            if counterpart is None:
                continue
            key = counterpart[:2]
            stored_row = next(query(statements.get, key), None)
            count += stored_row is not None
            if stored_row is None:
                yield "missing", key, f"it is what {self._source.name} {row[:2]} was"
            elif row[2] > switched and not same_rows(stored_row[FIRST : len(counterpart)], counterpart[FIRST:]):
                yield "wrong", key, f"it is not what {self._source.name} {row[:2]} was"
        stored_count = sum(1 for _ in query(statements.scan))
        if stored_count > count:
            yield (
                "dangling",
                ("", ""),
                f"{stored_count - count} of {stored_count} entities are what nothing is any more",
            )

    def _counterparts(self, writer: Writer, keys: Iterable[Sequence[Any]]) -> Iterator[tuple[Place, Row]]:
        """Yield the keys that have an entity with a counterpart, each with the row of that."""
        for key in keys:
            if (row := writer.get(self._statements.get, key[:2])) is None:
                continue
            try:
                counterpart = self._counterpart(row)
            except NotInvertible as error:
                raise self._refusal(row[:2], str(error)) from error
            if counterpart is not None:
                yield row[:2], counterpart

    def _counterpart(self, row: Row) -> Row | None:
        """Return the row of the old entity for the row of a new one; None if the script gives none."""
        source_row = (*row[:FIRST], *[None if at is None else row[at] for at in self._to_source])
        old = former_row(self._conversion, self._source.build_one(source_row))
        return old and (*old[:FIRST], *[None if at is None else old[at] for at in self._from_target])

    def _refusal(self, key: Place | None, reason: str) -> InvalidEntity:
        return InvalidEntity(
            f"{self._source.name}{'' if key is None else f' {key}'}",
            [
                f"it cannot be written for the old version, which still reads: back= of {self._migration} "
                f"({', '.join(self._steps)}): {reason}; nothing was written: write another value, or let the old version "
                "end, with tm.migrate(…, contract=True)"
            ],
        )


def _places(source: Model, target: Model) -> list[int | None]:
    """Return the position of each column of the target in the rows of the source; None if the source lacks it."""
    places = {field.property: at for at, field in enumerate(source.columns, FIRST)}
    return [places.get(field.property) for field in target.columns]


def sides_of(sqlite: SqliteSchema, model: Model) -> list[LinkMirror | FunctionMirror]:
    """Return the links that a write of a class must follow.

    Raises:
        SchemaMismatch: the class can only be read by now.
    """
    return [side for twin in sqlite.twins.get(model, ()) for side in _sides(sqlite, model, twin)]


def script_sides(sqlite: SqliteSchema) -> Iterator[tuple[str, FunctionMirror]]:
    """Yield the links by functions of scripts that this process knows, each with its migration."""
    for model, twins in sqlite.twins.items():
        for twin in twins:
            if twin not in sqlite.guests and twin not in sqlite.stale_twins.get(model, ()):
                sides = _sides(sqlite, model, twin)
                yield from ((twin.migration, side) for side in sides if isinstance(side, FunctionMirror))


@as_corruption()
def _sides(sqlite: SqliteSchema, model: Model, twin: Mirror) -> list[LinkMirror | FunctionMirror]:
    sides: list[LinkMirror | FunctionMirror] | None = sqlite.sides.get((model, twin.migration))
    if sides is None:
        name, main, old_catalogue = sqlite.names[model], sqlite.stored, twin.catalogue
        if twin in sqlite.guests:
            if not twin.writes:
                raise SchemaMismatch(
                    model.name,
                    [f"{twin.migration} has changed {_change_text(twin, name, main)}, and this version can only read it: "
                     f"{steps_of(twin.migration, name, main.history)}; nothing was written: deploy the version that declares it as it "
                     "is now"],
                )  # fmt: skip
            sides = [LinkMirror(old_catalogue, main, link) for link in twin.links if link.old == name]
        else:
            sides = [
                FunctionMirror(main, twin, link, sqlite.way_back(twin, link))
                if link.steps
                else LinkMirror(main, old_catalogue, link.reverse)
                for link in twin.links
                if link.new == name
            ]
        sqlite.sides[model, twin.migration] = sides
    return sides


def _change_text(twin: Mirror, name: str, catalogue: Catalogue) -> str:
    """Return in words what a migration has changed that ends the writes of a class."""
    if names_class(twin.migration, name, catalogue.history):
        return "this class"
    models = twin.catalogue.models
    shares = [
        class_name for class_name in models if class_name != name and models[class_name].table == models[name].table
    ]
    named_classes = [class_name for class_name in shares if names_class(twin.migration, class_name, catalogue.history)]
    return (
        f"{' and '.join(named_classes)}, which this class shares a table with"
        if named_classes
        else "what belongs to this class"
    )


def stale_twins(sqlite: SqliteSchema, writes: Iterable[Operation | Batch]) -> list[Mirror]:
    """Return the twins that a write leaves behind, as this process does not know the scripts that they need."""
    models = {write.model for write in writes if not isinstance(write, Operation) or write.verb != "require"}
    return list(dict.fromkeys([twin for model in models for twin in sqlite.stale_twins.get(model, ())]))


def _counterpart_schema(model: Model, catalogue: Catalogue) -> SqliteSchema:
    """Return the tables of the other side, which a class that is compiled from its form writes."""
    sqlite = SqliteSchema(Schema((model,)), _without_versions(catalogue))
    # (Nested values are written as they are stored, so they lose no members.)
    sqlite.extended = {model: attrs.evolve(extended, narrow={}) for model, extended in sqlite.extended.items()}
    return sqlite


def _without_versions(catalogue: Catalogue) -> Catalogue:
    """Return a catalogue without versions and twins: every program sees it alike."""
    return attrs.evolve(catalogue, versions=Versions(), twins=())
