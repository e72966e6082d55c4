"""Compatibility of nested types: the JSON schema in the catalogue is compared with that of the class.

A nested value is stored whole, with the members of its class, and members that the class does not know are not read. So
the next write of an entity would silently lose the values of a member that was removed or renamed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs
import msgspec

_Schema: TypeAlias = dict[str, Any]

_COMPARED = frozenset({"$ref", "$defs", "anyOf", "attribute", "default", "enum", "factory", "items", "additionalProperties", "partial",
                       "prefixItems", "order", "properties", "required"})  # fmt: skip
"""The keys of a schema that are compared one by one; the values of all other keys must stay equal."""


@attrs.frozen
class MemberComparison:
    """The differences of a nested type from its schema in the catalogue."""

    faults: tuple[str, ...]
    """The values that would be lost or could not be read, a line each."""
    extends: bool
    """Whether it can store more than before, which a store that was opened with the old class would lose."""
    widens: bool
    """Whether it can store values that the old class cannot read. (That ignores members that it does not know.)"""
    schema: _Schema
    """The schema for the catalogue from now on, if there are no faults."""


def follow(old: _Schema, new: _Schema) -> MemberComparison:
    """Compare the schema of a nested type in the catalogue with that of the class, as `json_schema` gives them."""
    comparison = _Comparison(old, new)
    faults = tuple(dict.fromkeys(comparison.faults(old, new, "it")))
    return MemberComparison(
        faults,
        comparison.extends or comparison.widens,
        comparison.widens,
        {**new, "partial": sorted(comparison.partial)} if comparison.partial else new,
    )


class _Comparison:
    """A walk through two schemas, side by side.

    Attributes:
        extends: as `MemberComparison` has it, for the part that was walked so far; `widens` too.
        partial: the members that some stored values may lack, as ``Class.member``.
    """

    def __init__(self, old: _Schema, new: _Schema) -> None:
        self.extends = self.widens = False
        self.partial = set(new.get("partial", ()))
        self._old_classes: _Schema = old.get("$defs", {})
        self._new_classes: _Schema = new.get("$defs", {})
        self._partial_before = frozenset(old.get("partial", ()))
        self._compared: set[tuple[str, str]] = set()

    def faults(self, old: _Schema, new: _Schema, subject: str) -> Iterator[str]:
        """Yield the reasons why values of the old schema are no values of the new one; ``subject`` names them."""
        if "anyOf" in old or "anyOf" in new:
            yield from self._alternatives(old.get("anyOf", [old]), new.get("anyOf", [new]), subject)
            return
        kind = _kind(new, self._new_classes)
        if _kind(old, self._old_classes) != kind:
            self.widens = True
            if kind:  # (else the new type takes any value)
                yield f"{subject} was {_text(old)} and is {_text(new)}"
        elif "$ref" in new:
            if (pair := (old["$ref"], new["$ref"])) not in self._compared:
                self._compared.add(pair)
                yield from self._members(*pair)
        elif "enum" in new:
            self.widens |= len(new["enum"]) > len(old["enum"])
            if removed_values := [value for value in old["enum"] if value not in new["enum"]]:
                yield f"{subject} can be {', '.join(map(_text, removed_values))} in the store, but not in the class"
        else:
            for key in ("items", "additionalProperties"):
                if key in new:
                    yield from self.faults(old[key], new[key], f"what {subject} holds")
            for old_item, new_item in zip(old.get("prefixItems", ()), new.get("prefixItems", ()), strict=True):
                yield from self.faults(old_item, new_item, f"what {subject} holds")

    def _alternatives(self, old: list[_Schema], new: list[_Schema], subject: str) -> Iterator[str]:
        """Yield the alternatives that were removed. No two have the same kind: a reader tells them apart by that."""
        self.widens |= len(new) > len(old)
        for alternative in old:
            kind = _kind(alternative, self._old_classes)
            counterpart = next(
                (candidate for candidate in new if _kind(candidate, self._new_classes) in (kind, {})), None
            )
            if counterpart is not None:
                yield from self.faults(alternative, counterpart, subject)
            else:
                yield f"{subject} can be {_text(alternative)} in the store, but not in the class"

    def _members(self, before: str, after: str) -> Iterator[str]:
        """Yield the members of a class, by its old and its new name, that would be lost or cannot be read."""
        old, new = self._old_classes[before], self._new_classes[after]
        for name, old_member in old["properties"].items():
            label = f'its member "{name}" ({after})'
            new_member = new["properties"].get(name)
            if new_member is None:
                yield (
                    f"{label} is in the store, but not in the class, and its values would be lost; declare it "
                    "again, with a default if you no longer need it, or migrate"
                )
                continue
            yield from self.faults(old_member, new_member, label)
            if f"{before}.{name}" in self._partial_before:
                self.partial.add(f"{after}.{name}")
                if (old_default := _default(old_member)) != (new_default := _default(new_member)):
                    yield (
                        f"{label} reads as {old_default} where values lack it, and would read as {new_default}; leave its "
                        "default as it was, or migrate"
                    )
        for name in new["properties"].keys() - old["properties"].keys():
            self.extends = True
            self.partial.add(f"{after}.{name}")
            if name in new["required"] or "factory" in new["properties"][name]:
                yield (
                    f'its member "{name}" ({after}) is new, and existing values do not have it; give it a default '
                    "(a factory does not count), or migrate"
                )
        if "order" in new and new["order"][: len(old["order"])] != old["order"]:
            yield f"the members of {after} have another order, and only the order distinguishes them; keep it, or migrate"


def _kind(schema: _Schema, classes: _Schema) -> _Schema:
    """Return the part of a schema that must not change; empty if the schema takes any value."""
    if "$ref" in schema:
        return {"class": True, **_kind(classes[schema["$ref"]], classes)}
    kind = {name: part for name, part in schema.items() if name not in _COMPARED}
    kind |= {"length": len(schema["prefixItems"])} if "prefixItems" in schema else {}
    return kind | ({"enum": True} if "enum" in schema else {})


def _default(member: _Schema) -> str:
    """Return the value that a member has where it is missing, as text."""
    if "default" in member:
        return _text(member["default"])
    return "what a function makes" if "factory" in member else "nothing"


def _text(part: Any) -> str:
    if isinstance(part, dict) and "$ref" in part:
        return str(part["$ref"])
    return msgspec.json.encode(part).decode()
