"""What is kept for each group of an aggregate, and how a change of entities changes it.

What is kept for a group is a *state*: the number of its entities, and a value for each *slot*. A slot is what one or
more measures are answered from: ``sum`` and ``avg`` of one field share a slot, ``min`` and ``max`` too. A change of
entities is a *delta*, of the same shape; `AggregateModel.combine` is the one place where the two meet.

Each kind of slot is a class, and says all about itself, most of it as source for generated functions. A new measure is
a class here, or a word in the ``measures`` of one, and a function in `entities.fields`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, TypeAlias

import attrs
import msgspec

from ..codegen import Names, compile_functions
from ..entities.declaration import Declaration, by_property, dump_by_property
from ..entities.fields import FieldModel, MeasureKind
from ..errors import CorruptStore, shown
from ..expressions.arithmetic import Computed
from ..expressions.predicates import dump, dump_value
from ..expressions.tree import Attr, Each, Predicate
from ..keys.codec import key_codec
from ..values.scalars import SCALARS, ValueType
from ..values.sums import SUMS, ExactSum, negated, read_number
from .rows import DAMAGE

__all__ = [
    "AggregateModel", "Count", "Delta", "Ever", "Extremes", "Slot", "State", "Sum", "aggregate_model",
    "slot_of", "sortable_source", "store_sortable",
]  # fmt: skip

State: TypeAlias = list[Any]
"""``[number of entities, value of each slot…]``"""
Delta: TypeAlias = list[Any]
"""``[change of the number, change of each slot…]``"""
End: TypeAlias = Literal["min", "max"]
Seek: TypeAlias = Callable[[int, End], Any]
"""Finds the least or greatest live value of a slot, by its number, once the values that changed are stored."""


# ---------------------------------------------------------------------------------------------- kinds of slots


@attrs.frozen(eq=False)
class Slot:
    """What one or more measures are answered from.

    Sources name variables: ``held`` is the slot's value in a state, ``change`` in a delta.
    """

    name: ClassVar[str]
    measures: ClassVar[frozenset[MeasureKind]]
    """What it answers."""
    ordered: ClassVar[bool] = False
    """Whether values are added in their `sortable` form."""
    counts_values: ClassVar[bool] = False
    """Whether it is kept beside the state how often each live value is there, to seek the ends."""
    lasting: ClassVar[bool] = False
    """Whether it keeps values that are gone: then a group stays when it is empty, and no check can recompute it."""

    attr: Attr[Any, Any] | Computed[Any, Any] | None
    """What is measured; None for the entities themselves."""
    where: Predicate[Any] | None

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for slots that always hold the same."""
        attr = None if self.attr is None else self.attr.source
        return self.name, attr, None if self.where is None else repr(dump(self.where))

    # -- as source, for aggregates

    def zero_source(self, names: Names) -> str:
        """Return source of a change that changes nothing."""
        raise NotImplementedError

    def empty_source(self, names: Names) -> str:
        """Return source of what a state without values holds."""
        return self.zero_source(names)

    def add_source(self, change: str, value: str, names: Names) -> list[str]:
        """Return statements that add a value, which is not None, to a change; ``sign`` is 1, or -1 to take it off."""
        raise NotImplementedError

    def check(self, value: Any) -> Any:
        """Return a value that was calculated, as it is added; raise ValueError if it cannot be."""
        return value

    def merge_source(self, held: str, change: str, number: int, names: Names) -> str:
        """Return source of what is held after a change, ``number`` being that of the slot for ``seek``."""
        raise NotImplementedError

    def pack_source(self, held: str, names: Names) -> str:
        """Return source of what is stored."""
        return held

    def unpack_source(self, stored: str, names: Names) -> str:
        """Return source of what was packed."""
        return stored

    def advance_source(self, number: int, names: Names) -> str:
        """Return a statement that makes of ``v`` and a stored number what is held after ``delta``, and that packed."""
        merged = self.merge_source(self.unpack_source(f"v{number}", names), f"delta[{number}]", number - 1, names)
        return f"h{number} = {merged}; p{number} = {self.pack_source(f'h{number}', names)}"

    def show(self, measure: MeasureKind) -> Callable[[Any], Any]:
        """Return the function that gives a measure of what is held."""
        raise NotImplementedError

    def show_source(self, measure: MeasureKind, held: str, names: Names) -> str:
        """Return source of a measure of what is held."""
        return f"{names.name(measure, self.show(measure))}({held})"

    def expected(self, live: Any, stored: Any) -> Any:
        """Return what a check expects, of what live values give and what is stored."""
        return live

    def correction(self, live: Any, stored: Any) -> Any:
        """Return the change that leads from what is stored to what the changes of all live values add up to."""
        raise NotImplementedError

    # -- as Python, for totals of queries

    def start(self) -> Any:
        """Return what is held of no values."""
        return None

    def adder(self) -> Callable[[Any, Any], Any]:
        """Return the function that gives what is held with one more value; what was held may change."""
        raise NotImplementedError

    def united(self, held: Any, other: Any) -> Any:
        """Return what is held of the values of two groups."""
        return None

    def of_some(self, held: Any) -> State:
        """Return the number of the entities that are measured (at least whether there is one), and what is held."""
        raise NotImplementedError


