"""The verbs and the transaction.

- `operations`: from the arguments of verbs to operations.
- `windows`: many entities, cut into transactions.
- `columns`: columns as entities.
- `transaction`: operations that are written together.
- `store`: the user's object.
"""
