"""What is kept for each group of an aggregate, and how a change of entities changes it.

What is kept for a group is a *state*: the number of its entities, and a value for each *slot*. A slot is what one or
more measures are answered from: ``sum`` and ``avg`` of one field share a slot, ``min`` and ``max`` too. A change of
entities is a *delta*, of the same shape; `AggregateModel.combine` is the one place where the two meet.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import attrs
import msgspec

from ..codegen import Names, compile_functions
from ..entities.declaration import Declaration
from ..entities.fields import FieldModel
from ..errors import CorruptStore
from ..expressions.predicates import dump
from ..expressions.tree import Attr, Predicate
from ..keys.codec import key_codec
from ..values.scalars import ValueType
from .sums import SUMS, Sum

__all__ = ["AggregateModel", "Delta", "Slot", "State", "aggregate_model", "load_sortable", "store_sortable"]

State: TypeAlias = list[Any]
"""``[number of entities, value of each slot…]``"""
Delta: TypeAlias = list[Any]
"""``[change of the number, change of each slot…]``"""
Seek: TypeAlias = Callable[[int, Literal["min", "max"]], Any]
"""Finds the least or greatest live value of a slot, by its number, once the values that changed are stored."""

_DECIMAL = key_codec(Decimal)


@attrs.frozen(eq=False)
class Slot:
    """What one or more measures are answered from."""

    kind: Literal["count", "sum", "extremes", "ever"]
    attr: Attr[Any, Any] | None
    where: Predicate[Any] | None

    @property
    def sum(self) -> Sum[Any]:
        """The arithmetic of a sum."""
        assert self.attr is not None
        return SUMS[self.attr.type.kind]

    def zero(self) -> Any:
        """Return a delta that changes nothing."""
        match self.kind:
            case "count":
                return 0
            case "sum":
                return self.sum.zero()
            case "extremes":
                return {}
            case "ever":
                return []

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for slots that always hold the same."""
        attr = None if self.attr is None else self.attr.source
        return self.kind, attr, None if self.where is None else repr(dump(self.where))


@attrs.frozen(eq=False, slots=False)
class AggregateModel:
    """An aggregate, compiled: its groups, its measures, and the slots they are answered from."""

    made: Declaration
    source: type[Any]
    where: Predicate[Any] | None
    groups: dict[str, Attr[Any, Any]]
    """By the aggregate's own field."""
    measures: tuple[tuple[FieldModel, int], ...]
    """Each with the number of its slot; -1 is the number of entities."""
    slots: tuple[Slot, ...]
    keeps_empty: bool
    """Whether a group that has no entity left keeps its row, because it tells what ever was."""

    def zero(self) -> Delta:
        """Return a delta that changes nothing."""
        return [0, *[slot.zero() for slot in self.slots]]

    def zero_source(self, names: Names) -> str:
        """Return source of what `zero` returns."""
        kinds = {"count": "0", "extremes": "{}", "ever": "[]"}
        zeros = [kinds.get(slot.kind) or f"{names.name('zero', slot.sum.zero)}()" for slot in self.slots]
        return f"[{', '.join(['0', *zeros])}]"

    def add_source(self, at: int, delta: str, value: str, names: Names) -> list[str]:
        """Return statements that add an entity's value, which is not None, to one slot of a delta.

        Args:
            at: the number of the slot.
            delta: the variable that holds the delta.
            value: the variable of the value, in sortable form for extremes. ``sign`` is 1, or -1 to take it off.
            names: gets what the statement needs.
        """
        slot, place = self.slots[at], f"{delta}[{at + 1}]"
        match slot.kind:
            case "sum":
                return slot.sum.add_source(place, value, names)
            case "count":
                return [f"{place} += sign"]
            case "extremes":
                return [f"{place}[{value}] = {place}.get({value}, 0) + sign"]
            case "ever":
                return [f"if sign > 0: {place} = {names.name('widen', _widen)}({place}, {value})"]

    def combine(self, state: State | None, delta: Delta, seek: Seek) -> State | None:
        """Return the state after a delta, or None if the group is gone."""
        after: State | None = self._generated["combine"](state, delta, seek)
        return after

    def shown(self, state: State) -> list[Any]:
        """Return the value of each measure, as Python has it."""
        values: list[Any] = self._generated["shown"](state)
        return values

    def pack(self, state: State) -> bytes:
        """Return a state as it is stored."""
        blob: bytes = self._generated["pack"](state)
        return blob

    def unpack(self, blob: bytes) -> State:
        """Return a stored state."""
        try:
            state: State = self._generated["unpack"](blob)
            return state
        except (ValueError, TypeError, IndexError, msgspec.MsgspecError) as error:
            raise CorruptStore(f"{self.made.name}: the state of a group can not be read: {error}") from error

    @cached_property
    def _generated(self) -> dict[str, Callable[..., Any]]:
        """The functions that go through the slots of a state, written out."""
        names = Names(encode=_encode, decode=_decode, gone=self._gone)
        after, packed, unpacked, zero = ["n"], ["state[0]"], ["v0"], ["0"]
        for at, slot in enumerate(self.slots, 1):
            held, change, stored = f"state[{at}]", f"delta[{at}]", f"v{at}"
            packed.append(held)
            unpacked.append(stored)
            zero.append("0" if slot.kind == "count" else "[]")
            match slot.kind:
                case "count":
                    after.append(f"{held} + {change}")
                case "sum":
                    after.append(f"{names.name('merge', slot.sum.merge)}({held}, {change})")
                    packed[at] = f"{names.name('pack', slot.sum.pack)}({held})"
                    unpacked[at] = f"{names.name('unpack', slot.sum.unpack)}({stored})"
                    zero[at] = f"{names.name('zero', slot.sum.zero)}()"
                case "ever":
                    after.append(f"{names.name('ever', _ever)}({held}, {change})")
                case "extremes":
                    after.append(f"{names.name('extremes', _extremes)}({held}, {change}, {at - 1}, seek)")
        source = [
            "def combine(state, delta, seek):",
            f"    if state is None: state = [{', '.join(zero)}]",
            "    n = state[0] + delta[0]",
            "    if n < 0: gone(n)",
            f"    after = [{', '.join(after)}]",
            f"    return after{'' if self.keeps_empty else ' if n else None'}",
            "def pack(state):",
            f"    return encode([{', '.join(packed)}])",
            "def unpack(blob):",
            f"    {', '.join(f'v{at}' for at in range(len(unpacked)))}, = decode(blob)",
            f"    return [{', '.join(unpacked)}]",
            "def shown(state):",
            f"    return [{', '.join(self.shown_sources(names))}]",
        ]
        return compile_functions(f"{self.made.name} groups", "\n".join(source), names)

    def shown_sources(self, names: Names) -> list[str]:
        """Return source of the value of each measure, of the variable ``state``."""
        sources = []
        for field, slot in self.measures:
            assert field.measure is not None
            held = f"state[{slot + 1}]"
            match field.measure.kind:
                case "count":
                    sources.append(held)
                case "sum":
                    sources.append(f"{names.name('shown', self.slots[slot].sum.shown)}({held})")
                case "avg":
                    sources.append(f"{names.name('mean', self.slots[slot].sum.mean)}({held})")
                case kind:
                    assert field.measure.attr is not None
                    load = names.name("load", partial(load_sortable, field.measure.attr.type))
                    end = 0 if kind.startswith("min") else -1
                    sources.append(f"({load}({held}[{end}]) if {held} else None)")
        return sources

    def _gone(self, count: int) -> None:
        raise CorruptStore(f"{self.made.name}: a group would have {count} entities; run check()")

    def to_json(self) -> dict[str, Any]:
        """Return what the catalogue keeps."""
        return {
            "of": self.source.__name__,
            "where": None if self.where is None else dump(self.where),
            "groups": {name: attr.label for name, attr in self.groups.items()},
            "measures": {
                field.name: [
                    field.measure.kind,
                    None if field.measure.attr is None else field.measure.attr.label,
                    None if field.measure.where is None else dump(field.measure.where),
                ]
                for field, _ in self.measures
                if field.measure is not None
            },
        }


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def _widen(ends: list[Any], value: Any) -> list[Any]:
    """Return ``[least, greatest]`` with one more value in it."""
    if not ends:
        return [value, value]
    return [value if value < ends[0] else ends[0], value if value > ends[-1] else ends[-1]]


