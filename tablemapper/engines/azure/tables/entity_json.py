"""Rows of a model to the members of a JSON body, and back: functions that are generated once a model.

A row has `HiddenProperties` behind its properties: what an entity of ours holds that is no field. A property that was renamed has the
name in its entities, and in the rows of indexes, that it came with.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import attrs
import msgspec

from ....codegen import Names, compile_functions
from ....entities.etag import Stamp
from ....entities.fields import FieldModel
from ....errors import CorruptStore, InvalidEntity
from ....limits import MAX_INT32, MIN_INT32
from ....owner_cache import cached_on_owner
from ....pieces import MAX_PIECES, SHORT, is_full, join_pieces, piece_name, pieces_of, property_of, until_last
from ....schema.maintenance import IndexMaintenance, index_columns
from ....schema.model import Model
from ....schema.rows import FIRST, Mistyped, Row
from .reserved_names import OP, OPS, OURS, STATE, TYPE_NAME, VALUES, index_key
from .service import ETAG, OF_ALL, PARTITION, ROW, TYPE, Entity, Members, edm_of, properties

_NOTHING = "{}"  # no undeclared properties, in stored form
_FINE = len("2026-01-01T00:00:00.1234567Z")
_PIECE = 60_000  # bytes of a hidden value in one property
_MARKS = frozenset({OPS, f"Timestamp{TYPE}"})  # what is no piece, and often there
_MOST_CHARACTERS = {"String": SHORT, "Binary": 87_383}  # characters of JSON that certainly fit into one property
_USUAL = {
    "String": "v if (v := e.get({0})).__class__ is str and {1} not in e",
    "Int64": "int(v) if (v := e.get({0})) is not None and e.get({1}) == 'Edm.Int64'",
    "Double": "v if (v := e.get({0})).__class__ is float and {1} not in e",
    "Boolean": "int(v) if (v := e.get({0})).__class__ is bool and {1} not in e",
}
"""By declared type, how a property is read that is as we write it."""
_READABLE = {"Int32": {"Int64"}, "Int64": {"Int64", "Int32"}, "Double": {"Double", "Int32", "Int64"}}
"""The types that a declared one reads, where it reads another than itself."""


_decode_marks = msgspec.json.Decoder(dict[str, str]).decode

StoredNames: TypeAlias = tuple[tuple[str, str], ...]
"""Properties of a class that entities hold under other names, each with that name."""


def as_stored(field: FieldModel, names: StoredNames) -> FieldModel:
    """Return a field with the name that entities hold its property under."""
    for property, stored_name in names:
        if property == field.property:
            return attrs.evolve(field, property=stored_name)
    return field


class HiddenProperties(NamedTuple):
    """The hidden properties of an entity."""

    op: str = ""
    """The write that made it."""
    undeclared: Mapping[str, Any] = {}
    """Members that no class declares, as they came."""
    ops: Mapping[str, str] = {}
    """For each index in other partitions in which the entity has rows, the write that made them."""
    state: bytes | None = None
    """Of a group: its state, packed."""
    values: bytes = b""
    """Of a group: how often each value is there whose ends it has; see `cross_partition.value_counts`."""
    ticks: Mapping[str, str] = {}
    """Times that are finer than a microsecond, by property, as another program wrote them."""

    def unchanged(self, members: Members) -> Mapping[str, str]:
        """Return the times of other programs that stand in members as they were cut."""
        return {name: text for name, text in self.ticks.items() if members.get(name) == _moment(text)}


@attrs.frozen(eq=False)
class EntityCodec:
    """The two directions for one model."""

    model: Model
    stored: StoredNames
    defaults: Mapping[str, Any]
    """By property, what an entity reads as that lacks it."""
    members: Callable[[Row], Entity]
    """Row → the members of its properties."""
    row: Callable[[Members], Row]
    """An entity as it came → row, with `HiddenProperties` at its end."""
    check: Callable[[str, Any, str, str], Any] | None = None
    """Of a class whose entities may hold what only other versions know: field, value and key of one that a program reads →
    the value, or SchemaMismatch."""
    check_row: Callable[[Row], None] | None = None
    """The same of a row."""

    def group(self, row: Row, state: bytes, values: bytes) -> Entity:
        """Return the members of a group."""
        return self.members(row) | hidden_members(state, values)

    def name(self, field: FieldModel) -> str:
        """Return the name that entities hold a property under."""
        return as_stored(field, self.stored).property

    def selected(self, field: FieldModel) -> Iterable[str]:
        """Return the names that entities can hold a value under."""
        return [piece_name(self.name(field), number) for number in range(MAX_PIECES if field.large else 1)]

    def value(self, field: FieldModel, entity: Members) -> Any:
        """Return one property in stored form; None if it is missing."""
        stored_field = as_stored(field, self.stored)
        if field.type.spillable and is_continued(entity, stored_field.property):
            entity = with_joined_pieces(entity, entity)
        return _read(entity, stored_field, None)

    def known(self, row: Row) -> Row:
        """Return a row that a program reads; raise SchemaMismatch if its class does not know a value."""
        if self.check_row is not None:
            self.check_row(row)
        return row

    def read(self, entity: Members) -> Row:
        """Return the row of an entity that a program reads; as `known`."""
        return self.known(self.row(entity))

    def known_value(self, field: str, value: Any, partition: str, row: str) -> Any:
        """Return a value that a program reads, of a field and of a key; as `known`."""
        return value if self.check is None else self.check(field, value, partition, row)

    @property
    def width(self) -> int:
        """The length of a row, with its hidden properties."""
        return FIRST + len(self.model.columns) + 1


@cached_on_owner
def codec_of(model: Model, stored: StoredNames = (), defaults: tuple[tuple[str, Any], ...] = ()) -> EntityCodec:
    """Return the codec of a model, compiled once.

    Args:
        model: of the entities.
        stored: properties that have other names in entities.
        defaults: properties that read as something else than the class says where an entity lacks them.
    """
    names = Names(
        write=_write,
        read=_read,
        stamp=Stamp,
        hidden=_hidden,
        with_joined_pieces=with_joined_pieces,
        put_extra=_put_extra,
        extra=_extra,
    )
    reads_as = model.defaults | dict(defaults)
    columns = [(as_stored(field, stored), reads_as[field.property]) for field in model.columns]
    declared_names = frozenset([field.property for field, _ in columns if not field.type.undeclared])
    known_names = declared_names | {TYPE_NAME} if model.declaration.type_name is not None else declared_names
    lines = ["def members(row):", "    out = {}"]
    if model.declaration.type_name is not None:
        lines.append(f"    out[{TYPE_NAME!r}] = {model.declaration.type_name!r}")
    values = []
    for at, (field, default) in enumerate(columns, FIRST):
        if field.type.undeclared:
            lines.append(
                f"    if row[{at}] is not None: put_extra(out, row, row[{at}], {names.name('stored', stored)})"
            )
            values.append(f"extra(e, {names.name('known', known_names)}, {None if field.nullable else _NOTHING!r})")
            continue
        edm = field.type.edm
        name = field.property
        if field.maintained:  # (it is read only; see `rollup_fields`)
            pass
        elif edm == "String":
            lines.append(f"    v = row[{at}]")
            fits = f" and len(v) <= {SHORT}" if field.type.spillable else ""
            lines.append(f"    if v.__class__ is str{fits}: out[{name!r}] = v")
            lines.append(f"    elif v is not None: write(out, {name!r}, {edm!r}, v)")
        elif edm == "Int64":
            lines.append(f"    v = row[{at}]")
            lines.append(f"    if v.__class__ is int: out[{name!r}] = str(v); out[{name + TYPE!r}] = 'Edm.Int64'")
            lines.append(f"    elif v is not None: write(out, {name!r}, {edm!r}, v)")
        else:
            lines.append(f"    if row[{at}] is not None: write(out, {name!r}, {edm!r}, row[{at}])")
        values.append(f"read(e, {names.name('field', field)}, {names.name('default', default)})")
        if (form := _USUAL.get(edm)) is not None:
            values[-1] = f"{form.format(repr(name), repr(name + TYPE))} else {values[-1]}"
    lines.append("    return out")
    times = tuple([field.property for field, _ in columns if field.type.edm == "DateTime"])
    usual = frozenset([*OF_ALL, ETAG, OP, *known_names, *(name + TYPE for name in known_names)])
    has_extra = any(field.type.undeclared for field in model.columns)
    lines += [
        "def row(e):",
        f"    others = e.keys() - {names.name('usual', usual)}",
        f"    h = hidden(e, others, {times}, has_extra={has_extra})",
        f"    if not others <= {names.name('marks', _MARKS)}: e = with_joined_pieces(e, others)",
        f"    return (e[{PARTITION!r}], e[{ROW!r}], stamp(e[{ETAG!r}]), {''.join(f'{value}, ' for value in values)}h)",
    ]
    functions = compile_functions(f"{model.name} on Azure", "\n".join(lines), names)
    return EntityCodec(model, stored, reads_as, functions["members"], functions["row"])


def members_of(field: FieldModel, value: Any) -> Entity:
    """Return the members of one property."""
    members: Entity = {}
    # (An entity without undeclared properties is read as one whose optional field for them is None.)
    if value is not None and not (value == _NOTHING and field.type.undeclared and field.nullable):
        _write(members, field.property, field.type.edm, value)
    return members


def included(index: IndexMaintenance, row: Sequence[Any], stored_names: StoredNames = ()) -> Entity:
    """Return the members of what the row of an index holds beside keys."""
    members: Entity = {}
    for field, value in zip(index_columns(index.owner, index.model), row[4:], strict=True):
        members |= members_of(as_stored(field, stored_names), value)
    return members


def local_key(index: IndexMaintenance, row: Sequence[Any]) -> str:
    """Return the row key of the row of an index that lies in the partition of what it is of."""
    return index_key(index.label, row[1], row[3], unique=index.model.unique)


def shown(entity: Members) -> dict[str, Any]:
    """Return what an entity of an unknown class holds, in stored form, without what is hidden."""
    entity = with_joined_pieces(entity, entity)
    names = [name for name in properties(entity) if not name.startswith(OURS)]
    return {name: stored_value(entity, name) for name in names}


def with_joined_pieces(entity: Members, names: Iterable[str]) -> Members:
    """Return an entity with each value whole in its property, some of whose names may be those of pieces."""
    if not (continued := [name[len(OURS) : -2] for name in names if name[-2:] == "_1" and name.startswith(OURS)]):
        return entity
    members = dict(entity)
    for property in continued:
        if entity.get(property).__class__ is str and (edm := edm_of(entity, property)) in _MOST_CHARACTERS:
            value = join_pieces(_pieces(entity, property, edm))
            members[property] = base64.b64encode(value).decode() if edm == "Binary" else value
    return members


def _pieces(entity: Members, property: str, edm: str) -> Iterator[Any]:
    """Yield what may be pieces of a value, the property itself first."""
    for number in range(MAX_PIECES):
        name = piece_name(property, number)
        if entity.get(name).__class__ is not str or edm_of(entity, name) != edm:
            return
        yield base64.b64decode(entity[name]) if edm == "Binary" else entity[name]


def is_continued(entity: Members, name: str) -> bool:
    """Return whether pieces may follow the value of a property: it is full."""
    value: Any = entity.get(name, "")
    if value.__class__ is not str or len(value) <= SHORT:
        return False
    return len(value) > _MOST_CHARACTERS["Binary"] if edm_of(entity, name) == "Binary" else is_full(value)


def foreign_pieces(entity: Members) -> list[str]:
    """Return the names of pieces that are none: the piece before is not full, or is of another type."""
    names = {name: property_of(name) for name in entity if name.startswith(OURS) and "@" not in name}
    names = {name: property for name, property in names.items() if property != name}
    used: set[str] = set()
    for property in set(names.values()):
        edm = edm_of(entity, property) if entity.get(property).__class__ is str else ""
        count = sum(1 for _ in until_last(_pieces(entity, property, edm))) if edm in _MOST_CHARACTERS else 0
        used.update([piece_name(property, number) for number in range(count)])
    return sorted(names.keys() - used)


def stored_value(entity: Members, name: str) -> Any:
    """Return one property in stored form, by the type that it has itself; None if it is missing."""
    return None if (value := entity.get(name)) is None else _loaded(edm_of(entity, name), value)


def _write(members: Entity, name: str, edm: str, value: Any) -> None:
    """Put one stored value into a body: the type beside it where JSON does not show it."""
    if isinstance(value, Mistyped):  # (an entity that another program damaged keeps that, unless the field is written)
        edm, members[name] = value
    elif edm == "Int64":
        members[name] = str(value)
        if value.__class__ is str:  # a sum that 64 bits do not hold
            return
    elif edm == "Double":
        value = float(value)
        members[name] = value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")
    elif edm == "Binary":
        members[name] = base64.b64encode(value).decode() if isinstance(value, bytes) else value
    else:
        members[name] = bool(value) if edm == "Boolean" else value
    if edm not in ("String", "Boolean", "Int32"):
        members[name + TYPE] = f"Edm.{edm}"
    if edm in _MOST_CHARACTERS and len(members[name]) > _MOST_CHARACTERS[edm]:
        _cut(members, name, edm)


def _cut(members: Entity, name: str, edm: str) -> None:
    """Put a value into as many properties as it needs."""
    value = members[name]
    for number, piece in enumerate(pieces_of(base64.b64decode(value) if edm == "Binary" else value)):
        of_piece = piece_name(name, number)
        members[of_piece] = base64.b64encode(piece).decode() if edm == "Binary" else piece
        if edm == "Binary":
            members[of_piece + TYPE] = "Edm.Binary"


def _binary(name: str, value: bytes) -> Entity:
    members: Entity = {}
    _write(members, name, "Binary", value)
    return members


def _read(entity: Members, field: FieldModel, default: Any) -> Any:
    name, edm = field.property, field.type.edm
    value = entity.get(name)
    if value is None:
        return default
    came = edm_of(entity, name)
    if came != edm and came not in _READABLE.get(edm, ()):
        if edm == "Int64" and came == "String" and field.wide:
            return value
        return Mistyped(came, value)
    if edm == "Int32" and not MIN_INT32 <= int(value) <= MAX_INT32:
        return Mistyped(came, value)
    return _loaded(edm, value)


def _loaded(edm: str, value: Any) -> Any:
    match edm:
        case "Int64" | "Int32" | "Boolean":
            return int(value)
        case "Double":
            return float(value)
        case "DateTime":
            return _moment(value)
        case "Binary":
            return base64.b64decode(value)
        case "Guid":
            return value.lower()
    return value


def _moment(text: str) -> str:
    """Return a time with six digits after the point: a service gives none to seven."""
    head, _, fraction = text.rstrip("Z").partition(".")
    return f"{head}.{fraction[:6]:0<6}Z"


def _put_extra(members: Entity, row: Row, extra: str, stored_names: StoredNames) -> None:
    for name, (edm, value) in msgspec.json.decode(extra).items():
        for property, stored_name in stored_names:
            if stored_name == name:
                raise InvalidEntity(
                    str(row[:2]),
                    [f'the undeclared property "{name}" has the name that "{property}" had before: choose another one'],
                )
        _write(members, name, edm, value)


def _extra(entity: Members, known_names: frozenset[str], nothing: str | None) -> str | None:
    """Return the undeclared properties in stored form, or what stands for none."""
    undeclared = {}
    for name in sorted(properties(entity)):
        if name not in known_names and not name.startswith(OURS):
            edm = edm_of(entity, name)
            value = entity[name]
            if edm == "Double" and isinstance(value, str):
                value = {"Infinity": "inf", "-Infinity": "-inf"}.get(value, value)
            undeclared[name] = [edm, _moment(value) if edm == "DateTime" else int(value) if edm == "Int64" else value]
    if not undeclared:
        return nothing
    return msgspec.json.encode(undeclared).decode()


def _hidden(
    entity: Members, other_names: Collection[str], times: Sequence[str], *, has_extra: bool
) -> HiddenProperties:
    ticks = {name: entity[name] for name in times if _is_fine(entity, name)} if times else {}
    if not other_names:
        return HiddenProperties(entity.get(OP, ""), ticks=ticks)
    undeclared: dict[str, Any] = {}
    for name in properties(entity, filter(other_names.__contains__, entity)):
        if not has_extra and (not name.startswith(OURS) or _continues(name, other_names)):
            undeclared[name] = entity[name]
            if (edm := entity.get(name + TYPE)) is not None:
                undeclared[name + TYPE] = edm
        elif _is_fine(entity, name):
            ticks[name] = entity[name]
    state = entity.get(STATE)
    return HiddenProperties(
        entity.get(OP, ""),
        undeclared,
        marks_of(entity),
        None if state is None else base64.b64decode(state),
        values_in(entity),
        ticks,
    )


def _continues(name: str, other_names: Collection[str]) -> bool:
    """Return whether a hidden property is a piece of a property that no class declares."""
    return name[-1].isdecimal() and (property := property_of(name)) != name and property in other_names


def _is_fine(entity: Members, name: str) -> bool:
    """Return whether a property is a time with seven digits after the point, the last of which says something."""
    text: Any = entity.get(name)
    return (
        text.__class__ is str and len(text) == _FINE and text[-2] != "0" and entity.get(name + TYPE) == "Edm.DateTime"
    )


def hidden_of(row: Row | None) -> HiddenProperties:
    """Return what an entity held behind its properties; nothing if there was none."""
    return HiddenProperties() if row is None else row[-1]


def marks_of(entity: Members) -> Mapping[str, str]:
    """Return by the name of each mark of an entity the write that its rows are of.

    Raises:
        CorruptStore: they cannot be read.
    """
    marks_text = entity.get(OPS)
    if marks_text is None:
        return {}
    try:
        if marks_text[:1] == "{":
            return _decode_marks(marks_text)
        # (The first accounts have "name:write name:write". A name may have a colon in it, a write has none.)
        return dict([mark.rsplit(":", 1) for mark in marks_text.split(" ")])
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise CorruptStore(
            f"{entity.get(PARTITION), entity.get(ROW)}: its property {OPS} cannot be read: {error}; another program changed it; restore it"
        ) from error


def holds(entity: Members | None, index: str, op: str) -> bool:
    """Return whether the rows of an entity in an index are of a write."""
    return entity is not None and marks_of(entity).get(index) == op


def ops_member(ops: Mapping[str, str]) -> Entity:
    """Return the member that says of which writes the rows in indexes are."""
    return {OPS: msgspec.json.encode(dict(sorted(ops.items()))).decode()} if ops else {}


def hidden_members(state: bytes, values: bytes) -> Entity:
    """Return the members of a group that are hidden."""
    return _binary(STATE, state) | value_members(values)


def value_members(values: bytes) -> Entity:
    """Return the members of what a group, or a page, holds of its values."""
    members: Entity = {}
    for at in range(0, len(values), _PIECE):
        members |= _binary(f"{VALUES}{at // _PIECE}", values[at : at + _PIECE])
    return members


def values_in(entity: Members) -> bytes:
    """Return what a group, or a page, holds of its values."""
    pieces: list[bytes] = []
    while (piece := entity.get(f"{VALUES}{len(pieces)}")) is not None:
        pieces.append(base64.b64decode(piece))
    return b"".join(pieces)
