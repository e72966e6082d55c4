"""The versions of a class that programs opened: which may still run, and why others may not."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC
from typing import Literal

import attrs
import msgspec
from msgspec.structs import replace

from ..datetime_types import Builtin
from ..schema.model import Model, Schema
from .history import History

_DEPLOY = "deploy the version that declares it as it is now"
_MAX_STEPS = 3  # steps of a migration in a message


class Version(msgspec.Struct, forbid_unknown_fields=True):
    """A form of a class that was opened once."""

    form: str
    """Its `form_hash`."""
    since: int
    """µs since 1970."""
    until: int | None = None
    """When it was retired; None while it may run."""
    retired_by: str | None = None
    """The migration that retired it; None if the class held no entities and was declared anew."""
    renames: dict[str, str] = {}
    """Its properties that have other names by now, with these."""
    behind: str | None = None
    """The first migration that it has not seen, and goes on beside until that is contracted."""
    beside: str | None = None
    """The migration beside which it has tables of its own."""
    unkept: bool = False
    """Whether it was retired because a process wrote that did not know the script of that migration."""
    undone: bool = False
    """Whether what retired it was undone: a program that opens the store with it again is compared with what is there."""

    @property
    def in_use(self) -> bool:
        """Whether programs with this form may use the file's tables: it is not retired, and has none of its own."""
        return self.until is None and self.beside is None

    @property
    def state(self) -> Literal["current", "behind", "twin", "retired", "ended", "undone"]:
        """Its state; ValueError if no version is so."""
        live, on_mirror = self.until is None, self.beside is not None
        if live and not (self.retired_by or self.undone or self.unkept) and (self.behind or not on_mirror):
            return "twin" if on_mirror else "current" if self.behind is None else "behind"
        if live or on_mirror or (self.undone and self.retired_by) or (self.unkept and not self.retired_by):
            raise ValueError(f"no version is {self!r}")
        return "undone" if self.undone else "ended" if self.retired_by is None else "retired"

    def retire(self, now_us: int, by: str, *, unkept: bool = False) -> Version:
        """Return it as a migration, or its undoing, retires it."""
        return replace(self, until=now_us, retired_by=by, beside=None, unkept=unkept, undone=False)

    def end(self, now_us: int) -> Version:
        """Return it as the class is declared anew, unless it ended before."""
        return replace(self, until=now_us, undone=False) if self.until is None or self.undone else self

    def live_beside(self, migration: str) -> Version:
        """Return it with tables of its own beside a migration, which it has not seen."""
        return replace(self, beside=migration, behind=self.behind or migration)

    def live_after(self, migration: str) -> Version:
        """Return it in the tables of the file, once they and its own beside a migration changed places."""
        return replace(self, beside=None, behind=None if self.behind == migration else self.behind)

    def revive(self, id: str, by: str) -> Version:
        """Return it as it is once the store is back: if a migration, or its undoing, retired it, it may be opened again.

        Args:
            by: what retired it.
        """
        if self.until is None or self.retired_by != by:
            return self
        older = None if self.behind == id else self.behind  # (another migration replaced it, too)
        return replace(self, retired_by=older, undone=older is None, unkept=False)


@attrs.frozen
class Versions:
    """Every version of each class that was ever opened, by the name of the class, in that order."""

    by_class: Mapping[str, Sequence[Version]] = attrs.field(factory=dict)

    def of(self, name: str) -> Sequence[Version]:
        """Return the versions of a class."""
        return self.by_class.get(name, ())

    def live(self, name: str, form: str | None = None) -> list[Version]:
        """Return those of a class that may run, all or those of a form."""
        return [version for version in self.of(name) if version.until is None and form in (None, version.form)]

    def each(self, change: Callable[[str, Version], Version]) -> Versions:
        """Return the results of a function of each class and version."""
        return Versions(
            {name: [change(name, version) for version in of_class] for name, of_class in self.by_class.items()}
        )

    def retire(
        self, now_us: int, by: str, is_chosen: Callable[[str, Version], bool], *, unkept: bool = False
    ) -> Versions:
        """Return the versions after some of those that may run are retired."""

        def changed_version(name: str, version: Version) -> Version:
            is_one = version.until is None and is_chosen(name, version)
            return version.retire(now_us, by, unkept=unkept) if is_one else version

        return self.each(changed_version)

    def revive(self, id: str, by: str, but: Collection[str] = ()) -> Versions:
        """Return the versions once the store is back before a migration, or its undoing; ``but``: classes without this."""
        return self.each(lambda name, version: version if name in but else version.revive(id, by))


