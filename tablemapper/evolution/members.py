"""What may follow what inside nested values: the JSON schema that a file was written with, against that of the class.

Nested values are stored whole, as their class says, and read without members that it does not know. So what a member
holds that is gone, or has another name, is lost with the next write of its entity, and nobody would hear of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs
import msgspec

__all__ = ["Members", "follow"]

_Schema: TypeAlias = dict[str, Any]

_COMPARED = frozenset({"$ref", "$defs", "anyOf", "default", "enum", "factory", "items", "additionalProperties", "partial",
                       "prefixItems", "order", "properties", "required"})  # fmt: skip
"""The parts of a schema that are compared one by one; all others have to stay as they are."""


@attrs.frozen
class Members:
    """How a nested type differs from what a file holds of it."""

    faults: tuple[str, ...]
    """What would be lost, or cannot be read, a line each."""
    extends: bool
    """Whether more can be stored than before, which a store that was opened with the old class would lose."""
    widens: bool
    """Whether values can be stored that the old class cannot read. (It reads over members that it does not know.)"""
    schema: _Schema
    """What the file keeps of it from now on, if there are no faults."""


def follow(old: _Schema, new: _Schema) -> Members:
    """Compare the schema of a nested type in a file with that of the class, as `json_schema` gives them."""
    walk = _Walk(old, new)
    faults = tuple(dict.fromkeys(walk.changes(old, new, "it")))
    return Members(
        faults,
        walk.extends or walk.widens,
        walk.widens,
        {**new, "partial": sorted(walk.partial)} if walk.partial else new,
    )


class _Walk:
    """Goes through two schemas side by side."""

    def __init__(self, old: _Schema, new: _Schema) -> None:
        self.extends = self.widens = False
        self.partial = set(new.get("partial", ()))
        self._old: _Schema = old.get("$defs", {})
        self._new: _Schema = new.get("$defs", {})
        self._was_partial = frozenset(old.get("partial", ()))
        self._seen: set[tuple[str, str]] = set()

    def changes(self, old: _Schema, new: _Schema, what: str) -> Iterator[str]:
        """Yield what keeps values of the old schema from being values of the new one."""
        if "anyOf" in old or "anyOf" in new:
            yield from self._alternatives(old.get("anyOf", [old]), new.get("anyOf", [new]), what)
            return
        kind = _kind(new, self._new)
        if _kind(old, self._old) != kind:
            self.widens = True
            if kind:  # (else anything is possible now)
                yield f"{what} was {_text(old)} and is {_text(new)}"
        elif "$ref" in new:
            if (pair := (old["$ref"], new["$ref"])) not in self._seen:
                self._seen.add(pair)
                yield from self._members(*pair)
        elif "enum" in new:
            self.widens |= len(new["enum"]) > len(old["enum"])
            if gone := [value for value in old["enum"] if value not in new["enum"]]:
                yield f"{what} can be {', '.join(map(_text, gone))} in the file, but not in the class"
        else:
            for part in ("items", "additionalProperties"):
                if part in new:
                    yield from self.changes(old[part], new[part], f"what {what} holds")
            for before, after in zip(old.get("prefixItems", ()), new.get("prefixItems", ()), strict=True):
                yield from self.changes(before, after, f"what {what} holds")

    def _alternatives(self, old: list[_Schema], new: list[_Schema], what: str) -> Iterator[str]:
        """Yield the old alternatives that are none of the new. Their kinds differ, or no reader could distinguish them."""
        self.widens |= len(new) > len(old)
        for one in old:
            kind = _kind(one, self._old)
            alike = [other for other in new if _kind(other, self._new) in (kind, {})]
            if alike:
                yield from self.changes(one, alike[0], what)
            else:
                yield f"{what} can be {_text(one)} in the file, but not in the class"

    def _members(self, before: str, after: str) -> Iterator[str]:
        """Yield which members of a class, by its names then and now, would be lost or cannot be read."""
        old, new = self._old[before], self._new[after]
        for name, was in old["properties"].items():
            label = f'its member "{name}" ({after})'
            now = new["properties"].get(name)
            if now is None:
                yield (
                    f"{label} is in the file, but not in the class, and its values would be lost; declare it "
                    "again, with a default if you no longer need it, or migrate"
                )
                continue
            yield from self.changes(was, now, label)
            if f"{before}.{name}" in self._was_partial:
                self.partial.add(f"{after}.{name}")
                if (reads := _missing(was)) != (would := _missing(now)):
                    yield (
                        f"{label} reads as {reads} where values lack it, and would read as {would}; leave its default as "
                        "it was, or migrate"
                    )
        for name in new["properties"].keys() - old["properties"].keys():
            self.extends = True
            self.partial.add(f"{after}.{name}")
            if name in new["required"] or "factory" in new["properties"][name]:
                yield (
                    f'its member "{name}" ({after}) is new, and values that are there have none; give it a default '
                    "(a factory does not count), or migrate"
                )
        if "order" in new and new["order"][: len(old["order"])] != old["order"]:
            yield f"the members of {after} stand in another order, and only that tells them apart; leave it, or migrate"


def _kind(schema: _Schema, classes: _Schema) -> _Schema:
    """Return what of a schema has to stay as it is; empty if it takes anything."""
    if "$ref" in schema:
        return {"class": True, **_kind(classes[schema["$ref"]], classes)}
    kind = {name: part for name, part in schema.items() if name not in _COMPARED}
    kind |= {"length": len(schema["prefixItems"])} if "prefixItems" in schema else {}
    return kind | ({"enum": True} if "enum" in schema else {})


def _missing(member: _Schema) -> str:
    """Return what a member reads as that is not there."""
    if "default" in member:
        return _text(member["default"])
    return "what a function makes" if "factory" in member else "nothing"


def _text(part: Any) -> str:
    if isinstance(part, dict) and "$ref" in part:
        return str(part["$ref"])
    return msgspec.json.encode(part).decode()
