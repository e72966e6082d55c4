"""Users' own classes that are stored as scalars: what `tablemapper.register` declares."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import attrs

from ..datetime_types import builtin_time
from ..errors import InvalidModel, safe_repr
from ..own_types import OwnType
from .extra import Extra
from .geo import GeoPoint
from .hooks import HOOK_FAULTS, has_hooks
from .scalars import SCALARS, ValueFault, ValueType, unexpected

T = TypeVar("T")
S = TypeVar("S")

_types: dict[type[Any], tuple[ValueType, Any, Any]] = {}
"""By class: its type, and the two functions as they were given."""


def register(cls: type[T], as_: type[S], /, *, store: Callable[[T], S], load: Callable[[S], T]) -> None:
    """Declare that a class of your own is stored as a scalar.

    Call it before a field uses the class. The value is that scalar in keys, indexes, groups, conditions, columns and JSON,
    and sorts as it::

        tm.register(Slug, str, store=lambda slug: slug.text, load=Slug)

    The class needs ``__eq__``, and ``__hash__`` to be grouped by: each value is compared with what ``load`` makes of it.
    A field can change between the scalar and the class without a migration.

    Args:
        cls: the class.
        as_: str, int, float, bool, bytes, Decimal, UUID, datetime, date, time or timedelta.
        store: returns the scalar of a value.
        load: returns the value of a scalar.

    Raises:
        InvalidModel: the library stores values of the class already, or the class was registered with other functions.
    """
    kind = builtin_time(as_)
    if fault := _fault(cls, kind, store, load):
        raise InvalidModel("tm.register", [fault])
    _types[cls] = _own_type(OwnType(cls, kind, _checked(store, SCALARS[kind].check), _checked(load))), store, load


def _fault(cls: Any, kind: Any, store: Any, load: Any) -> str | None:
    """Return why a class cannot be registered; None if it can."""
    if not isinstance(cls, type):
        return f"expected a class, got {safe_repr(cls)}"
    name = cls.__name__
    if not isinstance(kind, type) or kind not in SCALARS:
        return (
            f"{name} cannot be stored as {safe_repr(kind)}: expected {', '.join(scalar.__name__ for scalar in SCALARS)}"
        )
    is_builtin = issubclass(cls, Enum) or builtin_time(cls) in (
        *SCALARS,
        list,
        dict,
        set,
        frozenset,
        tuple,
        GeoPoint,
        Extra,
    )
    if is_builtin or hasattr(cls, "__declaration__") or issubclass(kind, cls):
        return f"{name} is stored by the library itself; wrap the value in a class of your own"
    if has_hooks(cls):
        return f"{name} has hooks on tablemapper.converter(); give it these or tm.register, not both"
    if not callable(store) or not callable(load):
        return f"{name}: store= and load= are functions of one value"
    if cls in _types and (_types[cls][0].kind, *_types[cls][1:]) != (kind, store, load):
        return f"{name} is registered already, with other functions"
    return None


def _checked(function: Callable[[Any], Any], check: Callable[[Any], Any] = lambda value: value) -> Callable[[Any], Any]:
    """Return a function that raises a `ValueFault` where a user's function fails."""

    def checked(value: Any) -> Any:
        try:
            return check(function(value))
        except ValueFault:
            raise
        except Exception as error:
            raise ValueFault(f"{type(error).__name__}: {error}") from error

    return checked


def registered(cls: Any) -> ValueType | None:
    """Return the type of a registered class; None if a class is none.

    Raises:
        ValueError: it has hooks, too.
    """
    if not isinstance(cls, type) or cls not in _types:
        return None
    if has_hooks(cls):
        raise ValueFault(
            f"{cls.__name__} has hooks on tablemapper.converter(), and is registered: one would not be used"
        )
    return _types[cls][0]


def _own_type(own_type: OwnType) -> ValueType:
    scalar, name = SCALARS[own_type.scalar], own_type.__name__

    def check(value: Any) -> Any:
        if not isinstance(value, own_type.cls):
            raise unexpected(name, value)
        plain = own_type.store(value)
        loaded_value = own_type.load(plain)
        try:
            same = isinstance(loaded_value, own_type.cls) and bool(loaded_value == value)
        except HOOK_FAULTS as error:
            raise ValueFault(f"{type(error).__name__}: {error}") from error
        if not same:
            raise ValueFault(
                f"{safe_repr(value)} is stored as {safe_repr(plain)}, of which load= makes {safe_repr(loaded_value)}: that must "
                f"equal it ({name} needs __eq__)"
            )
        return loaded_value

    def store(value: Any) -> Any:
        return scalar.store(own_type.store(value))

    def loaded(form: Any) -> Any:
        return own_type.load(scalar.load(form))

    def to_json(value: Any) -> Any:
        return scalar.to_json(own_type.store(value))

    return attrs.evolve(
        scalar, name=name, check=check, store=store, load=loaded, to_json=to_json,
        from_json=lambda form: own_type.load(scalar.check(scalar.from_json(form))),
        fast="False", writes="{store}({v})", reads="{load}({v})", encodes="{encode}({v})",
        objects={"store": store, "load": loaded, "encode": to_json}, load_refuses=True, text=False, cuttable=False,
        summable=False, calculable=False, sql_in_json=False, key_kind=own_type, own=own_type,
    )  # fmt: skip
