"""Rows of entities, indexes and groups: read, written, built, compared.

- `contested`: unique indexes that are not unique yet.
- `clearing`: all rows of a class, removed.
- `jobs`: builds and copies that are under way, and what each write owes to builds.
- `maintained`: the rows of indexes and of groups.
- `building`: the batches of a build.
- `group_build`: groups of aggregates that are built ahead of the entities.
- `twins`: the tables of classes before a migration, in step with those after it.
- `followers`: what follows from a write, in one list.
- `writes`: operations, on the rows of entities.
- `current`: what a store knows of its file, as one object.
- `load`: many entities, sorted outside of the tables.
- `check`: the tables as a check reads them.
- `reads`: the rows of plans.
- `statistics`: the tables of a class, counted.
- `partitions`: the rows of every class in a partition.
"""
