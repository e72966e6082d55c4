"""What users hold: queries, pages, totals, writing by query.

- `prepared`: plans, kept by the form of the question.
- `pages`: pages and their tokens.
- `totals`, `groups`: totals computed from entities.
- `from_aggregates`: totals read from an aggregate.
- `results`: what every query gives.
- `query`: the query of one class.
- `mixed`: the query of several classes.
- `writing`: update and delete by query.
"""
