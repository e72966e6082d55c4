"""Models: what can be declared, as data that is written out as the source of a program."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import attrs

from .conditions import Calculation, Condition, Operand, operands
from .kinds import INT, LARGE, MOMENT, NESTED, WRITTEN, Kind, namespace, text_of


@attrs.frozen
class Slot:
    field: str
    """Dotted where it is nested."""
    spec: str = ""

    def __str__(self) -> str:
        return f"{{{self.field}:{self.spec}}}" if self.spec else f"{{{self.field}}}"


NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""The time at which the clock of a search stands still."""
Component: TypeAlias = tuple[str | Slot, ...]
Template: TypeAlias = tuple[Component, ...]


def _template_text(template: Template) -> str:
    texts = ["".join(map(str, component)) for component in template]
    return repr(texts[0]) if len(texts) == 1 else repr(tuple(texts))


def slots_of(*templates: Template) -> list[Slot]:
    """Return the slots of templates, in order."""
    return [part for template in templates for component in template for part in component if isinstance(part, Slot)]


@attrs.frozen
class Field:
    name: str
    kind: Kind
    optional: bool = False
    stored: bool = False
    default: bool = False
    """Whether it has one; so no value needs to be given."""
    pool: tuple[Any, ...] = ()
    """The values that entities have."""
    standard: tuple[Any, ...] = ()
    """The default, where it is neither None nor the first value."""
    spelling: str = ""
    """How it says that it takes no value below these, if it does."""
    on_write: bool = False
    """Whether each write sets it: to the only value that it has."""
    expires: bool = False
    """Whether entities end at this time."""

    @property
    def missing(self) -> Any:
        """The default."""
        if self.standard:
            return self.standard[0]
        return None if self.optional else self.pool[0]

    @property
    def is_huge(self) -> bool:
        """Whether a sum of its values may be beyond 64 bits."""
        return self.kind is INT and any(abs(one) >= 2**62 for one in self.pool)

    @property
    def least(self) -> int | None:
        """What it takes no value below, if it says so."""
        return min(self.pool) if self.spelling else None

    def source(self) -> str:
        annotation = self.spelling.format(self.kind.annotation, self.least) if self.spelling else self.kind.annotation
        text = f"    {self.name}: tm.Field[{annotation}{' | None' if self.optional else ''}]"
        options = []
        if self.default:
            shared = not self.optional and self.kind in NESTED
            options.append(f"factory=lambda: {text_of(self.missing)}" if shared else f"default={text_of(self.missing)}")
        if self.kind.precision:
            options.append(f'precision="{self.kind.precision}"')
        if self.stored:
            options.append("stored=True")
        if self.on_write:
            options.append(f"on_write=lambda: {text_of(self.pool[0])}")
        if self.expires:
            options.append("expires=True")
        if self.kind is LARGE:
            options.append("large=True")
        return f"{text} = tm.field({', '.join(options)})" if options else text


@attrs.frozen
class Index:
    name: str
    partition: Template
    row: Template
    include: tuple[str, ...] = ()
    every: bool = False
    """Whether it includes all fields."""
    where: Condition | None = None
    unique: bool = False

    def source(self) -> str:
        text = f"    {self.name} = tm.Index(partition={_template_text(self.partition)}, row={_template_text(self.row)}"
        if self.every or self.include:
            text += f", include={'all' if self.every else self.include!r}" if not self.every else ', include="all"'
        if self.where is not None:
            text += f", where=lambda p: {self.where.text('p')}"
        return text + (", unique=True)" if self.unique else ")")

    @property
    def arguments(self) -> list[str]:
        """What it is called with, as templates name it."""
        return list(
            dict.fromkeys(s.field for s in slots_of(self.partition, self.row) if not s.spec.startswith("shard"))
        )


@attrs.frozen
class Rule:
    """Of a class: it sets one field from another, and refuses what that makes."""

    of: str
    field: str
    never: int

    def source(self) -> str:
        return (
            f"    def __attrs_post_init__(self):\n        self.{self.field} = len(repr(self.{self.of})) % 5\n"
            f"        if self.{self.field} == {self.never}:\n            raise ValueError('never')"
        )

    def value(self, given: Any) -> int:
        """Return what the field becomes."""
        return len(repr(given)) % 5


@attrs.frozen
class Measure:
    verb: str
    operand: Operand | Calculation | None = None
    where: Condition | None = None

    def source(self, of: str, *, named: bool = False) -> str:
        given = [] if self.operand is None else [self.operand.text(of)]
        given += [f"of={of}"] if named else []
        if self.where is not None:
            given.append(f"where={self.where.text(of)}")
        return f"tm.{self.verb}({', '.join(given)})"


