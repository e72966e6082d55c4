"""A file is frozen while it moves: in every program, whatever it was about to do."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.schema.model import compile_schema

from ..classes import entity, grouped
from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace

pytestmark = pytest.mark.file


def note(**indexes: Any) -> Any:
    members = {"author": str, "number": int, "text": (str, tm.field(default=""))}
    by_text = tm.Index[str](partition="{text}")
    key = tm.Key[str, int](partition="{author}", row="{number}")
    return entity("Note", "Notes", members, key, by_text=by_text, **indexes)


Note, NEWER = note(), note(by_number=tm.Index[str, int](partition="{author}", row="{number}"))


Authors = grouped("Authors", Note, "author", notes=tm.count())


MODELS = [Note, Authors]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "notes.db", models=MODELS) as store:
        store.insert_many(Note("ada", number) for number in range(10))
    return tmp_path / "notes.db"


def test_other_programs_know_of_it_at_once_and_again_when_it_ends(path: Path) -> None:
    with tm.open(path, models=MODELS) as one, tm.open(path, models=MODELS) as other:
        one.freeze()
        for store in (one, other):
            with pytest.raises(tm.StoreLocked, match="frozen"):
                store.insert(Note("ada", 99))
            with pytest.raises(tm.StoreLocked, match="frozen"):
                store.insert_many((Note("bob", n) for n in range(3)), atomic=True)
        other.unfreeze()
        one.insert(Note("ada", 99))
        assert one.check().ok


def test_a_store_that_is_only_read_is_not_frozen(path: Path) -> None:
    with tm.open(path, models=MODELS, read_only=True) as store:
        for verb in (store.freeze, store.unfreeze):
            with pytest.raises(tm.StoreReadOnly):
                verb()
        assert store.status().frozen is None


def test_a_transaction_does_not_freeze_its_store(path: Path) -> None:
    with tm.open(path, models=MODELS) as store, store.transaction() as tx:
        for verb in (store.freeze, store.unfreeze):
            with pytest.raises(tm.InvalidTransaction):
                verb()
        tx.insert(Note("ada", 50))


def test_a_backup_of_a_frozen_file_is_frozen_until_somebody_thaws_it(path: Path, tmp_path: Path) -> None:
    with tm.open(path, models=MODELS) as store:
        store.freeze()
        store.backup(tmp_path / "copy.db")
    with tm.open(tmp_path / "copy.db", models=MODELS) as copy:
        with pytest.raises(tm.StoreLocked):
            copy.clear(Note)
        copy.unfreeze()
        assert copy.clear(Note) == 10
    assert tm.status(path).frozen is not None


async def test_asyncio_freezes_too(path: Path) -> None:
    async with tm.open_async(path, models=MODELS) as store:
        await store.freeze()
        with pytest.raises(tm.StoreLocked):
            await store.insert(Note("ada", 50))
        assert (await store.status()).frozen is not None
        await store.unfreeze()
        await store.insert(Note("ada", 50))


def test_what_is_maintained_is_still_built_and_compacted(path: Path) -> None:
    with tm.open(path, models=MODELS) as store:
        store.freeze()
    with tm.open(path, models=[NEWER]) as store:
        assert [one.number for one in store.query(NEWER.by_number("ada", 3))] == [3]
        store.compact()
        assert store.check().ok
        with pytest.raises(tm.StoreLocked):
            store.insert(NEWER("ada", 77))


def test_writers_do_not_come_between_the_freeze_and_the_last_copy(path: Path) -> None:
    """A live move: programs write all the time, and every write that succeeded is in the account."""
    done: list[int] = []
    locked: list[BaseException] = []
    started, pause = threading.Barrier(4), threading.Event()

    def write(writer: int) -> None:
        with tm.open(path, models=MODELS) as store:
            started.wait()
            for number in range(100_000):
                try:
                    store.insert(Note(f"w{writer}", number))
                except tm.StoreLocked as error:
                    locked.append(error)
                    return
                done.append(number)
                pause.wait(0.005)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(3)]
    for one in threads:
        one.start()
    account = tm.Store(AzurePlace(memory=Memory()).open(compile_schema(MODELS)))
    with tm.open(path, models=MODELS) as store:
        started.wait()
        while len(done) < 30:
            tm.copy(store, account)
        store.freeze()
        tm.copy(store, account)
        for one in threads:
            one.join(60)
        assert len(locked) == 3
        assert tm.copy(store, account).changed == 0
    assert account.query(Note).allow_scan().count() == 10 + len(done)
    assert account.check().ok
    assert [account[Authors.key(f"w{writer}")].notes for writer in range(3)] == [
        account.query(Note).where(Note.author == f"w{writer}").count() for writer in range(3)
    ]
