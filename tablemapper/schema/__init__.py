"""The classes of a store compiled together: rows, maintenance, groups, evolution, check.

- `forms`: what a catalogue keeps of each class.
- `sums`: exact sums.
- `groups`: what is kept for each group of an aggregate, and how a change of entities changes it.
- `rows`: the rows of a class, and the functions between rows and objects.
- `model`: a declaration with its rows and its aggregate; all models of a store, compiled together.
- `maintenance`: what a change of entities does to index rows and groups.
- `members`: which nested type may follow which.
- `renames`: forms of classes under other names.
- `sources`: forms as Python source.
- `changes`: one difference, and what a rule may ask of a store.
- `scripts`: migration scripts as text.
- `evolution`: which schema may follow which.
- `assignments`: the changes that `merge` and `update` make.
- `check`: everything that is maintained, recomputed and compared with what is stored.
"""
