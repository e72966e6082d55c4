"""What a value of a field may be, how it is checked and stored.

- `scalars`: the types that are one value.
- `choices`: Enums and Literals.
- `precision`: times that are cut when they are set.
- `geo`: a place on the earth.
- `extra`: the properties that a class does not declare.
- `json_schema`: what nested values look like in a store.
- `type_aliases`: what type aliases stand for.
- `constraint_aliases`: constraints as other packages spell them.
- `constraints`: bounds, lengths and patterns of values.
- `nested`: lists, dicts and classes as JSON; `value_type` finds the type of any annotation.
- `json_reader`: JSON from outside, read as values.
- `arrow`: columns of values as Arrow arrays, and back.
- `column_errors`: what is wrong with a column as a whole, and what to write.
- `sums`: exact sums.
"""
