"""Pages, and the sealed tokens that say where the next one begins."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import attrs
import msgspec

from ..engines.protocol import Position
from ..errors import InvalidQuery, InvalidToken, safe_repr
from ..execution.prepared import PlanCache
from ..expressions.foreign_names import refuse_foreign_names
from ..expressions.predicates import dump
from ..planning.query_spec import QuerySpec

T = TypeVar("T")
_VERSION = 2
_SEAL = 12  # bytes


@refuse_foreign_names("page", lambda _: ("a page", "Product"), "either")
@attrs.frozen
class Page(Generic[T]):
    """Some results of a query, and the token of the next page."""

    items: list[T]
    token: str | None
    """For the next page; None if this is the last."""


class TokenSeal:
    """Makes and reads the tokens of one query.

    A token holds the place of the last row, and how many results came so far. It is sealed with the identity of the
    store, and with the whole query, values and all: elsewhere it is refused.

    Args:
        describe: returns the query as text, for errors.
    """

    def __init__(self, plans: PlanCache, form: Any, describe: Callable[[], str]) -> None:
        self._key = plans.engine.store_id.encode()[:64]
        self._describe = describe
        self._query = hashlib.blake2b(msgspec.json.encode(form, order="deterministic"), digest_size=16).digest()

    def token(self, position: Position, returned_before: int) -> str:
        """Return the token of the rows after a position; ``done``: how many results came before."""
        body = msgspec.msgpack.encode([_VERSION, self._query, list(position), returned_before])
        return base64.urlsafe_b64encode(self._sealed(body) + body).decode().rstrip("=")

    def open(self, token: str) -> tuple[Position, int]:
        """Return the position in a token, and how many results came before.

        Raises:
            InvalidToken
        """
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            if self._sealed(raw[_SEAL:]) != raw[:_SEAL]:
                raise InvalidToken(
                    f"{self._describe()}: this token comes from another store, or was changed; start without a token"
                )
            version, query, position, returned_before = msgspec.msgpack.decode(raw[_SEAL:])
        except (ValueError, TypeError, AttributeError, msgspec.MsgspecError) as error:
            if isinstance(error, InvalidToken):
                raise
            raise InvalidToken(f"{self._describe()}: this is not a page token; pass page(…).token, or None") from None
        if version != _VERSION or query != self._query:
            raise InvalidToken(
                f"{self._describe()}: this token belongs to another query, or to other models; start without one"
            )
        return tuple(position), returned_before

    def _sealed(self, body: bytes) -> bytes:
        return hashlib.blake2b(body, digest_size=_SEAL, key=self._key).digest()


def query_identity(plans: PlanCache, spec: QuerySpec, selected: tuple[Any, ...] | None = None) -> list[Any]:
    """Return everything that a query consists of, as JSON can hold it."""
    return [
        plans.fingerprint(spec.model),
        None if spec.range is None else [spec.range.name, [repr(value) for value in spec.range.values]],
        [dump(predicate) for predicate in spec.where],
        [[step.attr.label, step.descending] for step in spec.order],
        spec.limit,
        None if selected is None else [attr.label for attr in selected],
        *([] if spec.part is None else [attrs.astuple(spec.part)]),
    ]


def read_page(
    seal: TokenSeal,
    read: Callable[[Position | None, int], Iterator[tuple[Position, T]]],
    *,
    size: int,
    limit: int | None,
    token: str | None,
) -> Page[T]:
    """Return the page after a token, with the token of the page after it.

    Args:
        read: returns the results after a position, each with its position: at least so many, if there are.
        token: the token of the page; None for the first page.
    """
    size = counted("page", size, least=1)
    position_before, returned_before = (None, 0) if token is None else seal.open(token)
    page_size = size if limit is None else min(size, limit - returned_before)
    results = read(position_before, page_size + 1)
    items: list[T] = []
    last_position: Position = ()
    if page_size <= 0:
        return Page([], None)
    for position, item in results:
        if len(items) == page_size:
            has_more = limit is None or returned_before + page_size < limit
            return Page(items, seal.token(last_position, returned_before + page_size) if has_more else None)
        items.append(item)
        last_position = position
    return Page(items, None)


def counted(verb: str, count: object, *, least: int) -> int:
    """Return a number from ``least`` on, cut to ``sys.maxsize // 2``; raise InvalidQuery if it is none."""
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise InvalidQuery(f"{verb}: expected a whole number, {least} or more, got {safe_repr(count)}")
    return min(count, sys.maxsize >> 1)
