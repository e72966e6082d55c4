"""An index over an undeclared property: ``Index(partition="{more[color]}")``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from ..stores import sound_store

MORE = (tm.Extra, tm.field(factory=tm.Extra))


class Device(tm.Entity, table="Devices"):
    id: tm.Field[str]
    more: tm.Field[tm.Extra | None] = tm.field(default=None)
    sizes: tm.Field[dict[str, int]] = tm.field(factory=dict)

    key = tm.Key[str](partition="{id}")
    by_color = tm.Index[str](partition="{more[color]}")
    by_maker = tm.Index[str, str](partition="{more[maker]:fold}", row="{more[model]}", include=("sizes",))
    by_large = tm.Index[int](partition="{sizes[large]}")


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with sound_store(":memory:", models=[Device]) as store:
        store.insert_many(
            [
                Device("a", tm.Extra(color="red", maker="Acme", model="x")),
                Device("b", tm.Extra(color="red", maker="ACME", model="y"), {"large": 3}),
                Device("c", tm.Extra(color="blue", maker="Other")), Device("d", tm.Extra(color=5, n=5)),
                Device("e", tm.Extra(color=True)), Device("f", tm.Extra(color=datetime(2020, 1, 1, tzinfo=UTC))),
                Device("g", tm.Extra(color="")), Device("h"), Device("i", tm.Extra(color=5.0)),
            ]
        )  # fmt: skip
        yield store


def ids(query: Any) -> list[str]:
    return sorted(device.id for device in query)


COLOR = Device.more["color"]  # type: ignore[index]


def test_what_is_a_text_is_found_by_its_index(store: tm.Store) -> None:
    assert ids(store.query(Device.by_color("red"))) == ["a", "b"]
    assert ids(store.query(Device.by_color(""))) == ["g"]
    assert ids(store.query(Device.by_color())) == ["a", "b", "c", "g"]
    assert ids(store.query(Device.by_maker("acme"))) == ["a", "b"]
    assert ids(store.query(Device.by_maker("acme", "y"))) == ["b"]
    assert ids(store.query(Device.by_large(3))) == ["b"]


def test_a_condition_on_a_text_follows_the_index(store: tm.Store) -> None:
    red = store.query(Device).where(COLOR == "red")
    assert (red.explain().path, red.explain().filter) == ("Device.by_color", ())
    assert ids(red) == ["a", "b"]
    some = store.query(Device).where(COLOR.is_in(["blue", "red", "none"]))
    assert some.explain().path == "Device.by_color"
    assert ids(some) == ["a", "b", "c"]
    assert ids(store.query(Device).where(COLOR == "red", Device.more["model"] == "y")) == ["b"]
    large = store.query(Device).where(Device.sizes["large"] == 3)
    assert (large.explain().path, ids(large)) == ("Device.by_large", ["b"])


@pytest.mark.parametrize("first", ["red", 5])
def test_a_condition_on_another_type_does_not_follow_it_whichever_came_first(store: tm.Store, first: Any) -> None:
    for value in (first, "red", 5, True, "red", datetime(2020, 1, 1, tzinfo=UTC)):
        found = store.query(Device).where(value == COLOR).allow_scan()
        expected = {"red": ["a", "b"], 5: ["d", "i"], True: ["e"]}.get(value, ["f"])
        assert ids(found) == expected
        assert ids(store.query(Device).where(COLOR.is_in([value])).allow_scan()) == expected
    assert ids(store.query(Device).where(COLOR.is_in(["red", 5])).allow_scan()) == ["a", "b", "d", "i"]
    with pytest.raises(tm.ScanRefused):
        list(store.query(Device).where(COLOR == 5))


def test_other_comparisons_say_what_they_said_before(store: tm.Store) -> None:
    everything = store.query(Device).allow_scan()
    assert ids(everything.where(COLOR != "red")) == ["c", "g"]
    assert ids(everything.where(~(COLOR == "red"))) == ["c", "d", "e", "f", "g", "h", "i"]
    assert ids(everything.where(COLOR > "blue")) == ["a", "b"]
    assert ids(everything.where((COLOR == "red") | (COLOR == 5))) == ["a", "b", "d", "i"]
    assert ids(everything.where(COLOR.is_not_null())) == ["a", "b", "c", "d", "e", "f", "g", "i"]


def test_the_index_follows_each_change_of_the_property(store: tm.Store) -> None:
    color = Device.more["color"]  # type: ignore[index]
    store.merge(Device.key("h"), color.set("red"))
    store.merge(Device.key("a"), color.set(7))
    store.merge(Device.key("b"), color.remove())
    store.merge(Device.key("d"), color.set("red"))
    assert ids(store.query(Device.by_color("red"))) == ["d", "h"]
    store.query(Device.by_color("red")).update(color.set("green"))
    assert ids(store.query(Device.by_color("green"))) == ["d", "h"]
    store.delete(Device.key("d"))
    assert ids(store.query(Device.by_color("green"))) == ["h"]


def test_an_index_of_undeclared_properties_is_built_over_what_is_there_and_opened_again(tmp_path: Path) -> None:
    def declared(**body: Any) -> Any:
        return entity("Thing", "Things", {"id": str, "more": MORE}, tm.Key[str](partition="{id}"), **body)

    Plain = declared()
    with tm.open(tmp_path / "x.db", models=[Plain]) as store:
        store.insert_many([Plain("a", tm.Extra(color="red")), Plain("b", tm.Extra(color=5))])
    for _ in range(2):
        Indexed = declared(by_color=tm.Index[str](partition="{more[color]}"))
        with tm.open(tmp_path / "x.db", models=[Indexed]) as store:
            assert ids(store.query(Indexed.by_color("red"))) == ["a"]
    with sound_store(tmp_path / "x.db", models=[Plain]) as store:  # a program that does not know of it maintains it
        store.insert(Plain("c", tm.Extra(color="red")))
    with tm.open(tmp_path / "x.db", models=[Indexed]) as store:
        assert ids(store.query(Indexed.by_color("red"))) == ["a", "c"]


def test_the_index_that_a_refusal_proposes_can_be_declared() -> None:
    members = {"id": str, "more": (tm.Extra, tm.field(factory=tm.Extra))}
    Bare = entity("Bare", "Bares", members, tm.Key[str](partition="{id}"))
    with tm.open(":memory:", models=[Bare]) as store, pytest.raises(tm.ScanRefused) as refused:
        list(store.query(Bare).where(Bare.more["color"] == "red"))
    assert 'tm.Index[str](partition="{more.color}")' in str(refused.value)


def test_what_cannot_be_indexed_is_refused(store: tm.Store) -> None:
    def declare(**body: Any) -> None:
        class Wrong(tm.Entity, table="Wrongs"):
            id: tm.Field[str]
            more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)
            locals().update(body)

    key = tm.Key[str](partition="{id}")
    for body, message in [
        ({"key": key, "by_n": tm.Index[int](partition="{more[n]}")}, "type parameter of more.n is int, but the field is str"),
        ({"key": key, "by_n": tm.Index(partition="{mroe[n]}")}, 'no field "mroe.n"'),
        ({"key": key, "by_n": tm.Index(partition="{more[n]:08d}")}, "08d"),
        ({"key": tm.Key(partition="{more[n]}")}, "is nested, and a key is made of fields"),
    ]:  # fmt: skip
        with pytest.raises(tm.InvalidModel, match=message):
            declare(**body)
    with pytest.raises(tm.InvalidQuery, match="expected str, got int 5"):
        Device.by_color(5)  # type: ignore[call-overload]


def test_a_text_and_a_value_of_another_type_are_nobodys() -> None:
    key = tm.Key[int](partition="{id}")
    Part = entity("Part", "Parts", {"id": int, "more": tm.Extra}, key, by_size=tm.Index[str](partition="{more[size]}x"))
    size: Any = Part.more["size"]
    with tm.open(":memory:", models=[Part]) as parts:
        parts.insert_many([Part(1, tm.Extra(size="a")), Part(2, tm.Extra(size=2))])
        for where in ((size == 2, size == "a"), (size == "a", size == 2), (size == 2.0, size.is_in(["a", "b"]))):
            assert list(parts.query(Part).where(*where).allow_scan()) == []


@pytest.mark.parametrize(
    "slot", ["{sizes[a.b]}", "{sizes[a]b]}", "{sizes[a[b]}", "{sizes[a:b]}", "{sizes[]}", "{more[a.b]:fold}"]
)
def test_a_key_that_no_template_can_name_is_refused_and_names_no_other(slot: str) -> None:
    members = {"id": str, "more": MORE, "sizes": (dict[str, int], tm.field(factory=dict))}
    with pytest.raises(tm.InvalidModel, match=r"the key of an entry that is part of a key or an index has none of"):
        entity("Device", "Devices", members, tm.Key(partition="{id}"), by_slot=tm.Index(partition=slot))
