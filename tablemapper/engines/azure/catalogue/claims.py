"""Claims on tables of the account: a row of a table names its catalogue, and the insert of that row decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from ....entities.etag import Stamp
from ....errors import CorruptStore, NotAStore, StoreLocked
from ....limits import check_table_name
from ..tables import service
from ..tables.driver import Effects, Within, clock, pause, read, side_by_side, time_of
from ..tables.reserved_names import CLAIM
from ..tables.service import ETAG, PARTITION, Entity
from .publication import every_table, if_there, read_catalogue

_FRESH = 600.0  # seconds for which a catalogue that claims a table may be about to be published
_BRIEF = 5.0  # seconds for which a list of tables is waited for
_SAMPLE = 20  # rows of a table, by which it is judged
_ABOVE_ALL = "{"  # (above all letters and digits)


@attrs.frozen
class TableNames:
    """The tables of an account whose names are in a range, in lower case: case does not tell names apart."""

    first: str
    end: str
    names: frozenset[str]

    def has(self, name: str) -> bool | None:
        """Return whether there is a table; None if it is not known."""
        in_range = self.first <= name.upper() and name.lower() < self.end
        return name.lower() in self.names if in_range else None


NO_NAMES = TableNames(_ABOVE_ALL, "", frozenset())
"""Nothing is known of any table."""


def listed(names: Iterable[str]) -> Effects[TableNames]:
    """Return which tables there are between some names and those that begin with them.

    Nothing is known if that may not be asked, or is not answered: whoever opens a store waits for its catalogue alone.
    """
    names = list(names)
    if not names:
        return NO_NAMES
    first, end = min([name.upper() for name in names]), max([name.lower() for name in names]) + _ABOVE_ALL
    tables, continuation = set[str](), None
    while True:
        try:
            page: service.EntityPage = yield Within(service.ListTables(first, end, continuation), _BRIEF)
        except (service.ErrorResponse, service.NoResponse):
            return NO_NAMES
        tables |= {row["TableName"].lower() for row in page.entities}
        if (continuation := page.after) is None:
            return TableNames(first, end, frozenset(tables))


@attrs.frozen
class TableView:
    """The contents of a table that the catalogue does not know."""

    name: str
    """In the account."""
    claim: Entity | None
    rows: Sequence[Entity]
    """Some of the others."""
    date: str
    """When that was, by the clock of the service."""


def looked_at(name: str, timeout: float) -> Effects[TableView | None]:
    """Return what is in a table; None if there is none."""
    works: list[Effects[Entity | service.EntityPage | None]] = [
        if_there(read(service.GetEntity(name, CLAIM, CLAIM), timeout)),
        if_there(read(service.QueryEntities(name, top=_SAMPLE), timeout)),
    ]
    claim, page = yield from side_by_side(works)
    if not isinstance(page, service.EntityPage):
        return None
    rows = [row for row in page.entities if row[PARTITION] != CLAIM]
    return TableView(name, claim if isinstance(claim, dict) else None, rows, page.date)


def made(name: str, timeout: float) -> Effects[bool]:
    """Create a table; return whether there was none.

    Raises:
        StoreLocked: it is being deleted.
    """
    until, attempt = (yield from clock()) + timeout, 0
    while True:
        try:
            is_new: bool = yield from read(service.CreateTable(name), timeout)
            return is_new
        except service.ErrorResponse as refusal:
            if refusal.code != "TableBeingDeleted":
                raise
        if (step := pause(until - (yield from clock()), attempt)) is None:
            raise StoreLocked(f"the table {name} is being deleted, which takes the service up to a minute; try again")
        yield step
        attempt += 1


def claimed(name: str, catalogue: str, timeout: float, instead: Entity | None = None) -> Effects[None]:
    """Note in a table which catalogue it belongs to.

    Args:
        name: of the table, in the account.
        catalogue: its table.
        timeout: seconds after which to give up, if no answer comes.
        instead: the claim that this replaces; None: there is none.

    Raises:
        NotAStore: another catalogue was faster.
    """
    etag = None if instead is None else instead[ETAG]
    change = service.RowChange("insert" if etag is None else "replace", CLAIM, {"catalogue": catalogue}, etag)
    try:
        yield from read(service.GroupTransaction(name, CLAIM, (change,)), timeout)
    except service.ErrorResponse as refusal:
        if refusal.status not in (409, 412) or refusal.code == "TableBeingDeleted":
            raise
        claim: Entity | None = yield from read(service.GetEntity(name, CLAIM, CLAIM), timeout)
        if claim is None or not _is_of(claim, catalogue):
            raise _claim_error(name, "another" if claim is None else _owner(claim), catalogue) from None


def replaceable(view: TableView, catalogue: str, timeout: float, *, adopt: bool) -> Effects[Entity | None]:
    """Return the claim of another catalogue that a table does not belong to any more; None if it has none.

    Args:
        view: of the table.
        catalogue: that the table is to belong to.
        timeout: seconds after which to give up, if no answer comes.
        adopt: whether the table may be taken over.

    Raises:
        NotAStore: it belongs to another catalogue, or may do so.
    """
    claim = view.claim
    if claim is None or _is_of(claim, catalogue):
        return None
    if (yield from _knows(_owner(claim), view.name, timeout)):
        raise _claim_error(view.name, _owner(claim), catalogue)
    if not adopt:
        raise _claim_error(
            view.name, _owner(claim), catalogue, ", which does not know it any more: adopt= takes it over"
        )
    server_now = time_of(view.date)
    age = 0.0 if server_now is None else (server_now - int(Stamp(claim[ETAG]))) / 1e6
    if age <= _FRESH:
        why = f", which does not know it yet: adopt= takes it over in {_FRESH - max(age, 0):.0f} s"
        raise _claim_error(view.name, _owner(claim), catalogue, why)
    return claim


def _knows(catalogue: str, name: str, timeout: float) -> Effects[bool]:
    """Return whether a catalogue has a table."""
    if check_table_name(catalogue) is not None:
        return False
    try:
        catalogue_read = yield from read_catalogue(catalogue, timeout)
    except (CorruptStore, NotAStore):  # (it is there)
        return True
    return catalogue_read is not None and name.lower() in map(str.lower, every_table(catalogue_read.value))


def _owner(claim: Entity) -> str:
    return str(claim.get("catalogue"))


def _is_of(claim: Entity, catalogue: str) -> bool:
    return _owner(claim).lower() == catalogue.lower()


def _claim_error(name: str, owner: str, catalogue: str, why: str = "") -> NotAStore:
    return NotAStore(
        f"the table {name} belongs to the catalogue {owner} of this account{why}, and this store has the catalogue "
        f"{catalogue}; choose another table=, or a prefix="
    )
