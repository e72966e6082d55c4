"""Members of crews, and boards of what these add up to: each maintained in another partition."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import tablemapper as tm
from tablemapper.engines.protocol import Operation
from tablemapper.schema.model import Schema


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


def drawn_write(schema: Schema, rng: random.Random, ids: Sequence[str]) -> Operation:
    """Return a write of a member of one of two crews that is drawn."""
    model = schema.by_name["Member"]
    partition, row = Member.key(rng.choice("ab"), rng.choice(ids))[1:]
    values = {"team": rng.choice(["red", "blue"]), "score": rng.random(), "email": rng.choice("xyz")}
    new = (partition, row, 0, *[values.get(field.name) for field in model.columns])
    verb: Any = rng.choice(["upsert", "upsert", "delete"])
    return Operation(verb, model, partition, row, None if verb == "delete" else new)
