"""What SQLite makes of a plan: it reads by the bounds that are bound, and builds and sorts nothing that we did not plan.

Each SELECT that a store makes from a plan is explained by SQLite as it runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import apsw
import attrs
import pytest

from tablemapper.engines.sqlite.sql.select import Select
from tablemapper.planning.plan import Plan

from .judges import Differs

_MADE = ("statements", "lines", "keys", "counts", "merged", "partition", "next_partition")
"""The methods of a Select that make SQL."""
_BOUND = re.compile(r'([ti])\."(PartitionKey|RowKey)" (=|>=|<|IN) ')
_PLACES = re.compile(r'\((([ti])\."(?:PartitionKey|RowKey|_pk)"[^()]*)\) (>=|<=|>|<) \(\?')
_SEARCH = re.compile(r"SEARCH ([ti]) USING (?:COVERING )?(?:PRIMARY KEY|INDEX \S+) \((.*)\)$")


@attrs.define
class Explained:
    """What was explained so far."""

    plans: dict[str, Plan] = attrs.field(factory=dict)
    """Of which plan a SELECT was made."""
    seen: set[tuple[int, str]] = attrs.field(factory=set)
    ways: Counter[str] = attrs.field(factory=Counter)
    """How SQLite reads tables, without their names."""

    def note(self, plan: Plan, made: Any) -> None:
        """Note the SQL of a plan, wherever it stands in what was made."""
        if isinstance(made, str):
            if made.startswith("SELECT"):
                self.plans[made] = plan
        elif isinstance(made, tuple | list):
            for one in made:
                self.note(plan, one)

    def look(self, connection: apsw.Connection, sql: str, args: Any) -> None:
        """Compare what SQLite says of a SELECT with its plan, once for each connection.

        Raises:
            Differs
        """
        plan = self.plans.get(sql)
        if plan is None or (id(connection), sql) in self.seen:
            return
        self.seen.add((id(connection), sql))
        lines = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", args)]
        self.ways.update(lines)
        if faults := list(_faults(plan, sql, lines)):
            raise Differs(f"{plan.path}: {'; '.join(faults)}", "\n".join([*lines, sql]))


def _faults(plan: Plan, sql: str, lines: list[str]) -> Iterator[str]:
    if any("AUTOMATIC" in line for line in lines):
        yield "no index of SQLite's own"
    grouped = "GROUP BY" in sql  # (of totals, which have no order)
    if any("TEMP B-TREE" in line for line in lines) and not (plan.sorted or "DISTINCT" in sql or grouped):
        yield "no sort"
    if " IN ()" in sql:  # (nothing is in it, so nothing is read)
        return
    found: dict[str, set[str]] = {}
    for line in lines:
        if match := _SEARCH.match(line):
            found.setdefault(match[1], set()).update(match[2].split(" AND "))
    wanted: dict[str, set[str]] = {}
    for alias, column, op in _BOUND.findall(sql):
        wanted.setdefault(alias, set()).add(column + {"=": "=?", "IN": "=?", ">=": ">?", "<": "<?"}[op])
    for alias, bounds in wanted.items():
        if lacking := bounds - found.get(alias, set()):
            yield f"a search of {alias} by {' and '.join(sorted(lacking))}"
    for columns, alias, op in _PLACES.findall(sql):
        names = ",".join(re.findall(r'\."(\w+)"', columns))
        if alias == "i" and plan.index is not None and plan.index.unique:
            continue  # (the entities' keys are no part of its own)
        text = f"({names}){op[0]}(?{',?' * names.count(',')})" if "," in names else f"{names}{op[0]}?"
        if text not in found.get(alias, set()):
            yield f"a search of {alias} by {text}"


@contextmanager
def explaining() -> Iterator[Explained]:
    """Explain the SELECTs of plans of all stores that are opened inside.

    Raises:
        Differs: as they run.
    """
    explained = Explained()

    class Connection(apsw.Connection):
        def execute(self, statements: str, bindings: Any = None, **more: Any) -> Any:  # type: ignore[override]
            explained.look(self, statements, bindings)
            return super().execute(statements, bindings, **more)

    def noting(make: Callable[..., Any]) -> Callable[..., Any]:
        def each(select: Select, made: Iterator[Any]) -> Iterator[Any]:
            for one in made:
                explained.note(select.plan, one)
                yield one

        @wraps(make)
        def noted(select: Select, *args: Any, **options: Any) -> Any:
            made = make(select, *args, **options)
            explained.note(select.plan, made)
            return made if isinstance(made, str | tuple) else each(select, made)

        return noted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apsw, "Connection", Connection)
        for name in _MADE:
            patch.setattr(Select, name, noting(getattr(Select, name)))
        yield explained
