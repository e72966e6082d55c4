"""What `merge` and writes by query do to the fields of an entity: checked whole first, then done to one after another.

What is calculated is calculated from the entity as it was: ``a=Product.b, b=Product.a`` swaps two fields.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs

from ..codegen import Names, compile_functions
from ..entities.declaration import check_value, located
from ..entities.entity import key_of
from ..entities.fields import FieldModel
from ..errors import InvalidEntity, did_you_mean, shown
from ..expressions.arithmetic import EXACT, Computed, Number, calculation, kind_of
from ..expressions.python import attribute_source
from ..expressions.tree import Assignment, Attr
from ..values.scalars import SCALARS
from .model import Model
from .rows import unreadable

__all__ = ["Assignments", "assignments"]

MAX_FUNCTIONS = 512


@attrs.frozen(eq=False)
class _Step:
    """What one field becomes."""

    field: FieldModel
    text: str
    """As a user could have written it."""
    value: Callable[[Any], Any]
    """Makes the value from an entity, not checked yet."""


@attrs.frozen(eq=False)
class Assignments:
    """What several fields become."""

    model: Model
    steps: tuple[_Step, ...]

    def __str__(self) -> str:
        return ", ".join([f"{step.field.name}={step.text}" for step in self.steps])

    def apply(self, entity: Any) -> None:
        """Change an entity.

        Raises:
            InvalidEntity: what is calculated for a field cannot be, or cannot be stored; every fault, each with its
                expression.
        """
        values, faults = [], []
        for step in self.steps:
            try:
                values.append((step.field.name, check_value(step.field, step.value(entity))))
            except (ArithmeticError, ValueError, TypeError) as error:
                faults.append(f"{step.field.name} = {step.text}: {_shown(error)}")
        if faults:
            stored = entity._row
            if stored is not None and (fault := self.model.fault_of(stored)) is not None:
                raise unreadable(self.model.name, stored, fault)
            raise InvalidEntity(f"{self.model.name} {key_of(entity)[1:]}", faults)
        for name, value in values:
            setattr(entity, name, value)


def _shown(error: Exception) -> str:
    if isinstance(error, ZeroDivisionError) or "DivisionByZero" in str(error):
        return "a division by zero"
    if isinstance(error, ValueError):
        return str(error)
    return f"it cannot be calculated ({type(error).__name__})"


def assignments(model: Model, verb: str, given: Sequence[Assignment[Any]], values: Mapping[str, Any]) -> Assignments:
    """Check what is to be assigned, whatever the entities are.

    Args:
        model: of the entities.
        verb: for the message.
        given: such as ``Product.price.set(Product.price * 2)``.
        values: the same by name.

    Raises:
        InvalidEntity: with everything that is wrong.
    """
    declaration = model.declaration
    known = [field.name for field in declaration.fields]
    faults: list[str] = []
    steps: dict[str, _Step] = {}
    wanted: list[tuple[str, Any, bool]] = []
    for one in given:
        if not _is_assignment(one):
            faults.append(f"{model.name}.field.set(…) or .add(…) is needed, not {shown(one)}")
        elif not issubclass(model.cls, one.attr.owner) or one.attr.path or one.attr.part:
            faults.append(f"{one.attr!r} is not a field of {model.name}")
        else:
            wanted.append((one.attr.name, one.value, one.adds))
    for name, value, adds in [*wanted, *((name, value, False) for name, value in values.items())]:
        if name not in known:
            faults.append(f'no field "{name}" (fields: {", ".join(known)}){did_you_mean(name, known)}')
        elif name in declaration.key_fields:
            faults.append(f"{name}: a key field cannot be assigned; store.move(entity, new_key) gives another key")
        elif name in steps:
            faults.append(f"{name}: it is assigned twice")
        else:
            try:
                steps[name] = _step(model, declaration.field(name), value, adds=adds)
            except ValueError as error:
                faults.append(located(name, error))
    if not faults and not steps:
        faults.append(f"nothing to change; give fields, as in name=… or {model.name}.name.set(…)")
    if faults:
        raise InvalidEntity(f"{verb} of {model.name}", faults)
    return Assignments(model, tuple(steps.values()))


def _is_assignment(value: object) -> bool:
    return isinstance(value, Assignment)


def _step(model: Model, field: FieldModel, value: Any, *, adds: bool) -> _Step:
    if isinstance(value, Number):
        for attr in _attributes(value):
            if not issubclass(model.cls, attr.owner):
                raise ValueError(f"{attr!r} is not a field of {model.name}")
        _check_kind(field, value)
        return _Step(field, repr(value), _function(value))
    constant = check_value(field, value)
    if not adds:
        # (Only the stored form of a nested value is the same text in every process.)
        text = field.type.store(constant) if field.type.kind is object and constant is not None else repr(constant)
        return _Step(field, text, lambda entity: constant)

    def add(entity: Any) -> Any:
        held = getattr(entity, field.name)
        # Without rounding, whatever the caller's context is: what the field cannot hold is refused.
        return constant if held is None else EXACT.add(held, constant) if isinstance(held, Decimal) else held + constant

    return _Step(field, f"{model.name}.{field.name} + {constant!r}", add)


def _check_kind(field: FieldModel, value: Number[Any, Any]) -> None:
    """Raise ValueError if the values of an expression are of another type than the field."""
    source = value.type if isinstance(value, Attr) else SCALARS[kind_of(value)]
    if not field.type.takes(source):
        raise ValueError(f"{shown(value)} is {source.name}, but the field is {field.type.name}")


def _attributes(value: Any) -> list[Attr[Any, Any]]:
    if isinstance(value, Computed):
        return [*_attributes(value.left), *_attributes(value.right)]
    return [value] if isinstance(value, Attr) else []


# ---------------------------------------------------------------------------------------------- generated functions

_functions: dict[Hashable, Callable[[Any, Sequence[Any]], Any]] = {}


def _function(value: Number[Any, Any]) -> Callable[[Any], Any]:
    """Return a function that calculates an expression for an entity; made once for all that differ in constants only."""
    constants: list[Any] = []
    form = _form(value, constants)
    function = _functions.get(form)
    if function is None:
        if len(_functions) >= MAX_FUNCTIONS:
            _functions.clear()
        function = _functions[form] = _compiled(value)
    calculate = function
    return lambda entity: calculate(entity, constants)


def _form(value: Any, constants: list[Any]) -> Hashable:
    if isinstance(value, Computed):
        kinds = kind_of(value.left), kind_of(value.right)
        return value.op, kinds, _form(value.left, constants), _form(value.right, constants)
    if isinstance(value, Attr):
        return value.source
    constants.append(value)
    return None


def _compiled(value: Number[Any, Any]) -> Callable[[Any, Sequence[Any]], Any]:
    names = Names()
    lines = ["def calculated(e, c):"]
    constants = 0

    def lower(one: Any) -> str:
        """Add the lines that calculate a part, and return the source of its value."""
        nonlocal constants
        if isinstance(one, Computed):
            left, right = lower(one.left), lower(one.right)
            step = calculation(one.op, one.left, one.right)
            assert step is not None
            call = f"{names.name('operation', step[1])}({left}, {right})"
            missing = [f"{part} is None" for part in (left, right) if part[0] == "x"]
            source = f"None if {' or '.join(missing)} else {call}" if missing else call
        elif isinstance(one, Attr):
            source = attribute_source(one, f"e.{one.name}", names)
        else:
            constants += 1
            return f"c[{constants - 1}]"
        variable = f"x{len(lines)}"
        lines.append(f"    {variable} = {source}")
        return variable

    lines.append(f"    return {lower(value)}")
    return compile_functions(repr(value), "\n".join(lines) + "\n", names)["calculated"]
