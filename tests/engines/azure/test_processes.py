"""Processes of several versions that write, build and migrate one account, beside a service that fails in every way."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm

from . import programs
from .azurite import KEY, Azurite
from .programs import COUNTERS, FAULT, TEAMS, TIMES, classes, state
from .proxy import Faults, Proxy, proxy

pytestmark = [pytest.mark.one_python, pytest.mark.long, pytest.mark.usefixtures("no_warnings_of_scans", "short_times")]
_MOST = 60.0  # seconds
FAULTS = Faults(busy=0.03, lost_requests=0.01, lost_answers=0.02, cut_answers=0.01, late=0.01, doubled=0.02, empty=0.05)


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    from tablemapper.engines.azure import engine

    monkeypatch.setattr(engine, "Outbox", engine.Outbox)
    programs.hurried()


def through(connection: str, azurite: Azurite, port: int) -> str:
    return connection.replace(f":{azurite.port}/", f":{port}/")


@attrs.define(eq=False)
class Round:
    """Writers that are killed and stopped, of two versions; a builder of what the newer one has more; a script.

    Args:
        connection: to the account.
        between: the proxy that all programs go through.
        place: the connection to that.
        folder: for the notes of writers.
        seed: draws the classes, and what happens.
        seconds: for which writers are at it, at least.
        least: how many writes are to be done, on a machine that is not too slow for that.
        migrates: whether a script copies the entities at the end, beside writers.
    """

    connection: str
    between: Proxy
    place: str
    folder: Path
    seed: int
    seconds: float
    least: int = 0
    size: int = 4
    migrates: bool = False
    fault: str = ""
    notes: list[Path] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)
    begun: list[subprocess.Popen[bytes]] = attrs.field(factory=list)

    def run(self) -> None:
        """Let all of it happen, and compare what is stored with what the writers were told."""
        try:
            self._play()
        finally:
            for one in self.begun:
                one.kill()
                one.wait()
        self._compare()

    def _start(self, role: str, version: int) -> subprocess.Popen[bytes]:
        self.notes.append(self.folder / f"notes-{len(self.notes)}")
        arguments = [role, self.place, str(self.seed), str(version), str(self.notes[-1])]
        command = [sys.executable, "-m", "tests.engines.azure.programs", *arguments]
        environment = {**os.environ, FAULT: self.fault}
        self.begun.append(subprocess.Popen(command, env=environment))
        return self.begun[-1]

    def _play(self) -> None:
        draw, kinds = random.Random(self.seed), classes(self.seed, 1)
        with tm.open(self.connection, models=kinds.models) as store:
            store.insert_many([kinds.Counter(name, 0) for name in COUNTERS])
        crew = [self._start("write", 1) for _ in range(self.size)]
        while not all(path.exists() and path.stat().st_size > 500 for path in self.notes):
            time.sleep(0.05)
        began, stopped, builder = time.monotonic(), dict[int, float](), None
        while (now := time.monotonic() - began) < self.seconds or (self._lacks_events() and now < _MOST):
            for at in [at for at, until in stopped.items() if until < now]:
                del stopped[at]
                crew[at].send_signal(signal.SIGCONT)
            if now > 0.3 * self.seconds and (builder is None or builder.poll() is not None):
                builder = self._start("build", 2)
            at = draw.randrange(len(crew))
            if at not in stopped:
                if draw.random() < 0.5:
                    self.counts["stopped"] += 1
                    crew[at].send_signal(signal.SIGSTOP)
                    stopped[at] = now + draw.choice([0.5, 1.5, TIMES.settled + 1.0])
                else:
                    self.counts["killed"] += 1
                    crew[at].kill()
                    crew[at] = self._start("write", 2 if now > 0.3 * self.seconds and draw.random() < 0.5 else 1)
            if builder is not None and draw.random() < 0.1:
                self.counts["builders"] += builder.poll() is None
                builder.kill()
            time.sleep(max(self.seconds / 30, 0.3) * (0.5 + draw.random()))
        for at in stopped:
            crew[at].send_signal(signal.SIGCONT)
        if builder is not None:
            builder.kill()
        if self.migrates:
            self._migrate(draw)
        self._end(crew)

    def _lacks_events(self) -> bool:
        """Return whether too little has happened so far: writes that were told as done, kills, and halts."""
        done = sum(path.read_text().count('["done"') for path in self.notes if path.exists())
        return done < self.least or not (self.counts["killed"] and self.counts["stopped"])

    def _migrate(self, draw: random.Random) -> None:
        with tm.open(self.connection, models=classes(self.seed, 2).models):
            pass  # (all is ready then)
        runner = self._start("migrate", 3)
        if draw.random() < 0.5:
            time.sleep(1 + 5 * draw.random())
            self.counts["runners"] += runner.poll() is None
            runner.kill()
            runner.wait()
        while runner.returncode != 0:
            self.counts["runs"] += 1
            runner = self._start("migrate", 3)
            assert runner.wait(120) in (0, 1)
            assert self.counts["runs"] < 10

    def _end(self, crew: list[subprocess.Popen[bytes]]) -> None:
        faults = self.between.faults
        for name in ("busy", "lost_requests", "lost_answers", "cut_answers", "late", "doubled", "empty"):
            setattr(faults, name, 0.0)
        for one in crew:
            one.terminate()
        assert {one.wait(60) for one in crew} <= {0, -signal.SIGTERM}  # (the latter before it had begun)
        time.sleep(faults.late_by)

    # -- what has to hold

    def _compare(self) -> None:
        kinds = classes(self.seed, 3 if self.migrates else 2)
        with tm.open(self.connection, models=kinds.models) as store:
            report = store.build()
            assert report.ok, report
            for _ in range(60):
                store.sweep(full=True)
                if (checked := store.check()).ok:
                    break
                time.sleep(0.5)
            assert checked.ok, checked
            items = list(store.query(kinds.Item).allow_scan())
            self._outcomes(
                {one.id: one for one in items}, {name: store[kinds.Counter.key(name)].n for name in COUNTERS}
            )
            self._indexes(store, kinds, items)

    def _indexes(self, store: tm.Store, kinds: Any, items: list[Any]) -> None:
        def ids(some: Any) -> list[str]:
            return sorted([one.id for one in some])

        Item = kinds.Item
        for team in TEAMS:
            mine = [one for one in items if one.team == team]
            assert ids(store.query(Item.by_team(team))) == ids(mine)
            assert ids(store.query(Item.by_big(team))) == ids([one for one in mine if one.size > 1.0])
            board = store.get(kinds.Teams.key(team))
            sums = (0, 0.0, None) if board is None else (board.items, board.total, board.most)
            assert sums == (
                len(mine),
                math.fsum([one.size for one in mine]),
                max([one.size for one in mine], default=None),
            )
        for tag in programs.TAGS:
            assert ids(store.query(Item.by_tag(tag))) == ids([one for one in items if tag in one.tags])
        for code in programs.CODES:
            mine = [one for one in items if one.code == code]
            assert len(mine) <= 1, mine
            assert ids(store.query(Item.by_code(code))) == ids(mine)
        for shop in programs.SHOPS:
            mine = [one for one in items if one.shop == shop]
            nicks = [one.nick for one in mine if one.nick is not None]
            assert len(nicks) == len(set(nicks))
            assert ids(store.query(Item.by_size(shop))) == ids(mine)
            total = store.get(kinds.Shops.key(shop))
            assert (0 if total is None else total.items) == len(mine)

    def _outcomes(self, stored: dict[str, Any], counters: dict[str, int]) -> None:
        """Compare what each process was told with what is stored."""
        sure, unsure = Counter[str](), Counter[str]()
        for path in self.notes:
            possible: dict[str, list[Any]] = {}
            for after, outcome in self._told(path):
                self.counts[outcome] += 1
                for name, one in after.items():
                    if one == "+1":
                        sure[name] += outcome == "done"
                        unsure[name] += outcome in ("unknown", "cut off")
                    elif outcome == "done":
                        possible[name] = [one]
                    else:
                        possible.setdefault(name, [None])
                        possible[name] += [one] if outcome != "failed" else []
            for name, states in possible.items():
                found = state(stored.get(name))
                assert found in states, f"{path.name} {name}: {found} is stored, possible are {states}"
        for name, n in counters.items():
            assert sure[name] <= n <= sure[name] + unsure[name], (name, n, sure[name], unsure[name])

    @staticmethod
    def _told(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield what a process tried, and what came of it."""
        trying: dict[str, Any] | None = None
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                kind, *rest = json.loads(line)
            except json.JSONDecodeError:  # it was killed here
                continue
            if kind == "try":
                trying = rest[0]
            elif kind in ("done", "unknown", "failed") and trying is not None:
                yield trying, kind
                trying = None
        if trying is not None:
            yield trying, "cut off"


