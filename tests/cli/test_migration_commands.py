"""The commands about migration scripts."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.cli import migration_commands
from tablemapper.cli.app import Exit, run

SHAPE = """class Part(tm.Entity, table="Parts"):
    bin: tm.Field[str]
    number: tm.Field[int]
    {field}
    key = tm.Key[str, int](partition="{{bin}}", row="{{number}}")
"""
OLD = SHAPE.format(field="price: tm.Field[str]")
NEW = SHAPE.format(field="price: tm.Field[Decimal]")
HEAD = "from decimal import Decimal\nimport tablemapper as tm\n\n"


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


SCRIPT = (
    '"""Prices are decimals."""\n'
    + HEAD
    + "class old:\n"
    + _indented(OLD)
    + "class new:\n"
    + _indented(NEW)
    + """
@tm.migration(after=None, old=[old.Part], new=[new.Part])
def migrate(m: tm.Migration) -> None:
    m.convert(old.Part.price, new.Part.price, Decimal, back=str)
"""
)


def _forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("depot", "depot_new", "depot_changes")]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory with the models of two versions, a script between them, and a store of the old version."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    Path("depot.py").write_text(HEAD + OLD)
    Path("depot_new.py").write_text(HEAD + NEW)
    Path("depot_changes").mkdir()
    Path("depot_changes/__init__.py").touch()
    Path("depot_changes/0001_price.py").write_text(SCRIPT)
    Path("pyproject.toml").write_text('[tool.tablemapper]\nmodels = "depot_new"\nscripts = "depot_changes"\n')
    importlib.invalidate_caches()
    _fill("3.50")
    yield
    _forget()


def _fill(*prices: str) -> None:
    import depot  # type: ignore[import-not-found]

    with tm.open("parts.db", models=[depot.Part]) as store:
        first = store.query(depot.Part).where(depot.Part.bin == "a").count()
        store.insert_many(depot.Part("a", first + number, price) for number, price in enumerate(prices))


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = run([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def _prices() -> list[str]:
    import depot_new  # type: ignore[import-not-found]

    with tm.open("parts.db", models=[depot_new.Part]) as store:
        return [str(part.price) for part in store.query(depot_new.Part).where(depot_new.Part.bin == "a")]


def test_migrate_runs_what_the_store_has_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = _json(capsys, "migrate", "parts.db")
    assert (code, report["ok"], report["applied"], report["entities"]) == (Exit.OK, True, ["0001_price"], 1)
    assert _prices() == ["3.50"]
    code, report = _json(capsys, "migrate", "parts.db")
    assert (code, report["applied"]) == (Exit.OK, [])
    _, status = _json(capsys, "status", "parts.db")
    assert [(run["id"], run["state"]) for run in status["history"]] == [("0001_price", "switched")]


def test_a_plan_says_what_would_be_done_and_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("parts.db").read_bytes()
    assert run(["migrations", "plan", "parts.db"]) == Exit.OK
    out = capsys.readouterr().out
    assert out.startswith("0001_price   convert Part.price")
    assert "1 entity   reversible" in out
    assert Path("parts.db").read_bytes() == before


def test_entities_that_cannot_be_converted_are_listed_and_end_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    _fill("cheap", "dear")
    for options in (["--dry-run"], []):
        code, report = _json(capsys, "migrate", "parts.db", *options)
        assert (code, report["ok"], report["applied"]) == (Exit.FINDINGS, False, [])
        assert [fault["key"] for fault in report["faults"]] == [["a", "a1"], ["a", "a2"]]
    assert run(["migrate", "parts.db"]) == Exit.FINDINGS
    out = capsys.readouterr().out
    assert "Part ('a', 'a1'), ('a', 'a2'): " in out
    assert "2 entities cannot be converted; all others are, and nothing was switched: mend these or the script" in out


@pytest.mark.parametrize("error", [tm.StoreError, tm.MigrationStopped])
def test_what_was_added_to_an_error_is_shown(
    error: type[Exception], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> Any:
        options = {"report": tm.reports.MigrationReport(False, ())} if error is tm.MigrationStopped else {}
        stopped = error("it stopped", **options)
        stopped.add_note("the store may be frozen")
        raise stopped

    _fill("1")
    monkeypatch.setattr(migration_commands, "run_migrations", stop)
    assert run(["migrate", "parts.db"]) != Exit.OK
    said = capsys.readouterr()
    assert "it stopped\nthe store may be frozen\n" in said.out + said.err


def test_a_run_that_ends_at_its_limit_says_how_to_continue(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migrate", "parts.db", "--limit", "0"]) == Exit.FINDINGS
    assert capsys.readouterr().out.endswith("not finished: run it again to continue\n")
    assert run(["migrate", "parts.db", "--limit", "0", "--dry-run"]) == Exit.FINDINGS
    assert "not finished" not in capsys.readouterr().out


def test_a_migration_goes_back_and_is_contracted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migrate", "parts.db"]) == Exit.OK
    assert run(["migrate", "parts.db", "--to", ""]) == Exit.OK
    import depot

    with tm.open("parts.db", models=[depot.Part]) as store:
        assert store[depot.Part.key("a", 0)].price == "3.50"
    assert run(["migrate", "parts.db", "--contract"]) == Exit.OK
    capsys.readouterr()
    assert run(["migrate", "parts.db", "--to", ""]) == Exit.USAGE
    assert "contracted" in capsys.readouterr().err


def test_a_limit_leaves_the_rest_to_the_next_call(capsys: pytest.CaptureFixture[str]) -> None:
    _fill(*["1"] * 9)
    code, report = _json(capsys, "migrate", "parts.db", "--limit", "4")
    assert (code, report["done"], report["entities"]) == (Exit.FINDINGS, False, 4)
    assert _json(capsys, "migrate", "parts.db")[0] == Exit.OK
    assert len(_prices()) == 10


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["migrate", "none.db"], Exit.STORE, "there is no store"),
        (["migrate", "parts.db", "--to", "0007_more"], Exit.USAGE, "no script is called '0007_more'"),
        (["migrate", "parts.db", "--scripts", "nowhere"], Exit.USAGE, "nowhere"),
        (["migrations", "chek"], Exit.USAGE, 'Did you mean "check"'),
        (["migrations", "plan", "none.db"], Exit.STORE, "there is no store"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: Exit, message: str
) -> None:
    assert run(arguments) == code
    out, err = capsys.readouterr()
    assert (out, err[:13]) == ("", "tablemapper: ")
    assert message in err


def test_check_needs_no_store_and_make_writes_the_script_that_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("first_changes").mkdir()
    Path("first_changes/__init__.py").touch()
    assert run(["migrations", "check", "depot", "first_changes"]) == Exit.USAGE
    assert "run: tablemapper migrations make first" in capsys.readouterr().err
    assert run(["migrations", "make", "first", "depot", "first_changes"]) == Exit.OK
    assert capsys.readouterr().out.startswith("no change needs a script; the next one starts from ")
    assert run(["migrations", "check", "depot", "first_changes"]) == Exit.OK
    assert capsys.readouterr().out.endswith("the models and the scripts agree\n")
    code, report = _json(capsys, "migrations", "check", "depot_new", "first_changes")
    assert (code, [change["where"] for change in report["changes"]]) == (Exit.FINDINGS, ["Part.price"])
    code, report = _json(capsys, "migrations", "make", "price", "depot_new", "first_changes")
    assert code == Exit.OK
    assert "m.convert(old.Part.price, new.Part.price, Decimal" in Path(report["path"]).read_text()
    assert run(["migrations", "check", "depot_new", "first_changes"]) == Exit.OK
    for name in [name for name in sys.modules if name.startswith("first_changes")]:
        del sys.modules[name]


def test_make_creates_the_package_of_the_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    Path("first_app").mkdir()
    Path("first_app/__init__.py").touch()
    for package in ("first_app.migrations", "first_steps"):
        assert run(["migrations", "check", "depot", package]) == Exit.USAGE
        assert "cannot be imported" in (said := capsys.readouterr().err)
        assert said.endswith("; this creates it: tablemapper migrations make first\n")
        folder = Path(*package.split("."))
        assert not folder.exists()
        assert run(["migrations", "make", "first", "depot", package]) == Exit.OK
        assert sorted(path.name for path in folder.iterdir() if path.suffix) == ["__init__.py", "schema.json"]
        assert run(["migrations", "check", "depot", package]) == Exit.OK
        capsys.readouterr()
    for name in [name for name in sys.modules if name.startswith("first_")]:
        del sys.modules[name]


@pytest.mark.parametrize("package", ["nowhere.migrations", "depot.migrations", "not-a-name", ""])
def test_make_creates_no_package_where_none_can_be(capsys: pytest.CaptureFixture[str], package: str) -> None:
    before = sorted(Path().rglob("*"))
    assert run(["migrations", "make", "first", "depot", package]) == Exit.USAGE
    assert "the package cannot be imported" in capsys.readouterr().err
    assert [path for path in sorted(Path().rglob("*")) if "__pycache__" not in path.parts] == [
        path for path in before if "__pycache__" not in path.parts
    ]


def test_make_says_which_file_it_cannot_write(capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").touch()
    assert run(["migrations", "make", "first", "depot", "taken"]) == Exit.USAGE
    assert "the package cannot be imported" in capsys.readouterr().err
    assert run(["migrations", "make", "x" * 300, "depot", "depot_changes"]) == Exit.USAGE
    assert capsys.readouterr().err.endswith("x.py: File name too long\n")


def test_check_compares_what_an_old_version_reads_if_it_knows_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("depot_changes/0001_price.py")
    path.write_text(path.read_text().replace("back=str", "back=lambda price: f'{price}'"))
    assert _json(capsys, "migrate", "parts.db")[0] == Exit.OK
    code, report = _json(capsys, "check", "parts.db")  # (pyproject.toml names the scripts)
    assert (code, report["unchecked"]) == (Exit.OK, [])
    Path("pyproject.toml").unlink()
    assert run(["check", "parts.db", "--models", "depot_new"]) == Exit.OK
    assert "not compared: Part before 0001_price: what it should hold is not known" in capsys.readouterr().out
    with pytest.raises(tm.SchemaMismatch, match="this version can only read it"):  # no command has ended it
        _fill("4.50")


def test_make_leaves_nothing_behind_where_it_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    Path("depot_odd.py").write_text(HEAD + NEW + "class Twin(Part.__base__, table='Parts'):" + NEW.partition(":")[2])
    before = sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts)
    assert run(["migrations", "make", "first", "depot_odd", "odd_changes"]) == Exit.USAGE
    assert "tablemapper: models: " in capsys.readouterr().err
    assert sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts) == before
    del sys.modules["depot_odd"]
