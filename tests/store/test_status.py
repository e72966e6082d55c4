"""What a store says of the state of what it maintains."""

from __future__ import annotations

from pathlib import Path

import pytest

import tablemapper as tm

from .test_builds import NAMES, NEW, OLD, UNIQUE

pytestmark = [pytest.mark.file, pytest.mark.usefixtures("never_at_once")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=[OLD]) as store:
        store.insert_many(OLD("a", number, f"n{number % 7}") for number in range(30))
    return tmp_path / "s.db"


def test_a_store_says_what_it_maintains_and_how_far_that_is(path: Path) -> None:
    with tm.open(path, models=[NEW, NAMES], build=False) as store:
        assert [(one.where, one.kind, one.state) for one in store.status().objects] == [
            ("Part", "class", "ready"),
            ("Part.by_name", "index", "building"),
            ("Names", "aggregate", "building"),
        ]
        store.build(limit=12, rest=0)
        item = store.status()["Part.by_name"]
        assert (item.done, item.total, item.declared, item.violations) == (12, 30, True, 0)
        generation = store.status().generation
        store.build(rest=0)
        assert store.status()["Names"].state == "ready"
        assert store.status().generation > generation
        with pytest.raises(KeyError, match="Part.by_size"):
            store.status()["Part.by_size"]


def test_a_status_is_a_table(path: Path) -> None:
    with tm.open(path, models=[UNIQUE], build=False) as store:
        store.build(limit=12, rest=0)
        assert str(store.status()).splitlines() == [
            "Part          class  ready",
            "Part.by_name  index  building  12 of 30 (40 %); 5 values are held twice",
        ]
        store.build(rest=0)
        item = store.status()["Part.by_name"]
        assert (item.state, item.violations) == ("violated", 7)
        assert str(store.status()).splitlines()[1] == "Part.by_name  index  violated  7 values are held twice"


def test_the_status_of_a_store_needs_no_models(path: Path) -> None:
    tm.open(path, models=[NEW, NAMES], build=False).close()
    status = tm.status(path)
    assert status["Part.by_name"].state == "building"
    assert (status["Names"].done, status["Names"].total) == (0, 30)
    assert status.history == ()
    with tm.open(path, models=[NEW, NAMES], build=False) as store:
        assert store.status() == status == tm.status(path)


def test_no_store_has_no_status_and_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(tm.StoreError):
        tm.status(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


async def test_an_awaited_store_has_a_status(path: Path) -> None:
    async with tm.open_async(path, models=[NEW], build=False) as store:
        assert [item.state for item in (await store.status()).objects] == ["ready", "building"]


def test_what_migrations_did_is_the_history(path: Path) -> None:
    with tm.open(path, models=[OLD]) as store:
        text = (
            '[{"id": "0001_a", "script": "x", "steps": [], "started": 1, "switched": 2, "contracted": 3, "entities": 5},'
            '{"id": "0002_b", "script": "y", "steps": [], "started": 1000000, "switched": null, "contracted": null}]'
        )
        store._engine.file.write(  # type: ignore[attr-defined]
            lambda writer: writer.execute("INSERT INTO tablemapper_catalogue VALUES('history', ?)", (text,))
        )
        first, second = store.status().history
    assert (first.id, first.state, first.entities) == ("0001_a", "contracted", 5)
    assert (second.id, second.state, second.entities) == ("0002_b", "running", 0)
    assert second.started.isoformat() == "1970-01-01T00:00:01+00:00"
    assert str(tm.status(path)).splitlines()[-1] == "0002_b  migration  running     since 1970-01-01 00:00"
