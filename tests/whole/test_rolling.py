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


def field(declared: str, value: str = "", options: str = "", head: str = "") -> Version:
    """Return a version with one more field, as ``name: type``, and what each new product has in it."""
    name, _, kind = declared.partition(": ")
    body = f"{name}: tm.Field[{kind}]" + (f" = tm.field({options})" if options else "")
    return Version(body, f"{name}={value}" if value else "", head)


def key(arguments: str) -> Version:
    return Version(key=f"tm.Key[str, int]({arguments})")


PLAIN = Version()
NOTE, MAYBE_NOTE = field("note: str", "'x'"), field("note: str | None", options="default=None")
RANK, TEXT_STATE = field("rank: int", "3"), field("state: str", "'sold'")
OF_STATES, NEW_OR_SOLD = field("state: State", "State.NEW", head=STATE), field("state: Literal['new', 'sold']", "'new'")
WITH_HOME = field("home: Home", "Home('Bergen')", head=HOME)
WITH_INDEX = Version(BY_PRICE)
BY_NUMBER = Version('by_number = tm.Index[int](partition="{number}")')
UNIQUE = Version('by_number = tm.Index[int](partition="{number}", unique=True)')
STORED_NUMBER = field("number: int", options="stored=True")
TYPED = Version(options=', table="Products", type="product"')
MOST = "most: tm.Field[float | None] = tm.max(Product.price)"
TWO_MEASURES = total(f"count: tm.Field[int] = tm.count()\n    {MOST}")
SHOP = 'class Shop(tm.Entity, table="Shops"):\n    name: tm.Field[str]\n    key = tm.Key[str](partition="{name}")'
TWO_CLASSES = Version(more=SHOP, models=", Shop")
FOLLOWED: dict[str, tuple[Version, Version]] = {
    "an optional field is added": (PLAIN, MAYBE_NOTE),
    "a field with a default is added": (PLAIN, field("rank: int", "4", "default=3")),
    "undeclared properties are added": (PLAIN, field("rest: tm.Extra", "tm.Extra(color='red')", "factory=tm.Extra")),
    "a field goes that no row holds": (MAYBE_NOTE, PLAIN),
    "an attribute has another name": (NOTE, field("remark: str", "'y'", "name='note'")),
    "a default changes": (field("rank: int", options="default=1"), field("rank: int", options="default=2")),
    "Int32 becomes int": (field("rank: tm.Int32", "1"), field("rank: int", "2")),
    "required becomes optional": (NOTE, field("note: str | None", "'y'")),
    "an enum becomes text": (OF_STATES, TEXT_STATE),
    "a literal becomes text": (NEW_OR_SOLD, TEXT_STATE),
    "a literal gets a member": (field("state: Literal['new']", "'new'"), NEW_OR_SOLD),
    "an enum gets a member, a name and an order": (OF_STATES, field("state: Phase", "Phase.SOLD", head=MORE_STATES)),
    "a member goes that no row holds": (NEW_OR_SOLD, field("state: Literal['new']", "'new'")),
    "a nested class gets a member with a default": (WITH_HOME, attrs.evolve(WITH_HOME, head=LARGER_HOME)),
    "type= is added": (PLAIN, TYPED),
    "an index is added": (PLAIN, WITH_INDEX),
    "a unique index is added": (PLAIN, UNIQUE),
    "an index goes": (WITH_INDEX, PLAIN),
    "an index has another name": (
        Version('by_price = tm.Index[float](partition="{price}", table="ByPrice")'),
        Version('prices = tm.Index[float](partition="{price}", table="ByPrice")'),
    ),
    "an index has another template": (WITH_INDEX, index('partition="{shop}", row="{price}"', "[str, float]")),
    "an index includes more": (WITH_INDEX, index('partition="{price}", include=("shop", "number")')),
    "an index has a condition": (WITH_INDEX, index('partition="{price}", where=lambda p: p.price > 8')),
    "an index is spread over shards": (
        WITH_INDEX,
        index('partition="{price}-{shop:shard(4)}", row="{shop}"', "[float, str]"),
    ),
    "an index folds": (index('partition="{shop}"', "[str]"), index('partition="{shop:fold}"', "[str]")),
    "an index has another table": (WITH_INDEX, index('partition="{price}", table="Prices"')),
    "an index becomes unique": (BY_NUMBER, UNIQUE), "an index is unique no more": (UNIQUE, BY_NUMBER),
    "an aggregate is added": (PLAIN, total()), "an aggregate goes": (total(), PLAIN),
    "a measure is added": (total(), TWO_MEASURES), "a measure goes": (TWO_MEASURES, total()),
    "a measure changes": (total(MOST), total(MOST.replace("max", "min"))),
    "an aggregate has a condition": (total(), total(where=", where=lambda p: p.price > 8")),
    "an aggregate has other groups": (total(), total(group="number", type="int")),
    "a class is added": (PLAIN, TWO_CLASSES), "a class is opened no more": (TWO_CLASSES, PLAIN),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), FOLLOWED.values(), ids=FOLLOWED)
