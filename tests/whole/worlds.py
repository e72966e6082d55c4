"""Worlds: programs that write at random what all options of a class say, alone and together, beside a dict of rows.

A world draws classes: what a base lends, what each write sets, what ends, unique values, lists, sets and dicts. Its
programs are versions of one: the older one knows none of these options. Each has a store of the one place, and they take
turns. What every call should do is said here in plain Python.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import attrs

import tablemapper as tm
from tablemapper.engines import locations

START = datetime(2026, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
USERS, IDS = "abc", "1234"
Row: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str]
Failure: TypeAlias = type[Exception]
KEY_FIELDS = ("user", "id")
OPTIONAL = ("ref", "colors", "by", "more", "body")
"""Fields that an older version need not have."""


@attrs.frozen
class Line:
    name: str
    pieces: int = 1


class Refused(Exception):
    """An edit that cannot be."""


@attrs.frozen
class Edit:
    """A change of a field: as source, in which ``C`` is the class, and in Python."""

    field: str
    text: str
    change: Callable[[Row], Any]

    def apply(self, row: Row) -> Row:
        """Return a row after it; raise Refused if there can be none."""
        try:
            return row | {self.field: self.change(row)}
        except IndexError:
            raise Refused from None


def arguments(edits: Iterable[Edit], cls: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return what a verb is called with."""
    names = {"C": cls, "Line": Line, "datetime": datetime, "UTC": UTC}
    found = eval(f"(lambda *some, **more: (some, more))({', '.join(edit.text for edit in edits)})", names)
    return [*found[0]], found[1]


def edited(row: Row, edits: Iterable[Edit]) -> Row:
    """Return a row after edits, each of the row as it was."""
    after = [edit.apply(row) for edit in edits]
    return row | {edit.field: made[edit.field] for edit, made in zip(edits, after, strict=True)}


def canonical(value: Any) -> Any:
    """Return a text that is equal for equal values only."""
    match value:
        case set():
            return f"set {sorted(value)}"
        case tm.Extra() | dict():
            return f"{type(value).__name__} {sorted(value.items())}"
        case str() if len(value) > 100:
            return f"{value[0]} * {len(value)} {zlib.crc32(value.encode())}"
    return repr(value)


def text_of(row: Row) -> str:
    return ", ".join(f"{name}={canonical(row[name])}" for name in sorted(row))


# ---------------------------------------------------------------------------------------------- declarations


@attrs.frozen
class Kind:
    """A class of a program, and what is maintained from it."""

    cls: Any
    expires: bool
    stamps: bool
    per_user: Any = None
    per_tag: Any = None

    @property
    def name(self) -> str:
        return str(self.cls.__name__)

    @property
    def classes(self) -> list[Any]:
        return [one for one in (self.cls, self.per_user, self.per_tag) if one is not None]

    def variant(self, name: str) -> Kind:
        per_user, per_tag = (one and one.variant(name) for one in (self.per_user, self.per_tag))
        return Kind(self.cls.variant(name), self.expires, self.stamps, per_user, per_tag)


@attrs.frozen
class Declared:
    """What a version of a program declares."""

    kinds: tuple[Kind, ...]
    fields: tuple[str, ...]
    base: Any = None
    """That lends fields, if one does."""

    @property
    def item(self) -> Kind:
        return self.kinds[0]


