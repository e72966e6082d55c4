"""Options of the whole suite, and how many examples a property gets."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tablemapper.engines import opening

from .engines.azure.place import AzurePlace
from .engines.dicts import DictPlace
from .touched import Touched, touching

# A machine that is busy is slow: no example has a deadline. Properties that need more or fewer examples than a profile
# gives call `examples`. No example is kept from one run for the next, so that what fails does not depend on a folder.
settings.register_profile(
    "short", deadline=None, max_examples=30, suppress_health_check=list(HealthCheck), database=None, print_blob=True
)
settings.register_profile("long", settings.get_profile("short"), max_examples=100)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=["azure", "dicts"], help="what keeps the stores of tests: SQLite, or this")
    parser.addoption(
        "--long", action="store_true", help="run properties with many examples, and tests marked long at full size"
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "short")


def examples(short: int, *, long: int) -> settings:
    """Return settings with so many examples, by the profile that runs."""
    return settings(max_examples=long if settings.get_current_profile_name() == "long" else short)


@pytest.fixture
def full_size(request: pytest.FixtureRequest) -> bool:
    """Whether a long test runs at full size."""
    return bool(request.config.getoption("--long"))


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """Return a folder in memory, where there is one: for tests that make very many files."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, where there is one."""
    with folder_in_memory() as path:
        yield Path(path)


@pytest.fixture(scope="module")
def counting() -> Iterator[Touched]:
    """Count the rows that the queries of a module touch; it comes before the store, which it must see from the start."""
    with touching() as touched:
        yield touched


@pytest.fixture(scope="module")
def no_warnings_of_scans() -> Iterator[None]:
    """Keep the warnings of a module's scans out of the log."""
    logger = logging.getLogger("tablemapper.query")
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(logging.NOTSET)


@pytest.fixture(scope="session", autouse=True)
def _engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Open stores by another engine, if that is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        if (kind := {"azure": AzurePlace, "dicts": DictPlace}.get(request.config.getoption("--engine"))) is not None:
            place = lambda where: kind(os.fspath(where)) if isinstance(where, str | os.PathLike) else where  # noqa: E731
            patch.setattr(opening, "place_of", place)
        yield


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove what a test, or a program that it runs, leaves behind; after a kill, pytest does so in one of its next runs."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.setitem(os.environ, "TMPDIR", folder)
        yield
    shutil.rmtree(folder, ignore_errors=True)
