"""The text of each kind of value inside a key, before a spec changes it.

A partition key and a row key are text, and text is all that a store sorts them by. So the text of a value has to

* differ for all values: two values never share a text;
* sort as the values sort, also in front of a separator;
* hold no character that Azure forbids in keys (``/ \\ # ?``, U+0000-1F, U+007F-9F), and no separator (``" !"``);
* stay readable: text that needs no escape stands as it is.

Text is escaped so that an escape begins with the greatest legal character *below* the escaped one. ``/`` becomes
``.~``, which sorts above every ``.x`` and below ``0``. The few texts that would read as an escape get a guard (``}``)
between the plain text and the escape: ``.`` then ``é`` becomes ``.}é``. A space in front of a character up to ``"``, or
at the end, becomes `` "20``, so that the separator of components sorts below everything that continues a component.

Numbers carry their length in front (``42`` is ``b42``, ``-7`` is ``Z2``), so they delimit themselves.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NoReturn
from uuid import UUID

import attrs
import msgspec

from ..datetime_types import Builtin
from ..errors import InvalidEntity
from ..limits import MAX_KEY_UNITS, utf16_units

SEPARATOR = " !"
FORBIDDEN = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""A character that cannot stand in a key."""

Encode = Callable[[Any], str]
Decode = Callable[[str], Any]
Refuse = Callable[[object, str], NoReturn]
Cuts = list[tuple[str, str]]
Shape = tuple[frozenset[str], ...]


class NotAKey(ValueError):
    """A text that no value encodes to. Callers turn it into an error that says where the text came from."""


def check_key(text: str, *, limit: int = MAX_KEY_UNITS, what: str = "key") -> str:
    """Return the text if it fits a key. It is measured as Azure does, in UTF-16 units: an emoji is two."""
    if len(text) * 2 > limit and (units := utf16_units(text)) > limit:
        raise InvalidEntity(
            what,
            [
                f"{text[:40]!r}… has {units} UTF-16 units, a key may have {limit}: shorten the value, "
                "or use {field:hash} where only equality matters"
            ],
        )
    return text


def raise_last(text: str) -> str | None:
    """Return the least legal text above all that start with this one; None if nothing is above them."""
    while text:
        code = ord(text[-1]) + 1
        while code < 0x110000 and FORBIDDEN.match(chr(code)):
            code = 0xE000 if code >= 0xD800 else code + 1
        if code < 0x110000:
            return text[:-1] + chr(code)
        text = text[:-1]
    return None


def bind(env: dict[str, Any], stem: str, value: object) -> str:
    """Put a value into the namespace of generated source, and return the name that it got."""
    name, number = stem, 1
    while name in env and env[name] is not value:
        number += 1
        name = f"{stem}_{number}"
    env[name] = value
    return name


# -- text ----------------------------------------------------------------------------------------------------------

# One character class first, which the engine scans fast; then what makes a character of it special where it stands.
_SPECIAL = re.compile(
    r'[\x00-\x20"#./>?\[\\~\x7f-\x9f\ud800-\udfff]'
    r'(?:(?<=[^ ".>\[~])'  # forbidden, or half a surrogate pair
    r'|(?<= )(?=[\x00-\x20!"]|\Z)'  # a space that would read as a mark
    r'|(?<=[".>\[~])(?=[\x7d-\U0010ffff]))'  # the character below a forbidden one, before what would read as its mark
)
SPECIAL_AT = _SPECIAL.search
_ESCAPE = re.compile(r' "([0-9a-f]{2})|~~([0-9a-f]{2})|([".>\[])~|([".>\[~])\}')


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if code <= 0x20:
        return f' "{code:02x}'
    if char in "#/?\\":
        return chr(code - 1) + "~"
    if 0x7F <= code <= 0x9F:
        return f"~~{code:02x}"
    if code >= 0xD800:
        raise UnicodeError(f"U+{code:04X} is half of a surrogate pair, which no UTF-8 can hold: remove it")
    return char + "}"


def _plain(match: re.Match[str]) -> str:
    low, high, below, guarded = match.groups()
    if low or high:
        return chr(int(low or high, 16))
    return chr(ord(below) + 1) if below else guarded


def unescape(text: str) -> str:
    return _ESCAPE.sub(_plain, text)


def _decode_text(text: str) -> str:
    return unescape(text) if "~" in text or "}" in text or ' "' in text else text


SURROGATE = re.compile(r"[\ud800-\udfff]")


def as_written(value: str) -> str:
    """Return the key text of a text without lone surrogates."""
    return _SPECIAL.sub(_escaped, value)


