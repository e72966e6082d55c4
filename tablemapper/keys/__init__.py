"""The encoding of values as partition keys and row keys, in order, and back.

- `encodings`: the text of each type and spec.
- `times`: time formats.
- `zones`: time zones: the local time of a moment, and the moments of a local time.
- `truncation`: what a time is cut down to, in UTC or in a zone.
- `codec`: the escaping of texts.
- `template`: compiled templates: what they encode, decode and bound, and the generated functions.
- `template_parser`: from the text of a template to that, with all its faults.
- `composite_times`: times that stand in a key in pieces.
- `canonical`: whether texts are keys of a class.
- `overlap`: whether two templates can make the same key.
"""
