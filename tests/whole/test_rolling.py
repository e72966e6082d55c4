"""Each row of the table of rules with two processes: the old version runs, the new one opens, the old one restarts, and
the deployment is rolled back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm

SERVER = """
import json, sys

stores = {}
for line in sys.stdin:
    verb, name, *given = json.loads(line)
    answer = {"ok": None}
    try:
        if verb == "open":
            path, source, folder, scripts = given
            scope = {}
            sys.path.insert(0, folder)
            exec(source, scope)
            scope["store"] = scope["tm"].open(path, models=scope["MODELS"], migrations=scripts, timeout=60, durability="relaxed")
            stores[name] = scope
        elif verb == "close":
            stores.pop(name)["store"].close()
        elif verb == "run":
            exec(given[0], stores[name])
        else:
            answer = {"ok": repr(eval(given[0], stores[name]))}
    except Exception as error:
        answer = {"error": type(error).__name__ + ": " + str(error) + "\\n" + (getattr(error, "script", None) or "")}
    print(json.dumps(answer), flush=True)
"""

PROGRAM = """
import datetime, decimal, enum, uuid
from typing import Literal
import attrs
import tablemapper as tm

{head}

class {name}(tm.Entity{options}):
    shop: tm.Field[str]
    number: tm.Field[int]
    price: tm.Field[float] = tm.field(default=1.5, kw_only=True)
{body}
    key = {key}

Product = {name}
{more}
MODELS = [Product{models}]

def insert(number):
    store.insert(Product("a", number, {given}))

def key(number):
    return Product.key("a", number)
"""


@attrs.frozen
class Version:
    """A version of the program, as what it has beyond the plain one."""

    body: str = ""
    """Of class Product."""
    given: str = ""
    """What each new product is given."""
    head: str = ""
    more: str = ""
    models: str = ""
    options: str = ', table="Products"'
    key: str = 'tm.Key[str, int](partition="{shop}", row="{number}")'
    name: str = "Product"

    def source(self) -> str:
        members = attrs.asdict(self)
        members["body"] = "\n".join(f"    {line}" for line in self.body.splitlines())
        return PROGRAM.format(**members)


class Answer(Exception):
    """What the other process raised."""


class Server:
    """A process that holds stores by name."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, verb: str, name: str, *given: str | None) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([verb, name, *given]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise Answer(answer["error"])
        return answer["ok"]

    def stop(self) -> None:
        self._process.communicate(timeout=60)


class Service:
    """One version in one process, over the store of a test."""

    def __init__(self, server: Server, name: str, path: Path, version: Version, scripts: str | None = None) -> None:
        self._server, self._name, self._path, self._version = server, name, path, version
        self._scripts = str(path.parent), scripts
        self.start()

    def start(self) -> None:
        self._server("open", self._name, str(self._path), self._version.source(), *self._scripts)

    def stop(self) -> None:
        self._server("close", self._name)

    def run(self, text: str) -> None:
        self._server("run", self._name, text)

    def value(self, text: str) -> Any:
        return self._server("value", self._name, text)

    def write(self, first: int) -> None:
        """Write in each way, three entities that stay and one that goes."""
        self.run(f"for number in range({first}, {first} + 4): insert(number)")
        self.run(f"store.merge(key({first}), price=7.5)")
        self.run(f"store.update(key({first} + 1), lambda p: setattr(p, 'price', p.price + 1) or p)")
        self.run(f"one = store[key({first} + 2)]; one.price = 9.0; store.replace(one)")
        self.run(f"store.delete(key({first} + 3))")

    def check(self, count: int) -> None:
        assert self.value("[str(problem) for problem in store.check().problems]") == "[]"
        assert self.value("store.query(Product).allow_scan().count()") == str(count)
        assert self.value("sum(p.price for p in store.query(Product).allow_scan())") == str(
            count / 3 * (7.5 + 2.5 + 9.0)
        )


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    """Two processes, for the old versions and for the new ones."""
    old, new = Server(), Server()
    yield old, new
    old.stop()
    new.stop()


