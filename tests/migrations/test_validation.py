"""What is wrong with a script is said when it is loaded, all of it at once, each with what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest

import tablemapper as tm

from ..classes import aggregate, entity


def shape(name: str = "Product", table: str = "Products", /, **body: Any) -> Any:
    """Return a class with the fields ``shop`` and ``number``, and others: an annotation, or it with options."""
    key = body.pop("key", tm.Key(partition="{shop}", row="{number}"))
    others = {name: body.pop(name) for name in [*body] if name == "type" or isinstance(body[name], tm.Index)}
    fields: dict[str, Any] = {"shop": str, "number": int}
    for field, one in body.items():
        kind, options = one if isinstance(one, tuple) else (one, {})
        fields[field] = kind, tm.field(kw_only=True, **options)
    return entity(name, table, fields, key, **others)


Steps = Callable[[Any], object]


def faults(old: Sequence[Any], new: Sequence[Any], steps: Steps) -> tuple[str, ...]:
    @tm.migration(after=None, old=old, new=new)
    def script(m: tm.Migration) -> None:
        steps(m)

    try:
        tm.Migrations([script])
    except tm.InvalidMigration as error:
        assert all(fault.startswith("script: ") for fault in error.faults)
        return tuple([fault.removeprefix("script: ") for fault in error.faults])
    return ()


def nothing(m: tm.Migration) -> None:
    pass


OLD = shape(price=str, maker=(str | None, {"default": None}), note=str, by_note=tm.Index(partition="{note}"))
NEW = shape(
    price=Decimal, manufacturer=(str | None, {"default": None}), note=str, rank=int,
    by_rank=tm.Index(partition="{rank}", unique=True), by_note=tm.Index(partition="{note}"),
)  # fmt: skip
OTHER = shape("Other", "Others", note=str)


def right(m: Any) -> None:
    m.rename(OLD.maker, NEW.manufacturer)
    m.convert(OLD.price, NEW.price, Decimal, back=str)
    m.fill(NEW.rank, lambda p: 0)


def test_a_script_whose_steps_make_one_shape_the_other_has_no_faults() -> None:
    assert faults([OLD], [NEW], right) == ()
    assert faults([OLD], [OLD], nothing) == ()
    assert faults([], [NEW], nothing) == ()
    assert faults([OLD], [NEW], lambda m: (right(m), m.resolve(NEW.by_rank, lambda ps: ps[:1]))) == ()
    assert faults([OLD], [], lambda m: m.drop(OLD)) == ()
    assert faults([OLD], [OTHER], lambda m: m.rewrite(OLD, lambda p: None, into=[OTHER])) == ()
    assert faults([OLD, OTHER], [NEW], lambda m: m.join(OLD, OTHER, lambda a, b: None, into=[NEW])) == ()
    assert faults([OLD], [shape(price=str, maker=(str | None, {"default": None}), note=str)], lambda m: m.drop(OLD.by_note)) == ()  # fmt: skip


def test_a_renamed_field_has_its_new_name_in_keys_indexes_and_aggregates() -> None:
    where = {"where": lambda p: p.a.startswith("x") | (p.b == p.a)}
    old = shape(a=str, b=str, key=tm.Key(partition="{a}"), i=tm.Index(partition="{b}", row="{a}", include=("a",), **where))  # fmt: skip
    where = {"where": lambda p: p.c.startswith("x") | (p.b == p.c)}
    new = shape(c=str, b=str, key=tm.Key(partition="{c}"), i=tm.Index(partition="{b}", row="{c}", include=("c",), **where))  # fmt: skip
    olds, news = [old, total(old, old.a)], [new, total(new, new.c)]
    assert faults(olds, news, lambda m: m.rename(old.a, new.c)) == ()


def total(of: Any, field: Any, name: str = "Total") -> Any:
    members = {"group": (str, tm.group_by(field)), "n": (int, tm.count(where=field > "a"))}
    return aggregate(name, of, members, tm.Key(partition="{group}"), "Totals")


def test_classes_that_have_another_name_or_another_key_need_no_more_than_that_said() -> None:
    goods = shape("Goods", "Wares", a=str, i=tm.Index(partition="{a}"))
    product = shape(a=str, i=tm.Index(partition="{a}"))
    assert faults([product], [goods], lambda m: m.rename_class(product, goods)) == ()
    other = shape(a=str, i=tm.Index(partition="{a}"), key=tm.Key(partition="{number}", row="{shop}"))
    assert faults([product], [other], lambda m: m.rekey(product, other)) == ()
    olds, news = [product, total(product, product.a)], [goods, total(goods, goods.a)]
    assert faults(olds, news, lambda m: m.rename_class(product, goods)) == ()


def test_a_field_in_neither_step_nor_both_shapes_is_named_with_the_step_that_it_needs() -> None:
    new = shape(price=str, maker=(str | None, {"default": None}))
    assert faults([OLD], [new], nothing) == (
        'Product: the property "note" (str) is in the store, but not in the class: m.drop(old.Product.note)?',
    )
    (first, second, third) = faults([OLD], [NEW], nothing)
    assert first.endswith(
        ": m.rename(old.Product.maker, new.Product.manufacturer)  # or m.drop(old.Product.maker), if they are two things?"
    )
    assert second.endswith(": m.fill(new.Product.rank, ...)  # a function of the entity?")
    assert "m.convert(old.Product.price, new.Product.price, Decimal, back=str)?" in third


def test_a_step_with_a_field_that_is_not_in_its_shape_is_a_fault() -> None:
    assert faults([OLD], [NEW], lambda m: (right(m), m.drop(OTHER.note))) == (
        "m.drop(Other.note): Other is not in old=[Product]",
    )
    assert faults([OLD], [NEW], lambda m: m.drop(NEW.note)) == (
        "m.drop(new.Product.note): Product is the one of the new shape; write old.Product",
    )
    (fault,) = faults([OLD], [NEW], lambda m: m.rename("maker", NEW.manufacturer))
    assert (
        fault == "m.rename('maker', new.Product.manufacturer): expected a field, as in old.Product.price, got 'maker'"
    )


def test_two_steps_for_one_field_are_a_fault() -> None:
    (fault,) = faults([OLD], [NEW], lambda m: (right(m), m.drop(OLD.price)))
    assert fault == (
        "old.Product.price has two steps, m.convert(old.Product.price, new.Product.price, …) and m.drop(old.Product.price); "
        "leave one"
    )
    (fault,) = faults([OLD], [NEW], lambda m: (right(m), m.fill(NEW.manufacturer, lambda p: None)))
    assert fault.startswith("new.Product.manufacturer has two steps, ")
    (fault,) = faults([OLD], [OTHER], lambda m: (m.drop(OLD.price), m.rewrite(OLD, lambda p: None, into=[OTHER])))
    assert fault == "m.drop(old.Product.price): m.rewrite(old.Product, …) is of the whole class; leave one"


def test_a_class_that_gets_another_name_or_key_has_no_other_step() -> None:
    goods, product = shape("Goods", "Wares", a=str), shape(a=str)
    (fault,) = faults([product], [goods], lambda m: (m.rename_class(product, goods), m.drop(product)))
    assert fault == "m.rename_class(old.Product, new.Goods): m.drop(old.Product) is of the same class; leave one"
    after = shape(a=str)
    (fault,) = faults([product], [after], lambda m: (m.rewrite(product, after, into=after), m.rekey(product, after)))
    assert fault == "m.rekey(old.Product, new.Product): m.rewrite(old.Product, …) is of the same class; leave one"


def test_a_rename_between_types_that_differ_is_a_fault() -> None:
    (fault,) = faults([OLD], [NEW], lambda m: m.rename(OLD.price, NEW.rank))
    assert fault == (
        "m.rename(old.Product.price, new.Product.rank): Product.price is str and Product.rank is int; m.convert gives a "
        "field another type, and another name"
    )


def test_a_key_of_fields_that_are_not_there_is_a_fault() -> None:
    old, new = shape(), shape(a=str, key=tm.Key(partition="{shop}", row="{a}"))
    (fault,) = faults([old], [new], lambda m: m.rekey(old, new))
    assert fault == (
        "m.rekey(old.Product, new.Product): the new key needs a, which old.Product does not have; m.rewrite makes entities "
        "with it"
    )


def test_a_class_that_is_gone_without_a_step_is_a_fault() -> None:
    assert faults([OLD, OTHER], [NEW], right) == (
        "Other is in old=[…] and not in new=[…]: m.drop(old.Other), or m.rename_class(old.Other, …)?",
    )


def test_a_step_without_its_function_is_a_fault() -> None:
    (fault,) = faults([OLD], [NEW], lambda m: (m.rename(OLD.maker, NEW.manufacturer), m.convert(OLD.price, NEW.price, Decimal), m.fill(NEW.rank, ...)))  # fmt: skip
    assert fault == "give m.fill(new.Product.rank, ...) a function"
    (fault,) = faults([OLD], [NEW], lambda m: m.fill(NEW.rank, 3))
    assert fault == "m.fill(new.Product.rank, …): expected a function, got 3"


def test_shapes_that_are_none_are_a_fault() -> None:
    assert faults([str], [NEW], nothing) == ("old=: <class 'str'> is not an entity class with table=",)
    assert faults([OLD], [OLD, shape("Product", "Others")], nothing) == ("new=: two classes are called Product",)


def test_a_unique_index_is_needed_where_holders_are_resolved() -> None:
    assert faults([OLD], [NEW], lambda m: (right(m), m.resolve(NEW.by_note, lambda ps: ps))) == (
        "m.resolve(new.Product.by_note, …): new.Product.by_note is not unique, so it has no duplicates",
    )


def test_all_faults_of_a_script_come_together() -> None:
    def wrong(m: Any) -> None:
        m.rename("maker", NEW.manufacturer)
        m.drop(OTHER)
        m.fill(NEW.rank, ...)

    assert len(faults([OLD], [NEW], wrong)) == 3


def test_a_function_that_raises_is_a_fault() -> None:
    assert faults([OLD], [NEW], lambda m: m.rename(OLD.colour, NEW.colour)) == (
        'its function raises AttributeError: Product has no field "colour" (fields: shop, number, price, maker, note)',
    )
    with pytest.raises(tm.InvalidMigration):
        tm.Migrations([tm.migration(after=None, old=[OLD], new=[NEW])(nothing)])
