"""A program of its own that migrates a store forth or back each time that it is told to, and answers how that ended."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

from . import shapes


def migrate_often(pipe: Connection, path: Path, name: str) -> None:
    """Run the scripts of a case ``"forth"`` or ``"back"``, as often as it is said."""
    case = {**shapes.cases(), **shapes.more_cases()}[name]
    pipe.send("ready")
    while way := pipe.recv():
        try:
            report = shapes.migrate(path, *case.scripts, to="" if way == "back" else None, timeout=60)
            pipe.send("done" if report.done else "not done")
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {' '.join(str(error).split())}")
