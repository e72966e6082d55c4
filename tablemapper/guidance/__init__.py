"""Advice on declarations, data and queries that work but scale badly, with the fix to paste.

- `workload`: calls that were observed, added up by what they ask.
- `advice`: what one piece of advice is.
- `keys_and_indexes`: keys and indexes, as the rules look at them, and declarations that would be better.
- `declaration_rules`: the rules over declarations, a function for each code, in tables of them.
- `data_rules`: the rules over what a store holds.
- `call_rules`: the rules over calls that were observed.
- `advisor`: the advice on classes.
"""
