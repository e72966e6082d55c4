"""Random questions: queries as data that is written out as source, and what is asked of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import attrs

from .conditions import (
    Both,
    Calculation,
    Compare,
    Condition,
    Contains,
    Either,
    In,
    Operand,
    StartsWith,
    leaf,
    parts_of,
    random_calculation,
    random_condition,
)
from .kinds import ANY, COUNTED, HIERARCHY, STR, WRITTEN, text_of
from .models import Field, Record, slots_of
from .oracle import State, value

Step: TypeAlias = tuple[Operand, bool]
LIST_VERBS = ("append", "extend", "discard")


@attrs.frozen
class Question:
    """What is asked for."""

    of: tuple[str, ...]
    """Classes; several make a mixed query."""
    index: str = ""
    given: tuple[Any, ...] = ()
    """The leading values that the index is asked with, by name."""
    where: tuple[tuple[str, Condition], ...] = ()
    """Each with the class that it is written with."""
    order: tuple[Step, ...] = ()
    backwards: bool = False
    limit: int | None = None
    scan: bool = True

    def text(self, style: str = "") -> str:
        """Return source of the query; the style is how its conditions are joined."""
        text = f"store.query({', '.join(self.of)})"
        if self.index:
            text = f"store.query({self.of[0]}.{self.index}({', '.join(map(text_of, self.given))}))"
        conditions = [condition.text(name) for name, condition in self.where]
        match style:
            case "one by one":
                text += "".join(f".where({condition})" for condition in conditions)
            case "reversed":
                text += f".where({', '.join(reversed(conditions))})"
            case "&":
                text += f".where({' & '.join(conditions)})"
            case _ if conditions:
                text += f".where({', '.join(conditions)})"
        if self.order:
            steps = [operand.text(self.of[-1]) + (".desc()" if down else "") for operand, down in self.order]
            text += f".order_by({', '.join(steps)})"
        text += ".backwards()" if self.backwards else ""
        text += "" if self.limit is None else f".limit({self.limit})"
        return text + (".allow_scan()" if self.scan else "")


@attrs.frozen
class Assignment:
    """What an update does to a field."""

    field: str
    verb: str
    """``set`` a value, or ``copy`` a field, or ``add`` (to what may be missing) or ``plus`` a value; or ``remove``.

    Of a list: ``append``, ``extend``, ``discard``.
    """
    value: Any
    part: Operand | None = None
    """Of the field, if that is all that changes."""
    place: int | None = None
    """Of an element of a list, which is ``set`` or ``remove``d."""

    @property
    def is_whole(self) -> bool:
        """Whether it says what the whole field becomes."""
        return self.verb == "set" and self.part is None and self.place is None

    @property
    def named(self) -> bool:
        """Whether it is written with a keyword."""
        return self.part is None and self.place is None and self.verb in ("set", "copy", "plus")

    def text(self, name: str) -> str:
        if self.place is not None or self.verb in LIST_VERBS:
            target = f"{name}.{self.field}" + ("" if self.place is None else f"[{self.place}]")
            return f"{target}.{self.verb}({'' if self.verb == 'remove' else text_of(self.value)})"
        if self.part is not None:
            given = "" if self.verb == "remove" else text_of(self.value)
            return f"{self.part.text(name)}.{self.verb}({given})"
        match self.verb:
            case "set":
                return f"{self.field}={text_of(self.value)}"
            case "copy":
                return f"{self.field}={name}.{self.value}"
            case "plus":
                return f"{self.field}={name}.{self.field} + {text_of(self.value)}"
        return f"{name}.{self.field}.add({text_of(self.value)})"


@attrs.frozen
class Ask:
    """What is asked of a query."""

    verb: str
    operands: tuple[Operand | Calculation, ...] = ()
    """What is selected; what is summed up, and what by."""
    total: str = ""
    size: int = 0
    style: str = ""
    assignment: Assignment | None = None
    how: str = ""
    values: tuple[Any, ...] = ()
    """Of the operands, which fix a partition."""

    def text(self, name: str) -> str:
        """Return source, in which ``q`` is the query, of one class or first of several."""
        fields = [operand.text(name) for operand in self.operands]
        match self.verb:
            case "list":
                return "list(q)"
            case "pages":
                return f"[one for page in islice(q.pages({self.size}), 99) for one in page.items]"
            case "budget":
                return "list(q.budget(examined=100_000))"
            case "select" | "first selected" | "paged selected":
                text = f"q.select({', '.join(fields)})"
                if self.verb == "paged selected":
                    return f"[one for page in islice({text}.pages({self.size}), 99) for one in page.items]"
                return f"list({text})" if self.verb == "select" else f"{text}.first()"
            case "total":
                return f"q.{self.total}({', '.join(fields)})"
            case "groups":
                by = fields[1:] if self.total != "count" else fields
                return f"q.group_by({', '.join(by)}).{self.total}({', '.join(fields[:1]) if self.total != 'count' else ''})"
            case "partition":
                pairs = zip(fields, self.values, strict=True)
                return f"list(store.partition({', '.join(f'{field} == {text_of(one)}' for field, one in pairs)}))"
            case "every plan":
                return "[(one.explain().path, list(one)) for one in forced(q)]"
            case "parts":
                return f"[[*part] for part in q.split({self.size})]"
            case "nothing":
                return "list(q.limit(0))"
            case "columns":
                return f"q.select({', '.join(fields)}).columns()" if fields else "q.columns()"
            case "arrow":
                return f"q.select({', '.join(fields)}).to_arrow().to_pylist()"
            case "pairs":
                return f"list(q.with_({self.how}, by=({', '.join(fields)},)))"
            case "json":
                return f"[(one, *back_and_forth({name}, one)) for one in q]"
            case "partitions":
                return f"[(one.key, one.values) for one in store.partitions({name})]"
            case "update":
                assert self.assignment is not None
                if self.how == "function":
                    return f"q.update(lambda one: one.replace({self.assignment.text(name)}))"
                return f"q.update({self.assignment.text(name)})"
            case "delete":
                return "store.delete_many(q)" if self.how == "many" else "q.delete()"
        return f"q.{self.verb}()"


# ---------------------------------------------------------------------------------------------- random


class _Questions:
    """Draws questions about a store whose rows are known."""

    def __init__(self, rng: random.Random, state: State) -> None:
        self.rng = rng
        self.state = state
        self.model = state.model

    def values(self, record: Record) -> Any:
        """Return what draws values: mostly such as there are."""
        rows = self.state.rows(record.name)

        def draw(operand: Operand) -> Any:
            chance = self.rng.random()
            if rows and chance < 0.7:
                held = value(self.rng.choice(rows), attrs.evolve(operand, kind=record.field(operand.field).kind))
                if isinstance(held, list | tuple) and operand.kind.element is None:
                    held = self.rng.choice(held) if held else None
                if held is not None and can_be_asked(held):
                    return held
            field = record.field(operand.field)
            pool = field.pool if chance < 0.9 and field.kind is operand.kind else operand.kind.pool
            if operand.cut.startswith("floor") and chance > 0.85:
                return self.rng.choice(pool)  # (no step begins with most of them)
            if operand.cut:
                return value({operand.field: self.rng.choice(field.kind.pool)}, operand)
            return self.rng.choice(pool)

        return draw

    def question(self) -> Question:
        rng = self.rng
        record = rng.choice([*self.model.records, self.model.records[0]])
        several = [one for one in self.model.entities if one.table == record.table]
        if len(several) > 1 and record.of is None and rng.random() < 0.35:
            return self.mixed(several)
        known = record.operands
        draw = self.values(record)
        index = rng.choice(record.indexes) if record.indexes and rng.random() < 0.75 else None
        slots = slots_of(record.partition, record.row) if index is None else slots_of(index.partition, index.row)
        path = [record.operand(name) for name in dict.fromkeys(slot.field for slot in slots)]
        question = Question((record.name,), scan=rng.random() < 0.7)
        where: list[Condition] = []
        ordered = 0.55
        if rng.random() < 0.12:
            return attrs.evolve(self.side_by_side(record, path, draw), scan=question.scan)
        if index is not None and rng.random() < 0.45:
            names = index.arguments
            given = [draw(record.operand(name)) for name in names[: rng.choice((0, 1, 1, 2, len(names)))]]
            undeclared = [record.operand(name).kind is ANY for name in names]  # (their index has texts only)
            given = [str(one) if free else one for one, free in zip(given, undeclared, strict=False)]
            question = attrs.evolve(question, index=index.name, given=tuple(given))
            if given and rng.random() < 0.6:  # (in the order of what it is called with: its slots may tell less)
                path, ordered = path[: len(given)], 0.9
        elif rng.random() < 0.85:
            where += self.along(record, path, draw)
            if index is not None and index.where is not None and rng.random() < 0.7:
                where.append(index.where)
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            where.append(random_condition(rng, known, draw))
        rng.shuffle(where)
        order = self.order(record, path, ordered)
        return attrs.evolve(
            question,
            where=tuple((record.name, condition) for condition in where),
            order=order,
            limit=rng.choice((None, None, None, 1, 2, 3, 5)),
        )

    def side_by_side(self, record: Record, path: Sequence[Operand], draw: Any) -> Question:
        """Return a question that fixes some of a path in several ways, and orders by what follows or by anything."""
        rng = self.rng
        count = rng.choice((1, 1, 2, len(path)))
        where = [
            (record.name, In(one, tuple(draw(one) for _ in range(rng.choice((1, 2, 3, 4))))))
            for one in path[:count]
            if record.field(one.field).kind.element is None
        ]
        order = self.order(record, path[count:], 0.8)
        return Question((record.name,), where=tuple(where), order=order, limit=rng.choice((None, None, 1, 2)))

    def along(self, record: Record, path: Sequence[Operand], draw: Any) -> Iterator[Condition]:
        """Yield conditions that go along a path: some are fixed, in one of several ways; then one is compared."""
        rng = self.rng
        lists = any(record.field(one.field).kind.element for one in path)
        for operand in path:
            several = record.field(operand.field).kind.element is not None
            target = attrs.evolve(operand, kind=record.field(operand.field).kind) if several else operand

            def equal(target: Operand = target, operand: Operand = operand, several: bool = several) -> Condition:
                return Contains(target, draw(operand)) if several else Compare(target, "==", draw(operand))

            if several and rng.random() < 0.15:  # (the list as a whole, too)
                yield leaf(rng, target, draw)
            chance = rng.random()
            if target.kind is HIERARCHY and chance < 0.7:
                yield leaf(rng, target, draw)
                continue
            if lists and not several and rng.random() < 0.3:
                chance = 0.9  # (a range ends the bounds: a list behind it is a filter)
            if chance < 0.42:
                yield equal()
            elif chance < 0.58:
                if several or rng.random() < 0.3:
                    yield Either(equal(), equal())
                else:
                    yield In(target, tuple(draw(operand) for _ in range(rng.choice((0, 1, 2, 2, 3)))))
            elif chance < 0.76 and operand.kind is STR and not several:
                text = draw(operand)
                yield StartsWith(target, text[: rng.choice((1, 1, 2, len(text)))])
                if rng.random() < 0.7:
                    return
            elif chance < 0.92:
                if operand.kind.ordered and not several:
                    one = Compare(target, rng.choice((">", ">=")), draw(operand))
                    other = Compare(target, rng.choice(("<", "<=")), draw(operand))
                    yield from rng.choice(((one,), (other,), (one, other), (Both(one, other),), (Either(one, other),)))
                    if lists or rng.random() < 0.5:
                        continue
                    return
                yield leaf(rng, target, draw)
            else:
                return

    def walk(self, record: Record) -> Question:
        """Return a question of one or several values of a text, and of times, in the order of those."""
        rng, draw = self.rng, self.values(record)
        if rng.random() < 0.15:  # (of all; so parts begin and end anywhere)
            return Question((record.name,))
        path = [record.operand(slot.field) for slot in slots_of(record.partition, record.row)]
        time = next((one for one in path if one.kind.ordered and "desc" in one.kind.specs), None)
        where: list[Condition] = []
        if path[0].kind is STR:
            several = In(path[0], tuple(draw(path[0]) for _ in range(rng.choice((1, 2, 3)))))
            where.append(several if rng.random() < 0.3 else Compare(path[0], "==", draw(path[0])))
        if time is not None:
            for ops in rng.choice(((), ((">", ">="),), (("<", "<="),), ((">", ">="), ("<", "<=")))):
                where.append(Compare(time, rng.choice(ops), draw(time)))
        if rng.random() < 0.2:
            where.append(random_condition(rng, record.operands, draw))
        order = () if time is None or rng.random() < 0.3 else ((time, rng.random() < 0.6),)
        conditions = tuple((record.name, condition) for condition in where)
        return Question((record.name,), where=conditions, order=order, limit=rng.choice((None, None, 1, 3)))

    def order(self, record: Record, path: Sequence[Operand], chance: float) -> tuple[Step, ...]:
        """Return an order, or by chance none: often that of a path, or of a part of it."""
        rng = self.rng
        if rng.random() >= chance:
            return ()
        known = [one for one in record.operands if one.kind.ordered]
        sums = [one for one in known if one.field in record.measures and record.measures[one.field].verb == "sum"]
        if sums and rng.random() < 0.4:
            return ((rng.choice(sums), rng.random() < 0.5),)
        ordered = [one for one in path if one.kind.ordered and record.field(one.field).kind.element is None]
        if ordered and rng.random() < 0.65:
            start = rng.randrange(len(ordered))
            chosen = ordered[start : start + rng.choice((1, 1, 2))]
            down = rng.random() < 0.5
            steps = [(one, down if rng.random() < 0.85 else not down) for one in chosen]
        else:
            steps = []
        if known and (not steps or rng.random() < 0.25):
            steps.append((rng.choice(known), rng.random() < 0.5))
        return tuple({(one.field, one.step, one.cut): (one, down) for one, down in reversed(steps)}.values())[::-1]

    def mixed(self, records: Sequence[Record]) -> Question:
        rng = self.rng
        where: list[tuple[str, Condition]] = []
        first = records[0]
        others = [{one.field for one in record.operands} for record in records[1:]]
        shared = [one for one in first.operands if all(one.field in names for names in others)]
        for name in dict.fromkeys(slot.field for slot in slots_of(first.partition)):
            if rng.random() < 0.7:
                where.append((first.name, leaf(rng, first.operand(name), self.values(first))))
        if rng.random() < 0.6:
            record = rng.choice(records)
            where.append((record.name, random_condition(rng, record.operands, self.values(record))))
        ordered = [one for one in shared if one.kind.ordered]
        order = ((rng.choice(ordered), rng.random() < 0.5),) if ordered and rng.random() < 0.3 else ()
        return Question(
            tuple(record.name for record in records),
            where=tuple(where),
            order=order,
            backwards=not order and rng.random() < 0.3,
            limit=rng.choice((None, None, None, 1, 2, 3)),
        )


def can_be_asked(sum: Any) -> bool:
    """Tell whether a sum fits the type of its field, as what is asked for must."""
    match sum:
        case int():
            return abs(sum) < 2**63
        case Decimal():
            return len(sum.as_tuple().digits) <= 34
    return True


def random_question(rng: random.Random, state: State) -> Question:
    """Return a question."""
    return _Questions(rng, state).question()


def random_walk(rng: random.Random, state: State) -> Question:
    """Return a question of the first class that goes from partition to partition, if it has times."""
    return _Questions(rng, state).walk(state.model.records[0])


def random_asks(rng: random.Random, state: State, question: Question) -> list[Ask]:
    """Return some of all that can be asked of a query, and a partition of its class; a write comes last."""
    asks = [Ask("list"), Ask("list"), Ask("count"), Ask("first"), Ask("exists"), Ask("one_or_none"), Ask("explain")]
    asks += [Ask("pages", size=rng.choice((1, 2, 3, 7))), Ask("budget"), Ask("nothing")]
    if len(question.where) > 1:
        styles = ("one by one", "reversed", "&") if len(question.of) == 1 else ("one by one", "reversed")
        asks.append(Ask("list", style=rng.choice(styles)))
    if len(question.of) > 1:
        return rng.sample(asks, 4)
    record = state.model.record(question.of[0])
    known = record.operands
    if question.order:
        asks.append(Ask("first"))
    selected = dict.fromkeys(one for one, _ in question.order)
    selected |= dict.fromkeys(rng.sample(known, min(len(known), rng.choice((1, 1, 2, 3)))))
    for verb in ("select", "first selected", "paged selected"):
        asks.append(Ask(verb, tuple(selected)[:6], size=rng.choice((1, 2, 5))))
    asks += [Ask("every plan"), *_totals(rng, known)]
    if rng.random() < 0.3 and (fixed := tuple(dict.fromkeys(slot.field for slot in slots_of(record.partition)))):
        operands = tuple(map(record.operand, fixed))
        asks.append(Ask("partition", operands, values=tuple(map(_Questions(rng, state).values(record), operands))))
    chosen = rng.sample(asks, 5)
    if record.of is None and rng.random() < 0.1:
        chosen.append(_write(rng, record))
    return chosen


def random_parts(rng: random.Random, question: Question) -> list[Ask]:
    """Return what is asked of a query that can be split."""
    if question.limit is not None or question.order or rng.random() < 0.5:
        return []
    return [Ask("parts", size=rng.choice((1, 2, 3, 5, 9)))]


def random_views(rng: random.Random, state: State, question: Question) -> list[Ask]:
    """Return, now and then, in what other forms what is found is wanted: columns, JSON; or the partitions of its class."""
    chance = rng.random()
    if len(question.of) > 1 or chance > 0.4:
        return []
    record = state.model.record(question.of[0])
    if chance < 0.1:
        return [Ask("partitions")]
    if chance < 0.2:
        return [Ask("json")] if record.of is None else []
    if chance < 0.25:
        return [Ask("columns")]
    known = dict.fromkeys(one for one, _ in question.order)
    arrow = chance < 0.33
    more = [one for one in record.operands if not arrow or one.kind.specs]
    known |= dict.fromkeys(rng.sample(more, min(len(more), rng.choice((1, 2, 3)))))
    if arrow and any(not one.kind.specs or one.kind is HIERARCHY for one in known):
        return []  # (what is nested is text there)
    return [Ask("arrow" if arrow else "columns", tuple(known)[:6])]


def random_changes(rng: random.Random, state: State, question: Question) -> list[Ask]:
    """Return an update of a part of a field, now and then, where one has parts."""
    record = state.model.record(question.of[0])
    if len(question.of) > 1 or record.of is not None or rng.random() < 0.85:
        return []
    assignment = random_part(rng, record)
    return [] if assignment is None else [Ask("update", assignment=assignment)]


def random_pairs(rng: random.Random, state: State, question: Question) -> list[Ask]:
    """Return, now and then, a question with the entities of a class whose key stands in fields of what is found."""
    record, other = state.model.record(question.of[0]), rng.choice(state.model.entities)
    if len(question.of) > 1 or record.of is not None or rng.random() < 0.7:
        return []
    by: list[Operand] = []
    for name in dict.fromkeys(slot.field for slot in slots_of(other.partition, other.row)):
        alike = [one for one in record.own if one.kind is other.field(name).kind]
        same = [one for one in alike if one.name == name]
        if not alike:
            return []
        by.append(record.operand((same if same and rng.random() < 0.7 else alike)[0].name))
    return (
        []
        if not by
        else [Ask("pairs", tuple([attrs.evolve(one, kind=record.field(one.field).kind) for one in by]), how=other.name)]
    )


def random_element(rng: random.Random, record: Record) -> Assignment | None:
    """Return a change of elements of a list; None if no field has some."""
    lists = [(one.name, one.kind.element) for one in _free(record) if one.kind.element is not None]
    if not lists:
        return None
    name, element = rng.choice(lists)
    values = [one for one in element.pool if not isinstance(one, int) or abs(one) < 2**31]
    verb = rng.choice((*LIST_VERBS, "append", "set", "remove"))
    place = rng.choice((0, 0, 1, -1, 5)) if verb in ("set", "remove") else None
    several = rng.sample(values, rng.choice((0, 1, 2)))
    value = None if verb == "remove" else several if verb == "extend" else rng.choice(values)
    return Assignment(name, verb, value, place=place)


def random_part(rng: random.Random, record: Record) -> Assignment | None:
    """Return an assignment to a part of a field; None if no field has parts."""
    parts = [one for one in record.operands if one.step and one.field not in record.measures]
    if not parts:
        return None
    part = rng.choice(parts)
    verbs = ["set"] if part.kind is STR else ["set", "add"]
    if len(part.step) == 1:  # (an entry; a class keeps its members)
        verbs.append("remove")
    verb = rng.choice(verbs)
    numbers, texts = (1, -1, 7), ("x", "x-y", "")
    values: tuple[Any, ...] = numbers if part.kind is not STR else texts
    if part.kind is ANY:
        values = (*numbers, 0.5) if verb == "add" else (*texts, *texts, 2, 0.5)
    return Assignment(part.field, verb, rng.choice(values), part)


def _totals(rng: random.Random, known: Sequence[Operand]) -> Iterator[Ask]:
    summed = [one for one in known if one.kind.summed]
    ordered = [one for one in known if one.kind.ordered]
    grouped = [one for one in known if one.kind.specs and one.field != WRITTEN]
    wanted: list[tuple[str, tuple[Operand | Calculation, ...]]] = [("count", ())]
    if (calculation := random_calculation(rng, summed)) is not None and rng.random() < 0.3:
        wanted += [(rng.choice(("sum", "avg")), (calculation,))]
    if summed:
        wanted += [(rng.choice(("sum", "avg")), (rng.choice(summed),))]
    if ordered:
        wanted += [(rng.choice(("min", "max")), (rng.choice(ordered),))]
    for verb, operands in wanted:
        if operands:
            yield Ask("total", operands, verb)
        if grouped and rng.random() < 0.5:
            by = rng.sample(grouped, min(len(grouped), rng.choice((1, 1, 2))))
            yield Ask("groups", (*operands, *by), verb)


def _write(rng: random.Random, record: Record) -> Ask:
    if not _free(record) or rng.random() < 0.25:
        return Ask("delete", how=rng.choice(("", "many")))
    field = _any_of(rng, _free(record))
    how = rng.choice(("", "", "function"))
    return Ask("update", assignment=_assigned(rng, record, field, plain=bool(how)), how=how)


def random_assignment(rng: random.Random, record: Record) -> Assignment | None:
    """Return an assignment to a field; None if all are in the key."""
    free = _free(record)
    return _assigned(rng, record, _any_of(rng, free), plain=False) if free else None


def _free(record: Record) -> list[Field]:
    fixed = record.key_fields.union([field.name for field in record.own if field.expires or field.on_write])
    return [field for field in record.own if field.name not in fixed]


def _any_of(rng: random.Random, free: list[Field]) -> Field:
    """Return a field: of two, one that takes not every value."""
    bound = [field for field in free if field.least is not None]
    return rng.choice(bound if bound and rng.random() < 0.5 else free)


def _assigned(rng: random.Random, record: Record, field: Field, *, plain: bool) -> Assignment:
    alike = [one for one in record.fields if one.kind is field.kind and one != field and one.optional <= field.optional]
    if field.least is not None and rng.random() < 0.6:
        return Assignment(field.name, "set", field.least + rng.choice((-1, 0, 1)))
    if field.kind.summed and field.kind is not COUNTED and rng.random() < 0.5 and not plain:
        return Assignment(field.name, rng.choice(("add", "plus")), rng.choice(_amounts(field)))
    if alike and rng.random() < 0.4 and not plain:
        return Assignment(field.name, "copy", rng.choice(alike).name)
    return Assignment(field.name, "set", rng.choice([*field.pool, *([None] if field.optional else [])]))


def _amounts(field: Field) -> list[Any]:
    return [one for one in field.kind.pool if one and (not isinstance(one, int) or abs(one) < 2**31)][:5]


# ---------------------------------------------------------------------------------------------- smaller


def smaller(question: Question) -> Iterator[Question]:
    """Yield questions that ask less, to be tried in the place of one."""
    where, order = question.where, question.order
    for at, (name, condition) in enumerate(where):
        yield attrs.evolve(question, where=where[:at] + where[at + 1 :])
        for part in parts_of(condition):
            yield attrs.evolve(question, where=(*where[:at], (name, part), *where[at + 1 :]))
    for at, (operand, descending) in enumerate(order):
        yield attrs.evolve(question, order=order[:at] + order[at + 1 :])
        if descending:
            yield attrs.evolve(question, order=(*order[:at], (operand, False), *order[at + 1 :]))
    if question.limit is not None:
        yield attrs.evolve(question, limit=None)
    if question.given:
        yield attrs.evolve(question, given=question.given[:-1])
    if question.index:
        yield attrs.evolve(question, index="", given=())
    if question.backwards:
        yield attrs.evolve(question, backwards=False)
    if not question.scan:
        yield attrs.evolve(question, scan=True)
