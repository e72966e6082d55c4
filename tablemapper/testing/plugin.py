"""Fixtures of pytest: ``pytest_plugins = ["tablemapper.testing.plugin"]`` in the conftest.py at the top.

No fixture is used by itself, and each test gets a store of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from ..engines.opening import open_engine, place_of
from ..engines.protocol import Engine
from ..entities.entity import Record
from ..errors import ScanRefused, StoreClosed
from ..events import Event, observer
from ..query.mixed import MixedQuery
from ..query.query import Query
from ..schema.model import Schema
from ..store.builds import build_declared
from ..store.opening import check_limits, new_store, schema_of
from ..store.store import Store
from .clock import Clock

_ENGINES = ("memory", "sqlite")
_OPTIONS = {"models", "limits", "scans", "check"}
_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting of the engine."""
    text = "where tm_store keeps its entities: memory, or sqlite for a file in tmp_path"
    parser.addoption("--tm-engine", help=text)
    parser.addini("tm_engine", text, default="memory")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and refuse an engine that there is not."""
    config.addinivalue_line(
        "markers", "tm_store(models=…, limits=…, scans=False, check=False): of the store that this test gets"
    )
    if (name := _engine(config)) not in _ENGINES:
        raise pytest.UsageError(f"--tm-engine={name}: expected {' or '.join(_ENGINES)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Note whether a test failed, so that its store says nothing more."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture
def tm_models() -> list[type[Record]]:
    """The classes of `tm_store`; a conftest.py says which."""
    raise pytest.UsageError(
        "tm_store needs to know your classes; write into conftest.py:\n\n"
        "    @pytest.fixture\n    def tm_models():\n        return [Product, Sale]\n"
    )


@pytest.fixture
def tm_events() -> list[Event]:
    """The reports of `tm_store`, one for each of its calls."""
    return []


@pytest.fixture
def tm_clock() -> Iterator[Clock]:
    """A clock that stands still, for the timestamps of `tm_store` and for `tablemapper.uuid7`."""
    clock = Clock()
    with clock.in_force():
        yield clock


@pytest.fixture
def tm_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of `tm_models`, which is checked and closed after the test."""
    mark = request.node.get_closest_marker("tm_store")
    options: dict[str, Any] = {} if mark is None else dict(mark.kwargs)
    if unknown := sorted(options.keys() - _OPTIONS):
        raise pytest.UsageError(f"@pytest.mark.tm_store has no {unknown[0]}=; it has {', '.join(sorted(_OPTIONS))}")
    models = options["models"] if "models" in options else request.getfixturevalue("tm_models")
    limits = options.get("limits")
    check_limits(limits)
    used = request.fixturenames
    clock: Clock | None = request.getfixturevalue("tm_clock") if "tm_clock" in used else None
    events: list[Event] | None = request.getfixturevalue("tm_events") if "tm_events" in used else None
    if options.get("scans", True) is False:
        _forbid_scans(request.getfixturevalue("monkeypatch"))
    where = ":memory:"
    if _engine(request.config) == "sqlite":
        where = str(request.getfixturevalue("tmp_path") / "store.db")
    engine = open_engine(_Place(where, clock), schema_of(models, read_only=False), durability="relaxed")
    build_declared(engine, progress=False)
    watch = None if events is None else observer(events.append, None)
    with new_store(engine, watch, limits=limits) as store:
        yield store
        if options.get("check", True) is not False and not request.node.stash.get(_FAILED, False):
            try:
                report = store.check()
            except StoreClosed:
                return
            if not report.ok:
                pytest.fail(f"the store of this test is not whole: {report}", pytrace=False)


class _Place:
    """A place whose timestamps come from a clock of the test, if there is one."""

    def __init__(self, where: str, clock: Clock | None) -> None:
        self._where = where
        self._clock = {} if clock is None else {"clock": clock.microseconds}

    def open(self, schema: Schema | None, **options: Any) -> Engine:
        place: Any = place_of(self._where)
        engine: Engine = place.open(schema, **self._clock, **options)
        return engine


def _engine(config: pytest.Config) -> str:
    return str(config.getoption("--tm-engine") or config.getini("tm_engine"))


def _forbid_scans(patch: pytest.MonkeyPatch) -> None:
    def allow_scan(query: Any) -> Any:
        raise ScanRefused(f"{query!r}: the test forbids scans: @pytest.mark.tm_store(scans=False)")

    for cls in (Query, MixedQuery):
        patch.setattr(cls, "allow_scan", allow_scan)
