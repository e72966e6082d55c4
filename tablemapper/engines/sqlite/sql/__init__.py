"""Tables, the catalogue, and the statements for SQLite.

- `tables`: the tables and their columns.
- `catalogue`: the schema that the file keeps.
- `names`: the names of tables and columns, after renames.
- `maintained_tables`: the tables of indexes and groups.
- `zone_rules`: what the time zones of definitions meant.
- `statements`: the SQL of one class over its table.
- `schema`: the classes of a store over the tables of the file.
- `filters`: predicates as SQL.
- `select`: a plan as SELECTs.
"""
