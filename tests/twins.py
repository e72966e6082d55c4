"""Entities that are written in pairs, and what must hold of their store after each interrupt."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Any

import tablemapper as tm
from tablemapper.engines.sqlite.file.database import File

from .classes import grouped


class Twin(tm.Entity, table="Twins"):
    """Written in pairs, so that half a pair shows."""

    group: tm.Field[str]
    number: tm.Field[int]
    text: tm.Field[str] = tm.field(default="x")

    key = tm.Key[str, int](partition="{group}", row="{number}")
    by_text = tm.Index[str](partition="{text}")


Twins = grouped("Twins", Twin, "group", "TwinCounts", count=tm.count())


class Pairs:
    """The pairs that one task or thread writes."""

    def __init__(self, store: Any, group: str) -> None:
        self.store = store
        self.group = group
        self.number = 0

    def _next(self) -> tuple[Twin, Twin]:
        self.number += 2
        return Twin(self.group, self.number), Twin(self.group, self.number + 1)


def file_of(store: tm.Store) -> File:
    engine: Any = store._engine
    file: File = engine.file
    return file


def turn_is_free(file: File) -> bool:
    try:
        descriptor = os.open(file.path + "-turn", os.O_RDWR)
    except FileNotFoundError:
        return True  # none was ever taken
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1 << 62, 0))
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def check_clean(store: tm.Store) -> None:
    file = file_of(store)
    assert file._connection is None or not file._connection.in_transaction, "a transaction was left open"
    assert not file._writes.queue.lock.locked()
    assert not file._writes.queue._pending
    assert turn_is_free(file)
    assert all(not reader.in_transaction for reader in file._readers.idle)
    counts: dict[str, int] = {}
    for twin in store.query(Twin).allow_scan():
        counts[twin.group] = counts.get(twin.group, 0) + 1
    assert all(count % 2 == 0 for count in counts.values()), "half a batch was written"
