"""The transaction that the running thread or task is inside of.

What a store writes by itself in the block of a transaction would stay when that fails, and is hardly ever meant. So a
transaction enters the context of its thread or task, and whatever else writes to the same engine looks there first.
"""

from __future__ import annotations

from contextvars import ContextVar
from weakref import ref

from ..errors import InvalidTransaction

_open: ContextVar[tuple[ref[TransactionBlock], ...]] = ContextVar("tablemapper_transactions", default=())


class TransactionBlock:
    """The ``with`` block of a transaction, from when it is entered until `leave`, or until nobody holds it any more.

    The latter is how a block ends that an interrupt kept from being entered or left.
    """

    def __init__(self, engine: object) -> None:
        if blocks := _open.get():
            check_outside(engine, "transaction")
        self.engine: object = engine
        _open.set((*[block for block in blocks if getattr(block(), "engine", None) is not None], ref(self)))

    def leave(self) -> None:
        """Let others write again; also where the block ends in another context than it began in."""
        self.engine = None
        _open.set(tuple([block for block in _open.get() if getattr(block(), "engine", None) is not None]))


def check_outside(engine: object, verb: str) -> None:
    """Refuse a write beside the transaction of the same engine that the thread or task is inside of.

    Raises:
        InvalidTransaction
    """
    for block in _open.get():
        if getattr(block(), "engine", None) is engine:
            if verb == "transaction":
                raise InvalidTransaction(
                    "a transaction inside another one of the same store would stay even if the outer one fails; "
                    "use the outer one (tx.insert, tx.merge …), or begin this one after its with block"
                )
            raise InvalidTransaction(
                f"{verb}: a transaction of the same store is open here, and this write would stay even if that fails; "
                "use the transaction (tx.insert, tx.merge …), or write after its with block"
            )
