"""The pictures of the site show what the library does now."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from docs.pictures import FOLDER, PICTURES

pytestmark = pytest.mark.one_python


@pytest.mark.parametrize(("name", "draw"), PICTURES.items())
def test_a_picture_is_what_its_program_draws(name: str, draw: Callable[[], str]) -> None:
    drawn = (FOLDER / f"{name}.html").read_text(encoding="utf-8")
    assert draw() == drawn, f"if it is right now: python -m docs.pictures {name}"


def test_every_drawn_picture_is_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in FOLDER.parents[1].rglob("*.md"))
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(PICTURES)
    assert [name for name in PICTURES if f'"docs/pictures/drawn/{name}.html"' not in pages] == []
