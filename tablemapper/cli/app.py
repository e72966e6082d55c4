"""The program ``tablemapper``: its options, what its commands print, and how they end."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import attrs
import msgspec
from cyclopts import App, CycloptsError, Parameter
from cyclopts.config import Env, Toml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..engines.locations import is_account, named_place, status
from ..entities.entity import Record
from ..errors import InvalidModel, InvalidQuery, NotAStore, TableMapperError, notes_of, safe_repr


class Exit(IntEnum):
    """How a command ends."""

    OK = 0
    FOUND = 1
    """The command did its work, and found what somebody has to look at."""
    USAGE = 2
    """The command line, the models or the migrations are wrong; no store was touched."""
    STORE = 3
    """The store cannot be used: it is locked, damaged, no store, or not what the models say."""
    INTERRUPTED = 130


app = App(
    name="tablemapper",
    help="Look after tablemapper stores.",
    help_epilogue="Exit codes: 0 all is well, 1 something needs attention, 2 the command or the models are wrong, "
    "3 the store cannot be used.",
    help_format="plaintext",
    version=lambda: metadata.version("tablemapper"),
    # What a project always says stands in its pyproject.toml under [tool.tablemapper], or in TABLEMAPPER_MODELS.
    config=[
        Env("TABLEMAPPER_", command=False),
        Toml(
            "pyproject.toml",
            root_keys=("tool", "tablemapper"),
            search_parents=True,
            use_commands_as_keys=False,
            allow_unknown=True,
        ),
    ],
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)

app.register_install_completion_command(help="Let bash, zsh, fish or PowerShell complete commands and options.")

_CONDITION = re.compile(r"\.where\(\w+\.([\w.]+) == …\)")
_GAP = 3  # spaces between columns

StoreArgument = Annotated[
    str,
    Parameter(
        help="the file of the store, or an account of Azure: azure://account, or its connection string; env:NAME takes "
        "it from an environment variable, so that no key stands in the list of processes"
    ),
]
Models = Annotated[
    str, Parameter(help="the module of the models, such as shop.models, or a list in it, such as shop.models:ALL")
]
Scripts = Annotated[str, Parameter(help="the package of the migration scripts, such as shop.migrations")]
Json = Annotated[bool, Parameter(name="--json", negative="", help="print JSON, for programs")]


def run(arguments: Sequence[str]) -> int:
    """Run one command, and return its exit code."""
    json = "--json" in arguments
    for name in ("stdout", "stderr"):  # None where the caller closed them: it wants to read nothing
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  for the rest of the process
    try:
        code = _run(arguments, json=json)
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            return _fail(type(error).__name__, f"{error.filename}: {error.strerror}", Exit.USAGE, json=json)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to print cannot be printed either
        if not isinstance(error, BrokenPipeError):  # a reader that has seen enough needs no message
            sys.stderr.write(f"tablemapper: the output cannot be written: {error.strerror}\n")
        return Exit.FOUND
    return code


def _run(arguments: Sequence[str], *, json: bool) -> int:
    try:
        return int(app(list(arguments)) or Exit.OK)
    except CycloptsError as error:
        message = str(error).removesuffix(".")
        return _fail("Usage", f"{message}; see tablemapper --help", Exit.USAGE, json=json)
    except TableMapperError as error:
        # What mirrors TypeError is a declaration that is wrong, whatever the store holds.
        code = Exit.USAGE if isinstance(error, TypeError | InvalidQuery) else Exit.STORE
        text = "\n".join([str(error), *notes_of(error)])
        return _fail(type(error).__name__, _as_typed(text), code, json=json)
    except KeyboardInterrupt:
        return _fail("KeyboardInterrupt", "interrupted; finished work is kept", Exit.INTERRUPTED, json=json)


def _as_typed(text: str) -> str:
    """Return a text of the library with the arguments that it names as they are typed here."""
    typed = {"overwrite=True": "--overwrite", "as in to=": "as in --to ", "with .allow_scan()": "with --scan"}
    for said, option in typed.items():
        text = text.replace(said, option)
    return _CONDITION.sub(r"--where '\1==…'", text)


def located(place: str) -> dict[str, Any]:
    """Return where a store is, or is to be, as `tablemapper.open` and others take it.

    Raises:
        NotAStore: it says nothing of who asks, or names an environment variable that is not there.
    """
    if not is_account(place := named_place(place)):
        return {"path": Path(place)}
    return {"path": place, "credential": _credential() if place.lower().startswith("azure:") else None}


def existing(place: str) -> dict[str, Any]:
    """Return where a store is: a command that looks after a store creates none.

    Raises:
        NotAStore: there is nothing.
    """
    where = located(place)
    if isinstance(where["path"], str):
        status(where["path"], credential=where["credential"])
    elif not where["path"].exists():
        raise NotAStore(f"{where['path']}: there is no store; name the file of a store")
    return where


def _credential() -> Any:
    """Return what proves to an account who asks: as the tools of Azure find it."""
    for name in ("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        if value := os.environ.get(name):
            return value
    try:
        return importlib.import_module("azure.identity").DefaultAzureCredential()
    except ModuleNotFoundError:
        raise NotAStore(
            "azure://… says nothing of who asks; set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or install azure-identity"
        ) from None


def existing_file(place: str) -> Path:
    """Return the file of a store, where only that is possible.

    Raises:
        NotAStore: there is nothing, or it is an account.
    """
    path = existing(place)["path"]
    if not isinstance(path, Path):
        raise NotAStore("this command is possible for the file of a store only, and this is an account of Azure")
    return path


def title_of(place: str) -> str:
    """Return what a store is called where people read it, without a secret."""
    return place if place.startswith(("env:", "azure:")) else "Azure Tables" if is_account(place) else Path(place).name


def import_from_here() -> None:
    """Let a program that pip installed find the modules of the project, as ``python -m`` does."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def load_models(name: str) -> list[type[Record]]:
    """Import the models that a module holds, or that a list in a module names.

    Raises:
        InvalidModel: there is no such module or list, or it holds no models.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or module_name.startswith("."):
        raise InvalidModel(f"no module {safe_repr(module_name)}; name the module of the models, as in shop.models")
    import_from_here()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InvalidModel(
            f"no module {safe_repr(error.name)}; name the module of the models, as in shop.models"
        ) from None
    if attribute:
        found = getattr(module, attribute, None)
        if not isinstance(found, Iterable):
            raise InvalidModel(f"{module_name} has no list {safe_repr(attribute)}; name one, or the module alone")
    else:
        found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Record)]
    models = [value for value in dict.fromkeys(found) if getattr(value, "__module__", "") != "tablemapper"]
    if not models:
        raise InvalidModel(f"{name} holds no models; name the module that declares the entity classes")
    return models


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, cut: bool = False) -> Table:
    """Return a table of text; numbers stand on the right. With ``cut`` a terminal shows each row on one line."""
    drawn = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    lines = [list(row) for row in rows]
    cut = cut and sys.stdout.isatty()
    texts = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in line] for line in lines]
    widths = _within(shutil.get_terminal_size().columns, columns, texts) if cut else [None] * len(columns)
    for at, name in enumerate(columns):
        number = bool(lines) and all(isinstance(line[at], int) for line in lines)
        drawn.add_column(
            name,
            justify="right" if number else "left",
            overflow="ellipsis" if cut else "fold",
            no_wrap=cut,
            width=widths[at],
        )
    for line in texts:
        drawn.add_row(*map(Text, line))
    return drawn


def _within(most: int, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[int | None]:
    """Return how wide columns are that fit a terminal: the widest ones are cut."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    while sum(widths) + _GAP * len(widths) > most and max(widths, default=0) > 1:
        widths[widths.index(max(widths))] -= 1
    return [*widths]


def show(report: Any, *shapes: Any, json: bool, ok: bool = True) -> Exit:
    """Print a report, as JSON or as text and tables, and return how the command ends."""
    if json:
        members = {"ok": ok, **attrs.asdict(report)} if attrs.has(type(report)) else report
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(members), indent=2).decode() + "\n")
    else:
        # A pipe has no width: each row of a table stays one line there.
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 10_000)
        for shape in shapes or (str(report),):
            console.print(Text(shape) if isinstance(shape, str) else shape)  # a bracket is a bracket
    return Exit.OK if ok else Exit.FOUND


def _fail(kind: str, message: str, code: Exit, *, json: bool) -> Exit:
    if json:
        show({"ok": False, "error": kind, "message": message}, json=True)
    else:
        note(message)
    return code


def note(message: str) -> None:
    """Say something beside what a command prints."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(Text(f"tablemapper: {message}"))
