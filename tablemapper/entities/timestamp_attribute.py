"""The time of an entity's last write, which the store notes beside the fields, in conditions and orders."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from ..errors import InvalidQuery, safe_repr
from ..expressions.tree import TIMESTAMP_NAME, Attr
from ..values.timestamp import TIMESTAMP
from .entity import Record

R = TypeVar("R", bound=Record)


def timestamp(cls: type[R], /) -> Attr[R, datetime]:
    """Return when the entities of a class were last written, for conditions and orders of queries.

    ``store.query(Product).where(Product.category == "books", tm.timestamp(Product) > yesterday)``. For one entity,
    see `info`. No key, index or aggregate can contain it.

    Raises:
        InvalidQuery: it is not a class of entities.
    """
    argument: object = cls
    if not isinstance(argument, type) or not issubclass(argument, Record):
        raise InvalidQuery(
            f"timestamp: expected an entity class, as in tm.timestamp(Product), got {safe_repr(argument)}"
        )
    return Attr(cls, TIMESTAMP_NAME, TIMESTAMP)
