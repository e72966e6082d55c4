"""What the store is: its catalogue, in a table of the account, and the classes as that has them.

- `partitions`: which partitions what is maintained lies in, and what is not possible there.
- `notes`: what is noted under names.
- `published`: the catalogue, and what changes of it.
- `classes`: the classes as it has them, and as a process knows them, which looks again and again.
"""
