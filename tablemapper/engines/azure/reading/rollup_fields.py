"""Maintained fields: groups with the keys of the entities keep their values, and are read beside these."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ..tables.driver import Effects, read, side_by_side
from ..tables.reserved_names import HIDDEN_PREFIX
from ..tables.service import PARTITION, ROW, TYPE, AllOf, Entity, EntityPage, GetEntity, QueryEntities
from .filters import text, units

_FEW = 2  # groups of one partition that are read one by one


@attrs.frozen
class RollupField:
    """The groups that keep a field."""

    table: str
    property: str

    def members(self, group: Entity | None) -> Entity:
        """Return the members that an entity gets of the group with its key."""
        if group is None or HIDDEN_PREFIX in group:
            return {}
        return {name: group[name] for name in (self.property, self.property + TYPE) if name in group}


def completed(keepers: Sequence[RollupField], entities: Sequence[Entity], timeout: float) -> Effects[list[Entity]]:
    """Return entities, as they were read, with the fields that groups keep: a request for each of these and each partition."""
    if not keepers or not entities:
        return list(entities)
    partitions: dict[str, list[str]] = {}
    for entity in entities:
        partitions.setdefault(entity[PARTITION], []).append(entity[ROW])
    works = [_groups(keeper, *place, timeout) for keeper in keepers for place in partitions.items()]
    fields: dict[tuple[str, str], Entity] = {}
    for groups in (yield from side_by_side(works)):
        for key, members in groups.items():
            fields.setdefault(key, {}).update(members)
    return [{**entity, **fields.get((entity[PARTITION], entity[ROW]), {})} for entity in entities]


def _groups(
    keeper: RollupField, partition: str, rows: Sequence[str], timeout: float
) -> Effects[dict[tuple[str, str], Entity]]:
    """Return what the groups of some keys keep."""
    groups: list[Entity | None] = []
    if len(rows) <= _FEW:
        groups += yield from side_by_side([read(GetEntity(keeper.table, partition, row), timeout) for row in rows])
    else:
        where = AllOf((
            text(PARTITION, "eq", partition),
            text(ROW, "ge", min(rows, key=units)),
            text(ROW, "le", max(rows, key=units)),
        ))  # fmt: skip
        find: QueryEntities | None = QueryEntities(keeper.table, where)
        while find is not None:
            page: EntityPage = yield from read(find, timeout)
            groups += page.entities
            find = None if page.after is None else attrs.evolve(find, after=page.after)
    return {(group[PARTITION], group[ROW]): keeper.members(group) for group in groups if group is not None}
