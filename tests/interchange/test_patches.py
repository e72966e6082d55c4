"""Partial bodies: what they change, what they are refused for, and how pydantic, FastAPI and JSON schemas say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm

from ..classes import grouped
from ..stores import sound_store


@attrs.frozen
class Maker:
    name: str
    city: str = "Oslo"


class Product(tm.Entity, table="Products"):
    id: tm.Field[str]
    title: tm.Field[str] = tm.field(name="name")
    price: tm.Field[Annotated[Decimal, msgspec.Meta(ge=0)]]
    note: tm.Field[str | None] = tm.field(default=None)
    since: tm.Field[datetime | None] = tm.field(default=None)
    maker: tm.Field[Maker | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    stock: tm.Field[int] = tm.field(default=3)

    key = tm.Key[str](partition="{id}")


class Loose(tm.Entity, table="Loose"):
    id: tm.Field[str]
    size: tm.Field[int] = tm.field(default=3)
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str](partition="{id}")


class Team(tm.Entity, table="Teams"):
    id: tm.Field[str]
    products: tm.Field[int] = tm.count(of=Product)

    key = tm.Key[str](partition="{id}")


Stock = grouped("Stock", Product, "note", number=tm.count())
PRODUCT = Product("b-1", "Dune", Decimal("9.50"), "old", None, Maker("Ace", "Bergen"), ["new"])


def test_a_patch_changes_what_it_names_and_nothing_else() -> None:
    body = {"name": "Dune!", "price": 7, "note": None, "maker": {"name": "Bo"}, "since": "2026-03-01T00:00:00Z"}
    for given_body in (body, json.dumps(body), json.dumps(body).encode()):
        with sound_store(":memory:", models=[Product]) as store:
            store.insert(product := PRODUCT.replace())
            patch = tm.patch(Product, given_body)
            etag = tm.info(product).etag
            changed = store.merge(product.key, *patch, if_match=etag, returning=True)
            assert changed == Product(
                "b-1", "Dune!", Decimal(7), None, datetime(2026, 3, 1, tzinfo=UTC), Maker("Bo"), ["new"]
            )
            with pytest.raises(tm.PreconditionFailed):
                store.merge(product.key, *patch, if_match=etag)


def test_a_patch_is_a_tuple_of_assignments_for_every_verb_that_takes_some() -> None:
    patch = tm.patch(Product, {"price": Decimal("1.5"), "tags": ["a"]})
    assert isinstance(patch, tm.Patch)
    assert isinstance(patch, tuple)
    assert [(part.attr.label, part.value) for part in patch] == [("price", Decimal("1.5")), ("tags", ["a"])]
    with sound_store(":memory:", models=[Product]) as store:
        store.insert_many([PRODUCT.replace(), PRODUCT.replace(id="b-2")])
        assert store.query(Product).allow_scan().update(*patch) == 2
        with store.transaction() as tx:
            tx.merge(Product.key("b-1"), *tm.patch(Product, b'{"tags":[]}'))
        assert [product.tags for product in store.query(Product).allow_scan()] == [[], ["a"]]
        assert {product.price for product in store.query(Product).allow_scan()} == {Decimal("1.5")}
        assert PRODUCT.replace(*patch).tags == ["a"]


def test_an_empty_patch_is_false_and_merge_keeps_its_refusal() -> None:
    patch = tm.patch(Product, "{}")
    assert not patch
    assert patch == ()
    with (
        sound_store(":memory:", models=[Product]) as store,
        pytest.raises(tm.InvalidEntity, match="nothing to change; give fields"),
    ):
        store.merge(Product.key("b-1"), *patch)


def test_every_fault_of_a_patch_is_told_at_once_with_its_path() -> None:
    body = (
        b'{"id":"x","name":5,"price":"x","prise":1,"note":null,"stock":null,"tags":["a",5],"maker":{"name":1},'
        b'"note":"b","odata.etag":"W/\\"1\\""}'
    )
    with pytest.raises(tm.InvalidEntity) as caught:
        tm.patch(Product, body)
    assert list(caught.value.faults) == [
        "note: it occurs twice", "id: it is in the key, which a patch cannot change", "name: expected str, got int",
        "price: invalid decimal string", "maker.name: expected str, got int", "tags[1]: expected str, got int",
        "stock: it cannot be removed, as it is not optional (Field[int | None] would be)",
        "odata.etag: a patch has no ETag; give it to the verb, as if_match=",
        "prise: no such field (fields: id, name, price, note, since, maker, tags, stock); did you mean \"price\"?",
    ]  # fmt: skip
    assert str(caught.value).startswith("patch of Product: 9 faults")
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: tm.patch(Product, {"price": Decimal(-1)}), "price: "),
        (lambda: tm.patch(Product, {"maker": {"name": "a", "town": "b"}}), 'maker.town: no such field'),
        (lambda: tm.patch(Product, {"title": "x"}), 'title: no such field'),
        (lambda: tm.patch(Product, "[]"), "expected object, got array"),
        (lambda: tm.patch(Product, "{"), "is not JSON"),
        (lambda: tm.patch(Product, 5), "expected JSON, as bytes or str, got int 5"),  # type: ignore[arg-type]
        (lambda: tm.patch(Team, {"products": 5}), "products: the store maintains it from Product"),
        (lambda: tm.patch(Stock, {"number": 5}), "it is maintained from Product; write Product entities instead"),
    ]  # fmt: skip
    for call, fault in refused:
        with pytest.raises(tm.InvalidEntity) as error:
            call()
        assert fault in str(error.value)
    with pytest.raises(tm.InvalidModel, match="no table"):
        tm.patch(tm.Entity, {})


def test_undeclared_members_are_set_and_removed_one_by_one() -> None:
    loose = Loose("a", 1, tm.Extra(color="red", weight=1.5, at=datetime(2026, 1, 1, tzinfo=UTC)))
    with sound_store(":memory:", models=[Loose]) as store:
        store.insert(loose)
        body = '{"color":null,"weight":2,"until@odata.type":"Edm.Int64","until":"5","gone":null,"size":null}'
        with pytest.raises(tm.InvalidEntity, match="size: it cannot be removed"):
            tm.patch(Loose, body)
        store.merge(loose.key, *tm.patch(Loose, body.replace(',"size":null', "")))
        assert store[loose.key] == Loose("a", 1, tm.Extra(weight=2, at=datetime(2026, 1, 1, tzinfo=UTC), until=5))
        assert tm.to_dict(store[loose.key])["until@odata.type"] == "Edm.Int64"
        with pytest.raises(tm.InvalidEntity, match=r"bad name: .*name"):
            tm.patch(Loose, {"bad name": None})


def test_a_schema_of_patches_has_what_can_be_changed_and_requires_nothing() -> None:
    whole, schema = tm.json_schema(Product), tm.json_schema(Product, patch=True)
    assert list(schema["properties"]) == ["name", "price", "note", "since", "maker", "tags", "stock"]
    assert schema["title"] == "ProductPatch"
    assert schema["required"] == []
    assert schema["additionalProperties"] is False
    assert not any("default" in member for member in schema["properties"].values())
    assert schema["properties"]["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert schema["properties"]["price"] == whole["properties"]["price"]
    assert schema["$defs"] == whole["$defs"]
    assert tm.json_schema(Team, patch=True)["properties"] == {}
    assert tm.json_schema(Loose, patch=True)["additionalProperties"] is True
    with pytest.raises(tm.InvalidModel, match="a patch has no ETag; give that to the verb, as if_match="):
        tm.json_schema(Product, patch=True, etag=True)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.text(max_size=3),
            "price": st.decimals(0, 10, places=2),
            "note": st.none() | st.text(max_size=3),
            "maker": st.none() | st.builds(Maker, st.text(max_size=3), st.text(max_size=3)),
            "tags": st.lists(st.text(max_size=2), max_size=3),
            "stock": st.integers(-5, 5),
        },
    )
)
def test_a_patch_of_values_and_of_their_json_is_what_replace_does(values: dict[str, Any]) -> None:
    by_name = {{"name": "title"}.get(name, name): value for name, value in values.items()}
    expected = PRODUCT.replace(**by_name)
    text = {name: tm.to_dict(expected)[name] for name in values}
    for body in (values, text, json.dumps(text)):
        assert PRODUCT.replace(*tm.patch(Product, body)) == expected
        if values:
            assert msgspec.json.decode(tm.to_json(expected)) == tm.to_dict(expected)


# ------------------------------------------------------------------------------------------ pydantic and FastAPI


def test_pydantic_reads_a_patch_and_documents_it() -> None:
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")
    adapter = pydantic.TypeAdapter(tm.Patch[Product])
    patch = adapter.validate_python({"price": "3", "note": None})
    assert [(part.attr.name, part.value) for part in patch] == [("price", Decimal(3)), ("note", None)]
    assert adapter.validate_json(b'{"tags":["x"]}')[0].value == ["x"]
    assert adapter.validate_python(patch) is patch
    with pytest.raises(pydantic.ValidationError) as caught:
        adapter.validate_python({"id": "x", "tags": ["a", 5], "prise": 1})
    lines = {line["loc"]: line["msg"] for line in caught.value.errors()}
    assert list(lines) == [("id",), ("tags", 1), ("prise",)]
    assert lines[("id",)] == "it is in the key, which a patch cannot change"
    schema = adapter.json_schema()
    assert schema["title"] == "ProductPatch"
    assert schema["required"] == []
    assert "id" not in schema["properties"]
    assert schema["properties"]["maker"]["anyOf"][0]["properties"]["name"] == {"type": "string"}
    with pytest.raises(tm.InvalidModel, match=r"tm.Patch\[Product\]"):
        pydantic.TypeAdapter(tm.Patch)


def test_fastapi_takes_a_patch_from_the_body_and_answers_422_with_every_fault() -> None:
    fastapi = pytest.importorskip("fastapi", reason="FastAPI is not installed")
    testclient = pytest.importorskip("fastapi.testclient", reason="httpx is not installed")
    app = fastapi.FastAPI()
    with sound_store(":memory:", models=[Product]) as store:
        store.insert(PRODUCT.replace())

        def change(id: str, body: Any) -> Any:
            return store.merge(Product.key(id), *body, returning=True)

        change.__annotations__ = {"id": str, "body": tm.Patch[Product], "return": Product}
        app.patch("/products/{id}")(change)
        client = testclient.TestClient(app)
        assert client.patch("/products/b-1", json={"price": "3", "note": None}).json()["price"] == "3"
        assert store[Product.key("b-1")].note is None
        refused = client.patch("/products/b-1", json={"price": "x", "id": "c", "prise": 1})
        assert refused.status_code == 422
        assert {tuple(line["loc"]) for line in refused.json()["detail"]} == {
            ("body", "price"), ("body", "id"), ("body", "prise"),
        }  # fmt: skip
        document = client.get("/openapi.json").json()
    body = document["paths"]["/products/{id}"]["patch"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["$ref"] == "#/components/schemas/ProductPatch"
    assert document["components"]["schemas"]["ProductPatch"]["required"] == []
    assert "ETag" not in str(document["components"]["schemas"]["Product"])
