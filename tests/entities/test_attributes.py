"""Properties with setters, descriptors and cached properties work as they do in any class of Python."""

from __future__ import annotations

import copy
import pickle
from functools import cached_property
from typing import Any

import pytest

import tablemapper as tm


class Upper:
    """A descriptor that keeps a field in capitals."""

    def __get__(self, person: Any, owner: Any = None) -> Any:
        return self if person is None else person.last.upper()

    def __set__(self, person: Any, value: str) -> None:
        if not value:
            raise LookupError("nothing")
        person.last = value.lower()


class Named:
    """No entity, and so of a class with a ``__dict__`` of its own kind."""

    __slots__ = ()
    first: Any

    @cached_property
    def initial(self) -> str:
        return str(self.first[:1])


class Counted(tm.Entity):
    calls: tm.Field[int] = tm.field(default=0, kw_only=True)

    @cached_property
    def counted(self) -> int:
        """How often it was computed."""
        self.calls += 1
        return self.calls


class Person(Counted, Named, table="Persons"):
    first: tm.Field[str]
    last: tm.Field[str] = tm.field(default="")

    key = tm.Key[str](partition="{first}")
    upper = Upper()

    @property
    def full(self) -> str:
        return f"{self.first} {self.last}"

    @full.setter
    def full(self, text: str) -> None:
        self.last = text.split()[1]

    @full.deleter
    def full(self) -> None:
        self.last = ""

    @property
    def fixed(self) -> int:
        return 1

    @cached_property
    def initials(self) -> str:
        return self.first[:1] + self.last[:1]


def test_a_property_is_set_and_deleted() -> None:
    person = Person("Ada")
    person.full = "Ada Lovelace"
    assert (person.last, person.full) == ("Lovelace", "Ada Lovelace")
    del person.full
    assert person.last == ""
    with pytest.raises(IndexError):
        person.full = "Ada"  # what the setter raises
    with pytest.raises(tm.InvalidEntity, match=r"Person\.last"):
        person.full = f"Ada {chr(0xD800)}"


def test_a_descriptor_is_set() -> None:
    person = Person("Ada")
    person.upper = "Lovelace"
    assert (person.last, person.upper) == ("lovelace", "LOVELACE")
    with pytest.raises(LookupError):
        person.upper = ""


@pytest.mark.parametrize("name", ["fixed", "nothing", "_row", "__class__", "key", "__weakref__", "replace"])
def test_what_cannot_be_set_says_which_fields_there_are(name: str) -> None:
    person = Person("Ada")
    with pytest.raises(AttributeError, match=f'has no field "{name}"'):
        setattr(person, name, None)
    with pytest.raises(AttributeError, match="cannot be deleted"):
        delattr(person, name)


def test_a_cached_property_is_computed_once() -> None:
    person = Person("Ada", "Lovelace")
    assert (person.initials, person.initial, person.counted, person.counted) == ("AL", "A", 1, 1)
    person.last = "Byron"
    assert person.initials == "AL"
    del person.initials
    assert person.initials == "AB"
    person.initials = "xy"  # type: ignore[misc]
    assert person.initials == "xy"
    del person.initials
    with pytest.raises(AttributeError, match="was not computed"):
        del person.initials
    assert Person.counted.__doc__ == "How often it was computed."


def test_what_is_cached_is_no_part_of_the_entity() -> None:
    with tm.open(":memory:", models=[Person]) as store:
        store.insert(person := Person("Ada", "Lovelace"))
        assert person.initials == "AL"
        for other in (
            store[Person.key("Ada")],
            person.replace(last="Byron"),
            copy.copy(person),
            pickle.loads(pickle.dumps(person)),
        ):
            assert other.initials == f"A{other.last[:1]}"
        assert person == store[Person.key("Ada")]
        assert tm.to_dict(person) == {"calls": 0, "first": "Ada", "last": "Lovelace"}
        store.merge(Person.key("Ada"), last="Byron")
        person = Person("Ada", "King")
        assert person.initials == "AK"
        store.upsert(person, merge=True)
        assert person.initials == "AK"
