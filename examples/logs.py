"""A log with tables of its own for each month: written, read over months, moved to an archive, and dropped.

python examples/logs.py [PLACE [ARCHIVE]]: files, or accounts such as UseDevelopmentStorage=true; by default two files that go.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import tablemapper as tm

KEPT = 2  # months, besides the current one
START = datetime(2026, 8, 20, tzinfo=UTC)


# --8<-- [start:models]
class Line(tm.Entity, table="Log"):
    """One line. No store has this class: each month has a variant of it."""

    program: tm.Field[str]
    at: tm.Field[datetime]
    level: tm.Field[str]
    text: tm.Field[str]
    id: tm.Field[UUID] = tm.field(factory=tm.uuid7)

    key = tm.Key[str, datetime, UUID](
        partition=("{program}", "{at:%Y-%m-%d}"), row=("{at}", "{id}")
    )
    errors = tm.Index[str, datetime](
        partition="{program}", row="{at}", where=lambda line: line.level == "ERROR"
    )


class Daily(tm.Aggregate, of=Line, table="LinesByDay"):
    """How many lines there were a day."""

    program: tm.Field[str] = tm.group_by(Line.program)
    day: tm.Field[str] = tm.group_by(Line.at.truncate("%Y-%m-%d"))
    lines: tm.Field[int] = tm.count()

    key = tm.Key[str, str](partition="{program}", row="{day}")


class Program(tm.Entity, table="Programs"):
    """A program that has a log; a store is opened with at least one class."""

    name: tm.Field[str]

    key = tm.Key[str](partition="{name}")


# --8<-- [end:models]


# --8<-- [start:log]
class Log:
    """The log in one place, month by month."""

    def __init__(self, place: str) -> None:
        """Open a place with the months that it has."""
        self.store = tm.open(place, models=[Program])
        classes = [
            item.where for item in self.store.status().objects if item.state == "ready"
        ]
        self.months = sorted(
            name.removeprefix("Line")
            for name in classes
            if name.startswith("Line2") and "." not in name
        )
        self.store.use(*(part for month in self.months for part in self._classes(month)))

    @staticmethod
    def _classes(month: str) -> tuple[type[Line], type[Daily]]:
        return Line.variant(month), Daily.variant(month)

    def use(self, month: str) -> type[Line]:
        """Return the class of a month, which is opened if it is new."""
        if month not in self.months:
            self.store.use(*self._classes(month))
            self.months = sorted([*self.months, month])
        return Line.variant(month)

    def write(self, lines: Iterable[tuple[str, datetime, str, str]]) -> int:
        """Store lines, each in the tables of its month."""
        return self.store.insert_many(
            self.use(f"{at:%Y%m}")(program, at, level, text)
            for program, at, level, text in lines
        )

    def errors(self, program: str) -> Iterator[Line]:
        """Yield the errors of a program, the oldest first: a query for each month."""
        for month in self.months:
            line = Line.variant(month)
            errors = self.store.query(line).where(line.program == program)
            yield from errors.where(line.level == "ERROR").order_by(line.at)

    def move(self, month: str, archive: Log) -> int:
        """Copy a month to another place, then drop its tables."""
        line, lines = archive.use(month), self.store.query(Line.variant(month))
        count = archive.store.upsert_many(lines.allow_scan())
        assert archive.store.query(line).allow_scan().count() == count
        self.store.drop(Line.variant(month))
        self.months.remove(month)
        return count


# --8<-- [end:log]


def main(place: str, archive_place: str) -> None:
    """Write a log of some months, move the oldest, and show what is where."""
    log, archive = Log(place), Log(archive_place)
    with log.store, archive.store:
        hours = [START + timedelta(hours=n) for n in range(24 * 90)]
        count = log.write(
            ("web", at, "ERROR" if at.hour == 3 else "INFO", f"line {n}")
            for n, at in enumerate(hours)
        )
        log.store.upsert(Program("web"))
        print(f"{count:,} lines in {', '.join(log.months)}")
        print(f"{sum(1 for _ in log.errors('web'))} errors, the oldest first")
        for month in log.months[: -KEPT - 1]:
            print(f"{log.move(month, archive):,} lines of {month} moved")
        print(f"here {', '.join(log.months)}; there {', '.join(archive.months)}")
        print(
            f"{sum(1 for _ in log.errors('web'))} errors here, {sum(1 for _ in archive.errors('web'))} there"
        )
        oldest = log.months[0]
        day = log.store[Daily.variant(oldest).key("web", f"{oldest[:4]}-{oldest[4:]}-02")]
        print(f"{day.lines} lines on {day.day}")
        for part in (log, archive):
            print(part.store.check())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        defaults = [str(Path(folder, "log.db")), str(Path(folder, "archive.db"))]
        main(*[*sys.argv[1:3], *defaults[len(sys.argv) - 1 :]])
