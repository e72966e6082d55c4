"""Queries as users hold them: builders, pages, columns, writing by query.

- `partitions`: what fixes one partition.
- `pages`: pages and their tokens.
- `results`: the methods that every query has.
- `arrow_batches`: batches of Arrow.
- `column_results`: columns instead of rows: lists, Arrow, Polars, pandas.
- `checkpoint`: notes of writes by query that can be resumed.
- `writing`: update and delete by query.
- `division`: parts and partitions of a query.
- `class_results`: the results of a query over one class.
- `pairs`: entities with those that their fields name.
- `moves`: moves by query to other classes and keys.
- `query`: the query of one class.
- `salvage`: queries that go on where an entity cannot be read.
- `mixed`: the query of several classes.
"""
