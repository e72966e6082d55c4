"""Every cell of what a transition makes of a version, of an index, of a migration: a table each, without a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import attrs
import pytest
from msgspec import UNSET
from msgspec.structs import replace

import tablemapper as tm
from tablemapper.catalogue import cutover, dropping, migration_states, registration, zone_rules
from tablemapper.catalogue.actions import ActionPlan, CopyRows, CreateLike, DropTable
from tablemapper.catalogue.catalogue import Catalogue
from tablemapper.errors import TableMapperError
from tablemapper.evolution.versions import Version, Versions
from tablemapper.schema.model import compile_schema

from ...classes import entity, grouped
from ...migrations.shapes import FIELDS, OLD, changed, indexes, part
from .values import CASES, Values, opened, started

END = 9_000_000
Transition: TypeAlias = Callable[[ActionPlan, Catalogue], Catalogue]
Situation: TypeAlias = tuple[Values, Transition]


class _Stopped(Exception):
    """The next transition is the one that is wanted."""


def _until(values: Values, verb: str, case: str, *, to: str | None = None) -> Any:
    """Migrate until a run asks its engine for something; return what it gives with that."""
    given: list[Any] = []

    def stop(*some: Any) -> None:
        given.extend(some)
        raise _Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, verb, stop)
        with pytest.raises(_Stopped):
            values.migrate(CASES[case], to=to)
    return given[0]


def _after(case: str, to: str | None = None) -> Values:
    values = started()
    values.migrate(CASES[case], to=to)
    return values


def _take(values: Values, transition: Transition, catalogue: Catalogue | None = None, **facts: Any) -> Catalogue:
    before = values.catalogue if catalogue is None else catalogue
    return transition(ActionPlan(END, lambda: values.names, before.past, **facts), before)


# -------------------------------------------------------------------------------------------- versions of a class

VERSIONS = {
    "current": Version("form", 1),
    "younger": Version("form", 8_000_000),
    "behind": Version("form", 1, behind="zeroth"),
    "twin": Version("form", 1, behind="zeroth", beside="first"),
    "retired": Version("form", 1, 5, retired_by="first"),
    "retired twice": Version("form", 1, 5, retired_by="first", behind="zeroth"),
    "ended": Version("form", 1, 5),
    "undone": Version("form", 1, 5, undone=True),
}


def _told(version: Version) -> str:
    """Return the state of a version in words."""
    by = version.retired_by or version.beside or version.behind
    more = f", behind {version.behind}" if version.state in ("twin", "retired") and version.behind else ""
    return f"{version.state}{f' by {by}' if by else ''}{more}"


def _switch(*, links: bool) -> Situation:
    values = _after("two copies", "first")
    _until(values, "step", "two copies")
    transition = values.transition if links else attrs.evolve(values.transition, links=())
    return values, lambda draft, catalogue: cutover.switched(draft, catalogue, transition, 30)


def _switch_back() -> Situation:
    values = _after("convert")
    for twin in values.catalogue.twins:
        values.carry(cutover.ended, twin, "a test")
    _until(values, "step", "convert", to="")
    return values, lambda draft, catalogue: cutover.switched(draft, catalogue, values.transition, 30)


def _swap() -> Situation:
    values = _after("two copies", "first")
    transition = _until(values, "start", "two copies", to="")
    return values, lambda draft, catalogue: migration_states.started(draft, catalogue, transition)


def _edit(*, back: bool) -> Situation:
    values = _after("rename") if back else started()
    edit = _until(values, "edit", "rename", to="" if back else None)
    return values, lambda draft, catalogue: migration_states.edited(draft, catalogue, edit)


def _end() -> Situation:
    values = _after("two copies", "first")
    (twin,) = values.catalogue.twins
    return values, lambda draft, catalogue: cutover.ended(draft, catalogue, twin, "a test")


def _contract() -> Situation:
    return _after("two copies", "first"), lambda draft, catalogue: migration_states.retired(draft, catalogue, "first")


def _of_labels(transition: Callable[..., Catalogue], *given: Any) -> Callable[[], Situation]:
    return lambda: (started(), lambda draft, catalogue: transition(draft, catalogue, *given))


def _open(cls: Any) -> Callable[[], Situation]:
    return lambda: (started(), lambda draft, catalogue: opened(draft, catalogue, compile_schema([cls])))


def _open_unfit() -> Situation:
    schema = compile_schema([UNFIT])
    return _after("two copies", "first"), lambda draft, catalogue: opened(draft, catalogue, schema, count=0)


def _ruled_anew(draft: ActionPlan, catalogue: Catalogue, *, newer_too: bool = False) -> Catalogue:
    """Take everything that is maintained as if it were over a zone whose rules have changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zone_rules, "_zones_of", lambda definition: ("Europe/Oslo",))
        return registration.ruled_anew(draft, catalogue, newer_too=newer_too)


