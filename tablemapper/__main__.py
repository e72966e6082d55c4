"""``python -m tablemapper`` is the command ``tablemapper``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line with the arguments of the process, and exit with what it returns."""
    try:
        from .cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("cyclopts", "rich"):
            raise
        extra = "inspect" if sys.argv[1:2] == ["inspect"] else "cli"  # (which has the other one in it)
        sys.stderr.write(f"tablemapper: the command line needs {error.name}: pip install 'tablemapper[{extra}]'\n")
        sys.exit(2)  # `Exit.USAGE`, which cannot be imported either
    except KeyboardInterrupt:
        sys.stderr.write("tablemapper: interrupted; nothing was done\n")
        sys.exit(130)  # `Exit.INTERRUPTED`
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
