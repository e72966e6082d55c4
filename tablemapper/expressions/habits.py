"""Names that other libraries have for what is called otherwise here: reading one says what to write.

Each stands on its class as a descriptor that raises AttributeError. A ``__getattr__`` would do the same, but make every
other attribute slower. The type checkers see none of this, and refuse the names as any other that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

__all__ = ["FIELD_HABITS", "QUERY_HABITS", "ROWS_HABITS", "refuse_habits"]

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
_WHERE = ".where({0}.field > 10)"
_FIRST = ".first(), .one() or .one_or_none(); store.get(key) for a key"
QUERY_HABITS: Mapping[str, str] = {
    **dict.fromkeys(("filter", "filter_by", "find"), _WHERE),
    **dict.fromkeys(("exclude", "where_not"), ".where(~({0}.field > 10))"),
    **dict.fromkeys(("all", "fetchall", "to_list", "scalars", "execute", "run"), _ALL),
    **dict.fromkeys(("get", "fetchone", "scalar", "scalar_one", "one_or_404", "get_or_none"), _FIRST),
    **dict.fromkeys(("offset", "skip", "paginate"), ".page(size, token), which continues where a page ended"),
    **dict.fromkeys(("top", "take", "fetchmany"), ".limit(count)"),
    **dict.fromkeys(("values", "values_list", "only", "defer", "columns"), ".select({0}.field, {0}.field)"),
    **dict.fromkeys(("orderby", "sort", "sort_by", "sorted"), ".order_by({0}.field.desc())"),
    "last": ".order_by({0}.field.desc()).first()",
    **dict.fromkeys(("distinct", "unique"), ".group_by({0}.field).count(), whose keys are the values"),
    **dict.fromkeys(("aggregate", "annotate", "having"), ".group_by({0}.field).sum({0}.field)"),
    **dict.fromkeys(("join", "outerjoin", "options", "prefetch"), "store.get_many(keys); there are no joins"),
}
"""Of a query, by the name that others have."""

ROWS_HABITS: Mapping[str, str] = dict.fromkeys(
    ("where", "order_by", "select", "group_by", "sum", "avg", "min", "max", "update", "delete"),
    "select last: query.where(…).order_by(…).select({0}.field), and totals and writes without select",
)
"""Of the tuples that ``select`` returns, by the name that a query has."""


class _Habit:
    def __init__(self, name: str, mend: str, describe: Callable[[Any], tuple[str, str]]) -> None:
        self._name = name
        self._mend = mend
        self._describe = describe

    def __get__(self, owned: Any, owner: type) -> NoReturn:
        what, model = (owner.__name__, "Product") if owned is None else self._describe(owned)
        raise AttributeError(f"{what} has no .{self._name}; write {self._mend.format(model)}")


def refuse_habits(mends: Mapping[str, str], describe: Callable[[Any], tuple[str, str]]) -> Callable[[C], C]:
    """Return a decorator that makes a class say what to write instead of the names of others.

    Args:
        mends: what to write, by name; a name that the class has is left alone.
        describe: returns what an object is, and the name of the entity class that it is about, for the message.
    """

    def decorate(cls: C) -> C:
        for name, mend in mends.items():
            if not hasattr(cls, name):
                setattr(cls, name, _Habit(name, mend, describe))
        return cls

    return decorate