@attrs.define
class Draw:
    """Draws the classes of a world: what all have, and what the newer one has more."""

    rng: random.Random
    stamp: Callable[[], int]
    required: bool = False
    unique: bool = False
    names: tuple[str, ...] = ()
    included: Any = ()

    def __attrs_post_init__(self) -> None:
        rng = self.rng
        self.required = rng.random() < 0.3
        more = [name for name in OPTIONAL if rng.random() < (0.3 if name == "body" else 0.7)]
        self.names = (*KEY_FIELDS, "until", "mail", "n", "tags", "lines", "stamp", *more)
        # (No index holds large values.)
        self.included = rng.choice([(), ("until",), ("mail", "stamp"), ("n",) if "body" in more else "all"])

    def newer(self) -> Declared:
        rng = self.rng
        expires, stamps = rng.random() < 0.75, rng.random() < 0.6
        fields = self.fields(self.names, expires=expires, stamps=stamps)
        key = {"key": tm.Key[str, str](partition="{user}", row="{id}")}
        indexes = self.indexes()
        self.unique = "by_mail" in indexes
        base: Any = None
        lent = [part for part in (fields, key, indexes) if rng.random() < 0.6] if rng.random() < 0.6 else []
        if lent:
            base = type(tm.Entity)("Lent", (tm.Entity,), _body(lent))
        own = [part for part in (fields, key, indexes) if part not in lent]
        kinds = [Kind(_entity("Item", base, own), expires, stamps)]
        if rng.random() < 0.7:
            if fields not in lent and rng.random() < 0.5:  # (an archive, which nothing leaves)
                expires = False
                own = [
                    self.fields(self.names, expires=False, stamps=stamps),
                    *[one for one in own if one is not fields],
                ]
            kinds.append(Kind(_entity("Cold", base, own), expires, stamps))
        kinds[0] = self.counted(kinds[0], 0.6)
        return Declared(tuple(kinds), self.names, base if fields in lent else None)

    def older(self, newer: Declared) -> Declared:
        """Return what knows none of the options, and not all of the fields."""
        rng = self.rng
        absent = [name for name in OPTIONAL if rng.random() < 0.4]
        if not self.required and rng.random() < 0.2:
            absent.append("until")
        names = tuple([name for name in newer.fields if name not in absent])
        key = {"key": tm.Key[str, str](partition="{user}", row="{id}")}
        fields = self.fields(names, expires=False, stamps=False, is_newer=False)
        # (A unique index that comes may find values twice: both have it.)
        indexes = {name: one for name, one in self.indexes().items() if rng.random() < 0.5}
        over_time = {"here", "by_end", "by_n"} if "until" not in names else set()
        indexes = {name: one for name, one in indexes.items() if name not in {"by_mail"} | over_time}
        indexes |= {"by_mail": _mails()} if self.unique else {}
        return Declared((self.counted(Kind(_entity("Item", None, [fields, key, indexes]), False, False), 0.3),), names)

    def fields(self, names: Sequence[str], *, expires: bool, stamps: bool, is_newer: bool = True) -> dict[str, Any]:
        """Return fields as a class body has them, by name: the annotation, and the options."""
        until: Any = datetime if self.required else datetime | None
        optional: Any = tm.field(default=None)
        ends: Any = {"expires": True} if expires else {}
        ends |= {} if self.required else {"default": None}
        fields: dict[str, tuple[Any, Any]] = {
            "user": (str, None),
            "id": (str, None),
            "until": (until, tm.field(**ends, kw_only=True)),
            "mail": (str | None, optional),
            "n": (int, tm.field(default=0)),
            "tags": (list[str], tm.field(factory=list)),
            "lines": (list[Line], tm.field(factory=list)),
            "stamp": (int, tm.field(on_write=self.stamp) if stamps else tm.field(default=0)),
            "ref": (str | None, optional),
            "colors": (set[str] | None, optional),
            "by": (dict[str, list[int]] | None, optional),
            "more": (tm.Extra, tm.field(factory=tm.Extra)),
            "body": (str | None, tm.field(default=None, large=True) if is_newer else optional),
        }
        return {name: fields[name] for name in names}

    def indexes(self) -> dict[str, Any]:
        rng = self.rng
        where: Any = lambda one: one.n > 2  # noqa: E731
        indexes: dict[str, Any] = {
            "by_mail": _mails(),
            "by_n": tm.Index(partition="all", row="{n}", include=self.included),
            "some": tm.Index(partition="some", row="{n}", where=where),
            "here": tm.Index(partition="{user}", row="{n}", include=("until",)),
            "by_tag": tm.Index(partition="{tags}", row="{n}"),
            "by_stamp": tm.Index(partition="all", row="{stamp}", include=("n",)),
            "by_end": tm.Index(partition="{id:shard(2)}", row="{until}"),
        }
        return {name: index for name, index in indexes.items() if rng.random() < 0.6}

    def counted(self, kind: Kind, chance: float) -> Kind:
        """Return a class with aggregates of it, by chance."""
        cls, rng = kind.cls, self.rng
        per_user = per_tag = None
        if rng.random() < chance:
            per_user = _aggregate("PerUser", cls, {
                "user": (str, tm.group_by(cls.user)), "number": (int, tm.count()), "total": (int, tm.sum(cls.n)),
                "most": (int | None, tm.max(cls.n)), "last": (int | None, tm.max(cls.stamp)),
            }, "{user}")  # fmt: skip
        if rng.random() < chance:
            per_tag = _aggregate("PerTag", cls, {
                "tag": (str, tm.group_by(cls.tags.each())), "number": (int, tm.count()),
            }, "{tag}")  # fmt: skip
        return attrs.evolve(kind, per_user=per_user, per_tag=per_tag)