MORE = part(**indexes(), by_price=tm.Index[str](partition="{price}"))
OTHER = part(by_tag=tm.Index[str](partition="{tags}", include=("price",)))
UNFIT = part(changed(FIELDS, price=int))
BESIDE, NEXT, TAKEN_BACK = (
    "twin by first, behind first",
    "twin by second, behind second",
    "retired by the undoing of first",
)
SITUATIONS: dict[str, tuple[Callable[[], Situation], dict[str, str]]] = {
    "a class with more is opened": (_open(MORE), {}),
    "a class that does not fit is opened, and there are no entities": (_open_unfit, {
        "current": "ended", "younger": "ended", "behind": "ended by zeroth", "undone": "ended",
        "twin": "retired by first, behind zeroth",
    }),
    "other rules of a zone": (_of_labels(_ruled_anew), {}),
    "a switch": (lambda: _switch(links=False), {
        "current": "retired by second", "younger": "retired by second", "behind": "retired by second, behind zeroth",
        "twin": "retired by second, behind zeroth", "undone": "retired by second",
    }),
    "a switch with links": (lambda: _switch(links=True), {
        "current": NEXT, "younger": NEXT, "behind": "twin by second, behind zeroth",
        "twin": "retired by second, behind zeroth", "undone": "retired by second",
    }),
    "a switch back": (_switch_back, {
        "current": "undone", "younger": TAKEN_BACK, "behind": "undone by zeroth", "twin": "", "retired": "undone",
        "retired twice": "retired by zeroth, behind zeroth", "undone": TAKEN_BACK,
    }),
    "a swap": (_swap, {
        "current": BESIDE, "younger": BESIDE, "behind": "twin by first, behind zeroth", "twin": "behind by zeroth",
        "retired": "undone", "retired twice": "retired by zeroth, behind zeroth", "undone": TAKEN_BACK,
    }),
    "an edit": (lambda: _edit(back=False), {
        "current": "behind by first", "younger": "behind by first", "undone": "retired by first",
    }),
    "an edit back": (lambda: _edit(back=True), {
        "current": "behind by first", "younger": "behind by first", "retired": "undone",
        "retired twice": "retired by zeroth, behind zeroth",
    }),
    "the end of a twin": (_end, {"twin": "retired by a test, behind zeroth"}),
    "a contraction": (_contract, {"twin": "retired by first, behind zeroth"}),
    "a drop": (_of_labels(dropping.drop, "Part.by_tag"), {}),
    "what is disabled": (_of_labels(dropping.disable, "Part.by_tag"), {}),
    "what is built": (_of_labels(registration.rebuilt, None), {}),
    "what is tidied": (_of_labels(dropping.tidied), {}),
}  # fmt: skip
"""By transition: what comes before it, and what it makes of versions; others stay as they are. Empty: there is none then."""
_situation = cache(lambda name: SITUATIONS[name][0]())


VERSION_CELLS = [
    (name, state, told)
    for name, (_, after) in SITUATIONS.items()
    for state, version in VERSIONS.items()
    if (told := after.get(state, _told(version)))
]


@pytest.mark.parametrize(("name", "state", "after"), VERSION_CELLS)
def test_a_transition_leaves_a_version_in_its_state(name: str, state: str, after: str) -> None:
    check_version(name, state, after)


def check_version(name: str, state: str, after: str) -> None:
    values, transition = _situation(name)
    versions = {**values.catalogue.versions.by_class, "Part": [VERSIONS[state]]}
    catalogue = _take(values, transition, attrs.evolve(values.catalogue, versions=Versions(versions)))
    assert [_told(one) for one in catalogue.versions.of("Part") if one.form == "form"] == [after]


