"""Older versions write beside additions to classes that keep fields from others, whatever the types of their keys."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NewType
from uuid import UUID

import attrs
import msgspec
import pytest

import tablemapper as tm

from ..classes import aggregate, entity
from ..stores import sound_store


class Plain(enum.Enum):
    A = "z"
    B = "a"


class Text(enum.StrEnum):
    A = "z"
    B = "a"


class Number(enum.IntEnum):
    A = 3
    B = 1


Name = NewType("Name", str)


class Place(msgspec.Struct, frozen=True):
    city: str
    kind: Plain


@attrs.frozen
class Size:
    width: int
    kind: Number | None = None


KEYS: dict[str, tuple[Any, Any]] = {
    "Enum": (Plain, Plain.A), "StrEnum": (Text, Text.A), "IntEnum": (Number, Number.A),
    "Literal": (Literal["z", "a"], "a"), "Literal of numbers": (Literal[3, 1], 1), "NewType": (Name, Name("x")),
    "int32": (tm.Int32, 7), "UUID": (UUID, UUID(int=7)), "Decimal": (Decimal, Decimal("1.50")), "float": (float, 0.5),
    "bool": (bool, True), "bytes": (bytes, b"\x00a"), "datetime": (datetime, datetime(2026, 1, 2, 3, tzinfo=UTC)),
    "date": (date, date(2026, 1, 2)), "time": (time, time(1, 2)), "timedelta": (timedelta, timedelta(hours=1)),
}  # fmt: skip
MEASURED: dict[str, tuple[Any, Callable[[Any], Any], Any]] = {
    "count": (int, lambda M: tm.count(of=M), 1),
    "count of some": (int, lambda M: tm.count(of=M, where=M.kind == Plain.A), 1),
    "count by a member": (int, lambda M: tm.count(of=M, where=M.place.at(lambda p: p.kind) == Plain.A), 1),
    "max of an Enum": (Number | None, lambda M: tm.max(M.grade, of=M), Number.A),
    "min of a member": (str | None, lambda M: tm.min(M.place.at(lambda p: p.city), of=M), "Oslo"),
    "sum of a member": (int | None, lambda M: tm.sum(M.size.at(lambda s: s.width), of=M), 4),
}
ADDITIONS = ["field", "field of the source", "index of the source", "index", "index of what is kept", "aggregate"]


def classes(kind: Any, measured: str, addition: str = "") -> list[Any]:
    """Return a class, one that keeps a field from it, and what a newer version adds."""
    own = {"item": str, "x": kind, "kind": Plain, "grade": Number | None, "place": Place, "size": Size}
    more = {"more": int | None} if addition == "field of the source" else {}
    index = {"by_kind": tm.Index(partition="{kind}", row="{x}")} if addition == "index of the source" else {}
    source = entity("Source", "Sources", own | more, tm.Key(partition="{item}"), **index)
    annotation, measure, _ = MEASURED[measured]
    fields = {"x": kind, "note": str | None, "kept": annotation}
    body: dict[str, Any] = {"kept": measure(source), "note": tm.field(default=None)}
    if addition == "field":
        fields["more"] = int | None
        body["more"] = tm.field(default=None)
    elif addition == "index":
        body["by_note"] = tm.Index(partition="{note}", row="{x}")
    elif addition == "index of what is kept":
        body["by_kept"] = tm.Index(partition="{kept}")
    found = [source, entity("Own", "Owns", fields, tm.Key(partition="{x}"), **body)]
    if addition == "aggregate":
        grouped = {"x": (kind, tm.group_by(source.x)), "n": (int, tm.count())}
        found.append(aggregate("Total", source, grouped, tm.Key(partition="{x}"), "Totals"))
    return found


@pytest.mark.parametrize(
    ("kind", "measured", "addition"),
    [
        *((kind, "count", "field") for kind in KEYS if kind != "Enum"),
        *(("IntEnum", "count", addition) for addition in ADDITIONS[1:]),
        *(("Enum", measured, addition) for measured in MEASURED for addition in ADDITIONS),
    ],
)
def test_an_older_version_goes_on_beside_an_addition(path: Path, kind: str, measured: str, addition: str) -> None:
    annotation, value = KEYS[kind]
    source, own = models = classes(annotation, measured)
    newer = classes(annotation, measured, addition)
    with tm.open(path, models=models, durability="relaxed") as old:
        with sound_store(path, models=newer, durability="relaxed") as store:
            written = source("a", x=value, kind=Plain.A, grade=Number.A, place=Place("Oslo", Plain.A), size=Size(4))
            old.insert_many([written, own(x=value)])
            old.merge(own.key(value), note="n")
            assert old[own.key(value)].kept == store[newer[1].key(value)].kept == MEASURED[measured][2]
            assert old.check().ok
        with sound_store(path, models=models, durability="relaxed") as again:
            again.delete(written.key)
            again.upsert(written.replace(item="b"))
            assert again[own.key(value)].kept == MEASURED[measured][2]
