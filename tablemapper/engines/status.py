"""What a store says of itself: what it maintains, how far that is built, and what migrations did to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import attrs

from ..catalogue.catalogue import Catalogue
from ..datetime_types import Builtin
from ..schema.labels import Label

Kind = Literal["class", "index", "aggregate", "copy"]


@attrs.frozen
class ObjectStatus:
    """A class, an index, an aggregate or a copy, and its state."""

    where: str
    """``Product``, ``Product.by_name``; ``Product.by_name#1`` is a former definition, kept for older versions."""
    kind: Kind
    state: str
    """``ready``; ``building``; ``violated``: values are held twice in what is to be unique; ``disabled``: it is to be
    built anew; ``dropping``, then ``dropped``. Of a copy ``copying``, or ``one way`` where an entity was found that the
    way back does not lead to."""
    declared: bool
    """Whether the newest version of its class declares it. A class and an aggregate count as declared until a script drops
    them: a program may open the store without them."""
    done: int = 0
    """Entities that are in it, while it is being built or copied, of ``total``."""
    total: int = 0
    violations: int = 0
    """How many values are held twice."""


@attrs.frozen
class AppliedMigration:
    """A migration that was started on the store."""

    id: str
    """The name of its script: ``0003_price``."""
    state: Literal["running", "switched", "contracted"]
    started: datetime
    entities: int
    """That were copied."""


@attrs.frozen
class Status:
    """What a store maintains, the progress of builds, and its migrations."""

    generation: int
    """Of the catalogue: it moves when a state, a class or a table changes."""
    objects: tuple[ObjectStatus, ...]
    history: tuple[AppliedMigration, ...] = ()
    """Migrations, in the order that they were begun in."""
    format: int | None = None
    """Of the file; None for an account, as is what follows."""
    bytes: int | None = attrs.field(default=None, eq=False)
    """How large the file is, with what its log holds."""
    frozen: datetime | None = None
    """Since when nobody changes entities, in UTC, as the store moves; None: programs write."""

    def __getitem__(self, where: str) -> ObjectStatus:
        """Return the item of a class, an index or an aggregate: ``status["Product.by_name"]``."""
        for item in self.objects:
            if item.where == where:
                return item
        raise KeyError(where)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            (one.where, one.kind, one.state, "; ".join(_details(one))) for one in self.objects
        ]
        rows += [(one.id, "migration", one.state, f"since {one.started:%Y-%m-%d %H:%M}") for one in self.history]
        frozen = [] if self.frozen is None else [f"frozen since {self.frozen:%Y-%m-%d %H:%M} UTC: it is only read"]
        return "\n".join([*frozen, *_aligned(rows)])


def status_of(
    catalogue: Catalogue,
    generation: int,
    done: Mapping[str, tuple[int, int]],
    held: Mapping[str, int],
    copies: Iterable[ObjectStatus] = (),
    **file: Any,
) -> Status:
    """Return what a catalogue says.

    Args:
        done: how many entities are in what is being built, and of how many, by label.
        held: how many values are held twice, by label.
        file: of a file, what `Status` says of it.
    """
    items = (*_items(catalogue, done, held), *_dropped(catalogue), *copies)
    return Status(generation, items, tuple(_history(catalogue)), frozen=catalogue.frozen_since, **file)


def _items(
    catalogue: Catalogue, done: Mapping[str, tuple[int, int]], held: Mapping[str, int]
) -> Iterator[ObjectStatus]:
    """Yield the classes of a catalogue, and what is maintained from them."""

    def item(where: str, kind: Kind) -> ObjectStatus:
        form = catalogue.states.get(where)
        state, declared = ("ready", True) if form is None else (form.state, form.declared)
        shown = "building" if state == "announced" else state
        return ObjectStatus(where, kind, shown, declared, *done.get(where, (0, 0)), held.get(where, 0))

    for name, form in catalogue.models.items():
        yield item(name, "aggregate" if form.aggregate else "class")
        for index in form.indexes:
            yield item(f"{name}.{index}", "index")


def _dropped(catalogue: Catalogue) -> Iterator[ObjectStatus]:
    """Yield the dropped indexes, aggregates and classes whose names are not used again."""
    for tombstone in {each.label: each for each in catalogue.tombstones}.values():
        owner, index = Label.of(tombstone.label)
        form = catalogue.models.get(owner)
        if form is None or (index and index not in form.indexes):
            kind = "index" if index else "aggregate" if "aggregate" in tombstone.form else "class"
            yield ObjectStatus(tombstone.label, kind, "dropping" if tombstone.tables else "dropped", declared=False)  # type: ignore[arg-type]


def _history(catalogue: Catalogue) -> Iterator[AppliedMigration]:
    for one in [entry for entry in catalogue.history if entry.undone is None]:
        state = "contracted" if one.contracted else "switched" if one.switched else "running"
        started = Builtin.datetime.fromtimestamp(one.started / 1e6, UTC)
        yield AppliedMigration(one.id, state, started, one.entities)  # type: ignore[arg-type]


def _details(item: ObjectStatus) -> Iterator[str]:
    if item.state in ("building", "copying"):
        counted = f"{item.done:,} of {item.total:,} ({100 * item.done // max(item.done, item.total, 1)} %)"
        yield counted if item.total else f"{item.done:,} entities so far"
    if item.violations:
        yield f"{item.violations:,} values are held twice"
    if not item.declared:
        yield "not declared"


def _aligned(rows: list[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join([text.ljust(width) for text, width in zip(row, widths, strict=True)]).rstrip()
