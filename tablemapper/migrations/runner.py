"""Running scripts over a store, beside those that write to it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import attrs

from ..catalogue.transitions import ConversionFault, Transition, name_of
from ..engines.locations import open_engine, open_migrations, path_of
from ..engines.migration_protocol import CopyingEngine, MigrationEngine, ReplacingEngine, StaleScript
from ..engines.protocol import Engine, StepTiming
from ..errors import InvalidMigration, MigrationStopped, SchemaMismatch, StoreFull, TableMapperError, safe_repr
from ..progress import ProgressOption, start_meter
from ..schema.model import Schema, compile_schema, model_of
from ..schema.specs import AppliedSpec
from ..scripts.conversion_plan import affected_classes, check_back, check_old, edit_of, matches, transition_of
from ..scripts.migrations import ScriptsOption, scripts_of, ways_back
from ..scripts.script import Script, undoing
from ..scripts.steps import Resolve
from ..store.builds import FIRST, HOLD, REST, build, check_pace, in_batches
from ..store.duplicates import duplicates, resolve
from ..store.opening import explaining
from ..store.opening import open as open_store
from ..store.store import Store
from .offline_copy import check_names, needs_former, part_of, replace, unextended, without_old_version
from .report import MigrationReport, MigrationStep, entity_count, fault_list, plan_steps, stopped

_ROUNDS = 3  # transactions after which the next ones are longer: else writers that never pause would hold up the switch
_LONGEST = 10  # times as long; without a pause from then on
_MAX_DUPLICATES = 10_000  # duplicates in a report


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
    timeout: float | None = None,
    credential: Any = None,
    prefix: str | None = None,
) -> MigrationReport:
    """Run the migration scripts that have not run on a store, in order, while other programs read and write.

    It copies entities in short transactions, while other programs write as before. Each script ends with one
    transaction that switches to the new tables. If a run is killed, nothing is lost: the next run continues.

    Args:
        place: the path of the store, or an account of Azure, where a script that copies lets programs only read for a while.
        migrations: a `Migrations`, the name of its package, or the decorated functions.
        to: the id of the last script to run. If the store is past it, the scripts after it are undone; ``""`` undoes
            all. An unfinished run of another script is abandoned.
        dry_run: change nothing, and run every function over every entity of one state of the store, in a copy of it.
            The copy is in the folder for temporary files, which TMPDIR names; it also needs room for the results of the
            scripts. Of an account it has each entity as it is when it is read.
        contract: also drop what only the old classes need. The scripts cannot be undone then.
        limit: how many entities this call copies at most; the next call continues.
        progress: True for a bar, or a function.
        hold: the length of a transaction in seconds; other writers wait no longer.
        rest: the pause after a transaction that delays others, as a multiple of their delay.
        durability: as for `tablemapper.open`.
        timeout: as for `tablemapper.open`.
        credential: as for `tablemapper.open`.
        prefix: as for `tablemapper.open`.

    Raises:
        InvalidMigration: the scripts do not fit the store, or each other; nothing was changed for a script that does
            not fit.
        MigrationStopped: some entities cannot be converted. All others are; the store has not switched for that script.
            The scripts that the run did before it stay done.
        InvalidQuery: an argument is not a number, 0 or more.
        StoreError: there is no store, or it cannot be used.
    """
    limit = check_pace("migrate", limit, hold, rest)
    scripts = scripts_of(migrations)
    if to is not None and to not in ("", *(script.id for script in scripts)):
        names = ", ".join([script.id for script in scripts]) or "none"
        raise InvalidMigration("to=", [f"no script is called {safe_repr(to)}: there are {names}; '' undoes all"])
    if dry_run:
        return _rehearse(place, scripts, to, limit, progress, timeout=timeout, credential=credential, prefix=prefix)
    account: dict[str, Any] = {"timeout": timeout, "credential": credential, "prefix": prefix}
    engine = open_migrations(place, durability=durability, **account)
    try:
        ways = ways_back(migrations)

        def settle(script: Script) -> tuple[ConversionFault, ...]:
            open_schema = partial(open_engine, place, durability=durability, ways_back=ways, **account)
            return _settled(place, script, open_schema, hold, rest)

        run = _Run(engine, scripts, limit, progress, hold, rest, settle, replaces=isinstance(engine, ReplacingEngine))
        report = run.to(to)
        if contract and report.done:
            batches = partial(in_batches, hold=hold, rest=rest)
            for entry in engine.history():
                is_contracted = entry.contracted and not entry.kept and not entry.drops
                if entry.switched and not is_contracted and entry.undone is None and engine.contract(entry.id, batches):
                    report = attrs.evolve(report, contracted=(*report.contracted, entry.id))
            engine.drop_former()
        if report.done and run.last_script is not None and run.last_script.new:
            with suppress(StaleScript):  # (the other run does that)
                if faults := run.settle(run.last_script):
                    raise stopped(run.last_script.id, attrs.evolve(report, done=False, faults=faults))
    finally:
        engine.close()
    return report


def _rehearse(
    place: str | os.PathLike[str],
    scripts: Sequence[Script],
    to: str | None,
    limit: int | None,
    progress: ProgressOption,
    **account: Any,
) -> MigrationReport:
    """Run the scripts over a copy."""
    with tempfile.TemporaryDirectory(prefix="tablemapper") as folder:
        copy = Path(folder) / "copy.db"
        with closing(open_migrations(place, **account)) as engine:
            is_file, ran = isinstance(engine, CopyingEngine), engine.history()
            if isinstance(engine, CopyingEngine):
                _check_room(place, folder)
                engine.backup(str(copy))
            else:
                with open_store(place, read_only=True, **account) as store:
                    store.backup(copy, progress=progress)
        with Store(open_engine(copy, Schema(()))) as rehearsed:
            rehearsed.unfreeze()
        if not is_file:
            with closing(open_migrations(copy)) as engine:
                engine.adopt([(entry.id, entry.script) for entry in ran if entry.switched and entry.undone is None])
                for entry in ran:
                    if entry.contracted and entry.undone is None:
                        engine.contract(entry.id, partial(in_batches, hold=HOLD, rest=0.0))
        report = _over_copy(copy, scripts, to, limit, progress, replaces=not is_file)
        if not is_file:
            report = attrs.evolve(report, plan=tuple([without_old_version(step, scripts) for step in report.plan]))
        return attrs.evolve(report, applied=())


def _over_copy(
    copy: Path,
    scripts: Sequence[Script],
    to: str | None,
    limit: int | None,
    progress: ProgressOption,
    *,
    replaces: bool = False,
) -> MigrationReport:
    """Run scripts over a copy that nobody else uses; what stops them is in the report."""

    def stored_script(script: Script) -> Script:
        return unextended(script, engine.forms()) if replaces else script

    def settle(script: Script) -> tuple[ConversionFault, ...]:
        return _settled(copy, stored_script(script), partial(open_engine, copy, durability="relaxed"), 1.0, 0.0)

    with closing(open_migrations(copy, durability="relaxed")) as engine:
        try:
            run = _Run(engine, scripts, limit, progress, 1.0, 0.0, settle, replaces=replaces)
            report = run.to(to)
        except MigrationStopped as error:
            report_of_error: MigrationReport = error.report
            return report_of_error
        last_script = run.last_script if report.done else None
        if (
            last_script is not None
            and last_script.new
            and (faults := settle(last_script) or _duplicates(copy, stored_script(last_script)))
        ):
            return attrs.evolve(report, done=False, faults=faults)
        return report


def _check_room(place: str | os.PathLike[str], folder: str) -> None:
    """Raise StoreFull if a folder has no room for a copy of a store."""
    path = os.fspath(path_of(place))
    required = sum(file.stat().st_size for end in ("", "-wal") if (file := Path(f"{path}{end}")).exists())
    if (free := shutil.disk_usage(folder).free) < required:
        raise StoreFull(
            f'a dry run copies the store, and "{os.path.dirname(folder)}" has no room: {required:,} bytes are needed, and '
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
        settle: Callable[[Script], tuple[ConversionFault, ...]],
        *,
        replaces: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._engine = engine
        self._scripts = scripts
        self._limit = limit
        self._progress = progress
        self._hold = hold
        self._pause = rest
        self._settle = settle
        self._replaces = replaces
        """Whether the store is one where scripts that copy do that in `replace`, or a copy of such a store."""
        self._monotonic = monotonic
        self._sleep = sleep
        self._start = monotonic()
        self._plan: list[MigrationStep] = []
        self._applied: list[str] = []
        self._entities = 0
        self._pending: list[str] | None = None
        """What the plan has still to run; None before there is a plan."""
        self._reached = -1
        """How many scripts were done when this run had run one."""
        self._untaken = ""
        """What the store could not take of what a script declares, and no step of it says."""
        self.last_script: Script | None = None
        """The script that this run ran last, if the store is still where that led; for an undoing, the one that undoes."""

    def to(self, target: str | None) -> MigrationReport:
        """Migrate forth or back to a script, and return the report; None: to the last script.

        Each round plans by the catalogue as it is and changes it at most once. If another program changed it meanwhile, the
        next round makes another plan.
        """
        is_done: bool | None = None
        while is_done is None:
            # (In batches: a start deletes in one transaction what a run that was killed at its end has left.)
            if isinstance(self._engine, CopyingEngine):
                in_batches(self._engine.clear, hold=self._hold, rest=self._pause, sleep=self._sleep)
            self._engine.look()
            with suppress(StaleScript):
                try:
                    is_done = self._next(target)
                except InvalidMigration as error:
                    if self._untaken:
                        error.add_note(self._untaken)
                    raise
        return self._report(is_done=is_done)

    def _next(self, target: str | None) -> bool | None:
        """Do what comes next by the catalogue as it is; return whether the run is done, or None if it goes on."""
        scripts = self._scripts
        done_count = check_history(scripts, self._engine.history())
        ids = [script.id for script in scripts]
        end = len(ids) if target is None else ids.index(target) + 1 if target else 0
        is_undoing = end < done_count
        if is_undoing:
            pending = [undoing(script) for script in reversed(scripts[end:done_count])]
            ids_ahead = {script.id for script in pending}
            for entry in self._engine.history():
                if entry.id in ids_ahead and entry.contracted and entry.undone is None:
                    raise InvalidMigration(
                        entry.id, ["it was contracted: the old tables are gone, so it cannot be undone"]
                    )
        else:
            pending = list(scripts[done_count:end])
        if self._is_behind(done_count, pending, is_undoing=is_undoing):
            return None
        if not is_undoing and done_count != self._reached and self._adopt(done_count, end):
            return None
        if self._abandon_other(pending, is_undoing=is_undoing, has_target=target is not None):
            return None
        names = [name_of(script.id, back=is_undoing) for script in pending]
        self._check_possible(pending, is_undoing=is_undoing)
        if self._pending != names:  # (else the plan holds)
            if is_undoing:
                check_back(pending, self._engine.forms())
            own_steps = [step for step in self._plan if step.migration in self._applied]
            planned = plan_steps(
                [(script, is_undoing) for script in pending], self._engine.forms(), cache(self._engine.count)
            )
            self._plan, self._pending = [*own_steps, *planned], names
        if not pending:
            return True
        if not self._run_script(pending[0], is_undoing=is_undoing):
            return False
        self._pending, self.last_script, self._reached = names[1:], pending[0], done_count + (-1 if is_undoing else 1)
        return None

    def _check_possible(self, pending: Sequence[Script], *, is_undoing: bool) -> None:
        """Refuse to run scripts of which one copies entities, in a way that is not possible, before anything is changed."""
        if not self._replaces:
            return
        for script in pending:
            if not affected_classes(script, self._engine.forms()):
                continue
            if is_undoing and needs_former(script):
                fault = "it cannot be undone on Azure Tables, which keep no value of a field that is dropped or filled"
                raise InvalidMigration(script.id, [f"{fault}: write a script that leads back"])
            if self._limit is not None and isinstance(self._engine, ReplacingEngine):
                raise InvalidMigration(script.id, ["it copies entities, all at once on Azure Tables: leave out limit="])

    def _is_behind(self, done_count: int, pending: Sequence[Script], *, is_undoing: bool) -> bool:
        """Bring the store to where the script that led to it leaves it, before the next one starts.

        A run may have been killed between the two, or have not come so far yet.

        Returns:
            Whether that changed the catalogue.

        Raises:
            MigrationStopped: some duplicates cannot be resolved.
        """
        last_script = self._scripts[done_count - 1] if done_count and not is_undoing else None
        if done_count == self._reached:
            last_script = self.last_script
        elif not pending and last_script is not None and _resolves(last_script):
            self.last_script, self._reached = last_script, done_count
        else:
            self.last_script = None
        if not pending or last_script is None or self._engine.under_way() is not None:  # (then a run has done it)
            return False
        # The next script expects what this one declares and no step says, too.
        if last_script.new and (done_count == self._reached or not matches(last_script.new, self._engine.forms())):
            try:
                if self._engine.take_over(compile_schema(last_script.new)):
                    return True
            except (
                SchemaMismatch
            ) as error:  # (a version that is newer may have changed them: the next script says what differs)
                self._untaken = f"{last_script.id} declares what the store could not take: {error}"
        if not is_undoing and _resolves(last_script) and (faults := self.settle(last_script)):
            raise stopped(last_script.id, attrs.evolve(self._report(is_done=False), faults=faults))
        return False

    def settle(self, script: Script) -> tuple[ConversionFault, ...]:
        """Build the indexes of a script's new classes and resolve their duplicates; return those that are left.

        Raises:
            Outdated: another run has gone on from there meanwhile.
        """
        engine = self._engine
        old_state = engine.history(), engine.under_way()
        try:
            return self._settle(script)
        except TableMapperError:
            engine.look()
            if (engine.history(), engine.under_way()) == old_state:
                raise
            raise StaleScript from None

    def _abandon_other(self, pending: Sequence[Script], *, is_undoing: bool, has_target: bool) -> bool:
        """Discard the copy of a migration that was started, unless it is the next one; return whether there was one.

        Raises:
            InvalidMigration: the caller named no target, so another program may be copying for it just now.
        """
        name = self._engine.under_way()
        if name is None or [name] == [name_of(script.id, back=is_undoing) for script in pending[:1]]:
            return False
        if not has_target:
            last_id = self._scripts[-1].id if self._scripts else ""
            raise InvalidMigration(
                pending[0].id if pending else last_id or "migrations",
                [f"{name} has not finished; run it to its end first, or abandon it, as in to={last_id!r}"],
            )
        self._engine.discard(name)
        return True

    def _report(self, *, is_done: bool) -> MigrationReport:
        faults = tuple(self._engine.faults.values()) if isinstance(self._engine, CopyingEngine) else ()
        return MigrationReport(
            is_done, tuple(self._plan), tuple(self._applied), self._entities, self._monotonic() - self._start, faults
        )

    def _adopt(self, done_count: int, end: int) -> bool:
        """Note scripts as done that are older than the store, as it has their new classes; return whether there are any."""
        if done_count == end:
            return False
        running = self._engine.history().running
        if running is not None and running.id == self._scripts[done_count].id:
            return False
        forms = self._engine.forms()
        if matches(self._scripts[done_count].old, forms):
            return False
        matching = [
            at for at in range(done_count, end) if self._scripts[at].new and matches(self._scripts[at].new, forms)
        ]
        if forms and not matching:
            return False  # the start of the script raises, with the differences
        to = matching[-1] + 1 if matching else end
        self._engine.adopt([(script.id, script.digest) for script in self._scripts[done_count:to]])
        return True

    def _run_script(self, script: Script, *, is_undoing: bool) -> bool:
        """Run one script, which may undo another; return whether it came to its end."""
        engine = self._engine
        dropped_labels = engine.dropped(
            {other_script.id: [*map(model_of, other_script.new)] for other_script in self._scripts}
        )
        check_old(script, engine.forms(), dropped_labels, is_undoing=is_undoing)
        transition = transition_of(script, engine.forms(), dropped_labels, is_undoing=is_undoing)
        if self._replaces and not is_undoing:
            check_names(script, engine.forms(), transition)
        if transition is None:
            engine.edit(edit_of(script, engine.forms(), is_undoing=is_undoing))
            self._applied.append(script.id)
            return True
        if isinstance(engine, CopyingEngine):
            return self._run_copying(engine, script, transition)
        self._replace(engine, script, transition)
        return True

    def _replace(self, engine: MigrationEngine, script: Script, transition: Transition) -> None:
        """Run a script that copies entities by copying twice."""
        assert isinstance(engine, ReplacingEngine)

        def convert(copy: Path, progress: ProgressOption) -> MigrationReport:
            return _over_copy(copy, [part_of(script, transition)], None, None, progress)

        self._plan = [without_old_version(step, [script]) for step in self._plan]
        replacement = engine.begin(transition)
        try:
            report = replace(replacement, convert, self._progress, transition.id)
            self._entities += report.entities
            if not report.ok:
                raise stopped(transition.name, attrs.evolve(self._report(is_done=False), faults=report.faults))
        except BaseException as error:
            try:
                replacement.close()
            except TableMapperError as close_error:
                error.add_note(f"the store may be frozen until {script.id} runs again: {close_error}")
            raise
        replacement.close()
        self._applied.append(script.id)

    def _run_copying(self, engine: CopyingEngine, script: Script, transition: Transition) -> bool:
        """Run a script that copies entities; return whether it came to its end."""
        if transition.links and transition.ending & engine.building():
            # The version before goes on, and nothing is built any more in the tables that it has then.
            self.settle(attrs.evolve(script, new=script.old, steps=()))
        if faults := engine.irreversible(transition):
            raise MigrationStopped(
                f"{transition.name}: {entity_count(len(faults))} cannot go back, and nothing was written for that\n{fault_list(faults)}",
                report=attrs.evolve(self._report(is_done=False), faults=tuple(faults)),
            )
        if engine.start(transition) and not self._copy(engine, transition):
            return False
        if transition.links and not engine.has_twin(script.id):  # an entity has no way back, or a version only reads
            self._plan = [
                attrs.evolve(step, old_version="stops") if step.migration == script.id else step for step in self._plan
            ]
        self._applied.append(script.id)
        return True

    def _copy(self, engine: CopyingEngine, transition: Transition) -> bool:
        """Copy entities in transactions, with pauses; return whether the last one switched."""
        rounds, switched = 0, False
        total = sum(engine.count(model.name) for conversion in transition.conversions for model in conversion.sources)
        with start_meter(self._progress, transition.id, total=total) as meter:

            def step(most: int) -> StepTiming | None:
                nonlocal rounds, switched
                remaining = most if self._limit is None else self._limit - self._entities
                if switched or remaining <= 0:
                    return None
                copied = engine.step(min(most, remaining))
                self._entities += copied.entities
                meter.advance(copied.entities)
                switched = copied.switched
                if copied.stuck:
                    raise stopped(transition.name, self._report(is_done=False))
                rounds = rounds + 1 if copied.passed else 0
                longer = min(rounds // _ROUNDS, _LONGEST - 1)
                delay = 0.0 if switched else copied.pace.delay * (1 - longer / (_LONGEST - 1))
                return StepTiming(copied.pace.seconds / (1 + longer), delay)

            in_batches(step, hold=self._hold, rest=self._pause, sleep=self._sleep, first=FIRST)
        return switched


def _resolves(script: Script) -> bool:
    return any(isinstance(step, Resolve) for step in script.steps)


def _settled(
    place: str | os.PathLike[str], script: Script, open_schema: Callable[[Schema], Engine], hold: float, rest: float
) -> tuple[ConversionFault, ...]:
    """Build the indexes and aggregates of a script's new classes, and resolve their duplicates; return those that are left."""
    with explaining(place):
        engine = open_schema(compile_schema(script.new))
    with Store(engine) as store:
        build(engine, hold=hold, rest=rest)
        functions = {repr(step.index): step.with_ for step in script.steps if isinstance(step, Resolve)}
        return resolve(store, engine, functions) if functions else ()


