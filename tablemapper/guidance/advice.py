"""One piece of advice, as text and as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import attrs
import msgspec

_NUMBERS = {
    "entities": "entities: {:,}",
    "partitions": "partitions: {:,}",
    "share": "largest share: {:.0%}",
    "writes": "writes of late: {:,}",
    "busiest": "in the busiest second: {:,}",
    "key": "key: {}",
}
"""How numbers of the evidence are told; the others stand in the problem already."""


@attrs.frozen
class Advice:
    """Something that is possible, and unwise: ``str`` gives text to read, `to_dict` and `to_json` give data."""

    code: str
    """``TM001``; the page *Advice* of the documentation has them all."""
    level: Literal["warning", "note"]
    """``warning``: almost always a mistake where much is stored. ``note``: worth knowing."""
    where: str
    """``Product``, ``Product.key``, ``Product.by_name``."""
    problem: str
    """What is so."""
    consequence: str
    """What happens if nothing is done."""
    remedy: str
    """What to do."""
    declaration: str | None = None
    """Lines for the class body: each replaces the line of its name, or is added. None if no code can be given."""
    evidence: Mapping[str, int | float | str] = attrs.field(factory=dict)
    """Numbers; none where the declaration alone says it."""

    @property
    def accept(self) -> str:
        """The argument of the class statement or of the index that silences it: with a reason in the place of …"""
        return f'accept={{"{self.code}": "…"}}'

    def __str__(self) -> str:
        numbers = ", ".join(
            [text.format(self.evidence[name]) for name, text in _NUMBERS.items() if name in self.evidence]
        )
        lines = [f"{self.code} {self.level}  {self.where}: {self.problem}", *[f"  {numbers}"] * bool(numbers)]
        lines += [f"  {self.consequence}", f"  {self.remedy}"]
        if self.declaration is not None:
            lines += [f"      {line}" for line in self.declaration.splitlines()]
            names = [line.split(maxsplit=1)[0] for line in self.declaration.splitlines()]
            if "key" in names:
                lines.append("  A change of the key needs a migration: tablemapper migrations make")
            elif "tm.Index" in self.declaration:
                lines.append("  The new index is built while programs run.")
        return "\n".join([*lines, f"  or say why it is right:  {self.accept}"])

    def to_dict(self) -> dict[str, Any]:
        """Return the same as builtin types that JSON can represent."""
        return attrs.asdict(self) | {"evidence": dict(self.evidence), "accept": self.accept}

    def to_json(self) -> str:
        """Return the result of `to_dict` as text."""
        return msgspec.json.encode(self.to_dict()).decode()


def in_order(advice: Iterable[Advice]) -> tuple[Advice, ...]:
    """Return advice as it is read: warnings first, then by code and place."""
    return tuple(sorted(advice, key=lambda item: (item.level != "warning", item.code, item.where, item.problem)))
