"""The way through the inspector in a real browser: nothing of other hosts, no error, and no write."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tests.classes import entity

pytestmark = [pytest.mark.one_python, pytest.mark.file]
PICTURE = Path(__file__).parents[2] / "docs" / "how-to" / "inspector.png"
"""Drawn anew with ``TABLEMAPPER_PICTURES=1``."""
LOOK = (Path(__file__).parents[1] / "site" / "look.js").read_text(encoding="utf-8")


def product(**indexes: Any) -> Any:
    """Declare products with some more indexes."""

    class Product(tm.Entity, table="Products"):
        category: tm.Field[str]
        id: tm.Field[str]
        name: tm.Field[str]
        price: tm.Field[Decimal]
        maker: tm.Field[str]

        key = tm.Key[str, str](partition="{category}", row="{id}")
        by_maker = tm.Index[str, Decimal](partition="{maker}", row="{price}")
        locals().update(indexes)

    return Product


Product = product()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw, place = random.Random(7), tmp_path_factory.mktemp("shop") / "shop.db"
    words = ["Kite", "Boat", "Letter", "Garden", "Harbour"]
    with tm.open(place, models=[Product]) as store:
        store.insert_many(
            Product(
                draw.choice(["books"] * 5 + ["games", "toys"]), f"p-{number:04d}", f"Blue {draw.choice(words)}",
                Decimal(draw.randrange(100, 2000)) / 100, draw.choice(["Ace", "Bolt", "Cut"]),
            )
            for number in range(2000)
        )  # fmt: skip
    return place


@pytest.fixture
def place(shop: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(shop, tmp_path))


@pytest.fixture
def served(place: Path) -> Iterator[str]:
    """The address of an inspector over the file."""
    with serving(place) as address:
        yield address


@contextlib.contextmanager
def serving(place: Path) -> Iterator[str]:
    """Serve an inspector over a file; give its address."""
    uvicorn = pytest.importorskip("uvicorn")
    with tm.open(place, read_only=True) as store:
        config = uvicorn.Config(tm.inspector(store, title="shop.db"), port=0, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            wait(lambda: server.started)
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)


def wait(ready: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.02)


def digest(place: Path) -> list[tuple[str, str]]:
    kept = [
        one for one in sorted(place.parent.iterdir()) if not one.name.endswith(("-shm", "-wal")) or one.stat().st_size
    ]
    return [(one.name, hashlib.sha256(one.read_bytes()).hexdigest()) for one in kept if not one.name.endswith("-shm")]


def faults(browser: Any, address: str) -> list[str]:
    """Return what the browser complains of, and what it asked of other hosts."""
    found = [entry["message"] for entry in browser.get_log("browser") if "400 (Bad Request)" not in entry["message"]]
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent" and message["params"]["request"]["url"].startswith("http"):
            url = message["params"]["request"]["url"]
            found += [] if url.startswith(address) else [url]
    return found


def test_the_way_through(browser: Any, served: str, place: Path) -> None:
    def click(chosen: str) -> None:
        """Follow a link or send a form, and wait for the page that it leads to."""
        browser.execute_script("window.left = true")
        browser.find_element("css selector", chosen).click()
        wait(arrived)

    def arrived() -> bool:
        # Between two pages there is no document to ask.
        with contextlib.suppress(pytest.importorskip("selenium.common").WebDriverException):
            return bool(browser.execute_script("return !window.left && document.readyState === 'complete'"))
        return False

    def text(chosen: str = "main") -> str:
        return str(browser.find_element("css selector", chosen).text)

    before = digest(place)
    browser.get(served + "/")
    assert "2,000" in text("#classes")
    click("#classes th a")
    assert "by_maker" in text("#indexes")
    click('.tabs a[href*="entities"]')
    first = text("#entities tbody tr")
    click('a[rel="next"]')
    assert text("#entities tbody tr") != first
    click("#entities tbody a")
    assert "of 1,048,576 bytes" in text() or "1,048,576" in text()
    browser.get(served + "/query/Product")
    field, op, value = (
        browser.find_element("css selector", f'.line [name="{name}"]') for name in ("field", "op", "value")
    )
    select = pytest.importorskip("selenium.webdriver.support.select")
    select.Select(field).select_by_visible_text("price")
    select.Select(op).select_by_visible_text("<")
    value.send_keys("cheap")
    click("button.go")
    assert "is no Decimal" in text("#fault")
    assert browser.find_element("css selector", '.line [name="value"]').get_attribute("value") == "cheap"
    browser.get(f"{served}/query/Product?where=maker==Ace&where=price%3C4&order=name&limit=8")
    assert "reads Product.by_maker" in text("#plan")
    assert len(browser.find_elements("css selector", "#rows tbody tr")) == 8
    browser.get(f"{served}/query/Product?where=name==Blue+Kite")
    assert "by_name = tm.Index[str]" in text("#refused")
    click("#refused a")
    assert browser.find_elements("css selector", "#rows tbody tr")
    first = text("#rows tbody tr")
    click('a[rel="next"]')
    assert text("#rows tbody tr") != first
    click('#rows thead a[href*="order=price"]')
    assert browser.find_element("css selector", "th[aria-sort]").get_attribute("aria-sort") == "ascending"
    browser.find_element("css selector", "#writes summary").click()
    assert ".delete()" in text("#delete")
    click('.tabs a[href*="partitions"]')
    assert "books" in text("#largest tbody tr")
    for page in ("/statistics/Product", "/model", "/advice", "/status"):
        browser.get(served + page)
        assert "internal error" not in text()
    assert faults(browser, served) == []
    assert digest(place) == before


class Keyboard:
    """Presses keys, and nothing else."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._actions = pytest.importorskip("selenium.webdriver.common.action_chains").ActionChains
        self._tab = pytest.importorskip("selenium.webdriver.common.keys").Keys.TAB

    def __call__(self, *pressed: str) -> None:
        self._actions(self._browser).send_keys(*pressed).perform()

    def to(self, chosen: str) -> None:
        """Go on with the tabulator until something has the focus."""
        for _ in range(60):
            self(self._tab)
            if self._browser.execute_script("return document.activeElement.matches(arguments[0])", chosen):
                return
        raise AssertionError(f"the keyboard does not come to {chosen}")


