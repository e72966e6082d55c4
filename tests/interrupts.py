"""Interrupts at any place where Python lets one come in.

A ``KeyboardInterrupt`` does not come between any two instructions: CPython looks for signals when a function begins,
after a call, and when a loop jumps back. `strike` raises one at a chosen of these places, in the thread that calls it. It
can also raise one at each line or at each instruction, which is more than Python does.
"""

from __future__ import annotations

import dis
import sys
import traceback
from collections.abc import Callable
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any, Literal, TypeAlias

import tablemapper

Where: TypeAlias = Literal["delivery", "line", "instruction"]
"""Where Python lets an interrupt in; at each line; at each instruction."""

NEVER = ", where Python lets none in"
"""What is said of a place where no interrupt comes, as between the end of a ``with`` and the call of its ``__exit__``."""

_PACKAGE = tablemapper.__file__.rsplit("/", 1)[0]
_LOOKS = {"RESUME", "JUMP_BACKWARD", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "YIELD_VALUE"}
# From Python 3.12 on a jump back looks before it jumps, and may stand outside of the handler that its loop is in.
_JUMPS_BACK = "JUMP_BACKWARD" if sys.version_info >= (3, 12) else ""
_after: dict[CodeType, frozenset[int]] = {}


def _places_of(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions at which an interrupt can come in."""
    found = _after.get(code)
    if found is None:
        handlers = dis.Bytecode(code).exception_entries
        found = _after[code] = frozenset(
            (before if before.opname == _JUMPS_BACK else after).offset
            for before, after in pairwise(dis.get_instructions(code))
            if before.opname == _JUMPS_BACK
            or (before.opname in _LOOKS and _handler(handlers, before.offset) == _handler(handlers, after.offset))
        )
    return found


def _handler(entries: list[Any], offset: int) -> int | None:
    """Return where an error at this instruction goes on.

    An interrupt that comes in after a call goes where an error of the call goes, but `strike` raises it at the next
    instruction. Where that has another handler, as after `return f()` inside a `with`, the lock of the `with` would
    stay held, which no interrupt does.
    """
    return next((entry.target for entry in entries if entry.start <= offset < entry.end), None)


class _Counter:
    def __init__(self, at: int, where: Where) -> None:
        self.at = at
        self.where = where
        self.count = 0
        self.names: list[str] = []

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "call":
            if not frame.f_code.co_filename.startswith((_PACKAGE, "<tablemapper ")):
                return None
            frame.f_trace_lines = self.where == "line"
            frame.f_trace_opcodes = not frame.f_trace_lines
        elif event == "line" or (
            event == "opcode" and (self.where != "delivery" or frame.f_lasti in _places_of(frame.f_code))
        ):
            self.count += 1
            if self.count == self.at or not self.at:
                never = "" if frame.f_lasti in _places_of(frame.f_code) else NEVER
                self.names.append(f"{frame.f_code.co_qualname}, line {frame.f_lineno}, {frame.f_lasti}{never}")
            if self.count == self.at:
                raise KeyboardInterrupt
        return self.trace


def strike(at: int, work: Callable[[], object], where: Where = "delivery") -> str:
    """Interrupt ``work`` at the ``at``-th place in this package; return which one that is, "" if it did not get so far.

    What the work raises by itself comes out.
    """
    counter = _Counter(at, where)
    before = sys.gettrace()
    sys.settrace(counter.trace)
    try:
        work()
    except KeyboardInterrupt as interrupt:
        sys.settrace(None)
        traceback.clear_frames(
            interrupt.__traceback__
        )  # else a generator may be closed later, by a thread without a trace
    finally:
        sys.settrace(before)
    return "".join(counter.names)


def places(work: Callable[[], object]) -> int:
    """Return at how many places an interrupt can come into ``work``."""
    return len(names_of_places(work))


def names_of_places(work: Callable[[], object], where: Where = "delivery", times: int = 3) -> list[str]:
    """Return the places at which an interrupt can come into ``work``, in order.

    The work is done three times: from Python 3.12 on, the instructions of a function are not seen before its second
    call, and by then neither statements nor plans are new.
    """
    for _ in range(times):
        counter = _Counter(0, where)
        sys.settrace(counter.trace)
        try:
            work()
        finally:
            sys.settrace(None)
    return counter.names
