"""What a class body may hold: habits of other libraries are supported, or refused with what to write instead."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

import attrs
import msgspec
import pytest

import tablemapper as tm
from tablemapper.entities.declaration import declaration_of
from tablemapper.type_aliases import annotations_of
from tablemapper.uuids import is_time_of

T = TypeVar("T")


class Author(tm.Entity, table="Authors"):
    name: tm.Field[str]

    key = tm.Key[str](partition="{name}")


@attrs.frozen
class Cat:
    name: str


@attrs.frozen
class Dog:
    name: str


def faults(source: str, **scope: Any) -> list[str]:
    """Return the faults of the class that a program defines."""
    names = {
        "tm": tm, "attrs": attrs, "datetime": datetime, "UTC": UTC, "UUID": UUID, "Path": Path, "Cat": Cat,
        "Dog": Dog, "ClassVar": ClassVar, "Author": Author, **scope,
    }  # fmt: skip
    with pytest.raises(tm.InvalidModel) as caught:
        exec(f"from __future__ import annotations\n{source}", {**names, "__name__": __name__})
    return list(caught.value.faults)


def entity(*lines: str, head: str = 'class Hero(tm.Entity, table="Heroes"):') -> str:
    key = 'key = tm.Key[str](partition="{name}")'
    return "\n    ".join([head, "name: tm.Field[str]", *lines, key])


FAULTS: list[tuple[str, str, list[str]]] = [
    ("a plain annotation", entity("age: int"), ["age: annotate it tm.Field[int], or ClassVar[int] if it is not a field"]),
    ("a plain annotation with a value", entity("age: int = 3"), ["age: annotate it tm.Field[int]"]),
    ("a plain annotation with options", entity("age: int = tm.field(default=3)"), ["age: annotate it tm.Field[int]"]),
    ("an optional Field", entity("age: tm.Field[int] | None"), ["age: annotate it tm.Field[int | None]"]),
    ("a bare Field", entity("age: tm.Field"), ["age: tm.Field of what? Write tm.Field[str]"]),
    ("a Field behind =", entity("age = tm.Field[int]"), ['age: write a colon, "age: tm.Field[…]"']),
    ("a comma after a field", entity("age: tm.Field[int] = tm.field(default=3),"), ["age: a tuple", "comma"]),
    ("a comma after options alone", entity("age = tm.field(default=3),"), ["age: a tuple", "comma"]),
    ("a comma after an index", entity('by_age = tm.Index(partition="{name}"),'), ["by_age: a tuple", "comma"]),
    ("Field called", entity("age: int = tm.Field(default=3)"), ["tm.field(…)", "tm.Field[…] is"]),
    ("default_factory=", entity("age: tm.Field[int] = tm.field(default_factory=int)"), ["age: default_factory=", "factory="]),
    ("index=True", entity("age: tm.Field[int] = tm.field(index=True)"), ['by_age = tm.Index(partition="{age}")']),
    ("unique=True", entity("age: tm.Field[int] = tm.field(unique=True)"), ['by_age = tm.Index(partition="{age}", unique=True)']),
    ("primary_key=True", entity("age: tm.Field[int] = tm.field(primary_key=True)"), ['key = tm.Key(partition="{age}")']),
    ("nullable=True", entity("age: tm.Field[int] = tm.field(nullable=True)"), ["tm.Field[… | None]"]),
    ("foreign_key=", entity('age: tm.Field[int] = tm.field(foreign_key="x.y")'), ["store[Other.key(…)]"]),
    ("max_length=", entity("a: tm.Field[str] = tm.field(max_length=3)"), ["msgspec.Meta(max_length=…)"]),
    ("a misspelt option", entity("age: tm.Field[int] = tm.field(defualt=3)"), ["defualt=", 'did you mean "default"']),
    ("a name that no property has", entity('age: tm.Field[int] = tm.field(name="a-b")'), ['age: "a-b" cannot be the name of a property: a letter or "_" comes first']),
    ("a default of now", entity("at: tm.Field[datetime] = tm.field(default=datetime.now(UTC))"), ["at: its default is the time of now, which is evaluated once; give factory="]),
    ("a UUID of now", entity("a: tm.Field[UUID] = tm.field(default=tm.uuid7())"), ["a: its default is the time of now, which is evaluated once; give factory="]),
    ("a list for a default", entity("a: tm.Field[list[str]] = tm.field(default=[])"), ["a: a default is one value, or a tuple or frozenset of such", "factory="]),
    ("a tuple of lists for a default", entity("a: tm.Field[tuple[list[str], ...]] = tm.field(default=([],))"), ["a: a default is one value", "factory="]),
    ("a path for a default", entity("a: tm.Field[Path] = tm.field(default=Path())"), ["a: a default is one value", "factory="]),
    ("a union of attrs classes", entity("a: tm.Field[Cat | Dog]"), ["a: Type unions", "only Structs with tags form a union: class Cat(msgspec.Struct, tag=True)"]),
    ("a validator that is none", entity("age: tm.Field[int] = tm.field(validator=3)"), ["validator=3 cannot be called"]),
    ("__tablename__", entity('__tablename__ = "heroes"'), ['__tablename__: the class statement names the table: class Hero(…, table="…")']),
    ("Meta", entity("class Meta: table_name = 'x'"), ["Meta: ", 'class Hero(…, table="…")']),
    ("__post_init__", entity("def __post_init__(self): pass"), ["__post_init__ is never called; name it __attrs_post_init__"]),
    ("__attrs_pre_init__", entity("def __attrs_pre_init__(self): pass"), ["__attrs_pre_init__ is never called"]),
    ("where= of an entity", entity(head='class Hero(tm.Entity, table="Heroes", where=lambda h: h.name == "x"):'), ["where= is for an Aggregate or an Index"]),
    ("of= of an entity", entity(head='class Hero(tm.Entity, table="Heroes", of=Author):'), ["of= is for an Aggregate"]),
    ("an unknown keyword", entity(head='class Hero(tm.Entity, table="Heroes", wehre=3):'), ["wehre=", 'did you mean "where"']),
    ("required after a default", entity("a: tm.Field[int] = tm.field(default=1)", "b: tm.Field[int]"), ["b has no default but stands after a", "tm.field(kw_only=True)"]),
    ("a key without braces", 'class Hero(tm.Entity, table="Heroes"):\n    name: tm.Field[str]\n    key = tm.Key[str](partition="name")', ['did you mean "{name}"?']),
    ("a key without braces and types", 'class Hero(tm.Entity, table="Heroes"):\n    name: tm.Field[str]\n    key = tm.Key(partition="name")', ['did you mean "{name}"?']),
    ("an index without braces", entity('by_name = tm.Index[str](partition="name")'), ["by_name", 'did you mean "{name}"?']),
    ("an optional field in a key", 'class Hero(tm.Entity, table="Heroes"):\n    a: tm.Field[str | None]\n    key = tm.Key(partition="{a}")', ["{a} is optional", "tm.Field[str]"]),
    ("a list in a key", 'class Hero(tm.Entity, table="Heroes"):\n    a: tm.Field[list[str]]\n    key = tm.Key(partition="{a}")', ["{a} is list[str], and cannot be part of a key"]),
    ("a name that is only there for checkers", entity("a: tm.Field[Foo]"), ["'Foo' is not defined", "TYPE_CHECKING"]),
    ("an entity", entity("a: tm.Field[Author]"), ["a: ", "Author is an entity, and cannot be inside another", "store[Author.key(…)]", "attrs class"]),
    ("entities in a list", entity("a: tm.Field[list[Author]]"), ["a: ", "Author is an entity"]),
    ("an entity or None", entity("a: tm.Field[Author | None]"), ["a: ", "Author is an entity"]),
    ("entities in a dict", entity("a: tm.Field[dict[str, Author]]"), ["a: ", "Author is an entity"]),
    ("the class itself", entity("a: tm.Field[Hero]"), ["a: ", "Hero is an entity"]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "said"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_a_habit_of_another_library_is_refused_with_the_mend(source: str, said: list[str]) -> None:
    found = faults(source)
    assert [fault for fault in found if all(text in fault for text in said)], found


@pytest.mark.parametrize(("source", "said"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_a_fault_is_reported_once(source: str, said: list[str]) -> None:
    assert len(faults(source)) == 1


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OF_VERSION_1 = UUID("fa3cd106-e702-11f1-bcfb-02fc00000001")


def uuid7_at(at: datetime) -> UUID:
    return UUID(int=int(at.timestamp() * 1_000) << 80 | 7 << 76 | 2 << 62)


@pytest.mark.parametrize(
    ("default", "meant"),
    [
        (NOW, True),
        (NOW - timedelta(seconds=59), True),
        (NOW + timedelta(seconds=59), True),
        (NOW - timedelta(seconds=61), False),
        (NOW - timedelta(days=365), False),
        (NOW.replace(tzinfo=None), False),  # is refused as it is naive
        (uuid7_at(NOW), True), (uuid7_at(NOW - timedelta(seconds=61)), False), (OF_VERSION_1, False),
        (UUID("c53de4a3-2daa-433b-aab8-47777fc322f2"), False), ("2026-03-01", False), (None, False),
    ],
    ids=str,
)  # fmt: skip
def test_a_default_is_that_of_now_if_it_is_within_a_minute(default: object, meant: bool) -> None:
    assert is_time_of(default, NOW) is meant


def test_a_uuid_of_version_1_says_its_time_too() -> None:
    at = datetime(1582, 10, 15, tzinfo=UTC) + timedelta(microseconds=OF_VERSION_1.time // 10)
    assert is_time_of(OF_VERSION_1, at + timedelta(seconds=59))
    assert not is_time_of(OF_VERSION_1, at + timedelta(seconds=61))


def test_a_uuid_that_was_chosen_once_is_a_default() -> None:
    class Hero(tm.Entity, table="Heroes"):
        name: tm.Field[str]
        tenant: tm.Field[UUID] = tm.field(default=UUID("6f1c2b1e-58c0-4a43-9f0a-0d3a5f7f1a11"))
        key = tm.Key[str](partition="{name}")

    assert Hero("a").tenant.version == 4


def test_tuples_and_frozensets_of_single_values_are_defaults_of_old_rows_too(tmp_path: Path) -> None:
    def declared(**fields: Any) -> Any:
        names = {"__annotations__": {"name": tm.Field[str], **{name: kind for name, (kind, _) in fields.items()}}}
        body = {**names, **{name: tm.field(default=default) for name, (_, default) in fields.items()}}
        key = tm.Key[str](partition="{name}")
        return type(tm.Entity)("Hero", (tm.Entity,), {**body, "key": key, "__module__": __name__}, table="Heroes")

    Old = declared()
    New = declared(
        tags=(tm.Field[tuple[str, ...]], ()),
        pair=(tm.Field[tuple[int, str]], (1, "x")),
        marks=(tm.Field[frozenset[int]], frozenset({2, 1})),
    )
    with tm.open(tmp_path / "x.db", models=[Old]) as store:
        store.insert(Old("a"))
    with tm.open(tmp_path / "x.db", models=[New]) as store:
        assert store[New.key("a")] == New("a") == New("a", (), (1, "x"), frozenset({1, 2}))
        store.insert(New("b", ("t",)))
        assert store.query(New).where(New.marks.contains(2)).allow_scan().count() == 2
        assert [hero.name for hero in store.query(New).where(New.tags.contains("t")).allow_scan()] == ["b"]
        assert tm.json_schema(New)["properties"]["marks"]["default"] == [1, 2]


@pytest.mark.parametrize("age", ["age: tm.Field[object]", "age: tm.Field[Foo]", "age: tm.Field", "age: int"])
def test_a_field_with_a_fault_makes_no_further_ones_in_keys_and_indexes(age: str) -> None:
    by_age = 'by_age = tm.Index[int](partition="{age}")'
    by_name = 'by_name = tm.Index[str](partition="{name}", include=("age",))'
    key = 'key = tm.Key[str, int](partition="{name}", row="{age}")'
    lines = ['class Hero(tm.Entity, table="Heroes"):', "name: tm.Field[str]", age, by_age, by_name, key]
    (found,) = faults("\n    ".join(lines))
    assert found.startswith("age: ")
    found, other = faults(entity(age, by_age, 'by_nmae = tm.Index[str](partition="{nmae}")'))
    assert found.startswith("age: ")
    assert 'did you mean "name"?' in other


def test_annotations_that_are_no_text_are_read_too() -> None:
    scope: dict[str, Any] = {"tm": tm, "ClassVar": ClassVar}
    source = entity("n: tm.Field[int] = tm.field(default=3)", "limit: ClassVar[int] = 4")
    exec(compile(source, "<body>", "exec", dont_inherit=True), scope)
    assert (scope["Hero"]("x").n, scope["Hero"].limit) == (3, 4)
    with pytest.raises(tm.InvalidModel, match=r"age: annotate it tm\.Field\[int\]"):
        exec(compile(entity("age: int"), "<body>", "exec", dont_inherit=True), scope)


def test_annotations_that_are_evaluated_late_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.SimpleNamespace(  # as that of Python 3.14
        Format=types.SimpleNamespace(FORWARDREF=3),
        get_annotate_from_class_namespace=lambda body: body.get("__annotate_func__"),
        call_annotate_function=lambda annotate, form: annotate(form),
    )
    monkeypatch.setitem(sys.modules, "annotationlib", library)
    monkeypatch.setattr(sys, "version_info", (3, 14))
    assert annotations_of({"__annotate_func__": lambda form: {"form": form}}) == {"form": 3}
    assert annotations_of({"__annotations__": {"name": "str"}}) == {"name": "str"}
    assert annotations_of({}) == {}


def test_an_entity_inside_a_nested_class_is_found() -> None:
    @attrs.frozen
    class Chapter:
        author: Author

    assert "Author is an entity" in faults(entity("a: tm.Field[Chapter]"), Chapter=Chapter)[0]


# ---------------------------------------------------------------------------------------------- bases


class Stamped:
    created: tm.Field[datetime]


class Indexed:
    by_name = tm.Index[str](partition="{name}")


@dataclasses.dataclass
class Data:
    size: int


@attrs.define
class Attrs:
    size: int


class Loud:
    volume: int  # said by an entity that has such a field

    def shout(self) -> str:
        return str(self.volume)


@pytest.mark.parametrize(
    ("base", "name"), [(Stamped, "created"), (Indexed, "by_name"), (Data, "size"), (Attrs, "size")]
)
def test_a_base_that_declares_fields_without_being_an_entity(base: type, name: str) -> None:
    (found,) = faults(entity(head='class Hero(Base, tm.Entity, table="Heroes"):'), Base=base)
    assert f"{base.__name__} declares {name}" in found
    assert f"class {base.__name__}(tm.Entity):" in found


def test_a_base_of_such_a_base_is_found() -> None:
    class Below(Stamped):
        pass

    assert "Stamped declares created" in faults(entity(head='class Hero(Base, tm.Entity, table="H12"):'), Base=Below)[0]


def test_a_base_of_methods_is_welcome() -> None:
    class Bell(Loud, tm.Entity, table="Bells"):
        name: tm.Field[str]
        volume: tm.Field[int]  # type: ignore[assignment]

        key = tm.Key[str](partition="{name}")

    assert Bell("x", 3).shout() == "3"


def test_a_generic_entity_is_refused() -> None:
    with pytest.raises(tm.InvalidModel, match="cannot be generic"):

        class Box(tm.Entity, Generic[T], table="Boxes"):
            name: tm.Field[str]

            key = tm.Key[str](partition="{name}")


# ---------------------------------------------------------------------------------------------- made at run time


def _body() -> dict[str, Any]:
    return {"__annotations__": {"name": tm.Field[str]}, "key": tm.Key(partition="{name}")}


def test_a_class_can_be_made_by_type() -> None:
    made: Any = type(tm.Entity)("Log", (tm.Entity,), _body(), table="Logs")
    assert made.__module__ == __name__
    assert made("x").key == made.key("x")


def test_a_class_can_be_made_by_new_class() -> None:
    made: Any = types.new_class("Log", (tm.Entity,), {"table": "Logs"}, lambda body: body.update(_body()))
    with tm.open(":memory:", models=[made]) as store:
        store.insert(made("x"))
        assert store[made.key("x")] == made("x")


# ---------------------------------------------------------------------------------------------- hooks of attrs


def positive(_: Any, attribute: Any, value: int) -> None:
    if value < 0:
        raise ValueError(f"{attribute.name} is negative: {value}")


class Account(tm.Entity, table="Accounts"):
    owner: tm.Field[str]
    balance: tm.Field[int] = tm.field(default=0, validator=positive)
    limit: tm.Field[int] = tm.field(default=10, validator=[positive, attrs.validators.lt(100)])
    seen: ClassVar[list[str]] = []

    key = tm.Key[str](partition="{owner}")

    def __attrs_post_init__(self) -> None:
        self.seen.append(self.owner)
        if self.balance > self.limit:
            raise ValueError("more than the limit")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    Account.seen.clear()


BAD: list[Callable[[], object]] = [
    lambda: Account("x", -1),
    lambda: Account("x", limit=100),
    lambda: Account("x").replace(balance=-1),
    lambda: setattr(Account("x"), "balance", -1),
    lambda: setattr(Account("x"), "limit", 100),
]


@pytest.mark.parametrize("build", BAD)
def test_validators_see_what_is_built_and_set(build: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="negative|must be < 100"):
        build()


def test_a_value_that_a_validator_refuses_is_not_set() -> None:
    account = Account("x", 3)
    with pytest.raises(ValueError, match="negative"):
        account.balance = -1
    assert account.balance == 3


def test_validators_can_be_switched_off_as_in_attrs() -> None:
    with attrs.validators.disabled():
        assert Account("x", -1).balance == -1


def test_validators_see_what_msgspec_built() -> None:
    with pytest.raises(msgspec.ValidationError, match="negative"):
        msgspec.convert({"owner": "x", "balance": -1}, Account)
    account = object.__new__(Account)
    for name, value in {"owner": "x", "limit": 1}.items():
        setattr(account, name, value)
    type(account).__dict__["balance"].__set__(account, -1)
    with tm.open(":memory:", models=[Account]) as store, pytest.raises(ValueError, match="negative"):
        store.insert(account)


def test_the_hook_after_the_constructor_is_called() -> None:
    with pytest.raises(ValueError, match="more than the limit"):
        Account("x", 11)
    assert Account("y", 3).replace(balance=4).balance == 4
    assert Account.seen == ["x", "y", "y"]


def test_rows_of_the_store_are_trusted() -> None:
    with tm.open(":memory:", models=[Account]) as store:
        with attrs.validators.disabled():
            store.insert(Account("x", -1))
        Account.seen.clear()
        assert store[Account.key("x")].balance == -1
        assert [account.balance for account in store.query(Account).allow_scan()] == [-1]
        assert Account.seen == []


def test_a_class_lends_its_hooks_with_its_fields() -> None:
    class Owned(tm.Entity):
        balance: tm.Field[int] = tm.field(default=0, validator=positive, kw_only=True)
        name: tm.Field[str] = tm.field(default="")

        def __attrs_post_init__(self) -> None:
            self.name = self.name or "nobody"

    class Purse(Owned, table="Purses"):
        number: tm.Field[int] = tm.field(kw_only=True)

        key = tm.Key[int](partition="{number}")

    assert Purse(number=1).name == "nobody"
    with pytest.raises(ValueError, match="negative"):
        Purse(number=1, balance=-1)


# ---------------------------------------------------------------------------------------------- what others see


class Shown(tm.Entity, table="Showns"):
    name: tm.Field[str]
    born: tm.Field[datetime | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str](partition="{name}")


def test_the_signature_of_a_class_has_types() -> None:
    import inspect

    text = "(name: str, born: datetime.datetime | None = None, tags: list[str] = <factory>)"
    assert str(inspect.signature(Shown)) == f"{text} -> None"
    assert Shown.__doc__ == f"Shown{text}"
    assert str(inspect.signature(Shown.key)).startswith("(name: str)")
    assert repr(Shown.key) == f"<bound method Shown.key of {Shown!r}>"


def test_the_class_stands_once_among_its_bases() -> None:
    assert [cls.__name__ for cls in Shown.__mro__] == ["Shown", "Entity", "Record", "object"]


def test_the_annotations_of_a_class_are_types() -> None:
    class Local(msgspec.Struct, frozen=True):
        n: int

    class Place(tm.Entity, table="Places"):
        name: tm.Field[str]
        at: tm.Field[Local | None] = tm.field(default=None)
        limit: ClassVar[int] = 3

        key = tm.Key[str](partition="{name}")

    assert typing.get_type_hints(Place) == {"name": str, "at": Local | None, "limit": ClassVar[int]}
    assert attrs.fields(Place).at.type == Local | None
    assert msgspec.convert({"name": "x", "at": {"n": 3}}, Place) == Place("x", Local(3))


def test_more_properties_than_an_entity_may_have_are_refused_at_once() -> None:
    lines = [f"f{n}: tm.Field[int]" for n in range(253)]
    assert "253 properties, but an entity may have 252" in faults(entity(*lines))[0]
    assert declaration_of(Shown).name == "Shown"
