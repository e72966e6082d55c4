"""What becomes of a class when a store is opened: by the state of its form, and by what the catalogue has of it."""

from __future__ import annotations

from typing import Any

import pytest

import tablemapper as tm
from tablemapper.evolution.evolution import Evolution, evolve
from tablemapper.evolution.versions import Version, Versions
from tablemapper.schema.model import compile_schema, model_of
from tablemapper.schema.specs import ModelSpec

from .test_rules import Holds, product, total

CLASS, OTHER = product(a=str), product(a=int)
SUM, COUNT = total(CLASS, n=(int, tm.sum(CLASS.number))), total(CLASS, n=(int, tm.count()))
VERSIONS: dict[str, dict[str, Any] | None] = {
    "new": None,
    "in use": {},
    "undone": {"until": 2, "undone": True},
    "replaced": {"until": 2, "retired_by": "0003_price"},
    "ended": {"until": 2},
}


class Dropped(Holds):
    """Rows of a store that dropped a class once."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def dropped(self, name: str, form: ModelSpec) -> str | None:
        return f"{name} was dropped" if name == self.name else None


def opened(cls: Any, state: str, catalogue: list[Any], contents: Any) -> Evolution:
    """Return what opening a class makes of a catalogue that has some classes."""
    form = VERSIONS[state]
    name, others = cls.__name__, [] if cls is CLASS else [CLASS]
    versions = {} if form is None else {name: [Version(model_of(cls).form_hash, 1, **form)]}
    versions |= {model_of(other).name: [Version(model_of(other).form_hash, 1)] for other in others}
    forms = {model_of(one).name: model_of(one).form for one in (*others, *catalogue)}
    return evolve(forms, Versions(versions), compile_schema([*others, cls]), contents, now=3)


def outcome(evolution: Evolution, name: str) -> str:
    """Return what became of a class, in a word."""
    words = {"was dropped": "dropped", "replaced this form": "retired", "declared again": "retired"}
    for fault in evolution.faults:
        return next((word for words, word in words.items() if words in fault), "needs a migration")
    if evolution.dropped:
        return "declared anew"
    if evolution.former:
        return "beside"
    if any(model.name == name for model in evolution.models):
        return "added"
    return "changed" if evolution.changes else "the same"


ENTITIES: list[tuple[str, str, str, str, str, str]] = [
    # the state, and: lacks the class, has it, has another form of it; then: lacks it and dropped it, has it and dropped it
    ("new", "added", "the same", "needs a migration", "added", "the same"),
    ("in use", "the same", "the same", "the same", "dropped", "dropped"),
    ("undone", "added", "the same", "the same", "dropped", "dropped"),
    ("replaced", "retired", "retired", "retired", "dropped", "retired"),
    ("ended", "added", "retired", "retired", "added", "retired"),
]


@pytest.mark.parametrize(("state", "lacks", "has", "has_other", "lacks_dropped", "has_dropped"), ENTITIES)
def test_a_class(state: str, lacks: str, has: str, has_other: str, lacks_dropped: str, has_dropped: str) -> None:
    found = [
        outcome(opened(CLASS, state, catalogue, contents), "Product")
        for catalogue, contents in (
            ([], Holds()), ([CLASS], Holds()), ([OTHER], Holds()), ([], Dropped("Product")), ([CLASS], Dropped("Product")),
        )
    ]  # fmt: skip
    assert found == [lacks, has, has_other, lacks_dropped, has_dropped]


AGGREGATES: list[tuple[str, str, str, str, str, str, str]] = [
    # as above; then: has it in another way, and dropped it
    ("new", "added", "the same", "beside", "added", "the same", "beside"),
    ("in use", "the same", "the same", "the same", "dropped", "dropped", "dropped"),
    ("undone", "added", "the same", "beside", "dropped", "dropped", "dropped"),
    ("replaced", "added", "the same", "beside", "dropped", "the same", "dropped"),
    ("ended", "added", "the same", "beside", "dropped", "the same", "dropped"),
]


@pytest.mark.parametrize(
    ("state", "lacks", "has", "has_other", "lacks_dropped", "has_dropped", "has_other_dropped"), AGGREGATES
)
def test_an_aggregate(
    state: str, lacks: str, has: str, has_other: str, lacks_dropped: str, has_dropped: str, has_other_dropped: str
) -> None:
    catalogues: list[list[Any]] = [[], [SUM], [COUNT]]
    found = [
        outcome(opened(SUM, state, catalogue, contents), "Total")
        for contents in (Holds(), Dropped("Total"))
        for catalogue in catalogues
    ]
    assert found == [lacks, has, has_other, lacks_dropped, has_dropped, has_other_dropped]


@pytest.mark.parametrize(("state", "expected"), [
    ("new", "declared anew"), ("in use", "the same"), ("undone", "the same"), ("replaced", "retired"), ("ended", "declared anew"),
])  # fmt: skip
def test_a_class_that_holds_no_entities(state: str, expected: str) -> None:
    assert outcome(opened(CLASS, state, [OTHER], Holds(0)), "Product") == expected
