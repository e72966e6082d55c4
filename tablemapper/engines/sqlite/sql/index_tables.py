"""The tables of what is maintained, and their statements: of an index, and of the live values of an aggregate."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from ....catalogue.property_names import Names
from ....catalogue.tables import index_column_names
from ....entities.key_and_indexes import IndexModel
from ....schema.maintenance import index_columns
from ....schema.model import Model
from .ddl import quoted, short


def upsert(insert: str, columns: Iterable[str]) -> str:
    """Return the statement that overwrites columns of a row that is there (REPLACE would delete it first)."""
    assigned = ",".join(f"{short(column)}=excluded.{short(column)}" for column in columns)
    return f"{insert} ON CONFLICT DO {f'UPDATE SET {assigned}' if assigned else 'NOTHING'}"


def index_ddl(name: str, columns: Iterable[str], *, unique: bool) -> str:
    """Return the statement that makes the table of an index, with the columns of what it includes."""
    all_columns = ["PartitionKey", "RowKey", "_pk", "_rk", *columns]
    key = ", ".join(map(quoted, all_columns[: 2 if unique else 4]))
    return f"CREATE TABLE {quoted(name)}({', '.join(map(quoted, all_columns))}, PRIMARY KEY({key})) WITHOUT ROWID"


class IndexTable:
    """The table of one index, and its statements; its rows are `schema.maintenance.IndexRow`."""

    def __init__(self, model: Model, index: IndexModel, table: str, renames: Names) -> None:
        self.name = table
        self.model = model
        self.index = index
        included = [field.property for field in index_columns(model, index)]
        names = index_column_names([renames.get(property, property) for property in included])
        self.columns: dict[str, str] = dict(zip(included, names, strict=True))
        self._columns = ["PartitionKey", "RowKey", "_pk", "_rk", *names]
        self._key = self._columns[:2] if index.unique else self._columns[:4]
        self._column_list = ", ".join(map(quoted, self._columns))
        self._hot = short(table)

    @property
    def create(self) -> str:
        return index_ddl(self.name, self.columns.values(), unique=self.index.unique)

    @cached_property
    def insert(self) -> str:
        return f"INSERT INTO {self._hot} VALUES({','.join(['?'] * len(self._columns))})"

    @cached_property
    def put(self) -> str:
        return upsert(self.insert, self._columns[len(self._key) :])

    @cached_property
    def delete(self) -> str:
        return f"DELETE FROM {self._hot} WHERE PartitionKey=? AND RowKey=? AND _pk=? AND _rk=?"

    @cached_property
    def get(self) -> str:
        return (
            f"SELECT {self._column_list} FROM {quoted(self.name)} WHERE PartitionKey=? AND RowKey=? AND _pk=? AND _rk=?"
        )

    @cached_property
    def holder(self) -> str:
        return f'SELECT "_pk", "_rk" FROM {quoted(self.name)} WHERE "PartitionKey" = ? AND "RowKey" = ?'

    @cached_property
    def drop(self) -> str:
        return f"DELETE FROM {self._hot} WHERE PartitionKey=? AND RowKey=? AND _pk IS ? AND _rk IS ?"

    @cached_property
    def scan(self) -> str:
        return f'SELECT {self._column_list} FROM {quoted(self.name)} ORDER BY "PartitionKey", "RowKey", "_pk", "_rk"'


class ValuesTable:
    """The statements over an aggregate's table of live values."""

    def __init__(self, table: str) -> None:
        name = quoted(table)
        slot = 'WHERE "PartitionKey" = ? AND "RowKey" = ? AND slot = ?'
        self.count: str = f"INSERT INTO {name} VALUES(?, ?, ?, ?, ?5) ON CONFLICT DO UPDATE SET n = n + ?5"
        self.forget: str = f"DELETE FROM {name} {slot} AND value = ? AND n = 0"
        self.drop: str = f"DELETE FROM {name} {slot} AND value = ?"
        self.scan: str = f"SELECT * FROM {name}"
        self.of_group: str = f'SELECT slot, value, n FROM {name} WHERE "PartitionKey" = ? AND "RowKey" = ?'
        self.least: str = f"SELECT min(value) FROM {name} {slot}"
        self.greatest: str = f"SELECT max(value) FROM {name} {slot}"
