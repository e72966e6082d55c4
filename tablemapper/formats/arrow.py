"""Columns of values as Arrow arrays, and the values of columns that come from elsewhere.

pyarrow is imported when it is first needed. A column goes out in the form in which its values are stored, and Arrow
itself turns the text of times and Decimals into its own types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from importlib import import_module
from operator import is_
from typing import Annotated, Any
from uuid import UUID

import msgspec

from ..codegen import Names, compile_functions
from ..datetime_types import Builtin
from ..errors import CorruptStore, InvalidQuery, safe_repr
from ..limits import MAX_INT64, MIN_DATETIME, MIN_INT64
from ..values.constraints import Constraint
from ..values.precision import cut_ticks
from ..values.scalars import INT32, SCALARS, Int32, ValueFault, ValueType
from ..values.timestamp import TIMESTAMP

MAX_DIGITS = 76  # of Arrow's widest decimal
_EPOCH = Builtin.datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = Builtin.datetime.max.replace(tzinfo=UTC)
_TICKS = [(end - _EPOCH) // timedelta(microseconds=1) for end in (MIN_DATETIME, _LATEST)]
_NATIVE = (str, int, float, bool)
_AT_ONCE: dict[str, Any] = {"str": str, "int": Annotated[int, msgspec.Meta(ge=MIN_INT64, le=MAX_INT64)], "int32": Int32}
"""Types of which msgspec checks a whole column as `ValueType.check` checks each value, in a fifth of the time."""
_TEXTS = {str, type(None)}


def load_package(name: str, extra: str, verb: str) -> Any:
    """Return a package that the library does not need itself.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'{verb} needs {error.name}: pip install "tablemapper[{extra}]"', name=error.name
        ) from None


