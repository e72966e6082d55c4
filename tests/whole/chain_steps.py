"""Random changes of classes: the steps of a script, and what each entity becomes by them, and came from, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from decimal import Decimal
from typing import Any

import attrs

import tablemapper as tm

from .chain_worlds import (
    DEFAULTS,
    FORMS,
    OPTIONAL,
    UNDECLARED,
    Classes,
    Draw,
    Index,
    Rows,
    Shape,
    Total,
    World,
    add_index,
    add_measures,
    add_total,
    enriched,
    kept_of,
    templates,
)
from .models import Slot
from .oracle import Row

Data = dict[str, Rows]
"""The entities of a version, by class."""
Same = Callable[[Any], Any]


@attrs.frozen
class Step:
    text: str
    call: Callable[[Any, Classes, Classes], object]
    """Gets the migration, and both classes."""


@attrs.define
class Link:
    """A class whose entities are the same after a script."""

    old: str
    new: str
    fields: dict[str, tuple[str, Same | None, Same | None]]
    """Each old field: the new one, how its value becomes the new one, and how that leads back; None if it stays the same."""
    fills: dict[str, Callable[[Row], Any]] = attrs.field(factory=dict)


def same(value: Any) -> Any:
    return value


class Change:
    """A script: what it does to the classes of a world, and to their entities."""

    def __init__(self, draw: Draw, world: World) -> None:
        self.draw, self.old, self.new = draw, world, deepcopy(world)
        self.links = {
            name: Link(name, name, {field: (field, None, None) for field in shape.fields})
            for name, shape in world.items()
        }
        self.steps: list[Step] = []
        self.touched: set[tuple[str, str]] = set()
        """Classes with what was done to them: a field, ``"class"``, ``"key"``, ``"fields"`` or ``"all"``."""
        self.made: list[tuple[Sequence[str], Callable[..., dict[str, list[Row]]]]] = []
        """Old classes, and a function of their entities that gives new ones."""
        self.resolved: list[tuple[Shape, str, Callable[[list[Row]], list[Row]]]] = []
        """Classes, each with an index that becomes unique, and what becomes of entities that share a value of it."""
        for step in draw.choices(STEPS, k=draw.choice([1, 1, 2, 3])):
            step(self)
        if draw.wide.random() < 0.25:
            draw.wide.choice([_lead_back, _combine])(self)
        if draw.odd.random() < 0.15:
            _drop_class(self)
        for _ in range(draw.choice([0, 0, 1, 2])):
            _add(self)
        for one in draw.more.choices([_another, _rename_total, _again], k=draw.more.choice([0, 1, 1])):
            one(self)

    @property
    def is_edit(self) -> bool:
        """Whether nothing is copied: all versions go on."""
        names = [
            name
            for link in self.links.values()
            for old, (new, *_) in link.fields.items()
            if old != new
            for name in (old, new)
        ]
        return len(names) == len(set(names)) and all(
            step.text.startswith(("rename ", "drop index", "drop total", "drop class")) for step in self.steps
        )

    @property
    def rewritten(self) -> set[str]:
        """The old classes of which functions make others."""
        return {name for names, _ in self.made for name in names}

    def changed(self, name: str) -> bool:
        return any(one == name for one, _ in self.touched)

    def keeper_changed(self, name: str) -> bool:
        """Return whether something was done to a class that keeps fields of one, which is copied with it then."""
        return any(
            self.changed(one.name) for one in self.old.values() if one.keeps is not None and one.keeps[0] == name
        )

    def reshaped(self, name: str) -> bool:
        """Return whether entities of a class become others, and not only its aggregates."""
        return any(one == name and what in ("all", "class", "key", "fields") for one, what in self.touched)

    def link_of(self, new: str) -> Link | None:
        return next((link for link in self.links.values() if link.new == new), None)

    def forward(self, data: Data) -> Data:
        found: Data = {name: {} for name in self.new}
        for names, function in self.made:
            for name, rows in function(*([*data[name].values()] for name in names)).items():
                found[name] |= {self.new[name].ident_of(row): dict(row) for row in rows}
        for name, rows in data.items():
            link = self.links.get(name)
            if link is not None and name not in self.rewritten:
                made = [self.row_forward(link, row) for row in rows.values()]
                found[link.new] |= {self.new[link.new].ident_of(row): row for row in made}
        return found

    def row_forward(self, link: Link, row: Row, former: Row | None = None) -> Row:
        """Return what an entity becomes, if it was something else before."""
        shape = self.new[link.new]
        new = {to: there(row[field]) if there else row[field] for field, (to, there, _) in link.fields.items()}
        new |= {field: former[field] if former else shape.missing(field) for field in shape.fields if field not in new}
        if not former:
            new |= {field: fill(new) for field, fill in link.fills.items()}
        return new

    def row_back(self, link: Link, row: Row, former: Row | None = None) -> Row | None:
        """Return what an entity was; None if nobody can tell."""
        shape = self.old[link.old]
        old: Row = {}
        for field, (to, there, back) in link.fields.items():
            if there is not None and back is None:
                return None
            try:
                old[field] = back(row[to]) if back else row[to]
            except ArithmeticError:
                return None
        old |= {field: former[field] if former else shape.missing(field) for field in shape.fields if field not in old}
        return None if attrs.NOTHING in old.values() else old

    def back(self, data: Data, former: Data) -> Data | None:
        """Return what all entities were, as far as they had more, what that is; None if nobody can tell."""
        found: Data = {name: {} for name in self.old}
        for name, shape in self.old.items():
            if name in self.rewritten:
                return None
            if (link := self.links.get(name)) is None:  # (it was dropped, and is as it was)
                found[name] = former[name]
                continue
            keyed = {self.key_back(link, row): row for row in data[link.new].values()}
            for key, row in keyed.items():
                made = self.row_back(link, row, former.get(name, {}).get(key))
                if made is None:
                    return None
                found[name][shape.ident_of(made)] = made
        return found

    def key_back(self, link: Link, row: Row) -> tuple[Any, ...]:
        """Return the key that an entity had."""
        found = []
        for field in self.old[link.old].ident:
            to, _, back = link.fields[field]
            found.append(back(row[to]) if back else row[to])
        return tuple(found)


# ---------------------------------------------------------------------------------------------- steps


def _pick(change: Change, *what: str, kept: bool = True) -> tuple[Shape, Link] | None:
    """Return a class that nothing of some kind was done to, and touch it; one that keeps fields only if asked."""
    found = []
    for name, shape in change.new.items():
        link = change.link_of(name)
        if link is None or (link.old, "all") in change.touched or (shape.keeps and not kept):
            continue
        if not any((link.old, one) in change.touched for one in what):
            found.append((shape, link))
    return change.draw.choice(found) if found else None


def _whole(change: Change, shape: Shape) -> bool:
    """Return whether nothing was done to a class, nothing is maintained from it, and it keeps nothing."""
    return shape.name in change.old and not (
        change.changed(shape.name) or shape.keeps or kept_of(change.new, shape.name) or shape.name not in change.links
    )


def _rename(change: Change) -> None:
    if (found := _pick(change, kept=False)) is None or kept_of(change.new, found[0].name):
        return
    shape, link = found
    plain = [old for old, (_, there, _) in link.fields.items() if there is None]
    if not plain or (link.old, old := change.draw.choice(plain)) in change.touched:
        return
    change.touched |= {(link.old, old), (link.old, "fields")}
    new = change.draw.name("renamed")
    shape.rename(link.fields[old][0], new)
    link.fields[old] = new, None, None
    change.steps.append(
        Step(f"rename {link.old}.{old}, {new}", lambda m, a, b: m.rename(getattr(a.by_name[link.old], old), getattr(b.by_name[link.new], new)))
    )  # fmt: skip


def _rename_class(change: Change) -> None:
    if (found := _pick(change, "class")) is None:
        return
    shape, link = found
    change.touched.add((link.old, "class"))
    del change.new[shape.name]
    before, shape.name = shape.name, change.draw.name(shape.name[0] + "named")
    change.new[shape.name] = shape
    alone = sum(one.table == shape.table for one in change.new.values()) == 1
    if alone and not any(total.table == shape.table for total in shape.totals) and change.draw.random() < 0.5:
        shape.table = change.draw.name("Table")
    for one in change.new.values():
        if one.keeps is not None and one.keeps[0] == before:
            one.keeps = shape.name, one.keeps[1]
    link.new = shape.name
    change.steps.append(
        Step(f"rename_class {link.old}, {link.new}", lambda m, a, b: m.rename_class(a.by_name[link.old], b.by_name[link.new]))
    )  # fmt: skip


def _rekey(change: Change) -> None:
    if (found := _pick(change, "class", "key", kept=False)) is None:
        return
    shape, link = found
    before = deepcopy(shape)
    shared = sum(one.table == shape.table for one in change.new.values()) > 1
    shared = shared or any(total.table == shape.table for total in shape.totals)
    more = [
        field
        for field, kind in shape.fields.items()
        if kind in ("str", "int", "digits")
        and field not in shape.ident
        and link.fields.get(field) == (field, None, None)
    ]
    if more and change.draw.random() < 0.4:
        shape.ident.append(change.draw.choice(more))
    shape.partition, shape.row = templates(change.draw, shape.fields, shape.ident, shape.name[0] if shared else "")
    if change.draw.odd.random() < 0.3:
        shape.type = change.draw.name("type")
    same_key = (shape.partition, shape.row, shape.type) == (before.partition, before.row, before.type)
    if same_key or not possible(change.new):
        change.new[shape.name] = before
        return
    change.touched |= {(link.old, "key"), (link.old, "class")}
    change.steps.append(Step(f"rekey {link.old} to {shape.partition}, {shape.row}, type={shape.type}", _rekeyed(link)))


def _rekeyed(link: Link) -> Callable[[Any, Classes, Classes], object]:
    return lambda m, a, b: m.rekey(a.by_name[link.old], b.by_name[link.new])


def possible(world: World) -> bool:
    """Return whether there can be the classes of a world: a condition may compare a field that has another type by now."""
    try:
        Classes(world)
    except (tm.InvalidModel, tm.InvalidQuery):
        return False
    return True


SWAPPED, REPLACED = {"m1": "m2", "m2": "m1"}, {"m1": "w1", "m2": "w2"}
CONVERSIONS: list[tuple[str, str, Any, Any]] = [
    ("digits", "int", int, str), ("digits", "decimal", Decimal, str), ("int", "decimal", Decimal, int),
    ("decimal", "digits", str, Decimal), ("int", "digits", str, int), ("int", "float", float, int),
    ("decimal", "float", float, Decimal), ("int", "int", lambda v: -v, lambda v: -v), ("digits", "int", int, None),
    ("optint", "int", lambda v: -1 if v is None else v, None), ("str", "int", len, None), ("str", "str", SWAPPED, None),
    ("str", "str", REPLACED, None), ("optstr", "optstr", SWAPPED, None), ("optstr", "str", lambda v: v or "none", None),
]  # fmt: skip
"""Kinds, function and way back; values that differ may become one where there is none."""


def _convert(change: Change) -> None:
    if (found := _pick(change, kept=False)) is None:
        return
    shape, link = found
    kept = kept_of(change.new, shape.name)
    choices = [
        (old, field, one)
        for old, (field, there, _) in link.fields.items()
        for one in CONVERSIONS
        if there is None and (link.old, old) not in change.touched and field not in kept and field not in shape.defaults
        and _converts(shape, field, one)
    ]  # fmt: skip
    if not choices:
        return
    old, field, (_, kind, function, back) = change.draw.choice(choices)
    change.touched |= {(link.old, old), (link.old, "fields")}
    new = field if change.draw.random() < 0.7 else change.draw.name("converted")
    shape.rename(field, new)
    shape.fields[new] = kind
    there, here = function, back
    if isinstance(function, dict):
        other = {b: a for a, b in function.items()}
        there, here = (lambda v: function.get(v, v)), (lambda v: other.get(v, v))
    link.fields[old] = new, there if kind not in ("optstr",) else _unless_none(there), here and _unless_none(here)
    if new in shape.ident and (link.old, "key") not in change.touched:
        change.touched.add((link.old, "key"))
        change.steps.append(Step(f"rekey {link.old} for that", _rekeyed(link)))
    options = {} if back is None else {"back": back}
    change.steps.append(
        Step(
            f"convert {link.old}.{old}, {new}: {kind}{', back' * (back is not None)}",
            lambda m, a, b: m.convert(getattr(a.by_name[link.old], old), getattr(b.by_name[link.new], new), function, **options),
        )
    )  # fmt: skip


def _unless_none(function: Same) -> Same:
    return lambda value: None if value is None else function(value)


def _converts(shape: Shape, field: str, conversion: tuple[str, str, Any, Any]) -> bool:
    """Return whether a conversion is one of a field, and leaves what is made of the field possible."""
    kind, to, function, back = conversion
    indexed = {index.field: index.unique for index in shape.indexes.values()}
    grouped = {one for total in shape.totals for one, _, _ in total.groups}
    measured = {one for total in shape.totals for _, _, one in total.measures}
    return (
        kind == shape.fields[field]
        and field not in shape.asked.union(*[total.asked for total in shape.totals])
        and not (field in shape.ident and ((back is None and function is not SWAPPED) or to == "float"))
        and not (field in measured and to not in ("int", "decimal"))
        and not (field in grouped | indexed.keys() and to == "float")
        and not indexed.get(field)
    )


def _fill(change: Change) -> None:
    if (found := _pick(change, kept=False)) is None:
        return
    shape, link = found
    if "extra" in shape.fields.values():  # (what was filled once, and undone, may be among the undeclared)
        return
    field, of, kind = change.draw.name("filled"), shape.ident[0], change.draw.choice(["int", "str"])
    shape.fields[field] = kind
    change.touched |= {(link.old, "fields"), (link.old, next(old for old, one in link.fields.items() if one[0] == of))}

    def made(value: Any) -> Any:
        return len(str(value)) if kind == "int" else f"f{value}"

    link.fills[field] = lambda row: made(row[of])
    change.steps.append(
        Step(f"fill {link.new}.{field}", lambda m, a, b: m.fill(getattr(b.by_name[link.new], field), lambda e: made(getattr(e, of))))
    )  # fmt: skip


def _drop_field(change: Change) -> None:
    if (found := _pick(change, kept=False)) is None:
        return
    shape, link = found
    used = shape.used | kept_of(change.new, shape.name)
    choices = [
        old
        for old, (field, _, _) in link.fields.items()
        if (link.old, old) not in change.touched and field not in used and shape.fields[field] != "extra"
    ]
    if not choices:
        return
    old = change.draw.choice(choices)
    change.touched |= {(link.old, old), (link.old, "fields")}
    field = link.fields.pop(old)[0]
    del shape.fields[field]
    shape.defaults.pop(field, None)
    change.steps.append(Step(f"drop field {link.old}.{old}", lambda m, a, b: m.drop(getattr(a.by_name[link.old], old))))


def _drop(change: Change) -> None:
    if (found := _pick(change, kept=False)) is None:
        return
    shape, link = found
    before = change.old[link.old]
    indexes = [name for name in before.indexes if name in shape.indexes and (link.old, name) not in change.touched]
    tables = Counter(total.table for total in shape.totals)  # (as for classes)
    totals = [
        total
        for total in shape.totals
        if total.name in [one.name for one in before.totals]
        and (total.table == shape.table or tables[total.table] == 1)
    ]
    if indexes and change.draw.random() < 0.5:
        name = change.draw.choice(indexes)
        del shape.indexes[name]
        change.steps.append(
            Step(f"drop index {link.old}.{name}", lambda m, a, b: m.drop(getattr(a.by_name[link.old], name)))
        )
        change.touched.add((link.old, name))
    elif totals:
        shape.totals.remove(total := change.draw.choice(totals))
        change.draw.dropped.append((shape.name, total))
        change.steps.append(_drop_total(link.old, total.name))
        change.touched.add((link.old, total.name))


def _drop_total(owner: str, name: str) -> Step:
    return Step(f"drop total {name}", lambda m, a, b: m.drop(a.totals[owner, name]))


def _drop_class(change: Change) -> None:
    # (What is dropped out of a table of several has to be contracted before the others are copied.)
    tables = Counter(shape.table for shape in change.new.values())
    whole = [shape for shape in change.new.values() if _whole(change, shape) and tables[shape.table] == 1]
    if not whole or len(change.new) == 1:
        return
    shape = change.draw.odd.choice(whole)
    name, totals = shape.name, change.old[shape.name].totals
    change.touched |= {(name, one) for one in ("all", "class", "key", "fields")}
    del change.new[name], change.links[name]
    change.steps.append(Step(f"drop class {name}", lambda m, a, b: m.drop(a.by_name[name])))
    change.steps += [_drop_total(name, total.name) for total in totals]


def _rewrite(change: Change) -> None:
    """Leave entities out, or make several of one."""
    whole = [shape for shape in change.new.values() if _whole(change, shape)]
    if not whole:
        return
    shape = change.draw.choice(whole)
    name, fields, ident = shape.name, [*shape.fields], [*shape.ident]
    last = ident[-1]
    change.touched |= {(name, one) for one in ("all", "class", "key", "fields")}
    if change.draw.random() < 0.5 or "at" in ident:  # (it is a slice itself)
        part = None
    else:
        part = Shape(
            change.draw.name("Slice"), change.draw.name("Slices"), {**{one: shape.fields[one] for one in ident}, "at": "int"},
            [*ident, "at"], ((Slot(ident[0]),),), tuple((Slot(one),) for one in [*ident[1:], "at"]),
        )  # fmt: skip
        change.new[part.name] = part
        if change.draw.random() < 0.5:
            add_total(change.draw, part)

    def rows(old: Iterable[Row]) -> dict[str, list[Row]]:
        if part is None:
            return {name: [row for row in old if len(str(row[last])) % 2 == 0]}
        whole = [*old]
        slices = [{**{one: row[one] for one in ident}, "at": at} for row in whole for at in range(len(str(row[last])))]
        return {name: whole, part.name: slices}

    def function(b: Classes) -> Callable[[Any], list[Any]]:
        def of(entity: Any) -> list[Any]:
            made = rows([{field: getattr(entity, field) for field in fields}])
            return [b.make(cls, one) for cls, some in made.items() for one in some]

        return of

    def call(m: Any, a: Classes, b: Classes) -> None:
        into = (b.by_name[name],) if part is None else (b.by_name[name], b.by_name[part.name])
        m.rewrite(a.by_name[name], function(b), into=into)

    change.made.append(([name], rows))
    change.steps.append(Step(f"rewrite {name}{'' if part is None else f' into it and {part.name}'}", call))


def _lead_back(change: Change) -> None:
    """Make another class of each entity, and let a function lead back."""
    whole = [
        shape
        for shape in change.new.values()
        if _whole(change, shape) and not shape.totals and "int" in shape.fields.values() and not shape.defaults
    ]
    if not whole:
        return
    shape = change.draw.wide.choice(whole)
    old, link = shape.name, change.links[shape.name]
    change.touched |= {(old, one) for one in ("all", "class", "key", "fields")}
    del change.new[old]
    link.new = shape.name = change.draw.name(f"{old[0]}back")
    shape.table = change.draw.name("Led")
    change.new[shape.name] = shape
    field = change.draw.wide.choice([one for one, kind in shape.fields.items() if kind == "int"])
    other = field if change.draw.wide.random() < 0.5 else change.draw.name("negative")
    shape.rename(field, other)
    link.fields[field] = other, lambda value: -value, lambda value: -value

    def call(m: Any, a: Classes, b: Classes) -> None:
        def there(entity: Any) -> Any:
            return b.make(
                shape.name, change.row_forward(link, {one: getattr(entity, one) for one in change.old[old].fields})
            )

        def back(entity: Any) -> Any:
            row = change.row_back(link, {one: getattr(entity, one) for one in shape.fields})
            return None if row is None else a.make(old, row)

        m.rewrite(a.by_name[old], there, into=[b.by_name[shape.name]], back=back)

    change.steps.append(Step(f"rewrite {old} into {shape.name}, back", call))


def _combine(change: Change) -> None:
    """Make one more entity of all that have the first field of the key in common."""
    whole = [shape for shape in change.new.values() if _whole(change, shape) and "sum" not in shape.fields]
    if not whole:
        return
    shape = change.draw.wide.choice(whole)
    name, first, fields = shape.name, shape.ident[0], [*shape.fields]
    change.touched |= {(name, one) for one in ("all", "class", "key", "fields")}
    part = Shape(
        change.draw.name("Sum"), change.draw.name("Sums"), {first: shape.fields[first], "sum": "int"}, [first],
        ((Slot(first),),), (("sum",),),
    )  # fmt: skip
    change.new[part.name] = part

    def rows(old: Iterable[Row]) -> dict[str, list[Row]]:
        whole = [*old]
        counts = Counter(row[first] for row in whole)
        return {name: whole, part.name: [{first: value, "sum": count} for value, count in counts.items()]}

    def call(m: Any, a: Classes, b: Classes) -> None:
        def function(entity: Any) -> list[Any]:
            row = {field: getattr(entity, field) for field in fields}
            return [b.make(name, row), b.make(part.name, {first: row[first], "sum": 1})]

        def combine(one: Any, other: Any) -> Any:
            return b.make(part.name, {first: getattr(one, first), "sum": one.sum + other.sum})

        m.rewrite(a.by_name[name], function, into=(b.by_name[name], b.by_name[part.name]), combine=combine)

    change.made.append(([name], rows))
    change.steps.append(Step(f"rewrite {name} into it and {part.name}, combine", call))


def _join(change: Change) -> None:
    """Make one class of two whose entities have equal keys."""
    whole = [shape for shape in change.new.values() if _whole(change, shape)]
    pairs = [(one, other) for one in whole for other in whole if one is not other and _keys_alike(one, other)]
    if not pairs:
        return
    one, other = change.draw.choice(pairs)
    first, second = deepcopy(one), deepcopy(other)
    change.touched |= {(name, what) for name in (one.name, other.name) for what in ("all", "class", "key", "fields")}
    more = [field for field in second.fields if field not in second.ident and field not in first.fields]
    one.fields |= {field: second.fields[field] for field in more}
    del change.new[second.name], change.links[second.name]
    last, only_together = second.ident[-1], change.draw.random() < 0.3

    def zero(shape: Shape, field: str) -> Any:
        return FORMS[shape.fields[field]].pool[0] if (given := shape.default(field)) is attrs.NOTHING else given

    def made(a: Row | None, b: Row | None) -> Row | None:
        if b is None:
            return None if a is None else {**a, **{field: zero(second, field) for field in more}}
        if (a is None or only_together) and len(str(b[last])) % 2 == 0:
            return None
        if a is None:
            a = {field: zero(first, field) for field in first.fields}
            a |= dict(zip(first.ident, [b[field] for field in second.ident], strict=True))
            if first.fields.get("code") == "code":
                a["code"] = f"joined {second.ident_of(b)}"  # (it may have to be unique)
        return {**a, **{field: b[field] for field in more}}

    def rows(firsts: Iterable[Row], seconds: Iterable[Row]) -> dict[str, list[Row]]:
        a = {first.ident_of(row): row for row in firsts}
        b = {second.ident_of(row): row for row in seconds}
        every = [made(a.get(key), b.get(key)) for key in a.keys() | b.keys()]
        return {first.name: [row for row in every if row is not None]}

    def values(shape: Shape, entity: Any) -> Row | None:
        return None if entity is None else {field: getattr(entity, field) for field in shape.fields}

    def call(m: Any, a: Classes, b: Classes) -> None:
        def function(x: Any, y: Any) -> Any:
            row = made(values(first, x), values(second, y))
            return None if row is None else b.make(first.name, row)

        m.join(a.by_name[first.name], a.by_name[second.name], function, into=[b.by_name[first.name]])

    change.made.append(([first.name, second.name], rows))
    change.steps.append(Step(f"join {first.name}, {second.name}", call))
    change.steps += [_drop_total(second.name, total.name) for total in second.totals]


def _keys_alike(one: Shape, other: Shape) -> bool:
    kinds = [[shape.fields[field] for field in shape.ident] for shape in (one, other)]
    return (one.partition, one.row) == (other.partition, other.row) and kinds[0] == kinds[1]


def _unique(change: Change) -> None:
    """Let an index be unique that was not there, and values differ for that."""
    if (found := _pick(change, "unique")) is None:
        return
    shape, link = found
    codes = [field for field, kind in shape.fields.items() if kind in ("code", "optcode")]
    if not codes or any(index.unique for index in shape.indexes.values()):
        return
    field, name = codes[0], change.draw.name("unique")
    shape.indexes[name] = enriched(change.draw, shape, Index(field, unique=True))
    read = {field, *shape.asked}
    change.touched |= {(link.old, "unique"), *((link.old, old) for old, one in link.fields.items() if one[0] in read)}
    optional = shape.fields[field] == "optcode"

    def apart(held: list[Row]) -> list[Row]:
        """Keep two of the entities with one value, of which the second gets another."""
        one, other = held[:2]
        return [one, {**other, field: None if optional else f"{other[field]} {shape.ident_of(other)}"}]

    def function(holders: list[Any]) -> list[Any]:
        made = apart([{one: getattr(entity, one) for one in shape.fields} for entity in holders])
        for entity, row in zip(holders, made, strict=False):
            setattr(entity, field, row[field])
        return holders[:2]

    change.resolved.append((shape, name, apart))
    change.steps.append(
        Step(f"resolve {shape.name}.{name} of {field}", lambda m, a, b: m.resolve(getattr(b.by_name[shape.name], name), function))
    )  # fmt: skip


def _add(change: Change) -> None:
    """Add something that needs no step."""
    shape = change.draw.choice([*change.new.values()])
    link = change.link_of(shape.name)
    if shape.keeps or link is None or (link.old, "all") in change.touched:
        return
    what = change.draw.choice(["optional", "default", "index", "total", "measure"])
    numbers = [field for field, kind in shape.fields.items() if kind in ("int", "decimal")]
    if what == "optional":
        shape.fields[change.draw.name("optional")] = change.draw.choice(OPTIONAL)
    elif what == "default":
        kind, value = change.draw.wide.choice(DEFAULTS)
        shape.fields[field := change.draw.name("default")] = kind
        shape.defaults[field] = value
    elif what == "index":
        add_index(change.draw, shape)
    elif what == "total":
        add_total(change.draw, shape)
    elif shape.totals and numbers and not (total := change.draw.choice(shape.totals)).row:
        total.measures.append((change.draw.name("measure"), "sum", change.draw.choice(numbers)))


def _pick_total(change: Change) -> tuple[Shape, Link, Total] | None:
    """Return an aggregate of the old classes that nothing was done to."""
    found = []
    for name, shape in change.new.items():
        link = change.link_of(name)
        if link is None or (link.old, "all") in change.touched:
            continue
        old = [total.name for total in change.old[link.old].totals]
        found += [
            (shape, link, total)
            for total in shape.totals
            if total.name in old and (link.old, total.name) not in change.touched
        ]
    return change.draw.more.choice(found) if found else None


def _another(change: Change) -> None:
    """Drop an aggregate, and declare another one of its name."""
    if (found := _pick_total(change)) is None:
        return
    shape, link, total = found
    change.touched.add((link.old, total.name))
    before = deepcopy(total)
    add_measures(change.draw.more, total, shape.fields, change.draw.name)
    if not possible(change.new):
        shape.totals[shape.totals.index(total)] = before
        return
    step = _drop_total(link.old, total.name)  # (in a table of several classes it is copied with them)
    change.steps.append(attrs.evolve(step, text=f"another {total.name}") if total.row else step)


def _rename_total(change: Change) -> None:
    if (found := _pick_total(change)) is None:
        return
    shape, link, total = found
    change.touched.add((link.old, total.name))
    before, total.name = total.name, change.draw.name("Tnamed")
    owner, after = shape.name, total.name
    change.steps.append(
        Step(f"rename_class {before}, {after}", lambda m, a, b: m.rename_class(a.totals[link.old, before], b.totals[owner, after]))
    )  # fmt: skip


def _again(change: Change) -> None:
    """Declare an aggregate that was dropped again, in another way."""
    found = [
        (shape, total)
        for name, total in change.draw.dropped
        if (shape := change.new.get(name)) is not None and shape.totals == change.old.get(name, shape).totals
        if not total.row and name in change.links and total.used <= {"", *shape.fields}
        and total.name not in [one.name for other in change.new.values() for one in other.totals]
    ]  # fmt: skip
    if not found:
        return
    shape, total = change.draw.more.choice(found)
    shape.totals.append(total := deepcopy(total))
    add_measures(change.draw.more, total, shape.fields, change.draw.name)
    if not possible(change.new):
        shape.totals.remove(total)


STEPS: list[Callable[[Change], None]] = [
    _rename, _rename, _rename_class, _rekey, _convert, _convert, _fill, _drop_field, _drop, _rewrite, _join, _join, _unique,
    _unique,
]  # fmt: skip
__all__ = ["UNDECLARED", "Change", "Data", "possible"]
