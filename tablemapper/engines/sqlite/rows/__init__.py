"""Rows of entities, indexes and groups: read, written, built, compared.

- `duplicate_values`: unique indexes that are not unique yet.
- `truncate`: all rows of a class, removed.
- `jobs`: builds and copies that are under way, and what each write owes to builds.
- `maintenance_writer`: the rows of indexes and of groups.
- `build_steps`: the batches of a build.
- `mirrors`: the tables of classes before a migration, in step with those after it.
- `write_hooks`: what follows from a write, in one list.
- `writes`: operations, on the rows of entities.
- `catalogue_cache`: what a store knows of its file, as one object.
- `atomic_load`: many entities, sorted outside of the tables.
- `check`: the tables as a check reads them.
- `reads`: the rows of plans.
- `statistics`: the tables of a class, counted.
- `partition_reader`: the rows of every class in a partition.
"""
