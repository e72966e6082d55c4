"""Partial bodies: JSON that changes some fields of an entity, as assignments (a merge patch, RFC 7386)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, get_args

from ..entities.entity import Entity
from ..errors import InvalidEntity, InvalidModel
from ..expressions.tree import Assignment
from .json import ETAG, Body, fixed_fault, json_form, json_schema
from .pydantic import core_schema, document

E = TypeVar("E", bound=Entity)
E_contra = TypeVar("E_contra", contravariant=True)


class Patch(Generic[E_contra], tuple[Assignment[E_contra], ...]):
    """The assignments of a partial body, for ``merge`` and ``update``: ``store.merge(key, *patch)``.

    It is false if the body changes nothing. As an annotation, ``tm.Patch[Product]``, it is what pydantic and FastAPI
    read from the body of a request.
    """

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, _handler: Any) -> Any:
        owner = _class_of(source)
        return core_schema(owner, "Patch", lambda body: body if isinstance(body, cls) else patch(owner, body)) | {
            "metadata": {"patch of": owner}
        }

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        return document(json_schema(schema["metadata"]["patch of"], patch=True), schema, handler)


def _class_of(annotation: Any) -> Any:
    owners = get_args(annotation)
    if len(owners) != 1 or not isinstance(owners[0], type):
        raise InvalidModel("tm.Patch", ["as an annotation it names its class, as in tm.Patch[Product]"])
    return owners[0]


def patch(cls: type[E], body: bytes | str | Mapping[str, Any], /) -> Patch[E]:
    """Return the changes that a partial body asks for: each member sets its field, null removes an optional value.

    A nested object replaces the whole field; for less, assign a part: ``User.home.at(lambda home: home.city).set(…)``.
    Members that the class does not declare are set one by one, if it has an `Extra`. ::

        store.merge(Product.key(id), *tm.patch(Product, body), if_match=etag)

    Args:
        cls: a class of entities.
        body: a JSON object, or a dict with JSON's types, Python's values, or both, by the names of properties.

    Raises:
        InvalidEntity: it is no object, or a member is unknown, duplicate, wrong, or cannot be changed; every fault,
            with its path.
        InvalidModel: it is not a class with a table.
    """
    form, subject = json_form(cls), f"patch of {cls.__name__}"
    if form.declaration.of is not None:
        source = form.declaration.of.__name__
        raise InvalidEntity(subject, [f"it is maintained from {source}; write {source} entities instead"])
    document = Body(form, body) if isinstance(body, Mapping) else Body.parsed(form, body, subject)
    assignments: list[Assignment[E]] = []
    for name, f in form.fields.items():
        if name not in document.members:
            continue
        if (fault := fixed_fault(form, f)) is not None:
            document.faults.append(fault)
        elif document.members[name] is None and not f.optional:
            document.faults.append(f"{name}: {f.removal_fault}")
        else:
            assignments.append(getattr(cls, f.name).set(document.value(f)))
    if ETAG in document.members:
        document.faults.append(f"{ETAG}: a patch has no ETag; give it to the verb, as if_match=")
    undeclared, extra = document.undeclared()
    if document.faults:
        raise InvalidEntity(subject, document.faults)
    if form.extra is not None:
        properties = getattr(cls, form.extra.name)
        assignments += [properties[name].set(value) for name, value in extra.items()]
        assignments += [properties[name].remove() for name, value in undeclared.items() if value is None]
    return Patch(assignments)
