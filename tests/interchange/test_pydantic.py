"""pydantic, and so FastAPI, reads, writes and documents entities. The package does not need it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import attrs
import pytest

import tablemapper as tm

pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")


@attrs.frozen
class Box:
    size: int
    inner: Box | None = None


class Part(tm.Entity, table="Parts"):
    number: tm.Field[str]
    price: tm.Field[Decimal]
    box: tm.Field[Box | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)

    key = tm.Key[str](partition="{number}")


def adapter(kind: Any) -> Any:
    return pydantic.TypeAdapter(kind)


PART = Part("a", Decimal("1.50"), Box(1))
FORM = {"number": "a", "price": "1.50", "box": {"size": 1, "inner": None}, "tags": []}


def test_an_entity_is_made_of_a_dict_and_passes_as_it_is() -> None:
    assert adapter(Part).validate_python(FORM) == PART
    assert adapter(Part).validate_python(PART) is PART
    assert adapter(list[Part]).validate_json(b'[{"number": "a", "price": "1.50", "box": {"size": 1}}]') == [PART]


def test_every_fault_is_a_line_with_its_place() -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        adapter(list[Part]).validate_python([{"price": "x", "tags": ["a", 5], "colour": 1}])
    lines = {line["loc"]: line["msg"] for line in caught.value.errors()}
    assert list(lines) == [(0, "number"), (0, "price"), (0, "tags", 1), (0, "colour")]
    assert lines[(0, "number")] == "it is missing"


def test_what_is_no_dict_is_one_line() -> None:
    with pytest.raises(pydantic.ValidationError, match="expected a dict"):
        adapter(Part).validate_python(5)


def test_an_entity_is_written_as_to_json_writes_it() -> None:
    assert adapter(Part).dump_json(PART) == tm.to_json(PART)
    assert adapter(Part).dump_python(PART, mode="json") == FORM
    assert adapter(Part).dump_python(PART) is PART


def test_an_entity_is_a_member_of_a_model() -> None:
    class Answer(pydantic.BaseModel):
        parts: list[Part]

    answer = Answer(parts=[PART])
    assert Answer.model_validate_json(answer.model_dump_json()) == answer
    schema = Answer.model_json_schema()
    assert schema["properties"]["parts"]["items"] == {"$ref": "#/$defs/Part"}
    assert list(schema["$defs"]["Part"]["properties"]) == list(FORM)


def test_a_schema_holds_nested_classes_where_they_stand_and_one_that_holds_itself_ends() -> None:
    schema = adapter(Part).json_schema()
    assert schema["properties"]["number"] == {"type": "string"}
    assert schema["required"] == ["number", "price"]
    (box, _) = schema["properties"]["box"]["anyOf"]
    assert box["properties"]["size"] == {"type": "integer"}
    assert box["properties"]["inner"]["anyOf"][0] == {"title": "Box"}


def test_fastapi_takes_and_returns_entities_and_documents_them() -> None:
    fastapi = pytest.importorskip("fastapi", reason="FastAPI is not installed")
    testclient = pytest.importorskip("fastapi.testclient", reason="httpx is not installed")
    from typing import Annotated

    app = fastapi.FastAPI()

    def put(part: Part) -> Part:
        return part.replace(price=part.price * 2)

    put.__annotations__ = {"part": Annotated[Part, fastapi.Body()], "return": Part}
    app.put("/parts")(put)
    client = testclient.TestClient(app)
    assert client.put("/parts", json=FORM).json() == {**FORM, "price": "3.00"}
    refused = client.put("/parts", json={"number": "a", "price": "x"})
    assert refused.status_code == 422
    assert [line["loc"] for line in refused.json()["detail"]] == [["body", "price"]]
    openapi = client.get("/openapi.json").json()
    assert list(openapi["components"]["schemas"]["Part"]["properties"]) == list(FORM)
    body = openapi["paths"]["/parts"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["$ref"] == "#/components/schemas/Part"
