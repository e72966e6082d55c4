"""The schemas by which pydantic reads, writes and documents an entity. pydantic itself is never imported."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from ..errors import InvalidEntity
from .declaration import declaration_of
from .json import from_dict, json_schema, to_dict


def core_schema(cls: Any) -> dict[str, Any]:
    """Return how pydantic reads and writes entities of a class.

    It passes one that is an entity already, and makes one of anything else by `from_dict`.
    """
    declaration = declaration_of(cls)

    def validate(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        try:
            return from_dict(cls, value)
        except InvalidEntity as error:
            raise _located(error, value) from None

    return {
        "type": "function-before",
        "function": {"type": "no-info", "function": validate},
        "schema": {"type": "any"},
        "ref": f"{cls.__module__}.{cls.__qualname__}:{id(cls)}",
        "metadata": {"entity": declaration.name},
        "serialization": {
            "type": "function-plain",
            "function": to_dict,
            "when_used": "json",
            "return_schema": {"type": "any"},
        },
    }


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


def document(cls: Any, schema: Any, handler: Any) -> Any:
    """Return the JSON schema of a class, as pydantic and FastAPI document it: with nested classes where they stand."""
    reference = handler(schema)
    own_schema = json_schema(cls)
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
