"""What the mapper costs: µs an operation, and how that compares with the same work by hand and by other mappers.

All of it takes some minutes: python -m examples.benchmarks
In half a minute, without the other mappers: python -m examples.benchmarks --quick
Tables of an account beside the SDK of Microsoft: python -m examples.benchmarks azure
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from .contestant import PEERS, USUAL, Contestant, load
from .data import Workload
from .measure import measure
from .output import add_options, number, parser_of, progress, publish
from .phases import PHASES, chosen
from .table import Results


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = parser_of("python -m examples.benchmarks", __doc__)
    names = ", ".join(phase.name for phase in PHASES)
    parser.add_argument("--entities", default="50k", metavar="N", help="how many are loaded: 50k, 1m (default 50k)")
    parser.add_argument("--phases", default="", metavar="NAME,…", help=f"of {names} (default all)")
    parser.add_argument(
        "--peers",
        default=",".join(USUAL),
        metavar="NAME,…",
        help=f"of {', '.join(PEERS)}, or none (default {', '.join(USUAL)})",
    )
    parser.add_argument("--quick", action="store_true", help="20,000 entities, 3 rounds, by hand only")
    add_options(parser, rounds=5)
    options = parser.parse_args(given)
    if options.quick:
        options.entities, options.rounds, options.peers = "20k", 3, "by_hand"
    return options


def contestants(peers: str) -> dict[str, type[Contestant]]:
    """Return ours and those that are asked for and installed; say which are not."""
    found: dict[str, type[Contestant]] = {}
    for name in ("ours", *(peers.split(",") if peers != "none" else ())):
        cls = load(name)
        if cls is None:
            print(f'{name} is left out: it is not installed; pip install -e ".[bench]"', file=sys.stderr)
        else:
            found[name] = cls
    return found


def main(given: list[str] | None = None) -> None:
    words = sys.argv[1:] if given is None else given
    if words[:1] == ["azure"]:  # (which needs the SDK)
        from . import azure

        azure.main(words[1:])
        return
    options = arguments(given)
    rivals = contestants(options.peers)
    wanted = set(options.phases.split(",")) - {""}
    phases = chosen(wanted)
    entities = number(options.entities)
    times = measure(
        {name: partial(cls, durability=options.durability) for name, cls in rivals.items()},
        phases,
        [Workload(entities, seed) for seed in range(options.rounds)],
        folder=options.folder,
        progress=progress,
    )
    shown = [phase for phase in phases if not wanted or phase.name in wanted]
    results = Results(times, shown, {name: cls.title for name, cls in rivals.items()}, options.clock)
    title = f'{entities:,} orders, medians of {options.rounds} rounds, durability "{options.durability}"'
    publish(options, "orders", results.table(title))


if __name__ == "__main__":
    main()
