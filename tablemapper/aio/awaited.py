"""A verb of a synchronous object as one that is awaited: its name, its arguments and its docstring are said once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from .cancellation import Cancellation

if TYPE_CHECKING:  # it imports asyncio, which a program without an event loop need not load
    from .workers import Workers

S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")
P = ParamSpec("P")


class AsyncFacade(Generic[S_co]):
    """The facade of a synchronous object for tasks: its calls run in threads."""

    def __init__(self, workers: Workers, sync: S_co) -> None:
        self._workers = workers
        self._sync = sync


def awaited(
    verb: Callable[Concatenate[S_co, P], T], *, brief: bool = False, long: bool = False
) -> Callable[Concatenate[AsyncFacade[S_co], P], Coroutine[Any, Any, T]]:
    """Return a verb that a face has like the object behind it: ``get = awaited(Store.get)``.

    In a generic face say of what the verb is (``first = awaited(ClassResults[T].first)``), for the type checkers.

    Args:
        verb: a method of the object behind the face.
        brief: it takes less time than waking a thread, so other calls may wait for it.
        long: it has a ``progress=``, through which a task that is cancelled ends it.
    """
    name = verb.__name__

    @wraps(verb)
    async def method(self: AsyncFacade[S_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        call: Callable[P, T] = getattr(self._sync, name)
        return await self._workers.make(call, args, kwargs, brief=brief)

    @wraps(verb)
    async def until_cancelled(self: AsyncFacade[S_co], /, *args: P.args, **kwargs: P.kwargs) -> T:
        cancellation = Cancellation()
        options: dict[str, Any] = {**kwargs, "progress": cancellation.progress(kwargs.get("progress", False))}  # type: ignore[arg-type]
        return await self._workers.run_until(cancellation, partial(getattr(self._sync, name), *args, **options))

    return until_cancelled if long else method
