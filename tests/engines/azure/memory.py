"""A Table service of dicts: it answers as Azure does, and where answers may differ, in the worst way that is asked for."""

from __future__ import annotations

import math
import operator
import random
import re
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import attrs

from tablemapper.engines.azure.tables.service import (
    ETAG,
    MAX_CHANGES,
    MAX_PAGE,
    PARTITION,
    ROW,
    TYPE,
    AllOf,
    Comparison,
    CreateTable,
    DeleteTable,
    Entity,
    EntityPage,
    ErrorResponse,
    Filter,
    GetEntity,
    GroupTransaction,
    ListTables,
    NoResponse,
    QueryEntities,
    Request,
    RowChange,
    edm_of,
    properties,
)
from tablemapper.limits import MAX_ENTITY, MAX_PROPERTIES, MAX_VALUE, key_size, utf16_units

_FORBIDDEN = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SHOWN = ("String", "Boolean", "Int32")

Typed = dict[str, tuple[str, Any]]
"""Properties: the type and the JSON of each."""


@attrs.frozen
class Stored:
    typed: Typed
    etag: str
    timestamp: str


@attrs.define
class Options:
    """How the answers of a service may differ from what one would expect."""

    pages: int = MAX_PAGE
    """The most entities of an answer."""
    short: random.Random | None = None
    """Draws pages with fewer entities, or none, although more follow."""
    milliseconds: bool = False
    """Whether filters compare times no finer."""
    vague: bool = False
    """Whether a refused transaction does not say which change it was."""
    echo: bool = False
    """Whether times come back as they were written, with the zeros at their end."""


