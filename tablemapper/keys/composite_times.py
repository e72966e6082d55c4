"""Times that a key holds in pieces: the slots of one field, over partition and row, that together are one ordered time.

``partition="{device}-{at:%Y-%m-%d}", row="{at:%H:%M:%S.%LZ}"`` is the time of day behind its day. A slot by itself
knows nothing of that, so the templates of a key are gone through once, together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import time
from typing import Any

import attrs

from ..datetime_types import Builtin
from ..errors import safe_repr
from .encodings import bind
from .template import Slot, Template
from .times import UNITS, UNITS_OF, finest_unit, from_coarse_to_fine, has_all, moment_with, split_format

Pair = tuple[Template, Template]


def composed(partition: Template, row: Template, precision: Callable[[str], str]) -> Pair:
    """Return the templates of a key with slots that know what the slots of their field hold in front of them.

    Args:
        precision: what a field's times are cut to; empty if they are not.
    """
    seen: dict[str, list[str]] = {}

    def placed_after(part: str | Slot) -> str | Slot:
        if isinstance(part, str) or not part.text.codes:
            return part
        front = seen.setdefault(part.field, [])
        base, codes, cut = part.text.base, part.text.codes, precision(part.field)
        ordered = from_coarse_to_fine(codes, UNITS_OF[base], front)
        front += codes
        finest = finest_unit(front)
        closed = from_coarse_to_fine(sorted(front, key=UNITS_OF[base].index), UNITS_OF[base])
        return attrs.evolve(
            part,
            ordered=ordered,
            continues=ordered and not part.ordered,
            complete=has_all(base, front, cut) and part.text.kind is base,
            finest=finest in codes,
            interval=finest if closed else "",
        )

    first, second = (
        attrs.evolve(
            template, components=tuple([tuple(map(placed_after, component)) for component in template.components])
        )
        for template in (partition, row)
    )
    return first, second


def composed_fields(templates: Pair) -> frozenset[str]:
    """Return the fields that a key holds as a whole, but in no slot by itself."""
    complete = {slot.field for template in templates for slot in template.slots if slot.complete}
    return frozenset(complete).difference(*(template.lossless_fields for template in templates))


def whole_fields(templates: Pair) -> frozenset[str]:
    """Return the fields that need not be stored beside a key."""
    return composed_fields(templates).union(*(template.whole_fields for template in templates))


def decode(templates: Pair, key: tuple[str, str]) -> dict[str, Any]:
    """Return the values of the fields that a key gives back, which is known to be ours."""
    values: dict[str, Any] = {}
    for template, text in zip(templates, key, strict=True):
        values |= template.decode(text, trusted=True)
    parts, kinds = _parts(templates, key), _kinds(templates)
    return values | {f: _PARSERS[kinds[f]](_iso(kinds[f], parts[f])) for f in composed_fields(templates)}


def _parts(templates: Sequence[Template], key: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the digits of each part of a time that a key holds, by field."""
    parts: dict[str, dict[str, str]] = {}
    for template, text in zip(templates, key, strict=True):
        for slot, piece in template.pieces(text):
            for unit, start, end in _units(slot):
                parts.setdefault(slot.field, {}).setdefault(unit, piece[start:end])
    return parts


def moments(templates: Sequence[Template], key: Sequence[str]) -> dict[str, Any]:
    """Return a time that has what a key holds of it, by field, where the key says enough for one.

    Raises:
        ValueError, LookupError: No time has it.
    """
    kinds = _kinds(templates)
    times = {field: moment_with(kinds[field], parts) for field, parts in _parts(templates, key).items()}
    return {field: moment for field, moment in times.items() if moment is not None}


def shown_values(templates: Pair, key: Sequence[str]) -> str | None:
    """Return the values of a key as Python writes them, in order; None if it does not hold all of each."""
    fields = dict.fromkeys([slot.field for template in templates for slot in template.slots])
    if not composed_fields(templates).union(*(template.lossless_fields for template in templates)).issuperset(fields):
        return None
    try:
        values = decode(templates, (key[0], key[1]))
        return ", ".join([safe_repr(values[field]) for field in fields])
    except (ValueError, LookupError, ArithmeticError, TypeError):  # (what others wrote may be no key of ours)
        return None


def shown_key(name: str, templates: Pair, key: Sequence[str]) -> str:
    """Return a key of a class as a user writes it, ``Product.key('b', 7)``; with its texts if they lack some of a value."""
    values = shown_values(templates, key)
    return f"{name} {tuple(key)}" if values is None else f"{name}.key({values})"


def _kinds(templates: Sequence[Template]) -> dict[str, type]:
    return {slot.field: slot.text.base for template in templates for slot in template.slots}


def _units(slot: Slot) -> Iterator[tuple[str, int, int]]:
    """Yield the parts of a time that the text of a slot has, each with where it begins and ends."""
    at = 0
    for part in split_format(slot.spec) if slot.text.codes else ():
        width = UNITS[part].width if part in UNITS else len(part)
        if part in UNITS:
            yield part, at, at + width
        at += width


def decode_source(
    templates: Pair, variables: tuple[str, str], targets: Mapping[str, str], env: dict[str, Any]
) -> Iterator[str]:
    """Yield statements that assign fields from a key that is known to be ours.

    Args:
        templates: of its partition and its row.
        variables: those that hold them; the statements use names that begin with these and ``_``.
        targets: the variable for each field that is wanted; each is lossless, or composed.
        env: the namespace that the source will run in; what the statements need is added to it.
    """
    remaining = dict(targets)
    for template, variable in zip(templates, variables, strict=True):
        if template_fields := {
            field: remaining.pop(field) for field in targets if field in remaining and field in template.lossless_fields
        }:
            yield from template.decode_source(variable, template_fields, env)
    if not remaining:
        return
    pieces: dict[str, dict[str, str]] = {field: {} for field in remaining}
    for template, variable in zip(templates, variables, strict=True):
        timed_slots = {slot.index: slot for slot in template.slots if slot.field in remaining and slot.text.codes}
        yield from template.pieces_source(variable, {at: f"{variable}_piece{at}" for at in timed_slots}, env)
        for at, slot in timed_slots.items():
            for unit, start, end in _units(slot):
                pieces[slot.field].setdefault(unit, f"{{{variable}_piece{at}[{start}:{end}]}}")
    kinds = _kinds(templates)
    for field, target in remaining.items():
        base = kinds[field]
        yield f'{target} = {bind(env, "_key_time", _PARSERS[base])}(f"{_iso(base, pieces[field])}")'


_PARSERS: dict[type, Callable[[str], Any]] = {
    Builtin.datetime: Builtin.datetime.fromisoformat,
    Builtin.date: Builtin.date.fromisoformat,
    time: time.fromisoformat,
}


def _iso(base: type, pieces: Mapping[str, str]) -> str:
    """Return the ISO text of a time, each part given as source."""
    day = "-".join([pieces[unit] for unit in ("%Y", "%m", "%d")]) if base is not time else ""
    if base is Builtin.date:
        return day
    fraction = pieces.get("%f") or pieces.get("%L", "")
    clock = ":".join([pieces[unit] for unit in ("%H", "%M", "%S")]) + (f".{fraction}" if fraction else "")
    return f"{day}T{clock}+00:00" if day else clock
