"""The verbs and the transaction.

- `operations`: the verbs that a store and a transaction share.
- `windows`: many entities, cut into transactions.
- `store`: the user's object.
"""
