"""Which tests reach a module: what a run with coverage stored, a line a test.

python -m tests.where tablemapper/keys/codec.py [--lines 20-40]
python -m tests.where --run [tests/keys …]          runs them, all if none is named, and stores what each one reaches
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
STORED = ROOT / ".coverage.where"


def run(tests: list[str]) -> int:
    """Run tests, and store what each of them reaches."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-m", "not interrupts", *tests]
    coverage = ["--cov", "--cov-context=test", "--cov-report="]
    return subprocess.run([*command, *coverage], cwd=ROOT, env={**os.environ, "COVERAGE_FILE": str(STORED)}).returncode


def reaching(data: CoverageData, module: str, lines: range | None = None) -> Counter[str]:
    """Return the tests that reach a module, each with the number of its lines that the test runs."""
    found = Counter[str]()
    for line, contexts in data.contexts_by_lineno(str((ROOT / module).resolve())).items():
        if lines is None or line in lines:
            found.update({context.partition("[")[0].partition("|")[0] for context in contexts if context})
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--lines", help="as 20-40")
    parser.add_argument("what", nargs="*", help="a module; with --run, tests")
    given = parser.parse_args()
    if given.run:
        return run(given.what)
    if not STORED.exists():
        sys.exit("no run is stored; first: python -m tests.where --run")
    data = CoverageData(str(STORED))
    data.read()
    first, _, last = (given.lines or "").partition("-")
    lines = range(int(first), int(last or first) + 1) if first else None
    for module in given.what:
        for test, count in reaching(data, module, lines).most_common():
            print(f"{count:5}  {test}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
