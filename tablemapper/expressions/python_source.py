"""Predicates, attributes and calculations as Python source: what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..codegen import Names
from ..errors import InvalidQuery, safe_repr
from ..values.extra import TEXT
from .arithmetic import Computed, Number, calculation
from .tree import And, Attr, Compare, Contains, In, IsNull, Not, Or, Parameter, Predicate, SameText, StartsWith


def walk(value: Any, path: tuple[str, ...]) -> Any:
    """Return a nested value, or None where something on the way is missing."""
    for name in path:
        if value is None:
            return None
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return value


def attribute_source(attr: Attr[Any, Any], field: str, names: Names) -> str:
    """Return Python source for an attribute's value, ``field`` being the source of its field's value."""
    if attr.path:
        field = f"{names.name('walk', walk)}({field}, {attr.path!r})"
    if attr.part is not None:
        field = attr.part.source(field, names)
    return field


def calculation_source(
    value: Number[Any, Any], field: Callable[[str], str], constant: Callable[[Any], str], names: Names
) -> tuple[list[str], str]:
    """Return statements that calculate an expression, and the variable that then holds it; None if a value is missing.

    Args:
        value: what to lower; an attribute is one as well.
        field: gives the source of a field's value, None where it is missing, by the field's name.
        constant: gives the source of a constant; it is called once for each, from the left to the right.
        names: gets the operations.
    """
    lines: list[str] = []

    def lower(term: Any) -> str:
        match term:
            case Computed(op=op, left=left, right=right):
                operands = [lower(left), lower(right)]
                step = calculation(op, left, right)
                assert step is not None
                missing = [f"{part} is None" for part in operands if part in variables]
                source = f"{names.name('operation', step[1])}({', '.join(operands)})"
                if missing:
                    source = f"None if {' or '.join(missing)} else {source}"
            case Attr():
                source = attribute_source(term, field(term.name), names)
            case _:
                return constant(term)
        variables.add(variable := f"x{len(lines)}")
        lines.append(f"{variable} = {source}")
        return variable

    variables: set[str] = set()
    result = lower(value)
    return lines, result


def alike(a: Any, b: Any) -> bool:
    """Return whether two values of any type are of types that compare."""
    return a is not None and b is not None and _family(a) is _family(b)


def _family(value: Any) -> Any:
    kind = value.__class__
    exact = _FAMILIES.get(kind)
    return exact or next((family for base, family in _FAMILIES.items() if isinstance(value, base)), kind)


_FAMILIES: dict[type, type] = {bool: bool, int: float, float: float}


def python_source(predicate: Predicate[Any], field: Callable[[str], str], names: Names) -> str:
    """Return Python source that is true where the predicate holds.

    Args:
        field: gives the source of a field's value, None where it is missing, by the field's name.
        names: gets the constants. The source of a parameter is ``v[number]``.
    """

    def value(attr: Attr[Any, Any]) -> str:
        return scalar(attr, attribute_source(attr, field(attr.name), names))

    def constant_source(attr: Attr[Any, Any], constant: Any) -> str:
        return scalar(
            attr, f"v[{constant.number}]" if constant.__class__ is Parameter else names.name("value", constant)
        )

    def scalar(attr: Attr[Any, Any], source: str) -> str:
        """Return source of the scalar that a value is stored as: a class of a user need not know its order."""
        own_type = attr.type.own
        return source if own_type is None else f"{names.name('scalar', own_type.plain)}({source})"

    def is_present(attr: Attr[Any, Any]) -> str:
        # An undeclared property may hold a number where a text is looked for.
        return f"isinstance(a := {value(attr)}, str)" if attr.type is TEXT else f"(a := {value(attr)}) is not None"

    def lower(predicate: Predicate[Any]) -> str:
        match predicate:
            case And(parts=parts):
                return f"({' and '.join(map(lower, parts))})" if parts else "True"
            case Or(parts=parts):
                return f"({' or '.join(map(lower, parts))})" if parts else "False"
            case Not(part=part):
                return f"(not {lower(part)})"
            case Compare(attr=attr, op=op, value=right_side) if attr.type.dynamic or (
                isinstance(right_side, Attr) and right_side.type.dynamic
            ):
                right = value(right_side) if isinstance(right_side, Attr) else constant_source(attr, right_side)
                return f"({names.name('alike', alike)}(a := {value(attr)}, b := {right}) and a {op} b)"
            case Compare(attr=attr, op=op, value=Attr() as right_side):
                return f"((a := {value(attr)}) is not None and (b := {value(right_side)}) is not None and a {op} b)"
            case Compare(attr=attr, op=op, value=constant):
                return f"((a := {value(attr)}) is not None and a {op} {constant_source(attr, constant)})"
            case In(attr=attr, values=values):
                members = f"({''.join(f'{constant_source(attr, item)}, ' for item in values)})"
                if attr.type.dynamic:
                    same = names.name("alike", alike)
                    return f"((a := {value(attr)}) is not None and any([{same}(a, b) and a == b for b in {members}]))"
                return f"((a := {value(attr)}) is not None and a in {members})"
            case IsNull(attr=attr):
                return f"({value(attr)} is None)"
            case StartsWith(attr=attr, text=text):
                if attr.type.hierarchy:
                    return f"((a := {value(attr)}) is not None and a[:len({constant_source(attr, text)})] == {constant_source(attr, text)})"
                return f"({is_present(attr)} and a.startswith({constant_source(attr, text)}))"
            case Contains(attr=attr, value=constant) if attr.type.element is None:
                return f"({is_present(attr)} and {constant_source(attr, constant)} in a)"
            case Contains(attr=attr, value=constant):
                return f"((a := {value(attr)}) is not None and {constant_source(attr, constant)} in a)"
            case SameText(attr=attr, value=constant):
                same = names.name("same", predicate.holds)
                return f"((a := {value(attr)}) is not None and {same}(a, {constant_source(attr, constant)}))"
        raise InvalidQuery(f"expected a condition, got {safe_repr(predicate)}")

    return lower(predicate)
