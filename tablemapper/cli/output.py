"""Output of commands: tables and messages for people, JSON for programs, in characters that the output can hold."""

from __future__ import annotations

import codecs
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

import attrs
import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..viewer.cells import CONTROLS, escaped


class Exit(IntEnum):
    """The exit status of a command."""

    OK = 0
    FINDINGS = 1
    """The command did its work, and found what somebody has to look at."""
    USAGE = 2
    """The command line, the models or the migrations are wrong; no store was touched."""
    STORE = 3
    """The store cannot be used: it is locked, damaged, no store, or not what the models say."""
    INTERRUPTED = 130


_GAP = 3  # spaces between columns
_READABLE = 8  # columns of a terminal: what is cut keeps so many
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_PADDED = 60  # and what is longer in a pipe moves only its own row


def prepare_streams() -> None:
    """Make the streams of the process such that no text ends a command, whatever their encoding."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:  # the caller closed it: it wants to read nothing
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  for the rest of the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _encoding() -> str:
    return codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name


def is_unicode() -> bool:
    """Return whether the output holds every character."""
    return _encoding().startswith("utf-")


def fitting(text: str) -> str:
    r"""Return a text with ``\u…`` for what the output cannot hold."""
    return text.encode(_encoding(), "backslashreplace").decode(_encoding())


def _printable(text: str, keep: str = "") -> str:
    return fitting(escaped(text, keep))


def json_text(data: bytes) -> str:
    r"""Return JSON as text that the output can hold: with ``\u…`` for control characters, and for all that it lacks."""
    odd = CONTROLS if is_unicode() else _NOT_ASCII  # (JSON itself escapes those of ASCII)
    return odd.sub(_escaped_in_json, data.decode())


def _escaped_in_json(match: re.Match[str]) -> str:
    return match[0] if match[0] == "\n" else re.sub("(....)", r"\\u\1", match[0].encode("utf-16-be").hex())


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, cut: bool = False) -> Table | str:
    """Return a table; numbers stand on the right. With ``cut`` a terminal shows each row on one line."""
    lines = [list(row) for row in rows]
    texts = [[_printable(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in line] for line in lines]
    numbers = [bool(lines) and all(isinstance(line[at], int) for line in lines) for at in range(len(columns))]
    heads = [_printable(name) for name in columns]
    if not sys.stdout.isatty():
        return "\n".join([*filter(None, [title]), *_padded(numbers, [heads, *texts])])
    drawn = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    widths: list[int | None] = [None] * len(heads)
    if cut:
        widths = _within(
            shutil.get_terminal_size().columns,
            [max(map(cell_len, column)) for column in zip(heads, *texts, strict=True)],
        )
        if hidden := len(heads) - len(widths):
            drawn.caption = f"{hidden} more {'column' if hidden == 1 else 'columns'}: --fields chooses"
            drawn.caption_justify = "left"
    overflow: Any = "fold" if not cut else "ellipsis" if fitting("…") == "…" else "crop"
    for name, number, width in zip(heads, numbers, widths, strict=False):
        justify: Any = "right" if number else "left"
        drawn.add_column(Text(name), justify=justify, overflow=overflow, no_wrap=cut, width=width)
    for line in texts:
        drawn.add_row(*map(Text, line[: len(widths)]))
    return drawn


def _padded(numbers: Sequence[bool], lines: Sequence[Sequence[str]]) -> Iterable[str]:
    """Yield the lines of a table that has no width: a long value pads no other row."""
    widths = [
        max(filter(lambda size: size <= _PADDED, map(cell_len, column)), default=0)
        for column in zip(*lines, strict=True)
    ]
    for line in lines:
        cells = []
        for text, width, number in zip(line, widths, numbers, strict=True):
            pad = " " * (width - cell_len(text))
            cells.append(pad + text if number else text + pad)
        yield (" " * _GAP).join(cells).rstrip()


def _within(most: int, widths: Sequence[int]) -> list[int | None]:
    """Return the widths of the first columns that fit a terminal: the widest ones are cut, but stay readable."""
    least = [min(width, _READABLE) for width in widths]
    fitting_count = 1
    while fitting_count < len(widths) and sum(least[: fitting_count + 1]) + _GAP * (fitting_count + 1) <= most:
        fitting_count += 1
    fit = [*widths[:fitting_count]]
    while sum(fit) + _GAP * fitting_count > most and max(fit) > 1:
        fit[fit.index(max(fit))] -= 1
    return [*fit]


def show(report: Any, *shapes: Any, json: bool, ok: bool = True) -> Exit:
    """Print a report, as JSON or as text and tables, and return how the command ends."""
    if json:
        members = {"ok": ok, **attrs.asdict(report)} if attrs.has(type(report)) else report
        sys.stdout.write(json_text(msgspec.json.format(msgspec.json.encode(members), indent=2)) + "\n")
        return Exit.OK if ok else Exit.FINDINGS
    for shape in shapes or (str(report),):
        if not isinstance(shape, str):
            Console(highlight=False).print(shape)
        else:
            sys.stdout.write(_printable(shape, "\n") + "\n")
    return Exit.OK if ok else Exit.FINDINGS


def fail(kind: str, message: str, code: Exit, *, json: bool) -> Exit:
    """Say why a command fails, and return how it ends."""
    if json:
        message = message.encode("utf-8", "backslashreplace").decode()  # (a name of a file may be no text)
        show({"ok": False, "error": kind, "message": message}, json=True)
    else:
        note(message)
    return code


def note(message: str) -> None:
    """Say something beside what a command prints."""
    text = escaped(message, "\n")
    Console(stderr=True, soft_wrap=True, highlight=False).print(Text(f"tablemapper: {text}"))
