"""The status of a store: its maintained objects, the progress of builds, and its migrations."""

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
    """The maintained objects of a store, the progress of builds, and its migrations."""

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
            (item.where, item.kind, item.state, "; ".join(_details(item))) for item in self.objects
        ]
        rows += [
            (migration.id, "migration", migration.state, f"since {migration.started:%Y-%m-%d %H:%M}")
            for migration in self.history
        ]
        frozen = [] if self.frozen is None else [f"frozen since {self.frozen:%Y-%m-%d %H:%M} UTC: it is only read"]
        return "\n".join([*frozen, *_aligned(rows)])


def status_of(
    catalogue: Catalogue,
    generation: int,
    progress: Mapping[str, tuple[int, int]],
    duplicates: Mapping[str, int],
    copies: Iterable[ObjectStatus] = (),
    **file: Any,
) -> Status:
    """Return what a catalogue says.

    Args:
        progress: how many entities are in what is being built, and of how many, by label.
        duplicates: how many values are held twice, by label.
        file: of a file, what `Status` says of it.
    """
    items = (*_items(catalogue, progress, duplicates), *_dropped_objects(catalogue), *copies)
    return Status(generation, items, tuple(_history(catalogue)), frozen=catalogue.frozen_since, **file)


def _items(
    catalogue: Catalogue, progress: Mapping[str, tuple[int, int]], duplicates: Mapping[str, int]
) -> Iterator[ObjectStatus]:
    """Yield the classes of a catalogue, and what is maintained from them."""

    def item(where: str, kind: Kind) -> ObjectStatus:
        form = catalogue.states.get(where)
        state, is_declared = ("ready", True) if form is None else (form.state, form.declared)
        shown_state = "building" if state == "announced" else state
        return ObjectStatus(
            where, kind, shown_state, is_declared, *progress.get(where, (0, 0)), duplicates.get(where, 0)
        )

    for name, form in catalogue.models.items():
        yield item(name, "aggregate" if form.aggregate else "class")
        for index in form.indexes:
            yield item(f"{name}.{index}", "index")


def _dropped_objects(catalogue: Catalogue) -> Iterator[ObjectStatus]:
    """Yield the dropped indexes, aggregates and classes whose names are not used again."""
    for tombstone in {entry.label: entry for entry in catalogue.tombstones}.values():
        owner, index = Label.of(tombstone.label)
        form = catalogue.models.get(owner)
        if form is None or (index and index not in form.indexes):
            kind = "index" if index else "aggregate" if "aggregate" in tombstone.form else "class"
            yield ObjectStatus(tombstone.label, kind, "dropping" if tombstone.tables else "dropped", declared=False)  # type: ignore[arg-type]


def _history(catalogue: Catalogue) -> Iterator[AppliedMigration]:
    for migration in [entry for entry in catalogue.history if entry.undone is None]:
        state = "contracted" if migration.contracted else "switched" if migration.switched else "running"
        started = Builtin.datetime.fromtimestamp(migration.started / 1e6, UTC)
        yield AppliedMigration(migration.id, state, started, migration.entities)  # type: ignore[arg-type]


def _details(item: ObjectStatus) -> Iterator[str]:
    if item.state in ("building", "copying"):
        progress = f"{item.done:,} of {item.total:,} ({100 * item.done // max(item.done, item.total, 1)} %)"
        yield progress if item.total else f"{item.done:,} entities so far"
    if item.violations:
        yield f"{item.violations:,} values are held twice"
    if not item.declared:
        yield "not declared"


def _aligned(rows: list[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join([text.ljust(width) for text, width in zip(row, widths, strict=True)]).rstrip()
