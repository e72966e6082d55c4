"""A copy of a store into another one, of what differs: class by class, both read in the order of keys.

Index tables and groups are made by the writes, never copied. What ends early is gone on with by the next copy: what is
the same already is not written again.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, TypeAlias

import attrs

from ..engines.current_transaction import check_outside
from ..engines.key_order import rows_by_key
from ..engines.locations import open_engine
from ..engines.optional_protocols import SupportsBackup, usable_schema
from ..engines.protocol import Batch, Engine, Operation, Verb
from ..entities.aggregates import kept_field
from ..entities.declaration import has_table
from ..entities.entity import Record
from ..errors import (
    EntityExists,
    InvalidEntity,
    InvalidTransaction,
    SchemaMismatch,
    StoreError,
    UniqueViolation,
    safe_repr,
)
from ..planning.projection import RowLayout
from ..progress import Meter
from ..schema.aggregate_model import Delta
from ..schema.maintenance import aggregate_maintenance
from ..schema.model import Model, Schema
from ..schema.rows import FIRST, Mistyped, Row, unreadable
from ..values.scalars import same_stored

_WINDOW = 1_000  # entities that are written together
_STATES = RowLayout(places=True, fields=(), state=True)
_HIGH = re.compile("[\ue000-\U0010ffff]")
"""Characters that engines do not sort alike: by code points, or by UTF-16 units."""

_NEWEST = "open both with the newest version"

_Pair: TypeAlias = tuple[Row | None, Row | None]
"""What the source has under a key, and what the target has."""


@attrs.frozen
class CopyReport:
    """The result of a copy."""

    entities: int
    """That the source has."""
    inserted: int
    replaced: int
    deleted: int
    """That only the target had."""
    seconds: float

    @property
    def changed(self) -> int:
        """The number of entities of the target that were written or deleted; 0: it was the same already."""
        return self.inserted + self.replaced + self.deleted

    def __str__(self) -> str:
        return (
            f"{self.entities:,} entities: {self.inserted:,} inserted, {self.replaced:,} replaced, {self.deleted:,} deleted "
            f"in {self.seconds:.1f} s"
        )


def copy_engine(
    source: Engine,
    target: Engine,
    meter: Meter,
    *,
    only: Sequence[type[Record]] | None = None,
    partly: bool = False,
    repeated: bool = False,
) -> CopyReport:
    """Make the entities of a target those of a source; see `copy`.

    Args:
        source, target: the stores.
        meter: counts entities.
        only: the classes of entities that are copied, with what is maintained from them; None: all.
        partly: whether only the classes that the source was opened with are copied, though it holds others. What ``_ever``
            measures are not complete say is not taken over then.
        repeated: whether another copy follows: an entity whose unique value moves just now is left to that.

    Raises:
        SchemaMismatch: they were not opened with the same classes; nothing was written.
        UniqueViolation: a value is held twice, as the source was written meanwhile.
    """
    check_outside(target, "copy")
    for engine in (source, target):
        engine.catch_up()  # (what was dropped is not copied)
    start, pairs = time.monotonic(), _matched(source, target, only, partly=partly)
    copies = [
        _Copy(
            source,
            target,
            model,
            target_model,
            meter,
            partial(rows_by_key, source, model),
            partial(rows_by_key, target, target_model),
            (UniqueViolation,) if repeated else (),
        )
        for model, target_model in pairs
        if model.aggregate is None
    ]
    for copy in copies:
        copy.run()
    for model, target_model in pairs:
        lasts = model.aggregate is not None and any(slot.lasting for slot in model.aggregate.slots)
        if lasts and model.name not in source.unready:
            _widen(source, target, model, target_model, meter)
    return CopyReport(
        sum(class_copy.entities for class_copy in copies),
        sum(class_copy.inserted for class_copy in copies),
        sum(class_copy.replaced for class_copy in copies),
        sum(class_copy.deleted for class_copy in copies),
        time.monotonic() - start,
    )


def consistent(source: Engine) -> Schema:
    """Return the classes of a store without the unique indexes of which it holds values twice."""
    violated = {label for label, state in source.unready.items() if state == "violated"}

    def without(model: Model) -> Model:
        indexes = tuple([index for index in model.indexes if f"{model.name}.{index.name}" not in violated])
        return attrs.evolve(model, declaration=attrs.evolve(model.declaration, indexes=indexes))

    return attrs.evolve(source.schema, models=tuple(map(without, source.schema.models))) if violated else source.schema


def copy_to_file(engine: Engine, path: str, meter: Meter) -> None:
    """Write a copy of a store that has no file to a new one.

    Raises:
        StoreError: the file exists already, or cannot be written.
    """
    if os.path.lexists(path):
        raise StoreError(f'"{path}" is there already; a backup never overwrites: choose another path')
    folder = os.path.dirname(os.path.abspath(path))
    try:
        directory = tempfile.TemporaryDirectory(prefix=".tablemapper-", dir=folder)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}") from error
    with directory as directory_path:
        copy = os.path.join(directory_path, "copy.db")
        with closing(open_engine(copy, consistent(engine), durability="relaxed")) as file:
            copy_engine(engine, file, meter)
        with closing(open_engine(copy, engine.schema, durability="relaxed")) as file:
            assert isinstance(file, SupportsBackup)
            file.backup(path, meter)  # (which is whole on the disk, or not there)


# ---------------------------------------------------------------------------------------------- which classes


def _matched(
    source: Engine, target: Engine, only: Sequence[type[Record]] | None, *, partly: bool
) -> list[tuple[Model, Model]]:
    """Return the classes of both stores, or some of them with what is maintained from these."""
    ours, theirs, faults = _models(source), _models(target), list[str]()
    if only is not None:
        faults += _not_copied(only, ours, theirs)
        ours, theirs = _chosen(only, ours, theirs), _chosen(only, theirs, ours)
    stored_names = list[str]() if partly or only is not None else _stored_classes(source)
    for name in dict.fromkeys([*stored_names, *ours]):
        if name not in ours:
            faults.append(f"{name}: the source holds it, and was not opened with it; open both with all classes")
        elif name not in theirs:
            faults.append(f"{name}: the target was not opened with it; open both with the same classes")
        elif _shape(ours[name]) != _shape(theirs[name]):
            faults.append(f"{name}: the two stores were opened with different classes of this name; {_NEWEST}")
    for name in theirs.keys() - ours.keys():
        if theirs[name].aggregate is None:
            faults.append(f"{name}: the source was not opened with it; open both with the same classes")
    for engine, models in ((source, ours), (target, theirs)):
        for model in models.values():
            declared_names = {field.property for field in model.columns}
            if undeclared := [
                field.property
                for field in engine.with_stored_fields(model).columns
                if field.property not in declared_names
            ]:
                faults.append(
                    f"{model.name}: a store holds {', '.join(undeclared)}, which this class does not declare; {_NEWEST}"
                )
            if model.form.keeps_ever and model.name in engine.unready and not partly:
                raise engine.describe(model.name).error()
    if faults:
        raise SchemaMismatch("copy", faults)
    return [(model, theirs[name]) for name, model in ours.items()]


def _not_copied(only: Sequence[type[Record]], ours: Mapping[str, Model], theirs: Mapping[str, Model]) -> Iterator[str]:
    """Yield why classes cannot be copied alone; raise TypeError if these are no classes."""
    argument: Any = only
    if not isinstance(argument, list | tuple) or not argument or not all(map(has_table, argument)):
        raise TypeError(f"copy: only= is a list of entity classes, as in only=[Product], got {safe_repr(argument)}")
    for cls in only:
        models = [models[cls.__name__] for models in (ours, theirs) if cls.__name__ in models]
        if cls.__name__ not in ours:
            yield f"{cls.__name__}: the source was not opened with it; open both with the classes of only="
        elif all(model.cls is not cls for model in models):
            yield f"{cls.__name__}: both stores were opened with another class of this name"
        elif (aggregate := ours[cls.__name__].aggregate) is not None:
            yield f"{cls.__name__}: it follows {aggregate.source.__name__}; name that in only="


def _chosen(
    only: Sequence[type[Record]], models: Mapping[str, Model], other_models: Mapping[str, Model]
) -> dict[str, Model]:
    """Return some classes of a store, and the aggregates over them; of those that keep a field, what both stores have."""
    names = {cls.__name__ for cls in only}
    return {
        name: model
        for name, model in models.items()
        if name in names
        or (
            model.aggregate is not None
            and model.aggregate.source.__name__ in names
            and (kept_field(name) is None or name in other_models)
        )
    }


def _models(engine: Engine) -> dict[str, Model]:
    return {model.name: model for model in usable_schema(engine).models}


def _stored_classes(engine: Engine) -> list[str]:
    """Return the classes and aggregates that a store holds, whether it was opened with them or not."""
    items = engine.status().objects
    return [
        item.where
        for item in items
        if item.kind in ("class", "aggregate")
        and item.declared
        and kept_field(item.where) is None
        and "#" not in item.where
    ]


def _shape(model: Model) -> object:
    """Return what decides how the rows of a class are."""
    types = [(field.property, field.type.edm) for field in model.columns if not field.maintained]
    lasting = [] if model.aggregate is None else [slot.identity for slot in model.aggregate.slots if slot.lasting]
    return model.form.partition, model.form.row, types, lasting


# ---------------------------------------------------------------------------------------------- both in one order


def _in_pairs(
    source: Iterator[Row], target: Iterator[Row], find: tuple[Callable[[Row], Row | None], Callable[[Row], Row | None]]
) -> Iterator[_Pair]:
    """Yield what two stores have under each key.

    All keys come in one order but those that have high characters. Of these the other store is asked by `find`.
    """
    ours, theirs = next(source, None), next(target, None)
    while ours is not None or theirs is not None:
        if ours is not None and _is_high(ours):
            yield ours, find[1](ours)
            ours = next(source, None)
        elif theirs is not None and _is_high(theirs):
            if find[0](theirs) is None:  # (else it comes with the other)
                yield None, theirs
            theirs = next(target, None)
        elif theirs is None or (ours is not None and ours[:2] < theirs[:2]):
            yield ours, None
            ours = next(source, None)
        elif ours is None or theirs[:2] < ours[:2]:
            yield None, theirs
            theirs = next(target, None)
        else:
            yield ours, theirs
            ours, theirs = next(source, None), next(target, None)


def _is_high(row: Row) -> bool:
    return not (row[0].isascii() and row[1].isascii()) and _HIGH.search(row[0] + row[1]) is not None


# ---------------------------------------------------------------------------------------------- entities


@attrs.define(eq=False)
class _Copy:
    """The copy of one class."""

    source: Engine
    target: Engine
    model: Model
    """In the source."""
    target_model: Model
    """In the target."""
    meter: Meter
    ours: Callable[[], Iterator[Row]]
    theirs: Callable[[], Iterator[Row]]
    tolerated: tuple[type[Exception], ...]
    entities: int = 0
    inserted: int = 0
    replaced: int = 0
    deleted: int = 0
    _compared: list[tuple[int, str | None]] = attrs.field(init=False)
    """The places of a row that are compared, of all but what is maintained from other classes, each with what is the same as
    None: no undeclared properties are the same as a field for them that is None."""
    _width: int = attrs.field(init=False)
    _window: list[Operation] = attrs.field(factory=list)
    _late: list[tuple[str, str]] = attrs.field(factory=list)
    """The keys of entities whose unique values others still have."""

    def __attrs_post_init__(self) -> None:
        self._compared = [
            (at, "{}" if field.type.undeclared else None)
            for at, field in enumerate(self.model.columns, FIRST)
            if not field.maintained
        ]
        self._width = FIRST + len(self.model.columns)

    def run(self) -> None:
        """Copy the class."""
        finders = (
            lambda row: self.source.get(self.model, row[0], row[1]),
            lambda row: self.target.get(self.target_model, row[0], row[1]),
        )
        for ours, theirs in _in_pairs(self.ours(), self.theirs(), finders):
            self.entities += ours is not None
            self.meter.advance(ours is not None)
            if ours is not None:
                self._check_declared(ours)
            if theirs is None or ours is None or not self._same(ours, theirs):
                self._count(ours, theirs)
                self._window.append(self._operation(ours, theirs))
                if len(self._window) == _WINDOW:
                    self._flush()
        self._flush()
        for key in self._late:
            with suppress(*self.tolerated):
                self._copy_late(key)

    def _count(self, ours: Row | None, theirs: Row | None) -> None:
        self.inserted += theirs is None
        self.deleted += ours is None
        self.replaced += ours is not None and theirs is not None

    def _check_declared(self, ours: Row) -> None:
        if Mistyped in map(type, ours):
            raise unreadable(self.model.name, ours, self.model.fault_of(ours), "write the entity again, then copy")
        if undeclared := getattr(ours[-1], "undeclared", None) if len(ours) > self._width else None:
            raise InvalidEntity(
                f"{self.model.name} {ours[:2]}",
                [
                    f"{', '.join(undeclared)}: a copy would lose properties that it does not declare; declare a tm.Extra field"
                ],
            )

    def _same(self, ours: Row, theirs: Row) -> bool:
        return all(
            same_stored(ours[at], theirs[at])
            or (default is not None and (ours[at] or default) == (theirs[at] or default))
            for at, default in self._compared
        )

    def _operation(self, ours: Row | None, theirs: Row | None) -> Operation:
        etag = None if theirs is None else theirs[2]
        if ours is None:
            assert theirs is not None
            return Operation("delete", self.target_model, theirs[0], theirs[1], None, theirs, etag)
        partition, row = ours[:2]
        verb: Verb = "insert" if theirs is None else "replace"
        values = [
            None if field.maintained else value
            for field, value in zip(self.model.columns, ours[FIRST : self._width], strict=True)
        ]
        return Operation(verb, self.target_model, partition, row, (partition, row, 0, *values), theirs, etag)

    # -- what is written

    def _flush(self) -> None:
        window, self._window = self._window, []
        if window and all(operation.verb == "insert" for operation in window):
            try:
                self.target.insert(
                    [
                        Batch(
                            self.target_model, rows=[operation.new for operation in window if operation.new is not None]
                        )
                    ]
                )
                return
            except (EntityExists, UniqueViolation, InvalidTransaction):
                window = [attrs.evolve(operation, verb="upsert") for operation in window]  # (some of them may be there)
        while window:
            count = self.target.together(window)
            self._apply(window[:count])
            window = window[count:]

    def _apply(self, operations: list[Operation]) -> None:
        """Apply operations together, or, where that is not possible, fewer at a time."""
        try:
            # (Copies: an engine changes the operations that it gets, even if it fails.)
            self.target.apply([attrs.evolve(operation) for operation in operations])
        except (UniqueViolation, InvalidTransaction) as error:
            if len(operations) > 1:
                half = len(operations) // 2
                self._apply(operations[:half])
                self._apply(operations[half:])
                return
            if not isinstance(error, UniqueViolation):
                raise
            (operation,) = operations
            if operation.old is not None:  # (so two can swap their values)
                self.target.apply([attrs.evolve(operation, verb="delete", new=None)])
            self._late.append(operation.key)

    def _copy_late(self, key: tuple[str, str]) -> None:
        """Copy an entity, now that others were copied; and who has its unique value, if it was written meanwhile."""
        holders: list[tuple[str, str]] = []
        while True:
            try:
                for current in (*reversed(holders), key):
                    ours, theirs = self.source.get(self.model, *current), self.target.get(self.target_model, *current)
                    if ours is not None:
                        self._check_declared(ours)
                    if (ours is not None or theirs is not None) and not (ours and theirs and self._same(ours, theirs)):
                        self.target.apply([self._operation(ours, theirs)])
                return
            except UniqueViolation as error:
                if error.holder is None or error.holder in holders or error.holder == key:
                    raise
                holders.append(error.holder)


# ---------------------------------------------------------------------------------------------- what lasts


def _widen(source: Engine, target: Engine, model: Model, target_model: Model, meter: Meter) -> None:
    """Let the ``_ever`` measures of the target's groups be no less extreme than those of the source's."""
    ours, theirs = model.aggregate, target_model.aggregate
    assert ours is not None
    assert theirs is not None
    owner = next(candidate for candidate in target.schema.models if candidate.cls is theirs.source)
    maintained = aggregate_maintenance(owner, target_model)
    deltas: dict[tuple[str, str], Delta] = {}
    nothing = (lambda row: None, lambda row: None)  # (to widen a group that is wide enough changes nothing)
    for source_row, target_row in _in_pairs(
        rows_by_key(source, model, _STATES), rows_by_key(target, target_model, _STATES), nothing
    ):
        meter.advance(0)
        if source_row is None:
            continue
        source_state = ours.unpack_signed(source_row[-1])
        target_state = theirs.empty() if target_row is None else theirs.unpack_signed(target_row[-1])
        delta = theirs.zero()
        for at, slot in enumerate(theirs.slots, 1):
            if slot.lasting and slot.expected(source_state[at], target_state[at]) != target_state[at]:
                delta[at] = source_state[at]
        if delta != theirs.zero():
            deltas[source_row[0], source_row[1]] = delta
        if len(deltas) == _WINDOW:
            target.widen(maintained, deltas)
            deltas = {}
    if deltas:
        target.widen(maintained, deltas)
