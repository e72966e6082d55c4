"""A store file that is open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tablemapper.engines.sqlite.file.file import File
from tablemapper.engines.sqlite.file.opening import open_file

from ... import sqlite_vfs  # noqa: F401  registers the file layers
from .table import create_table


@pytest.fixture
def file(path: Path) -> Iterator[File]:
    with open_file(path) as file:
        file.write(create_table)
        yield file
