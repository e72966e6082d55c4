"""Marks of entities: each says that its entity is in an index or an aggregate that was built over entities.

What is maintained since its class is there needs none. The mark has the number of the build, so what was dropped and
is declared again believes no old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs

from ....schema.maintenance import AggregateMaintenance, IndexMaintenance, Maintenance
from ....schema.model import Model
from ....schema.rows import Row
from ..tables.entity_json import HiddenProperties, StoredNames

DUPLICATE = "-"
"""The mark of an entity whose values in a unique index others had before it: it holds none."""
MaintainedPart: TypeAlias = IndexMaintenance | AggregateMaintenance
"""What is maintained from a class, by itself."""


def parts_of(duties: Maintenance) -> list[MaintainedPart]:
    """Return all that is maintained, one by one."""
    return [*duties.indexes, *duties.aggregates]


def label_of(part: MaintainedPart) -> str:
    """Return the label that the catalogue has it by."""
    return part.label if isinstance(part, IndexMaintenance) else part.model.name


@attrs.frozen
class BuildMark:
    """The marks by which entities say of which write their rows in an index are, or that they are in what was built."""

    name: str
    """In the entity: ``by_team``, ``by_team#7``; of an aggregate ``=Team#7``."""
    built: bool
    """Whether it was built over entities, so that those without the mark are not in it."""
    sets: bool
    """Whether a write that finds no mark makes one. Before every process knows of it, none does."""
    values: Callable[[Row], Sequence[Row]] | None = None
    """Of a unique index: gives the rows that an entity would have in it."""

    def affected_rows(self, old: Row | None, new: Row | None) -> tuple[Row | None, Row | None]:
        """Return an entity before and after a write as what is maintained is to see both.

        What is marked gives its difference. What is not gives nothing, or its mark and all that it is. What is barred has
        nothing to give up; as long as it keeps its values, it takes none.
        """
        ops = of_writes(old)
        if self.built and ops.get(self.name) == DUPLICATE:
            return (None, None) if self.keeps(old, new) else (None, new)
        if not self.built or (old is not None and self.name in ops):
            return old, new
        return None, new if self.sets else None

    def keeps(self, old: Row | None, new: Row | None) -> bool:
        """Return whether an entity has the same values in a unique index before and after a write."""
        if self.values is None or old is None or new is None:
            return False
        return {row[:2] for row in self.values(old)} == {row[:2] for row in self.values(new)}

    def set_in(self, ops: dict[str, str], old: Row | None, new: Row) -> None:
        """Mark an entity that a write leaves, unless it has the mark; if it takes other values, it is not barred any more."""
        op = ops.get(self.name)
        if (op is None and self.sets) or (op == DUPLICATE and not self.keeps(old, new)):
            ops[self.name] = ""


@attrs.frozen(eq=False)
class BuildMarks:
    """The marks of all that is maintained.

    Attributes:
        of: by what is maintained: of each index in other partitions, and of all that was built.
        built: those of what was built from the entities of a class.
        generation: of the catalogue that says so.
        stored: by the name of a class: the names that its entities hold properties under.
    """

    of: Mapping[MaintainedPart, BuildMark]
    built: Mapping[Model, Sequence[BuildMark]]
    generation: int
    stored: Mapping[str, StoredNames] = attrs.field(factory=dict)
    _names: frozenset[str] = attrs.field(
        init=False,
        default=attrs.Factory(lambda self: frozenset([mark.name for mark in self.of.values()]), takes_self=True),
    )

    def name_of(self, aggregate: AggregateMaintenance) -> str:
        """Return what intents call an aggregate: its name, or its mark."""
        mark = self.of.get(aggregate)
        return aggregate.model.name if mark is None else mark.name

    def left(self, row: Row | None) -> dict[str, str]:
        """Return the marks of an entity without those of builds that are no more."""
        return {
            name: op
            for name, op in of_writes(row).items()
            if name in self._names or not 0 < number_of(name)[1] <= self.generation
        }

    def affected_rows(self, part: MaintainedPart, old: Row | None, new: Row | None) -> tuple[Row | None, Row | None]:
        """See `BuildMark.concerned`."""
        mark = self.of.get(part)
        return (counted(old), new) if mark is None else mark.affected_rows(old, new)


def counted(row: Row | None) -> Row | None:
    """Return an entity that is in what is maintained from it: one that another program wrote is not, until it is written here."""
    return None if row is not None and isinstance(row[-1], HiddenProperties) and not row[-1].op else row


def of_writes(row: Row | None) -> Mapping[str, str]:
    """Return the marks of an entity, each with the write that its rows are of."""
    return row[-1].ops if row is not None and isinstance(row[-1], HiddenProperties) else {}


def number_of(name: str) -> tuple[str, int]:
    """Return the name of an index or an aggregate, as a mark or an intent has it, and the number of its build; 0: of none."""
    of, _, number = name.removeprefix("=").rpartition("#")
    return (of, int(number)) if of and number.isdecimal() else (name, 0)


def marked(marks: Sequence[BuildMark], row: Row | None) -> bool:
    """Return whether an entity has all of some marks."""
    ops = of_writes(row)
    return all(mark.name in ops for mark in marks)
