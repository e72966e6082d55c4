"""Random models: classes of a table with indexes, aggregates of them, and what may come on top."""

from __future__ import annotations

import datetime
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from .conditions import Calculation, Condition, Operand, leaf, random_calculation
from .kinds import (
    COUNTED,
    EXTRA,
    FLOAT,
    HIERARCHY,
    INT,
    INT32,
    LARGE,
    LOCAL_SCALARS,
    MOMENT,
    MOMENT_MS,
    MOMENT_S,
    NESTED,
    SCALARS,
    SPELLINGS,
    STR,
    Kind,
    tm,
)
from .models import NOW, Component, Field, Index, Measure, Model, Record, Rule, Slot, Template, slots_of
from .oracle import clean, cut_time


def random_model(rng: random.Random, *, local: bool = False) -> Model:
    """Return one or two classes of a table, and aggregates of the first; times may be local ones."""
    names = (f"by{number}" for number in itertools.count(1))
    scalars = LOCAL_SCALARS if local else SCALARS
    first = _entity(rng, "First", names, [], scalars)
    records = [first]
    if rng.random() < 0.3:
        records.append(_entity(rng, "Second", names, [f for f in first.fields if rng.random() < 0.6], scalars, first))
    for name in ("Groups", "Sums")[: rng.choice((0, 1, 1, 1, 2))]:
        if (aggregate := _aggregate(rng, name, first, names)) is not None:
            records.append(aggregate)
    # (What a base lends is drawn beside: the rest of a model is what it was before there were bases.)
    lending = random.Random(Model(tuple(records)).source())
    return Model(tuple([_lent(lending, record) for record in records]))


def _lent(rng: random.Random, record: Record) -> Record:
    """Return a class that often takes some of its members from a base, if it is none of an aggregate."""
    if record.of is not None or rng.random() < 0.6:
        return record
    counts = rng.randrange(len(record.fields) + 1), rng.randrange(len(record.indexes) + 1)
    return attrs.evolve(record, lent=(counts[0], rng.random() < 0.6, counts[1]))


def with_levels(rng: random.Random, model: Model) -> Model:
    """Return a model whose first class has a key that ends in a tuple of texts, if it is the only one of its table."""
    if len(model.entities) > 1:
        return model
    first = model.records[0]
    pool = tuple(rng.sample(HIERARCHY.pool, 6))
    fields = (*first.fields, Field("z", HIERARCHY, pool=pool))
    row = (*(one for one in first.row if one), (Slot("z"),))
    indexes = first.indexes
    if rng.random() < 0.5:
        indexes += (Index("levels", ((Slot("z"),),), rng.choice((((),), ((Slot(first.fields[0].name),),)))),)
        if not first.fields[0].kind.specs or first.fields[0].kind.element:
            indexes = first.indexes
    changed = attrs.evolve(first, fields=fields, row=row, indexes=indexes)
    return attrs.evolve(model, records=(changed, *model.records[1:]))


def with_turned(rng: random.Random, model: Model) -> Model:
    """Return a model whose first class has partitions of a cut time, if it has times: often of a text, too, as one text.

    Their rows often are newest first.
    """
    first = model.records[0]
    cuts = {
        field: [spec for spec in field.kind.specs if "%" in spec and field.kind.ends(spec) == "fixed"]
        for field in first.fields
        if not field.optional and "desc" in field.kind.specs and not field.kind.element
    }
    cuts = {field: specs for field, specs in cuts.items() if specs}
    if len(model.entities) > 1:
        return model
    fields = list(first.fields)
    free = ["tt", "uu"]  # (names that nothing else has)
    if not cuts:
        fields.append(Field(free.pop(), MOMENT, pool=MOMENT.near[0] if MOMENT.near else MOMENT.pool))
        cuts = {fields[-1]: ["%Y-%m", "%Y-%m-%d"]}
    time = rng.choice(list(cuts))
    cut = Slot(time.name, rng.choice(cuts[time]))
    texts = [one for one in fields if one.kind is STR and not one.optional]
    if not texts:
        texts = [Field(free.pop(), STR, pool=())]
        fields.append(texts[0])
    alike = [f"s-{cut_time(one, cut.spec)}" for one in rng.sample(time.pool, min(3, len(time.pool)))]
    text = attrs.evolve(texts[0], pool=("s", "s", "s", "s-1", "s t", rng.choice(("s-", "s-abc", "")), *alike))
    fields[fields.index(texts[0])] = text
    together = (Slot(text.name), "-", cut)
    leading: Template = rng.choice(
        (((cut,),), ((Slot(text.name),),), ((Slot(text.name),), (cut,)), (together,), (together,), (together, ("x",)))
    )
    way = Slot(time.name, rng.choice(("desc", "desc", "")))
    own = [one for one in slots_of(first.partition, first.row) if one.field not in (time.name, text.name)]
    rest = [(Slot(one),) for one in dict.fromkeys(one.field for one in own)]
    if all(slot.field != text.name for slot in slots_of(leading)):
        rest.append((Slot(text.name),))
    record = attrs.evolve(first, fields=tuple(fields), partition=leading, row=((way,), *rest))
    if rng.random() < 0.5:
        record = attrs.evolve(record, indexes=(*record.indexes, Index("turned", leading, ((way,),))))
        if rng.random() < 0.5:
            record = attrs.evolve(record, partition=first.partition, row=first.row)
    return attrs.evolve(model, records=(record, *model.records[1:]))


