"""Entities: built and set with all faults at once, read as plain slots, copied, compared and exported."""

from __future__ import annotations

import copy
import inspect
import pickle
import types
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pytest

import tablemapper as tm

from ..classes import Loose, entity


class Product(tm.Entity, table="Products"):
    """A thing on sale."""

    category_id: tm.Field[str]
    product_id: tm.Field[str]
    name: tm.Field[str]
    price: tm.Field[Decimal]
    manufacturer: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, str](partition="{category_id}", row="{product_id}")

    def label(self) -> str:
        return f"{self.name}: {self.price}"


class Seat(tm.Entity, table="Seats"):
    """Its fields are called as what generated source refers to."""

    row: tm.Field[str]
    partition: tm.Field[str]
    new: tm.Field[str]
    str: tm.Field[str]
    date: tm.Field[date]
    normalise: tm.Field[float]
    len: tm.Field[int] = tm.field(default=3)
    KeyOf: tm.Field[list[int]] = tm.field(factory=list)

    key = tm.Key[str, str, str](partition="{row}", row=("{partition}", "{new}"))


@pytest.fixture
def book() -> Product:
    return Product("books", "b-1", "Dune", Decimal("9.99"), "Ace", ["scifi"])


@pytest.fixture
def stored(book: Product) -> Product:
    with tm.open(":memory:", models=[Product]) as store:
        store.insert(book)
        return store[book.key]


def test_all_faults_of_a_constructor_are_reported_together() -> None:
    with pytest.raises(tm.InvalidEntity) as caught:
        Product(3, "b", None, 9.99, tags=["a", 3])  # type: ignore[arg-type, list-item]
    found = caught.value.faults
    assert [fault.partition(":")[0] for fault in found[:3]] == ["category_id", "name", "price"]
    assert len(found) == 4
    assert found[3].startswith("tags[1]")
    assert "Decimal('9.99')" in found[2]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("price", 1.5, "expected Decimal"), ("price", Decimal("NaN"), "not finite"), ("price", None, "required"),
        ("name", "\ud800", "lone surrogate"), ("name", b"x", "expected str"), ("tags", "x", "expected list"),
    ],
)  # fmt: skip
def test_setting_an_attribute_is_checked_and_changes_nothing_if_it_fails(
    book: Product, field: str, value: object, said: str
) -> None:
    before = getattr(book, field)
    with pytest.raises(tm.InvalidEntity, match=said):
        setattr(book, field, value)
    assert getattr(book, field) is before


def test_a_fault_inside_a_value_has_its_path() -> None:
    class Size(msgspec.Struct):
        width: int

    class Open(tm.Entity, table="Opens"):
        name: tm.Field[str]
        more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)
        size: tm.Field[dict[str, Size]] = tm.field(factory=dict)

        key = tm.Key[str](partition="{name}")

    with pytest.raises(tm.InvalidEntity) as caught:
        Open("x", tm.Extra(color=1 + 2j), {"large": Size("x")})  # type: ignore[arg-type]
    assert [fault.partition(":")[0] for fault in caught.value.faults] == ["more.color", "size[...].width"]
    assert Open("x", tm.Extra(color=None, shade=3)).more == {"shade": 3}


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda book: setattr(book, "prize", Decimal(1)), 'did you mean "price"'),
        (lambda book: Product.prize, 'did you mean "price"'),  # type: ignore[attr-defined]
        (lambda book: delattr(book, "manufacturer"), "set it to None"),
        (lambda book: setattr(Product, "price", Decimal(1)), "declare it in the class body"),
    ],
    ids=[
        "an unknown attribute",
        "an unknown field of the class",
        "no attribute is deleted",
        "no field of the class is set",
    ],
)
def test_an_attribute_that_cannot_be_used_so_is_refused_with_what_to_do(
    book: Product, use: Callable[[Product], object], said: str
) -> None:
    with pytest.raises(AttributeError, match=said):
        use(book)
    assert book.manufacturer == "Ace"


