"""Predicates as SQL: exactly what they say, or a superset that is checked again after reading."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import attrs

from ....expressions.tree import And, Attr, Compare, Contains, In, IsNull, Not, Or, Parameter, Predicate, StartsWith
from ....keys.encodings import successor
from ....keys.template import Template
from ....keys.times import UNITS, split_format
from ....schema.model import Model
from ....values.scalars import ValueType
from ....values.timestamp import TIMESTAMP
from ..driver.functions import SqlFunction

MAX_LIST = 1000  # values of an is_in that SQL gets
_ABOVE_TEXT = b""  # a BLOB sorts above every text
_BELOW_LOWER, _ABOVE_UPPER = 1 - 1e-14, 1 + 1e-14  # how far a Decimal, read as REAL, can be off, and more

Column = Callable[[str], str | None]
"""A function from a field's name to the SQL of its stored property; None if rows have no such column."""
Argument = tuple[Parameter, Callable[[Any], Any]]


@attrs.frozen(eq=False)
class Condition:
    """A condition in SQL, the functions from values to its arguments, and whether it is as strict as the predicate."""

    sql: str
    arguments: tuple[Argument, ...] = ()
    exact: bool = True

    def values(self, values: Sequence[Any]) -> list[Any]:
        """Return the arguments for a query."""
        return [convert(values[parameter.number]) for parameter, convert in self.arguments]


def value_sql(attr: Attr[Any, Any], model: Model, column: Column) -> str | None:
    """Return SQL for an attribute if its stored form compares as its values do, else None."""
    field = model.declaration.field(attr.name)
    sql = column(attr.name)
    if sql is None or field.wide:  # (it may be text)
        return None
    if attr.part is not None:
        return _cut_sql(sql, attr.part.plain_format) if attr.part.plain_format else None
    if attr.path:
        if not attr.type.sql_in_json:
            return None
        path = field.type.json_path(attr.path)
        # (SQLite takes a backslash for the beginning of an escape, ends a statement at a NUL, and knows no surrogate.)
        if not path.isprintable() or {"'", "\\"} & {*path}:
            return None
        if _is_of_entries(field.type, attr.path):
            sql = f"iif(instr({sql}, '\\u0000'), {_WITHOUT_NUL.sql(sql)}, {sql})"
        return f"json_extract({sql}, '{path}')"
    return sql if attr.type.kind is not object and attr.type.sql_ordered else None


def _is_of_entries(type: ValueType, path: Sequence[str]) -> bool:
    """Return whether a step of a path is the key of an entry, which can be any text."""
    for name in path:
        if type.container is dict:
            return True
        type = type.member_type(name)
    return False


def _without_nul(text: str) -> str:
    """Return JSON without the members that have a NUL in their names: SQLite compares a name up to that."""
    return json.dumps(json.loads(text, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if "\0" not in k}))


_WITHOUT_NUL = SqlFunction(_without_nul)


def lower_key(predicate: Predicate[Any], keys: Iterable[tuple[str, Template]]) -> Condition | None:
    """Return an equality as SQL over a key, for a field with a literal behind it: a range also includes longer texts.

    Args:
        keys: the SQL of each key, with its template.
    """
    if not isinstance(predicate, Compare) or predicate.op != "==" or not isinstance(predicate.value, Parameter):
        return None
    attr = predicate.attr
    if attr.part or attr.type.dynamic or attr.type.element is not None:
        return None
    for sql, template in keys:
        start = 0
        for part in template.parts if len(template.components) == 1 else ():
            if isinstance(part, str):
                start += len(part)
                continue
            if part.lossless and part.after and part.field == ".".join((attr.name, *attr.path)):
                text = f"substr({sql}, {start + 1}, length({sql}) - {start + part.after})"
                return Condition(f"{text} = ?", ((predicate.value, part.written),))
            if part.text.fixed is None:
                break
            start += part.text.fixed
    return None


def _cut_sql(sql: str, format: str) -> str:
    """Return SQL for a stored time in another format: each part has a fixed position in the stored text."""

    def piece(part: str) -> str:
        if (unit := UNITS.get(part)) is not None:
            if unit.place is not None:
                return f"substr({sql}, {unit.place + 1}, {unit.width})"
            if part == "%q":
                return f"(substr({sql}, 6, 2) * 3 / 10 + 1)"
            return f"strftime('{part}', substr({sql}, 1, 10))"
        return "'" + part.replace("'", "''") + "'"

    return " || ".join(map(piece, split_format(format)))


