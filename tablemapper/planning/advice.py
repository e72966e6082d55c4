"""What to tell somebody whose query would read a whole table: the declaration that would serve it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..expressions.tree import Attr, Order
from ..schema.model import Model
from .conditions import AnyPredicate, alternatives, conditions, field_name

__all__ = ["refusal"]


def refusal(
    model: Model, where: tuple[AnyPredicate, ...], order: tuple[Order[Any], ...], refused: Iterable[str]
) -> str:
    """Return why a query is refused, and an index to declare, ready to paste into the class."""
    slots = model.declaration.templates[0].slots
    lines = [
        f"{model.name}: no key or index bounds this query, so it would read the whole table",
        f"  {model.name}.key needs a condition on {slots[0].field if slots else 'its row key'}",
        *(f"  {why}" for why in refused),
    ]
    index = _index(model, where, order)
    if index is None:
        lines.append("add conditions, or read it all with .allow_scan()")
    else:
        lines += ["this index would serve it:", f"    {index}", "or read it all with .allow_scan()"]
    return "\n".join(lines)


def _index(model: Model, where: tuple[AnyPredicate, ...], order: tuple[Order[Any], ...]) -> str | None:
    """Return the declaration of an index that bounds the query, None if no index can."""
    ways = alternatives(where)
    if len(ways) > 1:
        return None  # (each alternative might need another one)
    way = conditions(ways[0])
    attrs = {name: attr for p, name in way.said_by.items() if isinstance(attr := getattr(p, "attr", None), Attr)}
    attrs = {name: attr for name, attr in attrs.items() if _fits(attr, contains=name in way.elements)}
    lead = [name for name in (*way.equal, *way.elements, *way.among) if name in attrs]
    ranged = [name for name in way.compared if name in attrs and name not in lead]
    if not lead and not ranged:
        return None
    ordered = [name for step in order if (name := field_name(step.attr)) is not None and name not in lead]
    ordered = [name for name in ordered if not model.optional(name.partition(".")[0])]
    partition = lead[:1] or [""]
    row = [*lead[1:], *(ranged[:1] or ordered[:1])]
    types = [attrs[name].type if name in attrs else model.declaration.field(name).type for name in (*lead[:1], *row)]
    names = [_type_name(one.element or one) for one in types]
    text = f'partition="{{{partition[0]}}}"' if lead else 'partition="all"'
    if row:
        text += f", row={_template(row)}"
    name = "by_" + "_and_".join(one.replace(".", "_") for one in (*lead[:1], *row))
    return f"{name} = tm.Index[{', '.join(names)}]({text})"


def _fits(attr: Attr[Any, Any], *, contains: bool) -> bool:
    element = attr.type.element
    return element is not None if contains else attr.type.keyable


def _template(names: list[str]) -> str:
    texts = [f'"{{{name}}}"' for name in names]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _type_name(type: Any) -> str:
    name: str = type.name if type.enum is None else type.enum.__name__
    return {"int32": "tm.Int32"}.get(name, name)
