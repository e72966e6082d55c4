"""The opened classes, as a catalogue has them: what is maintained from each, where, and by which marks."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import attrs
from msgspec import UNSET

from ....catalogue.freeze import check_thawed
from ....catalogue.property_names import catalogue_view
from ....catalogue.zone_rules import other_rules, refused_writes, states_here
from ....entities.aggregates import keeper_name
from ....entities.fields import FieldModel
from ....errors import CorruptStore, InvalidEntity, SchemaMismatch, StoreError, StoreLocked
from ....evolution.newer_versions import ExtendedModel, follow, missing_fields, stored_maintenance
from ....evolution.versions import retirement
from ....keys.canonical import KeyTest, made_again
from ....keys.template import Template
from ....owner_cache import cached_on_owner
from ....schema.maintenance import (
    AggregateMaintenance,
    IndexMaintenance,
    Maintenance,
    maintenance,
)
from ....schema.model import Model, Schema, is_local, reserved_keys
from ....schema.rows import DAMAGE, Row
from ....schema.specs import stored_default
from ...check import MaintenanceRule
from ...protocol import Operation
from ..cross_partition.marks import BuildMark, BuildMarks, MaintainedPart, counted, label_of, parts_of
from ..cross_partition.outbox import Timing
from ..cross_partition.remote_groups import GroupMaintenance
from ..reading.rollup_fields import RollupField
from ..tables.driver import Effects, ReadClock, clock
from ..tables.entity_json import EntityCodec, codec_of
from ..tables.reserved_names import HIDDEN_PREFIX, STATE
from ..tables.service import MAX_CHANGES, PARTITION, ROW, Entity, ErrorResponse
from .opening import as_it_is, open_catalogue, without_dropped
from .placement import is_inner
from .publication import UNWRITTEN, Head, StoredCatalogue, names_of, no_catalogue, read_catalogue, read_head

T = TypeVar("T")
_DAMAGED: tuple[type[Exception], ...] = (CorruptStore, *DAMAGE)
_BRIEF = 1.0  # seconds; for as long who reads keys waits for the catalogue, and as often a frozen store is looked at
_PAGES = 6  # of the values of a group, in the transaction of entities
_log = logging.getLogger("tablemapper.azure")


class _Duties(dict[Model, Maintenance]):
    """The maintenance of each class; for one that was dropped, an error that says so."""

    def __init__(self, messages: Mapping[Model, str]) -> None:
        self._messages = messages

    def __missing__(self, model: Model) -> Maintenance:
        raise SchemaMismatch(model.name, [self._messages[model]])


class OpenClasses:
    """The opened classes, as one catalogue has them; what a decision asks of what is maintained.

    Attributes:
        head: of the catalogue.
        catalogue: of the store.
        seen: when it was last certain that the catalogue has them so, by the clock of the process.
        unready: what cannot be read yet: its state, by label.
        marks: what says of an entity whether it is in an index or an aggregate.
        names: the tables that have other names in the account, by their public ones.
        schema: the opened classes, without those that were dropped.
        opened: all of them.
        dropped: what to say of a class that was dropped.
        followed: the classes of which the store has more than their code declares.
        outer: what is maintained from a class in other partitions, where there is something.
        inner: what is maintained from it in the partitions of its entities.
        aggregates: all of them, by what intents call them.
        outer_aggregates: those in other partitions.
    """

    def __init__(self, schema: Schema, published: StoredCatalogue) -> None:
        self.head: Head = published.head
        catalogue = published.value
        self.catalogue: Final = catalogue
        self.seen: float = math.inf  # (until a process begins to look)
        self.names: dict[str, str] = names_of(catalogue)
        self.opened = schema
        schema, dropped = without_dropped(schema, catalogue)
        self.schema: Final = schema
        self.dropped: dict[Model, str] = dropped
        other_builds = other_rules(catalogue)
        self.unready: Mapping[str, str] = {
            label: "building" if state == "announced" else state
            for label, state in states_here(catalogue, other_builds, ()).items()
            if state != "ready"
        }
        names = {model: model.name for model in schema.models}
        refusals = refused_writes(catalogue, other_builds)
        seen, _ = catalogue_view(catalogue, schema)  # (under the names of properties that these classes have)
        self.followed: dict[Model, ExtendedModel] = follow(schema, seen.models, seen.versions, names, refusals)
        self._codecs: dict[Model, EntityCodec] = {}
        self._key_tests: dict[Model, tuple[KeyTest, bool]] = {}
        self._forms = seen.models
        self._names = {name: dict(table.properties) for name, table in seen.tables.items()}
        for model in schema.models:
            if (reason := retirement(model, catalogue.versions, catalogue.history)) is not None:
                raise SchemaMismatch(model.name, [reason])
        self._duties: dict[Model, Maintenance] = _Duties(self.dropped)
        for model in schema.models:
            self._duties[model] = stored_maintenance(schema, model, self._forms, names, self.followed.get(model))
            for aggregate in self._duties[model].aggregates:
                self._duties.setdefault(aggregate.model, maintenance(schema, aggregate.model))
        self.outer: dict[Model, Maintenance] = {}
        self.inner: dict[Model, Maintenance] = {}
        for model, duties in self._duties.items():
            inside = self.inner[model] = duties.where(partial(_is_inside, model))
            outside = duties.less([inside])
            if outside.indexes or outside.aggregates:
                self.outer[model] = outside
        self.marks: BuildMarks = self._marks()
        self._parts = {model: self._in_parts(duties) for model, duties in self.inner.items()}
        self.aggregates: dict[str, AggregateMaintenance] = {
            self.marks.name_of(counting): counting for duties in self._duties.values() for counting in duties.aggregates
        }
        self.outer_aggregates: list[AggregateMaintenance] = [
            counting for duties in self.outer.values() for counting in duties.aggregates
        ]
        self._reserved = {
            cls: test for members in schema.tables().values() for cls, test in reserved_keys(members).items()
        }

    def _marks(self) -> BuildMarks:
        of: dict[MaintainedPart, BuildMark] = {}
        built: dict[Model, list[BuildMark]] = {}
        for model, duties in self._duties.items():
            for part in parts_of(duties):
                name = part.model.name if isinstance(part, IndexMaintenance) else f"={part.model.name}"
                state = self.catalogue.states.get(label_of(part))
                if state is not None and state.number is not UNSET and model.aggregate is None:
                    values = None
                    if isinstance(part, IndexMaintenance) and part.model.unique:
                        values = partial(part.rows_of, model=self.stored(model))
                    of[part] = BuildMark(
                        f"{name}#{state.number}", True, state.state not in ("announced", "disabled"), values
                    )
                    built.setdefault(model, []).append(of[part])
                elif isinstance(part, IndexMaintenance) and not is_local(model, part.model):
                    of[part] = BuildMark(name, built=False, sets=True)
        names_by_model = {model.name: names for model in self._duties if (names := self.codec(model).stored)}
        return BuildMarks(of, built, self.head.generation, names_by_model)

    def _in_parts(self, duties: Maintenance) -> Sequence[tuple[Maintenance, BuildMark | None]]:
        """Return what is maintained in the partition: together, and apart what was built over entities."""
        parts = [
            (duties.alone(maintained_part), mark)
            for maintained_part in parts_of(duties)
            if (mark := self.marks.of.get(maintained_part)) is not None
        ]
        return [(duties.less([part for part, _ in parts]), None), *parts]

    @property
    def models(self) -> tuple[Model, ...]:
        """The opened classes, and the aggregates over them that were not opened."""
        return tuple(self._duties)

    def stored(self, model: Model) -> Model:
        """Return a class with all that is stored of it."""
        return self.followed[model].model if model in self.followed else model

    def codec(self, model: Model) -> EntityCodec:
        """Return what reads and writes the entities of a class."""
        if (codec := self._codecs.get(model)) is None:
            self._check_there(model)
            # (No property of an aggregate is ever renamed.)
            model_as_stored, properties = (
                self.stored(model),
                self._names.get(model.table, {}) if model.aggregate is None else {},
            )
            names = [
                (field.property, properties.get(field.property, field.property)) for field in model_as_stored.columns
            ]
            form = self._forms[model.name].fields if model.name in self._forms else {}
            # (A default is that which the property came with, whatever a class says; None of an optional field is no value.)
            defaults = [
                (field.property, default)
                for field in model_as_stored.columns
                if not field.nullable
                and field.property in form
                and (default := stored_default(form[field.property])) != model_as_stored.defaults[field.property]
            ]
            codec = codec_of(model_as_stored, tuple([pair for pair in names if pair[0] != pair[1]]), tuple(defaults))
            if (extension := self.followed.get(model)) is not None and (extension.narrow or extension.narrow_keys):
                codec = attrs.evolve(codec, check=partial(_known_value, extension), check_row=extension.check_row)
            self._codecs[model] = codec
        return codec

    def check_dropped(self, table: str) -> None:
        """Raise SchemaMismatch if a table, which is not there, may be one of a class that was dropped."""
        for model in self.dropped:
            for public in (model.table, *[index.table for index in model.indexes]):
                name = f"{self.head.prefix}{public}".lower()
                if table.lower() == name or table.lower().startswith(f"{name}x"):
                    self._check_there(model)

    def _check_there(self, model: Model) -> None:
        """Raise SchemaMismatch if a class was dropped."""
        if model in self.dropped:
            raise SchemaMismatch(model.name, [self.dropped[model]])

    def maintained(self, model: Model) -> Maintenance:
        """Return all that is maintained from a class."""
        return self._duties[model]

    def has_intent(self, model: Model) -> bool:
        """Return whether a write of an entity may do something in other partitions."""
        self._check_there(model)
        groups = [aggregate.model for aggregate in self.inner[model].aggregates]
        return any(written_model in self.outer for written_model in (model, *groups))

    def upkeep(self, aggregate: AggregateMaintenance) -> GroupMaintenance:
        """Return an aggregate with what is maintained from its groups."""
        model = aggregate.model
        return GroupMaintenance(
            aggregate, self.inner[model], self.outer.get(model, self.inner[model].where(lambda _: False)), self.marks
        )

    def ready(self, model: Model) -> Maintenance:
        """Return what is maintained from a class, and complete."""
        duties = self._duties[model]
        return Maintenance(
            tuple(
                [
                    index
                    for index in duties.indexes
                    if index.label not in self.unready and model.name not in self.unready
                ]
            ),
            tuple([aggregate for aggregate in duties.aggregates if aggregate.model.name not in self.unready]),
            duties.whole,
        )

    def index(self, model: Model, name: str) -> IndexMaintenance:
        """Return the maintenance of an index."""
        return next(index for index in self._duties[model].indexes if index.model.name == name)

    def missing_fields(self, model: Model, *, eventual: bool) -> Mapping[str, Collection[str] | None]:
        """Return, by index of a class, the included fields that its rows lack.

        In other partitions it is None, as rows may be older than the entities. If that may be, it is the fields that the rows of
        unique values do not hold.
        """
        self._check_there(model)
        rows: dict[str, Collection[str] | None] = {}
        rows |= missing_fields(model, self._forms[model.name], {index.name: index.name for index in model.indexes})
        for declared_index in model.indexes:
            if not is_local(model, declared_index) and (declared_index.unique or not eventual):
                rows[declared_index.name] = [field.name for field in declared_index.include] if eventual else None
        return rows

    def needs_row(self, model: Model) -> bool:
        """Return whether a write of an entity depends on what is stored."""
        duties = self._duties[model]
        return bool(duties.indexes or duties.aggregates) or (model in self.followed and self.followed[model].checked)

    @cached_property
    def _special(self) -> dict[Model, list[tuple[Template, Template]]]:
        return {
            model: [(special[1], special[2]) for special in extension.special]
            for model, extension in self.followed.items()
        }

    # -- how many rows a write has

    def most_rows(self, model: Model) -> int:
        """Return how many rows the write of an entity is expected to have at most."""
        duties = self.maintained(model)
        groups = [2 + 2 * len(self.maintained(aggregate.model).indexes) for aggregate in duties.aggregates]
        return 1 + sum(8 if index.model.fan_out else 2 for index in duties.indexes) + sum(groups)

    def most_new(self, model: Model) -> int:
        """Return how many new entities a transaction may take, if few groups change in their partition."""
        self._check_there(model)
        duties = self.inner[model]
        rows = 1 + sum(4 if index.model.fan_out else 1 for index in duties.indexes)
        groups = sum(1 + _PAGES * bool(aggregate.aggregate.counted_slots) for aggregate in duties.aggregates)
        return max((MAX_CHANGES - self.has_intent(model) - groups) // rows, 1)

    # -- which rows are theirs

    def claims(self, model: Model, partition: str, row: str) -> bool:
        """Return whether a key is one of a class's entities: neither of another class of its table, nor of another program."""
        test, has_special = self._key_test(model)
        return test.has(partition, row) and not (has_special and self._is_special(model, partition, row))

    def is_of(self, model: Model, entity: Entity) -> bool:
        """Return whether a row is an entity of a class, or a group of an aggregate that is there for readers."""
        if HIDDEN_PREFIX in entity or (model.aggregate is not None and STATE not in entity):
            return False
        return self.claims(model, entity[PARTITION], entity[ROW])

    def readable(self, model: Model, entity: Entity) -> Row | None:
        """Return the row of an entity of a class; None if it is none, or what only a check names: not even its marks can be read."""
        try:
            return self.codec(model).row(entity) if self.is_of(model, entity) else None
        except _DAMAGED:
            return None

    def entities(self, model: Model, page: Sequence[Entity]) -> Iterable[tuple[tuple[str, str], Entity]]:
        """Return those rows of a page for which `is_of` holds, with their keys, which ascend."""
        partitions, rows = [page_row[PARTITION] for page_row in page], [page_row[ROW] for page_row in page]
        pairs = zip(zip(partitions, rows, strict=True), page, strict=True)
        test, has_special = self._key_test(model)
        if not has_special and model.aggregate is None and test.has_all(partitions, rows):
            return pairs
        return [(key, entity) for key, entity in pairs if self.is_of(model, entity)]

    def check_writable(self, operations: Sequence[Operation]) -> None:
        """Refuse operations on a store that is frozen, and those by keys that no entity of the class has.

        Raises:
            StoreLocked: the store is frozen.
            InvalidEntity: fields make another key.
        """
        if classes := {operation.model.name for operation in operations if operation.verb != "build"}:
            check_thawed(self.catalogue, classes)
        for operation in operations:
            model, key = operation.model, operation.key
            if not self._key_test(model)[0].has(*key):
                key_of_fields = made_again(self.stored(model).declaration.templates, key)
                fault = (
                    "no fields make it"
                    if key_of_fields is None or key_of_fields == key
                    else f"its fields make {key_of_fields}"
                )
                raise InvalidEntity(f"{key} is no key of {model.name}", [fault])

    def _key_test(self, model: Model) -> tuple[KeyTest, bool]:
        """Return the test for the keys of a class, and whether its table has more special classes."""
        if (test := self._key_tests.get(model)) is None:
            # (Of a newer version, keys may have values that this one does not know.)
            test = key_test(self.stored(model)), model.cls in self._reserved or bool(self._special.get(model))
            self._key_tests[model] = test
        return test

    def _is_special(self, model: Model, partition: str, row: str) -> bool:
        """Return whether a key that a class could have is one of a more special class of its table."""
        if (test := self._reserved.get(model.cls)) is not None and test(partition, row) is not None:
            return True
        return any(a.matches_prefix(partition) and b.matches_prefix(row) for a, b in self._special.get(model, ()))

    @cached_property
    def cleared_tables(self) -> frozenset[str]:
        """The tables of a class that is being cleared: of what writes left there nothing is finished, as all of it goes."""
        cleared, forms = self.catalogue.clearing, self.catalogue.models
        return frozenset(
            [form.table for name, form in forms.items() if cleared is not None and cleared in (name, form.source)]
        )

    # -- what is maintained: `write_decision.MaintenanceRules`

    def duties(self, model: Model) -> Sequence[MaintenanceRule]:
        """Return what is maintained from a class in the partitions of its entities: from all of them."""
        self._check_there(model)
        return [(part, None) for part, _ in self._parts[model]]

    def affected_rows(self, part: Maintenance, old: Row | None, new: Row | None) -> tuple[Row | None, Row | None]:
        """Return an entity before and after a write as a part of its maintenance is to see both."""
        mark = self._mark_of.get(part)
        return (counted(old), new) if mark is None else mark.affected_rows(old, new)

    @cached_property
    def _mark_of(self) -> dict[Maintenance, BuildMark]:
        return {part: mark for parts in self._parts.values() for part, mark in parts if mark is not None}

    def owner(self, aggregate: Model) -> Model | None:
        """Return None: no aggregate keeps a field of another class."""
        return None

    def keeper(self, model: Model, field: FieldModel) -> Model | None:
        """Return None: the groups that keep fields lie elsewhere."""
        return None

    # -- maintained fields

    def keepers(self, model: Model) -> tuple[RollupField, ...]:
        """Return where the maintained fields of a class are."""
        properties = [field.property for field in self.stored(model).maintained]
        forms = self.catalogue.models
        return tuple(
            [
                RollupField(forms[keeper_name(model.name, field_property)].table, field_property)
                for field_property in properties
            ]
        )

    def required_labels(self, model: Model) -> list[str]:
        """Return the labels of what has to be ready for a class to be read."""
        self._check_there(model)
        keepers = [keeper_name(model.name, field.property) for field in model.maintained]
        return keepers if model.aggregate is None else [model.name]


