from __future__ import annotations

import io
import itertools

import pytest

from tablemapper.progress import Progress, line_of, start_meter


class Clock:
    """A clock that stands still until it is told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def test_a_function_is_told_ten_times_a_second_and_at_the_end(clock: Clock) -> None:
    told: list[Progress] = []
    with start_meter(told.append, "building", total=1000, clock=clock) as work:
        for _ in range(1000):
            clock.now += 1 / 1024
            work.advance(1)
    assert 9 <= len(told) <= 11
    assert all(later.seconds - earlier.seconds >= 0.1 for earlier, later in itertools.pairwise(told[:-1]))
    assert told[-1] == Progress(done=1000, total=1000, seconds=1000 / 1024, what="building")


def test_short_work_is_told_once(clock: Clock) -> None:
    told: list[Progress] = []
    with start_meter(told.append, "building", clock=clock) as work:
        work.advance(3)
        work.advance(4)
    assert told == [Progress(done=7, total=None, seconds=0.0, what="building")]


def test_work_that_fails_does_not_tell_that_it_ended(clock: Clock) -> None:
    told: list[Progress] = []
    with pytest.raises(KeyError), start_meter(told.append, "building", clock=clock) as work:
        work.advance(3)
        raise KeyError
    assert told == []


def test_what_the_function_raises_stops_the_work(clock: Clock) -> None:
    def stop(progress: Progress) -> None:
        raise InterruptedError(progress.done)

    with pytest.raises(InterruptedError, match="5"), start_meter(stop, "building", clock=clock) as work:
        clock.now += 1
        work.advance(5)
        pytest.fail("the work went on")


def test_no_progress_is_counted_and_not_told(clock: Clock, terminal: Terminal) -> None:
    with start_meter(False, "building", clock=clock, stream=terminal) as work:
        clock.now += 1
        work.advance(5)
    assert work.count == 5
    assert terminal.getvalue() == ""


def test_a_bar_is_drawn_over_itself_and_leaves_an_empty_line(clock: Clock, terminal: Terminal) -> None:
    with start_meter(True, "building", total=4, clock=clock, stream=terminal) as work:
        for _ in range(4):
            clock.now += 1
            work.advance(1)
    lines = terminal.getvalue().split("\r")
    assert "\n" not in terminal.getvalue()
    assert lines[2] == "building  [############............]  50%  2 of 4  1/s"
    assert lines[-2].strip() == ""
    assert len(lines[-2]) == len(lines[2])
    assert lines[-1] == ""


def test_a_bar_is_cleared_when_the_work_fails(clock: Clock, terminal: Terminal) -> None:
    with pytest.raises(KeyboardInterrupt), start_meter(True, "building", clock=clock, stream=terminal) as work:
        clock.now += 1
        work.advance(1)
        raise KeyboardInterrupt
    assert terminal.getvalue().endswith(" \r")


def test_a_shorter_line_leaves_nothing_of_the_longer_one(clock: Clock, terminal: Terminal) -> None:
    with start_meter(True, "building", clock=clock, stream=terminal) as work:
        clock.now += 0.5
        work.advance(100_000)
        clock.now += 1000
        work.advance(0)
    first, second = terminal.getvalue().split("\r")[1:3]
    assert len(second) == len(first)
    assert second.endswith(" ")


def step(clock: Clock, terminal: Terminal, what: str = "building", total: int | None = None) -> None:
    """Do one step of work in a second."""
    with start_meter(True, what, total=total, clock=clock, stream=terminal) as work:
        clock.now += 1
        work.advance(1)


def test_a_bar_fits_the_terminal(clock: Clock, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    step(clock, terminal, "building by_manufacturer")
    assert max(map(len, terminal.getvalue().split("\r"))) == 19


def test_no_bar_is_drawn_where_it_would_not_be_seen(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_meter(True, "building", clock=clock) as work:  # pytest's stderr is no terminal
        clock.now += 1
        work.advance(1)
    closed = Terminal()
    closed.close()
    with start_meter(True, "building", clock=clock, stream=closed):
        pass
    monkeypatch.setattr("sys.stderr", None)
    with start_meter(True, "building", clock=clock):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_dumb_terminal_gets_no_bar(clock: Clock, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    step(clock, terminal)
    assert terminal.getvalue() == ""


def test_a_bar_has_no_colours(clock: Clock, terminal: Terminal) -> None:
    step(clock, terminal, total=2)
    assert "\033" not in terminal.getvalue()


def test_a_terminal_that_goes_away_does_not_stop_the_work(clock: Clock, terminal: Terminal) -> None:
    with start_meter(True, "building", clock=clock, stream=terminal) as work:
        clock.now += 1
        work.advance(1)
        terminal.close()
        clock.now += 1
        work.advance(1)
    assert work.count == 2


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress(0, 0, 0.0, "x"), "x  0"),
        (Progress(1500, None, 1.0, "x"), "x  1,500  1,500/s"),
        (Progress(3, 2, 1.0, "x"), "x  [########################] 100%  3 of 2  3/s"),
    ],
    ids=["nothing to do", "unknown total", "more than was announced"],
)
def test_a_line_says_what_is_known(progress: Progress, line: str) -> None:
    assert line_of(progress) == line
