"""Constraints as annotated_types and pydantic spell them: honoured as msgspec.Meta is, or refused with what to write."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NewType

import attrs
import pytest
from msgspec import Meta

import tablemapper as tm
from tablemapper.schema.model import model_of

annotated_types = pytest.importorskip("annotated_types", reason="annotated_types is not installed")
pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")
at, Field = annotated_types, pydantic.Field


def declared(annotation: Any) -> Any:
    class Thing(tm.Entity, table="Things"):
        """A thing."""

        a: tm.Field[str]
        n: tm.Field[annotation] = tm.field(kw_only=True)
        key = tm.Key[str](partition="{a}")

    return Thing


Amount = NewType("Amount", Annotated[int, at.Ge(0)])  # type: ignore[valid-newtype]
Plain = NewType("Plain", Annotated[int, Meta(ge=0)])  # type: ignore[valid-newtype]

SAME: list[tuple[Any, Any, Any, Any]] = [
    (Annotated[int, at.Ge(0)], Annotated[int, Meta(ge=0)], 0, -1),
    (Annotated[int, at.Gt(0)], Annotated[int, Meta(gt=0)], 1, 0),
    (Annotated[float, at.Le(1.5)], Annotated[float, Meta(le=1.5)], 1.5, 2.0),
    (Annotated[float, at.Lt(1.5)], Annotated[float, Meta(lt=1.5)], 1.0, 1.5),
    (Annotated[int, at.Interval(ge=0, lt=3)], Annotated[int, Meta(ge=0, lt=3)], 2, 3),
    (Annotated[int, at.MultipleOf(2)], Annotated[int, Meta(multiple_of=2)], 2, 3),
    (Annotated[str, at.MinLen(2)], Annotated[str, Meta(min_length=2)], "ab", "a"),
    (Annotated[str, at.MaxLen(2)], Annotated[str, Meta(max_length=2)], "ab", "abc"),
    (Annotated[bytes, at.Len(1, 2)], Annotated[bytes, Meta(min_length=1, max_length=2)], b"a", b""),
    (Annotated[list[str], at.Len(1, 1)], Annotated[list[str], Meta(min_length=1, max_length=1)], ["a"], []),
    (Annotated[int, at.Ge(0)] | None, Annotated[int, Meta(ge=0)] | None, None, -1),
    (Annotated[tm.Int32, at.Ge(0)], Annotated[tm.Int32, Meta(ge=0)], 1, -1),
    (Annotated[Decimal, at.Ge(Decimal("0.10"))], Annotated[Decimal, Meta(ge=0.1)], Decimal("0.1"), Decimal("0.09")),
    (Annotated[Decimal, at.Lt(Decimal(2))], Annotated[Decimal, Meta(lt=2)], Decimal("1.9"), Decimal(2)),
    (Amount, Plain, 0, -1),
    (list[Annotated[int, at.Ge(0)]], list[Annotated[int, Meta(ge=0)]], [0], [0, -1]),
    (dict[str, Amount], dict[str, Annotated[int, Meta(ge=0)]], {"a": 1}, {"a": -1}),
    (tuple[Annotated[str, at.MinLen(1)], ...], tuple[Annotated[str, Meta(min_length=1)], ...], ("a",), ("",)),
    (Annotated[int, Field(ge=0, lt=9)], Annotated[int, Meta(ge=0, lt=9)], 0, 9),
    (Annotated[str, Field(min_length=1, max_length=3)], Annotated[str, Meta(min_length=1, max_length=3)], "a", ""),
    (Annotated[str, Field(pattern="^a")], Annotated[str, Meta(pattern="^a")], "ab", "ba"),
    (Annotated[str, Field(pattern=re.compile("^a"))], Annotated[str, Meta(pattern="^a")], "ab", "ba"),
    (Annotated[int, Field(title="N", gt=0)], Annotated[int, Meta(title="N", gt=0)], 1, 0),
    (Annotated[Decimal, Field(gt=0)], Annotated[Decimal, Meta(gt=0)], Decimal(1), Decimal(0)),
    (Annotated[int, Field(strict=True, ge=0)], Annotated[int, Meta(ge=0)], 0, True),
    (pydantic.PositiveInt, Annotated[int, Meta(gt=0)], 1, 0),
    (pydantic.conint(ge=3), Annotated[int, Meta(ge=3)], 3, 2),
    (pydantic.constr(max_length=1), Annotated[str, Meta(max_length=1)], "a", "ab"),
    (
        Annotated[str, pydantic.StringConstraints(min_length=2, pattern="a")],
        Annotated[str, Meta(min_length=2, pattern="a")],
        "ab",
        "a",
    ),
    (Annotated[float, at.Unit("m"), at.Ge(0)], Annotated[float, Meta(ge=0)], 0.0, -1.0),
]  # fmt: skip


@pytest.mark.parametrize(("spelled", "plain", "right", "wrong"), SAME, ids=lambda value: str(value)[-60:])
def test_a_constraint_in_another_spelling_is_that_of_msgspec(spelled: Any, plain: Any, right: Any, wrong: Any) -> None:
    one, other = declared(spelled), declared(plain)
    assert one("a", n=right).n == other("a", n=right).n
    with pytest.raises(tm.InvalidEntity) as refused:
        one("a", n=wrong)
    with pytest.raises(tm.InvalidEntity) as expected:
        other("a", n=wrong)
    assert str(refused.value) == str(expected.value)
    assert tm.json_schema(one) == tm.json_schema(other)
    assert model_of(one).to_json() == model_of(other).to_json()


REFUSED: list[tuple[Any, str]] = [
    (Annotated[str, at.Predicate(str.islower)], r"n: annotated_types: Predicate is not read; write tm.field\(validator="),
    (at.LowerCase[str], "annotated_types: Predicate is not read"),
    (Annotated[date, at.Ge(date(2020, 1, 1))], r"annotated_types: ge=datetime.date\(2020, 1, 1\) cannot be a constraint"),
    (Annotated[Decimal, at.Ge(Decimal("0.1234567890123456789"))], "cannot be a constraint here"),
    (Annotated[int, at.Timezone(None)], "annotated_types: Timezone is not read"),
    (Annotated[Decimal, Field(max_digits=3)], r"pydantic: max_digits=… is not read; write tm.field\(validator="),
    (Annotated[str, Field(pattern=re.compile("a", re.I))], "cannot be a constraint here"),
    (Annotated[str, pydantic.StringConstraints(min_length=1, to_lower=True)], "pydantic: to_lower=… is not read"),
    (Annotated[str, pydantic.AfterValidator(str.lower)], "pydantic: AfterValidator is not read; write tm.field"),
    (list[Annotated[str, pydantic.BeforeValidator(str)]], "pydantic: BeforeValidator is not read"),
    (pydantic.FiniteFloat, "pydantic: AllowInfNan is not read"),
    (Annotated[int, Field(default=3)], r"pydantic.Field\(default=…\) is not read; write tm.field\(default=…\)"),
    (Annotated[int, Field(default_factory=int)], r"default_factory=…\) is not read; write tm.field\(factory=…\)"),
    (Annotated[int, Field(alias="N")], r"pydantic.Field\(alias=…\) is not read; write tm.field\(name=…\)"),
    (Annotated[str, at.Ge(0)], r"n: msgspec.Meta\(ge=0\) cannot apply to str"),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "message"), REFUSED, ids=lambda value: str(value)[-60:])
def test_what_would_constrain_and_cannot_be_honoured_is_refused(annotation: Any, message: str) -> None:
    with pytest.raises(tm.InvalidModel, match=message):
        declared(annotation)


@attrs.frozen
class Home:
    city: str
    floor: Annotated[int, at.Ge(0)] = 0


@attrs.frozen
class Street:
    homes: list[Home]


@pytest.mark.parametrize("annotation", [Home, list[Home], Street, Home | None])
def test_inside_of_a_class_only_msgspec_is_asked_so_other_spellings_are_refused(annotation: Any) -> None:
    with pytest.raises(tm.InvalidModel, match="Home.floor: inside of a class only msgspec.Meta constrains a value"):
        declared(annotation)


class Body:
    """What a class body of pydantic's holds."""

    @pydantic.field_validator("a", check_fields=False)
    @classmethod
    def upper(cls, value: str) -> str:
        return value.upper()

    @pydantic.model_validator(mode="after")  # type: ignore[untyped-decorator]
    def whole(self) -> Body:
        return self

    @pydantic.computed_field  # type: ignore[untyped-decorator]
    def twice(self) -> int:
        return 2

    @pydantic.field_serializer("a", check_fields=False)
    def written(self, value: str) -> str:
        return value

    def model_post_init(self, context: object) -> None: ...

    model_config = pydantic.ConfigDict(frozen=True)

    class Config:
        frozen = True


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("upper", r"upper: only pydantic would call it; write tm.field\(validator=…\)"),
        ("whole", "whole: only pydantic would call it; name the method __attrs_post_init__"),
        ("twice", "twice: only pydantic would call it; make it a plain @property"),
        ("written", "written: only pydantic would call it; write a plain method"),
        ("model_post_init", "model_post_init is never called; name it __attrs_post_init__"),
        ("model_config", "model_config: it is never read; an entity checks"),
        ("Config", "Config: it is never read; an entity checks"),
    ],
)
def test_what_only_pydantic_would_call_or_read_is_refused(name: str, mend: str) -> None:
    body = {"__annotations__": {"a": tm.Field[str]}, "key": tm.Key[str](partition="{a}"), name: Body.__dict__[name]}
    with pytest.raises(tm.InvalidModel, match=mend) as caught:
        type(tm.Entity)("Thing", (tm.Entity,), {**body, "__module__": __name__}, table="Things")
    assert len(caught.value.faults) == 1


def test_methods_of_ones_own_and_fields_may_have_any_of_these_names() -> None:
    class Thing(tm.Entity, table="Things"):
        a: tm.Field[str]
        model_config: tm.Field[str] = tm.field(default="x")
        Config: ClassVar[str] = "mine"
        key = tm.Key[str](partition="{a}")

        def clean(self) -> Literal[1]:
            return 1

        def save(self) -> Literal[2]:
            return 2

        def validate(self) -> Literal[3]:
            return 3

    thing = Thing("a")
    assert (thing.clean(), thing.save(), thing.validate(), thing.model_config) == (1, 2, 3, "x")


def test_neither_package_is_imported() -> None:
    program = "import sys, tablemapper; print(sorted({'pydantic', 'annotated_types'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
