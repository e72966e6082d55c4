"""Keys as they are declared, and what calling one gives.

A declaration is text and names only; it is compiled against the fields when its class is made (`declaration`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Never, TypeVar, TypeVarTuple, overload

from ..expressions.foreign_names import refuse_foreign_names

E = TypeVar("E")
Ts = TypeVarTuple("Ts")

TemplateText = str | tuple[str, ...]
_ENTRY = re.compile(r"(\{\w+)\[([^\[\]{}.:!]+)\](?=[:}!])")


def dotted(template: TemplateText) -> Any:
    """Return a template with ``{more[color]}`` as ``{more.color}``, as all nested values are named within."""
    if isinstance(template, str):
        return _ENTRY.sub(r"\1.\2", template)
    value: Any = template  # (what is no tuple of texts is refused with the class)
    return tuple(map(dotted, value)) if isinstance(value, tuple) else value


@refuse_foreign_names("key", lambda key: (f"a key of {key.entity.__name__}", key.entity.__name__), "either")
class KeyOf(NamedTuple, Generic[E]):
    """The key of one entity: its class, and its partition key and row key as they are stored."""

    entity: type[E]
    partition: str
    row: str


class Key(Generic[*Ts]):
    """The declaration of a key: the templates of its partition key and row key.

    Calling it on the class, ``Product.key("books", "b-1")``, gives a `KeyOf`; the arguments are the fields of the
    templates, each once, in order of first appearance.
    """

    def __init__(self, *misplaced: Never, partition: TemplateText, row: TemplateText = "") -> None:
        self.partition: Any = dotted(partition)
        self.row: Any = dotted(row)
        self.misplaced: tuple[object, ...] = misplaced

    if TYPE_CHECKING:

        @overload
        def __get__(self, obj: None, owner: type[E], /) -> KeyCall[E, *Ts]: ...
        @overload
        def __get__(self, obj: E, owner: type[E], /) -> KeyOf[E]: ...
        def __get__(self, obj: Any, owner: Any, /) -> Any: ...


if TYPE_CHECKING:

    class KeyCall(Generic[E, *Ts]):
        def __call__(self, *values: *Ts) -> KeyOf[E]: ...
