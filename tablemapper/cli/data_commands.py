"""Commands that write entities: a file of them, some fields of one, and deletions."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from ..entities.declaration import declaration_of
from ..errors import (
    EntityExists,
    EntityNotFound,
    EntityTooLarge,
    InvalidEntity,
    InvalidQuery,
    PreconditionFailed,
    UniqueViolation,
    safe_repr,
)
from ..formats.arrow import load_package
from ..interchange.json import from_dict, from_json, to_dict
from ..interchange.parsing import assignment, condition, key, plain_value
from ..store.opening import open as open_store
from ..store.store import Store
from .app import Json, Models, StoreArgument, existing, failure, find_class, load_models
from .output import Exit, show
from .query_commands import Scan, Where, entity_table

Name = Annotated[str, Parameter(name="CLASS", help="the name of the class")]
Values = Annotated[str, Parameter(allow_leading_hyphen=True, help="the values of the key")]
IfMatch = Annotated[str, Parameter(help="the ETag that the entity must have, as get shows it")]
Form = Literal["jsonl", "csv", "parquet"]
_ENDINGS: Mapping[str, Form] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_REFUSED = (EntityExists, EntityNotFound, PreconditionFailed, UniqueViolation, InvalidEntity, EntityTooLarge)
_ROWS = 10_000  # of a Parquet file that are in memory


def _refusing(command: Any) -> Any:
    """Return a command that ends with 1 and one line where the store refuses what it was given."""

    @wraps(command)
    def refusing(*arguments: Any, json: bool = False, **options: Any) -> Exit:
        try:
            ended: Exit = command(*arguments, json=json, **options)
        except _REFUSED as error:
            if isinstance(error, EntityExists):
                error.add_note("--upsert replaces what is there already")
            return failure(error, Exit.FINDINGS, json=json)
        return ended

    return refusing


def _opened(place: str, models: str) -> Store:
    return open_store(**existing(place), models=load_models(models))


@_refusing
def import_entities(
    place: StoreArgument,
    name: Name,
    file: Annotated[
        str, Parameter(name="FILE", allow_leading_hyphen=True, help="the file, or - for the standard input")
    ],
    /,
    *,
    format: Annotated[Form | None, Parameter(help="how the file is written; by default what its ending says")] = None,
    upsert: Annotated[bool, Parameter(negative="", help="replace entities that are there already")] = False,
    models: Models,
    json: Json = False,
) -> Exit:
    """Store the entities of a file, in the form that show writes: JSON lines or CSV; or of a Parquet file."""
    form = format or _ENDINGS.get(Path(file).suffix.lower())
    if form is None:
        raise InvalidQuery(f"{file}: its ending says no format; give --format jsonl, csv or parquet")
    if form == "parquet" and file == "-":
        raise InvalidQuery("a Parquet file cannot be read from the standard input; name the file")
    with _opened(place, models) as store, ExitStack() as closing:
        cls = find_class(store, name)
        title = "standard input" if file == "-" else file
        options: dict[str, Any] = {"progress": sys.stderr.isatty()}
        if form == "parquet":
            write = store.upsert_columns if upsert else store.insert_columns
            count = sum(write(cls, batch, **options) for batch in _batches(file))
        else:
            stream: IO[str] = sys.stdin
            if file != "-":
                stream = closing.enter_context(open(file, encoding="utf-8-sig", newline=""))
            entities = (_of_json_lines if form == "jsonl" else _of_csv)(cls, title, stream)
            count = (store.upsert_many if upsert else store.insert_many)(entities, **options)
    return show({"ok": True, "written": count}, f"{count:,} written", json=json)


def _of_json_lines(cls: type[Any], title: str, stream: Iterable[str]) -> Iterator[Any]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            yield _read(title, number, partial(from_json, cls), line)


def _of_csv(cls: type[Any], title: str, stream: Iterable[str]) -> Iterator[Any]:
    rows, class_fields = csv.reader(stream, strict=True), declaration_of(cls).fields
    fields = {field.property: field for field in class_fields} | {field.name: field for field in class_fields}
    try:
        head = next(rows, [])
        if unknown := [column for column in head if column not in fields]:
            listed = ", ".join(field.property for field in class_fields)
            raise InvalidEntity(
                f"{title}, line 1", [f"{safe_repr(unknown[0])} is no field of {cls.__name__} ({listed})"]
            )

        def entity(cells: list[str]) -> Any:
            if len(cells) != len(head):
                raise InvalidEntity(cls.__name__, [f"expected {len(head)} cells, got {len(cells)}"])
            members: dict[str, Any] = {}
            for column, cell in zip(head, cells, strict=True):
                kind = fields[column].type
                if fields[column].maintained or (cell == "" and (fields[column].optional or not kind.text)):
                    continue
                plain = plain_value(kind, cell)
                members |= plain if kind.undeclared and isinstance(plain, dict) else {fields[column].property: plain}
            return from_dict(cls, members)

        for cells in rows:
            if cells:
                yield _read(title, rows.line_num, entity, cells)
    except csv.Error as error:
        raise InvalidEntity(f"{title}, line {rows.line_num}", [str(error)]) from error


def _read(title: str, number: int, read: Any, data: Any) -> Any:
    """Return the entity that a function reads from a line; name the line if it is none."""
    try:
        return read(data)
    except (InvalidEntity, msgspec.DecodeError) as error:
        raise InvalidEntity(f"{title}, line {number}", [str(error)]) from error


def _batches(file: str) -> Iterator[Any]:
    """Yield the rows of a Parquet file, some at a time."""
    parquet = load_package("pyarrow.parquet", "arrow", "a Parquet file")
    try:
        with parquet.ParquetFile(file) as source:
            yield from source.iter_batches(_ROWS)
    except load_package("pyarrow", "arrow", "a Parquet file").ArrowInvalid as error:
        raise InvalidEntity(file, [str(error)]) from error


@_refusing
def set_fields(
    place: StoreArgument,
    name: Name,
    /,
    *values: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="the values of the key, then field=value, or field:=JSON, such as note:=null",
        ),
    ],
    if_match: IfMatch | None = None,
    models: Models,
    json: Json = False,
) -> Exit:
    """Change some fields of one entity, and show it as it is stored."""
    with _opened(place, models) as store:
        cls = find_class(store, name)
        keyed = len(declaration_of(cls).arguments)
        of = key(cls, values[:keyed])
        assignments = [assignment(cls, text) for text in values[keyed:]]
        if not assignments:
            raise InvalidQuery("set: nothing to change; after the values of the key, give field=value")
        entity = store.merge(of, *assignments, if_match=if_match, returning=True)
    return entity_table(to_dict(entity, etag=True), json=json)


@_refusing
def delete_entities(
    place: StoreArgument,
    name: Name,
    /,
    *values: Values,
    where: Where = (),
    scan: Scan = False,
    yes: Annotated[bool, Parameter(negative="", help="delete what --where finds without asking")] = False,
    if_match: IfMatch | None = None,
    models: Models,
    json: Json = False,
) -> Exit:
    """Delete one entity by the values of its key, or all that --where finds."""
    if bool(values) == bool(where):
        raise InvalidQuery("delete: give the values of a key, or --where, one of both")
    if where and if_match is not None:
        raise InvalidQuery("--if-match is for one entity, by the values of its key")
    with _opened(place, models) as store:
        cls = find_class(store, name)
        if values:
            store.delete(key(cls, values), if_match=if_match)
            count = 1
        else:
            query: Any = store.query(cls).where(*(condition(cls, text) for text in where))
            query = query.allow_scan() if scan else query
            if not yes and not _confirmed(query.count(), name):
                return show({"ok": True, "deleted": 0}, "nothing deleted", json=json)
            count = query.delete(progress=sys.stderr.isatty())
    return show({"ok": True, "deleted": count}, f"{count:,} deleted", json=json)


@_refusing
def expire(
    place: StoreArgument,
    name: Annotated[str | None, Parameter(name="CLASS", help="the name of the class; without it, all that end")] = None,
    /,
    *,
    limit: Annotated[int | None, Parameter(help="how many entities this call deletes at most")] = None,
    models: Models,
    json: Json = False,
) -> Exit:
    """Delete the entities that have ended, by the time that expires=True names."""
    with _opened(place, models) as store:
        cls = None if name is None else find_class(store, name)
        count = store.expire(cls, limit=limit, progress=sys.stderr.isatty())
    return show({"ok": True, "deleted": count}, f"{count:,} deleted", json=json)


def _confirmed(count: int, name: str) -> bool:
    """Return whether a person at a terminal says yes."""
    if not sys.stdin.isatty():
        raise InvalidQuery(f"delete: {count:,} entities of {name} match; --yes deletes them")
    sys.stderr.write(f"delete {count:,} entities of {name}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
