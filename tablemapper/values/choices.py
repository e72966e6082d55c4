"""The types of values that are one of a few: Enums and Literals."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import attrs

from ..errors import safe_repr
from .scalars import SCALARS, ValueFault, ValueType, checked_load, unexpected

_PLAIN_WORD = re.compile(r"[\w.-]+").fullmatch


def enum_type(enum: type[Enum]) -> ValueType:
    values = [member.value for member in enum]
    kind = str if values and type(values[0]) is str else int
    if not values or any(type(value) is not kind for value in values):
        raise ValueFault(f"the values of the Enum {enum.__name__} must all be str, or all int")
    base = SCALARS[kind]
    for member in enum:
        base.check(member.value)
    members = _Members(enum)
    member_list = ",".join(
        f"{member.name}={value if _PLAIN_WORD(str(value)) else repr(value)}"
        for member, value in zip(enum, values, strict=True)
    )

    def check(value: Any) -> Enum:
        if value.__class__ is enum or isinstance(value, enum):
            return value
        names = ", ".join(f"{enum.__name__}.{member.name}" for member in enum)
        near = members.member_of(value)
        raise unexpected(f"one of {names}", value, f"use {enum.__name__}.{near.name}" if near is not None else "")

    load = checked_load(f"a member of {enum.__name__}", members.__getitem__, _enum_value)
    return ValueType(
        f"enum[{enum.__name__}: {kind.__name__} {member_list}]", kind, base.edm, check, _enum_value, load, _enum_value, load,
        fast="{v}.__class__ is {enum}", writes="{v}._value_", reads="{members}[{v}]", encodes="{v}._value_",
        objects={"enum": enum, "members": members}, ordered=issubclass(enum, kind), sql_ordered=issubclass(enum, kind),
        key_kind=enum, fixed=base.fixed, enum=enum, members=sorted(values),
    )  # fmt: skip


def _enum_value(value: Any) -> Any:
    return value._value_


class _Members(dict[Any, Any]):
    """The members of an Enum by their values."""

    def __init__(self, enum: type[Enum]) -> None:
        super().__init__((member.value, member) for member in enum)
        self.enum = enum

    def member_of(self, value: Any) -> Any:
        try:
            return self.get(value)
        except TypeError:
            return None

    def __missing__(self, value: Any) -> Any:
        try:
            return self.enum(value)
        except ValueError:
            raise ValueFault(f"{safe_repr(value)} is not the stored form of a member of {self.enum.__name__}") from None


def literal_type(values: tuple[Any, ...]) -> ValueType:
    if not values:
        raise ValueFault("a Literal needs a value besides None")
    kind = type(values[0])
    if kind not in (str, int) or any(type(value) is not kind for value in values):
        raise ValueFault("the values of a Literal must all be str, or all int")
    base, allowed = SCALARS[kind], frozenset(map(SCALARS[kind].check, values))
    value_list = ", ".join(map(repr, sorted(values)))

    def check(value: Any) -> Any:
        if value.__class__ is bool or not isinstance(value, kind) or (plain := base.check(value)) not in allowed:
            raise unexpected(f"one of {value_list}", value)
        return plain

    load = checked_load(f"one of {value_list}", check, base.store)
    return attrs.evolve(
        base, name=f"literal[{value_list}]", check=check, load=load, from_json=load, members=sorted(allowed),
        fast="{v}.__class__ is {kind} and {v} in {allowed}", objects={"kind": kind, "allowed": allowed},
        spillable=False, text=False, summable=False, calculable=False, sql_in_json=False,
    )  # fmt: skip
