"""An account is frozen: that is announced, and then waited for until no write is under way that does not know of it."""

from __future__ import annotations

from ...catalogue.actions import ActionPlan
from ...catalogue.catalogue import Catalogue
from ...catalogue.freeze import check_thawed, frozen, thawed
from ...errors import StoreError
from .catalogue.open_classes import CatalogueRefresher
from .catalogue.publication import StoredCatalogue, changed
from .recovery import waited
from .tables.driver import Effects


def announce(table: str, timeout: float) -> Effects[StoredCatalogue]:
    """Publish that nobody changes entities.

    Raises:
        StoreError: a migration copies entities, which freezes the store by itself, and lets programs write at its end.
        StoreLocked: a class is being cleared, which does the same.
    """

    def frozen_catalogue(catalogue: StoredCatalogue) -> Catalogue | None:
        if catalogue.value.clearing is not None:
            check_thawed(catalogue.value)
        if (running := catalogue.value.history.running) is not None:
            raise StoreError(
                f"{running.id} copies entities, and freezes the store itself: freeze it once that has ended"
            )
        return None if catalogue.value.frozen is not None else frozen(ActionPlan(0, tuple), catalogue.value)

    return changed(table, timeout, frozen_catalogue)


def unfreeze(table: str, timeout: float) -> Effects[StoredCatalogue]:
    """Publish that programs change entities again."""
    draft = ActionPlan(0, tuple)
    return changed(
        table, timeout, lambda catalogue: None if catalogue.value.frozen is None else thawed(draft, catalogue.value)
    )


def wait(table: str, current: CatalogueRefresher, settled: float, timeout: float) -> Effects[bool]:
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
