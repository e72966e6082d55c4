"""Migration scripts as text: both shapes, frozen, and a step for each change that needs one.

The same text stands in the message of a store that cannot be opened and in the file that `Migrations.write` makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..entities.aggregates import kept_field
from ..schema.forms import Forms
from .changes import Change
from .definitions import is_former
from .sources import Shape, call, imports_of

__all__ = ["script_name", "script_source"]

_CODE = re.compile(r"(m\.\w+)\((.*)\)(?:  # (.*))?$")
_CLASS = re.compile(r"\b(old|new)\.(\w+)")


def script_name(changes: Sequence[Change]) -> str:
    """Return what a script may be called that makes some changes."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", changes[0].where.partition(".")[0])
    return words.lower()


def script_source(old: Forms, new: Forms, changes: Sequence[Change], *, after: str | None = None) -> str:
    """Return the text of a script.

    Args:
        old: the forms of all classes that there are.
        new: the forms of all classes that there are to be.
        changes: those that the script makes; they have a `Change.code`.
        after: the id of the script before it.
    """
    steps = _steps(changes)
    named: dict[str, set[str]] = {"old": set(), "new": set()}
    for code in steps:
        for side, name in _CLASS.findall(code):
            named[side].add(name)
    both = {name for names in named.values() for name in names if name in old and name in new}
    stays = {*named["old"], *new}
    for name, form in old.items():  # (a class is written with the fields that are maintained in it)
        if (kept := kept_field(name)) is not None and kept[0] in stays and form.aggregate:
            stays |= {name, form.aggregate.of}
    before = [name for name in _closed(old, named["old"] | both) if name in stays]
    dropped = {match[1] for code in steps if (match := re.fullmatch(r"m\.drop\(old\.(\w+)\)", code))}
    after_that = _closed(new, (named["new"] | both | (set(before) & new.keys())) - dropped)
    first = Shape("old", {name: old[name] for name in before})
    shapes = [first, Shape("new", {name: new[name] for name in after_that}, first)]
    body = [line for shape in shapes for line in shape.lines()]
    listed = [f"{shape.side}=[{', '.join(shape.names)}]" for shape in shapes]
    body += [
        "",
        "",
        *call("@tm.migration", [f"after={_quoted(after)}", *listed]),
        "def migrate(m: tm.Migration) -> None:",
    ]
    body += [line for code in steps for line in _step(code)] or ["    pass"]
    classes = dict.fromkeys([change.where.partition(".")[0] for change in changes])
    head = [f'"""Change {", ".join(classes)}."""', "", "from __future__ import annotations", ""]
    return "\n".join([*head, *imports_of("\n".join(body)), "import tablemapper as tm", *body, ""])


def _steps(changes: Sequence[Change]) -> list[str]:
    """Return the steps, each once; what is rewritten whole has no others."""
    codes = list(dict.fromkeys(change.code for change in changes if change.code))
    whole = {code: set(_CLASS.findall(code)) for code in codes if code.startswith("m.rewrite(")}
    rewritten = {one for classes in whole.values() for one in classes}
    return [code for code in codes if code in whole or rewritten.isdisjoint(_CLASS.findall(code.partition("  # ")[0]))]


def _closed(forms: Forms, names: set[str]) -> list[str]:
    """Return classes with the aggregates of them, and what those are maintained from."""
    found = set(names)
    while True:
        more = {form.aggregate.of for name in found if (form := forms.get(name)) is not None and form.aggregate}
        for name, form in forms.items():
            if (kept := kept_field(name)) is not None and form.aggregate and {kept[0], form.aggregate.of} & found:
                more |= {name, kept[0]}
        if more <= found:
            break
        found |= more
    return [
        name for name, form in forms.items()
        if not is_former(name) and (name in found or (form.aggregate and form.aggregate.of in found))
    ]  # fmt: skip


def _quoted(after: str | None) -> str:
    return "None" if after is None else f'"{after}"'


def _step(code: str) -> Iterator[str]:
    match = _CODE.match(code)
    assert match is not None
    head, arguments, comment = match.groups()
    if comment:
        yield f"    # {comment}"
    yield from call(head, list(_arguments(arguments)), indent=4)


def _arguments(text: str) -> Iterator[str]:
    """Yield the arguments of a call."""
    depth = start = 0
    for at, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()
