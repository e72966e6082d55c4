"""What is released: what a package index shows of it, and that its archive is complete."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tablemapper
from docs.pages import ROOT, blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_readme_is_the_same_where_its_neighbours_are_not() -> None:
    prose = re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)", prose) + re.findall(r"^\[[^\]]+\]: *(\S+)", prose, re.MULTILINE)
    assert [target for target in targets if not target.startswith(("#", "https://"))] == []
    assert not re.search(r"<(img|a)\b", prose)


def test_the_paths_that_the_readme_names_are_there() -> None:
    paths = re.findall(r"`((?:docs|examples)/[\w./-]+)", README)
    assert len(paths) >= 8
    assert [path for path in paths if not (ROOT / path).exists()] == []
    names = [name for name in re.findall(r"`([\w-]+\.md)`", README) if not [*(ROOT / "docs").rglob(name)]]
    assert names == []


def test_the_picture_in_the_readme_is_that_of_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tablemapper.cli.app import run

    ((_, program),) = blocks(ROOT / "README.md")
    (tmp_path / "readme_shop.py").write_text(program, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert run(["diagram", "--models", "readme_shop", "--format", "text"]) == 0
    assert f"```text\n{printed.getvalue()}```" in README
    del sys.modules["readme_shop"]


def test_the_extra_all_has_each_extra_that_a_program_may_need() -> None:
    extras = {name: " ".join(requirements) for name, requirements in PROJECT["optional-dependencies"].items()}
    reached: set[str] = set()
    new = {"all"}
    while new:
        reached |= new
        named = re.findall(r"tablemapper\[([\w,]+)\]", " ".join(extras[name] for name in new))
        new = {name for names in named for name in names.split(",")} - reached
    assert reached == extras.keys() - {"bench", "dev", "test"}
    assert sorted(name for name in reached - {"all"} if f"`{name}`" not in README) == []


def test_the_source_archive_has_all_that_is_in_the_repository() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tree = ast.parse((ROOT / ".ci" / "sdist.py").read_text(encoding="utf-8"))
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    by_setuptools = {"LICENSE", "README.md", "pyproject.toml", "tablemapper"}
    named = {*constants["FOLDERS"], *constants["FILES"]}
    assert {line.split("/")[0] for line in listed.splitlines()} - by_setuptools == named


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_workflows_run_what_is_there_and_pin_each_action() -> None:
    yaml: Any = pytest.importorskip("yaml")  # (mkdocs needs it, so the extra "dev" has it)
    steps_of_ci = re.findall(r"^run_(\w+)\(\)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        workflow = yaml.safe_load(text)
        assert workflow["permissions"] == {"contents": "read"}, path
        for name, job in workflow["jobs"].items():
            assert "uses" in job or job["timeout-minutes"] <= 120, (path, name)
        for action, comment in re.findall(r"uses: (\S+)(.*)", text):
            local = action.startswith("./") and (ROOT / action).is_file()
            assert local or re.fullmatch(r"\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action + comment), (path, action)
        for arguments in re.findall(r"\.ci/run(.*)", text):
            assert set(arguments.split()) <= set(steps_of_ci), (path, arguments)
    assert {path.stem for path in WORKFLOWS} == {"checks", "release"}


def test_checks_run_on_the_oldest_and_the_newest_python_and_the_release_on_all() -> None:
    yaml: Any = pytest.importorskip("yaml")
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={versions[0]}"
    checks, release = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in WORKFLOWS]
    rows = checks["jobs"]["all"]["strategy"]["matrix"]["include"]
    assert [row["python"] for row in rows] == [versions[0], versions[-1]]
    assert {version for row in rows for version in [row["python"], *row["others"].split()]} == set(versions)
    (python,) = [step for step in release["jobs"]["release"]["steps"] if "python-version" in step.get("with", {})]
    assert sorted(python["with"]["python-version"].split()) == versions


def test_a_release_gets_the_section_of_the_changelog(tmp_path: Path) -> None:
    command = re.findall(r"(awk .*) > notes\.md", WORKFLOWS[-1].read_text(encoding="utf-8"))[0]
    environment = {"PATH": os.environ["PATH"], "GITHUB_REF_NAME": f"v{tablemapper.__version__}"}
    notes = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "The first version" in notes.stdout
    assert not re.search(r"^## ", notes.stdout, re.MULTILINE)
