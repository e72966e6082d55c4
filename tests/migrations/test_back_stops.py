"""A way back that stops: entities that become one by it are named, nothing is switched, and one goes on either way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from .shapes import FIELDS, changed, contents, migrate, part, script

BARE = part()
WIDE = part(changed(FIELDS, price=int), key=tm.Key[str, int, int](partition="{shelf}", row=("{number}", "{price}")))
TO_WIDE = script(
    [WIDE],
    lambda m: (m.rekey(BARE, WIDE), m.convert(BARE.price, WIDE.price, int, back=str)),  # type: ignore[arg-type,return-value]
    "first", None, [BARE],
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=[BARE], durability="relaxed") as store:
        store.insert_many(BARE("a", number, price=str(number), maker=None, tags=["x"]) for number in range(30))
    return tmp_path / "s.db"


def wide(number: int, price: int) -> Any:
    return WIDE("a", number, price=price, maker="m", tags=[])


def test_a_key_with_more_fields_ends_the_old_version_as_it_could_not_hold_what_the_new_one_writes(path: Path) -> None:
    (step, _) = migrate(path, TO_WIDE).plan
    assert step.old_version == "stops"
    with tm.open(path, models=[WIDE], migrations=[TO_WIDE], durability="relaxed") as store:
        store.insert(wide(1, 7))
        assert store.query(WIDE).where(WIDE.shelf == "a", WIDE.number == 1).count() == 2


@pytest.fixture
def collided(path: Path) -> Path:
    """A store of the new version with two pairs of entities that were one entity each."""
    migrate(path, TO_WIDE)
    with tm.open(path, models=[WIDE], durability="relaxed") as store:
        store.insert_many([wide(1, 7), wide(2, 7)])
    return path


def wide_contents(path: Path) -> list[str]:
    with tm.open(path, models=[WIDE], durability="relaxed") as store:
        assert store.check().ok
        return contents(store, [WIDE])


def test_entities_that_become_one_by_an_undoing_are_all_named_and_the_store_stays_as_it_was(collided: Path) -> None:
    before = wide_contents(collided)
    rehearsed = migrate(collided, TO_WIDE, to="", dry_run=True)
    with pytest.raises(tm.MigrationStopped, match="nothing was switched") as stopped:
        migrate(collided, TO_WIDE, to="")
    faults = stopped.value.report.faults
    assert sorted(rehearsed.faults, key=str) == sorted(faults, key=str)
    assert [(fault.where, *fault.key) for fault in faults] == [("Part", "a", "a1 !a7"), ("Part", "a", "a2 !a7")]
    assert "it becomes Part ('a', 'a1'), and so does ('a', 'a1 !a1')" in str(stopped.value)
    assert wide_contents(collided) == before
    assert migrate(collided, TO_WIDE, to="first").done  # it gives the undoing up
    assert wide_contents(collided) == before


def test_an_undoing_goes_on_once_the_entities_differ_again(collided: Path) -> None:
    with pytest.raises(tm.MigrationStopped):
        migrate(collided, TO_WIDE, to="")
    with tm.open(collided, models=[WIDE], durability="relaxed") as store:
        store.delete(WIDE.key("a", 1, 1))
        store.delete(WIDE.key("a", 2, 7))
    assert migrate(collided, TO_WIDE, to="").done
    with tm.open(collided, models=[BARE], durability="relaxed") as store:
        assert store.check().ok
        assert [store[BARE.key("a", number)].price for number in range(4)] == ["0", "7", "2", "3"]
        assert store.query(BARE).allow_scan().count() == 30


NAMED = part(
    changed(FIELDS, price=int, maker=None, firm=str | None),
    key=tm.Key[str, int, int](partition="{shelf}", row=("{number}", "{price}")), name="Named", table="Names",
)  # fmt: skip
TO_NAMED = script(
    [NAMED],
    lambda m: (m.rename_class(WIDE, NAMED), m.rename(WIDE.maker, NAMED.firm)),  # type: ignore[arg-type,return-value]
    "second", "first", [WIDE],
)  # fmt: skip


@pytest.fixture
def halfway(collided: Path) -> Path:
    """A store that was to go back over two scripts, and stopped in the second."""
    migrate(collided, TO_WIDE, TO_NAMED)
    with tm.open(collided, models=[NAMED], durability="relaxed") as store:
        store.merge(NAMED.key("a", 5, 5), firm="late")
    with pytest.raises(
        tm.MigrationStopped, match=r"the undoing of first: 2 entities .* switched \(second stays undone\)"
    ) as stopped:
        migrate(collided, TO_WIDE, TO_NAMED, to="")
    assert stopped.value.report.applied == ("second",)
    return collided


def test_a_run_back_over_two_scripts_that_stops_in_the_second_stays_at_the_version_between_them(halfway: Path) -> None:
    assert [entry.id for entry in tm.status(halfway).history] == ["first"]
    with tm.open(halfway, models=[WIDE], durability="relaxed") as store:
        assert store[WIDE.key("a", 5, 5)].maker == "late"
        store.merge(WIDE.key("a", 6, 6), maker="later")
        assert store.query(WIDE).allow_scan().count() == 32
        assert store.check().ok
    with tm.open(halfway, models=[NAMED], durability="relaxed") as store:  # it goes on beside it
        assert store[NAMED.key("a", 6, 6)].firm == "later"
        assert store.check().ok


def test_one_goes_forth_again_from_where_a_way_back_over_two_scripts_stopped(halfway: Path) -> None:
    with pytest.raises(tm.InvalidMigration, match="the undoing of first has not finished"):
        migrate(halfway, TO_WIDE, TO_NAMED)
    assert migrate(halfway, TO_WIDE, TO_NAMED, to="second").applied == ("second",)
    with tm.open(halfway, models=[NAMED], durability="relaxed") as store:
        assert store[NAMED.key("a", 5, 5)].firm == "late"
        assert store.query(NAMED).allow_scan().count() == 32
        assert store.check().ok


def test_one_goes_back_to_the_end_from_where_a_way_back_over_two_scripts_stopped(halfway: Path) -> None:
    with tm.open(halfway, models=[WIDE], durability="relaxed") as store:
        store.delete(WIDE.key("a", 1, 7))
        store.delete(WIDE.key("a", 2, 7))
    assert migrate(halfway, TO_WIDE, TO_NAMED, to="").applied == ("first",)
    with tm.open(halfway, models=[BARE], durability="relaxed") as store:
        assert store[BARE.key("a", 5)].maker == "late"
        assert store.query(BARE).allow_scan().count() == 30
        assert store.check().ok
