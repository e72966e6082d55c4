"""Names that other libraries have for what is called otherwise here: reading one says what to write.

Each stands on its class as a descriptor that raises AttributeError. A ``__getattr__`` would do the same, but make every
other attribute slower. The type checkers see none of this, and refuse the names as any other that is not there.

One table has the words for both faces. It says what to write for a synchronous store; `for_asyncio` turns that.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar

C = TypeVar("C", bound=type)
Describe: TypeAlias = Callable[[Any], tuple[str, str]]
Face: TypeAlias = Literal["sync", "async", "either"]

_OPERATIONS = {
    "__bool__": "truth value",
    "__len__": "length",
    "__getitem__": "items",
    "__setitem__": "items to set",
    "__delitem__": "items to delete",
}
"""Operations of Python that raise TypeError, and what an object has not that lacks them."""


def _names(*rows: tuple[str, str]) -> dict[str, str]:
    return {name: remedy for names, remedy in rows for name in names.split()}


def _verbs(owner: str) -> tuple[tuple[str, str], ...]:
    """Return the words for the verbs that a store and a transaction have."""
    verbs = (
        ("add save create put insert_one create_entity", "{0}.insert(entity), or {0}.upsert(entity)"),
        ("upsert_entity insert_or_replace", "{0}.upsert(entity)"),
        ("update_entity", "{0}.replace(entity), or {0}.merge(Product.key(…), field=value)"),
        ("remove delete_one delete_entity", "{0}.delete(entity), or {0}.delete(Product.key(…))"),
        ("find_one get_entity fetch refresh", "{0}.get(Product.key(…))"),
        ("get_or_create", "{0}.get(Product.key(…)), and {0}.insert(entity) where that is None"),
        ("__setitem__", "{0}.upsert(entity)"),
        ("__delitem__", "{0}.delete(Product.key(…))"),
    )
    return tuple([(names, remedy.format(owner)) for names, remedy in verbs])


_DISTINCT = "store.query({0}).group_by({0}.field).count(), whose keys are the values"
_QUERY, _CREATED = "store.query({0}).where(…)", "nothing: tm.open creates the tables of its models"
_DURABLE = "nothing: each call is durable when it returns; for several as one, with store.transaction() as tx: …"
_OF_DICT = "{group: number for group, number in groups.count().items() if number > 1}"

FOREIGN_NAMES: Mapping[str, Mapping[str, str]] = {
    "field": _names(
        ("in_ isin one_of", ".is_in([…])"),
        ("not_in notin_", "~ in front of .is_in([…])"),
        ("like ilike endswith matches regexp str", ".startswith(text) or .contains(text)"),
        ("any has has_any", ".contains(element)"),
        ("is_ isnull isna is_none does_not_exist", ".is_null()"),
        ("is_not isnot notnull notna exists", ".is_not_null()"),
        ("eq equals", "=="),
        ("ne", "!="),
        ("gt ge gte lt le lte", "< <= > >="),
        ("year month week quarter day hour strftime dt", '.date() or .truncate("%Y-%m")'),
        ("lower upper casefold", "an index over {{name:fold}}, and call it with the text"),
        ("sum mean avg min max count", "a total of a query: store.query({0}).avg({0}.field)"),
        ("unique nunique value_counts distinct", _DISTINCT),
        ("alias as_ cast astype", "{0}.field in .select({0}.field), and name it in the tuple that comes"),
    ),
    "entity": _names(
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
        ("create_table", _CREATED),
        ("model_validate parse_obj from_dict from_orm model_construct", "tm.from_dict({0}, values)"),
        ("model_validate_json parse_raw from_json", "tm.from_json({0}, text)"),
        ("model_dump dict to_dict as_dict asdict keys values items", "tm.to_dict(entity)"),
        ("model_dump_json json to_json", "tm.to_json(entity)"),
        ("model_json_schema schema schema_json", "tm.json_schema({0})"),
        (
            "model_fields metadata",
            "tm.schema_snapshot([{0}]) of a class, or tm.info(entity) of an entity; tables need no creation, tm.open does it",
        ),
        ("etag ETag", "tm.info(entity).etag"),
        ("timestamp Timestamp", "tm.info(entity).timestamp, or tm.timestamp({0}) in a query"),
        ("partition_key PartitionKey", "tm.info(entity).partition_key"),
        ("row_key RowKey", "tm.info(entity).row_key"),
        ("pk", "entity.key"),
    ),
    "entity alone": _names(("id _id uid", "entity.key, which has the values of its key fields")),
    "query": _names(
        ("filter filter_by find", ".where({0}.field > 10)"),
        ("exclude where_not", ".where(~({0}.field > 10))"),
        ("all fetchall to_list scalars execute run collect", "list(query)"),
        (
            "iterator iterate stream yield_per itertuples iterrows",
            "for entity in query: …, which reads as it goes",
        ),
        (
            "get fetchone scalar scalar_one one_or_404 get_or_none",
            "query.first(), query.one() or query.one_or_none(); store.get(key) for a key",
        ),
        ("get_or_create update_or_create", "store.get(key), and store.insert(entity) where that is None"),
        ("insert add save create bulk_create", "store.insert(entity), or store.insert_many(entities)"),
        ("in_bulk", "store.get_many(keys)"),
        ("offset skip paginate iloc loc", "query.page(size, token), which continues where a page ended"),
        ("top take fetchmany head", ".limit(count)"),
        ("values values_list only defer", ".select({0}.field, {0}.field)"),
        ("df to_frame to_df to_dataframe", "query.to_pandas() or query.to_polars()"),
        ("to_dicts to_dict to_json as_dict dicts", "[tm.to_dict(entity) for entity in query]"),
        ("map apply", "[function(entity) for entity in query]"),
        ("orderby sort sort_by sorted sort_values sort_index desc asc reverse", ".order_by({0}.field.desc())"),
        ("last tail", "query.order_by({0}.field.desc()).first()"),
        (
            "distinct unique nunique drop_duplicates value_counts",
            "query.group_by({0}.field).count(), whose keys are the values",
        ),
        ("aggregate annotate having groupby agg", "query.group_by({0}.field).sum({0}.field)"),
        ("mean average", "query.avg({0}.field)"),
        ("len size length", "query.count()"),
        ("any", "query.exists()"),
        ("isna isnull dropna", ".where({0}.field.is_null()), or .is_not_null()"),
        ("union union_all or_", ".where(({0}.field == 1) | ({0}.field > 9))"),
        ("intersect intersection and_", ".where({0}.field == 1, {0}.field > 9)"),
        (
            "with_for_update select_for_update lock",
            "store.update(key, change), which is called again if another was faster",
        ),
        (
            "join outerjoin options prefetch select_related merge",
            "query.with_(Other, by={0}.field), which reads the entity of each key; there are no other joins",
        ),
        ("__bool__", "query.exists()"),
        ("__len__", "query.count()"),
        ("__getitem__", "query.first(), or query.page(size, token)"),
    ),
    "rows": _names(
        (
            "where order_by select group_by sum avg min max update delete move_to with_",
            "select last: query.where(…).order_by(…).select({0}.field), and totals and writes without select",
        ),
    ),
    "groups": _names(
        ("having filter", _OF_DICT.replace("{", "{{").replace("}", "}}")),
        ("where", "query.where(…).group_by({0}.field)"),
        (
            "order_by sort sorted sort_values limit top head most_common",
            "collections.Counter(groups.count()).most_common(10)",
        ),
        ("agg aggregate annotate select apply", "groups.count() and groups.sum({0}.field), a call for each"),
        ("mean average", "groups.avg({0}.field)"),
        ("size len nunique", "groups.count(), and its len"),
        ("items keys values get all list first one to_dict", "groups.count(), a dict by group"),
        ("to_polars to_pandas to_arrow df columns", "list(groups.count().items()), which a data frame takes as rows"),
        ("__getitem__", "groups.count(), a dict by group"),
        ("__len__", "groups.count(), and its len"),
    ),
    "page": _names(
        ("results data entities rows records all list values", "page.items"),
        ("next next_page has_next has_more", "query.page(size, page.token), while page.token is not None"),
        ("cursor continuation_token next_token next_cursor", "page.token"),
        ("total count pages num_pages size", "query.count()"),
        ("to_dict json to_json dict", "[tm.to_dict(entity) for entity in page.items]"),
        ("to_polars to_pandas columns", "query.to_polars(), or entities of page.items"),
        ("__getitem__", "page.items"),
        ("__len__", "len(page.items)"),
    ),
    "key": _names(
        ("partition_key pk PartitionKey hash_key", "key.partition"),
        ("row_key rk RowKey range_key sort_key", "key.row"),
        ("cls model type kind", "key.entity"),
        ("get fetch load", "store.get(key)"),
        ("delete remove", "store.delete(key)"),
        ("exists", "store.exists(key)"),
        ("id values args fields", "the fields of the entity: store[key].field"),
    ),
    "index": _names(
        ("query filter where find scan all", "store.query({0}(…))"),
        ("get first one get_or_none", "store.query({0}(…)).first()"),
        ("count", "store.query({0}(…)).count()"),
        ("exists", "store.query({0}(…)).exists()"),
        ("startswith between is_in in_ eq", "store.query({0}()) and a condition on the field"),
        ("asc desc", "store.query({0}()).order_by(…)"),
        ("drop create rebuild", "nothing: tm.open creates and removes indexes as the class declares them"),
    ),
    "rows of an index": _names(
        ("all list fetchall", "list(query), of query = store.query({0}(…))"),
        ("first one one_or_none exists page pages", "store.query({0}(…)).first()"),
        ("where filter order_by limit select group_by allow_scan update delete", "store.query({0}(…)).where(…)"),
        ("get", "store.query({0}(…)).one_or_none()"),
    ),
    "store": _names(
        *_verbs("store"),
        ("add_all bulk_create insert_all batch_write bulk_insert bulk_insert_mappings", "store.insert_many(entities)"),
        ("bulk_upsert merge_many", "store.upsert_many(entities)"),
        (
            "upsert_frame replace_columns",
            "store.upsert_many(tm.from_dict(Product, row) for row in frame.to_dicts())",
        ),
        ("batch_get", "store.get_many(keys)"),
        ("submit_transaction batch atomic", "with store.transaction() as tx: …"),
        ("commit flush begin rollback session", _DURABLE),
        ("execute exec scalars select filter find all scan query_entities list_entities", _QUERY.format("Product")),
        ("first one", "store.query(Product).where(…).first()"),
        ("count size", "store.query(Product).allow_scan().count()"),
        ("create_all create_table create_tables", _CREATED),
        ("truncate delete_all drop_all", "store.clear(Product)"),
        ("drop_table delete_table", "store.drop(Product)"),
        ("update_many bulk_update", "store.query(Product).where(…).update(field=value)"),
        ("vacuum optimize", "store.compact()"),
        ("tables table_names list_tables metadata models", "store.classes"),
        ("dispose disconnect shutdown", "store.close()"),
        ("dump export save_to", "store.backup(path), or tm.copy(store, other)"),
        ("load_columns from_polars from_pandas from_arrow insert_frame", "store.insert_columns(Product, frame)"),
        ("__len__", "store.query(Product).allow_scan().count()"),
    ),
    "transaction": _names(
        *_verbs("tx"),
        ("commit flush submit submit_transaction", "nothing: the end of the with block commits"),
        ("rollback cancel abort", "raise, as the transaction is given up when its with block raises"),
        ("insert_many add_all upsert_many", "tx.insert(entity) for each entity"),
        ("delete_many get_many", "tx.delete(key), or tx.get(key), for each key"),
        ("query update execute", "tx.get(key) and tx.replace(entity); query the store before"),
        (
            "savepoint begin_nested begin transaction",
            "nothing: a transaction has no other inside, and begins with its with block",
        ),
    ),
}
"""What to write, by the name that others have, of each kind of object; ``{0}`` is the class, or the index."""


class _Remedy:
    """The error of a foreign name: a descriptor that stands on a class."""

    def __init__(self, cls: type, name: str, remedy: str, describe: Describe, face: Face) -> None:
        self._cls = cls
        self._name = name
        self._remedy = remedy
        self._describe = describe
        self._face: Face = face

    def is_behind(self, owner: type) -> bool:
        """Return whether a base that stands behind this class has the name."""
        return any(self._name in base.__dict__ for base in owner.__mro__[owner.__mro__.index(self._cls) + 1 :])

    def __get__(self, owned: Any, owner: type) -> Any:
        if self.is_behind(owner):
            return getattr(super(self._cls, owner if owned is None else owned), self._name)
        subject, model = (owner.__name__, "Product") if owned is None else self._describe(owned)
        raise AttributeError(foreign_name_fault(subject, self._name, self._remedy, model, self._face))


def _operation(name: str, remedy: str, describe: Describe, face: Face) -> Callable[..., NoReturn]:
    """Return a special method, of an operation that an object has not."""

    def refuse(self: Any, *_: object) -> NoReturn:
        subject, model = describe(self)
        raise TypeError(_fault(subject, _OPERATIONS[name], remedy, model, face))

    return refuse


def without_foreign_names(cls: type, names: Iterable[str]) -> list[str]:
    """Return the attributes of a class that are there, of those that ``dir`` finds; completion offers no others."""
    attributes = {name: inspect.getattr_static(cls, name, None) for name in names}
    return [
        name for name, attribute in attributes.items() if not isinstance(attribute, _Remedy) or attribute.is_behind(cls)
    ]


def verbs_of(value: object) -> list[str]:
    """Return the verbs that users call on an expression, for completion: its data and its walks are for the library."""
    cls = type(value)
    return [
        name
        for name in object.__dir__(value)
        if name.startswith("__") or (inspect.isfunction(getattr(cls, name, None)) and name not in _WALKS)
    ]


_WALKS = frozenset({"attributes", "shape", "with_attributes", "with_constants"})


def foreign_name_fault(subject: str, name: str, remedy: str, model: str, face: Face = "either") -> str:
    """Return the replacement of a name, for the error of reading it.

    Args:
        subject: that has no such name.
        name: as others have it.
        remedy: what to write, with ``{0}`` for the class.
        model: the name of the class of entities.
        face: whose form of the remedy is shown.
    """
    return _fault(subject, f".{name}", remedy, model, face)


def _fault(subject: str, name: str, remedy: str, model: str, face: Face) -> str:
    asynchronous = face == "async" or (face == "either" and _in_event_loop())
    text = remedy.format(model)
    return f"{subject} has no {name}; write {for_asyncio(text) if asynchronous else text}"


def _in_event_loop() -> bool:
    """Return whether a task runs here: a program that did not import asyncio has none."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_foreign_names(kind: str, describe: Describe, face: Face = "sync") -> Callable[[C], C]:
    """Return a decorator that makes a class say what to write instead of the names of others.

    Args:
        kind: of `FOREIGN_NAMES`; a name that the class has is left alone.
        describe: returns what an object is, and the name of the entity class that it is about, for the message.
        face: whose form of the remedies is shown; ``either`` for what both have: the one of who asks.
    """

    def decorate(cls: C) -> C:
        for name, remedy in FOREIGN_NAMES[kind].items():
            if name in _OPERATIONS:
                setattr(cls, name, _operation(name, remedy, describe, face))
                if name == "__len__" and "__bool__" not in FOREIGN_NAMES[kind]:
                    setattr(cls, "__bool__", lambda _: True)  # noqa: B010  (it would ask for the length)
            elif not hasattr(cls, name):
                setattr(cls, name, _Remedy(cls, name, remedy, describe, face))
        offered: Callable[[Any], list[str]] = cls.__dir__  # type: ignore[assignment]
        setattr(cls, "__dir__", lambda value: without_foreign_names(type(value), offered(value)))  # noqa: B010
        return cls

    return decorate


