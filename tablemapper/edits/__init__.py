"""Changes of stored entities, checked before the first one is made.

- `assignments`: the changes that `merge` and `update` make.
- `moved_rows`: rows of entities that move, and whether they are stored already.
"""
