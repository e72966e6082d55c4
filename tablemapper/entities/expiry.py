"""The time at which entities end: the rules of its field, and the index that finds those that have ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from ..datetime_types import Builtin
from .declaration import AbstractDeclaration, Declaration
from .index import Index
from .key_and_indexes import IndexModel, compile_index, index_table

_NAME = "expiry"


def with_expiry(declaration: AbstractDeclaration, faults: list[str]) -> AbstractDeclaration:
    """Return a declaration with an index over the time at which its entities end, unless it declares one; add faults."""
    field = declaration.expiry
    faults += (own_faults := list(_faults(declaration)))
    if field is None or own_faults or not isinstance(declaration, Declaration) or expiry_index(declaration) is not None:
        return declaration
    if hasattr(declaration.cls, _NAME) or _NAME in {index.name for index in declaration.indexes}:
        faults.append(f"{_NAME}: the class has this attribute already; declare an index over {field.name} yourself")
        return declaration
    fields = {field.name: field for field in declaration.fields}
    spread = [name for t in declaration.templates[::-1] for name in t.arguments if not fields[name].type.hierarchy]
    own = (
        "" if declaration.table.startswith(declaration.name) else f"{declaration.name}_"
    )  # (others may share the table)
    first, table = f"{{{spread[0]}:shard(16)}}" if spread else "all", index_table(declaration.table, own + _NAME)
    index: Index[Any] = Index(partition=first, row=f"{{{field.name}}}", table=table)
    model = compile_index(declaration.cls, _NAME, index, declaration.table, fields, faults)
    return declaration if model is None else attrs.evolve(declaration, indexes=(*declaration.indexes, model))


def _faults(declaration: AbstractDeclaration) -> Iterator[str]:
    ending = [field for field in declaration.fields if field.expires]
    if len(ending) > 1:
        yield f"{' and '.join([field.name for field in ending])}: one expires=True is enough"
    for field in ending:
        if field.type.kind is not Builtin.datetime or field.type.own is not None:
            yield f"{field.name}: expires=True is for a datetime, not {field.type.name}"
        elif isinstance(declaration, Declaration) and field.name in declaration.key_fields:
            yield f"{field.name}: expires=True cannot be in the key, which stays as it is; add another field"


def expiry_index(declaration: Declaration) -> IndexModel | None:
    """Return the index in the order in which entities end, whose partitions are all known."""
    field = declaration.expiry
    for index in () if field is None else declaration.indexes:
        first = next(iter(index.row.slots), None)
        leads = first is not None and first.field == field.name and first.usable("<") and first is index.row.parts[0]  # type: ignore[union-attr]
        if leads and index.where is None and index.fan_out is None and all(s.buckets for s in index.partition.slots):
            return index
    return None