# ------------------------------------------------------------------------------------------------ as asyncio has it

AWAITED: Mapping[str, frozenset[str]] = {
    "store": frozenset(
        [
            "get",
            "group",
            "get_many",
            "exists",
            "insert",
            "replace",
            "merge",
            "upsert",
            "delete",
            "update",
            "move",
            "run",
            "clear",
            "expire",
            "drop",
            "use",
            "insert_many",
            "insert_columns",
            "upsert_columns",
            "upsert_many",
            "replace_many",
            "delete_many",
            "check",
            "status",
            "statistics",
            "advise",
            "sweep",
            "repair",
            "compact",
            "build",
            "freeze",
            "unfreeze",
            "backup",
            "close",
        ]
    ),
    "query": frozenset(
        [
            "list",
            "first",
            "one",
            "one_or_none",
            "exists",
            "count",
            "page",
            "columns",
            "to_arrow",
            "to_polars",
            "to_pandas",
            "explain",
            "split",
            "update",
            "delete",
            "move_to",
            "sum",
            "avg",
            "min",
            "max",
        ]
    ),
    "groups": frozenset(["count", "sum", "avg", "min", "max"]),
    "tx": frozenset(["get", "group", "exists"]),
}
"""The calls that asyncio awaits, by what they are called of."""
_ARGUMENTS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_CHAIN = re.compile(rf"\b(store|query|groups|tx)((?:\.\w+(?:{_ARGUMENTS})?)+|\[[^\]]+\])")
_CALLS = re.compile(rf"\.(\w+){_ARGUMENTS}")


