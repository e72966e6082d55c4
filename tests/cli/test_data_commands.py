"""The commands that write entities, called as a person and as a program call them."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tablemapper as tm
from tablemapper.cli.app import Exit, load_models, run

from . import everything

MODELS = everything.__name__
NAMED = ["--models", MODELS]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    tm.open("all.db", models=load_models(MODELS)).close()
    yield "all.db"


def ended(capsys: pytest.CaptureFixture[str], *words: str, code: Exit = Exit.OK) -> str:
    """Run a command that is to end so; return what it printed."""
    assert run([*words, *NAMED]) == code, capsys.readouterr()
    out, err = capsys.readouterr()
    assert bool(err) == (code != Exit.OK), err
    return out + err


def notes() -> list[everything.Note]:
    with tm.open("all.db", models=load_models(MODELS)) as store:
        assert store.check().ok
        return list(store.query(everything.Note).where(everything.Note.year == 2026))


def typed(monkeypatch: pytest.MonkeyPatch, text: str, *, terminal: bool = False) -> None:
    stream = io.StringIO(text)
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", stream)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_what_show_writes_is_imported(place: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    with tm.open("source.db", models=load_models(MODELS)) as source:
        source.insert_many(everything.entities())
        parts = list(source.query(everything.Part).allow_scan())
    file = Path(f"parts.{form}")
    file.write_text(ended(capsys, "show", "source.db", "Part", "--format", form), encoding="utf-8", newline="")
    assert ended(capsys, "import", place, "Part", str(file)) == "3 written\n"
    with tm.open(place, models=load_models(MODELS)) as store:
        assert list(store.query(everything.Part).allow_scan()) == parts
        assert store.check().ok
    refused = ended(capsys, "import", place, "Part", str(file), code=Exit.FINDINGS)
    assert "Part.key('a', 1): the entity exists already" in refused.replace('"', "'")
    assert refused.endswith("--upsert replaces what is there already\n")
    assert json.loads(ended(capsys, "import", place, "Part", str(file), "--upsert", "--json")) == {
        "ok": True,
        "written": 3,
    }


def test_a_parquet_file_is_imported(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with tm.open("source.db", models=[everything.Note]) as source:
        source.insert_many(everything.Note(2026, number, f"n{number}") for number in range(30))
        parquet.write_table(source.query(everything.Note).allow_scan().to_arrow(), "notes.parquet")
    assert ended(capsys, "import", place, "Note", "notes.parquet") == "30 written\n"
    assert ended(capsys, "import", place, "Note", "notes.parquet", "--upsert") == "30 written\n"
    assert [note.text for note in notes()][:2] == ["n0", "n1"]
    Path("broken.parquet").write_bytes(b"PAR1 this is none")
    assert "broken.parquet: " in ended(capsys, "import", place, "Note", "broken.parquet", code=Exit.FINDINGS)


def test_a_file_is_read_from_the_standard_input(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, 'year,number,text\n2026,1,"a, b"\n2026,2,\n')
    assert ended(capsys, "import", place, "Note", "-", "--format", "csv") == "2 written\n"
    assert [note.text for note in notes()] == ["a, b", ""]


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("in.jsonl", '{"year":2026,"number":1}\n\n{"year":2026,"number":"x"}\n', "in.jsonl, line 3: Note: number: "),
        ("in.jsonl", '{"year":2026,"number":1}\n{"year":2026,"num', "in.jsonl, line 2: "),
        ("in.csv", "year,number\n2026,1\n2026,x\n", "in.csv, line 3: Note: number: "),
        ("in.csv", "year,number\n2026,1\n2026\n", "in.csv, line 3: Note: expected 2 cells, got 1"),
        ("in.csv", "year,nummer\n2026,1\n", "in.csv, line 1: 'nummer' is no field of Note (year, number, text)"),
        ("in.csv", 'year,number\n2026,"1\n', "in.csv, line 2: "),
    ],
)
def test_the_first_line_that_is_no_entity_ends_an_import(
    place: str, file: str, text: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(file).write_text(text)
    said = ended(capsys, "import", place, "Note", file, code=Exit.FINDINGS)
    assert said.startswith(f"tablemapper: {fault}")
    told = json.loads(ended_json(capsys, "import", place, "Note", file))
    assert (told["ok"], told["error"]) == (False, "InvalidEntity")


def ended_json(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run([*words, "--json", *NAMED]) == Exit.FINDINGS
    return capsys.readouterr().out


def test_an_import_that_cannot_begin_is_refused(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.txt").touch()
    for words, fault in (
        (["Note", "in.txt"], "in.txt: its ending says no format; give --format jsonl, csv or parquet"),
        (["Note", "-", "--format", "parquet"], "a Parquet file cannot be read from the standard input"),
        (["Nothing", "in.csv"], "no class 'Nothing' in this store"),
        (["Note", "missing.csv"], "missing.csv: No such file or directory"),
    ):
        assert fault in ended(capsys, "import", place, *words, code=Exit.USAGE)
    assert run(["import", "nothing.db", "Note", "in.csv", *NAMED]) == Exit.STORE
    assert not Path("nothing.db").exists()


def test_fields_of_one_entity_are_set(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    with tm.open(place, models=load_models(MODELS)) as store:
        store.insert_many(everything.entities())
    said = ended(
        capsys, "set", place, "Part", "a", "2", "Name=", "color=red", "rating=4",
        "price=1.50", "day:=null", 'tags:=["p","q"]', "size.width=9", "more.text=new", "kind=BIG", "code=k", "label:=null",
    )  # fmt: skip
    assert re.search(r"^price +1\.50$", said, re.MULTILINE)
    with tm.open(place, models=load_models(MODELS)) as store:
        part = store[everything.Part.key(everything.Tenant("a"), 2)]
        etag = tm.info(part).etag
        assert store.check().ok
    assert (part.name, part.color, part.rating, str(part.price), part.day) == ("", "red", 4, "1.50", None)
    assert (part.tags, part.size.width, part.more["text"], part.label) == (["p", "q"], 9, "new", None)
    assert (part.kind, part.code) == (everything.Kind.BIG, everything.Code("k"))
    assert etag is not None
    ended(capsys, "set", place, "Part", "a", "2", "rating=3", "--if-match", etag)
    stale = ended(capsys, "set", place, "Part", "a", "2", "rating=2", "--if-match", etag, code=Exit.FINDINGS)
    assert "was written since it was read" in stale
    for words, fault, code in (
        (["a", "9", "rating=2"], "there is no such entity", Exit.FINDINGS),
        (["a", "2", "rating=9"], "rating: ", Exit.FINDINGS),
        (["a", "2", "bin=b"], "bin: a key field cannot be assigned", Exit.FINDINGS),
        (["a", "2", "rating=x"], "'x' is no int", Exit.USAGE),
        (["a", "2", "rating:=x"], "'x' is no JSON; rating=… takes a text as it stands", Exit.USAGE),
        (["a", "2", "rating"], "'rating': expected a field and a value", Exit.USAGE),
        (["a", "2"], "set: nothing to change", Exit.USAGE),
        (["a"], "the key of Part is bin, number", Exit.USAGE),
    ):
        assert fault in ended(capsys, "set", place, "Part", *words, code=code), words


def test_entities_are_deleted_by_key_and_by_conditions(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tm.open(place, models=load_models(MODELS)) as store:
        store.insert_many(everything.Note(2026, number) for number in range(8))
        etag = tm.info(store[everything.Note.key(2026, 0)]).etag or ""
    assert ended(capsys, "delete", place, "Note", "2026", "0", "--if-match", etag) == "1 deleted\n"
    assert "there is no such entity" in ended(capsys, "delete", place, "Note", "2026", "0", code=Exit.FINDINGS)
    some = ["--where", "year==2026", "--where", "number<4"]
    typed(monkeypatch, "")
    refused = "tablemapper: delete: 3 entities of Note match; --yes deletes them\n"
    assert ended(capsys, "delete", place, "Note", *some, code=Exit.USAGE) == refused
    typed(monkeypatch, "n\n", terminal=True)
    assert run(["delete", place, "Note", *some, *NAMED]) == Exit.OK
    assert capsys.readouterr() == ("nothing deleted\n", "delete 3 entities of Note? [y/N] ")
    typed(monkeypatch, "y\n", terminal=True)
    assert run(["delete", place, "Note", *some, *NAMED]) == Exit.OK
    capsys.readouterr()
    assert json.loads(ended(capsys, "delete", place, "Note", "--where", "text==", "--scan", "--yes", "--json")) == {
        "ok": True,
        "deleted": 4,
    }
    assert notes() == []
    for words, fault in (
        ([], "give the values of a key, or --where"),
        (["2026", "1", *some], "give the values of a key, or --where"),
        ([*some, "--if-match", etag], "--if-match is for one entity"),
        (["--where", "text==x", "--yes"], "--scan"),
    ):
        assert fault in ended(capsys, "delete", place, "Note", *words, code=Exit.USAGE)


ENDINGS = """
from datetime import datetime

