"""The limits of Azure Table storage, which hold on every engine.

A model that runs on SQLite must not fail later on Azure, so nothing here depends on the engine. Sizes follow the
formula that Microsoft published for an entity:

    4 bytes + Len(PartitionKey + RowKey) * 2 bytes
    + for each property: 8 bytes + Len(name) * 2 bytes + the size of its value

where a String is Len * 2 + 4 bytes, a Binary its bytes + 4, Int32 4, Int64, Double and DateTime 8, Guid 16 and Boolean
1. Every Len counts UTF-16 units: a character above U+FFFF is two.

A check returns the fault as text, or None: callers collect faults and raise them together.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from .datetime_types import Builtin

__all__ = [
    "FIXED_SIZES",
    "MAX_ENTITY",
    "MAX_INDEX_ROW_UNITS",
    "MAX_INT32",
    "MAX_INT64",
    "MAX_KEY_UNITS",
    "MAX_NAME",
    "MAX_OPERATIONS",
    "MAX_PROPERTIES",
    "MAX_TABLE",
    "MAX_TRANSACTION",
    "MAX_VALUE",
    "MIN_DATETIME",
    "MIN_INT32",
    "MIN_INT64",
    "Edm",
    "binary_size",
    "check_property_name",
    "check_table_name",
    "check_value",
    "entity_size",
    "fixed_size",
    "is_name",
    "key_size",
    "property_size",
    "string_size",
    "utf16_units",
]

MAX_PROPERTIES: Final = 252  # 255 with PartitionKey, RowKey and Timestamp
MAX_TABLE: Final = 63  # characters of the name of a table
MAX_NAME: Final = 255  # UTF-16 units of a property name
MAX_VALUE: Final = 64 * 1024  # bytes of a String (32,768 UTF-16 units) or a Binary
MAX_ENTITY: Final = 1024 * 1024  # bytes
MAX_TRANSACTION: Final = 4 * 1024 * 1024  # bytes
MAX_OPERATIONS: Final = 100  # of one entity group transaction
MAX_KEY_UNITS: Final = 512  # UTF-16 units, of a partition key and of a row key
MAX_INDEX_ROW_UNITS: Final = 448  # ours: what an index row's own part may take, so that the entity's key fits behind it
MIN_INT32: Final = -(2**31)
MAX_INT32: Final = 2**31 - 1
MIN_INT64: Final = -(2**63)
MAX_INT64: Final = 2**63 - 1
MIN_DATETIME: Final = Builtin.datetime(1601, 1, 1, tzinfo=UTC)

Edm: TypeAlias = Literal["String", "Int32", "Int64", "Double", "Boolean", "DateTime", "Guid", "Binary"]

FIXED_SIZES: Final[Mapping[str, int]] = MappingProxyType(
    {"Int32": 4, "Int64": 8, "Double": 8, "Boolean": 1, "DateTime": 8, "Guid": 16}
)
"""The bytes of a value, for the types where all values have the same."""


def utf16_units(text: str) -> int:
    """Count the UTF-16 units of a text: what Azure calls its length."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) >> 1


# ------------------------------------------------------------------------------------------------------------- sizes


def string_size(text: str) -> int:
    """Return the bytes of a String value."""
    return 4 + 2 * (len(text) if text.isascii() else utf16_units(text))


def binary_size(data: bytes) -> int:
    """Return the bytes of a Binary value."""
    return 4 + len(data)


def key_size(partition: str, row: str) -> int:
    """Return the bytes of a key."""
    return 2 * (utf16_units(partition) + utf16_units(row))


def property_size(name: str, edm: Edm) -> int:
    """Return the bytes that a property takes in every entity that has it: all but the value of a String or Binary."""
    return 8 + 2 * utf16_units(name) + FIXED_SIZES.get(edm, 0)


