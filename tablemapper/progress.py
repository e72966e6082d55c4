"""Progress of long work: a callback, or a bar on stderr if that is a terminal; and its end, if nobody waits for it.

Nothing else here ever prints.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Self, TextIO, TypeAlias

import attrs

INTERVAL = 0.1
"""Seconds between two reports."""
_CELLS = 24
cancelling: ContextVar[Callable[[], None] | None] = ContextVar("tablemapper_cancelling", default=None)
"""A function that raises if the call that runs here is to end."""


def check_cancelled() -> None:
    """Raise if the call that runs here was cancelled: what can take long asks between two steps."""
    if (check := cancelling.get()) is not None:
        check()


@attrs.frozen
class Progress:
    """The progress of a long call. ``total`` is None if it is unknown; ``seconds`` is the time since the start."""

    done: int
    total: int | None
    seconds: float
    what: str


ProgressOption: TypeAlias = "bool | Callable[[Progress], None]"
"""What a ``progress=`` argument takes: True for a bar, or a function that is called with each ``Progress``."""


def start_meter(
    progress: ProgressOption,
    label: str,
    *,
    total: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    stream: TextIO | None = None,
) -> Meter:
    """Start a meter, to be used in a ``with``; ``stream`` is where a bar goes, stderr by default."""
    if callable(progress):
        return Meter(progress, label, total, clock, _nothing)
    bar = _Bar(stream or sys.stderr) if progress else None
    if bar is not None and bar.visible:
        return Meter(bar.draw, label, total, clock, bar.clear)
    return Meter(None, label, total, clock, _nothing)


class Meter:
    """Counts what is done, and reports it at most ten times a second, and once when the work has ended well."""

    def __init__(
        self,
        tell: Callable[[Progress], None] | None,
        label: str,
        total: int | None,
        clock: Callable[[], float],
        end: Callable[[], None],
    ) -> None:
        self.count: int = 0
        self.label = label
        self._tell = tell
        self._total = total
        self._clock = clock
        self._end = end
        self._start = clock()
        self._next = self._start + INTERVAL  # work that takes less shows no bar

    def advance(self, n: int) -> None:
        """Count ``n`` more as done. What the callback raises comes out here."""
        self.count += n
        if self._tell is not None and (time_now := self._clock()) >= self._next:
            self._next = time_now + INTERVAL
            self._tell(Progress(self.count, self._total, time_now - self._start, self.label))

    def expect(self, total: Callable[[], int]) -> None:
        """Take over how much there is to do, which is counted only if somebody sees it."""
        if self._tell is not None:
            self._total = self.count + total()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._tell is not None and kind is None:
                self._tell(Progress(self.count, self._total, self._clock() - self._start, self.label))
        finally:
            self._end()


def _nothing() -> None:
    pass


class _Bar:
    """One line of a terminal, drawn over and over, without colours, so that NO_COLOR has nothing to turn off.

    Losing the terminal does not stop the work.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.visible = stream is not None and not stream.closed and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = 0

    def draw(self, progress: Progress) -> None:
        line = line_of(progress)[: max(shutil.get_terminal_size().columns - 1, 1)]
        self._write("\r" + line.ljust(self._drawn))
        self._drawn = len(line)

    def clear(self) -> None:
        if self._drawn:
            self._write("\r" + " " * self._drawn + "\r")

    def _write(self, text: str) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()


def line_of(progress: Progress) -> str:
    """Return the bar as text."""
    count, total = progress.done, progress.total
    rate = f"{count / progress.seconds:,.0f}/s" if progress.seconds > 0 else ""
    if not total:
        return f"{progress.what}  {count:,}  {rate}".rstrip()
    share = min(count / total, 1.0)
    cells = int(share * _CELLS)
    return f"{progress.what}  [{'#' * cells}{'.' * (_CELLS - cells)}] {share:4.0%}  {count:,} of {total:,}  {rate}".rstrip()
