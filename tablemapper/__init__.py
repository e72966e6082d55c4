"""An object-entity mapper for data modelled by partition key and row key.

Entities, keys, indexes and aggregates are declared; the store keeps them, in one SQLite file, so that they can never
disagree. Start with `Entity`, `Field`, `Key` and `open`.
"""

from __future__ import annotations

import logging

from .aggregates import Aggregate
from .aio import AsyncStore, AsyncTransaction, open_async
from .aioquery import AsyncMixedQuery, AsyncQuery, AsyncRows
from .check import Problem, Report
from .entity import Entity, Info, Record, info
from .errors import (
    CorruptStore,
    EntityExists,
    EntityNotFound,
    EntityTooLarge,
    InvalidEntity,
    InvalidModel,
    InvalidQuery,
    InvalidToken,
    InvalidTransaction,
    NotAStore,
    OutcomeUnknown,
    PreconditionFailed,
    QueryStopped,
    ScanRefused,
    SchemaMismatch,
    SnapshotTooOld,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    TableMapperError,
    UniqueViolation,
)
from .explanation import Explanation, MixedExplanation
from .expressions import Assignment, Attr, Expr, Order, Predicate
from .fields import Field, avg, count, field, group_by, max, max_ever, min, min_ever, sum
from .groups import Groups
from .indexes import Index, IndexRange, Key, KeyOf
from .mixed import MixedQuery
from .pages import Page
from .progress import Progress
from .query import Query, Rows
from .store import Store, Transaction, Unknown
from .store import open_store as open
from .values import Extra, GeoPoint, Int32, converter

__all__ = [
    "Aggregate",
    "Assignment",
    "AsyncMixedQuery",
    "AsyncQuery",
    "AsyncRows",
    "AsyncStore",
    "AsyncTransaction",
    "Attr",
    "CorruptStore",
    "Entity",
    "EntityExists",
    "EntityNotFound",
    "EntityTooLarge",
    "Explanation",
    "Expr",
    "Extra",
    "Field",
    "GeoPoint",
    "Groups",
    "Index",
    "IndexRange",
    "Info",
    "Int32",
    "InvalidEntity",
    "InvalidModel",
    "InvalidQuery",
    "InvalidToken",
    "InvalidTransaction",
    "Key",
    "KeyOf",
    "MixedExplanation",
    "MixedQuery",
    "NotAStore",
    "Order",
    "OutcomeUnknown",
    "Page",
    "PreconditionFailed",
    "Predicate",
    "Problem",
    "Progress",
    "Query",
    "QueryStopped",
    "Record",
    "Report",
    "Rows",
    "ScanRefused",
    "SchemaMismatch",
    "SnapshotTooOld",
    "Store",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreReadOnly",
    "TableMapperError",
    "Transaction",
    "UniqueViolation",
    "Unknown",
    "avg",
    "converter",
    "count",
    "field",
    "group_by",
    "info",
    "max",
    "max_ever",
    "min",
    "min_ever",
    "open",
    "open_async",
    "sum",
]

logging.getLogger("tablemapper").addHandler(logging.NullHandler())


def _own(names: list[str]) -> None:
    """Let a traceback and a repr show what users import."""
    for name in names:
        public = globals()[name]
        if getattr(public, "__module__", "").startswith("tablemapper."):
            public.__module__ = "tablemapper"


_own(__all__)
