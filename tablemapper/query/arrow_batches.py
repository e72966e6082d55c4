"""Batches of Arrow: made in a thread of their own, while the rows of the next one are read."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from importlib import import_module
from itertools import chain
from typing import Any, TypeVar

import msgspec

from ..errors import InvalidQuery, TableMapperError, did_you_mean, safe_repr
from ..execution.column_reader import Block, ColumnReader
from ..expressions.tree import Attr
from ..formats.arrow import ArrowColumn, load_package, parse_lines
from ..keys.encodings import SEPARATOR
from ..planning.projection import KeyPiece
from ..schema.rows import DAMAGE, Row, unreadable

T = TypeVar("T")
A = TypeVar("A", bound=Sized)
ROWS = 4_096  # that are turned into columns at once: more of them burden Python's garbage collection
LINES = 6_144  # that are one text: with fewer of them the two threads wait for each other more often
_SHORT = 1 << 16  # bytes: no thread is worth a shorter text alone
_MAX_READY = 4  # batches, before their reader takes one
_MAX_SCALE = 38


class ArrowWriter:
    """Turns what a query finds into Arrow's batches.

    Args:
        decimals: digits behind the point of columns of Decimals.
    """

    def __init__(
        self,
        verb: str,
        attributes: Mapping[str, Attr[Any, Any]],
        decimals: Mapping[Attr[Any, Any], int] | None,
        reader: Callable[[], ColumnReader],
    ) -> None:
        self.pa: Any = load_package("pyarrow", "arrow", verb)
        self._reader = reader
        scales = _scales(verb, attributes, decimals or {})
        self.columns: dict[str, ArrowColumn] = {
            name: ArrowColumn(attr.type, self.pa, scales.get(name)) for name, attr in attributes.items()
        }
        self.open: set[str] = {name for name, attr in attributes.items() if attr.type.kind is Decimal} - scales.keys()
        """The columns of Decimals whose digits the user does not give; they are text first."""
        self.schema: Any = self.pa.schema([(name, column.type) for name, column in self.columns.items()])

    def batches(self, size: int) -> Iterator[Any]:
        """Yield batches of one size, put together of small ones, as rows of Python take ten times the memory."""
        pieces: list[Any] = []
        for piece in self.pieces(size):
            pieces.append(piece)
            if sum(batch.num_rows for batch in pieces) >= size:
                table = self.pa.Table.from_batches(pieces)
                yield from table.slice(0, size).combine_chunks().to_batches()
                pieces = table.slice(size).to_batches()
        if pieces:
            yield from self.pa.Table.from_batches(pieces).combine_chunks().to_batches()

    def pieces(self, most: int = LINES) -> Iterator[Any]:
        """Yield small batches, as they are read, of at most so many rows."""
        reader = self._reader()
        lines = reader.lines(min(most, LINES))
        if lines is None:
            return map(self.of_block, reader.blocks(min(most, ROWS), stored=True))
        return _made_ahead(_LineBatches(self, reader).batch, lines)

    def of_block(self, block: Block) -> Any:
        """Return a batch of columns."""
        arrays = [
            self._array(name, column, is_stored, values)
            for (name, column), (is_stored, values) in zip(self.columns.items(), block, strict=True)
        ]
        return self.pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, name: str, column: ArrowColumn, is_stored: bool, values: Sequence[Any]) -> Any:  # noqa: FBT001
        try:
            return column.of_stored(values) if is_stored else column.of_values(values)
        except (ValueError, OverflowError) as error:
            hint = "; leave decimals= out, or allow more digits" if column.kind.name == "Decimal" else ""
            raise InvalidQuery(f"{name}: a value does not fit into {column.type}: {error}{hint}") from error


class _LineBatches:
    """Makes batches of lines of JSON, by Arrow itself; what it cannot read so is read as rows."""

    def __init__(self, writer: ArrowWriter, reader: ColumnReader) -> None:
        self._writer, self._reader = writer, reader
        self._compute = import_module("pyarrow.compute")
        self._columns = dict(zip(reader.names, writer.columns.values(), strict=True))
        self._types = {at: self._columns[name].parsed for name, at in reader.places.items()}
        self._types |= dict.fromkeys((1 + piece.place for piece in reader.pieces), writer.pa.string())

    def batch(self, chunk: bytes | list[Row]) -> Any:
        """Return a batch of a chunk."""
        if isinstance(chunk, bytes):
            if b"\\" not in chunk:
                with suppress(TableMapperError, *DAMAGE):
                    return self._parsed(chunk)
            chunk = _rows(chunk)
        return self._writer.of_block(self._reader.block(chunk))

    def _parsed(self, text: bytes) -> Any:
        parsed = parse_lines(self._writer.pa, text, self._reader.width, self._types)
        arrays = {name: self._columns[name].of_parsed(parsed[at]) for name, at in self._reader.places.items()}
        parts: dict[int, Any] = {}
        for piece in self._reader.pieces:
            if piece.place not in parts:
                parts[piece.place] = _components(parsed[1 + piece.place], piece)
            texts = parts[piece.place]
            if piece.components > 1:
                texts = self._compute.list_element(texts, piece.component)
            if piece.read is None:
                arrays[piece.fields[0]] = self._columns[piece.fields[0]].of_parsed(texts)
                continue
            if piece.digits is not None and (numbers := self._numbers(texts, piece.digits)) is not None:
                arrays[piece.fields[0]] = self._columns[piece.fields[0]].of_parsed(numbers)
                continue
            distinct = texts.dictionary_encode()
            for name, values in zip(piece.fields, piece.read(distinct.dictionary.to_pylist()), strict=True):
                arrays[name] = self._columns[name].of_stored(values).take(distinct.indices)
        schema = self._writer.schema
        return self._writer.pa.RecordBatch.from_arrays([arrays[name] for name in self._reader.names], schema=schema)

    def _numbers(self, texts: Any, digits: int) -> Any:
        """Return the ints of texts that end with their digits; None if one is negative: its text is another one."""
        if self._compute.min(texts).as_py() < "a" * digits:
            return None
        return (self._compute.utf8_slice_codeunits(texts, digits) if digits else texts).cast(self._writer.pa.int64())


def _components(keys: Any, piece: KeyPiece) -> Any:
    """Return the components of each key, if there are several; raise ValueError if one key has fewer or more."""
    if piece.components == 1:
        return keys
    compute = import_module("pyarrow.compute")
    parts = compute.split_pattern(keys, SEPARATOR, max_splits=None if piece.splits < 0 else piece.splits)
    if not compute.all(compute.equal(compute.list_value_length(parts), piece.components)).as_py():
        raise ValueError("a key has another number of components")
    return parts


def _rows(text: bytes) -> list[Row]:
    """Return the rows of lines of JSON."""
    array = b"[%b]" % text.replace(b"\n", b",")
    try:
        try:
            lines = msgspec.json.decode(array)
        except msgspec.DecodeError:  # an infinite number
            lines = json.loads(array)
    except ValueError as error:
        raise unreadable("a query", None, error) from error
    return [tuple(line[1:-1]) for line in lines]


def _made_ahead(make: Callable[[A], T], items: Iterator[A]) -> Iterator[T]:
    """Yield what a function makes of items: in another thread while the next come, in this one if that is behind."""
    first = next(items, None)
    if first is not None and len(first) < _SHORT:
        yield make(first)
        first = next(items, None)
    if first is None:
        return
    with ThreadPoolExecutor(1, "tablemapper-columns") as thread:
        futures: deque[Future[T]] = deque()
        for item in chain([first], items):
            is_late = sum(not future.done() for future in futures) > 1
            futures.append(_completed(make, item) if is_late else thread.submit(make, item))
            while futures[0].done() or len(futures) > _MAX_READY:
                yield futures.popleft().result()
                if not futures:
                    break
        for future in futures:
            yield future.result()


def _completed(make: Callable[[A], T], item: A) -> Future[T]:
    """Return what a function makes of an item, as another thread returns it; an error waits for its turn, too."""
    future: Future[T] = Future()
    try:
        future.set_result(make(item))
    except Exception as error:
        future.set_exception(error)
    return future


def _scales(verb: str, columns: Mapping[str, Attr[Any, Any]], decimals: Mapping[Any, Any]) -> dict[str, int]:
    scales = {}
    decimal_columns = [name for name, attr in columns.items() if attr.type.kind is Decimal]
    for attr, scale in decimals.items():
        name = attr.label if isinstance(attr, Attr) else safe_repr(attr)
        if name not in decimal_columns:
            raise InvalidQuery(
                f"{verb}: decimals= names {name}, which is not a column of Decimals here "
                f"({', '.join(decimal_columns) or 'there is none'}){did_you_mean(name, decimal_columns)}"
            )
        if not isinstance(scale, int) or isinstance(scale, bool) or not 0 <= scale <= _MAX_SCALE:
            raise InvalidQuery(
                f"{verb}: decimals= {name}: expected a number from 0 to {_MAX_SCALE}, got {safe_repr(scale)}"
            )
        scales[name] = scale
    return scales
