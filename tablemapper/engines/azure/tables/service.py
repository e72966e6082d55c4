"""Requests to a Table service as frozen data, and what sends them.

An entity is what the service's JSON has: a dict of members, ``PartitionKey`` and ``RowKey`` among them. A type that
JSON does not show stands beside its property, as ``name@odata.type``. The ETag is the member ``odata.etag``. What an
entity lacks is no member, even if it was selected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter, lt
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

import attrs

from ....errors import StoreError

PARTITION, ROW, ETAG, TYPE = "PartitionKey", "RowKey", "odata.etag", "@odata.type"
MAX_PAGE = 1000  # entities of one answer
WAIT = 10.0  # seconds for which an answer is waited for
MAX_CHANGES = 100  # of one entity group transaction

Members: TypeAlias = Mapping[str, Any]
Entity: TypeAlias = dict[str, Any]
Operator: TypeAlias = Literal["eq", "lt", "le", "gt", "ge"]
Kind: TypeAlias = Literal["insert", "replace", "merge", "upsert", "delete"]


class NoResponse(Exception):
    """No answer came, or one that leaves open whether the request was executed."""

    def __init__(self, why: str, retry_after: float | None = None, status: int | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after
        """Seconds that the service asks to wait."""
        self.status = status
        """What it answered, if it did."""
        self.patience: float = math.inf
        """Seconds for which it makes sense to send the request again: few, where the service was never reached."""


class ErrorResponse(Exception):
    """The service refused a request, and executed nothing of it."""

    def __init__(self, status: int, code: str, message: str = "", index: int | None = None) -> None:
        super().__init__(f"{status} {code}{message and ': '}{message}")
        self.status = status
        self.code = code
        self.index = index
        """The number of the change that was not possible, where the service says so."""
        self.table: str = ""
        """The table that was asked, as the account calls it."""
        self.denial: str = f"the account refuses the key ({code})" if status in (401, 403) else ""
        """Why who asks may not, if that is the reason."""

    @property
    def gone(self) -> str:
        """The message about a table that is not there."""
        return f"the table {self.table} of the store is not there any more; open the store again to have it made again, empty"


class RequestNotSent(ErrorResponse):
    """Nothing proves who asks, as the credential failed: the request was not sent."""

    def __init__(self, why: str) -> None:
        super().__init__(401, "NotSent", why)
        self.denial = why


# ---------------------------------------------------------------------------------------------- filters


@attrs.frozen
class Comparison:
    """A comparison of a property with a value of a type: false where the property is missing."""

    name: str
    op: Operator
    edm: str
    value: Any


@attrs.frozen
class AllOf:
    """A filter that holds where all parts do."""

    parts: tuple[Filter, ...]


@attrs.frozen
class AnyOf:
    """A filter that holds where one of the parts does."""

    parts: tuple[Filter, ...]


Filter: TypeAlias = Comparison | AllOf | AnyOf


def filter_text(where: Filter) -> str:
    """Return a filter as OData has it."""
    match where:
        case AllOf(parts=parts):
            return " and ".join(
                [f"({filter_text(part)})" if isinstance(part, AnyOf) else filter_text(part) for part in parts]
            )
        case AnyOf(parts=parts):
            return " or ".join(
                [
                    f"({filter_text(part)})" if isinstance(part, AllOf) and parts[1:] else filter_text(part)
                    for part in parts
                ]
            )
    return f"{where.name} {where.op} {_literal(where.edm, where.value)}"


def _literal(edm: str, value: Any) -> str:
    quoted = str(value).replace("'", "''")
    match edm:
        case "String":
            return f"'{quoted}'"
        case "Int64":
            return f"{value}L"
        case "Boolean":
            return "true" if value else "false"
        case "DateTime":
            return f"datetime'{value}'"
        case "Guid":
            return f"guid'{value}'"
    return str(value)


# ---------------------------------------------------------------------------------------------- requests


@attrs.frozen
class GetEntity:
    """One entity; answered by it, or by None."""

    table: str
    partition: str
    row: str
    select: tuple[str, ...] = ()
    """The properties that are wanted; none: all."""


@attrs.frozen
class QueryEntities:
    """Entities in the order of their keys, by UTF-16 units; answered by a `EntityPage`."""

    table: str
    where: Filter | None = None
    select: tuple[str, ...] = ()
    top: int | None = None
    """At most so many, which are no more than MAX_PAGE."""
    after: Any = None
    """Where a page said that the next one begins."""


@attrs.frozen
class EntityPage:
    """Some entities, of which there may be none although more follow."""

    entities: Sequence[Entity]
    after: Any = None
    """Where the next page begins; None after the last."""
    date: str = ""
    """When it was read by the clock of the service, as HTTP has it: to the second before."""


@attrs.frozen
class RowChange:
    """One change of an entity group transaction."""

    kind: Kind
    row: str
    members: Members = MappingProxyType({})
    """The properties; of a merge those that change."""
    if_match: str | None = None
    """The ETag that the entity must have, ``"*"`` for any; an insert and an upsert have none."""


@attrs.frozen
class GroupTransaction:
    """A change, or an entity group transaction of several; answered by the ETag of each, None of what was deleted."""

    table: str
    partition: str
    changes: tuple[RowChange, ...]


@attrs.frozen
class CreateTable:
    """A new table; answered by whether there was none."""

    name: str


@attrs.frozen
class DeleteTable:
    """The end of a table with all that is in it; answered by whether there was one."""

    name: str


@attrs.frozen
class ListTables:
    """The tables whose names are in a half-open range; answered by an `EntityPage` of members ``TableName``."""

    first: str
    end: str
    after: Any = None
    """Where a page said that the next one begins."""


Request: TypeAlias = GetEntity | QueryEntities | GroupTransaction | CreateTable | DeleteTable | ListTables


class Service(Protocol):
    """A sender of requests: each is sent once."""

    def send(self, request: Request, wait: float = WAIT, /) -> Any:
        """Return the answer, for which it waits so many seconds at most.

        Raises:
            NoResponse, ErrorResponse
        """
        ...

    def close(self) -> None:
        """Let go of connections; safe to call twice."""
        ...


# ---------------------------------------------------------------------------------------------- members


def edm_of(members: Members, name: str) -> str:
    """Return the type of a property: as it is written, else as JSON shows it."""
    type_name = members.get(name + TYPE)
    if type_name is not None:
        return str(type_name).removeprefix("Edm.")
    value = members[name]
    if value.__class__ is bool:
        return "Boolean"
    if value.__class__ is int:
        return "Int32"
    return "Double" if value.__class__ is float else "String"


def properties(members: Members, names: Iterable[str] | None = None) -> Iterator[str]:
    """Yield the names of the properties of an entity, or those of some, without those that each has."""
    for name in members if names is None else names:
        if "@" not in name and not name.startswith("odata.") and members[name] is not None and name not in OF_ALL:
            yield name


OF_ALL = frozenset({PARTITION, ROW, "Timestamp"})


def check_ascending(entities: Sequence[Entity]) -> None:
    """Refuse entities that are not in the order of keys: ranges, pages and merges would give some twice, and some never.

    Raises:
        StoreError: a key is not above the one before.
    """
    if len(entities) < 2 or PARTITION not in entities[0] or ROW not in entities[0]:
        return
    keys = list(map(itemgetter(PARTITION, ROW), entities))
    if all(map(lt, keys, keys[1:])):
        return
    units = [[text.encode("utf-16-be", "surrogatepass") for text in key] for key in keys]
    if not all(map(lt, units, units[1:])):
        raise StoreError(
            "the service gives rows in another order than that of their keys, on which ranges and pages rely; it is not Azure "
            "Table storage"
        )
