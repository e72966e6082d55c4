"""The comparison of a catalogue with the opened classes: changes, builds, the catalogue afterwards.

A class that holds no entities may change at will. A change that stops older programs ends its older forms; any other
change leaves them, as it does for a class that holds some. A form that was opened before can be opened again, unless it
was retired. Nothing here touches a store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs
from msgspec import UNSET
from msgspec.structs import replace

from ..entities.aggregates import kept_field
from ..schema.labels import former_name, is_former
from ..schema.model import Model, Schema
from ..schema.specs import FieldSpec, Forms, ModelSpec
from .changes import Anything, ChangeStep, NamedPart, SchemaChange, StoredContents
from .definitions import aggregate_in, indexes_in
from .history import History
from .literals import attribute_name
from .rules import class_changes, nested_members, new_class_changes, redefinition, takes, widens, words
from .versions import Version, Versions, retired, with_newest_source


def form_changes(forms: Forms, schema: Schema) -> tuple[SchemaChange, ...]:
    """Return the differences between the forms of all classes and a schema, whatever a store may hold."""
    changes = evolve(forms, Versions(), schema, Anything()).changes
    steps = [change.step for change in changes if change.step is not None]
    changed_classes = {name.cls for step in steps for name in step.possible_classes if name.side == "old"}
    renamed = {step.names[0].cls for step in steps if step.kind == "rename_class"}
    undeclared = []
    for name, form in forms.items():
        if name in schema.by_name or name in renamed or is_former(name):
            continue
        if form.source is None:
            undeclared.append(SchemaChange(name, "open", "it is not among the classes, and stays in the store"))
        elif form.source in schema.by_name or form.source in changed_classes:
            owner, property = kept_field(name) or (name, "")
            subject, where = ("the maintained field", f"{owner}.{property}") if property else ("the aggregate", name)
            message = f"{subject} is not declared, and the store goes on to maintain it"
            drop = ChangeStep("drop", (NamedPart("old", owner, property and attribute_name(property)),))
            undeclared.append(SchemaChange(where, "open", message, drop))
    return (*changes, *undeclared)


@attrs.frozen
class Evolution:
    """The difference between a catalogue and a schema, and the catalogue afterwards."""

    changes: tuple[SchemaChange, ...]
    models: tuple[Model, ...]
    """Classes that are new, or declared anew, aggregates among them."""
    dropped: frozenset[str]
    """The names of classes whose tables are dropped: they hold no rows, and they or their sources are declared anew."""
    fields: tuple[tuple[Model, str], ...]
    """New fields of known classes, by their property."""
    typed: tuple[Model, ...]
    """Known classes that have a type name from now on."""
    indexes: tuple[tuple[Model, str], ...]
    """New indexes of known classes, by name."""
    former: dict[str, str]
    """The labels of definitions that newer ones replace, each with its label from now on."""
    declared: dict[str, bool]
    """Labels, each with whether the newest form of its class declares it."""
    widened: tuple[tuple[str, str], ...]
    """Classes and properties that can hold values which older versions cannot read."""
    models_after: dict[str, ModelSpec]
    versions_after: Versions
    changed: bool
    """Whether the catalogue has to be written."""
    extends: bool
    """Whether more is stored or maintained than before: those that opened the store earlier have to follow."""

    @property
    def stopping(self) -> tuple[SchemaChange, ...]:
        """The changes that keep the store from being opened."""
        return tuple([change for change in self.changes if change.stops])

    @property
    def faults(self) -> tuple[str, ...]:
        """The same in words."""
        return tuple(map(str, self.stopping))


def evolve(
    catalogue: Forms,
    versions: Versions,
    schema: Schema,
    contents: StoredContents,
    history: History = History(),  # noqa: B008
    *,
    now: int = 0,
) -> Evolution:
    """Compare a catalogue with the schema that is opened.

    Args:
        catalogue: the union forms of its classes.
        versions: their versions that were opened.
        now: µs since 1970.
    """
    comparison = _Comparison(catalogue, versions, schema, contents, history, now)
    for model in sorted(schema.models, key=lambda model: model.aggregate is not None):
        if model.name not in comparison.dropped:  # (an aggregate is declared again with its class)
            comparison.compare(model)
    return comparison.evolution()


_State: TypeAlias = Literal[
    "new", "in use", "undone", "replaced", "ended", "aggregate replaced", "aggregate ended"
]  # fmt: skip
_Place: TypeAlias = Literal["lacks", "has", "has otherwise"]
_VERDICTS: dict[_State, dict[_Place, str]] = {
    "new": {"lacks": "add", "has": "change", "has otherwise": "redefine"},
    "in use": {"lacks": "dropped or keep", "has": "dropped or keep", "has otherwise": "dropped or keep"},
    "undone": {"lacks": "dropped or add", "has": "dropped or resume", "has otherwise": "dropped or redefine"},
    "replaced": {"lacks": "dropped or refuse", "has": "refuse", "has otherwise": "refuse"},
    "ended": {"lacks": "add", "has": "refuse", "has otherwise": "refuse"},
    "aggregate replaced": {"lacks": "dropped or add", "has": "change", "has otherwise": "dropped or redefine"},
    "aggregate ended": {"lacks": "dropped or add", "has": "change", "has otherwise": "dropped or redefine"},
}
"""What becomes of a class, by the state of its form, and by whether the catalogue has the class.

