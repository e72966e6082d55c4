"""What is true of rows, in plain Python: nothing here asks the library, and nothing is shared with it.

A row is a dict of an entity's values. Conditions are data of our own; so are the rows of aggregates, which are computed
from the rows that they are of.
"""

from __future__ import annotations

import datetime
import operator
import zlib
from collections.abc import Callable, Iterable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from .conditions import (
    Between,
    Both,
    Calculation,
    Compare,
    Condition,
    Contains,
    Either,
    In,
    Null,
    Operand,
    StartsWith,
    Unless,
)
from .kinds import ANY, WRITTEN, Kind
from .models import Field, Index, Measure, Model, Record, Slot, slots_of

Row: TypeAlias = dict[str, Any]
Identity: TypeAlias = tuple[Any, ...]

_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_NORMAL = Context(prec=100)
_RATIO = Context(prec=28)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def clean(given: Any, kind: Kind | None = None) -> Any:
    """Return a value as an entity holds it: no zero has a sign, and a time no more than its precision."""
    if given is not None and kind is not None and kind.precision:
        fraction = given.microsecond if kind.precision == "us" else given.microsecond // 1000 * 1000
        return given.replace(microsecond=0 if kind.precision == "s" else fraction)
    return given + 0 if isinstance(given, float) else given


def plain(given: Any) -> Any:
    """Return a Decimal without its trailing zeros; any other value as it is."""
    return given.normalize(_NORMAL) if isinstance(given, Decimal) else given


