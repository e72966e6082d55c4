"""The benchmark compares like with like: whoever finds or leaves something else is found out."""

from __future__ import annotations

import argparse
import gc
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from examples.benchmarks import columns, contestant, everyday, online, paths, scale, sizes, tasks
from examples.benchmarks.__main__ import main
from examples.benchmarks.by_hand import ByHand, pack, units, unpack
from examples.benchmarks.contestant import PEERS, load
from examples.benchmarks.data import PLACED_AT, Facts, Workload, make
from examples.benchmarks.measure import Differ, measure
from examples.benchmarks.output import Table, between, number, place, refreshed
from examples.benchmarks.phases import PHASES, chosen
from tablemapper.schema.maintenance import ChangeSet

pytestmark = pytest.mark.one_python


@pytest.fixture(autouse=True)
def _nothing_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark collects garbage before each lap; here that is the garbage of the whole suite, and the times are not read."""
    monkeypatch.setattr(gc, "collect", lambda: 0)


INSTALLED = {name: cls for name in ("ours", *PEERS) if (cls := load(name)) is not None}


def compare(contestants: dict[str, Any], entities: int = 300) -> Any:
    makers = {name: partial(cls, durability="relaxed") for name, cls in contestants.items()}
    return measure(makers, PHASES, [Workload(entities, 0)])


def test_all_contestants_find_and_leave_the_same() -> None:
    times = compare(INSTALLED)
    assert {name: set(found) for name, found in times.taken.items()} == {p.name: set(INSTALLED) for p in PHASES}


class Forgets(ByHand):
    """Keeps no index rows of one customer."""

    def bulk(self, orders: list[Facts]) -> None:
        super().bulk(orders)
        self.db.execute("DELETE FROM by_sku WHERE bpk = 'c0000007'")


class Drops(ByHand):
    def delete_batch(self, orders: list[Facts]) -> None:
        super().delete_batch(orders[:-1])


class Drifts(ByHand):
    def _count(self, days: Any, day: str, orders: int, *totals: float) -> None:
        super()._count(days, day, orders, *totals, 0.01)


class Disorders(ByHand):
    def partition(self, customer: str) -> list[Any]:
        return super().partition(customer)[::-1]


@pytest.mark.parametrize("cheat", [Forgets, Drops, Drifts, Disorders])
def test_a_contestant_that_does_other_work_is_found_out(cheat: type[ByHand]) -> None:
    with pytest.raises(Differ):
        compare({"by_hand": ByHand, "cheat": cheat})


@pytest.mark.parametrize("form", ["--json", "--markdown", "--clock=cpu"])
def test_the_command_prints_every_phase(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--entities=200", "--rounds=1", form, "--peers=by_hand"])
    out = capsys.readouterr().out
    assert all(phase.title in out for phase in PHASES)
    if form == "--json":
        assert json.loads(out)["phases"]["get"]["µs"]["by_hand"]["wall"][0] > 0


def test_without_the_other_mappers_it_runs_and_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contestant, "find_spec", lambda name: None if name in ("sqlalchemy", "peewee") else name)
    main(["--entities=50", "--rounds=1", "--phases=get"])
    out, err = capsys.readouterr()
    assert "by hand" in out
    assert 'sqlalchemy is left out: it is not installed; pip install -e ".[bench]"' in err
    assert "peewee is left out" in err


def test_the_command_for_sizes_has_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    sizes.main(["--sizes=100,70k", "--rounds=1", "--loaded=1m", "--markdown"])
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert rows[2:] == ["100", "71,680"]


def test_sizes_count_in_powers_of_two_and_leave_room_for_the_keys() -> None:
    assert sizes.bodies(number("16k", binary=True)) == {"body00": 16_384}
    assert sum(sizes.bodies(number("1m", binary=True)).values()) == (1 << 20) - 4096


def test_entities_of_a_size_that_come_back_wrong_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes.Rowid, "partition", lambda self, partition: [])
    with pytest.raises(Differ, match="partition query"):
        sizes.main(["--sizes=100", "--rounds=1", "--loaded=4k"])


def test_the_command_for_growth_compares_the_largest_store_with_the_smallest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scale, "EACH", 20)
    run = ["--entities=100,200", "--rounds=1", f"--keep={tmp_path}"]
    scale.main([*run, "--json"])
    result = json.loads(capsys.readouterr().out)["phases"]["get"]
    assert result["growth"] == result["µs"]["200"][0]["wall"] / result["µs"]["100"][0]["wall"]
    monkeypatch.setattr(scale, "_RUN", scale._RUN + 1)
    scale.main(run)  # with the stores that are there
    assert "delete, 50 a transaction" in capsys.readouterr().out


def test_the_command_for_tasks_compares_with_the_same_calls_by_hand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiosqlite")
    tasks.main(["--entities=200", "--rounds=1"])
    assert "get, 100 gathered" in capsys.readouterr().out
    monkeypatch.setattr(tasks.ByHand, "partition", lambda self, customer: [])
    with pytest.raises(Differ, match="partition query"):
        tasks.main(["--entities=200", "--rounds=1"])


def test_the_command_for_columns_compares_them_with_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas")
    columns.main(["--entities=200", "--rounds=1", "--streamed=1k", "--json"])
    result = json.loads(capsys.readouterr().out)["columns"]
    assert set(result) == {"to_arrow", "columns", "lists", "frame", "streamed"}
    assert result["streamed"]["rows"] == 1000
    monkeypatch.setattr(columns.Round, "tuples", lambda self: 199)
    monkeypatch.setattr(columns, "OUT", (attrs.evolve(columns.OUT[0], beside=columns.Round.tuples),))
    with pytest.raises(Differ, match="to_arrow"):
        columns.main(["--entities=200", "--rounds=1", "--streamed=1k"])


@pytest.mark.long
def test_a_stream_of_flights_takes_bounded_memory(full_size: bool) -> None:
    pytest.importorskip("pyarrow")
    assert columns.growth(1_000_000 if full_size else 20_000) <= columns.MOST_MB


def test_stores_of_any_number_of_orders_spread_them_over_all_days() -> None:
    for entities in (1_000, 10_000):
        orders = list(scale.Grown(entities).all())
        assert len({order[PLACED_AT].date() for order in orders}) == 90
        assert len({order[:3] for order in orders}) == entities
        assert orders == sorted(orders)


def test_a_phase_brings_those_that_it_needs() -> None:
    assert [phase.name for phase in chosen(["delete50"])] == ["bulk", "insert50", "delete50"]
    with pytest.raises(ValueError, match="no phase nonsense; there are bulk"):
        chosen(["nonsense"])


def test_orders_are_the_same_for_the_same_seed_and_no_two_calls_make_one_twice() -> None:
    one, again = list(make(50, 1, of=100)), list(make(50, 1, of=100))
    assert one == again
    assert one != list(make(50, 2, of=100))
    assert not {order[2] for order in one} & {order[2] for order in make(50, 1, of=100, first=50)}


@pytest.mark.parametrize(("text", "expected"), [("50k", 50_000), ("1m", 1_000_000), ("7", 7), ("1.5K", 1_500)])
def test_numbers_can_be_short(text: str, expected: int) -> None:
    assert number(text) == expected


@pytest.mark.parametrize("values", [[], [0.1] * 10, [1e308, -1e308, 5e-324], [3.5, -3.5]])
def test_the_sums_by_hand_are_exact(values: list[float]) -> None:
    exact: Callable[[float], int] = units
    total = sum(map(exact, values))
    rounded, packed = pack(total)
    assert unpack(packed) == total
    assert rounded == math.fsum(values)


def test_a_table_takes_the_place_of_the_one_in_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- one -->\nold\n<!-- end -->\nbetween\n<!-- two -->\nkept\n<!-- end -->\n")
    place(page, "one", "new \\1")
    assert page.read_text() == (
        "before\n<!-- one -->\n\nnew \\1\n\n<!-- end -->\nbetween\n<!-- two -->\nkept\n<!-- end -->\n"
    )
    page.write_text("<!-- one -->\n<!-- end -->\n<!-- two -->\n<!-- end -->\n")
    place(page, "one", "first")
    assert page.read_text() == "<!-- one -->\n\nfirst\n\n<!-- end -->\n<!-- two -->\n<!-- end -->\n"
    with pytest.raises(SystemExit, match="expected one <!-- three -->"):
        place(page, "three", "")


def test_a_part_of_a_table_keeps_the_other_rows(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- online -->\n\nAll:\n\n|  | n |\n| --- | ---: |\n| one | 1 |\n| two | 2 |\n| three | 3 |\n\nWith: x.\n\n<!-- end -->\nafter\n"
    )
    for value in ("7", "8 !"):
        table = Table("Part", [["", "n"]], [["two", value], ["two and a half", value], ["four", value]], {})
        place(page, "online", refreshed(between(page, "online"), table, f"Later (two): {value}"))
        shown = value if value == "7" else "**8**"
        assert page.read_text() == (
            "before\n<!-- online -->\n\nAll:\n\n|  | n |\n| --- | ---: |\n| one | 1 |\n"
            f"| two | {shown} |\n| two and a half | {shown} |\n| four | {shown} |\n| three | 3 |\n\n"
            f"With: x.\n\nLater (two): {value}\n\n<!-- end -->\nafter\n"
        )
    with pytest.raises(SystemExit, match="no such table yet"):
        refreshed("", table, "Later: x")


def test_one_part_of_the_changes_in_use_goes_into_the_page_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- online -->\n\nAll:\n\n|  |  | measured |\n| --- | ---: | ---: |\n| mine | 1 | x |\n\nWith: x.\n\n<!-- end -->\n"
    )
    online.main([*_SMALL, "--only", "follow", "--into", str(page)])
    rows = [line.split(" | ")[0] for line in page.read_text().split("\n") if line.startswith("| ")]
    assert rows[2:] == [
        "| mine",
        "| the first write of an old version once an index and an aggregate came",
        "| the first write after the catalogue changed again",
    ]
    assert page.read_text().count("Measured later (follow): processor ") == 1


def test_no_round_begins_once_a_figure_took_as_long_as_it_may(capsys: pytest.CaptureFixture[str]) -> None:
    online.main([*_SMALL, "--rounds=5", "--bound=0", "--only", "open", "follow", "--json"])
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert {name: len(one["values"]) for name, one in figures.items()} == {
        "open": 1,
        "follow first": 1,
        "follow then": 1,
    }


_SMALL = ["--quick", "--entities=2k", "--copied=1k", "--most=2k", "--seconds=0.1", "--writers=1", "--writes=50"]


def test_the_command_for_changes_in_use_has_a_goal_for_each_figure(capsys: pytest.CaptureFixture[str]) -> None:
    online.main([*_SMALL, "--json"])
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert {name.split()[0] for name in figures} >= {*online.PARTS} - {"dry"}
    assert figures["failed"]["value"] == 0
    assert {name for name, one in figures.items() if one["goal"] is None} == {"twin", "open", "combine"}


def test_a_figure_that_misses_its_goal_says_so() -> None:
    assert online.Figure("a", "a", [1, 3, 9], 2).row() == ["a", "3.00 (≤ 2) !", ""]
    assert online.Figure("a", "a", [1, 3, 9], 2, "≥").row() == ["a", "3.00 (≥ 2)", ""]


def test_a_build_that_leaves_an_entity_out_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    added = ChangeSet.added
    monkeypatch.setattr(ChangeSet, "added", lambda self, targets, rows: added(self, targets, rows[1:]))
    with pytest.raises(Differ, match="what was built"):
        online.main([*_SMALL, "--only", "build"])


def test_a_stream_over_tables_holds_a_few_pages() -> None:
    azure = pytest.importorskip("examples.benchmarks.azure")
    assert azure.grown(3_000) < azure.MOST_MB


def test_everyday_work_finds_what_is_found_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(everyday, "_CALLS", 5)
    options = argparse.Namespace(rounds=1, clock="cpu", durability="relaxed", folder=str(tmp_path))
    taken = everyday.measured(options, everyday.ROWS, 300)
    assert set(taken) == {row.title for row in everyday.ROWS}
    assert all(len(rounds) == 1 for of_row in taken.values() for rounds in of_row.values())
    wrong = attrs.evolve(everyday.ROWS[6], hand=lambda hand, order: "x")
    with pytest.raises(AssertionError, match="get"):
        everyday.measured(options, [wrong], 300)


@pytest.mark.parametrize("path", paths.PATHS, ids=[path.title for path in paths.PATHS])
def test_each_path_of_its_own_can_be_left(path: paths.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "lines" in path.title:
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(paths, "_CALLS", 5)
    monkeypatch.setattr(paths, "_BULK", 50)
    assert all(gain > 0 for gain in paths.gains(path, Workload(300, 0), 1))
    assert list(Path(__file__).parent.rglob(f"{path.proof}.py"))
