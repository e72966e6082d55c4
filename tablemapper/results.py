"""What every query gives, of one class or of several."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Generic, NoReturn, Self, TypeVar

from .errors import EntityNotFound, InvalidQuery
from .expressions import Predicate
from .pages import Page

__all__ = ["Found", "check_condition"]

T_co = TypeVar("T_co", covariant=True)


class Found(Generic[T_co]):
    """What a query finds. Iterate it, or ask for `first`, `one`, `exists`, `count`, `page`."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self!r} has no truth: ask .exists(), or take list(query)")

    @property
    @abstractmethod
    def _names(self) -> str:
        """What is asked for, in messages."""

    @property
    @abstractmethod
    def _limit(self) -> int | None:
        """How many results there are at the most."""

    @abstractmethod
    def limit(self, count: int, /) -> Self:
        """Stop after so many results."""

    @abstractmethod
    def __iter__(self) -> Iterator[T_co]: ...

    @abstractmethod
    def page(self, size: int, /, token: str | None = None) -> Page[T_co]:
        """Return some results, and the token of the page after them.

        A token is opaque and holds for this query only; it survives restarts. An entity that matches throughout and
        keeps its sort key comes exactly once, whatever is written between the pages.
        """

    def one(self) -> T_co:
        """Return the only result; raise EntityNotFound if there is none, InvalidQuery if there are several."""
        found = self.one_or_none()
        if found is None:
            raise EntityNotFound(f"{self!r}: there is no such entity", entity=self._names)
        return found

    def one_or_none(self) -> T_co | None:
        """Return the only result, or None; raise InvalidQuery if there are several."""
        found = list(self.limit(2 if self._limit is None else min(2, self._limit)))
        if len(found) > 1:
            raise InvalidQuery(f"{self!r}: there are several such entities; add conditions, or use first()")
        return found[0] if found else None

    def pages(self, size: int, /) -> Iterator[Page[T_co]]:
        """Yield page after page; each reads the state that the store has then."""
        page = self.page(size)
        yield page
        while page.token is not None:
            page = self.page(size, page.token)
            yield page


def check_condition(given: object, names: str) -> None:
    """Refuse what is no predicate.

    Raises:
        InvalidQuery
    """
    if not isinstance(given, Predicate):
        raise InvalidQuery(f"where: a condition is needed, as in {names}.field == value, not {given!r}")