def test_values_are_kept_in_one_form() -> None:
    Moment = entity("Moment", "Moments", {"at": datetime, "value": float}, tm.Key[datetime](partition="{at}"))
    moment = Moment(datetime(2020, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))), -0.0)
    assert moment.at == datetime(2020, 1, 1, 10, tzinfo=UTC)
    assert moment.at.tzinfo is UTC
    assert repr(moment.value) == "0.0"
    moment.value = 3
    assert type(moment.value) is float


def test_key_fields_are_read_only_once_the_entity_is_stored(book: Product, stored: Product) -> None:
    for one in (book, stored):
        with pytest.raises(tm.InvalidEntity, match=r"store\.move"):
            one.product_id = "b-2"
        one.name = "Dune Messiah"


def test_key_fields_can_be_set_before(book: Product) -> None:
    book.product_id = "b-2"
    assert book.key == Product.key("books", "b-2")


def test_reading_an_attribute_is_a_plain_slot(book: Product) -> None:
    assert isinstance(inspect.getattr_static(book, "price"), types.MemberDescriptorType)
    assert not hasattr(book, "__dict__")
    assert type(book).__getattribute__ is object.__getattribute__


def test_the_class_of_an_entity_is_the_class(book: Product) -> None:
    assert type(book) is Product
    assert book.__class__ is Product
    assert Product.__module__ == __name__
    assert inspect.getdoc(Product) == "A thing on sale."
    assert list(inspect.signature(Product).parameters)[:2] == ["category_id", "product_id"]


def test_replace_keeps_the_etag_unless_the_key_changes(stored: Product) -> None:
    assert tm.info(stored.replace(price=Decimal(1))).etag == tm.info(stored).etag
    other = stored.replace(product_id="b-2")
    assert tm.info(other).etag is None
    other.product_id = "b-3"
    assert stored.product_id == "b-1"


def test_replace_takes_typed_assignments(stored: Product) -> None:
    other = stored.replace(Product.name.set("x"), Product.price.set(Decimal(1)), manufacturer=None)
    assert (other.name, other.price, other.manufacturer) == ("x", Decimal(1), None)
    assert tm.info(other).etag == tm.info(stored).etag


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: b.replace("x"), r"Product\.field\.set"),
        (lambda b: b.replace(Seat.len.set(3)), r"Seat\.len is not a field of Product"),
        (lambda b: b.replace(Product.price.add(Decimal(1))), "expected a value"),
        (lambda b: b.replace(Product.price.set(Product.price * 2)), "expected a value"),
        (lambda b: b.replace(Product.name.set("x"), name="y"), "assigned twice"),
        (lambda b: b.replace(Product.name.set("x"), Product.name.set("y")), "assigned twice"),
    ],
)
def test_a_wrong_assignment_is_named(book: Product, change: Any, said: str) -> None:
    with pytest.raises(tm.InvalidEntity, match=said):
        change(book)


def test_replace_refuses_what_a_constructor_refuses(book: Product) -> None:
    with pytest.raises(tm.InvalidEntity, match='did you mean "price"'):
        book.replace(prize=Decimal(1))
    with pytest.raises(tm.InvalidEntity, match="expected Decimal"):
        book.replace(price="1")


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        *[lambda e, n=n: pickle.loads(pickle.dumps(e, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)],
    ],
)
def test_a_copy_is_equal_and_keeps_the_etag(stored: Product, copied: Any) -> None:
    other = copied(stored)
    assert other == stored
    assert type(other) is Product
    assert tm.info(other) == tm.info(stored)


def test_a_deep_copy_shares_nothing(book: Product) -> None:
    other = copy.deepcopy(book)
    other.tags.append("x")
    assert book.tags == ["scifi"]


def test_a_factory_is_called_for_each() -> None:
    first, second = (Product("a", "b", "c", Decimal(1)) for _ in range(2))
    first.tags.append("x")
    assert second.tags == []


