"""What is done to a file."""

from __future__ import annotations

import os
import random
import struct
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import msgspec

import tablemapper as tm

from .nodes import damaged, node_at, nodes
from .operations import MODELS, Item, sound

VALUES: list[Any] = [
    None, 0, 1, -1, 5, 2**63 - 1, -(2**63), 2**53 + 1, 0.5, float("inf"), -1e308, "", "x", "é\U0010ffff", "\0", "x" * 600,
    "x" * 40_000, "1E+999999999", "-1E-999999999", "1E+6145", "NaN", "sNaN", "Infinity", "9" * 5000, "1" * 100_000, "1e5",
    " 1", "1_0", b"", b"x", b"\xff\xfe", b"[]", "[]", "{}", "null", "[" * 100_000, '{"annex":' * 100_000, "[1,2]", '["t", 5]',
    '{"city": 5}', '{"rent": "1E+999999999"}', '{"annex": ' * 300 + "null" + "}" * 300, '{"a": ["Int64", "x"]}',
    '{"a": ["Double", "9e999"]}', '{"a": ["Int64", 1e400]}', "2024-01-01", "2024-01-01T00:00:00", "2024-02-30T00:00:00Z",
    "9999-12-31T23:59:59.999999-23:59", "0001-01-01T00:00:00+23:59", "2024-13-01", "24:00:00", "10:00+05:00", "a", "item", "b42",
    "Z2", "p", "pb1", " !", "special !b1", "special !zz", 'a "67', "00000000-0000-0000-0000-000000000004", " \x1f",
]  # fmt: skip
"""What a cell can hold: values of every class, stored forms of other types, and the extremes of all."""
NOT_UTF8 = "CAST(x'61eda08062' AS TEXT)"
STATES: list[Any] = [
    None, True, 0, -1, 2**63 - 1, -(2**63), 999_999_999, 1.5, float("nan"), "", "x", "1E+999999999", b"", b"\x01" * 100_000,
    b"\xff", [], [1], [999_999_999, 1, 1], [0, 1, b"\x7f" * 100_000], {}, {1: 2}, [[]], ["a", "b", "c"], [2**63 - 1, 2, 3],
]  # fmt: skip
"""What can stand at a node of a group's state."""


