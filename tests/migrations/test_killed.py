"""Runners that are killed, beside a process of the old version that writes until the switch: nothing is lost or doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.migration import SqliteMigrations
from tablemapper.schema.model import model_of

from .shapes import OLD, OLD_TOTALS, cases, contents, parts, texts, write

CASE = cases()["rewrite"]
ENTITIES = 400
PRELUDE = """
import random, sys
import tablemapper as tm
from tablemapper.engines.sqlite import load, writes
from tests.migrations.shapes import OLD, OLD_TOTALS
from tests.migrations.test_killed import CASE, serve
path, durability, seed, fault = sys.argv[1:]
if fault == "no queue":
    writes.queue = load.queue = lambda *_: None
"""
RUNNER = "tm.migrate(path, [CASE.script], hold=0.001, rest=0.1, durability=durability, timeout=60)"
WRITER = """
with tm.open(path, models=[OLD, OLD_TOTALS], durability=durability, timeout=60) as store:
    serve(store, random.Random(int(seed)))
"""


def serve(store: tm.Store, draw: random.Random) -> None:
    """Write at random, until the migration has switched; say how often."""
    print("ready", flush=True)
    writes = 0
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            write(store, draw, ENTITIES)
        except tm.SchemaMismatch:
            break
        writes += 1
    print(writes, flush=True)


def start(script: str, path: Path, durability: str, seed: int, fault: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + script, str(path), durability, str(seed), fault]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for_a_batch(engine: SqliteMigrations, least: int) -> None:
    """Wait until some more entities are copied, or the migration has switched."""
    sql = "SELECT sum(done) FROM tablemapper_copies"
    first: Any = None
    for _ in range(3_000):
        ((done,),) = engine._file.read(sql)
        if first is not None and (done is None or done >= first + least):
            return
        first = done if first is None else first
        time.sleep(0.01)
    raise AssertionError("nothing was copied")


def run(path: Path, durability: str, kills: int, fault: str = "") -> tuple[list[str], list[str], tm.Report]:
    """Kill runners beside a writer; return what there is in the end, what there should be, and the check of it."""
    draw = random.Random(durability + fault)
    with tm.open(path, models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        store.insert_many(parts(ENTITIES, draw))
    writer = start(WRITER, path, durability, draw.randrange(1_000), fault)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    engine = SqliteMigrations.open(path)
    try:
        for _ in range(kills):
            runner = start(RUNNER, path, durability, 0, fault)
            wait_for_a_batch(engine, draw.randrange(1, 40))
            runner.send_signal(signal.SIGKILL)
            runner.communicate(timeout=60)
        runner = start(RUNNER, path, durability, 0, fault)
        runner.communicate(timeout=60)
        assert runner.returncode == 0
        writes, _ = writer.communicate(timeout=60)
        assert writer.returncode == 0, "a write of the old version failed before the switch"
        assert int(writes) > 10 * kills
        rows = engine._file.read('SELECT * FROM "Parts_before_first"')
    finally:
        writer.kill()
        engine.close()
    with tm.open(path, models=CASE.new) as store:
        expected = texts(new for old in model_of(OLD).build(rows) for new in CASE.made(old))
        return contents(store, CASE.new), expected, store.check()


@pytest.mark.one_python
@pytest.mark.parametrize("durability", ["relaxed", "full"])
def test_runners_that_are_killed_beside_writers_of_the_old_version_lose_nothing(
    tmp_path: Path, durability: str, full_size: bool
) -> None:
    if durability == "full" and not full_size:
        pytest.skip("takes longer")
    made, expected, report = run(tmp_path / "s.db", durability, 50 if full_size else 1)
    assert made == expected
    assert report.ok


@pytest.mark.one_python
def test_the_comparison_finds_writers_that_leave_the_queue_alone(tmp_path: Path) -> None:
    made, expected, _ = run(tmp_path / "s.db", "relaxed", 0, "no queue")
    assert made != expected
