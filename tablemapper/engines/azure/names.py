"""Names of hidden properties, rows and tables; nothing else knows them.

The row keys of what an engine keeps beside entities begin with a text that no template makes: `` "`` and a letter.
"""

from __future__ import annotations

import hashlib

from ...keys.forms import SEPARATOR, check_key
from ...limits import MAX_KEY_UNITS, utf16_units

__all__ = [
    "BASE_ROW",
    "CATALOGUE",
    "HIDDEN",
    "OP",
    "OURS",
    "STATE",
    "TYPE_NAME",
    "VALUES",
    "index_key",
    "index_prefix",
    "row_key_of",
]

OURS = "_tm_"
"""What the names of hidden properties begin with."""
OP, STATE, VALUES = f"{OURS}op", f"{OURS}state", f"{OURS}values"
"""The last write of an entity; of a group its state, and how often each value is there whose ends it has, in pieces."""
BASE_ROW = "_rk"
"""In the row of an index: the row key of the entity."""
TYPE_NAME = "EntityType"
CATALOGUE = "TableMapper"
HIDDEN = (' "g', ' "{')
"""The first row key that is hidden, and what is above all."""


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
    front = f"{index_prefix(label)}{row}{SEPARATOR}"
    key = front if unique else front + base
    if utf16_units(key) > MAX_KEY_UNITS:
        key = f'{front} "h{hashlib.blake2b(base.encode(), digest_size=16).hexdigest()}'
    return check_key(key, what=f"{label}: the key of its row")


def row_key_of(label: str, key: str, base: str, *, unique: bool) -> str:
    """Return the row key that the index itself gave, of the key of its row."""
    rest = key[len(index_prefix(label)) :]
    if unique:
        return rest.removesuffix(SEPARATOR)
    end = SEPARATOR + base
    return rest.removesuffix(end) if rest.endswith(end) else rest.rpartition(SEPARATOR)[0]
