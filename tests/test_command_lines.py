"""Every command line of the pages is run: here, or where it says."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.cli.app import program, run
from tablemapper.engines import locations

from .engines.azure.place import AzurePlace
from .test_docs import PAGES, ROOT

pytestmark = [pytest.mark.file, pytest.mark.one_python]

_SHELL = re.compile(r"^```sh[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(tablemapper [a-z][^`…]*)`")
_FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"^ *(?:[\d*][\d*/ ]+ |\w+=|RUN |\$ )?(?:\S*/)?tablemapper (?!as\b)([a-z][^`\n]*)", re.MULTILINE)
_CALLERS = ("", "ini", "text", "dockerfile", "yaml", "toml")
_PLACEHOLDER = re.compile(r"\b(PLACE|NAME|COPY|CLASS|VALUE|COMMAND)\b")
SCRIPT = "#!/bin/sh\n"
ELSEWHERE = {
    r"python3 -m venv \.venv && ": ".ci/run test examples",
    r"(\.venv/bin/)?(pip install|mkdocs|tablemapper inspect)": ".ci/run examples package; test_packaging knows the extras",
    r"(\.venv/bin/)?python examples/weather\.py": "test_examples, .ci/run examples",
    r"(\.venv/bin/)?python -m (pytest|tests\.where|examples\.benchmarks)": "by those who work on tablemapper: .ci/run test, test_benchmarks",
    r"tablemapper inspect": "cli/test_inspect",
    r"tablemapper adopt": "cli/test_accounts",
    r"npx azurite": "engines/azure/azurite starts it so",
    r"git clone|export STORAGE=": "each reader's own",
    r"chmod|mkdir": "commands of the system",
}
MODELS = """
import tablemapper as tm
from decimal import Decimal

class Product(tm.Entity, table="Products"):
    category: tm.Field[str]
    number: tm.Field[str]
    price: tm.Field[Decimal]
    maker: tm.Field[str]
    note: tm.Field[str | None] = tm.field(default=None)
    key = tm.Key[str, str](partition="{category}", row="{number}")
    by_maker = tm.Index[str](partition="{maker}")
