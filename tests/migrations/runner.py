"""A program of its own that migrates a store forth or back each time that it is told to, and answers how that ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from . import shapes

ROOT = Path(__file__).parents[2]


class Runner:
    """Migrates in another process.

    Args:
        path: of the store.
        name: of the case whose scripts it runs.
    """

    def __init__(self, path: Path, name: str) -> None:
        command = [sys.executable, "-m", "tests.migrations.runner", str(path), name]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.wait()

    def run(self, way: str) -> None:
        """Have it run, while the caller goes on."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{way}\n")
        self._process.stdin.flush()

    def wait(self) -> str:
        """Return how that ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def stop(self) -> None:
        self._process.communicate(timeout=60)


def main(path: str, name: str) -> None:
    case = {**shapes.cases(), **shapes.more_cases()}[name]
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            report = shapes.migrate(Path(path), *case.scripts, to="" if line.strip() == "back" else None, timeout=60)
            print("done" if report.done else "not done", flush=True)
        except Exception as error:
            print(f"{type(error).__name__}: {' '.join(str(error).split())}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
