"""JSON from outside, read as values: what is wrong with it is told with paths, and nothing in it is passed over."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from ..codegen import Names, compile_functions
from ..datetime_types import builtin_time
from ..errors import TableMapperError, did_you_mean, safe_repr
from ..values.hooks import HOOK_FAULTS
from ..values.nested import fault_of, structure
from ..values.precision import TIMES, cut_text, may_be_too_fine
from ..values.scalars import ValueFault, ValueType, unexpected

_EXACT = 2**53  # a float is each int up to that
_LONGEST = 16 << 20
_decode_texts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, Any]).decode
"""Characters of a text: those of an entity of 1 MiB, all escaped, are three times as many, and it may be indented."""


class JsonReader:
    """Reads the JSON form of one type, wherever it comes from.

    It takes more than the canonical text: any form of a time that RFC 3339 allows, a number for a Decimal.

    Args:
        annotation: the type as it was declared.
        kind: the same, compiled.
    """

    def __init__(self, annotation: Any, kind: ValueType) -> None:
        self._kind = kind
        if kind.own is not None:
            annotation = kind.own.scalar | None
        self._type = annotation | str if kind.kind is float else annotation  # as text a float can be infinite
        self._info = inspect.type_info(annotation)
        self._decoder = msgspec.json.Decoder(self._type, dec_hook=structure)

    def decode(self, text: msgspec.Raw) -> Any:
        """Return the value that a JSON text stands for; raise `ValueFault` if it stands for none."""
        try:
            if may_be_too_fine(text):
                text = _cut(self._info, text)
            return self._finish(self._decoder.decode(text))
        except HOOK_FAULTS as error:
            raise _fault(error) from None

    def convert(self, plain: Any) -> Any:
        """Return the value that stands for itself, or that builtins stand for; raise `ValueFault` if there is none."""
        try:
            return self._kind.check(plain)
        except ValueFault as first:
            try:
                cut = _cut_times(self._info, plain)
                return self._finish(msgspec.convert(cut, self._type, dec_hook=structure))
            except HOOK_FAULTS as error:
                fault = _fault(error)
                raise (first if fault.problem.startswith("expected") and not fault.path else fault) from None

    def source(self, variable: str, names: Names) -> list[str]:
        """Return statements that make a value of a variable's plain one; or raise anything, or leave what is none."""
        kind, is_member = self._kind.kind, self._kind.enum is not None
        if kind is float:
            test, value = f"is int and {-_EXACT} <= {variable} <= {_EXACT}", f"float({variable})"
            return [f"if {variable}.__class__ {test}: {variable} = {value}"]
        if kind is object:
            return [f"if {variable} is not None: {variable} = {names.name('exactly', self._exactly)}({variable})"]
        if kind in (str, int, bool) and not is_member:
            return []
        test = "in (str, int)" if is_member else "is str"
        return [f"if {variable}.__class__ {test}: {variable} = {names.name('read', self._from_text)}({variable})"]

    def _from_text(self, text: Any) -> Any:
        text = cut_text(text) if self._kind.kind in TIMES else text
        return self._kind.check(msgspec.convert(text, self._type, dec_hook=structure))

    def _exactly(self, plain: Any) -> Any:
        value = self.convert(plain)
        for fault in self.losses(plain):
            raise fault
        return value

    def _finish(self, value: Any) -> Any:
        if self._kind.kind is float and value.__class__ is str:
            try:
                if math.isinf(value := float(value)):
                    return value
            except ValueError:
                pass
            raise unexpected("float", value)
        own_type = self._kind.own
        return value if own_type is None or value is None else own_type.load(value)

    def losses(self, plain: Any) -> Iterator[ValueFault]:
        """Yield what a value would lose: members inside that its type does not know, and digits that no float has."""
        return _losses(self._info, plain, "")


def _fault(error: Exception) -> ValueFault:
    if isinstance(error, ValueFault):
        return error
    if isinstance(error, RecursionError):
        return ValueFault("nested too deep")
    return (
        fault_of(error) if isinstance(error, msgspec.MsgspecError) else ValueFault(f"{type(error).__name__}: {error}")
    )


