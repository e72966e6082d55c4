"""The codec of one kind and one spec: the one definition of key encoding, with `keys.encodings`.

All that this module knows of a slot is in the `KeyCodec` that `key_codec` returns. Its Python source for generated
functions is there, too, so the fast form stands beside the plain one.
"""

from __future__ import annotations

import enum
import hashlib
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NoReturn

import attrs

from ..datetime_types import Builtin
from ..errors import InvalidEntity, InvalidModel, safe_repr
from ..limits import MAX_KEY_UNITS
from ..own_types import OwnType
from . import encodings, times


def _moment(value: Any) -> datetime:
    """Return a date, a time of day or a datetime as a moment of UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, date):
        return Builtin.datetime(value.year, value.month, value.day, tzinfo=UTC)
    moment: datetime = Builtin.datetime.combine(Builtin.date(2000, 1, 1), value, UTC)
    return moment


# -- one kind, one spec --------------------------------------------------------------------------------------------

_MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@attrs.frozen(kw_only=True)
class KeyCodec:
    """The text form of the values of one slot of a key.

    Attributes:
        kind: the type of the values; an Enum is written by the values of its members, a class of a user as its scalar.
        spec: what the template says after the colon.
        lossless: the value can be had back, and no two values share a text.
        whole: so lossless that nothing of the value is missing; of a Decimal, the trailing zeros are.
        ordered: texts sort as values, or with ``desc`` the other way round.
        fixed: the length of every text, if they have one length.
        prefix_free: no text begins another one, so that it needs nothing to end it.
        shape, tail: the characters that each of the first places may hold. Then those that may follow; None: any.
        encode: value to text; `InvalidEntity` if the key cannot hold the value.
        decode: text to value, of a text that is known to be ours; None if lossy.
        buckets: the texts that there are, of a ``shard``.
        codes: the directives of a time format, in order, and
        unit: the finest of them, as ``%d``.
        head: how many of the first characters of the value these are, if they are no more.
        cut: how much of the plain text of the value this is, if it is what that begins with; else 0.
    """

    kind: Any
    spec: str
    base: type
    lossless: bool = True
    whole: bool = True
    ordered: bool = True
    prefix_free: bool = True
    shape: encodings.Shape = attrs.field(repr=False, default=())
    tail: frozenset[str] | None = attrs.field(repr=False, default=encodings.NOTHING)
    encode: encodings.Encode = attrs.field(repr=False, eq=False)
    decode: encodings.Decode | None = attrs.field(repr=False, eq=False, default=None)
    buckets: tuple[str, ...] = attrs.field(repr=False, default=())
    codes: tuple[str, ...] = ()
    unit: str = ""
    head: int = 0
    cut: int = 0
    write: encodings.Encode = attrs.field(repr=False, eq=False)  # encode, of the value of an Enum's member
    beyond: Callable[[Any], int | None] = attrs.field(repr=False, eq=False, default=encodings.always_among)
    inline: str = attrs.field(repr=False, eq=False, default="")
    inline_decode: str = attrs.field(repr=False, eq=False, default="")
    names: Mapping[str, Any] = attrs.field(repr=False, eq=False, factory=dict)

    @property
    def fixed(self) -> int | None:
        return len(self.shape) if self.tail == encodings.NOTHING else None

    @property
    def digits(self) -> int | None:
        """The place where the digits of an int from 0 on begin in its text, which ends with them; None if it is no int."""
        if self.kind is not int or not self.lossless or self.spec == "desc":
            return None
        return 0 if self.spec else 1

    @property
    def least(self) -> str:
        """The least character that a text can hold; what is below it ends the text without changing the order."""
        return " " if self.tail is None else min(self.tail.union(*self.shape))

    @property
    def starts(self) -> bool:
        """Whether the text can be compared by ``startswith``."""
        return self.base is tuple or (self.base is str and (self.spec in ("", "fold", "raw") or self.head > 0))

    def end(self, text: str, start: int) -> int:
        """Return where the text of a value ends that begins there, if it ends by itself."""
        if self.fixed is not None:
            return start + self.fixed
        return start + 1 + encodings.LENGTH.get(text[start : start + 1], len(text))

    def parse(self, text: str) -> Any:
        """Return the value of a text that may not be ours: it has to be what its value is written as."""
        if self.decode is None:
            raise encodings.NotAKey(f"{safe_repr(text)}: {{{self.spec}}} does not hold the value")
        try:
            value = self.decode(text)
            if self.encode(value) == text:
                return value
        except (ValueError, LookupError, ArithmeticError):
            pass
        raise encodings.NotAKey(f"{safe_repr(text)} is not the key text of a {self.kind.__name__}")

    def fits(self, text: str) -> bool:
        """Return whether a text has the form of those that are made here, its value unknown."""
        if self.spec == "fold" or self.head:
            return self.encode(encodings.unescape(text)) == text
        head = len(self.shape)
        return (
            len(text) >= head
            and all(map(frozenset.__contains__, self.shape, text))
            and (self.tail is None or self.tail.issuperset(text[head:]))
            and (not self.buckets or text in self.buckets)
        )

    def cuts(self, op: str, value: Any, *, all_of_it: bool = False) -> encodings.Cuts | None:
        """Return what a comparison of values says of the texts: comparisons that all hold; None if nothing can match.

        A value that no key can hold is not an error here: no key equals it, and it is above or below all that are. A
        lossy text answers with what holds at least, so that it never leaves out a match.

        Args:
            op: ``== < <= > >= startswith``.
            all_of_it: whether times have nothing finer than what the texts, with others in front, hold.
        """
        value = self.plain(value)
        if self.head:
            return self._cuts_of_head(op, value)
        if op == "startswith" and self.base is tuple:
            text = self.write(value)
            above = encodings.raise_last(text)
            return [(">=", text), *([("<", above)] if above else [])]
        if self.starts and self.base is str and len(value) > MAX_KEY_UNITS:
            if op in ("==", "startswith"):
                return None
            value = value[: MAX_KEY_UNITS + 1]  # above and below it are the same keys
        if op == "startswith":
            return self._starting(value)
        if self.base is str and op != "==" and (illegal := self._illegal(value)):
            # no key is between a text with a character that none can hold, and the one with the next that they can
            above = encodings.raise_last(value[: illegal.start()] + illegal[0])
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
            op = self._truncated(op, value, all_of_it=all_of_it)
        return [(_MIRROR.get(op, op) if self.spec == "desc" else op, text)]

    def plain(self, value: Any) -> Any:
        """Return what is written for a value: that of an Enum's member, the scalar of a class of a user."""
        if isinstance(value, enum.Enum):
            return value.value
        return self.kind.plain(value) if isinstance(self.kind, OwnType) else value

    def _cuts_of_head(self, op: str, value: str) -> encodings.Cuts | None:
        """Return what a comparison of texts says of their first characters."""
        head = value[: self.head]
        if self._illegal(head):
            return None if op in ("==", "startswith") else []
        if op == "startswith" and len(value) < self.head:
            return self._starting(head)
        text = self.write(head)
        if op == "startswith":
            return [(">=", text), ("<=", text)]
        return [("<=" if op == "<" and len(value) > self.head else ">=" if op == ">" else op, text)]

    def _illegal(self, value: str) -> re.Match[str] | None:
        return encodings.FORBIDDEN.search(value) if self.spec == "raw" else encodings.SURROGATE.search(value)

    def _starting(self, value: str) -> encodings.Cuts | None:
        if self._illegal(value):
            return None
        if self.spec == "fold":
            value = value.casefold()
        above = encodings.raise_last(value) if self.spec == "raw" else encodings.successor(value)
        as_text = str if self.spec == "raw" else encodings.as_written
        cuts = [(">=", as_text(value))] if value else []
        return cuts if above is None else [*cuts, ("<", as_text(above))]

    def beginning(self, value: str) -> str | None:
        """Return what the keys of all texts that start with this one begin with; None if there are none."""
        if self._illegal(value):
            return None
        value = value.casefold() if self.spec == "fold" else value[: self.head or MAX_KEY_UNITS + 1]
        # (What its last character is written as may depend on the next one.)
        return encodings.as_written(value + "a")[:-1]

    def _truncated(self, op: str, value: Any, *, all_of_it: bool) -> str:
        """Return how texts compare with that of a value if times compare with it so."""
        if op == "<" or (op == ">=" and all_of_it):
            moment = _moment(value)
            if times.first_moment(moment, self.unit) != moment:
                return "<=" if op == "<" else ">"
        return ">=" if op == ">" and not all_of_it else op

    def moments_between(self, compared: Collection[tuple[str, Any]], limit: int) -> list[datetime] | None:
        """Return the first moments of all truncated times that satisfy comparisons, in order; None if over the limit.

        Args:
            compared: ``< <= > >=``, value; from both sides.
        """
        try:
            moment = max(self._first(op, value) for op, value in compared if op[0] == ">")
            last_moment = min(self._first(op, value) for op, value in compared if op[0] == "<")
        except OverflowError:  # beyond all times
            return []
        if moment > last_moment:
            return []
        moment = times.first_moment(moment, self.unit)
        moments: list[datetime] = []
        while moment <= last_moment:
            if len(moments) == limit:
                return None
            moments.append(moment)
            try:
                moment = times.next_moment(moment, self.unit)
            except OverflowError:
                break
        return moments

    def _first(self, op: str, value: Any) -> datetime:
        """Return the time that satisfies a comparison and is the nearest to its value."""
        step = timedelta(days=1) if self.base is Builtin.date else encodings.MICROSECOND
        return _moment(self.plain(value)) + (step if op == ">" else -step if op == "<" else timedelta())

    def encode_source(self, name: str, env: dict[str, Any]) -> str:
        """Return an expression for the text of the value that a local variable holds."""
        if isinstance(self.kind, type) and issubclass(self.kind, enum.Enum):
            name += "._value_"  # what .value returns, at the price of an attribute
        elif isinstance(self.kind, OwnType):
            return self._source("$own($x)", {"x": name}, env)
        return self._source(self.inline or "$encode($x)", {"x": name}, env)

    def decode_source(self, name: str, env: dict[str, Any]) -> str:
        """Return an expression for the value of the text, known to be ours, that a local variable holds."""
        return self._source(self.inline_decode or "$decode($t)", {"t": name}, env)

    def _source(self, pattern: str, names: dict[str, str], env: dict[str, Any]) -> str:
        def name(match: re.Match[str]) -> str:
            word = match[1]
            return names[word] if word in names else encodings.bind(env, f"_key_{word}", self.names[word])

        return re.sub(r"\$(\w+)", name, pattern)


