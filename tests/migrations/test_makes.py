"""What `migrations make` writes runs: it was tried before it was stored, and schema.json says which script it belongs to."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.evolution.literals import text_source
from tablemapper.scripts.source import classes as sources

from ..classes import aggregate, entity
from .test_validation import shape


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty package that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "tried_scripts"
    folder.mkdir()
    (folder / "__init__.py").touch()
    importlib.invalidate_caches()
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == folder.name]:
        del sys.modules[name]


def write(package: Path, models: list[Any], name: str) -> Path:
    return tm.Migrations(package.name).write(models, name)


def shop(**fields: Any) -> list[Any]:
    """Return two classes of one table, and an aggregate of the second; the first one has more fields."""
    user = entity(
        "User", "Shop", {"tenant": str, "id": int, **fields}, tm.Key(partition="{tenant}", row=("user", "{id}"))
    )
    order = entity("Order", "Shop", {"tenant": str, "id": int}, tm.Key(partition="{tenant}", row=("order", "{id}")))
    members = {"tenant": (str, tm.group_by(order.tenant)), "orders": (int, tm.count())}
    return [user, order, aggregate("Turnover", order, members, tm.Key(partition="{tenant}"), "Turnovers")]


def completed(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace("...)", 'lambda e: "en")'), encoding="utf-8")


def test_a_script_that_copies_has_all_classes_of_the_table_and_what_belongs_to_them(
    package: Path, tmp_path: Path
) -> None:
    write(package, shop(), "first")
    path = write(package, shop(lang=str), "lang")
    completed(path)
    text = path.read_text(encoding="utf-8")
    for side in ("old", "new"):
        (named,) = re.findall(rf"{side}=\[(.*?)\]", text)
        assert sorted(named.split(", ")) == [f"{side}.{name}" for name in ("Order", "Turnover", "User")]
    with tm.open(tmp_path / "shop.db", models=(old := shop())) as store:
        store.insert_many([old[0]("t", 1), old[1]("t", 1)])
    assert tm.migrate(tmp_path / "shop.db", package.name).ok
    with tm.open(tmp_path / "shop.db", models=shop(lang=str)) as store:
        assert store.check().ok


def test_a_script_that_only_renames_has_the_class_alone(package: Path) -> None:
    write(package, shop(nick=str), "first")
    text = write(package, shop(name=str), "name").read_text(encoding="utf-8")
    assert "old=[old.User], new=[new.User]" in text


def test_check_fails_for_a_script_that_leaves_out_a_class_of_its_table(package: Path) -> None:
    write(package, shop(), "first")
    path = write(package, shop(lang=str), "lang")
    completed(path)
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"(old|new)=\[.*?User.*?\]", r"\1=[\1.User]", text)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(tm.InvalidMigration, match=r"0001_lang: Order shares a table .* name it in old=") as caught:
        tm.Migrations(package.name).check(shop(lang=str))
    assert len(caught.value.faults) == 2  # (its aggregate belongs to it)


def test_a_class_that_came_to_the_table_after_a_script_need_not_be_in_it(package: Path) -> None:
    only = shop()[:1]
    write(package, only, "first")
    completed(write(package, shop(lang=str)[:1], "lang"))
    later = shop(lang=str)
    assert tm.Migrations(package.name).check(later) == ()
    write(package, later, "later")
    assert tm.Migrations(package.name).check(later) == ()


def test_a_script_that_was_deleted_is_missed_by_check_and_by_make(package: Path) -> None:
    write(package, shop(), "first")
    path = write(package, shop(lang=str), "lang")
    assert json.loads((package / "schema.json").read_text())["script"] == path.stem
    path.unlink()
    for call in (lambda m: m.check(shop(lang=str)), lambda m: m.write(shop(lang=str), "again")):
        with pytest.raises(tm.InvalidMigration, match=r"0001_lang.py, which is missing: .*git checkout") as caught:
            call(tm.Migrations(package.name))
        assert str(package / "schema.json") in str(caught.value)
    assert sorted(one.name for one in package.iterdir() if one.suffix) == ["__init__.py", "schema.json"]


def test_a_schema_of_classes_alone_is_read_as_before(package: Path) -> None:
    write(package, shop()[:1], "first")
    completed(write(package, shop(lang=str)[:1], "lang"))
    (package / "schema.json").write_text(json.dumps(tm.schema_snapshot(shop(lang=str))), encoding="utf-8")
    assert tm.Migrations(package.name).check(shop(lang=str)) == ()


def test_a_schema_of_classes_alone_needs_no_script(package: Path) -> None:
    (package / "schema.json").write_text(json.dumps(tm.schema_snapshot(shop())), encoding="utf-8")
    assert tm.Migrations(package.name).check(shop()) == ()
    assert tm.Migrations(package.name).check(shop(), since=tm.schema_snapshot(shop())) == ()


def test_a_script_that_would_not_run_is_not_written(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(package, shop(), "first")
    before = (package / "schema.json").read_text()
    monkeypatch.setattr(sources, "text_source", lambda text: text_source(f"{text}x" if text == "Shop" else text))
    with pytest.raises(tm.InvalidMigration) as caught:
        write(package, shop(lang=str), "lang")
    assert str(caught.value).startswith(
        "0001_lang: this script would not run, so it was not written; please report that"
    )
    assert "User: its table is Shop in the store, and Shopx in old" in str(caught.value)
    assert (package / "schema.json").read_text() == before
    assert sorted(one.name for one in package.iterdir() if one.suffix) == ["__init__.py", "schema.json"]
    assert not [name for name in sys.modules if "0001_lang" in name]


def test_a_schema_that_cannot_be_written_leaves_no_half_of_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(package, shop(), "first")
    before = (package / "schema.json").read_text()

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        write(package, shop(lang=str), "lang")
    assert (package / "schema.json").read_text() == before
    assert sorted(one.name for one in package.iterdir() if one.suffix) == ["__init__.py", "schema.json"]


def test_a_default_stands_in_a_step_as_it_is(package: Path) -> None:
    write(package, [shape(a=(str | None, {"default": None}))], "first")
    path = write(package, [shape(a=(str, {"default": "a,b) # c"}))], "required")
    assert '    m.fill(new.Product.a, lambda e: "a,b) # c")\n' in path.read_text(encoding="utf-8")


class Money:
    """A class that is stored by hooks."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]


