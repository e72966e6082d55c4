"""What may follow what: a catalogue's models against those that a store is opened with.

Additions that old rows can be read with are taken over; anything else would lose or misread data, or leave an index or
an aggregate behind, and is a fault. Nothing here touches a store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs

from ..keys.overlap import disjoint
from ..keys.template import Template, compile_template
from .model import Model, Schema

__all__ = ["Evolution", "evolve"]


@attrs.frozen
class Evolution:
    """The difference between a catalogue and a schema."""

    faults: tuple[str, ...]
    models: tuple[Model, ...]
    """New classes, aggregates among them."""
    fields: tuple[tuple[Model, str], ...]
    """New fields of known classes, by their property."""
    indexes: tuple[tuple[Model, str], ...]
    """New indexes of known classes, by name."""
    catalogue: dict[str, Any]
    """What the catalogue says afterwards, if there are no faults."""
    changed: bool
    """Whether the catalogue has to be written."""


def evolve(catalogue: Mapping[str, Any], schema: Schema) -> Evolution:
    """Compare a catalogue, ``{class: form}``, with the schema that is opened."""
    faults: list[str] = []
    models: list[Model] = []
    fields: list[tuple[Model, str]] = []
    indexes: list[tuple[Model, str]] = []
    after = dict(catalogue)
    for model in schema.models:
        form = model.to_json()
        old = catalogue.get(model.name)
        if old is None:
            models.append(model)
            faults += _strangers(model, catalogue, schema)
        else:
            faults += [f"{model.name}: {fault}" for fault in _known(model, old, form)]
            faults += [f"{model.name}: {fault}" for fault in _unseen(model, catalogue, schema)]
            fields += [(model, name) for name in form["fields"] if name not in old["fields"]]
            indexes += [(model, name) for name in form["indexes"] if name not in old["indexes"]]
        after[model.name] = form
    for name, old in catalogue.items():
        source = old.get("aggregate", {}).get("of")
        if source in schema.by_name and name not in schema.by_name:
            faults.append(f"{source}: the file maintains the aggregate {name} from it; open {name} too")
    return Evolution(tuple(faults), tuple(models), tuple(fields), tuple(indexes), after, after != dict(catalogue))


_KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (str, int, float, bool, datetime, date, time, timedelta, Decimal, UUID, bytes)
}


def _unseen(model: Model, catalogue: Mapping[str, Any], schema: Schema) -> Iterator[str]:
    """Yield what keeps a class from being opened without another one of its table, whose rows it could overwrite."""
    for name, old in catalogue.items():
        if name in schema.by_name or old["table"] != model.table:
            continue
        if disjoint(model.declaration.templates, (_template(old["partition"]), _template(old["row"]))) == "carve b":
            yield f"a key of it could be one of {name}, which is in the same table; open {name} too"


def _template(form: Any) -> Template:
    text = form["text"]
    kinds = {field: _KINDS[kind] for field, _, kind in form["slots"]}
    return compile_template(text if isinstance(text, str) else tuple(text), kinds, subject="catalogue")


def _strangers(model: Model, catalogue: Mapping[str, Any], schema: Schema) -> Iterator[str]:
    """Yield what keeps a new class from sharing its tables with what the file holds already."""
    for name, old in catalogue.items():
        if name in schema.by_name:
            continue
        if old["table"].lower() == model.table.lower():
            yield (
                f'{model.name} is new in the table "{old["table"]}", which holds {name}; '
                f"open {name} too, so that both keys can be compared"
            )
        for index, form in old["indexes"].items():
            if form["table"].lower() in {model.table.lower(), *(i.table.lower() for i in model.indexes)}:
                yield f'{model.name}: the table "{form["table"]}" is that of the index {name}.{index}; say table=…'


def _known(model: Model, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for part, meaning in (("table", "table"), ("partition", "partition key"), ("row", "row key"), ("type", "type=")):
        if old[part] != new[part]:
            yield f"its {meaning} was {_shown(old[part])} and is {_shown(new[part])}; that needs a migration"
    for name, form in old["fields"].items():
        now = new["fields"].get(name)
        if now is None:
            yield f'the property "{name}" ({form["type"]}) is in the file, but not in the class; declare it, or migrate'
            continue
        for part in ("type", "optional", "in_key"):
            if form[part] != now[part]:
                yield (
                    f'the property "{name}": {part} was {_shown(form[part])} and is {_shown(now[part])}; '
                    "that needs a migration"
                )
    for field in model.columns:
        if field.property not in old["fields"] and not field.optional and field.missing is None:
            yield (
                f'the property "{field.property}" is new, and rows that are there have no value for it; '
                f"make it optional or give it a default (a factory does not count), or migrate"
            )
    for name, form in old["indexes"].items():
        now = new["indexes"].get(name)
        if now is None:
            yield f"the file maintains the index {name}; declare it, or migrate"
        elif now != form:
            parts = [part for part in form if form[part] != now.get(part)]
            yield f"the index {name} differs in {', '.join(parts)}; give it another name, or migrate"
    if old.get("aggregate") != new.get("aggregate"):
        yield "its measures, groups or condition differ from those in the file; declare another aggregate, or migrate"


def _shown(form: Any) -> str:
    return repr(form)