def _losses(info: Any, plain: Any, path: str) -> Iterator[ValueFault]:
    info = _described(info, plain)
    if info.__class__ is inspect.FloatType and plain.__class__ is int and abs(plain) > _EXACT and not _is_float(plain):
        yield ValueFault(f"the int {safe_repr(plain)} is not exact as a float: the nearest float differs", path)
    for name, step, kind, value in _children(info, plain):
        if kind is not None:
            yield from _losses(kind, value, path + step)
        elif name != getattr(info, "tag_field", None):
            types = [field.encode_name for field in info.fields]
            yield ValueFault(f"no such field (fields: {', '.join(types)}){did_you_mean(name, types)}", path + step)


def _alternatives(info: Any) -> tuple[Any, ...]:
    """Return the types that values of a type can be of."""
    while isinstance(info, inspect.Metadata):
        info = info.type
    return info.types if isinstance(info, inspect.UnionType) else (info,)


def _described(info: Any, plain: Any) -> Any:
    """Return the type that a dict or a list is of; None if it is not told."""
    alternatives = _alternatives(info)
    if len(alternatives) > 1:
        alternatives = tuple([alternative for alternative in alternatives if _describes(alternative, plain)])
    return alternatives[0] if len(alternatives) == 1 else None


def _children(info: Any, plain: Any) -> Iterator[tuple[Any, str, Any, Any]]:
    """Yield what is in a dict or a list: where, as a path, too, its type, and its value; the type is None if none is known."""
    if isinstance(plain, dict) and hasattr(info, "value_type"):
        yield from [(name, f".{name}", info.value_type, value) for name, value in plain.items()]
    elif isinstance(plain, dict) and hasattr(info, "fields"):
        types = {field.encode_name: field.type for field in info.fields}
        yield from [(name, f".{name}", types.get(name), value) for name, value in plain.items()]
    elif isinstance(plain, list) and (hasattr(info, "item_type") or hasattr(info, "item_types")):
        items = info.item_types if hasattr(info, "item_types") else [info.item_type] * len(plain)
        pairs = enumerate(zip(items, plain, strict=False))
        yield from [(at, f"[{at}]", item, value) for at, (item, value) in pairs]


def _is_float(number: int) -> bool:
    """Return whether an int is a float, or the shortest text of one: JavaScript writes 2**60 as 1152921504606847000."""
    try:
        nearest = float(number)
    except OverflowError:
        return True  # (which is refused as too large)
    return number in (nearest, Decimal(repr(nearest)))


def _describes(info: Any, plain: Any) -> bool:
    """Return whether a type of a union may be that of a value."""
    if isinstance(plain, int):
        return isinstance(info, inspect.FloatType)
    if isinstance(plain, dict):
        tag = getattr(info, "tag", None)
        if tag is not None:
            return plain.get(info.tag_field) == tag  # type: ignore[no-any-return]
        return hasattr(info, "value_type") or hasattr(info, "fields")
    return isinstance(plain, list) and (hasattr(info, "item_type") or hasattr(info, "item_types"))


# -- times that are too fine ------------------------------------------------------------------------------------------


_encode = msgspec.json.Encoder(decimal_format="number").encode


def _cut(info: Any, text: msgspec.Raw) -> msgspec.Raw:
    """Return JSON without what is finer than a microsecond in times; a text that only looks like one is left alone."""
    plain = json.loads(bytes(text), parse_float=Decimal)  # (as a float it could be another number)
    return msgspec.Raw(_encode(_cut_times(info, plain)))


def _cut_times(info: Any, plain: Any) -> Any:
    """Return a value of a type with its times cut, wherever they stand in it."""
    if plain.__class__ is str:
        alternatives = _alternatives(info)
        is_text = any(isinstance(alternative, inspect.StrType) for alternative in alternatives)
        return cut_text(plain) if not is_text and any(map(_is_time, alternatives)) else plain
    children = _children(_described(info, plain), plain)
    cut = {at: value if kind is None else _cut_times(kind, value) for at, _, kind, value in children}
    if isinstance(plain, list):
        return [*cut.values(), *plain[len(cut) :]]
    return cut or plain


