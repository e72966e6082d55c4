"""``python -m docs.pictures`` draws all pictures of the site; with names, only those."""

from __future__ import annotations

import sys

from . import FOLDER, PICTURES

FOLDER.mkdir(exist_ok=True)
for name in sys.argv[1:] or PICTURES:
    (FOLDER / f"{name}.html").write_text(PICTURES[name](), encoding="utf-8")
