"""Random chains of migrations in an account: what a version finds is what the scripts make of what the one before wrote.

python -m tests.whole.account_chains --first 0 --last 100
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import tablemapper as tm
from tests.engines.azure.memory import Memory
from tests.engines.azure.place import AzurePlace

from .answers import Trial
from .chains import Chain, Drawn, Wrong, compare, main, played

_REFUSED = (
    "two definitions of one name",
    "call it so, as Azure Tables keep its rows by that name",
    "a type name cannot be set",
    "contract that first",
)


class AccountChain(Chain):
    """A store in an account, where the old version ends if a script copies."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        self.place: Any = AzurePlace(memory=Memory(), still=True)

    def go(self) -> None:
        """Migrate forth, and back at times, and write; compare all that can be read after each of that."""
        self._begin_log()
        self._fill()
        self._write_here(20)
        while self.at < len(self.changes):
            self._compare()
            to = self.draw.randrange(self.at + 1, len(self.changes) + 1) if self.draw.random() < 0.2 else self.at + 1
            self._rehearse(to)
            contract = self.draw.random() < 0.3
            with self._open(self.at) as before:
                report = self._migrate(to, contract=contract)
                self._arrive(to, [report])
                self._is_over(before, report)
            self.contracted = to if contract else self.contracted
            self._write_here(self.draw.randrange(5, 15))
            if self.draw.random() < 0.4:
                self._compare()
                self._back()
                self._write_here(self.draw.randrange(5))
        self._compare()

    def _back(self) -> None:
        to, change = self.at - 1, self.changes[self.at - 1]
        try:
            faults = self._migrate(to, dry_run=True).faults
        except tm.InvalidMigration as error:
            known = "cannot be undone", "a later version added it", "it was contracted"
            if not any(one in str(error) for one in known) or not self._is_refused(to, tm.InvalidMigration):
                raise
            self.counts["not undone"] += 1
            return
        if self.contracted >= self.at:
            raise Wrong("it went back over what was contracted")
        if faults:
            if not self._is_refused(to, tm.MigrationStopped):
                raise Wrong(f"only a dry run finds {faults}")
            self.counts["stopped on its way back"] += 1
            return
        with self._open(self.at) as before:
            report = self._migrate(to)
            self._is_over(before, report)
        if report.entities:
            made = change.back(self.data[self.at], self.data[to])
            if made is None:
                raise Wrong("it was undone, and nobody can tell what the entities were")
            self.data[to] = made
        for version in reversed(range(to)):
            self._follow_back(version)
        self.counts["undone, by a copy" if report.entities else "undone"] += 1
        self.log.append(f"{to} <-, {report.entities} copied")
        self.at = to
        self._compare()

    def _is_over(self, before: tm.Store, report: tm.reports.MigrationReport) -> None:
        """Check that a program of the version that was open does not write any more, if its classes were copied."""
        if not report.entities:
            return
        self.counts["copied"] += report.entities
        before._engine.current._looked = -1e9  # type: ignore[attr-defined]
        try:
            before._engine.classes  # type: ignore[attr-defined]  # noqa: B018
        except tm.SchemaMismatch:
            self.counts["ended"] += 1

    def _open(self, version: int) -> tm.Store:
        return tm.open(self.place, models=self.classes[version].models)

    def _migrate(self, to: int, *, path: Path | None = None, **options: Any) -> tm.reports.MigrationReport:
        return tm.migrate(self.place, self.scripts, to=f"s{to}" if to else "", **options)

    def _write_here(self, many: int) -> None:
        with self._open(self.at) as store:
            for _ in range(many):
                if refused := self._write(store, self.at):
                    raise Wrong(f"version {self.at} is refused: {refused}")

    def _by_key(self, trial: Trial) -> Drawn | None:
        found = super()._by_key(trial)
        # (What may be of several partitions is not possible.)
        return None if found is None or found[0] in ("transaction", "many", "move") else found

    def _compare(self) -> None:
        with self._open(self.at) as store:
            compare(store, self.classes[self.at], self.data[self.at], self.at)


def play_in_account(seed: int, folder: Path) -> Counter[str]:
    """Run one chain; return how often what happened.

    Raises:
        Wrong: with what happened before.
    """
    chain = AccountChain(seed, folder)
    try:
        return played(chain)
    except Wrong as wrong:
        cause = wrong.__cause__
        refused = isinstance(cause, tm.SchemaMismatch | tm.InvalidMigration) and any(
            one in str(cause) for one in _REFUSED
        )
        if not refused and not isinstance(cause, tm.InvalidModel):
            raise
        return Counter({"refused": 1})


if __name__ == "__main__":
    main(play_in_account)
