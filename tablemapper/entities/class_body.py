"""A class body, read: its fields, its key and indexes, and what was meant for another library, with what to write here.

An annotation is a field if it is ``tm.Field[…]``, wherever it was evaluated. Anything else but ``ClassVar`` is a fault,
as are fields that a base declares without being an entity. Nothing that looks like a declaration is left unread.
"""

from __future__ import annotations

import builtins
import dataclasses
import sys
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC
from enum import Enum
from types import FrameType
from typing import Annotated, Any, ClassVar, Generic, get_args, get_origin, get_type_hints

import attrs

from ..datetime_types import Builtin
from ..errors import did_you_mean, safe_repr
from ..expressions.foreign_names import CLASSES, DECORATED, ELSEWHERE, INDEX_OPTIONS, OPTIONS
from ..limits import MAX_NAME, check_property_name, utf16_units
from ..pieces import MAX_PIECES, piece_name
from ..type_aliases import annotations_of
from ..uuids import is_time_of
from ..values.constraint_aliases import package_of, with_meta
from ..values.constraints import constraint_of, known_to_msgspec
from ..values.nested import value_type
from ..values.precision import with_precision
from ..values.scalars import SCALARS, ValueType
from .declaration import AbstractDeclaration, Options
from .fields import FIELD, Field, FieldModel, FieldOptions, Measure
from .index import Index
from .key import Key

_METHODS = frozenset({"key", "mro", "replace", "self", "variant"})
_GENERATED = frozenset({"__init__", "__new__", "__setattr__", "__delattr__", "__getstate__", "__setstate__"})
_DECLARATION_TYPES = (FieldOptions, Measure, Key, Index)
_FAULTY = object()


def read_bases(name: str, bases: tuple[Any, ...], faults: list[str]) -> None:
    """Refuse bases that no entity can have."""
    for base in bases:
        if base is Generic:
            faults.append(
                "it cannot be generic, as a field has one type; write a class for each type, and let them take what "
                "they share from a class without table="
            )
        elif (declaration := base.__dict__.get("__declaration__")) is not None and declaration.table is not None:
            faults.append(f"{base.__name__} has a table; derive both from a class without table= instead")
    plain_bases = {cls: None for base in bases for cls in base.__mro__ if "__declaration__" not in cls.__dict__}
    for base in plain_bases:
        if field_names := list(dict.fromkeys(_lent(base))):
            faults.append(
                f"{base.__name__} declares {', '.join(field_names)}, but is not an entity, so {name} does not inherit them; make "
                f"it one without a table: class {base.__name__}(tm.Entity):"
            )


def _lent(base: type) -> Iterator[str]:
    """Yield what a class that is no entity declares as if it were one."""
    if attrs.has(base):
        yield from (field.name for field in attrs.fields(base))
    if dataclasses.is_dataclass(base):
        yield from (field.name for field in dataclasses.fields(base))
    for name, annotation in annotations_of(base.__dict__).items():
        if "Field[" in annotation if isinstance(annotation, str) else FIELD in _metadata(annotation):
            yield name
    yield from (name for name, value in base.__dict__.items() if isinstance(value, _DECLARATION_TYPES))


def plain_annotations(bases: tuple[Any, ...], fields: Collection[str]) -> Iterator[str]:
    """Yield the faults of classes that are no entities, and annotate what looks like a field: they give none."""
    for base in dict.fromkeys(cls for b in bases for cls in b.__mro__ if "__declaration__" not in cls.__dict__):
        if base.__module__.partition(".")[0] in ("tablemapper", "typing", "typing_extensions", "abc", "builtins"):
            continue
        if any(_lent(base)):
            continue  # (it is told already)
        for name, annotation in annotations_of(base.__dict__).items():
            constant = "ClassVar" in (annotation if isinstance(annotation, str) else repr(annotation))
            if not constant and name[0] != "_" and name not in fields and not any(hasattr(b, name) for b in bases):
                yield (
                    f"{base.__name__}.{name}: an annotation of a class that is no entity gives no field; write {name}: "
                    f"tm.Field[…] in class {base.__name__}(tm.Entity), or ClassVar if it is none"
                )