# -- from a template's words ---------------------------------------------------------------------------------------


def key_codec(kind: Any, spec: str = "", *, field: str = "value", subject: str = "key", raw: bool = True) -> KeyCodec:
    """Return the text form of one kind of value under one spec.

    Args:
        kind: a scalar type (a key of `FORMS`), a class that is stored as one, or an Enum with members that are all str or all int.
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
        raise InvalidEntity(subject, [f"{slot} cannot hold {safe_repr(value)}: {why}"])

    base = _base(kind, invalid)
    attributes = _spec(base, spec, refuse, invalid, raw)
    write = attributes["encode"]
    names: dict[str, Any] = {
        "above": encodings.ABOVE,
        "int": int,
        "special": encodings.SPECIAL_AT,
        "unescape": encodings.unescape,
        "utc": UTC,
        "iso": encodings.iso,
        "datetime": Builtin.datetime.fromisoformat,
        "date": Builtin.date.fromisoformat,
        **attributes.pop("names", {}),
    }
    decode = attributes.get("decode")
    if isinstance(kind, OwnType):
        attributes["encode"] = names["own"] = lambda value: write(kind.plain(value))
        if decode is not None:
            attributes["decode"], attributes["inline_decode"] = lambda text: kind.load(decode(text)), ""
    elif base is not kind:
        attributes["encode"] = lambda member: write(member._value_)
        if decode is not None:
            members = _Members(kind, decode)
            members.update((write(member.value), member) for member in kind)
            attributes["decode"], attributes["inline_decode"] = members.__getitem__, "$members[$t]"
            names["members"] = members
    names |= {"encode": write, "decode": attributes.get("decode"), "escape": names.get("escape", write)}
    return KeyCodec(kind=kind, spec=spec, base=base, write=write, names=names, **attributes)


class _Members(dict[str, Any]):
    """The members of an Enum by key text; combinations of flags are made as they are met."""

    def __init__(self, kind: Callable[[Any], Any], decode: encodings.Decode) -> None:
        super().__init__()
        self.kind = kind
        self.decode = decode

    def __missing__(self, text: str) -> Any:
        member = self[text] = self.kind(self.decode(text))
        return member


def _base(kind: Any, invalid: Callable[[str], NoReturn]) -> type:
    """Return the type of the values that are written."""
    if isinstance(kind, OwnType):
        return kind.scalar
    if kind in encodings.FORMS or kind is tuple:
        return kind  # type: ignore[no-any-return]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        types = {type(member.value) for member in kind}
        if len(types) == 1 and types <= {str, int}:
            return types.pop()
        invalid(f"the members of {kind.__name__} are not all str or all int, so they have no key text")
    invalid(
        f"a {getattr(kind, '__name__', kind)} cannot be part of a key; these can: "
        f"{', '.join(form_type.__name__ for form_type in encodings.FORMS)}, and Enums of str or int"
    )


_SPECS = '"desc", "0Nd" (as "08d"), a time format (as "%Y-%m-%d"), "shard(N)", "prefix(N)", "fold", "hash", "raw"'


def _spec(
    base: type, spec: str, refuse: encodings.Refuse, invalid: Callable[[str], NoReturn], raw: bool
) -> dict[str, Any]:
    """Return the attributes of a `KeyCodec` that a spec decides."""
    if base is tuple:
        if spec:
            invalid("a tuple of texts has no specs")
        return _plain_form(encodings.HIERARCHY, refuse)
    if not spec:
        form = encodings.FORMS[base]
        return (
            _plain_form(form, refuse)
            | {"whole": base is not Decimal}
            | ({"names": {"escape": encodings.text_codec(refuse)[1]}} if base is str else {})
        )
    if spec == "desc":
        if base not in encodings.DESCENDING:
            invalid(f"{base.__name__} has no descending text; order the query by .desc() instead")
        return _plain_form(encodings.DESCENDING[base], refuse) | {"whole": base is not Decimal}
    if match := re.fullmatch(r"0(\d+)d", spec):
        if base is not int:
            invalid(f"zero padding is for int, this is {base.__name__}")
        if not 1 <= int(match[1]) <= encodings.MAX_DIGITS:
            invalid(f"pad to between 1 and {encodings.MAX_DIGITS} digits")
        return _padded(int(match[1]), refuse)
    if "%" in spec:
        return _time_format(base, spec, refuse, invalid)
    if match := re.fullmatch(r"shard\((\d+)\)", spec):
        if not 1 <= int(match[1]) <= 1000:
            invalid("a query reads every shard, so there may be 1 to 1000 of them")
        return _shard(encodings.FORMS[base].encoder(refuse), int(match[1]))
    if match := re.fullmatch(r"prefix\((\d+)\)", spec):
        if base is not str:
            invalid(f"prefix is for str, this is {base.__name__}")
        if not 1 <= int(match[1]) <= MAX_KEY_UNITS:
            invalid(f"give it 1 to {MAX_KEY_UNITS} characters")
        return _prefix(int(match[1]), refuse)
    if spec == "hash":
        plain = encodings.FORMS[base].encoder(refuse)
        return _lossy(
            lambda value: hashlib.blake2b(plain(value).encode(), digest_size=16).hexdigest(), encodings.places("f" * 32)
        )
    if spec in ("fold", "raw"):
        if base is not str:
            invalid(f'"{spec}" is for str, this is {base.__name__}')
        if spec == "raw" and not raw:
            invalid('"raw" cannot be part of an index, whose rows hold the key beside other text')
        return _fold(refuse) if spec == "fold" else _raw(refuse)
    invalid(f'unknown spec "{spec}"; the specs are {_SPECS}')


def _plain_form(form: encodings.Encoding, refuse: encodings.Refuse) -> dict[str, Any]:
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


def _lossy(encode: encodings.Encode, shape: encodings.Shape, **options: Any) -> dict[str, Any]:
    return {"encode": encode, "shape": shape, "lossless": False, "whole": False, "ordered": False} | options


def _padded(width: int, refuse: encodings.Refuse) -> dict[str, Any]:
    pattern, end = f"%0{width}d", encodings.TEN[width]

    def encode(number: int) -> str:
        if not 0 <= number < end:
            refuse(number, f"it holds 0 to {end - 1}: use more digits, or no spec, which takes every int in order")
        return pattern % number

    return {
        "encode": encode,
        "decode": int,
        "shape": encodings.places("9" * width),
        "inline": f'"{pattern}" % $x if 0 <= $x < {end} else $encode($x)',
        "inline_decode": "$int($t)",
        "names": {"int": int},
        "beyond": lambda number: -1 if number < 0 else int(number >= end),
    }


def _time_format(base: type, spec: str, refuse: encodings.Refuse, invalid: Callable[[str], NoReturn]) -> dict[str, Any]:
    if base not in times.UNITS_OF:
        invalid(f"a time format is for datetime, date and time, this is {base.__name__}")
    if fault := times.time_format_fault(base, spec) or encodings.literal_fault(spec):
        invalid(fault)
    codes = [part for part in times.split_format(spec) if part in times.UNITS]
    shape: encodings.Shape = ()
    for part in times.split_format(spec):
        shape += (
            (encodings.DIGITS,) * times.UNITS[part].width
            if part in times.UNITS
            else tuple(frozenset(char) for char in part)
        )
    pattern, values = times.time_pattern(spec, "x")
    read_parts = eval(f"lambda x: {values}")
    utc = encodings.in_utc(refuse) if base is Builtin.datetime else None

    def encode(value: Any) -> str:
        text: str = pattern % read_parts(utc(value) if utc else value)
        return text

    inline = f"$pattern % {times.time_pattern(spec, '$x')[1]}"
    return _lossy(
        encode,
        shape,
        ordered=times.from_coarse_to_fine(codes, times.UNITS_OF[base]),
        codes=tuple(codes),
        unit=times.finest_unit(codes),
        cut=times.plain_cut(base, spec),
        inline=f"{inline} if $x.tzinfo is $utc else $encode($x)" if utc else inline,
        inline_decode="$t",
        names={"pattern": pattern},
        beyond=encodings.beyond_datetime if utc else encodings.always_among,
    )


def _shard(plain: encodings.Encode, count: int) -> dict[str, Any]:
    pattern = f"%0{len(str(count - 1))}d"
    buckets = tuple(pattern % bucket for bucket in range(count))
    return _lossy(
        lambda value: buckets[zlib.crc32(plain(value).encode()) % count],
        (encodings.DIGITS,) * len(buckets[0]),
        buckets=buckets,
    )


def _fold(refuse: encodings.Refuse) -> dict[str, Any]:
    encode = encodings.text_codec(refuse)[0]
    return _lossy(lambda value: encode(value.casefold()), (), tail=None, prefix_free=False)


def _prefix(head: int, refuse: encodings.Refuse) -> dict[str, Any]:
    encode = encodings.text_codec(refuse)[0]
    return _lossy(lambda value: encode(value[:head]), (), tail=None, prefix_free=False, ordered=True, head=head)


def _raw(refuse: encodings.Refuse) -> dict[str, Any]:
    def encode(value: str) -> str:
        if match := encodings.FORBIDDEN.search(value):
            refuse(value, f"U+{ord(match[0]):04X} cannot be part of a key: without the spec it is escaped")
        if value.startswith(' "'):
            refuse(value, "keys that begin with a space and a quote are reserved: without the spec it is escaped")
        return value

    return {"encode": encode, "decode": str, "tail": None, "prefix_free": False, "inline_decode": "$t"}
