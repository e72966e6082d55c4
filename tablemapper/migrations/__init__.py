"""Running migration scripts over a store.

- `report`: the plan and the report of a run, or of a rehearsal.
- `offline_copy`: a script that copies entities over a store that is copied twice for that.
- `runner`: running scripts over a store.
"""
