"""Migration scripts: what a script says, in which order scripts follow each other, and how one is written.

- `steps`: what a script can do, as data.
- `script`: one script: its two shapes, its function, its steps.
- `report`: what a run did, or would do.
- `fields`: from an entity of the old shape to the same one of the new.
- `plan`: which classes of a store a script ends, and what takes their place.
- `run`: running scripts over a store.
"""
