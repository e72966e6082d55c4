"""A field that is gone while one of its type is new: a script says whether that is a rename, whatever the rows hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from ..engines.azure.place import AzurePlace


def user(*fields: str, kind: Any = int | None, default: Any = None) -> Any:
    members = dict.fromkeys(fields, (kind, tm.field(default=default)))
    return entity("User", "Users", {"id": int, **members}, tm.Key[int](partition="{id}"))


@pytest.fixture(params=["file", "account"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return tmp_path / "s.db" if request.param == "file" else AzurePlace(f"renames in doubt {tmp_path}", still=True)


CASES = [(int | None, None, 5), (bool, True, False), (str, "", "x")]


@pytest.mark.parametrize(("kind", "default", "value"), CASES)
def test_it_is_refused_with_the_script_as_check_refuses_it(place: Any, kind: Any, default: Any, value: Any) -> None:
    old, new = user("deleted", kind=kind, default=default), user("removed", kind=kind, default=default)
    (change,) = [change for change in tm.changes(tm.schema_snapshot([old]), [new]) if change.stops]
    with tm.open(place, models=[old]) as store:
        store.insert(old(1))
        with pytest.raises(tm.SchemaMismatch, match='"deleted" .* and "removed" is new') as caught:
            tm.open(place, models=[new])
        assert [found.code for found in caught.value.changes] == [change.code]
        assert "m.rename(old.User.deleted, new.User.removed)" in str(caught.value.script)
        store.merge(old.key(1), deleted=value)
        rename = tm.migration(after=None, old=[old], new=[new])(lambda m: m.rename(old.deleted, new.removed))
        tm.migrate(place, [rename])
        with tm.open(place, models=[new]) as newer:
            assert newer[new.key(1)].removed == value
            store.merge(old.key(1), deleted=default)
            assert newer[new.key(1)].removed == default


def test_several_of_a_type_are_in_doubt_too(place: Any) -> None:
    old, new = user("a", "b"), user("c")
    with tm.open(place, models=[old]) as store:
        store.insert(old(1))
    with pytest.raises(tm.SchemaMismatch, match='"a" .*and "c" is new'):
        tm.open(place, models=[new])


def test_a_class_without_a_row_takes_it_over_and_refuses_the_older_version(tmp_path: Path) -> None:
    old, new = user("deleted"), user("removed")
    with tm.open(tmp_path / "s.db", models=[old]) as store, tm.open(tmp_path / "s.db", models=[new]) as newer:
        with pytest.raises(tm.SchemaMismatch, match="the class was declared again"):
            store.insert(old(1, deleted=5))
        newer.insert(new(1, removed=7))
        assert newer.check().ok
    with pytest.raises(tm.SchemaMismatch, match="the class was declared again"):
        tm.open(tmp_path / "s.db", models=[old])


def test_a_field_that_is_gone_stays_where_none_of_its_type_is_new(tmp_path: Path) -> None:
    old, new = user("deleted"), user()
    with tm.open(tmp_path / "s.db", models=[old]) as store:
        store.insert(old(1))
        with tm.open(tmp_path / "s.db", models=[new]) as newer:
            store.merge(old.key(1), deleted=5)
            assert newer[new.key(1)].id == 1