import tablemapper as tm


class Session(tm.Entity, table="Sessions"):
    id: tm.Field[str]
    until: tm.Field[datetime | None] = tm.field(default=None, expires=True)
    key = tm.Key[str](partition="{id}")


class Lock(tm.Entity, table="Locks"):
    id: tm.Field[str]
    until: tm.Field[datetime] = tm.field(expires=True)
    key = tm.Key[str](partition="{id}")


class Plain(tm.Entity, table="Plains"):
    id: tm.Field[str]
    key = tm.Key[str](partition="{id}")
"""


def test_what_has_ended_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("endings_of_a_test.py").write_text(ENDINGS, encoding="utf-8")
    models = {cls.__name__: cls for cls in load_models("endings_of_a_test")}
    session, lock, plain = (models[name] for name in ("Session", "Lock", "Plain"))
    past = datetime(2026, 1, 1, tzinfo=UTC)
    with tm.open("ends.db", models=list(models.values())) as store:
        store.insert_many([*(session(f"{n}", past) for n in range(5)), session("x"), lock("a", past), plain("p")])

    def expired(*words: str, code: Exit = Exit.OK) -> str:
        assert run(["expire", "ends.db", *words, "--models", "endings_of_a_test"]) == code
        return "".join(capsys.readouterr())

    assert expired("Session", "--limit", "2") == "2 deleted\n"
    assert json.loads(expired("Lock", "--json")) == {"ok": True, "deleted": 1}
    assert expired() == "3 deleted\n"
    assert expired() == "0 deleted\n"
    assert "Plain: expire: nothing of it ends; declare when" in expired("Plain", code=Exit.FINDINGS)
    assert "no class 'Lok'" in expired("Lok", code=Exit.USAGE).replace('"', "'")
    assert "0 or more" in expired("--limit=-1", code=Exit.USAGE)