def test_the_keyboard_alone_leads_to_an_entity_and_to_an_answer(browser: Any, served: str) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    press = Keyboard(browser)
    browser.get(served + "/")
    for chosen, place in (
        ("#classes th a", "/class/Product"),
        ('.tabs a[href*="entities"]', "/entities/Product"),
        ("#entities tbody a", "/entity/Product?"),
        ('.tabs a[href*="query"]', "/query/Product"),
    ):
        press.to(chosen)
        press(keys.ENTER)
        wait(lambda place=place: browser.current_url.startswith(served + place))  # type: ignore[misc]
        wait(lambda: browser.execute_script("return document.readyState === 'complete'"))
    press.to('[name="field"]')
    press("maker")
    press.to('[name="value"]')
    press("Ace")
    press.to("button.go")
    press(keys.ENTER)
    wait(lambda: "value=Ace" in browser.current_url)
    wait(lambda: browser.find_elements("css selector", "#rows tbody tr"))
    assert faults(browser, served) == []


def test_the_keyboard_alone_chooses_columns_counts_and_totals(browser: Any, served: str) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    press = Keyboard(browser)
    browser.get(served + "/query/Product?where=maker==Ace&limit=5")
    press.to("#options summary")
    press(keys.ENTER)
    press.to('[name="show"][value="name"]')
    press(" ")
    press.to('[name="facet"]')
    press("category")
    press.to("#options button")
    press(keys.ENTER)
    wait(lambda: "facet=category" in browser.current_url and browser.find_elements("css selector", ".facets a"))
    heads = [one.text.split("\n")[0] for one in browser.find_elements("css selector", "#rows thead th")]
    assert heads == ["PartitionKey", "RowKey", "name"]
    press.to(".facets a")
    press(keys.ENTER)
    wait(lambda: "where=category" in browser.current_url and browser.find_elements("css selector", "#rows thead"))
    press.to('[name="total"]')
    press("count")
    press.to('[name="group"]')
    press("category,maker", keys.ENTER)
    wait(lambda: browser.find_elements("css selector", "#groups tbody tr"))
    press.to("#groups tbody a")
    press(keys.ENTER)
    wait(lambda: browser.find_elements("css selector", "#rows tbody tr"))
    assert faults(browser, served) == []
    browser.get(served + "/entities/Product")
    press.to('#go [name="key"]')
    press("books", keys.TAB, "p-0000", keys.ENTER)
    wait(lambda: "key=p-0000" in browser.current_url)
    wait(lambda: browser.find_elements("css selector", "#entity, #fault"))


