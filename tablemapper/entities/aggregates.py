"""Aggregates: entities that the store keeps up to date over groups of other entities, and what may be declared so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..expressions.tree import Predicate
from .declaration import AbstractDeclaration
from .entity import Record
from .measures import aggregate_faults

__all__ = ["Aggregate"]


class Aggregate(Record):
    """A class of entities that the store maintains over groups of others, exactly, in the same transaction::

        class DailyClimate(tm.Aggregate, of=Reading, table="DailyClimate"):
            device_id: tm.Field[str] = tm.group_by(Reading.device_id)
            day: tm.Field[date] = tm.group_by(Reading.taken_at.date())
            readings: tm.Field[int] = tm.count()
            hottest: tm.Field[float | None] = tm.max(Reading.temperature)

            key = tm.Key[str, date](partition="{device_id}", row="{day}")

    It is read as any entity is, and never written by users. ``where=lambda r: …`` leaves entities out.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __init_subclass__(
            cls,
            *,
            of: type[Any] | None = None,
            table: str | None = None,
            where: Callable[[Any], Predicate[Any]] | None = None,
        ) -> None: ...

    @classmethod
    def _faults(cls, declaration: AbstractDeclaration) -> list[str]:
        return [] if declaration.table is None else aggregate_faults(declaration)
