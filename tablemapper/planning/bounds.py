"""Bounds of keys, made from conditions.

What conditions say about a template is decided in two steps. Their *form* (which fields are known, how the next one is
compared) decides the `KeyBounds`: which slots are fixed, and whether anything has to be checked again. That is done once
for all queries of a form. Their *values* then give the `Bound`, two texts.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any

import attrs

from ..errors import InvalidEntity
from ..keys.encodings import Cuts, raise_last
from ..keys.template import Parts, Slot, Template


@attrs.define  # (not frozen: two are built for each query, three times as fast)
class Bound:
    """The keys from ``lo`` to before ``hi`` (None is unbounded); of a ``point`` the one key ``lo``."""

    lo: str = ""
    hi: str | None = None
    point: bool = False
    empty: bool = False

    def holds(self, key: str) -> bool:
        """Return whether a key lies in the bound."""
        if self.point:
            return key == self.lo and not self.empty
        return not self.empty and self.lo <= key and (self.hi is None or key < self.hi)


EVERYTHING = Bound()
NOTHING = Bound(empty=True)


@attrs.frozen(eq=False)
class KeyBounds:
    """The bounds that conditions of one shape give along a template.

    Attributes:
        fixed: the literals and slots in front, whose text is known.
        exact: those of the slots among them that nothing else in the bound has another text in.
        slot: the first slot that is not fixed; None if the whole key is.
        run: that slot and what follows it, as far as it is of one ordered time, or text.
        ops: the comparisons of its field that narrow the bound.
        fields: the fields that are fixed or ranged.
        inexact: those of them whose conditions have to be checked again, since other values of them lie in the bound.
        rest: how many characters follow what is fixed in its component, where another number tells of other values. So
            these values are told apart, and keys with others are passed over.
    """

    template: Template
    fixed: tuple[str | Slot, ...]
    exact: tuple[Slot, ...]
    slot: Slot | None
    run: Parts
    ops: frozenset[str]
    fields: frozenset[str]
    inexact: frozenset[str]
    rest: int | None = None

    @property
    def point(self) -> bool:
        """Whether the bound is one key."""
        return self.slot is None

    @property
    def range_field(self) -> str | None:
        """The field that is ranged."""
        return self.slot.field if self.slot is not None and self.ops else None

    @property
    def loose(self) -> bool:
        """Whether other values of a fixed slot lie between the bounds, and are not passed over."""
        return self.rest is None and _loose(self.fixed, self.slot) is not None

    def goes_on(self, front: KeyBounds) -> bool:
        """Return whether it bounds what is finer of the values whose coarser part a whole partition key ends with."""
        end = front.run[-1]
        cut = front.range_field and isinstance(end, Slot) and (end.interval or end.text.head) and not end.says_all
        ends = len(front.fixed) + len(front.run) == len(front.template.parts)
        same = self.range_field == front.range_field and self.ops >= front.ops
        return bool(cut and ends) and same and not any(isinstance(part, Slot) for part in self.fixed)

    def bucket(self, values: Mapping[str, Any], value: Any, texts: Mapping[int, str] | None = None) -> str | None:
        """Return the key that ends with the compared slots' text of a value; None if no key holds it."""
        compared = {self.range_field or "": value}
        try:
            pieces = [_part_text(part, values, texts) for part in self.fixed] + [
                _part_text(part, compared) for part in self.run
            ]
        except InvalidEntity:
            return None
        return "".join(pieces)

    def bound(
        self,
        values: Mapping[str, Any],
        compared: Iterable[tuple[str, Any]] = (),
        texts: Mapping[int, str] | None = None,
    ) -> Bound:
        """Return the narrowest bound of the keys that match.

        Args:
            compared: comparisons that all hold for the field of the next slot: one of ``< <= > >= startswith``, value.
            texts: what stands in a slot, by its index: one bucket of a shard or of a truncated time.
        """
        if not self.fixed and not self.ops and self.slot is not None:
            return EVERYTHING
        prefix = self._front(values, texts)
        if prefix is None:
            return NOTHING
        slot = self.slot
        if slot is None:
            return Bound(prefix, None, True)
        low, high = prefix, raise_last(prefix)
        for op, value in compared:
            if op not in self.ops:
                continue
            cuts = self._cuts(op, value)
            if cuts is None:
                return NOTHING
            for edge, text in cuts:
                at = prefix + text if edge in ("<", ">=") else self._end_above(prefix + text)
                if edge[0] == ">":
                    if at is None:
                        return NOTHING
                    low = max(low, at)
                elif at is not None:
                    high = at if high is None else min(high, at)
        return NOTHING if high is not None and low >= high else Bound(low, high)

    def front(self, values: Mapping[str, Any], texts: Mapping[int, str] | None, slots: int | None = None) -> str:
        """Return the prefix of keys, up to the text after so many slots, or up to the first one that is not fixed."""
        return self._front(values, texts, slots) or ""

    def _front(
        self, values: Mapping[str, Any], texts: Mapping[int, str] | None, slots: int | None = None
    ) -> str | None:
        """Return the text of the fixed slots; None if no key holds it."""
        text = ""
        for part in self.fixed:
            if isinstance(part, str):
                text += part
                continue
            if slots is not None and not slots:
                break
            slots = None if slots is None else slots - 1
            if texts and part.index in texts:
                text += texts[part.index]
                continue
            cuts = part.text.cuts("==", values[part.field])
            if cuts is None:
                return None
            text += part.placed(cuts[0][1])
        return text

    def _cuts(self, op: str, value: Any) -> Cuts | None:
        """Return the bounds that a comparison gives the texts of the compared slots, as `KeyCodec.cuts`."""
        first_slot, last_slot = self.run[0], self.run[-1]
        assert isinstance(first_slot, Slot)
        assert isinstance(last_slot, Slot)
        cuts = last_slot.cuts(op, value)
        if first_slot is last_slot or not cuts:
            return cuts
        if op == "startswith" and len(value) < first_slot.text.head:
            return first_slot.cuts(op, value)
        try:
            prefix = "".join([part if isinstance(part, str) else part.text.encode(value) for part in self.run[:-1]])
        except InvalidEntity:
            return first_slot.cuts(op, value)
        return [(edge, prefix + text) for edge, text in cuts]

    def _end_above(self, text: str) -> str | None:
        """Return the least text above all keys that have this text up to the end of the compared slots."""
        parts = self.template.parts
        place = len(self.fixed) + len(self.run) - 1
        if place == len(parts) - 1:
            return text + " "
        following = parts[place + 1]
        return raise_last(text + following if isinstance(following, str) else text)


