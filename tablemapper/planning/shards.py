"""Shards that spread the rows of one partition, whatever values they have."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from ..datetime_types import Builtin
from ..entities.declaration import Declaration
from ..keys.template import Slot

_SHARDS = 16
_SHARDS_OF_TWO = 4  # of two fields


def spreading(slots: Iterable[Slot], declaration: Declaration) -> tuple[str, ...]:
    """Return components of a template that spread rows which differ in some slots; queries name none of them.

    A field that tells all rows apart spreads them: the only one, a UUID, one with a factory, or a moment. Of other fields
    nobody knows which one does, as most rows may have the same value. The first and the last one share the work then.
    """
    fields = {field.name: field for field in declaration.fields}
    by_field = {slot.field: slot for slot in slots if not slot.buckets}
    names = list(by_field)

    def of(*kinds: type) -> list[str]:
        return [name for name in names if by_field[name].text.base in kinds]

    generated = [name for name in names if name in fields and fields[name].factory is not None]
    sure = [*of(UUID), *generated, *of(Builtin.datetime)] if len(names) > 1 else names
    many = [name for name in of(str, int) if name not in fields or fields[name].type.members is None]
    if sure:
        return (f"{{{sure[0]}:shard({_SHARDS})}}",)
    ends = dict.fromkeys([*(many or names)[:1], *(many or names)[-1:]])
    return tuple([f"{{{name}:shard({_SHARDS if len(ends) == 1 else _SHARDS_OF_TWO})}}" for name in ends])
