"""The script that undoes another one."""

from __future__ import annotations

import attrs

from ..errors import InvalidMigration
from .script import Script


def undoing(script: Script) -> Script:
    """Return the script that undoes another one.

    Raises:
        InvalidMigration: one of its steps cannot be undone.
    """
    faults = [
        f"it cannot be undone: {step}{step.irreversible_reason}"
        for step in script.steps
        if not step.is_reversible(script)
    ]
    if faults:
        raise InvalidMigration(script.id, faults)
    steps = [undone for step in reversed(script.steps) for undone in step.undone(script)]
    return attrs.evolve(script, old=script.new, new=script.old, steps=tuple(steps), undoes=not script.undoes)
