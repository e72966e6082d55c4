"""Python's own attributes: properties, descriptors, cached properties of entities; the module of what is public."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

CACHE = "_cached"
"""The slot of the values that cached properties have: it is no part of the entity."""


class CachedAttribute:
    """A `functools.cached_property` of a class without ``__dict__``.

    Its value is kept until it is deleted or set. A copy, an unpickled entity and a comparison know nothing of it.
    """

    def __init__(self, cached: cached_property[Any]) -> None:
        self._make = cached.func
        self._name = cached.attrname
        self.__doc__ = cached.__doc__

    def __get__(self, entity: Any, owner: Any = None) -> Any:
        if entity is None:
            return self
        values = _values(entity)
        if self._name not in values:
            values[self._name] = self._make(entity)
        return values[self._name]

    def __set__(self, entity: Any, value: object) -> None:
        _values(entity)[self._name] = value

    def __delete__(self, entity: Any) -> None:
        if self._name not in _values(entity):
            raise AttributeError(f"{type(entity).__name__}.{self._name} was not computed")
        del _values(entity)[self._name]


def _values(entity: Any) -> dict[str | None, Any]:
    slot = type(entity).__dict__[CACHE]
    try:
        values: dict[str | None, Any] = slot.__get__(entity)
    except AttributeError:
        slot.__set__(entity, values := {})
    return values


def forget_cached(entity: Any) -> None:
    """Forget what cached properties have, as all fields are others now."""
    if CACHE in type(entity).__dict__:
        _values(entity).clear()


def cached_attributes(bases: tuple[type, ...], body: Mapping[str, Any]) -> dict[str, CachedAttribute]:
    """Return the stand-ins of the cached properties of a class, its own and those of its bases, by name."""
    inherited: dict[str, Any] = {}
    for base in reversed(bases):
        for cls in reversed(base.__mro__):
            inherited |= vars(cls)
    names = _cached({**inherited, **body})
    return {name: CachedAttribute(cached) for name, cached in names}


def _cached(attributes: Mapping[str, Any]) -> Iterator[tuple[str, cached_property[Any]]]:
    for name, value in attributes.items():
        if isinstance(value, cached_property):
            if value.attrname is None:  # (the class that it stands in is not made yet)
                value.__set_name__(None, name)  # type: ignore[arg-type]
            yield name, value


def data_descriptor(entity: Any, name: str, method: str) -> Any:
    """Return the descriptor of a user's that an attribute of an entity is set, or deleted, by; None if there is none.

    Args:
        method: ``__set__`` or ``__delete__``.
    """
    descriptor = next((vars(cls)[name] for cls in type(entity).__mro__ if name in vars(cls)), None)
    is_slot = isinstance(descriptor, MemberDescriptorType | GetSetDescriptorType)
    read_only = (
        isinstance(descriptor, property) and (descriptor.fset if method == "__set__" else descriptor.fdel) is None
    )
    return descriptor if not is_slot and not read_only and hasattr(descriptor, method) else None


def publish(module: str, names: Mapping[str, object], public: Iterable[str]) -> None:
    """Let tracebacks, reprs and pickles show public objects under the module that users import them from."""
    for name in public:
        value: Any = names[name]
        if getattr(value, "__module__", "").startswith("tablemapper."):
            value.__module__ = module