class Count(Slot):
    """How many entities there are, of those with a value or under a condition. (All of them need no slot.)"""

    name = "count"
    measures = frozenset({"count"})

    def zero_source(self, names: Names) -> str:
        return "0"

    def add_source(self, change: str, value: str, names: Names) -> list[str]:
        return [f"{change} += sign"]

    def merge_source(self, held: str, change: str, number: int, names: Names) -> str:
        return f"{held} + {change}"

    def correction(self, live: Any, stored: Any) -> Any:
        return live - stored

    def unpack_source(self, stored: str, names: Names) -> str:
        return f"{names.name('number', read_number)}({stored})"

    def show_source(self, measure: MeasureKind, held: str, names: Names) -> str:
        return held

    def of_some(self, held: Any) -> State:
        return [held, None]


class Sum(Slot):
    """The exact sum of a field, and how many values it has."""

    name = "sum"
    measures = frozenset({"sum", "avg"})

    @property
    def _exact(self) -> ExactSum[Any]:
        assert self.attr is not None
        return SUMS[self.attr.type.kind]

    def zero_source(self, names: Names) -> str:
        return repr(self._exact.zero())

    def add_source(self, change: str, value: str, names: Names) -> list[str]:
        return self._exact.add_source(change, value, names)

    def merge_source(self, held: str, change: str, number: int, names: Names) -> str:
        return f"{names.name('merge', self._exact.merge)}({held}, {change})"

    def check(self, value: Any) -> Any:
        return self._exact.check(value)

    def correction(self, live: Any, stored: Any) -> Any:
        return self._exact.merge(live, negated(stored))

    def pack_source(self, held: str, names: Names) -> str:
        return f"{names.name('pack', self._exact.pack)}({held})"

    def unpack_source(self, stored: str, names: Names) -> str:
        return f"{names.name('unpack', self._exact.unpack)}({stored})"

    def advance_source(self, number: int, names: Names) -> str:
        if (advance := self._exact.advance) is None:
            return super().advance_source(number, names)
        return f"h{number}, p{number} = {names.name('advance', advance)}(v{number}, delta[{number}])"

    def show(self, measure: MeasureKind) -> Callable[[Any], Any]:
        return self._exact.mean if measure == "avg" else self._exact.shown

    def start(self) -> Any:
        return self._exact.zero()

    def adder(self) -> Callable[[Any, Any], Any]:
        add = self._exact.add

        def included(held: Any, value: Any) -> Any:
            add(held, value, 1)
            return held

        return included

    def united(self, held: Any, other: Any) -> Any:
        return self._exact.merge(held, other)

    def of_some(self, held: Any) -> State:
        return [held[0], held]


class _Ends(Slot):
    """The least and the greatest value of a field, ``[]`` or ``[least, greatest]``, in sortable form."""

    ordered = True

    @property
    def _class(self) -> type:
        """What the sortable forms of the field's values are."""
        assert self.attr is not None
        return _CLASSES.get(self.attr.type.kind, str)

    def check(self, value: Any) -> Any:
        assert self.attr is not None
        return self.attr.type.check(value)

    def unpack_source(self, stored: str, names: Names) -> str:
        return f"{names.name('ends', partial(_read_ends, self._class))}({stored})"

    def show(self, measure: MeasureKind) -> Callable[[Any], Any]:
        assert self.attr is not None
        kind, end = self.attr.type, 0 if measure.startswith("min") else -1
        return lambda held: _load_sortable(kind, held[end]) if held else None

    def start(self) -> Any:
        return []

    def adder(self) -> Callable[[Any, Any], Any]:
        assert self.attr is not None
        store = sortable(self.attr.type)
        return lambda held, value: _widened(held, store(value))

    def united(self, held: Any, other: Any) -> Any:
        return _widened_by(held, other)

    def of_some(self, held: Any) -> State:
        return [len(held), held]


