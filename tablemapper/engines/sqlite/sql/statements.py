"""The SQL of a schema over one file: the statements of its classes, its indexes and its aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache, partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, TypeVar

import attrs

from ....codegen import compile_functions
from ....entities.aggregates import keeper_name, kept_field
from ....entities.declaration import IndexModel
from ....entities.fields import FieldModel
from ....errors import SchemaMismatch
from ....evolution.definitions import aggregate_in, as_declared, indexes_in, is_former
from ....evolution.following import Followed, depth_of, follow, owners_of
from ....evolution.rules import reads, retirement
from ....schema.maintenance import IndexMaintenance, Maintenance, aggregate_maintenance, index_columns, maintenance
from ....schema.model import Model, Schema
from ....schema.rows import FIRST, Row
from ..driver.functions import SqlFunction
from .catalogue import Catalogue, CopyForm, Twin, values_label
from .maintained_tables import IndexTable, Values, upsert
from .names import guests, seen_by
from .tables import FIXED, EntityTable, has_values, literal, quoted, short
from .zone_rules import refused_writes, states_here

__all__ = ["SPILL_ROW", "ByModel", "Job", "SqliteSchema", "Statements"]

SPILL_ROW = 400  # characters of long values above which a row's are moved aside
SPILL_VALUE = 64  # a value longer than this is then moved
T = TypeVar("T")
_NOTHING: Mapping[str, tuple[str, str]] = MappingProxyType({})
WIDE = 4  # properties of bytes: so many are the parts of one large value, and all of them are moved


@attrs.frozen(eq=False)
class Job:
    """What is being built of one class, in one pass over its entities; see `jobs`."""

    name: str
    model: Model
    targets: Maintenance
    labels: frozenset[str]
    """All that is ready once it ends: the indexes on new aggregates, too, which need no pass of their own."""


class ByModel(dict[Model, T]):
    """Something for each class; none for those that were retired.

    Raises SchemaMismatch for these.
    """

    def __init__(self, retired: Mapping[str, str]) -> None:
        super().__init__()
        self._retired = retired

    def __missing__(self, model: Model) -> T:
        if (reason := self._retired.get(model.name)) is None:
            raise KeyError(model.name)
        raise SchemaMismatch(model.name, [reason])


class SqliteSchema:
    """A schema over the tables of one file: the statements of every model, and what is maintained from it.

    Attributes:
        stored: the catalogue of the file.
        catalogue: the same as the classes know it, which may have other names.
        generation: of the catalogue that says so.
        plain: whether rows are written as the classes make them, and nothing is being built.
        followed: the classes that are more in the file than in the code.
        names: the names of the classes in the catalogue: another one for an aggregate of a former definition.
        models: what is maintained: the classes, and the aggregates of them that are not opened.
        lacking: by class and index, the fields that the index does not hold, though it is declared to: later ones.
        jobs: what is being built of each class; it is maintained for the entities that its job has passed.
        copies: what a migration copies of each class; entities that change behind its cursor are queued for it.
        twins: of each class, what it was or is on the other side of a migration; that is kept in step.
        guests: those in whose tables the classes are that are opened.
        sides: what is kept in step, as it was made for the first write.
        unready: the indexes and aggregates that cannot be read yet, by label, with their states.
        contested: the unique indexes that values may be held twice in; whether a further holder is noted (else refused).
        retired: the classes, by name, that cannot go on as they are, and why.
    """

    def __init__(self, schema: Schema, catalogue: Catalogue, generation: int = 0) -> None:
        self.stored = catalogue
        self.guests = guests(catalogue, schema.models)
        catalogue, self._renames = seen_by(catalogue, schema)
        self.retired: dict[str, str] = {}
        for model in schema.models:
            of = model if model.aggregate is None else schema.by_class[model.aggregate.source]
            kept_by = [schema.by_name[keeper_name(model.name, field.property)] for field in model.maintained]
            kept_by += [schema.by_class[one.aggregate.source] for one in kept_by if one.aggregate is not None]
            for one in (of, *kept_by, model):
                reason = retirement(one, catalogue.versions) or self._dropped(catalogue, one)
                if reason is not None:
                    self.retired[model.name] = (
                        reason
                        if one is model
                        else f"{one.name}, which {'keeps a field' if one in kept_by else 'it is maintained from'}: {reason}"
                    )
        if self.retired:
            schema = Schema(tuple([model for model in schema.models if model.name not in self.retired]))
        self.schema = schema
        self.catalogue = catalogue
        self.generation = generation
        self.tables = catalogue.tables
        self.names: dict[Model, str] = ByModel(self.retired)
        self.names |= {
            model: aggregate_in(catalogue.models, model.name, model.form) or model.name for model in schema.models
        }
        unopened = tuple(owners_of(schema, catalogue.models))
        self.names |= {model: model.name for model in unopened}
        known = Schema((*schema.models, *unopened))
        self.followed = follow(known, catalogue.models, self.names, refused_writes(catalogue))
        aggregates = [one for followed in self.followed.values() for one in followed.aggregates]
        self.names |= {model: model.name for model in aggregates}
        self.models = (*[one for one in schema.models if self.names[one] == one.name], *aggregates)
        self.statements: dict[Model, Statements] = ByModel(self.retired)
        self.keepers = {model: self._keepers(model) for model in self.names if self._keepers(model)}
        """The names of the aggregates that keep the maintained fields of classes, by field."""
        self.statements |= {
            model: Statements(self.table_of(model), model, self.followed.get(model), name, self._kept(model))
            for model, name in self.names.items()
        }
        self.maintenance: dict[Model, Maintenance] = ByModel(self.retired)
        """For every entity; what is being built is left to its jobs."""
        self.indexes: dict[IndexModel, IndexTable] = {}
        self.lacking: dict[Model, dict[str, frozenset[str]]] = {}
        whole = {model: self._maintenance(model) for model in (*self.models, *unopened)}
        self.jobs = _jobs(catalogue, whole)
        self.copies: dict[Model, tuple[CopyForm, ...]] = {
            model: tuple([copy for copy in catalogue.copies if model.name in copy.sources]) for model in schema.models
        }
        self.copies = {model: copies for model, copies in self.copies.items() if copies}
        self.twins = self._twins()
        self.sides: dict[tuple[Model, str], Any] = {}
        self.plain = (
            not self.jobs
            and not self.copies
            and not self.twins
            and not any(followed.checked for followed in self.followed.values())
        )
        states = {one.label: "dropping" for one in catalogue.tombstones if one.tables}
        states |= states_here(catalogue, self.guests)
        self.unready = {label: state for label, state in states.items() if state != "ready"}
        self.contested: dict[IndexMaintenance, bool] = {}
        for model, kept in whole.items():
            self._add_indexes(model, kept)
            disabled = kept.only([label for label, state in self.unready.items() if state in ("disabled", "beside")])
            self.maintenance[model] = kept.less([disabled, *(job.targets for job in self.jobs.get(model, ()))])
            for index in kept.indexes:
                if index.model.unique and self.unready.get(index.label) in ("building", "violated"):
                    self.contested[index] = self.unready[index.label] == "building"
        self.owners: dict[str, Model] = {}
        """The classes that have an index over a field which an aggregate keeps, by the name of that."""
        for owner, keepers in self.keepers.items():
            read = {name for index in whole[owner].indexes for name in _read_by(index)}
            self.owners |= {keeper: owner for name, keeper in keepers.items() if name in read}
        self.blocked = {model: reason for model in self.models if (reason := self._unknown_index(model, whole))}
        """Aggregates that cannot be maintained here, and why."""
        self.values = {model: Values(self.values_table(model)) for model in self.models if has_values(model)}
        """Those of the aggregates that count their live values."""

    def _twins(self) -> dict[Model, tuple[Twin, ...]]:
        """Return the twins of each class that one of their links is for."""
        found: dict[Model, tuple[Twin, ...]] = {}
        for twin in self.stored.twins:
            links = [link for link in twin.links if link.new in self.stored.models]
            names = {link.old if twin in self.guests else link.new for link in links}
            for model, name in self.names.items():
                if name in names:
                    found[model] = (*found.get(model, ()), twin)
        return found

    def _unknown_index(self, keeper: Model, whole: Mapping[Model, Maintenance]) -> str | None:
        """Return which index over a field that an aggregate keeps is not known here, so that it cannot follow it."""
        if (kept := kept_field(keeper.name)) is None or is_former(keeper.name) or kept[0] not in self.catalogue.models:
            return None
        owner, property = kept
        known = {index.label for model, one in whole.items() if model.name == owner for index in one.indexes}
        for name, form in self.catalogue.models[owner].indexes.items():
            if reads(form, property) and f"{owner}.{name}" not in known:
                return f"{owner}.{name} needs a program that opens {owner} as it declares it; nothing was written"
        return None

    def depth(self, model: Model) -> int:
        """Return how many classes stand between a class and one that its maintained fields are made of in the end."""
        return depth_of(model.name, self.catalogue.models)

    def _whole(self, model: Model) -> Model:
        return self.followed[model].model if model in self.followed else model

    def _keepers(self, model: Model) -> dict[str, str]:
        found = {field.name: keeper_name(model.name, field.property) for field in self._whole(model).maintained}
        declared = self.schema.by_name
        return {field: self.names[declared[name]] if name in declared else name for field, name in found.items()}

    def _kept(self, model: Model) -> dict[str, tuple[str, str]]:
        """Return the tables and columns of the maintained fields of a class."""
        found = {}
        for field in self._whole(model).maintained:
            table = self.tables[self.catalogue.models[self.keepers[model][field.name]].table]
            found[field.name] = table.name, table.column(field.property)
        return found

    @staticmethod
    def _dropped(catalogue: Catalogue, model: Model) -> str | None:
        stone = catalogue.gone(model.name, model.form)
        return None if stone is None else str(stone)

    def table_of(self, model: Model) -> EntityTable:
        """Return the table of a class."""
        return self.tables[self.catalogue.models[self.names[model]].table]

    def values_table(self, model: Model) -> str:
        """Return the physical name of the table that an aggregate counts its live values in."""
        return self.catalogue.index_tables[values_label(self.names[model])]

    def label(self, model: Model, index: str | None = None) -> str:
        """Return the label of a class, or of an index that it declares."""
        name = self.names.get(model, model.name)
        if index is None or name not in self.catalogue.models:
            return name if index is None else f"{name}.{index}"
        return f"{name}.{self._known(model).get(index, index)}"

    def _known(self, model: Model) -> dict[str, str]:
        """Return the names in the catalogue of the indexes that a class declares."""
        form = self.catalogue.models[self.names[model]]
        return indexes_in(form.indexes, model.form.indexes, self.catalogue.instead(model.name))

    def _add_indexes(self, model: Model, kept: Maintenance) -> None:
        """Add the tables of what is maintained of a class, also for the indexes that it declares by another name or form."""
        tables = {}
        for index in kept.indexes:
            physical = self.catalogue.index_tables[index.label]
            table = IndexTable(index.owner, index.model, physical, self._renames.get(index.owner.name, {}))
            tables[index.model.name] = self.indexes[index.model] = table
        self._add_declared(model, tables)
        for other in self.schema.models:
            if self.names[other] == model.name and other is not model:
                self._add_declared(other, tables)

    def _add_declared(self, model: Model, tables: Mapping[str, IndexTable]) -> None:
        held = self._known(model)
        for index in model.indexes:
            table = tables[held[index.name]]
            self.indexes.setdefault(index, table)
            properties = {one.property for one in index_columns(model, index)} - table.columns.keys()
            lacking = {field.name for field in model.columns if field.property in properties}
            if lacking:
                self.lacking.setdefault(model, {})[index.name] = frozenset(lacking)

    def _maintenance(self, model: Model) -> Maintenance:
        kept, followed = maintenance(self.schema, model), self.followed.get(model)
        form = self.catalogue.models[self.names[model]]
        own = model.form.indexes
        kept = Maintenance(
            tuple(
                [
                    one
                    for one in kept.indexes
                    if one.model.name in form.indexes and as_declared(form.indexes[one.model.name], own[one.model.name])
                ]
            ),
            tuple([one for one in kept.aggregates if self.names[one.model] == one.model.name]),
        )
        if followed is None:
            return kept
        aggregates = [aggregate_maintenance(followed.model, target) for target in followed.aggregates]
        return Maintenance((*kept.indexes, *followed.indexes), (*kept.aggregates, *aggregates))

    def statements_of(self, index: IndexMaintenance) -> Statements:
        """Return the statements of the class that has an index, maybe by a later version of the program only."""
        known = next((one.known for one in self.followed.values() if one.model is index.owner), index.owner)
        return self.statements[known]

    @property
    def all_jobs(self) -> list[Job]:
        """What is being built: an index on groups, and one over maintained fields, comes once they are built."""
        jobs = [job for several in self.jobs.values() for job in several]
        return sorted(jobs, key=lambda job: (job.model.aggregate is not None, self.depth(job.model)))

    @cached_property
    def by_table(self) -> dict[str, list[Model]]:
        return self.schema.tables()


def _read_by(index: IndexMaintenance) -> set[str]:
    """Return the fields that an index's rows are made of."""
    where = () if index.model.where is None else index.model.where.attributes()
    included = {field.name for field in index.model.include}
    return included.union({name.partition(".")[0] for name in index.model.fields}, {attr.name for attr in where})


