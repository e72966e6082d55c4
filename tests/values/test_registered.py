"""Classes of users that are registered as scalars: each verb does with them what it does with the scalar."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NewType
from uuid import UUID

import attrs
import pytest
from hypothesis import given, settings

import tablemapper as tm
from tablemapper.testing.strategies import entities

from ..classes import entity
from ..engines.azure.place import AzurePlace
from ..engines.dicts import DictPlace
from ..sql import run_sql


class Boxed:
    """A value in a box, which knows no order."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Boxed) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


def boxed(kind: type[Any], name: str = "") -> type[Boxed]:
    """Return a class of boxes that is registered as a scalar."""
    made: Any = type(name or f"Boxed{kind.__name__.title()}", (Boxed,), {})
    tm.register(made, kind, store=lambda box: box.value, load=made)
    return made  # type: ignore[no-any-return]


VALUES: dict[type[Any], list[Any]] = {
    str: ["", "a b", "é!", "z"], int: [-(2**40), -1, 0, 7], float: [-1.5, 0.0, 2.25, 1e300], bool: [False, True],
    bytes: [b"", b"\x00a", b"\xff"], Decimal: [Decimal("-1.50"), Decimal("0"), Decimal("10"), Decimal("9.25")],
    UUID: [UUID(int=n) for n in (1, 2**100, 2**127)],
    datetime: [datetime(2026, 1, day, 12, tzinfo=UTC) for day in (1, 2, 30)],
    date: [date(2026, 1, day) for day in (1, 2, 30)], time: [time(1), time(12, 30, 0, 5), time(23, 59)],
    timedelta: [timedelta(days=-1), timedelta(0), timedelta(hours=5)],
}  # fmt: skip
BOXES = {kind: boxed(kind) for kind in VALUES}


def models(kind: type[Any]) -> tuple[Any, Any]:
    """Return a class with values of a type in its key, an index and a field, and the aggregate over it."""
    item = entity(
        "Item", "Items", {"p": kind, "r": int, "value": kind, "maybe": (kind | None, tm.field(default=None))},
        tm.Key(partition="{p}", row="{r}"), by_value=tm.Index(partition="all", row="{value}", include=("maybe",)),
    )  # fmt: skip
    body = {"__annotations__": {"p": tm.Field[kind], "items": tm.Field[int], "last": tm.Field[kind | None]}}
    body |= {"p": tm.group_by(item.p), "items": tm.count(), "last": tm.max(item.value)}
    body |= {"key": tm.Key(partition="{p}"), "__module__": __name__}
    return item, type(tm.Aggregate)("Total", (tm.Aggregate,), body, of=item, table="Totals")