STATE = 'class State(enum.Enum):\n    NEW = "new"\n    SOLD = "sold"'
MORE_STATES = 'class Phase(enum.Enum):\n    SOLD = "sold"\n    PAUSED = "paused"\n    NEW = "new"'
HOME = '@attrs.define\nclass Home:\n    city: str = "Oslo"'
LARGER_HOME = HOME + "\n    floor: int = 0"
BY_PRICE = 'by_price = tm.Index[float](partition="{price}")'
TOTAL = """
class {name}(tm.Aggregate, of=Product, table="Totals"{where}):
    {group}: tm.Field[{type}] = tm.group_by(Product.{group})
    {measures}
    key = tm.Key[{type}](partition="{{{group}}}")
"""


def total(measures: str = "count: tm.Field[int] = tm.count()", **changed: str) -> Version:
    words = {"name": "Total", "where": "", "group": "shop", "type": "str", "measures": measures} | changed
    return Version(more=TOTAL.format(**words), models=f", {words['name']}")


def index(arguments: str, type: str = "[float]") -> Version:
    return Version(f"by_price = tm.Index{type}({arguments})")


FOLLOWED: dict[str, tuple[Version, Version]] = {
    "an optional field is added": (Version(), Version("note: tm.Field[str | None] = tm.field(default=None)")),
    "a field with a default is added": (
        Version(),
        Version("rank: tm.Field[int] = tm.field(default=3)", given="rank=4"),
    ),
    "undeclared properties are added": (
        Version(),
        Version("rest: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)", given="rest=tm.Extra(color='red')"),
    ),
    "a field goes that no row holds": (Version("note: tm.Field[str | None] = tm.field(default=None)"), Version()),
    "an attribute has another name": (
        Version("note: tm.Field[str]", given="note='x'"),
        Version("remark: tm.Field[str] = tm.field(name='note')", given="remark='y'"),
    ),
    "a default changes": (
        Version("rank: tm.Field[int] = tm.field(default=1)"),
        Version("rank: tm.Field[int] = tm.field(default=2)"),
    ),
    "Int32 becomes int": (Version("rank: tm.Field[tm.Int32]", "rank=1"), Version("rank: tm.Field[int]", "rank=2")),
    "required becomes optional": (
        Version("note: tm.Field[str]", given="note='x'"),
        Version("note: tm.Field[str | None]", given="note='y'"),
    ),
    "an enum becomes text": (
        Version("state: tm.Field[State]", given="state=State.NEW", head=STATE),
        Version("state: tm.Field[str]", given="state='sold'"),
    ),
    "a literal becomes text": (
        Version("state: tm.Field[Literal['new', 'sold']]", given="state='new'"),
        Version("state: tm.Field[str]", given="state='sold'"),
    ),
    "a literal gets a member": (
        Version("state: tm.Field[Literal['new']]", given="state='new'"),
        Version("state: tm.Field[Literal['new', 'sold']]", given="state='new'"),
    ),
    "an enum gets a member, a name and an order": (
        Version("state: tm.Field[State]", given="state=State.NEW", head=STATE),
        Version("state: tm.Field[Phase]", given="state=Phase.SOLD", head=MORE_STATES),
    ),
    "a member goes that no row holds": (
        Version("state: tm.Field[Literal['new', 'sold']]", given="state='new'"),
        Version("state: tm.Field[Literal['new']]", given="state='new'"),
    ),
    "a nested class gets a member with a default": (
        Version("home: tm.Field[Home]", given="home=Home('Bergen')", head=HOME),
        Version("home: tm.Field[Home]", given="home=Home('Bergen')", head=LARGER_HOME),
    ),
    "type= is added": (Version(), Version(options=', table="Products", type="product"')),
    "an index is added": (Version(), Version(BY_PRICE)),
    "a unique index is added": (
        Version(),
        Version('by_number = tm.Index[int](partition="{number}", unique=True)'),
    ),
    "an index goes": (Version(BY_PRICE), Version()),
    "an index has another name": (
        Version('by_price = tm.Index[float](partition="{price}", table="ByPrice")'),
        Version('prices = tm.Index[float](partition="{price}", table="ByPrice")'),
    ),
    "an index has another template": (
        index('partition="{price}"'),
        index('partition="{shop}", row="{price}"', "[str, float]"),
    ),
    "an index includes more": (index('partition="{price}"'), index('partition="{price}", include=("shop", "number")')),
    "an index has a condition": (
        index('partition="{price}"'),
        index('partition="{price}", where=lambda p: p.price > 8'),
    ),
    "an index is spread over shards": (
        index('partition="{price}"'),
        index('partition="{price}-{shop:shard(4)}", row="{shop}"', "[float, str]"),
    ),
    "an index folds": (
        index('partition="{shop}"', "[str]"),
        index('partition="{shop:fold}"', "[str]"),
    ),
    "an index has another table": (index('partition="{price}"'), index('partition="{price}", table="Prices"')),
    "an index becomes unique": (
        Version('by_number = tm.Index[int](partition="{number}")'),
        Version('by_number = tm.Index[int](partition="{number}", unique=True)'),
    ),
    "an index is unique no more": (
        Version('by_number = tm.Index[int](partition="{number}", unique=True)'),
        Version('by_number = tm.Index[int](partition="{number}")'),
    ),
    "an aggregate is added": (Version(), total()),
    "an aggregate goes": (total(), Version()),
    "a measure is added": (
        total(),
        total("count: tm.Field[int] = tm.count()\n    most: tm.Field[float | None] = tm.max(Product.price)"),
    ),
    "a measure goes": (
        total("count: tm.Field[int] = tm.count()\n    most: tm.Field[float | None] = tm.max(Product.price)"),
        total(),
    ),
    "a measure changes": (
        total("most: tm.Field[float | None] = tm.max(Product.price)"),
        total("most: tm.Field[float | None] = tm.min(Product.price)"),
    ),
    "an aggregate has a condition": (total(), total(where=", where=lambda p: p.price > 8")),
    "an aggregate has other groups": (total(), total(group="number", type="int")),
    "a class is added": (
        Version(),
        Version(
            more='class Shop(tm.Entity, table="Shops"):\n    name: tm.Field[str]\n    key = tm.Key[str](partition="{name}")',
            models=", Shop",
        ),
    ),
    "a class is opened no more": (
        Version(
            more='class Shop(tm.Entity, table="Shops"):\n    name: tm.Field[str]\n    key = tm.Key[str](partition="{name}")',
            models=", Shop",
        ),
        Version(),
    ),
}


