"""Labels: what a catalogue calls an index, an aggregate or a class; the newest definition of a name has no number.

If a class declares an index or an aggregate in another way, the store builds the new one beside the old one. Older
versions of the program go on to use that. Former definitions are called ``by_name#1``, ``by_name#2``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import attrs


@attrs.frozen
class Label:
    """The two names in a label: ``str`` gives ``Product.by_name``, or ``DailyClimate``; it can be unpacked."""

    owner: str
    """The class or the aggregate, by its name in the catalogue."""
    index: str = ""
    """The index, by its name in the catalogue; "" for the class itself."""

    @classmethod
    def of(cls, text: str) -> Label:
        """Return the label of a text."""
        owner, _, index = text.partition(".")
        return cls(owner, index)

    def __str__(self) -> str:
        return f"{self.owner}.{self.index}" if self.index else self.owner

    def __iter__(self) -> Iterator[str]:
        return iter((self.owner, self.index))

    @property
    def bare(self) -> Label:
        """The label that a class declares the definition by."""
        return Label(plain_name(self.owner), plain_name(self.index))


def plain_name(name: str) -> str:
    """Return the name that a class declares, of a definition that may be a former one."""
    return name.partition("#")[0]


def is_former(name: str) -> bool:
    """Return whether a name, or a label, is that of a former definition, which no class declares by it."""
    return "#" in name


def former_name(name: str, names: Collection[str]) -> str:
    """Return a free name for a definition that a newer one replaces."""
    number = 1
    while f"{name}#{number}" in names:
        number += 1
    return f"{name}#{number}"
