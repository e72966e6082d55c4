"""The test whether texts are keys of a class: those that the values read from them make again.

`is_key` is the definition. Who reads a table that other programs write, too, asks it of each row. So `KeyTest` first asks
what certainly holds: of a page of keys at once, or by a regular expression. What that does not vouch for may be a key all
the same, and is read and written.
"""

from __future__ import annotations

import enum
import re
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import attrs

from ..datetime_types import Builtin
from .composite_times import Pair, moments
from .encodings import MAX_DIGITS, SEPARATOR, NotAKey
from .template import Slot, Template

_FAULTS = (NotAKey, ValueError, LookupError, ArithmeticError)
"""What reading a text raises that is no key. (A value that no key can hold is a ValueError, too.)"""
_TEXT = r"""[^\x00-\x20"#/.>\[~?\\\x7f-\x9f\ud800-\udfff]*"""  # no character that is ever escaped, or part of an escape


def _integers(most: int) -> str:
    """Return an expression for the texts of integers with so many digits at most."""
    above = [f"{chr(96 + n)}[1-9][0-9]{{{n - 1}}}" for n in range(2, most + 1)]
    below = [f"{chr(91 - n)}[0-8][0-9]{{{n - 1}}}" for n in range(1, most + 1)]
    return f"(?:{'|'.join(['a[0-9]', *above, *below])})"


_DAY = r"(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}"
_CERTAIN = {
    ("str", ""): _TEXT,
    ("str", "raw"): r"""(?! ")[^\x00-\x1f#/?\\\x7f-\x9f\ud800-\udfff]*""",
    ("tuple", ""): f"(?:{_TEXT} !)*",
    ("int", ""): _integers(MAX_DIGITS),
    ("timedelta", ""): _integers(19),  # (of microseconds: the last of those are none)
    ("float", ""): "[1-689a-e][0-9a-f]{15}",  # (neither NaN nor -0.0)
    ("bool", ""): "[01]",
    ("datetime", ""): f"{_DAY}T{_TIME}Z",
    ("datetime", "desc"): "[0-2][0-9]{17}9",
    ("date", ""): _DAY,
    ("time", ""): _TIME,
    ("UUID", ""): "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    ("bytes", ""): "(?:[0-9a-f]{2})*",
}
"""By type and spec, an expression for texts that certainly are those of values."""
_PADDED = re.compile("0([0-9]+)d").fullmatch
_ESCAPED = re.compile(
    r"""[\x00-\x1f"#/?\\~\x7f-\x9f\ud800-\udfff]|[.>\[](?=[\x7d-\U0010ffff])|\x20(?=[\x00-\x22])"""
).search
"""Finds what may be an escape, or need one, in texts that "!" ends."""
_ZEROS = str.maketrans("123456789", "0" * 9)
_WIDE: dict[str, tuple[str, Callable[[str], object]]] = {
    "datetime": ("0000-00-00T00:00:00.000000Z", Builtin.datetime.fromisoformat),
    "date": ("0000-00-00", Builtin.date.fromisoformat),
}
"""By type, texts of one width with zeros for digits, and what raises if no value has the digits."""


def is_key(templates: Sequence[Template], key: Sequence[str]) -> bool:
    """Return whether a partition key and a row key, or one of them, give values that make these texts again.

    What a lossy slot holds of a field that stands nowhere without loss is only what some value of it gives.
    """
    try:
        values: dict[str, Any] = {}
        for template, text in zip(templates, key, strict=True):
            values |= template.decode(text)
        starts = moments(templates, key)
        return all(
            piece == slot.written(values[slot.field] if slot.field in values else starts[slot.field])
            for template, text in zip(templates, key, strict=True)
            for slot, piece in template.pieces(text)
            if slot.field in values or (slot.field in starts and slot.interval)  # (a start has no hash, and no shard)
        )
    except _FAULTS:
        return False


def made_again(templates: Sequence[Template], key: Sequence[str]) -> tuple[str, ...] | None:
    """Return the key that the values of two texts make; None if they give none, or not all of them."""
    values: dict[str, Any] = {}
    try:
        for template, text in zip(templates, key, strict=True):
            values |= template.decode(text, trusted=True)
        return tuple([template.encode(values) for template in templates])
    except _FAULTS:
        return None


