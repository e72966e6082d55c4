"""Results of functions, cached on the object that they describe."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_lock = threading.Lock()


def cached_on_owner(function: Callable[P, T]) -> Callable[P, T]:
    """Keep what a function returns with its first argument, a class or an object with attributes, while that lives.

    A cache of the function's own would hold each class that a process ever made: those of a store that is opened
    without models are made for that store.
    """
    name = f"_kept_{function.__name__}"

    @wraps(function)
    def found_or_made(*args: P.args, **kwargs: P.kwargs) -> T:
        owner: Any = args[0]
        key = args[1:], *kwargs.items()
        try:
            value: T = owner.__dict__[name][key]
        except KeyError:
            new_value = function(*args, **kwargs)
            with _lock:
                if name not in owner.__dict__:
                    (type if isinstance(owner, type) else object).__setattr__(owner, name, {})
                value = owner.__dict__[name].setdefault(key, new_value)
        return value

    return found_or_made
