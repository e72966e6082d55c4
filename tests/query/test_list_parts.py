"""Parts of lists and sets in merge, in transactions and in writes by query: as Python does it, or one clear error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated, Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.edits.assignments import assignments
from tablemapper.schema.model import compile_schema

from ..classes import grouped
from ..stores import sound_store


@attrs.frozen
class Line:
    name: str
    pieces: int = 1
    notes: list[str] | None = None


class Basket(tm.Entity, table="Baskets"):
    id: tm.Field[str]
    tags: tm.Field[list[str]] = tm.field(factory=list)
    more: tm.Field[list[int] | None] = tm.field(default=None)
    steps: tm.Field[tuple[int, ...]] = tm.field(default=())
    colors: tm.Field[set[str]] = tm.field(factory=set)
    sizes: tm.Field[frozenset[int] | None] = tm.field(default=None)
    lines: tm.Field[list[Line]] = tm.field(factory=list)
    by: tm.Field[dict[str, list[int]]] = tm.field(factory=dict)
    few: tm.Field[Annotated[list[int], msgspec.Meta(max_length=3)]] = tm.field(factory=list)
    pair: tm.Field[tuple[int, str]] = tm.field(default=(1, "a"))
    open: tm.Field[list[Any]] = tm.field(factory=list)
    extra: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)
    total: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str](partition="{id}")
    by_tag = tm.Index[str](partition="{tags}")


ByTag = grouped("ByTag", Basket, "total", n=tm.count())
MODEL = compile_schema([Basket]).models[0]
KEY = Basket.key("a")


def after(basket: Basket, *assigned: tm.Assignment[Basket], **values: Any) -> Basket:
    """Return a basket after assignments."""
    copy = basket.replace()
    assignments(MODEL, "merge", assigned, values).apply(copy)
    return copy


FULL = Basket("a", ["x", "y", "x"], None, (1, 2), {"red"}, None, [Line("l"), Line("m", 3, ["n"])], {"x": [1]}, [1, 2])
RIGHT: list[tuple[tm.Assignment[Basket], str, Any]] = [
    (Basket.tags.append("z"), "tags", ["x", "y", "x", "z"]),
    (Basket.tags.extend(c for c in "ab"), "tags", ["x", "y", "x", "a", "b"]),
    (Basket.tags.extend(()), "tags", ["x", "y", "x"]), (Basket.tags.discard("x"), "tags", ["y"]),
    (Basket.tags.discard("q"), "tags", ["x", "y", "x"]), (Basket.tags[0].set("z"), "tags", ["z", "y", "x"]),
    (Basket.tags[-1].set("z"), "tags", ["x", "y", "z"]), (Basket.tags[-1].remove(), "tags", ["x", "y"]),
    (Basket.tags[1].remove(), "tags", ["x", "x"]), (Basket.more.append(1), "more", [1]),
    (Basket.more.extend([1, 2]), "more", [1, 2]), (Basket.more.discard(1), "more", None),
    (Basket.steps.append(3), "steps", (1, 2, 3)), (Basket.steps.discard(1), "steps", (2,)),
    (Basket.steps[-1].add(5), "steps", (1, 7)), (Basket.colors.add("red"), "colors", {"red"}),
    (Basket.colors.add("blue"), "colors", {"red", "blue"}),
    (Basket.colors.extend(["blue", "red"]), "colors", {"red", "blue"}),
    (Basket.colors.discard("red"), "colors", set()), (Basket.sizes.add(4), "sizes", frozenset({4})),
    (Basket.sizes.discard(4), "sizes", None), (Basket.lines.append(Line("k")), "lines", [*FULL.lines, Line("k")]),
    (Basket.lines.discard(Line("l")), "lines", [FULL.lines[1]]),
    (Basket.lines[0].set(Line("k")), "lines", [Line("k"), FULL.lines[1]]),
    (Basket.lines[1].at(lambda line: line.pieces).add(2), "lines", [Line("l"), Line("m", 5, ["n"])]),
    (Basket.lines[0].at(lambda line: line.notes).append("o"), "lines", [Line("l", 1, ["o"]), FULL.lines[1]]),
    (Basket.lines[1].at(lambda line: line.notes)[0].set("o"), "lines", [Line("l"), Line("m", 3, ["o"])]),
    (Basket.lines.at(lambda lines: lines[1].notes[-1]).remove(), "lines", [Line("l"), Line("m", 3, [])]),
    (Basket.by["x"].append(2), "by", {"x": [1, 2]}), (Basket.by["y"].append(2), "by", {"x": [1], "y": [2]}),
    (Basket.by["y"].discard(2), "by", {"x": [1]}), (Basket.by["x"][0].add(4), "by", {"x": [5]}),
    (Basket.few.append(3), "few", [1, 2, 3]),
]  # fmt: skip


def test_each_part_becomes_what_python_makes_of_it() -> None:
    for assigned, name, value in RIGHT:
        changed = after(FULL, assigned)
        assert getattr(changed, name) == value, assigned.attr
        assert type(getattr(changed, name)) is type(value)
        assert changed.replace(**{name: getattr(FULL, name)}) == FULL


def test_what_cannot_be_is_one_error_of_the_field() -> None:
    cases: list[tuple[tuple[tm.Assignment[Basket], ...], str]] = [
        ((Basket.tags[5].set("x"),), "tags[5]: it has 3 elements"),
        ((Basket.tags[-4].remove(),), "tags[-4]: it has 3 elements"),
        ((Basket.more[0].add(1),), "more[0]: it has 0 elements"),
        ((Basket.by["x"][1].set(1),), "by.x[1]: it has 1 element"),
        ((Basket.lines[7].at(lambda line: line.pieces).add(1),), "lines[7]: it has 2 elements"),
        ((Basket.lines[1].at(lambda line: line.notes)[3].set("a"),), "lines[1].notes[3]: it has 1 element"),
        ((Basket.tags.append("a"), Basket.tags.append("b")), "tags: it is assigned twice"),
        ((Basket.tags[0].set("a"), Basket.tags[-1].set("b")), "tags: it is assigned twice"),
        ((Basket.tags[0].set("a"), Basket.tags[1].set("b")), "tags: it is assigned twice"),
        ((Basket.tags.set([]), Basket.tags.append("b")), "tags: it is assigned twice"),
        ((Basket.lines[0].at(lambda line: line.pieces).add(1), Basket.lines.append(Line("k"))), "lines: it is assigned twice"),
        ((Basket.by["x"].append(1), Basket.by.set({})), "by: it is assigned twice, as by.x is, too"),
        ((Basket.tags.append(5),), "tags: expected str, got int 5"),  # type: ignore[arg-type]
        ((Basket.tags.extend(["a", None]),), "tags = Basket.tags.extend"),  # type: ignore[list-item]
        ((Basket.colors.add(5),), "colors: expected str, got int 5"),  # type: ignore[arg-type]
        ((Basket.lines.discard("x"),), "lines: expected "),  # type: ignore[arg-type]
        ((Basket.tags[0].set(5),), "tags[0]: expected str, got int 5"),  # type: ignore[arg-type]
        ((Basket.few.extend([3, 4]),), "few = Basket.few.extend([3, 4]): "),
        ((Basket.open.append(1),), "which says nothing of its values: declare their type"),
        ((Basket.lines[0].at(lambda line: line.name).remove(),), "lines[0].name: name cannot be removed; an entry of a dict can, an element of a list"),
        ((Basket.total.set(Basket.more[0]),), "total: Basket.more[0] is an element of a list, and a calculation reads whole fields"),
    ]  # fmt: skip
    for assigned, fault in cases:
        with pytest.raises(tm.InvalidEntity) as caught:
            after(FULL, *assigned)
        assert fault in str(caught.value), (fault, str(caught.value))


def test_an_element_is_no_condition_no_order_and_no_key() -> None:
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: Basket.tags[0] == "x", "Basket.tags[0] == …: a condition is over all elements, .contains(…)"),
        (lambda: Basket.more[-1] > 3, "Basket.more[-1] > …: a condition is over all elements"),
        (lambda: Basket.more[0].between(1, 2), "Basket.more[0] >= …: a condition"),
        (lambda: Basket.tags[0].is_in(["x"]), "Basket.tags[0].is_in(…): a condition is over all elements"),
        (lambda: Basket.tags[0].is_null(), "Basket.tags[0].is_null(…): "),
        (lambda: Basket.tags[0].is_not_null(), "Basket.tags[0].is_not_null(…): "),
        (lambda: Basket.tags[0].startswith("x"), "Basket.tags[0].startswith(…): "),
        (lambda: Basket.tags[0].contains("x"), "Basket.tags[0].contains(…): "),
        (lambda: Basket.lines[0].at(lambda line: line.notes).each(), "Basket.lines[0].notes.each(…): "),  # type: ignore[call-overload]
        (lambda: Basket.lines[0].at(lambda line: line.pieces) == 3, "Basket.lines[0].pieces == …: "),
        (lambda: Basket.tags[0].desc(), "Basket.tags[0].desc(…): "),
        (lambda: Basket.more[0] + 1, "Basket.more[0]"),
        (lambda: Basket.colors[0], "expected the name of a nested value, got 0"),  # type: ignore[call-overload]
        (lambda: Basket.pair[0], "expected the name of a nested value, got 0"),
        (lambda: Basket.extra[0], "expected the name of a nested value, got 0"),  # type: ignore[call-overload]
        (lambda: Basket.by[0], "expected the name of a nested value, got 0"),  # type: ignore[call-overload]
        (lambda: Basket.tags[0:1], "expected the name of a nested value, got slice(0, 1, None)"),  # type: ignore[call-overload]
        (lambda: Basket.tags["x"], "list has no nested values"),  # type: ignore[call-overload]
        (lambda: Basket.total.append(1), "Basket.total.append(…): int is no list"),  # type: ignore[misc]
        (lambda: Basket.total.discard(1), "Basket.total.discard(…): int is no list and no set"),  # type: ignore[misc]
        (lambda: Basket.pair.append(1), "Basket.pair.append(…): json[tuple[int, str]] is no list"),  # type: ignore[misc]
        (lambda: Basket.colors.append("x"), "Basket.colors.append(…): a set has no order; use .add(…)"),  # type: ignore[misc]
        (lambda: Basket.tags.add(["x"]), "Basket.tags.add(…): list[str] cannot be added to; for an element of a list write .append(…)"),
        (lambda: Basket.tags.extend("abc"), "Basket.tags.extend('abc'): expected elements, as in a list"),
        (lambda: Basket.tags.extend(5), "Basket.tags.extend(5): expected elements"),  # type: ignore[arg-type]
    ]  # fmt: skip
    for call, fault in refused:
        with pytest.raises(tm.InvalidQuery) as caught:
            call()
        assert fault in str(caught.value), (fault, str(caught.value))
    with sound_store(":memory:", models=[Basket]) as store:
        for query in (
            lambda: store.query(Basket).order_by(Basket.more[0]),
            lambda: store.query(Basket).select(Basket.more[0]),
            lambda: store.query(Basket).group_by(Basket.more[0]),
            lambda: store.query(Basket).sum(Basket.more[0]),
        ):
            with pytest.raises(tm.InvalidQuery, match=r"Basket.more\[0\] is an element of a list, which can only be"):
                query()
    with pytest.raises(tm.InvalidModel, match=r"Basket.tags\[0\] is an element of a list"):
        grouped("Firsts", Basket, "id", n=tm.count(Basket.tags[0]))
    with pytest.raises(tm.InvalidEntity, match="only the store calculates, in merge and update"):
        FULL.replace(Basket.tags.append("x"))


def test_every_verb_writes_parts_and_indexes_and_groups_follow() -> None:
    with sound_store(":memory:", models=[Basket]) as store:
        store.insert_many(Basket(id, ["x"], lines=[Line("l")]) for id in ("a", "b"))
        etag = tm.info(store[KEY]).etag
        changed = store.merge(
            KEY,
            Basket.tags.append("y"),
            Basket.lines[0].at(lambda line: line.pieces).add(2),
            if_match=etag,
            returning=True,
        )
        assert (changed.tags, changed.lines) == (["x", "y"], [Line("l", 3)])
        assert [basket.id for basket in store.query(Basket.by_tag("y"))] == ["a"]
        with store.transaction() as tx:
            assert tx.merge(KEY, Basket.tags[0].remove(), Basket.total.add(1), returning=True).tags == ["y"]
        assert [basket.id for basket in store.query(Basket.by_tag("x"))] == ["b"]
        assert store.query(Basket).allow_scan().update(Basket.tags.extend(["y", "z"]), Basket.colors.add("red")) == 2
        assert [basket.id for basket in store.query(Basket.by_tag("z"))] == ["a", "b"]
        new = store.merge(Basket.key("c"), Basket.tags.append("n"), or_insert=Basket("c", ["m"]), returning=True)
        assert new.tags == ["m", "n"]
        before = [tm.to_json(basket, etag=True) for basket in store.query(Basket).allow_scan()]
        with pytest.raises(tm.InvalidEntity, match=r"tags\[2\]: it has 2 elements"):
            store.merge(Basket.key("c"), Basket.tags[2].set("x"))
        with pytest.raises(tm.InvalidEntity, match=r"tags\[2\]: it has 2 elements"):
            store.query(Basket).where(Basket.id == "c").update(Basket.tags[2].set("x"))
        assert [tm.to_json(basket, etag=True) for basket in store.query(Basket).allow_scan()] == before


def test_appends_beside_each_other_are_all_there() -> None:
    with sound_store(":memory:", models=[Basket]) as store:
        store.insert(Basket("a"))

        def work(name: str) -> None:
            for number in range(8):
                store.merge(KEY, Basket.tags.append(f"{name}{number}"))

        threads = [threading.Thread(target=work, args=(name,)) for name in "pqr"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tags = store[KEY].tags
        assert sorted(tags) == sorted(f"{name}{number}" for name in "pqr" for number in range(8))
        assert [tag for tag in tags if tag[0] == "p"] == [f"p{number}" for number in range(8)]


# ------------------------------------------------------------------------------------------ against Python

SMALL = st.integers(0, 3)


def _python(items: list[int], action: str, place: int, values: list[int]) -> list[int] | None:
    """Return what Python makes of a list; None if there is no such element."""
    items = list(items)
    try:
        match action:
            case "append":
                items.append(values[0])
            case "extend":
                items.extend(values)
            case "discard":
                items = [item for item in items if item != values[0]]
            case "set":
                items[place] = values[0]
            case "add":
                items[place] += values[0]
            case _:
                del items[place]
    except IndexError:
        return None
    return items


@given(
    st.lists(SMALL, max_size=4),
    st.sampled_from(["append", "extend", "discard", "set", "add", "remove"]),
    st.integers(-5, 5),
    st.lists(SMALL, min_size=1, max_size=3),
)
def test_lists_sets_and_lists_within_others_do_what_python_does(
    items: list[int], action: str, place: int, values: list[int]
) -> None:
    expected = _python(items, action, place, values)
    basket = Basket("a", more=items, steps=tuple(items), by={"x": items}, sizes=frozenset(items))
    attributes: list[tuple[Any, Callable[[Basket], Any]]] = [
        (Basket.more, lambda basket: basket.more),
        (Basket.steps, lambda basket: list(basket.steps)),
        (Basket.by["x"], lambda basket: basket.by["x"]),
    ]
    for attr, value_of in attributes:
        of_place = action in ("set", "add", "remove")
        target = attr[place] if of_place else attr
        arguments: list[Any] = [] if action == "remove" else [values if action == "extend" else values[0]]
        assigned = getattr(target, action)(*arguments)
        if expected is None:
            with pytest.raises(tm.InvalidEntity, match=rf"\[{place}\]: it has {len(items)} element"):
                after(basket, assigned)
        else:
            assert value_of(after(basket, assigned)) == expected
    if action in ("append", "extend", "discard"):
        sizes = {
            "append": lambda: (Basket.sizes.add(values[0]), {*items, values[0]}),
            "extend": lambda: (Basket.sizes.extend(values), {*items, *values}),
            "discard": lambda: (Basket.sizes.discard(values[0]), {*items} - {values[0]}),
        }
        assigned, of_set = sizes[action]()
        assert after(basket, assigned).sizes == frozenset(of_set)
