"""Runs a script that copies entities over a store that cannot note what changes meanwhile: through files, twice.

First beside programs that write. Then they only read, and what they have changed since is copied. So the script runs over a
file, as every script does, and the store gets what came of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ..engines.migration import Replacement
from ..engines.opening import open_engine
from ..engines.protocol import HasBackup
from ..progress import Meter, Progress, ProgressOption, start_meter
from ..store.copying import copy_engine
from .report import MigrationReport

__all__ = ["replace"]

Converting = Callable[[Path, ProgressOption], MigrationReport]
"""Runs the script over a file."""


def replace(replacement: Replacement, convert: Converting, progress: ProgressOption, what: str) -> MigrationReport:
    """Convert all entities, and let the new ones take the place of the old ones.

    Args:
        replacement: has both.
        convert: runs the script over a file.
        progress: counts what is copied.
        what: is shown with it.

    Returns:
        What came of the script over the file: not done if there are faults, and then nothing was switched.

    Raises:
        Outdated: another run is about it, or the classes have changed.
    """

    def alive(_: Progress) -> None:
        replacement.alive()

    with tempfile.TemporaryDirectory(prefix="tablemapper") as folder, start_meter(progress, what) as shown:
        meter, is_frozen, number = _Watched(shown, replacement.alive), False, 0
        with closing(open_engine(Path(folder) / "old.db", replacement.source.schema, durability="relaxed")) as old:
            while True:
                copy_engine(replacement.source, old, meter, partly=True)
                new, number = Path(folder) / f"new{number}.db", number + 1
                assert isinstance(old, HasBackup)
                old.backup(str(new), meter)
                report = convert(new, alive)
                if not report.ok:
                    return report
                with closing(open_engine(new, replacement.target.schema, durability="relaxed")) as made:
                    copy_engine(made, replacement.target, meter)
                new.unlink()
                if is_frozen and replacement.switch(report.entities):
                    return report
                replacement.freeze()
                is_frozen = True


class _Watched(Meter):
    """A meter whose advance is seen."""

    def __init__(self, meter: Meter, seen: Callable[[], None]) -> None:
        self._meter = meter
        self._seen = seen

    def advance(self, n: int) -> None:
        self._meter.advance(n)
        self._seen()
