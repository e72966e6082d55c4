"""The typed forms of classes in a catalogue: whatever else stands in one was not written by this library."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, TypeAlias, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ..datetime_types import Builtin
from ..entities.fields import MeasureKind
from ..errors import safe_repr
from ..keys.template import Template, renamed_text
from ..keys.template_parser import compile_template
from ..limits import check_property_name, is_name
from ..values.extra import Extra
from ..values.geo import GeoPoint
from ..values.nested import value_type
from ..values.precision import Precision
from ..values.scalars import SCALARS, Int32
from .labels import Label, plain_name


class _Form(msgspec.Struct, forbid_unknown_fields=True):
    pass


class TemplateSpec(_Form):
    """A template of keys, as `Template.to_json` gives it."""

    text: str | list[str]
    slots: list[tuple[str, str, str]]
    """Field, spec, name of the scalar type."""

    def __str__(self) -> str:
        texts = [self.text] if isinstance(self.text, str) else self.text
        safe_repr = ", ".join(f'"{text}"' for text in texts)
        return safe_repr if isinstance(self.text, str) else f"({safe_repr})"

    @property
    def fields(self) -> set[str]:
        """The properties that it reads."""
        return {field.partition(".")[0] for field, _, _ in self.slots}

    def compiled(self, subject: str) -> Template:
        """Return the template; as `compile_template`, whose errors it raises, and KeyError for an unknown type."""
        text = self.text if isinstance(self.text, str) else tuple(self.text)
        return compile_template(text, {field: _SLOT_TYPES[kind] for field, _, kind in self.slots}, subject=subject)

    def renamed_text(self, names: Mapping[str, str]) -> str | list[str]:
        """Return the text with other names of some properties."""
        if isinstance(self.text, str):
            return renamed_text(self.text, names)
        return [renamed_text(text, names) for text in self.text]


_SLOT_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (str, int, float, bool, Builtin.datetime, Builtin.date, time, timedelta, Decimal, UUID, bytes, tuple)
}  # fmt: skip


class FieldSpec(_Form):
    """A field, by its property."""

    type: str
    """The type without the members of an Enum or a Literal: that of their values."""
    optional: bool
    in_key: bool
    default: Any
    """What rows read as that lack the property: set once, with the property."""
    members: list[Any] | UnsetType = UNSET
    """The values of an Enum or a Literal, sorted."""
    json: dict[str, Any] | UnsetType = UNSET
    """The JSON schema of a nested value."""

    @property
    def may_lack(self) -> bool:
        """Whether it has a value for rows without its property."""
        return self.optional or self.default is not None

    @property
    def values(self) -> FieldSpec:
        """The same without what says nothing of its values."""
        return replace(self, default=None, in_key=False)

    def __str__(self) -> str:
        text = self.type.removeprefix("json[").removesuffix("]") if self.type.startswith("json[") else self.type
        if self.members is not UNSET:
            text = f"{text} of {', '.join(map(repr, self.members))}"
        return f"{text} | None" if self.optional else text


class IndexSpec(_Form):
    """An index, as `IndexModel.to_json` gives it."""

    table: str
    partition: TemplateSpec
    row: TemplateSpec
    include: list[str]
    unique: bool
    where: Any
    include_all: bool = False
    """Whether it was declared to hold all fields; those that there were then are in ``include``."""

    @property
    def fields(self) -> set[str]:
        """The properties that its rows hold."""
        return {*self.include, *self.partition.fields, *self.row.fields}


class AggregateSpec(_Form):
    """An aggregate over the entities of another class, as `AggregateModel.to_json` gives it."""

    of: str
    where: Any
    groups: dict[str, str]
    measures: dict[str, tuple[MeasureKind, Any, Any]]
    """By property: the kind, what is measured as `dump_value` gives it, and the condition."""


class ModelSpec(_Form):
    """Everything that decides what is stored and maintained of a class.

    In a catalogue it is the union of all forms of the class that were ever opened.
    """

    table: str
    type: str | None
    partition: TemplateSpec
    row: TemplateSpec
    fields: dict[str, FieldSpec]
    indexes: dict[str, IndexSpec]
    aggregate: AggregateSpec | UnsetType = UNSET

    @property
    def key_fields(self) -> set[str]:
        """The properties that its keys are made of."""
        return self.partition.fields | self.row.fields

    @property
    def source(self) -> str | None:
        """The class whose entities it aggregates; None if it is no aggregate."""
        return None if self.aggregate is UNSET else self.aggregate.of

    @property
    def keeps_ever(self) -> bool:
        """Whether it is an aggregate with ``_ever`` measures, which hold more than its entities tell."""
        return self.aggregate is not UNSET and any(
            kind in ("min_ever", "max_ever") for kind, *_ in self.aggregate.measures.values()
        )


class LinkSpec(_Form):
    """The correspondence of the entities of two classes: one class before a migration, and one after it."""

    old: str
    new: str
    properties: dict[str, str]
    """Those of the old class that the new one has, too, with their names there."""
    values: dict[str, list[tuple[Any, Any]]] = {}
    """By property of the old class: stored values that are others in the new one."""
    functions: dict[str, str] = {}
    """By property of the new class: what makes the old value of the new one (`translation`). There is no way back."""
    steps: list[str] = []
    """Those of the script whose functions make old entities of new ones: nobody knows them without it, and the rest of
    the link is empty."""

    @property
    def reverse(self) -> LinkSpec:
        """The same, with the new class for the old one."""
        values = {self.properties[name]: [(new, old) for old, new in pairs] for name, pairs in self.values.items()}
        properties = {new: old for old, new in self.properties.items()}
        return LinkSpec(self.new, self.old, properties, values, self.functions, self.steps)


class BuildStateSpec(_Form):
    """Whether an index or an aggregate is maintained, and read."""

    state: Literal["announced", "building", "violated", "ready", "disabled"]
    """*announced*: it is to be built once every process knows of it, where processes do not learn that with each write."""
    since: int
    """When it came to that, or was declared by the newest form for the first or the last time; in µs since 1970."""
    by: str | None = None
    """The migration that brought it there."""
    declared: bool = True
    """Whether the newest form of its class declares it."""
    zones: dict[str, str] | UnsetType = UNSET
    """The time zones of its definition, each with the fingerprint of the rules that it is maintained by."""
    release: str | UnsetType = UNSET
    """The release of the IANA database that these are of, as far as it is known."""
    number: int | UnsetType = UNSET
    """Of its build, where a mark in each entity says whether that is in it."""


class TombstoneSpec(_Form):
    """Something that was dropped."""

    label: str
    form: dict[str, Any]
    """What it was."""
    since: int
    """When it was dropped, in µs since 1970."""
    by: str | None = None
    """The migration that dropped it."""
    instead: str | None = None
    """The index that answers programs that declare it: the same one, but not unique."""
    tables: list[str] = []
    """Physical names of tables that are still to be cleared."""
    returns: bool | UnsetType = UNSET
    """Whether the class may come back, empty."""

    @property
    def bare(self) -> Label:
        """The label that a class declares it by."""
        return Label.of(self.label).bare

    def may_be_of(self, form: ModelSpec) -> bool:
        """Return whether it is not that of another definition of an aggregate than a class declares."""
        if self.bare.index or form.aggregate is UNSET or self.form.get("aggregate") is None:
            return True
        return bool(msgspec.convert(self.form["aggregate"], AggregateSpec) == form.aggregate)

    def __str__(self) -> str:
        when = f"by {self.by}" if self.by else f"on {Builtin.datetime.fromtimestamp(self.since / 1e6, UTC).date()}"
        name = self.bare.index or self.bare.owner
        mend = "declare it under another name, or delete it here"
        return f"{name} was dropped {when}; {'open the store again to have it anew, empty' if self.returns else mend}"


class AppliedSpec(msgspec.Struct):
    """A migration that was begun; its times are µs since 1970."""

    id: str
    script: str = ""
    """32 hex digits of its text."""
    steps: list[Any] = []
    started: int = 0
    switched: int | None = None
    contracted: int | None = None
    entities: int = 0
    """That were copied."""
    seconds: float = 0.0
    undone: int | None = None
    drops: list[str] = []
    """The labels of what goes when it is contracted."""
    kept: list[str] = []
    """The tables of what was copied; they are dropped when it is contracted."""
    clears: str | UnsetType = UNSET
    """The class whose tables are replaced by empty ones, where it is no migration; ``kept`` are these."""


decode_model: Final = msgspec.json.Decoder(ModelSpec).decode  # (two threads that make a first decoder crash msgspec)
Forms: TypeAlias = Mapping[str, ModelSpec]  # by the name of the class


def check_names(forms: Forms) -> None:
    """Raise ValueError if a class, an index or a property of some forms has a name that no class gives it.

    A migration script has these names for its own, so nothing else may stand for one.
    """
    for name, form in forms.items():
        owner, separator, property = plain_name(name).partition(":")
        if wrong := [candidate for candidate in (owner, *map(plain_name, form.indexes)) if not is_name(candidate)]:
            raise ValueError(f"{safe_repr(wrong[0])} is no name of a class or an index")
        for candidate in [*form.fields, *([property] if separator else [])]:
            if (fault := check_property_name(candidate)) is not None:
                raise ValueError(fault)


def form_hash(form: ModelSpec) -> str:
    """Return 32 hex digits that two forms of a class share if they store and maintain the same.

    Defaults are left out: those of a catalogue are set once. Only the order of measures counts.
    """
    plain = msgspec.to_builtins(replace(form, fields={n: replace(f, default=None) for n, f in form.fields.items()}))
    if form.aggregate is not UNSET:
        plain["order"] = list(form.aggregate.measures)  # what is kept for a group stands in it
    return hashlib.blake2b(msgspec.json.encode(plain, order="deterministic"), digest_size=16).hexdigest()


# ---------------------------------------------------------------------------------------------- types by their names

_ANYTHING = list[Any] | dict[str, Any]
_ANNOTATIONS: dict[str, Any] = {
    **{scalar.name: kind for kind, scalar in SCALARS.items()}, "int32": Int32, "extra": Extra, "GeoPoint": GeoPoint,
    "json[tuple[str, ...]]": tuple[str, ...],
    **{f"{kind.__name__}[{unit}]": Annotated[kind, Precision(unit)] for kind in (Builtin.datetime, time) for unit in ("s", "ms", "us")},
}  # fmt: skip


def annotation(form: FieldSpec) -> Any:
    """Return a type that stores the values of a field as they are stored; what is nested is not looked into."""
    name, is_list = form.type, form.type.startswith("list[")
    value_kind = _ANNOTATIONS.get(name[5:-1] if is_list else name, _ANYTHING)
    kind = value_kind if form.members is UNSET else cast(Any, Literal)[tuple(form.members)]
    return list.__class_getitem__(kind) if is_list else kind


def stored_default(form: FieldSpec) -> Any:
    """Return the default of a field, as it is stored."""
    if form.default is None:
        return None
    kind, _ = value_type(annotation(form))
    return kind.store(kind.undump(form.default))
