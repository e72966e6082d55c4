"""SQLite through apsw, as this library uses it: connections, their errors, their states.

- `driver_errors`: apsw's errors as those of this library.
- `functions`: SQL functions that call Python.
- `timestamps`: strictly increasing timestamps.
- `snapshots`: one state, for several reads.
- `connections`: opened connections, hardened.
- `reader_pool`: connections that read.
"""
