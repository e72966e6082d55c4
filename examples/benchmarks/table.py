"""What was measured of orders, as one table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from .measure import Times
from .output import Table
from .phases import Phase

Clock = Literal["wall", "cpu"]
OURS, HAND = "ours", "by_hand"
_MAPPERS = ("sqlalchemy", "peewee")


@attrs.frozen
class Results:
    """The times of some phases, and what they say."""

    times: Times
    phases: Sequence[Phase]
    titles: Mapping[str, str]
    """Of each contestant, ours first."""
    clock: Clock = "wall"

    def cost(self, phase: Phase, name: str) -> float:
        """Return the median of what an operation costs, in µs."""
        return statistics.median(self._rounds(phase, name))

    def ratio(self, phase: Phase, name: str) -> float:
        """Return the median over the rounds of our time by that of another."""
        pairs = zip(self._rounds(phase, OURS), self._rounds(phase, name), strict=True)
        return statistics.median(ours / other for ours, other in pairs)

    def _rounds(self, phase: Phase, name: str) -> list[float]:
        return [getattr(taken, self.clock) for taken in self.times.taken[phase.name][name]]

    def size(self, name: str) -> float:
        """Return the median of the bytes an entity of a file, after the bulk load."""
        return statistics.median(self.times.file[name])

    @property
    def others(self) -> list[str]:
        return [name for name in self.titles if name != OURS]

    def _cell(self, phase: Phase, name: str) -> str:
        """Return a ratio and its target: ours by theirs for those by hand, how many times we are faster for others."""
        if name in _MAPPERS:
            value, target = 1 / self.ratio(phase, name), phase.faster.get(name)
            return cell(f"{value:.1f}", "≥", target, met=target is None or value >= target)
        value, target = self.ratio(phase, name), phase.target if name == HAND else None
        return cell(f"{value:.2f}", "≤", target, met=target is None or value <= target)

    def table(self, title: str) -> Table:
        """Return a row for each phase, and one for the size of the file."""
        rows = [
            [phase.title, f"{self.cost(phase, OURS):.2f}", *(self._cell(phase, name) for name in self.others)]
            for phase in self.phases
        ]
        if self.times.file:
            ours = self.size(OURS)
            sizes = [
                f"{self.size(n) / ours:.2f}" if n in _MAPPERS else f"{ours / self.size(n):.2f}" for n in self.others
            ]
            rows.append(["file, bytes an entity", f"{ours:,.0f}", *sizes])
        units = ["times slower" if name in _MAPPERS else "ours by it" for name in self.others]
        head = [["", "ours", *(self.titles[name] for name in self.others)], ["", "µs", *units]]
        return Table(title, head, rows, self.plain())

    def plain(self) -> dict[str, Any]:
        """Return all that was measured, for a program."""
        return {
            "phases": {
                phase.name: {
                    "title": phase.title,
                    "target": phase.target,
                    "faster": dict(phase.faster),
                    "µs": {
                        name: {
                            "wall": [round(taken.wall, 3) for taken in rounds],
                            "cpu": [round(taken.cpu, 3) for taken in rounds],
                        }
                        for name, rounds in self.times.taken[phase.name].items()
                    },
                    "ratio": {name: round(self.ratio(phase, name), 4) for name in self.others},
                }
                for phase in self.phases
            },
            "file, bytes an entity": self.times.file,
        }


def cell(value: str, sign: str, target: float | None, *, met: bool) -> str:
    """Return a value, with its target, and a mark if it misses it."""
    return value + ("" if target is None else f" ({sign} {target:g})") + ("" if met else " !")
