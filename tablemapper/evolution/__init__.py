"""How the classes of a store may change: definitions that were, rules, what an older process makes of them, scripts.

- `members`: which nested type may follow which.
- `definitions`: which definition of a class stands in the catalogue, now and before.
- `renames`: forms of classes under other names.
- `sources`: forms as Python source.
- `changes`: one difference, and what a rule may ask of a store.
- `scripts`: migration scripts as text.
- `versions`: the versions of a class that were opened.
- `rules`: which schema may follow which.
- `following`: maintenance compiled from forms, for a process that is behind.
- `translation`: from the rows of one class to those of another that holds the same entities.
"""
