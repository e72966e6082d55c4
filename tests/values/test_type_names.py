"""The names of types in the module of a class."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tablemapper.entities.declaration import declaration_of
from tablemapper.values.type_names import type_name

HEAD = "import tablemapper as tm\n"
NAME = "type_names_of_a_test"


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = sys.modules[NAME] = ModuleType(NAME)
    yield made
    del sys.modules[NAME]


CASES = [
    # imports, annotation of the field, options of it, what is written
    ("", "str", "", "str"),
    ("", "tm.Int32", "", "tm.Int32"),
    ("", "bytes", "", "bytes"),
    ("from datetime import datetime", "datetime", "", "datetime"),
    ("from datetime import datetime as moment", "moment", "", "moment"),
    ("import datetime as dt", "dt.datetime", "", "dt.datetime"),
    ("import datetime", "datetime.datetime", "", "datetime.datetime"),
    ("import datetime as dt", "dt.datetime", 'precision="ms"', "dt.datetime"),
    ("import decimal, uuid", "uuid.UUID", "", "uuid.UUID"),
    ("from typing import Literal", 'Literal["b", "a"]', "", "Literal['a', 'b']"),
    ("import typing as t", "t.Literal[2, 1]", "", "t.Literal[1, 2]"),
    ("from typing import Literal\nSize = Literal['s', 'm']", "Size", "", "Size"),
    ("from typing import Annotated\nimport msgspec", "Annotated[int, msgspec.Meta(ge=0)]", "", "int"),
    ("from typing import NewType\nUser = NewType('User', str)", "User", "", "str"),
    ("import enum\nclass Color(enum.Enum):\n    RED = 'r'", "Color", "", "Color"),
    ("", "tuple[str, ...]", "", "tuple[str, ...]"),
    ("", "list[int]", "", None),
]


@pytest.mark.parametrize(("imports", "annotation", "options", "written"), CASES)
def test_a_type_is_named_as_its_module_names_it(
    module: ModuleType, imports: str, annotation: str, options: str, written: str | None
) -> None:
    options = f" = tm.field({options})" if options else ""
    assert _written(module, f"{imports}\n{HEAD}", f"value: tm.Field[{annotation}]{options}") == written
    if written is not None:  # (the class refuses a wrong one)
        key = f'key = tm.Key[int, {written}](partition="{{id}}", row="{{value}}")'
        _written(module, f"{imports}\n{HEAD}", f"value: tm.Field[{annotation}]{options}", key)


def test_an_enum_of_the_class_itself_is_named_as_its_body_names_it(module: ModuleType) -> None:
    inner = "class Color(enum.Enum):\n        RED = 'r'\n    value: tm.Field[Color]"
    assert _written(module, f"import enum\n{HEAD}", inner) == "Color"


def test_a_name_that_the_class_uses_otherwise_is_none_of_a_type(module: ModuleType) -> None:
    both = "import datetime as dt\nfrom datetime import date\n"
    hidden = "value: tm.Field[dt.date]\n    date: tm.Field[int]"
    assert _written(module, f"{both}{HEAD}", hidden) == "dt.date"
    del module.dt
    assert _written(module, f"from datetime import date\n{HEAD}", hidden.replace("dt.", "")) is None


def test_a_type_that_the_module_does_not_import_has_no_name(module: ModuleType) -> None:
    sys.modules[f"{NAME}_base"] = base = ModuleType(f"{NAME}_base")
    try:
        exec(f"import uuid\nfrom typing import Literal\n{HEAD}\nclass Base(tm.Entity):\n"
             '    value: tm.Field[uuid.UUID]\n    size: tm.Field[Literal["s"]]\n', vars(base))  # fmt: skip
        body = "class Thing(Base, table='Things'):\n    key = tm.Key(partition='{size}')\n"
        exec(f"{HEAD}from {NAME}_base import Base\n{body}", vars(module))
    finally:
        del sys.modules[f"{NAME}_base"]
    value, size = [type_name(field.type, module.Thing) for field in declaration_of(module.Thing).fields]
    assert (value, size) == (None, None)


def _written(
    module: ModuleType, head: str, fields: str, key: str = 'key = tm.Key[int](partition="{id}")'
) -> str | None:
    body = f"{fields}\n    id: tm.Field[int] = tm.field(kw_only=True)\n    {key}"
    source = f"{head}\nclass Thing(tm.Entity, table='Things'):\n    {body}\n"
    exec(compile(source, NAME, "exec", dont_inherit=True), vars(module))
    thing: Any = module.Thing
    return type_name(declaration_of(thing).fields[0].type, thing)