def _duplicates(place: str | os.PathLike[str], script: Script) -> tuple[ConversionFault, ...]:
    """Return the entities with a value of a unique index that another entity has, too."""
    with explaining(place), closing(open_engine(place, compile_schema(script.new))) as engine:
        return duplicates(engine, _MAX_DUPLICATES)


def check_history(scripts: Sequence[Script], history: Iterable[AppliedSpec]) -> int:
    """Return the number of scripts of a chain that have switched in a store.

    Raises:
        InvalidMigration: the store ran other scripts, or in another order.
    """
    entries = [entry for entry in history if entry.undone is None]
    by_id = {script.id: script for script in scripts}
    faults = []
    first = next((at for at, entry in enumerate(entries) if entry.id in by_id), len(entries))
    ran = entries[first:]  # (older scripts may have been deleted, once every store was past them)
    for at, entry in enumerate(ran):
        if not entry.switched:
            continue  # (the run continues or discards it)
        if entry.id not in by_id:
            faults.append(f"{entry.id} ran over this store, and is not among the scripts: restore its file")
        elif at < len(scripts) and scripts[at].id != entry.id:
            faults.append(
                f"{entry.id} ran over this store where {scripts[at].id} stands now: restore the order of the scripts"
            )
        elif by_id[entry.id].digest != entry.script:
            faults.append(
                f"{entry.id} was edited after it ran over this store: restore its text, and write another script"
            )
    if faults:
        raise InvalidMigration("the scripts are not those that the store has seen", faults)
    return sum(1 for entry in ran if entry.switched)
