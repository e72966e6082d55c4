"""A store against a plain dict: every verb, transactions, faults and reopenings, everything compared after each step.

What indexes and aggregates should hold is recomputed here from Python values, with nothing of the library's own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import apsw
import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import tablemapper as tm
from tablemapper.engines.sqlite.engine import SqliteEngine
from tablemapper.schema.model import compile_schema

from .sqlite_vfs import Fault
from .whole.oracle import measure_of


@attrs.define
class Address:
    city: str | None = None


class Item(tm.Entity, table="Items"):
    p: tm.Field[str]
    r: tm.Field[int]
    name: tm.Field[str | None] = tm.field(default=None)
    num: tm.Field[int | None] = tm.field(default=None)
    weight: tm.Field[float | None] = tm.field(default=None)
    price: tm.Field[Decimal | None] = tm.field(default=None)
    at: tm.Field[datetime] = tm.field(default=datetime(2020, 1, 1, tzinfo=UTC))
    tags: tm.Field[list[str]] = tm.field(factory=list)
    address: tm.Field[Address | None] = tm.field(default=None)
    text: tm.Field[str | None] = tm.field(default=None)
    badge: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{p}", row=("i", "{r}"))
    by_name = tm.Index[str](partition="{name}", include=("num", "text"))
    by_num = tm.Index[str, int](partition="{p}", row="{num}", where=lambda i: i.num > 2)
    by_tag = tm.Index[str](partition="{tags}", include="all")
    by_city = tm.Index[str](partition="{address.city}")
    by_badge = tm.Index[str, str](partition="{p}", row="{badge}", unique=True)
    sharded = tm.Index[int, Decimal](partition="{num:shard(3)}", row=("{num:desc}", "{price}"))


class Day(tm.Aggregate, of=Item, table="Days"):
    p: tm.Field[str] = tm.group_by(Item.p)
    day: tm.Field[date] = tm.group_by(Item.at.date())
    items: tm.Field[int] = tm.count()
    named: tm.Field[int] = tm.count(Item.name)
    large: tm.Field[int] = tm.count(where=Item.num > 2)
    weight: tm.Field[float | None] = tm.sum(Item.weight)
    price: tm.Field[Decimal | None] = tm.sum(Item.price)
    mean: tm.Field[float | None] = tm.avg(Item.weight)
    lightest: tm.Field[float | None] = tm.min(Item.weight)
    heaviest: tm.Field[float | None] = tm.max(Item.weight)
    first: tm.Field[str | None] = tm.min(Item.name)
    dearest: tm.Field[Decimal | None] = tm.max(Item.price)

    key = tm.Key[str, date](partition="{p}", row="{day}")
    by_items = tm.Index[str, int](partition="{p}", row="{items:desc}", include=("named", "mean"))
    by_weight = tm.Index[float](partition="all", row="{weight}", where=lambda d: d.items > 1)
    by_first = tm.Index[str, str, date](partition="{first}", row=("{p}", "{day}"), unique=True)


class Ever(tm.Aggregate, of=Item, table="Items", where=lambda i: i.weight > 0):
    p: tm.Field[str] = tm.group_by(Item.p)
    items: tm.Field[int] = tm.count()
    heaviest: tm.Field[float | None] = tm.max_ever(Item.weight)

    key = tm.Key[str](partition="{p}", row="ever")
    by_heaviest = tm.Index[int, float](partition="{items}", row="{heaviest}")


MODELS = [Item, Day, Ever]
Key = tuple[str, int]
Values = dict[str, Any]

PARTITIONS = ["p", "P", "a/b", ""]
NAMES = ["x", "X", "x ", "", "ß", "a/b"]
VALUES = st.fixed_dictionaries(
    {
        "name": st.sampled_from([None, *NAMES]),
        "num": st.sampled_from([None, 0, 1, -1, 7, 3, 2**62]),
        "weight": st.sampled_from([None, 0.1, 0.2, -1e300, 1e300, 5e-324, 3.5]),
        "price": st.sampled_from([None, Decimal("1.10"), Decimal("1.1"), Decimal(-3), Decimal("1E+5")]),
        "at": st.sampled_from([datetime(2020, 1, day, 5, tzinfo=UTC) for day in (1, 2)]),
        "tags": st.sampled_from([[], ["a"], ["a", "b", "a"], ["b"]]),
        "address": st.sampled_from([None, Address("Rome"), Address(None)]),
        "text": st.sampled_from([None, "s", "L" * 500, "M" * 1000]),
        "badge": st.sampled_from([None, "one", "two"]),
    }
)
VERBS = ["insert", "upsert", "replace", "merge", "delete", "upsert merge", "delete key", "stale", "overwrite", "add"]


def item(key: Key, values: Values) -> Item:
    return Item(*key, **{**values, "tags": list(values["tags"])})


class Change:
    """One operation: how to ask for it, and what it should do to the dict."""

    def __init__(
        self, key: Key, ask: Callable[[Any], None], after: Values | None, error: type[Exception] | None
    ) -> None:
        self.key = key
        self.ask = ask
        self.after = after
        self.error = error


class Machine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.model: dict[Key, Values] = {}
        self.etags: dict[Key, str] = {}
        self.ever: dict[str, float] = {}
        self.newest = 0
        self.store = self.open()

    def open(self) -> tm.Store:
        schema = compile_schema(MODELS)
        return tm.Store(SqliteEngine.open(f"{self.folder}/x.db", schema, durability="full", vfs="faulty"))

    def teardown(self) -> None:
        Fault.disarm()
        self.store.close()
        shutil.rmtree(self.folder)

    # -------------------------------------------------------------------------------------- drawing

    def key(self, data: st.DataObject, partition: str | None) -> Key:
        held = sorted(key for key in self.model if partition in (None, key[0]))
        if held and data.draw(st.integers(0, 3)):
            return data.draw(st.sampled_from(held))
        fixed = data.draw(st.sampled_from(PARTITIONS)) if partition is None else partition
        return fixed, data.draw(st.integers(-2, 5))

    def change(self, data: st.DataObject, key: Key) -> Change:
        old = self.model.get(key)
        verb = data.draw(st.sampled_from(VERBS if old is not None else ["insert", *VERBS]))
        if old is None and verb in ("replace", "delete", "stale"):
            verb = "insert"
        values = data.draw(VALUES)
        where = Item.key(*key)
        missing = tm.EntityNotFound if old is None else None
        match verb:
            case "insert":
                return Change(key, lambda t: t.insert(item(key, values)), values, tm.EntityExists if old else None)
            case "upsert":
                return Change(key, lambda t: t.upsert(item(key, values)), values, None)
            case "upsert merge":
                kept = old or values
                merged = {n: kept[n] if v is None else v for n, v in values.items()}
                return Change(key, lambda t: t.upsert(item(key, values), merge=True), merged, None)
            case "overwrite":
                return Change(key, lambda t: t.replace(item(key, values), if_match="*"), values, missing)
            case "merge":
                some = {
                    n: values[n] for n in data.draw(st.sets(st.sampled_from(sorted(values)), min_size=1, max_size=4))
                }
                return Change(key, lambda t: t.merge(where, **some), {**(old or {}), **some}, missing)
            case "add":
                num = ((old or {}).get("num") or 0) + 1
                return Change(key, lambda t: t.merge(where, Item.num.add(1)), {**(old or {}), "num": num}, missing)
            case "delete key":
                return Change(key, lambda t: t.delete(where), None, missing)
        entity = self.store[where]
        if verb == "delete":
            return Change(key, lambda t: t.delete(entity), None, None)
        for name, value in values.items():
            setattr(entity, name, value)
        if verb == "stale":
            self.store.merge(where, name="x")
            assert old is not None
            self.model[key] = {**old, "name": "x"}
            self.took(key)
            return Change(key, lambda t: t.replace(entity), values, tm.PreconditionFailed)
        return Change(key, lambda t: t.replace(entity), values, None)

    # -------------------------------------------------------------------------------------- rules

    @rule(data=st.data())
    def one_operation(self, data: st.DataObject) -> None:
        change = self.change(data, self.key(data, None))
        self.settle([change], lambda: change.ask(self.store))

    @rule(data=st.data(), across=st.booleans(), count=st.integers(1, 4), fault=st.integers(0, 3))
    def transaction(self, data: st.DataObject, across: bool, count: int, fault: int) -> None:
        partition = None if across else data.draw(st.sampled_from(PARTITIONS))
        changes: dict[Key, Change] = {}
        for _ in range(count):
            key = self.key(data, partition)
            if key not in changes:
                changes[key] = self.change(data, key)

        def run() -> None:
            with self.store.transaction(across_partitions=across) as tx:
                for change in changes.values():
                    change.ask(tx)
                if fault == 0:
                    Fault.arm(
                        data.draw(st.sampled_from(["xWrite", "xSync"])), data.draw(st.integers(1, 4)), sticky=False
                    )

        self.settle(list(changes.values()), run)

    @rule(data=st.data())
    def swap_of_unique_values(self, data: st.DataObject) -> None:
        held = [key for key, values in sorted(self.model.items()) if values["badge"] is not None]
        pairs = [(a, b) for a in held for b in held if a < b and a[0] == b[0]]
        if not pairs:
            return
        a, b = data.draw(st.sampled_from(pairs))
        changes = [
            Change(mine, lambda t, k=mine, v=self.model[other]["badge"]: t.merge(Item.key(*k), badge=v),
                   {**self.model[mine], "badge": self.model[other]["badge"]}, None)
            for mine, other in ((a, b), (b, a))
        ]  # fmt: skip

        def run() -> None:
            with self.store.transaction() as tx:
                for change in changes:
                    change.ask(tx)

        self.settle(changes, run)

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        if not self.model:
            return
        old = data.draw(st.sampled_from(sorted(self.model)))
        new = self.key(data, None)
        if new == old:
            return
        entity = self.store[Item.key(*old)]
        taken = tm.EntityExists if new in self.model else None
        changes = [Change(old, lambda _: None, None, None), Change(new, lambda _: None, self.model[old], taken)]
        self.settle(changes, lambda: self.store.move(entity, Item.key(*new)))

    @rule(data=st.data(), verb=st.sampled_from(["insert", "upsert", "delete"]), count=st.integers(1, 4))
    def many(self, data: st.DataObject, verb: str, count: int) -> None:
        changes: dict[Key, Change] = {}
        for _ in range(count):
            key = self.key(data, None)
            values = None if verb == "delete" else data.draw(VALUES)
            error = tm.EntityExists if verb == "insert" and key in self.model else None
            if verb == "delete" and key not in self.model:
                error = tm.EntityNotFound
            changes.setdefault(key, Change(key, lambda _: None, values, error))
        entities = (item(c.key, c.after) for c in changes.values() if c.after is not None)
        self.settle(
            list(changes.values()),
            lambda: {
                "insert": lambda: self.store.insert_many(entities),
                "upsert": lambda: self.store.upsert_many(entities),
                "delete": lambda: self.store.delete_many(Item.key(*key) for key in changes),
            }[verb](),
        )

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        keys = [self.key(data, None) for _ in range(3)]
        found = self.store.get_many([Item.key(*key) for key in keys])
        assert found == [item(key, self.model[key]) if key in self.model else None for key in keys]
        assert [self.store.exists(Item.key(*key)) for key in keys] == [key in self.model for key in keys]

    def settle(self, changes: list[Change], run: Callable[[], object]) -> None:
        """Run changes, and compare what happens with what should."""
        after = dict(self.model)
        for change in changes:
            if change.after is None:
                after.pop(change.key, None)
            else:
                after[change.key] = change.after
        errors = {change.error for change in changes if change.error is not None}
        badges = [(key[0], values["badge"]) for key, values in after.items() if values.get("badge") is not None]
        if len(badges) > len(set(badges)):
            errors.add(tm.UniqueViolation)
        try:
            run()
        except tm.StoreError:
            fired = Fault.disarm()
            assert fired, "the file failed by itself"
            if self.dump() == self.model:
                return  # nothing was written
        except (tm.TableMapperError, apsw.Error) as error:
            Fault.disarm()
            assert type(error) in errors, (error, errors)
            return
        else:
            Fault.disarm()
            assert not errors, errors
        self.model = after
        for change in changes:
            if change.after is None:
                self.etags.pop(change.key, None)
            else:
                self.took(change.key)

    def took(self, key: Key) -> None:
        """Note that an entity was written: its ETag must be new, and later than all before."""
        entity = self.store[Item.key(*key)]
        info = tm.info(entity)
        assert info.etag is not None
        assert info.timestamp is not None
        assert info.etag != self.etags.get(key)
        micro = int(info.etag[3:-1])
        assert micro >= self.newest
        self.newest = micro
        self.etags[key] = info.etag
        weight = self.model.get(key, {}).get("weight")
        if weight is not None and weight > 0:
            self.ever[key[0]] = max(weight, self.ever.get(key[0], weight))

    def dump(self) -> dict[Key, Values]:
        entities = [e for p in PARTITIONS for e in self.store.query(Item).where(Item.p == p)]
        names = [field.name for field in attrs.fields(Item)][2:]
        return {(e.p, e.r): {name: getattr(e, name) for name in names} for e in entities}

    # -------------------------------------------------------------------------------------- what must hold

    @invariant()
    def entities_are_the_dicts(self) -> None:
        assert self.dump() == self.model
        etags = {(e.p, e.r): tm.info(e).etag for p in PARTITIONS for e in self.store.query(Item).where(Item.p == p)}
        assert etags == self.etags

    @invariant()
    def the_check_is_clean(self) -> None:
        report = self.store.check()
        assert report.ok, report

    @invariant()
    def index_tables_hold_what_they_should(self) -> None:
        model = self.model
        expected = {
            "ItemsByName": [(k, v["num"]) for k, v in model.items() if v["name"] is not None],
            "ItemsByNum": [(k, None) for k, v in model.items() if v["num"] is not None and v["num"] > 2],
            "ItemsByTag": [(k, None) for k, v in model.items() for _ in set(v["tags"])],
            "ItemsByCity": [(k, None) for k, v in model.items() if v["address"] and v["address"].city is not None],
            "ItemsByBadge": [(k, None) for k, v in model.items() if v["badge"] is not None],
            "ItemsSharded": [(k, None) for k, v in model.items() if v["num"] is not None and v["price"] is not None],
        }
        texts = {tm.info(e)[:2]: (e.p, e.r) for p in PARTITIONS for e in self.store.query(Item).where(Item.p == p)}
        with_own_eyes = apsw.Connection(f"{self.folder}/x.db")
        for table, rows in expected.items():
            column = "num" if table == "ItemsByName" else "NULL"
            found = with_own_eyes.execute(f'SELECT "_pk", "_rk", {column} FROM "{table}"').fetchall()
            read = [(texts.get((pk, rk)), value) for pk, rk, value in found]
            assert sorted(map(repr, read)) == sorted(map(repr, rows)), table
        large = sum(sum(len(t) for t in (v["text"] or "",)) > 400 for v in model.values())
        assert with_own_eyes.execute('SELECT count(*) FROM "Items_big"').fetchone() == (large,)
        with_own_eyes.close()

    @invariant()
    def indexes_on_aggregates_hold_what_they_should(self) -> None:
        days, evers = list(self.store.query(Day).allow_scan()), list(self.store.query(Ever).allow_scan())
        for p in PARTITIONS:
            mine = sorted([d for d in days if d.p == p], key=lambda d: (-d.items, d.day))
            assert list(self.store.query(Day.by_items(p))) == mine
            projected = [(d.items, d.named, d.mean) for d in mine]
            assert list(self.store.query(Day.by_items(p)).select(Day.items, Day.named, Day.mean)) == projected
        heavy = [d for d in days if d.items > 1 and d.weight is not None]
        assert list(self.store.query(Day.by_weight())) == sorted(heavy, key=lambda d: (d.weight, tm.info(d)[:2]))
        for name in NAMES:
            first = sorted([d for d in days if d.first == name], key=lambda d: (d.p, d.day))
            assert list(self.store.query(Day.by_first(name))) == first
        for items in {0, *(e.items for e in evers)}:
            wanted = sorted([e for e in evers if e.items == items], key=lambda e: (e.heaviest, e.p))
            assert list(self.store.query(Ever.by_heaviest(items))) == wanted

    @invariant()
    def queries_find_what_a_filter_finds(self) -> None:
        query, model = self.store.query, self.model
        for name in NAMES:
            wanted = sorted(k for k, v in model.items() if v["name"] == name)
            assert sorted((e.p, e.r) for e in query(Item).where(Item.name == name)) == wanted
        for tag in ("a", "b"):
            found = [(e.p, e.r) for e in query(Item).where(Item.tags.contains(tag))]
            assert sorted(found) == sorted(k for k, v in model.items() if tag in v["tags"])
        in_rome = [(e.p, e.r) for e in query(Item).where(Item.address.at(lambda a: a.city) == "Rome")]  # type: ignore[union-attr]
        assert sorted(in_rome) == sorted(k for k, v in model.items() if v["address"] and v["address"].city == "Rome")
        for p in PARTITIONS:
            nums = [(e.num, e.r) for e in query(Item).where(Item.p == p, Item.num > 2)]
            assert nums == sorted((v["num"], k[1]) for k, v in model.items() if k[0] == p and (v["num"] or 0) > 2)

    @invariant()
    def aggregates_are_those_of_the_live_entities(self) -> None:
        groups: dict[tuple[str, date], list[Values]] = defaultdict(list)
        for key, values in self.model.items():
            groups[key[0], values["at"].date()].append(values)

        def measured(verb: str, name: str, values: list[Values]) -> Any:
            return measure_of(verb, [one[name] for one in values])

        expected = {
            repr(Day(
                p, day, len(some), measured("count", "name", some), sum((v["num"] or 0) > 2 for v in some),
                measured("sum", "weight", some), measured("sum", "price", some), measured("avg", "weight", some),
                measured("min", "weight", some), measured("max", "weight", some), measured("min", "name", some),
                measured("max", "price", some),
            ))
            for (p, day), some in groups.items()
        }  # fmt: skip
        assert {repr(day) for day in self.store.query(Day).allow_scan()} == expected
        for p in PARTITIONS:
            ever = self.store.get(Ever.key(p))
            heavy = sum((v["weight"] or 0) > 0 for k, v in self.model.items() if k[0] == p)
            assert (ever.items if ever else 0) == heavy
            assert (ever.heaviest if ever else None) == self.ever.get(p)
