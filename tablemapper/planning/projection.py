"""Generated readers: from rows of a path, the entity table or an index, to the results of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs

from ..codegen import Names, compile_functions
from ..errors import TableMapperError
from ..expressions.python_source import attribute_source, python_source
from ..expressions.tree import Attr
from ..keys.composite_times import decode_source, whole_fields
from ..keys.template import Template
from ..schema.maintenance import index_columns
from ..schema.rows import DAMAGE, Row, read_source, unreadable
from .conditions import AnyPredicate
from .plan import AccessPath

Values = Sequence[Any]


@attrs.frozen(cache_hash=True)
class RowLayout:
    """The columns of a row of an engine: maybe its place on the path first, then an entity or some properties."""

    places: bool
    """``(sort value…, partition key, row key)`` of the path; of an index, the entity's keys too."""
    fields: tuple[str, ...] | None = None
    """The fields with stored properties that follow; None: all, as a row of the model."""
    state: bool = False
    """Whether the state of an aggregate's group comes last."""
    line: bool = False
    """Whether all of it is one line of JSON, an array with a 0 at both ends."""


ENTITIES = RowLayout(places=False)


def layout_of(path: AccessPath, attributes: Iterable[Attr[Any, Any]], *, covering: bool) -> RowLayout:
    """Return the layout that attributes can be made of: properties that the keys do not hold."""
    from_keys = _in_keys(path, covering=covering)
    names = dict.fromkeys(attr.name for attr in attributes if attr.name not in from_keys)
    return RowLayout(places=True, fields=tuple(names))


_Key = tuple[tuple[str, str], tuple[Template, Template]]
"""The variables that hold a key, and its templates."""


def _in_keys(path: AccessPath, *, covering: bool) -> dict[str, _Key]:
    """Return the fields that the keys of a path's rows give back, each with the key."""
    model, index = path.model, path.index
    stored_fields: Iterable[str] = model.position
    keys: dict[str, _Key] = {}
    if covering and index is not None:
        stored_fields = {field.name for field in index_columns(model, index)}
        keys |= dict.fromkeys(whole_fields(path.templates) - {index.fan_out}, (("ipk", "irk"), path.templates))
    templates = model.declaration.templates
    keys |= dict.fromkeys(whole_fields(templates), (("pk", "rk"), templates))
    return {name: key for name, key in keys.items() if name not in stored_fields}


def tuples(
    path: AccessPath,
    layout: RowLayout,
    selected: Sequence[Attr[Any, Any]],
    residual: Sequence[AnyPredicate] = (),
    *,
    covering: bool = False,
    sorted_by: int = 0,
) -> Callable[[Iterable[Row], Values], list[tuple[Any, ...]]]:
    """Return a function that makes tuples of rows, of those that satisfy what the engine left to be checked.

    Args:
        residual: predicates; the second argument of the function has the values of their parameters.
        covering: whether the rows are those of the index alone.
        sorted_by: how many values to sort by stand in front.
    """
    names = Names(DAMAGE=DAMAGE, unreadable=unreadable)
    model = path.model
    required = {attr.name for attr in (*selected, *(a for p in residual for a in p.attributes()))}
    places = ["ipk", "irk", "pk", "rk"] if path.index is not None else ["pk", "rk"]
    keyed = _in_keys(path, covering=covering)
    fields = layout.fields or ()
    lines = ["def tuples(rows, v):", "    items = []; add = items.append", "    row = None", "    try:"]
    heads = [*(f"_s{at}" for at in range(sorted_by)), *places, *(f"c_{name}" for name in fields)]
    lines.append("        for row in rows:")
    lines.append(f"            {', '.join(heads)}, *rest = row")
    lines += [f"            {line}" for line in _decoded(keyed, required, names)]
    for name in fields:
        if name not in required:
            continue
        field = model.declaration.field(name)
        lines.append(f"            f_{name} = {read_source(field, f'c_{name}', names)}")
    for predicate in residual:
        lines.append(f"            if not {python_source(predicate, lambda name: f'f_{name}', names)}: continue")
    values = "".join(f"{attribute_source(attr, f'f_{attr.name}', names)}, " for attr in selected)
    lines.append(f"            add(({values}{'*rest,' if layout.state else ''}))")
    lines.append(f"    except DAMAGE as error: raise unreadable({model.name!r}, row, error) from error")
    lines.append("    return items")
    source = "\n".join(lines) + "\n"
    function: Callable[[Iterable[Row], Values], list[tuple[Any, ...]]]
    function = compile_functions(f"{path} tuples", source, names)["tuples"]
    return function


