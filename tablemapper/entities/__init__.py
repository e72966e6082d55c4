"""The declarations of class bodies: fields, key, indexes and aggregates, as frozen data.

- `fields`: `Field` and its options.
- `key`: keys as they are declared, and what calling one gives.
- `index`: indexes as they are declared, and what calling one gives.
- `key_and_indexes`: the key and the indexes of a class, compiled.
- `declaration`: a class, compiled.
- `expiry`: the time at which entities end, and the index that finds those.
- `class_body`: a class body, read.
- `etag`: ETags as text.
- `constructor`: the source of constructors and setters.
- `measures`: what may be declared as an aggregate.
- `variants`: the same class in tables of its own.
- `entity`: `Record`, `Entity` and the class they are made of.
- `timestamp_attribute`: the time of the last write, as an operand.
- `aggregates`: the class of aggregates, and those that keep maintained fields.
"""
