"""The undeclared properties of an entity, each with its type on Azure."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from .limits import check_property_name
from .scalars import INT32, SCALARS, ValueType, wrong

__all__ = ["Extra", "Int32Value"]


class Int32Value(int):
    """An Edm.Int32 among undeclared properties; a plain int there is an Edm.Int64."""


_EXTRA: dict[type, tuple[str, Any]] = {
    str: ("String", str), Int32Value: ("Int32", INT32), int: ("Int64", int), float: ("Double", float),
    bool: ("Boolean", bool), datetime: ("DateTime", datetime), UUID: ("Guid", UUID), bytes: ("Binary", bytes),
}  # fmt: skip
_BY_EDM = {edm: kind for kind, (edm, _) in _EXTRA.items()}


class Extra(dict[str, Any]):
    """The undeclared properties of an entity: each a value of one of Azure's types, which it keeps."""

    @classmethod
    def checked(cls, value: Any) -> Extra:
        """Return a copy with every value checked; raise ValueError with the first that is wrong."""
        if not isinstance(value, dict):
            raise wrong(value, "a dict of properties")
        kept = cls()
        for name, item in value.items():
            fault = check_property_name(name) if isinstance(name, str) else "a property name is text"
            if fault is not None:
                raise ValueError(f"[{name!r}]: {fault}")
            found = next((k for k in (item.__class__, *type(item).__mro__) if k in _EXTRA), None)
            if found is None:
                raise ValueError(f"[{name!r}]: {type(item).__name__} is none of Azure's types: {', '.join(_BY_EDM)}")
            try:
                checked = _scalar(found).check(item)
            except ValueError as error:
                raise ValueError(f"[{name!r}]: {error}") from None
            kept[name] = Int32Value(checked) if found is Int32Value else checked
        return kept

    @classmethod
    def to_text(cls, value: Any) -> str:
        """Return the stored form: JSON of ``{name: [EDM type, value]}``."""
        form = {}
        for name, item in cls.checked(value).items():
            stored = _scalar(type(item)).store(item)
            form[name] = [
                _EXTRA[type(item)][0],
                stored.hex() if isinstance(stored, bytes) else repr(stored) if type(item) is float else stored,
            ]
        return msgspec.json.encode(form, order="deterministic").decode()

    @classmethod
    def from_text(cls, stored: str) -> Extra:
        """Return the properties of a stored form."""
        kept = cls()
        for name, (edm, value) in msgspec.json.decode(stored).items():
            kind = _BY_EDM[edm]
            if kind is bytes:
                kept[name] = bytes.fromhex(value)
            else:
                kept[name] = (
                    Int32Value(value)
                    if kind is Int32Value
                    else _scalar(kind).load(float(value) if kind is float else value)
                )
        return kept


def _scalar(kind: type) -> ValueType:
    return INT32 if kind is Int32Value else SCALARS[kind]
