"""The source of what is generated for a class: constructor, ``__setattr__``, the function behind ``Product.key``."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import attrs
import msgspec

from ..codegen import Names
from ..errors import InvalidEntity
from ..values.scalars import ValueFault
from .declaration import Declaration, check_type, check_value, checked_on_write, located
from .fields import FieldModel

_Normaliser: TypeAlias = Callable[[tuple[Any, ...]], list[Any]]
_RESERVED = frozenset(
    {
        *dir(builtins),  "datetime", "Raw", "Cls", "set_class", "KeyOf", "new",
        "check_key", "validate", "normalise", "normalise_key", "partition", "row",
    }
)  # fmt: skip
"""What generated constructors and key functions refer to; a field may be called so, too."""


def constructor_source(declaration: Declaration, names: Names) -> Iterator[str]:
    fields = [f.name for f in declaration.parameters]
    is_plain = _RESERVED.isdisjoint(fields)  # (else all stand under names that no field can have)
    variables = {name: name if is_plain else f"_{name}_" for name in fields}
    attributes = {a.name: a for a in attrs.fields(declaration.cls)}
    yield from _init_source(declaration, variables, names, validated=any(a.validator for a in attributes.values()))
    for at, f in enumerate(declaration.fields):
        yield from _setter_source(declaration, at, f, attributes[f.name], names)
    yield f"SETTERS = {{{', '.join(f'{f.name!r}: set_{at}' for at, f in enumerate(declaration.fields))}}}"
    yield "def __setattr__(self, name, value):"
    yield "    setter = SETTERS.get(name)"
    yield "    if setter is None: set_other(self, name, value)"
    yield "    else: setter(self, value)"
    yield from _key_source(declaration, {name: variables[name] for name in declaration.arguments}, names)
    yield "def key_of(self):"
    yield "    try: row = self._row"
    yield "    except AttributeError: row = None"
    yield "    if row is not None: return new(KeyOf, (Cls, row[0], row[1]))"
    yield f"    return key({', '.join(['Cls', *(f'self.{name}' for name in declaration.arguments)])})"


def _init_source(
    declaration: Declaration, variables: dict[str, str], names: Names, *, validated: bool
) -> Iterator[str]:
    positional, by_name, prologue, tests, assign = list[str](), list[str](), list[str](), list[str](), list[str]()
    missing = names.name("missing", _FACTORY)
    for f in declaration.parameters:
        parameter, variable = f.name, variables[f.name]
        if f.factory is not None:
            parameter += f"={missing}"
            prologue.append(f"    if {variable} is {missing}: {variable} = {names.name('factory', f.factory)}()")
        elif f.measure is not None:
            parameter += "=None"
        elif f.default is not attrs.NOTHING:
            parameter += f"={names.name('default', f.default)}"
        (by_name if f.kw_only else positional).append(parameter)
        tests.append(_test(f, variable, names))
        assign.append(f"    self.{f.name} = {variable}")
    assign += [f"    self.{f.name} = {names.name('empty', f.default)}" for f in declaration.fields if f.maintained]
    values = ", ".join(variables.values())
    yield f"def __init__({', '.join(['self', *positional, *(['*', *by_name] if by_name else [])])}):"
    if any(name != variable for name, variable in variables.items()):
        yield f"    _init(self, {', '.join(variables)})"
        yield f"def _init(self, {values}):"
    yield from prologue
    yield f"    if not ({' and '.join(tests) or 'True'}):"
    yield f"        ({values},) = normalise(({values},))"
    yield "    set_class(self, Raw)"
    yield from assign
    yield "    self._row = None"
    yield "    self.__class__ = Cls"
    if validated:
        yield "    validate(self)"
    if declaration.has_rule:
        yield "    self.__attrs_post_init__()"


def _setter_source(declaration: Declaration, at: int, f: FieldModel, attribute: Any, names: Names) -> Iterator[str]:
    if f.read_only:
        yield f"def set_{at}(self, value): refuse_value(self, {f.name!r})"
        return
    yield f"def set_{at}(self, value):"
    if f.name in declaration.key_fields:
        yield "    try:"
        yield f"        if self._row is not None and self.{f.name} != value: read_only(self, {f.name!r})"
        yield "    except AttributeError: pass"
    yield f"    if not ({_test(f, 'value', names)}): value = {names.name('check', _checker(declaration, f))}(value)"
    if attribute.validator is not None:
        yield "    if not validators_disabled():"
        yield f"        {names.name('validator', attribute.validator)}(self, {names.name('attribute', attribute)}, value)"
    yield f"    {names.name('slot', declaration.cls.__dict__[f.name].__set__)}(self, value)"


def on_write_source(declaration: Declaration, names: Names) -> Iterator[str]:
    """Yield source that sets the fields of an entity ``e`` that each write sets."""
    for f in declaration.set_on_write:
        check = names.name("check", partial(checked_on_write, declaration, f))
        yield f"v = {names.name('on_write', f.on_write)}()"
        yield f"if not ({_test(f, 'v', names)}): v = {check}(v)"
        yield f"{names.name('slot', declaration.cls.__dict__[f.name].__set__)}(e, v)"


def _key_source(declaration: Declaration, plain: dict[str, str], names: Names) -> Iterator[str]:
    fast = [declaration.field(name).type.fast_source(variable, names) for name, variable in plain.items()]
    value_list = ", ".join(plain.values())
    yield f"def key({', '.join(['_cls', '/', *plain])}):"
    if any(name != variable for name, variable in plain.items()):
        yield f"    return _key({', '.join(['_cls', *plain])})"
        yield f"def _key({', '.join(['_cls', *plain.values()])}):"
    if plain:
        yield f"    if not ({' and '.join(fast)}): ({value_list},) = normalise_key(({value_list},))"
    for variable, template in zip(("partition", "row"), declaration.templates, strict=True):
        yield f"    {variable} = {template.encode_source(plain, names)}"
        yield f"    if len({variable}) > 256: check_key({variable}, what={declaration.name + ' ' + variable + ' key'!r})"
    yield "    return new(KeyOf, (_cls, partition, row))"


def _test(f: FieldModel, variable: str, names: Names) -> str:
    """Return source that is true only of values that a field keeps as they are."""
    test = f.type.fast_source(variable, names)
    test = test if f.constraint is None else f"{test} and {f.constraint.source_for(variable, names)}"
    return f"({variable} is None or {test})" if f.optional or f.measure is not None else test


def normaliser(declaration: Declaration) -> _Normaliser:
    return _normaliser(declaration.name, declaration.parameters, check_value, partial(_fault, declaration))


def key_normaliser(declaration: Declaration) -> _Normaliser:
    fields = [declaration.field(name) for name in declaration.arguments]
    return _normaliser(f"{declaration.name}.key", fields, check_type, lambda f, _, error: f"{f.name}: {error}")


def _normaliser(
    label: str, fields: Sequence[FieldModel], check: Callable[..., Any], fault: Callable[..., str]
) -> _Normaliser:
    def normalise(values: tuple[Any, ...]) -> list[Any]:
        faults, checked = [], []
        for f, value in zip(fields, values, strict=True):
            try:
                checked.append(check(f, value))
            except ValueFault as error:
                faults.append(fault(f, value, error))
        if faults:
            raise InvalidEntity(label, faults)
        return checked

    return normalise


def _fault(declaration: Declaration, f: FieldModel, value: object, error: ValueError) -> str:
    return f"{located(f.name, error)}{_json_mend(declaration, f, value, str(error))}"


def _json_mend(declaration: Declaration, f: FieldModel, value: object, fault: str) -> str:
    """Return what to write where a text stands for a value as JSON has it, if the fault names nothing."""
    if value.__class__ is not str or f.type.kind in (str, object) or "; use " in fault:
        return ""
    try:
        msgspec.convert(value, f.type.kind)
    except (msgspec.MsgspecError, ValueError, TypeError):  # (a lone surrogate is no text of UTF-8)
        return ""
    return f"; tm.from_dict({declaration.name}, …) reads values as JSON has them"


def _checker(declaration: Declaration, f: FieldModel) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        try:
            return check_value(f, value)
        except ValueFault as error:
            raise InvalidEntity(f"{declaration.name}.{f.name}", [str(error)]) from None

    return check


class _Factory:
    """The default of a parameter that a factory fills."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()
