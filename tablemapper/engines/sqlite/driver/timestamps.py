"""The timestamps of a file, strictly increasing, over processes, restarts and clocks that are set back.

One row of the file says up to where timestamps have been given out, and to which store object. As long as nothing but
that object wrote, the row need not be read; SQLite's data version says so for 30 ns. As long as the timestamp is within
what the row allows, it need not be written either. The allowance starts at nothing, and doubles up to one second while
the object is the only writer. So writers that take turns never push time further ahead than they used.

The row says until twice: ``fences`` is sixteen times that, plus the fences since. A power cut tears a page at any byte,
and then the two do not fit together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw

from ....errors import CorruptStore

STATE = "tablemapper_state"
CREATE_STATE = (
    f"CREATE TABLE {STATE} (one INTEGER PRIMARY KEY, generation INTEGER NOT NULL, until INTEGER NOT NULL, "
    "owner INTEGER NOT NULL, fences INTEGER NOT NULL, store TEXT NOT NULL) STRICT"
)
INSERT_STATE = f"INSERT INTO {STATE} (one, generation, until, owner, fences, store) VALUES (1, 0, 0, 0, 0, ?)"
FENCE = f"UPDATE {STATE} SET fences = fences + 1 WHERE one = 1"
READ_IDENTITY = f"SELECT store, until FROM {STATE} WHERE typeof(fences) = 'integer' AND fences / 16 = until"
"""Nothing, if the two do not fit together: then the log has the whole row."""
SET_PROGRESS = f"UPDATE {STATE} SET generation = ?1, until = ?2, fences = 16 * ?2 WHERE one = 1"
_READ_STATE = f"SELECT generation, until, owner FROM {STATE} WHERE one = 1"
_EXTEND = f"UPDATE {STATE} SET until = ?1, owner = ?2, fences = 16 * ?1 WHERE one = 1"
_HAND_BACK = f"UPDATE {STATE} SET until = ?1, owner = 0, fences = 16 * ?1 WHERE one = 1 AND owner = ?2 AND until > ?1"
_BUMP = f"UPDATE {STATE} SET generation = generation + 1 WHERE one = 1"
_PROOF = f"SELECT 1 FROM {STATE} WHERE until = ? AND owner = ?"

_END_OF_TIME = 253_402_300_800_000_000  # year 10000 in µs: no datetime beyond
_FIRST, _LONGEST = 1_000, 1_000_000  # µs
_UNKNOWN = -1


class Timestamps:
    """Give each write transaction its timestamp, and the generation of the catalogue that it runs under.

    Args:
        clock: the time in µs since 1970.
        owner: a random number other than 0 that no other store object has.
    """

    __slots__ = (
        "_clock",
        "_extensions",
        "_highest",
        "_owner",
        "_path",
        "_seen",
        "_until",
        "_wrote",
        "generation",
        "others_wrote",
        "previous",
    )

    def __init__(self, clock: Callable[[], int], owner: int, path: str) -> None:
        self._clock = clock
        self._owner = owner
        self._path = path
        self._highest = 0  # highest that was given out here, or that the file forbids
        self._until = 0  # what the file allows us
        self._extensions = 0  # how often the allowance was extended since someone else wrote
        self._seen = _UNKNOWN  # the data version after our last commit
        self._wrote = False
        self.generation: int = 0
        self.previous: int = (
            0  # to the first of the transaction: what was written since has a later one, whoever wrote it
        )
        self.others_wrote: bool = False  # another object that is still open did, since our last commit

    def begin(self, connection: apsw.Connection) -> int:
        """Return the timestamp of the transaction that was just begun on ``connection``."""
        seen = self._seen
        self._seen = _UNKNOWN  # a transaction that fails leaves nothing to trust
        self.others_wrote = False
        if connection.data_version() != seen:
            self._reload(connection)
        self._wrote = False
        self.previous = self._highest
        return self.next(connection)

    def next(self, connection: apsw.Connection) -> int:
        """Return the timestamp of a further write in the transaction."""
        clock_time = self._clock()
        timestamp = self._highest + 1
        if clock_time > timestamp:
            timestamp = clock_time
        self._highest = timestamp
        if timestamp > self._until:
            self._extend(connection, timestamp, clock_time)
        return timestamp

    def committed(self, connection: apsw.Connection) -> None:
        """Note that the transaction is in the file, so that the next one need not look."""
        self._seen = connection.data_version()

    def forget(self) -> None:
        """Read the row again in the next transaction."""
        self._seen = _UNKNOWN

    @property
    def proof(self) -> tuple[str, tuple[int, int]] | None:
        """A query that finds a row only if the last transaction was committed; None if it left the row as it was."""
        return (_PROOF, (self._until, self._owner)) if self._wrote else None

    def bump(self, connection: apsw.Connection) -> int:
        """Say in the catalogue that the schema changed, within the transaction that changes it."""
        connection.execute(_BUMP)
        self.generation += 1
        return self.generation

    def hand_back(self, connection: apsw.Connection) -> None:
        """Take back what the file allows and nobody used; a store that is closed leaves its file as if it had none."""
        if self._until > self._highest:
            with connection:
                connection.execute(_HAND_BACK, (self._highest, self._owner))

    def _reload(self, connection: apsw.Connection) -> None:
        generation, until, owner = read_state(connection, self._path)
        self.generation = generation
        if owner != self._owner:
            self.others_wrote = owner != 0
            self._extensions = 0
            self._highest = max(self._highest, until)
        self._until = until

    def _extend(self, connection: apsw.Connection, timestamp: int, clock_time: int) -> None:
        reach = timestamp
        if extensions := self._extensions:
            # By the clock; while that is behind the timestamps that were given out, by as many as were used.
            reach = max(
                clock_time + min(_FIRST << min(extensions - 1, 10), _LONGEST),
                timestamp + min(1 << min(extensions - 1, 10), _FIRST),
            )
        connection.execute(_EXTEND, (reach, self._owner))
        self._until = reach
        self._extensions = extensions + 1
        self._wrote = True


def read_state(connection: apsw.Connection, path: str) -> tuple[int, int, int]:
    """Return the generation of a file, up to where timestamps were given out, and to whom.

    Raises:
        CorruptStore: the row is missing, or is none that was ever written.
    """
    row = connection.execute(_READ_STATE).fetchone()
    if row is None:
        raise CorruptStore(f'"{path}": the row of {STATE} is missing; restore a backup')
    generation, until, owner = row
    ints = type(generation) is type(owner) is type(until) is int
    if not ints or not 0 <= until < _END_OF_TIME or not 0 <= generation < _END_OF_TIME:  # (changes are fewer than µs)
        raise CorruptStore(
            f'"{path}": {STATE} holds what was never written there (generation {generation!r}, '
            f"until {until!r}, owner {owner!r}); restore a backup"
        )
    return generation, until, owner


def may_follow(current: tuple[Any, ...], previous: tuple[Any, ...]) -> bool:
    """Tell whether a file may say `READ_IDENTITY` of itself after it said something else.

    Time goes back by no more than was reserved, when a store that is closed gives that up.
    """
    store, until = current
    return bool(store == previous[0] and until >= previous[1] - _LONGEST)
