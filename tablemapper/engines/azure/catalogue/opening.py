"""A store is opened with classes: its catalogue gets what they add, and the account the tables that they lack."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from uuid import uuid4

import attrs
from msgspec.structs import replace

from ....catalogue import registration
from ....catalogue.actions import ActionPlan
from ....catalogue.catalogue import Catalogue
from ....catalogue.dropping import without_jobs
from ....catalogue.layout import with_new
from ....catalogue.migration_states import dropped_classes
from ....catalogue.property_names import names_in_use
from ....catalogue.registration import registered, targets
from ....catalogue.tables import Table
from ....catalogue.zone_rules import outdated, ruled_here
from ....errors import InvalidModel, NotAStore, SchemaMismatch
from ....evolution.definitions import indexes_in
from ....evolution.evolution import Evolution, evolve
from ....evolution.history import History
from ....evolution.versions import Versions
from ....limits import MAX_TABLE
from ....schema.labels import Label
from ....schema.model import Model, Schema
from ....schema.specs import BuildStateSpec, Forms, ModelSpec
from ..cross_partition.outbox import Timing
from ..tables.driver import ATTEMPTS, CLOCK, Effects, clock, read, server_time, side_by_side
from ..tables.reserved_names import digest, fresh_table
from ..tables.service import Entity, EntityPage, QueryEntities
from .adoption import Adopted, Adoption, holds_ours, last_build, tables_of
from .claims import NO_NAMES, TableNames, TableView, claimed, listed, looked_at, made, replaceable
from .contents import AccountContents
from .publication import (
    STORE,
    UNWRITTEN,
    Head,
    StoredCatalogue,
    busy,
    if_there,
    index_tables,
    needs_of,
    published_as,
    read_catalogue,
    read_head,
    tables_in,
)


def open_catalogue(
    table: str,
    schema: Schema,
    timeout: float,
    times: Timing,
    *,
    follows: bool = False,
    names: Mapping[str, str] = MappingProxyType({}),
    prefix: str = "",
    adopt: Adopted = False,
    owner: str = "",
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
        prefix: what it calls the others begins with, in a store that is created.
        adopt: the tables that may hold rows already.
        owner: the catalogue that new tables belong to, if that is another one.

    Raises:
        SchemaMismatch: it differs in a way that opening cannot take over.
        NotAStore: a table is somebody else's.
    """
    until = (yield from clock()) + timeout
    opener = _Opener(table, schema, timeout, names, prefix, Adoption(schema, adopt, owner or table))
    all_classes = schema
    for attempt in range(ATTEMPTS):
        old, tables = yield from opener.read(follows=follows)
        value = Catalogue() if old is None else old.value
        schema = without_dropped(all_classes, value)[0] if follows else all_classes
        contents = AccountContents(value)
        evolved = partial(evolve, value.models, value.versions, schema, contents, value.history)
        evolution = evolved(now=time.time_ns() // 1000)
        while (yield from contents.look(timeout)):
            evolution = evolved(now=time.time_ns() // 1000)
        if faults := [*evolution.faults, *names_in_use(value, evolution), *_not_yet(evolution, value, schema, old)]:
            forms = {model.name: model.form for model in schema.models}
            raise SchemaMismatch(
                "the models are not those that the store was written with",
                faults,
                changes=evolution.stopping,
                old=value.models,
                new=forms,
            )
        if old is not None and not follows and (mended := (yield from opener.mended(old, tables))) is not None:
            head = attrs.evolve(old.head, generation=old.head.generation + 1, claims=True)
            yield from published_as(table, old.head, head, mended, attempt, until)
            continue
        if old is not None and not evolution.changed and not evolution.extends:
            rebuilding = None if follows else given_up(old, outdated(value))
            head = old.next_head(schema, old.head.generation + 1)
            if rebuilding is None and head.needs == old.head.needs:
                return old
            yield from published_as(table, old.head, head, rebuilding or value, attempt, until)
            continue
        taken_tables = yield from opener.tables_taken(old, tables)
        if taken_tables is None:
            continue
        server_now = yield from server_time(table, timeout)
        head = opener.head(old, times, taken_tables, server_now)
        # (The clocks of programs may differ.)
        catalogue = _extended(
            value, evolved(now=server_now), None if old is None else old.head, server_now, taken_tables, head.generation
        )
        yield from published_as(table, None if old is None else old.head, head, catalogue, attempt, until)
        # (It is read again, with the time at which it was published.)
    raise busy()


@attrs.frozen
class _Taken:
    """The tables that a store took."""

    names: Mapping[str, str]
    """Their names in the account, by their public ones."""
    to_build: Mapping[str, set[str]] = MappingProxyType({})
    """What is to be built from those that held rows, by class."""
    is_ours: bool = False
    """Whether this library wrote some of these."""
    last_build: int = 0
    """The greatest number of a build that their entities are marked with, as far as they were looked at."""


@attrs.define(eq=False)
class _Opener:
    """Opens a store: looks at the tables that it is to have, and creates, or takes, what it lacks."""

    table: str
    schema: Schema
    timeout: float
    names: Mapping[str, str]
    prefix: str
    adoption: Adoption
    _created: set[str] = attrs.field(factory=set)
    """Tables that are certainly there, in lower case."""

    def read(self, *, follows: bool) -> Effects[tuple[StoredCatalogue | None, TableNames]]:
        """Read the catalogue and, where the store is being opened, which tables there are."""
        if follows:
            return (yield from read_catalogue(self.table, self.timeout)), NO_NAMES
        public = tables_of(self.schema)
        works: list[Effects[StoredCatalogue | TableNames | None]] = [
            read_catalogue(self.table, self.timeout),
            listed([self.prefix] if self.prefix else public),
        ]
        old, tables = yield from side_by_side(works)
        assert not isinstance(old, TableNames)
        assert isinstance(tables, TableNames)
        if old is not None and self.prefix and not old.head.prefix:  # (it was created when a name was no prefix)
            tables = yield from listed(public)
        return old, tables

    def _has(self, tables: TableNames, name: str) -> bool | None:
        return True if name.lower() in self._created else tables.has(name)

    # -- what is there already

    def mended(self, old: StoredCatalogue, tables: TableNames) -> Effects[Catalogue | None]:
        """Return what becomes of a catalogue whose tables lack claims, or are not there any more; None: it is as it should be."""
        table_names = tables_in(old.value)
        if not old.head.claims:  # (an older version created it; in tables of indexes that would not know a claim)
            claimed_names = {table_names[form.table] for form in old.value.models.values()}
            yield from side_by_side(
                [if_there(claimed(name, self.table, self.timeout)) for name in sorted(claimed_names)]
            )
            return old.value
        missing = [public for public, name in table_names.items() if self._has(tables, name) is False]
        created = yield from side_by_side([made(table_names[public], self.timeout) for public in missing])
        recreated = {public for public, is_new in zip(missing, created, strict=True) if is_new}
        yield from side_by_side(
            [claimed(table_names[public], self.table, self.timeout) for public in sorted(recreated)]
        )
        return given_up(old, _maintained_there(old.value, recreated), while_built=True)

    # -- what comes

    def tables_taken(self, old: StoredCatalogue | None, tables: TableNames) -> Effects[_Taken | None]:
        """Create the tables that a store lacks, or take those that are there; None: others change it meanwhile.

        Nothing is written before all of them were looked at.

        Raises:
            NotAStore: one is somebody else's.
        """
        prefix = self.prefix if old is None else old.head.prefix
        dropped_tables = {} if old is None else _dropped_tables(old.value)
        table_names = {
            public: self.names.get(public)
            or (fresh_table(prefix + public, dropped_tables[public]) if public in dropped_tables else prefix + public)
            for public in tables_of(self.schema)
        }
        new = [public for public in table_names if old is None or public not in _public_tables(old.value.models)]
        _check_names(table_names, new, prefix)
        works: list[Effects[TableView | None]] = [
            nothing()
            if self._has(tables, table_names[public]) is False
            else looked_at(table_names[public], self.timeout)
            for public in new
        ]
        views = dict(zip(new, (yield from side_by_side(works)), strict=True))
        existing = {public: view for public, view in views.items() if view is not None}
        if existing:  # (who opened it at the same time may have written entities)
            head = yield from read_head(self.table, self.timeout)
            if (head and head.generation) != (old and old.head.generation):
                return None
        claims = yield from self._claims(existing)
        if old is None:
            yield from self._check_catalogue(tables)
        yield from made(self.table, self.timeout)
        takes = [self._take(table_names[public], views[public], claims.get(public)) for public in new]
        if not all((yield from side_by_side(takes))):
            return None
        filled = [public for public, view in existing.items() if view.rows]
        is_ours = any(holds_ours(self.schema, public, existing[public]) for public in filled)
        newest_build = max([last_build(existing[public]) for public in filled], default=0)
        return _Taken(table_names, self.adoption.to_build(filled), is_ours, newest_build)

    def _claims(self, existing: Mapping[str, TableView]) -> Effects[dict[str, Entity | None]]:
        """Return the claims that are replaced in tables that are there.

        Raises:
            NotAStore: one is not to be taken, or cannot be.
        """
        claims: dict[str, Entity | None] = {}
        adoption = self.adoption
        for name, view in existing.items():
            claims[name] = yield from replaceable(view, adoption.catalogue, self.timeout, adopt=adoption.has(name))
        for name, view in existing.items():
            if view.rows:
                adoption.check(name, view)
        return claims

    def _check_catalogue(self, tables: TableNames) -> Effects[None]:
        if self._has(tables, self.table) is not False and (yield from _is_foreign(self.table, self.timeout)):
            raise NotAStore(
                f"the table {self.table} is not that of a store; name another catalogue: azure://account/name"
            )

    def _take(self, name: str, view: TableView | None, instead: Entity | None) -> Effects[bool]:
        """Create a table, unless it is there, and claim it; return whether it was looked at, or is new."""
        if view is None:
            is_new = yield from made(name, self.timeout)
            self._created.add(name.lower())
            if not is_new:
                return False
        yield from claimed(name, self.adoption.catalogue, self.timeout, instead)
        return True

    def head(self, old: StoredCatalogue | None, times: Timing, taken_tables: _Taken, server_now: int) -> Head:
        """Return the head of the catalogue that has the tables that were taken.

        Where they held rows, its generation is above all builds of a catalogue that was lost: their marks are in entities.
        """
        number = 1 if old is None else old.head.generation + 1
        if taken_tables.to_build:
            number = max(number, server_now // 60_000_000, taken_tables.last_build + 1)
        if old is None:
            needs = needs_of(self.schema, ())
            return Head(number, uuid4().hex, "", times.look, times.deadline, self.prefix, needs=needs)
        return old.next_head(self.schema, number)


def without_dropped(schema: Schema, value: Catalogue) -> tuple[Schema, dict[Model, str]]:
    """Return the classes that were not dropped since they were opened, and what to say of each that was."""
    stones = {model: value.gone(model.name, model.form) for model in schema.models}
    messages = {model: str(stone) for model, stone in stones.items() if stone is not None and stone.returns is True}
    return Schema(tuple([model for model in schema.models if model not in messages])) if messages else schema, messages


def _dropped_tables(value: Catalogue) -> dict[str, str]:
    """Return the tables of classes that were dropped, each with what makes the name of the next one another one.

    The service may take a minute to delete a table, and others still read the old catalogue.
    """
    tables: dict[str, str] = {}
    for stone in value.tombstones:
        if stone.returns is True:
            token = digest(f"{stone.label} {stone.since}")[:8]
            forms = [stone.form, *stone.form.get("indexes", {}).values()]
            tables |= {form["table"]: token for form in forms if "table" in form}
    return tables


def nothing() -> Effects[None]:
    """Return None, without a request."""
    return None
    yield


def _check_names(table_names: Mapping[str, str], new: Iterable[str], prefix: str) -> None:
    """Refuse names of tables that are too long with their prefix, or that another one has with it."""
    long = [table_names[public] for public in new if len(table_names[public]) > MAX_TABLE]
    faults = [f"{public}: {len(public)} characters, of which the name of a table has {MAX_TABLE}" for public in long]
    if faults:
        faults.append(f"take a shorter prefix than {prefix}, or a shorter table=")
    of = {name.lower(): public for public, name in table_names.items() if name != public}
    for public, name in table_names.items():
        if name != public and public.lower() in of:
            faults.append(
                f'the table "{public}" has the name that "{of[public.lower()]}" has with the prefix {prefix}; choose another table='
            )
    if faults:
        raise InvalidModel("Azure Tables", faults)


def _maintained_there(value: Catalogue, tables: Collection[str]) -> list[str]:
    """Return the labels of what is maintained in some tables, or from what was in them, and lies in more than one."""
    labels = []
    for name, form in value.models.items():
        source = form if form.source is None else value.models[form.source]
        used_tables = {source.table, form.table}
        if form.source is not None and len(used_tables) > 1 and used_tables & set(tables):
            labels.append(name)
        for index, index_form in form.indexes.items():
            if index_form.partition != form.partition and {*used_tables, index_form.table} & set(tables):
                labels.append(f"{name}.{index}")
    return labels


def _extended(
    stored_catalogue: Catalogue,
    evolution: Evolution,
    head: Head | None,
    server_now: int,
    taken_tables: _Taken,
    number: int,
) -> Catalogue:
    """Return a catalogue that holds what an evolution adds; what is new over known classes is announced.

    What is to be built from tables that were taken over is built at once: as no catalogue had their classes, nobody can be
    writing them by another one. What this library wrote of it before is deleted first.
    """
    names = taken_tables.names
    states = with_new(stored_catalogue.states, evolution, server_now)
    # (When something was announced, or begun, says how long others may not know of it.)
    states |= {
        label: replace(states[label], since=state.since)
        for label, state in stored_catalogue.states.items()
        if state.state in ("announced", "building")
    }
    models, versions = evolution.models_after, evolution.versions_after
    catalogue = attrs.evolve(
        stored_catalogue,
        models=models,
        versions=versions,
        states=states,
        tables=_with_names(stored_catalogue.tables, models, names),
        index_tables=index_tables(models, names) | stored_catalogue.index_tables,
    )
    to_build = targets(evolution, stored_catalogue.models.keys())
    adopted = {owner: labels | to_build.pop(owner, set()) for owner, labels in taken_tables.to_build.items()}
    state = (
        BuildStateSpec("disabled", 0, number=number)
        if taken_tables.is_ours
        else BuildStateSpec("building", 1, number=number)
    )
    catalogue = registered(catalogue, adopted, state, number)
    if head is None:
        return catalogue
    grouped = [to_build.pop(owner) for owner in list(to_build) if models[owner].source is not None]
    catalogue = registered(catalogue, to_build, BuildStateSpec("announced", 0, number=number), number)
    # (An index on groups that are there comes with the aggregate, which is built anew.)
    head = attrs.evolve(head, generation=number - 1)
    return (
        given_up(StoredCatalogue(head, catalogue), [label for labels in grouped for label in sorted(labels)])
        or catalogue
    )


def _with_names(tables: Mapping[str, Table], forms: Forms, names: Mapping[str, str]) -> dict[str, Table]:
    """Return tables in which all properties have names: their own, unless entities have another one under that."""
    named_tables = dict(tables)
    for name, form in forms.items():
        table = named_tables.get(form.table, Table(names.get(form.table, form.table), (), (), (), ()))
        properties = dict(table.properties)
        for property, field in form.fields.items():
            stored_name, number = property, 2
            while property not in properties and not field.in_key and stored_name in properties.values():
                stored_name, number = f"{property}_{number}", number + 1
            if not field.in_key:
                properties.setdefault(property, stored_name)
        types = table.types if name in table.types else (*table.types, name)
        named_tables[form.table] = attrs.evolve(table, properties=tuple(properties.items()), types=types)
    return named_tables


def given_up(
    stored_catalogue: StoredCatalogue, labels: Iterable[str], *, while_built: bool = False
) -> Catalogue | None:
    """Return the catalogue in which some of what is ready is to be built anew, by the rules of time zones that are here.

    An index on an aggregate is built with that. None: nothing of it is ready.

    Args:
        stored_catalogue: the catalogue.
        labels: of what is to be built anew.
        while_built: whether that is given up, too, which is being built.
    """
    number, models, states = (
        stored_catalogue.head.generation + 1,
        stored_catalogue.value.models,
        stored_catalogue.value.states,
    )
    states_to_rebuild = ("ready", "building", "violated") if while_built else ("ready",)
    to_rebuild: dict[str, set[str]] = {}
    for label in labels:
        owner = Label.of(label).owner
        source = models[owner].source
        all_of_it = {label} if source is None else {owner, *(f"{owner}.{name}" for name in models[owner].indexes)}
        if all(states[part].state in states_to_rebuild for part in all_of_it):
            to_rebuild.setdefault(source or owner, set()).update(all_of_it)
    if not to_rebuild:
        return None
    value = (
        without_jobs(ActionPlan(0, tuple), stored_catalogue.value, set().union(*to_rebuild.values()))
        if while_built
        else stored_catalogue.value
    )
    catalogue = registered(value, to_rebuild, BuildStateSpec("disabled", 0, number=number), number)
    ruled = {
        label: ruled_here(models, label, catalogue.states[label])
        for labels_of_owner in to_rebuild.values()
        for label in labels_of_owner
    }
    return attrs.evolve(catalogue, states=catalogue.states | ruled)


def as_it_is(
    table: str,
    schema: Schema | None,
    timeout: float,
    known_schema: Schema | None = None,
    *,
    prefix: str = "",
    adopt: Adopted = False,
) -> Effects[tuple[Schema, StoredCatalogue]]:
    """Return the classes of a store that is not to be changed: those of a schema, or those of its catalogue that do not end.

    Of these, the ones that are as they were in what is known of it stay the same classes. Without a catalogue, tables that
    are adopted are read as the classes say; nothing that is maintained from them is ready.

    Raises:
        NotAStore: there is none.
        SchemaMismatch: it would have to be changed for the schema.
    """
    stored_catalogue = yield from read_catalogue(table, timeout)
    if stored_catalogue is None and adopt and schema is not None:
        return schema, (yield from _unwritten(schema, timeout, prefix, Adoption(schema, adopt, table)))
    if stored_catalogue is None:
        raise NotAStore(
            f"there is no store in this account, as it has no catalogue {table}; open it with models to create one, or adopt "
            "tables that are there (tablemapper adopt)"
        )
    value = stored_catalogue.value
    ending = {name for entry in value.history if entry.contracted for name in dropped_classes(value, entry.id)}
    stays = attrs.evolve(value, models={name: form for name, form in value.models.items() if name not in ending})

    def compare(classes: Schema) -> Evolution:
        return evolve(value.models, value.versions, classes, AccountContents(value), value.history)

    return registration.as_it_is("the store", schema, stays, compare, known_schema), stored_catalogue


def _unwritten(schema: Schema, timeout: float, prefix: str, adoption: Adoption) -> Effects[StoredCatalogue]:
    """Return the catalogue that tables would have, if they were adopted."""
    table_names = {public: prefix + public for public in tables_of(schema)}
    classes = [model for model in schema.models if model.aggregate is None]
    views = yield from side_by_side([looked_at(table_names[model.table], timeout) for model in classes])
    for model, view in zip(classes, views, strict=True):
        if view is None:
            raise NotAStore(
                f"the table {table_names[model.table]} of {model.name} is not there, and nothing is created with read_only=True"
            )
        adoption.check(model.table, view)
    evolution = evolve({}, Versions(), schema, AccountContents(Catalogue()), History(()), now=time.time_ns() // 1000)
    taken_tables = _Taken(table_names, adoption.to_build([model.table for model in classes]), is_ours=True)
    value = _extended(Catalogue(), evolution, None, 0, taken_tables, 1)
    return StoredCatalogue(attrs.evolve(UNWRITTEN, prefix=prefix), attrs.evolve(value, jobs=()))


def _public_tables(forms: Mapping[str, ModelSpec]) -> set[str]:
    """Return the tables of classes and of indexes."""
    return {form.table for form in forms.values()} | {
        index.table for form in forms.values() for index in form.indexes.values()
    }


def _is_foreign(table: str, timeout: float) -> Effects[bool]:
    page: EntityPage | None = yield from if_there(read(QueryEntities(table, top=2), timeout))
    # (Who creates a store writes the row of the clock first.)
    return page is not None and any(
        row["PartitionKey"] != STORE and (row["PartitionKey"], row["RowKey"]) != (CLOCK, "") for row in page.entities
    )


def _not_yet(
    evolution: Evolution, stored_catalogue: Catalogue, schema: Schema, old: StoredCatalogue | None
) -> Iterator[str]:
    """Yield what cannot be built over entities, or beside another definition of the same name."""
    over = "over a class that the store has on Azure Tables yet; tm.copy the store into a new one, in another account"
    ending = {label: entry.id for entry in stored_catalogue.history if entry.contracted for label in entry.drops}
    for model in schema.models:
        if model.name in ending:
            yield f"{model.name}: {ending[model.name]} drops what has this name, and is being contracted: wait until that has ended"
    kept_tables = {table.lower(): entry.id for entry in stored_catalogue.history for table in entry.kept}
    for public in tables_of(schema):
        name = f"{'' if old is None else old.head.prefix}{public}"
        if name.lower() in kept_tables and public not in _public_tables(stored_catalogue.models):
            yield (
                f'the table "{name}" has what {kept_tables[name.lower()]} replaced: contract that first (tm.migrate with contract=True), or '
                "choose another table="
            )
    for label in evolution.former:
        yield f"{label}: two definitions of one name cannot be in a store on Azure Tables yet; give the new one another name"
    for model, name in evolution.indexes:
        if model.aggregate is not None and stored_catalogue.states[model.name].state != "ready":
            yield f"{model.name}.{name}: {model.name} is being built; add the index to it once it is ready"
    for model in schema.models:
        form = stored_catalogue.models.get(model.name)
        for index_name, stored_index in indexes_in({} if form is None else form.indexes, model.form.indexes).items():
            if index_name != stored_index:
                yield f"{model.name}.{index_name}: the store has this index as {stored_index}; call it so, as Azure Tables keep its rows by that name"
    for model in evolution.typed:
        yield f"{model.name}: a type name cannot be set {over}"
