"""The same verbs for asyncio.

- `workers`: threads that run blocking calls.
- `query`: queries that are awaited.
- `store`: the store with verbs to await.
"""
