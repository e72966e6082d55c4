"""The rows of the table of rules that are of whole classes, with two processes: split, joined, carved out, renamed, dropped."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

import tablemapper as tm

from .test_rolling import BY_PRICE, Answer, Server, Service, Version, servers, total

__all__ = ["servers"]  # a fixture
STOCK = """
class Stock(tm.Entity, table="Stocks"):
    shop: tm.Field[str]
    number: tm.Field[int]
    pieces: tm.Field[int]
    key = tm.Key[str, int](partition="{shop}", row="{number}")
"""
NOTE = STOCK.replace("Stock", "Note").replace("pieces: tm.Field[int]", "text: tm.Field[str]")
FIRST = """
class First(tm.Entity, table="Products"):
    shop: tm.Field[str]
    price: tm.Field[float]
    key = tm.Key[str](partition="{shop}", row="a1")
"""
SCRIPT = """
import tablemapper as tm

def old_classes():
{old}
    return type("old", (), locals())

def new_classes():
{new}
    return type("new", (), locals())

old, new = old_classes(), new_classes()

@tm.migration(after=None, old=[{old_names}], new=[{new_names}])
def migrate(m):
    {step}
"""
PRODUCT = """
class Product(tm.Entity, table="Products"):
    shop: tm.Field[str]
    number: tm.Field[int]
    price: tm.Field[float] = tm.field(default=1.5, kw_only=True)
    {field}
    key = tm.Key[str, int](partition="{{shop}}", row="{{number}}")
"""


@attrs.frozen
class Reshaped:
    """Classes that become others by a function, with the script for that."""

    old: Version
    new: Version
    field: str
    """Of the old class; another one of the new class."""
    new_field: str
    others: tuple[str, str]
    """The classes beside it, old and new."""
    step: str
    made: str
    """What is true of the new version: of the products 0, 1, 2, of which all but 1 have a stock."""

    def script(self) -> str:
        texts, names = [], []
        for field, other, side in ((self.field, self.others[0], "old"), (self.new_field, self.others[1], "new")):
            text = PRODUCT.format(field=field) + other
            texts.append("\n".join(f"    {line}" for line in text.splitlines()))
            names.append(
                ", ".join(
                    f"{side}.{line.split()[1].split('(')[0]}" for line in text.splitlines() if line.startswith("class ")
                )
            )
        return SCRIPT.format(old=texts[0], new=texts[1], old_names=names[0], new_names=names[1], step=self.step)


CASES = {
    "split": Reshaped(
        Version("note: tm.Field[str]", given="note=f'n{number}'"),
        Version(more=NOTE, models=", Note"),
        "note: tm.Field[str]", "", ("", NOTE),
        "m.rewrite(old.Product, lambda p: (new.Product(p.shop, p.number, price=p.price), new.Note(p.shop, p.number, p.note)), "
        "into=(new.Product, new.Note))",
        "[(n.number, n.text) for n in store.query(Note).where(Note.shop == 'a')] == [(n, f'n{n}') for n in (0, 1, 2, 10, 11, 12)]",
    ),
    "joined": Reshaped(
        Version(more=STOCK, models=", Stock"),
        Version("pieces: tm.Field[int]", given="pieces=number"),
        "", "pieces: tm.Field[int]", (STOCK, ""),
        "m.join(old.Product, old.Stock, lambda p, s: None if p is None else "
        "new.Product(p.shop, p.number, price=p.price, pieces=-1 if s is None else s.pieces), into=[new.Product])",
        "[p.pieces for p in store.query(Product).where(Product.shop == 'a')] == [7, -1, 7, -1, -1, -1]",
    ),
}  # fmt: skip


def package(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"classes_{abs(hash(folder))}"
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    (folder / name / "0001_classes.py").write_text(script)
    monkeypatch.syspath_prepend(folder)
    return name


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_classes_that_are_split_or_joined(
    servers: tuple[Server, Server], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Reshaped
) -> None:
    before = Service(servers[0], "service", path, case.old)
    before.write(0)
    if "Stock" in case.others[0]:
        before.run("for n in (0, 2): store.insert(Stock('a', n, 7))")
    with pytest.raises(Answer, match=r"^SchemaMismatch: Product: [\s\S]*This needs a migration"):
        Service(servers[1], "service", path, case.new)
    name = package(tmp_path, case.script(), monkeypatch)
    assert not tm.migrate(path, name, durability="relaxed", limit=2).done
    before.write(10)  # while it is copied
    with pytest.raises(Answer, match="0001_classes is under way"):
        Service(servers[1], "service", path, case.new)
    before.stop()
    before.start()
    before.check(6)
    assert tm.migrate(path, name, durability="relaxed", rest=0).ok
    after = Service(servers[1], "service", path, case.new, name)
    assert after.value(case.made) == "True"
    after.check(6)
    after.write(20)
    for use in (lambda: before.write(30), lambda: before.check(6)):
        with pytest.raises(Answer, match="0001_classes replaced this form"):
            use()
    before.stop()
    with pytest.raises(Answer, match="0001_classes replaced this form"):
        before.start()  # rolled back
    with pytest.raises(tm.InvalidMigration, match="0001_classes: it cannot be undone"):
        tm.migrate(path, name, to="")
    after.check(9)
    after.stop()


def test_a_class_that_is_carved_out_of_another(
    servers: tuple[Server, Server], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Service(servers[0], "service", path, Version())
    before.write(0)
    new = Version(more=FIRST, models=", First")
    with pytest.raises(Answer, match=r"a row of Product has a key of First, as \('a', 'a1'\)") as refused:
        Service(servers[1], "service", path, new)
    before.write(10)
    message = str(refused.value)
    script = message[message.index('"""') :]
    assert script.count("...") == 1
    name = package(
        tmp_path,
        script.replace(
            "...", "lambda p: new.First(p.shop, p.price) if p.number == 1 else new.Product(p.shop, p.number, price=p.price)"
        ),
        monkeypatch,
    )  # fmt: skip
    assert tm.migrate(path, name, durability="relaxed", rest=0).ok
    after = Service(servers[1], "service", path, new, name)
    assert after.value("store[First.key('a')].price") == "2.5"
    assert after.value("[p.number for p in store.query(Product).where(Product.shop == 'a')]") == "[0, 2, 10, 11, 12]"
    after.run("store.insert(First('b', 3.0))")
    for _ in range(2):  # the old version goes on, but for the keys of a class that it does not know
        with pytest.raises(Answer, match="this key belongs to First"):
            before.run("insert(1)")
        assert before.value("store.get(key(1))") == "None"
        before.run("insert(3)")
        before.run("store.delete(key(3))")
        before.stop()
        before.start()
    assert after.value("store.check().ok") == "True"
    before.stop()
    after.stop()


