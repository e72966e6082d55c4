"""Deeds: calls of a store that write by key, drawn at random, and what is to come of them.

A call is source text. What should be there afterwards is computed from rows, as everything that is compared. Whoever
writes at random draws deeds here: the search, the state machine, mixed writes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

import tablemapper as tm

from .changes import changed, cleaned, is_refused, random_row, ruled
from .judges import Differs, Named
from .kinds import EXTRA, exact, text_of
from .models import Model, Record, slots_of
from .oracle import Row, State, plain
from .questions import Assignment, Question, random_assignment, random_element, random_part

if TYPE_CHECKING:
    from .answers import Trial

Outcome: TypeAlias = State | type[Exception]
"""What is there afterwards, or the error."""
Fits: TypeAlias = Callable[[Record, Assignment], bool]
"""Whether a class may have an assignment."""


@attrs.frozen
class Deed:
    """A call of a store."""

    verb: Literal["merge", "require", "replace_many", "clear"]
    of: str
    """The class."""
    row: Row = attrs.field(factory=dict)
    """Of the entity that it is about, or of its key."""
    assignments: tuple[Assignment, ...] = ()
    how: str = ""
    """What is required: a ``key``, an ``entity``, one that was written ``since``, or one that was ``never`` read."""
    other: Row = attrs.field(factory=dict)
    """Of the entity that is written if the other one is as required."""

    def text(self, model: Model) -> str:
        """Return source of the call."""
        record = model.record(self.of)
        key = key_text(record, self.row)
        given = _assignments_text(self.of, self.assignments)
        match self.verb:
            case "merge":
                return f"store.merge({key}, {given}, returning=True)"
            case "require":
                entity = _entity_text(self.of, self.row)
                required = {
                    "key": key, "entity": f"store[{key}]", "since": f"outdated(store, {key}, {given})", "never": entity
                }[self.how]  # fmt: skip
                write = f"tx.merge({key_text(record, self.other)}, {given})"
                return f"if_there(store, {required}, lambda tx: {write})"
            case "replace_many":
                every = f"store.query({self.of}).allow_scan()"
                return f"store.replace_many([one.replace({given}) for one in {every}])"
        return f"store.clear({self.of})"

    def do(self, trial: Trial) -> None:
        """Do it, and compare what it returns and what is there then.

        Raises:
            Differs
        """
        state = trial.state
        record = state.model.record(self.of)
        rows = state.rows(self.of)
        answer = trial.run(self.text(state.model))
        match self.verb:
            case "merge":
                touched, outcome = [self.row], self._merged(state, self.row)
            case "require" if self.how == "since":
                touched, outcome = [self.row], self._merged(state, self.row)
                if isinstance(outcome, State):
                    trial.settle(outcome, [(self.of, self.row)])
                    outcome = tm.PreconditionFailed
            case "require":
                touched, outcome = [self.other], self._required(state)
            case "replace_many":
                touched, outcome = rows, self._all(state, rows)
            case _:
                after = state.copy()
                for row in rows:
                    after.remove(self.of, row)
                touched, outcome = rows, tm.UniqueViolation if after.clashes() else after
        wanted: Any = len(rows)
        if self.verb == "require":
            wanted = None
        elif self.verb == "merge" and isinstance(outcome, State):
            (wanted,) = [row for row in outcome.rows(self.of) if _same(outcome, self.of, row, self.row)]
            if isinstance(answer, tm.Record):
                answer = {field.name: getattr(answer, field.name) for field in record.fields}
        if isinstance(outcome, type):
            if type(answer) is not outcome:
                raise Differs(outcome.__name__, repr(answer))
        elif exact(answer) != exact(wanted):
            raise Differs(repr(wanted), repr(answer))
        trial.settle(outcome if isinstance(outcome, State) else trial.state, [(self.of, row) for row in touched])

    def _merged(self, state: State, row: Row) -> Outcome:
        """Return what is there after a merge of a row that is, or is not, there."""
        outcome = _merged(state, self.of, row, self.assignments)
        return tm.UniqueViolation if isinstance(outcome, State) and outcome.clashes() else outcome

    def _required(self, state: State) -> Outcome:
        there = any(_same(state, self.of, one, self.row) for one in state.written(self.of))
        if self.how == "never":
            return tm.PreconditionFailed
        is_refused = _is_refused(state, self.of, self.assignments)
        return self._merged(state, self.other) if there or is_refused else tm.EntityNotFound

    def _all(self, state: State, rows: Sequence[Row]) -> Outcome:
        """Return what is there after rows were replaced."""
        record, after = state.model.record(self.of), state.copy()
        for row in rows:
            if (new := changed(record, row, self.assignments[0])) is None:
                return tm.InvalidEntity
            after.put(self.of, new)
        return tm.UniqueViolation if after.clashes() else after


@attrs.frozen
class Write:
    """What is done to one entity: by a store, or in a transaction."""

    verb: Literal[
        "insert", "upsert", "upsert merge", "overwrite", "replace", "merge", "returning", "or insert", "patch", "delete",
        "delete key", "stale",
    ]  # fmt: skip
    """To ``overwrite`` is to replace whatever is there; what is ``stale`` was written since it was read.

    Of merges one is ``returning`` what is stored, one is to ``or insert`` the row where it is missing, one is a ``patch``.
    """
    of: str
    row: Row
    """The entity as it is to be, or one with its key."""
    assignments: tuple[Assignment, ...] = ()

    def read_text(self, model: Model) -> str:
        """Return source of what is read before."""
        key = key_text(model.record(self.of), self.row)
        match self.verb:
            case "replace" | "delete":
                return f"store[{key}]"
            case "stale":
                return f"outdated(store, {key}, {_assignments_text(self.of, self.assignments)})"
        return "None"

    def text(self, model: Model, by: str, entity: str) -> str:
        """Return source of the call, for a store or a transaction, and what was read before."""
        record = model.record(self.of)
        key, new = key_text(record, self.row), _entity_text(self.of, self.row)
        match self.verb:
            case "insert" | "upsert":
                return f"{by}.{self.verb}({new})"
            case "upsert merge":
                return f"{by}.upsert({new}, merge=True)"
            case "overwrite":
                return f'{by}.replace({new}, if_match="*")'
            case "replace":
                values = [f"{name}={text_of(one)}" for name, one in self._values(record).items()]
                return f"{by}.replace({entity}.replace({', '.join(values)}))"
            case "merge":
                return f"{by}.merge({key}, {_assignments_text(self.of, self.assignments)})"
            case "returning":
                return f"{by}.merge({key}, {_assignments_text(self.of, self.assignments)}, returning=True)"
            case "or insert":
                return f"{by}.merge({key}, {_assignments_text(self.of, self.assignments)}, or_insert={new})"
            case "patch":
                members = [f"{one.field!r}: {text_of(one.value)}" for one in self.assignments]
                return f"{by}.merge({key}, *tm.patch({self.of}, {{{', '.join(members)}}}))"
            case "stale":
                return f"{by}.replace({entity})"
        return f"{by}.delete({entity if self.verb == 'delete' else key})"

    def _values(self, record: Record) -> Row:
        """Return what is not of the key."""
        fixed = record.key_fields.union([field.name for field in record.fields if field.on_write])
        return {name: one for name, one in self.row.items() if name not in fixed}

    def outcome(self, state: State) -> Outcome:
        """Return what is there afterwards, unique values aside."""
        record = state.model.record(self.of)
        there = next((one for one in state.written(self.of) if _same(state, self.of, one, self.row)), None)
        after = state.copy()
        match self.verb:
            case "insert" if there is not None:
                return tm.EntityExists
            case "insert" | "upsert":
                made: Row | None = self.row
            case "upsert merge":
                made = {name: one for name, one in self.row.items() if there is None or one is not None}
                made = {**(there or {}), **made}
            case "stale" if there is None:
                return tm.EntityNotFound
            case "or insert":
                return _merged(state, self.of, self.row, self.assignments, missing=self.row)
            case "merge" | "stale" | "returning" | "patch":
                return _merged(state, self.of, self.row, self.assignments)
            case _ if there is None:
                return tm.EntityNotFound
            case "overwrite":
                made = self.row
            case "replace":
                made = ruled(record, {**there, **self._values(record)})
            case _:
                after.remove(self.of, there)
                return after
        if made is None:
            return tm.InvalidEntity
        after.put(self.of, made)
        return after


@attrs.frozen
class Expected:
    """What is to come of writes."""

    before: State
    """What is there if they are refused."""
    after: State
    errors: set[type[Exception]]
    """Any of them is raised, if there are some."""


@attrs.frozen
class Writes:
    """Writes of different entities that are all done, or none: in one transaction, or in a call for all of them."""

    writes: tuple[Write, ...]
    how: Literal["one", "transaction", "many", "columns", "move"]
    """A move is written as a deletion, and an insert in its place; ``columns`` are those of ``many``, of one class."""

    @property
    def verb(self) -> str:
        return self.writes[0].verb if self.how == "one" else self.how

    @property
    def touched(self) -> list[Named]:
        return [(one.of, one.row) for one in self.writes]

    def text(self, model: Model) -> str:
        """Return source of the call."""
        first = self.writes[0]
        match self.how:
            case "one":
                return first.text(model, "store", first.read_text(model))
            case "many" if first.verb == "delete key":
                keys = [key_text(model.record(one.of), one.row) for one in self.writes]
                return f"store.delete_many([{', '.join(keys)}])"
            case "many":
                new = [_entity_text(one.of, one.row) for one in self.writes]
                return f"store.{first.verb}_many([{', '.join(new)}]{', atomic=True' * (first.verb == 'insert')})"
            case "columns":
                columns = {name: [one.row[name] for one in self.writes] for name in first.row}
                texts = [f"{name!r}: {text_of(values)}" for name, values in columns.items()]
                return f"store.upsert_columns({first.of}, {{{', '.join(texts)}}})"
            case "move":
                return f"store.move({first.read_text(model)}, {key_text(model.record(first.of), self.writes[1].row)})"
        calls = [f"lambda tx, one={one.read_text(model)}: {one.text(model, 'tx', 'one')}" for one in self.writes]
        return f"together(store, [{', '.join(calls)}])"

    def expected(self, state: State) -> Expected:
        """Return what is to come of it. What is stale is written when it is read, before anything else."""
        before, errors = state, set[type[Exception]]()
        after = state
        for write in self.writes:
            outcome = write.outcome(after)
            if write.verb == "stale" and isinstance(outcome, State):
                if outcome.clashes():
                    return Expected(state, state, {tm.UniqueViolation})
                before = after = outcome
                outcome = tm.PreconditionFailed
            if isinstance(outcome, State):
                after = outcome
            else:
                errors.add(outcome)
                if write.verb == "stale" and outcome is not tm.PreconditionFailed:
                    return Expected(state, state, errors)
        return Expected(before, after, errors | ({tm.UniqueViolation} if after.clashes() else set()))

    def do(self, trial: Trial) -> None:
        """Do it, and compare what is there then.

        Raises:
            Differs
        """
        self.judge(trial, self.expected(trial.state), trial.run(self.text(trial.state.model)))

    def judge(self, trial: Trial, expected: Expected, answer: Any) -> None:
        """Compare what came of it, and take over what is there now: of all that was written the time is another one.

        Raises:
            Differs
        """
        refused, times = isinstance(answer, Exception), trial.state.times
        if (type(answer) not in expected.errors) if refused else expected.errors:
            names = " or ".join(sorted(one.__name__ for one in expected.errors))
            raise Differs(names or "that it is done", repr(answer))
        trial.settle(expected.before if refused else expected.after, self.touched)
        written = {(name, trial.state.identity(name, row)) for name, row in self.touched if not refused}
        if same := {key for key in written & trial.state.times.keys() if times.get(key) == trial.state.times[key]}:
            raise Differs("times of now", f"{same} as they were")


def _merged(state: State, of: str, row: Row, assignments: Sequence[Assignment], missing: Row | None = None) -> Outcome:
    """Return what is there after a merge, unique values aside; where it is missing, it may be a row."""
    if _is_refused(state, of, assignments):
        return tm.InvalidEntity
    there = [one for one in state.rows(of) if _same(state, of, one, row)] or [missing] * (missing is not None)
    if not there:
        return tm.EntityNotFound
    record, made, after = state.model.record(of), dict(there[0]), state.copy()
    for assignment in assignments:
        if (new := changed(record, there[0], assignment)) is None:
            return tm.InvalidEntity
        made[assignment.field] = new[assignment.field]
    if (whole := ruled(record, made)) is None:
        return tm.InvalidEntity
    after.put(of, whole)
    return after


def _is_refused(state: State, of: str, assignments: Sequence[Assignment]) -> bool:
    return any(is_refused(state.model.record(of), one) for one in assignments)


def _same(state: State, name: str, one: Row, other: Row) -> bool:
    return state.identity(name, one) == state.identity(name, other)


def key_text(record: Record, row: Row) -> str:
    names = dict.fromkeys(slot.field for slot in slots_of(record.partition, record.row))
    return f"{record.name}.key({', '.join(text_of(row[name]) for name in names)})" if row else ""


def _entity_text(name: str, row: Row) -> str:
    return f"{name}({', '.join(f'{field}={text_of(one)}' for field, one in row.items())})"


def _assignments_text(name: str, assignments: Sequence[Assignment]) -> str:
    return ", ".join(one.text(name) for one in sorted(assignments, key=lambda one: one.named))


@attrs.frozen
class MoveByQuery:
    """A move of what a query finds to a class, with values of its fields and of the entity's."""

    question: Question
    to: str
    taken: tuple[str, ...]
    """The fields that it takes from the entity."""
    constants: tuple[tuple[str, Any], ...]
    verb: str = "move_to"

    def text(self, model: Model) -> str:
        """Return source of the call."""
        values = [f"{name}=one.{name}" for name in self.taken] + [
            f"{name}={text_of(one)}" for name, one in self.constants
        ]
        return f"{self.question.text()}.move_to(lambda one: {self.to}({', '.join(values)}))"

    def do(self, trial: Trial) -> None:
        """Do it, and compare what it returns and what is there then.

        Raises:
            Differs
        """
        state, (of,) = trial.state, self.question.of
        target = state.model.record(self.to)
        sources = [row for _, row in trial.matches(self.question)]
        set_anyway = {one.name: one.pool[0] for one in target.own if one.on_write}
        set_anyway |= dict(self.constants)
        rows = [cleaned(target, {name: row[name] for name in self.taken} | set_anyway) for row in sources]
        targets = {state.identity(self.to, row): row for row in rows}
        there = {state.identity(self.to, row): row for row in state.written(self.to)}
        moving = {state.identity(of, row) for row in sources} if of == self.to else set()
        if len(targets) < len(rows) or moving & targets.keys():
            return  # (which of them comes first is another matter)
        equal = {
            key
            for key, row in targets.items()
            if exact(there.get(key)) == exact({n: row[n] for n in there.get(key, {})})
        }
        after, errors = state.copy(), set[type[Exception]]()
        for row in sources:
            after.remove(of, row)
        for key, row in targets.items():
            if key in there and key not in equal:
                errors.add(tm.EntityExists)
            after.put(self.to, row)
        errors |= {tm.UniqueViolation} if after.clashes() else set()
        answer = trial.run(self.text(state.model))
        if isinstance(answer, tm.ScanRefused) and not self.question.scan:
            return
        if (type(answer) not in errors) if errors else exact(answer) != exact(len(sources)):
            raise Differs(f"{errors or len(sources)}", repr(answer))
        touched = [(of, row) for row in sources] + [(self.to, row) for key, row in targets.items() if key not in equal]
        trial.settle(state if errors else after, [] if errors else touched)


