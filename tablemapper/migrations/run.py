"""Running scripts over a store, beside those that write to it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from ..engines.migration import Copied, Fault, MigrationEngine, Transition, WayBack, name_of
from ..engines.opening import open_engine, open_migrations
from ..entities.entity import stored_row
from ..errors import InvalidEntity, InvalidMigration, MigrationStopped, StoreFull, shown
from ..progress import ProgressOption, start_meter
from ..schema.forms import AppliedForm
from ..schema.model import compile_schema
from ..store.builds import FIRST, HOLD, REST, build, check_pace, steered
from ..store.store import Store
from .migrations import ScriptsOption, scripts_of, ways_back
from .plan import check_old, edit_of, matches, plan_steps, transition_of
from .report import MigrationReport, PlanStep
from .script import Script
from .steps import Resolve
from .undoing import undoing

__all__ = ["migrate"]

_CLEARED = 5_000  # rows that are deleted in one transaction, once a migration is done
_ROUNDS = 3  # transactions after which one may take longer, so that writers who never pause cannot hold up the switch
_LONGER = 10
_SHOWN = 20
_LISTED = 10_000  # values that are held twice, in a report


def migrate(
    place: str | os.PathLike[str],
    migrations: ScriptsOption,
    *,
    to: str | None = None,
    dry_run: bool = False,
    contract: bool = False,
    limit: int | None = None,
    progress: ProgressOption = False,
    hold: float = HOLD,
    rest: float = REST,
    durability: Literal["full", "relaxed"] = "full",
    timeout: float = 5.0,
) -> MigrationReport:
    """Run the migration scripts that have not run on a store, in order, while other programs read and write.

    It copies entities in short transactions, while other programs write as before. Each script ends with one transaction
    that switches to the new tables. If a run is killed, nothing is lost: the next run continues.

    Args:
        place: the path of the store.
        migrations: a `Migrations`, the name of its package, or the decorated functions.
        to: the id of the last script to run. If the store is past it, the scripts after it are undone; ``""`` undoes all.
            An unfinished run of another script is abandoned.
        dry_run: change nothing, and run every function over every entity of one state of the store, in a copy of it. The
            copy is made in the folder for temporary files, which TMPDIR names; it needs room for what the scripts make, too.
        contract: also drop what only the old classes need. The scripts cannot be undone then.
        limit: how many entities this call copies at most; the next call continues.
        progress: True for a bar, or a function.
        hold: the length of a transaction in seconds; other writers wait no longer.
        rest: the pause after each transaction while others write, as a multiple of its length.
        durability: as for `tablemapper.open`.
        timeout: seconds to wait for another process that writes.

    Raises:
        InvalidMigration: the scripts do not fit the store, or each other; nothing was changed for the one that does not.
        MigrationStopped: some entities cannot be converted. All others are; the store has not switched.
        InvalidQuery: an argument is not a number from 0 on.
        StoreError: there is no store, or it cannot be used.
    """
    limit = check_pace("migrate", limit, hold, rest)
    scripts = scripts_of(migrations)
    if to is not None and to not in ("", *(script.id for script in scripts)):
        raise InvalidMigration(
            "to=",
            [
                f"no script is called {shown(to)}; name one of {', '.join(script.id for script in scripts)}, or '' to undo all"
            ],
        )
    if dry_run:
        return _rehearse(place, scripts, to, limit, progress, timeout)
    engine = open_migrations(place, durability=durability, timeout=timeout)
    try:
        ways = ways_back(migrations)

        def settle(script: Script) -> tuple[Fault, ...]:
            _build_new(place, script, durability, timeout, hold, rest)
            return _resolved(place, script, durability, timeout, ways)

        run = _Run(engine, scripts, limit, progress, hold, rest, settle)
        report = run.to(to)
        if contract and report.done:
            for entry in engine.history():
                done = entry.contracted and not entry.kept and not entry.drops
                if entry.switched and not done and entry.undone is None:
                    engine.contract(entry.id)
                    report = attrs.evolve(report, contracted=(*report.contracted, entry.id))
            engine.drop_former()
    finally:
        engine.close()
    if report.done and run.last is not None and run.last.new and (faults := settle(run.last)):
        raise _stopped(run.last.id, attrs.evolve(report, done=False, faults=faults))
    return report


def _rehearse(
    place: str | os.PathLike[str],
    scripts: Sequence[Script],
    to: str | None,
    limit: int | None,
    progress: ProgressOption,
    timeout: float,
) -> MigrationReport:
    """Run the scripts over a copy."""
    with tempfile.TemporaryDirectory(prefix="tablemapper") as folder:
        _check_room(place, folder)
        copy = Path(folder) / "copy.db"
        engine = open_migrations(place, timeout=timeout)
        try:
            engine.backup(str(copy))
        finally:
            engine.close()
        engine = open_migrations(copy, durability="relaxed")

        def settle(script: Script) -> tuple[Fault, ...]:
            _build_new(copy, script, "relaxed", timeout, 1.0, 0.0)
            return _resolved(copy, script, "relaxed", timeout, ())

        try:
            run = _Run(engine, scripts, limit, progress, 1.0, 0.0, settle)
            report = run.to(to)
        except MigrationStopped as stopped:
            stopped_report: MigrationReport = stopped.report
            return attrs.evolve(stopped_report, applied=())
        finally:
            engine.close()
        last = run.last if report.done else None
        if last is not None and last.new and (faults := settle(last) or _held_twice(copy, last)):
            report = attrs.evolve(report, done=False, faults=faults)
        return attrs.evolve(report, applied=())


def _check_room(place: str | os.PathLike[str], folder: str) -> None:
    """Raise StoreFull if a copy of a store has no room in a folder."""
    needed = sum(file.stat().st_size for end in ("", "-wal") if (file := Path(f"{os.fspath(place)}{end}")).exists())
    if (free := shutil.disk_usage(folder).free) < needed:
        raise StoreFull(
            f'a dry run copies the store, and "{os.path.dirname(folder)}" has no room: {needed:,} bytes are needed, and '
            f"{free:,} are free; name a folder with more of it in the environment variable TMPDIR"
        )


class _Run:
    """One run over one store."""

    def __init__(
        self,
        engine: MigrationEngine,
        scripts: Sequence[Script],
        limit: int | None,
        progress: ProgressOption,
        hold: float,
        rest: float,
        settle: Callable[[Script], tuple[Fault, ...]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._engine = engine
        self._scripts = scripts
        self._limit = limit
        self._progress = progress
        self._hold = hold
        self._rest = rest
        self._settle = settle
        """Builds what a script comes to, and makes entities differ as it says; returns those that do not."""
        self._monotonic = monotonic
        self._sleep = sleep
        self._start = monotonic()
        self._plan: list[PlanStep] = []
        self._applied: list[str] = []
        self._entities = 0
        self.last: Script | None = None
        """The script that was run last, from old to new, also if that was to undo one."""

    def to(self, target: str | None) -> MigrationReport:
        """Migrate forth or back."""
        done = check_history(self._scripts, self._engine.history())
        ids = [script.id for script in self._scripts]
        end = len(ids) if target is None else ids.index(target) + 1 if target else 0
        if end < done:
            ahead = [(script, True) for script in reversed(self._scripts[end:done])]
            undone = {script.id: undoing(script) for script, _ in ahead}
            for entry in self._engine.history():
                if entry.id in undone and entry.contracted and entry.undone is None:
                    raise InvalidMigration(
                        entry.id, ["it was contracted: the old tables are gone, so it cannot be undone"]
                    )
            ahead = [(undone[script.id], True) for script, _ in ahead]
        else:
            done = self._adopted(done, end)
            if done == end and done and _resolves(self._scripts[done - 1]):
                self.last = self._scripts[done - 1]  # it may have been killed before that step
            ahead = [(script, False) for script in self._scripts[done:end]]
        if done and any(not back for _, back in ahead):
            self._resolve(self._scripts[done - 1])  # it may have been killed before that step
        self._give_up(ahead, named=target is not None)
        self._clear()  # what a run has left that was killed at its end: bit by bit, as who begins clears all at once
        self._plan += plan_steps(ahead, self._engine.forms(), self._count)
        for at, (script, back) in enumerate(ahead):
            if not self._one(script, back=back):
                return self._report(done=False)
            if at + 1 < len(ahead) and script.new:
                self._engine.take_over(compile_schema(script.new))  # what no step says, and the next script finds
                if not back:
                    self._resolve(script)
        self._clear()
        return self._report(done=True)

    def _resolve(self, script: Script) -> None:
        """Let entities differ as a script says, before the next one begins."""
        if _resolves(script) and (faults := self._settle(script)):
            raise _stopped(script.id, attrs.evolve(self._report(done=False), faults=faults))

    def _clear(self) -> None:
        while self._engine.clear(_CLEARED):
            pass

    def _give_up(self, ahead: Sequence[tuple[Script, bool]], *, named: bool) -> None:
        """Discard the copy of a migration that was begun, if it is not the one that comes now.

        Raises:
            InvalidMigration: nobody said where to go instead: a program of another version may copy just now.
        """
        name = self._engine.under_way()
        if name is None or [name] == [name_of(script.id, back=back) for script, back in ahead[:1]]:
            return
        if not named:
            *_, last = [script.id for script in self._scripts]
            raise InvalidMigration(
                ahead[0][0].id if ahead else last,
                [f"{name} has not finished; run it to its end first, or abandon it, as in to={last!r}"],
            )
        self._engine.discard(name)

    def _count(self, name: str) -> int:
        return self._engine.count(name)

    def _report(self, *, done: bool) -> MigrationReport:
        faults = tuple(self._engine.faults.values())
        return MigrationReport(
            done, tuple(self._plan), tuple(self._applied), self._entities, self._monotonic() - self._start, faults
        )

    def _adopted(self, done: int, end: int) -> int:
        """Note scripts as done that a store was never as they find it, since it was made later; return how many are done."""
        if done == end or self._running(self._scripts[done]):
            return done
        forms = self._engine.forms()
        if matches(self._scripts[done].old, forms):
            return done
        later = [at for at in range(done, end) if self._scripts[at].new and matches(self._scripts[at].new, forms)]
        if forms and not later:
            return done  # what differs is said where it is begun
        to = later[-1] + 1 if later else end
        self._engine.adopt([(script.id, script.digest) for script in self._scripts[done:to]])
        return to

    def _running(self, script: Script) -> bool:
        return any(one.id == script.id and not one.switched and one.undone is None for one in self._engine.history())

    def _one(self, script: Script, *, back: bool) -> bool:
        """Run one script, or undo it; return whether it came to its end."""
        self.last = script
        engine = self._engine
        going = {label for one in engine.history() if one.undone is None for label in one.drops}
        check_old(script, engine.forms(), going)
        transition = transition_of(script, engine.forms(), going, back=back)
        if transition is None:
            engine.edit(edit_of(script, back=back), lambda forms: check_old(script, forms, going))
            self._applied.append(script.id)
            return True
        if faults := engine.lacking(transition):
            raise MigrationStopped(
                f"{transition.name}: {len(faults):,} entities cannot go back, and nothing was written for that\n{_listed(faults)}",
                report=attrs.evolve(self._report(done=False), faults=tuple(faults)),
            )
        if engine.start(transition, lambda forms: check_old(script, forms, going)) and not self._copy(transition):
            return False
        if transition.links and not back and not engine.has_twin(script.id):  # not every entity has a way back
            self._plan = [
                attrs.evolve(one, old_version="stops") if one.migration == script.id else one for one in self._plan
            ]
        self._applied.append(script.id)
        return True

    def _copy(self, transition: Transition) -> bool:
        most, rounds = FIRST, 0
        with start_meter(self._progress, transition.id, total=self._total(transition)) as meter:
            while self._limit is None or self._entities < self._limit:
                asked = most if self._limit is None else min(most, self._limit - self._entities)
                copied: Copied = self._engine.step(asked)
                self._entities += copied.entities
                meter.advance(copied.entities)
                if copied.switched:
                    return True
                if copied.stuck:
                    raise _stopped(transition.id, self._report(done=False))
                most = steered(most, copied.pace.seconds, self._hold)
                rounds = rounds + 1 if copied.passed else 0
                if rounds and not rounds % _ROUNDS:
                    most *= _LONGER
                elif pause := self._rest * copied.pace.burden:
                    self._sleep(pause)
        return False

    def _total(self, transition: Transition) -> int:
        return sum(self._count(model.name) for one in transition.conversions for model in one.sources)


def _stopped(id: str, report: MigrationReport) -> MigrationStopped:
    faults = report.faults
    switched = "" if id in report.applied else ", and nothing was switched"
    return MigrationStopped(
        f"{id}: {len(faults):,} entities cannot be converted; all others are{switched}: mend these or the script, and run "
        f"it again\n{_listed(faults)}",
        report=report,
    )


def _listed(faults: Sequence[Fault]) -> str:
    return "\n".join(f"  - {fault}" for fault in faults[:_SHOWN]) + ("\n  - …" if len(faults) > _SHOWN else "")


def _resolves(script: Script) -> bool:
    return any(isinstance(step, Resolve) for step in script.steps)


def _resolved(
    place: str | os.PathLike[str],
    script: Script,
    durability: Literal["full", "relaxed"],
    timeout: float,
    ways: Sequence[WayBack],
) -> tuple[Fault, ...]:
    """Let entities differ that hold one value of a unique index, as the script says; return those that do not.

    Each set of them is changed in one transaction. A run that is killed leaves the rest to the next one.
    """
    functions = {repr(step.index): step.with_ for step in script.steps if isinstance(step, Resolve)}
    if not functions:
        return ()
    engine = open_engine(place, compile_schema(script.new), durability=durability, timeout=timeout, ways_back=ways)
    faults: dict[tuple[Any, ...], Fault] = {}
    with Store(engine) as store:
        while held := [
            one
            for one in engine.violations(100 + len(faults))
            if one.index in functions and (one.index, one.value) not in faults
        ]:
            for one in held:
                name = one.index.partition(".")[0]
                model = engine.schema.by_name[name]
                rows = [engine.get(model, *key) for key in sorted(one.holders)]
                holders = [model.build_one(row) for row in rows if row is not None]
                try:
                    keys = {(e.key.partition, e.key.row) for e in holders}
                    left = {(e.key.partition, e.key.row): e for e in functions[one.index](list(holders))}
                    if not left.keys() <= keys:
                        raise InvalidEntity(one.index, ["the function gave another entity than it got"])
                    with store.transaction(across_partitions=True) as tx:
                        for entity in holders:
                            if (changed := left.get((entity.key.partition, entity.key.row))) is None:
                                tx.delete(entity)
                            else:
                                tx.replace(changed, if_match=None if stored_row(changed) is not None else "*")
                except Exception as error:  # whatever the function of a script raises
                    faults[one.index, one.value] = Fault(name, one.holders[-1], f"{type(error).__name__}: {error}")
            again = {(one.index, one.value) for one in engine.violations(100 + len(faults))}
            for one in held:
                if (one.index, one.value) in again and (one.index, one.value) not in faults:
                    detail = f"it still has {one.value} of {one.index}, as {one.holders[0]} has"
                    faults[one.index, one.value] = Fault(one.index.partition(".")[0], one.holders[-1], detail)
    return tuple(faults.values())


def _held_twice(place: str | os.PathLike[str], script: Script) -> tuple[Fault, ...]:
    """Return the entities that keep a unique index of a script from being one."""
    engine = open_engine(place, compile_schema(script.new))
    try:
        return tuple(
            [
                Fault(
                    one.index.partition(".")[0], holder, f"it has {one.value} of {one.index}, as {one.holders[0]} has"
                )
                for one in engine.violations(_LISTED)
                for holder in one.holders[1:]
            ]
        )
    finally:
        engine.close()


def check_history(scripts: Sequence[Script], history: Iterable[AppliedForm]) -> int:
    """Return how many scripts of a chain a store has seen; the one that is under way is not one of them.

    Raises:
        InvalidMigration: the history of the store is another one.
    """
    entries = [one for one in history if one.undone is None]
    known = {script.id: script for script in scripts}
    faults = []
    first = next((at for at, one in enumerate(entries) if one.id in known), len(entries))
    ran = entries[first:]  # (those before may have been deleted, once every store was past them)
    for at, entry in enumerate(ran):
        if not entry.switched:
            continue  # (it goes on, or what was copied for it is discarded)
        if entry.id not in known:
            faults.append(f"{entry.id} ran over this store, and is not among the scripts: restore its file")
        elif at < len(scripts) and scripts[at].id != entry.id:
            faults.append(
                f"{entry.id} ran over this store where {scripts[at].id} stands now: restore the order of the scripts"
            )
        elif known[entry.id].digest != entry.script:
            faults.append(
                f"{entry.id} was edited after it ran over this store: restore its text, and write another script"
            )
    if faults:
        raise InvalidMigration("the scripts are not those that the store has seen", faults)
    return sum(1 for entry in ran if entry.switched)


def _build_new(
    place: str | os.PathLike[str],
    script: Script,
    durability: Literal["full", "relaxed"],
    timeout: float,
    hold: float,
    rest: float,
) -> None:
    """Build the indexes and aggregates that a script comes to and no copy has made."""
    engine = open_engine(place, compile_schema(script.new), durability=durability, timeout=timeout)
    try:
        build(engine, hold=hold, rest=rest)
    finally:
        engine.close()