class Damage:
    """Makes damaged copies of one sound file."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = f"{folder}/sound.db"
        sound(self.path)
        self.bytes = Path(self.path).read_bytes()
        db = apsw.Connection(self.path)
        self.page = db.pragma("page_size")
        self.cells = [
            (table, column)
            for (table,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
            for _, column, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall()
        ]
        ((self.state,),) = db.execute("SELECT _state FROM Days LIMIT 1").fetchall()
        db.close()
        self.wal = self._log()

    def _log(self) -> bytes:
        """Return a log with commits that are not in the file yet."""
        path = f"{self.folder}/log.db"
        Path(path).write_bytes(self.bytes)
        store = tm.open(path, models=MODELS, durability="relaxed")
        store.merge(Item.key("p0", "r0"), price=Decimal(7))
        store.insert(Item("p0", "logged", 1))
        log = Path(f"{path}-wal").read_bytes()
        store.close()
        return log

    def make(self, number: int, path: str) -> str:
        """Write the damaged file of a case, and return what was done."""
        for end in ("", "-wal", "-shm", "-journal", "-turn"):
            with suppress(FileNotFoundError):
                os.unlink(path + end)
        rnd = random.Random(number)
        kinds = (self._bits, self._bytes, self._pages, self._length, self._header, self._cell, self._cell, self._cell,
                 self._state, self._log_garbage, self._cells)  # fmt: skip
        return rnd.choice(kinds)(rnd, path)

    def _sql(self, path: str, sql: str, *values: Any) -> None:
        damaged(self.bytes, path, sql, *values)

    def _put(self, path: str, data: bytes | bytearray) -> None:
        Path(path).write_bytes(data)

    def _bits(self, rnd: random.Random, path: str) -> str:
        data = bytearray(self.bytes)
        at = [rnd.randrange(len(data)) for _ in range(rnd.choice([1, 1, 8]))]
        for place in at:
            data[place] ^= 1 << rnd.randrange(8)
        self._put(path, data)
        return f"bits at {at}"

    def _bytes(self, rnd: random.Random, path: str) -> str:
        data = bytearray(self.bytes)
        page = rnd.randrange(len(data) // self.page)
        size = rnd.choice([1, 2, 4, 16, 512])
        # At the head of a page stand what it is, how many cells it has, and where they are.
        at = page * self.page + (rnd.randrange(24) if rnd.random() < 0.5 else rnd.randrange(self.page))
        data[at : at + size] = rnd.choice([bytes(size), b"\xff" * size, rnd.randbytes(size)])[: len(data) - at]
        self._put(path, data)
        return f"{size} bytes of page {page + 1}"

    def _pages(self, rnd: random.Random, path: str) -> str:
        data, size = bytearray(self.bytes), self.page
        one, other = (rnd.randrange(len(data) // size) for _ in range(2))
        way = rnd.choice(["copied", "swapped", "zero", "random"])
        a, b = data[one * size : (one + 1) * size], data[other * size : (other + 1) * size]
        if way == "copied":
            data[one * size : (one + 1) * size] = b
        elif way == "swapped":
            data[one * size : (one + 1) * size], data[other * size : (other + 1) * size] = b, a
        else:
            data[one * size : (one + 1) * size] = bytes(size) if way == "zero" else rnd.randbytes(size)
        self._put(path, data)
        return f"page {one + 1} {way} {other + 1}"

    def _length(self, rnd: random.Random, path: str) -> str:
        data = bytearray(self.bytes)
        if rnd.random() < 0.5:
            del data[
                rnd.choice([rnd.randrange(len(data)), self.page * rnd.randrange(len(data) // self.page), 100, 16, 1]) :
            ]
        else:
            data += rnd.choice([bytes(5000), rnd.randbytes(4096), data[: self.page]])
        self._put(path, data)
        return f"{len(data)} bytes long"

    def _header(self, rnd: random.Random, path: str) -> str:
        data = bytearray(self.bytes)
        at = rnd.randrange(100)
        data[at] = rnd.choice([0, 1, 0xFF, rnd.randrange(256)])
        self._put(path, data)
        return f"header at {at}"

    def _cell(self, rnd: random.Random, path: str) -> str:
        table, column = rnd.choice(self.cells)
        value = rnd.choice([*VALUES, NOT_UTF8])
        rows = (
            ""
            if rnd.random() < 0.5
            else f' WHERE "{column}" = (SELECT "{column}" FROM "{table}" LIMIT 1 OFFSET {rnd.randrange(6)})'
        )
        given = () if value == NOT_UTF8 else (value,)
        self._sql(
            path, f'UPDATE OR IGNORE "{table}" SET "{column}" = {NOT_UTF8 if value == NOT_UTF8 else "?"}{rows}', *given
        )
        return f"{table}.{column} = {str(value)[:60]!r} {'of some' if rows else 'of all'}"

    def _cells(self, rnd: random.Random, path: str) -> str:
        made = [self._cell(rnd, path)]
        for _ in range(3):
            before, self.bytes = self.bytes, Path(path).read_bytes()
            try:
                made.append(self._cell(rnd, path))
            except apsw.Error:
                self._put(path, self.bytes)
            finally:
                self.bytes = before
        return ", ".join(made)

    def _state(self, rnd: random.Random, path: str) -> str:
        state = msgspec.msgpack.decode(self.state)
        where = rnd.choice(list(nodes(state)))
        junk = rnd.choice(STATES)
        if not where:
            state = junk
        else:
            holder = node_at(state, where[:-1])
            if rnd.random() < 0.15:
                del holder[where[-1]]
            else:
                holder[where[-1]] = junk
        self._sql(path, "UPDATE Days SET _state = ?", msgspec.msgpack.encode(state))
        return f"state at {where}: {str(junk)[:40]}"

    def _log_garbage(self, rnd: random.Random, path: str) -> str:
        self._put(path, self.bytes)
        log = bytearray(self.wal)
        way = rnd.choice(["bits", "cut", "random", "sealed", "journal", "shm"])
        if way == "bits":
            for _ in range(rnd.choice([1, 8])):
                log[rnd.randrange(len(log))] ^= 1 << rnd.randrange(8)
        elif way == "cut":
            del log[rnd.randrange(len(log)) :]
        elif way == "random":
            log = bytearray(rnd.randbytes(rnd.choice([10, 32, 5000, 50_000])))
        elif way == "sealed":
            log = _sealed(log, rnd)
        Path(f"{path}-{way if way in ('journal', 'shm') else 'wal'}").write_bytes(log)
        return f"log: {way}"


def _sealed(log: bytearray, rnd: random.Random) -> bytearray:
    """Return a log of which one page is garbage, and the checksums are right: SQLite takes it for good."""
    size = struct.unpack(">I", log[8:12])[0]
    little = struct.unpack(">I", log[:4])[0] == 0x377F0682

    def add(data: bytes, one: int, two: int) -> tuple[int, int]:
        words = struct.unpack(f"{'<' if little else '>'}{len(data) // 4}I", data)
        for a, b in zip(words[::2], words[1::2], strict=True):
            one = (one + a + two) & 0xFFFFFFFF
            two = (two + b + one) & 0xFFFFFFFF
        return one, two

    frames = (len(log) - 32) // (size + 24)
    bad = rnd.randrange(frames)
    sums = add(bytes(log[:24]), 0, 0)
    for number in range(frames):
        at = 32 + number * (size + 24)
        if number == bad:
            first = at + 24 + rnd.choice([0, rnd.randrange(size - 64)])
            log[first : first + 64] = rnd.randbytes(64)
        sums = add(bytes(log[at + 24 : at + 24 + size]), *add(bytes(log[at : at + 8]), *sums))
        log[at + 16 : at + 24] = struct.pack(">II", *sums)
    return log
