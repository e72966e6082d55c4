"""Keys: injective, legal, ordered; ranges that hold exactly what satisfies their predicate."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from tablemapper.codegen import Names, compile_functions
from tablemapper.errors import InvalidEntity, InvalidModel
from tablemapper.keys import codec as keytext
from tablemapper.keys.codec import key_codec
from tablemapper.keys.encodings import NotAKey, check_key
from tablemapper.keys.overlap import disjoint
from tablemapper.keys.template import Template
from tablemapper.keys.template_parser import compile_template

from ..conftest import examples

many = examples(80, long=4000)
some = examples(30, long=800)

FORBIDDEN = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f\ud800-\udfff]")

# Characters near every boundary of the codec, all others seldom.
NEAR = '\x00\x1f !"#./0>?@AZ[\\]`az{|}~\x7f\x80\x9f\xa0éß\ud7ff\ue000\uffff😀\U0010ffff'
TEXTS = st.one_of(st.text(st.sampled_from(NEAR), max_size=6), st.text(max_size=8))
UTC_TIMES = st.datetimes(min_value=datetime(1601, 1, 1), timezones=st.just(UTC))


class Shade(Enum):
    DARK = "d/k"
    LIGHT = "l"


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS, int: st.one_of(st.integers(-1100, 1100), st.integers(-(2**63), 2**63 - 1)),
    float: st.floats(allow_nan=False).map(lambda x: x or 0.0), bool: st.booleans(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False, places=3) | st.integers(-10, 10).map(Decimal),
    datetime: UTC_TIMES, date: st.dates(), time: st.times(),
    timedelta: st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)), UUID: st.uuids(),
    bytes: st.binary(max_size=6), Shade: st.sampled_from(Shade),
}  # fmt: skip
ORDERED = [kind for kind in VALUES if kind is not Shade]
DESCENDING = [int, float, Decimal, bool, datetime, date, UUID, timedelta]
KINDS = st.sampled_from(list(VALUES))


def tuple_template(kinds: list[Any], specs: list[str] | None = None) -> Template:
    specs = specs or [""] * len(kinds)
    text = tuple("{f%d%s}" % (at, f":{spec}" if spec else "") for at, spec in enumerate(specs))
    return compile_template(text, {f"f{at}": kind for at, kind in enumerate(kinds)}, subject="test")


def named(values: tuple[Any, ...]) -> dict[str, Any]:
    return {f"f{at}": value for at, value in enumerate(values)}


def same(a: Any, b: Any) -> bool:
    return bool(a.__class__ is b.__class__ and a == b)


# ---------------------------------------------------------------------------------------------- one value


@pytest.mark.parametrize("kind", list(VALUES), ids=lambda kind: kind.__name__)
def test_a_value_comes_back_from_its_text(kind: Any) -> None:
    text = key_codec(kind)

    @some
    @given(VALUES[kind])
    def holds(value: Any) -> None:
        assert same(text.parse(text.encode(value)), value)

    holds()


@pytest.mark.parametrize("kind", DESCENDING, ids=lambda kind: kind.__name__)
def test_a_descending_value_comes_back_from_its_text(kind: Any) -> None:
    text = key_codec(kind, "desc")

    @some
    @given(VALUES[kind], VALUES[kind])
    def holds(a: Any, b: Any) -> None:
        assert text.parse(text.encode(a)) == a
        assert (text.encode(a) < text.encode(b)) == (a > b)

    holds()


@many
@given(st.text())
def test_any_text_of_unicode_is_encoded_legally_and_comes_back(value: str) -> None:
    text = key_codec(str)
    encoded = text.encode(value)
    assert not FORBIDDEN.search(encoded)
    assert text.parse(encoded) == value


@many
@given(TEXTS)
def test_a_text_that_is_not_ours_is_refused(foreign: str) -> None:
    text = key_codec(str)
    try:
        value = text.parse(foreign)
    except (NotAKey, ValueError):
        return
    assert text.encode(value) == foreign


@pytest.mark.parametrize("text", ["", "0", "f" * 17, "8" * 15, "zz" * 8, "8000000000000001 "])
def test_a_text_that_is_no_float_is_refused(text: str) -> None:
    for spec in ("", "desc"):
        with pytest.raises(ValueError):
            key_codec(float, spec).parse(text)


def test_ordinary_text_stands_as_it_is() -> None:
    for ordinary in ("sensor-abc-123", "New York", "example.com", "100 %", "it's", "São Paulo", "日本", "a_b-c:d"):
        assert key_codec(str).encode(ordinary) == ordinary


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (str, "food/coffee", "food.~coffee"),
        (str, "é.é", "é.}é"),
        (int, 42, "b42"), (int, -7, "Z2"), (Decimal, Decimal("0.00"), "o"), (bool, True, "1"),
        (datetime, datetime(2026, 3, 1, 12, tzinfo=UTC), "2026-03-01T12:00:00.000000Z"),
        (date, date(999, 1, 2), "0999-01-02"), (bytes, b"\x00\xff", "00ff"), (Shade, Shade.DARK, "d.~k"),
    ],
)  # fmt: skip
def test_the_format_of_a_key_does_not_change(kind: Any, value: Any, text: str) -> None:
    assert key_codec(kind).encode(value) == text


@pytest.mark.parametrize(("length", "fits"), [(512, True), (513, False)])
def test_a_key_has_at_most_512_units(length: int, fits: bool) -> None:
    for text in ("x" * length, "é" * length, "😀" * (length // 2) + "x" * (length % 2)):
        if fits:
            check_key(text)
        else:
            with pytest.raises(InvalidEntity, match="512"):
                check_key(text)


def test_a_lone_surrogate_and_nan_are_refused() -> None:
    with pytest.raises(InvalidEntity):
        key_codec(str).encode("a\ud800")
    with pytest.raises(InvalidEntity):
        key_codec(float).encode(float("nan"))


# ---------------------------------------------------------------------------------------------- tuples


@st.composite
def tuples(
    draw: st.DrawFn, kinds: list[Any] | None = None
) -> tuple[Template, list[Any], tuple[Any, ...], tuple[Any, ...]]:
    chosen = draw(st.lists(st.sampled_from(kinds or list(VALUES)), min_size=1, max_size=3))
    a = tuple(draw(VALUES[kind]) for kind in chosen)
    b = tuple([draw(VALUES[k]) if draw(st.booleans()) else v for k, v in zip(chosen, a, strict=True)])
    return tuple_template(chosen), chosen, a, b


@many
@given(tuples())
def test_different_tuples_have_different_keys_and_all_come_back(case: Any) -> None:
    template, _, a, b = case
    one, other = template.encode(named(a)), template.encode(named(b))
    assert (one == other) == (a == b)
    assert not FORBIDDEN.search(one)
    assert template.decode(one) == named(a)


@many
@given(tuples(ORDERED))
def test_keys_of_tuples_sort_as_the_tuples_do(case: Any) -> None:
    template, _, a, b = case
    assert (template.encode(named(a)) < template.encode(named(b))) == (a < b)


def test_every_pair_of_short_texts_is_ordered_and_apart() -> None:
    alphabet = '\x1f !"./0}~\x7f'
    words = ["".join(word) for n in range(4) for word in itertools.product(alphabet, repeat=n)]
    template = tuple_template([str, str])
    pairs = sorted((a, b) for a in words[:60] for b in words[:60])
    keys = [template.encode(named(pair)) for pair in pairs]
    assert keys == sorted(set(keys))
    singles = sorted(words)
    texts = [key_codec(str).encode(word) for word in singles]
    assert texts == sorted(set(texts))


@some
@given(tuples())
def test_generated_source_says_what_the_template_says(case: Any) -> None:
    template, chosen, a, _ = case
    names = Names()
    variables = {f"f{at}": f"v{at}" for at in range(len(chosen))}
    lines = [f"def encode({', '.join(variables.values())}):", f"    return {template.encode_source(variables, names)}"]
    lines += ["def decode(t):", *(f"    {line}" for line in template.decode_source("t", variables, names))]
    lines += [f"    return {{{', '.join(f'{f!r}: {v}' for f, v in variables.items())}}}"]
    made = compile_functions("test", "\n".join(lines), names)
    key = template.encode(named(a))
    assert made["encode"](*a) == key
    assert made["decode"](key) == named(a)


@pytest.mark.parametrize(
    ("text", "kinds", "values"),
    [
        ("order-{n:08d}", {"n": int}, [{"n": 0}, {"n": 99_999_999}]),
        ("{a}_{b}", {"a": str, "b": str}, [{"a": "x_y", "b": "z"}, {"a": "x", "b": "y_z"}, {"a": "", "b": ""}]),
        ("{a}-{n:04d}", {"a": str, "n": int}, [{"a": "p-1", "n": 1}, {"a": "p", "n": 1001}]),
        ("{n}{a}", {"a": str, "n": int}, [{"a": "1", "n": 1}, {"a": "", "n": 11}]),
    ],
)
def test_a_text_with_several_fields_can_be_taken_apart(text: str, kinds: Any, values: list[Any]) -> None:
    template = compile_template(text, kinds, subject="test")
    keys = [template.encode(value) for value in values]
    assert len(set(keys)) == len(values)
    assert [template.decode(key) for key in keys] == values


# ---------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{nmae}", 'did you mean "name"'), ("{name}{other}", "tuple"), ("{name}a{other}", "tuple"),
        ("{name:%Y}", "name"), ("{number:desk}", "desk"), ("{name:desc}", "desc"), ("a/b", "/"),
        (("{name:raw}", "{other}"), "raw"),
    ],
)  # fmt: skip
def test_a_wrong_template_says_what_is_wrong(text: Any, part: str) -> None:
    with pytest.raises(InvalidModel, match=re.escape(part)):
        compile_template(text, {"name": str, "other": str, "number": int}, subject="test")


def test_all_faults_of_a_template_are_told_together() -> None:
    with pytest.raises(InvalidModel) as found:
        compile_template(("{nmae}", "{number:desk}"), {"name": str, "number": int}, subject="test")
    assert len(found.value.faults) == 2


def test_types_of_a_table_are_told_apart_by_their_keys() -> None:
    def pair(row: Any) -> tuple[Template, Template]:
        kinds = {"a": str, "n": int, "m": int}
        return compile_template("{a}", kinds, subject="p"), compile_template(row, kinds, subject="r")

    assert disjoint(pair(("i", "{n}")), pair(("j", "{n}"))) == "disjoint"
    assert disjoint(pair("{a}"), pair(("x", "{n}"))) == "disjoint"
    assert disjoint(pair("profile"), pair("{a}")) == "carve a"
    assert disjoint(pair("{a}"), pair("profile")) == "carve b"
    assert disjoint(pair("{n}"), pair("{m}")) == "overlap"


# ---------------------------------------------------------------------------------------------- the test of the tests


def plain(value: str) -> str:
    return value


def percent(value: str) -> str:
    return re.sub(r"[\x00-\x20/\\#?%\x7f-\x9f\"]", lambda m: f"%{ord(m[0]):02X}", value)


def no_guard(value: str) -> str:
    return re.sub(r'(?<=[".>\[~])\}', "", keytext.key_codec(str).encode(value)) if "}" not in value else value


def quoted_hex(value: str) -> str:
    return re.sub(r"[\x00-\x1f !\"/\\#?\x7f-\x9f]", lambda m: f'"{ord(m[0]):02x}', value)


def upper(value: str) -> str:
    return keytext.key_codec(str).encode(value.upper())


def stripped(value: str) -> str:
    return keytext.key_codec(str).encode(value.rstrip())


def cut_at_nul(value: str) -> str:
    return keytext.key_codec(str).encode(value.split("\x00", maxsplit=1)[0])


def no_space(value: str) -> str:
    return keytext.key_codec(str).encode(value).replace(' "20', " ")


WEAKENED = [plain, percent, no_guard, quoted_hex, upper, stripped, cut_at_nul, no_space]


@pytest.mark.parametrize("weak", WEAKENED, ids=lambda weak: weak.__name__)
def test_a_weakened_codec_is_caught(weak: Callable[[str], str]) -> None:
    @settings(max_examples=20_000, derandomize=True, report_multiple_bugs=False, phases=[Phase.generate])
    @given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS))
    def holds(a: tuple[str, str], b: tuple[str, str]) -> None:
        one, other = (" !".join(map(weak, pair)) for pair in (a, b))
        assert not FORBIDDEN.search(one)
        assert (one == other) == (a == b)
        assert (one < other) == (a < b)

    with pytest.raises(AssertionError):
        holds()


def test_left_padded_numbers_are_caught() -> None:
    @settings(max_examples=2000)
    @given(VALUES[int], VALUES[int])
    def holds(a: int, b: int) -> None:
        assert (f"{a:020d}" < f"{b:020d}") == (a < b)

    with pytest.raises(AssertionError):
        holds()


def test_assumptions_are_not_vacuous() -> None:
    @settings(max_examples=200)
    @given(TEXTS)
    def escaped(value: str) -> None:
        assume(key_codec(str).encode(value) != value)

    escaped()
