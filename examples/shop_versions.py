"""A shop goes through six versions. A service of the version before runs beside each deployment, and is not asked to stop.

    python examples/shop_versions.py

Versions 2 and 5 need no script: fields with defaults, indexes and aggregates are added while the older version goes on.
Version 3 renames a field: its script is for the catalogue alone, and both versions read and write until it is contracted.
Versions 4 and 6 change a type and a key: entities are copied while the older version writes, which ends at the switch.
"""

from __future__ import annotations

import importlib
import json
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import tablemapper as tm

HERE = Path(__file__).parent
SCRIPTS = {3: "0001_manufacturer", 4: "0002_decimal_prices", 6: "0003_order_by_name"}


def shop(version: int) -> ModuleType:
    """Return the models of a version."""
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    return importlib.import_module(f"shop.v{version}")


def serve(version: int, place: str) -> None:
    """Insert products until stdin ends, or until the store is not this version's any more; say how many."""
    models = shop(version)
    first = version * 1_000_000
    written, ended = 0, None
    with tm.open(place, models=models.MODELS, timeout=60) as store:
        print("open", flush=True)
        deadline = time.monotonic() + 60
        stopped = False
        while not stopped and time.monotonic() < deadline:
            try:
                store.insert(models.new_product(first + written))
            except tm.SchemaMismatch as error:
                ended = str(error)
                break
            written += 1
            stopped = _asked_to_stop()
    print(json.dumps([written, ended]), flush=True)


def _asked_to_stop() -> bool:
    return bool(select.select([sys.stdin], [], [], 0.002)[0])


class Service:
    """A version in a process of its own."""

    def __init__(self, version: int, place: Path) -> None:
        self.version = version
        self._process = subprocess.Popen(
            [sys.executable, __file__, "serve", str(version), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "open\n":
            raise RuntimeError(f"version {version} could not open the store")

    def stop(self) -> tuple[int, str | None]:
        """Stop it; return how many products it wrote, and why it had ended before, if it had."""
        written, ended = json.loads(self._process.communicate("\n", timeout=60)[0])
        return written, ended


def deploy(version: int, place: Path, before: Service) -> tuple[Service, int]:
    """Deploy a version beside the one that runs; return its service, and how many products the old one wrote."""
    print(f"version {version}: {(shop(version).__doc__ or '').strip()}")
    if version in SCRIPTS:
        report = tm.migrate(place, "shop.migrations", to=SCRIPTS[version], rest=0.2)
        print(f"  {SCRIPTS[version]}: {report.entities:,} entities were copied")
    service = Service(version, place)
    time.sleep(0.2)  # both run
    written, ended = before.stop()
    print(
        f"  version {before.version} wrote {written:,} products beside it"
        + (", and then ended:" if ended else "")
    )
    if ended:
        print(f"    {ended.partition(': ')[2] or ended}")
    return service, written


def deploy_all(place: Path) -> None:
    """Deploy one version after the other, and count the products at the end."""
    shop(1)
    with tm.open(place, models=shop(1).MODELS) as store:
        total: int = store.insert_many(
            shop(1).new_product(number) for number in range(5_000)
        )
    service = Service(1, place)
    for version in range(2, 7):
        service, written = deploy(version, place, service)
        total += written
    total += service.stop()[0]

    models: Any = shop(6)
    with tm.open(place, models=models.MODELS) as store:
        lamps = store[models.Assortment.key("lamps")]
        print(
            f"at the end: {lamps.products:,} products, {'none' if lamps.products == total else 'some'} lost"
        )
        print(store.check())
        print(store.status())


def main() -> None:
    """Deploy all versions of a shop that is kept in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        deploy_all(Path(folder) / "shop.db")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]), sys.argv[3])
    else:
        main()
