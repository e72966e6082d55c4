"""The processes that run cases, and what is found."""

from __future__ import annotations

import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import attrs

import tablemapper as tm

from ..threads import at_once
from . import building, evolving
from .catalogues import Catalogues
from .damage import Damage
from .operations import raw, use

SECONDS = 5  # of the processor, for one operation
PATIENCE = 120  # seconds by the clock, for a process that waits instead of working


@attrs.frozen
class Finding:
    """An error that is not one of the library's own, or blames the classes; ``hang`` for an operation that did not end."""

    case: str
    damage: str
    operation: str
    error: str


def _run(spec: str, folder: str, kinds: Mapping[str, Damage | Catalogues]) -> Iterator[Finding]:
    """Run a case.

    ``h17`` is that of a file, ``c17`` of a catalogue, ``m17`` of one in the middle of migrations, ``b17`` of one in the
    middle of builds, ``control h17`` does without the library, and ``endless`` never ends.
    """
    if spec == "endless":
        os.write(1, b'{"at": "endless", "damage": ""}\n')
        signal.setitimer(signal.ITIMER_PROF, 0.1)
        sum(count())
    case = spec.removeprefix("control ")
    kind, number = case[0], int(case[1:])
    folder += "/case"
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    path, damaged = f"{folder}/x.db", f"{folder}/damaged.db"
    try:
        done = kinds[kind].make(number, damaged)
    except (apsw.Error, OverflowError):
        return  # SQLite did not take it
    found: list[Finding] = []

    def attempt(name: str, operation: Callable[[], object]) -> bool:
        os.write(1, json.dumps({"at": name, "damage": done}).encode() + b"\n")
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            operation()
        except Exception as error:
            if isinstance(error, tm.TableMapperError) and not isinstance(error, tm.InvalidModel):
                return False
            frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tests/" not in f.filename] or [None]
            where = "" if frames[-1] is None else f" in {Path(frames[-1].filename).name} {frames[-1].name}"
            found.append(Finding(spec, done, name, f"{type(error).__name__}: {str(error)[:150]}{where}"))
            return False
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return True

    def spoil() -> None:
        with open(path, "r+b") as file:
            file.write(Path(damaged).read_bytes())
            file.truncate()

    if case != spec:
        raw(damaged, attempt)
    elif kind in "mb":
        (evolving if kind == "m" else building).use(damaged, folder, attempt, random.Random(number))
    elif number % 8:
        use(damaged, folder, attempt, random.Random(number))
    else:
        done = f"under an open store: {done}"
        shutil.copy(kinds["h"].path, path)
        use(path, folder, attempt, random.Random(number), spoil)
    yield from found


def work() -> None:
    """Run the cases that stand on the lines of the input, in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # it ends the process, whatever that is doing
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        sound_file = Damage(folder)
        kinds: dict[str, Damage | Catalogues] = {
            "h": sound_file,
            "c": Catalogues(f"{folder}/sound.db", lambda path: None),
            "m": Catalogues(f"{folder}/evolving.db", evolving.evolving),
            "b": Catalogues(f"{folder}/building.db", building.building),
        }
        for line in sys.stdin:
            findings = [attrs.asdict(one) for one in _run(line.strip(), folder, kinds)]
            os.write(1, json.dumps({"done": findings}).encode() + b"\n")


class Worker:
    """A process that runs cases; another one takes its place if it ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, spec: str) -> list[Finding]:
        if self._process is None:
            command = [sys.executable, "-W", "ignore", "-m", "tests.hostile", "work"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
            )
        process = self._process
        assert process.stdin is not None
        process.stdin.write(spec.encode() + b"\n")
        process.stdin.flush()
        last: dict[str, Any] = {"at": "start", "damage": ""}
        for line in self._lines(process):
            told = json.loads(line)
            if "done" in told:
                return [Finding(**one) for one in told["done"]]
            last = told
        process.kill()
        status = self._ended()
        why = "hang" if status in (-signal.SIGPROF, -signal.SIGKILL) else f"the process ended with {status}"
        return [Finding(spec, last["damage"], last["at"], why)]

    def _lines(self, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
        """Yield what a process writes, until it ends, or says nothing for long."""
        assert process.stdout is not None
        rest = b""
        while select.select([process.stdout], [], [], PATIENCE)[0] and (
            data := os.read(process.stdout.fileno(), 65536)
        ):
            *lines, rest = (rest + data).split(b"\n")
            yield from lines

    def close(self) -> None:
        if self._process is not None:
            self._ended()

    def _ended(self) -> int:
        """Return how the process ended, which it does once it gets no more cases."""
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        status = process.wait()
        process.stdout.close()
        return status


def findings(specs: Iterable[str], processes: int = 1) -> list[Finding]:
    """Run cases in processes of their own, and return what is found."""
    rest, found = iter(specs), list[Finding]()
    lock = threading.Lock()

    def work() -> None:
        worker = Worker()
        try:
            while True:
                with lock:
                    spec = next(rest, None)
                if spec is None:
                    return
                found.extend(worker.run(spec))
        finally:
            worker.close()

    at_once(*[work] * processes)
    return found