def plain(value: Any) -> Any:
    """Return values, or an entity, without boxes."""
    if isinstance(value, Boxed):
        return value.value
    if isinstance(value, tm.Record):
        return tuple([plain(getattr(value, name)) for name in value.__annotations__])
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def outcomes(where: Any, kind: type[Any], box: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """Return what each verb gives of entities whose values are in boxes, without these."""
    item, total = models(kind)
    low, high = box(values[0]), box(values[-1])
    seen: list[Any] = []
    with tm.open(where, models=[item, total]) as store:
        for number, value in enumerate(values):
            maybe = None if number % 2 else box(values[number - 1])
            store.insert(item(box(values[number % 2]), number, box(value), maybe))
        store.insert_many([item(high, 50, low), item(high, 51, high, low)])
        store.merge(item.key(high, 50), item.value.set(high), item.maybe.set(low))
        store.update(item.key(high, 51), lambda one: one.replace(value=low))
        store.upsert(item(high, 52, low, high))
        seen.append([plain(one) for one in store.partition(item.p == high)])
        query = store.query(item).allow_scan()
        sort = query.allow_sort()
        for condition in [
            item.p == low, item.value == high, item.value != high, item.value.is_in([low, high]), item.maybe.is_null(),
            item.maybe == low, item.p == item.value, *([item.value < high, item.value.between(low, high), item.maybe >= high, item.maybe > item.p]),
        ]:  # fmt: skip
            seen.append(sorted([plain(one) for one in query.where(condition)], key=lambda one: one[1]))
            seen.append((query.where(condition).count(), query.where(condition, item.r > 1).count()))
        seen.append([plain(one) for one in sort.order_by(item.maybe.desc(), item.r).limit(4)])
        seen.append(
            [plain(one) for one in store.query(item.by_value()).where(item.value >= box(values[1])).allow_eventual()]
        )
        seen.append(plain(list(query.select(item.value, item.r))))
        seen.append(plain(query.group_by(item.value).count()))
        seen.append(plain((query.min(item.value), query.max(item.maybe))))
        seen.append(plain(store.group(total.key(high))))
        seen.append(query.where(item.r == 52).update(value=high))
        seen.append(query.where(item.value == high).delete())
        seen.append([tm.to_json(one) for one in query])
        seen += [plain(tm.from_json(item, tm.to_json(one))) for one in query]
        seen += [plain(tm.from_dict(item, tm.to_dict(one))) for one in query]
        first = next(iter(query))
        assert plain(first.key) == plain(item.key(first.p, first.r))
        assert plain(store.get(item.key(first.p, first.r))) == plain(first)
        seen.append(tm.json_schema(item))
        report = store.check()
        assert report.ok, str(report)
    return seen


@pytest.mark.parametrize("kind", VALUES)
def test_each_verb_does_with_a_class_what_it_does_with_its_scalar(kind: type[Any], path: Path) -> None:
    box: Any = BOXES[kind]
    expected = outcomes(DictPlace(kind.__name__), kind, lambda value: value, VALUES[kind])
    for place in (path, AzurePlace(kind.__name__)):
        assert outcomes(place, box, box, VALUES[kind]) == expected


SPECS = [
    (str, "{v:fold}", ""), (str, "{v:prefix(2)}", "{v:hash}"), (str, "a{v:shard(3)}", "{v}-x"), (int, "{v:desc}", ""),
    (int, "all", ("{v:08d}", "{v}")), (Decimal, "all", "{v:desc}"), (date, "{v:%Y-%m}", "{v}"), (datetime, "{v:%Y-%m-%d}", "{v:%H:%M:%S.%f}"),
    (datetime, "{v:%Y}", "{v:desc}"), (time, "{v:%H}", "{v:%M:%S.%f}"), (UUID, "{v:hash}", "{v}"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "partition", "row"), SPECS)
def test_each_spec_of_a_key_writes_the_scalar(kind: type[Any], partition: str, row: Any) -> None:
    scalar = kind

    def seen(box: Callable[[Any], Any], kind: Any) -> list[Any]:
        values = [value for value in VALUES[scalar] if value != "" and (scalar is not int or value >= 0)]
        item = entity("Item", "Items", {"v": kind, "n": int}, tm.Key(partition=partition, row=row),
                      by_v=tm.Index(partition="{n:shard(2)}", row=row if "{" in str(row) else "{v}"))  # fmt: skip
        with tm.open(":memory:", models=[item]) as store:
            store.insert_many(item(box(value), n) for n, value in enumerate(values))
            keys = [tuple(one.key)[1:] for one in store.query(item).allow_scan()]
            assert [store[item.key(box(value))].v for value in values] == [box(value) for value in values]
            query, low = store.query(item).allow_scan(), box(values[1])
            found = [
                sorted([plain(one) for one in query.where(condition)], key=repr)
                for condition in (item.v == low, item.v > low, item.v <= low, item.v.between(low, box(values[-1])))
            ]
            assert store.check().ok
            return [
                keys,
                found,
                [one.explain().path for one in [query.where(item.v == low), query.where(item.v > low)]],
            ]

    assert seen(BOXES[kind], BOXES[kind]) == seen(plain, kind)


PLACES = pytest.mark.parametrize("where", [Path, AzurePlace, DictPlace])


@attrs.frozen(order=False)
class Slug:
    """A text of letters: an attrs class, which knows no order."""

    text: str

    @classmethod
    def load(cls, text: str) -> Slug:
        if not text.isalpha():
            raise LookupError(f"{text!r} is no slug")
        return cls(text)


REGISTERED: tuple[Callable[[Slug], str], Callable[[str], Slug]] = (lambda slug: slug.text, Slug.load)
tm.register(Slug, str, store=REGISTERED[0], load=REGISTERED[1])


class Page(tm.Entity, table="Pages"):
    site: tm.Field[str]
    slug: tm.Field[Slug]
    parent: tm.Field[Slug | None] = tm.field(default=Slug("root"))

    key = tm.Key[str, Slug](partition="{site}", row="{slug}")
    by_parent = tm.Index[str, Slug](partition="{site}", row="{parent}", where=lambda p: p.parent != Slug("none"))


def test_values_that_their_functions_do_not_give_back_are_refused() -> None:
    refused = {
        Slug("a b"): "LookupError: 'a b' is no slug",
        "a": "expected Slug, got str 'a'",
        Slug(5): "expected str, got int 5",  # type: ignore[arg-type]
    }
    for value, why in refused.items():
        with pytest.raises(tm.InvalidEntity) as caught:
            Page("s", value)  # type: ignore[arg-type]
        assert why in str(caught.value)
        with pytest.raises(tm.InvalidEntity):
            Page("s", Slug("a")).parent = value  # type: ignore[assignment]
    with pytest.raises(tm.InvalidQuery, match="expected Slug, got str 'a'"):
        Page.parent == "a"  # type: ignore[comparison-overlap]  # noqa: B015
    for wrong in (lambda: Page.slug.startswith("a"), lambda: Page.slug + 1, lambda: Page.slug == Page.site):  # type: ignore[misc, operator, comparison-overlap]
        with pytest.raises(tm.InvalidQuery):
            wrong()
    with pytest.raises(tm.InvalidEntity, match="parent"):
        tm.from_json(Page, b'{"site": "s", "slug": "a", "parent": "a b"}')

    class Forgetful(Boxed):
        pass

    tm.register(Forgetful, int, store=lambda box: box.value, load=lambda number: Forgetful(abs(number)))
    forgetful = entity("Forgetful", "Forgetfuls", {"n": Forgetful}, tm.Key(partition="{n}"))
    assert forgetful(Forgetful(3)).n.value == 3
    with pytest.raises(tm.InvalidEntity, match=r"Forgetful\(-3\) is stored as -3, of which load= makes Forgetful\(3\)"):
        forgetful(Forgetful(-3))


def test_a_stored_scalar_that_load_refuses_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "pages.db"
    with tm.open(path, models=[Page]) as store:
        store.insert_many([Page("s", Slug("a")), Page("s", Slug("b"))])
    run_sql(path, "UPDATE Pages SET parent = 'a b' WHERE RowKey = 'a'")
    with tm.open(path, models=[Page]) as store:
        report = store.check()
        assert [problem.where for problem in report.problems if problem.kind == "damaged"] == ["Page"]
        with pytest.raises(tm.CorruptStore, match="no slug"):
            list(store.query(Page).where(Page.site == "s"))
        assert store.merge(Page.key("s", Slug("a")), Page.parent.set(Slug("c"))) is None
        store.repair()
        assert store.check().ok


@PLACES
def test_a_class_takes_up_and_drops_an_own_type_without_a_change(where: Callable[[Path], Any], path: Path) -> None:
    place = where(path)
    members = {"site": str, "slug": str, "parent": (str | None, tm.field(default="root"))}
    key = tm.Key(partition="{site}", row="{slug}")
    texts = entity(
        "Page", "Pages", members, key,
        by_parent=tm.Index(partition="{site}", row="{parent}", where=lambda p: p.parent != "none"),
    )  # fmt: skip
    assert tm.schema_snapshot([Page]) == tm.schema_snapshot([texts])
    with tm.open(place, models=[texts]) as old:
        old.insert(texts("s", "a", "b"))
        with tm.open(place, models=[Page]) as new:
            new.insert(Page("s", Slug("c"), Slug("b")))
            old.insert(texts("s", "d", "none"))
            of_b = new.query(Page.by_parent("s", Slug("b"))).allow_eventual()
            assert [one.slug for one in of_b] == [Slug("a"), Slug("c")]
            assert {one.slug for one in old.query(texts).where(texts.site == "s")} == {"a", "c", "d"}
            assert new.check().ok
            assert old.check().ok


@PLACES
def test_a_maintained_field_may_have_an_own_type_in_its_key(where: Callable[[Path], Any], path: Path) -> None:
    def shelf(kind: Any, page: Any) -> Any:
        members = {"slug": kind, "pages": (int, tm.count(of=page)), "last": (kind | None, tm.max(page.last, of=page))}
        return entity("Shelf", "Shelves", members, tm.Key(partition="{slug}"))

    def page(kind: Any, **more: Any) -> Any:
        members = {"slug": kind, "number": int, "last": (kind | None, tm.field(default=None)), **more}
        return entity("Leaf", "Leaves", members, tm.Key(partition="{slug}", row="{number}"))

    place = where(path)
    leaf = page(Slug)
    texts, wider = page(str), page(Slug, more=(str, tm.field(default="")))
    with (
        tm.open(place, models=[leaf, shelf(Slug, leaf)]) as store,
        tm.open(place, models=[wider, shelf(Slug, wider)]) as new,
    ):
        own = shelf(str, texts)
        with tm.open(place, models=[texts, own]) as old:
            new.insert(new.classes["Shelf"](Slug("a")))
            store.insert(leaf(Slug("a"), 1, Slug("x")))
            new.insert(wider(Slug("a"), 2, Slug("z")))
            old.insert(texts("a", 3, "y"))
            old.delete(texts.key("a", 2))
            new.sweep() if hasattr(new, "sweep") else None
            assert old[own.key("a")].last == "y"
            shelves = new.classes["Shelf"]
            found = new[shelves.key(Slug("a"))]
            assert (found.pages, found.last) == (2, Slug("y"))
            assert new.check().ok


def test_nested_values_of_a_registered_class_are_as_json_has_its_scalar() -> None:
    box = BOXES[timedelta]
    nested = entity(
        "Nested", "Nesteds", {"n": int, "many": list[box], "named": dict[str, BOXES[Decimal]]}, tm.Key(partition="{n}")
    )
    one = nested(1, [box(timedelta(hours=5))], {"a": BOXES[Decimal](Decimal("1.50"))})
    assert tm.to_dict(one) == {"n": 1, "many": ["PT18000S"], "named": {"a": "1.50"}}
    assert tm.from_dict(nested, tm.to_dict(one)) == one
    assert tm.json_schema(nested)["properties"]["many"]["items"] == {}
    with tm.open(":memory:", models=[nested]) as store:
        store.insert(one)
        assert store[nested.key(1)] == one
        found = list(store.query(nested).where(nested.named["a"] > BOXES[Decimal](Decimal("1.25"))).allow_scan())
        assert found == [one]


def test_what_cannot_be_registered_says_why() -> None:
    class Color(Enum):
        RED = "red"

    class Hooked:
        pass

    tm.converter().register_unstructure_hook(Hooked, lambda _: "")
    tm.converter().register_structure_hook(Hooked, lambda *_: Hooked())
    late = boxed(str, "Late")
    tm.converter().register_unstructure_hook(late, lambda _: "")
    refused: list[tuple[Any, Any, str]] = [
        (NewType("Token", str), str, "expected a class, got "),
        (list[int], str, "expected a class, got list"),
        (type("New", (), {}), list, "New cannot be stored as <class 'list'>: expected str, bool, int"),
        (Color, str, "Color is stored by the library itself; wrap the value in a class of your own"),
        (str, str, "str is stored by the library itself"),
        (Page, str, "Page is stored by the library itself"),
        (tm.GeoPoint, str, "GeoPoint is stored by the library itself"),
        (object, str, "object is stored by the library itself"),
        (Hooked, str, "Hooked has hooks on tablemapper.converter(); give it these or tm.register, not both"),
        (Slug, int, "Slug is registered already, with other functions"),
    ]
    for cls, kind, why in refused:
        with pytest.raises(tm.InvalidModel) as caught:
            tm.register(cls, kind, store=str, load=str)
        assert str(caught.value).startswith(f"tm.register: {why}")
    with pytest.raises(tm.InvalidModel, match="store= and load= are functions"):
        tm.register(type("New", (), {}), str, store="text", load=str)  # type: ignore[call-overload, arg-type]
    with pytest.raises(tm.InvalidModel, match="Late has hooks on tablemapper.converter.., and is registered"):
        entity("L", "Ls", {"a": late}, tm.Key(partition="{a}"))
    for body in ({"n": tm.field(precision="ms")},):
        with pytest.raises(tm.InvalidModel, match="precision='ms' is for datetime and time, this is BoxedDatetime"):
            entity("L", "Ls", {"a": int, "n": (BOXES[datetime], body["n"])}, tm.Key(partition="{a}"))
    tm.register(Slug, str, store=REGISTERED[0], load=REGISTERED[1])  # the same again is nothing


def test_columns_and_strategies_know_own_types() -> None:
    pytest.importorskip("pyarrow")
    item, total = models(BOXES[Decimal])
    box = BOXES[Decimal]
    with tm.open(":memory:", models=[item, total]) as store:
        columns = {"p": [Decimal(1), box(Decimal("1.50"))], "r": [1, 2], "value": [Decimal("2.5"), Decimal(3)]}
        store.insert_columns(item, columns)
        assert store[item.key(box(Decimal("1.5")), 2)].value == box(Decimal(3))
        made = store.query(item).allow_scan().to_arrow()
        assert made.column("value").to_pylist() == [Decimal("2.5"), Decimal(3)]
        with pytest.raises(tm.InvalidEntity, match="expected BoxedDecimal, got str 'x'"):
            store.insert_columns(item, {**columns, "value": ["x", "y"]})

    seen: list[Any] = []

    @settings(max_examples=20, database=None)
    @given(entities(Page))
    def draw(page: Page) -> None:
        seen.append(page)
        assert isinstance(page.slug, Slug)

    draw()
    assert seen
