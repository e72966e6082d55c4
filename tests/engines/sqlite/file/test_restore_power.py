"""The power is cut while a backup takes the place of a store: the old store is there or the new one, whole."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tablemapper.engines.sqlite.file import restore
from tablemapper.engines.sqlite.file.opening import restore_file
from tablemapper.errors import TableMapperError

from ....sqlite_vfs import Power
from ..table import open_table
from .test_restore import NEW, OLD, old_store, rows


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store that a killed process left; a backup stands beside it. Calls of the system are noted."""
    with open_table(tmp_path / "new.db") as file:
        file.write(lambda w: w.executemany("INSERT INTO t (v) VALUES (?)", NEW))
        file.backup(tmp_path / "copy.db")
    live = tmp_path / "live"
    live.mkdir()
    old_store(live / "store.db")
    fsync, unlink, replace = os.fsync, os.unlink, os.replace

    def noted_fsync(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        fsync(descriptor)
        Power.note("names", f"{live}/store.db") if name == str(live) else Power.note("sync", name)

    def noted_unlink(name: str, **options: Any) -> None:
        unlink(name, **options)
        if not str(name).endswith(("-shm", "-turn")):
            Power.note("unlink", str(name))

    def noted_replace(source: str, target: str) -> None:
        replace(source, target)
        Power.note("link", source, data=target.removeprefix(Power.path).encode())
        Power.note("unlink", source)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "unlink", noted_unlink)
    monkeypatch.setattr(os, "replace", noted_replace)
    return live / "store.db"


def outcomes(place: Path, seed: int, *, full_size: bool) -> list[tuple[bool, Any]]:
    """Restore, cut the power at many moments, and return for each whether it was acknowledged, and what is there then."""
    draw = random.Random(seed)
    Power.start(place)
    restore_file(place.parent.parent / "copy.db", place, overwrite=True, vfs="power")
    events = Power.events
    found: list[tuple[bool, Any]] = []
    late = range(events - 24, events + 1)  # where names change
    early = range(events - 24)
    for moment in [*(early if full_size else sorted(draw.sample(early, 6))), *late]:
        image = place.parent.parent / f"cut{moment}" / "store.db"
        image.parent.mkdir()
        Power.cut(moment, draw, image)
        try:
            found.append((moment == events, rows(image)))
        except (TableMapperError, AssertionError) as error:
            found.append((moment == events, error))
        shutil.rmtree(image.parent)
    return found


@pytest.mark.long
def test_a_power_cut_leaves_the_old_store_or_the_new_one(place: Path, *, full_size: bool) -> None:
    original = place.parent.with_name("original")
    shutil.copytree(place.parent, original)
    for seed in range(20 if full_size else 3):
        shutil.rmtree(place.parent)
        shutil.copytree(original, place.parent)
        found = outcomes(place, seed, full_size=full_size)
        assert [now for _, now in found if now not in (OLD, NEW)] == []
        assert [now for acknowledged, now in found if acknowledged] == [NEW]
        assert {len(now) for _, now in found} == {len(OLD), len(NEW)}


def test_the_power_cuts_find_a_restore_that_does_not_sync(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "sync", lambda _: None)
    original = place.parent.with_name("original")
    shutil.copytree(place.parent, original)
    for seed in range(8):
        shutil.rmtree(place.parent)
        shutil.copytree(original, place.parent)
        found = outcomes(place, seed, full_size=False)
        if any(now not in ((NEW,) if acknowledged else (OLD, NEW)) for acknowledged, now in found):
            return
    raise AssertionError("it is not found")