def _decoded(keyed: dict[str, _Key], required: set[str], names: Names) -> Iterator[str]:
    targets_by_key: dict[_Key, dict[str, str]] = {}
    for name, key in keyed.items():
        if name in required:
            targets_by_key.setdefault(key, {})[name] = f"f_{name}"
    for (variables, templates), targets in targets_by_key.items():
        yield from decode_source(templates, variables, targets, names)


def stored_keys(
    path: AccessPath, requested: Sequence[str], *, covering: bool
) -> tuple[tuple[str, ...], Callable[..., tuple[list[Any], ...]]]:
    """Return the fields of those wanted that the keys hold, and a function that gives a column of each, in stored form.

    The function takes a column of each key of a row's place: a text that is stored as it stands in a key is not read.

    Args:
        covering: whether the rows are those of the index alone.
    """
    names = Names(DAMAGE=DAMAGE, unreadable=unreadable)
    model = path.model
    places = ["ipk", "irk", "pk", "rk"] if path.index is not None else ["pk", "rk"]
    keyed = _in_keys(path, covering=covering)
    key_fields = tuple([name for name in dict.fromkeys(requested) if name in keyed])
    sources: dict[str, str] = {}
    for name in key_fields:
        variables, templates = keyed[name]
        texts = [template.text_source(name, key) for key, template in zip(variables, templates, strict=True)]
        if model.declaration.field(name).type.key_text and (text := next(filter(None, texts), None)) is not None:
            sources[name] = text
    decoded = set(key_fields) - sources.keys()
    if not key_fields:
        return (), lambda *_: ()
    for name in decoded:
        sources[name] = model.declaration.field(name).type.store_source(f"f_{name}", names)
    lines = [f"def columns({', '.join(f'{place}s' for place in places)}):"]
    lines += [f"    l_{name} = []; a_{name} = l_{name}.append" for name in key_fields]
    lines.append(f"    {' = '.join(places)} = None")
    lines.append("    try:")
    lines.append(f"        for {', '.join(places)} in zip({', '.join(f'{place}s' for place in places)}):")
    lines += [f"            {line}" for line in _decoded(keyed, decoded, names)]
    lines += [f"            a_{name}({sources[name]})" for name in key_fields] or ["            pass"]
    lines.append(f"    except DAMAGE as error: raise unreadable({model.name!r}, (pk, rk), error) from error")
    lines.append(f"    return ({''.join(f'l_{name}, ' for name in key_fields)})")
    return key_fields, compile_functions(f"{path} key columns", "\n".join(lines) + "\n", names)["columns"]


@attrs.frozen
class KeyPiece:
    """A component of a key, and the fields that are read from its text alone."""

    place: int
    """Which of the keys in front of a row it is in."""
    component: int
    components: int
    """How many the key has."""
    splits: int
    """How often the key is split at most; -1 for any number."""
    fields: tuple[str, ...]
    read: Callable[[Iterable[str]], tuple[list[Any], ...]] | None
    """Gives a column of each field, in stored form, of texts; None if the text is what is stored of the only field."""
    digits: int | None = None
    """Where the digits begin in the text of an int that is not negative, if that is all there is."""


