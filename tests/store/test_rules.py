"""Rules over several fields, in ``__attrs_post_init__``: each write asks them of the entity as it would be stored."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tablemapper as tm
from tablemapper.schema.model import model_of

from ..classes import entity, grouped
from ..stores import sound_store


class Span(tm.Entity, table="Spans"):
    name: tm.Field[str]
    lo: tm.Field[int] = tm.field(default=0)
    hi: tm.Field[int] = tm.field(default=9)
    marks: tm.Field[list[int]] = tm.field(factory=list)
    length: tm.Field[int | None] = tm.field(default=None)

    key = tm.Key[str](partition="{name}")
    by_length = tm.Index[int](partition="{length}")

    def __attrs_post_init__(self) -> None:
        self.name = self.name.lower()
        if self.lo > self.hi or not all(self.lo <= mark <= self.hi for mark in self.marks):
            raise ValueError("not from lo to hi")
        self.length = self.hi - self.lo


Total = grouped("Total", Span, "lo", "Totals", length=(int | None, tm.sum(Span.length)))


KEY = Span.key("a")


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with sound_store(":memory:", models=[Span, Total]) as store:
        store.insert(Span("a"))
        yield store


def changed(span: Span, **values: Any) -> Span:
    for name, value in values.items():
        setattr(span, name, value)
    return span


def in_block(store: tm.Store, work: Callable[[Any], object]) -> None:
    with store.transaction() as tx:
        work(tx)


def unbuilt(**values: Any) -> Span:
    """Return an entity that no constructor built."""
    span: Span = object.__new__(Span)
    for name, value in {"name": "b", "lo": 0, "hi": 9, "marks": [], "length": None, **values}.items():
        Span.__dict__[name].__set__(span, value)
    return span


WRITES: dict[str, Callable[[tm.Store, dict[str, int]], object]] = {
    "insert": lambda store, values: store.insert(changed(Span("b"), **values)),
    "insert of what was not constructed": lambda store, values: store.insert(unbuilt(**values)),
    "replace": lambda store, values: store.replace(changed(store[KEY], **values)),
    "upsert": lambda store, values: store.upsert(changed(Span("a"), **values)),
    "upsert and merge": lambda store, values: store.upsert(changed(Span("a"), **values), merge=True),
    "merge": lambda store, values: store.merge(KEY, **values),
    "merge of what is calculated": lambda store, values: store.merge(
        KEY, *[getattr(Span, name).set(Span.lo * 0 + value) for name, value in values.items()]
    ),
    "update": lambda store, values: store.update(KEY, lambda span: changed(span, **values)),
    "update by query": lambda store, values: store.query(Span).where(Span.name == "a").update(**values),
    "update by query and function": lambda store, values: (
        store.query(Span).where(Span.name == "a").update(lambda span: changed(span, **values))
    ),
    "insert_many": lambda store, values: store.insert_many([changed(Span("b"), **values)]),
    "insert_many, atomic": lambda store, values: store.insert_many([changed(Span("b"), **values)], atomic=True),
    "upsert_many": lambda store, values: store.upsert_many([changed(Span("a"), **values)]),
    "replace_many": lambda store, values: store.replace_many([changed(store[KEY], **values)]),
    "insert_columns": lambda store, values: store.insert_columns(
        Span, {"name": ["b"], **{name: [value] for name, value in values.items()}}
    ),
    "move": lambda store, values: store.move(changed(store[KEY], **values), Span.key("b")),
    "tx.insert": lambda store, values: in_block(store, lambda tx: tx.insert(changed(Span("b"), **values))),
    "tx.replace": lambda store, values: in_block(store, lambda tx: tx.replace(changed(tx[KEY], **values))),
    "tx.upsert": lambda store, values: in_block(store, lambda tx: tx.upsert(changed(Span("a"), **values))),
    "tx.merge": lambda store, values: in_block(store, lambda tx: tx.merge(KEY, **values)),
}  # fmt: skip


@pytest.mark.needs("all_or_none_load", when=lambda id: "atomic" in id)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_what_a_rule_refuses_each_write_refuses_with_the_name_of_the_entity(
    store: tm.Store, write: Callable[[tm.Store, dict[str, int]], object]
) -> None:
    with pytest.raises(tm.InvalidEntity, match=r"Span (\('[ab]', ''\)|columns, row 0): .*not from lo to hi") as caught:
        write(store, {"lo": 70})
    assert isinstance(caught.value.__cause__, ValueError)
    assert list(store.query(Span).allow_scan()) == [Span("a")]


@pytest.mark.needs("across_partitions", "all_or_none_load", when=lambda id: "atomic" in id or id == "move")
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_what_a_rule_sets_is_stored(store: tm.Store, write: Callable[[tm.Store, dict[str, int]], object]) -> None:
    write(store, {"lo": 2, "hi": 7})
    (span,) = store.query(Span.by_length(5))
    assert (span.lo, span.hi, span.length) == (2, 7, 5)
    assert store[Total.key(2)].length == 5


def test_a_list_that_was_changed_in_place_is_seen_by_the_rule(store: tm.Store) -> None:
    span = store[KEY]
    span.marks.append(70)
    with pytest.raises(tm.InvalidEntity, match="not from lo to hi"):
        store.replace(span)


def test_the_entity_that_was_written_has_what_its_rule_set(store: tm.Store) -> None:
    span = changed(store[KEY], hi=3)
    store.replace(span)
    assert span.length == 3
    assert store.merge(KEY, hi=4, returning=True).length == 4


async def test_a_rule_of_an_async_store_is_asked_too() -> None:
    async with tm.open_async(":memory:", models=[Span]) as store:
        await store.insert(Span("a"))
        with pytest.raises(tm.InvalidEntity, match="not from lo to hi"):
            await store.merge(KEY, lo=70)
        with pytest.raises(tm.InvalidEntity, match="not from lo to hi"):
            async with store.transaction() as tx:
                tx.merge(KEY, lo=70)
        assert (await store[KEY]).lo == 0


@pytest.mark.parametrize(
    ("error", "text"), [(ValueError("odd"), "odd"), (ValueError(), "ValueError"), (KeyError("odd"), "KeyError: 'odd'")]
)
def test_whatever_a_rule_raises_is_a_refusal(error: Exception, text: str) -> None:
    class Odd(tm.Entity, table="Odds"):
        n: tm.Field[int]
        key = tm.Key[int](partition="{n}")

        def __attrs_post_init__(self) -> None:
            if self.n % 2:
                raise error

    with tm.open(":memory:", models=[Odd]) as store:
        with pytest.raises(tm.InvalidEntity, match=rf"Odd \('a1', ''\): {text}"):
            store.insert(changed(Odd(2), n=1))  # type: ignore[arg-type]
        with pytest.raises(type(error)):
            Odd(1)


def test_entities_that_break_a_later_rule_are_read_and_deleted_but_not_written(tmp_path: Path) -> None:
    class Before(tm.Entity, table="Spans"):
        name: tm.Field[str]
        lo: tm.Field[int] = tm.field(default=0)
        hi: tm.Field[int] = tm.field(default=9)
        marks: tm.Field[list[int]] = tm.field(factory=list)
        length: tm.Field[int | None] = tm.field(default=None)
        key = tm.Key[str](partition="{name}")
        by_length = tm.Index[int](partition="{length}")

    Before.__name__ = "Span"
    with tm.open(tmp_path / "x.db", models=[Before]) as old:
        old.insert_many([Before("a", 70), Before("b", 70)])
        with sound_store(tmp_path / "x.db", models=[Span]) as new:
            assert new[KEY].lo == 70
            with new.transaction() as tx:
                assert tx[KEY].lo == 70
            with pytest.raises(tm.InvalidEntity, match="not from lo to hi"):
                new.merge(KEY, marks=[71])
            new.merge(KEY, lo=7)
            old.merge(Before.key("a"), lo=80)
            assert new[KEY].lo == 80
            new.delete(new[KEY])
            new.delete(Span.key("b"))


def test_a_rule_may_say_again_what_a_key_field_is_but_not_change_it(store: tm.Store) -> None:
    span = store[KEY]
    span.name = "a"
    with pytest.raises(tm.InvalidEntity, match="a key field is read-only"):
        span.name = "b"


def test_a_class_without_a_rule_pays_nothing() -> None:
    Plain = entity("Plain", "Plains", {"name": str}, tm.Key[str](partition="{name}"))

    class Ruled(tm.Entity, table="Ruleds"):
        name: tm.Field[str]
        key = tm.Key[str](partition="{name}")

        def __attrs_post_init__(self) -> None: ...

    def source(cls: Any) -> list[str]:
        return linecache.getlines(model_of(cls).to_row.__code__.co_filename)

    ruled = [line.replace("Ruled", "Plain") for line in source(Ruled)]
    assert [line for line in ruled if "check_rule" not in line] == source(Plain)
    assert len(ruled) == len(source(Plain)) + 2


def test_what_msgspec_built_is_asked_when_it_is_written(store: tm.Store) -> None:
    span = msgspec.convert({"name": "B", "hi": 4}, Span)
    store.insert(span)
    assert store[Span.key("b")].length == 4
