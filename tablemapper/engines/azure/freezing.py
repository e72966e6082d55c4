"""An account is frozen: that is announced, and then waited for until no write is under way that does not know of it."""

from __future__ import annotations

from ...catalogue.actions import Draft
from ...catalogue.catalogue import Catalogue
from ...catalogue.freezing import frozen, thawed
from ...errors import StoreError
from .catalogue.classes import Current
from .catalogue.published import Published, changed
from .sweep import waited
from .tables.drive import Work


def announce(table: str, timeout: float) -> Work[Published]:
    """Publish that nobody changes entities.

    Raises:
        StoreError: a migration copies entities, which freezes the store by itself, and lets programs write at its end.
    """

    def after(held: Published) -> Catalogue | None:
        if (running := held.value.history.running) is not None:
            raise StoreError(
                f"{running.id} copies entities, and freezes the store itself: freeze it once that has ended"
            )
        return None if held.value.frozen is not None else frozen(Draft(0, tuple), held.value)

    return changed(table, timeout, after)


def unfreeze(table: str, timeout: float) -> Work[Published]:
    """Publish that programs change entities again."""
    draft = Draft(0, tuple)
    return changed(table, timeout, lambda held: None if held.value.frozen is None else thawed(draft, held.value))


def wait(table: str, current: Current, settled: float, timeout: float) -> Work[bool]:
    """Wait a second, if a write may be under way that began before its process knew; return whether one may have been.

    Args:
        table: of the catalogue.
        current: the classes as the process knows them.
        settled: seconds after which nobody writes any more who does not know of a change of the catalogue.
        timeout: seconds after which to give up, if no answer comes.

    Raises:
        StoreError: somebody else lets programs write.
    """
    since = (yield from current.look()).catalogue.frozen
    if since is None:
        raise StoreError("another program let programs write again meanwhile; the store is not frozen")
    return (yield from waited(table, since, settled, timeout))