def test_a_class_that_does_not_fit_is_refused_where_there_are_entities() -> None:
    with pytest.raises(tm.SchemaMismatch, match="price"):
        _take(started(), _open(UNFIT)()[1])


def test_a_class_that_does_not_fit_gets_tables_of_its_own_where_there_are_none() -> None:
    values, transition = _open_unfit()
    before, draft = values.catalogue, ActionPlan(END, lambda: values.names, values.catalogue.past)
    after = transition(draft, before)
    gone = {before.table_of("Part").name, *before.index_tables.values()}
    assert {DropTable(name) for name in gone if not name.startswith("Stock")} <= set(draft.actions)
    assert after.table_of("Part").name not in gone
    assert set(after.states) == {"Stock.by_pieces"}


Sale = entity("Sale", "Sales", {"shop": str, "number": int}, tm.Key[str, int](partition="{shop}", row="{number}"))


Best = grouped("Best", Sale, "shop", most=(int | None, tm.max_ever(Sale.number)))


@pytest.mark.parametrize(
    ("transition", "stays"),
    [
        (_ruled_anew, True),
        (lambda draft, catalogue: dropping.disable(draft, catalogue, "Best", keep_ever=True), True),
        (lambda draft, catalogue: dropping.disable(draft, catalogue, "Best"), False),
    ],
    ids=["other rules", "kept", "not kept"],
)
def test_what_ever_was_stays_in_groups_that_are_built_anew(transition: Transition, stays: bool) -> None:
    values = Values()
    values.open(Sale, Best)
    draft = ActionPlan(END, lambda: values.names, values.catalogue.past)
    after = transition(draft, values.catalogue)
    (created,) = [one for one in draft.actions if isinstance(one, CreateLike) and one.other == "Best"]
    copied = [one for one in draft.actions if isinstance(one, CopyRows)]
    assert copied == ([CopyRows("Best", created.name)] if stays else [])
    assert after.states["Best"].state == "disabled"


@pytest.mark.parametrize("newer_too", [False, True])
def test_what_is_of_the_rules_of_a_newer_release_is_built_anew_if_that_is_asked_for(newer_too: bool) -> None:
    values = started()
    state = replace(values.catalogue.states[BY_TAG], zones={"Europe/Oslo": "other"}, release="9999z")
    before = attrs.evolve(values.catalogue, states=values.catalogue.states | {BY_TAG: state})
    after = _take(values, lambda draft, catalogue: _ruled_anew(draft, catalogue, newer_too=newer_too), before)
    assert _index_told(after, BY_TAG) == ("disabled" if newer_too else "ready") + ", of rules of here"
    assert (after.states[BY_TAG].zones != state.zones) is newer_too


def test_other_rules_end_what_is_in_a_twin_too_and_leave_its_tombstones_to_the_file() -> None:
    values = _after("two copies", "first")
    after = _take(values, _ruled_anew)
    (before,), (twin,) = values.catalogue.twins, after.twins
    assert {state.state for state in before.catalogue.states.values()} == {"ready"}
    assert {state.state for state in twin.catalogue.states.values()} == {"disabled"}
    assert twin.catalogue.tombstones == ()
    assert [stone.label for stone in after.tombstones].count(BY_TAG) == 2


@pytest.mark.parametrize(
    ("state", "after"),
    [
        ("current", ["current"]),
        ("behind", ["behind by zeroth"]),
        ("retired", "first replaced this form"),
        ("ended", "was declared again"),
        ("undone", ["undone", "current"]),
    ],
)
def test_a_form_that_was_opened_before_is_opened_again_or_refused(state: str, after: list[str] | str) -> None:
    values, form = started(), compile_schema([OLD]).by_name["Part"].form_hash
    version = replace(VERSIONS[state], form=form)
    versions = {**values.catalogue.versions.by_class, "Part": [version]}
    before = attrs.evolve(values.catalogue, versions=Versions(versions))
    if isinstance(after, str):
        with pytest.raises(tm.SchemaMismatch, match=after):
            _take(values, _open(OLD)()[1], before)
    else:
        assert [_told(one) for one in _take(values, _open(OLD)()[1], before).versions.of("Part")] == after


# -------------------------------------------------------------------------------------------- indexes

BY_TAG = "Part.by_tag"
STATES = ["dropped", "building", "ready", "violated", "disabled"]


