"""The protocol that every engine keeps, and the engines.

- `protocol`: what a store needs of an engine.
- `sqlite`: entities in one SQLite file.
"""
