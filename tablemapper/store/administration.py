"""The administration of a store: builds, checks, repairs, copies and statistics."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from ..engines.check import CheckReport, RepairReport
from ..engines.counted_statistics import count
from ..engines.current_transaction import check_outside
from ..engines.locations import path_of
from ..engines.optional_protocols import (
    CompactsStore,
    DropsClasses,
    ExtendsSchema,
    RecoversWrites,
    SupportsBackup,
    usable_schema,
)
from ..engines.protocol import Engine
from ..engines.statistics import Statistics, SupportsStatistics
from ..engines.status import Status
from ..entities.aggregates import kept_field
from ..entities.entity import Entity, Record
from ..errors import InvalidModel, InvalidQuery, InvalidTransaction, NotReady, StoreReadOnly, safe_repr
from ..guidance.advice import Advice
from ..guidance.advisor import advise_schema
from ..guidance.workload import Workload
from ..progress import Meter, ProgressOption, start_meter
from ..schema.model import Model, compile_schema
from ..verbs.operations import Operations
from .builds import HOLD, REST, BuildReport, build, build_new
from .copy import CopyReport, copy_engine, copy_to_file

_RECENT = timedelta(hours=1)
_extending = threading.Lock()


class Administration:
    """The verbs of a store that are about all of it, or about a class."""

    _engine: Engine
    _operations: Operations

    if TYPE_CHECKING:

        def _follow(self) -> None:
            """Answer with the classes that the engine has by now."""

    def use(self, *models: type[Record]) -> None:
        """Open further classes in an open store, as `open` would: ``store.use(Log.variant("202612"))``.

        What runs goes on, in other threads, too. A class that is open already is left as it is. One that was dropped comes
        back, empty.

        Args:
            models: entity and aggregate classes.

        Raises:
            InvalidModel: they do not fit together with those that are open, or the store has those of its catalogue.
            SchemaMismatch: the store holds something else under these names.
            UniqueViolation: values are held twice in an index that is new and unique.
            StoreReadOnly: it was opened with ``read_only=True``, and does not know them.
            InvalidTransaction: the thread is inside a transaction of the store.
        """
        engine = self._engine
        check_outside(engine, "use")
        if not isinstance(engine, ExtendsSchema):
            raise InvalidTransaction(f"{engine!r} takes no more classes; open the store again, with all of them")
        with _extending:
            schema = engine.declared()
            if schema is None:
                raise InvalidModel(
                    "use", ["the store has the classes of its catalogue; open it with models= to add some"]
                )
            classes = [model.cls for model in schema.models if kept_field(model.name) is None]
            new = [cls for cls in models if cls not in classes]
            if new:
                engine.extend(compile_schema([*classes, *new]))
                self._follow()
        if new:
            with suppress(StoreReadOnly):
                build_new(engine, progress=False)

    def build(
        self, *, limit: int | None = None, progress: ProgressOption = False, hold: float = HOLD, rest: float = REST
    ) -> BuildReport:
        """Build new indexes and aggregates, in short transactions beside other writers.

        Several processes may build at the same time. If a build ends early, the next call continues it, in any process.

        Args:
            limit: how many entities this call reads at most.
            progress: True for a bar, or a function.
            hold: the length of a transaction in seconds; other writers wait no longer.
            rest: the pause after a transaction that delays others, as a multiple of their delay.

        Raises:
            InvalidQuery: an argument is not a number, 0 or more.
        """
        return build(self._engine, limit=limit, progress=progress, hold=hold, rest=rest)

    def status(self) -> Status:
        """Return what the store maintains, the progress of builds, and its migrations.

        Raises:
            CorruptStore: the catalogue cannot be read.
        """
        return self._engine.status()

    def statistics(
        self,
        cls: type[Record],
        /,
        *,
        recent: timedelta = _RECENT,
        top: int = 10,
        progress: ProgressOption = False,
    ) -> Statistics:
        """Count the entities, partitions and index rows of a class, and their bytes, in one pass over each table.

        All is of one state of the store; writers go on meanwhile. Of an account of Azure it reads the entities, a thousand
        with a request, each as it is then, and counts the rows of indexes that follow from them.

        Args:
            cls: the class.
            recent: which writes count as recent.
            top: how many of the largest and the hottest partitions are named.
            progress: True for a bar, or a function.

        Raises:
            InvalidEntity: the store was not opened with the class.
            InvalidQuery: ``recent`` or ``top`` is below 0, or no timedelta, no int.
            NotReady: it is an aggregate that is being built.
        """
        model = self._operations.model(cls)
        arguments: tuple[object, object] = recent, top
        if not isinstance(arguments[0], timedelta) or recent < timedelta(0):
            raise InvalidQuery(f"recent={safe_repr(recent)}: expected a timedelta, 0 or more")
        if isinstance(arguments[1], bool) or not isinstance(arguments[1], int) or top < 0:
            raise InvalidQuery(f"top={safe_repr(top)}: expected a number, 0 or more")
        with start_meter(progress, "statistics") as meter:
            return self._statistics(model, recent, top, meter)

    def _statistics(self, model: Model, recent: timedelta, top: int, meter: Meter) -> Statistics:
        engine = self._engine
        if isinstance(engine, SupportsStatistics):
            return engine.statistics(model, recent, top, meter)
        return count(engine, model, recent, top, meter)

    def advise(self, *, workload: Workload | None = None, progress: ProgressOption = False) -> tuple[Advice, ...]:
        """Return what is unwise in the classes of the store, judged by what it holds: as `tablemapper.advise`, and more.

        It reads each table of entities once. What cannot be read now, as an index that is being built, is left out.

        Args:
            workload: the calls of programs, which were observed with ``observe=work``: frequent scans, queries that read
                far more than they return, indexes that nothing reads.
            progress: True for a bar, or a function.

        Raises:
            TypeError: it is no workload.
            CorruptStore: a table cannot be read.
        """
        engine, argument = self._engine, cast(object, workload)
        engine.catch_up()
        if argument is not None and not isinstance(argument, Workload):
            raise TypeError(f"advise: workload= is a tm.Workload, got {safe_repr(argument)}")
        with start_meter(progress, "advise") as meter:

            def statistics_of(model: Model) -> Statistics | None:
                with suppress(NotReady):
                    return self._statistics(model, _RECENT, 10, meter)
                return None

            return advise_schema(usable_schema(engine), statistics_of, workload, engine.capabilities)

    def check(self, *, progress: ProgressOption = False) -> CheckReport:
        """Recompute every index row and every aggregate from the entities, and report the differences.

        Raises:
            CorruptStore: the file is so damaged that it cannot be read.
        """
        with start_meter(progress, "check") as meter:
            return self._engine.check(meter)

    def sweep(self, *, full: bool = False, progress: ProgressOption = False) -> int:
        """Finish or undo what writers left that ended early, and return how many writes that were; 0 on SQLite.

        On Azure Tables, what is maintained in other partitions follows the transaction of an entity. If its writer ends
        in between, this does the rest. It leaves a write alone for its first minute.

        Args:
            full: also look for such writes where no catalogue says that there are some, as one was lost. It removes
                what no write needs any more, and reads through the tables of classes and aggregates.
            progress: True for a bar, or a function.

        Raises:
            StoreError: the service does not answer.
        """
        with start_meter(progress, "sweep") as meter:
            return self._engine.sweep(meter, full=full) if isinstance(self._engine, RecoversWrites) else 0

    def repair(self, *, progress: ProgressOption = False) -> RepairReport:
        """Correct every index row and every aggregate from the entities, and report what was wrong.

        Other programs read and write meanwhile: it finds faults in one state of the store, and corrects them in short
        transactions. If an index or an aggregate has very many faults, or lies in other partitions of an account, it is built
        anew, and not read meanwhile.
        Entities never change. An ``_ever`` measure changes only if an existing entity is more extreme.

        Raises:
            InvalidTransaction: the thread is inside a transaction of the store.
            CorruptStore: the file itself is so damaged that it cannot be written.
            StoreError: the file cannot be written; the repairs until then are kept.
        """
        check_outside(self._engine, "repair")
        with start_meter(progress, "repair") as meter:
            return self._engine.repair(meter)

    def compact(self, *, progress: ProgressOption = False) -> None:
        """Rewrite the file in order, without the space that deleted entities left.

        It needs exclusive use of the file: other threads wait, and another process cannot open it. It needs up to twice
        the size of the file in free space. If it fails, the file is as it was. It first removes dropped tables. An
        index that was built beside an old definition gets its plain table name, once the old one is gone.

        Raises:
            StoreLocked: at once, if the file is open elsewhere, or a loop over a query is open here.
            InvalidTransaction: the thread is inside a transaction of the store.
            StoreFull: there is not enough space.
        """
        engine = self._engine
        check_outside(engine, "compact")
        if not isinstance(engine, CompactsStore):
            raise InvalidTransaction(f"{engine!r} keeps no free space; there is nothing to compact")
        with start_meter(progress, "compact") as meter:
            engine.compact(meter)

    def drop(self, cls: type[Entity], /, *, progress: ProgressOption = False) -> None:
        """Let a class leave the store with all its entities, its indexes and the aggregates over it: whole tables go.

        Other programs that have it open get SchemaMismatch for it from then on. A program that opens the store with the
        class later has it anew, empty. In a file it takes a moment, and `build` gives the space back. On Azure Tables it
        waits until every program knows, a minute, then deletes each table with one request. If a drop ends early,
        `sweep` finishes it, or the next program that opens the store.

        Raises:
            InvalidEntity: it is not a class of entities, or the store was not opened with it.
            InvalidQuery: it shares a table with another class, keeps a field of another, or a migration runs.
            InvalidTransaction: the thread is inside a transaction of the store.
            StoreLocked: the store is frozen.
        """
        model, engine = self._operations.writable(cls), self._engine
        check_outside(engine, "drop")
        if not isinstance(engine, DropsClasses):
            raise InvalidTransaction(f"{engine!r} drops no classes; delete the entities with clear")
        with start_meter(progress, "drop") as meter:
            engine.drop(model, meter)

    def freeze(self, *, progress: ProgressOption = False) -> None:
        """Stop all programs from changing entities, so that the store can move to another place; once it returns, none does.

        From then on every write of an entity raises StoreLocked, in every program. Reads go on, and what
        is maintained is still built, swept and repaired. A backup of the file is frozen, too. On Azure Tables it takes as long
        as a program may not know of it: 70 seconds. To freeze what is frozen does no harm.

        Args:
            progress: True for a bar, or a function.

        Raises:
            InvalidTransaction: the thread is inside a transaction of the store.
            StoreReadOnly: the store was opened with ``read_only=True``.
            StoreError: another program let programs write again meanwhile.
        """
        check_outside(self._engine, "freeze")
        with start_meter(progress, "freeze") as meter:
            self._engine.freeze(meter)

    def unfreeze(self) -> None:
        """Let programs change entities again; on Azure Tables, within 10 seconds. It does nothing unless the store is frozen.

        Raises:
            InvalidTransaction: the thread is inside a transaction of the store.
            StoreReadOnly: the store was opened with ``read_only=True``.
        """
        check_outside(self._engine, "unfreeze")
        self._engine.unfreeze()

    def backup(self, path: str | os.PathLike[str], /, *, progress: ProgressOption = False) -> None:
        """Write a copy of the current state to a new file, while the store is in use.

        Of an account of Azure it copies the entities, a thousand with a request: each as it is when it is read, so not
        all are of one state. The file is a store with the same classes.

        Raises:
            NotAStore: it is no path, but an account or a URL.
            StoreError: the file exists already, or cannot be written.
        """
        engine, file = self._engine, os.fspath(path_of(path))
        with start_meter(progress, "backup") as meter:
            if isinstance(engine, SupportsBackup):
                engine.backup(file, meter)
            else:
                copy_to_file(engine, file, meter)


def copy(
    source: Administration,
    target: Administration,
    /,
    *,
    only: Sequence[type[Entity]] | None = None,
    progress: ProgressOption = False,
) -> CopyReport:
    """Make the entities of one store those of another: insert, replace and delete what differs.

    It reads both in the order of keys, and writes what differs in transactions beside other programs. Index tables and
    aggregates follow from these writes. An ``_ever`` measure of the target becomes no less extreme than that of the
    source. ETags and timestamps are the target's own. If it ends early, call it again: it writes only what is left.

    Args:
        source: it is only read, and may be opened with ``read_only=True``.
        target: a store with the same classes; what only it has is deleted.
        only: the classes that are copied, with what is maintained from them, as in ``only=[Product]``. The others of both
            stores are not looked at.
        progress: True for a bar, or a function.

    Raises:
        SchemaMismatch: a class is missing in one of them, or is another one there; nothing was written.
        InvalidEntity: an entity has properties that its class does not declare.
        UniqueViolation: two entities hold one value, as the source was written meanwhile; copy again. Or a unique index is
            over totals, and two groups have one value on the way: copy into a new store.
        PreconditionFailed: somebody else wrote the target meanwhile; copy again.
    """
    for store in (source, target):
        if not isinstance(store, Administration):
            raise TypeError(
                f"copy: expected two open Stores, got {safe_repr(store)}; of two AsyncStores: await tm.copy_async(source, target)"
            )
    with start_meter(progress, "copy") as meter:
        return copy_engine(source._engine, target._engine, meter, only=only)  # noqa: SLF001  (two stores are asked for theirs)
