"""Value counts of a group that shows the least and the greatest: in its row while they are few, else in pages.

The row of a group holds what has changed of its values, and a directory of pages; at first there are none, and what has
changed is all. When that is much, it goes to the pages of the values: rows beside the group, each with a range of them.
The directory has the least and the greatest live value of each range. So most changes read and write the row alone, and
only one that takes away the end of a range reads a page.

Pages change in one transaction with the row of the group, which is written under its ETag.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from ....errors import CorruptStore
from ..tables.entity_json import value_members, values_in
from ..tables.reserved_names import BASE_ROW, page_key
from ..tables.service import Members, RowChange

Counts: TypeAlias = Mapping[int, Mapping[Any, int]]
"""How often each value is there, or how much more often, by slot; below zero, where others have still to come."""
_ROW = 10_000  # bytes of what has changed, and is in no page; where the directory is long, as many more as that has
_PAGE = 20_000  # bytes
_LARGEST = 8  # pages in one, where a transaction has no room for more
_MOST = 16  # pages that take what has changed, in one transaction


class StalePages(CorruptStore):
    """A page is not there that the row of a group names: others have changed the group meanwhile, or it is lost."""


class ValuePage(msgspec.Struct, array_like=True):
    """A range of the values of one slot: from the first one up to that of the next page."""

    slot: int
    number: int
    first: Any
    least: Any
    """Of the live values of the range, with what has changed; None if there are none."""
    greatest: Any
    below: bool
    """Whether the page has a value less often than never."""


_decode_row = msgspec.msgpack.Decoder(tuple[list[ValuePage], list[tuple[int, Any, int]]]).decode
_decode_counts = msgspec.msgpack.Decoder(list[tuple[Any, int]]).decode


class ValueCounts:
    """Value counts of a group, by slot.

    Args:
        key: of the group.
        packed: what its row holds of that.

    Raises:
        CorruptStore: that cannot be read.
    """

    def __init__(self, key: tuple[str, str], packed: bytes) -> None:
        self._key = key
        self._pages: dict[int, list[ValuePage]] = {}
        self._pending: dict[int, dict[Any, int]] = {}
        self._loaded: dict[int, dict[Any, int]] = {}
        self._values_of_pages: dict[int, list[Any]] = {}
        self._packed_size = len(packed)
        if packed:
            try:
                pages, changed_counts = _decode_row(packed)
            except msgspec.MsgspecError as error:
                raise CorruptStore(f"{key}: the values of a group cannot be read: {error}") from error
            for page in pages:
                self._pages.setdefault(page.slot, []).append(page)
            for slot, value, count in changed_counts:
                self._pending.setdefault(slot, {})[value] = count

    # -- pages

    @property
    def pages(self) -> dict[str, int]:
        """The row keys of all pages, each with its number."""
        return self._keyed(page.number for pages in self._pages.values() for page in pages)

    def _keyed(self, numbers: Iterable[int]) -> dict[str, int]:
        return {page_key(number, self._key[1]): number for number in numbers}

    def pages_of(self, changes: Counts) -> dict[str, int]:
        """Return the row keys of the pages that have to be read before changes are added, each with its number."""
        numbers = {
            page.number
            for slot, of_slot in changes.items()
            for value, count in of_slot.items()
            if (page := self._page(slot, value)) is not None and self._matters(page, value, count)
        }
        if self._packed_size > self._room:
            numbers |= {page.number for page in self._fullest()}
        return self._keyed(sorted(numbers - self._loaded.keys()))

    def take(self, number: int, page: Members | None) -> None:
        """Add a page that was read.

        Raises:
            PagesGone: it is not there.
            CorruptStore: it cannot be read.
        """
        if page is None:
            raise StalePages(f"{self._key}: a page of the values of a group is not there; call store.repair()")
        try:
            self._loaded[number] = dict(_decode_counts(values_in(page)))
        except msgspec.MsgspecError as error:
            raise CorruptStore(f"{self._key}: the values of a group cannot be read: {error}") from error

    def _page(self, slot: int, value: Any) -> ValuePage | None:
        pages = self._pages.get(slot)
        return pages[max(bisect_right(pages, value, key=_first) - 1, 0)] if pages else None

    def _matters(self, page: ValuePage, value: Any, change: int) -> bool:
        """Return whether nobody knows the ends of a range after a change without its page."""
        if not change or (page.least is not None and page.least < value < page.greatest):
            return False
        return change < 0 or page.below or self._pending.get(page.slot, {}).get(value, 0) < 0

    @property
    def _room(self) -> int:
        return _ROW + 2 * len(msgspec.msgpack.encode([page for pages in self._pages.values() for page in pages]))

    def _fullest(self) -> list[ValuePage]:
        """Return the pages for which the most has changed."""
        counts: dict[int, int] = {}
        pages: dict[int, ValuePage] = {}
        for slot, of_slot in self._pending.items():
            for value in of_slot:
                if (page := self._page(slot, value)) is not None:
                    pages[page.number] = page
                    counts[page.number] = counts.get(page.number, 0) + 1
        return [pages[number] for number in sorted(counts, key=lambda number: (-counts[number], number))[:_MOST]]

    # -- values

    def add(self, counts: Counts) -> None:
        """Add changes; the pages that are `needed` for them were read."""
        for slot, of_slot in counts.items():
            changed_counts = self._pending.setdefault(slot, {})
            seen: dict[int, ValuePage] = {}
            for value, count in of_slot.items():
                page = self._page(slot, value)
                if count_after := changed_counts.get(value, 0) + count:
                    changed_counts[value] = count_after
                else:
                    changed_counts.pop(value, None)
                if page is None or not count:
                    continue
                if page.number in self._loaded:
                    seen[page.number] = page
                elif count > 0:
                    page.least = value if page.least is None else min(page.least, value)
                    page.greatest = value if page.greatest is None else max(page.greatest, value)
            for page in seen.values():
                _set_ends(page, self._merged(page))

    def _changed_in(self, page: ValuePage) -> dict[Any, int]:
        """Return what has changed of the values of a range, and is not in its page."""
        changed_counts = self._pending.get(page.slot, {})
        return {value: count for value, count in changed_counts.items() if self._page(page.slot, value) is page}

    def _merged(self, page: ValuePage, counts: Mapping[Any, int] | None = None) -> dict[Any, int]:
        """Return how often each value of a range is there, of a page that was read; ``changed``: in it, where that is known."""
        values = dict(self._loaded[page.number])
        for value, count in (self._changed_in(page) if counts is None else counts).items():
            values[value] = values.get(value, 0) + count
        return {value: count for value, count in values.items() if count}

    def end(self, slot: int, end: Literal["min", "max"]) -> Any:
        """Return the least or the greatest live value of a slot; None if there is none."""
        if pages := self._pages.get(slot):
            ends = [page.least if end == "min" else page.greatest for page in pages if page.least is not None]
        else:
            ends = [value for value, count in self._pending.get(slot, {}).items() if count > 0]
        return (min if end == "min" else max)(ends, default=None)

    def counts(self) -> dict[int, dict[Any, int]]:
        """Return how often each value is there; all pages were read."""
        counts: dict[int, dict[Any, int]] = {}
        for slot in {**self._pages, **self._pending}:
            pages = self._pages.get(slot, ())
            merged = [self._merged(page) for page in pages] if pages else [self._pending[slot]]
            counts[slot] = {value: count for page_counts in merged for value, count in page_counts.items()}
        return counts

    # -- written

    def settle(self, room: int) -> None:
        """Give pages what has changed of their values, if that is much, and drop those that hold nothing any more.

        Args:
            room: how many rows the transaction can still take.
        """
        much = len(self.packed()) > self._room
        pages_read = [page for of_slot in self._pages.values() for page in of_slot if page.number in self._loaded]
        changes = [
            (page, changed_counts, self._merged(page, changed_counts))
            for page in pages_read
            for changed_counts in [self._changed_in(page)]
        ]
        # (Those that hold nothing come first, then those for which the most has changed.)
        changes.sort(key=lambda entry: (bool(entry[2]), -len(entry[1]), entry[0].number))
        for slot, changed_counts in self._pending.items():
            if much and slot not in self._pages and changed_counts:
                chunks = _chunks(changed_counts, room)
                if len(chunks) <= room:
                    room -= len(chunks)
                    self._pages[slot] = [self._new_page(slot, chunk) for chunk in chunks]
                    self._pending[slot] = {}
        replaced: dict[int, list[ValuePage]] = {}
        for page, changed_counts, values in changes:
            if (values and not much) or not room:
                continue
            chunks = _chunks(values, room)
            if len(chunks) <= room:
                room -= max(len(chunks), 1)
                replaced[page.number] = self._replaced(page, changed_counts, chunks)
        for slot, pages in self._pages.items():
            self._pages[slot] = [successor for page in pages for successor in replaced.get(page.number, [page])]
        self._pages = {slot: pages for slot, pages in self._pages.items() if pages}

    def _replaced(
        self, page: ValuePage, changed_values: Iterable[Any], chunks: Sequence[Mapping[Any, int]]
    ) -> list[ValuePage]:
        """Return the pages that take the place of one, with what has changed of its values."""
        for value in changed_values:
            del self._pending[page.slot][value]
        if not chunks:
            self._values_of_pages[page.number] = []
            return []
        first, *further_chunks = chunks
        self._write(page, first)
        return [page, *[self._new_page(page.slot, chunk) for chunk in further_chunks]]

    def _new_page(self, slot: int, values: Mapping[Any, int]) -> ValuePage:
        # (No number comes again: a late request to delete a page, which was made anew, has another one.)
        page = ValuePage(slot, random.getrandbits(40), min(values), None, None, below=False)
        self._write(page, values)
        return page

    def _write(self, page: ValuePage, values: Mapping[Any, int]) -> None:
        self._loaded[page.number] = dict(values)
        self._values_of_pages[page.number] = list(values.items())
        page.below = any(count < 0 for count in values.values())
        _set_ends(page, values)

    def packed(self) -> bytes:
        """Return what the row of the group holds."""
        pages = [page for of_slot in self._pages.values() for page in of_slot]
        changed_counts = [(slot, *pair) for slot, of_slot in sorted(self._pending.items()) for pair in of_slot.items()]
        return msgspec.msgpack.encode((pages, changed_counts)) if pages or changed_counts else b""

    def changes(self) -> list[RowChange]:
        """Return the changes of pages, for the transaction that writes the row of the group."""
        return [
            RowChange("upsert", key, {BASE_ROW: self._key[1], **value_members(msgspec.msgpack.encode(values))})
            if values
            else RowChange("delete", key, {}, "*")
            for number, values in self._values_of_pages.items()
            for key in (page_key(number, self._key[1]),)
        ]


def _first(page: ValuePage) -> Any:
    return page.first


def _set_ends(page: ValuePage, values: Mapping[Any, int]) -> None:
    live = [value for value, count in values.items() if count > 0]
    page.least, page.greatest = min(live, default=None), max(live, default=None)


def _chunks(values: Mapping[Any, int], room: int) -> list[dict[Any, int]]:
    """Return values in their order: all together, or in parts of half a page if they are more than one takes.

    Where there is no room for as many, parts are larger: else a page with many changes would wait for ever, and get more.
    """
    ordered = sorted(values.items())
    sizes = [len(msgspec.msgpack.encode(pair)) for pair in ordered]
    most = _PAGE if sum(sizes) <= _PAGE else _PAGE // 2
    while len(chunks := _parted(ordered, sizes, most)) > room and most < _LARGEST * _PAGE:
        most *= 2
    return chunks


def _parted(ordered: Sequence[tuple[Any, int]], sizes: Sequence[int], most: int) -> list[dict[Any, int]]:
    chunks: list[dict[Any, int]] = []
    size = most
    for (value, count), length in zip(ordered, sizes, strict=True):
        if size + length > most and (not chunks or chunks[-1]):
            chunks.append({})
            size = 0
        chunks[-1][value] = count
        size += length
    return chunks
