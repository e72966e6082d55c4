"""From a plan to what it finds: rows, items and totals.

- `prepared`: plans that are ready to run, kept by the form of the query.
- `run`: the one place that reads the rows of a plan.
- `columns`: what it finds by columns.
- `totals`: counts, sums and extremes, of all results or by group.
- `from_aggregates`: totals read from an aggregate.
"""