class Memory:
    """The tables of an account."""

    def __init__(
        self, options: Options | None = None, clock: Callable[[], int] = lambda: time.time_ns() // 1000
    ) -> None:
        self.options = options or Options()
        self.tables: dict[str, dict[tuple[str, str], Stored]] = {}
        self.sent: list[Request] = []
        """All requests, in their order."""
        self._in_order: dict[str, tuple[object, list[tuple[tuple[str, str], Stored]], list[tuple[bytes, bytes]]]] = {}
        """By table: what is sorted, its rows in order, and what they are sorted by."""
        self.ahead = 0.0
        """Seconds by which its time is ahead of the clock."""
        self._clock = clock
        self._last = 0
        self._lock = threading.Lock()

    def close(self) -> None: ...

    def send(self, request: Request, *wait: float) -> Any:
        with self._lock:
            self.sent.append(request)
            match request:
                case CreateTable(name=name):
                    return self._create(name)
                case DeleteTable(name=name):
                    return self.tables.pop(self._called(name), None) is not None
                case ListTables(first=first, end=end):
                    names = [name for name in self.tables if first.lower() <= name.lower() < end.lower()]
                    return EntityPage([{"TableName": name} for name in sorted(names)])
                case GetEntity():
                    return self._get(request)
                case QueryEntities():
                    return self._find(request)
                case GroupTransaction():
                    return self._commit(request)

    def entities(self, table: str) -> list[Entity]:
        """Return all entities of a table, in their order."""
        return [_entity(key, stored, ()) for key, stored in self._ordered(table)[0]]

    # -- reading

    def _table(self, name: str) -> dict[tuple[str, str], Stored]:
        if (called := self._called(name)) not in self.tables:
            raise ErrorResponse(404, "TableNotFound", "The table specified does not exist.")
        return self.tables[called]

    def _called(self, name: str) -> str:
        """Return the name that a table was created with: names have no case."""
        if name in self.tables:
            return name
        return next((one for one in self.tables if one.lower() == name.lower()), name)

    def _ordered(self, name: str) -> tuple[list[tuple[tuple[str, str], Stored]], list[tuple[bytes, bytes]]]:
        table = self._table(name)
        held = self._in_order.get(name)
        if held is None or held[0] is not table:  # (each change makes another dict)
            places = {key: (_units(key[0]), _units(key[1])) for key in table}
            rows = sorted(table.items(), key=lambda item: places[item[0]])
            held = self._in_order[name] = table, rows, [places[key] for key, _ in rows]
        return held[1:]

    def _create(self, name: str) -> bool:
        if re.fullmatch("[A-Za-z][A-Za-z0-9]{2,62}", name) is None:
            raise ErrorResponse(400, "InvalidResourceName")
        if name.lower() in map(str.lower, self.tables):
            return False
        self.tables[name] = {}
        return True

    def _get(self, request: GetEntity) -> Entity | None:
        key = request.partition, request.row
        _check_keys(*key)
        stored = self._table(request.table).get(key)
        return None if stored is None else _entity(key, stored, request.select)

    def _find(self, request: QueryEntities) -> EntityPage:
        most = min(request.top or MAX_PAGE, self.options.pages)
        rows, places = self._ordered(request.table)
        if (after := request.after) is not None:
            rows = rows[bisect_right(places, (_units(after[0]), _units(after[1]))) :]
        holds = None if request.where is None else self._test(request.where)
        found: list[Entity] = []
        short = self.options.short
        if short is not None and short.random() < 0.5:
            most = min(most, short.randrange(4))
        last = request.after
        for key, stored in rows:
            if len(found) == most:  # (an empty page goes on where the last one did)
                return EntityPage(found, last if last is not None else ("", ""), self._date())
            if holds is None or holds(key, stored):
                found.append(_entity(key, stored, request.select))
            last = key
        return EntityPage(found, None, self._date())

    def _date(self) -> str:
        return date_of(self._clock() / 1e6 + self.ahead)

    def _test(self, where: Filter) -> Callable[[tuple[str, str], Stored], bool]:
        """Return whether a filter holds, as a function of an entity: each of its values is read once."""
        if not isinstance(where, Comparison):
            tests = [self._test(part) for part in where.parts]
            if isinstance(where, AllOf):
                return lambda key, stored: all(test(key, stored) for test in tests)
            return lambda key, stored: any(test(key, stored) for test in tests)
        name, edm, compare = where.name, where.edm, _COMPARES[where.op]
        place, other = _KEYS.get(name), self._comparable(edm, where.value)

        def holds(key: tuple[str, str], stored: Stored) -> bool:
            if place is not None:
                return edm == "String" and bool(compare(_units(key[place]), other))
            held = stored.typed.get(name)
            return held is not None and held[0] == edm and bool(compare(self._comparable(*held), other))

        return holds

    def _comparable(self, edm: str, value: Any) -> Any:
        match edm:
            case "String":
                return _units(value)
            case "Int64":
                return int(value)
            case "Double":
                return float(value)
            case "DateTime":
                return _moment(value)[: 23 if self.options.milliseconds else None]
        return value

    # -- writing

    def _commit(self, request: GroupTransaction) -> list[str | None]:
        table = self._table(request.table)
        changes = request.changes
        if not 0 < len(changes) <= MAX_CHANGES:
            raise ErrorResponse(400, "InvalidInput", "99:One of the request inputs is not valid.")
        after = dict(table)
        self._last = max(self._clock() + int(1e6 * self.ahead), self._last + 1)
        etags = []
        seen = set()
        for at, change in enumerate(changes):
            try:
                if change.row in seen:
                    raise ErrorResponse(400, "InvalidDuplicateRow")
                seen.add(change.row)
                etags.append(self._change(after, request.partition, change))
            except ErrorResponse as refused:
                vague = len(changes) > 1 and (self.options.vague or self.options.short is not None)
                raise ErrorResponse(refused.status, refused.code, "", None if vague else at) from None
        self.tables[self._called(request.table)] = after
        return etags

    def _change(self, table: dict[tuple[str, str], Stored], partition: str, change: RowChange) -> str | None:
        key = partition, change.row
        _check_keys(*key)
        held = table.get(key)
        if change.kind == "insert" and held is not None:
            raise ErrorResponse(409, "EntityAlreadyExists")
        if change.if_match is not None:
            if held is None:
                raise ErrorResponse(404, "ResourceNotFound")
            if not re.fullmatch(r'\*|W/".+"', change.if_match):
                raise ErrorResponse(400, "InvalidInput", "the etag value is not valid")
            if change.if_match not in ("*", held.etag):
                raise ErrorResponse(412, "UpdateConditionNotSatisfied")
        if change.kind == "delete":
            del table[key]
            return None
        typed = {name: (edm_of(change.members, name), change.members[name]) for name in properties(change.members)}
        _check(key, typed)
        if not self.options.echo:
            typed |= {name: (edm, _short(value)) for name, (edm, value) in typed.items() if edm == "DateTime"}
        if change.kind == "merge" and held is not None:
            typed = held.typed | typed
        etag = etag_of(self._last)
        table[key] = Stored(typed, etag, _written(self._last))
        return etag


