"""Type aliases, with parameters and without: what they stand for; and the annotations of a class."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin


def unfolded(annotation: Any) -> Any:
    """Return the type that an alias stands for, with its arguments; any other annotation as it is.

    Raises:
        ValueError: it lacks an argument, has a parameter that is no type, or stands for something that holds it.
    """
    while _is_alias(alias := get_origin(annotation) or annotation):
        _check_ends(alias, ())
        annotation = filled(alias.__value__, _types_of(alias, get_args(annotation)))
    return annotation


def _is_alias(annotation: Any) -> bool:
    return type(annotation).__name__ == "TypeAliasType"


def _check_ends(annotation: Any, inside: tuple[Any, ...]) -> None:
    """Raise `ValueError` if an alias is found in what it stands for."""
    origin, parts = get_origin(annotation) or annotation, get_args(annotation)
    if _is_alias(origin):
        if origin in inside:
            raise ValueError(
                f"the alias {origin.__name__} holds itself: write dict[str, Any] or list[Any] for any JSON, or an attrs class"
            )
        _check_ends(origin.__value__, (*inside, origin))
    for part in parts:
        _check_ends(part, inside)


def _types_of(alias: Any, arguments: tuple[Any, ...]) -> Mapping[Any, Any]:
    """Return the parameters of an alias, each with its type."""
    types: dict[Any, Any] = {}
    parameters: tuple[Any, ...] = alias.__type_params__
    for at, parameter in enumerate(parameters):
        has_default = hasattr(parameter, "has_default") and parameter.has_default()
        if not isinstance(parameter, TypeVar):
            raise ValueError(
                f"the alias {alias.__name__} has the parameter {parameter}, which is no type; write what it means"
            )
        if at >= len(arguments) and not has_default:
            names = ", ".join([type_parameter.__name__ for type_parameter in parameters])
            raise ValueError(
                f"the alias {alias.__name__}[{names}] lacks a type: write {alias.__name__}[str], for example"
            )
        default: Any = getattr(parameter, "__default__", None)
        types[parameter] = arguments[at] if at < len(arguments) else default
    return types


def filled(annotation: Any, types: Mapping[Any, Any]) -> Any:
    """Return an annotation with types in place of parameters."""
    if isinstance(annotation, TypeVar):
        return types.get(annotation, annotation)
    parameters: tuple[Any, ...] = () if isinstance(annotation, type) else getattr(annotation, "__parameters__", ())
    generic: Any = annotation
    return (
        generic[tuple([types.get(type_parameter, type_parameter) for type_parameter in parameters])]
        if parameters
        else annotation
    )


def annotations_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the annotations in a class body, or in the ``__dict__`` of a class: types, or their text."""
    if sys.version_info >= (3, 14) and "__annotations__" not in body:
        import annotationlib

        annotate = annotationlib.get_annotate_from_class_namespace(body)
        if annotate is None:
            return {}
        return annotationlib.call_annotate_function(annotate, annotationlib.Format.FORWARDREF)
    annotations: Mapping[str, Any] = body.get("__annotations__", {})
    return annotations