def with_maintained(rng: random.Random, model: Model, *, calculated: bool = False) -> Model:
    """Return a model with a class that has maintained fields over the first, if anything can be its key.

    Args:
        rng: draws it.
        model: what is to have one.
        calculated: whether some are sums of calculations.
    """
    of = model.records[0]
    keyable = [
        field for field in of.fields if field.kind.specs and not field.kind.element and field.kind is not HIERARCHY
    ]
    if not keyable:
        return model
    key = rng.sample(keyable, min(len(keyable), rng.choice((1, 1, 1, 2))))
    fields = [Field(one.name, one.kind.uncut or one.kind, pool=one.pool) for one in key]
    names = iter([name for name in "ijkl" if name not in {field.name for field in of.fields}])
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.choice(SCALARS)
        fields.append(Field(next(names), kind, rng.random() < 0.3, pool=kind.pool[:3]))
    own = len(fields)
    groups = [one for one in of.operands if one.kind.specs]
    measures: dict[str, Measure] = {}
    for name in ("n", "m", "mm", "nn")[: rng.choice((1, 2, 3))]:
        verb = rng.choice(("count", "count", "sum", "sum", "avg", "min", "max"))
        fit = [one for one in of.operands if _fits(verb, one)]
        operand: Operand | Calculation | None = (
            rng.choice(fit) if fit and (verb != "count" or rng.random() < 0.3) else None
        )
        if calculated and rng.random() < 0.3:
            product = random_calculation(rng, of.operands)
            if product is not None and product.kind is not INT:  # (it can have more digits than a key)
                operand, verb = product, "sum"
        verb = verb if operand else "count"
        where = (
            leaf(rng, rng.choice(groups), lambda one: rng.choice(one.kind.pool), groups) if rng.random() < 0.3 else None
        )
        measures[name] = Measure(verb, operand, where)
        kind = INT if operand is None or verb == "count" else operand.kind.uncut or operand.kind
        if kind in (INT, COUNTED, INT32) and verb in ("sum", "avg"):
            kind = FLOAT if verb == "avg" else INT
        whole = verb == "sum" and where is None and _is_there(of, operand)
        plain = verb == "count" or (whole and rng.random() < 0.5)
        fields.append(Field(name, kind, optional=not plain, pool=kind.pool))
    kinds = {field.name: field.kind for field in fields[: len(key)]}
    slots = [Slot(name, "desc" if "desc" in kinds[name].specs and rng.random() < 0.15 else "") for name in kinds]
    partition = _template(rng, slots[: (cut := rng.choice((0, 1, 1)))], kinds, "all")
    row, table = _template(rng, slots[cut:], kinds, rng.choice(("", "row"))), "Wholes"
    if rng.random() < 0.3:  # beside what they are over
        row, table = (("whole",), *(row if slots_of(row) else ())), of.table
    record = Record("Whole", table, tuple(fields), partition, row, measures=measures, over=of.name)
    indexes = [_index(rng, record, f"whole{number}") for number in range(rng.choice((0, 1, 2)))]
    if rng.random() < 0.7:  # (by what is maintained, often)
        slots = [Slot(rng.choice(fields[own:]).name), Slot(rng.choice(fields[:own]).name)]
        kinds = {field.name: field.kind for field in fields}
        if all(kinds[slot.field].specs for slot in slots):
            cut = rng.choice((0, 1, 1, 2))
            templates = _template(rng, slots[:cut], kinds, "all"), _template(rng, slots[cut:], kinds, "")
            indexes.append(Index("by_whole", *templates, every=rng.random() < 0.3))
    record = attrs.evolve(record, indexes=tuple(indexes))
    return attrs.evolve(model, records=(of, record, *model.records[1:]))


