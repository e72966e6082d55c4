"""Bases: what a class without a table lends to the classes that are derived from it."""

from __future__ import annotations

import types
from datetime import datetime
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.entities.declaration import declaration_of
from tablemapper.schema.model import model_of

from . import lending_base


class Animal(tm.Entity):
    id: tm.Field[str]
    age: tm.Field[int]

    key = tm.Key[str](partition="{id}")
    by_age = tm.Index[int](partition="{age}", include=("age",))
    old = tm.Index[int](partition="all", row="{age}", where=lambda a: a.age >= 10)


class Dog(Animal, table="Dogs"):
    walks: tm.Field[int] = tm.field(default=2)


class Cat(Animal, table="Cats"): ...


def plain(name: str, table: str) -> Any:
    """Return a class that declares by itself what Animal lends."""

    class Plain(tm.Entity, table=table):
        id: tm.Field[str]
        age: tm.Field[int]

        key = tm.Key[str](partition="{id}")
        by_age = tm.Index[int](partition="{age}", include=("age",))
        old = tm.Index[int](partition="all", row="{age}", where=lambda a: a.age >= 10)

    Plain.__name__ = name
    return Plain


def test_what_is_lent_is_as_if_each_class_declared_it() -> None:
    assert model_of(Cat).to_json() == model_of(plain("Cat", "Cats")).to_json()
    assert [index.table for index in declaration_of(Dog).indexes] == ["DogsByAge", "DogsOld"]
    assert (Dog.key("a").entity, Dog.by_age(3).entity) == (Dog, Dog)
    where = declaration_of(Dog).indexes[1].where
    assert where is not None
    assert {attr.owner for attr in where.attributes()} == {Dog}


def test_a_file_does_not_tell_where_a_declaration_stood(tmp_path: Any) -> None:
    path = tmp_path / "cats.db"
    with tm.open(path, models=[plain("Cat", "Cats")]) as store:
        store.insert(store.classes["Cat"]("Tom", 11))
    before = path.read_bytes()
    with tm.open(path, models=[Cat]) as store:
        assert store.query(Cat.old(11)).one().id == "Tom"
    assert path.read_bytes() == before


class Named(tm.Entity):
    name: tm.Field[str]
    by_name = tm.Index[str](partition="{name}")


def test_a_class_takes_the_declarations_of_its_bases_in_the_order_of_their_fields() -> None:
    class Both(Named, Animal, table="Boths"):
        by_walks = tm.Index[int](partition="{walks}")
        walks: tm.Field[int]

    declaration = declaration_of(Both)
    assert [field.name for field in declaration.fields] == ["id", "age", "name", "walks"]
    assert [index.name for index in declaration.indexes] == ["by_age", "old", "by_name", "by_walks"]


def test_the_body_of_a_class_wins() -> None:
    class Own(Animal, table="Owns"):
        place: tm.Field[str]
        key = tm.Key[str, str](partition="{place}", row="{id}")
        by_age = tm.Index[int, str](partition="{age}", row="{place}")
        old = None

    declaration = declaration_of(Own)
    assert declaration.arguments == ("place", "id")
    assert [index.arguments for index in declaration.indexes] == [("age", "place")]
    assert Own.old is None


def test_a_base_lends_on_through_another_one() -> None:
    class Pet(Animal, Named): ...

    class Hamster(Pet, table="Hamsters"): ...

    assert [index.name for index in declaration_of(Hamster).indexes] == ["by_name", "by_age", "old"]


def test_a_template_over_fields_of_another_base_is_judged_where_both_are() -> None:
    class Located(tm.Entity):
        by_place = tm.Index[str, int](partition="{place}", row="{age}")
        place: tm.Field[str]

    class Parrot(Animal, Located, table="Parrots"): ...

    assert declaration_of(Parrot).indexes[0].arguments == ("place", "age")
    with pytest.raises(tm.InvalidModel, match=r'Stone.*by_place row=: no field "age"'):

        class Stone(Located, table="Stones"):
            key = tm.Key(partition="{place}")


