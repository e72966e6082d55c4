"""What a user may name to be opened."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tablemapper as tm

from ..store.test_store import MODELS

SECRET = "c2VjcmV0"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("sqlite:///shop.db", "opened by its path: 'shop.db'"),
        ("sqlite:////home/ann/shop.db", "opened by its path: '/home/ann/shop.db'"),
        ("sqlite+pysqlite:///shop.db", "opened by its path"),
        ("sqlite://", "opened by its path: ':memory:'"),
        ("file:shop.db?mode=ro", "opened by its path: 'shop.db'"),
        ("file:///home/ann/shop.db", "opened by its path: '/home/ann/shop.db'"),
        ("azure://account/Table", "azure://account has no credential; pass credential="),
        ("azure://account/a-b", '"a-b" is not a table name'),
        ("azure:", "no name of an account"),
        ("https://account.table.core.windows.net", "an account of Azure is named azure://account"),
        ("postgresql://localhost/shop", "that cannot be opened; name a file"),
        (f"AccountKey={SECRET};AccountNam=x", "the connection string cannot be read"),
        (f"AccountKey={SECRET}", "names no AccountName"),
    ],
)
def test_what_is_no_path_is_refused(where: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tm.NotAStore) as caught:
        tm.open(where, models=MODELS)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


IN_QUOTES = f'"AccountName=shop;AccountKey={SECRET}"'


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (f"STORAGE=AccountName=shop;AccountKey={SECRET}", "name the variable, env:STORAGE, or only what follows"),
        (f'export STORAGE="AccountName=shop;AccountKey={SECRET}"', "name the variable, env:STORAGE"),
        ("STORAGE='azure://shop'", "name the variable, env:STORAGE"),
        (f"AccountNmae=shop;AccountKey={SECRET}", "the connection string cannot be read"),
        (f'"AccountName=shop;AccountKey={SECRET}', "the connection string cannot be read"),
        (f"https://shop.table.core.windows.net/?sv=1&sig={SECRET}", "the connection string cannot be read"),
        (f"?sv=1&sig={SECRET}", "a signature alone is the credential= of azure://account"),
        (f"/home/ann/shop.db?accountkey = {SECRET}", "is no path"),
        (f"azure://shop?sv=1&sig={SECRET}", "pass it as credential="),
        (f"azure://ann:{SECRET}@shop", "this is no name of an account"),
        (f"azure://{SECRET * 9}", "this is no name of an account"),
        (f"TableEndpoint=https://ann:{SECRET}@shop.net;AccountKey=YQ==", "the endpoint of the account cannot be read"),
        (f"TableEndpoint=https://shop:{SECRET}/;AccountKey=YQ==", "the endpoint of the account cannot be read"),
        (f"AccountName=shop;AccountKey={SECRET}é", "no base64 text"),
        (f"env:{IN_QUOTES}", "there is no environment variable …"),
        ("env:NOWHERE", "env:NOWHERE: there is no environment variable NOWHERE"),
        ("env:ELSEWHERE", "names another variable"),
        ("env:DISTANT", "cannot be read"),
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        lambda where: tm.open(where, models=MODELS),
        lambda where: tm.status(where),
        lambda where: tm.migrate(where, []),
    ],
    ids=["open", "status", "migrate"],
)
def test_what_holds_a_secret_is_never_a_path_and_never_repeated(
    call: Callable[[str], object], where: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELSEWHERE", "env:NOWHERE")
    monkeypatch.setenv("DISTANT", f"AccountName=shop;sig={SECRET}")
    with pytest.raises(tm.NotAStore) as caught:
        call(where)
    assert said in str(caught.value)
    error: BaseException | None = caught.value
    while error is not None:  # (those that led to it are shown by some tools)
        assert SECRET not in f"{error} {error!r}"
        error = error.__context__
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [IN_QUOTES, IN_QUOTES.replace('"', "'"), f" {IN_QUOTES[1:-1]} ", "env:STORAGE"])
def test_quotes_around_an_account_are_taken_off(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE", IN_QUOTES)
    with pytest.raises(ValueError, match="Azure Tables keeps what it acknowledged"):
        tm.open(place, models=MODELS, durability="relaxed")


def test_a_variable_names_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text, name in (("a.db", "a.db"), ("'b.db'", "b.db")):
        monkeypatch.setenv("STORAGE", text)
        tm.open("env:STORAGE", models=MODELS).close()
        assert (tmp_path / name).is_file()
        assert tm.status("env:STORAGE").objects
        tm.migrate("env:STORAGE", [], dry_run=True)
    tm.restore("env:STORAGE", "c.db")
    assert {path.suffix for path in tmp_path.iterdir()} == {".db"}


def test_no_file_is_named_after_a_connection_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(f"AccountName=shop;AccountKey={SECRET}")
    with tm.open(":memory:", models=MODELS) as store:
        for call in (
            lambda: tm.open(path, models=MODELS), lambda: tm.status(path), lambda: tm.restore(path, "x"),
            lambda: store.backup(path), lambda: store.backup(str(path)), lambda: store.backup(IN_QUOTES),
        ):  # fmt: skip
            with pytest.raises(tm.NotAStore, match="is not a path") as caught:
                call()
            assert SECRET not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", [lambda where: tm.restore("x", where), lambda where: tm.restore(where, "x")])
@pytest.mark.parametrize("where", [f"AccountName=x;AccountKey={SECRET}", "azure://account"])
def test_what_is_possible_for_a_file_only_says_so(call: Callable[[str], object], where: str) -> None:
    with pytest.raises(tm.NotAStore, match="for a file only") as caught:
        call(where)
    assert SECRET not in str(caught.value)


def test_options_of_the_other_engine_are_refused() -> None:
    with pytest.raises(tm.NotAStore, match="credential= is for an account"):
        tm.open(":memory:", models=MODELS, credential="x")
    with pytest.raises(ValueError, match="durability='relaxed' is for a file"):
        tm.open(f"AccountName=x;AccountKey={SECRET}", models=MODELS, durability="relaxed")


@pytest.mark.parametrize("name", ["a=b.db", "c:d.db", "profile.db", "x://y"])
def test_a_path_object_is_a_path_whatever_it_looks_like(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    tm.open(path, models=MODELS).close()
    assert path.is_file()


def test_no_engine_is_loaded_before_one_is_opened() -> None:
    program = "import sys, tablemapper; print({'apsw', 'urllib3', 'ssl'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
