"""The verbs and the transaction.

- `operations`: from the arguments of verbs to operations.
- `windows`: many entities, cut into transactions.
- `columns`: columns as entities.
- `transaction`: operations that are written together.
- `builds`: builds in short transactions, beside writers.
- `copying`: a store copied into another one, of what differs.
- `care`: what concerns all of a store, or of a class: builds, checks, copies, statistics.
- `store`: the user's object.
- `duplicates`: duplicates of unique indexes, resolved by functions.
- `observation`: a store that reports what its calls did.
- `opening`: from the arguments of `tm.open` to a store.
"""
