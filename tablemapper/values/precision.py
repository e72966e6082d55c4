"""Times that are cut when they are set: to seconds, milliseconds or microseconds."""

from __future__ import annotations

from datetime import time
from typing import Any

import attrs

from ..datetime_types import Builtin
from ..errors import safe_repr
from .scalars import ValueFault, ValueType, checked_load


@attrs.frozen
class Precision:
    """Says of an annotation how much of a time is kept: ``s``, ``ms`` or ``us``."""

    name: str


_STEPS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def with_precision(type: ValueType, precision: object) -> ValueType:
    """Return a type of times that are cut when they are set; raise `ValueFault` if there is none."""
    if type.plain.kind not in (Builtin.datetime, time) or type.element is not None:
        raise ValueFault(f"precision={safe_repr(precision)} is for datetime and time, this is {type.name}")
    step = _STEPS.get(precision) if isinstance(precision, str) else None
    if step is None or not isinstance(precision, str):
        raise ValueFault(f'precision={safe_repr(precision)}: expected "s", "ms" or "us"')
    plain = type.plain

    def check(value: Any) -> Any:
        value = plain.check(value)
        rest = value.microsecond % step
        return value.replace(microsecond=value.microsecond - rest) if rest else value

    name = f"{plain.name}[{precision}]"
    return attrs.evolve(
        plain, name=name, check=check, load=checked_load(name, lambda stored: check(plain.load(stored)), plain.store),
        fast=f"{plain.fast} and not {{v}}.microsecond % {step}", precision=precision, uncut=plain,
    )  # fmt: skip
