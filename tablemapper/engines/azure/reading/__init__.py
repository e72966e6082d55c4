"""Queries over the tables of an account: what is sent for a plan, and what becomes of the answers.

- `filters`: bounds and conditions as what a service filters by.
- `rollup_fields`: maintained fields, which groups with the keys of the entities keep.
- `large_values`: values that are larger than a class declares, where it selects them.
- `memory_sort`: what rows are sorted by in memory.
- `scans`: tables read whole, and the places of rows of indexes.
- `spilled_rows`: rows by their keys, in a temporary file where they are many.
- `reads`: the ranges of a plan as requests, their pages side by side and merged, the entities of index rows.
"""
