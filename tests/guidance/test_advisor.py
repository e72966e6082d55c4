"""Advice from declarations: who gets it, who does not, what is pasted, and what silences it."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.accept import OF_CLASSES, OF_INDEXES
from tablemapper.guidance import advisor as advising
from tablemapper.guidance.advisor import advise_schema
from tablemapper.guidance.call_rules import CODES_OF_CALLS, CODES_OF_IDLE
from tablemapper.guidance.data_rules import INDEX_DATA_RULES, KEY_DATA_RULES
from tablemapper.guidance.declaration_rules import CLASS_RULES, KEY_RULES
from tablemapper.schema.model import compile_schema

from ..whole.models import Model, compiled
from ..whole.random_models import random_model, with_levels, with_maintained, with_turned, with_undeclared

HEAD = """
import enum, uuid
from datetime import date, datetime
from typing import Literal
from uuid import UUID, uuid4
import tablemapper as tm

class Color(enum.Enum):
    RED = "r"
    BLUE = "b"
"""
FIELDS = """
    name: tm.Field[str]
    number: tm.Field[int]
    at: tm.Field[datetime]
    day: tm.Field[date]
    on: tm.Field[bool]
    color: tm.Field[Color]
    size: tm.Field[Literal["s", "m", "l"]]
    tags: tm.Field[list[str]] = tm.field(factory=list)
    note: tm.Field[str | None] = tm.field(default=None)
    id: tm.Field[UUID] = tm.field(factory=uuid4)
    time_id: tm.Field[UUID] = tm.field(factory=tm.uuid7)
