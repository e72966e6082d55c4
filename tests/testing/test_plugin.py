"""What only a run of pytest shows of the fixtures for tests of users, in runs of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.pages import ROOT, blocks

pytestmark = [pytest.mark.one_python, pytest.mark.file]
CONFTEST = """
import pytest
from shop import Note
pytest_plugins = ["tablemapper.testing.plugin"]

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
        plain = ("-p", "no:cacheprovider", "-W", "error", "--strict-markers")
        return pytester.runpytest_inprocess(*plain, *options)

    return run


@pytest.mark.parametrize("ini", [True, False])
def test_the_engine_is_chosen_by_an_option_or_a_setting(run: Run, pytester: pytest.Pytester, ini: bool) -> None:
    if ini:
        pytester.makeini("[pytest]\ntm_engine = sqlite\n")
    test = 'def test_it(tm_store, tmp_path):\n    assert (tmp_path / "store.db").exists()\n'
    run(test, *([] if ini else ["--tm-engine=sqlite"])).assert_outcomes(passed=1)


def test_an_engine_that_there_is_not_is_a_usage_error(run: Run) -> None:
    result = run("def test_it(): ...", "--tm-engine=oracle")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--tm-engine=oracle: expected memory or sqlite*"])


def test_without_classes_the_lines_to_write_are_named(run: Run) -> None:
    result = run("def test_it(tm_store): ...", conftest='pytest_plugins = ["tablemapper.testing.plugin"]')
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
    run(source, conftest='pytest_plugins = ["tablemapper.testing.plugin"]').assert_outcomes(passed=len(names))
    assert len(names) >= 7
