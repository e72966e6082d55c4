"""Running migration scripts over a store.

- `report`: the plan and the report of a run, or of a rehearsal.
- `run`: running scripts over a store.
"""
