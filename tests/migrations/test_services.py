"""Two versions of a service, each in a process of its own, under load over start, switch, contract and undoing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..children import Child
from .service import serve
from .test_twins import OLD, STEPS, migrate, of, path, same, totals

__all__ = ["path"]  # a fixture


class Service(Child):
    """Serves in another process."""

    def serve(self, requests: int, kind: str = "both") -> None:
        """Have it serve, while the caller goes on."""
        self.say((requests, kind))


@contextmanager
def service(path: Path, version: str, seed: int) -> Iterator[Service]:
    one = Service(serve, path, version, seed)
    try:
        yield one
    finally:
        one.end()


def contracted(path: Path, first: Any, old: Service, store: Service, many: int, kind: str = "both") -> None:
    """Contract a migration under load: the old service is refused from then on, and the new one goes on."""
    old.serve(many, kind)
    store.serve(many)
    migrate(path, first, contract=True)
    assert store.hear() == []
    faults = old.hear()
    old.serve(4, "reads")
    after = old.hear()
    assert len(after) == 4
    faults += after
    assert all("SchemaMismatch" in fault and "first replaced this form" in fault for fault in faults), faults
    store.serve(4)
    assert store.hear() == []


@pytest.mark.long
@pytest.mark.parametrize("step", [step for step in STEPS if step != "everything"])
def test_no_request_fails_while_both_versions_are_live(path: Path, step: str, *, full_size: bool) -> None:
    if step not in ("rename", "rekey") and not full_size:
        pytest.skip("takes longer")
    new, aggregate, first = of(step)
    many = 2_000 if full_size else 10
    with service(path, "old", 1) as old:
        old.serve(many)
        migrate(path, first, limit=10)  # it is expanded, and a part of it copied
        migrate(path, first)  # and switched
        assert old.hear() == []
        with service(path, step, 2) as store:
            old.serve(many)
            store.serve(many)
            assert (old.hear(), store.hear()) == ([], [])
            with (
                tm.open(path, models=[OLD, totals(OLD)], durability="relaxed") as mine,
                tm.open(path, models=[new, aggregate], durability="relaxed") as theirs,
            ):
                same(mine, theirs, new)
            old.serve(many)
            store.serve(many)
            migrate(path, first, to="")  # back, and forth again, with both of them running
            migrate(path, first)
            assert (old.hear(), store.hear()) == ([], [])
            if full_size:
                with service(path, "old", 3) as again:  # started anew beside the new one
                    again.serve(many)
                    assert again.hear() == []
            contracted(path, first, old, store, many)
    with tm.open(path, models=[new, aggregate], durability="relaxed") as theirs:
        assert theirs.check().ok


@pytest.mark.long
def test_no_read_fails_where_the_old_version_can_only_read(path: Path, *, full_size: bool) -> None:
    new, aggregate, first = of("convert with a way back")
    many = 2_000 if full_size else 10
    with service(path, "old", 1) as old:
        old.serve(many)
        assert old.hear() == []
        old.serve(many, "reads")
        migrate(path, first)
        with service(path, "convert with a way back", 2) as store:
            store.serve(many)
            assert (old.hear(), store.hear()) == ([], [])
            old.serve(many, "reads")
            store.serve(many)
            assert (old.hear(), store.hear()) == ([], [])
            old.serve(many)
            assert all("first has changed this class, and this version can only read it" in one for one in old.hear())
        with (
            tm.open(path, models=[OLD, totals(OLD)], durability="relaxed") as mine,
            tm.open(path, models=[new, aggregate], durability="relaxed") as theirs,
        ):
            same(mine, theirs, new)
        migrate(path, first, to="")
        old.serve(many)
        assert old.hear() == []
        migrate(path, first)
        with service(path, "convert with a way back", 3) as store:
            old.serve(many, "reads")
            store.serve(many)
            assert (old.hear(), store.hear()) == ([], [])
            contracted(path, first, old, store, many, "reads")
