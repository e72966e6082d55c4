"""A model as trees: entities, and the rows derived from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from ..entities.declaration import Declaration, declaration_of
from ..entities.entity import Record
from ..entities.key_and_indexes import IndexModel
from ..keys.template import Template

Shape: TypeAlias = Literal["index", "aggregate", "field"]


@attrs.frozen
class Line:
    """An index, an aggregate, or a field of another class that is maintained from this one."""

    shape: Shape
    name: str
    key: str
    """``{shop} / {day}``: partition and row."""
    notes: str
    """What is special: ``unique``, ``+ price``, measures, a state."""
    depth: int = 0
    """1 for an index of an aggregate."""
    table: str = ""
    """Where its rows are; a field has none of its own."""


@attrs.frozen
class Tree:
    """A class of entities, and all that the store maintains from its entities."""

    name: str
    table: str
    fields: int
    key: str
    lines: tuple[Line, ...]

    @property
    def about(self) -> str:
        return f"{self.table} · {self.fields} field{'' if self.fields == 1 else 's'}"


def trees_of(classes: Iterable[type[Record]], states: Mapping[str, str] = {}) -> tuple[Tree, ...]:
    """Return the trees of classes, in their order.

    Args:
        classes: of entities and of aggregates; those of a catalogue, too.
        states: of what is not ready, by label: ``{"Product.by_name": "building"}``.
    """
    declarations = [declaration_of(cls) for cls in classes]
    return tuple([_tree(declaration, declarations, states) for declaration in declarations if declaration.of is None])


def key_text(partition: Template, row: Template) -> str:
    """Return the templates of a key as a picture has them."""
    texts = [
        " ".join(template.text if isinstance(template.text, tuple) else [template.text])
        for template in (partition, row)
    ]
    return " / ".join(filter(None, texts))


def _tree(declaration: Declaration, declarations: Sequence[Declaration], states: Mapping[str, str]) -> Tree:
    lines = [
        *_indexes(declaration, states),
        *_aggregates(declaration, declarations, states),
        *_fields(declaration, declarations),
    ]
    return Tree(
        declaration.name, declaration.table, len(declaration.fields), key_text(*declaration.templates), tuple(lines)
    )


def _indexes(declaration: Declaration, states: Mapping[str, str], depth: int = 0) -> Iterator[Line]:
    for index in declaration.indexes:
        notes = [*_special(index), states.get(f"{declaration.name}.{index.name}", "")]
        yield Line(
            "index",
            index.name,
            key_text(index.partition, index.row),
            ", ".join(filter(None, notes)),
            depth,
            index.table,
        )


def _special(index: IndexModel) -> Iterator[str]:
    if index.unique:
        yield "unique"
    if index.where is not None:
        yield "some"
    if index.fan_out is not None:
        yield "a row for each"
    if index.include_all:
        yield "+ all"
    elif index.include:
        yield f"+ {' + '.join(field.name for field in index.include)}"


def _aggregates(of: Declaration, declarations: Sequence[Declaration], states: Mapping[str, str]) -> Iterator[Line]:
    for aggregate in declarations:
        if aggregate.of is None or aggregate.of.__name__ != of.name:
            continue
        kinds = [field.measure.kind for field in aggregate.fields if field.measure is not None]
        measures = dict.fromkeys(kind.replace("_", " ") for kind in kinds if kind != "group")
        notes = ["some"] * (aggregate.where is not None) + [*measures, *filter(None, [states.get(aggregate.name)])]
        yield Line("aggregate", aggregate.name, key_text(*aggregate.templates), ", ".join(notes), 0, aggregate.table)
        yield from _indexes(aggregate, states, depth=1)


def _fields(of: Declaration, declarations: Sequence[Declaration]) -> Iterator[Line]:
    """Yield the fields of other classes that are maintained from this one."""
    for owner in declarations:
        for field in owner.fields:
            measure: Any = field.measure
            if measure is not None and measure.of is not None and _name(measure.of) == of.name:
                yield Line("field", f"{owner.name}.{field.name}", "", measure.kind.replace("_", " "))


def _name(of: Any) -> str:
    return of if isinstance(of, str) else of.__name__