def random_move_by_query(rng: random.Random, state: State, question: Question) -> MoveByQuery | None:
    """Return a move of what a question finds, now and then, to any class without a rule."""
    record, target = state.model.record(question.of[0]), rng.choice(state.model.entities)
    plain = len(question.of) == 1 and not question.order and question.limit is None
    if not plain or record.of is not None or not record.options or target.rule is not None or not target.key_fields:
        return None
    if rng.random() < 0.5:
        return None
    own = {one.name: one for one in record.own}
    taken, constants = list[str](), list[tuple[str, Any]]()
    free = rng.choice(sorted(target.key_fields))  # (one of its key's becomes another value)
    for field in [one for one in target.own if not one.on_write]:
        mine = own.get(field.name)
        fits = (
            mine is not None
            and mine.kind is field.kind
            and mine.optional <= field.optional
            and mine.least == field.least
        )
        if fits and field.name != free:
            taken.append(field.name)
        else:
            constants.append((field.name, rng.choice(field.pool)))
    return MoveByQuery(question, target.name, tuple(taken), tuple(constants))


def random_deeds(rng: random.Random, state: State) -> list[Deed]:
    """Return what is done, now and then, with a store between questions."""
    record = rng.choice(state.model.entities)
    rows = state.written(record.name)
    chance = rng.random()
    if not rows or chance < 0.6:
        return []
    if chance < 0.62:
        return [Deed("clear", record.name)]
    given = _assignments(rng, record)
    if not given:
        return []
    row = rng.choice(rows)
    if chance < 0.67:
        plain = [one for one in given if one.is_whole]
        return [Deed("replace_many", record.name, assignments=(plain[0],))] if plain else []
    if chance < 0.8:
        other, how = rng.choice(rows), rng.choice(("key", "key", "entity", "since", "never"))
        if how == "key" and rng.random() < 0.5:
            row = _anything(rng, record)
        if _same(state, record.name, row, other):
            return []
        return [Deed("require", record.name, row, given[:1], how, other)]
    return [Deed("merge", record.name, _anything(rng, record) if rng.random() < 0.1 else row, given)]


