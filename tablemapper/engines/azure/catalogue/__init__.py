"""The catalogue of a store, in a table of the account, and the classes as it has them.

- `placement`: the partitions of index rows and groups, and what is not possible there.
- `notes`: notes under names.
- `contents`: the contents of an account, as far as the rules of evolution ask.
- `publication`: the catalogue, and what changes of it.
- `claims`: the catalogue that a table belongs to.
- `adoption`: tables that hold rows already, as a store takes them over.
- `opening`: what a catalogue and an account get from the classes that are opened.
- `open_classes`: the classes as it has them, and as a process knows them, which looks again and again.
"""
