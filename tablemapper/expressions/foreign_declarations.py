"""Names and options that other libraries read in a class body, with remedies."""

from __future__ import annotations

from collections.abc import Mapping

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