@attrs.frozen
class Record:
    """A class of entities, which may have maintained fields, or an aggregate of one."""

    name: str
    table: str
    fields: tuple[Field, ...]
    partition: Template
    row: Template
    indexes: tuple[Index, ...] = ()
    of: str | None = None
    where: Condition | None = None
    measures: Mapping[str, Measure] = {}
    """Of an aggregate, or of maintained fields, by field."""
    over: str | None = None
    """What maintained fields are over."""
    rule: Rule | None = None

    @property
    def own(self) -> tuple[Field, ...]:
        """The fields that are written."""
        return tuple(field for field in self.fields if field.name not in self.measures)

    def has_ended(self, row: Mapping[str, Any]) -> bool:
        """Return whether an entity has ended by the time at which the clock of a search stands still."""
        times = [row[field.name] for field in self.own if field.expires]
        return any(time is not None and time <= NOW for time in times)

    @property
    def bare(self) -> Record:
        """The class without what is maintained."""
        return attrs.evolve(self, fields=self.own, indexes=(), measures={}, timed=False)

    timed: bool = False
    """Whether questions speak of when its entities were written."""
    options: bool = False
    """Whether its entities are written with elements of lists, patches and what is inserted where it is missing."""
    lines: tuple[str, ...] = ()
    """More of the class body, which no question speaks of."""
    stored_type: str | None = None
    """What other programs find in each of its rows."""
    lent: tuple[int, bool, int] | None = None
    """How many of its fields, whether its key, and how many of its indexes a base without a table lends it."""

    def field(self, name: str) -> Field:
        if name == WRITTEN:
            return Field(WRITTEN, MOMENT, pool=MOMENT.pool)
        return {field.name: field for field in self.fields}[name]

    def operand(self, slot: str) -> Operand:
        """Return what a template calls so; of a list, an element."""
        name, _, step = slot.rstrip("]").replace("[", ".").partition(".")
        kind = self.field(name).kind
        return Operand(name, kind.parts[step] if step else kind.element or kind, step)

    @property
    def operands(self) -> list[Operand]:
        times = [Operand(WRITTEN, MOMENT)] * 3 if self.timed else []  # (so often)
        return operands({field.name: field.kind for field in self.fields}) + times

    @property
    def key_fields(self) -> set[str]:
        return {slot.field for slot in slots_of(self.partition, self.row)}

    def source(self) -> str:
        base = "tm.Entity" if self.of is None else f"tm.Aggregate, of={self.of}"
        base = base if self.lent is None else f"{self.name}Base"
        where = "" if self.where is None else f", where=lambda p: {self.where.text('p')}"
        where += "" if self.stored_type is None else f', type="{self.stored_type}"'
        fields = []
        for field in sorted(self.fields, key=lambda one: one.default):
            if (of := self.of or self.over) is not None and field.name in self.measures:
                fields.append(f"{field.source()} = {self.measures[field.name].source(of, named=self.of is None)}")
            else:
                fields.append(field.source())
        key = [f"    key = tm.Key(partition={_template_text(self.partition)}, row={_template_text(self.row)})"]
        indexes = [index.source() for index in self.indexes]
        lines = [f'class {self.name}({base}, table="{self.table}"{where}):']
        if self.lent is not None:
            count, lends_key, index_count = self.lent
            lent = [*fields[:count], *(key if lends_key else []), *indexes[:index_count]]
            lines = [f"class {base}(tm.Entity):", *(lent or ["    ..."]), "", *lines]
            fields, indexes = fields[count:], indexes[index_count:]
            key = [] if lends_key else key
        lines += [*fields, *key, *indexes, *self.lines, *([] if fields or key else ["    ..."])]
        return "\n".join(lines if self.rule is None else [*lines, self.rule.source()])


@attrs.frozen
class Model:
    records: tuple[Record, ...]
    variant: str = ""
    """Of which its classes are: the text behind the name of each."""

    def record(self, name: str) -> Record:
        return {record.name: record for record in self.records}[name]

    @property
    def entities(self) -> list[Record]:
        return [record for record in self.records if record.of is None]

    @property
    def bare(self) -> Model:
        """The classes of entities without what is maintained."""
        return attrs.evolve(self, records=tuple(record.bare for record in self.entities))

    def source(self) -> str:
        """Return the source of the classes."""
        variants = [f'{one.name} = {one.name}.variant("{self.variant}")' for one in self.records if self.variant]
        return "\n\n".join([record.source() for record in self.records] + ["\n".join(variants)] * bool(variants))


def compiled(source: str, names: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Run the source of a model, with some more names, and return the namespace with its classes."""
    found = {**namespace(), **names, "__name__": "model"}
    exec(compile(source, "<model>", "exec", dont_inherit=True), found)
    return found
