"""Field types: validation and storage.

- `scalars`: the types that are one value.
- `type_names`: the names of types in the module of a class.
- `timestamp`: the type of the times that a store gives.
- `choices`: Enums and Literals.
- `precision`: times that are cut when they are set.
- `geo`: a place on the earth.
- `extra`: the properties that a class does not declare.
- `json_schema`: what nested values look like in a store.
- `constraint_aliases`: constraints as other packages spell them.
- `constraints`: bounds, lengths and patterns of values.
- `hooks`: the hooks of users' own classes.
- `registered`: users' own classes that are stored as scalars.
- `nested`: lists, dicts and classes as JSON; `value_type` finds the type of any annotation.
- `sums`: exact sums.
"""