@pytest.mark.parametrize(("old", "new"), FOLLOWED.values(), ids=FOLLOWED)
def test_both_versions_read_and_write_whichever_starts_stops_and_comes_back(
    servers: tuple[Server, Server], tmp_path: Path, old: Version, new: Version
) -> None:
    path = tmp_path / "store.db"
    before = Service(servers[0], "service", path, old)
    before.write(0)
    after = Service(servers[1], "service", path, new)
    after.check(3)
    after.write(10)
    before.write(20)
    before.check(9)
    after.check(9)
    before.stop()
    before.start()  # a crash of the old version while the new one is being deployed
    before.write(30)
    after.write(40)
    after.check(15)
    after.stop()
    before.write(50)
    before.stop()
    before.start()  # rolled back
    before.write(60)
    before.check(21)
    after.start()  # and deployed again
    after.check(21)
    after.write(70)
    before.check(24)
    before.stop()
    after.check(24)
    after.stop()


@attrs.frozen
class Migrated:
    """A change that needs a script."""

    old: Version
    new: Version
    made: str
    """An expression of the new version, and what it gives for the first product."""
    functions: tuple[str, ...] = ()
    """What the script needs of its author."""
    back: bool = True
    goes_on: str = "stops"
    """What the old version does after the switch: ``"writes"``, ``"reads"``, ``"stops"``."""