class Token(Money):
    """A class that is registered as a text."""


tm.converter().register_unstructure_hook(Money, lambda money: [money.text])
tm.converter().register_structure_hook(Money, lambda form, _: Money(form[0]))
tm.register(Token, str, store=lambda token: token.text, load=Token)


def test_a_type_that_only_the_program_knows_is_named_and_a_registered_one_is_its_scalar(
    package: Path, tmp_path: Path
) -> None:
    write(package, shop(lang=str), "first")
    with pytest.raises(
        tm.InvalidMigration, match="User.lang: only your program knows how Money is stored; write the sc"
    ):
        write(package, shop(lang=Money), "money")
    assert tm.Migrations(package.name).check(shop(lang=Token)) == ()
    path = write(package, shop(lang=Token, rank=int), "rank")
    path.write_text(path.read_text(encoding="utf-8").replace("...)", "lambda e: len(e.lang))"), encoding="utf-8")
    assert "lang: tm.Field[str]" in path.read_text(encoding="utf-8")
    place = tmp_path / "shop.db"
    with tm.open(place, models=shop(lang=str)) as store:
        store.insert(store.classes["User"]("a", 1, "en"))
    tm.migrate(place, package.name)
    models = shop(lang=Token, rank=int)
    with tm.open(place, models=models) as store:
        (user,) = store.query(models[0]).where(models[0].lang == Token("en")).allow_scan()
        assert (user.lang, user.rank) == (Token("en"), 2)
