"""What does not fit is told before anything is written, and a store is then as it was."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from .shapes import KEY, OLD, OLD_TOTALS, part, totals

PLAIN = part({"shelf": str, "number": int})
SIZED = part({"shelf": str, "number": int, "size": int})
EXTRA = {"shelf": str, "number": int, "more": tm.Extra}


def script(old: Any, new: Any, steps: Any = lambda m: None, name: str = "sizes", after: str | None = None) -> Any:
    def function(m: tm.Migration) -> None:
        steps(m)

    function.__name__ = name
    return tm.migration(after=after, old=old, new=new)(function)


SIZES = script([PLAIN], [SIZED], lambda m: m.fill(SIZED.size, lambda p: p.number))


@tm.migration(after=None, old=[PLAIN], new=[SIZED])
def sizes(m: tm.Migration) -> None:
    """Have another text than the script that ran under this name."""
    m.fill(SIZED.size, lambda p: p.number + 1)


def nothing(name: str, after: str) -> Any:
    return script([SIZED], [SIZED], name=name, after=after)


WRONG: list[tuple[str, list[Any], str]] = [
    ("two heads", [SIZES, nothing("a", "sizes"), nothing("b", "sizes")], "a and b both follow sizes: change after="),
    ("a gap", [SIZES, nothing("a", "size")], 'a follows size, which does not exist; did you mean "sizes"'),
    ("a circle", [SIZES, nothing("a", "b"), nothing("b", "a")], "a and b follow each other in a circle; the first says"),
    ("an edited script", [sizes], "sizes was edited after it ran over this store: restore its text"),
    ("old shapes of another store", [SIZES, script([PLAIN], [PLAIN], lambda m: m.rekey(PLAIN, PLAIN), "a", "sizes")],
     "Part.size: the field is in the store, and not in old: name it there"),
    ("a field in neither", [SIZES, script([SIZED], [PLAIN], name="a", after="sizes")], r"m\.drop\(old.Part.size\)\?"),
]  # fmt: skip


@pytest.mark.parametrize(("scripts", "said"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
@pytest.mark.parametrize("dry_run", [False, True])
def test_wrong_scripts_are_one_error_and_leave_the_file_as_it_was(
    place: Path, scripts: list[Any], said: str, *, dry_run: bool
) -> None:
    with tm.open(place, models=[PLAIN]) as store:
        store.insert_many(PLAIN("x", number) for number in range(5))
    tm.migrate(place, [SIZES])
    before = place.read_bytes()
    with pytest.raises(tm.InvalidMigration, match=said):
        tm.migrate(place, scripts, dry_run=dry_run, contract=not dry_run)
    assert place.read_bytes() == before
    assert tm.migrate(place, [SIZES]).applied == ()


def test_who_goes_back_over_what_was_contracted_leaves_the_file_as_it_was(place: Path) -> None:
    tm.open(place, models=[PLAIN]).close()
    tm.migrate(place, [SIZES], contract=True)
    before = place.read_bytes()
    for dry_run in (True, False):
        with pytest.raises(tm.InvalidMigration, match="sizes: it was contracted: .* it cannot be undone"):
            tm.migrate(place, [SIZES], to="", dry_run=dry_run)
    assert place.read_bytes() == before


def test_a_script_that_forgets_an_old_class_is_refused_before_it_is_noted_as_done(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[PLAIN]) as store:
        store.insert(PLAIN("x", 1))
    before = tm.status(tmp_path / "s.db")
    with pytest.raises(tm.InvalidMigration, match='Part: the property "size" is new, .*, and old= has no Part'):
        tm.migrate(tmp_path / "s.db", [script([], [SIZED])])
    assert tm.status(tmp_path / "s.db") == before
    done = tm.migrate(tmp_path / "s.db", [script([PLAIN], [SIZED], lambda m: m.fill(SIZED.size, lambda p: p.number))])
    assert done.applied == ("sizes",)


def test_a_script_whose_new_class_takes_the_keys_of_another_is_refused(tmp_path: Path) -> None:
    with tm.open(tmp_path / "s.db", models=[PLAIN]) as store:
        store.insert(PLAIN("x", 1))
    before = tm.status(tmp_path / "s.db")
    other = entity("Box", "Parts", {"shelf": str, "number": int, "size": int}, KEY)
    with pytest.raises(
        tm.InvalidMigration, match='Box: it shares the table "Parts" with Part, but their keys can be equal'
    ):
        tm.migrate(tmp_path / "s.db", [script([], [other])])
    assert tm.status(tmp_path / "s.db") == before


@pytest.mark.parametrize(("old", "new"), [(PLAIN, [SIZED]), ([PLAIN], SIZED), (None, [SIZED]), ([PLAIN], "Part")])
def test_shapes_that_are_no_lists_are_told(old: Any, new: Any) -> None:
    with pytest.raises(tm.InvalidMigration, match="(old|new)=: expected a list of classes, got"):
        script(old, new)


def test_the_script_before_is_named_by_its_id() -> None:
    with pytest.raises(
        tm.InvalidMigration, match="after=: expected the id of a script, a str, or None, got MigrationFunction"
    ):
        script([PLAIN], [SIZED], after=SIZES)


def test_a_field_of_another_class_of_that_name_is_told() -> None:
    other = part({"shelf": str, "number": int, "size": int})
    with pytest.raises(
        tm.InvalidMigration, match=r"Part is not in new=\[Part\]; there is another Part, write new.Part"
    ):
        tm.Migrations([script([PLAIN], [SIZED], lambda m: m.fill(other.size, lambda p: 1))])


@pytest.mark.parametrize("form", [3, None, [], {"Part": 3}])
def test_a_form_that_is_none_is_told(form: Any) -> None:
    with pytest.raises(tm.InvalidMigration, match=r"tm\.schema_snapshot"):
        tm.changes(form, [PLAIN])


def test_a_function_that_does_not_run_when_it_is_called_is_refused() -> None:
    async def later(m: tm.Migration) -> None:
        m.drop(PLAIN)

    def one_by_one(m: tm.Migration) -> Any:
        yield m.drop(PLAIN)

    for function in (later, one_by_one):
        with pytest.raises(tm.InvalidMigration, match="without async and yield"):
            tm.migration(after=None, old=[PLAIN], new=[])(function)  # type: ignore[arg-type]


def test_no_scripts_at_all_beside_one_that_has_not_finished_are_told(place: Path) -> None:
    with tm.open(place, models=[PLAIN]) as store:
        store.insert(PLAIN("x", 1))
    started = script([PLAIN], [SIZED], lambda m: m.fill(SIZED.size, lambda p: p.number))
    assert not tm.migrate(place, [started], limit=0).done
    before = tm.status(place)
    with pytest.raises(tm.InvalidMigration, match=r"sizes has not finished; .* as in to=''"):
        tm.migrate(place, [])
    assert tm.status(place) == before
    assert tm.migrate(place, [], to="").done
    assert not tm.status(place).history


def test_a_package_is_named_as_python_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "broken_changes").mkdir()
    (tmp_path / "broken_changes/__init__.py").write_text("def (")
    for name, message in (
        ("./changes", r"as in shop\.migrations"), (".changes", r"as in shop\.migrations"),
        ("broken_changes", "cannot be imported: SyntaxError"),
    ):  # fmt: skip
        with pytest.raises(tm.InvalidMigration, match=message):
            tm.Migrations(name)


def test_a_store_in_memory_has_nothing_to_migrate() -> None:
    for use in (lambda: tm.status(":memory:"), lambda: tm.migrate(":memory:", [script([PLAIN], [PLAIN])])):
        with pytest.raises(tm.StoreError, match="name the file of a store"):
            use()


@pytest.mark.parametrize(
    ("field", "value"), [((str | None, tm.field(default=None)), None), ((str, tm.field(default="")), "")], ids=repr
)
def test_the_generated_step_for_undeclared_properties_runs_as_it_is(tmp_path: Path, field: Any, value: Any) -> None:
    kind, default = field
    old = part(EXTRA)
    new = part(EXTRA | {"color": kind}, color=default)
    with tm.open(tmp_path / "s.db", models=[old]) as store:
        store.insert(old("x", 1, tm.Extra({"color": "red", "depth": 3})))
        store.insert(old("x", 2, tm.Extra({"depth": 4})))
    with pytest.raises(tm.SchemaMismatch) as refused:
        tm.open(tmp_path / "s.db", models=[new])
    code = next(line for line in (refused.value.script or "").splitlines() if line.strip().startswith("m.fill"))
    step = compile(code.strip(), "script", "exec")
    names = {"new": type("new", (), {"Part": new})}
    tm.migrate(tmp_path / "s.db", [script([old], [new], lambda m: exec(step, {**names, "m": m}))])
    with tm.open(tmp_path / "s.db", models=[new]) as store:
        assert [(p.color, p.more) for p in store.query(new).allow_scan()] == [
            ("red", tm.Extra({"depth": 3})), (value, tm.Extra({"depth": 4})),
        ]  # fmt: skip


def test_a_program_with_an_aggregate_that_was_renamed_is_told_what_ended_it(tmp_path: Path) -> None:
    same = part({"shelf": str, "number": int, "price": str, "maker": str | None, "tags": list[str]},
                by_maker=tm.Index[str](partition="{maker}"), by_tag=tm.Index[str](partition="{tags}"))  # fmt: skip
    sums = totals(same, "maker", "Sums")
    with tm.open(tmp_path / "s.db", models=[OLD, OLD_TOTALS]) as store:
        store.insert(OLD("x", 1, "1", None, []))
    renamed = [script([OLD, OLD_TOTALS], [same, sums], lambda m: m.rename_class(OLD_TOTALS, sums))]
    tm.migrate(tmp_path / "s.db", renamed, contract=True)
    with pytest.raises(tm.SchemaMismatch, match="Totals: the migration sizes replaced this form of the class"):
        tm.open(tmp_path / "s.db", models=[OLD, OLD_TOTALS])


def test_what_is_not_declared_any_more_is_logged_with_the_step_that_removes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tablemapper")
    bare = part({"shelf": str, "number": int, "price": str, "maker": str | None, "tags": list[str]})
    tm.open(tmp_path / "s.db", models=[OLD]).close()
    caplog.clear()
    tm.open(tmp_path / "s.db", models=[bare]).close()
    assert [record.getMessage() for record in caplog.records if "m.drop" in record.getMessage()] == [
        f"Part: the index {name} is not declared, and the store goes on to maintain it; a migration can remove it: "
        f"m.drop(old.Part.{name})"
        for name in ("by_maker", "by_tag")
    ]
