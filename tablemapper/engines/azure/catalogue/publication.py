"""The catalogue of an account, in a table of its own: what the store holds and maintains, and what changes of that.

It is two rows: the head, which says of which generation it is, and the body. Both change in one transaction, under the
ETag of the head that was read. A process believes the head for some seconds; then it looks again. So a change is first
*announced*, and comes into force when every process knows of it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import uuid4

import attrs
import msgspec
from msgspec.structs import replace

from ....catalogue import registration
from ....catalogue.actions import ActionPlan
from ....catalogue.catalogue import Catalogue, JobSpec
from ....catalogue.dropping import without_jobs
from ....catalogue.layout import with_new
from ....catalogue.migration_states import dropped_classes
from ....catalogue.property_names import names_in_use
from ....catalogue.registration import registered, targets
from ....catalogue.tables import Table
from ....catalogue.zone_rules import outdated, ruled_here
from ....entities.etag import Stamp
from ....errors import CorruptStore, NotAStore, SchemaMismatch, StoreError
from ....evolution.definitions import indexes_in
from ....evolution.evolution import Evolution, evolve
from ....evolution.history import History
from ....evolution.versions import Version, Versions
from ....schema.labels import Label
from ....schema.model import Schema, is_local
from ....schema.specs import AppliedSpec, BuildStateSpec, Forms, ModelSpec, TombstoneSpec
from ..cross_partition.outbox import Timing
from ..tables.driver import ATTEMPTS, CLOCK, Effects, clock, delay, found, pause, read, server_time, within
from ..tables.service import (
    ETAG,
    Comparison,
    CreateTable,
    Entity,
    EntityPage,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    RowChange,
)
from .contents import AccountContents

T = TypeVar("T")
FORMAT = 1
_PIECE = 40_000  # bytes of the body in one property
_STORE = "store"
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

    def times(self, own: Timing) -> Timing:
        """Return how long things last in this store."""
        return attrs.evolve(own, look=self.look, deadline=self.deadline)


@attrs.frozen
class StoredCatalogue:
    """What a store holds and maintains, as it was read."""

    head: Head
    value: Catalogue
    """Its tables have no columns. No table ever gets another name; a migration makes new ones, under names of their own."""


# ---------------------------------------------------------------------------------------------- read and published


def read_head(table: str, timeout: float) -> Effects[Head | None]:
    """Read the head of a catalogue; None if there is no store."""
    head: Entity | None = yield from _if_there(read(GetEntity(table, _STORE, "head"), timeout))
    return None if head is None else _look(head, table)


def _if_there(work: Effects[T]) -> Effects[T | None]:
    """Return what was read; None if there is no such table."""
    try:
        return (yield from work)
    except ErrorResponse as refused:
        if refused.code == "TableNotFound":
            return None
        raise


def _look(head: Entity, table: str) -> Head:
    if head.get("format") != FORMAT:
        raise NotAStore(
            f"{table} has format {head.get('format')!r}, this tablemapper reads format {FORMAT}; it was left as it is: "
            "upgrade tablemapper"
        )
    try:
        times = head["look"] / 1000, head["deadline"] / 1000
        return Head(int(head["generation"]), str(head["id"]), head[ETAG], *times)
    except (KeyError, TypeError, ValueError):
        raise CorruptStore(f"{table}: the head of the catalogue cannot be read") from None


def read_catalogue(table: str, timeout: float) -> Effects[StoredCatalogue | None]:
    where = Comparison("PartitionKey", "eq", "String", _STORE)
    rows = {one["RowKey"]: one for one in (yield from _if_there(found(QueryEntities(table, where), timeout))) or ()}
    if "head" not in rows:
        return None
    head = _look(rows["head"], table)
    try:
        packed = b"".join([msgspec.convert(piece, bytes) for piece in _pieces(rows["body"])])
        body = msgspec.json.decode(zlib.decompress(packed), type=_Body)
    except (KeyError, zlib.error, msgspec.MsgspecError) as error:
        raise CorruptStore(f"{table}: the catalogue cannot be read: {error}") from error
    models, versions, states, jobs, tombstones, history, frozen, tables, names = body
    now = int(Stamp(head.etag))
    states = {label: state if state.since else replace(state, since=now) for label, state in states.items()}
    value = Catalogue(
        models=models,
        versions=Versions(versions),
        states=states,
        jobs=tuple(jobs),
        tombstones=tuple(tombstones),
        history=History(tuple(history)),
        frozen=now if frozen == 0 else frozen,
        tables={
            name: Table(names.get(name, name), (), tuple(held), tuple(types), ())
            for name, (held, types) in tables.items()
        },
        index_tables=_index_tables(models, names),
    )
    return StoredCatalogue(head, value)


def _pieces(body: Entity) -> Iterator[str]:
    number = 0
    while (piece := body.get(f"c{number}")) is not None:
        yield piece
        number += 1


def _publication(table: str, old: Head | None, value: Catalogue, times: Timing = Timing()) -> GroupTransaction:  # noqa: B008
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
    head = {
        "generation": 1 if old is None else old.generation + 1,
        "id": uuid4().hex if old is None else old.id,
        "format": FORMAT,
        "look": round(1000 * (times.look if old is None else old.look)),
        "deadline": round(1000 * (times.deadline if old is None else old.deadline)),
    }
    first = RowChange("insert", "head", head) if old is None else RowChange("replace", "head", head, old.etag)
    return GroupTransaction(table, _STORE, (first, RowChange("upsert", "body", body)))


def _published(commit: GroupTransaction, attempt: int, until: float) -> Effects[bool]:
    """Publish a catalogue; return whether it was certainly done, else it is to be read again.

    Raises:
        StoreError: no answer came up to a time.
    """
    try:
        yield within(commit, until - (yield from clock()))
    except NoResponse as lost:
        if (step := pause(until - (yield from clock()), attempt, lost)) is None:
            raise StoreError(f"the service does not answer: {lost}") from None
        yield step
    except ErrorResponse as refused:
        if refused.status not in (404, 409, 412):
            raise
        yield delay(0)
    else:
        return True
    return False


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
            raise NotAStore(f"there is no catalogue {table} any more")
        value = change(old)
        if value is None:
            return old
        yield from _published(_publication(table, old.head, value), attempt, until)
    raise _busy()


def _busy() -> SchemaMismatch:
    return SchemaMismatch("the models", ["others change the catalogue all the time; open the store again"])


# ---------------------------------------------------------------------------------------------- opened


def open_catalogue(
    table: str,
    schema: Schema,
    timeout: float,
    times: Timing,
    *,
    follows: bool = False,
    names: Mapping[str, str] = MappingProxyType({}),
) -> Effects[StoredCatalogue]:
    """Return the catalogue of a store, to which a schema was added.

    What is maintained by other rules of a time zone is given up, unless they are those of a newer release.

    Args:
        table: of the catalogue.
        schema: the opened classes.
        timeout: seconds after which to give up, if no answer comes.
        times: how long things last in a store that is created.
        follows: whether the process has the store open already, so that it gives nothing up.
        names: how the account is to call tables that are created.

    Raises:
        SchemaMismatch: it differs in a way that opening cannot take over.
        NotAStore: a table is somebody else's.
    """
    until = (yield from clock()) + timeout
    for attempt in range(ATTEMPTS):
        old = yield from read_catalogue(table, timeout)
        value = Catalogue() if old is None else old.value
        contents = AccountContents(value)
        evolved = partial(evolve, value.models, value.versions, schema, contents, value.history)
        evolution = evolved(now=time.time_ns() // 1000)
        while (yield from contents.look(timeout)):
            evolution = evolved(now=time.time_ns() // 1000)
        if faults := [*evolution.faults, *names_in_use(value, evolution), *_not_yet(evolution, value, schema)]:
            forms = {model.name: model.form for model in schema.models}
            raise SchemaMismatch(
                "the models are not those that the store was written with",
                faults,
                changes=evolution.stopping,
                old=value.models,
                new=forms,
            )
        if old is not None and not evolution.changed and not evolution.extends:
            anew = None if follows else given_up(old, outdated(value))
            if anew is None:
                return old
            yield from _published(_publication(table, old.head, anew), attempt, until)
            continue
        created = yield from read(CreateTable(table), timeout)
        if old is None and not created and (yield from _is_foreign(table, timeout)):
            raise NotAStore(f"the table {table} is not that of a store; name another catalogue: azure://account/name")
        for name in _new_tables(value, schema):
            called = names.get(name, name)
            created = yield from read(CreateTable(called), timeout)
            if not created and (yield from _is_foreign(called, timeout)):
                again = yield from read_catalogue(table, timeout)
                if again is None or name not in _tables(again.value.models):
                    raise NotAStore(
                        f"the table {name} holds entities, and the catalogue {table} does not know it: it is somebody "
                        "else's; choose another table="
                    )
        head, now = None if old is None else old.head, (yield from server_time(table, timeout))
        after = _opened(value, evolved(now=now), head, now, names)  # (the clocks of programs may differ)
        yield from _published(_publication(table, head, after, times), attempt, until)
        # (It is read again, with the time at which it was published.)
    raise _busy()


def _opened(held: Catalogue, evolution: Evolution, head: Head | None, now: int, names: Mapping[str, str]) -> Catalogue:
    """Return a catalogue that holds what an evolution adds; what is new over known classes is announced."""
    states = with_new(held.states, evolution, now)
    # (When something was announced, or begun, says how long others may not know of it.)
    states |= {
        label: replace(states[label], since=state.since)
        for label, state in held.states.items()
        if state.state in ("announced", "building")
    }
    models, versions = evolution.models_after, evolution.versions_after
    after = attrs.evolve(
        held,
        models=models,
        versions=versions,
        states=states,
        tables=_with_names(held.tables, models, names),
        index_tables=_index_tables(models, names) | held.index_tables,
    )
    if head is None:
        return after
    number, wanted = head.generation + 1, targets(evolution, held.models.keys())
    grouped = [wanted.pop(owner) for owner in list(wanted) if models[owner].source is not None]
    after = registered(after, wanted, BuildStateSpec("announced", 0, number=number), number)
    # (An index on groups that are there comes with the aggregate, which is built anew.)
    return given_up(StoredCatalogue(head, after), [label for labels in grouped for label in sorted(labels)]) or after


def names_of(value: Catalogue) -> dict[str, str]:
    """Return the tables that have another name in the account, by their public ones."""
    tables = {public: table.name for public, table in value.tables.items()}
    for label, name in value.index_tables.items():
        owner, index = Label.of(label)
        if owner in value.models and index in value.models[owner].indexes:
            tables[value.models[owner].indexes[index].table] = name
    return {public: name for public, name in tables.items() if name != public}


def _index_tables(forms: Forms, names: Mapping[str, str]) -> dict[str, str]:
    return {
        f"{name}.{index}": names.get(each.table, each.table)
        for name, form in forms.items()
        for index, each in form.indexes.items()
    }


def _with_names(tables: Mapping[str, Table], forms: Forms, names: Mapping[str, str]) -> dict[str, Table]:
    """Return tables in which all properties have names: their own, unless entities have another one under that."""
    after = dict(tables)
    for name, form in forms.items():
        table = after.get(form.table, Table(names.get(form.table, form.table), (), (), (), ()))
        held = dict(table.properties)
        for property, field in form.fields.items():
            stored, number = property, 2
            while property not in held and not field.in_key and stored in held.values():
                stored, number = f"{property}_{number}", number + 1
            if not field.in_key:
                held.setdefault(property, stored)
        types = table.types if name in table.types else (*table.types, name)
        after[form.table] = attrs.evolve(table, properties=tuple(held.items()), types=types)
    return after


def given_up(held: StoredCatalogue, labels: Iterable[str], *, while_built: bool = False) -> Catalogue | None:
    """Return the catalogue in which some of what is ready is to be built anew, by the rules of time zones that are here.

    An index on an aggregate is built with that. None: nothing of it is ready.

    Args:
        held: the catalogue.
        labels: of what is to be built anew.
        while_built: whether that is given up, too, which is being built.
    """
    number, models, states = held.head.generation + 1, held.value.models, held.value.states
    given = ("ready", "building", "violated") if while_built else ("ready",)
    wanted: dict[str, set[str]] = {}
    for label in labels:
        owner = Label.of(label).owner
        source = models[owner].source
        all_of_it = {label} if source is None else {owner, *(f"{owner}.{name}" for name in models[owner].indexes)}
        if all(states[one].state in given for one in all_of_it):
            wanted.setdefault(source or owner, set()).update(all_of_it)
    if not wanted:
        return None
    value = without_jobs(ActionPlan(0, tuple), held.value, set().union(*wanted.values())) if while_built else held.value
    after = registered(value, wanted, BuildStateSpec("disabled", 0, number=number), number)
    ruled = {label: ruled_here(models, label, after.states[label]) for some in wanted.values() for label in some}
    return attrs.evolve(after, states=after.states | ruled)


def as_it_is(
    table: str, schema: Schema | None, timeout: float, known: Schema | None = None
) -> Effects[tuple[Schema, StoredCatalogue]]:
    """Return the classes of a store that is not to be changed: those of a schema, or those of its catalogue that do not end.

    Of these, the ones that are as they were in what is known of it stay the same classes.

    Raises:
        NotAStore: there is none.
        SchemaMismatch: it would have to be changed for the schema.
    """
    held = yield from read_catalogue(table, timeout)
    if held is None:
        raise NotAStore(
            f"there is no store in this account, as it has no catalogue {table}; open it with models to create one"
        )
    value = held.value
    ending = {name for entry in value.history if entry.contracted for name in dropped_classes(value, entry.id)}
    stays = attrs.evolve(value, models={name: form for name, form in value.models.items() if name not in ending})

    def compare(one: Schema) -> Evolution:
        return evolve(value.models, value.versions, one, AccountContents(value), value.history)

    return registration.as_it_is("the store", schema, stays, compare, known), held


def _tables(forms: Mapping[str, ModelSpec]) -> set[str]:
    """Return the tables of classes and of indexes."""
    return {form.table for form in forms.values()} | {
        index.table for form in forms.values() for index in form.indexes.values()
    }


def _is_foreign(table: str, timeout: float) -> Effects[bool]:
    page: EntityPage = yield from read(QueryEntities(table, top=2), timeout)
    # (Who creates a store writes the row of the clock first.)
    return any(
        one["PartitionKey"] != _STORE and (one["PartitionKey"], one["RowKey"]) != (CLOCK, "") for one in page.entities
    )


def tables_of(schema: Schema) -> list[str]:
    """Return the tables of classes, and of their indexes that have some, by their public names."""
    outer = [one.table for model in schema.models for one in model.indexes if not is_local(model, one)]
    return list(dict.fromkeys([*(model.table for model in schema.models), *outer]))


def _new_tables(held: Catalogue, schema: Schema) -> list[str]:
    """Return the tables of classes and indexes that a catalogue does not have yet."""
    return [name for name in tables_of(schema) if name not in _tables(held.models)]


def _not_yet(evolution: Evolution, held: Catalogue, schema: Schema) -> Iterator[str]:
    """Yield what cannot be built over entities, or beside another definition of the same name."""
    over = "over a class that the store has on Azure Tables yet; tm.copy the store into a new one, in another account"
    ending = {label: entry.id for entry in held.history if entry.contracted for label in entry.drops}
    for model in schema.models:
        if model.name in ending:
            yield f"{model.name}: {ending[model.name]} drops what has this name, and is being contracted: wait until that has ended"
    kept = {table: entry.id for entry in held.history for table in entry.kept}
    for name in _new_tables(held, schema):
        if name in kept:
            yield (
                f'the table "{name}" has what {kept[name]} replaced: contract that first (tm.migrate with contract=True), or '
                "choose another table="
            )
    for label in evolution.former:
        yield f"{label}: two definitions of one name cannot be in a store on Azure Tables yet; give the new one another name"
    for model, name in evolution.indexes:
        if model.aggregate is not None and held.states[model.name].state != "ready":
            yield f"{model.name}.{name}: {model.name} is being built; add the index to it once it is ready"
    for model in schema.models:
        form = held.models.get(model.name)
        for own, other in indexes_in({} if form is None else form.indexes, model.form.indexes).items():
            if own != other:
                yield f"{model.name}.{own}: the store has this index as {other}; call it so, as Azure Tables keep its rows by that name"
    for model in evolution.typed:
        yield f"{model.name}: a type name cannot be set {over}"
