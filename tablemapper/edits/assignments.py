"""Assignments of `merge` and writes by query to fields, and to parts of them, all checked before the first change.

What is calculated is calculated from the entity as it was: ``a=Product.b, b=Product.a`` swaps two fields.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import count
from operator import eq
from typing import Any, Literal, TypeAlias

import attrs

from ..codegen import Names, compile_functions
from ..entities.declaration import check_type, check_value, checked_on_write, located, read_only_fault
from ..entities.entity import key_of
from ..entities.fields import FieldModel
from ..errors import CorruptStore, EntityTooLarge, InvalidEntity, did_you_mean, safe_repr
from ..expressions.arithmetic import EXACT, Computed, Number, calculation_fault, kind_of
from ..expressions.python_source import calculation_source
from ..expressions.tree import Assignment, Attr, ElementOfList
from ..limits import check_value as size_fault
from ..owner_cache import cached_on_owner
from ..pieces import is_full
from ..schema.maintenance import sound_test
from ..schema.model import Model, has_functions
from ..schema.rows import DAMAGE, FIRST, SAFE_LENGTH, Row, unreadable
from ..values import parts
from ..values.scalars import SCALARS, ValueFault, ValueType

MAX_FUNCTIONS = 512
_Source: TypeAlias = Literal["constant", "sum", "call"]
"""Where a value in a row comes from: a constant, the value before and a constant, a function without arguments."""


@attrs.frozen(eq=False)
class _Step:
    """The new value of one field, or of a part of it."""

    field: FieldModel
    path: parts.Path
    """Where the part stands in the field; empty for all of it."""
    label: str
    kind: ValueType
    """Of the field, or of the part."""
    constant: Any
    """The value, checked; `MISSING` for none."""
    formula: str = ""
    """What is calculated or removed, as a user could have written it."""
    calculate: Callable[[Any], Any] | None = None
    """Makes the value from an entity, not checked yet; None for a constant."""
    alter: Callable[[Any], Any] | None = None
    """Makes the value from what it was, if it is made of that."""
    increment: Any = None
    """What is added to the value, if no more is calculated."""

    @property
    def is_constant(self) -> bool:
        """Whether it gives a whole field a value, whatever the entity is."""
        return not self.path and self.calculate is None and self.alter is None

    @property
    def text(self) -> str:
        """The value as a user could have written it."""
        return self.formula or _value_text(self.kind, self.constant)

    def __str__(self) -> str:
        return f"{self.label} = {self.text}"


@attrs.frozen(eq=False)
class Assignments:
    """The new values of several fields."""

    model: Model
    steps: tuple[_Step, ...]

    def __str__(self) -> str:
        return ", ".join([f"{step.label}={step.text}" for step in self.steps])

    def at_write(self) -> Assignments:
        """Return these assignments with those of a write: the values of ``on_write=`` now.

        Raises:
            InvalidEntity: one gives what its field cannot hold.
        """
        declaration = self.model.declaration
        fields: list[Any] = [*declaration.set_on_write]
        if not fields:
            return self
        values = [checked_on_write(declaration, f, f.on_write()) for f in fields]
        steps = [_Step(f, (), f.name, f.type, value) for f, value in zip(fields, values, strict=True)]
        return attrs.evolve(self, steps=(*self.steps, *steps))

    def constants(self) -> dict[str, Any] | None:
        """Return what is stored in whole fields; None if something is calculated, removed, or a rule looks at several fields."""
        if hasattr(self.model.cls, "__attrs_post_init__"):
            return None
        for step in self.steps:
            if step.constant is None or not step.is_constant or step.field.type.undeclared or step.field.large:
                return None
        values = {step.field.name: step.field.type.store(step.constant) for step in self.steps}
        # (What is too long is refused with the key of the entity, which is read then; what is full might have pieces behind.)
        return None if any(map(is_full, values.values())) else values

    def of_rows(self) -> Callable[[Row], Row | None] | None:
        """Return what makes the row of an entity that of the changed one, or None if that needs a look at the entity.

        There is none if more is asked than constants, and numbers to add, in whole fields.
        """
        if has_functions(self.model):
            return None
        shape: list[tuple[str, _Source]] = []
        constants: list[Any] = []
        texts = 0
        for step in self.steps:
            f, adds = step.field, not step.is_constant
            if f.type.undeclared or (adds and (step.path or f.type.kind not in (int, float) or step.increment is None)):
                return None
            constant = step.increment if adds or step.constant is None else f.type.store(step.constant)
            texts += len(constant) if f.type.spillable and constant is not None and not adds else 0
            constants.append(constant)
            shape.append((f.name, "sum" if adds else "constant"))
        for f in self.model.declaration.set_on_write:
            if f.type.spillable:  # (its length is not known before)
                return None
            constants.append(partial(_stored_on_write, self.model, f))
            shape.append((f.name, "call"))
        change = _row_change(self.model, tuple(shape), is_bounded=texts > 0)
        return partial(change, (*constants, SAFE_LENGTH - 4 * texts))

    def applied(self, row: Row) -> Row:
        """Return a stored row as it becomes. Of a damaged entity constants can be set: what stays damaged stays as it is.

        Raises:
            CorruptStore: something is calculated, and the entity cannot be read.
            InvalidEntity: see `apply`.
        """
        model = self.model
        try:
            entity = model.build_one(row)
        except CorruptStore:
            mended = self._mended(row)
            reads_nothing = all(step.is_constant for step in self.steps)
            if reads_nothing and model.fault_of(mended) is not None:
                return mended[: FIRST + len(model.columns)]
            entity = model.build_one(mended)
        self.apply(entity)
        return model.to_row(entity)

    def _mended(self, row: Row) -> Row:
        """Return a stored row with the constants that whole fields become, which may take the place of damage."""
        values = list(row)
        for step in self.steps:
            if step.is_constant:
                constant, at = step.constant, self.model.position[step.field.name]
                stored = None if constant is None else step.kind.store(constant)
                if step.field.large is False and stored != row[at] and (fault := size_fault(step.field.name, stored)):
                    raise EntityTooLarge(f"{self.model.name} {row[:2]}", [fault])
                values[at] = stored
        return tuple(values)

    def apply(self, entity: Any) -> None:
        """Change an entity.

        Raises:
            InvalidEntity: what is calculated for a field cannot be, or cannot be stored; every fault, each with its
                expression.
        """
        values: dict[str, Any] = {}
        faults = []
        for step in self.steps:
            name, calculate, alter = step.field.name, step.calculate, step.alter
            if calculate is None and alter is None and not step.path:
                values[name] = step.constant
                continue
            try:
                value = step.constant if calculate is None else calculate(entity)
                if alter is not None or step.path:
                    current = values[name] if name in values else getattr(entity, name)
                    value = parts.altered(step.field.type, current, step.path, alter or partial(_instead, value))
                values[name] = check_value(step.field, value)
            except parts.NoElement as error:
                faults.append(located(name, error))
            except (ArithmeticError, ValueError, TypeError) as error:
                faults.append(f"{step}: {calculation_fault(error)}")
        if faults:
            row = entity._row
            if row is not None and (fault := self.model.fault_of(row)) is not None:
                raise unreadable(self.model.name, row, fault)
            raise InvalidEntity(f"{self.model.name} {key_of(entity)[1:]}", faults)
        for name, value in values.items():
            if self.model.assignable[name] is None:  # (nobody but a write sets it)
                self.model.cls.__dict__[name].__set__(entity, value)
            else:
                setattr(entity, name, value)


def assignments(model: Model, verb: str, assigned: Sequence[Assignment[Any]], values: Mapping[str, Any]) -> Assignments:
    """Check what is to be assigned, whatever the entities are.

    Args:
        model: of the entities.
        verb: for the message.
        assigned: such as ``Product.price.set(Product.price * 2)``.
        values: the same by name.

    Raises:
        InvalidEntity: with everything that is wrong.
    """
    fields = model.assignable
    faults: list[str] = []
    steps: list[_Step] = []
    changes: list[tuple[Attr[Any, Any], Any, str]] = []
    for assignment in assigned:
        if not isinstance(assignment, Assignment):
            faults.append(f"expected {model.name}.field.set(…), .add(…) or .remove(), got {safe_repr(assignment)}")
        elif (
            not issubclass(model.cls, assignment.attr.owner)
            or assignment.attr.part
            or assignment.attr.name not in fields
        ):
            faults.append(f"{assignment.attr!r} is not a field of {model.name}")
        else:
            changes.append((assignment.attr, assignment.value, assignment.action))
    for name, value in values.items():
        if name in fields:
            changes.append((getattr(model.cls, name), value, "set"))
        elif name == "returning":
            faults.append("returning= is for merge; to have the entities, query again")
        else:
            faults.append(f'no field "{name}" (fields: {", ".join(fields)}){did_you_mean(name, fields)}')
    for attr, value, action in changes:
        field, path = fields[attr.name], parts.list_path(attr.path) if attr.path else ()
        if field is None:
            fixed = model.declaration.field(attr.name)
            in_key = f"{fixed.name}: a key field cannot be assigned; store.move(entity, new_key) gives another key"
            faults.append(read_only_fault(fixed) if fixed.read_only else in_key)
            continue
        twin_paths = [parts.list_path(step.path) for step in steps if step.field is field]
        for twin in twin_paths:
            if all(map(eq, twin, path)):  # (they are one, or one is a part of the other)
                also = "" if twin == path else f", as {field.name}{parts.path_text(twin)} is, too"
                faults.append(f"{field.name}{parts.path_text(path)}: it is assigned twice{also}")
                break
        else:
            label = field.name + parts.path_text(attr.path) if attr.path else field.name
            try:
                steps.append(_step(model, field, label, attr, value, action))
            except ValueFault as error:
                faults.append(located(label, error))
    if not faults and not steps:
        faults.append(f"nothing to change; give fields, as in name=… or {model.name}.name.set(…)")
    if faults:
        raise InvalidEntity(f"{verb} of {model.name}", faults)
    return Assignments(model, tuple(steps))


def _value_text(kind: ValueType, value: Any) -> str:
    # (Only the stored form of a nested value is the same text in every process.)
    return kind.store(value) if kind.kind is object and value is not None and not kind.dynamic else repr(value)


def _instead(value: Any, _: Any) -> Any:
    return value


def _step(model: Model, field: FieldModel, label: str, attr: Attr[Any, Any], value: Any, action: str) -> _Step:
    """Return what a field or a part of it becomes; raise `ValueFault` if it cannot."""
    kind = attr.type
    if action == "remove":
        if attr.path:
            parts.check_removable(field.type, attr.path)
        elif not field.optional:
            raise ValueFault(field.removal_fault)
        return _Step(field, attr.path, label, kind, parts.MISSING if attr.path else None, "removed")
    if action in ("extend", "discard"):
        alter, text = _elements(kind, value, action)
        return _Step(field, attr.path, label, kind, None, f"{model.name}.{label}.{action}([{text}])", None, alter)
    if isinstance(value, Number):
        for attribute in value.attributes():
            if isinstance(attribute, ElementOfList):
                raise ValueFault(f"{attribute!r} is an element of a list, and a calculation reads whole fields")
            if not issubclass(model.cls, attribute.owner):
                raise ValueFault(f"{attribute!r} is not a field of {model.name}")
        _check_kind(kind, value)
        return _Step(field, attr.path, label, kind, None, repr(value), _function(value))
    if attr.path:  # (Whether a part may be None is seen when the whole is checked.)
        constant: Any = None if value is None else kind.check(value)
    else:  # What is asked of the field is asked of the sum, not of what is added.
        constant = (check_type if action == "add" else check_value)(field, value)
    if kind.dynamic:  # (it says its own type)
        constant = value
    if action != "add":
        return _Step(field, attr.path, label, kind, constant)

    def add(current: Any) -> Any:
        if parts.is_no_value(current):
            return constant
        if kind.dynamic and (isinstance(current, bool) or not isinstance(current, type(constant))):
            raise ValueFault(
                f"{safe_repr(constant)} cannot be added to the {type(current).__name__} {safe_repr(current)}"
            )
        # Without rounding, whatever the caller's context is: what the field cannot hold is refused.
        total = EXACT.add(current, constant) if isinstance(current, Decimal) else current + constant
        return type(current)(total) if kind.dynamic else total  # (an Int32 stays one)

    return _Step(field, attr.path, label, kind, None, f"{model.name}.{label} + {constant!r}", None, add, constant)


def _elements(kind: ValueType, values: Sequence[Any], action: str) -> tuple[Callable[[Any], Any], str]:
    """Return what adds elements to a list or a set, or takes them out, and the elements as text."""
    item = parts.item_type(kind)
    items = [None if element is None else item.check(element) for element in values]
    text = ", ".join([_value_text(item, element) for element in items])
    return (parts.extended if action == "extend" else parts.discarded)(kind, items), text


def _check_kind(kind: ValueType, value: Number[Any, Any]) -> None:
    """Raise ValueError if the values of an expression are of another type than what they are assigned to."""
    source = value.type if isinstance(value, Attr) else SCALARS[kind_of(value)]
    if not kind.takes(source) and not kind.dynamic:
        raise ValueFault(f"{safe_repr(value)} is {source.name}, but the field is {kind.name}")


# ---------------------------------------------------------------------------------------------- generated functions


def _stored_on_write(model: Model, f: FieldModel) -> Any:
    on_write: Any = f.on_write
    value = checked_on_write(model.declaration, f, on_write())
    return None if value is None else f.type.store(value)


@cached_on_owner
def _row_change(
    model: Model, shape: tuple[tuple[str, _Source], ...], *, is_bounded: bool
) -> Callable[[Sequence[Any], Row], Row | None]:
    """Return the function that makes of a row that of the changed entity, or None if that needs a look at the entity.

    It takes the constants, the greatest size of a row behind them, and the row.

    Args:
        shape: by the name of each field, what becomes of its constant.
        is_bounded: whether a row may become too large.
    """
    places = tuple(range(FIRST, FIRST + len(model.columns)))
    names = Names(DAMAGE=DAMAGE, check=check_value, most=model.most, sound=sound_test(model, places))
    values = ["row[0]", "row[1]", "0", *[f"row[{at}]" for at in places]]
    for number, (name, source_kind) in enumerate(shape):
        at = model.position[name]
        added = f"c[{number}] if row[{at}] is None else row[{at}] + c[{number}]"
        field = names.name("field", model.declaration.field(name))
        texts = {"constant": f"c[{number}]", "sum": f"check({field}, {added})", "call": f"c[{number}]()"}
        values[at] = texts[source_kind]
    source = [
        "def changed(c, row):",
        "    try:",
        f"        if not sound(row){' or most(row) > c[-1]' if is_bounded else ''}: return None",
        f"        return ({', '.join(values)})",
        "    except DAMAGE: return None",
    ]
    return compile_functions(f"{model.name} changed", "\n".join(source), names)["changed"]


_functions: dict[Hashable, Callable[[Any, Sequence[Any]], Any]] = {}


def _function(value: Number[Any, Any]) -> Callable[[Any], Any]:
    """Return a function that calculates an expression for an entity; one for all that differ in constants only."""
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
    names, numbers = Names(), count()
    lines, result = calculation_source(value, lambda name: f"e.{name}", lambda _: f"c[{next(numbers)}]", names)
    source = "\n".join(["def calculated(e, c):", *[f"    {line}" for line in lines], f"    return {result}\n"])
    return compile_functions(repr(value), source, names)["calculated"]
