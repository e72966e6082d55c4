"""The catalogue as data, and its transitions: pure functions from one catalogue to the next.

A transition takes a draft, to which it adds actions, the catalogue as it is, and more; it returns the catalogue after it.

- `tables`: entity tables: which column holds which property.
- `transitions`: migrations as data.
- `catalogue`: what a store holds and maintains.
- `property_names`: the catalogue as an older version sees it, after renames and beside twins.
- `zone_rules`: the rules of time zones that indexes and aggregates are maintained by.
- `actions`: what a transition asks of the store, and what it must know of it.
- `fences`: other names of the tables of versions that end.
- `dropping`: indexes, aggregates and classes dropped, disabled, or ready.
- `freeze`: a store that is only read while it moves.
- `cutover`: new classes in place of old ones, which become their twin, or end.
- `layout`: the tables while classes change.
- `registration`: what opened classes add, and the jobs that build it.
- `migration_states`: migrations that begin, are given up, copy nothing, or are contracted.
- `invariants`: what holds of every catalogue.
"""