def test_entities_are_equal_by_class_and_fields(book: Product) -> None:
    assert book == Product("books", "b-1", "Dune", Decimal("9.99"), "Ace", ["scifi"])
    assert book != book.replace(price=Decimal(1))
    assert book != 3


def test_repr_shows_the_fields(book: Product) -> None:
    assert repr(book) == (
        "Product(category_id='books', product_id='b-1', name='Dune', price=Decimal('9.99'), "
        "manufacturer='Ace', tags=['scifi'])"
    )


def test_attrs_knows_an_entity(book: Product) -> None:
    assert [field.name for field in attrs.fields(Product)][:2] == ["category_id", "product_id"]
    assert attrs.has(Product)
    assert attrs.asdict(book)["price"] == Decimal("9.99")
    assert attrs.astuple(book)[2] == "Dune"
    assert attrs.evolve(book, name="x") == book.replace(name="x")
    assert attrs.fields(Product).price.type in (Decimal, "tm.Field[Decimal]")


def test_msgspec_writes_an_entity(book: Product) -> None:
    assert msgspec.json.decode(msgspec.json.encode(book)) == {
        "category_id": "books", "product_id": "b-1", "name": "Dune", "price": "9.99", "manufacturer": "Ace",
        "tags": ["scifi"],
    }  # fmt: skip


def test_match_by_class_and_by_position(book: Product) -> None:
    match book:
        case Product("books", product_id, name=name):
            assert (product_id, name) == ("b-1", "Dune")
        case _:
            pytest.fail("no match")


def test_fields_may_be_called_as_anything(book: Product) -> None:
    seat = Seat("r", "p", "n", "é", date(2020, 1, 1), 1)
    assert (seat.row, seat.partition, seat.new, seat.str, seat.normalise, seat.len) == ("r", "p", "n", "é", 1.0, 3)
    assert seat.KeyOf == []
    assert seat.key == Seat.key("r", "p", "n") == Seat.key(new="n", row="r", partition="p")
    assert seat.key.partition == "r"
    with pytest.raises(tm.InvalidEntity) as caught:
        Seat(1, 2, 3, 4, 5, "x")  # type: ignore[arg-type]
    assert len(caught.value.faults) == 6
    with tm.open(":memory:", models=[Seat]) as store:
        store.insert(seat)
        assert store[seat.key] == seat


def test_key_arguments_are_checked_all_together() -> None:
    with pytest.raises(tm.InvalidEntity) as caught:
        Product.key(1, None)  # type: ignore[arg-type]
    assert [fault.partition(":")[0] for fault in caught.value.faults] == ["category_id", "product_id"]


def test_methods_of_the_class_body_are_kept(book: Product) -> None:
    assert book.label() == "Dune: 9.99"


def test_an_entity_can_be_referred_to_weakly(book: Product) -> None:
    assert weakref.ref(book)() is book


def test_an_undeclared_property_is_named_with_its_path_and_a_null_is_left_out() -> None:
    with pytest.raises(tm.InvalidEntity, match=r"Loose: more\.color: expected one of Azure's types"):
        Loose("a", tm.Extra(color=[1]))
    with tm.open(":memory:", models=[Loose]) as store:
        loose = Loose("a", tm.Extra(color="red", size=None))
        assert loose.more == {"color": "red"}
        loose.more["color"] = None
        store.insert(loose)
        assert store[loose.key].more == {}
        assert store.query(Loose).where(Loose.name == "a", Loose.more["color"].is_null()).count() == 1


# ---------------------------------------------------------------------------------------------- built by no constructor


class Visit(tm.Entity, table="Visits"):
    guest: tm.Field[str]
    at: tm.Field[datetime]
    number: tm.Field[int] = tm.field(default=0)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, datetime](partition="{guest}", row="{at}")


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GOOD = {"guest": "ann", "at": "2026-03-01T12:00:00Z", "number": 1, "tags": ["a"]}
BUILT = Visit("ann", NOON, 1, ["a"])


def _by_hand(values: dict[str, Any]) -> Visit:
    visit: Visit = object.__new__(Visit)
    for name, value in values.items():
        setattr(visit, name, datetime.fromisoformat(value) if name == "at" else value)
    return visit


