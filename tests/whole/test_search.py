"""The random search: it finds nothing, and what it would print can be run."""

from __future__ import annotations

import contextlib
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from .answers import Case
from .conditions import Compare, In, Null, Operand, Unless
from .faults import a_whole_key_that_forgets_the_other_conditions
from .kinds import ANY, DATE, MOMENT, STR
from .models import Field, Index, Model, Record, Slot
from .oracle import State, average, extreme, holds, in_order, in_range, total
from .questions import Ask, Question
from .search import search, shrunk

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")


def test_what_is_found_is_made_small_and_printed_as_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    a_whole_key_that_forgets_the_other_conditions(monkeypatch)
    found = search(range(500, 1_000))  # (the first of them have it)
    shown = str(
        shrunk(next(one for one in found if one.case.question.of == ("First",) and one.case.ask.verb == "list"))
    )
    assert shown.count("    First(") <= 2
    assert "Groups" not in shown
    assert "tm.Index" not in shown
    program, _, _ = shown.rpartition("\n\nexpected")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(program, "<printed>", "exec", dont_inherit=True), {"__name__": "printed"})
    assert "First(" in output.getvalue()


# ---------------------------------------------------------------------------------------------- the oracle

A, B, AT = Operand("a", STR), Operand("b", STR), Operand("at", MOMENT)
DAY = datetime(2024, 2, 29, 23, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Compare(A, "!=", "x"), False), (Unless(Compare(A, "==", "x")), True), (Compare(A, "==", None), True),
        (Null(A), True), (Compare(B, "<", A), False), (In(A, ("x",)), False), (Compare(B, ">", "x"), True),
        (Compare(Operand("more", ANY, "w"), "<", 3), True), (Compare(Operand("more", ANY, "w"), "<", "3"), False),
        (Compare(Operand("at", STR, cut="%Y-%m"), "==", "2024-02"), True),
        (Compare(Operand("at", DATE, cut="date"), "<", DAY.date()), False),
    ],
    ids=str,
)  # fmt: skip
def test_a_condition_on_what_is_missing_does_not_hold(condition: Any, expected: bool) -> None:
    assert holds(condition, {"a": None, "b": "y", "more": {"w": 2}, "at": DAY}) is expected


def test_what_is_missing_is_the_least() -> None:
    rows = [{"a": "x"}, {"a": None}, {"a": "b"}]
    assert [row["a"] for row in in_order(rows, [(A, False)])] == [None, "b", "x"]
    assert [row["a"] for row in in_order(rows, [(A, True)])] == ["x", "b", None]


@pytest.mark.parametrize(
    ("values", "sum", "mean", "greatest"),
    [
        ([], None, None, None),
        ([None], None, None, None),
        ([2**63 - 1, 2**63 - 1], 2**64 - 2, float(2**63), 2**63 - 1),
        ([0.1] * 10, 1.0, 0.1, 0.1),
        ([1e308, 1e308, -1e308], 1e308, 1e308 / 3, 1e308),
        ([1e308, 1e308], float("inf"), float("inf"), 1e308),
        ([float("inf"), -float("inf")], None, None, float("inf")),
        ([Decimal("1.0"), Decimal("1.00")], Decimal("2.00"), Decimal("1.00"), Decimal(1)),
        ([Decimal("1E+3")], Decimal(1000), Decimal(1000), Decimal("1E+3")),
        ([timedelta(1), timedelta(2)], timedelta(3), timedelta(days=1.5), timedelta(2)),
    ],
    ids=str,
)
def test_sums_are_exact(values: list[Any], sum: Any, mean: Any, greatest: Any) -> None:
    assert repr(total(values)) == repr(sum)
    assert repr(average(values)) == repr(mean)
    assert repr(extreme("max", values)) == repr(greatest)


@pytest.mark.parametrize(
    ("spec", "given", "held", "expected"),
    [
        ("", "x", "x-y", False),
        ("fold", "ß", "SS", True),
        ("hash", "Ann", "ann", False),
        ("shard(2)", "a", "b", True),
        ("%Y-%m", DAY, DAY - timedelta(days=28), True),
        ("%Y-%m", DAY, DAY + timedelta(days=1), False),
    ],
)
def test_an_index_by_name_finds_what_its_slots_make_alike(spec: str, given: Any, held: Any, expected: bool) -> None:
    index = Index("by", ((Slot("a", spec),),), (("",),))
    kind = MOMENT if isinstance(held, datetime) else STR
    record = Record("First", "Things", (Field("a", kind),), ((Slot("a"),),), (("",),), (index,))
    assert in_range(record, index, [given], {"a": held}) is (expected or spec.startswith("shard"))


def test_a_row_is_known_by_what_its_key_makes_of_it() -> None:
    fields = (Field("a", STR), Field("b", STR, optional=True))
    state = State(Model((Record("First", "Things", fields, ((Slot("a", "fold"),),), (("",),)),)))
    state.put("First", {"a": "x", "b": "1"})
    state.put("First", {"a": "X", "b": "2"})
    assert state.rows("First") == [{"a": "X", "b": "2"}]


def test_a_wrong_answer_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    a_whole_key_that_forgets_the_other_conditions(monkeypatch)
    fields = (Field("a", STR), Field("b", STR))
    model = Model((Record("First", "Things", fields, ((Slot("a"),),), (("",),)),))
    question = Question(("First",), where=(("First", Compare(A, "==", "x")), ("First", Compare(B, "==", "y"))))
    rows = (("First", {"a": "x", "b": "z"}),)
    assert "found    1" in (Case(model, rows, question, Ask("list")).differs() or "")
    assert Case(model, rows, question, Ask("count")).differs() is None