def with_undeclared(rng: random.Random, model: Model) -> Model:
    """Return a model whose first class has indexes over undeclared properties."""
    first = model.records[0]
    held = next((field for field in first.fields if field.kind is EXTRA), Field("y", EXTRA, rng.random() < 0.3))
    texts = rng.choice(STR.near)
    pool = [{name: rng.choice((*texts, 2)) for name in "wv" if rng.random() < 0.8} for _ in range(6)]
    field = attrs.evolve(held, stored=False, pool=tuple(tm.Extra(**one) for one in pool))
    kinds = {one.name: one.kind for one in first.fields if one.kind.specs and not one.kind.element}
    kinds |= {f"{field.name}[{step}]": STR for step in EXTRA.parts}
    indexes = list(first.indexes)
    for name in ("of_more", "of_others")[: rng.choice((1, 1, 2))]:
        slots = [Slot(f"{field.name}[{step}]") for step in rng.sample("wv", rng.choice((1, 1, 2)))]
        slots += [Slot(one) for one in rng.sample(list(kinds), rng.choice((0, 0, 1)))]
        slots = list(dict.fromkeys(slots))
        rng.shuffle(slots)
        slots = [
            attrs.evolve(one, spec=rng.choice(kinds[one.field].specs)) if rng.random() < 0.4 else one for one in slots
        ]
        cut = rng.choice((0, 1, 1, 2))
        templates = _template(rng, slots[:cut], kinds, "all"), _template(rng, slots[cut:], kinds, "")
        indexes.append(Index(name, *templates, every=rng.random() < 0.3, unique=rng.random() < 0.1))
    fields = (*(one for one in first.fields if one != held), field)
    first = attrs.evolve(first, fields=fields, indexes=tuple(indexes))
    return attrs.evolve(model, records=(first, *model.records[1:]))


def with_ending(rng: random.Random, model: Model) -> Model:
    """Return a model of entities alone whose first class ends: at a time that it has, or at one more."""
    first = model.records[0]
    times = [
        field
        for field in first.fields
        if field.kind in (MOMENT, MOMENT_MS, MOMENT_S) and field.name not in first.key_fields and not field.stored
    ]
    own = rng.choice(times) if times and rng.random() < 0.5 else Field("ends", MOMENT, rng.random() < 0.6)
    later = [one for one in own.kind.pool if one > NOW]
    later += [NOW + datetime.timedelta(seconds=seconds) for seconds in (1, 1, 86_400, 10_000_000)]
    field = attrs.evolve(own, expires=True, default=False, pool=tuple(rng.sample(later, 3)))
    fields = tuple(field if one is own else one for one in first.fields)
    ending = attrs.evolve(first, fields=fields if own in first.fields else (*first.fields, field))
    others = [attrs.evolve(one, of=None) for one in model.records[1:] if one.of is None and one.over is None]
    return attrs.evolve(model, records=(ending, *others))


def ended_rows(
    rng: random.Random, model: Model, rows: list[tuple[str, dict[str, Any]]]
) -> list[tuple[str, dict[str, Any]]]:
    """Return rows of which some have ended, and some of those that have ended before others of their keys came."""
    first = model.records[0]
    (field,) = [one.name for one in first.fields if one.expires]
    pasts = [NOW, NOW - datetime.timedelta(seconds=1), NOW - datetime.timedelta(days=400)]
    ended = [
        (name, {**row, field: rng.choice(pasts)}) for name, row in rows if name == first.name and rng.random() < 0.6
    ]
    return [*ended, *[one for one in rows if rng.random() < 0.7]]