MAKERS: list[Callable[[dict[str, Any]], Visit]] = [
    lambda values: msgspec.convert(values, Visit),
    lambda values: msgspec.json.decode(msgspec.json.encode(values), type=Visit),
    _by_hand,
]


@pytest.fixture(params=MAKERS, ids=["convert", "json", "new"])
def make(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], Visit]:
    maker: Callable[[dict[str, Any]], Visit] = request.param
    return maker


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Visit]) as store:
        yield store


def test_an_entity_that_no_constructor_built_behaves_as_a_new_one(make: Callable[[dict[str, Any]], Visit]) -> None:
    visit = make(GOOD)
    assert visit == BUILT
    assert repr(visit) == repr(BUILT)
    assert visit.key == BUILT.key
    assert tm.info(visit) == tm.info(BUILT)
    assert visit.replace(number=2) == BUILT.replace(number=2)
    visit.guest = "bob"  # a key field can be set, as it was not stored
    assert visit.key == Visit.key("bob", NOON)


def test_an_entity_that_no_constructor_built_is_written_as_any_other(
    make: Callable[[dict[str, Any]], Visit], store: tm.Store
) -> None:
    visit = make(GOOD)
    store.insert(visit)
    assert store[BUILT.key] == visit == BUILT
    visit.number = 2
    store.replace(visit)
    store.delete(visit)
    with store.transaction() as tx:
        tx.insert(make(GOOD))
    store.upsert(make(GOOD))
    store.upsert(make(GOOD), merge=True)
    store.delete_many([make(GOOD).key])
    assert store.insert_many([make(GOOD)]) == 1
    assert store.upsert_many([make(GOOD)]) == 1
    assert store[BUILT.key] == BUILT


def test_an_entity_that_no_constructor_built_has_no_etag(
    make: Callable[[dict[str, Any]], Visit], store: tm.Store
) -> None:
    store.insert(make(GOOD))
    with pytest.raises(tm.PreconditionFailed, match="no ETag"):
        store.replace(make(GOOD))
    with pytest.raises(tm.PreconditionFailed, match="no ETag"):
        store.delete(make(GOOD))


def test_an_entity_that_no_constructor_built_is_checked_whole_when_it_is_written(store: tm.Store) -> None:
    writes: list[Callable[[Any], Any]] = [
        store.insert, store.upsert, lambda e: store.replace(e, if_match="*"), lambda e: store.insert_many([e]),
        lambda e: store.upsert_many([e]), lambda e: store.transaction().__enter__().insert(e),
    ]  # fmt: skip
    for write in writes:
        visit = msgspec.convert({**GOOD, "at": "2026-03-01T12:00:00", "number": 2**70}, Visit)
        with pytest.raises(tm.InvalidEntity) as caught:
            write(visit)
        assert [fault.partition(":")[0] for fault in caught.value.faults] == ["at", "number"]
    assert store.query(Visit).allow_scan().count() == 0


def test_a_field_that_was_never_set_is_named(store: tm.Store) -> None:
    with pytest.raises(tm.InvalidEntity) as caught:
        store.insert(_by_hand({"guest": "ann", "tags": []}))
    assert caught.value.faults == ("at: it was never set", "number: it was never set")


def test_what_is_checked_is_normalised(store: tm.Store) -> None:
    visit = msgspec.convert({**GOOD, "at": "2026-03-01T14:00:00+02:00"}, Visit)
    store.insert(visit)
    assert visit.at == NOON
    assert visit.at.tzinfo is UTC


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_copy_of_an_entity_that_no_constructor_built_is_checked(
    copied: Callable[[Any], Any], store: tm.Store
) -> None:
    assert tm.info(copied(msgspec.convert(GOOD, Visit))).etag is None
    with pytest.raises(tm.InvalidEntity, match="number"):
        store.insert(copied(msgspec.convert({**GOOD, "number": 2**70}, Visit)))
