"""Options of the whole suite, and how many examples a property gets."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import math
import multiprocessing.util
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.configuration import set_hypothesis_home_dir

import tablemapper as tm
from tablemapper.engines import locations
from tablemapper.engines.azure.engine import CAPABILITIES
from tablemapper.planning.capabilities import Capabilities

from .browser import browser, chromium  # noqa: F401  (fixtures)
from .engines.azure.azurite import AzuritePlace
from .engines.azure.place import AzurePlace
from .engines.dicts import ALL, DictPlace
from .touched import Touched, touching

# A machine that is busy is slow: no example has a deadline. Properties that need more or fewer examples than a profile
# gives call `examples`. No example is kept from one run for the next, so that what fails does not depend on a folder.
settings.register_profile(
    "short", deadline=None, max_examples=20, suppress_health_check=list(HealthCheck), database=None, print_blob=True
)
settings.register_profile("long", settings.get_profile("short"), max_examples=100)
settings.register_profile("quick", settings.get_profile("short"), max_examples=8)


_REFUSALS: dict[str, tuple[type[Exception], ...]] = {
    "backward": (tm.InvalidQuery,),
    "sorts": (tm.InvalidQuery,),
    "across_partitions": (tm.InvalidTransaction,),
    "all_or_none_load": (tm.InvalidTransaction,),
    "unique_group_indexes": (tm.InvalidModel,),  # (on an aggregate in another partition than its entities)
    "kept_indexes": (tm.InvalidModel,),  # (over fields that are maintained from other entities)
    "free_space": (tm.InvalidTransaction,),  # (which `compact` gives back)
    "exact_sizes": (tm.InvalidEntity,),  # (the service counts bytes as they travel)
    "fresh": (tm.ScanRefused, tm.QueryStopped),  # (groups and covering indexes answer without `allow_eventual`)
    "costs": (AssertionError,),  # (of a query in an account, counted beforehand)
    "estimates": (AssertionError,),  # (of rows, by `explain()`)
    "one_commit": (AssertionError,),  # (what is written or maintained in several partitions is of one time)
    "one_state": (AssertionError,),  # (which a query of several requests reads)
    "own_time": (AssertionError,),  # (which the process tells, and a service does not)
    "near_joins": (AssertionError,),  # (to read the entity of a row of an index costs no more than to read another row)
}
"""What a test may need, and how an engine that lacks it refuses; the first of them are capabilities."""
_OF_DICTS = frozenset(["costs", "estimates", "free_space"])
_BARE = ("backward", "sorts", "across_partitions", "all_or_none_load")


@attrs.frozen
class Engine:
    """What can keep the stores of tests instead of SQLite."""

    place: Callable[[str], Any]
    capabilities: Capabilities
    lacks: frozenset[str] = frozenset()
    """What it cannot do, beside capabilities."""

    def lacking(self, needed: Iterable[str]) -> list[str]:
        """Return what is needed and not there."""
        return sorted(one for one in needed if one in self.lacks or not getattr(self.capabilities, one, True))


ENGINES = {
    "azure": Engine(AzurePlace, CAPABILITIES, frozenset(_REFUSALS).difference(_BARE, ["own_time"])),
    "azurite": Engine(AzuritePlace, CAPABILITIES, frozenset(_REFUSALS).difference(_BARE)),
    "bare": Engine(
        lambda name: DictPlace(name, lacking=_BARE), attrs.evolve(ALL, **dict.fromkeys(_BARE, "")), _OF_DICTS
    ),
    "dicts": Engine(DictPlace, ALL, _OF_DICTS),
}
OF_FILES = (
    *(
        "aio/test_workers.py", "cli", "engines", "files", "hostile", "migrations", "site", "test_benchmarks.py",
        "test_docs.py", "viewer",
    ),
    *(f"whole/test_{name}" for name in ("ahead", "chains", "damaged", "database", "hostile", "interrupts", "kills")),
    *(f"whole/test_{name}" for name in ("memory", "power", "rolling", "rows_touched", "search", "states", "sweeps")),
)  # fmt: skip
"""Tests of files, of the command and of engines that they name themselves."""
SLOW = (
    "cli", "engines/azure", "engines/sqlite/file/test_faults.py", "engines/sqlite/file/test_restore",
    "engines/sqlite/test_following_at_random.py", "engines/sqlite/test_versions.py",
    "engines/test_changes_of_a_class.py", "guidance", "hostile", "migrations", "site", "store/test_group_builds.py",
    "test_benchmarks.py", "test_command_lines.py", "test_docs.py", "test_examples.py", "test_service.py", "test_typing.py", "testing",
    "viewer", "whole",
)  # fmt: skip
"""What takes most of the time of a whole run, and tells least of a small change elsewhere."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=sorted(ENGINES), help="what keeps the stores of tests: SQLite, or this")
    parser.addoption(
        "--long", action="store_true", help="run properties with many examples, and tests marked long at full size"
    )


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # (until all tests are imported, of which nothing is garbage)
    settings.load_profile("long" if config.getoption("--long") else "quick" if _is_quick(config) else "short")
    if (
        config.getoption("--engine") is not None
    ):  # a refusal that is expected is found each time, and need not be a small one
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("refusing", settings.get_profile("short"), phases=phases, derandomize=True)
        settings.load_profile("refusing")
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2**31:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))  # a sync costs nothing there
    set_hypothesis_home_dir(_CACHE / "hypothesis")  # (its tables of Unicode take each new tree and process seconds)
    if sys.dont_write_bytecode:  # a quarter of a second for each program that a test starts, seconds for the tests
        sys.dont_write_bytecode = False
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(_BYTECODE)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _is_quick(config: pytest.Config) -> bool:
    return config.getoption("markexpr") == "quick"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is not quick before it is imported: each worker would collect all of it."""
    here = Path(__file__).parent
    slow = collection_path.is_relative_to(here) and collection_path.relative_to(here).as_posix().startswith(SLOW)
    return True if slow and _is_quick(config) else None


_MEMORY = Path("/dev/shm")
_CACHE = Path.home() / ".cache" / "tablemapper"
_BYTECODE = _CACHE / "bytecode"
"""What the tree is to be kept free of, if the environment says so."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is quick. Skip on another engine what is of a file; what needs what it lacks must end in a refusal."""
    here = Path(__file__).parent
    places = {item: item.path.relative_to(here).as_posix() for item in items}
    for item, place in places.items():
        if not place.startswith(SLOW) and not any(map(item.get_closest_marker, ("interrupts", "long"))):
            item.add_marker(pytest.mark.quick)
    if (name := config.getoption("--engine")) is None:
        return
    engine = ENGINES[name]
    for item, place in places.items():
        if item.get_closest_marker("file") or place.startswith(OF_FILES):
            item.add_marker(pytest.mark.skip(reason="it is of a file"))
        elif lacking := engine.lacking({need for mark in item.iter_markers("needs") for need in _needs(mark, item)}):
            reason = f"{engine.capabilities.engine} lacks {', '.join(lacking)}"
            refusals = (*[one for need in lacking for one in _REFUSALS[need]], *_SEEN)
            item.add_marker(pytest.mark.xfail(reason=reason, raises=refusals, strict=name != "azurite"))