def played(azurite: Azurite, folder: Path, seed: int, **options: Any) -> Counter[str]:
    connection = azurite.connection()
    folder.mkdir(exist_ok=True)
    with proxy(azurite.port, attrs.evolve(options.pop("faults", FAULTS)), seed) as between:
        place = through(connection, azurite, between.server_port)
        one = Round(connection, between, place, folder, seed, **options)
        one.run()
        print(f"seed {seed}: {between.requests} requests, {dict(one.counts)}, {dict(between.counts)}", flush=True)
    return one.counts


def test_what_processes_were_told_is_true_and_all_that_is_maintained_follows(
    azurite: Azurite, tmp_path: Path, full_size: bool
) -> None:
    rounds = range(20) if full_size else range(1)
    for seed in rounds:
        much: dict[str, Any] = {"size": 4, "seconds": 60.0} if full_size else {"size": 2, "seconds": 2.0, "least": 10}
        counts = played(azurite, tmp_path / f"{seed}", seed, migrates=full_size, **much)
        assert min(counts["done"], counts["killed"], counts["stopped"]) > 0, counts


@pytest.mark.parametrize("fault", ["nothing was done", "no marker"])
def test_a_fault_of_programs_is_caught(azurite: Azurite, tmp_path: Path, full_size: bool, fault: str) -> None:
    if not full_size:
        pytest.skip("takes a minute; the simulations look for the same faults in each run")
    often = attrs.evolve(FAULTS, lost_answers=0.2)
    with pytest.raises(AssertionError):
        for seed in range(5):
            played(azurite, tmp_path / f"{seed}", seed, seconds=20.0, least=200, fault=fault, faults=often)


def test_no_key_is_in_what_a_proxy_that_fails_brings_about(azurite: Azurite, connection: str) -> None:
    with proxy(azurite.port, Faults(cut=True)) as between:
        place = through(connection, azurite, between.server_port)
        with pytest.raises(tm.StoreError) as raised:
            tm.open(place, models=classes(1, 1).models, timeout=0.2)
    assert KEY not in str(raised.value)
