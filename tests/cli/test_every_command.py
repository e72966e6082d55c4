"""Every command over one module of everything that the documentation shows, in every encoding, and over what is no store."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

import tablemapper as tm
from tablemapper.cli import app
from tablemapper.cli.app import load_models, run
from tablemapper.cli.output import Exit

from ..sql import run_sql
from . import everything

MODELS = everything.__name__
ENCODINGS = ("ascii", "latin-1", "cp1252", "cp437")
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Case(NamedTuple):
    """A command, and what is to be said of it."""

    arguments: str
    """``{}`` for the store."""
    models: bool = False
    """Whether it needs the models."""
    json: bool = True
    code: Exit = Exit.OK
    err: str = ""

    @property
    def takes_models(self) -> bool:
        name = self.arguments.split()[0]
        without = name in ("status", "freeze", "unfreeze", "compact", "restore", "migrate")
        return self.models or not (without or "plan" in self.arguments)


READING = [
    Case("status {}"), Case("show {} Part"), Case("show {} Part --where number>0 --where bin==a --explain"),
    Case("show {} Part --fields more,Name,tags,more.text"), Case("show {} Part --format json"),
    Case("show {} Part --format jsonl", json=False), Case("show {} Part --format csv", json=False),
    Case("show {} Part --format markdown", json=False),
    *(Case(f"show {{}} {name}") for name in ("Colors", "Bin", "Bill", "Note", "Other")), Case("get {} Part a 2"),
    Case("get {} Bin a"), Case("get {} Part a 9", code=Exit.FINDINGS, err="tablemapper: there is no Part a 9\n"),
    Case("stats {}"), Case("stats {} Part Bin"), Case("advise {}"),
    *(Case(f"diagram {{}} --format {form}", json=False) for form in ("svg", "mermaid", "text")), Case("inspect {}"),
    Case("check {}", models=True), Case("migrations plan {} --scripts scripts"),
    Case("migrate {} --scripts scripts --dry-run"),
]  # fmt: skip
WRITING = [
    Case("import {} Note notes.jsonl --upsert", models=True), Case("set {} Note 2026 1 text=changed", models=True),
    Case("delete {} Part --where bin==a --where number>9 --yes", models=True), Case("build {}", models=True),
    Case("repair {}", models=True), Case("sweep {}", models=True), Case("expire {} --limit 5", models=True),
    Case("freeze {}"), Case("unfreeze {}"), Case("compact {}"), Case("backup {} copied.db"),
    Case("restore {} restored.db"), Case("copy {} other.db", models=True), Case("migrate {} --scripts scripts"),
]  # fmt: skip
ALONE = [
    Case("advise", models=True, json=False),
    Case("diagram --format text", models=True, json=False),
    Case("migrations make first --scripts made", models=True),
    Case("migrations check --scripts scripts", models=True),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of everything, and scripts that know its shapes."""
    folder = tmp_path_factory.mktemp("everything")
    with tm.open(folder / "all.db", models=load_models(MODELS)) as store:
        store.insert_many(everything.entities())
    (folder / "scripts").mkdir()
    (folder / "scripts" / "__init__.py").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        tm.Migrations("scripts").write(load_models(MODELS), "first")
    del sys.modules["scripts"]
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The store, in a folder of its own, in which the process stands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    uvicorn = pytest.importorskip("uvicorn")
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)  # (it would serve until Ctrl-C)
    shutil.copy(made / "all.db", "all.db")
    Path("notes.jsonl").write_bytes(tm.to_json(everything.Note(2026, 1, "more")) + b"\n")
    shutil.copytree(made / "scripts", "scripts")
    yield "all.db"
    for name in ("scripts", "made"):
        sys.modules.pop(name, None)


