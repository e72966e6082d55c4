"""Rows that others than writes change: a copy takes over what ever was, a repair corrects a group, a build begins anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs

from ...errors import CorruptStore, StoreError
from ...schema.aggregate_model import Delta
from ...schema.maintenance import IndexMaintenance
from ...schema.model import Model, is_local
from .catalogue.open_classes import OpenClasses
from .cross_partition.intent_execution import carry_out, deleted
from .cross_partition.marks import MaintainedPart
from .cross_partition.outbox import CommittedIntent, Deadline, DeadlineExceeded, Intent, Outbox
from .cross_partition.remote_groups import GroupMaintenance, changed, correction, read_group, unread_group
from .reading.filters import visible
from .reading.scans import in_range, is_index_row
from .tables import service
from .tables.driver import Effects, in_batches, read
from .tables.reserved_names import BASE_PARTITION, BASE_ROW, INTENTS, MARKS, PAGES, STATE, index_prefix, is_page
from .tables.service import ETAG, PARTITION, ROW, Entity

MOST_PAGES = 40  # of the values of a group, in one transaction


@attrs.frozen
class GroupWriter:
    """Changes rows beside writers, so that each change may be made many times.

    Args:
        classes: what is maintained.
        outbox: of the process.
        patience: until when something is sent.
        timeout: seconds after which to give up, if no answer comes.
    """

    classes: OpenClasses
    outbox: Outbox
    patience: Deadline
    timeout: float

    def write(
        self,
        upkeep: GroupMaintenance,
        key: tuple[str, str],
        group_row: Entity | None,
        change: service.RowChange,
        pages: Sequence[service.RowChange] = (),
    ) -> Effects[None]:
        """Change a group, its pages, and what indexes have of it, under the ETag that it was read with.

        Raises:
            Late, Lost, Refused
        """
        intent = Intent(upkeep.aggregate.model.table, key[0], self.outbox.new_op())
        changes = yield from upkeep.change(key, group_row, change, intent, self.timeout, may_lack_rows=True)
        changes += pages
        if intent:
            yield from self.outbox.name(self.patience, intent)
        yield from self.patience.check()
        etags = yield service.GroupTransaction(intent.table, intent.partition, tuple(changes))
        if intent:
            committed = CommittedIntent.of(intent, self.patience, changes, etags)
            yield from carry_out([intent], self.classes, self.patience, self.timeout, self.outbox)
            if not self.patience.doubt:
                self.outbox.finish(committed)

    def add(
        self, upkeep: GroupMaintenance, key: tuple[str, str], delta: Delta | None, group_row: Entity | None
    ) -> Effects[None]:
        """Add a delta to a group, however often others change it meanwhile; None: take all entities out, and forget its pages.

        Raises:
            Late
        """
        attempt, aggregate = 0, upkeep.aggregate
        table = aggregate.model.table
        while True:
            pages: Sequence[service.RowChange] = ()
            try:
                if delta is None:
                    group = unread_group(aggregate, key, group_row)
                    change = changed(group, [correction(group, aggregate.aggregate.zero())], 0, anyway=True)
                else:
                    group = yield from read_group(aggregate, key, group_row, [delta], self.timeout)
                    change = changed(group, [delta], MOST_PAGES)
                group_row, pages = group.row_read, group.values.changes()
            except CorruptStore:
                if group_row is None or STATE not in group_row:  # (what is no group is not deleted)
                    raise
                change, group_row = service.RowChange("delete", key[1], {}, group_row[ETAG]), None
            if change is None:
                return
            try:
                yield from self.write(upkeep, key, group_row, change, pages)
            except service.NoResponse as no_response:
                yield from self.patience.again(attempt, no_response)
            except service.ErrorResponse as refusal:
                if refusal.status not in (404, 409, 412) or refusal.code == "TableNotFound":
                    raise
                yield from self.patience.again(min(attempt, 3))
            else:
                return
            attempt += 1
            group_row = yield from read(service.GetEntity(table, *key), self.timeout)

    def emptied(self, part: MaintainedPart) -> Effects[None]:
        """Delete the rows of an index, or take all entities out of the groups of an aggregate; what ever was stays.

        Args:
            part: to which nobody adds anything meanwhile.

        Raises:
            Late: not all is done.
        """
        if isinstance(part, IndexMaintenance):
            local, front = is_local(part.owner, part.model), index_prefix(part.label)
            rows = front, f"{front[:-1]}{chr(ord(front[-1]) + 1)}"
            find = in_range(part.owner.table, rows) if local else service.QueryEntities(part.model.table)
            yield from self._deleted(find, partial(is_index_row, remote=not local))
            return
        is_of = partial(self._is_of, part.model)
        yield from self._deleted(in_range(part.model.table, PAGES), is_of)
        find, upkeep = service.QueryEntities(part.model.table, visible()), self.classes.upkeep(part)
        keys = set[tuple[str, str]]()
        while True:
            page: service.EntityPage = yield from read(find, self.timeout)
            yield from self.patience.check()
            groups = [entity for entity in page.entities if STATE in entity and is_of(entity)]
            works = [self.add(upkeep, (entity[PARTITION], entity[ROW]), None, entity) for entity in groups]
            yield from in_batches(works)
            keys.update([(entity[PARTITION], entity[ROW]) for entity in groups])
            if page.after is None:
                break
            find = attrs.evolve(find, after=page.after)

        def is_dangling(entity: Entity) -> bool:
            return is_index_row(entity, remote=True) and (entity[BASE_PARTITION], entity[BASE_ROW]) not in keys

        for index in self.classes.maintained(part.model).indexes:
            if not is_local(part.model, index.model):  # (of groups whose table somebody has deleted)
                yield from self._deleted(service.QueryEntities(index.model.table), is_dangling)

    def erased(self, model: Model, *, alone: bool) -> Effects[None]:
        """Delete the entities of a class, or the groups of an aggregate, that nobody writes any more, and their rows in indexes.

        Args:
            model: the class.
            alone: whether no other class has entities in its table.

        Raises:
            Late: not all is done.
        """
        for index in self.classes.maintained(model).indexes:
            yield from self.emptied(index)

        def is_of(row: Entity) -> bool:
            return self._is_of(model, row) or (alone and row[ROW].startswith((INTENTS[0], MARKS[0])))

        yield from self._deleted(service.QueryEntities(model.table), is_of)

    def _is_of(self, model: Model, entity: Entity) -> bool:
        """Return whether a row is an entity of a class, or of a group the row or a page."""
        row = entity.get(BASE_ROW) if is_page(entity[ROW]) else entity[ROW]
        return isinstance(row, str) and self.classes.claims(model, entity[PARTITION], row)

    def _deleted(self, find: service.QueryEntities, is_chosen: Callable[[Entity], bool]) -> Effects[None]:
        """Delete the rows that a request finds, and a function chooses, unless they were written since."""
        while True:
            page: service.EntityPage = yield from read(find, self.timeout)
            yield from self.patience.check()
            places: dict[str, list[service.RowChange]] = {}
            for entity in filter(is_chosen, page.entities):
                places.setdefault(entity[PARTITION], []).append(
                    service.RowChange("delete", entity[ROW], {}, entity[ETAG])
                )
            works = [deleted(self.patience, find.table, partition, changes) for partition, changes in places.items()]
            yield from in_batches(works)
            if page.after is None:
                return
            find = attrs.evolve(find, after=page.after)

    def widened(self, upkeep: GroupMaintenance, key: tuple[str, str], delta: Delta) -> Effects[None]:
        """Add a delta of ``_ever`` measures to a group; it may be added many times.

        Raises:
            StoreError: no answer came, or others write the group all the time.
        """
        group_row = yield from read(service.GetEntity(upkeep.aggregate.model.table, *key), self.timeout)
        try:
            yield from self.add(upkeep, key, delta, group_row)
        except DeadlineExceeded:
            raise StoreError(
                f"{upkeep.aggregate.model.name} {key}: others write this group all the time, or no answer comes; copy again"
            ) from None