class Extremes(_Ends):
    """The ends of the live values. A change counts how often each value came, or went."""

    name = "extremes"
    measures = frozenset({"min", "max"})
    counts_values = True

    def zero_source(self, names: Names) -> str:
        return "{}"

    def empty_source(self, names: Names) -> str:
        return "[]"

    def add_source(self, change: str, value: str, names: Names) -> list[str]:
        return [f"{change}[{value}] = {change}.get({value}, 0) + sign"]

    def merge_source(self, held: str, change: str, number: int, names: Names) -> str:
        return f"{names.name('merge', partial(_ends_after, self._class))}({held}, {change}, {number}, seek)"

    def correction(self, live: Any, stored: Any) -> Any:
        return {}  # the values are counted beside the state: `AggregateModel.settle`


class Ever(_Ends):
    """The ends of all values that ever were."""

    name = "ever"
    measures = frozenset({"min_ever", "max_ever"})
    lasting = True

    def zero_source(self, names: Names) -> str:
        return "[]"

    def add_source(self, change: str, value: str, names: Names) -> list[str]:
        return [f"if sign > 0: {change} = {names.name('widened', _widened)}({change}, {value})"]

    def merge_source(self, held: str, change: str, number: int, names: Names) -> str:
        return f"{names.name('merge', _widened_by)}({held}, {change})"

    def correction(self, live: Any, stored: Any) -> Any:
        return live

    def expected(self, live: Any, stored: Any) -> Any:
        """Take what is stored, if that is no less extreme than the live values."""
        wider = stored and (not live or (stored[0] <= live[0] and stored[-1] >= live[-1]))
        return stored if wider else live


_CLASSES: dict[type, type] = {int: int, bool: int, timedelta: int, float: float, bytes: bytes}
"""Of sortable forms; all others are text."""


def _read_ends(kind: type, stored: Any) -> list[Any]:
    if isinstance(stored, list) and (not stored or [one.__class__ for one in stored] == [kind, kind]):
        return stored
    raise ValueError(f"{shown(stored)} are not the ends of a group's values")


def _widened(ends: list[Any], value: Any) -> list[Any]:
    """Return ``[least, greatest]`` with one more value in it."""
    if not ends:
        return [value, value]
    if value < ends[0]:
        return [value, ends[-1]]
    return [ends[0], value] if value > ends[-1] else ends


def _widened_by(ends: list[Any], others: list[Any]) -> list[Any]:
    for value in others:
        ends = _widened(ends, value)
    return ends


def _ends_after(kind: type, ends: list[Any], change: dict[Any, int], number: int, seek: Seek) -> list[Any]:
    for value, count in change.items():
        if count < 0 and ends and value in (ends[0], ends[-1]):
            least = seek(number, "min")
            return [] if least is None else _read_ends(kind, [least, seek(number, "max")])
    return _widened_by(ends, [value for value, count in change.items() if count > 0])


_BY_KEY = {"Decimal": key_codec(Decimal), "json[tuple[str, ...]]": key_codec(tuple)}
"""Of types whose values sort by their key texts only."""


def _own(kind: ValueType) -> ValueType:
    return SCALARS[kind.kind] if kind.kind in (timedelta, bytes) else kind  # (inside JSON these are text)


def sortable(kind: ValueType) -> Callable[[Any], Any]:
    """Return the function that gives values a stored form that sorts in Python and in SQLite as they do."""
    return _BY_KEY[kind.name].encode if kind.name in _BY_KEY else _own(kind).store


def sortable_source(kind: ValueType, variable: str, names: Names) -> str:
    """Return source of what `sortable` gives."""
    if kind.name in _BY_KEY:
        return f"{names.name('sortable', _BY_KEY[kind.name].encode)}({variable})"
    return _own(kind).store_source(variable, names)


def store_sortable(kind: ValueType, value: Any) -> Any:
    """Return one value in its `sortable` form."""
    return sortable(kind)(value)


def _load_sortable(kind: ValueType, stored: Any) -> Any:
    """Return the value that `store_sortable` was given; a Decimal without trailing zeros."""
    if stored.__class__ is int and kind.kind is int and kind.enum is None:
        return stored  # (one that is a sum can be beyond 64 bits)
    return _BY_KEY[kind.name].parse(stored) if kind.name in _BY_KEY else _own(kind).load(stored)


