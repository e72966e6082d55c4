"""What a user may name to be opened."""

from __future__ import annotations

import subprocess
import sys
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
        ("azure://account/table", "Azure Tables cannot be opened yet"),
        ("https://account.table.core.windows.net", "Azure Tables cannot be opened yet"),
        ("postgresql://localhost/shop", "that cannot be opened; name a file"),
        (f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={SECRET}", "a connection string is not a path"),
        (f"AccountKey={SECRET};AccountName=x", "a connection string is not a path"),
        ("UseDevelopmentStorage=true", "a connection string is not a path"),
    ],
)
def test_what_is_no_path_is_refused(where: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tm.NotAStore) as caught:
        tm.open(where, models=MODELS)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a=b.db", "c:d.db", "profile.db", "x://y"])
def test_a_path_object_is_a_path_whatever_it_looks_like(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    tm.open(path, models=MODELS).close()
    assert path.is_file()


def test_no_engine_is_loaded_before_one_is_opened() -> None:
    program = "import sys, tablemapper; print('apsw' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
