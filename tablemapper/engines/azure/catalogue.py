"""The catalogue of an account, in a table of its own: the forms of all classes, and what opening makes of them.

It is two rows: the head, which says of which generation it is, and the body. Both change in one transaction, under the
ETag of the head that was read.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from uuid import uuid4

import attrs
import msgspec

from ...entities.fields import FieldModel
from ...errors import CorruptStore, InvalidModel, NotAStore, SchemaMismatch
from ...evolution.changes import Anything
from ...evolution.compilation import stored_schema
from ...evolution.evolution import Evolution, evolve
from ...evolution.following import Followed, follow
from ...evolution.history import History
from ...evolution.versions import Version, Versions, retirement
from ...expressions.tree import Attr
from ...keys.forms import NotAKey
from ...keys.template import Template
from ...schema.forms import ModelForm
from ...schema.maintenance import IndexMaintenance, Maintenance, aggregate_maintenance, maintenance
from ...schema.model import Model, Schema, is_local, parts_of, reserved_keys
from ..check import Owed
from .tables.drive import ATTEMPTS, Work, delay, read
from .tables.rows import Codec, codec_of
from .tables.service import ETAG, Change, Commit, Comparison, CreateTable, Entity, Find, Get, Lost, Page, Refused

__all__ = [
    "Catalogue",
    "Classes",
    "Look",
    "as_it_is",
    "check_models",
    "open_catalogue",
    "read_catalogue",
    "read_head",
]

FORMAT = 1
MAX_PROPERTIES = 250  # of an entity: two more are hidden
_PIECE = 40_000  # bytes of the body in one property
_STORE = "store"
_log = logging.getLogger("tablemapper.azure")


@attrs.frozen
class Look:
    """The head of a catalogue, as it was read."""

    generation: int
    id: str
    etag: str


@attrs.frozen
class Catalogue:
    """What a store holds and maintains."""

    head: Look
    forms: dict[str, ModelForm]
    versions: Versions


# ---------------------------------------------------------------------------------------------- read and published


def read_head(table: str, timeout: float) -> Work[Look | None]:
    """Read the head of a catalogue; None if there is no store."""
    try:
        found = yield from read(Get(table, _STORE, "head"), timeout)
    except Refused as refused:
        if refused.code == "TableNotFound":
            return None
        raise
    return None if found is None else _look(found, table)


def _look(found: Entity, table: str) -> Look:
    if found.get("format") != FORMAT:
        raise NotAStore(
            f"{table}: its format is {found.get('format')!r}, which this version does not read; use a newer one"
        )
    try:
        return Look(int(found["generation"]), str(found["id"]), found[ETAG])
    except (KeyError, ValueError):
        raise CorruptStore(f"{table}: the head of the catalogue cannot be read") from None


def read_catalogue(table: str, timeout: float) -> Work[Catalogue | None]:
    where = Comparison("PartitionKey", "eq", "String", _STORE)
    try:
        page: Page = yield from read(Find(table, where), timeout)
    except Refused as refused:
        if refused.code == "TableNotFound":
            return None
        raise
    rows = {one["RowKey"]: one for one in page.entities}
    while page.after is not None:
        page = yield from read(Find(table, where, after=page.after), timeout)
        rows |= {one["RowKey"]: one for one in page.entities}
    if "head" not in rows:
        return None
    head = _look(rows["head"], table)
    try:
        packed = b"".join([msgspec.convert(piece, bytes) for piece in _pieces(rows["body"])])
        forms, versions = msgspec.json.decode(
            zlib.decompress(packed), type=tuple[dict[str, ModelForm], dict[str, list[Version]]]
        )
    except (KeyError, zlib.error, msgspec.MsgspecError) as error:
        raise CorruptStore(f"{table}: the catalogue cannot be read: {error}") from error
    return Catalogue(head, forms, Versions(versions))


def _pieces(body: Entity) -> Iterator[str]:
    number = 0
    while (piece := body.get(f"c{number}")) is not None:
        yield piece
        number += 1


def _publication(table: str, old: Catalogue | None, evolution: Evolution, id: str) -> Commit:
    packed = zlib.compress(msgspec.json.encode([evolution.models_after, evolution.versions_after.by_class]))
    body: dict[str, Any] = {}
    for number, at in enumerate(range(0, len(packed), _PIECE)):
        body |= {
            f"c{number}": msgspec.to_builtins(packed[at : at + _PIECE]),
            f"c{number}@odata.type": "Edm.Binary",
        }
    head = {"generation": 1 if old is None else old.head.generation + 1, "id": id, "format": FORMAT}
    if old is None:
        changes = Change("insert", "head", head), Change("upsert", "body", body)
    else:
        changes = Change("replace", "head", head, old.head.etag), Change("upsert", "body", body)
    return Commit(table, _STORE, changes)


def open_catalogue(table: str, schema: Schema, timeout: float) -> Work[Classes]:
    """Return the classes of a store, to whose catalogue a schema was added.

    Raises:
        SchemaMismatch: it differs in a way that opening cannot take over.
        NotAStore: a table is somebody else's.
    """
    for attempt in range(ATTEMPTS):
        old = yield from read_catalogue(table, timeout)
        forms = {} if old is None else old.forms
        evolution = evolve(
            forms, Versions({}) if old is None else old.versions, schema, Anything(), now=time.time_ns() // 1000
        )
        if faults := [*evolution.faults, *_not_yet(evolution, forms)]:
            raise SchemaMismatch("the models are not those that the store was written with", faults)
        if old is not None and not evolution.changed and not evolution.extends:
            return Classes(schema, old)
        created = yield from read(CreateTable(table), timeout)
        if old is None and not created and (yield from _is_foreign(table, timeout)):
            raise NotAStore(f"the table {table} is not that of a store; name another catalogue: azure://account/name")
        named = _tables(forms)
        outer = [one.table for model in schema.models for one in model.indexes if not is_local(model, one)]
        for name in dict.fromkeys([*[form.table for form in evolution.models_after.values()], *outer]):
            if name in named:
                continue
            created = yield from read(CreateTable(name), timeout)
            if not created and (yield from _is_foreign(name, timeout)):
                again = yield from read_catalogue(table, timeout)
                if again is None or name not in _tables(again.forms):
                    raise NotAStore(
                        f"the table {name} holds entities, and the catalogue {table} does not know it: it is somebody "
                        "else's; choose another table="
                    )
        id = uuid4().hex if old is None else old.head.id
        try:
            yield _publication(table, old, evolution, id)
        except Lost as lost:
            yield delay(attempt, lost)  # (it is read again: maybe it was published)
        except Refused as refused:
            if refused.status not in (404, 409, 412):
                raise
            yield delay(0)
    raise SchemaMismatch("the models", ["others change the catalogue all the time; open the store again"])


def as_it_is(table: str, schema: Schema | None, timeout: float, known: Schema | None = None) -> Work[Classes]:
    """Return the classes of a store that is not to be changed: those of a schema, or all that its catalogue has.

    Of these, the ones that are as they were in what is known of it stay the same classes.

    Raises:
        NotAStore: there is none.
        SchemaMismatch: it would have to be changed for the schema.
    """
    found = yield from read_catalogue(table, timeout)
    if found is None:
        raise NotAStore(
            f"there is no store in this account, as it has no catalogue {table}; open it with models to create one"
        )
    if schema is None:
        schema = stored_schema(found.forms, known=known)
    elif (evolution := evolve(found.forms, found.versions, schema, Anything(), now=time.time_ns() // 1000)).changed:
        new = [f"{model.name} is new" for model in evolution.models]
        faults = [*new, *map(str, evolution.changes)] or ["it has not seen this version of the classes"]
        raise SchemaMismatch("the store would have to be changed, and it is opened with read_only=True", faults)
    return Classes(schema, found)


def _tables(forms: Mapping[str, ModelForm]) -> set[str]:
    """Return the tables of classes and of indexes."""
    return {form.table for form in forms.values()} | {
        index.table for form in forms.values() for index in form.indexes.values()
    }


def _is_foreign(table: str, timeout: float) -> Work[bool]:
    page: Page = yield from read(Find(table, top=1), timeout)
    return any(one["PartitionKey"] != _STORE for one in page.entities)


def _not_yet(evolution: Evolution, forms: Mapping[str, ModelForm]) -> Iterator[str]:
    """Yield what would have to be built over entities, or built anew."""
    mend = "cannot be built over a class that the store has on Azure Tables yet; tm.copy the store into a new one, in another account"
    for model, name in evolution.indexes:
        yield f"{model.name}.{name}: a new index {mend}"
    for model in evolution.models:
        if model.aggregate is not None and model.aggregate.source.__name__ in forms:
            yield f"{model.name}: a new aggregate {mend}"
    for model in evolution.typed:
        yield f"{model.name}: a type name {mend}"


# ---------------------------------------------------------------------------------------------- what is possible


def check_models(schema: Schema, catalogue: str) -> None:
    """Refuse classes that need more than one partition has, each with what to declare instead.

    Raises:
        InvalidModel
    """
    faults = [fault for model in schema.models for fault in _faults(model, schema, catalogue)]
    if faults:
        raise InvalidModel("Azure Tables", faults)


def _faults(model: Model, schema: Schema, catalogue: str) -> Iterator[str]:
    own = model.declaration.templates[0]
    if model.table.lower() == catalogue.lower():
        yield f'{model.name}: the table "{model.table}" is that of the catalogue; choose another table='
    if len(model.columns) > MAX_PROPERTIES:
        yield f"{model.name}: {len(model.columns)} properties, of which Azure Tables takes {MAX_PROPERTIES} beside what is hidden"
    for field in model.maintained:
        source = _source_of(model, field, schema)
        yield (
            f"{model.name}.{field.name} is maintained from {source}, which Azure Tables cannot do yet; declare an aggregate "
            f"of {source}"
        )
    if ":" in model.name:  # (what keeps such a field)
        return
    if model.aggregate is None:
        return
    of = schema.by_class[model.aggregate.source]
    outer = not _is_inner(model, of)
    for index in model.indexes:
        if outer:
            yield (
                f"{model.name}.{index.name}: an index on an aggregate in another partition than its entities is not possible "
                f'on Azure Tables yet; give the aggregate table="{of.table}" and the partition of {of.name}, '
                f"{of.declaration.templates[0].text!r}, or sort its groups in Python"
            )
        elif not is_local(model, index):
            yield (
                f"{model.name}.{index.name}: an index on an aggregate in other partitions than its groups' is not possible on "
                f"Azure Tables yet; give it the partition of the key, {own.text!r}, and its values in row="
            )


def _source_of(model: Model, field: FieldModel, schema: Schema) -> str:
    for other in schema.models:
        if (
            other.aggregate is not None
            and other.name.startswith(f"{model.name}:")
            and other.name.endswith(field.property)
        ):
            return other.aggregate.source.__name__
    return "other entities"


def _is_inner(model: Model, source: Model) -> bool:
    """Return whether the groups of an aggregate lie in the partitions of the entities."""
    assert model.aggregate is not None
    if model.table != source.table:
        return False
    names = {}
    for name, attr in model.aggregate.groups.items():
        whole = isinstance(attr, Attr) and attr.part is None and not attr.path
        names[name] = attr.name if whole and isinstance(attr, Attr) else f"{name} of its own"
    return parts_of(model.declaration.templates[0], names) == parts_of(source.declaration.templates[0], {})


# ---------------------------------------------------------------------------------------------- classes


class Classes:
    """The opened classes, as one catalogue has them; what a decision asks of what is maintained.

    Attributes:
        catalogue: of the store.
        schema: the opened classes.
        followed: the classes of which the store has more than their code declares.
        outer: what is maintained from a class in other partitions, where there is something.
        aggregates: all of them, by label.
        outer_aggregates: those in other partitions.
    """

    def __init__(self, schema: Schema, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.schema = schema
        self.followed: dict[Model, Followed] = follow(
            schema, catalogue.forms, catalogue.versions, {model: model.name for model in schema.models}, {}
        )
        for model in schema.models:
            if (reason := retirement(model, catalogue.versions, History())) is not None:
                raise SchemaMismatch(model.name, [reason])
        self._owed: dict[Model, Maintenance] = {}
        for model in schema.models:
            self._owed[model] = self._maintenance(model)
            for aggregate in self._owed[model].aggregates:
                self._owed.setdefault(aggregate.model, maintenance(schema, aggregate.model))
        self.outer: dict[Model, Maintenance] = {}
        self._inner: dict[Model, Maintenance] = {}
        for model, owed in self._owed.items():
            outer = Maintenance(
                tuple([one for one in owed.indexes if not is_local(model, one.model)]),
                tuple([one for one in owed.aggregates if not _is_inner(one.model, model)]),
            )
            if outer.indexes or outer.aggregates:
                self.outer[model] = outer
            self._inner[model] = owed.less([outer])
        self.aggregates = {one.model.name: one for owed in self._owed.values() for one in owed.aggregates}
        self.outer_aggregates = [one for owed in self.outer.values() for one in owed.aggregates]
        tables: dict[str, int] = {}
        for form in catalogue.forms.values():
            tables[form.table] = tables.get(form.table, 0) + 1
        self._shared = {table for table, count in tables.items() if count > 1}
        self._reserved = {
            cls: test for members in schema.tables().values() for cls, test in reserved_keys(members).items()
        }

    def _maintenance(self, model: Model) -> Maintenance:
        owed = maintenance(self.schema, model)
        if (followed := self.followed.get(model)) is None:
            return owed
        aggregates = [aggregate_maintenance(followed.model, one) for one in followed.aggregates]
        return Maintenance((*owed.indexes, *followed.indexes), (*owed.aggregates, *aggregates))

    @property
    def models(self) -> tuple[Model, ...]:
        """The opened classes, and the aggregates over them that were not opened."""
        return tuple(self._owed)

    def stored(self, model: Model) -> Model:
        """Return a class with all that is stored of it."""
        return self.followed[model].model if model in self.followed else model

    def codec(self, model: Model) -> Codec:
        """Return what reads and writes the entities of a class."""
        return codec_of(self.stored(model))

    def maintained(self, model: Model) -> Maintenance:
        """Return all that is maintained from a class."""
        return self._owed[model]

    def index(self, model: Model, name: str) -> IndexMaintenance:
        """Return the maintenance of an index."""
        return next(one for one in self._owed[model].indexes if one.model.name == name)

    def needs_row(self, model: Model) -> bool:
        """Return whether a write of an entity depends on what is stored."""
        owed = self._owed[model]
        return bool(owed.indexes or owed.aggregates) or (model in self.followed and self.followed[model].checked)

    @cached_property
    def _special(self) -> dict[Model, list[tuple[Template, Template]]]:
        return {model: [(one[1], one[2]) for one in followed.special] for model, followed in self.followed.items()}

    def claims(self, model: Model, partition: str, row: str) -> bool:
        """Return whether a key is one of a class's entities, and not of another class of its table."""
        if model.table not in self._shared:
            return True
        first, second = model.declaration.templates
        try:
            first.decode(partition)
            second.decode(row)
        except (NotAKey, ValueError, ArithmeticError):
            return False
        if (test := self._reserved.get(model.cls)) is not None and test(partition, row) is not None:
            return False
        special = self._special.get(model, ())
        return not any(a.matches_prefix(partition) and b.matches_prefix(row) for a, b in special)

    # -- what is maintained: `decide.Duties`

    def owed(self, model: Model) -> Sequence[Owed]:
        """Return what is maintained from a class in the partitions of its entities: from all of them."""
        return [(self._inner[model], None)]

    def owner(self, aggregate: Model) -> Model | None:
        """Return None: no aggregate keeps a field of another class."""
        return None

    def keeper(self, model: Model, field: FieldModel) -> Model:
        """Fail: no class has a maintained field."""
        raise AssertionError(f"{model.name}.{field.name}")