def _metadata(annotation: Any) -> tuple[Any, ...]:
    return annotation.__metadata__ if get_origin(annotation) is Annotated else ()


def calling_frame() -> FrameType:
    """Return the frame of the class statement that is executed."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame


def read_body(
    name: str, body: dict[str, Any], bases: tuple[Any, ...], options: Options, faults: list[str]
) -> tuple[dict[str, FieldModel], dict[str, Any], set[str]]:
    """Take the fields, and the keys and indexes as declared, out of a class body; faults are added to the list.

    The set has the names of fields that have a fault themselves, and so are not among the fields.
    """
    faults += _misplaced(name, body)
    specifiers = {k: body.pop(k) for k, v in list(body.items()) if isinstance(v, FieldOptions | Measure)}
    declarations = {k: body.pop(k) for k, v in list(body.items()) if isinstance(v, Key | Index)}
    faults += [f"{k} {fault}" for k, value in declarations.items() for fault in _shape(value)]
    inherited = [
        declaration
        for base in reversed(bases)
        if isinstance(declaration := base.__dict__.get("__declaration__"), AbstractDeclaration)
    ]
    fields = {model.name: model for declaration in inherited for model in declaration.fields}
    own_names = {*body, *annotations_of(body), *declarations}
    lent = {k: v for declaration in inherited for k, v in declaration.lent.items() if k not in own_names}
    declarations = lent | declarations
    annotations = dict(_evaluated(name, body, faults))
    for field_name, annotation in annotations.items():
        option = specifiers.pop(field_name, None)
        if annotation is _FAULTY:
            continue
        if (model := _field(field_name, annotation, option, faults, aggregate=options.of is not None)) is not None:
            fields.pop(field_name, None)
            fields[field_name] = model
    for clash in sorted(fields.keys() & body.keys()):
        value = body.pop(clash)
        message = "it is a field already; give the other member of the class body another name"
        default = f"write a default as tm.field(default=…), not as = {safe_repr(value)}"
        faults.append(f"{clash}: {default if clash in annotations else message}")
    ambiguous, generated = sorted(fields.keys() & declarations.keys()), sorted(_GENERATED & body.keys())
    faults += [f"{k}: it is a field already; give the index another name" for k in ambiguous]
    faults += [f"{k} is generated, with all checks; write a classmethod beside it instead" for k in generated]
    bare = [k for k in specifiers if k not in annotations_of(body)]
    faults += [f'{k} = …: annotate it, as in "{k}: tm.Field[…] = …"' for k in bare]
    _check_fields(fields, faults)
    return fields, declarations, annotations.keys() - fields.keys()


def _misplaced(name: str, body: dict[str, Any]) -> Iterator[str]:
    """Yield what stands in a class body as what it is not; a declaration is taken out of a tuple, a type is left out."""
    for key, value in list(body.items()):
        if isinstance(value, tuple) and any(isinstance(item, _DECLARATION_TYPES) for item in value):
            yield f"{key}: a tuple is not a declaration; is there a comma after it?"
            body[key] = next(item for item in value if isinstance(item, _DECLARATION_TYPES))
            if isinstance(body[key], FieldOptions | Measure) and key not in annotations_of(body):
                del body[key]
        elif FIELD in _metadata(value):
            yield f'{key}: write a colon, "{key}: tm.Field[…]"'
            del body[key]
        elif package_of(value) and (kind := type(getattr(value, "decorator_info", None)).__name__) != "NoneType":
            mend = next((mend for name, mend in DECORATED.items() if kind.startswith(name)), "write a plain method")
            yield f"{key}: only pydantic would call it; {mend}"
        elif isinstance(value, _DECLARATION_TYPES) or (key in CLASSES and not isinstance(value, type)):
            continue
        elif key in ELSEWHERE:
            mend = ELSEWHERE[key].format(cls=name)
            yield mend if mend.startswith(key) else f"{key}: {mend}"


def _shape(declaration: Key[Any] | Index[Any]) -> Iterator[str]:
    """Yield what is no text, no tuple of texts or no tuple of names; it is left out of what is looked at further."""
    for part in ("partition", "row"):
        value = getattr(declaration, part)
        if not (isinstance(value, str) or (isinstance(value, tuple) and all(isinstance(v, str) for v in value))):
            yield f'{part}=: expected text such as "{{name}}", or a tuple of texts, got {safe_repr(value)}'
            setattr(declaration, part, "")
    if declaration.misplaced:
        yield f"{safe_repr(declaration.misplaced[0])}: name the argument, partition= or row="
    if not isinstance(declaration, Index):
        return
    for option in declaration.unknown:
        mend = INDEX_OPTIONS.get(option)
        options = ("partition", "row", "include", "where", "unique", "table")
        yield f"{option}= is not an option of an index{f'; {mend}' if mend else did_you_mean(option, options)}"
    include: Any = declaration.include
    names = isinstance(include, tuple | list) and all(isinstance(name, str) for name in include)
    if not names and not isinstance(include, str):
        yield f'include=: expected a tuple of field names, or "all", got {safe_repr(include)}'
        declaration.include = ()
    if not isinstance(declaration.table, str | None):
        yield f"table=: the name of a table is text, not {safe_repr(declaration.table)}"
        declaration.table = None
    if not isinstance(declaration.unique, bool):
        yield f"unique=: expected True or False, got {safe_repr(declaration.unique)}"


def _evaluated(name: str, body: dict[str, Any], faults: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the fields' annotations, evaluated where the class is written, without ``tm.Field``; or `_FAULTY`."""
    frame = calling_frame()
    nested_classes = {k: v for k, v in body.items() if isinstance(v, type)}
    for field_name, annotation in annotations_of(body).items():
        probe = type(name, (), {"__annotations__": {field_name: annotation}, "__module__": body["__module__"]})
        try:
            hints = get_type_hints(probe, frame.f_globals, {**frame.f_locals, **nested_classes}, include_extras=True)
        except Exception as error:  # evaluating a user's text may raise anything
            faults.append(f"{field_name}: {_unreadable(name, error, [*frame.f_locals, *frame.f_globals])}")
            yield field_name, _FAULTY
            continue
        hint = hints[field_name]
        if hint is ClassVar or get_origin(hint) is ClassVar:
            continue
        if FIELD in _metadata(hint):
            marks = tuple(item for item in hint.__metadata__ if item is not FIELD)
            yield field_name, Annotated[(hint.__origin__, *marks)] if marks else hint.__origin__
            continue
        body.pop(field_name, None)
        yield field_name, _FAULTY
        if hint is Field:
            faults.append(f"{field_name}: tm.Field of what? Write tm.Field[str], for example")
        elif field_name.startswith("_"):
            faults.append(f"{field_name}: annotate it ClassVar[…]; a field may not begin with an underscore")
        else:
            text = _readable(hint)
            faults.append(f"{field_name}: annotate it tm.Field[{text}], or ClassVar[{text}] if it is not a field")


