"""The verbs of a version, of the versions of a store, and of its history, each as values before and after."""

from __future__ import annotations

from typing import Any

import pytest

from tablemapper.evolution.history import History
from tablemapper.evolution.versions import Version, Versions
from tablemapper.schema.specs import AppliedSpec


def _version(**fields: Any) -> Version:
    return Version("form", 1, **fields)


CURRENT, BEHIND = _version(), _version(behind="m1")
TWIN = _version(behind="m1", beside="m1")
RETIRED = _version(until=5, retired_by="m1")
STALE = _version(until=5, retired_by="m1", behind="m1", unkept=True)
ENDED, UNDONE = _version(until=5), _version(until=5, undone=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (CURRENT, _version(until=9, retired_by="m2")),
        (BEHIND, _version(until=9, retired_by="m2", behind="m1")),
        (TWIN, _version(until=9, retired_by="m2", behind="m1")),
        (UNDONE, _version(until=9, retired_by="m2")),
    ],
)
def test_a_version_is_retired(before: Version, after: Version) -> None:
    assert before.retire(9, "m2") == after


@pytest.mark.parametrize(
    ("before", "after"), [(CURRENT, _version(until=9)), (RETIRED, RETIRED), (ENDED, ENDED), (UNDONE, _version(until=9))]
)
def test_a_version_ends_as_its_class_is_declared_anew(before: Version, after: Version) -> None:
    assert before.end(9) == after


@pytest.mark.parametrize(
    ("before", "beside", "after"),
    [(CURRENT, _version(behind="m2", beside="m2"), CURRENT), (BEHIND, _version(behind="m1", beside="m2"), BEHIND)],
)
def test_a_version_lives_beside_a_migration_and_after_it_again(
    before: Version, beside: Version, after: Version
) -> None:
    assert before.live_beside("m2") == beside
    assert beside.live_after("m2") == after


@pytest.mark.parametrize(
    ("before", "by", "after"),
    [
        (RETIRED, "m1", UNDONE),
        (STALE, "m1", _version(until=5, behind="m1", undone=True)),
        (_version(until=5, retired_by="m2", behind="m1"), "m2", _version(until=5, retired_by="m1", behind="m1")),
        (RETIRED, "the undoing of m1", RETIRED),
        (CURRENT, "m1", CURRENT),
        (ENDED, "m1", ENDED),
    ],
)
def test_a_version_may_be_opened_again_once_what_retired_it_is_undone(before: Version, by: str, after: Version) -> None:
    assert before.revive(by, by) == after


def test_versions_are_found_retired_and_revived_by_class() -> None:
    versions = Versions({"A": [RETIRED, CURRENT], "B": [TWIN, RETIRED]})
    assert versions.live("A") == versions.live("A", "form") == [CURRENT]
    assert versions.live("A", "other") == versions.live("C") == []
    after = versions.retire(9, "m2", lambda name, version: version.beside == "m1", unkept=True)
    unkept = _version(until=9, retired_by="m2", behind="m1", unkept=True)
    assert after == Versions({"A": [RETIRED, CURRENT], "B": [unkept, RETIRED]})
    assert versions.revive("m1", "m1", but=["B"]) == Versions({"A": [UNDONE, CURRENT], "B": [TWIN, RETIRED]})


def test_a_migration_that_ran_again_has_two_entries() -> None:
    first, again = AppliedSpec("m1", switched=2, undone=3), AppliedSpec("m1", switched=4)
    running = AppliedSpec("m2")
    history = History((first, again)).and_(running)
    assert history.current("m1") is history.last("m1") is again
    assert History((first,)).current("m1") is None
    assert History((first,)).last("m1") is first
    assert history.running is running
    assert History((first, again)).running is None
    assert list(history.with_(again, undone=5)) == [first, AppliedSpec("m1", switched=4, undone=5), running]
    assert list(history.without(history.running, None)) == [first, again]
    assert history.with_(None, undone=5) == history
