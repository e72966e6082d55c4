"""The clock of an account goes on while a machine stands still, as soon as an answer says so."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from tablemapper.engines import locations
from tablemapper.engines.azure.tables.elapsed_clock import ElapsedClock

from .test_wire import GET, Transport, wired


class Machine:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def date(seconds: float) -> str:
    return formatdate(1_700_000_000 + seconds, usegmt=True)


def test_seconds_for_which_a_machine_stood_still_are_counted_once() -> None:
    machine = Machine()
    elapsed = ElapsedClock(machine)
    elapsed.heard(date(0))
    machine.now += 10
    elapsed.heard(date(10))
    assert elapsed() == 110
    elapsed.heard(date(3610))
    elapsed.heard(date(3611))
    assert elapsed() == 3710
    machine.now += 1
    elapsed.heard(date(3612))
    elapsed.heard(date(20))  # (it was on its way all the time)
    assert elapsed() == 3711


@pytest.mark.parametrize("wrong", [None, "", "now", date(3).replace("Nov", "Xxx"), date(4)])
def test_what_is_no_time_and_what_servers_differ_by_says_nothing(wrong: str | None) -> None:
    elapsed = ElapsedClock(Machine())
    elapsed.heard(date(0))
    elapsed.heard(wrong)
    assert elapsed() == 100


def test_without_an_answer_it_is_the_clock_of_the_machine() -> None:
    elapsed = ElapsedClock()
    first = elapsed()
    time.sleep(0.001)
    assert 0 < elapsed() - first < 5


def test_each_answer_is_heard_by_the_clock_of_the_store() -> None:
    wire = wired(Transport(200, {"Date": date(0)}))
    wire.elapsed = ElapsedClock(Machine())
    wire.send(GET)
    wire._pool = Transport(404, {"Date": date(60)}, b'{"odata.error": {"code": "ResourceNotFound"}}')
    wire.send(GET)
    assert wire.elapsed() == 160
    found = locations.place_of(
        "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net"
    )
    arguments = found._connect("full", None)  # type: ignore[union-attr]
    assert arguments["monotonic"] is arguments["service"].elapsed
