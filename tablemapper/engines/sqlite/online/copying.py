"""Copies with a queue: the entities of old classes are converted to new ones while other programs write.

New entities are written to tables of their own. One invariant holds at each commit: for each old key up to the cursor that is
not queued, the new tables hold exactly the entities that the old one is converted to. A batch converts the queued keys, then the
keys after the cursor, and moves the cursor. A writer of an old entity up to the cursor queues its key in the same transaction,
see `jobs.queue`; it need not know the script. The transaction that finds no key queued and none after the cursor also switches:
it renames the tables of the old classes, so that no program reads them unawares, and the catalogue names the new ones.

The ledger has the new entities of each old key. Where new entities of one key are combined, it also has the old keys that each
new entity is combined from, under an id of its own: see `_parts_id`. A new entity exists as long as it has such rows. A change of
one part combines all parts anew.

Where the old version goes on by a function of the script, the way back must lead from exactly one of the new entities of an old
key to that key. If it does not for some key, that is noted, and the old version stops at the switch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ....errors import EntityExists, EntityTooLarge, InvalidEntity, UniqueViolation
from ....schema.model import Model, reserved_keys
from ....schema.rows import Row
from ...migration import Conversion, Fault, Former, Transition
from ...protocol import Batch, Operation
from ..driver.snapshots import Snapshot
from ..file.writer import Writer
from ..rows.jobs import ENQUEUE, LEDGER, QUEUE
from ..rows.twins import NoWayBack, former_row
from ..rows.writes import apply, insert
from ..sql.catalogue import COPIES, CopyForm, changed
from ..sql.schema import SqliteSchema

__all__ = ["OF", "Copying", "copy_forms", "is_one_way"]

Key = tuple[str, str]
_Get: TypeAlias = Callable[[str, Sequence[Any]], Row | None]
Place = tuple[str, str, str]  # a class, and the key of one of its entities
_CURSOR = f"SELECT pk, rk FROM {COPIES} WHERE id = ?"
_MOVE = f"UPDATE {COPIES} SET pk = ?, rk = ?, done = done + ? WHERE id = ?"
_QUEUED = f"SELECT pk, rk FROM {QUEUE} WHERE id = ? ORDER BY pk, rk LIMIT ?"
_QUEUED_AFTER = f"SELECT pk, rk FROM {QUEUE} WHERE id = ? AND (pk, rk) > (?, ?) ORDER BY pk, rk LIMIT ?"
_UNQUEUE = f"DELETE FROM {QUEUE} WHERE id = ? AND pk = ? AND rk = ?"
_MADE = f"SELECT made FROM {LEDGER} WHERE id = ? AND pk = ? AND rk = ?"
_NOTE = f"REPLACE INTO {LEDGER} VALUES(?, ?, ?, ?)"
_PARTS = f"SELECT pk, rk FROM {LEDGER} WHERE id = ? ORDER BY pk, rk"
_LAST_PART = f"SELECT pk, rk FROM {LEDGER} WHERE id = ? ORDER BY pk DESC, rk DESC LIMIT 1"
_FORGET = f"DELETE FROM {LEDGER} WHERE id = ? AND pk = ? AND rk = ?"
_ONE_WAY = f"UPDATE {COPIES} SET state = 'one way' WHERE id = ?"
_IS_ONE_WAY = f"SELECT 1 FROM {COPIES} WHERE state = 'one way'"
_ORIGIN = f"SELECT pk, rk FROM {LEDGER} WHERE instr(made, ?) LIMIT 1"
OF = "\n"  # between the id of a copy and a new entity, in an id of the ledger
_EXPLAINED = 20  # faults for which the other entity with the key is looked up
_REFUSED = (EntityExists, UniqueViolation, InvalidEntity, EntityTooLarge)


def copy_forms(transition: Transition) -> list[CopyForm]:
    """Return the copies that a migration consists of, one for each conversion."""
    return [
        CopyForm(f"{transition.name} {number}", tuple([model.name for model in one.sources]))
        for number, one in enumerate(transition.conversions)
    ]


def is_one_way(writer: Writer) -> bool:
    """Return whether the way back does not lead to some old entity."""
    return writer.get(_IS_ONE_WAY, ()) is not None


class _Refused(Exception):
    """An entity cannot be converted, and why."""


class New(NamedTuple):
    """A new entity with its row."""

    entity: Any
    model: Model
    row: Row


class Copying:
    """One migration over one file, in batches.

    Attributes:
        faults: the entities that could not be converted, by the copy and the key.
        ended: whether the last batch came to the end of all entities, and of the queue.
        passed: whether the last batch found no entity after the cursors.
        stuck: whether only entities are left that cannot be converted.
    """

    def __init__(self, transition: Transition) -> None:
        self.faults: dict[tuple[str, Key], Fault] = {}
        self.ended = self.stuck = self.passed = False
        self._copies = list(zip([form.id for form in copy_forms(transition)], transition.conversions, strict=True))
        self._reserved = {
            cls: special
            for models in transition.new.tables().values()
            for cls, special in reserved_keys(models).items()
        }
        self._queue_places: dict[str, Key] = {}  # by copy: the last key read, as keys with faults stay in the queue
        self._explained: set[Key] = set()  # keys for whose faults the other entity was looked up
        self._successes = 0  # since the queue was last read from its start

    def use(self, source: SqliteSchema, target: SqliteSchema, former: SqliteSchema) -> None:
        """Go on by another state of the catalogue.

        Args:
            source: the old classes, which are read.
            target: the new classes, which are written.
            former: the new classes as they were before the migration that is undone; empty otherwise.
        """
        self._source = source
        self._target = target
        self._former = former

    def batch(self, writer: Writer, most: int) -> int:
        """Convert the next entities, at most ``most``; return how many were read."""
        read = 0
        self.ended = self.stuck = False
        self.passed = True
        for copy, conversion in self._copies:
            if read < most:
                read += self._copy_queued(writer, copy, conversion, most - read)
            if read < most:
                fresh = self._copy_next(writer, copy, conversion, most - read)
                self.passed = self.passed and not fresh
                read += fresh
        if read < most:
            left = any(writer.get(_QUEUED, (copy, 1)) for copy, _ in self._copies)
            self.ended, self.stuck = not left, left and not self._successes
            self._queue_places.clear()
            self._successes = 0
        return read

    # ------------------------------------------------------------------------------------------ the queue

    def _copy_queued(self, writer: Writer, copy: str, conversion: Conversion, most: int) -> int:
        """Convert the next queued keys; return how many."""
        place = self._queue_places.get(copy)
        sql, args = (_QUEUED, (copy, most)) if place is None else (_QUEUED_AFTER, (copy, *place, most))
        keys: list[Any] = writer.execute(sql, args).fetchall()
        for key in keys:
            self._copy_key(writer, copy, conversion, key, self._read(writer, conversion, key))
        if keys:
            self._queue_places[copy] = keys[-1]
        return len(keys)

    def _read(self, writer: Writer, conversion: Conversion, key: Key) -> list[Any]:
        """Return the old entities of a key: one of each source, or None."""
        rows = [(model, writer.get(self._source.statements[model].get, key)) for model in conversion.sources]
        return [None if row is None else model.build_one(row) for model, row in rows]

    def _copy_key(self, writer: Writer, copy: str, conversion: Conversion, key: Key, entities: Sequence[Any]) -> None:
        """Convert the old entities of one key, and replace its former new entities; queue the key if that is impossible."""
        (text,) = writer.get(_MADE, (copy, *key)) or ("[]",)
        made = msgspec.json.decode(text, type=list[Place])
        replace = self._replace if conversion.combine is None else self._combine
        try:
            new = self._convert(writer.get, conversion, entities)
            try:
                with _undone_if_refused(writer):
                    replace(writer, copy, conversion, key, made, new)
            except _REFUSED as error:
                raise _Refused(self._reason(writer, key, error)) from error
        except _Refused as refused:
            # Its former new entities are deleted: another old entity may need their keys.
            self._delete_made(writer, copy, conversion, key, made)
            writer.execute(_NOTE, (copy, *key, "[]"))
            writer.execute(ENQUEUE, (copy, *key))
            self.faults[copy, key] = Fault(" and ".join(m.name for m in conversion.sources), key, str(refused))
            return
        self._try_back(writer, copy, conversion, {key: new})
        writer.execute(_NOTE, (copy, *key, _text(new)))
        writer.execute(_UNQUEUE, (copy, *key))
        self.faults.pop((copy, key), None)
        self._successes += 1

    def _replace(
        self, writer: Writer, _copy: str, _conversion: Conversion, _key: Key, made: list[Place], new: list[New]
    ) -> None:
        """Replace the former new entities of an old key, ``made``, by new ones."""
        places = {_place(one) for one in new}
        if len(places) < len(new):
            raise _Refused("two of the entities that it becomes have one key")
        operations = [self._deletion(one) for one in made if one not in places]
        operations += [
            Operation("upsert" if _place(one) in made else "insert", one.model, one.row[0], one.row[1], new=one.row)
            for one in new
        ]
        if operations:
            apply(self._target, writer, operations)

    def _deletion(self, place: Place) -> Operation:
        return Operation("delete", self._target.schema.by_name[place[0]], *place[1:])

    def _delete_made(self, writer: Writer, copy: str, conversion: Conversion, key: Key, made: list[Place]) -> None:
        """Delete the new entities of an old key, or its part in them."""
        if conversion.combine is None:
            if made:
                apply(self._target, writer, [self._deletion(one) for one in made])
            return
        try:
            with _undone_if_refused(writer):
                self._combine(writer, copy, conversion, key, made, [])
        except (*_REFUSED, _Refused):  # the other parts cannot be combined without it: queue each of them
            for place in made:
                id = _parts_id(copy, place)
                if parts := writer.execute(_PARTS, (id,)).fetchall():
                    apply(self._target, writer, [self._deletion(place)])
                for part in parts:
                    writer.execute(_FORGET, (id, *part))
                    writer.execute(ENQUEUE, (copy, *part))

    # ------------------------------------------------------------------------------------------ combined entities

    def _combine(
        self, writer: Writer, copy: str, conversion: Conversion, key: Key, made: list[Place], new: list[New]
    ) -> None:
        """Combine anew each new entity of which an old key was a part, or is one now."""
        for place in dict.fromkeys([*made, *map(_place, new)]):
            id, own = _parts_id(copy, place), [part for part in new if _place(part) == place]
            last = writer.get(_LAST_PART, (id,))
            if last is None or (
                last < key and place not in made
            ):  # all parts so far have lesser keys: add to the result
                combined_so_far = [] if last is None else [self._stored(writer, place)]
                combined = (
                    self._combined(conversion, place, [*combined_so_far, *[p.entity for p in own]]) if own else None
                )
                removed, added = [], [key] if own else []
            else:
                before: list[Any] = writer.execute(_PARTS, (id,)).fetchall()
                parts = {
                    part_key: own
                    if part_key == key
                    else [
                        part
                        for part in self._convert(writer.get, conversion, self._read(writer, conversion, part_key))
                        if _place(part) == place
                    ]
                    for part_key in sorted({*before, key})
                }
                combined = self._combined(
                    conversion, place, [part.entity for several in parts.values() for part in several]
                )
                # (Another old entity may have changed, too, and be no part any more: its key is queued.)
                removed = [part_key for part_key in before if not parts[part_key]]
                added = [part_key for part_key, several in parts.items() if several and part_key not in before]
            if combined is not None:
                verb: Any = "insert" if last is None else "upsert"
                row = combined.row
                apply(self._target, writer, [Operation(verb, combined.model, row[0], row[1], new=row)])
            elif last is not None:
                apply(self._target, writer, [self._deletion(place)])
            writer.executemany(_FORGET, [(id, *part_key) for part_key in removed])
            writer.executemany(_NOTE, [(id, *part_key, "") for part_key in added])

    def _stored(self, writer: Writer, place: Place) -> Any:
        """Return a new entity as it is stored so far."""
        model = self._target.schema.by_name[place[0]]
        row = writer.get(self._target.statements[model].get, place[1:])
        assert row is not None
        return model.build_one(row)

    def _combined(self, conversion: Conversion, place: Place, entities: list[Any]) -> New | None:
        """Return the one entity that several with one key are combined to; None if there are none."""
        if not entities:
            return None
        assert conversion.combine is not None
        try:
            combined = reduce(conversion.combine, entities)
        except Exception as error:  # whatever the function of a script raises
            raise _Refused(f"combine=: {_error_text(error)}") from error
        (new,) = self._new(conversion, [combined])
        if _place(new) != place:
            raise _Refused(f"combine= gave {new.model.name} {new.row[:2]}, but {place[0]} {place[1:]} is expected")
        return new

    def _reason(self, writer: Writer, key: Key, error: Exception) -> str:
        """Return why an entity could not be written."""
        if isinstance(error, EntityExists) and error.key is not None:
            text = f"it becomes {error.entity} {error.key}"
            origin = None
            if key in self._explained or len(self._explained) < _EXPLAINED:
                self._explained.add(key)
                place = msgspec.json.encode([error.entity, *error.key]).decode()
                origin = writer.get(_ORIGIN, (place,))
            return f"{text}, and so does {'another entity' if origin is None else origin}"
        return str(error)

    # ------------------------------------------------------------------------------------------ after the cursor

    def _copy_next(self, writer: Writer, copy: str, conversion: Conversion, most: int) -> int:
        """Convert the next entities after the cursor; return how many."""
        cursor = writer.get(_CURSOR, (copy,))
        if cursor is None:
            raise changed("copy", copy)
        found = self._read_next(writer, conversion.sources, cursor, most)
        if not found:
            return 0
        for key in self._copy_together(writer, copy, conversion, found):
            self._copy_key(writer, copy, conversion, key, found[key])
        writer.execute(_MOVE, (*list(found)[-1], len(found), copy))
        return len(found)

    def _copy_together(
        self, writer: Writer, copy: str, conversion: Conversion, found: Mapping[Key, Sequence[Any]]
    ) -> list[Key]:
        """Convert entities, and write the new ones in one go; return the keys for which that is impossible."""
        made: dict[Key, list[New]] = {}
        refused: list[Key] = []
        for key, entities in found.items():
            try:
                made[key] = self._convert(writer.get, conversion, entities)
            except _Refused:
                refused.append(key)
        add = self._insert if conversion.combine is None else self._add
        try:
            with _undone_if_refused(writer):
                add(writer, copy, conversion, made)
        except (*_REFUSED, _Refused):  # the caller tries them one by one, to find the one that is refused
            return list(found)
        if notes := [(copy, *key, _text(new)) for key, new in made.items()]:
            self._try_back(writer, copy, conversion, made)
            writer.executemany(_NOTE, notes)
        self._successes += len(made)
        return refused

    def _insert(self, writer: Writer, _copy: str, _conversion: Conversion, made: Mapping[Key, Iterable[New]]) -> None:
        batches: dict[Model, Batch] = {}
        for new in made.values():
            for one in new:
                batches.setdefault(one.model, Batch(one.model)).rows.append(one.row)
        insert(self._target, writer, batches.values())

    def _add(self, writer: Writer, copy: str, conversion: Conversion, made: Mapping[Key, Iterable[New]]) -> None:
        """Combine new entities with the results so far: all parts of these have lesser keys."""
        parts: dict[Place, list[tuple[Key, Any]]] = {}
        for key, new in made.items():
            for part in new:
                parts.setdefault(_place(part), []).append((key, part.entity))
        operations: list[Operation] = []
        notes: list[tuple[str, ...]] = []
        for place, own in parts.items():
            id = _parts_id(copy, place)
            combined_so_far = [] if writer.get(_LAST_PART, (id,)) is None else [self._stored(writer, place)]
            combined = self._combined(conversion, place, [*combined_so_far, *[entity for _, entity in own]])
            assert combined is not None
            verb: Any = "upsert" if combined_so_far else "insert"
            operations.append(Operation(verb, combined.model, combined.row[0], combined.row[1], new=combined.row))
            notes += [(id, *key, "") for key, _ in own]
        if operations:
            apply(self._target, writer, operations)
            writer.executemany(_NOTE, notes)

    def _read_next(
        self, writer: Writer, sources: Sequence[Model], cursor: tuple[Any, ...], most: int
    ) -> dict[Key, list[Any]]:
        """Return the entities after a cursor, by key: one of each source, or None."""
        found: dict[Any, list[Any]] = {}
        for at, model in enumerate(sources):
            statements = self._source.statements[model]
            after = () if cursor[0] is None else cursor
            sql = statements.scan_after if after else statements.scan
            rows = writer.execute(f"{sql} LIMIT ?", (*after, most)).fetchall()
            for row, entity in zip(rows, model.build(rows), strict=True):
                found.setdefault(row[:2], [None] * len(sources))[at] = entity
        if len(sources) == 1:
            return found
        return {key: found[key] for key in sorted(found)[:most]}  # (each source was read at least up to these keys)

    def _try_back(self, writer: Writer, copy: str, conversion: Conversion, made: Mapping[Key, Sequence[New]]) -> None:
        """Note it if the way back does not lead to each old key from exactly one of its new entities."""
        if conversion.back is None or is_one_way(writer):
            return
        for key, new in made.items():
            try:
                rows = [former_row(conversion.back, one.model.build_one(one.row)) for one in new]
            except NoWayBack:
                rows = []
            if [row[:2] for row in rows if row is not None] != [key]:
                writer.execute(_ONE_WAY, (copy,))
                return

    # ------------------------------------------------------------------------------------------ one entity

    def _convert(self, get: _Get, conversion: Conversion, entities: Sequence[Any]) -> list[New]:
        """Return the new entities for the old entities of one key."""
        if all(entity is None for entity in entities):
            return []
        if conversion.former is not None:
            entities = [*entities, self._before(get, conversion, conversion.former, entities[0])]
        try:
            new = list(conversion.convert(entities))
        except Exception as error:  # whatever the function of a script raises
            raise _Refused(_error_text(error)) from error
        return list(self._new(conversion, new))

    def _before(self, get: _Get, conversion: Conversion, former: Former, entity: Any) -> Any:
        """Return the entity that there was before the migration that is undone; None if there was none."""
        (model,) = conversion.targets
        statements = self._former.statements.get(model)  # (none: the migration found no entities)
        try:
            key = former.key(entity)
        except Exception as error:  # whatever the function of a script raises
            raise _Refused(_error_text(error)) from error
        row = statements and get(statements.get, key)
        if not row and (lacking := former.lacking(entity)):
            raise _Refused(
                f"it came after the migration, so it has no value of {' and '.join(lacking)}: delete it, or do not go back, "
                "but give the class that field again by another script, with m.fill"
            )
        return model.build_one(row) if row else None

    def lacking(self, snapshot: Snapshot) -> list[Fault]:
        """Return the entities that cannot become again what they were before a migration that is undone."""
        faults = []
        for _, conversion in self._copies:
            if conversion.former is None or not conversion.former.fields:
                continue
            (model,) = conversion.sources
            for row in chain.from_iterable(snapshot.stream(self._source.statements[model].scan)):
                entity = model.build_one(row)
                try:
                    self._before(snapshot.get, conversion, conversion.former, entity)
                except _Refused as refused:
                    faults.append(Fault(model.name, row[:2], str(refused)))
        return faults

    def _new(self, conversion: Conversion, entities: Iterable[Any]) -> Iterator[New]:
        """Yield new entities with their rows; raise _Refused if the script may not give one of them."""
        for entity in entities:
            model = self._target.schema.by_class.get(type(entity))
            if model is None or model not in conversion.targets:
                expected = " or ".join(one.name for one in conversion.targets)
                raise _Refused(
                    f"the function gave {type(entity).__name__}, but the script's new {expected} is expected"
                )
            try:
                row = model.to_row(entity)
            except (InvalidEntity, EntityTooLarge) as error:
                raise _Refused(str(error)) from error
            special = self._reserved.get(model.cls)
            if special is not None and (other := special(row[0], row[1])) is not None:
                raise _Refused(f"it becomes {model.name} {row[:2]}, which is a key of {other}")
            yield New(entity, model, row)


@contextmanager
def _undone_if_refused(writer: Writer) -> Iterator[None]:
    """Roll back the writes of a block if one is refused. (An error of the disk ends the whole transaction.)"""
    writer.execute("SAVEPOINT block")
    try:
        yield
    except (*_REFUSED, _Refused):
        writer.execute("ROLLBACK TO block")
        writer.execute("RELEASE block")
        raise
    writer.execute("RELEASE block")


def _place(new: New) -> Place:
    return (new.model.name, new.row[0], new.row[1])


def _parts_id(copy: str, place: Place) -> str:
    """Return the id under which the ledger has the old keys that a new entity is combined from."""
    return f"{copy}{OF}{msgspec.json.encode(place).decode()}"


def _text(new: Iterable[New]) -> str:
    return msgspec.json.encode([_place(one) for one in new]).decode()


def _error_text(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
