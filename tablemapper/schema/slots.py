"""The slots of an aggregate: the parts of a group's state that answer its measures.

Each kind of slot is a class, and says all about itself, most of it as source for generated functions. A new measure is
a class here, or a word in the ``measures`` of one, and a function in `entities.fields`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

import attrs

from ..codegen import Names
from ..entities.fields import MeasureKind
from ..errors import safe_repr
from ..expressions.arithmetic import Computed
from ..expressions.predicates import dump
from ..expressions.sortable import load_sortable, sortable
from ..expressions.tree import Attr, Predicate
from ..values.sums import SUMS, ExactSum, negated, read_number, read_signed

State: TypeAlias = list[Any]
"""``[number of entities, value of each slot…]``"""
End: TypeAlias = Literal["min", "max"]
Seek: TypeAlias = Callable[[int, End], Any]
"""Finds the least or greatest live value of a slot, by its number, once the values that changed are stored."""


@attrs.frozen(eq=False)
class MeasureState:
    """A slot, which one or more measures are answered from.

    Sources name variables: ``slot_state`` is the slot's value in a state, ``change`` in a delta.
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

    def merge_source(self, slot_state: str, change: str, number: int, names: Names) -> str:
        """Return source of the slot's state after a change, ``number`` being that of the slot for ``seek``."""
        raise NotImplementedError

    def pack_source(self, slot_state: str, names: Names) -> str:
        """Return source of what is stored."""
        return slot_state

    def unpack_source(self, packed: str, names: Names) -> str:
        """Return source of what was packed."""
        return packed

    def pack_delta(self, change: Any) -> Any:
        """Return a change, in either direction, as it is stored."""
        return change

    def unpack_delta(self, packed: Any) -> Any:
        """Return a change that was packed; ValueError if it is something else."""
        raise NotImplementedError

    def unpack_signed(self, packed: Any) -> Any:
        """Return the slot's state, which may be below zero, from its packed form."""
        return self.unpack_delta(packed)

    def advance_source(self, number: int, names: Names) -> str:
        """Return a statement that makes of ``v`` and a stored number what is held after ``delta``, and that packed."""
        merged = self.merge_source(self.unpack_source(f"v{number}", names), f"delta[{number}]", number - 1, names)
        return f"h{number} = {merged}; p{number} = {self.pack_source(f'h{number}', names)}"

    def show(self, measure: MeasureKind) -> Callable[[Any], Any]:
        """Return the function that gives a measure of what is held."""
        raise NotImplementedError

    def show_source(self, measure: MeasureKind, slot_state: str, names: Names) -> str:
        """Return source of a measure of the slot's state."""
        return f"{names.name(measure, self.show(measure))}({slot_state})"

    def expected(self, live: Any, stored_state: Any) -> Any:
        """Return what a check expects, of what live values give and what is stored."""
        return live

    def correction(self, live: Any, stored_state: Any) -> Any:
        """Return the change that leads from what is stored to what the changes of all live values add up to."""
        raise NotImplementedError

    # -- as Python, for totals of queries

    def start(self) -> Any:
        """Return what is held of no values."""
        return None

    def adder(self) -> Callable[[Any, Any], Any]:
        """Return the function that gives what is held with one more value; what was held may change."""
        raise NotImplementedError

    def united(self, slot_state: Any, other: Any) -> Any:
        """Return the slot's state of the values of two groups."""
        return None

    def of_some(self, slot_state: Any) -> State:
        """Return the number of the entities that are measured (at least whether there is one), and what is held."""
        raise NotImplementedError


