"""An object-entity mapper for data modelled by partition key and row key.

Entities, keys, indexes and aggregates are declared; the store keeps them, in one SQLite file, so that they can never
disagree. Start with `Entity`, `Field`, `Key` and `open`.

Write ``import tablemapper as tm``. Annotations find the results that programs read in `tm.reports`, and the types of
attributes, conditions and queries in `tm.types`. Of the public names, which ``dir(tm)`` lists,
``from tablemapper import *`` leaves out modules, and `open`, `min`, `max` and `sum`: they would replace Python's own.
"""

from __future__ import annotations

import importlib
import logging
import typing

from . import errors as errors
from .attributes import publish as _publish
from .entities.aggregates import Aggregate
from .entities.entity import Entity, Record, info
from .entities.fields import Field, avg, count, field, group_by, max_ever, min_ever
from .entities.fields import max as max
from .entities.fields import min as min
from .entities.fields import sum as sum
from .entities.index import Index
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
from .expressions.tree import Assignment, Order, Predicate
from .interchange.json import from_dict, from_json, json_schema, to_dict, to_json
from .interchange.patches import Patch, patch
from .uuids import uuid7
from .values.extra import Extra
from .values.geo import GeoPoint
from .values.hooks import converter
from .values.registered import register
from .values.scalars import Int32

if typing.TYPE_CHECKING:  # (see below)
    from . import reports as reports
    from . import types as types
    from .aio.opening import open_async
    from .aio.store import AsyncStore, copy_async
    from .aio.transaction import AsyncTransaction
    from .engines.locations import restore, status
    from .entities.timestamp_attribute import timestamp
    from .events import Event
    from .guidance.advisor import advise
    from .guidance.workload import Workload
    from .migrations.runner import migrate
    from .planning.cost import Prices
    from .query.pages import Page
    from .query.query import Query
    from .schema.model import size
    from .scripts.comparison import changes, schema_snapshot
    from .scripts.migrations import Migrations
    from .scripts.script import Migration, migration
    from .store.administration import copy
    from .store.opening import open as open
    from .store.store import Store, UnknownRow
    from .verbs.transaction import Transaction
    from .viewer.inspector import inspector

__all__ = [
    "Aggregate",
    "Assignment",
    "AsyncStore",
    "AsyncTransaction",
    "CorruptStore",
    "Entity",
    "EntityExists",
    "EntityNotFound",
    "EntityTooLarge",
    "Event",
    "Extra",
    "Field",
    "GeoPoint",
    "Index",
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
    "MigrationStopped",
    "Migrations",
    "NotAStore",
    "NotReady",
    "Order",
    "OutcomeUnknown",
    "Page",
    "Patch",
    "PreconditionFailed",
    "Predicate",
    "Prices",
    "Query",
    "QueryStopped",
    "Record",
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
    "patch",
    "register",
    "restore",
    "schema_snapshot",
    "size",
    "status",
    "timestamp",
    "to_dict",
    "to_json",
    "uuid7",
]

__version__ = "0.1.0"

logging.getLogger("tablemapper").addHandler(logging.NullHandler())


_BUILTIN_NAMES = ["max", "min", "open", "sum"]
_LAZY_NAMES = {
    "aio.opening": ["open_async"],
    "aio.store": ["AsyncStore", "copy_async"],
    "aio.transaction": ["AsyncTransaction"],
    "engines.locations": ["restore", "status"],
    "events": ["Event"],
    "guidance.advisor": ["advise"],
    "guidance.workload": ["Workload"],
    "migrations.runner": ["migrate"],
    "planning.cost": ["Prices"],
    "query.pages": ["Page"],
    "query.query": ["Query"],
    "entities.timestamp_attribute": ["timestamp"],
    "schema.model": ["size"],
    "scripts.comparison": ["changes", "schema_snapshot"],
    "scripts.migrations": ["Migrations"],
    "scripts.script": ["Migration", "migration"],
    "store.administration": ["copy"],
    "store.opening": ["open"],
    "store.store": ["Store", "UnknownRow"],
    "verbs.transaction": ["Transaction"],
    "viewer.inspector": ["inspector"],
}
"""The modules of public names that declarations do not need: they are loaded when one is used."""
_MODULES = {name: module for module, names in _LAZY_NAMES.items() for name in names}


if not typing.TYPE_CHECKING:  # (to a type checker every name would be one of these)

    def __getattr__(name: str) -> object:
        """Load what a public name is; with the first one, what programs read of its results, and notebooks show."""
        if name not in _MODULES and name not in ("reports", "types"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        for module in ("reports", "types"):
            importlib.import_module(f".{module}", __name__)
        importlib.import_module(".viewer.notebook", __name__).install()
        if name in _MODULES:
            module = importlib.import_module(f".{_MODULES[name]}", __name__)
            globals()[name] = getattr(module, name)
            _publish(__name__, globals(), [name])
        return globals()[name]


def __dir__() -> list[str]:
    return sorted([*__all__, *_BUILTIN_NAMES, "__version__", "errors", "reports", "types"])


def _html(record: Record) -> str:
    """Return what a notebook shows of an entity; the first one loads what shows it."""
    importlib.import_module(".viewer.notebook", __name__).install()
    html: str = typing.cast(typing.Any, record)._repr_html_()
    return html


_publish(__name__, globals(), [name for name in (*__all__, *_BUILTIN_NAMES) if name not in _MODULES])
type.__setattr__(Record, "_repr_html_", _html)
