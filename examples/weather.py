"""A year of hourly weather at New York's three airports: loaded, indexed, corrected, checked.

Run it with a path to keep the file: ``python examples/weather.py weather.db``. Any place of a store will do, such as an
account of Azure, or the emulator: ``python examples/weather.py UseDevelopmentStorage=true``.
"""

# --8<-- [start:setup]
from __future__ import annotations

import csv
import gzip
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from time import perf_counter

import tablemapper as tm

DATA = Path(__file__).parent / "data" / "nyc_weather_2013.csv.gz"
# --8<-- [end:setup]
# --8<-- [start:models]
SECTORS = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")
AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}


class Reading(tm.Entity, table="Weather"):
    """One hour at one airport. What the instruments missed is None."""

    station: tm.Field[str]
    at: tm.Field[datetime]
    temperature: tm.Field[float | None] = tm.field(default=None)  # °F
    humidity: tm.Field[float | None] = tm.field(default=None)  # %
    wind_sector: tm.Field[str | None] = tm.field(default=None)
    wind: tm.Field[float | None] = tm.field(default=None)  # mph
    gust: tm.Field[float | None] = tm.field(default=None)  # mph
    rain: tm.Field[float] = tm.field(default=0.0)  # inches
    pressure: tm.Field[float | None] = tm.field(default=None)  # millibars

    key = tm.Key[str, datetime](partition="{station}", row="{at}")
    by_sector = tm.Index[str, str, float](
        partition=("{station}", "{wind_sector}"), row="{wind}"
    )
    by_gust = tm.Index[str, float](  # only hours with gusts
        partition="{station}", row="{gust:desc}", include=("wind",)
    )


class Day(tm.Aggregate, of=Reading, table="WeatherByDay"):
    """A day (UTC) at one airport."""

    station: tm.Field[str] = tm.group_by(Reading.station)
    day: tm.Field[date] = tm.group_by(Reading.at.date())
    readings: tm.Field[int] = tm.count()
    mean: tm.Field[float | None] = tm.avg(Reading.temperature)
    coldest: tm.Field[float | None] = tm.min(Reading.temperature)
    hottest: tm.Field[float | None] = tm.max(Reading.temperature)
    rain: tm.Field[float] = tm.sum(Reading.rain)

    key = tm.Key[str, date](partition="{station}", row="{day}")


class Month(tm.Aggregate, of=Reading, table="WeatherByMonth"):
    """A month (UTC) at one airport."""

    station: tm.Field[str] = tm.group_by(Reading.station)
    month: tm.Field[str] = tm.group_by(Reading.at.truncate("%Y-%m"))
    mean: tm.Field[float | None] = tm.avg(Reading.temperature)
    rain: tm.Field[float] = tm.sum(Reading.rain)
    wet_hours: tm.Field[int] = tm.count(where=Reading.rain > 0)
    strongest_gust: tm.Field[float | None] = tm.max(Reading.gust)

    key = tm.Key[str, str](partition="{station}", row="{month}")


MODELS: list[type[tm.Record]] = [Reading, Day, Month]
# --8<-- [end:models]


