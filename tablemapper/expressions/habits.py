"""Names that other libraries have for what is called otherwise here: reading one says what to write.

Each stands on its class as a descriptor that raises AttributeError. A ``__getattr__`` would do the same, but make every
other attribute slower. The type checkers see none of this, and refuse the names as any other that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

__all__ = ["FIELD_HABITS", "QUERY_HABITS", "ROWS_HABITS", "STORE_HABITS", "TRANSACTION_HABITS", "refuse_habits"]

C = TypeVar("C", bound=type)

FIELD_HABITS: Mapping[str, str] = {
    **dict.fromkeys(("in_", "isin", "one_of"), ".is_in([…])"),
    **dict.fromkeys(("not_in", "notin_"), "~ in front of .is_in([…])"),
    **dict.fromkeys(("like", "ilike", "endswith", "matches", "regexp"), ".startswith(text) or .contains(text)"),
    **dict.fromkeys(("any", "has", "has_any"), ".contains(element)"),
    **dict.fromkeys(("is_", "isnull", "is_none", "does_not_exist"), ".is_null()"),
    **dict.fromkeys(("is_not", "isnot", "notnull", "exists"), ".is_not_null()"),
    **dict.fromkeys(("eq", "equals"), "=="),
    **dict.fromkeys(("year", "month", "week", "quarter", "day", "hour", "strftime"), '.date() or .truncate("%Y-%m")'),
    **dict.fromkeys(("lower", "upper", "casefold"), "an index over {{name:fold}}, and call it with the text"),
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
    **dict.fromkeys(("desc", "asc", "reverse"), ".order_by({0}.field.desc())"),
    "last": ".order_by({0}.field.desc()).first()",
    **dict.fromkeys(("distinct", "unique"), ".group_by({0}.field).count(), whose keys are the values"),
    **dict.fromkeys(("aggregate", "annotate", "having"), ".group_by({0}.field).sum({0}.field)"),
    **dict.fromkeys(("join", "outerjoin", "options", "prefetch"), "store.get_many(keys); there are no joins"),
}
"""Of a query, by the name that others have."""

_NAMES_OF_VERBS: tuple[tuple[str, str], ...] = (
    ("add save create put insert_one create_entity", "{0}.insert(entity), or {0}.upsert(entity)"),
    ("remove delete_one delete_entity", "{0}.delete(entity), or {0}.delete(Product.key(…))"),
    ("find_one get_entity fetch refresh", "{0}.get(Product.key(…))"),
)


def _of_verbs(owner: str) -> dict[str, str]:
    return {name: mend.format(owner) for names, mend in _NAMES_OF_VERBS for name in names.split()}


_COMMIT = "nothing: each call is durable when it returns; for several as one, with store.transaction() as tx: …"
STORE_HABITS: Mapping[str, str] = {
    **_of_verbs("store"),
    **dict.fromkeys(("add_all", "bulk_create", "insert_all", "batch_write"), "store.insert_many(entities)"),
    **dict.fromkeys(("commit", "flush", "begin", "rollback", "session"), _COMMIT),
    **dict.fromkeys(
        ("execute", "exec", "scalars", "select", "filter", "find", "all", "scan"), "store.query({0}).where(…)"
    ),
    **dict.fromkeys(
        ("create_all", "create_table", "create_tables"), "nothing: tm.open creates the tables of its models"
    ),
}
"""Of a store, by the name that others have."""

TRANSACTION_HABITS: Mapping[str, str] = {
    **_of_verbs("tx"),
    **dict.fromkeys(("commit", "flush", "submit"), "nothing: the end of the with block commits"),
    **dict.fromkeys(
        ("rollback", "cancel", "abort"), "raise, as the transaction is given up when its with block raises"
    ),
    **dict.fromkeys(("insert_many", "add_all"), "tx.insert(entity) for each entity"),
    **dict.fromkeys(("query", "update", "execute"), "tx.get(key) and tx.replace(entity); query the store before"),
}
"""Of a transaction, by the name that others have."""

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
