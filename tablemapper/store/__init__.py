"""The store: the user's object, and what concerns all of it.

- `builds`: builds in short transactions, beside writers.
- `copy`: a store copied into another one, of what differs.
- `administration`: what concerns all of a store, or of a class: further classes, builds, checks, copies, statistics.
- `store`: the user's object.
- `duplicates`: duplicates of unique indexes, resolved by functions.
- `observed_queries`: queries that report their reads and writes.
- `instrumentation`: a store that reports what its calls did.
- `opening`: from the arguments of `tm.open` to a store.
"""
