"""Versions of a program in processes of their own: the old one runs, the new one opens, the old one restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ...classes import entity
from ...forks import Forked

SERVICE = """
import json
from typing import Literal
import tablemapper as tm

{models}

with tm.open(path, models=MODELS, timeout=60) as store:
    answer(json.dumps("open"))
    for line in lines:
        verb, *given = json.loads(line)
        try:
            if verb == "insert":
                store.insert(Product(*given))
                found = None
            elif verb == "merge":
                store.merge(Product.key(*given), price=99.0)
                found = None
            elif verb == "replace":
                product = store[Product.key(*given)]
                product.price += 1
                store.replace(product)
                found = product.price
            elif verb == "get":
                found = repr(store[Product.key(*given)])
            elif verb == "eval":
                found = repr(eval(given[0]))
            else:
                found = [str(problem) for problem in store.check().problems]
        except tm.TableMapperError as error:
            found = type(error).__name__ + ": " + str(error)
        answer(json.dumps(found))
"""
OLD = """
class Product(tm.Entity, table="Products"):
    shop: tm.Field[str]
    number: tm.Field[int]
    price: tm.Field[float]
    state: tm.Field[Literal["new", "sold"]] = tm.field(default="new")
    {field}
    key = tm.Key[str, int](partition="{{shop}}", row="{{number}}")
    {index}

{more}
MODELS = [Product{models}]
"""


def version(field: str = "", index: str = "", more: str = "", models: str = "", old: str = OLD) -> str:
    return SERVICE.format(models=old.format(field=field, index=index, more=more, models=models))


class Service:
    """A process that runs one version."""

    def __init__(self, source: str, path: Path) -> None:
        code = compile(source, "<version>", "exec")
        self._process = Forked(
            lambda lines, answer: exec(code, {"path": path, "lines": lines, "answer": answer, "__name__": "version"})
        )
        assert json.loads(self._process.heard()) == "open"
        self.stop = self._process.stop

    def __call__(self, *command: Any) -> Any:
        return json.loads(self._process(json.dumps(command)))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Start a version; all of them are checked and stopped at the end."""
    with ExitStack() as stack:

        def started(source: str) -> Service:
            service = Service(source, tmp_path / "x.db")
            stack.callback(service.stop)
            return service

        yield started


NEW = version(
    field="rank: tm.Field[int] = tm.field(default=3)\n    note: tm.Field[str | None] = tm.field(default=None)",
    index='by_rank = tm.Index[int](partition="{rank}", include=("price",))\n'
    '    dear = tm.Index[float](partition="{price}", where=lambda p: p.price > 50)',
    more='class Total(tm.Aggregate, of=Product, table="Totals"):\n'
    "    shop: tm.Field[str] = tm.group_by(Product.shop)\n"
    "    count: tm.Field[int] = tm.count()\n"
    "    price: tm.Field[float] = tm.sum(Product.price)\n"
    "    most: tm.Field[float | None] = tm.max(Product.price)\n"
    "    ranks: tm.Field[int] = tm.sum(Product.rank)\n"
    '    key = tm.Key[str](partition="{shop}")\n',
    models=", Total",
)


def write(service: Service, first: int) -> None:
    """Write by a version, whichever it is."""
    for number in range(first, first + 3):
        assert service("insert", "a", number, 10.0 * number) is None
    assert service("merge", "a", first) is None
    assert service("replace", "a", first + 1) == 10.0 * (first + 1) + 1


def test_the_old_version_runs_restarts_and_comes_back_beside_the_new_one(start: Any) -> None:
    old = start(version())
    write(old, 0)
    new = start(NEW)
    write(new, 10)
    write(old, 20)
    restarted = start(version())
    write(restarted, 30)
    new.stop()
    write(old, 40)
    again = start(NEW)
    write(again, 50)
    assert again("eval", 'store[Total.key("a")].count') == "18"
    assert again("eval", 'store[Total.key("a")].ranks') == str(18 * 3)
    assert again("eval", "store.query(Product.by_rank(3)).count()") == "18"
    assert again("eval", "store.query(Product.dear(99.0)).count()") == "6"
    for service in (old, restarted, again):
        assert service("check") == []


def test_a_value_that_the_old_version_does_not_know_is_told_in_its_process(start: Any) -> None:
    old = start(version())
    write(old, 0)
    new = start(version(old=OLD.replace('"new", "sold"', '"new", "sold", "lost"')))
    assert new("insert", "b", 1, 1.0, "lost") is None
    restarted = start(version())
    for service in (old, restarted):
        assert "which this version does not know" in service("get", "b", 1)
        assert service("merge", "b", 1) is None  # (of another field)
        write(service, 100 if service is old else 200)
    assert new("check") == []


def test_two_new_versions_that_open_at_once_are_both_taken_over(start: Any) -> None:
    old = start(version())
    write(old, 0)
    one = version(
        field="a: tm.Field[str | None] = tm.field(default=None)", index='by_a = tm.Index[str](partition="{a}")'
    )
    two = version(field="b: tm.Field[int] = tm.field(default=1)", index='by_b = tm.Index[int](partition="{b}")')
    first, second = start(one), start(two)
    write(first, 10)
    write(second, 20)
    write(old, 30)
    assert second("eval", "store.query(Product.by_b(1)).count()") == "12"
    for service in (old, first, second):
        assert service("check") == []


def test_what_is_refused_stops_nobody(start: Any, tmp_path: Path) -> None:
    old = start(version())
    write(old, 0)
    members = {"shop": str, "number": int, "price": str, "state": str}
    Product = entity("Product", "Products", members, tm.Key[str, int](partition="{shop}", row="{number}"))
    with pytest.raises(tm.SchemaMismatch) as caught:
        tm.open(tmp_path / "x.db", models=[Product])
    assert "m.convert(old.Product.price, new.Product.price, str, back=float)" in (caught.value.script or "")
    write(old, 10)
    assert old("check") == []
