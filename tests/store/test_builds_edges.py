"""Edges of what is built or copied beside writers: empty keys, shared tables, spilled values, moves, a second job."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest

import tablemapper as tm

from ..classes import aggregate, entity, grouped
from ..migrations.shapes import begun, made, script, step
from ..stores import sound_store

pytestmark = pytest.mark.file

FIELDS = {"name": str, "text": str, "tag": str, "price": str}
KEY = tm.Key[str](partition="{name}")


def bare(fields: dict[str, Any] = FIELDS, **body: Any) -> Any:
    """Return a class whose entity with an empty name has two empty keys; it shares its table with `LABEL`."""
    return entity("Thing", "Both", fields, KEY, **body)


THING = bare()
LABEL = entity("Label", "Both", {"number": int}, tm.Key[int](partition="label", row=("of", "{number}")))
INDEXED = bare(by_tag=tm.Index[str](partition="{tag}"), by_price=tm.Index[str](partition="{price}", include=("text",)))
UNIQUE = bare(by_tag=tm.Index[str](partition="{tag}", unique=True))
PRICED = bare({**FIELDS, "price": Decimal})
LONG = "x" * 5_000


@pytest.fixture
def path(tmp_path: Path, never_at_once: None) -> Path:
    with tm.open(tmp_path / "s.db", models=[THING, LABEL], durability="relaxed") as store:
        store.insert_many(
            [THING(name, LONG + name if name != "d" else "short", f"t{name}", "1") for name in ("", "a", "b", "c", "d")]
        )
        store.insert_many(LABEL(number) for number in range(5))
    return tmp_path / "s.db"


def move(store: tm.Store, cls: Any, name: str, other: str) -> None:
    store.move(store[cls.key(name)], cls.key(other))


def texts(store: tm.Store, cls: Any) -> list[str]:
    return sorted(one.text[-2:] for one in store.query(cls).allow_scan())


def test_a_build_beside_writes_of_empty_keys_spilled_values_and_moves(path: Path) -> None:
    with (
        tm.open(path, models=[THING, LABEL], durability="relaxed") as old,
        tm.open(path, models=[INDEXED, LABEL], durability="relaxed", build=False) as new,
    ):
        assert new.status()["Thing.by_tag"].done == 0
        old.merge(THING.key(""), text=LONG + "!", tag="t!")  # nothing is built yet, and "" is a key
        assert new.check().problems == ()
        new.build(limit=1)
        assert new.status()["Thing.by_tag"].done == 1
        for change in (
            lambda: old.merge(THING.key(""), text="short", tag="td"),
            lambda: move(old, THING, "d", " "),  # from behind the cursor to before it
            lambda: move(old, THING, "", "z"),  # and from before it to behind it
            lambda: old.insert(THING("", LONG, "new", "2")),
            lambda: old.delete(LABEL.key(0)),
            lambda: old.delete(THING.key("b")),
        ):
            change()
            assert new.check().problems == ()
        new.build(limit=2)
        assert new.check().problems == ()
        more = bare(**_indexes(), by_both=tm.Index[str, str](partition="{price}", row="{tag}"))
        with tm.open(path, models=[more, LABEL], durability="relaxed", build=False) as newest:  # a second job
            assert newest.status()["Thing.by_both"].done == 0
            old.merge(THING.key(""), price="7")
            assert newest.check().problems == ()
            assert newest.build(rest=0).done
            assert newest.check().problems == ()
            assert [one.name for one in newest.query(more.by_both("7"))] == [""]
        assert [one.name for one in new.query(INDEXED.by_tag("td"))] == [" ", "z"]
        assert len(list(new.query(LABEL).allow_scan())) == 4


def _indexes() -> dict[str, Any]:
    return {
        "by_tag": tm.Index[str](partition="{tag}"),
        "by_price": tm.Index[str](partition="{price}", include=("text",)),
    }


def test_an_entity_whose_value_is_held_twice_is_changed_deleted_and_moves_up_and_is_not_moved(path: Path) -> None:
    with tm.open(path, models=[THING, LABEL], durability="relaxed") as store:
        for name in ("", "a", "b", "c", "d"):
            store.merge(THING.key(name), tag="same")
    with tm.open(path, models=[UNIQUE, LABEL], durability="relaxed", build=False) as store:
        store.build(rest=0)

        def held() -> list[str]:
            assert store.check().problems == ()
            return [pk for one in store._engine.violations(9) for pk, _ in one.holders]  # type: ignore[attr-defined]

        assert held() == ["", "a", "b", "c", "d"]
        store.merge(UNIQUE.key("b"), price="9")  # noted, and changed in something else
        for name in ("", "c"):  # the first, and one that is noted: under another key it would be a further one
            with pytest.raises(tm.UniqueViolation):
                move(store, UNIQUE, name, "e")
        assert held() == ["", "a", "b", "c", "d"]
        store.delete(UNIQUE.key("d"))
        store.merge(UNIQUE.key(""), tag="other")  # the first: the next one moves up
        assert held() == ["a", "b", "c"]
        assert [one.name for one in store.query(UNIQUE).where(UNIQUE.tag == "other").allow_scan()] == [""]
        store.delete(UNIQUE.key("a"))
        store.delete(UNIQUE.key("c"))
        assert held() == []
        move(store, UNIQUE, "b", "e")
        assert [one.name for one in store.query(UNIQUE.by_tag("same"))] == ["e"]
        assert held() == []


def test_an_ever_starts_with_the_live_entities_and_keeps_what_was_there_once_it_is_built(path: Path) -> None:
    members = {"price": (str, tm.group_by(THING.price))}
    members |= {"most": (str | None, tm.max_ever(THING.tag)), "least": (str | None, tm.min_ever(THING.tag))}
    tags = aggregate("Tags", THING, members, tm.Key[str](partition="{price}"))
    with (
        tm.open(path, models=[THING, LABEL], durability="relaxed") as old,
        sound_store(path, models=[THING, LABEL, tags], durability="relaxed", build=False) as new,
    ):
        new.build(limit=2)  # "" and "a"
        old.merge(THING.key("a"), tag="a low one")  # what it has passed, and what comes
        old.merge(THING.key("a"), tag="ta")
        old.merge(THING.key("c"), tag="z high one")
        old.merge(THING.key("c"), tag="tc")
        assert new.check().problems == ()
        assert new.build(rest=0).done
        group = new[tags.key("1")]
        assert (group.least, group.most) == ("a low one", "td")
        old.delete(THING.key("d"))
        assert new[tags.key("1")].most == "td"


def test_a_copy_beside_writes_of_empty_keys_spilled_values_and_moves(path: Path) -> None:
    new_label = entity("Label", "Both", {"number": int}, tm.Key[int](partition="label", row=("of", "{number}")))
    decimals = step("convert", THING.price, PRICED.price, Decimal, back=str)
    one = made([PRICED, new_label], [THING, LABEL], decimals)
    engine = begun(path, one)
    with tm.open(path, models=[THING, LABEL], durability="relaxed") as old:
        old.merge(THING.key(""), text=LONG + "!")
        engine.step(2)
        old.merge(THING.key(""), text=LONG + "!!")
        move(old, THING, "d", " ")
        move(old, THING, "a", "z")
        old.delete(LABEL.key(0))
        engine.step(3)
        old.delete(THING.key(""))
        old.insert(THING("", "back", "t", "3"))
        expected = texts(old, THING)
        while not engine.step(2).switched:
            assert not engine.faults
        engine.close()
    with sound_store(path, models=[PRICED, new_label]) as store:
        assert texts(store, PRICED) == expected
        assert store[PRICED.key("")].price == 3
        assert len(list(store.query(new_label).allow_scan())) == 4


def test_a_token_of_before_a_switch_goes_on_after_it(place: Path) -> None:
    old, new = (
        entity("Row", "Rows", {"at": int, name: str}, tm.Key[int](partition="all", row="{at}"))
        for name in ("name", "title")
    )
    with tm.open(place, models=[old], durability="relaxed") as store:
        store.insert_many(old(n, f"n{n}") for n in range(9))
        query = store.query(old).where(old.at >= 2)
        first = query.page(3)
        one = script([new], lambda m: m.rename(old.name, new.title), "first", None, [old])
        assert tm.migrate(place, [one], rest=0, durability="relaxed").ok
        second = query.page(3, token=first.token)
        assert [(row.at, row.name) for row in (*first.items, *second.items)] == [(n, f"n{n}") for n in range(2, 8)]


@pytest.mark.parametrize("how", ["its version ends", "its column has another name"])
def test_a_token_meets_the_fence_of_what_it_reads(tmp_path: Path, how: str) -> None:
    def row(**fields: Any) -> Any:
        return entity("Row", "Rows", {"at": int, **fields}, tm.Key[int](partition="all", row="{at}"))

    old, path = row(name=Literal["n"]), tmp_path / "s.db"
    with tm.open(path, models=[old], durability="relaxed") as store:
        store.insert_many(old(n, "n") for n in range(9))
        query = store.query(old)
        first = query.page(3)
        if how == "its version ends":
            new = row(name=int)
            one = script([new], lambda m: m.convert(old.name, new.name, len), "first", None, [old])
            assert tm.migrate(path, [one], rest=0, durability="relaxed").ok
            with pytest.raises(tm.SchemaMismatch, match="first replaced this form"):
                query.page(3, token=first.token)
        else:
            tm.open(path, models=[row(name=Literal["n", "m"])]).close()
            assert [one.at for one in query.page(3, token=first.token).items] == [3, 4, 5]


@pytest.mark.parametrize("count", [1_000, 2_000])
def test_an_ever_begins_with_what_its_build_meets_and_counts_all_from_when_it_is_ready(
    count: int, tmp_path: Path
) -> None:
    members = {"player": str, "points": int}
    Shot = entity("Shot", "Shots", members, tm.Key[str, int](partition="{player}", row="{points}"))
    Best = grouped("Best", Shot, "player", "Bests", top=(int | None, tm.max_ever(Shot.points)))
    with tm.open(tmp_path / "s.db", models=[Shot]) as store:
        store.insert_many(Shot("a", number) for number in range(count))
    with tm.open(tmp_path / "s.db", models=[Shot, Best], build=False) as store:
        ready = store.status()["Best"].state == "ready"
        assert ready == (count == 1_000)
        store.delete(Shot.key("a", count - 1))  # before the build comes by, unless that was done in the opening
        store.build()
        assert store[Best.key("a")].top == (count - 1 if ready else count - 2)
        store.insert(Shot("a", count))
        store.delete(Shot.key("a", count))
        assert store[Best.key("a")].top == count


def test_what_is_built_of_a_class_ends_once_that_holds_nothing_and_is_declared_anew(path: Path) -> None:
    with tm.open(path, models=[INDEXED, LABEL], build=False, durability="relaxed") as store:
        store.delete_many([INDEXED.key(name) for name in ("", "a", "b", "c", "d")])
        assert store.status()["Thing.by_tag"].state == "building"
    anew = entity("Thing", "Both", {"name": int}, tm.Key[int](partition="thing", row="{name}"))
    with sound_store(path, models=[anew, LABEL], build=False, durability="relaxed") as store:
        store.insert(anew(1))
        assert [item.where for item in store.status().objects] == ["Label", "Thing"]
        assert store.build().built == ()
