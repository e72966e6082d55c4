"""The schemas by which pydantic reads, writes and documents an entity. pydantic itself is never imported."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..entities.declaration import declaration_of
from ..entities.entity import Record
from ..errors import InvalidEntity
from .json import from_dict, json_schema, to_dict


def core_schema(cls: Any, suffix: str, read: Callable[[Any], Any]) -> dict[str, Any]:
    """Return how pydantic reads what belongs to a class of entities: it passes what a function returns.

    Args:
        suffix: what is behind the name of the class in the name of the schema.
    """
    name = declaration_of(cls).name

    def validate(value: Any) -> Any:
        try:
            return read(value)
        except InvalidEntity as error:
            raise _located(error, value) from None

    return {
        "type": "function-before",
        "function": {"type": "no-info", "function": validate},
        "schema": {"type": "any"},
        "ref": f"{cls.__module__}.{cls.__qualname__}{suffix}:{id(cls)}",
        "metadata": {"entity": f"{name}{suffix}"},
    }


def _entity_schema(cls: Any, _source: Any, _handler: Any) -> Any:
    """Return how pydantic reads and writes entities of a class; one that is an entity already passes."""
    write = {"type": "function-plain", "function": to_dict, "when_used": "json", "return_schema": {"type": "any"}}
    schema = core_schema(cls, "", lambda value: value if isinstance(value, cls) else from_dict(cls, value))
    return schema | {"serialization": write}


def _located(error: InvalidEntity, value: Any) -> Exception:
    """Return an error of pydantic, with a line and a place for each fault."""
    pydantic = import_module("pydantic_core")
    lines = []
    for fault in error.faults:
        path, _, problem = fault.rpartition(": ") if ": " not in fault else fault.partition(": ")
        steps = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
        place = tuple(steps) if problem and re.fullmatch(r"[\w@.\[\]-]+", path) else ()
        message = {"fault": problem if place else fault}
        kind = pydantic.PydanticCustomError("entity", "{fault}", message)
        lines.append({"type": kind, "loc": place, "input": value})
    located: Exception = pydantic.ValidationError.from_exception_data(error.subject, lines)
    return located


def document(own_schema: dict[str, Any], schema: Any, handler: Any) -> Any:
    """Return a JSON schema as pydantic and FastAPI document it: with nested classes where they stand."""
    reference = handler(schema)
    definitions = own_schema.pop("$defs", {})
    del own_schema["$schema"]
    target = handler.resolve_ref_schema(reference)
    target.update(_inline(own_schema, definitions, ()))
    return reference


def _inline(schema: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_inline(item, definitions, inside) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        if name in inside:  # it holds itself
            return {"title": name, **siblings}
        return {**_inline(definitions[name], definitions, (*inside, name)), **siblings}
    return {key: _inline(value, definitions, inside) for key, value in schema.items()}


for _name, _function in {
    "__get_pydantic_core_schema__": _entity_schema,
    "__get_pydantic_json_schema__": lambda cls, schema, handler: document(json_schema(cls), schema, handler),
}.items():
    type.__setattr__(Record, _name, classmethod(_function))
