"""SQLAlchemy's ORM, as its documentation says to use it for speed.

Bulk: ``insert()`` of dicts. 50 together: ``add_all``; ``session.get``, change, and the unit of work writes them with one
``executemany``. Reads: ``session.get`` and ``select`` in a session that is kept. The indexes are SQLite's own, the daily
totals an upsert for each day of a transaction. It does less than ours: no ETag, no exact sums, no validation. Times are
naive, which its SQLite dialect stores fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import Any

from sqlalchemy import Engine, Index, create_engine, delete, event, select, tuple_
from sqlalchemy import insert as insert_into
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from .contestant import CACHE, CHECKPOINT, Durability
from .data import CUSTOMER, FIELDS, ORDER_ID, PLACED_AT, TOTAL, Facts


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    __table_args__ = (Index("by_status", "status", "placed_at"), Index("by_sku", "sku"), {"sqlite_with_rowid": False})

    customer: Mapped[str] = mapped_column(primary_key=True)
    placed_at: Mapped[datetime] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(primary_key=True)
    sku: Mapped[str]
    status: Mapped[str]
    quantity: Mapped[int]
    total: Mapped[float]
    note: Mapped[str]


class Daily(Base):
    __tablename__ = "daily"

    day: Mapped[date] = mapped_column(primary_key=True)
    orders: Mapped[int]
    total: Mapped[float]


KEY = (Order.customer, Order.placed_at, Order.order_id)
_added = sqlite_insert(Daily)
ADD = _added.on_conflict_do_update(
    index_elements=[Daily.day],
    set_={"orders": Daily.orders + _added.excluded.orders, "total": Daily.total + _added.excluded.total},
)


def values(orders: Iterable[Facts]) -> list[dict[str, Any]]:
    """Return orders as SQLAlchemy takes them."""
    return [dict(zip(FIELDS, facts, strict=True)) for facts in orders]


def connect(path: str, durability: Durability) -> Engine:
    """Return an engine with the settings that ours has; without transactions, until it is told to begin them."""
    engine = create_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "connect")
    def _(connection: Any, record: object) -> None:
        connection.isolation_level = None
        for setting in (
            "journal_mode = WAL",
            f"synchronous = {'FULL' if durability == 'full' else 'NORMAL'}",
            f"cache_size = -{CACHE}",
            f"wal_autocheckpoint = {CHECKPOINT}",
        ):
            connection.execute(f"PRAGMA {setting}").fetchall()

    return engine


def begin(connection: Any) -> None:
    """Lock as the transaction begins: what is read in it is about to be changed."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


class SqlAlchemy:
    title = "SQLAlchemy ORM"

    def __init__(self, path: str, durability: Durability) -> None:
        self.engine = connect(path, durability)
        Base.metadata.create_all(self.engine)
        event.listen(self.engine, "begin", begin)
        # One session for all reads, outside of transactions: it need not begin and end one for each.
        self.reading = Session(connect(path, durability))

    def _writing(self) -> Session:
        return Session(self.engine, expire_on_commit=False)

    def _add(self, session: Session, orders: Iterable[tuple[datetime, int, float]]) -> None:
        days: dict[date, list[Any]] = {}
        for placed_at, count, total in orders:
            day = days.setdefault(placed_at.date(), [0, 0.0])
            day[0] += count
            day[1] += total
        session.execute(ADD, [{"day": day, "orders": n, "total": total} for day, (n, total) in days.items()])

    def bulk(self, orders: list[Facts]) -> None:
        with self._writing() as session, session.begin():
            session.execute(insert_into(Order), values(orders))
            self._add(session, ((facts[PLACED_AT], 1, facts[TOTAL]) for facts in orders))

    def insert(self, order: Facts) -> None:
        self.insert_batch([order])

    def insert_batch(self, orders: list[Facts]) -> None:
        with self._writing() as session, session.begin():
            session.add_all([Order(**given) for given in values(orders)])
            self._add(session, ((facts[PLACED_AT], 1, facts[TOTAL]) for facts in orders))

    def _update(self, session: Session, orders: Iterable[Any], status: str) -> None:
        days = []
        for order in orders:
            order.status = status
            order.total += 1
            days.append((order.placed_at, 0, 1.0))
        self._add(session, days)

    def update_batch(self, orders: list[Facts], status: str) -> None:
        with self._writing() as session, session.begin():
            self._update(session, (session.get(Order, self._key(facts)) for facts in orders), status)

    def update_together(self, orders: list[Facts], status: str) -> None:
        # Without the first condition, SQLite as Python has it reads the whole table.
        customers, keys = [facts[CUSTOMER] for facts in orders], list(map(self._key, orders))
        query = select(Order).where(Order.customer.in_(customers), tuple_(*KEY).in_(keys))
        with self._writing() as session, session.begin():
            self._update(session, session.scalars(query).all(), status)

    def delete_batch(self, orders: list[Facts]) -> None:
        with self._writing() as session, session.begin():
            days = []
            for facts in orders:
                order = session.get(Order, self._key(facts))
                session.delete(order)
                days.append((order.placed_at, -1, -order.total))
            self._add(session, days)
            session.execute(delete(Daily).where(Daily.orders == 0))

    def _key(self, order: Facts) -> tuple[str, datetime, str]:
        return order[CUSTOMER], order[PLACED_AT].replace(tzinfo=None), order[ORDER_ID]

    def get(self, order: Facts) -> Any:
        return self.reading.get(Order, self._key(order))

    def _list(self, *where: Any, order_by: tuple[Any, ...], limit: int | None = None) -> list[Any]:
        return list(self.reading.scalars(select(Order).where(*where).order_by(*order_by).limit(limit)))

    def partition(self, customer: str) -> list[Any]:
        return self._list(Order.customer == customer, order_by=(Order.placed_at, Order.order_id))

    def by_sku(self, sku: str) -> list[Any]:
        return self._list(Order.sku == sku, order_by=KEY)

    def scan(self, least: float) -> list[Any]:
        return self._list(Order.total > least, order_by=KEY)

    def pages(self, status: str) -> Iterator[list[Any]]:
        steps = (Order.placed_at, Order.customer, Order.order_id)
        where = [Order.status == status]
        while page := self._list(*where, order_by=steps, limit=100):
            yield page
            last = page[-1]
            where = [Order.status == status, tuple_(*steps) > (last.placed_at, last.customer, last.order_id)]

    def day(self, day: date) -> Any:
        return self.reading.get(Daily, day)

    def everything(self) -> Iterable[Any]:
        query = select(Order).order_by(*KEY).execution_options(yield_per=1_000)
        return self.reading.scalars(query)

    def checkpoint(self) -> None:
        self.reading.connection().exec_driver_sql("PRAGMA wal_checkpoint")

    def close(self) -> None:
        self.reading.close()
        self.reading.get_bind().dispose()
        self.engine.dispose()