def with_rules(rng: random.Random, model: Model) -> Model:
    """Return a model whose first class asks something of its values: each by itself, or several together."""
    first = model.records[0]
    numbers = [one for one in first.fields if one.kind in (INT, COUNTED, INT32) and min(one.pool) not in _LEAST]
    chosen = [one for one in numbers if rng.random() < 0.6]
    fields = [attrs.evolve(one, spelling=rng.choice(SPELLINGS)) if one in chosen else one for one in first.fields]
    if all(one.name in first.key_fields for one in chosen):  # (of those that can be assigned to, one at least)
        pool = rng.choice(((0, 1, 2), (7, 42), (-10, 10)))
        fields.append(Field("least", INT, rng.random() < 0.3, pool=pool, spelling=rng.choice(SPELLINGS)))
    scalars = [
        one for one in fields if one.kind in SCALARS and not one.kind.precision and one.name not in first.measures
    ]
    if not scalars or rng.random() < 0.2:
        return attrs.evolve(model, records=(attrs.evolve(first, fields=tuple(fields)), *model.records[1:]))
    of = rng.choice([one for one in scalars if one.name not in first.key_fields] or scalars)
    rule = Rule(of.name, "size", 9)
    made = {rule.value(clean(one, of.kind)) for one in (*of.pool, None)}
    rule = attrs.evolve(rule, never=rng.choice([one for one in range(5) if one not in made] or [9]))
    fields.append(Field("size", INT, default=True, pool=(0, 1, 2, 3, 4)))
    index = Index("of_rule", ((Slot("size"),),), (("",),))
    first = attrs.evolve(first, fields=tuple(fields), indexes=(*first.indexes, index), rule=rule)
    return attrs.evolve(model, records=(first, *model.records[1:]))


_LEAST = (-(2**63), -(2**31))
"""What nothing can be below, of numbers with a length."""


def with_stamp(rng: random.Random, model: Model) -> Model:
    """Return a model whose first class has a field that each write sets, in indexes of its own and of others."""
    first = model.records[0]
    kind = rng.choice([one for one in SCALARS if not one.precision])
    stamp = Field("stamp", kind, pool=(rng.choice(kind.pool),), on_write=True)
    other = rng.choice([one for one in first.fields if one.name in first.key_fields])
    key = ((Slot(other.name),),)
    index: Template = ((Slot("stamp"),),) if kind.specs else key
    of_stamp = Index("of_stamp", *rng.choice(((index, key), (key, index))), include=("stamp",))
    first = attrs.evolve(first, fields=(*first.fields, stamp), indexes=(*first.indexes, of_stamp))
    return attrs.evolve(model, records=(first, *model.records[1:]))


def with_options(rng: random.Random, model: Model) -> Model:
    """Return a model whose entities are written in every way, and whose classes often are variants."""
    records = tuple([attrs.evolve(one, options=one.of is None) for one in model.records])
    is_variant = rng.random() < 0.4 and all(one.over is None for one in records)
    return Model(records, variant="7" if is_variant else "")


def with_large(rng: random.Random, model: Model) -> Model:
    """Return a model whose first class has a field of large values, and indexes that name what they include."""
    first = model.records[0]
    names = tuple([field.name for field in first.fields])
    indexes = [attrs.evolve(one, every=False, include=names) if one.every else one for one in first.indexes]
    large = Field("large", LARGE, rng.random() < 0.4, pool=tuple(rng.sample(LARGE.pool, 4)))
    first = attrs.evolve(first, fields=(*first.fields, large), indexes=tuple(indexes))
    return attrs.evolve(model, records=(first, *model.records[1:]))


def _is_there(record: Record, operand: Operand | Calculation | None) -> bool:
    return isinstance(operand, Operand) and not operand.step and not record.field(operand.field).optional


