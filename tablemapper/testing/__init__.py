"""Support for the tests of applications; the library itself imports nothing of it.

- `clock`: a clock that a test moves, for the timestamps of a store and for UUIDs.
- `store_fixture`: empty stores, by a clock of the test, which are checked at its end.
- `async_face`: the store of a test for asyncio, in whichever event loop runs the test.
- ``autoload``: what pytest and Hypothesis load by themselves: two modules that are installed beside the package.
- `key_budget`: what keys leave room for: how long the texts of a field may be.
- `scalar_strategies`: strategies of Hypothesis for single values.
- `values`: strategies of Hypothesis for the values of fields, nested ones too.
- `strategies`: strategies of Hypothesis for entities and their keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .clock import Clock

if TYPE_CHECKING:
    from .store_fixture import account_store
    from .strategies import entities, keys

__all__ = ["Clock", "account_store", "entities", "keys"]


def __getattr__(name: str) -> Any:
    """Import stores, and Hypothesis, only for those who ask for them: the fixtures do without Hypothesis."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "account_store":
        from . import store_fixture

        return getattr(store_fixture, name)
    try:
        from . import strategies
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"tablemapper.testing.{name} needs {error.name}: pip install 'tablemapper[testing]'", name=error.name
        ) from None
    return getattr(strategies, name)
