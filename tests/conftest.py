"""Options of the whole suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run tests that are marked long at full size")


@pytest.fixture
def full_size(request: pytest.FixtureRequest) -> bool:
    """Whether a long test runs at full size."""
    return bool(request.config.getoption("--long"))