def _ever(held: list[Any], values: list[Any]) -> list[Any]:
    for value in values:
        held = _widen(held, value)
    return held


def _extremes(held: list[Any], change: dict[Any, int], slot: int, seek: Seek) -> list[Any]:
    for value, count in change.items():
        if count < 0 and held and value in (held[0], held[-1]):
            ends: tuple[Literal["min", "max"], ...] = ("min", "max")
            found = [seek(slot, end) for end in ends]
            return [] if found[0] is None else found
    for value, count in change.items():
        if count > 0:
            held = _widen(held, value)
    return held


def store_sortable(kind: ValueType, value: Any) -> Any:
    """Return a value in a stored form that sorts in Python and in SQLite as the values do."""
    return _DECIMAL.encode(value) if kind.name == "Decimal" else kind.store(value)


def load_sortable(kind: ValueType, stored: Any) -> Any:
    """Return the value that `store_sortable` was given; a Decimal without trailing zeros."""
    if stored.__class__ is int and kind.kind is int and kind.enum is None:
        return stored  # (one that is a sum can be beyond 64 bits)
    return _DECIMAL.parse(stored) if kind.name == "Decimal" else kind.load(stored)


def aggregate_model(made: Declaration) -> AggregateModel:
    """Compile the measures of an aggregate class."""
    slots: dict[tuple[Any, ...], int] = {}
    found: list[Slot] = []
    measures = []
    for field in made.fields:
        measure = field.measure
        assert measure is not None
        if measure.kind == "group":
            continue
        if measure.kind == "count" and measure.attr is None and measure.where is None:
            measures.append((field, -1))
            continue
        kind: Literal["count", "sum", "extremes", "ever"] = (
            "count" if measure.kind == "count"
            else "sum" if measure.kind in ("sum", "avg")
            else "ever" if measure.kind.endswith("_ever")
            else "extremes"
        )  # fmt: skip
        slot = Slot(kind, measure.attr, measure.where)
        if slot.identity not in slots:
            slots[slot.identity] = len(found)
            found.append(slot)
        measures.append((field, slots[slot.identity]))
    groups = {
        field.name: field.measure.attr
        for field in made.fields
        if field.measure is not None and field.measure.kind == "group" and field.measure.attr is not None
    }
    keeps_empty = any(slot.kind == "ever" for slot in found)
    return AggregateModel(made, made.of or object, made.where, groups, tuple(measures), tuple(found), keeps_empty)
