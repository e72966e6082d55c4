"""Aggregates: what the store keeps up to date over groups of entities, and those that keep a field of an entity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from ..expressions.tree import Predicate
from ..owner_cache import cached_on_owner
from .declaration import AbstractDeclaration, Declaration, declaration_of
from .entity import Record
from .fields import FIELD, FieldModel, SourceName
from .key import Key
from .key_and_indexes import index_table
from .measures import aggregate_faults, measures_of


class Aggregate(Record):
    """A class of exact totals over groups of entities, which the store maintains in the same transaction::

        class DailyClimate(tm.Aggregate, of=Reading, table="DailyClimate"):
            device_id: tm.Field[str] = tm.group_by(Reading.device_id)
            day: tm.Field[date] = tm.group_by(Reading.taken_at.date())
            readings: tm.Field[int] = tm.count()
            hottest: tm.Field[float | None] = tm.max(Reading.temperature)

            key = tm.Key[str, date](partition="{device_id}", row="{day}")

    Read it like an entity; only the store writes it. ``where=lambda r: …`` excludes entities.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __init_subclass__(
            cls,
            *,
            of: type[Any] | None = None,
            table: str | None = None,
            where: Callable[[Any], Predicate[Any]] | None = None,
            accept: Mapping[str, str] | None = None,
        ) -> None: ...

    @classmethod
    def _faults(cls, declaration: AbstractDeclaration) -> list[str]:
        return [] if declaration.table is None else aggregate_faults(declaration)


@cached_on_owner
def keepers(cls: type[Any]) -> tuple[type[Aggregate], ...]:
    """Return the aggregates that keep the maintained fields of a class of entities, one for each field.

    There are none for a class that was made of a catalogue's form: it only names its source.
    """
    declaration = declaration_of(cls)
    return tuple([_keeper(declaration, field) for field in declaration.maintained if not is_named(field)])


def is_named(field: FieldModel) -> bool:
    """Return whether the source of a maintained field is only named: its class was made of a catalogue's form."""
    return field.measure is not None and isinstance(field.measure.of, SourceName)


def _keeper(declaration: Declaration, field: FieldModel) -> type[Aggregate]:
    assert field.measure is not None
    measures = measures_of(declaration, field)
    body: dict[str, Any] = {
        **measures,
        "__annotations__": {name: Annotated[declaration.field(name).annotation, FIELD] for name in measures},
        "__module__": declaration.cls.__module__,
        "key": Key(partition=declaration.partition.text, row=declaration.row.text),
    }
    name = f"{declaration.name}_{field.property}"  # what is generated for a class has its name, which must be one
    make: Any = type(Aggregate)
    keeper: type[Aggregate] = make(
        name, (Aggregate,), body, of=field.measure.of, table=index_table(declaration.table, name)
    )
    keeper.__name__ = keeper_name(declaration.name, field.property)
    return keeper


def keeper_name(cls: str, property: str) -> str:
    """Return the name of the aggregate that keeps a maintained field."""
    return f"{cls}:{property}"


def kept_field(name: str) -> tuple[str, str] | None:
    """Return the class and the property that the aggregate of a name keeps; None if it is none of these."""
    cls, colon, property = name.partition("#")[0].partition(":")
    return (cls, property) if colon else None
