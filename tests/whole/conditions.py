"""Conditions as data of our own: what the library is asked as source text, and the oracle answers by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias

import attrs

from .kinds import ANY, DATE, DECIMAL, FLOAT, HIERARCHY, INT, LOCAL, MOMENTS, NUMBERS, STR, WRITTEN, Kind, text_of


@attrs.frozen
class Operand:
    """What a condition, an order or a total speaks of: a field, a value nested in one, or a time cut down."""

    field: str
    kind: Kind
    step: str = ""
    """To a nested value."""
    cut: str = ""
    """Empty, ``date``, ``each`` (the elements of a list, to group by), ``floor 15`` (minutes) or a time format.

    Behind a space a day or a format may have a zone.
    """

    def text(self, name: str) -> str:
        """Return source of the operand of a class."""
        text = f"tm.timestamp({name})" if self.field == WRITTEN else f"{name}.{self.field}"
        if self.step:
            return (
                f'{text}["{self.step}"]'
                if self.kind is ANY or len(self.step) == 1
                else f"{text}.at(lambda v: v.{self.step})"
            )
        if self.cut == "each":
            return f"{text}.each()"
        how, _, zone = self.cut.partition(" ")
        if how == "floor":
            return f"{text}.floor(datetime.timedelta(minutes={zone}))"
        arguments = ", ".join([f'"{one}"' for one in (how if how != "date" else "", zone) if one])
        return f"{text}.{'date' if how == 'date' else 'truncate'}({arguments})" if how else text

    @property
    def slot(self) -> str:
        """What a template calls it."""
        return f"{self.field}.{self.step}" if self.step else self.field


@attrs.frozen
class _Operation:
    """``left op right``; the right side is a value or an operand."""

    left: Operand
    op: str
    right: Any

    def text(self, name: str) -> str:
        right = self.right.text(name) if isinstance(self.right, Operand) else text_of(self.right)
        return f"({self.left.text(name)} {self.op} {right})"


@attrs.frozen
class Calculation(_Operation):
    """What is calculated of operands, or of one and a number."""

    kind: Kind


class Compare(_Operation):
    """A value of None means that there is none."""


@attrs.frozen
class Between:
    left: Operand
    low: Any
    high: Any

    def text(self, name: str) -> str:
        return f"{self.left.text(name)}.between({text_of(self.low)}, {text_of(self.high)})"


@attrs.frozen
class In:
    left: Operand
    values: tuple[Any, ...]

    def text(self, name: str) -> str:
        return f"{self.left.text(name)}.is_in([{', '.join(map(text_of, self.values))}])"


@attrs.frozen
class Null:
    left: Operand

    def text(self, name: str) -> str:
        return f"{self.left.text(name)}.is_null()"


@attrs.frozen
class StartsWith:
    left: Operand
    start: str | tuple[str, ...]

    def text(self, name: str) -> str:
        return f"{self.left.text(name)}.startswith({self.start!r})"


@attrs.frozen
class Contains:
    """A text has a part, or a list an element."""

    left: Operand
    value: Any

    def text(self, name: str) -> str:
        return f"{self.left.text(name)}.contains({text_of(self.value)})"


@attrs.frozen
class Unless:
    part: Condition

    def text(self, name: str) -> str:
        return f"~{self.part.text(name)}"


@attrs.frozen
class _Junction:
    sign: ClassVar[str]
    one: Condition
    other: Condition

    def text(self, name: str) -> str:
        return f"({self.one.text(name)} {self.sign} {self.other.text(name)})"


class Both(_Junction):
    sign = "&"


class Either(_Junction):
    sign = "|"


Condition: TypeAlias = Compare | Between | In | Null | StartsWith | Contains | Unless | Both | Either
Draw: TypeAlias = Callable[[Operand], Any]
"""Gives a value to compare an operand with."""


def parts_of(condition: Condition) -> Iterator[Condition]:
    """Yield simpler conditions, to be tried in its place."""
    match condition:
        case Unless(part=part):
            yield part
        case Both(one=one, other=other) | Either(one=one, other=other):
            yield from (one, other)
            yield from (attrs.evolve(condition, one=part) for part in parts_of(one))
            yield from (attrs.evolve(condition, other=part) for part in parts_of(other))
        case In(values=values):
            yield from (attrs.evolve(condition, values=values[:at] + values[at + 1 :]) for at in range(len(values)))


def operands(fields: Mapping[str, Kind]) -> list[Operand]:
    """Return all that can be spoken of, of fields by their name."""
    found = []
    for name, kind in fields.items():
        found.append(Operand(name, kind))
        found += [Operand(name, part, step) for step, part in kind.parts.items()]
        if kind in MOMENTS:
            cuts = LOCAL_CUTS if kind is LOCAL else CUTS
            found += [Operand(name, part, cut=cut) for cut, part in cuts.items()]
        elif kind is DATE:
            found += [Operand(name, STR, cut=cut) for cut in ("%Y-%m", "%G-W%V", "%m-%d")]
    return found


CUTS = {"%G-W%V": STR, "%Y-Q%q": STR, "date": DATE, "%Y-%m": STR, "%Y-%m-%dT%H": STR, "%H": STR}
LOCAL_CUTS = {
    "date Europe/Oslo": DATE, "date America/St_Johns": DATE, "%Y-%m-%dT%H Europe/Oslo": STR,
    "%Y-%m-%dT%H:%M America/St_Johns": STR, "%H:%M Australia/Lord_Howe": STR, "%G-W%V America/St_Johns": STR,
    "floor 15": LOCAL, "floor 360": LOCAL,
}  # fmt: skip


def random_calculation(rng: random.Random, known: Sequence[Operand]) -> Calculation | None:
    """Return a calculation that every value can be put into; None if there is nothing to calculate with."""
    numbers = [one for one in known if one.kind.summed]
    if not numbers:
        return None
    left = rng.choice(numbers)
    whole = left.kind in NUMBERS and left.kind is not FLOAT
    alike = [
        one for one in numbers if one.kind is left.kind or (whole and one.kind in NUMBERS and one.kind is not FLOAT)
    ]
    op = rng.choice("+-*")
    right: Any = rng.choice(alike)
    if left.kind is FLOAT:  # (two infinities have no sum)
        right = rng.choice((0.5, -3.0, 2, 10**20))
    elif left.kind.annotation == "datetime.timedelta" and op == "*":
        right = rng.choice((2, -1, 0.5))
    elif left.kind is DECIMAL and rng.random() < 0.4:
        right = rng.choice((3, Decimal("1.50"), Decimal("1E+3")))
    elif whole and rng.random() < 0.3:
        right = rng.choice((2, -1, 2**70))
    return Calculation(left, op, right, INT if whole else left.kind)


def random_condition(rng: random.Random, known: Sequence[Operand], draw: Draw, depth: int = 2) -> Condition:
    """Return any condition on some operands."""
    chance = rng.random()
    if depth and chance < 0.25:
        if chance < 0.08:
            return Unless(random_condition(rng, known, draw, depth - 1))
        one, other = (random_condition(rng, known, draw, depth - 1) for _ in range(2))
        return Both(one, other) if chance < 0.14 else Either(one, other)
    left = rng.choice(known)
    return leaf(rng, left, draw, known)


def leaf(rng: random.Random, left: Operand, draw: Draw, known: Sequence[Operand] = ()) -> Condition:
    """Return a single condition on an operand."""
    kind, chance = left.kind, rng.random()
    if kind is HIERARCHY and chance < 0.3:
        levels = draw(left)
        return StartsWith(left, levels[: rng.randrange(len(levels) + 1)])
    if kind.element is not None and chance < 0.7:
        return Contains(left, draw(attrs.evolve(left, kind=kind.element)))
    if kind is STR and chance < 0.15:
        text = draw(left)
        start = rng.randrange(len(text) + 1)
        return StartsWith(left, text[:start]) if chance < 0.1 else Contains(left, text[start : start + 1])
    if chance < 0.25:
        return In(left, tuple(draw(left) for _ in range(rng.choice((0, 1, 2, 2, 3)))))
    if chance < 0.32:
        return rng.choice((Null(left), Compare(left, "==", None), Compare(left, "!=", None), Unless(Null(left))))
    kinds = NUMBERS if kind in NUMBERS else () if kind is ANY else (kind,)
    alike = [one for one in known if one.kind in kinds and one != left]
    ops = ("==", "==", "!=", "<", "<=", ">", ">=") if kind.ordered or kind is ANY else ("==", "!=")
    if chance < 0.45 and alike:
        return Compare(left, rng.choice(ops), rng.choice(alike))
    if kind.ordered and chance < 0.52:
        return Between(left, draw(left), draw(left))
    return Compare(left, rng.choice(ops), draw(left))