@pytest.fixture
def lacks(request: pytest.FixtureRequest) -> Callable[[str], bool]:
    """Return whether the engine of the stores of tests lacks something."""
    name = request.config.getoption("--engine")
    return lambda need: name is not None and bool(ENGINES[name].lacking([need]))


def _needs(mark: pytest.Mark, item: pytest.Item) -> tuple[str, ...]:
    """Return what a test needs; where a mark has a `when`, that says of the values of a case, or its `id`, whether it does."""
    if (when := mark.kwargs.get("when")) is None:
        return mark.args
    params = {"id": cast(Any, item).callspec.id} | cast(Any, item).callspec.params
    return mark.args if when(*[params[name] for name in inspect.signature(when).parameters]) else ()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop: in that of its fixtures, if they have one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    pyfuncitem.funcargs.get("runner", asyncio).run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of a test and of its fixtures."""
    with asyncio.Runner() as runner:
        yield runner


def pytest_collection_finish() -> None:
    """Leave what thousands of tests have imported alone: to look for garbage among it takes a third of a second each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Look for garbage from here on, in the process that hands out tests to others, too: seldom, which saves 4 %."""
    gc.enable()
    gc.set_threshold(5_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many tests another engine refused, by what it lacks."""
    if config.getoption("--engine") is not None:
        refused = Counter(report.wasxfail for report in terminalreporter.stats.get("xfailed", ()))
        skipped = sum("it is of a file" in str(report.longrepr) for report in terminalreporter.stats.get("skipped", ()))
        for reason, count in [*sorted(refused.items()), ("of a file", skipped)]:
            terminalreporter.write_line(f"{count} refused or left out: {reason}")


_SEEN = (AssertionError, pytest.fail.Exception, BaseExceptionGroup)
"""How a test ends that expects something else than the refusal: another error, or several of them in a property."""


def examples(short: int, *, long: int) -> settings:
    """Return settings with so many examples, by the profile that runs."""
    profile = settings.get_current_profile_name()
    return settings(max_examples=long if profile == "long" else min(short, 8) if profile == "quick" else short)


def rows_at_most(query: tm.Query[Any]) -> float:
    """Return how many rows a query reads at most by its plan; infinity on the engine that does not tell."""
    rows = query.explain().rows
    return math.inf if rows is None and query._plans.counts is None else cast(float, rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file of a store may be."""
    return tmp_path / "store.db"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the file of another store may be: where `path` is a store already, or beside it."""
    return tmp_path / "other.db"


@pytest.fixture
def little_garbage() -> None:
    """Leave what other tests have made alone while a test looks for garbage: that takes a second each time."""
    gc.freeze()


@pytest.fixture
def never_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every job wait for its batches, however few entities there are."""
    monkeypatch.setattr("tablemapper.engines.sqlite.online.apply_schema._AT_ONCE", -1)


@pytest.fixture
def full_size(request: pytest.FixtureRequest) -> bool:
    """Whether a long test runs at full size."""
    return bool(request.config.getoption("--long"))


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """Return a folder in memory, where there is one: for tests that make very many files."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)


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
        if (name := request.config.getoption("--engine")) is not None:
            kept = ENGINES[name].place
            place = lambda where: kept(os.fspath(where)) if isinstance(where, str | os.PathLike) else where  # noqa: E731
            patch.setattr(locations, "place_of", place)
        yield


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove what a test, or a program that it runs, leaves behind; after a kill, pytest does so in one of its next runs."""
    multiprocessing.util.get_temp_dir()  # (of its server, which ends after this; it removes it itself)
    folder = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.setitem(os.environ, "TMPDIR", folder)
        yield
    shutil.rmtree(folder, ignore_errors=True)