def _is_time(info: Any) -> bool:
    kind = builtin_time(info.cls) if isinstance(info, inspect.CustomType) else None
    return kind in TIMES or isinstance(info, inspect.DateTimeType | inspect.TimeType | inspect.TimeDeltaType)


# -- a JSON object ----------------------------------------------------------------------------------------------------


class _Doubled(dict[str, Any]):
    """A JSON object with members of the same name."""

    names: tuple[str, ...]


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    doubled = _Doubled(members)
    doubled.names = tuple(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    return doubled


def parse_object(text: bytes | str) -> tuple[dict[str, msgspec.Raw], dict[str, Any], list[str]]:
    """Return the members of a JSON object as texts, the same as builtins, and the members that are given twice.

    Raises:
        ValueFault: it is none.
    """
    if not isinstance(text, bytes | bytearray | memoryview | str):
        raise unexpected("JSON, as bytes or str", text)
    try:
        if len(text) > _LONGEST:
            raise ValueFault(f"{len(text)} characters of JSON are too many for one entity, which has at most 1 MiB")
        text = text if isinstance(text, str) else str(text, "utf-8")
        texts = _decode_texts(text)
        plain = json.loads(text, object_pairs_hook=_members)
    except msgspec.ValidationError as error:
        raise fault_of(error) from None
    except RecursionError:
        raise ValueFault("nested too deep") from None
    except (ValueError, msgspec.DecodeError) as error:
        raise ValueFault(f"{safe_repr(text)} is not JSON: {error}") from None
    return texts, plain, [str(fault) for fault in _doubled(plain, "")]


def _doubled(plain: Any, path: str) -> Iterator[ValueFault]:
    if isinstance(plain, _Doubled):
        for name in plain.names:
            yield ValueFault("it occurs twice", f"{path}.{name}".lstrip("."))
    members: Any = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    for step, value in members:
        yield from _doubled(value, f"{path}[{step}]" if isinstance(plain, list) else f"{path}.{step}".lstrip("."))


# -- members that are in order ----------------------------------------------------------------------------------------


UNFIT = (TableMapperError, *HOOK_FAULTS)
"""What is raised over members that are not in order: they are read in full then, and what is wrong with them is told."""
_SHORT = 1 << 20  # characters


class Member(NamedTuple):
    """A member of a JSON object, as a class reads it."""

    name: str
    reader: JsonReader
    empty: Callable[[], Any] | None
    """What the class takes if it is missing; None: it must be there."""
    keyword: str = ""
    """The argument of the class, if that is taken by its name only."""
    ignored: bool = False


def members_reader(cls: type[Any], members: Sequence[Member]) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that makes an object of members that are all in order; else it returns None, or raises."""
    names, arguments, by_name = Names(Cls=cls), list[str](), list[str]()
    lines = [f"n = len(m) - {sum(entry.empty is None for entry in members)}"]
    for at, (member, reader, empty, keyword, ignored) in enumerate(members):
        v, name = f"v{at}", repr(member)
        if ignored:
            lines.append(f"n -= {name} in m")
            continue
        (by_name if keyword else arguments).append(f"{keyword}={v}" if keyword else v)
        lines.append(f"{v} = m[{name}]" if empty is None else f"if {name} in m: {v} = m[{name}]; n -= 1")
        if empty is not None:
            lines.append(f"else: {v} = {names.name('empty', empty)}()")
        lines += reader.source(v, names)
    lines += ["if n: return None", f"return Cls({', '.join([*arguments, *by_name])})"]
    source = "\n".join(["def read(m):", *[f"    {line}" for line in lines]])
    return compile_functions(f"{cls.__name__} members", source, names)["read"]


def flat_members(text: bytes | str) -> dict[str, Any] | None:
    """Return the members of a JSON object without others inside; None, or anything is raised, if it may be another one.

    A member that comes twice has quotes more than those of the names and the texts that are read.
    """
    if len(text) > _SHORT:
        return None
    members = _decode_members(text)
    kinds = list(map(type, members.values()))
    quotes = text.count('"') if isinstance(text, str) else text.count(b'"')
    is_flat = not kinds.count(dict) and not kinds.count(list) and quotes == 2 * (len(members) + kinds.count(str))
    return members if is_flat else None
