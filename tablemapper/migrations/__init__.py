"""Migration scripts: what a script says, in which order scripts follow each other, and how one is written.

- `steps`: what a script can do, as data.
- `script`: one script: its two shapes, its function, its steps.
"""
