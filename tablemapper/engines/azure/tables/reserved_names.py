"""Names of hidden properties, rows and tables; nothing else knows them.

The row keys of what an engine keeps beside entities begin with a text that no template makes: `` "`` and a letter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ....keys.encodings import SEPARATOR, check_key
from ....limits import MAX_KEY_UNITS, MAX_TABLE, utf16_units

OURS = "_tm_"
"""What the names of hidden properties begin with."""
OP, OPS, STATE, VALUES = f"{OURS}op", f"{OURS}ix", f"{OURS}state", f"{OURS}values"
"""The last write of an entity, and for each index in other partitions the write that its rows there are of; of a group
its state, and how often each value is there whose ends it has, in pieces; of a page that alone."""
HIDDEN_PREFIX = f"{OURS}below"
"""In a group that is not there for readers: what is taken off it came before what it is taken off from."""
BASE_PARTITION, BASE_ROW = "_pk", "_rk"
"""In the row of an index: the key of the entity; where the partition is the entity's own, its row key alone."""
NEXT_OP, NEXT_ROW = f"{OURS}op2", "_rk2"
"""In the row of a unique value: the write that passes it on to another entity of the partition, and that entity."""
TYPE_NAME = "EntityType"
CATALOGUE = "TableMapper"
"""The catalogue of a store whose tables have no prefix."""
CLAIM = ' "k'
"""The partition key and the row key of the row that says which catalogue a table belongs to."""
END = "  "
"""What ends each part of the row key of an index row. No part has it in itself, and it sorts below all that continues a part, a
separator, too: so rows have the order of what the index gives, then of the entities' keys."""
_SUFFIX = f"{END}!"  # (no row key ends in spaces)
OP_UNITS = 25
_HASH_UNITS = 35
_HASHED_UNITS = len(END) + _HASH_UNITS + len(END) + OP_UNITS
HIDDEN = (' "g', ' "{')
"""The first row key that is hidden, and what is above all."""
NOTES = ' "n'
"""What the row keys of notes begin with that change with entities."""
INTENTS = (' "o', ' "p')
"""The row keys of intents, as a half-open range: what writes have to do in other partitions."""
PAGES = (' "v', ' "w')
"""The row keys of pages, beside a group: how often each of some values is there whose ends it has."""
MARKS = (' "y', ' "z')
"""The row keys of markers, beside a group: what was added to it."""


_REQUIRED = {' "o': "state", ' "v': BASE_ROW, ' "x': BASE_ROW, ' "y': "op"}
"""By what hidden row keys begin with, a property that such a row has."""


def is_known(entity: Mapping[str, Any]) -> bool:
    """Return whether a hidden row is one of ours: others have no letter that means something, or not what it asks for."""
    row: str = entity["RowKey"]
    letter = row[:3]
    return letter == NOTES or row == CLAIM or (letter in _REQUIRED and isinstance(entity.get(_REQUIRED[letter]), str))


def intent_key(op: str) -> str:
    """Return the row key of the intent of a write."""
    return INTENTS[0] + op


def mark_key(op: str, group: str) -> str:
    """Return the row key of the marker that a write was added to a group."""
    return _within(f"{MARKS[0]}{op}{SEPARATOR}", group)


def fresh_table(name: str, token: str) -> str:
    """Return the name of a table that takes the place of another one."""
    end = f"x{token}"
    if len(name) + len(end) > MAX_TABLE:  # (two names may begin alike)
        end = f"x{digest(name.lower())[:16]}{end}"
    return name[: MAX_TABLE - len(end)] + end


def is_page(row: str) -> bool:
    """Return whether a row key is one of a page."""
    return PAGES[0] <= row < PAGES[1]


def page_key(number: int, group: str) -> str:
    """Return the row key of a page of the values of a group."""
    return _within(f"{PAGES[0]}{number:x}{SEPARATOR}", group)


def outer_key(row: str, partition: str, base: str, op: str) -> str:
    """Return the row key of a row of an index in other partitions; without a write, what such keys begin with.

    Args:
        row: the row key that the index itself gives.
        partition, base: the key of the entity.
        op: the write that made the row.
    """
    end = END + op
    front, base_part = row + END, f"{partition}{END}{base}"
    # (Only `{field:raw}` leaves two spaces in a key.)
    if utf16_units(front + base_part) + len(END) + OP_UNITS > MAX_KEY_UNITS or END in partition or END in base:
        base_part = f' "h{digest(partition + chr(0) + base)}'
    return front + base_part + end


def outer_row_of(key: str, partition: str, base: str, op: str) -> str:
    """Return the row key that the index itself gave, of the key of its row."""
    suffix = f"{END}{partition}{END}{base}{END}{op}"
    return key.removesuffix(suffix) if key.endswith(suffix) else key[:-_HASHED_UNITS]


def _within(front: str, tail: str) -> str:
    return front + tail if utf16_units(front + tail) <= MAX_KEY_UNITS else f'{front} "h{digest(tail)}'


def digest(text: str) -> str:
    """Return 32 hex digits that stand for a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def index_prefix(label: str) -> str:
    """Return what the row keys of an index begin with whose rows lie in the entities' own partitions."""
    return f' "x{label}{SEPARATOR}'


def index_key(label: str, row: str, base: str, *, unique: bool) -> str:
    """Return the row key of a row of such an index.

    Args:
        label: of the index.
        row: the row key that the index itself gives.
        base: the row key of the entity, which a unique index does not need.
        unique: whether it is one.
    """
    front = f"{index_prefix(label)}{row}{_SUFFIX}"
    return check_key(front if unique else _within(front, base), what=f"{label}: the key of its row")


def row_key_of(label: str, key: str, base: str, *, unique: bool) -> str:
    """Return the row key that the index itself gave, of the key of its row."""
    tail = key[len(index_prefix(label)) :]
    if unique:
        return tail.removesuffix(_SUFFIX)
    end = _SUFFIX + base
    return tail.removesuffix(end) if tail.endswith(end) else tail[: -len(_SUFFIX) - _HASH_UNITS]
