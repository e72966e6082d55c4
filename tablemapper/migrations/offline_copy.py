"""Runs a script that copies entities over a store that cannot note what changes meanwhile: through files, twice.

First beside programs that write. Then they only read, and what they have changed since is copied. So the script runs over a
file, as every script does, and the store gets what came of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import attrs

from ..catalogue.transitions import Transition
from ..engines.locations import open_engine
from ..engines.migration_protocol import TableReplacement
from ..engines.optional_protocols import SupportsBackup
from ..entities.declaration import abstract_declaration
from ..errors import InvalidMigration
from ..progress import Meter, Progress, ProgressOption, start_meter
from ..schema.model import model_of
from ..schema.specs import Forms
from ..scripts.conversion_plan import redeclared_labels
from ..scripts.field_converter import FieldConverter
from ..scripts.script import Script, undoing
from ..scripts.steps import Drop, Resolve, is_edit, pairs
from ..store.copy import consistent, copy_engine
from .report import MigrationReport, MigrationStep

Converting = Callable[[Path, ProgressOption], MigrationReport]
"""Runs the script over a file."""


def replace(
    replacement: TableReplacement, convert: Converting, progress: ProgressOption, label: str
) -> MigrationReport:
    """Convert all entities, and let the new ones take the place of the old ones.

    Args:
        replacement: has both.
        convert: runs the script over a file.
        progress: counts what is copied.
        label: is shown with it.

    Returns:
        What came of the script over the file: not done if there are faults, and then nothing was switched.

    Raises:
        Outdated: another run is about it, or the classes have changed.
    """

    def alive(_: Progress) -> None:
        replacement.alive()

    with tempfile.TemporaryDirectory(prefix="tablemapper") as folder, start_meter(progress, label) as shown_meter:
        meter, new, is_frozen = _Watched(shown_meter, replacement.alive), Path(folder) / "new.db", False
        old_faults = set[tuple[str, tuple[str, str]]]()  # faults of the pass before
        with closing(open_engine(Path(folder) / "old.db", consistent(replacement.source), durability="relaxed")) as old:
            while True:
                copy_engine(replacement.source, old, meter, partly=True, repeated=not is_frozen)
                assert isinstance(old, SupportsBackup)
                old.backup(str(new), meter)
                open_engine(new, replacement.source.schema, durability="relaxed").close()  # (with all indexes)
                report = convert(new, alive)
                faults = {(fault.where, fault.key) for fault in report.faults}
                if report.ok:
                    with closing(open_engine(new, replacement.target.schema, durability="relaxed")) as built:
                        copy_engine(built, replacement.target, meter)
                    if is_frozen and replacement.switch(report.entities):
                        return report
                elif (
                    is_frozen or faults & old_faults
                ):  # (else programs changed what belongs together while it was read)
                    return report
                new.unlink()
                if report.ok or old_faults:
                    replacement.freeze()
                    is_frozen = True
                old_faults = faults


def without_old_version(step: MigrationStep, scripts: Iterable[Script]) -> MigrationStep:
    """Return a step as it is in an account, where no version goes on beside the copies that a script made."""
    script = next((candidate for candidate in scripts if candidate.id == step.migration), None)
    if script is None or is_edit(script):
        return step
    reversible = step.reversible and (step.back or not needs_former(undoing(script)))
    return attrs.evolve(step, old_version="stops", reversible=reversible)


def needs_former(script: Script) -> bool:
    """Return whether a script that undoes another one needs the entities before that, which are not kept in step."""
    ways = pairs(script).items()
    return any(
        FieldConverter(script, *way).former is not None for way in ways if abstract_declaration(way[0]).of is None
    )


def check_names(script: Script, forms: Forms, transition: Transition | None) -> None:
    """Refuse a script that declares something beside another definition of its name, before anything is changed.

    Raises:
        InvalidMigration
    """
    if faults := [
        f"{label}: two definitions of one name cannot be in a store on Azure Tables yet; give the new one another name"
        for label in redeclared_labels(script, forms, transition)
    ]:
        raise InvalidMigration(script.id, faults)


def part_of(script: Script, transition: Transition) -> Script:
    """Return the part of a script that is about the classes which it copies."""
    old = [cls for cls in script.old if cls.__name__ in transition.ending]
    new = [cls for cls in script.new if cls.__name__ in transition.new.by_name]
    steps = [step for step in script.steps if not isinstance(step, Drop) or step.owner.__name__ in transition.ending]
    return attrs.evolve(script, after=None, old=tuple(old), new=tuple(new), steps=tuple(steps))


def unextended(script: Script, forms: Forms) -> Script:
    """Return a script without the new classes that later versions have extended: no copy knows which versions are in use."""
    extended = {
        cls.__name__
        for cls in script.new
        if cls.__name__ in forms and not forms[cls.__name__].fields.keys() <= model_of(cls).form.fields.keys()
    }
    new = [cls for cls in script.new if not {cls.__name__, model_of(cls).form.source} & extended]
    steps = [step for step in script.steps if not isinstance(step, Resolve) or step.index.entity in new]
    return attrs.evolve(script, new=tuple(new), steps=tuple(steps))


class _Watched(Meter):
    """A meter whose advance is seen."""

    def __init__(self, meter: Meter, seen: Callable[[], None]) -> None:
        self._meter = meter
        self._seen = seen

    def advance(self, n: int) -> None:
        self._meter.advance(n)
        self._seen()
