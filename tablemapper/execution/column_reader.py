"""The columns of what a run finds: of rows as tuples, or as lines of JSON, which take no object for a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from ..engines.optional_protocols import ReadsLines
from ..expressions.tree import Attr
from ..planning.projection import KeyPiece, RowLayout, key_pieces, stored_keys, tuples
from ..schema.rows import Row
from .plan_reader import PlanReader
from .prepared import PreparedPlan

Block = list[tuple[bool, Sequence[Any]]]
"""Columns of some rows, one for each attribute: whether its values are in stored form, and they themselves."""
FEW = 1_024  # rows: fewer are not worth a text


class ColumnReader:
    """Reads columns of a run that makes tuples of attributes."""

    def __init__(self, run: PlanReader, selected: Sequence[Attr[Any, Any]], limit: int | None) -> None:
        self._run, self._limit, self._selected = run, limit, selected
        self._is_whole = run.prepared.whole and run.layout.fields is not None
        """Whether what is in the rows, and nothing else, stands in the columns."""

    @property
    def _form(self) -> _Form:
        prepared = self._run.prepared
        if prepared.columns is None:
            prepared.columns = _Form(prepared, self._run.layout, self._selected)
        form: _Form = prepared.columns
        return form

    def blocks(self, size: int, *, stored: bool = False) -> Iterator[Block]:
        """Yield columns of at most so many rows.

        Args:
            stored: whether values may stay in their stored form: what only Arrow looks at need not become an object.
        """
        run, limit = self._run, self._limit
        if not stored or not self._is_whole:
            blocks = _gathered(map(run.items_of, run.rows(None, limit)), limit, size)
            return ([(False, values) for values in zip(*items, strict=True)] for items in blocks)
        return map(self.block, _gathered(run.rows(None, limit), limit, size))

    def block(self, rows: Sequence[Row]) -> Block:
        """Return the columns of rows, in stored form as far as possible."""
        return self._form.block(rows, self._run.bound.values)

    def lines(self, size: int) -> Iterator[bytes | list[Row]] | None:
        """Return chunks of rows as lines of JSON; a chunk with a row that is none comes as it is; see `ReadsLines`.

        None if they have to be read as `blocks`: something is left to do for each row, or they are few.
        """
        run, limit = self._run, self._limit
        if not self._is_whole or run.spending is not None or min(size, size if limit is None else limit) < FEW:
            return None
        if not isinstance(run.reads, ReadsLines) or not self._form.has_lines:
            return None
        return run.reads.lines(run.bound, run.layout, size, limit)

    @property
    def names(self) -> list[str]:
        """The fields in the columns."""
        return [attr.name for attr in self._selected]

    @property
    def width(self) -> int:
        """The number of values in a line."""
        return 1 + self._run.prepared.width + len(self._run.layout.fields or ()) + 1

    @property
    def places(self) -> dict[str, int]:
        """The places of columns' values in a line, of those fields that no key holds."""
        return self._form.places

    @property
    def pieces(self) -> list[KeyPiece]:
        """The components of keys that hold the other columns; a line has the keys in front."""
        return self._form.pieces or []


class _Form:
    """The construction of columns from the rows of a plan; kept with the plan, as functions are compiled for it."""

    def __init__(self, prepared: PreparedPlan, layout: RowLayout, selected: Sequence[Attr[Any, Any]]) -> None:
        plan, self._width, self._selected = prepared.plan, prepared.width, selected
        self._path, self._steps, self._covering = plan.path, len(plan.sort), plan.covering
        self._at = {name: prepared.width + number for number, name in enumerate(layout.fields or ())}
        field = plan.model.declaration.field
        plain = [attr.name for attr in selected if not (attr.path or attr.part) and not field(attr.name).wide]
        self._stored_names, self._keys = stored_keys(plan.path, plain, covering=plan.covering)
        self._at |= {name: number - len(self._stored_names) for number, name in enumerate(self._stored_names)}
        self._plain = [attr.name in plain and not (attr.path or attr.part) for attr in selected]
        derived = [attr for attr, is_plain in zip(selected, self._plain, strict=True) if not is_plain]
        options: Any = {"covering": plan.covering, "sorted_by": self._steps}
        self._make = tuples(plan.path, layout, derived, **options) if derived else None

    def block(self, rows: Sequence[Row], values: Sequence[Any]) -> Block:
        """Return the columns of rows."""
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        if self._stored_names:
            columns += self._keys(*columns[self._steps : self._width])
        derived = iter(zip(*self._make(rows, values), strict=True) if self._make is not None else ())
        return [
            (True, columns[self._at[attr.name]]) if is_plain else (False, next(derived))
            for attr, is_plain in zip(self._selected, self._plain, strict=True)
        ]

    @cached_property
    def has_lines(self) -> bool:
        """Whether the columns can be had of lines."""
        return all(self._plain) and self.pieces is not None

    @cached_property
    def places(self) -> dict[str, int]:
        """See `ColumnReader`."""
        names = [attr.name for attr in self._selected]
        return {name: 1 + self._at[name] for name in names if name not in self._stored_names}

    @cached_property
    def pieces(self) -> list[KeyPiece] | None:
        """See `ColumnReader`; None if a field is in several components."""
        return key_pieces(self._path, self._stored_names, covering=self._covering)


def _gathered(chunks: Iterable[Sequence[Row]], limit: int | None, size: int) -> Iterator[list[Row]]:
    """Yield rows in blocks of one size, at most so many in all."""
    block: list[Row] = []
    remaining = limit
    for chunk in chunks:
        if remaining is not None:
            chunk = chunk[:remaining]
            remaining -= len(chunk)
        block += chunk
        while len(block) >= size:
            yield block[:size]
            del block[:size]
        if remaining == 0:
            break
    if block:
        yield block
