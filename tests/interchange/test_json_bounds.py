"""JSON that no entity has, and interrupts while it is read: refused soon and shortly, and never taken for each other."""

from __future__ import annotations

import json
import signal
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.formats import json_reader


@attrs.frozen
class Home:
    city: str = attrs.field()

    @city.validator
    def _check(self, _: Any, city: str) -> None:
        signal.raise_signal(signal.SIGUSR1)


class Person(tm.Entity, table="Persons"):
    name: tm.Field[str]
    home: tm.Field[Home | None] = tm.field(default=None)

    key = tm.Key[str](partition="{name}")


@pytest.mark.parametrize("read", [tm.from_json, lambda cls, text: tm.from_dict(cls, json.loads(text))])
def test_what_the_handler_of_a_signal_raises_is_no_fault_of_the_entity(read: Any) -> None:
    def expire(*_: object) -> None:
        raise TimeoutError("it takes too long")

    before = signal.signal(signal.SIGUSR1, expire)
    try:
        with pytest.raises(TimeoutError, match="it takes too long"):
            read(Person, '{"name": "Ann", "home": {"city": "Oslo"}}')
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_more_members_than_an_entity_has_are_one_fault() -> None:
    text = json.dumps({"name": "Ann", **{f"k{number}": 1 for number in range(40_000)}})
    with pytest.raises(tm.InvalidEntity) as caught:
        tm.from_json(Person, text)
    assert caught.value.faults == ("40000 members are none of its fields, and an entity has at most 252 properties",)


def test_a_message_lists_fifty_faults_and_says_how_many_more() -> None:
    with pytest.raises(tm.InvalidEntity) as caught:
        tm.from_dict(Person, {"name": "Ann", **{f"k{number}": 1 for number in range(300)}})
    lines = str(caught.value).splitlines()
    assert lines[0] == "Person: 300 faults"
    assert lines[-1] == "  - and 250 more, which the attribute faults has"
    assert len(lines) == 52
    assert len(caught.value.faults) == 300


def test_a_text_that_is_too_long_for_any_entity_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reader, "_LONGEST", 20)
    with pytest.raises(tm.InvalidEntity, match="21 characters of JSON are too many for one entity"):
        tm.from_json(Person, "{" * 21)
