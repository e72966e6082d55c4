"""How values become partition keys and row keys, in order, and back.

- `forms`: the text of each type and spec.
- `times`: time formats.
- `codec`: the escaping of texts.
- `template`: templates, from class body to generated functions.
- `composed`: times that stand in a key in pieces.
- `overlap`: whether two templates can make the same key.
"""
