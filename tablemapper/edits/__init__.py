"""Changes of stored entities, checked before the first one is made.

- `assignments`: the changes that `merge` and `update` make.
"""