def cut_time(moment: Any, format: str) -> str:
    """Return a time, a date or a time of day cut down."""
    made, at = "", 0
    while at < len(format):
        if format[at] != "%":
            made += format[at]
            at += 1
            continue
        match format[at + 1]:
            case "Y":
                made += str(moment.year).zfill(4)
            case "G":
                made += str(moment.isocalendar().year).zfill(4)
            case "V":
                made += str(moment.isocalendar().week).zfill(2)
            case "q":
                made += str((moment.month + 2) // 3)
            case "L":
                made += str(moment.microsecond // 1000).zfill(3)
            case "f":
                made += str(moment.microsecond).zfill(6)
            case code:
                unit = {"m": "month", "d": "day", "H": "hour", "M": "minute", "S": "second"}[code]
                made += str(getattr(moment, unit)).zfill(2)
        at += 2
    return made


def value(row: Row, operand: Operand | Calculation) -> Any:
    """Return what a row has of an operand; None if that is missing."""
    if isinstance(operand, Calculation):
        return calculated(row, operand)
    found = row.get(operand.field)  # (another class of a mixed query may not have it)
    if operand.step and found is not None:
        return found.get(operand.step) if isinstance(found, dict) else getattr(found, operand.step)
    if not operand.cut or found is None:
        return found
    how, _, zone = operand.cut.partition(" ")
    if how == "floor":
        minute = (found.hour * 60 + found.minute) // int(zone) * int(zone)
        return found.replace(hour=minute // 60, minute=minute % 60, second=0, microsecond=0)
    found = found.astimezone(ZoneInfo(zone)) if zone else found
    return found.date() if how == "date" else cut_time(found, how)


def calculated(row: Row, wanted: Calculation) -> Any:
    """Return what a calculation gives; None if an operand is missing."""
    left = value(row, wanted.left)
    right = value(row, wanted.right) if isinstance(wanted.right, Operand) else wanted.right
    if left is None or right is None:
        return None
    if isinstance(left, Decimal):
        return {"+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply}[wanted.op](left, right)
    return {"+": operator.add, "-": operator.sub, "*": operator.mul}[wanted.op](left, right)


def holds(condition: Condition, row: Row) -> bool:
    """Tell whether a condition holds: a comparison with a missing value never does."""
    match condition:
        case Unless(part=part):
            return not holds(part, row)
        case Both(one=one, other=other):
            return holds(one, row) and holds(other, row)
        case Either(one=one, other=other):
            return holds(one, row) or holds(other, row)
    left = condition.left
    found = value(row, left)
    match condition:
        case Null():
            return found is None
        case Compare(op=op, right=None):
            return (found is None) == (op == "==")
        case Compare(op=op, right=Operand() as other):
            right = value(row, other)
            return found is not None and right is not None and _COMPARE[op](found, right)
        case Compare(op=op, right=right):
            right = clean(right, left.kind) if op in ("==", "!=") else right
            return found is not None and _alike(left, found, right) and _COMPARE[op](found, right)
        case Between(low=low, high=high):
            return found is not None and low <= found <= high
        case In(values=values):
            return found is not None and any(
                _alike(left, found, one) and found == clean(one, left.kind) for one in values
            )
        case StartsWith(start=start):
            return found is not None and found[: len(start)] == start
        case Contains(value=wanted):
            return found is not None and wanted in found
    raise TypeError(condition)


def _alike(operand: Operand, one: Any, other: Any) -> bool:
    return operand.kind is not ANY or isinstance(one, str) == isinstance(other, str)


# ---------------------------------------------------------------------------------------------- order, totals


def sort_values(row: Row, order: Iterable[tuple[Operand, bool]]) -> tuple[Any, ...]:
    """Return what an order compares."""
    return tuple(value(row, operand) for operand, _ in order)


def in_order(rows: Iterable[Row], order: Sequence[tuple[Operand, bool]]) -> list[Row]:
    """Return rows in an order of operands, each with whether it is descending; what is missing is the least."""
    found = list(rows)
    for operand, descending in reversed(order):
        found.sort(key=lambda row: _place(value(row, operand)), reverse=descending)
    return found


def _place(given: Any) -> tuple[bool, Any]:
    return given is not None, given.value if isinstance(given, Enum) else given


def total(values: Iterable[Any]) -> Any:
    """Return the exact sum of what is there, rounded once if it is a float; None of nothing."""
    there = [one for one in values if one is not None]
    if not there:
        return None
    match there[0]:
        case Decimal():
            found = Decimal(0)
            for one in there:
                found = _EXACT.add(found, one)
            return found
        case float():
            infinite = {one for one in there if one in (float("inf"), -float("inf"))}
            if infinite:
                return infinite.pop() if len(infinite) == 1 else None
            exact = sum(map(Fraction, there), Fraction(0))
            try:
                return float(exact)
            except OverflowError:
                return float("inf") if exact > 0 else -float("inf")
        case datetime.timedelta():
            return sum(there, datetime.timedelta())
    return sum(there)


def average(values: Iterable[Any]) -> Any:
    """Return the sum, divided by the number of values."""
    there = [one for one in values if one is not None]
    found = total(there)
    if found is None:
        return None
    return _RATIO.divide(found, len(there)) if isinstance(found, Decimal) else found / len(there)


def extreme(verb: str, values: Iterable[Any]) -> Any:
    """Return the least or the greatest of what is there; a Decimal without its trailing zeros."""
    there = [one for one in values if one is not None]
    return plain((min if verb.startswith("min") else max)(there)) if there else None


def measure_of(verb: str, values: Iterable[Any]) -> Any:
    """Return what a measure says of values, those that are missing left out."""
    there = [one for one in values if one is not None]
    match verb:
        case "count":
            return len(there)
        case "sum":
            return total(there)
        case "avg":
            return average(there)
    return extreme(verb, there)


# ---------------------------------------------------------------------------------------------- slots


def _escaped(text: str) -> str:
    made = ""
    for at, char in enumerate(text):
        following = text[at + 1 : at + 2]
        if char < " " or (char == " " and following <= '"'):  # (the end is below everything)
            made += f' "{ord(char):02x}'
        elif char in "#/?\\":
            made += chr(ord(char) - 1) + "~"
        elif "\x7f" <= char <= "\x9f":
            made += f"~~{ord(char):02x}"
        else:
            made += char + ("}" if char in '".>[~' and following >= "}" else "")
    return made


def _bucket(given: Any, count: int) -> int:
    """Return the shard of a text, or of an int."""
    if isinstance(given, str):
        text = _escaped(given)
    else:
        digits = str(abs(given))
        text = (
            chr(96 + len(digits)) + digits
            if given >= 0
            else chr(91 - len(digits)) + str(10 ** len(digits) - 1 + given).zfill(len(digits))
        )
    return zlib.crc32(text.encode()) % count


def slot_value(slot: Slot, given: Any) -> Any:
    """Return what the slot makes of a value: it is equal where the texts of the slot are."""
    if isinstance(given, Enum):
        given = given.value
    if slot.spec == "fold":
        return given.casefold()
    if slot.spec.startswith("prefix"):
        return given[: int(slot.spec[7:-1])]
    if slot.spec.startswith("shard"):
        return _bucket(given, int(slot.spec[6:-1]))
    return cut_time(given, slot.spec) if "%" in slot.spec else given


def entries(record: Record, index: Index, row: Row) -> list[dict[str, Any]]:
    """Return the values, by slot, of the rows that an entity has in an index."""
    if index.where is not None and not holds(index.where, row):
        return []
    found: list[dict[str, Any]] = [{}]
    for name in dict.fromkeys(slot.field for slot in slots_of(index.partition, index.row)):
        operand = record.operand(name)
        held = value(row, operand)
        if held is None or (operand.kind is ANY and not isinstance(held, str)):
            return []
        several = held if record.field(operand.field).kind.element else [held]
        found = [{**one, name: element} for one in found for element in several]
    return found


def index_rows(record: Record, index: Index, row: Row) -> set[Identity]:
    """Return what tells the rows apart that an entity has in an index."""
    slots = slots_of(index.partition, index.row)
    return {_identity(slots, entry) for entry in entries(record, index, row)}


def in_range(record: Record, index: Index, given: Sequence[Any], row: Row) -> bool:
    """Tell whether an index, asked by name with leading values, finds a row: every slot equals what it makes of them."""
    known = {name: clean(one, record.operand(name).kind) for name, one in zip(index.arguments, given, strict=False)}
    slots = [slot for slot in slots_of(index.partition, index.row) if slot.field in known]
    return any(
        all(slot_value(slot, entry[slot.field]) == slot_value(slot, known[slot.field]) for slot in slots)
        for entry in entries(record, index, row)
    )


def _identity(slots: Iterable[Slot], values: Row) -> Identity:
    return tuple(slot_value(slot, values[slot.field]) for slot in slots)


def same_partition(record: Record, one: Row, other: Row) -> bool:
    """Tell whether values of the fields of a class's partition give one partition."""
    slots = slots_of(record.partition)
    return _identity(slots, one) == _identity(slots, other)


# ---------------------------------------------------------------------------------------------- state


class State:
    """The rows of a store."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._rows: dict[str, dict[Identity, Row]] = {record.name: {} for record in model.entities}
        self.times: dict[tuple[str, Identity], datetime.datetime | None] = {}
        """When each was written, as the store says."""
        self._ever: dict[str, dict[Identity, dict[str, list[Any]]]] = {}
        self.forget()

    def forget(self) -> None:
        """Begin again to remember what ever was, from what is there: aggregates are built."""
        self._ever = {record.name: {} for record in self.model.records if record.of is not None}
        for record in self.model.entities:
            for row in self.rows(record.name):
                self._remember(record.name, row)

    def identity(self, name: str, row: Row) -> Identity:
        """Return what no two entities of a class share."""
        record = self.model.record(name)
        return _identity(slots_of(record.partition, record.row), row)

    def put(self, name: str, row: Row) -> None:
        row = {field.name: row[field.name] for field in self.model.record(name).own}
        if self.model.record(name).has_ended(row):  # (it is stored, and nothing finds it)
            self._rows[name].pop(self.identity(name, row), None)
            return
        self._rows[name][self.identity(name, row)] = row
        self._remember(name, row)

    def remove(self, name: str, row: Row) -> None:
        del self._rows[name][self.identity(name, row)]

    def copy(self) -> State:
        """Return a state that can be changed by itself."""
        other = State(self.model)
        other._rows = {name: dict(rows) for name, rows in self._rows.items()}
        other.times = self.times
        other._ever = {
            name: {group: {field: list(values) for field, values in held.items()} for group, held in groups.items()}
            for name, groups in self._ever.items()
        }
        return other

    def bare(self) -> State:
        """Return the state of a store that maintains nothing."""
        other = State(self.model.bare)
        other._rows = {name: dict(rows) for name, rows in self._rows.items()}
        return other

    def clashes(self) -> bool:
        """Tell whether a unique index would have two rows in one place."""
        for record in self.model.records:
            for index in record.indexes:
                if index.unique:
                    held: set[Identity] = set()
                    for row in self.rows(record.name):
                        own = index_rows(record, index, row)
                        if own & held:
                            return True
                        held |= own
        return False

    def written(self, name: str) -> list[Row]:
        """Return what was written of a class of entities."""
        return list(self._rows[name].values())

    def rows(self, name: str) -> list[Row]:
        """Return the rows of a class."""
        record = self.model.record(name)
        if record.of is None:
            found = self.written(name)
            if record.measures:
                found = [self._whole(record, row) for row in found]
            return [self._with_time(record, row) for row in found]
        groups: dict[Identity, list[Row]] = {group: [] for group in self._ever[name] if self._keeps(record)}
        for row in self.rows(record.of):
            for group in _groups(record, row):
                groups.setdefault(group, []).append(row)
        return [self._with_time(record, self._group_row(record, group, rows)) for group, rows in groups.items()]

    def _with_time(self, record: Record, row: Row) -> Row:
        return {**row, WRITTEN: self.times.get((record.name, self.identity(record.name, row)))} if record.timed else row

    def _whole(self, record: Record, row: Row) -> Row:
        """Return a row with its maintained fields."""
        assert record.over is not None
        key = [(name, plain(row[name])) for name in record.key_fields]
        parts = [one for one in self.written(record.over) if all(plain(one[name]) == held for name, held in key)]
        made = dict(row)
        for field, measure in record.measures.items():
            made[field] = _measure(record.field(field), measure, parts)
        return made

    def recall(self, name: str, row: Row) -> None:
        """Remember a group as it was read: what ever was may be more than what there is."""
        record = self.model.record(name)
        measures = [(field, measure.verb) for field, measure in record.measures.items()]
        held = self._ever[name].setdefault(
            tuple(plain(row[field]) for field, verb in measures if verb == "group_by"), {}
        )
        for field, verb in measures:
            if verb.endswith("ever"):
                held.setdefault(field, []).append(row[field])

    def _keeps(self, record: Record) -> bool:
        return any(measure.verb.endswith("ever") for measure in record.measures.values())

    def _remember(self, name: str, row: Row) -> None:
        for record in self.model.records:
            for group in _groups(record, row) if record.of == name else ():
                held = self._ever[record.name].setdefault(group, {})
                for field, measure in record.measures.items():
                    if measure.verb.endswith("ever"):
                        held.setdefault(field, []).extend(_measured(measure, [row]))

    def _group_row(self, record: Record, group: Identity, rows: list[Row]) -> Row:
        made: Row = {}
        keys = iter(group)
        for field, measure in record.measures.items():
            if measure.verb == "group_by":
                made[field] = next(keys)
            elif measure.verb.endswith("ever"):
                made[field] = extreme(measure.verb, self._ever[record.name][group][field])
            else:
                made[field] = _measure(record.field(field), measure, rows)
        return made


def _measure(field: Field, measure: Measure, rows: Iterable[Row]) -> Any:
    """Return what a field holds; of no values a field that must have one has the sum of nothing."""
    values = _measured(measure, rows)
    return measure_of(measure.verb, values) if values or field.optional or measure.verb == "count" else field.kind.zero


def _groups(record: Record, row: Row) -> list[Identity]:
    """Return the groups of a row."""
    if record.where is not None and not holds(record.where, row):
        return []
    found: list[Identity] = [()]
    for measure in record.measures.values():
        if measure.verb == "group_by" and isinstance(measure.operand, Operand):
            several = [plain(one) for one in _elements(row, measure.operand) if one is not None]
            found = [(*group, one) for group in found for one in dict.fromkeys(several)]
    return found


def _elements(row: Row, operand: Operand) -> list[Any]:
    return row.get(operand.field) or [] if operand.cut == "each" else [value(row, operand)]


def _measured(measure: Measure, rows: Iterable[Row]) -> list[Any]:
    """Return the values that a measure is of, one for each row if it counts rows."""
    counted = [row for row in rows if measure.where is None or holds(measure.where, row)]
    if measure.operand is None:
        return counted
    return [held for row in counted if (held := value(row, measure.operand)) is not None]