def successor(value: str) -> str | None:
    """Return the least text above all that start with this one; it need not be legal, it is going to be escaped."""
    while value:
        code = ord(value[-1]) + 1
        if code < 0x110000:
            return value[:-1] + chr(0xE000 if code == 0xD800 else code)
        value = value[:-1]
    return None


def text_codec(refuse: Refuse) -> tuple[Encode, Encode]:
    """Return the codec of text, and the part of it that is left when something needs an escape."""

    def escape(value: str) -> str:
        try:
            return _SPECIAL.sub(_escaped, value)
        except UnicodeError as error:
            refuse(value, str(error))

    def encode(value: str) -> str:
        return value if value.isalnum() or not SPECIAL_AT(value) else escape(value)

    return encode, escape


# -- hierarchies: each level ends with the separator, so that one is in front of all that is below it ------------------


def _levels(refuse: Refuse) -> Encode:
    encode = text_codec(refuse)[0]
    return lambda levels: "".join([encode(level) + SEPARATOR for level in levels])


def _decode_levels(text: str) -> tuple[str, ...]:
    return tuple(map(_decode_text, text.split(SEPARATOR)[:-1]))


# -- numbers -------------------------------------------------------------------------------------------------------

MAX_DIGITS = 26  # one letter a length
ABOVE = "`abcdefghijklmnopqrstuvwxyz"
_BELOW = "[ZYXWVUTSRQPONMLKJIHGFEDCBA"
TEN = [10**power for power in range(MAX_DIGITS + 1)]
LENGTH = {letter: k for marks in (ABOVE, _BELOW) for k, letter in enumerate(marks) if k}


def _encode_int(number: int) -> str:
    if number >= 0:
        digits = str(number)
        return ABOVE[len(digits)] + digits
    k = len(str(-number))
    return "%s%0*d" % (_BELOW[k], k, TEN[k] - 1 + number)


def _decode_int(text: str) -> int:
    return int(text[1:]) if text[0] >= "a" else int(text[1:]) - TEN[len(text) - 1] + 1


def _int(refuse: Refuse) -> Encode:
    def encode(number: int) -> str:
        try:
            return _encode_int(number)
        except (IndexError, ValueError):  # ValueError: past what str() of an int may cost
            refuse("this number", f"it has over {MAX_DIGITS} digits: use a number of 64 bits")

    return encode


_pack_double, _unpack_double = struct.Struct(">d").pack, struct.Struct(">d").unpack
_pack_bits, _unpack_bits = struct.Struct(">Q").pack, struct.Struct(">Q").unpack
_SIGN, _ALL = 1 << 63, (1 << 64) - 1


def _float(refuse: Refuse) -> Encode:
    def encode(number: float) -> str:
        if number != number:
            refuse(number, "it has no place in an order: use None for a missing value")
        (bits,) = _unpack_bits(_pack_double(number + 0.0))  # -0.0 + 0.0 is 0.0
        return "%016x" % (bits ^ _ALL if bits & _SIGN else bits | _SIGN)

    return encode


def _decode_float(text: str) -> float:
    if len(text) != 16:
        raise NotAKey(text)
    bits = int(text, 16)
    number: float = _unpack_double(_pack_bits(bits ^ _SIGN if bits & _SIGN else bits ^ _ALL))[0]
    return number


_NINES = str.maketrans("0123456789", "9876543210")


def _decimal(refuse: Refuse) -> Encode:
    def encode(number: Decimal) -> str:
        if not number.is_finite():
            refuse(number, "it has no place in an order: use a finite number, or None")
        mantissa, _, power = f"{number:E}".partition("E")  # every digit, one before the point, whatever the context
        negative = mantissa[0] == "-"
        digits = (mantissa[negative] + mantissa[negative + 2 :]).rstrip("0")
        if not digits:
            return "o"
        if negative:
            return "n" + _encode_int(-int(power)) + digits.translate(_NINES) + "~"
        return "p" + _encode_int(int(power)) + digits

    return encode


def _decode_decimal(text: str) -> Decimal:
    if text == "o":
        return Decimal(0)
    negative = text[0] == "n"
    end = 2 + LENGTH[text[1]]
    power, digits = _decode_int(text[1:end]), text[end:]
    if negative:
        power, digits = -power, digits[:-1].translate(_NINES)
    return Decimal(f"{'-' if negative else ''}{digits}E{power - len(digits) + 1}")


# -- times, identifiers, bytes -------------------------------------------------------------------------------------

