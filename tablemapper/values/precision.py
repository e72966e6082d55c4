"""Times that are cut: to what a field keeps of them, and to microseconds, which is all that a store keeps.

The digits of a time behind the sixth are dropped in each way in, never rounded: so no time comes into the next year.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import time, timedelta
from typing import Any, Final

import attrs

from ..datetime_types import Builtin
from ..errors import safe_repr
from .scalars import ValueFault, ValueType, checked_load

TIMES = (Builtin.datetime, time, timedelta)
"""The types that can be finer than a microsecond in other programs."""
_TOO_FINE = re.compile(r"(\.\d{6})\d+")
may_be_too_fine: Final = re.compile(rb"\.\d{7}").search
"""Whether JSON can hold a time that is finer than a microsecond."""


def cut_text(text: str) -> str:
    """Return the text of a time, or of a duration, without what is finer than a microsecond."""
    return _TOO_FINE.sub(r"\1", text)


def cut_ticks(ticks: Iterable[int | None], *, span: bool) -> list[int | None]:
    """Return microseconds of nanoseconds.

    Args:
        span: whether they are durations, of which a negative one is cut towards 0.
    """
    return [None if tick is None else -(-tick // 1_000) if span and tick < 0 else tick // 1_000 for tick in ticks]


@attrs.frozen
class Precision:
    """Says of an annotation how much of a time is kept: ``s``, ``ms`` or ``us``."""

    name: str


_STEPS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def with_precision(type: ValueType, precision: object) -> ValueType:
    """Return a type of times that are cut when they are set; raise `ValueFault` if there is none."""
    if type.plain.kind not in (Builtin.datetime, time) or type.element is not None or type.own is not None:
        raise ValueFault(f"precision={safe_repr(precision)} is for datetime and time, this is {type.name}")
    step = _STEPS.get(precision) if isinstance(precision, str) else None
    if step is None or not isinstance(precision, str):
        raise ValueFault(f'precision={safe_repr(precision)}: expected "s", "ms" or "us"')
    plain = type.plain

    def check(value: Any) -> Any:
        value = plain.check(value)
        excess = value.microsecond % step
        return value.replace(microsecond=value.microsecond - excess) if excess else value

    name = f"{plain.name}[{precision}]"
    return attrs.evolve(
        plain, name=name, check=check, load=checked_load(name, lambda stored_form: check(plain.load(stored_form)), plain.store),
        fast=f"{plain.fast} and not {{v}}.microsecond % {step}", precision=precision, uncut=plain,
    )  # fmt: skip