def fixed_size(properties: Iterable[tuple[str, Edm]]) -> int:
    """Return the bytes that all entities with these properties share, for code that is generated once.

    What is left to add for each entity is ``key_size``, ``string_size`` and ``binary_size``. As no character is more
    than 4 bytes, an entity is small enough without counting if this and 4 times the length of its texts are.
    """
    return 4 + sum(property_size(name, edm) for name, edm in properties)


def entity_size(partition: str, row: str, properties: Iterable[tuple[str, Edm, object]]) -> int:
    """Return the bytes of an entity by the published formula; a None is not stored and takes none."""
    size = 4 + key_size(partition, row)
    for name, edm, value in properties:
        if value is None:
            continue
        size += property_size(name, edm)
        if isinstance(value, str) and edm == "String":
            size += string_size(value)
        elif isinstance(value, bytes) and edm == "Binary":
            size += binary_size(value)
        elif edm not in FIXED_SIZES:
            raise TypeError(f"{name}: {type(value).__name__} is not the value of a {edm}")
    return size


_MEND: Final = "declare it with tm.field(large=True)"


def check_value(path: str, value: object) -> str | None:
    """Return the fault of the size of a String or Binary value in one property, if it has one."""
    if isinstance(value, str):
        # a character is one or two units
        if len(value) * 2 > MAX_VALUE // 2 and (units := utf16_units(value)) > MAX_VALUE // 2:
            return f"{path}: a text of {units:,} UTF-16 units, the most is {MAX_VALUE // 2:,} (64 KiB); {_MEND}"
    elif isinstance(value, bytes) and len(value) > MAX_VALUE:
        return f"{path}: {len(value):,} bytes, the most is {MAX_VALUE:,} (64 KiB); {_MEND}"
    return None


# ------------------------------------------------------------------------------------------------------------- names

_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_PROPERTIES_OF_AZURE = frozenset({"PartitionKey", "RowKey", "Timestamp"})
# A C# identifier is made of these categories, and no character of it is above U+FFFF.
_STARTS = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl"})
_CONTINUES = _STARTS | {"Mn", "Mc", "Nd", "Pc", "Cf"}
# Property names also travel as XML names. This leaves the Name of XML 1.0 without ":", "-" and ".".
_XML_START = (
    "A-Za-z_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff"
    "\u200c\u200d\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd"
)
_XML_NAME = re.compile(f"[{_XML_START}][{_XML_START}0-9\u00b7\u0300-\u036f\u203f\u2040]*")


def check_property_name(name: str) -> str | None:
    """Return the fault of a property name, if it has one; C# keywords are accepted, as Azure does."""
    if name in _PROPERTIES_OF_AZURE:
        return f'"{name}" is a property of Azure\'s own; choose another name'
    if name == "odata" or name.startswith("odata."):
        return f'"{name}" would be read as an annotation of OData; choose another name'
    if not _is_identifier(name):
        return f'"{name}" cannot be the name of a property: a letter or "_" comes first, then letters, digits and "_"'
    if (units := utf16_units(name)) > MAX_NAME:
        return f'"{name[:20]}…" has {units} characters, the most is {MAX_NAME}'
    return None


def _is_identifier(name: str) -> bool:
    if name.isascii():
        return name.isidentifier()
    return (
        _XML_NAME.fullmatch(name) is not None
        and (name[0] == "_" or unicodedata.category(name[0]) in _STARTS)
        and all(unicodedata.category(character) in _CONTINUES for character in name)
    )


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a class or an attribute, and is that name to Python."""
    return text.isidentifier() and not keyword.iskeyword(text) and unicodedata.normalize("NFKC", text) == text


def check_table_name(name: str) -> str | None:
    """Return the fault of a table name, if it has one."""
    if _TABLE_NAME.fullmatch(name) is None:
        return f'"{name}" is not a table name: 3 to 63 letters (A-Z, a-z) and digits, a letter first'
    if name.lower() == "tables":
        return f'"{name}" is a name that Azure reserves; choose another'
    return None
