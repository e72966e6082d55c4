"""Typed expressions: conditions and calculations as data, and as Python.

- `foreign_names`: names that other libraries have for what is called otherwise here, and read in a class body.
- `arithmetic`: what operators do with each type.
- `elements`: what stands inside a value: elements of a list, steps to a nested value.
- `clauses`: what is done with a field: an order by it, an assignment to it.
- `boolean`: what every predicate answers, and predicates that are made of others.
- `tree`: attributes, and the predicates that test them.
- `predicates`: predicates taken apart, written down, and with other constants.
- `python_source`: what predicates mean, as Python source.
- `sortable`: the form in which values are kept that have to sort as they do.
"""
