"""Migrations of an account: properties renamed and definitions dropped, while programs of both versions write."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tablemapper as tm

from .memory import Memory
from .place import AzurePlace


def part(maker: str = "maker", price: str = "price", others: dict[str, Any] | None = None, **more: Any) -> Any:
    """Return a class with everything that an index can be, with names for two of its fields."""
    fields = {"shelf": str, "number": int, maker: str | None, price: float, "code": str | None, **(others or {})}
    body = {
        "key": tm.Key[str, int](partition="{shelf}", row="{number}"),
        "by_maker": tm.Index[str](
            partition=f"{{{maker}}}", include=(price,), where=lambda p: getattr(p, maker) != "m9"
        ),
        "by_price": tm.Index[str, float](partition="{shelf}", row=f"{{{price}}}", include=(maker,)),
        "by_code": tm.Index[str](partition="{code}", unique=True, include=(price,)),
        **more,
    }
    annotations = {name: tm.Field[kind] for name, kind in fields.items()}
    return type(tm.Entity)(
        "Part", (tm.Entity,), {"__annotations__": annotations, "__module__": __name__, **body}, table="Parts"
    )


def makers(of: Any, maker: str = "maker", price: str = "price", **more: Any) -> Any:
    body = {
        "__annotations__": {"who": tm.Field[str], "parts": tm.Field[int], "most": tm.Field[float | None]},
        "__module__": __name__,
        "who": tm.group_by(getattr(of, maker)),
        "parts": tm.count(where=getattr(of, price) < 1e6),
        "most": tm.max(getattr(of, price)),
        "key": tm.Key[str](partition="{who}"),
        **more,
    }
    return type(tm.Aggregate)("Makers", (tm.Aggregate,), body, of=of, table="Makers")


def shelves(of: Any, price: str = "price") -> Any:
    body = {
        "__annotations__": {"shelf": tm.Field[str], "parts": tm.Field[int], "total": tm.Field[float]},
        "__module__": __name__,
        "shelf": tm.group_by(of.shelf),
        "parts": tm.count(),
        "total": tm.sum(getattr(of, price)),
        "key": tm.Key[str](partition="{shelf}", row="total"),
    }
    return type(tm.Aggregate)("Shelves", (tm.Aggregate,), body, of=of, table="Parts")


OLD, NEW = part(), part("firm", "cost")
OLDS = [OLD, makers(OLD), shelves(OLD)]
NEWS = [NEW, makers(NEW, "firm", "cost"), shelves(NEW, "cost")]


@tm.migration(after=None, old=OLDS, new=NEWS)
def names(m: tm.Migration) -> None:
    m.rename(OLD.maker, NEW.firm)
    m.rename(OLD.price, NEW.cost)


@pytest.fixture
def place() -> Any:
    place = AzurePlace(memory=Memory())
    with opened(place, OLDS) as store:
        store.insert_many(old_of(one) for one in ITEMS)
    return place


ITEMS = [
    ("xyz"[n % 3], n, f"m{n % 11}" if n % 5 else None, float(n % 7), f"c{n}" if n % 2 else None) for n in range(40)
]


def opened(place: Any, models: list[Any], **options: Any) -> tm.Store:
    return tm.open(place, models=models, **options)


def later(store: tm.Store) -> None:
    """Let it be time for a process to look at the catalogue again."""
    store._engine._current._looked = -1e9  # type: ignore[attr-defined]


def old_of(item: tuple[Any, ...]) -> Any:
    return OLD(**dict(zip(("shelf", "number", "maker", "price", "code"), item, strict=True)))


def new_of(item: tuple[Any, ...]) -> Any:
    return NEW(**dict(zip(("shelf", "number", "firm", "cost", "code"), item, strict=True)))


def seen(store: tm.Store, models: list[Any]) -> Any:
    """Return all that a store answers to some classes, by values alone."""
    cls, firms, _ = models
    maker, price = ("maker", "price") if cls is OLD else ("firm", "cost")
    at = lambda one: tuple(getattr(one, name) for name in ("shelf", "number", maker, price, "code"))  # noqa: E731
    everything = sorted(at(one) for one in store.query(cls).allow_scan())
    found = {m: sorted(at(one) for one in store.query(cls.by_maker(m))) for m in ("m1", "m2", "m9")}
    cheap = sorted(at(one) for one in store.query(cls).where(cls.shelf == "x", getattr(cls, price) < 3.0))
    shown = sorted(
        [
            one
            for (one,) in store.query(cls)
            .where(cls.shelf == "y", getattr(cls, price) >= 3.0)
            .select(getattr(cls, maker))
        ],
        key=str,
    )
    coded = [at(one) for one in store.query(cls).where(cls.code == "c7")]
    some = sorted(at(one) for one in store.query(cls).where(getattr(cls, maker) == "m3").allow_scan())
    groups = sorted((one.who, one.parts, one.most) for one in store.query(firms).allow_scan())
    totals = sorted((one.shelf, one.parts, one.total) for one in store.query(models[2]).allow_scan())
    return everything, found, cheap, shown, coded, some, groups, totals


def expected(items: list[tuple[Any, ...]]) -> Any:
    by_maker = lambda m: sorted(one for one in items if one[2] == m)  # noqa: E731
    who = sorted({one[2] for one in items if one[2] is not None})
    return (
        sorted(items),
        {m: by_maker(m) if m != "m9" else [] for m in ("m1", "m2", "m9")},
        sorted(one for one in items if one[0] == "x" and one[3] < 3.0),
        sorted((one[2] for one in items if one[0] == "y" and one[3] >= 3.0), key=str),
        [one for one in items if one[4] == "c7"],
        by_maker("m3"),
        [(m, len(by_maker(m)), max(one[3] for one in by_maker(m))) for m in who],
        [(s, len(some), sum(one[3] for one in some)) for s in "xyz" if (some := [one for one in items if one[0] == s])],
    )


def test_both_versions_read_and_write_the_same_entities_after_a_rename(place: Any) -> None:
    rng, held = random.Random(1), {one[:2]: one for one in ITEMS}
    with opened(place, OLDS) as old:
        report = tm.migrate(place, [names])
        assert report.applied == ("names",)
        assert {step.old_version for step in report.plan} == {"writes"}
        with opened(place, NEWS) as new:
            for number in range(60):
                store, make, maker, price = rng.choice([(old, old_of, "maker", "price"), (new, new_of, "firm", "cost")])
                key = rng.choice(sorted(held))
                one: tuple[Any, ...] = (
                    "xyz"[number % 3],
                    100 + number,
                    f"m{rng.randrange(11)}",
                    float(rng.randrange(9)),
                    f"d{number}",
                )
                match rng.randrange(5):
                    case 0:
                        store.insert(make(one))
                        held[one[:2]] = one
                    case 1:
                        store.delete(make(held.pop(key)).key)
                    case 2:
                        held[key] = (*key, *one[2:])
                        store.upsert(make(held[key]))
                    case 3:
                        held[key] = (*key, one[2], *held[key][3:])
                        store.merge(make(held[key]).key, **{maker: one[2]})
                    case _:
                        held[key] = (*key, held[key][2], one[3], held[key][4])
                        entity = store[make(held[key]).key]
                        setattr(entity, price, one[3])
                        store.replace(entity)
            assert seen(old, OLDS) == seen(new, NEWS) == expected(list(held.values()))
            assert old.check().ok
            assert new.check().ok


def test_a_rename_is_undone_done_again_and_contracted(place: Any) -> None:
    tm.migrate(place, [names])
    with opened(place, NEWS) as new:
        new.insert(new_of(("x", 50, "m1", 2.0, "c50")))
        assert tm.migrate(place, [names], to="").applied == ("names",)
        with opened(place, OLDS) as old:
            assert old[OLD.key("x", 50)].maker == "m1"
            old.merge(OLD.key("x", 50), maker="m2")
        assert new[NEW.key("x", 50)].firm == "m2"
    assert tm.migrate(place, [names]).ok
    with opened(place, OLDS) as old:
        report = tm.migrate(place, [names], contract=True)
        assert report.contracted == ("names",)
        later(old)
        with pytest.raises(tm.SchemaMismatch, match="names replaced this form of the class"):
            old.insert(old_of(("x", 51, "m1", 2.0, None)))
    with pytest.raises(tm.InvalidMigration, match="it was contracted"):
        tm.migrate(place, [names], to="")
    with opened(place, NEWS) as new:
        assert seen(new, NEWS) == expected([*ITEMS, ("x", 50, "m2", 2.0, "c50")])
        assert new.check().ok
    assert [entry.id for entry in tm.status(place).history] == ["names"]


def test_a_former_name_is_free_for_another_field_once_the_rename_is_contracted(place: Any) -> None:
    again = part(
        "firm",
        "cost",
        {"price": str | None},
        by_new_price=tm.Index[str](partition="{price}", include=("price", "cost")),
    )
    tm.migrate(place, [names])
    with pytest.raises(tm.SchemaMismatch, match='"price" is what "cost" was called before names: contract that first'):
        opened(place, [again])
    tm.migrate(place, [names], contract=True)
    with opened(place, [again, makers(again, "firm", "cost"), shelves(again, "cost")]) as store:
        assert {one.price for one in store.query(again).allow_scan()} == {None}
        store.insert(again("x", 70, "m1", 4.0, None, "dear"))
        store.merge(again.key("x", 70), price="dearest")
        assert store[again.key("x", 70)] == again("x", 70, "m1", 4.0, None, "dearest")
        assert [one.number for one in store.query(again.by_new_price("dearest"))] == [70]
        assert store.query(again).where(again.shelf == "x", again.price == "dearest").count() == 1
        assert list(store.query(again.by_new_price("dearest")).select(again.cost).allow_eventual()) == [(4.0,)]
        assert store.check().ok
    (held,) = [one for one in place.memory.entities("Parts") if one.get("price_2") == "dearest"]
    assert (held["price"], held["maker"]) == (4.0, "m1")


def test_an_undeclared_property_does_not_take_the_name_that_a_field_has_in_the_store() -> None:
    def shape(price: str) -> Any:
        fields = {"id": str, price: float, "more": tm.Extra}
        body = {"__annotations__": {name: tm.Field[kind] for name, kind in fields.items()}, "__module__": __name__}
        return type(tm.Entity)("Loose", (tm.Entity,), {**body, "key": tm.Key[str](partition="{id}")}, table="Loose")

    old, new = shape("price"), shape("cost")

    @tm.migration(after=None, old=[old], new=[new])
    def cost(m: tm.Migration) -> None:
        m.rename(old.price, new.cost)

    place: Any = AzurePlace(memory=Memory())
    opened(place, [old]).close()
    tm.migrate(place, [cost])
    with opened(place, [new]) as store:
        store.insert(new("a", 1.0, {"size": "big"}))
        with pytest.raises(tm.InvalidEntity, match='"price" has the name that "cost" had before'):
            store.insert(new("b", 1.0, {"price": 2.0}))
        assert store.get(new.key("b")) is None
        assert store[new.key("a")] == new("a", 1.0, {"size": "big"})
