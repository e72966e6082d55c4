"""A migration of a class over which something is still being built."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from .shapes import FIELDS, changed, migrate, part, script, totals

MANY = 1_100  # (over fewer entities, an index is built in the transaction that declares it)
PLAIN, OLD = part(), part(by_maker=tm.Index[str](partition="{maker}"))
OLD_TOTALS = totals(OLD, "maker")
KEYED = part(key=tm.Key[str, int](partition="{shelf:shard(4)}", row=("{shelf}", "{number}")))
PRICED = part(changed(FIELDS, price=Decimal))
STEPS: dict[str, tuple[Any, Any]] = {
    "writes": (KEYED, lambda m: (m.rekey(OLD, KEYED), m.drop(OLD_TOTALS))),
    "reads": (PRICED, lambda m: (m.convert(OLD.price, PRICED.price, Decimal, back=str), m.drop(OLD_TOTALS))),
}


@pytest.mark.parametrize("level", STEPS)
def test_what_the_old_version_has_begun_to_build_serves_it_after_the_switch(tmp_path: Path, level: str) -> None:
    path, (new, steps) = tmp_path / "s.db", STEPS[level]
    with tm.open(path, models=[PLAIN], durability="relaxed") as store:
        store.insert_many(PLAIN("a", number, price="1", maker="m", tags=[]) for number in range(MANY))
    with tm.open(path, models=[OLD, OLD_TOTALS], build=False, durability="relaxed") as old:
        with pytest.raises(tm.NotReady):
            list(old.query(OLD.by_maker("m")))
        assert {step.old_version for step in migrate(path, script([new], steps, old=[OLD, OLD_TOTALS])).plan} == {level}
        assert len(list(old.query(OLD.by_maker("m")))) == MANY
        assert old[OLD_TOTALS.key("a")].parts == MANY
        assert old.check().ok