iso: Final = msgspec.to_builtins  # 60 ns; isoformat takes 700, a format of the seven parts 1,000
_FIRST = Builtin.datetime(1, 1, 1, tzinfo=UTC)
_LAST_TICK, _LAST_DAY = 3_155_378_975_999_999_999, 3_652_059
MICROSECOND = timedelta(microseconds=1)


def in_utc(refuse: Refuse) -> Callable[[datetime], datetime]:
    def utc(value: datetime) -> datetime:
        if value.tzinfo is UTC:
            return value
        if value.tzinfo is None:
            refuse(value, "it has no time zone: give it one, as in datetime(…, tzinfo=timezone.utc)")
        try:
            return value.astimezone(UTC)
        except OverflowError:
            refuse(value, "it is not in the years 1 to 9999 of UTC")

    return utc


def _datetime(refuse: Refuse) -> Encode:
    utc = in_utc(refuse)

    def encode(value: datetime) -> str:
        text: str = iso(utc(value))
        return text if len(text) == 27 else f"{text[:19]}.000000Z"

    return encode


def _datetime_desc(refuse: Refuse) -> Encode:
    utc = in_utc(refuse)

    def encode(value: datetime) -> str:
        since = utc(value) - _FIRST
        return "%019d" % (_LAST_TICK - ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 10)

    return encode


