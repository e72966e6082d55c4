"""Names that other libraries have for what is called otherwise here: reading one says what to write.

Each stands on its class as a descriptor that raises AttributeError. A ``__getattr__`` would do the same, but make every
other attribute slower. The type checkers see none of this, and refuse the names as any other that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

__all__ = ["FIELD_HABITS", "QUERY_HABITS", "refuse_habits"]

C = TypeVar("C", bound=type)

FIELD_HABITS: Mapping[str, str] = {
    **dict.fromkeys(("in_", "isin", "one_of"), ".is_in([…])"),
    **dict.fromkeys(("not_in", "notin_"), "~ in front of .is_in([…])"),
    **dict.fromkeys(("like", "ilike", "endswith", "matches", "regexp"), ".startswith(text) or .contains(text)"),
    **dict.fromkeys(("any", "has", "has_any"), ".contains(element)"),
    **dict.fromkeys(("is_", "isnull", "is_none", "does_not_exist"), ".is_null()"),
    **dict.fromkeys(("is_not", "isnot", "notnull", "exists"), ".is_not_null()"),
    **dict.fromkeys(("eq", "equals"), "=="),
}
"""Of a field, by the name that others have."""

_ALL = "list(query)"
_WHERE = ".where(Product.price > 10)"
_FIRST = ".first(), .one() or .one_or_none(); store.get(key) for a key"
QUERY_HABITS: Mapping[str, str] = {
    **dict.fromkeys(("filter", "filter_by", "find"), _WHERE),
    **dict.fromkeys(("exclude", "where_not"), ".where(~(Product.price > 10))"),
    **dict.fromkeys(("all", "fetchall", "to_list", "scalars", "execute", "run"), _ALL),
    **dict.fromkeys(("get", "fetchone", "scalar", "scalar_one", "one_or_404", "get_or_none"), _FIRST),
    **dict.fromkeys(("offset", "skip", "paginate"), ".page(size, token), which goes on where a page ended"),
    **dict.fromkeys(("top", "take", "fetchmany"), ".limit(count)"),
    **dict.fromkeys(("values", "values_list", "only", "defer", "columns"), ".select(Product.name, Product.price)"),
    **dict.fromkeys(("orderby", "sort", "sort_by", "sorted"), ".order_by(Product.price.desc())"),
    "last": ".order_by(Product.price.desc()).first()",
    **dict.fromkeys(("distinct", "unique"), ".group_by(Product.name).count(), whose keys are the values"),
    **dict.fromkeys(("aggregate", "annotate", "having"), ".group_by(Product.name).sum(Product.price)"),
    **dict.fromkeys(("join", "outerjoin", "options", "prefetch"), "store.get_many(keys); there are no joins"),
}
"""Of a query, by the name that others have."""


class _Habit:
    def __init__(self, name: str, what: str, mend: str) -> None:
        self._text = f"{what} has no .{name}; write {mend}"

    def __get__(self, owned: object, owner: type) -> NoReturn:
        raise AttributeError(self._text)


def refuse_habits(what: str, mends: Mapping[str, str]) -> Callable[[C], C]:
    """Return a decorator that makes a class say what to write instead of the names of others.

    Args:
        what: what an object of the class is, for the message.
        mends: what to write, by name; a name that the class has is left alone.
    """

    def decorate(cls: C) -> C:
        for name, mend in mends.items():
            if not hasattr(cls, name):
                setattr(cls, name, _Habit(name, what, mend))
        return cls

    return decorate
