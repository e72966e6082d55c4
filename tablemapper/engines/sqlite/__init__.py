"""Entities in one SQLite file.

- `file`: that file; it knows no entities.
- `tables`: the tables and their columns.
- `maintained_tables`: the tables of indexes, and of live values.
- `statements`: the SQL of a schema over them.
- `maintained`: the rows of indexes and of groups.
- `writes`: operations, on the rows of entities.
- `load`: many entities, sorted outside of the tables.
- `catalogue`: the schema that the file keeps.
- `zone_rules`: the rules of time zones by which it is maintained.
- `check`: the tables as a check reads them.
- `repair`: what is maintained, made right again.
- `filters`: predicates as SQL.
- `select`: a plan as SELECTs.
- `reads`: the rows of plans.
- `engine`: all of it, as one object.
"""
