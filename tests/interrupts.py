"""Interrupts at any place where Python lets one come in.

A ``KeyboardInterrupt`` does not come between any two instructions: CPython looks for signals when a function begins,
after a call, and when a loop jumps back. `strike` raises one at a chosen of these places, in the thread that calls it.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

import tablemapper

__all__ = ["places", "strike"]

_PACKAGE = tablemapper.__file__.rsplit("/", 1)[0]
_LOOKS = {"RESUME", "JUMP_BACKWARD", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "YIELD_VALUE"}
_after: dict[CodeType, frozenset[int]] = {}


def _places_of(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions before which an interrupt can come."""
    found = _after.get(code)
    if found is None:
        found = _after[code] = frozenset(
            after.offset for before, after in pairwise(dis.get_instructions(code)) if before.opname in _LOOKS
        )
    return found


class _Counter:
    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "call":
            if not frame.f_code.co_filename.startswith(_PACKAGE):
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        elif event == "opcode" and frame.f_lasti in _places_of(frame.f_code):
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
        return self.trace


def strike(at: int, work: Callable[[], object]) -> bool:
    """Interrupt ``work`` at the ``at``-th place in this package; tell whether it got that far.

    What the work raises by itself comes out.
    """
    counter = _Counter(at)
    before = sys.gettrace()
    sys.settrace(counter.trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return counter.count >= at


def places(work: Callable[[], object]) -> int:
    """Return at how many places an interrupt can come into ``work``."""
    counter = _Counter(0)
    sys.settrace(counter.trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return counter.count