# --8<-- [start:load]
def read_csv(path: Path = DATA) -> Iterator[Reading]:
    """Yield the readings of the file."""

    def number(text: str) -> float | None:
        return None if text == "NA" else float(text)

    with gzip.open(path, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            direction = number(row["wind_dir"])
            yield Reading(
                station=row["origin"],
                at=datetime.fromisoformat(row["time_hour"]),
                temperature=number(row["temp"]),
                humidity=number(row["humid"]),
                wind_sector=None
                if direction is None
                else SECTORS[round(direction / 45) % 8],
                wind=number(row["wind_speed"]),
                gust=number(row["wind_gust"]),
                rain=number(row["precip"]) or 0.0,
                pressure=number(row["pressure"]),
            )


# --8<-- [end:load]


# ------------------------------------------------------------------ printing


# --8<-- [start:printing]
def title(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}\n{'-' * len(text)}")


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print rows under their heads, numbers to the right."""
    lines = [
        list(head),
        *([f"{v:.1f}" if isinstance(v, float) else str(v) for v in row] for row in rows),
    ]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for line in lines:
        cells = [
            c.ljust(w) if at == 0 else c.rjust(w)
            for at, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())


def plot(values: list[tuple[str, float]], unit: str) -> None:
    """Print a bar for each value."""
    least, most = min(v for _, v in values), max(v for _, v in values)
    for label, value in values:
        bar = "█" * round(4 + 44 * (value - least) / ((most - least) or 1))
        print(f"  {label}  {bar} {value:.1f} {unit}")


# --8<-- [end:printing]


# ------------------------------------------------------------------ questions


def questions(store: tm.Store) -> None:
    """Ask what a meteorologist would."""
    # --8<-- [start:year]
    title("The year at each airport")
    table(
        ("station", "hours", "mean °F", "coldest", "hottest", "rain in"),
        (
            (
                AIRPORTS[s],
                sum(d.readings for d in days),
                statistics.fmean(d.mean for d in days if d.mean is not None),
                min(d.coldest for d in days if d.coldest is not None),
                max(d.hottest for d in days if d.hottest is not None),
                math.fsum(d.rain for d in days),
            )
            for s in AIRPORTS
            if (days := list(store.query(Day).where(Day.station == s)))
        ),
    )
    # --8<-- [end:year]

    # --8<-- [start:months]
    title("Mean temperature at Kennedy, month by month (from the maintained aggregate)")
    plot(
        [
            (m.month, m.mean)
            for m in store.query(Month).where(Month.station == "JFK")
            if m.mean is not None
        ],
        "°F",
    )
    # --8<-- [end:months]

    # --8<-- [start:gusts]
    title("The five strongest gusts at LaGuardia (from the index over the rare gusts)")
    gusts = store.query(Reading.by_gust("LGA")).limit(5)
    table(
        ("at (UTC)", "gust", "wind", "from"),
        ((f"{r.at:%Y-%m-%d %H:%M}", r.gust, r.wind, r.wind_sector) for r in gusts),
    )
    # --8<-- [end:gusts]

    # --8<-- [start:wind]
    title("How windy is it, by direction, at Newark (from the index by sector)")
    table(
        ("from", "hours", "strong"),
        (
            (
                sector,
                store.query(Reading)
                .where(Reading.station == "EWR", Reading.wind_sector == sector)
                .count(),
                store.query(Reading)
                .where(
                    Reading.station == "EWR",
                    Reading.wind_sector == sector,
                    Reading.wind >= 20.0,
                )
                .count(),
            )
            for sector in SECTORS
        ),
    )
    # --8<-- [end:wind]

    # --8<-- [start:afternoon]
    title("The afternoon of the hottest day at Newark")
    hottest = max(
        store.query(Day).where(Day.station == "EWR"), key=lambda d: d.hottest or 0
    )
    noon = datetime.fromisoformat(f"{hottest.day}T16:00:00Z")
    hours = (
        store.query(Reading)
        .where(
            Reading.station == "EWR",
            Reading.at >= noon,
            Reading.at < noon + timedelta(hours=6),
        )
        .order_by(Reading.at)
    )
    table(
        ("at (UTC)", "°F", "humidity %"),
        ((f"{r.at:%Y-%m-%d %H:%M}", r.temperature, r.humidity) for r in hours),
    )
    print("\n  How it is read:")
    for line in str(hours.explain()).splitlines():
        print(f"    {line}")
    # --8<-- [end:afternoon]

    # --8<-- [start:refused]
    title("A question that no key or index answers is refused, with what would serve it")
    try:
        list(store.query(Reading).where(Reading.pressure < 990.0))
    except tm.ScanRefused as refused:
        print("  " + str(refused).replace("\n", "\n  "))
    lows = store.query(Reading).where(Reading.pressure < 990.0).allow_scan().count()
    print(f"  … and answered by a scan, since it is allowed: {lows} hours below 990 mbar")
    # --8<-- [end:refused]


# --8<-- [start:corrections]
def corrections(store: tm.Store) -> None:
    """Correct a few readings, and show that what is derived follows."""
    title("Corrections at Kennedy, and what follows by itself")
    key = Month.key("JFK", "2013-07")
    before = store[key]
    july, august = (
        datetime.fromisoformat(f"2013-{month}-01T00:00:00Z") for month in ("07", "08")
    )
    gusts = store.query(Reading.by_gust("JFK"))
    worst = gusts.where(Reading.at >= july, Reading.at < august).first()
    assert worst is not None
    store.merge(worst.key, gust=None)  # the anemometer was being serviced
    wet = (
        store.query(Reading)
        .where(Reading.station == "JFK", Reading.at >= worst.at, Reading.rain > 0)
        .first()
    )
    assert wet is not None
    store.update(wet.key, lambda r: r.replace(rain=r.rain + 0.5))
    with store.transaction() as tx:
        for hour in range(3):
            tx.merge(
                Reading.key("JFK", datetime(2013, 7, 4, 12 + hour, tzinfo=worst.at.tzinfo)),
                temperature=104.0,
            )
    after = store[key]
    table(
        ("July 2013", "before", "after"),
        (
            (name, f"{getattr(before, name):.3f}", f"{getattr(after, name):.3f}")
            for name in ("mean", "rain", "strongest_gust")
        ),
    )


# --8<-- [end:corrections]


# ------------------------------------------------------------------ proof


# --8<-- [start:recompute]
def recompute(store: tm.Store) -> int:
    """Recompute every aggregate from the readings in plain Python; compare bit for bit."""
    days: dict[tuple[str, date], list[Reading]] = defaultdict(list)
    months: dict[tuple[str, str], list[Reading]] = defaultdict(list)
    for station in AIRPORTS:
        for reading in store.query(Reading).where(Reading.station == station):
            days[station, reading.at.date()].append(reading)
            months[station, f"{reading.at:%Y-%m}"].append(reading)
    groups = 0
    for (station, day), hours in days.items():
        temperatures = [r.temperature for r in hours if r.temperature is not None]
        mean = math.fsum(temperatures) / len(temperatures) if temperatures else None
        assert store[Day.key(station, day)] == Day(
            station,
            day,
            len(hours),
            mean,
            min(temperatures, default=None),
            max(temperatures, default=None),
            math.fsum(r.rain for r in hours),
        )
        groups += 1
    for (station, month), hours in months.items():
        temperatures = [r.temperature for r in hours if r.temperature is not None]
        assert store[Month.key(station, month)] == Month(
            station,
            month,
            math.fsum(temperatures) / len(temperatures),
            math.fsum(r.rain for r in hours),
            sum(r.rain > 0 for r in hours),
            max((r.gust for r in hours if r.gust is not None), default=None),
        )
        groups += 1
    return groups


# --8<-- [end:recompute]


def main(place: str) -> None:
    """Run it all on one store."""
    start = perf_counter()
    with tm.open(place, models=MODELS) as store:
        loaded = store.insert_many(read_csv(), progress=True)
        print(
            f"{loaded:,} readings loaded in {perf_counter() - start:.1f} s, with two indexes and two aggregates"
        )
        questions(store)
        corrections(store)
        title("Is it all true?")
        report = store.check()
        print(f"  check(): {report}")
        print(
            f"  {recompute(store):,} groups recomputed from the readings: equal, bit for bit"
        )
        assert report.ok
    print(f"\nDone in {perf_counter() - start:.1f} s.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(str(Path(folder) / "weather.db"))
