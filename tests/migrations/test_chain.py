"""Scripts follow each other, one after the other, and everything that is wrong with that is said at once."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tablemapper as tm

Package = Callable[..., str]
_number = itertools.count()
SCRIPT = '''"""{doc}"""

import tablemapper as tm


@tm.migration(after={after!r}, old=[], new=[])
def migrate(m: tm.Migration) -> None:
    pass
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """Return a function that writes a package of scripts: by name, what each follows, or its text."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []

    def write(**scripts: str | None) -> str:
        name = f"scripts_{next(_number)}"
        names.append(name)
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        for id, after in scripts.items():
            text = after if after is not None and "\n" in after else SCRIPT.format(doc=f"It is {id}.", after=after)
            (tmp_path / name / f"{id}.py").write_text(text, encoding="utf-8")
        return name

    yield write
    for module in [one for one in sys.modules if one.split(".")[0] in names]:
        del sys.modules[module]


def faults(package: str) -> tuple[str, ...]:
    with pytest.raises(tm.InvalidMigration) as caught:
        tm.Migrations(package)
    assert isinstance(caught.value, TypeError)
    return caught.value.faults


def test_scripts_come_in_the_order_in_which_they_follow_each_other(package: Package) -> None:
    migrations = tm.Migrations(package(b="c", a="b", c=None))
    assert migrations.ids == ("c", "b", "a")
    assert [script.doc for script in migrations.scripts] == ["It is c.", "It is b.", "It is a."]
    assert tm.Migrations(package()).ids == ()


def test_a_module_with_an_underscore_is_no_script(package: Package) -> None:
    assert tm.Migrations(package(a=None, _tools="x = 1\n")).ids == ("a",)


def test_two_scripts_that_follow_the_same_one_are_named(package: Package) -> None:
    assert faults(package(a=None, b="a", c="a")) == ("b and c both follow a: change after= of one",)
    assert faults(package(a=None, b=None)) == ("a and b both are first (after=None): change after= of one",)
    assert faults(package(a=None, b="a", c="a", d="a")) == ("b, c and d all follow a: change after= of one",)


def test_a_script_that_follows_one_that_is_not_there_is_named_with_the_nearest(package: Package) -> None:
    (fault,) = faults(package(_0="x = 0\n", n0001_first=None, n0002_tags="n0001_frist"))
    assert fault.startswith('n0002_tags follows n0001_frist, which does not exist; did you mean "n0001_first"?')


def test_a_script_is_no_guess_for_the_one_that_it_follows(package: Package) -> None:
    (fault,) = faults(package(n0002_b="n0001_a"))
    assert fault.startswith("n0002_b follows n0001_a, which does not exist; write after=None")


def test_scripts_in_a_circle_are_named(package: Package) -> None:
    assert faults(package(a=None, b="c", c="b")) == (
        "b and c follow each other in a circle; the first says after=None",
    )
    assert faults(package(a="a")) == ("a follows itself; the first says after=None",)


def test_a_module_without_a_migration_and_one_with_two_are_named(package: Package) -> None:
    two = SCRIPT.format(doc="", after=None) + SCRIPT.format(doc="", after=None).replace("migrate", "other")
    first, second = faults(package(a="x = 1\n", b=two))
    assert first.startswith("a: no function has @tm.migration(…), and a script has one")
    assert second.startswith("b: 2 functions have @tm.migration(…)")


def test_a_module_that_cannot_be_imported_is_named_with_the_error(package: Package) -> None:
    assert faults(package(a="import nothing_of_this_name\n")) == (
        "a: it cannot be imported: ModuleNotFoundError: No module named 'nothing_of_this_name'",
    )


def test_all_faults_of_a_chain_come_together(package: Package) -> None:
    found = faults(package(a=None, b=None, c="x", d="e", e="d", f="y = 1\n"))
    assert [fault.split()[0] for fault in found] == ["f:", "c", "a", "d"]


def test_a_package_that_is_none_is_refused(package: Package) -> None:
    for wrong, said in (("no_such_package", "cannot be imported"), ("os.path", "name a package"), (3, "got 3")):
        with pytest.raises(tm.InvalidMigration, match=said):
            tm.Migrations(wrong)  # type: ignore[arg-type]


@tm.migration(after=None, old=[], new=[])
def first(m: tm.Migration) -> None:
    """Nothing yet."""


@tm.migration(after="first", old=[], new=[])
def second(m: tm.Migration) -> None:
    """Nothing either."""


def test_a_list_of_functions_is_a_chain_too() -> None:
    assert tm.Migrations([second, first]).ids == ("first", "second")
    with pytest.raises(tm.InvalidMigration, match="2 scripts are called first; give each a name of its own"):
        tm.Migrations([first, second, first])
    with pytest.raises(tm.InvalidMigration, match="is not a migration: decorate the function with @tm.migration"):
        tm.Migrations([print])  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["a\0b", "", "a b", "a\nb", "a\ud800"])
def test_a_script_without_a_name_that_can_be_written_is_refused(name: str) -> None:
    def function(m: tm.Migration) -> None:
        """Change nothing."""

    function.__name__ = name
    with pytest.raises(tm.InvalidMigration, match="cannot be the name of a script"):
        tm.Migrations([tm.migration(after=None, old=[], new=[])(function)])


def test_an_edited_script_has_another_digest(package: Package) -> None:
    text = SCRIPT.format(doc="x", after=None)
    (one,), (same,), (other,) = (
        tm.Migrations(package(a=source)).scripts for source in (text, text, text.replace("pass", "return"))
    )
    assert one.digest == same.digest != other.digest
    assert len(one.digest) == 32
    one, two = tm.Migrations([first, second]).scripts
    assert one.digest != two.digest
