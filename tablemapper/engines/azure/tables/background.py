"""A thread that does again and again what is due, while there is something to be done."""

from __future__ import annotations

import threading
from collections.abc import Callable

_SOON = 1.0  # seconds after which what is new is done


class Background:
    """A thread that is there while something is to be done, and never keeps a program from ending.

    Args:
        work: does what is due; returns in how many seconds there is more to be done, None if there is nothing.
    """

    def __init__(self, work: Callable[[], float | None]) -> None:
        self._work = work
        self._condition = threading.Condition()
        self._is_new = False
        self._is_over = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Let there be something to be done, a second later at the latest."""
        if self._is_new:
            return
        with self._condition:
            self._is_new = True
            if self._is_over:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tablemapper-background", daemon=True)
                self._thread.start()
            self._condition.notify()

    def stop(self) -> None:
        """End the thread, behind what it is doing."""
        with self._condition:
            self._is_over = True
            thread = self._thread
            self._condition.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        seconds_left: float | None = _SOON
        while True:
            with self._condition:
                if not self._is_over and not self._is_new:
                    self._condition.wait(seconds_left)
                if self._is_new and not self._is_over:
                    self._condition.wait_for(lambda: self._is_over, _SOON)  # (what comes meanwhile goes along)
                self._is_new = False
                if self._is_over:
                    return
            seconds_left = self._work()
            with self._condition:
                if seconds_left is None and not self._is_new:
                    self._thread = None
                    return
                seconds_left = max(seconds_left or 0.0, _SOON)
