"""Classes that are opened in a store that is open already."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..engines.optional_protocols import ExtendsSchema
from ..engines.protocol import Engine
from ..entities.aggregates import kept_field
from ..entities.entity import Record
from ..errors import InvalidModel, InvalidTransaction
from ..schema.model import compile_schema

_extending = threading.Lock()


def extend(engine: Engine, models: Sequence[type[Record]], follow: Callable[[], None]) -> bool:
    """Open classes in an engine; return whether some of them were not open. Those that were dropped since are left out.

    Args:
        engine: that is open.
        models: the classes.
        follow: takes them over from the engine, before another thread opens more.

    Raises:
        InvalidModel: they do not fit together with the others, or these are those of the catalogue.
        SchemaMismatch: the store holds something else.
    """
    if not isinstance(engine, ExtendsSchema):
        raise InvalidTransaction(f"{engine!r} takes no more classes; open the store again, with all of them")
    with _extending:
        schema = engine.declared()
        if schema is None:
            raise InvalidModel("use", ["the store has the classes of its catalogue; open it with models= to add some"])
        classes = [model.cls for model in schema.models if kept_field(model.name) is None]
        new = [cls for cls in models if cls not in classes]
        if new:
            engine.extend(compile_schema([*classes, *new]))
            follow()
        return bool(new)
