"""The inspector as users call it."""

from __future__ import annotations

from typing import Any

from ..aio.store import AsyncStore
from ..guidance.workload import Workload
from ..store.store import Store


def inspector(
    store: Store | AsyncStore, *, token: str | None = None, title: str = "", workload: Workload | None = None
) -> Any:
    """Return pages that show what is in a store, as an ASGI application: ``app.mount("/data", tm.inspector(store))``.

    It only reads. The store stays yours: the pages neither open nor close it.

    Args:
        store: an open store, best one that was opened with ``read_only=True``.
        token: what a visitor has to bring once, as ``?token=…``; a cookie remembers it. None asks for nothing: the
            application in which it is mounted decides who comes in.
        title: what stands at the top of each page, such as the name of the file.
        workload: the calls of the program, given to the store as ``observe=``: the page of advice judges them, too.

    Raises:
        ModuleNotFoundError: starlette or jinja2 is not installed.
        TypeError: it is no store, the token is no text, or the workload none.
        ValueError: the token is empty.
    """
    arguments: tuple[object, object, object] = store, token, workload
    synchronous: object = store._sync if isinstance(store, AsyncStore) else store  # noqa: SLF001  its pages are made in threads
    if not isinstance(synchronous, Store):
        raise TypeError(f"inspector: expected a Store, got {type(store).__name__}")
    if token is not None and not isinstance(arguments[1], str):
        raise TypeError(f"inspector: token= is a text or None, not {type(token).__name__}")
    if workload is not None and not isinstance(arguments[2], Workload):
        raise TypeError(f"inspector: workload= is a tm.Workload or None, not {type(workload).__name__}")
    if token == "":
        raise ValueError("inspector: token= is empty; leave it out to ask for none")
    try:
        from .asgi import make_app
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the inspector needs {error.name}: pip install 'tablemapper[inspect]'", name=error.name
        ) from None
    return make_app(lambda: synchronous, token=token, title=title, workload=workload)
