"""The commands that look after a store, called as a person and as a program call them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.__main__ import main
from tablemapper.cli import administration_commands, query_commands  # noqa: F401  their commands
from tablemapper.cli.app import Exit, run

from ..sql import run_sql

MODELS = """
import tablemapper as tm

class Part(tm.Entity, table="Parts"):
    bin: tm.Field[str]
    number: tm.Field[int]
    color: tm.Field[str] = tm.field(default="red")
    key = tm.Key[str, int](partition="{bin}", row="{number}")
    by_color = tm.Index(partition="{color}")

class Colors(tm.Aggregate, table="Colors", of=Part):
    color: tm.Field[str] = tm.group_by(Part.color)
    number: tm.Field[int] = tm.count()
    key = tm.Key[str](partition="{color}", row="")

ALL = [Part, Colors]
NONE: list = []
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a project, in which the process stands, and a store of 300 parts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    (tmp_path / "warehouse.py").write_text(MODELS)
    import warehouse  # type: ignore[import-not-found]

    with tm.open("parts.db", models=warehouse.ALL) as store:
        store.insert_many(warehouse.Part("a", number) for number in range(300))
    yield Path("parts.db")
    del sys.modules["warehouse"]


def _damage(place: Path) -> None:
    sql = "DELETE FROM PartsByColor WHERE _rk IN (SELECT RowKey FROM Parts LIMIT 3)"
    assert run_sql(place, sql, "SELECT changes()") == [(3,)]


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = run([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def _text(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(arguments)
    return (code, *capsys.readouterr())


def test_a_store_that_is_right_ends_with_0(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _text(capsys, "check", "parts.db", "--models", "warehouse")
    assert (code, out) == (0, "300 entities, 300 index rows, 1 groups: ok\n")


def test_what_a_check_finds_stands_in_a_table_and_ends_with_1(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _damage(place)
    code, out, _ = _text(capsys, "check", "parts.db", "--models", "warehouse")
    lines = out.splitlines()
    assert code == Exit.FINDINGS
    assert lines[0] == "300 entities, 297 index rows, 1 groups: 3 problems"
    assert lines[1].split() == ["kind", "where", "key", "detail"]
    assert [line.split()[:2] for line in lines[2:]] == [["missing", "Part.by_color"]] * 3


def test_json_is_the_report(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _damage(place)
    code, report = _json(capsys, "check", "parts.db", "--models", "warehouse:ALL")
    assert (code, report["ok"], report["index_rows"]) == (1, False, 297)
    assert {problem["where"] for problem in report["problems"]} == {"Part.by_color"}


def test_a_store_that_cannot_be_written_is_checked_all_the_same(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = administration_commands.open_store

    def refuse(path: Any, **options: Any) -> Any:
        if not options.get("read_only"):
            raise tm.StoreReadOnly("it is on a read-only mount")
        return opened(path, **options)

    monkeypatch.setattr(administration_commands, "open_store", refuse)
    run_sql(place, "update Parts set color = 'blue' where RowKey = 'a7'")
    assert _json(capsys, "check", "parts.db", "--models", "warehouse")[0] == Exit.FINDINGS
    run_sql(place, "update Parts set color = 'red' where RowKey = 'a7'")
    assert _text(capsys, "check", "parts.db", "--models", "warehouse")[0] == Exit.OK
    assert _text(capsys, "repair", "parts.db", "--models", "warehouse")[0] == Exit.STORE


def test_a_repair_says_what_it_repaired(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _damage(place)
    code, out, _ = _text(capsys, "repair", "parts.db", "--models", "warehouse")
    assert code == Exit.OK
    lines = [line.strip() for line in out.splitlines()]
    assert lines[:2] == ["300 entities, 3 problems repaired, 0 left", "repaired"]
    assert _json(capsys, "check", "parts.db", "--models", "warehouse")[0] == Exit.OK


def test_status_needs_no_models(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _text(capsys, "status", "parts.db")
    assert code == Exit.OK
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["Part", "class", "ready"],
        ["Part.by_color", "index", "ready"],
        ["Colors", "aggregate", "ready"],
    ]
    assert [item["where"] for item in _json(capsys, "status", "parts.db")[1]["objects"]] == [
        "Part", "Part.by_color", "Colors",
    ]  # fmt: skip


def test_a_build_that_is_limited_ends_with_1_and_the_next_goes_on(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MODELS.replace('by_color = tm.Index(partition="{color}")', 'by_number = tm.Index(partition="{number}")')
    Path("later.py").write_text(text)
    import warehouse

    with tm.open("parts.db", models=warehouse.ALL) as store:  # enough that registering does not build it at once
        store.insert_many(warehouse.Part("b", number) for number in range(1500))
    code, report = _json(capsys, "build", "parts.db", "--models", "later", "--limit", "100")
    assert (code, report["done"], report["entities"]) == (Exit.FINDINGS, False, 100)
    code, report = _json(capsys, "build", "parts.db", "--models", "later")
    assert (code, report["done"], report["built"]) == (Exit.OK, True, ["Part.by_number"])
    del sys.modules["later"]


def test_a_backup_is_restored(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _json(capsys, "backup", "parts.db", "copy.db") == (0, {"ok": True, "copy": "copy.db"})
    assert _json(capsys, "restore", "copy.db", "new.db") == (0, {"ok": True, "place": "new.db"})
    assert _json(capsys, "check", "new.db", "--models", "warehouse")[1]["entities"] == 300
    code, report = _json(capsys, "restore", "copy.db", "new.db")
    assert (code, report["error"]) == (Exit.STORE, "StoreError")
    assert "is there already; pass --overwrite to replace it" in report["message"]
    assert _json(capsys, "restore", "copy.db", "new.db", "--overwrite")[0] == Exit.OK


def test_brackets_in_a_name_are_shown_as_they_are(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _text(capsys, "backup", "parts.db", "[red]copy.db") == (0, "[red]copy.db: a copy of parts.db\n", "")


def test_compact_says_what_it_gained(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = _json(capsys, "compact", "parts.db")
    assert (code, report["ok"], report["after"]) == (0, True, place.stat().st_size)
    assert report["before"] >= report["after"]


def test_a_store_is_frozen_and_thawed_without_models(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import warehouse

    assert _text(capsys, "freeze", "parts.db") == (0, "parts.db: frozen, and only read\n", "")
    code, report = _json(capsys, "freeze", "parts.db")
    assert (code, report["ok"], report["frozen"][:2]) == (0, True, "20")
    assert "frozen since" in _text(capsys, "status", "parts.db")[1]
    assert _json(capsys, "status", "parts.db")[1]["frozen"] == report["frozen"]
    with tm.open(place, models=warehouse.ALL) as store, pytest.raises(tm.StoreLocked, match="frozen"):
        store.insert(warehouse.Part("b", 1))
    assert _text(capsys, "unfreeze", "parts.db") == (0, "parts.db: programs write again\n", "")
    with tm.open(place, models=warehouse.ALL) as store:
        store.insert(warehouse.Part("b", 1))


def test_a_sweep_says_how_many_writes_it_finished(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _json(capsys, "sweep", "parts.db", "--models", "warehouse") == (0, {"ok": True, "writes": 0})
    account = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;TableEndpoint=http://remote/a"
    code, report = _json(capsys, "sweep", account, "--models", "warehouse")
    assert code == Exit.STORE
    assert "a2V5" not in str(report)


def test_a_project_names_its_models_once(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = _text(capsys, "check", "parts.db")
    assert code == Exit.USAGE
    assert "--models" in err
    Path("changes").mkdir()
    Path("changes/__init__.py").touch()
    Path("pyproject.toml").write_text('[tool.tablemapper]\nmodels = "warehouse"\nscripts = "changes"\n')
    assert run(["check", "parts.db"]) == Exit.OK
    Path("pyproject.toml").unlink()
    monkeypatch.setenv("TABLEMAPPER_MODELS", "warehouse")
    assert run(["check", "parts.db"]) == Exit.OK


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["chekc", "parts.db"], Exit.USAGE, 'Did you mean "check"?'),
        (["check"], Exit.USAGE, "PLACE"),
        (["check", "parts.db", "--model", "warehouse"], Exit.USAGE, "--model"),
        (["check", "parts.db", "--models", "warehose"], Exit.USAGE, "no module 'warehose'"),
        (["check", "parts.db", "--models", "warehouse.parts"], Exit.USAGE, "no module 'warehouse.parts'"),
        (["check", "parts.db", "--models", "warehouse:Nothing"], Exit.USAGE, "warehouse has no list 'Nothing'"),
        (["check", "parts.db", "--models", "warehouse:NONE"], Exit.USAGE, "warehouse:NONE holds no models"),
        (["build", "parts.db", "--models", "warehouse", "--limit", "few"], Exit.USAGE, '"few"'),
        (["build", "parts.db", "--models", "warehouse", "--hold", "-1"], Exit.USAGE, "hold"),
        (["check", "none.db", "--models", "warehouse"], Exit.STORE, "none.db: there is no store"),
        (["status", "none.db"], Exit.STORE, "none.db: there is no store"),
        (["status", "warehouse.py"], Exit.STORE, "is not a tablemapper store"),
        (["restore", "none.db", "new.db"], Exit.STORE, '"does not exist'),
        (["check", "parts.db", "--models", ""], Exit.USAGE, "as in shop.models"),
        (["check", "parts.db", "--models", "./warehouse.py"], Exit.USAGE, "as in shop.models"),
    ],
)
def test_what_is_wrong_is_one_line_that_says_so(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: Exit, message: str
) -> None:
    before = sorted(os.listdir())
    assert run(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tablemapper: ")
    assert message.strip('"') in err
    assert run([*arguments, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert sorted(os.listdir()) == before


def test_an_error_of_the_models_module_itself_comes_out_whole(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.py").write_text("import nowhere_to_be_found\n")
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        run(["check", "parts.db", "--models", "broken"])


@pytest.mark.parametrize(("command", "extra"), [("status", "cli"), ("inspect", "inspect")])
def test_without_its_packages_the_command_says_what_to_install(
    command: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tablemapper", command, "parts.db"])
    for name in [name for name in sys.modules if name.startswith("tablemapper.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == Exit.USAGE
    assert f"pip install 'tablemapper[{extra}]'" in capsys.readouterr().err


def _interruptible() -> None:
    """Take interrupts as a program in a terminal does; a job in the background is started without."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class _Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tablemapper", *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True, preexec_fn=_interruptible,
            env=os.environ | {"PYTHONPATH": str(Path(tm.__file__).parents[1]), "TERM": "xterm", "COLUMNS": "100"},
        )  # fmt: skip
        os.close(theirs)

    def read(self) -> str:
        """Return all that it prints until its end."""
        parts = []
        while True:
            try:
                part = os.read(self._ours, 4096)
            except OSError:  # it has ended
                part = b""
            if not part:
                os.close(self._ours)
                return b"".join(parts).decode()
            parts.append(part)


def test_in_a_terminal_it_draws_tables_and_returns_its_code(place: Path) -> None:
    _damage(place)
    terminal = _Terminal("check", "parts.db", "--models", "warehouse")
    shown = terminal.read()
    assert terminal.process.wait(60) == Exit.FINDINGS
    assert "3 problems" in shown
    assert "missing   Part.by_color" in shown


def test_in_a_terminal_help_names_every_command_and_exit_code(place: Path) -> None:
    terminal = _Terminal("--help")
    shown = terminal.read()
    assert terminal.process.wait(60) == Exit.OK
    for word in ("build", "check", "repair", "compact", "backup", "restore", "status", "Exit codes"):
        assert word in shown


def test_an_interrupt_ends_it_with_130_and_one_line(place: Path) -> None:
    Path("slow.py").write_text(MODELS + "\nimport os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    terminal = _Terminal("check", "parts.db", "--models", "slow")
    shown = terminal.read()
    assert terminal.process.wait(60) == Exit.INTERRUPTED == 128 + signal.SIGINT
    assert "interrupted" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("options", "redirected", "code", "message"),
    [
        ("", "| true; exit ${PIPESTATUS[0]}", Exit.FINDINGS, ""),
        ("", ">/dev/full", Exit.FINDINGS, "tablemapper: the output cannot be written: No space left on device\n"),
        ("--json", ">/dev/full", Exit.FINDINGS, "tablemapper: the output cannot be written: No space left on device\n"),
        ("--json", ">&- 2>&-", Exit.OK, ""),
    ],
)
def test_output_that_nobody_can_read_is_no_crash(
    place: Path, options: str, redirected: str, code: Exit, message: str
) -> None:
    ended = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m tablemapper status parts.db {options} {redirected}"],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(Path(tm.__file__).parents[1])},
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", message)


def test_the_completion_that_is_installed_completes_commands_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # (its .bashrc is changed)
    script = tmp_path / "completion"
    assert run(["--install-completion", "--shell", "bash", "--output", str(script)]) == Exit.OK
    assert str(script) in capsys.readouterr().out
    lines = ("chec", "check shop.db --mod")
    ask = "; ".join(
        f'COMP_WORDS=(tablemapper {line}); COMP_CWORD={len(line.split())}; _tablemapper; echo "${{COMPREPLY[@]}}"'
        for line in lines
    )
    done = subprocess.run(["bash", "-c", f"source {script}; {ask}"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["check", "--models"]


def test_nothing_but_the_models_and_the_scripts_comes_from_the_environment_or_a_project(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["backup", "parts.db", "copy.db"]) == Exit.OK
    Path("new.db").write_bytes(b"mine")
    options = {
        "overwrite": "true", "limit": "1", "json": "true", "format": '"csv"', "where": '["number==1"]', "name": '"x"',
    }  # fmt: skip
    lines = [f"{name} = {value}\n" for name, value in options.items()]
    Path("pyproject.toml").write_text("".join(["[tool.tablemapper]\n", *lines, 'models = "warehouse"\n']))
    for name, value in options.items():
        monkeypatch.setenv(f"TABLEMAPPER_{name.upper()}", value.strip('"'))
    monkeypatch.setenv("TABLEMAPPER_PLACE", "parts.db")
    capsys.readouterr()
    assert run(["restore", "copy.db", "new.db"]) == Exit.STORE
    assert "pass --overwrite" in capsys.readouterr().err
    assert Path("new.db").read_bytes() == b"mine"
    assert run(["show", "parts.db", "Part"]) == Exit.OK
    assert "50 shown" in capsys.readouterr().out
    assert run(["status"]) == Exit.USAGE
    assert run(["check", "parts.db"]) == Exit.OK
    assert run(["show", "--help"]) == Exit.OK
    shown = capsys.readouterr().out
    assert "TABLEMAPPER_MODELS" in shown
    assert shown.count("TABLEMAPPER_") == 1
