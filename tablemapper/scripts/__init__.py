"""Migration scripts: what a script says, in which order scripts follow each other, how one is written and checked.

Nothing here knows a store; `migrations` runs scripts over one.

- `source`: scripts as Python source.
- `arguments`: the arguments of steps.
- `spec_changes`: the forms of the old classes, while steps change them.
- `step_base`: what every step answers.
- `steps`: the steps of a script, as data; each answers for itself.
- `script`: one script: its two shapes, its function, its steps, and the script that undoes it.
- `field_converter`: the conversion of entities, field by field.
- `links`: whether the old version goes on after a migration.
- `conversion_plan`: the plan of a script for one store: its classes and conversions.
- `validation`: the faults of a script.
- `chain`: the scripts of a package, or of a list of functions, in order.
- `comparison`: the changes between schema.json and the classes.
- `preflight`: a script is tried before it is stored.
- `migrations`: the scripts of an application: checked against its classes, and written.
"""
