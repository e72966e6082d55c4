"""The results of a plan: rows, items and totals.

- `prepared`: plans that are ready to run, and the plan cache.
- `plan_reader`: the one place that reads the rows of a plan.
- `column_reader`: results by columns.
- `totals`: counts, sums and extremes, of all results or by group.
- `from_aggregates`: totals that an aggregate answers.
"""
