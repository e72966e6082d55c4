"""Random chains of migrations, forth and back, beside programs of every version that write, against plain dicts.

python -m tests.whole.chains --first 0 --last 100
"""

from __future__ import annotations

import argparse
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import tablemapper as tm

from ..stores import repaired
from .answers import Trial, random_rows
from .chain_steps import UNDECLARED, Change, Data
from .chain_worlds import Classes, Draw, Rows, Shape, random_value, random_world
from .changes import changed, cleaned
from .conditions import Compare, Null, Operand, Unless
from .deeds import Expected, random_writes
from .judges import Differs
from .kinds import INT
from .models import Record
from .oracle import Row, State
from .questions import Ask, Assignment, Question, random_assignment

RELAXED: dict[str, Any] = {"durability": "relaxed"}


class Wrong(Exception):
    """A store does not hold, or do, what it should."""


class Chain:
    """A store, the scripts that lead from each version to the next, and what each version should find.

    Attributes:
        at: the version that the store has come to.
        data: by version, its entities.
        promised: by version, what the plan said that it can do once the next one is there, as long as no later migration ends
            that: ``"writes"``, ``"reads"``, ``"stops"``.
        in_step: by version, whether the next one was undone, and goes on.
        stale: versions that were undone before an older one was made anew.
        contracted: the version before which there is no way back.
        unsure: versions before this one may find something else: what was written later has no way back to them.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.draw = Draw(seed)
        self.path = folder / f"{seed}.db"
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()
        self._make()
        self.at = self.contracted = self.unsure = 0
        self.data: dict[int, Data] = {0: {name: {} for name in self.classes[0].world}}
        self.in_step: dict[int, bool] = {}
        self.stale: set[int] = set()
        self.promised: dict[int, str] = {}

    def _make(self) -> None:
        self.changes: list[Change] = []
        self.scripts: list[Any] = []
        self.classes = [_classes(self.draw)]
        long = self.draw.choice([3, 4, 5])
        for _ in range(60):
            if len(self.changes) == long:
                return
            change = Change(self.draw, self.classes[-1].world)
            try:
                old, new = self.classes[-1], Classes(change.new)
                script = _script(len(self.scripts), change, old, new)
                if change.steps and tm.Migrations([*self.scripts, script]).ids:
                    self.changes.append(change)
                    self.classes.append(new)
                    self.scripts.append(script)
            except (tm.InvalidModel, tm.InvalidMigration):  # there can be no such classes, or the step cannot make them
                continue

    # ------------------------------------------------------------------------------------------ what is done

    def go(self) -> None:
        """Migrate forth and back, and write; compare all that can be read after each of that."""
        self._begin_log()
        self._fill()
        self._write_some(8)
        for _ in range(self.draw.randrange(5, 11)):
            self._compare_all()
            deeds = [self._forth, self._forth, self._forth, self._far, self._begin, self._back, self._contract]
            self.draw.choice(deeds)()
            if self.draw.wide.random() < 0.2:
                self._tidy()
            self._look_ahead()
            self._write_some(self.draw.randrange(3, 9))
        self._compare_all()
        if self.draw.late.random() < 0.4:
            self._begin_anew()

    def _begin_log(self) -> None:
        for number, change in enumerate(self.changes):
            self.log.append(f"s{number + 1}: " + "; ".join(step.text for step in change.steps))

    def _fill(self) -> None:
        """Write some entities of each class by the first version."""
        with self._open(0) as store:
            for record in self.classes[0].model.entities:
                for row in random_rows(self.draw, record, 16):
                    row = cleaned(record, row)
                    after = {**self.data[0][record.name], self.classes[0].world[record.name].ident_of(row): row}
                    if not any(self._clashes(0, {record.name: after})):
                        store.upsert(self.classes[0].make(record.name, row))
                        self._note(0, record.name, after)

    def _begin_anew(self) -> None:
        """Drop every class, contract that, and go on with others in the same file."""
        old = self.classes[self.at].models

        def end(m: tm.Migration) -> None:
            for cls in old:
                m.drop(cls)

        scripts = [
            *self.scripts[: self.at],
            tm.migration(after=f"s{self.at}" if self.at else None, old=old, new=[])(end),
        ]
        try:
            tm.migrate(self.path, scripts, contract=True, rest=0, **RELAXED)
        except tm.InvalidMigration as error:  # what a version after this one has added is not named
            self.counts["refused to drop all"] += 1
            if "the store differs from old=" not in str(error):
                raise
            return
        self.counts["begun anew"] += 1
        classes = _classes(self.draw)
        while any(form == one.form.get(name) for one in self.classes for name, form in classes.form.items()):
            classes = _classes(self.draw)  # (what was dropped is not declared again)
        with tm.open(self.path, models=classes.models, **RELAXED) as store:
            data: Data = {name: {} for name in classes.world}
            for name, shape in classes.world.items():
                row = {field: random_value(self.draw.late, kind) for field, kind in shape.fields.items()}
                store.upsert(classes.make(name, row))
                data[name][shape.ident_of(row)] = row
            compare(store, classes, data, -1)

    def _open(self, version: int) -> tm.Store:
        return tm.open(self.path, models=self.classes[version].models, migrations=self.scripts, **RELAXED)

    def _migrate(self, to: int, *, path: Path | None = None, **options: Any) -> tm.reports.MigrationReport:
        return tm.migrate(path or self.path, self.scripts, to=f"s{to}" if to else "", rest=0, **RELAXED, **options)

    def _forth(self) -> None:
        if self.at < len(self.changes):
            self._rehearse(self.at + 1)
            self._arrive(self.at + 1, [self._migrate(self.at + 1)])

    def _far(self) -> None:
        if self.at < len(self.changes) and self.at + 1 not in self.data:
            to = self.draw.randrange(self.at + 1, len(self.changes) + 1)
            self._rehearse(to)
            self._arrive(to, [self._migrate(to)])

    def _begin(self) -> None:
        """Copy a part, write, and go on or give it up."""
        if self.at == len(self.changes):
            return
        self._rehearse(self.at + 1)
        reports = [self._migrate(self.at + 1, limit=self.draw.randrange(1, 9))]
        if not reports[0].done:
            self.log.append(f"{self.at} -> {self.at + 1} begun")
            with self._open(self.at) as store:
                for _ in range(6):
                    if refused := self._write(store, self.at):
                        raise Wrong(f"refused while a migration copies: {refused}")
                compare(store, self.classes[self.at], self.data[self.at], self.at)
            if self.draw.random() < 0.5:
                self._migrate(self.at)
                self.counts["given up"] += 1
                return
            reports.append(self._migrate(self.at + 1))
        self._arrive(self.at + 1, reports)

    def _rehearse(self, to: int) -> None:
        if not (report := self._migrate(to, dry_run=True)).ok:
            raise Wrong(f"a dry run: {report.faults}")

    def _arrive(self, to: int, reports: list[tm.reports.MigrationReport]) -> None:
        """Note what the entities are after a migration forth."""
        copied = sum(report.entities for report in reports)
        steps = [step for report in reports for step in report.plan]
        for version in range(self.at, to):
            change = self.changes[version]
            levels = {step.old_version for step in steps if step.migration == f"s{version + 1}"}
            if not change.is_edit:
                self.promised = {}
            level = "writes" if levels <= {"writes"} else "stops" if "stops" in levels else "reads"
            self.promised[version] = level
            if version + 1 not in self.data or copied or not self.in_step.get(version):
                self._renew(version)
                self.stale |= {later for later in self.data if later > version + 1}
            self.at = version + 1
            self.log.append(f"-> {self.at}, {level}, {copied} copied")
            self.counts.update(step.text.split()[0] for step in change.steps)
            for shape, index, apart in change.resolved:
                self._resolve(shape, index, apart)

    def _renew(self, version: int) -> None:
        """Note what the next version finds of what this one has; what it has more of unchanged classes stays."""
        change, before = self.changes[version], self.data.get(version + 1)
        self.stale.discard(version + 1)
        self.data[version + 1] = change.forward(self.data[version])
        for name, link in change.links.items() if before is not None else ():
            if not change.changed(name) and not change.keeper_changed(name):
                was, shape = before[link.new], change.new[link.new]  # type: ignore[index]
                made = [
                    change.row_forward(link, row, was.get(shape.ident_of(row)))
                    for row in self.data[version][name].values()
                ]
                self.data[version + 1][link.new] = {shape.ident_of(row): row for row in made}

    def _resolve(self, shape: Shape, index: str, apart: Callable[[list[Row]], list[Row]]) -> None:
        rows = self.data[self.at][shape.name]
        held: dict[Any, list[Row]] = {}
        for row in rows.values():
            for value in self.classes[self.at].held(shape.name, index, row):
                held.setdefault(value, []).append(row)
        after = dict(rows)
        for some in held.values():
            if len(some) > 1:
                self.counts["values that were held twice"] += 1
                keys = {shape.ident_of(row): self.classes[self.at].make(shape.name, row).key for row in some}
                some.sort(key=lambda row: (keys[shape.ident_of(row)].partition, keys[shape.ident_of(row)].row))
                for row in some:
                    del after[shape.ident_of(row)]
                after |= {shape.ident_of(row): row for row in apart(some)}
        self._note(self.at, shape.name, after)

    def _back(self) -> None:
        if not self.at:
            return
        self._back_at_once()
        to, change = self.at - 1, self.changes[self.at - 1]
        try:
            faults = self._migrate(to, dry_run=True).faults
        except tm.InvalidMigration as error:
            if self.contracted < self.at and "cannot be undone" not in str(error):
                raise
            self.counts["refused to go back before a field"] += "a later version added it" in str(error)
            if not self._is_refused(to, tm.InvalidMigration):
                raise Wrong(f"only a dry run refuses the way back: {error}") from error
            return
        if self.contracted >= self.at:
            raise Wrong("it went back over what was contracted")
        if faults and not self._mended(to, faults):
            return
        report = self._migrate(to)
        self.counts["undone"] += 1
        levels = sorted({step.old_version for step in report.plan})
        self.log.append(f"{to} <-, {', '.join(levels)}, {report.entities} copied")
        if report.entities:
            made = change.back(self.data[self.at], self.data[to])
            if made is None:
                raise Wrong("it was undone, and nobody can tell what the entities were")
            self.data[to] = made
            for version in reversed(range(to)):
                self._follow_back(version)
        self.at = to
        self.promised = {version: level for version, level in self.promised.items() if version < to}
        if refused := self._look_ahead() if "stops" not in levels else "":
            raise Wrong(f"version {to + 1} cannot be opened once it was undone, though it {levels}: {refused}")

    def _is_refused(self, to: int, error: type[tm.TableMapperError]) -> bool:
        try:
            self._migrate(to)
        except error:
            return True
        return False

    def _mended(self, to: int, faults: tuple[tm.reports.ConversionFault, ...]) -> bool:
        """Return whether what keeps the last script from being undone is no more: it is deleted, or the undoing given up."""
        lost = self._lost(to)
        if not lost:
            made = self.changes[to].back(self.data[self.at], self.data[to])
            if held_twice(self.classes[to], self.data[to]) or (made and held_twice(self.classes[to], made)):
                self.counts["held twice before"] += 1
                return False
            raise Wrong(f"all could go back: {faults}")
        if unexpected := [fault for fault in faults if (fault.where, fault.key) not in lost]:
            raise Wrong(f"these could go back: {unexpected}")
        before = tm.status(self.path).history
        if not self._is_refused(to, tm.MigrationStopped) or tm.status(self.path).history != before:
            raise Wrong("only a dry run finds what cannot go back, or it switched")
        self.counts["stopped on its way back"] += 1
        with self._open(self.at) as store:
            compare(store, self.classes[self.at], self.data[self.at], self.at)
            if self.draw.random() < 0.5:
                for (name, _), (row, is_first) in lost.items():
                    if not is_first:
                        rows = self.data[self.at][name]
                        ident = self.classes[self.at].world[name].ident_of(row)
                        store.delete(self.classes[self.at].make(name, row).key)
                        self._note(self.at, name, {at: one for at, one in rows.items() if at != ident})
                return True
        self._migrate(self.at)
        return False

    def _lost(self, to: int) -> dict[tuple[str, tuple[str, str]], tuple[Row, bool]]:
        """Return the entities that cannot go back, by class and key: each with whether it could if the others were not."""
        change, lost = self.changes[to], {}
        for name, link in change.links.items():
            if name in change.rewritten:
                continue
            groups: dict[tuple[Any, ...], list[Row]] = {}
            for row in self.data[self.at][link.new].values():
                groups.setdefault(change.key_back(link, row), []).append(row)
            for key, rows in groups.items():
                lacking = change.row_back(link, rows[0], self.data[to][name].get(key)) is None
                for number, row in enumerate(rows if lacking or len(rows) > 1 else ()):
                    where = self.classes[self.at].make(link.new, row).key
                    lost[link.new, (where.partition, where.row)] = row, not lacking and number == 0
        return lost

    def _look_ahead(self) -> str:
        """Note which of the versions that were undone go on; return why the next one is refused."""
        going_on, refused = True, ""
        for version in range(self.at, len(self.changes)):
            if going_on and version + 1 in self.data:
                try:
                    self._open(version + 1).close()
                    going_on = not any(self._alike(one, version + 1) for one in range(self.at, version + 1))
                except tm.SchemaMismatch as error:
                    going_on, refused = False, refused or (str(error) if version == self.at else "")
            self.in_step[version] = going_on and version + 1 in self.data
            if self.in_step[version] and version + 1 in self.stale:
                self._renew(version)
        return refused

    def _back_at_once(self) -> None:
        """Go back over two scripts in copies of the store: at once it leads where it does one by one, or writes nothing."""
        to = self.at - 2
        if to < 0:
            return
        results = []
        for ways in ([to], [self.at - 1, to]):
            with tempfile.TemporaryDirectory(prefix="chains") as folder:
                copy = Path(folder) / "copy.db"
                with self._open(self.at) as store:
                    store.backup(copy)
                before = tm.status(copy)
                try:
                    for way in ways:
                        self._migrate(way, path=copy)
                except (tm.InvalidMigration, tm.MigrationStopped) as error:
                    results.append(type(error))
                    if ways == [to] and isinstance(error, tm.InvalidMigration) and tm.status(copy) != before:
                        raise Wrong(f"it went back over one script, and was refused for another: {error}") from error
                    continue
                with tm.open(copy, models=self.classes[to].models, migrations=self.scripts, **RELAXED) as store:
                    if not (report := store.check()).ok:
                        raise Wrong(f"after going back over two scripts: {report}")
                    found = [store.query(cls).allow_scan() for cls in self.classes[to].models]
                    results.append([sorted(map(repr, some)) for some in found])
        if results[0] != results[1] and list in map(type, results):
            raise Wrong(f"going back over two scripts at once gives {results[0]}, and one by one {results[1]}")
        self.counts["went back over two scripts at once"] += isinstance(results[0], list)

    def _follow_back(self, version: int) -> None:
        """Note what an older version finds of the classes that it shares with the next one."""
        change = self.changes[version]
        for name, link in change.links.items():
            if name not in change.rewritten and (change.is_edit or not change.changed(name)):
                former, shape = self.data[version][name], change.old[name]
                made = []
                for row in self.data[version + 1][link.new].values():
                    made.append(change.row_back(link, row, former.get(change.key_back(link, row))))
                if None not in made:
                    self.data[version][name] = {shape.ident_of(row): row for row in made if row is not None}

    def _contract(self) -> None:
        if self.at:
            self._migrate(self.at, contract=True)
            self.contracted = self.at
            self.log.append(f"{self.at} contracted")
            self.counts["contracted"] += 1

    def _tidy(self) -> None:
        """Repair what needs no repair, and give back space."""
        with self._open(self.at) as store:
            if not (report := repaired(store)).ok or report.repaired:
                raise Wrong(f"there was something to repair: {report}")
            store.compact()
        self.counts["tidied"] += 1

    # ------------------------------------------------------------------------------------------ what is written

    def _write_some(self, many: int) -> None:
        """Write by any of the versions that can be opened."""
        with ExitStack() as stack:
            stores = {self.at: stack.enter_context(self._open(self.at))}
            for version in range(self.at):
                if not self._may_differ(version):
                    try:
                        stores[version] = stack.enter_context(self._open(version))
                    except tm.SchemaMismatch:
                        continue
            for version in range(self.at, len(self.changes)):
                if self.in_step.get(version):
                    stores[version + 1] = stack.enter_context(self._open(version + 1))
            for _ in range(many):
                version = self.draw.choice([self.at, self.at, *stores])
                refused = self._write(stores[version], version)
                if refused and (version == self.at or self.promised.get(version) == "writes"):
                    raise Wrong(f"version {version} of {self.at} is refused: {refused}")

    def _write(self, store: tm.Store, version: int) -> str:
        """Write something by one version; return why it was refused."""
        trial = self._trial(store, version)
        drawn = self._by_query(trial) if self.draw.random() < 0.15 else self._by_key(trial)
        if drawn is None:
            return ""
        verb, names, expected, run = drawn
        after = {name: self._rows(version, expected.after, name) for name in names}
        errors = expected.errors - {tm.UniqueViolation}
        must, may = ([], []) if errors else self._clashes(version, after)
        if may and verb in ("many", "update where", "delete where"):  # (some of it would be done)
            return ""
        self.log.append(f"  version {version} writes {', '.join(sorted(names))}: {verb}")
        answer = run()
        self.counts["write"] += 1
        if isinstance(answer, tm.SchemaMismatch):
            return str(answer)
        if errors:
            if type(answer) not in expected.errors:
                raise Wrong(f"{verb}: {answer!r}, not {errors}")
        elif isinstance(answer, Exception):  # (the old version that still reads may hold it twice)
            if not may or tm.UniqueViolation not in (type(answer), type(answer.__cause__)):
                raise Wrong(f"{verb}: nothing is held twice, and {answer!r}") from answer
            self.counts["refused as held twice"] += 1
        elif must:
            raise Wrong(f"{names} have values twice that are to be unique: {must}")
        else:
            for name, rows in after.items():
                self._note(version, name, rows)
        return ""

    def _trial(self, store: tm.Store, version: int) -> Trial:
        """Return a store with what it should hold."""
        classes = self.classes[version]
        trial = Trial(store, classes.names, State(classes.model))
        for name, rows in self.data[version].items():
            for row in rows.values():
                trial.state.put(name, cleaned(classes.model.record(name), row))
        return trial

    def _rows(self, version: int, state: State, name: str) -> Rows:
        return {self.classes[version].world[name].ident_of(row): row for row in state.written(name)}

    def _by_key(self, trial: Trial) -> Drawn | None:
        """Draw writes by key; none that writes before it is refused."""
        writes = random_writes(self.draw, trial.state, _fits)
        if writes is None or any(one.verb == "stale" for one in writes.writes):
            return None
        if any("delete" in one.verb for one in writes.writes) and self.draw.random() < 0.8:  # (so that there are many)
            return None
        names = {one.of for one in writes.writes}
        text = writes.text(trial.state.model)
        return writes.verb, names, writes.expected(trial.state), lambda: trial.run(text)

    def _by_query(self, trial: Trial) -> Drawn | None:
        """Draw an update or a deletion of all that have one value."""
        record = self.draw.choice(trial.state.model.entities)
        compared = self.draw.choice([one for one in record.own if one.kind.specs and not one.kind.precision])
        condition = Compare(Operand(compared.name, compared.kind), "==", self.draw.choice(compared.pool))
        question = Question((record.name,), where=((record.name, condition),))
        assignment = random_assignment(self.draw, record) if self.draw.random() < 0.7 else None
        if assignment is not None and not _fits(record, assignment):
            return None
        after = trial.state.copy()
        for _, row in trial.matches(question):
            if assignment is None:
                after.remove(record.name, row)
            elif (made := changed(record, row, assignment)) is not None:
                after.put(record.name, made)
            else:
                return None
        ask = Ask("delete" if assignment is None else "update", assignment=assignment)
        expected = Expected(trial.state, after, set())
        run = lambda: trial.run(ask.text(record.name), q=trial.run(question.text()))  # noqa: E731
        return f"{ask.verb} where", {record.name}, expected, run

    def _clashes(self, version: int, after: Data) -> tuple[list[str], list[str]]:
        """Return the unique values that would be held twice: as the writer or the newest version sees it, and as any does."""
        saved = {at: dict(data) for at, data in self.data.items()}, self.unsure
        for name, rows in after.items():
            self._note(version, name, rows)
        found = {at: held_twice(self.classes[at], data) for at, data in self.data.items()}
        self.data, self.unsure = saved
        return found[version] or found[self.at], [one for some in found.values() for one in some]

    def _note(self, version: int, name: str, after: Rows) -> None:
        """Note the entities of a class after a write of one version, for all versions."""
        before = self.data[version][name]
        self.data[version][name] = after
        self._note_forth(version, name, before, after)
        self._note_back(version, name, before, after)

    def _note_forth(self, version: int, name: str, before: Rows, after: Rows) -> None:
        while version < self.at or self._in_step(version, name):
            change = self.changes[version]
            link = change.links.get(name)
            if name in change.rewritten:
                raise Wrong(f"a version that had ended wrote {name}")
            if link is None:  # (it was dropped, and this version goes on with it)
                return
            shape, was = change.new[link.new], self.data[version + 1][link.new]
            now = dict(was)
            keys = _changed(before, after)
            for key in keys - after.keys():
                now.pop(shape.ident_of(change.row_forward(link, before[key])), None)
            for key in keys & after.keys():
                made = shape.ident_of(change.row_forward(link, after[key]))
                now[made] = change.row_forward(link, after[key], was.get(made))
            self.data[version + 1][link.new] = now
            version, name, before, after = version + 1, link.new, was, now

    def _in_step(self, version: int, name: str) -> bool:
        """Whether the next version was undone, and is kept in step."""
        if version + 1 not in self.data or version < self.contracted:
            return False
        return self.in_step.get(version, False) or not self.changes[version].changed(name)

    def _note_back(self, version: int, name: str, before: Rows, after: Rows) -> None:
        while version:
            change = self.changes[version - 1]
            link = change.link_of(name)
            if link is None or link.old in change.rewritten:
                return
            shape, was = change.old[link.old], self.data[version - 1][link.old]
            now = dict(was)
            for key in (keys := _changed(before, after)) - after.keys():
                now.pop(change.key_back(link, before[key]) if _leads_back(change, link, before[key]) else (), None)
            for key in keys & after.keys():
                row = after[key]
                former = was.get(change.key_back(link, row)) if _leads_back(change, link, row) else None
                made = change.row_back(link, row, former)
                if made is None:
                    if self.promised.get(version - 1) in ("reads", "writes"):
                        self.unsure = max(self.unsure, version)
                    return
                now[shape.ident_of(made)] = made
            self.data[version - 1][link.old] = now
            version, name, before, after = version - 1, link.old, was, now

    # ------------------------------------------------------------------------------------------ what is found

    def _may_differ(self, version: int) -> bool:
        """Whether a version before this one may find something else than is noted of it."""
        rewritten = any(self.changes[at].rewritten for at in range(version, self.at))
        alike = any(self._alike(version, later) for later in range(version + 1, self.at + 1))
        return self.unsure > version or rewritten or alike

    def _alike(self, version: int, later: int) -> bool:
        """Whether a class is another one in a later version, and nobody can tell the two apart."""
        old, new = self.classes[version], self.classes[later]
        return any(
            _form(old, name) == _form(new, name)
            and any(self.changes[at].reshaped(name) for at in range(version, later))
            for name in old.world.keys() & new.world.keys()
        )

    def _compare_all(self) -> None:
        with self._open(self.at) as store:
            compare(store, self.classes[self.at], self.data[self.at], self.at)
        for version in range(self.at):
            try:
                store = self._open(version)
            except tm.SchemaMismatch as error:
                if "when it held no entities" in str(error):
                    self.promised.pop(version, None)
                elif self.promised.get(version) in ("writes", "reads") and self.contracted <= version:
                    raise Wrong(
                        f"version {version} cannot be opened, though it {self.promised[version]}: {error}"
                    ) from error
                continue
            with store:
                if not self._may_differ(version):
                    compare(store, self.classes[version], self.data[version], version)
        for version in range(self.at, len(self.changes)):
            if self.in_step.get(version):
                with self._open(version + 1) as store:
                    compare(store, self.classes[version + 1], self.data[version + 1], version + 1)


Drawn = tuple[str, set[str], Expected, Callable[[], Any]]
"""A write: how, to which classes, what is to come of it, and what does it."""


def _fits(record: Record, assignment: Assignment) -> bool:
    """Return whether the steps of scripts know what becomes of a field so: digits stay digits."""
    return assignment.verb == "set" or record.field(assignment.field).kind is INT


def _classes(draw: Draw) -> Classes:
    while True:
        try:
            return Classes(random_world(draw))
        except tm.InvalidModel:
            continue


def _script(number: int, change: Change, old: Classes, new: Classes) -> Any:
    def function(m: tm.Migration) -> None:
        for step in change.steps:
            step.call(m, old, new)

    function.__name__ = f"s{number + 1}"
    return tm.migration(after=f"s{number}" if number else None, old=old.models, new=new.models)(function)


def _form(classes: Classes, name: str) -> Any:
    return classes.form.get(name)


def _leads_back(change: Change, link: Any, row: Row) -> bool:
    try:
        change.key_back(link, row)
    except (TypeError, ValueError, ArithmeticError):
        return False
    return True


def _changed(before: Rows, after: Rows) -> set[tuple[Any, ...]]:
    return {key for key in before.keys() | after.keys() if shown(before.get(key)) != shown(after.get(key))}


def held_twice(classes: Classes, data: Data) -> list[str]:
    found = []
    for name, shape in classes.world.items():
        for called, index in shape.indexes.items():
            if not index.unique:
                continue
            values = Counter(value for row in data[name].values() for value in classes.held(name, called, row))
            found += [f"{name}.{called}: {value}" for value, count in values.items() if count > 1]
    return found


def shown(value: Any) -> str:
    """Return a value as text: equal ones, and only these, have the same; no zero has a sign."""
    if isinstance(value, Decimal):
        return f"{value.normalize() + 0:f}"
    if isinstance(value, float):
        return repr(value + 0)
    if isinstance(value, tm.Extra):  # (what was declared once may be among the undeclared)
        return repr(sorted((name, one) for name, one in value.items() if name in UNDECLARED))
    if isinstance(value, dict):
        return repr({name: shown(one) for name, one in value.items()})
    return repr(value)


def compare(store: tm.Store, classes: Classes, data: Data, version: int) -> None:
    """Compare all that a version finds with what it should find."""
    for name, shape in classes.world.items():
        rows = data[name]
        found = {
            tuple(getattr(entity, field) for field in shape.ident): entity
            for entity in store.query(classes.by_name[name]).allow_scan()
        }
        if found.keys() != rows.keys():
            raise Wrong(
                f"version {version}, {name}: missing {rows.keys() - found.keys()}, more {found.keys() - rows.keys()}"
            )
        for key, entity in found.items():
            for field in shape.fields:
                if shown(getattr(entity, field)) != shown(rows[key][field]):
                    raise Wrong(
                        f"version {version}, {name} {key}: {field} is {getattr(entity, field)!r}, not {rows[key][field]!r}"
                    )
    try:
        _compare_maintained(store, classes, version)
    except Differs as differs:
        raise Wrong(f"version {version}: {differs}") from differs


def _compare_maintained(store: tm.Store, classes: Classes, version: int) -> None:
    """Compare all that is maintained with what the entities make of it, whichever way it is read.

    Raises:
        Differs
    """
    trial = Trial(store, classes.names, State(classes.model))
    trial.take_over()
    trial.compare_all()
    trial.compare_indexes()
    trial.compare_keys()
    for record in classes.model.records:
        if record.of is not None:
            trial.ask(Question((record.name,)), Ask("pages", size=2))
            for question, ask in _asked(record, classes.model.record(record.of)):
                trial.ask(question, ask)


def _asked(total: Record, of: Record) -> Iterator[tuple[Question, Ask]]:
    """Yield questions that an aggregate may answer."""
    groups, *_ = [[one.operand for one in total.measures.values() if one.verb == "group_by"]]
    if any(one.cut == "each" for one in groups):
        return
    where = [Unless(Null(Operand(one.field, one.kind))) for one in groups if of.field(one.field).optional]
    conditions = [(of.name, one) for one in [*where, *([] if total.where is None else [total.where])]]
    for measure in total.measures.values():
        if measure.verb not in ("sum", "avg", "min", "max") and (
            measure.verb != "count" or measure.operand is not None
        ):
            continue
        own = [] if measure.where is None else [(of.name, measure.where)]
        question = Question((of.name,), where=(*conditions, *own))
        measured = () if measure.operand is None else (measure.operand,)
        yield question, Ask("total", measured, measure.verb) if measured else Ask("count")
        yield question, Ask("groups", (*measured, *groups), measure.verb)


def play(seed: int, folder: Path) -> Counter[str]:
    """Run one chain; return how often what happened.

    Raises:
        Wrong: with what happened before.
    """
    return played(Chain(seed, folder))


def played(chain: Chain) -> Counter[str]:
    """Let a chain go; return how often what happened.

    Raises:
        Wrong: with what happened before.
    """
    try:
        chain.go()
    except (Wrong, tm.TableMapperError, AssertionError, TypeError, ValueError, LookupError) as error:
        text = "\n".join([*chain.log, traceback.format_exc()])
        raise Wrong(f"chain {chain.seed}: {type(error).__name__}: {error}\n{text}") from error
    return chain.counts


def main(play: Callable[[int, Path], Counter[str]]) -> None:
    """Run the chains that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=100)
    options = parser.parse_args()
    total: Counter[str] = Counter()
    wrong = 0
    for seed in range(options.first, options.last):
        with tempfile.TemporaryDirectory(prefix="chains") as folder:
            try:
                total += play(seed, Path(folder))
            except Wrong as error:
                wrong += 1
                print(error, flush=True)
    print(f"{options.last - options.first} chains, {wrong} wrong: {dict(total)}", flush=True)


if __name__ == "__main__":
    main(play)
