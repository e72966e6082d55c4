"""The states of an aggregate's groups, and the changes of entities that change them.

What is kept for a group is a *state*: the number of its entities, and a value for each *slot*. A slot is what one or
more measures are answered from: ``sum`` and ``avg`` of one field share a slot, ``min`` and ``max`` too. A change of
entities is a *delta*, of the same shape; `AggregateModel.combine` is the one place where the two meet, and `merge`
where deltas come in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, TypeAlias

import attrs
import msgspec

from ..codegen import Names, compile_functions
from ..entities.declaration import Declaration
from ..entities.fields import FieldModel
from ..entities.key_and_indexes import by_property, dump_by_property
from ..errors import CorruptStore
from ..expressions.predicates import dump_value
from ..expressions.tree import Attr, ElementAttr, Predicate
from ..values.sums import read_number, read_signed
from .rows import DAMAGE
from .slots import MeasureState, Seek, State, slot_of

Delta: TypeAlias = list[Any]
"""``[change of the number, change of each slot…]``"""


@attrs.frozen(eq=False, slots=False)
class AggregateModel:
    """An aggregate, compiled: its groups, its measures, and the slots they are answered from."""

    declaration: Declaration
    source: type[Any]
    where: Predicate[Any] | None
    groups: dict[str, Attr[Any, Any] | ElementAttr[Any, Any]]
    """By the aggregate's own field."""
    measures: tuple[tuple[FieldModel, int], ...]
    """Each with the number of its slot; -1 is the number of entities."""
    slots: tuple[MeasureState, ...]

    @cached_property
    def keeps_empty(self) -> bool:
        """Whether a group that has no entity left keeps its row, because of an _ever measure."""
        return any(slot.lasting for slot in self.slots)

    @cached_property
    def counted_slots(self) -> tuple[int, ...]:
        """The numbers of the slots that count their live values."""
        return tuple(number for number, slot in enumerate(self.slots) if slot.counts_values)

    def zero(self) -> Delta:
        """Return a delta that changes nothing."""
        delta: Delta = self._generated["zero"]()
        return delta

    def empty(self) -> State:
        """Return the state of a group without entities."""
        state: State = self._generated["empty"]()
        return state

    def zero_source(self, names: Names) -> str:
        """Return source of what `zero` returns."""
        return f"[{', '.join(['0', *[slot.zero_source(names) for slot in self.slots]])}]"

    def empty_source(self, names: Names) -> str:
        """Return source of what `empty` returns."""
        return f"[{', '.join(['0', *[slot.empty_source(names) for slot in self.slots]])}]"

    def advance_source(self, blob: str, names: Names) -> list[str]:
        """Return statements from a blob and ``delta`` to ``state`` and ``packed``; they return None if none is left."""
        numbers = range(1, len(self.slots) + 1)
        return [
            *self._decode_source(blob, names),
            "n += delta[0]",
            f"if n < 0: {names.name('gone', self._refuse_negative)}(n)",
            *([] if self.keeps_empty else ["if not n: return None"]),
            *[slot.advance_source(at, names) for at, slot in enumerate(self.slots, 1)],
            f"packed = {names.name('encode', _encode)}([{', '.join(['n', *[f'p{at}' for at in numbers]])}])",
            f"state = [{', '.join(['n', *[f'h{at}' for at in numbers]])}]",
        ]

    def _decode_source(self, blob: str, names: Names) -> list[str]:
        """Return statements that take the number of entities, as ``n``, and a ``v`` for each slot out of a blob."""
        variables = ", ".join(["n", *[f"v{at}" for at in range(1, len(self.slots) + 1)]])
        return [
            f"{variables}, = {names.name('decode', _decode)}({blob})",
            f"if n.__class__ is not int or n < 0: {names.name('number', read_number)}(n)",
        ]

    def add_source(self, number: int, delta: str, value: str, names: Names) -> list[str]:
        """Return statements that add an entity's value to one slot of a delta; see `MeasureState.add_source`."""
        return self.slots[number].add_source(f"{delta}[{number + 1}]", value, names)

    def combine(self, state: State | None, delta: Delta, seek: Seek) -> State | None:
        """Return the state after a delta, or None if the group is gone."""
        new_state: State | None = self._generated["combine"](state, delta, seek)
        return new_state

    def merge(self, state: State | None, delta: Delta, seek: Seek) -> State:
        """Return the state after a delta, whichever of the others came before it.

        Where deltas of different writers arrive in any order, numbers can be below zero for a while. Nothing is lost
        then: the state after all deltas is the same in each order.
        """
        new_state: State = self._generated["merge"](state, delta)
        self.settle(new_state, seek)
        return new_state

    def pack_delta(self, delta: Delta) -> bytes:
        """Return a delta as it is stored; what changes nothing gives what `zero` does."""
        return _encode([delta[0], *[slot.pack_delta(part) for slot, part in zip(self.slots, delta[1:], strict=True)]])

    def unpack_delta(self, packed: bytes) -> Delta:
        """Return a delta that was packed."""
        return self._unpacked(packed, "unpack_delta", "the change of a group")

    def unpack_signed(self, blob: bytes) -> State:
        """Return a stored state, whose numbers may be below zero."""
        return self._unpacked(blob, "unpack_signed", "the state of a group")

    def _unpacked(self, blob: bytes, unpack: Literal["unpack_delta", "unpack_signed"], subject: str) -> list[Any]:
        try:
            number, *values = _decode(blob)
            pairs = zip(self.slots, values, strict=True)
            return [read_signed(number), *[getattr(slot, unpack)(value) for slot, value in pairs]]
        except DAMAGE as error:
            raise CorruptStore(f"{self.declaration.name}: {subject} cannot be read: {error}") from error

    def correction(self, live: Delta, stored_state: State | None) -> Delta:
        """Return the delta that leads from a stored state, None for none, to what live entities add up to.

        Every later change adds the same to both, so it stays the one that is needed.
        """
        old_state = self.empty() if stored_state is None else stored_state
        pairs = zip(self.slots, live[1:], old_state[1:], strict=True)
        return [live[0] - old_state[0], *[slot.correction(*values) for slot, *values in pairs]]

    def settle(self, state: State, seek: Seek) -> None:
        """Take the extremes of a state from the live values."""
        for number in self.counted_slots:
            least = seek(number, "min")
            state[number + 1] = [] if least is None else [least, seek(number, "max")]

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
        except DAMAGE as error:
            raise CorruptStore(
                f"{self.declaration.name}: the state of a group cannot be read: {error}; call store.repair()"
            ) from error

    @cached_property
    def _generated(self) -> dict[str, Callable[..., Any]]:
        """The functions that go through the slots of a state, written out."""
        names = Names(gone=self._refuse_negative, encode=_encode)
        slots = list(enumerate(self.slots, 1))
        merged = [slot.merge_source(f"state[{at}]", f"delta[{at}]", at - 1, names) for at, slot in slots]
        unsettled = ["[]" if slot.counts_values else merged[at - 1] for at, slot in slots]
        packed = [slot.pack_source(f"state[{at}]", names) for at, slot in slots]
        unpacked = [slot.unpack_source(f"v{at}", names) for at, slot in slots]
        source = [
            "def zero():",
            f"    return {self.zero_source(names)}",
            "def empty():",
            f"    return {self.empty_source(names)}",
            "def combine(state, delta, seek):",
            f"    if state is None: state = {self.empty_source(names)}",
            "    n = state[0] + delta[0]",
            "    if n < 0: gone(n)",
            f"    return [{', '.join(['n', *merged])}]{'' if self.keeps_empty else ' if n else None'}",
            "def merge(state, delta):",
            f"    if state is None: state = {self.empty_source(names)}",
            f"    return [{', '.join(['state[0] + delta[0]', *unsettled])}]",
            "def pack(state):",
            f"    return encode([{', '.join(['state[0]', *packed])}])",
            "def unpack(blob):",
            *[f"    {line}" for line in self._decode_source("blob", names)],
            f"    return [{', '.join(['n', *unpacked])}]",
            "def shown(state):",
            f"    return [{', '.join(self.shown_sources(names))}]",
        ]
        return compile_functions(f"{self.declaration.name} groups", "\n".join(source), names)

    def shown_sources(self, names: Names) -> list[str]:
        """Return source of the value of each measure, of the variable ``state``."""
        sources = []
        for field, number in self.measures:
            assert field.measure is not None
            state_source = f"state[{number + 1}]"
            is_count = number < 0
            value_source = (
                state_source if is_count else self.slots[number].show_source(field.measure.kind, state_source, names)
            )
            if field.measure.kind == "sum" and not field.optional:  # (a group can be empty: `keeps_empty`)
                value_source = f"({value_source} if {state_source}[0] else {names.name('nothing', field.type.kind())})"
            sources.append(value_source)
        return sources

    def _refuse_negative(self, count: int) -> None:
        raise CorruptStore(f"{self.declaration.name}: a group would have {count} entities; call store.repair()")

    def to_json(self) -> dict[str, Any]:
        """Return what the catalogue keeps."""
        properties = self.declaration.properties
        return {
            "of": self.source.__name__,
            "where": dump_by_property(self.where),
            "groups": {properties[name]: _label(attr) for name, attr in self.groups.items()},
            "measures": {
                field.property: [
                    field.measure.kind,
                    None if field.measure.attr is None else dump_value(field.measure.attr, _label),
                    dump_by_property(field.measure.where),
                ]
                for field, _ in self.measures
                if field.measure is not None
            },
        }


def _label(attr: Attr[Any, Any] | ElementAttr[Any, Any]) -> str:
    return by_property(attr).label


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def aggregate_model(declaration: Declaration) -> AggregateModel:
    """Compile the measures of an aggregate class."""
    slots: list[MeasureState] = []
    numbers: dict[tuple[Any, ...], int] = {}
    measures = []
    groups = {}
    for field in declaration.fields:
        measure = field.measure
        assert measure is not None
        if measure.kind == "group":
            if isinstance(measure.attr, Attr | ElementAttr):
                groups[field.name] = measure.attr
        elif measure.kind == "count" and measure.attr is None and measure.where is None:
            measures.append((field, -1))
        else:
            assert not isinstance(measure.attr, ElementAttr)
            slot = slot_of(measure.kind, measure.attr, measure.where)
            if slot.identity not in numbers:
                numbers[slot.identity] = len(slots)
                slots.append(slot)
            measures.append((field, numbers[slot.identity]))
    source = declaration.of or object
    return AggregateModel(declaration, source, declaration.where, groups, tuple(measures), tuple(slots))
