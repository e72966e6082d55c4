"""Pages of the site in a browser: nothing of other hosts, no error, and legible on a phone and in the dark."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.one_python

LOOK = (Path(__file__).parent / "look.js").read_text(encoding="utf-8")
STILL = "document.head.append(Object.assign(document.createElement('style'), {textContent: '* {transition: none !important}'}))"
PAGES = (
    "", "recipes/one-to-many/", "reference/keys/", "reference/api/errors/", "explanation/planner/",
    "explanation/performance/", "how-to/migrations/", "contributing/architecture/",
)  # fmt: skip
MORE = (
    "explanation/concepts/", "explanation/deployments/", "how-to/deploy/", "how-to/load/", "recipes/",
    "recipes/shards/", "reference/errors/", "tutorial/shop/",
)  # fmt: skip
"""Pages of the same kinds."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address at which the built site is served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the screenshots, with --long: screens0 below --basetemp."""
    return tmp_path_factory.mktemp("screens")


@pytest.mark.long
@pytest.mark.parametrize("page", [*PAGES, *MORE])
def test_a_page_is_legible_and_loads_nothing_from_elsewhere(
    browser: Any, address: str, screens: Path, page: str, full_size: bool
) -> None:
    if page in MORE and not full_size:
        pytest.skip("pages of its kind are seen to")
    browser.get(address + page)
    browser.execute_script(STILL)
    faults = []
    for width in (1280, 390):
        size = {"width": width, "height": 1600, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for scheme in ("default", "slate"):
            browser.execute_script("document.body.dataset.mdColorScheme = arguments[0]", scheme)
            if full_size:
                shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
                name = f"{page.strip('/').replace('/', '-') or 'home'}-{width}-{scheme}.png"
                (screens / name).write_bytes(base64.b64decode(shot["data"]))
            faults += [f"{width} px, {scheme}: {fault}" for fault in browser.execute_script(LOOK)]
    faults += [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if not url.startswith((address, "data:", "blob:")):
                faults.append(f"it asks another host: {url}")
    assert not faults, "\n".join(faults)
