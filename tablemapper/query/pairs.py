"""Entities read together with those that their fields name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Generic, TypeVar

from ..codegen import Names, compile_functions
from ..engines.ended import ended_by
from ..engines.protocol import Position
from ..entities.declaration import declaration_of
from ..entities.entity import Record
from ..errors import InvalidEntity, InvalidQuery, safe_repr
from ..execution.plan_reader import PlanReader
from ..expressions.python_source import attribute_source
from ..expressions.tree import Attr, ElementOfList
from ..schema.model import Model
from ..schema.rows import Row
from .results import Results

E = TypeVar("E")
R = TypeVar("R")
_TOGETHER = 256  # entities whose others are read at once


class Pairs(Results[tuple[E, R | None]], Generic[E, R]):
    """The results of a query, each with the entity of another class whose key it has; None if that is not there."""

    __slots__ = ("_plans", "_spec", "by", "model", "query")

    def __init__(self, query: Any, model: Model, by: tuple[Attr[Any, Any], ...]) -> None:
        self._plans = query._plans
        self._spec = query._spec
        self.query: Any = query
        self.model: Model = model
        self.by: tuple[Attr[Any, Any], ...] = by

    @property
    def _names(self) -> str:
        return f"{self.query._names}, {self.model.name}"

    def __repr__(self) -> str:
        return f"{self.query!r}.with_({self.model.name})"

    def first(self) -> tuple[E, R | None] | None:
        """Return the first pair, or None.

        Raises:
            ScanRefused: no key or index bounds the query.
            QueryStopped: it used up its budget.
        """
        return next(self._at_most(1), None)

    def _form(self) -> Any:
        return ["with", self.model.name, [attr.label for attr in self.by], self.query._form()]

    def _limited(self, limit: int | None) -> Iterator[tuple[E, R | None]]:
        pairs = iter(()) if limit == 0 else self._read(None, limit)
        return (pair for _, pair in (pairs if limit is None else islice(pairs, limit)))

    def _positioned(self, after: Position | None, limit: int) -> Iterator[tuple[Position, Any]]:
        return self._read(after, limit)

    def _read(self, after: Position | None, limit: int | None) -> Iterator[tuple[Position, Any]]:
        """Yield pairs with their positions: both entities of one state, where the engine has one."""
        run: PlanReader = self.query._placed_run(limit)
        model, values_of = self.model, _values(self.by)
        has_ended = ended_by(model, self._plans.moment()) or (lambda _: False)

        def read(state: Any) -> Iterator[list[tuple[Position, Any]]]:
            entities = run.positioned(after, limit, within=state)
            while block := list(islice(entities, _TOGETHER)):
                values = [values_of(entity) for _, entity in block]
                keys = {distinct: _key(model, distinct) for distinct in dict.fromkeys(values)}
                entities_by_key = self._entities_by_key(
                    [key for key in keys.values() if key is not None], has_ended, state
                )
                pairs = zip(block, values, strict=True)
                yield [(position, (entity, entities_by_key.get(keys[value]))) for (position, entity), value in pairs]

        return chain.from_iterable(self._plans.reads.in_one_state(read))

    def _entities_by_key(
        self, keys: Sequence[tuple[str, str]], has_ended: Callable[[Row], bool], state: Any
    ) -> dict[tuple[str, str] | None, Any]:
        """Return the entities with some keys, by key; what has ended is not there."""
        model = self.model
        rows = self._plans.engine.get_many([(model, *key) for key in keys], within=state) if keys else []
        return {
            key: model.build_one(row)
            for key, row in zip(keys, rows, strict=True)
            if row is not None and not has_ended(row)
        }


def _values(by: Sequence[Attr[Any, Any]]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that takes the values of fields out of an entity."""
    if not any(attr.path or attr.part for attr in by):  # (to compile it takes longer than most pages)
        fields = [attr.name for attr in by]
        return lambda entity: tuple([getattr(entity, field) for field in fields])
    names = Names()
    sources = [attribute_source(attr, f"e.{attr.name}", names) for attr in by]
    source = f"def values(e): return ({''.join(f'{source}, ' for source in sources)})"
    return compile_functions("the fields of a key", source, names)["values"]


def _key(model: Model, values: tuple[Any, ...]) -> tuple[str, str] | None:
    """Return the key of values; None if no entity has it."""
    if None in values:
        return None
    try:
        key = model.cls.key(*values)
    except InvalidEntity:  # no key can hold these values
        return None
    return key.partition, key.row


def pairs(query: Any, other: object, by: object) -> Pairs[Any, Any]:
    """Return the results of a query with entities of another class.

    Raises:
        InvalidQuery: it is no class of the store, or the fields are not its key.
    """
    owner: Model = query._spec.model
    schema = query._plans.engine.schema
    if not isinstance(other, type) or not issubclass(other, Record):
        raise InvalidQuery(f"with_: expected an entity class, got {safe_repr(other)}")
    if (model := schema.by_class.get(other)) is None:
        names = ", ".join(sorted(schema.by_name))
        raise InvalidQuery(f"with_: the store was not opened with {other.__name__} (models: {names})")
    attrs: tuple[Any, ...] = by if isinstance(by, tuple) else (by,)
    declaration = declaration_of(other)
    fields = [declaration.field(name) for name in declaration.arguments]
    if len(attrs) != len(fields) or not all(
        isinstance(attr, Attr)
        and not isinstance(attr, ElementOfList)
        and issubclass(owner.cls, attr.owner)
        and field.type.same_kind(attr.type)
        for attr, field in zip(attrs, fields, strict=True)
    ):
        key = ", ".join(f"{field.name}: {field.type.name}" for field in fields)
        raise InvalidQuery(f"with_: by= names the fields of {owner.name} that are the key of {model.name} ({key})")
    return Pairs(query, model, attrs)
