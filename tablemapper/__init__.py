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
from .catalogue.transitions import ConversionFault
from .engines.check import CheckReport, Problem, RepairReport
from .engines.locations import restore, status
from .engines.protocol import DuplicateValue
from .engines.statistics import IndexStatistics, PartitionStatistics, PartitionSummary, Quantiles, Statistics
from .engines.status import AppliedMigration, ObjectStatus, Status
from .entities.aggregates import Aggregate
from .entities.entity import Entity, EntityInfo, Record, info
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
from .evolution.changes import SchemaChange
from .execution.totals import GroupedQuery
from .expressions.tree import Assignment, Attr, Expr, Order, Predicate
from .guidance.advice import Advice
from .guidance.advisor import advise
from .guidance.workload import CallStatistics, Workload
from .migrations.report import MigrationReport, MigrationStep
from .migrations.runner import migrate
from .planning.cost import Cost, Prices
from .planning.explanation import Explanation, MixedExplanation
from .progress import Progress
from .query.mixed import MixedQuery
from .query.pages import Page
from .query.partitions import Partition
from .query.query import Query, Rows
from .query.timestamp_attribute import timestamp
from .schema.model import size
from .scripts.comparison import changes, schema_form
from .scripts.migrations import Migrations
from .scripts.script import Migration, migration
from .store.administration import copy
from .store.builds import BuildReport
from .store.copy import CopyReport
from .store.opening import open as open
from .store.store import Store, UnknownRow
from .store.transaction import Transaction
from .uuids import uuid7
from .values.extra import Extra
from .values.geo import GeoPoint
from .values.nested import converter
from .values.scalars import Int32
from .viewer.inspector import inspector
from .viewer.notebook import install as _notebooks

__all__ = [
    "Advice",
    "Aggregate",
    "AppliedMigration",
    "Assignment",
    "AsyncMixedQuery",
    "AsyncQuery",
    "AsyncRows",
    "AsyncStore",
    "AsyncTransaction",
    "Attr",
    "BuildReport",
    "CallStatistics",
    "CheckReport",
    "ConversionFault",
    "CopyReport",
    "CorruptStore",
    "Cost",
    "DuplicateValue",
    "Entity",
    "EntityExists",
    "EntityInfo",
    "EntityNotFound",
    "EntityTooLarge",
    "Event",
    "Explanation",
    "Expr",
    "Extra",
    "Field",
    "GeoPoint",
    "GroupedQuery",
    "Index",
    "IndexRange",
    "IndexStatistics",
    "Int32",
    "InvalidEntity",
    "InvalidMigration",
    "InvalidModel",
    "InvalidQuery",
    "InvalidToken",
    "InvalidTransaction",
    "Key",
    "KeyOf",
    "Migration",
    "MigrationReport",
    "MigrationStep",
    "MigrationStopped",
    "Migrations",
    "MixedExplanation",
    "MixedQuery",
    "NotAStore",
    "NotReady",
    "ObjectStatus",
    "Order",
    "OutcomeUnknown",
    "Page",
    "Partition",
    "PartitionStatistics",
    "PartitionSummary",
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
    "Rows",
    "ScanRefused",
    "SchemaChange",
    "SchemaMismatch",
    "SnapshotTooOld",
    "Statistics",
    "Status",
    "Store",
    "StoreClosed",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreReadOnly",
    "TableMapperError",
    "Transaction",
    "UniqueViolation",
    "UnknownRow",
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
