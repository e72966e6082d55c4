"""Tables, the catalogue, and the statements for SQLite.

- `tables`: the SQL of entity tables.
- `catalogue`: the catalogue, read and written.
- `maintained_tables`: the tables of indexes and groups.
- `statements`: the SQL of one class over its table.
- `sizes`: what rows take on Azure.
- `classes`: the classes of a store as the file has them.
- `schema`: what is maintained from them, and what jobs, copies and twins add to that.
- `filters`: predicates as SQL.
- `range_sql`: the bounds of ranges as SQL.
- `places`: what comes after a position in an order, as SQL.
- `select`: a plan as SELECTs.
"""
