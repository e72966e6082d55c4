"""The verbs and the transaction.

- `operations`: from the arguments of verbs to operations.
- `windows`: many entities, cut into transactions.
- `transaction`: operations that are written together.
- `store`: the user's object.
"""
