"""What `Product.price` is: conditions and calculations as data, and as Python.

- `arithmetic`: what operators do with each type.
- `tree`: attributes, predicates, orders and assignments.
- `predicates`: walks over predicates, and predicates as Python.
"""
