"""One SQLite file: transactions, locks, backup. It knows no entities.

- `writer`: the transaction that is being written.
- `group_commit`: threads that share a commit.
- `ticket_lock`: processes that write in the order of their tickets.
- `transactions`: begin, run, commit, settle.
- `backup`: a copy while others write.
- `restore`: a copy in the place of a store.
- `database`: all of it, as one object.
- `memory`: the same for a store in memory.
- `opening`: a path, as one of both.
"""
