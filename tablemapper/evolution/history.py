"""The migrations that a store has begun."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
from msgspec.structs import replace

from ..schema.specs import AppliedSpec


@attrs.frozen
class History:
    """The migrations that were begun, in that order. One that was undone and begins again has an entry for each run."""

    entries: tuple[AppliedSpec, ...] = ()

    def __iter__(self) -> Iterator[AppliedSpec]:
        return iter(self.entries)

    def current(self, id: str) -> AppliedSpec | None:
        """Return the entry of a migration that was not undone; None if there is none."""
        return next((entry for entry in self.entries if entry.id == id and entry.undone is None), None)

    def last(self, id: str) -> AppliedSpec | None:
        """Return the last entry of a migration, which may have been undone; None if there is none."""
        return next((entry for entry in reversed(self.entries) if entry.id == id), None)

    @property
    def running(self) -> AppliedSpec | None:
        """The entry of the migration that has not switched; None if there is none, or an undoing runs."""
        return next((entry for entry in self.entries if entry.switched is None and entry.undone is None), None)

    def and_(self, *entries: AppliedSpec) -> History:
        """Return the history with further entries."""
        return History((*self.entries, *entries))

    def with_(self, entry: AppliedSpec | None, **changes: Any) -> History:
        """Return the history with another value of some fields of an entry; the same without an entry."""
        return History(
            tuple([replace(candidate, **changes) if candidate is entry else candidate for candidate in self.entries])
        )

    def without(self, *entries: AppliedSpec | None) -> History:
        """Return the history without some entries."""
        return History(
            tuple([candidate for candidate in self.entries if not any(candidate is entry for entry in entries)])
        )
