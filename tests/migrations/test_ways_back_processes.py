"""The old version reads in one process while others write, by a function that only the script has; some are killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tablemapper as tm

from .test_ways_back import CASES, OLD, migrate, of, open_new, open_old, path, same, write
from .ways_back_process import Process

__all__ = ["path"]  # a fixture


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_the_old_version_reads_on_beside_writers_until_one_comes_that_does_not_know_the_script(
    path: Path, name: str, *, full_size: bool
) -> None:
    if name == "convert" and not full_size:
        pytest.skip("takes longer")
    case = CASES[name]
    first = of(case)
    old = Process(path, "old", name)
    migrate(path, first, limit=10)
    migrate(path, first)
    writers = [Process(path, "new", name, seed, 15) for seed in (1, 2)]
    again = Process(path, "old", name)  # it is started anew beside the new version
    assert [writer.wait() for writer in writers] == [[], []]
    assert again.stop() == []
    with open_old(path) as mine, open_new(path, case, first) as store:
        same(mine, store, case)
    assert Process(path, "ignorant", name, 3, 10).wait() == []
    faults = old.stop()
    assert faults, "it was not ended"
    for fault in faults:
        assert "a process that opened the store without migrations= wrote what the migration first made" in fault
    with open_new(path, case, first) as store:
        assert store.check().ok


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_a_writer_that_is_killed_leaves_both_versions_alike(path: Path, name: str, *, full_size: bool) -> None:
    if name == "rewrite" and not full_size:
        pytest.skip("takes longer")
    case = CASES[name]
    first = of(case)
    migrate(path, first)
    draw = random.Random(5)
    for seed in range(60 if full_size else 1):
        writers = [Process(path, "new", name, seed + at) for at in (0, 1_000)]
        for writer in writers:
            writer.kill_after(draw.randrange(3, 30))
        with open_old(path) as old, open_new(path, case, first) as store:
            same(old, store, case)


def test_two_runners_leave_what_the_old_version_reads(path: Path) -> None:
    case = CASES["rewrite"]
    first = of(case)
    with open_old(path) as old:
        before = sorted(map(repr, old.query(OLD).allow_scan()))
        migrate(path, first, limit=5)
        reports: list[tm.reports.MigrationReport] = []

        def tell(_done: int, _total: int | None) -> None:
            if not reports:
                reports.append(migrate(path, first))

        report = migrate(path, first, progress=lambda *_: tell(0, None))
        for one in (report, *reports):
            assert {step.old_version for step in one.plan} <= {"reads"}
        assert sorted(map(repr, old.query(OLD).allow_scan())) == before
        with open_new(path, case, first) as store:
            write(store, case, random.Random(1))
            same(old, store, case)
