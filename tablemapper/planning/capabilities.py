"""Engine capabilities: planning and the verbs refuse the rest before anything is written."""

from __future__ import annotations

import attrs

from ..errors import InvalidTransaction


@attrs.frozen(kw_only=True)
class Capabilities:
    """The capabilities of an engine."""

    engine: str
    """Its name, for messages and ``explain()``."""
    backward: bool = True
    """Whether it reads a range from its last row to its first."""
    sorts: str
    """Where it sorts what no path orders, for ``explain()``; empty if it does not."""
    across_partitions: bool = True
    """Whether one transaction can be of several tables and partitions."""
    all_or_none_load: bool = True
    """Whether a stream of entities can be loaded whole or not at all."""
    join_costs: bool = False
    """Whether to read the entity of a row of an index costs much more than to read another row."""
    quick_reads: bool = True
    """Whether an entity is read in less time than another thread is woken in."""

    def check_across(self, call: str, mend: str = "") -> None:
        """Refuse a transaction over partitions, if there is none.

        Args:
            mend: what to do instead.

        Raises:
            InvalidTransaction
        """
        if not self.across_partitions:
            mend = mend or "write the partitions one after the other, the one that others depend on last"
            raise InvalidTransaction(
                f"{call} is not possible on {self.engine}, where a transaction is of one table and partition; {mend}"
            )
