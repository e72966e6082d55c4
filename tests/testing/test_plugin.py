"""What only a run of pytest shows of the fixtures for tests of users, in runs of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tablemapper as tm
from docs.pages import ROOT, blocks
from tablemapper.engines.azure.tables.accounts import account_of
from tablemapper.engines.azure.tables.service import ListTables
from tablemapper.engines.azure.tables.wire import Wire
from tablemapper.testing import account_store

from ..classes import entity
from ..engines.azure.conftest import azurite, connection  # noqa: F401  (fixtures)

pytestmark = [pytest.mark.one_python, pytest.mark.file]
CONFTEST = """
import pytest
from shop import Note

@pytest.fixture
def tm_models():
    return [Note]
"""
SHOP = """
import tablemapper as tm

class Note(tm.Entity, table="Notes"):
    id: tm.Field[str]
    text: tm.Field[str] = tm.field(default="")
    key = tm.Key[str](partition="{id}")
    by_text = tm.Index[str](partition="{text}")
"""
HEAD = "import pytest\nfrom shop import Note\n"
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a test file with the class of a shop."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "shop"]:  # (that of the examples)
        monkeypatch.delitem(sys.modules, name)

    def run(test: str, *options: str, conftest: str = CONFTEST) -> pytest.RunResult:
        for name, source in (("conftest.py", conftest), ("shop.py", SHOP), ("test_it.py", HEAD + test)):
            Path(pytester.path, name).write_text(source, encoding="utf-8")
        plain = ("-p", "no:cacheprovider", "-p", "tablemapper_pytest", "-W", "error", "--strict-markers")
        return pytester.runpytest_inprocess(*plain, *options)

    return run


@pytest.mark.parametrize("ini", [True, False])
def test_the_engine_is_chosen_by_an_option_or_a_setting(run: Run, pytester: pytest.Pytester, ini: bool) -> None:
    if ini:
        pytester.makeini("[pytest]\ntm_engine = sqlite\n")
    test = 'def test_it(tm_store, tmp_path):\n    assert (tmp_path / "store.db").exists()\n'
    run(test, *([] if ini else ["--tm-engine=sqlite"])).assert_outcomes(passed=1)


def test_in_an_account_each_test_has_tables_of_its_own_of_which_none_is_left(
    run: Run,
    connection: str,  # noqa: F811
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test = """
def test_one(tm_store, tm_events):
    tm_store.insert(Note("a", "x"))
    assert [one.id for one in tm_store.query(Note.by_text("x"))] == ["a"]
    assert "insert" in [event.verb for event in tm_events]

def test_other(tm_store):
    assert tm_store.get(Note.key("a")) is None
    tm_store.insert(Note("a", "y"))
    tm_store.close()

def test_failing(tm_store):
    tm_store.insert(Note("a", "z"))
    assert False

def test_for_asyncio(tm_async_store):
    import asyncio
    asyncio.run(tm_async_store.insert(Note("a", "z")))

def test_clock(tm_store, tm_clock): ...
"""
    monkeypatch.setenv("TESTED", connection)
    pytester.makeini("[pytest]\ntm_account = env:TESTED\n")
    result = run(test, "--tm-engine=azure")
    result.assert_outcomes(passed=3, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*tm_clock: an account has the time of its service; use another --tm-engine*"])
    run("def test_one(tm_store): ...", "--tm-engine=azure", f"--tm-account={connection}").assert_outcomes(passed=1)
    wire = Wire(account_of(connection))
    assert wire.send(ListTables("A", "z{")).entities == []
    wire.close()


def test_a_store_of_an_account_is_one_for_a_while(connection: str) -> None:  # noqa: F811
    models = [entity("Note", "Notes", {"id": str}, tm.Key[str](partition="{id}"))]
    with account_store(models, connection, prefix="Shown") as store, account_store(models, connection) as other:
        store.insert(models[0]("a"))
        assert other.get(models[0].key("a")) is None
        with tm.open(connection, models=models, prefix="Shown") as again:
            assert again.get(models[0].key("a")) is not None
    with pytest.raises(tm.NotAStore):
        tm.status(connection, prefix="Shown")
    with pytest.raises(ValueError, match="prefix= is for an account"), account_store(models, "shop.db"):
        pass


def test_an_engine_that_there_is_not_is_a_usage_error(run: Run) -> None:
    result = run("def test_it(): ...", "--tm-engine=oracle")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--tm-engine=oracle: expected memory, sqlite or azure*"])


def test_without_classes_the_lines_to_write_are_named(run: Run) -> None:
    result = run("def test_it(tm_store): ...", conftest="")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*write into conftest.py:*", "*def tm_models():*"])
    result.stdout.no_fnmatch_line("*getfixturevalue*")  # (nobody wants to read our source)


def test_a_store_that_is_not_whole_is_an_error_unless_the_test_failed(run: Run) -> None:
    result = run("""
@pytest.fixture
def damaged(tm_store):
    tm_store.insert(Note("f", text="x"))
    tm_store._engine.file.write(lambda writer: writer.run('DELETE FROM "NotesByText"', [()]))

def test_error(damaged): ...

@pytest.mark.tm_store(check=False)
def test_unchecked(damaged): ...

def test_failed(damaged):
    assert 0

@pytest.mark.xfail
def test_expected(damaged):
    assert 0

def test_closed(tm_store):
    tm_store.close()
