"""Copies with a queue: the entities of some classes are turned into others beside writers, and these then take their place.

What is made is written to tables of its own. One invariant holds at each commit: for each key up to the cursor that is not
queued, there is exactly what the entity of that key is turned into. A batch turns the queued entities into others, then those
behind the cursor, and moves it. Whoever writes an entity up to the cursor queues its key in the same transaction, see
`jobs.queue`, and need not know the function. Once nothing is queued and nothing is behind the cursor, the same transaction
switches: the tables of the old classes get other names, so that nobody reads them unawares, and the catalogue says what
took their place.

Where new entities of one key are combined, the ledger also has the old keys that each new entity is made of, under an id of
its own: see `_parts`. There is a new entity as long as it has such rows. A change of one of them makes it anew from all.

Where the old version is to go on by a function of the script, each old entity has to be what exactly one of the entities is
turned back into that are made of it. If one is not, that is noted, and the old version stops at the switch.
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
_MAKER = f"SELECT pk, rk FROM {LEDGER} WHERE instr(made, ?) LIMIT 1"
OF = "\n"  # between the id of a copy and a new entity, in an id of the ledger
_SHOWN = 20  # faults for which it is looked up who else has the key
_REFUSED = (EntityExists, UniqueViolation, InvalidEntity, EntityTooLarge)


def copy_forms(transition: Transition) -> list[CopyForm]:
    """Return what is copied for a migration."""
    return [
        CopyForm(f"{transition.name} {number}", tuple([model.name for model in one.sources]))
        for number, one in enumerate(transition.conversions)
    ]


def is_one_way(writer: Writer) -> bool:
    """Return whether an entity was found that the way back does not lead to."""
    return writer.get(_IS_ONE_WAY, ()) is not None


class _Refused(Exception):
    """An entity cannot be turned into others, and why."""


class New(NamedTuple):
    """A new entity, and its row."""

    entity: Any
    model: Model
    row: Row


class Copying:
    """One migration over one file: what its batches have to know of each other.

    Attributes:
        faults: what could not be turned into others, by the copy and the key.
        ended: whether the last batch came to the end of all entities, and of the queue.
        passed: whether it found no entity behind the cursors.
        stuck: whether nothing but faults is left.
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
        self._places: dict[str, Key] = {}  # in the queue, so that faults do not hide what is behind them
        self._looked: set[Key] = set()  # for whose faults it is looked up who else has the key
        self._successes = 0  # since the queue was begun from its start

    def use(self, source: SqliteSchema, target: SqliteSchema, former: SqliteSchema) -> None:
        """Go on by another state of the catalogue.

        Args:
            source: what is read.
            target: what is written.
            former: what the entities were before the migration, where that is undone.
        """
        self._source = source
        self._target = target
        self._former = former

    def batch(self, writer: Writer, most: int) -> int:
        """Turn the next entities into others, at most ``most``; return how many were read."""
        read = 0
        self.ended = self.stuck = False
        self.passed = True
        for copy, conversion in self._copies:
            if read < most:
                read += self._requeued(writer, copy, conversion, most - read)
            if read < most:
                fresh = self._fresh(writer, copy, conversion, most - read)
                self.passed = self.passed and not fresh
                read += fresh
        if read < most:
            left = any(writer.get(_QUEUED, (copy, 1)) for copy, _ in self._copies)
            self.ended, self.stuck = not left, left and not self._successes
            self._places.clear()
            self._successes = 0
        return read

    # ------------------------------------------------------------------------------------------ what is queued

    def _requeued(self, writer: Writer, copy: str, conversion: Conversion, most: int) -> int:
        place = self._places.get(copy)
        sql, args = (_QUEUED, (copy, most)) if place is None else (_QUEUED_AFTER, (copy, *place, most))
        keys: list[Any] = writer.execute(sql, args).fetchall()
        for key in keys:
            self._one(writer, copy, conversion, key, self._read(writer, conversion, key))
        if keys:
            self._places[copy] = keys[-1]
        return len(keys)

    def _read(self, writer: Writer, conversion: Conversion, key: Key) -> list[Any]:
        """Return the old entities of a key, of each source or None."""
        rows = [(model, writer.get(self._source.statements[model].get, key)) for model in conversion.sources]
        return [None if row is None else model.build_one(row) for model, row in rows]

    def _one(self, writer: Writer, copy: str, conversion: Conversion, key: Key, entities: Sequence[Any]) -> None:
        """Replace what was made of one key; queue it again if that is not possible."""
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
            # What it was before is taken back: another entity may need that key.
            self._take_back(writer, copy, conversion, key, made)
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
        """Let new entities take the place of those that were made of a key."""
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

    def _take_back(self, writer: Writer, copy: str, conversion: Conversion, key: Key, made: list[Place]) -> None:
        """Remove what was made of a key."""
        if conversion.combine is None:
            if made:
                apply(self._target, writer, [self._deletion(one) for one in made])
            return
        try:
            with _undone_if_refused(writer):
                self._combine(writer, copy, conversion, key, made, [])
        except (*_REFUSED, _Refused):  # the others are no whole without it: each of them has to be looked at again
            for place in made:
                id = _parts(copy, place)
                if parts := writer.execute(_PARTS, (id,)).fetchall():
                    apply(self._target, writer, [self._deletion(place)])
                for part in parts:
                    writer.execute(_FORGET, (id, *part))
                    writer.execute(ENQUEUE, (copy, *part))

    # ------------------------------------------------------------------------------------------ what is combined

    def _combine(
        self, writer: Writer, copy: str, conversion: Conversion, key: Key, made: list[Place], new: list[New]
    ) -> None:
        """Make the new entities of which those of a key were a part, or are one now."""
        for place in dict.fromkeys([*made, *map(_place, new)]):
            id, own = _parts(copy, place), [one for one in new if _place(one) == place]
            last = writer.get(_LAST_PART, (id,))
            if last is None or (last < key and place not in made):  # what is there goes before it
                was = [] if last is None else [self._there(writer, place)]
                whole = self._whole(conversion, place, [*was, *[one.entity for one in own]]) if own else None
                gone, come = [], [key] if own else []
            else:
                before: list[Any] = writer.execute(_PARTS, (id,)).fetchall()
                parts = {
                    part: own
                    if part == key
                    else [
                        one
                        for one in self._convert(writer.get, conversion, self._read(writer, conversion, part))
                        if _place(one) == place
                    ]
                    for part in sorted({*before, key})
                }
                whole = self._whole(conversion, place, [one.entity for news in parts.values() for one in news])
                # (Another one may have changed, too, and not be a part any more: it is queued.)
                gone = [part for part in before if not parts[part]]
                come = [part for part, news in parts.items() if news and part not in before]
            if whole is not None:
                verb: Any = "insert" if last is None else "upsert"
                apply(self._target, writer, [Operation(verb, whole.model, whole.row[0], whole.row[1], new=whole.row)])
            elif last is not None:
                apply(self._target, writer, [self._deletion(place)])
            writer.executemany(_FORGET, [(id, *part) for part in gone])
            writer.executemany(_NOTE, [(id, *part, "") for part in come])

    def _there(self, writer: Writer, place: Place) -> Any:
        """Return a new entity as it is so far."""
        model = self._target.schema.by_name[place[0]]
        row = writer.get(self._target.statements[model].get, place[1:])
        assert row is not None
        return model.build_one(row)

    def _whole(self, conversion: Conversion, place: Place, entities: list[Any]) -> New | None:
        """Return one entity of several that have one key; None of none."""
        if not entities:
            return None
        assert conversion.combine is not None
        try:
            whole = reduce(conversion.combine, entities)
        except Exception as error:  # whatever the function of a script raises
            raise _Refused(f"combine=: {_told(error)}") from error
        (new,) = self._new(conversion, [whole])
        if _place(new) != place:
            raise _Refused(f"combine= gave {new.model.name} {new.row[:2]}, but {place[0]} {place[1:]} is expected")
        return new

    def _reason(self, writer: Writer, key: Key, error: Exception) -> str:
        if isinstance(error, EntityExists) and error.key is not None:
            text = f"it becomes {error.entity} {error.key}"
            maker = None
            if key in self._looked or len(self._looked) < _SHOWN:
                self._looked.add(key)
                place = msgspec.json.encode([error.entity, *error.key]).decode()
                maker = writer.get(_MAKER, (place,))
            return f"{text}, and so does {'another entity' if maker is None else maker}"
        return str(error)

    # ------------------------------------------------------------------------------------------ what is behind the cursor

    def _fresh(self, writer: Writer, copy: str, conversion: Conversion, most: int) -> int:
        cursor = writer.get(_CURSOR, (copy,))
        if cursor is None:
            raise changed("copy", copy)
        found = self._next(writer, conversion.sources, cursor, most)
        if not found:
            return 0
        for key in self._together(writer, copy, conversion, found):
            self._one(writer, copy, conversion, key, found[key])
        writer.execute(_MOVE, (*list(found)[-1], len(found), copy))
        return len(found)

    def _together(
        self, writer: Writer, copy: str, conversion: Conversion, found: Mapping[Key, Sequence[Any]]
    ) -> list[Key]:
        """Turn entities into others all at once; return the keys of those for which that is not possible."""
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
        except (*_REFUSED, _Refused):  # which of them it is, is seen one by one
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
        """Combine new entities with what those before them were combined to: all parts so far have lesser keys."""
        parts: dict[Place, list[tuple[Key, Any]]] = {}
        for key, new in made.items():
            for one in new:
                parts.setdefault(_place(one), []).append((key, one.entity))
        operations: list[Operation] = []
        notes: list[tuple[str, ...]] = []
        for place, own in parts.items():
            id = _parts(copy, place)
            was = [] if writer.get(_LAST_PART, (id,)) is None else [self._there(writer, place)]
            whole = self._whole(conversion, place, [*was, *[entity for _, entity in own]])
            assert whole is not None
            operations.append(
                Operation("upsert" if was else "insert", whole.model, whole.row[0], whole.row[1], new=whole.row)
            )
            notes += [(id, *key, "") for key, _ in own]
        if operations:
            apply(self._target, writer, operations)
            writer.executemany(_NOTE, notes)

    def _next(
        self, writer: Writer, sources: Sequence[Model], cursor: tuple[Any, ...], most: int
    ) -> dict[Key, list[Any]]:
        """Return the entities behind a cursor, by key, of each source or None."""
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
        return {key: found[key] for key in sorted(found)[:most]}  # (none of these is behind what a source gave)

    def _try_back(self, writer: Writer, copy: str, conversion: Conversion, made: Mapping[Key, Sequence[New]]) -> None:
        """Note it if the way back does not lead from what was made of some keys to these, each from one entity."""
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
        """Return what entities of one key become."""
        if all(entity is None for entity in entities):
            return []
        if conversion.former is not None:
            entities = [*entities, self._before(get, conversion, conversion.former, entities[0])]
        try:
            new = list(conversion.convert(entities))
        except Exception as error:  # whatever the function of a script raises
            raise _Refused(_told(error)) from error
        return list(self._new(conversion, new))

    def _before(self, get: _Get, conversion: Conversion, former: Former, entity: Any) -> Any:
        """Return an entity as it was before the migration that is undone; None if there was none."""
        (model,) = conversion.targets
        statements = self._former.statements.get(model)  # (none: the migration found no entities)
        try:
            key = former.key(entity)
        except Exception as error:  # whatever the function of a script raises
            raise _Refused(_told(error)) from error
        row = statements and get(statements.get, key)
        if not row and (lacking := former.lacking(entity)):
            raise _Refused(
                f"it came after the migration, so it has no value of {' and '.join(lacking)}: delete it, or do not go back, "
                "but give the class that field again by another script, with m.fill"
            )
        return model.build_one(row) if row else None

    def lacking(self, snapshot: Snapshot) -> list[Fault]:
        """Return the entities that cannot be what they were before a migration that is undone."""
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
    """Take back what was written inside if it is refused. (An error of the disk ends the whole transaction.)"""
    writer.execute("SAVEPOINT whole")
    try:
        yield
    except (*_REFUSED, _Refused):
        writer.execute("ROLLBACK TO whole")
        writer.execute("RELEASE whole")
        raise
    writer.execute("RELEASE whole")


def _place(new: New) -> Place:
    return (new.model.name, new.row[0], new.row[1])


def _parts(copy: str, place: Place) -> str:
    """Return the id under which the ledger has the old keys that a new entity is made of."""
    return f"{copy}{OF}{msgspec.json.encode(place).decode()}"


def _text(new: Iterable[New]) -> str:
    return msgspec.json.encode([_place(one) for one in new]).decode()


def _told(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