def test_a_build_is_seen_to_go_on(browser: Any, served: str, place: Path) -> None:
    named = product(by_name=tm.Index[str](partition="{name}"))
    with tm.open(place, models=[named], build=False) as store:
        shown = []
        for _ in range(2):
            store.build(limit=300)
            browser.get(f"{served}/status")
            shown.append(browser.find_element("css selector", ".note").text)
    assert all("Product.by_name: building" in one for one in shown)
    assert shown[0] != shown[1]
    assert faults(browser, served) == []


def test_enter_in_the_form_asks_and_a_long_name_breaks(browser: Any, tmp_path: Path) -> None:
    name = "Long" * 50
    Long = entity(name, "Longs", {"a": str, "b": str}, tm.Key[str, str](partition="{a}", row="{b}"))
    with tm.open(tmp_path / "long.db", models=[Long]) as store:
        store.insert_many(Long("x", f"{number}") for number in range(3))
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    size = {"width": 390, "height": 860, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        with serving(tmp_path / "long.db") as address:
            for page in ("", f"class/{name}", f"entities/{name}", f"query/{name}"):
                browser.get(f"{address}/{page}")
                assert browser.execute_script("return document.documentElement.scrollWidth") <= 390, page
            browser.find_element("css selector", '[name="field"] option[value=""] + option').click()
            browser.find_element("css selector", '[name="value"]').send_keys("x", keys.ENTER)
            wait(lambda: "value=x" in browser.current_url)
            assert "add=1" not in browser.current_url
            wait(lambda: len(browser.find_elements("css selector", "#rows tbody tr")) == 3)
            assert len(browser.find_elements("css selector", "form .line")) == 1
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_no_page_scrolls_sideways_and_the_picture_of_the_docs_is_there(browser: Any, served: str) -> None:
    def emulate(width: int, height: int, scale: float = 1) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    question = "/query/Product?where=maker==Ace&where=price%3C8&order=name&limit=8"
    browser.get(served + "/entities/Product?size=1")
    entity_page = browser.find_element("css selector", "#entities tbody a").get_attribute("href").removeprefix(served)
    try:
        for page in (
            "/",
            "/model",
            "/class/Product",
            "/entities/Product",
            "/partitions/Product",
            "/statistics/Product",
            "/query/Product?where=maker==Ace&facet=category&facet=name&limit=5&show=name&show=price",
            "/query/Product?where=maker==Ace&group=category&total=avg&of=price&top=1",
            entity_page,
            question,
        ):
            browser.get(served + page)
            for opened in (False, True):
                if opened:  # (what it hides is looked at, too)
                    for element in browser.find_elements("css selector", "details:not([open]) summary"):
                        element.click()
                for width in (1180, 390):
                    emulate(width, 860)
                    assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
            for width, scheme in ((390, "dark"), (390, "light"), (1180, "light"), (1180, "dark")):
                emulate(width, 860)
                scheme_is = [{"name": "prefers-color-scheme", "value": scheme}]
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme_is})
                assert browser.execute_script(LOOK) == [], (page, width, scheme)
        if os.environ.get("TABLEMAPPER_PICTURES"):
            browser.get(served + question)
            emulate(800, 760, 1.25)  # as wide as a page of the docs
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            PICTURE.write_bytes(base64.b64decode(shot["data"]))
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert PICTURE.stat().st_size < 120_000
