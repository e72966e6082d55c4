"""Times finer than a microsecond are cut in each way in, and never rounded."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.interchange.parsing import condition


@attrs.define
class Stay:
    begins: datetime
    note: str = ""
    price: Decimal | None = None


class Moment(tm.Entity, table="Moments"):
    name: tm.Field[str]
    at: tm.Field[datetime | None] = tm.field(default=None)
    cut: tm.Field[datetime | None] = tm.field(default=None, precision="ms")
    hour: tm.Field[time | None] = tm.field(default=None)
    span: tm.Field[timedelta | None] = tm.field(default=None)
    text: tm.Field[str] = tm.field(default="")
    stay: tm.Field[Stay | None] = tm.field(default=None)
    times: tm.Field[list[datetime]] = tm.field(factory=list)
    named: tm.Field[dict[str, Stay]] = tm.field(factory=dict)
    texts: tm.Field[list[str]] = tm.field(factory=list)
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str](partition="{name}")


LAST = "9999-12-31T23:59:59.9999999Z"
"""The greatest time of .NET."""
END = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
STAY = {"begins": LAST, "note": LAST, "price": 12345678901234567890.123456789}
CASES: dict[str, tuple[Any, Any]] = {
    "at": (LAST, END), "cut": (LAST, END.replace(microsecond=999_000)),
    "hour": ("23:59:59.9999999", time(23, 59, 59, 999_999)), "span": ("-PT0.0000019S", timedelta(microseconds=-1)),
    "text": (LAST, LAST), "times": ([LAST, LAST], [END, END]), "texts": ([LAST], [LAST]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_json_and_dicts_are_cut(name: str) -> None:
    given, expected = CASES[name]
    for moment in (
        tm.from_json(Moment, json.dumps({"name": "x", name: given})),
        tm.from_dict(Moment, {"name": "x", name: given}),
    ):
        assert getattr(moment, name) == expected


def test_times_inside_of_values_are_cut_and_all_else_is_left() -> None:
    text = f'{{"begins": "{LAST}", "note": "{LAST}", "price": 12345678901234567890.123456789}}'
    moment = tm.from_json(Moment, f'{{"name": "x", "stay": {text}, "named": {{"a": {text}}}}}')
    expected = Stay(END, LAST, Decimal("12345678901234567890.123456789"))
    assert moment.stay == moment.named["a"] == expected
    moment = tm.from_dict(Moment, {"name": "x", "stay": {"begins": LAST, "note": LAST, "price": "1.5"}})
    assert moment.stay == Stay(END, LAST, Decimal("1.5"))


def test_undeclared_times_and_typed_conditions_are_cut() -> None:
    moment = tm.from_json(Moment, f'{{"name": "x", "then@odata.type": "Edm.DateTime", "then": "{LAST}"}}')
    assert moment.more == {"then": END}
    assert str(condition(Moment, f"at=={LAST}")) == str(Moment.at == END)


def test_columns_are_cut() -> None:
    pa, np = pytest.importorskip("pyarrow"), pytest.importorskip("numpy")
    before = datetime(1969, 12, 31, 23, 59, 59, 999_998, tzinfo=UTC)
    times = pa.array([-1_001, 1_999, None], pa.timestamp("ns", tz="UTC"))
    spans = np.array([-1_999, 1_999, "NaT"], dtype="timedelta64[ns]")
    with tm.open(":memory:", models=[Moment]) as store:
        store.insert_columns(Moment, {"name": ["a", "b", "c"], "at": times, "span": spans})
        found = [(one.at, one.span) for one in store.query(Moment).allow_scan()]
        store.insert_columns(Moment, {"name": ["d", "e"], "span": pa.array([-1_999, 1_999], pa.duration("ns"))})
        assert [one.span for one in store.query(Moment).where(Moment.name.is_in(["d", "e"]))] == [
            found[0][1],
            found[1][1],
        ]
    assert found == [
        (before, timedelta(microseconds=-1)),
        (datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), timedelta(microseconds=1)),
        (None, None),
    ]


def test_times_of_pandas_are_cut() -> None:
    pandas = pytest.importorskip("pandas")
    moment = Moment("x", pandas.Timestamp("2020-01-01T00:00:00.123456789Z"), span=pandas.Timedelta(-1_999, "ns"))
    assert (moment.at, moment.span) == (datetime(2020, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC), timedelta(microseconds=-1))
