"""What users hold: queries, pages, totals, writing by query.

- `prepared`: plans that are ready to run, kept by the form of the query.
- `run`: the one place that reads the rows of a plan.
- `pages`: pages and their tokens.
- `totals`: counts, sums and extremes, of all results or by group.
- `from_aggregates`: totals read from an aggregate.
- `results`: what every query gives.
- `columns`: columns instead of rows: lists, Arrow, Polars, pandas.
- `writing`: update and delete by query.
- `query`: the query of one class.
- `mixed`: the query of several classes.
- `observation`: queries that report what they did.
"""