def _unreadable(name: str, error: Exception, names: list[str]) -> str:
    """Return what to do about an annotation that cannot be evaluated."""
    if isinstance(error, NameError) and error.name == name:
        return (
            f"{name} is an entity, and cannot be inside another; keep the key's fields of the other one, and read it "
            f"with store[{name}.key(…)]"
        )
    hint = ""
    if isinstance(error, NameError) and error.name:
        types = [name for name, value in vars(builtins).items() if isinstance(value, type)]
        hint = did_you_mean(error.name, [*names, *types])
        hint = hint or "; an import under TYPE_CHECKING does not exist when the program runs"
    return f"its annotation cannot be read: {error}{hint}"


def _readable(annotation: Any) -> str:
    """Return an annotation as a user writes it, without ``tm.Field`` in it."""
    if FIELD in _metadata(annotation):
        return _readable(annotation.__origin__)
    args = get_args(annotation)
    if any(FIELD in _metadata(arg) for arg in args):
        return " | ".join(["None" if arg is type(None) else _readable(arg) for arg in args])
    return annotation.__name__ if isinstance(annotation, type) and not args else str(annotation)


def _field(
    name: str, annotation: Any, option: FieldOptions | Measure | None, faults: list[str], *, aggregate: bool
) -> FieldModel | None:
    if name.startswith("_"):
        faults.append(f'"{name}": a field may not begin with an underscore (msgspec would drop it silently)')
        return None
    if name in _METHODS:
        faults.append(f'"{name}" is taken; give the field another name, and field(name="{name}") for the property')
        return None
    measure = option if isinstance(option, Measure) else None
    settings = option if isinstance(option, FieldOptions) else FieldOptions(name=measure.name if measure else None)
    if measure is not None:
        faults += [f"{name}: {fault}" for fault in _place_faults(name, measure, aggregate=aggregate)]
    if aggregate and measure is None:
        faults.append(f"{name}: a field of an aggregate is a group_by(…), count(), sum(…), avg(…), min(…) or max(…)")
    faults += [f"{name}: {fault}" for fault in _option_faults(name, settings)]
    try:
        annotation = with_meta(annotation)
        kind, optional = value_type(annotation)
        kind = kind if settings.precision is None else with_precision(kind, settings.precision)
        constraint = constraint_of(annotation, kind)
    except ValueError as error:
        faults.append(f"{name}: {error}")
        return None
    default = settings.default
    if default is not attrs.NOTHING and default is not None:
        try:
            default = kind.check(default)
            if constraint is not None:
                constraint.check(default)
        except ValueError as error:
            faults.append(f"{name}: its default: {error}")
    if measure is not None and measure.of is not None:
        default = None if optional else kind.kind() if kind.summable else 0
    if constraint is not None and measure is not None:
        faults.append(f"{name}: the store computes the value, so it cannot have constraints")
    _check_default(name, default, kind, faults, optional=optional)
    if constraint is not None:
        annotation = known_to_msgspec(annotation, optional=optional)
    return FieldModel(
        name=name, property=settings.name if isinstance(settings.name, str) else name, type=kind, annotation=annotation,
        optional=optional, constraint=constraint, default=default, factory=settings.source, stored=settings.stored,
        kw_only=settings.by_name, validator=settings.validator, measure=measure, on_write=settings.on_write,
        expires=settings.expires is True, large=settings.large,
    )  # fmt: skip


