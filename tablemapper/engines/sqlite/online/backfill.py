"""Copies with a queue: the entities of old classes are converted to new ones while other programs write.

New entities are written to tables of their own. One invariant holds at each commit. It is about each old key up to the
cursor that is not queued: the new tables hold exactly the entities that the old one is converted to. A batch converts the
queued keys, then the keys after the cursor, and moves the cursor. A writer of an old entity up to the cursor queues its
key in the same transaction, see `write_hooks.BackfillQueueHook`; it need not know the script. The transaction that finds no key queued and
none after the cursor also switches. It renames the tables of the old classes, so that no program reads them unawares,
and the catalogue names the new ones.

The ledger has the new entities of each old key. Where new entities of one key are combined, it also has the old keys
that each new entity is combined from, under an id of its own: see `_parts_id`. A new entity exists as long as it has
such rows. A change of one part combines all parts anew.

The old version can go on by a function of the script. Then the way back must lead from exactly one of the new entities
of an old key to that key. If it does not for some key, that is noted, and the old version stops at the switch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from ....catalogue.migration_states import copy_forms
from ....catalogue.transitions import Conversion, ConversionFault, FormerEntity, Transition
from ....errors import EntityExists, EntityTooLarge, InvalidEntity, UniqueViolation
from ....schema.model import Model, reserved_keys, to_row_of_any_size
from ....schema.rows import Row
from ...protocol import Batch, Operation
from ..driver.snapshots import Snapshot
from ..file.writer import Writer
from ..rows.jobs import ENQUEUE, LEDGER, QUEUE
from ..rows.mirrors import NotInvertible, former_row
from ..rows.writes import apply, insert
from ..sql.catalogue_table import COPIES, mismatch
from ..sql.schema import SqliteSchema

Key = tuple[str, str]
_Get: TypeAlias = Callable[[str, Sequence[Any]], Row | None]
KeyText = tuple[str, str, str]  # a class, and the key of one of its entities
_ReservedTest: TypeAlias = Callable[[str, str], str | None]
_decode_keys = msgspec.json.Decoder(list[KeyText]).decode
_CURSOR = f"SELECT pk, rk FROM {COPIES} WHERE id = ?"
_MOVE = f"UPDATE {COPIES} SET pk = ?, rk = ?, done = done + ? WHERE id = ?"
_QUEUED = f"SELECT pk, rk FROM {QUEUE} WHERE id = ? ORDER BY pk, rk LIMIT ?"
_QUEUED_AFTER = f"SELECT pk, rk FROM {QUEUE} WHERE id = ? AND (pk, rk) > (?, ?) ORDER BY pk, rk LIMIT ?"
_UNQUEUE = f"DELETE FROM {QUEUE} WHERE id = ? AND pk = ? AND rk = ?"
_NEW_KEYS = f"SELECT made FROM {LEDGER} WHERE id = ? AND pk = ? AND rk = ?"
_NOTE = f"REPLACE INTO {LEDGER} VALUES(?, ?, ?, ?)"
_PARTS = f"SELECT pk, rk FROM {LEDGER} WHERE id = ? ORDER BY pk, rk"
_LAST_PART = f"SELECT pk, rk FROM {LEDGER} WHERE id = ? ORDER BY pk DESC, rk DESC LIMIT 1"
_FORGET = f"DELETE FROM {LEDGER} WHERE id = ? AND pk = ? AND rk = ?"
_ONE_WAY = f"UPDATE {COPIES} SET state = 'one way' WHERE id = ?"
_IS_ONE_WAY = f"SELECT 1 FROM {COPIES} WHERE state = 'one way'"
_ORIGIN = f"SELECT pk, rk FROM {LEDGER} WHERE instr(made, ?) LIMIT 1"
OF = "\n"  # between the id of a copy and a new entity, in an id of the ledger
_EXPLAINED = 20  # faults for which the other entity with the key is looked up
_REFUSALS = (EntityExists, UniqueViolation, InvalidEntity, EntityTooLarge)


def is_one_way(writer: Writer) -> bool:
    """Return whether the way back does not lead to some old entity."""
    return writer.get(_IS_ONE_WAY, ()) is not None


class _Refused(Exception):
    """An entity cannot be converted, and why."""


class ConvertedEntity(NamedTuple):
    """A new entity with its row."""

    entity: Any
    model: Model
    row: Row


class _Faults(dict[tuple[str, Key], ConversionFault]):
    """The entities that could not be converted, by the copy and the key."""

    def __init__(self) -> None:
        super().__init__()
        self._explained: set[Key] = set()  # keys for whose faults the other entity was looked up

    def reason(self, writer: Writer, key: Key, error: Exception) -> str:
        """Return why an entity could not be written."""
        if not isinstance(error, EntityExists) or error.key is None:
            return str(error)
        origin = None
        if key in self._explained or len(self._explained) < _EXPLAINED:
            self._explained.add(key)
            place = msgspec.json.encode([error.entity, *error.key]).decode()
            origin = writer.get(_ORIGIN, (place,))
        rival = "another entity" if origin is None else origin
        return f"it becomes {error.entity} {error.key}, and so does {rival}"


class _Copy:
    """The copy of one conversion.

    Attributes:
        successes: how many keys were converted since the queue was last read from its start.
    """

    def __init__(self, id: str, conversion: Conversion, reserved: Mapping[Any, _ReservedTest], faults: _Faults) -> None:
        self._id = id
        self._conversion = conversion
        self._reserved = reserved
        self._faults = faults
        self._queue_place: Key | None = None  # the last key read, as keys with faults stay in the queue
        self.successes = 0

    def use(self, source: SqliteSchema, target: SqliteSchema, former_schema: SqliteSchema) -> None:
        """Go on by another state of the catalogue, see `Backfill.use`."""
        self._source = source
        self._target = target
        self._former_schema = former_schema

    # ------------------------------------------------------------------------------------------ the queue

    def is_queued(self, writer: Writer) -> bool:
        """Return whether a key is queued."""
        return writer.get(_QUEUED, (self._id, 1)) is not None

    def rewind(self) -> None:
        """Read the queue from its start again."""
        self._queue_place = None
        self.successes = 0

    def copy_queued(self, writer: Writer, most: int) -> int:
        """Convert the next queued keys; return how many."""
        place = self._queue_place
        sql, args = (_QUEUED, (self._id, most)) if place is None else (_QUEUED_AFTER, (self._id, *place, most))
        keys: list[Any] = writer.execute(sql, args).fetchall()
        for key in keys:
            self._copy_key(writer, key, self._read(writer, key))
        if keys:
            self._queue_place = keys[-1]
        return len(keys)

    def _read(self, writer: Writer, key: Key) -> list[Any]:
        """Return the old entities of a key: one of each source, or None."""
        rows = [(model, writer.get(self._source.statements[model].get, key)) for model in self._conversion.sources]
        return [None if row is None else model.build_one(row) for model, row in rows]

    def _copy_key(self, writer: Writer, key: Key, entities: Sequence[Any]) -> None:
        """Convert the old entities of one key, and replace its new ones; queue the key if that is impossible."""
        (text,) = writer.get(_NEW_KEYS, (self._id, *key)) or ("[]",)
        places = _decode_keys(text)
        try:
            new = self._convert(writer.get, entities)
            try:
                with _undone_if_refused(writer):
                    self._replace(writer, key, places, new)
            except _REFUSALS as error:
                raise _Refused(self._faults.reason(writer, key, error)) from error
        except _Refused as refusal:
            # Its new entities so far are deleted: another old entity may need their keys.
            self._delete(writer, key, places)
            writer.execute(_NOTE, (self._id, *key, "[]"))
            writer.execute(ENQUEUE, (self._id, *key))
            sources = " and ".join(model.name for model in self._conversion.sources)
            self._faults[self._id, key] = ConversionFault(sources, key, str(refusal))
            return
        self._try_back(writer, {key: new})
        writer.execute(_NOTE, (self._id, *key, _text(new)))
        writer.execute(_UNQUEUE, (self._id, *key))
        self._faults.pop((self._id, key), None)
        self.successes += 1

    # ------------------------------------------------------------------------------------------ after the cursor

    def copy_next(self, writer: Writer, most: int) -> int:
        """Convert the next entities after the cursor; return how many keys they have."""
        cursor = writer.get(_CURSOR, (self._id,))
        if cursor is None:
            raise mismatch("copy", self._id)
        entities_by_key = self._read_next(writer, cursor, most)
        if not entities_by_key:
            return 0
        for key in self._copy_together(writer, entities_by_key):
            self._copy_key(writer, key, entities_by_key[key])
        writer.execute(_MOVE, (*list(entities_by_key)[-1], len(entities_by_key), self._id))
        return len(entities_by_key)

    def _read_next(self, writer: Writer, cursor: tuple[Any, ...], most: int) -> dict[Key, list[Any]]:
        """Return the entities after a cursor, by key: one of each source, or None."""
        sources = self._conversion.sources
        entities_by_key: dict[Any, list[Any]] = {}
        for at, model in enumerate(sources):
            statements = self._source.statements[model]
            start_key = () if cursor[0] is None else cursor
            sql = statements.scan_after if start_key else statements.scan
            rows = writer.execute(f"{sql} LIMIT ?", (*start_key, most)).fetchall()
            for row, entity in zip(rows, model.build(rows), strict=True):
                entities_by_key.setdefault(row[:2], [None] * len(sources))[at] = entity
        if len(sources) == 1:
            return entities_by_key
        return {
            key: entities_by_key[key] for key in sorted(entities_by_key)[:most]
        }  # (each source was read at least up to these keys)

    def _copy_together(self, writer: Writer, entities_by_key: Mapping[Key, Sequence[Any]]) -> list[Key]:
        """Convert entities, and write the new ones in one go; return the keys for which that is impossible."""
        new: dict[Key, list[ConvertedEntity]] = {}
        refused_keys: list[Key] = []
        for key, entities in entities_by_key.items():
            try:
                new[key] = self._convert(writer.get, entities)
            except _Refused:
                refused_keys.append(key)
        try:
            with _undone_if_refused(writer):
                self._add(writer, new)
        except (*_REFUSALS, _Refused):  # the caller tries them one by one, to find the one that is refused
            return list(entities_by_key)
        if notes := [(self._id, *key, _text(entities)) for key, entities in new.items()]:
            self._try_back(writer, new)
            writer.executemany(_NOTE, notes)
        self.successes += len(new)
        return refused_keys

    # ------------------------------------------------------------------------------------------ new entities

    def _add(self, writer: Writer, new: Mapping[Key, Iterable[ConvertedEntity]]) -> None:
        """Write the new entities of old keys that had none so far."""
        batches: dict[Model, Batch] = {}
        for converted in chain.from_iterable(new.values()):
            batches.setdefault(converted.model, Batch(converted.model)).rows.append(converted.row)
        insert(self._target, writer, batches.values())

    def _replace(self, writer: Writer, _key: Key, places: list[KeyText], new: list[ConvertedEntity]) -> None:
        """Replace the new entities of an old key so far, which are at ``places``."""
        new_places = {_place(converted) for converted in new}
        if len(new_places) < len(new):
            raise _Refused("two of the entities that it becomes have one key")
        operations = [self._deletion(place) for place in places if place not in new_places]
        operations += [_writing(converted, exists=_place(converted) in places) for converted in new]
        if operations:
            apply(self._target, writer, operations)

    def _delete(self, writer: Writer, _key: Key, places: list[KeyText]) -> None:
        """Delete the new entities of an old key."""
        if places:
            apply(self._target, writer, [self._deletion(place) for place in places])

    def _deletion(self, place: KeyText) -> Operation:
        return Operation("delete", self._target.schema.by_name[place[0]], *place[1:])

    def _try_back(self, writer: Writer, new: Mapping[Key, Sequence[ConvertedEntity]]) -> None:
        """Note it if the way back does not lead to each old key from exactly one of its new entities."""
        way_back = self._conversion.back
        if way_back is None or is_one_way(writer):
            return
        for key, entities in new.items():
            try:
                rows = [former_row(way_back, converted.model.build_one(converted.row)) for converted in entities]
            except NotInvertible:
                rows = []
            if [row[:2] for row in rows if row is not None] != [key]:
                writer.execute(_ONE_WAY, (self._id,))
                return

    # ------------------------------------------------------------------------------------------ one entity

    def _convert(self, get: _Get, entities: Sequence[Any]) -> list[ConvertedEntity]:
        """Return the new entities for the old entities of one key."""
        if all(entity is None for entity in entities):
            return []
        if self._conversion.former is not None:
            entities = [*entities, self._former_entity(get, self._conversion.former, entities[0])]
        try:
            new = list(self._conversion.convert(entities))
        except Exception as error:  # whatever the function of a script raises
            raise _Refused(_error_text(error)) from error
        return [self._new(entity) for entity in new]

    def _new(self, entity: Any) -> ConvertedEntity:
        """Return a new entity with its row; raise _Refused if the script may not give it."""
        model = self._target.schema.by_class.get(type(entity))
        if model is None or model not in self._conversion.targets:
            expected = " or ".join(target.name for target in self._conversion.targets)
            raise _Refused(f"the function gave {type(entity).__name__}, but the script's new {expected} is expected")
        try:
            row = to_row_of_any_size(model)(entity)
        except (InvalidEntity, EntityTooLarge) as error:
            raise _Refused(str(error)) from error
        reserved = self._reserved.get(model.cls)
        if reserved is not None and (other_class := reserved(row[0], row[1])) is not None:
            raise _Refused(f"it becomes {model.name} {row[:2]}, which is a key of {other_class}")
        return ConvertedEntity(entity, model, row)

    def _former_entity(self, get: _Get, lookup: FormerEntity, entity: Any) -> Any:
        """Return the entity that there was before the migration that is undone; None if there was none."""
        (model,) = self._conversion.targets
        statements = self._former_schema.statements.get(model)  # (none: the migration found no entities)
        try:
            key = lookup.key(entity)
        except Exception as error:  # whatever the function of a script raises
            raise _Refused(_error_text(error)) from error
        row = statements and get(statements.get, key)
        if not row and (missing_fields := lookup.missing(entity)):
            raise _Refused(
                f"it came after the migration, so it has no value of {' and '.join(missing_fields)}: delete it, or do not go back, "
                "but give the class that field again by another script, with m.fill"
            )
        return model.build_one(row) if row else None

    def irreversible(self, snapshot: Snapshot) -> Iterator[ConversionFault]:
        """Yield the entities that cannot become again what they were before a migration that is undone."""
        lookup = self._conversion.former
        if lookup is None or not lookup.fields:
            return
        (model,) = self._conversion.sources
        for row in chain.from_iterable(snapshot.stream(self._source.statements[model].scan)):
            try:
                self._former_entity(snapshot.get, lookup, model.build_one(row))
            except _Refused as refusal:
                yield ConversionFault(model.name, row[:2], str(refusal))


class _CombinedCopy(_Copy):
    """The copy of a conversion that combines new entities of one key."""

    def _add(self, writer: Writer, new: Mapping[Key, Iterable[ConvertedEntity]]) -> None:
        """Combine new entities with the results so far: all parts of these have lesser keys."""
        parts: dict[KeyText, list[tuple[Key, Any]]] = {}
        for key, entities in new.items():
            for part in entities:
                parts.setdefault(_place(part), []).append((key, part.entity))
        operations: list[Operation] = []
        notes: list[tuple[str, ...]] = []
        for place, own_parts in parts.items():
            id = _parts_id(self._id, place)
            so_far = [] if writer.get(_LAST_PART, (id,)) is None else [self._stored_entity(writer, place)]
            combined = self._combined(place, [*so_far, *[entity for _, entity in own_parts]])
            operations.append(_writing(combined, exists=bool(so_far)))
            notes += [(id, *key, "") for key, _ in own_parts]
        if operations:
            apply(self._target, writer, operations)
            writer.executemany(_NOTE, notes)

    def _replace(self, writer: Writer, key: Key, places: list[KeyText], new: list[ConvertedEntity]) -> None:
        """Combine anew each new entity of which an old key was a part, or is one now."""
        for place in dict.fromkeys([*places, *map(_place, new)]):
            own_parts = [converted for converted in new if _place(converted) == place]
            last_key = writer.get(_LAST_PART, (_parts_id(self._id, place),))
            if place in places or (last_key is not None and last_key >= key):
                self._combine_anew(writer, key, place, own_parts)
            else:
                self._add(writer, {key: own_parts})

    def _combine_anew(self, writer: Writer, key: Key, place: KeyText, own_parts: list[ConvertedEntity]) -> None:
        """Combine all parts of a new entity: those of other old keys, and those of one key, which are given."""
        id = _parts_id(self._id, place)
        old_keys: list[Any] = writer.execute(_PARTS, (id,)).fetchall()
        # (Another old entity may have changed, too, and be no part any more: its key is queued.)
        parts = {
            old_key: own_parts if old_key == key else self._parts(writer, old_key, place)
            for old_key in sorted({*old_keys, key})
        }
        if entities := [part.entity for key_parts in parts.values() for part in key_parts]:
            apply(self._target, writer, [_writing(self._combined(place, entities), exists=bool(old_keys))])
        elif old_keys:
            apply(self._target, writer, [self._deletion(place)])
        writer.executemany(_FORGET, [(id, *old_key) for old_key in old_keys if not parts[old_key]])
        if own_parts and key not in old_keys:
            writer.execute(_NOTE, (id, *key, ""))

    def _parts(self, writer: Writer, key: Key, place: KeyText) -> list[ConvertedEntity]:
        """Return the parts of a new entity that come from an old key."""
        return [part for part in self._convert(writer.get, self._read(writer, key)) if _place(part) == place]

    def _delete(self, writer: Writer, key: Key, places: list[KeyText]) -> None:
        """Remove the part of an old key from its new entities."""
        try:
            with _undone_if_refused(writer):
                self._replace(writer, key, places, [])
        except (*_REFUSALS, _Refused):  # the other parts cannot be combined without it: queue each of them
            for place in places:
                id = _parts_id(self._id, place)
                if parts := writer.execute(_PARTS, (id,)).fetchall():
                    apply(self._target, writer, [self._deletion(place)])
                for part in parts:
                    writer.execute(_FORGET, (id, *part))
                    writer.execute(ENQUEUE, (self._id, *part))

    def _stored_entity(self, writer: Writer, place: KeyText) -> Any:
        """Return a new entity as it is stored so far."""
        model = self._target.schema.by_name[place[0]]
        row = writer.get(self._target.statements[model].get, place[1:])
        assert row is not None
        return model.build_one(row)

    def _combined(self, place: KeyText, entities: list[Any]) -> ConvertedEntity:
        """Return the one entity that several with one key are combined to."""
        combine = self._conversion.combine
        assert combine is not None
        try:
            combined = reduce(combine, entities)
        except Exception as error:  # whatever the function of a script raises
            raise _Refused(f"combine=: {_error_text(error)}") from error
        new = self._new(combined)
        if _place(new) != place:
            raise _Refused(f"combine= gave {new.model.name} {new.row[:2]}, but {place[0]} {place[1:]} is expected")
        return new


class Backfill:
    """One migration over one file, in batches.

    Attributes:
        faults: the entities that could not be converted, by the copy and the key.
        ended: whether the last batch came to the end of all entities, and of the queue.
        passed: whether the last batch found no entity after the cursors.
        stuck: whether only entities are left that cannot be converted.
    """

    def __init__(self, transition: Transition) -> None:
        self.faults: Final = _Faults()
        self.at_end: bool = False
        self.stuck: bool = False
        self.past_cursors: bool = False
        reserved = {
            cls: test for models in transition.new.tables().values() for cls, test in reserved_keys(models).items()
        }
        self._copies = [
            (_Copy if conversion.combine is None else _CombinedCopy)(form.id, conversion, reserved, self.faults)
            for form, conversion in zip(copy_forms(transition), transition.conversions, strict=True)
        ]

    def use(self, source: SqliteSchema, target: SqliteSchema, former_schema: SqliteSchema) -> None:
        """Go on by another state of the catalogue.

        Args:
            source: the old classes, which are read.
            target: the new classes, which are written.
            former_schema: the new classes as they were before the migration that is undone; empty otherwise.
        """
        for copy in self._copies:
            copy.use(source, target, former_schema)

    def batch(self, writer: Writer, most: int) -> int:
        """Convert the next entities, at most ``most``; return how many were read."""
        read_count = 0
        self.at_end = self.stuck = False
        self.past_cursors = True
        for copy in self._copies:
            if read_count < most:
                read_count += copy.copy_queued(writer, most - read_count)
            if read_count < most:
                fresh = copy.copy_next(writer, most - read_count)
                self.past_cursors = self.past_cursors and not fresh
                read_count += fresh
        if read_count < most:
            is_any_queued = any(copy.is_queued(writer) for copy in self._copies)
            self.at_end, self.stuck = (
                not is_any_queued,
                is_any_queued and not any(copy.successes for copy in self._copies),
            )
            for copy in self._copies:
                copy.rewind()
        return read_count

    def irreversible(self, snapshot: Snapshot) -> list[ConversionFault]:
        """Return the entities that cannot become again what they were before a migration that is undone."""
        return [fault for copy in self._copies for fault in copy.irreversible(snapshot)]


@contextmanager
def _undone_if_refused(writer: Writer) -> Iterator[None]:
    """Roll back the writes of a block if one is refused. (An error of the disk ends the whole transaction.)"""
    writer.execute("SAVEPOINT block")
    try:
        yield
    except (*_REFUSALS, _Refused):
        writer.execute("ROLLBACK TO block")
        writer.execute("RELEASE block")
        raise
    writer.execute("RELEASE block")


def _writing(new: ConvertedEntity, *, exists: bool) -> Operation:
    verb: Any = "upsert" if exists else "insert"
    return Operation(verb, new.model, new.row[0], new.row[1], new=new.row)


def _place(new: ConvertedEntity) -> KeyText:
    return (new.model.name, new.row[0], new.row[1])


def _parts_id(copy: str, place: KeyText) -> str:
    """Return the id under which the ledger has the old keys that a new entity is combined from."""
    return f"{copy}{OF}{msgspec.json.encode(place).decode()}"


def _text(new: Iterable[ConvertedEntity]) -> str:
    return msgspec.json.encode([_place(converted) for converted in new]).decode()


def _error_text(error: Exception) -> str:
    text = str(error)
    fault = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return ": ".join([*getattr(error, "__notes__", ())[-1:], fault])  # (the field that the function is for)
