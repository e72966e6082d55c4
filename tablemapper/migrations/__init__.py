"""Migration scripts: what a script says, in which order scripts follow each other, and how one is written.

- `steps`: what a script can do, as data.
- `script`: one script: its two shapes, its function, its steps.
- `report`: what a run did, or would do.
- `fields`: from an entity of the old shape to the same one of the new.
- `undoing`: the script that undoes another one.
- `links`: whether the old version goes on after a migration.
- `plan`: which classes of a store a script ends, and what takes their place.
- `validation`: what is wrong with a script.
- `chain`: the scripts of a package, or of a list of functions, in order.
- `comparison`: the changes between the shapes in schema.json and the classes.
- `migrations`: the scripts of an application, as users hold them.
- `run`: running scripts over a store.
"""
