"""Migrations of an account that copy entities: into new tables, which take the place of the old ones while nobody writes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.service import Commit, CreateTable, DeleteTable, Lost

from .memory import Memory
from .place import AzurePlace


def _old() -> Any:
    class User(tm.Entity, table="Users"):
        tenant: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        age: tm.Field[str | None]

        key = tm.Key[str, int](partition="{tenant}", row="{number}")
        by_name = tm.Index[str](partition="{name}", include=("age",))
        by_age = tm.Index[str, str](partition="{tenant}", row="{age}")

    class Team(tm.Aggregate, of=User, table="Teams"):
        tenant: tm.Field[str] = tm.group_by(User.tenant)
        users: tm.Field[int] = tm.count()
        key = tm.Key[str](partition="{tenant}")

    class Note(tm.Entity, table="Notes"):
        id: tm.Field[str]
        text: tm.Field[str]
        key = tm.Key[str](partition="{id}")
        by_text = tm.Index[str](partition="{text}")

    return SimpleNamespace(User=User, Team=Team, Note=Note, ALL=[User, Team, Note])


def _new() -> Any:
    class User(tm.Entity, table="Users"):
        tenant: tm.Field[str]
        number: tm.Field[int]
        name: tm.Field[str]
        age: tm.Field[int | None]

        key = tm.Key[str, str, int](partition="{tenant}", row=("{name}", "{number}"))
        by_name = tm.Index[str](partition="{name}", include=("age",))
        by_age = tm.Index[str, int](partition="{tenant}", row="{age}")

    class Team(tm.Aggregate, of=User, table="Teams"):
        tenant: tm.Field[str] = tm.group_by(User.tenant)
        users: tm.Field[int] = tm.count()
        years: tm.Field[int | None] = tm.sum(User.age)
        key = tm.Key[str](partition="{tenant}")

    return SimpleNamespace(User=User, Team=Team, Note=Old.Note, ALL=[User, Team, Old.Note])


Old = _old()
New = _new()


@tm.migration(after=None, old=Old.ALL, new=New.ALL)
def ages(m: tm.Migration) -> None:
    m.rekey(Old.User, New.User)
    m.convert(Old.User.age, New.User.age, lambda age: None if age is None else int(age))


def user(number: int) -> Any:
    return Old.User("abc"[number % 3], number, f"n{number % 7}", str(20 + number % 5) if number % 4 else None)


@pytest.fixture
def place() -> Any:
    place = AzurePlace(memory=Memory(), still=True)
    with tm.open(place, models=Old.ALL) as store:
        store.insert_many(map(user, range(30)))
        store.insert_many([Old.Note(f"n{n}", f"t{n % 3}") for n in range(5)])
    return place


def seen(place: Any) -> Any:
    """Return what the new classes hold, after everything is found right."""
    with tm.open(place, models=New.ALL) as store:
        users = list(store.query(New.User).allow_scan())
        assert [report for report in [store.check()] if not report.ok] == []
        for one in users:
            assert store[one.key] == one
            assert one in list(store.query(New.User.by_name(one.name)))
            if one.age is not None:
                assert one in list(store.query(New.User.by_age(one.tenant, one.age)))
        teams = {one.tenant: (one.users, one.years) for one in store.query(New.Team).allow_scan()}
        assert teams == {
            tenant: (len(some), sum(one.age for one in some if one.age is not None))
            for tenant in "abc"
            if (some := [one for one in users if one.tenant == tenant])
        }
        assert store.query(New.Note).allow_scan().count() == 5
        return sorted((one.tenant, one.number, one.name, one.age) for one in users)


def converted(users: Any) -> Any:
    return sorted((one.tenant, one.number, one.name, None if one.age is None else int(one.age)) for one in users)


def test_entities_are_converted_and_the_old_version_ends(place: Any) -> None:
    with tm.open(place, models=Old.ALL) as old:
        report = tm.migrate(place, [ages])
        assert (report.applied, report.entities, report.ok) == (("ages",), 30, True)
        assert {(step.old_version, step.reversible) for step in report.plan} == {("stops", False)}
        old._engine.current._looked = -1e9  # type: ignore[attr-defined]
        with pytest.raises(tm.SchemaMismatch, match="ages"):
            old.insert(user(50))
    assert seen(place) == converted(map(user, range(30)))
    assert tm.migrate(place, [ages]).applied == ()
    with pytest.raises(tm.SchemaMismatch, match="ages"):
        tm.open(place, models=Old.ALL)
