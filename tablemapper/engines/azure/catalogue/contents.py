"""The contents of an account, as far as the rules of evolution ask: tables are read only for what depends on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import msgspec

from ....catalogue.catalogue import Catalogue
from ....evolution.changes import StoredContents
from ....evolution.rules import key_templates
from ....keys.canonical import KeyTest
from ....keys.template import Template
from ....pieces import MAX_PIECES, piece_name
from ....schema.specs import ModelSpec
from ..reading.filters import visible
from ..tables.driver import Effects, read
from ..tables.entity_json import stored_value, with_joined_pieces
from ..tables.reserved_names import OURS, TYPE_NAME
from ..tables.service import PARTITION, ROW, Entity, EntityPage, ErrorResponse, QueryEntities, properties

Key: TypeAlias = tuple[str, str]


@attrs.frozen
class _Question:
    """A question for the rows of a class that are of a kind."""

    name: str
    """The class, by its name in the catalogue."""
    kind: str
    select: tuple[str, ...] = attrs.field(eq=False)
    """The properties that the test reads; none: all."""
    test: Callable[[Entity], bool] = attrs.field(eq=False)
    all_of_them: bool = False
    """Whether all rows are asked for, not only whether there is one."""


class AccountContents(StoredContents):
    """The rows of an account, as the rules of evolution ask for them.

    A question that was not looked up has the answer that the service may not give; `look` reads the tables, and the rules
    are asked once more. Others write meanwhile, as they may do afterwards, too.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._keys: dict[_Question, list[Key]] = {}
        self._questions: dict[_Question, None] = {}

    def dropped(self, name: str, form: ModelSpec) -> str | None:
        tombstone = self._catalogue.gone(name, form)
        return None if tombstone is None else str(tombstone)

    def holds_other(self, name: str, property: str, value: Any) -> bool:
        if self._catalogue.models[name].fields[property].type == "extra":
            ours = {stored_name for _, stored_name in self._table_properties(name)} | {TYPE_NAME}
            test = lambda row: any(key not in ours and not key.startswith(OURS) for key in properties(row))  # noqa: E731
            return self._there_is(_Question(name, f"undeclared beside {property}", (), test))
        stored_name = self._stored_name(name, property)

        def differs(entity: Entity) -> bool:
            return (value_held := stored_value(entity, stored_name)) is not None and value_held != value

        return self._there_is(_Question(name, f"{property} other than {value!r}", (stored_name,), differs))

    def holds_one_of(self, name: str, property: str, values: Sequence[Any]) -> bool:
        field, stored_name = self._catalogue.models[name].fields[property], self._stored_name(name, property)

        def holds(entity: Entity) -> bool:
            if field.in_key:  # (there is no property to look into)
                return True
            value = stored_value(with_joined_pieces(entity, entity), stored_name)
            if value is None or not field.type.startswith("list["):
                return value in values
            try:
                return any(element in values for element in msgspec.json.decode(value))
            except (TypeError, msgspec.DecodeError):  # (it is damaged, as a check says)
                return False

        count = MAX_PIECES if field.type.startswith("list[") else 1
        select = tuple([piece_name(stored_name, number) for number in range(count)])
        return self._there_is(_Question(name, f"{property} among {values!r}", select, holds))

    def undeclared(self, name: str, extra: str, property: str) -> Key | None:
        keys = self._answer(_Question(name, f"undeclared {property}", (property,), lambda entity: property in entity))
        return keys[0] if keys else None

    def within(self, name: str, partition: Template, row: Template) -> Sequence[Key]:
        def begins(entity: Entity) -> bool:
            return partition.matches_prefix(entity[PARTITION]) and row.matches_prefix(entity[ROW])

        kind = f"within {partition.text} {row.text}"
        return self._answer(_Question(name, kind, (), begins, all_of_them=True)) or ()

    def _there_is(self, question: _Question) -> bool:
        keys = self._answer(question)
        return keys is None or bool(keys)

    def _answer(self, question: _Question) -> list[Key] | None:
        """Return the keys of rows that a question is for; None if it was not looked up."""
        if question not in self._keys:
            self._questions[question] = None
        return self._keys.get(question)

    def _table_properties(self, name: str) -> Sequence[tuple[str, str]]:
        return self._catalogue.table_of(name).properties

    def _stored_name(self, name: str, property: str) -> str:
        return dict(self._table_properties(name)).get(property, property)

    def look(self, timeout: float) -> Effects[bool]:
        """Look up what was asked since; return whether that was anything."""
        questions, self._questions = list(self._questions), {}
        for question in questions:
            self._keys[question] = yield from self._find_keys(question, timeout)
        return bool(questions)

    def _find_keys(self, question: _Question, timeout: float) -> Effects[list[Key]]:
        select = (PARTITION, ROW, *question.select) if question.select else ()
        find = QueryEntities(self._catalogue.table_of(question.name).name, visible(), select)
        is_key = KeyTest(key_templates(self._catalogue.models[question.name])).has
        keys: list[Key] = []
        while True:
            try:
                page: EntityPage = yield from read(find, timeout)
            except ErrorResponse as refusal:
                if refusal.code != "TableNotFound":
                    raise
                return keys
            for entity in page.entities:
                if question.test(entity) and is_key(entity[PARTITION], entity[ROW]):
                    keys.append((entity[PARTITION], entity[ROW]))
                    if not question.all_of_them:
                        return keys
            if page.after is None:
                return keys
            find = attrs.evolve(find, after=page.after)
