"""The properties of an entity that its class does not declare. Each keeps its type on Azure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import attrs
import msgspec

from ..datetime_types import Builtin
from ..errors import safe_repr
from ..limits import MAX_INT32, MIN_INT32, Edm, check_property_name
from .precision import cut_text
from .scalars import INT32, SCALARS, ValueFault, ValueType, unexpected


class Int32Value(int):
    """An int in an `Extra` that is an Int32 on Azure; a plain int there is an Int64."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Int32Value({int(self)})"


class Extra(dict[str, Any]):
    """The properties of an entity that its class does not declare: a dict of names and values of Azure's types.

    The types are str, bool, int, float, datetime, UUID and bytes. None is not kept. An int is an Int64; one that was
    read as an Int32 stays an Int32.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Extra({super().__repr__()})"


_TYPES: dict[type, ValueType] = {
    Int32Value: INT32,
    **{kind: SCALARS[kind] for kind in (str, bool, int, float, Builtin.datetime, UUID, bytes)},
}
_BY_EDM: dict[str, ValueType] = {form.edm: form for form in _TYPES.values()}


def _form_of(value: Any) -> ValueType | None:
    if isinstance(value, bool):
        return SCALARS[bool]
    return next((form for kind, form in _TYPES.items() if isinstance(value, kind)), None)


def _extra_parts(value: Any) -> tuple[Extra, dict[str, Any]]:
    """Return a normalised copy, and what stands for it in JSON: ``{name: [edm, value]}``."""
    if not isinstance(value, dict):
        raise unexpected("a dict of properties", value)
    copy, plain = Extra(), {}
    for name in sorted(value, key=str):
        if not isinstance(name, str):
            raise ValueFault(f"{safe_repr(name)} is not the name of a property, which is text")
        if (wrong := check_property_name(name)) is not None:
            raise ValueFault(wrong)
        if (item := value[name]) is None:
            continue  # (a null is not stored)
        form = _form_of(item)
        if form is None:
            raise unexpected(f"one of Azure's types ({', '.join(_BY_EDM)})", item, at=f".{name}")
        try:
            checked = form.check(item)
        except ValueFault as fault:
            raise ValueFault(fault.problem, f".{name}") from None
        copy[str(name)] = Int32Value(checked) if form is INT32 else checked
        plain[str(name)] = [form.edm, form.to_json(checked)]
    return copy, plain


def _load_extra(stored_form: Any) -> Extra:
    if stored_form.__class__ is not str:
        raise ValueFault(f"{safe_repr(stored_form)} is not the stored form of extra properties: it is no text")
    loaded = Extra()
    try:
        for name, (edm, plain) in _decode_any(stored_form).items():
            loaded[name] = _load_any((edm, plain))
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise ValueFault(f"{safe_repr(stored_form)} is not the stored form of extra properties: {error}") from None
    return loaded


def _load_any(form: Any) -> Any:
    edm, plain = form
    kind = _BY_EDM[edm]
    value = kind.undump(plain)
    return Int32Value(value) if kind is INT32 else value


def _store_extra(value: Any) -> str:
    return msgspec.json.encode(_extra_parts(value)[1]).decode()


_decode_any = msgspec.json.Decoder(dict[str, tuple[str, Any]]).decode
_decode_stored = msgspec.json.Decoder(dict[str, tuple[Edm, Any]]).decode


def undeclared_properties(stored_form: str) -> Iterator[tuple[str, Edm, Any]]:
    """Yield the properties of a stored form: name, EDM type, value. Bytes are bytes, others are as JSON has them.

    Raises:
        ValueError: it is the form of none.
    """
    for name, (edm, plain) in _decode_stored(stored_form).items():
        yield name, edm, SCALARS[bytes].from_json(plain) if edm == "Binary" else plain


_PLAIN_TYPES = ("Edm.String", "Edm.Boolean", "Edm.Int32", "Edm.Double")
_TYPE = "@odata.type"


def extra_members(extra: Any) -> dict[str, Any]:
    """Return undeclared properties as members of a JSON object.

    Where JSON does not show the type of one, it stands before it, as ``name@odata.type``.
    """
    members: dict[str, Any] = {}
    for name, (edm, plain) in _extra_parts(extra)[1].items():
        edm = f"Edm.{edm}"
        if edm not in _PLAIN_TYPES or (edm == "Edm.Double" and plain.__class__ is str):
            members[name + _TYPE] = edm
        members[name] = str(plain) if edm == "Edm.Int64" else plain
    return members


def read_members(members: Mapping[str, Any]) -> tuple[Extra, list[str]]:
    """Return the undeclared properties that members of a JSON object stand for, and all faults, each with its path."""
    extra, faults = Extra(), []
    for name, value in members.items():
        try:
            owner = name.removesuffix(_TYPE)
            if owner != name:
                if owner not in members:
                    raise ValueFault(f"it says the type of {safe_repr(owner)}, which is not there", name)
            elif (wrong := check_property_name(name)) is not None:
                raise ValueFault(wrong, name)
            elif value is not None:
                extra[name] = _read_member(members.get(name + _TYPE), value)
        except ValueFault as fault:
            faults.append(str(ValueFault(fault.problem, f"{name}{fault.path.removeprefix(name)}")))
    return extra, faults


def _read_member(edm: Any, value: Any) -> Any:
    """Return the value of a member, ``edm`` being the type that the JSON says it has."""
    if edm is None:
        form = _form_of(value)
        if form is SCALARS[int] and value.__class__ is int and MIN_INT32 <= value <= MAX_INT32:
            return Int32Value(value)  # as Azure reads a number
        return _check_any(value)
    form = _BY_EDM.get(str(edm).removeprefix("Edm."))
    if form is None:
        raise ValueFault(f"the type {safe_repr(edm)} is none of {', '.join(f'Edm.{name}' for name in _BY_EDM)}")
    if isinstance(value, str) and form.kind is not str:
        try:
            value = form.kind(value) if form.summable else msgspec.convert(cut_text(value), form.kind)
        except (ValueError, msgspec.ValidationError):
            raise unexpected(f"text of the type {edm}", value) from None
    checked = form.check(value)
    return Int32Value(checked) if form is INT32 else checked


def _check_any(value: Any) -> Any:
    form = _form_of(value)
    if form is None:
        raise unexpected(f"one of Azure's types ({', '.join(_BY_EDM)})", value)
    return form.check(value)


def _dump_any(value: Any) -> Any:
    form = _form_of(value)
    return None if form is None else [form.edm, form.to_json(value)]


ANY = ValueType(
    "any",
    object,
    "String",
    _check_any,
    _dump_any,
    _check_any,
    _dump_any,
    _load_any,
    sql_ordered=False,
    keyable=False,
    dynamic=True,
)
"""The type of an undeclared property: whatever it holds. Values of types that do not compare are not equal."""

TEXT = attrs.evolve(SCALARS[str], to_json=_dump_any, from_json=_load_any, sql_in_json=False)
"""The type of an undeclared property as far as it is a text: what an index can be made of."""


def indexed_as(kind: ValueType) -> ValueType:
    """Return the type of nested values as an index has them: of undeclared properties those that are texts."""
    return TEXT if kind.dynamic else kind


EXTRA = ValueType(
    "extra", object, "String", lambda value: _extra_parts(value)[0], _store_extra, _load_extra,
    lambda value: _extra_parts(value)[1], lambda plain: _load_extra(msgspec.json.encode(plain).decode()), writes="{store}({v})", reads="{load}({v})",
    encodes="{members}({v})", objects={"store": _store_extra, "load": _load_extra, "members": extra_members}, ordered=False, load_refuses=True, sql_ordered=False, keyable=False,
    spillable=True, undeclared=True, container=dict, member=lambda name: (ANY, f'."{name}"[1]'),
)  # fmt: skip
