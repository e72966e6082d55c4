"""What a catalogue becomes, on values: random chains, the same chains on files, and faults that these find."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from msgspec.structs import replace

import tablemapper as tm
from tablemapper.catalogue import cutover, dropping, fences, migration_states, registration
from tablemapper.catalogue.actions import ActionPlan, EndJob, ForgetIndex
from tablemapper.catalogue.catalogue import Catalogue, JobSpec
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.engines.sqlite.online.transition_runner import change
from tablemapper.errors import TableMapperError
from tablemapper.evolution.versions import Version, Versions

from ...migrations.shapes import parts, stocks
from .test_transitions import VERSION_CELLS, check_version
from .values import CASES, OPENED, STEPS, Values, chain, shape, started, taken


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_every_transition_leads_to_a_possible_catalogue(first: int) -> None:
    for seed in range(first, first + 30):
        check_chain(seed)


def _in_file(path: Path, catalogue: Catalogue, case: Any, step: str, draw: random.Random) -> str:
    """Take a step of a chain with a file; return the name of its error, or ""."""
    migrate = partial(tm.migrate, path, case.scripts, rest=0, durability="relaxed")
    try:
        if step in ("forth", "contract"):
            migrate(contract=step == "contract")
        elif step == "back":
            migrate(to="")
        elif step == "to one":
            migrate(to=draw.choice([one.function.__name__ for one in case.scripts]))
        elif step.startswith("open"):
            classes = OPENED if step == "open old" else list(case.new)
            tm.open(path, models=classes, durability="relaxed").close()
        else:
            indexes = [label for label in catalogue.states if "." in label]
            labels = catalogue.states if step == "disable" else [*catalogue.models, *indexes]
            label = "" if step == "begin" else draw.choice(sorted(labels) or ["Gone"])
            engine = SqliteMigrations.open(path, durability="relaxed")
            transition = dropping.disable if step == "disable" else dropping.drop
            try:
                if step == "begin":
                    engine._write(lambda writer: change(writer, registration.rebuilt, None))
                else:
                    engine._write(lambda writer: change(writer, transition, label))
            finally:
                engine.close()
    except TableMapperError as error:
        return type(error).__name__
    return ""


def _of_file(path: Path) -> Catalogue:
    engine = SqliteMigrations.open(path, durability="relaxed")
    engine.close()
    return engine._catalogue


@pytest.mark.parametrize("seed", range(8))
def test_a_file_becomes_what_values_become(seed: int, tmp_path: Path) -> None:
    path, draw = tmp_path / "store.db", random.Random(seed)
    case, values = CASES[draw.choice(list(CASES))], started()
    with tm.open(path, models=OPENED, durability="relaxed") as store:
        store.insert_many(parts(12, random.Random(seed)))
        store.insert_many(stocks())
    for step in [draw.choice([one for one in STEPS if one != "open new"]) for _ in range(5)]:
        number = draw.random()
        in_file = _in_file(path, values.catalogue, case, step, random.Random(number))
        assert in_file == taken(values, case, step, random.Random(number)), step
        of_file, of_values = shape(_of_file(path)), shape(values.catalogue)
        for shown in (of_file, of_values):  # (a file clears in batches what is dropped, and builds what it opens)
            del shown["tombstones"], shown["jobs"]
        assert of_file == of_values, step


# -------------------------------------------------------------------------------------------- what belongs to a transition


def _version(**fields: Any) -> Version:
    return Version(**{"form": "form", "since": 1, **fields})


END = 9_000_000


class _Stopped(Exception):
    """The next transition is a switch."""


def _before_switch(name: str) -> Values:
    """Return a store whose next transition is the switch of a case."""
    values = started()

    def stop(most: int) -> Any:
        raise _Stopped

    values.step = stop  # type: ignore[method-assign]
    with pytest.raises(_Stopped):
        values.migrate(CASES[name])
    return values


def _switched(
    values: Values, *, linked: bool, versions: Mapping[str, Any], **changes: Any
) -> tuple[Catalogue, ActionPlan]:
    """Return the catalogue after the next switch, with other versions before it, and the draft."""
    before, given = values.catalogue, values.transition if linked else attrs.evolve(values.transition, links=())
    before = attrs.evolve(before, versions=Versions({**before.versions.by_class, **versions}), **changes)
    draft = ActionPlan(END, lambda: values.names, before.past)
    return cutover.switched(draft, before, given, 30), draft


def check_switch_ends() -> None:
    """The jobs of classes that end, and what is noted for their indexes, end with them."""
    values = _before_switch("convert")
    job = JobSpec("job", "Part", frozenset({"Part.by_maker"}))
    catalogue, draft = _switched(values, linked=True, versions={}, jobs=(job,))
    assert EndJob("job") in draft.actions
    assert {ForgetIndex("Part.by_maker"), ForgetIndex("Part.by_tag")} <= {*draft.actions}
    assert catalogue.jobs == ()


def check_switch_same() -> None:
    """Of a form that the classes have before and after, one entry runs: the one that does, or the last of those undone."""
    values = _before_switch("convert")
    staged = values.catalogue.staged
    assert staged is not None
    form = staged.catalogue.versions.of("Part")[0].form
    current, undone = _version(form=form), _version(form=form, until=5, undone=True)
    later, ended = replace(undone, since=2), replace(undone, undone=False)
    for opened in ([undone, later, current], [current, undone], [undone, later], [undone, ended], []):
        catalogue, _ = _switched(values, linked=False, versions={"Part": opened})
        after = [version.in_use for version in catalogue.versions.of("Part")]
        assert after.count(True) == 1
        assert after.index(True) == (opened.index(current) if current in opened else len(after) - 1)


def check_two_scripts() -> None:
    """The twin of an older version ends when the classes are replaced again; its versions are retired by that."""
    values = started()
    values.migrate(CASES["two copies"])
    assert [twin.migration for twin in values.catalogue.twins] == ["second"]
    states = [(version.state, version.retired_by) for version in values.catalogue.versions.of("Part")]
    assert states == [("retired", "second"), ("twin", None)]


def check_drops() -> None:
    """What a migration drops itself is noted until it is contracted."""
    values = _before_switch("convert")
    values.transition = attrs.evolve(values.transition, drops=("Stock.by_pieces",))
    catalogue, _ = _switched(values, linked=True, versions={})
    entry = catalogue.history.current("first")
    assert entry is not None
    assert entry.drops == ["Stock.by_pieces"]
    assert not catalogue.states["Stock.by_pieces"].declared


def check_versions() -> None:
    for cell in VERSION_CELLS:
        check_version(*cell)


def check_chain(seed: int) -> None:
    for values, _, _ in chain(seed):
        assert values.time


@pytest.mark.parametrize(
    "check", [check_switch_same, check_switch_ends, check_two_scripts, check_drops], ids=lambda one: one.__name__
)
def test_a_transition_does_all_of_it(check: Callable[[], None]) -> None:
    check()


# -------------------------------------------------------------------------------------------- faults


def _behind_the_last(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Version, "live_beside", lambda self, id: replace(self, beside=id, behind=id))


def _jobs_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cutover, "EndJob", ForgetIndex)


def _notes_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cutover, "ForgetIndex", EndJob)


def _older_twins_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cutover, "ended", lambda draft, catalogue, *_, **__: catalogue)


def _drops_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    real = cutover._history

    def noted(history: Any, transition: Any, *given: Any) -> Any:
        return real(history, attrs.evolve(transition, drops=()), *given)

    patch.setattr(cutover, "_history", noted)


def _older_ones_are_retired(patch: pytest.MonkeyPatch) -> None:
    real = cutover._replaced
    patch.setattr(cutover, "_replaced", lambda version, transition, now, started: real(version, transition, now, 0))


def _retired_ones_keep_their_twin(patch: pytest.MonkeyPatch) -> None:
    real = Version.retire
    patch.setattr(
        Version, "retire", lambda self, *given, **named: replace(real(self, *given, **named), beside=self.beside)
    )


def _retired_ones_are_retired_again(patch: pytest.MonkeyPatch) -> None:
    def retire(self: Versions, now: int, by: str, which: Any, *, unkept: bool = False) -> Versions:
        return self.each(lambda name, one: one.retire(now, by) if which(name, one) or one.retired_by else one)

    patch.setattr(Versions, "retire", retire)


def _set_aside(patch: pytest.MonkeyPatch, change: Callable[[Any, Any, Any], Any]) -> None:
    real = cutover._set_aside
    patch.setattr(
        cutover,
        "_set_aside",
        lambda draft, catalogue, *given: change(draft, catalogue, real(draft, catalogue, *given)),
    )


def _tables_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    _set_aside(patch, lambda draft, before, after: (after[0], []))


def _names_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def remove(self: ActionPlan, name: str) -> None:
        self.names.remove(name.lower())

    patch.setattr(ActionPlan, "_remove", remove)


def _the_twin_is_not_replaced(patch: pytest.MonkeyPatch) -> None:
    real = cutover.swapped

    def swapped(draft: ActionPlan, catalogue: Catalogue, twin: Any, transition: Any) -> Catalogue:
        return attrs.evolve(real(draft, catalogue, twin, transition), twins=catalogue.twins)

    patch.setattr(migration_states, "swapped", swapped)


def _drops_leave_no_tombstone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dropping, "_renamed", lambda draft, names: [])


def _what_is_dropped_is_built(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dropping, "without_jobs", lambda draft, catalogue, labels: catalogue)


def _indexes_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fences, "_with_other_index_name", lambda draft, catalogue, label: catalogue)


def _twins_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    real = fences._ended_versions

    def ended(before: Catalogue, after: Catalogue) -> Any:
        return ((before, names) for _, names in real(before, after))

    patch.setattr(fences, "_ended_versions", ended)


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], Callable[[], None]] = {
    _behind_the_last: check_versions, _jobs_go_on: check_switch_ends, _notes_stay: check_switch_ends,
    _older_twins_stay: check_two_scripts, _drops_are_not_noted: check_drops, _older_ones_are_retired: check_versions,
    _retired_ones_keep_their_twin: check_versions, _retired_ones_are_retired_again: check_versions,
    _tables_are_not_kept: partial(check_chain, 0), _names_are_forgotten: partial(check_chain, 0),
    _the_twin_is_not_replaced: partial(check_chain, 6), _drops_leave_no_tombstone: partial(check_chain, 1),
    _what_is_dropped_is_built: partial(check_chain, 9), _indexes_are_not_fenced: partial(check_chain, 23),
    _twins_are_not_fenced: partial(check_chain, 105),
}  # fmt: skip
"""Each with what finds it. (Two more cannot be seeded alone: what a drop or a fence forgets of `past`, `ActionPlan` keeps now.)"""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
def test_a_fault_is_found_without_a_file(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        FAULTS[fault]()