"""
GOOD = 'key = tm.Key(partition="{name}", row="{number}")'


def entity(key: str = GOOD, *lines: str, accept: str = "", more: str = "") -> str:
    """Return the source of a class, and of what comes behind it."""
    body = "\n".join(f"    {line}" for line in (key, *lines))
    return f'{HEAD}\nclass Thing(tm.Entity, table="Things"{accept}):{FIELDS}{body}\n{more}'


def classes(source: str) -> list[Any]:
    module = sys.modules["advised"] = ModuleType("advised")  # (where the names of types are looked up)
    try:
        exec(compile(source, "<advised>", "exec", dont_inherit=True), vars(module))
        found = [one for one in vars(module).values() if isinstance(one, type) and "__declaration__" in vars(one)]
        advised.update({tuple(found): tm.advise(found)})
    finally:
        del sys.modules["advised"]
    return found


advised: dict[tuple[Any, ...], tuple[tm.reports.Advice, ...]] = {}


def advice(source: str) -> tuple[tm.reports.Advice, ...]:
    return advised[tuple(classes(source))]


def total(key: str, *lines: str, accept: str = "") -> str:
    body = "\n".join(f"    {line}" for line in (*lines, "n: tm.Field[int] = tm.count()", key))
    return f'\nclass Total(tm.Aggregate, of=Thing, table="Totals"{accept}):\n{body}\n'


DAY = "day: tm.Field[date] = tm.group_by(Thing.day)"
NAME = "name: tm.Field[str] = tm.group_by(Thing.name)"
OF_DAY = 'key = tm.Key(partition="{day}")'
CASES: list[tuple[str, str, str, str, str]] = [
    # code, level, where, a class that gets it, a neighbour that does not
    ("TM001", "warning", "Thing.key", entity('key = tm.Key[str](partition="all", row="{name}")'), entity('key = tm.Key(partition="all", row="one")')),
    ("TM001", "warning", "Thing.key", entity('key = tm.Key[str, int](partition="", row=("{name}", "{number}"))'), entity()),
    ("TM001", "warning", "Thing.by_day", entity(GOOD, 'by_day = tm.Index[date](partition="all", row="{day}", include=("on", "note"))'), entity(GOOD, 'by_day = tm.Index(partition="{number:shard(4)}", row="{day}")')),
    ("TM001", "warning", "Thing.by_day", entity(GOOD, 'by_day = tm.Index[date, int](partition="all", row=("{day}", "{number}"), unique=True, table="Uniques")'), entity()),
    ("TM001", "note", "Total.by_n", entity(more=total('key = tm.Key(partition="{name}")', NAME, 'by_n = tm.Index[int](partition="all", row="{n}")')), entity(more=total('key = tm.Key(partition="all", row="{name}")', NAME))),
    ("TM002", "warning", "Thing.key", entity('key = tm.Key[datetime, str](partition="{at:%Y-%m-%d}", row=("{at}", "{name}"))'), entity('key = tm.Key(partition=("{name}", "{at:%Y-%m-%d}"), row="{at}")')),
    ("TM002", "warning", "Thing.key", entity('key = tm.Key[datetime](partition="{at:%Y-%m}", row="{at:desc}")'), entity('key = tm.Key(partition=("{at:%Y-%m}", "{name:shard(4)}"), row=("{at:desc}", "{name}"))')),
    ("TM002", "warning", "Thing.key", entity('key = tm.Key[date, UUID](partition="{day}", row="{id}")'), entity()),
    ("TM002", "note", "Thing.key", entity('key = tm.Key[date, str, int](partition=("{day}", "{name}"), row="{number}")'), entity('key = tm.Key(partition=("{name}", "{day}"), row="{number}")')),
    ("TM002", "note", "Thing.by_at", entity(GOOD, 'by_at = tm.Index[datetime](partition="{at:%Y-%m-%d}", row="{at}")'), entity(GOOD, 'by_at = tm.Index(partition="{number}", row="{at}")')),
    ("TM002", "note", "Thing.key", entity('key = tm.Key(partition="{time_id}", row="{number}")'), entity('key = tm.Key(partition="{id}", row="{number}")')),
    ("TM003", "warning", "Thing.key", entity('key = tm.Key[Color, bool, str](partition=("{color}", "{on}"), row="{name}")'), entity('key = tm.Key(partition=("{color}", "{number}"), row="{name}")')),
    ("TM003", "note", "Thing.by_size", entity(GOOD, 'by_size = tm.Index(partition="{size}", row="{number}")'), entity(GOOD, 'by_size = tm.Index(partition="{size}", row="{number}", where=lambda t: t.number > 9)')),
    ("TM004", "note", "Thing.key", entity('key = tm.Key(partition="{name}", row="{id}")'), entity('key = tm.Key(partition="{name}", row="{time_id}")')),
    ("TM004", "note", "Thing.key", entity('key = tm.Key(partition="{name}", row="{id}")', 'by_day = tm.Index(partition="{number}", row="{day}")'), entity('key = tm.Key(partition="{name}", row="{id}")', 'by_day = tm.Index(partition="{number}", row=("{day}", "{at}"))')),
    ("TM005", "warning", "Thing.by_name", entity(GOOD, 'by_name = tm.Index(partition="{name}")'), entity(GOOD, 'by_name = tm.Index(partition="{name}", row="{at}")')),
    ("TM005", "warning", "Thing.second", entity(GOOD, 'first = tm.Index(partition="{number}")', 'second = tm.Index(partition="{number}")'), entity(GOOD, 'first = tm.Index(partition="{number}")', 'second = tm.Index(partition="{number}", include=("on",))')),
    ("TM005", "warning", "Thing.by_name", entity('key = tm.Key(partition="{name}", row="{number}")', 'by_name = tm.Index(partition="{name}", row="{name}")'), entity('key = tm.Key(partition="{name}", row="{number}")', 'by_name = tm.Index(partition="{name}", row=("{name}", "{at}"))')),
    ("TM006", "note", "Thing", entity(GOOD, *(f'by_{n} = tm.Index(partition="{{number}}", row=("{n}", "{{day}}"))' for n in range(9))), entity(GOOD, *(f'by_{n} = tm.Index(partition="{{number}}", row=("{n}", "{{day}}"))' for n in range(8)))),
    ("TM007", "note", "Thing", entity(GOOD, *(f"x{n}: tm.Field[int] = tm.field(default=0)" for n in range(192))), entity(GOOD, *(f"x{n}: tm.Field[int] = tm.field(default=0)" for n in range(191)))),
    ("TM008", "note", "Total.key", entity(more=total(OF_DAY, DAY)), entity(more=total('key = tm.Key(partition="{name}", row="{day}")', DAY, NAME))),
    ("TM008", "note", "Total.key", entity(more=total('key = tm.Key(partition="all")')), entity(more=total('key = tm.Key(partition="{name}")', NAME))),
    ("TM009", "note", "Thing.by_day", entity(GOOD, 'by_day = tm.Index(partition="{number:shard(65)}", row="{day}")'), entity(GOOD, 'by_day = tm.Index(partition="{number:shard(64)}", row="{day}")')),
    ("TM009", "note", "Thing.key", entity('key = tm.Key(partition="{name:shard(100)}", row="{name}")'), entity('key = tm.Key(partition="{name:shard(10)}", row="{name}")')),
]  # fmt: skip
IDS = [f"{code}-{at}" for at, (code, *_) in enumerate(CASES)]
NO_CODE = {10, 15, 16, 17, 18, 19}
"""The cases for which no line of code can be given."""


def pasted(source: str, where: str, lines: str) -> str:
    """Return the source with lines that replace those of their names, or are added."""
    head, marker, rest = source.partition(f"\nclass {where.partition('.')[0]}(")
    body, found, behind = rest.partition("\nclass ")
    for line in lines.splitlines():
        name = line.replace(":", " ").split()[0]
        old = [one for one in body.splitlines() if one.strip().replace(":", " ").split()[:1] == [name]]
        body = body.replace(old[0], f"    {line}") if old else body.replace("\n", f"\n    {line}\n", 1)
    return f"{head}{marker}{body}{found}{behind}"


def with_remedies() -> Iterator[tuple[str, str]]:
    """Yield modules with a remedy pasted, and the remedy."""
    dotted = {
        "from datetime import date, datetime\n": "import datetime as dt\n",
        "date]": "dt.date]",
        "[datetime": "[dt.datetime",
    }
    for code, _, where, gets, _ in CASES:
        one = next(one for one in advice(gets) if one.code == code)
        if one.declaration is not None:
            yield pasted(gets, where, one.declaration), one.declaration
    for row in dict(SURE):
        for partition in ("all", "{at:%Y-%m-%d}", "{size}"):
            source = entity(f'key = tm.Key(partition="{partition}", row={row})', PRICE, MADE)
            for old, new in dotted.items():
                source = source.replace(old, new)
            for one in advice(source):
                assert one.declaration is not None
                yield pasted(source, one.where, one.declaration), one.declaration


PRICE, MADE = "price: tm.Field[float] = tm.field(default=0.0)", "made: tm.Field[str] = tm.field(factory=lambda: 'x')"
SURE = [
    # the row of a key, and the shards that spread its rows
    ('"{name}"', '"{name:shard(16)}"'), ('"{at:desc}"', '"{at:shard(16)}"'),
    ('("{name}", "{at}")', '"{at:shard(16)}"'), ('("{at}", "{number}")', '"{at:shard(16)}"'),
    ('("{price}", "{at}")', '"{at:shard(16)}"'), ('("{at}", "{id}")', '"{id:shard(16)}"'),
    ('("{name}", "{number}", "{made}")', '"{made:shard(16)}"'), ('("{price}", "{name}")', '"{name:shard(16)}"'),
    ('("{color}", "{name}")', '"{name:shard(16)}"'),
    ('("{name}", "{number}")', '"{name:shard(4)}", "{number:shard(4)}"'),
    ('("{name}", "{price}", "{number}")', '"{name:shard(4)}", "{number:shard(4)}"'),
    ('("{price}", "{color}")', '"{price:shard(4)}", "{color:shard(4)}"'),
]  # fmt: skip


@pytest.mark.parametrize(("row", "shards"), SURE)
def test_shards_are_of_what_tells_entities_apart(row: str, shards: str) -> None:
    many = f"({shards})" if "," in shards else shards
    for partition, code, mended in (
        ('"all"', "TM001", many),
        ('"{day}"', "TM002", f'({shards}, "{{day}}")'),
        ('"{on}"', "TM003", f'("{{on}}", {shards})'),
    ):
        (one,) = [
            one
            for one in advice(entity(f"key = tm.Key(partition={partition}, row={row})", PRICE, MADE))
            if one.code == code
        ]
        assert f"(partition={mended}, row={row})" in str(one.declaration)
        grouped = row.startswith('("{name}"')
        assert ("Or put name in front, if each query names it." in one.remedy) == (grouped and code != "TM003")


def test_a_time_without_a_factory_may_be_another_than_that_of_writing() -> None:
    key = 'key = tm.Key(partition="{at:%Y-%m-%d}", row="{number}")'
    (one,) = advice(entity(key))
    assert one.consequence.startswith("If at is the time of writing, all that is written now")
    made = entity(key).replace("at: tm.Field[datetime]", "at: tm.Field[datetime] = tm.field(kw_only=True, factory=now)")
    (one,) = advice(made.replace("class Color", "def now() -> datetime: ...\n\nclass Color"))
    assert one.consequence.startswith("All that is written now")


@pytest.mark.parametrize("factory", ["lambda: str(uuid4())", "lambda: uuid.uuid4().hex", "text_id"])
def test_random_texts_are_seen_where_the_factory_calls_uuid4(factory: str) -> None:
    source = entity('key = tm.Key(partition="{name}", row="{id}")').replace("id: tm.Field[UUID]", "id: tm.Field[str]")
    functions = "def text_id() -> str:\n    return uuid4().hex\n\nclass Color"
    source = source.replace("factory=uuid4)", f"kw_only=True, factory={factory})").replace("class Color", functions)
    (one,) = advice(source)
    assert one.code == "TM004"
    assert one.declaration == "id: tm.Field[str] = tm.field(factory=lambda: str(tm.uuid7()), kw_only=True)"
    assert advice(pasted(source, "Thing.key", one.declaration)) == ()


@pytest.mark.parametrize(("code", "level", "where", "gets", "neighbour"), CASES, ids=IDS)
def test_a_model_gets_it_and_its_neighbour_does_not(
    code: str, level: str, where: str, gets: str, neighbour: str
) -> None:
    assert [(one.level, one.where) for one in advice(gets) if one.code == code] == [(level, where)]
    assert [one.code for one in advice(neighbour) if one.code == code and one.where == where] == []


@pytest.mark.parametrize(("code", "level", "where", "gets", "neighbour"), CASES, ids=IDS)
def test_what_is_pasted_compiles_and_ends_it(code: str, level: str, where: str, gets: str, neighbour: str) -> None:
    one = next(one for one in advice(gets) if one.code == code)
    at = next(at for at, case in enumerate(CASES) if case[3] == gets and case[0] == code)
    assert (one.declaration is None) == (at in NO_CODE), one.declaration
    if one.declaration is not None:
        assert [
            again
            for again in advice(pasted(gets, where, one.declaration))
            if (again.code, again.where) == (code, where)
        ] == []


@pytest.mark.parametrize(("code", "level", "where", "gets", "neighbour"), CASES, ids=IDS)
def test_accept_silences_it(code: str, level: str, where: str, gets: str, neighbour: str) -> None:
    one = next(one for one in advice(gets) if one.code == code)
    reason = one.accept.replace("…", "it is right")
    name, _, place = where.partition(".")
    if place in ("", "key"):
        accepting = gets.replace(f'table="{name}s"', f'table="{name}s", {reason}')
    else:
        start = gets.index(f"{place} = tm.Index")
        end = gets.index(")\n", start)
        accepting = f"{gets[:end]}, {reason}{gets[end:]}"
    assert accepting != gets
    assert [one for one in advice(accepting) if one.code in (code, "TM010") and one.where == where] == []
    assert tm.changes(tm.schema_snapshot(classes(gets)), classes(accepting)) == ()


def test_two_times_and_a_text_have_nothing_to_put_first() -> None:
    index = 'by_at = tm.Index[datetime, date](partition=("{at:%Y-%m}", "{day}", "x-"), row="")'
    found = [one for one in tm.advise(classes(entity(GOOD, index))) if one.where == "Thing.by_at"]
    assert [(one.code, one.declaration) for one in found] == [("TM002", None)]


def test_an_acceptance_that_nothing_needs_is_noted() -> None:
    (one,) = advice(entity(accept=', accept={"TM001": "few rows"}'))
    assert (one.code, one.level, one.where) == ("TM010", "note", "Thing")
    assert "TM001" in one.problem
    (one,) = advice(entity(GOOD, 'by_day = tm.Index(partition="{number}", row="{day}", accept={"TM003": "few"})'))
    assert (one.code, one.where) == ("TM010", "Thing.by_day")


@pytest.mark.parametrize(
    ("accept", "said"),
    [
        ('{"TM999": "x"}', "TM999' is no code"), ('{"TM01": "x"}', 'TM01\' is no code .*did you mean "TM.01"'),
        ('{"TM005": "x"}', "'TM005' is never about a class"), ('{"TM001": ""}', "TM001: '' is no reason"),
        ('{"TM001": "  "}', "is no reason"), ('{"TM001": 3}', "TM001: 3 is no reason"), ("{3: 'x'}", "3 is no code"),
        ('"TM001"', "expected codes with reasons"), ('["TM001"]', "expected codes with reasons"),
    ],
)  # fmt: skip
def test_a_wrong_accept_is_refused_with_the_class(accept: str, said: str) -> None:
    with pytest.raises(tm.InvalidModel, match=said):
        classes(entity(accept=f", accept={accept}"))
    if "never" not in said:
        with pytest.raises(tm.InvalidModel, match=f"by_day: .*{said}"):
            classes(entity(GOOD, f'by_day = tm.Index(partition="{{day}}", accept={accept})'))


def test_an_index_accepts_no_code_of_classes_and_a_class_without_a_table_none() -> None:
    with pytest.raises(tm.InvalidModel, match="'TM008' is never about an index"):
        classes(entity(GOOD, 'by_day = tm.Index(partition="{day}", accept={"TM008": "x"})'))
    with pytest.raises(tm.InvalidModel, match="for a class with table="):
        exec(
            f'{HEAD}\nclass Loose(tm.Entity, accept={{"TM001": "x"}}):\n    name: tm.Field[str]\n',
            {"__name__": "loose"},
        )


def test_advice_is_read_as_text_and_as_data() -> None:
    one = advice(entity('key = tm.Key[str](partition="all", row="{name}")'))[0]
    assert str(one).splitlines() == [
        "TM001 warning  Thing.key: every entity is in the partition 'all'",
        "  On Azure Tables a partition takes about 2,000 entities a second, and is never split.",
        "  Spread it: queries read the shards side by side, in the order of the rows.",
        '      key = tm.Key[str](partition="{name:shard(16)}", row="{name}")',
        "  A change of the key needs a migration: tablemapper migrations make",
        '  or say why it is right:  accept={"TM001": "…"}',
    ]
    assert one.to_dict()["declaration"] == one.declaration
    assert '"code":"TM001"' in one.to_json()


def test_warnings_come_first_and_the_same_classes_give_the_same() -> None:
    source = entity(
        'key = tm.Key(partition="all", row="{name}")',
        'by_on = tm.Index(partition="{on}")',
        'by_x = tm.Index(partition="b", row="{day}")',
    )
    found = advice(source)
    assert [(one.level, one.code, one.where) for one in found] == [
        ("warning", "TM001", "Thing.by_x"),
        ("warning", "TM001", "Thing.key"),
        ("note", "TM003", "Thing.by_on"),
    ]
    assert advice(source) == found == advice(source)


def test_classes_that_do_not_fit_together_are_refused_as_by_open() -> None:
    with pytest.raises(tm.InvalidModel, match="expected a list of entity classes"):
        tm.advise([])


def test_each_rule_has_a_case_and_a_place_for_its_acceptance() -> None:
    rules = {*CLASS_RULES, *KEY_RULES}
    assert {code for code, *_ in CASES} == rules
    assert {*OF_INDEXES} == {*KEY_RULES, *INDEX_DATA_RULES, *CODES_OF_IDLE}
    assert {*OF_CLASSES} == {*rules, *KEY_DATA_RULES, *CODES_OF_CALLS} - {"TM005"}


# ---------------------------------------------------------------------------------------------- at open


def test_limits_of_azure_log_each_warning_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advising, "_logged", set())
    models = classes(entity('key = tm.Key(partition="all", row="{name}")', 'by_on = tm.Index(partition="{on}")'))
    with caplog.at_level(logging.INFO, "tablemapper.advice"):
        tm.open(":memory:", models=models).close()
        assert caplog.messages == []
        tm.open(":memory:", models=models, limits="azure").close()
        tm.open(":memory:", models=models, limits="azure").close()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("TM001 warning  Thing.key: ")


# ---------------------------------------------------------------------------------------------- random models


def _random(seed: int) -> Model:
    rng = random.Random(seed)
    model = random_model(rng)
    for change in (with_turned, with_levels, with_maintained, with_undeclared):
        if rng.random() < 0.5:
            model = change(rng, model)
    return model


@pytest.mark.parametrize("part", range(4))
def test_advice_on_random_models_always_compiles_and_is_that_of_their_forms(part: int, full_size: bool) -> None:
    said = 0
    for seed in range(part * 1_000, part * 1_000 + (1_000 if full_size else 6)):
        model = _random(seed)
        source = model.source()
        names = compiled(source)
        every = [names[record.name] for record in model.records]
        found = tm.advise(every)
        for one in found:
            if one.declaration is None:
                continue
            said += 1
            name, _, place = one.where.partition(".")
            again = compiled(f"\n{_replaced(source, name, one.declaration)}")
            changed = [again[record.name] for record in model.records]
            assert (one.code, one.where) not in {(two.code, two.where) for two in tm.advise(changed)}, (seed, one)
            if place != "key":
                assert _call(again[name], place) == _call(names[name], place)
    assert said > 1


def _call(cls: Any, index: str) -> list[str]:
    return [name for name, _ in getattr(cls, index).arguments]


def _replaced(source: str, name: str, lines: str) -> str:
    return pasted(f"\n{source}", f"{name}.x", lines)


def test_advice_on_a_hundred_classes_calls_few_functions_for_each() -> None:
    bad = entity(
        'key = tm.Key[Color, bool, str](partition=("{color}", "{on}"), row="{name}")',
        'by_day = tm.Index[date, datetime](partition="{day}", row="{at}")',
        'by_size = tm.Index(partition="{size}", row="{day}")',
    )
    every = classes("".join(bad.replace("Thing", f"Thing{number}") for number in range(100)))
    schema = compile_schema(every)
    assert len(advise_schema(schema)) == 300
    assert _calls(lambda: advise_schema(schema)) < 150_000  # (118,000; 0.04 s, and 0.03 to open them)


def _calls(function: Callable[[], object]) -> int:
    """Return how many functions of Python a function calls."""
    count = 0

    def counting(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counting)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
