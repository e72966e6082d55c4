"""Migrations of one file: they begin, go on in short transactions, switch, and are contracted. No class need be opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
from msgspec import UNSET
from msgspec.structs import replace

from ....errors import InvalidMigration
from ....evolution.definitions import indexes_in
from ....schema.forms import AppliedForm, Forms, ModelForm, VersionForm
from ....schema.model import Schema
from ...migration import Copied, Edit, Fault, Transition
from ...protocol import Pace
from ..driver.timestamps import STATE
from ..file.file import File
from ..file.opening import open_file
from ..file.transactions import OtherGeneration
from ..file.writer import Writer
from ..rows.contested import VIOLATIONS
from ..rows.jobs import LEDGER, QUEUE
from ..sql.catalogue import COPIES, Catalogue, Read, Staged, read_catalogue, write_catalogue
from ..sql.maintained_tables import index_column_names
from ..sql.names import Names, composed, index_columns_of, with_names, without
from ..sql.schema import SqliteSchema
from ..sql.tables import quoted
from .copying import OF, Copying, Key, copy_forms, is_one_way
from .dropping import delete_some, drop, drop_former, unused
from .switch import ended, linked, swapped, switched, with_drops
from .takeover import stage, take_format, take_over

__all__ = ["SqliteMigrations"]

T = TypeVar("T")
_FOLLOWS = 10
_COPY = f"substr(id, 1, instr(id || '{OF}', '{OF}') - 1)"
_LEFT = f"SELECT id, pk, rk FROM {LEDGER} WHERE {_COPY} NOT IN (SELECT id FROM {COPIES}) LIMIT ?"
_FORGET = f"DELETE FROM {LEDGER} WHERE id = ? AND pk = ? AND rk = ?"
_SMALL = 5_000  # rows of a table that are deleted in one transaction


class SqliteMigrations:
    """One file, for migrations."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._copying: Copying | None = None
        self._transition: Transition | None = None
        self._look()

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, durability: Any = "full", timeout: float = 5.0, **options: Any
    ) -> SqliteMigrations:
        """Open a file that is there.

        Args:
            path: the file.
            durability: as for `tablemapper.open`.
            timeout: seconds to wait for another process.
            options: of `open_file`: the clock, locks and VFS of a test.
        """
        file = open_file(path, create=False, durability=durability, timeout=timeout, **options)
        try:
            return cls(file)
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # ------------------------------------------------------------------------------------------ what is there

    def _look(self) -> None:
        with self._file.snapshot() as snapshot:
            self._catalogue = read_catalogue(snapshot.read)
            ((self._generation,),) = snapshot.read(f"SELECT generation FROM {STATE}")
        self._use()

    def _use(self) -> None:
        transition, staged = self._transition, self._catalogue.staged
        if transition is None or self._copying is None or staged is None or staged.migration != transition.name:
            return
        self._copying.use(
            self._schema(transition.old, self._catalogue),
            self._schema(transition.new, staged.catalogue),
            self._former(transition),
        )

    def _schema(self, schema: Schema, catalogue: Catalogue) -> SqliteSchema:
        # (Whether a form was retired says nothing here: a migration may come to one again.)
        return SqliteSchema(schema, attrs.evolve(catalogue, versions={}), self._generation)

    def _former(self, transition: Transition) -> SqliteSchema:
        """Return the classes as they were before a migration that is undone; none if that did not find them."""
        former = self._catalogue.former.get(transition.id, Catalogue())
        there = [model for model in transition.new.models if transition.back and model.name in former.models]
        return self._schema(Schema(tuple(there)), former)

    def forms(self) -> Forms:
        """Return the forms of the classes of the file."""
        return self._catalogue.models

    def history(self) -> tuple[AppliedForm, ...]:
        """Return the migrations that were begun, in that order."""
        return self._catalogue.history

    def count(self, name: str) -> int:
        """Return the number of entities of a class."""
        table = self._catalogue.tables[self._catalogue.models[name].table]
        condition = table.type_filter(name, "t") or "TRUE"
        ((count,),) = self._file.read(f"SELECT count(*) FROM {quoted(table.name)} t WHERE {condition}")
        return int(count)

    @property
    def faults(self) -> Mapping[tuple[str, Key], Fault]:
        """What could not be turned into others so far."""
        return {} if self._copying is None else self._copying.faults

    # ------------------------------------------------------------------------------------------ running one

    def _write(self, write: Callable[[Writer], T]) -> T:
        return self._paced(write)[0]

    def _paced(self, write: Callable[[Writer], T]) -> tuple[T, Pace]:
        """Write by the catalogue as it is in that transaction; return also its pace."""
        followed = 0
        while True:
            try:
                result, seconds, burden = self._file.write_alone(write, generation=self._generation)
                return result, Pace(seconds, burden)
            except OtherGeneration:
                if followed == _FOLLOWS:
                    raise
                followed += 1
                self._look()

    def adopt(self, applied: Sequence[tuple[str, str]]) -> None:
        """Note migrations, each with its digest, as done: the store was never as they find it."""

        def write(writer: Writer) -> None:
            now = writer.timestamp
            history = [AppliedForm(id, script, started=now, switched=now) for id, script in applied]
            self._save(writer, attrs.evolve(self._catalogue, history=(*self._catalogue.history, *history)))

        self._write(write)
        self._look()

    def start(self, transition: Transition, check: Callable[[Forms], None]) -> bool:
        """Begin a migration, or go on with it; return whether anything is to be copied.

        Nothing is where what it makes is there already, kept in step since it was done before, or undone.

        Raises:
            InvalidMigration: another one is under way, or the store is not as it finds it.
        """

        def write(writer: Writer) -> None:
            catalogue, now = self._catalogue, writer.timestamp
            check(catalogue.models)
            if catalogue.staged is not None:
                entry = catalogue.history[-1]
                if catalogue.staged.migration != transition.name:
                    raise _under_way(transition.id, catalogue.staged)
                if entry.script == transition.script:
                    return
                catalogue = _discarded(writer, catalogue)
            twin = next((one for one in catalogue.twins if one.migration == transition.id), None)
            if twin is not None:
                entry = [one for one in catalogue.history if one.id == transition.id][-1]
                if entry.script == transition.script:  # what it is to make is there already
                    self._save(writer, swapped(writer, catalogue, twin, transition))
                    return
                catalogue = ended(writer, catalogue, twin, transition.id)
            staged = stage(writer, transition.new, catalogue.past, _reader(writer))
            building = {
                label: replace(staged.states[label], state="building", since=now) for label in transition.contested
            }
            staged = attrs.evolve(staged, states=staged.states | building)
            for label in transition.contested:  # (of an index of this name that ends)
                writer.execute(f'DELETE FROM {VIOLATIONS} WHERE "index" = ?', (label,))
            writer.execute(f"DELETE FROM {LEDGER}")  # what a run of the same name noted, if it was killed at its end
            for form, conversion in zip(copy_forms(transition), transition.conversions, strict=True):
                total = sum(self._count(writer, model.name) for model in conversion.sources)
                writer.execute(
                    f"INSERT INTO {COPIES} VALUES(?, ?, NULL, NULL, 'copying', 0, ?)",
                    (form.id, ", ".join(form.sources), total),
                )
            history = catalogue.history
            if not transition.back:
                history = (*history, AppliedForm(transition.id, transition.script, list(transition.steps), started=now))
            self._save(writer, attrs.evolve(catalogue, staged=Staged(transition.name, staged), history=history))

        self._transition, self._copying = transition, Copying(transition)
        self._write(write)
        self._look()
        return self._catalogue.staged is not None

    def lacking(self, transition: Transition) -> Sequence[Fault]:
        """Return the entities that cannot be what they were before a migration that is undone; nothing is written."""
        if self._catalogue.staged is not None or self.has_twin(transition.id):
            return ()
        kept = any(one.id == transition.id and one.undone is None and one.kept for one in self._catalogue.history)
        if (
            kept
            and transition.id not in self._catalogue.former
            and any(one.former and one.former.fields for one in transition.conversions)
        ):
            raise InvalidMigration(
                transition.id,
                ["it ran before this version kept what it drops, so it cannot be undone; restore a backup"],
            )
        copying = Copying(transition)
        source = self._schema(transition.old, self._catalogue)
        copying.use(source, source, self._former(transition))
        with self._file.snapshot() as snapshot:
            return copying.lacking(snapshot)

    def under_way(self) -> str | None:
        """Return what the migration is called that was begun and has not switched."""
        return None if self._catalogue.staged is None else self._catalogue.staged.migration

    def discard(self, name: str) -> None:
        """Give up a migration that is under way: what was copied for it goes."""

        def write(writer: Writer) -> None:
            if self.under_way() == name:
                self._save(writer, _discarded(writer, self._catalogue))

        self._write(write)
        self._look()

    def edit(self, edit: Edit, check: Callable[[Forms], None]) -> None:
        """Do a migration that copies nothing, in one transaction.

        Raises:
            InvalidMigration: another one is under way, or the store is not as it finds it.
        """

        def write(writer: Writer) -> None:
            catalogue, now = self._catalogue, writer.timestamp
            check(catalogue.models)
            if catalogue.staged is not None:
                raise _under_way(edit.id, catalogue.staged)
            for name, names in edit.names.items():
                catalogue = _renamed(writer, catalogue, name, names)
            catalogue = attrs.evolve(catalogue, twins=tuple([linked(twin, edit.names) for twin in catalogue.twins]))
            for model in edit.new:
                if model.name not in catalogue.models:  # an aggregate that is new: it is built when it is opened
                    continue
                source = model.name if model.aggregate is None else model.aggregate.source.__name__
                names = edit.names[source] if model.aggregate is None else {}
                known = [
                    replace(one, renames=composed(one, names), behind=one.behind or edit.id)
                    for one in catalogue.versions.get(model.name, ())
                    if one.until is None and one.beside is None and one.form != model.form_hash
                ]
                others = [one for one in catalogue.versions.get(model.name, ()) if one.until is not None or one.beside]
                # (What declares more is taken over when it is opened.)
                fits = _fits(model.form, catalogue.models[model.name])
                versions = [*others, *known, *([VersionForm(model.form_hash, now)] if fits else [])]
                catalogue = attrs.evolve(catalogue, versions=catalogue.versions | {model.name: versions})
            catalogue = with_drops(catalogue, edit)
            if edit.back:
                history = [
                    replace(one, undone=now) if one.id == edit.id and one.undone is None else one
                    for one in catalogue.history
                ]
            else:
                entry = AppliedForm(edit.id, edit.script, list(edit.steps), now, now, drops=list(edit.drops))
                history = [*catalogue.history, entry]
            self._save(writer, attrs.evolve(catalogue, history=tuple(history)))

        self._write(write)
        self._look()

    def take_over(self, schema: Schema) -> None:
        """Add what classes declare and no step says, as when they are opened; it is not built yet."""
        self._write(lambda writer: take_over(writer, schema, _reader(writer)))
        self._look()

    def _count(self, writer: Writer, name: str) -> int:
        table = self._catalogue.tables[self._catalogue.models[name].table]
        condition = table.type_filter(name, "t") or "TRUE"
        (count,) = writer.get(f"SELECT count(*) FROM {quoted(table.name)} t WHERE {condition}") or (0,)
        return int(count)

    def step(self, most: int) -> Copied:
        """Turn the next entities into others, at most ``most``, in one transaction; switch with the last ones."""
        transition, copying = self._transition, self._copying
        assert transition is not None
        assert copying is not None
        read, done, total, switched = 0, 0, 0, False

        def write(writer: Writer) -> None:
            nonlocal read, done, total, switched
            staged = self._catalogue.staged
            if staged is None or staged.migration != transition.name:  # another runner has switched
                if not _is_done(self._catalogue.history, transition):
                    raise InvalidMigration(
                        transition.id,
                        ["another run gave it up while this one copied; run the one that is wanted again"],
                    )
                read, switched = 0, True
                return
            read, switched = copying.batch(writer, most), copying.ended
            done, total = writer.get(f"SELECT sum(done), sum(total) FROM {COPIES}") or (0, 0)
            if switched:
                self._switch(writer, transition, staged.catalogue, done)

        _, pace = self._paced(write)
        if switched:
            self._look()
        return Copied(read, done, max(total, done), pace, switched, copying.passed, copying.stuck)

    def _switch(self, writer: Writer, transition: Transition, staged: Catalogue, entities: int) -> None:
        """Let what was written take the place of what it was made of."""
        if is_one_way(writer):
            transition = attrs.evolve(transition, links=())
        self._save(writer, switched(writer, self._catalogue, transition, staged, entities))

    def _save(self, writer: Writer, catalogue: Catalogue) -> None:
        if self._catalogue.first_format:
            take_format(writer, catalogue)
        write_catalogue(writer, catalogue)
        writer.bump_generation()

    # ------------------------------------------------------------------------------------------ what is left

    def clear(self, most: int) -> int:
        """Delete what migrations leave behind that are done, at most so many rows in one transaction; return how many."""

        def write(writer: Writer) -> int:
            rows = writer.execute(_LEFT, (most,)).fetchall()
            if rows:
                writer.executemany(_FORGET, rows)
            return len(rows)

        if self._catalogue.first_format or not self._file.read(_LEFT, (1,)):
            return 0
        return self._write(write)

    def has_twin(self, id: str) -> bool:
        """Return whether a version of before a migration goes on, in tables that are kept in step."""
        return any(twin.migration == id for twin in self._catalogue.twins)

    def contract(self, id: str) -> None:
        """Drop what a migration left of the classes that it ended; it cannot be undone then."""

        def end(writer: Writer) -> None:
            catalogue, now = self._catalogue, writer.timestamp
            for twin in catalogue.twins:
                entry = [one for one in catalogue.history if one.id == twin.migration][-1]
                if entry.id == id or entry.undone is not None:
                    catalogue = ended(writer, catalogue, twin, entry.id)
            leaving = set(_classes_of(catalogue, id))
            anew = {label for label, state in catalogue.states.items() if state.declared}
            versions = {
                name: [
                    replace(one, until=now, retired_by=id)
                    if one.until is None and (one.behind == id or name in leaving)
                    else one
                    for one in forms
                ]
                for name, forms in catalogue.versions.items()
            }
            history = [
                replace(
                    one, contracted=one.contracted or now, drops=[label for label in one.drops if label not in anew]
                )
                if one.id == id and one.undone is None
                else one
                for one in catalogue.history
            ]
            self._save(writer, attrs.evolve(catalogue, versions=versions, history=tuple(history)))

        self._write(end)  # there is no way back from here, and nobody uses what goes: it may go bit by bit
        self._look()
        for name in _classes_of(self._catalogue, id):
            after: tuple[str, str] | None = ("", "")
            while after is not None:
                after = self._write(lambda w, n=name, a=after: delete_some(w, self._catalogue, n, a, _SMALL))  # type: ignore[misc]
        entries = [one for one in self._catalogue.history if one.id == id or one.undone is not None]
        names = [name for entry in entries for name in entry.kept]
        for name in names:
            while self._write(lambda writer, name=name: _emptied(writer, name)):  # type: ignore[misc]
                pass

        def write(writer: Writer) -> None:
            for name in names:
                writer.execute(f"DROP TABLE {quoted(name)}")
            catalogue = self._catalogue
            for label in [label for one in entries if one.undone is None for label in one.drops]:
                if label in catalogue.models or label in catalogue.index_tables:  # (else it is gone with its class)
                    catalogue = drop(writer, catalogue, label, id)
            history = [
                replace(one, kept=[], drops=[]) if one.id == id else one
                for one in catalogue.history
                if one.undone is None
            ]
            former = {
                id: one
                for id, one in catalogue.former.items()
                if not any(table.name in names for table in one.tables.values())
            }
            self._save(writer, attrs.evolve(catalogue, former=former, history=tuple(history)))

        self._write(write)
        self._look()

    def drop_former(self) -> None:
        """Drop former definitions of indexes and aggregates that no version of a class in use can declare."""
        if unused(self._catalogue) and self._catalogue.staged is None:
            self._write(lambda writer: self._save(writer, drop_former(writer, self._catalogue)))
            self._look()

    def backup(self, path: str) -> None:
        """Write a copy of one state of the file."""
        self._file.backup(path, lambda _done, _total: None)


