"""A store that is never saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.errors import StoreError

from .... import sqlite_vfs  # noqa: F401  registers the file layers
from ....threads import at_once
from ..table import create_table, insert, open_table


def test_a_store_in_memory_does_the_same() -> None:
    with open_table(":memory:") as file:
        first = file.write(insert("a"))
        assert file.write(insert("b")) > first
        assert file.read("SELECT v FROM t") == [("a",), ("b",)]
        assert [len(chunk) for chunk in file.stream("SELECT v FROM t", chunk=1)] == [1, 1]
        with file.snapshot() as snapshot:
            assert snapshot.get("SELECT count(*) FROM t") == (2,)
            with pytest.raises(StoreError, match="a write within"):
                file.write(insert("c"))
        with pytest.raises(KeyError):
            file.write(lambda w: (insert("c")(w), {}["missing"]))
        assert file.write(lambda w: file.get("SELECT count(*) FROM t")) == (2,)
        with pytest.raises(StoreError, match="no such table"):
            file.read("SELECT * FROM missing")
        assert file.integrity() == []
        file.write(insert("d"), generation=0)


def test_stores_in_memory_are_apart_and_can_be_saved(tmp_path: Path) -> None:
    with open_file(":memory:") as one, open_file(":memory:") as two:
        one.write(create_table)
        one.write(insert("saved"))
        assert len(two.read("SELECT * FROM sqlite_schema")) == 1
        one.backup(tmp_path / "saved.db")
        with open_file(tmp_path / "saved.db", create=False) as saved:
            assert saved.read("SELECT v FROM t") == [("saved",)]


def test_threads_share_a_store_in_memory() -> None:
    with open_table(":memory:") as file:

        def work() -> None:
            for _ in range(100):
                file.write(insert(1))
                file.get("SELECT count(*) FROM t")
                with file.snapshot() as snapshot:
                    assert snapshot.get("SELECT count(*) FROM t") == snapshot.get("SELECT count(*) FROM t")

        at_once(*[work] * 4)
        assert file.get("SELECT count(*) FROM t") == (400,)
