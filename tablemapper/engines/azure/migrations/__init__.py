"""Migrations of an account.

- `table_swap`: those that copy entities: into new tables, which take the place of the old ones.
- `migrating`: `AzureMigrations`: the protocol; and those that change the catalogue alone.
"""