def _jobs(catalogue: Catalogue, whole: Mapping[Model, Maintenance]) -> dict[Model, tuple[Job, ...]]:
    """Return what is being built, by class."""
    jobs: dict[Model, tuple[Job, ...]] = {}
    for form in catalogue.jobs:
        for model, kept in whole.items():
            if model.name == form.owner:
                jobs[model] = (*jobs.get(model, ()), Job(form.name, model, kept.only(form.targets), form.targets))
    return jobs


_KEY = "PartitionKey=?1 AND RowKey=?2"
_ORDER = 't."PartitionKey", t."RowKey"'
_STATE = """CASE typeof(t."_state") WHEN 'text' THEN hex(t."_state") ELSE t."_state" END"""  # text may not be UTF-8


class Statements:
    """The SQL of one model over its entity table, and the way between its rows and the table's.

    Each is compiled at its first use. Those that run once an operation have few quotes, see `short`.
    """

    def __init__(
        self,
        table: EntityTable,
        model: Model,
        followed: Followed | None = None,
        name: str | None = None,
        kept: Mapping[str, tuple[str, str]] = _NOTHING,
    ) -> None:
        self.table = table
        self.name = name or model.name
        self.model = model = model if followed is None else followed.model
        self._followed = followed
        self._kept = kept
        narrow_keys = followed is not None and followed.narrow_keys
        self._key_check = SqlFunction(followed.check_key) if followed is not None and narrow_keys else None
        self._checks = {} if followed is None else {name: _check(followed, name) for name in followed.narrow}
        self.spilled = tuple(
            at
            for at, field in enumerate(model.columns, FIRST)
            if field.type.spillable and not field.maintained and table.column(field.property) in table.spills
        )
        self.has_big = "_big" in table.has
        # The parts of a large value lie one behind the other: a subselect for each would pass those before it again.
        self.wide = sum(field.type.kind is bytes for field in model.columns) >= WIDE

    # ------------------------------------------------------------------------------------------ columns

    @cached_property
    def width(self) -> int:
        """How many values a row has, as it is read."""
        return FIRST + len(self.model.columns) + self.has_big

    @cached_property
    def _columns(self) -> list[str]:
        """The columns of a row that have their places in the table."""
        columns = [*FIXED, *(self.table.column(field.property) for field in self.model.stored)]
        return [*columns, "_big"] if self.has_big else columns

    @cached_property
    def _written(self) -> list[str]:
        """The columns that get values of their own."""
        return self._columns if self.model.aggregate is None else [*self._columns, "_state"]

    @cached_property
    def _constants(self) -> dict[str, str]:
        """The columns in which all rows of the model are alike, with their SQL."""
        constants = {}
        if (number := self.table.type_number(self.name)) is not None:
            constants["_type"] = str(number)
        if (name := self.model.declaration.type_name) is not None:
            constants["EntityType"] = literal(name)
        # A default is for rows that were there before the column; those of another class do not have the property.
        defaults = [column.name for column in self.table.columns if column.default is not None]
        return constants | {name: "NULL" for name in defaults if name not in self._columns}

    def type_filter(self, alias: str) -> str:
        """Return the condition that a row is of the model's class, empty if the table holds no other."""
        return self.table.type_filter(self.name, alias)

    @cached_property
    def _and_type(self) -> str:
        mine = self.type_filter("t")  # a key that a more special class has is no key of this one
        return f" AND {mine}" if mine else ""

    # ------------------------------------------------------------------------------------------ writing

    @cached_property
    def insert(self) -> str:
        names = [*self._written, *self._constants]
        whole = names == [*FIXED, *(column.name for column in self.table.columns)]  # no other table is ever written to
        listed = "" if whole else f"({','.join(map(short, names))})"
        places = ",".join([*["?"] * len(self._written), *self._constants.values()])
        return f"INSERT INTO {short(self.table.name)}{listed} VALUES({places})"

    @cached_property
    def put(self) -> str:
        return upsert(self.insert, self._written[2:])

    @cached_property
    def update(self) -> str:
        """Of the row with a timestamp, which comes last."""
        assigned = ",".join(f"{short(column)}=?{at}" for at, column in enumerate(self._written[2:], FIRST))
        return f"UPDATE {short(self.table.name)} SET {assigned} WHERE {_KEY} AND Timestamp=?{len(self._written) + 1}"

    @cached_property
    def delete(self) -> str:
        """Of the row with a timestamp."""
        return f"DELETE FROM {short(self.table.name)} WHERE {_KEY} AND Timestamp=?3"

    @cached_property
    def there(self) -> str:
        """Finds a row only if it has this timestamp."""
        return f"SELECT 1 FROM {short(self.table.name)} WHERE {_KEY} AND Timestamp=?3"

    @cached_property
    def not_there(self) -> str:
        return f"SELECT 1 WHERE NOT EXISTS ({self.there})"

    # ------------------------------------------------------------------------------------------ reading

    @cached_property
    def select_list(self) -> str:
        """The values of a row, from a source that ends in ``beside``."""
        values = [f"t.{quoted(name)}" for name in FIXED]
        values += [self._selected(field) for field in self.model.columns]
        return ", ".join([*values, 't."_big"'] if self.has_big else values)

    def _selected(self, field: FieldModel) -> str:
        if field.maintained:
            return self._maintained(field, "t")
        name = quoted(self.table.column(field.property))
        both = self.wide and field.type.spillable
        return self.checked(field.name, f"coalesce(t.{name}, b.{name})" if both else self.value(field, "t"))

    def checked(self, name: str, value: str, key: tuple[str, str] = ('t."PartitionKey"', 't."RowKey"')) -> str:
        """Return the SQL of a field that is read, checked where there may be values that its class does not know."""
        check = self._checks.get(name)
        return value if check is None else check.sql(value, *key)

    def checked_key(self, sql: str, partition: str, row: str) -> str:
        """Return SQL that reads a partition key somewhere, where there may be keys that the class does not know."""
        if self._key_check is None:
            return sql
        return sql.replace(partition, self._key_check.sql(partition, row), 1)

    def index_check(self, index: IndexModel) -> SqlFunction | None:
        """Return the check of an index's keys, by those and the entity's, where there may be some that the class does not know.

        It returns the partition key.
        """
        if self._followed is None or not self._followed.narrow.keys() & set(index.fields):
            return None
        return SqlFunction(partial(self._followed.check_index, index.partition, index.row))

    def value(self, field: FieldModel, alias: str) -> str:
        """Return the SQL of one property."""
        if field.maintained:
            return self._maintained(field, alias)
        return self.table.value(field.property, alias, moved=field.type.spillable)

    def _maintained(self, field: FieldModel, alias: str) -> str:
        """Return the SQL of a field that the group of the same key holds, if there is one."""
        table, column = self._kept[field.name]
        held = (
            f"(SELECT g.{quoted(column)} FROM {quoted(table)} g "
            f'WHERE g."PartitionKey" = {alias}."PartitionKey" AND g."RowKey" = {alias}."RowKey")'
        )
        empty = self.model.defaults[field.property]
        return held if empty is None else f"coalesce({held}, {literal(empty)})"

    @cached_property
    def maintained(self) -> str:
        """The maintained fields of a key."""
        values = ", ".join([self._maintained(field, "t") for field in self.model.maintained])
        return f'SELECT {values} FROM (SELECT ?1 AS "PartitionKey", ?2 AS "RowKey") t'

    @cached_property
    def maintained_places(self) -> tuple[int, ...]:
        """Where they stand in a row."""
        return tuple([at for at, field in enumerate(self.model.columns, FIRST) if field.maintained])

    @cached_property
    def own_values(self) -> Callable[[Row], Row] | None:
        """Takes them out of a row; None if there are none."""
        kept = [at for at in range(self.width) if at not in self.maintained_places]
        return itemgetter(*kept) if self.maintained_places else None

    @cached_property
    def lean_list(self) -> str | None:
        """The values of a row without what is moved aside, where that is shorter; the last one is whether it is."""
        return ", ".join(self._lean(quoted)) if self.has_big and not self.wide else None

    def _lean(self, name: Callable[[str], str]) -> Iterator[str]:
        yield from (f"t.{name(column)}" for column in FIXED)
        for field in self.model.columns:
            if field.maintained:
                yield self._maintained(field, "t")
            else:
                yield self.checked(field.name, f"t.{name(self.table.column(field.property))}")
        if self.has_big:
            yield f"t.{name('_big')}"

    @cached_property
    def beside(self) -> str:
        """The join with what is moved aside, where there is one."""
        return f' LEFT JOIN {quoted(self.table.big_name)} b ON b.id = t."_big"' if self.wide else ""

    @cached_property
    def _source(self) -> str:
        return f"{quoted(self.table.name)} t{self.beside}"

    @cached_property
    def get(self) -> str:
        return (
            f"SELECT {self.select_list} FROM {self._source} "
            f'WHERE t."PartitionKey" = ? AND t."RowKey" = ?{self._and_type}'
        )

    @cached_property
    def get_lean(self) -> str:
        """What `get` reads of a row that has nothing moved aside. Its last value is then None, if it has a place."""
        listed = ",".join(self._lean(short) if self._checks or self._kept else map(short, self._columns))
        return f"SELECT {listed} FROM {quoted(self.table.name)} t WHERE {_KEY}{self._and_type}"

    @cached_property
    def get_group(self) -> str:
        """The timestamp, the properties and the state of an aggregate's group."""
        listed = ["Timestamp", *(short(self.table.column(field.property)) for field in self.model.columns), "_state"]
        return f"SELECT {','.join(listed)} FROM {short(self.table.name)} WHERE {_KEY}"

    @cached_property
    def scan(self) -> str:
        return self._scan()

    @cached_property
    def scan_state(self) -> str:
        """With the state of an aggregate's group at the end; what is none can be read, too."""
        return self._scan(more=f", {_STATE}")

    @cached_property
    def get_state(self) -> str:
        """The state of an aggregate's group, as `scan_state` reads it."""
        return f"SELECT {_STATE} FROM {quoted(self.table.name)} t WHERE {_KEY}"

    @cached_property
    def scan_after(self) -> str:
        """Those after a key."""
        return self._scan(condition=' AND (t."PartitionKey", t."RowKey") > (?, ?)')

    def _scan(self, more: str = "", condition: str = "") -> str:
        mine = self.type_filter("t") or "TRUE"
        return f"SELECT {self.select_list}{more} FROM {self._source} WHERE {mine}{condition} ORDER BY {_ORDER}"

    # ------------------------------------------------------------------------------------------ large values

    @cached_property
    def big_next(self) -> str:
        return f"SELECT coalesce(max(id), 0) + 1 FROM {quoted(self.table.big_name)}"

    @cached_property
    def big_insert(self) -> str:
        columns = [quoted(self.table.column(self.model.columns[at - FIRST].property)) for at in self.spilled]
        places = ", ".join(["?"] * (len(columns) + 1))
        return f"INSERT INTO {quoted(self.table.big_name)}(id, {', '.join(columns)}) VALUES({places})"

    @cached_property
    def big_delete(self) -> str:
        return f"DELETE FROM {quoted(self.table.big_name)} WHERE id = ?"

    @cached_property
    def stamp(self) -> Callable[[Iterable[Row], int], tuple[list[Row], list[int]]]:
        """Rows with another timestamp, and with a place for where their large values are; and which rows are large."""
        return _stamp(len(self.model.columns), self.spilled, self.has_big)

    def spills(self, row: Row) -> tuple[int, ...]:
        """Return the places of the values of a large row that are moved aside."""
        return tuple([at for at in self.spilled if row[at] is not None and len(row[at]) > SPILL_VALUE])


@lru_cache(maxsize=None)
def _stamp(
    width: int,
    spilled: tuple[int, ...],
    has_big: bool,  # noqa: FBT001
) -> Callable[[Iterable[Row], int], tuple[list[Row], list[int]]]:
    values = [f"v{at}" for at in range(FIRST, FIRST + width)]
    lengths = " + ".join([f"(0 if v{at} is None else len(v{at}))" for at in spilled])
    source = [
        "def stamp(rows, timestamp):",
        "    stamped = []; add = stamped.append; large = []",
        f"    for {', '.join(['pk', 'rk', '_', *values])} in rows:",
        f"        if {lengths} > {SPILL_ROW}: large.append(len(stamped))" if spilled else "",
        f"        add(({', '.join(['pk', 'rk', 'timestamp', *values, *(['None'] * has_big)])}))",
        "    return stamped, large",
    ]
    return compile_functions("stamp", "\n".join(source), {})["stamp"]


def _check(followed: Followed, name: str) -> SqlFunction:
    return SqlFunction(lambda value, partition, row: followed.check(name, value, partition, row))
