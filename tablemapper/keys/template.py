"""Key templates: how the fields of an entity make its PartitionKey and RowKey, and how a key gives them back.

A template is text with ``{field}`` or ``{field:spec}``, or a tuple of such texts, its components. The components are
joined by ``" !"``, which no component holds, so that a key sorts as the tuple of its components does. `codec` defines
the text of one value. This module defines how several share a key: what delimits them, which of them a range can bound,
and between which two texts the keys lie that match a predicate.

A template is compiled once, by `template_parser`, and never changes. It encodes and decodes by itself, and it gives
the Python source of both for the functions that are generated for an entity.
"""

from __future__ import annotations

import string
from collections.abc import Container, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import attrs

from ..errors import safe_repr
from ..limits import utf16_units
from .codec import KeyCodec
from .encodings import SEPARATOR, Cuts, NotAKey, bind, raise_last


@attrs.frozen(kw_only=True)
class Slot:
    """The place of one field in a template.

    Attributes:
        index: its number in the template, and
        component: that of its component.
        text: how its values are written.
        ordered: keys that are equal in front of the slot sort as its values, whatever follows.
        continues: they do so only because the slots of the field in front of it have the coarser parts of a time.
        complete: with those in front, it holds all of a time, and
        finest: its own text ends in the finest part of that.
        interval: the unit that the moments have in common whose texts are equal up to here, if those follow each other.
        delimiter: the character that ends the slot's text, and is escaped in it; or nothing.
        after: the number of characters that follow in the component, if the slot is found by that.
        ends_component, ends_key: nothing follows it there.
    """

    field: str
    spec: str
    index: int
    component: int
    text: KeyCodec
    ordered: bool
    continues: bool = False
    complete: bool = False
    finest: bool = False
    interval: str = ""
    delimiter: str = ""
    after: int | None = None
    ends_component: bool
    ends_key: bool

    def __str__(self) -> str:
        return f"{{{self.field}:{self.spec}}}" if self.spec else f"{{{self.field}}}"

    @property
    def lossless(self) -> bool:
        return self.text.lossless

    @property
    def buckets(self) -> tuple[str, ...]:
        """The texts that the slot can have, if it is a shard."""
        return self.text.buckets

    @property
    def open_ended(self) -> bool:
        """Whether it holds any number of components."""
        return self.text.base is tuple

    @property
    def mark(self) -> str:
        return f' "{ord(self.delimiter):02x}'

    @property
    def goes_on(self) -> bool:
        """Whether it sorts as the time does of which a coarser part stands in front of it."""
        return self.ordered and self.spec != "desc"

    @property
    def says_all(self) -> bool:
        """Whether nothing of the field is finer than what stands here and in front."""
        return self.lossless or (self.complete and self.finest)

    def usable(self, op: str) -> bool:
        """Return whether a comparison of the field bounds the keys that are equal in front of the slot."""
        return self.text.starts if op == "startswith" else self.ordered

    def within(self, ops: Container[str]) -> bool:
        """Return whether these comparisons bound only keys for whose values they hold."""
        return self.says_all and (self.ends_component or "startswith" not in ops)

    def cuts(self, op: str, value: Any) -> Cuts | None:
        """Return what a comparison of the field says of what stands here, as `KeyCodec.cuts` does of the texts."""
        if op != "startswith" or self.ends_component:
            return self.text.cuts(op, value, all_of_it=self.says_all)
        if (beginning := self.text.beginning(value)) is None:
            return None
        placed = self.placed(beginning)
        above = raise_last(placed)
        return [(">=", placed)] if above is None else [(">=", placed), ("<", above)]

    def placed(self, text: str) -> str:
        """Return a text of a value as it stands here."""
        return text.replace(self.delimiter, self.mark) if self.delimiter else text

    def written(self, value: Any) -> str:
        """Return the text of a value as it stands here."""
        return self.placed(self.text.encode(value))

    def lifted(self, text: str) -> str:
        """Return the text of a value from what stands here."""
        return text.replace(self.mark, self.delimiter) if self.delimiter else text


Parts = tuple[str | Slot, ...]