def _fields(rng: random.Random, shared: Sequence[Field], names: Iterator[str], scalars: Sequence[Kind]) -> list[Field]:
    fields = list(shared)
    for name in names:
        if len(fields) >= 2 and rng.random() < 0.15 + 0.1 * len(fields):
            break
        kind = rng.choice(NESTED if fields and rng.random() < 0.25 else scalars)
        if kind.annotation == "tm.Extra" and any(field.kind is kind for field in fields):
            continue
        optional = bool(fields) and kind.annotation != "tm.Extra" and rng.random() < 0.3
        values = rng.choice(kind.near) if kind.near and rng.random() < 0.6 else kind.pool
        pool = tuple(rng.sample(values, min(len(values), rng.choice((2, 3, 3, 4, 6)) if values is kind.pool else 5)))
        fields.append(
            Field(
                name, kind, optional, stored=rng.random() < 0.15, default=bool(fields) and rng.random() < 0.4, pool=pool
            )
        )
    return fields


def _entity(
    rng: random.Random,
    name: str,
    names: Iterator[str],
    shared: Sequence[Field],
    scalars: Sequence[Kind],
    beside: Record | None = None,
) -> Record:
    own = iter("abcdefgh" if beside is None else "opqrstu")
    fields = _fields(rng, shared, own, scalars)
    keyable = [field for field in fields if field.kind.specs and not field.optional]
    if not keyable:
        fields.append(Field(next(own, "x"), INT, pool=INT.pool[:4]))
        keyable = fields[-1:]
    partition, row = _key(rng, keyable)
    if beside is not None:
        row = (("second",), *(row if slots_of(row) else ()))
        if {slot.field for slot in slots_of(beside.partition)} <= {
            field.name for field in keyable
        } and rng.random() < 0.7:
            partition = beside.partition
            cut = {field.name for field in keyable if field.kind.precision}
            plain = {
                slot.field
                for slot in slots_of(partition, row)
                if not (
                    slot.spec.startswith("shard") or (slot.field in cut and (slot.spec == "hash" or "%" in slot.spec))
                )
            }
            named = dict.fromkeys(slot.field for slot in slots_of(partition, row))
            row = (*row, *((Slot(name),) for name in named if name not in plain))
    record = Record(name, "Things", tuple(fields), partition, row)
    indexes = [_index(rng, record, next(names)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
    return attrs.evolve(record, indexes=tuple(indexes))


def _key(rng: random.Random, keyable: Sequence[Field]) -> tuple[Template, Template]:
    chosen = rng.sample(keyable, min(len(keyable), rng.choice((1, 2, 2, 3, 3))))
    slots = [Slot(field.name, rng.choice(field.kind.specs) if rng.random() < 0.35 else "") for field in chosen]
    for slot in list(slots):  # (a shard tells no values apart; a time cut down, or a fold, often stands beside it)
        if slot.spec.startswith("shard") or (slot.spec and rng.random() < 0.5):
            slots.append(Slot(slot.field))
    kinds = {field.name: field.kind for field in keyable}
    slots = _in_pieces(rng, slots, kinds)
    if rng.random() < 0.25:
        slots = _spread(rng, slots, kinds)
    cut = rng.randrange(len(slots) + 1) if rng.random() < 0.3 else min(1, len(slots))
    return _template(rng, slots[:cut], kinds, "all"), _template(rng, slots[cut:], kinds, rng.choice(("", "row")))


def _in_pieces(rng: random.Random, slots: Sequence[Slot], kinds: Mapping[str, Kind]) -> list[Slot]:
    """Return slots with some times taken to pieces."""
    found: list[Slot] = []
    for slot in slots:
        if not slot.spec and (pieces := kinds[slot.field].pieces) and rng.random() < 0.5:
            found += [Slot(slot.field, spec) for spec in rng.choice(pieces)]
        else:
            found.append(slot)
    return found


def _spread(rng: random.Random, slots: list[Slot], kinds: Mapping[str, Kind]) -> list[Slot]:
    """Return slots behind one of a shard, or of a time cut down, of a field that stands among them."""
    lossy = [
        (slot.field, spec) for slot in slots for spec in kinds[slot.field].specs if spec.startswith(("shard", "%"))
    ]
    plain = [Slot(slot.field) if slot.spec.startswith(("shard", "%")) else slot for slot in slots]
    return [Slot(*rng.choice(lossy)), *plain] if lossy else slots


def _template(rng: random.Random, slots: Sequence[Slot], kinds: Mapping[str, Kind], constant: str) -> Template:
    if not slots:
        return ((constant,) if constant else (),)
    components: list[list[Slot]] = [[slots[0]]]
    for slot in slots[1:]:
        ends = [kinds[one.field].ends(one.spec) for one in (components[-1][-1], slot)]
        if rng.random() < (0.7 if "free" in ends and "fixed" in ends else 0.3):
            components[-1].append(slot)
        else:
            components.append([slot])
    for some in components:
        if rng.random() < 0.7:  # (what has no end of its own goes on in the eyes of who does not know what follows)
            some.sort(key=lambda slot: ("free", "self", "fixed").index(kinds[slot.field].ends(slot.spec)))
    made = [_component(rng, some, kinds) for some in components]
    if rng.random() < 0.08:
        made.insert(rng.randrange(len(made) + 1), (rng.choice(("of", "x-")),))
    return tuple(made)


def _component(rng: random.Random, slots: Sequence[Slot], kinds: Mapping[str, Kind]) -> Component:
    """Return slots with literals around them, so that each can be found again."""
    parts: list[str | Slot] = ["n-"] if rng.random() < 0.1 else []
    for at, slot in enumerate(slots):
        parts.append(slot)
        rest = [kinds[one.field].ends(one.spec) for one in slots[at + 1 :]]
        if rest or rng.random() < 0.08:
            free = kinds[slot.field].ends(slot.spec) == "free"
            literal = rng.choice(("-", "-", "_", ".", ":x"))
            if not free or all(end == "fixed" for end in rest):
                literal = rng.choice((literal, "", "x"))
            if literal:
                parts.append(literal)
    return tuple(parts)


def _index(rng: random.Random, record: Record, name: str) -> Index:
    kinds: dict[str, Kind] = {}
    for field in record.fields:
        if field.kind.specs or field.kind.element:
            kinds[field.name] = field.kind.element or field.kind
        kinds |= {f"{field.name}.{step}": part for step, part in field.kind.parts.items() if part.specs}
    lists = [field.name for field in record.fields if field.kind.element]
    left = rng.choice(lists) if lists else ""
    names = [one for one in kinds if one == left or one not in lists]
    chosen = rng.sample(names, min(len(names), rng.choice((1, 1, 2, 2, 3))))
    if left and rng.random() < 0.7:  # (behind others, often)
        chosen = [one for one in chosen if one != left] + [left]
    slots = [Slot(one, rng.choice(kinds[one].specs) if rng.random() < 0.45 else "") for one in chosen]
    slots = _in_pieces(rng, slots, kinds)
    if slots[0].spec and rng.random() < 0.4:
        slots.append(Slot(slots[0].field))
    elif rng.random() < 0.3:
        slots = _spread(rng, slots, kinds)
    cut = rng.randrange(len(slots) + 1) if rng.random() < 0.5 else 1
    partition, row = _template(rng, slots[:cut], kinds, "all"), _template(rng, slots[cut:], kinds, "")
    if rng.random() < 0.4:
        partition, row = _loose(rng, {one: kinds[one] for one in names}) or (partition, row)
    where = None
    if rng.random() < 0.15:
        scalars = [one for one in record.operands if one.kind.specs]
        where = leaf(rng, rng.choice(scalars), lambda operand: rng.choice(operand.kind.pool), scalars)
    return Index(
        name,
        partition,
        row,
        tuple(field.name for field in record.fields if rng.random() < 0.25) if rng.random() < 0.5 else (),
        every=rng.random() < 0.1,
        where=where,
        unique=rng.random() < 0.12,
    )


def _loose(rng: random.Random, kinds: Mapping[str, Kind]) -> tuple[Template, Template] | None:
    """Return templates whose leading values leave more between their bounds than they say; None if no field gives one."""
    ended = [Slot(name, spec) for name, kind in kinds.items() for spec in kind.specs if kind.ends(spec) == "fixed"]
    free = [Slot(name) for name, kind in kinds.items() if kind.width == "free"]
    shards = [slot for slot in ended if slot.spec.startswith("shard")]
    every: Template = (("all",),)
    found: list[tuple[Template, Template]] = []
    if free and ended:
        component = (rng.choice(free), rng.choice(("", "-")), rng.choice(ended))
        found += [((component,), (("",),)), (every, (component,))]
    cuts = [Slot(name, spec) for name, kind in kinds.items() for spec in kind.specs if spec == "fold" or "%" in spec]
    if cuts:
        found += [(((rng.choice(cuts),),), (("",),))] * 3
    if shards:
        found.append((every, ((rng.choice(shards),), (Slot(rng.choice(list(kinds))),))))
    return rng.choice(found) if found else None


def _aggregate(rng: random.Random, name: str, of: Record, names: Iterator[str]) -> Record | None:
    known = of.operands
    groups = [one for one in known if one.kind.specs]
    chosen = rng.sample(groups, min(len(groups), rng.choice((1, 1, 2))))
    lists = [one for one in known if one.kind.element is not None and not one.step]
    if lists and rng.random() < 0.6:
        several = rng.choice(lists)
        assert several.kind.element is not None
        chosen[-1] = attrs.evolve(several, kind=several.kind.element, cut="each")
    kinds = [one.kind.uncut or one.kind for one in chosen]  # (a field of an aggregate cuts nothing)
    fields = [Field(field, kind, pool=kind.pool) for field, kind in zip("gh", kinds, strict=False)]
    measures = {field: Measure("group_by", one) for field, one in zip("gh", chosen, strict=False)}

    def some_where(chance: float) -> Condition | None:
        if rng.random() > chance:
            return None
        return leaf(rng, rng.choice(groups), lambda operand: rng.choice(operand.kind.pool), groups)

    huge = [one for one in known if of.field(one.field).is_huge]
    for field in "mnpqr"[: rng.choice((1, 2, 3, 4))]:
        verb = rng.choice(("count", "count", "sum", "sum", "avg", "min", "max", "min_ever", "max_ever"))
        fit = [one for one in known if _fits(verb, one)]
        if huge and rng.random() < 0.6:
            verb, fit = "sum", huge
        operand: Operand | Calculation | None = rng.choice(fit) if fit else None
        if rng.random() < 0.3:
            operand, verb = random_calculation(rng, known), rng.choice(("sum", "sum", "avg", "count"))
        elif verb == "count" and rng.random() < 0.7:
            operand = None
        if operand is None:
            verb = "count"
        kind = INT
        if verb != "count" and operand is not None:
            kind = operand.kind.uncut or operand.kind
            if kind in (INT, COUNTED, INT32) and verb in ("sum", "avg"):
                kind = FLOAT if verb == "avg" else INT
        measures[field] = Measure(verb, operand, some_where(0.2))
        fields.append(Field(field, kind, optional=verb != "count", pool=kind.pool))
    slots = [Slot(field.name, "desc" if "desc" in field.kind.specs and rng.random() < 0.15 else "") for field in fields]
    slots = slots[: len(chosen)]
    rng.shuffle(slots)
    slot_kinds = {field.name: field.kind for field in fields}
    cut = rng.choice((0, 1, 1))
    partition, row = (
        _template(rng, slots[:cut], slot_kinds, "all"),
        _template(rng, slots[cut:], slot_kinds, rng.choice(("", "row"))),
    )
    table = name
    if rng.random() < 0.15:  # among the entities
        table, row = of.table, ((name.lower(),), *(row if slots_of(row) else ()))
    record = Record(name, table, tuple(fields), partition, row, (), of.name, some_where(0.2), measures)
    if any(isinstance(one.operand, Calculation) and one.operand.kind is INT for one in measures.values()):
        return record  # (a sum of products can have more digits than a key)
    indexes = [_index(rng, record, next(names)) for _ in range(rng.choice((0, 0, 1, 2)))]
    return attrs.evolve(record, indexes=tuple(indexes))


def _fits(verb: str, operand: Operand) -> bool:
    if verb == "count":
        return not operand.cut
    if verb in ("sum", "avg"):
        return operand.kind.summed
    return operand.kind.ordered and bool(operand.kind.specs)


def as_told(model: Model) -> Model:
    """Return a model without what an account tells otherwise: the time of a group, and None from no undeclared property."""
    records = [
        attrs.evolve(
            record,
            timed=record.timed and record.of is None,
            fields=tuple(attrs.evolve(one, optional=False) if one.kind is EXTRA else one for one in record.fields),
        )
        for record in model.records
    ]
    return attrs.evolve(model, records=tuple(records))