def parse_lines(pa: Any, text: bytes, width: int, types: Mapping[int, Any]) -> dict[int, Any]:
    """Return columns of lines of JSON, each an array of so many scalars, as Arrow arrays by their places.

    Args:
        text: the lines; no text in them has a backslash, so that a line is one of CSV but for the brackets at its ends.
        width: how many values a line has, the first and the last of which are not read.

    Raises:
        pyarrow.ArrowInvalid: a value is none of its type.
    """
    csv = import_module("pyarrow.csv")
    names = [str(at) for at in range(width)]
    column_types = {names[at]: kind for at, kind in types.items()}
    table = csv.read_csv(
        pa.BufferReader(text),
        read_options=csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
        parse_options=csv.ParseOptions(double_quote=False),
        convert_options=csv.ConvertOptions(
            column_types=column_types, include_columns=list(column_types), null_values=["null"], strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )  # fmt: skip
    return {at: table.column(names[at]).combine_chunks() for at in types}


class ArrowColumn:
    """The Arrow column of the values of one type.

    Args:
        scale: digits behind the point of a Decimal; None for text, from which `shrunk` makes the smallest type.
    """

    def __init__(self, kind: ValueType, pa: Any, scale: int | None = None) -> None:
        self.kind = kind
        self._pa = pa
        self.type: Any
        self._storage, self.type = self._types(kind, scale)

    def _types(self, kind: ValueType, scale: int | None) -> tuple[Any, Any]:
        """Return the type of what is stored, and that of the column."""
        pa, text = self._pa, self._pa.string()
        if kind.enum is not None:
            plain = text if kind.kind is str else pa.int64()
            return plain, pa.dictionary(pa.int32(), plain)
        if kind.element is not None and kind.element.kind in _NATIVE and kind.name.startswith("list["):
            list_type = pa.list_(ArrowColumn(kind.element, pa).type)
            return list_type, list_type
        integer = pa.int32() if kind.edm == "Int32" else pa.int64()
        types: dict[Any, tuple[Any, Any]] = {
            int: (integer, integer),
            float: (pa.float64(), pa.float64()),
            bool: (pa.int8(), pa.bool_()),
            bytes: (pa.binary(), pa.binary()),
            Builtin.datetime: (pa.int64() if kind is TIMESTAMP else text, pa.timestamp("us", tz="UTC")),
            Builtin.date: (text, pa.date32()),
            time: (pa.time64("us"), pa.time64("us")),
            timedelta: (pa.int64(), pa.duration("us")),
            Decimal: (text, text if scale is None else pa.decimal128(38, scale)),
        }
        return types.get(kind.kind, (text, text))

    def of_stored(self, stored: Sequence[Any]) -> Any:
        """Return an array of stored values; raise ValueError if one does not fit."""
        if self.kind.kind is time:
            stored = [None if value is None else time.fromisoformat(value) for value in stored]
        elif self._storage == self.type and self._pa.types.is_list(self.type):
            stored = [None if value is None else msgspec.json.decode(value) for value in stored]
        return self._typed(self._pa.array(stored, self._storage))

    @property
    def parsed(self) -> Any:
        """The type that stored values have that are taken out of a text."""
        return self._pa.string() if self._is_made else self._storage

    @property
    def _is_made(self) -> bool:
        """Whether Arrow cannot make the values of what is stored."""
        return self.kind.kind is time or bool(self._pa.types.is_list(self.type))

    def of_parsed(self, array: Any) -> Any:
        """Return an array of one of stored values; raise ValueError if one does not fit."""
        return self.of_stored(array.to_pylist()) if self._is_made else self._typed(array)

    def _typed(self, array: Any) -> Any:
        if self.kind.enum is not None:
            members = self._pa.array([member.value for member in self.kind.enum], self._storage)
            indices = import_module("pyarrow.compute").index_in(array, value_set=members)
            return self._pa.DictionaryArray.from_arrays(indices.cast(self._pa.int32()), members)
        return array if self._storage == self.type else array.cast(self.type)

    def of_values(self, values: Sequence[Any]) -> Any:
        """Return an array of values; raise ValueError if one does not fit."""
        store = self.kind.store
        return self.of_stored([None if value is None else store(value) for value in values])

    def shrunk(self, column: Any, name: str) -> Any:
        """Return a column of the text of Decimals with the smallest type that holds them all.

        Raises:
            InvalidQuery: there is none.
            CorruptStore: the text is none of a Decimal.
        """
        integral, scale = 0, 0
        for text in column.unique().to_pylist():
            if text is not None:
                try:
                    _, digits, exponent = Decimal(text).as_tuple()
                except InvalidOperation:
                    raise CorruptStore(f"{name}: {safe_repr(text)} is no Decimal; run check()") from None
                assert isinstance(exponent, int)
                scale = max(scale, -exponent)
                integral = max(integral, len(digits) + exponent)
        width = max(integral + scale, 1)
        if width > MAX_DIGITS:
            raise InvalidQuery(
                f"{name}: its values need {width} digits, and a decimal of Arrow has {MAX_DIGITS}; take columns(), or "
                "arrow_batches(), where they are text"
            )
        kind = self._pa.decimal128 if width <= 38 else self._pa.decimal256
        return column.cast(kind(width, scale))


# -- from elsewhere ---------------------------------------------------------------------------------------------------


class ColumnCheck:
    """Checks the values of a column. What is NaN, NaT or NA is None."""

    def __init__(self, kind: ValueType, *, optional: bool, constraint: Constraint | None = None) -> None:
        self._check_one, self._all = _checks(kind, optional, constraint)

    def values(self, plain: Sequence[Any]) -> Sequence[Any]:
        """Return plain values, checked: themselves, if all of them are stored as they are.

        Raises:
            Fault: a value cannot be stored, with the row as its path.
        """
        try:
            return self._all(plain)
        except (ValueError, TypeError):
            for row, value in enumerate(plain):
                try:
                    self._check_one(value)
                except ValueFault as fault:
                    raise ValueFault(fault.problem, f"row {row}{fault.path}") from None
                except TypeError as error:
                    raise ValueFault(str(error), f"row {row}") from None
            raise


@lru_cache(maxsize=1024)
def _checks(
    kind: ValueType,
    optional: bool,  # noqa: FBT001
    constraint: Constraint | None,
) -> tuple[Callable[[Any], Any], Callable[[Sequence[Any]], Sequence[Any]]]:
    """Return the check of one value, and that of a column; made once, as to compile it takes as long as 1,000 rows."""

    def check(value: Any) -> Any:
        if value.__class__ not in _NATIVE and hasattr(value, "dtype") and hasattr(value, "item"):
            value = _scalar(value)
        if value is None or value.__class__.__name__ == "NAType" or value != value:  # NA; NaN, NaT
            if optional:
                return None
            raise ValueFault(f"no value, but one of type {kind.name} is required")
        value = _checked(kind, value)
        if constraint is not None:
            constraint.check(value)
        return value

    names = Names(check=check)
    test = kind.fast_source("v", names)
    if constraint is not None:
        test += f" and {constraint.source_for('v', names)}"
    missing = "v is None or " if optional else ""
    source = [
        "def checked(values):",
        "    for v in values:",
        f"        if not ({missing}{test}): break",
        "    else:",
        "        return values",
        f"    return [v if {missing}{test} else check(v) for v in values]",
    ]
    one_by_one = compile_functions(f"a column of {kind.name}", "\n".join(source) + "\n", names)["checked"]
    if constraint is not None or kind.name not in _AT_ONCE:
        return check, one_by_one
    plain = _AT_ONCE[kind.name]
    list_type: Any = list[plain | None] if optional else list[plain]  # type: ignore[valid-type]

    def checked(values: Sequence[Any]) -> Sequence[Any]:
        with suppress(msgspec.ValidationError):
            converted: list[Any] = msgspec.convert(values, list_type)
            if not kind.text:  # (what is of a subclass of int became an int)
                return values if all(map(is_, converted, values)) else converted
            if "".join(filter(None, values)).isascii() and _TEXTS.issuperset(map(type, values)):
                return values
        return one_by_one(values)  # type: ignore[no-any-return]

    return check, checked


def _checked(kind: ValueType, value: Any) -> Any:
    if kind.kind is int and value.__class__ is float and value.is_integer():
        value = int(value)
    try:
        return kind.check(value)
    except ValueFault:
        if kind.own is not None and isinstance(value, kind.kind):
            return kind.own.load(SCALARS[kind.kind].check(value))
        if value.__class__ in (str, int) and (kind.enum is not None or kind.kind in (UUID, object)):
            return kind.load(value)  # as it stands in an Arrow column
        raise


def _scalar(value: Any) -> Any:
    """Return a scalar of numpy as one of Python."""
    return next(iter(plain_values(value.reshape(1)))) if value.dtype.kind in "mM" else value.item()


def plain_values(column_like: Any, kind_of_field: ValueType | None = None) -> Sequence[Any]:
    """Return a column as Python's values: of a sequence, a numpy array, or whatever Arrow can read.

    They are of the type that is wanted if Arrow knows a way that loses nothing.

    Raises:
        Fault: it is no column, or has times that are too fine.
    """
    if column_like.__class__ in (list, tuple):
        return column_like
    if hasattr(column_like, "__arrow_c_stream__") or hasattr(column_like, "__arrow_c_array__"):
        pa, column = as_arrow(column_like)
        if pa.types.is_floating(column.type) and kind_of_field is not None and kind_of_field.kind is int:
            with suppress(pa.ArrowInvalid):  # the check finds the row
                column = column.cast(pa.int64())  # a column of ints with missing values is one of floats in pandas
        return _of_arrow(column, pa)
    kind = getattr(getattr(column_like, "dtype", None), "kind", "")
    if kind in ("m", "M") and hasattr(column_like, "astype"):
        unit = "timedelta64[us]" if kind == "m" else "datetime64[us]"
        cut = column_like.astype(unit)
        if kind == "m":  # (which numpy cuts away from 0 where it is negative)
            cut = cut + ((cut != column_like) & (column_like < column_like.dtype.type(0)))
        values: list[Any] = cut.tolist()
        if str(column_like.dtype) == "datetime64[D]":
            return [value and value.date() for value in values]
        return values
    if hasattr(column_like, "tolist"):
        plain: list[Any] = column_like.tolist()
        return plain
    if isinstance(column_like, str | bytes) or not isinstance(column_like, Iterable):
        raise ValueFault(f"expected a sequence or an array, got {safe_repr(column_like)}")
    return list(column_like)


class CheckedColumn(Sequence[Any]):
    """A column whose own type proves each of its values: they are made where a part of it is taken, and not checked.

    Args:
        column: of numpy or Arrow, of which a slice is another one.
        values: returns the values of a part of it.
    """

    def __init__(self, column: Any, values: Callable[[Any], list[Any]]) -> None:
        self._column, self._values = column, values

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, at: Any) -> Any:
        return self._values(self._column[at]) if isinstance(at, slice) else self[at : at + 1][0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values(self._column))


