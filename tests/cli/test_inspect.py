"""The command that serves the inspector, as a person starts it and ends it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

import tablemapper as tm
from tablemapper.cli import inspect
from tablemapper.cli.app import Exit, load_models, run
from tablemapper.viewer.asgi import make_app
from tests.classes import Other
from tests.viewer.visits import visit

from ..classes import entity


class Part(tm.Entity, table="Parts"):
    bin: tm.Field[str]
    number: tm.Field[int]
    key = tm.Key[str, int](partition="{bin}", row="{number}")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "parts.db", models=[Part]) as store:
        store.insert_many(Part("a", n) for n in range(3))
    return tmp_path / "parts.db"


@contextmanager
def served(
    *arguments: str, start: Sequence[str] = ("-m", "tablemapper", "inspect")
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start the command; give the line that it prints, and the process."""
    command = [sys.executable, *start, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline(), process
    finally:
        process.kill()
        process.communicate()


def test_it_prints_a_url_serves_and_ends_with_ctrl_c(place: Path) -> None:
    before = place.read_bytes()
    with served(str(place)) as (line, process):
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=([\w-]{43})\n", line)
        assert found, line
        with httpx.Client(base_url=found[1], trust_env=False, timeout=60) as client:
            assert client.get("/").status_code == 403
            first = client.get(line.strip())
            assert (first.status_code, first.headers["location"]) == (303, "/")
            assert "parts.db" in client.get("/").text
            assert str(place.parent) not in client.get("/").text
            assert len(client.get("/entities/Part?format=json").json()["entities"]) == 3
            assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
            assert client.post("/").status_code == 405
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")
    assert place.read_bytes() == before


def test_ctrl_c_ends_it_while_a_download_is_paused(tmp_path: Path) -> None:
    with tm.open(tmp_path / "parts.db", models=[Part]) as store:
        store.insert_many(Part("x" * 400, n) for n in range(20_000))
    program = (
        "from tablemapper.cli import inspect; inspect._LEAVING = 0.2; from tablemapper.__main__ import main; main()"
    )
    with served(str(tmp_path / "parts.db"), start=["-c", program, "inspect"]) as (line, process):
        host, port = line.split("/")[2].split(":")
        with httpx.Client(trust_env=False, timeout=60) as client:
            cookie = client.get(line.strip()).headers["set-cookie"].partition(";")[0]
        with socket.create_connection((host, int(port))) as paused:
            request = f"GET /export/Part.jsonl?limit=100000 HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n"
            paused.sendall(request.encode())
            paused.recv(50)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_for_programs_the_line_is_json_and_each_start_has_its_token(place: Path) -> None:
    tokens = set()
    for _ in range(2):
        with served(str(place), "--json") as (line, _):
            report = json.loads(line)
            assert report["ok"]
            tokens.add(report["url"].partition("token=")[2])
    assert len(tokens) == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.com", "", "127.0.0.2"])
def test_another_host_is_refused(place: Path, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(tm.InvalidQuery, match="listens at"):
        inspect._listening(host, 0).close()  # (by itself first: a server would not end)
    assert run(["inspect", str(place), "--host", host]) == Exit.USAGE
    assert "mount tm.inspector(…) in an application of yours, behind its login" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["inspect", str(place), "--port", str(taken.getsockname()[1])]) == Exit.USAGE
    assert "choose another one" in capsys.readouterr().err
    assert run(["inspect", str(place), "--port", "70000"]) == Exit.USAGE


def test_a_place_that_is_no_store_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(tmp_path / "none.db")]) == Exit.STORE
    (tmp_path / "text.db").write_text("text" * 2_000)
    assert run(["inspect", str(tmp_path / "text.db")]) == Exit.STORE
    assert list(tmp_path.iterdir()) == [tmp_path / "text.db"]


def test_a_missing_package_says_which_extra(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run(["inspect", str(place)]) == Exit.USAGE
    assert "pip install 'tablemapper[inspect]'" in capsys.readouterr().err


def test_a_file_that_another_program_keeps_is_waited_for_and_the_page_looks_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "_PATIENCE", 0)
    alone = apsw.Connection(str(place))
    alone.execute("pragma locking_mode = exclusive").fetchall()
    alone.execute("begin immediate")
    with closing(inspect._FollowedStore(str(place), None)) as followed:
        app = make_app(followed.store, title="parts.db")
        page = visit(app, "/")
        assert (page.status_code, page.headers["Refresh"]) == (503, "2")
        assert "parts.db" in page.text
        alone.execute("rollback")
        alone.close()
        assert visit(app, "/").status_code == 200


