"""Timestamps increase, whatever clocks, processes and crashes do."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablemapper.engines.sqlite.file.database import File
from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.engines.sqlite.file.writer import Writer

from .... import sqlite_vfs  # noqa: F401  registers the file layers
from ....conftest import folder_in_memory
from ..table import Clock, create_table, insert, open_table

STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1]),
        st.sampled_from(["write", "write", "write", "many", "fail", "close", "crash"]),
        st.sampled_from([0, 0, 1, 50, 2_000, 3_000_000, -1, -5_000_000, -3_600_000_000]),
    ),
    max_size=40,
)


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_timestamps_increase_strictly_over_objects_restarts_crashes_and_clocks(
    steps: list[tuple[int, str, int]],
) -> None:
    folder = folder_in_memory()
    path = f"{folder.name}/store.db"
    clocks = [Clock(), Clock()]
    owners = iter(range(1, 1_000))

    def open_one(which: int) -> File:
        return open_file(path, durability="relaxed", clock=clocks[which], owner=next(owners))

    files = [open_one(0), open_one(1)]
    files[0].write(create_table)
    given_out: list[int] = []
    latest = clocks[0].now

    def fail(w: Writer) -> None:
        raise KeyError

    try:
        for which, what, step in steps:
            clocks[which].now += step
            file = files[which]
            for _ in range(20 if what == "many" else 1):
                latest = max(latest, *(clock.now for clock in clocks))
                if what in ("write", "many"):
                    given_out.append(file.write(insert(None)))
                elif what == "fail":
                    with pytest.raises(KeyError):
                        file.write(fail)
                else:
                    if what == "close":
                        file.close()
                    else:  # its readers and its allowance are gone without a word
                        assert file._connection is not None
                        file._connection.close(True)
                        file._writes.connection = None
                    files[which] = open_one(which)
        assert given_out == sorted(set(given_out))
        assert all(stamp <= latest + 1_000_000 + 4 * 20 * len(steps) for stamp in given_out)
    finally:
        for file in files:
            file.close()
        folder.cleanup()


def test_writers_that_take_turns_push_time_no_further_than_they_use(path: Path) -> None:
    clock = Clock()
    with (
        open_file(path, clock=clock, durability="relaxed") as one,
        open_file(path, clock=clock, durability="relaxed") as two,
    ):
        one.write(create_table)
        for _ in range(800):
            for file in (one, two):
                for _ in range(3):
                    last = file.write(insert(None))
        assert last - clock.now <= 2 * 800 * 2 * 3


def test_a_single_writer_pays_no_statement_for_its_timestamps_after_a_while(path: Path) -> None:
    clock, statements = Clock(), list[str]()

    def write() -> None:
        clock.now += 1_000
        file.write(insert(None))

    with open_table(path, clock=clock) as file:
        for _ in range(50):
            write()
        assert file._connection is not None
        file._connection.exec_trace = lambda cursor, sql, args: statements.append(sql) or True
        for _ in range(50):
            write()
        file._connection.exec_trace = None
    assert len([sql for sql in statements if "INSERT" in sql]) == 50
    assert len([sql for sql in statements if "tablemapper_state" in sql]) <= 2


def test_closing_hands_back_what_was_allowed_and_not_used(path: Path) -> None:
    clock = Clock()
    with open_table(path, clock=clock) as file:
        for _ in range(20):
            clock.now += 1
            last = file.write(insert(None))
        (until,) = file.get("SELECT until FROM tablemapper_state") or (0,)
        assert until > last
    with open_file(path, clock=clock) as file:
        assert file.get("SELECT until FROM tablemapper_state") == (last,)
        assert file.write(insert(None)) == last + 1


def test_two_processes_never_give_out_the_same_time(path: Path, file: File) -> None:
    def work() -> int:
        with open_file(path, durability="relaxed") as mine:
            for _ in range(400):
                mine.write(lambda w: w.execute("INSERT INTO t (v) VALUES (?)", (w.timestamp,)))
        return 0

    children = []
    for _ in range(2):
        if (child := os.fork()) == 0:
            try:
                work()
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    stamps = [v for (v,) in file.read("SELECT v FROM t ORDER BY k")]
    assert len(stamps) == 800
    assert stamps == sorted(set(stamps))
    assert max(stamps) < time.time_ns() // 1000 + 2_000_000
