"""The hooks of users' own classes, on a converter of cattrs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NewType, get_args

import msgspec
from msgspec import inspect

from .scalars import ValueFault

if TYPE_CHECKING:
    import cattrs

HOOK_FAULTS = (
    msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError,
    RecursionError, ExceptionGroup,
)  # fmt: skip
"""What a hook raises for a wrong value; what the handler of a signal raises meanwhile is not to be taken for one."""
_converter: cattrs.Converter | None = None
_hooked_types: list[Any] = []
"""What hooks were registered for; by one that is a decorator also the function."""


def converter() -> cattrs.Converter:
    """Return the cattrs converter. Its hooks define how your own classes are stored.

    Register both before a field uses the class::

        converter = tablemapper.converter()
        converter.register_unstructure_hook(Money, lambda it: [str(it.amount), it.currency])
        converter.register_structure_hook(Money, lambda pair, _: Money(Decimal(pair[0]), pair[1]))

    Attrs classes, dataclasses, Structs, Enums and NewTypes keep their own form, here and nested: hooks for them are refused
    where a field uses them.
    """
    global _converter
    if _converter is None:
        import cattrs

        class Converter(cattrs.Converter):
            """A converter that knows what hooks it was given."""

            def register_structure_hook(self, cl: Any, *hook: Any, **options: Any) -> Any:
                _hooked_types.append(cl)
                return super().register_structure_hook(cl, *hook, **options)

            def register_unstructure_hook(self, cls: Any, *hook: Any, **options: Any) -> Any:
                _hooked_types.append(cls)
                return super().register_unstructure_hook(cls, *hook, **options)

        _converter = Converter()
    return _converter


def unstructured(value: Any) -> Any:
    """Return what the hook of a value's class makes of it; the value itself if it has none."""
    return value if _converter is None else _call_hook(_converter.unstructure, value)


def structured(plain: Any, kind: Any) -> Any:
    """Return what the hook of a class makes of a stored form."""
    return _call_hook(converter().structure, plain, kind)


def _call_hook(hook: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a hook returns; a `ValueFault` where it raises an error of its own."""
    try:
        return hook(*arguments)
    except HOOK_FAULTS:
        raise
    except Exception as error:
        raise ValueFault(f"{type(error).__name__}: {error}") from error


def has_hooks(kind: Any) -> bool:
    """Return whether hooks were registered for a type."""
    return any(kind is hooked for hooked in _hooked_types)


def unused_hooks(annotation: Any) -> Any:
    """Return a type with hooks that would not be used, wherever it stands in an annotation; None if there is none."""
    if has_hooks(annotation) and not _is_custom(annotation):
        return annotation
    return next((unused for part in get_args(annotation) if (unused := unused_hooks(part)) is not None), None)


def _is_custom(annotation: Any) -> bool:
    """Return whether values of a type are stored by hooks."""
    try:
        return isinstance(inspect.type_info(annotation), inspect.CustomType) and not isinstance(annotation, NewType)
    except (TypeError, NameError):
        return False
