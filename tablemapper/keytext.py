"""The text of one value inside a key: the one definition of key encoding.

A partition key and a row key are text, and text is all that a store sorts them by. So the text of a value has to

* tell all values apart: two values never share a text;
* sort as the values sort, also in front of a separator;
* hold no character that Azure forbids in keys (``/ \\ # ?``, U+0000-1F, U+007F-9F), and no separator (``" !"``);
* stay readable: text that needs no escape stands as it is.

Text is escaped so that an escape begins with the greatest legal character *below* the escaped one. ``/`` becomes
``.~``, which sorts above every ``.x`` and below ``0``. The few texts that would read as an escape get a guard (``}``)
between the plain text and the escape: ``.`` then ``é`` becomes ``.}é``. A space in front of a character up to ``"``, or
at the end, becomes `` "20``, so that the separator of components sorts below everything that continues a component.

Numbers carry their length in front (``42`` is ``b42``, ``-7`` is ``Z2``), so they delimit themselves.

``key_text`` makes the codec of one kind and one spec; all that this module knows of a value is in the `KeyText` that it
returns, its Python source for generated functions too, so that the fast form stands beside the plain one.
"""

from __future__ import annotations

import enum
import hashlib
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID

import attrs

from .errors import InvalidEntity, InvalidModel

__all__ = [
    "FORBIDDEN",
    "KEY_UNITS",
    "KINDS",
    "SEPARATOR",
    "KeyText",
    "NotAKey",
    "bind",
    "check_key",
    "key_text",
    "literal_fault",
    "raise_last",
]

SEPARATOR = " !"
KEY_UNITS = 512
"""UTF-16 units that a PartitionKey or a RowKey may have: 1 KiB on Azure."""

