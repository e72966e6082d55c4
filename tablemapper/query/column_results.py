"""The results of a query as columns: lists, or Arrow's, Polars' and pandas' own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

from ..errors import InvalidQuery
from ..execution.column_reader import ColumnReader
from ..expressions.tree import Attr
from ..formats.arrow import load_package
from ..limits import MIN_INT64
from .arrow_batches import ROWS, ArrowWriter
from .pages import counted
from .results import Results

T_co = TypeVar("T_co", covariant=True)
_BLOCK = 65_536  # rows in a batch of Arrow


class ColumnResults(Results[T_co]):
    """The results of a query of one class, which have the same columns in every row."""

    __slots__ = ()

    @property
    @abstractmethod
    def _attributes(self) -> tuple[Attr[Any, Any], ...]:
        """Return the attributes that stand in the columns."""

    @abstractmethod
    def _reader(self) -> ColumnReader:
        """Return what reads the columns."""

    def _columns(self, verb: str) -> dict[str, Attr[Any, Any]]:
        """Return what stands in the columns, by their names."""
        columns: dict[str, Attr[Any, Any]] = {}
        for attr in self._attributes:
            if attr.label in columns:
                raise InvalidQuery(f"{verb}: {attr.label} is selected twice, and a column needs a name of its own")
            columns[attr.label] = attr
        return columns

    def columns(self) -> dict[str, list[Any]]:
        """Return the fields, or what is selected, as lists by name: ``{"number": ["a", "b"], "price": […]}``.

        Raises:
            InvalidQuery: a field is selected twice.
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        columns: dict[str, list[Any]] = {name: [] for name in self._columns("columns")}
        for block in self._reader().blocks(ROWS):
            for values, (_, block_values) in zip(columns.values(), block, strict=True):
                values.extend(block_values)
        return columns

    def to_arrow(self, *, decimals: Mapping[Attr[Any, Any], int] | None = None) -> Any:
        """Return a ``pyarrow.Table``: the extra ``arrow``.

        Types are kept: times are ``timestamp[us, tz=UTC]``, an Enum is a dictionary, a list of numbers or text is a
        list, other nested values are their JSON. A column of Decimals gets the smallest decimal type that holds all of
        them.

        Args:
            decimals: digits behind the point of a column of Decimals: ``{Product.price: 2}``.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
            InvalidQuery: a value does not fit into its column, or a field is selected twice.
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        writer = ArrowWriter("to_arrow", self._columns("to_arrow"), decimals, self._reader)
        table = writer.pa.Table.from_batches(writer.pieces(), writer.schema)
        for at, (name, column) in enumerate(writer.columns.items()):
            if name in writer.open:
                smallest = column.shrunk(table.column(at), name)
                table = table.set_column(at, name, smallest)
        return table

    def arrow_batches(self, size: int = _BLOCK, /, *, decimals: Mapping[Attr[Any, Any], int] | None = None) -> Any:
        """Yield ``pyarrow.RecordBatch`` after ``RecordBatch``, in bounded memory; types as `to_arrow` has them.

        A column of Decimals is text, unless ``decimals=`` says how many digits stand behind the point.

        Args:
            size: the most rows in a batch.
            decimals: as for `to_arrow`.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
            InvalidQuery: the size is not a number from 1 on; or as `to_arrow`.
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        counted("arrow_batches", size, least=1)
        return ArrowWriter("arrow_batches", self._columns("arrow_batches"), decimals, self._reader).batches(size)

    def to_polars(self, *, decimals: Mapping[Attr[Any, Any], int] | None = None) -> Any:
        """Return a ``polars.DataFrame``: the extra ``polars``; as `Query.to_arrow`.

        Raises:
            InvalidQuery: a column of Decimals needs more than the 38 digits that Polars has; or as `to_arrow`.
        """
        polars = load_package("polars", "polars", "to_polars")
        pa = load_package("pyarrow", "polars", "to_polars")
        table = self.to_arrow(decimals=decimals)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_decimal256(column.type):
                digits = column.type.precision
                raise InvalidQuery(
                    f"{name}: its values need {digits} digits, and a decimal of Polars has 38; take to_arrow() or columns()"
                )
        return polars.from_arrow(table)

    def to_pandas(self, *, decimals: Mapping[Attr[Any, Any], int] | None = None) -> Any:
        """Return a ``pandas.DataFrame``: the extra ``pandas``; as `Query.to_arrow`.

        Where a column of int or bool has missing values, all of them are pandas' types with NA, so that no int becomes
        a float.

        Raises:
            InvalidQuery: a duration is -2**63 microseconds, which pandas takes for a missing value; or as `to_arrow`.
        """
        pandas = load_package("pandas", "pandas", "to_pandas")
        pa = load_package("pyarrow", "pandas", "to_pandas")
        least = load_package("pyarrow.compute", "pandas", "to_pandas").min
        table = self.to_arrow(decimals=decimals)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_duration(column.type) and least(column.cast(pa.int64())).as_py() == MIN_INT64:
                raise InvalidQuery(
                    f"{name}: {timedelta(microseconds=MIN_INT64)} is a missing value in pandas, which has no such duration; "
                    "take to_arrow() or columns()"
                )
        exact = {
            pa.int32(): pandas.Int32Dtype(),
            pa.int64(): pandas.Int64Dtype(),
            pa.bool_(): pandas.BooleanDtype(),
        }
        gaps = any(column.type in exact and column.null_count for column in table.columns)
        return table.to_pandas(types_mapper=exact.get if gaps else None)