def with_newest_source(version: Version, model: Model, schema: Schema, versions: Versions) -> Version:
    """Return a version of an aggregate; contracting does not retire it if its source is opened as the newest class."""
    if model.aggregate is None or version.behind is None or version.beside or version.form != model.form_hash:
        return version
    source = schema.by_class[model.aggregate.source]
    newest = any(candidate.behind is None for candidate in versions.live(source.name, source.form_hash))
    return replace(version, behind=None) if newest else version


def newest(model: Model, versions: Versions) -> str:
    """Return in words which version knows a value that a class does not know, and what to do."""
    of_class = versions.of(model.name)
    same_form = [at for at, version in enumerate(of_class) if version.form == model.form_hash]
    last_in_use = max((at for at, version in enumerate(of_class) if version.in_use), default=-1)
    if not same_form or last_in_use <= same_form[-1]:
        return f"another version of {model.name} wrote it; declare it as that one does, or write another value with that one"
    return f"a newer version of {model.name} declares it so, which was first opened on {_date(of_class[last_in_use].since)}; deploy that one"


def retirement(model: Model, versions: Versions, history: History) -> str | None:
    """Return the reason why a program with this class cannot use the store: its form was retired. None if it was
    not."""
    same_form = [version for version in versions.of(model.name) if version.form == model.form_hash]
    is_live = not same_form or None in [version.until for version in same_form]
    return None if is_live else retired(model.name, same_form[-1], history)


def steps_of(migration: str, name: str, history: History) -> str:
    """Return the changes of a migration to a class, or to others, in words; "" if the store has forgotten it."""
    entry = history.last(migration)
    words = [] if entry is None else list(map(str, entry.steps))
    words = [step for step in words if _is_in(name, step)] or words
    return ", and ".join([*words[:_MAX_STEPS], *([f"{len(words) - _MAX_STEPS} more"] if words[_MAX_STEPS:] else [])])


def names_class(migration: str, name: str, history: History) -> bool:
    """Return whether the steps of a migration name a class, or the store does not know its steps any more."""
    entry = history.last(migration)
    return entry is None or any(_is_in(name, str(step)) for step in entry.steps)


def _is_in(name: str, step: str) -> bool:
    return re.search(rf"\b{name}\b", step) is not None


def retired(name: str, version: Version, history: History) -> str:
    """Return the reason why a retired version of a class cannot be used, with the change and the remedy."""
    end_date = _date(version.until or 0)
    if version.undone:
        return "the migration that replaced this form of the class was undone; open the store again"
    if version.retired_by is None:
        return f"the class was declared again on {end_date}, when it held no entities; {_DEPLOY}"
    *undoing, id = version.retired_by.split(" ")
    if version.unkept:
        how = (
            f"a process that opened the store without migrations= wrote what the migration {id} made of the class, which "
            f"ended this form of it on {end_date}"
        )
    else:
        id = _changed_by(name, version.behind or id, id, history)
        how = f"{' '.join([*undoing, id]) if undoing else f'the migration {id}'} replaced this form of the class on {end_date}"
    if steps := steps_of(id, name, history):
        how += f": {'it took back: ' if undoing else ''}{steps}"
    return f"{how}; {_DEPLOY}"


def _changed_by(name: str, first_id: str, last_id: str, history: History) -> str:
    """Return the migration, of several, that changed a class last; the one that ended it, if none names the class.

    A migration ends versions of all classes that share a table with those that it names.

    Args:
        first_id, last_id: the first that a version has not seen, and the one that ended it; an undoing goes back from the first.
    """
    ids = list(dict.fromkeys([entry.id for entry in history]))
    if first_id not in ids or last_id not in ids:
        return last_id
    start, end = ids.index(first_id), ids.index(last_id)
    between = ids[start : end + 1][::-1] if start <= end else ids[end : start + 1]
    return next((id for id in between if names_class(id, name, history)), last_id)


def _date(time: int) -> str:
    return str(Builtin.datetime.fromtimestamp(time / 1e6, UTC).date())
