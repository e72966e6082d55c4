"""A store is frozen, so that it is only read while it moves to another place, and thawed if it stays."""

from __future__ import annotations

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


def check_thawed(catalogue: Catalogue) -> None:
    """Check that entities may change.

    Raises:
        StoreLocked: the store is frozen.
    """
    if (since := catalogue.frozen_since) is not None:
        raise StoreLocked(
            f"the store has been frozen since {since:%Y-%m-%d %H:%M} UTC, and is only read: it may have moved; if not, "
            "store.unfreeze() lets programs write again"
        )