def _check_default(name: str, default: Any, kind: ValueType, faults: list[str], *, optional: bool) -> None:
    if default is None and not optional:
        faults.append(f"{name}: its default is None, so its type must allow that: Field[… | None]")
    if kind.kind is object and default not in (attrs.NOTHING, None) and not _is_fixed(default):
        faults.append(
            f"{name}: a default is one value, or a tuple or frozenset of such; another one, which all entities would "
            "share, is given as factory="
        )
    if is_time_of(default, Builtin.datetime.now(UTC)):
        faults.append(f"{name}: its default is the time of now, which is evaluated once; give factory=")


def _is_fixed(value: object) -> bool:
    """Return whether a value of a nested type cannot be changed: a tuple or a frozenset of such, or one that is no container."""
    if isinstance(value, tuple | frozenset):
        return all(map(_is_fixed, value))
    return value is None or isinstance(value, (*SCALARS, Enum))


def _place_faults(name: str, measure: Measure, *, aggregate: bool) -> Iterator[str]:
    """Yield why a measure cannot stand in a class, an aggregate or an entity."""
    kind = measure.kind
    if kind == "group" and not aggregate:
        yield "group_by(…) belongs in an Aggregate, class …(tm.Aggregate, of=…)"
    elif aggregate and measure.of is not None:
        yield f"of= is for a field of an entity; the class statement of an aggregate says what {kind}(…) is over"
    elif not aggregate and measure.of is None:
        argument_text = "" if measure.attr is None else f"{measure.attr!r}, "
        yield (
            f"{kind}(…) belongs in an Aggregate, class …(tm.Aggregate, of=…), or names the class that it measures: "
            f"{name} = tm.{kind}({argument_text}of=…)"
        )


