"""By hand with less effort: statement by statement, and with sums that round."""

from __future__ import annotations

from .by_hand import DELETE_ORDER, DELETE_SKU, DELETE_STATUS, INSERT_STATUS, UPDATE_ORDER, ByHand, Days
from .data import Facts


class RowByRow(ByHand):
    """All statements of one order, then those of the next, as a loop over orders is written first."""

    title = "by hand, row by row"

    def _insert_many(self, orders: list[Facts], version: int, days: Days) -> None:
        for order in orders:
            self._insert(order, version, days)

    def update_batch(self, orders: list[Facts], status: str) -> None:
        run = self.db.execute
        with self.db:
            version, days = self.next_version(), Days()
            for order in orders:
                pk, rk, old = self._old(order)
                total = old.total + 1
                run(UPDATE_ORDER, (version, status, total, pk, rk, old.version))
                self._changed()
                run(DELETE_STATUS, (old.status, rk[:27], pk, rk))
                run(INSERT_STATUS, (status, rk[:27], pk, rk, total))
                self._count(days, rk[:10], 0, total, -old.total)
            self._add(days, version)

    update_together = update_batch

    def delete_batch(self, orders: list[Facts]) -> None:
        run = self.db.execute
        with self.db:
            version, days = self.next_version(), Days()
            for order in orders:
                pk, rk, old = self._old(order)
                run(DELETE_ORDER, (pk, rk, old.version))
                self._changed()
                run(DELETE_STATUS, (old.status, rk[:27], pk, rk))
                run(DELETE_SKU, (old.sku, pk, rk))
                self._count(days, rk[:10], -1, -old.total)
            self._add(days, version)

    def _changed(self) -> None:
        if self.db.changes() != 1:
            raise RuntimeError("an order was changed since it was read")


class Rounded(ByHand):
    """Sums as most people write them: in SQL, order by order, with an error that stays for ever."""

    title = "by hand, rounded sums"

    def _count(self, days: Days, day: str, orders: int, *totals: float) -> None:
        days[day] = []
        self.db.execute(
            "INSERT INTO daily VALUES('all', ?, NULL, ?, ?, NULL) "
            "ON CONFLICT DO UPDATE SET orders = orders + excluded.orders, total = total + excluded.total",
            (day, orders, sum(totals)),
        )

    def _add(self, days: Days, version: int) -> None:
        for day in days:
            self.db.execute("DELETE FROM daily WHERE pk = 'all' AND rk = ? AND orders = 0", (day,))
