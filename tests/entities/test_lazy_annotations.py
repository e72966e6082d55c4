"""Annotations that are evaluated when they are asked for, as Python 3.14 keeps those of a class body."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from enum import IntEnum
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, ClassVar, ForwardRef

import pytest

import tablemapper as tm
from tablemapper import type_aliases
from tablemapper.entities import class_body

Annotate = Callable[[Any], dict[str, Any]]


class Format(IntEnum):
    VALUE = 1
    VALUE_WITH_FAKE_GLOBALS = 2
    FORWARDREF = 3
    STRING = 4


def call_annotate_function(annotate: FunctionType, format: Format, *, owner: Any = None) -> dict[str, Any]:
    assert format is Format.FORWARDREF, "a name that is not there yet would end the class statement"
    names = dict(annotate.__globals__)
    while True:
        try:
            found: dict[str, Any] = FunctionType(annotate.__code__, names)(Format.VALUE)
        except NameError as error:
            assert error.name not in names
            names[error.name] = ForwardRef(error.name)
        else:
            return found


@pytest.fixture(autouse=True)
def _annotationlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.14, stand in for what it brings; there, take its own."""
    if sys.version_info < (3, 14):
        module = ModuleType("annotationlib")
        vars(module).update(
            Format=Format,
            get_annotate_from_class_namespace=lambda names: names.get("__annotate_func__"),
            call_annotate_function=call_annotate_function,
        )
        monkeypatch.setitem(sys.modules, "annotationlib", module)
        for module in (class_body, type_aliases):
            monkeypatch.setattr(module, "sys", SimpleNamespace(version_info=(3, 14), _getframe=sys._getframe))


def entity(annotations: str, **content: Any) -> Any:
    """Execute a class statement with annotations as Python 3.14 leaves them in the body: behind a function."""
    source = f"""
        def annotate(format):
            if format > 2:
                raise NotImplementedError
            return {annotations}
        """
    names: dict[str, Any] = {"tm": tm, "ClassVar": ClassVar}
    exec(textwrap.dedent(source), names)
    names = {"__module__": __name__, "__qualname__": "Hero", "__annotate_func__": names["annotate"], **content}
    return type(tm.Entity)("Hero", (tm.Entity,), {**names, "key": tm.Key(partition="{name}")}, table="Heroes")


def test_fields_are_read_from_lazy_annotations() -> None:
    hero = entity(
        '{"name": tm.Field[str], "age": tm.Field[int | None], "limit": ClassVar[int]}',
        age=tm.field(default=None),
        limit=3,
    )
    assert repr(hero("Ann", 3)) == "Hero(name='Ann', age=3)"
    assert (hero("Bob").age, hero.limit) == (None, 3)
    with pytest.raises(tm.InvalidEntity, match="age"):
        hero("Ann", "three")


def test_a_body_without_annotations_has_no_fields() -> None:
    with pytest.raises(tm.InvalidModel, match='"name"|name'):
        type(tm.Entity)(
            "Hero",
            (tm.Entity,),
            {"__module__": __name__, "__qualname__": "Hero", "key": tm.Key(partition="{name}")},
            table="Heroes",
        )


def test_a_name_that_is_not_there_is_one_clear_fault() -> None:
    with pytest.raises(tm.InvalidModel) as caught:
        entity('{"name": tm.Field[str], "age": tm.Field[Decimel]}')
    assert len(caught.value.faults) == 1
    assert "age: its annotation cannot be read: name 'Decimel' is not defined" in caught.value.faults[0]


def test_a_name_that_is_near_to_no_type_gets_no_suggestion() -> None:
    with pytest.raises(tm.InvalidModel) as caught:
        entity('{"name": tm.Field[str], "age": tm.Field[Nope]}')
    assert "did you mean" not in caught.value.faults[0]
    with pytest.raises(tm.InvalidModel, match='did you mean "float"'):
        entity('{"name": tm.Field[str], "age": tm.Field[flot]}')


def test_what_is_no_field_is_refused() -> None:
    with pytest.raises(tm.InvalidModel, match=r"age: annotate it tm\.Field\[int\]"):
        entity('{"name": tm.Field[str], "age": int}')


def test_a_base_that_is_no_entity_can_not_declare_fields() -> None:
    base = type("Named", (), {"__annotate_func__": lambda format: {"name": tm.Field[str]}, "__module__": __name__})
    with pytest.raises(tm.InvalidModel, match="Named declares name, but is not an entity"):
        type(tm.Entity)("Hero", (base, tm.Entity), {"__module__": __name__, "__qualname__": "Hero"}, table="Heroes")