@cached_on_owner
def key_test(model: Model) -> KeyTest:
    """Return the test for the keys of a class."""
    return KeyTest(model.declaration.templates)


def _is_inside(model: Model, part: MaintainedPart) -> bool:
    """Return whether a part of what is maintained from a class lies in the partitions of its entities."""
    return is_local(model, part.model) if isinstance(part, IndexMaintenance) else is_inner(part.model, model)


def _known_value(extension: ExtendedModel, field: str, value: Any, partition: str, row: str) -> Any:
    """Return a value of a key; raise SchemaMismatch if only another version knows it."""
    return extension.check(field, value, partition, row) if field in extension.narrow else value


class CatalogueRefresher:
    """The classes as a process knows them, which looks at the catalogue again and again.

    Args:
        table: of the catalogue.
        classes: as they were read.
        looked: when that was.
        times: how long things last.
        timeout: seconds after which to give up, if no answer comes.
        read_only: whether the catalogue is never written.
    """

    def __init__(
        self, table: str, classes: OpenClasses, looked: float, times: Timing, timeout: float, *, read_only: bool = False
    ) -> None:
        self.known: OpenClasses = classes
        classes.seen = looked
        self._table = table
        self._believed = -math.inf
        """Until when the catalogue is not asked for what is read by its key."""
        self._times = times
        self._timeout = timeout
        self._read_only = read_only
        self._replacing = threading.Lock()

    def classes(self) -> Effects[OpenClasses]:
        """Return the classes by which something may be sent now."""
        clock_now: float = yield ReadClock()
        look = self._times.look if self.known.catalogue.frozen is None else min(self._times.look, _BRIEF)
        return self.known if clock_now - self.known.seen <= look else (yield from self.look())

    def by_newest(self, work: Callable[[OpenClasses], Effects[T]]) -> Effects[T]:
        """Do a work; what it refuses by classes that the catalogue has otherwise by now, is tried by these."""
        classes = yield from self.classes()
        try:
            return (yield from work(classes))
        except (CorruptStore, InvalidEntity, SchemaMismatch, StoreLocked):
            if (yield from self.look()) is classes:
                raise
        return (yield from work(self.known))

    def for_keys(self) -> Effects[OpenClasses]:
        """Return the classes by which something is read by its key: for as long as the catalogue does not answer, the last ones.

        (A table that a migration has replaced meanwhile is not there any more once that is contracted.)
        """
        clock_now: float = yield ReadClock()
        if clock_now - self.known.seen <= self._times.look or clock_now < self._believed:
            return self.known
        try:
            return (yield from self.look(min(self._timeout, _BRIEF)))
        except (StoreError, ErrorResponse) as error:
            if isinstance(error, SchemaMismatch | CorruptStore):
                raise
            self._believed = clock_now + self._times.look
            _log.warning("%s: the catalogue cannot be read, so keys are read by what it was: %s", self._table, error)
            return self.known

    def look(self, timeout: float | None = None) -> Effects[OpenClasses]:
        """Return the classes as the catalogue has them now.

        Raises:
            SchemaMismatch: a class cannot be used any more.
            CorruptStore: somebody deleted the catalogue.
        """
        at_start, clock_now = self.known, (yield from clock())
        if at_start.head.id == UNWRITTEN.id:
            at_start.seen = clock_now
            return at_start
        head: Head | None = yield from read_head(self._table, self._timeout if timeout is None else timeout)
        if head is None:
            raise no_catalogue(self._table)
        if head.generation != at_start.head.generation:
            classes = OpenClasses(at_start.opened, (yield from self._published(at_start.opened)))
            with self._replacing:
                if self.known.opened is at_start.opened:  # (else more classes were opened meanwhile)
                    classes.seen = clock_now if self.known is at_start else max(clock_now, self.known.seen)
                    self.known = classes
        elif self.known is at_start:
            at_start.seen = max(at_start.seen, clock_now)
        return self.known

    def _published(self, schema: Schema) -> Effects[StoredCatalogue]:
        if self._read_only and (catalogue := (yield from read_catalogue(self._table, self._timeout))) is not None:
            return catalogue
        return (yield from open_catalogue(self._table, schema, self._timeout, self._times, follows=True))

    def extend(self, schema: Schema) -> Effects[None]:
        """Go on with further classes.

        Raises:
            SchemaMismatch, NotAStore: as they are opened.
        """
        clock_now, prefix = (yield from clock()), self.known.head.prefix
        if self._read_only:
            _, published = yield from as_it_is(self._table, schema, self._timeout, prefix=prefix)
        else:
            published = yield from open_catalogue(self._table, schema, self._timeout, self._times, prefix=prefix)
        classes = OpenClasses(schema, published)
        classes.seen = clock_now
        with self._replacing:
            self.known = classes