def _mails() -> Any:
    return tm.Index(partition="{mail}", unique=True)


def _body(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return a class body of fields and what else is declared."""
    members = {name: member for part in parts for name, member in part.items()}
    fields = {name: member for name, member in members.items() if isinstance(member, tuple)}
    body: dict[str, Any] = {name: member for name, member in members.items() if name not in fields}
    body |= {name: option for name, (_, option) in fields.items() if option is not None}
    return body | {"__annotations__": {name: tm.Field[annotation] for name, (annotation, _) in fields.items()}}


def _entity(name: str, base: Any, parts: Iterable[dict[str, Any]]) -> Any:
    return type(tm.Entity)(name, (base or tm.Entity,), _body(parts), table=f"{name}s")


def _aggregate(name: str, of: Any, fields: dict[str, Any], partition: str) -> Any:
    body = _body([fields, {"key": tm.Key[str](partition=partition)}])
    return type(tm.Aggregate)(name, (tm.Aggregate,), body, table=name, of=of)


# ---------------------------------------------------------------------------------------------- programs


@attrs.define(eq=False)
class Program:
    """A version of a program: its classes, and its store."""

    declared: Declared
    newer: bool
    kinds: dict[str, Kind]
    """The open ones, by name."""
    store: Any = None

    @property
    def fields(self) -> tuple[str, ...]:
        return self.declared.fields

    def row(self, entity: Any) -> Row:
        return {name: getattr(entity, name) for name in self.fields}

    def entity(self, kind: Kind, row: Row) -> Any:
        given = {name: value for name, value in row.items() if not (kind.stamps and name == "stamp")}
        return kind.cls(**given)


@attrs.define
class Features:
    """What the place of a world can do."""

    grows: bool = True
    """Whether classes change, and come and go, while it has entities."""
    across: bool = True
    """Whether what is of several partitions is written together."""


@attrs.define
class World:
    """Stores of one place, and what is to be in it."""

    rng: random.Random
    place: Any
    features: Features
    time: datetime = START
    stamp: int = 0
    """What each write of a step sets."""
    rows: dict[str, dict[Key, Row]] = attrs.field(factory=dict)
    """All that is stored, by class and key, with all fields of the newer version."""
    programs: list[Program] = attrs.field(factory=list)
    log: list[str] = attrs.field(factory=list)
    names: tuple[str, ...] = ()
    unique: bool = False
    required: bool = False
    acting: Any = None

    def __attrs_post_init__(self) -> None:
        draw = Draw(self.rng, lambda: self.stamp)
        newer = draw.newer()
        self.names, self.unique, self.required = newer.fields, draw.unique, draw.required
        self.programs = [Program(newer, True, {kind.name: kind for kind in newer.kinds})]
        if self.features.grows and self.rng.random() < 0.7:
            older = draw.older(newer)
            self.programs.append(Program(older, False, {kind.name: kind for kind in older.kinds}))
        if not self.features.grows:
            self.programs[0].kinds |= {(kind := newer.item.variant("1")).name: kind}
        for program in reversed(self.programs):
            self.open(program)
            self.acting = program
            for _ in range(3):  # (the first one, before there is another version)
                row = self.random_row(*self.random_key())
                if self.insert_row(kind := self.kind(), row) is None:
                    program.store.insert(program.entity(kind, row))
        for program in self.programs:  # (an account's is begun anew, as it looks at what changed but after a while)
            self.reopen(program)

    def __str__(self) -> str:
        """Return what the versions declare."""
        lines = [f"required={self.required} unique={self.unique}"]
        for program in self.programs:
            indexes = [index.name for index in program.declared.item.cls.__declaration__.indexes]
            lines.append(f"{'newer' if program.newer else 'older'}: {' '.join(program.fields)}; {' '.join(indexes)}")
            for kind in program.kinds.values():
                bases = [base.__name__ for base in kind.cls.__mro__[1:-2]]
                lines.append(
                    f"    {' '.join(one.__name__ for one in kind.classes)} {bases} {kind.expires=} {kind.stamps=}"
                )
        return "\n".join(lines)

    # -- the place

    def microseconds(self) -> int:
        return (self.time - _EPOCH) // timedelta(microseconds=1)

    def opened(self, schema: Any, **options: Any) -> Any:
        place: Any = locations.place_of(self.place)
        return place.open(schema, **options | {"clock": self.microseconds, "now": self.microseconds})

    def open(self, program: Program) -> None:
        models = [cls for kind in program.kinds.values() for cls in kind.classes]
        where: Any = _Location(self)
        observes: Any = {"observe": lambda event: None} if self.rng.random() < 0.3 else {}
        program.store = tm.open(where, models=models, durability="relaxed", **observes)
        program.store.build()
        for name in program.kinds:
            self.rows.setdefault(name, {})

    def reopen(self, program: Program) -> None:
        program.store.close()
        self.open(program)

    def close(self) -> None:
        for program in self.programs:
            if program.store is not None:
                program.store.close()

    # -- what is to be there

    @property
    def store(self) -> Any:
        return self.acting.store

    def kind(self) -> Kind:
        """Return an open class of the program that acts; most often the first."""
        kinds = list(self.acting.kinds.values())
        return kinds[0] if self.rng.random() < 0.6 else self.rng.choice(kinds)

    def ended(self, row: Row) -> bool:
        return row["until"] is not None and row["until"] <= self.time

    def seen(self, kind: Kind) -> dict[Key, Row]:
        """Return what a program finds of a class."""
        return {key: row for key, row in self.rows[kind.name].items() if not (kind.expires and self.ended(row))}

    def random_key(self) -> Key:
        return self.rng.choice(USERS[:2]), self.rng.choice(IDS)

    def random_row(self, user: str, id: str) -> Row:
        """Return a row of the program that acts."""
        rng = self.rng
        past = self.time - rng.randrange(3) * MINUTE
        choices = [past, self.time + MINUTE, self.time + 2 * MINUTE, self.time + 60 * MINUTE]
        row = {
            "user": user, "id": id, "until": rng.choice(choices if self.required else [*choices, None, None]),
            "mail": rng.choice([None, "x", "y"]), "n": rng.randrange(6), "stamp": rng.randrange(9),
            "tags": rng.choices("pqr", k=rng.randrange(5)), "lines": [Line(name) for name in rng.sample("lm", rng.randrange(3))],
            "ref": rng.choice([None, *IDS]), "colors": rng.choice([None, set(), {"p"}, {"p", "q"}]),
            "by": rng.choice([None, {}, {"x": [1]}, {"x": [], "y": [2, 3]}]),
            "more": tm.Extra(rng.choice([{}, {"w": "v"}, {"w": 1}])), "body": self.random_body(),
        }  # fmt: skip
        return {name: row[name] for name in self.acting.fields}

    def random_body(self) -> str | None:
        """Return a text, which only the newer version may make a large one."""
        if self.acting.newer and self.rng.random() < 0.3:
            return self.rng.choice("xé😀") * self.rng.choice((32_768, 40_000, 70_000))
        return self.rng.choice((None, "", "short"))

    def missing(self, name: str) -> Any:
        """Return the value of a field that a program does not know."""
        return tm.Extra() if name == "more" else None

    def stored(self, kind: Kind, row: Row, old: Row | None = None) -> Row:
        """Return a row as it is stored: what the program does not know is as it was, and what each write sets is set."""
        known = {name: row[name] for name in self.acting.fields}
        before = {name: self.missing(name) for name in self.names} if old is None else old
        return before | known | ({"stamp": self.stamp} if kind.stamps else {})

    def put(self, kind: Kind, row: Row) -> Failure | None:
        """Store a row; what has ended and holds its unique value goes."""
        key, rows = (row["user"], row["id"]), self.rows[kind.name]
        for other, held in list(rows.items()):
            if self.unique and other != key and row["mail"] is not None and held["mail"] == row["mail"]:
                if not (kind.expires and self.ended(held)):
                    return tm.UniqueViolation
                del rows[other]
        rows[key] = row
        return None

    def insert_row(self, kind: Kind, row: Row) -> Failure | None:
        if (row["user"], row["id"]) in self.seen(kind):
            return tm.EntityExists
        return self.put(kind, self.stored(kind, row))

    def merge_row(self, kind: Kind, key: Key, edits: Sequence[Edit], made: Row | None = None) -> Failure | None:
        """Change a row, or one that is made where none is."""
        old = self.seen(kind).get(key)
        if old is None and made is None:
            return tm.EntityNotFound
        try:
            new = edited(old if old is not None else self.stored(kind, made or {}), edits)
        except Refused:
            return tm.InvalidEntity
        return self.put(kind, self.stored(kind, new, new))

    # -- edits

    def edits(self) -> list[Edit]:
        """Return changes of some fields."""
        drawn = [self.edit() for _ in range(self.rng.choice((1, 1, 2, 3)))]
        edits = {edit.field: edit for edit in drawn if edit.field in self.acting.fields}
        return sorted(edits.values(), key=lambda edit: not edit.text.startswith("C."))

    def some_edits(self) -> list[Edit]:
        return self.edits() or [Edit("n", "C.n.add(1)", lambda row: row["n"] + 1)]

    def edit(self) -> Edit:
        rng = self.rng
        match rng.choice(("tags", "tags", "lines", "colors", "by", "by", "n", "n", "more", "value", "value")):
            case "tags":
                return _of_list(rng, "tags", "C.tags", lambda row: row["tags"], rng.choice("pqr"), rng.choice("pqr"))
            case "lines":
                if rng.random() < 0.5:
                    return _of_list(rng, "lines", "C.lines", lambda row: row["lines"], Line("l"), Line("m", 2))
                at = rng.choice((0, 0, -1, 1))
                return Edit("lines", f"C.lines[{at}].at(lambda line: line.pieces).add(2)", lambda row: [
                    *row["lines"][: _place(row["lines"], at)],
                    attrs.evolve(line := row["lines"][at], pieces=line.pieces + 2),
                    *row["lines"][_place(row["lines"], at) + 1 :],
                ])  # fmt: skip
            case "colors":
                color, verb = rng.choice("pqr"), rng.choice(("add", "discard", "extend"))
                given = ["p", color] if verb == "extend" else color
                operation: Callable[[set[str]], set[str]] = {
                    "add": lambda held: held | {color}, "discard": lambda held: held - {color},
                    "extend": lambda held: held | {"p", color},
                }[verb]  # fmt: skip
                return Edit("colors", f"C.colors.{verb}({given!r})", lambda row: (
                    None if row["colors"] is None and verb == "discard" else operation(row["colors"] or set())
                ))  # fmt: skip
            case "by":
                return self._edit_of_entries()
            case "n":
                text = rng.choice(("C.n.add(1)", "n=C.n + 1"))
                return Edit("n", text, lambda row: row["n"] + 1)
            case "more":
                value = rng.choice(("v", 1, 0.5))
                if rng.random() < 0.3:
                    return Edit("more", 'C.more["w"].remove()', lambda row: tm.Extra(_without(row["more"], "w")))
                return Edit("more", f'C.more["w"].set({value!r})', lambda row: tm.Extra({**row["more"], "w": value}))
        row = self.random_row("a", "1")
        name = rng.choice([one for one in row if one not in (*KEY_FIELDS, "stamp", "more", "lines")])
        value = row[name]
        text = f"datetime.fromisoformat({value.isoformat()!r})" if isinstance(value, datetime) else repr(value)
        if isinstance(value, str) and len(value) > 100:
            text = f"{value[0]!r} * {len(value)}"
        return Edit(name, f"{name}={text}", lambda _: value)

    def _edit_of_entries(self) -> Edit:
        rng, name = self.rng, self.rng.choice("xy")
        match rng.choice(("set", "remove", "list", "list", "list")):
            case "set":
                return Edit("by", f'C.by["{name}"].set([4])', lambda row: {**(row["by"] or {}), name: [4]})
            case "remove":
                text = f'C.by["{name}"].remove()'
                return Edit("by", text, lambda row: None if row["by"] is None else _without(row["by"], name))
        inner = _of_list(rng, "by", f'C.by["{name}"]', lambda row: (row["by"] or {}).get(name, []), 1, 5)

        def change(row: Row) -> Any:
            if ".discard" in inner.text and name not in (row["by"] or {}):
                return row["by"]
            return {**(row["by"] or {}), name: inner.change(row)}

        return Edit("by", inner.text, change)

    def patch(self) -> tuple[Row, Callable[[Any], Any], str]:
        """Return some values, and what makes a patch of them for a class: of their JSON, or of Python's."""
        row = self.random_row("a", "1")
        names = self.rng.sample([one for one in row if one not in (*KEY_FIELDS, "stamp", "more", "lines")], 2)
        values = {name: row[name] for name in names}
        text = json.dumps(values, default=lambda one: one.isoformat() if isinstance(one, datetime) else sorted(one))
        body: Any = text if self.rng.random() < 0.7 else dict(values)
        return values, lambda cls: tm.patch(cls, body), text


@attrs.frozen
class _Location:
    """The place of a world, as `tm.open` takes it."""

    world: World

    def open(self, schema: Any, **options: Any) -> Any:
        return self.world.opened(schema, **options)


def _without(entries: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {one: value for one, value in entries.items() if one != name}


def _place(items: Sequence[Any], at: int) -> int:
    if not -len(items) <= at < len(items):
        raise IndexError
    return at % len(items)


def _of_list(
    rng: random.Random, field: str, text: str, held: Callable[[Row], Sequence[Any]], one: Any, other: Any
) -> Edit:
    """Return a change of a list."""
    at = rng.choice((0, -1, -2, 1, 4))
    match rng.choice(("append", "append", "extend", "discard", "set", "remove")):
        case "append":
            return Edit(field, f"{text}.append({one!r})", lambda row: [*held(row), one])
        case "extend":
            return Edit(field, f"{text}.extend([{one!r}, {other!r}])", lambda row: [*held(row), one, other])
        case "discard":
            return Edit(field, f"{text}.discard({one!r})", lambda row: [item for item in held(row) if item != one])
        case "set":
            return Edit(field, f"{text}[{at}].set({one!r})", lambda row: [
                one if place == _place(held(row), at) else item for place, item in enumerate(held(row))
            ] if _place(held(row), at) >= 0 else [])  # fmt: skip
    return Edit(field, f"{text}[{at}].remove()", lambda row: [
        item for place, item in enumerate(held(row)) if place != _place(held(row), at)
    ] if _place(held(row), at) >= 0 else [])  # fmt: skip
