"""What a query finds, as columns: lists, or Arrow's, Polars' and pandas' own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..errors import InvalidQuery, did_you_mean, shown
from ..execution.run import Run
from ..expressions.tree import Attr
from ..planning.projection import stored_keys, tuples
from ..schema.rows import Row
from ..values.arrow import ArrowColumn, load_package
from .pages import counted
from .results import Results

__all__ = ["Blocks", "ColumnResults", "read_columns"]

T_co = TypeVar("T_co", covariant=True)
_BLOCK = 65_536  # rows in a batch of Arrow
_ROWS = 4_096  # that are turned into columns at once: more of them burden Python's garbage collection
_MAX_SCALE = 38

Blocks = Iterator[list[tuple[bool, Sequence[Any]]]]
"""Columns of some rows, one for each attribute: whether its values are in stored form, and they themselves."""


class ColumnResults(Results[T_co]):
    """What a query of one class finds, which has the same columns in every row."""

    __slots__ = ()

    @property
    @abstractmethod
    def _attributes(self) -> tuple[Attr[Any, Any], ...]:
        """What stands in the columns."""

    @abstractmethod
    def _read_columns(self, size: int, *, stored: bool) -> Blocks:
        """Yield columns of at most so many rows."""

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
        for block in self._read_columns(_ROWS, stored=False):
            for values, (_, more) in zip(columns.values(), block, strict=True):
                values.extend(more)
        return columns

    def to_arrow(self, *, decimals: Mapping[Attr[Any, Any], int] | None = None) -> Any:
        """Return a ``pyarrow.Table``: the extra ``arrow``.

        Types are kept: times are ``timestamp[us, tz=UTC]``, an Enum is a dictionary, a list of numbers or text is a list,
        other nested values are their JSON. A column of Decimals gets the smallest decimal type that holds all of them.

        Args:
            decimals: digits behind the point of a column of Decimals: ``{Product.price: 2}``.

        Raises:
            ModuleNotFoundError: pyarrow is not installed.
            InvalidQuery: a value does not fit into its column, or a field is selected twice.
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        writer = _ArrowWriter("to_arrow", self._columns("to_arrow"), decimals, self._read_columns)
        table = writer.pa.Table.from_batches(writer.pieces(_ROWS), writer.schema)
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
        return _ArrowWriter("arrow_batches", self._columns("arrow_batches"), decimals, self._read_columns).batches(size)

    def to_polars(self, *, decimals: Mapping[Attr[Any, Any], int] | None = None) -> Any:
        """Return a ``polars.DataFrame``: the extra ``polars``; as `Query.to_arrow`."""
        polars = load_package("polars", "polars", "to_polars")
        load_package("pyarrow", "polars", "to_polars")
        return polars.from_arrow(self.to_arrow(decimals=decimals))

    def to_pandas(self, *, decimals: Mapping[Attr[Any, Any], int] | None = None) -> Any:
        """Return a ``pandas.DataFrame``: the extra ``pandas``; as `Query.to_arrow`.

        Where a column of int or bool has missing values, all of them are pandas' types with NA, so that no int becomes a
        float.
        """
        pandas = load_package("pandas", "pandas", "to_pandas")
        pa = load_package("pyarrow", "pandas", "to_pandas")
        table = self.to_arrow(decimals=decimals)
        exact = {
            pa.int32(): pandas.Int32Dtype(),
            pa.int64(): pandas.Int64Dtype(),
            pa.bool_(): pandas.BooleanDtype(),
        }
        gaps = any(column.type in exact and column.null_count for column in table.columns)
        return table.to_pandas(types_mapper=exact.get if gaps else None)


