"""Tables: for a terminal, for a page of the documentation, for a program; and the options of everything that prints them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import apsw
import attrs

_FACTORS = {"": (1, 1), "k": (1_000, 1 << 10), "m": (1_000_000, 1 << 20)}


def number(text: str, *, binary: bool = False) -> int:
    """Return what ``50k`` or ``1m`` means."""
    digits = text.lower().rstrip("km")
    return int(float(digits) * _FACTORS[text.lower()[len(digits) :]][binary])


@attrs.frozen
class Table:
    """What was measured, as text; a cell that ends in "!" misses its target."""

    title: str
    head: Sequence[Sequence[str]]
    """One line or two."""
    rows: Sequence[Sequence[str]]
    plain: Mapping[str, Any]
    """All that was measured, for a program."""

    def text(self) -> str:
        """Return the table for a terminal."""
        rows = [*self.head, *self.rows]
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
        return "\n".join([self.title, "", *lines])

    def markdown(self) -> str:
        """Return the table for a page; what misses its target is bold."""
        head = [", ".join(filter(None, cells)) for cells in zip(*self.head, strict=True)]
        body = [[f"**{cell[:-2]}**" if cell.endswith(" !") else cell for cell in row] for row in self.rows]
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
        return "\n".join([f"{self.title}:", "", *("| " + " | ".join(line) + " |" for line in lines)])


def machine() -> dict[str, str]:
    """Return processor, system, and the versions of all that is compared."""
    found = {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "apsw": f"{apsw.apsw_version()} (SQLite {apsw.sqlite_lib_version()})",
    }
    for title, package in (("SQLAlchemy", "sqlalchemy"), ("peewee", "peewee"), ("aiosqlite", "aiosqlite")):
        try:
            found[title] = f"{version(package)} (SQLite {sqlite3.sqlite_version})"
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            return next(line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _load() -> str:
    try:
        return f"{os.getloadavg()[0]:.1f}"
    except (AttributeError, OSError):
        return "unknown"


def parser_of(program: str, doc: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options of a benchmark, whose help is its doc."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=program, description=doc, formatter_class=raw)


def add_options(parser: argparse.ArgumentParser, *, rounds: int) -> None:
    """Add the options that all benchmarks have; one that is told to end removes its files first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    add = parser.add_argument
    add("--rounds", type=int, default=rounds, help=f"medians are shown (default {rounds})")
    add("--durability", choices=("full", "relaxed"), default="relaxed", help="of all of them (default relaxed)")
    add("--clock", choices=("wall", "cpu"), default="wall", help="time that passes, or that of the processor")
    add("--folder", help="where the files are made (default the system's temporary folder)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="all that was measured, for a program")
    form.add_argument("--markdown", action="store_true", help="the table as a page shows it")
    form.add_argument("--into", metavar="PAGE", help="put the table into a page, in the place of the one that is there")


def progress(text: str) -> None:
    """Say on a terminal what is being done."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text[:100]}", end="", file=sys.stderr, flush=True)


def publish(options: argparse.Namespace, name: str, table: Table, part: str = "") -> None:
    """Print a table in the form that is asked for, or put it into a page, between ``<!-- name -->`` and the next mark.

    Args:
        options: those of `add_options`.
        name: of the marks.
        table: what was measured.
        part: what that is, if it is not all; the other rows stay in the page.
    """
    progress("")
    clock = "" if options.clock == "wall" else "processor time; "
    about = f"{clock}{', '.join(f'{what} {value}' for what, value in machine().items())}; load {_load()}"
    if options.json:
        plain = {"machine": machine(), "load": _load(), "title": table.title, **table.plain}
        print(json.dumps(plain, ensure_ascii=False, indent=1))
        return
    print(table.markdown() if options.markdown else table.text())
    print(f"\n{about}")
    if options.into:
        page, whole = Path(options.into), f"{table.markdown()}\n\nMeasured with: {about}."
        place(
            page, name, refreshed(between(page, name), table, f"Measured later ({part}): {about}.") if part else whole
        )


def refreshed(held: str, table: Table, note: str) -> str:
    """Return a table of a page, and what is said below it, with new rows in the place of those of the same name.

    A row that is new comes behind the one that it follows in the new table. The note takes the place of one that begins alike.
    """
    lines = held.strip("\n").split("\n")
    begin = note.partition(":")[0] + ":"
    kept = [at for at, line in enumerate(lines) if line.startswith("| ")]
    if not kept:
        raise SystemExit("the page has no such table yet; measure all of it first")
    behind = kept[-1]
    for row in table.markdown().split("\n")[4:]:
        same = [at for at in kept if lines[at].split(" | ")[0] == row.split(" | ")[0]]
        if same:
            behind = same[0]
            lines[behind] = row
        else:
            behind += 1
            lines.insert(behind, row)
            kept = [at + (at >= behind) for at in kept]
    below = [line for line in lines[lines.index("", kept[-1]) :] if line and not line.startswith(begin)]
    return "\n".join(lines[: lines.index("", kept[-1])]) + "".join(f"\n\n{line}" for line in [*below, note])


def between(page: Path, name: str) -> str:
    """Return what a page has between two marks."""
    found = _marked(name).search(page.read_text(encoding="utf-8"))
    return "" if found is None else found[2]


def _marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def place(page: Path, name: str, text: str) -> None:
    """Replace what a page has between two marks."""
    held = page.read_text(encoding="utf-8")
    changed, count = _marked(name).subn(lambda marks: f"{marks[1]}\n{text}\n\n{marks[3]}", held)
    if count != 1:
        raise SystemExit(f"{page}: expected one <!-- {name} --> … <!-- end -->, found {count}")
    page.write_text(changed, encoding="utf-8")
