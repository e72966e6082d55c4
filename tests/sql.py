"""What other programs do to the file of a store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw


def run_sql(path: Path | str, *statements: str, values: Sequence[Any] = ()) -> list[Any]:
    """Run statements over a file, each in a transaction of its own; return the rows of the last one."""
    with closing(apsw.Connection(str(path))) as connection:
        return [connection.execute(statement, values).fetchall() for statement in statements][-1]
