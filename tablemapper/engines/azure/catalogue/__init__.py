"""What the store is: its catalogue, in a table of the account, and the classes as that has them.

- `placement`: which partitions what is maintained lies in, and what is not possible there.
- `notes`: what is noted under names.
- `contents`: what the store holds, as far as the rules of evolution ask.
- `publication`: the catalogue, and what changes of it.
- `claims`: which catalogue a table belongs to.
- `adoption`: tables that hold rows already, as a store takes them over.
- `opening`: what a catalogue and an account get from the classes that are opened.
- `open_classes`: the classes as it has them, and as a process knows them, which looks again and again.
"""
