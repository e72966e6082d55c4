"""The random search: models, rows and questions from a seed; what fails is made small and printed as a program."""

from __future__ import annotations

import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import attrs

from .answers import Case, Trial, random_rows
from .deeds import Deed, MoveByQuery, Writes, random_deeds, random_move_by_query, random_writes
from .judges import Differs, Named
from .models import Model, Record
from .oracle import State
from .questions import (
    Ask,
    Question,
    random_asks,
    random_changes,
    random_pairs,
    random_parts,
    random_question,
    random_views,
    random_walk,
    smaller,
)
from .random_models import (
    ended_rows,
    random_model,
    with_ending,
    with_large,
    with_levels,
    with_maintained,
    with_options,
    with_rules,
    with_stamp,
    with_turned,
    with_undeclared,
)

LOCAL = 1_000_000
"""How many seeds have models of one time, before those of another: of UTC, and of zones."""
QUESTIONS = 20
"""That are asked of each store."""
WIDER = 4_000_000
"""The first seed whose models may have keys that end in a tuple, and whose queries are split."""
MAINTAINED = 6_000_000
"""The first seed whose models may have maintained fields."""
UNDECLARED = 8_000_000
"""The first seed of undeclared properties in indexes, of questions of timestamps, and of updates of parts of fields."""
DEEDS = 20_000_000
"""The first seed of calls that write by key, of columns and JSON, and of the timestamps of groups."""
RULES = 40_000_000
"""The first seed whose models may ask something of their values, in one spelling or another."""
TURNED = 60_000_000
"""The first seed of partitions of a cut time, and of texts that others begin with, with rows the other way."""
WRITES = 80_000_000
"""The first seed of every other write by key: alone, in transactions, of many at once."""
STAMPED = 70_000_000
"""From here to the writes, models often have a field that each write sets."""
ENDING = 100_000_000
"""The first seed of classes that end: some of their entities have ended, and nothing finds these."""
OPTIONS = 120_000_000
"""The first seed of writes of elements and by patches, of pairs, moves by query, and variants; half of the classes end."""


_OF_ALL = frozenset({"partitions", "clear"})
"""What counts what has ended, too."""


@attrs.frozen
class Failure:
    """What was found."""

    seed: int
    case: Case
    differs: str
    alone: bool
    """Whether a store of its own shows it; else what was written before counts too."""

    def __str__(self) -> str:
        more = "" if self.alone else "\n# (seen after other writes only)"
        return f"# seed {self.seed}{more}\n{self.case.program()}\n\n{self.differs}\n"


