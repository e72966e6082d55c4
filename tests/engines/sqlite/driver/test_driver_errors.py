"""What the driver and the operating system raise, as errors of this library."""

from __future__ import annotations

import errno

import pytest

from tablemapper.engines.sqlite.driver.driver_errors import translated


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_named(number: int) -> None:
    assert "check its directory and the limit of open files" in str(translated(OSError(number, "too many"), "x.db"))


def test_what_a_handler_of_a_signal_raised_is_no_error_of_the_system() -> None:
    error = TimeoutError("an alarm")
    assert translated(error, "x.db") is error
