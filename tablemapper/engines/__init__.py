"""The protocol that every engine keeps, and the engines.

- `sqlite`: entities in one SQLite file.
- `context`: the open transactions of the running thread or task.
- `status`: what a store says of itself.
- `statistics`: what a store holds of a class, in numbers.
- `check`: everything that is maintained, recomputed and compared with what is stored.
- `protocol`: what a store needs of an engine.
- `by_key`: the rows of a class in the order of their keys.
- `counting`: what a class has in numbers, of an engine that does not count it.
- `decide`: what operations do to a store, from the rows that are there.
- `migration`: what a migration needs of an engine.
- `opening`: from a path to an engine.
"""