def _in_state(state: str) -> Values:
    """Return a store that has an index in a state."""
    values = started()
    if state == "dropped":
        values.carry(dropping.drop, BY_TAG)
    if state in ("building", "disabled"):
        values.carry(dropping.disable, BY_TAG)
    if state == "building":
        values.carry(registration.rebuilt, None)
    if state == "violated":
        states = values.catalogue.states
        states = states | {BY_TAG: replace(states[BY_TAG], state="violated")}
        values._catalogue = attrs.evolve(values.catalogue, states=states)
    return values


def _index_told(catalogue: Catalogue, label: str) -> str:
    """Return what there is of an index, in words."""
    state = catalogue.states.get(label)
    if state is None:
        return "dropped" if any(stone.label == label for stone in catalogue.tombstones) else "absent"
    job = " by a job" if any(label in job.targets for job in catalogue.jobs) else ""
    ruled = "" if state.zones is UNSET else ", of rules of here"
    return f"{state.state}{job}{ruled}{'' if state.declared else ', undeclared'}"


def _linked_switch(values: Values) -> Catalogue:
    """Return the twin that a class becomes."""
    _until(values, "step", "rename_class")
    after = _take(values, lambda draft, catalogue: cutover.switched(draft, catalogue, values.transition, 30))
    return after.twins[0].catalogue


def _limited(transition: Callable[..., Catalogue], *given: Any, **facts: Any) -> Callable[[Values], Catalogue]:
    return lambda values: _take(values, lambda draft, catalogue: transition(draft, catalogue, *given), **facts)


def _swapped(values: Values) -> Catalogue:
    values.migrate(CASES["rename_class"])
    transition = _until(values, "start", "rename_class", to="")
    return _take(values, lambda draft, catalogue: migration_states.started(draft, catalogue, transition))


def _dropped_by_a_script(values: Values) -> Catalogue:
    edit = _until(values, "edit", "drop of an index")
    return _take(values, lambda draft, catalogue: migration_states.edited(draft, catalogue, edit))


GONE = ""
LABELS: dict[str, tuple[Callable[[Values], Catalogue], list[str]]] = {
    "it is declared": (_limited(opened, compile_schema([OLD])), ["SchemaMismatch", "building by a job", "ready", "violated", "disabled"]),
    "it is finished": (_limited(dropping.finished, [BY_TAG]), [GONE, "ready", "ready", "ready", GONE]),
    "it is finished with duplicates": (
        _limited(dropping.finished, [BY_TAG], is_violated=lambda label: True), [GONE, "violated", GONE, "violated", GONE]),
    "it is disabled": (_limited(dropping.disable, BY_TAG), ["InvalidQuery", *["disabled"] * 4]),
    "what is disabled is built": (_limited(registration.rebuilt, None), ["dropped", "building by a job", "ready", "violated", "building by a job"]),
    "a zone of it has other rules": (_limited(_ruled_anew), ["dropped", *["disabled, of rules of here"] * 3, "disabled"]),
    "it is dropped": (_limited(dropping.drop, BY_TAG), ["InvalidQuery", *["dropped"] * 4]),
    "its class becomes a twin": (_linked_switch, [GONE, "ready", "ready", "disabled", "disabled"]),
    "its class and the twin change places": (_swapped, [GONE, "ready", "ready", "disabled", "disabled"]),
    "a script drops it": (_dropped_by_a_script, [GONE, "building by a job, undeclared", "ready, undeclared", "violated, undeclared", "disabled, undeclared"]),
}  # fmt: skip
"""By transition: what it makes of an index in each of the states; empty: it does not come then."""


@pytest.mark.parametrize(
    ("name", "state", "after"),
    [
        (name, state, told)
        for name, (_, after) in LABELS.items()
        for state, told in zip(STATES, after, strict=True)
        if told
    ],
)
def test_a_transition_leaves_an_index_in_its_state(name: str, state: str, after: str) -> None:
    values = _in_state(state)
    try:
        catalogue = LABELS[name][0](values)
    except TableMapperError as error:
        assert type(error).__name__ == after
    else:
        assert _index_told(catalogue, BY_TAG) == after