def test_both_versions_read_and_write_whichever_starts_stops_and_comes_back(
    servers: tuple[Server, Server], path: Path, old: Version, new: Version
) -> None:
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
IS_KEPT = "store[key(0)].price == 7.5"
SCRIPTS: dict[str, Migrated] = {
    "a required field is added": Migrated(
        PLAIN, field("rank: int", "5"), "store[key(0)].rank == 0", ("lambda p: p.number * 2",), goes_on="reads"
    ),
    "a field is declared that stood among the undeclared": Migrated(
        field("more: tm.Extra", "tm.Extra(color='red')", "factory=tm.Extra"),
        Version("color: tm.Field[str]\nmore: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)", given="color='blue'"),
        "store[key(0)].color == 'red' and not store[key(0)].more",
    ),
    "a field goes that rows hold": Migrated(NOTE, PLAIN, "not hasattr(store[key(0)], 'note')", back=False),
    "a field has another name": Migrated(
        field("maker: str", "'m'"),
        field("manufacturer: str", "'n'"),
        "store[key(0)].manufacturer == 'm'",
        goes_on="writes",
    ),
    "int becomes float": Migrated(RANK, field("rank: float", "2.5"), "repr(store[key(0)].rank) == '3.0'", back=False),
    "int becomes Decimal": Migrated(
        RANK,
        field("rank: decimal.Decimal", "decimal.Decimal(2)"),
        "repr(store[key(0)].rank) == \"Decimal('3')\"",
        back=False,
    ),
    "date becomes datetime": Migrated(
        field("day: datetime.date", "datetime.date(2026, 1, 2)"),
        field("day: datetime.datetime", "datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)"),
        "store[key(0)].day == datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)",
        back=False,
    ),
    "text becomes a UUID": Migrated(
        field("id: str", "str(uuid.UUID(int=number))"),
        field("id: uuid.UUID", "uuid.UUID(int=number)"),
        "store[key(1)].id == uuid.UUID(int=1)",
        goes_on="reads",
    ),
    "a number is to be smaller": Migrated(
        field("rank: int", "2**40"),
        field("rank: tm.Int32", "2"),
        "store[key(0)].rank == 1024",
        ("lambda rank: rank >> 30",),
        back=False,
    ),
    "a number becomes text": Migrated(RANK, field("rank: str", "'2'"), "store[key(0)].rank == '3'", goes_on="reads"),
    "text becomes a number, by a function": Migrated(
        field("rank: str", "'seven'"), field("rank: int", "2"), "store[key(0)].rank == 5", ("len",), back=False
    ),
    "optional becomes required": Migrated(
        MAYBE_NOTE, NOTE, "store[key(0)].note == 'none'", ("lambda p: 'none'",), goes_on="reads"
    ),
    "optional becomes required, with a default": Migrated(
        field("rank: int | None", options="default=None"),
        field("rank: int", "4", "default=3"),
        "store[key(0)].rank == 3",
        goes_on="reads",
    ),
    "a member goes that rows hold": Migrated(
        field("state: Literal['new', 'sold', 'lost']", "('new', 'sold', 'lost')[number % 3]"),
        NEW_OR_SOLD,
        "[p.state for p in store.query(Product).where(Product.shop == 'a').limit(3)] == ['new', 'sold', 'sold']",
        ("{'lost': 'sold'}",),
        back=False,
    ),
    "a member of an enum has another value": Migrated(
        OF_STATES,
        attrs.evolve(OF_STATES, head=HALVES),
        "store[key(0)].state is State.NEW",
        ("lambda state: state[0]",),
        back=False,
    ),
    "a nested class is another one": Migrated(
        WITH_HOME,
        field("home: Home", "Home(3)", head=ROOMS),
        "store[key(0)].home == Home(6)",
        ("lambda home: new_types.Home(len(home.city))",),
        back=False,
    ),
    "the key has other slots": Migrated(
        PLAIN,
        key('partition="{shop:shard(4)}", row="{shop}-{number}"'),
        "store.query(Product).where(Product.shop == 'a', Product.number == 0).one().price == 7.5",
        goes_on="writes",
    ),
    "the key is spread over more shards": Migrated(
        key('partition="{shop:shard(8)}", row="{shop}-{number}"'),
        key('partition="{shop:shard(16)}", row="{shop}-{number}"'),
        IS_KEPT,
        goes_on="writes",
    ),
    "the key runs the other way": Migrated(
        PLAIN, key('partition="{shop}", row="{number:desc}"'), IS_KEPT, goes_on="writes"
    ),
    "the key folds a field": Migrated(PLAIN, key('partition="{shop:fold}", row="{number}"'), IS_KEPT),
    "a field of the key is stored, too": Migrated(PLAIN, STORED_NUMBER, IS_KEPT, goes_on="writes"),
    "a field of the key is not stored any more": Migrated(STORED_NUMBER, PLAIN, IS_KEPT, goes_on="writes"),
    "type= is another one": Migrated(
        TYPED, Version(options=', table="Products", type="item"'), IS_KEPT, goes_on="writes"
    ),
    "the table has another name": Migrated(PLAIN, Version(options=', table="Goods"'), IS_KEPT, goes_on="writes"),
    "the class has another name": Migrated(PLAIN, Version(name="Ware"), IS_KEPT, goes_on="writes"),
    "an aggregate has another name": Migrated(
        total(), total(name="Sums"), "store[Sums.key('a')].count == 6", goes_on="writes"
    ),
}


@pytest.mark.parametrize("case", SCRIPTS.values(), ids=SCRIPTS)
def test_the_script_in_the_message_does_what_it_says(
    servers: tuple[Server, Server], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Migrated
) -> None:
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
