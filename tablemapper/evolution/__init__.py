"""Schema evolution: former definitions, rules, compatibility of older processes.

- `nested_types`: how a nested type may change.
- `definitions`: the definitions of a catalogue by name: declared, former, and those that keep maintained fields.
- `renames`: the form of a class after a rename.
- `literals`: Python source of values and names.
- `changes`: one difference, and what a rule may ask of a store.
- `history`: the migrations that a store has begun.
- `versions`: the versions of a class that programs opened.
- `rules`: the rule of each difference.
- `evolution`: what opening a store with a schema makes of its catalogue.
- `spec_compiler`: classes that are compiled from their forms in a catalogue.
- `newer_versions`: how an older version maintains what a newer one added.
- `translation`: the rows of one version of a class, translated to another.
"""
