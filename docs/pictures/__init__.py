"""The pictures of the site, drawn from programs that run: ``python -m docs.pictures`` draws all of them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from . import bars, models, rows, versions

FOLDER = Path(__file__).parent / "drawn"
PICTURES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "home": rows.home,
        "keys": rows.keys,
        "planner": rows.planner,
        "one-to-many": rows.one_to_many,
        "log-tail": rows.log_tail,
        "shards": rows.shards,
        "deployments": versions.deployments,
        "migrations": versions.migrations,
        "performance": bars.performance,
        "model-shop": models.shop,
        "model-weather": models.weather,
    }
)
"""Each picture by the name of its file."""
