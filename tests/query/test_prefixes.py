"""Keys that begin with the first characters of a field: ``{user:prefix(2)}``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from ..touched import Touched
from .test_query import forced


class Profile(tm.Entity, table="Profiles"):
    user: tm.Field[str]

    key = tm.Key[str](partition="{user:prefix(2)}", row=("{user}", "profile"))


class Shelf(tm.Entity, table="Shelves"):
    title: tm.Field[str]
    copy: tm.Field[int]

    key = tm.Key[str, int](partition="all", row="{title:prefix(2)}-{copy}")
    by_title = tm.Index[str](partition="all", row=("{title:prefix(1)}", "{title}"))


Team = entity("Team", "Teams", {"name": str}, tm.Key[str](partition="all", row="{name:prefix(2)}"))


USERS = [f"{a}{b}{c}" for a in "abc" for b in "abc" for c in ("", "a", "bb", "/")]


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Profile, Team, Shelf]) as opened:
        opened.insert_many(map(Profile, USERS))
        opened.insert_many(Shelf(user, number) for number, user in enumerate(USERS))
        yield opened


@pytest.mark.file
def test_a_user_is_one_row_of_the_partition_of_the_prefix(store: tm.Store, counting: Touched) -> None:
    assert Profile.key("ada")[1:] == ("ad", "ada !profile")
    assert Profile.key("a/b").partition == "a.~"
    one = store.query(Profile).where(Profile.user == "aba")
    for run in (lambda: store[Profile.key("aba")], one.one, lambda: list(one)):
        assert counting(run) == {"Profiles": 1}


@pytest.mark.parametrize(
    ("condition", "partitions"),
    [
        (Profile.user.startswith("b"), ["ba", "bb", "bc"]),
        (Profile.user.startswith("bb"), ["bb"]),
        (Profile.user.startswith("bbb"), ["bb"]),
        (Profile.user < "bb", ["aa", "ab", "ac", "ba"]),
        (Profile.user <= "bb", ["aa", "ab", "ac", "ba", "bb"]),
        (Profile.user < "bba", ["aa", "ab", "ac", "ba", "bb"]),
        (Profile.user > "bb", ["bb", "bc", "ca", "cb", "cc"]),
        (Profile.user.between("bb", "c"), ["bb", "bc"]),
    ],
    ids=str,
)
def test_a_condition_on_the_field_bounds_its_prefix(store: tm.Store, condition: Any, partitions: list[str]) -> None:
    query = store.query(Profile).where(condition)
    bounds = [one.partition for one in query.explain().ranges]
    kept = sorted({user[:2] for user in USERS})
    assert [one for one in kept if any(bound.holds(one) for bound in bounds)] == partitions
    every = [profile.user for profile in store.query(Profile).where(condition).allow_scan()]
    assert every == sorted(user for user in USERS if user in every)
    assert len(every) == query.count()


@pytest.mark.file
@pytest.mark.parametrize(
    ("start", "users", "shelves"),
    [("b", 12, 12), ("bb", 4, 4), ("bbb", 1, 4), ("bbbb", 1, 4), ("bbx", 0, 4), ("b\ud800", 0, 0)],
)
def test_what_starts_so_is_read_and_little_else(
    store: tm.Store, counting: Touched, start: str, users: int, shelves: int
) -> None:
    profiles = store.query(Profile).where(Profile.user.startswith(start))
    for run in (profiles.count, lambda: list(profiles)):
        assert sum(counting(run).values()) == users
    held = store.query(Shelf).where(Shelf.title.startswith(start))
    by_key, by_title = forced(held)
    assert counting(lambda: list(by_key)) == ({"Shelves": shelves} if shelves else {})
    matching = [user for user in USERS if user.startswith(start)]
    assert sum(counting(lambda: list(by_title)).values()) == 2 * len(matching)
    for query in (by_key, by_title):
        assert sorted(one.title for one in query) == sorted(matching)


def test_who_holds_the_key_is_said(store: tm.Store) -> None:
    store.insert(Team("Sales"))
    with pytest.raises(
        tm.errors.EntityExists, match=r"{name:prefix\(2\)} makes one key of 'Sand' and the stored 'Sales'"
    ):
        store.insert(Team("Sand"))


@pytest.mark.parametrize(
    ("kind", "spec", "fault"),
    [
        (int, "prefix(2)", "prefix is for str, this is int"),
        (str, "prefix(0)", "give it 1 to 512 characters"),
        (str, "prefix", 'unknown spec "prefix"'),
    ],
)
def test_a_prefix_of_nothing_is_refused(kind: Any, spec: str, fault: str) -> None:
    with pytest.raises(tm.errors.InvalidModel) as refused:
        entity("Bad", "Bad", {"x": kind}, tm.Key(partition=f"{{x:{spec}}}"))
    assert fault in str(refused.value)