def _fits(form: ModelForm, held: ModelForm) -> bool:
    """Return whether a class declares nothing that the file does not have as it is."""
    own = {name: replace(field, default=None) for name, field in form.fields.items()}
    theirs = {name: replace(field, default=None) for name, field in held.fields.items()}
    indexes = {name: name for name in form.indexes}
    return (
        own.items() <= theirs.items()
        and indexes_in(held.indexes, form.indexes) == indexes
        and form.aggregate == held.aggregate
    )


def _under_way(id: str, staged: Staged) -> InvalidMigration:
    return InvalidMigration(id, [f"{staged.migration} has not finished; run it to its end first"])


def _renamed(writer: Writer, catalogue: Catalogue, name: str, names: Names) -> Catalogue:
    """Give properties of a class other names, in its indexes too; return the catalogue with them."""
    form = catalogue.models[name]
    for index in form.indexes:
        before = index_columns_of(form, index)
        after = [names.get(one, one) for one in before]
        table = quoted(catalogue.index_tables[f"{name}.{index}"])
        for old, new in zip(index_column_names(before), index_column_names(after), strict=True):
            if old != new:
                writer.execute(f"ALTER TABLE {table} RENAME COLUMN {quoted(old)} TO {quoted(new)}")
    others = [one for other, one in catalogue.models.items() if other != name and one.table == form.table]
    catalogue = with_names(catalogue, name, names)
    gone = [old for old in names if not any(old in one.fields for one in others) and old not in names.values()]
    tables = catalogue.tables | {form.table: without(catalogue.tables[form.table], gone)}
    return attrs.evolve(catalogue, tables=tables)


