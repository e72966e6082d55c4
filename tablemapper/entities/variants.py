"""Variants of a class: its fields, key and indexes in tables of their own, as for the log of each month.

A variant is a subclass without slots of its own, so its entities are of the class, too. Its metaclass derives from that of
the class, and answers ``Log202611.host`` and ``Log202611.key`` itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import methodcaller
from typing import Any, Final

import attrs

from ..errors import InvalidModel, safe_repr
from ..limits import check_table_name
from .declaration import Declaration, declaration_of
from .key_and_indexes import index_table

_VARIANT: Final = "__variant__"
_VARIANTS: Final = "__variants__"
_making = threading.RLock()  # (the variant of an aggregate makes that of its source)


def made_once(cls: Any, text: Any, make: Callable[[Any, str], Any]) -> Any:
    """Return the variant of a class, which a function makes the first time.

    Raises:
        InvalidModel: there can be none.
    """
    declaration = declaration_of(cls)
    if (variant := cls.__dict__.get(_VARIANT)) is not None:
        raise InvalidModel(cls.__name__, [f"it is a variant itself; call {variant[0].__name__}.variant(…)"])
    if not isinstance(text, str) or not text.isascii() or not text.isalnum():
        raise InvalidModel(
            declaration.name,
            [f'variant({safe_repr(text)}): expected letters (A-Z, a-z) and digits, as in variant("202611")'],
        )
    with _making:
        if _VARIANTS not in cls.__dict__:
            type.__setattr__(cls, _VARIANTS, {})
        variants: dict[str, Any] = cls.__dict__[_VARIANTS]
        if text not in variants:
            variants[text] = make(cls, text)
        return variants[text]


def variant_body(cls: Any, text: str) -> dict[str, Any]:
    """Return the body of a variant: the slots of its class, under which its own values lie."""
    has_own_text = cls.__doc__ is not None and not cls.__doc__.startswith(f"{cls.__name__}(")
    return {
        **{name: cls.__dict__[name] for name in cls.__slots__},
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__ + text,
        "__doc__": cls.__doc__ if has_own_text else None,
        "__slots__": (),
        _VARIANT: (cls, text),
    }


def variant_declaration(cls: Any, variant: Any, text: str) -> Declaration:
    """Return the declaration of a variant: that of its class, with other tables.

    Raises:
        InvalidModel: a table would have a name that is none.
    """
    declaration, faults = declaration_of(cls), list[str]()

    def named(table: str) -> str:
        if (fault := check_table_name(table)) is not None:
            faults.append(f"variant({safe_repr(text)}): its table {safe_repr(table)}: {fault}")
        return table

    table = named(declaration.table + text)
    indexes = [
        attrs.evolve(
            index,
            table=named(
                index_table(table, index.name)
                if index.table == index_table(declaration.table, index.name)
                else index.table + text
            ),
        )
        for index in declaration.indexes
    ]
    if faults:
        raise InvalidModel(variant.__name__, faults)
    source = None if declaration.of is None else declaration.of.variant(text)
    return attrs.evolve(declaration, cls=variant, table=table, indexes=tuple(indexes), of=source)


def pickled(variant: Any) -> tuple[Callable[[Any], Any], tuple[Any, ...]]:
    """Return what makes a variant again: its class, and what it is called with."""
    cls, text = variant.__dict__[_VARIANT]
    return methodcaller("variant", text), (cls,)
