"""What is put together in one text, and taken apart again: for each name that a schema can give, both are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.engines.azure.cross_partition.marks import DUPLICATE, number_of
from tablemapper.engines.azure.tables.entity_json import holds, marks_of, ops_member
from tablemapper.engines.azure.tables.reserved_names import (
    OP_UNITS,
    OPS,
    index_key,
    index_prefix,
    outer_key,
    outer_row_of,
    row_key_of,
)
from tablemapper.entities.aggregates import keeper_name, kept_field
from tablemapper.limits import check_property_name, is_name
from tablemapper.schema.labels import Label, former_name

from ...conftest import examples

_LETTERS = "abZ_09éß中"
NAMES = st.text(_LETTERS, min_size=1, max_size=6).filter(is_name)
PROPERTIES = st.text(_LETTERS, min_size=1, max_size=6).filter(lambda name: check_property_name(name) is None)
DEFINITIONS = NAMES | st.builds(keeper_name, NAMES, PROPERTIES)
"""Indexes, classes and aggregates, those that keep a maintained field among them."""
NUMBERS = st.integers(1, 10**12)
MARKS = st.builds(
    "{}{}{}".format, st.sampled_from(["", "="]), DEFINITIONS, st.just("") | st.builds("#{}".format, NUMBERS)
)
WRITES = st.text("0123456789abcdef", min_size=OP_UNITS, max_size=OP_UNITS) | st.sampled_from(["", DUPLICATE])
KEYS = st.text("ab !\"'~:.", max_size=8).filter(lambda key: "  " not in key and not key.endswith(" "))


@given(st.dictionaries(MARKS, WRITES, max_size=4))
def test_marks_are_read_as_they_were_written(ops: dict[str, str]) -> None:
    entity = ops_member(ops)
    assert marks_of(entity) == ops
    assert all(holds(entity, name, op) for name, op in ops.items())
    if ops:
        written = " ".join([f"{name}:{op}" for name, op in ops.items()])  # (as the first accounts have them)
        assert marks_of({OPS: written}) == ops


@pytest.mark.parametrize("damaged", ["", "{", '{"a": 1}', "by_team", 7])
def test_a_mark_that_cannot_be_read_names_its_entity(damaged: object) -> None:
    with pytest.raises(tm.CorruptStore, match=r"\('p', 'r'\): its property _tm_ix cannot be read: .*; another program"):
        marks_of({OPS: damaged, "PartitionKey": "p", "RowKey": "r"})


@given(DEFINITIONS, NUMBERS)
def test_the_number_of_a_build_is_that_of_its_mark(name: str, number: int) -> None:
    assert number_of(f"{name}#{number}") == number_of(f"={name}#{number}") == (name, number)
    assert number_of(name) == (name, 0)


@given(DEFINITIONS, st.just("") | NAMES, st.integers(0, 2), st.booleans())
def test_a_label_is_its_two_names(owner: str, index: str, formers: int, of_owner: bool) -> None:
    owners, indexes = [owner], [index]
    for _ in range(formers):
        owners.append(former_name(owner, owners))
        indexes.append(former_name(index, indexes))
    label = Label(owners[-1], index) if of_owner or not index else Label(owner, indexes[-1])
    assert Label.of(str(label)) == label
    assert label.bare == Label(owner, index)
    assert kept_field(label.owner) == (tuple(owner.split(":")) if ":" in owner else None)


@examples(100, long=1_000)
@given(NAMES, NAMES, NAMES, KEYS, KEYS, KEYS, st.booleans(), st.integers(1, 60))
def test_the_row_of_an_index_has_its_key(
    owner: str, index: str, other: str, row: str, partition: str, base: str, unique: bool, times: int
) -> None:
    base = base * times  # (some are too long to be in the key)
    label, op = f"{owner}.{index}", "f" * OP_UNITS
    key = index_key(label, row, base, unique=unique)
    assert row_key_of(label, key, base, unique=unique) == row
    if other != index:
        assert not key.startswith(index_prefix(f"{owner}.{other}"))
    assert outer_row_of(outer_key(row, partition, base, op), partition, base, op) == row
