"""The program ``tablemapper``: its options, where stores and models are, and how a command ends."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Toml

from ..entities.declaration import has_table
from ..entities.entity import Record
from ..errors import InvalidModel, InvalidQuery, NotAStore, TableMapperError, notes_of, safe_repr
from ..limits import check_table_name
from .output import Exit, fail, prepare_streams

if TYPE_CHECKING:  # (help needs no engine)
    from ..store.store import Store

_PROJECT = Toml(
    "pyproject.toml",
    root_keys=("tool", "tablemapper"),
    search_parents=True,
    use_commands_as_keys=False,
    allow_unknown=True,
)


def _of_the_project(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Take what a project always says, and nothing else, from its pyproject.toml: where the models and scripts are."""
    project_arguments = [argument for argument in arguments if argument.name in ("--models", "--scripts")]
    _PROJECT(app, commands, ArgumentCollection(project_arguments))  # type: ignore[no-untyped-call]


_COMMANDS: dict[str, dict[str, str]] = {
    "administration_commands": {
        "status": "Show what a store holds, the progress of builds, and the migrations that have run.",
        "build": "Build new indexes and aggregates while other programs write.",
        "check": "Compare every index row and every aggregate with the entities; end with 1 if something differs.",
        "adopt": "Open tables of an account that hold entities of other programs, and build what is maintained from them.",
        "sweep": "Finish or undo what writers left that ended early, in the tables of an account; a file has nothing of that.",
        "repair": "Correct every index row and every aggregate from the entities; end with 1 if a problem remains.",
        "compact": "Rewrite the file without the space of deleted entities; no other program may have it open.",
        "freeze": "Stop all programs from changing entities, so that the store can move; once it returns, none does.",
        "unfreeze": "Let programs change entities again.",
        "backup": "Write a copy of the store as it is now, while it is in use; of an account, with the models.",
        "copy": "Make the entities of one store those of another, which is created if there is none: a file or an account, either way.",
        "restore": "Put a copy of a backup in the place of a store that no program has open.",
    },
    "analysis_commands": {
        "advise": "Say what is unwise in the models, and with a store, in how it is filled; end with 1 if there is a warning.",
        "stats": "Count entities, partitions and bytes of each class, or of some classes with their partitions and writes.",
        "diagram": "Draw the classes of a store or of a module, with what is maintained from each, on the standard output.",
    },
    "data_commands": {
        "import_entities": "Store the entities of a file, in the form that show writes: JSON lines or CSV; or of a Parquet file.",
        "set_fields": "Change some fields of one entity, and show it as it is stored.",
        "delete_entities": "Delete one entity by the values of its key, or all that --where finds.",
        "expire": "Delete the entities that have ended, by the time that expires=True names.",
    },
    "inspect": {
        "inspect": "Show what is in a store as pages for a browser on this machine, until Ctrl-C; it only reads.",
    },
    "migration_commands": {
        "migrate": "Run the migration scripts that have not run on a store, while other programs read and write.",
        "migrations_app": "Migration scripts: write them, and compare them with the models.",
    },
    "query_commands": {
        "show_rows": "Show entities of a class, or rows of an aggregate, without the models if need be.",
        "get": "Show one entity by the values of its key; end with 1 if there is none.",
    },
}
"""What a command is made of, by module, and what the help says of it: a module is loaded when its command runs."""


def program(name: str = "") -> App:
    """Return the program, for a command: that one then says itself what it does, and more of it."""
    app = App(
        name="tablemapper",
        help="Look after tablemapper stores.",
        help_epilogue="Exit codes: 0 all is well, 1 something needs attention, 2 the command or the models are wrong, "
        "3 the store cannot be used.",
        help_format="plaintext",
        version=lambda: metadata.version("tablemapper"),
        config=[_of_the_project],
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    app.register_install_completion_command(help="Let bash, zsh, fish or PowerShell complete commands and options.")
    for module, commands in _COMMANDS.items():
        for attribute, text in commands.items():
            command = attribute.partition("_")[0]
            app.command(f"{__package__}.{module}:{attribute}", name=command, help=None if command == name else text)
    return app


_CONDITION = re.compile(r"\.where\(\w+\.([\w.]+) == …\)")

StoreArgument = Annotated[
    str,
    Parameter(
        help="the file of the store, or an account of Azure: azure://account, or its connection string; env:NAME takes "
        "it from an environment variable, so that no key stands in the list of processes; azure://account/Staging and "
        "env:NAME/Staging: the store with that prefix"
    ),
]
Models = Annotated[
    str,
    Parameter(
        env_var="TABLEMAPPER_MODELS",
        help="the module of the models, such as shop.models, or a list in it, such as shop.models:ALL",
    ),
]
Scripts = Annotated[
    str,
    Parameter(env_var="TABLEMAPPER_SCRIPTS", help="the package of the migration scripts, such as shop.migrations"),
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="print JSON, for programs")]


def run(arguments: Sequence[str]) -> int:
    """Run one command, and return its exit code."""
    json = "--json" in arguments
    prepare_streams()
    try:
        code = _run(arguments, json=json)
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            return fail(type(error).__name__, f"{error.filename}: {error.strerror}", Exit.USAGE, json=json)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to print cannot be printed either
        if not isinstance(error, BrokenPipeError):  # a reader that has seen enough needs no message
            sys.stderr.write(f"tablemapper: the output cannot be written: {error.strerror}\n")
        return Exit.FINDINGS
    return code