_KINDS: dict[MeasureKind, type[Slot]] = {
    measure: kind for kind in (Count, Sum, Extremes, Ever) for measure in kind.measures
}


def slot_of(
    measure: MeasureKind, attr: Attr[Any, Any] | Computed[Any, Any] | None, where: Predicate[Any] | None = None
) -> Slot:
    """Return the slot that a measure is answered from."""
    return _KINDS[measure](attr, where)


# ---------------------------------------------------------------------------------------------- groups


@attrs.frozen(eq=False, slots=False)
class AggregateModel:
    """An aggregate, compiled: its groups, its measures, and the slots they are answered from."""

    declaration: Declaration
    source: type[Any]
    where: Predicate[Any] | None
    groups: dict[str, Attr[Any, Any] | Each[Any, Any]]
    """By the aggregate's own field."""
    measures: tuple[tuple[FieldModel, int], ...]
    """Each with the number of its slot; -1 is the number of entities."""
    slots: tuple[Slot, ...]

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
            f"if n < 0: {names.name('gone', self._gone)}(n)",
            *([] if self.keeps_empty else ["if not n: return None"]),
            *[slot.advance_source(at, names) for at, slot in enumerate(self.slots, 1)],
            f"packed = {names.name('encode', _encode)}([{', '.join(['n', *[f'p{at}' for at in numbers]])}])",
            f"state = [{', '.join(['n', *[f'h{at}' for at in numbers]])}]",
        ]

    def _decode_source(self, blob: str, names: Names) -> list[str]:
        """Return statements that take the number of entities, as ``n``, and a ``v`` for each slot out of a blob."""
        taken = ", ".join(["n", *[f"v{at}" for at in range(1, len(self.slots) + 1)]])
        return [
            f"{taken}, = {names.name('decode', _decode)}({blob})",
            f"if n.__class__ is not int or n < 0: {names.name('number', read_number)}(n)",
        ]

    def add_source(self, number: int, delta: str, value: str, names: Names) -> list[str]:
        """Return statements that add an entity's value to one slot of a delta; see `Slot.add_source`."""
        return self.slots[number].add_source(f"{delta}[{number + 1}]", value, names)

    def combine(self, state: State | None, delta: Delta, seek: Seek) -> State | None:
        """Return the state after a delta, or None if the group is gone."""
        after: State | None = self._generated["combine"](state, delta, seek)
        return after

    def correction(self, live: Delta, stored: State | None) -> Delta:
        """Return the delta that leads from a stored state, None for none, to what live entities add up to.

        Every later change adds the same to both, so it stays the one that is needed.
        """
        before = self.empty() if stored is None else stored
        pairs = zip(self.slots, live[1:], before[1:], strict=True)
        return [live[0] - before[0], *[slot.correction(*values) for slot, *values in pairs]]

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
        names = Names(gone=self._gone, encode=_encode)
        slots = list(enumerate(self.slots, 1))
        merged = [slot.merge_source(f"state[{at}]", f"delta[{at}]", at - 1, names) for at, slot in slots]
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
            held = f"state[{number + 1}]"
            whole = number < 0
            shown = held if whole else self.slots[number].show_source(field.measure.kind, held, names)
            if field.measure.kind == "sum" and not field.optional:  # (a group can be empty: `keeps_empty`)
                shown = f"({shown} if {held}[0] else {names.name('nothing', field.type.kind())})"
            sources.append(shown)
        return sources

    def _gone(self, count: int) -> None:
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


def _label(attr: Attr[Any, Any] | Each[Any, Any]) -> str:
    return by_property(attr).label


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def aggregate_model(declaration: Declaration) -> AggregateModel:
    """Compile the measures of an aggregate class."""
    slots: list[Slot] = []
    numbers: dict[tuple[Any, ...], int] = {}
    measures = []
    groups = {}
    for field in declaration.fields:
        measure = field.measure
        assert measure is not None
        if measure.kind == "group":
            if isinstance(measure.attr, Attr | Each):
                groups[field.name] = measure.attr
        elif measure.kind == "count" and measure.attr is None and measure.where is None:
            measures.append((field, -1))
        else:
            assert not isinstance(measure.attr, Each)
            slot = slot_of(measure.kind, measure.attr, measure.where)
            if slot.identity not in numbers:
                numbers[slot.identity] = len(slots)
                slots.append(slot)
            measures.append((field, numbers[slot.identity]))
    source = declaration.of or object
    return AggregateModel(declaration, source, declaration.where, groups, tuple(measures), tuple(slots))