def proven_column(column_like: Any, kind_of_field: ValueType, *, optional: bool) -> CheckedColumn | None:
    """Return a column of numpy or Arrow as one of values of a type; None if its values have to be looked at."""
    bits = 64 if kind_of_field is SCALARS[int] else 32 if kind_of_field is INT32 else 0
    if type(column_like).__module__ == "numpy" and getattr(column_like, "ndim", 0) == 1:
        kind, width = column_like.dtype.kind, 8 * column_like.dtype.itemsize
        fits = {"i": width <= bits, "u": width < bits, "b": kind_of_field is SCALARS[bool]}.get(kind, False)
        return CheckedColumn(column_like, lambda part: part.tolist()) if fits else None
    if not (hasattr(column_like, "__arrow_c_stream__") or hasattr(column_like, "__arrow_c_array__")):
        return None
    pa, column = as_arrow(column_like)
    if column.null_count and not optional:
        return None
    types, kind = pa.types, column.type
    if types.is_timestamp(kind) and kind.tz is not None and kind_of_field is SCALARS[Builtin.datetime]:
        return _proven_times(column, pa)
    fits = (
        (types.is_signed_integer(kind) and kind.bit_width <= bits)
        or (types.is_unsigned_integer(kind) and kind.bit_width < bits)
        or (types.is_boolean(kind) and kind_of_field is SCALARS[bool])
        or (
            kind_of_field is SCALARS[str]
            and (types.is_string(kind) or types.is_large_string(kind))
            and _is_utf8(column)
        )
    )
    return CheckedColumn(column, lambda part: part.to_pylist()) if fits else None


