"""The type of the times that a store gives."""

from __future__ import annotations

from datetime import UTC, timedelta

import attrs

from ..datetime_types import Builtin
from .scalars import SCALARS

_EPOCH = Builtin.datetime(1970, 1, 1, tzinfo=UTC)
TIMESTAMP = attrs.evolve(
    SCALARS[Builtin.datetime],
    store=lambda value: (value - _EPOCH) // timedelta(microseconds=1), load=lambda stored: _EPOCH + timedelta(0, 0, stored),
    fast="False", reads="{epoch} + {span}(0, 0, {v})", objects={"epoch": _EPOCH, "span": timedelta},
    key_text=False, cuttable=False, keyable=False, sql_in_json=False,
)  # fmt: skip
"""The type of what the store notes of each write: a time, stored as microseconds since 1970."""
