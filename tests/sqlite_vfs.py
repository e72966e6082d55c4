"""SQLite file layers for the tests: one that fails on demand, one whose disk cannot be written, one that is slow."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import apsw

from tablemapper.errors import TableMapperError


class Fault:
    """Which call fails: the ``n``-th of ``op``, and all later ones if ``sticky``."""

    op = ""
    n = 0
    sticky = False
    error: Callable[[], Exception] = apsw.IOError
    count = 0
    fired = 0

    @classmethod
    def arm(cls, op: str, n: int, *, sticky: bool, error: Callable[[], Exception] = apsw.IOError) -> None:
        cls.op, cls.n, cls.sticky, cls.error, cls.count, cls.fired = op, n, sticky, error, 0, 0

    @classmethod
    def disarm(cls) -> int:
        cls.op = ""
        return cls.fired

    @classmethod
    def call(cls, op: str) -> None:
        if op != cls.op:
            return
        cls.count += 1
        if cls.count == cls.n or (cls.sticky and cls.count > cls.n):
            cls.fired += 1
            raise cls.error()


class Attempt:
    """The block of a `with` in which a call fails; an error of the library that comes of it is kept."""

    def __init__(self, op: str, n: int, *, sticky: bool = False, error: Callable[[], Exception] = apsw.IOError) -> None:
        self.op, self.n, self.sticky, self.error = op, n, sticky, error
        self.calls = self.fired = 0
        self.outcome: TableMapperError | None = None

    def __enter__(self) -> None:
        Fault.arm(self.op, self.n, sticky=self.sticky, error=self.error)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        self.calls, self.fired = Fault.count, Fault.disarm()
        self.outcome = error if isinstance(error, TableMapperError) else None
        return self.outcome is not None


def every(attempt: Callable[[int], Attempt], step: int = 1) -> Iterator[Attempt]:
    """Yield attempts in which the first call fails, the second, and so on, to one that meets no failure.

    Args:
        attempt: makes an attempt in which the n-th call fails.
        step: from one to the next; after the one that meets no failure comes the last call, if it was left out.
    """
    for n in range(1, 1_000, step):
        yield (one := attempt(n))
        if not one.fired:
            assert one.outcome is None
            if one.calls and one.calls not in range(1, n, step):
                yield attempt(one.calls)
            return
    raise AssertionError("it never came to its end")


def every_call(
    op: str, step: int = 1, *, sticky: bool = False, error: Callable[[], Exception] = apsw.IOError
) -> Iterator[Attempt]:
    """Yield attempts for each call of an operation of the disk, or for each ``step``-th."""
    return every(lambda n: Attempt(op, n, sticky=sticky, error=error), step)


def die() -> Any:
    """End the process, as a failure of a call in it."""
    os.kill(os.getpid(), signal.SIGKILL)


class _Quiet:
    def excepthook(self, *_: object) -> None:
        """What SQLite ignores is not to be printed."""


class FaultFile(_Quiet, apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        Fault.call("xWrite")
        super().xWrite(data, offset)

    def xRead(self, amount: int, offset: int) -> bytes:
        Fault.call("xRead")
        return super().xRead(amount, offset)

    def xSync(self, flags: int) -> None:
        Fault.call("xSync")  # and no real one, for speed

    def xTruncate(self, size: int) -> None:
        Fault.call("xTruncate")
        super().xTruncate(size)

    def xFileSize(self) -> int:
        Fault.call("xFileSize")
        return super().xFileSize()

    def xLock(self, level: int) -> None:
        Fault.call("xLock")
        super().xLock(level)


class FaultVFS(_Quiet, apsw.VFS):
    def __init__(self) -> None:
        super().__init__("faulty", "unix")

    def xOpen(self, name: Any, flags: list[int]) -> FaultFile:
        Fault.call("xOpen")
        return FaultFile(name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        Fault.call("xDelete")
        super().xDelete(name, sync)


class ReadOnlyFile(_Quiet, apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) | apsw.SQLITE_OPEN_READONLY
        super().__init__("unix", name, flags)


class ReadOnlyVFS(_Quiet, apsw.VFS):
    def __init__(self) -> None:
        super().__init__("readonly", "unix")

    def xOpen(self, name: Any, flags: list[int]) -> ReadOnlyFile:
        return ReadOnlyFile(name, flags)


class Slow:
    """How long a sync of the log takes, and how many there were; `sleep` can be replaced by what holds it up."""

    seconds = 0.002
    syncs = 0
    sleep: Callable[[float], object] = staticmethod(time.sleep)


class SlowFile(_Quiet, apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        self._log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        if self._log:
            Slow.syncs += 1
            Slow.sleep(Slow.seconds)


class SlowVFS(_Quiet, apsw.VFS):
    def __init__(self) -> None:
        super().__init__("slow", "unix")

    def xOpen(self, name: Any, flags: list[int]) -> SlowFile:
        return SlowFile(name, flags)


class Power:
    """What was written and synced, in that order, so that the power can be cut at each moment afterwards."""

    start_with: ClassVar[dict[str, bytes]] = {}
    log: ClassVar[list[tuple[str, str, int, bytes]]] = []
    """(what was done, the end of the file's name, where, what)"""
    path = ""
    events = 0

    @classmethod
    def start(cls, path: Path) -> None:
        cls.path, cls.events, cls.log[:] = str(path), 0, []
        cls.start_with = {
            end: Path(f"{path}{end}").read_bytes() for end in ("", "-wal") if os.path.exists(f"{path}{end}")
        }

    @classmethod
    def note(cls, op: str, name: str, at: int = 0, data: bytes = b"") -> None:
        """Note a call: write, truncate or sync a file, unlink or link (``data`` is the other name), or sync the names."""
        if name.startswith(cls.path):
            cls.log.append((op, name.removeprefix(cls.path), at, data))
            cls.events += 1

    @classmethod
    def cut(cls, moment: int, draw: random.Random, image: Path, *, lost: float = 0.5, torn: float = 0.1) -> None:
        """Write the files as they can be once the power was cut after so many calls.

        What was not synced is lost by chance, each sector of 512 bytes for itself, and each change of a name. Of a sector
        that is not lost, a part may be.
        """
        disk = {end: _Content(bytearray(data)) for end, data in cls.start_with.items()}
        names = dict(disk)  # as programs see them
        changes: list[tuple[str, _Content | None]] = []  # of names, which are not safe yet
        for op, end, at, data in cls.log[:moment]:
            if op == "names":
                _rename(disk, changes)
                changes.clear()
                continue
            if op == "unlink":
                names.pop(end, None)
                changes.append((end, None))
                continue
            if op == "link":
                names[other := data.decode()] = names[end]
                changes.append((other, names[end]))
                continue
            if (content := names.get(end)) is None:
                content = names[end] = _Content(bytearray())
                changes.append((end, content))
            if op == "sync":
                content.sync()
                if (end, content) in changes:  # the name of a new file goes with it, and what had that name before
                    disk[end] = content
                    changes = [change for change in changes if change[0] != end]
            elif op == "write":
                content.pending += [(at + n, data[n : n + 512]) for n in range(0, len(data), 512)]
            else:
                content.pending.append((at, None))
        _rename(disk, [change for change in changes if draw.random() >= lost])
        for end, content in disk.items():
            content.pending = [_torn(part, draw, torn) for part in content.pending if draw.random() >= lost]
            content.sync()
            Path(f"{image}{end}").write_bytes(content.safe)


_Part = tuple[int, bytes | None]
"""Where something was written, and what; None where the file was cut off."""


def _torn(part: _Part, draw: random.Random, chance: float) -> _Part:
    """Return a part of a sector, up to any byte or from there, by chance; else all of it."""
    place, data = part
    if data is None or draw.random() >= chance:
        return part
    at = draw.randrange(len(data) + 1)
    return (place, data[:at]) if draw.random() < 0.5 else (place + at, data[at:])


class _Content:
    """What is in a file, whatever its name."""

    def __init__(self, safe: bytearray) -> None:
        self.safe = safe
        self.pending: list[_Part] = []

    def sync(self) -> None:
        for place, part in self.pending:
            _apply(self.safe, place, part)
        self.pending = []


def _rename(disk: dict[str, _Content], changes: list[tuple[str, _Content | None]]) -> None:
    for end, content in changes:
        if content is None:
            disk.pop(end, None)
        else:
            disk[end] = content


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        del content[at:]
        return
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


class PowerFile(_Quiet, apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name or ""  # one for a sort has none
        super().__init__("unix", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        Power.note("write", self._name, offset, bytes(data))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        Power.note("sync", self._name)  # and no real one, for speed

    def xTruncate(self, size: int) -> None:
        Power.note("truncate", self._name, size)
        super().xTruncate(size)


class PowerVFS(_Quiet, apsw.VFS):
    def __init__(self) -> None:
        super().__init__("power", "unix")

    def xOpen(self, name: Any, flags: list[int]) -> PowerFile:
        return PowerFile(name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        super().xDelete(name, sync)
        Power.note("unlink", name)
        if sync:
            Power.note("names", name)


FAULTY = FaultVFS()
POWER = PowerVFS()
READONLY = ReadOnlyVFS()
SLOW = SlowVFS()
