"""Entities in one SQLite file.

- `driver`: SQLite through apsw, as this library uses it: connections, their errors, their states.
- `file`: one file: transactions, locks, backup; it knows no entities.
- `sql`: tables and statements: what SQLite is told.
- `rows`: rows of entities, indexes and groups: read, written, built, compared.
- `online`: changes of a store in batches, beside writers.
- `engine`: all of it, as one object.
"""
