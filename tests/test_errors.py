from __future__ import annotations

import builtins
import copy
import inspect
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

import tablemapper as tm
from tablemapper import errors
from tablemapper.errors import TableMapperError

from .classes import entity

KINDS = sorted(
    (kind for kind in vars(errors).values() if inspect.isclass(kind) and kind.__name__ in errors.__all__),
    key=lambda kind: kind.__name__,
)
MIRRORS = sorted({name for name in re.findall(r"\w+Error", errors.__doc__ or "") if hasattr(builtins, name)})


def drawn_tree() -> dict[str, tuple[str | None, str | None]]:
    """Read the docstring's drawing: name → (parent, builtin that it mirrors)."""
    tree: dict[str, tuple[str | None, str | None]] = {"TableMapperError": (None, None)}
    above: list[str] = ["TableMapperError"]
    for branch, name, mirror in re.findall(r"^ {4}([ │├└─]+)(\w+) +(\w+Error)?", errors.__doc__ or "", re.MULTILINE):
        depth = len(branch) // 4
        assert len(branch) % 4 == 0
        above[depth:] = [name]
        tree[name] = (above[depth - 1], mirror or None)
    return tree


def real_tree() -> dict[str, tuple[str | None, str | None]]:
    """Read the classes: private ones in between are not drawn."""
    tree: dict[str, tuple[str | None, str | None]] = {}
    for kind in KINDS:
        ours = [base.__name__ for base in kind.__mro__[1:] if base in KINDS]
        tree[kind.__name__] = (
            ours[0] if ours else None,
            next((base.__name__ for base in kind.__bases__ if base.__name__ in MIRRORS), None),
        )
    return tree


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    assert drawn_tree() == real_tree()


def test_every_error_of_the_module_is_public() -> None:
    made_here = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception) and not name.startswith("_")
    }
    assert made_here | {"check_seconds", "did_you_mean", "note_written", "notes_of", "safe_repr"} == set(errors.__all__)
    assert errors.__all__ == sorted(errors.__all__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_but_the_root_is_also_a_builtin(kind: type[TableMapperError]) -> None:
    assert issubclass(kind, TableMapperError)
    assert kind is TableMapperError or any(issubclass(kind, getattr(builtins, name)) for name in MIRRORS)


def an_error(kind: type[Any]) -> TableMapperError:
    parameters = inspect.signature(kind).parameters
    values = {"entity": "Product", "key": ("a", "b"), "index": "by_maker", "holder": ("c", "d")}
    named = {name: value for name, value in values.items() if name in parameters}
    faults = [["price: negative", "name: empty"]] if "faults" in parameters else []
    error: TableMapperError = kind("Product", *faults, **named)
    error.add_note("while writing")
    return error


ROUND_TRIPS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "pickle 2": lambda error: pickle.loads(pickle.dumps(error, protocol=2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", ROUND_TRIPS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_copied_and_pickled_with_all_that_it_says(kind: type[TableMapperError], way: str) -> None:
    error = an_error(kind)
    twin = ROUND_TRIPS[way](error)
    assert type(twin) is kind
    assert str(twin) == str(error)
    assert twin.args == error.args
    assert vars(twin) == vars(error)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_shows_its_plain_message(kind: type[TableMapperError]) -> None:
    assert str(kind("no such entity")) == "no such entity"  # a KeyError would show it in quotes
    assert kind("no such entity").message == "no such entity"
    assert kind("no such entity").args == ("no such entity",)


def test_one_fault_stands_in_the_line_and_several_get_a_line_each() -> None:
    assert str(errors.InvalidEntity("Product", ["price: negative"])) == "Product: price: negative"
    assert str(errors.InvalidEntity("Product", ["price: negative", "name: empty"])) == (
        "Product: 2 faults\n  - price: negative\n  - name: empty"
    )
    assert errors.InvalidEntity("Product", ["a", "b"]).faults == ("a", "b")


def test_a_store_error_says_which_errno_and_file_it_came_from_only_in_its_text() -> None:
    error = errors.StoreFull("shop.db: no space left")
    assert (error.errno, error.filename) == (None, None)


def test_a_near_name_is_proposed_and_a_far_one_is_not() -> None:
    assert errors.did_you_mean("maker", ["manufacturer", "marker"]) == '; did you mean "marker"?'
    assert errors.did_you_mean("zzz", ["price"]) == ""


def test_a_message_has_the_values_of_a_key_and_not_its_texts() -> None:
    account = entity(
        "Account", "Accounts", {"town": str, "number": int, "mail": str, "page": str}, tm.Key(partition="{town}", row="{number}"),
        by_mail=tm.Index(partition="{mail}", row="{number}", unique=True), by_page=tm.Index(partition="{page:hash}", unique=True),
    )  # fmt: skip
    hashed = entity("Hashed", "Hashes", {"page": str}, tm.Key(partition="{page:hash}"))
    with tm.open(":memory:", models=[account, hashed]) as store:
        store.insert_many([account("b", 7, "a@b", "p"), account("b", 8, "c@d", "q")])
        cases: list[tuple[Callable[[], Any], type[tm.TableMapperError], str]] = [
            (lambda: store[account.key("b", 77)], tm.EntityNotFound, "Account.key('b', 77): there is no"),
            (lambda: store.delete(account.key("it's", -1)), tm.EntityNotFound, "delete Account.key(\"it's\", -1): there"),
            (lambda: store.insert(account("b", 7, "e", "r")), tm.EntityExists, "insert Account.key('b', 7): the entity exists"),
            (lambda: store.delete(account.key("b", 7), if_match='W/"datetime\'2020-01-01T00%3A00%3A00.000000Z\'"'),
             tm.PreconditionFailed, "delete Account.key('b', 7): "),
            (lambda: store.insert(account("c", 7, "a@b", "r")), tm.UniqueViolation,
             "Account.key('c', 7) cannot have 'a@b', 7, which Account.key('b', 7) holds"),
            (lambda: store.insert(account("c", 9, "x", "q")), tm.UniqueViolation, "Account.key('c', 9) cannot have '"),
            (lambda: store[hashed.key("p")], tm.EntityNotFound, "Hashed ('"),
        ]  # fmt: skip
        for call, error, text in cases:
            with pytest.raises(error) as caught:
                call()
            assert text in str(caught.value)
