"""Keys and indexes, as the rules look at them, and how a better one is declared."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import attrs

from ..datetime_types import Builtin
from ..entities.declaration import Declaration
from ..entities.index import Index
from ..entities.key import Key
from ..entities.key_and_indexes import IndexModel, compile_index, index_table, key_templates
from ..keys.overlap import disjoint
from ..keys.template import Slot, Template
from ..planning.shards import spreading
from ..values.extra import indexed_as
from ..values.scalars import ValueType
from ..values.type_names import type_name

Text = str | tuple[str, ...]


def is_time(slot: Slot) -> bool:
    """Return whether a slot holds a day or a moment, or a part of one."""
    return not slot.buckets and slot.text.base in (Builtin.date, Builtin.datetime)


@attrs.frozen(eq=False, slots=False)
class KeyOrIndex:
    """The key of a class, or one of its indexes."""

    owner: Declaration
    index: IndexModel | None
    partition: Template
    row: Template
    same_table: tuple[Declaration, ...] = ()
    """The other classes of the table."""

    @property
    def label(self) -> str:
        return f"{self.owner.name}.{'key' if self.index is None else self.index.name}"

    @property
    def is_aggregate(self) -> bool:
        return self.owner.of is not None

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return (*self.partition.slots, *self.row.slots)

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The fields that it is called with."""
        of = [template.fields if self.index is None else template.arguments for template in (self.partition, self.row)]
        return tuple(dict.fromkeys(field for fields in of for field in fields))

    def type_of(self, field: str) -> ValueType:
        """Return the type of a field, dotted where nested, or of the elements of a list."""
        head, _, path = field.partition(".")
        kind = self.owner.field(head).type
        if path:
            kind = indexed_as(kind.nested(tuple(path.split("."))))
        return kind if kind.hierarchy and self.index is None else kind.element or kind

    @property
    def max_partitions(self) -> int | None:
        """The largest possible number of partitions, if that is known from the types."""
        counts = [self._max_values(slot) for slot in self.partition.slots]
        return None if None in counts else prod(filter(None, counts))

    def _max_values(self, slot: Slot) -> int | None:
        if slot.buckets:
            return None
        kind = self.type_of(slot.field)
        return 2 if kind.kind is bool else None if kind.members is None else len(kind.members)

    @cached_property
    def shards(self) -> tuple[str, ...]:
        """The components that spread what is in one partition now: shards of fields of the row.

        Those of an index that is not unique are of the entity's key, which says more.
        """
        is_entity_key = self.index is None or self.index.unique
        slots = (
            self.row.slots if is_entity_key else [slot for template in self.owner.templates for slot in template.slots]
        )
        return spreading(slots or self.partition.slots, self.owner)

    @cached_property
    def grouping(self) -> str | None:
        """The field at the start of the row that several entities seem to have in common, as others tell them apart.

        What comes behind a time only tells apart what was written at once, as a number of its own does.
        """
        names = list(dict.fromkeys(slot.field for slot in self.row.slots))
        if self.index is not None or len(names) < 2:
            return None
        first = self.row.slots[0]
        many = first.text.base in (str, int) and self.type_of(first.field).members is None
        return first.field if many and not first.buckets else None

    # -------------------------------------------------------------------------------------------- a better one

    def with_templates(self, partition: Text, row: Text | None = None) -> KeyOrIndex | None:
        """Return the place with other templates; None if they cannot be, or if it has other arguments then."""
        partition = partition[0] if isinstance(partition, tuple) and len(partition) == 1 else partition
        row = self.row.text if row is None else row
        faults: list[str] = []
        fields = {field.name: field for field in self.owner.fields}
        index = None
        if self.index is None:
            templates = key_templates(Key(partition=partition, row=row), fields, faults)
        else:
            include: Any = "all" if self.index.include_all else tuple([field.name for field in self.index.include])
            candidate: Index[Any] = Index(
                partition=partition, row=row, include=include, unique=self.index.unique, table=self.index.table
            )
            index = compile_index(self.owner.cls, self.index.name, candidate, self.owner.table, fields, faults)
            templates = (None, None) if index is None else (index.partition, index.row)
        partitions, rows = templates
        if faults or partitions is None or rows is None or (self.index is not None and self.index.where is not None):
            return None
        target = KeyOrIndex(self.owner, index, partitions, rows, self.same_table)
        clash = index is None and any(
            disjoint((partitions, rows), sibling.templates) == "overlap" for sibling in self.same_table
        )
        return None if clash or set(target.arguments) != set(self.arguments) else target

    def declaration(self) -> str:
        """Return the line of it in a class body."""
        types = [type_name(self.type_of(field), self.owner.cls) for field in self.arguments]
        typed = "" if None in types or not types else f"[{', '.join(map(str, types))}]"
        options = [f"partition={_text(self.partition.text)}"]
        if self.row.text != "":
            options.append(f"row={_text(self.row.text)}")
        if self.index is None:
            return f"key = tm.Key{typed}({', '.join(options)})"
        if self.index.include_all:
            options.append('include="all"')
        elif self.index.include:
            names = [f'"{field.name}"' for field in self.index.include]
            options.append(f"include=({', '.join(names)}{',' if len(names) == 1 else ''})")
        options += ["unique=True"] * self.index.unique
        if self.index.table != index_table(self.owner.table, self.index.name):
            options.append(f'table="{self.index.table}"')
        return f"{self.index.name} = tm.Index{typed}({', '.join(options)})"


def template_parts(template: Template) -> tuple[str, ...]:
    """Return the components of a template as text."""
    return (template.text,) if isinstance(template.text, str) else template.text


def _text(template: Text) -> str:
    texts = [_quoted(part) for part in ((template,) if isinstance(template, str) else template)]
    return texts[0] if isinstance(template, str) else f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _quoted(text: str) -> str:
    return f'"{text}"' if '"' not in text and "\\" not in text and text.isprintable() else repr(text)
