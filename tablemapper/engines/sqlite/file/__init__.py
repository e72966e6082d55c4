"""One SQLite file: connections, transactions, locks. It knows no entities.

- `driver_errors`: apsw's errors as those of this library.
- `functions`: SQL functions that call Python.
- `timestamps`: strictly increasing timestamps.
- `writer`: the transaction that is being written.
- `snapshots`: one state, for several reads.
- `connections`: opened connections, hardened.
- `reader_pool`: connections that read.
- `group_commit`: threads that share a commit.
- `ticket_lock`: processes that write in the order of their tickets.
- `transactions`: begin, run, commit, settle.
- `backup`: a copy while others write.
- `restore`: a copy in the place of a store.
- `file`: all of it, as one object.
- `memory`: the same for a store in memory.
- `opening`: a path, as one of both.
"""
