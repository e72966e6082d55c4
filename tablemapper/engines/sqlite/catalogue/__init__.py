"""What a store's catalogue becomes: functions from one catalogue to the next, which write nothing.

- `actions`: what a transition asks of the store, and what it must know of it.
- `fences`: other names of the tables of versions that end.
- `dropping`: indexes, aggregates and classes dropped, disabled, or ready.
- `switching`: new classes in place of old ones, which become their twin, or end.
- `layout`: the tables while classes change.
- `opening`: what opened classes add, and the jobs that build it.
- `migrating`: migrations that begin, are given up, copy nothing, or are contracted.
- `possible`: what holds of every catalogue.
"""