def key_pieces(path: AccessPath, requested: Sequence[str], *, covering: bool) -> list[KeyPiece] | None:
    """Return the components of keys that hold fields; None if one of them is in several components.

    Args: as `stored_keys` has them.
    """
    model = path.model
    places = ["ipk", "irk", "pk", "rk"] if path.index is not None else ["pk", "rk"]
    keyed = _in_keys(path, covering=covering)
    plain: list[KeyPiece] = []
    shared: dict[tuple[str, Template, int], list[str]] = {}
    for name in dict.fromkeys(requested):
        if name not in keyed:
            continue
        keys = list(zip(*keyed[name], strict=True))
        for place, template in keys if model.declaration.field(name).type.key_text else ():
            if (slot := template.plain_slot(name)) is not None:
                of = len(template.components), template.splits
                plain.append(KeyPiece(places.index(place), slot.component, *of, (name,), None))
                break
        else:
            match = next(((place, candidate) for place, candidate in keys if name in candidate.lossless_fields), None)
            if match is None:
                return None
            shared.setdefault((*match, match[1].component_of(name)), []).append(name)
    return plain + [
        KeyPiece(
            places.index(place), number, len(template.components), template.splits, tuple(fields),
            _piece_reader(path, template, number, fields), _digits(template, number),
        )
        for (place, template, number), fields in shared.items()
    ]  # fmt: skip


def _digits(template: Template, component: int) -> int | None:
    slot = template.components[component][0]
    is_only_slot = len(template.components[component]) == 1
    return slot.text.digits if is_only_slot and not isinstance(slot, str) else None


def _piece_reader(
    path: AccessPath, template: Template, component: int, fields: Sequence[str]
) -> Callable[[Iterable[str]], tuple[list[Any], ...]]:
    names = Names(DAMAGE=DAMAGE, unreadable=unreadable)
    targets = {name: f"f_{name}" for name in fields}
    lines = ["def columns(texts):"]
    lines += [f"    l_{name} = []; a_{name} = l_{name}.append" for name in fields]
    lines.append("    text = None")
    lines.append("    try:")
    lines.append("        for text in texts:")
    lines += [f"            {line}" for line in template.component_source(component, "text", targets, names)]
    for name in fields:
        source = path.model.declaration.field(name).type.store_source(f"f_{name}", names)
        lines.append(f"            a_{name}({source})")
    lines.append(f"    except DAMAGE as error: raise unreadable({path.model.name!r}, (text,), error) from error")
    lines.append(f"    return ({''.join(f'l_{name}, ' for name in fields)})")
    return compile_functions(f"{path} key texts", "\n".join(lines) + "\n", names)["columns"]


def filtered(
    build: Callable[[Iterable[Row]], list[Any]], residual: Sequence[AnyPredicate]
) -> Callable[[Iterable[Row], Values], list[Any]]:
    """Return a function that makes entities of rows, of those that satisfy what the engine left to be checked."""
    if not residual:
        return lambda rows, v: build(rows)
    names = Names(build=build)
    holds = " and ".join(python_source(predicate, lambda name: f"e.{name}", names) for predicate in residual)
    source = _of_entities("entities", f"[e for e in build(rows) if {holds}]", names)
    return compile_functions("filtered entities", source, names)["entities"]


def chosen(
    entities: Callable[[Iterable[Row], Values], list[Any]], selected: Sequence[Attr[Any, Any]]
) -> Callable[[Iterable[Row], Values], list[tuple[Any, ...]]]:
    """Return a function that makes tuples of attributes of entities, which another one makes of rows."""
    names = Names(entities=entities)
    values = "".join(f"{attribute_source(attr, f'e.{attr.name}', names)}, " for attr in selected)
    source = _of_entities("chosen", f"[({values}) for e in entities(rows, v)]", names)
    return compile_functions("chosen attributes", source, names)["chosen"]


def _of_entities(name: str, value: str, names: Names) -> str:
    """Return source of a function that makes something of the entities of rows."""
    names.update(DAMAGE=DAMAGE, unreadable=unreadable, ours=TableMapperError)
    lines = [
        f"def {name}(rows, v):",
        f"    try: return {value}",
        "    except ours: raise",
        "    except DAMAGE as error: raise unreadable('a query', None, error) from error",
    ]
    return "\n".join(lines) + "\n"
