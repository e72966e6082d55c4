"""Programs over one account, with classes that a seed draws: they write, build and migrate, and note what they were told.

python -m tests.engines.azure.programs ROLE CONNECTION SEED VERSION NOTES
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import tablemapper as tm
from tablemapper.engines.azure import engine
from tablemapper.engines.azure.cross_partition import remote_groups
from tablemapper.engines.azure.cross_partition.outbox import Outbox, Timing
from tablemapper.engines.azure.tables.service import RowChange
from tablemapper.engines.azure.writing import late_writes, writes

from ...classes import aggregate, entity, grouped

TIMES = Timing(look=0.5, deadline=2.0, lease=4.0, grace=6.0, request=1.0)
"""Of all programs: a request is late by less than a second."""
TEAMS, CODES, SIZES = ("red", "green", "blue"), "pqrstuvw", (0.1, 1e16, -3.5, 2.0)
TAGS = "xyz"
SHOPS = ("a", "b", "c")
UNIQUE = ("by_code", "by_nick")
"""What both versions have: nothing is held twice when the newer one comes."""
COUNTERS = ("n0", "n1")
FAULT = "TABLEMAPPER_TEST_FAULT"
"""The variable that names a fault which a program has."""


def hurried() -> None:
    """Let the engine of this process keep to shorter times, as all that share the store then do."""

    def outbox(catalogue: str, _: Timing) -> Outbox:
        return Outbox(catalogue, TIMES)

    engine.Outbox = outbox  # type: ignore[misc, assignment]


def classes(seed: int, version: int) -> Any:
    """Return the classes of a version: the second has more indexes and aggregates, the third keeps ranks as texts."""
    draw = random.Random(seed)
    old = {name for name in (*_indexes(), *AGGREGATES) if name in UNIQUE or draw.random() < 0.5}
    has = {*_indexes(), *AGGREGATES} if version > 1 else old
    members = {
        "shop": str, "id": str, "team": str, "size": float, "rank": int if version < 3 else str,
        "code": (str | None, tm.field(default=None)), "nick": (str | None, tm.field(default=None)),
        "tags": (list[str], tm.field(factory=list)),
    }  # fmt: skip
    key = tm.Key[str, str](partition="{shop}", row=("item", "{id}"))
    item = entity("Item", "Items", members, key, **{name: one for name, one in _indexes().items() if name in has})
    counter = entity("Counter", "Counters", {"name": str, "n": int}, tm.Key[str](partition="{name}"))
    made = {name: make(item) for name, make in AGGREGATES.items() if name in has}
    total = grouped("Total", counter, "name", "Totals", n=tm.sum(counter.n))
    return SimpleNamespace(Item=item, Counter=counter, models=[item, counter, *made.values(), total], has=has, **made)


def _indexes() -> dict[str, Any]:
    return {
        "by_team": tm.Index[str, float](partition="{team}", row="{size}"),
        "by_code": tm.Index[str](partition="{code}", row="holder", unique=True),
        "by_nick": tm.Index[str, str](partition="{shop}", row="{nick}", unique=True),
        "by_size": tm.Index[str, float](partition="{shop}", row="{size}", include=("team",)),
        "by_tag": tm.Index[str, str](partition="{tags}", row="{id}"),
        "by_big": tm.Index[str, str](partition="{team}", row="{id}", where=lambda one: one.size > 1.0),
    }


def _teams(item: Any) -> Any:
    more = {"total": (float, tm.sum(item.size)), "most": (float | None, tm.max(item.size))}
    by_items = tm.Index[int, str](partition="all", row=("{items}", "{team}"))
    return grouped("Teams", item, "team", items=tm.count(), by_items=by_items, **more)


def _shops(item: Any) -> Any:
    members = {"shop": (str, tm.group_by(item.shop)), "items": (int, tm.count()), "codes": (int, tm.count(item.code))}
    return aggregate("Shops", item, members, tm.Key[str](partition="{shop}", row="total"), "Items")


AGGREGATES: dict[str, Callable[[Any], Any]] = {"Teams": _teams, "Shops": _shops}


def script(seed: int) -> Any:
    """Return the migration from the second version to the third, which copies what there is."""
    old, new = classes(seed, 2), classes(seed, 3)

    @tm.migration(after=None, old=old.models, new=new.models)
    def ranks(m: tm.Migration) -> None:
        m.convert(old.Item.rank, new.Item.rank, str, back=int)

    return ranks


class Writer:
    """Writes until it is terminated; each line of its notes says what is tried, then what came of it."""

    def __init__(self, connection: str, seed: int, version: int, notes: str) -> None:
        self.draw = random.Random(f"{seed} {notes}")
        self.version = version
        self.kinds = classes(seed, version)
        self.mine: dict[str, Any] = {}
        self.made = 0
        self.ends: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: self.ends.append(number))
        with open(notes, "a", buffering=1) as self.told:
            while not self.ends:
                try:
                    with tm.open(connection, models=self.kinds.models, timeout=8, build=False) as self.store:
                        self.note("open")
                        while not self.ends:
                            self.write()
                except tm.SchemaMismatch:  # (a migration has replaced what it has open)
                    self.note("ended")
                    return
                except tm.StoreError as error:
                    self.note("closed", str(error))

    def note(self, *told: object) -> None:
        self.told.write(json.dumps(told) + "\n")

    def new(self, id: str | None = None) -> Any:
        self.made += 1
        draw = self.draw
        size = draw.choice(SIZES)
        code, nick = draw.choice([None, *CODES]), draw.choice([None, None, *CODES])
        id = id or f"{os.getpid()}-{self.made}"
        shop, rank = SHOPS[zlib.crc32(id.encode()) % 3], self.made % 10
        tags = draw.sample(TAGS, draw.randrange(3))
        return self.kinds.Item(shop, id, draw.choice(TEAMS), size, rank, code, nick, tags)

    def write(self) -> None:
        drawn, store, mine = self.draw.random(), self.store, self.mine
        if drawn < 0.1:
            name = self.draw.choice(COUNTERS)
            key = self.kinds.Counter.key(name)
            self.tried({name: "+1"}, lambda: store.update(key, lambda one: one.replace(n=one.n + 1)))
        elif drawn < 0.4 or len(mine) < 2:
            one = self.new()
            self.tried({one.id: one}, partial(store.insert if drawn < 0.3 else store.upsert, one))
        elif drawn < 0.45:
            some = [self.new() for _ in range(3)]
            self.tried({one.id: one for one in some}, lambda: store.insert_many(some))
        elif drawn < 0.6:
            one = self.new(self.draw.choice(list(mine)))
            self.tried({one.id: one}, partial(store.upsert, one))
        elif drawn < 0.7:
            old = self.draw.choice(list(mine.values()))
            one = old.replace(team=self.draw.choice(TEAMS))
            self.tried({one.id: one}, lambda: store.merge(old.key, team=one.team))
        elif drawn < 0.8:
            old, other = self.draw.sample(list(mine.values()), 2)
            a, b = old.replace(code=other.code), other.replace(code=old.code)  # (a swap of unique values)
            if a.shop == b.shop:
                self.tried({a.id: a, b.id: b}, lambda: self.together(a, b))
        elif drawn < 0.9:
            old = self.draw.choice(list(mine.values()))
            one = old.replace(size=self.draw.choice(SIZES), nick=None)
            change = lambda held: held.replace(size=one.size, nick=None)  # noqa: E731
            self.tried({one.id: one}, lambda: store.update(old.key, change))
        else:
            old = self.draw.choice(list(mine.values()))
            self.tried({old.id: None}, lambda: store.delete(old.key))

    def together(self, *some: Any) -> None:
        with self.store.transaction() as tx:
            for one in some:
                tx.upsert(one)

    def tried(self, after: dict[str, Any], write: Callable[[], object]) -> None:
        self.note("try", {name: state(one) for name, one in after.items()})
        try:
            write()
        except tm.OutcomeUnknown:
            self.note("unknown")
            for name in after:
                self.mine.pop(name, None)
        except tm.SchemaMismatch:
            self.note("failed", "SchemaMismatch")
            raise
        except tm.TableMapperError as error:
            several = getattr(error, "written", 0) or ()
            self.note("unknown" if several else "failed", type(error).__name__, str(error))
            time.sleep(0.02)  # (a frozen store refuses at once)
        else:
            self.note("done")
            for name, one in after.items():
                if one is None:
                    self.mine.pop(name, None)
                elif one != "+1":
                    self.mine[name] = one


def state(one: Any) -> Any:
    """Return what an entity holds, as JSON has it."""
    if one is None or isinstance(one, str):
        return one
    return [one.shop, one.team, one.size, str(one.rank), one.code, one.nick, list(one.tags)]


def build(connection: str, seed: int, version: int) -> None:
    """Build what is to be built, until all of it is ready."""
    with tm.open(connection, models=classes(seed, version).models, timeout=8, build=False) as store:
        store.build()


def with_fault(name: str) -> None:
    """Let this process have a fault."""

    def no(*_: Any) -> Any:
        return False
        yield

    if name == "nothing was done":  # (whatever was executed without an answer)
        writes._was_done = no  # type: ignore[assignment]
        writes._Attempt._was_done = no  # type: ignore[method-assign, assignment]
    elif name == "no marker":  # (says that something was added to a group)
        plain = RowChange

        def change(kind: Any, *rest: Any) -> RowChange:
            return plain("upsert" if kind == "insert" else kind, *rest)

        remote_groups.RowChange = change  # type: ignore[misc, assignment]
    elif name == "no second look":
        late_writes._Mending.is_late = no  # type: ignore[method-assign]


def main(role: str, connection: str, seed: str, version: str, notes: str) -> None:
    hurried()
    if fault := os.environ.get(FAULT):
        with_fault(fault)
    match role:
        case "write":
            Writer(connection, int(seed), int(version), notes)
        case "build":
            build(connection, int(seed), int(version))
        case "migrate":
            tm.migrate(connection, [script(int(seed))])


if __name__ == "__main__":
    main(*sys.argv[1:])
