"""Run cases: ``h0-999`` are files, ``c0-999`` catalogues, ``m0-999`` and ``b0-999`` those amid migrations, and amid builds."""

from __future__ import annotations

import sys

from .runs import findings, work

if sys.argv[1:] == ["work"]:
    work()
else:  # h0-1000 c0-1000 h4711
    for one in sys.argv[1:]:
        first, _, last = one[1:].partition("-")
        found = findings((f"{one[0]}{n}" for n in range(int(first), int(last or first) + 1)), processes=2)
        print(*found, f"{one}: {len(found)} findings", sep="\n", flush=True)
