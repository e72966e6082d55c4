"""A process that writes to the same groups as others do, and notes what it was told of each write.

python -m tests.engines.azure.crew CONNECTION SEED NOTES
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys

import attrs

import tablemapper as tm
from tablemapper.engines.azure import engine
from tablemapper.engines.azure.cross_partition.outbox import Outbox, Timing

TIMES = Timing(deadline=2.0, lease=4.0, grace=6.0)
TEAMS = ("red", "green", "blue")


class Member(tm.Entity, table="Members"):
    """In an index, a unique index and a total, each in another partition."""

    crew: tm.Field[str]
    id: tm.Field[str]
    team: tm.Field[str]
    score: tm.Field[float]
    email: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, str](partition="{crew}", row="{id}")
    by_team = tm.Index[str, float](partition="{team}", row="{score}")
    by_email = tm.Index[str](partition="{email}", unique=True)


class Board(tm.Aggregate, of=Member, table="Boards"):
    team: tm.Field[str] = tm.group_by(Member.team)
    members: tm.Field[int] = tm.count()
    total: tm.Field[float] = tm.sum(Member.score)
    most: tm.Field[float | None] = tm.max(Member.score)

    key = tm.Key[str](partition="{team}")
    by_members = tm.Index[str, int](partition="{team}", row="{members}")


MODELS = [Member, Board]


def hurried() -> None:
    """Let the engine of this process keep to shorter times, as all that share the store then do."""

    def outbox(catalogue: str, _: Timing) -> Outbox:
        return Outbox(catalogue, TIMES)

    engine.Outbox = outbox  # type: ignore[misc, assignment]


def work(connection: str, seed: int, notes: str) -> None:
    """Write until it is terminated; each line of the notes says what is to be tried, then what came of it."""
    hurried()
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ends.append(number))
    draw = random.Random(seed)
    mine: dict[str, Member] = {}
    made = 0
    with open(notes, "a", buffering=1) as told:

        def note(*what: object) -> None:
            told.write(json.dumps(what) + "\n")

        while not ends:
            try:
                with tm.open(connection, models=MODELS, timeout=20) as store:
                    note("open")
                    while not ends:
                        if not mine or draw.random() < 0.4:
                            made += 1
                            name = f"{os.getpid()}-{made}"
                            email = None if draw.random() < 0.5 else f"{draw.randrange(12)}@x"
                            one = Member(f"c{draw.randrange(3)}", name, draw.choice(TEAMS), made / 8, email)
                            _try(note, one, lambda one=one: store.insert(one), mine)  # type: ignore[misc]
                        elif draw.random() < 0.7:
                            old = draw.choice(list(mine.values()))
                            one = attrs.evolve(old, team=draw.choice(TEAMS), score=old.score + 0.125)
                            _try(note, one, lambda one=one: store.upsert(one), mine)  # type: ignore[misc]
                        else:
                            old = draw.choice(list(mine.values()))
                            _try(note, old, lambda old=old: store.delete(old), mine, gone=True)  # type: ignore[misc]
            except tm.StoreError as error:  # no answer while it was opened
                note("closed", str(error))


def _try(note, one, write, mine, *, gone=False) -> None:  # type: ignore[no-untyped-def]
    state = None if gone else [one.team, one.score, one.email]
    note("try", one.crew, one.id, state)
    try:
        write()
    except tm.OutcomeUnknown:
        note("unknown", one.crew, one.id, state)
        mine.pop(one.id, None)
    except (tm.UniqueViolation, tm.EntityNotFound, tm.EntityExists) as error:
        note("failed", one.crew, one.id, type(error).__name__)
    else:
        note("done", one.crew, one.id, state)
        if gone:
            mine.pop(one.id, None)
        else:
            mine[one.id] = one


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), sys.argv[3])
