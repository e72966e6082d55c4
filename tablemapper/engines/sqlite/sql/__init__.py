"""Tables, the catalogue, and the statements for SQLite.

- `tables`: the tables and their columns.
- `catalogue`: the schema that the file keeps.
- `names`: the catalogue as an older version sees it, after renames and beside twins.
- `maintained_tables`: the tables of indexes and groups.
- `zone_rules`: the rules of time zones that indexes and aggregates are maintained by.
- `statements`: the SQL of one class over its table.
- `sizes`: what rows take on Azure.
- `classes`: the classes of a store as the file has them.
- `schema`: what is maintained from them, and what jobs, copies and twins add to that.
- `filters`: predicates as SQL.
- `range_sql`: the bounds of ranges as SQL.
- `places`: what comes after a position in an order, as SQL.
- `select`: a plan as SELECTs.
"""
