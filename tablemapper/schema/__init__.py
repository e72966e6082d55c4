"""The classes of a store compiled together: rows, maintenance, groups.

- `labels`: what a catalogue calls an index, an aggregate or a class.
- `specs`: what a catalogue keeps of each class.
- `rows`: the rows of a class, and the functions between rows and objects.
- `slots`: what the measures of an aggregate are answered from.
- `aggregate_model`: what is kept for each group of an aggregate, and how a change of entities changes it.
- `model`: a declaration with its rows and its aggregate; all models of a store, compiled together.
- `group_rows`: the generated function that changes a group.
- `row_source`: source that takes out of rows what is maintained from them.
- `maintenance`: what a change of entities does to index rows and groups.
"""
