"""A power cut tears a page within a sector: the log, or the journal, that repairs it is used, never refused."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tablemapper.engines.sqlite.driver import connections
from tablemapper.engines.sqlite.file.opening import open_file
from tablemapper.errors import CorruptStore, NotAStore

from .... import sqlite_vfs  # noqa: F401  registers the file layers
from ....sqlite_vfs import Power
from ..table import Clock, checkpoint, create_table, insert, open_table

PAGE = 4096


def half_copied(path: Path) -> tuple[bytes, bytes, bytes]:
    """Return the file before its log is copied there, after it, and the log, in which another store object wrote."""
    clock = Clock(1_795_402_010_623_974)
    with open_file(path, clock=clock) as file:
        for write in (create_table, insert(0), insert(1)):  # so that it has time to give back, and its owner becomes 0
            clock.now += 1
            file.write(write)
    before = path.read_bytes()
    with open_file(path, clock=clock) as file:
        clock.now += 1_000_000
        file.write(insert(2))
        log = Path(f"{path}-wal").read_bytes()
        assert path.read_bytes() == before
        checkpoint(file)
        return before, path.read_bytes(), log


def torn(before: bytes, after: bytes) -> Iterator[bytes]:
    """Yield a file with each page half written, at each byte, from the front or from the back."""
    images = set[bytes]()
    for start in range(0, len(after), PAGE):
        old, new = before[start : start + PAGE].ljust(PAGE, b"\0"), after[start : start + PAGE]
        for at in range(PAGE + 1 if new != old else 0):
            pages = {new[:at] + old[at:], old[:at] + new[at:]}
            if at > PAGE - 70:  # what the sector held before can be lost, too
                pages.add(new[:at] + b"\xff" * (PAGE - at))
            images |= {before[:start] + page + before[start + PAGE :] for page in pages}
    yield from images


def refused(path: Path) -> list[str]:
    """Return how often, and why, a file of which one page was torn while its log was copied there is refused."""
    before, after, log = half_copied(path)
    image, wrong, files = path.with_name("image.db"), [], list(torn(before, after))
    assert len(files) > 50
    for torn_file in files:
        image.write_bytes(torn_file)
        Path(f"{image}-wal").write_bytes(log)
        try:
            with open_file(image) as file:
                assert file.read("SELECT v FROM t") == [(0,), (1,), (2,)]
                assert file.integrity() == []
        except CorruptStore as error:
            wrong.append(str(error))
    return wrong


def test_a_file_opens_whose_pages_were_torn_anywhere_while_its_log_was_copied(path: Path) -> None:
    assert refused(path) == []


def test_the_tears_find_a_comparison_with_what_may_be_torn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the row is believed without its proof."""
    believed = connections.READ_IDENTITY.replace("fences / 16 = until", "1")
    assert believed != connections.READ_IDENTITY
    monkeypatch.setattr(connections, "READ_IDENTITY", believed)
    assert refused(path) != []


def half_created(path: Path) -> Iterator[bytes]:
    """Write the journal of the first open beside a path, and yield what the file can hold then."""
    Power.start(path)
    open_file(path, vfs="power").close()
    pages = [at for at, (op, end, _, _) in enumerate(Power.log) if (op, end) == ("write", "")]
    first, second = (Power.log[at][3] for at in pages[:2])
    Power.cut(pages[0], random.Random(0), path, lost=0)
    for at in (1, 15, 16, 17, 20, 52, 56, 60, 62, 64, 68, 70, 71, 72, 99, 100, PAGE):  # borders of the header's parts
        for page in (
            first[:at],
            first[:at].ljust(PAGE, b"\0"),
            bytes(at) + first[at:],
            first[:at].ljust(PAGE, b"\xff"),
        ):
            yield page
            yield page.ljust(PAGE, b"\0") + second


def test_a_file_opens_whose_first_page_was_torn_anywhere_while_it_became_a_store(path: Path) -> None:
    for count, content in enumerate(half_created(path)):
        image = path.with_name(f"{count}.db")
        image.write_bytes(content)
        shutil.copy(f"{path}-journal", f"{image}-journal")
        if content:
            with pytest.raises(NotAStore, match="is empty; name the file of a store"):
                open_file(image, create=False)
            assert image.read_bytes() == content
        with open_table(image) as file:
            assert file.integrity() == []
