"""The result of a run of migrations, or of a dry run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import attrs

from ..catalogue.transitions import ConversionFault
from ..errors import MigrationStopped
from ..schema.model import model_of
from ..schema.specs import Forms
from ..scripts.conversion_plan import affected_classes, copied_for
from ..scripts.links import links_of
from ..scripts.script import Script
from ..scripts.steps import is_edit, pairs

_KEYS = 5  # in a line
_MAX_SHOWN = 20  # faults in a message


def entity_count(entities: int) -> str:
    """Return a number of entities in words."""
    return f"{entities:,} {'entity' if entities == 1 else 'entities'}"


@attrs.frozen
class MigrationStep:
    """One step of a migration that ran, or would run."""

    migration: str
    """The id of its script."""
    text: str
    """The step in words: ``rename Product.maker to manufacturer``."""
    entities: int
    """The number of entities that are copied for it, those of other classes of its table, too; 0 if only the catalogue changes."""
    reversible: bool
    """Whether the migration can be undone, until it is contracted."""
    old_version: Literal["writes", "reads", "stops"]
    """What a program with the old classes can do after the switch."""
    back: bool = False
    """Whether the script is undone."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Its columns in the table of a report."""
        old = {"writes": "reads and writes", "reads": "reads", "stops": "stops"}[self.old_version]
        return (
            self.text,
            "catalogue only" if not self.entities and self.old_version == "writes" else entity_count(self.entities),
            "reversible" if self.reversible else "not reversible",
            f"old version: {old}",
        )


@attrs.frozen
class MigrationReport:
    """The result of a run of migrations, or of a dry run."""

    done: bool
    """Whether every step is done."""
    plan: tuple[MigrationStep, ...]
    """The steps that were to be done."""
    applied: tuple[str, ...] = ()
    """The migrations that were switched, or undone, by id."""
    entities: int = 0
    """The number of entities that were converted."""
    seconds: float = 0.0
    faults: tuple[ConversionFault, ...] = ()
    """The entities that cannot be converted."""
    contracted: tuple[str, ...] = ()
    """The migrations that were contracted, by id: their old tables are gone, and they cannot be undone."""

    @property
    def ok(self) -> bool:
        """Whether every step is done, without faults."""
        return self.done and not self.faults

    def __str__(self) -> str:
        lines = list(_table(self.plan)) or ["nothing to migrate"]
        if self.applied:
            verb = "undid" if any(step.back for step in self.plan) else "migrated"
            lines.append(f"{verb} {', '.join(self.applied)}: {entity_count(self.entities)} in {self.seconds:.1f} s")
        if self.contracted:
            lines.append(f"contracted {', '.join(self.contracted)}")
        return "\n".join([*lines, *fault_lines(self.faults)])


def fault_lines(faults: Iterable[ConversionFault]) -> Iterator[str]:
    """Yield faults as text; entities of one class with the same fault share a line."""
    alike: dict[tuple[str, str], list[ConversionFault]] = {}
    for fault in faults:
        alike.setdefault((fault.where, fault.detail), []).append(fault)
    for (where, detail), faults_alike in alike.items():
        keys = ", ".join([str(fault.key) for fault in faults_alike[:_KEYS]])
        hidden = f" and {len(faults_alike) - _KEYS:,} more" if len(faults_alike) > _KEYS else ""
        yield f"{where} {keys}{hidden}: {detail}"


def stopped(name: str, report: MigrationReport) -> MigrationStopped:
    """Return the error of a migration, or of an undoing, that cannot go on.

    Args:
        name: what stopped.
        report: of the run; what it did before, stays.
    """
    faults, completed = report.faults, [id for id in report.applied if id != name]
    switched = "" if name in report.applied else ", and nothing was switched"
    if completed:
        switched += f" ({', '.join(completed)} stays {'undone' if any(step.back for step in report.plan) else 'done'})"
    return MigrationStopped(
        f"{name}: {entity_count(len(faults))} cannot be converted; all others are{switched}: mend these or the script, and run "
        f"it again\n{fault_list(faults)}",
        report=report,
    )


def fault_list(faults: Sequence[ConversionFault]) -> str:
    """Return faults as lines of a message, of which it shows the first."""
    lines = list(fault_lines(faults))
    return "\n".join(f"  - {line}" for line in lines[:_MAX_SHOWN]) + ("\n  - …" if len(lines) > _MAX_SHOWN else "")


def _table(plan: tuple[MigrationStep, ...]) -> Iterator[str]:
    previous = ""
    rows = []
    for step in plan:
        rows.append(("" if step.migration == previous else step.migration, *step.cells))
        previous = step.migration
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "   ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip()


def plan_steps(
    scripts: Iterable[tuple[Script, bool]], forms: Forms, count: Callable[[str], int]
) -> Iterator[MigrationStep]:
    """Yield the steps of scripts for a report.

    Args:
        scripts: the scripts, each with whether it undoes another one.
        forms: the classes of the store.
        count: returns the number of entities of a class of the store.
    """
    models_by_name, origins = dict(forms), {name: (name,) for name in forms}

    def expected(name: str) -> int:
        return sum(map(count, origins.get(name, ())))

    for script, is_undoing in scripts:
        yield from _script_steps(script, models_by_name, expected, is_undoing=is_undoing)
        sources = {new.__name__: [old.__name__] for old, new in pairs(script).items()}
        for step in script.steps:
            sources |= {cls.__name__: [source.__name__ for source in step.ended_classes] for cls in step.targets}
        origins |= {new: tuple([o for name in names for o in origins.get(name, ())]) for new, names in sources.items()}
        affected = affected_classes(script, models_by_name)
        models_by_name = {name: form for name, form in models_by_name.items() if name not in affected}
        models_by_name |= {cls.__name__: model_of(cls).form for cls in script.new}


def _script_steps(
    script: Script, forms: Forms, count: Callable[[str], int], *, is_undoing: bool
) -> tuple[MigrationStep, ...]:
    undoable = all(step.is_reversible(script) for step in script.steps)
    affected = affected_classes(script, forms)
    new = {cls.__name__: model_of(cls).form_hash for cls in script.new}
    copies = not is_edit(script) and any(True for step in script.steps for _ in step.sources(script))
    stays = not copies or all(new.get(cls.__name__) == model_of(cls).form_hash for cls in script.old)
    links, level = links_of(script, pairs(script), frozenset(affected), is_undoing=is_undoing)
    return tuple(
        [
            MigrationStep(
                script.id,
                str(step),
                sum(map(count, copied_for(step, script, forms))),
                undoable,
                "writes" if stays else level if links else "stops",
                is_undoing,
            )
            for step in script.steps
        ]
    )
