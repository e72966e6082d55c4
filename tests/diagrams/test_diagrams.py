"""The picture of a model: what it shows, that nothing in it is markup, and that the command draws it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import tablemapper as tm
from tablemapper.cli.app import Exit, run
from tablemapper.diagrams.markup import mermaid, text
from tablemapper.diagrams.svg import svg
from tablemapper.diagrams.trees import Line, Tree, trees_of

from ..classes import entity


class Member(tm.Entity, table="Members"):
    team: tm.Field[str]
    id: tm.Field[int]
    email: tm.Field[str | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str, int](partition=("{team}", "m"), row="{id}")
    by_email = tm.Index[str](partition="{email}", unique=True, include=("tags",))
    by_tag = tm.Index[str, int](partition="{tags}", row="{id}", include="all")
    early = tm.Index[int](partition="early", row="{id}", where=lambda m: m.id < 9)


class Board(tm.Aggregate, of=Member, table="Boards"):
    team: tm.Field[str] = tm.group_by(Member.team)
    members: tm.Field[int] = tm.count()
    highest: tm.Field[int | None] = tm.max_ever(Member.id)

    key = tm.Key[str](partition="{team}")
    by_members = tm.Index[int](partition="all", row="{members:desc}")


Team = entity("Team", "Teams", {"team": str, "members": (int, tm.count(of=Member))}, tm.Key[str](partition="{team}"))


TREES = trees_of([Member, Board, Team], {"Member.by_tag": "building"})


def test_each_class_is_a_tree_of_what_follows_from_it() -> None:
    member, team = TREES
    assert (member.name, member.about, member.key) == ("Member", "Members · 4 fields", "{team} m / {id}")
    assert member.lines == (
        Line("index", "by_email", "{email}", "unique, + tags", 0, "MembersByEmail"),
        Line("index", "by_tag", "{tags} / {id}", "a row for each, + all, building", 0, "MembersByTag"),
        Line("index", "early", "early / {id}", "some", 0, "MembersEarly"),
        Line("aggregate", "Board", "{team}", "count, max ever", 0, "Boards"),
        Line("index", "by_members", "all / {members:desc}", "", 1, "BoardsByMembers"),
        Line("field", "Team.members", "", "count"),
    )
    assert team.lines == ()


def test_as_text_and_as_mermaid() -> None:
    assert text(TREES).splitlines()[:3] == [
        "Member  (Members · 4 fields)  {team} m / {id}",
        "  ▪ by_email      {email}               unique, + tags                   MembersByEmail",
        "  ▪ by_tag        {tags} / {id}         a row for each, + all, building  MembersByTag",
    ]
    drawn = mermaid(TREES)
    assert drawn.startswith('flowchart LR\n  c0["Member<br>Members · 4 fields<br>#123;team#125; m / #123;id#125;"]\n')
    assert '  c0_3 --> c0_4["by_members<br>all / #123;members:desc#125;"]\n' in drawn
    assert '  c0 --> c0_5{{"Team.members<br>count"}}\n' in drawn
    assert text(()) == ""


def test_a_long_note_moves_no_other_line() -> None:
    long = ", ".join(f"+ field{number}" for number in range(30))
    lines = (Line("index", "by_a", "{a}", long, 0, "As"), Line("index", "by_b", "{b}", "unique", 0, "Bs"))
    assert text((Tree("Wide", "Wides", 31, "{a}", lines),)).splitlines()[1:] == [
        f"  ▪ by_a  {{a}}  {long}  As", "  ▪ by_b  {b}  unique  Bs",
    ]  # fmt: skip


def test_svg_has_every_name_and_says_what_it_is() -> None:
    root = ET.fromstring(svg(TREES, standalone=True))
    shown = "".join(root.itertext())
    for tree in TREES:
        for word in (tree.name, tree.key, *(one for line in tree.lines for one in (line.name, line.key))):
            assert word in shown
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert "<style" not in svg(TREES)  # (a page colours it)


def boxes(drawn: str) -> list[float]:
    return [float(one) for one in re.findall(r'<rect x="1" y="[-\d.]+" width="([\d.]+)"', drawn)]


def test_what_is_long_is_cut_and_stays_in_the_picture() -> None:
    lines = tuple([Line("index", f"by_{n}", "{" + "x" * 60 + "}", "y" * 60) for n in range(20)])
    drawn = svg([Tree("T", "Ts", 9, "{" + "k" * 99 + "}", lines)])
    assert "and 8 more" in drawn
    assert "by_12" not in drawn
    assert f"<title>{'{' + 'x' * 60 + '}'}</title>" in drawn
    found = re.search(r'width="([\d.]+)" height="([\d.]+)"', drawn)
    assert found
    width, height = map(float, found.groups())
    assert all(float(x) < width for x in re.findall(r'<text x="([\d.]+)"', drawn))
    assert all(0 <= float(y) < height for y in re.findall(r'y="([-\d.]+)"', drawn))
    assert boxes(drawn)[0] < 400
    assert ET.fromstring(svg([])).get("viewBox") == "0 0 4 2"


def test_trees_share_their_columns_while_they_are_narrow_enough() -> None:
    def names(drawn: str) -> set[str]:
        return set(re.findall(r'<text x="([\d.]+)"[^>]*>by_', drawn))

    short = [Tree(f"T{n}", "Ts", n, "{a}", (Line("index", "by_x" * (n + 1), "{a}", ""),)) for n in range(3)]
    assert len(names(svg(short))) == 1
    wide = [*short, Tree("Wide", "W", 1, "{a}", (Line("index", "by_" + "w" * 90, "{k}", "z" * 30),))]
    assert len(names(svg(wide))) > 1


def test_names_are_never_markup() -> None:
    evil = '<script>"&{{7*7}}'
    drawn = svg([Tree(evil, evil, 1, evil, (Line("index", evil, evil, evil * 9),))], standalone=True, label=evil)
    assert "<script" not in drawn
    assert ET.fromstring(drawn).get("aria-label") == evil
    assert "<script" not in mermaid([Tree(evil, evil, 1, evil, ())])


@pytest.mark.file
def test_the_command_draws_a_module_or_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tm.open("x.db", models=[Member, Board, Team]).close()
    assert run(["diagram", "x.db", "--format", "text"]) == Exit.OK
    assert "● Board" in capsys.readouterr().out
    assert run(["diagram", "--models", "tests.diagrams.test_diagrams"]) == Exit.OK
    assert ET.fromstring(capsys.readouterr().out).tag.endswith("svg")
    assert run(["diagram", "x.db", "--format", "mermaid"]) == Exit.OK
    assert capsys.readouterr().out.startswith("flowchart LR")
    assert run(["diagram"]) == Exit.USAGE
    assert "name the models" in capsys.readouterr().err
