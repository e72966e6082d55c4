"""A query streams: what it needs in memory does not grow with what it finds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tablemapper as tm

pytestmark = pytest.mark.file


class Parcel(tm.Entity, table="Parcels"):
    depot: tm.Field[str]
    number: tm.Field[int]
    owner: tm.Field[str]
    weight: tm.Field[int]
    note: tm.Field[str] = tm.field(default="a note that makes the row as long as rows are")

    key = tm.Key[str, int](partition="{depot}", row=("parcel", "{number}"))
    by_owner = tm.Index[str](partition="{owner}")


class Letter(tm.Entity, table="Parcels"):
    depot: tm.Field[str]
    number: tm.Field[int]
    note: tm.Field[str] = tm.field(default="a note that makes the row as long as rows are")

    key = tm.Key[str, int](partition="{depot}", row=("letter", "{number}"))


MODELS = [Parcel, Letter]
PROGRAM = """
import json, logging, sys
import tablemapper as tm
from tests.whole.test_memory import MODELS, Letter, Parcel

logging.disable()

def peak():  # in MB; unlike getrusage, of this program only, not of the one that started it
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024

with tm.open(sys.argv[1], models=MODELS) as store:
    parcels, both = store.query(Parcel), store.query(Parcel, Letter)
    depots = Parcel.depot.is_in(["a", "b"])
    queries = {
        "a scan": parcels.allow_scan(),
        "partitions side by side": parcels.where(depots).order_by(Parcel.number),
        "an index": parcels.where(Parcel.owner == "Ann"),
        "tuples": parcels.where(depots).select(Parcel.number, Parcel.weight),
        "a filter after reading": parcels.where(depots, Parcel.number != 7),
        "two classes": both.where(depots),
        "two classes backwards": both.where(depots).backwards(),
        "a sort": parcels.where(depots).order_by(Parcel.weight),
        "a sort of two classes": both.where(depots).order_by(Letter.note),
    }
    for query in queries.values():
        for _ in query.limit(100):
            pass
    start, grown = peak(), {}
    for name, query in queries.items():
        before = peak()
        found = sum(1 for _ in query)
        grown[name] = found, peak() - before
    print(json.dumps({"grown": grown, "all": peak() - start}))
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read of /proc")
def test_a_stream_needs_no_more_memory_the_longer_it_is(path: Path, full_size: bool) -> None:
    count, most = (1_000_000, 50) if full_size else (100_000, 25)  # MB: SQLite sorts in a cache of a fixed size
    with tm.open(path, models=MODELS, durability="relaxed") as store:
        half = count // 2
        store.insert_many(Letter("ab"[n % 2], n) for n in range(half))
        store.insert_many(Parcel("ab"[n % 2], n, "Ann", n * 7919 % half) for n in range(half))
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert [found for found, _ in told["grown"].values()] == [half] * 4 + [half - 1] + [count] * 2 + [half, count]
    assert told["all"] < most, told
    assert {name: grown for name, (_, grown) in told["grown"].items() if "sort" not in name and grown > 3} == {}
