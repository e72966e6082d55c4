"""Names that other libraries have for what is called otherwise here: reading one says what to write.

Each stands on its class as a descriptor that raises AttributeError. A ``__getattr__`` would do the same, but make every
other attribute slower. The type checkers see none of this, and refuse the names as any other that is not there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def _mends(*rows: tuple[str, str]) -> dict[str, str]:
    return {name: mend for names, mend in rows for name in names.split()}


_DISTINCT = "store.query({0}).group_by({0}.field).count(), whose keys are the values"
FIELD_HABITS: Mapping[str, str] = _mends(
    ("in_ isin one_of", ".is_in([…])"),
    ("not_in notin_", "~ in front of .is_in([…])"),
    ("like ilike endswith matches regexp str", ".startswith(text) or .contains(text)"),
    ("any has has_any", ".contains(element)"),
    ("is_ isnull isna is_none does_not_exist", ".is_null()"),
    ("is_not isnot notnull notna exists", ".is_not_null()"),
    ("eq equals", "=="),
    ("year month week quarter day hour strftime dt", '.date() or .truncate("%Y-%m")'),
    ("lower upper casefold", "an index over {{name:fold}}, and call it with the text"),
    ("sum mean avg min max count", "a total of a query: store.query({0}).avg({0}.field)"),
    ("unique nunique value_counts distinct", _DISTINCT),
)
"""Of a field, by the name that others have."""

_QUERY, _DICT, _JSON = "store.query({0}).where(…)", "tm.to_dict(entity)", "tm.to_json(entity)"
RECORD_HABITS: Mapping[str, str] = _mends(
    ("objects query filter find select where all count exists", _QUERY),
    ("scan", "store.query({0}).allow_scan()"),
    ("get get_by_id find_one", "store.get({0}.key(…))"),
    ("batch_get get_many", "store.get_many(keys)"),
    ("save create insert put add", "store.insert(entity), store.replace(entity) or store.upsert(entity)"),
    ("bulk_create insert_many batch_write", "store.insert_many(entities)"),
    ("get_or_create", "store.get({0}.key(…)), and store.insert(entity) where that is None"),
    ("update", "entity.field = value and store.replace(entity), or store.merge({0}.key(…), field=value)"),
    ("delete remove", "store.delete(entity)"),
    ("refresh refresh_from_db reload", "store[entity.key]"),
    ("copy model_copy evolve", "entity.replace(field=value)"),
    ("create_table", "nothing: tm.open creates the tables of its models"),
    ("model_validate parse_obj from_dict from_orm model_construct", "tm.from_dict({0}, values)"),
    ("model_validate_json parse_raw from_json", "tm.from_json({0}, text)"),
    ("model_dump dict to_dict as_dict asdict keys values items", _DICT),
    ("model_dump_json json to_json", _JSON),
    ("model_json_schema schema schema_json", "tm.json_schema({0})"),
    ("model_fields metadata", "tm.schema_snapshot([{0}]) of a class, or tm.info(entity) of an entity"),
    ("etag ETag", "tm.info(entity).etag"),
    ("timestamp Timestamp", "tm.info(entity).timestamp, or tm.timestamp({0}) in a query"),
    ("partition_key PartitionKey", "tm.info(entity).partition_key"),
    ("row_key RowKey", "tm.info(entity).row_key"),
    ("pk", "entity.key"),
)
"""Of a class of entities and of an entity, by the name that others have."""

QUERY_HABITS: Mapping[str, str] = _mends(
    ("filter filter_by find", ".where({0}.field > 10)"),
    ("exclude where_not", ".where(~({0}.field > 10))"),
    ("all fetchall to_list scalars execute run", "list(query)"),
    ("iterator iterate stream yield_per itertuples iterrows", "for entity in query: …, which reads as it goes"),
    (
        "get fetchone scalar scalar_one one_or_404 get_or_none",
        ".first(), .one() or .one_or_none(); store.get(key) for a key",
    ),
    ("get_or_create update_or_create", "store.get(key), and store.insert(entity) where that is None"),
    ("offset skip paginate iloc loc", ".page(size, token), which continues where a page ended"),
    ("top take fetchmany head", ".limit(count)"),
    ("values values_list only defer", ".select({0}.field, {0}.field)"),
    ("df to_frame to_df to_dataframe", ".to_pandas() or .to_polars()"),
    ("orderby sort sort_by sorted sort_values sort_index desc asc reverse", ".order_by({0}.field.desc())"),
    ("last tail", ".order_by({0}.field.desc()).first()"),
    ("distinct unique nunique drop_duplicates value_counts", _DISTINCT.removeprefix("store.query({0})")),
    ("aggregate annotate having groupby agg", ".group_by({0}.field).sum({0}.field)"),
    ("mean average", ".avg({0}.field)"),
    ("isna isnull dropna", ".where({0}.field.is_null()), or .is_not_null()"),
    ("join outerjoin options prefetch select_related merge", "store.get_many(keys); there are no joins"),
)
"""Of a query, by the name that others have."""

_NAMES_OF_VERBS: tuple[tuple[str, str], ...] = (
    ("add save create put insert_one create_entity", "{0}.insert(entity), or {0}.upsert(entity)"),
    ("upsert_entity", "{0}.upsert(entity)"),
    ("update_entity", "{0}.replace(entity), or {0}.merge(Product.key(…), field=value)"),
    ("remove delete_one delete_entity", "{0}.delete(entity), or {0}.delete(Product.key(…))"),
    ("find_one get_entity fetch refresh", "{0}.get(Product.key(…))"),
    ("get_or_create", "{0}.get(Product.key(…)), and {0}.insert(entity) where that is None"),
)


def _of_verbs(owner: str) -> dict[str, str]:
    return _mends(*[(names, mend.format(owner)) for names, mend in _NAMES_OF_VERBS])


_COMMIT = "nothing: each call is durable when it returns; for several as one, with store.transaction() as tx: …"
STORE_HABITS: Mapping[str, str] = _of_verbs("store") | _mends(
    ("add_all bulk_create insert_all batch_write", "store.insert_many(entities)"),
    ("batch_get", "store.get_many(keys)"),
    ("submit_transaction batch atomic", "with store.transaction() as tx: …"),
    ("commit flush begin rollback session", _COMMIT),
    ("execute exec scalars select filter find all scan query_entities list_entities", _QUERY),
    ("create_all create_table create_tables", "nothing: tm.open creates the tables of its models"),
)
"""Of a store, by the name that others have."""

TRANSACTION_HABITS: Mapping[str, str] = _of_verbs("tx") | _mends(
    ("commit flush submit submit_transaction", "nothing: the end of the with block commits"),
    ("rollback cancel abort", "raise, as the transaction is given up when its with block raises"),
    ("insert_many add_all", "tx.insert(entity) for each entity"),
    ("query update execute", "tx.get(key) and tx.replace(entity); query the store before"),
)
"""Of a transaction, by the name that others have."""

ROWS_HABITS: Mapping[str, str] = _mends(
    (
        "where order_by select group_by sum avg min max update delete",
        "select last: query.where(…).order_by(…).select({0}.field), and totals and writes without select",
    ),
)
"""Of the tuples that ``select`` returns, by the name that a query has."""


class _Habit:
    def __init__(self, cls: type, name: str, mend: str, describe: Callable[[Any], tuple[str, str]]) -> None:
        self._cls = cls
        self._name = name
        self._mend = mend
        self._describe = describe

    def is_behind(self, owner: type) -> bool:
        """Return whether a base that stands behind this class has the name."""
        return any(self._name in base.__dict__ for base in owner.__mro__[owner.__mro__.index(self._cls) + 1 :])

    def __get__(self, owned: Any, owner: type) -> Any:
        if self.is_behind(owner):
            return getattr(super(self._cls, owner if owned is None else owned), self._name)
        what, model = (owner.__name__, "Product") if owned is None else self._describe(owned)
        raise AttributeError(habit_fault(what, self._name, self._mend, model))


def without_habits(cls: type, names: Iterable[str]) -> list[str]:
    """Return the attributes of a class that are there, of those that ``dir`` finds; completion offers no others."""
    found = {name: inspect.getattr_static(cls, name, None) for name in names}
    return [name for name, one in found.items() if not isinstance(one, _Habit) or one.is_behind(cls)]


def verbs_of(value: object) -> list[str]:
    """Return the verbs that users call on an expression, for completion: its data and its walks are for the library."""
    cls = type(value)
    return [
        name
        for name in object.__dir__(value)
        if name.startswith("__") or (inspect.isfunction(getattr(cls, name, None)) and name not in _WALKS)
    ]


_WALKS = frozenset({"attributes", "shape", "with_attributes", "with_constants"})


def habit_fault(what: str, name: str, mend: str, model: str) -> str:
    """Return what to write instead of a name, for the error of reading it.

    Args:
        what: that has no such name.
        name: as others have it.
        mend: what to write, with ``{0}`` for the class.
        model: the name of the class of entities.
    """
    return f"{what} has no .{name}; write {mend.format(model)}"


def refuse_habits(mends: Mapping[str, str], describe: Callable[[Any], tuple[str, str]]) -> Callable[[C], C]:
    """Return a decorator that makes a class say what to write instead of the names of others.

    Args:
        mends: what to write, by name; a name that the class has is left alone.
        describe: returns what an object is, and the name of the entity class that it is about, for the message.
    """

    def decorate(cls: C) -> C:
        for name, mend in mends.items():
            if not hasattr(cls, name):
                setattr(cls, name, _Habit(cls, name, mend, describe))
        offered: Callable[[Any], list[str]] = cls.__dir__  # type: ignore[assignment]
        setattr(cls, "__dir__", lambda value: without_habits(type(value), offered(value)))  # noqa: B010
        return cls

    return decorate
