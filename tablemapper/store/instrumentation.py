"""A store whose calls are reported. Its verbs are bound here, so that a store without an observer pays nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, Never, TypeVar

from ..engines.protocol import Engine, Operation
from ..entities.entity import Entity, Record, stored_row
from ..entities.key import KeyOf
from ..errors import InvalidTransaction
from ..events import Call, Observer
from ..expressions.tree import Predicate
from ..query.observed_queries import ObservedPlans, class_names, observed, report, returned_one
from ..query.partitions import Partition
from ..query.results import Results
from ..verbs.operations import Operations
from ..verbs.transaction import TransactionBuffer
from .store import Store, UnknownRow

T = TypeVar("T")


def _names(classes: Iterable[type[Any]]) -> str | None:
    return ", ".join(dict.fromkeys([cls.__name__ for cls in classes])) or None


def _class_of(target: object) -> list[type[Any]]:
    if isinstance(target, KeyOf):
        return [target.entity]
    if isinstance(target, type):
        return [target]
    return [type(target)] if isinstance(target, Record) else []


def _wrote(call: Call, result: object) -> None:
    call.written = 1


def _wrote_several(call: Call, result: int) -> None:
    call.written = result


def noting(call: Call, items: Any) -> Any:
    """Return a stream whose classes the call gets to know."""
    if isinstance(items, Results):
        call.model = class_names(items)
        return items
    if not isinstance(items, Iterable) or isinstance(items, KeyOf):
        return items  # (which is refused)

    def stream() -> Iterator[Any]:
        classes: dict[type[Any], None] = {}
        try:
            for item in items:
                classes[item.entity if isinstance(item, KeyOf) else type(item)] = None
                yield item
        finally:
            names = call.model.split(", ") if call.model is not None else []
            call.model = ", ".join(dict.fromkeys([*names, *[cls.__name__ for cls in classes]])) or None

    return stream()


class ObservedStore(Store):
    """A store whose calls are reported: each is made on a plain twin, so that what it is made of is not."""

    def __init__(self, engine: Engine, observer: Observer, *, limits: Literal["azure"] | None = None) -> None:
        self._observer = observer
        super().__init__(engine, limits=limits)

    def _use(self, engine: Engine) -> None:
        self._plain = Store(engine, limits=self._limits)
        super()._use(engine)

    def _take_classes(self) -> None:
        super()._take_classes()
        self._plans = ObservedPlans(self._engine, self._observer)

    def _follow(self) -> None:
        super()._follow()
        self._plain._follow()  # noqa: SLF001  (of its own class)

    def _begin(self, verb: str, args: tuple[Any, ...]) -> tuple[Call, Store, tuple[Any, ...]]:
        """Return the call; of what it gets first it has its class, if that is an entity, a key, a class or a stream."""
        if verb.endswith("_many"):
            call = self._observer.call(verb)
            return call, self._plain, (*[noting(call, items) for items in args[:1]], *args[1:])
        model = _names(_class_of(args[0])) if args else None
        path = f"{model}.key" if model is not None and not isinstance(args[0], type) else None
        return self._observer.call("get" if verb == "__getitem__" else verb, model, path), self._plain, args

    def use(self, *models: type[Record]) -> None:
        work, arguments = super().use, tuple[object, ...](models)
        names = _names(cls for cls in arguments if isinstance(cls, type))
        self._observer.call("use", names).run(lambda _: work(*models))

    def get_many(self, keys: Any, /) -> list[Any]:
        def work(call: Call) -> list[Any]:
            requested: Any = keys if isinstance(keys, KeyOf) else list(keys)  # (one key is refused)
            call.model = _names(cls for key in requested for cls in _class_of(key))
            entities = self._plain.get_many(requested)
            call.returned = len(entities) - entities.count(None)
            return entities

        return self._observer.call("get_many").run(work)

    def partitions(self, cls: type[Any], /) -> Iterator[Partition[Any]]:
        call = self._observer.call("partitions", getattr(cls, "__name__", None))
        return call.iterate(lambda: self._plain.partitions(cls))

    def query(self, source: Any, /, *classes: Any) -> Any:
        return observed(super().query(source, *classes))

    def partition(self, *where: Predicate[Any] | type[Record] | Partition[Record]) -> Iterator[Record | UnknownRow]:
        arguments: tuple[object, ...] = where
        owners = [
            attr.owner for argument in arguments if isinstance(argument, Predicate) for attr in argument.attributes()
        ]
        owners += [argument for argument in arguments if isinstance(argument, type)]
        owners += [argument.cls for argument in arguments if isinstance(argument, Partition)]
        call = self._observer.call("partition", _names(owners), "partition")
        return call.iterate(lambda: self._plain.partition(*where))

    def update(self, key: KeyOf[Any], change: Callable[[Any], Any] | None = None, /, **changes: Never) -> Any:
        def work(call: Call) -> Any:
            old_row = None

            def counting(entity: Entity) -> Any:
                nonlocal old_row
                call.returned, old_row = call.returned + 1, stored_row(entity)
                assert change is not None
                return change(entity)

            entity = self._plain.update(key, counting if callable(change) else change, **changes)
            call.written = int(old_row is None or stored_row(entity)[2] != old_row[2])
            return entity

        model = _names(_class_of(key))
        return self._observer.call("update", model, model and f"{model}.key").run(work)

    def _new_buffer(self, *, across: bool) -> TransactionBuffer:
        return ObservedBuffer(self._operations, self._observer, across=across)


_READING = "get", "__getitem__", "group", "exists"
_WRITING = "insert", "replace", "merge", "upsert", "delete", "move"
_STREAMS = (
    "insert_many",
    "upsert_many",
    "replace_many",
    "delete_many",
    "insert_columns",
    "upsert_columns",
    "clear",
    "expire",
)
_OTHERS = "build", "status", "statistics", "check", "repair", "compact", "advise", "backup", "drop"
report(ObservedStore, Store, _READING, returned_one)
report(ObservedStore, Store, _WRITING, _wrote)
report(ObservedStore, Store, _STREAMS, _wrote_several)
report(ObservedStore, Store, _OTHERS, lambda call, result: None)


class ObservedBuffer(TransactionBuffer):
    """The operations of a transaction that is reported, with what was read in its block."""

    def __init__(self, operations: Operations, observer: Observer, **options: Any) -> None:
        super().__init__(operations, **options)
        self._call = observer.call("transaction")

    def get(self, key: KeyOf[Any], misplaced: tuple[object, ...] = (), *, handed_out: bool = True) -> Any:
        with self._call:
            entity = super().get(key, misplaced, handed_out=handed_out)
        self._call.outcome = "ok"
        self._call.returned += entity is not None
        return entity

    def end(self, error: type[BaseException] | None = None) -> list[Operation]:
        pending: list[Operation] = []
        try:
            pending = super().end(error)
        except InvalidTransaction as refusal:
            error = type(refusal)
            raise
        finally:
            if not pending:
                self._call.outcome = "ok" if error is None else error.__name__
                self._call.end()
        return pending

    def write(self, pending: list[Operation]) -> None:
        def work(call: Call) -> None:
            call.model = _names(operation.model.cls for operation in pending)
            TransactionBuffer.write(self, pending)
            call.written = sum(operation.verb != "require" for operation in pending)

        if pending:
            self._call.run(work)
