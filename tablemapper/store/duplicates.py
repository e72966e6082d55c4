"""Duplicates of unique indexes, resolved by functions while other programs write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ..catalogue.transitions import ConversionFault
from ..engines.protocol import DuplicateValue, Engine
from ..entities.entity import info
from ..errors import EntityNotFound, InvalidEntity, PreconditionFailed, SchemaMismatch
from ..schema.labels import Label
from .builds import build
from .store import Store

_AT_ONCE = 100  # duplicates that are read before they are resolved


def resolve(
    store: Store, engine: Engine, functions: Mapping[str, Callable[[list[Any]], Iterable[Any]]]
) -> tuple[ConversionFault, ...]:
    """Resolve the duplicates of some indexes; return those that are left, each as a fault of one of its holders.

    The entities with one value are changed in one transaction, or one after the other where it cannot hold them. Whoever comes
    after one that was killed resolves the rest.

    Args:
        functions: by index, from the entities with one value to those that are to be kept, changed.
    """
    unresolved: dict[tuple[Any, ...], ConversionFault] = {}
    while duplicates := _unresolved(engine, functions, unresolved):
        rows = {
            duplicate: [engine.get(model, *key) for key in sorted(duplicate.holders)]
            for duplicate in duplicates
            for model in [engine.schema.by_name[Label.of(duplicate.index).owner]]
        }
        # Another program may have changed some before they were read. What changes after that is not written.
        still, attempted = _unresolved(engine, functions, unresolved), []
        for duplicate in filter(rows.__contains__, still):
            build_one = engine.schema.by_name[Label.of(duplicate.index).owner].build_one
            holders = {row[:2]: build_one(row) for row in rows[duplicate] if row is not None}
            try:
                resolved = {
                    (entity.key.partition, entity.key.row): entity
                    for entity in functions[duplicate.index](list(holders.values()))
                }
                if not resolved.keys() <= holders.keys():
                    raise InvalidEntity(duplicate.index, ["the function gave another entity than it got"])
                if _replace(store, holders, resolved, in_one=engine.capabilities.across_partitions):
                    attempted.append(duplicate)
            except SchemaMismatch:
                raise
            except Exception as error:  # whatever the function raises
                unresolved[duplicate.index, duplicate.value] = _fault(duplicate, f"{type(error).__name__}: {error}")
        if attempted and not engine.capabilities.across_partitions:
            build(engine, labels={duplicate.index for duplicate in attempted})  # (it looks at them again)
        same = {(duplicate.index, duplicate.value) for duplicate in _unresolved(engine, functions, unresolved)}
        for duplicate in attempted:
            index, value = duplicate.index, duplicate.value
            if (index, value) in same:
                detail = f"it still has {value} of {index}, as {duplicate.holders[0]} has"
                unresolved[index, value] = _fault(duplicate, detail)
    return tuple(unresolved.values())


def duplicates(engine: Engine, most: int) -> tuple[ConversionFault, ...]:
    """Return the entities with a value of a unique index that another entity has, too."""
    return tuple(
        [
            _fault(duplicate, f"it has {duplicate.value} of {duplicate.index}, as {duplicate.holders[0]} has", at)
            for duplicate in engine.violations(most)
            for at in range(1, len(duplicate.holders))
        ]
    )


def _fault(duplicate: DuplicateValue, detail: str, holder: int = -1) -> ConversionFault:
    return ConversionFault(Label.of(duplicate.index).owner, duplicate.holders[holder], detail)


def _unresolved(engine: Engine, functions: Collection[str], unresolved: Collection[Any]) -> list[DuplicateValue]:
    """Return the next duplicates that are to be resolved."""
    return [
        duplicate
        for duplicate in engine.violations(_AT_ONCE + len(unresolved))
        if duplicate.index in functions and (duplicate.index, duplicate.value) not in unresolved
    ]


def _replace(store: Store, holders: Mapping[Any, Any], resolved: Mapping[Any, Any], *, in_one: bool) -> bool:
    """Write the changed entities of some, by key, and delete the others, first, in one transaction or in one each.

    Returns:
        False, if another program has changed one of them since they were read; then it is not written, nor what follows.
    """
    in_order = sorted(holders, key=lambda key: key in resolved)
    try:
        for keys in [in_order] if in_one else [[key] for key in in_order]:
            with store.transaction(across_partitions=in_one) as tx:
                for key in keys:
                    if key in resolved:
                        tx.replace(resolved[key], if_match=info(holders[key]).etag)
                    else:
                        tx.delete(holders[key])
    except (EntityNotFound, PreconditionFailed):
        return False
    return True