class KeyTest:
    """Tells the keys of a class from other texts: as `is_key` does, and faster."""

    def __init__(self, templates: Pair) -> None:
        self._templates = first, second = templates
        fields = [slot.field for slot in (*first.slots, *second.slots)]
        self._repeated = {field for field in fields if fields.count(field) > 1}
        self._derived = _derived(first, second, self._repeated)
        self._partitions, self._rows = _all_certain(first), _all_certain(second)
        partition_test, row_test = _certain(first), _certain(second)
        self._certain = (
            None if self._repeated or partition_test is None or row_test is None else (partition_test, row_test)
        )
        self._last_key: tuple[str, str] | None = None
        self._last_pieces: tuple[str | None, list[str] | None] = None, None

    def has(self, partition: str, row: str) -> bool:
        """Return whether a partition key and a row key are one of the class."""
        key = partition, row
        if key == self._last_key or (
            self._certain is not None and self._certain[0](partition) and self._certain[1](row)
        ):
            return True
        if self.has_all((partition,), (row,)) or is_key(self._templates, key):
            self._last_key = key  # (one write asks for it several times)
            return True
        return False

    def has_all(self, partitions: Sequence[str], rows: Sequence[str]) -> bool:
        """Return whether the keys of a page, which ascend, are certainly all of the class."""
        if not rows:
            return True
        if not self._repeated:
            distinct = partitions[:1] if partitions[0] == partitions[-1] else partitions
            return self._partitions(distinct) and self._rows(rows)
        if self._derived is None or not self._rows(rows):
            return False
        start = 0
        for partition, same in groupby(partitions):
            end = start + len(list(same))
            pieces = self._pieces(partition)
            if pieces is None or not all(
                derived_slot.holds(pieces[derived_slot.slot.index], rows[start:end]) for derived_slot in self._derived
            ):
                return False
            start = end
        return True

    def _pieces(self, partition: str) -> list[str] | None:
        """Return what stands in the slots of a partition key, in order; None if it is none."""
        last_partition, pieces = self._last_pieces
        if last_partition != partition:
            first = self._templates[0]
            pieces = [piece for _, piece in first.pieces(partition)] if is_key((first,), (partition,)) else None
            self._last_pieces = partition, pieces
        return pieces


@attrs.frozen(eq=False)
class _Derived:
    """A slot of a partition that follows from the text of one component of the row."""

    slot: Slot
    component: int
    is_all: bool
    """Whether the row key is that component alone."""

    def holds(self, piece: str, rows: Sequence[str]) -> bool:
        """Return whether the slot has one text with all of some rows, which ascend."""
        if self.slot.text.cut and not self.component:  # (what is between begins as both do)
            return rows[0].startswith(piece) and rows[-1].startswith(piece)
        texts = rows if self.is_all else [row.split(SEPARATOR)[self.component] for row in rows]
        if self.slot.text.cut:
            return all(text.startswith(piece) for text in texts)
        number, count = self.slot.buckets.index(piece), len(self.slot.buckets)
        return all(hashed % count == number for hashed in map(zlib.crc32, map(str.encode, texts)))


def _derived(first: Template, second: Template, repeated: set[str]) -> list[_Derived] | None:
    """Return the slots of a partition that repeat fields of the row; None if that is not all that repeats."""
    derived: list[_Derived] = []
    for field in repeated:
        row_slot = second.plain_slot(field)
        if row_slot is None or any(slot.field == field and slot is not row_slot for slot in second.slots):
            return None
        for slot in [slot for slot in first.slots if slot.field == field]:
            if not (slot.text.cut or slot.buckets):
                return None
            derived.append(_Derived(slot, row_slot.component, len(second.components) == 1))
    return derived


def _pattern(slot: Slot) -> str | None:
    """Return an expression for texts that certainly are those of values of a slot; None if there is none."""
    base, kind = slot.text.base, slot.text.kind
    if slot.delimiter:
        return None
    if isinstance(kind, type) and issubclass(kind, enum.Enum) and not slot.spec:
        return "(?:" + "|".join([re.escape(slot.text.encode(member)) for member in kind]) + ")"
    if kind is not base:
        return None
    if base is int and (padded := _PADDED(slot.spec)):
        return f"[0-9]{{{padded[1]}}}"
    if slot.spec == "hash":
        return "[0-9a-f]{32}"
    return _CERTAIN.get((base.__name__, slot.spec))


def _certain(template: Template) -> Callable[[str], object] | None:
    """Return the test whether a text certainly is a key of a template; None if there is none."""
    patterns = [re.escape(part) if isinstance(part, str) else _pattern(part) for part in template.parts]
    return None if None in patterns else re.compile("".join(filter(None, patterns))).fullmatch


def _all_certain(template: Template) -> Callable[[Sequence[str]], bool]:
    """Return the test whether texts certainly are all keys of a template."""
    parts = template.parts
    if len(parts) == 1 and isinstance(parts[0], Slot) and _pattern(parts[0]) == _TEXT:
        return lambda texts: _ESCAPED(f"{'!'.join(texts)}!") is None
    shapes = [_shape(part) for part in parts]
    reads = [parse for shape in shapes if shape is not None and (parse := shape[1]) is not None]
    if parts and None not in shapes and (not reads or len(parts) == 1):
        wide = "".join([shape[0] for shape in shapes if shape is not None]) + "\n"

        def all_wide(texts: Sequence[str]) -> bool:
            if f"{chr(10).join(texts)}\n".translate(_ZEROS) != wide * len(texts):
                return False
            try:
                for parse in reads:
                    deque(map(parse, texts), 0)
            except ValueError:
                return False
            return True

        return all_wide
    certain = _certain(template)
    return lambda texts: certain is not None and None not in map(certain, texts)


def _shape(part: str | Slot) -> tuple[str, Callable[[str], object] | None] | None:
    """Return what keys have in a place, with zeros for digits, and what raises if no value has these; None if that varies."""
    if isinstance(part, str):
        return None if any(map(str.isdigit, part)) else (part, None)
    if part.text.kind is not part.text.base or part.delimiter:
        return None
    if part.text.base is int and (padded := _PADDED(part.spec)):
        return "0" * int(padded[1]), None
    return None if part.spec else _WIDE.get(part.text.base.__name__)
