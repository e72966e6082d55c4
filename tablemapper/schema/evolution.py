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
from msgspec import UNSET
from msgspec.structs import replace

from ..errors import CorruptStore, InvalidModel
from ..keys.overlap import disjoint
from ..keys.template import Template, compile_template
from .forms import ModelForm, TemplateForm
from .members import Members, follow
from .model import Model, Schema
from .rows import DAMAGE

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
    catalogue: dict[str, ModelForm]
    """What the catalogue says afterwards, if there are no faults."""
    changed: bool
    """Whether the catalogue has to be written."""
    extends: bool
    """Whether more is stored or maintained than before: a store that was opened earlier must not write any more."""


def evolve(catalogue: Mapping[str, ModelForm], schema: Schema) -> Evolution:
    """Compare a catalogue, ``{class: form}``, with the schema that is opened."""
    faults: list[str] = []
    models: list[Model] = []
    fields: list[tuple[Model, str]] = []
    indexes: list[tuple[Model, str]] = []
    after = dict(catalogue)
    extends = False
    for model in schema.models:
        form = model.form
        old = catalogue.get(model.name)
        if old is None:
            models.append(model)
            faults += _strangers(model, catalogue, schema)
            extends = True
        else:
            faults += [f"{model.name}: {fault}" for fault in _known(model, old, form)]
            faults += [f"{model.name}: {fault}" for fault in _unseen(model, catalogue, schema)]
            fields += [(model, name) for name in form.fields if name not in old.fields]
            indexes += [(model, name) for name in form.indexes if name not in old.indexes]
            extends |= _without_schemas(form) != _without_schemas(old)
            members = {name: one for name, one in _members(old, form) if not one.faults}
            extends |= any(one.extends for one in members.values())
            form = _with_schemas(form, {name: one.schema for name, one in members.items()})
        after[model.name] = form
    for name, old in catalogue.items():
        if old.aggregate and old.aggregate.of in schema.by_name and name not in schema.by_name:
            source = old.aggregate.of
            faults.append(f"{source}: the file maintains the aggregate {name} from it; open {name} too")
    changed = after != dict(catalogue)
    return Evolution(tuple(faults), tuple(models), tuple(fields), tuple(indexes), after, changed, extends)


def _members(old: ModelForm, new: ModelForm) -> Iterator[tuple[str, Members]]:
    """Yield the nested types that both forms know, by property."""
    for name, form in old.fields.items():
        now = new.fields.get(name)
        if now is not None and form.type == now.type and form.json is not UNSET and now.json is not UNSET:
            try:
                yield name, follow(form.json, now.json)
            except DAMAGE as error:
                raise CorruptStore(
                    f'the catalogue cannot be read: the members of "{name}": {error!r}; restore a backup'
                ) from error


def _with_schemas(form: ModelForm, schemas: Mapping[str, Any]) -> ModelForm:
    """Return a form with other schemas of nested types, by property."""
    fields = {
        name: replace(field, json=schemas[name]) if name in schemas else field for name, field in form.fields.items()
    }
    return replace(form, fields=fields)


def _without_schemas(form: ModelForm) -> ModelForm:
    return _with_schemas(form, dict.fromkeys(form.fields, UNSET))


_KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (str, int, float, bool, datetime, date, time, timedelta, Decimal, UUID, bytes)
}


def _unseen(model: Model, catalogue: Mapping[str, ModelForm], schema: Schema) -> Iterator[str]:
    """Yield why a class cannot be opened without another one of its table: it could overwrite its rows."""
    for name, old in catalogue.items():
        if name in schema.by_name or old.table != model.table:
            continue
        if disjoint(model.declaration.templates, (_template(old.partition), _template(old.row))) == "carve b":
            yield f"a key of it could be one of {name}, which is in the same table; open {name} too"


def _template(form: TemplateForm) -> Template:
    try:
        kinds = {field: _KINDS[kind] for field, _, kind in form.slots}
        text = form.text if isinstance(form.text, str) else tuple(form.text)
        return compile_template(text, kinds, subject="catalogue")
    except (KeyError, InvalidModel) as error:
        raise CorruptStore(f"the catalogue cannot be read: the template {form}: {error}; restore a backup") from error


def _strangers(model: Model, catalogue: Mapping[str, ModelForm], schema: Schema) -> Iterator[str]:
    """Yield what keeps a new class from sharing its tables with what the file holds already."""
    for name, old in catalogue.items():
        if name in schema.by_name:
            continue
        if old.table.lower() == model.table.lower():
            yield (
                f'{model.name} is new in the table "{old.table}", which holds {name}; '
                f"open {name} too, so that both keys can be compared"
            )
        for index, form in old.indexes.items():
            if form.table.lower() in {model.table.lower(), *(i.table.lower() for i in model.indexes)}:
                yield f'{model.name}: the table "{form.table}" is that of the index {name}.{index}; say table=…'


def _known(model: Model, old: ModelForm, new: ModelForm) -> Iterator[str]:
    for part, meaning in (("table", "table"), ("partition", "partition key"), ("row", "row key"), ("type", "type=")):
        if (was := getattr(old, part)) != (now := getattr(new, part)):
            yield f"its {meaning} was {_shown(was)} and is {_shown(now)}; that needs a migration"
    for name, field in old.fields.items():
        other = new.fields.get(name)
        if other is None:
            yield f'the property "{name}" ({field.type}) is in the file, but not in the class; declare it, or migrate'
            continue
        for part in ("type", "optional", "in_key"):
            if (was := getattr(field, part)) != (now := getattr(other, part)):
                yield f'the property "{name}": {part} was {_shown(was)} and is {_shown(now)}; that needs a migration'
    for name, members in _members(old, new):
        yield from (f'the property "{name}": {fault}' for fault in members.faults)
    for column in model.columns:
        if column.property not in old.fields and not column.optional and column.missing is None:
            yield (
                f'the property "{column.property}" is new, and rows that are there have no value for it; '
                f"make it optional or give it a default (a factory does not count), or migrate"
            )
    for name, index in old.indexes.items():
        found = new.indexes.get(name)
        if found is None:
            yield f"the file maintains the index {name}; declare it, or migrate"
        elif found != index:
            parts = [part for part in index.__struct_fields__ if getattr(index, part) != getattr(found, part)]
            yield f"the index {name} differs in {', '.join(parts)}; give it another name, or migrate"
    if old.aggregate != new.aggregate:
        yield "its measures, groups or condition differ from those in the file; declare another aggregate, or migrate"


def _shown(form: Any) -> str:
    return str(form) if isinstance(form, TemplateForm) else repr(form)
