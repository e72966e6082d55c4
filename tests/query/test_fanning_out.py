"""Indexes that have a row for each element of a list: an entity comes once, however many of its rows are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tablemapper as tm


class Post(tm.Entity, table="Posts"):
    p: tm.Field[str]
    a: tm.Field[int]
    tags: tm.Field[list[str]]

    key = tm.Key[str](partition="{p}")
    by_a = tm.Index[int, str](partition="{a}", row="{tags}")
    by_tag = tm.Index[str](partition="{tags}")
    by_text = tm.Index[str, int](partition="all", row="{tags}-{a:02d}")


POSTS = {"e": (1, ["x", "y", "z"]), "f": (2, ["x"]), "g": (2, ["y", "x-y"]), "h": (3, [])}


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Post]) as opened:
        opened.insert_many(Post(p, a, tags) for p, (a, tags) in POSTS.items())
        yield opened


X, Y = Post.tags.contains("x"), Post.tags.contains("y")
ASKED: dict[str, tuple[Any, list[Any], str]] = {
    "behind a range": (Post.by_a(), [Post.a >= 1, X], "ef"),
    "behind a range, not asked by name": (Post, [Post.a >= 1, X], "ef"),
    "behind a range, not bounded": (Post.by_a(), [], "efg"),
    "behind a range, not bounded, filtered": (Post.by_a(), [Post.a >= 1], "efg"),
    "behind one value": (Post, [Post.a == 1, X], "e"), "behind one value, by name": (Post.by_a(1), [], "e"),
    "behind two values": (Post, [Post.a.is_in([1, 2]), X], "ef"), "one of two elements": (Post, [X | Y], "efg"),
    "two elements": (Post, [X, Y], "e"), "alternatives": (Post, [((Post.a == 1) & X) | ((Post.a >= 2) & Y)], "eg"),
    "a whole list": (Post, [X, Post.tags == ["x"]], "f"), "another whole list": (Post, [X, Post.tags != ["x"]], "e"),
    "a list of whole lists": (Post, [X, Post.tags.is_in([["x"], ["y"]])], "f"),
    "a whole list, by name": (Post.by_tag(), [Post.tags == ["x", "y", "z"]], "e"),
    "a whole list beside an element, by name": (Post.by_tag("x"), [Post.tags == ["x"]], "f"),
    "an element cut from the right": (Post.by_text("x"), [], "ef"),
}  # fmt: skip


@pytest.mark.needs("backward", "sorts")
@pytest.mark.parametrize(("start", "conditions", "names"), ASKED.values(), ids=ASKED)
def test_an_entity_comes_once(store: tm.Store, start: Any, conditions: list[Any], names: str) -> None:
    query = store.query(start).where(*conditions).allow_scan()
    assert sorted(post.p for post in query) == list(names)
    assert query.count() == len(names)
    assert query.sum(Post.a) == sum(POSTS[name][0] for name in names)
    assert (query.min(Post.a), query.max(Post.a)) == (POSTS[names[0]][0], POSTS[names[-1]][0])
    assert query.group_by(Post.p).count() == dict.fromkeys(names, 1)
    assert sorted(query.select(Post.p)) == [(name,) for name in names]
    assert sorted(post.p for post in query.limit(3)) == list(names)[:3]
    assert sorted(post.p for page in query.pages(1) for post in page.items) == list(names)
    for step, wanted in ((Post.p, names), (Post.p.desc(), names[::-1]), (Post.a, names), (Post.a.desc(), None)):
        ordered = query.order_by(step)
        found = [post.p for post in ordered]
        assert wanted is None or found == list(wanted)
        assert [post.p for page in ordered.pages(2) for post in page.items] == found
        assert [post.p for post in ordered.budget(examined=100)] == found
        assert ordered.first() == next(iter(ordered))


@pytest.mark.parametrize(("start", "conditions", "names"), ASKED.values(), ids=ASKED)
def test_an_entity_is_written_once(store: tm.Store, start: Any, conditions: list[Any], names: str) -> None:
    assert store.query(start).where(*conditions).allow_scan().update(a=Post.a + 10) == len(names)
    changed = store.query(Post).where(Post.a > 10).allow_scan()
    assert {post.p: post.a - 10 for post in changed} == {name: POSTS[name][0] for name in names}
    assert changed.delete() == len(names)
    assert store.check().ok


def test_a_query_is_not_grouped_by_elements_and_says_what_is() -> None:
    class Post(tm.Entity, table="Posts"):
        name: tm.Field[str]
        tags: tm.Field[list[str]] = tm.field(factory=list)

        key = tm.Key[str](partition="{name}")

    with tm.open(":memory:", models=[Post]) as store:
        posts: Any = store.query(Post).allow_scan()
        for call in (lambda: posts.group_by(Post.tags.each()).count(), lambda: posts.select(Post.tags.each())):
            with pytest.raises(tm.InvalidQuery, match=r"declare one with tm.group_by\(Post.tags.each\(\)\)"):
                call()
