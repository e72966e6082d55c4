"""Files of earlier formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tablemapper.engines.sqlite.online.takeover import BESIDE
from tablemapper.schema.model import model_of


def to_first_format(path: Path, models: Sequence[Any]) -> None:
    """Make a file what it would be if the first format were still written: types with their members in their names."""
    db = apsw.Connection(str(path))
    with db:
        rows = dict(db.execute("SELECT name, form FROM tablemapper_catalogue"))
        forms, tables = (msgspec.json.decode(rows[name]) for name in ("models", "tables"))
        for model in map(model_of, models):
            for field in model.declaration.fields:
                form = forms[model.name]["fields"][field.property]
                form["type"] = field.type.name
                form.pop("members", None)
        entities = tables["entities"]
        for table in entities.values():
            del table["name"]
        for name, form in (("models", forms), ("tables", entities)):
            db.execute(
                "UPDATE tablemapper_catalogue SET form = ? WHERE name = ?", (msgspec.json.encode(form).decode(), name)
            )
        db.execute("DELETE FROM tablemapper_catalogue WHERE name IN ('versions', 'states')")
        for name in BESIDE:
            db.execute(f"DROP TABLE {name}")
        db.execute("PRAGMA user_version = 1")
    db.close()
