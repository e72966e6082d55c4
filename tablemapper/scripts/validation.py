"""The faults of a script: its steps must turn the old classes into the new ones, with one step for each field.

The steps are applied to the old forms. A store must be able to take over the differences that are left between the
results and the new forms, by the rules of `evolution`. Each other difference is a fault, which tells the step that it
needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from ..entities.aggregates import Aggregate
from ..entities.declaration import abstract_declaration, declaration_of
from ..entities.entity import Entity, Record
from ..entities.fields import FieldModel
from ..entities.index import IndexCall
from ..errors import InvalidModel, did_you_mean, shown
from ..evolution.evolution import form_changes
from ..evolution.renames import with_properties, with_source, with_table
from ..expressions.tree import Attr
from ..schema.forms import FieldForm, ModelForm
from ..schema.model import Model, Schema, compile_schema, model_of
from .plan import affected_classes
from .script import Script
from .steps import AnyStep, Convert, Drop, Fill, Join, Rekey, Rename, RenameClass, Resolve, Rewrite

__all__ = ["script_faults"]

_CALLS: dict[type, tuple[str, ...]] = {
    Rename: ("rename", "old", "new"), RenameClass: ("rename_class", "old", "new"), Rekey: ("rekey", "old", "new"),
    Convert: ("convert", "old", "new"), Fill: ("fill", "new"), Rewrite: ("rewrite", "old"), Join: ("join", "a", "b"),
    Resolve: ("resolve", "index"), Drop: ("drop", "what"),
}  # fmt: skip
"""How a script calls for each step: the method, and the attributes of the step that are its arguments."""


def script_faults(script: Script, *, unwritten: bool = False) -> list[str]:
    """Return everything that is wrong with a script; ``unwritten``: functions may be missing."""
    faults: list[str] = []
    old, new = (_shape(side, classes, faults) for side, classes in (("old", script.old), ("new", script.new)))
    if old is None or new is None:
        return faults
    for step in script.steps:
        faults += [f"{_text(step, script)}: {fault}" for fault in _step_faults(step, script)]
    faults += [] if unwritten else _placeholders(script)
    if not faults:
        faults += _twice(script)
    if not faults:
        faults += _Steps(script, old, new).faults()
    return faults


def _shape(side: str, classes: Sequence[Any], faults: list[str]) -> Schema | None:
    if not classes:
        return Schema(())
    try:
        return compile_schema(list(classes))
    except InvalidModel as error:
        faults += [f"{side}=: {fault}" for fault in error.faults]
        return None


# ---------------------------------------------------------------------------------------------- each step alone


def _step_faults(step: AnyStep, script: Script) -> Iterator[str]:
    """Yield the arguments of a step that have the wrong kind, or stand in the other shape."""
    match step:
        case Rename():
            if (yield from _fields(step, script)):
                old, new = _field_model(step.old), _field_model(step.new)
                if _stored_type(step.old) != _stored_type(step.new):
                    yield (
                        f"{step.old!r} is {_typed(old)} and {step.new!r} is {_typed(new)}; m.convert gives a field "
                        "another type, and another name"
                    )
        case Convert():
            yield from _fields(step, script)
            if not (callable(step.with_) or isinstance(step.with_, Mapping) or step.with_ is ...):
                yield f"expected a function, or a dict of values, got {shown(step.with_)}"
            yield from _callables(back=step.back)
        case Fill():
            yield from _field("new", step.new, script)
            yield from _callables(with_=step.with_)
        case RenameClass() | Rekey():
            yield from _class("old", step.old, script)
            yield from _class("new", step.new, script)
        case Rewrite():
            yield from _class("old", step.old, script, Entity)
            for cls in step.into:
                yield from _class("new", cls, script, Entity)
            if not step.into:
                yield "into= is empty; m.drop removes a class"
            yield from _callables(with_=step.with_, back=step.back, combine=step.combine)
            if step.back is not None and step.combine is not None:
                yield "a combination cannot be reversed; leave out back="
        case Join():
            for cls in (step.a, step.b):
                yield from _class("old", cls, script, Entity)
            for cls in step.into:
                yield from _class("new", cls, script, Entity)
            if step.a is step.b:
                yield "give two classes"
            yield from _callables(with_=step.with_)
        case Resolve():
            if (yield from _index("new", step.index, script)) and not _unique(step.index):
                yield f"new.{step.index!r} is not unique, so it has no duplicates"
            yield from _callables(with_=step.with_)
        case Drop(what=what):
            if isinstance(what, Attr):
                yield from _field("old", what, script)
                if what.owner in script.old and issubclass(what.owner, Aggregate):
                    yield f"{what!r} is maintained; write m.drop(old.{what.owner.__name__}), and declare the aggregate again"
            elif isinstance(what, IndexCall):
                yield from _index("old", what, script)
            else:
                yield from _class("old", what, script)


def _callables(**functions: Any) -> Iterator[str]:
    for name, function in functions.items():
        if function is not None and function is not ... and not callable(function):
            yield f"{'' if name == 'with_' else f'{name}= '}expected a function, got {shown(function)}"


def _fields(step: Rename | Convert, script: Script) -> Any:
    first = yield from _field("old", step.old, script)
    second = yield from _field("new", step.new, script)
    return first and second


def _field(side: str, attr: Any, script: Script) -> Any:
    """Yield the fault of an argument that must be a field; return whether it is one."""
    if not isinstance(attr, Attr):
        yield f"expected a field, as in {side}.Product.price, got {shown(attr)}"
        return False
    if attr.path or attr.part:
        yield f"{attr!r} is a part of a field; convert all of it"
        return False
    if (yield from _class(side, attr.owner, script)) is False:
        return False
    if (side == "new" and issubclass(attr.owner, Aggregate)) or _field_model(attr).maintained:
        yield f"{attr!r} is maintained, and no step sets it; a new one is built when the store is opened"
        return False
    return True


def _class(side: str, cls: Any, script: Script, kind: type[Record] = Record) -> Any:
    """Yield the fault of an argument that must be a class; return whether it is one."""
    classes = script.old if side == "old" else script.new
    if not (isinstance(cls, type) and issubclass(cls, Record)):
        yield f"expected a class, as in {side}.Product, got {shown(cls)}"
    elif cls not in classes:
        name, names = cls.__name__, [other.__name__ for other in classes]
        if cls in (script.new if side == "old" else script.old):
            yield f"{name} is the one of the {'new' if side == 'old' else 'old'} shape; write {side}.{name}"
        else:
            hint = f"; there is another {name}, write {side}.{name}" if name in names else did_you_mean(name, names)
            yield f"{name} is not in {side}=[{', '.join(names)}]{hint}"
    elif not issubclass(cls, kind):
        yield f"{cls.__name__} is maintained; name the class of its entities"
    else:
        return True
    return False


def _index(side: str, index: Any, script: Script) -> Any:
    """Yield the fault of an argument that must be an index; return whether it is one."""
    if isinstance(index, IndexCall):
        return (yield from _class(side, index.entity, script))
    yield f"expected an index, as in {side}.Product.by_name, got {shown(index)}"
    return False


def _unique(index: IndexCall) -> bool:
    return any(declared.name == index.index and declared.unique for declared in declaration_of(index.entity).indexes)


def _field_model(attr: Attr[Any, Any]) -> FieldModel:
    return abstract_declaration(attr.owner).field(attr.name)


def _form(attr: Attr[Any, Any]) -> FieldForm:
    model: Model = model_of(attr.owner)  # type: ignore[arg-type]
    return model.form.fields[_field_model(attr).property]


def _stored_type(attr: Attr[Any, Any]) -> FieldForm:
    return replace(_form(attr), default=None, in_key=False)


def _typed(field: FieldModel) -> str:
    return f"{field.type.name}{' | None' if field.optional else ''}"


# ---------------------------------------------------------------------------------------------- steps together


def _text(step: AnyStep, script: Script) -> str:
    """Return a step as it stands in the script."""
    method, *arguments = _CALLS[type(step)]
    given = ", ".join([_named(getattr(step, name), script) for name in arguments])
    functions = ", …" if isinstance(step, Convert | Fill | Rewrite | Join | Resolve) else ""
    return f"m.{method}({given}{functions})"


def _named(what: Any, script: Script) -> str:
    cls = what.owner if isinstance(what, Attr) else what.entity if isinstance(what, IndexCall) else what
    side = "old." if cls in script.old else "new." if cls in script.new else ""
    return f"{side}{what.__name__ if isinstance(what, type) else shown(what)}"


def _placeholders(script: Script) -> Iterator[str]:
    for step in script.steps:
        if getattr(step, "with_", None) is ...:
            yield f"give {_text(step, script).replace('…', '...')} a function"


def _twice(script: Script) -> Iterator[str]:
    """Yield the fields and classes that have two steps."""
    seen: dict[Any, AnyStep] = {}
    for step in script.steps:
        for side, what in _subjects(step):
            key = (side, type(step) in (Rekey, RenameClass) and type(step), *_identity(what))
            if (first := seen.setdefault(key, step)) is not step:
                yield (
                    f"{side}.{what.__name__ if isinstance(what, type) else what} has two steps, {_text(first, script)} and "
                    f"{_text(step, script)}; leave one"
                )
    for step in script.steps:
        for side, what in _subjects(step):
            if isinstance(what, type) and isinstance(step, Rekey | RenameClass):
                whole = seen.get((side, False, what, ""))
                if whole is not None:
                    yield f"{_text(step, script)}: {_text(whole, script)} is of the same class; leave one"
            elif not isinstance(what, type):
                whole = seen.get((side, False, what.owner if isinstance(what, Attr) else what.entity, ""))
                if whole is not None:
                    yield f"{_text(step, script)}: {_text(whole, script)} is of the whole class; leave one"


def _subjects(step: AnyStep) -> Iterator[tuple[str, Any]]:
    match step:
        case Rename() | Convert() | RenameClass() | Rekey():
            yield "old", step.old
            yield "new", step.new
        case Fill():
            yield "new", step.new
        case Rewrite():
            yield "old", step.old
        case Join():
            yield "old", step.a
            yield "old", step.b
        case Resolve():
            yield "new", step.index
        case Drop():
            yield "old", step.what


def _identity(what: Any) -> tuple[Any, str]:
    if isinstance(what, Attr):
        return what.owner, what.name
    return (what.entity, what.index) if isinstance(what, IndexCall) else (what, "")


class _Steps:
    """The steps of a script, applied to the forms of its old shape."""

    def __init__(self, script: Script, old: Schema, new: Schema) -> None:
        self._script = script
        self._new = new
        self._copied = affected_classes(script, {model.name: model.form for model in old.models})
        self._forms = {model.name: model.form for model in old.models}
        self._targets = {model.name: model.form for model in new.models}
        self._filled: set[str] = set()
        """New classes that a step or a copy fills: they need not follow from an old form."""

    def faults(self) -> Iterator[str]:
        """Yield the differences between the shapes that no step bridges."""
        script = self._script
        names = {step.old.__name__: step.new.__name__ for step in self._of(RenameClass)}
        names |= {step.old.__name__: step.new.__name__ for step in self._of(Rekey)}
        yield from self._change_fields(names)
        ended = {step.what.__name__ for step in self._of(Drop) if isinstance(step.what, type)}
        for step in self._of(Rewrite, Join):
            ended |= {step.old.__name__} if isinstance(step, Rewrite) else {step.a.__name__, step.b.__name__}
            self._filled |= {cls.__name__ for cls in step.into}
        # (The aggregates of copied classes are computed anew, whatever they were.)
        self._filled |= {model.name for model in self._new.models if model.aggregate and model.name in self._copied}
        if script.steps:
            named = names.keys() | ended | self._targets.keys()
            for name in [name for name in self._forms if name not in named]:
                yield f"{name} is in old=[…] and not in new=[…]: m.drop(old.{name}), or m.rename_class(old.{name}, …)?"
                ended.add(name)
        self._forms = {name: form for name, form in self._forms.items() if name not in ended}
        self._rename_classes(names)
        for step in self._of(Rekey):
            yield from self._rekey(step)
        results = {name: form for name, form in self._forms.items() if name not in self._filled}
        schema = Schema(tuple([model for model in self._new.models if model.name not in self._filled]))
        for change in form_changes(results, schema):
            if change.stops:
                yield f"{change}{f': {change.code}?' if change.code else ''}"

    def _of(self, *kinds: type) -> list[Any]:
        return [step for step in self._script.steps if isinstance(step, kinds)]

    def _change_fields(self, names: Mapping[str, str]) -> Iterator[str]:
        """Apply the steps of fields and indexes; yield those between classes that no step says are the same."""
        for step in self._script.steps:
            match step:
                case Rename() | Convert():
                    before, after = step.old.owner.__name__, step.new.owner.__name__
                    if names.get(before, before) != after:
                        yield (
                            f"{_text(step, self._script)}: the classes are not the same; m.rename_class(old.{before}, "
                            f"new.{after}) says that they are, and m.rewrite makes entities of one from another"
                        )
                        continue
                    self._rename_property(before, _field_model(step.old).property, _field_model(step.new).property)
                    if isinstance(step, Convert):
                        self._set_field(before, step.new)
                case Drop(what=Attr() as attr):
                    change = partial(_without, property=_field_model(attr).property)
                    self._change(attr.owner.__name__, change)
                case Drop(what=IndexCall(entity=entity, index=index)):
                    self._change(entity.__name__, partial(_without_index, index=index))
        backwards = {new: old for old, new in names.items()}
        for step in self._of(Fill):
            name: str = step.new.owner.__name__
            self._set_field(backwards.get(name) or name, step.new)

    def _change(self, name: str, change: Callable[[ModelForm], ModelForm]) -> None:
        if name in self._forms:
            self._forms[name] = change(self._forms[name])

    def _rename_property(self, name: str, old: str, new: str) -> None:
        if old != new:
            self._change(name, lambda form: with_properties(form, {old: new}))
            for other, form in self._forms.items():
                if form.source == name:
                    self._forms[other] = with_source(form, name, {old: new})

    def _set_field(self, name: str, attr: Attr[Any, Any]) -> None:
        """Give a field the type that it has in the new shape, where the key does not hold it."""
        property, form = _field_model(attr).property, _form(attr)

        def change(old: ModelForm) -> ModelForm:
            in_key = old.fields[property].in_key if property in old.fields else form.in_key
            return replace(old, fields=old.fields | {property: replace(form, in_key=in_key)})

        self._change(name, change)

    def _rename_classes(self, names: Mapping[str, str]) -> None:
        forms = {}
        for name, form in self._forms.items():
            if (source := form.source) is not None:
                form = with_source(form, names.get(source, source), {})
            forms[names.get(name, name)] = form
        for step in self._of(RenameClass):
            forms[step.new.__name__] = with_table(forms[step.new.__name__], declaration_of(step.new).table)
        self._forms = forms

    def _rekey(self, step: Rekey) -> Iterator[str]:
        name = step.new.__name__
        old, new = self._forms[name], self._targets[name]
        needed = (new.partition.fields | new.row.fields) - old.fields.keys()
        for property in sorted(needed):
            yield (
                f"{_text(step, self._script)}: the new key needs {property}, which old.{step.old.__name__} does not have; "
                "m.rewrite makes entities with it"
            )
        fields = {
            property: replace(field, in_key=new.fields[property].in_key) if property in new.fields else field
            for property, field in old.fields.items()
        }
        fields |= {property: new.fields[property] for property in needed}
        self._forms[name] = replace(old, partition=new.partition, row=new.row, type=new.type, fields=fields)


def _without(form: ModelForm, property: str) -> ModelForm:
    """Return the form of a class without a property, and without the indexes that hold it."""
    return replace(
        form,
        fields={name: field for name, field in form.fields.items() if name != property},
        indexes={name: index for name, index in form.indexes.items() if property not in index.fields},
    )


def _without_index(form: ModelForm, index: str) -> ModelForm:
    return replace(form, indexes={name: other for name, other in form.indexes.items() if name != index})