def command(case: Case, place: str, *more: str, models: bool) -> list[str]:
    named = ["--models", MODELS] if models else []
    return [word.replace("{}", place) for word in [*case.arguments.split(), *named, *more]]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def ended(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch, encoding: str = "utf-8") -> Ended:
    """Run a command whose streams have an encoding."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n") for name in ("stdout", "stderr")}
    with monkeypatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        code = run(arguments)
    texts = []
    for stream in streams.values():
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))  # type: ignore[attr-defined]
    return Ended(code, *texts)


CASES = pytest.mark.parametrize("case", [*READING, *WRITING, *ALONE], ids=lambda case: case.arguments)
FORMATS = ("json", "jsonl", "csv", "svg")  # which are for programs


@CASES
def test_a_command_takes_a_module_with_all_that_the_documentation_shows(
    place: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    for models in dict.fromkeys((case.takes_models, case.models)):
        out = ended(command(case, place, models=models), monkeypatch)
        assert (out.code, out.err) == (case.code, case.err), out
        assert (out.out + out.err).strip()
        assert CONTROLS.search(out.out) is None or "csv" in case.arguments
        if case.json and case not in WRITING:
            out = ended(command(case, place, "--json", models=models), monkeypatch)
            assert (out.code, json.loads(out.out)["ok"]) == (case.code, case.code == Exit.OK)
            assert CONTROLS.search(out.out) is None
        for name in ("copied.db", "restored.db"):  # (which no command replaces)
            Path(name).unlink(missing_ok=True)
    if case in WRITING:
        with tm.open(place, models=load_models(MODELS)) as store:
            assert store.check().ok


@pytest.mark.long
@CASES
def test_a_command_prints_in_what_the_output_can_hold(
    place: str, case: Case, monkeypatch: pytest.MonkeyPatch, full_size: bool
) -> None:
    plain = None if case in WRITING else ended(command(case, place, models=case.takes_models), monkeypatch)
    for encoding in ENCODINGS if full_size else ENCODINGS[::3]:
        words = command(case, place, models=case.takes_models)
        said = ended(
            [word.replace("copied", encoding).replace("restored", encoding) for word in words], monkeypatch, encoding
        )
        assert (said.code, "Traceback" in said.err) == (case.code, False), said
        if "csv" in words:
            assert "\\u65e5" in said.out
            assert said.err.startswith(f"tablemapper: {encoding} lacks some characters, which stand as \\u")
            assert said.err.count("\n") == 1
            continue
        assert said.err == case.err
        if "svg" in words:
            assert said.out.isascii()
        if plain is not None and not case.arguments.startswith("inspect"):  # (whose address is a new one)
            assert _read(words, said.out) == _read(words, plain.out)
    if case.json and case not in WRITING:
        said = ended(command(case, place, "--json", models=case.takes_models), monkeypatch, "ascii")
        assert json.loads(said.out)["ok"] == (case.code == Exit.OK)


def _read(words: Sequence[str], text: str) -> object:
    """Return what a program reads, or how many lines a person does."""
    if "json" in words:
        return json.loads(text)
    if "jsonl" in words:
        return [json.loads(line) for line in text.splitlines()]
    return ElementTree.canonicalize(text) if "svg" in words else len(text.splitlines())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_help_and_errors_are_printed_in_every_encoding(
    place: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("", "show", "migrations make"):
        said = ended([*name.split(), "--help"], monkeypatch, encoding)
        assert (said.code, said.err) == (Exit.OK, "")
    for words in (
        ["chekc"],
        ["show", "日本▪.db", "Part"],
        ["show", place, "Pärt▪\x1b"],
        ["status", "\udcff.db", "--json"],
    ):
        said = ended(words, monkeypatch, encoding)
        assert said.code in (Exit.USAGE, Exit.STORE)
        assert (said.out + said.err).count("\n") == (5 if "--json" in words else 1)
        assert CONTROLS.search(said.out + said.err) is None


def _foreign(path: Path) -> None:
    run_sql(path, "create table other (a)")


def _damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 : 3 * 4096] = b"\xff" * 2 * 4096
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


NO_STORES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "is empty; name the file of a store"),
    "text": (lambda path: path.write_text("free text\n" * 900), "nor any SQLite database"),
    "foreign": (_foreign, "but not a tablemapper store"),
    "damaged": (_damaged, "is damaged"),
    "cut": (_cut, "is damaged"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "is a directory"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", NO_STORES)
def test_what_is_no_store_is_said_in_a_line_and_left_as_it_is(
    place: str, kind: str, monkeypatch: pytest.MonkeyPatch, full_size: bool
) -> None:
    make, text = NO_STORES[kind]
    path = Path("odd.db")
    if kind in ("damaged", "cut"):
        shutil.copy(place, path)
    elif kind != "foreign":
        path.touch()
    make(path)
    before = _files()
    several = full_size or kind in ("empty", "damaged")  # (for the others, each third command)
    for case in [*READING, *WRITING][0 if several else [*NO_STORES].index(kind) % 3 :: 1 if several else 3]:
        for encoding in ENCODINGS if full_size else ENCODINGS[:1]:
            said = ended(command(case, "odd.db", models=case.models), monkeypatch, encoding)
            assert (said.code, said.out) == (Exit.STORE, ""), (case.arguments, said)
            assert said.err.count("\n") == 1
            assert text in said.err, (case.arguments, said)
            assert _files() == before, case.arguments
        if case.json:
            said = ended(command(case, "odd.db", "--json", models=case.models), monkeypatch)
            assert (said.code, json.loads(said.out)["ok"], said.err) == (Exit.STORE, False, "")


def _files() -> dict[str, bytes]:
    files = {
        str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    return {name: content for name, content in files.items() if content and not name.endswith("-shm")}


def test_a_base_class_in_a_list_of_models_is_named_with_the_way_out(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ended(["check", place, "--models", f"{MODELS}:WITH_BASE"], monkeypatch)
    way = 'Stamped has no table=: write class Stamped(…, table="…"), or leave it out if others are derived from it'
    assert (said.code, said.err) == (Exit.USAGE, f"tablemapper: models: {way}\n")


def test_undeclared_properties_stand_in_the_column_of_their_field(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"big": str(2**40), "one": "1", "text": "free", "when": "2026-01-02T00:00:00.000000Z"}
    rows = csv.DictReader(io.StringIO(ended(["show", place, "Part", "--format", "csv"], monkeypatch).out, newline=""))
    first, second, third = rows
    assert (first["more"], second["number"], third["number"], third["more"]) == ("", "2", "3", '{"two":"2"}')
    assert {name: value for name, value in json.loads(second["more"]).items() if "@" not in name} == more
    assert (second["Name"], second["small"], second["price"]) == (everything.EVIL, "3", "7.50")
    table = ended(["show", place, "Part", "--fields", "more,number,more.text"], monkeypatch).out.splitlines()
    assert [line.split()[-2:] for line in table[1:4]] == [["1", "–"], ["2", "free"], ["3", "–"]]
    (_, row, _) = json.loads(ended(["show", place, "Part", "--fields", "more,more.text", "--json"], monkeypatch).out)[
        "rows"
    ]
    assert (row["more"]["one"], row["more.text"]) == ("1", "free")
    whole = json.loads(ended(["show", place, "Part", "--json"], monkeypatch).out)["rows"][1]
    assert (whole["one"], whole["text"], "more" in whole) == ("1", "free", False)
    got = ended(["get", place, "Part", "a", "2"], monkeypatch).out
    assert re.search(r"^text +free$", got, re.MULTILINE)


def test_the_help_of_the_program_says_what_the_commands_say() -> None:
    for module, commands in app._COMMANDS.items():
        for attribute, text in commands.items():
            command = getattr(import_module(f"tablemapper.cli.{module}"), attribute)
            said = command.help if attribute == "migrations_app" else command.__doc__
            assert said.partition("\n")[0] == text


def test_the_help_of_the_program_loads_no_command_and_no_engine() -> None:
    program = "import sys; from tablemapper.cli.app import run; run(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("tablemapper.")}
    assert not {name for name in loaded if name.endswith("_commands") or name.startswith("tablemapper.engines")}