def _decode_datetime_desc(text: str) -> datetime:
    return _FIRST + timedelta(microseconds=(_LAST_TICK - int(text)) // 10)


def _time(refuse: Refuse) -> Encode:
    def encode(value: time) -> str:
        if value.tzinfo is not None:
            refuse(value, "a time of day has no time zone: use value.replace(tzinfo=None)")
        return "%02d:%02d:%02d.%06d" % (value.hour, value.minute, value.second, value.microsecond)

    return encode


def _microseconds(value: timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds


def _decode_timedelta(text: str) -> timedelta:
    return timedelta(microseconds=_decode_int(text))


# -- kinds ---------------------------------------------------------------------------------------------------------

DIGITS, _HEX = frozenset("0123456789"), frozenset("0123456789abcdef")
_CLASSES = {"9": DIGITS, "f": _HEX, "b": frozenset("01")}


def places(picture: str) -> Shape:
    """Return which characters each place may hold: 9 a digit, f a hex digit, anything else itself."""
    return tuple(_CLASSES.get(char) or frozenset(char) for char in picture)


NOTHING: frozenset[str] = frozenset()
_INT_SHAPE = (frozenset(LENGTH), DIGITS)


def always_among(value: Any) -> int | None:
    """Return where a value stands that no key can hold: None, nowhere; -1 or 1, below or above all; 0, among them."""
    return 0


@attrs.frozen
class Encoding:
    """The key text of the values of a kind, before a spec changes it."""

    encoder: Callable[[Refuse], Encode]
    decode: Decode
    shape: Shape = attrs.field(kw_only=True, default=())
    """The characters that each of the first places may hold."""
    tail: frozenset[str] | None = attrs.field(kw_only=True, default=NOTHING)
    """What may follow the shape: nothing, these characters, or (None) any."""
    prefix_free: bool = attrs.field(kw_only=True, default=True)
    inline: str = attrs.field(kw_only=True, default="")
    """Source of encode over ``$x``, if that saves a call."""
    inline_decode: str = attrs.field(kw_only=True, default="")
    """Source of decode over ``$t``."""
    beyond: Callable[[Any], int | None] = attrs.field(kw_only=True, default=always_among)


def _always(encode: Encode) -> Callable[[Refuse], Encode]:
    return lambda refuse: encode


def _beyond_int(number: int) -> int:
    return 0 if -TEN[MAX_DIGITS] < number < TEN[MAX_DIGITS] else 1 if number > 0 else -1


def _beyond_decimal(number: Decimal) -> int | None:
    return None if number.is_nan() else 0 if number.is_finite() else 1 if number > 0 else -1


def beyond_datetime(value: datetime) -> int | None:
    if value.tzinfo is None:
        return None
    try:
        value.astimezone(UTC)
    except OverflowError:
        return 1 if value.year > 1 else -1
    return 0


_INLINE_TEXT = "$x if $x.isalnum() or not $special($x) else $escape($x)"
_INLINE_PLAIN = """$t if "~" not in $t and "}" not in $t and ' "' not in $t else $unescape($t)"""
_INLINE_DATETIME = '($iso($x) if $x.microsecond else $iso($x)[:19] + ".000000Z") if $x.tzinfo is $utc else $encode($x)'
_INLINE_INT = "$above[len(_digits := str($x))] + _digits if 0 <= $x < 10**18 else $encode($x)"

FORMS: dict[type, Encoding] = {
    str: Encoding(
        lambda refuse: text_codec(refuse)[0], _decode_text,
        tail=None, prefix_free=False, inline=_INLINE_TEXT, inline_decode=_INLINE_PLAIN,
    ),
    int: Encoding(
        _int, _decode_int, shape=_INT_SHAPE, tail=DIGITS,
        inline=_INLINE_INT, inline_decode='$int($t[1:]) if $t[0] >= "a" else $decode($t)', beyond=_beyond_int,
    ),
    float: Encoding(_float, _decode_float, shape=places("f" * 16), beyond=lambda x: None if x != x else 0),
    bool: Encoding(
        _always(lambda x: "1" if x else "0"), {"0": False, "1": True}.__getitem__,
        shape=places("b"), inline='"1" if $x else "0"', inline_decode='$t == "1"',
    ),
    Decimal: Encoding(
        _decimal, _decode_decimal, shape=(frozenset("nop"),), tail=frozenset(LENGTH) | DIGITS | {"~"},
        prefix_free=False, beyond=_beyond_decimal,
    ),
    Builtin.datetime: Encoding(
        _datetime, Builtin.datetime.fromisoformat, shape=places("9999-99-99T99:99:99.999999Z"),
        inline=_INLINE_DATETIME, inline_decode="$datetime($t)", beyond=beyond_datetime,
    ),
    Builtin.date: Encoding(
        _always(Builtin.date.isoformat), Builtin.date.fromisoformat, shape=places("9999-99-99"),
        inline="$x.isoformat()", inline_decode="$date($t)",
    ),
    time: Encoding(_time, time.fromisoformat, shape=places("99:99:99.999999")),
    timedelta: Encoding(
        _always(lambda x: _encode_int(_microseconds(x))), _decode_timedelta, shape=_INT_SHAPE, tail=DIGITS
    ),
    UUID: Encoding(_always(str), UUID, shape=places("f" * 8 + "-ffff" * 3 + "-" + "f" * 12)),
    bytes: Encoding(_always(bytes.hex), bytes.fromhex, tail=_HEX, prefix_free=False, inline="$x.hex()"),
}  # fmt: skip


HIERARCHY = Encoding(_levels, _decode_levels, tail=None, prefix_free=False)
"""Of a ``tuple[str, ...]``, where a row key ends in one."""


def _mirrored(kind: type, flip: Callable[[Any], Any], inverse: Callable[[Any], Any] | None = None) -> Encoding:
    """Return the form that sorts the other way round, by writing the mirror image of each value."""
    form = FORMS[kind]
    unflip = inverse or flip

    def encoder(refuse: Refuse) -> Encode:
        encode = form.encoder(refuse)
        return lambda value: encode(flip(value))

    return attrs.evolve(
        form, encoder=encoder, decode=lambda text: unflip(form.decode(text)), inline="", inline_decode=""
    )


DESCENDING: dict[type, Encoding] = {
    int: _mirrored(int, lambda x: ~x),
    float: _mirrored(float, lambda x: -x, lambda x: -x + 0.0),
    bool: _mirrored(bool, lambda x: not x),
    Decimal: _mirrored(Decimal, lambda x: x.copy_negate(), lambda x: x.copy_negate() if x else x),
    Builtin.datetime: Encoding(_datetime_desc, _decode_datetime_desc, shape=places("9" * 19), beyond=beyond_datetime),
    Builtin.date: Encoding(
        _always(lambda x: "%07d" % (_LAST_DAY - x.toordinal())),
        lambda text: Builtin.date.fromordinal(_LAST_DAY - int(text)), shape=places("9" * 7),
    ),
    timedelta: Encoding(
        _always(lambda x: _encode_int(~_microseconds(x))), lambda text: timedelta(microseconds=~_decode_int(text)),
        shape=_INT_SHAPE, tail=DIGITS,
    ),
    UUID: _mirrored(UUID, lambda x: UUID(int=x.int ^ (1 << 128) - 1)),
}  # fmt: skip


def literal_fault(text: str) -> str | None:
    """Return why a text cannot stand in a template as it is; None if it can."""
    if match := FORBIDDEN.search(text):
        return f"the literal {text!r} holds U+{ord(match[0]):04X}, which Azure forbids in keys (/ \\ # ? and controls)"
    if SEPARATOR in text or ' "' in text:
        return f"the literal {text!r} holds a space before ! or a quote, which separates or escapes"
    if text.startswith(" ") or text.endswith(" "):
        return f"the literal {text!r} has a space at its edge, which would be lost beside a value"
    return None
