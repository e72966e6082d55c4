"""The base of predicates, and the combinations *and*, *or*, *not*.

They are joined one by one, in as many steps, whatever is joined already. Few parts are copied with each that is joined to
them. Of many it is noted only what was joined, and the parts are found when they are asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar

import attrs

from ..errors import InvalidQuery, safe_repr
from .arithmetic import NO_TRUTH
from .foreign_names import verbs_of

O_contra = TypeVar("O_contra", contravariant=True)
MAX_DEPTH = 100  # of predicates in each other: SQLite, and Python, take them with room to spare
_MANY = 50


class Predicate(Generic[O_contra]):
    """A condition on the entities of a class, or of classes derived from it."""

    __slots__ = ()
    depth: int = 1
    """How many predicates stand in each other, at most."""

    def __dir__(self) -> list[str]:
        return verbs_of(self)

    def __and__(self, other: Predicate[O_contra]) -> Predicate[O_contra]:
        return _not_too_deep(join(And, self, as_predicate(other)))

    def __or__(self, other: Predicate[O_contra]) -> Predicate[O_contra]:
        return _not_too_deep(join(Or, self, as_predicate(other)))

    def __invert__(self) -> Predicate[O_contra]:
        return self.part if isinstance(self, Not) else _not_too_deep(Not(part=self))

    def __bool__(self) -> NoReturn:
        raise TypeError(NO_TRUTH)

    def shape(self, constants: list[Any], /) -> Hashable:
        """Return the shape that this shares with predicates of other constants, and add the constants."""
        raise NotImplementedError

    def with_constants(self, constants: Iterator[Any], /) -> Predicate[O_contra]:
        """Return this with other constants, taken in the order in which `shape` adds them."""
        raise NotImplementedError

    def attributes(self) -> Iterator[Any]:
        """Yield every attribute that this reads: an `Attr` of `tree`."""
        raise NotImplementedError


def as_predicate(value: object) -> Predicate[Any]:
    """Return a value that is a predicate; raise InvalidQuery if it is something else."""
    if isinstance(value, Predicate):
        return value
    raise InvalidQuery(f"expected a condition, got {safe_repr(value)}: compare a field, as in Product.price > 10")


def _not_too_deep(predicate: Predicate[Any]) -> Predicate[Any]:
    if predicate.depth > MAX_DEPTH:
        raise InvalidQuery(
            f"conditions are nested more than {MAX_DEPTH} deep; join many by one | or &, or pass several to where"
        )
    return predicate


@attrs.frozen(eq=False, kw_only=True)
class Junction(Predicate[O_contra]):
    """A predicate that is made of others."""

    parts: tuple[Predicate[Any], ...]
    depth: int = attrs.field(
        default=attrs.Factory(lambda self: 1 + max((part.depth for part in self.parts), default=0), takes_self=True),
        repr=False,
    )
    joined: tuple[Predicate[Any], ...] = attrs.field(default=(), init=False, repr=False)
    """What was joined, if the parts are found when they are asked for: see `boolean`."""
    word: ClassVar[str]

    def __getattr__(self, name: str) -> Any:
        if name != "parts":
            raise AttributeError(name)
        object.__setattr__(self, "parts", taken_apart(self.__class__, self.joined))
        return self.parts

    def shape(self, constants: list[Any], /) -> Hashable:
        return self.word, *[part.shape(constants) for part in self.parts]

    def with_constants(self, constants: Iterator[Any], /) -> Self:
        return attrs.evolve(self, parts=tuple([part.with_constants(constants) for part in self.parts]))

    def attributes(self) -> Iterator[Any]:
        return chain.from_iterable(part.attributes() for part in self.parts)


@attrs.frozen(eq=False, kw_only=True)
class And(Junction[O_contra]):
    """All parts hold."""

    word: ClassVar[str] = "and"


@attrs.frozen(eq=False, kw_only=True)
class Or(Junction[O_contra]):
    """One part holds."""

    word: ClassVar[str] = "or"


@attrs.frozen(eq=False, kw_only=True)
class Unended(Or[O_contra]):
    """The time at which an entity ends is missing, or later than a moment."""


@attrs.frozen(eq=False, kw_only=True)
class Not(Predicate[O_contra]):
    """The part does not hold."""

    part: Predicate[Any]
    depth: int = attrs.field(default=attrs.Factory(lambda self: 1 + self.part.depth, takes_self=True), repr=False)

    def shape(self, constants: list[Any], /) -> Hashable:
        return "not", self.part.shape(constants)

    def with_constants(self, constants: Iterator[Any], /) -> Not[O_contra]:
        return Not(part=self.part.with_constants(constants))

    def attributes(self) -> Iterator[Any]:
        return self.part.attributes()


def join(kind: Any, left: Any, right: Any) -> Any:
    """Return a predicate of a kind that has two others for parts, or their parts where they are of that kind."""
    parts: tuple[Any, ...] = ()
    depth, many = 0, False
    for side in (left, right):
        if not isinstance(side, kind):
            depth = max(depth, side.depth + 1)
            parts += (side,)
            continue
        depth = max(depth, side.depth)
        if side.joined or len(side.parts) > _MANY:
            many = True
        else:
            parts += side.parts
    predicate = kind(parts=parts, depth=depth)
    if many:
        object.__setattr__(predicate, "joined", (left, right))
        object.__delattr__(predicate, "parts")
    return predicate


def taken_apart(kind: Any, sides: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the parts of what was joined."""
    parts: list[Any] = []
    pending = [*reversed(sides)]
    while pending:
        part = pending.pop()
        if isinstance(part, kind):
            pending += reversed(part.joined or part.parts)
        else:
            parts.append(part)
    return tuple(parts)
