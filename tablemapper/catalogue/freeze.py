"""A store is frozen, so that it is only read while it moves to another place, and thawed if it stays."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from ..errors import StoreLocked
from .actions import ActionPlan
from .catalogue import Catalogue


def frozen(draft: ActionPlan, catalogue: Catalogue) -> Catalogue:
    """Return a catalogue of entities that nobody changes; the same if it was."""
    return catalogue if catalogue.frozen is not None else attrs.evolve(catalogue, frozen=draft.now)


def thawed(draft: ActionPlan, catalogue: Catalogue) -> Catalogue:
    """Return a catalogue of entities that programs write."""
    return attrs.evolve(catalogue, frozen=None)


def check_thawed(catalogue: Catalogue, classes: Collection[str] | None = None) -> None:
    """Check that entities may change: those of some classes, by name, or of all.

    Raises:
        StoreLocked: the store is frozen, or a class is being cleared.
    """
    if (cleared := catalogue.clearing) is not None and (classes is None or cleared in classes):
        raise StoreLocked(
            f"{cleared} is being cleared, and is only read meanwhile: try again in a minute; if that has ended early, store.sweep() "
            "lets programs write again"
        )
    if (since := catalogue.frozen_since) is not None:
        raise StoreLocked(
            f"the store has been frozen since {since:%Y-%m-%d %H:%M} UTC, and is only read: it may have moved; if not, "
            "store.unfreeze() lets programs write again"
        )
