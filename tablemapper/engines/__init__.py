"""The protocol that every engine keeps, and the engines.

- `sqlite`: entities in one SQLite file.
- `current_transaction`: the open transactions of the running thread or task.
- `status`: what a store says of itself.
- `statistics`: what a store holds of a class, in numbers.
- `check`: everything that is maintained, recomputed and compared with what is stored.
- `protocol`: what a store needs of an engine.
- `optional_protocols`: what an engine need not have.
- `key_order`: the rows of a class in the order of their keys.
- `counted_statistics`: what a class has in numbers, of an engine that does not count it.
- `ended`: ended entities: their test, and their removal where they are in the way of a write.
- `write_decision`: what operations do to a store, from the rows that are there.
- `migration_protocol`: what a migration needs of an engine.
- `locations`: from a path to an engine.
"""
