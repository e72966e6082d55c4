"""The same verbs for asyncio.

- `cancellation`: how a task ends a long call.
- `cursor`: what an ``async for`` over a query holds.
- `workers`: threads that make blocking calls.
- `awaited`: a verb of a synchronous object as one that is awaited.
- `query`: queries that are awaited.
- `transaction`: a transaction for one task.
- `store`: the store with verbs to await, and the copy of one into another.
- `opening`: `tablemapper.open_async`.
"""