def test_the_pages_follow_the_classes_of_the_file_and_another_file_in_its_place(place: Path) -> None:
    def classes(app: Any) -> list[str]:
        return [one["name"] for one in visit(app, "/?format=json").json()["classes"]]

    with closing(inspect._FollowedStore(str(place), None)) as followed:
        app = make_app(followed.store)
        assert classes(app) == ["Part"]
        known = followed.store()
        assert followed.store() is known
        with tm.open(place, models=[Part, Other]):
            assert classes(app) == ["Part", "Other"]
        for name in place.parent.glob(f"{place.name}*"):
            name.unlink()
        tm.open(place, models=[Other]).close()
        assert classes(app) == ["Other"]


def test_models_that_are_newer_than_the_file_are_said_and_its_own_classes_shown(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.parent)
    (place.parent / "parts.py").write_text(
        "import tablemapper as tm\n\nclass Part(tm.Entity, table='Parts'):\n    bin: tm.Field[str]\n"
        "    number: tm.Field[int]\n    color: tm.Field[str] = tm.field(default='red')\n"
        "    key = tm.Key[str, int](partition='{bin}', row='{number}')\n"
    )
    assert run(["get", str(place), "Part", "a", "1", "--models", "parts"]) == Exit.OK
    out, err = capsys.readouterr()
    assert "number" in out
    assert 'only in the code: Part: the property "color" is new' in err


def test_only_a_class_that_differs_is_shown_as_the_file_has_it_and_its_page_says_so(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.parent)
    (place.parent / "bins.py").write_text(
        "from enum import Enum\n\nimport tablemapper as tm\n\nclass Size(Enum):\n    BIG = 'b'\n\n"
        "class Bin(tm.Entity, table='Bins'):\n    name: tm.Field[str]\n    size: tm.Field[Size]\n"
        "    key = tm.Key[str](partition='{name}')\n\n"
        "class Sizes(tm.Aggregate, of=Bin, table='Sizes'):\n    size: tm.Field[Size] = tm.group_by(Bin.size)\n"
        "    number: tm.Field[int] = tm.count()\n    key = tm.Key[Size](partition='{size}')\n"
    )
    bins = load_models("bins")
    with tm.open(place, models=[Part, *bins]) as store:
        store.insert(bins[0]("a", sys.modules["bins"].Size.BIG))
    (place.parent / "newer.py").write_text(
        "import tablemapper as tm\nfrom bins import Bin, Sizes\n\nclass Part(tm.Entity, table='Parts'):\n"
        "    bin: tm.Field[str]\n    number: tm.Field[int]\n    key = tm.Key[str, int](partition='{bin}', row='{number}')\n"
        "    by_number = tm.Index[int](partition='{number}')\n\n"
        "class Lid(tm.Entity, table='Lids'):\n    name: tm.Field[str]\n    key = tm.Key[str](partition='{name}')\n"
    )
    with closing(inspect._FollowedStore(str(place), "newer")) as followed:
        store = followed.store()
        assert store.classes["Bin"] is bins[0]
        assert not hasattr(store.classes["Part"], "by_number")
        assert set(followed.notes) == {"Part", "Lid"}
        app = make_app(followed.store, notes=lambda: followed.notes)
        assert "by_number" in visit(app, "/entities/Part").text
        assert "by_number" in visit(app, "/entities/Part?format=json").json()["differs"]["Part"]
        assert "only in the code" not in visit(app, "/entities/Bin").text
        overview = visit(app, "/").text
        assert "by_number" in overview
        assert "Lid is new" in overview
        assert visit(app, "/entities/Sizes").status_code == 200
    assert "only in the code: Part: the index by_number is new, Lid is new" in capsys.readouterr().err


def test_models_that_are_older_are_said_to_lack_what_the_file_has(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.parent)
    (place.parent / "less.py").write_text(
        "import tablemapper as tm\n\nclass Part(tm.Entity, table='Parts'):\n    bin: tm.Field[str]\n"
        "    number: tm.Field[int]\n    key = tm.Key[str, int](partition='{bin}', row='{number}')\n"
    )
    members = {"bin": str, "number": int, "size": (int, tm.field(default=0))}
    Part = entity("Part", "Parts", members, tm.Key[str, int](partition="{bin}", row="{number}"))
    with tm.open("other.db", models=[Part]) as store:
        store.insert(Part("a", 1))
    assert run(["get", "other.db", "Part", "a", "1", "--models", "less"]) == Exit.OK
    out, err = capsys.readouterr()
    assert "size" in out
    assert 'otherwise in the store: Part: the property "size"' in err
