"""Keys and indexes, as the rules look at them, and how a better one is declared."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from math import prod
from typing import Any

import attrs

from ..datetime_types import Builtin
from ..entities.declaration import Declaration, IndexModel, compile_index, index_table, key_templates
from ..entities.index import Index
from ..entities.key import Key
from ..entities.type_names import type_name
from ..keys.overlap import disjoint
from ..keys.template import Slot, Template
from ..values.extra import indexed_as
from ..values.scalars import ValueType

Text = str | tuple[str, ...]
SHARDS = 16


def is_time(slot: Slot) -> bool:
    """Return whether a slot holds a day or a moment, or a part of one."""
    return not slot.buckets and slot.text.base in (Builtin.date, Builtin.datetime)


def component(field: str, spec: str = f"shard({SHARDS})") -> str:
    """Return a component of a template."""
    return f"{{{field}:{spec}}}" if spec else f"{{{field}}}"


@attrs.frozen(eq=False, slots=False)
class KeyOrIndex:
    """The key of a class, or one of its indexes."""

    made: Declaration
    index: IndexModel | None
    partition: Template
    row: Template
    beside: tuple[Declaration, ...] = ()
    """The other classes of the table."""

    @property
    def label(self) -> str:
        return f"{self.made.name}.{'key' if self.index is None else self.index.name}"

    @property
    def of_groups(self) -> bool:
        return self.made.of is not None

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
        kind = self.made.field(head).type
        if path:
            kind = indexed_as(kind.nested(tuple(path.split("."))))
        return kind if kind.hierarchy else kind.element or kind

    @property
    def texts_of_partition(self) -> int | None:
        """How many partitions there can be at most, if that is known from the types."""
        counts = [self._texts_of(slot) for slot in self.partition.slots]
        return None if None in counts else prod(filter(None, counts))

    def _texts_of(self, slot: Slot) -> int | None:
        if slot.buckets:
            return None
        kind = self.type_of(slot.field)
        return 2 if kind.kind is bool else None if kind.members is None else len(kind.members)

    def spread_by(self) -> str | None:
        """Return the field whose shards spread what is in one partition now; queries name none of it.

        It is the first field of the row; of an index that is not unique, one of the entity's key, which says more.
        """
        if self.index is None or self.index.unique:
            return next((slot.field for slot in self.row.slots), None)
        of_key = [slot for template in self.made.templates for slot in template.slots]
        fit = [slot.field for slot in of_key if slot.text.base.__name__ in ("str", "int", "UUID")]
        return next(iter(fit), None)

    # -------------------------------------------------------------------------------------------- a better one

    def changed(self, partition: Text, row: Text | None = None) -> KeyOrIndex | None:
        """Return the place with other templates; None if they cannot be, or if it has other arguments then."""
        row = self.row.text if row is None else row
        faults: list[str] = []
        fields = {field.name: field for field in self.made.fields}
        index = None
        if self.index is None:
            templates = key_templates(Key(partition=partition, row=row), fields, faults)
        else:
            include: Any = "all" if self.index.include_all else tuple([field.name for field in self.index.include])
            declared: Index[Any] = Index(
                partition=partition, row=row, include=include, unique=self.index.unique, table=self.index.table
            )
            index = compile_index(self.made.cls, self.index.name, declared, self.made.table, fields, faults)
            templates = (None, None) if index is None else (index.partition, index.row)
        partitions, rows = templates
        if faults or partitions is None or rows is None or (self.index is not None and self.index.where is not None):
            return None
        place = KeyOrIndex(self.made, index, partitions, rows, self.beside)
        clash = index is None and any(disjoint((partitions, rows), one.templates) == "overlap" for one in self.beside)
        return None if clash or set(place.arguments) != set(self.arguments) else place

    def declaration(self) -> str:
        """Return the line of it in a class body."""
        types = [type_name(self.type_of(field), self.made.cls) for field in self.arguments]
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
        if self.index.table != index_table(self.made.table, self.index.name):
            options.append(f'table="{self.index.table}"')
        return f"{self.index.name} = tm.Index{typed}({', '.join(options)})"


def parts_of(template: Template) -> tuple[str, ...]:
    """Return the components of a template as text."""
    return (template.text,) if isinstance(template.text, str) else template.text


def _text(template: Text) -> str:
    texts = [_quoted(one) for one in ((template,) if isinstance(template, str) else template)]
    return texts[0] if isinstance(template, str) else f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _quoted(text: str) -> str:
    return f'"{text}"' if '"' not in text and "\\" not in text and text.isprintable() else repr(text)


def first_mend(candidates: Iterable[KeyOrIndex | None]) -> KeyOrIndex | None:
    """Return the first that is possible."""
    return next((one for one in candidates if one is not None), None)
