"""Strategies of Hypothesis for entities and their keys: all that the constructor and the store accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import event, reject
from hypothesis import strategies as st

from ..entities.declaration import Declaration, check_value, declaration_of, located, read_only_fault
from ..entities.entity import Entity
from ..entities.fields import FieldModel
from ..entities.key import KeyOf
from ..errors import InvalidEntity, InvalidModel, TableMapperError, did_you_mean
from ..schema.maintenance import Maintenance, aggregate_maintenance, index_maintenance
from ..schema.model import Model, model_of
from .key_budget import aggregates_of, rooms_of
from .values import field_values

E = TypeVar("E", bound=Entity)
V = TypeVar("V")
M = TypeVar("M")


def entities(cls: type[E], /, **fields: Any) -> st.SearchStrategy[E]:
    """Draw entities of a class: all that its constructor and a store accept, extremes too.

    What ``__attrs_post_init__`` or a validator refuses is drawn again; if that is most of it, give the fields values.
    Aggregates and maintained fields whose classes are defined by now count, too: their keys hold what is drawn::

        @given(entities(Product, category="books", price=st.decimals(0, 100, places=2)))
        def test_a_product_comes_back(product): ...

    Args:
        cls: the class.
        fields: a strategy or a value for some of the fields.

    Raises:
        InvalidModel: it is no class of entities, or has no such field.
        InvalidEntity: a field cannot have the value that was given, or that its strategy draws.
    """
    declaration = _entity_declaration(cls)
    parameters = {field.name: field for field in declaration.parameters}
    faults = [read_only_fault(field) for field in declaration.maintained if field.name in fields]
    plain_names = set(fields) - {field.name for field in declaration.maintained}
    faults += [
        f'no field "{name}" (fields: {", ".join(parameters)}){did_you_mean(name, parameters)}'
        for name in sorted(plain_names - set(parameters))
    ]
    if faults:
        raise InvalidModel(f"entities({cls.__name__})", faults)
    rooms, properties = rooms_of(declaration), declaration.properties.values()
    required, optional = dict[str, st.SearchStrategy[Any]](), dict[str, st.SearchStrategy[Any]]()
    for name, field in parameters.items():
        if name in fields:
            required[name] = _field_strategy(cls, field, fields[name])
        else:
            (required if field.required else optional)[name] = field_values(field, rooms, properties)
    return _strategy_of("entities", cls, st.fixed_dictionaries(required, optional=optional), _built(cls))


def keys(cls: type[E], /) -> st.SearchStrategy[KeyOf[E]]:
    """Draw keys of a class: those that its entities can have.

    Raises:
        InvalidModel: it is no class of entities.
    """
    declaration = _entity_declaration(cls)
    rooms = rooms_of(declaration)
    values = st.tuples(*[field_values(declaration.field(name), rooms, ()) for name in declaration.arguments])
    key: Callable[..., KeyOf[E]] = cls.key  # type: ignore[attr-defined]

    def of(values: tuple[Any, ...]) -> KeyOf[E]:
        try:
            return key(*values)
        except InvalidEntity:
            reject()

    return _strategy_of("keys", cls, values, of)


def _strategy_of(
    name: str, cls: type[Any], values: st.SearchStrategy[V], make: Callable[[V], M]
) -> st.SearchStrategy[M]:
    """Return the strategy for what a function makes; Hypothesis shows it as it is, not as the call (as of `map`).

    The strategy itself is shown as ``entities(Product)``.
    """

    def composite(draw: st.DrawFn, cls: type[Any]) -> M:
        return make(draw(values))

    composite.__name__ = name
    return st.composite(composite)(cls)


def _entity_declaration(cls: Any) -> Declaration:
    declaration = declaration_of(cls)
    if declaration.of is not None:
        source = declaration.of.__name__
        raise InvalidModel(cls.__name__, [f"it is maintained from {source}; draw {source} entities, and insert them"])
    return declaration


def _field_strategy(cls: type[Any], field: FieldModel, value: Any) -> st.SearchStrategy[Any]:
    """Return the strategy of a field for which one was given, or a value."""

    def checked(value: Any) -> Any:
        try:
            check_value(field, value)
        except ValueError as error:
            raise InvalidEntity(f"entities({cls.__name__})", [located(field.name, error)]) from None
        return value

    return value.map(checked) if isinstance(value, st.SearchStrategy) else st.just(checked(value))


def _built(cls: type[E]) -> Callable[[dict[str, Any]], E]:
    model = model_of(cls)
    targets: list[Model] = [model_of(aggregate) for aggregate in aggregates_of(cls)]
    maintained = Maintenance(
        tuple([index_maintenance(model, index) for index in model.indexes]),
        tuple([aggregate_maintenance(model, target) for target in targets]),
        model,
    )

    def build(values: dict[str, Any]) -> E:
        try:
            entity = cls(**values)
        except Exception as error:  # what the class's own code refuses; it may raise anything
            event(f"{cls.__name__} refused: {type(error).__name__}")
            reject()
        try:
            _check_storable(model, maintained, entity)
        except TableMapperError as error:
            event(f"no store takes this {cls.__name__}: {type(error).__name__}")
            reject()
        return entity

    return build


def _check_storable(model: Model, maintained: Maintenance, entity: Any) -> None:
    row = model.to_row(entity)
    for index in maintained.indexes:
        index.rows((row,))
    for aggregate in maintained.aggregates:
        groups: dict[Any, Any] = {}
        aggregate.collect((row,), groups, 1)
        for group in groups:
            aggregate.key(group)
