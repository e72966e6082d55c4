"""Queries over a base: the entities of all opened classes that are derived from it, in whatever tables."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.entities.entity import key_of
from tablemapper.events import Event

from ..engines.azure.place import AzurePlace

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")


class Animal(tm.Entity):
    place: tm.Field[str]
    id: tm.Field[str]
    age: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str, str](partition="{place}", row="{id}")
    by_age = tm.Index[int](partition="{age}")


class Mammal(Animal):
    legs: tm.Field[int] = tm.field(default=4)


class Dog(Mammal, table="Dogs"):
    walks: tm.Field[int] = tm.field(default=2)


class Cat(Mammal, table="Cats"): ...


class Bird(Animal, table="Birds"):
    wings: tm.Field[int] = tm.field(default=2)


class Plant(tm.Entity):
    id: tm.Field[str]


class Oak(Plant, table="Oaks"):
    key = tm.Key[str](partition="{id}")


class Herd(tm.Aggregate, of=Dog, table="Herds"):
    place: tm.Field[str] = tm.group_by(Dog.place)
    dogs: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="{place}")


MODELS: list[type[tm.Record]] = [Dog, Oak, Bird, Herd, Cat]
PLACES: dict[str, Callable[[], Any]] = {"file": lambda: ":memory:", "account": AzurePlace}
ANIMALS = [
    kind(place, name, age)
    for kind, ages in ((Dog, (1, 5)), (Cat, (5, 9)), (Bird, (0, 5)))
    for place in ("Oslo", "Rome")
    for name, age in zip(("a", "b"), ages, strict=True)
]


@pytest.fixture(params=sorted(PLACES))
def store(request: pytest.FixtureRequest) -> Iterator[tm.Store]:
    with tm.open(PLACES[request.param](), models=MODELS) as opened:
        opened.insert_many([animal.replace() for animal in ANIMALS])
        opened.insert(Oak("a"))
        yield opened


def shown(entities: Any) -> list[tuple[str, str, str]]:
    return [(*key_of(entity)[1:], type(entity).__name__) for entity in entities]


def expected(*classes: type[tm.Entity], where: Callable[[Any], bool] = lambda _: True) -> list[tuple[str, str, str]]:
    return sorted(shown(one for one in ANIMALS if isinstance(one, classes) and where(one)))


def test_each_entity_comes_as_its_own_class_in_the_order_of_keys(store: tm.Store) -> None:
    assert shown(store.query(Animal).allow_scan()) == expected(Dog, Cat, Bird)
    assert shown(store.query(Mammal).allow_scan()) == expected(Dog, Cat)
    assert store.query(Animal).allow_scan().count() == len(ANIMALS)
    assert shown(store.query(Animal).where(Animal.place == "Oslo").limit(3)) == expected(Dog, Cat, Bird)[:3]


def test_entities_with_one_key_come_in_the_order_of_their_classes(store: tm.Store) -> None:
    store.insert_many([Bird("Rome", "0"), Cat("Rome", "c"), Bird("Rome", "c"), Dog("Rome", "d"), Cat("Rome", "d")])
    rows = shown(store.query(Animal).where(Animal.place == "Rome"))
    assert rows == sorted(rows)


def test_conditions_are_on_fields_of_the_base_or_of_any_class(store: tm.Store) -> None:
    found = store.query(Animal).where(Animal.age == 5).allow_sort()
    assert shown(found) == expected(Dog, Cat, Bird, where=lambda one: one.age == 5)
    assert set(found.explain().classes) == {"Bird", "Cat", "Dog"}  # type: ignore[attr-defined]
    condition: Any = Dog.walks == 2
    assert shown(store.query(Animal).allow_scan().where(condition)) == expected(Dog)
    with pytest.raises(tm.InvalidQuery, match=r"Oak\.id is not a field of Bird or Cat or Dog"):
        store.query(Animal).where(Oak.id == "a")  # type: ignore[arg-type]
    with pytest.raises(tm.ScanRefused):
        list(store.query(Mammal).where(Mammal.legs > 3))


def test_a_query_over_a_base_is_ordered_by_its_fields(store: tm.Store) -> None:
    ordered = store.query(Animal).allow_scan().allow_sort().order_by(Animal.age.desc(), Animal.id)
    assert [(one.age, one.id) for one in ordered] == sorted(
        [(one.age, one.id) for one in ANIMALS], key=lambda pair: (-pair[0], pair[1])
    )
    with pytest.raises(tm.InvalidQuery, match="Bird has no field legs"):
        store.query(Animal).order_by(Mammal.legs)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_pages_hold_entities_with_one_key_of_several_tables(store: tm.Store, size: int) -> None:
    for query in (
        store.query(Animal).allow_scan(),
        store.query(Animal).where(Animal.age == 5).allow_sort(),
        store.query(Animal).allow_scan().allow_sort().order_by(Animal.age),
    ):
        items = [item for page in query.pages(size) for item in page.items]
        assert shown(items) == shown(query)


def test_pages_go_on_where_entities_come_and_go(store: tm.Store) -> None:
    rng = random.Random(3)
    query = store.query(Animal).allow_scan()
    seen: list[tuple[str, str, str]] = []
    page = query.page(2)
    throughout = set(shown(query))
    while True:
        seen += shown(page.items)
        if page.token is None:
            break
        victim = rng.choice(list(query))
        store.delete(victim)
        throughout.discard(shown([victim])[0])
        store.upsert(rng.choice((Dog, Cat, Bird))(rng.choice(("Oslo", "Rome")), rng.choice("abcd")))
        page = query.page(2, page.token)
    assert throughout <= set(seen)
    assert len(seen) == len(set(seen))


def test_a_token_is_bound_to_the_classes(store: tm.Store) -> None:
    token = store.query(Animal).allow_scan().page(2).token
    with pytest.raises(tm.InvalidToken):
        store.query(Mammal).allow_scan().page(2, token)
    assert shown(store.query(Animal).allow_scan().page(100, token).items) == expected(Dog, Cat, Bird)[2:]


def test_parts_of_a_query_over_a_base_are_all_of_it(store: tm.Store) -> None:
    query = store.query(Animal).allow_scan()
    parts = [query.part(part.token) for part in query.split(3)]
    assert sorted(shown(one for part in parts for one in part)) == expected(Dog, Cat, Bird)


def test_what_a_query_over_several_classes_lacks_is_refused(store: tm.Store) -> None:
    query = store.query(Animal).allow_scan()
    calls: dict[str, Callable[[], Any]] = {
        "update": lambda: query.update(age=3), "delete": query.delete, "select": lambda: query.select(Animal.age),
        "sum": lambda: query.sum(Animal.age), "columns": query.columns, "to_arrow": query.to_arrow,
        "group_by": lambda: query.group_by(Animal.age),
    }  # fmt: skip
    for name, call in calls.items():
        with pytest.raises(tm.InvalidQuery) as raised:
            call()
        assert str(raised.value) == f"a query over the classes of Animal has no {name}(…); query each: Bird, Cat, Dog"
    assert shown(query) == expected(Dog, Cat, Bird)
    with pytest.raises(AttributeError):
        query.updates  # type: ignore[attr-defined]  # noqa: B018


def test_a_base_without_an_opened_class_is_refused() -> None:
    with tm.open(":memory:", models=[Dog]) as store:
        with pytest.raises(tm.InvalidQuery, match=r"^query: the store was opened with no class of Plant$"):
            store.query(Plant)
        with pytest.raises(tm.InvalidQuery, match="query: Animal has no table; query it alone"):
            store.query(Dog, Animal)
        store.insert(Dog("Oslo", "a"))
        assert shown(store.query(Animal).allow_scan()) == [("Oslo", "a", "Dog")]


def test_all_entities_of_a_store_are_those_of_the_first_base(store: tm.Store) -> None:
    assert shown(store.query(tm.Entity).allow_scan()) == sorted([*expected(Dog, Cat, Bird), ("a", "", "Oak")])
    assert [herd.dogs for herd in store.query(tm.Aggregate).allow_scan()] == [2, 2]  # type: ignore[attr-defined]


def test_variants_of_a_class_are_of_its_base() -> None:
    second = Dog.variant("2")
    with tm.open(":memory:", models=[Dog, Cat, second]) as store:
        store.insert_many([Dog("Oslo", "a", 5), second("Oslo", "a", 5), Cat("Oslo", "b", 5)])
        for query in (store.query(Animal).where(Animal.place == "Oslo"), store.query(Animal).where(Animal.age == 5)):
            rows = shown(query.allow_sort())
            assert rows == [("Oslo", "a", "Dog"), ("Oslo", "a", "Dog2"), ("Oslo", "b", "Cat")]
            assert [*shown(one for page in query.allow_sort().pages(1) for one in page.items)] == rows


def test_a_field_that_a_class_declares_with_another_type_is_told() -> None:
    class Fish(Animal, table="Fishes"):
        age: tm.Field[str]  # type: ignore[assignment]
        by_age = None  # type: ignore[assignment]

    with tm.open(":memory:", models=[Dog, Fish]) as store, pytest.raises(tm.InvalidQuery) as raised:
        store.query(Animal).where(Animal.age == 5)
    assert str(raised.value) == "Animal.age is int, but Fish.age is str: query each class by itself"


def test_a_query_over_a_base_is_reported_as_one_call() -> None:
    events: list[Event] = []
    with tm.open(":memory:", models=MODELS, observe=events.append) as store:
        store.insert(Dog("Oslo", "a"))
        assert store.query(Animal).where(Animal.place == "Oslo").page(1).token is None
        with pytest.raises(tm.InvalidQuery, match="has no update"):
            store.query(Animal).update(age=3)
    assert [(event.verb, event.model, event.returned) for event in events[1:]] == [("query.page", "Bird, Cat, Dog", 1)]


def test_tasks_query_a_base() -> None:
    async def main() -> list[Any]:
        async with tm.open_async(":memory:", models=MODELS) as store:
            await store.insert_many([animal.replace() for animal in ANIMALS])
            query = store.query(Animal).allow_scan()
            with pytest.raises(tm.InvalidQuery, match=r"has no update\(…\); query each: Bird, Cat, Dog"):
                await query.update(age=3)
            with pytest.raises(tm.InvalidQuery, match=r"has no select\(…\)"):
                query.select(Animal.age)
            paged = [item async for page in query.pages(3) for item in page.items]
            assert shown(paged) == [*shown([one async for one in query])]
            return await query.where(Animal.age == 5).allow_sort().list()

    assert shown(asyncio.run(main())) == expected(Dog, Cat, Bird, where=lambda one: one.age == 5)
