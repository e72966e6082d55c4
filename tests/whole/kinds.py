"""The types that random models are made of, each with values: common ones, empty ones, extremes, near misses.

Programs that the search prints take all that is imported here, so that they can be run as they are.
"""

# ruff: noqa: F401

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping
from decimal import Decimal
from itertools import islice
from typing import Annotated, Any, Literal
from uuid import UUID

import attrs
from msgspec import Meta

import tablemapper as tm

try:
    import annotated_types as at
    import pydantic
except ImportError:  # on other Pythons
    at = pydantic = None

WRITTEN = "_timestamp"
"""Where a row has when it was written, which the store alone says: rows that differ in it only are the same."""
inf = float("inf")
UTC = datetime.UTC


class Color(enum.Enum):
    """Has no order."""

    RED = "r"
    GREEN = ""
    BLUE = "B-1"


class Mood(enum.StrEnum):
    SAD = "sad"
    GLAD = "Glad"


class Rank(enum.IntEnum):
    LOW = -1
    NONE = 0
    HIGH = 12


@attrs.define
class Home:
    city: str
    floor: int | None = None


@attrs.define
class Box:
    wide: int
    names: list[str] = attrs.field(factory=list)


@attrs.frozen(eq=False)
class Kind:
    """A type of values."""

    annotation: str
    pool: tuple[Any, ...]
    """Values to try."""
    specs: tuple[str, ...] = ()
    """What may stand behind its colon in a template; none if no key can hold it."""
    width: Literal["fixed", "self", "free"] = "fixed"
    """How a key knows where its text ends: by its width, by itself, or not."""
    ordered: bool = True
    summed: bool = False
    element: Kind | None = None
    """Of a list."""
    near: tuple[tuple[Any, ...], ...] = ()
    """Values that are easily taken for each other."""
    precision: str = ""
    """What times are cut to when they are set."""
    uncut: Kind | None = None
    """The type without that."""
    pieces: tuple[tuple[str, ...], ...] = ()
    """Formats that together hold a time."""
    parts: Mapping[str, Kind] = {}
    """Of nested values, by the name of the step to them."""

    @property
    def zero(self) -> Any:
        """The sum of nothing."""
        return type(self.pool[0])()

    def ends(self, spec: str) -> Literal["fixed", "self", "free"]:
        """Return how the text that a spec gives ends."""
        return (
            "free" if spec == "fold" or spec.startswith("prefix") else self.width if spec in ("", "desc") else "fixed"
        )


def _day(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=UTC)


_TEXTS = (
    "", "a", "A", "ann", "Ann", "ANN", "x", "x-y", "x-", "-y", "x.y", "x/y", "x y", "x ", "x !y", "xyz", "y", "b", "ß", "SS", "é", "x\x00",
    "#", "~", '"', "10", "9", "\ue000", "\U0001f600",
)  # fmt: skip
_MOMENTS = tuple(
    map(
        _day,
        ("2024-02-29", "2024-02-29T23:59:59.999999", "2024-03-01", "2024-03-01T00:00:00.000001", "2024-03-01T12:30",
         "2024-03-02T12:30", "2023-12-31T23:00", "1601-01-01", "9999-12-31T23:59:59.999999"),
    )
)  # fmt: skip