def _run(arguments: Sequence[str], *, json: bool) -> int:
    try:
        return int(program(*arguments[:1])(list(arguments)) or Exit.OK)
    except CycloptsError as error:
        return fail("Usage", f"{_usage(error)}; see tablemapper --help", Exit.USAGE, json=json)
    except TableMapperError as error:
        # What mirrors TypeError is a declaration that is wrong, whatever the store holds.
        return failure(error, Exit.USAGE if isinstance(error, TypeError | InvalidQuery) else Exit.STORE, json=json)
    except KeyboardInterrupt:
        return fail("KeyboardInterrupt", "interrupted; finished work is kept", Exit.INTERRUPTED, json=json)


def failure(error: TableMapperError, code: Exit, *, json: bool) -> Exit:
    """Print what the library refused, in the words of the command, and return how the command ends."""
    text = "\n".join([str(error), *notes_of(error)])
    return fail(type(error).__name__, _as_typed(text), code, json=json)


def _usage(error: CycloptsError) -> str:
    """Return the fault of a command line."""
    if not isinstance(error, MissingArgumentError) or error.argument is None or error.argument.tokens or error.keyword:
        return str(error).removesuffix(".")
    name = error.argument.name
    text = f"{' '.join(error.command_chain or ())} needs {name}"
    if (example := {"--models": "shop.models", "--scripts": "shop.migrations"}.get(name)) is not None:
        text += (
            f", as in {name} {example}, or once for all commands in pyproject.toml or TABLEMAPPER_{name[2:].upper()}"
        )
    return text


def _as_typed(text: str) -> str:
    """Return a text of the library with the arguments that it names as they are typed here."""
    typed = {
        "check() lists the damage, and a backup is the safe way back": "tablemapper restore puts a backup in its place",
        "overwrite=True": "--overwrite",
        "as in to=": "as in --to ",
        "with .allow_scan()": "with --scan",
    }
    for phrase, option in typed.items():
        text = text.replace(phrase, option)
    return _CONDITION.sub(r"--where '\1==…'", text)


def located(place: str) -> dict[str, Any]:
    """Return the place of a store, present or future, as `tablemapper.open` and others take it.

    Raises:
        NotAStore: it has no credential, or names an environment variable that is not there.
    """
    from ..engines.locations import is_account, named_place, split_prefix

    named, prefix = split_prefix(place)
    if not is_account(place := named_place(named)):
        if prefix is not None:
            raise NotAStore(f"{named}/{prefix}: a prefix is for an account of Azure, and {named} names a file")
        return {"path": Path(place)}
    if prefix is not None and (fault := check_table_name(prefix)) is not None:
        raise NotAStore(f"{named}/…: {fault}")
    where = {"path": place, "credential": _credential() if place.lower().startswith("azure:") else None}
    return where | ({} if prefix is None else {"prefix": prefix})


def existing(place: str) -> dict[str, Any]:
    """Return the place of an existing store: a command that looks after a store creates none.

    Raises:
        NotAStore: there is nothing, or something else.
        StoreError: it is damaged, or no path leads to it.
    """
    from ..engines.locations import check_file, status

    where = located(place)
    if isinstance(where["path"], str):
        status(where["path"], **{name: value for name, value in where.items() if name != "path"})
    elif not where["path"].exists():
        raise NotAStore(
            f"{where['path']}: there is no store; name the file of a store, or create one in Python: "
            f'tm.open("{where["path"]}", models=[…])'
        )
    else:
        check_file(where["path"])
    return where


def _credential() -> Any:
    """Return the credential for an account, as the tools of Azure find it."""
    for name in ("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        if value := os.environ.get(name):
            return value
    try:
        return importlib.import_module("azure.identity").DefaultAzureCredential()
    except ModuleNotFoundError:
        raise NotAStore(
            "azure://… has no credential; set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or install azure-identity"
        ) from None


def title_of(place: str) -> str:
    """Return the title of a store for people, without a secret."""
    from ..engines.locations import is_account

    return place if place.startswith(("env:", "azure:")) else "Azure Tables" if is_account(place) else Path(place).name


def import_from_here() -> None:
    """Let a program that pip installed find the modules of the project, as ``python -m`` does."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def load_models(name: str) -> list[type[Record]]:
    """Import the models that a module holds, those with a table, or that a list in a module names.

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
        candidates = getattr(module, attribute, None)
        if not isinstance(candidates, Iterable):
            raise InvalidModel(f"{module_name} has no list {safe_repr(attribute)}; name one, or the module alone")
    else:
        candidates = filter(has_table, vars(module).values())
    models = list(dict.fromkeys(candidates))
    if not models:
        raise InvalidModel(f"{name} holds no models; name the module that declares the entity classes")
    return models


def find_class(store: Store, name: str) -> type[Any]:
    """Return a class of a store by its name.

    Raises:
        InvalidQuery: there is none.
    """
    cls = store.classes.get(name)
    if cls is None:
        if (reason := store.uncompiled.get(name)) is not None:
            why = reason.partition("\n")[0]
            raise InvalidQuery(f"{name} cannot be read without its class: {why}; name the models: --models")
        raise InvalidQuery(f"no class {safe_repr(name)} in this store; there are {', '.join(store.classes) or 'none'}")
    return cls
