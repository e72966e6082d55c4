"""Faults of a whole column, each with the mend in its package: what helps one value does not help a column."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ..datetime_types import Builtin
from ..values.scalars import ValueType
from .arrow import as_arrow

_NO_ZONE, _TIMES = "its times have no time zone", "its values are times, expected dates"
_NUMBERS = "its values are {0}s, expected Decimals"
_MENDS: dict[tuple[str, type], tuple[str, dict[str, str]]] = {
    ("time", Builtin.datetime): (_NO_ZONE, {
        "pandas": '{0}.dt.tz_localize("UTC") if they are of UTC', "polars": '{0}.dt.replace_time_zone("UTC") if they are of UTC',
        "numpy": 'pyarrow.array({0}, pyarrow.timestamp("us", "UTC")) if they are of UTC',
        "pyarrow": 'pyarrow.compute.assume_timezone({0}, "UTC") if they are of UTC',
    }),
    ("time", Builtin.date): (_TIMES, {
        "pandas": "{0}.dt.date", "polars": "{0}.dt.date()",
        "numpy": '{0}.astype("datetime64[D]")', "pyarrow": "{0}.cast(pyarrow.date32())",
    }),
    ("text", Builtin.datetime): ("its values are texts, expected datetimes", {
        "pandas": "pandas.to_datetime({0}, utc=True)", "polars": '{0}.str.to_datetime(time_zone="UTC")',
        "numpy": 'pyarrow.array({0}.astype("datetime64[us]"), pyarrow.timestamp("us", "UTC")) if they are of UTC',
        "pyarrow": 'pyarrow.compute.assume_timezone({0}.cast(pyarrow.timestamp("us")), "UTC") if they are of UTC',
    }),
    ("text", Builtin.date): ("its values are texts, expected dates", {
        "pandas": "pandas.to_datetime({0}).dt.date", "polars": "{0}.str.to_date()",
        "numpy": '{0}.astype("datetime64[D]")', "pyarrow": "{0}.cast(pyarrow.date32())",
    }),
    **dict.fromkeys([(kind, Decimal) for kind in ("float", "int")], (_NUMBERS, {
        "pandas": "{0}.map(lambda x: Decimal(str(x)))", "polars": "{0}.cast(polars.Decimal(38, 2))",
        "numpy": "[Decimal(str(x)) for x in {0}]", "pyarrow": "{0}.cast(pyarrow.decimal128(38, 2))",
    })),
}  # fmt: skip
"""By what a column holds and the type of its field: what is wrong, and what to write in each package."""
_SOURCES = {"pandas": "frame", "polars": "frame", "pyarrow": "table", "numpy": "columns"}


def package_of(column_like: Any) -> str:
    """Return the package that a column, or a whole table, is of; that of Arrow for what Arrow only reads."""
    package = type(column_like).__module__.partition(".")[0]
    return package if package in _SOURCES else "pyarrow"


def column_fault(column_like: Any, kind_of_field: ValueType, name: str, package: str) -> str | None:
    """Say what is wrong with all values of a column, and what to write; None if it depends on the value.

    Args:
        column_like: the column, one of whose values cannot be stored.
        kind_of_field: the type of the field.
        name: the column's.
        package: that the user has the column from.
    """
    if (key := (_content_kind(column_like), kind_of_field.kind)) not in _MENDS:
        return None
    fault, mends = _MENDS[key]
    column = f'{_SOURCES[package]}["{name}"]'
    return f"{fault.format(key[0])}; write {mends[package].format(column)}"


def _content_kind(column_like: Any) -> str:
    """Return what a column holds by its type: ``time`` (without a zone), ``text``, ``float``, ``int``; else nothing."""
    if hasattr(column_like, "__arrow_c_stream__") or hasattr(column_like, "__arrow_c_array__"):
        pa, column = as_arrow(column_like)
        types, kind = pa.types, column.type
        if types.is_timestamp(kind) and kind.tz is None:
            return "time"
        text = "text" if str(kind) in ("string", "large_string", "string_view") else ""
        return "float" if types.is_floating(kind) else "int" if types.is_integer(kind) else text
    dtype = getattr(column_like, "dtype", None)
    if getattr(dtype, "kind", "") == "O":  # (of pandas; what is missing is None, or nan)
        return "text" if isinstance(next((item for item in column_like if item == item), None), str) else ""
    kinds = {"M": "" if str(dtype) == "datetime64[D]" else "time", "f": "float", "i": "int", "u": "int", "U": "text"}
    return kinds.get(getattr(dtype, "kind", ""), "")
