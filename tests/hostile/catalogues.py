"""What is done to what a file says of itself."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from .damage import VALUES
from .nodes import damaged, node_at, nodes

JUNK: list[Any] = [
    None, True, 0, -1, 5, 2**63, -(2**70), 10**400, 1.5, "", "x", "Items", "\0", "é" * 600, [], [1], ["x", "y"], {}, {"x": 1},
    {"bytes": "zz"}, {"float": "inf"}, [[[]]],
]  # fmt: skip
"""What can stand at a node of JSON."""


class Catalogues:
    """Makes copies of one sound file, of which the catalogue is damaged.

    Args:
        path: where the sound file is made.
        sound: makes it.
    """

    def __init__(self, path: str, sound: Callable[[str], object]) -> None:
        sound(path)
        self.path = path
        self._bytes = Path(path).read_bytes()
        db = apsw.Connection(path)
        self._forms = dict(db.execute("SELECT name, form FROM tablemapper_catalogue"))
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        filled = [table for table in tables if db.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchall()]
        cells = [
            (table, column)
            for table in filled
            if table not in ("tablemapper_catalogue", "sqlite_sequence")
            for _, column, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall()
        ]
        self._noted = [cell for cell in cells if cell[0].startswith("tablemapper_")]
        self._held = [cell for cell in cells if cell not in self._noted]
        db.close()

    def make(self, number: int, path: str) -> str:
        """Write a file of which one node of the catalogue is changed, and return what was done."""
        rnd = random.Random(-1 - number)
        if rnd.random() < 0.3:
            return self._note(rnd, path)
        name = rnd.choice([*self._forms, "models"])
        form = json.loads(self._forms[name])
        where = rnd.choice(list(nodes(form)))
        junk: Any = "nothing"
        if not where:
            form = junk = rnd.choice(JUNK)
        else:
            holder = form
            for step in where[:-1]:
                holder = holder[step]
            if rnd.random() < 0.2:
                del holder[where[-1]]
            elif isinstance(holder, dict) and rnd.random() < 0.2:
                junk = f"key {where[-1]} renamed"
                holder[rnd.choice(["x", "", "Items", where[-1].lower()])] = holder.pop(where[-1])
            else:
                # A neighbour's value has the right type, and often the right words.
                junk = rnd.choice(JUNK) if rnd.random() < 0.7 else node_at(form, rnd.choice(list(nodes(form))))
                holder[where[-1]] = copy.deepcopy(junk)
        text: Any = json.dumps(form)
        if rnd.random() < 0.05:
            text = rnd.choice(["", "[" * 100_000, b"\xff", None, 5, text[: rnd.randrange(len(text))], "null"])
        damaged(self._bytes, path, "UPDATE tablemapper_catalogue SET form = ? WHERE name = ?", text, name)
        return f"catalogue {name} at {where}: {str(junk)[:60]}"

    def _note(self, rnd: random.Random, path: str) -> str:
        """Change a cell of some rows, or of all, or delete such rows."""
        table, column = rnd.choice(self._noted if rnd.random() < 0.7 else self._held)
        value = rnd.choice(
            [None, 0, -1, 2**63 - 1, 0.5, "", "x", "Part", "[]", '["x"]', b"", b"\xff", "é" * 9000, *VALUES]
        )
        rows = ""
        if rnd.random() < 0.6:
            rows = f' WHERE "{column}" IS (SELECT "{column}" FROM "{table}" LIMIT 1 OFFSET {rnd.randrange(6)})'
        if rnd.random() < 0.15:
            damaged(self._bytes, path, f'DELETE FROM "{table}"{rows}')
            return f"{table} without rows{rows}"
        damaged(self._bytes, path, f'UPDATE OR IGNORE "{table}" SET "{column}" = ?{rows}', value)
        return f"{table}.{column} = {str(value)[:40]!r}{rows}"