def test_a_class_that_looks_like_one_that_is_not_opened_is_told_and_stops_nobody(
    servers: tuple[Server, Server], path: Path
) -> None:
    before = Service(servers[0], "service", path, Version())
    before.write(0)
    head = "import logging\nlines = []\n"
    head += "logging.getLogger('tablemapper').addHandler(type('Kept', (logging.Handler,), "
    head += "{'emit': lambda self, record: lines.append(record.getMessage())})())"
    after = Service(servers[1], "service", path, Version(name="Article", options=', table="Articles"', head=head))
    assert "m.rename_class(old.Product, new.Article)" in after.value("lines")
    after.write(0)
    before.write(10)
    after.check(3)
    before.check(6)
    before.stop()
    before.start()
    before.write(20)
    before.check(9)
    before.stop()
    after.stop()


def test_a_class_that_holds_nothing_may_become_anything(servers: tuple[Server, Server], path: Path) -> None:
    before = Service(servers[0], "service", path, Version("note: tm.Field[str]", given="note='x'"))
    other = Version(
        "rank: tm.Field[int]", given="rank=1", key='tm.Key[str, int](partition="{shop}", row="{number:desc}")'
    )
    after = Service(servers[1], "service", path, other)
    after.write(0)
    with pytest.raises(Answer, match="was declared again on .*, when it held no entities"):
        before.write(10)
    before.stop()
    with pytest.raises(Answer, match="was declared again"):
        before.start()
    after.check(3)
    after.stop()


@pytest.mark.parametrize(
    ("more", "drop", "refused", "again"),
    [
        (Version(BY_PRICE), "m.drop(old.Product.by_price)", "by_price was dropped by 0001_classes",
         Version('by_price = tm.Index[float](partition="{price}", include=("shop",))')),
        (total(), "m.drop(old.Total)", "Total was dropped by 0001_classes|0001_classes replaced this form", total("most: tm.Field[float | None] = tm.max(Product.price)")),
        (Version("note: tm.Field[str]", given="note='x'"), "m.drop(old.Product.note)", "0001_classes replaced this form", None),
    ],
    ids=["index", "aggregate", "field"],
)  # fmt: skip
def test_what_a_migration_dropped_is_refused_to_those_who_declare_it_and_may_come_back_as_something_else(
    servers: tuple[Server, Server], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    more: Version, drop: str, refused: str, again: Version | None,
) -> None:  # fmt: skip
    before = Service(servers[0], "service", path, more)
    before.write(0)
    old = PRODUCT.format(field=more.body) + more.more
    text = SCRIPT.format(
        old="\n".join(f"    {line}" for line in old.splitlines()), new="\n".join(f"    {line}" for line in PRODUCT.format(field="").splitlines()),
        old_names="old.Product" + (", old.Total" if more.more else ""), new_names="new.Product", step=drop,
    )  # fmt: skip
    name = package(tmp_path, text, monkeypatch)
    after = None if more.given else Service(servers[1], "service", path, Version())
    assert tm.migrate(path, name, durability="relaxed", rest=0).ok
    assert tm.migrate(path, name, durability="relaxed", contract=True).ok
    after = after or Service(servers[1], "service", path, Version(), name)
    after.write(10)
    use = "store[Total.key('a')]" if more.more else "insert(20)"
    for attempt in (lambda: before.value(use), before.start):
        with pytest.raises(Answer, match=refused):
            attempt()
    after.check(6)
    if again is not None:
        newest = Service(servers[0], "newest", path, again)
        newest.write(30)
        newest.check(9)
        newest.stop()
    after.check(6 if again is None else 9)
    after.stop()
    before.stop()
