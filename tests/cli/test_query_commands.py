"""The commands that show what is in a store, called as a person and as a program call them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.cli import analysis_commands, query_commands  # noqa: F401  their commands
from tablemapper.cli.app import Exit, run

from ..classes import grouped
from ..sql import run_sql


class Part(tm.Entity, table="Parts"):
    bin: tm.Field[str]
    number: tm.Field[int]
    color: tm.Field[str] = tm.field(default="red")
    price: tm.Field[float | None] = tm.field(default=None, name="p")
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition="{bin}", row="{number}")
    by_color = tm.Index[str](partition="{color}")


Colors = grouped("Colors", Part, "color", number=tm.count())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    with tm.open("parts.db", models=[Part, Colors]) as store:
        store.insert_many(
            Part("a", n, ["red", "blue"][n % 2], price=n / 2 if n else None, tags=["x", "[y"][: n % 3])
            for n in range(60)
        )
    yield "parts.db"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: Exit = Exit.OK) -> str:
    """Run a command that is to end so; return what it printed."""
    assert run(arguments) == code, capsys.readouterr()
    out, err = capsys.readouterr()
    return out + err


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    found: list[Any] = json.loads(printed(capsys, *arguments, "--json"))["rows"]
    return found


def test_rows_are_shown_as_markdown(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    with tm.open(place, models=[Part, Colors]) as store:
        store.merge(Part.key("a", 0), color="a|b")
    text = printed(capsys, "show", place, "Part", "--limit", "2", "--fields", "number,color", "--format", "markdown")
    assert text == "| number | color |\n| --- | --- |\n| 0 | a\\|b |\n| 1 | blue |\n"


def test_rows_are_shown_without_the_models(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", place, "Part")
    assert text.split()[:5] == ["bin", "number", "color", "p", "tags"]
    assert "a 3 blue 1.5 []".split() in [line.split() for line in text.splitlines()]  # noqa: SIM905
    assert "a 0 red – []".split() in [line.split() for line in text.splitlines()]  # noqa: SIM905
    assert text.rstrip().endswith("50 shown, there are more: --limit")
    assert "2 shown" in printed(capsys, "show", place, "Colors")


def test_conditions_orders_fields_and_a_limit_choose_them(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rows(capsys, "show", place, "Part", "--where", "bin==a", "--where", "number<3", "--order", "-number") == [
        {"bin": "a", "number": n, "color": ["red", "blue"][n % 2], "p": n / 2 if n else None, "tags": ["x", "[y"][:n]}
        for n in (2, 1, 0)
    ]
    assert rows(capsys, "show", place, "Part", "--where", "color==blue", "--fields", "number", "--limit", "2") == [
        {"number": 1}, {"number": 3},
    ]  # fmt: skip
    assert json.loads(printed(capsys, "show", place, "Part", "--limit", "60", "--json"))["more"] is False


def test_one_partition_is_shown_alone_and_needs_no_scan(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    with tm.open(place, models=[Part, Colors]) as store:
        store.insert_many([Part("", 1), Part("b", 1), Part("b", 2, "blue")])
    assert [row["number"] for row in rows(capsys, "show", place, "Part", "--partition", "b")] == [1, 2]
    narrowed = ("--partition", "b", "--where", "color==blue", "--explain")
    assert "Part.key" in printed(capsys, "show", place, "Part", *narrowed)
    assert [row["bin"] for row in rows(capsys, "show", place, "Part", "--partition", "")] == [""]
    assert rows(capsys, "show", place, "Part", "--partition", "c") == []


def test_a_terminal_shows_a_row_on_one_line_and_a_pipe_all_of_it(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tm.open(place, models=[Part, Colors]) as store:
        store.insert(Part("long", 1, "x" * 300))
    assert "x" * 300 in printed(capsys, "show", place, "Part", "--partition", "long")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    lines = printed(capsys, "show", place, "Part", "--partition", "long").splitlines()
    assert len(lines) == 3
    assert re.match(r"long +1 +x{10,}… +", lines[1])
    assert max(len(re.sub(r"\x1b\[\d*m", "", line)) for line in lines) <= 60


def test_a_narrow_terminal_shows_the_columns_that_fit_and_says_how_many_do_not(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tm.open(place, models=[Part, Colors]) as store:
        store.insert(Part("a long bin", 1_000_000, "red and blue", price=0.25, tags=["long", "tags"]))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for columns, shown in ((12, 1), (25, 2), (36, 3), (200, 5)):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = re.sub(r"\x1b\[[\d;]*m", "", printed(capsys, "show", place, "Part", "--partition", "a long bin"))
        lines = [line.rstrip() for line in text.splitlines()]
        assert len(lines[0].split()) == shown
        assert lines[1][: min(7, columns - 1)] == "a long bin"[: min(7, columns - 1)]
        assert max(map(len, lines[:2])) <= columns
        more = f"{5 - shown} more column{'' if shown == 4 else 's'}: --fields chooses"
        assert (" ".join(lines[2:-1]) == more) == (shown < 5), lines
        assert lines[-1] == "1 shown"


def test_in_a_pipe_a_long_value_pads_no_other_row(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    with tm.open(place, models=[Part, Colors]) as store:
        store.insert(Part("long", 1, tags=["x" * 30_000]))
    columns = ("--fields", "tags,number")  # (what is last is not padded anyway)
    lines = printed(capsys, "show", place, "Part", *columns, "--limit", "100").splitlines()
    assert sorted(map(len, lines))[-2] < 60
    assert "x" * 30_000 in max(lines, key=len)


def test_lines_of_json_and_csv_are_for_programs(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "show", place, "Part", "--format", "jsonl").splitlines()
    assert len(lines) == 50
    assert json.loads(lines[3])["number"] == 3
    read = list(csv.DictReader(io.StringIO(printed(capsys, "show", place, "Part", "--format", "csv", "--limit", "3"))))
    assert read[0] == {"bin": "a", "number": "0", "color": "red", "p": "", "tags": "[]"}
    assert read[2]["tags"] == '["x","[y"]'


def test_one_entity_is_shown_by_the_values_of_its_key(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "p 1.5".split() in [line.split() for line in printed(capsys, "get", place, "Part", "a", "3").splitlines()]  # noqa: SIM905
    found = json.loads(printed(capsys, "get", place, "Part", "a", "3", "--json"))["entity"]
    assert (found["number"], found["odata.etag"][:2]) == (3, "W/")
    assert run(["get", place, "Part", "a", "99"]) == Exit.FINDINGS
    assert tuple(capsys.readouterr()) == ("", "tablemapper: there is no Part a 99\n")
    assert json.loads(printed(capsys, "get", place, "Colors", "red", "--json"))["entity"]["number"] == 30


def test_a_question_that_would_scan_is_refused_with_the_index_for_it(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    question = ("show", place, "Part", "--where", "p>3")
    refusal = printed(capsys, *question, code=Exit.USAGE)
    assert "by_p" in refusal
    assert "or read it all with --scan" in refusal
    row_alone = printed(capsys, "show", place, "Part", "--where", "number>3", code=Exit.USAGE)
    assert "name bin, too: --where 'bin==…'" in row_alone
    assert len(rows(capsys, *question, "--scan")) == 50
    assert "Part.by_color" in printed(capsys, "show", place, "Part", "--where", "color==red", "--explain")
    assert json.loads(printed(capsys, "show", place, "Part", "--where", "color==red", "--explain", "--json"))["explain"]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["show", "parts.db", "Parts"], "no class 'Parts' in this store; there are Part, Colors"),
        (["show", "parts.db", "Part", "--where", "size<8"], "has no field 'size'"),
        (["show", "parts.db", "Part", "--fields", "size"], "has no field 'size'"),
        (["show", "parts.db", "Part", "--limit", "0"], "--limit 0: expected 1 or more"),
        (["show", "parts.db", "Part", "--format", "xml"], "format"),
        (["get", "parts.db", "Part", "a"], "expected 2 values, got 1"),
    ],
)
def test_what_is_typed_wrongly_ends_with_2_and_says_what_was_expected(
    place: str, arguments: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fault in printed(capsys, *arguments, code=Exit.USAGE)


def _newer(path: Path) -> None:
    tm.open(path, models=[Part, Colors]).close()
    run_sql(path, "pragma user_version = 99")


def _damaged(path: Path) -> None:
    with tm.open(path, models=[Part, Colors]) as store:
        store.insert_many(Part("a", number, "x" * 50) for number in range(500))
    content = bytearray(path.read_bytes())
    content[3 * 4096 : -4096] = b"\xff" * len(content[3 * 4096 : -4096])
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "there is no store; name the file of a store, or create one in Python: tm.open("),
        (lambda path: path.write_text("x" * 5_000), "nor any SQLite database"),
        (lambda path: run_sql(path, "create table other (a)"), "not a tablemapper store"),
        (_newer, "has format 99, this tablemapper reads format 1"),
        (_damaged, "is damaged"),
    ],
    ids=["nothing", "text", "another database", "newer", "damaged"],
)
@pytest.mark.parametrize("command", [("show", "Part"), ("get", "Part", "a", "1"), ("stats", "Part"), ("advise",)])
def test_a_place_that_cannot_be_read_is_said_and_left_as_it_is(
    make: Callable[[Path], object],
    said: str,
    command: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(tmp_path / "odd.db")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}
    name, *values = command
    text = printed(capsys, name, str(tmp_path / "odd.db"), *values, code=Exit.STORE)
    assert said in text
    assert text.count("\n") == 1
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}
    assert {key: value for key, value in after.items() if value} == {
        key: value for key, value in before.items() if value
    }


def test_the_file_stays_as_it_is(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(place).read_bytes()
    printed(capsys, "show", place, "Part")
    assert Path(place).read_bytes() == before
