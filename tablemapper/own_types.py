"""Classes of users that are stored as a scalar: how a value becomes one, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs


@attrs.frozen(eq=False)
class OwnType:
    """A class that `tablemapper.register` was called with. Both functions raise ValueError for what they cannot take."""

    cls: type[Any]
    scalar: type[Any]
    store: Callable[[Any], Any]
    """Return the scalar of a value, checked."""
    load: Callable[[Any], Any]
    """Return the value of a scalar."""

    @property
    def __name__(self) -> str:
        return self.cls.__name__

    def plain(self, value: Any) -> Any:
        """Return the scalar of a value; a scalar, and None, as it is."""
        return self.store(value) if isinstance(value, self.cls) else value
