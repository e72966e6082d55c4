"""The fixtures for tests of users, in runs of pytest of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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
import uuid
import tablemapper as tm

class Note(tm.Entity, table="Notes"):
    folder: tm.Field[str]
    id: tm.Field[uuid.UUID] = tm.field(factory=tm.uuid7)
    text: tm.Field[str] = tm.field(default="")
    key = tm.Key[str, uuid.UUID](partition="{folder}", row="{id}")
    by_text = tm.Index[str](partition="{text}")
"""
HEAD = "from datetime import UTC, datetime\nimport pytest\nimport tablemapper as tm\nfrom shop import Note\n"
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a test file with the classes of a shop."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(test: str, *options: str, conftest: str = CONFTEST) -> pytest.RunResult:
        for name, source in (("conftest.py", conftest), ("shop.py", SHOP), ("test_it.py", HEAD + test)):
            Path(pytester.path, name).write_text(source, encoding="utf-8")
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error", *options)

    return run


def test_each_test_gets_an_empty_store_of_its_own(run: Run) -> None:
    result = run("""
@pytest.mark.parametrize("n", range(2))
def test_it(tm_store, n):
    assert tm_store.query(Note).allow_scan().count() == 0
    tm_store.insert(Note("f"))
    assert "memory" in repr(tm_store)
""")
    result.assert_outcomes(passed=2)


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


def test_a_store_that_is_not_whole_is_an_error_unless_the_test_failed(run: Run) -> None:
    damage = """
def damage(store):
    store.insert(Note("f", text="x"))
    store._engine.file.write(lambda writer: writer.run('DELETE FROM "NotesByText"', [()]))
"""
    test = "def test_it(tm_store):\n    damage(tm_store)\n"
    result = run(damage + test)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the store of this test is not whole*"])
    run(damage + test + "    assert 0\n").assert_outcomes(failed=1)
    run(damage + "@pytest.mark.tm_store(check=False)\n" + test).assert_outcomes(passed=1)
    run("def test_it(tm_store):\n    tm_store.close()\n").assert_outcomes(passed=1)


def test_the_mark_gives_classes_limits_and_forbids_scans(run: Run) -> None:
    result = run("""
class Other(tm.Entity, table="Others"):
    id: tm.Field[str]
    key = tm.Key[str](partition="{id}")

@pytest.mark.tm_store(models=[Other])
def test_models(tm_store):
    tm_store.insert(Other("a"))

@pytest.mark.tm_store(limits="azure")
def test_limits(tm_store):
    with pytest.raises(tm.InvalidTransaction):
        with tm_store.transaction() as tx:
            for _ in range(60):
                tx.insert(Note("f", text="x"))

@pytest.mark.tm_store(scans=False)
def test_scans(tm_store):
    with pytest.raises(tm.ScanRefused, match="the test forbids scans"):
        tm_store.query(Note).allow_scan()

def test_scans_again(tm_store):
    list(tm_store.query(Note).allow_scan())

@pytest.mark.tm_store(model=[Other])
def test_wrong(tm_store): ...
""")
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["*tm_store has no model=; it has check, limits, models, scans*"])


def test_events_are_those_of_the_store(run: Run) -> None:
    result = run("""
def test_it(tm_store, tm_events):
    tm_store.insert(Note("f"))
    assert [e.verb for e in tm_events] == ["insert"]
""")
    result.assert_outcomes(passed=1)


def test_the_clock_stands_still_for_timestamps_and_uuids_and_is_real_again_afterwards(run: Run) -> None:
    result = run("""
ids = []

@pytest.mark.parametrize("n", range(2))
def test_it(tm_store, tm_clock, n):
    one, two = Note("f"), Note("f")
    tm_store.insert(one)
    tm_store.insert(two)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert tm_clock.now == start
    assert [(tm.info(each).timestamp - start).microseconds for each in (one, two)] == [1, 2]
    assert one.id < two.id
    ids.append((one.id, two.id))
    tm_clock.tick(60)
    three = Note("f")
    tm_store.insert(three)
    assert (tm.info(three).timestamp - start).total_seconds() == 60
    tm_clock.set(datetime(2027, 5, 1, tzinfo=UTC))
    four = Note("f")
    tm_store.insert(four)
    assert tm.info(four).timestamp == datetime(2027, 5, 1, tzinfo=UTC)
    assert four.id > three.id
    with pytest.raises(ValueError, match="time zone"):
        tm_clock.set(datetime(2027, 5, 1))

def test_real(tm_store):
    note = Note("f")
    tm_store.insert(note)
    assert abs((tm.info(note).timestamp - datetime.now(UTC)).total_seconds()) < 3600
    assert ids[0] == ids[1]
    assert note.id not in ids[0]
""")
    result.assert_outcomes(passed=3)