"""


def _lines() -> Iterator[tuple[str, str]]:
    """Yield each line that a page gives to a shell, with its page."""
    for page in PAGES:
        for block in _SHELL.findall(page.read_text(encoding="utf-8")):
            for line in () if block.startswith(SCRIPT) else block.splitlines():
                yield page.name, re.sub(r"\s+# .*| > \S+$", "", line).strip()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a package ``shop``, a store with a backup, and an account."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    for name in [name for name in sys.modules if name.split(".")[0] == "shop"]:  # (that of the examples)
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "models.py").write_text(MODELS, encoding="utf-8")
    from shop.models import Product  # type: ignore[import-not-found]

    (tmp_path / "products.csv").write_text("category,number,price,maker\ngames,g-1,7,Ace\n", encoding="utf-8")
    (tmp_path / "products.jsonl").write_bytes(tm.to_json(Product("games", "g-2", Decimal(9), "Ace")) + b"\n")
    monkeypatch.setenv("STORAGE", "UseDevelopmentStorage=true")
    monkeypatch.setenv("TABLEMAPPER_MODELS", "shop.models")
    place_of, account = locations.place_of, AzurePlace("command lines")

    def place(where: Any, *options: Any, **named: Any) -> Any:
        in_account = where in ("env:STORAGE", "UseDevelopmentStorage=true")
        return account if in_account else place_of(where, *options, **named)

    monkeypatch.setattr(locations, "place_of", place)
    (tmp_path / "backups").mkdir()
    with tm.open("shop.db", models=[Product]) as store:
        store.insert(Product("books", "b-1", Decimal(5), "Ace"))
        store.backup("backups/2026-03-01T021500Z.db")
    with tm.open(account, models=[Product]):  # type: ignore[arg-type]
        pass
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "shop"]:
        del sys.modules[name]


def test_the_command_lines_of_each_page_run(
    shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from shop.models import Product

    with tm.open("shop.db", models=[Product]) as store:
        etag = tm.info(store[Product.key("books", "b-1")]).etag
    ran = 0
    for page, line in _lines():
        if not any(re.match(pattern, line) for pattern in ELSEWHERE):
            assert line.startswith("tablemapper "), f"{page}: say in ELSEWHERE who runs: {line}"
            ran += 1
            command, _, file = line.partition(" < ")
            if file:
                monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((shop / file).read_bytes()), "utf-8"))
            words = [etag if word == "$ETAG" else word for word in shlex.split(command)[1:]]
            assert run(words) == 0, (page, line, capsys.readouterr())
        elif line.startswith("mkdir"):
            (shop / line.split()[-1]).mkdir()
    assert ran >= 15


def test_each_place_that_runs_others_has_some() -> None:
    lines = [line for _, line in _lines()]
    assert [pattern for pattern in ELSEWHERE if not any(re.match(pattern, line) for line in lines)] == []


def parse(words: list[str]) -> None:
    """Fail if a command line cannot be parsed."""
    if words[0].startswith("migrat") and "--scripts" not in words:
        words += ["--scripts", "shop.migrations"]  # (which a project says in its pyproject.toml)
    program(words[0]).parse_args(words, exit_on_error=False, print_error=False)


def test_commands_amid_sentences_are_those_that_there_are() -> None:
    parsed = 0
    for page in PAGES:
        for line in _INLINE.findall(page.read_text(encoding="utf-8")):
            words = shlex.split(line)[1:]
            if not _PLACEHOLDER.search(line) and any("." in word or word.startswith("--models") for word in words):
                parsed += 1
                parse(words)
    assert parsed >= 12


def test_no_command_line_is_overlooked() -> None:
    """A block that is no ```sh at the begin of a line is not run: its commands are parsed at least."""
    parsed, overlooked = 0, []
    for page in PAGES:
        for indent, language, block in _FENCED.findall(page.read_text(encoding="utf-8")):
            if language == "sh" and not indent:
                continue
            if language in ("sh", "bash", "shell", "console", "zsh"):
                overlooked.append((page.name, block))
            for call in _CALL.findall(block) if language in _CALLERS else ():
                words = shlex.split(re.split(r" *(?:>|\|\|?|&&) *", call)[0])
                parse(words)
                parsed += 1
    assert overlooked == []
    assert parsed >= 4


def test_each_command_that_a_sentence_names_is_one() -> None:
    for page in PAGES:
        for line in _INLINE.findall(page.read_text(encoding="utf-8")):
            name, *following = line.split()[1:]
            assert name in program(), (page.name, line)
            assert name != "migrations" or following[0] in program(name)[name], (page.name, line)


def test_each_page_that_opens_the_emulator_says_how_it_is_started() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if page.name != "azure.md" and re.search(r"UseDevelopmentStorage=true|=azurite\b|--tm-engine=azure", text):
            assert "npx azurite --" in text or re.search(r"azure\.md[#)]", text), page.name


def test_the_script_of_each_night_keeps_what_it_says(shop: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "backup-for-years.md").read_text(encoding="utf-8")
    (script,) = [block for block in _SHELL.findall(page) if block.startswith(SCRIPT)]
    command = shop / ".venv" / "bin" / "tablemapper"
    command.parent.mkdir(parents=True)
    command.write_text(f'{SCRIPT}PYTHONPATH={ROOT}:. exec {sys.executable} -m tablemapper "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    ages = {"2026-02-20T021500Z.db": 20, "2026-02-01T021500Z.db": 40, "2015-01-01T021500Z.db": 4000}
    for name, days in ages.items():
        (shop / "backups" / name).touch()
        os.utime(shop / "backups" / name, (0, (shop / "shop.db").stat().st_mtime - days * 86_400))
    done = _night(script, shop)
    assert done.returncode == 0, done.stderr
    kept = {path.name for path in (shop / "backups").iterdir()}
    assert kept & ages.keys() == {"2026-02-01T021500Z.db"}
    assert len(kept) == 3
    (shop / "shop.db").write_bytes(b"no store")
    assert _night(script, shop).returncode != 0
    assert {path.name for path in (shop / "backups").iterdir()} == kept


def _night(script: str, folder: Path) -> subprocess.CompletedProcess[Any]:
    environment = {**os.environ, "HOME": str(folder)}
    text = script.replace("/srv/shop", str(folder))
    return subprocess.run(["sh", "-c", text], env=environment, capture_output=True, text=True, check=False)
