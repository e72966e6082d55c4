"""The scripts of an application, in the order in which they follow each other."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType

from ..errors import InvalidMigration, did_you_mean, safe_repr
from .script import MigrationFunction, Script, load_script
from .validation import script_faults


def load_package(package: ModuleType) -> tuple[Script, ...]:
    """Return the scripts of a package, each a module of it, in order.

    Raises:
        InvalidMigration: with every fault.
    """
    scripts: list[Script] = []
    faults: list[str] = []
    importlib.invalidate_caches()
    for info in pkgutil.iter_modules(package.__path__):
        if info.ispkg or info.name.startswith("_"):
            continue
        try:
            module = importlib.import_module(f"{package.__name__}.{info.name}")
        except Exception as error:  # whatever a module raises
            text = str(error).replace("\n", "\n    ")
            faults.append(f"{info.name}: it cannot be imported: {type(error).__name__}: {text}")
            continue
        functions = [function for function in vars(module).values() if isinstance(function, MigrationFunction)]
        if len(functions) != 1:
            problem = "no function has" if not functions else f"{len(functions)} functions have"
            faults.append(
                f"{info.name}: {problem} @tm.migration(…), and a script has one; a module that is none has a name "
                "that begins with an underscore"
            )
            continue
        scripts += _loaded(info.name, functions[0], module, faults)
    return _chain(package.__name__, scripts, faults)


def load_functions(functions: Sequence[MigrationFunction]) -> tuple[Script, ...]:
    """Return the scripts of decorated functions, in order; their ids are the names of the functions.

    Raises:
        InvalidMigration: with every fault.
    """
    scripts: list[Script] = []
    faults: list[str] = []
    for function in functions:
        if isinstance(function, MigrationFunction):
            scripts += _loaded(function.function.__name__, function, None, faults)
        else:
            faults.append(f"{safe_repr(function)} is not a migration: decorate the function with @tm.migration(…)")
    return _chain("migrations", scripts, faults)


def _loaded(id: str, function: MigrationFunction, module: ModuleType | None, faults: list[str]) -> Iterator[Script]:
    try:
        script = load_script(id, function, module=module)
    except Exception as error:  # whatever the function raises
        faults.append(f"{id}: its function raises {type(error).__name__}: {error}")
        return
    faults += [f"{id}: {fault}" for fault in script_faults(script)]
    yield script


def _chain(subject: str, scripts: Sequence[Script], faults: list[str]) -> tuple[Script, ...]:
    faults += _order_faults(scripts)
    if faults:
        raise InvalidMigration(subject, faults)
    following = {script.after: script for script in scripts}
    ordered: list[Script] = []
    previous = None
    while previous in following:
        ordered.append(following[previous])
        previous = ordered[-1].id
    return tuple(ordered)


def _order_faults(scripts: Sequence[Script]) -> Iterator[str]:
    """Yield the reasons why scripts do not form one chain."""
    ids = [script.id for script in scripts]
    for id in dict.fromkeys(ids):
        if not id.isprintable() or not id or " " in id:
            yield f"{safe_repr(id)} cannot be the name of a script: use letters, digits and underscores"
        if ids.count(id) > 1:
            yield f"{ids.count(id)} scripts are called {id}; give each a name of its own"
    followers: dict[str | None, list[str]] = {}
    for script in scripts:
        followers.setdefault(script.after, []).append(script.id)
        if script.after is not None and script.after not in ids:
            other_ids = [id for id in ids if id != script.id]
            yield (
                f"{script.id} follows {script.after}, which does not exist{did_you_mean(script.after, other_ids)}; "
                "write after=None if it was deleted and no store needs it any more"
            )
    for previous, ids_after in followers.items():
        if len(names := list(dict.fromkeys(ids_after))) > 1:
            problem = "are first (after=None)" if previous is None else f"follow {previous}"
            yield f"{_enumeration(names)} {'both' if len(names) == 2 else 'all'} {problem}: change after= of one"
    unreached = dict.fromkeys(ids)
    reached: list[str | None] = [None, *(script.after for script in scripts if script.after not in ids)]
    while reached:
        for id in followers.get(reached.pop(), ()):
            if id in unreached:
                del unreached[id]
                reached.append(id)
    if unreached:
        circle = "follow each other in a circle" if len(unreached) > 1 else "follows itself"
        yield f"{_enumeration(unreached)} {circle}; the first says after=None"


def _enumeration(names: Iterable[str]) -> str:
    *most, final = names
    return f"{', '.join(most)} and {final}" if most else final
