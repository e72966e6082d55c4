"""The arguments of steps: what is wrong with one, which must be a field, a class, an index or a function of a shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ..entities.aggregates import Aggregate
from ..entities.declaration import abstract_declaration, declaration_of
from ..entities.entity import Record
from ..entities.fields import FieldModel
from ..entities.index import IndexCall
from ..errors import did_you_mean, safe_repr
from ..expressions.tree import Attr
from ..schema.model import Model, model_of
from ..schema.specs import FieldSpec


class ScriptModels(Protocol):
    """Both shapes of a script, and its steps."""

    @property
    def old(self) -> tuple[type[Record], ...]: ...
    @property
    def new(self) -> tuple[type[Record], ...]: ...
    @property
    def steps(self) -> Sequence[Any]: ...
    @property
    def undoes(self) -> bool: ...


def argument_text(argument: Any, shapes: ScriptModels) -> str:
    """Return an argument as it stands in a script."""
    cls = (
        argument.owner
        if isinstance(argument, Attr)
        else argument.entity
        if isinstance(argument, IndexCall)
        else argument
    )
    side = "old." if cls in shapes.old else "new." if cls in shapes.new else ""
    return f"{side}{argument.__name__ if isinstance(argument, type) else safe_repr(argument)}"


def function_faults(**functions: Any) -> Iterator[str]:
    for name, function in functions.items():
        if function is not None and function is not ... and not callable(function):
            yield f"{'' if name == 'with_' else f'{name}= '}expected a function, got {safe_repr(function)}"


def field_faults(side: str, attr: Any, shapes: ScriptModels) -> Any:
    """Yield the fault of an argument that must be a field; return whether it is one."""
    if not isinstance(attr, Attr):
        yield f"expected a field, as in {side}.Product.price, got {safe_repr(attr)}"
        return False
    if attr.path or attr.part:
        yield f"{attr!r} is a part of a field; convert all of it"
        return False
    if (yield from class_faults(side, attr.owner, shapes)) is False:
        return False
    if (side == "new" and issubclass(attr.owner, Aggregate)) or field_of(attr).maintained:
        yield f"{attr!r} is maintained, and no step sets it; a new one is built when the store is opened"
        return False
    return True


def class_faults(side: str, cls: Any, shapes: ScriptModels, kind: type[Record] = Record) -> Any:
    """Yield the fault of an argument that must be a class; return whether it is one."""
    classes = shapes.old if side == "old" else shapes.new
    if not (isinstance(cls, type) and issubclass(cls, Record)):
        yield f"expected a class, as in {side}.Product, got {safe_repr(cls)}"
    elif cls not in classes:
        name, names = cls.__name__, [candidate.__name__ for candidate in classes]
        if cls in (shapes.new if side == "old" else shapes.old):
            yield f"{name} is the one of the {'new' if side == 'old' else 'old'} shape; write {side}.{name}"
        else:
            hint = f"; there is another {name}, write {side}.{name}" if name in names else did_you_mean(name, names)
            yield f"{name} is not in {side}=[{', '.join(names)}]{hint}"
    elif not issubclass(cls, kind):
        yield f"{cls.__name__} is maintained; name the class of its entities"
    else:
        return True
    return False


def index_faults(side: str, index: Any, shapes: ScriptModels) -> Any:
    """Yield the fault of an argument that must be an index; return whether it is one."""
    if isinstance(index, IndexCall):
        return (yield from class_faults(side, index.entity, shapes))
    yield f"expected an index, as in {side}.Product.by_name, got {safe_repr(index)}"
    return False


def is_unique(index: IndexCall) -> bool:
    return any(
        declaration.name == index.index and declaration.unique for declaration in declaration_of(index.entity).indexes
    )


def field_of(attr: Attr[Any, Any]) -> FieldModel:
    return abstract_declaration(attr.owner).field(attr.name)


def form_of(attr: Attr[Any, Any]) -> FieldSpec:
    model: Model = model_of(attr.owner)
    return model.form.fields[field_of(attr).property]


def type_name(field: FieldModel) -> str:
    return f"{field.type.name}{' | None' if field.optional else ''}"
