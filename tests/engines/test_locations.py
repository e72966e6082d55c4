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
        ("azure://account/Table", "azure://account says nothing of who asks; pass credential="),
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
