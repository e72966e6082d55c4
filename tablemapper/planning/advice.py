"""The text of a refused query: why it would read the whole table, and the index that would serve it."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Any

from ..entities.declaration import index_table
from ..expressions.tree import Attr, In, Leaf, Order
from ..limits import check_table_name
from ..schema.model import Model
from ..values.scalars import ValueType
from .conditions import AnyPredicate, Conditions, alternatives, conditions, field_name
from .plan import MAX_RANGES

__all__ = ["lack", "refusal", "written"]

_SHARDS = 16


def lack(field: str, where: Iterable[AnyPredicate]) -> str:
    """Return why conditions do not bound a field, as text."""
    speaking = [attr for p in where for attr in p.attributes() if field == ".".join((attr.name, *attr.path))]
    if not speaking:
        return f"no condition on {field}"
    longest = max([len(one.values) for one in _lists(where) if field == field_name(one.attr)], default=0)
    if longest > MAX_RANGES:
        return f"a list of {longest:,} values does not bound {field}"
    cut = any(attr.part for attr in speaking)
    return f"the condition on {field} does not bound it" + (
        f"; compare {field} itself: {field} >= …, {field} < …" if cut else ""
    )


def refusal(
    model: Model, where: tuple[AnyPredicate, ...], order: tuple[Order[Any], ...], refused: Iterable[str]
) -> str:
    """Return why a query is refused, and an index to declare, ready to paste into the class."""
    partition, row = model.declaration.templates
    refused = tuple(refused)
    lines = [
        f"{model.name}: no key or index bounds this query, so it would read the whole table",
        f"  {model.name}.key: {lack((*partition.arguments, *row.arguments)[0], where)}",
        *(f"  {why}" for why in refused),
    ]
    index = _index(model, where, order)
    if any(len(one.values) > MAX_RANGES for one in _lists(where)):
        lines.append(f"a query for each {MAX_RANGES:,} values of a list could be bounded")
    if index is None:
        lines.append("add conditions, or read it all with .allow_scan()")
    elif (built := _being_built(model, index, refused)) is not None:
        lines += [
            f"{built} would serve it once it is built: call store.build(), or wait",
            "or read it all with .allow_scan()",
        ]
    else:
        lines += ["this index would serve it:", f"    {index}", "or read it all with .allow_scan()"]
    return "\n".join(lines)


def _being_built(model: Model, declaration: str, refused: Iterable[str]) -> str | None:
    """Return the index that begins as a declaration does, if it is only not ready."""
    for index in model.indexes:
        label = f"{model.name}.{index.name}"
        if f'(partition="{index.partition.text}"' in declaration and f"{label}: it is being built" in " ".join(refused):
            return label
    return None


def _lists(where: Iterable[AnyPredicate]) -> list[In[Any]]:
    return [one for one in where if isinstance(one, In)]


def _index(model: Model, where: tuple[AnyPredicate, ...], order: tuple[Order[Any], ...]) -> str | None:
    """Return the declaration of an index that bounds the query, None if no index can."""
    ways = alternatives(where)
    if len(ways) > 1:
        return None  # (each alternative might need another one)
    types, lead, ranged = _bounding(conditions(ways[0]))
    if not lead and not ranged:
        return None
    for attr in (step.attr for step in order):
        name = field_name(attr)
        if name is None or attr.part or attr.path or model.optional(name) or not attr.type.keyable:
            continue  # (what may be missing would not be in the index)
        types.setdefault(name, attr.type)
        ranged += [] if name in lead else [name]
    return _declaration(model, types, lead, ranged[:1])


def _bounding(way: Conditions) -> tuple[dict[str, ValueType], list[str], list[str]]:
    """Return the types of fields that conditions bound in an index, those that may lead it, and those for a range."""
    types = {
        name: leaf.attr.whole.type
        for leaf, name in way.fields.items()
        if isinstance(leaf, Leaf) and _fits(leaf.attr, contains=name in way.elements)
    }
    elements = [name for name in way.elements if name in types][:1]  # (an index fans out over one list)
    lists = [name for name, values in way.among.items() if len(values) <= MAX_RANGES]
    lead = [name for name in (*way.equal, *elements, *lists) if name in types]
    return types, lead, [name for name in (*way.compared, *way.windows) if name in types and name not in lead]


def _declaration(model: Model, types: Mapping[str, ValueType], lead: Sequence[str], ranged: Sequence[str]) -> str:
    """Return the declaration of an index over fields, the last of which may be compared."""
    fields = [*lead, *ranged]
    # (One partition for all would be hot, and serve every query that nothing bounds by reading all of it.)
    partition, *row = fields if lead else [f"{model.declaration.arguments[0]}:shard({_SHARDS})", *fields]
    name = _free(
        "by_" + re.sub(r"\W", "_", "_and_".join(fields)), [*dir(model.cls), *(one.name for one in model.indexes)]
    )
    text = f'partition="{{{partition}}}"' + (f", row={_template(row)}" if row else "")
    if check_table_name(table := index_table(model.table, name)) is not None:
        plain = re.sub("[^A-Za-z0-9]", "", table)[:60]
        text += f', table="{_free(plain, [model.table, *(index.table for index in model.indexes)])}"'
    parameters = [written(types[field].element or types[field], model.cls) for field in fields]
    typed = "" if None in parameters else f"[{', '.join(map(str, parameters))}]"
    return f"{name} = tm.Index{typed}({text})"


def _fits(attr: Attr[Any, Any], *, contains: bool) -> bool:
    if any(set("{}[]:!.") & set(step) or not step for step in attr.path):
        return False  # (a template cannot name it)
    element = attr.type.element
    return element is not None if contains else attr.type.keyable


def _template(names: list[str]) -> str:
    texts = [f'"{{{name}}}"' for name in names]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _free(name: str, taken: Iterable[str]) -> str:
    """Return a name that is not taken, not even in other case; with a number if need be."""
    known = {one.lower() for one in taken}
    numbered = (f"{name}{number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one.lower() not in known)


def written(type: ValueType, cls: Any) -> str | None:
    """Return a type as the class body can name it; None if it is not known how."""
    if type.name == "int32":
        return "tm.Int32"
    kind: Any = type.enum or type.kind
    if type.enum is None and type.name != kind.__name__:
        return None  # a Literal
    known: Any = sys.modules.get(cls.__module__)
    for part in kind.__qualname__.split("."):
        known = getattr(known, part, None)
    hidden = kind.__qualname__.split(".")[0] in dir(cls)
    builtin = getattr(builtins, kind.__name__, None) is kind
    return kind.__qualname__ if (known is kind or builtin) and not hidden else None