FORBIDDEN = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""A character that can not stand in a key."""

_UTC = UTC
_Encode = Callable[[Any], str]
_Decode = Callable[[str], Any]
_Refuse = Callable[[object, str], NoReturn]
_Cuts = list[tuple[str, str]]
_Shape = tuple[frozenset[str], ...]


class NotAKey(ValueError):
    """A text that no value encodes to. Callers turn it into an error that says where the text came from."""


def check_key(text: str, *, limit: int = KEY_UNITS, what: str = "key") -> str:
    """Return the text if it fits a key. It is measured as Azure does, in UTF-16 units: an emoji is two."""
    if len(text) * 2 > limit:
        units = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
        if units > limit:
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
_special = _SPECIAL.search
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


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_plain, text)


def _decode_text(text: str) -> str:
    return _unescape(text) if "~" in text or "}" in text or ' "' in text else text


_SURROGATE = re.compile(r"[\ud800-\udfff]")


def _written(value: str) -> str:
    """Return the key text of a text without lone surrogates."""
    return _SPECIAL.sub(_escaped, value)


def _following(value: str) -> str | None:
    """Return the least text above all that start with this one; it need not be legal, it is going to be escaped."""
    while value:
        code = ord(value[-1]) + 1
        if code < 0x110000:
            return value[:-1] + chr(0xE000 if code == 0xD800 else code)
        value = value[:-1]
    return None


def _text(refuse: _Refuse) -> tuple[_Encode, _Encode]:
    """Return the codec of text, and the part of it that is left when something needs an escape."""

    def escape(value: str) -> str:
        try:
            return _SPECIAL.sub(_escaped, value)
        except UnicodeError as error:
            refuse(value, str(error))

    def encode(value: str) -> str:
        return value if value.isalnum() or not _special(value) else escape(value)

    return encode, escape


# -- numbers -------------------------------------------------------------------------------------------------------

_MAX_DIGITS = 26  # one letter a length
_ABOVE = "`abcdefghijklmnopqrstuvwxyz"
_BELOW = "[ZYXWVUTSRQPONMLKJIHGFEDCBA"
_TEN = [10**power for power in range(_MAX_DIGITS + 1)]
_LENGTH = {letter: k for marks in (_ABOVE, _BELOW) for k, letter in enumerate(marks) if k}


def _encode_int(number: int) -> str:
    if number >= 0:
        digits = str(number)
        return _ABOVE[len(digits)] + digits
    k = len(str(-number))
    return "%s%0*d" % (_BELOW[k], k, _TEN[k] - 1 + number)


def _decode_int(text: str) -> int:
    return int(text[1:]) if text[0] >= "a" else int(text[1:]) - _TEN[len(text) - 1] + 1


def _int(refuse: _Refuse) -> _Encode:
    def encode(number: int) -> str:
        try:
            return _encode_int(number)
        except (IndexError, ValueError):  # ValueError: past what str() of an int may cost
            refuse("this number", f"it has over {_MAX_DIGITS} digits: use a number of 64 bits")

    return encode


_pack_double, _unpack_double = struct.Struct(">d").pack, struct.Struct(">d").unpack
_pack_bits, _unpack_bits = struct.Struct(">Q").pack, struct.Struct(">Q").unpack
_SIGN, _ALL = 1 << 63, (1 << 64) - 1


def _float(refuse: _Refuse) -> _Encode:
    def encode(number: float) -> str:
        if number != number:
            refuse(number, "it has no place in an order: use None for what was not measured")
        (bits,) = _unpack_bits(_pack_double(number + 0.0))  # -0.0 + 0.0 is 0.0
        return "%016x" % (bits ^ _ALL if bits & _SIGN else bits | _SIGN)

    return encode


def _decode_float(text: str) -> float:
    bits = int(text, 16)
    number: float = _unpack_double(_pack_bits(bits ^ _SIGN if bits & _SIGN else bits ^ _ALL))[0]
    return number


_NINES = str.maketrans("0123456789", "9876543210")


def _decimal(refuse: _Refuse) -> _Encode:
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
    end = 2 + _LENGTH[text[1]]
    power, digits = _decode_int(text[1:end]), text[end:]
    if negative:
        power, digits = -power, digits[:-1].translate(_NINES)
    return Decimal(f"{'-' if negative else ''}{digits}E{power - len(digits) + 1}")


# -- times, identifiers, bytes -------------------------------------------------------------------------------------

_DATETIME = "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ"
_DATETIME_PARTS = "$x.year, $x.month, $x.day, $x.hour, $x.minute, $x.second, $x.microsecond"
_FIRST = datetime(1, 1, 1, tzinfo=_UTC)
_LAST_TICK, _LAST_DAY = 3_155_378_975_999_999_999, 3_652_059
_MICROSECOND = timedelta(microseconds=1)


def _utc(refuse: _Refuse) -> Callable[[datetime], datetime]:
    def utc(value: datetime) -> datetime:
        if value.tzinfo is _UTC:
            return value
        if value.tzinfo is None:
            refuse(value, "it has no time zone: give it one, as in datetime(…, tzinfo=timezone.utc)")
        try:
            return value.astimezone(_UTC)
        except OverflowError:
            refuse(value, "it is not in the years 1 to 9999 of UTC")

    return utc


def _datetime(refuse: _Refuse) -> _Encode:
    utc = _utc(refuse)

    def encode(value: datetime) -> str:
        t = utc(value)
        return _DATETIME % (t.year, t.month, t.day, t.hour, t.minute, t.second, t.microsecond)

    return encode


def _datetime_desc(refuse: _Refuse) -> _Encode:
    utc = _utc(refuse)

    def encode(value: datetime) -> str:
        since = utc(value) - _FIRST
        return "%019d" % (_LAST_TICK - ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 10)

    return encode


def _decode_datetime_desc(text: str) -> datetime:
    return _FIRST + timedelta(microseconds=(_LAST_TICK - int(text)) // 10)


def _time(refuse: _Refuse) -> _Encode:
    def encode(value: time) -> str:
        if value.tzinfo is not None:
            refuse(value, "a time of day has no time zone: use value.replace(tzinfo=None)")
        return "%02d:%02d:%02d.%06d" % (value.hour, value.minute, value.second, value.microsecond)

    return encode


def _microseconds(value: timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds


def _decode_timedelta(text: str) -> timedelta:
    return timedelta(microseconds=_decode_int(text))


def _complement(value: UUID) -> UUID:
    return UUID(int=value.int ^ (1 << 128) - 1)


# -- kinds ---------------------------------------------------------------------------------------------------------

_DIGITS, _HEX = frozenset("0123456789"), frozenset("0123456789abcdef")
_CLASSES = {"9": _DIGITS, "f": _HEX, "b": frozenset("01")}


def _shape(picture: str) -> _Shape:
    """Return which characters each place may hold: 9 a digit, f a hex digit, anything else itself."""
    return tuple(_CLASSES.get(char) or frozenset(char) for char in picture)


_NOTHING: frozenset[str] = frozenset()
_INT_SHAPE = (frozenset(_LENGTH), _DIGITS)


def _zero(value: Any) -> int | None:
    """Say where a value stands that no key can hold: None, nowhere; -1 or 1, below or above all; 0, among them."""
    return 0


@attrs.frozen
class _Form:
    """How the values of a kind are written, before anything is asked for by a spec."""

    encoder: Callable[[_Refuse], _Encode]
    decode: _Decode
    shape: _Shape
    tail: frozenset[str] | None = _NOTHING  # what may follow the shape: nothing, these characters, or (None) any
    prefix_free: bool = True
    inline: str = ""  # source of encode over $x, if a call can be saved
    inline_decode: str = ""  # source of decode over $t
    beyond: Callable[[Any], int | None] = _zero


def _always(encode: _Encode) -> Callable[[_Refuse], _Encode]:
    return lambda refuse: encode


def _beyond_int(number: int) -> int:
    return 0 if -_TEN[_MAX_DIGITS] < number < _TEN[_MAX_DIGITS] else 1 if number > 0 else -1


def _beyond_decimal(number: Decimal) -> int | None:
    return None if number.is_nan() else 0 if number.is_finite() else 1 if number > 0 else -1


def _beyond_datetime(value: datetime) -> int | None:
    if value.tzinfo is None:
        return None
    try:
        value.astimezone(_UTC)
    except OverflowError:
        return 1 if value.year > 1 else -1
    return 0


_INLINE_TEXT = "$x if $x.isalnum() or not $special($x) else $escape($x)"
_INLINE_PLAIN = """$t if "~" not in $t and "}" not in $t and ' "' not in $t else $unescape($t)"""
_INLINE_DATETIME = f'"{_DATETIME}" % ({_DATETIME_PARTS}) if $x.tzinfo is $utc else $encode($x)'

_FORMS: dict[type, _Form] = {
    str: _Form(lambda refuse: _text(refuse)[0], _decode_text, (), None, False, _INLINE_TEXT, _INLINE_PLAIN),
    int: _Form(_int, _decode_int, _INT_SHAPE, _DIGITS, beyond=_beyond_int),
    float: _Form(_float, _decode_float, _shape("f" * 16), beyond=lambda x: None if x != x else 0),
    bool: _Form(_always(lambda x: "1" if x else "0"), {"0": False, "1": True}.__getitem__, _shape("b"),
                inline='"1" if $x else "0"', inline_decode='$t == "1"'),
    Decimal: _Form(_decimal, _decode_decimal, (frozenset("nop"),), frozenset(_LENGTH) | _DIGITS | {"~"}, False,
                   beyond=_beyond_decimal),
    datetime: _Form(_datetime, datetime.fromisoformat, _shape("9999-99-99T99:99:99.999999Z"), inline=_INLINE_DATETIME,
                    inline_decode="$datetime($t)", beyond=_beyond_datetime),
    date: _Form(_always(date.isoformat), date.fromisoformat, _shape("9999-99-99"), inline="$x.isoformat()",
                inline_decode="$date($t)"),
    time: _Form(_time, time.fromisoformat, _shape("99:99:99.999999")),
    timedelta: _Form(_always(lambda x: _encode_int(_microseconds(x))), _decode_timedelta, _INT_SHAPE, _DIGITS),
    UUID: _Form(_always(str), UUID, _shape("f" * 8 + "-ffff" * 3 + "-" + "f" * 12)),
    bytes: _Form(_always(bytes.hex), bytes.fromhex, (), _HEX, False, inline="$x.hex()"),
}  # fmt: skip


def _mirrored(kind: type, flip: Callable[[Any], Any], back: Callable[[Any], Any] | None = None) -> _Form:
    """Return the form that sorts the other way round, by writing the mirror image of each value."""
    form = _FORMS[kind]
    unflip = back or flip

    def encoder(refuse: _Refuse) -> _Encode:
        encode = form.encoder(refuse)
        return lambda value: encode(flip(value))

    return _Form(encoder, lambda text: unflip(form.decode(text)), form.shape, form.tail, form.prefix_free,
                 beyond=form.beyond)  # fmt: skip


_DESC: dict[type, _Form] = {
    int: _mirrored(int, lambda x: ~x),
    float: _mirrored(float, lambda x: -x, lambda x: -x + 0.0),
    bool: _mirrored(bool, lambda x: not x),
    Decimal: _mirrored(Decimal, lambda x: x.copy_negate(), lambda x: x.copy_negate() if x else x),
    datetime: _Form(_datetime_desc, _decode_datetime_desc, _shape("9" * 19), beyond=_beyond_datetime),
    date: _Form(_always(lambda x: "%07d" % (_LAST_DAY - x.toordinal())),
                lambda text: date.fromordinal(_LAST_DAY - int(text)), _shape("9" * 7)),
    timedelta: _Form(_always(lambda x: _encode_int(~_microseconds(x))),
                     lambda text: timedelta(microseconds=~_decode_int(text)), _INT_SHAPE, _DIGITS),
    UUID: _mirrored(UUID, _complement),
}  # fmt: skip

# %-code: format, attribute, the kinds that have it; the units from coarse to fine
_TIME_CODES: dict[str, tuple[str, str]] = {
    "%Y": ("%04d", "year"),
    "%m": ("%02d", "month"),
    "%d": ("%02d", "day"),
    "%H": ("%02d", "hour"),
    "%M": ("%02d", "minute"),
    "%S": ("%02d", "second"),
    "%L": ("%03d", "microsecond // 1000"),
    "%f": ("%06d", "microsecond"),
}
_UNITS = tuple(_TIME_CODES)
_CODES_OF: dict[type, tuple[str, ...]] = {datetime: _UNITS, date: _UNITS[:3], time: _UNITS[3:]}
_STEPS = {
    "%d": timedelta(days=1),
    "%H": timedelta(hours=1),
    "%M": timedelta(minutes=1),
    "%S": timedelta(seconds=1),
    "%L": timedelta(milliseconds=1),
    "%f": _MICROSECOND,
}


def _moment(value: Any) -> datetime:
    """Return a date, a time of day or a datetime as a moment of UTC."""
    if isinstance(value, datetime):
        return value.astimezone(_UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=_UTC)
    moment: datetime = datetime.combine(date(2000, 1, 1), value, _UTC)
    return moment


def _floor(moment: datetime, unit: str) -> datetime:
    """Return the first moment of the year, month, day … that holds this one."""
    finer = _UNITS[_UNITS.index(unit) + 1 :]
    if unit == "%L":
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    if unit == "%f":
        return moment
    least = {"%m": ("month", 1), "%d": ("day", 1), "%H": ("hour", 0), "%M": ("minute", 0), "%S": ("second", 0),
             "%f": ("microsecond", 0)}  # fmt: skip
    return moment.replace(**dict(least[code] for code in finer if code != "%L"))  # type: ignore[arg-type]


def _next(moment: datetime, unit: str) -> datetime:
    """Return the first moment of the next year, month, day …; OverflowError past the last."""
    if unit in _STEPS:
        return moment + _STEPS[unit]
    months = moment.year * 12 + moment.month - 1 + (12 if unit == "%Y" else 1)
    if months >= 120_000:
        raise OverflowError
    return moment.replace(year=months // 12, month=months % 12 + 1)


# -- one kind, one spec --------------------------------------------------------------------------------------------

_MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@attrs.frozen(kw_only=True)
class KeyText:
    """The text form of the values of one slot of a key.

    Attributes:
        kind: the type of the values; an Enum is written by the values of its members.
        spec: what the template says after the colon.
        lossless: the value can be had back, and no two values share a text.
        whole: so lossless that nothing of the value is missing; of a Decimal, the trailing zeros are.
        ordered: texts sort as values, or with ``desc`` the other way round.
        fixed: the length of every text, if they have one length.
        prefix_free: no text begins another one, so that it needs nothing to end it.
        shape, tail: the characters that each of the first places may hold, and those that may follow; None: any.
        encode: value to text; `InvalidEntity` if the key can not hold the value.
        decode: text to value, of a text that is known to be ours; None if lossy.
        buckets: the texts that there are, of a ``shard``.
        unit: the finest unit of a time format, as ``%d``.
    """

    kind: Any
    spec: str
    base: type
    lossless: bool = True
    whole: bool = True
    ordered: bool = True
    prefix_free: bool = True
    shape: _Shape = attrs.field(repr=False, default=())
    tail: frozenset[str] | None = attrs.field(repr=False, default=_NOTHING)
    encode: _Encode = attrs.field(repr=False, eq=False)
    decode: _Decode | None = attrs.field(repr=False, eq=False, default=None)
    buckets: tuple[str, ...] = attrs.field(repr=False, default=())
    unit: str = ""
    write: _Encode = attrs.field(repr=False, eq=False)  # encode, of the value of an Enum's member
    beyond: Callable[[Any], int | None] = attrs.field(repr=False, eq=False, default=_zero)
    inline: str = attrs.field(repr=False, eq=False, default="")
    inline_decode: str = attrs.field(repr=False, eq=False, default="")
    names: Mapping[str, Any] = attrs.field(repr=False, eq=False, factory=dict)

    @property
    def fixed(self) -> int | None:
        return len(self.shape) if self.tail == _NOTHING else None

    @property
    def least(self) -> str:
        """The least character that a text can hold; what is below it ends the text without changing the order."""
        return " " if self.tail is None else min(self.tail.union(*self.shape))

    @property
    def starts(self) -> bool:
        """Whether ``startswith`` can be asked of the text."""
        return self.base is str and self.spec in ("", "fold", "raw")

    def end(self, text: str, start: int) -> int:
        """Return where the text of a value ends that begins there, if it ends by itself."""
        if self.fixed is not None:
            return start + self.fixed
        return start + 1 + _LENGTH.get(text[start : start + 1], len(text))

    def parse(self, text: str) -> Any:
        """Return the value of a text that may not be ours: it has to be what its value is written as."""
        if self.decode is None:
            raise NotAKey(f"{text!r}: {{{self.spec}}} does not hold the value")
        try:
            value = self.decode(text)
            if self.encode(value) == text:
                return value
        except (ValueError, LookupError, ArithmeticError):
            pass
        raise NotAKey(f"{text!r} is not the key text of a {self.kind.__name__}")

    def fits(self, text: str) -> bool:
        """Say whether a text has the form of those that are made here, its value unknown."""
        head = len(self.shape)
        return (
            len(text) >= head
            and all(map(frozenset.__contains__, self.shape, text))
            and (self.tail is None or self.tail.issuperset(text[head:]))
            and (self.tail is not None or not FORBIDDEN.search(text))
            and (not self.buckets or text in self.buckets)
        )

    def cuts(self, op: str, value: Any) -> _Cuts | None:
        """Return what a comparison of values says of the texts: comparisons that all hold; None if nothing can match.

        A value that no key can hold is not an error here: no key equals it, and it is above or below all that are. A
        lossy text answers with what holds at least, so that it never leaves out a match.
        """
        if isinstance(value, enum.Enum):
            value = value.value
        if op == "startswith":
            return self._starting(value)
        if self.base is str and op != "==" and (illegal := self._illegal(value)):
            # no key is between a text with a character that none can hold, and the one with the next that they can
            above = raise_last(value[: illegal.start()] + illegal[0])
            return [("<" if op in ("<", "<=") else ">=", self.write(above))] if above else [("<", "")]
        place = self.beyond(value)
        if place is None or (place and op == "=="):
            return None
        if place:
            return [] if (place > 0) == (op in ("<", "<=")) else None
        try:
            text = self.write(value)
        except InvalidEntity:
            return None
        if self.unit:
            op = self._truncated(op, value)
        return [(_MIRROR.get(op, op) if self.spec == "desc" else op, text)]

    def _illegal(self, value: str) -> re.Match[str] | None:
        return FORBIDDEN.search(value) if self.spec == "raw" else _SURROGATE.search(value)

    def _starting(self, value: str) -> _Cuts | None:
        if self._illegal(value):
            return None
        if self.spec == "fold":
            value = value.casefold()
        above = raise_last(value) if self.spec == "raw" else _following(value)
        written = str if self.spec == "raw" else _written
        cuts = [(">=", written(value))] if value else []
        return cuts if above is None else [*cuts, ("<", written(above))]

    def _truncated(self, op: str, value: Any) -> str:
        if op == "<":
            moment = _moment(value)
            return op if _floor(moment, self.unit) == moment else "<="
        return ">=" if op == ">" else op

    def buckets_between(self, low: Any, high: Any, limit: int) -> list[str] | None:
        """Return the texts of all truncated times from low to high, both included, in order; None if over the limit."""
        moment, last = _moment(low), _moment(high)
        if moment > last:
            return []
        moment = _floor(moment, self.unit)
        texts: dict[str, None] = {}
        for _ in range(limit + 1):
            if moment > last:
                return list(texts)
            texts[self.encode(moment)] = None
            try:
                moment = _next(moment, self.unit)
            except OverflowError:
                return list(texts) if len(texts) <= limit else None
        return None

    def encode_source(self, name: str, env: dict[str, Any]) -> str:
        """Return an expression for the text of the value that a local variable holds."""
        if isinstance(self.kind, type) and issubclass(self.kind, enum.Enum):
            name += "._value_"  # what .value returns, at the price of an attribute
        return self._source(self.inline or "$encode($x)", {"x": name}, env)

    def decode_source(self, name: str, env: dict[str, Any]) -> str:
        """Return an expression for the value of the text, known to be ours, that a local variable holds."""
        return self._source(self.inline_decode or "$decode($t)", {"t": name}, env)

    def _source(self, pattern: str, names: dict[str, str], env: dict[str, Any]) -> str:
        def name(match: re.Match[str]) -> str:
            word = match[1]
            return names[word] if word in names else bind(env, f"_key_{word}", self.names[word])

        return re.sub(r"\$(\w+)", name, pattern)


# -- from a template's words ---------------------------------------------------------------------------------------


def key_text(kind: Any, spec: str = "", *, field: str = "value", subject: str = "key", raw: bool = True) -> KeyText:
    """Return the text form of one kind of value under one spec.

    Args:
        kind: a scalar type (`KINDS`), or an Enum whose members are all str or all int.
        spec: what stands after the colon of a slot, or nothing.
        field: the field's name, and
        subject: the template's, for the messages.
        raw: whether the spec ``raw`` may be used.

    Raises:
        InvalidModel: There is no such spec for this kind.
    """
    slot = f"{{{field}:{spec}}}" if spec else f"{{{field}}}"

    def invalid(fault: str) -> NoReturn:
        raise InvalidModel(subject, [f"{slot}: {fault}"])

    def refuse(value: object, why: str) -> NoReturn:
        raise InvalidEntity(subject, [f"{slot} can not hold {_brief(value)}: {why}"])

    base = _base(kind, invalid)
    made = _spec(base, spec, refuse, invalid, raw)
    write = made["encode"]
    names: dict[str, Any] = {
        "special": _special,
        "unescape": _unescape,
        "utc": _UTC,
        "datetime": datetime.fromisoformat,
        "date": date.fromisoformat,
        **made.pop("names", {}),
    }
    decode = made.get("decode")
    if base is not kind:
        made["encode"] = lambda member: write(member._value_)
        if decode is not None:
            members = _Members(kind, decode)
            members.update((write(member.value), member) for member in kind)
            made["decode"], made["inline_decode"] = members.__getitem__, "$members[$t]"
            names["members"] = members
    names |= {"encode": write, "decode": made.get("decode"), "escape": names.get("escape", write)}
    return KeyText(kind=kind, spec=spec, base=base, write=write, names=names, **made)


KINDS: tuple[type, ...] = tuple(_FORMS)
"""The scalar types that can stand in a key; besides them, Enums of str or int."""


class _Members(dict[str, Any]):
    """The members of an Enum by key text; combinations of flags are made as they are met."""

    def __init__(self, kind: Callable[[Any], Any], decode: _Decode) -> None:
        super().__init__()
        self.kind = kind
        self.decode = decode

    def __missing__(self, text: str) -> Any:
        member = self[text] = self.kind(self.decode(text))
        return member


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _base(kind: Any, invalid: Callable[[str], NoReturn]) -> type:
    """Return the type of the values that are written."""
    if kind in _FORMS:
        return kind  # type: ignore[no-any-return]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        types = {type(member.value) for member in kind}
        if len(types) == 1 and types <= {str, int}:
            return types.pop()
        invalid(f"the members of {kind.__name__} are not all str or all int, so they have no key text")
    invalid(
        f"a {getattr(kind, '__name__', kind)} can not stand in a key; these can: "
        f"{', '.join(one.__name__ for one in _FORMS)}, and Enums of str or int"
    )


_SPECS = '"desc", "0Nd" (as "08d"), a time format (as "%Y-%m-%d"), "shard(N)", "fold", "hash", "raw"'


def _spec(base: type, spec: str, refuse: _Refuse, invalid: Callable[[str], NoReturn], raw: bool) -> dict[str, Any]:
    """Return the attributes of a `KeyText` that a spec decides."""
    if not spec:
        form = _FORMS[base]
        return (
            _plain_form(form, refuse)
            | {"whole": base is not Decimal}
            | ({"names": {"escape": _text(refuse)[1]}} if base is str else {})
        )
    if spec == "desc":
        if base not in _DESC:
            invalid(f"{base.__name__} has no descending text; order the query by .desc() instead")
        return _plain_form(_DESC[base], refuse) | {"whole": base is not Decimal}
    if match := re.fullmatch(r"0(\d+)d", spec):
        if base is not int:
            invalid(f"zero padding is for int, this is {base.__name__}")
        if not 1 <= int(match[1]) <= _MAX_DIGITS:
            invalid(f"pad to between 1 and {_MAX_DIGITS} digits")
        return _padded(int(match[1]), refuse)
    if "%" in spec:
        return _time_format(base, spec, refuse, invalid)
    if match := re.fullmatch(r"shard\((\d+)\)", spec):
        if not 1 <= int(match[1]) <= 1000:
            invalid("a query reads every shard, so there may be 1 to 1000 of them")
        return _shard(_FORMS[base].encoder(refuse), int(match[1]))
    if spec == "hash":
        plain = _FORMS[base].encoder(refuse)
        return _lossy(
            lambda value: hashlib.blake2b(plain(value).encode(), digest_size=16).hexdigest(), _shape("f" * 32)
        )
    if spec in ("fold", "raw"):
        if base is not str:
            invalid(f'"{spec}" is for str, this is {base.__name__}')
        if spec == "raw" and not raw:
            invalid('"raw" can not stand in an index: it holds the key beside other text')
        return _fold(refuse) if spec == "fold" else _raw(refuse)
    invalid(f'there is no spec "{spec}"; there are {_SPECS}')


def _plain_form(form: _Form, refuse: _Refuse) -> dict[str, Any]:
    return {
        "encode": form.encoder(refuse),
        "decode": form.decode,
        "shape": form.shape,
        "tail": form.tail,
        "prefix_free": form.prefix_free,
        "inline": form.inline,
        "inline_decode": form.inline_decode,
        "beyond": form.beyond,
    }


def _lossy(encode: _Encode, shape: _Shape, **more: Any) -> dict[str, Any]:
    return {"encode": encode, "shape": shape, "lossless": False, "whole": False, "ordered": False} | more


def _padded(width: int, refuse: _Refuse) -> dict[str, Any]:
    pattern, end = f"%0{width}d", _TEN[width]

    def encode(number: int) -> str:
        if not 0 <= number < end:
            refuse(number, f"it holds 0 to {end - 1}: use more digits, or no spec, which takes every int in order")
        return pattern % number

    return {
        "encode": encode,
        "decode": int,
        "shape": _shape("9" * width),
        "inline": f'"{pattern}" % $x if 0 <= $x < {end} else $encode($x)',
        "inline_decode": "$int($t)",
        "names": {"int": int},
        "beyond": lambda number: -1 if number < 0 else int(number >= end),
    }


def _time_format(base: type, spec: str, refuse: _Refuse, invalid: Callable[[str], NoReturn]) -> dict[str, Any]:
    if base not in _CODES_OF:
        invalid(f"a time format is for datetime, date and time, this is {base.__name__}")
    tokens = re.findall(r"%.|[^%]+|%", spec)
    if strange := [token for token in tokens if token[0] == "%" and token not in _CODES_OF[base]]:
        invalid(f"{', '.join(strange)}: a time format of {base.__name__} has {' '.join(_CODES_OF[base])} and literals")
    if fault := literal_fault(spec):
        invalid(fault)
    codes = [token for token in tokens if token in _TIME_CODES]
    pattern = "".join(_TIME_CODES[token][0] if token in _TIME_CODES else token for token in tokens)
    parts = ", ".join(f"$x.{_TIME_CODES[code][1]}" for code in codes)
    shape: _Shape = ()
    for token in tokens:
        width = int(_TIME_CODES[token][0][1:3]) if token in _TIME_CODES else 0
        shape += (_DIGITS,) * width if width else tuple(frozenset(char) for char in token)
    sample = pattern % ((0,) * len(codes))
    assert len(sample) == len(shape)
    read = eval(f"lambda x: ({parts.replace('$x', 'x')},)")
    utc = _utc(refuse) if base is datetime else None

    def encode(value: Any) -> str:
        text: str = pattern % read(utc(value) if utc else value)
        return text

    inline = f"$pattern % ({parts},)"
    return _lossy(
        encode,
        shape,
        ordered=_coarse_to_fine(codes, _CODES_OF[base]),
        unit=max(codes, key=_UNITS.index),
        inline=f"{inline} if $x.tzinfo is $utc else $encode($x)" if utc else inline,
        names={"pattern": pattern},
        beyond=_beyond_datetime if utc else _zero,
    )


def _coarse_to_fine(codes: Iterable[str], units: tuple[str, ...]) -> bool:
    """Say whether texts of these codes sort as the times do: each code has all that is coarser in front of it."""
    seen: set[str] = set()
    for code in codes:
        coarser = {unit for unit in units[: units.index(code)] if unit != "%L"}
        if not coarser <= seen:
            return False
        seen.add(code)
    return True


def _shard(plain: _Encode, count: int) -> dict[str, Any]:
    pattern = f"%0{len(str(count - 1))}d"
    buckets = tuple(pattern % bucket for bucket in range(count))
    return _lossy(
        lambda value: buckets[zlib.crc32(plain(value).encode()) % count],
        (_DIGITS,) * len(buckets[0]),
        buckets=buckets,
    )


def _fold(refuse: _Refuse) -> dict[str, Any]:
    encode = _text(refuse)[0]
    return _lossy(lambda value: encode(value.casefold()), (), tail=None, prefix_free=False)


def _raw(refuse: _Refuse) -> dict[str, Any]:
    def encode(value: str) -> str:
        if match := FORBIDDEN.search(value):
            refuse(value, f"U+{ord(match[0]):04X} can not stand in a key: without the spec it is escaped")
        if value.startswith(' "'):
            refuse(value, "keys that begin with a space and a quote are reserved: without the spec it is escaped")
        return value

    return {"encode": encode, "decode": str, "tail": None, "prefix_free": False, "inline_decode": "$t"}


def literal_fault(text: str) -> str | None:
    """Say why a text can not stand in a template as it is; None if it can."""
    if match := FORBIDDEN.search(text):
        return f"the literal {text!r} holds U+{ord(match[0]):04X}, which Azure forbids in keys (/ \\ # ? and controls)"
    if SEPARATOR in text or ' "' in text:
        return f"the literal {text!r} holds a space before ! or a quote, which separates or escapes"
    if text.startswith(" ") or text.endswith(" "):
        return f"the literal {text!r} has a space at its edge, which would be lost beside a value"
    return None