@attrs.frozen(slots=False)
class Template:
    """A compiled template. ``text`` is what was declared, ``components`` are the literals and slots of each part."""

    text: str | tuple[str, ...]
    subject: str
    components: tuple[Parts, ...]

    @cached_property
    def parts(self) -> Parts:
        """Literals and slots of the whole key, separators among the literals; no two literals are neighbours."""
        parts: list[str | Slot] = []
        for number, component in enumerate(self.components):
            for part in ((SEPARATOR,) if number else ()) + component:
                if isinstance(part, str) and parts and isinstance(parts[-1], str):
                    parts[-1] += part
                else:
                    parts.append(part)
        return tuple(parts)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(part for part in self.parts if isinstance(part, Slot))

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields, each once, in the order in which they appear."""
        return tuple(dict.fromkeys(slot.field for slot in self.slots))

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The fields, without those that stand under ``shard`` only: no query names a shard."""
        return tuple(dict.fromkeys(slot.field for slot in self.slots if not slot.buckets))

    @cached_property
    def lossless_fields(self) -> frozenset[str]:
        """The fields that the key holds without loss, and gives back."""
        return frozenset(slot.field for slot in self.slots if slot.lossless)

    @cached_property
    def whole_fields(self) -> frozenset[str]:
        """The fields that need not be stored beside the key: it gives back even the trailing zeros of a Decimal."""
        return frozenset(slot.field for slot in self.slots if slot.text.whole)

    @property
    def least_units(self) -> int:
        """The UTF-16 units that every key has at least."""
        return sum(utf16_units(part) if isinstance(part, str) else part.text.fixed or 0 for part in self.parts)

    @property
    def constant(self) -> bool:
        return not self.slots

    @property
    def literal_prefix(self) -> str:
        """The text that every key begins with."""
        return self.parts[0] if self.parts and isinstance(self.parts[0], str) else ""

    def matches_prefix(self, text: str) -> bool:
        """Return whether a key falls into the range that the literals in front claim, were it made here or not."""
        return text == self.literal_prefix if self.constant else text.startswith(self.literal_prefix)

    def to_json(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return what decides the text of keys, for the catalogue.

        Args:
            names: what a field is called there, by its own name.
        """

        text: Any = self.text if isinstance(self.text, str) else list(self.text)
        if any(_renamed(field, names) != field for field in self.fields):
            texts = [
                renamed_text(component_text, names) for component_text in ([text] if isinstance(text, str) else text)
            ]
            text = texts[0] if isinstance(text, str) else texts
        slots = [[_renamed(slot.field, names), slot.spec, slot.text.base.__name__] for slot in self.slots]
        return {"text": text, "slots": slots}

    # -- one key ---------------------------------------------------------------------------------------------------

    def encode(self, values: Mapping[str, Any]) -> str:
        """Return the key of these values of the fields; `InvalidEntity` if a value cannot stand in it."""
        return "".join(
            [
                part if isinstance(part, str) else part.placed(part.text.encode(values[part.field]))
                for part in self.parts
            ]
        )

    def decode(self, text: str, *, trusted: bool = False) -> dict[str, Any]:
        """Return the values of the lossless fields. A text that is not trusted to be ours is encoded again.

        Raises:
            NotAKey: No values give this text.
        """
        values: dict[str, Any] = {}
        pieces = list(self.pieces(text))
        for slot, piece in pieces:
            if slot.lossless and slot.field not in values:
                lifted = slot.lifted(piece)
                decode = slot.text.decode
                values[slot.field] = decode(lifted) if trusted and decode else slot.text.parse(lifted)
        if not trusted:
            for slot, piece in pieces:
                is_known = slot.field in values
                if piece != slot.placed(slot.text.encode(values[slot.field]) if is_known else slot.lifted(piece)):
                    raise NotAKey(f"{safe_repr(text)}: {safe_repr(piece)} is not what {slot.field} gives")
                if not is_known and not slot.text.fits(slot.lifted(piece)):
                    raise NotAKey(f"{safe_repr(text)}: {safe_repr(piece)} is no text of {{{slot.field}:{slot.spec}}}")
        return values

    def pieces(self, text: str) -> Iterator[tuple[Slot, str]]:
        """Yield the slots, each with what stands in it; arguments and errors as `decode` has them."""
        return zip(self.slots, self._pieces(text), strict=True)

    @property
    def splits(self) -> int:
        """The number of splits of a key; -1 for as often as it can be, if only the separators of components are in it."""
        return len(self.components) - 1 if self.slots and self.slots[-1].open_ended else -1

    def _pieces(self, text: str) -> Iterator[str]:
        texts = text.split(SEPARATOR, self.splits) if len(self.components) > 1 else [text]
        if len(texts) != len(self.components):
            raise NotAKey(f"{safe_repr(text)} has {len(texts)} components, {self.text!r} has {len(self.components)}")
        for component, part in zip(self.components, texts, strict=True):
            yield from _cut(component, part)

    # -- source ----------------------------------------------------------------------------------------------------

    def encode_source(
        self, variables: Mapping[str, str], env: dict[str, Any], texts: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """Return one expression for the key of the values that local variables hold.

        Args:
            variables: the name of the variable of each field.
            env: the namespace that the source will run in; what the expression needs is added to it.
            texts: the same for the fields that are known by their plain text, not by their value (`takes_text`).
        """
        pieces: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                pieces.append(part if _QUOTABLE.issuperset(part) else f"{{{bind(env, '_key_literal', part)}}}")
                continue
            if part.field in texts:
                source = texts[part.field] + (f"[:{part.text.cut}]" if part.text.cut else "")
            else:
                source = part.text.encode_source(variables[part.field], env)
            if part.delimiter and part.text.tail is None:
                source = f'({source}).replace("{part.delimiter}", {bind(env, "_key_mark", part.mark)})'
            if len(self.parts) == 1:
                return f"({source})"
            pieces.append(f"{{({source})}}")
        return f"f'''{''.join(pieces)}'''" if self.parts else "''"

    def decode_source(self, text: str, targets: Mapping[str, str], env: dict[str, Any]) -> list[str]:
        """Return statements that assign fields from a key that is known to be ours.

        Args:
            text: the variable that holds the key; the statements use names that begin with it and ``_``.
            targets: the variable for each field that is wanted, all of them lossless.
            env: the namespace that the source will run in; what the statements need is added to it.
        """
        variables: dict[int, dict[int, str]] = {}  # component -> slot -> variable
        for field, target in targets.items():
            best = self._best(field)
            variables.setdefault(best.component, {})[best.index] = target
        return self._taken_apart(text, variables, env)

    def _best(self, field: str) -> Slot:
        """Return the slot that a lossless field is read from."""
        slots = [slot for slot in self.slots if slot.field == field and slot.lossless]
        return min(slots, key=lambda slot: (not slot.text.whole, len(self.components[slot.component])))

    def component_of(self, field: str) -> int:
        """Return the number of the component that a lossless field is read from."""
        return self._best(field).component

    def component_source(self, number: int, text: str, targets: Mapping[str, str], env: dict[str, Any]) -> list[str]:
        """Return statements that assign lossless fields from one component, as `decode_source` does from a key."""
        variables = {self._best(field).index: target for field, target in targets.items()}
        return _component_source(self.components[number], text, variables, env)

    def pieces_source(self, text: str, targets: Mapping[int, str], env: dict[str, Any]) -> list[str]:
        """Return statements that assign the texts of slots with a time format; arguments as `decode_source` has them.

        Args:
            targets: the variable for each slot that is wanted, by its index.
        """
        variables: dict[int, dict[int, str]] = {}
        for slot in self.slots:
            if slot.index in targets:
                variables.setdefault(slot.component, {})[slot.index] = targets[slot.index]
        return self._taken_apart(text, variables, env)

    def _taken_apart(self, text: str, variables: Mapping[int, Mapping[int, str]], env: dict[str, Any]) -> list[str]:
        statements: list[str] = []
        if len(self.components) == 1:
            names = {0: text}
        else:
            names = {number: f"{text}_{number}" for number in range(len(self.components))}
            split = f'{text}.split("{SEPARATOR}"{"" if self.splits < 0 else f", {self.splits}"})'
            if len(variables) == 1:
                (number,) = variables
                statements.append(f"{names[number]} = {split}[{number}]")
            elif variables:
                heads = ", ".join(names[number] if number in variables else "_" for number in names)
                statements.append(f"{heads} = {split}")
        for number, slots_wanted in sorted(variables.items()):
            statements += _component_source(self.components[number], names[number], slots_wanted, env)
        return statements

    def text_source(self, field: str, key: str, cut: int = 0) -> str | None:
        """Return an expression for the plain text of a field in the key that a variable holds; None if it has none.

        The plain text of a field is what it is written as without a spec. A component that is just that can be taken
        over into other keys, which spares reading the value and writing it again.

        Args:
            cut: how many characters of the text are wanted; 0 for all.
        """
        if (slot := self.plain_slot(field)) is None:
            return None
        if slot.component == 0 and slot.text.fixed is not None:
            return f"{key}[:{cut or slot.text.fixed}]"
        if len(self.components) > 1:
            key = f'{key}.split("{SEPARATOR}")[{slot.component}]'
        return f"{key}[:{cut}]" if cut else key

    def plain_slot(self, field: str) -> Slot | None:
        """Return a slot that makes a component by itself, of the plain text of a field; None if there is none."""
        for slot in self.slots:
            alone = len(self.components[slot.component]) == 1
            if slot.field == field and not slot.spec and not slot.open_ended and alone:
                return slot
        return None

    @property
    def width(self) -> int | None:
        """The length of every key, if they have one length."""
        widths = [_width(part) for part in self.parts]
        return None if None in widths else sum(filter(None, widths))

    def takes_text(self, field: str) -> bool:
        """Return whether `encode_source` can do with the plain text of a field."""
        return all(not slot.spec or slot.text.cut for slot in self.slots if slot.field == field)


_QUOTABLE = frozenset(string.ascii_letters + string.digits + string.punctuation + " ") - frozenset("'\\{}")


def _component_source(component: Parts, name: str, variables: Mapping[int, str], env: dict[str, Any]) -> list[str]:
    """Return statements that read the values of some slots from the text of a component, which a variable holds."""
    statements: list[str] = []
    pieces = _slices(component, name, variables)
    if pieces is None:
        slots = [part for part in component if isinstance(part, Slot)]
        pieces = {slot.index: f"{name}_{number}" for number, slot in enumerate(slots) if slot.index in variables}
        heads = ", ".join(pieces.get(slot.index, "_") for slot in slots)
        statements.append(f"{heads}, = {bind(env, '_key_cut', lambda text: _cut(component, text))}({name})")
    for part in component:
        if isinstance(part, Slot) and part.index in variables:
            piece = pieces[part.index]
            if part.delimiter and part.text.tail is None:
                piece = f'{piece}.replace({bind(env, "_key_mark", part.mark)}, "{part.delimiter}")'
            if not piece.isidentifier():
                statements.append(f"{name}_piece = {piece}")
                piece = f"{name}_piece"
            statements.append(f"{variables[part.index]} = {part.text.decode_source(piece, env)}")
    return statements


def _slices(component: Parts, name: str, slot_numbers: Mapping[int, str]) -> dict[int, str] | None:
    """Return source of the text of each wanted slot, by its number; None if only reading tells where one is."""
    pieces: dict[int, str] = {}
    widths = [_width(part) for part in component]
    for place, part in enumerate(component):
        if isinstance(part, str) or part.index not in slot_numbers:
            continue
        widths_before, width, widths_after = widths[:place], widths[place], widths[place + 1 :]
        end = "" if not widths_after else None if None in widths_after else str(-sum(filter(None, widths_after)))
        if len(component) == 1:
            pieces[part.index] = name
        elif None not in widths_before and (width is not None or end is not None) and not part.delimiter:
            start = sum(filter(None, widths_before))
            pieces[part.index] = f"{name}[{start or ''}:{start + width if width is not None else end}]"
        elif None not in widths_after and width is not None:
            pieces[part.index] = f"{name}[{-sum(filter(None, widths_after)) - width}:{end}]"
        else:
            return None
    return pieces


def _width(part: str | Slot) -> int | None:
    return len(part) if isinstance(part, str) else part.text.fixed


def _cut(component: Parts, text: str) -> Iterator[str]:
    """Yield the text of each slot of a component."""
    at = 0
    for part in component:
        if isinstance(part, str):
            if not text.startswith(part, at):
                raise NotAKey(f"{safe_repr(text)} does not have {part!r} at {at}")
            at += len(part)
            continue
        if part.ends_component:
            end = len(text)
        elif part.after is not None:
            end = len(text) - part.after
        elif part.delimiter:
            end = text.find(part.delimiter, at)
        else:
            end = part.text.end(text, at)
        if not at <= end <= len(text):
            raise NotAKey(f"{safe_repr(text)} ends before its {part.field}")
        yield text[at:end]
        at = end
    if at != len(text):
        raise NotAKey(f"{safe_repr(text)} goes on after {safe_repr(text[:at])}")


def _renamed(field: str, names: Mapping[str, str]) -> str:
    head, dot, path = field.partition(".")
    return names.get(head, head) + dot + path


def renamed_text(text: str, names: Mapping[str, str]) -> str:
    """Return the text of a component with other names of its fields."""
    parts = []
    for literal, field, spec, _ in string.Formatter().parse(text):
        parts.append(literal.replace("{", "{{").replace("}", "}}"))
        if field is not None:
            parts.append(f"{{{_renamed(field, names)}{':' + spec if spec else ''}}}")
    return "".join(parts)
