"""Fixtures of pytest, which loads this module wherever tablemapper is installed.

Each run of pytest loads it, in whatever project: so it imports nothing of tablemapper until a test asks for a fixture.
That is why it stands beside the package. No fixture is used by itself, and each test gets a store of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tablemapper.aio.store import AsyncStore
    from tablemapper.entities.entity import Record
    from tablemapper.events import Event
    from tablemapper.store.store import Store
    from tablemapper.testing.clock import Clock

_ENGINES = ("memory", "sqlite", "azure")
_OPTIONS = ("check", "limits", "models", "scans")
_FAILED = pytest.StashKey[bool]()


class _PlainImports:
    """Imports tablemapper as Python does.

    pytest rewrites the assertions of all modules that were installed with a plugin, and would do so for two hundred of
    tablemapper: a second where Python keeps no bytecode, a fifth of one else.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the place of a module of tablemapper; None for all others, and where another finder knows it."""
        return PathFinder.find_spec(name, path, target) if name.partition(".")[0] == "tablemapper" else None


sys.meta_path.insert(0, _PlainImports)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting of the engine."""
    text = "where tm_store keeps its entities: memory, sqlite for a file in tmp_path, or azure for tables of an account"
    parser.getgroup("tablemapper").addoption("--tm-engine", metavar="ENGINE", help=text)
    parser.addini("tm_engine", text, default="memory")
    account = (
        "the account of --tm-engine=azure: a connection string, or env:NAME for a variable with one; else the emulator"
    )
    parser.getgroup("tablemapper").addoption("--tm-account", metavar="ACCOUNT", help=account)
    parser.addini("tm_account", account, default="UseDevelopmentStorage=true")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and refuse an engine that there is not."""
    config.addinivalue_line(
        "markers", 'tm_store(models=[…], limits="azure", scans=False, check=False): of the store that this test gets'
    )
    if (name := _engine(config)) not in _ENGINES:
        raise pytest.UsageError(f"--tm-engine={name}: expected memory, sqlite or azure")


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note whether a test ended before its end, so that its store says nothing more."""
    if call.when == "call":
        item.stash[_FAILED] = call.excinfo is not None


@pytest.fixture
def tm_models() -> list[type[Record]]:
    """The classes of `tm_store`; a conftest.py says which."""
    __tracebackhide__ = True
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
    """A clock that the test moves, for the timestamps of `tm_store` and for `tablemapper.uuid7`."""
    from tablemapper.testing.clock import Clock

    clock = Clock()
    with clock.in_force():
        yield clock


@pytest.fixture
def tm_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of `tm_models`, which is checked and closed after the test."""
    __tracebackhide__ = True
    from tablemapper.testing.store_fixture import account_store, empty_store, faults_of, no_scans

    options = _options(request.node)
    names = [name for name in ("clock", "events") if f"tm_{name}" in request.fixturenames]
    fixtures = {name: request.getfixturevalue(f"tm_{name}") for name in names}
    models = options["models"] if "models" in options else request.getfixturevalue("tm_models")
    path = request.getfixturevalue("tmp_path") / "store.db" if _engine(request.config) == "sqlite" else ":memory:"
    with ExitStack() as cleanup:
        if _engine(request.config) == "azure":
            if "clock" in fixtures:
                raise pytest.UsageError("tm_clock: an account has the time of its service; use another --tm-engine")
            account = str(request.config.getoption("--tm-account") or request.config.getini("tm_account"))
            store = cleanup.enter_context(account_store(models, account, limits=options.get("limits"), **fixtures))
        else:
            store = cleanup.enter_context(empty_store(path, models, limits=options.get("limits"), **fixtures))
        if not options.get("scans", True):
            cleanup.enter_context(no_scans())
        yield store
        if options.get("check", True) and not request.node.stash.get(_FAILED, False) and (faults := faults_of(store)):
            pytest.fail(f"the store of this test is not whole: {faults}", pytrace=False)


@pytest.fixture
def tm_async_store(tm_store: Store) -> Iterator[AsyncStore]:
    """The `tm_store` of the test as an `AsyncStore`, for the event loop of whoever runs the test."""
    from tablemapper.testing.async_face import async_face

    with async_face(tm_store) as store:
        yield store


def _engine(config: pytest.Config) -> str:
    return str(config.getoption("--tm-engine") or config.getini("tm_engine"))


def _options(node: pytest.Item) -> dict[str, Any]:
    """Return the options in the marks of a test; the mark of a test comes before that of its class or its module."""
    __tracebackhide__ = True
    options: dict[str, Any] = {}
    for mark in node.iter_markers("tm_store"):
        wrong = [f"{name}=" for name in mark.kwargs if name not in _OPTIONS] + [
            repr(argument) for argument in mark.args
        ]
        wrong += [
            f"{name}={mark.kwargs[name]!r}"
            for name in ("check", "scans")
            if mark.kwargs.get(name, True) not in (True, False)
        ]
        if wrong:
            raise pytest.UsageError(
                f"@pytest.mark.tm_store: {', '.join(wrong)} is not expected; expected are models=[…], "
                'limits="azure", scans=False and check=False'
            )
        options = {**mark.kwargs, **options}
    return options