_NEAR = (
    ("x", "x-y", "x-", "x.y", "x/y", "x y", "x ", "x !y", "xyz", "y"),
    ("", "a", "A", "ann", "Ann", "ANN"),
    ("ß", "SS"),
)
STR = Kind("str", _TEXTS, ("", "", "", "fold", "hash", "shard(2)", "prefix(1)", "prefix(2)"), "free", near=_NEAR)
_BORDER = 2**15  # UTF-16 units of a property in an account
LARGE = Kind(
    "str", ("", "x", "x" * (_BORDER - 1), "x" * _BORDER, "\u20ac" * (_BORDER + 1), "x" + "\U0001f600" * (_BORDER // 2)),
    ordered=False,
)  # fmt: skip
"""A text of a field with ``large=True``, which is in no key, index, order or group."""
INT = Kind(
    "int", (0, 1, -1, 2, 7, 10, -10, 42, 2**63 - 1, -(2**63)), ("", "", "desc", "hash", "shard(3)"), "self", summed=True,
    near=((-1, 0, 1, 2, 10), (2**63 - 1, 2**63 - 2, 2**62, 0), (-(2**63), 1 - 2**63, -(2**62), 2**63 - 1)),
)  # fmt: skip
ANY = Kind("Any", (0, 1, 2, "", "x", 1.5), ordered=False)
"""An undeclared property."""
_DECIMALS = tuple(
    Decimal(text) for text in
    ("0", "0.00", "1", "1.0", "1.00", "-3", "0.1", "1E+2", "100", "-0.5", "1E-20", "-12345678901234567890123456789012.34")
)  # fmt: skip

FLOAT = Kind(
    "float", (0.0, -0.0, 0.5, 0.1, 1.5, -2.0, 1e308, -1e308, 5e-324, inf, -inf), ("", "desc", "hash"), summed=True
)
DECIMAL = Kind("Decimal", _DECIMALS, ("", "desc", "hash"), "free", summed=True)
MOMENT = Kind(
    "datetime.datetime", _MOMENTS, ("", "desc", "%Y-%m", "%Y-%m-%d", "%Y%m%d%H", "%m-%Y", "%G-W%V", "%Y-Q%q", "hash"),
    near=(_MOMENTS[:4], _MOMENTS[2:6]),
    pieces=(
        ("%Y-%m-%d", "%H:%M:%S.%fZ"), ("%Y%m", "%dT%H%M%S%f"), ("%Y", "%m", "%d"), ("%Y-%m-%d", "%H:%M:%S.%LZ"),
        ("%m-%Y", "%d %H:%M:%S.%f"), ("%H:%M:%S.%f", "%Y-%m-%d"), ("%G-W%V", "%Y-%m-%d %H:%M:%S.%f"), ("%Y-Q%q", "%m-%d"),
    ),
)  # fmt: skip
_CLOSE = tuple(map(_day, ("2024-02-29T23:59:59.999999", "2024-02-29T23:59:59.999", "2024-02-29T23:59:59", "2024-03-01",
                          "2024-03-01T00:00:00.000001", "2024-03-01T00:00:00.0015", "2024-03-01T00:00:01.5")))  # fmt: skip


def _cut(kind: Kind, precision: str, *pieces: tuple[str, ...]) -> Kind:
    return attrs.evolve(
        kind,
        precision=precision,
        uncut=kind,
        pieces=pieces,
        specs=("", *[spec for spec in kind.specs if "%" not in spec]),
    )


MOMENT_MS = attrs.evolve(
    _cut(MOMENT, "ms", ("%Y-%m-%d", "%H:%M:%S.%LZ"), ("%Y%m%d%H%M%S%L",), ("%Y", "%m-%d", "T%H", "%M%S", "%L")),
    near=(_CLOSE, _CLOSE, *MOMENT.near),
)
MOMENT_S = attrs.evolve(
    _cut(MOMENT, "s", ("%Y-%m-%d", "%H:%M:%S"), ("%Y-%m-%dT%H:%M:%S",), ("%Y-%m", "%d%H%M", "%S")),
    near=(_CLOSE, _CLOSE),
)
_ODD = tuple(map(_day, (
    "2006-03-26T00:59:59.999999", "2006-03-26T01:00", "2006-10-28T21:59:59.999999", "2006-10-28T22:00",
    "2006-10-29T00:30", "2006-10-29T00:59:59.999999", "2006-10-29T01:00", "2006-10-29T01:30", "2006-10-29T02:29:59.999999",
    "2006-10-29T02:30", "2006-10-29T02:30:30", "2006-10-29T02:31", "2006-10-29T03:00:30", "2006-10-29T03:30",
    "2006-04-01T14:45", "2006-04-01T15:00", "2006-04-01T15:15", "2006-04-01T15:30",
)))  # fmt: skip
LOCAL = attrs.evolve(
    MOMENT,
    pool=_ODD,
    specs=("", "", "", "desc", "%Y-%m-%d"),
    near=(_ODD[2:8], _ODD[4:9], _ODD[8:14], _ODD[8:14], _ODD[14:]),
)
"""Times around changes of the clocks: in Oslo, on Newfoundland, where a day came twice, and on Lord Howe."""
MOMENTS = (MOMENT, MOMENT_MS, MOMENT_S, LOCAL)
_DAYS = tuple(dict.fromkeys(at.date() for at in _MOMENTS))
DATE = Kind(
    "datetime.date", _DAYS, ("", "desc", "%Y-%m", "%d", "%Y%m%d"), near=(_DAYS[1:3], _DAYS[:4]),
    pieces=(("%Y", "%m%d"), ("%Y%m%d",), ("%Y-%m", "%d")),
)  # fmt: skip
TIME = Kind(
    "datetime.time", (datetime.time(), datetime.time(12, 30), datetime.time(12, 45), datetime.time(23, 59, 59, 999999)),
    ("", "%H", "%H:%M"), pieces=(("%H", "%M:%S.%f"), ("%H%M%S",)),
)  # fmt: skip
COUNTED = Kind("int", (0, 1, 7, 42, 999), ("03d", "03d", ""), "self", summed=True)
"""An int that a spec with a width can hold."""
INT32 = Kind("tm.Int32", (0, 1, -1, 2**31 - 1, -(2**31)), ("", "desc"), "self", summed=True)
NUMBERS = (INT, COUNTED, INT32, FLOAT)
"""What compares with each other."""

SPELLINGS = ("Annotated[{0}, Meta(ge={1})]",)
"""How a field says the least value that it takes."""
if at is not None:
    SPELLINGS += (
        "Annotated[{0}, at.Ge({1})]",
        "Annotated[{0}, at.Interval(ge={1})]",
        "Annotated[{0}, pydantic.Field(ge={1})]",
    )

SCALARS: tuple[Kind, ...] = (
    STR, STR, INT, INT, INT, COUNTED, INT32, FLOAT, DECIMAL, MOMENT, MOMENT, MOMENT_MS, MOMENT_S, DATE,
    TIME, _cut(TIME, "s", ("%H%M%S",), ("%H", "%M", "%S")),
    Kind("bool", (False, True), ("", "desc")),
    Kind(
        "datetime.timedelta",
        (datetime.timedelta(), datetime.timedelta(1), datetime.timedelta(0, -1, -1), datetime.timedelta(1_000_000)),
        ("", "desc"), "self", summed=True,
    ),
    Kind("UUID", tuple(UUID(int=n) for n in (0, 1, 2**127, 2**128 - 1)), ("", "desc", "hash")),
    Kind("bytes", (b"", b"\x00", b"a", b"ab", b"\xff"), ("", "hash"), "free"),
    Kind("Color", tuple(Color), ("", "hash"), "free", ordered=False),
    Kind("Mood", tuple(Mood), ("",), "free"),
    Kind("Rank", tuple(Rank), ("",), "self"),
    Kind('Literal["b", "a", ""]', ("b", "a", ""), ("", "fold"), "free"),
    Kind("Literal[2, 10, -1]", (2, 10, -1), ("",), "self"),
)  # fmt: skip
EXTRA = Kind(
    "tm.Extra", (tm.Extra(), tm.Extra(w=2), tm.Extra(w="x", v=1.5), tm.Extra(w=0, v="")), ordered=False,
    parts={"w": ANY, "v": ANY},
)  # fmt: skip
NESTED: tuple[Kind, ...] = (
    Kind("list[str]", ([], ["t"], ["t", "u"], ["u", "u"], ["", "T"], ["x-y", "x"]), ordered=False, element=STR),
    Kind("list[int]", ([], [0], [1, 0, 1], [2, 7, 10], [-1, 2**63 - 1]), ordered=False, element=INT),
    Kind(
        "list[Decimal]", ([], [Decimal("1.0"), Decimal("1.00")], [Decimal(0)], [Decimal(-3), Decimal("1E+2")]),
        ordered=False, element=DECIMAL,
    ),
    Kind("dict[str, int]", ({}, {"a": 1}, {"a": 0, "b": 2}, {"b": -1}), ordered=False, parts={"a": INT, "b": INT}),
    Kind(
        "Home", (Home(""), Home("x", 0), Home("x-y", 1), Home("Ann"), Home("ann", -1)), ordered=False,
        parts={"city": STR, "floor": INT},
    ),
    EXTRA,
)  # fmt: skip
BOX = Kind("Box", (Box(0), Box(2**40, ["", "a"])), ordered=False)
"""A nested value that holds several."""
HIERARCHY = Kind(
    "tuple[str, ...]",
    ((), ("",), ("a",), ("a", "b"), ("a", "b", "x/y"), ("ab",), ("a ",), ("a", ""), ("", "a"), ("a!", "#"), ("b", "b")),
    element=STR,
)
"""In which the row of a key can end."""
LOCAL_SCALARS = (*SCALARS, *[LOCAL] * 25)
KINDS = SCALARS + NESTED


def kind_of(annotation: str) -> Kind:
    """Return the first kind of some type."""
    return next(kind for kind in KINDS if kind.annotation == annotation)


def text_of(value: Any) -> str:
    """Return source of a value."""
    match value:
        case enum.Enum():
            return str(value) if type(value) is Color else f"{type(value).__name__}.{value.name}"
        case float() if abs(value) == inf:
            return "inf" if value > 0 else "-inf"
        case tm.Extra():
            return f"tm.Extra({', '.join(f'{name}={text_of(one)}' for name, one in value.items())})"
        case list():
            return f"[{', '.join(map(text_of, value))}]"
    return repr(value)


def exact(value: Any) -> str:
    """Return a text that is equal for the same values only: of one type, one scale, one sign of zero."""
    match value:
        case dict():
            return f"{type(value).__name__} {[(name, exact(value[name])) for name in sorted(value) if name != WRITTEN]}"
        case list() | tuple():
            return f"{type(value).__name__} {[exact(one) for one in value]}"
        case str() if len(value) > 1_000:  # (whose repr takes long)
            return f"str {value}"
    return repr(value)


def namespace() -> dict[str, Any]:
    """Return what the source of models and questions is run in."""
    return {**globals(), "__name__": "model"}
