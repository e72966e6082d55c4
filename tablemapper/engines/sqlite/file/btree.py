"""Keys that lie evenly over a table without rowids, from the upper pages of its b-tree.

An inner page of the b-tree of such a table has whole rows between its children, and each child holds about as many
bytes as the next. So a few pages divide any number of rows. SQLite has no statement that reads inner pages only, so
they are taken from the file, as its format says (https://www.sqlite.org/fileformat2.html). What stands only in the
write-ahead log is not seen, and a page may be overwritten meanwhile: the keys tell where rows were lately, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

Key = tuple[str, ...]
_INNER = 2  # the type of a page


def upper_keys(
    read: Callable[[int, int], bytes],
    root: int,
    columns: int,
    wanted: int,
    reaches: Callable[[Key | None, Key | None], bool],
) -> list[Key]:
    """Return keys of rows in order, as far as inner pages have them.

    Args:
        read: returns bytes of the file, from a place on, so many.
        columns: how many columns its key has, all text.
        wanted: how many keys are enough.
        reaches: whether rows are wanted from one key to another one; None has no end.
    """
    header = read(0, 100)
    size = int.from_bytes(header[16:18], "big")
    size = 65_536 if size == 1 else size
    usable = size - header[20]
    keys: list[Key] = []
    level: list[tuple[int, Key | None, Key | None]] = [(root, None, None)]
    while level and len(keys) < wanted:
        below: list[tuple[int, Key | None, Key | None]] = []
        for number, low, high in level:
            at = low
            for child, key in _inner(read((number - 1) * size, size), usable, columns) if number else ():
                end = high if key is None else key
                if (at is None or end is None or at < end) and reaches(at, end):
                    below.append((child, at, end))
                if key is not None and (at is None or at < key) and (high is None or key < high):
                    keys.append(key)
                    at = key
        level = below
    return sorted(keys)


def _inner(page: bytes, usable: int, columns: int) -> Iterator[tuple[int, Key | None]]:
    """Yield the children of an inner page, each with the key of the row behind it; None behind the last."""
    if page[0] != _INNER:
        return
    for number in range(int.from_bytes(page[3:5], "big")):
        cell = int.from_bytes(page[12 + 2 * number : 14 + 2 * number], "big")
        length, at = _varint(page, cell + 4)
        yield int.from_bytes(page[cell : cell + 4], "big"), _key(page[at : at + _local(length, usable)], columns)
    yield int.from_bytes(page[8:12], "big"), None


def _local(length: int, usable: int) -> int:
    """Return how much of a row of this length stands in its page."""
    most, least = (usable - 12) * 64 // 255 - 23, (usable - 12) * 32 // 255 - 23
    if length <= most:
        return length
    local = least + (length - least) % (usable - 4)
    return local if local <= most else least


def _key(record: bytes, columns: int) -> Key:
    """Return the first columns of a row, as far as they are there."""
    size, at = _varint(record, 0)
    start = size
    key: list[str] = []
    while at < size and len(key) < columns:
        kind, at = _varint(record, at)
        length = max(kind - 13, 0) // 2
        key.append(record[start : start + length].decode(errors="ignore"))
        start += length
    return tuple(key)


def _varint(text: bytes, at: int) -> tuple[int, int]:
    """Return a number of one to nine bytes, and where it ends."""
    number = 0
    for place in range(at, min(at + 8, len(text))):
        number = number << 7 | text[place] & 0x7F
        if text[place] < 0x80:
            return number, place + 1
    return number, at + 9