def _anything(rng: random.Random, record: Record) -> Row:
    """Return a row that is not there, mostly."""
    return cleaned(record, {field.name: rng.choice(field.pool) for field in record.own})


def _assignment(rng: random.Random, record: Record) -> Assignment | None:
    if record.options and rng.random() < 0.5 and (element := random_element(rng, record)) is not None:
        return element
    return random_part(rng, record) if rng.random() < 0.5 else random_assignment(rng, record)


def _assignments(rng: random.Random, record: Record, fits: Fits = lambda *_: True) -> tuple[Assignment, ...]:
    """Return assignments of different fields."""
    some = [_assignment(rng, record) for _ in range(rng.choice((1, 1, 2, 3)))]
    return tuple({one.field: one for one in some if one is not None and fits(record, one)}.values())


def random_writes(rng: random.Random, state: State, fits: Fits = lambda *_: True) -> Writes | None:
    """Return writes of one entity or of several, of any class; None if nothing can be written so.

    Args:
        rng: draws them.
        state: what is there.
        fits: whether an assignment of a class is allowed.
    """
    how = rng.choice(("one", "one", "transaction", "transaction", "many", "move", "swap"))
    if how in ("move", "swap"):
        return (_random_move if how == "move" else _random_swap)(rng, state)
    writes: list[Write] = []
    verb = rng.choice(("insert", "upsert", "delete key")) if how == "many" else ""
    for _ in range(1 if how == "one" else rng.randrange(1, 5)):
        write = _random_write(rng, state, fits, verb)
        if write is None or any(one.of == write.of and _same(state, one.of, one.row, write.row) for one in writes):
            continue
        if write.verb != "stale" or not any(one.verb == "stale" for one in writes):
            writes.append(write)
    writes.sort(key=lambda one: one.verb != "stale")
    if verb == "upsert" and len({one.of for one in writes}) == 1:
        record = state.model.record(writes[0].of)
        if record.options and not any(one.on_write for one in record.own) and rng.random() < 0.5:
            how = "columns"
    return Writes(tuple(writes), how) if writes else None  # type: ignore[arg-type]


