"""Cost of a query on Azure Tables: prices, and the cost of one run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from ..errors import InvalidQuery, safe_repr
from .plan import Plan

_PAGE = 1_000  # entities that a request returns at most
_GB = 2**30


def _price(_: Any, attribute: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidQuery(f"Prices: {attribute.name}={safe_repr(value)}: expected a number, 0 or more")


@attrs.frozen(kw_only=True)
class Prices:
    """Prices of Azure Tables: the defaults are of standard accounts with locally redundant storage.

    They differ by region and redundancy, and change: compare them with the page that ``source`` names.

    Raises:
        InvalidQuery: a price is no number, or below 0.
    """

    storage: float = attrs.field(default=0.045, validator=_price)
    """For a GB (2**30 bytes) a month."""
    read: float = attrs.field(default=0.00036, validator=_price)
    """For 10,000 requests that read."""
    write: float = attrs.field(default=0.00036, validator=_price)
    """For 10,000 requests that write."""
    currency: str = "USD"
    as_of: str = "2026-11"
    source: str = "https://azure.microsoft.com/pricing/details/storage/tables/ (not confirmed for a region)"

    def of_storage(self, size: int) -> float:
        """Return the price of so many bytes a month."""
        return size / _GB * self.storage


@attrs.frozen
class ReadEstimate:
    """The rows that a plan reads, counted."""

    rows: tuple[int, ...]
    """Rows between the bounds, of each range."""
    joined: int
    """How many of an index's rows have their entities read."""
    row_bytes: float
    """The mean size of the first rows between the bounds."""
    entity_bytes: float
    """The mean size of their entities, where these are read, too."""
    whole: bool
    """Whether all was counted."""


@attrs.frozen
class Cost:
    """The cost of one run of a query on Azure Tables, where all its results are read."""

    requests: int
    """Round trips: a page of 1,000 rows is one, and so is an entity that is read after its index row."""
    entities: int | None
    """Index rows and entities that travel; None where they are not counted."""
    bytes: int | None
    """Their size, estimated by the first 100; None where they are not counted."""
    at_least: bool
    """Whether it can be more: counting stops at 10,000 rows, and in an account it would cost as much as reading."""

    def price(self, prices: Prices | None = None) -> float:
        """Return the price of one run."""
        return self.requests * (prices or Prices()).read / 10_000

    def __str__(self) -> str:
        prices = Prices()
        least = "at least " if self.at_least else ""
        requests = f"{self.requests:,} request{'' if self.requests == 1 else 's'}"
        if self.entities is None or self.bytes is None:
            return f"on Azure: {least}{requests}; its rows are not counted, as that would cost as much as to read them"
        entities = f"{self.entities:,} entit{'y' if self.entities == 1 else 'ies'}"
        million = f"{1_000_000 * self.price(prices):,.2f} {prices.currency} a million runs"
        return f"on Azure: {least}{requests}, {entities}, {bytes_text(self.bytes)}; {million}"

    def to_dict(self) -> dict[str, Any]:
        """Return the same as builtin types that JSON can represent."""
        return attrs.asdict(self)


def cost_of(plan: Plan, footprint: ReadEstimate | None, ranges: int, limit: int | None) -> Cost:
    """Return the cost of one run of a plan.

    Args:
        footprint: what it reads; None if that is not known.
    """
    stops = limit is not None and not plan.sorted and not plan.merged  # (the first range may have as many)
    if footprint is None:
        return Cost(min(ranges, 1) if stops else ranges, None, None, at_least=True)
    rows: Sequence[int] = footprint.rows
    joined_rows = footprint.joined
    if limit is not None and not plan.filter and not plan.sorted:
        rows, joined_rows = _first(rows, limit, merged=bool(plan.merged)), min(joined_rows, limit)
    requests = sum(max(1, math.ceil(count / _PAGE)) for count in rows) + joined_rows
    size = sum(rows) * footprint.row_bytes + joined_rows * footprint.entity_bytes
    return Cost(requests, sum(rows) + joined_rows, round(size), at_least=not footprint.whole)


def _first(rows: Sequence[int], limit: int, *, merged: bool) -> list[int]:
    """Return the number of rows read of each range until there are enough; later ranges are left out."""
    if merged:  # (all of them begin at once)
        return [min(count, limit) for count in rows]
    rows_read: list[int] = []
    for count in rows:
        rows_read.append(min(count, limit))
        limit -= rows_read[-1]
        if limit <= 0:
            break
    return rows_read


def money_text(price: float) -> str:
    """Return a price to read: ``0.013``, ``under 0.001``."""
    return "under 0.001" if 0 < price < 0.001 else f"{price:,.3f}"


def bytes_text(size: float) -> str:
    """Return a number of bytes to read: ``231 bytes``, ``7.9 kB``, ``1.2 GB``."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size:,.0f} bytes"
