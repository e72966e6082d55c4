"""A store file that is open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tablemapper.engines.sqlite.file.database import File

from ... import sqlite_vfs  # noqa: F401  registers the file layers
from .table import open_table


@pytest.fixture
def file(path: Path) -> Iterator[File]:
    with open_table(path) as file:
        yield file
