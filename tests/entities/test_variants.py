"""A variant is the same class with a name and tables of its own."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self

import attrs
import pytest

import tablemapper as tm
from tablemapper.entities.declaration import declaration_of
from tablemapper.schema.model import compile_schema, model_of


class Shared(tm.Entity):
    host: tm.Field[str]

    @property
    def label(self) -> str:
        return f"at {self.host}"


class Log(Shared, table="Logs", type="log", accept={"TM001": "few hosts"}):
    """A line."""

    at: tm.Field[datetime]
    level: tm.Field[str] = tm.field(default="info", name="Level")
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, datetime](partition="{host}", row="{at}")
    by_level = tm.Index[str](partition="{level}", where=lambda log: log.level != "info")
    by_tag = tm.Index[str](partition="{tags}", table="LogTags")

    def __attrs_post_init__(self) -> None:
        if self.host == "nobody":
            raise ValueError("nobody logs")

    @property
    def label(self) -> str:
        return f"{super().label}, {self.level}"

    @cached_property
    def upper(self) -> str:
        return self.host.upper()

    @classmethod
    def now(cls, host: str) -> Self:
        return cls(host, NOON)


class Hourly(tm.Aggregate, of=Log, table="Hourly", where=lambda log: log.level != "debug"):
    host: tm.Field[str] = tm.group_by(Log.host)
    lines: tm.Field[int] = tm.count()
    last: tm.Field[datetime | None] = tm.max(Log.at)

    key = tm.Key[str](partition="{host}")
    by_lines = tm.Index[int](partition="{lines}")


NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
November: Any = Log.variant("202611")


def test_it_is_the_same_object_each_time_and_a_subclass() -> None:
    assert Log.variant("202611") is November
    assert Log.variant("202612") is not November
    assert issubclass(November, Log)
    assert (November.__name__, November.__qualname__, November.__module__) == ("Log202611", "Log202611", __name__)
    assert November.__doc__ == "A line."
    line = November("a", NOON)
    assert isinstance(line, Log)
    assert type(line) is November
    assert repr(line).startswith("Log202611(host='a'")
    assert line == November("a", NOON)
    assert line != Log("a", NOON)
    assert line.label == "at a, info"
    assert line.upper == "A"
    assert type(November.now("b")) is November
    assert line.replace(level="warn").level == "warn"
    assert not hasattr(line, "__dict__")


def test_its_tables_end_in_the_text_and_all_else_is_as_it_was() -> None:
    declaration, original = declaration_of(November), declaration_of(Log)
    assert declaration.table == "Logs202611"
    assert [index.table for index in declaration.indexes] == ["Logs202611ByLevel", "LogTags202611"]
    assert [index.table for index in original.indexes] == ["LogsByLevel", "LogTags"]
    assert (declaration.type_name, declaration.accept, declaration.templates) == (
        "log", original.accept, original.templates,
    )  # fmt: skip
    form, other = model_of(November).to_json(), model_of(Log).to_json()
    for name, index in form["indexes"].items():
        assert index | {"table": ""} == other["indexes"][name] | {"table": ""}
    assert form | {"table": "", "indexes": 0} == other | {"table": "", "indexes": 0}


def test_it_checks_as_its_class_does() -> None:
    with pytest.raises(tm.InvalidEntity, match="Log202611.*at"):
        November("a", "noon")
    with pytest.raises(ValueError, match="nobody logs"):
        November("nobody", NOON)
    line = November("a", NOON)
    line.level = "warn"
    with pytest.raises(tm.InvalidEntity):
        line.level = 5
    with pytest.raises(AttributeError, match="Log202611 has no field"):
        line.other = 1
    assert attrs.asdict(line)["level"] == "warn"
    assert tm.from_json(November, tm.to_json(line)) == line
    assert November.key("a", NOON) == tm.KeyOf(November, "a", Log.key("a", NOON).row)
    assert line.key == November.key("a", NOON)
    assert November.by_level("warn").entity is November
    assert repr(November.level) == "Log202611.level"
    with pytest.raises(AttributeError, match="declare it in the class body"):
        November.level = 5


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_and_copy_find_it_by_its_class(protocol: int) -> None:
    line = November("a", NOON, level="warn")
    assert pickle.loads(pickle.dumps(November, protocol)) is November
    again = pickle.loads(pickle.dumps(line, protocol))
    assert type(again) is November
    assert again == line
    assert pickle._loads(pickle._dumps(line, protocol)) == line  # type: ignore[attr-defined]  # (as Python has it)
    assert pickle.loads(pickle.dumps(line.key, protocol)) == line.key
    assert copy.copy(line) == copy.deepcopy(line) == line
    assert copy.deepcopy(November) is November


def test_that_of_an_aggregate_is_over_that_of_its_source() -> None:
    hourly: Any = Hourly.variant("202611")
    assert issubclass(hourly, Hourly)
    assert declaration_of(hourly).of is November
    assert declaration_of(hourly).table == "Hourly202611"
    assert declaration_of(hourly).indexes[0].table == "Hourly202611ByLines"
    assert model_of(hourly).to_json()["aggregate"] | {"of": "Log"} == model_of(Hourly).to_json()["aggregate"]
    schema = compile_schema([Log, Hourly, November, hourly])
    assert [model.name for model in schema.aggregates_of(schema.by_class[November])] == ["Hourly202611"]


@pytest.mark.parametrize("text", ["", "2026-11", "ü", "a_b", 5, None, "²", b"1", "a" * 80])
def test_a_text_that_makes_no_name_of_a_table_is_refused(text: Any) -> None:
    with pytest.raises(tm.InvalidModel, match="expected letters|its table 'Logsa"):
        Log.variant(text)
    assert "__variants__" not in Log.__dict__ or text not in Log.__dict__["__variants__"]


def test_what_has_no_variant_says_why() -> None:
    with pytest.raises(tm.InvalidModel, match=r"Log202611: it is a variant itself; call Log\.variant\(…\)"):
        November.variant("x")
    with pytest.raises(tm.InvalidModel, match="Shared: it has no table; derive a class with table= from it"):
        Shared.variant("x")
    with pytest.raises(tm.InvalidModel, match="Entity"):
        tm.Entity.variant("x")
    with pytest.raises(tm.InvalidModel, match="Log202611 has a table; derive both"):

        class Wrong(November, table="Wrong"):
            pass

    with pytest.raises(tm.InvalidModel, match='"variant" is taken; give the field another name'):

        class Taken(tm.Entity, table="Taken"):
            variant: tm.Field[str]  # type: ignore[assignment]
            key = tm.Key[str](partition="{variant}")
