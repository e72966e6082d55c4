"""Builders that are killed, beside a process of the old version that writes: nothing is lost, doubled or half built."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import tablemapper as tm

from .test_builds import OLD, names, part

UNIQUE = part(by_name=tm.Index[str](partition="{name}"), of_name=tm.Index[str](partition="{name}", unique=True))
NAMES = names(UNIQUE)
ENTITIES = 1_500
PRELUDE = """
import random, sys
import tablemapper as tm
from tablemapper.engines.sqlite import jobs, takeover
from tablemapper.store import builds
from tests.store.test_builds_killed import NAMES, OLD, UNIQUE, serve
takeover._AT_ONCE, builds._LEAST = -1, 5
path, durability, seed, fault = sys.argv[1:]
if fault == "no cursor":
    jobs.passed_by = lambda pk, rk: lambda row: True
if fault == "left alone":
    jobs.passed_by = lambda pk, rk: lambda row: False
"""
BUILDER = """
with tm.open(path, models=[UNIQUE, NAMES], durability=durability, timeout=60, build=False) as store:
    store.build(hold=0.001, rest=0.5)
"""
WRITER = """
with tm.open(path, models=[OLD], durability=durability, timeout=60) as store:
    serve(store, random.Random(int(seed)))
"""


def serve(store: tm.Store, draw: random.Random) -> None:
    """Write at random, until standard input is closed; say how often."""
    print("ready", flush=True)
    os.set_blocking(0, False)
    writes = 0
    while True:
        try:
            if os.read(0, 1) == b"":
                break
        except BlockingIOError:
            pass
        number = draw.randrange(ENTITIES)
        key = OLD.key("a", number)
        verb = draw.choice(["insert", "delete", "change", "several"])
        if verb == "insert":
            store.upsert(OLD("b", draw.randrange(ENTITIES), f"n{draw.randrange(400)}"))
        elif verb == "delete" and store.exists(key):
            store.delete(key)
        elif verb == "change" and store.exists(key):
            store.merge(key, name=f"n{draw.randrange(400)}")
        elif verb == "several":
            with store.transaction() as tx:
                for at in range(number, number + 5):
                    tx.upsert(OLD("a", at, f"n{draw.randrange(400)}"))
        writes += 1
    print(writes, flush=True)


def start(script: str, path: Path, durability: str, seed: int, fault: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + script, str(path), durability, str(seed), fault]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def differences(path: Path) -> list[str]:
    """Return what is not as the entities say: by the check, and by counting them."""
    with tm.open(path, models=[UNIQUE, NAMES], build=False) as store:
        found = [str(problem) for problem in store.check().problems]
        store.build(rest=0)
        found += [str(problem) for problem in store.check().problems]
        counts = Counter(one.name for one in store.query(UNIQUE).allow_scan())
        groups = {one.name: one.parts for one in store.query(NAMES)}
        found += [
            f"{name}: {counts[name]}, {groups.get(name)}"
            for name in {*counts, *groups}
            if counts[name] != groups.get(name, 0)
        ]
        found += [
            f"{name} in the index" for name in counts if len(list(store.query(UNIQUE.by_name(name)))) != counts[name]
        ]
        held = {one.value[0]: len(one.holders) for one in store._engine.violations(10_000)}
        twice = {name: count for name, count in counts.items() if count > 1}
        found += [] if held == twice else [f"held twice: {held}, {twice}"]
    return found


def run(path: Path, durability: str, kills: int, fault: str = "") -> list[str]:
    """Kill builders beside a writer, and return what is wrong in the end, or between two kills."""
    draw = random.Random(durability + fault)
    with tm.open(path, models=[OLD], durability="relaxed") as store:
        store.insert_many(OLD("a", number, f"n{number % 400}") for number in range(ENTITIES))
    writer = start(WRITER, path, durability, draw.randrange(1_000), fault)
    assert writer.stdin is not None
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    try:
        for _ in range(kills):
            builder = start(BUILDER, path, durability, 0, fault)
            with tm.open(path, models=[OLD], timeout=60) as store:
                wait_for_a_batch(store, draw)
            builder.send_signal(signal.SIGKILL)
            builder.communicate()
    finally:
        writes, _ = writer.communicate()
    assert writer.returncode == 0, "a write of the old version failed"
    assert int(writes) > 10 * kills
    return differences(path)


def wait_for_a_batch(store: tm.Store, draw: random.Random) -> None:
    """Wait until some more batches are in the file, or the job has ended."""
    file = store._engine.file  # type: ignore[attr-defined]
    sql = "SELECT done FROM tablemapper_builds"
    first, least = file.read(sql), draw.randrange(1, 200)
    for _ in range(3_000):
        now = file.read(sql)
        if now and (not first or now[0][0] >= first[0][0] + least):
            return
        if first and not now:
            return
        time.sleep(0.01)
    raise AssertionError("nothing was built")


@pytest.mark.one_python
@pytest.mark.parametrize("durability", ["relaxed", "full"])
def test_builders_that_are_killed_beside_writers_of_the_old_version_lose_nothing(
    tmp_path: Path, durability: str, full_size: bool
) -> None:
    assert run(tmp_path / "s.db", durability, 100 if full_size else 3) == []


@pytest.mark.one_python
@pytest.mark.parametrize("fault", ["no cursor", "left alone"])
def test_the_comparison_finds_writers_that(tmp_path: Path, fault: str) -> None:
    with pytest.raises(AssertionError):  # of the writer, which finds that rows are missing, or of the comparison
        assert run(tmp_path / "s.db", "relaxed", 4, fault) == []
