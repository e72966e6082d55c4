"""Which rows SQLite visits for a query, table by table: counted, not timed.

SQLite runs the very statements of the store, with one more condition in front for each table: a function that counts
the row it is asked about and says yes. That this changes nothing is asserted each time: the statement must have the
same query plan with and without it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

_SOURCE = re.compile(r'(?:FROM|JOIN) "?(\w+)\b"?(?!\()(?: (?!WHERE\b)(\w+)\b)?')

_COUNTED = ("t", "i", "")  # aliases of entity tables and index tables


class Touched:
    """What the statements of a store did."""

    def __init__(self) -> None:
        self.visits: Counter[str] = Counter()
        self.statements: list[str] = []
        self.opened: set[str] = set()
        """The tables on which a cursor was opened."""
        self._counting = False

    def __call__(self, run: Callable[[], Any]) -> dict[str, int]:
        """Return how many rows of each table are visited while something runs."""
        self.visits.clear()
        self.statements.clear()
        self.opened.clear()
        self._counting = True
        try:
            run()
        finally:
            self._counting = False
        return dict(self.visits)

    def counted(self, connection: apsw.Connection, sql: str, args: Any) -> str:
        """Return a statement that counts what it visits."""
        if not self._counting or not sql.startswith("SELECT") or not _SOURCE.search(sql):
            return sql
        execute = super(_Counting, connection).execute  # type: ignore[misc]
        made = _with_counts(sql)
        plans = [[row[3] for row in execute(f"EXPLAIN QUERY PLAN {one}", args)] for one in (sql, made)]
        assert plans[0] == plans[1], (sql, plans)
        roots = {root: name for name, root in execute("SELECT tbl_name, rootpage FROM sqlite_schema")}
        self.opened |= {
            roots[row[3]] for row in execute(f"EXPLAIN {sql}", args) if row[1] == "OpenRead" and row[3] in roots
        }
        self.statements.append(sql)
        return made


def _with_counts(sql: str) -> str:
    """Return the statement with a condition for each of its tables in front of the conditions on them."""
    pieces: list[str] = []
    open_tables: list[list[tuple[str, str]]] = [[]]
    at = 0
    while at < len(sql):
        if sql[at] == "'":
            end = sql.index("'", at + 1) + 1
        elif found := _SOURCE.match(sql, at):
            open_tables[-1].append((found[1], found[2] or ""))
            end = found.end()
        elif sql.startswith("WHERE ", at):
            end = at + len("WHERE ")
            pieces.append(sql[at:end])
            pieces += [
                f"visited('{table}', {alias}{'.' if alias else ''}\"PartitionKey\") AND "
                for table, alias in open_tables[-1]
                if alias in _COUNTED
            ]
            open_tables[-1] = []
            at = end
            continue
        else:
            if sql[at] == "(":
                open_tables.append([])
            elif sql[at] == ")":
                assert not [one for one in open_tables.pop() if one[1] in _COUNTED], sql
            end = at + 1
        pieces.append(sql[at:end])
        at = end
    assert open_tables == [[]], sql
    return "".join(pieces)


class _Counting(apsw.Connection):
    touched: Touched

    def execute(self, statements: str, bindings: Any = None, **more: Any) -> Any:  # type: ignore[override]
        return super().execute(self.touched.counted(self, statements, bindings), bindings, **more)


@contextmanager
def touching() -> Iterator[Touched]:
    """Count what is visited by the stores that are opened inside."""
    touched = Touched()

    def visited(table: str, _: str) -> bool:
        touched.visits[table] += 1
        return True

    class Connection(_Counting):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.create_scalar_function("visited", visited, 2)  # (not deterministic: asked for every row)

    Connection.touched = touched
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apsw, "Connection", Connection)
        yield touched