def test_a_base_in_another_module_keeps_its_names() -> None:
    class Note(lending_base.Noted, table="Notes"):
        text: tm.Field[str]

    assert declaration_of(Note).fields[0].type.kind is datetime
    assert Note.by_time(datetime.fromisoformat("2026-01-01T00:00:00Z")).entity is Note


def test_a_cell_of_a_notebook_can_run_again() -> None:
    for _ in range(2):

        class Base(tm.Entity):
            id: tm.Field[str]
            key = tm.Key[str](partition="{id}")

        class Child(Base, table="Children"): ...

        with tm.open(":memory:", models=[Child]) as store:
            store.insert(Child("a"))
            assert [one.id for one in store.query(Base).allow_scan()] == ["a"]


def test_aggregates_take_a_key_from_a_base() -> None:
    class Totals(tm.Aggregate, of=Dog):
        age: tm.Field[int] = tm.group_by(Dog.age)
        dogs: tm.Field[int] = tm.count()
        key = tm.Key[int](partition="{age}")

    class DogTotals(Totals, of=Dog, table="DogTotals"): ...

    with tm.open(":memory:", models=[Dog, DogTotals]) as store:
        store.insert_many([Dog("a", 1), Dog("b", 1)])
        assert store.group(DogTotals.key(1)).dogs == 2


def test_on_a_base_itself_nothing_is_called() -> None:
    for call, name in ((lambda: Animal.key("a"), "key"), (lambda: Animal.old(11), "old")):
        with pytest.raises(AttributeError) as raised:
            call()
        assert str(raised.value) == f"Animal lends {name}; call it on a class with a table: Dog.{name}(…)"

    class Alone(tm.Entity):
        id: tm.Field[str]
        key = tm.Key(partition="{id}")

    with pytest.raises(AttributeError, match=r"Alone lends key; call it on a class with a table: Product\.key\(…\)"):
        Alone.key("a")


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"by_id": tm.Index(partition="{id:08d}")}, "Faulty: by_id partition=: "),
        ({"by_id": tm.Index[int](partition="{id}")}, "Faulty: by_id: the type parameter of id is int, but the field is str"),
        ({"key": tm.Key(partition="{home}")}, "Faulty: key partition=: {home} is"),
        (
            {"by_id": tm.Index(partition="{id}", table="Ids")},
            "Faulty: by_id: each class that takes it from Faulty has a table of its own for it; leave out table=",
        ),
        ({"ident": tm.Key(partition="{id}")}, 'Faulty: ident: a class has one key, named "key"'),
        ({"by_id": tm.Index(partition="{id}", accept={"TM999": "no"})}, "Faulty: by_id: accept="),
    ],
)  # fmt: skip
def test_a_base_is_judged_as_far_as_it_has_the_fields(body: dict[str, Any], fault: str) -> None:
    annotations = {"id": tm.Field[str], "home": tm.Field[dict[str, str]]}
    with pytest.raises(tm.InvalidModel) as raised:
        types.new_class("Faulty", (tm.Entity,), {}, lambda names: names.update(body | {"__annotations__": annotations}))
    assert str(raised.value).startswith(fault), str(raised.value)


def test_a_condition_is_of_the_class_that_has_the_index() -> None:
    class Timed(tm.Entity):
        late = tm.Index(partition="all", where=lambda one: one.minutes > 5)

    class Meeting(Animal, Timed, table="Meetings"):
        minutes: tm.Field[int]

    where = declaration_of(Meeting).indexes[0].where
    assert where is not None
    assert {attr.owner for attr in where.attributes()} == {Meeting}
    with pytest.raises(tm.InvalidModel, match="Rest: late: where=: Rest has no attribute 'minutes'"):

        class Rest(Animal, Timed, table="Rests"): ...
