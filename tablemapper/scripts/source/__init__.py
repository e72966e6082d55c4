"""Migration scripts as Python source.

- `lines`: calls and imports as lines.
- `nested_classes`: classes of nested values.
- `classes`: forms as classes of entities and aggregates.
- `text`: a whole script.
"""
