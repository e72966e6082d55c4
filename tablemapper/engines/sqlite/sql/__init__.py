"""Tables, the catalogue, and the statements for SQLite.

- `ddl`: the SQL of entity tables.
- `catalogue_table`: the catalogue, read and written.
- `index_tables`: the tables of indexes and groups.
- `statements`: the SQL of one class over its table.
- `sizes`: what rows take on Azure.
- `stored_classes`: the classes of a store as the file has them.
- `schema`: what is maintained from them, and what jobs, copies and twins add to that.
- `filters`: predicates as SQL.
- `ranges`: the bounds of ranges as SQL.
- `keyset`: what comes after a position in an order, as SQL.
- `select`: a plan as SELECTs.
"""
