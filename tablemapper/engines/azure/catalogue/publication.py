"""The catalogue of an account, in a table of its own: what the store holds and maintains, and what changes of that.

It is two rows: the head, which says of which generation it is, and the body. Both change in one transaction, under the
ETag of the head that was read. A process believes the head for some seconds; then it looks again. So a change is first
*announced*, and comes into force when every process knows of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import attrs
import msgspec
from msgspec.structs import replace

from ....catalogue.catalogue import Catalogue, JobSpec
from ....catalogue.tables import Table
from ....entities.etag import Stamp
from ....errors import CorruptStore, NotAStore, SchemaMismatch, StoreError
from ....evolution.history import History
from ....evolution.versions import Version, Versions
from ....schema.labels import Label
from ....schema.model import Schema
from ....schema.specs import AppliedSpec, BuildStateSpec, Forms, ModelSpec, TombstoneSpec
from ..cross_partition.outbox import Timing
from ..tables.driver import ATTEMPTS, Effects, clock, delay, found, pause, read, within
from ..tables.service import (
    ETAG,
    Comparison,
    Entity,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    RowChange,
)

T = TypeVar("T")
FORMAT = 3
"""The newest format of a catalogue: of one that says what who reads its entities needs to know."""
_UNPREFIXED, _PREFIXED = 1, 2
"""Of the head; that of a store with a prefix, as who does not know of it would create tables without one."""
PIECES = "pieces"
"""What who reads entities needs to know: that values may be in several properties."""
_NEEDS = frozenset({PIECES})
_PIECE = 40_000  # bytes of the body in one property
STORE = "store"
_Body = tuple[
    dict[str, ModelSpec],
    dict[str, list[Version]],
    dict[str, BuildStateSpec],
    list[JobSpec],
    list[TombstoneSpec],
    list[AppliedSpec],
    int | None,
    dict[str, tuple[list[tuple[str, str]], list[str]]],
    dict[str, str],
]
"""The fields of a catalogue; of tables the names under which entities hold properties, and the classes; and the tables, those
of indexes, too, that have other names in the account."""
_decode_body = msgspec.json.Decoder(_Body).decode
_decode_needs = msgspec.json.Decoder(list[str]).decode


@attrs.frozen
class Head:
    """The head of a catalogue, as it was read."""

    generation: int
    id: str
    etag: str
    look: float
    """Seconds for which every process believes the head; see `Timing`."""
    deadline: float
    """Seconds after which every write of the store ends."""
    prefix: str = ""
    """What the names of its tables begin with in the account, unless they were adopted by other ones."""
    claims: bool = True
    """Whether its tables say that they belong to it."""
    needs: frozenset[str] = frozenset()
    """What a library must know to read the entities of the store."""

    def times(self, own_times: Timing) -> Timing:
        """Return how long things last in this store."""
        return attrs.evolve(own_times, look=self.look, deadline=self.deadline)


@attrs.frozen
class StoredCatalogue:
    """The catalogue of a store, as it was read."""

    head: Head
    value: Catalogue
    """Its tables have no columns. No table ever gets another name; a migration makes new ones, under names of their own."""

    def next_head(self, schema: Schema, generation: int) -> Head:
        """Return the head of a generation, with what programs need to know once classes were opened."""
        needs = self.head.needs | needs_of(schema, self.value.models)
        return attrs.evolve(self.head, generation=generation, needs=needs)


def needs_of(schema: Schema, known_names: Collection[str]) -> frozenset[str]:
    """Return what a library must know to read what is written with classes, of which the store has some already.

    What has no code, but came from the catalogue of another store, may bring large values.
    """
    fields = [(model, field) for model in schema.models for field in model.columns if field.type.spillable]
    is_large = any(f.large or (f.large is None and model.name not in known_names) for model, f in fields)
    return frozenset({PIECES} if is_large else ())


UNWRITTEN = Head(1, "", "", Timing().look, Timing().deadline)
"""The head of a catalogue that nobody wrote: of tables that are adopted, and only read."""


# ---------------------------------------------------------------------------------------------- read and published


def read_head(table: str, timeout: float) -> Effects[Head | None]:
    """Read the head of a catalogue; None if there is no store."""
    head: Entity | None = yield from if_there(read(GetEntity(table, STORE, "head"), timeout))
    return None if head is None else _look(head, table)


def if_there(work: Effects[T]) -> Effects[T | None]:
    """Return what was read; None if there is no such table."""
    try:
        return (yield from work)
    except ErrorResponse as refusal:
        if refusal.code == "TableNotFound":
            return None
        raise


def _look(head: Entity, table: str) -> Head:
    if head.get("format") not in (_UNPREFIXED, _PREFIXED, FORMAT):
        raise NotAStore(
            f"{table} has format {head.get('format')!r}, this tablemapper reads format {FORMAT}; it was left as it is: "
            "upgrade tablemapper"
        )
    try:
        times = head["look"] / 1000, head["deadline"] / 1000
        prefix, claims = str(head.get("prefix", "")), "claims" in head
        needs = frozenset(_decode_needs(head.get("needs", "[]")))
        decoded = Head(int(head["generation"]), str(head["id"]), head[ETAG], *times, prefix, claims, needs)
    except (KeyError, TypeError, ValueError):
        raise CorruptStore(f"{table}: the head of the catalogue cannot be read") from None
    if unknown := sorted(needs - _NEEDS):
        raise NotAStore(
            f"{table} needs {', '.join(unknown)}, which this tablemapper does not know; it was left as it is: upgrade tablemapper"
        )
    return decoded


def read_catalogue(table: str, timeout: float) -> Effects[StoredCatalogue | None]:
    """Read a catalogue; None if there is no store."""
    where = Comparison("PartitionKey", "eq", "String", STORE)
    rows = {row["RowKey"]: row for row in (yield from if_there(found(QueryEntities(table, where), timeout))) or ()}
    if "head" not in rows:
        return None
    head = _look(rows["head"], table)
    try:
        packed = b"".join([msgspec.convert(piece, bytes) for piece in _pieces(rows["body"])])
        body = _decode_body(zlib.decompress(packed))
    except (KeyError, zlib.error, msgspec.MsgspecError) as error:
        raise CorruptStore(f"{table}: the catalogue cannot be read: {error}") from error
    models, versions, states, jobs, tombstones, history, frozen, tables, names = body
    published_at = int(Stamp(head.etag))
    states = {label: state if state.since else replace(state, since=published_at) for label, state in states.items()}
    value = Catalogue(
        models=models,
        versions=Versions(versions),
        states=states,
        jobs=tuple(jobs),
        tombstones=tuple(tombstones),
        history=History(tuple(history)),
        frozen=published_at if frozen == 0 else frozen,
        tables={
            name: Table(names.get(name, name), (), tuple(properties), tuple(types), ())
            for name, (properties, types) in tables.items()
        },
        index_tables=index_tables(models, names),
    )
    return StoredCatalogue(head, value)


def _pieces(body: Entity) -> Iterator[str]:
    number = 0
    while (piece := body.get(f"c{number}")) is not None:
        yield piece
        number += 1


def published(table: str, old: Head, value: Catalogue, attempt: int, until: float) -> Effects[bool]:
    """Publish what becomes of a catalogue; see `published_as`."""
    return published_as(table, old, attrs.evolve(old, generation=old.generation + 1), value, attempt, until)


def published_as(
    table: str, old: Head | None, new: Head, value: Catalogue, attempt: int, until: float
) -> Effects[bool]:
    """Publish a catalogue; return whether it was certainly done, else it is to be read again.

    Args:
        table: of the catalogue.
        old: the head that is replaced, as it was read; None: there is none.
        new: what the head says from now on.
        value: what the store holds and maintains.
        attempt: how often that was tried.
        until: when to give up.

    Raises:
        StoreError: no answer came up to a time.
    """
    try:
        yield within(_publication(table, old, new, value), until - (yield from clock()))
    except NoResponse as no_response:
        if (step := pause(until - (yield from clock()), attempt, no_response)) is None:
            raise StoreError(f"the service does not answer: {no_response}") from None
        yield step
    except ErrorResponse as refusal:
        if refusal.status not in (404, 409, 412):
            raise
        yield delay(0)
    else:
        return True
    return False


def _publication(table: str, old: Head | None, new: Head, value: Catalogue) -> GroupTransaction:
    """Return the request that publishes a catalogue: what came to be so just now has no time yet, but 0."""
    parts = (
        value.models,
        value.versions.by_class,
        value.states,
        value.jobs,
        value.tombstones,
        value.history.entries,
        value.frozen,
        {name: (table.properties, table.types) for name, table in value.tables.items()},
        names_of(value),
    )
    packed = zlib.compress(msgspec.json.encode(parts))
    body: dict[str, Any] = {}
    for number, at in enumerate(range(0, len(packed), _PIECE)):
        body |= {
            f"c{number}": msgspec.to_builtins(packed[at : at + _PIECE]),
            f"c{number}@odata.type": "Edm.Binary",
        }
    head: dict[str, Any] = {
        "generation": new.generation,
        "id": new.id,
        "format": FORMAT if new.needs else _PREFIXED if new.prefix else _UNPREFIXED,
        "look": round(1000 * new.look),
        "deadline": round(1000 * new.deadline),
    }
    head |= ({"prefix": new.prefix} if new.prefix else {}) | ({"claims": 1} if new.claims else {})
    head |= {"needs": msgspec.json.encode(sorted(new.needs)).decode()} if new.needs else {}
    first = RowChange("insert", "head", head) if old is None else RowChange("replace", "head", head, old.etag)
    return GroupTransaction(table, STORE, (first, RowChange("upsert", "body", body)))


def changed(
    table: str, timeout: float, change: Callable[[StoredCatalogue], Catalogue | None]
) -> Effects[StoredCatalogue]:
    """Publish what a function makes of the catalogue, until it has nothing to change.

    Raises:
        SchemaMismatch: others change it all the time.
    """
    until = (yield from clock()) + timeout
    for attempt in range(ATTEMPTS):
        old = yield from read_catalogue(table, timeout)
        if old is None:
            raise no_catalogue(table)
        value = change(old)
        if value is None:
            return old
        yield from published(table, old.head, value, attempt, until)
    raise busy()


def no_catalogue(table: str) -> CorruptStore:
    """Return the error of a catalogue that somebody deleted."""
    return CorruptStore(f"the catalogue {table} is not there any more; tm.open(…, adopt=True) makes it again")


def busy() -> SchemaMismatch:
    """Return the error of who changes a catalogue that others change all the time."""
    return SchemaMismatch("the models", ["others change the catalogue all the time; open the store again"])


# ---------------------------------------------------------------------------------------------- names


def tables_in(value: Catalogue) -> dict[str, str]:
    """Return the tables of classes and of indexes in other partitions, as the account calls them, by their public names."""
    names, forms = names_of(value), value.models.values()
    public = [form.table for form in forms]
    public += [
        index_form.table
        for form in forms
        for index_form in form.indexes.values()
        if index_form.partition != form.partition
    ]
    return {table: names.get(table, table) for table in public}


def every_table(value: Catalogue) -> set[str]:
    """Return all tables of a store, as the account calls them: also those that migrations keep, and that are to be deleted."""
    kept = [table for entry in value.history for table in entry.kept]
    return {*tables_in(value).values(), *kept, *(table for stone in value.tombstones for table in stone.tables)}


def names_of(value: Catalogue) -> dict[str, str]:
    """Return the tables that have another name in the account, by their public ones."""
    tables = {public: table.name for public, table in value.tables.items()}
    for label, name in value.index_tables.items():
        owner, index = Label.of(label)
        if owner in value.models and index in value.models[owner].indexes:
            tables[value.models[owner].indexes[index].table] = name
    return {public: name for public, name in tables.items() if name != public}


def index_tables(forms: Forms, names: Mapping[str, str]) -> dict[str, str]:
    """Return what the account is to call the tables of indexes, by label."""
    return {
        f"{name}.{index}": names.get(index_form.table, index_form.table)
        for name, form in forms.items()
        for index, index_form in form.indexes.items()
    }
