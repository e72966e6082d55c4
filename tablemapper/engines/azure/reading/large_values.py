"""Large values in selected properties: a class that does not declare them as large has selected their first pieces alone."""

from __future__ import annotations

from collections.abc import Sequence

from ..tables.driver import Effects, read, side_by_side
from ..tables.entity_json import is_continued
from ..tables.service import PARTITION, ROW, Entity, GetEntity


def read_with_pieces(
    table: str, names: Sequence[str], entities: Sequence[Entity], timeout: float
) -> Effects[list[Entity]]:
    """Return entities; those that have a full first piece are read again, with all of their properties.

    Args:
        table: of the entities.
        names: the selected properties that may have pieces which were not selected.
        entities: as they came.
        timeout: seconds after which no answer is waited for any more.
    """
    places = [at for at, entity in enumerate(entities) if any(is_continued(entity, name) for name in names)]
    works = [read(GetEntity(table, entities[at][PARTITION], entities[at][ROW]), timeout) for at in places]
    if not works:
        return list(entities)
    replacements: dict[int, Entity | None] = dict(zip(places, (yield from side_by_side(works)), strict=True))
    current = [replacements.get(at, entity) for at, entity in enumerate(entities)]
    return [entity for entity in current if entity is not None]  # (others were deleted meanwhile)