_COMPARES: dict[str, Callable[[Any, Any], Any]] = {op: getattr(operator, op) for op in ("eq", "ge", "gt", "le", "lt")}
_KEYS = {PARTITION: 0, ROW: 1}


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _written(timestamp: int) -> str:
    seconds, micro = divmod(timestamp, 1_000_000)
    return _short(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micro:06}0Z")


def etag_of(timestamp: int) -> str:
    """Return the ETag of a row that was written at a time in µs."""
    return f"W/\"datetime'{_written(timestamp).replace(':', '%3A')}'\""


def date_of(seconds: float) -> str:
    """Return a time as it is in the head of an answer."""
    return formatdate(seconds, usegmt=True)


def _short(text: str) -> str:
    """Return a time as Azure has it: without zeros at the end of its fraction."""
    head, point, fraction = text.rstrip("Z").partition(".")
    return f"{head}{point}{fraction}".rstrip("0").rstrip(".") + "Z" if point else text


def _moment(text: str) -> str:
    head, _, fraction = text.rstrip("Z").partition(".")
    return f"{head}.{fraction:0<7}"


def _check_keys(*keys: str) -> None:
    for key in keys:
        if _FORBIDDEN.search(key) or utf16_units(key) > 512:
            raise ErrorResponse(400, "InvalidInput", "a key has forbidden characters, or is too long")


def _check(key: tuple[str, str], typed: Typed) -> None:
    if len(typed) > MAX_PROPERTIES:
        raise ErrorResponse(400, "TooManyProperties")
    for name, (edm, value) in typed.items():
        size = 2 * utf16_units(value) if edm == "String" else len(value) * 3 // 4 if edm == "Binary" else 0
        if size > MAX_VALUE + 2:
            raise ErrorResponse(400, "PropertyValueTooLarge")
        kinds: Any = {"Boolean": bool, "Int32": int, "Double": (float, str)}.get(edm, str)
        if not isinstance(value, kinds):
            raise ErrorResponse(400, "InvalidInput", f"{name} is not {edm}")
    sizes = [
        8 + 2 * len(name) + 2 * len(value if isinstance(value, str) else "1234") for name, (_, value) in typed.items()
    ]
    if key_size(*key) + sum(sizes) > 2 * MAX_ENTITY:
        raise ErrorResponse(400, "EntityTooLarge")


def _entity(key: tuple[str, str], stored: Stored, select: tuple[str, ...]) -> Entity:
    """Return an entity as JSON has it: a type that JSON shows is left away."""
    members: Entity = {ETAG: stored.etag}
    for name, value in ((PARTITION, key[0]), (ROW, key[1])):
        if not select or name in select:
            members[name] = value
    if not select or "Timestamp" in select:
        members |= {"Timestamp" + TYPE: "Edm.DateTime", "Timestamp": stored.timestamp}
    for name, (edm, value) in stored.typed.items():
        if select and name not in select:
            continue
        if edm not in _SHOWN and not (edm == "Double" and isinstance(value, float) and math.isfinite(value)):
            members[name + TYPE] = f"Edm.{edm}"
        members[name] = value
    return members


class Faulty(Memory):
    """A service of which one request ends its client, before or after it is executed, or whose answer is lost."""

    number, at, way = 0, -1, ""

    def send(self, request: Any, *wait: float) -> Any:
        self.number += 1
        if self.number != self.at:
            return super().send(request)
        if self.way == "before":
            raise KeyboardInterrupt
        super().send(request)
        raise NoResponse("the answer") if self.way == "lost" else KeyboardInterrupt
