"""Queries as users hold them: builders, pages, columns, writing by query.

- `timestamp`: the time of the last write, as an operand.
- `partitions`: what fixes one partition.
- `pages`: pages and their tokens.
- `results`: the methods that every query has.
- `batches`: batches of Arrow.
- `columns`: columns instead of rows: lists, Arrow, Polars, pandas.
- `writing`: update and delete by query.
- `division`: parts and partitions of a query.
- `texts`: conditions, orders and keys as a person types them.
- `query`: the query of one class.
- `tolerant`: queries that go on where an entity cannot be read.
- `mixed`: the query of several classes.
- `observation`: queries that report their reads and writes.
"""
