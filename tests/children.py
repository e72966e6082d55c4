"""Programs of tests in processes of their own, forked from one that has imported them: to import takes most of a second."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([f"tests.migrations.{name}" for name in ("runner", "service", "ways_back_process")])


class Child:
    """A process, and both ends of what is said to it and told by it.

    Args:
        main: is run with the process's end of the pipe, and what else is given.
        more: texts and numbers.
    """

    def __init__(self, main: Callable[..., None], *more: Any) -> None:
        self.pipe, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=main, args=(theirs, *more), daemon=True)
        self.process.start()
        theirs.close()
        self.hear()  # that it is ready

    def say(self, order: Any) -> None:
        """Tell it what to do, and do not wait for that."""
        self.pipe.send(order)

    def hear(self) -> Any:
        """Return what it tells next."""
        return self.pipe.recv()

    def end(self) -> None:
        """Let it come to its end."""
        self.say(None)
        self.join()

    def kill(self) -> None:
        self.process.kill()
        self.join()

    def join(self) -> None:
        self.process.join(60)
        assert self.process.exitcode is not None, "it does not end"
        self.process.close()
        self.pipe.close()
