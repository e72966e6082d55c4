"""Pictures of rows where they lie. They come from the files that the programs of the pages write."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import tablemapper as tm

from ..pages import ROOT, blocks
from .panel import Panel, picture

Row = tuple[Any, ...]


class File:
    """A store in a file, in place of the one in memory that a page opens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scope: dict[str, Any] = {"__name__": "page", "print": lambda *_: None}

    def run(self, page: str, first: int = 0, last: int | None = None) -> None:
        """Run the Python blocks of a page of ``docs``, from the first to before the last."""
        for line, source in blocks(ROOT / "docs" / page)[first:last]:
            text = "\n" * line + source.replace('":memory:"', repr(str(self.path)))
            exec(compile(text, page, "exec", dont_inherit=True), self.scope)

    def rows(self, table: str, *columns: str) -> list[Row]:
        """Return columns of a table in the order of its rows."""
        names = ", ".join(f't."{column}"' for column in columns)
        with closing(apsw.Connection(str(self.path))) as file:
            return list(
                file.execute(
                    f'SELECT {names} FROM "{table}" AS t ORDER BY PartitionKey, RowKey'
                )
            )


@contextmanager
def _file() -> Iterator[File]:
    with tempfile.TemporaryDirectory() as folder:
        yield File(Path(folder) / "page.db")


def home() -> str:
    """Return one write, as it is seen in the tables of the entities, of an index and of totals."""
    with _file() as file:
        file.run("index.md", last=1)
        before = _shop(file)
        file.run("index.md", first=1, last=2)
        after = _shop(file)
    panels = []
    for title, tables in (
        ("Before the write", before),
        ("After it: shaded rows changed", after),
    ):
        panel = Panel(title)
        panel.text(2, 14, title, "s")
        for name, (note, heads, rows) in tables.items():
            changed = set(rows) - set(before[name][2])
            marks = ["hi" if row in changed else "" for row in rows]
            panel.table(name, note, heads, rows, marks=marks, widths=(112, 74, 50, 40))
        panels.append(panel)
    return picture("home", *panels)


def _shop(file: File) -> dict[str, tuple[str, tuple[str, ...], list[Row]]]:
    keys = ("PartitionKey", "RowKey")
    return {
        "Products": (
            "you write these",
            (*keys, "maker", "price"),
            file.rows("Products", *keys, "maker", "price"),
        ),
        "ProductsByMaker": ("kept by the store", keys, file.rows("ProductsByMaker", *keys)),
        "Makers": (
            "kept by the store",
            ("PartitionKey", "products", "worth"),
            file.rows("Makers", "PartitionKey", "products", "worth"),
        ),
    }


class Numbered(tm.Entity, table="Numbers"):
    """One number in the key."""

    number: tm.Field[int]
    key = tm.Key[int](partition="{number}")


class Flat(tm.Entity, table="Flats"):
    """A building and a unit, one after the other."""

    building: tm.Field[str]
    unit: tm.Field[int]
    key = tm.Key[str, int](partition=("{building}", "{unit}"))


class Line(tm.Entity, table="Lines"):
    """A time, the newest first."""

    at: tm.Field[datetime]
    key = tm.Key[datetime](partition="{at:desc}")


def keys() -> str:
    """Return values beside their texts in a key, in the order of the texts."""
    columns: list[tuple[str, str, list[tuple[str, str]]]] = [
        (
            "Numbers",
            '"{number}"',
            [(str(n), Numbered.key(n).partition) for n in (1000, 7, -100, 42, -7, 0)],
        ),
        (
            "Tuples",
            '("{building}", "{unit}")',
            [
                (f"{building!r}, {unit}", Flat.key(building, unit).partition)
                for building, unit in (("b", 0), ("a2", 1), ("a", 10), ("a/c", 1), ("a", 2))
            ],
        ),
        (
            "Newest first",
            '"{at:desc}"',
            [
                (f"{at:%Y-%m-%d}", Line.key(at).partition)
                for at in (datetime(year, 1, 1, tzinfo=UTC) for year in (2024, 2025, 2026))
            ],
        ),
    ]
    return picture(
        "keys",
        *(
            Panel(f"{name}: values and their text in the key").table(
                name,
                template,
                ("value", "text, in order"),
                sorted(pairs, key=lambda pair: pair[1]),
            )
            for name, template, pairs in columns
        ),
    )


