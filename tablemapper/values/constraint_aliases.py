"""Constraints as annotated_types and pydantic spell them, which become ``msgspec.Meta``; neither package is imported.

What would constrain values and has no such form is refused: nothing that looks like a rule is left unread.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Annotated, Any, NewType, get_args, get_origin

import msgspec

from ..type_aliases import unfolded
from .scalars import ValueFault

_PACKAGES = ("annotated_types", "pydantic")
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
_GROUP = "__is_annotated_types_grouped_metadata__"
_SAYING = ("title", "description", "examples")  # of pydantic's Field: they stand in a JSON schema
_PLAIN = ("DocInfo", "Strict", "Unit")  # they ask nothing, or what is asked of every value
_UNREAD = {
    "default_factory": "write tm.field(factory=…)",
    "alias": "write tm.field(name=…)",
    "validation_alias": "write tm.field(name=…)",
    "serialization_alias": "write tm.field(name=…)",
    "discriminator": "tag the classes of the union, as in class Cat(msgspec.Struct, tag=True)",
    "exclude": "leave it out: each field is stored",
    "frozen": "leave it out: a field can be set, but for those of a stored key",
}
"""What pydantic's Field says beside constraints, with what to write here."""
_CODE = "write tm.field(validator=…), a function of (entity, attribute, value)"


def package_of(value: object) -> str:
    """Return which of the packages an object comes from, ``annotated_types`` or ``pydantic``; or nothing."""
    package = type(value).__module__.partition(".")[0]
    return package if package in _PACKAGES else ""


def with_meta(annotation: Any) -> Any:
    """Return an annotation with ``msgspec.Meta`` for what other packages call so; the same object if there is none.

    Raises:
        Fault: it has no such form.
    """
    if isinstance(annotation, NewType):
        return _of_alias(annotation, annotation.__supertype__)
    if (means := unfolded(annotation)) is not annotation:
        return _of_alias(annotation, means)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        marks = [mark for arg in args[1:] for mark in _marks(arg)]
        bare = with_meta(args[0])
        if bare is args[0] and len(marks) == len(args) - 1 and all(map(_is, marks, args[1:])):
            return annotation
        return Annotated[(bare, *marks)] if marks else bare
    if origin is None or origin is typing.Literal:
        return annotation
    parts = tuple(map(with_meta, args))
    if all(map(_is, parts, args)):
        return annotation
    return reduce(or_, parts) if origin is types.UnionType else origin[parts]


def _is(left: object, right: object) -> bool:
    return left is right


def _of_alias(annotation: Any, means: Any) -> Any:
    bare = with_meta(means)
    return annotation if bare is means else bare


def _marks(mark: Any) -> Iterator[Any]:
    """Yield what stands for one mark of an annotation."""
    if getattr(type(mark), _GROUP, False):
        for part in mark:
            yield from _marks(part)
    elif not package_of(mark):
        yield mark
    elif isinstance(parts := getattr(mark, "metadata", None), list):
        for name, mend in _UNREAD.items():
            if getattr(mark, name, None) is not None:
                raise ValueFault(f"pydantic.Field({name}=…) is not read; {mend}")
        if not mark.is_required() and mark.default_factory is None:
            raise ValueFault("pydantic.Field(default=…) is not read; write tm.field(default=…)")
        for part in parts:
            yield from _marks(part)
        if annotations := {name: value for name in _SAYING if (value := getattr(mark, name)) is not None}:
            yield msgspec.Meta(**annotations)
    elif type(mark).__name__ not in _PLAIN:
        yield _meta(mark)


def _meta(mark: Any) -> msgspec.Meta:
    bounds = {name: getattr(mark, name) for name in _BOUNDS if getattr(mark, name, None) is not None}
    unread = [name for name, value in getattr(mark, "__dict__", {}).items() if value and name not in bounds]
    if unread or not bounds:
        subject = f"{unread[0]}=…" if bounds or type(mark).__name__.startswith("_") else type(mark).__name__
        raise ValueFault(f"{package_of(mark)}: {subject} is not read; {_CODE}")
    try:
        return msgspec.Meta(**{name: _plain(bound) for name, bound in bounds.items()})
    except (TypeError, ValueError) as error:
        text = ", ".join(f"{name}={bound!r}" for name, bound in bounds.items())
        raise ValueFault(f"{package_of(mark)}: {text} cannot be a constraint here ({error}); {_CODE}") from None


def _plain(bound: Any) -> Any:
    """Return a bound as msgspec takes it: Decimals as numbers, if no digit is lost, and patterns as text."""
    if isinstance(bound, Decimal):
        number = int(bound) if bound == bound.to_integral_value() else float(bound)
        return number if Decimal(str(number)) == bound else bound
    if isinstance(bound, re.Pattern) and bound.flags == re.compile(bound.pattern).flags:
        return bound.pattern
    return bound
