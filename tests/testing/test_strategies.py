"""Drawn entities: a store takes them all and gives them back, they reach each extreme, and they find faults."""

from __future__ import annotations

import dataclasses
import enum
import random
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.keys.encodings import FORMS
from tablemapper.limits import utf16_units
from tablemapper.schema.model import model_of
from tablemapper.testing import entities, keys, strategies, values
from tablemapper.testing.key_budget import KeyBudget
from tablemapper.values.scalars import SCALARS

from ..classes import entity, grouped
from ..whole.kinds import exact
from ..whole.models import compiled
from ..whole.random_models import random_model, with_levels, with_maintained, with_rules, with_turned, with_undeclared

Meta = msgspec.Meta


class Color(enum.Enum):
    RED = "r"
    GREEN = ""


class Scalars(tm.Entity, table="Scalars"):
    text: tm.Field[str]
    count: tm.Field[int]
    small: tm.Field[tm.Int32]
    number: tm.Field[float]
    flag: tm.Field[bool]
    at: tm.Field[datetime]
    day: tm.Field[date]
    clock: tm.Field[time]
    lasts: tm.Field[timedelta]
    price: tm.Field[Decimal]
    id: tm.Field[UUID]
    data: tm.Field[bytes]
    color: tm.Field[Color]
    choice: tm.Field[Literal[1, 2]]
    more: tm.Field[str | None] = tm.field(default="x")
    tags: tm.Field[list[str]] = tm.field(factory=lambda: ["default"])

    key = tm.Key[str, int](partition="{text}", row="{count}")


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """What was drawn in vain."""
    found: list[BaseException | None] = []

    def reject(original: Callable[[], None] = strategies.reject) -> None:
        found.append(sys.exc_info()[1])
        original()

    monkeypatch.setattr(strategies, "reject", reject)
    monkeypatch.setattr(values, "reject", reject)
    return found


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Return examples, always the same; a health check that fails is an error."""
    found = []

    @settings(
        max_examples=count, derandomize=True, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow]
    )
    @given(strategy)
    def draw(one: Any) -> None:
        found.append(one)

    draw()
    return found


def own(entity: Any) -> list[str]:
    """Return what an entity was given, to be compared exactly."""
    return [exact(getattr(entity, field.name)) for field in type(entity).__declaration__.parameters]


# -- all of it is accepted ---------------------------------------------------------------------------------------------


def _model(seed: int) -> Any:
    rng, more = random.Random(seed), random.Random(~seed)
    model = random_model(rng, local=seed % 2 == 1)
    for step, change in (
        (3, with_turned),
        (4, with_levels),
        (5, with_maintained),
        (7, with_undeclared),
        (11, with_rules),
    ):
        model = change(more, model) if seed % step < 2 else model
    return model


@pytest.mark.needs("kept_indexes", "unique_group_indexes", when=lambda block: block != 2)
@pytest.mark.long
@pytest.mark.parametrize("block", range(6))
def test_a_store_of_any_model_takes_what_is_drawn_and_gives_it_back(
    block: int, full_size: bool, refused: list[BaseException | None], no_warnings_of_scans: None
) -> None:
    count, each = (50, 34) if full_size else (1, 8)
    for seed in range(block * 1000, block * 1000 + count):
        model = _model(seed)
        names = compiled(model.source())
        with tm.open(":memory:", models=[names[record.name] for record in model.records]) as store:
            for record in model.entities:
                for entity in drawn(entities(names[record.name]), each):
                    try:
                        store.upsert(entity)
                    except tm.UniqueViolation:
                        continue
                    except tm.InvalidEntity as error:
                        if str(error).startswith(record.name):
                            raise
                        continue  # (a group of it has no room for the sum: that is of all its entities)
                    assert own(store[entity.key]) == own(entity)
            assert store.check().ok
    # A rule of the class's own, and what an aggregate calculates of an extreme Decimal.
    known = ("never", "has more than 500 digits, or an exponent beyond ±13,000")
    assert [str(error) for error in refused if not str(error).endswith(known)] == []


class Address(NamedTuple):
    street: str
    number: Annotated[int, Meta(ge=1)] = 1


@attrs.frozen
class Person:
    name: Annotated[str, Meta(min_length=1)]
    friends: list[Person] = attrs.field(factory=list)
    boss: Person | None = None
    seen: set[UUID] = attrs.field(factory=set)


@dataclasses.dataclass(frozen=True)
class Box:
    sides: tuple[float, float]
    weights: frozenset[Decimal] = frozenset()


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True):
    tricks: list[str]
    puppies: dict[str, Dog | Cat] = {}


class Options(TypedDict, total=False):
    dark: bool
    scale: float


class Bounded(tm.Entity, table="Bounded"):
    code: tm.Field[Annotated[str, Meta(pattern=r"^[A-Z]{2}\d{3}$")]]
    wide: tm.Field[Annotated[str, Meta(min_length=300, max_length=400)]]
    number: tm.Field[int]
    raw: tm.Field[str]
    share: tm.Field[Annotated[float, Meta(ge=0, lt=1)]]
    price: tm.Field[Annotated[Decimal, Meta(gt=0, le=100)]]
    even: tm.Field[Annotated[int, Meta(multiple_of=2, gt=-7, le=9)]]
    initials: tm.Field[Annotated[bytes, Meta(min_length=2, max_length=3)]]
    names: tm.Field[Annotated[list[Annotated[str, Meta(max_length=2)]], Meta(min_length=1, max_length=3)]]
    at: tm.Field[datetime] = tm.field(precision="ms")
    address: tm.Field[Address | None] = tm.field(default=None)
    person: tm.Field[Person | None] = tm.field(default=None)
    box: tm.Field[Box | None] = tm.field(default=None)
    animal: tm.Field[Cat | Dog | None] = tm.field(default=None)
    options: tm.Field[Options] = tm.field(factory=lambda: Options())
    place: tm.Field[tm.GeoPoint | None] = tm.field(default=None)
    towns: tm.Field[dict[str, str]] = tm.field(factory=dict)
    anything: tm.Field[dict[str, Any]] = tm.field(factory=dict)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    rest: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key(partition=("{code}", "{number:03d}"), row="{raw:raw}")
    by_wide = tm.Index[str](partition="{wide}")
    by_town = tm.Index[str](partition="{towns.home}")
    by_tag = tm.Index[str](partition="{tags}")
    by_rest = tm.Index[str](partition="{rest[more]}")


@pytest.mark.tm_store(models=[Scalars, Bounded])
@pytest.mark.parametrize("cls", [Scalars, Bounded])
def test_constraints_specs_and_nested_values_are_kept_to(
    cls: type[tm.Entity], tm_store: tm.Store, refused: list[BaseException | None]
) -> None:
    for one in drawn(entities(cls), 40):
        tm_store.upsert(one)
        assert own(tm_store[one.key]) == own(one)  # type: ignore[attr-defined]
    assert list(map(str, refused)) == []


# -- extremes ----------------------------------------------------------------------------------------------------------


def test_each_extreme_of_each_type_is_reached() -> None:
    wanted: dict[str, tuple[Any, ...]] = {
        "count": (-(2**63), 2**63 - 1, 0), "small": (-(2**31), 2**31 - 1, 0),
        "number": (float("inf"), float("-inf"), 0.0), "flag": (False, True),
        "at": (datetime(1601, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)), "day": (date.min, date.max),
        "clock": (time.min, time.max),
        "lasts": tuple(timedelta(microseconds=count) for count in (-(2**63), 2**63 - 1)),
        "price": tuple(map(Decimal, (f"9.{'9' * 33}E+6144", f"-9.{'9' * 33}E+6144"))),
        "id": (UUID(int=0), UUID(int=2**128 - 1)), "data": (b"", b"\xff" * 2**16), "color": tuple(Color),
        "choice": (1, 2), "more": (None, "", "a" * 2**15), "tags": ([], ["default"]),
    }  # fmt: skip
    rare = ("data", "more", "number", "price")
    found = {name: drawn(_values(name), 700 if name in rare else 150) for name in wanted}
    found["tags"] += [one.tags for one in drawn(entities(Bill), 20)]
    missed = {
        (name, value)
        for name, extremes in wanted.items()
        for value in map(exact, extremes)
        if value not in set(map(exact, found[name]))
    }
    assert missed == set()
    assert min(one.adjusted() for one in found["price"]) == -6143
    texts = {text or "" for text in found["more"]}
    assert max(map(utf16_units, texts)) == 2**15
    assert any(ord(char) > 0xFFFF for text in texts for char in text)


def _values(name: str) -> st.SearchStrategy[Any]:
    """Return the strategy of a field alone, of which many are drawn in no time."""
    return values.field_values(Scalars.__declaration__.field(name), {"": KeyBudget(2**15, keyed=False)}, ())


def test_keys_are_as_long_as_they_can_be_and_no_longer() -> None:
    units = [utf16_units(key.partition) for key in drawn(keys(Bill), 300)]
    assert (min(units), max(units)) == (0, 512)


# -- faults that are seeded --------------------------------------------------------------------------------------------


def _evolved(table: Any, kind: type, **changes: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(table, kind, attrs.evolve(table[kind], **changes))


_INT = FORMS[int].decode
_TEXT = FORMS[str].decode
FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a Decimal loses its zeros": _evolved(SCALARS, Decimal, writes="{str}({v}.normalize())"),
    "a time loses its microseconds": _evolved(SCALARS, datetime, reads="{from_text}({v}[:23] + 'Z')"),
    "a timedelta goes through a float": _evolved(SCALARS, timedelta, reads="{timedelta}(0, 0, int(float({v})))"),
    "a text is stripped": _evolved(SCALARS, str, writes="{v}.strip()"),
    "an emoji becomes a question mark": _evolved(
        SCALARS, str, writes="{v}.encode('utf-16-le').decode('utf-16-le') if len({v}) * 2 == len({v}.encode('utf-16-le')) else '?'"
    ),
    "a negative int of a key is one off": _evolved(
        FORMS, int, inline_decode="", decode=lambda text: _INT(text) + (text[0] < "a")
    ),
    "a character of a key stays escaped": _evolved(
        FORMS, str, inline_decode="", decode=lambda text: text if "~~" in text else _TEXT(text)
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_codec_is_found_within_200_examples(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    members = {"text": str, "count": int, "price": Decimal, "at": datetime, "lasts": timedelta, "note": str}
    Faulty = entity("Faulty", "Faulty", members, tm.Key(partition="{text}", row="{count}"))

    @settings(max_examples=200, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
    @given(entities(Faulty))
    def comes_back(one: Any) -> None:
        model = model_of(Faulty)
        assert own(model.build_one(model.to_row(one))) == own(one)

    with pytest.raises((AssertionError, ValueError, OverflowError)):
        comes_back()


# -- what is asked for -------------------------------------------------------------------------------------------------


class Stay(tm.Entity, table="Stays"):
    guest: tm.Field[str] = tm.field(validator=attrs.validators.min_len(1))
    nights: tm.Field[int]
    free: tm.Field[int] = tm.field(default=0)

    key = tm.Key[str](partition="{guest}")

    def __attrs_post_init__(self) -> None:
        if self.free > self.nights:
            raise ValueError("more free nights than nights")


def test_what_the_class_refuses_is_drawn_again() -> None:
    assert all(stay.guest and stay.free <= stay.nights for stay in drawn(entities(Stay), 30))


def test_fields_can_be_given_a_value_or_a_strategy() -> None:
    for stay in drawn(entities(Stay, guest="Ann", nights=st.integers(1, 3), free=0), 10):
        assert (stay.guest, stay.nights in (1, 2, 3), stay.free) == ("Ann", True, 0)


class Bill(tm.Entity, table="Bills"):
    number: tm.Field[str]
    count: tm.Field[int]
    price: tm.Field[Decimal]
    tags: tm.Field[list[str]] = tm.field(factory=lambda: ["default"])

    key = tm.Key[str](partition="{number}")


def test_what_fails_is_made_small() -> None:
    @settings(max_examples=200, derandomize=True, phases=tuple(Phase))
    @given(entities(Bill))
    def fails(bill: Bill) -> None:
        last[:] = own(bill)
        assert bill.count < 1000

    last: list[str] = []
    with pytest.raises(AssertionError):
        fails()
    assert last[:1] + last[2:] == [exact(""), exact(Decimal(0)), exact(["default"])]
    assert int(last[1]) < 2000


Stays = grouped("Stays", Stay, "guest", "StayTotals", nights=tm.sum(Stay.nights))


Guest = entity("Guest", "Guests", {"guest": str, "stays": (int, tm.count(of=Stay))}, tm.Key[str](partition="{guest}"))


class Abstract(tm.Entity):
    name: tm.Field[str]


@pytest.mark.parametrize(
    ("ask", "error", "said"),
    [
        (lambda: entities(Stays), tm.InvalidModel, "maintained from Stay; draw Stay entities"),  # type: ignore[type-var]
        (lambda: keys(Stays), tm.InvalidModel, "maintained from Stay; draw Stay entities"),  # type: ignore[type-var]
        (lambda: entities(int), tm.InvalidModel, "expected an entity class"),  # type: ignore[type-var]
        (lambda: entities(Abstract), tm.InvalidModel, "derive a class with table="),
        (lambda: entities(Stay, nigths=1), tm.InvalidModel, 'no field "nigths".*did you mean "nights"'),
        (lambda: entities(Guest, stays=1), tm.InvalidModel, "the store maintains it from Stay"),
        (lambda: entities(Stay, nights="two"), tm.InvalidEntity, "nights: expected int"),
        (lambda: drawn(entities(Stay, nights=st.text()), 1), tm.InvalidEntity, "nights: expected int"),
    ],
)
def test_what_cannot_be_drawn_is_one_clear_error(ask: Callable[[], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        ask()


def test_without_hypothesis_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "tablemapper.testing.strategies")
    monkeypatch.delattr("tablemapper.testing.strategies")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'tablemapper\[testing\]'"):
        from tablemapper.testing import entities  # noqa: F401


def test_a_strategy_is_shown_by_its_function_and_class() -> None:
    assert (repr(entities(Scalars)), repr(keys(Scalars))) == ("entities(Scalars)", "keys(Scalars)")
