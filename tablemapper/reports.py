"""Results that the library returns, for annotations and tests: programs read them, and never build them."""

from __future__ import annotations

from .attributes import publish as _publish
from .catalogue.transitions import ConversionFault
from .engines.check import CheckReport, Problem, RepairReport
from .engines.protocol import DuplicateValue
from .engines.statistics import IndexStatistics, PartitionStatistics, PartitionSummary, Quantiles, Statistics
from .engines.status import AppliedMigration, ObjectStatus, Status
from .entities.entity import EntityInfo
from .evolution.changes import SchemaChange
from .guidance.advice import Advice
from .guidance.workload import CallStatistics
from .migrations.report import MigrationReport, MigrationStep
from .planning.cost import Cost
from .planning.explanation import Explanation, MixedExplanation
from .progress import Progress
from .store.builds import BuildReport
from .store.copy import CopyReport

__all__ = [
    "Advice",
    "AppliedMigration",
    "BuildReport",
    "CallStatistics",
    "CheckReport",
    "ConversionFault",
    "CopyReport",
    "Cost",
    "DuplicateValue",
    "EntityInfo",
    "Explanation",
    "IndexStatistics",
    "MigrationReport",
    "MigrationStep",
    "MixedExplanation",
    "ObjectStatus",
    "PartitionStatistics",
    "PartitionSummary",
    "Problem",
    "Progress",
    "Quantiles",
    "RepairReport",
    "SchemaChange",
    "Statistics",
    "Status",
]

_publish(__name__, globals(), __all__)
