"""Processes that write to the same groups of one account, beside a service that fails in every way."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

import tablemapper as tm

from .azurite import KEY, Azurite
from .crew import MODELS, TEAMS, Board, Member, hurried
from .proxy import Faults, proxy

pytestmark = [pytest.mark.one_python, pytest.mark.long]


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    from tablemapper.engines.azure import engine

    monkeypatch.setattr(engine, "Outbox", engine.Outbox)
    hurried()


def through(connection: str, azurite: Azurite, port: int) -> str:
    return connection.replace(f":{azurite.port}/", f":{port}/")


def test_processes_that_are_killed_leave_exact_totals(
    azurite: Azurite, connection: str, tmp_path: Path, full_size: bool, short_times: None
) -> None:
    seconds, cut, size = (60.0, 5.0, 8) if full_size else (2.0, 0.3, 3)
    draw = random.Random(7)
    faults = Faults(busy=0.1, lost_requests=0.01, lost_answers=0.03)
    notes: list[Path] = []
    killed = contradictions = reads = 0
    with tm.open(connection, models=MODELS) as store, proxy(azurite.port, faults) as between:
        place = through(connection, azurite, between.server_port)

        def start() -> subprocess.Popen[bytes]:
            notes.append(tmp_path / f"notes-{len(notes)}")
            arguments = [place, str(len(notes)), str(notes[-1])]
            return subprocess.Popen([sys.executable, "-m", "tests.engines.azure.crew", *arguments])

        crew = [start() for _ in range(size)]
        while not all(path.exists() and path.stat().st_size > 1000 for path in notes):
            time.sleep(0.05)
        began = time.time()
        while (now := time.time() - began) < seconds:
            faults.cut = seconds / 2 < now < seconds / 2 + cut
            if now > killed * seconds / size:
                at = draw.randrange(len(crew))
                crew[at].kill()
                crew[at].wait()
                crew[at] = start()
                killed += 1
            team = draw.choice(TEAMS)
            found = list(store.query(Member).where(Member.team == team).limit(50))
            contradictions += sum(one.team != team for one in found)
            reads += len(found)
        faults.cut = False
        faults.busy = faults.lost_requests = faults.lost_answers = 0.0
        for one in crew:
            one.terminate()
        assert {one.wait(60) for one in crew} <= {0, -signal.SIGTERM}  # (the latter before it had begun)
        for _ in range(30):
            store.sweep(full=True)
            report = store.check()
            if report.ok:
                break
            time.sleep(0.5)
        assert report.ok, report
        members = list(store.query(Member).allow_scan())
        outcomes = check_outcomes(notes, {one.id: one for one in members})
        boards = {team: store.group(Board.key(team)) for team in TEAMS}
    assert contradictions == 0
    assert killed
    assert reads
    assert min(outcomes["done"], outcomes["unknown"] + outcomes["cut off"]) > 0, dict(outcomes)
    for team in TEAMS:
        scores = [one.score for one in members if one.team == team]
        board = boards[team]
        assert (board.members, board.total, board.most) == (len(scores), math.fsum(scores), max(scores, default=None))
    emails = [one.email for one in members if one.email is not None]
    assert len(emails) == len(set(emails))
    print(f"{between.requests} requests, {killed} killed, {reads} entities read by index, {dict(outcomes)}")


def check_outcomes(notes: list[Path], stored: dict[str, Member]) -> dict[str, int]:
    """Compare what each process was told with what is stored."""
    outcomes: dict[str, int] = defaultdict(int)
    for path in notes:
        possible: dict[str, list[object]] = {}
        trying: tuple[str, object] | None = None
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                kind, *rest = json.loads(line)
            except json.JSONDecodeError:  # it was killed here
                continue
            if kind == "try":
                trying = (rest[1], rest[2])
                possible.setdefault(rest[1], [None])
            elif kind in ("done", "unknown", "failed"):
                outcomes[kind] += 1
                assert trying is not None
                if kind == "done":
                    possible[trying[0]] = [trying[1]]
                elif kind == "unknown":
                    possible[trying[0]].append(trying[1])
                trying = None
        if trying is not None:
            outcomes["cut off"] += 1
            possible[trying[0]].append(trying[1])
        for name, states in possible.items():
            one = stored.get(name)
            state = None if one is None else [one.team, one.score, one.email]
            assert state in states, f"{path.name} {name}: {state} is stored, possible are {states}"
    return outcomes


def test_no_key_is_in_what_a_proxy_that_fails_brings_about(azurite: Azurite, connection: str) -> None:
    with proxy(azurite.port, Faults(cut=True)) as between:
        place = through(connection, azurite, between.server_port)
        with pytest.raises(tm.StoreError) as raised:
            tm.open(place, models=MODELS, timeout=0.2)
    assert KEY not in str(raised.value)
