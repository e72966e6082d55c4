"""Fixtures of the tests of the engine for Azure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tablemapper.engines.azure.cross_partition import value_counts
from tablemapper.engines.azure.reading import spilled_rows
from tablemapper.engines.azure.tables.accounts import account_of
from tablemapper.engines.azure.tables.wire import Wire

from .azurite import Azurite, start


@pytest.fixture(scope="session", autouse=True)
def _few_are_many() -> Iterator[None]:
    """Let the values of a group, whose ends it has, come into pages when they are few, and rows of a check into a file."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("_ROW", 40), ("_PAGE", 60), ("_MOST", 3)):
            patch.setattr(value_counts, name, size)
        patch.setattr(spilled_rows, "_MOST", 5)
        yield


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """The emulator, in memory."""
    yield from start()


@pytest.fixture
def connection(azurite: Azurite) -> str:
    """The connection string of an account of its own."""
    return azurite.connection()


@pytest.fixture
def wire(connection: str) -> Iterator[Wire]:
    """A connection to an account of its own."""
    made = Wire(account_of(connection))
    yield made
    made.close()
