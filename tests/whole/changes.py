"""Rows as they may be written, and what a row is after an assignment, in plain Python."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import attrs

import tablemapper as tm

from .kinds import ANY, EXTRA
from .models import Field, Record
from .oracle import Row, clean, total
from .questions import LIST_VERBS, Assignment


def random_row(rng: random.Random, record: Record) -> Row | None:
    """Return a row of a class; None if the class refuses what was drawn."""
    row = {
        field.name: None if field.optional and rng.random() < 0.25 else rng.choice(field.pool) for field in record.own
    }
    return ruled(record, row)


def cleaned(record: Record, row: Row) -> Row:
    """Return a row as an entity holds it."""
    return {name: clean(one, record.field(name).kind) for name, one in row.items()}


def changed(record: Record, row: Row, assignment: Assignment) -> Row | None:
    """Return a row after an update; None if it can not be stored."""
    made = _assigned(record, row, assignment)
    return None if made is None else ruled(record, made)


def is_refused(record: Record, assignment: Assignment) -> bool:
    """Tell whether an assignment is refused whatever it is for: it sets a field to what cannot be stored there."""
    field = record.field(assignment.field)
    return assignment.is_whole and not _storable(field, assignment.value)


def ruled(record: Record, row: Row) -> Row | None:
    """Return a row as the rule of its class makes it; None if that refuses it."""
    if (rule := record.rule) is None:
        return row
    value = rule.value(clean(row[rule.of], record.field(rule.of).kind))
    return None if value == rule.never else {**row, rule.field: value}


def _assigned(record: Record, row: Row, assignment: Assignment) -> Row | None:
    field, given = record.field(assignment.field), assignment.value
    held = row[field.name]
    if assignment.part is not None:
        try:
            return {**row, field.name: _with_part(field, held, assignment)}
        except ValueError:
            return None
    if assignment.place is not None or assignment.verb in LIST_VERBS:
        try:
            return {**row, field.name: _with_element(held, assignment)}
        except IndexError:
            return None
    match assignment.verb:
        case "set":
            made = given
        case "copy":
            made = row[given]
        case verb:
            made = (given if verb == "add" else None) if held is None else _added(held, given)
    return {**row, field.name: clean(made, field.kind)} if _storable(field, made) else None


def _with_element(held: Any, assignment: Assignment) -> Any:
    """Return a list with other elements; IndexError if it has none such."""
    given, items = assignment.value, list(held or [])
    match assignment.verb:
        case "discard":
            return held if held is None else [one for one in items if one != given]
        case "append":
            items.append(given)
        case "extend":
            items.extend(given)
        case "set":
            items[assignment.place] = given
        case _:
            del items[assignment.place]
    return items


def _with_part(field: Field, held: Any, assignment: Assignment) -> Any:
    """Return a nested value with another part; ValueError if it can have none such."""
    assert assignment.part is not None
    step, given = assignment.part.step, assignment.value
    entries = field.kind is EXTRA or field.kind.annotation.startswith("dict")
    was = None if held is None else held.get(step) if entries else getattr(held, step)
    if assignment.verb == "add" and was is not None:
        if assignment.part.kind is ANY and type(was) is not type(given):
            raise ValueError("of another type")
        given = was + given
    if not entries:
        if held is None:
            raise ValueError("there is nothing that it is a part of")
        return attrs.evolve(held, **{step: given})
    rest = {name: one for name, one in (held or {}).items() if name != step}
    made = rest if assignment.verb == "remove" else {**rest, step: given}
    return held if held is None and not made else tm.Extra(made) if field.kind is EXTRA else made


def _added(one: Any, other: Any) -> Any:
    try:
        return total([one, other]) if isinstance(one, Decimal) else one + other
    except OverflowError:
        return None


def _storable(field: Field, given: Any) -> bool:
    if given is None:
        return field.optional
    if field.least is not None and given < field.least:
        return False
    match field.kind.annotation:
        case "int":
            return -(2**63) <= given < 2**63
        case "tm.Int32":
            return -(2**31) <= given < 2**31
        case "float":
            return bool(given == given)
        case "Decimal":
            return len(given.as_tuple().digits) <= 34
    return True