""")
    result.assert_outcomes(passed=3, errors=1, failed=1, xfailed=1)
    result.stdout.fnmatch_lines(["*the store of this test is not whole*", "ERROR test_it.py::test_error *"])


def test_a_mark_that_says_something_else_is_an_error(run: Run) -> None:
    marks = {
        "model=[Note]": "model= is not expected; expected are models=",
        "[Note]": "*shop.Note*is not expected",
        "scans='no'": "scans='no' is not expected",
        "limits='aws'": "expected *azure* or None",
        "models=[int]": "*InvalidModel*int*",
    }
    tests = [f"@pytest.mark.tm_store({given})\ndef test_{at}(tm_store): ...\n" for at, given in enumerate(marks)]
    result = run("".join(tests))
    result.assert_outcomes(errors=len(marks))
    result.stdout.fnmatch_lines([f"E *{said}*" for said in marks.values()])


def test_the_tests_on_the_page_pass(run: Run) -> None:
    pytest.importorskip("time_machine")
    source = "\n".join(text for _, text in blocks(ROOT / "docs" / "how-to" / "testing.md"))
    names = re.findall(r"^def (test_\w+)", source, re.MULTILINE)
    run(source, conftest="").assert_outcomes(passed=len(names))
    assert len(names) >= 7


AUTOLOAD = ROOT / "tablemapper" / "testing" / "autoload"


def test_pytest_and_hypothesis_load_nothing_of_tablemapper_before_a_test_asks_for_it(tmp_path: Path) -> None:
    program = """
import importlib.metadata, sys, tomllib, pytest
import tablemapper_pytest, tablemapper_hypothesis
tablemapper_hypothesis.resolve_entity_classes()
from hypothesis import strategies
strategies.from_type(str).validate()
assert not [name for name in sys.modules if name.partition(".")[0] == "tablemapper"]

class Rewriting:  # (as pytest's hook is, and first before our plugin is loaded)
    @staticmethod
    def find_spec(name, path=None, target=None):
        assert not name.startswith("tablemapper"), name

sys.meta_path.insert(1, Rewriting)
import tablemapper
assert sys.meta_path[0] is tablemapper_pytest._PlainImports
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": f"{AUTOLOAD}:{ROOT}"}, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_store_for_asyncio_is_that_of_the_test_in_any_event_loop(run: Run) -> None:
    result = run("""
import asyncio, unittest

async def write(store):
    await store.insert(Note("f"))
    assert [note.id async for note in store.query(Note).where(Note.id == "f")] == ["f"]
    async with store.transaction() as tx:
        tx.insert(Note("f2"))
    return await asyncio.gather(*[store.exists(Note.key(id)) for id in ("f", "f2", "f3")])

def test_it(tm_async_store, tm_store, tm_events):
    assert asyncio.run(write(tm_async_store)) == [True, True, False]
    assert tm_store.exists(Note.key("f2"))
    asyncio.run(tm_async_store.delete(Note.key("f")))  # (in another loop)
    assert not tm_store.exists(Note.key("f"))
    verbs = [event.verb for event in tm_events]
    assert (verbs[0], verbs[-2], verbs[-1]) == ("insert", "delete", "exists"), verbs

class TestIt(unittest.IsolatedAsyncioTestCase):
    @pytest.fixture(autouse=True)
    def _store(self, tm_async_store):
        self.store = tm_async_store

    async def test_it(self):
        assert await write(self.store) == [True, True, False]
        await self.store.close()

@pytest.mark.tm_store(scans=False)
def test_scan(tm_async_store):
    with pytest.raises(Exception, match="forbids scans"):
        tm_async_store.query(Note).allow_scan()

def test_damaged(tm_async_store, tm_store):
    asyncio.run(tm_async_store.insert(Note("f", text="x")))
    tm_store._engine.file.write(lambda writer: writer.run('DELETE FROM "NotesByText"', [()]))
""")
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["*the store of this test is not whole*", "ERROR test_it.py::test_damaged *"])


def test_hypothesis_draws_entities_by_their_type(run: Run) -> None:
    run("""
import dataclasses, typing
import tablemapper as tm
import tablemapper_hypothesis
from hypothesis import given, strategies as st
from msgspec import Meta

tablemapper_hypothesis.resolve_entity_classes()  # (the entry point)

class Seat(tm.Entity, table="Seats"):
    number: tm.Field[typing.Annotated[int, Meta(ge=1, le=9)]]
    key = tm.Key[int](partition="{number}")

class Seats(tm.Aggregate, of=Seat, table="Totals"):
    number: tm.Field[int] = tm.group_by(Seat.number)
    count: tm.Field[int] = tm.count()
    key = tm.Key[int](partition="{number}")

@dataclasses.dataclass
class Row:
    seats: list[Seat]
    spare: Seat | None

@given(st.from_type(Row), st.from_type(Seat), st.from_type(int))
def test_it(row, seat, number):
    assert all(1 <= one.number <= 9 for one in [seat, *row.seats, *([row.spare] if row.spare else [])])

def test_shown():
    assert repr(st.from_type(Seat)) == "entities(Seat)"

@pytest.mark.parametrize("cls", [Seats, tm.Entity, tm.Record])
def test_refused(cls):
    with pytest.raises(tm.InvalidModel):
        st.from_type(cls).validate()
""").assert_outcomes(passed=5)
