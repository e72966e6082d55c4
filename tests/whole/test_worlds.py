"""All options of classes, alone and together, by two versions of a program in turn: what each finds is what Python says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines import ended
from tablemapper.query import pairs
from tablemapper.verbs.operations import Operations

from ..engines.azure.azurite import AzuritePlace
from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace
from ..engines.dicts import DictPlace
from ..query.test_query import ImpossiblePath, forced
from .search import ENDING, OPTIONS, search, shrunk
from .world_steps import act
from .worlds import IDS, START, USERS, Features, Kind, Row, World, text_of

pytestmark = pytest.mark.usefixtures("no_warnings_of_scans")
BARE = ("backward", "sorts", "across_partitions", "all_or_none_load")
PLACES: dict[str, tuple[Callable[[Any], Any], Features]] = {
    "file": (lambda folder: folder / "world.db", Features()),
    "bare": (lambda folder: DictPlace(str(folder), lacking=BARE), Features(grows=False, across=False)),
    "azure": (lambda _: AzurePlace(memory=Memory()), Features(across=False)),
}
# (Where time cannot be moved, versions and classes that come and go would wait for a minute each.)
EMULATOR: tuple[Callable[[Any], Any], Features] = (
    lambda folder: AzuritePlace(str(folder)),
    Features(grows=False, across=False),
)


def compare(world: World) -> None:
    """Compare what each program finds: of all classes by key, of one by queries."""
    for program in world.programs:
        world.acting = program
        kinds = list(world.acting.kinds.values())
        for kind in kinds:
            _compare_keys(world, kind)
            _compare_groups(world, kind)
        _compare_queries(world, world.rng.choice([kinds[0], *kinds]))
        _compare_pairs(world)
        _compare_family(world)


def _same(world: World, entities: Iterable[Any], rows: Iterable[Row]) -> None:
    fields = world.acting.fields
    found = sorted(text_of(world.acting.row(entity)) for entity in entities)
    assert found == sorted(text_of({name: row[name] for name in fields}) for row in rows)


def _compare_keys(world: World, kind: Kind) -> None:
    store, seen = world.store, world.seen(kind)
    keys = [(user, id) for user in USERS for id in IDS]
    found = store.get_many([kind.cls.key(*key) for key in keys])
    assert [one is not None for one in found] == [key in seen for key in keys]
    _same(world, [one for one in found if one is not None], seen.values())
    some = world.rng.choice(keys)
    entity = store.get(kind.cls.key(*some))
    _same(world, [entity] if entity is not None else [], [seen[some]] if some in seen else [])
    assert store.exists(kind.cls.key(*some)) == (some in seen)


def _compare_queries(world: World, kind: Kind) -> None:
    rng, store, cls, rows = world.rng, world.store, kind.cls, [*world.seen(kind).values()]
    fields = world.acting.fields
    user, least = rng.choice(USERS), rng.randrange(5)
    scan = store.query(cls).allow_scan().allow_sort()
    questions: list[tuple[Any, Callable[[Row], bool]]] = [
        (store.query(cls).where(cls.user == user), lambda row: row["user"] == user),
        (
            store.query(cls).where(cls.user == user, cls.n >= least),
            lambda row: row["user"] == user and row["n"] >= least,
        ),
        (scan.where(cls.n > 2), lambda row: row["n"] > 2),
        (scan.where(cls.mail == "x"), lambda row: row["mail"] == "x"),
        (scan.where(cls.tags.contains("p")), lambda row: "p" in row["tags"]),
        (scan.where(cls.stamp >= world.stamp), lambda row: row["stamp"] >= world.stamp),
    ]
    if "until" in fields:
        questions.append((scan.where(cls.until > START), lambda row: row["until"] is not None and row["until"] > START))
    if "colors" in fields:
        questions.append((scan.where(cls.colors.contains("p")), lambda row: "p" in (row["colors"] or ())))
    (query, holds), (other, is_other) = rng.sample(questions, 2)
    expected = [row for row in rows if holds(row)]
    for one in forced(query):
        with suppress(ImpossiblePath):  # (of these values)
            _same(world, one, expected)
    found = [entity for page in query.pages(2) for entity in page.items]
    _same(world, found, expected)
    expected = [row for row in rows if is_other(row)]
    _same(world, other, expected)
    chosen = [(row["id"], row["n"], row["stamp"]) for row in expected]
    assert sorted(other.select(cls.id, cls.n, cls.stamp)) == sorted(chosen)
    numbers = [row["n"] for row in expected]
    assert (other.count(), other.sum(cls.n)) == (len(numbers), sum(numbers) if numbers else None)
    assert (other.max(cls.n), other.exists()) == (max(numbers, default=None), bool(numbers))
    if rng.random() < 0.3:
        assert len(scan.columns()["n"]) == len(rows)
    _same(world, store.partition(cls.user == user), [row for row in rows if row["user"] == user])


def _compare_groups(world: World, kind: Kind) -> None:
    """Compare groups, which count what has ended, too."""
    stored = world.rows[kind.name].values()
    if kind.per_user is not None:
        for user in USERS:
            rows = [row for row in stored if row["user"] == user]
            group = world.store.group(kind.per_user.key(user))
            assert (group.number, group.total) == (len(rows), sum(row["n"] for row in rows))
            most, last = (max([row[name] for row in rows], default=None) for name in ("n", "stamp"))
            assert (group.most, group.last) == (most, last)
    if kind.per_tag is not None:
        for tag in "pqr":
            number = sum(tag in row["tags"] for row in stored)
            assert world.store.group(kind.per_tag.key(tag)).number == number


def _compare_pairs(world: World) -> None:
    if "ref" not in world.acting.fields:
        return
    kinds = [*world.acting.kinds.values()]
    kind, other = world.rng.choice(kinds), world.rng.choice(kinds)
    seen, others, user = world.seen(kind), world.seen(other), world.rng.choice(USERS)
    query = world.store.query(kind.cls).where(kind.cls.user == user).with_(other.cls, by=(kind.cls.user, kind.cls.ref))
    pairs = [(row, others.get((user, row["ref"]))) for row in seen.values() if row["user"] == user]
    size = world.rng.choice((1, 2, 5))
    for found in ([*query], [pair for page in query.pages(size) for pair in page.items]):
        texts = [[one and text_of(world.acting.row(one)) for one in pair] for pair in found]
        fields = world.acting.fields
        expected = [[row and text_of({name: row[name] for name in fields}) for row in pair] for pair in pairs]
        assert sorted(texts, key=repr) == sorted(expected, key=repr)


def _compare_family(world: World) -> None:
    """Compare what a query over the base finds: entities of all open classes that have it."""
    if (base := world.acting.declared.base) is None:
        return
    least = world.rng.randrange(5)
    found = [
        (type(one).__name__, one.user, one.id)
        for one in world.store.query(base).where(base.n >= least).allow_scan().allow_sort()
    ]
    kinds = world.acting.kinds.values()
    expected = [(kind.name, *key) for kind in kinds for key, row in world.seen(kind).items() if row["n"] >= least]
    assert sorted(found) == sorted(expected)


def check(world: World) -> None:
    for program in world.programs:
        report = program.store.check()
        assert report.ok, str(report)


def play(seed: object, place: str, folder: Any, steps: int, *, every: int = 1) -> None:
    """Let a world go on for some steps, and compare everything after each of them."""
    make, features = PLACES.get(place, EMULATOR)
    world = World(random.Random(f"{seed} {place}"), make(folder), features)
    try:
        for number in range(steps):
            act(world)
            if number % every == 0:
                compare(world)
                check(world)
    except BaseException as error:
        error.add_note(f"seed {seed} of {place}\n{world}\n" + "\n".join(world.log[-12:]))
        raise
    finally:
        world.close()


@pytest.mark.parametrize("place", PLACES)
def test_programs_in_turn_find_what_python_says(place: str, tmp_path: Path, full_size: bool) -> None:
    for seed in range(25 if full_size else 2):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        play(seed, place, folder, 120 if full_size else 15)


@pytest.mark.file
@pytest.mark.long
def test_programs_in_turn_find_what_python_says_on_the_emulator(tmp_path: Path, full_size: bool) -> None:
    for seed in range(10 if full_size else 1):
        play(seed, "emulator", tmp_path / f"{seed}", 50 if full_size else 6, every=1 if full_size else 3)


def _holders_of_unique_values_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ended, "removed_holder", lambda *_: False)


def _transactions_read_what_has_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Operations, "row", lambda self, model, *key: self.engine.get(model, *key))


def _pairs_have_what_has_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pairs, "ended_by", lambda *_: None)


FAULTS = {_holders_of_unique_values_stay: 2, _transactions_read_what_has_ended: 6, _pairs_have_what_has_ended: 6}
"""Each with the first of some seeds that find it."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.__name__)
def test_a_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, tm.TableMapperError, pytest.fail.Exception)):
        for seed in range(FAULTS[fault], FAULTS[fault] + 40):
            (tmp_path / f"{seed}").mkdir()
            play(seed, "file", tmp_path / f"{seed}", 30)


@pytest.mark.parametrize("part", [ENDING, OPTIONS])
def test_answers_of_random_models_with_options_are_right(part: int, full_size: bool) -> None:
    failure = next(search(range(part, part + (250 if full_size else 3))), None)
    assert failure is None, f"\n{shrunk(failure)}"
