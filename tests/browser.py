"""Chromium without a window, for tests of pages; a new profile for each run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

INSTALL = "apt-get install chromium chromium-driver"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


@pytest.fixture
def browser(chromium: Any) -> Any:
    """A driver of selenium on an empty page; its logs `browser` and `performance` are on, and begin here."""
    chromium.get("about:blank")
    for log in ("browser", "performance"):
        chromium.get_log(log)  # what an earlier test left is not of this one
    return chromium


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    programs = [shutil.which("chromium"), shutil.which("chromedriver")]
    if None in programs:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"it needs Chromium: {INSTALL}")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    yield driver
    driver.quit()
