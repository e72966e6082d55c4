"""Running migration scripts over a store.

- `report`: the plan and the report of a run, or of a rehearsal.
- `replacing`: a script that copies entities over a store that is copied twice for that.
- `run`: running scripts over a store.
"""
