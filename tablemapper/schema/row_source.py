"""Source that takes out of rows what is maintained from them: values, keys, groups, and what slots measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NoReturn

from ..codegen import Names, compile_functions
from ..errors import InvalidEntity, TableMapperError
from ..expressions.arithmetic import Computed, calculation_fault
from ..expressions.python_source import attribute_source, calculation_source, python_source
from ..expressions.sortable import sortable_source
from ..expressions.tree import Attr, ElementAttr, Predicate
from ..keys.composite_times import decode_source
from ..keys.template import Template
from ..keys.times import plain_cut
from .aggregate_model import AggregateModel
from .model import Model
from .rows import DAMAGE, Row, load_source, unreadable
from .slots import MeasureState

MAX_FAN_OUT = 1000  # index rows an entity may have in one index


class RowFields:
    """The statements of generated functions that take fields of an entity out of ``row``."""

    def __init__(self, model: Model, names: Names) -> None:
        self._model = model
        self._names = names

    def text(self, name: str, cut: int = 0) -> str | None:
        """Return source for the plain key text of a field, if that stands somewhere already; None if it does not.

        Args:
            cut: how many characters of the text are wanted; 0 for all.
        """
        model = self._model
        if (at := model.position.get(name)) is not None:
            source = f"row[{at}][:{cut}]" if cut else f"row[{at}]"
            return source if model.columns[at - 3].type.key_text else None
        first, second = model.declaration.templates
        return first.text_source(name, "row[0]", cut) or second.text_source(name, "row[1]", cut)

    def values(self, fields: Iterable[str]) -> Iterator[str]:
        """Yield statements that take fields as Python values, each into ``f_`` and its name."""
        model, names = self._model, self._names
        fields = sorted(set(fields))
        if in_key := {name: f"f_{name}" for name in fields if name not in model.position}:
            yield "t0 = row[0]; t1 = row[1]"
            yield from decode_source(model.declaration.templates, ("t0", "t1"), in_key, names)
        for name in fields:
            if name in model.position:
                variable = f"f_{name}"
                yield f"{variable} = row[{model.position[name]}]"
                load = load_source(model.declaration.field(name), variable, names)
                if load != variable:
                    yield f"{variable} = {load}"

    def optional(self, name: str) -> bool:
        return name in self._model.position and self._model.optional(name)

    def keys(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of some fields that only the key holds."""
        return tuple(sorted([name for name in names if name not in self._model.position]))

    def places(self, fields: Iterable[str]) -> tuple[int, ...]:
        """Return where a row has fields, without those that the key holds, which never change."""
        position = self._model.position
        return tuple(sorted({position[name] for name in fields if name in position}))


def row_loop(
    label: str, head: str, prologue: list[str], body: list[str], result: str, names: Names
) -> Callable[..., Any]:
    """Compile a function that does something with each of the rows of some entities."""
    names.update(
        ours=TableMapperError,
        DAMAGE=DAMAGE,
        unreadable=unreadable,
    )
    lines = [
        f"def {head}:",
        *[f"    {line}" for line in prologue],
        "    row = None",
        "    try:",
        "        for row in rows:",
        *[f"            {line}" for line in body],
        "    except ours: raise",
        f"    except DAMAGE as error: raise unreadable({label!r}, row, error) from error",
        f"    return {result}",
    ]
    return compile_functions(label, "\n".join(lines), names)[head.partition("(")[0]]


def key_lines(
    variable: str,
    template: Template,
    limit: int,
    subject: str,
    sources: dict[str, str],
    texts: dict[str, str],
    names: Names,
) -> Iterator[str]:
    """Yield statements for the key that a template makes."""
    yield f"{variable} = {template.encode_source(sources, names, texts)}"
    if template.width is None or template.width > limit // 2:
        yield f"if len({variable}) > {limit // 2}: check_key({variable}, limit={limit}, what={subject!r})"


def where_names(where: Predicate[Any] | None) -> set[str]:
    return set() if where is None else {attr.name for attr in where.attributes()}


def too_many(label: str, count: int) -> None:
    raise InvalidEntity(
        label,
        [f"{count} elements would need a row each, but an entity may have at most {MAX_FAN_OUT} rows in an index"],
    )


def indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class GroupSource:
    """One field that an aggregate groups by: how its value, or at once its key text, is had from an entity's row."""

    def __init__(
        self,
        fields: RowFields,
        name: str,
        grouped: Attr[Any, Any] | ElementAttr[Any, Any],
        templates: tuple[Template, Template],
    ) -> None:
        self.name = name
        self.elements: bool = isinstance(grouped, ElementAttr)
        attr = grouped.list if isinstance(grouped, ElementAttr) else grouped
        self.optional: bool = self.elements or bool(attr.path) or fields.optional(attr.name)
        self._attr = attr
        is_whole = attr.part is None or attr.part.kind is not str  # else it is cut to a value of its own
        cut = 0 if attr.part is None else plain_cut(attr.time_kind, attr.part.plain_format)
        text = None
        if (
            not self.elements
            and not attr.path
            and (cut or attr.part is None)
            and (not is_whole or all(template.takes_text(name) for template in templates))
        ):
            text = fields.text(attr.name, cut)
        self.is_text: bool = is_whole and text is not None
        self.needs: set[Any | str] | set[str] = {attr.name} if text is None else set[str]()
        self._text = text
        if text is not None and cut and self.optional:
            self._text = f"(None if {fields.text(attr.name)} is None else {text})"

    def source(self, names: Names) -> str:
        return self._text or attribute_source(self._attr, f"f_{self._attr.name}", names)


def measured_fields(aggregate: AggregateModel) -> set[str]:
    """Return the fields that must be read as values: those of measures and of conditions."""
    conditions = [aggregate.where, *(slot.where for slot in aggregate.slots)]
    measured = {attr.name for slot in aggregate.slots if slot.attr is not None for attr in slot.attr.attributes()}
    return measured.union(*map(where_names, conditions))


def slot_lines(fields: RowFields, model: Model, target: Model, at: int, names: Names) -> list[str]:
    """Return statements that add to ``delta`` what an entity has for the slot of a number."""
    assert target.aggregate is not None
    slot, attr = target.aggregate.slots[at], target.aggregate.slots[at].attr
    if attr is None:
        lines = target.aggregate.add_source(at, "delta", "1", names)
    else:
        value, lines = _value_lines(model, target, at, attr, names)
        add, addend = [], value
        if slot.ordered and (source := sortable_source(attr.type, value, names)) != value:
            add, addend = [f"s{at} = {source}"], f"s{at}"
        add += target.aggregate.add_source(at, "delta", addend, names)
        can_lack = any(attribute.path or fields.optional(attribute.name) for attribute in attr.attributes())
        lines += [f"if {value} is not None:", *indented(add)] if can_lack else add
    if slot.where is None:
        return lines
    return [f"if {python_source(slot.where, lambda name: f'f_{name}', names)}:", *indented(lines)]


def _value_lines(
    model: Model, target: Model, at: int, attr: Attr[Any, Any] | Computed[Any, Any], names: Names
) -> tuple[str, list[str]]:
    """Return the variable of what a slot is of, and the statements that put it there."""
    assert target.aggregate is not None
    variable = f"s{at}"
    if isinstance(attr, Computed):
        subject = f"{target.name}: {attr.label}"
        return variable, _calculated(variable, target.aggregate.slots[at], model.name, subject, names)
    value = attribute_source(attr, f"f_{attr.name}", names)
    return (value, []) if value.isidentifier() else (variable, [f"{variable} = {value}"])


def _calculated(variable: str, slot: MeasureState, name: str, subject: str, names: Names) -> list[str]:
    """Return statements that put what a slot is of into a variable, None where a value is missing."""
    assert isinstance(slot.attr, Computed)
    constants = partial(names.name, "constant")
    lines, result = calculation_source(slot.attr, lambda field: f"f_{field}", constants, names)
    check, refuse = names.name("check", slot.check), names.name("refuse", partial(_refuse, name, subject))
    return [
        "try:",
        *[f"    {line}" for line in lines],
        f"    {variable} = None if {result} is None else {check}({result})",
        f"except (ArithmeticError, ValueError, TypeError) as error: {refuse}(row, error)",
    ]


def _refuse(name: str, subject: str, row: Row, error: Exception) -> NoReturn:
    raise InvalidEntity(f"{name} {row[:2]}", [f"{subject}: {calculation_fault(error)}"]) from error
