"""What does not fit is told before anything is written, and a store is then as it was."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from .shapes import KEY, OLD, OLD_TOTALS, entity, part, totals

PLAIN = part({"shelf": str, "number": int})
SIZED = part({"shelf": str, "number": int, "size": int})
EXTRA = {"shelf": str, "number": int, "more": tm.Extra}


def script(old: Any, new: Any, steps: Any = lambda m: None) -> Any:
    def sizes(m: tm.Migration) -> None:
        steps(m)

    return tm.migration(after=None, old=old, new=new)(sizes)


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


def test_a_field_of_another_class_of_that_name_is_told() -> None:
    other = part({"shelf": str, "number": int, "size": int})
    with pytest.raises(
        tm.InvalidMigration, match=r"Part is not in new=\[Part\]; there is another Part, write new.Part"
    ):
        tm.Migrations([script([PLAIN], [SIZED], lambda m: m.fill(other.size, lambda p: 1))])


@pytest.mark.parametrize("form", [3, None, [], {"Part": 3}])
def test_a_form_that_is_none_is_told(form: Any) -> None:
    with pytest.raises(tm.InvalidMigration, match=r"tm\.schema_form"):
        tm.changes(form, [PLAIN])


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
    code = next(line for line in str(refused.value).splitlines() if line.strip().startswith("m.fill"))
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