def _reader(writer: Writer) -> Read:
    def read(sql: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return writer.execute(sql, args).fetchall()

    return read


def _is_done(history: Iterable[AppliedForm], transition: Transition) -> bool:
    stands = any(one.id == transition.id and one.switched and one.undone is None for one in history)
    return stands != transition.back


def _discarded(writer: Writer, catalogue: Catalogue) -> Catalogue:
    """Drop what was copied for a migration that is given up; return the catalogue without it."""
    assert catalogue.staged is not None
    staged = catalogue.staged.catalogue
    here = {str(name).lower() for (name,) in writer.execute("SELECT name FROM sqlite_schema")}
    names = [name for table in staged.tables.values() for name in table.ddl()]
    names += [*staged.index_tables.values()]
    for name in dict.fromkeys(names):
        if name.lower() in here:
            writer.execute(f"DROP TABLE {quoted(name)}")
    for table in (COPIES, QUEUE, LEDGER):
        writer.execute(f"DELETE FROM {table}")
    past = catalogue.past | {name.lower() for name in names}
    name = catalogue.staged.migration
    history = [one for one in catalogue.history if one.id != name or one.switched or one.undone is not None]
    return attrs.evolve(catalogue, staged=None, copies=(), history=tuple(history), past=past)


def _classes_of(catalogue: Catalogue, id: str) -> list[str]:
    """Return the classes that go with a migration, and the aggregates of them."""
    labels = {label for one in catalogue.history if one.id == id and one.undone is None for label in one.drops}
    labels -= {label for label, state in catalogue.states.items() if state.declared}
    return [
        name
        for name, form in catalogue.models.items()
        if name in labels or (form.aggregate is not UNSET and form.aggregate.of in labels)
    ]


def _emptied(writer: Writer, name: str) -> bool:
    """Delete some rows of a table; tell whether more are left than may go with it."""
    if writer.get(f"SELECT 1 FROM {quoted(name)} LIMIT 1 OFFSET ?", (_SMALL,)) is None:
        return False
    columns = [row[1] for row in writer.execute(f"PRAGMA table_info({quoted(name)})") if row[5]]
    listed = ", ".join(map(quoted, columns))
    writer.execute(
        f"DELETE FROM {quoted(name)} WHERE ({listed}) IN (SELECT {listed} FROM {quoted(name)} LIMIT ?)", (_SMALL,)
    )
    return True