class _ArrowWriter:
    """Turns what a query finds into Arrow's batches."""

    def __init__(
        self,
        verb: str,
        attributes: Mapping[str, Attr[Any, Any]],
        decimals: Mapping[Attr[Any, Any], int] | None,
        read: Callable[..., Blocks],
    ) -> None:
        self.pa = load_package("pyarrow", "arrow", verb)
        self._read = read
        scales = _scales(verb, attributes, decimals or {})
        self.columns = {name: ArrowColumn(attr.type, self.pa, scales.get(name)) for name, attr in attributes.items()}
        self.open = {name for name, attr in attributes.items() if attr.type.name == "Decimal"} - scales.keys()
        """The columns of Decimals of which the type is not said; they are text first."""
        self.schema = self.pa.schema([(name, column.type) for name, column in self.columns.items()])

    def batches(self, size: int) -> Iterator[Any]:
        """Yield batches of one size; they are put together of small ones, as rows of Python take ten times the memory."""
        pieces: list[Any] = []
        for piece in self.pieces(min(size, _ROWS)):
            pieces.append(piece)
            if sum(one.num_rows for one in pieces) >= size:
                table = self.pa.Table.from_batches(pieces)
                yield from table.slice(0, size).combine_chunks().to_batches()
                pieces = table.slice(size).to_batches()
        if pieces:
            yield from self.pa.Table.from_batches(pieces).combine_chunks().to_batches()

    def pieces(self, size: int) -> Iterator[Any]:
        """Yield batches as they are read."""
        for block in self._read(size, stored=True):
            arrays = [
                self._array(name, column, stored, values)
                for (name, column), (stored, values) in zip(self.columns.items(), block, strict=True)
            ]
            yield self.pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, name: str, column: ArrowColumn, stored: bool, values: Sequence[Any]) -> Any:  # noqa: FBT001
        try:
            return column.of_stored(values) if stored else column.of_values(values)
        except (ValueError, OverflowError) as error:
            hint = "; leave decimals= out, or say more digits" if column.kind.name == "Decimal" else ""
            raise InvalidQuery(f"{name}: a value does not fit into {column.type}: {error}{hint}") from error


def _scales(verb: str, columns: Mapping[str, Attr[Any, Any]], decimals: Mapping[Any, Any]) -> dict[str, int]:
    scales = {}
    known = [name for name, attr in columns.items() if attr.type.name == "Decimal"]
    for attr, scale in decimals.items():
        name = attr.label if isinstance(attr, Attr) else shown(attr)
        if name not in known:
            raise InvalidQuery(
                f"{verb}: decimals= says something of {name}, which is no column of Decimals here "
                f"({', '.join(known) or 'there is none'}){did_you_mean(name, known)}"
            )
        if not isinstance(scale, int) or isinstance(scale, bool) or not 0 <= scale <= _MAX_SCALE:
            raise InvalidQuery(
                f"{verb}: decimals= {name}: a number from 0 to {_MAX_SCALE} is needed, not {shown(scale)}"
            )
        scales[name] = scale
    return scales


def read_columns(run: Run, wanted: Sequence[Attr[Any, Any]], limit: int | None, size: int, *, stored: bool) -> Blocks:
    """Yield columns of at most so many rows of a run that makes tuples of attributes.

    Args:
        run: the run.
        wanted: the attributes.
        limit: how many rows are needed.
        size: rows in a block.
        stored: whether values may stay in their stored form: what only Arrow looks at need not become an object.
    """
    prepared, layout = run.prepared, run.layout
    if not stored or not prepared.whole or layout.fields is None:
        made = _gathered(map(run.items_of, run.rows(None, limit)), limit, size)
        return ([(False, values) for values in zip(*items, strict=True)] for items in made)
    declaration, plan = prepared.plan.model.declaration, prepared.plan
    steps = len(plan.sort)
    at = {name: prepared.width + number for number, name in enumerate(layout.fields)}
    plain = [attr.name for attr in wanted if not _derived(attr) and not declaration.field(attr.name).wide]
    held, keys = stored_keys(plan.path, plain, covering=plan.covering)
    at |= {name: number - len(held) for number, name in enumerate(held)}
    whole = [attr.name in at and attr.name in plain and not _derived(attr) for attr in wanted]
    others = [attr for attr, is_whole in zip(wanted, whole, strict=True) if not is_whole]
    make = tuples(plan.path, layout, others, covering=plan.covering, sorted_by=steps) if others else None

    def block(rows: list[Row]) -> list[tuple[bool, Sequence[Any]]]:
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        if held:
            columns += keys(*columns[steps : prepared.width])
        made = iter(zip(*make(rows, run.bound.values), strict=True) if make is not None else ())
        return [
            (True, columns[at[attr.name]]) if is_whole else (False, next(made))
            for attr, is_whole in zip(wanted, whole, strict=True)
        ]

    return map(block, _gathered(run.rows(None, limit), limit, size))


def _derived(attr: Attr[Any, Any]) -> bool:
    """Return whether an attribute is made of a field's value."""
    return bool(attr.path or attr.part)


def _gathered(chunks: Iterable[Sequence[Row]], limit: int | None, size: int) -> Iterator[list[Row]]:
    """Yield rows in blocks of one size, at most so many in all."""
    block: list[Row] = []
    left = limit
    for chunk in chunks:
        if left is not None:
            chunk = chunk[:left]
            left -= len(chunk)
        block += chunk
        while len(block) >= size:
            yield block[:size]
            del block[:size]
        if left == 0:
            break
    if block:
        yield block