HALVES = 'class State(enum.Enum):\n    NEW = "n"\n    SOLD = "sold"'
ROOMS = "@attrs.define\nclass Home:\n    rooms: int"
SCRIPTS: dict[str, Migrated] = {
    "a required field is added": Migrated(
        Version(),
        Version("rank: tm.Field[int]", given="rank=5"),
        "store[key(0)].rank == 0",
        ("lambda p: p.number * 2",),
        goes_on="reads",
    ),
    "a field is declared that stood among the undeclared": Migrated(
        Version("more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)", given="more=tm.Extra(color='red')"),
        Version(
            "color: tm.Field[str]\nmore: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)",
            given="color='blue'",
        ),
        "store[key(0)].color == 'red' and not store[key(0)].more",
    ),
    "a field goes that rows hold": Migrated(
        Version("note: tm.Field[str]", given="note='x'"), Version(), "not hasattr(store[key(0)], 'note')", back=False
    ),
    "a field has another name": Migrated(
        Version("maker: tm.Field[str]", given="maker='m'"),
        Version("manufacturer: tm.Field[str]", given="manufacturer='n'"),
        "store[key(0)].manufacturer == 'm'",
        goes_on="writes",
    ),
    "int becomes float": Migrated(
        Version("rank: tm.Field[int]", given="rank=3"),
        Version("rank: tm.Field[float]", given="rank=2.5"),
        "repr(store[key(0)].rank) == '3.0'",
        back=False,
    ),
    "int becomes Decimal": Migrated(
        Version("rank: tm.Field[int]", given="rank=3"),
        Version("rank: tm.Field[decimal.Decimal]", given="rank=decimal.Decimal(2)"),
        "repr(store[key(0)].rank) == \"Decimal('3')\"",
        back=False,
    ),
    "date becomes datetime": Migrated(
        Version("day: tm.Field[datetime.date]", given="day=datetime.date(2026, 1, 2)"),
        Version("day: tm.Field[datetime.datetime]", given="day=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)"),
        "store[key(0)].day == datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)",
        back=False,
    ),
    "text becomes a UUID": Migrated(
        Version("id: tm.Field[str]", given="id=str(uuid.UUID(int=number))"),
        Version("id: tm.Field[uuid.UUID]", given="id=uuid.UUID(int=number)"),
        "store[key(1)].id == uuid.UUID(int=1)",
        goes_on="reads",
    ),
    "a number is to be smaller": Migrated(
        Version("rank: tm.Field[int]", given="rank=2**40"),
        Version("rank: tm.Field[tm.Int32]", given="rank=2"),
        "store[key(0)].rank == 1024",
        ("lambda rank: rank >> 30",),
        back=False,
    ),
    "a number becomes text": Migrated(
        Version("rank: tm.Field[int]", given="rank=3"),
        Version("rank: tm.Field[str]", given="rank='2'"),
        "store[key(0)].rank == '3'",
        goes_on="reads",
    ),
    "text becomes a number, by a function": Migrated(
        Version("rank: tm.Field[str]", given="rank='seven'"),
        Version("rank: tm.Field[int]", given="rank=2"),
        "store[key(0)].rank == 5",
        ("len",),
        back=False,
    ),
    "optional becomes required": Migrated(
        Version("note: tm.Field[str | None] = tm.field(default=None)"),
        Version("note: tm.Field[str]", given="note='x'"),
        "store[key(0)].note == 'none'",
        ("lambda p: 'none'",),
        goes_on="reads",
    ),
    "optional becomes required, with a default": Migrated(
        Version("rank: tm.Field[int | None] = tm.field(default=None)"),
        Version("rank: tm.Field[int] = tm.field(default=3)", given="rank=4"),
        "store[key(0)].rank == 3",
        goes_on="reads",
    ),
    "a member goes that rows hold": Migrated(
        Version("state: tm.Field[Literal['new', 'sold', 'lost']]", given="state=('new', 'sold', 'lost')[number % 3]"),
        Version("state: tm.Field[Literal['new', 'sold']]", given="state='new'"),
        "[p.state for p in store.query(Product).where(Product.shop == 'a').limit(3)] == ['new', 'sold', 'sold']",
        ("{'lost': 'sold'}",),
        back=False,
    ),
    "a member of an enum has another value": Migrated(
        Version("state: tm.Field[State]", given="state=State.NEW", head=STATE),
        Version("state: tm.Field[State]", given="state=State.NEW", head=HALVES),
        "store[key(0)].state is State.NEW",
        ("lambda state: state[0]",),
        back=False,
    ),
    "a nested class is another one": Migrated(
        Version("home: tm.Field[Home]", given="home=Home('Bergen')", head=HOME),
        Version("home: tm.Field[Home]", given="home=Home(3)", head=ROOMS),
        "store[key(0)].home == Home(6)",
        ("lambda home: new_types.Home(len(home.city))",),
        back=False,
    ),
    "the key has other slots": Migrated(
        Version(),
        Version(key='tm.Key[str, int](partition="{shop:shard(4)}", row="{shop}-{number}")'),
        "store.query(Product).where(Product.shop == 'a', Product.number == 0).one().price == 7.5",
        goes_on="writes",
    ),
    "the key is spread over more shards": Migrated(
        Version(key='tm.Key[str, int](partition="{shop:shard(8)}", row="{shop}-{number}")'),
        Version(key='tm.Key[str, int](partition="{shop:shard(16)}", row="{shop}-{number}")'),
        "store[key(0)].price == 7.5",
        goes_on="writes",
    ),
    "the key runs the other way": Migrated(
        Version(),
        Version(key='tm.Key[str, int](partition="{shop}", row="{number:desc}")'),
        "store[key(0)].price == 7.5",
        goes_on="writes",
    ),
    "the key folds a field": Migrated(
        Version(),
        Version(key='tm.Key[str, int](partition="{shop:fold}", row="{number}")'),
        "store[key(0)].price == 7.5",
    ),
    "a field of the key is stored, too": Migrated(
        Version(),
        Version("number: tm.Field[int] = tm.field(stored=True)"),
        "store[key(0)].price == 7.5",
        goes_on="writes",
    ),
    "a field of the key is not stored any more": Migrated(
        Version("number: tm.Field[int] = tm.field(stored=True)"),
        Version(),
        "store[key(0)].price == 7.5",
        goes_on="writes",
    ),
    "type= is another one": Migrated(
        Version(options=', table="Products", type="product"'),
        Version(options=', table="Products", type="item"'),
        "store[key(0)].price == 7.5",
        goes_on="writes",
    ),
    "the table has another name": Migrated(
        Version(), Version(options=', table="Goods"'), "store[key(0)].price == 7.5", goes_on="writes"
    ),
    "the class has another name": Migrated(
        Version(), Version(name="Ware"), "store[key(0)].price == 7.5", goes_on="writes"
    ),
    "an aggregate has another name": Migrated(
        total(), total(name="Sums"), "store[Sums.key('a')].count == 6", goes_on="writes"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCRIPTS.values(), ids=SCRIPTS)
def test_the_script_in_the_message_does_what_it_says(
    servers: tuple[Server, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Migrated
) -> None:
    path = tmp_path / "store.db"
    before = Service(servers[0], "service", path, case.old)
    before.write(0)
    with pytest.raises(Answer, match=r"^SchemaMismatch: \w+: [\s\S]*This needs a migration") as refused:
        Service(servers[1], "service", path, case.new)
    before.write(10)
    name = f"changes_{abs(hash(tmp_path))}"
    migrations = _package(tmp_path, name, monkeypatch, str(refused.value), case.functions)
    report = tm.migrate(path, migrations, durability="relaxed", hold=1, rest=0)
    assert report.ok
    assert report.applied == migrations.ids
    after = Service(servers[1], "service", path, case.new, name)
    assert after.value(case.made) == "True"
    after.check(6)
    after.write(20)
    assert {step.old_version for step in report.plan} == {case.goes_on}
    if case.goes_on == "writes":
        before.write(30)
        before.check(12)
        before.stop()
        before.start()
        before.run("for number in (30, 31, 32): store.delete(key(number))")
        before.stop()
    else:
        with pytest.raises(Answer, match=migrations.ids[0]):
            before.write(30)
        before.stop()
        if case.goes_on == "reads":
            before.start()
            before.check(9)
            before.stop()
        else:
            with pytest.raises(Answer, match=migrations.ids[0]):
                before.start()
    after.check(9)
    after.stop()
    if not case.back:  # it cannot be undone; or what the new version inserted has no value of the field that goes
        with pytest.raises((tm.InvalidMigration, tm.MigrationStopped), match=migrations.ids[0]):
            tm.migrate(path, migrations, to="")
    else:
        tm.migrate(path, migrations, to="", durability="relaxed", hold=1, rest=0)
        before.start()
        before.check(9)
        before.write(30)
        before.stop()
        tm.migrate(path, migrations, durability="relaxed", hold=1, rest=0)
    after.start()
    after.check(9 + 3 * case.back)
    after.stop()


def _package(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, message: str, functions: tuple[str, ...]
) -> tm.Migrations:
    """Write the script of a message into a package, with what its author has to say."""
    script = message[message.index('"""') :]
    assert script.count("...") == len(functions), script
    for function in functions:
        script = script.replace("...", function, 1)
    package = folder / name
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "0001_product.py").write_text(script)
    monkeypatch.syspath_prepend(folder)
    return tm.Migrations(package.name)
