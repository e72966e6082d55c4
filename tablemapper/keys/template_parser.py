"""The parser of templates: every fault of a text at once, or its slots and what delimits them."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from ..errors import InvalidModel, did_you_mean
from .codec import KeyCodec, key_codec
from .encodings import literal_fault
from .template import Parts, Slot, Template

_DELIMITERS = frozenset(string.punctuation) - frozenset('"~')
_Draft = str | tuple[str, KeyCodec]


def compile_template(
    text: str | tuple[str, ...], kinds: Mapping[str, Any], *, subject: str, raw: bool = True
) -> Template:
    """Return the compiled form of a template.

    Args:
        text: a text with ``{field}`` and ``{field:spec}``, or a tuple of them.
        kinds: the type of each field by name; nested ones by their path, ``address.city``.
        subject: what is declared, for the messages: ``Product.key, partition``.
        raw: whether the spec ``raw`` may be used. It may not in an index.

    Raises:
        InvalidModel: All that is wrong with the template.
    """
    faults: list[str] = []
    texts = (text,) if isinstance(text, str) else tuple(text)
    if not texts:
        raise InvalidModel(subject, ['an empty tuple has no text: give a component, or the text ""'])
    drafts = [list(_parse(component_text, kinds, subject, raw, faults)) for component_text in texts]
    last_number = len(drafts) - 1
    index = count()
    components = [
        _component(draft, texts[number], number, index, faults, ends_key=number == last_number)
        for number, draft in enumerate(drafts)
    ]
    slots = [part for component in components for part in component if isinstance(part, Slot)]
    faults += [
        f"{slot} is a tuple of any length, and nothing can follow it in a key: put it last"
        for slot in slots
        if slot.open_ended and not slot.ends_key
    ]
    if any(slot.spec == "raw" for slot in slots) and (len(slots) > 1 or len(texts) > 1):
        faults.append('"raw" has to be the only slot of a template of one text, since it may hold any separator')
    if faults:
        raise InvalidModel(subject, faults)
    return Template(text if isinstance(text, str) else texts, subject, tuple(components))


def _component(
    draft: list[_Draft], text: str, number: int, index: Iterator[int], faults: list[str], *, ends_key: bool
) -> Parts:
    """Return the parts of a component, its slots with the next numbers of the template."""
    parts: list[str | Slot] = []
    for place, part in enumerate(draft):
        if isinstance(part, str):
            parts.append(part)
            continue
        field, key = part
        following_parts = draft[place + 1 :]
        delimiter, units_after = _ending(text, field, key, following_parts, faults)
        following = following_parts[0] if following_parts else None
        ends = key.fixed is not None or key.prefix_free or following is None
        parts.append(
            Slot(
                field=field,
                spec=key.spec,
                index=next(index),
                component=number,
                text=key,
                ordered=key.ordered and (ends or (isinstance(following, str) and following[0] < key.least)),
                delimiter=delimiter,
                after=units_after,
                ends_component=not following_parts,
                ends_key=not following_parts and ends_key,
            )
        )
    return tuple(parts)


def _parse(text: str, kinds: Mapping[str, Any], subject: str, raw: bool, faults: list[str]) -> Iterator[_Draft]:
    """Yield literals and (field, codec) of a component; what cannot be one is a fault instead."""
    literal = ""

    def checked() -> str:
        if fault := literal_fault(literal):
            faults.append(fault)
        return literal

    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        faults.append(f"{text!r} cannot be read: {error}; a literal brace is written twice")
        return
    for piece, field, spec, conversion in pieces:
        literal += piece
        if field is None:
            continue
        if literal:
            yield checked()
            literal = ""
        if conversion:
            faults.append(f"{{{field}!{conversion}}}: there are no conversions; write a spec after a colon")
        if "[" in field:
            faults.append(
                f"{{{field}}}: the key of an entry that is part of a key or an index has none of . [ ] {{ }} : !"
            )
            continue
        if field not in kinds:
            faults.append(f'no field "{field}" (fields: {", ".join(kinds)}){did_you_mean(field, kinds)}')
            continue
        try:
            yield field, key_codec(kinds[field], spec or "", field=field, subject=subject, raw=raw)
        except InvalidModel as error:
            faults.extend(error.faults)
    if literal:
        yield checked()


def _ending(
    text: str, field: str, key: KeyCodec, following_parts: list[_Draft], faults: list[str]
) -> tuple[str, int | None]:
    """Return what ends the text of a slot: a character, or the number of those that follow; a fault if nothing does."""
    if key.fixed is not None or key.prefix_free or not following_parts:
        return "", None
    widths = [len(part) if isinstance(part, str) else part[1].fixed for part in following_parts]
    if None not in widths:
        return "", sum(filter(None, widths))
    following = following_parts[0]
    if not isinstance(following, str):
        faults.append(f"{text!r}: nothing separates {field} and {following[0]}: use a tuple of two texts")
    elif following[0] not in _DELIMITERS:
        faults.append(
            f"{text!r}: {following[0]!r} cannot end the text of {field}, because that text may contain it: "
            "use punctuation (not a space, quote or ~), or a tuple of two texts"
        )
    else:
        return following[0], None
    return "", None