def lower(predicate: Predicate[Any], model: Model, column: Column) -> Condition | None:
    """Return a predicate as SQL that holds at least where the predicate does; None if there is no such SQL."""
    match predicate:
        case And(parts=parts):
            lowered = [lower(part, model, column) for part in parts]
            compiled = [part for part in lowered if part is not None]
            conjunction = _combined(compiled, " AND ") if compiled else Condition("TRUE")
            return conjunction if len(compiled) == len(parts) else attrs.evolve(conjunction, exact=False)
        case Or(parts=parts):
            lowered = [lower(part, model, column) for part in parts]
            compiled = [part for part in lowered if part is not None]
            if len(compiled) < len(parts):
                return None
            return _combined(compiled, " OR ") if compiled else Condition("FALSE")
        case Not(part=part):
            negated = lower(part, model, column)
            if negated is None or not negated.exact:
                return None  # (the complement of a superset would lack rows)
            return Condition(f"({negated.sql}) IS NOT TRUE", negated.arguments)
        case IsNull(attr=attr):
            sql = column(attr.name) if not attr.path else value_sql(attr, model, column)
            return None if sql is None else Condition(f"({sql}) IS NULL")
        case Contains(attr=attr):
            return _contains(predicate, attr, column)
        case Compare(attr=attr, op=op, value=Attr() as right_attr):
            if (attr.type is TIMESTAMP) is not (right_attr.type is TIMESTAMP):
                return None  # (one is a number in the table, the other one text)
            left, right = value_sql(attr, model, column), value_sql(right_attr, model, column)
            return None if left is None or right is None else Condition(f"({left}) {_OPS[op]} ({right})")
        case Compare(attr=attr, op=op, value=value):
            if attr.type.kind is Decimal and not attr.path:
                return _decimal(attr, op, value, column)
            sql = value_sql(attr, model, column)
            return None if sql is None else Condition(f"({sql}) {_OPS[op]} ?", ((value, attr.type.store),))
        case In(attr=attr, values=values):
            sql = value_sql(attr, model, column)
            if sql is None or len(values) > MAX_LIST:
                return None
            places = ", ".join("?" * len(values))
            return Condition(f"({sql}) IN ({places})", tuple((value, attr.type.store) for value in values))
        case StartsWith(attr=attr, text=text):
            sql = value_sql(attr, model, column)
            return (
                None if sql is None else Condition(f"({sql}) >= ? AND ({sql}) < ?", ((text, str), (text, _upper_bound)))
            )
    return None


_OPS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def _upper_bound(prefix: str) -> str | bytes:
    above = successor(prefix)
    return _ABOVE_TEXT if above is None else above


def _contains(predicate: Contains[Any], attr: Attr[Any, Any], column: Column) -> Condition | None:
    sql = column(attr.name)
    if sql is None or attr.path or attr.part:
        return None
    element = attr.type.element
    if element is None:
        return Condition(f"instr({sql}, ?) > 0", ((predicate.value, str),))
    if not element.sql_in_json:
        return None
    return Condition(
        f"EXISTS (SELECT 1 FROM json_each({sql}) e WHERE e.value = ?)", ((predicate.value, element.store),)
    )


def _decimal(attr: Attr[Any, Any], op: str, value: Any, column: Column) -> Condition | None:
    """Return a range of REALs that holds at least what a comparison of Decimals does."""
    if (sql := column(attr.name)) is None or op == "!=":
        return None
    number = f"CAST({sql} AS REAL)"
    steps: list[str] = []
    arguments: list[Argument] = []
    scalar = attr.type.scalar_of
    if op in (">", ">=", "=="):
        steps.append(f"{number} >= ?")
        arguments.append((value, lambda parameter: _below(scalar(parameter))))
    if op in ("<", "<=", "=="):
        steps.append(f"{number} <= ?")
        arguments.append((value, lambda parameter: _above(scalar(parameter))))
    return Condition(" AND ".join(steps), tuple(arguments), exact=False)


def _below(value: Decimal) -> float:
    number = float(value)
    return math.nextafter(number * (_BELOW_LOWER if number > 0 else _ABOVE_UPPER), -math.inf)


def _above(value: Decimal) -> float:
    number = float(value)
    return math.nextafter(number * (_ABOVE_UPPER if number > 0 else _BELOW_LOWER), math.inf)


def _combined(parts: list[Condition], word: str) -> Condition:
    sql = balanced([part.sql for part in parts], word)
    return Condition(
        f"({sql})", tuple([a for part in parts for a in part.arguments]), all(part.exact for part in parts)
    )


def balanced(parts: list[str], word: str) -> str:
    """Return SQL joined in a balanced tree: SQLite refuses an expression more than 1,000 deep."""
    while len(parts) > 1:
        parts = [f"({word.join(parts[at : at + 2])})" for at in range(0, len(parts), 2)]
    return parts[0]
