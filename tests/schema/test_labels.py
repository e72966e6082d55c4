"""Labels of indexes, aggregates and classes, which may be former definitions."""

from __future__ import annotations

import pytest

from tablemapper.schema.labels import Label, former_name, is_former


@pytest.mark.parametrize(
    ("text", "label", "bare"),
    [
        ("Product", Label("Product"), Label("Product")),
        ("Product.by_name", Label("Product", "by_name"), Label("Product", "by_name")),
        ("Product.by_name#2", Label("Product", "by_name#2"), Label("Product", "by_name")),
        ("Totals#1.by_sum", Label("Totals#1", "by_sum"), Label("Totals", "by_sum")),
        ("Product:parts", Label("Product:parts"), Label("Product:parts")),
    ],
)
def test_a_text_is_a_label_and_a_label_is_a_text(text: str, label: Label, bare: Label) -> None:
    assert Label.of(text) == label
    assert str(label) == text
    assert label.bare == bare
    assert is_former(text) == (bare != label)


def test_a_former_definition_gets_the_first_free_number() -> None:
    assert former_name("by_name", ["by_name"]) == "by_name#1"
    assert former_name("by_name", ["by_name#1", "by_name#3"]) == "by_name#2"
