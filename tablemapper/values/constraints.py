"""Constraints from annotations: the bounds, lengths and patterns of ``msgspec.Meta``.

They hold for what a program sets. A comparison may go beyond them, and a row that was stored before they were declared
can be read.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from operator import or_
from typing import Annotated, Any, NewType, Union, get_args, get_origin

import attrs
import msgspec
from msgspec import inspect

from ..codegen import Names, compile_functions
from ..datetime_types import Builtin
from ..errors import safe_repr
from ..type_aliases import unfolded
from .scalars import INT32_RANGE, ValueFault, ValueType

_NUMBERS = {
    "gt": ("{v} > {b}", "> {}"),
    "ge": ("{v} >= {b}", ">= {}"),
    "lt": ("{v} < {b}", "< {}"),
    "le": ("{v} <= {b}", "<= {}"),
    "multiple_of": ("{v} % {b} == 0", "that is a multiple of {}"),
}
_LENGTHS = {
    "min_length": ("len({v}) >= {b}", "of length >= {}"),
    "max_length": ("len({v}) <= {b}", "of length <= {}"),
}
_TEXTS = {"pattern": ("{b}({v}) is not None", "that matches {!r}")}
_ANNOTATIONS = ("title", "description", "examples", "extra_json_schema")
_TESTS: Mapping[str, tuple[str, str]] = {**_NUMBERS, **_LENGTHS, **_TEXTS}
"""Source that is true of a value ``v`` within a bound ``b``, and what a message says of it."""


@attrs.frozen(eq=False)
class Constraint:
    """The constraint on the values of a field."""

    bounds: Mapping[str, Any]
    """By name, as in `msgspec.Meta`: ``{"ge": 0}``."""
    tests: tuple[tuple[str, Any], ...]
    """Sources, each with its bound."""
    text: str
    """What is expected, for a message: ``int >= 0 and <= 5``."""
    holds: Callable[[Any], bool] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        names = Names()
        source = f"def holds(v):\n    return {self.source_for('v', names)}\n"
        object.__setattr__(self, "holds", compile_functions(self.text, source, names)["holds"])

    def source_for(self, variable: str, names: Names) -> str:
        """Return source that is true of values that satisfy it; ``variable`` is a name."""
        return " and ".join([source.format(v=variable, b=names.name("bound", bound)) for source, bound in self.tests])

    def check(self, value: Any) -> None:
        """Raise a `ValueFault` if a value of the field's type does not satisfy it."""
        if not self.holds(value):
            raise ValueFault(f"expected {self.text}, got {safe_repr(value)}")


def constraint_of(annotation: Any, kind: ValueType) -> Constraint | None:
    """Return what an annotation asks of its values, not of those inside of them; None if it is nothing.

    Raises:
        ValueError: it cannot be asked of values of this type.
    """
    bounds, tests, texts = {}, [], []
    for meta in _metas(annotation):
        if kind.kind is object:
            try:
                inspect.type_info(Annotated[_plain(annotation), meta])
            except TypeError as error:
                raise ValueFault(f"msgspec.Meta: {str(error).replace('`', '').partition(' - ')[0]}") from None
        for name in (*_TESTS, "tz"):
            bound = getattr(meta, name)
            if bound is None or (name == "tz" and bound and kind.kind is Builtin.datetime):  # (each has a time zone)
                continue
            if not _fits(name, kind):
                raise ValueFault(f"msgspec.Meta({name}={bound!r}) cannot apply to {kind.name}")
            bounds[name] = bound
            source, text = _TESTS[name]
            texts.append(text.format(bound))
            if name == "pattern":
                bound = re.compile(bound).search
            tests.append((source, Decimal(str(bound)) if kind.kind is Decimal else bound))
    return Constraint(bounds, tuple(tests), f"{kind.name} {' and '.join(texts)}") if tests else None


def known_to_msgspec(annotation: Any, *, optional: bool) -> Any:
    """Return an annotation as it stands, or without what it asks where msgspec cannot: of a Decimal, of an Int32."""
    try:
        inspect.type_info(annotation)
    except TypeError:
        plain = _plain(annotation)
        for meta in _metas(annotation):
            annotations = {
                name: annotations for name in _ANNOTATIONS if (annotations := getattr(meta, name)) is not None
            }
            plain = Annotated[plain, msgspec.Meta(**annotations)] if annotations else plain
        return or_(plain, None) if optional else plain
    return annotation


def _fits(name: str, kind: ValueType) -> bool:
    """Return whether values of a type have such a bound."""
    if name in _NUMBERS:
        return kind.calculable and kind.kind in ((int, float) if name == "multiple_of" else (int, float, Decimal))
    return (kind.text and name != "tz") or (name in _LENGTHS and kind.own is None and kind.kind in (bytes, object))


def _metas(annotation: Any) -> Iterator[msgspec.Meta]:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        if any(isinstance(arg, msgspec.Meta) for arg in args) and type(None) in get_args(args[0]):
            raise ValueFault(
                "msgspec.Meta: None cannot have constraints; write tm.Field[Annotated[…, msgspec.Meta(…)] | None]"
            )
        yield from _metas(args[0])
        yield from (arg for arg in args[1:] if isinstance(arg, msgspec.Meta) and arg != INT32_RANGE)
    elif origin is Union or origin is types.UnionType:
        for arg in args:
            yield from _metas(arg)
    elif isinstance(annotation, NewType):
        yield from _metas(annotation.__supertype__)
    elif (means := unfolded(annotation)) is not annotation:
        yield from _metas(means)


def _plain(annotation: Any) -> Any:
    """Return an annotation without what it asks, and without None."""
    annotation = unfolded(annotation)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _plain(args[0])
    if origin is Union or origin is types.UnionType:
        return _plain(next(arg for arg in args if arg is not type(None)))
    return annotation
