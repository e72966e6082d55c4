"""What `explain` says over a file that a query costs is what an account is sent: a service of dicts, and the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tablemapper as tm
from tablemapper import codegen
from tablemapper.engines.azure.engine import AzureEngine
from tablemapper.engines.azure.tables.accounts import account_of
from tablemapper.engines.azure.tables.reserved_names import CATALOGUE
from tablemapper.engines.azure.tables.wire import Wire
from tablemapper.schema import maintenance
from tablemapper.schema.model import compile_schema

from .memory import Memory
from .place import AzurePlace
from .test_engine import Counting, Kind, Part

DAY = datetime(2026, 1, 1, tzinfo=UTC)


class Point(tm.Entity, table="Points"):
    device: tm.Field[str]
    at: tm.Field[datetime]
    value: tm.Field[int] = tm.field(default=0)
    state: tm.Field[str] = tm.field(default="")

    key = tm.Key[str, datetime](partition=("{device}", "{at:%Y-%m-%d}"), row="{at}")
    by_value = tm.Index[int](partition="{device:shard(4)}", row="{value}")
    by_state = tm.Index[str, int](partition="{state}", row="{value}", include=("value",))


MODELS = [Part, Kind, Point]
PARTS = [Part("b", n, f"n{n % 3}", 1.0, f"c{n}", ["x"] * (n < 4)) for n in range(10)]
PARTS += [Part("a", n) for n in range(1_100)]
POINTS = [Point(f"d{n % 3}", DAY + timedelta(hours=7 * n), n % 5, "on" if n % 4 else "off") for n in range(40)]
ASKED: dict[str, Callable[[tm.Store], Any]] = {
    "a whole key": lambda s: s.query(Part).where(Part.kind == "a", Part.number == 3),
    "a partition": lambda s: s.query(Part).where(Part.kind == "a"),
    "a partition, filtered": lambda s: s.query(Part).where(Part.kind == "b", Part.weight == 1.0),
    "an empty partition": lambda s: s.query(Part).where(Part.kind == "none"),
    "several partitions": lambda s: s.query(Part).where(Part.kind.is_in(["a", "b", "none"])),
    "a range of rows": lambda s: s.query(Part).where(Part.kind == "a", Part.number >= 10, Part.number < 1_050),
    "a unique index": lambda s: s.query(Part).where(Part.kind == "b", Part.code == "c7"),
    "an index over a list": lambda s: s.query(Part).where(Part.kind == "b", Part.tags.contains("x")),
    "an index that covers": lambda s: s.query(Part).where(Part.kind == "b", Part.name == "n1").select(Part.weight),
    "a named index": lambda s: s.query(Part.by_name("b", "n1")),
    "a prefix": lambda s: s.query(Part).where(Part.kind == "b", Part.name.startswith("n")),
    "a limit": lambda s: s.query(Part).where(Part.kind == "a").limit(5),
    "a limit on an index": lambda s: s.query(Part).where(Part.kind == "b", Part.tags.contains("x")).limit(2),
    "a scan": lambda s: s.query(Part).allow_scan(),
    "a scan, filtered": lambda s: s.query(Part).where(Part.weight == 1.0).allow_scan(),
    "days": lambda s: s.query(Point).where(Point.device == "d1", Point.at >= DAY, Point.at < DAY + timedelta(days=4)),
    "shards": lambda s: s.query(Point.by_value()).order_by(Point.value),
    "shards of one value": lambda s: s.query(Point).where(Point.value == 3),
    "an index elsewhere": lambda s: s.query(Point).where(Point.state == "off"),
    "an index that can filter": lambda s: s.query(Point).where(Point.state == "on", Point.value == 1),
    "an index elsewhere that covers": lambda s: s.query(Point).where(Point.state == "on").select(Point.value),
    "an index elsewhere that may be older": lambda s: (
        s.query(Point).where(Point.state == "on").select(Point.value).allow_eventual()
    ),
    "a sort": lambda s: s.query(Part).where(Part.kind == "a").order_by(Part.weight).allow_sort(),
    "backwards": lambda s: s.query(Part).where(Part.kind == "b").order_by(Part.number.desc()).allow_sort(),
    "groups": lambda s: s.query(Kind).where(Kind.kind == "a"),
    "all groups": lambda s: s.query(Kind).allow_scan(),
}  # fmt: skip


def filled(store: tm.Store) -> tm.Store:
    store.insert_many(Part(one.kind, one.number, one.name, one.weight, one.code, one.tags) for one in PARTS)
    store.insert_many(Point(one.device, one.at, one.value, one.state) for one in POINTS)
    return store


@pytest.fixture(scope="module")
def local() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=MODELS) as store:
        yield filled(store)


@pytest.fixture(scope="module", params=["dicts", pytest.param("emulator", marks=pytest.mark.one_python)])
def account(request: pytest.FixtureRequest) -> Iterator[tuple[tm.Store, Counting]]:
    """A store of an account, and what counts what is sent."""
    wire: Any = Memory()
    if request.param == "emulator":
        wire = Wire(account_of(request.getfixturevalue("azurite").connection()))
    service = Counting(wire)
    with tm.Store(AzureEngine.open(service, "here", compile_schema(MODELS))) as store:
        yield filled(store), service
    wire.close()


def sent(service: Counting) -> list[Any]:
    """Return what was sent, but for a look at the catalogue, which comes from time to time."""
    return [one for one in service.sent if one.table != CATALOGUE]


@pytest.mark.parametrize("kind", ASKED)
def test_a_query_sends_as_many_requests_as_explain_says(
    kind: str, account: tuple[tm.Store, Counting], local: tm.Store, caplog: pytest.LogCaptureFixture
) -> None:
    store, service = account
    ask = ASKED[kind]
    service.sent.clear()
    there = ask(store).explain().cost
    assert sent(service) == []  # (counting would cost as much as the query)
    found = list(ask(store))
    assert len(found) == len(list(ask(local)))
    here = ask(local).explain().cost
    assert not here.at_least
    if there.at_least:  # (no number stands for what is not known)
        assert (there.entities, there.bytes) == (None, None)
        assert "not counted" in str(there)
    if "filtered" in kind:  # (what the service filters fills fewer pages)
        refused = (
            2 if any("500" in text for text in caplog.messages) else 0
        )  # (the emulator knows no numbers of several types)
        assert 1 <= len(sent(service)) - refused <= here.requests
    else:
        assert here.requests == len(sent(service)), service.sent
    assert there.requests <= here.requests
    assert there.at_least or there.requests == here.requests


def test_a_write_compiles_nothing_that_one_like_it_has_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    store = tm.open(AzurePlace(memory=Memory()), models=MODELS)  # type: ignore[arg-type]
    labels = list[str]()

    def compiled(label: str, *arguments: Any) -> Any:
        labels.append(label)
        return codegen.compile_functions(label, *arguments)

    monkeypatch.setattr(maintenance, "compile_functions", compiled)
    for number in range(2):
        labels.clear()
        store.insert(Part("a", number, "x", 1.0, f"c{number}", ["x"]))
        store.merge(Part.key("a", number), name="y")
        store.delete(Part.key("a", number))
        store.insert(Point("d", DAY, number, "on"))
        store.delete(Point.key("d", DAY))
    assert labels == []
