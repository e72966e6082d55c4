"""An object-entity mapper for data modelled by partition key and row key.

Entities, keys, indexes and aggregates are declared; the store keeps them, in one SQLite file, so that they can never
disagree. Start with `Entity`, `Field`, `Key` and `open`.

Write ``import tablemapper as tm``. Of the public names, which ``dir(tm)`` lists, ``from tablemapper import *`` leaves
out `open`, `min`, `max` and `sum`: they would replace Python's own without a word.
"""

from __future__ import annotations

import logging

from .aio.opening import open_async
from .aio.query import AsyncMixedQuery, AsyncQuery, AsyncRows
from .aio.store import AsyncStore, copy_async
from .aio.transaction import AsyncTransaction
from .catalogue.changes import Fault
from .engines.check import Problem, RepairReport, Report
from .engines.opening import restore, status
from .engines.protocol import Violation
from .engines.statistics import IndexStatistics, Partitions, PartitionStatistics, Quantiles, Statistics
from .engines.status import Applied, Item, Status
from .entities.aggregates import Aggregate
from .entities.entity import Entity, Info, Record, info
from .entities.fields import Field, avg, count, field, group_by, max_ever, min_ever
from .entities.fields import max as max
from .entities.fields import min as min
from .entities.fields import sum as sum
from .entities.index import Index, IndexRange
from .entities.json import from_dict, from_json, json_schema, to_dict, to_json
from .entities.key import Key, KeyOf
from .errors import (
    CorruptStore,
    EntityExists,
    EntityNotFound,
    EntityTooLarge,
    InvalidEntity,
    InvalidMigration,
    InvalidModel,
    InvalidQuery,
    InvalidToken,
    InvalidTransaction,
    MigrationStopped,
    NotAStore,
    NotReady,
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
from .events import Event
from .evolution.changes import Change
from .execution.totals import Groups
from .expressions.tree import Assignment, Attr, Expr, Order, Predicate
from .guidance.advice import Advice
from .guidance.advise import advise
from .guidance.workload import Form, Workload
from .migrations.report import MigrationReport, Step
from .migrations.run import migrate
from .planning.cost import Cost, Prices
from .planning.explanation import Explanation, MixedExplanation
from .progress import Progress
from .query.mixed import MixedQuery
from .query.pages import Page
from .query.partitions import Partition
from .query.query import Query, Rows
from .query.timestamp import timestamp
from .schema.model import size
from .scripts.comparison import changes, schema_form
from .scripts.migrations import Migrations
from .scripts.script import Migration, migration
from .store.builds import BuildReport
from .store.care import copy
from .store.copying import CopyReport
from .store.opening import open as open
from .store.store import Store, Unknown
from .store.transaction import Transaction
from .values.extra import Extra
from .values.geo import GeoPoint
from .values.nested import converter
from .values.scalars import Int32
from .values.uuid7 import uuid7
from .viewer.notebook import install as _notebooks
from .viewer.opening import inspector

__all__ = [
    "Advice",
    "Aggregate",
    "Applied",
    "Assignment",
    "AsyncMixedQuery",
    "AsyncQuery",
    "AsyncRows",
    "AsyncStore",
    "AsyncTransaction",
    "Attr",
    "BuildReport",
    "Change",
    "CopyReport",
    "CorruptStore",
    "Cost",
    "Entity",
    "EntityExists",
    "EntityNotFound",
    "EntityTooLarge",
    "Event",
    "Explanation",
    "Expr",
    "Extra",
    "Fault",
    "Field",
    "Form",
    "GeoPoint",
    "Groups",
    "Index",
    "IndexRange",
    "IndexStatistics",
    "Info",
    "Int32",
    "InvalidEntity",
    "InvalidMigration",
    "InvalidModel",
    "InvalidQuery",
    "InvalidToken",
    "InvalidTransaction",
    "Item",
    "Key",
    "KeyOf",
    "Migration",
    "MigrationReport",
    "MigrationStopped",
    "Migrations",
    "MixedExplanation",
    "MixedQuery",
    "NotAStore",
    "NotReady",
    "Order",
    "OutcomeUnknown",
    "Page",
    "Partition",
    "PartitionStatistics",
    "Partitions",
    "PreconditionFailed",
    "Predicate",
    "Prices",
    "Problem",
    "Progress",
    "Quantiles",
    "Query",
    "QueryStopped",
    "Record",
    "RepairReport",
    "Report",
    "Rows",
    "ScanRefused",
    "SchemaMismatch",
    "SnapshotTooOld",
    "Statistics",
    "Status",
    "Step",
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
    "Violation",
    "Workload",
    "advise",
    "avg",
    "changes",
    "converter",
    "copy",
    "copy_async",
    "count",
    "field",
    "from_dict",
    "from_json",
    "group_by",
    "info",
    "inspector",
    "json_schema",
    "max_ever",
    "migrate",
    "migration",
    "min_ever",
    "open_async",
    "restore",
    "schema_form",
    "size",
    "status",
    "timestamp",
    "to_dict",
    "to_json",
    "uuid7",
]

__version__ = "0.1.0"

logging.getLogger("tablemapper").addHandler(logging.NullHandler())


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "max", "min", "open", "sum"])


def _own(names: list[str]) -> None:
    """Let a traceback and a repr show what users import."""
    for name in names:
        public = globals()[name]
        if getattr(public, "__module__", "").startswith("tablemapper."):
            public.__module__ = "tablemapper"


_own(__dir__())
_notebooks()