def _loose(fixed: Parts | list[str | Slot], slot: Slot | None) -> int | None:
    """Return the place of a fixed slot whose text ends by what follows it, in the component of the one that is not."""
    at = None if slot is None else slot.component
    loose = [
        n for n, part in enumerate(fixed) if isinstance(part, Slot) and part.component == at and part.after is not None
    ]
    return loose[-1] if loose else None


def _part_text(part: str | Slot, values: Mapping[str, Any], texts: Mapping[int, str] | None = None) -> str:
    if isinstance(part, str):
        return part
    return texts[part.index] if texts and part.index in texts else part.written(values[part.field])


def reach(
    template: Template,
    equal: Container[str] = (),
    compared: Mapping[str, Collection[str]] | None = None,
    texts: Container[int] = (),
    *,
    passing: bool = False,
    turned: Container[str] = (),
) -> KeyBounds:
    """Return the bounds that conditions give. From the left, slots are fixed as long as they are known; the next may
    be compared.

    Args:
        equal: the fields whose values are known.
        compared: the comparisons that fields have.
        texts: the slots whose texts are known, by their index.
        passing: whether keys in the bound can be passed over.
        turned: the fields of whose times finer parts are known in front, as of any day.
    """
    fixed, known_parts, slot = _fixed(template, equal, texts)
    # (The text of a slot that is cut from the right may go on, as long as its component is not complete.)
    exact, tail = tuple(known_parts), None
    if slot is not None and (at := _loose(fixed, slot)) is not None:
        if passing and isinstance(loose := fixed[at], Slot):
            following = fixed[at + 1 :]
            tail = (loose.after or 0) - sum(
                len(part) if isinstance(part, str) else part.text.fixed or 0 for part in following
            )
        else:
            exact = tuple(part for part in known_parts if part.after is None or part.component != slot.component)
    fields = {part.field for part in known_parts}
    complete = {part.field for part in exact if part.lossless or part.complete}
    ops = frozenset[str]()
    run: Parts = ()
    if slot is not None:
        ops = frozenset(op for op in (compared or {}).get(slot.field, ()) if slot.usable(op))
        run = _run(template.parts[len(fixed) :])
        if slot.field in turned:
            ops, run = frozenset() if slot.continues else ops, run[:1]
        if ops:
            fields.add(slot.field)
            complete |= {slot.field} if isinstance(run[-1], Slot) and run[-1].within(ops) else set()
    return KeyBounds(
        template, tuple(fixed), exact, slot, run, ops, frozenset(fields), frozenset(fields - complete), tail
    )


def _fixed(
    template: Template, equal: Container[str], texts: Container[int]
) -> tuple[list[str | Slot], list[Slot], Slot | None]:
    """Return the first parts, whose texts are known; the slots among them whose values are; and the slot behind them."""
    fixed: list[str | Slot] = []
    known_slots: list[Slot] = []
    for part in template.parts:
        if isinstance(part, Slot) and part.index not in texts:
            if part.field not in equal:
                return fixed, known_slots, part
            known_slots.append(part)
        fixed.append(part)
    return fixed, known_slots, None


def _run(parts: Parts) -> Parts:
    """Return the first of some parts, a slot, and the finer parts of the same value that follow at once."""
    end = 1
    while isinstance(slot := parts[end - 1], Slot) and slot.ordered and (slot.text.codes or slot.text.head):
        next_at = end + (end < len(parts) and isinstance(parts[end], str))
        following = parts[next_at] if next_at < len(parts) else None
        if not isinstance(following, Slot) or following.field != slot.field or not following.goes_on:
            break
        end = next_at + 1
    return parts[:end]