def _option_faults(name: str, settings: FieldOptions) -> Iterator[str]:
    """Yield what is wrong with the arguments of ``tm.field``, whatever the type of the field."""
    factory, validator = settings.factory, settings.validator
    if settings.default is not attrs.NOTHING and factory is not None:
        yield "give a default or a factory, not both"
    if factory is not None and not callable(factory):
        yield f"factory={safe_repr(factory)} cannot be called; give a function, as in factory=list"
    if (on_write := settings.on_write) is not None:
        if settings.default is not attrs.NOTHING or factory is not None or validator is not None:
            yield "on_write= gives the value; give no default, factory or validator"
        if not callable(on_write):
            yield f"on_write={safe_repr(on_write)} cannot be called; give a function, as in on_write=now"
    if not isinstance(settings.name, str | None):
        yield f"name={safe_repr(settings.name)}: the name of a property is text"
    if not isinstance(settings.expires, bool):
        yield f"expires=: expected True or False, got {safe_repr(settings.expires)}"
    if not isinstance(settings.large, bool | None):
        yield f"large=: expected True or False, got {safe_repr(settings.large)}"
    for function in validator if isinstance(validator, list | tuple) else [] if validator is None else [validator]:
        if not callable(function):
            yield f"validator={safe_repr(function)} cannot be called; give a function of (entity, attribute, value)"
    option_names = [field.name for field in attrs.fields(FieldOptions) if field.name != "unknown"]
    for option in settings.unknown:
        mend = OPTIONS.get(option, "").format(name)
        yield f"{option}= is not an option of a field{f'; {mend}' if mend else did_you_mean(option, option_names)}"


def _large_faults(model: FieldModel) -> Iterator[str]:
    """Yield why the values of a field cannot be larger than a property."""
    if not model.type.spillable or model.type.undeclared:
        yield f"{model.name}: large=True is for texts, bytes and nested values, not {model.type.name}"
    longest = piece_name(model.property, MAX_PIECES - 1)
    if (units := utf16_units(longest)) > MAX_NAME:
        most = MAX_NAME - units + utf16_units(model.property)
        yield f"{model.name}: large=True adds to the name of its property, which may have {most} characters then"


def _check_fields(fields: Mapping[str, FieldModel], faults: list[str]) -> None:
    seen: dict[str, str] = {}
    optional_before: str | None = None
    for model in fields.values():
        if (fault := check_property_name(model.property)) is not None:
            faults.append(f"{model.name}: {fault}")
        if model.property in seen:
            faults.append(f'{model.name}: the property "{model.property}" is that of {seen[model.property]} already')
        seen[model.property] = model.name
        if model.large:
            faults += _large_faults(model)
        if model.measure is not None or model.kw_only:
            continue
        if not model.required:
            optional_before = model.name
        elif optional_before is not None:
            faults.append(
                f"{model.name} has no default but stands after {optional_before}, which has one; move it up, or give "
                "it a default, or tm.field(kw_only=True)"
            )
    if len(extras := [f.name for f in fields.values() if f.type.undeclared]) > 1:
        faults.append(f"{' and '.join(extras)}: one Extra field is enough")