def for_asyncio(remedy: str) -> str:
    """Return code as asyncio has it: with ``await``, ``async for`` and ``async with``."""
    remedy = re.sub(r"\blist\(query\)", "query.list()", remedy)
    remedy = re.sub(r"\bfor (\w+) in query\b", r"async for \1 in query", remedy)
    remedy = re.sub(r"\bwith store\.", "async with store.", remedy)
    return _CHAIN.sub(_awaited, remedy)


def _awaited(match: re.Match[str]) -> str:
    of, calls = match[1], list(_CALLS.finditer(match[2]))
    if match[2].startswith("["):
        return f"await {match[0]}"
    if of == "store" and calls and calls[0][1] == "query":
        of = "query"
    end = max([call.end() for call in calls if call[1] in AWAITED[of]], default=0)
    code, following = match[0][: match.start(2) - match.start() + end], match[2][end:]
    return match[0] if not end else f"(await {code}){following}" if following else f"await {code}"


# -- in the body of a class

ELSEWHERE: Mapping[str, str] = {
    "__tablename__": 'the class statement names the table: class {cls}(…, table="…")',
    "__table_args__": "a key and indexes are declared in the class body, as tm.Key and tm.Index",
    "Meta": 'options belong in the class statement: class {cls}(…, table="…")',
    "__post_init__": "__post_init__ is never called; name it __attrs_post_init__",
    "__attrs_pre_init__": "__attrs_pre_init__ is never called; __attrs_post_init__ is",
    "model_post_init": "model_post_init is never called; name it __attrs_post_init__",
    "model_config": "it is never read; an entity checks each value as strictly as it can, and refuses unknown fields",
    "Config": "it is never read; an entity checks each value as strictly as it can, and refuses unknown fields",
}
"""What other libraries read in a class body."""
CLASSES = "Meta", "Config"
"""Those of them that are classes inside of it."""
DECORATED: Mapping[str, str] = {
    "FieldValidator": "write tm.field(validator=…), a function of (entity, attribute, value)",
    "Validator": "write tm.field(validator=…), a function of (entity, attribute, value)",
    "ModelValidator": "name the method __attrs_post_init__, without a decorator",
    "RootValidator": "name the method __attrs_post_init__, without a decorator",
    "Computed": "make it a plain @property, which is not stored",
}
"""What pydantic alone would call, by the beginning of the name of its kind."""
OPTIONS: Mapping[str, str] = {
    "default_factory": "say factory=",
    "alias": "write name= for the name of the property",
    "index": 'declare an index in the class body, by_{0} = tm.Index(partition="{{{0}}}")',
    "unique": 'declare an index in the class body, by_{0} = tm.Index(partition="{{{0}}}", unique=True)',
    "primary_key": 'declare the key in the class body, key = tm.Key(partition="{{{0}}}")',
    "nullable": "write it in the type: tm.Field[… | None]",
    "foreign_key": "keep the key's fields of the other entity, and read it with store[Other.key(…)]",
    **{
        name: f"write it in the type: tm.Field[Annotated[…, msgspec.Meta({name}=…)]]"
        for name in ("max_length", "min_length", "ge", "gt", "le", "lt", "multiple_of", "pattern")
    },
    "regex": "write it in the type: tm.Field[Annotated[str, msgspec.Meta(pattern=…)]]",
    "converter": "a field has none; convert the value before",
}
"""What other libraries take as an option of a field."""
INDEX_OPTIONS: Mapping[str, str] = {
    **dict.fromkeys(("fields", "columns", "keys", "on"), 'templates name them: partition="{city}", row="{name}"'),
    **dict.fromkeys(("hash_key", "pk", "partition_key"), 'say partition="{city}"'),
    **dict.fromkeys(("range_key", "sk", "sort_key", "row_key", "order_by"), 'say row="{name}"'),
    **dict.fromkeys(("projection", "covering", "including"), 'say include=("name",), or "all"'),
    "condition": "say where=lambda p: p.price > 10",
    "name": "say table= for the name of its table; the attribute of the class is its own name",
}
"""What other libraries take as an option of an index."""