def planner() -> str:
    """Return a range of an index: what is read, and what is filtered out afterwards."""

    class Flat(tm.Entity, table="Flats"):
        city: tm.Field[str]
        unit: tm.Field[int]
        rent: tm.Field[int]
        rooms: tm.Field[int]

        key = tm.Key[str, int](partition="{city}", row="{unit}")
        by_rent = tm.Index[str, int](
            partition="{city}", row="{rent:04d}", include=("rooms",)
        )

    with _file() as file, tm.open(file.path, models=[Flat]) as store:
        flats = [Flat("Oslo", n, 500 + n * 130 % 700, 1 + n % 4) for n in range(7)]
        store.insert_many([*flats, Flat("Rome", 1, 480, 2), Flat("Rome", 2, 640, 3)])
        query = store.query(Flat).where(
            Flat.city == "Oslo", Flat.rent < 900, Flat.rooms > 2
        )
        plan, found = query.explain(), {flat.key.row for flat in query}
        (bounds,) = plan.ranges
        rows, marks = [], []
        for partition, row, key, rooms in file.rows(
            "FlatsByRent", "PartitionKey", "RowKey", "_rk", "rooms"
        ):
            read = partition == bounds.partition.lo and bounds.row.lo <= row < bounds.row.hi
            got = read and key in found
            marks.append("found" if got else "read" if read else "")
            rows.append(
                (
                    partition,
                    row,
                    str(rooms),
                    "returned" if got else "filtered out" if read else "",
                )
            )
        assert sum(map(bool, marks)) == plan.rows
        assert plan.filter == ("rooms > 2",)
    panel = Panel("A query reads one range of an index, and filters what it has read")
    panel.text(2, 14, 'city == "Oslo", rent < 900, rooms > 2', "m")
    panel.said.append('The query asks for city == "Oslo", rent < 900 and rooms > 2.')
    heads = ("PartitionKey", "RowKey", "rooms", "")
    panel.table("FlatsByRent", "shaded rows are read", heads, rows, marks=marks)
    return picture("planner", panel)


def one_to_many() -> str:
    """Return a customer and its orders in one partition, and the orders of a courier in another table."""
    with _file() as file:
        file.run("recipes/one-to-many.md")
        customers = file.rows("Customers", "PartitionKey", "RowKey", "name", "courier")
        couriers = file.rows("CustomersByCourier", "PartitionKey", "_pk", "_rk")
    one = Panel("A customer and its orders: one partition").table(
        "Customers",
        "one partition",
        ("PartitionKey", "RowKey", "name", "courier"),
        [[cell or "" for cell in row] for row in customers],
        marks=["found" if row[3] else "" for row in customers],
    )
    other = Panel("The index by courier: another table").table(
        "CustomersByCourier",
        "the way back",
        ("PartitionKey", "of partition", "of row"),
        couriers,
        marks=["found"] * len(couriers),
    )
    return picture("one-to-many", one, other)


def log_tail() -> str:
    """Return the first and the last rows of a log."""
    with _file() as file:
        file.run("recipes/log-tail.md")
        lines = file.rows("Log", "PartitionKey", "RowKey", "text")
    shown: list[Sequence[str]] = [*lines[:3], ("…", "…", "…"), lines[-1]]
    panel = Panel("A log whose newest line comes first").table(
        "Log",
        "limit(3) reads three rows",
        ("PartitionKey", "RowKey", "text"),
        shown,
        marks=["found"] * 3,
    )
    return picture("log-tail", panel)


def shards() -> str:
    """Return the first rows of some of the partitions that a key is spread over."""
    with _file() as file:
        file.run("recipes/shards.md")
        events = file.rows("Events", "PartitionKey", "RowKey")
    partitions: dict[str, list[str]] = {}
    for partition, row in events:
        partitions.setdefault(partition, []).append(row)
    shown = [
        (name, " ".join(rows[-2:]), str(len(rows)))
        for name, rows in sorted(partitions.items())
    ]
    panel = Panel("Events of one user, spread over eight partitions").table(
        "Events", "read side by side", ("PartitionKey", "last two rows", "rows"), shown
    )
    return picture("shards", panel)