def as_arrow(column_like: Any) -> tuple[Any, Any]:
    """Return the package pyarrow, and its own column of one that it can read."""
    pa = load_package("pyarrow", "arrow", "insert_columns")
    return pa, column_like if isinstance(column_like, (pa.Array, pa.ChunkedArray)) else pa.chunked_array(column_like)


def _is_utf8(column: Any) -> bool:
    try:
        column.validate(full=True)
    except ValueError:
        return False
    return True


def _proven_times(column: Any, pa: Any) -> CheckedColumn | None:
    """Return a column of times with a zone; None if one of them is too fine, or out of range."""
    with suppress(pa.ArrowInvalid):
        ticks = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
        ends = import_module("pyarrow.compute").min_max(ticks).as_py()
        if ends["min"] is None or _TICKS[0] <= ends["min"] <= ends["max"] <= _TICKS[-1]:
            return CheckedColumn(ticks, lambda part: _moments(part.to_pylist()))
    return None


def _moments(ticks: list[Any]) -> list[Any]:
    """Return the times of microseconds since 1970; one object for those that are equal."""
    distinct = {tick: None if tick is None else _EPOCH + timedelta(0, 0, tick) for tick in set(ticks)}
    return list(map(distinct.__getitem__, ticks))


def _of_arrow(column: Any, pa: Any) -> Sequence[Any]:
    kind = column.type
    is_time, is_span = pa.types.is_timestamp(kind), pa.types.is_duration(kind)
    if (is_time or is_span) and kind.unit != "us":
        cut = pa.duration("us") if is_span else pa.timestamp("us", tz=kind.tz)
        try:
            column = column.cast(cut)
        except pa.ArrowInvalid:
            column = pa.array(cut_ticks(column.cast(pa.int64()).to_pylist(), span=is_span), pa.int64()).cast(cut)
    if is_time and kind.tz is not None:  # (Arrow makes a datetime in four times as long)
        ticks = column.cast(pa.int64()).to_pylist()
        try:
            return _moments(ticks)
        except OverflowError:
            row = next(at for at, tick in enumerate(ticks) if tick is not None and not _TICKS[0] <= tick <= _TICKS[-1])
            raise ValueFault(
                f"a time outside of the years {MIN_DATETIME.year} to 9999 cannot be stored", f"row {row}"
            ) from None
    values: list[Any] = column.to_pylist()
    return values
