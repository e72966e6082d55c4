"""The verbs: from their arguments to operations, windows and transactions.

- `operations`: from the arguments of verbs to operations.
- `write_windows`: many entities, cut into transactions.
- `column_input`: columns as entities.
- `bulk_verbs`: the verbs that write many entities.
- `transaction`: operations that are written together.
- `lost_races`: transactions that begin again after a lost race.
"""
