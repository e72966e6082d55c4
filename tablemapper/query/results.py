"""The methods that every query has, over one class or over several."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ..engines.protocol import Position
from ..errors import EntityNotFound, InvalidQuery, did_you_mean, safe_repr
from ..execution.prepared import PlanCache
from ..expressions.arithmetic import Computed
from ..expressions.elements import ElementAttr
from ..expressions.foreign_names import refuse_foreign_names
from ..expressions.tree import Attr, ElementOfList, Order, Predicate
from ..planning.query_spec import QuerySpec
from ..schema.model import Model
from .pages import Page, TokenSeal, read_page

_LONG = 300  # characters of a query in a message
_EVER = 1e9  # seconds, more than anybody waits
T_co = TypeVar("T_co", covariant=True)


@refuse_foreign_names("query", lambda query: ("a query", query._names.split(",")[0]))
class Results(Generic[T_co]):
    """The results of a query. Iterate them, or call `first`, `one`, `exists`, `count`, `page`."""

    __slots__ = ()

    _plans: PlanCache
    _spec: QuerySpec
    """The query; over several classes, only its limit, order and budget count, which all classes share."""

    @property
    @abstractmethod
    def _names(self) -> str:
        """The names of the classes, for messages."""

    @abstractmethod
    def _limited(self, limit: int | None) -> Iterator[T_co]:
        """Read results, at most ``limit``, whatever the query's own limit is."""

    @abstractmethod
    def _positioned(self, after: Position | None, limit: int) -> Iterator[tuple[Position, Any]]:
        """Yield the results after a position, each with its position."""

    @abstractmethod
    def _form(self) -> Any:
        """Return the identity of the query, which page tokens depend on."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a query cannot be pickled or copied, because it belongs to its store; "
            "to share the parts of split(…) with another process, pass part.token"
        )

    if TYPE_CHECKING:

        def __bool__(self) -> NoReturn: ...

    def __iter__(self) -> Iterator[T_co]:
        return self._limited(self._spec.limit)

    def _at_most(self, most: int) -> Iterator[T_co]:
        limit = self._spec.limit
        return self._limited(most if limit is None else min(most, limit))

    def one(self) -> T_co:
        """Return the only result.

        Raises:
            EntityNotFound: there is none.
            InvalidQuery: there are several.
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        result = self.one_or_none()
        if result is None:
            raise EntityNotFound(f"{safe_repr(self, _LONG)}: there is no such entity", entity=self._names)
        return result

    def one_or_none(self) -> T_co | None:
        """Return the only result, or None.

        Raises:
            InvalidQuery: there are several.
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        results = list(self._at_most(2))
        if len(results) > 1:
            raise InvalidQuery(f"{safe_repr(self, _LONG)}: several entities match; add conditions, or use first()")
        return results[0] if results else None

    def page(self, size: int, /, token: str | None = None) -> Page[T_co]:
        """Return some results, and the token of the page after them.

        A token is opaque and holds for this query only; it survives restarts. An entity that matches throughout and
        keeps its sort key comes exactly once, whatever is written between the pages.

        Raises:
            InvalidQuery: the size is not a number, 1 or more.
            InvalidToken: the token was changed, or is that of another query.
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        seal = TokenSeal(self._plans, self._form(), lambda: safe_repr(self, _LONG))
        return read_page(seal, self._positioned, size=size, limit=self._spec.limit, token=token)

    def pages(self, size: int, /) -> Iterator[Page[T_co]]:
        """Yield page after page; each reads the state that the store has then.

        Raises:
            InvalidQuery: the size is not a number, 1 or more.
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        page = self.page(size)
        yield page
        while page.token is not None:
            page = self.page(size, page.token)
            yield page


def refuse_named(named: Mapping[str, object], names: str) -> None:
    """Refuse what is written as ``where(price=10)``.

    Raises:
        InvalidQuery
    """
    for name, value in named.items():
        raise InvalidQuery(
            f"where: a condition is written {names}.{name} == {safe_repr(value)}, not {name}={safe_repr(value)}"
        )


def check_condition(argument: object, names: str) -> None:
    """Refuse what is no predicate.

    Raises:
        InvalidQuery
    """
    if not isinstance(argument, Predicate):
        mend = "; compare a field, with .is_null() for `is None`" if isinstance(argument, bool) else ""
        raise InvalidQuery(
            f"where: expected a condition, as in {names}.field == value, got {safe_repr(argument)}{mend}"
        )


def own_field(attr: object, model: Model, role: str = "") -> Attr[Any, Any]:
    """Return an attribute of the model's class; raise InvalidQuery if it is something else, or too large for its role."""
    if isinstance(attr, ElementAttr):
        raise InvalidQuery(
            f"{attr!r} is for the groups of an aggregate: declare one with tm.group_by({attr!r}), and query that; for a condition "
            f"write {attr.list!r}.contains(…)"
        )
    if isinstance(attr, ElementOfList):
        raise InvalidQuery(f"{attr!r} is an element of a list, which can only be assigned; name the whole list")
    if not isinstance(attr, Attr) or not issubclass(model.cls, attr.owner):
        names = [field.name for field in model.declaration.fields]
        name = attr.name if isinstance(attr, Attr) else attr if isinstance(attr, str) else None
        mend = f"; write {model.name}.{name}" if name in names else ""
        if isinstance(attr, str):
            mend = mend or did_you_mean(attr, names)
        raise InvalidQuery(f"{safe_repr(attr)} is not a field of {model.name} (fields: {', '.join(names)}){mend}")
    if role and model.declaration.field(attr.name).large:
        raise InvalidQuery(f"{attr.name} is large, and cannot be in {role}")
    return attr


def order_step(value: object, model: Model) -> Order[Any]:
    """Return a step of an order; raise InvalidQuery if it is something else."""
    if isinstance(value, Order):
        return value
    if isinstance(value, Attr):
        return Order(value, descending=False)
    names = [field.name for field in model.declaration.fields]
    name = next(iter(value.attributes())).name if isinstance(value, Computed) else value if value in names else names[0]
    raise InvalidQuery(f"order_by: expected a field, as in {model.name}.{name}.desc(), got {safe_repr(value)}")


def seconds(verb: str, argument: object) -> float:
    """Return a number of seconds; raise InvalidQuery if it is something else."""
    if not isinstance(argument, int | float) or isinstance(argument, bool) or not argument >= 0:
        raise InvalidQuery(f"{verb}: expected a number of seconds, 0 or more, got {safe_repr(argument)}")
    return min(argument, _EVER)