class Count(MeasureState):
    """The number of entities, of those with a value or under a condition. (All of them need no slot.)"""

    name = "count"
    measures: ClassVar[frozenset[MeasureKind]] = frozenset({"count"})

    def zero_source(self, names: Names) -> str:
        return "0"

    def add_source(self, change: str, value: str, names: Names) -> list[str]:
        return [f"{change} += sign"]

    def merge_source(self, slot_state: str, change: str, number: int, names: Names) -> str:
        return f"{slot_state} + {change}"

    def correction(self, live: Any, stored_state: Any) -> Any:
        return live - stored_state

    def unpack_delta(self, packed: Any) -> Any:
        return read_signed(packed)

    def unpack_source(self, packed: str, names: Names) -> str:
        return f"{names.name('number', read_number)}({packed})"

    def show_source(self, measure: MeasureKind, slot_state: str, names: Names) -> str:
        return slot_state

    def of_some(self, slot_state: Any) -> State:
        return [slot_state, None]


class Sum(MeasureState):
    """The exact sum of a field, and how many values it has."""

    name = "sum"
    measures: ClassVar[frozenset[MeasureKind]] = frozenset({"sum", "avg"})

    @property
    def _exact(self) -> ExactSum[Any]:
        assert self.attr is not None
        return SUMS[self.attr.type.kind]

    def zero_source(self, names: Names) -> str:
        return repr(self._exact.zero())

    def add_source(self, change: str, value: str, names: Names) -> list[str]:
        return self._exact.add_source(change, value, names)

    def merge_source(self, slot_state: str, change: str, number: int, names: Names) -> str:
        return f"{names.name('merge', self._exact.merge)}({slot_state}, {change})"

    def check(self, value: Any) -> Any:
        return self._exact.check(value)

    def correction(self, live: Any, stored_state: Any) -> Any:
        return self._exact.merge(live, negated(stored_state))

    def pack_source(self, slot_state: str, names: Names) -> str:
        return f"{names.name('pack', self._exact.pack)}({slot_state})"

    def unpack_source(self, packed: str, names: Names) -> str:
        return f"{names.name('unpack', self._exact.unpack)}({packed})"

    def pack_delta(self, change: Any) -> Any:
        return self._exact.pack(change)

    def unpack_delta(self, packed: Any) -> Any:
        return self._exact.unpack(packed, read_signed)

    def show(self, measure: MeasureKind) -> Callable[[Any], Any]:
        return self._exact.mean if measure == "avg" else self._exact.shown

    def start(self) -> Any:
        return self._exact.zero()

    def adder(self) -> Callable[[Any, Any], Any]:
        add = self._exact.add

        def included(slot_state: Any, value: Any) -> Any:
            add(slot_state, value, 1)
            return slot_state

        return included

    def united(self, slot_state: Any, other: Any) -> Any:
        return self._exact.merge(slot_state, other)

    def of_some(self, slot_state: Any) -> State:
        return [slot_state[0], slot_state]


class _Ends(MeasureState):
    """The least and the greatest value of a field, ``[]`` or ``[least, greatest]``, in sortable form."""

    ordered = True

    @property
    def _class(self) -> type:
        """The type of the sortable forms of the field's values."""
        assert self.attr is not None
        return _CLASSES.get(self.attr.type.kind, str)

    def check(self, value: Any) -> Any:
        assert self.attr is not None
        return self.attr.type.check(value)

    def unpack_source(self, packed: str, names: Names) -> str:
        return f"{names.name('ends', partial(_read_ends, self._class))}({packed})"

    def unpack_delta(self, packed: Any) -> Any:
        return _read_ends(self._class, packed)

    def show(self, measure: MeasureKind) -> Callable[[Any], Any]:
        assert self.attr is not None
        kind, end = self.attr.type, 0 if measure.startswith("min") else -1
        return lambda slot_state: load_sortable(kind, slot_state[end]) if slot_state else None

    def start(self) -> Any:
        return []

    def adder(self) -> Callable[[Any, Any], Any]:
        assert self.attr is not None
        store = sortable(self.attr.type)
        return lambda slot_state, value: _widened(slot_state, store(value))

    def united(self, slot_state: Any, other: Any) -> Any:
        return _widened_by(slot_state, other)

    def of_some(self, slot_state: Any) -> State:
        return [len(slot_state), slot_state]


