"""What a class body declares: fields, key, indexes and aggregates, as frozen data.

- `fields`: `Field` and what is said of one.
- `index`: keys and indexes.
- `declaration`: a class body, read and checked.
- `entity`: `Record`, `Entity` and the class they are made of.
- `aggregates`: the class of aggregates, and what may be declared so.
"""