def _random_write(rng: random.Random, state: State, fits: Fits, verb: str = "") -> Write | None:
    record = rng.choice(state.model.entities)
    if (row := random_row(rng, record)) is None:
        return None
    row = cleaned(record, row)
    if (rows := state.written(record.name)) and rng.random() < 0.6:  # (of one that is there)
        held = rng.choice(rows)
        row |= {name: held[name] for name in record.key_fields}
        if (ruled_row := ruled(record, row)) is None:
            return None
        row = ruled_row
    can_merge = record.rule is None and all(field.kind is not EXTRA for field in record.own)
    verbs = ["insert", "upsert", "overwrite", "replace", "merge", "merge", "delete", "delete key", "stale"]
    if record.options:
        verbs += ["returning", "patch", *["or insert"] * (2 * (not record.measures))]
    verb = verb or rng.choice([*verbs, *["upsert merge"] * can_merge])
    merges = verb in ("merge", "stale", "returning", "or insert", "patch")
    assignments = _assignments(rng, record, fits) if merges else ()
    if verb == "patch":
        assignments = tuple([one for one in assignments if one.is_whole and record.field(one.field).kind is not EXTRA])
    if merges and not assignments:
        return None
    return Write(verb, record.name, row, assignments)  # type: ignore[arg-type]


