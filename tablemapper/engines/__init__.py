"""The protocol that every engine keeps, and the engines.

- `sqlite`: entities in one SQLite file.
- `context`: the transactions that the running thread or task is inside of.
- `status`: what a store says of itself.
- `protocol`: what a store needs of an engine.
- `migration`: what a migration needs of an engine.
- `opening`: from what a user names to an engine.
"""