@attrs.define
class Tally:
    """How much was tried."""

    models: int = 0
    questions: int = 0
    refused: int = 0
    asks: Counter[str] = attrs.field(factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        asked = sum(self.asks.values())
        rate = (
            f"{self.models / self.seconds:.1f} models, {self.questions / self.seconds:.0f} questions"
            if self.seconds
            else ""
        )
        return f"{self.models} models, {self.questions} questions, {asked} answers in {self.seconds:.1f} s ({rate} a second)"


@attrs.frozen
class Kept:
    """What can be asked of the engine that keeps the stores; by default everything."""

    model: Callable[[Model], Model] = lambda model: model
    """Returns a model without what the engine tells otherwise."""
    asks: Callable[[Ask, Model], bool] = lambda ask, model: True
    deeds: Callable[[Deed | Writes | MoveByQuery], bool] = lambda deed: True
    refused: tuple[type[Exception], ...] = ()
    """How it refuses a model that it cannot keep."""


def search(
    seeds: Iterable[int], *, seconds: float | None = None, tally: Tally | None = None, kept: Kept = Kept()
) -> Iterator[Failure]:
    """Yield what is found, at most one failure of a seed; every other million of seeds is of times in zones.

    Args:
        seeds: each gives one model, its rows, and what is asked of them.
        seconds: of CPU time, after which no other seed is begun.
        tally: counts what is tried.
        kept: what the engine can be asked.
    """
    tally = Tally() if tally is None else tally
    began = time.process_time()
    for seed in seeds:
        tally.models += 1
        if (failure := _tried(seed, tally, kept)) is not None:
            yield failure
        tally.seconds = time.process_time() - began
        if seconds is not None and tally.seconds >= seconds:
            return


def _tried(seed: int, tally: Tally, kept: Kept) -> Failure | None:
    rng = random.Random(seed)
    model = random_model(rng, local=seed // LOCAL % 2 == 1)
    more = random.Random(~seed)  # (so that what came later leaves the models alone that show certain faults)
    if TURNED <= seed < WRITES and more.random() < 0.8:
        model = with_turned(more, model)
    if seed >= WIDER and more.random() < 0.5:
        model = with_levels(more, model)
    if seed >= MAINTAINED and more.random() < 0.7:
        model = with_maintained(more, model, calculated=seed >= WRITES)
    if seed >= UNDECLARED and more.random() < 0.6:
        model = with_undeclared(more, model)
    if seed >= UNDECLARED and more.random() < 0.5:
        model = attrs.evolve(model, records=tuple(attrs.evolve(one, timed=one.of is None) for one in model.records))
    if seed >= DEEDS and more.random() < 0.5:
        model = attrs.evolve(model, records=tuple(attrs.evolve(one, timed=True) for one in model.records))
    if (RULES <= seed < TURNED or WRITES <= seed < ENDING) and more.random() < 0.8:
        model = with_rules(more, model)
    ends = seed >= ENDING and (seed < OPTIONS or more.random() < 0.5)
    if ends:
        model = with_ending(more, model)
    elif seed >= OPTIONS and more.random() < 0.5:
        model = with_rules(more, model)
    if seed >= OPTIONS:
        model = with_options(more, model)
    beside = random.Random(f"stamp {seed}")
    if (STAMPED <= seed < WRITES and beside.random() < 0.8) or (seed >= ENDING and beside.random() < 0.3):
        model = with_stamp(beside, model)
    if seed >= ENDING and random.Random(f"large {seed}").random() < 0.15:
        model = with_large(beside, model)
    model = kept.model(model)
    rows = tuple((record.name, row) for record in model.entities for row in random_rows(rng, record, 14))
    late = rng.random() < 0.1
    if ends:
        rows = tuple(ended_rows(more, model, [*rows]))
        # (An index is built over what has ended, too.)
        late = late and not any(index.unique for record in model.records for index in record.indexes)
    case = Case(model, rows, Question((model.records[0].name,)), Ask("content"), late)
    try:
        with Trial.open(model, late=late, rows=rows) as trial:
            for _ in range(QUESTIONS):
                tally.questions += 1
                question = random_question(rng, trial.state)
                if seed >= TURNED and more.random() < 0.5:
                    question = random_walk(more, trial.state)
                parts = random_parts(more, question) if seed >= WIDER else []
                changes = random_changes(more, trial.state, question) if seed >= UNDECLARED else []
                pairs = random_pairs(more, trial.state, question) if seed >= OPTIONS else []
                views = random_views(more, trial.state, question) if seed >= DEEDS else []
                for ask in (*parts, *views, *pairs, *random_asks(rng, trial.state, question), *changes):
                    if not kept.asks(ask, model) or (ends and ask.verb in _OF_ALL):
                        continue
                    tally.asks[ask.verb] += 1
                    case = Case(model, _rows(trial.state), question, ask, late)
                    trial.ask(question, ask)
                deeds: list[Deed | Writes | MoveByQuery] = [*random_deeds(more, trial.state)] if seed >= DEEDS else []
                if seed >= WRITES and (writes := random_writes(more, trial.state)) is not None:
                    deeds = [writes]
                if seed >= OPTIONS and (move := random_move_by_query(more, trial.state, question)) is not None:
                    deeds.append(move)
                for deed in filter(kept.deeds, deeds):
                    if ends and (deed.verb in _OF_ALL or "atomic=True" in deed.text(model)):
                        continue  # (which is refused where what has ended has a key)
                    tally.asks[deed.verb] += 1
                    case = Case(model, _rows(trial.state), question, deed, late)
                    deed.do(trial)
    except Differs as differs:
        return _failure(seed, case, str(differs))
    except kept.refused:
        tally.refused += 1
    return None


def _rows(state: State) -> tuple[Named, ...]:
    return tuple((record.name, row) for record in state.model.entities for row in state.written(record.name))


def _failure(seed: int, case: Case, differs: str) -> Failure:
    alone = case.differs()
    return Failure(seed, case, differs, False) if alone is None else Failure(seed, case, alone, True)


def shrunk(failure: Failure, tries: int = 400) -> Failure:
    """Return a smaller case that fails too."""
    if not failure.alone:
        return failure
    case, differs = failure.case, failure.differs
    left = tries
    again = True
    while again and left > 0:
        again = False
        for one in _smaller(case):
            left -= 1
            try:
                text = one.differs()
            except Exception:  # it is no valid case any more
                text = None
            if text is not None and _kind(text) == _kind(differs):
                case, differs, again = one, text, True
                break
            if left <= 0:
                break
    return attrs.evolve(failure, case=case, differs=differs)


def _kind(differs: str) -> str:
    """Return what stays the same while a case gets smaller: the type of an error."""
    found = differs.partition("\nfound    ")[2]
    return found.partition("(")[0] if found.partition("(")[0].endswith("Error") else ""


def _smaller(case: Case) -> Iterator[Case]:
    rows = case.rows
    for size in (len(rows) // 2, len(rows) // 4, 1):
        if size:
            for at in range(0, len(rows), size):
                yield attrs.evolve(case, rows=rows[:at] + rows[at + size :])
    for question in smaller(case.question):
        yield attrs.evolve(case, question=question)
    if case.late:
        yield attrs.evolve(case, late=False)
    for model in _smaller_models(case.model):
        fields = {record.name: {field.name for field in record.fields} for record in model.records}
        kept = tuple(
            (name, {field: one for field, one in row.items() if field in fields[name]})
            for name, row in rows
            if name in fields
        )
        yield attrs.evolve(case, model=model, rows=kept)


def _smaller_models(model: Model) -> Iterator[Model]:
    for at, record in enumerate(model.records):
        if at and all(other.over != record.name for other in model.records):
            yield attrs.evolve(model, records=model.records[:at] + model.records[at + 1 :])

        def put(change: Callable[[Record], Record], at: int = at) -> Model:
            records = list(model.records)
            records[at] = change(records[at])
            return attrs.evolve(model, records=tuple(records))

        for place, index in enumerate(record.indexes):
            rest = record.indexes[:place] + record.indexes[place + 1 :]
            yield put(lambda one, rest=rest: attrs.evolve(one, indexes=rest))  # type: ignore[misc]
            for plainer in (
                attrs.evolve(index, where=None), attrs.evolve(index, include=()), attrs.evolve(index, unique=False),
                attrs.evolve(index, every=False),
            ):  # fmt: skip
                if plainer != index:
                    more = (*record.indexes[:place], plainer, *record.indexes[place + 1 :])
                    yield put(lambda one, more=more: attrs.evolve(one, indexes=more))  # type: ignore[misc]
        for field in record.fields:
            fields = tuple(one for one in record.fields if one != field)
            measures = {name: one for name, one in record.measures.items() if name != field.name}
            yield put(lambda one, f=fields, m=measures: attrs.evolve(one, fields=f, measures=m))  # type: ignore[misc]
            if field.stored or field.default:
                simple = attrs.evolve(field, stored=False, default=False)
                fields = tuple(simple if one == field else one for one in record.fields)
                yield put(lambda one, f=fields: attrs.evolve(one, fields=f))  # type: ignore[misc]
        if record.where is not None:
            yield put(lambda one: attrs.evolve(one, where=None))
        if record.rule is not None:
            yield put(lambda one: attrs.evolve(one, rule=None))
        if record.lent is not None:
            yield put(lambda one: attrs.evolve(one, lent=None))


def main(start: int, seconds: float) -> None:
    """Search from a seed, and print what is found."""
    logging.getLogger("tablemapper.query").setLevel(logging.ERROR)
    tally = Tally()
    for failure in search(iter(range(start, sys.maxsize)), seconds=seconds, tally=tally):
        print(shrunk(failure), flush=True)
        print("-" * 100, flush=True)
    print(tally)
    print(dict(tally.asks))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
