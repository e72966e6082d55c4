"""Values as pages and terminals show them: short, and never as anything but text."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import attrs
import msgspec

from ..entities.fields import FieldModel
from ..interchange.json import field_values

LONG = 200  # characters of a value in a table
_BYTES = 32
_TAGS = 12
# C0 and C1, what changes the direction of what follows, what ends a line, and what has no width.
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


@attrs.frozen
class Cell:
    """One value: its text, or a short text for each element of a list."""

    text: str
    style: str = ""
    """``n`` for a number, ``none`` for what is empty."""
    tags: tuple[str, ...] = ()


def cells(entity: Any, fields: Iterable[FieldModel]) -> list[Cell]:
    """Return the values of some fields of an entity."""
    plain = field_values(entity)
    return [cell(getattr(entity, field.name), plain[field.property]) for field in fields]


def cell(value: Any, plain: Any = None, *, most: int = LONG) -> Cell:
    """Return the cell of a value.

    Args:
        plain: the same as JSON has it.
        most: characters that are shown.
    """
    if value is None:
        return Cell("–", "none")
    if isinstance(value, bytes):
        text = value[:_BYTES].hex(" ")
        return Cell(f"{text} … {len(value):,} bytes" if len(value) > _BYTES else text or "no bytes", "k")
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return Cell(_cut(str(value), most), "n")
    display = value if plain is None else plain
    if isinstance(value, datetime.datetime | datetime.time) and isinstance(display, str):
        display = display.replace(".000000", "")
    if isinstance(display, str):
        return Cell(visible(_cut(display, most)), "" if display else "none")
    if isinstance(display, list) and display and all(isinstance(tag, str) and tag for tag in display[:_TAGS]):
        return Cell("", "", tuple(_tags(display, most)))
    text = _json(display)
    return Cell(_cut(text, most), "none" if text in ("[]", "{}") else "")


def visible(text: str) -> str:
    """Return a text as it is seen on a page: nothing in it is invisible."""
    return escaped(text, "\0\t\n") if text.strip() else f'"{escaped(text)}"'


def escaped(text: str, keep: str = "") -> str:
    r"""Return a text without control characters: each stands as ``\x1b`` or ``\u202e``, except what is kept."""
    return CONTROLS.sub(
        lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode(), text
    )


def _tags(texts: list[str], most: int) -> Iterable[str]:
    for text in texts[:_TAGS]:
        yield visible(_cut(text, max(1, most // _TAGS)))
    if len(texts) > _TAGS:
        yield f"… {len(texts):,} in all"


def plain_text(value: Any) -> str:
    """Return a value as a person types it: text as it is, all else as JSON has it."""
    text = value if isinstance(value, str) else _json(value)
    return text if isinstance(value, str) or text[:1] != '"' else str(msgspec.json.decode(text))  # (a Decimal, a time)


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return str(value)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… {len(text):,} characters"
