"""One migration script: the shape that it starts from, the shape that it leaves, and the steps between the two.

A script is a module of the application with one decorated function::

    @tm.migration(after="0002_tags", old=[old.Product], new=[new.Product])
    def migrate(m: tm.Migration) -> None:
        m.rename(old.Product.maker, new.Product.manufacturer)

The function names the steps; nothing is done while it runs. The shapes are ordinary entity classes that stand in the
script itself, and no store knows them, so they have the names of the application's own classes.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import attrs

from ..entities.aggregates import keepers
from ..entities.declaration import Declaration
from ..entities.entity import Entity, Record
from ..entities.index import IndexRange
from ..errors import InvalidMigration, safe_repr
from ..expressions.tree import Attr
from .steps import AnyStep, Convert, Drop, Fill, Join, Rekey, Rename, RenameClass, Resolve, Rewrite

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
E = TypeVar("E", bound=Entity)
N = TypeVar("N", bound=Entity)
E1 = TypeVar("E1", bound=Entity)
E2 = TypeVar("E2", bound=Entity)

if TYPE_CHECKING:

    class _IndexOf(Protocol[T]):
        """The type of ``Product.by_name`` for type checkers."""

        def __call__(self, /) -> IndexRange[T]: ...

    class _ClassOf(Protocol[N]):
        """A class, and no other: what ``type[N]`` would not say, as entities of all classes are entities."""

        def _same(self, entity: N, /) -> N: ...


class Migration:
    """The steps of one migration script. Calling its methods only records them.

    A generated script contains ``...`` where you must write a function. It cannot be loaded until you do.
    """

    def __init__(self) -> None:
        self.steps: list[AnyStep] = []
        """Those that were named so far."""

    def rename(self, old: Attr[Any, T], new: Attr[Any, T], /) -> None:
        """Give a field another name.

        Args:
            old: the field, of a class of the old shape.
            new: the same field, of a class of the new shape; its type is the same.

        Raises:
            InvalidMigration: when the script is loaded, if a field is not in its shape, or the types differ.
        """
        self.steps.append(Rename(old, new))

    def rename_class(self, old: type[Record], new: type[Record], /) -> None:
        """Give a class, its table, or both another name.

        Args:
            old: the class, of the old shape.
            new: the same class, of the new shape.

        Raises:
            InvalidMigration: when the script is loaded, if a class is not in its shape.
        """
        self.steps.append(RenameClass(old, new))

    def rekey(self, old: type[Entity], new: type[Entity], /) -> None:
        """Build the key of a class from the same fields in another way.

        Args:
            old: the class, of the old shape.
            new: the same class, of the new shape.

        Raises:
            InvalidMigration: when the script is loaded, if a field of the new key is not in the old class.
        """
        self.steps.append(Rekey(old, new))

    @overload
    def convert(
        self,
        old: Attr[Any, A | None],
        new: Attr[Any, B | None],
        with_: Callable[[A], B] | Mapping[A, B] | EllipsisType,
        /,
        *,
        back: Callable[[B], A] | None = None,
    ) -> None: ...
    @overload
    def convert(
        self,
        old: Attr[Any, A],
        new: Attr[Any, B],
        with_: Callable[[A], B] | Mapping[A, B] | EllipsisType,
        /,
        *,
        back: Callable[[B], A] | None = None,
    ) -> None: ...
    def convert(
        self,
        old: Attr[Any, Any],
        new: Attr[Any, Any],
        with_: Any,
        /,
        *,
        back: Callable[[Any], Any] | None = None,
    ) -> None:
        """Give a field another type.

        None stays None, unless the new field cannot be None: then the function gets it.

        Args:
            old: the field, of a class of the old shape.
            new: the same field, of a class of the new shape; it may have another name too.
            with_: a function of the old value, or a mapping of old to new values. A value that is not in the mapping
                stays as it is. The function may run several times for a value.
            back: a function of the new value. With it the old version of the program can keep reading, and you can
                undo the migration. A one-to-one mapping needs none.

        Raises:
            InvalidMigration: when the script is loaded, if a field is not in its shape.
        """
        self.steps.append(Convert(old, new, with_, back))

    def fill(self, new: Attr[E, T], with_: Callable[[E], T] | EllipsisType, /) -> None:
        """Give a field a value in the entities that have none, not even as an undeclared property.

        Args:
            new: the field, of a class of the new shape.
            with_: a function of the entity, in the new shape, without the field.

        Raises:
            InvalidMigration: when the script is loaded, if the field is not in the new shape.
        """
        self.steps.append(Fill(new, _function(with_)))

    @overload
    def rewrite(
        self,
        old: type[E],
        with_: Callable[[E], N | None] | EllipsisType,
        /,
        *,
        into: _ClassOf[N],
        back: Callable[[Any], E | None] | None = None,
        combine: Callable[[Any, Any], Entity] | None = None,
    ) -> None: ...
    @overload
    def rewrite(
        self,
        old: type[E],
        with_: Callable[[E], Iterable[N]] | EllipsisType,
        /,
        *,
        into: _ClassOf[N],
        back: Callable[[Any], E | None] | None = None,
        combine: Callable[[Any, Any], Entity] | None = None,
    ) -> None: ...
    @overload
    def rewrite(
        self,
        old: type[E],
        with_: Callable[[E], Entity | Iterable[Entity] | None] | EllipsisType,
        /,
        *,
        into: Sequence[type[Entity]],
        back: Callable[[Any], E | None] | None = None,
        combine: Callable[[Any, Any], Entity] | None = None,
    ) -> None: ...
    def rewrite(self, old: type[Any], with_: Any, /, *, into: Any, back: Any = None, combine: Any = None) -> None:
        """Replace each entity of a class by others.

        Args:
            old: the class, of the old shape.
            with_: returns an entity, several entities, or None, which drops the old one. It may run several times for
                an entity.
            into: the class that it returns, of the new shape, or a list of several classes. Type checkers refuse a
                function that returns another class than one that is named alone.
            back: returns the old entity for a new one, or None if another new entity corresponds to it.
            combine: makes one entity of two that have the same key, and keeps the key; without it equal keys are an
                error. The entity of the lower old key comes first. You cannot undo such a migration, so there is no
                ``back=``.

        Raises:
            InvalidMigration: when the script is loaded, if a class is not in its shape.
        """
        self.steps.append(Rewrite(old, _function(with_), _classes(into), back, combine))

    @overload
    def join(
        self,
        a: type[E1],
        b: type[E2],
        with_: Callable[[E1 | None, E2 | None], N | None] | EllipsisType,
        /,
        *,
        into: _ClassOf[N],
    ) -> None: ...
    @overload
    def join(
        self,
        a: type[E1],
        b: type[E2],
        with_: Callable[[E1 | None, E2 | None], Iterable[N]] | EllipsisType,
        /,
        *,
        into: _ClassOf[N],
    ) -> None: ...
    @overload
    def join(
        self,
        a: type[E1],
        b: type[E2],
        with_: Callable[[E1 | None, E2 | None], Entity | Iterable[Entity] | None] | EllipsisType,
        /,
        *,
        into: Sequence[type[Entity]],
    ) -> None: ...
    def join(self, a: type[Any], b: type[Any], with_: Any, /, *, into: Any) -> None:
        """Replace the entities of two classes that have equal keys by others.

        Args:
            a: a class of the old shape.
            b: another one.
            with_: gets both entities, or one and None; returns an entity, several entities, or None.
            into: as for `rewrite`.

        Raises:
            InvalidMigration: when the script is loaded, if a class is not in its shape.
        """
        self.steps.append(Join(a, b, _function(with_), _classes(into)))

    def resolve(self, index: _IndexOf[E], with_: Callable[[list[E]], Iterable[E]] | EllipsisType, /) -> None:
        """Resolve duplicates: entities that hold the same value of a new unique index.

        Args:
            index: the index, of a class of the new shape.
            with_: gets the entities with the same value, in the order of their keys; returns those to keep, changed
                so that they differ. The others are deleted.

        Raises:
            InvalidMigration: when the script is loaded, if it is not a unique index of the new shape.
        """
        self.steps.append(Resolve(index, _function(with_)))  # type: ignore[arg-type]  # (an IndexCall when the program runs)

    def drop(self, target: Attr[Any, Any] | type[Record] | _IndexOf[Any], /) -> None:
        """Remove a field, an index, an aggregate or a class. Contracting the migration deletes its data.

        Args:
            target: the field, index, aggregate or class, of the old shape.

        Raises:
            InvalidMigration: when the script is loaded, if it is not in the old shape.
        """
        self.steps.append(Drop(target))  # type: ignore[arg-type]  # (an IndexCall when the program runs)


def _function(function: Any) -> Callable[..., Any]:
    """Return the function of a step as it was given; loading the script checks it."""
    return function  # type: ignore[no-any-return]


@attrs.frozen(eq=False)
class MigrationFunction:
    """A decorated function of a script, with the old and the new shape."""

    function: Callable[[Migration], None]
    after: str | None
    old: tuple[type[Record], ...]
    new: tuple[type[Record], ...]

    def __call__(self, m: Migration, /) -> None:
        self.function(m)


@attrs.frozen(eq=False)
class Script:
    """A migration script that was loaded."""

    id: str
    """The name of its module; for a function without a module, that of the function."""
    after: str | None
    """The script before it."""
    old: tuple[type[Record], ...]
    new: tuple[type[Record], ...]
    steps: tuple[AnyStep, ...]
    digest: str
    """32 hex digits of its source, which differ once it was edited."""
    doc: str
    """The first line of its docstring."""
    undoes: bool = False
    """Whether it undoes another one, whose classes it has the other way round."""


def migration(
    *, after: str | None, old: Sequence[type[Record]], new: Sequence[type[Record]]
) -> Callable[[Callable[[Migration], None]], MigrationFunction]:
    """Mark the function that lists the steps of a migration script.

    Args:
        after: the id of the script before this one; None for the first.
        old: the classes as they are before it, frozen in the script.
        new: the classes as they are after it, frozen in the script.

    Raises:
        InvalidMigration: one of these is of another type.
    """

    def decorate(function: Callable[[Migration], None]) -> MigrationFunction:
        faults = [
            f"{side}=: expected a list of classes, got {safe_repr(classes)}"
            for side, classes in (("old", old), ("new", new))
            if not isinstance(classes, list | tuple)
        ]
        if after is not None and not isinstance(after, str):
            faults.append(f"after=: expected the id of a script, a str, or None, got {safe_repr(after)}")
        if any(kind(function) for kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction)):
            faults.append("it lists the steps at once; write it as a plain function, without async and yield")
        if faults:
            raise InvalidMigration(getattr(function, "__name__", "migration"), faults)
        return MigrationFunction(function, after, tuple(old), tuple(new))

    return decorate


def load_script(id: str, decorated: MigrationFunction, *, module: Any = None, source: str | None = None) -> Script:
    """Return the script of a decorated function.

    Args:
        id: its name in the chain.
        decorated: the function.
        module: the module of the script; None for a function without one.
        source: the text of the module, if no file has it yet.
    """
    m = Migration()
    decorated.function(m)
    doc = inspect.getdoc(decorated.function) or (module is not None and inspect.getdoc(module)) or ""
    if source is not None:
        text = source.encode()
    else:
        text = _source(decorated.function) if module is None else Path(module.__file__).read_bytes()
    digest = hashlib.blake2b(text, digest_size=16).hexdigest()
    old, new = _with_keepers(decorated.old), _with_keepers(decorated.new)
    # (Last, what a class is dropped with: a step of its own may name it, too.)
    steps = [expanded for step in m.steps for expanded in _with_keeper_steps(step)]
    dropped_classes = [step.what for step in steps if isinstance(step, Drop) and isinstance(step.what, type)]
    steps += [
        Drop(keeper) for cls in dropped_classes for keeper in _keepers(cls).values() if keeper not in dropped_classes
    ]
    return Script(id, decorated.after, old, new, tuple(steps), digest, doc.partition("\n")[0].strip())


def _with_keepers(classes: Sequence[type[Record]]) -> tuple[type[Record], ...]:
    """Return classes with the aggregates that keep their maintained fields."""
    return tuple(dict.fromkeys([*classes, *(keeper for cls in classes for keeper in _keepers(cls).values())]))


def _keepers(cls: Any) -> dict[str, Any]:
    """Return the aggregates that keep the maintained fields of a class, by field."""
    declaration = getattr(cls, "__dict__", {}).get("__declaration__")
    if not isinstance(declaration, Declaration):
        return {}
    return {field.name: keeper for field, keeper in zip(declaration.maintained, keepers(cls), strict=True)}


def _with_keeper_steps(step: AnyStep) -> Iterator[AnyStep]:
    """Yield a step as steps over aggregates, where it is about maintained fields."""
    match step:
        case Drop(what=Attr() as attr) if attr.name in (keepers := _keepers(attr.owner)):
            yield Drop(keepers[attr.name])
        case RenameClass(old=old, new=new):
            yield step
            new_keepers = _keepers(new)
            yield from (
                RenameClass(keeper, new_keepers[name]) for name, keeper in _keepers(old).items() if name in new_keepers
            )
        case _:
            yield step


def _source(function: Callable[[Migration], None]) -> bytes:
    try:
        return inspect.getsource(function).encode()
    except OSError:  # written at a prompt
        return function.__code__.co_code


def _classes(into: Any) -> tuple[Any, ...]:
    """Return the classes that ``into=`` names: one alone, or several in a list."""
    return tuple(into) if isinstance(into, Iterable) and not isinstance(into, type) else (into,)


def undoing(script: Script) -> Script:
    """Return the script that undoes another one.

    Raises:
        InvalidMigration: one of its steps cannot be undone.
    """
    faults = [
        f"it cannot be undone: {step}{step.irreversible_reason}"
        for step in script.steps
        if not step.is_reversible(script)
    ]
    if faults:
        raise InvalidMigration(script.id, faults)
    steps = [undone for step in reversed(script.steps) for undone in step.undone(script)]
    return attrs.evolve(script, old=script.new, new=script.old, steps=tuple(steps), undoes=not script.undoes)
