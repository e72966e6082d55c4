"""Large values in selected properties: a class that does not declare them as large has selected their first pieces alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....pieces import SHORT
from ..tables.driver import Effects, read, side_by_side
from ..tables.entity_json import is_continued
from ..tables.service import PARTITION, ROW, Entity, GetEntity


def continued(entities: Sequence[Entity], names: Sequence[str]) -> set[int]:
    """Return which entities have a full first piece in one of some properties, whose other pieces were not selected."""
    return {
        at
        for name in names
        for at, entity in enumerate(entities)
        if isinstance(value := entity.get(name, ""), str) and len(value) > SHORT and is_continued(entity, name)
    }


def read_with_pieces(
    table: str, entities: Sequence[Entity], places: Collection[int], timeout: float
) -> Effects[list[Entity]]:
    """Return entities, some of which are read again with all of their properties.

    Args:
        table: of the entities.
        entities: as they came.
        places: which of them are read again.
        timeout: seconds after which no answer is waited for any more.
    """
    works = [read(GetEntity(table, entities[at][PARTITION], entities[at][ROW]), timeout) for at in places]
    replacements: dict[int, Entity | None] = dict(zip(places, (yield from side_by_side(works)), strict=True))
    current = [replacements.get(at, entity) for at, entity in enumerate(entities)]
    return [entity for entity in current if entity is not None]  # (others were deleted meanwhile)