def _random_swap(rng: random.Random, state: State) -> Writes | None:
    """Let two entities exchange what is to be unique."""
    unique = [(one, index) for one in state.model.entities for index in one.indexes if index.unique]
    if not unique:
        return None
    record, index = rng.choice(unique)
    rows = state.written(record.name)
    names = {slot.field for slot in slots_of(index.partition, index.row)} & {field.name for field in record.own}
    free = [name for name in names if name not in record.key_fields and not record.field(name).on_write]
    if len(rows) < 2 or not free or record.rule is not None:
        return None
    pair = rng.sample(rows, 2)
    given = [tuple(Assignment(name, "set", row[name]) for name in sorted(free)) for row in reversed(pair)]
    merges = [Write("merge", record.name, row, one) for row, one in zip(pair, given, strict=True)]
    return Writes(tuple(merges), "transaction")


def _random_move(rng: random.Random, state: State) -> Writes | None:
    record = rng.choice(state.model.entities)
    rows, other = state.written(record.name), random_row(rng, record)
    if not rows or other is None or record.rule is not None:
        return None
    if any(slot.spec not in ("", "desc") for slot in slots_of(record.partition, record.row)):
        return None  # (a field of which its key holds a part has to fit that)
    row = rng.choice(rows)
    new = {**row, **{name: plain(cleaned(record, other)[name]) for name in record.key_fields}}
    if _same(state, record.name, row, new):
        return None
    return Writes((Write("delete", record.name, row), Write("insert", record.name, new)), "move")