class Extremes(_Ends):
    """The ends of the live values. A change counts how often each value came, or went."""

    name = "extremes"
    measures: ClassVar[frozenset[MeasureKind]] = frozenset({"min", "max"})
    counts_values = True

    def zero_source(self, names: Names) -> str:
        return "{}"

    def empty_source(self, names: Names) -> str:
        return "[]"

    def add_source(self, change: str, value: str, names: Names) -> list[str]:
        return [f"{change}[{value}] = {change}.get({value}, 0) + sign"]

    def merge_source(self, slot_state: str, change: str, number: int, names: Names) -> str:
        return f"{names.name('merge', partial(_ends_after, self._class))}({slot_state}, {change}, {number}, seek)"

    def pack_delta(self, change: Any) -> Any:
        return [[value, count] for value, count in change.items() if count]

    def unpack_delta(self, packed: Any) -> Any:
        return {value: read_signed(count) for value, count in packed}

    def unpack_signed(self, packed: Any) -> Any:
        return super().unpack_delta(packed)

    def correction(self, live: Any, stored_state: Any) -> Any:
        return {}  # the values are counted beside the state: `AggregateModel.settle`


class Ever(_Ends):
    """The ends of all values that ever were."""

    name = "ever"
    measures: ClassVar[frozenset[MeasureKind]] = frozenset({"min_ever", "max_ever"})
    lasting = True

    def zero_source(self, names: Names) -> str:
        return "[]"

    def add_source(self, change: str, value: str, names: Names) -> list[str]:
        return [f"if sign > 0: {change} = {names.name('widened', _widened)}({change}, {value})"]

    def merge_source(self, slot_state: str, change: str, number: int, names: Names) -> str:
        return f"{names.name('merge', _widened_by)}({slot_state}, {change})"

    def correction(self, live: Any, stored_state: Any) -> Any:
        return live

    def expected(self, live: Any, stored_state: Any) -> Any:
        """Take what is stored, if that is no less extreme than the live values."""
        wider = stored_state and (not live or (stored_state[0] <= live[0] and stored_state[-1] >= live[-1]))
        return stored_state if wider else live


_CLASSES: dict[type, type] = {int: int, bool: int, timedelta: int, float: float, bytes: bytes}
"""Of sortable forms; all others are text."""


def _read_ends(kind: type, packed: Any) -> list[Any]:
    if isinstance(packed, list) and (not packed or [end.__class__ for end in packed] == [kind, kind]):
        return packed
    raise ValueError(f"{safe_repr(packed)} are not the ends of a group's values")


def _widened(ends: list[Any], value: Any) -> list[Any]:
    """Return ``[least, greatest]`` with one more value in it."""
    if not ends:
        return [value, value]
    if value < ends[0]:
        return [value, ends[-1]]
    return [ends[0], value] if value > ends[-1] else ends


def _widened_by(ends: list[Any], values: list[Any]) -> list[Any]:
    for value in values:
        ends = _widened(ends, value)
    return ends


def _ends_after(kind: type, ends: list[Any], change: dict[Any, int], number: int, seek: Seek) -> list[Any]:
    for value, count in change.items():
        if count < 0 and ends and value in (ends[0], ends[-1]):
            least = seek(number, "min")
            return [] if least is None else _read_ends(kind, [least, seek(number, "max")])
    return _widened_by(ends, [value for value, count in change.items() if count > 0])


_KINDS: dict[MeasureKind, type[MeasureState]] = {
    measure: kind for kind in (Count, Sum, Extremes, Ever) for measure in kind.measures
}


def slot_of(
    measure: MeasureKind, attr: Attr[Any, Any] | Computed[Any, Any] | None, where: Predicate[Any] | None = None
) -> MeasureState:
    """Return the slot that a measure is answered from."""
    return _KINDS[measure](attr, where)
