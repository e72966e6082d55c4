"""Forked processes: they have imported all that the tests have.

A file that they open must not be open here: the locks of SQLite on it would be taken for their own. `tests/children.py` has
processes for that.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import ClassVar, TextIO


def in_child(work: Callable[[], object]) -> str:
    """Run ``work`` in a forked process; return what it returned or raised, or "" if it was killed."""
    end, pipe = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.close(end)
            try:
                said = str(work())
            except BaseException as error:
                said = type(error).__name__
            os.write(pipe, said.encode())
        finally:
            os._exit(0)
    os.close(pipe)
    with os.fdopen(end, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said


class Forked:
    """A forked process that is asked by lines, and answers by lines.

    Args:
        work: what it does with the lines that it is asked, and with a function that answers one.
    """

    _pipes: ClassVar[set[TextIO]] = set()
    """The ends of this process, which a later child closes: else an earlier one would wait for it to end."""

    def __init__(self, work: Callable[[TextIO, Callable[[str], object]], object]) -> None:
        asked, ask = os.pipe()
        answer, answered = os.pipe()
        if (child := os.fork()) == 0:
            try:
                for mine in (*self._pipes, *map(os.fdopen, (ask, answer))):
                    mine.close()
                with os.fdopen(asked) as lines, os.fdopen(answered, "w", buffering=1) as answers:
                    work(lines, lambda text: answers.write(f"{text}\n"))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(asked)
        os.close(answered)
        self._child = child
        self._ask, self._answers = os.fdopen(ask, "w", buffering=1), os.fdopen(answer)
        self._pipes.update([self._ask, self._answers])

    def heard(self) -> str:
        """Return the next line that it answers."""
        return self._answers.readline().rstrip("\n")

    def __call__(self, text: str) -> str:
        """Ask, and return the answer."""
        self._ask.write(f"{text}\n")
        return self.heard()

    def stop(self) -> None:
        """Let it come to its end: there are no more lines."""
        for mine in (self._ask, self._answers):
            mine.close()
            self._pipes.discard(mine)
        if self._child:
            os.waitpid(self._child, 0)
        self._child = 0