``dropped or …``: it is refused if it was dropped. ``keep``: nothing changes. ``resume``: the class went on as it was before,
and as it is again; only its indexes may have ended. ``redefine``: an aggregate that the catalogue has in another way only."""


def _state(versions: Sequence[Version], *, aggregate: bool) -> _State:
    """Return the state of the form that a class declares, by its versions."""
    if not versions:
        return "new"
    if any(version.until is None for version in versions):
        return "in use"
    if versions[-1].undone:
        return "undone"
    if versions[-1].retired_by is not None:  # by a migration; else it held no entities, and was declared anew
        return "aggregate replaced" if aggregate else "replaced"
    return "aggregate ended" if aggregate else "ended"


class _Comparison:
    """An `Evolution` while it grows by one class after the other; the attributes are those of `Evolution`."""

    def __init__(
        self,
        catalogue: Forms,
        versions: Versions,
        schema: Schema,
        contents: StoredContents,
        history: History,
        now_us: int,
    ) -> None:
        self._catalogue = catalogue
        self._versions = {name: list(of_class) for name, of_class in versions.by_class.items()}
        self._schema = schema
        self._contents = contents
        self._history = history
        self._now_us = now_us
        self._reserved_labels = {
            label for entry in history for label in entry.drops
        }  # (a migration knows others by them)
        self.changes: list[SchemaChange] = []
        self.models: list[Model] = []
        self.dropped: set[str] = set()
        self.fields: list[tuple[Model, str]] = []
        self.typed: list[Model] = []
        self.indexes: list[tuple[Model, str]] = []
        self.former: dict[str, str] = {}
        self.declared: dict[str, bool] = {}
        self.widened: list[tuple[str, str]] = []
        self.models_after = dict(catalogue)
        self.versions_after = {name: list(of_class) for name, of_class in versions.by_class.items()}

    def compare(self, model: Model) -> None:
        """Compare one class with the catalogue."""
        name, form = model.name, model.form
        stored_name = aggregate_in(self._catalogue, name, form)
        old = self.models_after.get(stored_name or name)  # (its class may have widened its sums)
        same_form = [
            version
            for version in self.versions_after.get(name, ())
            if version.form == model.form_hash and version.beside is None  # (else it is the form of another program)
        ]
        state = _state(same_form, aggregate=model.aggregate is not None)
        place: _Place = "lacks" if old is None else "has" if stored_name is not None else "has otherwise"
        verdict = _VERDICTS[state][place]
        if verdict.startswith("dropped or "):
            if (drop_message := self._contents.dropped(name, form)) is not None:
                self.changes.append(SchemaChange(name, "refused", drop_message))
                return
            verdict = verdict.removeprefix("dropped or ")
        if verdict == "keep":
            versions = self.versions_after
            versions[name] = [
                with_newest_source(version, model, self._schema, Versions(versions)) for version in versions[name]
            ]
            return
        changes = self._changes(verdict, model, stored_name, old, same_form)
        if any(change.stops for change in changes):
            aggregates = [aggregate_name for aggregate_name, form in self._catalogue.items() if form.source == name]
            if state.endswith("replaced"):  # (it does not take the place of what replaced it)
                self.changes += self._changes("refuse", model, stored_name, old, same_form)
                return
            if old is not None and not any(map(self._contents.count, [stored_name or name, *aggregates])):
                self._declare_anew(model, aggregates)
                return
        self.changes += changes
        if verdict == "add":
            self._add(model, same_form)
        elif verdict == "redefine" and old is not None:
            self._redefine(model, old)
        elif stored_name is not None and old is not None:
            self._extend(model, stored_name, old)

    def _changes(
        self, verdict: str, model: Model, stored_name: str | None, old: ModelSpec | None, same_form: Sequence[Version]
    ) -> list[SchemaChange]:
        """Return the changes of a class by a verdict; ``opened``: its versions."""
        if verdict == "refuse":
            return [SchemaChange(model.name, "refused", retired(model.name, same_form[-1], self._history))]
        if old is None:
            return list(new_class_changes(model, self._catalogue, self._schema, self._contents))
        if verdict == "redefine":
            return [redefinition(model, old, self._schema, self._catalogue)]
        if verdict == "resume" or stored_name is None:
            return []
        new_models = [candidate for candidate in self._schema.models if candidate.name not in self._catalogue]
        # (The table of a former definition has its number, which the class does not.)
        old_form = replace(old, table=old.table.removesuffix(stored_name.removeprefix(model.name)))
        return list(class_changes(model, old_form, self._contents, new_models))

    def _add(self, model: Model, same_form: Sequence[Version]) -> None:
        self.models.append(model)
        self.models_after[model.name] = model.form
        if same_form and model.name in self._reserved_labels:  # (an older version brings back what a migration drops)
            self.declared[model.name] = False

    def _declare_anew(self, model: Model, aggregates: list[str]) -> None:
        """Replace a class that holds no entities, and its aggregates, by what is declared now."""
        names = (model.name, *aggregates)
        self.dropped.update(names)
        self.changes.append(SchemaChange(model.name, "open", "it holds no entities, and is declared again"))
        for name in names:
            self.models_after.pop(name, None)
            self.versions_after[name] = [version.end(self._now_us) for version in self.versions_after.get(name, ())]
        models = [model, *(sibling for sibling in self._schema.models if sibling.name in aggregates)]
        self.models += models
        self.models_after |= {sibling.name: sibling.form for sibling in models}

    def _redefine(self, model: Model, old: ModelSpec) -> None:
        """Add another definition of an aggregate; the one that it has so far becomes a former one."""
        name = model.name
        self.models.append(model)
        archived_name = former_name(name, {*self.models_after, *self._reserved_labels})
        self.models_after[archived_name] = replace(old, table=old.table + archived_name.removeprefix(name))
        self.models_after[name] = model.form
        self.former |= {name: archived_name, **{f"{name}.{index}": f"{archived_name}.{index}" for index in old.indexes}}
        self.declared |= {archived_name: False, **{f"{archived_name}.{index}": False for index in old.indexes}}

    def _extend(self, model: Model, stored_name: str, old: ModelSpec) -> None:
        """Add to the form in the catalogue what the class has more."""
        form = model.form
        stored_indexes = indexes_in(old.indexes, form.indexes)
        new_indexes = [index for index in form.indexes if index not in stored_indexes]
        used_names = {*old.indexes, *(label.removeprefix(f"{stored_name}.") for label in self._reserved_labels)}
        archived_names = {index: former_name(index, used_names) for index in old.indexes if index in new_indexes}
        union = _union(old, form, new_indexes, archived_names)
        self.models_after[stored_name] = union
        self.fields += [(model, property) for property in union.fields if property not in old.fields]
        self.indexes += [(model, index) for index in new_indexes]
        self.former |= {f"{stored_name}.{index}": f"{stored_name}.{name}" for index, name in archived_names.items()}
        self.declared |= {
            f"{stored_name}.{index}": index in stored_indexes.values() or index in new_indexes
            for index in union.indexes
        }
        wider = [
            property
            for property, field in old.fields.items()
            if property in form.fields and widens(field, form.fields[property])
        ]
        self.widened += [(model.name, property) for property in wider]
        self._widen_sums(
            stored_name, {name for name in wider if form.fields[name].optional > old.fields[name].optional}
        )
        self.typed += [model] if union.type != old.type else []

    def _widen_sums(self, source: str, properties: set[str]) -> None:
        """Let the sums over some properties of a class be None, as these can be from now on."""
        for name, form in list(self.models_after.items()):
            if form.source != source or form.aggregate is UNSET:
                continue
            sums = [
                property
                for property, (kind, label, _) in form.aggregate.measures.items()
                if kind == "sum" and not form.fields[property].optional and properties.intersection(words(label))
            ]
            if sums:
                fields = {property: replace(form.fields[property], optional=True) for property in sums}
                self.models_after[name] = replace(form, fields=form.fields | fields)
                self.widened += [(name, property) for property in sums]

    def evolution(self) -> Evolution:
        """Return the result, with the versions that are opened now."""
        for model in self._schema.models:
            of_class = self.versions_after.setdefault(model.name, [])
            if not any(version.form == model.form_hash and version.in_use for version in of_class):
                of_class.append(Version(model.form_hash, self._now_us))
        return Evolution(
            tuple(self.changes), tuple(dict.fromkeys(self.models)), frozenset(self.dropped), tuple(self.fields),
            tuple(self.typed), tuple(self.indexes), self.former, self.declared, tuple(self.widened), self.models_after,
            Versions(self.versions_after), self.versions_after != self._versions, self.models_after != dict(self._catalogue),
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------- the union of two forms


def _union(old: ModelSpec, new: ModelSpec, new_indexes: list[str], archived_names: Mapping[str, str]) -> ModelSpec:
    """Return the form of a class that stores and maintains what either form does.

    Args:
        old: the form in the catalogue.
        new: the form of the class.
        new_indexes: the indexes of the class that the catalogue does not have.
        archived_names: the indexes that these replace, each with its name from now on.
    """
    fields = dict(old.fields)
    for name, field in new.fields.items():
        fields[name] = _field_union(fields[name], field) if name in fields else field
    indexes = {archived_names.get(name, name): index for name, index in old.indexes.items()}
    indexes |= {name: index for name, index in new.indexes.items() if name in new_indexes}
    return replace(old, type=old.type or new.type, fields=fields, indexes=indexes)


def _field_union(old: FieldSpec, new: FieldSpec) -> FieldSpec:
    """Return the form of a field that holds the values of two; the type of one includes that of the other."""
    union = replace(old, optional=old.optional or new.optional)
    if takes(new, old):
        union = replace(union, type=old.type if old.json is not UNSET else new.type, members=_members(old, new))
    if old.json is UNSET:
        return replace(union, json=new.json)
    if new.json is UNSET or (nested := nested_members(old, new)).faults:
        return union
    same = not nested.extends and old.json.get("partial") == nested.schema.get("partial")
    return union if same else replace(union, json=nested.schema)


def _members(old: FieldSpec, new: FieldSpec) -> Any:
    if old.members is UNSET or new.members is UNSET:
        return UNSET
    return old.members if set(new.members) <= set(old.members) else new.members
