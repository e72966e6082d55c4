"""The protocol that every engine keeps, and the engines.

- `context`: the transactions that the running thread or task is inside of.
- `protocol`: what a store needs of an engine.
- `sqlite`: entities in one SQLite file.
- `opening`: from what a user names to an engine.
"""
