"""Fields that each write sets, of entities that something else has damaged in a file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import apsw
import pytest

import tablemapper as tm

from ...store.test_on_write import Clock

clock = Clock()


class Doc(tm.Entity, table="Docs"):
    site: tm.Field[str]
    id: tm.Field[str]
    n: tm.Field[int] = tm.field(default=0)
    note: tm.Field[str | None] = tm.field(default=None)
    updated: tm.Field[datetime] = tm.field(on_write=clock)

    key = tm.Key[str, str](partition="{site}", row="{id}")


KEY = Doc.key("Oslo", "a")


@pytest.mark.parametrize("damage", ["x'00'", "5", "2.5"])
def test_a_damaged_entity_gets_it_with_what_is_assigned(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "docs.db"
    with tm.open(path, models=[Doc]) as store:
        store.insert(Doc("Oslo", "a"))
    with apsw.Connection(str(path)) as connection:
        connection.execute(f"UPDATE Docs SET note = {damage}")
    connection.close()
    with tm.open(path, models=[Doc]) as store:
        times = store.query(Doc).where(Doc.site == "Oslo").select(Doc.n, Doc.updated)
        before = clock.now
        store.merge(KEY, n=5)
        ((_, merged),) = times
        clock()
        store.query(Doc).where(Doc.site == "Oslo").update(n=6)
        ((n, updated),) = times
        assert (n, before < merged < updated) == (6, True)
        with pytest.raises(tm.CorruptStore):
            store.get(KEY)
        store.merge(KEY, note="mended")
        assert (store[KEY].n, store[KEY].updated > before) == (6, True)
