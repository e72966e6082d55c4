"""Rows that others than writes change: a copy takes over what ever was, a repair corrects a group, a build begins anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from ...errors import CorruptStore, StoreError
from ...schema.groups import Delta
from ...schema.maintenance import IndexMaintenance
from ...schema.model import Model, is_local
from .catalogue.classes import Classes
from .outer.finishing import carry_out, deleted
from .outer.groups import Upkeep, changed, correction, read_group, unread_group
from .outer.marks import Part
from .outer.outbox import Intent, Late, Outbox, Patience
from .reading.filters import visible
from .reading.scans import in_range
from .tables.drive import Work, read, side_by_side
from .tables.names import BASE_ROW, PAGES, index_prefix, is_page
from .tables.service import ETAG, PARTITION, ROW, Change, Commit, Entity, Find, Get, Lost, Page, Refused

_TOGETHER = 16  # groups
MOST_PAGES = 40  # of the values of a group, in one transaction


@attrs.frozen
class Overwriter:
    """Changes rows beside writers, so that each change may be made many times.

    Args:
        classes: what is maintained.
        outbox: of the process.
        patience: until when something is sent.
        timeout: seconds after which to give up, if no answer comes.
    """

    classes: Classes
    outbox: Outbox
    patience: Patience
    timeout: float

    def write(
        self, upkeep: Upkeep, key: tuple[str, str], found: Entity | None, change: Change, pages: Sequence[Change] = ()
    ) -> Work[None]:
        """Change a group, its pages, and what indexes have of it, under the ETag that it was read with.

        Raises:
            Late, Lost, Refused
        """
        table = upkeep.aggregate.model.table
        intent = Intent(table, key[0], self.outbox.new_op())
        changes = yield from upkeep.change(key, found, change, intent, self.timeout, lost=True)
        if intent:
            yield from self.outbox.name(self.patience, table, key[0])
        yield from self.patience.check()
        yield Commit(table, key[0], (*changes, *pages))
        if intent:
            yield from carry_out([intent], self.classes, self.patience, self.timeout, self.outbox)
            if not self.patience.doubt:
                yield from deleted(self.patience, table, key[0], [Change("delete", intent.row, {}, "*")])

    def add(self, upkeep: Upkeep, key: tuple[str, str], delta: Delta | None, found: Entity | None) -> Work[None]:
        """Add a delta to a group, however often others change it meanwhile; None: take all entities out, and forget its pages.

        Raises:
            Late
        """
        attempt, aggregate = 0, upkeep.aggregate
        table = aggregate.model.table
        while True:
            pages: Sequence[Change] = ()
            try:
                if delta is None:
                    group = unread_group(aggregate, key, found)
                    change = changed(group, [correction(group, aggregate.aggregate.zero())], 0, anyway=True)
                else:
                    group = yield from read_group(aggregate, key, found, [delta], self.timeout)
                    change = changed(group, [delta], MOST_PAGES)
                found, pages = group.found, group.values.changes()
            except CorruptStore:
                if found is None:
                    raise
                change, found = Change("delete", key[1], {}, found[ETAG]), None
            if change is None:
                return
            try:
                yield from self.write(upkeep, key, found, change, pages)
            except Lost as lost:
                yield from self.patience.again(attempt, lost)
            except Refused as refused:
                if refused.status not in (404, 409, 412) or refused.code == "TableNotFound":
                    raise
                yield from self.patience.again(min(attempt, 3))
            else:
                return
            attempt += 1
            found = yield from read(Get(table, *key), self.timeout)

    def emptied(self, part: Part) -> Work[None]:
        """Delete the rows of an index, or take all entities out of the groups of an aggregate; what ever was stays.

        Args:
            part: to which nobody adds anything meanwhile.

        Raises:
            Late: not all is done.
        """
        if isinstance(part, IndexMaintenance):
            local, front = is_local(part.owner, part.model), index_prefix(part.label)
            rows = front, f"{front[:-1]}{chr(ord(front[-1]) + 1)}"
            find = in_range(part.owner.table, rows) if local else Find(part.model.table)
            yield from self._deleted(find, lambda _: True)
            return
        claims, pages = self.classes.claims, in_range(part.model.table, PAGES)
        yield from self._deleted(pages, lambda one: claims(part.model, one[PARTITION], one[BASE_ROW]))
        find, upkeep = Find(part.model.table, visible()), self.classes.upkeep(part)
        while True:
            page: Page = yield from read(find, self.timeout)
            yield from self.patience.check()
            groups = [one for one in page.entities if claims(part.model, one[PARTITION], one[ROW])]
            works = [self.add(upkeep, (one[PARTITION], one[ROW]), None, one) for one in groups]
            for at in range(0, len(works), _TOGETHER):
                yield from side_by_side(works[at : at + _TOGETHER])
            if page.after is None:
                return
            find = attrs.evolve(find, after=page.after)

    def erased(self, model: Model, *, alone: bool) -> Work[None]:
        """Delete the entities of a class, or the groups of an aggregate, that nobody writes any more, and their rows in indexes.

        Args:
            model: the class.
            alone: whether no other class has entities in its table.

        Raises:
            Late: not all is done.
        """
        for index in self.classes.maintained(model).indexes:
            yield from self.emptied(index)
        claims = self.classes.claims

        def is_of(one: Entity) -> bool:
            return alone or claims(model, one[PARTITION], one[BASE_ROW] if is_page(one[ROW]) else one[ROW])

        yield from self._deleted(Find(model.table), is_of)

    def _deleted(self, find: Find, which: Callable[[Entity], bool]) -> Work[None]:
        """Delete the rows that a request finds, and a function chooses."""
        while True:
            page: Page = yield from read(find, self.timeout)
            yield from self.patience.check()
            places: dict[str, list[Change]] = {}
            for one in filter(which, page.entities):
                places.setdefault(one[PARTITION], []).append(Change("delete", one[ROW], {}, "*"))
            works = [deleted(self.patience, find.table, partition, changes) for partition, changes in places.items()]
            for at in range(0, len(works), _TOGETHER):
                yield from side_by_side(works[at : at + _TOGETHER])
            if page.after is None:
                return
            find = attrs.evolve(find, after=page.after)

    def widened(self, upkeep: Upkeep, key: tuple[str, str], delta: Delta) -> Work[None]:
        """Add a delta of ``_ever`` measures to a group; it may be added many times.

        Raises:
            StoreError: no answer came, or others write the group all the time.
        """
        found = yield from read(Get(upkeep.aggregate.model.table, *key), self.timeout)
        try:
            yield from self.add(upkeep, key, delta, found)
        except Late:
            raise StoreError(
                f"{upkeep.aggregate.model.name} {key}: others write this group all the time, or no answer comes; copy again"
            ) from None