@pytest.mark.parametrize("state", STATES[1:])
def test_another_definition_is_built_beside_the_one_that_is_there(state: str) -> None:
    values = _in_state(state)
    before = _index_told(values.catalogue, BY_TAG)
    catalogue = _take(values, _open(OTHER)()[1])
    assert _index_told(catalogue, BY_TAG) == "building by a job"
    assert _index_told(catalogue, f"{BY_TAG}#1") == f"{before}, undeclared"


# -------------------------------------------------------------------------------------------- migrations

RUNS: dict[str, Callable[[], Values]] = {
    "new": started,
    "running": lambda: _running(started(), None),
    "done": lambda: _after("rename_class"),
    "undoing": lambda: _running(_without_twin(_after("rename_class")), ""),
    "undone": lambda: _undone(_after("rename_class")),
    "contracted": lambda: _contracted(_after("rename_class")),
}


def _running(values: Values, to: str | None) -> Values:
    _until(values, "step", "rename_class", to=to)
    return values


def _without_twin(values: Values) -> Values:
    for twin in values.catalogue.twins:
        values.carry(cutover.ended, twin, "a test")
    return values


def _undone(values: Values) -> Values:
    values.migrate(CASES["rename_class"], to="")
    return values


def _contracted(values: Values) -> Values:
    values.migrate(CASES["rename_class"], contract=True)
    return values


def _run_told(catalogue: Catalogue) -> str:
    """Return what a store says of the only migration, in words."""
    entry, staged = catalogue.history.last("first"), catalogue.staged
    if entry is None:
        return "new"
    if staged is not None:
        return "undoing" if staged.migration != "first" else "running"
    state = "contracted" if entry.contracted else "undone" if entry.undone else "done" if entry.switched else "begun"
    return f"{state}, both live" if catalogue.twins else state


@cache
def _both_ways() -> tuple[Any, Any]:
    """Return the migration, and its undoing."""
    forth = _until(started(), "start", "rename_class")
    return forth, _until(_after("rename_class"), "start", "rename_class", to="")


def _start(*, back: bool = False, edited: bool = False) -> Transition:
    def start(draft: ActionPlan, catalogue: Catalogue) -> Catalogue:
        transition = _both_ways()[back]
        return migration_states.started(
            draft, catalogue, attrs.evolve(transition, script="0" * 32 if edited else transition.script)
        )

    return start


def _switch_it(draft: ActionPlan, catalogue: Catalogue) -> Catalogue:
    assert catalogue.staged is not None
    return cutover.switched(draft, catalogue, _both_ways()[catalogue.staged.migration != "first"], 30)


def _edit_it(draft: ActionPlan, catalogue: Catalogue) -> Catalogue:
    return migration_states.edited(draft, catalogue, _until(started(), "edit", "drop of an aggregate"))


def _contract_it(draft: ActionPlan, catalogue: Catalogue) -> Catalogue:
    return migration_states.retired(draft, catalogue, "first")


REFUSED = "InvalidMigration"
CHANGES: dict[str, tuple[Transition, dict[str, str]]] = {
    "it is started": (_start(), {
        "new": "running", "running": "running", "undoing": REFUSED, "undone": "done, both live",
    }),
    "it was edited, and is started": (_start(edited=True), {
        "new": "running", "running": "running", "undoing": REFUSED, "undone": "running",
    }),
    "its undoing is started": (_start(back=True), {
        "running": REFUSED, "done": "undone, both live", "undoing": "undoing",
    }),
    "it switches": (_switch_it, {"running": "done, both live", "undoing": "undone, both live"}),
    "it is given up": (migration_states.discarded, {"running": "new", "undoing": "done"}),
    "another one edits": (_edit_it, {"running": REFUSED, "undoing": REFUSED}),
    "it is contracted": (_contract_it, {"done": "contracted", "contracted": "contracted"}),
}  # fmt: skip
"""By transition: what it makes of a migration in those of the states in which it comes."""


@pytest.mark.parametrize(
    ("name", "state", "after"),
    [(name, state, told) for name, (_, cells) in CHANGES.items() for state, told in cells.items()],
)
def test_a_transition_leaves_a_migration_in_its_state(name: str, state: str, after: str) -> None:
    values = RUNS[state]()
    try:
        catalogue = _take(values, CHANGES[name][0])
    except TableMapperError as error:
        assert type(error).__name__ == after
    else:
        assert _run_told(catalogue) == after
