"""Models as an older version of a program has them, and as a newer one leaves something away."""

from __future__ import annotations

import random

import attrs

import tablemapper as tm
from tablemapper.schema.model import compile_schema

from .kinds import EXTRA, NESTED
from .models import Field, Model, Record, compiled


def thinner(rng: random.Random, model: Model) -> Model:
    """Return a model that a store can grow from: without some indexes, aggregates and fields, with these in another order."""
    older = _without_some(rng, model)
    for share in (0.5, 0.2):  # (what is left may need a field that is gone: then fewer go)
        narrower = Model(tuple([_narrowed(rng, record, share) for record in older.records]))
        if _is_possible(narrower):
            return narrower
    return older


def reduced(rng: random.Random, model: Model) -> Model:
    """Return a model that declares some indexes and aggregates no more, which a store goes on to maintain."""
    return _without_some(rng, model) if rng.random() < 0.3 else model


def _without_some(rng: random.Random, model: Model) -> Model:
    records = []
    for record in model.records:
        # (A new unique index may find values that are held twice.)
        indexes = tuple([one for one in record.indexes if one.unique or rng.random() < 0.6])
        if record.of is None and record.measures and rng.random() < 0.5:
            record = attrs.evolve(record, fields=record.own, measures={})
        if record.of is None or rng.random() < 0.6:
            records.append(attrs.evolve(record, indexes=indexes))
    fewer = Model(tuple(records))
    return fewer if _is_possible(fewer) else model


def _narrowed(rng: random.Random, record: Record, share: float) -> Record:
    """Return a class that lacks a share of the fields that it may get, or in which such a field is not optional yet."""
    if record.of is not None:
        return record
    fields: list[Field] = []
    for field in [attrs.evolve(one, expires=False, on_write=False) for one in record.fields]:
        drawn, is_own = rng.random(), field.name not in record.measures
        may_come = field.optional or field.kind is EXTRA or (field.default and field.kind not in NESTED)
        if field.name in record.key_fields or not (may_come and is_own) or drawn > share:
            fields.append(field)
        elif field.optional and drawn > share / 2:
            fields.append(attrs.evolve(field, optional=False, default=False))
    if rng.random() < 0.3:
        rng.shuffle(fields)
    return attrs.evolve(record, fields=tuple(fields))


def _is_possible(model: Model) -> bool:
    """Return whether the classes of a model can be declared, and opened together."""
    try:
        names = compiled(model.source())
        compile_schema([names[record.name] for record in model.records])
    except (tm.TableMapperError, AttributeError, NameError, TypeError, ValueError, KeyError):
        return False
    return True
