"""What a store answers, compared with what is true."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs

import tablemapper as tm

from ..query.test_query import ImpossiblePath, forced
from . import changes, stores
from .deeds import Deed, MoveByQuery, Writes, key_text
from .judges import JUDGES, Differs, Named, ambiguous, counted, most_of, place, same_rows
from .kinds import WRITTEN, exact, text_of
from .models import Model, Record, compiled
from .oracle import Row, State, entries, holds, in_order, in_range, plain, sort_values
from .questions import Ask, Question, can_be_asked


@attrs.frozen
class Case:
    """Something to try: rows of a model, a question, and what is asked of it."""

    model: Model
    rows: tuple[Named, ...]
    question: Question
    ask: Ask | Deed | MoveByQuery | Writes
    late: bool = False
    """Whether indexes and aggregates are declared when the rows are there."""

    def program(self) -> str:
        """Return source that shows it, to be run where the tests can be imported."""
        entities, every = (", ".join(one.name for one in some) for some in (self.model.entities, self.model.records))
        modules = ("tests.whole.kinds", "tests.whole.stores")
        lines = ["from tests.query.test_query import forced", *[f"from {one} import *" for one in modules], ""]
        if self.late:
            lines += [self.model.bare.source(), "", f'store = opened("x.db", [{entities}])']
        else:
            lines += [self.model.source(), "", f'store = opened(":memory:", [{every}])']
        for record, rows in _in_turn(self.model.bare if self.late else self.model, self.rows):
            texts = [", ".join(f"{field}={text_of(one)}" for field, one in row.items()) for row in rows]
            lines += ["store.insert_many([", *(f"    {record.name}({text})," for text in texts), "])"]
        if self.late:
            lines += ["store.close()", "", self.model.source(), "", f'store = opened("x.db", [{every}])']
        if isinstance(self.ask, Deed | MoveByQuery | Writes):
            lines += [f"print({self.ask.text(self.model)})"]
        if isinstance(self.ask, Deed | MoveByQuery | Writes) or self.ask.verb == "content":
            lines += [
                f"for one in ({every},):",
                "    print(list(store.query(one).allow_scan()))",
                "print(store.check())",
            ]
        else:
            lines += [f"q = {self.question.text(self.ask.style)}", f"print({self.ask.text(self.question.of[0])})"]
        return "\n".join(lines)

    def differs(self) -> str | None:
        """Try it with a store of its own; return how the answer differs, None if it does not."""
        try:
            with Trial.open(self.model, late=self.late, rows=self.rows) as trial:
                if isinstance(self.ask, Deed | MoveByQuery | Writes):
                    self.ask.do(trial)
                elif self.ask.verb != "content":
                    trial.ask(self.question, self.ask)
        except Differs as differs:
            return str(differs)
        return None


def random_rows(rng: random.Random, record: Record, most: int) -> list[Row]:
    """Return rows of a class, no two with the same key."""
    count = max(rng.randrange(most + 1), rng.randrange(most + 1))
    return [row for _ in range(count) if (row := changes.random_row(rng, record)) is not None]


def _in_turn(model: Model, rows: Sequence[Named]) -> Iterator[tuple[Record, list[Row]]]:
    """Yield rows as they are inserted: some entities with maintained fields before what those are over, some behind."""
    behind: list[tuple[Record, list[Row]]] = []
    for record in sorted(model.entities, key=lambda one: not one.measures):
        own = [row for name, row in rows if name == record.name]
        if record.measures:
            early = 0 if any(index.unique for index in record.indexes) else len(own) // 2
            behind.append((record, own[early:]))
            own = own[:early]
        step = 3 if record.timed else max(1, len(own))  # (each write has a time of its own)
        yield from ((record, own[at : at + step]) for at in range(0, len(own), step))
    yield from behind


@lru_cache(maxsize=2048)
def _code(text: str) -> Any:
    return compile(text, "<question>", "eval")


class Trial:
    """A store with random classes, and what should be in it."""

    def __init__(self, store: tm.Store, names: dict[str, Any], state: State) -> None:
        self.store = store
        self.names = {**vars(stores), **names, "store": store, "forced": forced}
        self.state = state
        self._known: tuple[Question, list[Named]] | None = None
        """What was asked last, and the rows that it is to find."""

    @classmethod
    @contextmanager
    def open(cls, model: Model, *, late: bool = False, rows: Iterable[Named] = ()) -> Iterator[Trial]:
        """Open a store with rows; those that could not be there beside others are left out.

        Args:
            model: of the store.
            late: whether indexes and aggregates come when the rows are there.
            rows: what is put into it.
        """
        state = State(model)
        ended: list[Named] = []
        for name, row in rows:
            row = changes.cleaned(model.record(name), row)
            if model.record(name).has_ended(row):
                ended.append((name, row))
            elif state.identity(name, row) not in {state.identity(name, one) for one in state.rows(name)}:
                after = state.copy()
                after.put(name, row)
                state = state if after.clashes() else after
        names = compiled(model.source())
        every = [names[record.name] for record in model.records]
        if not late:
            with stores.opened(":memory:", every) as store:
                yield cls(store, names, state)._filled(names, ended)
            return
        with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            bare = compiled(model.bare.source())
            path = f"{folder}/x.db"
            with stores.opened(path, [bare[record.name] for record in model.entities]) as store:
                cls(store, bare, state.bare())._filled(bare, ended)
            with stores.opened(path, every) as store:
                trial = cls(store, names, state)
                trial.compare_all()
                yield trial

    def _filled(self, names: dict[str, Any], ended: Iterable[Named] = ()) -> Trial:
        for name, row in ended:
            self.store.insert(names[name](**row))
        rows = [(one.name, row) for one in self.state.model.entities for row in self.state.written(one.name)]
        for record, some in _in_turn(self.state.model, rows):
            self.store.insert_many(names[record.name](**row) for row in some)
        self.compare_all()
        return self

    def reopen(self, store: tm.Store) -> None:
        """Go on with another store over the same rows."""
        self.store = self.names["store"] = store

    def take_over(self) -> None:
        """Take what entities are there for those that should be, and of groups what ever was."""
        self.state, self._known = State(self.state.model), None
        for record in self.state.model.records:
            for name, row in self.content(record.name):
                if record.of is None:
                    self.state.put(name, row)
                else:
                    self.state.recall(name, row)

    # ------------------------------------------------------------------------------------------ what is there

    def rows_of(self, found: Iterable[Any]) -> list[Named]:
        """Return entities as rows."""
        rows = []
        for entity in found:
            name = type(entity).__name__.removesuffix(self.state.model.variant)
            record = self.state.model.record(name)
            row = {field.name: getattr(entity, field.name) for field in record.fields}
            rows.append((name, {**row, WRITTEN: tm.info(entity).timestamp} if record.timed else row))
        return rows

    def content(self, name: str, partition: str | None = None) -> list[Named]:
        """Return all entities of a class, or those of a partition, as rows."""
        every = self.store.query(self.names[name]).allow_scan()
        return self.rows_of(one for one in every if partition is None or place(one)[0] == partition)

    def compare_all(self) -> None:
        """Compare everything that is in the store.

        Raises:
            Differs
        """
        self._take_times()
        self.compare_rows(self.state)
        report = self.store.check()
        if not report.ok:
            raise Differs("a clean check", str(report))

    def compare_rows(self, state: State) -> None:
        """Compare what is found of each class.

        Raises:
            Differs
        """
        for record in state.model.records:
            same_rows([(record.name, row) for row in state.rows(record.name)], self.content(record.name))

    def compare_indexes(self) -> None:
        """Compare what each index finds for some values, and what it includes.

        Raises:
            Differs
        """
        for record in self.state.model.records:
            for index in record.indexes:
                held = [one for row in self.state.rows(record.name) for one in entries(record, index, row)]
                firsts: list[tuple[Any, ...]] = [tuple(one[name] for name in index.arguments[:1]) for one in held]
                included = tuple(record.operand(name) for name in index.include if not record.field(name).kind.element)
                for given in list(dict.fromkeys(firsts))[:3] if all(map(can_be_asked, chain(*firsts))) else ():
                    question = Question((record.name,), index.name, given)
                    self.ask(question, Ask("list"))
                    if included:
                        self.ask(question, Ask("select", included))

    def compare_keys(self, more: Iterable[Named] = ()) -> None:
        """Compare what is found by the keys of all rows, and by those of some that need not be there.

        Raises:
            Differs
        """
        model = self.state.model
        there = {
            (one.name, self.state.identity(one.name, row)): row
            for one in model.records
            for row in self.state.rows(one.name)
        }
        named = [*[(name, row) for (name, _), row in there.items()]]
        named += [(name, changes.cleaned(model.record(name), row)) for name, row in more]
        keys = [key_text(model.record(name), row) for name, row in named]
        wanted = [there.get((name, self.state.identity(name, row))) for name, row in named]
        found = [one and self.rows_of([one])[0][1] for one in self.run(f"store.get_many([{', '.join(keys)}])")]
        if list(map(exact, wanted)) != list(map(exact, found)):
            raise Differs(f"{wanted}", f"{found}")
        if self.run(f"[store.exists(key) for key in [{', '.join(keys)}]]") != [one is not None for one in wanted]:
            raise Differs(f"that there are {wanted}", "others")

    def _take_times(self) -> None:
        state = self.state
        found = {
            (name, state.identity(name, row)): row[WRITTEN]
            for record in state.model.records
            if record.timed
            for name, row in self.content(record.name)
        }
        latest = max(filter(None, state.times.values()), default=None)
        for key, at in found.items():
            if at is None or (latest is not None and at != state.times.get(key) and at <= latest):
                raise Differs(f"a time after {latest}, or {state.times.get(key)}", f"{key}: {at}")
        state.times = found

    # ------------------------------------------------------------------------------------------ what is asked

    def matches(self, question: Question) -> list[Named]:
        """Return the rows that a query is to find, in its order."""
        if self._known is not None and self._known[0] is question:
            return self._known[1]
        model = self.state.model
        found: list[Named] = []
        for name in question.of:
            record = model.record(name)
            index = next((one for one in record.indexes if one.name == question.index), None)
            for row in self.state.rows(name):
                if index is not None and not in_range(record, index, question.given, row):
                    continue
                if all(holds(condition, row) for _, condition in question.where):
                    found.append((name, row))
        names = {id(row): name for name, row in found}
        found = [(names[id(row)], row) for row in in_order([row for _, row in found], question.order)]
        self._known = question, found
        return found

    def ask(self, question: Question, ask: Ask) -> None:
        """Ask something, and compare the answer.

        Raises:
            Differs
        """
        query = self.run(question.text(ask.style))
        if isinstance(query, Exception):
            raise Differs("a query", repr(query))
        matches = self.matches(question)
        if ask.verb == "every plan":
            self._every_plan(query, question, matches)
        elif ask.verb in ("update", "delete"):
            self._write(query, question, ask, matches)
        else:
            answer = self.run(ask.text(question.of[0]), q=query)
            if isinstance(answer, tm.ScanRefused) and not question.scan:
                if not isinstance(self.run("list(q)", q=query), tm.ScanRefused):
                    raise Differs("what list() gives", repr(answer))
                return
            JUDGES[ask.verb](self, question, ask, matches, answer, query)

    def run(self, text: str, **more: Any) -> Any:
        """Return what source gives, or the error that it raises."""
        try:
            return eval(_code(text), {**self.names, **more})
        except Exception as error:
            return error

    def _every_plan(self, query: Any, question: Question, matches: list[Named]) -> None:
        name = question.of[0]
        selected = dict.fromkeys([*(one for one, _ in question.order), *self.state.model.record(name).operands])
        for one in forced(query):
            path = self.run("q.explain().path", q=one)
            if isinstance(path, ImpossiblePath):  # it is not possible for these values
                continue
            try:
                for ask in (Ask("list"), Ask("pages", size=2), Ask("select", tuple(selected)[:8])):
                    JUDGES[ask.verb](self, question, ask, matches, self.run(ask.text(name), q=one), one)
                counted(self, question, Ask("count"), matches, self.run("super(type(q), q).count()", q=one), one)
            except Differs as differs:
                raise Differs(f"by {path}: {differs.expected}", differs.found) from None

    def _write(self, query: Any, question: Question, ask: Ask, matches: list[Named]) -> None:
        name = question.of[0]
        record = self.state.model.record(name)
        most = most_of(question, matches)
        changed = (
            {id(row): changes.changed(record, row, ask.assignment) for _, row in matches} if ask.assignment else {}
        )
        answer = self.run(ask.text(name), q=query)
        if isinstance(answer, tm.ScanRefused) and not question.scan:
            return
        refused = isinstance(answer, tm.InvalidEntity | tm.UniqueViolation)
        if isinstance(answer, Exception) and not refused:
            raise Differs(f"{most} writes", repr(answer))
        if not ambiguous(question, matches):
            possible = self._after(name, matches[:most], changed)
            if ask.assignment is not None and not ask.how:
                possible = possible and not changes.is_refused(record, ask.assignment)
            if refused is possible:
                raise Differs(f"{most} writes" if possible else "that it is refused", repr(answer))
        after = self.state if refused else self._written(record, question, matches, changed, answer, most)
        self.settle(after, matches)

    def settle(self, after: State, touched: Iterable[Named]) -> None:
        """Take over what was written, and compare everything: what is as it was, was not written.

        Args:
            after: what should be there now.
            touched: the rows that may have been written, be they other ones or not.

        Raises:
            Differs
        """
        before, times = self._groups(), self.state.times
        written = {(name, self.state.identity(name, row)) for name, row in touched}
        self._known = None
        self.state = after
        self.compare_all()
        groups = self._groups()
        for key, at in self.state.times.items():
            same = before.get(key) == groups[key] if key in groups else key not in written
            if same is not (times.get(key) == at) and (same or key in groups):
                raise Differs(f"{key} {'as it was' if same else 'anew'}: {times.get(key)}", f"{at}")

    def _groups(self) -> dict[Any, str]:
        """Return the groups whose times are known."""
        state = self.state
        timed = [record for record in state.model.records if record.timed and record.of is not None]
        rows = [(record.name, row) for record in timed for row in state.rows(record.name)]
        return {(name, state.identity(name, row)): exact(row) for name, row in rows}

    def _after(self, name: str, chosen: list[Named], changed: dict[int, Row | None]) -> bool:
        """Tell whether rows can be written so."""
        after = self.state.copy()
        for _, row in chosen:
            if not changed:
                after.remove(name, row)
            elif (made := changed[id(row)]) is None:
                return False
            else:
                after.put(name, made)
        return not after.clashes()

    def _written(
        self,
        record: Record,
        question: Question,
        matches: list[Named],
        changed: dict[int, Row | None],
        number: Any,
        most: int,
    ) -> State:
        """Compare what was written, and return what is there: it may be any of those that are equal under the order."""
        name, state = record.name, self.state.copy()
        there = {self.state.identity(name, row): row for _, row in self.content(name)}
        wanted = in_order([row for _, row in matches], question.order)[:most]

        def ranks(rows: Iterable[Row]) -> list[str]:  # (equal Decimals may have other zeros)
            return sorted(exact(tuple(map(plain, sort_values(row, question.order)))) for row in rows)

        written: list[Row] = []
        same = 0
        for _, row in matches:
            after, now = changed.get(id(row)) if changed else None, there.get(self.state.identity(name, row))
            if changed and after is not None and exact(after) == exact(row) == exact(now):
                same += 1
            elif exact(now) == exact(after):
                written.append(row)
            elif exact(now) != exact(row):
                raise Differs(f"{after or 'nothing'} or {row}", str(now))
        if not len(written) <= number <= min(most, len(written) + same) or len(written) + same < most:
            raise Differs(
                f"{most} of {len(matches)} written", f"{len(written)} written, {same} the same, {number} returned"
            )
        if not same and ranks(wanted) != ranks(written):
            raise Differs(f"written {wanted}", f"written {written}")
        for row in written:
            after = changed.get(id(row)) if changed else None
            if after is None:
                state.remove(name, row)
            else:
                state.put(name, after)
        return state
