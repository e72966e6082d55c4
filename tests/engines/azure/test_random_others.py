"""Random stores into whose tables another program writes: rows of nobody, and entities, between all that is asked of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tablemapper.engines.azure.catalogue.open_classes import OpenClasses
from tablemapper.engines.azure.tables.reserved_names import CATALOGUE, HIDDEN
from tablemapper.engines.azure.tables.service import ErrorResponse, GroupTransaction, RowChange
from tests.keys.test_canonical import mutated
from tests.stores import repaired
from tests.whole.judges import same_rows

from .memory import Memory
from .random_stores import random_stores

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")


class Stranger:
    """Another program, which knows nothing of hidden properties."""

    def __init__(self, rng: random.Random, memory: Memory, classes: OpenClasses) -> None:
        self.rng, self.memory, self.classes = rng, memory, classes
        self.bodies = dict[tuple[str, str, str], Any]()

    def write_rows(self) -> None:
        """Write rows whose keys are nearly those of entities, groups, rows of indexes, and what lies hidden beside them."""
        for table, rows in list(self.memory.tables.items()):
            if table == CATALOGUE or not rows:
                continue
            for partition, row in self.rng.sample(sorted(rows), min(4, len(rows))):
                key = (
                    (mutated(self.rng, partition), row)
                    if self.rng.random() < 0.3
                    else (partition, mutated(self.rng, row))
                )
                key = (partition, f' "{self.rng.choice("hjwovxy")}{row[3:]}') if self.rng.random() < 0.2 else key
                if key not in rows and not any(
                    one.table == table and self.classes.claims(one, *key) for one in self.classes.models
                ):
                    typed = rows[partition, row].typed if self.rng.random() < 0.5 else {}
                    members = {
                        name: value for name, (edm, value) in typed.items() if edm == "String" and name[0] != "_"
                    }
                    self._put(table, *key, members)

    def _put(self, table: str, partition: str, row: str, members: dict[str, Any]) -> None:
        try:
            self.memory.send(GroupTransaction(table, partition, (RowChange("insert", row, members),)))
        except ErrorResponse:  # (no key, or one that is there)
            return
        self.bodies[table, partition, row] = self.memory.tables[table][partition, row]

    def take_tokens(self) -> int:
        """Write some entities whole as they are; return how many."""
        done = 0
        entities = [one for one in self.classes.models if one.aggregate is None]
        for table in {one.table for one in entities}:
            for (partition, row), stored in list(self.memory.tables[table].items()):
                is_ours = any(one.table == table and self.classes.claims(one, partition, row) for one in entities)
                if is_ours and not HIDDEN[0] <= row < HIDDEN[1] and self.rng.random() < 0.3:
                    members: dict[str, Any] = {}
                    for name, (edm, value) in stored.typed.items():
                        if not name.startswith("_tm_"):
                            members |= {name: value, f"{name}@odata.type": f"Edm.{edm}"}
                    self.memory.send(GroupTransaction(table, partition, (RowChange("replace", row, members, "*"),)))
                    done += 1
        return done

    def untouched(self) -> bool:
        return all(self.memory.tables[table].get((p, r)) is body for (table, p, r), body in self.bodies.items())


@pytest.mark.parametrize("part", range(2))
def test_what_others_write_is_nobodys_or_counts_once_it_is_repaired(part: int, full_size: bool) -> None:
    strange = taken = 0
    for random_store in random_stores(range(part * 1_000, part * 1_000 + (300 if full_size else 6)), levels=bool(part)):
        store, trial = random_store.store, random_store.trial
        stranger = Stranger(random_store.rng, random_store.memory, random_store.engine._classes)
        stranger.write_rows()
        strange += len(stranger.bodies)
        trial.compare_all()
        report = store.check()
        assert report.ok, (random_store.seed, str(report))
        assert bool(report.foreign) == bool(stranger.bodies), (random_store.seed, report.foreign)
        before = trial.state
        if (tokens := stranger.take_tokens()) > 0:
            taken += tokens
            problems = store.check().problems
            assert sum(problem.kind == "uncounted" for problem in problems) <= tokens
            assert not repaired(store).remaining, random_store.seed
        trial.take_over()
        for record in random_store.model.entities:
            same_rows(before.written(record.name), trial.state.written(record.name))
        trial.compare_all()
        trial.compare_indexes()
        assert stranger.untouched(), random_store.seed
    assert strange > 30
    assert taken > 4
