"""Copies with a queue: the entities of some classes are turned into others beside writers, and these then take their place.

What is made is written to tables of its own. One invariant holds at each commit: for each key up to the cursor that is not
queued, there is exactly what the entity of that key is turned into. A batch turns the queued entities into others, then those
behind the cursor, and moves it. Whoever writes an entity up to the cursor queues its key in the same transaction, see
`jobs.queue`, and need not know the function. Once nothing is queued and nothing is behind the cursor, the same transaction
switches: the tables of the old classes get other names, so that nobody reads them unawares, and the catalogue says what
took their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from ....errors import EntityExists, EntityTooLarge, InvalidEntity, UniqueViolation
from ....schema.model import Model, reserved_keys
from ....schema.rows import Row
from ...migration import Conversion, Fault, Transition
from ...protocol import Batch, Operation
from ..file.writer import Writer
from ..rows.jobs import ENQUEUE, LEDGER, QUEUE
from ..rows.writes import apply, insert
from ..sql.catalogue import COPIES, CopyForm
from ..sql.statements import SqliteSchema

__all__ = ["Copying", "copy_forms"]

Key = tuple[str, str]
_CURSOR = f"SELECT pk, rk FROM {COPIES} WHERE id = ?"
_MOVE = f"UPDATE {COPIES} SET pk = ?, rk = ?, done = done + ? WHERE id = ?"
_QUEUED = f"SELECT pk, rk FROM {QUEUE} WHERE id = ? ORDER BY pk, rk LIMIT ?"
_QUEUED_AFTER = f"SELECT pk, rk FROM {QUEUE} WHERE id = ? AND (pk, rk) > (?, ?) ORDER BY pk, rk LIMIT ?"
_UNQUEUE = f"DELETE FROM {QUEUE} WHERE id = ? AND pk = ? AND rk = ?"
_MADE = f"SELECT made FROM {LEDGER} WHERE id = ? AND pk = ? AND rk = ?"
_NOTE = f"REPLACE INTO {LEDGER} VALUES(?, ?, ?, ?)"
_MAKER = f"SELECT pk, rk FROM {LEDGER} WHERE instr(made, ?) LIMIT 1"
_SHOWN = 20  # faults for which it is looked up who else has the key
_REFUSED = (EntityExists, UniqueViolation, InvalidEntity, EntityTooLarge)


def copy_forms(transition: Transition) -> list[CopyForm]:
    """Return what is copied for a migration."""
    return [
        CopyForm(f"{transition.name} {number}", tuple([model.name for model in one.sources]))
        for number, one in enumerate(transition.conversions)
    ]


class _Refused(Exception):
    """An entity cannot be turned into others, and why."""


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
        self._reserved = reserved_keys([model for models in transition.new.tables().values() for model in models])
        self._places: dict[str, Key] = {}  # in the queue, so that faults do not hide what is behind them
        self._looked: set[Key] = set()  # for whose faults it is looked up who else has the key
        self._successes = 0  # since the queue was begun from its start

    def use(self, source: SqliteSchema, target: SqliteSchema) -> None:
        """Go on by another state of the catalogue."""
        self._source = source
        self._target = target

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
            entities = []
            for model in conversion.sources:
                statements = self._source.statements[model]
                row = writer.get(statements.get, key)
                entities.append(None if row is None else model.build_one(row))
            self._one(writer, copy, conversion, key, entities)
        if keys:
            self._places[copy] = keys[-1]
        return len(keys)

    def _one(self, writer: Writer, copy: str, conversion: Conversion, key: Key, entities: Sequence[Any]) -> None:
        """Replace what was made of one key; queue it again if that is not possible."""
        (text,) = writer.get(_MADE, (copy, *key)) or ("[]",)
        made = msgspec.json.decode(text, type=list[tuple[str, str, str]])
        models = self._target.schema.by_name
        try:
            rows = self._convert(conversion, entities)
            places = {(model.name, *row[:2]) for model, row in rows}
            if len(places) < len(rows):
                raise _Refused("two of the entities that it becomes have one key")
            operations = [Operation("delete", models[one[0]], *one[1:]) for one in made if one not in places]
            operations += [
                Operation("upsert" if (model.name, *row[:2]) in made else "insert", model, row[0], row[1], new=row)
                for model, row in rows
            ]
            try:
                with _whole(writer):
                    if operations:
                        apply(self._target, writer, operations)
            except _REFUSED as error:
                raise _Refused(self._reason(writer, key, error)) from error
        except _Refused as refused:
            # What it was before is taken back: another entity may need that key.
            if made:
                apply(self._target, writer, [Operation("delete", models[one[0]], *one[1:]) for one in made])
            writer.execute(_NOTE, (copy, *key, "[]"))
            writer.execute(ENQUEUE, (copy, *key))
            self.faults[copy, key] = Fault(" and ".join(m.name for m in conversion.sources), key, str(refused))
            return
        writer.execute(_NOTE, (copy, *key, _text(rows)))
        writer.execute(_UNQUEUE, (copy, *key))
        self.faults.pop((copy, key), None)
        self._successes += 1

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
        found = self._next(writer, conversion.sources, writer.get(_CURSOR, (copy,)) or (None, None), most)
        if not found:
            return 0
        made: dict[Key, list[tuple[Model, Row]]] = {}
        refused: list[Key] = []
        batches: dict[Model, Batch] = {}
        for key, entities in found.items():
            try:
                rows = made[key] = self._convert(conversion, entities)
            except _Refused:
                refused.append(key)
            else:
                for model, row in rows:
                    batches.setdefault(model, Batch(model)).rows.append(row)
        try:
            with _whole(writer):
                insert(self._target, writer, batches.values())
        except _REFUSED:  # which of them it is, is seen one by one
            refused = list(found)
            made = {}
        if notes := [(copy, *key, _text(rows)) for key, rows in made.items()]:
            writer.executemany(_NOTE, notes)
        self._successes += len(made)
        for key in refused:
            self._one(writer, copy, conversion, key, found[key])
        writer.execute(_MOVE, (*list(found)[-1], len(found), copy))
        return len(found)

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

    # ------------------------------------------------------------------------------------------ one entity

    def _convert(self, conversion: Conversion, entities: Sequence[Any]) -> list[tuple[Model, Row]]:
        """Return the rows that entities of one key become."""
        if all(entity is None for entity in entities):
            return []
        try:
            new = list(conversion.convert(entities))
        except Exception as error:  # whatever the function of a script raises
            raise _Refused(_told(error)) from error
        return list(self._rows(conversion, new))

    def _rows(self, conversion: Conversion, entities: Iterable[Any]) -> Iterator[tuple[Model, Row]]:
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
            yield model, row


@contextmanager
def _whole(writer: Writer) -> Iterator[None]:
    """Take back what was written inside if it is refused. (An error of the disk ends the whole transaction.)"""
    writer.execute("SAVEPOINT whole")
    try:
        yield
    except _REFUSED:
        writer.execute("ROLLBACK TO whole")
        writer.execute("RELEASE whole")
        raise
    writer.execute("RELEASE whole")


def _text(rows: Iterable[tuple[Model, Row]]) -> str:
    return msgspec.json.encode([(model.name, *row[:2]) for model, row in rows]).decode()


def _told(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
